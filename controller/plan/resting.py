"""
The rests that several decisions share.

What is said when a call failed, a token is missing, a session lives or has ended is written once, so that one situation
is always told in one way.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.session import SpriteState
from controller.api.situations import BLIND, Situation, judge_readiness
from controller.api.terminal import (
    Relaunch,
    SessionEnd,
    SessionStatus,
    TerminalSpec,
)
from controller.errors import Failure
from controller.plan.activity import Presence
from controller.plan.breaker import PROBE_INTERVAL, describe_incident
from controller.plan.ends import EndReason
from controller.plan.facts import Facts, Memory
from controller.plan.failures import STALL_RETRY, Stall, judge_failure
from controller.plan.fence_ids import find_incarnation
from controller.plan.gateways import find_presence
from controller.plan.kill import (
    METADATA_AGE,
    NOTHING_LISTED,
)
from controller.plan.looks import (
    AWAKE_AGE,
    INSIDE_AGE,
    Listed,
    LookFailed,
    NotLooked,
    SpriteAway,
    SpriteLook,
    SpriteSeen,
    is_fresh,
)
from controller.plan.status import is_true
from controller.plan.steps import Happening, LookAtSprite, Outcome, Plan, Rest, Verdict

SPRITE_AWAY_AGAIN: Final = timedelta(seconds=30)


def rest_on_failure(facts: Facts, memory: Memory, failed: LookFailed) -> Plan:
    """Say that a call failed, and come again when its kind allows."""
    verdict = judge_failure(failed)
    text = tell_way_out(facts, verdict.situation, failed.message)
    outcome = Outcome(
        verdict.situation,
        text,
        session=facts.status.session,
        kill=facts.status.kill,
        terminated=judge_unended(facts, verdict.situation, text),
    )
    if isinstance(verdict, Stall):
        warning = Happening(Reason(verdict.situation.value), text, warning=True)
        return Plan(Rest(outcome, STALL_RETRY, happenings=(warning,)), memory)
    return Plan(Rest(outcome, verdict.after, retry=verdict.after is None), memory)


def rest_incident(facts: Facts, memory: Memory) -> Plan:
    """Say that the platform has an incident, and conclude nothing; all that waits is woken when it is over."""
    if not isinstance(facts.sprite, LookFailed):
        # The look asks nobody now, and says of the sprite itself that nothing is known.
        return Plan(LookAtSprite(facts.now), memory)
    text = describe_incident(facts.breaker)
    return rest_on_failure(facts, memory, LookFailed(Failure.API_INCIDENT, text, facts.now, PROBE_INTERVAL))


def rest_token(facts: Facts, memory: Memory, trouble: Situation) -> Plan:
    """Say what is wrong with the token; a Secret may be mended without the object changing."""
    text = tell_way_out(facts, trouble, facts.token.message)
    outcome = Outcome(
        trouble,
        text,
        session=facts.status.session,
        kill=facts.status.kill,
        terminated=judge_unended(facts, trouble, text),
    )
    if facts.token.passing:
        return Plan(Rest(outcome, retry=True), memory)
    warning = Happening(Reason(trouble.value), text, warning=True)
    return Plan(Rest(outcome, STALL_RETRY, happenings=(warning,)), memory)


def tell_way_out(facts: Facts, situation: Situation, message: str) -> str:
    """Add to what happened who can do what about it."""
    sentences = [message]
    if situation is Situation.TOKEN_REJECTED:
        sentences.append(
            f"The Sprites API does not accept {_name_token(facts)}. Put a valid token there; it is read again within "
            f"a minute."
        )
    elif situation is Situation.TOKEN_FORBIDDEN:
        sentences.append(
            f"The Sprites API accepts {_name_token(facts)} and does not let it use sprite {facts.spec.sprite_name}. "
            f"Put one there that may; it is read again within a minute."
        )
    elif situation is not Situation.API_INCIDENT and (is_blind(situation) or situation is Situation.SPRITE_NOT_FOUND):
        sentences.append("It is tried again.")
    if _must_end(facts):
        sentences.append("`deletionPolicy: Orphan` lets a deleted object go without proof.")
    return " ".join(sentences)


def judge_unended(facts: Facts, situation: Situation, message: str, *, reason: Reason | None = None) -> Verdict | None:
    """Say of `Terminated` why the end is not proven yet; None where nobody asked for it."""
    if not _must_end(facts):
        return None
    status = ConditionStatus.UNKNOWN if is_blind(situation) else ConditionStatus.FALSE
    return Verdict(status, reason or Reason(situation.value), message)


def is_blind(situation: Situation) -> bool:
    """Tell whether the Sprites API cannot be asked, which is not an answer."""
    return judge_readiness(situation) is BLIND


def _must_end(facts: Facts) -> bool:
    return facts.spec.terminated or facts.deleting


def _name_token(facts: Facts) -> str:
    ref = facts.spec.token_secret_ref
    if facts.token.trouble is not None:
        return "the token that is left for ending the session"
    if ref is None:
        return "the operator's own token"
    return f"the token under the key {ref.key} of Secret {ref.name}"


def need_sprite(facts: Facts, memory: Memory) -> SpriteSeen | Plan:
    """Get a sprite that was seen lately, or the step that leads there."""
    match facts.sprite:
        case NotLooked():
            return Plan(LookAtSprite(facts.now - METADATA_AGE / 2), memory)
        case LookFailed() as failed:
            return rest_on_failure(facts, memory, failed)
        case SpriteAway(successor=None, blind=blind):
            text = f"The Sprites API has no sprite {facts.spec.sprite_name}; this goes on by itself once it is created."
            if blind and _must_end(facts):
                text = NOTHING_LISTED
            outcome = Outcome(
                Situation.SPRITE_NOT_FOUND,
                text,
                session=facts.status.session,
                kill=facts.status.kill,
                terminated=judge_unended(facts, Situation.SPRITE_NOT_FOUND, text),
            )
            return Plan(Rest(outcome, SPRITE_AWAY_AGAIN), memory)
        case SpriteAway(successor=successor, started=started, read_time=read_time):
            assert successor is not None
            return SpriteSeen(successor, started, read_time)
        case SpriteSeen() as seen:
            if facts.now - seen.started > METADATA_AGE:
                return Plan(LookAtSprite(facts.now - METADATA_AGE / 2), memory)
            return seen
        case _:
            assert_never(facts.sprite)


def look_freshly(facts: Facts, memory: Memory) -> Plan:
    """Read the sprite's metadata directly before a call that must not wake it."""
    return Plan(LookAtSprite(facts.now - AWAKE_AGE / 2), memory)


def is_known_awake(facts: Facts) -> bool:
    """Tell whether a call surely wakes nobody: the sprite was seen running, or answered from inside, just before."""
    if isinstance(facts.sessions, Listed) and facts.now - facts.sessions.started <= INSIDE_AGE:
        return True
    if not isinstance(facts.sprite, SpriteSeen) or is_paused(facts.sprite):
        return False
    return is_fresh(facts.sprite, now_time=facts.now_time)


def is_paused(look: SpriteLook) -> bool:
    """Tell whether a look would wake the sprite. A state that is absent or unknown does not say so."""
    return isinstance(look, SpriteSeen) and look.sprite.state in (SpriteState.WARM, SpriteState.COLD)


def is_watched(facts: Facts) -> bool:
    """Tell whether anybody counts as a viewer: a gateway that is gone has none."""
    return find_presence(facts.spec, facts.view, gone=facts.gone) is Presence.WATCHED


def rest_live(facts: Facts, memory: Memory, session: SessionStatus, *, happenings: tuple[Happening, ...] = ()) -> Plan:
    """Say that the session lives, and whether somebody watches it."""
    attached = is_watched(facts)
    message = f"Session {session.id} lives and {'somebody' if attached else 'nobody'} is attached."
    if facts.spec.terminated or facts.deleting:
        situation, message = Situation.TERMINATING, f"Session {session.id} is being ended."
    else:
        situation = Situation.RUNNING if attached else Situation.DETACHED
        if facts.held:
            situation, message = Situation.HELD, f"{message} A task keeps the sprite awake."
    outcome = Outcome(
        situation,
        message,
        session=session,
        kill=facts.status.kill if happenings == () else None,
        live=Verdict(ConditionStatus.TRUE, Reason.LIVE),
        doubt_settled=True,
    )
    return Plan(Rest(outcome, happenings=happenings), memory)


def rest_ended(facts: Facts, memory: Memory, session: SessionStatus, reason: EndReason, message: str) -> Plan:
    """Write an end. Whether another session follows is for the next visit to decide."""
    return _rest_ended(facts, memory, end_session(facts, session, reason), message)


def rest_exited(facts: Facts, memory: Memory, session: SessionStatus, exit_code: int) -> Plan:
    """
    Write an end whose exit a gateway saw.

    One that was written before anybody told of the exit stays the same end, and only gets to know it.
    """
    message = f"Session {session.id} has exited with code {exit_code}."
    if session.ended is None:
        return _rest_ended(facts, memory, end_session(facts, session, EndReason.EXITED), message, exit_code)
    known = session.ended.model_copy(update={"reason": str(EndReason.EXITED)})
    return _rest_ended(facts, memory, session.model_copy(update={"ended": known}), message, exit_code)


def _rest_ended(facts: Facts, memory: Memory, ended: SessionStatus, message: str, exit_code: int | None = None) -> Plan:
    assert ended.ended is not None
    reason = EndReason(ended.ended.reason)
    situation = judge_situation_after(facts.spec, ended.ended)
    if situation is Situation.LOST:
        message = f"{message} {_tell_after_loss(facts.spec)}"
    outcome = Outcome(
        situation,
        message,
        session=ended,
        kill=facts.status.kill,
        live=Verdict(ConditionStatus.FALSE, Reason(situation.value), message),
        doubt_settled=True,
        exit_code=exit_code,
    )
    happening = Happening(Reason(str(reason)), message, warning=reason is not EndReason.EXITED)
    memory = replace(memory, absent_at=None, search_asked=None, fresh_nonce=None)
    return Plan(Rest(outcome, happenings=(happening,)), memory)


def _tell_after_loss(spec: TerminalSpec) -> str:
    """Say how a lost terminal gets another session, which it does not by itself."""
    if spec.launch is None:
        return "There is no `spec.launch` to start another by: delete this object, and create another."
    return "Attach to start another session, or set `relaunch: OnLost`."


def rest_terminated(facts: Facts, memory: Memory, reason: Reason, message: str) -> Plan:
    """Say that nothing is left to end."""
    outcome = Outcome(
        Situation.TERMINATED,
        message,
        session=facts.status.session,
        kill=facts.status.kill,
        terminated=Verdict(ConditionStatus.TRUE, reason, message),
        live=Verdict(ConditionStatus.FALSE, reason, message),
        doubt_settled=True,
    )
    return Plan(Rest(outcome), memory)


def end_session(facts: Facts, session: SessionStatus, reason: EndReason) -> SessionStatus:
    """
    Write the end of a session, with who was attached then: a second start asks for somebody who came since.

    Somebody of whom the status does not tell yet has come after the end: their coming is what made us look. One whose
    gateway is gone was there before it: else their name, which nobody may take out of the spec but another gateway,
    would be taken for somebody new, and start a session that nobody came for, again and again.
    """
    was_there = is_true(facts.status, ConditionType.ATTACHED) or (
        find_incarnation(facts.spec.active_socket_id) in facts.gone
    )
    ended = SessionEnd(
        reason=str(reason),
        time=facts.now_time,
        generation=facts.generation,
        attached=facts.spec.declares_viewer and was_there,
        socket_id=facts.spec.active_socket_id,
    )
    return session.model_copy(update={"ended": ended})


def judge_situation_after(spec: TerminalSpec, ended: SessionEnd) -> Situation:
    """Name the situation of an object whose session has ended."""
    match EndReason(ended.reason):
        case EndReason.EXITED:
            return Situation.EXITED
        case EndReason.EXIT_UNSEEN:
            return Situation.EXIT_UNSEEN
        case EndReason.REAPED:
            return Situation.REAPED
        case EndReason.TERMINATED:
            return Situation.TERMINATED
        case EndReason.LAUNCH_UNCLEAR:
            return Situation.LAUNCH_UNCLEAR
        case EndReason.LOST:
            if spec.launch is not None and spec.relaunch is Relaunch.ON_LOST:
                return Situation.RELAUNCHING
            return Situation.LOST

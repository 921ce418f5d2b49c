"""
What to do next about one AgentTerminal: the decision core. Pure, total, level-triggered.

The engine gathers `Facts`, asks `plan_terminal`, does the one `Step` it gets, and asks again with what it learned,
until the step is a `Rest` (write this status, come again then) or a `ComeAgain` (write nothing). Nothing here remembers
an event: whatever woke the object, the answer depends on what is declared, recorded and seen. `Memory` is what this
process alone knows; losing it costs time, never a second session and never a false proof.

Order of the questions: may it go (deletion), must it end (`terminated`), may it start (`suspend`, token), then adopt,
launch, or look whether it still lives.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Cause, Identity, SpriteState
from controller.api.situations import Situation
from controller.api.terminal import (
    KillTrigger,
    SessionEnd,
    SessionStatus,
    TerminalStatus,
)
from controller.plan.breaker import Conclusion, may_conclude
from controller.plan.ends import (
    EndReason,
    find_exit,
    has_come_since,
    judge_end_by_list,
    judge_end_by_sprite,
    may_follow,
)
from controller.plan.facts import Facts, Memory
from controller.plan.kill import (
    METADATA_AGE,
    NOTHING_LISTED,
    SECOND_LOOK,
    ComeAgain,
    Presence,
)
from controller.plan.looks import Listed, LookFailed, SpriteAway, is_answer_to
from controller.plan.reap import (
    Armed,
    LookFirst,
    NotArmed,
    Owed,
    Reap,
    ReapFacts,
    ReapProven,
    describe_warning,
    plan_reap,
)
from controller.plan.resting import (
    is_paused,
    is_watched,
    judge_situation_after,
    need_sprite,
    rest_ended,
    rest_exited,
    rest_live,
    rest_token,
)
from controller.plan.starting import plan_first, plan_launch
from controller.plan.status import is_resumed
from controller.plan.steps import LookAtSessions, LookAtSprite, Outcome, PlaceFinalizer, Plan, Rest, Verdict
from controller.plan.sweeping import guard_fence
from controller.plan.teardown import conclude_kill, find_proven, plan_deletion, plan_end, plan_terminated
from controller.plan.wakes import guard_wake

EXIT_TRAIL: Final = timedelta(seconds=5)
"""How long a list may go on to show a session whose exit a gateway has seen; after that the list is believed."""


def plan_terminal(facts: Facts, memory: Memory) -> Plan:
    """Decide the next step. Total: it never raises, and every combination of facts has an answer."""
    return guard_fence(facts, memory, guard_wake(facts, _plan_step(facts, memory)))


def _plan_step(facts: Facts, memory: Memory) -> Plan:
    if facts.deleting:
        return plan_deletion(facts, memory)
    if not facts.has_finalizer and _is_guarded(facts):
        return Plan(PlaceFinalizer(), memory)
    if facts.spec.terminated:
        return plan_terminated(facts, memory)
    if facts.spec.suspend:
        return _plan_suspended(facts, memory)
    session = facts.status.session
    if session is None:
        return plan_first(facts, memory)
    if session.ended is not None:
        return _plan_after_end(facts, memory, session, session.ended)
    if session.id is None:
        return plan_launch(facts, memory)
    return _plan_live(facts, memory, session)


def _is_guarded(facts: Facts) -> bool:
    """
    Tell whether a session hangs on this object, or may again.

    Somebody has taken our finalizer off where it is missing then, as `kubectl replace` with a plain manifest does;
    deleting the object would leave the session running, and no socket may claim an object that is not guarded.
    """
    session = facts.status.session
    return session is not None and (session.ended is None or not facts.spec.terminated)


def _plan_suspended(facts: Facts, memory: Memory) -> Plan:
    """Start nothing. Ends are still observed and written."""
    session = facts.status.session
    if session is not None and session.id is not None and session.ended is None:
        reap = plan_reap(_describe_for_reap(facts, memory, session))
        if isinstance(reap, Reap | ReapProven):
            return _take_reap(facts, memory, session, reap)
        plan = _judge_live(facts, memory, session)
        if plan is not None:
            return plan
    outcome = Outcome(
        Situation.SUSPENDED,
        "Suspended: nothing is started, adopted, held or reaped until `spec.suspend` is false.",
        session=session,
        kill=facts.status.kill,
        doubt_settled=may_conclude(facts.breaker, Conclusion.SESSION_ENDED),
    )
    return Plan(Rest(outcome), memory)


def _plan_live(facts: Facts, memory: Memory, session: SessionStatus) -> Plan:
    """Say that it lives, look only where that is in question, and end it where nobody has watched for too long."""
    reap = plan_reap(_describe_for_reap(facts, memory, session))
    if isinstance(reap, Reap | ReapProven | LookFirst):
        return _take_reap(facts, memory, session, reap)
    memory = _give_up_reap(memory)
    plan = _judge_live(facts, memory, session)
    if plan is not None:
        return plan
    if facts.token.trouble is not None and not facts.token.passing:
        return rest_token(facts, memory, facts.token.trouble)
    rested = rest_live(facts, replace(memory, absent_at=None), session)
    if _is_unanswered(facts) and isinstance(rested.step, Rest):
        outcome = replace(rested.step.outcome, live=None, doubt_settled=False)
        if isinstance(facts.sprite, SpriteAway) and facts.sprite.blind:
            # It may be gone for good, which nothing proves: to say that the terminal is as declared would be a lie.
            outcome = replace(outcome, situation=Situation.SPRITE_NOT_FOUND, message=NOTHING_LISTED)
        return Plan(Rest(outcome, retry=True), memory)
    return _count_down(facts, rested, reap)


def _describe_for_reap(facts: Facts, memory: Memory, session: SessionStatus) -> ReapFacts:
    kill = facts.status.kill
    return ReapFacts(
        identity=Identity(session.sprite_id or "", session.id or "", session.created),
        live=session.id is not None,
        attached=is_watched(facts),
        suspended=facts.spec.suspend,
        idle_timeout=timedelta(seconds=facts.spec.idle_timeout_seconds),
        policy=facts.spec.idle_policy,
        detached_time=None if is_resumed(facts.status, facts.spec) else facts.status.detached_time,
        activity=facts.activity,
        idle_after=facts.idle_after,
        warned_for=memory.reap_warned_for,
        begun=kill is not None and kill.trigger is KillTrigger.REAPED and kill.proof is None,
        settled=(memory.kill is not None and memory.kill.settled is not None)
        or find_proven(memory, session) is not None,
        sprite=facts.sprite,
        last_wake_time=facts.last_wake_time,
        now=facts.now,
        now_time=facts.now_time,
    )


def _take_reap(facts: Facts, memory: Memory, session: SessionStatus, reap: Reap | ReapProven | LookFirst) -> Plan:
    match reap:
        case Reap():
            return plan_end(facts, memory, session, KillTrigger.REAPED)
        case ReapProven() if not may_conclude(facts.breaker, Conclusion.SESSION_ENDED):
            return plan_end(facts, memory, session, KillTrigger.REAPED)
        case ReapProven(evidence=evidence):
            return conclude_kill(facts, memory, session, KillTrigger.REAPED, evidence)
        case LookFirst():
            if facts.token.trouble is not None:
                return rest_token(facts, memory, facts.token.trouble)
            return Plan(LookAtSprite(facts.now - METADATA_AGE / 2), memory)
        case _:
            assert_never(reap)


def _give_up_reap(memory: Memory) -> Memory:
    """A reap that sent nothing yet is forgotten when it is not due any more: somebody has attached."""
    return memory if memory.kill is None else replace(memory, kill=None, object_read=None)


def _count_down(facts: Facts, rested: Plan, reap: NotArmed | Armed | Owed) -> Plan:
    """Come again when the reap is due, announce it to a busy terminal, and say where it is owed."""
    if not isinstance(rested.step, Rest):
        return rested
    match reap:
        case NotArmed():
            return rested
        case Armed(since=since, after=after, warn=warn):
            if not warn:
                return replace(rested, step=replace(rested.step, after=after))
            warning = describe_warning(_describe_for_reap(facts, rested.memory, _session_of(rested.step)), after)
            step = replace(rested.step, after=after, tidings=(warning,))
            return Plan(step, replace(rested.memory, reap_warned_for=since))
        case Owed():
            text = "Due to be ended for being idle; the sprite is paused, and it is done when it next runs."
            outcome = replace(rested.step.outcome, situation=Situation.REAP_OWED, message=text)
            return replace(rested, step=replace(rested.step, outcome=outcome, after=None))
        case _:
            assert_never(reap)


def _session_of(rest: Rest) -> SessionStatus:
    assert rest.outcome.session is not None
    return rest.outcome.session


def _is_unanswered(facts: Facts) -> bool:
    """Tell whether somebody asked whether the session lives, and the look that should say so failed, or would lie."""
    if facts.doubt is not None and not may_conclude(facts.breaker, Conclusion.SESSION_ENDED):
        return True
    looks = (facts.sprite, facts.sessions)
    return facts.doubt is not None and any(
        isinstance(look, LookFailed) and look.started >= facts.doubt for look in looks
    )


def _judge_live(facts: Facts, memory: Memory, session: SessionStatus) -> Plan | None:
    """Answer the question whether a session still lives: None means as far as anybody can tell."""
    if facts.doubt is None or session.id is None or not may_conclude(facts.breaker, Conclusion.SESSION_ENDED):
        return None
    identity = Identity(session.sprite_id or "", session.id, session.created)
    exit_code, lost = find_exit(identity, facts.status.gateways), judge_end_by_sprite(identity, facts.sprite)
    if exit_code is not None and (lost is not None or is_paused(facts.sprite)):
        # Nothing is asked of a paused sprite, and what was seen of the end came before its processes could be lost.
        return rest_exited(facts, memory, session, exit_code)
    if lost is not None:
        return rest_ended(facts, memory, session, EndReason.LOST, lost.value)
    if facts.token.trouble is not None or is_paused(facts.sprite) or isinstance(facts.sprite, LookFailed):
        return None
    question = facts.doubt if memory.absent_at is None else memory.absent_at + SECOND_LOOK
    if exit_code is not None:
        question = max(question, facts.began)
    if not is_answer_to(facts.sessions, question):
        if question > facts.now:
            return Plan(ComeAgain(question - facts.now), memory)
        return Plan(LookAtSessions(question, Cause.CHECK), memory)
    match judge_end_by_list(identity, facts.sessions):
        case Presence.LISTED if exit_code is not None and facts.now < facts.doubt + EXIT_TRAIL:
            return Plan(ComeAgain(SECOND_LOOK), replace(memory, absent_at=None))
        case None | Presence.LISTED:
            return None
        case Presence.REUSED:
            text = "The session's id is in use by another session."
            return rest_ended(facts, memory, session, EndReason.LOST, text)
        case Presence.ABSENT:
            assert isinstance(facts.sessions, Listed)
            if memory.absent_at is None:
                return Plan(ComeAgain(SECOND_LOOK), replace(memory, absent_at=facts.sessions.started))
            if exit_code is not None:
                return rest_exited(facts, memory, session, exit_code)
            text = f"Session {session.id} is not in the sprite's list any more; nobody saw how it ended."
            return rest_ended(facts, memory, session, EndReason.EXIT_UNSEEN, text)


def _plan_after_end(facts: Facts, memory: Memory, session: SessionStatus, ended: SessionEnd) -> Plan:
    """Start a fresh session where the rules allow one, else say how the last one ended."""
    if may_follow(facts.spec, ended):
        return _plan_follow(facts, memory, ended)
    identity = Identity(session.sprite_id or "", session.id or "", session.created)
    exit_code = find_exit(identity, facts.status.gateways)
    if ended.reason == EndReason.EXIT_UNSEEN and exit_code is not None:
        return rest_exited(facts, memory, session, exit_code)
    situation = judge_situation_after(facts.spec, ended)
    outcome = Outcome(
        situation,
        _message_of_end(facts.status, session),
        session=session,
        kill=facts.status.kill,
        live=Verdict(ConditionStatus.FALSE, Reason(situation.value)),
        doubt_settled=True,
    )
    return Plan(Rest(outcome), memory)


def _plan_follow(facts: Facts, memory: Memory, ended: SessionEnd) -> Plan:
    """A loss never wakes a sprite to start again; somebody who attaches does."""
    if not has_come_since(facts.spec, ended):
        seen = need_sprite(facts, memory)
        if isinstance(seen, Plan):
            return seen
        if seen.sprite.state is not SpriteState.RUNNING:
            outcome = Outcome(
                Situation.RELAUNCHING,
                "The session was lost; another is launched when the sprite next runs.",
                session=facts.status.session,
                kill=facts.status.kill,
            )
            return Plan(Rest(outcome), memory)
    return plan_launch(facts, memory)


def _message_of_end(status: TerminalStatus, session: SessionStatus) -> str:
    """Keep the sentence that was written with the end."""
    for condition in status.conditions:
        if condition.type == "SessionLive" and condition.message:
            return condition.message
    return f"Session {session.id} has ended."

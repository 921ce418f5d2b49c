"""
How a terminal's session is ended: because `terminated` asks for it, or because the object is deleted.

The finalizer goes only on proof, on `Orphan`, or where there is nothing to guard. The kill itself is `plan.kill`'s.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Cause, Identity
from controller.api.situations import Situation
from controller.api.terminal import (
    DeletionPolicy,
    KillStatus,
    KillTrigger,
    LeftoversResult,
    LeftoversStatus,
    SessionStatus,
)
from controller.plan.breaker import PROBE_INTERVAL, Conclusion, describe_incident, may_conclude
from controller.plan.ends import EndReason
from controller.plan.facts import Facts, Memory, ProvenEnd
from controller.plan.failures import STALL_RETRY
from controller.plan.kill import (
    METADATA_AGE,
    AskSessions,
    AskSprite,
    ComeAgain,
    KillEvidence,
    KillFacts,
    KillProgress,
    Proven,
    Send,
    Unproven,
    begin_kill,
    plan_kill,
)
from controller.plan.leftovers import NOTHING_LEFT, AskProcesses, Mark, describe_leftovers, plan_search
from controller.plan.looks import (
    SpriteAway,
)
from controller.plan.reap import is_reread_due
from controller.plan.resting import (
    end_session,
    judge_unended,
    need_sprite,
    rest_incident,
    rest_terminated,
    tell_way_out,
)
from controller.plan.starting import describe_launched, plan_adopt, rest_launched, search_launch
from controller.plan.steps import (
    Happening,
    Leave,
    LookAtProcesses,
    LookAtSessions,
    LookAtSprite,
    Outcome,
    Plan,
    ReleaseObject,
    RereadObject,
    Rest,
    SendKill,
    Verdict,
)

_NOTHING_TO_ADOPT: Final = frozenset({Situation.TERMINATED, Situation.SESSION_TAKEN, Situation.SPRITE_NOT_FOUND})


def plan_deletion(facts: Facts, memory: Memory) -> Plan:
    """Let the object go once its session is proven dead, was never there, or is given up by `Orphan`."""
    if not facts.has_finalizer:
        return Plan(Leave(), memory)
    session = facts.status.session
    if session is None and facts.spec.session_id is not None:
        return _plan_end_of_adoption(facts, memory, facts.spec.session_id)
    if session is None or session.ended is not None:
        return _release_nothing(facts, memory)
    if facts.spec.deletion_policy is DeletionPolicy.ORPHAN and may_conclude(facts.breaker, Conclusion.ORPHANED):
        note = f"Left session {session.id or 'of an unfinished launch'} running in sprite {facts.spec.sprite_name}."
        return Plan(ReleaseObject(Happening(Reason.ORPHANED, note)), memory)
    return plan_end(facts, memory, session, KillTrigger.DELETED)


def _release_nothing(facts: Facts, memory: Memory) -> Plan:
    """Let an object go that guards nothing (any more): that rests on the record alone, whatever the platform says."""
    if not may_conclude(facts.breaker, Conclusion.NOTHING_TO_GUARD):
        return rest_incident(facts, memory)
    return Plan(ReleaseObject(None), memory)


def _plan_end_of_adoption(facts: Facts, memory: Memory, session_id: str) -> Plan:
    """
    End an adoption that was cut between the finalizer and its record: record it now, and end it then.

    The finalizer is only placed where the session was found and ours; where it is not any more, nothing is left.
    """
    if facts.spec.deletion_policy is DeletionPolicy.ORPHAN and may_conclude(facts.breaker, Conclusion.ORPHANED):
        return Plan(ReleaseObject(None), memory)
    plan = plan_adopt(facts, memory, session_id)
    if isinstance(plan.step, Rest) and plan.step.outcome.situation in _NOTHING_TO_ADOPT:
        return Plan(ReleaseObject(None), memory)
    return plan


def plan_terminated(facts: Facts, memory: Memory) -> Plan:
    """End the session. One that was declared for adoption and never adopted is adopted first, so that it dies too."""
    session = facts.status.session
    if session is None:
        if facts.spec.session_id is None:
            return rest_terminated(facts, memory, Reason.NOTHING_TO_END, "No session was adopted or launched.")
        return plan_adopt(facts, memory, facts.spec.session_id)
    if session.ended is None:
        return plan_end(facts, memory, session, KillTrigger.TERMINATED)
    if session.ended.reason in (EndReason.TERMINATED, EndReason.REAPED):
        reason, left = _judge_confirmed(None if facts.status.kill is None else facts.status.kill.leftovers)
        return rest_terminated(facts, memory, reason, f"The session was killed and is proven dead.{left}")
    return rest_terminated(facts, memory, Reason.ALREADY_ENDED, "The session had ended before it was asked to.")


def plan_end(facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger) -> Plan:
    """End a session that is recorded, or whose launch is; what was proven before is not proven again."""
    proven = find_proven(memory, session)
    if proven is not None:
        return _repeat_conclusion(facts, memory, proven, trigger)
    if not facts.token.kill_usable:
        situation = facts.token.trouble or Situation.TOKEN_NOT_ALLOWED
        return _rest_unended(facts, memory, situation, Reason(situation.value), facts.token.message, after=STALL_RETRY)
    conclusion = Conclusion.NEVER_STARTED if session.id is None else Conclusion.SESSION_ENDED
    if not may_conclude(facts.breaker, conclusion):
        return _rest_incident(facts, memory, trigger)
    if session.id is None:
        return _plan_end_of_launch(facts, memory, session, trigger)
    identity = Identity(session.sprite_id or "", session.id, session.created)
    progress = memory.kill or begin_kill(asked=facts.end_asked, now=facts.now, now_time=facts.now_time)
    kill_facts = KillFacts(
        identity, facts.sprite, facts.sessions, facts.last_wake_time, facts.now, facts.now_time, facts.began
    )
    progress, step = plan_kill(progress, kill_facts)
    memory = replace(memory, kill=progress)
    match step:
        case AskSprite():
            return Plan(LookAtSprite(facts.now - METADATA_AGE / 2), memory)
        case AskSessions(since=since):
            cause = Cause.IDENTIFY if progress.settled is None else Cause.PROVE
            return Plan(LookAtSessions(since, cause), memory)
        case Send():
            if trigger is KillTrigger.REAPED and is_reread_due(memory.object_read, now=facts.now):
                return Plan(RereadObject(), memory)
            return Plan(SendKill(identity), memory)
        case ComeAgain():
            return _search_meanwhile(facts, memory, session, trigger) or Plan(step, memory)
        case Unproven() as unproven:
            return rest_unproven(facts, memory, trigger, unproven)
        case Proven(evidence=KillEvidence.SESSION_LIST):
            return _plan_leftovers(facts, memory, session, trigger)
        case Proven(evidence=evidence):
            return conclude_kill(facts, memory, session, trigger, evidence)
        case _:
            assert_never(step)


def _search_meanwhile(facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger) -> Plan | None:
    """Use the wait for the second proof to search for what the kill left: the search then costs no time."""
    progress = memory.kill
    if progress is None or progress.absent_at is None or trigger is KillTrigger.DELETED:
        return None
    if memory.leftovers_at is not None:
        return None
    _, step = plan_search(_mark_of(session), facts.processes, None, since=progress.settled_at)
    return Plan(LookAtProcesses(step.since), memory) if step == AskProcesses(progress.settled_at) else None


def _plan_leftovers(facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger) -> Plan:
    """
    Say what the kill left, in the same write as its proof.

    A deleted object has no status to say it in and lets go at once: its sprite is searched afterwards, once for all
    that were deleted there, and an Event tells.
    """
    assert memory.kill is not None
    if trigger is KillTrigger.DELETED:
        return conclude_kill(facts, memory, session, trigger, KillEvidence.SESSION_LIST)
    found_at, step = plan_search(_mark_of(session), facts.processes, memory.leftovers_at, since=memory.kill.settled_at)
    memory = replace(memory, leftovers_at=found_at)
    if isinstance(step, LeftoversStatus):
        return conclude_kill(facts, memory, session, trigger, KillEvidence.SESSION_LIST, left=step)
    if step.since > facts.now:
        return Plan(ComeAgain(step.since - facts.now), memory)
    return Plan(LookAtProcesses(step.since), memory)


def _mark_of(session: SessionStatus) -> Mark:
    intent = session.launch_intent
    return Mark(session.id or "", None if intent is None else intent.nonce)


def _judge_confirmed(left: LeftoversStatus | None) -> tuple[Reason, str]:
    """Give the reason of a proven end, and what is to be added to its sentence."""
    if left is None:
        return Reason.CONFIRMED, ""
    text = describe_leftovers(left)
    reason = Reason.LEFTOVERS_FOUND if left.result is LeftoversResult.FOUND else Reason.CONFIRMED
    return reason, f" {text}" if text else ""


def _rest_incident(facts: Facts, memory: Memory, trigger: KillTrigger) -> Plan:
    """Keep what a kill has come to, and say that nothing is sent or believed while the platform has an incident."""
    plan = rest_incident(facts, memory)
    if not isinstance(plan.step, Rest):
        return plan
    text = describe_incident(facts.breaker)
    unproven = Unproven(Situation.API_INCIDENT, Reason.API_INCIDENT, text, PROBE_INTERVAL)
    return rest_unproven(facts, memory, trigger, unproven)


def rest_unproven(facts: Facts, memory: Memory, trigger: KillTrigger, unproven: Unproven) -> Plan:
    """Say how far a kill got, and come again."""
    progress = memory.kill
    kill = None if progress is None else _describe_kill(facts, progress, trigger, evidence=None)
    return _rest_unended(
        facts,
        memory,
        unproven.situation,
        unproven.reason,
        unproven.message,
        after=unproven.after,
        kill=kill,
        ending=_name_ending(facts.status.session, trigger),
    )


def _name_ending(session: SessionStatus | None, trigger: KillTrigger) -> str:
    """Say which session is to end and why, for a line that is read apart from its object (T5)."""
    named = "The launch" if session is None or session.id is None else f"Session {session.id}"
    return f"{named} is to end ({trigger.value}) and is not proven dead: "


def _rest_unended(
    facts: Facts,
    memory: Memory,
    situation: Situation,
    reason: Reason,
    message: str,
    *,
    after: timedelta | None,
    kill: KillStatus | None = None,
    ending: str = "",
) -> Plan:
    text = tell_way_out(facts, situation, message)
    outcome = Outcome(
        situation,
        text,
        session=facts.status.session,
        kill=kill or facts.status.kill,
        terminated=judge_unended(facts, situation, text, reason=reason),
    )
    warning = Happening(reason, f"{ending}{text}", warning=True)
    return Plan(Rest(outcome, after, retry=after is None, happenings=(warning,)), memory)


def find_proven(memory: Memory, session: SessionStatus) -> ProvenEnd | None:
    """Give the end of this session that is proven and not written yet; that of a lost launch goes by its nonce."""
    proven = memory.proven
    if proven is None:
        return None
    if session.id is None:
        is_same = session.launch_intent is not None and session.launch_intent == proven.session.launch_intent
    else:
        is_same = session == proven.session
    return proven if is_same else None


def find_asked(memory: Memory) -> timedelta | None:
    """Tell since when a kill goes on, monotonic; None where none does."""
    progress = memory.kill or (None if memory.proven is None else memory.proven.progress)
    return None if progress is None else progress.asked


def _repeat_conclusion(facts: Facts, memory: Memory, proven: ProvenEnd, trigger: KillTrigger) -> Plan:
    with_session = replace(facts, status=facts.status.model_copy(update={"session": proven.session}))
    memory = replace(memory, kill=proven.progress)
    return conclude_kill(with_session, memory, proven.session, trigger, proven.evidence, left=proven.left)


def forget_proven(memory: Memory, session: SessionStatus | None) -> Memory:
    """Forget a proof once the end stands in the status, or another session does."""
    if memory.proven is None or (session is not None and find_proven(memory, session) is not None):
        return memory
    return replace(memory, proven=None)


def conclude_kill(
    facts: Facts,
    memory: Memory,
    session: SessionStatus,
    trigger: KillTrigger,
    evidence: KillEvidence,
    *,
    left: LeftoversStatus = NOTHING_LEFT,
) -> Plan:
    """Record the proof, and what the kill left; a deleted object needs no record, only its release."""
    confirmed, text = _judge_confirmed(left)
    message = f"{_describe_proof(session, evidence)}{text}"
    if trigger is KillTrigger.REAPED:
        message = f"Nobody was attached for {_name_minutes(facts.spec.idle_timeout_seconds)}. {message}"
    reason = Reason.REAPED if trigger is KillTrigger.REAPED else Reason.CONFIRMED
    happening = Happening(reason, message, evidence=evidence, leftovers=left.result)
    memory = replace(memory, proven=ProvenEnd(session, evidence, left, memory.kill))
    if trigger is KillTrigger.DELETED:
        if evidence is KillEvidence.SESSION_LIST:
            return Plan(ReleaseObject(replace(happening, leftovers=None), _mark_of(session)), memory)
        return Plan(ReleaseObject(happening), memory)
    warnings = (tell_leftovers(left),) if left.result is LeftoversResult.FOUND else ()
    progress = memory.kill or KillProgress(asked=facts.now, asked_time=facts.now_time)
    reaped = trigger is KillTrigger.REAPED
    outcome = Outcome(
        Situation.REAPED if reaped else Situation.TERMINATED,
        message,
        session=end_session(facts, session, EndReason.REAPED if reaped else EndReason.TERMINATED),
        kill=_describe_kill(facts, progress, trigger, evidence=evidence, left=left),
        terminated=None if reaped else Verdict(ConditionStatus.TRUE, confirmed, message),
        live=Verdict(ConditionStatus.FALSE, Reason.REAPED if reaped else Reason.CONFIRMED, message),
        doubt_settled=True,
    )
    memory = replace(memory, kill=None, found=None, object_read=None, reap_warned_for=None, leftovers_at=None)
    return Plan(Rest(outcome, happenings=(happening, *warnings)), memory)


def tell_leftovers(left: LeftoversStatus) -> Happening:
    """Warn of what a kill did not reach."""
    return Happening(Reason.LEFTOVERS_FOUND, describe_leftovers(left), warning=True)


def _name_minutes(seconds: int) -> str:
    return f"{seconds // 60} min" if seconds >= 60 and seconds % 60 == 0 else f"{seconds} s"


def _describe_proof(session: SessionStatus, evidence: KillEvidence) -> str:
    name = f"Session {session.id}" if session.id is not None else "The launch"
    match evidence:
        case KillEvidence.SESSION_LIST:
            return f"{name} was killed, and two later session lists do not show it any more."
        case KillEvidence.SPRITE_COLD:
            return f"{name} is gone: the sprite went cold, and its processes with it."
        case KillEvidence.SPRITE_GONE:
            return f"{name} is gone: its sprite is missing from two complete listings, a minute apart."
        case KillEvidence.NEVER_STARTED:
            return f"{name} left no trace in the sprite: nothing of it lives."
        case _:
            assert_never(evidence)


def _describe_kill(
    facts: Facts,
    progress: KillProgress,
    trigger: KillTrigger,
    *,
    evidence: KillEvidence | None,
    left: LeftoversStatus | None = None,
) -> KillStatus:
    session = facts.status.session
    return KillStatus(
        trigger=trigger,
        signal="SIGKILL",
        verdict=None if progress.settled is None else str(progress.settled),
        proof=None if evidence is None else str(evidence),
        sprite_id=None if session is None else session.sprite_id,
        requested_time=progress.asked_time,
        settled_time=progress.settled_time,
        confirmed_time=None if evidence is None else facts.now_time,
        attempts=progress.attempts,
        message=progress.message or None,
        leftovers=left,
    )


def _plan_end_of_launch(facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger) -> Plan:
    """End a launch whose answer was lost: find its session and kill it, or prove that nothing of it lives."""
    intent = session.launch_intent
    if intent is None:
        return conclude_kill(facts, memory, session, trigger, KillEvidence.NEVER_STARTED)
    if facts.announced is not None:
        return rest_launched(facts, memory, describe_launched(intent, facts.announced))
    seen = need_sprite(facts, memory)
    if isinstance(seen, Plan):
        if isinstance(facts.sprite, SpriteAway) and facts.sprite.confirmed:
            return conclude_kill(facts, memory, session, trigger, KillEvidence.SPRITE_GONE)
        return seen
    if seen.sprite.id != intent.sprite_id:
        return conclude_kill(facts, memory, session, trigger, KillEvidence.SPRITE_GONE)
    if memory.kill is None:
        memory = replace(memory, kill=KillProgress(asked=facts.now, asked_time=facts.now_time))
    found = memory.found
    if found is not None and found.launch_intent == intent:
        return _plan_end_of_found(facts, memory, found, trigger)
    search = search_launch(facts, memory, intent)
    if search.step is not None:
        return search.step
    if search.running is not None:
        found = describe_launched(intent, search.running)
        return _plan_end_of_found(facts, replace(search.memory, found=found), found, trigger)
    return conclude_kill(facts, search.memory, session, trigger, KillEvidence.NEVER_STARTED)


def _plan_end_of_found(facts: Facts, memory: Memory, found: SessionStatus, trigger: KillTrigger) -> Plan:
    """End a session that was found and not recorded: nothing is written before its kill, and its end names it."""
    with_session = replace(facts, status=facts.status.model_copy(update={"session": found}))
    return plan_end(with_session, memory, found, trigger)

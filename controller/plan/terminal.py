"""
What to do next about one AgentTerminal: the decision core. Pure, total, level-triggered.

The engine gathers `Facts`, asks `plan_terminal`, does the one `Step` it gets, and asks again with what it learned,
until the step is a `Rest` (write this status, come again then) or a `ComeAgain` (write nothing). Nothing here remembers
an event: whatever woke the object, the answer depends on what is declared, recorded and seen. `Memory` is what this
process alone knows; losing it costs time, never a second session and never a false proof.

Order of the questions: may it go (deletion), must it end (`terminated`), may it start (`suspend`, token), then adopt,
launch, or look whether it still lives.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Announced, Cause, Identity, Session, SpriteState, is_same_created
from controller.api.situations import Situation
from controller.api.terminal import (
    DeletionPolicy,
    KillStatus,
    KillTrigger,
    LaunchIntent,
    Origin,
    Relaunch,
    SessionEnd,
    SessionStatus,
    TerminalSpec,
    TerminalStatus,
)
from controller.errors import Failure
from controller.plan.ends import EndReason, judge_end_by_list, judge_end_by_sprite, may_follow
from controller.plan.failures import STALL_RETRY, Stall, judge_failure
from controller.plan.kill import (
    METADATA_AGE,
    SECOND_LOOK,
    AskSessions,
    AskSprite,
    ComeAgain,
    KillEvidence,
    KillFacts,
    KillProgress,
    Presence,
    Proven,
    Send,
    Unproven,
    plan_kill,
)
from controller.plan.launch import (
    RESTART_PATIENCE,
    SEARCH_PATIENCE,
    LaunchNeverRan,
    LaunchRan,
    LaunchRunning,
    LaunchUntraceable,
    Traces,
    judge_launch,
)
from controller.plan.looks import (
    Listed,
    LookFailed,
    NotLooked,
    SessionsLook,
    SpriteAway,
    SpriteLook,
    SpriteSeen,
    is_answer_to,
)

ADOPT_AGE: Final = timedelta(seconds=5)
"""A list up to this old will do to find a session in; its absence counts only from a list younger than the object."""
REFUSALS_LIMIT: Final = 5
"""So many refused launches in a row, and a person must look."""
LAUNCH_WAIT: Final = timedelta(seconds=2)
LAUNCH_WAIT_LIMIT: Final = timedelta(minutes=5)
SEARCH_AGAIN: Final = timedelta(seconds=15)
SPRITE_AWAY_AGAIN: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class TokenFinding:
    """
    Whether there is a token for this object. `trouble` None means there is.

    `kill_usable` is True where a session already recorded may still be ended: with the token that served last, or with
    the operator's own. `passing` is True where the trouble is likely to go by itself (the Secret could not be read).
    """

    trouble: Situation | None = None
    message: str = ""
    kill_usable: bool = True
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """The traces of a launch were looked for; `traces` is None where the probe did not come to its end."""

    traces: Traces | None
    started: timedelta


@dataclass(frozen=True, slots=True)
class Memory:
    """
    What this process alone remembers of one object.

    Args:
        kill: How far a kill has come.
        fresh_nonce: The intent that this process recorded and has not tried yet, or that was refused for certain.
        refusals: Launches refused in a row.
        launch_not_before: No launch before this moment, monotonic.
        search_asked: Since when a lost launch is searched for, monotonic.
        absent_at: When the first list that lacked a live session started, monotonic.
        swept_nonce: The launch whose script was removed, so that it never runs.
    """

    kill: KillProgress | None = None
    fresh_nonce: str | None = None
    refusals: int = 0
    launch_not_before: timedelta | None = None
    search_asked: timedelta | None = None
    absent_at: timedelta | None = None
    swept_nonce: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """
    All that a decision about one object weighs.

    Args:
        generation: `metadata.generation`.
        deleting: The deletion mark is set.
        has_finalizer: Ours is on the object.
        spec: What is declared.
        status: What was recorded last.
        token: Whether the sprite may be asked at all.
        owner: Another object (`namespace/name`) that owns the session this one would adopt or has.
        sprite: The last look at the sprite's metadata.
        sessions: The last look at its session list.
        probed: The last search for the traces of a launch.
        announced: What a create that this visit made has announced.
        first_seen: When this process first saw the object, monotonic.
        doubt: Since when it is in question whether the session lives, monotonic; None where it is not.
        last_wake_time: Our last call that could have woken the sprite.
        now: Monotonic.
        now_time: Wall time.
    """

    generation: int
    deleting: bool
    has_finalizer: bool
    spec: TerminalSpec
    status: TerminalStatus
    token: TokenFinding
    owner: str | None
    sprite: SpriteLook
    sessions: SessionsLook
    probed: Probed | LookFailed | None
    announced: Announced | None
    first_seen: timedelta
    doubt: timedelta | None
    last_wake_time: datetime | None
    now: timedelta
    now_time: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition's say."""

    status: ConditionStatus
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth an Event."""

    reason: Reason
    note: str
    warning: bool = False
    evidence: KillEvidence | None = None
    """What proved an end, where one was proven."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What a visit has found, to be written as status if it differs from what is recorded.

    `terminated` and `live` None leave those conditions as they were. `doubt_settled` says that the question whether
    the session lives was answered.
    """

    situation: Situation
    message: str
    session: SessionStatus | None
    kill: KillStatus | None
    terminated: Verdict | None = None
    live: Verdict | None = None
    doubt_settled: bool = False


@dataclass(frozen=True, slots=True)
class LookAtSprite:
    """Read the sprite's metadata; a reading that started at this moment or later will do."""

    since: timedelta


@dataclass(frozen=True, slots=True)
class LookAtSessions:
    """Read the session list; a reading that started at this moment or later will do."""

    since: timedelta
    cause: Cause


@dataclass(frozen=True, slots=True)
class PlaceFinalizer:
    """Put our finalizer on, before anything exists that it must guard."""


@dataclass(frozen=True, slots=True)
class ReleaseObject:
    """Take our finalizer off: nothing is left that it guards."""

    happening: Happening | None


@dataclass(frozen=True, slots=True)
class RecordIntent:
    """Draw a nonce and record it, before a session is created."""

    sprite_id: str


@dataclass(frozen=True, slots=True)
class StartSession:
    """Upload the script and create the session."""

    intent: LaunchIntent


@dataclass(frozen=True, slots=True)
class ProbeLaunch:
    """Look for the traces of a launch whose answer was lost."""

    intent: LaunchIntent


@dataclass(frozen=True, slots=True)
class SweepLaunch:
    """Remove a script that has not run, so that it never will."""

    intent: LaunchIntent


@dataclass(frozen=True, slots=True)
class SendKill:
    """Send SIGKILL to this identity."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Rest:
    """
    Write the outcome if it differs, and come again after a while.

    `after` None means only when something happens; `retry` True means by the queue's own back-off instead.
    """

    outcome: Outcome
    after: timedelta | None = None
    retry: bool = False
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing to do and nothing to write: the object is not ours any more."""


Step = (
    LookAtSprite
    | LookAtSessions
    | PlaceFinalizer
    | ReleaseObject
    | RecordIntent
    | StartSession
    | ProbeLaunch
    | SweepLaunch
    | SendKill
    | Rest
    | ComeAgain
    | Leave
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step, and what to remember until the next."""

    step: Step
    memory: Memory = field(default_factory=Memory)


def plan_terminal(facts: Facts, memory: Memory) -> Plan:
    """Decide the next step. Total: it never raises, and every combination of facts has an answer."""
    if facts.deleting:
        return _plan_deletion(facts, memory)
    if facts.spec.terminated:
        return _plan_terminated(facts, memory)
    if facts.spec.suspend:
        return _plan_suspended(facts, memory)
    session = facts.status.session
    if session is None:
        return _plan_first(facts, memory)
    if session.ended is not None:
        return _plan_after_end(facts, memory, session, session.ended)
    if session.id is None:
        return _plan_launch(facts, memory)
    return _plan_live(facts, memory, session)


# --- deletion and termination -----------------------------------------------------------------------------------------


def _plan_deletion(facts: Facts, memory: Memory) -> Plan:
    """Let the object go once its session is proven dead, was never there, or is given up by `Orphan`."""
    if not facts.has_finalizer:
        return Plan(Leave(), memory)
    session = facts.status.session
    if session is None or session.ended is not None:
        return Plan(ReleaseObject(None), memory)
    if facts.spec.deletion_policy is DeletionPolicy.ORPHAN:
        note = f"Left session {session.id or 'of an unfinished launch'} running in sprite {facts.spec.sprite_name}."
        return Plan(ReleaseObject(Happening(Reason.ORPHANED, note)), memory)
    return _plan_end(facts, memory, session, KillTrigger.DELETED)


def _plan_terminated(facts: Facts, memory: Memory) -> Plan:
    """End the session. One that was declared for adoption and never adopted is adopted first, so that it dies too."""
    session = facts.status.session
    if session is None:
        if facts.spec.session_id is None:
            return _rest_terminated(facts, memory, Reason.NOTHING_TO_END, "No session was adopted or launched.")
        return _plan_adopt(facts, memory, facts.spec.session_id)
    if session.ended is None:
        return _plan_end(facts, memory, session, KillTrigger.TERMINATED)
    if session.ended.reason in (EndReason.TERMINATED, EndReason.REAPED):
        return _rest_terminated(facts, memory, Reason.CONFIRMED, "The session was killed and is proven dead.")
    return _rest_terminated(facts, memory, Reason.ALREADY_ENDED, "The session had ended before it was asked to.")


def _rest_terminated(facts: Facts, memory: Memory, reason: Reason, message: str) -> Plan:
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


def _plan_end(facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger) -> Plan:
    """End a session that is recorded, or whose launch is."""
    if not facts.token.kill_usable:
        situation = facts.token.trouble or Situation.TOKEN_NOT_ALLOWED
        return _rest_unended(facts, memory, situation, Reason(situation.value), facts.token.message, after=STALL_RETRY)
    if session.id is None:
        return _plan_end_of_launch(facts, memory, session, trigger)
    identity = Identity(session.sprite_id or "", session.id, session.created)
    progress = memory.kill or KillProgress(asked=facts.now, asked_time=facts.now_time)
    kill_facts = KillFacts(identity, facts.sprite, facts.sessions, facts.last_wake_time, facts.now, facts.now_time)
    progress, step = plan_kill(progress, kill_facts)
    memory = replace(memory, kill=progress)
    match step:
        case AskSprite():
            return Plan(LookAtSprite(facts.now - METADATA_AGE / 2), memory)
        case AskSessions(since=since):
            cause = Cause.IDENTIFY if progress.settled is None else Cause.PROVE
            return Plan(LookAtSessions(since, cause), memory)
        case Send():
            return Plan(SendKill(identity), memory)
        case ComeAgain():
            return Plan(step, memory)
        case Unproven() as unproven:
            return rest_unproven(facts, memory, trigger, unproven)
        case Proven(evidence=evidence):
            return _conclude_kill(facts, memory, session, trigger, evidence)
        case _:
            assert_never(step)


def rest_unproven(facts: Facts, memory: Memory, trigger: KillTrigger, unproven: Unproven) -> Plan:
    """Say how far a kill got, and come again."""
    progress = memory.kill
    kill = None if progress is None else _describe_kill(facts, progress, trigger, evidence=None)
    return _rest_unended(
        facts, memory, unproven.situation, unproven.reason, unproven.message, after=unproven.after, kill=kill
    )


def _rest_unended(
    facts: Facts,
    memory: Memory,
    situation: Situation,
    reason: Reason,
    message: str,
    *,
    after: timedelta | None,
    kill: KillStatus | None = None,
) -> Plan:
    blind = situation in (Situation.SPRITES_UNAVAILABLE, Situation.THROTTLED, Situation.API_INCIDENT)
    outcome = Outcome(
        situation,
        message,
        session=facts.status.session,
        kill=kill or facts.status.kill,
        terminated=Verdict(ConditionStatus.UNKNOWN if blind else ConditionStatus.FALSE, reason, message),
    )
    warning = Happening(reason, message, warning=True)
    return Plan(Rest(outcome, after, retry=after is None, happenings=(warning,)), memory)


def _conclude_kill(
    facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger, evidence: KillEvidence
) -> Plan:
    """Record the proof; a deleted object needs no record, only its release."""
    message = _describe_proof(session, evidence)
    happening = Happening(Reason.CONFIRMED, message, evidence=evidence)
    if trigger is KillTrigger.DELETED:
        return Plan(ReleaseObject(happening), memory)
    progress = memory.kill
    outcome = Outcome(
        Situation.TERMINATED,
        message,
        session=end_session(facts, session, EndReason.TERMINATED),
        kill=None if progress is None else _describe_kill(facts, progress, trigger, evidence=evidence),
        terminated=Verdict(ConditionStatus.TRUE, Reason.CONFIRMED, message),
        live=Verdict(ConditionStatus.FALSE, Reason.CONFIRMED, message),
        doubt_settled=True,
    )
    return Plan(Rest(outcome, happenings=(happening,)), replace(memory, kill=None))


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
    facts: Facts, progress: KillProgress, trigger: KillTrigger, *, evidence: KillEvidence | None
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
    )


def end_session(facts: Facts, session: SessionStatus, reason: EndReason) -> SessionStatus:
    """Write the end of a session, with who was attached then: a second start asks for somebody who came since."""
    ended = SessionEnd(
        reason=str(reason),
        time=facts.now_time,
        generation=facts.generation,
        attached=bool(facts.spec.attached),
        socket_id=facts.spec.active_socket_id,
    )
    return session.model_copy(update={"ended": ended})


# --- suspension and troubles ------------------------------------------------------------------------------------------


def _plan_suspended(facts: Facts, memory: Memory) -> Plan:
    """Start nothing. Ends are still observed and written."""
    session = facts.status.session
    if session is not None and session.id is not None and session.ended is None:
        plan = _judge_live(facts, memory, session)
        if plan is not None:
            return plan
    outcome = Outcome(
        Situation.SUSPENDED,
        "Suspended: nothing is started, adopted, held or reaped until `spec.suspend` is false.",
        session=session,
        kill=facts.status.kill,
        doubt_settled=True,
    )
    return Plan(Rest(outcome), memory)


def _rest_token(facts: Facts, memory: Memory, trouble: Situation) -> Plan:
    outcome = Outcome(trouble, facts.token.message, session=facts.status.session, kill=facts.status.kill)
    if facts.token.passing:
        return Plan(Rest(outcome, retry=True), memory)
    warning = Happening(Reason(trouble.value), facts.token.message, warning=True)
    return Plan(Rest(outcome, STALL_RETRY, happenings=(warning,)), memory)


def rest_on_failure(facts: Facts, memory: Memory, failed: LookFailed) -> Plan:
    """Say that a call failed, and come again when its kind allows."""
    verdict = judge_failure(failed)
    outcome = Outcome(verdict.situation, failed.message, session=facts.status.session, kill=facts.status.kill)
    if isinstance(verdict, Stall):
        return Plan(Rest(outcome, STALL_RETRY), memory)
    return Plan(Rest(outcome, verdict.after, retry=verdict.after is None), memory)


def _need_sprite(facts: Facts, memory: Memory) -> SpriteSeen | Plan:
    """Get a sprite that was seen lately, or the step that leads there."""
    match facts.sprite:
        case NotLooked():
            return Plan(LookAtSprite(facts.now - METADATA_AGE / 2), memory)
        case LookFailed() as failed:
            return rest_on_failure(facts, memory, failed)
        case SpriteAway(successor=None):
            outcome = Outcome(
                Situation.SPRITE_NOT_FOUND,
                f"The Sprites API has no sprite {facts.spec.sprite_name}; this goes on by itself once it is created.",
                session=facts.status.session,
                kill=facts.status.kill,
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


# --- first session: adopt or launch -----------------------------------------------------------------------------------


def _plan_first(facts: Facts, memory: Memory) -> Plan:
    """Adopt the declared session if the list has it, else launch, else say that it is not there."""
    if facts.token.trouble is not None:
        return _rest_token(facts, memory, facts.token.trouble)
    if facts.spec.session_id is not None:
        return _plan_adopt(facts, memory, facts.spec.session_id)
    return _plan_launch(facts, memory)


def _plan_adopt(facts: Facts, memory: Memory, session_id: str) -> Plan:
    if facts.token.trouble is not None:
        return _rest_token(facts, memory, facts.token.trouble)
    seen = _need_sprite(facts, memory)
    if isinstance(seen, Plan):
        return seen
    match facts.sessions:
        case NotLooked():
            return Plan(LookAtSessions(facts.now - ADOPT_AGE, Cause.ADOPT), memory)
        case LookFailed() as failed:
            if failed.started < facts.first_seen:
                return Plan(LookAtSessions(facts.first_seen, Cause.ADOPT), memory)
            return rest_on_failure(facts, memory, failed)
        case Listed(sessions=sessions, started=started):
            found = next((entry for entry in sessions if entry.id == session_id), None)
            if found is None or not is_same_created(facts.spec.session_created_time, found.created):
                if started < facts.first_seen:
                    return Plan(LookAtSessions(facts.first_seen, Cause.ADOPT), memory)
                return _plan_instead_of_adopting(facts, memory, session_id, found)
            return _plan_adopt_found(facts, memory, seen, found)
        case _:
            assert_never(facts.sessions)


def _plan_instead_of_adopting(facts: Facts, memory: Memory, session_id: str, found: Session | None) -> Plan:
    """The declared session is not there: a launch takes its place, where one is declared."""
    if facts.spec.terminated:
        text = f"Session {session_id} is not in the sprite's list."
        return _rest_terminated(facts, memory, Reason.NOTHING_TO_END, text)
    if facts.spec.launch is not None:
        return _plan_launch(facts, memory)
    if found is not None:
        situation = Situation.SESSION_NOT_OURS
        text = (
            f"Session id {session_id} is in use by a session created at another time than "
            f"`spec.sessionCreatedTime` says; it is left alone."
        )
    else:
        situation = Situation.SESSION_NOT_FOUND
        text = f"Session {session_id} is not in the list of sprite {facts.spec.sprite_name}, and there is no launch."
    outcome = Outcome(situation, text, session=None, kill=None, live=Verdict(ConditionStatus.FALSE, Reason.NO_SESSION))
    return Plan(Rest(outcome, happenings=(Happening(Reason(situation.value), text, warning=True),)), memory)


def _plan_adopt_found(facts: Facts, memory: Memory, seen: SpriteSeen, found: Session) -> Plan:
    if facts.owner is not None:
        text = f"Session {found.id} belongs to AgentTerminal {facts.owner}."
        outcome = Outcome(
            Situation.SESSION_TAKEN,
            text,
            session=None,
            kill=None,
            terminated=_not_mine(facts, text),
            live=Verdict(ConditionStatus.FALSE, Reason.SESSION_TAKEN, text),
        )
        return Plan(Rest(outcome, happenings=(Happening(Reason.SESSION_TAKEN, text, warning=True),)), memory)
    if not facts.has_finalizer:
        return Plan(PlaceFinalizer(), memory)
    session = SessionStatus(id=found.id, created=found.created, sprite_id=seen.sprite.id, origin=Origin.ADOPTED)
    note = f"Adopted session {found.id} of sprite {facts.spec.sprite_name}."
    return _rest_live(facts, memory, session, happenings=(Happening(Reason.ADOPTED, note),))


def _not_mine(facts: Facts, text: str) -> Verdict | None:
    """A terminal that asks for the end of somebody else's session ends nothing, and says so."""
    if not facts.spec.terminated:
        return None
    return Verdict(ConditionStatus.FALSE, Reason.SESSION_TAKEN, text)


def _plan_launch(facts: Facts, memory: Memory) -> Plan:
    """Intent first, then the create; an intent whose create may have happened is searched for."""
    if facts.token.trouble is not None:
        return _rest_token(facts, memory, facts.token.trouble)
    session = facts.status.session
    intent = session.launch_intent if session is not None and session.id is None and session.ended is None else None
    if facts.announced is not None and intent is not None:
        return _rest_launched(facts, memory, _describe_launched(intent, facts.announced))
    seen = _need_sprite(facts, memory)
    if isinstance(seen, Plan):
        return seen
    if memory.refusals >= REFUSALS_LIMIT:
        text = f"The Sprites API refused to start the session {REFUSALS_LIMIT} times in a row; see the events."
        outcome = Outcome(Situation.LAUNCH_REFUSED, text, session=session, kill=facts.status.kill)
        again = replace(memory, refusals=REFUSALS_LIMIT - 1, launch_not_before=facts.now + LAUNCH_WAIT_LIMIT)
        return Plan(Rest(outcome, LAUNCH_WAIT_LIMIT), again)
    if memory.launch_not_before is not None and facts.now < memory.launch_not_before:
        return Plan(ComeAgain(memory.launch_not_before - facts.now), memory)
    if intent is None:
        if not facts.has_finalizer:
            return Plan(PlaceFinalizer(), memory)
        return Plan(RecordIntent(seen.sprite.id), memory)
    if memory.fresh_nonce == intent.nonce:
        return _start_or_withdraw(facts, memory, intent)
    return _plan_search(facts, memory, seen, intent)


def _start_or_withdraw(facts: Facts, memory: Memory, intent: LaunchIntent) -> Plan:
    """Start what certainly has not run, unless `launch` was taken out of the spec meanwhile."""
    session = facts.status.session
    if facts.spec.launch is None and session is not None:
        return _rest_ended(facts, memory, session, EndReason.EXIT_UNSEEN, "The launch was withdrawn before it began.")
    return Plan(StartSession(intent), memory)


def rest_launch_failed(facts: Facts, memory: Memory, failed: LookFailed) -> Plan:
    """Say that a launch certainly did not start, and try the same intent again after a growing wait."""
    if failed.failure in (Failure.UNAUTHORIZED, Failure.FORBIDDEN, Failure.NOT_FOUND, Failure.THROTTLED):
        return rest_on_failure(facts, memory, failed)
    memory = note_launch_failed(memory, now=facts.now)
    text = f"{failed.message} The launch is tried again."
    outcome = Outcome(Situation.STARTING, text, session=facts.status.session, kill=facts.status.kill)
    warning = Happening(Reason.LAUNCH_REFUSED, failed.message, warning=True)
    wait = (memory.launch_not_before or facts.now) - facts.now
    return Plan(Rest(outcome, wait, happenings=(warning,)), memory)


def rest_launch_invalid(facts: Facts, memory: Memory, message: str) -> Plan:
    """Say that a launch cannot be built; a Secret may be mended without the object changing."""
    outcome = Outcome(Situation.LAUNCH_INVALID, message, session=facts.status.session, kill=facts.status.kill)
    warning = Happening(Reason.LAUNCH_INVALID, message, warning=True)
    return Plan(Rest(outcome, STALL_RETRY, happenings=(warning,)), memory)


def note_launch_failed(memory: Memory, *, now: timedelta) -> Memory:
    """Remember a launch that certainly did not start: the same intent may be tried again, after a growing wait."""
    refusals = memory.refusals + 1
    wait = min(LAUNCH_WAIT * 2 ** (refusals - 1), LAUNCH_WAIT_LIMIT)
    return replace(memory, refusals=refusals, launch_not_before=now + wait)


def _describe_launched(intent: LaunchIntent, told: Announced | Session) -> SessionStatus:
    """Name the session of a launch, as its socket announced it or as the list shows it."""
    return SessionStatus(
        id=told.id, created=told.created, sprite_id=intent.sprite_id, origin=Origin.LAUNCHED, launch_intent=intent
    )


def _rest_launched(facts: Facts, memory: Memory, session: SessionStatus) -> Plan:
    note = f"Launched session {session.id} in sprite {facts.spec.sprite_name}."
    memory = replace(memory, fresh_nonce=None, refusals=0, launch_not_before=None, search_asked=None)
    return _rest_live(facts, memory, session, happenings=(Happening(Reason.LAUNCHED, note),))


# --- a launch whose answer was lost -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Search:
    """What a search has come to: a step that it still needs, or one of four findings (each seen twice where absent)."""

    step: Plan | None
    running: Session | None = None
    ran: bool = False
    never_ran: bool = False
    memory: Memory = field(default_factory=Memory)


def _search_launch(facts: Facts, memory: Memory, intent: LaunchIntent) -> _Search:
    """Search for a launch: the list first, then the probe; what is absent must be absent twice, 300 ms apart."""
    if memory.search_asked is None:
        memory = replace(memory, search_asked=facts.now, absent_at=None)
    asked = memory.search_asked or facts.now
    question = asked if memory.absent_at is None else memory.absent_at + SECOND_LOOK
    if not is_answer_to(facts.sessions, question):
        if question > facts.now:
            return _Search(Plan(ComeAgain(question - facts.now), memory))
        return _Search(Plan(LookAtSessions(question, Cause.FIND), memory))
    if not isinstance(facts.sessions, Listed):
        assert isinstance(facts.sessions, LookFailed)
        return _Search(rest_on_failure(facts, replace(memory, search_asked=None), facts.sessions))
    sessions = facts.sessions.sessions
    named = judge_launch(intent, sessions, None, now=facts.now_time)
    if isinstance(named, LaunchRunning):
        return _Search(None, running=named.session, memory=memory)
    if isinstance(facts.probed, LookFailed):
        return _Search(rest_on_failure(facts, replace(memory, search_asked=None), facts.probed))
    if facts.probed is None or facts.probed.started < asked:
        return _Search(Plan(ProbeLaunch(intent), memory))
    match judge_launch(intent, sessions, facts.probed.traces, now=facts.now_time):
        case LaunchRunning(session=session):
            return _Search(None, running=session, memory=memory)
        case LaunchRan():
            if memory.absent_at is None:
                memory = replace(memory, absent_at=facts.sessions.started)
                return _Search(Plan(ComeAgain(SECOND_LOOK), memory))
            return _Search(None, ran=True, memory=memory)
        case LaunchNeverRan():
            settled = asked + RESTART_PATIENCE
            if facts.now < settled:
                return _Search(Plan(ComeAgain(settled - facts.now), replace(memory, search_asked=asked)))
            if facts.probed.started < settled:
                return _Search(Plan(ProbeLaunch(intent), memory))
            return _Search(None, never_ran=True, memory=memory)
        case LaunchUntraceable():
            return _search_in_vain(facts, memory, intent)


def _search_in_vain(facts: Facts, memory: Memory, intent: LaunchIntent) -> _Search:
    """No trace: look again until 120 s after the intent, and then once more after 300 ms."""
    if facts.now_time - intent.requested_time < SEARCH_PATIENCE:
        text = "The answer to the launch was lost; its session is being searched for."
        outcome = Outcome(Situation.STARTING, text, session=facts.status.session, kill=facts.status.kill)
        return _Search(Plan(Rest(outcome, SEARCH_AGAIN), replace(memory, search_asked=None, absent_at=None)))
    assert isinstance(facts.sessions, Listed)
    if memory.absent_at is None:
        return _Search(Plan(ComeAgain(SECOND_LOOK), replace(memory, absent_at=facts.sessions.started)))
    return _Search(None, memory=memory)


def _plan_search(facts: Facts, memory: Memory, seen: SpriteSeen, intent: LaunchIntent) -> Plan:
    """Find the session of a lost launch and record it, or start it where it certainly never ran."""
    session = facts.status.session
    assert session is not None
    if seen.sprite.id != intent.sprite_id:
        return _rest_ended(facts, memory, session, EndReason.LOST, "The sprite was replaced during the launch.")
    search = _search_launch(facts, memory, intent)
    if search.step is not None:
        return search.step
    if search.running is not None:
        return _rest_launched(facts, search.memory, _describe_launched(intent, search.running))
    if search.never_ran:
        fresh = replace(search.memory, fresh_nonce=intent.nonce, search_asked=None)
        return _start_or_withdraw(facts, fresh, intent)
    if search.ran:
        text = "The launched command ran and has ended; nobody saw how."
        return _rest_ended(facts, search.memory, session, EndReason.EXIT_UNSEEN, text)
    text = (
        "The launch may have run and ended, and no trace of it is left. Starting it again could run it twice: "
        "attach anew to start another session, or delete the object."
    )
    return _rest_ended(facts, search.memory, session, EndReason.LAUNCH_UNCLEAR, text)


def _plan_end_of_launch(facts: Facts, memory: Memory, session: SessionStatus, trigger: KillTrigger) -> Plan:
    """End a launch whose answer was lost: find its session and kill it, or prove that nothing of it lives."""
    intent = session.launch_intent
    if intent is None:
        return _conclude_kill(facts, memory, session, trigger, KillEvidence.NEVER_STARTED)
    if facts.announced is not None:
        return _rest_launched(facts, memory, _describe_launched(intent, facts.announced))
    seen = _need_sprite(facts, memory)
    if isinstance(seen, Plan):
        if isinstance(facts.sprite, SpriteAway) and facts.sprite.confirmed:
            return _conclude_kill(facts, memory, session, trigger, KillEvidence.SPRITE_GONE)
        return seen
    if seen.sprite.id != intent.sprite_id:
        return _conclude_kill(facts, memory, session, trigger, KillEvidence.SPRITE_GONE)
    if memory.kill is None:
        memory = replace(memory, kill=KillProgress(asked=facts.now, asked_time=facts.now_time))
    search = _search_launch(facts, memory, intent)
    if search.step is not None:
        return search.step
    if search.running is not None:
        found = _describe_launched(intent, search.running)
        with_session = replace(facts, status=facts.status.model_copy(update={"session": found}))
        return _plan_end(with_session, search.memory, found, trigger)
    if search.never_ran and search.memory.swept_nonce != intent.nonce:
        return Plan(SweepLaunch(intent), search.memory)
    return _conclude_kill(facts, search.memory, session, trigger, KillEvidence.NEVER_STARTED)


# --- a session that lives ---------------------------------------------------------------------------------------------


def _plan_live(facts: Facts, memory: Memory, session: SessionStatus) -> Plan:
    """Say that it lives; look only where that is in question."""
    plan = _judge_live(facts, memory, session)
    if plan is not None:
        return plan
    return _rest_live(facts, replace(memory, absent_at=None), session)


def _judge_live(facts: Facts, memory: Memory, session: SessionStatus) -> Plan | None:
    """Answer the question whether a session still lives: None means as far as anybody can tell."""
    if facts.doubt is None or session.id is None:
        return None
    identity = Identity(session.sprite_id or "", session.id, session.created)
    lost = judge_end_by_sprite(identity, facts.sprite)
    if lost is not None:
        return _rest_ended(facts, memory, session, EndReason.LOST, lost.value)
    if facts.token.trouble is not None or is_paused(facts.sprite):
        return None
    question = facts.doubt if memory.absent_at is None else memory.absent_at + SECOND_LOOK
    if not is_answer_to(facts.sessions, question):
        if question > facts.now:
            return Plan(ComeAgain(question - facts.now), memory)
        return Plan(LookAtSessions(question, Cause.CHECK), memory)
    match judge_end_by_list(identity, facts.sessions):
        case None | Presence.LISTED:
            return None
        case Presence.REUSED:
            text = "The session's id is in use by another session."
            return _rest_ended(facts, memory, session, EndReason.LOST, text)
        case Presence.ABSENT:
            assert isinstance(facts.sessions, Listed)
            if memory.absent_at is None:
                return Plan(ComeAgain(SECOND_LOOK), replace(memory, absent_at=facts.sessions.started))
            text = f"Session {session.id} is not in the sprite's list any more; nobody saw how it ended."
            return _rest_ended(facts, memory, session, EndReason.EXIT_UNSEEN, text)


def is_paused(look: SpriteLook) -> bool:
    """Tell whether a look would wake the sprite. A state that is absent or unknown does not say so."""
    return isinstance(look, SpriteSeen) and look.sprite.state in (SpriteState.WARM, SpriteState.COLD)


def _rest_live(facts: Facts, memory: Memory, session: SessionStatus, *, happenings: tuple[Happening, ...] = ()) -> Plan:
    attached = bool(facts.spec.attached)
    message = f"Session {session.id} lives and {'somebody' if attached else 'nobody'} is attached."
    if facts.spec.terminated or facts.deleting:
        situation, message = Situation.TERMINATING, f"Session {session.id} is being ended."
    else:
        situation = Situation.RUNNING if attached else Situation.DETACHED
    outcome = Outcome(
        situation,
        message,
        session=session,
        kill=facts.status.kill if happenings == () else None,
        live=Verdict(ConditionStatus.TRUE, Reason.LIVE),
        doubt_settled=True,
    )
    return Plan(Rest(outcome, happenings=happenings), memory)


def _rest_ended(facts: Facts, memory: Memory, session: SessionStatus, reason: EndReason, message: str) -> Plan:
    """Write an end. Whether another session follows is for the next visit to decide."""
    ended = end_session(facts, session, reason)
    assert ended.ended is not None
    situation = judge_situation_after(facts.spec, ended.ended)
    outcome = Outcome(
        situation,
        message,
        session=ended,
        kill=facts.status.kill,
        live=Verdict(ConditionStatus.FALSE, Reason(situation.value), message),
        doubt_settled=True,
    )
    happening = Happening(Reason(str(reason)), message, warning=reason is not EndReason.EXITED)
    memory = replace(memory, absent_at=None, search_asked=None, fresh_nonce=None)
    return Plan(Rest(outcome, happenings=(happening,)), memory)


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


def _plan_after_end(facts: Facts, memory: Memory, session: SessionStatus, ended: SessionEnd) -> Plan:
    """Start a fresh session where the rules allow one, else say how the last one ended."""
    if may_follow(facts.spec, ended):
        return _plan_follow(facts, memory, ended)
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
    if ended.reason == EndReason.LOST and not facts.spec.attached:
        seen = _need_sprite(facts, memory)
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
    return _plan_launch(facts, memory)


def _message_of_end(status: TerminalStatus, session: SessionStatus) -> str:
    """Keep the sentence that was written with the end."""
    for condition in status.conditions:
        if condition.type == "SessionLive" and condition.message:
            return condition.message
    return f"Session {session.id} has ended."

"""
How a terminal comes to a session: adopt the declared one, launch one, or find the one whose launch was not answered.

The finalizer and, for a launch, the intent are on the object before anything exists that they must guard. Absence
counts only from a list that is younger than the question, and a second session only follows what certainly never ran.
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Announced, Cause, Session, SpriteState, is_same_created
from controller.api.situations import Situation
from controller.api.terminal import (
    LaunchIntent,
    Origin,
    SessionStatus,
)
from controller.errors import Failure
from controller.plan.breaker import Conclusion, may_conclude
from controller.plan.ends import EndReason
from controller.plan.facts import Facts, Memory
from controller.plan.failures import STALL_RETRY
from controller.plan.kill import (
    SECOND_LOOK,
    ComeAgain,
)
from controller.plan.launch import (
    SEARCH_PATIENCE,
    LaunchNeverRan,
    LaunchRan,
    LaunchRunning,
    LaunchUntraceable,
    judge_launch,
)
from controller.plan.looks import (
    Listed,
    LookFailed,
    NotLooked,
    SpriteSeen,
    is_answer_to,
)
from controller.plan.resting import (
    is_known_awake,
    judge_unended,
    look_freshly,
    need_sprite,
    rest_ended,
    rest_incident,
    rest_live,
    rest_on_failure,
    rest_terminated,
    rest_token,
)
from controller.plan.steps import (
    BarLaunch,
    Happening,
    LookAtSessions,
    Outcome,
    PlaceFinalizer,
    Plan,
    ProbeLaunch,
    RecordIntent,
    Rest,
    StartSession,
    Verdict,
)

ADOPT_AGE: Final = timedelta(seconds=5)
"""A list up to this old will do to find a session in; its absence counts only from a list younger than the object."""


AWAKE_AGE: Final = timedelta(seconds=5)
"""A sprite whose list was answered this lately is awake, whatever its metadata says."""


REFUSALS_LIMIT: Final = 5
"""So many refused launches in a row, and a person must look."""


LAUNCH_WAIT: Final = timedelta(seconds=2)


LAUNCH_WAIT_LIMIT: Final = timedelta(minutes=5)


SEARCH_AGAIN: Final = timedelta(seconds=15)


_NOT_OF_THE_LAUNCH: Final = frozenset(
    {
        Failure.UNAUTHORIZED,
        Failure.FORBIDDEN,
        Failure.NOT_FOUND,
        Failure.THROTTLED,
        Failure.UNREACHABLE,
        Failure.TIMED_OUT,
        Failure.UNFINISHED,
        Failure.API_INCIDENT,
    }
)


def plan_first(facts: Facts, memory: Memory) -> Plan:
    """Adopt the declared session if the list has it, else launch, else say that it is not there."""
    if facts.token.trouble is not None:
        return rest_token(facts, memory, facts.token.trouble)
    if facts.spec.session_id is not None:
        return plan_adopt(facts, memory, facts.spec.session_id)
    return plan_launch(facts, memory)


def plan_adopt(facts: Facts, memory: Memory, session_id: str) -> Plan:
    """Adopt the declared session where a list shows it; what takes its place where none does is decided apart."""
    if facts.token.trouble is not None:
        return rest_token(facts, memory, facts.token.trouble)
    if not may_conclude(facts.breaker, Conclusion.SESSION_WANTED):
        return rest_incident(facts, memory)
    seen = need_sprite(facts, memory)
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
    if facts.spec.terminated or facts.deleting:
        text = f"Session {session_id} is not in the sprite's list."
        return rest_terminated(facts, memory, Reason.NOTHING_TO_END, text)
    if facts.spec.launch is not None:
        return plan_launch(facts, memory)
    if found is not None:
        situation = Situation.SESSION_NOT_OURS
        text = (
            f"Session id {session_id} is in use by a session created at another time than "
            f"`spec.sessionCreatedTime` says; it is left alone. Both are given at creation only: delete this object, "
            f"which ends nothing, and create one with the id and the time of the session that you mean."
        )
    else:
        situation = Situation.SESSION_NOT_FOUND
        text = (
            f"Session {session_id} is not in the list of sprite {facts.spec.sprite_name}, and there is no launch. Add "
            f"`spec.launch`, or delete this object and create one with the right `spec.sessionId`."
        )
    outcome = Outcome(situation, text, session=None, kill=None, live=Verdict(ConditionStatus.FALSE, Reason.NO_SESSION))
    return Plan(Rest(outcome, happenings=(Happening(Reason(situation.value), text, warning=True),)), memory)


def _plan_adopt_found(facts: Facts, memory: Memory, seen: SpriteSeen, found: Session) -> Plan:
    if facts.owner is not None:
        text = (
            f"Session {found.id} belongs to AgentTerminal {facts.owner}. Delete one of the two: deleting this one ends "
            f"nothing, and when the other lets go of the session, this one adopts it."
        )
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
    return rest_live(facts, memory, session, happenings=(Happening(Reason.ADOPTED, note, event=False),))


def _not_mine(facts: Facts, text: str) -> Verdict | None:
    """A terminal that asks for the end of somebody else's session ends nothing, and says so."""
    if not facts.spec.terminated:
        return None
    return Verdict(ConditionStatus.FALSE, Reason.SESSION_TAKEN, text)


def plan_launch(facts: Facts, memory: Memory) -> Plan:
    """Intent first, then the create; an intent whose create may have happened is searched for."""
    if facts.token.trouble is not None:
        return rest_token(facts, memory, facts.token.trouble)
    session = facts.status.session
    intent = session.launch_intent if session is not None and session.id is None and session.ended is None else None
    if facts.announced is not None and intent is not None:
        return rest_launched(facts, memory, describe_launched(intent, facts.announced))
    if not may_conclude(facts.breaker, Conclusion.SESSION_WANTED):
        return rest_incident(facts, memory)
    seen = need_sprite(facts, memory)
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
        return _plan_intent(facts, memory, seen)
    if memory.fresh_nonce == intent.nonce and facts.spec.launch is not None:
        return Plan(StartSession(intent), memory)
    return _plan_search(facts, memory, seen, intent)


def _plan_intent(facts: Facts, memory: Memory, seen: SpriteSeen) -> Plan:
    """
    Record an intent, once the finalizer is on and the sprite is awake.

    A sprite that only wakes for the launch would have started after the intent, and the traces of a lost launch would
    tell nothing: it might as well have run before a restart.
    """
    if not facts.has_finalizer:
        return Plan(PlaceFinalizer(), memory)
    awake_since = facts.now - AWAKE_AGE
    if seen.sprite.state is SpriteState.RUNNING and not is_known_awake(facts):
        return look_freshly(facts, memory)
    if seen.sprite.state is not SpriteState.RUNNING and not is_answer_to(facts.sessions, awake_since):
        return Plan(LookAtSessions(awake_since, Cause.LAUNCH), memory)
    if isinstance(facts.sessions, LookFailed):
        return rest_on_failure(facts, memory, facts.sessions)
    return Plan(RecordIntent(seen.sprite.id), memory)


class LaunchPart(StrEnum):
    """The two commands that make a launch."""

    UPLOAD = "Upload"
    """Its script was to be stored; nothing of the launch was asked for yet."""
    CREATE = "Create"
    """Its session was to be created."""


def rest_launch_failed(facts: Facts, memory: Memory, failed: LookFailed, part: LaunchPart) -> Plan:
    """
    Say that a launch certainly did not start, and try the same intent again after a growing wait.

    What is no answer to this launch (the token's, the sprite's or the whole API's trouble) is no refusal of it. A 5xx
    to the upload is the API's trouble; to the create it may be about what is to be created.
    """
    unavailable = part is LaunchPart.UPLOAD and failed.failure is Failure.SERVER
    if unavailable or failed.failure in _NOT_OF_THE_LAUNCH:
        return rest_on_failure(facts, memory, failed)
    memory = note_launch_failed(memory, now=facts.now)
    text = f"{failed.message} The launch is tried again."
    outcome = Outcome(Situation.STARTING, text, session=facts.status.session, kill=facts.status.kill)
    warning = Happening(Reason.LAUNCH_REFUSED, failed.message, warning=True)
    wait = (memory.launch_not_before or facts.now) - facts.now
    return Plan(Rest(outcome, wait, happenings=(warning,)), memory)


def rest_launch_unread(facts: Facts, memory: Memory, message: str) -> Plan:
    """Say that what the launch needs could not be read this time, which is nobody's fault."""
    outcome = Outcome(Situation.STARTING, message, session=facts.status.session, kill=facts.status.kill)
    return Plan(Rest(outcome, retry=True), memory)


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


def describe_launched(intent: LaunchIntent, told: Announced | Session) -> SessionStatus:
    """Name the session of a launch, as its socket announced it or as the list shows it."""
    return SessionStatus(
        id=told.id, created=told.created, sprite_id=intent.sprite_id, origin=Origin.LAUNCHED, launch_intent=intent
    )


def rest_launched(facts: Facts, memory: Memory, session: SessionStatus) -> Plan:
    """Record the session of a launch, and forget what only concerned the launch."""
    note = f"Launched session {session.id} in sprite {facts.spec.sprite_name}."
    memory = replace(memory, fresh_nonce=None, refusals=0, launch_not_before=None, search_asked=None)
    return rest_live(facts, memory, session, happenings=(Happening(Reason.LAUNCHED, note),))


@dataclass(frozen=True, slots=True)
class Search:
    """
    What a search has come to: a step that it still needs, or one of four findings.

    What has ended was absent twice; what never ran is barred.
    """

    step: Plan | None
    running: Session | None = None
    ran: bool = False
    never_ran: bool = False
    memory: Memory = field(default_factory=Memory)


def search_launch(facts: Facts, memory: Memory, intent: LaunchIntent) -> Search:
    """Search for a launch: the list first, then the probe; what is absent must be absent twice, 300 ms apart."""
    if memory.search_asked is None:
        memory = replace(memory, search_asked=facts.now, absent_at=None)
    asked = memory.search_asked or facts.now
    question = asked if memory.absent_at is None else memory.absent_at + SECOND_LOOK
    if not is_answer_to(facts.sessions, question):
        if question > facts.now:
            return Search(Plan(ComeAgain(question - facts.now), memory))
        return Search(Plan(LookAtSessions(question, Cause.FIND), memory))
    if not isinstance(facts.sessions, Listed):
        assert isinstance(facts.sessions, LookFailed)
        return Search(rest_on_failure(facts, replace(memory, search_asked=None), facts.sessions))
    sessions = facts.sessions.sessions
    named = judge_launch(intent, sessions, None, now=facts.now_time)
    if isinstance(named, LaunchRunning):
        return Search(None, running=named.session, memory=memory)
    if isinstance(facts.probed, LookFailed):
        return Search(rest_on_failure(facts, replace(memory, search_asked=None), facts.probed))
    if facts.probed is None or facts.probed.started < asked:
        return Search(Plan(ProbeLaunch(intent), memory))
    match judge_launch(intent, sessions, facts.probed.traces, now=facts.now_time):
        case LaunchRunning(session=session):
            return Search(None, running=session, memory=memory)
        case LaunchRan():
            if memory.absent_at is None:
                memory = replace(memory, absent_at=facts.sessions.started)
                return Search(Plan(ComeAgain(SECOND_LOOK), memory))
            return Search(None, ran=True, memory=memory)
        case LaunchNeverRan():
            if memory.barred_nonce != intent.nonce:
                return Search(Plan(BarLaunch(intent), memory))
            return Search(None, never_ran=True, memory=memory)
        case LaunchUntraceable():
            return _search_in_vain(facts, memory, intent)


def _search_in_vain(facts: Facts, memory: Memory, intent: LaunchIntent) -> Search:
    """No trace: look again until 120 s after the intent, and then once more after 300 ms."""
    if facts.now_time - intent.requested_time < SEARCH_PATIENCE:
        text = "The answer to the launch was lost; its session is being searched for."
        ending = judge_unended(facts, Situation.TERMINATING, text, reason=Reason.REQUESTED)
        outcome = Outcome(
            Situation.STARTING if ending is None else Situation.TERMINATING,
            text,
            session=facts.status.session,
            kill=facts.status.kill,
            terminated=ending,
        )
        return Search(Plan(Rest(outcome, SEARCH_AGAIN), replace(memory, search_asked=None, absent_at=None)))
    assert isinstance(facts.sessions, Listed)
    if memory.absent_at is None:
        return Search(Plan(ComeAgain(SECOND_LOOK), replace(memory, absent_at=facts.sessions.started)))
    return Search(None, memory=memory)


def _plan_search(facts: Facts, memory: Memory, seen: SpriteSeen, intent: LaunchIntent) -> Plan:
    """Find the session of a lost launch and record it; where it never ran, and never will, another one follows."""
    session = facts.status.session
    assert session is not None
    if seen.sprite.id != intent.sprite_id:
        return rest_ended(facts, memory, session, EndReason.LOST, "The sprite was replaced during the launch.")
    search = search_launch(facts, memory, intent)
    if search.step is not None:
        return search.step
    if search.running is not None:
        return rest_launched(facts, search.memory, describe_launched(intent, search.running))
    if search.never_ran and facts.spec.launch is None:
        text = "The launch was withdrawn before it began."
        return rest_ended(facts, search.memory, session, EndReason.EXIT_UNSEEN, text)
    if search.never_ran:
        return _plan_intent(facts, replace(search.memory, search_asked=None), seen)
    if search.ran:
        text = "The launched command ran and has ended; nobody saw how."
        return rest_ended(facts, search.memory, session, EndReason.EXIT_UNSEEN, text)
    text = (
        "The launch may have run and ended, and no trace of it is left. Starting it again could run it twice: "
        "attach anew to start another session, or delete the object."
    )
    return rest_ended(facts, search.memory, session, EndReason.LAUNCH_UNCLEAR, text)

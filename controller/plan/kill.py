"""
Kill with proof: what to do next about one session that must end, until a second, later look shows that it is gone.

Problem: the kill endpoint answers 200 and the process lives on; a wrong route, an incident and a finished session all
answer 404; an id names another process after a cold start. Promise: SIGKILL goes only to a session whose identity was
read after the question arose; what the endpoint says settles the *request* and no more; `Proven` needs evidence whose
read started after that. Nothing here is stored: SIGKILL is idempotent, so after a crash it all begins again.

Source: design 5 of the product (docs/architecture.md); behaviour cases K1 to K20.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.api.conditions import Reason
from controller.api.session import Identity, KillAnswer, Session, SpriteState, is_same_created
from controller.api.situations import Situation
from controller.errors import Failure
from controller.plan.failures import STALL_RETRY, Stall, judge_failure
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

ATTEMPTS_IN_A_ROUND: Final = 3
ATTEMPT_WAIT: Final = timedelta(milliseconds=500)
"""Times the number of the attempt that failed: 500 ms, then 1000 ms (K10)."""
ROUND_WAIT: Final = timedelta(seconds=5)
ROUND_WAIT_LIMIT: Final = timedelta(minutes=5)
SECOND_LOOK: Final = timedelta(milliseconds=300)
"""Source: sprites-api.md 5: after a kill the list may trail by about 200 ms."""
LIST_TRAILS: Final = timedelta(seconds=1)
"""A session that is listed within this time of a settled kill is looked at again before it is killed again."""
COLD_IS_PROOF_AFTER: Final = timedelta(seconds=120)
"""The state lags: cold proves an end only this long after the session's creation and after our last waking call."""
WAKING_ROUNDS: Final = 5
IDENTITY_AGE: Final = timedelta(seconds=1)
"""
When many ends are asked for at once, one list of a sprite serves all that wait for it: it answers a question that arose
before it. Only for so long, since an id comes again after a cold start: to stop, to start again and to run as many
sessions as before takes a sprite longer than this, 1 to 12 s for the start alone (sprites-api.md 8).
"""
WAKES_NOBODY: Final = frozenset(
    {Failure.UNREACHABLE, Failure.UNAUTHORIZED, Failure.FORBIDDEN, Failure.THROTTLED, Failure.API_INCIDENT}
)
"""A call that failed so never got through to the sprite."""
NOTHING_LISTED: Final = (
    "The Sprites API lists neither this sprite nor any other that its token is known to have had. An incident looks "
    "just so, and proves nothing: it goes on once the list shows one of them again, or for ten minutes none of them."
)
"""Source: docs/incidents.md."""
METADATA_AGE: Final = timedelta(seconds=60)
"""Older metadata says nothing about a sprite that is about to be killed in."""


class KillEvidence(StrEnum):
    """What proved an end."""

    SESSION_LIST = "SessionList"
    """Two complete lists, 300 ms apart, that started after the kill was settled, without the identity."""
    SPRITE_COLD = "SpriteCold"
    """The sprite's memory is gone, and with it the process."""
    SPRITE_GONE = "SpriteGone"
    """The sprite's id was missing from two complete listings, 60 s apart."""
    NEVER_STARTED = "NeverStarted"
    """A launch that left no trace, long after."""


class NotSent(StrEnum):
    """Why no kill was sent for a request that is nevertheless settled."""

    ID_REUSED = "IdReused"
    """The id is in use by another session; a kill would hit that one."""


@dataclass(frozen=True, slots=True)
class KillProgress:
    """
    How far a kill has come, in this process's memory only.

    Args:
        asked: When the question arose, monotonic.
        asked_time: The same, for the record.
        attempts: Kill requests so far, over all rounds.
        round_attempts: Those of the running round.
        rounds: Rounds that ended without proof.
        not_before: No attempt, and no look after one, before this moment, monotonic.
        settled: How the last request was settled; None where it was not.
        settled_at: When, monotonic; the proof must have started later.
        settled_time: The same, for the record.
        absent_at: When the first list without the session started.
        trouble: Why the last attempt did not settle or prove it.
        message: Its sentence.
    """

    asked: timedelta
    asked_time: datetime
    attempts: int = 0
    round_attempts: int = 0
    rounds: int = 0
    not_before: timedelta | None = None
    settled: KillAnswer | NotSent | None = None
    settled_at: timedelta = timedelta(0)
    settled_time: datetime | None = None
    absent_at: timedelta | None = None
    trouble: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class KillFacts:
    """
    What a kill decision weighs.

    `last_wake_time` is our last call that could have woken the sprite; `began` is when this visit did, monotonic.
    """

    identity: Identity
    sprite: SpriteLook
    sessions: SessionsLook
    last_wake_time: datetime | None
    now: timedelta
    now_time: datetime
    began: timedelta


@dataclass(frozen=True, slots=True)
class AskSprite:
    """Read the sprite's metadata."""


@dataclass(frozen=True, slots=True)
class AskSessions:
    """Read the session list; it must start at this moment or later."""

    since: timedelta


@dataclass(frozen=True, slots=True)
class Send:
    """Send SIGKILL to the identity."""


@dataclass(frozen=True, slots=True)
class ComeAgain:
    """Nothing to say yet: look again after this delay, and write nothing."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Unproven:
    """Say how far it got, and come again. `after` None means by the queue's own back-off."""

    situation: Situation
    reason: Reason
    message: str
    after: timedelta | None


@dataclass(frozen=True, slots=True)
class Proven:
    """It is dead."""

    evidence: KillEvidence


def begin_kill(*, asked: timedelta | None, now: timedelta, now_time: datetime) -> KillProgress:
    """
    Begin to end a session. The question arose when its end was asked for, which may be a queue ago.

    Args:
        asked: When it was first seen that the end is asked for, monotonic; None where it is only found out now.
        now: Monotonic.
        now_time: The same, for the record.
    """
    return KillProgress(asked=now if asked is None else asked, asked_time=now_time)


KillStep = AskSprite | AskSessions | Send | ComeAgain | Unproven | Proven


def plan_kill(progress: KillProgress, facts: KillFacts) -> tuple[KillProgress, KillStep]:
    """
    Decide the next step towards a proven death, and what to remember.

    Total: every look, failed ones included, leads to a step; no failed or old look ever leads to `Proven`.
    """
    match facts.sprite:
        case NotLooked():
            return progress, AskSprite()
        case LookFailed() as failed:
            return progress, _describe_failure(failed)
        case SpriteAway() as away:
            return progress, _judge_away(away, progress)
        case SpriteSeen() as seen:
            return _plan_on_sprite(progress, facts, seen)
        case _:
            assert_never(facts.sprite)


def _plan_on_sprite(progress: KillProgress, facts: KillFacts, seen: SpriteSeen) -> tuple[KillProgress, KillStep]:
    if facts.now - seen.started > METADATA_AGE:
        return progress, AskSprite()
    if is_cold_proof(seen, facts.identity, last_wake_time=facts.last_wake_time):
        return progress, Proven(KillEvidence.SPRITE_COLD)
    if seen.sprite.state in (SpriteState.WARM, SpriteState.COLD) and progress.rounds >= WAKING_ROUNDS:
        text = "The sprite is paused and this kill has used its wakes; it goes on when the sprite next runs."
        return progress, Unproven(Situation.KILL_OWED, Reason.KILL_OWED, text, ROUND_WAIT_LIMIT)
    if progress.settled is None:
        return _plan_request(progress, facts)
    return _plan_proof(progress, facts)


def is_cold_proof(seen: SpriteSeen, identity: Identity, *, last_wake_time: datetime | None) -> bool:
    """Cold proves an end if it was read 120 s or more after the session's creation and after our last waking call."""
    if seen.sprite.state is not SpriteState.COLD or identity.created is None:
        return False
    if seen.read_time - identity.created < COLD_IS_PROOF_AFTER:
        return False
    return last_wake_time is None or seen.read_time - last_wake_time >= COLD_IS_PROOF_AFTER


def _judge_away(away: SpriteAway, progress: KillProgress) -> KillStep:
    """A kill that was settled before its sprite went from the list is a stage further than one that was never sent."""
    if away.confirmed:
        return Proven(KillEvidence.SPRITE_GONE)
    reason = Reason.SIGNALLED if isinstance(progress.settled, KillAnswer) else Reason.SPRITE_NOT_FOUND
    text = "The sprite is not listed any more; its absence counts once two complete listings, 60 s apart, agree."
    if away.blind:
        text = NOTHING_LISTED
    return Unproven(Situation.TERMINATING, reason, text, timedelta(seconds=30))


def _plan_request(progress: KillProgress, facts: KillFacts) -> tuple[KillProgress, KillStep]:
    """Send the kill once the identity was read after the question arose."""
    if progress.not_before is not None and facts.now < progress.not_before:
        return progress, ComeAgain(progress.not_before - facts.now)
    # Counted from the visit's beginning: a list that this visit asked for is young, however long its answer took.
    question = max(progress.asked, progress.not_before or progress.asked, facts.began - IDENTITY_AGE)
    if not is_answer_to(facts.sessions, question):
        return progress, AskSessions(question)
    match facts.sessions:
        case Listed(sessions=sessions, started=started):
            if find_presence(facts.identity, sessions) is Presence.REUSED:
                settled = replace(
                    progress,
                    settled=NotSent.ID_REUSED,
                    settled_at=started,
                    settled_time=facts.now_time,
                    absent_at=started,
                )
                return settled, ComeAgain(SECOND_LOOK)
            return progress, Send()
        case LookFailed() as failed:
            if _may_have_woken(failed, facts.sprite):
                return end_round(progress, facts.now), _describe_failure(failed)
            return progress, _describe_failure(failed)
        case NotLooked():
            return progress, AskSessions(question)
        case _:
            assert_never(facts.sessions)


def _may_have_woken(failed: LookFailed, sprite: SpriteLook) -> bool:
    """
    Tell whether a list that failed may have woken the sprite all the same, and so uses up one of the kill's wakes.

    An API that cannot be reached, or turns us away at the door, has woken nothing: an outage would otherwise use up all
    the wakes, and keep a kill waiting for minutes after its end.
    """
    if isinstance(sprite, SpriteSeen) and sprite.sprite.state is SpriteState.RUNNING:
        return False
    return failed.failure not in WAKES_NOBODY


def _plan_proof(progress: KillProgress, facts: KillFacts) -> tuple[KillProgress, KillStep]:
    """Look for the second proof: a list that started after the request was settled, and another one 300 ms later."""
    question = max(progress.settled_at, progress.not_before or progress.settled_at)
    if progress.absent_at is not None:
        question = max(question, progress.absent_at + SECOND_LOOK)
    if not is_answer_to(facts.sessions, question):
        return progress, ComeAgain(question - facts.now) if question > facts.now else AskSessions(question)
    match facts.sessions:
        case Listed(sessions=sessions, started=started):
            if find_presence(facts.identity, sessions) is not Presence.LISTED:
                if progress.absent_at is not None:
                    return progress, Proven(KillEvidence.SESSION_LIST)
                return replace(progress, absent_at=started), ComeAgain(SECOND_LOOK)
            if started - progress.settled_at < LIST_TRAILS:
                return replace(progress, absent_at=None, not_before=started + SECOND_LOOK), ComeAgain(SECOND_LOOK)
            text = "The kill request was settled, and the session is still in the sprite's list."
            return note_attempt_failed(progress, Reason.STILL_LISTED, text, now=facts.now)
        case LookFailed() as failed:
            unproven = replace(_describe_failure(failed), reason=Reason.NOT_CONFIRMED)
            if _may_have_woken(failed, facts.sprite):
                return end_round(progress, facts.now), unproven
            return progress, unproven
        case NotLooked():
            return progress, AskSessions(question)
        case _:
            assert_never(facts.sessions)


def note_settled(progress: KillProgress, answer: KillAnswer, *, now: timedelta, now_time: datetime) -> KillProgress:
    """Remember that the endpoint settled the request."""
    return replace(
        progress,
        attempts=progress.attempts + 1,
        round_attempts=progress.round_attempts + 1,
        settled=answer,
        settled_at=now,
        settled_time=now_time,
        absent_at=None,
        trouble=None,
        message="",
    )


def note_refused(progress: KillProgress, message: str, *, now: timedelta) -> tuple[KillProgress, KillStep]:
    """Remember a kill request that failed or whose answer was lost; it may have worked, and is repeated."""
    counted = replace(progress, attempts=progress.attempts + 1, round_attempts=progress.round_attempts + 1)
    return note_attempt_failed(counted, Reason.KILL_FAILED, message, now=now)


def note_barred(progress: KillProgress, failed: LookFailed) -> tuple[KillProgress, Unproven]:
    """
    Remember a kill request that was turned away at the door (401, 403, 429): nothing was tried, so no round is used.

    To repeat it within a second, as after a failure of the kill itself, would be turned away again. One that was never
    sent, since the platform has an incident, is no attempt.
    """
    sent = 0 if failed.failure is Failure.API_INCIDENT else 1
    return replace(progress, attempts=progress.attempts + sent, message=failed.message), _describe_failure(failed)


def note_attempt_failed(
    progress: KillProgress, reason: Reason, message: str, *, now: timedelta
) -> tuple[KillProgress, KillStep]:
    """Wait 500 ms times the number of attempts in this round (K10), and after the third end the round and say so."""
    failed = replace(progress, settled=None, absent_at=None, trouble=reason, message=message)
    if failed.round_attempts < ATTEMPTS_IN_A_ROUND:
        wait = ATTEMPT_WAIT * max(1, failed.round_attempts)
        return replace(failed, not_before=now + wait), ComeAgain(wait)
    ended = end_round(failed, now)
    text = f"{message} The kill is repeated."
    return ended, Unproven(Situation.TERMINATING, reason, text, round_wait(ended.rounds))


def end_round(progress: KillProgress, now: timedelta) -> KillProgress:
    """Begin the next round after a wait that doubles from 5 s to 5 min."""
    rounds = progress.rounds + 1
    return replace(progress, rounds=rounds, round_attempts=0, not_before=now + round_wait(rounds))


def round_wait(rounds: int) -> timedelta:
    """Give the wait after so many rounds without proof."""
    doublings = max(0, min(rounds - 1, 10))
    return min(ROUND_WAIT * (1 << doublings), ROUND_WAIT_LIMIT)


def _describe_failure(failed: LookFailed) -> Unproven:
    """Turn a look that failed into what the conditions say; a stalled token is looked at again, seldom."""
    verdict = judge_failure(failed)
    reason = Reason(verdict.situation.value)
    if isinstance(verdict, Stall):
        return Unproven(verdict.situation, reason, failed.message, STALL_RETRY)
    return Unproven(verdict.situation, reason, failed.message, verdict.after)


class Presence(StrEnum):
    """Whether a list shows a session."""

    LISTED = "Listed"
    ABSENT = "Absent"
    REUSED = "Reused"
    """Its id is there, and was created at another time: another session."""


def find_presence(identity: Identity, sessions: tuple[Session, ...]) -> Presence:
    """Look an identity up in a complete list of its sprite; `is_active` and the like are never asked."""
    for session in sessions:
        if session.id == identity.session_id:
            return Presence.LISTED if is_same_created(identity.created, session.created) else Presence.REUSED
    return Presence.ABSENT

"""
Situations: what an object is in, and what Ready, Reconciling and Stalled say about it. Pure and total.

The three conditions follow kstatus, so that `kubectl wait`, Flux and Argo CD read them without being told: exactly
one of "Ready", "Reconciling", "Stalled" is the answer, but for `Suspended`, which leaves Ready as it was.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, Reason


class Phase(StrEnum):
    """The one word for people; programs read conditions."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    DETACHED = "Detached"
    HELD = "Held"
    EXITED = "Exited"
    LOST = "Lost"
    FAILED = "Failed"
    SUSPENDED = "Suspended"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class Situation(StrEnum):
    """Every situation of an object; the value is the reason that the three conditions carry."""

    RUNNING = Reason.RUNNING
    DETACHED = Reason.DETACHED
    HELD = Reason.HELD
    PENDING = Reason.PENDING
    STARTING = Reason.STARTING
    RELAUNCHING = Reason.RELAUNCHING
    TERMINATING = Reason.TERMINATING
    REAP_OWED = Reason.REAP_OWED
    WAKE_OWED = Reason.WAKE_OWED
    KILL_OWED = Reason.KILL_OWED
    TERMINATED = Reason.CONFIRMED
    REAPED = Reason.REAPED
    EXITED = Reason.EXITED
    EXIT_UNSEEN = Reason.EXIT_UNSEEN
    LOST = Reason.LOST
    SESSION_TAKEN = Reason.SESSION_TAKEN
    SESSION_NOT_OURS = Reason.SESSION_NOT_OURS
    SESSION_NOT_FOUND = Reason.SESSION_NOT_FOUND
    LAUNCH_UNCLEAR = Reason.LAUNCH_UNCLEAR
    LAUNCH_REFUSED = Reason.LAUNCH_REFUSED
    LAUNCH_INVALID = Reason.LAUNCH_INVALID
    TOKEN_NOT_ALLOWED = Reason.TOKEN_NOT_ALLOWED
    SECRET_NOT_FOUND = Reason.SECRET_NOT_FOUND
    SECRET_KEY_MISSING = Reason.SECRET_KEY_MISSING
    TOKEN_INVALID = Reason.TOKEN_INVALID
    TOKEN_REJECTED = Reason.TOKEN_REJECTED
    TOKEN_FORBIDDEN = Reason.TOKEN_FORBIDDEN
    OBJECT_INVALID = Reason.OBJECT_INVALID
    SPRITE_NOT_FOUND = Reason.SPRITE_NOT_FOUND
    SUSPENDED = Reason.SUSPENDED
    SPRITES_UNAVAILABLE = Reason.SPRITES_UNAVAILABLE
    THROTTLED = Reason.THROTTLED
    API_INCIDENT = Reason.API_INCIDENT


@dataclass(frozen=True, slots=True)
class Readiness:
    """The three conditions of one situation. `ready` is None where the condition stays as it was."""

    ready: ConditionStatus | None
    reconciling: bool
    stalled: bool


DONE: Final = Readiness(ConditionStatus.TRUE, reconciling=False, stalled=False)
WORKING: Final = Readiness(ConditionStatus.FALSE, reconciling=True, stalled=False)
STUCK: Final = Readiness(ConditionStatus.FALSE, reconciling=False, stalled=True)
BLIND: Final = Readiness(ConditionStatus.UNKNOWN, reconciling=True, stalled=False)
RESTING: Final = Readiness(None, reconciling=False, stalled=False)


def judge_readiness(situation: Situation) -> Readiness:
    """Say what Ready, Reconciling and Stalled are in a situation: one row of the table each."""
    match situation:
        case Situation.RUNNING | Situation.DETACHED | Situation.HELD:
            return DONE
        case Situation.TERMINATED | Situation.REAPED | Situation.EXITED | Situation.EXIT_UNSEEN:
            return DONE
        case Situation.PENDING | Situation.STARTING | Situation.RELAUNCHING | Situation.TERMINATING:
            return WORKING
        case Situation.REAP_OWED | Situation.KILL_OWED | Situation.WAKE_OWED | Situation.SPRITE_NOT_FOUND:
            return WORKING
        case Situation.LOST | Situation.SESSION_TAKEN | Situation.SESSION_NOT_OURS | Situation.SESSION_NOT_FOUND:
            return STUCK
        case Situation.LAUNCH_UNCLEAR | Situation.LAUNCH_REFUSED | Situation.LAUNCH_INVALID:
            return STUCK
        case Situation.TOKEN_NOT_ALLOWED | Situation.SECRET_NOT_FOUND | Situation.SECRET_KEY_MISSING:
            return STUCK
        case Situation.TOKEN_INVALID | Situation.TOKEN_REJECTED | Situation.TOKEN_FORBIDDEN | Situation.OBJECT_INVALID:
            return STUCK
        case Situation.SPRITES_UNAVAILABLE | Situation.THROTTLED | Situation.API_INCIDENT:
            return BLIND
        case Situation.SUSPENDED:
            return RESTING
        case _:
            assert_never(situation)


def judge_phase(situation: Situation, before: Phase) -> Phase:
    """Give the word for people. Where the Sprites API cannot be asked, the last word stands: nothing was learned."""
    match situation:
        case Situation.RUNNING:
            return Phase.RUNNING
        case Situation.DETACHED | Situation.REAP_OWED:
            return Phase.DETACHED
        case Situation.HELD:
            return Phase.HELD
        case Situation.PENDING | Situation.SPRITE_NOT_FOUND:
            return Phase.PENDING
        case Situation.STARTING | Situation.RELAUNCHING | Situation.WAKE_OWED:
            return Phase.STARTING
        case Situation.TERMINATING | Situation.KILL_OWED:
            return Phase.TERMINATING
        case Situation.TERMINATED:
            return Phase.TERMINATED
        case Situation.REAPED | Situation.EXITED | Situation.EXIT_UNSEEN:
            return Phase.EXITED
        case Situation.LOST:
            return Phase.LOST
        case Situation.SUSPENDED:
            return Phase.SUSPENDED
        case Situation.SPRITES_UNAVAILABLE | Situation.THROTTLED | Situation.API_INCIDENT:
            return before
        case Situation.SESSION_TAKEN | Situation.SESSION_NOT_OURS | Situation.SESSION_NOT_FOUND:
            return Phase.FAILED
        case Situation.LAUNCH_UNCLEAR | Situation.LAUNCH_REFUSED | Situation.LAUNCH_INVALID:
            return Phase.FAILED
        case Situation.TOKEN_NOT_ALLOWED | Situation.SECRET_NOT_FOUND | Situation.SECRET_KEY_MISSING:
            return Phase.FAILED
        case Situation.TOKEN_INVALID | Situation.TOKEN_REJECTED | Situation.TOKEN_FORBIDDEN | Situation.OBJECT_INVALID:
            return Phase.FAILED
        case _:
            assert_never(situation)

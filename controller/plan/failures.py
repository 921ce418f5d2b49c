"""
What a failed call to the Sprites API means for the object that asked: wait, or stall. Total, and tested so.

A stall is shown as Stalled and still looked at again, seldom: tokens get mended without the object changing.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never

from controller.api.situations import Situation
from controller.errors import Failure
from controller.plan.looks import LookFailed

STALL_RETRY: Final = timedelta(seconds=60)
"""
How soon a stalled object is looked at again, in case somebody mended the cause elsewhere: a Secret is read again after
this time, and a token that is refused costs one call for all its objects.
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """
    Nobody's fault, or nobody's yet: come again. `after` None means by the queue's own back-off.

    It is never zero: "at once" from a side that has just failed would make a loop.
    """

    situation: Situation
    after: timedelta | None


@dataclass(frozen=True, slots=True)
class Stall:
    """Only a person gets it further."""

    situation: Situation


def judge_failure(look: LookFailed) -> Wait | Stall:
    """Say what now, from what happened. A missing sprite waits: whoever declares terminals may declare it later."""
    match look.failure:
        case Failure.UNAUTHORIZED:
            return Stall(Situation.TOKEN_REJECTED)
        case Failure.FORBIDDEN:
            return Stall(Situation.TOKEN_FORBIDDEN)
        case Failure.NOT_FOUND | Failure.GONE:
            return Wait(Situation.SPRITE_NOT_FOUND, None)
        case Failure.THROTTLED:
            return Wait(Situation.THROTTLED, look.retry_after or None)
        case Failure.SERVER | Failure.TIMED_OUT | Failure.UNREACHABLE | Failure.UNFINISHED:
            return Wait(Situation.SPRITES_UNAVAILABLE, look.retry_after or None)
        case Failure.MALFORMED | Failure.REDIRECTED | Failure.REJECTED | Failure.CONFLICT | Failure.REFUSED:
            return Wait(Situation.SPRITES_UNAVAILABLE, look.retry_after or None)
        case Failure.API_INCIDENT:
            return Wait(Situation.API_INCIDENT, look.retry_after or None)
        case _:
            assert_never(look.failure)

"""
What can happen to a terminal in a gateway process: a closed union, fed one by one into `fence.step`.

Each call to the API server is answered by exactly one event. Whether a write happened has three answers: it did, it
surely did not, and nobody knows; the third is settled by a read.
"""

from dataclasses import dataclass
from datetime import timedelta

from controller.plan.fence_closing import Ending
from controller.plan.fence_objects import LeaseLook, ObjectView
from controller.plan.fence_state import TimerName
from controller.plan.fence_tenure import BreakAnswer


@dataclass(frozen=True, slots=True)
class Arrived:
    """
    A socket asks to speak. `view` is a consistent read, made after it was let in by the door.

    `dead` are the incarnations that this process knows to be proven out; without a takeover they hold nothing.
    """

    key: int
    luck: str
    view: ObjectView
    takeover: bool = False
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Left:
    """The client went."""

    key: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The process found a reason to end this socket."""

    key: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Rang:
    """A timer ran out."""

    key: int
    timer: TimerName


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """A consistent read that was asked for by this speaker. None: there is no object of that name."""

    key: int
    view: ObjectView | None


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """It failed, or its answer was lost."""

    key: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """2xx, with the object as it is now."""

    view: ObjectView


@dataclass(frozen=True, slots=True)
class MovedOn:
    """422 without causes, or 409: the object has moved on. Read again."""


@dataclass(frozen=True, slots=True)
class RuleSpoke:
    """422 with causes, or a plain refusal (400, 401, 403): told to the person, not repeated."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """404."""


@dataclass(frozen=True, slots=True)
class NotNow:
    """It surely did not happen, and may later: 429, or no connection."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows whether it happened, or will: no answer in time, a cut connection, a 5xx. A read settles it."""


Answer = Accepted | MovedOn | RuleSpoke | ObjectGone | NotNow | Lost


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    """The answer to `SendClaim`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class LockAnswered:
    """The answer to `SendLock`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class ClearAnswered:
    """The answer to `SendClear`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class WithdrawAnswered:
    """The answer to `SendWithdrawal`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class LeaseWasRead:
    """The answer to `ReadLease`: consistent, sent at `started`."""

    key: int
    look: LeaseLook
    started: timedelta


@dataclass(frozen=True, slots=True)
class LeaseReadFailed:
    """It failed, or its answer was lost."""

    key: int


@dataclass(frozen=True, slots=True)
class LeaseWasBroken:
    """The answer to `BreakLease`."""

    key: int
    answer: BreakAnswer


@dataclass(frozen=True, slots=True)
class Told:
    """The watch shows the object, or some answer to another call did. An older view than the known one says nothing."""

    view: ObjectView


@dataclass(frozen=True, slots=True)
class Doubted:
    """The list of what we hold, or a DELETED event, says that we may know too little: stop input and read."""


@dataclass(frozen=True, slots=True)
class UpstreamClosed:
    """The upstream that can type is closed, for whatever reason; so many bytes were never confirmed."""

    key: int
    unconfirmed_bytes: int


@dataclass(frozen=True, slots=True)
class TenureEnded:
    """The tenure ran out."""


@dataclass(frozen=True, slots=True)
class TenureBegan:
    """A tenure began, after one that ended or as the first."""

    number: int


@dataclass(frozen=True, slots=True)
class IncarnationEnded:
    """This incarnation is out for good: every socket goes, and nothing is written any more."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The process was asked to go: it lets go of everything in order."""


Event = (
    Arrived
    | Left
    | Finished
    | Rang
    | ObjectRead
    | ReadFailed
    | ClaimAnswered
    | LockAnswered
    | ClearAnswered
    | WithdrawAnswered
    | LeaseWasRead
    | LeaseReadFailed
    | LeaseWasBroken
    | Told
    | Doubted
    | UpstreamClosed
    | TenureEnded
    | TenureBegan
    | IncarnationEnded
    | ShutDown
)

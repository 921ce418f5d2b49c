"""
What a gateway process knows of one terminal and of each socket that wants to type into it. Frozen values.

Promise: a speaker is in exactly one phase, and each phase says what is waited for; at most one call to the API server
is under way for it. The state holds no clock: moments in it are compared, never read.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from controller.plan.fence_closing import Ending
from controller.plan.fence_objects import ObjectView
from controller.plan.fence_tenure import Proof


class TimerName(StrEnum):
    """What a timer is for."""

    PATIENCE = "Patience"
    """From the arrival: until then it speaks, or is told no."""
    RETRY = "Retry"
    POLL = "Poll"
    PONG = "Pong"
    SETTLE = "Settle"


@dataclass(frozen=True, slots=True)
class Reading:
    """
    A read of the object is under way.

    Args:
        tenure: In which it was sent; a lock is believed only if read in the running one.
        again: What it gives is not new enough any more: read once more.
    """

    tenure: int | None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Claiming:
    """The claim is under way."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The spec names it, and the lock is somebody else's, or there is no tenure; it looks again by a timer."""


@dataclass(frozen=True, slots=True)
class AskingLease:
    """A read of the holder's Lease is under way."""


@dataclass(frozen=True, slots=True)
class Breaking:
    """The breaking of the holder's Lease is under way."""


@dataclass(frozen=True, slots=True)
class Locking:
    """The write of the lock is under way, sent in that tenure."""

    tenure: int


@dataclass(frozen=True, slots=True)
class Pausing:
    """
    A call failed; the object is read after a while.

    Args:
        blind: It was a read that failed. Whoever leaves then lets go by what is known: a read may fail for as long as
            a right to it is gone, and each patch tests what it takes away.
    """

    blind: bool = False


@dataclass(frozen=True, slots=True)
class Speaking:
    """It holds the lock, as seen in that tenure, and speaks while that lasts."""

    tenure: int


@dataclass(frozen=True, slots=True)
class Draining:
    """Its input has stopped; its upstream is being quieted and closed."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Its upstream was lost with bytes on the way; the lock is kept until they can be expected to have gone."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """The clearing of its lock is under way."""


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """The clearing of its name from the spec is under way."""


Phase = (
    Reading
    | Claiming
    | Waiting
    | AskingLease
    | Breaking
    | Locking
    | Pausing
    | Speaking
    | Draining
    | Settling
    | Clearing
    | Withdrawing
)

CALLS: Final = (Reading, Claiming, AskingLease, Breaking, Locking, Clearing, Withdrawing)
"""The phases in which a call is under way: what follows is decided with its answer."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """
    One socket that wants to type.

    Args:
        key: The process's own handle.
        luck: The random part of its id.
        takeover: It may replace somebody who speaks.
        phase: What it waits for.
        dead: Incarnations that were proven out when it came; whom they named, nobody holds.
        socket_id: The id of its last claim.
        claimed: That claim was seen in the spec.
        tries: How often the object had moved on.
        upstream: An upstream that can type may be open.
        tainted: An upstream of it was lost with bytes on the way, which may still arrive.
        proof: How far the proof of the holder's death has come.
        lease_due: When the holder's Lease is read next.
        proven: The incarnation that was proven out.
        ending: Why it leaves; its client was told.
        clearing_since: Since when its lock should be cleared.
    """

    key: int
    luck: str
    takeover: bool
    phase: Phase
    dead: frozenset[str] = frozenset()
    socket_id: str | None = None
    claimed: bool = False
    tries: int = 0
    upstream: bool = False
    tainted: bool = False
    proof: Proof | None = None
    lease_due: timedelta = timedelta(0)
    proven: str | None = None
    ending: Ending | None = None
    clearing_since: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """
    What one gateway process knows of one terminal.

    Args:
        uid: Of the object; a successor of the same name has a seat of its own.
        incarnation: The gateway process.
        view: The newest view of the object.
        gone: A consistent read said that this uid is gone.
        tenure: The number of the running tenure; None where there is none.
        closing: The process goes; nobody is let in any more.
        speakers: In the order in which they came.
    """

    uid: str
    incarnation: str
    view: ObjectView | None = None
    gone: bool = False
    tenure: int | None = None
    closing: bool = False
    speakers: tuple[Speaker, ...] = ()


def take_seat(uid: str, incarnation: str, *, tenure: int | None) -> Seat:
    """Begin with an object of which nothing is known yet."""
    return Seat(uid, incarnation, tenure=tenure)


def find_speaker(seat: Seat, key: int) -> Speaker | None:
    """Find a speaker by the process's handle."""
    for speaker in seat.speakers:
        if speaker.key == key:
            return speaker
    return None

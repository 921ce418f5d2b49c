"""What `fence.step` asks a gateway process to do: a closed union. The process carries out and decides nothing."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from controller.plan.fence_closing import Ending
from controller.plan.fence_objects import LeaseView, Lock, ObjectView
from controller.plan.fence_patches import JsonPatch, build_lock
from controller.plan.fence_state import TimerName


@dataclass(frozen=True, slots=True)
class ReadObject:
    """Read the object consistently (GET without a resourceVersion)."""

    key: int


@dataclass(frozen=True, slots=True)
class SendClaim:
    """Patch the main resource."""

    key: int
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class SendLock:
    """
    Patch the status subresource; `build` makes the patch, with the moment that is stored in it.

    `former` is the dead holder's lock that is replaced, None where the lock was free.
    """

    key: int
    base: ObjectView
    lock: Lock
    former: Lock | None

    def build(self, *, since: str | None) -> JsonPatch:
        """Build the patch, with the moment as it will be stored."""
        return build_lock(self.base, replace(self.lock, since=since))


@dataclass(frozen=True, slots=True)
class SendClear:
    """Patch the status subresource: clear this very lock."""

    key: int
    lock: Lock
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class SendWithdrawal:
    """Patch the main resource: clear this very name."""

    key: int
    socket_id: str
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the Lease of an incarnation consistently."""

    key: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class BreakLease:
    """Write an empty holder over this very version (PUT with its uid and resourceVersion)."""

    key: int
    incarnation: str
    lease: LeaseView


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `Rang` after a while."""

    key: int
    timer: TimerName
    after: timedelta


@dataclass(frozen=True, slots=True)
class LetSpeak:
    """It holds the lock: open its upstream if there is none, and send what was kept."""

    key: int


@dataclass(frozen=True, slots=True)
class PauseInput:
    """Keep what it types; `LetSpeak` or an end follows."""

    key: int


@dataclass(frozen=True, slots=True)
class DrainUpstream:
    """Send no further frame; ping, wait for the pong, close."""

    key: int


@dataclass(frozen=True, slots=True)
class AbortUpstream:
    """`transport.abort()`, at once."""

    key: int


@dataclass(frozen=True, slots=True)
class CountUndrained:
    """Count a lock that is let go although bytes were on the way."""

    key: int
    unconfirmed_bytes: int


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Tell the client why, and close its socket; or answer its upgrade. `detail` is a rule's own sentence."""

    key: int
    ending: Ending
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left of this speaker."""

    key: int


@dataclass(frozen=True, slots=True)
class EndIncarnation:
    """A lock could not be cleared for too long: end the incarnation, so that others may prove it out."""


Action = (
    ReadObject
    | SendClaim
    | SendLock
    | SendClear
    | SendWithdrawal
    | ReadLease
    | BreakLease
    | SetTimer
    | LetSpeak
    | PauseInput
    | DrainUpstream
    | AbortUpstream
    | CountUndrained
    | CloseClient
    | Forget
    | EndIncarnation
)

"""What a decision may come to: one step from a closed set, or a rest with its outcome. Frozen values."""

from dataclasses import dataclass, field
from datetime import timedelta

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Cause, Identity
from controller.api.situations import Situation
from controller.api.terminal import (
    KillStatus,
    LaunchIntent,
    LeftoversResult,
    SessionStatus,
)
from controller.plan.facts import Memory
from controller.plan.fence_patches import JsonPatch
from controller.plan.kill import (
    ComeAgain,
    KillEvidence,
)
from controller.plan.leftovers import Mark


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition's say."""

    status: ConditionStatus
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Happening:
    """Something worth a line in the log and, as a rule, an Event."""

    reason: Reason
    note: str
    warning: bool = False
    event: bool = True
    """False where the status says it all: an Event for each of a thousand adoptions would double what they cost."""
    evidence: KillEvidence | None = None
    """What proved an end, where one was proven."""
    leftovers: LeftoversResult | None = None
    """What was found of processes that a kill did not reach, where it was searched for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What a visit has found, to be written as status if it differs from what is recorded.

    `terminated` and `live` None leave those conditions as they were. `doubt_settled` says that the question whether
    the session lives was answered. `exit_code` is that of the session that has just ended, where it is known.
    """

    situation: Situation
    message: str
    session: SessionStatus | None
    kill: KillStatus | None
    terminated: Verdict | None = None
    live: Verdict | None = None
    doubt_settled: bool = False
    exit_code: int | None = None


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
class LookAtProcesses:
    """Look at all processes of the sprite, after a kill; a look that started at this moment or later will do."""

    since: timedelta


@dataclass(frozen=True, slots=True)
class ReleaseObject:
    """
    Take our finalizer off: nothing is left that it guards.

    What its session left behind is searched for afterwards, for all objects of a sprite at once; `mark` None means that
    nothing can be left.
    """

    happening: Happening | None
    mark: Mark | None = None


@dataclass(frozen=True, slots=True)
class SweepGateway:
    """Clear a lock, or an entry, of a gateway that is proven out (status subresource)."""

    incarnation: str
    patch: JsonPatch = field(hash=False)


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
class BarLaunch:
    """Keep a launch that never ran from ever running, and remove its script."""

    intent: LaunchIntent


@dataclass(frozen=True, slots=True)
class RereadObject:
    """Read the object itself, consistently: somebody may have attached since, and a reap gives way to them."""


@dataclass(frozen=True, slots=True)
class SendKill:
    """Send SIGKILL to this identity."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Rest:
    """
    Write the outcome if it differs, and come again after a while.

    `after` None means only when something happens; `retry` True means by the queue's own back-off instead. The
    happenings are told together with a write, the tidings in any case.
    """

    outcome: Outcome
    after: timedelta | None = None
    retry: bool = False
    happenings: tuple[Happening, ...] = ()
    tidings: tuple[Happening, ...] = ()


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing to do and nothing to write: the object is not ours any more."""


Step = (
    LookAtSprite
    | LookAtSessions
    | LookAtProcesses
    | PlaceFinalizer
    | ReleaseObject
    | SweepGateway
    | RecordIntent
    | StartSession
    | ProbeLaunch
    | BarLaunch
    | RereadObject
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

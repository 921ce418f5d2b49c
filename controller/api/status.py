"""
The observation: what the operator, and in its own parts the gateway, writes into `status` of an AgentTerminal.

Times are RFC 3339 in UTC with microseconds, since "this list started after the kill was settled" needs them; only the
conditions carry whole seconds, as everywhere in Kubernetes. Words that may grow with a later version (phase, origin,
reasons) are plain strings in the CRD, so that an older CRD never refuses the status of a newer operator.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.model import Count, Flag, Generation, Model, Moment, Second, Text, Whole, about
from controller.api.names import FLUX_RECONCILE_REQUEST, RECONCILE_REQUEST
from controller.api.situations import Phase

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The transition time of a condition that never was anything else."""


class Origin(StrEnum):
    """How the object came to its session."""

    ADOPTED = "Adopted"
    LAUNCHED = "Launched"


class KillTrigger(StrEnum):
    """Why the session is killed."""

    TERMINATED = "Terminated"
    """`spec.terminated` is true."""
    DELETED = "Deleted"
    """The object is being deleted with `deletionPolicy: Terminate`."""
    REAPED = "Reaped"
    """It was idle for longer than `spec.idleTimeoutSeconds`."""


class LeftoversResult(StrEnum):
    """What was found, after a kill, of processes that it did not reach."""

    NONE = "None"
    """Nothing is left."""
    NONE_IN_SESSION = "NoneInSession"
    """
    Nothing is left in the session. Whether anything had left the session before cannot be known of one that was
    adopted: only what we launch carries a mark that every child inherits.
    """
    FOUND = "Found"
    """Processes are left. They are reported and not killed."""
    NOT_KNOWN = "NotKnown"
    """The sprite could not be searched."""


def _read_phase(value: Any) -> Any:
    """Take a phase of another version for Pending: it is a word for people, and no decision rests on it."""
    return value if not isinstance(value, str) or value in Phase.__members__.values() else Phase.PENDING


def _read_result(value: Any) -> Any:
    """Take a result of another version for one that is not known: no decision rests on it."""
    if not isinstance(value, str) or value in LeftoversResult.__members__.values():
        return value
    return LeftoversResult.NOT_KNOWN


class LaunchIntent(Model):
    """A launch that was recorded before it was sent, so that a crash cannot make two of it."""

    nonce: Annotated[Text, about(description="The mark by which the launched session is found again.")]
    requested_time: Annotated[Moment, about(description="When the intent was recorded.")]
    sprite_id: Annotated[Text | None, about(description="Id of the sprite in which it was to start.")] = None


class SessionEnd(Model):
    """How a session ended. An end is final for that session."""

    reason: Annotated[Text, about(description="How it ended: one of the documented reasons.")]
    time: Annotated[Moment, about(description="When the end was learned.")]
    generation: Annotated[Generation, about(description="Generation of the object at that time.")]
    attached: Annotated[Flag, about(description="Whether somebody was attached at that time.")] = False
    socket_id: Annotated[
        Text | None, about(description="The `activeSocketId` of that time; absent if it was never claimed.")
    ] = None


class SessionStatus(Model):
    """The session of this object. Its identity is sprite id, session id and created time together."""

    id: Annotated[Text | None, about(description="Id of the session inside its sprite. It comes again.")] = None
    created: Annotated[Moment | None, about(description="When the session was created, as the Sprites API says.")] = (
        None
    )
    sprite_id: Annotated[Text | None, about(description="Id of the sprite in which it was seen.")] = None
    origin: Annotated[
        Annotated[Origin, WithJsonSchema({"type": "string"})] | None,
        about(description="How the object came to it: `Adopted` or `Launched`."),
    ] = None
    launch_intent: Annotated[
        LaunchIntent | None, about(description="A launch in flight, or one whose result is not known.")
    ] = None
    ended: Annotated[SessionEnd | None, about(description="How it ended. Absent while it is not known to.")] = None


class SpriteStatus(Model):
    """The sprite as last seen."""

    id: Annotated[Text | None, about(description="Id of the sprite.")] = None
    state: Annotated[
        Text | None, about(description="`running`, `warm`, `cold` or `unknown`. It lags behind the truth.")
    ] = None
    since: Annotated[Moment | None, about(description="Since when that state was seen.")] = None


class ActivityStatus(Model):
    """When the session last did something, as of the last change of this status."""

    last_time: Annotated[Moment | None, about(description="Time of the last activity that was seen.")] = None
    observable: Annotated[Flag, about(description="Whether silence can be told from not being able to look.")] = False


class HoldStatus(Model):
    """The task that keeps the sprite from pausing, as of the last change of this status."""

    task: Annotated[Text, about(description="Base name of the tasks that hold the sprite.")]
    since: Annotated[Moment | None, about(description="Since when the sprite is held.")] = None
    cause: Annotated[Text | None, about(description="What it is held for: a viewer, activity, or always.")] = None
    expiry_time: Annotated[Moment | None, about(description="When the hold ends by itself if nobody refreshes it.")] = (
        None
    )


class SocketStatus(Model):
    """The lock: the socket that may send upstream, and the gateway process that holds it. Written by gateways."""

    uid: Annotated[Text, about(description="Uid of the object for which the lock was taken.")]
    epoch: Annotated[Generation, about(description="Generation of the object that the write of the lock tested.")]
    socket_id: Annotated[Text, about(description="The socket that holds the lock.")]
    incarnation: Annotated[Text, about(description="The gateway process that holds the lock.")]
    since: Annotated[Moment | None, about(description="Since when the lock is held.")] = None


class LeftoverProcess(Model):
    """A process that outlived its session. Its arguments and its environment are never read."""

    pid: Annotated[Count, about(description="Its process id inside the sprite.")]
    name: Annotated[Text, about(description="Its command name, as the kernel has it.")]


class LeftoversStatus(Model):
    """What a kill did not reach."""

    result: Annotated[
        Annotated[LeftoversResult, BeforeValidator(_read_result), WithJsonSchema({"type": "string"})],
        about(
            description=(
                "What was found: `None`, `NoneInSession` (what had left an adopted session cannot be known), `Found` "
                "or `NotKnown`."
            )
        ),
    ]
    count: Annotated[
        Count | None, about(description="How many processes are left. Absent where that is not known.")
    ] = None
    processes: Annotated[
        tuple[LeftoverProcess, ...] | None, about(description="The first ten of them. Absent where there is none.")
    ] = None


class KillStatus(Model):
    """A kill, from its request to its proof."""

    trigger: Annotated[
        KillTrigger,
        WithJsonSchema({"type": "string"}),
        about(description="Why the session is killed: `Terminated`, `Deleted` or `Reaped`."),
    ]
    signal: Annotated[Text, about(description="The signal that is sent.")] = "SIGKILL"
    verdict: Annotated[
        Text | None, about(description="How the last request was settled, or why it failed. Never a proof.")
    ] = None
    proof: Annotated[Text | None, about(description="What proved the death, read after the request was settled.")] = (
        None
    )
    sprite_id: Annotated[Text | None, about(description="Id of the sprite in which it was killed.")] = None
    requested_time: Annotated[Moment | None, about(description="When the end was asked for.")] = None
    settled_time: Annotated[Moment | None, about(description="When the Sprites API settled the kill request.")] = None
    confirmed_time: Annotated[Moment | None, about(description="When the death was proven.")] = None
    attempts: Annotated[Count, about(description="How many kill requests were sent, as of the last change.")] = 0
    message: Annotated[Text | None, about(description="What hinders it, in one sentence.")] = None
    leftovers: Annotated[
        LeftoversStatus | None,
        about(description="What the kill did not reach. Absent while the death is not proven."),
    ] = None


class SeenExit(Model):
    """An exit that a gateway has seen: of which session, and with which code."""

    session_id: Annotated[Text, about(description="Id of the session.")]
    sprite_id: Annotated[Text, about(description="Id of the sprite it ran in.")]
    created: Annotated[Moment | None, about(description="When the session was created, where that is known.")] = None
    code: Annotated[Whole, about(description="Exit code of the process.")]


class GatewayStatus(Model):
    """One gateway process that serves this terminal. Written by that gateway, removed with proof of its death."""

    incarnation: Annotated[Text, about(description="The gateway process.")]
    viewers: Annotated[Count, about(description="How many sockets watch through it.")] = 0
    activity_time: Annotated[Moment | None, about(description="Time of the last activity it saw.")] = None
    exit: Annotated[
        SeenExit | None,
        about(description="The exit it saw while somebody was attached; the operator takes it into `status.exit`."),
    ] = None


class ExitStatus(Model):
    """The exit of the session's process, where somebody saw it."""

    code: Annotated[Whole, about(description="Exit code of the process.")]


class Condition(Model):
    """One condition, in the form that every Kubernetes tool knows."""

    type: Annotated[ConditionType, WithJsonSchema({"type": "string"}), about(description="Which condition it is.")]
    status: Annotated[
        ConditionStatus,
        about(description="True, False or Unknown."),
    ]
    reason: Annotated[
        Text,
        about(description="Why, in one word: one of the documented reasons."),
    ]
    message: Annotated[Text, about(description="Why, in a sentence for people. Empty where the reason says it all.")]
    last_transition_time: Annotated[Second, about(description="When `status` last changed.")]
    observed_generation: Annotated[
        Generation | None, about(description="Generation of the object for which this condition was judged.")
    ] = None


UNKNOWN_CONDITIONS: Final = tuple(
    Condition(type=kind, status=ConditionStatus.UNKNOWN, reason=Reason.PENDING, message="", last_transition_time=EPOCH)
    for kind in ConditionType
)
"""The nine conditions of an object that nobody has looked at."""

_UNKNOWN: Final = {condition.type: condition for condition in UNKNOWN_CONDITIONS}


def read_conditions(value: Any) -> Any:
    """Bring conditions into the order of `ConditionType`: a missing one reads as Unknown, a foreign one is left out."""
    if not isinstance(value, list | tuple):
        return value
    found: dict[Any, Any] = {
        entry["type"] if isinstance(entry, Mapping) else getattr(entry, "type", None): entry
        for entry in value
        if not isinstance(entry, Mapping) or "type" in entry
    }
    return tuple(found.get(kind, _UNKNOWN[kind]) for kind in ConditionType)


class TerminalStatus(Model):
    """What was seen, and how far the operator got."""

    observed_generation: Annotated[
        Generation, about(description="The last generation of the object that the operator worked on; -1: none yet.")
    ] = -1
    phase: Annotated[
        Phase,
        BeforeValidator(_read_phase),
        WithJsonSchema({"type": "string"}),
        about(
            description=(
                "The state in one word, for people: " + ", ".join(Phase) + ". Programs read `conditions` instead."
            )
        ),
    ] = Phase.PENDING
    session: Annotated[SessionStatus | None, about(description="The session of this object.")] = None
    sprite: Annotated[SpriteStatus | None, about(description="The sprite as last seen.")] = None
    activity: Annotated[
        ActivityStatus | None, about(description="When the session last did something, as of the last change.")
    ] = None
    detached_time: Annotated[
        Moment | None, about(description="Since when nobody is attached; the idle time counts from here.")
    ] = None
    hold: Annotated[HoldStatus | None, about(description="The task that keeps the sprite from pausing.")] = None
    socket: Annotated[
        SocketStatus | None, about(description="The lock of the socket that may send. Written by gateways.")
    ] = None
    kill: Annotated[KillStatus | None, about(description="The kill of the session, from request to proof.")] = None
    last_handled_reconcile_at: Annotated[
        Text | None,
        about(
            description=f"The last value of the annotation {RECONCILE_REQUEST} that was acted on, or of "
            f"{FLUX_RECONCILE_REQUEST} where that is absent."
        ),
    ] = None
    gateways: Annotated[
        tuple[GatewayStatus, ...],
        about(
            description="The gateway processes that serve this terminal. Written by gateways.",
            list_map_key="incarnation",
        ),
    ] = ()
    exit: Annotated[ExitStatus | None, about(description="The exit of the process, where somebody saw it.")] = None
    conditions: Annotated[
        tuple[Condition, ...],
        BeforeValidator(read_conditions),
        about(
            description="The state in nine conditions, for programs.",
            list_map_key="type",
        ),
    ] = UNKNOWN_CONDITIONS


def render_status(status: TerminalStatus) -> dict[str, Any]:
    """
    Write a status as JSON-ready camelCase, with what is None left out.

    What is left out must be removed by the writer: a merge patch needs a null for it, an apply does so by itself.
    """
    rendered = status.model_dump(mode="json", exclude_none=True)
    if not status.gateways:
        del rendered["gateways"]
    return rendered

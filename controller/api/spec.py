"""
The declaration: what a person, a pipeline or a gateway writes into `spec` of an AgentTerminal.

Each field has its type, default, limits and a description for users; the CRD is rendered from here. What concerns more
than one field, or a change, stands in `controller.api.rules`.
"""

from enum import StrEnum
from typing import Annotated

from controller.api.instants import TIME_PATTERN
from controller.api.model import Flag, Model, Moment, Text, Whole, about, limit


class IdlePolicy(StrEnum):
    """What counts as idle for `idleTimeoutSeconds`."""

    DETACHED = "Detached"
    """Nobody is attached; output does not postpone the end."""
    INACTIVE = "Inactive"
    """Nobody is attached, and there was no activity either."""


class Relaunch(StrEnum):
    """When a new session replaces one that ended by itself."""

    NEVER = "Never"
    """Only when somebody attaches anew."""
    ON_LOST = "OnLost"
    """Also after a loss with evidence, once the sprite runs again."""


class DeletionPolicy(StrEnum):
    """What deleting the object does to its session."""

    TERMINATE = "Terminate"
    """Kill it, prove its death, then let the object go."""
    ORPHAN = "Orphan"
    """Let the object go and leave the session running."""


class HoldMode(StrEnum):
    """When a wanted hold is kept."""

    WHILE_ACTIVE = "WhileActive"
    """While somebody is attached or there is activity."""
    ALWAYS = "Always"
    """As long as the session lives."""


class SecretKeyRef(Model):
    """One key of a Secret in the object's namespace."""

    name: Annotated[
        Text, about(minLength=1, maxLength=253, description="Name of the Secret, in the namespace of this object.")
    ]
    key: Annotated[Text, about(minLength=1, maxLength=253, description="Key inside the Secret.")]


class ValueFrom(Model):
    """Where the value of a variable is read."""

    secret_key_ref: Annotated[SecretKeyRef, about(description="The key of a Secret that holds the value.")]


class EnvVar(Model):
    """One environment variable of the launched session."""

    name: Annotated[
        Text,
        about(
            maxLength=256,
            description="Name of the variable: ASCII letters, digits and underscores, not beginning with a digit.",
        ),
    ]
    value: Annotated[
        Text | None,
        about(maxLength=65_536, description="The value. It is readable by everybody who may read this object."),
    ] = None
    value_from: Annotated[
        ValueFrom | None, about(description="Where the value is read instead: for everything that is secret.")
    ] = None


class Launch(Model):
    """How to start a session. It always has a terminal (TTY)."""

    command: Annotated[
        tuple[Annotated[Text, limit(maxLength=32_768)], ...],
        about(
            minItems=1,
            maxItems=200,
            description=(
                "The program and its arguments, word by word: no shell reads them. The program is looked up in the "
                "sprite's PATH."
            ),
        ),
    ]
    working_directory: Annotated[
        Text | None,
        about(
            minLength=1,
            maxLength=4_096,
            description="Directory in which the command starts. Absent: where the sprite starts its sessions.",
        ),
    ] = None
    env: Annotated[
        tuple[EnvVar, ...],
        about(
            maxItems=100,
            description="Variables added to the sprite's own environment. Names are unique.",
            list_map_key="name",
        ),
    ] = ()
    columns: Annotated[
        Whole, about(description="Width of the terminal at its start, in characters.", minimum=1, maximum=65_535)
    ] = 80
    rows: Annotated[
        Whole, about(description="Height of the terminal at its start, in lines.", minimum=1, maximum=65_535)
    ] = 24


class HoldSpec(Model):
    """How a wanted hold is kept."""

    mode: Annotated[
        HoldMode,
        about(
            description=(
                "When the hold is kept. `WhileActive`: while somebody is attached or there is activity. "
                "`Always`: as long as the session lives."
            )
        ),
    ] = HoldMode.WHILE_ACTIVE
    expire_seconds: Annotated[
        Whole | None,
        about(
            description="After how many seconds without a refresh the platform drops the hold by itself. "
            "Absent: the operator's setting, 300 if it has none.",
            minimum=30,
            maximum=3_600,
        ),
    ] = None
    refresh_seconds: Annotated[
        Whole | None,
        about(
            description="How many seconds apart the hold is refreshed; at most half of the expiry. Absent, or more "
            "than half of the expiry that is in effect: the smaller of 60 seconds and one fifth of the expiry.",
            minimum=5,
            maximum=1_800,
        ),
    ] = None


class TokenSecretRef(Model):
    """The Secret with the Sprites API token of this terminal."""

    name: Annotated[
        Text, about(minLength=1, maxLength=253, description="Name of the Secret, in the namespace of this object.")
    ]
    key: Annotated[Text, about(minLength=1, maxLength=253, description="Key inside the Secret.")] = "token"


class TerminalSpec(Model):
    """How one terminal session should be: attached or not, held or not, alive or terminated, and who speaks for it."""

    sprite_name: Annotated[
        Text,
        about(
            maxLength=63,
            description="The Sprite in which the session lives. It cannot be changed.",
        ),
    ]
    session_id: Annotated[
        Text | None,
        about(
            minLength=1,
            maxLength=128,
            description=(
                "Adopt this exec session, which is running already. Given at creation only, and used up by the first "
                "adoption or launch: later it is never adopted again. With `launch` beside it: adopted if it is there, "
                "else launched. Ids come again after a cold start of the sprite; `sessionCreatedTime` makes sure that "
                "it is the session you mean."
            ),
        ),
    ] = None
    session_created_time: Annotated[
        Moment | None,
        about(
            pattern=TIME_PATTERN,
            description=(
                "Adopt the session of `sessionId` only if it was created at this time (RFC 3339). Given at creation "
                "only, together with `sessionId`. Without it the id is trusted as it is, and after a cold start of "
                "the sprite another process may have it."
            ),
        ),
    ] = None
    launch: Annotated[
        Launch | None,
        about(description="How to start a session. At least one of `sessionId` and `launch` is needed."),
    ] = None
    attached: Annotated[
        Flag | None,
        about(
            description=(
                "Somebody watches. Written together with `activeSocketId` by whoever bridges sockets; manifests in "
                "Git leave both out. Absent means false, and an empty `activeSocketId` says that nobody does."
            )
        ),
    ] = None
    hold_wanted: Annotated[
        Flag, about(description="Keep the sprite from pausing while there is work, as `hold` says.")
    ] = False
    terminated: Annotated[
        Flag,
        about(
            description=(
                "End the session with SIGKILL and prove its death. One way: it cannot be taken back. It wins over "
                "`attached`."
            )
        ),
    ] = False
    active_socket_id: Annotated[
        Text | None,
        about(
            maxLength=128,
            description=(
                "The one socket that speaks for this terminal. Absent: never claimed. Empty: revoked, none speaks. "
                "Once present it may change, but not go away; write an empty string to revoke."
            ),
        ),
    ] = None
    hold: Annotated[
        HoldSpec | None, about(description="How a wanted hold is kept. Without `holdWanted` it does nothing.")
    ] = None
    idle_timeout_seconds: Annotated[
        Whole,
        about(
            description="End the session after it was idle for this many seconds, as `idlePolicy` says. 0: never.",
            minimum=0,
            maximum=31_536_000,
        ),
    ] = 1_800
    idle_policy: Annotated[
        IdlePolicy,
        about(
            description=(
                "What counts as idle. `Detached`: nobody is attached; output does not postpone the end. `Inactive`: "
                "nobody is attached, and there was no activity either."
            )
        ),
    ] = IdlePolicy.DETACHED
    relaunch: Annotated[
        Relaunch,
        about(
            description=(
                "When `launch` runs again after a session that ended. `Never`: only when somebody attaches anew. "
                "`OnLost`: also after a loss with evidence (the sprite went cold or was replaced), once the sprite "
                "runs again. Without `launch` it has no effect."
            )
        ),
    ] = Relaunch.NEVER
    deletion_policy: Annotated[
        DeletionPolicy,
        about(
            description=(
                "What deleting this object does to its session. `Terminate`: kill it and prove its death, then let the "
                "object go. `Orphan`: let the object go and leave the session running; it may still be chosen while "
                "the object is being deleted."
            )
        ),
    ] = DeletionPolicy.TERMINATE
    suspend: Annotated[
        Flag,
        about(
            description=(
                "Start, adopt, reap and hold nothing until this is false again. `terminated` and deletion still work."
            )
        ),
    ] = False
    token_secret_ref: Annotated[
        TokenSecretRef | None,
        about(
            description=(
                "The Secret with the Sprites API token, in the namespace of this object. Absent: the operator's own "
                "token, where its settings allow that for this namespace and sprite name."
            )
        ),
    ] = None

    @property
    def declares_viewer(self) -> bool:
        """Somebody is said to watch, and was not thrown out since: an empty `activeSocketId` names nobody."""
        return bool(self.attached) and self.active_socket_id != ""

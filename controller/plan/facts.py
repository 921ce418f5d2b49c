"""All that a decision about one object weighs, and what only this process remembers of it. Frozen values."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controller.api.session import Announced, Identity
from controller.api.situations import Situation
from controller.api.terminal import (
    LeftoversStatus,
    SessionStatus,
    TerminalSpec,
    TerminalStatus,
)
from controller.plan.activity import Activity
from controller.plan.breaker import Breaker
from controller.plan.fence_objects import ObjectView
from controller.plan.kill import (
    KillEvidence,
    KillProgress,
)
from controller.plan.launch import (
    Traces,
)
from controller.plan.leftovers import ProcessesLook
from controller.plan.looks import (
    NOT_LOOKED,
    LookFailed,
    SessionsLook,
    SpriteLook,
)

NOTHING_SEEN: Final = Activity(None, observable=False)
CLOSED: Final = Breaker()
UNFENCED: Final = ObjectView(uid="", generation=0, version=0)
"""An object of which no gateway has ever spoken."""


@dataclass(frozen=True, slots=True)
class TokenFinding:
    """
    Whether there is a token for this object. `trouble` None means there is.

    `kill_usable` is True where a session already recorded may still be ended: with the token that served last, or with
    the operator's own. `passing` is True where the trouble is likely to go by itself (the Secret could not be read).
    """

    trouble: Situation | None = None
    message: str = ""
    kill_usable: bool = True
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """The traces of a launch were looked for; `traces` is None where the probe did not come to its end."""

    traces: Traces | None
    started: timedelta


@dataclass(frozen=True, slots=True)
class Wakes:
    """How often one object has woken its sprite for one generation of its spec."""

    generation: int
    count: int


@dataclass(frozen=True, slots=True)
class ProvenEnd:
    """
    An end that is proven and not written yet: whatever the API server refuses meanwhile, nothing is proven twice.

    Args:
        session: Whose.
        evidence: What proved it.
        left: What the kill left.
        progress: How the kill came there; None where none was sent.
    """

    session: SessionStatus
    evidence: KillEvidence
    left: LeftoversStatus
    progress: KillProgress | None


@dataclass(frozen=True, slots=True)
class Memory:
    """
    What this process alone remembers of one object.

    Args:
        kill: How far a kill has come.
        fresh_nonce: The intent that this process recorded and has not tried yet, or that was refused for certain.
        refusals: Launches refused in a row.
        launch_not_before: No launch before this moment, monotonic.
        search_asked: Since when a lost launch is searched for, monotonic.
        absent_at: When the first list that lacked a live session started, monotonic.
        barred_nonce: The launch that was kept from ever running.
        found: The session that a search for a lost launch has found, while it is being ended.
        object_read: When the object was last read consistently, before a reap, monotonic.
        reap_warned_for: From which moment the idle time counted when the reap was last announced.
        leftovers_at: When the look started that first found something of a killed session, monotonic.
        wakes: The calls for this object that found its sprite paused.
        mark_told: The value of the activity annotation that was last told to be unreadable.
        proven: The end that is proven and not written yet.
        exit_heard: The live session of which a gateway says that it has exited, once that was looked into.
    """

    kill: KillProgress | None = None
    fresh_nonce: str | None = None
    refusals: int = 0
    launch_not_before: timedelta | None = None
    search_asked: timedelta | None = None
    absent_at: timedelta | None = None
    barred_nonce: str | None = None
    found: SessionStatus | None = None
    object_read: timedelta | None = None
    reap_warned_for: datetime | None = None
    leftovers_at: timedelta | None = None
    wakes: Wakes | None = None
    mark_told: str | None = None
    proven: ProvenEnd | None = None
    exit_heard: Identity | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """
    All that a decision about one object weighs.

    Args:
        generation: `metadata.generation`.
        deleting: The deletion mark is set.
        has_finalizer: Ours is on the object.
        spec: What is declared.
        status: What was recorded last.
        token: Whether the sprite may be asked at all.
        owner: Another object (`namespace/name`) that owns the session this one would adopt or has.
        sprite: The last look at the sprite's metadata.
        sessions: The last look at its session list.
        probed: The last search for the traces of a launch.
        announced: What a create that this visit made has announced.
        first_seen: When this process first saw the object, monotonic.
        end_asked: When this process first saw that its end is asked for, monotonic; None where it is not.
        doubt: Since when it is in question whether the session lives, monotonic; None where it is not.
        last_wake_time: Our last call that could have woken the sprite.
        now: Monotonic.
        now_time: Wall time.
        held: A task of ours surely keeps the sprite awake for this terminal.
        activity: The last activity that anybody saw.
        idle_after: Activity younger than this makes a terminal busy.
        processes: The last look at all processes of the sprite.
        began: When this visit began, monotonic.
        breaker: What the answers to its token come to: while it is open nothing is concluded from them.
        view: The object as the fence sees it.
        dead: Gateways that are proven out.
        gone: Gateways through which nobody watches: those, and those that an earlier process had proven out.
    """

    generation: int
    deleting: bool
    has_finalizer: bool
    spec: TerminalSpec
    status: TerminalStatus
    token: TokenFinding
    owner: str | None
    sprite: SpriteLook
    sessions: SessionsLook
    probed: Probed | LookFailed | None
    announced: Announced | None
    first_seen: timedelta
    end_asked: timedelta | None
    doubt: timedelta | None
    last_wake_time: datetime | None
    now: timedelta
    now_time: datetime
    held: bool = False
    activity: Activity = NOTHING_SEEN
    idle_after: timedelta = timedelta(minutes=2)
    processes: ProcessesLook = NOT_LOOKED
    began: timedelta = timedelta(0)
    breaker: Breaker = CLOSED
    view: ObjectView = UNFENCED
    dead: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

"""
The words for what lives inside a sprite, shared by those who look (`sprites`) and those who decide (`plan`).

A session id is a process id inside the sprite, so it comes again after a cold start: alone it names nothing. The
identity of a session is (sprite id, session id, created time).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

CREATED_TOLERANCE: Final = timedelta(seconds=1)
"""
Two spellings of one created time differ by less than this.

Source: sprites-api.md trap 13 (2026-09): the list gives RFC 3339 with fractions, `session_info` whole unix seconds.
"""


class SpriteState(StrEnum):
    """What the platform says about a sprite. It lags, and it may say nothing."""

    RUNNING = "running"
    WARM = "warm"
    COLD = "cold"
    UNKNOWN = "unknown"
    """Absent from the answer, or a word we do not know. Never read as paused."""


@dataclass(frozen=True, slots=True)
class Sprite:
    """One sprite as the metadata shows it."""

    id: str
    name: str
    state: SpriteState


@dataclass(frozen=True, slots=True)
class Session:
    """One entry of a session list. `created` is None where the entry has no readable time."""

    id: str
    created: datetime | None
    command: str
    tty: bool
    last_activity: datetime | None


@dataclass(frozen=True, slots=True)
class Announced:
    """What a fresh exec socket said about its own session (`session_info`). `created` has whole seconds."""

    id: str
    created: datetime


@dataclass(frozen=True, slots=True)
class Identity:
    """One session for all time. `created` is None only where nobody ever told it."""

    sprite_id: str
    session_id: str
    created: datetime | None


class KillAnswer(StrEnum):
    """How the kill endpoint settled a request. None of these is proof of a death."""

    COMPLETE = "Complete"
    """200, and the stream came to its `complete` line without an `error` line."""
    EMPTY = "Empty"
    """A 2xx without any event."""
    NOT_FOUND = "NotFound"
    """404: no such session, or no such route."""
    GONE = "Gone"
    """410: already exited."""


def is_same_created(one: datetime | None, other: datetime | None) -> bool:
    """Two created times name one instant if they differ by less than a second; an unknown one contradicts nothing."""
    if one is None or other is None:
        return True
    return abs(one - other) < CREATED_TOLERANCE


def is_session(identity: Identity, entry: Session) -> bool:
    """An entry of the same sprite's list is this session: same id, and the created time does not say otherwise."""
    return entry.id == identity.session_id and is_same_created(identity.created, entry.created)


class Cause(StrEnum):
    """Why the Sprites API is called. It travels in a request header and is a label of our metrics: a closed list."""

    METADATA = "metadata"
    """The periodic look at all sprites of a token. Never wakes one."""
    ADOPT = "adopt"
    """Looking for the session of `spec.sessionId`."""
    CHECK = "check"
    """The periodic look whether a session still lives."""
    LAUNCH = "launch"
    """Starting a session: its script and its create."""
    FIND = "find"
    """Looking for the nonce of a launch whose answer was lost."""
    IDENTIFY = "identify"
    """Making sure, directly before a kill, that the id still names our session."""
    KILL = "kill"
    """SIGKILL."""
    PROVE = "prove"
    """The second look, after a kill was settled."""
    LEFTOVERS = "leftovers"
    """Looking, after a kill, for processes that it did not reach. Never wakes a sprite."""
    HOLD = "hold"
    """Upsert and removal of the tasks that keep a sprite awake."""
    ATTACH = "attach"
    """Somebody attaches to type: the only attach that may wake a sprite."""
    VIEW = "view"
    """Somebody only looks on."""

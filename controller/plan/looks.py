"""
What the engine saw of the outside, as facts a plan can weigh.

Two times belong to each look. `started` is monotonic and says whether the look began after a question arose: an answer
that was already on its way knows nothing of the question. `read_time` is wall time, to be compared with what others
recorded. Not knowing is a look of its own (`LookFailed`), never an empty answer.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controller.api.session import Session, Sprite
from controller.errors import Failure

AWAKE_AGE: Final = timedelta(seconds=1)
"""What may not wake a sprite is preceded by metadata that was read at most this long before."""

INSIDE_AGE: Final = timedelta(seconds=10)
"""
A sprite that answered from inside this lately runs, whatever its metadata says: that lags behind a wake.

Source: sprites-api.md 8 (2026-09): it pauses about 30 s after its last activity.
"""


@dataclass(frozen=True, slots=True)
class NotLooked:
    """Nobody has looked yet, or the look is too old to be of use."""


@dataclass(frozen=True, slots=True)
class LookFailed:
    """The question was put and not answered."""

    failure: Failure
    message: str
    started: timedelta
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class SpriteSeen:
    """The sprite's metadata was read. The state lags: it is a hint but for the rules that say how long to wait."""

    sprite: Sprite
    started: timedelta
    read_time: datetime


@dataclass(frozen=True, slots=True)
class SpriteAway:
    """
    No sprite of this name (or one with another id, in `successor`).

    `confirmed` is True once the id was missing from two complete listings that lie at least 60 s apart. It stays False
    while the listing is `blind`: it shows nothing at all of what the token is known to have had.
    """

    started: timedelta
    read_time: datetime
    confirmed: bool
    successor: Sprite | None = None
    blind: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """A complete session list: 200, key present, no error."""

    sessions: tuple[Session, ...]
    started: timedelta


def is_fresh(seen: SpriteSeen, *, now_time: datetime) -> bool:
    """
    Tell whether metadata is young enough for a call that must not wake: the sprite may have paused since any older one.

    It counts from the end of the reading, however long that took, so that a slow API is not asked for ever.
    """
    return now_time - seen.read_time <= AWAKE_AGE


SpriteLook = NotLooked | LookFailed | SpriteSeen | SpriteAway
SessionsLook = NotLooked | LookFailed | Listed

NOT_LOOKED = NotLooked()


def is_answer_to(look: SpriteLook | SessionsLook, question: timedelta) -> bool:
    """A look answers a question if it started when the question had arisen, or later; a failed one counts too."""
    match look:
        case NotLooked():
            return False
        case LookFailed() | SpriteSeen() | SpriteAway() | Listed():
            return look.started >= question

"""
Whether a terminal's sprite is paused, as the platform itself says.

Problem: nothing is written at rest, so the status of a terminal whose sprite has paused by itself goes on saying that
it runs; a viewer who is let in by that would wait for nothing, and one who is refused by an old word could look.
Promise: the metadata is asked, which wakes nothing, not more than once in two seconds for one object and within two
seconds; no answer is None, and then the status counts. A pause of the last two seconds may go unseen here: the stream
behind the door looks again before it connects.

Source: gateway.md 4 (viewing a paused sprite is 409 `Paused`); design.md 4.2 (no write at rest).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from controller.api.session import SpriteState
from controller.clock import Clock

KEPT: Final = timedelta(seconds=2)
"""How long an answer serves those who come after: a page asks first and attaches then."""

WITHIN: Final = timedelta(seconds=2)
"""How long somebody at the door waits for it."""


@dataclass(frozen=True, slots=True)
class _Answer:
    asked: timedelta
    state: SpriteState | None


class Pauses:
    """
    What the platform said of sprites a moment ago.

    Args:
        clock: For the age of answers.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: dict[str, _Answer] = {}
        self._asking: dict[str, asyncio.Lock] = {}

    async def find(self, uid: str, ask: Callable[[], Awaitable[SpriteState | None]]) -> SpriteState | None:
        """
        Give the state of an object's sprite; None where the platform did not say it in time.

        Args:
            uid: The object's.
            ask: Reads the metadata; it raises nothing for an answer that does not come.
        """
        lock = self._asking.setdefault(uid, asyncio.Lock())
        try:
            async with asyncio.timeout(WITHIN.total_seconds()), lock:
                now = self._clock.monotonic()
                self._answers = {one: kept for one, kept in self._answers.items() if now - kept.asked < KEPT}
                if (known := self._answers.get(uid)) is not None:
                    return known.state
                state = await ask()
                self._answers[uid] = _Answer(now, state)
                return state
        except TimeoutError:
            return None
        finally:
            if not lock.locked():
                self._asking.pop(uid, None)

"""
How fast one token may be used.

Problem: the Sprites API slows everybody of an organization down when one program asks too much, and the one call that
must not wait is a kill. Promise: no more than the agreed number of calls a second per token (with a burst of one
second's worth), and kills go before everything else. After a `Retry-After` nobody gets through until its time is over,
and nobody waits for it here either: whoever asks is told how long it takes, so that one slow token does not keep the
workers from all others.
"""

import asyncio
import heapq
import math
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum
from itertools import count
from typing import Final

from controller.clock import Clock
from controller.errors import AgentTerminalError


class Priority(IntEnum):
    """Who goes first; smaller is sooner."""

    KILL = 0
    PROOF = 1
    NORMAL = 2


RESERVED_SHARE: Final = 0.2
"""This share of the burst is never spent on anything but kills and their proofs."""


class Paused(AgentTerminalError):
    """
    The other side asked for a pause that is not over.

    Args:
        left: How long it still takes.
    """

    def __init__(self, left: timedelta) -> None:
        seconds = math.ceil(left.total_seconds())
        super().__init__(f"The Sprites API asked us to slow down; nothing is sent for another {seconds} s.")
        self.left = left


@dataclass(order=True, slots=True)
class _Waiter:
    priority: Priority
    number: int
    turn: "asyncio.Future[None]" = field(compare=False)


class Limiter:
    """
    A bucket of calls for one token, refilled steadily, with a queue by priority.

    Args:
        clock: Its monotonic time.
        per_second: Calls a second; also the size of the burst, which is one call at least.
    """

    def __init__(self, clock: Clock, *, per_second: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._size = max(1.0, per_second)
        self._filled = self._size
        self._filled_at = clock.monotonic()
        self._closed_until = timedelta(0)
        self._waiting: list[_Waiter] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, priority: Priority) -> None:
        """
        Wait for the right to make one call; a cancelled wait takes no right with it.

        Raises:
            Paused: There is a pause, or one began while this call waited.
        """
        left = self._closed_until - self._clock.monotonic()
        if left > timedelta(0):
            raise Paused(left)
        if not self._waiting and self._admits(priority):
            self._filled -= 1
            return
        waiter = _Waiter(priority, next(self._numbers), asyncio.get_running_loop().create_future())
        heapq.heappush(self._waiting, waiter)
        self._arm()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled() and waiter.turn.exception() is None:
                self._filled += 1
            raise

    def pause(self, delay: timedelta) -> None:
        """Let nothing through for this long, as the other side has asked, and send those away who wait."""
        now = self._clock.monotonic()
        self._closed_until = max(self._closed_until, now + delay)
        if self._closed_until <= now:
            return
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.turn.done():
                waiter.turn.set_exception(Paused(self._closed_until - now))

    def _admits(self, priority: Priority) -> bool:
        now = self._clock.monotonic()
        earned = (now - self._filled_at).total_seconds() * self._per_second
        self._filled = min(self._size, self._filled + earned)
        self._filled_at = now
        reserve = 0.0 if priority < Priority.NORMAL else self._per_second * RESERVED_SHARE
        # Where the budget is too small for a reserve, a full bucket is enough for everybody.
        return self._filled >= min(1.0 + reserve, self._size)

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(1 / self._per_second, self._serve)

    def _serve(self) -> None:
        """Give turns to those who wait, the most urgent first, as far as the bucket goes."""
        self._timer = None
        while self._waiting:
            first = self._waiting[0]
            if first.turn.done():
                heapq.heappop(self._waiting)
                continue
            if not self._admits(first.priority):
                break
            heapq.heappop(self._waiting)
            self._filled -= 1
            first.turn.set_result(None)
        self._arm()

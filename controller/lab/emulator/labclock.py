"""
A clock that the lab can push forward and stop, with one timer for all that waits on it.

Problem: holds live an hour and sprites pause after minutes, and no test waits that long; a poll over 500 sprites would
burn the very CPU that a benchmark measures. Promise: everything in the emulator that waits for a moment waits here, so
`advance` makes due what would have become due, in order, and at rest nothing runs. While it stands, only `advance`
moves it, so that what is due in a second is not yet due however long this machine takes.
"""

import asyncio
import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from controller.clock import Clock


class Timer:
    """Something due at a moment; cancelling twice, or after it ran, is fine."""

    def __init__(self, due: timedelta, action: Callable[[], None]) -> None:
        self.due = due
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Never run."""
        self.action = None


class LabClock:
    """Both clocks of the emulator, shifted by what was advanced and by how long they stood."""

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._ahead = timedelta()
        self._stopped: tuple[datetime, timedelta] | None = None
        """What the machine's clocks told when these were stopped; None: they go."""
        self._timers: list[tuple[timedelta, int, Timer]] = []
        self._numbers = count()
        self._handle: asyncio.TimerHandle | None = None

    @property
    def ahead(self) -> timedelta:
        """How far this clock was pushed ahead of the machine's, less how long it stood before."""
        return self._ahead

    @property
    def stands(self) -> bool:
        """Whether only `advance` moves it."""
        return self._stopped is not None

    def now(self) -> datetime:
        """Tell the emulated wall time."""
        return (self._base.now() if self._stopped is None else self._stopped[0]) + self._ahead

    def monotonic(self) -> timedelta:
        """Tell the emulated monotonic time: it only moves forward, so advancing keeps it monotonic."""
        return (self._base.monotonic() if self._stopped is None else self._stopped[1]) + self._ahead

    def stop(self) -> None:
        """Stand still but for `advance`; stopped is stopped."""
        if self._stopped is None:
            self._stopped = self._base.now(), self._base.monotonic()
            self._arm()

    def go(self) -> None:
        """Go on from where it stands."""
        if self._stopped is not None:
            self._ahead -= self._base.monotonic() - self._stopped[1]
            self._stopped = None
            self._arm()

    async def sleep(self, delay: timedelta) -> None:
        """Wait in emulated time."""
        if delay <= timedelta():
            return
        woken = asyncio.get_running_loop().create_future()
        timer = self.call_later(delay, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, delay: timedelta, action: Callable[[], None]) -> Timer:
        """Run an action after a while of emulated time."""
        timer = Timer(self.monotonic() + delay, action)
        heapq.heappush(self._timers, (timer.due, next(self._numbers), timer))
        if self._timers[0][2] is timer:
            self._arm()
        return timer

    def advance(self, by: timedelta) -> None:
        """
        Move forward, and run now what has become due.

        Raises:
            ValueError: The step goes back, which no clock of ours does.
        """
        if by < timedelta():
            raise ValueError("A clock can only be advanced.")
        self._ahead += by
        self._run()

    def close(self) -> None:
        """Forget all timers."""
        self._timers.clear()
        self._arm()

    def _run(self) -> None:
        now = self.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            action, timer.action = timer.action, None
            if action is not None:
                action()
        self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        if self._timers:
            delay = (self._timers[0][0] - self.monotonic()).total_seconds()
            if delay <= 0 or not self.stands:
                self._handle = asyncio.get_running_loop().call_later(max(0.0, delay), self._run)

"""
The only two clocks of the product.

Problem: a duration measured on the wall clock is wrong whenever somebody sets it, and a moment read from the
monotonic clock means nothing to anybody else. Promise: records carry wall time, durations are measured on the
monotonic clock, and whoever needs either is given a `Clock`, so that tests can hold time still.
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_ELAPSED: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_MONOTONIC stands still while a machine is suspended. Source: clock_gettime(2) (read 2026-11)."""


class Clock(Protocol):
    """What a long-lived object may ask about time."""

    def now(self) -> datetime:
        """Tell the wall time, aware and in UTC: for records, and for comparing with what others recorded."""

    def monotonic(self) -> timedelta:
        """Tell the time since an arbitrary start that nobody can set back: for durations and deadlines."""

    async def sleep(self, delay: timedelta) -> None:
        """Wait at least this long; a negative delay is none."""


class ElapsedClock(Clock, Protocol):
    """A clock that also counts the time for which the machine was suspended."""

    def elapsed(self) -> timedelta:
        """Tell the time since an arbitrary start, suspensions included: for what others wait out on other machines."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> datetime:
        """Tell the wall time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> timedelta:
        """Tell the monotonic time. Unit: microseconds are kept."""
        return timedelta(seconds=time.monotonic())

    def elapsed(self) -> timedelta:
        """Tell the time since the machine was started, suspensions included."""
        return timedelta(seconds=time.clock_gettime(_ELAPSED))

    async def sleep(self, delay: timedelta) -> None:
        """Wait on the running loop."""
        await asyncio.sleep(max(0.0, delay.total_seconds()))


def read_monotonic_seconds() -> float:
    """Read the monotonic clock as a number: for what runs for every frame, where a `timedelta` would be felt."""
    return time.monotonic()

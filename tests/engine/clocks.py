"""Clocks for tests."""

import asyncio
from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HandClock:
    """A clock that stands until somebody moves it; to sleep moves it, and lets others run."""

    def __init__(self) -> None:
        self.passed = timedelta(0)

    def now(self) -> datetime:
        return NOON + self.passed

    def monotonic(self) -> timedelta:
        return self.passed

    async def sleep(self, delay: timedelta) -> None:
        self.passed += max(timedelta(0), delay)
        await asyncio.sleep(0)


class LoopClock(HandClock):
    """The clock of the running loop, which may be a virtual one."""

    def monotonic(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time())

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))

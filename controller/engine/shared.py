"""
One question that many ask, answered by one call.

Problem: a hundred terminals on one sprite must not ask a hundred times, and an answer that was on its way before a
question arose does not answer it. Promise: at most one call at a time; who asks while it runs shares it if it started
late enough, and else shares the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Generic, TypeVar

from controller.clock import Clock
from controller.plan.looks import LookFailed

FAILURE_AGE: Final = timedelta(seconds=1)
"""A failed look also answers whoever asks within this time: a thousand objects need not hear it from the API itself."""

L = TypeVar("L")


class Shared(Generic[L]):
    """
    One question that many ask: at most one call at a time, and nobody gets an answer older than the question.

    A failure answers those who ask at the same time and no others: whoever still waits for an answer to an old question
    asks again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answer: L | None = None
        self._started = timedelta(0)
        self._ended = timedelta(0)
        self._flight: asyncio.Future[None] | None = None

    @property
    def last(self) -> L | None:
        """The last answer, however old; None where there was none."""
        return self._answer

    async def get(self, since: timedelta, fetch: Callable[[], Awaitable[tuple[timedelta, L]]]) -> L:
        """Give an answer whose call started at `since` or later; `fetch` gives a call's start and its answer."""
        while True:
            if self._answer is not None and self._started >= since and not self._is_stale():
                return self._answer
            if self._flight is not None:
                await asyncio.shield(self._flight)
                continue
            flight = self._flight = asyncio.get_running_loop().create_future()
            try:
                self._started, self._answer = await fetch()
                self._ended = self._clock.monotonic()
            finally:
                self._flight = None
                flight.set_result(None)

    def _is_stale(self) -> bool:
        return isinstance(self._answer, LookFailed) and self._clock.monotonic() - self._ended > FAILURE_AGE

"""
Say what takes minutes while it takes them.

On a terminal one live line; elsewhere a plain line now and then, so that a log of continuous integration shows both
that something happens and what.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import IO, Final, Protocol

from rich.console import Console
from rich.status import Status

from controller.clock import Clock, SystemClock

PLAIN_INTERVAL: Final = timedelta(seconds=15)
LIVE_INTERVAL: Final = timedelta(seconds=1)


class Progress(Protocol):
    """Where progress is shown."""

    interval: timedelta
    """How often a long step wants to be told of."""

    def tell(self, sentence: str) -> None:
        """Show a sentence that stays."""

    def follow(self, sentence: str) -> None:
        """Show where a long step stands."""

    def finish(self) -> None:
        """End the long step."""


class PlainProgress:
    """Lines to a stream that is no terminal."""

    interval: timedelta = PLAIN_INTERVAL

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def tell(self, sentence: str) -> None:
        """Write a line."""
        print(sentence, file=self._stream, flush=True)

    def follow(self, sentence: str) -> None:
        """Write a line."""
        self.tell(sentence)

    def finish(self) -> None:
        """Do nothing: a line stays."""


class LiveProgress:
    """One line that changes, on a terminal."""

    interval: timedelta = LIVE_INTERVAL

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def tell(self, sentence: str) -> None:
        """Print above the live line."""
        self._console.print(sentence, markup=False, highlight=False)

    def follow(self, sentence: str) -> None:
        """Change the live line."""
        if self._status is None:
            self._status = self._console.status(sentence)
            self._status.start()
        self._status.update(sentence)

    def finish(self) -> None:
        """Remove the live line."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def build_progress(stream: IO[str] | None = None) -> Progress:
    """Choose by what the stream is; None is stderr."""
    stream = sys.stderr if stream is None else stream
    console = Console(file=stream)
    return LiveProgress(console) if console.is_terminal else PlainProgress(stream)


@asynccontextmanager
async def following(progress: Progress, sentence: str, *, clock: Clock | None = None) -> AsyncIterator[None]:
    """Show how long the body has taken, again and again, until it ends."""
    clock = clock or SystemClock()
    started = clock.monotonic()

    async def follow() -> None:
        while True:
            elapsed = clock.monotonic() - started
            progress.follow(
                f"{sentence} ({elapsed.total_seconds():.0f} s so far)" if elapsed >= LIVE_INTERVAL else sentence
            )
            await clock.sleep(progress.interval)

    async with asyncio.TaskGroup() as group:
        follower = group.create_task(follow())
        try:
            yield
        finally:
            follower.cancel()
            progress.finish()

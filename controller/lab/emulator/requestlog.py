"""
What was asked of the emulator, by whom, when and with which answer.

Problem: "at most three calls per sprite" and "patch sent to kill received" are promises about requests, which only
the other side can count. Promise: every request is entered at its arrival, with the machine's wall time in
microseconds (never the emulated time: others compare it with their own), and completed at its end; the log is bounded.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Final

CAUSE_HEADER: Final = "Agentterminal-Cause"
"""Our operator names in it why it calls."""


@dataclass
class Entry:
    """One request."""

    number: int
    time: float
    """Unix seconds of the arrival, to the microsecond."""
    method: str
    path: str
    query: str
    route: str
    door: str
    """`api`, or `inside` for a sprite's own socket."""
    sprite: str | None
    organization: str | None
    cause: str | None
    user_agent: str | None
    status: int | None = None
    """None: not answered yet, or the connection was dropped before an answer."""
    finished: float | None = None

    def render(self) -> dict[str, Any]:
        """Write it for the lab interface."""
        return asdict(self)


@dataclass(frozen=True)
class Filter:
    """Which requests are asked for; None matches all."""

    route: str | None = None
    method: str | None = None
    sprite: str | None = None
    cause: str | None = None
    door: str | None = None
    status: int | None = None
    since: int = 0
    """Only requests with a number above this."""
    after: float = 0.0
    """Only requests that arrived after this unix time."""

    def matches(self, entry: Entry) -> bool:
        """Tell whether an entry is wanted."""
        wanted = (
            (self.route, entry.route),
            (self.method, entry.method),
            (self.sprite, entry.sprite),
            (self.cause, entry.cause),
            (self.door, entry.door),
            (self.status, entry.status),
        )
        return (
            entry.number > self.since
            and entry.time > self.after
            and all(want is None or want == is_ for want, is_ in wanted)
        )


class RequestLog:
    """The bounded log."""

    def __init__(self, limit: int) -> None:
        self._entries: deque[Entry] = deque(maxlen=limit)
        self._changed: asyncio.Event = asyncio.Event()
        self.last = 0

    def enter(self, **fields: Any) -> Entry:
        """Note an arrival."""
        self.last += 1
        entry = Entry(number=self.last, **fields)
        self._entries.append(entry)
        self._announce()
        return entry

    def finish(self, entry: Entry, status: int | None, now: float) -> None:
        """Note the answer."""
        entry.status, entry.finished = status, now
        self._announce()

    def find(self, wanted: Filter) -> list[Entry]:
        """List what matches, oldest first."""
        return list(self._find(wanted))

    def count(self, wanted: Filter) -> dict[str, int]:
        """Count what matches, by route."""
        return dict(Counter(entry.route for entry in self._find(wanted)))

    def clear(self) -> None:
        """Forget all; the numbers go on."""
        self._entries.clear()

    async def wait(self, wanted: Filter, *, at_least: int, within: timedelta) -> list[Entry]:
        """List what matches as soon as it is this many, or what there is when the time is over."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                while len(found := self.find(wanted)) < at_least:
                    await self._changed.wait()
        except TimeoutError:
            return self.find(wanted)
        return found

    def _find(self, wanted: Filter) -> Iterator[Entry]:
        return (entry for entry in self._entries if wanted.matches(entry))

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

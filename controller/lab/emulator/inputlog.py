"""
What was typed into sessions: by which socket, when, and in which order over all sockets.

Problem: whether a fence between many sockets holds is seen where all of them end, and nowhere else: a session's input
alone does not tell whose it was. Promise: each frame of input that counts is entered the moment it is taken, with the
number of its socket and its own place in one order over everything; what is forgotten, since the log is bounded, shows
as a gap in the numbers.
"""

import base64
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

INPUT_LOG_BYTES: Final = 64 << 20
"""Beyond this the oldest entries are forgotten, however few there are."""


@dataclass(frozen=True, slots=True)
class InputEntry:
    """One frame of input."""

    number: int
    """Its place in the order of all input."""
    time: float
    """Unix seconds, to the microsecond: the machine's wall time, as in the log of requests."""
    sprite: str
    session: str
    socket: int
    """Which socket it came through; no two sockets have one number."""
    data: bytes

    def render(self) -> dict[str, Any]:
        """Write it for the lab interface."""
        return {
            "number": self.number,
            "time": self.time,
            "sprite": self.sprite,
            "session": self.session,
            "socket": self.socket,
            "data_base64": base64.b64encode(self.data).decode(),
        }


class InputLog:
    """
    The bounded log.

    Args:
        limit: How many entries are kept.
        limit_bytes: How many bytes of input are kept.
    """

    def __init__(self, limit: int, limit_bytes: int = INPUT_LOG_BYTES) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._entries: deque[InputEntry] = deque()
        self._bytes = 0
        self._sockets = 0
        self.last = 0

    def name_socket(self) -> int:
        """Give a socket its number."""
        self._sockets += 1
        return self._sockets

    def note(self, *, time: float, sprite: str, session: str, socket: int, data: bytes) -> None:
        """Enter a frame of input."""
        self.last += 1
        self._entries.append(InputEntry(self.last, time, sprite, session, socket, data))
        self._bytes += len(data)
        while len(self._entries) > self._limit or self._bytes > self._limit_bytes:
            self._drop_oldest()

    def read(self, *, since: int, limit: int) -> list[InputEntry]:
        """List what has a number above this, oldest first."""
        skipped = max(0, since + 1 - self._entries[0].number) if self._entries else 0
        return list(islice(self._entries, skipped, skipped + limit))

    def forget(self, *, until: int) -> None:
        """Forget what has a number up to this; the numbers go on."""
        while self._entries and self._entries[0].number <= until:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._bytes -= len(self._entries.popleft().data)

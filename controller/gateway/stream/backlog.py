"""
Input that waits until its sender holds the terminal. Pure.

Problem: a person types as soon as the socket is open, while the one before them is still letting go. Promise: what
they type is kept in order, up to a number of bytes; what does not fit refuses all of it, since half a line is worse
than none.
Source: gateway.md 3, rule 7; how much and how long is `plan.fence_upstream`'s word.
"""

from collections import deque


class Backlog:
    """Frames of input in order."""

    def __init__(self) -> None:
        self._frames: deque[bytes] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    @property
    def kept_bytes(self) -> int:
        """How much waits."""
        return self._bytes

    def add(self, frame: bytes) -> None:
        """Keep a frame."""
        self._frames.append(frame)
        self._bytes += len(frame)

    def take(self) -> bytes:
        """Take the frame that has waited longest."""
        frame = self._frames.popleft()
        self._bytes -= len(frame)
        return frame

    def drop(self) -> int:
        """Drop everything, and tell how many bytes it was."""
        dropped, self._bytes = self._bytes, 0
        self._frames.clear()
        return dropped

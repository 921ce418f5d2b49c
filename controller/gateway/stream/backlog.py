"""
Input that waits until its sender holds the terminal. Pure.

Problem: a person types as soon as the socket is open, while the one before them is still letting go. Promise: what
they type is kept in order, up to a number of bytes; what does not fit refuses all of it, since half a line is worse
than none.
Source: gateway.md 3, rule 7.
"""

from collections import deque


class Backlog:
    """
    Frames of input in order.

    Args:
        limit_bytes: How much may wait.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._frames: deque[bytes] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._frames)

    def add(self, frame: bytes) -> bool:
        """Keep a frame, or tell that it does not fit."""
        if self._bytes + len(frame) > self._limit_bytes:
            return False
        self._frames.append(frame)
        self._bytes += len(frame)
        return True

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

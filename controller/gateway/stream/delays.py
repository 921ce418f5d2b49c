"""
How long pieces of a terminal stay in this process.

Problem: what a gateway adds to each frame is what people feel, and it happens thousands of times a second, so the
counting may not become what is felt. Promise: a delay costs two readings of the clock and one place in a list; nobody
is asked, and nothing is allocated; the sums are taken when somebody wants them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from controller.clock import read_monotonic_seconds

BOUNDS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""What a delay may at most be to be counted with the others of its kind; whatever is longer comes after the last."""


class Delays:
    """
    Delays of one direction, counted by their length.

    Args:
        read_seconds: A clock that nobody can set back.
    """

    __slots__ = ("_counts", "now", "sum_seconds")

    def __init__(self, read_seconds: Callable[[], float] = read_monotonic_seconds) -> None:
        self.now = read_seconds
        """The moment, to be given back to `note`."""
        self.sum_seconds = 0.0
        """All delays together."""
        self._counts = [0] * (len(BOUNDS_SECONDS) + 1)

    def note(self, since: float) -> None:
        """Count the delay of something that came at a moment and is gone now."""
        delay = self.now() - since
        self.sum_seconds += delay
        self._counts[bisect_left(BOUNDS_SECONDS, delay)] += 1

    @property
    def counts(self) -> Sequence[int]:
        """How many delays were no longer than each of the bounds and longer than the one before; the longest last."""
        return tuple(self._counts)


class BothDelays:
    """Those of output, from the session's socket to the person's, and those of input, the other way."""

    __slots__ = ("input", "output")

    def __init__(self, read_seconds: Callable[[], float] = read_monotonic_seconds) -> None:
        self.output = Delays(read_seconds)
        self.input = Delays(read_seconds)

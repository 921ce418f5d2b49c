"""
The right to act, handed to every call that reaches the outside.

Problem: a process that has lost its Lease, and does not know it yet, must not kill, launch, hold or write; after a
pause of the whole process (SIGSTOP, a suspended machine) a call may be next in line before any timer fires. Promise:
each call takes a `Tenure` and demands it directly before sending; once it has ended, by word or by the clock, nothing
goes out any more, and it never begins again.
"""

from collections.abc import Callable
from datetime import timedelta

from controller.errors import AgentTerminalError


class TenureEnded(AgentTerminalError):
    """The process does not lead, or no longer: the call was not sent."""


class Tenure:
    """
    One term of leadership, which ends once; a new term is a new object.

    Args:
        number: Which term of the Lease this is (its transitions), for records and logs.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._ended = False

    @property
    def is_held(self) -> bool:
        """Tell whether calls may go out now."""
        return not self._ended

    def demand(self) -> None:
        """Let a call pass, or refuse it because the term is over."""
        if not self.is_held:
            raise TenureEnded("This process no longer leads; the call was not sent.")

    def end(self) -> None:
        """End the term; ending it twice is fine."""
        self._ended = True


class LeasedTenure(Tenure):
    """
    A term that a Lease gives: it has not begun at first, and ends by itself unless it is extended in time.

    Args:
        elapsed: Tells the time on a clock that does not stop with the machine (`ElapsedClock.elapsed`).
    """

    def __init__(self, elapsed: Callable[[], timedelta]) -> None:
        super().__init__(number=0)
        self._elapsed = elapsed
        self._until: timedelta | None = None

    @property
    def is_held(self) -> bool:
        """Tell whether calls may go out now; from its last moment on it is over for good."""
        if self._until is not None and self._elapsed() >= self._until:
            self._ended = True
        return self._until is not None and not self._ended

    @property
    def left(self) -> timedelta:
        """Tell for how long it still lasts unless it is extended; nothing before it began and after it ended."""
        if self._until is None or not self.is_held:
            return timedelta(0)
        return max(timedelta(0), self._until - self._elapsed())

    @property
    def has_begun(self) -> bool:
        """Tell whether it ever began."""
        return self._until is not None

    def begin(self, number: int, *, until: timedelta) -> None:
        """Begin the term, which lasts until a moment of `elapsed`."""
        self.number = number
        self._until = until

    def extend(self, *, until: timedelta) -> None:
        """Let it last longer; one that is over stays so, and none gets shorter."""
        if self._until is not None and self.is_held:
            self._until = max(self._until, until)

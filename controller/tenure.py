"""
The right to write, handed to every call that changes something outside.

Problem: a process that has lost its Lease, and does not know it yet, must not kill, launch or write. Promise: each
write takes a `Tenure` and demands it directly before sending; once it has ended, nothing goes out any more.
"""

from controller.errors import AgentTerminalError


class TenureEnded(AgentTerminalError):
    """The process no longer leads: the write was not sent."""


class Tenure:
    """
    One term of leadership. It ends once and never begins again; a new term is a new object.

    Args:
        number: Which term of the Lease this is (its transitions), for records and logs.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._ended = False

    def demand(self) -> None:
        """Let a write pass, or refuse it because the term is over."""
        if self._ended:
            raise TenureEnded("This process no longer leads; the write was not sent.")

    def end(self) -> None:
        """End the term; ending it twice is fine."""
        self._ended = True

"""
What can go wrong between us and the outside, as a closed set.

    OutsideError
    ├── controller.sprites.errors.SpritesError
    └── controller.kube.errors.KubeError

A client says *what happened* (a `Failure`); `plan.failures` judges *what now* (wait, stall, done). A new class needs a
caller that acts differently. Texts are safe to show: they never carry a token, a header, a body beyond a short excerpt
or a query string.
"""

from datetime import timedelta
from enum import StrEnum
from typing import ClassVar


class Failure(StrEnum):
    """What happened to a call, told apart only as far as somebody acts differently."""

    UNAUTHORIZED = "Unauthorized"
    """401: the token is not accepted."""
    FORBIDDEN = "Forbidden"
    """403: the token is known and has no right."""
    NOT_FOUND = "NotFound"
    """404: the thing, or the route, does not exist. Never proof by itself."""
    GONE = "Gone"
    """410: it existed and has ended."""
    CONFLICT = "Conflict"
    """409: somebody else changed it first, or the name is taken."""
    REJECTED = "Rejected"
    """Any other 4xx: the request will not get better by being repeated."""
    REDIRECTED = "Redirected"
    """3xx: we never follow, since a redirect would carry the token elsewhere."""
    THROTTLED = "Throttled"
    """429: slow down, by `retry_after` where the answer told."""
    SERVER = "ServerError"
    """5xx."""
    TIMED_OUT = "TimedOut"
    """No complete answer in time: it may have happened."""
    UNREACHABLE = "Unreachable"
    """No connection, or it was cut before any answer."""
    UNFINISHED = "Unfinished"
    """The answer began and ended before its end mark: it may have happened."""
    MALFORMED = "Malformed"
    """Answered with success and a body that does not say what the contract promises."""
    REFUSED = "Refused"
    """Answered with success, and the body itself says that it did not work (an `error` line)."""
    API_INCIDENT = "ApiIncident"
    """Never sent: several sprites were refused at once, and until that ends nothing is asked and nothing believed."""


class AgentTerminalError(Exception):
    """The root of everything this product raises on purpose."""


class OutsideError(AgentTerminalError):
    """
    A call to the outside did not do what was asked.

    Args:
        message: One sentence, safe to show to a user.
        status: The HTTP status, where there was one.
        retry_after: How long the other side asked us to wait, where it did.
    """

    failure: ClassVar[Failure]

    def __init__(self, message: str, *, status: int | None = None, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after

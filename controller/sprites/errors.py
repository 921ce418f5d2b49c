"""
What can go wrong with a call to the Sprites API.

    SpritesError
    ├── Unauthorized     401
    ├── Forbidden        403
    ├── NotFound         404; `missing` says what
    ├── Conflict         409
    ├── Gone             410
    ├── Throttled        429; `retry_after` where the answer told
    ├── Rejected         any other 4xx, or a request that cannot be sent at all
    ├── Redirected       3xx
    ├── ServerFault      5xx
    ├── TimedOut         no complete answer in time
    ├── Unreachable      no connection, or cut before any answer
    ├── Unfinished       the answer began and was cut
    ├── Malformed        success, and a body that is not what the contract says
    │   └── OutputTooLarge   a command printed more than the caller wanted to read
    ├── Refused          success, and a body that says that it did not work
    ├── Incident         never sent: the platform refuses sprite after sprite
    └── LaunchUnclear    a launch that may have started its process

One class for each `Failure` (`CLASSES`), one table from HTTP status to class (`classify_status`), one from httpx
exception to class (`classify_transport`); both are total, and tests prove it. Every text is one printable line of at
most 256 characters, whoever raises it.
"""

from datetime import timedelta
from enum import Enum, StrEnum
from typing import ClassVar, Final

import httpx

from controller.errors import Failure, OutsideError
from controller.sprites.texts import read_json, tidy


class SpritesError(OutsideError):
    """A call to the Sprites API did not do what was asked."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: timedelta | None = None) -> None:
        super().__init__(tidy(message), status=status, retry_after=retry_after)


class Unauthorized(SpritesError):
    """The token is not accepted (HTTP 401)."""

    failure: ClassVar[Failure] = Failure.UNAUTHORIZED


class Forbidden(SpritesError):
    """The token is known and has no right to this (HTTP 403)."""

    failure: ClassVar[Failure] = Failure.FORBIDDEN


class Missing(StrEnum):
    """What a 404 says is missing."""

    SPRITE = "Sprite"
    """JSON with the error `sprite not found`: the API itself knows no such sprite."""
    SESSION = "Session"
    """Text that begins with `session not found`: the sprite's runtime knows no such session."""
    OTHER = "Other"
    """Anything else, HTML included: perhaps a wrong route, perhaps an incident at the edge. It tells nothing."""


class NotFound(SpritesError):
    """The thing, or the route, does not exist (HTTP 404). Never proof by itself."""

    failure: ClassVar[Failure] = Failure.NOT_FOUND

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: timedelta | None = None,
        missing: Missing = Missing.OTHER,
    ) -> None:
        super().__init__(message, status=status, retry_after=retry_after)
        self.missing = missing


class Gone(SpritesError):
    """It existed and has ended (HTTP 410)."""

    failure: ClassVar[Failure] = Failure.GONE


class Conflict(SpritesError):
    """Somebody else was first (HTTP 409)."""

    failure: ClassVar[Failure] = Failure.CONFLICT


class Rejected(SpritesError):
    """The request itself is wrong (any other 4xx), or cannot be put on the wire; repeating it does not help."""

    failure: ClassVar[Failure] = Failure.REJECTED


class Redirected(SpritesError):
    """The API pointed elsewhere (HTTP 3xx); following would carry the token there."""

    failure: ClassVar[Failure] = Failure.REDIRECTED


class Throttled(SpritesError):
    """The API asked us to slow down (HTTP 429)."""

    failure: ClassVar[Failure] = Failure.THROTTLED


class ServerFault(SpritesError):
    """The API, or the edge before it, failed (HTTP 5xx)."""

    failure: ClassVar[Failure] = Failure.SERVER


class TimedOut(SpritesError):
    """No complete answer in time: it may have happened."""

    failure: ClassVar[Failure] = Failure.TIMED_OUT


class Unreachable(SpritesError):
    """No connection, or it was cut before any answer."""

    failure: ClassVar[Failure] = Failure.UNREACHABLE


class Unfinished(SpritesError):
    """The answer began and ended before its end mark: it may have happened."""

    failure: ClassVar[Failure] = Failure.UNFINISHED


class Malformed(SpritesError):
    """Answered with success and a body that does not say what the contract promises."""

    failure: ClassVar[Failure] = Failure.MALFORMED


class OutputTooLarge(Malformed):
    """The command printed more than the caller wanted to read; it was cut off."""


class Refused(SpritesError):
    """Answered with success, and the body itself says that it did not work."""

    failure: ClassVar[Failure] = Failure.REFUSED


class Incident(SpritesError):
    """Several sprites were refused at once; nothing is sent until that is over, in `retry_after` at the earliest."""

    failure: ClassVar[Failure] = Failure.API_INCIDENT


class LaunchUnclear(SpritesError):
    """The launch may have started its process: look for it before starting another."""

    failure: ClassVar[Failure] = Failure.UNFINISHED


CLASSES: Final[dict[Failure, type[SpritesError]]] = {
    Failure.UNAUTHORIZED: Unauthorized,
    Failure.FORBIDDEN: Forbidden,
    Failure.NOT_FOUND: NotFound,
    Failure.GONE: Gone,
    Failure.CONFLICT: Conflict,
    Failure.REJECTED: Rejected,
    Failure.REDIRECTED: Redirected,
    Failure.THROTTLED: Throttled,
    Failure.SERVER: ServerFault,
    Failure.TIMED_OUT: TimedOut,
    Failure.UNREACHABLE: Unreachable,
    Failure.UNFINISHED: Unfinished,
    Failure.MALFORMED: Malformed,
    Failure.REFUSED: Refused,
    Failure.API_INCIDENT: Incident,
}
"""The plain class of each failure."""

_STATUSES: Final[dict[int, type[SpritesError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    429: Throttled,
}

_STATUS_CLASSES: Final[dict[int, type[SpritesError]]] = {3: Redirected, 4: Rejected, 5: ServerFault}


def classify_status(status: int) -> type[SpritesError]:
    """
    Name the error of a status that is not the one the caller hoped for.

    A success where it makes no sense (204 without the body that was asked for), a lone 1xx and a number that is no
    status at all are malformed answers.
    """
    return _STATUSES.get(status) or _STATUS_CLASSES.get(status // 100, Malformed)


def classify_missing(body: bytes) -> Missing:
    """
    Tell what a 404 says is missing. Only the exact shapes count, since a 404 from elsewhere proves nothing.

    Source: sprites-api.md 1.1 (2026-09): JSON `{"error": "sprite not found"}`, plain text `session not found: {id}`.
    """
    match read_json(body):
        case {"error": str(error)}:
            told, told_by_json = error.strip().lower(), True
        case _:
            told, told_by_json = body[:64].decode("utf-8", errors="replace").strip().lower(), False
    if told.startswith("session not found"):
        return Missing.SESSION
    if told_by_json and told.rstrip(".") == "sprite not found":
        return Missing.SPRITE
    return Missing.OTHER


class Progress(Enum):
    """How far an exchange had come when it broke."""

    ASKING = "asking"
    """No status line was read."""
    READING = "reading"
    """The status was read, and the body was not complete."""


_TRANSPORT: Final[dict[type[httpx.HTTPError], tuple[type[SpritesError], type[SpritesError]]]] = {
    # httpx exception: (while asking, while reading)
    httpx.HTTPError: (Unreachable, Unfinished),
    httpx.RequestError: (Unreachable, Unfinished),
    httpx.TransportError: (Unreachable, Unfinished),
    httpx.TimeoutException: (TimedOut, TimedOut),
    httpx.ConnectTimeout: (Unreachable, Unreachable),
    httpx.ReadTimeout: (TimedOut, TimedOut),
    httpx.WriteTimeout: (TimedOut, TimedOut),
    httpx.PoolTimeout: (TimedOut, TimedOut),
    httpx.NetworkError: (Unreachable, Unfinished),
    httpx.ConnectError: (Unreachable, Unreachable),
    httpx.ReadError: (Unreachable, Unfinished),
    httpx.WriteError: (Unreachable, Unfinished),
    httpx.CloseError: (Unreachable, Unfinished),
    httpx.ProxyError: (Unreachable, Unreachable),
    httpx.ProtocolError: (Unreachable, Unfinished),
    httpx.LocalProtocolError: (Rejected, Rejected),
    httpx.RemoteProtocolError: (Unreachable, Unfinished),
    httpx.UnsupportedProtocol: (Rejected, Rejected),
    httpx.DecodingError: (Malformed, Malformed),
    httpx.TooManyRedirects: (Redirected, Redirected),
    httpx.HTTPStatusError: (Malformed, Malformed),
}


def classify_transport(kind: type[httpx.HTTPError], progress: Progress) -> type[SpritesError]:
    """Name the error of an httpx exception; a class that httpx adds later is read as its parent."""
    for ancestor in kind.__mro__:
        if (pair := _TRANSPORT.get(ancestor)) is not None:
            asking, reading = pair
            return asking if progress is Progress.ASKING else reading
    raise AssertionError(f"{kind} is no httpx.HTTPError")  # unreachable: the root stands in the table

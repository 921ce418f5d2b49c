"""
What can go wrong with a call to the Kubernetes API.

    KubeError
    ├── Unauthorized     401, also after the credentials were read again
    ├── Forbidden        403
    ├── NotFound         404
    ├── Conflict         409: another resourceVersion or uid than ours, or the name is taken
    ├── Gone             410: the version that a list goes on from has expired
    ├── Invalid          422; `spoke` tells a rule from a failed JSON patch test
    ├── Throttled        429; `retry_after` where the answer told
    ├── Rejected         any other 3xx or 4xx: repeating does not help
    ├── ServerFault      5xx
    ├── TimedOut         no complete answer in time
    ├── Unreachable      no connection, or it was cut
    └── Malformed        success, and a body that is not what the contract says

Problem: the same 422 means "read again" after a failed test and "tell the person" after a rule, and an error without an
answer may or may not have changed the object. Promise: `Invalid.spoke` tells the first apart, `may_have_happened` the
second; every status has its class (`classify_status`, total), and every text is one printable line of at most 256
characters. Source: Kubernetes API concepts, and `Status` in apimachinery (read 2026-11).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeGuard

import orjson

from controller.errors import Failure, OutsideError

TEXT_CHARACTERS: Final = 256


class KubeError(OutsideError):
    """
    A call to the Kubernetes API did not do what was asked.

    Args:
        message: One sentence, safe to show; made one printable line of at most 256 characters.
        status: The HTTP status, where there was one.
        retry_after: How long the server asked us to wait, where it did.
        may_have_happened: True only for a write that was handed to a connection and whose answer does not tell.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: timedelta | None = None,
        may_have_happened: bool = False,
    ) -> None:
        super().__init__(tidy(message), status=status, retry_after=retry_after)
        self.may_have_happened = may_have_happened


class Unauthorized(KubeError):
    """The server does not know us (HTTP 401), also after the credentials were read again."""

    failure: ClassVar[Failure] = Failure.UNAUTHORIZED


class Forbidden(KubeError):
    """The server knows us and we have no right to this (HTTP 403); a namespace that is ending refuses creates so."""

    failure: ClassVar[Failure] = Failure.FORBIDDEN


class NotFound(KubeError):
    """The object, or its kind, does not exist (HTTP 404)."""

    failure: ClassVar[Failure] = Failure.NOT_FOUND


class Conflict(KubeError):
    """The object has changed, is another one than it was, or its name is taken (HTTP 409): read again."""

    failure: ClassVar[Failure] = Failure.CONFLICT


class Gone(KubeError):
    """
    The version that a list or a watch wanted to go on from has expired (HTTP 410): begin again.

    Observed (kube-apiserver 1.37.2): reason `Expired`, with a token for an inconsistent rest, which we do not take.
    """

    failure: ClassVar[Failure] = Failure.GONE


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that a rule said about one field. `field` is a path such as `spec.sessionId`."""

    field: str
    message: str


class Invalid(KubeError):
    """
    The write was refused for what it would make of the object (HTTP 422).

    Observed (kube-apiserver 1.37.2): a failed test of a JSON patch comes without `details.causes`, a schema or CEL rule
    with them. Pinned in tests/cluster/test_kube_client.py.

    Args:
        message: As for every error.
        status: As for every error.
        causes: What each rule said. The server's own remark that it left rules unchecked (field `<nil>`) is no cause.
        spoke: A rule spoke: tell the person, do not repeat. Otherwise a test failed: read again.
    """

    failure: ClassVar[Failure] = Failure.REJECTED

    def __init__(
        self, message: str, *, status: int | None = None, causes: tuple[Cause, ...] = (), spoke: bool = False
    ) -> None:
        super().__init__(message, status=status)
        self.causes = causes
        self.spoke = spoke


class Throttled(KubeError):
    """The server asked us to slow down (HTTP 429), as it also does for some seconds after each change of a CRD."""

    failure: ClassVar[Failure] = Failure.THROTTLED


class Rejected(KubeError):
    """The request itself is wrong, or points elsewhere (any other 3xx or 4xx). We never follow a redirect."""

    failure: ClassVar[Failure] = Failure.REJECTED


class ServerFault(KubeError):
    """The server failed (HTTP 5xx). A write may have happened: etcd may have answered too late for the server."""

    failure: ClassVar[Failure] = Failure.SERVER


class TimedOut(KubeError):
    """No complete answer in time."""

    failure: ClassVar[Failure] = Failure.TIMED_OUT


class Unreachable(KubeError):
    """No connection, or it was cut before the answer was whole."""

    failure: ClassVar[Failure] = Failure.UNREACHABLE


class Malformed(KubeError):
    """Answered with success, and the body is not what the contract promises."""

    failure: ClassVar[Failure] = Failure.MALFORMED


_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def classify_status(status: int) -> type[KubeError] | None:
    """Give the class of an HTTP status, or None for success. Total: a status nobody has heard of is the server's."""
    if 200 <= status <= 299:
        return None
    if 300 <= status <= 499:
        return _BY_STATUS.get(status, Rejected)
    return ServerFault


def build_error(
    status: int, body: bytes, *, request: str, retry_after: str | None = None, is_write: bool = False
) -> KubeError:
    """
    Turn an answer that is no success into its error.

    Args:
        status: The HTTP status.
        body: The answer's body: a `Status` where the API server wrote it, anything where something before it did.
        request: What was asked, for the sentence: `patch agentterminals/status team-a/one`.
        retry_after: The header of that name.
        is_write: Whether the request would have changed something.
    """
    told = _read_status(body)
    details = told.get("details")
    details = details if isinstance(details, dict) else {}
    text = told.get("message")
    said = f": {text}" if isinstance(text, str) and text else "."
    sentence = f"The Kubernetes API answered {status} to {request}{said}"
    wait = read_retry_after(retry_after) or read_retry_after(details.get("retryAfterSeconds"))
    kind = classify_status(status)
    if kind is None:
        return Malformed(sentence, status=status, may_have_happened=is_write)
    if kind is Invalid:
        causes = details.get("causes")
        listed = tuple(_read_causes(causes)) if isinstance(causes, list) else ()
        return Invalid(sentence, status=status, causes=listed, spoke=bool(causes))
    return kind(sentence, status=status, retry_after=wait, may_have_happened=is_write and kind is ServerFault)


def read_retry_after(value: object) -> timedelta | None:
    """
    Read whole seconds, as a number or as text; anything else, and zero, is no wait.

    Observed: the API server writes seconds. A date, which HTTP allows too, would come from something in between; it is
    passed over, and the caller's own back-off stands.
    """
    if _is_int(value):
        return timedelta(seconds=value) if 0 < value < 10**9 else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip(), re.ASCII):
        return timedelta(seconds=int(value)) or None
    return None


def tidy(text: str) -> str:
    """Make one printable line of at most 256 characters; a cut shows as an ellipsis."""
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1] + "…"


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_status(body: bytes) -> dict[str, Any]:
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


def _read_causes(causes: list[Any]) -> list[Cause]:
    return [
        Cause(tidy(str(cause.get("field", ""))), tidy(str(cause.get("message", ""))))
        for cause in causes
        if isinstance(cause, dict) and cause.get("field") != "<nil>"
    ]

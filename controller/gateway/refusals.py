"""
Every way in which the gateway says no, in the words of the Kubernetes API.

Problem: a refusal that is only a number tells a person nothing, and one that repeats what it was sent tells everybody
the token. Promise: one closed table gives each cause its HTTP status and its reason; the body is a Kubernetes `Status`,
so that every client library reads it; no text ever repeats a header, a query, a path or a body of the request.
Source: gateway.md 6; Kubernetes API conventions, "Response Status Kind" (read 2026-11).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from controller.api import names
from controller.errors import AgentTerminalError


class RefusalCause(StrEnum):
    """Why a request was refused, in the order in which the doors ask. A closed list: it is a label of our metrics."""

    ADDRESS_LIMIT = "AddressLimit"
    """Too many requests from one address."""
    BUSY = "Busy"
    """Too many requests that are not authenticated yet, in all."""
    MALFORMED = "Malformed"
    """It cannot be read, or asks for something that no door offers."""
    NO_DOOR = "NoDoor"
    """There is no such path."""
    NO_METHOD = "NoMethod"
    """The path is there and does not do that: above all, it starts nothing."""
    HOST = "Host"
    """Addressed to a name that is not ours."""
    ORIGIN = "Origin"
    """From a page that is not admitted."""
    NO_TOKEN = "NoToken"
    """Nobody says who it is."""
    BAD_TOKEN = "BadToken"
    """The API server does not know the token: wrong, expired, or meant for somebody else."""
    NO_RIGHT = "NoRight"
    """RBAC says no."""
    NOT_FOUND = "NotFound"
    """No such object, or not this object's session."""
    TERMINATED = "Terminated"
    """`spec.terminated` is true."""
    DELETING = "Deleting"
    """The object is being deleted."""
    ENDED = "Ended"
    """Its session ended and there is no `launch` to start another."""
    HELD = "Held"
    """Another socket speaks for it."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is true."""
    STALLED = "Stalled"
    """It has no session, and the operator waits for a person to mend something."""
    PAUSED = "Paused"
    """The sprite is paused, and looking never wakes one."""
    PERSON_LIMIT = "PersonLimit"
    """Too many sockets of one person."""
    OBJECT_LIMIT = "ObjectLimit"
    """Too many sockets of one object."""
    FULL = "Full"
    """Too many sockets in all."""
    NOT_READY = "NotReady"
    """This replica starts, ends, or has lost its Lease."""
    UNDECIDED = "Undecided"
    """The API server did not say who may, in time."""
    BUG = "Bug"
    """Ours."""


_ANSWERS: Final[Mapping[RefusalCause, tuple[int, str]]] = {
    RefusalCause.ADDRESS_LIMIT: (429, "TooManyRequests"),
    RefusalCause.BUSY: (429, "TooManyRequests"),
    RefusalCause.MALFORMED: (400, "BadRequest"),
    RefusalCause.NO_DOOR: (404, "NotFound"),
    RefusalCause.NO_METHOD: (405, "MethodNotAllowed"),
    RefusalCause.HOST: (403, "Forbidden"),
    RefusalCause.ORIGIN: (403, "Forbidden"),
    RefusalCause.NO_TOKEN: (401, "Unauthorized"),
    RefusalCause.BAD_TOKEN: (401, "Unauthorized"),
    RefusalCause.NO_RIGHT: (403, "Forbidden"),
    RefusalCause.NOT_FOUND: (404, "NotFound"),
    RefusalCause.TERMINATED: (410, "Terminated"),
    RefusalCause.DELETING: (410, "Deleting"),
    RefusalCause.ENDED: (410, "Ended"),
    RefusalCause.HELD: (409, "Held"),
    RefusalCause.SUSPENDED: (409, "Suspended"),
    RefusalCause.STALLED: (409, "Stalled"),
    RefusalCause.PAUSED: (409, "Paused"),
    RefusalCause.PERSON_LIMIT: (429, "TooManyRequests"),
    RefusalCause.OBJECT_LIMIT: (429, "TooManyRequests"),
    RefusalCause.FULL: (503, "ServiceUnavailable"),
    RefusalCause.NOT_READY: (503, "ServiceUnavailable"),
    RefusalCause.UNDECIDED: (503, "ServiceUnavailable"),
    RefusalCause.BUG: (500, "InternalError"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """
    One no.

    Args:
        cause: Which.
        message: One sentence for a person. It names the rule and the way out, never what was sent.
        name: The object it is about, once it is known that the asker may know of it.
        retry_after: When to ask again, where asking again may help.
        headers: What belongs to the answer besides, such as `Allow`.
    """

    cause: RefusalCause
    message: str
    name: str | None = None
    retry_after: timedelta | None = None
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def code(self) -> int:
        """The HTTP status."""
        return _ANSWERS[self.cause][0]

    @property
    def reason(self) -> str:
        """The word of `Status.reason`, for programs."""
        return _ANSWERS[self.cause][1]


class Refused(AgentTerminalError):
    """A request is refused; whoever handles it turns this into the answer."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def refuse(
    cause: RefusalCause,
    message: str,
    *,
    name: str | None = None,
    retry_after: timedelta | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Refused:
    """Build a refusal, ready to be raised."""
    return Refused(Refusal(cause, message, name, retry_after, headers))


def render_refusal(refusal: Refusal) -> dict[str, Any]:
    """Render the `Status` of a refusal."""
    details: dict[str, Any] = {
        "group": names.GROUP,
        "kind": names.PLURAL,
        "causes": [{"reason": refusal.cause.value, "message": refusal.message}],
    }
    if refusal.name is not None:
        details["name"] = refusal.name
    if refusal.retry_after is not None:
        details["retryAfterSeconds"] = count_seconds(refusal.retry_after)
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refusal.message,
        "reason": refusal.reason,
        "details": details,
        "code": refusal.code,
    }


def render_success(message: str, name: str) -> dict[str, Any]:
    """Render the `Status` of a yes that brings nothing else."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "message": message,
        "details": {"group": names.GROUP, "kind": names.PLURAL, "name": name},
        "code": 200,
    }


def render_headers(refusal: Refusal) -> dict[str, str]:
    """Render the headers of a refusal."""
    headers = dict(refusal.headers)
    if refusal.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(count_seconds(refusal.retry_after))
    return headers


def count_seconds(wait: timedelta) -> int:
    """Give whole seconds, at least one and never too few."""
    return max(1, -(wait // -timedelta(seconds=1)))

"""
From where a request comes, and as whom it speaks: its headers, read or refused. Pure.

Problem: a browser sends cookies, client certificates and its user's network along with any page's request, and a token
that is put where libraries log it is no secret any more. Promise: a page speaks only if it is listed, and only with a
token of its own, never with the browser's client certificate; a request that was sent to another name than ours is not
ours; a token is taken from one place or from none, and stands in no text. Source: gateway.md 6; Kubernetes,
"WebSocket bearer token subprotocol" of k8s.io/apiserver (read 2026-11).
"""

import base64
import binascii
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from controller.gateway.refusals import RefusalCause, Refused, refuse
from controller.gateway.settings import ANY_HOST

SUBPROTOCOL: Final = "exec.agentterminal.dev"
"""What a page offers and the gateway selects."""

BEARER_SUBPROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
"""What a page offers beside it, followed by its token: a page cannot set headers of a WebSocket. Never selected."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*", re.ASCII)
"""Source: RFC 6750, 2.1 (read 2026-11)."""


class Headers(Protocol):
    """The headers of a request, whatever the case of their names."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        """Give every line of one name."""


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token as it was presented. It shows in no repr."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Person:
    """
    Who somebody is, as the API server says.

    Args:
        name: The user's name.
        uid: The user's uid; empty where there is none.
        groups: Every group.
        extra: What the authenticator added, sorted.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def is_same(self, other: "Person") -> bool:
        """Tell whether this is the same user; groups and extras may have changed meanwhile."""
        return (self.name, self.uid) == (other.name, other.uid)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate that was verified against the cluster's authority: its user, and when it ends."""

    person: Person
    expires: datetime


Presented = BearerToken | Certificate


@dataclass(frozen=True, slots=True)
class Page:
    """The page that a request comes from, admitted."""

    origin: str


def demand_host(headers: Headers, hosts: Sequence[str]) -> None:
    """
    Let only requests pass that were sent to one of our names.

    Raises:
        Refused: 400 without exactly one readable `Host`, 403 for a name that is not ours.
    """
    lines = headers.getall("Host", ())
    if len(lines) != 1:
        raise refuse(RefusalCause.MALFORMED, "A request needs exactly one Host header.")
    if ANY_HOST in hosts:
        return
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(:[0-9]{1,5})?", lines[0], re.ASCII)
    name = match[1].strip("[]").rstrip(".").lower() if match is not None else None
    if name not in {host.strip("[]").lower() for host in hosts}:
        raise refuse(
            RefusalCause.HOST,
            "This gateway does not answer to the name in the Host header; AGENTTERMINAL_GATEWAY_HOSTS lists its names.",
        )


def find_page(headers: Headers, origins: Sequence[str]) -> Page | None:
    """
    Find the page that a request comes from; None where it comes from no page.

    Raises:
        Refused: 403 for a page that is not listed.
    """
    lines = headers.getall("Origin", ())
    if not lines:
        return None
    if len(lines) == 1 and lines[0].lower() in {origin.lower() for origin in origins}:
        return Page(lines[0])
    raise refuse(
        RefusalCause.ORIGIN,
        "Pages of this origin may not use the gateway; AGENTTERMINAL_GATEWAY_ORIGINS lists those that may.",
    )


def demand_readable(headers: Headers, *, is_upgrade: bool) -> None:
    """
    Refuse a head that could not be answered without repeating it.

    Observed (aiohttp 3.14): a subprotocol header without one that the server knows is logged whole, the bearer
    included; a wrong `Upgrade` or version is put into the answer's body. So none of these get that far.

    Raises:
        Refused: 400.
    """
    read_bearer(headers)
    offered = _read_subprotocols(headers)
    if offered and not is_upgrade:
        raise _malformed("A subprotocol belongs to a WebSocket upgrade.")
    if offered and SUBPROTOCOL not in offered:
        raise _malformed(f"Of the subprotocols offered none is known; offer {SUBPROTOCOL}, or none.")
    if not is_upgrade:
        return
    versions, keys = headers.getall("Sec-WebSocket-Version", ()), headers.getall("Sec-WebSocket-Key", ())
    if list(versions) != ["13"]:
        raise refuse(
            RefusalCause.MALFORMED,
            "The WebSocket version must be 13.",
            headers=(("Sec-WebSocket-Version", "13"),),
        )
    if len(keys) != 1 or not _is_key(keys[0]):
        raise _malformed("Sec-WebSocket-Key must be 16 bytes in base64.")


def is_upgrade(headers: Headers) -> bool:
    """
    Tell whether a request asks for a WebSocket.

    Raises:
        Refused: It asks for an upgrade to something else, or for half of one.
    """
    wants = [word.lower() for word in _split(headers.getall("Upgrade", ()))]
    connection = {word.lower() for word in _split(headers.getall("Connection", ()))}
    if not wants:
        return False
    if wants != ["websocket"] or "upgrade" not in connection:
        raise _malformed("The only upgrade here is `Upgrade: websocket` with `Connection: Upgrade`.")
    return True


def read_bearer(headers: Headers) -> BearerToken | None:
    """
    Read the token, from the `Authorization` header or from the subprotocol of a page.

    Raises:
        Refused: 400 where there is more than one, or one that cannot be a token; 401 for another scheme.
    """
    lines = headers.getall("Authorization", ())
    carried = [item for item in _read_subprotocols(headers) if item.startswith(BEARER_SUBPROTOCOL)]
    if len(lines) + len(carried) > 1:
        raise _malformed("A request carries one token: in the Authorization header, or in one subprotocol.")
    if carried:
        return _read_carried(carried[0].removeprefix(BEARER_SUBPROTOCOL))
    if not lines:
        return None
    scheme, _, text = lines[0].strip().partition(" ")
    if scheme.lower() != "bearer":
        raise refuse(RefusalCause.NO_TOKEN, "The Authorization header must be `Bearer <token>`.")
    return read_token(text.strip())


def choose_presented(
    bearer: BearerToken | None, certificate: Certificate | None, *, is_from_page: bool
) -> Presented | None:
    """
    Choose whom a request speaks for: its token, else its client certificate, which a browser never speaks with.

    A browser adds its user's certificate to every page's requests by itself; a token somebody had to put there.
    """
    if bearer is not None:
        return bearer
    return None if is_from_page else certificate


def is_from_browser(headers: Headers) -> bool:
    """Tell whether a browser sent this for a page. Some requests for an image or a frame carry no `Origin`."""
    return any(headers.getall(name, ()) for name in ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode"))


def read_certificate(verified: Any, now: datetime) -> Certificate | None:
    """
    Read a verified client certificate as the API server does: CN is the user, each O a group.

    Args:
        verified: What `ssl.SSLSocket.getpeercert` gives: empty where none was presented or none was asked for.
        now: The present moment. A connection may outlive its certificate.
    """
    if not verified:
        return None
    pairs = [pair for name in verified.get("subject", ()) for pair in name]
    users = [value for key, value in pairs if key == "commonName"]
    groups = tuple(value for key, value in pairs if key == "organizationName")
    expires = datetime.fromtimestamp(ssl.cert_time_to_seconds(verified["notAfter"]), UTC)
    if len(users) != 1 or not users[0] or expires <= now:
        return None
    return Certificate(Person(users[0], "", (*groups, "system:authenticated")), expires)


def _read_subprotocols(headers: Headers) -> list[str]:
    return list(_split(headers.getall("Sec-WebSocket-Protocol", ())))


def _split(lines: Iterable[str]) -> Iterable[str]:
    return (item for line in lines for item in (word.strip() for word in line.split(",")) if item)


def _read_carried(text: str) -> BearerToken:
    alien = re.search(r"[^A-Za-z0-9_-]", text, re.ASCII)
    try:
        carried = "" if alien else base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
    except ValueError:
        carried = ""
    if not carried:
        raise _malformed("The token in the subprotocol must be base64url without padding.")
    return read_token(carried)


def read_token(text: str) -> BearerToken:
    """
    Read a token as it stands after `Bearer`.

    Raises:
        Refused: No token is written so.
    """
    if not _TOKEN.fullmatch(text):
        raise _malformed("What follows `Bearer` has characters that no token has.")
    return BearerToken(text)


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 16
    except (binascii.Error, ValueError):
        return False


def _malformed(message: str) -> Refused:
    return refuse(RefusalCause.MALFORMED, message)

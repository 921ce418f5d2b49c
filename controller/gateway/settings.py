"""
How the gateway's doors are set.

Problem: a door to somebody's shell that is open wider than it says. Promise: without a setting the doors answer on
loopback, to loopback names and to no page; plain HTTP on any other address has to be asked for; every number says what
it weighs; values that contradict each other are refused with one sentence per fault. Source: gateway.md 5 and 6.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

_NO_TIME: Final = timedelta(0)

ANY_HOST: Final = "*"
"""In the list of hosts: whatever name the request was sent to."""

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

OWN_AUDIENCE: Final = "agentterminal-gateway"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate (with its chain) and its key, both PEM. They are read again when they change."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """How much anybody gets. Every number bounds memory or calls, so none of them can be switched off."""

    address_requests_per_second: int = 20
    """Requests of one address (of one /64 of IPv6), before anybody is asked who it is. Behind a proxy all come from
    one address: raise it there."""

    address_burst: int = 60
    """A page that reconnects its tabs sends them all at once."""

    addresses: int = 10_000
    """Addresses that are remembered; the one that was quiet for longest is forgotten first."""

    connections: int = 4_000
    """Connections in all, those of sockets included; the next one is cut. Beyond `sockets`, those that idle."""

    unauthenticated: int = 256
    """Requests in all whose sender is not known yet."""

    reviews: int = 16
    """Reviews in flight at the API server: its own default lets one client of ours do no more at once without queueing.
    """

    cached_verdicts: int = 10_000
    """Verdicts that are remembered, of each kind."""

    person_sockets: int = 50
    """Sockets of one person on this replica."""

    object_sockets: int = 100
    """Sockets of one terminal on this replica; each viewer costs an upstream socket."""

    sockets: int = 2_000
    """Sockets on this replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSettings:
    """How long anything may take."""

    request_head: timedelta = timedelta(seconds=10)
    """From the connection to the last byte of the request's head, and how long an idle connection is kept."""

    tls_handshake: timedelta = timedelta(seconds=10)

    authenticate: timedelta = timedelta(seconds=10)
    """From the head to the verdict: reviews and look-up together."""

    upgrade: timedelta = timedelta(seconds=10)
    """To hand the answer to an upgrade to the client."""

    verdict_kept: timedelta = timedelta(seconds=10)
    """How long a yes or a no of the API server is believed without asking again."""

    review_again: timedelta = timedelta(seconds=30)
    """How often an open socket's token and right are reviewed."""

    fresh_token: timedelta = timedelta(seconds=60)
    """How long a person whose token expired may take to send a fresh one."""

    farewell: timedelta = timedelta(seconds=5)
    """How long a socket may take to end after it was told to."""

    drain: timedelta = timedelta(seconds=20)
    """How long all of them may take on SIGTERM: less than the grace of a pod, 30 s."""

    files_reread: timedelta = timedelta(seconds=5)
    """How often the certificate's files are looked at."""

    authority_reread: timedelta = timedelta(minutes=1)
    """How often the cluster's authority for client certificates is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where the doors stand, whom they let in, and how much of it."""

    address: str = "127.0.0.1"
    port: int = 8443
    """0 takes any free one."""

    metrics_address: str = "127.0.0.1"
    metrics_port: int = 9465

    tls: TlsFiles | None = None
    """None: plain HTTP."""

    plain_anywhere: bool = False
    """Plain HTTP also on addresses that others reach: only where something in front ends TLS."""

    hosts: tuple[str, ...] = LOOPBACK_HOSTS
    """Names, without a port, that a request may be sent to; `*` is any. Keeps a page from reaching a gateway on
    loopback through a name of its own."""

    origins: tuple[str, ...] = ()
    """Pages that may use the gateway: scheme, host and port as a browser sends them."""

    audiences: tuple[str, ...] = (OWN_AUDIENCE,)
    """Audiences of tokens that are meant for the gateway."""

    own_audience_only: bool = False
    """Refuse tokens that are meant for the API server itself. A kubeconfig's static token is one of these."""

    head_bytes: int = 32 * 1024
    """One header at most: a token with many groups is longer than the 8 KiB that servers usually admit."""

    limits: LimitSettings = field(default_factory=LimitSettings)
    times: TimeSettings = field(default_factory=TimeSettings)

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ValueError(" ".join(faults))

    def _faults(self) -> Iterator[str]:
        for name in ("port", "metrics_port"):
            if not 0 <= getattr(self, name) <= 65_535:
                yield f"{name} must be from 0 to 65535."
        if self.tls is None and not self.plain_anywhere and not ipaddress.ip_address(self.address).is_loopback:
            yield "plain HTTP needs an address of loopback, or plain_anywhere."
        if not self.audiences:
            yield "audiences must not be empty."
        for group in (self.limits, self.times):
            for name in type(group).__slots__:
                value = getattr(group, name)
                if value <= (_NO_TIME if isinstance(value, timedelta) else 0):
                    yield f"{name} must be more than zero."
        if self.head_bytes < 1024:
            yield "head_bytes must be at least 1024."
        if self.limits.connections < self.limits.sockets:
            yield "connections must be at least sockets."

"""
What the client of the Sprites API may be told, with the reason of every default.

Time limits are whole limits: from the call to the last byte of the answer, waiting for a connection included. A slow
trickle of bytes does not extend them.
"""

import ipaddress
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from controller import __version__

DEFAULT_BASE_URL: Final = "https://api.sprites.dev"
"""Source: sprites-api.md 1 (2026-09)."""


def is_loopback(host: str) -> bool:
    """A host name means this machine: `localhost`, or an address of the loopback network."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def judge_base_url(url: str) -> str | None:
    """Say what is wrong with a base URL, or None: the token goes there, so it is never sent in the clear."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is no URL"
    if not url.startswith(("https://", "http://")):
        return "must begin with https://"
    if not parts.hostname:
        return "must name a host"
    if any(not 0 < len(label) <= 63 for label in parts.hostname.removesuffix(".").split(".")):
        return "must name a host whose labels have 1 to 63 characters"
    if port == 0:
        return "must not name port 0"
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return "must begin with https:// (http:// only to this machine), since it receives the token"
    if parts.username is not None or parts.password is not None:
        return "must not hold a user or password"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return "must not hold a query or fragment"
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "must be printable ASCII without white space"
    return None


@dataclass(frozen=True, slots=True)
class SpritesSettings:
    """
    Where the Sprites API is, and how long to wait for it. A trailing slash of the base URL is dropped.

    Raises:
        ValueError: A value breaks its rule; the text names every field, value and rule at fault.
    """

    base_url: str = DEFAULT_BASE_URL
    """Where the API is, without `/v1`. https, or http on this machine."""

    user_agent: str = f"agentterminal-operator/{__version__}"
    """Who we say we are, so that the platform can tell us from others."""

    trust_env: bool = False
    """Whether `HTTPS_PROXY`, `SSL_CERT_FILE` and the like apply. Off: no variable silently redirects the token."""

    connections: int = 32
    """Connections kept and opened at most: twice the 16 workers of the engine (design.md 8)."""

    keepalive: timedelta = timedelta(seconds=50)
    """
    How long an idle connection is kept: longer than the 30 s between two metadata reads, and less than the 60 s after
    which edges usually drop it. Assumed: a connection dropped earlier costs one failed read, which is repeated.
    """

    connect_limit: timedelta = timedelta(seconds=5)
    """For name, TCP and TLS. Whoever does not answer within it is unreachable, and nothing was sent."""

    read_limit: timedelta = timedelta(seconds=20)
    """
    For one page, one sprite, one session list. Source: sprites-api.md 8 (2026-09): a cold sprite wakes in 1-12 s, and a
    session list may wake it.
    """

    kill_limit: timedelta = timedelta(seconds=10)
    """For one kill attempt, headers and body together. Source: behaviours.md K12."""

    upgrade_limit: timedelta = timedelta(seconds=30)
    """For the answer to a WebSocket upgrade: the official SDKs' default, above the 12 s of a slow wake."""

    announce_limit: timedelta = timedelta(seconds=10)
    """For `session_info` after the upgrade. Source: sprites-api.md 3.6 (2026-09): what the official SDKs wait."""

    ping_every: timedelta = timedelta(seconds=15)
    """Between two pings of ours on a socket. Source: sprites-api.md 3.7 and 12 row 27 (2026-09)."""

    pong_limit: timedelta = timedelta(seconds=45)
    """For the answer to a ping; then the socket counts as dead. Source: sprites-api.md 3.7 (2026-09)."""

    def __post_init__(self) -> None:
        faults = [
            f"{field.name} {value} must be longer than 0"
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), timedelta) and value <= timedelta(0)
        ]
        if (fault := judge_base_url(self.base_url)) is not None:
            faults.append(f"base_url {self._shown_base_url()} {fault}")
        if self.connections < 1:
            faults.append(f"connections {self.connections} must be at least 1")
        if not self.user_agent or not self.user_agent.isascii() or not self.user_agent.isprintable():
            faults.append("user_agent must be printable ASCII and not empty")
        if self.pong_limit < self.ping_every:
            faults.append(f"pong_limit {self.pong_limit} must not be shorter than ping_every {self.ping_every}")
        if faults:
            raise ValueError("; ".join(faults))
        object.__setattr__(self, "base_url", self.base_url.rstrip("/"))

    def _shown_base_url(self) -> str:
        """Show the address without what may be a secret in it."""
        return repr(self.base_url.partition("?")[0].rpartition("@")[2])

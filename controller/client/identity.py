"""
As whom a person speaks to the gateway.

Problem: a kubeconfig proves who somebody is in ways of which the gateway takes two, tokens end while a terminal is
open, and a service account that nobody named would be somebody else. Promise: first a service account if, and only if,
the person named one; then the token of the kubeconfig or its exec plugin; then the client certificate, where the
gateway itself is spoken to by TLS; else a sentence with the three ways. A token stands in a header or a control frame,
never in an address, an argument or a text. Source: gateway.md 6.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from controller.client.endings import THREE_WAYS
from controller.clock import Clock
from controller.errors import AgentTerminalError
from controller.kube.credentials import ConnectionFacts, Credentials, Login, build_ssl_context

ACCOUNT_TOKEN_LIFE: Final = timedelta(hours=1)
"""As long as kubectl asks for by itself; asked for again shortly before its end."""

_RENEW_BEFORE: Final = timedelta(minutes=5)


class NobodySpeaks(AgentTerminalError):
    """There is nothing to prove to the gateway who speaks."""


@dataclass(frozen=True, slots=True, eq=False)
class Presented:
    """
    What one connection is opened with. Two are the same only if they are one.

    Args:
        token: For the `Authorization` header; None where the certificate speaks.
        tls: For an encrypted connection, the certificate in it where it speaks; None for a plain one.
    """

    token: str | None = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)


class TokenKube(Protocol):
    """The call that an account's token takes: `controller.kube.client.KubeClient`."""

    async def request_token(
        self, namespace: str, account: str, *, audiences: tuple[str, ...], lifetime: timedelta
    ) -> Mapping[str, Any]:
        """Ask for a token."""


class Identity(Protocol):
    """Who speaks, for as long as an attach lasts."""

    async def present(self, *, is_encrypted: bool) -> Presented:
        """
        Give what the next connection is opened with.

        Raises:
            NobodySpeaks: There is nothing that this gateway would take.
        """

    async def renew(self, refused: Presented) -> Presented | None:
        """Give something newer than what was refused or has expired; None where there is nothing newer."""


def read_authority(file: Path | None) -> bytes | None:
    """
    Read whom to trust for the gateway's certificate.

    Raises:
        NobodySpeaks: The file cannot be read.
    """
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise NobodySpeaks(f"The gateway's authority {file} cannot be read: {error.strerror}.") from None


def build_tls(authority: bytes | None, facts: ConnectionFacts | None) -> ssl.SSLContext:
    """
    Build what checks the gateway's certificate, and presents ours.

    Args:
        authority: Whom to trust; None is the system's list.
        facts: Whose client certificate to present; None for none.
    """
    ours = facts or ConnectionFacts(server="")
    # Of the login only the certificate goes along: whom it trusts for the API server says nothing about the gateway.
    context = build_ssl_context(
        replace(ours, server="https://gateway", ca_data=authority, insecure=False, scheme=None, token=None)
    )
    assert context is not None
    return context


class KubeconfigIdentity:
    """
    The person of the kubeconfig.

    Args:
        credentials: Their login.
        authority: Whom to trust for the gateway's certificate.
    """

    def __init__(self, credentials: Credentials, authority: bytes | None) -> None:
        self._credentials = credentials
        self._authority = authority
        self._login: Login | None = None

    async def present(self, *, is_encrypted: bool) -> Presented:
        """Give the token, else the certificate."""
        self._login = await self._credentials.current()
        facts = self._login.facts
        if facts.scheme == "Bearer" and facts.token is not None:
            return Presented(facts.token, build_tls(self._authority, None) if is_encrypted else None)
        if facts.certificate_data is not None and is_encrypted:
            return Presented(None, build_tls(self._authority, facts))
        raise NobodySpeaks(THREE_WAYS)

    async def renew(self, refused: Presented) -> Presented | None:
        """Read the kubeconfig again, which runs its exec plugin; only a token can be renewed."""
        if self._login is None or refused.token is None:
            return None
        current = self._credentials.facts.token
        newer = await self._credentials.renew(self._login) if current == refused.token else await self._current()
        if newer is None or newer.facts.token is None or newer.facts.token == refused.token:
            return None
        self._login = newer
        return Presented(newer.facts.token, refused.tls)

    async def _current(self) -> Login:
        return await self._credentials.current()


class AccountIdentity:
    """
    A service account that the person named and may ask for a token.

    Args:
        kube: Logged in as the person.
        account: `NAMESPACE/NAME`.
        audiences: For whom the token is meant: the gateway, so that it is worth nothing elsewhere.
        authority: Whom to trust for the gateway's certificate.
        clock: For the token's end.
    """

    def __init__(
        self, kube: TokenKube, account: str, audiences: tuple[str, ...], authority: bytes | None, clock: Clock
    ) -> None:
        self._kube = kube
        self._namespace, _, self._name = account.partition("/")
        self._audiences = audiences
        self._authority = authority
        self._clock = clock
        self._token: str | None = None
        self._due: datetime | None = None

    async def present(self, *, is_encrypted: bool) -> Presented:
        """Give its token, a new one where the last nears its end."""
        if self._token is None or self._due is None or self._clock.now() >= self._due:
            await self._ask()
        return Presented(self._token, build_tls(self._authority, None) if is_encrypted else None)

    async def renew(self, refused: Presented) -> Presented | None:
        """Ask for another."""
        if self._token is None or self._token == refused.token:
            await self._ask()
        return Presented(self._token, refused.tls)

    async def _ask(self) -> None:
        status = await self._kube.request_token(
            self._namespace, self._name, audiences=self._audiences, lifetime=ACCOUNT_TOKEN_LIFE
        )
        self._token = str(status["token"])
        self._due = self._clock.now() + ACCOUNT_TOKEN_LIFE - _RENEW_BEFORE
        expires = status.get("expirationTimestamp")
        if isinstance(expires, str):
            self._due = min(self._due, datetime.fromisoformat(expires) - _RENEW_BEFORE)

"""
Who somebody is and what they may: asked of the API server, remembered for seconds.

Problem: without a memory every frame of a reconnect storm becomes two calls to the API server, and with a long one a
withdrawn right stays open. Promise: a yes and a no are each believed for ten seconds, a failure never; so many reviews
are in flight and no more; what is remembered is keyed by a hash that is worth nothing outside of this process, and no
token is kept. Source: gateway.md 6; TokenReview and SubjectAccessReview of kube-apiserver (read 2026-11).
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, Protocol, TypeVar

import orjson

from controller.api import names
from controller.clock import Clock
from controller.gateway.access import BearerToken, Person
from controller.gateway.settings import LimitSettings
from controller.gateway.wishes import Right, Target
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import Unauthorized

T = TypeVar("T")


class ReviewingKube(Protocol):
    """The calls that are made: `controller.kube.client.KubeClient`. They raise `KubeError`."""

    async def review_token(self, token: str, *, audiences: Sequence[str] = ()) -> Mapping[str, Any]:
        """Ask whose token this is."""

    async def review_access(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask whether a user may."""


@dataclass(frozen=True, slots=True)
class Known:
    """A token of somebody. `expires` is None where the token does not say."""

    person: Person
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A token that the API server does not take, or not for us."""


Verdict = Known | Unknown


class Memory(Generic[T]):
    """
    Verdicts of the last seconds, bounded in time and number.

    Args:
        kept: How long a verdict is believed.
        entries: How many are kept; the oldest goes first.
        clock: For the age.
    """

    def __init__(self, kept: timedelta, entries: int, clock: Clock) -> None:
        self._kept = kept
        self._entries = entries
        self._clock = clock
        self._verdicts: OrderedDict[Hashable, tuple[timedelta, T]] = OrderedDict()

    def recall(self, key: Hashable) -> tuple[T] | None:
        """Give a verdict that is young enough, in a tuple of its own, since a verdict may be False."""
        found = self._verdicts.get(key)
        if found is None or self._clock.monotonic() - found[0] >= self._kept:
            return None
        return (found[1],)

    def keep(self, key: Hashable, verdict: T) -> None:
        """Remember a verdict as of now."""
        self._verdicts.pop(key, None)
        self._verdicts[key] = (self._clock.monotonic(), verdict)
        while len(self._verdicts) > self._entries:
            self._verdicts.popitem(last=False)


class Reviews:
    """
    The API server's verdicts.

    Args:
        kube: Where they are asked for.
        audiences: For whom a token may be meant besides the API server.
        own_audience_only: Tokens for the API server itself are refused.
        kept: How long a verdict is believed.
        limits: How many reviews at once, how many verdicts.
        clock: For the age of verdicts.
    """

    def __init__(
        self,
        kube: ReviewingKube,
        *,
        audiences: Sequence[str],
        own_audience_only: bool,
        kept: timedelta,
        limits: LimitSettings,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._audiences = tuple(audiences)
        self._own_audience_only = own_audience_only
        self._turns = asyncio.Semaphore(limits.reviews)
        self._tokens: Memory[Verdict] = Memory(kept, limits.cached_verdicts, clock)
        self._rights: Memory[bool] = Memory(kept, limits.cached_verdicts, clock)
        self._salt: Final = secrets.token_bytes(32)

    async def identify(self, token: BearerToken) -> Verdict:
        """
        Ask whose token this is.

        Raises:
            KubeError: Nobody knows; it is not remembered.
        """
        key = hashlib.blake2b(token.text.encode(), key=self._salt, digest_size=32).digest()
        return await self._ask(self._tokens, key, lambda: self._review_token(token))

    async def is_allowed(self, person: Person, target: Target, right: Right) -> bool:
        """
        Ask whether somebody has a right on the named object, whether or not there is one of that name.

        Raises:
            KubeError: Nobody knows; it is not remembered.
        """
        return await self._ask(
            self._rights, (person, target, right), lambda: self._review_access(person, target, right)
        )

    async def _ask(self, memory: Memory[T], key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        known = memory.recall(key)
        if known is None:
            async with self._turns:
                known = memory.recall(key)  # who asked the same before us may have the answer by now
                if known is None:
                    try:
                        verdict = await ask()
                    except CredentialsUnusable:
                        raise Unauthorized("The gateway's own credentials cannot be used.") from None
                    memory.keep(key, verdict)
                    return verdict
        return known[0]

    async def _review_token(self, token: BearerToken) -> Verdict:
        """
        Ask for our audiences, then for the API server's own.

        The API server's audience is known to itself only, so it is asked for by naming none. An answer that names no
        audience comes from an authenticator that knows of none: it speaks for the API server alone.
        """
        status = await self._kube.review_token(token.text, audiences=self._audiences)
        if status.get("authenticated") is True:
            meant_for_us = set(self._audiences) & set(status.get("audiences") or ())
            if meant_for_us or not (self._own_audience_only or status.get("audiences")):
                return _read_known(status, token)
        if self._own_audience_only:
            return Unknown()
        status = await self._kube.review_token(token.text)
        return _read_known(status, token) if status.get("authenticated") is True else Unknown()

    async def _review_access(self, person: Person, target: Target, right: Right) -> bool:
        spec: dict[str, Any] = {
            "user": person.name,
            "groups": list(person.groups),
            "extra": {key: list(values) for key, values in person.extra},
            "resourceAttributes": {
                "verb": "create",
                "group": names.GROUP,
                "version": names.VERSION,
                "resource": names.PLURAL,
                "subresource": right.value,
                "namespace": target.namespace,
                "name": target.name,
            },
        }
        if person.uid:
            spec["uid"] = person.uid
        status = await self._kube.review_access(spec)
        return status.get("allowed") is True and status.get("denied") is not True


def _read_known(status: Mapping[str, Any], token: BearerToken) -> Verdict:
    user = status.get("user")
    name = user.get("username") if isinstance(user, Mapping) else None
    if not isinstance(user, Mapping) or not isinstance(name, str) or not name:
        return Unknown()
    extra = user.get("extra") or {}
    person = Person(
        name,
        str(user.get("uid") or ""),
        tuple(str(group) for group in user.get("groups") or ()),
        tuple(sorted((str(key), tuple(map(str, values))) for key, values in extra.items())),
    )
    return Known(person, read_expiry(token))


def read_expiry(token: BearerToken) -> datetime | None:
    """
    Read when a token ends, where it is a JWT that says so.

    Only of a token that was accepted: nothing here is verified.
    """
    parts = token.text.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        end = claims["exp"]
        return datetime.fromtimestamp(end, UTC) if isinstance(end, int | float) and not isinstance(end, bool) else None
    except (binascii.Error, ValueError, TypeError, KeyError, OverflowError, OSError):
        return None

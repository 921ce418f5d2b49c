"""
One open socket's leave to go on: reviewed again and again, until it is withdrawn, runs out, or the gateway ends.

Problem: a right that was checked at the door and never again outlives its withdrawal by days, and a token that ends
after ten minutes would end a terminal that somebody types in. Promise: token and right are reviewed every 30 s; a right
withdrawn ends the socket; a token expired is asked for, and only after 60 s without a fresh one of the same user ends
it; what the API server does not say changes nothing. Source: gateway.md 6.
"""

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, assert_never

from controller.clock import Clock
from controller.gateway.access import BearerToken, Person, read_token
from controller.gateway.refusals import Refused
from controller.gateway.reviews import Known, Reviews, Unknown
from controller.gateway.settings import TimeSettings
from controller.gateway.terminals import EndCause, Ending, Notice, Renewal, TokenWanted
from controller.gateway.wishes import Door, Right, Target
from controller.kube.errors import KubeError

_NO_TIME: Final = timedelta(0)

TRIES: Final = 5
"""Tokens in a row that are not taken before no other is asked about: each costs reviews."""


class Guard:
    """
    Watch one socket's leave. `run` does the watching; whoever carries the socket waits for notices.

    Args:
        reviews: Who is asked.
        token: The token it was opened with; None where it was a client certificate, which is never reviewed.
        person: Who opened it.
        expires: When token or certificate end; None where they do not say.
        target: To what.
        rights: Every right the socket needs.
        door: The vendor's protocol has no word for a fresh token: there an expiry ends the socket.
        times: How often, and how long.
        clock: For both.
    """

    def __init__(
        self,
        reviews: Reviews,
        *,
        token: BearerToken | None,
        person: Person,
        expires: datetime | None,
        target: Target,
        rights: tuple[Right, ...],
        door: Door,
        times: TimeSettings,
        clock: Clock,
    ) -> None:
        self._reviews = reviews
        self._token = token
        self._person = person
        self._expires = expires
        self._target = target
        self._rights = rights
        self._door = door
        self._times = times
        self._clock = clock
        self._deadline: timedelta | None = None
        self._tries = 0
        self._notices: asyncio.Queue[Notice] = asyncio.Queue()
        self._stirred = asyncio.Event()
        self._renewing = asyncio.Lock()
        self._ending: Ending | None = None

    async def run(self) -> Ending:
        """Watch until the socket has to end, and say why."""
        while self._ending is None:
            self._stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._find_pause().total_seconds()):
                    await self._stirred.wait()
            if self._ending is None:
                await self._review()
        return self._ending

    def end(self, cause: EndCause) -> None:
        """Let the socket end; the first cause stands."""
        if self._ending is None:
            self._ending = Ending(cause)
            self._notices.put_nowait(self._ending)
            self._stirred.set()

    async def next_notice(self) -> Notice:
        """Wait for the next thing to tell the client; after an `Ending` there is only that."""
        if self._ending is not None and self._notices.empty():
            return self._ending
        return await self._notices.get()

    async def renew(self, text: str) -> Renewal:
        """Take a fresh token of the same user, whether it was asked for or not."""
        try:
            token = read_token(text)
        except Refused:
            return Renewal.BAD_TOKEN
        async with self._renewing:
            if self._tries >= TRIES:
                return Renewal.BAD_TOKEN
            try:
                verdict = await self._reviews.identify(token)
            except KubeError:
                return Renewal.UNDECIDED
            match verdict:
                case Unknown():
                    self._tries += 1
                    return Renewal.BAD_TOKEN
                case Known(person=person) if not person.is_same(self._person):
                    self._tries += 1
                    return Renewal.OTHER_PERSON
                case Known(person=person, expires=expires):
                    self._token, self._person, self._expires = token, person, expires
                    self._deadline, self._tries = None, 0
                    self._stirred.set()  # what the person may is reviewed at once: the groups may be others
                    return Renewal.RENEWED
                case _:
                    assert_never(verdict)

    def _find_pause(self) -> timedelta:
        pause = self._times.review_again
        if self._deadline is not None:
            pause = min(pause, self._deadline - self._clock.monotonic())
        elif self._expires is not None:
            pause = min(pause, self._expires - self._clock.now())
        return max(pause, _NO_TIME)

    async def _review(self) -> None:
        if await self._is_withdrawn():
            self.end(EndCause.WITHDRAWN)
        elif self._deadline is not None:
            if self._clock.monotonic() >= self._deadline:
                self.end(EndCause.EXPIRED)
        elif await self._has_expired():
            if self._door is Door.SDK:
                self.end(EndCause.EXPIRED)
                return
            self._deadline = self._clock.monotonic() + self._times.fresh_token
            self._notices.put_nowait(TokenWanted(self._times.fresh_token))

    async def _is_withdrawn(self) -> bool:
        try:
            return not all(
                [await self._reviews.is_allowed(self._person, self._target, right) for right in self._rights]
            )
        except KubeError:
            return False

    async def _has_expired(self) -> bool:
        """A token that the API server takes no more counts as expired: it cannot tell the two apart."""
        if self._expires is not None and self._clock.now() >= self._expires:
            return True
        if self._token is None:
            return False
        asked = self._token
        try:
            verdict = await self._reviews.identify(asked)
        except KubeError:
            return False
        if asked is not self._token:  # a fresh one came meanwhile
            return False
        match verdict:
            case Unknown():
                return True
            case Known(person=person):
                if not person.is_same(self._person):
                    return True
                self._person = person  # its groups may be others
                return False
            case _:
                assert_never(verdict)

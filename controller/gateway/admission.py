"""
Whether somebody is let in: everything that is asked of others, in one order.

Problem: whoever may not know of an object must not learn whether it exists, and whoever is known must not wait for ever
for an API server that hangs. Promise: token, right, look-up, the object's standing, the person's places, and whether
this replica can serve, in this order; all of it within a bound; what nobody decides is told as such and refuses nobody
for good. Source: gateway.md 6; behaviour cases F21 and F22.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from controller.api.session import SpriteState
from controller.api.terminal import ObjectUnreadable, read_spec, read_status
from controller.clock import Clock
from controller.gateway.access import (
    BearerToken,
    Certificate,
    Headers,
    Presented,
    choose_presented,
    is_from_browser,
    read_bearer,
    read_certificate,
)
from controller.gateway.limits import Places
from controller.gateway.refusals import RefusalCause, Refused, refuse
from controller.gateway.reviews import Known, Reviews
from controller.gateway.standing import Presence, Terminal, judge_pause, judge_standing, must_run
from controller.gateway.wishes import AttachWish, Target, Wish, list_rights
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import KubeError, NotFound

log = logging.getLogger(__name__)

_SOON: Final = timedelta(seconds=5)


class LookingKube(Protocol):
    """The look-up: `controller.kube.client.KubeClient`. It raises `KubeError`."""

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Read one AgentTerminal, consistently."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in, as whom, and to what."""

    known: Known
    presented: Presented
    terminal: Terminal


class Admission:
    """
    The judge at the doors.

    Args:
        kube: Where objects are looked up.
        reviews: Where identity and rights are asked for.
        places: How many sockets a person has.
        look: Tells at once what is known of an object.
        find_state: Asks the platform how an object's sprite is; None where it does not say, in time.
        find_unready: Says in a sentence why this replica cannot serve now; None when it can.
        within: How long reviews and look-up may take together.
        clock: For expiries.
    """

    def __init__(
        self,
        kube: LookingKube,
        reviews: Reviews,
        places: Places,
        *,
        look: Callable[[Terminal], Presence],
        find_state: Callable[[Terminal], Awaitable[SpriteState | None]],
        find_unready: Callable[[], str | None],
        within: timedelta,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._reviews = reviews
        self._places = places
        self._look = look
        self._find_state = find_state
        self._find_unready = find_unready
        self._within = within
        self._clock = clock

    async def admit(self, headers: Headers, verified: Any, wish: Wish) -> Admitted:
        """
        Ask everything that has to be asked before somebody is let in, in the one order.

        Args:
            headers: Of the request.
            verified: The client certificate, as `ssl.SSLSocket.getpeercert` gives it.
            wish: What is asked for.

        Raises:
            Refused: With the first reason.
        """
        presented = choose_presented(
            read_bearer(headers),
            read_certificate(verified, self._clock.now()),
            is_from_page=is_from_browser(headers),
        )
        if presented is None:
            raise refuse(
                RefusalCause.NO_TOKEN,
                "Say who you are: a bearer token in the Authorization header, or a client certificate of the cluster.",
            )
        try:
            async with asyncio.timeout(self._within.total_seconds()):
                known = await self._identify(presented)
                await self._demand_rights(known, wish)
                terminal = await self._look_up(wish.target)
        except (KubeError, CredentialsUnusable, TimeoutError) as error:
            failure = error.failure if isinstance(error, KubeError) else type(error).__name__
            log.warning("The API server did not say who may.", extra={"failure": failure})
            raise refuse(
                RefusalCause.UNDECIDED,
                "The API server did not say who you are and what you may, in time; try again.",
                retry_after=_SOON,
            ) from None
        presence = self._look(terminal)
        refusal = judge_standing(terminal, wish, presence)
        if refusal is None and must_run(wish, presence):
            refusal = judge_pause(terminal, await self._find_state(terminal))
        if refusal is not None:
            raise Refused(refusal)
        if isinstance(wish, AttachWish):
            self._places.demand_person(known.person.name)
        unready = self._find_unready()
        if unready is not None:
            raise refuse(RefusalCause.NOT_READY, unready, retry_after=_SOON)
        return Admitted(known, presented, terminal)

    async def _identify(self, presented: Presented) -> Known:
        match presented:
            case Certificate(person=person, expires=expires):
                return Known(person, expires)
            case BearerToken():
                verdict = await self._reviews.identify(presented)
                if isinstance(verdict, Known) and (verdict.expires is None or verdict.expires > self._clock.now()):
                    return verdict  # one that ended since it was last reviewed is none
                raise refuse(
                    RefusalCause.BAD_TOKEN,
                    "The API server does not take this token: it is wrong, has expired, or is meant for somebody else.",
                )

    async def _demand_rights(self, known: Known, wish: Wish) -> None:
        target = wish.target
        for right in list_rights(wish):
            if not await self._reviews.is_allowed(known.person, target, right):
                raise refuse(
                    RefusalCause.NO_RIGHT,
                    f'User "{known.person.name}" cannot create resource "agentterminals/{right}" in API group '
                    f'"agentterminal.dev" in the namespace "{target.namespace}", or not with this name.',
                    name=target.name,
                )

    async def _look_up(self, target: Target) -> Terminal:
        try:
            raw = await self._kube.get(target.namespace, target.name)
        except NotFound:
            raise refuse(RefusalCause.NOT_FOUND, "There is no AgentTerminal of this name.", name=target.name) from None
        try:
            return Terminal(
                name=target.name,
                uid=raw["metadata"]["uid"],
                deleting=raw["metadata"].get("deletionTimestamp") is not None,
                spec=read_spec(raw.get("spec")),
                status=read_status(raw.get("status")),
                raw=raw,
            )
        except ObjectUnreadable as error:
            log.warning("An object cannot be read.", extra={"path": error.path})
            raise refuse(
                RefusalCause.UNDECIDED,
                "This gateway cannot read the object: its CRD is of another version.",
                name=target.name,
            ) from None

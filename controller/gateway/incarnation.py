"""
The life of this process as a gateway: one Lease after the other, each with its tenures.

Problem: whoever may speak must know it at every frame, although renewals are late, are lost, or land after they were
given up. Promise: `plan.fence_tenure` decides, and here is only done: a list of what we hold goes before each renewal,
on connections of our own, so that no other call delays it; a tenure that ends ends by the clock, whoever is late; a
Lease that is lost begins a new incarnation; and it is deleted last of all, once nothing of ours is left.

Source: gateway.md 3, rules 4 and 5.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from controller.clock import ElapsedClock
from controller.gateway.fence_calls import LEASE_TIMEOUT, FenceKube, render_lease
from controller.gateway.wishes import Target
from controller.kube.client import Page
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import Conflict, Forbidden, KubeError, NotFound
from controller.plan.fence_objects import LeaseLook, LeaseView, NoLease, ObjectView, view_lease
from controller.plan.fence_patches import name_lease
from controller.plan.fence_tenure import (
    RULES,
    IncarnationOver,
    Listed,
    ReadOwnLease,
    RenewalAnswer,
    RenewalConflict,
    RenewalUnanswered,
    Renewed,
    TenureBegins,
    TenureGoesOn,
    TenureStep,
    Term,
    begin_term,
    find_next_renewal,
    find_unknown,
    is_in_tenure,
    judge_list,
    judge_own_lease,
    judge_renewal,
    may_renew,
)
from controller.tenure import LeasedTenure, Tenure

log: Final = logging.getLogger(__name__)

RETRY_WAIT: Final = timedelta(milliseconds=250)
"""After a round that failed the next one comes soon: a tenure has room for two."""

JsonObject = dict[str, Any]


class LeaseKube(FenceKube, Protocol):
    """The calls of an incarnation, on connections of its own: `controller.kube.client.KubeClient`."""

    def list_pages(
        self, *, metadata_only: bool, namespaces: Sequence[str] | None = None, field_selector: str | None = None
    ) -> AsyncIterator[Page]:
        """List AgentTerminals page by page."""

    async def create_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> JsonObject:
        """Create a Lease."""

    async def delete_lease(
        self, namespace: str, name: str, *, uid: str, resource_version: str, timeout: timedelta
    ) -> None:
        """Delete exactly the Lease that was read."""


@dataclass(frozen=True, slots=True)
class Holding:
    """An object for which a socket of ours speaks, as it is known."""

    target: Target
    view: ObjectView


class Household(Protocol):
    """Whoever has the seats: told of every change of the right to speak, at once."""

    def find_held(self) -> Mapping[str, Holding]:
        """Give the objects for which a socket of ours speaks, by uid."""

    def doubt(self, uid: str) -> None:
        """More may be known of an object than we know: its input stops until it was read."""

    def tell(self, raw: Mapping[str, Any]) -> None:
        """Take in an object that was read."""

    def sweep(self, target: Target, uid: str) -> None:
        """An object bears a lock of ours for which nobody speaks here: read it, and clear what is left over."""

    def begin_tenure(self) -> None:
        """A tenure began."""

    def end_tenure(self) -> None:
        """The tenure has ended."""

    def end_incarnation(self) -> None:
        """This incarnation is out for good."""


class Life:
    """
    One incarnation, as far as it has come.

    Args:
        term: What it knows of its right.
        clock: That of the tenures.
    """

    def __init__(self, term: Term, clock: ElapsedClock) -> None:
        self.term = term
        self.writes = Tenure(0)
        """Permits its writes; ends with the incarnation."""
        self._has_ended = False
        self._clock = clock
        self.typing = self._open()
        """Permits sockets that can type; a new one with each tenure."""

    @property
    def incarnation(self) -> str:
        """Its name."""
        return self.term.incarnation

    @property
    def is_in_tenure(self) -> bool:
        """Whether locks may be used now, by the clock."""
        return not self._has_ended and is_in_tenure(self.term, now=self._clock.elapsed())

    def has_ended(self) -> bool:
        """Tell whether it is out for good."""
        return self._has_ended

    def renew(self, term: Term) -> None:
        """Take over a term of this incarnation."""
        is_new = term.number != self.term.number
        self.term = term
        if is_new:
            self.typing.end()
            self.typing = self._open()
        else:
            self.typing.extend(until=term.ends)

    def end(self) -> None:
        """It is out for good."""
        self._has_ended = True
        self.typing.end()
        self.writes.end()

    def _open(self) -> LeasedTenure:
        tenure = LeasedTenure(self._clock.elapsed)
        tenure.begin(self.term.number, until=self.term.ends)
        return tenure


class Incarnations:
    """
    One incarnation after the other, for as long as the process lives.

    Args:
        kube: The API server, by connections of its own.
        namespace: Where the Leases of gateways lie.
        namespaces: Whose objects are served; None is all.
        house: Whoever has the seats.
        draw: Draws the name of an incarnation.
        clock: One that runs on in suspend.
    """

    def __init__(
        self,
        kube: LeaseKube,
        namespace: str,
        *,
        namespaces: Sequence[str] | None,
        house: Household,
        draw: "DrawName",
        clock: ElapsedClock,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._namespaces = namespaces
        self._house = house
        self._draw = draw
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._is_running_out = False
        self.life: Life | None = None
        """The one that runs; None before the first Lease and between two."""

    async def run(self) -> None:
        """Keep a Lease, until cancelled."""
        try:
            while True:
                life = await self._begin()
                self.life = life
                log.info("An incarnation begins.", extra={"incarnation": life.incarnation})
                self._house.begin_tenure()
                self._arm(life)
                await self._keep(life)
                log.error("The Lease is lost: this incarnation is over.", extra={"incarnation": life.incarnation})
        finally:
            if self._alarm is not None:
                self._alarm.cancel()

    def end(self) -> None:
        """End the incarnation that runs, for good: nothing of it speaks or writes any more."""
        life, self.life = self.life, None
        if life is not None and not life.has_ended():
            life.end()
            self._house.end_incarnation()

    async def release(self) -> None:
        """Delete the Lease: nothing of this incarnation is left. `run` has to be over."""
        life = self.life
        self.end()
        if life is None:
            return
        lease: LeaseLook | None = life.term.lease
        for _ in range(2):
            if not isinstance(lease, LeaseView) or lease.holder != life.incarnation:
                return
            try:
                await self._kube.delete_lease(
                    self._namespace,
                    name_lease(life.incarnation),
                    uid=lease.uid,
                    resource_version=lease.version,
                    timeout=LEASE_TIMEOUT,
                )
            except Conflict:
                # A renewal whose answer was not waited for has landed.
                lease = await self._read_own(life)
            except (KubeError, CredentialsUnusable) as error:
                log.warning("The Lease could not be deleted; it runs out.", extra={"error": type(error).__name__})
                return
            else:
                return

    async def count_locks(self) -> int | None:
        """Count the objects whose lock is ours, as a list made now shows; None where nobody knows."""
        life = self.life
        if life is None:
            return None
        try:
            return len(await self._list(life))
        except (KubeError, CredentialsUnusable):
            return None

    # --- The Lease ----------------------------------------------------------------------------------------------------

    async def _begin(self) -> Life:
        """Create a Lease. One whose creation was lost is found by its name, and renewed."""
        incarnation = self._draw()
        lease: LeaseView | None = None
        while True:
            sent = self._clock.elapsed()
            body = render_lease(
                self._namespace, incarnation, lease, holder=incarnation, renewed=self._clock.now().isoformat()
            )
            try:
                if lease is None:
                    made = view_lease(await self._kube.create_lease(body, timeout=LEASE_TIMEOUT))
                else:
                    made = view_lease(await self._kube.put_lease(body, timeout=LEASE_TIMEOUT))
            except (Conflict, NotFound):
                lease = await self._read(incarnation)
                continue
            except (KubeError, CredentialsUnusable) as error:
                log.warning("The Lease cannot be created; trying again.", extra={"error": type(error).__name__})
                await self._clock.sleep(RETRY_WAIT)
                continue
            return Life(begin_term(incarnation, made, sent=sent), self._clock)

    async def _read(self, incarnation: str) -> LeaseView | None:
        try:
            return view_lease(
                await self._kube.get_lease(self._namespace, name_lease(incarnation), timeout=LEASE_TIMEOUT)
            )
        except (KubeError, CredentialsUnusable):
            await self._clock.sleep(RETRY_WAIT)
            return None

    async def _keep(self, life: Life) -> None:
        """Renew, until the incarnation is over."""
        due = find_next_renewal(self._clock.elapsed())
        while not life.has_ended():
            await self._clock.sleep(due - self._clock.elapsed())
            if life.has_ended():
                return
            started = self._clock.elapsed()
            is_renewed = await self._renew(life)
            due = find_next_renewal(started) if is_renewed else self._clock.elapsed() + RETRY_WAIT

    async def _renew(self, life: Life) -> bool:
        """One round: what is held is looked at, then the Lease is renewed. Tells whether it was."""
        listed = await self._look(life)
        sent = self._clock.elapsed()
        if life.has_ended() or not may_renew(list_started=listed, now=sent):
            return False
        answer = await self._put(life)
        if life.has_ended():
            return False
        step = judge_renewal(life.term, answer, sent=sent, now=self._clock.elapsed())
        if isinstance(step, ReadOwnLease):
            found = await self._read_own(life)
            if found is None or life.has_ended():
                return False
            self._follow(life, judge_own_lease(life.term, found))
            return False
        self._follow(life, step)
        return isinstance(answer, Renewed)

    def _follow(self, life: Life, step: TenureStep) -> None:
        match step:
            case TenureGoesOn(term=term):
                life.renew(term)
                if life.is_in_tenure:
                    self._arm(life)
            case TenureBegins(term=term):
                self._run_out(life)
                life.renew(term)
                log.warning("A new tenure begins.", extra={"incarnation": life.incarnation})
                self._house.begin_tenure()
                self._arm(life)
            case IncarnationOver():
                self.end()
            case ReadOwnLease():
                pass

    async def _put(self, life: Life) -> RenewalAnswer:
        body = render_lease(
            self._namespace,
            life.incarnation,
            life.term.lease,
            holder=life.incarnation,
            renewed=self._clock.now().isoformat(),
        )
        try:
            raw = await self._kube.put_lease(body, timeout=LEASE_TIMEOUT)
        except (Conflict, NotFound):
            return RenewalConflict()
        except (KubeError, CredentialsUnusable) as error:
            log.warning("The Lease was not renewed.", extra={"error": type(error).__name__})
            return RenewalUnanswered()
        return Renewed(view_lease(raw).version)

    async def _read_own(self, life: Life) -> LeaseLook | None:
        try:
            raw = await self._kube.get_lease(self._namespace, name_lease(life.incarnation), timeout=LEASE_TIMEOUT)
        except NotFound:
            return NoLease()
        except (KubeError, CredentialsUnusable):
            return None
        return view_lease(raw)

    # --- The list -----------------------------------------------------------------------------------------------------

    async def _look(self, life: Life) -> timedelta | None:
        """Look at what we hold: by one list, or by one read of each. Gives when it began; None where it failed."""
        started = self._clock.elapsed()
        before = self._house.find_held()
        try:
            listed = await self._list(life)
        except TimeoutError:
            return None
        except (KubeError, CredentialsUnusable) as error:
            if (
                isinstance(error, KubeError)
                and error.status is not None
                and (error.status == 429 or error.status >= 500)
            ):
                # Every change of the CRD makes lists fail so for some seconds.
                again = self._clock.elapsed()
                return again if await self._read_each(before) else None
            log.warning("What is held could not be listed.", extra={"error": type(error).__name__})
            return None
        # Whoever came to speak while the list was made is not asked about; whoever left meanwhile is nobody's matter.
        held = self._house.find_held()
        known = {uid: holding.view for uid, holding in held.items() if uid in before}
        for uid in judge_list(known, listed.keys()):
            self._house.doubt(uid)
        unknown = find_unknown(held, listed.keys())
        for entry, target in listed.items():
            if entry.uid in unknown:
                self._house.sweep(target, entry.uid)
        return started

    async def _list(self, life: Life) -> Mapping[Listed, Target]:
        listed: dict[Listed, Target] = {}
        async with asyncio.timeout(RULES.timeout.total_seconds()):
            if self._namespaces is None:
                await self._list_part(life, None, listed)
                return listed
            refusals: list[Forbidden] = []
            for namespace in self._namespaces:
                try:
                    await self._list_part(life, namespace, listed)
                except Forbidden as refusal:
                    # A right that is given in a namespace goes with it. What we hold there is missing from the list, so
                    # that its input stops, as it would if the list had said so; whoever speaks elsewhere goes on.
                    refusals.append(refusal)
            if len(refusals) == len(self._namespaces):
                raise refusals[0]
        return listed

    async def _list_part(self, life: Life, namespace: str | None, listed: dict[Listed, Target]) -> None:
        """List what bears our name in one namespace, or in all."""
        part: dict[Listed, Target] = {}
        async for page in self._kube.list_pages(
            metadata_only=True,
            namespaces=None if namespace is None else (namespace,),
            field_selector=f"status.socket.incarnation={life.incarnation}",
        ):
            if page.begins:
                part.clear()
            for raw in page.items:
                metadata = raw["metadata"]
                entry = Listed(
                    metadata["uid"], int(metadata["generation"]), metadata.get("deletionTimestamp") is not None
                )
                part[entry] = Target(metadata["namespace"], metadata["name"])
        listed.update(part)

    async def _read_each(self, held: Mapping[str, Holding]) -> bool:
        """Read each held object instead; all of them, or it does not count."""

        async def read(uid: str, target: Target) -> bool:
            try:
                raw = await self._kube.get(target.namespace, target.name)
            except NotFound:
                self._house.doubt(uid)
            except (KubeError, CredentialsUnusable):
                return False
            else:
                self._house.tell(raw)
                if raw["metadata"]["uid"] != uid:
                    self._house.doubt(uid)
            return True

        try:
            async with asyncio.timeout(RULES.timeout.total_seconds()):
                return all(await asyncio.gather(*(read(uid, holding.target) for uid, holding in held.items())))
        except TimeoutError:
            return False

    # --- The clock ----------------------------------------------------------------------------------------------------

    def _arm(self, life: Life) -> None:
        """Set the alarm for the end of the tenure. It may be late; each frame looks at the clock by itself."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._is_running_out = False
        left = (life.term.ends - self._clock.elapsed()).total_seconds()
        self._alarm = self._loop.call_later(max(0.0, left), self._ring, life)

    def _ring(self, life: Life) -> None:
        if life is not self.life:
            return
        if life.is_in_tenure:
            self._arm(life)
        else:
            self._run_out(life)

    def _run_out(self, life: Life) -> None:
        """The tenure has ended: told once."""
        if self._is_running_out or life.has_ended():
            return
        self._is_running_out = True
        life.typing.end()
        log.warning(
            "The tenure has ended: nothing speaks until the Lease is renewed.", extra={"tenure": life.term.number}
        )
        self._house.end_tenure()


class DrawName(Protocol):
    """Draws a name that nobody else has: lower-case letters and digits."""

    def __call__(self) -> str:
        """Draw one."""

"""
What is left over in objects: found by what they say, cleared with proof where it is not ours.

Problem: a lock whose write was believed lost lands after its socket went, a process that died leaves its locks, its
names and its Lease, and nobody remembers either. Promise: whatever bears our own name without an open socket is read
and cleared at once; what bears another's is cleared every minute, once that one is proven out; a Lease that was broken
is removed after ten minutes, and no other.

Source: gateway.md 1 (incarnation) and 4, "what to clear". `plan.fence_sweep` and `plan.fence_tenure` decide.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final, Protocol, assert_never

from controller.clock import ElapsedClock
from controller.gateway.fence_calls import LEASE_TIMEOUT, CallFailed, FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.wishes import Target
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import KubeError
from controller.plan.fence import Accepted
from controller.plan.fence_ids import find_incarnation
from controller.plan.fence_objects import LeaseLook, ObjectView, view_lease, view_object
from controller.plan.fence_patches import LEASE_PREFIX
from controller.plan.fence_sweep import ClearLock, Withdraw, plan_sweep
from controller.plan.fence_tenure import (
    LEASE_KEPT,
    RULES,
    BreakNow,
    Proof,
    ProvenOut,
    ReadLeaseAgain,
    judge_break,
    judge_lease,
)

log: Final = logging.getLogger(__name__)

EVERY: Final = timedelta(minutes=1)
"""Between two looks at what bears another's name; a quarter more or less, so that replicas do not look together."""

FIRST_WITHIN: Final = timedelta(seconds=2)
"""The first look comes soon: who starts may be the successor of somebody who died."""

STEPS: Final = 4
"""In one sweep of an object: its lock and its name, and once more where something came in between."""


class LeasesKube(Protocol):
    """The calls about Leases: `controller.kube.client.KubeClient`. They raise `KubeError`."""

    async def list_leases(self, namespace: str, *, timeout: timedelta) -> Sequence[Mapping[str, Any]]:
        """List all Leases of a namespace."""

    async def delete_lease(
        self, namespace: str, name: str, *, uid: str, resource_version: str, timeout: timedelta
    ) -> None:
        """Delete exactly the Lease that was read."""


class SweepHouse(Protocol):
    """Whoever has the sockets."""

    def find_life(self) -> Life | None:
        """Give the incarnation that runs."""

    def find_open_ids(self, uid: str) -> frozenset[str]:
        """Give the ids of all our sockets for an object, whatever each of them is doing."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something."""

    def note_read(self, raw: dict[str, Any]) -> None:
        """Take in an object that was read or written."""


@dataclass(frozen=True, slots=True)
class _Named:
    """An object that bears others' names."""

    target: Target
    incarnations: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Standing:
    """A Lease, and since when it has not moved as far as was seen here."""

    version: str
    since: timedelta


class Sweeper:
    """
    One process's broom.

    Args:
        calls: Sends what is asked for.
        kube: Whom it asks about Leases.
        lease_namespace: Where they lie.
        house: Whoever has the sockets.
        luck: For jitter.
        clock: That of the tenures.
    """

    def __init__(
        self,
        calls: FenceCalls,
        kube: LeasesKube,
        lease_namespace: str,
        *,
        house: SweepHouse,
        luck: Random,
        clock: ElapsedClock,
    ) -> None:
        self.dead: set[str] = set()
        """Incarnations that are proven out: they never come back."""
        self._calls = calls
        self._kube = kube
        self._lease_namespace = lease_namespace
        self._house = house
        self._luck = luck
        self._clock = clock
        self._named: dict[str, _Named] = {}
        self._standing: dict[str, _Standing] = {}
        self._sweeping: set[str] = set()

    # --- What is seen -------------------------------------------------------------------------------------------------

    def note(self, target: Target, view: ObjectView) -> None:
        """Look at an object that was seen: what is left of our own is swept at once."""
        names = {find_incarnation(view.active_socket_id), None if view.lock is None else view.lock.incarnation}
        life = self._house.find_life()
        own = None if life is None else life.incarnation
        others = frozenset(name for name in names if name is not None and name != own)
        if others:
            self._named[view.uid] = _Named(target, others)
        else:
            self._named.pop(view.uid, None)
        if own is not None and own in names:
            open_ids = self._house.find_open_ids(view.uid)
            if plan_sweep(view, incarnation=own, open_ids=open_ids, dead=frozenset()) is not None:
                self.sweep(target, view.uid)

    def note_gone(self, uid: str) -> None:
        """An object is gone."""
        self._named.pop(uid, None)

    def sweep(self, target: Target, uid: str) -> None:
        """Read an object, and clear what is left over; twice at once is once."""
        if uid not in self._sweeping:
            self._sweeping.add(uid)
            self._house.spawn(self._sweep(target, uid))

    # --- What is cleared ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sweep what the dead left, until cancelled."""
        pause = self._luck.random() * FIRST_WITHIN
        while True:
            await self._clock.sleep(pause)
            pause = EVERY * (0.75 + 0.5 * self._luck.random())
            suspects = await self._look_at_leases()
            for named in self._named.values():
                suspects |= named.incarnations
            await self._prove_all(suspects - self.dead)
            for uid, named in list(self._named.items()):
                if named.incarnations & self.dead:
                    self.sweep(named.target, uid)

    async def _sweep(self, target: Target, uid: str) -> None:
        try:
            for _ in range(STEPS):
                life = self._house.find_life()
                raw = await self._calls.read(target)
                if life is None or life.has_ended() or raw is None or raw["metadata"]["uid"] != uid:
                    return
                view = view_object(raw)
                step = plan_sweep(
                    view,
                    incarnation=life.incarnation,
                    open_ids=self._house.find_open_ids(uid),
                    dead=frozenset(self.dead),
                )
                match step:
                    case None:
                        self._house.note_read(raw)
                        return
                    case ClearLock(patch=patch):
                        written = await self._calls.write(target, patch, status=True, tenure=life.writes)
                    case Withdraw(patch=patch):
                        written = await self._calls.write(target, patch, status=False, tenure=life.writes)
                    case _:
                        assert_never(step)
                if isinstance(written.answer, Accepted):
                    log.info(
                        "Cleared what was left over.",
                        extra={"namespace": target.namespace, "terminal": target.name, "what": type(step).__name__},
                    )
        except CallFailed:
            # The next list, or the next minute, finds it again.
            return
        finally:
            self._sweeping.discard(uid)

    async def _prove_all(self, suspects: set[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for incarnation in suspects:
                group.create_task(self._prove(incarnation))

    async def _prove(self, incarnation: str) -> None:
        """Prove that an incarnation is out, or find that it lives."""
        proof = Proof(incarnation)
        while True:
            started = self._clock.elapsed()
            try:
                look = await self._calls.read_lease(incarnation)
            except CallFailed:
                return
            if _lives(proof, look):
                return
            step = judge_lease(proof, look, started=started, now=self._clock.elapsed())
            if isinstance(step, BreakNow):
                step = judge_break(step.proof, await self._calls.break_lease(incarnation, step.lease))
                if isinstance(step, ReadLeaseAgain):
                    return
            match step:
                case ReadLeaseAgain(proof=further, after=after):
                    proof = further
                    await self._clock.sleep(after)
                case ProvenOut():
                    log.info("A gateway is proven out.", extra={"incarnation": incarnation})
                    self.dead.add(incarnation)
                    return
                case BreakNow():
                    return
                case _:
                    assert_never(step)

    # --- Leases -------------------------------------------------------------------------------------------------------

    async def _look_at_leases(self) -> set[str]:
        """Remove Leases that were broken long ago, and give the incarnations whose Lease has not moved lately."""
        try:
            leases = await self._kube.list_leases(self._lease_namespace, timeout=LEASE_TIMEOUT)
        except (KubeError, CredentialsUnusable):
            return set()
        now = self._clock.elapsed()
        known, self._standing = self._standing, {}
        suspects: set[str] = set()
        life = self._house.find_life()
        for raw in leases:
            name = str(raw["metadata"]["name"])
            if not name.startswith(LEASE_PREFIX):
                continue
            lease, incarnation = view_lease(raw), name.removeprefix(LEASE_PREFIX)
            if life is not None and incarnation == life.incarnation:
                continue
            before = known.get(name)
            standing = (
                before if before is not None and before.version == lease.version else _Standing(lease.version, now)
            )
            self._standing[name] = standing
            if lease.holder == incarnation:
                if now - standing.since >= RULES.proof_gap:
                    suspects.add(incarnation)
            elif now - standing.since >= LEASE_KEPT:
                await self._remove(name, uid=lease.uid, version=lease.version)
        return suspects

    async def _remove(self, name: str, *, uid: str, version: str) -> None:
        try:
            await self._kube.delete_lease(
                self._lease_namespace, name, uid=uid, resource_version=version, timeout=LEASE_TIMEOUT
            )
        except (KubeError, CredentialsUnusable):
            return


def _lives(proof: Proof, look: LeaseLook) -> bool:
    """Tell whether a second look shows that the Lease has moved."""
    return proof.first is not None and proof.first != look and getattr(look, "holder", "") == proof.incarnation

"""
Which gateways are dead: their Leases are read here, once for all objects that speak of them.

Problem: `attached: true` and a lock outlive the gateway that wrote them; ten thousand objects may name the same few
gateways, and an object at rest must cost nothing. Promise: one reader for each gateway, however many objects name it,
and none where nobody does; a gateway is dead only with the proof of `plan.fence_tenure` (two consistent reads of its
Lease, further apart than any tenure lasts, and the breaking of that very version); found within two such distances of
its last renewal, about 14 s, while it matters; what could not be read says nothing, and neither does the absence of a
Lease that lies in another namespace than is looked in.

All moments are monotonic: a clock that stands still with a suspended machine only makes the two reads lie further apart
than they are thought to.

Source: gateway.md 3, rule 5, and 4 (docs/fence.md).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, assert_never

from controller.clock import Clock
from controller.engine.registry import Snapshot
from controller.errors import OutsideError
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import NotFound
from controller.plan.fence_ids import LEASE_ELSEWHERE, has_lease_elsewhere
from controller.plan.fence_objects import LeaseLook, LeaseView, NoLease, ObjectView, view_lease, view_object
from controller.plan.fence_patches import name_lease
from controller.plan.fence_tenure import (
    RULES,
    BreakAnswer,
    BreakNow,
    Broken,
    NotBroken,
    Proof,
    ProofStep,
    ProvenOut,
    ReadLeaseAgain,
    judge_break,
    judge_lease,
)
from controller.plan.gateways import SELDOM, Interest, find_wait, find_wait_after_failure, is_alive_by, judge_interests

log: Final = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Reads at the same time: a slow one must not delay the others, and there are few gateways."""

_SPOKEN_OF: Final = ("socket", "gateways")


class Leases(Protocol):
    """The part of the Kubernetes client that is needed here."""

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        """Read a Lease, consistently."""

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        """Write a Lease over the version that it carries."""


@dataclass(slots=True)
class _Suspect:
    """One gateway that objects speak of, and how far the proof of its death has come."""

    proof: Proof
    due: timedelta
    interests: dict[str, Interest] = field(default_factory=dict)
    """How much it matters to each object, by uid."""
    weighty: int = 0
    """To how many of them it matters now."""
    failures: int = 0
    is_proven: bool = False

    @property
    def interest(self) -> Interest:
        return Interest.NOW if self.weighty else Interest.SOMETIME


class LeaseProver:
    """
    Proves gateways dead, and knows which are.

    It belongs to one loop and takes no lock. What it is told about objects it keeps from the start; it reads only while
    `run` does.

    Args:
        leases: The Kubernetes API.
        namespace: Where the Leases of gateways lie.
        clock: Both clocks.
        on_dead: Told the uids of all objects that speak of a gateway, once it is proven out.
    """

    def __init__(
        self, leases: Leases, namespace: str, clock: Clock, *, on_dead: Callable[[Iterable[str]], None]
    ) -> None:
        self._leases = leases
        self._namespace = namespace
        self._clock = clock
        self._on_dead = on_dead
        self._suspects: dict[str, _Suspect] = {}
        self._named: dict[str, Mapping[str, Interest]] = {}
        self._dead: frozenset[str] = frozenset()
        self._news = asyncio.Event()
        self._is_blind = False

    @property
    def dead(self) -> frozenset[str]:
        """The gateways that are proven out, of those that any object speaks of."""
        return self._dead

    def is_seen_alive(self, incarnation: str) -> bool:
        """Tell whether the last read of a Lease showed its holder."""
        suspect = self._suspects.get(incarnation)
        return suspect is not None and not suspect.is_proven and is_alive_by(suspect.proof.first, incarnation)

    def is_forlorn(self, uid: str) -> bool:
        """Tell whether an object speaks of gateways that matter to it, and all of these are proven out."""
        weighty = [name for name, interest in self._named.get(uid, {}).items() if interest is Interest.NOW]
        return bool(weighty) and self._dead.issuperset(weighty)

    def note(self, snapshot: Snapshot, spec: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Take in what an object says of gateways, in place of what it said."""
        if not spec.get("activeSocketId") and not any(status.get(part) for part in _SPOKEN_OF):
            self.drop(snapshot.uid)
            return
        interests = judge_interests(view_snapshot(snapshot, spec, status))
        known = self._named.get(snapshot.uid, {})
        if interests == known:
            return
        for incarnation in known.keys() - interests.keys():
            self._leave(incarnation, snapshot.uid)
        for incarnation, interest in interests.items():
            self._enter(incarnation, snapshot.uid, interest)
        if interests:
            self._named[snapshot.uid] = interests
        else:
            self._named.pop(snapshot.uid, None)

    def drop(self, uid: str) -> None:
        """Forget an object; a gateway of which no other speaks is forgotten with it."""
        for incarnation in self._named.pop(uid, {}):
            self._leave(incarnation, uid)

    async def run(self) -> None:
        """
        Read what is due, until cancelled.

        Raises:
            TenureEnded: This process no longer leads.
        """
        turns = asyncio.Semaphore(AT_ONCE)
        while True:
            self._news.clear()
            now = self._clock.monotonic()
            due = [name for name, suspect in self._suspects.items() if not suspect.is_proven and suspect.due <= now]
            if due:
                async with asyncio.TaskGroup() as group:
                    for incarnation in due:
                        group.create_task(self._look(incarnation, turns))
                continue
            await self._wait_for_news(now)

    async def _wait_for_news(self, now: timedelta) -> None:
        waits = [suspect.due - now for suspect in self._suspects.values() if not suspect.is_proven]
        if not waits:
            await self._news.wait()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(waits).total_seconds()):
                await self._news.wait()

    # --- who speaks of whom -------------------------------------------------------------------------------------------

    def _enter(self, incarnation: str, uid: str, interest: Interest) -> None:
        suspect = self._suspects.get(incarnation)
        if suspect is None:
            suspect = self._suspects[incarnation] = _Suspect(Proof(incarnation), self._clock.monotonic())
            self._news.set()
        before = suspect.interests.get(uid)
        suspect.interests[uid] = interest
        suspect.weighty += (interest is Interest.NOW) - (before is Interest.NOW)
        if interest is Interest.NOW and before is not interest and suspect.weighty == 1:
            # It was asked about seldom so far.
            suspect.due = min(suspect.due, self._clock.monotonic())
            self._news.set()

    def _leave(self, incarnation: str, uid: str) -> None:
        suspect = self._suspects[incarnation]
        suspect.weighty -= suspect.interests.pop(uid) is Interest.NOW
        if not suspect.interests:
            del self._suspects[incarnation]
            self._dead -= {incarnation}

    # --- the proof ----------------------------------------------------------------------------------------------------

    async def _look(self, incarnation: str, turns: asyncio.Semaphore) -> None:
        """Read one Lease, and take the proof as far as it goes by that."""
        async with turns:
            suspect = self._suspects.get(incarnation)
            if suspect is None:
                return
            started = self._clock.monotonic()
            if has_lease_elsewhere(incarnation, lease_namespace=self._namespace):
                self._take_stranger(suspect)
                return
            try:
                look = await self._read(incarnation)
                is_first = suspect.proof.first is None
                step = judge_lease(suspect.proof, look, started=started, now=self._clock.monotonic())
                if isinstance(step, BreakNow):
                    is_first = False
                    step = judge_break(step.proof, await self._break(incarnation, step.lease))
            except (OutsideError, CredentialsUnusable) as error:
                self._take_failure(suspect, error)
                return
            self._is_blind, suspect.failures = False, 0
            self._take_step(suspect, step, is_first=is_first)

    def _take_step(self, suspect: _Suspect, step: ProofStep, *, is_first: bool) -> None:
        match step:
            case ReadLeaseAgain(proof=proof, after=after):
                suspect.proof = proof
                suspect.due = self._clock.monotonic() + find_wait(after, suspect.interest, is_first=is_first)
            case ProvenOut(incarnation=incarnation):
                suspect.is_proven = True
                if self._suspects.get(incarnation) is suspect:
                    self._dead |= {incarnation}
                    log.info(
                        "A gateway is proven out.",
                        extra={"incarnation": incarnation, "objects": len(suspect.interests)},
                    )
                    self._on_dead(tuple(suspect.interests))
            case BreakNow():
                raise AssertionError("A break was answered with a break.")
            case _:
                assert_never(step)

    def _take_failure(self, suspect: _Suspect, error: OutsideError | CredentialsUnusable) -> None:
        """Not knowing takes nobody's presence away; it is told once, and asked again ever less often."""
        suspect.failures += 1
        suspect.due = self._clock.monotonic() + find_wait_after_failure(suspect.failures)
        if not self._is_blind:
            log.warning(
                "The Lease of a gateway cannot be read; until it can, whoever is attached through it counts.",
                extra={"incarnation": suspect.proof.incarnation, "fault": str(error)},
            )
        self._is_blind = True

    def _take_stranger(self, suspect: _Suspect) -> None:
        """Believe in the life of a gateway whose Lease would be looked for in the wrong place, and say so once."""
        suspect.due = self._clock.monotonic() + SELDOM
        if not suspect.failures:
            log.error(LEASE_ELSEWHERE, extra={"incarnation": suspect.proof.incarnation, "looked_in": self._namespace})
        suspect.failures += 1

    async def _read(self, incarnation: str) -> LeaseLook:
        try:
            raw = await self._leases.get_lease(self._namespace, name_lease(incarnation), timeout=RULES.timeout)
        except NotFound:
            return NoLease()
        return view_lease(raw)

    async def _break(self, incarnation: str, lease: LeaseView) -> BreakAnswer:
        """Write an empty holder over this very version; whatever fails here is settled by the next read."""
        body = build_broken_lease(self._namespace, incarnation, lease, now=self._clock.now())
        try:
            await self._leases.put_lease(body, timeout=RULES.timeout)
        except (OutsideError, CredentialsUnusable) as error:
            log.debug("A Lease was not broken.", extra={"incarnation": incarnation, "fault": str(error)})
            return NotBroken()
        return Broken()


def build_broken_lease(namespace: str, incarnation: str, lease: LeaseView, *, now: datetime) -> dict[str, Any]:
    """Write a gateway's Lease without a holder; the time is for people who look at it, and nobody's proof."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name_lease(incarnation),
            "namespace": namespace,
            "uid": lease.uid,
            "resourceVersion": lease.version,
        },
        "spec": {
            "holderIdentity": "",
            "leaseDurationSeconds": int(RULES.lease.total_seconds()),
            "renewTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        },
    }


def view_snapshot(snapshot: Snapshot, spec: Mapping[str, Any], status: Mapping[str, Any]) -> ObjectView:
    """Give an object as the fence sees it."""
    metadata: dict[str, Any] = {
        "uid": snapshot.uid,
        "generation": snapshot.generation,
        "resourceVersion": snapshot.resource_version,
        "deletionTimestamp": snapshot.deleted,
        "finalizers": list(snapshot.finalizers),
    }
    return view_object({"metadata": metadata, "spec": spec, "status": status})

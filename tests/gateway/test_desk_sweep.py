"""What is left over is found and cleared: our own at once, that of the dead with proof, that of the living never."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from controller.api.names import FINALIZER
from controller.gateway.fence_calls import FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.sweeper import Sweeper
from controller.gateway.wishes import Target
from controller.kube.errors import Conflict, NotFound
from controller.plan.fence_objects import LeaseView, view_object
from controller.plan.fence_tenure import LEASE_KEPT, Term
from controller.tenure import Tenure
from tests.gateway.test_desk_lease import VirtualClock

ME, OTHER = "gateway0", "gateway1"
LUCK = "abcdefgh"
PLACE = Target("team-a", "one")


def build(incarnation: str) -> dict[str, Any]:
    """An object that an incarnation holds and is named by."""
    socket_id = f"at1.5.{incarnation}.{LUCK}"
    lock = {"uid": "uid-1", "epoch": 5, "socketId": socket_id, "incarnation": incarnation}
    return {
        "metadata": {
            "uid": "uid-1",
            "name": "one",
            "namespace": "team-a",
            "generation": 5,
            "resourceVersion": "7",
            "finalizers": [FINALIZER],
        },
        "spec": {"activeSocketId": socket_id, "attached": True},
        "status": {"socket": lock},
    }


class World:
    """One object, some Leases, and whoever has the sockets."""

    def __init__(self, holder: str) -> None:
        self.clock = VirtualClock()
        self.raw = build(holder)
        self.leases: dict[str, LeaseView] = {}
        self.open_ids: frozenset[str] = frozenset()
        self.life = Life(Term(ME, LeaseView("lease", "1", ME), 1, self.clock.time + timedelta(days=1)), self.clock)
        self.group: asyncio.TaskGroup | None = None
        self.sweeper = Sweeper(FenceCalls(self, "home"), self, "home", house=self, luck=Random(1), clock=self.clock)

    # the API server

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        return self.raw

    async def patch_json(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        tenure: Tenure,
    ) -> dict[str, Any]:
        tenure.demand()
        if subresource == "status":
            assert {"op": "test", "path": "/status/socket", "value": self.raw["status"]["socket"]} in operations
            del self.raw["status"]["socket"]
        else:
            self.raw["spec"] = {"activeSocketId": "", "attached": False}
        return self.raw

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        if name not in self.leases:
            raise NotFound("none", status=404)
        return self._render(name)

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        name = lease["metadata"]["name"]
        if lease["metadata"]["resourceVersion"] != self.leases[name].version:
            raise Conflict("moved", status=409)
        self.leases[name] = LeaseView("lease-2", "broken", lease["spec"]["holderIdentity"])
        return self._render(name)

    async def list_leases(self, namespace: str, *, timeout: timedelta) -> Sequence[Mapping[str, Any]]:
        return [self._render(name) for name in self.leases]

    async def delete_lease(
        self, namespace: str, name: str, *, uid: str, resource_version: str, timeout: timedelta
    ) -> None:
        del self.leases[name]

    def _render(self, name: str) -> dict[str, Any]:
        lease = self.leases[name]
        metadata = {"name": name, "uid": lease.uid, "resourceVersion": lease.version}
        return {"metadata": metadata, "spec": {"holderIdentity": lease.holder}}

    # whoever has the sockets

    def find_life(self) -> Life | None:
        return self.life

    def find_open_ids(self, uid: str) -> frozenset[str]:
        return self.open_ids

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        assert self.group is not None
        self.group.create_task(work)

    def note_read(self, raw: dict[str, Any]) -> None:
        pass

    # the test

    @property
    def is_free(self) -> bool:
        return "socket" not in self.raw["status"] and self.raw["spec"]["activeSocketId"] == ""

    async def play(self, seconds: float, *, living: str = "") -> None:
        """Let the broom run while time passes; the Lease of whoever lives moves every two seconds."""
        async with asyncio.TaskGroup() as group:
            self.group = group
            running = group.create_task(self.sweeper.run())
            self.sweeper.note(PLACE, view_object(self.raw))
            for step in range(round(seconds * 2)):
                self.clock.time += timedelta(seconds=0.5)
                if living and step % 4 == 0:
                    self.leases[f"atgw-{living}"] = LeaseView("lease-2", f"v{step}", living)
                for _ in range(15):
                    await asyncio.sleep(0)
            running.cancel()


async def test_our_own_lock_and_name_without_a_socket_are_cleared_at_once() -> None:
    world = World(ME)

    await world.play(0.5)

    assert world.is_free


async def test_nothing_of_an_open_socket_of_ours_is_touched() -> None:
    world = World(ME)
    world.open_ids = frozenset({world.raw["spec"]["activeSocketId"]})

    await world.play(70)

    assert not world.is_free


@pytest.mark.parametrize("lease", [LeaseView("lease-2", "9", OTHER), LeaseView("lease-2", "9", ""), None])
async def test_what_a_dead_gateway_left_is_cleared_with_proof(lease: LeaseView | None) -> None:
    world = World(OTHER)
    if lease is not None:
        world.leases[f"atgw-{OTHER}"] = lease

    await world.play(15)

    assert world.is_free
    assert world.sweeper.dead == {OTHER}
    assert lease is None or world.leases[f"atgw-{OTHER}"].holder == ""


async def test_a_gateway_that_lives_is_never_proven_out() -> None:
    world = World(OTHER)

    await world.play(300, living=OTHER)

    assert not world.is_free
    assert world.sweeper.dead == set()
    assert world.leases[f"atgw-{OTHER}"].holder == OTHER


async def test_a_broken_lease_goes_after_ten_minutes_and_no_sooner() -> None:
    world = World(ME)
    world.leases["atgw-gateway7"] = LeaseView("lease-2", "9", "")
    world.leases["operator"] = LeaseView("lease-3", "9", "")

    await world.play(LEASE_KEPT.total_seconds() - 30)
    kept = sorted(world.leases)
    await world.play(160)

    assert kept == ["atgw-gateway7", "operator"]
    assert sorted(world.leases) == ["operator"]


async def test_a_lease_that_stands_still_is_broken_before_its_ten_minutes_begin_though_no_object_names_it() -> None:
    world = World(ME)
    world.leases["atgw-gateway7"] = LeaseView("lease-2", "9", "gateway7")

    await world.play(200)
    broken = world.leases["atgw-gateway7"].holder
    await world.play(LEASE_KEPT.total_seconds() - 210)
    kept = sorted(world.leases)
    await world.play(300)

    assert broken == ""
    assert kept == ["atgw-gateway7"]
    assert world.leases == {}

"""The resync against a list that we play: lost deletions, stripped finalizers, lag, and an API that does not answer."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from controller.api.names import FINALIZER
from controller.engine.registry import Registry, Snapshot
from controller.engine.resync import Resync
from controller.engine.settings import ResyncSettings
from controller.kube.client import Page
from controller.kube.errors import NotFound, Unreachable
from tests.engine.clocks import HandClock, LoopClock
from tests.engine.test_registry import raw_terminal

SECOND = timedelta(seconds=1)
SETTINGS = ResyncSettings()


@dataclass
class Server:
    """An API server with objects; a hook runs between two pages."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    page_size: int = 2
    between_pages: list[Any] = field(default_factory=list)
    fails: bool = False
    lists: int = 0
    reads: list[str] = field(default_factory=list)

    def put(self, **arguments: Any) -> dict[str, Any]:
        raw = raw_terminal(**arguments)
        self.objects[raw["metadata"]["name"]] = raw
        return raw

    async def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None) -> AsyncIterator[Page]:
        assert metadata_only
        self.lists += 1
        if self.fails:
            raise Unreachable("No connection.")
        items = [{"metadata": raw["metadata"]} for raw in self.objects.values()]
        for start in range(0, max(1, len(items)), self.page_size):
            yield Page(tuple(items[start : start + self.page_size]), None, start == 0, "1")
            for hook in self.between_pages:
                hook()

    async def get(self, namespace: str, name: str) -> Mapping[str, Any]:
        self.reads.append(name)
        if self.fails:
            raise Unreachable("No connection.")
        if name not in self.objects:
            raise NotFound("It is not there.", status=404)
        return self.objects[name]


class World:
    """A registry, a server and what the resync called."""

    def __init__(self, clock: HandClock, namespaces: Sequence[str] = ()) -> None:
        self.server = Server()
        self.registry = Registry()
        self.clock = clock
        self.gone: list[str] = []
        self.stripped: list[str] = []
        self.resync = Resync(
            self.server,
            self.registry,
            clock,
            SETTINGS,
            namespaces=namespaces,
            on_gone=self.bury,
            on_stripped=self.stripped.append,
        )

    def bury(self, uid: str) -> None:
        self.gone.append(uid)
        self.registry.forget(uid)

    def both_know(self, **arguments: Any) -> None:
        self.registry.observe(Snapshot.of(self.server.put(**arguments)))


@pytest.fixture
def world() -> World:
    return World(HandClock())


async def test_objects_that_both_know_are_left_alone(world: World) -> None:
    for number in range(5):
        world.both_know(uid=f"u{number}", name=f"n{number}")
    for _ in range(3):
        await world.resync.look()
    assert (world.gone, world.stripped, world.server.reads, world.resync.lag) == ([], [], [], timedelta(0))


async def test_a_lost_deletion_is_believed_after_two_looks_and_a_read(world: World) -> None:
    world.both_know()
    del world.server.objects["one"]
    await world.resync.look()
    assert (world.gone, world.server.reads) == ([], [])
    await world.resync.look()
    assert (world.gone, world.server.reads) == (["u1"], ["one"])
    await world.resync.look()
    assert world.gone == ["u1"]


async def test_an_object_that_a_read_shows_is_not_gone_whatever_the_lists_say(world: World) -> None:
    world.both_know()
    raw = world.server.objects.pop("one")
    await world.resync.look()
    world.server.between_pages.append(lambda: world.server.objects.update(one=raw))
    await world.resync.look()
    assert (world.gone, world.server.reads) == ([], ["one"])


async def test_an_object_whose_name_now_belongs_to_another_is_gone(world: World) -> None:
    world.both_know()
    world.server.put(uid="u2")
    await world.resync.look()
    await world.resync.look()
    assert world.gone == ["u1"]


async def test_a_read_that_fails_proves_nothing_and_is_tried_again(world: World) -> None:
    world.both_know()
    del world.server.objects["one"]
    await world.resync.look()
    world.server.between_pages.append(lambda: setattr(world.server, "fails", True))
    await world.resync.look()
    assert world.gone == []
    world.server.between_pages.clear()
    world.server.fails = False
    await world.resync.look()
    assert world.gone == ["u1"]


async def test_objects_that_come_and_go_while_the_pages_are_read_are_not_missed(world: World) -> None:
    for number in range(4):
        world.both_know(uid=f"u{number}", name=f"n{number}")

    def come_and_go() -> None:
        world.both_know(uid="young", name="young", version=50)
        world.registry.forget("u0")
        world.server.objects.pop("n0", None)

    world.server.between_pages.append(come_and_go)
    for _ in range(2):
        await world.resync.look()
    world.clock.passed += 100 * SECOND
    assert (world.gone, world.resync.lag) == ([], timedelta(0))


async def test_what_an_expired_pass_said_is_void(world: World) -> None:
    world.both_know()
    item = {"metadata": world.server.objects["one"]["metadata"]}
    ghost = {"metadata": raw_terminal(uid="ghost", name="ghost")["metadata"]}

    class Expiring(Server):
        async def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None) -> AsyncIterator[Page]:
            yield Page((ghost,), None, begins=True, resource_version="1")
            yield Page((item,), None, begins=True, resource_version="2")

    world.resync._lister = Expiring()
    findings = await world.resync.look()
    assert findings.suspicions.behind == {}


async def test_each_namespace_is_a_pass_of_its_own() -> None:
    world = World(HandClock(), namespaces=["a", "b"])
    asked: list[Sequence[str] | None] = []

    class Namespaced(Server):
        async def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None) -> AsyncIterator[Page]:
            asked.append(namespaces)
            for namespace in namespaces or ():
                raw = raw_terminal(uid=f"u-{namespace}", namespace=namespace)
                yield Page(({"metadata": raw["metadata"]},), namespace, begins=True, resource_version="1")

    world.resync._lister = Namespaced()
    for namespace in ("a", "b"):
        world.registry.observe(Snapshot.of(raw_terminal(uid=f"u-{namespace}", namespace=namespace)))
    findings = await world.resync.look()
    assert asked == [["a", "b"]]
    assert findings.suspicions.absent == frozenset()


async def test_a_stripped_finalizer_is_told(world: World) -> None:
    world.both_know(finalizers=[FINALIZER])
    world.server.put(version=11, finalizers=["other/one"])
    await world.resync.look()
    assert world.stripped == ["u1"]


async def test_the_lag_begins_with_the_look_and_ends_when_the_registry_has_caught_up(world: World) -> None:
    raw = world.server.put()
    await world.resync.look()
    world.clock.passed += 60 * SECOND
    assert world.resync.lag == timedelta(0)
    world.clock.passed += SECOND
    assert world.resync.lag == 61 * SECOND
    world.registry.observe(Snapshot.of(raw))
    assert world.resync.lag == timedelta(0)


async def test_the_lag_passes_three_minutes_at_the_second_look_of_a_dead_watch(world: World) -> None:
    world.server.put()
    await world.resync.look()
    world.clock.passed += SETTINGS.interval
    await world.resync.look()
    world.clock.passed += timedelta(minutes=1, seconds=1)
    assert world.resync.lag == timedelta(minutes=3, seconds=1)


async def test_the_lag_does_not_grow_while_the_server_does_not_answer_us_either(world: World) -> None:
    world.server.put()
    await world.resync.look()
    world.clock.passed += timedelta(hours=1)
    assert world.resync.lag == SETTINGS.interval


@pytest.mark.looptime
async def test_it_looks_every_interval_and_sooner_after_a_failure() -> None:
    world = World(LoopClock())
    begun = world.clock.monotonic()
    looked: list[float] = []
    world.server.between_pages.append(lambda: looked.append((world.clock.monotonic() - begun).total_seconds()))

    async def break_the_second_and_third_look() -> None:
        await asyncio.sleep(200)
        world.server.fails = True
        await asyncio.sleep(55)
        world.server.fails = False

    async with asyncio.TaskGroup() as group:
        running = group.create_task(world.resync.run())
        await group.create_task(break_the_second_and_third_look())
        assert world.resync.failures == 2
        await asyncio.sleep(150)
        running.cancel()
    assert [round(moment) for moment in looked] == [120, 260, 380]
    assert world.resync.failures == 0

"""A drain over a way on which input stays for as long as it is told to: nobody may let go before it has arrived."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from controller.api.names import FINALIZER
from controller.clock import SystemClock
from controller.gateway.chair import Chair, Former
from controller.gateway.fence_calls import FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.stream import SpriteWay
from controller.gateway.wishes import Target
from controller.lab.bench.race_lines import Wire
from controller.plan.fence import Doubted, Told
from controller.plan.fence_objects import LeaseView, view_object
from controller.plan.fence_tenure import begin_term
from controller.sprites.client import SpritesClient
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.gateway.doubles import UnaskedKube
from tests.gateway.stream.conftest import SECRET, ask, record
from tests.gateway.stream.stage import LIMIT, Person, Stage, open_stage
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

LATE = b"late\r"
TURNS = 100
"""Of the loop, for whoever would answer at once."""

LONG = timedelta(minutes=5)
"""For a tenure that does not end in a test, however slow the machine."""


@pytest.fixture
async def wire(lab: EmulatorProcess) -> AsyncIterator[Wire]:
    async with Wire(lab.url) as wire:
        yield wire


@pytest.fixture
async def far_way(wire: Wire) -> AsyncIterator[SpriteWay]:
    async with SpritesClient(SpritesSettings(base_url=wire.url), SystemClock(), lambda _: None) as client:
        yield SpriteWay(client, "s1", lambda: Token.read(SECRET), SystemClock())
    await asyncio.sleep(0)


async def type_into_the_wall(stage: Stage, wire: Wire, ann: Person) -> None:
    """Let somebody type who may, and hold back what they type next."""
    await ann.types(b"first\r")
    await ann.sees(b"first")
    wire.stop()
    await ann.types(LATE)
    await stage.until(lambda stage: stage.hub._typist._attachment.unconfirmed_bytes >= len(LATE))


async def pass_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def has_received(lab: EmulatorProcess, text: bytes) -> bool:
    (shown,) = await ask(lab.sessions, "s1")
    return text.decode() in shown["received"]


async def test_whoever_asks_for_a_drain_that_is_under_way_waits_for_it_as_well(
    far_way: SpriteWay, wire: Wire, lab: EmulatorProcess
) -> None:
    """The fence asks again where somebody is replaced while their object is being read."""
    session = await ask(lab.start_session, "s1", "cat")

    async with open_stage(far_way, record(session)) as stage:
        await type_into_the_wall(stage, wire, await stage.come_to_type("ann"))
        client = stage.clients["ann"]

        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
            drains = [group.create_task(stage.hub.drain(client)) for _ in range(2)]
            await pass_turns()
            assert [drain.done() for drain in drains] == [False, False]
            wire.flow()

        assert [drain.result() for drain in drains] == [0, 0]
        assert await has_received(lab, LATE)


# --- what follows for the lock ----------------------------------------------------------------------------------------


class OneObject(UnaskedKube):
    """An API server with one object; a read is answered when it is let."""

    def __init__(self) -> None:
        self.raw: dict[str, Any] = {
            "metadata": {"uid": "uid-1", "generation": 1, "resourceVersion": "1", "finalizers": [FINALIZER]},
            "spec": {},
            "status": {},
        }
        self.reads = asyncio.Event()
        self.reads.set()

    @property
    def is_locked(self) -> bool:
        return "socket" in self.raw["status"]

    def write(self, section: str, field: str, value: object) -> None:
        metadata, fields = self.raw["metadata"], {**self.raw[section], field: value}
        self.raw = {
            **self.raw,
            "metadata": {
                **metadata,
                "generation": metadata["generation"] + (section == "spec"),
                "resourceVersion": str(int(metadata["resourceVersion"]) + 1),
            },
            section: {known: kept for known, kept in fields.items() if kept is not None},
        }

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        await self.reads.wait()
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
        for one in operations:
            if one["op"] != "test":
                _, section, field = one["path"].split("/")
                self.write(section, field, one.get("value"))
        return self.raw


class House:
    """Whoever has the chair: it only runs what it is given."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._group.create_task(work)

    def note_read(self, raw: dict[str, Any]) -> None:
        """Tell nobody."""

    def note_spoke(self, former: Former, took: object) -> None:
        """Count nothing."""

    def note_undrained(self, unconfirmed_bytes: int) -> None:
        raise AssertionError("All input arrives.")

    def note_proven(self, incarnation: str) -> None:
        raise AssertionError("Nobody dies.")

    def note_empty(self, chair: Chair) -> None:
        """Keep the chair."""

    def end_incarnation(self) -> None:
        raise AssertionError("Every lock can be cleared.")


async def test_who_is_replaced_while_their_object_is_read_keeps_the_lock_until_their_input_has_arrived(
    far_way: SpriteWay, wire: Wire, lab: EmulatorProcess
) -> None:
    """A list doubts, the watch tells before the read that follows is answered: the fence asks for two drains."""
    session, kube, clock = await ask(lab.start_session, "s1", "cat"), OneObject(), SystemClock()
    life = Life(begin_term("gateway0", LeaseView("lease", "1", "gateway0"), sent=clock.elapsed() + LONG), clock)

    async with open_stage(far_way, record(session)) as stage, asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        calls, target = FenceCalls(kube, "home"), Target("team-a", "one")
        chair = Chair(target, "uid-1", life, calls=calls, house=House(group), clock=clock)
        stage.may_type = {"ann"}
        ann, client = await stage.come("ann"), stage.clients["ann"]
        chair.arrive(1, client, stage.hub, view_object(kube.raw), luck="socket01", takeover=True, dead=frozenset())
        await ann.hears("Holding")
        await type_into_the_wall(stage, wire, ann)

        kube.reads.clear()
        chair.feed(Doubted())
        kube.write("spec", "activeSocketId", "somebody-else")
        chair.feed(Told(view_object(kube.raw)))
        await pass_turns()
        kube.reads.set()
        await pass_turns()
        assert kube.is_locked, "the lock was let go with input on its way"

        wire.flow()
        await stage.until(lambda _: not kube.is_locked)
        assert await has_received(lab, LATE)
        assert await ann.is_closed() == 4001

"""A drain over a way on which input stays for as long as it is told to: nobody may let go before it has arrived."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from controller.clock import SystemClock
from controller.gateway.stream import SpriteWay
from controller.lab.bench.race_lines import Wire
from controller.sprites.client import SpritesClient
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from tests.gateway.stream.conftest import SECRET, ask, record
from tests.gateway.stream.stage import LIMIT, Person, Stage, open_stage
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

LATE = b"late\r"
TURNS = 100
"""Of the loop, for whoever would answer at once."""


@pytest.fixture
async def wire(lab: EmulatorProcess) -> AsyncIterator[Wire]:
    async with Wire(lab.url) as wire:
        yield wire


@pytest.fixture
async def far_way(wire: Wire) -> AsyncIterator[SpriteWay]:
    async with SpritesClient(SpritesSettings(base_url=wire.url), SystemClock(), lambda _: None) as client:
        yield SpriteWay(client, "s1", lambda: Token.read(SECRET), SystemClock())
    await asyncio.sleep(0)


async def type_into_the_wall(stage: Stage, wire: Wire) -> Person:
    """Let somebody type, and hold back what they type next."""
    ann = await stage.come_to_type("ann")
    await ann.types(b"first\r")
    await ann.sees(b"first")
    wire.stop()
    await ann.types(LATE)
    await stage.until(lambda stage: stage.hub._typist._attachment.unconfirmed_bytes >= len(LATE))
    return ann


async def test_whoever_asks_for_a_drain_that_is_under_way_waits_for_it_as_well(
    far_way: SpriteWay, wire: Wire, lab: EmulatorProcess
) -> None:
    """The fence asks again where somebody is replaced while their object is being read."""
    session = await ask(lab.start_session, "s1", "cat")

    async with open_stage(far_way, record(session)) as stage:
        await type_into_the_wall(stage, wire)
        client = stage.clients["ann"]

        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
            drains = [group.create_task(stage.hub.drain(client)) for _ in range(2)]
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert [drain.done() for drain in drains] == [False, False]
            wire.flow()

        assert [drain.result() for drain in drains] == [0, 0]
        (shown,) = await ask(lab.sessions, "s1")
        assert shown["received"].endswith(LATE.decode())

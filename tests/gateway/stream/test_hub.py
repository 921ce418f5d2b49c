"""One terminal with real sockets on both sides: the emulator with real processes above, people below."""

import pytest

from controller.gateway.stream import SpriteWay
from tests.gateway.stream.conftest import ask, record
from tests.gateway.stream.stage import open_stage
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites


async def test_whoever_holds_the_terminal_types_and_sees_the_answer(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await ask(lab.start_session, "s1", "cat")

    async with open_stage(way, record(session)) as stage:
        person = await stage.come_to_type("ann")
        await person.types(b"hello\r")
        await person.sees(b"hello\r\nhello\r\n")

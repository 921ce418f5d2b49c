import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import pytest

from controller.api.session import Identity
from controller.clock import SystemClock
from controller.gateway.stream import Recorded, SpriteWay
from controller.sprites.client import SpritesClient
from controller.sprites.exec_frames import Framing
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from tests.support.emulator import EmulatorProcess
from tests.support.secrecy import build_sprites_token

SECRET = build_sprites_token("acme")


@pytest.fixture(scope="package")
def emulator_process() -> Iterator[EmulatorProcess]:
    with EmulatorProcess("--token", SECRET) as process:
        yield process


@pytest.fixture
def lab(emulator_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    emulator_process.reset()
    emulator_process.create_sprite("s1")
    emulator_process.set_state("s1", "running")
    yield emulator_process
    emulator_process.reset()


@pytest.fixture
async def sprites(lab: EmulatorProcess) -> AsyncIterator[SpritesClient]:
    async with SpritesClient(SpritesSettings(base_url=lab.url), SystemClock(), lambda _: None) as client:
        yield client
    await asyncio.sleep(0)


@pytest.fixture
def way(sprites: SpritesClient) -> SpriteWay:
    return SpriteWay(sprites, "s1", lambda: Token.read(SECRET), SystemClock())


def record(session: Any, *, tty: bool = True) -> Recorded:
    """What the status would say of a session of the lab."""
    created = datetime.fromisoformat(session["created"])
    return Recorded(Identity("sprite-1", session["id"], created), Framing.RAW if tty else Framing.NUMBERED)


async def ask(call: Any, *arguments: Any, **named: Any) -> Any:
    """Call the lab, which blocks."""
    return await asyncio.to_thread(call, *arguments, **named)

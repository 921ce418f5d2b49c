"""One emulator process for all tests of this folder, emptied before each of them."""

from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from tests.lab.emulator.talking import Client
from tests.support.emulator import EmulatorProcess
from tests.support.secrecy import build_sprites_token


@pytest.fixture(scope="session")
def emulator_process() -> Iterator[EmulatorProcess]:
    """Real processes in namespaces."""
    with EmulatorProcess("--token", build_sprites_token("acme"), "--token", build_sprites_token("other")) as process:
        yield process


@pytest.fixture
def emulator(emulator_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    """The emulator, as empty as at its start."""
    emulator_process.reset()
    yield emulator_process
    emulator_process.reset()


@pytest.fixture
async def client(emulator: EmulatorProcess) -> AsyncIterator[Client]:
    """The first organization's client, with a sprite."""
    emulator.create_sprite("my-sprite")
    async with aiohttp.ClientSession() as http:
        http._retry_connection = False  # By itself aiohttp repeats a GET whose connection was dropped.
        yield Client(emulator.url, emulator.token, http)

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from controller.clock import SystemClock
from controller.sprites.client import SpritesClient
from controller.sprites.reports import CallReport
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.sprites.server import Counterpart, Do, serve
from tests.support.secrecy import build_sprites_token

SECRET = build_sprites_token("acme")

SHORT: Mapping[str, timedelta] = dict.fromkeys(
    ["read_limit", "kill_limit", "upgrade_limit", "announce_limit"], timedelta(milliseconds=800)
)
"""Limits for a server that stalls. Every other test has the real ones, so that a busy machine fails none of them."""


def choose_limits(script: Sequence[bytes | Do]) -> Mapping[str, timedelta]:
    """Give the limits for a script: short ones only where it stalls."""
    return SHORT if Do.STALL in script else {}


MakeClient = Callable[..., SpritesClient]


@pytest.fixture
def token() -> Token:
    return Token.read(SECRET)


@pytest.fixture
def reports() -> list[CallReport]:
    return []


@pytest.fixture
async def counterpart() -> AsyncIterator[Counterpart]:
    async with serve() as running:
        yield running


@pytest.fixture
async def make_client(reports: list[CallReport]) -> AsyncIterator[MakeClient]:
    """Make clients of an address, with default settings but for what is given by name; they are closed at the end."""
    async with AsyncExitStack() as stack:

        def make(url: str, *, tenure: Tenure | None = None, **changes: Any) -> SpritesClient:
            settings = SpritesSettings(base_url=url, **changes)
            client = SpritesClient(settings, SystemClock(), reports.append, tenure=tenure)
            stack.push_async_callback(client.aclose)
            return client

        yield make
    # Connections that were cut are collected on the next turns of the loop.
    await asyncio.sleep(0)


@pytest.fixture
def client(counterpart: Counterpart, make_client: MakeClient) -> SpritesClient:
    return make_client(counterpart.url)

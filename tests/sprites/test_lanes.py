import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from controller.sprites.client import SpritesClient
from controller.sprites.errors import TimedOut
from controller.sprites.lanes import Lanes
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from tests.sprites.conftest import SHORT, MakeClient
from tests.sprites.server import Do, serve_raw
from tests.sprites.test_reading_calls import list_sessions

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"


class HeldClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.time = timedelta(0)

    def now(self) -> datetime:
        return datetime(2026, 9, 1, 12, tzinfo=UTC) + self.time

    def monotonic(self) -> timedelta:
        return self.time

    async def sleep(self, delay: timedelta) -> None:
        self.time += delay


def is_closed(lane: httpx.AsyncClient) -> bool:
    """Ask anew each time; a type checker believes a property once."""
    return lane.is_closed


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
async def lanes(clock: HeldClock) -> AsyncIterator[Lanes]:
    settings = SpritesSettings(base_url="http://127.0.0.1:1", connections=2, keepalive=timedelta(seconds=50))
    running = Lanes(settings, clock, httpx.create_ssl_context())
    yield running
    await running.aclose()


async def test_a_call_takes_the_lane_that_was_free_last(lanes: Lanes) -> None:
    async with lanes.take() as first, lanes.take() as second:
        assert first is not second
    # The inner block ends first, so the outer lane was free last.
    async with lanes.take() as next_one:
        assert next_one is first


async def test_there_are_no_more_lanes_than_connections(lanes: Lanes) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(lanes.take())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), lanes.take():
                pytest.fail("a third lane")


async def test_a_lane_that_nobody_needed_is_closed(lanes: Lanes, clock: HeldClock) -> None:
    async with lanes.take() as kept, lanes.take() as stale:
        pass
    clock.time += timedelta(seconds=30)
    async with lanes.take() as again:
        assert again is kept
    assert not is_closed(stale)

    clock.time += timedelta(seconds=21)
    async with lanes.take() as again:
        assert again is kept

    assert is_closed(stale)
    assert not is_closed(kept)


async def test_a_lane_that_is_taken_while_the_rest_is_closed_closes_with_its_exchange(lanes: Lanes) -> None:
    async with lanes.take() as resting:
        pass
    async with lanes.take() as taken, lanes.take():
        await lanes.aclose()
        assert not is_closed(taken)

    assert is_closed(taken)
    assert is_closed(resting)


async def test_a_lane_is_free_again_after_an_error(lanes: Lanes) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="broken"):
            async with lanes.take():
                raise RuntimeError("broken")


async def test_calls_one_after_the_other_share_one_connection(make_client: MakeClient, token: Token) -> None:
    async with serve_raw(HEAD, Do.STALL) as raw:
        client: SpritesClient = make_client(raw.url, **SHORT)
        await list_sessions(client, token)
        with pytest.raises(TimedOut):  # the same connection, on which the script has nothing more to say
            await list_sessions(client, token)

    assert len(raw.requests) == 1

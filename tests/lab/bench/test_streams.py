"""The bench of streams: the stand-in talks as the platform does, and a reader notices what is not as it was sent."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from controller.lab.bench.streams import Stretch, measure_stretch
from controller.lab.bench.streams_cores import keep_to, keeping_to, split_cores
from controller.lab.bench.streams_sink import Sink
from controller.lab.bench.streams_source import (
    FRAME_BYTES,
    FRAMES_PER_SECOND,
    HEAD,
    Stream,
    StreamPlace,
    StreamSource,
)
from tests.lab.watching import until
from tests.support.secrecy import build_sprites_token

TOKEN = build_sprites_token("acme")
CREATED = datetime(2026, 11, 30, 12, tzinfo=UTC)
PLACES = tuple(StreamPlace("box", str(number), CREATED) for number in (7, 8))
HEADER_BYTES = 4
"""Of the WebSocket message around a frame."""


class NoSocket(aiohttp.ClientWebSocketResponse):
    """What a reader has that is fed by hand."""

    def __init__(self) -> None:
        pass


async def build_sink() -> Sink:
    return Sink(NoSocket(), 7)


def make(count: int, *, number: int = 7) -> list[bytes]:
    stream = Stream(number, PLACES[0])
    return [stream.make_frame()[HEADER_BYTES:] for _ in range(count)]


async def test_frames_are_read_however_they_are_cut_and_joined_after_the_past() -> None:
    sink, frames = await build_sink(), make(5)

    for piece in (b"the past\r\n\x1e", b"\x1b[2J" + frames[0][:2], frames[0][2:] + frames[1] + frames[2][:700]):
        sink.take(piece, 1)
    for piece in (frames[2][700:], frames[3] + frames[4]):
        sink.take(piece, 2)

    assert (sink.first, sink.following) == (0, 5)
    assert (sink.lost_bytes, sink.disordered_bytes) == (0, 0)
    assert list(sink.came_ns) == [1, 1, 2, 2, 2]


@pytest.mark.parametrize(
    ("order", "lost", "disordered"),
    [
        ((0, 1, 2, 3), 0, 0),
        ((2, 3, 4), 0, 0),
        ((0, 1, 3), 1, 0),
        ((0, 2, 1, 3), 1, 1),
        ((0, 1, 1, 2), 0, 1),
    ],
    ids=["all", "from the middle on", "one is missing", "two change places", "one comes twice"],
)
async def test_what_is_not_the_next_frame_is_counted(order: tuple[int, ...], lost: int, disordered: int) -> None:
    sink, frames = await build_sink(), make(5)

    sink.take(b"".join(frames[number] for number in order), 1)

    assert (sink.lost_bytes, sink.disordered_bytes) == (lost * FRAME_BYTES, disordered * FRAME_BYTES)


async def test_another_ones_bytes_and_bytes_of_nobody_are_out_of_order() -> None:
    sink = await build_sink()

    sink.take(make(1)[0] + make(1, number=8)[0] + b"x" * FRAME_BYTES, 1)

    assert sink.disordered_bytes == 2 * FRAME_BYTES


async def test_what_has_not_come_in_the_end_is_lost() -> None:
    sink = await build_sink()
    sink.take(make(1)[0], 1)

    await sink.wait_for_frames(4, within=timedelta(milliseconds=10))

    assert sink.lost_bytes == 3 * FRAME_BYTES


async def test_of_a_socket_that_has_ended_nothing_is_lost() -> None:
    sink = await build_sink()
    sink.has_ended = True

    await sink.wait_for_frames(4, within=timedelta(seconds=5))

    assert sink.lost_bytes == 0
    assert not await sink.wait_until_holding()


async def test_what_a_gateway_adds_is_told_by_the_very_same_frames() -> None:
    through, direct = await build_sink(), await build_sink()
    began = time.monotonic()
    for frame in make(100):
        *_, sent = HEAD.unpack_from(frame)
        direct.take(frame, sent + 1_000_000)
        through.take(frame, sent + 4_000_000)
    stretch = Stretch(
        timedelta(seconds=began), timedelta(seconds=time.monotonic()), timedelta(seconds=1), timedelta(seconds=1)
    )

    figures = measure_stretch({7: through}, {7: direct}, stretch)

    assert figures["streams_frames_paired"] == 100
    assert figures["streams_added_p50_s"] == figures["streams_added_p99_s"] == 0.003
    assert (figures["streams_direct_p99_s"], figures["streams_through_p99_s"]) == (0.001, 0.004)


@pytest.fixture
async def source() -> AsyncIterator[StreamSource]:
    source = StreamSource(PLACES, TOKEN)
    async with source.serving():
        yield source
    await asyncio.sleep(0)


async def test_the_stand_in_says_who_it_is_shows_the_past_and_talks_to_every_socket_alike(source: StreamSource) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers) as http, asyncio.TaskGroup() as group:
        sinks = []
        for stdin in ("true", "false"):
            socket = await http.ws_connect(f"{source.url}/v1/sprites/box/exec/7?stdin={stdin}")
            told = await socket.receive_json()
            assert (told["type"], told["session_id"], told["created"], told["tty"]) == (
                "session_info",
                "7",
                int(CREATED.timestamp()),
                True,
            )
            sinks.append(Sink(socket, 0))
            group.create_task(sinks[-1].read())
        began = time.monotonic()
        async with source.talking():
            await until(lambda: source.streams["box", "7"].made >= FRAMES_PER_SECOND / 2)
        made, took = source.streams["box", "7"].made, time.monotonic() - began
        for sink in sinks:
            await sink.wait_for_frames(made, within=timedelta(seconds=30))
            await sink.socket.close()

    assert made <= FRAMES_PER_SECOND * took + 1
    assert [(sink.following, sink.lost_bytes, sink.disordered_bytes) for sink in sinks] == [(made, 0, 0)] * 2


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/v1/sprites/box", TOKEN, 200),
        ("/v1/sprites/box/exec", TOKEN, 200),
        ("/v1/sprites/box/exec/7", "other", 401),
        ("/v1/sprites/box/exec/9", TOKEN, 404),
        ("/v1/sprites/other", TOKEN, 404),
    ],
)
async def test_the_stand_in_answers_as_the_platform_does(
    source: StreamSource, path: str, token: str, status: int
) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as http, http.get(f"{source.url}{path}") as answer:
        body = await answer.text()

    assert answer.status == status
    if path.endswith("/exec"):
        assert '"count": 2' in body


def test_we_keep_to_the_cores_that_are_left_during_the_body_only() -> None:
    before = os.sched_getaffinity(0)
    own, others = split_cores()

    with keeping_to((), others):
        during = os.sched_getaffinity(0)
        keep_to(os.getpid(), own)
        moved = os.sched_getaffinity(0)

    assert (during, moved) == (set(others), set(own))
    assert own & others == (frozenset() if len(before) > 1 else own)
    assert os.sched_getaffinity(0) == before

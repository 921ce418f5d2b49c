"""Back-pressure from upstream: what comes down waits for somebody who alone reads it, and for nobody among others."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast
from urllib.parse import urlsplit

from controller.api.session import Announced, Identity, SpriteState
from controller.errors import Failure
from controller.gateway.stream import Recorded, StreamSettings
from controller.plan.fence_closing import Ending
from controller.plan.looks import LookFailed
from controller.sprites.attach import Attachment
from controller.sprites.exec_frames import Framing
from controller.tenure import Tenure
from tests.gateway.stream.stage import LIMIT, Stage, open_stage

SESSION = Identity("sprite-1", "77", datetime(2026, 11, 30, 12, tzinfo=UTC))
SETTINGS = StreamSettings(queue_bytes=256 * 1024)
FRAMES, FRAME_BYTES = 8_000, 1024
"""8 MB: far more than waits here and in the buffers of the system together."""


class Flood:
    """A session that writes as fast as it is read, and then no more. It is the way to it as well."""

    announced = Announced(SESSION.session_id, SESSION.created or datetime.now(UTC))
    framing = Framing.RAW

    def __init__(self) -> None:
        self.read = 0

    @asynccontextmanager
    async def attach(self, _identity: Identity, *, typing: Tenure | None) -> AsyncIterator[Attachment]:
        yield cast("Attachment", self)

    async def list_sessions(self) -> LookFailed:
        return LookFailed(Failure.UNREACHABLE, "It is attached to all the same.", timedelta(0))

    async def find_state(self) -> SpriteState:
        return SpriteState.RUNNING

    async def receive(self) -> bytes:
        if self.read == FRAMES:
            await asyncio.Event().wait()
        self.read += 1
        return b"%08d" % self.read + b"." * (FRAME_BYTES - 8)

    async def stands(self) -> None:
        """Wait until nothing more is read."""
        async with asyncio.timeout(LIMIT):
            before = -1
            while before != self.read or not self.read:
                before = self.read
                await asyncio.sleep(0.3)


@asynccontextmanager
async def looking_away(stage: Stage, name: str) -> AsyncIterator[asyncio.StreamReader]:
    """Somebody who looks on and reads nothing until the test does."""
    address = urlsplit(stage.url)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=1024)
    writer.write(
        f"GET /{name}?view=1&vendor=1 HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    try:
        await stage.until(lambda stage: name in stage.clients)
        yield reader
    finally:
        writer.transport.abort()


async def test_what_comes_down_stands_still_while_somebody_alone_does_not_read_and_then_they_get_all_of_it() -> None:
    flood = Flood()
    seen = bytearray()
    async with (
        open_stage(flood, Recorded(SESSION, Framing.RAW), SETTINGS) as stage,
        looking_away(stage, "ann") as reader,
    ):
        await flood.stands()
        read_meanwhile = flood.read
        async with asyncio.timeout(LIMIT):
            while b"%08d" % FRAMES not in seen[-2 * FRAME_BYTES :]:
                portion = await reader.read(1 << 20)
                assert portion, "The connection was cut."
                seen += portion
        ending = stage.clients["ann"].ending

    assert 0 < read_meanwhile < FRAMES // 2
    assert ending is None
    assert re.findall(rb"(\d{8})\.{9}", seen) == [b"%08d" % number for number in range(1, FRAMES + 1)]


async def test_nobody_waits_for_one_of_several_who_does_not_read() -> None:
    flood = Flood()
    async with open_stage(flood, Recorded(SESSION, Framing.RAW), SETTINGS) as stage, looking_away(stage, "ann"):
        await flood.stands()
        bob = await stage.come("bob", "view", "vendor")
        await stage.until(lambda _: flood.read == FRAMES)

        assert stage.clients["ann"].ending is Ending.TOO_SLOW
        assert bob.close_code is None


async def test_somebody_alone_who_reads_nothing_for_as_long_as_a_pong_may_take_is_dropped() -> None:
    """Nothing gets through to them, a ping no more than anything else: they must not count as present for ever."""
    flood = Flood()
    # They are stuck before the first ping: whoever does not answer one has left.
    brief = timedelta(seconds=1)
    patience = replace(SETTINGS, ping_every=brief, pong_limit=brief, farewell=brief / 5)
    async with open_stage(flood, Recorded(SESSION, Framing.RAW), patience) as stage, looking_away(stage, "ann"):
        await stage.until(lambda stage: "ann" in stage.endings)

        assert stage.endings["ann"] is Ending.TOO_SLOW
        assert flood.read < FRAMES

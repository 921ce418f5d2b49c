"""The wire of the race: what was sent arrives, late, in order, and also from somebody who is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from controller.lab.bench.race_lines import Wire
from tests.lab.watching import until

LIMIT_SECONDS = 5.0


class Far:
    """What comes out at the far end."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.ended = False
        self._changed = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome")
        while piece := await reader.read(1 << 16):
            self.got += piece
            self._changed.set()
        self.ended = True
        self._changed.set()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def until(self, got: bytes, *, ended: bool = False) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            while bytes(self.got) != got or self.ended != ended:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[Wire, Far, asyncio.StreamReader, asyncio.StreamWriter]]:
    far = Far()
    server = await asyncio.start_server(far.take, "127.0.0.1", 0)
    async with server, Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(wire.url.rpartition(":")[2]))
        assert await reader.readexactly(7) == b"welcome"
        yield wire, far, reader, writer
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        await far.until(bytes(far.got), ended=True)


async def test_what_somebody_sent_arrives_although_they_are_gone_by_then() -> None:
    async with wired() as (wire, far, _, writer):
        wire.stop()
        writer.write(b"late")
        await until(lambda: wire.kept_bytes >= 4)
        writer.transport.abort()
        await asyncio.sleep(0.05)
        assert (bytes(far.got), far.ended) == (b"", False)

        wire.flow()

        await far.until(b"late", ended=True)


async def test_a_slow_wire_keeps_the_order_also_when_it_is_fast_again() -> None:
    async with wired() as (wire, far, _, writer):
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        with wire.slowed_down(timedelta(seconds=0.2)):
            writer.write(b"slow")
            await until(lambda: wire.slowed > 0)
        writer.write(b"fast")
        await far.until(b"slowfast")

        assert loop.time() - began >= 0.2

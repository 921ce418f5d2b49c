"""
A gateway's stream for tests: a real server with one `Hub`, and people with real sockets.

`Stage` stands in for the doors and the fence: whoever attaches is let in, and who may type is a set of socket ids that
a test fills. People are aiohttp clients, which gather what they get.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

from controller.clock import SystemClock
from controller.gateway.stream import (
    BothDelays,
    Client,
    Dialect,
    Hub,
    News,
    Recorded,
    Role,
    StreamSettings,
    Way,
    build_socket,
)
from controller.plan.fence_closing import Ending
from controller.tenure import Tenure
from tests.support.secrecy import look

ENDS = (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.CLOSED)
LIMIT = 30.0
"""Seconds that any wait of a test may take."""


class Person:
    """A client's socket, and all that came over it."""

    def __init__(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = connection
        self.frames: list[str | bytes] = []
        self.close_code: int | None = None
        self.pinged = 0
        self._news = asyncio.Event()

    @property
    def output(self) -> bytes:
        return b"".join(frame for frame in self.frames if isinstance(frame, bytes))

    @property
    def texts(self) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.frames if isinstance(frame, str)]

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [text for text in self.texts if text["type"] == kind]

    @property
    def words(self) -> list[str]:
        return [text["word"] for text in self.told("notice")]

    async def read(self, *, answer_pings: bool = True) -> None:
        while (message := await self.socket.receive()).type not in ENDS:
            match message.type:
                case aiohttp.WSMsgType.TEXT | aiohttp.WSMsgType.BINARY:
                    self.frames.append(message.data)
                    # What runs in the terminal may write what it likes.
                    if message.type is aiohttp.WSMsgType.TEXT:
                        look("A text frame of a gateway", message.data)
                case aiohttp.WSMsgType.PING:
                    self.pinged += 1
                    if answer_pings:
                        await self.socket.pong(message.data)
            self._news.set()
        look("The reason of a close", str(message.extra))
        self.close_code = self.socket.close_code
        self._news.set()

    async def until(self, met: Any, within: float = LIMIT) -> None:
        """Wait until a condition of what came is met."""
        async with asyncio.timeout(within):
            while not met(self):
                self._news.clear()
                await self._news.wait()

    async def sees(self, text: bytes) -> None:
        await self.until(lambda person: text in person.output)

    async def hears(self, word: str) -> None:
        await self.until(lambda person: word in person.words)

    async def is_closed(self, within: float = LIMIT) -> int:
        await self.until(lambda person: person.close_code is not None, within)
        assert self.close_code is not None
        return self.close_code

    async def types(self, data: bytes) -> None:
        await self.socket.send_bytes(data)

    async def says(self, **fields: Any) -> None:
        await self.socket.send_str(json.dumps(fields))


class Stage:
    """One terminal, served."""

    def __init__(self, way: Way, recorded: Recorded | None, settings: StreamSettings) -> None:
        self.news: list[News] = []
        self.may_type: set[str] = set()
        self.clients: dict[str, Client] = {}
        self.endings: dict[str, Ending] = {}
        self.auths: list[str] = []
        self.delays = BothDelays()
        self.settings = settings
        self.hub = Hub(
            recorded,
            way,
            may_type=lambda client: client.socket_id in self.may_type,
            on_news=self._take_news,
            clock=SystemClock(),
            settings=settings,
        )
        self.url = ""
        self._changed = asyncio.Event()
        self._session: aiohttp.ClientSession | None = None
        self._reading: asyncio.TaskGroup | None = None

    def _take_news(self, news: News) -> None:
        self.news.append(news)
        self._changed.set()

    async def until(self, met: Any) -> None:
        async with asyncio.timeout(LIMIT):
            while not met(self):
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.02):
                        await self._changed.wait()

    async def attach(self, request: web.Request) -> web.StreamResponse:
        response = build_socket(self.settings)
        await response.prepare(request)
        name = request.match_info["name"]
        assert request.transport is not None
        # Small buffers in the system, so that somebody who does not read is noticed within a test's output.
        plain = request.transport.get_extra_info("socket")
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        client = Client(
            response,
            request.transport.abort,
            socket_id=name,
            role=Role.VIEW if "view" in request.query else Role.TYPE,
            dialect=Dialect.VENDOR if "vendor" in request.query else Dialect.OURS,
            settings=self.settings,
            on_auth=self.auths.append,
            delays=self.delays,
        )
        self.clients[name] = client
        self._changed.set()
        self.endings[name] = await self.hub.join(client)
        self._changed.set()
        return response

    async def come(self, name: str, *flags: str, answer_pings: bool = True) -> Person:
        """Attach somebody, and read what they get."""
        assert self._session is not None
        assert self._reading is not None
        query = "&".join(f"{flag}=1" for flag in flags)
        connection = await self._session.ws_connect(f"{self.url}/{name}?{query}", autoping=False, max_msg_size=0)
        person = Person(connection)
        self._reading.create_task(person.read(answer_pings=answer_pings))
        await self.until(lambda stage: name in stage.clients)
        return person

    def let_type(self, name: str) -> None:
        self.may_type = {name}
        self.hub.let_type(self.clients[name], Tenure(1))

    async def come_to_type(self, name: str, *flags: str) -> Person:
        person = await self.come(name, *flags)
        self.let_type(name)
        await person.hears("Holding")
        return person


@contextlib.asynccontextmanager
async def open_stage(
    way: Way, recorded: Recorded | None, settings: StreamSettings | None = None
) -> AsyncIterator[Stage]:
    """Serve one terminal on loopback for the length of a `with` block."""
    stage = Stage(way, recorded, settings or StreamSettings())
    app = web.Application()
    app.router.add_get("/{name}", stage.attach)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    stage.url = f"http://{host}:{port}"
    try:
        async with asyncio.TaskGroup() as group, aiohttp.ClientSession() as session:
            hub = group.create_task(stage.hub.run())
            stage._session = session
            async with asyncio.TaskGroup() as reading:
                stage._reading = reading
                yield stage
                stage.hub.close(Ending.RESTARTING)
                await asyncio.wait_for(hub, LIMIT)
    finally:
        await runner.cleanup()
        # Connections that were cut are collected on the next turns of the loop.
        await asyncio.sleep(0)

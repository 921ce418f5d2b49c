"""
The counterpart of the client in tests: a real server on loopback that answers what a test tells it to.

`Counterpart` speaks HTTP and WebSocket through aiohttp; `RawServer` writes bytes as they are, for everything that a
decent server cannot do: cut bodies, resets, stalls, garbage.
"""

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aiohttp import WSMsgType, web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Talk = Callable[[web.WebSocketResponse], Awaitable[None]]


@dataclass(frozen=True)
class Seen:
    """One request as it came over the wire; `target` is the undecoded path with its query."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def answer(status: int = 200, body: bytes | str = b"", **headers: str) -> Handler:
    """Answer with a status, a body, and headers (`Retry_After` becomes `Retry-After`)."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body.encode() if isinstance(body, str) else body

    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=raw, headers=names)

    return handle


def answer_json(value: Any, status: int = 200, **headers: str) -> Handler:
    names = {name.replace("_", "-"): text for name, text in headers.items()}

    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.json_response(value, status=status, headers=names)

    return handle


def talk(script: Talk, *, autoclose: bool = True) -> Handler:
    """Accept an upgrade and follow a script."""

    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(autoclose=autoclose, max_msg_size=0)
        await ws.prepare(request)
        await script(ws)
        return ws

    return handle


async def read_stdin(ws: web.WebSocketResponse) -> bytes:
    """Read stdin frames up to the end frame."""
    read = bytearray()
    while True:
        message = await ws.receive()
        assert message.type is WSMsgType.BINARY, message
        if message.data[0] == 4:
            return bytes(read)
        assert message.data[0] == 0
        read += message.data[1:]


async def wait_for_leaving(ws: web.WebSocketResponse) -> int | None:
    """Read on until the client has gone, and give the code it closed with."""
    while True:
        message = await ws.receive()
        if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
            return ws.close_code


class Counterpart:
    """Answers the next request with the next handler; a request too many gets 599."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self._handlers: deque[Handler] = deque()

    def then(self, *handlers: Handler) -> None:
        self._handlers.extend(handlers)

    def always(self, handler: Handler, times: int) -> None:
        self._handlers.extend([handler] * times)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.seen.append(Seen(request.method, request.raw_path, dict(request.headers), body))
        if not self._handlers:
            return web.Response(status=599)
        return await self._handlers.popleft()(request)


@contextlib.asynccontextmanager
async def serve() -> AsyncIterator[Counterpart]:
    counterpart = Counterpart()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", counterpart.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    counterpart.url = f"http://{host}:{port}"
    try:
        yield counterpart
    finally:
        await runner.cleanup()


class Do(Enum):
    WAIT = "wait"
    """Say nothing for 50 ms."""
    STALL = "stall"
    """Say nothing more until the client has gone."""
    RESET = "reset"
    """Cut the connection with a reset."""


class RawServer:
    """For each connection: read the head of one request, then write or do what the script says, then close."""

    def __init__(self, script: list[bytes | Do]) -> None:
        self.script = script
        self.requests: list[bytes] = []
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            for step in self.script:
                match step:
                    case bytes():
                        writer.write(step)
                        await writer.drain()
                    case Do.WAIT:
                        await asyncio.sleep(0.05)
                    case Do.STALL:
                        await reader.read()
                    case Do.RESET:
                        # Let what was written arrive first: a reset overtakes it.
                        await asyncio.sleep(0.05)
                        peer = writer.get_extra_info("socket")
                        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        writer.transport.abort()
                        return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serve_raw(*script: bytes | Do) -> AsyncIterator[RawServer]:
    raw = RawServer(list(script))
    server = await asyncio.start_server(raw.handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    raw.url = f"http://{host}:{port}"
    try:
        yield raw
    finally:
        server.close()
        await server.wait_closed()


def find_closed_port() -> int:
    """Give a port of loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

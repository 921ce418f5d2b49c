"""
A passage between a client and the API server that notes every request, and fails as a test tells it.

It listens on loopback without TLS, so that a test sees what goes through, and speaks TLS to the real server.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from controller.sockets import Sockets


def is_list(request: web.Request) -> bool:
    return request.path.endswith("/agentterminals") and "watch" not in request.query


def is_watch(request: web.Request) -> bool:
    return request.path.endswith("/agentterminals") and "watch" in request.query


@dataclass
class Fault:
    """An answer of our own to the next requests of a kind."""

    matches: Callable[[web.Request], bool]
    status: int
    body: dict[str, Any]
    times: float


@dataclass
class Passage:
    """One passage; `open_passage` starts and ends it."""

    upstream: str
    session: aiohttp.ClientSession
    port: int = 0
    calls: list[tuple[str, str]] = field(default_factory=list)
    clients: set[Any] = field(default_factory=set)
    is_cut: bool = False
    faults: list[Fault] = field(default_factory=list)
    transports: set[asyncio.Transport] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def methods(self) -> set[str]:
        return {method for method, _ in self.calls}

    def cut(self) -> None:
        """Reset everything that is open, and everything that comes until `mend`."""
        self.is_cut = True
        self.reset()

    def mend(self) -> None:
        self.is_cut = False

    def reset(self) -> None:
        """Reset everything that is open."""
        for transport in self.transports:
            transport.abort()
        self.transports.clear()

    def answer(
        self, matches: Callable[[web.Request], bool], status: int, body: dict[str, Any], *, times: float = 1
    ) -> None:
        """Answer the next requests of a kind ourselves."""
        self.faults.append(Fault(matches, status, body, times))

    async def handle(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        self.clients.add(transport.get_extra_info("peername"))
        self.transports.add(transport)
        if self.is_cut:
            transport.abort()
            return web.Response(status=503)
        self.calls.append((request.method, request.path_qs))
        for fault in self.faults:
            if fault.times > 0 and fault.matches(request):
                fault.times -= 1
                return web.json_response(fault.body, status=fault.status)
        headers = {key: value for key, value in request.headers.items() if key.lower() != "host"}
        async with self.session.request(
            request.method, f"{self.upstream}{request.path_qs}", headers=headers, data=await request.read() or None
        ) as theirs:
            ours = web.StreamResponse(status=theirs.status, headers={"Content-Type": theirs.headers["Content-Type"]})
            with suppress(aiohttp.ClientError, ConnectionError):
                await ours.prepare(request)
                async for chunk in theirs.content.iter_any():
                    await ours.write(chunk)
                await ours.write_eof()
                return ours
            transport.abort()
            return ours


@asynccontextmanager
async def open_passage(upstream: str, ca_file: Path) -> AsyncIterator[Passage]:
    """Open a passage to the API server for the time of a test."""
    trust = ssl.create_default_context(cafile=str(ca_file))
    sockets = Sockets()
    connector = aiohttp.TCPConnector(limit=0, ssl=trust, socket_factory=sockets.make)
    timeout = aiohttp.ClientTimeout(total=None)
    async with sockets, aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        passage = Passage(upstream, session)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", passage.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        passage.port = runner.addresses[0][1]
        try:
            yield passage
        finally:
            passage.cut()
            await runner.cleanup()

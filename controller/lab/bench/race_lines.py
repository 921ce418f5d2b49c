"""
The lines of a gateway in the race, and what goes wrong with them.

Problem: a fence is only as good as what it does when the API server hangs, a watch is dead or late, and bytes stay on
their way for longer than a gateway lives. Promise: each of these happens when it is told to, for as long as it is told
to, and is counted when it hit something; what the API server was asked by then still reaches it, as late as it may be,
whether the gateway waits for it or not.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, Self, cast
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp import web

from controller.api.names import PLURAL
from controller.clock import ElapsedClock
from controller.sockets import Sockets

LOOPBACK: Final = "127.0.0.1"
LOCKS: Final = ("/status", "/status/socket")
"""Where a lock is added; the first where there is no status yet."""
LEASES: Final = "/leases/atgw-"
_NOT_PASSED: Final = frozenset({"host", "connection", "transfer-encoding", "content-length"})


@dataclass(slots=True)
class LineCounts:
    """What went through a line to the API server, and what was done to it."""

    hung: int = 0
    """Requests and pieces of answers that were held up."""
    cut_watches: int = 0
    delayed: int = 0
    """Pieces of a watch that came late."""
    kept_locks: int = 0
    """Writes of locks that landed late."""
    claims: int = 0
    """Writes of specs: claims, and the taking back of names."""
    locks: int = 0
    """Writes of statuses: locks, and their clearing."""
    renewals: dict[str, timedelta] = field(default_factory=dict)
    """When the last answered renewal of each incarnation was sent, by the clock that runs on in suspend."""


class ApiLine:
    """
    A gateway's line to the API server; use it as `async with`.

    It listens on loopback without TLS and speaks TLS to the real one.

    Args:
        server: The API server.
        ca_file: What to trust.
        clock: For delays and renewals.
    """

    def __init__(self, server: str, ca_file: Path, clock: ElapsedClock) -> None:
        self.counts = LineCounts()
        self.url = ""
        self._server = server
        self._ca_file = ca_file
        self._clock = clock
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession
        self._flowing, self._locking = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        self._locking.set()
        self._delay = timedelta()
        self._is_cut = False
        self._watches: set[asyncio.Transport] = set()

    async def __aenter__(self) -> Self:
        """Listen."""
        async with AsyncExitStack() as stack:
            trust = ssl.create_default_context(cafile=str(self._ca_file))
            sockets = await stack.enter_async_context(Sockets())
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(limit=0, ssl=trust, socket_factory=sockets.make),
                    timeout=aiohttp.ClientTimeout(total=None),
                    auto_decompress=False,
                )
            )
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, LOOPBACK, 0).start()
            self.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let everything go."""
        self._flowing.set()
        self._locking.set()
        self._delay = timedelta()
        self._abort_watches()
        await self._stack.aclose()

    @asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        """Answer nothing during the body; what is asked meanwhile is passed on afterwards, however late."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    @asynccontextmanager
    async def keeping_locks(self) -> AsyncIterator[None]:
        """Keep the writes of locks, and only these, on their way during the body."""
        self._locking.clear()
        try:
            yield
        finally:
            self._locking.set()

    @asynccontextmanager
    async def delaying_watches(self, by: timedelta) -> AsyncIterator[None]:
        """Let what a watch tells come this much later during the body."""
        self._delay = by
        try:
            yield
        finally:
            self._delay = timedelta()

    @asynccontextmanager
    async def cutting_watches(self) -> AsyncIterator[None]:
        """Cut every watch, and each that is opened during the body."""
        self._is_cut = True
        self._abort_watches()
        try:
            yield
        finally:
            self._is_cut = False

    def _abort_watches(self) -> None:
        for transport in self._watches:
            transport.abort()
            self.counts.cut_watches += 1
        self._watches.clear()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        sent, body = self._clock.elapsed(), await request.read()
        is_watch = request.path.endswith(f"/{PLURAL}") and "watch" in request.query
        transport = request.transport
        if transport is None or (is_watch and self._is_cut):
            self.counts.cut_watches += 1
            return _drop(request)
        self._count(request)
        if not self._locking.is_set() and _is_lock(request, body):
            self.counts.kept_locks += 1
            await self._locking.wait()
        await self._wait()
        if is_watch:
            self._watches.add(transport)
        try:
            return await self._pass(request, body, sent, is_watch=is_watch)
        except (aiohttp.ClientError, ConnectionError):
            return _drop(request)
        finally:
            self._watches.discard(transport)

    async def _pass(self, request: web.Request, body: bytes, sent: timedelta, *, is_watch: bool) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _NOT_PASSED}
        async with self._session.request(
            request.method, f"{self._server}{request.raw_path}", headers=headers, data=body or None
        ) as theirs:
            content = b"" if is_watch else await theirs.read()
            await self._wait()
            passed = {name: value for name, value in theirs.headers.items() if name.lower() not in _NOT_PASSED}
            ours = web.StreamResponse(status=theirs.status, headers=passed)
            await ours.prepare(request)
            if not is_watch:
                await ours.write(content)
            else:
                try:
                    await self._pass_watch(theirs, ours)
                finally:
                    theirs.close()
            await ours.write_eof()
            if theirs.status < 300 and (incarnation := _find_renewed(request, body)) is not None:
                renewals = self.counts.renewals
                renewals[incarnation] = max(sent, renewals.get(incarnation, sent))
            return ours

    async def _pass_watch(self, theirs: aiohttp.ClientResponse, ours: web.StreamResponse) -> None:
        async for piece in theirs.content.iter_any():
            await self._wait()
            if self._delay:
                self.counts.delayed += 1
                await self._clock.sleep(self._delay)
            await ours.write(piece)

    async def _wait(self) -> None:
        if not self._flowing.is_set():
            self.counts.hung += 1
            await self._flowing.wait()

    def _count(self, request: web.Request) -> None:
        if request.method == "PATCH" and f"/{PLURAL}/" in request.path:
            if request.path.endswith("/status"):
                self.counts.locks += 1
            else:
                self.counts.claims += 1


def _find_renewed(request: web.Request, body: bytes) -> str | None:
    """Tell whose Lease a request creates or renews."""
    match request.method:
        case "PUT" if LEASES in request.path:
            return request.path.rpartition(LEASES)[2]
        case "POST" if request.path.endswith("/leases"):
            return str(orjson.loads(body)["metadata"]["name"]).removeprefix(LEASES.rpartition("/")[2])
        case _:
            return None


def _is_lock(request: web.Request, body: bytes) -> bool:
    """Tell whether a request writes a lock; one that clears it is none."""
    if request.method != "PATCH" or not request.path.endswith("/status"):
        return False
    return any(one["op"] == "add" and one["path"] in LOCKS for one in orjson.loads(body))


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=503)


class Wire:
    """
    A gateway's way to the sprites, as bytes; use it as `async with`.

    What a gateway has sent arrives, also when the gateway is gone by then, as on any network. Nothing is held back but
    while it is told to; how much may wait here is bounded by what a gateway leaves unconfirmed.

    Args:
        url: Where the sprites are.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or LOOPBACK, parts.port or 0
        self._delay_seconds = 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[_End] = set()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self.flows = True
        self.url = ""
        self.kept_bytes = 0
        """What is on its way to the sprites and does not arrive."""
        self.slowed = 0
        """Pieces that came late."""

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _End(self, self._connect), LOOPBACK, 0)
        self.url = f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Cut everything."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in tuple(self._ends):
            end.abort()
        await self._emptied.wait()

    def stop(self) -> None:
        """Let nothing arrive from now on, either way."""
        self.flows = False

    def flow(self) -> None:
        """Let everything arrive."""
        self.flows, self.kept_bytes = True, 0
        for end in tuple(self._ends):
            end.deliver_due()

    @contextmanager
    def slowed_down(self, by: timedelta) -> Iterator[None]:
        """Let everything take this much longer during the body, each way."""
        self._delay_seconds = by.total_seconds()
        try:
            yield
        finally:
            self._delay_seconds = 0.0

    def carry(self, end: "_End", piece: bytes | None) -> None:
        """Let a piece arrive at an end, or the other side's close; in order, and not before its time."""
        if self._delay_seconds:
            self.slowed += 1
        if not self.flows and end.is_far:
            self.kept_bytes += len(piece or b"")
        end.queue.append((asyncio.get_running_loop().time() + self._delay_seconds, piece))
        end.deliver_due()

    def add(self, end: "_End") -> None:
        """Know an end."""
        self._ends.add(end)
        self._emptied.clear()

    def drop(self, end: "_End") -> None:
        """Know it no more."""
        self._ends.discard(end)
        if not self._ends:
            self._emptied.set()

    def _connect(self, near: "_End") -> None:
        async def connect() -> None:
            loop = asyncio.get_running_loop()
            try:
                _, far = await loop.create_connection(lambda: _End(self, None), self._host, self._port)
            except OSError:
                near.abort()
                return
            far.join(near)
            near.join(far)

        task = asyncio.get_running_loop().create_task(connect())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _End(asyncio.Protocol):
    """One end of one connection over a wire; what comes before the other end is there waits for it."""

    def __init__(self, wire: Wire, connect: "Callable[[_End], None] | None") -> None:
        self.is_far = connect is None
        self._wire = wire
        self._connect = connect
        self._other: _End | None = None
        self._early: list[bytes | None] = []
        self._timer: asyncio.TimerHandle | None = None
        self.queue: deque[tuple[float, bytes | None]] = deque()
        """What comes to this end, and when."""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A protocol of a stream is given one that writes; that of another loop is of another class.
        self._transport = cast("asyncio.Transport", transport)
        self._wire.add(self)
        if self._connect is not None:
            self._connect(self)

    def data_received(self, data: bytes) -> None:
        self._pass(data)

    def connection_lost(self, _: Exception | None) -> None:
        self._wire.drop(self)
        self._pass(None)

    def join(self, other: "_End") -> None:
        self._other = other
        for piece in self._early:
            self._wire.carry(other, piece)

    def deliver_due(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wire.flows and self.queue and self.queue[0][0] <= loop.time():
            self._deliver(self.queue.popleft()[1])
        if self._timer is None and self._wire.flows and self.queue:
            self._timer = loop.call_at(self.queue[0][0], self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.deliver_due()

    def _deliver(self, piece: bytes | None) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if piece is None:
            self._transport.close()
        else:
            self._transport.write(piece)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _pass(self, piece: bytes | None) -> None:
        if self._other is None:
            self._early.append(piece)
        else:
            self._wire.carry(self._other, piece)

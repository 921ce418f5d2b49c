"""The counterparts of the client in tests: a clock that a hand moves, and a real server that does as it is told."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import orjson
from aiohttp import web

from controller.kube.calls import KubeCallReport
from controller.kube.client import KubeClient
from controller.kube.credentials import ConnectionFacts, load_credentials
from controller.kube.settings import KubeSettings
from controller.tenure import Tenure

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OBJECT = {"metadata": {"name": "one", "uid": "u"}}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HandClock:
    """Stands until somebody moves it; whoever sleeps moves it."""

    def __init__(self) -> None:
        self.passed = timedelta(0)
        self.slept: list[timedelta] = []

    def now(self) -> datetime:
        return NOON + self.passed

    def monotonic(self) -> timedelta:
        return self.passed

    async def sleep(self, delay: timedelta) -> None:
        self.slept.append(delay)
        self.passed += delay
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Seen:
    """One request as it came over the wire."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


async def answer_object(_request: web.Request) -> web.StreamResponse:
    return web.json_response(OBJECT)


def answer(status: int, body: Any = OBJECT, **headers: str) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        return web.Response(status=status, body=raw, headers=names)

    return handle


async def cut(request: web.Request) -> web.StreamResponse:
    """Break the connection instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.Event().wait()
    raise AssertionError


async def cut_in_the_middle(request: web.Request) -> web.StreamResponse:
    """Begin an answer and break the connection."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"metadata":')
    assert request.transport is not None
    request.transport.abort()
    return response


async def hang(_request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


class Gate:
    """Keeps requests until it is opened."""

    def __init__(self) -> None:
        self.entered = 0
        self._changed = asyncio.Condition()
        self._open = asyncio.Event()

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        async with self._changed:
            self.entered += 1
            self._changed.notify_all()
        await self._open.wait()
        return await answer_object(request)

    async def wait_entered(self, number: int) -> None:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: self.entered >= number)

    def open(self) -> None:
        self._open.set()


class Server:
    """A real HTTP server on loopback; `script` answers first, one handler a request, then `otherwise`."""

    def __init__(self) -> None:
        self.script: list[Handler] = []
        self.otherwise: Handler = answer_object
        self.seen: list[Seen] = []
        self.port = 0
        self.scheme = "http"
        self._connections: dict[int, int] = {}
        self._runner: web.AppRunner | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> Self:
        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{rest:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.scheme = "https" if context is not None else "http"
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        number = self._connections.setdefault(id(request.transport), len(self._connections))
        body = await request.read()
        self.seen.append(Seen(request.method, request.raw_path, dict(request.headers), body, number))
        handler = self.script.pop(0) if self.script else self.otherwise
        return await handler(request)


@dataclass
class Facts:
    """What the next reading of the credentials gives."""

    facts: ConnectionFacts
    readings: int = 0

    def __call__(self, _settings: KubeSettings) -> ConnectionFacts:
        self.readings += 1
        return self.facts

    def change(self, **changes: Any) -> None:
        self.facts = replace(self.facts, **changes)


@dataclass
class Bench:
    """A client, its server, and what they told."""

    client: KubeClient
    server: Server
    facts: Facts
    clock: HandClock
    reports: list[KubeCallReport] = field(default_factory=list)


@asynccontextmanager
async def bench(server: Server, *, tenure: Tenure | None = None, **settings: Any) -> AsyncIterator[Bench]:
    facts = Facts(ConnectionFacts(server=server.url, scheme="Bearer", token="first-token"))
    chosen = KubeSettings(**settings)
    clock = HandClock()
    reports: list[KubeCallReport] = []
    credentials = await load_credentials(chosen, clock=clock, read=facts)
    async with KubeClient(credentials, chosen, clock, reports.append, tenure=tenure) as client:
        yield Bench(client, server, facts, clock, reports)

"""
A gate on the way between a client and a server, at which a test stops, answers, cuts or refuses what goes through.

It speaks HTTP/1.1 on loopback without TLS, passes bytes on as they are (a WebSocket too), and lives in a thread of its
own, so that blocking tests can use it. One connection carries one request: the server is asked to close after it.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

HEAD_BYTES: Final = 1 << 20
CALL_SECONDS: Final = 30.0
REACH_SECONDS: Final = 30.0


class At(Enum):
    """Where a hold stops a request."""

    BEFORE = "before"
    """The server has not got it, and never will if the client leaves."""
    BEFORE_FOR_SURE = "before, and on its way"
    """The server has not got it, and will when it is released, whether the client is still there or not."""
    AFTER = "after"
    """The server has answered, and the client knows nothing of it."""
    UPGRADED = "upgraded"
    """The client knows that its WebSocket stands, and has got nothing through it."""


@dataclass(frozen=True)
class Request:
    """What came to the gate."""

    number: int
    method: str
    target: str
    time: float
    """On the monotonic clock."""


Match = Callable[[Request], bool]


class Hold:
    """A request that is stopped, or will be."""

    def __init__(self, gate: "Gate", match: Match, at: At, skip: int) -> None:
        self._gate = gate
        self.match = match
        self.at = at
        self.skip = skip
        self.taken = False
        self.reached = threading.Event()
        self.done = threading.Event()
        self.released = asyncio.Event()

    def await_reached(self) -> None:
        """Wait until a request is stopped here."""
        assert self.reached.wait(REACH_SECONDS), f"Nothing was held {self.at.value} the answer."

    def await_done(self) -> None:
        """Wait until the server has answered what was held, or the client has left."""
        assert self.done.wait(REACH_SECONDS), "What was held has not come to its end."

    def release(self) -> None:
        """Let it go on."""
        self._gate.call(self.released.set)


@dataclass
class Answer:
    """What the gate says itself in place of the server."""

    match: Match
    status: int
    body: bytes
    headers: Mapping[str, str]
    times: float


@dataclass(eq=False)
class _Line:
    """One connection of a client."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes
    body: bytes
    is_upgrade: bool
    hold: Hold | None
    others: list[asyncio.StreamWriter] = field(default_factory=list)


class Gate:
    """One gate; use it as a context manager."""

    def __init__(self, upstream: str, ca_file: Path | None = None) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._tls = None if ca_file is None else ssl.create_default_context(cafile=str(ca_file))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines: set[_Line] = set()
        self._holds: list[Hold] = []
        self._answers: list[Answer] = []
        self._cuts: list[Match] = []
        self._stalls: list[Match] = []
        self._numbers = count()
        self.port = 0
        self.requests: list[Request] = []
        self.answered: set[int] = set()
        """The numbers of those whose answers have gone through to their ends."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._admit()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(CALL_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)

    @property
    def url(self) -> str:
        """Where the gate is."""
        return f"http://127.0.0.1:{self.port}"

    def hold(self, match: Match, at: At, *, skip: int = 0) -> Hold:
        """Stop the next request that matches, after so many others."""
        hold = Hold(self, match, at, skip)
        self._holds.append(hold)
        return hold

    def answer(self, match: Match, status: int, body: bytes = b"", *, times: float = 1, **headers: str) -> None:
        """Answer the next requests that match in place of the server; `Retry_After="1"` is a header."""
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self._answers.append(Answer(match, status, body, fields, times))

    def cut(self, match: Match) -> None:
        """Reset what matches: what is open, and all that comes until `mend`."""

        def cut() -> None:
            self._cuts.append(match)
            for line in tuple(self._lines):
                if match(line.request):
                    _abort(line.writer, *line.others)

        self.call(cut)

    def stall(self, match: Match) -> None:
        """Swallow what comes from now on and matches: it is never answered, and nothing behind the gate sees it."""
        self._stalls.append(match)

    def mend(self) -> None:
        """Let everything pass again, on the same port; what is held stays held."""
        self._answers.clear()
        self._cuts.clear()
        self._stalls.clear()
        if self._server is None:
            self._admit()

    def refuse(self) -> None:
        """Listen no more, so that every connection is refused, and reset those that stand."""

        async def close() -> None:
            assert self._server is not None
            server, self._server = self._server, None
            server.close()
            await server.wait_closed()
            for line in tuple(self._lines):
                _abort(line.writer, *line.others)

        asyncio.run_coroutine_threadsafe(close(), self._loop).result(CALL_SECONDS)

    def _admit(self) -> None:
        async def listen() -> None:
            self._server = await asyncio.start_server(self._take, "127.0.0.1", self.port, limit=HEAD_BYTES)
            self.port = self._server.sockets[0].getsockname()[1]

        asyncio.run_coroutine_threadsafe(listen(), self._loop).result(CALL_SECONDS)

    def call(self, act: Callable[[], object]) -> None:
        """Do something in the gate's loop, and wait until it is done."""

        async def do() -> None:
            act()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(CALL_SECONDS)

    def find(self, match: Match) -> list[Request]:
        """The requests so far that match."""
        return [request for request in self.requests if match(request)]

    # --- in the loop --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await self._serve(reader, writer)
        finally:
            self._tasks.discard(task)
            _abort(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
        body = await reader.readexactly(int(fields.get("content-length", "0")))
        request = Request(next(self._numbers), method, target, time.monotonic())
        self.requests.append(request)
        if any(match(request) for match in self._cuts):
            return
        if any(match(request) for match in self._stalls):
            await _await_end(reader)
            return
        for answer in self._answers:
            if answer.times > 0 and answer.match(request):
                answer.times -= 1
                writer.write(_render_answer(answer))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
                return
        is_upgrade = "upgrade" in fields
        if not is_upgrade:
            kept = [line for line in rest if line and not line.lower().startswith("connection:")]
            head = "\r\n".join([first, *kept, "Connection: close", "", ""]).encode("latin-1")
        line = _Line(request, reader, writer, head, body, is_upgrade, self._find_hold(request))
        self._lines.add(line)
        try:
            await self._pass(line)
        finally:
            self._lines.discard(line)
            _abort(*line.others)
            if line.hold is not None:
                line.hold.done.set()

    def _find_hold(self, request: Request) -> Hold | None:
        for hold in self._holds:
            if hold.taken or not hold.match(request):
                continue
            if hold.skip > 0:
                hold.skip -= 1
                continue
            hold.taken = True
            return hold
        return None

    async def _pass(self, line: _Line) -> None:
        hold = line.hold
        if hold is not None and hold.at in (At.BEFORE, At.BEFORE_FOR_SURE):
            hold.reached.set()
            if hold.at is At.BEFORE_FOR_SURE:
                await hold.released.wait()
            elif not await _is_first(hold.released.wait(), _await_end(line.reader)):
                return
        upstream, to_upstream = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=HEAD_BYTES, server_hostname=self._host if self._tls else None
        )
        line.others.append(to_upstream)
        to_upstream.write(line.head + line.body)
        await to_upstream.drain()
        if hold is not None and hold.at is At.BEFORE_FOR_SURE and line.reader.at_eof():
            await _relay(upstream, None)
            return
        back = self._send_back(line, upstream, hold)
        forth = _relay(line.reader, to_upstream if line.is_upgrade else None)
        await _is_first(back, forth)

    async def _send_back(self, line: _Line, upstream: asyncio.StreamReader, hold: Hold | None) -> None:
        """Pass the answer on, or keep it back as a hold says."""
        if hold is not None and hold.at is At.AFTER:
            answer = await (upstream.readuntil(b"\r\n\r\n") if line.is_upgrade else upstream.read())
            hold.reached.set()
            await hold.released.wait()
            line.writer.write(answer)
        elif hold is not None and hold.at is At.UPGRADED:
            line.writer.write(await upstream.readuntil(b"\r\n\r\n"))
            await line.writer.drain()
            hold.reached.set()
            await hold.released.wait()
        await _relay(upstream, line.writer)
        self.answered.add(line.request.number)
        if not line.is_upgrade:
            line.writer.close()
            await line.writer.wait_closed()


async def _is_first(one: Coroutine[None, None, object], other: Coroutine[None, None, object]) -> bool:
    """Run both until one has ended, cancel the other, and tell whether the first has ended."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
    return not isinstance(outcomes[0], asyncio.CancelledError)


async def _relay(source: asyncio.StreamReader, sink: asyncio.StreamWriter | None) -> None:
    """Pass bytes on until the source ends."""
    while portion := await source.read(1 << 16):
        if sink is not None:
            sink.write(portion)
            await sink.drain()


async def _await_end(source: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await _relay(source, None)


def _abort(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        if not writer.is_closing():
            writer.transport.abort()


def _render_answer(answer: Answer) -> bytes:
    fields = {"Content-Type": "application/json", **answer.headers, "Content-Length": str(len(answer.body))}
    lines = [f"HTTP/1.1 {answer.status} Answer", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + answer.body

"""
What lies outside a gateway, on virtual time: an API server, a sprite with its sockets, and people's sockets.

Problem: what carries out the fence's decisions is right in the orders that somebody thought of. Promise: here are only
the edges, without a socket and without a clock: calls that are late, lost, refused, or land long after they were given
up; a watch that is late, says things twice or leaves some out; sockets over which bytes stay on their way, break, or
lose their pongs; people who do not read. Everything is drawn from one `Random`, so that a history can be played again.
What is on its way when a socket is cut arrives within 5 s or never (`plan.fence_upstream.SETTLE_WAIT`).
"""

import asyncio
import contextlib
import selectors
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, Final, NoReturn, Protocol, TypeVar

import orjson
from aiohttp import WSMsgType

from controller.api.names import FINALIZER
from controller.api.session import Announced, Cause, Session, Sprite, SpriteState
from controller.api.terminal import TokenSecretRef
from controller.kube.client import Page
from controller.kube.errors import (
    Conflict,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerFault,
    Throttled,
    TimedOut,
    Unreachable,
)
from controller.plan.fence_tenure import RULES
from controller.plan.fence_upstream import SETTLE_WAIT
from controller.sprites.attach import Attachment
from controller.sprites.errors import Unreachable as SpriteUnreachable
from controller.sprites.exec_frames import Framing
from controller.sprites.sockets import SocketEnded
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.support.json_patch import apply_operation
from tests.support.secrecy import build_sprites_token

NOON: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
BEGUN: Final = datetime(2026, 11, 30, 11, tzinfo=UTC)
SESSION: Final = "77"
UID: Final = "uid-1"
NAMESPACE: Final = "team-a"
NAME: Final = "one"
CALL_LIMIT: Final = 5.0
"""Seconds that a call of the fence is waited for, as in `controller.cli.gateway`."""
LEASE_LIMIT: Final = RULES.timeout.total_seconds()
LANDS_WITHIN: Final = SETTLE_WAIT.total_seconds() - 0.1
"""So long after a cut what was on its way may still arrive."""
WORD: Final = 4
"""Input is the sender's number in so many digits, again and again."""

LONGEST_MOMENT: Final = 200
"""Turns of the loop."""

JsonObject = dict[str, Any]
Landed = TypeVar("Landed")


class Stuck(Exception):
    """Nothing is left that could ever wake anybody."""


class _NothingToHear(selectors.SelectSelector):
    """Lets time pass instead of waiting for a socket."""

    pass_time: Callable[[float], None]
    _turns = 0
    """In a row for which nobody waited."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > LONGEST_MOMENT:
            # Turns take time as well: whoever waits for less than a number can tell would wait for ever.
            timeout = 1e-6
        if timeout > 0:
            self.pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop on which time passes only where everybody waits for it."""

    def __init__(self) -> None:
        self._passed = 1_000.0
        selector = _NothingToHear()
        selector.pass_time = self._pass
        super().__init__(selector)

    def _pass(self, seconds: float) -> None:
        self._passed += seconds

    def time(self) -> float:
        return self._passed


class LoopClock:
    """All clocks of the product, on a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return NOON + self.elapsed()

    def monotonic(self) -> timedelta:
        return self.elapsed()

    def elapsed(self) -> timedelta:
        return timedelta(seconds=self._loop.time())

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


class Weather:
    """How bad it is now, and what chance says."""

    def __init__(self, luck: Random) -> None:
        self.luck = luck
        self.is_calm = True

    def draw_delay(self) -> float:
        """Draw how long something takes; often the same, so that several things fall on one moment."""
        if self.is_calm:
            return 0.01
        return self.luck.choices((0.0, 0.01, 0.05, 0.5, 1.0, 2.0), (25, 40, 20, 8, 4, 3))[0]

    def strikes(self, chance: float) -> bool:
        return not self.is_calm and self.luck.random() < chance


# --- the API server ---------------------------------------------------------------------------------------------------


class Witness(Protocol):
    """Whoever wants to know what happens out here."""

    def note(self, *words: object) -> None:
        """Write a line of the history."""

    def see_lock(self, before: JsonObject | None, after: JsonObject | None) -> None:
        """The lock has changed."""

    def see_clear(self, line: "Line", lock: JsonObject) -> None:
        """A gateway asks for a lock to be cleared, at this very moment."""

    def see_sent(self, pipe: "Pipe", sender: int) -> None:
        """Input goes upstream, at this very moment."""

    def see_arrived(self, pipe: "Pipe", sender: int, size: int) -> None:
        """Input arrived."""


class ApiServer:
    """One terminal, and Leases."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._version = 1
        session = {"id": SESSION, "created": BEGUN.isoformat(), "spriteId": "sprite-1", "origin": "Launched"}
        self.raw: JsonObject = {
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "uid": UID,
                "generation": 1,
                "resourceVersion": "1",
                "finalizers": [FINALIZER],
            },
            "spec": {"spriteName": "box"},
            "status": {"session": session, "sprite": {"id": "sprite-1", "state": "running"}},
        }
        self.log: list[tuple[int, JsonObject]] = [(1, self.raw)]
        self.leases: dict[str, JsonObject] = {}
        self.watchers: set[asyncio.Event] = set()

    @property
    def session(self) -> str:
        """The id of the session that is recorded and lives."""
        return str(self.raw["status"]["session"]["id"])

    def relaunch(self) -> None:
        """Record another session in place of the former."""
        session = {**self.raw["status"]["session"], "id": str(int(self.session) + 1)}
        self.patch([{"op": "replace", "path": "/status/session", "value": session}])

    @property
    def lock(self) -> JsonObject | None:
        found: JsonObject | None = self.raw["status"].get("socket")
        return found

    @property
    def named(self) -> str | None:
        found: str | None = self.raw["spec"].get("activeSocketId")
        return found

    def patch(self, operations: Sequence[Mapping[str, Any]]) -> JsonObject:
        raw = orjson.loads(orjson.dumps(self.raw))
        try:
            for operation in operations:
                apply_operation(raw, operation)
        except (IndexError, KeyError):
            raise Invalid("The path is missing.", status=422) from None
        if raw == self.raw:
            return self.raw
        if raw["spec"] != self.raw["spec"]:
            raw["metadata"]["generation"] += 1
        return self._store(raw)

    def edit(self, **spec: object) -> None:
        """Change the spec by hand."""
        self.patch([{"op": "add", "path": f"/spec/{field}", "value": value} for field, value in spec.items()])

    def _store(self, raw: JsonObject) -> JsonObject:
        before = self.lock
        self._version += 1
        raw["metadata"]["resourceVersion"] = str(self._version)
        self.raw = raw
        self.log.append((self._version, raw))
        self._witness.note("stored", self._version, self.named, self.lock and self.lock["socketId"])
        if self.lock != before:
            self._witness.see_lock(before, self.lock)
        for watcher in self.watchers:
            watcher.set()
        return raw

    def put_lease(self, lease: Mapping[str, Any], *, creates: bool) -> JsonObject:
        name = lease["metadata"]["name"]
        standing = self.leases.get(name)
        if creates != (standing is None):
            raise Conflict("It exists.", status=409) if creates else NotFound("It is gone.", status=404)
        if standing is not None and standing["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            raise Conflict("It has changed.", status=409)
        self._version += 1
        metadata = {**lease["metadata"], "uid": f"uid-of-{name}", "resourceVersion": str(self._version)}
        self.leases[name] = {"metadata": metadata, "spec": dict(lease["spec"])}
        return self.leases[name]

    def get_lease(self, name: str) -> JsonObject:
        if name not in self.leases:
            raise NotFound("There is none.", status=404)
        return self.leases[name]

    def delete_lease(self, name: str, version: str) -> None:
        if self.get_lease(name)["metadata"]["resourceVersion"] != version:
            raise Conflict("It has changed.", status=409)
        del self.leases[name]


class Line:
    """One gateway's connection to the API server: all that `controller.kube.client.KubeClient` is for it."""

    def __init__(self, number: int, server: ApiServer, weather: Weather, witness: Witness) -> None:
        self.number = number
        self.hangs_until = 0.0
        self.watch_sleeps_until = 0.0
        self._server = server
        self._weather = weather
        self._witness = witness
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._is_cut = False

    # Calls.

    async def get(self, namespace: str, name: str) -> JsonObject:
        return await self._call("get", lambda: self._server.raw)

    async def patch_json(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        tenure: Tenure,
    ) -> JsonObject:
        tenure.demand()
        if operations[-1] == {"op": "remove", "path": "/status/socket"}:
            self._witness.see_clear(self, operations[-2]["value"])
        return await self._call(f"patch {operations[-1]['path']}", lambda: self._server.patch(operations), writes=True)

    async def list_pages(
        self, *, metadata_only: bool, namespaces: Sequence[str] | None = None, field_selector: str | None = None
    ) -> AsyncIterator[Page]:
        incarnation = None if field_selector is None else field_selector.partition("=")[2]

        def show() -> Page:
            lock = self._server.lock
            is_shown = incarnation is None or (lock is not None and lock["incarnation"] == incarnation)
            items = (self._server.raw,) if is_shown else ()
            return Page(items, None, True, self._server.raw["metadata"]["resourceVersion"])

        yield await self._call("list", show)

    async def watch(self, *, namespace: str | None, resource_version: str) -> AsyncIterator[JsonObject]:
        seen, luck = int(resource_version), self._weather.luck
        self._server.watchers.add(self._news)
        try:
            while True:
                self._news.clear()
                if self._is_cut:
                    self._is_cut = False
                    raise Gone("Expired.", status=410) if luck.random() < 0.5 else Unreachable("Cut.")
                fresh = [entry for entry in self._server.log if entry[0] > seen]
                if not fresh:
                    await self._news.wait()
                    continue
                await asyncio.sleep(self._weather.draw_delay() + max(0.0, self.watch_sleeps_until - self._loop.time()))
                if self._weather.strikes(0.2):
                    fresh = fresh[-1:]
                for version, raw in fresh:
                    for _ in range(2 if self._weather.strikes(0.1) else 1):
                        yield {"type": "MODIFIED", "object": raw}
                    seen = version
        finally:
            self._server.watchers.discard(self._news)

    def cut_watch(self) -> None:
        self._is_cut = True
        self._news.set()

    # Leases and Secrets.

    async def create_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> JsonObject:
        return await self._lease("create", lambda: self._server.put_lease(lease, creates=True), writes=True)

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> JsonObject:
        return await self._lease("put", lambda: self._server.put_lease(lease, creates=False), writes=True)

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> JsonObject:
        return await self._lease("get", lambda: self._server.get_lease(name), writes=False)

    async def list_leases(self, namespace: str, *, timeout: timedelta) -> Sequence[JsonObject]:
        return await self._call("list leases", lambda: list(self._server.leases.values()), limit=LEASE_LIMIT)

    async def delete_lease(
        self, namespace: str, name: str, *, uid: str, resource_version: str, timeout: timedelta
    ) -> None:
        await self._call(
            "delete lease",
            lambda: self._server.delete_lease(name, resource_version),
            limit=LEASE_LIMIT,
            writes=True,
        )

    async def _lease(self, what: str, land: Callable[[], JsonObject], *, writes: bool) -> JsonObject:
        return await self._call(f"{what} lease", land, limit=LEASE_LIMIT, writes=writes)

    async def _call(
        self, what: str, land: Callable[[], Landed], *, limit: float = CALL_LIMIT, writes: bool = False
    ) -> Landed:
        """Let a call land after a while and answer it after another, or fail as calls fail."""
        luck, weather = self._weather.luck, self._weather
        there = weather.draw_delay() + max(0.0, self.hangs_until - self._loop.time())
        if weather.strikes(0.12):
            return await self._fail(
                what, land, luck.choice(("429", "500", "none", "409", "lost", "lost")), limit, writes
            )
        back = weather.draw_delay()
        if there + back >= limit:
            self._loop.call_later(there, self._land, land)
            await asyncio.sleep(limit)
            raise TimedOut("No answer.", may_have_happened=writes)
        await asyncio.sleep(there)
        answer = land()
        await asyncio.sleep(back)
        return answer

    async def _fail(self, what: str, land: Callable[[], object], fate: str, limit: float, writes: bool) -> NoReturn:
        luck = self._weather.luck
        self._witness.note("call fails", self.number, what, fate)
        await asyncio.sleep(self._weather.draw_delay())
        match fate:
            case "429":
                raise Throttled("Slow down.", status=429)
            case "409" if writes:
                raise Conflict("It has changed.", status=409)
            case "500" if writes:
                if luck.random() < 0.5:
                    land()
                raise ServerFault("It failed.", status=500, may_have_happened=True)
            case "lost":
                if writes and luck.random() < 0.7:
                    self._loop.call_later(luck.choice((0.0, 0.5, limit, 2 * limit)), self._land, land)
                await asyncio.sleep(limit)
                raise TimedOut("No answer.", may_have_happened=writes)
        raise Unreachable("There is no connection.")

    def _land(self, land: Callable[[], object]) -> None:
        """Let a call land whose answer nobody waits for."""
        with contextlib.suppress(KubeError):
            land()


# --- the sprite -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Flight:
    """Something on its way up."""

    due: float
    sender: int
    size: int
    pong: asyncio.Future[None] | None = None


class Pipe:
    """One upstream socket: all that `controller.sprites.sockets.Socket` is for an `Attachment`."""

    def __init__(self, number: int, line: Line, weather: Weather, witness: Witness, *, types: bool) -> None:
        self.number = number
        self.line = line
        self.types = types
        self.ended: str | None = None
        self.stuck_until = 0.0
        self.is_slow = False
        self.loses_pongs = False
        self.attachment: Attachment | None = None
        self._unconfirmed_bytes = 0
        self.landing: dict[int, int] = {}
        """What was on its way when it was cut and will arrive, in bytes of each sender."""
        self._weather = weather
        self._witness = witness
        self._loop = asyncio.get_running_loop()
        self._flights: deque[Flight] = deque()
        self._unanswered: list[asyncio.Future[None]] = []
        self._inbox: deque[bytes] = deque()
        self._heard = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()
        self._ignores_bytes = False

    def on_way(self, sender: int) -> int:
        """How much of somebody's input is on its way here and will arrive."""
        waiting = sum(flight.size for flight in self._flights if flight.sender == sender)
        return waiting + self.landing.get(sender, 0)

    @property
    def most_undrained(self) -> int:
        """
        How much of what was sent may count as undrained.

        A pong that was there when it was cut may be heard of only afterwards, and so may the cut by a piece of input.
        """
        return 0 if self.attachment is None else max(self._unconfirmed_bytes, self.attachment.unconfirmed_bytes)

    # What the gateway does.

    async def send(self, message: bytes | str) -> None:
        if self.ended is not None:
            raise SocketEnded(self.ended, oversized=False)
        sender = int(message[:WORD]) if isinstance(message, bytes) else int(orjson.loads(message)["cols"])
        self._witness.see_sent(self, sender)
        self._put(Flight(0.0, sender, len(message)))
        await self._flow()

    async def ping(self) -> None:
        if self.ended is not None:
            raise SocketEnded(self.ended, oversized=False)
        pong: asyncio.Future[None] = self._loop.create_future()
        self._put(Flight(0.0, 0, 0, pong))
        await pong

    async def receive(self) -> str | bytes:
        while not self._inbox:
            if self.ended is not None:
                raise SocketEnded(self.ended, oversized=False)
            self._heard.clear()
            await self._heard.wait()
        return self._inbox.popleft()

    def ignore_bytes(self) -> None:
        self._ignores_bytes = True

    async def close(self) -> None:
        if self.ended is None:
            await asyncio.sleep(self._weather.luck.choice((0.0, 0.1, 0.5)))
            self.end("closed with code 1000")

    def abort(self) -> None:
        self.end("the connection was cut")

    async def _flow(self) -> None:
        """Wait as a socket waits whose other side does not read."""
        while self.ended is None and not self._free.is_set():
            await self._free.wait()
        if self.ended is not None:
            raise SocketEnded(self.ended, oversized=False)

    # What happens on the way.

    def _put(self, flight: Flight) -> None:
        wait = self._weather.luck.choice((0.5, 1.5, 3.0)) if self.is_slow else self._weather.draw_delay() / 4
        before = self._flights[-1].due if self._flights else 0.0
        flight.due = max(before, self._loop.time() + wait)
        self._flights.append(flight)
        self._loop.call_at(flight.due, self._deliver)

    def _deliver(self) -> None:
        now = self._loop.time()
        if now < self.stuck_until or self.ended is not None:
            return
        self._free.set()
        while self._flights and self._flights[0].due <= now + 1e-6:
            flight = self._flights.popleft()
            if flight.pong is None:
                self._witness.see_arrived(self, flight.sender, flight.size)
            elif not self.loses_pongs:
                self._loop.call_later(self._weather.draw_delay() / 4, _answer, flight.pong)
            else:
                self._unanswered.append(flight.pong)

    def stick(self, seconds: float) -> None:
        """Let nothing through for a while."""
        self.stuck_until = self._loop.time() + seconds
        self._free.clear()
        self._loop.call_at(self.stuck_until + 1e-6, self._deliver)

    def end(self, told: str) -> None:
        """Be cut, by whomever: of what is on its way a first part arrives soon, and the rest never."""
        if self.ended is not None:
            return
        self.ended = told
        self._unconfirmed_bytes = 0 if self.attachment is None else self.attachment.unconfirmed_bytes
        luck, now = self._weather.luck, self._loop.time()
        inputs = [flight for flight in self._flights if flight.pong is None]
        landing = inputs[: luck.randint(0, len(inputs))]
        for flight, wait in zip(landing, sorted(luck.uniform(0, LANDS_WITHIN) for _ in landing), strict=True):
            self.landing[flight.sender] = self.landing.get(flight.sender, 0) + flight.size
            self._loop.call_at(now + wait, self._land, flight)
        for pong in [*self._unanswered, *(flight.pong for flight in self._flights if flight.pong is not None)]:
            if not pong.done():
                pong.set_exception(SocketEnded(told, oversized=False))
        self._flights.clear()
        self._heard.set()
        self._free.set()

    def _land(self, flight: Flight) -> None:
        self.landing[flight.sender] -= flight.size
        self._witness.see_arrived(self, flight.sender, flight.size)

    def say(self, output: bytes) -> None:
        """Let the session write something."""
        if self.ended is None and not self._ignores_bytes:
            self._inbox.append(output)
            self._heard.set()


def _answer(pong: asyncio.Future[None]) -> None:
    if not pong.done():
        pong.set_result(None)


class SpritesApi:
    """The sprite that the terminal is in: as much of `controller.sprites.client.SpritesClient` as a gateway asks."""

    def __init__(self, line: Line, server: ApiServer, weather: Weather, witness: Witness, pipes: list[Pipe]) -> None:
        self._line = line
        self._server = server
        self._weather = weather
        self._witness = witness
        self._pipes = pipes

    @contextlib.asynccontextmanager
    async def attach_session(
        self, token: Token, sprite: str, session_id: str, *, typing: Tenure | None, cause: Cause
    ) -> AsyncIterator[Attachment]:
        permit = typing or Tenure(0)
        permit.demand()
        await asyncio.sleep(self._weather.draw_delay())
        if self._weather.strikes(0.1):
            raise SpriteUnreachable("There is no way.")
        permit.demand()
        pipe = Pipe(len(self._pipes), self._line, self._weather, self._witness, types=typing is not None)
        if self._weather.strikes(0.2):
            pipe.is_slow = True
        self._pipes.append(pipe)
        self._witness.note("pipe", pipe.number, "of", self._line.number, "types" if pipe.types else "looks")
        try:
            await asyncio.sleep(self._weather.draw_delay())
            pipe.attachment = Attachment(pipe, Announced(session_id, BEGUN), Framing.RAW, token)  # type: ignore[arg-type]  # a pipe is as much of a socket as is asked
            yield pipe.attachment
        except BaseException:
            pipe.abort()
            raise
        await pipe.close()

    async def list_sessions(self, token: Token, sprite: str, *, cause: Cause) -> tuple[Session, ...]:
        await asyncio.sleep(self._weather.draw_delay())
        return (Session(self._server.session, BEGUN, "bash", True, None),)

    async def get_sprite(self, token: Token, sprite: str, *, cause: Cause) -> Sprite:
        await asyncio.sleep(self._weather.draw_delay())
        return Sprite("sprite-1", sprite, SpriteState.RUNNING)


class OneToken:
    """Every object has the same token."""

    def __init__(self) -> None:
        self._token = Token.read(build_sprites_token("acme"))

    async def find(self, namespace: str, ref: TokenSecretRef | None, sprite: str) -> Token:
        return self._token

    async def reread(self, namespace: str, ref: TokenSecretRef | None, sprite: str, *, refused: Token) -> Token | None:
        return None


# --- people's sockets -------------------------------------------------------------------------------------------------


class PersonSocket:
    """A person's end of a socket: all that `aiohttp.web.WebSocketResponse` is for a `Client`."""

    def __init__(self, weather: Weather, note: Callable[..., None]) -> None:
        self.told: str | None = None
        self.is_gone = False
        self.is_deaf = False
        self._weather = weather
        self._note = note
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[Any] = deque()
        self._heard = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()

    # What the person does.

    def say(self, kind: WSMsgType, data: object = None) -> None:
        if not self.is_gone:
            self._inbox.append(SimpleNamespace(type=kind, data=data))
            self._heard.set()

    def stop_reading(self) -> None:
        self._reads.clear()

    def abort(self) -> None:
        """Be cut, from whichever side."""
        self.say(WSMsgType.CLOSED)
        self.is_gone = True
        self._reads.set()

    # What the gateway does.

    async def receive(self) -> Any:
        while not self._inbox:
            self._heard.clear()
            await self._heard.wait()
        return self._inbox.popleft()

    async def send_str(self, text: str) -> None:
        await self._write()
        if text.startswith('{"type":"closed"'):
            self.told = orjson.loads(text)["reason"]
            self._note("told", self.told)

    async def send_bytes(self, data: bytes) -> None:
        await self._write()

    async def send_frame(self, message: bytes, opcode: WSMsgType) -> None:
        await self._write()
        if not self.is_deaf:
            self._loop.call_later(self._weather.draw_delay(), self.say, WSMsgType.CLOSE, 1000)

    async def ping(self) -> None:
        if self.is_gone:
            raise ConnectionResetError
        if not self.is_deaf:
            self._loop.call_later(self._weather.draw_delay(), self.say, WSMsgType.PONG)

    async def pong(self, data: bytes) -> None:
        await self._write()

    async def close(self, *, code: int) -> None:
        self.is_gone = True

    async def _write(self) -> None:
        if self.is_gone:
            raise ConnectionResetError
        await self._reads.wait()
        if self.is_gone:
            raise ConnectionResetError

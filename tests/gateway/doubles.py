"""The counterparts of the doors in tests: an API server that says what it was told, and terminals that echo."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from prometheus_client import generate_latest

from controller.api.session import SpriteState
from controller.clock import Clock, SystemClock
from controller.gateway.access import BEARER_SUBPROTOCOL, SUBPROTOCOL
from controller.gateway.metrics import GatewayMetrics, build_gateway_metrics
from controller.gateway.server import Gateway
from controller.gateway.settings import GatewaySettings
from controller.gateway.standing import Presence, Terminal
from controller.gateway.terminals import AttachRequest, Ending, Notice, TokenWanted
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import NotFound, Unreachable
from controller.plan.fence_closing import CLOSINGS
from tests.support.secrecy import Kind, look, secret

NAMESPACE = "team-a"
NAME = "one"
PATH = f"/v1/namespaces/{NAMESPACE}/agentterminals/{NAME}"
ANNA = secret(Kind.PERSON, "anna")
BERT = secret(Kind.PERSON, "bert")
RIGHTS = ("attach", "view", "takeover", "activity")
SOON_SECONDS = 20


class UnaskedKube:
    """The fence's calls to the API server, each of which fails a test that does not answer it itself."""

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        raise AssertionError(f"{namespace}/{name} was read.")

    async def patch_json(self, namespace: str, name: str, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError(f"{namespace}/{name} was patched.")

    async def get_lease(self, namespace: str, name: str, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError(f"Lease {namespace}/{name} was read.")

    async def put_lease(self, lease: Mapping[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError(f"Lease {lease['metadata']['name']} was written.")


def build_object(uid: str = "uid-1", *, deleting: bool = False, **spec: Any) -> dict[str, Any]:
    """A terminal that runs, as the API server shows it."""
    metadata = {"name": NAME, "namespace": NAMESPACE, "uid": uid, "generation": 1}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    session = {"id": "77", "created": "2026-01-01T11:00:00Z", "spriteId": "sprite-1", "origin": "Adopted"}
    return {
        "metadata": metadata,
        "spec": {"spriteName": "box", "sessionId": "77", **spec},
        "status": {"session": session, "sprite": {"id": "sprite-1", "state": "running"}},
    }


def build_jwt(name: str, expires: datetime) -> str:
    """A token that says when it ends; nobody verifies it here."""

    def part(claims: Mapping[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': name, 'exp': int(expires.timestamp())})}.c2ln"


@dataclass
class FakeKube:
    """An API server that knows tokens, rights and objects, counts what it is asked, and fails when told to."""

    users: dict[str, str] = field(default_factory=lambda: {ANNA: "anna", BERT: "bert"})
    audiences: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For whom a token is meant; the API server itself where it is not in here."""
    rights: set[tuple[str, str]] = field(default_factory=lambda: {("anna", right) for right in RIGHTS})
    objects: dict[str, dict[str, Any]] = field(default_factory=lambda: {NAME: build_object()})
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    specs: list[Mapping[str, Any]] = field(default_factory=list)
    is_down: bool = False
    cannot_log_in: bool = False
    passage: asyncio.Event = field(default_factory=asyncio.Event)
    """Reviews wait for it."""

    def __post_init__(self) -> None:
        self.passage.set()

    async def review_token(self, token: str, *, audiences: Sequence[str] = ()) -> Mapping[str, Any]:
        await self._pass("token")
        meant = self.audiences.get(token)
        fits = not audiences if meant is None else bool(set(meant) & set(audiences))
        if token not in self.users or not fits:
            return {"authenticated": False, "error": "token lookup failed"}
        name = self.users[token]
        user = {"username": name, "uid": f"uid-of-{name}", "groups": ["system:authenticated"]}
        return {"authenticated": True, "user": user, "audiences": list(meant or ["api"])}

    async def review_access(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._pass("access")
        self.specs.append(spec)
        return {"allowed": (spec["user"], spec["resourceAttributes"]["subresource"]) in self.rights}

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        await self._pass("get")
        if namespace != NAMESPACE or name not in self.objects:
            raise NotFound("The Kubernetes API answered 404.", status=404)
        return self.objects[name]

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        await self._pass("config map")
        if name not in self.config_maps:
            raise NotFound("The Kubernetes API answered 404.", status=404)
        return self.config_maps[name]

    async def _pass(self, call: str) -> None:
        self.calls.append(call)
        await self.passage.wait()
        if self.is_down:
            raise Unreachable("No answer from the Kubernetes API.")
        if self.cannot_log_in:
            raise CredentialsUnusable("The plugin failed.")


class EchoTerminals:
    """Sends back what comes, passes notices on as text frames, and ends as its leave says."""

    def __init__(self) -> None:
        self.requests: list[AttachRequest] = []
        self.activity: list[str] = []
        self.unready: str | None = None
        self.presence = Presence(held=False, streaming=False)
        self.state: SpriteState | None = None
        """How the platform says that the sprite is."""
        self.state_asked = 0
        self.unwritten = False
        """Cannot write what it should note."""
        self.deaf = False
        """Ignores its leave."""
        self.broken = False
        """Raises, with the token in its text, as a bug might."""

    def find_unready(self) -> str | None:
        return self.unready

    def look(self, terminal: Terminal) -> Presence:
        return self.presence

    async def find_state(self, terminal: Terminal) -> SpriteState | None:
        self.state_asked += 1
        return self.state

    def build_socket(self, protocols: Sequence[str]) -> web.WebSocketResponse:
        return web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=64 * 1024, timeout=1)

    async def note_activity(self, terminal: Terminal) -> None:
        if self.unwritten:
            raise Unreachable("No answer from the Kubernetes API.")
        self.activity.append(terminal.uid)

    async def attach(self, request: AttachRequest, socket: web.WebSocketResponse) -> None:
        self.requests.append(request)
        if self.broken:
            raise ValueError(f"{ANNA} is in here")
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(self._watch(request, socket))
            await self._echo(request, socket)
            watcher.cancel()

    async def _echo(self, request: AttachRequest, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                continue
            if message.data.startswith("auth "):
                renewal = await request.leave.renew(message.data.removeprefix("auth "))
                await socket.send_str(f"renewal {renewal}")
            else:
                await socket.send_str(message.data)

    async def _watch(self, request: AttachRequest, socket: web.WebSocketResponse) -> None:
        while not self.deaf:
            notice: Notice = await request.leave.next_notice()
            match notice:
                case TokenWanted(within=within):
                    await socket.send_str(f"token wanted within {within.total_seconds():g} s")
                case Ending(word=word):
                    closing = CLOSINGS[word]
                    await socket.send_str(f"{word}: {closing.sentence}")
                    await socket.close(code=closing.code, message=word.encode())
                    return


class Records(logging.Handler):
    """Every log line, formatted as it would be written, from every logger and level."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        keys = {key: value for key, value in vars(record).items() if key not in {"msg", "args"}}
        self.lines.append(f"{self.format(record)} {keys}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> dict[str, Any]:
        return dict(orjson.loads(self.text))

    @property
    def cause(self) -> str:
        """The cause of a refusal, or `Ok`."""
        if self.status in (200, 204):
            return "Ok"
        return str(self.body["details"]["causes"][0]["reason"])


@dataclass
class Doors:
    """A gateway that listens, and everything it speaks with."""

    gateway: Gateway
    kube: FakeKube
    terminals: EchoTerminals
    metrics: GatewayMetrics
    http: aiohttp.ClientSession
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.gateway.port}"

    async def ask(
        self, path: str = f"{PATH}/attach", *, method: str = "GET", token: str | None = ANNA, **headers: str
    ) -> Answer:
        """Ask without an upgrade."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        async with self.http.request(method, f"{self.url}{path}", headers=sent, allow_redirects=False) as answer:
            told = Answer(answer.status, dict(answer.headers), await answer.text())
        look("The answer of a gateway", str(told))
        return told

    async def attempt(self, path: str, *, token: str = ANNA) -> int:
        """Ask for an upgrade that is refused; give the status."""
        try:
            async with self.attached(path=path, token=token):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    @asynccontextmanager
    async def attached(
        self, query: str = "", *, token: str | None = ANNA, path: str = f"{PATH}/attach", protocols: Sequence[str] = ()
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with self.http.ws_connect(f"{self.url}{path}{query}", headers=headers, protocols=protocols) as socket:
            yield socket

    def metrics_page(self) -> str:
        page = generate_latest(self.metrics.registry).decode()
        look("The metrics of a gateway", page)
        return page

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"agentterminal_gateway_{name}", labels) or 0


@asynccontextmanager
async def open_doors(
    settings: GatewaySettings | None = None, *, kube: FakeKube | None = None, clock: Clock | None = None
) -> AsyncIterator[Doors]:
    kube, terminals, metrics = kube or FakeKube(), EchoTerminals(), build_gateway_metrics()
    gateway = Gateway(
        settings or GatewaySettings(port=0, metrics_port=0), kube, terminals, metrics, clock or SystemClock()
    )
    await gateway.start()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SOON_SECONDS)) as http:
        try:
            yield Doors(gateway, kube, terminals, metrics, http)
        finally:
            await gateway.stop()


async def receive_text(socket: aiohttp.ClientWebSocketResponse) -> str:
    async with asyncio.timeout(SOON_SECONDS):
        return str(await socket.receive_str())


async def receive_close(socket: aiohttp.ClientWebSocketResponse) -> tuple[int | None, str]:
    """Read up to the close frame; give its code and reason."""
    async with asyncio.timeout(SOON_SECONDS):
        while True:
            message = await socket.receive(timeout=SOON_SECONDS)
            if message.type is aiohttp.WSMsgType.CLOSE:
                look("The reason of a close", str(message.extra))
                return message.data, str(message.extra)
            if message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSING, aiohttp.WSMsgType.ERROR):
                return socket.close_code, ""


async def exchange(port: int, request: bytes) -> bytes:
    """Send bytes as they are and read all that comes back until the other side closes, or is quiet for long."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        with suppress(ConnectionError):
            await writer.drain()
        async with asyncio.timeout(SOON_SECONDS):
            received = b""
            while b"\r\n\r\n" not in received:
                chunk = await reader.read(65536)
                if not chunk:
                    return received
                received += chunk
            head, _, rest = received.partition(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                0,
            )
            while len(rest) < length:
                chunk = await reader.read(65536)
                if not chunk:
                    break
                rest += chunk
            look("The answer of a gateway", head + b"\r\n\r\n" + rest)
            return head + b"\r\n\r\n" + rest
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def offer(token: str) -> list[str]:
    """What a page offers as subprotocols."""
    carried = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    return [SUBPROTOCOL, f"{BEARER_SUBPROTOCOL}{carried}"]


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


async def wait_until(is_true: Callable[[], bool]) -> None:
    """Look again and again, bounded."""
    for _ in range(SOON_SECONDS * 100):
        if is_true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("It did not become true in time.")

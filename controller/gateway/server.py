"""
The gateway's doors: every request is read, judged in one order, and handed over or refused.

Problem: each check that comes too early tells a stranger what exists, each that comes too late costs more than it
should, and the HTTP library below repeats headers in its own errors and logs. Promise: the order of gateway.md 6, the
same for sockets and for a page that asks beforehand; every refusal a Kubernetes `Status`; nothing that was sent shows
in an answer, a log line or a metric; on SIGTERM no more is let in, every socket is told, and the end is bounded.
Source: gateway.md 5 and 6.

Observed (aiohttp 3.14): a head that cannot be parsed is answered with its own beginning and logged with a traceback,
and the default access log prints the query. So the protocol below answers and logs by itself.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import orjson
from aiohttp import WSCloseCode, web

from controller.api.terminal import ObjectUnreadable, read_spec, read_status
from controller.clock import Clock
from controller.gateway.access import (
    SUBPROTOCOL,
    BearerToken,
    Certificate,
    Page,
    Presented,
    choose_presented,
    demand_host,
    demand_readable,
    find_page,
    is_from_browser,
    is_upgrade,
    read_bearer,
    read_certificate,
)
from controller.gateway.guard import Guard
from controller.gateway.limits import AddressLimit, Places
from controller.gateway.refusals import (
    Refusal,
    RefusalCause,
    Refused,
    refuse,
    render_headers,
    render_refusal,
    render_success,
)
from controller.gateway.reviews import Known, ReviewingKube, Reviews
from controller.gateway.settings import GatewaySettings
from controller.gateway.standing import Terminal, judge_standing
from controller.gateway.terminals import AttachRequest, EndCause, Terminals
from controller.gateway.tls import Tls
from controller.gateway.wishes import (
    ActivityWish,
    AttachWish,
    ListWish,
    Probe,
    Route,
    Target,
    Wish,
    list_rights,
    read_route,
    read_wish,
)
from controller.kube.errors import KubeError, NotFound

log = logging.getLogger(__name__)

T = TypeVar("T")

_PACKAGE: Final = Path(__file__).parents[1]
_JSON: Final = "application/json"
_SOON: Final = timedelta(seconds=5)

AUTHORITY_NAMESPACE: Final = "kube-system"
AUTHORITY_NAME: Final = "extension-apiserver-authentication"
AUTHORITY_KEY: Final = "client-ca-file"
"""Where a cluster publishes its authority for client certificates. Source: kubernetes.io, "Configure the aggregation
layer" (read 2026-11)."""


class GatewayKube(ReviewingKube, Protocol):
    """The calls that the doors make: `controller.kube.client.KubeClient`. They raise `KubeError`."""

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Read one AgentTerminal, consistently."""

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """Read a ConfigMap's data."""


class DoorMetrics(Protocol):
    """What the doors count: `controller.metrics.GatewayMetrics`."""

    def count_request(self, route: str, answer: str) -> None:
        """Count one request by its route and its answer: `Ok`, or the cause of the refusal."""

    def count_admission(self, duration: timedelta) -> None:
        """Count how long the judgement of one request took that was let in."""

    def count_socket_end(self, cause: str) -> None:
        """Count a socket that the doors ended: the cause of the ending."""


class QuietProtocol(web.RequestHandler):
    """
    One connection that answers what cannot be read with our own words, and logs none of it.

    Args:
        manager: The server.
        tell: Told of each head that could not be read, and of each bug, by cause.
        options: As for aiohttp's own.
    """

    __slots__ = ("_tell",)

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[RefusalCause], None],
        **options: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self._tell = tell

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it repeats what was sent
    ) -> web.StreamResponse:
        """Answer for aiohttp; its message and the exception's text repeat headers."""
        if request.writer.output_size > 0:
            raise ConnectionError("The answer has begun already.")
        if 400 <= status <= 499:
            refusal = Refusal(
                RefusalCause.MALFORMED, "The request cannot be read: its head breaks HTTP, or one header is too long."
            )
        else:
            log.error("A request met a bug.", extra={"error": type(exc).__name__, "place": _find_place(exc)})
            refusal = _BUG
        self._tell(refusal.cause)
        response = _answer_refusal(refusal)
        response.force_close()
        return response

    def log_exception(self, *_: Any, **keywords: Any) -> None:
        """Log that something failed, never what it was about."""
        error = keywords.get("exc_info")
        log.error(
            "A connection met a bug.",
            extra={"error": type(error).__name__, "place": _find_place(error)},
        )

    def log_debug(self, *_: Any, **__: Any) -> None:
        """Log nothing: what aiohttp would tell carries addresses and exceptions."""


class QuietServer(web.Server):
    """aiohttp's low-level server, with our protocol for each connection."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        tell: Callable[[RefusalCause], None],
        **options: Any,
    ) -> None:
        super().__init__(handler)
        self._tell = tell
        self._options = options

    def __call__(self) -> web.RequestHandler:
        """Build the protocol of one connection."""
        return QuietProtocol(self, loop=asyncio.get_running_loop(), tell=self._tell, **self._options)


class Gateway:
    """
    The doors. Started once; `run` keeps them, `drain` closes them, and `stop` takes everything apart.

    Args:
        settings: Where, for whom, how much.
        kube: The API server.
        terminals: Whoever carries what was let in.
        metrics: What is counted.
        clock: For limits, caches and expiries.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        kube: GatewayKube,
        terminals: Terminals,
        metrics: DoorMetrics,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._kube = kube
        self._terminals = terminals
        self._metrics = metrics
        self._clock = clock
        self._addresses = AddressLimit(settings.limits, clock)
        self._places = Places(settings.limits)
        self._reviews = Reviews(
            kube,
            audiences=settings.audiences,
            own_audience_only=settings.own_audience_only,
            kept=settings.times.verdict_kept,
            limits=settings.limits,
            clock=clock,
        )
        self._tls = Tls(settings.tls) if settings.tls is not None else None
        self._guards: set[Guard] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._is_draining = False
        self._server: QuietServer | None = None
        self._listening: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._listening is None or not self._listening.sockets:
            raise RuntimeError("The gateway does not listen.")
        return int(self._listening.sockets[0].getsockname()[1])

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return len(self._guards)

    def find_unready(self) -> str | None:
        """Say why nothing can be attached here now; None when it can."""
        return "This gateway ends." if self._is_draining else self._terminals.find_unready()

    async def start(self) -> None:
        """
        Listen.

        Raises:
            OSError: The address cannot be used.
        """
        if self._tls is not None:
            await self._read_authority()
        times = self._settings.times
        self._server = QuietServer(
            self._handle,
            lambda cause: self._metrics.count_request(Route.NONE, cause),
            access_log=None,
            keepalive_timeout=times.request_head.total_seconds(),
            max_line_size=8192,
            max_field_size=self._settings.head_bytes,
            max_headers=64,
            lingering_time=1.0,
        )
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls = {"ssl": self._tls.context, "ssl_handshake_timeout": times.tls_handshake.total_seconds()}
        self._listening = await asyncio.get_running_loop().create_server(
            self._server, self._settings.address, self._settings.port, **tls
        )

    async def run(self) -> None:
        """Keep certificate and authority up to date for as long as the gateway serves; it ends by being cancelled."""
        if self._tls is None:
            await asyncio.Event().wait()
            return
        times, since = self._settings.times, self._clock.monotonic()
        while True:
            await self._clock.sleep(times.files_reread)
            await self._tls.refresh()
            if self._clock.monotonic() - since >= times.authority_reread:
                since = self._clock.monotonic()
                await self._read_authority()

    async def drain(self) -> None:
        """Let nobody in any more, tell every socket that this gateway ends, and wait for them, bounded."""
        self._is_draining = True
        if self._listening is not None:
            self._listening.close()
        for guard in list(self._guards):
            guard.end(EndCause.DRAIN)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.times.drain.total_seconds()):
                await self._all_ended.wait()

    async def stop(self) -> None:
        """Close every connection; stopping twice is fine."""
        self._is_draining = True
        listening, self._listening = self._listening, None
        server, self._server = self._server, None
        if listening is not None:
            listening.close()
        if server is not None:
            server.pre_shutdown()
            await server.shutdown(1.0)

    # --- One request --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, and count and log it without anything that was sent."""
        route = read_route(request.rel_url.raw_path)
        page: Page | None = None
        try:
            self._addresses.demand(_find_address(request))
            if route in (Route.HEALTH, Route.READY):
                return self._answer_probe(request)
            with self._places.stranger():
                wants_socket = _demand_readable(request)
                wish = self._read_wish(request, wants_socket=wants_socket)
                demand_host(request.headers, self._settings.hosts)
                page = find_page(request.headers, self._settings.origins)
                if wish is None:
                    response: web.StreamResponse = web.Response(status=204)
                else:
                    since = self._clock.monotonic()
                    admitted = await self._admit(request, wish)
                    self._metrics.count_admission(self._clock.monotonic() - since)
            if wish is not None:
                response = await self._follow(request, wish, admitted, wants_socket=wants_socket)
        except Refused as refused:
            response = self._tell_refusal(route, refused.refusal)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the last net: nobody sees what the error says
            log.error(  # noqa: TRY400 - its text and traceback may hold what was sent
                "A request met a bug.", extra={"error": type(error).__name__, "place": _find_place(error)}
            )
            response = self._tell_refusal(route, _BUG)
        else:
            self._metrics.count_request(route, "Ok")
        if page is not None and not response.prepared:
            _admit_page(response, page)
        return response

    def _read_wish(self, request: web.BaseRequest, *, wants_socket: bool) -> Wish | None:
        """Read what is asked for; None is a page that asks what it may send."""
        headers, path = request.headers, request.rel_url.raw_path
        if request.method == "OPTIONS" and "Origin" in headers and read_route(path) is not Route.NONE:
            return None
        wish = read_wish(request.method, path, request.rel_url.query.items(), is_upgrade=wants_socket)
        assert not isinstance(wish, Probe)
        if wants_socket and not isinstance(wish, AttachWish):
            raise refuse(RefusalCause.MALFORMED, "There is no socket at this path.")
        return wish

    async def _admit(self, request: web.BaseRequest, wish: Wish) -> "_Admitted":
        """Ask everything that has to be asked before somebody is let in, in the one order."""
        presented = choose_presented(
            read_bearer(request.headers),
            read_certificate(_find_certificate(request), self._clock.now()),
            is_from_page=is_from_browser(request.headers),
        )
        if presented is None:
            raise refuse(
                RefusalCause.NO_TOKEN,
                "Say who you are: a bearer token in the Authorization header, or a client certificate of the cluster.",
            )
        try:
            async with asyncio.timeout(self._settings.times.authenticate.total_seconds()):
                known = await self._identify(presented)
                await self._demand_rights(known, wish)
                terminal = await self._look_up(wish.target)
        except (KubeError, TimeoutError) as error:
            failure = error.failure if isinstance(error, KubeError) else "TimedOut"
            log.warning("The API server did not say who may.", extra={"failure": failure})
            raise refuse(
                RefusalCause.UNDECIDED,
                "The API server did not say who you are and what you may, in time; try again.",
                retry_after=_SOON,
            ) from None
        refusal = judge_standing(terminal, wish, self._terminals.look(terminal))
        if refusal is not None:
            raise Refused(refusal)
        if isinstance(wish, AttachWish):
            self._places.demand_person(known.person.name)
        unready = self.find_unready()
        if unready is not None:
            raise refuse(RefusalCause.NOT_READY, unready, retry_after=_SOON)
        return _Admitted(known, presented, terminal)

    async def _identify(self, presented: Presented) -> Known:
        match presented:
            case Certificate(person=person, expires=expires):
                return Known(person, expires)
            case BearerToken():
                verdict = await self._reviews.identify(presented)
                if isinstance(verdict, Known):
                    return verdict
                raise refuse(
                    RefusalCause.BAD_TOKEN,
                    "The API server does not take this token: it is wrong, has expired, or is meant for somebody else.",
                )

    async def _demand_rights(self, known: Known, wish: Wish) -> None:
        target = wish.target
        for right in list_rights(wish):
            if not await self._reviews.is_allowed(known.person, target, right):
                raise refuse(
                    RefusalCause.NO_RIGHT,
                    f'User "{known.person.name}" cannot create resource "agentterminals/{right}" in API group '
                    f'"agentterminal.dev" in the namespace "{target.namespace}", or not with this name.',
                    name=target.name,
                )

    async def _look_up(self, target: Target) -> Terminal:
        try:
            raw = await self._kube.get(target.namespace, target.name)
        except NotFound:
            raise refuse(RefusalCause.NOT_FOUND, "There is no AgentTerminal of this name.", name=target.name) from None
        try:
            return Terminal(
                name=target.name,
                uid=raw["metadata"]["uid"],
                deleting=raw["metadata"].get("deletionTimestamp") is not None,
                spec=read_spec(raw.get("spec")),
                status=read_status(raw.get("status")),
                raw=raw,
            )
        except ObjectUnreadable as error:
            log.warning("An object cannot be read.", extra={"path": error.path})
            raise refuse(
                RefusalCause.UNDECIDED,
                "This gateway cannot read the object: its CRD is of another version.",
                name=target.name,
            ) from None

    # --- What follows when somebody is let in -------------------------------------------------------------------------

    async def _follow(
        self, request: web.BaseRequest, wish: Wish, admitted: "_Admitted", *, wants_socket: bool
    ) -> web.StreamResponse:
        terminal = admitted.terminal
        match wish:
            case ActivityWish():
                await self._note_activity(terminal)
                return _answer(render_success("Noted.", terminal.name))
            case ListWish():
                return _answer(render_sessions(terminal))
            case AttachWish() if not wants_socket:
                return _answer(render_success("You may attach; ask for it with an upgrade.", terminal.name))
            case AttachWish():
                with self._places.socket(admitted.known.person.name, terminal.uid):
                    return await self._serve_socket(request, wish, admitted)

    async def _note_activity(self, terminal: Terminal) -> None:
        try:
            await self._terminals.note_activity(terminal)
        except KubeError as error:
            log.warning("Activity could not be noted.", extra={"failure": error.failure})
            raise refuse(
                RefusalCause.UNDECIDED, "It could not be noted; try again.", name=terminal.name, retry_after=_SOON
            ) from None

    async def _serve_socket(
        self, request: web.BaseRequest, wish: AttachWish, admitted: "_Admitted"
    ) -> web.StreamResponse:
        """Upgrade, and keep the socket until it ends by itself or its leave does."""
        times = self._settings.times
        socket = self._terminals.build_socket((SUBPROTOCOL,))
        guard = Guard(
            self._reviews,
            token=admitted.presented if isinstance(admitted.presented, BearerToken) else None,
            person=admitted.known.person,
            expires=admitted.known.expires,
            target=wish.target,
            rights=list_rights(wish),
            door=wish.door,
            times=times,
            clock=self._clock,
        )
        attach = AttachRequest(
            target=wish.target,
            uid=admitted.terminal.uid,
            person=admitted.known.person,
            mode=wish.mode,
            door=wish.door,
            columns=wish.columns,
            rows=wish.rows,
            terminal=admitted.terminal,
            leave=guard,
            abort=lambda: _abort(request),
        )
        self._guards.add(guard)
        self._all_ended.clear()
        try:
            await self._upgrade(request, socket)
            about = {"namespace": wish.target.namespace, "terminal": wish.target.name, "mode": wish.mode.value}
            log.info("A socket was let in.", extra={**about, "door": wish.door.value})
            await self._carry(attach, socket, guard)
            log.info("A socket has ended.", extra={**about, "close_code": socket.close_code})
        finally:
            self._guards.discard(guard)
            if not self._guards:
                self._all_ended.set()
        return socket

    async def _upgrade(self, request: web.BaseRequest, socket: web.WebSocketResponse) -> None:
        try:
            async with asyncio.timeout(self._settings.times.upgrade.total_seconds()):
                await socket.prepare(request)
        except TimeoutError:
            _abort(request)
            raise ConnectionError("The client did not take the answer to its upgrade.") from None

    async def _carry(self, attach: AttachRequest, socket: web.WebSocketResponse, guard: Guard) -> None:
        """Run the terminal's side and the guard side by side; neither outlives the other by more than a farewell."""
        farewell = self._settings.times.farewell.total_seconds()
        async with asyncio.TaskGroup() as group:
            carrier = group.create_task(_tend(self._terminals.attach(attach, socket)), name="attach")
            watcher = group.create_task(_tend(guard.run()), name="guard")
            await asyncio.wait((carrier, watcher), return_when=asyncio.FIRST_COMPLETED)
            if not carrier.done():
                await asyncio.wait((carrier,), timeout=farewell)
            watcher.cancel()
            carrier.cancel()
        ending = None if watcher.cancelled() else watcher.result()
        if ending is not None:
            self._metrics.count_socket_end(ending.cause)
        if not socket.closed:
            # Nobody has closed it: it was given its time, or a bug behind the doors left it open.
            code, words = (ending.code, ending.sentence) if ending is not None else (WSCloseCode.INTERNAL_ERROR, "Bug")
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(farewell):
                    await socket.close(code=code, message=words.partition(":")[0].encode(), drain=False)
            attach.abort()

    # --- Answers and the like -----------------------------------------------------------------------------------------

    def _answer_probe(self, request: web.BaseRequest) -> web.Response:
        probe = read_wish(request.method, request.rel_url.raw_path, (), is_upgrade=False)
        unready = self.find_unready() if probe is Probe.READY else None
        if unready is not None:
            return web.Response(status=503, text=f"{unready}\n")
        return web.Response(text="The doors are open.\n" if probe is Probe.READY else "This process is well.\n")

    def _tell_refusal(self, route: Route, refusal: Refusal) -> web.Response:
        """Count and log a refusal, and render it. A flood from one address fills no log."""
        self._metrics.count_request(route, refusal.cause)
        is_flood = refusal.cause in (RefusalCause.ADDRESS_LIMIT, RefusalCause.BUSY)
        log.log(
            logging.DEBUG if is_flood else logging.INFO,
            "A request was refused.",
            extra={"route": route.value, "status": refusal.code, "cause": refusal.cause.value},
        )
        return _answer_refusal(refusal)

    async def _read_authority(self) -> None:
        """Trust the client certificates that the cluster trusts; without its word, the last one stands."""
        assert self._tls is not None
        try:
            data = await self._kube.get_config_map(AUTHORITY_NAMESPACE, AUTHORITY_NAME)
        except KubeError as error:
            log.warning(
                "The cluster's authority for client certificates cannot be read; the last one stands.",
                extra={"failure": error.failure},
            )
            return
        if not self._tls.trust_clients(data.get(AUTHORITY_KEY) or None):
            log.warning("The cluster's authority for client certificates cannot be used: none is asked for.")


@dataclass(frozen=True, slots=True)
class _Admitted:
    """Who was let in, as whom, and to what."""

    known: Known
    presented: Presented
    terminal: Terminal


_BUG: Final = Refusal(RefusalCause.BUG, "The gateway met a bug; its log names the place.")


def render_sessions(terminal: Terminal) -> dict[str, Any]:
    """Render a session list as the vendor's API does, with the object's own session or none."""
    session = terminal.status.session
    if session is None or session.id is None or session.ended is not None:
        return {"count": 0, "sessions": []}
    created = session.created.isoformat().replace("+00:00", "Z") if session.created is not None else ""
    # Not the command: its words may be secret, and the right to attach is no right to read the object.
    entry = {"id": session.id, "command": "", "created": created, "is_active": True, "tty": True}
    return {"count": 1, "sessions": [entry]}


async def _tend(work: Coroutine[Any, Any, T]) -> T | None:
    """Let a bug behind the doors end its own socket and no other, and keep what it says to ourselves."""
    try:
        return await work
    except ConnectionError:
        return None
    except Exception as error:  # noqa: BLE001 - see above
        log.error(  # noqa: TRY400 - its text and traceback may hold terminal bytes
            "A socket met a bug.", extra={"error": type(error).__name__, "place": _find_place(error)}
        )
        return None


def _demand_readable(request: web.BaseRequest) -> bool:
    """Refuse what could not be answered without repeating it; tell whether a socket is asked for."""
    wants_socket = is_upgrade(request.headers)
    demand_readable(request.headers, is_upgrade=wants_socket)
    return wants_socket


def _find_address(request: web.BaseRequest) -> str:
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return str(peer[0]) if peer else ""


def _find_certificate(request: web.BaseRequest) -> Any:
    return request.transport.get_extra_info("peercert") if request.transport is not None else None


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()


def _answer(body: Mapping[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type=_JSON, headers={"Cache-Control": "no-store"})


def _answer_refusal(refusal: Refusal) -> web.Response:
    return web.Response(
        status=refusal.code,
        body=orjson.dumps(render_refusal(refusal)),
        content_type=_JSON,
        headers={**render_headers(refusal), "Cache-Control": "no-store"},
    )


def _admit_page(response: web.StreamResponse, page: Page) -> None:
    """Let an admitted page read the answer, and send its token; never with cookies."""
    response.headers["Access-Control-Allow-Origin"] = page.origin
    response.headers["Access-Control-Allow-Methods"] = "GET, HEAD, POST"
    response.headers["Access-Control-Allow-Headers"] = "authorization"
    response.headers["Access-Control-Expose-Headers"] = "retry-after"
    response.headers["Vary"] = "Origin"


def _find_place(error: BaseException | None) -> str:
    """Name the last line of our own code that an error passed; its text is nobody's business."""
    for frame in reversed(traceback.extract_tb(error.__traceback__) if error is not None else []):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f"{path.relative_to(_PACKAGE)}:{frame.lineno}"
    return ""

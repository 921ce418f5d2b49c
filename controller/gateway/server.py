"""
The gateway's doors: every request is read, judged in one order, and handed over or refused.

Problem: each check that comes too early tells a stranger what exists, each that comes too late costs more than it
should, and the HTTP library below repeats headers in its own errors and logs. Promise: the order of gateway.md 6, the
same for sockets and for a page that asks beforehand; every refusal a Kubernetes `Status`; nothing that was sent shows
in an answer, a log line or a metric; on SIGTERM no more is let in, every socket is told, and the end is bounded.
Source: gateway.md 5 and 6.

aiohttp's own access log prints the query, so there is none; what else it would say, `controller.gateway.quiet` keeps.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

from aiohttp import web

from controller.clock import Clock
from controller.gateway.access import (
    Page,
    demand_host,
    demand_readable,
    find_page,
    is_upgrade,
)
from controller.gateway.admission import Admission, Admitted, LookingKube
from controller.gateway.answers import BUG, admit_page, answer, answer_refusal, render_sessions
from controller.gateway.limits import AddressLimit, Places
from controller.gateway.metrics import OK
from controller.gateway.quiet import QuietServer, find_place
from controller.gateway.refusals import (
    Refusal,
    RefusalCause,
    Refused,
    refuse,
    render_success,
)
from controller.gateway.reviews import ReviewingKube, Reviews
from controller.gateway.settings import GatewaySettings
from controller.gateway.sockets import Sockets
from controller.gateway.standing import Terminal
from controller.gateway.terminals import Terminals
from controller.gateway.tls import Tls
from controller.gateway.wishes import (
    ActivityWish,
    AttachWish,
    ListWish,
    Probe,
    Route,
    Wish,
    read_route,
    read_wish,
)
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import KubeError

log = logging.getLogger(__name__)

T = TypeVar("T")

_SOON: Final = timedelta(seconds=5)

AUTHORITY_NAMESPACE: Final = "kube-system"
AUTHORITY_NAME: Final = "extension-apiserver-authentication"
AUTHORITY_KEY: Final = "client-ca-file"
"""Where a cluster publishes its authority for client certificates. Source: kubernetes.io, "Configure the aggregation
layer" (read 2026-11)."""


class GatewayKube(ReviewingKube, LookingKube, Protocol):
    """The calls that the doors make: `controller.kube.client.KubeClient`. They raise `KubeError`."""

    async def get_config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        """Read a ConfigMap's data."""


class DoorMetrics(Protocol):
    """What the doors count: `controller.gateway.metrics.GatewayMetrics`."""

    def count_request(self, route: str, answer: str) -> None:
        """Count one request by its route and its answer: `OK`, or the cause of the refusal."""

    def count_admission(self, duration: timedelta) -> None:
        """Count how long the judgement of one request took that was let in."""

    def count_socket_end(self, cause: str) -> None:
        """Count a socket that the doors ended: the cause of the ending."""

    def observe_sockets(self, count: Callable[[], float]) -> None:
        """Name the function that counts open sockets."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """Render everything for a scrape."""


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
        times = settings.times
        reviews = Reviews(
            kube,
            audiences=settings.audiences,
            own_audience_only=settings.own_audience_only,
            kept=times.verdict_kept,
            limits=settings.limits,
            clock=clock,
        )
        self._admission = Admission(
            kube,
            reviews,
            self._places,
            look=terminals.look,
            find_state=terminals.find_state,
            find_unready=self.find_unready,
            within=times.authenticate,
            clock=clock,
        )
        self._sockets = Sockets(
            terminals, reviews, self._places, times=times, clock=clock, count_end=metrics.count_socket_end
        )
        self._tls = Tls(settings.tls) if settings.tls is not None else None
        self._is_draining = False
        self._servers: list[QuietServer] = []
        self._listening: list[asyncio.Server] = []
        metrics.observe_sockets(lambda: len(self._sockets))

    @property
    def is_listening(self) -> bool:
        """Whether both ports are open."""
        return len(self._listening) == 2

    @property
    def port(self) -> int:
        """The port of the doors."""
        return self._find_port(0)

    @property
    def metrics_port(self) -> int:
        """The port of metrics and probes."""
        return self._find_port(1)

    def _find_port(self, number: int) -> int:
        if not self.is_listening or not self._listening[number].sockets:
            raise RuntimeError("The gateway does not listen.")
        return int(self._listening[number].sockets[0].getsockname()[1])

    @property
    def sockets(self) -> int:
        """How many sockets are open."""
        return len(self._sockets)

    def find_unready(self) -> str | None:
        """Say why nothing can be attached here now; None when it can."""
        return "This gateway ends." if self._is_draining else self._terminals.find_unready()

    async def serve(self) -> None:
        """Start, and serve until cancelled; then drain, and stop."""
        await self.start()
        try:
            await self.run()
        finally:
            try:
                await self.drain()
            finally:
                await self.stop()

    async def start(self) -> None:
        """
        Listen, at the doors and for metrics.

        Raises:
            OSError: An address cannot be used.
        """
        settings = self._settings
        tls: dict[str, Any] = {}
        if self._tls is not None:
            await self._read_authority()
            handshake = settings.times.tls_handshake.total_seconds()
            tls = {"ssl": self._tls.context, "ssl_handshake_timeout": handshake}
        try:
            await self._listen(self._handle, settings.address, settings.port, **tls)
            await self._listen(self._handle_scrape, settings.metrics_address, settings.metrics_port)
        except BaseException:
            await self.stop()
            raise
        log.info(
            "The gateway's doors are open.",
            extra={
                "address": settings.address,
                "port": self.port,
                "metrics_port": self.metrics_port,
                "tls": self._tls is not None,
            },
        )

    async def _listen(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        address: str,
        port: int,
        **tls: Any,
    ) -> None:
        server = QuietServer(
            handler,
            lambda cause: self._metrics.count_request(Route.NONE, cause),
            access_log=None,
            keepalive_timeout=self._settings.times.request_head.total_seconds(),
            max_line_size=8192,
            max_field_size=self._settings.head_bytes,
            max_headers=64,
            lingering_time=1.0,
            most=self._settings.limits.connections,
        )
        self._servers.append(server)
        self._listening.append(await asyncio.get_running_loop().create_server(server, address, port, **tls))

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
        if self.is_listening:
            self._listening[0].close()
        await self._sockets.drain()

    async def stop(self) -> None:
        """Close every connection; stopping twice is fine."""
        self._is_draining = True
        listening, self._listening = self._listening, []
        servers, self._servers = self._servers, []
        for one in listening:
            one.close()
        for server in servers:
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
                    admitted = await self._admission.admit(request.headers, _find_certificate(request), wish)
                    self._metrics.count_admission(self._clock.monotonic() - since)
            if wish is not None:
                response = await self._follow(request, route, wish, admitted, wants_socket=wants_socket)
        except Refused as refused:
            response = self._tell_refusal(route, refused.refusal)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - the last net: nobody sees what the error says
            log.error(  # noqa: TRY400 - its text and traceback may hold what was sent
                "A request met a bug.", extra={"error": type(error).__name__, "place": find_place(error)}
            )
            response = self._tell_refusal(route, BUG)
        else:
            if not isinstance(response, web.WebSocketResponse):  # a socket was counted when it opened
                self._metrics.count_request(route, OK)
            log.debug("A request was answered.", extra={"route": route.value, "status": response.status})
        if page is not None and not response.prepared:
            admit_page(response, page)
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

    # --- What follows -------------------------------------------------------------------------------------------------

    async def _follow(
        self, request: web.BaseRequest, route: Route, wish: Wish, admitted: Admitted, *, wants_socket: bool
    ) -> web.StreamResponse:
        terminal = admitted.terminal
        match wish:
            case ActivityWish():
                await self._note_activity(terminal)
                return answer(render_success("Noted.", terminal.name))
            case ListWish():
                return answer(render_sessions(terminal))
            case AttachWish() if not wants_socket:
                return answer(render_success("You may attach; ask for it with an upgrade.", terminal.name))
            case AttachWish():
                return await self._sockets.serve(
                    request, wish, admitted, count_open=lambda: self._metrics.count_request(route, OK)
                )

    async def _note_activity(self, terminal: Terminal) -> None:
        try:
            await self._terminals.note_activity(terminal)
        except KubeError as error:
            log.warning("Activity could not be noted.", extra={"failure": error.failure})
            raise refuse(
                RefusalCause.UNDECIDED, "It could not be noted; try again.", name=terminal.name, retry_after=_SOON
            ) from None

    # --- Answers and the like -----------------------------------------------------------------------------------------

    async def _handle_scrape(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer at the port of metrics and probes, which is no door."""
        if request.rel_url.raw_path in ("/healthz", "/readyz") and request.method in ("GET", "HEAD"):
            return self._answer_probe(request)
        if request.rel_url.raw_path != "/metrics":
            return answer_refusal(Refusal(RefusalCause.NO_DOOR, "Here are /metrics, /healthz and /readyz."))
        body, content_type = self._metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

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
        return answer_refusal(refusal)

    async def _read_authority(self) -> None:
        """Trust the client certificates that the cluster trusts; without its word, the last one stands."""
        assert self._tls is not None
        try:
            data = await self._kube.get_config_map(AUTHORITY_NAMESPACE, AUTHORITY_NAME)
        except (KubeError, CredentialsUnusable) as error:
            log.warning(
                "The cluster's authority for client certificates cannot be read; the last one stands.",
                extra={"failure": error.failure if isinstance(error, KubeError) else type(error).__name__},
            )
            return
        if not self._tls.trust_clients(data.get(AUTHORITY_KEY) or None):
            log.warning("The cluster's authority for client certificates cannot be used: none is asked for.")


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

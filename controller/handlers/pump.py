"""
kopf as the event pump: it lists and watches, and hands every word about an object to the main loop.

Problem: kopf is a framework with opinions about state, retries and shutdown that are wrong for this product, and the
best there is at keeping a list and a watch alive. Promise: it runs in a thread and a loop of its own, writes nothing,
keeps nothing on the objects, logs in anew without ever running out of credentials, holds few connections, and is
stopped by its flag; whoever waits for it learns when it ends.
Source: kopf.md 10, 11 and 16, measured on kopf 1.45.2.
"""

import asyncio
import logging
import ssl
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
import kopf
import orjson
import uvloop

from controller import __version__
from controller.api.names import FIELD_MANAGER, GROUP, PLURAL, VERSION
from controller.clock import Clock
from controller.engine.registry import Gone, Snapshot
from controller.errors import AgentTerminalError
from controller.handlers.handover import Handover, Word
from controller.handlers.withheld import Withheld
from controller.kube.credentials import ConnectionFacts, build_ssl_context
from controller.sockets import Sockets

log = logging.getLogger(__name__)

KOPF_FINALIZER: Final = f"{GROUP}/kopf-never-placed"
"""kopf takes its own finalizer off every object on which no handler of its own needs it: were it ours, it would take
off ours (test_the_pump_writes_nothing_and_leaves_our_finalizer_alone)."""

_RETRIES: Final = (1, 1, 2, 3, 5, 8, 13, 21, 30, 30, 30)
"""Seconds between the tries of one request, 144 together: an API server behind a load balancer answers 503 for that
long when it is replaced, and a pump that gave up would end the process."""

_CALLERS: Final = ("kopf._cogs.clients.watching", "kopf._cogs.clients.fetching", "kopf._core.reactor.observation")
"""Those loggers of kopf that speak of requests which failed."""

_FORBIDDEN: Final = (
    "The API server refuses to show the AgentTerminals; it is asked again. Give the operator the rights of the chart's "
    "roles, or name in AGENTTERMINAL_NAMESPACES the namespaces in which it has them."
)
_UNANSWERED: Final = "The API server did not show the AgentTerminals; it is asked again."

_QUIET: Final = ("kopf.objects", "kopf.activities.authentication", "kopf._core.engines.activities")
"""Loggers that speak at INFO about every object and every login."""


class PumpEnded(AgentTerminalError):
    """kopf ended although nobody had asked it to: nothing is seen any more, so the process must end."""


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """How the pump lists, watches and logs in."""

    namespaces: tuple[str, ...] = ()
    """Watch exactly these, with one watch each; empty means the whole cluster with a single one."""

    chunk_size: int = 500
    """Objects per page of a list: 20 pages for 10,000 objects, 2.5 MB each, and never two in memory."""

    connect_timeout: timedelta = timedelta(seconds=10)
    """kopf would wait 300 s for a connection that nobody answers."""

    request_timeout: timedelta = timedelta(seconds=30)
    """For a page of a list; kopf's 300 s times its retries would be most of an hour."""

    reconnect_backoff: timedelta = timedelta(seconds=1)
    """Between two watches: ten a second, kopf's default, is no help to a server that just came up."""

    idle_timeout: timedelta = timedelta(milliseconds=100)
    """How long kopf keeps the worker of an object after its last event: in a burst of thousands, a tenth of a second
    holds a fifth of the workers of half a second. Not nothing at all, since kopf then never takes an event."""

    error_delay_max: timedelta = timedelta(seconds=60)
    """kopf turns deaf to an object after errors of its own, for up to 610 s by default."""

    credentials_max_age: timedelta = timedelta(minutes=10)
    """Credentials are read anew when the first request after this goes out: well before a token of one hour ends."""

    login_pause_max: timedelta = timedelta(seconds=30)
    """The longest wait between logins that are refused one after the other; the first repeat comes at once."""

    withheld_pause: timedelta = timedelta(seconds=5)
    """Between two tries of a named namespace that may not be read."""

    withheld_patience: timedelta = timedelta(seconds=60)
    """So long the first list waits for such a namespace."""

    stop_timeout: timedelta = timedelta(seconds=15)
    """kopf needs up to 7 s to put its tasks away; after this the thread is left to the end of the process."""

    def __post_init__(self) -> None:
        rules = (
            (
                "namespaces",
                "must be names, not patterns",
                any(not n or set(n) & set("*?![],") for n in self.namespaces),
            ),
            ("namespaces", "must not repeat one", len(set(self.namespaces)) != len(self.namespaces)),
            ("chunk_size", "must be at least 1", self.chunk_size < 1),
            *(
                (name, "must be longer than zero", cast("timedelta", getattr(self, name)) <= timedelta(0))
                for name in (
                    "connect_timeout",
                    "request_timeout",
                    "reconnect_backoff",
                    "idle_timeout",
                    "error_delay_max",
                    "credentials_max_age",
                    "login_pause_max",
                    "withheld_pause",
                    "withheld_patience",
                    "stop_timeout",
                )
            ),
        )
        faults = [f"{name} {rule}." for name, rule, broken in rules if broken]
        if faults:
            raise ValueError(" ".join(faults))

    @property
    def connections_max(self) -> int:
        """One for each watch, and one for a list beside them."""
        return max(1, len(self.namespaces)) + 1


def judge_login_pause(repeats: int, longest: timedelta) -> timedelta:
    """
    Decide how long to wait before a login that follows close upon others.

    A single refusal (one replica of the API server with a stale key) is answered at once; a token that is refused again
    and again is tried at 1, 2, 4 seconds and so on up to the longest pause, for ever, since it may be renewed.

    Args:
        repeats: Logins before this one, each soon after the other.
        longest: No pause is longer.
    """
    if repeats < 2:
        return timedelta(0)
    return min(longest, timedelta(seconds=1 << min(repeats - 2, 20)))


class Pump:
    """
    One run of kopf. It is started once and stopped once; a new run is a new object.

    Args:
        settings: How to list, watch and log in.
        connect: Reads the credentials anew; called in a helper thread at each login, so it may block.
        on_event: Takes each word, on the loop that called `start`.
        clock: Wall time for the age of credentials, monotonic time between logins.
    """

    def __init__(
        self,
        settings: PumpSettings,
        connect: Callable[[], ConnectionFacts],
        on_event: Callable[[Word], None],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._on_event = on_event
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._handover: Handover | None = None
        self._kopf_loop: asyncio.AbstractEventLoop | None = None
        self._stop_flag: asyncio.Event | None = None
        self._stopping = threading.Event()
        self._ended: asyncio.Future[None] | None = None
        self._sessions: list[aiohttp.ClientSession] = []
        self._sockets = Sockets()
        self._last_login: timedelta | None = None
        self._login_repeats = 0
        self._watched: set[str] = set()
        self._missing: set[str] = set()
        self._withheld = Withheld(
            clock,
            pause=settings.withheld_pause,
            patience=settings.withheld_patience,
            on_missing=self._note_missing,
        )
        self.ready = asyncio.Event()
        """Set on the main loop once every object of the first list was delivered."""
        self.events = 0
        """Words from kopf since the start."""
        self.errors = 0
        """Words that could not be understood."""
        self.logins = 0
        """Times the credentials were read."""
        self.watches = 0
        """Watch requests sent: grows by one with every reconnect."""
        self.connections = 0
        """Connections opened."""

    @property
    def alive(self) -> bool:
        """Tell whether kopf runs."""
        return self._ended is not None and not self._ended.done()

    @property
    def unreadable(self) -> int:
        """Count the named namespaces that may not be read."""
        return self._withheld.count()

    @property
    def undelivered(self) -> int:
        """Count the words whose delivery failed."""
        return 0 if self._handover is None else self._handover.errors

    def start(self) -> None:
        """Start kopf in its thread; words come on the running loop from now on."""
        loop = asyncio.get_running_loop()
        _hush()
        self._handover = Handover(loop, self._on_event)
        self._ended = loop.create_future()
        # A daemon: the end of the process never waits for kopf.
        self._thread = threading.Thread(target=self._run, args=(loop,), name="kopf", daemon=True)
        self._thread.start()

    async def wait(self) -> None:
        """
        Wait for the end of kopf.

        Raises:
            PumpEnded: When nobody had asked it to end.
        """
        if self._ended is None:
            raise RuntimeError("The pump was not started.")
        await asyncio.shield(self._ended)

    async def stop(self) -> None:
        """Raise kopf's flag and wait until its thread has ended; stopping twice, or what never started, is fine."""
        self._stopping.set()
        if self._ended is None or self._thread is None:
            return
        if self._kopf_loop is not None and self._stop_flag is not None:
            try:
                self._kopf_loop.call_soon_threadsafe(self._stop_flag.set)
            except RuntimeError:
                log.debug("The event pump had ended before it was stopped.")
        done, _ = await asyncio.wait([self._ended], timeout=self._settings.stop_timeout.total_seconds())
        if not done:
            log.warning("The event pump did not end in time; its thread is left to the end of the process.")
            return
        self._thread.join(1)  # It has said its last word, and only returns.

    def _run(self, main: asyncio.AbstractEventLoop) -> None:
        """Be kopf's thread."""
        fault: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._operate())
        except BaseException as error:  # noqa: BLE001  # Whatever ends kopf, the main loop must learn of it.
            fault = error
        try:
            main.call_soon_threadsafe(self._conclude, fault)
        except RuntimeError:
            log.debug("The event pump ended after the main loop.")

    def _conclude(self, fault: BaseException | None) -> None:
        if self._ended is None or self._ended.done():
            return
        if self._stopping.is_set():
            if fault is not None:
                log.warning("The event pump failed while it was stopped.", extra={"error": repr(fault)})
            self._ended.set_result(None)
            return
        ended = PumpEnded("The event pump ended by itself; objects are not watched any more.")
        ended.__cause__ = fault
        self._ended.set_exception(ended)
        self._ended.exception()  # Retrieved: whoever never waits needs no second report.

    async def _operate(self) -> None:
        self._stop_flag = asyncio.Event()
        self._kopf_loop = asyncio.get_running_loop()
        if self._stopping.is_set():
            return
        try:
            await kopf.operator(
                registry=self._build_registry(),
                settings=build_settings(self._settings),
                clusterwide=not self._settings.namespaces,
                namespaces=self._settings.namespaces,
                standalone=True,
                identity=FIELD_MANAGER,  # type: ignore[arg-type]  # A NewType of str that kopf does not export; else it asks the DNS.
                memo=(),  # A copy of this is kept for every object: the empty tuple is its own copy.
                stop_flag=self._stop_flag,
            )
        finally:
            for session in self._sessions:
                await session.close()
            await self._sockets.close()

    def _build_registry(self) -> kopf.OperatorRegistry:
        """Register two handlers: one for every event, without a patch, and one for logins."""
        registry = kopf.OperatorRegistry()

        async def see(event: kopf.RawEvent, **_: Any) -> None:
            self._see(event)

        async def login(**_: Any) -> kopf.AiohttpSession:
            return await self._login()

        kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(see)
        kopf.on.login(registry=registry)(login)
        return registry

    def _see(self, event: kopf.RawEvent) -> None:
        """Take an event from kopf; it is small at once, so that the parsed object can go."""
        handover = cast("Handover", self._handover)
        self.events += 1
        try:
            handover.put(_word(event))
        except Exception:  # kopf would log it with the object and go on; the resync finds what is missing.
            self.errors += 1
            log.exception("An event was not understood.")

    def _take_page(self, page: dict[str, Any]) -> None:
        """
        Hand over a page of a list, and leave kopf its version and the way to the next page.

        For each listed object kopf would start a worker and keep a memory, and come to the same handler in the end.
        Observed: kopf 1.45.2, 4,000 objects of 3.5 KB: 0.36 ms of CPU and 6.5 KiB of memory each.
        """
        items, page["items"] = page.get("items") or (), []
        for item in items:
            self._see({"type": None, "object": item})

    def _judge_ready(self) -> None:
        """
        Say that the first list has passed: a watch begins after the last page of its list was handed over.

        A namespace that may not be read is not waited for, unless it is the only one.
        """
        if self._watched and len(self._watched | self._missing) == max(1, len(self._settings.namespaces)):
            cast("Handover", self._handover).mark(self.ready.set)

    def _note_missing(self, path: str) -> None:
        self._missing.add(path)
        self._judge_ready()

    async def _login(self) -> kopf.AiohttpSession:
        """
        Read the credentials and build a session of our own, with few connections.

        Each answer is distinct, so that a stray 401 never leaves kopf without credentials (kopf.md 0.7).
        """
        while True:
            await asyncio.sleep(self._count_login().total_seconds())
            try:
                async with asyncio.timeout(self._settings.request_timeout.total_seconds()):
                    facts = await asyncio.to_thread(self._connect)
                trust = build_ssl_context(facts)
            except Exception as error:  # noqa: BLE001  # Whatever a credential plugin raises, the next try may succeed.
                log.warning("The credentials for the API server could not be read.", extra={"error": repr(error)})
                continue
            break
        session = self._open_session(facts, trust)
        self._sessions = [known for known in self._sessions if not known.closed] + [session]
        return kopf.AiohttpSession(
            server=facts.server,
            aiohttp_session=session,
            expiration=self._judge_expiration(facts.expiration),
        )

    def _open_session(self, facts: ConnectionFacts, trust: ssl.SSLContext | None) -> aiohttp.ClientSession:
        headers = {"User-Agent": f"{FIELD_MANAGER}/{__version__}"}
        if facts.token is not None:
            headers["Authorization"] = f"{facts.scheme} {facts.token}"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._settings.connections_max,
                ssl=True if trust is None else trust,
                socket_factory=self._sockets.make,
            ),
            headers=headers,
            response_class=self._build_response_class(),
            trace_configs=[self._build_trace()],
            middlewares=[
                self._withheld,
                *([] if facts.tls_server_name is None else [_build_naming(facts.tls_server_name)]),
            ],
            proxy=facts.proxy_url,
            trust_env=False,
        )

    def _count_login(self) -> timedelta:
        """Count a login and tell how long it must wait."""
        now = self._clock.monotonic()
        longest = self._settings.login_pause_max
        soon = self._last_login is not None and now - self._last_login < 2 * longest
        self._login_repeats = self._login_repeats + 1 if soon else 0
        pause = judge_login_pause(self._login_repeats, longest)
        self._last_login = now + pause
        self.logins += 1
        return pause

    def _judge_expiration(self, told: datetime | None) -> datetime:
        """Choose the earlier of the token's end and our own limit, and never one that would ask for a login at once."""
        now = self._clock.now()
        latest = now + self._settings.credentials_max_age
        return latest if told is None else min(latest, max(told, now + self._settings.login_pause_max))

    def _build_response_class(self) -> type[aiohttp.ClientResponse]:
        """Parse bodies with orjson, three times as fast on a page of 500 objects, and take what was listed."""
        pump = self

        class Response(aiohttp.ClientResponse):
            async def json(self, **_: Any) -> Any:
                body = orjson.loads(await self.read())
                if isinstance(body, dict) and self.url.path.endswith(f"/{PLURAL}") and self.status == 200:
                    pump._take_page(body)  # A class inside its own class.
                return body

        return Response

    def _build_trace(self) -> aiohttp.TraceConfig:
        """Note connections and watches as they are opened: kopf tells its handlers of neither."""

        async def on_request(
            _: aiohttp.ClientSession, __: SimpleNamespace, sent: aiohttp.TraceRequestStartParams
        ) -> None:
            if sent.url.path.endswith(f"/{PLURAL}") and sent.url.query.get("watch") == "true":
                self.watches += 1
                self._watched.add(sent.url.path)
                self._judge_ready()

        async def on_connection(*_: object) -> None:
            self.connections += 1

        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(on_request)
        trace.on_connection_create_end.append(on_connection)
        return trace


def _build_naming(tls_server_name: str) -> aiohttp.ClientMiddlewareType:
    """Expect another name in the server's certificate than the URL's; kopf's requests cannot say so themselves."""

    async def name(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        request.server_hostname = tls_server_name
        return await handler(request)

    return name


def build_settings(settings: PumpSettings) -> kopf.OperatorSettings:
    """Tell kopf to watch, and nothing else."""
    ours = kopf.OperatorSettings()
    ours.posting.enabled = False
    ours.peering.standalone = True
    ours.scanning.disabled = True
    ours.watching.chunk_size = settings.chunk_size
    ours.watching.connect_timeout = settings.connect_timeout.total_seconds()
    ours.watching.reconnect_backoff = settings.reconnect_backoff.total_seconds()
    ours.networking.connect_timeout = settings.connect_timeout.total_seconds()
    ours.networking.request_timeout = settings.request_timeout.total_seconds()
    ours.networking.error_backoffs = _RETRIES
    ours.queueing.idle_timeout = settings.idle_timeout.total_seconds()
    longest = settings.error_delay_max.total_seconds()
    ours.queueing.error_delays = [min(longest, delay) for delay in (1, 2, 5, 10, 20, 60)]
    ours.persistence.finalizer = KOPF_FINALIZER
    ours.persistence.diffbase_storage = _NoBaseline()
    ours.persistence.progress_storage = _NoProgress()
    # Embedded, kopf must never send SIGKILL to its thread because it was slow to end.
    ours.process.ultimate_exiting_timeout = None
    return ours


class _NoBaseline(kopf.DiffBaseStorage):
    """Compare nothing with nothing: there is no change handler, and the copies cost a third of kopf's time."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[kopf.FieldSpec] | None = None) -> kopf.BodyEssence:  # noqa: ARG002
        return {}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:  # noqa: ARG002  # kopf's signature.
        return {}

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:  # noqa: ARG002
        raise AssertionError("The pump stores nothing on objects.")


class _NoProgress(kopf.ProgressStorage):
    """There are no handlers with a progress."""

    def fetch(self, **_: Any) -> kopf.ProgressRecord | None:
        return None

    def store(self, **_: Any) -> None:
        raise AssertionError("The pump stores nothing on objects.")

    def purge(self, **_: Any) -> None:
        raise AssertionError("The pump stores nothing on objects.")

    def touch(self, **_: Any) -> None:
        raise AssertionError("The pump stores nothing on objects.")

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def _word(event: kopf.RawEvent) -> Word:
    raw = cast("Mapping[str, Any]", event["object"])
    if event["type"] != "DELETED":
        return Snapshot.of(raw)
    metadata = raw["metadata"]
    return Gone(metadata["uid"], metadata["namespace"], metadata["name"], int(metadata["resourceVersion"]))


def _hush() -> None:
    """Keep kopf from speaking at INFO of each object, from warning of our signals, and from showing data for people."""
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").addFilter(_is_worth_saying)
    for name in _CALLERS:
        logging.getLogger(name).addFilter(_retell)


def _is_worth_saying(record: logging.LogRecord) -> bool:
    return "OS signals are ignored" not in record.getMessage()


def _retell(record: logging.LogRecord) -> bool:
    """
    Put a sentence in the place of what kopf says of a failed request: an address, and an answer as Python shows it.

    kopf logs while it handles the error, which therefore is at hand (observed with kopf 1.45.2).
    """
    error = sys.exc_info()[1]
    if error is None or not record.getMessage().startswith("Request attempt"):
        return True
    status = getattr(error, "status", None)
    record.msg = _FORBIDDEN if status == HTTPStatus.FORBIDDEN else _UNANSWERED
    record.args = ()
    record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    told = getattr(error, "message", None) or str(error) or type(error).__name__
    record.fault = told if status is None else f"{status}: {told}"
    return True

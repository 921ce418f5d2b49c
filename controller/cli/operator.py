"""`agentterminal operator`: settings in, the clients built, pump and engine joined, and everything ended as one."""

import asyncio
import contextlib
import gc
import logging
import random
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import click
import uvloop

from controller.cli.listening import name_settings
from controller.cli.login import choose_login
from controller.cli.own_token import build_own_token
from controller.clock import SystemClock
from controller.engine.elector import Candidate, Elector
from controller.engine.liveness import LivenessFacts, PumpState, TenureState, judge_liveness, judge_readiness
from controller.engine.operator import Operator, Outside
from controller.engine.schema import observe_lacking
from controller.handlers.pump import Pump, PumpSettings
from controller.handlers.web import Web, WebSettings
from controller.kube.calls import KubeCallReport
from controller.kube.client import KubeClient
from controller.kube.credentials import (
    Credentials,
    load_credentials,
    read_connection_facts,
)
from controller.kube.events import EventRecorder
from controller.kube.settings import KubeSettings
from controller.logs import configure_logging
from controller.metrics import Metrics, build_metrics
from controller.settings import (
    ElectionSettings,
    OperatorSettings,
    environment,
    read_operator_settings,
)
from controller.settings.table import render_settings_help
from controller.sprites.client import SpritesClient
from controller.sprites.reports import CallReport
from controller.tenure import LeasedTenure, Tenure

log = logging.getLogger(__name__)

_NONCE_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_NONCE_CHARACTERS: Final = 20
"""103 bits: nobody draws the same twice, and it fits into a file name."""

GRACE: Final = timedelta(seconds=5)
"""What is under way when we are asked to end gets so long; a pod has 30 s, of which the pump may need 15."""

_FALLBACK_NAMESPACE: Final = "default"
"""As kubectl has it, where a kubeconfig names none."""


@click.command(name="operator", epilog="\b\n" + render_settings_help().replace("\n\n", "\n\n\b\n"))
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig to log in with. Without it: $KUBECONFIG, else the pod's service account, else ~/.kube/config.",
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig. Without it: its current one.")
def operator_command(*, kubeconfig: str | None, context: str | None) -> int:
    """
    Run the operator against a cluster, in the foreground.

    It drives every AgentTerminal to what its spec declares, and serves /metrics, /healthz and /readyz on one port.
    Of several operators that share a Lease one leads and acts; the others follow the watch and stand by. SIGTERM and
    Ctrl-C end it: what is under way gets 5 s, then the Lease is given back. Whatever is left is taken up by the next
    leader.

    Exit code: 0 when it was asked to end; 1 when it failed; 2 when a setting is faulty; 3 when it led and lost the
    Lease, after which a fresh start stands by.
    """
    settings = read_operator_settings(environment())
    configure_logging(settings.log)
    for remark in settings.remarks:
        log.warning(remark.sentence, extra={"setting": remark.name})
    login = choose_login(kubeconfig, context)
    _spare_the_collector()
    uvloop.run(_run_until_signalled(settings, KubeSettings(login=login)))
    return 0


def _spare_the_collector() -> None:
    """
    Keep what was imported out of every later garbage collection, and collect less often.

    Observed: 15 to 25 % less CPU while 10,000 objects are seen for the first time, and shorter pauses of the loop
    (CPython 3.11, 2026-11-30).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


class _AskedToEnd(Exception):
    """Somebody asked the operator to end, and what was under way has had its time."""


@dataclass(slots=True)
class _Ending:
    """How a signal ends the operator: gently while it serves, at once before and at the second time."""

    task: asyncio.Task[None]
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    is_serving: bool = False

    def ask(self) -> None:
        if not self.is_serving or self.asked.is_set():
            self.task.cancel()
        self.asked.set()


async def _run_until_signalled(settings: OperatorSettings, kube_settings: KubeSettings) -> None:
    """Run the operator; SIGTERM and SIGINT end it in good order."""
    task = asyncio.current_task()
    assert task is not None
    received: list[signal.Signals] = []
    ending = _Ending(task)

    def end(number: signal.Signals) -> None:
        received.append(number)
        ending.ask()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    try:
        await run_operator(settings, kube_settings, ending)
    except asyncio.CancelledError:
        if not received:
            raise
    log.info("The operator has ended, as it was asked to.", extra={"signal": received[0].name})


async def run_operator(settings: OperatorSettings, kube_settings: KubeSettings, ending: _Ending) -> None:
    """Build everything, run it, and take it apart; the end of any long-lived part is the end of all."""
    clock, metrics = SystemClock(), build_metrics()
    tenure = Tenure(0) if settings.election is None else LeasedTenure(clock.elapsed)
    credentials = await load_credentials(kube_settings, clock=clock)

    def open_kube(permit: Tenure | None) -> KubeClient:
        return KubeClient(
            credentials, kube_settings, clock, lambda report: _count_kube_call(metrics, report), tenure=permit
        )

    async with (
        open_kube(tenure) as kube,
        open_kube(None) as lookout,
        open_kube(None) as leases,
        SpritesClient(
            settings.sprites, clock, lambda report: _count_sprites_call(metrics, report), tenure=tenure
        ) as sprites,
    ):
        events = EventRecorder(kube, clock, reporting_instance=socket.gethostname())
        operator = Operator(
            Outside(kube, sprites, events, build_own_token(settings.own_token)),
            settings.engine,
            per_second=settings.sprites_requests_per_second,
            metrics=metrics,
            clock=clock,
            tenure=tenure,
            luck=random.Random(),  # noqa: S311  # Jitter needs no secrecy.
            draw_nonce=_draw_nonce,
            lease_namespace=settings.lease_namespace or credentials.facts.namespace or _FALLBACK_NAMESPACE,
            namespaces=settings.namespaces or (),
            lacking=await observe_lacking(lookout, clock),
            lookout=lookout,
            hold=settings.hold,
        )
        elector = _build_elector(settings.election, credentials, leases, clock, tenure)
        metrics.leader.set_function(lambda: float(tenure.is_held))
        pump = Pump(
            PumpSettings(namespaces=settings.namespaces or ()),
            lambda: read_connection_facts(kube_settings),
            operator.take_word,
            clock,
        )
        metrics.namespaces_unreadable.set_function(lambda: float(pump.unreadable))
        door = Web(
            WebSettings(settings.metrics_address, settings.metrics_port),
            metrics.registry,
            lambda: judge_liveness(_look_inside(pump, operator, tenure), settings.engine.liveness),
            lambda: judge_readiness(_look_inside(pump, operator, tenure)),
        )
        with name_settings(("AGENTTERMINAL_METRICS_ADDRESS", "AGENTTERMINAL_METRICS_PORT")):
            await door.start()
        log.info(
            "The operator starts.",
            extra={"server": credentials.server, "sprites": settings.sprites.base_url, "port": door.port},
        )
        pump.start()
        ending.is_serving = True
        async with _put_away(tenure, elector, pump, door):
            await _serve(operator, elector, pump, ending)


@contextlib.asynccontextmanager
async def _put_away(tenure: Tenure, elector: Elector | None, pump: Pump, door: Web) -> AsyncIterator[None]:
    """Take apart in the order in which others depend on it: the Lease first, since somebody waits for it."""
    try:
        yield
    finally:
        tenure.end()
        if elector is not None:
            await elector.release()
        await pump.stop()
        await door.stop()


async def _serve(operator: Operator, elector: Elector | None, pump: Pump, ending: _Ending) -> None:
    """Run all long-lived parts, until we are asked to end or one of them fails."""

    async def elect(elector: Elector) -> None:
        # Whoever has not seen all objects would lead without knowing what to do.
        await pump.ready.wait()
        await elector.run()

    async def end_when_asked() -> None:
        await ending.asked.wait()
        log.info("The operator was asked to end: what is under way gets its time.")
        await operator.finish(within=GRACE)
        raise _AskedToEnd

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pump.wait(), name="pump")
            group.create_task(operator.run(pump.ready, None if elector is None else elector.won), name="engine")
            group.create_task(end_when_asked(), name="end")
            if elector is not None:
                group.create_task(elect(elector), name="elector")
    except* _AskedToEnd:
        log.debug("Nothing is under way any more.")


def _build_elector(
    settings: ElectionSettings | None, credentials: Credentials, leases: KubeClient, clock: SystemClock, tenure: Tenure
) -> Elector | None:
    """Stand for the Lease under a name that no other process has; None where there is no election."""
    if settings is None or not isinstance(tenure, LeasedTenure):
        return None
    namespace = settings.namespace or credentials.facts.namespace or _FALLBACK_NAMESPACE
    identity = f"{socket.gethostname()}_{_draw_nonce()}"
    return Elector(leases, Candidate(namespace, settings.name, identity), settings.times, clock, tenure)


def _look_inside(pump: Pump, operator: Operator, tenure: Tenure) -> LivenessFacts:
    """Gather what the probes judge."""
    state = PumpState.RUNNING if pump.ready.is_set() else PumpState.LISTING
    if not pump.alive:
        state = PumpState.ENDED
    return LivenessFacts(
        pump=state,
        watch_lag=operator.resync.lag,
        loop_lag=operator.loop_lag.worst,
        tenure=_judge_tenure(tenure),
    )


def _judge_tenure(tenure: Tenure) -> TenureState:
    if tenure.is_held:
        return TenureState.HELD
    is_before = isinstance(tenure, LeasedTenure) and not tenure.has_begun
    return TenureState.NONE if is_before else TenureState.OVERDUE


def _draw_nonce() -> str:
    return "".join(secrets.choice(_NONCE_ALPHABET) for _ in range(_NONCE_CHARACTERS))


def _count_kube_call(metrics: Metrics, report: KubeCallReport) -> None:
    metrics.count_kube_call(report.verb, report.resource, report.outcome, report.duration)


def _count_sprites_call(metrics: Metrics, report: CallReport) -> None:
    metrics.count_sprites_call(report.route, report.cause, report.outcome, report.duration)

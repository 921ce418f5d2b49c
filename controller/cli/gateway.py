"""`agentterminal gateway`: settings in, the clients built, doors and desk joined, and everything let go in order."""

import asyncio
import logging
import secrets
import signal
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Final

import click
import uvloop

from controller.api.names import GATEWAY_FIELD_MANAGER
from controller.cli.listening import name_settings
from controller.cli.login import choose_login
from controller.cli.own_token import build_own_token
from controller.clock import SystemClock
from controller.engine.liveness import LoopLag
from controller.engine.settings import LivenessSettings
from controller.engine.tokens import TokenBook
from controller.gateway.desk import Desk, Outside
from controller.gateway.metrics import GatewayMetrics, build_gateway_metrics
from controller.gateway.server import Gateway
from controller.kube.calls import KubeCallReport
from controller.kube.client import KubeClient
from controller.kube.credentials import load_credentials
from controller.kube.settings import KubeSettings
from controller.logs import configure_logging
from controller.plan.fence_tenure import RULES
from controller.settings import GatewayProcessSettings, environment, read_gateway_settings
from controller.settings.table import Reader, render_settings_help
from controller.sprites.client import SpritesClient
from controller.sprites.reports import CallReport

log: Final = logging.getLogger(__name__)

LEAVING: Final = timedelta(seconds=8)
"""For locks and the Lease once the sockets have ended, which may take 20 s; a pod has 30 s in all."""

FENCE_TIMEOUT: Final = timedelta(seconds=5)
"""For a call of the fence: a person waits, and what was lost is settled by a read."""

_FALLBACK_NAMESPACE: Final = "default"
"""As kubectl has it, where a kubeconfig names none."""

_NAME_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_NAME_CHARACTERS: Final = 16
"""82 bits: nobody draws the same twice. Source: `plan.fence_ids.NAME_PATTERN`."""


@click.command(name="gateway", epilog="\b\n" + render_settings_help(Reader.GATEWAY).replace("\n\n", "\n\n\b\n"))
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="The kubeconfig to log in with. Without it: $KUBECONFIG, else the pod's service account, else ~/.kube/config.",
)
@click.option("--context", metavar="NAME", help="The context of the kubeconfig. Without it: its current one.")
def gateway_command(*, kubeconfig: str | None, context: str | None) -> int:
    """
    Let people and programs attach to terminals by their Kubernetes identity, in the foreground.

    Any number of gateways may run at once; the API server says which socket speaks for a terminal. SIGTERM and Ctrl-C
    end it: every socket is told, input that is on the way is waited for, locks and Lease are given back.

    Exit code: 0 when it was asked to end; 1 when it failed; 2 when a setting is faulty.
    """
    settings = read_gateway_settings(environment())
    configure_logging(settings.log)
    for remark in settings.remarks:
        log.warning(remark.sentence, extra={"setting": remark.name})
    kube = KubeSettings(login=choose_login(kubeconfig, context), field_manager=GATEWAY_FIELD_MANAGER)
    uvloop.run(_run_until_signalled(settings, kube))
    return 0


class _AskedToEnd(Exception):
    """Somebody asked the gateway to end, and everything was let go."""


async def _run_until_signalled(settings: GatewayProcessSettings, kube_settings: KubeSettings) -> None:
    """Run the gateway; SIGTERM and SIGINT end it in good order, and a second one at once."""
    task = asyncio.current_task()
    assert task is not None
    asked = asyncio.Event()
    received: list[signal.Signals] = []

    def end(number: signal.Signals) -> None:
        if asked.is_set():
            task.cancel()
        received.append(number)
        asked.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    try:
        await run_gateway(settings, kube_settings, asked)
    except asyncio.CancelledError:
        if not received:
            raise
    log.info("The gateway has ended, as it was asked to.", extra={"signal": received[0].name})


async def run_gateway(settings: GatewayProcessSettings, kube_settings: KubeSettings, asked: asyncio.Event) -> None:
    """Build everything, run it until it is asked to end, and take it apart; the end of any part is the end of all."""
    clock, metrics = SystemClock(), build_gateway_metrics()
    credentials = await load_credentials(kube_settings, clock=clock)

    def open_kube(kube_settings: KubeSettings) -> KubeClient:
        return KubeClient(credentials, kube_settings, clock, lambda report: _count_kube_call(metrics, report))

    quick = replace(kube_settings, request_timeout=FENCE_TIMEOUT, connect_timeout=FENCE_TIMEOUT)
    quicker = replace(kube_settings, request_timeout=RULES.timeout, connect_timeout=RULES.timeout)
    async with (
        open_kube(kube_settings) as kube,
        open_kube(kube_settings) as lookout,
        open_kube(quick) as fence,
        open_kube(quicker) as leases,
        SpritesClient(settings.sprites, clock, lambda report: _count_sprites_call(metrics, report)) as sprites,
    ):
        tokens = TokenBook(kube, clock, build_own_token(settings.own_token))
        desk = Desk(
            Outside(kube=fence, leases=leases, watch=lookout, broom=kube, sprites=sprites, tokens=tokens),
            lease_namespace=settings.lease_namespace or credentials.facts.namespace or _FALLBACK_NAMESPACE,
            namespaces=settings.namespaces,
            streams=settings.streams,
            metrics=metrics,
            clock=clock,
            luck=Random(),  # noqa: S311  # Jitter needs no secrecy.
            draw=_draw_name,
        )
        gateway = Gateway(settings.gateway, kube, desk, metrics, clock)
        lag = LoopLag(clock, LivenessSettings(), metrics.note_loop_lag)
        with name_settings(
            ("AGENTTERMINAL_GATEWAY_ADDRESS", "AGENTTERMINAL_GATEWAY_PORT"),
            ("AGENTTERMINAL_GATEWAY_METRICS_ADDRESS", "AGENTTERMINAL_GATEWAY_METRICS_PORT"),
        ):
            await gateway.start()
        log.info("The gateway starts.", extra={"server": credentials.server, "sprites": settings.sprites.base_url})
        try:
            await _serve(gateway, desk, lag, asked)
        finally:
            await gateway.stop()


async def _serve(gateway: Gateway, desk: Desk, lag: LoopLag, asked: asyncio.Event) -> None:
    """Run doors and desk, until we are asked to end or one of them fails."""

    async def end_when_asked() -> None:
        await asked.wait()
        log.info("The gateway was asked to end: every socket is told.", extra={"sockets": gateway.sockets})
        await gateway.drain()
        await desk.leave(within=LEAVING)
        raise _AskedToEnd

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(desk.run(), name="desk")
            group.create_task(gateway.run(), name="doors")
            group.create_task(lag.run(), name="loop lag")
            group.create_task(end_when_asked(), name="end")
    except* _AskedToEnd:
        log.debug("Everything was let go.")


def _draw_name() -> str:
    return "".join(secrets.choice(_NAME_ALPHABET) for _ in range(_NAME_CHARACTERS))


def _count_kube_call(metrics: GatewayMetrics, report: KubeCallReport) -> None:
    metrics.count_kube_call(report.verb, report.resource, report.outcome, report.duration)


def _count_sprites_call(metrics: GatewayMetrics, report: CallReport) -> None:
    metrics.count_sprites_call(report.route, report.cause, report.outcome, report.duration)

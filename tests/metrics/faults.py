"""
Two operators, a gateway and a Prometheus, and the fault of every alert, all side by side in one world.

The rules are the chart's but for their patience: every `for` is a second, every window 20 s, and what counts minutes
counts seconds here. What is rewritten has to stand in the rule as it is told here, so a change of either is noticed.

What the fence refuses in a burst is counted by a stand-in, with the gateway's own metrics: how many frames a real one
refuses at a takeover is a matter of moments. That it counts them is shown by tests/gateway/stream/test_hub.py.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from controller.gateway.metrics import build_gateway_metrics
from controller.gateway.stream import RefusedFor
from tests.cluster.gate import At, Gate, Hold, Request
from tests.cluster.plane import Cluster
from tests.cluster.stage import is_status_write, of, write_kubeconfig
from tests.metrics.queries import ALERTS, find_selectors, read_page_queries, read_panel_queries, read_rules
from tests.metrics.server import Page, Prometheus, keeping_port
from tests.support.emulator import EmulatorProcess
from tests.support.gateway import GatewayProcess
from tests.support.operator import OperatorProcess, World
from tests.support.process import await_true
from tests.support.secrecy import build_sprites_token

OPERATOR, STANDBY, GATEWAY, STAND_IN = "operator", "standby", "gateway", "stand-in"
"""The jobs that are scraped."""

LASTING: Final = {
    ("AgentTerminalKillNotConfirmed", OPERATOR),
    ("AgentTerminalHoldWithoutActivity", OPERATOR),
    ("AgentTerminalHoldFailing", OPERATOR),
    ("AgentTerminalSpritesUnauthorized", OPERATOR),
    ("AgentTerminalBreakerOpen", OPERATOR),
    ("AgentTerminalWatchStale", STANDBY),
    ("AgentTerminalNobodyLeads", STANDBY),
    ("AgentTerminalTerminalsNotReady", OPERATOR),
    ("AgentTerminalReconcileErrors", OPERATOR),
    ("AgentTerminalQueueWaiting", OPERATOR),
    ("AgentTerminalGatewayDown", GATEWAY),
    ("AgentTerminalStaleFrames", STAND_IN),
}
"""Every alert, and the job whose fault it tells."""

CALM: Final = {("AgentTerminalNobodyLeads", STANDBY)}
"""Who only stands by has nobody beside it in this world."""

HASTE: Final[Mapping[str, tuple[str, str]]] = {
    "AgentTerminalKillNotConfirmed": ("> 600", "> 3"),
    "AgentTerminalHoldWithoutActivity": ("> 3600", "> 3"),
    # The other operator compares every 10 s, and must not be late.
    "AgentTerminalWatchStale": ("> 600", "> 20"),
    "AgentTerminalTerminalsNotReady": ("> 1800", "> 10"),
    "AgentTerminalQueueWaiting": ("> 5", "> 2"),
}
WINDOW: Final = "20s"

DARK: Final = "dark"
"""The organization that has an incident."""
MANY: Final = 100_000
FAILING, SLOW, WAITING = 6, 4, 5
WORKERS: Final = 4
ASLEEP: Final = {"launch": {"command": ["sleep", "600"]}}
NOBODY: Final = {"sessionId": "4242"}
"""An object that names this needs no session to be worked on, and none to be deleted."""
SET_UP_SECONDS: Final = 60.0
CALM_SECONDS: Final = 60.0
FIRE_SECONDS: Final = 90.0
CLEAR_SECONDS: Final = 120.0
"""A breaker is tried every 30 s, and a kill that failed waits up to a minute."""


def hasten(rules: str) -> str:
    """Make the rules impatient."""
    groups = yaml.safe_load(rules)
    for rule in (rule for group in groups["groups"] for rule in group["rules"]):
        rule["for"] = "1s"
        rule["expr"] = re.sub(r"\[\d+[mh]\]", f"[{WINDOW}]", rule["expr"])
        patient, hasty = HASTE.get(rule["alert"], ("", ""))
        assert rule["expr"].count(patient) == 1 or not patient, rule["alert"]
        rule["expr"] = rule["expr"].replace(patient, hasty) if patient else rule["expr"]
    told: str = yaml.safe_dump(groups)
    return told


@dataclass
class Seen:
    """What Prometheus said."""

    calm: set[tuple[str, str]] = field(default_factory=set)
    """What fired while all was well."""
    fired: set[tuple[str, str]] = field(default_factory=set)
    worst_time: float = 0.0
    """When every fault was seen, in seconds since 1970."""
    left: set[tuple[str, str]] = field(default_factory=set)
    """What fired still after everything was put right."""
    answers: dict[str, int] = field(default_factory=dict)
    """For each query of the dashboard and of the runbooks, how many series it gave, at its best."""
    series: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """For each selector of all rules, panels and pages, the series that match it."""
    pages: dict[str, str] = field(default_factory=dict)
    """What the processes showed, by job: the gateway while all was well, the operators during the faults."""


class Faults:
    """The world with its faults; all calls block."""

    def __init__(self, cluster: Cluster, lab: EmulatorProcess, folder: Path, namespaces: tuple[str, str]) -> None:
        self.cluster = cluster
        self.lab = lab
        self.gate = Gate(cluster.url, cluster.ca_file)
        self.fence = build_gateway_metrics()
        self.page = Page(lambda: self.fence.render("")[0])
        self.world = World(cluster, namespaces[0], lab)
        self.seen = Seen()
        self._other = namespaces[1]
        self._folder = folder
        self._kept_port = ExitStack()
        self._standby: OperatorProcess
        self.gateway: GatewayProcess
        self.prometheus: Prometheus

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start everything."""
        with ExitStack() as stack:
            stack.enter_context(self._kept_port)
            stack.enter_context(self.gate)
            self.world.kubeconfig = write_kubeconfig(self._folder / "kubeconfig", self.gate.url, self.cluster)
            stack.callback(self.world.__exit__)
            operator = self.world.start_operator(
                WORKERS=str(WORKERS), METADATA_SECONDS="2", RESYNC_SECONDS="10", LEASE_NAMESPACE=self.world.namespace
            )
            stack.enter_context(self.page)
            self._start_gateway("0")
            stack.callback(self._end_gateway)
            self._write_lease("somebody-else")
            self._standby = OperatorProcess(
                self.world.kubeconfig,
                self.lab.url,
                self._other,
                ELECTION="1",
                LEASE_NAMESPACE=self._other,
                LEASE_DURATION_SECONDS="300",
                RESYNC_SECONDS="10",
            )
            stack.callback(self._standby.kill)
            rules = self._folder / "rules.yaml"
            rules.write_text(hasten(ALERTS.read_text()))
            ports = {
                OPERATOR: _find_port(operator, "port"),
                STANDBY: _find_port(self._standby, "port"),
                GATEWAY: _find_port(self.gateway, "metrics_port"),
                STAND_IN: self.page.port,
            }
            self._gateway_port = ports[GATEWAY]
            self.prometheus = stack.enter_context(Prometheus(self._folder, ports, rules))
            yield

    def play(self) -> None:
        """See what fires while all is well, during the faults, and after them."""
        self._prepare()
        self._await_scrapes()
        self._await_calm()
        self.live()
        self.seen.pages = {GATEWAY: self.gateway.read("metrics")}
        self._ask()
        self._break()
        self._block_workers()
        self._await_alerts()
        self._ask()
        self._look()
        self._mend()
        self._await_quiet()

    # --- while all is well --------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Let more happen while all is well: nothing, for the alerts; see picture.py."""

    def _prepare(self) -> None:
        """Have a terminal for each fault, and one that nothing happens to."""
        names = ("well", "killed", "idle", "unheld")
        self.lab.create_sprites("box", *names)
        for name in ("box", *names):
            self.lab.set_state(name, "running")
        self.lab.call("POST", "/_lab/sprites", {"names": [f"dark-{number}" for number in range(3)]}, organization=DARK)
        self.world.put_secret(DARK, token=build_sprites_token(DARK))
        for number in range(3):
            name = f"dark-{number}"
            self.lab.set_state(name, "running")
            session = self.lab.start_session(name, "sleep", "600")
            self.world.create(name, spriteName=name, sessionId=session["id"], tokenSecretRef={"name": DARK})
        self.world.create("well", spriteName="well", **ASLEEP)
        self.world.create("killed", spriteName="killed", **ASLEEP)
        for name in ("well", "killed", *(f"dark-{number}" for number in range(3))):
            self.world.await_reason(name, "Detached", within=SET_UP_SECONDS)

    def _await_scrapes(self) -> None:
        """Have every job scraped and every rule judged a few times."""
        await_true(
            lambda: len(self.prometheus.query("count_over_time(agentterminal_build_info[20s]) >= 4")) == 4,
            "Prometheus to have scraped all",
            tell=lambda: json.dumps(self.prometheus.query("up")),
        )

    def _await_calm(self) -> None:
        """Look what fires; a rush at the start, on a busy machine, is over soon."""

        def is_calm() -> bool:
            self.seen.calm = self.prometheus.firing()
            return self.seen.calm == CALM

        _await_if_it_comes(is_calm, CALM_SECONDS)

    # --- faults -------------------------------------------------------------------------------------------------------

    def _break(self) -> None:
        lab, world = self.lab, self.world
        lab.arm_fault({"kind": "status", "status": 500}, route="exec.kill", sprite="killed", times=MANY)
        world.patch("killed", terminated=True)
        lab.arm_fault({"kind": "status", "status": 500}, sprite="unheld", cause="hold", times=MANY)
        world.create("unheld", spriteName="unheld", attached=True, holdWanted=True, **ASLEEP)
        world.create("idle", spriteName="idle", holdWanted=True, hold={"mode": "Always"}, **ASLEEP)
        world.put_secret("revoked", token=build_sprites_token("lab", "revoked"))
        world.create("refused", tokenSecretRef={"name": "revoked"}, **NOBODY)
        world.create("stalled", tokenSecretRef={"name": "missing"}, **NOBODY)
        for route in ("sprites.list", "sprites.get", "exec.list", "exec.create", "exec.kill"):
            lab.arm_fault({"kind": "status", "status": 404}, route=route, organization=DARK, times=MANY)
        # What asks about each sprite finds that each is refused.
        for number in range(3):
            world.patch(f"dark-{number}", terminated=True)
        self.gate.cut(partial(is_list, self._other))
        for number in range(FAILING):
            self.gate.answer(of(f"failing-{number}", is_status_write), 403, b"{}", times=MANY)
            world.create(f"failing-{number}", **NOBODY)
        self._end_gateway()
        self._kept_port.enter_context(keeping_port(self._gateway_port))
        for _ in range(100):
            self.fence.count_refused_input(RefusedFor.STALE)

    def _block_workers(self) -> None:
        """Let all workers wait for the API server, and others for them, until Prometheus has seen that."""
        holds = [self._hold(f"slow-{number}") for number in range(SLOW)]
        for number in range(SLOW):
            self.world.create(f"slow-{number}", **NOBODY)
        for hold in holds:
            hold.await_reached()
        for number in range(WAITING):
            self.world.create(f"waiting-{number}", **NOBODY)
        depth = f'agentterminal_queue_depth{{job="{OPERATOR}"}}'
        await_true(
            lambda: bool(self.prometheus.query(f"min_over_time({depth}[3s]) >= {WAITING}")),
            "objects to wait for a worker",
            tell=lambda: json.dumps(self.prometheus.query(f"{depth}[20s]")),
        )
        for hold in holds:
            hold.release()

    def _hold(self, name: str) -> Hold:
        return self.gate.hold(of(name, is_status_write), At.BEFORE)

    def _await_alerts(self) -> None:
        """Wait for all; what does not come is told by the test that asks for it."""

        def has_fired() -> bool:
            self.seen.fired |= self.prometheus.firing()
            return self.seen.fired >= LASTING

        _await_if_it_comes(has_fired, FIRE_SECONDS)
        self.seen.worst_time = time.time()

    def _ask(self) -> None:
        """Ask what the dashboard and the runbooks ask: some of it is there before the faults, some only with them."""
        for query in (*read_panel_queries(), *read_page_queries()):
            hasty = re.sub(r"\[\d+[mh]\]", f"[{WINDOW}]", query)
            count = len(self.prometheus.query(hasty))
            self.seen.answers[query] = max(count, self.seen.answers.get(query, 0))

    def _look(self) -> None:
        """Look at what there is to be asked for."""
        rules = (rule["expr"] for rule in read_rules())
        for query in (*read_panel_queries(), *read_page_queries(), *rules):
            for selector in find_selectors(query):
                self.seen.series[str(selector)] = self.prometheus.series(str(selector))
        assert self.world.operator is not None
        self.seen.pages |= {
            OPERATOR: self.world.operator.read("metrics"),
            STANDBY: self._standby.read("metrics"),
        }

    # --- and after them -----------------------------------------------------------------------------------------------

    def _mend(self) -> None:
        """Put everything right, as the runbooks say."""
        self.gate.mend()
        self.lab.disarm_faults()
        self.world.put_secret("revoked", token=self.lab.token)
        self.world.put_secret("missing", token=self.lab.token)
        for name in ("idle", "unheld"):
            self.world.patch(name, holdWanted=False)
        numbered = (("failing", FAILING), ("slow", SLOW), ("waiting", WAITING))
        for name in (
            "refused",
            "stalled",
            *(f"{kind}-{number}" for kind, count in numbered for number in range(count)),
        ):
            self.world.delete(name)
        self._write_lease("")
        self._kept_port.close()
        self._start_gateway(str(self._gateway_port))

    def _await_quiet(self) -> None:
        def is_quiet() -> bool:
            self.seen.left = self.prometheus.firing()
            return not self.seen.left

        _await_if_it_comes(is_quiet, CLEAR_SECONDS)

    def _start_gateway(self, metrics_port: str) -> None:
        namespace = self.world.namespace
        where = {"NAMESPACES": namespace, "LEASE_NAMESPACE": namespace, "GATEWAY_METRICS_PORT": metrics_port}
        self.gateway = GatewayProcess(self.world.kubeconfig, self.lab.url, **where)

    def _end_gateway(self) -> None:
        self.gateway.kill()
        self.gateway.forget()

    def _write_lease(self, holder: str) -> None:
        """Give the Lease of the second operator to somebody, or to nobody."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._other}/leases"
        name = "agentterminal-operator"
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 300}
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
        status, answer = self.cluster.request("POST", path, body=body)
        if status == 409:
            status, answer = self.cluster.request(
                "PATCH", f"{path}/{name}", body={"spec": spec}, content_type="application/merge-patch+json"
            )
        assert status in (200, 201), answer


AnyFaults = TypeVar("AnyFaults", bound=Faults)


@contextmanager
def open_faults(
    cluster: Cluster, folder: Path, kind: type[AnyFaults], names: tuple[str, str] | None = None
) -> Iterator[AnyFaults]:
    """Make a world with two organizations and two namespaces, and play everything in it."""
    names = names or (f"alerts-{os.getpid()}", f"alerts-other-{os.getpid()}")
    for name in names:
        status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
        assert status == 201
    tokens = [word for name in ("lab", DARK) for word in ("--token", build_sprites_token(name))]
    with EmulatorProcess(*tokens) as lab:
        faults = kind(cluster, lab, folder, names)
        try:
            with faults.open():
                faults.play()
                yield faults
        finally:
            for name in names:
                cluster.empty_namespace(name)


def is_list(namespace: str, request: Request) -> bool:
    """A list of the terminals of one namespace."""
    is_read = request.method == "GET" and f"/namespaces/{namespace}/agentterminals" in request.target
    return is_read and "watch=true" not in request.target


def _find_port(process: OperatorProcess | GatewayProcess, name: str) -> int:
    port: int = next(line[name] for line in process.lines if name in line)
    return port


def _await_if_it_comes(is_true: Callable[[], bool], within: float) -> None:
    """Wait until something is true; what it was instead is looked at afterwards."""
    end = time.monotonic() + within
    while not is_true() and time.monotonic() < end:
        time.sleep(0.3)

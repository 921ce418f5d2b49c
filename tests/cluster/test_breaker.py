"""
An incident of the platform on real sockets: it proves nothing, forgets nothing, launches nothing, and ends by itself.

Three organizations have one at the same time, each of another kind, and a fourth has a single sprite that is refused.
In the middle of it the operator is killed, so that its successor has never seen a list that it could believe. All of
them last longer than the minute after which a missing sprite would be proven gone.
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from controller.api.names import FINALIZER
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import build_sprites_token, find_kinds

STUBBORN: Final = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
LAUNCH: Final = {"command": ["sleep", "600"]}
MANY: Final = 100_000
HTML: Final = "<html><head><title>404 Not Found</title></head></html>"
PROBE_SECONDS: Final = 30.0
LATE_SECONDS: Final = 5.0
"""How much later the emulator may note a call than it was sent, on a machine that stood still."""
OPENING_SECONDS: Final = 25.0
"""Within which an operator that has just begun has seen an incident, and asks for nothing but lists."""
BUSY_SECONDS: Final = 75.0
"""For a machine on which other tests run."""

DARK, BARE, BARRED, CALM = "dark", "bare", "barred", "calm"
"""404 for everything; a list that shows nothing and 404 for each sprite; 401 inside; one sprite that is refused."""
BROKEN: Final = (DARK, BARE, BARRED)
ROLES: Final = ("live", "dying", "going", "doubted", "given")
WAITING: Final = ("dying", "going", "fresh")


@pytest.fixture
def emulator() -> Iterator[EmulatorProcess]:
    tokens = [word for name in (*BROKEN, CALM) for word in ("--token", build_sprites_token(name))]
    with EmulatorProcess(*tokens) as process:
        yield process


@pytest.fixture
def world(cluster: Cluster, namespace: str, emulator: EmulatorProcess) -> Iterator[World]:
    with World(cluster, namespace, emulator) as world:
        for name in (*BROKEN, CALM):
            world.put_secret(name, token=build_sprites_token(name))
        world.start_operator(METADATA_SECONDS="1")
        yield world


class Fleet:
    """One organization: a sprite for each role, and an object of the same name."""

    def __init__(self, world: World, organization: str) -> None:
        self._world = world
        self._lab = world.lab
        self.organization = organization
        self.sessions: dict[str, dict[str, Any]] = {}
        for role in (*ROLES, "fresh"):
            self._lab.call("POST", "/_lab/sprites", {"names": [self.name(role)]}, organization=organization)
            self._lab.set_state(self.name(role), "running")
        for role in ROLES:
            self.sessions[role] = self._lab.start_session(self.name(role), *STUBBORN)
            policy = {"deletionPolicy": "Orphan"} if role == "given" else {}
            self.create(role, sessionId=self.sessions[role]["id"], launch=LAUNCH, relaunch="OnLost", **policy)
        self.versions: dict[str, str] = {}

    def name(self, role: str) -> str:
        return f"{self.organization}-{role}"

    def create(self, role: str, **spec: Any) -> None:
        name = self.name(role)
        self._world.create(name, spriteName=name, tokenSecretRef={"name": self.organization}, **spec)

    def await_adopted(self) -> None:
        for role in ROLES:
            self._world.await_reason(self.name(role), "Detached", within=BUSY_SECONDS)
        self.versions = {role: self.read_version(role) for role in ("live", "doubted")}

    def read_version(self, role: str) -> str:
        terminal = self._world.get(self.name(role))
        assert terminal is not None
        version: str = terminal["metadata"]["resourceVersion"]
        return version

    def break_down(self, fault: dict[str, Any], *routes: str) -> None:
        for route in routes:
            self._lab.arm_fault(fault, route=route, organization=self.organization, times=MANY)

    def ask_for_everything(self) -> None:
        """Ask for two ends, a launch and a look, and give one session up."""
        self._world.patch(self.name("dying"), terminated=True)
        self._world.delete(self.name("going"))
        self._world.delete(self.name("given"))
        self.create("fresh", launch=LAUNCH)
        self.doubt()

    def doubt(self) -> None:
        """Ask whether a session lives, as `flux reconcile` does."""
        path = f"{self._world.path}/{self.name('doubted')}"
        patch = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "2026-11-30T12:00:00Z"}}}
        self._world.cluster.request("PATCH", path, body=patch, content_type="application/merge-patch+json")

    def is_waiting(self) -> bool:
        return all(
            read_condition(self._world.status(self.name(role)), "Reconciling")["reason"] == "ApiIncident"
            for role in WAITING
        )

    def expect_nothing_lost(self) -> None:
        """Everything lives, everything that guards it is there, and nothing was started."""
        for role in ROLES:
            session = self.sessions[role]
            assert [entry["id"] for entry in self._lab.sessions(self.name(role))] == [session["id"]]
            if role == "given":
                continue
            terminal = self._world.get(self.name(role))
            assert terminal is not None
            assert FINALIZER in terminal["metadata"]["finalizers"]
            assert terminal["status"]["session"]["id"] == session["id"]
            assert "ended" not in terminal["status"]["session"]
            assert read_condition(terminal["status"], "Terminated")["status"] != "True"
        assert self._lab.sessions(self.name("fresh")) == []
        assert self._lab.processes(self.name("fresh")) == []
        assert self.read_version("live") == self.versions["live"]

    def list_calls(self, since: int) -> list[Any]:
        calls = self._lab.requests(door="api", since=since)
        return [call for call in calls if call["organization"] == self.organization]

    def list_probes(self, since: int) -> list[Any]:
        """Read the last calls, as far back as they were lists of the sprites and lay a probe's interval apart."""
        probes: list[Any] = []
        for call in reversed(self.list_calls(since)):
            if call["route"] != "sprites.list":
                break
            if probes and probes[0]["time"] - call["time"] < PROBE_SECONDS - LATE_SECONDS:
                break
            probes.insert(0, call)
        return probes

    def expect_all_done(self) -> None:
        """Once it is over, what was asked for is done, and what lived lives."""
        world = self._world
        status = world.await_reason(self.name("dying"), "Confirmed", "Terminated", within=120)
        assert status["kill"]["proof"] == "SessionList"
        world.await_gone(self.name("going"), within=BUSY_SECONDS)
        world.await_reason(self.name("fresh"), "Detached", within=BUSY_SECONDS)
        assert len(self._lab.sessions(self.name("fresh"))) == 1
        assert self._lab.sessions(self.name("dying")) == self._lab.sessions(self.name("going")) == []
        for role in ("live", "doubted"):
            status = world.await_reason(self.name(role), "Detached", within=BUSY_SECONDS)
            assert status["session"]["id"] == self.sessions[role]["id"]
        assert self.read_version("live") == self.versions["live"]
        assert len(self._lab.sessions(self.name("given"))) == 1


def read_breakers(world: World) -> float:
    assert world.operator is not None
    page = world.operator.read("metrics")
    return next(
        float(line.split()[-1]) for line in page.splitlines() if line.startswith("agentterminal_breakers_open ")
    )


def await_all(fleets: list[Fleet], is_true: Callable[[Fleet], bool], what: str, within: float) -> None:
    for fleet in fleets:
        await_true(
            partial(is_true, fleet),
            f"{fleet.organization}: {what}",
            within,
        )


@pytest.mark.timeout(420)
def test_an_incident_proves_nothing_forgets_nothing_launches_nothing_and_ends_by_itself(world: World) -> None:
    lab = world.lab
    fleets = [Fleet(world, name) for name in (*BROKEN, CALM)]
    dark, bare, barred, calm = fleets
    for fleet in fleets:
        fleet.await_adopted()

    every_route = ("sprites.list", "sprites.get", "exec.list", "exec.create", "exec.kill")
    dark.break_down({"kind": "status", "status": 404, "html": HTML}, *every_route)
    bare.break_down({"kind": "status", "status": 200, "body": {"sprites": [], "has_more": False}}, "sprites.list")
    bare.break_down({"kind": "status", "status": 404, "body": {"error": "sprite not found"}}, *every_route)
    barred.break_down({"kind": "status", "status": 401, "body": {"error": "authentication failed"}}, *every_route[1:])
    odd = calm.name("dying")
    lab.arm_fault({"kind": "status", "status": 404, "body": {"error": "sprite not found"}}, sprite=odd, times=MANY)
    for fleet in fleets:
        fleet.ask_for_everything()

    # Whoever is in an incident waits; who has one odd sprite does not.
    await_all([dark, bare, barred], Fleet.is_waiting, "all that is pending to wait", BUSY_SECONDS)
    for fleet in fleets:
        world.await_gone(fleet.name("given"), within=BUSY_SECONDS)
    status = world.status(dark.name("dying"))
    told = {kind: read_condition(status, kind) for kind in ("Ready", "Stalled", "Terminated", "SpriteReachable")}
    assert {kind: (condition["status"], condition["reason"]) for kind, condition in told.items()} == {
        "Ready": ("Unknown", "ApiIncident"),
        "Stalled": ("False", "ApiIncident"),
        "Terminated": ("Unknown", "ApiIncident"),
        "SpriteReachable": ("Unknown", "ApiIncident"),
    }
    assert "`deletionPolicy: Orphan`" in told["Terminated"]["message"]
    await_true(lambda: read_breakers(world) == 3, "three incidents", BUSY_SECONDS)
    world.await_gone(calm.name("going"), within=BUSY_SECONDS)
    world.await_reason(calm.name("fresh"), "Detached", within=BUSY_SECONDS)
    assert read_condition(world.status(odd), "Terminated")["status"] == "False"

    assert world.operator is not None
    world.operator.kill()
    begun = max(call["number"] for call in lab.requests(door="api"))
    world.start_operator(METADATA_SECONDS="1")
    await_true(lambda: read_breakers(world) >= 2, "the new operator to see the incidents", BUSY_SECONDS)
    # One list, and two more: the last one lies a minute after the first.
    await_all([dark, bare], lambda fleet: len(fleet.list_probes(begun)) >= 3, "three lists", 150)
    for fleet in (dark, bare):
        calls = fleet.list_calls(begun)
        assert fleet.list_probes(begun)[0]["time"] - calls[0]["time"] < OPENING_SECONDS, calls
    for fleet in (dark, bare, barred):
        fleet.expect_nothing_lost()
    assert {call["organization"] for call in lab.requests(route="exec.kill", status=200)} == {CALM}
    status = world.await_reason(odd, "SpriteNotFound", "Terminated", within=BUSY_SECONDS)
    assert read_condition(status, "Terminated")["status"] == "False"
    assert len(lab.sessions(odd)) == 1

    lab.disarm_faults()
    for fleet in (dark, bare, barred):
        fleet.expect_all_done()
    world.await_reason(odd, "Confirmed", "Terminated", within=BUSY_SECONDS)
    await_true(lambda: read_breakers(world) == 0, "all breakers to be closed", BUSY_SECONDS)
    log = world.operator.log_file.read_text()
    assert "nobody foresaw" not in log
    shown = log + json.dumps(world.cluster.request("GET", world.path)[1])
    assert find_kinds(shown.encode()) == set()

"""
Gateways that die, and some that do not, on a real API server: Leases, claims and locks as a gateway writes them.

All terminals live side by side in one world. Everybody is attached through some gateway; then one gateway stops to
renew, another loses its Lease to a hand for a moment, a third lives on. Whatever happens first, the tests look at it
afterwards.
"""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from controller.api.names import RECONCILE_REQUEST
from controller.plan.fence_ids import make_socket_id
from controller.plan.fence_objects import GatewayEntry, Lock, view_object
from controller.plan.fence_patches import JsonPatch, build_claim, build_clear_lock, build_entry, build_lock, name_lease
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World, read_condition
from tests.support.process import await_true

RENEW_SECONDS: Final = 1.5
BOUND: Final = timedelta(seconds=15)
"""From the last renewal until it is proven and written."""
SLACK: Final = timedelta(seconds=10)
"""On a machine that has much to do."""
WAIT_SECONDS: Final = 60.0
"""For what is compared with `BOUND` by what was written, or with nothing."""
DEAD, FLICKERING, LIVING = "deadgw0001", "flickergw1", "livinggw01"
SLEEPER: Final[dict[str, Any]] = {"launch": {"command": ["sleep", "600"]}}
SPEAKER: Final[dict[str, Any]] = {"launch": {"command": ["sh", "-c", "echo ready; exec sleep 600"]}}


class Hand:
    """Writes what a gateway process writes; its Leases are renewed until they are let go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{world.namespace}/leases"
        self._lock = threading.Lock()
        self._renewed: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew_all, name="gateways")
        self.stopped_at: dict[str, datetime] = {}

    def open(self, *incarnations: str) -> None:
        for incarnation in incarnations:
            self.write_lease(incarnation)
        self._renewed = set(incarnations)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def stop(self, incarnation: str) -> None:
        """Let a gateway die: nothing of it is written any more."""
        with self._lock:
            self._renewed.discard(incarnation)
        self.stopped_at[incarnation] = datetime.now(UTC)

    def write_lease(self, incarnation: str) -> None:
        """Create the Lease, or renew it."""
        path = f"{self._leases}/{name_lease(incarnation)}"
        body: dict[str, Any] = {"metadata": {"name": name_lease(incarnation)}, "spec": {"holderIdentity": incarnation}}
        status, known = self._world.cluster.request("GET", path)
        if status == 404:
            status, answer = self._world.cluster.request("POST", self._leases, body=body)
        else:
            body["metadata"] |= {key: known["metadata"][key] for key in ("uid", "resourceVersion")}
            body["spec"] = {**known["spec"], "leaseTransitions": known["spec"].get("leaseTransitions", 0) + 1}
            status, answer = self._world.cluster.request("PUT", path, body=body)
        assert status in (200, 201), answer

    def delete_lease_for_a_moment(self, incarnation: str) -> None:
        """Delete a Lease while its gateway lives, which then writes another one."""
        with self._lock:
            status, answer = self._world.cluster.request("DELETE", f"{self._leases}/{name_lease(incarnation)}")
            assert status == 200, answer
            # One look may find none; the two that would prove it gone lie 7 s apart.
            time.sleep(1.0)
            self.write_lease(incarnation)

    def holder(self, incarnation: str) -> str:
        _, lease = self._world.cluster.request("GET", f"{self._leases}/{name_lease(incarnation)}")
        return str(lease["spec"].get("holderIdentity", ""))

    def attach(self, name: str, incarnation: str, *, viewers: int = 0) -> None:
        """Claim, lock, and count viewers."""
        view = view_object(self._get(name))
        socket_id = make_socket_id(generation=view.generation, incarnation=incarnation, luck="luckluck")
        self._patch(name, build_claim(view, socket_id))
        view = view_object(self._get(name))
        lock = Lock(view.uid, view.generation, socket_id, incarnation, "2026-11-30T12:00:00Z")
        self._patch(name, build_lock(view, lock), "/status")
        if viewers:
            self.count_viewers(name, incarnation, viewers)

    def count_viewers(self, name: str, incarnation: str, viewers: int) -> None:
        self._patch(name, build_entry(view_object(self._get(name)), GatewayEntry(incarnation, viewers)), "/status")

    def clear_lock(self, name: str) -> None:
        view = view_object(self._get(name))
        assert view.lock is not None
        self._patch(name, build_clear_lock(view.lock, uid=view.uid), "/status")

    def _get(self, name: str) -> dict[str, Any]:
        terminal = self._world.get(name)
        assert terminal is not None
        return terminal

    def _patch(self, name: str, patch: JsonPatch, subresource: str = "") -> None:
        path = f"{self._world.path}/{name}{subresource}"
        status, answer = self._world.cluster.request(
            "PATCH", path, body=patch, content_type="application/json-patch+json"
        )
        assert status == 200, answer

    def _renew_all(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            with self._lock:
                for incarnation in self._renewed:
                    self.write_lease(incarnation)


class Scene:
    """One world in which a gateway has just died."""

    def __init__(self, world: World, hand: Hand) -> None:
        self.world = world
        self.hand = hand
        self.specs: dict[str, Any] = {}

    def prepare(self) -> None:
        """Let everybody attach, and wait until the operator knows."""
        world, hand = self.world, self.hand
        declared: dict[str, dict[str, Any]] = {
            "typing": {"idleTimeoutSeconds": 0},
            "reading": {"idleTimeoutSeconds": 0},
            # It says something, so that its silence afterwards can be seen in the list.
            "held": SPEAKER | {"holdWanted": True, "hold": {"expireSeconds": 60, "refreshSeconds": 5}},
            "reaped": {"idleTimeoutSeconds": 2},
            "living": {"idleTimeoutSeconds": 2},
            "flickering": {"idleTimeoutSeconds": 2},
            "going": {},
            "orphaned": {"deletionPolicy": "Orphan"},
            "kept": {},
        }
        for name, spec in declared.items():
            world.lab.create_sprites(name)
            world.lab.set_state(name, "running")
            # Attached from the start, so that none is reaped before its gateway has come.
            world.create(name, spriteName=name, attached=True, **(SLEEPER | spec))
        names = ("typing", "held", "reaped", "living", "flickering", "going", "orphaned", "kept")
        for name in (*names, "reading"):
            world.await_reason(name, "Live", "SessionLive")
        gateways = {"living": LIVING, "kept": LIVING, "flickering": FLICKERING}
        for name in names:
            hand.attach(name, gateways.get(name, DEAD), viewers=1 if name == "typing" else 0)
        hand.count_viewers("reading", DEAD, 2)
        world.patch("reading", attached=False)
        for name in (*names, "reading"):
            world.await_reason(name, "Viewer", "Attached")
        world.await_reason("held", "HoldActive", "Held")

    def happen(self) -> None:
        for name in ("going", "orphaned", "kept"):
            self.world.delete(name)
        self.specs = {name: self.describe(name) for name in ("typing", "reading", "held", "reaped", "living")}
        self.hand.stop(DEAD)
        self.hand.delete_lease_for_a_moment(FLICKERING)

    def describe(self, name: str) -> tuple[Any, Any]:
        terminal = self.world.get(name)
        assert terminal is not None
        return terminal["spec"], terminal["metadata"]["generation"]


pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def scene(cluster: Cluster, lab_process: EmulatorProcess) -> Iterator[Scene]:
    namespace = "dead-gateways"
    status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    assert status == 201
    lab_process.reset()
    with World(cluster, namespace, lab_process) as world:
        hand = Hand(world)
        hand.open(DEAD, FLICKERING, LIVING)
        try:
            world.start_operator(LEASE_NAMESPACE=namespace)
            scene = Scene(world, hand)
            scene.prepare()
            scene.happen()
            yield scene
        finally:
            hand.close()
            cluster.empty_namespace(namespace)
            lab_process.reset()


@pytest.mark.parametrize("name", ["typing", "reading"])
def test_a_viewer_of_a_dead_gateway_stops_counting_in_time_and_what_it_left_is_swept(scene: Scene, name: str) -> None:
    status = scene.world.await_reason(name, "NoViewer", "Attached", within=WAIT_SECONDS)
    written = datetime.fromisoformat(read_condition(status, "Attached")["lastTransitionTime"])
    assert written - scene.hand.stopped_at[DEAD] <= BOUND + SLACK

    assert status["phase"] == "Detached"
    assert status["detachedTime"]
    await_true(lambda: not scene.world.status(name).keys() & {"socket", "gateways"}, "what it left to be swept")
    assert scene.describe(name) == scene.specs[name]
    assert scene.hand.holder(DEAD) == ""


def test_a_terminal_that_only_a_dead_gateway_watched_is_reaped(scene: Scene) -> None:
    status = scene.world.await_reason("reaped", "Reaped", "SessionLive", within=WAIT_SECONDS)

    assert status["kill"]["proof"] == "SessionList"
    assert scene.world.live("reaped") == []
    assert scene.describe("reaped") == scene.specs["reaped"]


@pytest.mark.parametrize("name", ["going", "orphaned"])
def test_a_deleted_object_goes_once_the_gateway_that_locked_it_is_proven_out(scene: Scene, name: str) -> None:
    scene.world.await_gone(name, within=WAIT_SECONDS)

    assert bool(scene.world.live(name)) == (name == "orphaned")


def test_a_viewer_of_a_living_gateway_counts_on_and_so_does_one_whose_lease_was_deleted_for_a_moment(
    scene: Scene,
) -> None:
    scene.world.await_reason("typing", "NoViewer", "Attached", within=WAIT_SECONDS)
    end = scene.hand.stopped_at[DEAD] + BOUND + timedelta(seconds=5)
    await_true(lambda: datetime.now(UTC) > end, "two proofs' time to pass", WAIT_SECONDS)

    for name, incarnation in (("living", LIVING), ("flickering", FLICKERING)):
        status = scene.world.status(name)
        assert status["phase"] == "Running"
        assert status["socket"]["incarnation"] == incarnation
        assert scene.hand.holder(incarnation) == incarnation
    assert scene.describe("living") == scene.specs["living"]


def test_a_deleted_object_waits_for_a_gateway_that_lives_and_its_session_ends_meanwhile(scene: Scene) -> None:
    status = scene.world.await_reason("kept", "Terminating", within=WAIT_SECONDS)
    scene.world.await_reason("kept", "Confirmed", "Terminated", within=WAIT_SECONDS)
    assert scene.world.live("kept") == []
    assert status["socket"]["incarnation"] == LIVING
    kills = len(scene.world.lab.requests(route="exec.kill", sprite="kept"))

    scene.hand.clear_lock("kept")

    scene.world.await_gone("kept", within=WAIT_SECONDS)
    assert len(scene.world.lab.requests(route="exec.kill", sprite="kept")) == kills == 1


def test_a_hold_for_a_viewer_of_a_dead_gateway_is_released(scene: Scene) -> None:
    scene.world.await_reason("held", "NotHeld", "Held", within=120)

    await_true(lambda: scene.world.lab.tasks("held") == [], "the task to be gone")
    assert scene.describe("held") == scene.specs["held"]


def test_a_fresh_operator_does_not_begin_the_idle_time_anew(scene: Scene) -> None:
    world = scene.world
    before = world.await_reason("typing", "NoViewer", "Attached", within=WAIT_SECONDS)

    world.start_operator(LEASE_NAMESPACE=world.namespace)
    status, answer = world.cluster.request(
        "PATCH",
        f"{world.path}/typing",
        body={"metadata": {"annotations": {RECONCILE_REQUEST: "once"}}},
        content_type="application/merge-patch+json",
    )
    assert status == 200, answer
    await_true(lambda: world.status("typing").get("lastHandledReconcileAt") == "once", "the look that was asked for")

    after = world.status("typing")
    assert after["detachedTime"] == before["detachedTime"]
    assert after["conditions"] == before["conditions"]

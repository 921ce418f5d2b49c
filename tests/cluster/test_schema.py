"""The operator with a CRD that is missing, older, or looser than its own, on a real API server."""

import copy
import itertools
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controller.api.crd import render_crd
from controller.api.schema import get_node
from tests.cluster.auditing import AuditedCluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World
from tests.support.process import await_true

NUMBERS = itertools.count(1)
STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
INSTALL = "agentterminal crd | kubectl apply --server-side -f -"


@pytest.fixture
def world(audited: AuditedCluster, lab: EmulatorProcess) -> Iterator[World]:
    """A world without an operator yet."""
    namespace = f"schema-{os.getpid()}-{next(NUMBERS)}"
    status, _ = audited.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    assert status == 201
    with World(audited, namespace, lab) as world:
        yield world
        audited.empty_namespace(namespace)


def build_without(*paths: str) -> dict[str, Any]:
    """Our CRD without some fields, and without the rules and defaults that speak of them."""
    crd = copy.deepcopy(render_crd())
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path in paths:
        parent, _, name = path.rpartition(".")
        node = get_node(root, parent)
        del node["properties"][name]
        node["required"] = [field for field in node.get("required", []) if field != name]
    return crd


def read_refusal(world: World) -> str:
    """Start the operator, which must end at once, and give what it wrote."""
    with pytest.raises(RuntimeError) as ended:
        world.start_operator(DEBUG="0")
    return str(ended.value)


def mark_activity(world: World, name: str) -> None:
    """Change an object in a way that gives it a visit and asks for nothing."""
    marks = {"metadata": {"annotations": {"agentterminal.dev/activity": str(time.time_ns())}}}
    status, _ = world.cluster.request(
        "PATCH", f"{world.path}/{name}", body=marks, content_type="application/merge-patch+json"
    )
    assert status == 200


def count_visits(world: World) -> float:
    assert world.operator is not None
    lines = world.operator.read("metrics").splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("agentterminal_reconciles_total"))


def read_version(world: World, name: str) -> str:
    terminal = world.get(name)
    assert terminal is not None
    return str(terminal["metadata"]["resourceVersion"])


def test_without_the_crd_the_operator_ends_and_says_how_to_install_it(world: World, audited: AuditedCluster) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = "agentterminals.agentterminal.dev"
    # A server that has not opened the kind's store yet may forget the deletion.
    await_true(lambda: audited.request("GET", world.path)[0] == 200, "the kind to be served")
    audited.request("DELETE", f"{path}/{name}")
    await_true(lambda: audited.request("GET", f"{path}/{name}")[0] == 404, "the CRD to be gone")
    try:
        told = read_refusal(world)
    finally:
        audited.install()

    assert told.startswith("The operator ended with 1: ")
    assert f"Error: The cluster has no CRD {name}. Install it: {INSTALL}\n" in told
    assert "Traceback" not in told


def test_with_a_crd_that_cannot_hold_what_must_be_remembered_the_operator_ends(
    world: World, audited: AuditedCluster
) -> None:
    with audited.with_crd(build_without("status.session.launchIntent")):
        told = read_refusal(world)

    assert "it lacks status.session.launchIntent, without which a session could be started twice" in told
    assert INSTALL in told
    assert "Traceback" not in told


def test_what_an_older_crd_lacks_is_named_and_costs_no_writes(world: World, audited: AuditedCluster) -> None:
    older = build_without("status.detachedTime", "status.kill.proof", "status.sprite", "spec.relaunch")
    with audited.with_crd(older):
        await_true(lambda: is_pruned(world), "the older CRD to be served", tell=lambda: str(probe(world)))
        operator = world.start_operator()
        (warning,) = [line for line in operator.lines if "is older than this operator" in line["message"]]
        assert warning["level"] == "WARNING"
        assert warning["lacking"] == ["spec.relaunch", "status.sprite", "status.detachedTime", "status.kill.proof"]

        session = world.lab.start_session("box", *STUBBORN)
        world.create("one", sessionId=session["id"])
        status = world.await_reason("one", "Detached")
        assert {"detachedTime", "sprite"} & status.keys() == set()
        before, visits = read_version(world, "one"), count_visits(world)
        mark_activity(world, "one")
        await_true(lambda: count_visits(world) > visits, "a visit")
        mark_activity(world, "one")
        await_true(lambda: count_visits(world) > visits + 1, "another visit")
        assert int(read_version(world, "one")) > int(before)
        assert written_status_times(audited, world) == 1

        world.patch("one", terminated=True)
        status = world.await_reason("one", "Confirmed", "Terminated")
        assert "proof" not in status["kill"]
        world.delete("one")
        world.await_gone("one")
    # At times a command without a terminal looks for what was left behind.
    assert [entry for entry in world.live() if entry["tty"]] == []


def is_pruned(world: World) -> bool:
    """A changed CRD is served after a moment: until then a field that it lacks is still taken."""
    status, answer = probe(world)
    return status == 201 and "relaunch" not in answer["spec"]


def probe(world: World) -> tuple[int, Any]:
    """Ask what would become of an object with that field."""
    spec = {"spriteName": "box", "launch": {"command": ["true"]}, "relaunch": "OnLost"}
    body = {"apiVersion": "agentterminal.dev/v1alpha1", "kind": "AgentTerminal", "metadata": {"name": "probe"}}
    return world.cluster.request("POST", f"{world.path}?dryRun=All", body={**body, "spec": spec})


def written_status_times(audited: AuditedCluster, world: World, name: str | None = None) -> int:
    """Count the status writes in this world, or of one object in it, whoever the operator logged in as."""
    writes = [
        entry
        for entry in audited.read_audit("lab-administrator")
        if entry.resource == "agentterminals/status" and entry.verb == "patch" and entry.namespace == world.namespace
    ]
    return len([entry for entry in writes if name is None or entry.name == name])


def said_of(status: dict[str, Any], kind: str) -> tuple[str, str, str, int]:
    """Read a condition: its status, its reason, its sentence, and the generation it was judged for."""
    (found,) = [condition for condition in status["conditions"] if condition["type"] == kind]
    return found["status"], found["reason"], found["message"], found["observedGeneration"]


def test_an_object_whose_spec_cannot_be_read_is_told_by_condition_event_and_log_and_hinders_nobody(
    world: World, audited: AuditedCluster
) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    world.start_operator()
    await_true(lambda: not is_pruned(world), "the whole CRD to be served again")
    world.create("odd", sessionId=session["id"])
    world.await_reason("odd", "Detached")
    looser = copy.deepcopy(render_crd())
    policy = get_node(looser["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "spec.deletionPolicy")
    policy["enum"] = [*policy["enum"], "Archive"]
    with audited.with_crd(looser):
        await_true(lambda: is_taken(world), "the looser CRD to be served")
        world.patch("odd", deletionPolicy="Archive")
        await_true(lambda: bool(told_of(world, "odd")), "an event about it")
        before = world.await_reason("odd", "ObjectInvalid", "Stalled")

        (event,) = told_of(world, "odd")
        assert (event["type"], event["reason"]) == ("Warning", "ObjectInvalid")
        assert event["note"].startswith("spec.deletionPolicy cannot be read: ")
        assert "Correct the object, or install this operator's own CRD." in event["note"]
        assert said_of(before, "Ready") == ("False", "ObjectInvalid", event["note"], 2)
        assert said_of(before, "Stalled") == ("True", "ObjectInvalid", event["note"], 2)
        assert said_of(before, "SessionLive")[3] == 1
        assert world.operator is not None
        faults = [line for line in world.operator.lines if line["message"] == "An object cannot be read."]
        assert faults[0]["level"] == "WARNING"
        assert faults[0]["object"] == f"{world.namespace}/odd"

        visits = count_visits(world)
        mark_activity(world, "odd")
        await_true(lambda: count_visits(world) > visits, "a visit")
        world.delete("odd")
        world.create("sound", launch={"command": ["sleep", "600"]})
        world.await_reason("sound", "Detached")
        odd = world.await_reason("odd", "ObjectInvalid", "Stalled")
        assert said_of(odd, "Stalled")[3] == 3
        assert odd["session"] == before["session"]
        found = world.get("odd")
        assert found is not None
        assert found["metadata"]["finalizers"] == ["agentterminal.dev/session"]
        # The two spoken of above, the one before, and none for the visit in between.
        assert written_status_times(audited, world, "odd") == 3

        world.patch("odd", deletionPolicy="Terminate")
        world.await_gone("odd")
        # At times a command without a terminal looks for what was left behind.
        live = [entry["id"] for entry in world.live() if entry["tty"]]
        assert live == [world.status("sound")["session"]["id"]]
        assert "Traceback" not in json.dumps(world.operator.lines)


def is_taken(world: World) -> bool:
    """A changed CRD is served after a moment: until then the new word is refused."""
    patch = {"spec": {"deletionPolicy": "Archive"}}
    status, _ = world.cluster.request(
        "PATCH", f"{world.path}/odd?dryRun=All", body=patch, content_type="application/merge-patch+json"
    )
    return status == 200


def told_of(world: World, name: str) -> list[dict[str, Any]]:
    return [event for event in world.events(name) if event["reason"] == "ObjectInvalid"]

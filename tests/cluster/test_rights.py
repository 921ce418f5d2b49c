"""The operator under exactly the rights that the chart gives it: each is used, and nothing else is asked for."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from controller.cli.worlds import RULES
from controller.lab.rights import LEASE_NAME, OPERATOR_NAME, OPERATOR_NAMESPACE, build_rights, read_rules
from tests.cluster.auditing import Asked, AuditedCluster
from tests.cluster.gate import At, Gate
from tests.cluster.stage import is_session_list
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import Kind, secret

NUMBERS = itertools.count(1)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_NAME}"
STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")


def create(cluster: AuditedCluster, path: str, body: Mapping[str, Any]) -> None:
    status, answer = cluster.request("POST", path, body=body)
    assert status in (201, 409), answer


@contextmanager
def granting(cluster: AuditedCluster, namespace: str, *, everywhere: bool, lease: str) -> Iterator[None]:
    """
    Give the operator the rights of the chart for a while.

    Args:
        cluster: Where.
        namespace: The one of the objects; two of its Secrets may be read.
        everywhere: As with the chart's value `namespaces` empty; otherwise as with this namespace in it.
        lease: The name of its Lease, in its own namespace.
    """
    objects = []
    for path, body in build_rights(read_rules(RULES), secrets={namespace: ["sprites", "password"]}, lease=lease):
        is_narrowed = path.endswith("/clusterrolebindings") and body["metadata"]["name"] == OPERATOR_NAME
        where = f"{RBAC}/namespaces/{namespace}/rolebindings" if is_narrowed and not everywhere else path
        objects.append((where, body))
    for path, body in objects:
        status, answer = cluster.request("POST", path, body=body)
        assert status == 201, answer
    yield
    for path, body in objects:
        cluster.request("DELETE", f"{path}/{body['metadata']['name']}")


@pytest.fixture
def gate(lab: EmulatorProcess) -> Iterator[Gate]:
    """What the operator's calls to the Sprites API pass."""
    with Gate(lab.url) as gate:
        yield gate


@pytest.fixture(params=[True, False], ids=["all namespaces", "one namespace"])
def limited(
    request: pytest.FixtureRequest, audited: AuditedCluster, lab: EmulatorProcess, gate: Gate
) -> Iterator[World]:
    """A world whose operator logs in as its service account."""
    namespace = f"rights-{os.getpid()}-{next(NUMBERS)}"
    for name in (namespace, OPERATOR_NAMESPACE):
        create(audited, "/api/v1/namespaces", {"metadata": {"name": name}})
    # A Lease for each test: the operator of the one before was killed, and its Lease lasts a while.
    lease = f"{LEASE_NAME}-{namespace}"
    with (
        granting(audited, namespace, everywhere=request.param, lease=lease),
        World(audited, namespace, lab) as world,
    ):
        world.kubeconfig = audited.service_account_kubeconfig(OPERATOR_NAMESPACE, OPERATOR_NAME)
        world.sprites_url = gate.url
        scope = {"NAMESPACES": ""} if request.param else {}
        world.start_operator(ELECTION="1", LEASE_NAMESPACE=OPERATOR_NAMESPACE, LEASE_NAME=lease, **scope)
        yield world
        audited.empty_namespace(namespace)


def granted_rights() -> set[tuple[str, str, str]]:
    rules = read_rules(RULES)
    return {
        (group, resource, verb)
        for rule in (*rules.terminals, *rules.crd, *rules.lease, *rules.proof, *rules.secrets)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def live_through_everything(world: World, gate: Gate) -> None:
    """Adopt, launch, be outrun, meet the same trouble twice, terminate and delete."""
    adopted = world.lab.start_session("box", *STUBBORN)
    look = gate.hold(is_session_list, At.AFTER)
    world.create("adopted", sessionId=adopted["id"])
    look.await_reached()
    world.patch("adopted", idleTimeoutSeconds=900)  # outruns the write that follows from the look
    look.release()
    world.await_reason("adopted", "Detached")

    world.put_secret("password", value=secret(Kind.SECRET_VALUE))
    reference = {"secretKeyRef": {"name": "password", "key": "value"}}
    world.create("launched", launch={"command": ["sleep", "600"], "env": [{"name": "A", "valueFrom": reference}]})
    world.await_reason("launched", "Detached")

    for _ in range(2):
        world.patch("adopted", tokenSecretRef={"name": "sprites", "key": "other"})
        world.await_reason("adopted", "SecretKeyMissing")
        world.patch("adopted", tokenSecretRef={"name": "sprites", "key": "token"})
        world.await_reason("adopted", "Detached")
    await_true(lambda: count_series(world, "adopted") == 2, "an event that came twice")

    world.patch("adopted", terminated=True)
    world.await_reason("adopted", "Confirmed", "Terminated")
    for name in ("adopted", "launched"):
        world.delete(name)
        world.await_gone(name)
    # At times a command without a terminal looks for what was left behind.
    assert [entry for entry in world.live() if entry["tty"]] == []


def count_series(world: World, name: str) -> int:
    return max((event.get("series", {}).get("count", 0) for event in world.events(name)), default=0)


def test_a_whole_life_uses_every_right_of_the_chart_and_asks_for_no_other(
    limited: World, audited: AuditedCluster, gate: Gate
) -> None:
    before = len(list(audited.read_audit(USER)))

    live_through_everything(limited, gate)
    # A life may be shorter than the time between two renewals.
    renewal = ("coordination.k8s.io", "leases", "update")
    await_true(
        lambda: renewal in {entry.right for entry in list(audited.read_audit(USER))[before:]}, "a renewal of the Lease"
    )
    limited.start_operator()  # reads the CRD and lists again; what came before is in the log

    asked = list(audited.read_audit(USER))[before:]
    assert {entry.right for entry in asked if entry.resource} | read_at_start(audited) == granted_rights()
    assert [entry for entry in asked if entry.code in (401, 403)] == []
    discovery = {entry.uri.split("/")[1].split("?")[0] for entry in asked if not entry.resource}
    assert discovery <= {"api", "apis", "version"}
    assert_only_named_things_were_read(limited, asked)


def read_at_start(audited: AuditedCluster) -> set[tuple[str, str, str]]:
    """What belongs to no life: the fixture has started the operator before the test could count."""
    early = ("customresourcedefinitions", "leases")
    return {entry.right for entry in audited.read_audit(USER) if entry.resource in early}


def assert_only_named_things_were_read(world: World, asked: list[Asked]) -> None:
    secrets = {(entry.namespace, entry.name) for entry in asked if entry.resource == "secrets"}
    assert secrets == {(world.namespace, "sprites"), (world.namespace, "password")}
    crds = {entry.name for entry in asked if entry.resource == "customresourcedefinitions"}
    assert crds == {"agentterminals.agentterminal.dev"}
    leases = {(entry.namespace, entry.name) for entry in asked if entry.resource == "leases" and entry.verb != "create"}
    assert leases == {(OPERATOR_NAMESPACE, f"{LEASE_NAME}-{world.namespace}")}


def test_outside_of_status_nothing_but_the_finalizer_is_ever_written(
    limited: World, audited: AuditedCluster, gate: Gate
) -> None:
    before = len(list(audited.read_audit(USER)))

    live_through_everything(limited, gate)

    patches = [
        entry.body
        for entry in list(audited.read_audit(USER))[before:]
        if entry.verb == "patch" and entry.resource == "agentterminals"
    ]
    assert len(patches) >= 4
    for operations in patches:
        changes = [operation for operation in operations if operation["op"] != "test"]
        assert {operation["path"].rsplit("/", 1)[0] for operation in changes} <= {"/metadata", "/metadata/finalizers"}
        assert all(operation["path"].startswith("/metadata/finalizers") for operation in changes)


def test_a_secret_that_the_operator_may_not_read_is_told_like_a_missing_one_with_the_way_out(
    limited: World, audited: AuditedCluster
) -> None:
    limited.put_secret("private", token=limited.lab.token)

    limited.create("one", tokenSecretRef={"name": "private"}, launch={"command": ["sleep", "600"]})
    status = limited.await_reason("one", "SecretNotFound", "Stalled")

    message = read_condition(status, "Stalled")["message"]
    assert message == (
        "Secret private does not exist, or the operator may not read it. Create it in this namespace, and list it in "
        "the chart's `secretAccess`."
    )
    refused = [
        entry for entry in audited.read_audit(USER) if entry.code == 403 and entry.namespace == limited.namespace
    ]
    assert {(entry.right, entry.name) for entry in refused} == {(("", "secrets", "get"), "private")}
    assert limited.lab.token not in json.dumps(status)


def test_a_secret_of_a_launch_that_the_operator_may_not_read_starts_nothing(limited: World) -> None:
    limited.put_secret("private", value=secret(Kind.SECRET_VALUE))
    reference = {"secretKeyRef": {"name": "private", "key": "value"}}

    limited.create("one", launch={"command": ["sleep", "600"], "env": [{"name": "A", "valueFrom": reference}]})
    status = limited.await_reason("one", "LaunchInvalid", "Stalled")

    message = "Secret private, which `spec.launch.env` names, does not exist, or the operator may not read it."
    assert message in json.dumps(status)
    assert limited.live() == []

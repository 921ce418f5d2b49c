"""
What processes write at the API server is looked through for secrets, and so are the addresses that they ask for.

Each test plants one where a process could have put it, and calls what every namespace and every world does at its end;
`tests/house/test_secrecy.py` does the same for outputs that need no cluster.
"""

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import GROUP_PATH, World
from tests.support.process import await_true
from tests.support.secrecy import Finding, Kind, catching, find_kinds, secret

PLANTED: Final = secret()
EVENTS: Final = "/apis/events.k8s.io/v1"
LEASES: Final = "/apis/coordination.k8s.io/v1"
MERGE: Final = "application/merge-patch+json"


def write_status(cluster: Cluster, namespace: str) -> None:
    gateways = {"status": {"gateways": [{"incarnation": PLANTED}]}}
    path = f"{GROUP_PATH}/namespaces/{namespace}/agentterminals/one/status"
    status, answer = cluster.request("PATCH", path, body=gateways, content_type=MERGE)
    assert status == 200, answer


def write_annotation(cluster: Cluster, namespace: str) -> None:
    note = {"metadata": {"annotations": {"example.test/note": PLANTED}}}
    path = f"{GROUP_PATH}/namespaces/{namespace}/agentterminals/one"
    assert cluster.request("PATCH", path, body=note, content_type=MERGE)[0] == 200


def write_event(cluster: Cluster, namespace: str) -> None:
    event = {
        "metadata": {"name": "one"},
        "regarding": {"kind": "AgentTerminal", "name": "one", "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Normal",
        "reason": "Told",
        "action": "Tell",
        "note": f"It said {PLANTED}.",
        "reportingController": "tests",
        "reportingInstance": "tests",
    }
    status, answer = cluster.request("POST", f"{EVENTS}/namespaces/{namespace}/events", body=event)
    assert status == 201, answer


def write_lease(cluster: Cluster, namespace: str) -> None:
    lease = {"metadata": {"name": "one"}, "spec": {"holderIdentity": PLANTED}}
    assert cluster.request("POST", f"{LEASES}/namespaces/{namespace}/leases", body=lease)[0] == 201


def write_spec(cluster: Cluster, namespace: str) -> None:
    path = f"{GROUP_PATH}/namespaces/{namespace}/agentterminals/one"
    launch = {"spec": {"launch": {"command": ["sh"], "env": [{"name": "A", "value": PLANTED}]}}}
    assert cluster.request("PATCH", path, body=launch, content_type=MERGE)[0] == 200


@pytest.mark.parametrize(
    ("write", "place"),
    [
        pytest.param(write_status, "The status of an AgentTerminal", id="status"),
        pytest.param(write_annotation, "The annotations of an AgentTerminal", id="annotation"),
        # The key of an entry stands there.
        pytest.param(write_status, "The managedFields of an AgentTerminal", id="managedFields"),
        pytest.param(write_event, "One of the events of a namespace", id="event"),
        pytest.param(write_lease, "One of the leases of a namespace", id="lease"),
    ],
)
def test_a_secret_in_what_a_process_wrote_is_found_when_its_namespace_is_emptied(
    cluster: Cluster, namespace: str, write: Callable[[Cluster, str], None], place: str
) -> None:
    create_terminal(cluster, namespace)
    write(cluster, namespace)

    with catching() as found:
        cluster.empty_namespace(namespace)

    assert Finding(place, Kind.PLANTED) in found
    if write in (write_event, write_lease):
        # What is left would be found again.
        group, kind = (EVENTS, "events") if write is write_event else (LEASES, "leases")
        assert cluster.request("DELETE", f"{group}/namespaces/{namespace}/{kind}/one")[0] == 200


def test_what_its_owner_wrote_into_the_spec_is_no_finding(cluster: Cluster, namespace: str) -> None:
    create_terminal(cluster, namespace)
    write_spec(cluster, namespace)

    with catching() as found:
        cluster.empty_namespace(namespace)

    assert found == []


def test_a_secret_in_an_address_that_the_api_server_was_asked_for_is_found_in_its_audit_log(cluster: Cluster) -> None:
    cluster.request("GET", f"/api/v1/namespaces/default/configmaps?labelSelector={quote(f'a={PLANTED}')}")
    # The line is written beside the answer.
    await_true(lambda: PLANTED in cluster.plane.audit_log.read_text(), "the address to stand in the log")

    with catching() as found:
        cluster.look_at_logs()

    assert found == [Finding("The API server's audit log", Kind.PLANTED)]
    with catching() as found:
        cluster.look_at_logs()
    assert found == []


def test_a_secret_in_an_address_that_the_sprites_api_was_asked_for_is_found_at_the_end_of_a_world(
    cluster: Cluster, namespace: str, lab: EmulatorProcess
) -> None:
    with catching() as found, World(cluster, namespace, lab):
        lab.call("GET", "/v1/sprites", prefix=PLANTED)

    assert found == [Finding("An address of a call to the Sprites API", Kind.PLANTED)]


def test_the_secrets_of_a_world_are_such_that_they_would_be_found(world: World) -> None:
    """Otherwise none of this could fail."""
    _, held = world.cluster.request("GET", f"/api/v1/namespaces/{world.namespace}/secrets/sprites")
    account = world.cluster.service_account_kubeconfig(world.namespace, "somebody")
    world.put_secret("drawn", value="a-value-that-nobody-marked")

    assert find_kinds(world.lab.token.encode()) == {Kind.SPRITES}
    assert find_kinds(json.dumps(held).encode()) >= {Kind.ENCODED}
    assert find_kinds(world.cluster.admin_token.encode()) == {Kind.ADMINISTRATOR}
    assert find_kinds(world.cluster.kubeconfig.read_bytes()) == {Kind.ADMINISTRATOR}
    assert Kind.ACCOUNT in find_kinds(account.read_bytes())
    assert find_kinds(b"a-value-that-nobody-marked") == {Kind.SECRET_VALUE}


def create_terminal(cluster: Cluster, namespace: str) -> None:
    body: dict[str, Any] = {
        "apiVersion": "agentterminal.dev/v1alpha1",
        "kind": "AgentTerminal",
        "metadata": {"name": "one"},
        "spec": {"spriteName": "box", "tokenSecretRef": {"name": "sprites"}, "sessionId": "1"},
    }
    status, answer = cluster.request("POST", f"{GROUP_PATH}/namespaces/{namespace}/agentterminals", body=body)
    assert status == 201, answer

"""The client's contract with a real API server: what it promises in its docstrings, seen there."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from controller.api import names
from controller.api.conditions import Reason
from controller.clock import SystemClock
from controller.kube.calls import KubeCallReport, Succeeded
from controller.kube.client import KubeClient, Page
from controller.kube.credentials import load_credentials
from controller.kube.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TimedOut,
    Unauthorized,
)
from controller.kube.events import EventRecorder, EventType, ObjectRef
from controller.kube.patches import build_add_finalizer, build_remove_finalizer, build_status_patch
from controller.kube.settings import InCluster, Kubeconfig, KubeSettings
from controller.tenure import Tenure
from tests.cluster.plane import Cluster

TENURE = Tenure(1)
LONG = timedelta(seconds=20)
SPEC = {"spriteName": "my-sprite", "sessionId": "812"}
SOCKET = {
    "uid": "some-uid",
    "epoch": 1,
    "socketId": "at1.1.gw-1.x",
    "incarnation": "gw-1",
    "since": "2026-01-01T12:00:00Z",
}
NUMBERS = itertools.count(1)


@asynccontextmanager
async def connected(settings: KubeSettings, reports: list[KubeCallReport] | None = None) -> AsyncIterator[KubeClient]:
    clock = SystemClock()
    credentials = await load_credentials(settings, clock=clock)
    async with KubeClient(credentials, settings, clock, (reports if reports is not None else []).append) as client:
        yield client


def as_file(path: Path, **more: Any) -> KubeSettings:
    return KubeSettings(login=Kubeconfig(str(path)), **more)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    async with connected(as_file(cluster.kubeconfig)) as client:
        yield client


async def created(cluster: Cluster, namespace: str, name: str = "", **metadata: Any) -> str:
    name = name or f"terminal-{next(NUMBERS)}"
    body = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name} | metadata,
        "spec": SPEC,
    }
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
    status, answer = await asyncio.to_thread(cluster.request, "POST", path, body=body)
    assert status == 201, answer
    return name


async def expect(kind: type[KubeError], work: Awaitable[object]) -> Any:
    with pytest.raises(kind) as caught:
        await work
    return caught.value


# --- Finalizers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [[], ["example.org/theirs"]])
async def test_our_finalizer_comes_and_goes_and_leaves_those_of_others(
    cluster: Cluster, namespace: str, client: KubeClient, others: list[str]
) -> None:
    name = await created(cluster, namespace, finalizers=others)
    terminal = await client.get(namespace, name)
    added = await client.patch_json(namespace, name, build_add_finalizer(terminal, names.FINALIZER), tenure=TENURE)
    assert added["metadata"]["finalizers"] == [*others, names.FINALIZER]
    operations = build_remove_finalizer(added, names.FINALIZER, demand_free_socket=True)
    removed = await client.patch_json(namespace, name, operations, tenure=TENURE)
    assert removed["metadata"].get("finalizers", []) == others


@pytest.mark.parametrize("stale", ["uid", "resourceVersion"])
async def test_a_finalizer_patch_of_another_object_or_version_is_a_failed_test_not_a_rule(
    cluster: Cluster, namespace: str, client: KubeClient, stale: str
) -> None:
    name = await created(cluster, namespace)
    terminal = await client.get(namespace, name)
    terminal["metadata"][stale] = "1"
    error = await expect(
        Invalid,
        client.patch_json(namespace, name, build_add_finalizer(terminal, names.FINALIZER), tenure=TENURE),
    )
    assert not error.spoke
    assert error.causes == ()


async def test_a_held_socket_keeps_the_finalizer(cluster: Cluster, namespace: str, client: KubeClient) -> None:
    name = await created(cluster, namespace, finalizers=[names.FINALIZER])
    held = await client.patch_status(namespace, name, {"status": {"socket": SOCKET}}, tenure=TENURE)
    for read in (held, {"metadata": held["metadata"]}):
        operations = build_remove_finalizer(read, names.FINALIZER, demand_free_socket=True)
        error = await expect(Invalid, client.patch_json(namespace, name, operations, tenure=TENURE))
        assert not error.spoke
    free = await client.patch_status(namespace, name, {"status": {"socket": None}}, tenure=TENURE)
    operations = build_remove_finalizer(free, names.FINALIZER, demand_free_socket=True)
    removed = await client.patch_json(namespace, name, operations, tenure=TENURE)
    assert "finalizers" not in removed["metadata"]


async def test_a_rule_of_the_kind_speaks(cluster: Cluster, namespace: str, client: KubeClient) -> None:
    name = await created(cluster, namespace)
    operations = [{"op": "replace", "path": "/spec/spriteName", "value": "another"}]
    error = await expect(Invalid, client.patch_json(namespace, name, operations, tenure=TENURE))
    assert error.spoke
    assert [cause.field for cause in error.causes] == ["spec.spriteName"]
    assert error.causes[0].message


# --- Status ----------------------------------------------------------------------------------------------------------


async def test_a_status_is_written_by_its_difference_and_under_our_name(
    cluster: Cluster, namespace: str, client: KubeClient
) -> None:
    name = await created(cluster, namespace)
    before = await client.get(namespace, name)
    wanted = dict(before["status"]) | {"phase": "Running", "observedGeneration": 1}
    patch = {
        "metadata": {key: before["metadata"][key] for key in ("uid", "resourceVersion")},
        "status": build_status_patch(before["status"], wanted),
    }
    after = await client.patch_status(namespace, name, patch, tenure=TENURE)
    assert after["status"] == wanted
    assert build_status_patch(after["status"], wanted) == {}
    assert {"manager": "agentterminal-operator", "subresource": "status"} in [
        {key: entry.get(key) for key in ("manager", "subresource")} for entry in after["metadata"]["managedFields"]
    ]


async def test_a_status_written_late_never_lands_on_a_successor(
    cluster: Cluster, namespace: str, client: KubeClient
) -> None:
    name = await created(cluster, namespace)
    old = await client.get(namespace, name)
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}/{name}"
    status, _ = await asyncio.to_thread(cluster.request, "DELETE", path)
    assert status == 200
    await created(cluster, namespace, name)
    patch = {
        "metadata": {key: old["metadata"][key] for key in ("uid", "resourceVersion")},
        "status": {"phase": "Running"},
    }
    await expect(Conflict, client.patch_status(namespace, name, patch, tenure=TENURE))
    assert (await client.get(namespace, name))["status"]["phase"] == "Pending"


async def test_a_test_on_the_status_subresource_is_a_failed_test_too(
    cluster: Cluster, namespace: str, client: KubeClient
) -> None:
    name = await created(cluster, namespace)
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/generation", "value": 99},
        {"op": "add", "path": "/status/phase", "value": "Running"},
    ]
    error = await expect(Invalid, client.patch_json(namespace, name, operations, subresource="status", tenure=TENURE))
    assert not error.spoke


# --- Lists -----------------------------------------------------------------------------------------------------------


async def test_a_list_comes_in_pages_with_metadata_only(cluster: Cluster, namespace: str, client: KubeClient) -> None:
    made = {await created(cluster, namespace) for _ in range(7)}
    pages: list[Page] = [
        page async for page in client.list_pages(limit=3, metadata_only=True, namespaces=[namespace, "default"])
    ]
    ours = [page for page in pages if page.namespace == namespace]
    assert [len(page.items) for page in ours] == [3, 3, 1]
    assert [page.begins for page in ours] == [True, False, False]
    assert len({page.resource_version for page in ours}) == 1
    items = [item for page in ours for item in page.items]
    assert {item["metadata"]["name"] for item in items} == made
    assert all("spec" not in item and "uid" in item["metadata"] for item in items)


async def test_a_list_over_all_namespaces_has_whole_objects_too(
    cluster: Cluster, namespace: str, client: KubeClient
) -> None:
    name = await created(cluster, namespace)
    found = [
        item
        async for page in client.list_pages(metadata_only=False)
        for item in page.items
        if item["metadata"]["namespace"] == namespace
    ]
    assert [(item["metadata"]["name"], item["spec"]["spriteName"]) for item in found] == [(name, "my-sprite")]


async def test_a_list_selects_by_the_sockets_incarnation(cluster: Cluster, namespace: str, client: KubeClient) -> None:
    name = await created(cluster, namespace)
    await created(cluster, namespace)
    await client.patch_status(namespace, name, {"status": {"socket": SOCKET | {"incarnation": "gw-7"}}}, tenure=TENURE)
    [page] = [
        page
        async for page in client.list_pages(
            metadata_only=True, namespaces=[namespace], field_selector="status.socket.incarnation=gw-7"
        )
    ]
    assert [item["metadata"]["name"] for item in page.items] == [name]


# --- Secrets, CRDs, rights -------------------------------------------------------------------------------------------


async def test_a_secret_and_the_crd_are_read(cluster: Cluster, namespace: str, client: KubeClient) -> None:
    body = {"metadata": {"name": "token"}, "stringData": {"token": "hä"}}
    await asyncio.to_thread(cluster.request, "POST", f"/api/v1/namespaces/{namespace}/secrets", body=body)
    assert await client.get_secret(namespace, "token") == {"token": "hä".encode()}
    await expect(NotFound, client.get_secret(namespace, "missing"))
    crd = await client.get_crd(names.CRD_NAME)
    assert crd["spec"]["names"]["kind"] == names.KIND


async def test_a_service_account_without_rights_is_forbidden(cluster: Cluster, namespace: str) -> None:
    kubeconfig = await asyncio.to_thread(cluster.service_account_kubeconfig, namespace, "nobody")
    async with connected(as_file(kubeconfig)) as client:
        error = await expect(Forbidden, client.get(namespace, "one"))
    assert f"system:serviceaccount:{namespace}:nobody" in str(error)


# --- Logins ----------------------------------------------------------------------------------------------------------


async def test_a_client_certificate_logs_in(cluster: Cluster, namespace: str) -> None:
    name = await created(cluster, namespace)
    async with connected(as_file(cluster.plane.certificate_kubeconfig)) as client:
        assert (await client.get(namespace, name))["metadata"]["name"] == name


async def test_an_exec_plugin_logs_in(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    name = await created(cluster, namespace)
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": kubeconfig["users"][0]["user"]["token"]},
    }
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    plugin.chmod(0o755)
    kubeconfig["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./plugin",
            "interactiveMode": "Never",
        }
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    async with connected(as_file(path)) as client:
        assert (await client.get(namespace, name))["metadata"]["name"] == name


async def test_a_pods_token_is_read_again_when_it_is_refused(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    place = urlsplit(cluster.url)
    token = cluster.call(cluster.plane.service_account_token(namespace, "pod"))
    (tmp_path / "ca.crt").write_bytes(cluster.ca_file.read_bytes())
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "token").write_text("out-of-date")
    reports: list[KubeCallReport] = []
    settings = KubeSettings(login=InCluster(str(place.hostname), str(place.port), tmp_path), reload_pause=timedelta(0))
    async with connected(settings, reports) as client:
        await expect(Unauthorized, client.get(namespace, "one"))
        (tmp_path / "token").write_text(token)
        await expect(Forbidden, client.get(namespace, "one"))
    assert [report.outcome for report in reports] == ["Unauthorized", "Forbidden"]


# --- Leases ----------------------------------------------------------------------------------------------------------


def lease(namespace: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": "operator"},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15} | spec,
    }


def held_by(read: Mapping[str, Any], holder: str, **metadata: str) -> dict[str, Any]:
    return {
        **read,
        "metadata": {**read["metadata"], **metadata},
        "spec": {**read["spec"], "holderIdentity": holder},
    }


async def test_a_lease_is_held_by_its_version_and_uid(namespace: str, client: KubeClient) -> None:
    first = await client.create_lease(lease(namespace), timeout=LONG)
    await expect(Conflict, client.create_lease(lease(namespace), timeout=LONG))
    second = await client.put_lease(held_by(first, "two"), timeout=LONG)
    await expect(Conflict, client.put_lease(held_by(first, "three"), timeout=LONG))
    await expect(Conflict, client.put_lease(held_by(second, "three", uid="1"), timeout=LONG))
    now = await client.get_lease(namespace, "operator", timeout=LONG)
    assert now["spec"]["holderIdentity"] == "two"
    uid, version = now["metadata"]["uid"], now["metadata"]["resourceVersion"]
    for other in ({"uid": "1", "resource_version": version}, {"uid": uid, "resource_version": "1"}):
        await expect(Conflict, client.delete_lease(namespace, "operator", timeout=LONG, **other))
    await client.delete_lease(namespace, "operator", uid=uid, resource_version=version, timeout=LONG)
    await expect(NotFound, client.get_lease(namespace, "operator", timeout=LONG))


async def test_a_removed_lease_comes_back_by_a_put_without_uid_only(
    cluster: Cluster, namespace: str, client: KubeClient
) -> None:
    gone = await client.create_lease(lease(namespace), timeout=LONG)
    uid, version = gone["metadata"]["uid"], gone["metadata"]["resourceVersion"]
    await client.delete_lease(namespace, "operator", uid=uid, resource_version=version, timeout=LONG)
    # The server calls a uid that is not there any more a conflict, not a 404.
    await expect(Conflict, client.put_lease(gone, timeout=LONG))
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/operator"
    status, _ = await asyncio.to_thread(cluster.request, "PUT", path, body=lease(namespace))
    assert status == 201


async def test_a_renewal_that_was_given_up_may_land_later(cluster: Cluster, namespace: str, client: KubeClient) -> None:
    first = await client.create_lease(lease(namespace), timeout=LONG)
    try:
        await asyncio.to_thread(cluster.hang)
        error = await expect(TimedOut, client.put_lease(held_by(first, "late"), timeout=timedelta(milliseconds=500)))
    finally:
        cluster.resume()
    assert error.may_have_happened
    # Whether it lands is the server's affair; what must hold is that a read settles it and the next write goes on.
    now = await client.get_lease(namespace, "operator", timeout=LONG)
    assert now["spec"]["holderIdentity"] in {"one", "late"}


async def test_a_restarted_api_server_is_found_again(cluster: Cluster, namespace: str) -> None:
    name = await created(cluster, namespace)
    reports: list[KubeCallReport] = []
    async with connected(as_file(cluster.kubeconfig), reports) as client:
        await asyncio.gather(*(client.get(namespace, name) for _ in range(8)))
        await asyncio.to_thread(cluster.restart_api_server)
        await asyncio.gather(*(client.get(namespace, name) for _ in range(8)))
    assert {report.outcome for report in reports} == {Succeeded.OK}


# --- Events ----------------------------------------------------------------------------------------------------------


async def test_events_are_aggregated_and_kubectl_shows_them(
    cluster: Cluster, namespace: str, client: KubeClient
) -> None:
    name = await created(cluster, namespace)
    terminal = await client.get(namespace, name)
    regarding = ObjectRef(namespace, name, terminal["metadata"]["uid"])
    recorder = EventRecorder(client, SystemClock(), reporting_instance="operator-0")
    task = asyncio.get_running_loop().create_task(recorder.run(TENURE))
    for note in ("The kill failed.", "The kill failed.", "The kill failed.", "ä" * 1_024):
        recorder.record(regarding, type=EventType.WARNING, reason=Reason.KILL_FAILED, action="Kill", note=note)
        async with asyncio.timeout(20):
            await recorder.drain()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (recorder.counts.written, recorder.counts.failed) == (4, 0)
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    _, listed = await asyncio.to_thread(cluster.request, "GET", path)
    series, single = sorted(listed["items"], key=lambda event: "series" not in event)
    assert series["series"]["count"] == 3
    assert series["series"]["lastObservedTime"] > series["eventTime"]
    assert series["reportingController"] == names.REPORTING_CONTROLLER
    assert single["note"] == "ä" * 512
    described = await asyncio.to_thread(cluster.kubectl, "describe", "aterm", name, "-n", namespace)
    assert "KillFailed" in described.stdout
    assert "The kill failed." in described.stdout


async def test_the_server_refuses_a_longer_note_and_any_other_change_of_an_event(
    cluster: Cluster, namespace: str
) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    event = {
        "metadata": {"name": "one", "namespace": namespace},
        "eventTime": "2026-01-01T12:00:00.000000Z",
        "reportingController": names.REPORTING_CONTROLLER,
        "reportingInstance": "operator-0",
        "action": "Kill",
        "reason": "KillFailed",
        "type": "Warning",
        "note": "x" * 1_025,
        "regarding": {"kind": names.KIND, "namespace": namespace, "name": "one"},
    }
    status, _ = await asyncio.to_thread(cluster.request, "POST", path, body=event)
    assert status == 422
    status, _ = await asyncio.to_thread(cluster.request, "POST", path, body=event | {"note": "x" * 1_024})
    assert status == 201
    status, _ = await asyncio.to_thread(
        cluster.request, "PATCH", f"{path}/one", body={"note": "y"}, content_type="application/merge-patch+json"
    )
    assert status == 422

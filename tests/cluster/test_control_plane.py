"""The lab's control plane is the real thing, its rights are real, and nothing of it stays."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from controller.lab.binaries import Binaries, PlainProgress, find_binaries, read_binaries_settings
from controller.lab.control_plane import ControlPlane, ControlPlaneFailed, KubectlFailed
from controller.settings import environment, read_cache_folder
from tests.cluster.plane import Cluster
from tests.lab.watching import is_alive, list_children, read_command, until, until_gone
from tests.support.process import await_true

READY_SECONDS = 60.0
"""A start takes 3 to 4 s; another worker may be busy beside it."""

COMMAND = [sys.executable, "-c", "from controller.cli.main import main; main()", "control-plane"]


@pytest.fixture
async def binaries() -> Binaries:
    settings = read_binaries_settings(environment(), cache=read_cache_folder(environment()))
    return await find_binaries(settings, PlainProgress(sys.stderr))


@pytest.fixture
async def plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """One that the test may break."""
    async with ControlPlane(binaries) as plane:
        yield plane


# --- What the shared one offers --------------------------------------------------------------------------------------


def test_our_kind_is_served(cluster: Cluster) -> None:
    status, answer = cluster.request("GET", "/apis/agentterminal.dev/v1alpha1/agentterminals")
    assert (status, answer["kind"]) == (200, "AgentTerminalList")


def test_our_kind_is_explained_by_kubectl(cluster: Cluster) -> None:
    def is_explained() -> bool:
        return "AgentTerminal" in cluster.kubectl("explain", "agentterminal", check=False).stdout

    await_true(is_explained, "the server's documents, which it makes anew now and then", poll_seconds=0.5)


@pytest.mark.parametrize("kubeconfig", ["kubeconfig", "certificate_kubeconfig"])
def test_the_administrator_logs_in_by_token_and_by_certificate(cluster: Cluster, kubeconfig: str) -> None:
    answer = cluster.kubectl("auth", "whoami", "--output=json", kubeconfig=getattr(cluster.plane, kubeconfig))
    user = json.loads(answer.stdout)["status"]["userInfo"]
    assert user["username"] == "lab-administrator"
    assert "system:masters" in user["groups"]
    assert cluster.kubectl("auth", "can-i", "*", "*", "--all-namespaces").stdout == "yes\n"


def test_a_service_account_has_the_rights_that_it_was_given_and_no_more(cluster: Cluster, namespace: str) -> None:
    kubeconfig = cluster.service_account_kubeconfig(namespace, "watcher")

    def can(verb: str, kind: str) -> str:
        return cluster.kubectl("auth", "can-i", verb, kind, check=False, kubeconfig=kubeconfig).stdout.strip()

    assert can("list", "agentterminals") == "no"
    cluster.kubectl("create", "role", "watcher", "-n", namespace, "--verb=list", "--resource=agentterminals")
    account = f"--serviceaccount={namespace}:watcher"
    cluster.kubectl("create", "rolebinding", "watcher", "-n", namespace, "--role=watcher", account)
    await_true(lambda: can("list", "agentterminals") == "yes", "the authorizer to hear of it", poll_seconds=0.5)
    assert can("delete", "agentterminals") == "no"
    assert can("list", "secrets") == "no"


def test_who_has_no_credentials_gets_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": "guessed"}
    stranger = tmp_path / "stranger.yaml"
    stranger.write_text(yaml.safe_dump(document))
    refused = cluster.kubectl("get", "namespaces", check=False, kubeconfig=stranger)
    assert refused.code != 0
    assert "Unauthorized" in refused.stderr


def test_the_configmap_for_extension_servers_is_there(cluster: Cluster) -> None:
    status, answer = cluster.request(
        "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    )
    assert status == 200
    assert "BEGIN CERTIFICATE" in answer["data"]["client-ca-file"]


def test_the_certificate_satisfies_the_strictest_client(cluster: Cluster) -> None:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    port = int(cluster.url.rsplit(":", 1)[1])
    for name in ("127.0.0.1", "localhost"):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=name) as secured,
        ):
            assert secured.version() == "TLSv1.3"


def test_keys_and_kubeconfigs_are_for_their_owner_only(cluster: Cluster, namespace: str) -> None:
    account = cluster.service_account_kubeconfig(namespace, "somebody")
    folder = cluster.plane.directory
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    private = [cluster.kubeconfig, cluster.plane.certificate_kubeconfig, account]
    private += [*folder.glob("*.key"), folder / "tokens.csv"]
    assert len(private) == 6
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


def test_no_secret_is_on_a_command_line(cluster: Cluster) -> None:
    for process in cluster.plane.process_ids.values():
        assert cluster.admin_token not in " ".join(read_command(process))


def test_the_store_is_reached_by_nobody_else(cluster: Cluster) -> None:
    def listening(process: int) -> set[str]:
        table = [
            line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()
        ]
        inodes = {f"socket:[{row[9]}]": row[1] for row in table if row[3] == "0A"}
        held = set()
        for link in Path(f"/proc/{process}/fd").iterdir():
            # It opens and closes files all the time.
            with contextlib.suppress(FileNotFoundError):
                held.add(str(link.readlink()))
        return {inodes[inode] for inode in held & inodes.keys()}

    port = int(cluster.url.rsplit(":", 1)[1])
    assert listening(cluster.plane.process_ids["kube-apiserver"]) == {f"0100007F:{port:04X}"}
    assert listening(cluster.plane.process_ids["etcd"]) == set()


def test_kubectl_reads_stdin_and_tells_its_end(cluster: Cluster, namespace: str) -> None:
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"key": "value"}}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(document))
    assert cluster.kubectl("get", "cm", "one", "-n", namespace, "-o", "jsonpath={.data.key}").stdout == "value"
    missing = cluster.kubectl("get", "cm", "two", "-n", namespace, check=False)
    assert (missing.code, missing.stdout) == (1, "")
    assert "NotFound" in missing.stderr


def test_a_failed_kubectl_names_its_verb_and_not_its_arguments(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(KubectlFailed) as caught:
        cluster.kubectl(
            "create", "secret", "generic", "a", "-n", "absent-namespace", "--from-literal=key=planted-secret"
        )
    assert "kubectl create ended with 1" in str(caught.value)
    assert "absent-namespace" in str(caught.value)
    assert "planted-secret" not in str(caught.value)


def test_a_namespace_of_a_test_is_empty_again_even_with_finalizers(cluster: Cluster, namespace: str) -> None:
    terminal = {
        "apiVersion": "agentterminal.dev/v1alpha1",
        "kind": "AgentTerminal",
        "metadata": {"name": "kept", "finalizers": ["agentterminal.dev/session"]},
        "spec": {"spriteName": "dev", "sessionId": "12"},
    }
    path = f"/apis/agentterminal.dev/v1alpha1/namespaces/{namespace}/agentterminals"
    status, answer = cluster.request("POST", path, body=terminal)
    assert status == 201, answer
    cluster.empty_namespace(namespace)
    assert cluster.request("GET", path)[1]["items"] == []


# --- Outages ---------------------------------------------------------------------------------------------------------


async def test_a_restart_keeps_address_and_store(plane: ControlPlane) -> None:
    await plane.kubectl("create", "configmap", "kept")
    before = plane.process_ids
    for gracefully in (True, False):
        await plane.restart_api_server(gracefully=gracefully)
        await plane.kubectl("get", "configmap", "kept")
    assert plane.process_ids["etcd"] == before["etcd"]
    assert plane.process_ids["kube-apiserver"] != before["kube-apiserver"]


async def test_during_an_outage_connections_are_refused_and_nobody_gets_the_port(plane: ControlPlane) -> None:
    await plane.stop_api_server()
    assert set(plane.process_ids) == {"etcd"}
    with pytest.raises(aiohttp.ClientConnectorError):
        await plane.request("GET", "/readyz")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(plane.url.rsplit(":", 1)[1])))
    await plane.start_api_server()
    assert (await plane.request("GET", "/readyz"))[0] == 200
    with pytest.raises(ValueError, match="runs already"):
        await plane.start_api_server()


async def test_a_frozen_api_server_answers_only_when_it_goes_on(plane: ControlPlane) -> None:
    await plane.hang()
    async with asyncio.TaskGroup() as group:
        question = group.create_task(plane.request("GET", "/version"))
        done, _ = await asyncio.wait([question], timeout=0.5)
        assert not done
        plane.resume()
        assert (await question)[0] == 200
    await plane.hang()
    # The fixture stops it as it is.


async def test_an_end_that_nobody_asked_for_is_told_with_the_log(plane: ControlPlane) -> None:
    os.kill(plane.process_ids["etcd"], signal.SIGKILL)
    async with asyncio.timeout(READY_SECONDS):
        told = await plane.wait_ended()
    assert told.startswith("etcd was ended by SIGKILL. The end of its log:\n")


def list_audited(plane: ControlPlane) -> list[dict[str, Any]]:
    """Read the lines that are there in full: the API server may be in the middle of the next one."""
    return [json.loads(line) for line in plane.audit_log.read_text().split("\n")[:-1]]


def list_made(plane: ControlPlane) -> list[dict[str, Any]]:
    """Read of what was created under the name `seen`."""
    return [
        event for event in list_audited(plane) if event["verb"] == "create" and event["objectRef"].get("name") == "seen"
    ]


async def test_the_audit_log_holds_what_the_policy_asks_for(binaries: Binaries) -> None:
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "resources": [{"group": "", "resources": ["configmaps"]}]}, {"level": "None"}],
    }
    async with ControlPlane(binaries, audit_policy=policy) as plane:
        await plane.kubectl("create", "configmap", "seen")
        await until(lambda: len(list_made(plane)) >= 1, within_seconds=READY_SECONDS)
        made, events = list_made(plane), list_audited(plane)
    assert len(made) == 1
    assert {event["objectRef"]["resource"] for event in events} == {"configmaps"}


# --- Starts that fail ------------------------------------------------------------------------------------------------


async def test_a_start_that_fails_shows_the_log_and_leaves_nothing(binaries: Binaries, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    plane = ControlPlane(binaries, directory=folder, api_server_arguments=["--no-such-flag"])
    with pytest.raises(ControlPlaneFailed) as caught:
        await plane.start()
    assert str(caught.value).startswith("kube-apiserver ended with code 1. The end of its log:\n")
    assert "unknown flag: --no-such-flag" in str(caught.value)
    assert plane.process_ids == {}
    assert not folder.exists()


async def test_a_folder_with_something_in_it_is_refused_and_left_alone(binaries: Binaries, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(ControlPlaneFailed, match="has to be absent or empty"):
        await ControlPlane(binaries, directory=tmp_path).start()
    assert (tmp_path / "precious").read_text() == "mine"


async def test_a_folder_that_cannot_be_made_is_named(binaries: Binaries, tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneFailed, match=r"absent/lab cannot be used: No such file or directory\."):
        await ControlPlane(binaries, directory=tmp_path / "absent" / "lab").start()


async def test_a_deep_folder_and_a_space_in_its_name_are_no_obstacle(binaries: Binaries, tmp_path: Path) -> None:
    folder = tmp_path / ("a deep folder " * 10).strip()
    async with ControlPlane(binaries, directory=folder) as plane:
        assert plane.directory == folder
        assert "default" in (await plane.kubectl("get", "namespaces")).stdout
        store = next(
            word for word in read_command(plane.process_ids["etcd"]) if word.startswith("--listen-client-urls=")
        )
        socket_folder = Path(store.removeprefix("--listen-client-urls=unix://")).parent
        assert socket_folder != folder
    assert not folder.exists()
    assert not socket_folder.exists()


async def test_a_controller_manager_is_started_and_stopped_with_the_rest(binaries: Binaries, tmp_path: Path) -> None:
    record = tmp_path / "arguments"
    fake = tmp_path / "kube-controller-manager"
    written, whole = shlex.quote(f"{record}.part"), shlex.quote(str(record))
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {written}\nmv {written} {whole}\nexec sleep 300\n')
    fake.chmod(0o755)
    async with ControlPlane(replace(binaries, kube_controller_manager=fake)) as plane:
        process = plane.process_ids["kube-controller-manager"]
        await until(record.exists, within_seconds=READY_SECONDS)
        assert "--secure-port=0" in record.read_text()
        assert f"--kubeconfig={plane.certificate_kubeconfig}" in record.read_text().splitlines()
        assert "namespace-controller" in record.read_text()
    assert not is_alive(process)


# --- The command, and every way to end it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """The command as a real process."""

    process: asyncio.subprocess.Process
    temporary: Path

    def find_descendants(self) -> dict[str, int]:
        """Its children by the name of their program."""
        # A child that is just becoming its command has none for a moment.
        commands = {child: read_command(child) for child in list_children(self.process.pid)}
        return {Path(command[0]).name: child for child, command in commands.items() if command}

    def has_api_server(self) -> bool:
        return "kube-apiserver" in self.find_descendants()

    async def read_kubeconfig(self) -> Path:
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_SECONDS):
            line = (await self.process.stdout.readline()).decode()
        word, assignment = shlex.split(line)
        assert word == "export"
        return Path(assignment.removeprefix("KUBECONFIG="))

    async def until_clean(self) -> None:
        """Nothing is left in the temporary folder."""
        await until(lambda: not any(self.temporary.iterdir()), within_seconds=READY_SECONDS)

    async def wait(self) -> int:
        async with asyncio.timeout(READY_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def command(temporary: Path, *arguments: str) -> AsyncIterator[Running]:
    """Run the command with a temporary folder of its own, in which nothing may stay."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(), "TMPDIR": str(temporary), "COLUMNS": "200"},
    )
    try:
        yield Running(process, temporary)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("death", "code"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -9)],
)
async def test_however_the_command_ends_nothing_stays(death: signal.Signals, code: int, tmp_path: Path) -> None:
    async with command(tmp_path) as running:
        kubeconfig = await running.read_kubeconfig()
        assert kubeconfig.is_relative_to(tmp_path)
        descendants = running.find_descendants()
        assert {"etcd", "kube-apiserver"} <= set(descendants)
        assert len(descendants) == 3
        running.process.send_signal(death)
        assert await running.wait() == code
        await until_gone(*descendants.values())
        await running.until_clean()


async def test_ctrl_c_before_it_is_ready_ends_it_as_well(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with command(folder) as running:
            await until(running.has_api_server, within_seconds=READY_SECONDS)
            descendants = running.find_descendants()
            running.process.send_signal(signal.SIGINT)
            code = await running.wait()
            await until_gone(*descendants.values())
            await running.until_clean()
            assert running.process.stdout is not None
            if not await running.process.stdout.read():
                break
        # It was ready in between: this process did not run for so long.
    assert code == 130


async def test_the_printed_kubeconfig_works_and_a_given_folder_goes_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "my lab"
    async with command(tmp_path, "--directory", str(folder)) as running:
        assert await running.read_kubeconfig() == folder / "kubeconfig.yaml"
        document = yaml.safe_load((folder / "kubeconfig.yaml").read_text())
        assert document["clusters"][0]["cluster"]["server"].startswith("https://127.0.0.1:")
        running.process.send_signal(signal.SIGINT)
        assert await running.wait() == 0
    assert not folder.exists()


@pytest.mark.parametrize("victim", ["etcd", "kube-apiserver"])
async def test_the_command_fails_when_a_part_of_it_ends_by_itself(victim: str, tmp_path: Path) -> None:
    async with command(tmp_path) as running:
        await running.read_kubeconfig()
        descendants = running.find_descendants()
        os.kill(descendants[victim], signal.SIGKILL)
        _, errors = await asyncio.wait_for(running.process.communicate(), READY_SECONDS)
        assert running.process.returncode == 1
        assert f"Error: {victim} was ended by SIGKILL. The end of its log:" in errors.decode()
        assert "Traceback" not in errors.decode()
        await until_gone(*descendants.values())


async def test_fetch_starts_nothing(tmp_path: Path, cluster: Cluster) -> None:
    async with command(tmp_path, "--fetch") as running:
        output, errors = await asyncio.wait_for(running.process.communicate(), READY_SECONDS)
        assert running.process.returncode == 0
        assert output == b""
        assert errors.decode().startswith("The binaries are there, from ")
        await running.until_clean()

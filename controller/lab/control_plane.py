"""
A real Kubernetes control plane on loopback: etcd and kube-apiserver, and kube-controller-manager when asked.

Problem: a fake API server agrees with its author about validation, patches, watches and rights. Promise: the real one,
ready in a few seconds, with TLS, RBAC and service account tokens, in one private folder; everything ends with us,
however we end. Nobody else can take its port: it is reserved before the start and stays so while the API server is
stopped, so that a client which comes back finds the same address.

Observed: etcd 3.7 and kube-apiserver 1.37.2 talk over a unix socket, so there is no second port and nobody else on the
machine reaches the store (2026-11, `test_the_store_is_reached_by_nobody_else`); ready 3 to 4 s after the start.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
import yaml

from controller.clock import Clock, SystemClock
from controller.errors import AgentTerminalError
from controller.lab.binaries import Binaries
from controller.lab.certificates import Authority, Pair, build_signing_key, render_private_key, render_public_key
from controller.lab.processes import Janitor, freeze_child, signal_group, start_child, stop_child

REMADE_AFTER: Final = timedelta(milliseconds=400)
READY_WITHIN: Final = timedelta(seconds=90)
"""A start takes 3 to 4 s on two idle cores; a machine that compiles beside it needs ten times that."""

STOP_WITHIN: Final = timedelta(seconds=5)
"""For each process; afterwards SIGKILL. Nothing of the store is kept, so nothing can be lost."""

KUBECTL_WITHIN: Final = timedelta(seconds=60)

POLL_INTERVAL: Final = timedelta(milliseconds=100)

REQUEST_WITHIN: Final = timedelta(seconds=30)

LOG_TAIL_LINES: Final = 12

UNIX_PATH_BYTES: Final = 107
"""Source: unix(7), sun_path without its NUL."""

CONTROLLERS: Final = ("clusterrole-aggregation-controller", "namespace-controller", "garbage-collector-controller")
"""What makes a difference here: aggregated roles get rules, namespaces finish, owned objects go with their owner."""

GROUP_VERSION_KIND: Final = "x-kubernetes-group-version-kind"

ADMINISTRATOR: Final = "lab-administrator"

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"


class ControlPlaneFailed(AgentTerminalError):
    """The control plane did not start, or ended by itself. The text has the tail of its log."""


class KubectlFailed(AgentTerminalError):
    """kubectl ended with another code than 0; the text has what it wrote to stderr."""


@dataclass(frozen=True)
class Completed:
    """What a command wrote, and how it ended."""

    stdout: str
    stderr: str
    code: int


@dataclass(frozen=True)
class _Files:
    """Where things lie in the folder of one run."""

    directory: Path

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    @property
    def server_certificate(self) -> Path:
        return self.directory / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.directory / "server.key"

    @property
    def tokens(self) -> Path:
        return self.directory / "tokens.csv"

    @property
    def signing_key(self) -> Path:
        return self.directory / "service-accounts.key"

    @property
    def verification_key(self) -> Path:
        return self.directory / "service-accounts.pub"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig.yaml"

    @property
    def certificate_kubeconfig(self) -> Path:
        return self.directory / "kubeconfig-certificate.yaml"

    @property
    def audit_policy(self) -> Path:
        return self.directory / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def store(self) -> Path:
        return self.directory / "etcd"

    @property
    def kubectl_cache(self) -> Path:
        return self.directory / "kubectl-cache"

    @property
    def service_accounts(self) -> Path:
        return self.directory / "service-accounts"

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


class ControlPlane:
    """
    One control plane, from `start` to `stop`; also usable as `async with`.

    Start it from a thread that lives as long as it should (see `controller.lab.processes`).

    Args:
        binaries: From `find_binaries`. With `kube_controller_manager` in it, that is started as well.
        directory: An absent or empty folder for keys, kubeconfig and logs; None takes a temporary one. What is in it
            goes at the end, and so does the folder.
        audit_policy: An audit policy as the API server reads it; events then go to `audit_log`.
        api_server_arguments: More arguments, after ours, so that they win.
        clock: For the lifetime of certificates and tokens.
    """

    def __init__(
        self,
        binaries: Binaries,
        *,
        directory: Path | None = None,
        audit_policy: Mapping[str, Any] | None = None,
        api_server_arguments: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._binaries = binaries
        self._wanted_directory = directory
        self._audit_policy = audit_policy
        self._api_server_arguments = tuple(api_server_arguments)
        self._clock = clock or SystemClock()
        self._janitor: Janitor | None = None
        self._reservation: socket.socket | None = None
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._files = _Files(Path())
        self._tls: ssl.SSLContext | None = None
        self._socket = Path()
        self.admin_token: str = secrets.token_urlsafe(24)
        self.url: str = ""

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    @property
    def directory(self) -> Path:
        """The folder of this run."""
        return self._files.directory

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with a token."""
        return self._files.kubeconfig

    @property
    def certificate_kubeconfig(self) -> Path:
        """The administrator's kubeconfig, with a client certificate."""
        return self._files.certificate_kubeconfig

    @property
    def ca_file(self) -> Path:
        """What a client has to trust, PEM."""
        return self._files.ca

    @property
    def audit_log(self) -> Path:
        """One JSON event a line, where an audit policy was given."""
        return self._files.audit_log

    @property
    def janitor(self) -> Janitor:
        """
        The one that ends our processes and then removes our folder; what else works in there is to be told to it.

        Two would not wait for each other: what one has yet to end makes anew what the other has removed.
        """
        if self._janitor is None:
            raise ValueError("The control plane was not started.")
        return self._janitor

    @property
    def process_ids(self) -> Mapping[str, int]:
        """The running processes by name."""
        return {name: child.pid for name, child in self._children.items() if child.returncode is None}

    def log_file(self, name: str) -> Path:
        """Where the log of `etcd`, `kube-apiserver` or `kube-controller-manager` is, or will be."""
        return self._files.log(name)

    def read_log(self, name: str) -> str:
        """Read one of these logs."""
        return self.log_file(name).read_text(errors="replace")

    async def start(self) -> None:
        """
        Start everything and return when the API server is ready.

        Raises:
            ControlPlaneFailed: It is not ready in time, or a process ended. Nothing is left then.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End every process, give the port back and remove the folder; stopping twice is fine."""
        try:
            for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
                await self._stop_child(name)
        finally:
            if self._reservation is not None:
                self._reservation.close()
            if self._janitor is not None:
                await self._janitor.close()

    async def wait_ended(self) -> str:
        """Wait until a process ends that nobody stopped, and say which, with the tail of its log."""
        while True:
            for name, child in self._children.items():
                if child.returncode is not None:
                    return self._describe_end(name, child.returncode)
            await asyncio.sleep(POLL_INTERVAL.total_seconds())

    async def stop_api_server(self, *, gracefully: bool = True) -> None:
        """Make an outage: connections are refused until `start_api_server`. The store and the port stay."""
        await self._stop_child("kube-apiserver", patience=STOP_WITHIN if gracefully else timedelta(0))

    async def start_api_server(self) -> None:
        """Start the API server on the same port and store, and return when it is ready."""
        if "kube-apiserver" in self._children:
            raise ValueError("The API server runs already.")
        await self._start_child("kube-apiserver", self._build_api_server_command())
        await self._wait_ready()

    async def restart_api_server(self, *, gracefully: bool = True) -> None:
        """End the API server and start it again on the same port and store."""
        await self.stop_api_server(gracefully=gracefully)
        await self.start_api_server()

    async def hang(self) -> None:
        """Freeze the API server: from now on it accepts connections and answers nothing, until `resume`."""
        await freeze_child(self._children["kube-apiserver"])

    def resume(self) -> None:
        """Let a frozen API server go on."""
        signal_group(self._children["kube-apiserver"], signal.SIGCONT)

    async def request(
        self, method: str, path: str, *, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Send one request as the administrator; return the status and the answer, a JSON object read as such."""
        headers = {"Authorization": f"Bearer {self.admin_token}", "Content-Type": content_type}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_WITHIN.total_seconds())) as session,
            session.request(
                method,
                f"{self.url}{path}",
                data=None if body is None else json.dumps(body),
                headers=headers,
                ssl=self._tls or False,
                allow_redirects=False,
            ) as answer,
        ):
            text = await answer.text()
            # Not by the content type: the index of OpenAPI documents is JSON and says text/plain.
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def service_account_kubeconfig(
        self, namespace: str, name: str, *, expire_seconds: int = 3600, audiences: Sequence[str] = ()
    ) -> Path:
        """
        Make the service account if it is absent, ask for a token, and write a kubeconfig with it.

        The namespace has to exist. Rights come from RBAC objects, which are the caller's.
        """
        token = await self.service_account_token(namespace, name, expire_seconds=expire_seconds, audiences=audiences)
        self._files.service_accounts.mkdir(mode=0o700, exist_ok=True)
        path = self._files.service_accounts / f"{namespace}.{name}.yaml"
        self._write_kubeconfig(path, {"token": token}, namespace=namespace)
        return path

    async def service_account_token(
        self, namespace: str, name: str, *, expire_seconds: int = 3600, audiences: Sequence[str] = ()
    ) -> str:
        """Make the service account if it is absent, and ask the API server for a token (TokenRequest)."""
        accounts = f"/api/v1/namespaces/{quote(namespace)}/serviceaccounts"
        status, answer = await self.request("POST", accounts, body={"metadata": {"name": name}})
        if status not in {201, 409}:
            raise ControlPlaneFailed(f"The service account {namespace}/{name} was not made: {_explain(answer)}")
        status, answer = await self.request(
            "POST",
            f"{accounts}/{quote(name)}/token",
            body={"spec": {"expirationSeconds": expire_seconds, "audiences": list(audiences)}},
        )
        if status != 201:
            raise ControlPlaneFailed(f"The service account {namespace}/{name} got no token: {_explain(answer)}")
        return str(answer["status"]["token"])

    async def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        within: timedelta = KUBECTL_WITHIN,
    ) -> Completed:
        """
        Run kubectl as the administrator, or as the kubeconfig says.

        Raises:
            KubectlFailed: It ended with another code than 0 and `check` is set, or it did not end in time.
        """
        command = [
            str(self._binaries.kubectl),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self._files.kubectl_cache}",
            *arguments,
        ]
        child = await start_child(
            command,
            # It writes into our folder: it has to end before that is removed.
            janitor=self._janitor,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # Only the verb: later words may carry secrets, as `create secret --from-literal` does.
        verb = arguments[0] if arguments else "kubectl"
        try:
            async with asyncio.timeout(within.total_seconds()):
                output, errors = await child.communicate(None if stdin is None else stdin.encode())
        except TimeoutError:
            raise KubectlFailed(f"kubectl {verb} did not end within {within.total_seconds():g} s.") from None
        finally:
            await stop_child(child, patience=timedelta(0))
            if self._janitor is not None:
                self._janitor.forget(child.pid)
        done = Completed(output.decode(errors="replace"), errors.decode(errors="replace"), child.returncode or 0)
        if check and done.code != 0:
            raise KubectlFailed(f"kubectl {verb} ended with {done.code}: {done.stderr.strip()}")
        return done

    async def install_crds(self, path: Path) -> None:
        """Apply a file or a folder of CRDs, and return when each is established and its kind answers."""
        applied = await self.kubectl("apply", "--server-side", "--filename", str(path), "--output", "json")
        document = json.loads(applied.stdout)
        for crd in document["items"] if document["kind"] == "List" else [document]:
            name, spec = crd["metadata"]["name"], crd["spec"]
            # Before the first condition is written, kubectl's wait fails instead of waiting.
            await self._wait_until(partial(self._has_conditions, name), f"{name} has no condition")
            await self.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")
            for version in spec["versions"]:
                if version["served"]:
                    group = f"apis/{spec['group']}/{version['name']}"
                    served = partial(self._is_answered, f"/{group}/{spec['names']['plural']}?limit=1")
                    await self._wait_until(served, f"{name} is not served")
                    # What kubectl explain reads trails by up to seconds.
                    described = partial(self._is_described, group, spec["names"]["kind"], spec["names"]["plural"])
                    # It is made a second time once the condition is written, and may be away meanwhile.
                    for _ in range(2):
                        await self._wait_until(described, f"{name} is not in the API server's OpenAPI documents")
                        await asyncio.sleep(REMADE_AFTER.total_seconds())

    async def _start(self) -> None:
        self._janitor = Janitor()
        self._files = _Files(self._prepare_directory(self._janitor))
        self._socket = self._prepare_socket(self._janitor)
        self._reservation = _reserve_port()
        port = self._reservation.getsockname()[1]
        self.url = f"https://127.0.0.1:{port}"
        self._write_files()
        self._tls = ssl.create_default_context(cafile=str(self._files.ca))
        await self._start_child("etcd", self._build_etcd_command())
        await self._start_child("kube-apiserver", self._build_api_server_command())
        await self._wait_ready()
        # The API server makes this namespace shortly after it says that it is ready.
        await self._wait_until(
            partial(self._is_answered, "/api/v1/namespaces/default"), "The namespace `default` is not there"
        )
        if self._binaries.kube_controller_manager is not None:
            command = self._build_controller_manager_command(self._binaries.kube_controller_manager)
            await self._start_child("kube-controller-manager", command)

    def _prepare_directory(self, janitor: Janitor) -> Path:
        wanted = self._wanted_directory
        if wanted is None:
            return janitor.make_folder("agentterminal-control-plane-")
        directory = wanted.resolve()
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            if any(directory.iterdir()):
                raise ControlPlaneFailed(f"The folder {directory} has to be absent or empty: it is removed at the end.")
            directory.chmod(0o700)
        except OSError as error:
            raise ControlPlaneFailed(f"The folder {directory} cannot be used: {error.strerror}.") from error
        janitor.remove(directory)
        return directory

    def _prepare_socket(self, janitor: Janitor) -> Path:
        """Choose a path for the store's socket that the kernel accepts."""
        path = self._files.directory / "etcd.sock"
        if len(os.fsencode(path)) <= UNIX_PATH_BYTES:
            return path
        # A long TMPDIR; this one is short everywhere.
        return janitor.make_folder("agentterminal-", within=Path("/tmp")) / "etcd.sock"  # noqa: S108 - as above

    def _write_files(self) -> None:
        files = self._files
        authority = Authority(now=self._clock.now())
        server = authority.issue_server("127.0.0.1", "localhost")
        signing = build_signing_key()
        _write_private(files.ca, authority.certificate)
        _write_private(files.server_certificate, server.certificate)
        _write_private(files.server_key, server.key)
        _write_private(files.tokens, f'{self.admin_token},{ADMINISTRATOR},{ADMINISTRATOR},"system:masters"\n'.encode())
        _write_private(files.signing_key, render_private_key(signing))
        _write_private(files.verification_key, render_public_key(signing))
        if self._audit_policy is not None:
            _write_private(files.audit_policy, yaml.safe_dump(dict(self._audit_policy)).encode())
        self._write_kubeconfig(files.kubeconfig, {"token": self.admin_token})
        client = authority.issue_client(ADMINISTRATOR, "system:masters")
        self._write_kubeconfig(files.certificate_kubeconfig, _render_client(client))

    def _write_kubeconfig(self, path: Path, user: Mapping[str, str], *, namespace: str = "default") -> None:
        cluster = {"server": self.url, "certificate-authority-data": b64encode(self._files.ca.read_bytes()).decode()}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": cluster}],
            "users": [{"name": "lab", "user": dict(user)}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": namespace}}],
            "current-context": "lab",
        }
        _write_private(path, yaml.safe_dump(document, sort_keys=False).encode())

    def _build_etcd_command(self) -> list[str]:
        clients, peers = f"unix://{self._socket}", f"unix://{self._socket}.peer"
        return [
            str(self._binaries.etcd),
            f"--data-dir={self._files.store}",
            # The store is thrown away: nothing is gained by waiting for the disk.
            "--unsafe-no-fsync",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--logger=zap",
            "--log-level=warn",
        ]

    def _build_api_server_command(self) -> list[str]:
        files = self._files
        audit = []
        if self._audit_policy is not None:
            audit = [
                f"--audit-policy-file={files.audit_policy}",
                f"--audit-log-path={files.audit_log}",
                # The file is read while it grows: no batching, and a rotation (MB) that never comes.
                "--audit-log-mode=blocking",
                "--audit-log-maxsize=100000",
            ]
        return [
            str(self._binaries.kube_apiserver),
            f"--etcd-servers=unix://{self._socket}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.url.rsplit(':', 1)[1]}",
            # We hold the port with a socket that never listens; this lets the server bind beside it.
            "--permit-port-sharing=true",
            f"--tls-cert-file={files.server_certificate}",
            f"--tls-private-key-file={files.server_key}",
            f"--client-ca-file={files.ca}",
            f"--token-auth-file={files.tokens}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-signing-key-file={files.signing_key}",
            f"--service-account-key-file={files.verification_key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            # An address on loopback is no valid endpoint.
            "--endpoint-reconciler-type=none",
            # Nobody makes the account `default` here, and pods without it would be refused.
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged=true",
            *audit,
            *self._api_server_arguments,
        ]

    def _build_controller_manager_command(self, binary: Path) -> list[str]:
        return [
            str(binary),
            f"--kubeconfig={self._files.certificate_kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false",
            # It serves nothing that anybody here asks for.
            "--secure-port=0",
        ]

    async def _start_child(self, name: str, command: Sequence[str]) -> None:
        with self._files.log(name).open("ab") as log:
            child = await start_child(
                command,
                janitor=self._janitor,
                stdout=log,
                stderr=subprocess.STDOUT,
                working_directory=self._files.directory,
            )
        self._children[name] = child

    async def _stop_child(self, name: str, *, patience: timedelta = STOP_WITHIN) -> None:
        child = self._children.pop(name, None)
        if child is None:
            return
        await stop_child(child, polite=signal.SIGTERM if patience else signal.SIGKILL, patience=patience)
        if self._janitor is not None:
            self._janitor.forget(child.pid)

    async def _wait_ready(self) -> None:
        await self._wait_until(partial(self._is_answered, "/readyz"), "The API server is not ready")

    async def _wait_until(self, is_true: Callable[[], Awaitable[bool]], failure: str) -> None:
        """Wait within the bound of a start, and only while every process lives."""
        try:
            async with asyncio.timeout(READY_WITHIN.total_seconds()):
                while not await is_true():
                    self._check_children()
                    await asyncio.sleep(POLL_INTERVAL.total_seconds())
        except TimeoutError:
            raise ControlPlaneFailed(
                f"{failure} after {READY_WITHIN.total_seconds():g} s."
                f" The end of the API server's log:\n{self._tail('kube-apiserver')}"
            ) from None

    async def _has_conditions(self, crd: str) -> bool:
        """Tell whether the server has begun to say how it stands with a CRD."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            _, found = await self.request("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd}")
            return isinstance(found, dict) and bool((found.get("status") or {}).get("conditions"))
        return False

    async def _is_answered(self, path: str) -> bool:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            status, _ = await self.request("GET", path)
            return status == 200
        return False

    async def _is_described(self, group: str, kind: str, plural: str) -> bool:
        """Tell whether the OpenAPI index names the group version, and its document the kind and where it is found."""
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            _, index = await self.request("GET", "/openapi/v3")
            entry = index["paths"].get(group) if isinstance(index, dict) and "paths" in index else None
            if entry is not None:
                _, document = await self.request("GET", entry["serverRelativeURL"])
                if not isinstance(document, dict):
                    # While the server makes it anew it answers with a sentence.
                    return False
                # The document is made in steps: a kind may stand in it before the paths that lead to it do.
                schemas = document.get("components", {}).get("schemas", {}).values()
                is_kind = any(of["kind"] == kind for schema in schemas for of in schema.get(GROUP_VERSION_KIND, []))
                return is_kind and any(path.endswith(f"/{plural}") for path in document.get("paths", {}))
        return False

    def _check_children(self) -> None:
        for name, child in self._children.items():
            if child.returncode is not None:
                raise ControlPlaneFailed(self._describe_end(name, child.returncode))

    def _describe_end(self, name: str, code: int) -> str:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"{name} {how}. The end of its log:\n{self._tail(name)}"

    def _tail(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return "\n".join(self.read_log(name).splitlines()[-LOG_TAIL_LINES:])
        return "(no log)"


def _reserve_port() -> socket.socket:
    """
    Take a free port on loopback and keep it, without listening.

    A port that is looked for, given back and used later may be somebody else's by then. While this socket is open,
    only a process of this user that asks for sharing (SO_REUSEPORT) can bind the port, and connections are refused
    until one listens.
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation.bind(("127.0.0.1", 0))
    except BaseException:
        reservation.close()
        raise
    return reservation


def _render_client(pair: Pair) -> dict[str, str]:
    return {
        "client-certificate-data": b64encode(pair.certificate).decode(),
        "client-key-data": b64encode(pair.key).decode(),
    }


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    beside.replace(path)


def _explain(answer: object) -> str:
    """Take the server's sentence out of a Status."""
    return str(answer.get("message", "no reason given")) if isinstance(answer, dict) else "no reason given"

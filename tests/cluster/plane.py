"""
One control plane for all tests of a worker, for tests with and without a loop of their own.

It runs in a thread and a loop that last as long as the worker: a test's own loop ends with the test, and a child's
death signal comes when the thread that started it ends.
"""

import asyncio
import json
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from controller.lab.binaries import build_progress, find_binaries, read_binaries_settings
from controller.lab.control_plane import KUBECTL_WITHIN, Completed, ControlPlane
from controller.settings import environment, read_cache_folder
from tests.support.process import await_true
from tests.support.secrecy import Kind, learn, look, look_at_lines

CRD = Path(__file__).parents[2] / "crds" / "agentterminals.agentterminal.dev.yaml"

Answer = TypeVar("Answer")

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # It asks itself for much, all the time.
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*"]},
        {"level": "Metadata"},
    ],
}
"""Who asked for what at which address, since an address may show a secret; never a body."""

CALL_WITHIN_SECONDS = 110
"""Less than the bound of a test, so that the failure is told here, with its place."""


def prepare_binaries() -> None:
    """Find or make the binaries now, with progress, outside of any test's bound."""
    settings = read_binaries_settings(environment(), cache=read_cache_folder(environment()))
    asyncio.run(find_binaries(settings, build_progress()))


class Cluster:
    """
    The control plane as a blocking object; from a coroutine call the methods through `asyncio.to_thread`.

    `plane` is the real one, whose coroutines belong to another loop: use `call` for them.
    """

    def __init__(self, audit_policy: Mapping[str, Any] = AUDIT_POLICY) -> None:
        self._looked_at = dict[Path, int]()
        self._looking = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
        self._thread.start()
        try:
            self.plane = self.call(self._start(audit_policy))
        except BaseException:
            self._end_thread()
            raise
        learn(Kind.ADMINISTRATOR, self.plane.admin_token)

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine of the control plane and return its answer."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CALL_WITHIN_SECONDS)
        except (TimeoutError, CancelledError):
            future.cancel()
            raise

    def close(self) -> None:
        """End the control plane and the loop."""
        try:
            self.look_at_logs()
            self.call(self.plane.stop())
        finally:
            self._end_thread()

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self.plane.url

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.plane.kubeconfig

    @property
    def ca_file(self) -> Path:
        """What a client has to trust."""
        return self.plane.ca_file

    @property
    def admin_token(self) -> str:
        """The administrator's token."""
        return self.plane.admin_token

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        check: bool = True,
        kubeconfig: Path | None = None,
        within: timedelta = KUBECTL_WITHIN,
    ) -> Completed:
        """Run kubectl as the administrator, or as the kubeconfig says."""
        return self.call(self.plane.kubectl(*arguments, stdin=stdin, check=check, kubeconfig=kubeconfig, within=within))

    def request(
        self, method: str, path: str, *, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Send one request as the administrator; return the status and the answer."""
        return self.call(self.plane.request(method, path, body=body, content_type=content_type))

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Make a service account and a kubeconfig with a token of it."""
        return self.call(self.plane.service_account_kubeconfig(namespace, name))

    def await_right(self, namespace: str, account: str, right: str) -> None:
        """Wait until an account may do something to terminals: the authorizer hears of a role a moment later."""
        asked = {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "resourceAttributes": {
                "namespace": namespace,
                "group": "agentterminal.dev",
                "resource": "agentterminals",
                "subresource": right,
                "verb": "create",
            },
        }

        def is_allowed() -> bool:
            status, answer = self.request(
                "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body={"spec": asked}
            )
            assert status == 201, answer
            return bool(answer["status"]["allowed"])

        await_true(is_allowed, f"{account} to have the right {right}")

    def restart_api_server(self) -> None:
        """End the API server and start it again on the same port and store."""
        self.call(self.plane.restart_api_server())

    def hang(self) -> None:
        """See `ControlPlane.hang`."""
        self.call(self.plane.hang())

    def resume(self) -> None:
        """See `ControlPlane.resume`."""
        self.plane.resume()

    def empty_namespace(self, namespace: str) -> None:
        """
        Delete all terminals of a namespace for good, finalizers or not, so that no later operator sees them.

        What was written about them is looked through before: no secret may stand there.
        """
        terminals = f"/apis/agentterminal.dev/v1alpha1/namespaces/{namespace}/agentterminals"
        status, answer = self.request("GET", terminals)
        if status != 200:
            return
        self.look_at_objects(namespace, answer["items"])
        self.look_at_logs()
        for terminal in answer["items"]:
            path = f"{terminals}/{terminal['metadata']['name']}"
            patch = {"metadata": {"finalizers": None}}
            self.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
            self.request("DELETE", path, body={"gracePeriodSeconds": 0})

    def look_at_objects(self, namespace: str, terminals: Sequence[Mapping[str, Any]]) -> None:
        """Look through what processes wrote: terminals without what their owners wrote, and Events and Leases."""
        for terminal in terminals:
            for part, written in _list_parts(terminal):
                look(f"The {part} of an AgentTerminal", json.dumps(written))
        for group, kind in (("events.k8s.io/v1", "events"), ("coordination.k8s.io/v1", "leases")):
            _, listed = self.request("GET", f"/apis/{group}/namespaces/{namespace}/{kind}")
            look(f"One of the {kind} of a namespace", json.dumps(listed))

    def look_at_logs(self) -> None:
        """Look through what the API server and its store logged since the last look, each request's address in it."""
        logs = {f"The log of {name}": self.plane.log_file(name) for name in self.plane.process_ids}
        logs["The API server's audit log"] = self.plane.audit_log
        with self._looking:
            for place, log in logs.items():
                self._looked_at[log] = look_at_lines(place, log, since=self._looked_at.get(log, 0))

    async def _start(self, audit_policy: Mapping[str, Any]) -> ControlPlane:
        settings = read_binaries_settings(environment(), cache=read_cache_folder(environment()))
        binaries = await find_binaries(settings, build_progress())
        plane = ControlPlane(binaries, audit_policy=audit_policy)
        await plane.start()
        try:
            await plane.install_crds(CRD)
        except BaseException:
            await plane.stop()
            raise
        return plane

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()


def _list_parts(terminal: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All parts of an object but its spec, and the copy of it that `kubectl apply` keeps."""
    metadata = dict(terminal["metadata"])
    annotations = dict(metadata.pop("annotations", {}))
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    yield "managedFields", metadata.pop("managedFields", None)
    yield "annotations", annotations
    yield "metadata", metadata
    yield from ((part, terminal[part]) for part in terminal.keys() - {"metadata", "spec"})

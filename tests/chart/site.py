"""
The cluster into which the chart is installed: a control plane with controllers, other people's kinds, and no kind of
ours.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from controller.api.names import GROUP
from controller.lab.binaries import Binaries, build_progress, find_binaries, read_binaries_settings
from controller.lab.control_plane import ControlPlane
from controller.settings import environment, read_cache_folder
from tests.cluster.auditing import AuditedCluster

FOREIGN_KINDS: Final = Path(__file__).parent / "crds"
REQUEST_WITHIN_SECONDS: Final = 30
NAMESPACES: Final = ("agents", "team-a", "team-b")


async def _find() -> Binaries:
    settings = read_binaries_settings(environment(), cache=read_cache_folder(environment()))
    return await find_binaries(settings, build_progress(), controller_manager=True)


def prepare_site() -> None:
    """Find or make the binaries now, with progress, outside of any test's bound."""
    asyncio.run(_find())


class Site(AuditedCluster):
    """
    A cluster with controllers, the namespaces of the value files, and the kinds that switches ask for.

    Who asked it for what stands in its audit log.
    """

    def __init__(self) -> None:
        super().__init__()
        for name in NAMESPACES:
            self.create_namespace(name)

    def create_namespace(self, name: str) -> None:
        """Make a namespace that admits restricted pods only, and warns of whatever would make others."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        body = {"metadata": {"name": name, "labels": labels}}
        status, answer = self.request("POST", "/api/v1/namespaces", body=body)
        assert status == 201, answer

    def request_as(
        self, token: str, method: str, path: str, *, body: object = None, content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Send one request with somebody's token; return the status and the answer."""
        request = Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": content_type},
        )
        trusted = ssl.create_default_context(cafile=str(self.ca_file))
        try:
            with urlopen(request, timeout=REQUEST_WITHIN_SECONDS, context=trusted) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def token(self, namespace: str, account: str) -> str:
        """Give a token of a service account, which is made where it is absent."""
        return self.call(self.plane.service_account_token(namespace, account))

    def may(self, user: str, verb: str, resource: str, *, namespace: str, name: str = "") -> bool:
        """Ask whether somebody may do something with our kind; `resource` may have a subresource behind a slash."""
        kind, _, part = resource.partition("/")
        what = {
            "group": GROUP,
            "resource": kind,
            "subresource": part,
            "verb": verb,
            "namespace": namespace,
            "name": name,
        }
        body = {"spec": {"user": user, "resourceAttributes": what}}
        status, answer = self.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    async def _start(self, audit_policy: Mapping[str, Any]) -> ControlPlane:
        plane = ControlPlane(await _find(), audit_policy=audit_policy)
        await plane.start()
        try:
            await plane.install_crds(FOREIGN_KINDS)
        except BaseException:
            await plane.stop()
            raise
        return plane

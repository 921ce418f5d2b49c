"""A control plane of one's own that writes down who asked it for what."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster.plane import CRD, Cluster

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Never the body of a Secret.
        {"level": "Request", "resources": [{"group": "agentterminal.dev"}]},
        {"level": "Metadata"},
    ],
}

REPLACE_TIMES = 10


@dataclass(frozen=True)
class Asked:
    """One request of somebody, as the API server judged it."""

    group: str
    resource: str
    verb: str
    namespace: str
    name: str
    uri: str
    code: int
    body: Any
    is_end: bool
    """Whether this tells the end of a request whose beginning was told as well: that of a watch."""

    @property
    def right(self) -> tuple[str, str, str]:
        """The right that it needs: group, resource, verb."""
        return self.group, self.resource, self.verb


class AuditedCluster(Cluster):
    """A `Cluster` with an audit log. Its CRD may be changed by tests, which put it right again."""

    def __init__(self) -> None:
        super().__init__(POLICY)
        self._log = self.plane.audit_log

    def mark_audit(self) -> int:
        """Give a place in the log, so that what others asked for before it can be left out."""
        return len(self._read_lines())

    def read_audit(self, user: str, *, since: int = 0, until: int | None = None) -> Iterator[Asked]:
        """Read what a user has asked for so far, or between two places in the log."""
        for line in self._read_lines()[since:until]:
            entry = json.loads(line)
            if entry["user"].get("username") == user:
                yield _read_entry(entry)

    def _read_lines(self) -> list[str]:
        """Read the lines that are there in full: the API server may be in the middle of the next one."""
        return self._log.read_text().split("\n")[:-1]

    @contextmanager
    def with_crd(self, crd: dict[str, Any]) -> Iterator[None]:
        """Have another CRD of our kind installed for a while."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/agentterminals.agentterminal.dev"
        _, ours = self.request("GET", path)
        self._replace(path, crd)
        try:
            yield
        finally:
            self._replace(path, ours)

    def install(self) -> None:
        """Install our CRD, and return when it is served."""
        self.call(self.plane.install_crds(CRD))

    def _replace(self, path: str, crd: dict[str, Any]) -> None:
        for _ in range(REPLACE_TIMES):
            _, installed = self.request("GET", path)
            status, answer = self.request("PUT", path, body={**installed, "spec": crd["spec"]})
            # The server itself writes the status at any time.
            if status != 409:
                break
        assert status == 200, answer


def _read_entry(entry: dict[str, Any]) -> Asked:
    ref = entry.get("objectRef", {})
    subresource = ref.get("subresource")
    return Asked(
        group=ref.get("apiGroup", ""),
        resource="/".join(part for part in (ref.get("resource", ""), subresource) if part),
        verb=entry["verb"],
        namespace=ref.get("namespace", ""),
        name=ref.get("name", ""),
        uri=entry["requestURI"],
        code=entry.get("responseStatus", {}).get("code", 0),
        body=entry.get("requestObject"),
        is_end=entry["verb"] == "watch" and entry["stage"] == "ResponseComplete",
    )

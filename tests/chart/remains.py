"""What there is in a cluster, so that it can be said what an installation leaves behind."""

from collections.abc import Iterator
from typing import Any, Final

from tests.chart.site import Site
from tests.support.process import await_true

OF_THE_MOMENT: Final = {"events", "componentstatuses"}
"""What happened, and what is asked for at that moment: nothing that stays."""
OF_THE_API_SERVER: Final = ("leases", "kube-system")
"""It renews a Lease of its own there."""
MADE_AT_THE_START: Final = {
    *(f"/api/v1/namespaces /{name}" for name in ("default", "kube-system", "kube-public", "kube-node-lease")),
    "/api/v1/configmaps kube-system/extension-apiserver-authentication",
    "/api/v1/configmaps kube-system/kube-apiserver-legacy-service-account-token-tracking",
}
"""What an API server makes beside answering."""


def list_objects(site: Site) -> set[str]:
    """Name every object of every kind that the API server has, as `group/kind namespace/name`."""
    return {name for group in _list_versions(site) for name in _list_group(site, group)}


def list_settled_objects(site: Site) -> set[str]:
    """Name them once a control plane that may have just started has made all of its own."""
    found: set[str] = set()

    def is_settled() -> bool:
        nonlocal found
        before, found = found, list_objects(site)
        return found >= MADE_AT_THE_START and found == before

    await_true(is_settled, "the cluster to rest", poll_seconds=0.5)
    return found


def _list_versions(site: Site) -> Iterator[str]:
    yield "/api/v1"
    for group in _ask(site, "/apis")["groups"]:
        yield f"/apis/{group['preferredVersion']['groupVersion']}"


def _list_group(site: Site, group: str) -> Iterator[str]:
    for resource in _ask(site, group)["resources"]:
        if "list" not in resource["verbs"] or resource["name"] in OF_THE_MOMENT:
            continue
        for found in _ask(site, f"{group}/{resource['name']}")["items"]:
            namespace = found["metadata"].get("namespace", "")
            if (resource["name"], namespace) != OF_THE_API_SERVER:
                yield f"{group}/{resource['name']} {namespace}/{found['metadata']['name']}"


def _ask(site: Site, path: str) -> Any:
    status, answer = site.request("GET", path)
    if status == 404:
        # A kind that has just gone is named for a moment longer.
        return {"resources": [], "items": []}
    assert status == 200, (path, answer)
    return answer

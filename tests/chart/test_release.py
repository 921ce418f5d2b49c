"""A release from its beginning to its end: installed, upgraded, uninstalled, and what stays."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.crd import render_crd
from controller.api.names import API_VERSION, KIND, PLURAL
from tests.chart.helm import VALUES, Helm
from tests.chart.installing import CRD_PATH, RELEASE, install, remove_kind, uninstall
from tests.chart.site import Site
from tests.house.chart_page import CHART

TERMINALS = f"/apis/{API_VERSION}/namespaces/team-a/{PLURAL}"
EVERY_KIND = (
    "deployments,services,serviceaccounts,poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,"
    "clusterrolebindings,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "servicemonitors,podmonitors,prometheusrules,certificates,configmaps"
)


@pytest.fixture(autouse=True)
def clean(site: Site) -> Iterator[None]:
    """Whatever a test leaves of the kind goes with it."""
    yield
    remove_kind(site)


def list_release(site: Site) -> list[str]:
    """Everything that bears the release's label, but for the kind."""
    label = f"--selector=app.kubernetes.io/instance={RELEASE}"
    found = site.kubectl("get", EVERY_KIND, "--all-namespaces", label, "--output=name").stdout
    return sorted(found.split())


def write_older_chart(folder: Path) -> Path:
    """A copy of the chart as an earlier version was: its kind knows no `suspend`."""
    chart = Path(shutil.copytree(CHART, folder / RELEASE))
    crd = copy.deepcopy(render_crd())
    del read_spec(crd)["suspend"]
    (chart / "files/crd.yaml").write_text(yaml.safe_dump(dict(crd)))
    return chart


def read_spec(crd: Any) -> dict[str, Any]:
    fields: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return fields


def create_terminal(site: Site) -> None:
    spec = {"spriteName": "box", "sessionId": "812"}
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "one"}, "spec": spec}
    status, answer = site.request("POST", TERMINALS, body=body)
    assert status == 201, answer


def test_an_upgrade_brings_the_kind_and_the_values_and_keeps_the_objects(
    helm: Helm, site: Site, tmp_path: Path
) -> None:
    install(helm, site, chart=write_older_chart(tmp_path))
    assert "suspend" not in read_spec(site.request("GET", CRD_PATH)[1])
    create_terminal(site)
    before = list_release(site)

    install(helm, site, "--set=replicas=3", f"--values={VALUES / 'gateway-with-a-secret.yaml'}")

    assert "suspend" in read_spec(site.request("GET", CRD_PATH)[1])
    assert site.request("GET", f"{TERMINALS}/one")[0] == 200
    _, deployment = site.request("GET", f"/apis/apps/v1/namespaces/agents/deployments/{RELEASE}")
    assert deployment["spec"]["replicas"] == 3
    assert f"deployment.apps/{RELEASE}-gateway" in set(list_release(site)) - set(before)

    # And back: what the gateway had goes with its switch. Without a value Helm takes those of the release before.
    install(helm, site, "--reset-values")
    assert list_release(site) == before

    uninstall(helm, site)
    assert list_release(site) == []
    assert site.request("GET", CRD_PATH)[0] == 200, "crds.keep is true by default."
    assert site.request("GET", f"{TERMINALS}/one")[0] == 200

    # A later installation takes the kind, which is still labelled as its own, and the objects again.
    install(helm, site)
    assert site.request("GET", f"{TERMINALS}/one")[0] == 200
    uninstall(helm, site)


def test_without_keep_the_kind_goes_with_the_release(helm: Helm, site: Site) -> None:
    install(helm, site, "--set=crds.keep=false")

    uninstall(helm, site)

    assert list_release(site) == []
    _, crd = site.request("GET", CRD_PATH)
    assert crd.get("metadata", {}).get("deletionTimestamp") or crd["reason"] == "NotFound"


def test_a_kind_that_kubectl_applied_is_taken_over_when_it_is_said(helm: Helm, site: Site) -> None:
    site.kubectl("apply", "--server-side", "--filename", str(CHART.parents[1] / "crds"))

    words = ("upgrade", "--install", RELEASE, str(CHART), "--namespace=agents")
    refused = helm.run(*words, check=False, kubeconfig=site.kubeconfig)
    assert "invalid ownership metadata" in refused.stderr

    install(helm, site, "--take-ownership")
    _, crd = site.request("GET", CRD_PATH)
    assert crd["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    uninstall(helm, site)


def test_everything_at_once_is_installed_and_nothing_of_it_stays(helm: Helm, site: Site) -> None:
    files = ("hardened", "gateway-with-cert-manager", "watched", "own-token", "two-teams")
    tls = ("--set=gateway.tls.plain=false", "--set=gateway.tls.secretName=")

    install(helm, site, *(f"--values={VALUES / name}.yaml" for name in files), *tls)

    kinds = {name.split("/")[0].split(".")[0] for name in list_release(site)}
    left_out = {"podmonitor"}
    assert (
        kinds
        == {
            kind.removesuffix("s").replace("policie", "policy").replace("classe", "class")
            for kind in EVERY_KIND.split(",")
        }
        - left_out
    )
    uninstall(helm, site)
    assert list_release(site) == []

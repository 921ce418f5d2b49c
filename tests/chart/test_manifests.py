"""What is installed without Helm, and the objects that people copy: all of it applied to a real API server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.names import API_VERSION, CRD_NAME, PLURAL
from tests.chart.base import BASE, render_base
from tests.chart.helm import Document, Helm
from tests.chart.installing import await_kind, remove_kind
from tests.chart.site import Site
from tests.house.cases import ROOT

CONFIG = ROOT / "config"
EXAMPLES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "examples/more").glob("*.yaml")])
GITOPS = {
    path.stem: list(yaml.safe_load_all(path.read_text())) for path in sorted((ROOT / "examples/gitops").glob("*.yaml"))
}


# --- kustomize --------------------------------------------------------------------------------------------------------


def test_the_base_is_what_the_chart_renders(helm: Helm) -> None:
    assert BASE.read_text() == render_base(helm), "Run `make config`."


@pytest.mark.parametrize("folder", ["crd", "overlays/trial", "overlays/production"])
def test_kubectl_applies_every_folder(site: Site, folder: str) -> None:
    before = set(list_everything(site))

    applied = site.kubectl("apply", "--server-side", f"--kustomize={CONFIG / folder}", "--validate=strict")

    assert "customresourcedefinition" in applied.stdout
    assert applied.stderr == ""
    again = site.kubectl("apply", "--server-side", f"--kustomize={CONFIG / folder}", "--validate=strict")
    assert len(again.stdout.splitlines()) == len(applied.stdout.splitlines())
    await_kind(site)
    # The namespace takes along what is in it, whether kubectl comes to that sooner or later.
    site.kubectl("delete", f"--kustomize={CONFIG / folder}", "--ignore-not-found", "--timeout=60s")
    assert set(list_everything(site)) == before


def list_everything(site: Site) -> list[str]:
    kinds = "namespaces,deployments,roles,rolebindings,clusterroles,clusterrolebindings,networkpolicies,crds"
    return site.kubectl("get", kinds, "--all-namespaces", "--output=name").stdout.split()


def build(site: Site, overlay: str) -> list[Document]:
    return list(yaml.safe_load_all(site.kubectl("kustomize", str(CONFIG / "overlays" / overlay)).stdout))


def read_deployment(documents: list[Document]) -> Any:
    (found,) = [document for document in documents if document["kind"] == "Deployment"]
    return found["spec"]


def test_an_overlay_changes_what_it_says(site: Site) -> None:
    trial, production = (read_deployment(build(site, name)) for name in ("trial", "production"))

    (container,) = trial["template"]["spec"]["containers"]
    told = {variable["name"]: variable["value"] for variable in container["env"]}
    assert len(told) == len(container["env"])
    assert (trial["replicas"], container["image"]) == (1, "registry.example.com/agentterminal-operator:0.1.0")
    assert told["AGENTTERMINAL_LOG_LEVEL"] == "debug"
    assert production["replicas"] == 3
    assert production["template"]["spec"]["priorityClassName"] == "system-cluster-critical"
    assert "@sha256:" in production["template"]["spec"]["containers"][0]["image"]


def test_the_overlays_own_objects_fit_the_base(site: Site) -> None:
    documents = build(site, "production")
    pod = read_deployment(documents)["template"]
    (policy,) = [document for document in documents if document["kind"] == "NetworkPolicy"]
    ports = {port["name"] for port in pod["spec"]["containers"][0]["ports"]}

    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} <= ports
    subjects = [s for d in documents if d["kind"].endswith("RoleBinding") for s in d["subjects"]]
    assert {(s["namespace"], s["name"]) for s in subjects} == {("agentterminal", pod["spec"]["serviceAccountName"])}


# --- Examples ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kind(site: Site) -> Iterator[None]:
    site.kubectl("apply", "--server-side", f"--kustomize={CONFIG / 'crd'}")
    await_kind(site)
    yield
    remove_kind(site)


def test_there_are_ten_examples_and_each_has_a_name_of_its_own() -> None:
    names = {yaml.safe_load(path.read_text())["metadata"]["name"] for path in EXAMPLES}

    assert len(EXAMPLES) == len(names) == 10
    assert names == {path.stem for path in EXAMPLES}


def test_all_examples_are_applied_and_nothing_of_them_is_dropped(kind: None, site: Site) -> None:
    files = [f"--filename={path}" for path in EXAMPLES]
    tried = site.kubectl("apply", "--dry-run=server", "--validate=strict", "--namespace=team-a", *files)
    assert tried.stderr == ""

    site.kubectl("apply", "--server-side", "--validate=strict", "--namespace=team-a", *files)

    for path in EXAMPLES:
        given = yaml.safe_load(path.read_text())
        _, stored = site.request("GET", f"/apis/{API_VERSION}/namespaces/team-a/{PLURAL}/{given['metadata']['name']}")
        assert contains(stored["spec"], given["spec"]), path.name


def contains(whole: Any, part: Any) -> bool:
    """Whether everything of a part stands in the whole, which may have defaults besides."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_begins_with_what_it_is_for_and_leaves_out_what_git_never_says(path: Path) -> None:
    text = path.read_text()
    spec = yaml.safe_load(text)["spec"]

    assert re.match(r"# A terminal (that|whose) .+", text)
    assert text.count("#") >= 2
    assert not {"attached", "activeSocketId", "terminated"} & set(spec)
    assert spec["tokenSecretRef"] == {"name": "sprites-token"} | ({"key": "token"} if "key: token" in text else {})


def test_the_examples_show_every_choice_of_the_kind() -> None:
    shown: set[str] = set()
    for path in EXAMPLES:
        shown |= set(yaml.safe_load(path.read_text())["spec"])
    crd = yaml.safe_load((ROOT / f"crds/{CRD_NAME}.yaml").read_text())
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    assert set(fields) - shown == {"attached", "activeSocketId", "terminated"}


# --- GitOps -----------------------------------------------------------------------------------------------------------


def test_flux_installs_a_chart_that_is_there_with_values_that_it_takes(helm: Helm, tmp_path: Path) -> None:
    documents = {(d["kind"], d["metadata"]["name"]): d for d in GITOPS["flux"]}
    release = documents["HelmRelease", "agentterminal-operator"]["spec"]

    assert_renders(helm, tmp_path, release["chart"]["spec"]["chart"], release["values"])
    assert ("GitRepository", release["chart"]["spec"]["sourceRef"]["name"]) in documents
    objects = documents["Kustomization", "terminals-of-team-a"]["spec"]
    assert (ROOT / objects["path"]).is_dir()
    assert ("GitRepository", objects["sourceRef"]["name"]) in documents


def test_argo_cd_installs_a_chart_that_is_there_with_values_that_it_takes(helm: Helm, tmp_path: Path) -> None:
    operator, terminals = (document["spec"] for document in GITOPS["argocd"])

    assert_renders(helm, tmp_path, operator["source"]["path"], operator["source"]["helm"]["valuesObject"])
    assert (ROOT / terminals["source"]["path"]).is_dir()
    (ignored,) = terminals["ignoreDifferences"]
    assert (ignored["group"], ignored["kind"]) == ("agentterminal.dev", "AgentTerminal")
    assert ignored["jsonPointers"] == ["/spec/attached", "/spec/activeSocketId"]


def assert_renders(helm: Helm, folder: Path, chart: str, values: Any) -> None:
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    assert helm.render(folder / "values.yaml", chart=ROOT / chart)

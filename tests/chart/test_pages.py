"""The pages for whoever runs a cluster: their commands work, one page after the other, and their tables are true."""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from controller.settings import environment
from tests.chart.helm import Helm
from tests.chart.installing import CRD_PATH
from tests.chart.site import Site
from tests.house.cases import ROOT
from tests.house.chart_page import CHART
from tests.house.test_readme import BLOCK

PAGES = ("install", "upgrade", "uninstall")
BY_YOU = "by you"
IN_A_CLUSTER = ("in a cluster", "in a cluster, with a token in token.txt")
IN_ANOTHER = "in another cluster"
RUN_WITHIN_SECONDS = 110


@dataclass(frozen=True)
class Block:
    page: str
    how: str
    commands: str


def read_blocks() -> Iterator[Block]:
    for page in PAGES:
        for found in BLOCK.finditer((ROOT / f"docs/{page}.md").read_text()):
            assert found["language"] == "sh", found["body"]
            yield Block(page, found["how"], found["body"])


BLOCKS = list(read_blocks())


@dataclass(frozen=True)
class Desk:
    """A folder with this repository and a token in it, and a terminal whose kubectl reaches the cluster."""

    folder: Path
    helm: Helm
    site: Site

    def type(self, commands: str) -> str:
        path = [str(ROOT / ".venv/bin"), str(self.helm.program.parent), environment().get("PATH", "")]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env={"PATH": os.pathsep.join(path), "HOME": str(self.helm.home), "KUBECONFIG": str(self.site.kubeconfig)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_WITHIN_SECONDS,
        )
        assert done.returncode == 0, f"{commands}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def desk(helm: Helm, site: Site, tmp_path: Path) -> Iterator[Desk]:
    for name in ("charts", "config", "crds", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "token.txt").write_text("team/1/planted/secret")
    yield Desk(tmp_path, helm, site)
    site.kubectl("delete", "namespace", "webshop", "agentterminal", "--ignore-not-found", "--timeout=60s")


def test_every_block_says_how_it_is_run() -> None:
    assert len(BLOCKS) >= 14
    assert {block.how for block in BLOCKS} == {BY_YOU, *IN_A_CLUSTER, IN_ANOTHER}


def test_what_is_left_to_the_reader_are_an_image_other_ways_and_emergencies() -> None:
    left = [block.commands.split()[0:4] for block in BLOCKS if block.how == BY_YOU]

    assert [" ".join(words[:2]) for words in left] == [
        "docker build",
        "kubectl apply",
        "helm upgrade",
        "kubectl -n",
        "kubectl -n",
    ]


def test_install_upgrade_and_uninstall_work_as_written_and_nothing_stays(desk: Desk) -> None:
    site = desk.site
    for block in BLOCKS:
        if block.page == "install" and block.how in IN_A_CLUSTER:
            desk.type(block.commands)
    assert site.request("GET", "/apis/agentterminal.dev/v1alpha1/namespaces/webshop/agentterminals/launched")[0] == 200
    _, role = site.request(
        "GET", "/apis/rbac.authorization.k8s.io/v1/namespaces/webshop/roles/agentterminal-operator-secrets"
    )
    assert role["rules"][0]["resourceNames"] == ["sprites-token"]
    for user, name, may in (("vera", "any", True), ("nora", "launched", True), ("nora", "any", False)):
        given = site.may(user, "create", "agentterminals/attach", namespace="webshop", name=name)
        assert given is may, (user, name)

    for block in BLOCKS:
        if block.page != "install" and block.how in IN_A_CLUSTER:
            desk.type(block.commands)

    label = "--selector=app.kubernetes.io/name=agentterminal-operator"
    kinds = "clusterroles,clusterrolebindings,roles,rolebindings,deployments,services"
    assert site.kubectl("get", kinds, "--all-namespaces", label, "--output=name").stdout == ""
    assert site.request("GET", CRD_PATH)[0] == 404
    assert site.request("GET", "/api/v1/namespaces/agentterminal")[0] == 404


def test_what_is_told_for_another_cluster_works_in_a_fresh_one(desk: Desk) -> None:
    for block in BLOCKS:
        if block.how == IN_ANOTHER:
            desk.type(block.commands)

    assert desk.site.request("GET", CRD_PATH)[0] == 404


# --- The table of rights ----------------------------------------------------------------------------------------------

SECURITY = (ROOT / "docs/security.md").read_text()


def read_section(title: str) -> set[tuple[str, str]]:
    """The rights that a section's table names: resource and verb."""
    section = SECURITY.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `([\w/]+)`: ([\w, ]+) \|$", section, re.MULTILINE)
    return {(resource, verb) for resource, verbs in rows for verb in verbs.split(", ")}


def read_rights(file: str) -> set[tuple[str, str]]:
    return {
        (resource, verb)
        for rules in yaml.safe_load((CHART / "files" / file).read_text()).values()
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_page_names_every_right_of_both_processes_and_no_other() -> None:
    assert read_section("What the operator may do") == read_rights("rules.yaml")
    assert read_section("What the gateway may do") == read_rights("gateway-rules.yaml")


def test_the_page_says_what_each_right_of_people_is_worth() -> None:
    named = set(re.findall(r"^\| `(agentterminals(?:/\w+)?)` ", SECURITY, re.MULTILINE))

    assert named == {resource for resource, _ in read_rights("people-rules.yaml")} - {"agentterminals/status"}

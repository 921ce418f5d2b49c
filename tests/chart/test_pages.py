"""The pages for whoever runs a cluster: every command is run by a test, and their tables are true."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.api.names import API_VERSION, FINALIZER, PLURAL
from tests.chart.desk import (
    AFTER_KUBECTL,
    BLOCKS,
    BY_YOU,
    IN_A_CLUSTER,
    IN_ANOTHER,
    WHEN_A_TEAM_LEAVES,
    WITH_A_CERTIFICATE,
    WITH_A_TOKEN,
    WITHOUT_AN_OPERATOR,
    Desk,
    build_desk,
    find_commands,
)
from tests.chart.helm import Helm
from tests.chart.installing import CRD_PATH, RELEASE, await_kind, remove_kind
from tests.chart.site import Site
from tests.house.cases import ROOT
from tests.house.chart_page import CHART


@pytest.fixture
def desk(helm: Helm, site: Site, tmp_path: Path) -> Iterator[Desk]:
    yield build_desk(tmp_path, helm, site)
    site.kubectl("delete", "namespace", "webshop", "agentterminal", "--ignore-not-found", "--timeout=60s")


def test_every_block_says_how_it_is_run() -> None:
    assert len(BLOCKS) >= 17
    assert {block.how for block in BLOCKS} == {
        BY_YOU,
        IN_A_CLUSTER,
        WITH_A_TOKEN,
        WITH_A_CERTIFICATE,
        WHEN_A_TEAM_LEAVES,
        WITHOUT_AN_OPERATOR,
        IN_ANOTHER,
        AFTER_KUBECTL,
    }


def test_nothing_is_left_to_the_reader_but_the_image() -> None:
    assert [block.commands.split()[:2] for block in BLOCKS if block.how == BY_YOU] == [["docker", "build"]]


# Those that are told for a cluster, one page after the other, are run by test_installation.py.


def test_what_is_told_for_another_cluster_works_in_a_fresh_one(desk: Desk) -> None:
    install, look_and_remove = find_commands("install", IN_ANOTHER)
    desk.type(install)
    await_kind(desk.site)
    desk.type(look_and_remove)

    assert desk.site.request("GET", CRD_PATH)[0] == 404


def test_a_kind_that_came_first_is_taken_over_and_an_object_that_nobody_proves_goes_without_its_finalizer(
    desk: Desk, helm: Helm
) -> None:
    site = desk.site
    path = f"/apis/{API_VERSION}/namespaces/webshop/{PLURAL}/launched"
    for commands in find_commands("upgrade", AFTER_KUBECTL):
        desk.type(commands)
    site.kubectl("create", "namespace", "webshop")
    desk.type("kubectl -n webshop apply -f examples/launched.yaml")
    # As an operator leaves it that went before it had proven anything.
    taken_on = {"metadata": {"finalizers": [FINALIZER]}}
    assert site.request("PATCH", path, body=taken_on, content_type="application/merge-patch+json")[0] == 200
    helm.run("uninstall", RELEASE, "--namespace=agentterminal", kubeconfig=site.kubeconfig)
    site.kubectl("delete", "aterm", "launched", "--namespace=webshop", "--wait=false")
    assert site.request("GET", path)[0] == 200

    for commands in find_commands("uninstall", WITHOUT_AN_OPERATOR):
        desk.type(commands)

    assert site.request("GET", path)[0] == 404
    remove_kind(site)


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

"""What kube-score finds in the ten installations is what the chart's README explains, and nothing else."""

from pathlib import Path

import pytest

from tests.chart.helm import VALUES, Helm, find
from tests.chart.scoring import prepare_kube_score, score
from tests.chart.test_templates import KINDS
from tests.house.chart_page import FINDINGS

OURS = {"", "operator", "gateway"}
"""Containers of the chart; those that a value file brings are its author's."""


@pytest.fixture(scope="module")
def program() -> Path:
    return prepare_kube_score()


def score_values(helm: Helm, program: Path, name: str, **settings: str) -> set[tuple[str, str]]:
    found = score(program, helm.render(VALUES / f"{name}.yaml", apis=KINDS, settings=settings))
    return {(check, summary) for _, check, container, summary in found if container in OURS}


NAMES = sorted(path.stem for path in VALUES.iterdir())


def test_every_finding_in_the_ten_installations_is_explained_and_every_explained_one_is_found(
    helm: Helm, program: Path
) -> None:
    found = {name: score_values(helm, program, name) for name in NAMES}

    explained = {(finding.check, finding.summary) for finding in FINDINGS}
    assert {name: told - explained for name, told in found.items() if told - explained} == {}
    assert explained - set().union(*found.values()) == set()


def test_a_hardened_installation_that_always_pulls_keeps_only_what_is_so_on_purpose(helm: Helm, program: Path) -> None:
    found = score_values(helm, program, "hardened", **{"image.pullPolicy": "Always"})

    assert found == {(finding.check, finding.summary) for finding in FINDINGS if finding.way_out == ""}


def test_it_would_find_a_container_that_may_write_its_root(helm: Helm, program: Path) -> None:
    documents = [find(helm.render(settings={"securityContext.readOnlyRootFilesystem": "false"}), "Deployment")]

    found = {(check, container) for _, check, container, _ in score(program, documents)}

    assert ("container-security-context-readonlyrootfilesystem", "operator") in found

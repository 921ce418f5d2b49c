"""What is shipped for pipelines, and the pages about it, say what the code and the tests say."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from controller.api.conditions import ConditionType, Reason
from controller.api.names import FIELD_MANAGER, GATEWAY_FIELD_MANAGER, KIND, RECONCILE_REQUEST
from controller.api.situations import Phase, Situation, judge_readiness
from controller.client.objects import FIELD_MANAGER as PERSONS_FIELD_MANAGER
from tests.gitops.judges import HEALTH_RULE

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
GATEWAYS_FIELDS: Final = {"attached", "activeSocketId"}
POINTERS: Final = {f"/spec/{field}" for field in GATEWAYS_FIELDS}
SHIPPED: Final = ("examples", "config", "charts")


def read_documents() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every AgentTerminal that we show: in files of their own, and in the pages."""
    for folder in SHIPPED:
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            if "templates" not in path.parts:
                yield from ((path, document) for document in parse(path.read_text(encoding="utf-8")))
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        for block in re.findall(r"^```ya?ml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield from ((path, document) for document in parse(block))


def parse(text: str) -> list[dict[str, Any]]:
    """The AgentTerminals in a text of YAML."""
    documents = yaml.safe_load_all(text)
    return [document for document in documents if isinstance(document, dict) and document.get("kind") == KIND]


EXAMPLES: Final = list(read_documents())


def test_no_example_lists_the_fields_of_the_gateway() -> None:
    assert len(EXAMPLES) >= 12
    for path, document in EXAMPLES:
        assert not GATEWAYS_FIELDS & document.get("spec", {}).keys(), path


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_config_map_for_argo_cd_holds_the_tested_rule_and_ignores_the_gateways_fields() -> None:
    data = read_yaml("config/argocd/argocd-cm.yaml")["data"]
    prefix = "resource.customizations"

    assert data.keys() == {
        f"{prefix}.health.agentterminal.dev_AgentTerminal",
        f"{prefix}.ignoreDifferences.agentterminal.dev_AgentTerminal",
    }
    assert data[f"{prefix}.health.agentterminal.dev_AgentTerminal"] == HEALTH_RULE.read_text(encoding="utf-8")
    ignored = yaml.safe_load(data[f"{prefix}.ignoreDifferences.agentterminal.dev_AgentTerminal"])
    assert set(ignored["jsonPointers"]) == POINTERS


def test_the_rules_for_flux_ignore_the_gateways_fields_and_leave_a_persons_hand_alone() -> None:
    kustomization = read_yaml("config/flux/kustomization-patch.yaml")["spec"]
    (rule,) = kustomization["ignore"]
    (patch,) = kustomization["patches"]

    assert set(rule["paths"]) == POINTERS
    assert rule["target"] == patch["target"] == {"group": "agentterminal.dev", "kind": KIND}
    annotations = yaml.safe_load(patch["patch"])["metadata"]["annotations"]
    assert annotations == {"kustomize.toolkit.fluxcd.io/ssa": "Merge"}
    (drift,) = read_yaml("config/flux/helmrelease-patch.yaml")["spec"]["driftDetection"]["ignore"]
    assert set(drift["paths"]) == {*POINTERS, "/spec/terminated"}


def read_kind(name: str, kind: str) -> dict[str, Any]:
    """The last document of a kind in a file: that of the terminals."""
    documents = yaml.safe_load_all((ROOT / name).read_text(encoding="utf-8"))
    found: dict[str, Any] = [document["spec"] for document in documents if document["kind"] == kind][-1]
    return found


def test_the_examples_for_pipelines_have_the_rules_that_are_shipped() -> None:
    shipped = read_yaml("config/flux/kustomization-patch.yaml")["spec"]
    flux = read_kind("examples/gitops/flux.yaml", "Kustomization")
    (difference,) = read_kind("examples/gitops/argocd.yaml", "Application")["ignoreDifferences"]

    assert (flux["patches"], flux["ignore"]) == (shipped["patches"], shipped["ignore"])
    assert set(difference["jsonPointers"]) == POINTERS


def test_the_example_for_flux_waits_for_what_is_there_and_for_nothing_that_is_created_suspended() -> None:
    flux = read_kind("examples/gitops/flux.yaml", "Kustomization")
    applied = {
        document["metadata"]["name"]: document["spec"]
        for path, document in EXAMPLES
        if path.is_relative_to(ROOT / flux["path"])
    }

    assert "wait" not in flux
    for awaited in flux["healthChecks"]:
        assert not applied[awaited["name"]].get("suspend")


def test_no_example_for_argo_cd_applies_what_it_ignores() -> None:
    for path in [*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "config").rglob("*.yaml")]:
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if isinstance(document, dict) and document.get("kind") == "Application":
                options = document["spec"].get("syncPolicy", {}).get("syncOptions", [])
                assert "RespectIgnoreDifferences=true" not in options, path


def test_nobody_of_ours_writes_under_a_name_that_flux_takes_over() -> None:
    page = (DOCS / "gitops.md").read_text(encoding="utf-8")
    for manager in (FIELD_MANAGER, GATEWAY_FIELD_MANAGER, PERSONS_FIELD_MANAGER):
        assert not manager.startswith("kubectl")
        assert f"`{manager}`" in page
    assert RECONCILE_REQUEST in page


# --- troubleshooting --------------------------------------------------------------------------------------------------


def read_rows(name: str) -> Mapping[str, list[str]]:
    """Read one table of the page: reason → its cells."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.partition(f"<!-- begin {name} -->\n")[2].partition(f"<!-- end {name} -->")[0]
    rows = [[cell.strip() for cell in line.strip("| \n").split(" | ")] for line in table.splitlines()[2:]]
    found = {}
    for cells in rows:
        (reason,) = [cell.strip("`") for cell in cells if re.fullmatch(r"`[A-Za-z]+`", cell)]
        found[reason] = cells
    return found


def find_situations(*, stalled: bool) -> set[str]:
    """The situations in which a person has to help, or in which the operator goes on by itself."""
    judged = {situation: judge_readiness(situation) for situation in Situation}
    return {situation.value for situation, told in judged.items() if (told.stalled if stalled else told.reconciling)}


@pytest.mark.parametrize(("table", "stalled"), [("stalled", True), ("waiting", False)])
def test_every_situation_that_hinders_is_on_the_page_with_its_way_out(table: str, stalled: bool) -> None:
    rows = read_rows(table)

    assert rows.keys() == find_situations(stalled=stalled)
    for reason, cells in rows.items():
        assert len(cells) == 3, reason
        assert all(len(cell) > 5 for cell in cells if cell != f"`{reason}`"), reason


def test_the_runbook_for_terminals_that_are_not_ready_has_every_situation_in_which_a_person_must_help() -> None:
    page = (DOCS / "runbooks/terminals-not-ready.md").read_text(encoding="utf-8")

    assert {reason for reason in find_situations(stalled=True) if f"`{reason}`" not in page} == set()


def test_every_reason_for_which_an_end_is_not_over_is_on_the_page() -> None:
    rows = read_rows("ending")

    assert rows.keys() <= {reason.value for reason in Reason}
    assert rows.keys() >= {"Requested", "Signalled", "KillFailed", "StillListed", "NotConfirmed", "LeftoversFound"}


def test_the_page_uses_no_word_that_the_operator_does_not() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    known = {*Reason, *ConditionType, *Phase}
    words = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", page))

    assert words - known <= {"Inactive", "OnLost"}


def test_the_diagram_has_every_phase_and_no_other() -> None:
    page = (DOCS / "spec-states.md").read_text(encoding="utf-8")
    arrows = re.findall(r"^ +(\S+) --> (\w+|\[\*\])", page, re.MULTILINE)

    assert {word for arrow in arrows for word in arrow} == {"[*]", *Phase}


# --- sizing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        ("operator_peak_mib", "111"),
        ("peak_10000_mib", "158"),
        ("ready_1000_s", "8.3"),
        ("ready_10000_s", "98"),
        ("delete_1000_s", "16.7"),
        ("writes_to_ready", "2"),
        ("writes_to_launched", "3"),
        ("sprites_calls_per_kill", "5"),
        ("first_pass_10000_s", "2.6"),
    ],
)
def test_a_figure_of_the_page_about_sizes_is_the_one_that_was_measured(key: str, figure: str) -> None:
    measured = (DOCS / "performance.md").read_text(encoding="utf-8").partition("## Measured")[2]

    assert f"| `{key}` | {figure} |" in measured
    assert re.search(rf"\b{re.escape(figure)}\b", (DOCS / "sizing.md").read_text(encoding="utf-8"))

"""The CustomResourceDefinition: rendered, complete, and the same text every time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from controller.api.conditions import ConditionType
from controller.api.crd import render_crd, render_crd_text, render_object_schema
from controller.api.instants import TIME_PATTERN
from controller.api.names import CRD_NAME
from controller.api.rules import RULES
from controller.api.schema import get_node
from controller.api.terminal import TerminalStatus, read_status
from controller.cli.crd import crd_command

FILE = Path(__file__).parents[2] / "crds" / f"{CRD_NAME}.yaml"
STATUS = render_object_schema()["properties"]["status"]
SPEC = render_object_schema()["properties"]["spec"]


def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node of a schema with its path."""
    yield path, node
    for name, field in node.get("properties", {}).items():
        yield from walk(field, f"{path}.{name}")
    if "items" in node:
        yield from walk(node["items"], f"{path}[]")


def test_the_file_is_what_the_code_renders() -> None:
    assert FILE.read_text(encoding="utf-8") == render_crd_text(), "run `make crds`"


def test_the_text_is_the_same_every_time_and_reads_back() -> None:
    assert render_crd_text() == render_crd_text()
    assert yaml.safe_load(render_crd_text()) == render_crd()


def test_the_command_prints_the_text() -> None:
    done = CliRunner().invoke(crd_command)
    assert (done.exit_code, done.output) == (0, render_crd_text())


def test_its_names_are_the_promised_ones() -> None:
    spec = render_crd()["spec"]
    assert spec["names"]["shortNames"] == ["aterm"]
    assert spec["names"]["categories"] == ["agents"]
    (version,) = spec["versions"]
    assert version["name"] == "v1alpha1"
    assert version["subresources"] == {"status": {}}
    assert [field["jsonPath"] for field in version["selectableFields"]] == [
        ".spec.attached",
        ".status.socket.incarnation",
    ]
    assert [column["name"] for column in version["additionalPrinterColumns"] if "priority" not in column] == [
        "Sprite",
        "Session",
        "Phase",
        "Held",
        "Attached",
        "Age",
    ]
    assert [column["name"] for column in version["additionalPrinterColumns"] if column.get("priority") == 1] == [
        "Socket",
        "Idle since",
        "Reason",
    ]


def test_every_field_of_the_spec_is_described_in_a_sentence() -> None:
    mute = [
        path
        for path, node in walk(SPEC, "spec")
        if not path.endswith("[]") and not node.get("description", "").endswith(".")
    ]
    assert mute == []


def test_every_field_of_the_status_is_described_in_a_sentence() -> None:
    mute = [
        path
        for path, node in walk(STATUS, "status")
        if not path.endswith("[]") and not node.get("description", "").endswith(".")
    ]
    assert mute == []


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("spec.holdWanted", False),
        ("spec.terminated", False),
        ("spec.idleTimeoutSeconds", 1_800),
        ("spec.idlePolicy", "Detached"),
        ("spec.relaunch", "Never"),
        ("spec.deletionPolicy", "Terminate"),
        ("spec.suspend", False),
        ("spec.launch.columns", 80),
        ("spec.launch.rows", 24),
        ("spec.hold.mode", "WhileActive"),
        ("spec.tokenSecretRef.key", "token"),
    ],
)
def test_a_field_has_its_default(field: str, default: object) -> None:
    assert get_node(render_object_schema(), field)["default"] == default


def test_no_other_field_of_the_spec_has_a_default() -> None:
    # A default of attached or activeSocketId would take away "never", one of the hold's numbers refuse an expiry of 90.
    assert sum("default" in node for _, node in walk(SPEC, "spec")) == 11


def test_every_text_and_list_and_number_of_the_spec_has_a_limit() -> None:
    limits = {"string": {"maxLength", "enum", "pattern"}, "array": {"maxItems"}, "integer": {"maximum"}}
    endless = [
        path for path, node in walk(SPEC, "spec") if node["type"] in limits and not limits[node["type"]] & node.keys()
    ]
    assert endless == []


def test_the_status_begins_with_nine_unknown_conditions() -> None:
    default = STATUS["default"]
    assert default.keys() == {"observedGeneration", "phase", "conditions"}
    assert [condition["type"] for condition in default["conditions"]] == list(ConditionType)
    assert {(c["status"], c["reason"], c["message"], c["lastTransitionTime"]) for c in default["conditions"]} == {
        ("Unknown", "Pending", "", "1970-01-01T00:00:00Z")
    }
    assert all("observedGeneration" not in condition for condition in default["conditions"])
    assert read_status(default) == TerminalStatus()


def test_phase_and_observed_generation_have_defaults_for_objects_stored_earlier() -> None:
    assert STATUS["properties"]["phase"]["default"] == "Pending"
    assert STATUS["properties"]["observedGeneration"]["default"] == -1


def test_no_word_of_the_status_is_closed_but_the_three_of_a_condition() -> None:
    # An older CRD must not refuse the phase or the reason of a newer operator.
    assert [path for path, node in walk(STATUS, "status") if "enum" in node] == ["status.conditions[].status"]


def test_lists_that_are_maps_have_their_keys() -> None:
    keys = {
        path: node["x-kubernetes-list-map-keys"]
        for path, node in walk(render_object_schema(), "")
        if node.get("x-kubernetes-list-type") == "map"
    }
    assert keys == {
        ".spec.launch.env": ["name"],
        ".status.gateways": ["incarnation"],
        ".status.conditions": ["type"],
    }


def test_every_rule_stands_on_its_node() -> None:
    for rule in RULES:
        standing = get_node(render_object_schema(), rule.node)["x-kubernetes-validations"]
        (rendered,) = [entry for entry in standing if entry["message"] == rule.message]
        assert rendered["rule"] == rule.expression
        assert rendered.get("fieldPath") == (f".{rule.reported_on}" if rule.reported_on else None)
        assert rendered.get("optionalOldSelf") is (True if rule.on_creation_too else None)


def test_a_rule_compares_with_the_old_value_if_and_only_if_it_says_so() -> None:
    for rule in RULES:
        assert ("oldSelf" in rule.expression) is (rule.on_change or rule.on_creation_too), rule.message


def test_the_created_time_has_a_pattern_beside_its_format() -> None:
    node = get_node(render_object_schema(), "spec.sessionCreatedTime")
    assert (node["format"], node["pattern"]) == ("date-time", TIME_PATTERN)

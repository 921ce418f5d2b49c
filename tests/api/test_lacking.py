"""What an older CRD lacks of ours, and how a status is fitted to it."""

import copy
from typing import Any

import pytest

from controller.api.crd import render_crd
from controller.api.lacking import Lacking, find_lacking, leave_out
from controller.api.schema import get_node


def build_without(*paths: str, **version: Any) -> dict[str, Any]:
    """Our CRD without some fields, as an older version may have had it."""
    crd = copy.deepcopy(render_crd())
    only = crd["spec"]["versions"][0]
    root = only["schema"]["openAPIV3Schema"]
    for path in paths:
        parent, _, name = path.rpartition(".")
        del get_node(root, parent)["properties"][name]
    only.update(version)
    return crd


def test_our_own_crd_lacks_nothing() -> None:
    assert find_lacking(render_crd()) == Lacking(spec=(), status=())


def test_a_crd_that_serves_other_versions_only_cannot_be_compared() -> None:
    assert find_lacking(build_without(name="v1")) is None
    assert find_lacking(build_without(served=False)) is None


@pytest.mark.parametrize(
    ("removed", "spec", "status"),
    [
        (["spec.relaunch"], ["spec.relaunch"], []),
        (["spec.launch.rows"], ["spec.launch.rows"], []),
        (["status.exit"], [], ["status.exit"]),
        (["status.kill.proof", "status.hold"], [], ["status.hold", "status.kill.proof"]),
        (["status.conditions[].observedGeneration"], [], ["status.conditions[].observedGeneration"]),
        (["status.gateways[].viewers"], [], ["status.gateways[].viewers"]),
    ],
)
def test_every_missing_field_is_named_by_its_path(removed: list[str], spec: list[str], status: list[str]) -> None:
    lacking = find_lacking(build_without(*removed))

    assert lacking == Lacking(tuple(spec), tuple(status))
    assert lacking.essential == ()


@pytest.mark.parametrize(
    ("removed", "whole"),
    [
        ("status.kill.trigger", "status.kill"),
        ("status.hold.task", "status.hold"),
        ("status.gateways[].incarnation", "status.gateways"),
        ("spec.tokenSecretRef.name", "spec.tokenSecretRef"),
    ],
)
def test_a_part_without_what_it_requires_is_lacking_whole(removed: str, whole: str) -> None:
    lacking = find_lacking(build_without(removed))

    assert lacking is not None
    assert [*lacking.spec, *lacking.status] == [whole]


@pytest.mark.parametrize(
    ("removed", "essential"),
    [
        ("status.session", "status.session"),
        ("status.session.launchIntent", "status.session.launchIntent"),
        ("status.session.launchIntent.nonce", "status.session.launchIntent"),
        ("status.session.ended.time", "status.session.ended"),
        ("status.conditions[].type", "status.conditions"),
        ("status.observedGeneration", "status.observedGeneration"),
    ],
)
def test_what_must_be_remembered_is_essential(removed: str, essential: str) -> None:
    lacking = find_lacking(build_without(removed))

    assert lacking is not None
    assert lacking.essential == (essential,)


def test_a_crd_without_a_schema_for_the_status_lacks_all_of_it() -> None:
    crd = build_without()
    del crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]

    lacking = find_lacking(crd)

    assert lacking is not None
    assert set(lacking.essential) == {"status.observedGeneration", "status.session", "status.conditions"}


@pytest.mark.parametrize("node", ["", "status", "status.kill"])
def test_a_node_that_keeps_unknown_fields_lacks_nothing(node: str) -> None:
    crd = build_without("status.kill.proof")
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    (get_node(root, node) if node else root)["x-kubernetes-preserve-unknown-fields"] = True

    assert find_lacking(crd) == Lacking(spec=(), status=())


def test_a_status_is_left_without_what_is_lacking_and_is_else_the_same() -> None:
    status = {
        "phase": "Running",
        "kill": {"trigger": "Deleted", "proof": "SessionList"},
        "conditions": [{"type": "Ready", "observedGeneration": 2}, {"type": "Held"}],
        "exit": {"code": 0},
    }

    fitted = leave_out(status, {"status.kill.proof", "status.conditions[].observedGeneration", "status.exit"})

    assert fitted == {
        "phase": "Running",
        "kill": {"trigger": "Deleted"},
        "conditions": [{"type": "Ready"}, {"type": "Held"}],
    }
    assert status["kill"] == {"trigger": "Deleted", "proof": "SessionList"}

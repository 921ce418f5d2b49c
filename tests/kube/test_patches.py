"""The bodies of the patches: they test what they rely on, and name only what differs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube.patches import build_add_finalizer, build_remove_finalizer, build_status_patch

OURS = "agentterminal.dev/session"
THEIRS = "example.org/theirs"
SAME_VERSION = [
    {"op": "test", "path": "/metadata/uid", "value": "u-1"},
    {"op": "test", "path": "/metadata/resourceVersion", "value": "17"},
]


def terminal(*finalizers: str, status: dict[str, Any] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"uid": "u-1", "resourceVersion": "17"}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"metadata": metadata} | ({"status": status} if status is not None else {})


def test_the_first_finalizer_makes_the_list() -> None:
    assert build_add_finalizer(terminal(), OURS) == [
        *SAME_VERSION,
        {"op": "add", "path": "/metadata/finalizers", "value": [OURS]},
    ]


def test_a_further_finalizer_leaves_those_of_others_alone() -> None:
    assert build_add_finalizer(terminal(THEIRS), OURS) == [
        *SAME_VERSION,
        {"op": "add", "path": "/metadata/finalizers/-", "value": OURS},
    ]


def test_a_finalizer_that_is_there_is_not_added() -> None:
    assert build_add_finalizer(terminal(THEIRS, OURS), OURS) == []


def test_the_finalizer_is_removed_by_its_index_only_if_that_is_ours() -> None:
    assert build_remove_finalizer(terminal(THEIRS, OURS), OURS) == [
        *SAME_VERSION,
        {"op": "test", "path": "/metadata/finalizers/1", "value": OURS},
        {"op": "remove", "path": "/metadata/finalizers/1"},
    ]


def test_a_finalizer_that_is_not_there_is_not_removed() -> None:
    assert build_remove_finalizer(terminal(THEIRS), OURS, demand_free_socket=True) == []


@pytest.mark.parametrize(
    ("status", "path"), [({"phase": "Running"}, "/status/socket"), ({}, "/status/socket"), (None, "/status")]
)
def test_a_held_socket_keeps_the_finalizer(status: dict[str, Any] | None, path: str) -> None:
    operations = build_remove_finalizer(terminal(OURS, status=status), OURS, demand_free_socket=True)
    assert operations[2] == {"op": "test", "path": path, "value": None}
    assert [operation["op"] for operation in operations] == ["test", "test", "test", "test", "remove"]


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {"a": None}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({}, {"a": None}, {}),
        ({}, {"a": {}}, {"a": {}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": {"b": 1}}, {}, {"a": None}),
        ({"a": [1, 2]}, {"a": [1]}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [1, 2]}, {}),
        ({"a": 1}, {"a": True}, {"a": True}),
        ({"a": [{"b": 1}]}, {"a": [{"b": True}]}, {"a": [{"b": True}]}),
        ({"a": "x"}, {"a": {"b": 1, "c": None}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": "x"}, {"a": "x"}),
    ],
)
def test_a_status_patch_names_only_what_differs(old: Any, new: Any, patch: Any) -> None:
    assert build_status_patch(old, new) == patch


SCALARS = st.one_of(st.booleans(), st.integers(-2, 2), st.sampled_from(["", "x"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=12,
)
STATUSES = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2, as it stands there."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@given(STATUSES, STATUSES)
def test_a_status_patch_applied_to_the_old_status_gives_the_new_one(old: Any, new: Any) -> None:
    assert repr_sorted(merged(old, build_status_patch(old, new))) == repr_sorted(new)


@given(STATUSES)
def test_the_same_status_gives_no_patch(status: Any) -> None:
    assert build_status_patch(status, status) == {}


def repr_sorted(value: Any) -> str:
    """Tell True from 1, which == does not."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{repr_sorted(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(repr_sorted, value)) + "]"
    return repr(value)

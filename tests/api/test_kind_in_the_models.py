"""The table of the kind through the models: verdict, fields and sentences, and what can be read all the same."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.api.instants import TIME_PATTERN, is_date_time, read_instant
from controller.api.rules import RULES, Rule
from controller.api.schema import render_schema
from controller.api.terminal import ObjectUnreadable, TerminalSpec, judge_object, read_spec
from tests.api.kind_table import ADOPT, CHANGES, CREATIONS, INHERITED, Changed, Created, env, launch


@pytest.mark.parametrize("row", CREATIONS, ids=str)
def test_a_creation_has_the_verdict_of_the_table(row: Created) -> None:
    assert {fault.path for fault in judge_object(row.spec)} == set(row.refused_at)


@pytest.mark.parametrize("row", [*CHANGES, *INHERITED], ids=str)
def test_a_change_has_the_verdict_of_the_table(row: Changed) -> None:
    assert {fault.path for fault in judge_object(row.after, row.before)} == set(row.refused_at)


@pytest.mark.parametrize("row", [row for row in CHANGES if not judge_object(row.before)], ids=str)
def test_an_unchanged_object_is_never_refused(row: Changed) -> None:
    assert judge_object(row.before, row.before) == []


def test_every_object_that_is_changed_was_accepted_before() -> None:
    assert [row.title for row in CHANGES if judge_object(row.before)] == []


def test_every_inherited_object_but_the_two_ends_would_be_refused_today() -> None:
    assert [row.title for row in INHERITED if not judge_object(row.before)] == []


def test_the_table_is_long_enough_and_names_each_row_once() -> None:
    rows: list[Created | Changed] = [*CREATIONS, *CHANGES]
    assert len(rows) >= 60
    assert len({str(row) for row in rows}) == len(rows)
    assert sum(bool(row.refused_at) for row in rows) >= 30
    assert sum(not row.refused_at for row in rows) >= 30


def _find_limits(node: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Every limit of the spec: where, which, and how much."""
    for limit in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"):
        if limit in node:
            yield path, limit, node[limit]
    for name, field in node.get("properties", {}).items():
        yield from _find_limits(field, (*path, name))
    if "items" in node:
        yield from _find_limits(node["items"], (*path, "[]"))


def _find_sizes(value: Any, path: tuple[str, ...]) -> set[int]:
    """How large the values on a path are in one spec: a number itself, the length of anything else."""
    if not path:
        return {value if isinstance(value, int) else len(value)} if isinstance(value, int | str | list) else set()
    if path[0] == "[]":
        return set().union(*(_find_sizes(entry, path[1:]) for entry in value)) if isinstance(value, list) else set()
    return _find_sizes(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else set()


@pytest.mark.parametrize(("path", "limit", "amount"), list(_find_limits(render_schema(TerminalSpec))))
def test_every_limit_is_met_exactly_in_some_row_and_passed_by_one_in_another(
    path: tuple[str, ...], limit: str, amount: int
) -> None:
    field = ".".join(["spec", *path]).replace(".[]", "[]")
    accepted = {size for row in CREATIONS if not row.refused_at for size in _find_sizes(row.spec, path)}
    refused = {
        size
        for row in CREATIONS
        if field in {re.sub(r"\[\d+\]", "[]", at) for at in row.refused_at}
        for size in _find_sizes(row.spec, path)
    }
    assert amount in accepted
    assert amount + (-1 if limit.startswith("min") else 1) in refused


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.message[:40])
def test_every_rule_speaks_in_some_row(rule: Rule) -> None:
    said = {fault.message for row in CREATIONS for fault in judge_object(row.spec)}
    said |= {fault.message for row in CHANGES for fault in judge_object(row.after, row.before)}
    assert rule.message in said


def test_every_rule_says_something_of_its_own() -> None:
    assert len({(rule.node, rule.message) for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("row", [row for row in CREATIONS if not row.refused_at], ids=str)
def test_every_good_object_is_read(row: Created) -> None:
    spec = read_spec(row.spec)
    assert spec.sprite_name == row.spec["spriteName"]
    assert spec.session_id == row.spec.get("sessionId")
    assert (spec.launch is None) == (row.spec.get("launch") is None)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (None, "spec.spriteName"),
        ({"sessionId": "1"}, "spec.spriteName"),
        (ADOPT | {"sessionId": 1}, "spec.sessionId"),
        (ADOPT | {"relaunch": "Always"}, "spec.relaunch"),
        (launch(columns="80"), "spec.launch.columns"),
        (launch(columns=True), "spec.launch.columns"),
        (env({"value": "x"}), "spec.launch.env[0].name"),
        (ADOPT | {"sessionCreatedTime": "soon"}, "spec.sessionCreatedTime"),
        (ADOPT | {"sessionCreatedTime": 5}, "spec.sessionCreatedTime"),
        (ADOPT | {"sessionCreatedTime": "2026-01-31T08:00:00"}, "spec.sessionCreatedTime"),
        (ADOPT | {"hold": []}, "spec.hold"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_field(bad: Any, field: str) -> None:
    with pytest.raises(ObjectUnreadable) as told:
        read_spec(bad)
    assert told.value.path == field
    assert str(told.value).startswith(f"{field} cannot be read: ")
    assert told.value.rule in str(told.value)


@pytest.mark.parametrize(
    "inherited",
    [
        ADOPT | {"spriteName": "A" * 64},
        ADOPT | {"idleTimeoutSeconds": -1},
        ADOPT | {"hold": {"expireSeconds": 29, "refreshSeconds": 29}},
        launch(command=[]),
        launch(command=["a"] * 201, rows=0),
        {"spriteName": "a"},
        ADOPT | {"terminated": True, "attached": True},
    ],
)
def test_an_object_that_was_stored_under_other_limits_is_read(inherited: dict[str, Any]) -> None:
    assert judge_object(inherited) != []
    assert read_spec(inherited).sprite_name == inherited["spriteName"]


def test_a_field_of_a_newer_version_is_ignored() -> None:
    assert read_spec(ADOPT | {"colour": "red"}) == read_spec(ADOPT)


def test_90_point_0_is_90() -> None:
    spec = read_spec(ADOPT | {"hold": {"expireSeconds": 90.0}, "idleTimeoutSeconds": 5.0})
    assert spec.hold is not None
    assert (spec.hold.expire_seconds, type(spec.hold.expire_seconds)) == (90, int)
    assert type(spec.idle_timeout_seconds) is int


@pytest.mark.parametrize(
    "bad",
    [
        env({"name": "A", "value": "hunter2" * 20_000}),
        env({"name": "hunter2=", "value": "hunter2"}),
        env({"name": "A", "value": "hunter2\x00"}),
        env({"name": "A", "value": ["hunter2"]}),
        launch(command=["a", "hunter2\x00"]),
        launch(command="hunter2"),
        ADOPT | {"relaunch": "hunter2"},
        ADOPT | {"sessionCreatedTime": "hunter2"},
    ],
)
def test_no_fault_tells_the_value(bad: dict[str, Any]) -> None:
    faults = judge_object(bad)
    assert faults
    assert "hunter2" not in "".join(fault.message for fault in faults)


@pytest.mark.parametrize(
    "bad",
    [
        env({"name": "A", "value": ["hunter2"]}),
        launch(command="hunter2"),
        ADOPT | {"relaunch": "hunter2"},
        ADOPT | {"sessionCreatedTime": "hunter2"},
    ],
)
def test_what_cannot_be_read_is_told_without_its_value(bad: dict[str, Any]) -> None:
    with pytest.raises(ObjectUnreadable) as told:
        read_spec(bad)
    assert "hunter2" not in str(told.value)


def _spell(year: int, parts: list[int], fraction: str, zone: str) -> str:
    month, day, hour, minute, second = parts
    return f"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"


TWO_DIGITS = st.integers(0, 99)
ODD_TIMES = st.builds(
    _spell,
    st.sampled_from([1000, 1900, 2000, 2026, 2100, 2999]),
    st.tuples(
        st.integers(0, 13) | TWO_DIGITS,
        st.integers(27, 32) | TWO_DIGITS,
        st.integers(22, 25) | TWO_DIGITS,
        st.integers(58, 61) | TWO_DIGITS,
        st.integers(58, 61) | TWO_DIGITS,
    ),
    st.sampled_from(["", ".1", ".123456789"]),
    st.sampled_from(["Z", "+00:00", "-00:00", "+23:59", "-23:59"]),
)


@given(ODD_TIMES)
@example("2026-02-28T23:59:59.999999999-23:59")
@example("2026-12-31T23:59:60Z")
def test_every_time_that_pattern_and_format_admit_can_be_read_everywhere(text: str) -> None:
    assert re.search(TIME_PATTERN, text)
    faults = {fault.path for fault in judge_object(ADOPT | {"sessionCreatedTime": text})}
    if is_date_time(text):
        assert faults == set()
        assert read_instant(text) is not None
        assert read_spec(ADOPT | {"sessionCreatedTime": text}).session_created_time is not None
    else:
        assert faults == {"spec.sessionCreatedTime"}
        assert read_instant(text) is None


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2026-01-31T08:00:00Z", "2026-01-31T13:30:00+05:30", True),
        ("2026-01-31T00:30:00+01:00", "2026-01-30T23:30:00Z", True),
        ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00.000000000Z", True),
        ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00.000000001Z", False),
        ("0000-12-31T23:00:00Z", "0001-01-01T00:00:00+01:00", True),
        ("9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59Z", False),
    ],
)
def test_an_instant_is_compared_to_the_nanosecond(one: str, other: str, is_same: bool) -> None:
    assert (read_instant(one) == read_instant(other)) is is_same

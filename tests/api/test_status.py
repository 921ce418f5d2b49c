"""How a status is read and written."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import ValidationError

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.crd import render_object_schema
from controller.api.situations import Phase
from controller.api.terminal import (
    UNKNOWN_CONDITIONS,
    ActivityStatus,
    Condition,
    ExitStatus,
    GatewayStatus,
    HoldStatus,
    KillStatus,
    KillTrigger,
    LaunchIntent,
    LeftoverProcess,
    LeftoversResult,
    LeftoversStatus,
    ObjectUnreadable,
    Origin,
    SeenExit,
    SessionEnd,
    SessionStatus,
    SocketStatus,
    SpriteStatus,
    TerminalStatus,
    read_status,
    render_status,
)

NOON = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)

FULL = TerminalStatus(
    observed_generation=7,
    phase=Phase.EXITED,
    session=SessionStatus(
        id="812",
        created=NOON,
        sprite_id="sp-1",
        origin=Origin.LAUNCHED,
        launch_intent=LaunchIntent(nonce="n", requested_time=NOON, sprite_id="sp-1"),
        ended=SessionEnd(reason=Reason.REAPED, time=NOON, generation=6, attached=True, socket_id=""),
    ),
    sprite=SpriteStatus(id="sp-1", state="running", since=NOON),
    activity=ActivityStatus(last_time=NOON, observable=True),
    detached_time=NOON,
    hold=HoldStatus(task="t", since=NOON, cause="Viewer", expiry_time=NOON),
    socket=SocketStatus(uid="u", epoch=6, socket_id="at1.6.i.r", incarnation="i", since=NOON),
    kill=KillStatus(
        trigger=KillTrigger.REAPED,
        signal="SIGKILL",
        verdict="Complete",
        proof="SessionList",
        sprite_id="sp-1",
        requested_time=NOON,
        settled_time=NOON,
        confirmed_time=NOON,
        attempts=2,
        message="A sentence.",
        leftovers=LeftoversStatus(
            result=LeftoversResult.FOUND, count=1, processes=(LeftoverProcess(pid=57, name="sleep"),)
        ),
    ),
    last_handled_reconcile_at="2026",
    gateways=(
        GatewayStatus(
            incarnation="i",
            viewers=2,
            activity_time=NOON,
            exit=SeenExit(session_id="41", sprite_id="sp-1", created=NOON, code=-9),
        ),
        GatewayStatus(incarnation="j"),
    ),
    exit=ExitStatus(code=-9),
    conditions=tuple(
        Condition(
            type=kind,
            status=ConditionStatus.TRUE,
            reason=Reason.REAPED,
            message="m",
            last_transition_time=NOON,
            observed_generation=7,
        )
        for kind in ConditionType
    ),
)
"""A status with every field."""


def test_a_status_comes_back_as_it_was_written() -> None:
    written = json.loads(json.dumps(render_status(FULL)))
    assert read_status(written) == FULL
    assert render_status(read_status(written)) == written


def test_the_full_status_has_every_field_of_the_schema() -> None:
    assert _find_fields(render_status(FULL)) == _find_declared(render_object_schema()["properties"]["status"])


def test_a_finding_of_another_version_reads_as_not_known() -> None:
    status = read_status({"kill": {"trigger": "Deleted", "leftovers": {"result": "HalfOfThem"}}})

    assert status.kill is not None
    assert status.kill.leftovers == LeftoversStatus(result=LeftoversResult.NOT_KNOWN)


def test_nothing_reads_as_nothing_seen() -> None:
    status = read_status(None)
    assert read_status({}) == status
    assert (status.observed_generation, status.phase) == (-1, Phase.PENDING)
    assert status.conditions == UNKNOWN_CONDITIONS
    assert {condition.status for condition in status.conditions} == {ConditionStatus.UNKNOWN}


def test_a_missing_condition_reads_as_unknown_and_the_order_is_always_the_same() -> None:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    foreign = {**ready, "type": "Painted"}
    held = {**ready, "type": "Held"}
    status = read_status({"conditions": [held, foreign, ready]})
    assert [condition.type for condition in status.conditions] == list(ConditionType)
    assert {condition.type for condition in status.conditions if condition.status is ConditionStatus.TRUE} == {
        ConditionType.READY,
        ConditionType.HELD,
    }


def test_a_phase_of_another_version_reads_as_pending() -> None:
    assert read_status({"phase": "Dreaming"}).phase is Phase.PENDING
    assert read_status({"phase": "Held"}).phase is Phase.HELD


def test_a_reason_of_another_version_is_kept_as_it_is() -> None:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Painted",
        "message": "",
        "lastTransitionTime": "2026-01-31T12:00:00Z",
    }
    assert read_status({"conditions": [ready]}).conditions[0].reason == "Painted"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"observedGeneration": "7"}, "status.observedGeneration"),
        ({"kill": {}}, "status.kill.trigger"),
        ({"kill": {"trigger": "Boredom"}}, "status.kill.trigger"),
        ({"detachedTime": "noon"}, "status.detachedTime"),
        ({"conditions": [{"type": "Ready"}]}, "status.conditions[0].status"),
        ({"gateways": [{"viewers": 1}]}, "status.gateways[0].incarnation"),
        ({"conditions": "none"}, "status.conditions"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_field(bad: dict[str, Any], field: str) -> None:
    with pytest.raises(ObjectUnreadable) as told:
        read_status(bad)
    assert told.value.path == field


def test_times_are_utc_with_z_and_keep_their_fraction() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    written = render_status(TerminalStatus(detached_time=elsewhere))
    assert written["detachedTime"] == "2026-01-31T12:00:00.123456Z"
    assert (
        render_status(TerminalStatus(detached_time=NOON.replace(microsecond=0)))["detachedTime"]
        == "2026-01-31T12:00:00Z"
    )
    assert read_status({"detachedTime": "2026-01-31T17:30:00.123456789+05:30"}).detached_time == NOON


def test_conditions_carry_whole_seconds_in_memory_as_well() -> None:
    condition = FULL.conditions[0]
    assert condition.last_transition_time == NOON.replace(microsecond=0)
    assert render_status(FULL)["conditions"][0]["lastTransitionTime"] == "2026-01-31T12:00:00Z"


def test_what_is_none_is_left_out_and_what_is_empty_is_not() -> None:
    ended = SessionEnd(reason=Reason.LOST, time=NOON, generation=1, socket_id="")
    written = render_status(TerminalStatus(session=SessionStatus(ended=ended)))
    assert written.keys() == {"observedGeneration", "phase", "session", "conditions"}
    assert written["session"]["ended"]["socketId"] == ""
    assert "observedGeneration" not in written["conditions"][0]


def test_a_time_without_zone_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValidationError):
        TerminalStatus(detached_time=NOON.replace(tzinfo=None))


def test_a_status_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError):
        FULL.phase = Phase.LOST


def _find_fields(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {name for key, entry in value.items() for name in _find_fields(entry, f"{path}.{key}")}
    if isinstance(value, list):
        return {name for entry in value for name in _find_fields(entry, f"{path}[]")}
    return {path}


def _find_declared(node: dict[str, Any], path: str = "") -> set[str]:
    if "properties" in node:
        return {name for key, field in node["properties"].items() for name in _find_declared(field, f"{path}.{key}")}
    if "items" in node:
        return _find_declared(node["items"], f"{path}[]")
    return {path}

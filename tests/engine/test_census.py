"""The census: what the objects are in, from their states alone, and nothing left of those that are gone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.names import FINALIZER
from controller.api.situations import Situation
from controller.engine.census import Census
from controller.engine.registry import Snapshot
from controller.metrics import KillStage
from tests.engine.clocks import HandClock

BORN = "2026-11-30T12:00:00Z"
LATER = "2026-11-30T12:10:00Z"


def conditions(reason: str, since: str = BORN, **statuses: str) -> list[dict[str, Any]]:
    told = {"Reconciling": "False", **statuses}
    return [
        {"type": kind, "status": status, "reason": reason, "lastTransitionTime": since} for kind, status in told.items()
    ]


def snapshot(
    name: str = "one",
    *,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    deleted: bool = False,
) -> Snapshot:
    metadata: dict[str, Any] = {
        "uid": name,
        "namespace": "team",
        "name": name,
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": BORN,
        "finalizers": [FINALIZER],
    }
    if deleted:
        metadata["deletionTimestamp"] = LATER
    return Snapshot.of({"metadata": metadata, "spec": spec or {}, "status": status or {}})


def take(census: Census, word: Snapshot) -> None:
    census.put(word, word.spec(), word.status())


@pytest.fixture
def clock() -> HandClock:
    clock = HandClock()
    clock.passed = datetime(2026, 11, 30, 13, 0, tzinfo=UTC) - clock.now()
    return clock


@pytest.fixture
def census(clock: HandClock) -> Census:
    census = Census(clock, names=2)
    census.open()
    return census


def test_who_stands_by_counts_nothing_so_that_a_sum_over_all_replicas_is_true(clock: HandClock) -> None:
    census = Census(clock, names=2)
    take(census, snapshot(status={"conditions": conditions("Lost", Ready="False")}, deleted=True))

    assert not census.count_situations()
    assert not census.count_conditions()
    assert not census.count_kills()
    assert census.measure_oldest_kill() == timedelta(0)
    assert census.list_stuck() == []


def test_objects_are_counted_by_situation_and_by_the_status_of_each_condition(census: Census) -> None:
    take(census, snapshot("one", status={"conditions": conditions("Running", Ready="True")}))
    take(census, snapshot("two", status={"conditions": conditions("Lost", Ready="False", Stalled="True")}))

    assert census.count_situations() == {Situation.RUNNING: 1, Situation.LOST: 1}
    counts = census.count_conditions()
    assert counts[ConditionType.READY, ConditionStatus.TRUE] == 1
    assert counts[ConditionType.STALLED, ConditionStatus.TRUE] == 1
    assert counts[ConditionType.TERMINATED, ConditionStatus.UNKNOWN] == 2


def test_an_object_that_is_gone_leaves_nothing_behind(census: Census) -> None:
    take(census, snapshot(status={"conditions": conditions("Lost", Ready="False")}, deleted=True))

    census.drop("one")

    assert not census.count_situations()
    assert not census.count_kills()
    assert census.list_stuck() == []


def test_a_word_that_this_version_does_not_know_counts_as_not_yet_looked_at(census: Census) -> None:
    take(census, snapshot(status={"conditions": conditions("FromTheFuture", Ready="Perhaps")}))

    assert census.count_situations() == {Situation.PENDING: 1}
    assert census.count_conditions()[ConditionType.READY, ConditionStatus.UNKNOWN] == 1


@pytest.mark.parametrize(
    ("spec", "status", "deleted", "stage"),
    [
        ({}, {}, False, None),
        ({}, {}, True, KillStage.ASKED),
        ({"deletionPolicy": "Orphan"}, {}, True, None),
        ({"terminated": True}, {}, False, KillStage.ASKED),
        ({"terminated": True}, {"kill": {"settledTime": LATER}}, False, KillStage.SETTLED),
        ({"terminated": True}, {"conditions": conditions("Confirmed", Terminated="True")}, False, None),
        ({"terminated": True}, {"conditions": conditions("KillOwed", Terminated="False")}, False, KillStage.OWED),
        ({}, {"kill": {"requestedTime": LATER}}, False, KillStage.ASKED),
        ({}, {"kill": {"requestedTime": LATER, "proof": "SessionList"}}, False, None),
        ({}, {"kill": {"requestedTime": LATER}, "conditions": conditions("ReapOwed")}, False, KillStage.OWED),
    ],
)
def test_a_kill_is_open_from_its_question_to_its_proof(
    census: Census, spec: dict[str, Any], status: dict[str, Any], deleted: bool, stage: KillStage | None
) -> None:
    take(census, snapshot(spec=spec, status=status, deleted=deleted))

    assert census.count_kills() == ({} if stage is None else {stage: 1})


def test_the_oldest_kill_counts_from_its_question_whatever_is_written_meanwhile(
    census: Census, clock: HandClock
) -> None:
    take(census, snapshot("asked", spec={"terminated": True}))
    clock.passed += timedelta(minutes=1)
    take(census, snapshot("asked", spec={"terminated": True}))
    assert census.measure_oldest_kill() == timedelta(minutes=1)

    take(census, snapshot("recorded", status={"kill": {"requestedTime": LATER}}))
    assert census.measure_oldest_kill() == timedelta(minutes=51)

    take(census, snapshot("recorded", status={"kill": {"requestedTime": LATER, "proof": "SessionList"}}))
    assert census.measure_oldest_kill() == timedelta(minutes=1)


def test_a_kill_that_is_owed_by_a_paused_sprite_is_counted_and_does_not_age(census: Census) -> None:
    status = {"kill": {"requestedTime": BORN}, "conditions": conditions("KillOwed")}

    take(census, snapshot(spec={"terminated": True}, status=status))

    assert census.count_kills() == {KillStage.OWED: 1}
    assert census.measure_oldest_kill() == timedelta(0)


def test_those_that_have_waited_longest_are_named_and_no_more_than_may_be(census: Census) -> None:
    for name, minute in (("new", 30), ("old", 10), ("older", 5)):
        since = f"2026-11-30T12:{minute:02}:00Z"
        take(census, snapshot(name, status={"conditions": conditions("Lost", since, Ready="False")}))
    take(census, snapshot("well", status={"conditions": conditions("Running", Ready="True")}))
    take(census, snapshot("resting", status={"conditions": conditions("Suspended", Ready="False")}))

    stuck = census.list_stuck()

    assert [(one.name, one.duration) for one in stuck] == [
        ("older", timedelta(minutes=55)),
        ("old", timedelta(minutes=50)),
    ]
    assert {(one.namespace, one.reason) for one in stuck} == {("team", Situation.LOST)}


def test_one_that_nobody_has_looked_at_waits_since_its_creation(census: Census) -> None:
    epoch = "1970-01-01T00:00:00Z"

    take(census, snapshot(status={"conditions": conditions("Pending", epoch, Ready="Unknown")}))

    assert [one.duration for one in census.list_stuck()] == [timedelta(hours=1)]


def test_where_nobody_is_to_be_named_nobody_is(clock: HandClock) -> None:
    census = Census(clock, names=0)
    census.open()

    take(census, snapshot(status={"conditions": conditions("Lost", Ready="False")}))

    assert census.list_stuck() == []
    assert census.count_situations() == {Situation.LOST: 1}

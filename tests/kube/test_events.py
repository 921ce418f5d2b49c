"""Events tell without standing in the way: aggregated, bounded, and never a reason to stop."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.conditions import Reason
from controller.kube.errors import Conflict, Forbidden, KubeError, NotFound, ServerFault, Throttled, Unreachable
from controller.kube.events import EventCounts, EventRecorder, EventSettings, EventType, ObjectRef, cut_note
from controller.tenure import Tenure
from tests.kube.doubles import HandClock

ONE = ObjectRef("team-a", "one", "uid-1")
MINUTE = timedelta(minutes=1)


class Writer:
    """Keeps what it is given, and fails as it is told."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[KubeError] = []
        self.tries = 0

    async def create_event(self, namespace: str, event: Mapping[str, Any], *, tenure: Tenure) -> object:
        self._try(tenure)
        assert namespace == event["metadata"]["namespace"]
        self.created.append(dict(event))
        return event

    async def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure) -> object:
        self._try(tenure)
        self.patched.append((name, dict(patch)))
        return patch

    def _try(self, tenure: Tenure) -> None:
        tenure.demand()
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)


class World:
    """A recorder, its clock and its writer."""

    def __init__(self, **settings: Any) -> None:
        self.clock = HandClock()
        self.writer = Writer()
        self.recorder = EventRecorder(
            self.writer, self.clock, reporting_instance="operator-0", settings=EventSettings(**settings)
        )

    def record(
        self, regarding: ObjectRef = ONE, *, reason: Reason = Reason.KILL_FAILED, note: str = "The kill failed."
    ) -> None:
        self.recorder.record(regarding, type=EventType.WARNING, reason=reason, action="Kill", note=note)

    @asynccontextmanager
    async def running(self, tenure: Tenure | None = None) -> AsyncIterator[None]:
        task = asyncio.get_running_loop().create_task(self.recorder.run(tenure or Tenure(1)))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def settle(self) -> None:
        async with asyncio.timeout(10):
            await self.recorder.drain()


async def test_an_event_says_who_what_and_why() -> None:
    world = World()
    async with world.running():
        world.record()
        await world.settle()
    [event] = world.writer.created
    name = event.pop("metadata")["name"]
    assert name.startswith("one.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-01T12:00:00.000000Z",
        "reportingController": "agentterminal.dev/operator",
        "reportingInstance": "operator-0",
        "action": "Kill",
        "reason": "KillFailed",
        "type": "Warning",
        "note": "The kill failed.",
        "regarding": {
            "apiVersion": "agentterminal.dev/v1alpha1",
            "kind": "AgentTerminal",
            "namespace": "team-a",
            "name": "one",
            "uid": "uid-1",
        },
    }
    assert world.recorder.counts == EventCounts(written=1)


async def test_what_comes_again_within_ten_minutes_becomes_a_series() -> None:
    world = World()
    async with world.running():
        for _ in range(3):
            world.record()
            await world.settle()
            world.clock.passed += 10 * MINUTE
    [event] = world.writer.created
    assert world.writer.patched == [
        (event["metadata"]["name"], {"series": {"count": 2, "lastObservedTime": "2026-01-01T12:10:00.000000Z"}}),
        (event["metadata"]["name"], {"series": {"count": 3, "lastObservedTime": "2026-01-01T12:20:00.000000Z"}}),
    ]


async def test_what_comes_again_later_is_a_new_event() -> None:
    world = World()
    async with world.running():
        world.record()
        await world.settle()
        world.clock.passed += 10 * MINUTE + timedelta(microseconds=1)
        world.record()
        await world.settle()
    first, second = world.writer.created
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert world.writer.patched == []


@pytest.mark.parametrize(
    "other",
    [
        {"regarding": replace(ONE, uid="uid-2")},
        {"reason": Reason.STILL_LISTED},
        {"note": "The kill failed again."},
    ],
)
async def test_what_differs_is_an_event_of_its_own(other: dict[str, Any]) -> None:
    world = World()
    async with world.running():
        world.record()
        world.record(**other)
        await world.settle()
    assert len({event["metadata"]["name"] for event in world.writer.created}) == 2


async def test_what_came_again_before_it_was_written_is_written_once() -> None:
    world = World()
    for _ in range(5):
        world.record()
        world.clock.passed += timedelta(seconds=1)
    async with world.running():
        await world.settle()
    [event] = world.writer.created
    assert event["series"] == {"count": 5, "lastObservedTime": "2026-01-01T12:00:04.000000Z"}
    assert event["eventTime"] == "2026-01-01T12:00:00.000000Z"
    assert world.writer.patched == []


async def test_one_object_writes_a_burst_and_then_one_a_minute() -> None:
    world = World(burst=3)
    async with world.running():
        for number in range(10):
            world.record(note=f"Try {number}.")
        world.record(replace(ONE, uid="uid-2"))
        await world.settle()
        assert len(world.writer.created) == 4
        world.clock.passed += 2 * MINUTE
        for number in range(10):
            world.record(note=f"Later try {number}.")
        await world.settle()
    assert len(world.writer.created) == 6
    assert world.recorder.counts == EventCounts(written=6, dropped=15)


async def test_a_count_that_the_rate_held_back_is_told_with_the_next_write() -> None:
    world = World(burst=1)
    async with world.running():
        for _ in range(4):
            world.record()
            await world.settle()
        world.clock.passed += MINUTE
        world.record()
        await world.settle()
    assert [patch["series"]["count"] for _, patch in world.writer.patched] == [5]


async def test_a_full_queue_drops_and_counts() -> None:
    world = World(queue_events=2)
    for number in range(5):
        world.record(replace(ONE, uid=f"uid-{number}"))
    assert world.recorder.counts == EventCounts(dropped=3)
    async with world.running():
        await world.settle()
    assert len(world.writer.created) == 2


async def test_series_beyond_those_that_are_kept_are_forgotten_not_kept_for_ever() -> None:
    world = World(series_kept=2)
    async with world.running():
        for number in range(5):
            world.record(replace(ONE, uid=f"uid-{number}"))
            await world.settle()
    assert len(world.recorder._series) == 2
    assert len(world.recorder._allowances) == 2


@pytest.mark.parametrize("failure", [Forbidden("no"), NotFound("no")])
async def test_a_refused_event_is_counted_and_the_next_one_is_written(failure: KubeError) -> None:
    world = World()
    world.writer.failures = [failure]
    async with world.running():
        world.record()
        world.record(note="Another.")
        await world.settle()
    assert [event["note"] for event in world.writer.created] == ["Another."]
    assert world.recorder.counts == EventCounts(written=1, failed=1)


async def test_a_passing_failure_is_tried_again_after_the_wait_that_was_asked_for() -> None:
    world = World()
    world.writer.failures = [Throttled("slow", retry_after=timedelta(seconds=7)), ServerFault("oh")]
    async with world.running():
        world.record()
        await world.settle()
    assert len(world.writer.created) == 1
    assert world.clock.slept == [timedelta(seconds=7), timedelta(seconds=1)]


async def test_a_lasting_failure_is_given_up_after_three_tries() -> None:
    world = World()
    world.writer.failures = [Unreachable("no")] * 3
    async with world.running():
        world.record()
        await world.settle()
    assert world.writer.tries == 3
    assert world.recorder.counts == EventCounts(failed=1)


async def test_an_event_that_had_been_created_all_the_same_is_written() -> None:
    world = World()
    world.writer.failures = [Unreachable("lost", may_have_happened=True), Conflict("exists")]
    async with world.running():
        world.record()
        await world.settle()
        world.record()
        await world.settle()
    assert world.recorder.counts == EventCounts(written=2)
    assert [patch["series"]["count"] for _, patch in world.writer.patched] == [2]


async def test_a_series_whose_event_has_expired_begins_anew() -> None:
    world = World()
    async with world.running():
        world.record()
        await world.settle()
        world.writer.failures = [NotFound("expired")]
        world.record()
        await world.settle()
    first, second = world.writer.created
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert "series" not in second


async def test_nothing_is_written_after_the_tenure_ended() -> None:
    world = World()
    tenure = Tenure(1)
    tenure.end()
    async with world.running(tenure):
        world.record()
        await world.settle()
    assert world.writer.tries == 0
    assert world.recorder.counts == EventCounts(failed=1)


@pytest.mark.parametrize("name", ["x" * 253, "x" * 219 + "-" * 10 + "x", "a.b-c"])
async def test_the_events_name_is_a_name_whatever_the_objects_is(name: str) -> None:
    world = World()
    async with world.running():
        world.record(replace(ONE, name=name))
        await world.settle()
    made = world.writer.created[0]["metadata"]["name"]
    assert len(made) <= 253
    assert all(part and part[0] != "-" and part[-1] != "-" for part in made.split("."))


@given(st.text(max_size=2_000))
def test_a_note_is_cut_to_1024_bytes_and_never_inside_a_character(note: str) -> None:
    cut = cut_note(note)
    assert len(cut.encode()) <= 1_024
    assert note.encode("utf-8", "replace").decode().startswith(cut)


def test_a_note_that_fits_is_not_cut() -> None:
    assert cut_note("ä" * 512) == "ä" * 512
    assert cut_note("x" + "ä" * 512) == "x" + "ä" * 511

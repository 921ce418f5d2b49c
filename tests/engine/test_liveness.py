"""Whether the process is worth keeping: one row for each reason, and the loop's own lateness."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from controller.engine.liveness import (
    Bad,
    Good,
    LivenessFacts,
    LoopLag,
    PumpState,
    TenureState,
    judge_liveness,
    judge_readiness,
)
from controller.engine.settings import EngineSettings, LivenessSettings
from tests.engine.clocks import HandClock

WELL = LivenessFacts(PumpState.RUNNING, timedelta(0), timedelta(0), TenureState.HELD)
SETTINGS = LivenessSettings()
TICK = timedelta(microseconds=1)


@pytest.mark.parametrize(
    "facts",
    [
        WELL,
        replace(WELL, tenure=TenureState.NONE),
        replace(WELL, pump=PumpState.LISTING),
        replace(WELL, watch_lag=SETTINGS.watch_lag_max),
        replace(WELL, loop_lag=SETTINGS.loop_lag_max),
    ],
)
def test_it_is_well_up_to_each_limit(facts: LivenessFacts) -> None:
    assert judge_liveness(facts, SETTINGS) == Good("This process is well.")


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (replace(WELL, pump=PumpState.ENDED), "The event pump has ended: objects are not watched any more."),
        (
            replace(WELL, tenure=TenureState.OVERDUE),
            "This process does not lead any more, and should have ended.",
        ),
        (
            replace(WELL, watch_lag=timedelta(seconds=190)),
            "The watch is 190 s behind the API server, more than 180 s.",
        ),
        (replace(WELL, loop_lag=timedelta(seconds=31)), "The event loop was 31 s late, more than 30 s."),
    ],
)
def test_each_reason_to_start_anew_is_a_sentence(facts: LivenessFacts, sentence: str) -> None:
    assert judge_liveness(facts, SETTINGS) == Bad(sentence)


@pytest.mark.parametrize("limit", ["watch_lag", "loop_lag"])
def test_a_tick_beyond_a_limit_is_too_late(limit: str) -> None:
    late = LivenessFacts(
        PumpState.RUNNING,
        SETTINGS.watch_lag_max + TICK if limit == "watch_lag" else timedelta(0),
        SETTINGS.loop_lag_max + TICK if limit == "loop_lag" else timedelta(0),
        TenureState.HELD,
    )
    assert isinstance(judge_liveness(late, SETTINGS), Bad)


@pytest.mark.parametrize(
    ("pump", "is_ready"), [(PumpState.LISTING, False), (PumpState.RUNNING, True), (PumpState.ENDED, False)]
)
@pytest.mark.parametrize("tenure", [TenureState.NONE, TenureState.HELD])
def test_it_is_ready_when_all_was_seen_whether_it_leads_or_not(
    pump: PumpState, tenure: TenureState, is_ready: bool
) -> None:
    assert isinstance(judge_readiness(replace(WELL, pump=pump, tenure=tenure)), Good) is is_ready


def test_a_standby_says_that_it_stands_by() -> None:
    verdict = judge_readiness(replace(WELL, tenure=TenureState.NONE))

    assert verdict == Good("Standing by: all objects were seen, and this process does not lead.")


class LateClock(HandClock):
    """A clock whose sleeps last longer than asked for, by what the test says, and whose last sleep never ends."""

    def __init__(self, *late: float) -> None:
        super().__init__()
        self._late = [timedelta(seconds=seconds) for seconds in late]
        self.slept_all = asyncio.Event()

    async def sleep(self, delay: timedelta) -> None:
        if not self._late:
            self.slept_all.set()
            await asyncio.Event().wait()
        self.passed += delay + self._late.pop(0)


async def sampled(clock: LateClock) -> tuple[LoopLag, list[float]]:
    samples: list[float] = []
    lag = LoopLag(clock, SETTINGS, lambda late: samples.append(late.total_seconds()))
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        running = group.create_task(lag.run())
        await clock.slept_all.wait()
        running.cancel()
    return lag, samples


async def test_the_worst_lateness_is_remembered_after_the_loop_has_recovered() -> None:
    lag, samples = await sampled(LateClock(0, 31, 0, 2))
    assert samples == [0, 31, 0, 2]
    assert lag.worst == timedelta(seconds=31)


async def test_a_process_that_stood_still_says_so_and_for_how_long(caplog: pytest.LogCaptureFixture) -> None:
    await sampled(LateClock(4.9, 30, 0))

    (record,) = caplog.records
    assert record.getMessage().startswith("This process stood still: ")
    assert vars(record)["seconds"] == 30


async def test_it_is_forgotten_after_its_window() -> None:
    clock = LateClock(31, 0, 2)
    lag, _ = await sampled(clock)
    clock.passed += SETTINGS.loop_lag_window - timedelta(seconds=1)
    assert lag.worst == timedelta(seconds=2)
    clock.passed += timedelta(seconds=2)
    assert lag.worst == timedelta(0)


async def test_a_loop_that_was_never_sampled_is_not_late() -> None:
    assert LoopLag(HandClock(), SETTINGS, lambda _: None).worst == timedelta(0)


def test_engine_settings_that_would_fail_a_healthy_watch_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^liveness\.watch_lag_max must be longer than resync\.grace"):
        EngineSettings(liveness=LivenessSettings(watch_lag_max=timedelta(seconds=60)))


def test_all_faults_of_the_settings_are_told_at_once() -> None:
    with pytest.raises(
        ValueError, match=r"^workers must be at least 1\. metadata_interval must be longer than zero\.$"
    ):
        EngineSettings(workers=0, metadata_interval=timedelta(0))

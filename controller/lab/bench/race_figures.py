"""How long the race goes on at each size, and which figures come of it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import assert_never

from controller.lab.bench.loads import find_percentile
from controller.lab.bench.race import Fault, Outcome, RaceSize
from controller.lab.bench.race_people import Pace
from controller.lab.bench.sizes import SizeName


def build_race_size(name: SizeName) -> RaceSize:
    """Say how long it goes on."""
    match name:
        case SizeName.SMALL:
            return RaceSize(
                terminals=1,
                inputs=500,
                faults=(Fault.WATCHES, Fault.HANG),
                pace=Pace(burst=5, pause=timedelta(milliseconds=10), stay=timedelta(milliseconds=200)),
                patch_every=timedelta(milliseconds=400),
                calm=timedelta(0),
                within=timedelta(seconds=100),
            )
        case SizeName.FULL:
            return RaceSize(
                terminals=2,
                inputs=1_000_000,
                faults=tuple(Fault),
                pace=Pace(burst=25, pause=timedelta(milliseconds=10), stay=timedelta(seconds=1)),
                patch_every=timedelta(seconds=1),
                calm=timedelta(seconds=10),
                within=timedelta(hours=1),
            )
        case _:
            assert_never(name)


def measure_race(outcome: Outcome, took: timedelta) -> Mapping[str, float]:
    """Give the figures of a race by their keys."""
    verdict = outcome.verdict
    figures: dict[str, float] = {
        "race_s": took.total_seconds(),
        "race_inputs": verdict.inputs,
        "race_violations": verdict.violations,
        "race_late_frames": verdict.late,
        "race_late_outside_tenure": verdict.late_outside_tenure,
        "race_late_over_cap": verdict.late_over_cap,
        "race_strangers": verdict.strangers,
        "race_disordered": verdict.disordered,
        "race_unread": outcome.missing,
        "race_unmatched_locks": outcome.unmatched,
        "race_stuck": outcome.stuck,
        "race_takeovers": outcome.locks,
        "race_writes_per_takeover": outcome.writes / max(1, outcome.locks),
        **{f"race_fault_{name}": times for name, times in outcome.faults.items()},
    }
    for kind, times in outcome.takeovers.items():
        figures[f"race_takeovers_{kind.value}"] = len(times)
        if times:
            for percent in (50, 99):
                figures[f"race_takeover_{kind.value}_p{percent}_s"] = find_percentile(times, percent).total_seconds()
    return figures

"""A bench from its beginning to its end: stages are built, scenarios run in their order, figures gathered."""

import platform
from collections.abc import Collection
from datetime import timedelta
from os import cpu_count
from typing import Any, Final, assert_never

from controller.lab.bench.kernel import read_processor
from controller.lab.bench.meter import DISTURBED
from controller.lab.bench.scenarios import Bench
from controller.lab.bench.sizes import Scenario, Size, SizeName
from controller.lab.bench.stage import Stage, StageSettings
from controller.lab.binaries import Binaries, Progress

NEEDS_ADOPTED: Final = frozenset({Scenario.REST, Scenario.KILL, Scenario.DELETE})


async def run_bench(
    binaries: Binaries,
    settings: StageSettings,
    size: Size,
    scenarios: Collection[Scenario],
    progress: Progress,
    *,
    quiet_within: timedelta = timedelta(),
) -> dict[str, Any]:
    """
    Measure, and give the figures by their keys.

    Args:
        binaries: Of the control plane.
        settings: What a stage is made of.
        size: How much is measured.
        scenarios: What is measured; what these need before them is measured as well.
        progress: Where it is told what happens.
        quiet_within: How long to wait before each measurement for others to leave the cores alone.

    Raises:
        BenchFailed: A part ended, or something did not come about in time.
    """
    wanted = set(scenarios) | ({Scenario.ADOPT} if NEEDS_ADOPTED & set(scenarios) else set())
    figures: dict[str, Any] = {
        "size": size.name.value,
        "started_time": settings.clock.now().isoformat(timespec="seconds"),
        "processor": read_processor(),
        "cores": cpu_count() or 0,
        "python": platform.python_version(),
        "sessions": "records without processes",
        "objects": size.objects,
        "sprites": size.sprites,
        "kills": size.kills,
        "launches": size.launches,
        "many_objects": size.many_objects,
        "many_sprites": size.many_sprites,
    }
    for together in split_by_stage(wanted, size):
        progress.tell("A control plane and an emulator start.")
        async with Stage(binaries, settings) as stage:
            bench = Bench(stage, size, progress, settings.clock, quiet_within=quiet_within)
            steps = {
                Scenario.ADOPT: bench.adopt,
                Scenario.REST: bench.rest,
                Scenario.KILL: bench.kill,
                Scenario.DELETE: bench.delete,
                Scenario.LAUNCH: bench.launch,
                Scenario.HOLD: bench.hold,
                Scenario.STREAMS: bench.streams,
                Scenario.RACE: bench.race,
                Scenario.MANY: bench.many,
            }
            async with bench.following():
                for scenario in Scenario:
                    if scenario in together:
                        figures |= await steps[scenario]()
    shares = [value for key, value in figures.items() if key.startswith("others_cpu_share_")]
    figures["others_cpu_share"] = max(shares, default=0.0)
    return figures


def split_by_stage(wanted: set[Scenario], size: Size) -> list[set[Scenario]]:
    """
    Say which scenarios share a control plane.

    At the full size the largest has one of its own: what the API server still remembers of the others would cost it.
    So has the race, whose gateways see every object that there is.
    """
    match size.name:
        case SizeName.SMALL:
            groups = [wanted]
        case SizeName.FULL:
            apart = ({Scenario.RACE}, {Scenario.MANY})
            groups = [wanted.difference(*apart), *(wanted & alone for alone in apart)]
        case _:
            assert_never(size.name)
    return [group for group in groups if group]


def list_disturbed(figures: dict[str, Any]) -> list[str]:
    """Say which figures others have disturbed."""
    prefix = "others_cpu_share_"
    return [
        f"Other processes took {value:.2f} core during `{key.removeprefix(prefix)}`: its figures are disturbed."
        for key, value in figures.items()
        if key.startswith(prefix) and value > DISTURBED
    ]

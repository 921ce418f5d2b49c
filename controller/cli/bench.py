"""`agentterminal bench`: what the operator costs, measured on a real API server on this machine."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import uvloop
from rich.console import Console

from controller.cli.worlds import GATEWAY_RULES, RULES
from controller.clock import SystemClock
from controller.lab.bench import (
    Scenario,
    Size,
    SizeName,
    StageSettings,
    build_size,
    list_disturbed,
    render_json,
    render_report,
    run_bench,
)
from controller.lab.binaries import Progress, build_progress, find_binaries, read_binaries_settings
from controller.lab.processes import run_until_signalled
from controller.lab.rights import read_gateway_rules, read_rules
from controller.settings import environment, read_cache_folder

_COMMAND: Final = (sys.executable, "-P", "-m", "controller.cli.main")
"""-P: a folder that happens to be called `controller` where we were started is not ours."""

_PAGE_WIDTH: Final = 120
"""Of a table that goes to no terminal."""


@click.command(name="bench")
@click.option(
    "--size",
    "size_name",
    type=click.Choice([name.value for name in SizeName]),
    default=SizeName.FULL.value,
    show_default=True,
    help="full takes half an hour and is what the bars are about; small shows in a minute that it works.",
)
@click.option(
    "--scenario",
    "scenarios",
    type=click.Choice([scenario.value for scenario in Scenario]),
    multiple=True,
    help="Measure only this, and what has to come before it. May be repeated.  [default: all]",
)
@click.option(
    "--objects",
    type=click.IntRange(10, 5_000),
    help="So many objects adopt, as many launch, and ten times as many are the largest scenario.",
)
@click.option(
    "--quiet-seconds",
    type=click.IntRange(0, 3_600),
    default=0,
    show_default=True,
    help="Wait up to so long before each measurement until other processes leave the cores alone.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("build/bench.json"),
    show_default=True,
    help="Where the figures go, as one flat JSON object.",
)
def bench_command(
    *, size_name: str, scenarios: tuple[str, ...], objects: int | None, quiet_seconds: int, output: Path
) -> int:
    """
    Measure the operator on a real API server, with sessions that are records without processes.

    Prints a table beside the bars and what others reach, and writes the figures as JSON. What each figure means is told
    in docs/performance.md. Everything runs on this machine: what else runs here disturbs the figures, and that is said.

    Exit code: 0 when it was measured, whatever came out; 1 when it could not be; 130 (Ctrl-C), 143 (SIGTERM) or 129
    (hang-up) when it was ended before.
    """
    size = build_size(SizeName(size_name), objects)
    progress = build_progress()
    figures: dict[str, Any] = {}

    async def work() -> None:
        wanted = [Scenario(name) for name in scenarios] or list(Scenario)
        figures.update(await _measure(size, wanted, progress, timedelta(seconds=quiet_seconds)))

    received = uvloop.run(run_until_signalled(work()))
    if received is not None:
        return 128 + received
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(render_json(figures))
    console = Console()
    render_report(console if console.is_terminal else Console(width=_PAGE_WIDTH), figures, size)
    for sentence in list_disturbed(figures):
        click.echo(sentence, err=True)
    click.echo(f"The figures are in {output}.")
    return 0


async def _measure(size: Size, wanted: list[Scenario], progress: Progress, quiet_within: timedelta) -> dict[str, Any]:
    environ = environment()
    rules, gateway_rules = read_rules(RULES), read_gateway_rules(GATEWAY_RULES)
    binaries = await find_binaries(read_binaries_settings(environ, cache=read_cache_folder(environ)), progress)
    settings = StageSettings(
        operator_command=(*_COMMAND, "operator"),
        gateway_command=(*_COMMAND, "gateway"),
        emulator_command=(*_COMMAND, "sprites-emulator"),
        rules=rules,
        gateway_rules=gateway_rules,
        environment=environ,
        clock=SystemClock(),
    )
    return await run_bench(binaries, settings, size, wanted, progress, quiet_within=quiet_within)

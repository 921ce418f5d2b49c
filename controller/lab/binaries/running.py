"""Run a small program to its end, within a bound."""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from controller.lab.processes import start_child, stop_child


@dataclass(frozen=True)
class Ended:
    """How a program ended; `code` is None where it did not end in time and was killed."""

    code: int | None
    stdout: str
    stderr: str


async def run_bounded(
    command: Sequence[str],
    *,
    within: timedelta,
    environment: Mapping[str, str],
    working_directory: Path | None = None,
) -> Ended:
    """Run a program, and kill it and its children when it takes longer."""
    child = await start_child(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        environment=environment,
        working_directory=working_directory,
    )
    try:
        async with asyncio.timeout(within.total_seconds()):
            output, errors = await child.communicate()
    except TimeoutError:
        return Ended(None, "", "")
    finally:
        await stop_child(child, patience=timedelta(0))
    return Ended(child.returncode, output.decode(errors="replace"), errors.decode(errors="replace"))

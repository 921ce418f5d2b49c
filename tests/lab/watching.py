"""Look at processes from outside, and wait for a condition within a bound."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

SOON_SECONDS = 30.0


async def until(condition: Callable[[], bool], *, within_seconds: float = SOON_SECONDS) -> None:
    """Wait for what another process does, which sends us no event."""
    async with asyncio.timeout(within_seconds):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)


async def until_gone(*processes: int) -> None:
    """Wait until none of them lives."""
    await until(lambda: not any(is_alive(process) for process in processes))


def is_alive(process: int) -> bool:
    """A zombie has ended: whether somebody reaps it is its new parent's business, who may be a container's first."""
    try:
        return read_stat(process)[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def list_children(process: int) -> list[int]:
    """
    The children that a process has now, whichever of its threads started them.

    Asked of every process for its parent: the lists of children under `/proc` are cut short while a thread or a child
    comes to its end (proc_pid_children(5)).
    """
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(read_stat(int(folder.name))[1]) == process:
                found.append(int(folder.name))
    return sorted(found)


def read_stat(process: int) -> list[str]:
    """The words of `/proc/PID/stat` from the third one, the state; the second is in brackets and may be anything."""
    return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()


def read_command(process: int) -> list[str]:
    """The command line of a process; empty for one that has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []

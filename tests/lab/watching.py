"""Look at processes from outside, and wait for a condition within a bound."""

import asyncio
from collections.abc import Callable
from pathlib import Path

SOON_SECONDS = 10.0


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
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def list_children(process: int) -> list[int]:
    """The children that a process has now, whichever of its threads started them."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found


def read_command(process: int) -> list[str]:
    """The command line of a process; empty for one that has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []

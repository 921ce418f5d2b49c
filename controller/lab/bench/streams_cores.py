"""
Who works on which core.

Source: sched_setaffinity(2): it counts for one thread, and for those that the thread starts later.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def split_cores() -> tuple[frozenset[int], frozenset[int]]:
    """Give one core to what is measured and the others to everybody else; of a single core both get it."""
    cores = sorted(os.sched_getaffinity(0))
    return frozenset(cores[-1:]), frozenset(cores[:-1] or cores)


def keep_to(pid: int, cores: Iterable[int]) -> None:
    """Let a process with all its threads work on these cores only."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)


@contextmanager
def keeping_to(pids: Iterable[int], cores: Iterable[int]) -> Iterator[None]:
    """Let some processes, and us, work on these cores only during the body; what we start meanwhile stays there."""
    ours, all_cores = (*pids, os.getpid()), os.sched_getaffinity(0)
    try:
        for pid in ours:
            keep_to(pid, cores)
        yield
    finally:
        for pid in ours:
            with suppress(OSError):
                keep_to(pid, all_cores)

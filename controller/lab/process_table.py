"""
Ask the kernel what lives, so that no proof rests on what a program says about itself.

Problem: a process id alone proves nothing, since the kernel gives it out again. Promise: a process is named by its id
and the moment of its start, and a zombie counts as ended.
Source: proc_pid_stat(5), proc_pid_status(5).
"""

from dataclasses import dataclass
from pathlib import Path
from signal import Signals

_STATE = 0
_START = 19
"""Places in /proc/PID/stat after the command's closing bracket: field 3 and field 22."""


@dataclass(frozen=True, order=True)
class HostProcess:
    """One process of this machine."""

    pid: int
    started_ticks: int
    """Clock ticks since boot."""

    def is_alive(self) -> bool:
        """Tell whether this very process still runs."""
        return find_process(self.pid) == self


def find_process(pid: int) -> HostProcess | None:
    """Find what runs under this id now; None where nothing does."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else HostProcess(pid, int(fields[_START]))


def is_stopped(pid: int) -> bool:
    """
    Tell whether no thread of a process runs: each has stopped, or has ended.

    SIGSTOP is on its way when `kill` returns: 5.6 ms were seen until the last of nine threads stood still.
    """
    return all(_read_state(thread) in "TtZX" for thread in Path(f"/proc/{pid}/task").glob("*"))


def _read_state(thread: Path) -> str:
    try:
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[_STATE]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def is_ignoring(pid: int, number: Signals) -> bool:
    """Tell whether a process ignores a signal; one that has ended ignores nothing."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = [line.partition(":")[2] for line in lines if line.startswith("SigIgn:")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)

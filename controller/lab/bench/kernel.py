"""
What the kernel says a process has cost.

Source: proc(5): /proc/PID/stat (utime, stime in clock ticks), /proc/PID/status (VmHWM, VmRSS in KiB), /proc/stat.
"""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_UTIME: Final = 11
_STIME: Final = 12
"""Places after the command's closing bracket: fields 14 and 15."""
_IDLE: Final = frozenset({3, 4})
"""Places in the first line of /proc/stat: idle and waiting for a disk."""
_COUNTED: Final = 8
"""What comes after these counts guests, who are in `user` already."""


def read_cpu(pid: int) -> timedelta:
    """Tell the CPU time of a process and all its threads since its start, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return timedelta(seconds=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND)


def read_busy() -> timedelta:
    """Tell how long all cores together have worked since boot, for anybody; time that a hypervisor took counts."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1 : 1 + _COUNTED]
    ticks = sum(int(field) for place, field in enumerate(fields) if place not in _IDLE)
    return timedelta(seconds=ticks / _TICKS_PER_SECOND)


def read_peak_mib(pid: int) -> float:
    """Tell the most memory a process has ever had resident. Unit: MiB."""
    return _read_memory_mib(pid, "VmHWM")


def read_resident_mib(pid: int) -> float:
    """Tell the memory a process has resident now. Unit: MiB."""
    return _read_memory_mib(pid, "VmRSS")


def read_processor() -> str:
    """Name the processor of this machine."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    return found[1] if found else "unknown"


def _read_memory_mib(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise ProcessLookupError(f"Process {pid} has ended.")
    return int(found[1]) / 1024

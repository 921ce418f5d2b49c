"""
Which ports the processes of a session listen on, as the host's /proc shows it.

Source: proc(5). A sprite of the emulator shares the machine's network, so ports are those of its own processes only.
"""

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

LISTENS: Final = "0A"
"""The state of a listening socket. Source: the kernel's include/net/tcp_states.h."""


def find_descendants(leader: int, parents: Mapping[int, int]) -> set[int]:
    """Tell which processes descend from a leader, itself included."""

    def descends(pid: int) -> bool:
        seen: set[int] = set()
        while pid != leader and pid in parents and pid not in seen:
            seen.add(pid)
            pid = parents[pid]
        return pid == leader

    return {pid for pid in {*parents, leader} if descends(pid)}


def parse_listening(table: str) -> dict[int, int]:
    """Read a table of TCP sockets: the inode of each that listens, with its port."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {int(row[9]): int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 9 and row[3] == LISTENS}


def read_ports(processes: Iterable[tuple[int, int]]) -> dict[int, int]:
    """
    List the ports that processes listen on, with the inner id of the process.

    Args:
        processes: The host's id and the inner id of each.
    """
    listening: dict[int, int] = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            listening |= parse_listening(Path(f"/proc/net/{name}").read_text())
    found: dict[int, int] = {}
    for host_pid, inner_pid in processes:
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{host_pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    kind, _, inode = str(link.readlink()).partition(":[")
                    if kind == "socket" and (port := listening.get(int(inode.rstrip("]")))) is not None:
                        found.setdefault(port, inner_pid)
    return found

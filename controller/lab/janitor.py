"""
Clean up after a process, however it ends.

Problem: a death signal reaches one process, not what that process started, and no signal removes a folder. Promise:
this script reads a pipe that only its owner holds; when the pipe ends, by the owner's wish or by its death, it kills
the process groups it was told of and removes the folders it was told of. It runs in a session of its own, so that
Ctrl-C at the terminal does not reach it.

Protocol, one line each: `remove PATH`, `end GROUP`, `forget GROUP` (it has been stopped: its number may be given to
somebody else).
"""

import os
import shutil
import signal
import sys
import time

PATIENCE_SECONDS = 10.0
"""For folders that a dying process still writes to."""


def main() -> None:
    """Wait for the owner's end, then leave nothing."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    folders: list[str] = []
    groups: set[int] = set()
    for line in sys.stdin:
        word, _, value = line.rstrip("\n").partition(" ")
        match word:
            case "remove":
                folders.append(value)
            case "end":
                groups.add(int(value))
            case "forget":
                groups.discard(int(value))
            case _:
                # A line that the owner's death cut short.
                continue
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + PATIENCE_SECONDS  # noqa: TID251 - a script of its own, no product code runs here
    for folder in folders:
        while os.path.lexists(folder):
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > deadline:  # noqa: TID251 - as above
                break
            time.sleep(0.02)  # noqa: TID251 - as above


if __name__ == "__main__":
    main()

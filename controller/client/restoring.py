"""
The process that puts a person's terminal back where the client cannot: see `controller.client.restorer`.

Problem: nothing that a process does for its own end happens when it is killed with SIGKILL. Promise: while a terminal
is raw, a process beside the client waits for the client's end; it knows at any time what has to be switched off; at
every end but a SIGKILL of the client it is ended before anything else goes on, in whatever state it is. It is not
waited for at the start: whatever is in the pipe, or its end, is still there when it gets to look.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from controller.client.restorer import render_mode

_SCRIPT: Final = Path(__file__).with_name("restorer.py")


class Restorer:
    """
    One such process, from its start on.

    Args:
        process: It, with the pipe as its standard input.
        state: The file that it reads at the end. Not a pipe: nothing waits, however often something changes and
            whatever state the process is in.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", state: IO[bytes]) -> None:
        self._process = process
        self._state = state
        self._noted = b""

    @classmethod
    def start(cls, input_fd: int, output_fd: int, saved: Any) -> Self:
        """
        Start it, before the terminal is set to raw.

        Args:
            input_fd: The terminal whose mode is to be put back.
            output_fd: Where the screen is.
            saved: The mode, from `termios.tcgetattr`.

        Raises:
            OSError: It cannot be started.
        """
        with ExitStack() as stack:
            # Of a pipe the child has one end as its standard input, whatever number that had here.
            terminal = os.dup(input_fd)
            stack.callback(os.close, terminal)
            state = _open_state()
            on_failure = stack.enter_context(ExitStack())
            on_failure.callback(state.close)
            groups = (os.getpgrp(), os.getpgid(os.getppid()))
            process = subprocess.Popen(  # noqa: S603 - our own script, with numbers
                [
                    *(sys.executable, "-I", "-S", str(_SCRIPT)),
                    *map(str, (terminal, state.fileno(), *groups)),
                    render_mode(saved),
                ],
                stdin=subprocess.PIPE,
                stdout=output_fd,
                stderr=subprocess.DEVNULL,
                pass_fds=(terminal, state.fileno()),
                process_group=0,
            )
            on_failure.pop_all()
        return cls(process, state)

    def note(self, undo: bytes) -> None:
        """Note what has to be written to the screen from now on."""
        if undo != self._noted:
            self._noted = undo
            # The zero byte ends it: what is longer there is older.
            os.pwrite(self._state.fileno(), undo + b"\0", 0)

    def end(self) -> None:
        """End it: the terminal is as it was. Even one that is stopped ends at once."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._state.close()


def _open_state() -> IO[bytes]:
    """
    Make a file that only its descriptors know, and no kill leaves behind.

    In memory, where that is possible: `tempfile` leaves one with a name where it is killed while it looks for a folder.
    """
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            return os.fdopen(os.memfd_create("aterm-state"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)

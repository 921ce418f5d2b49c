"""
Sessions without processes, for benchmarks that hold thousands of them on a small machine.

Promise: list, exec, attach and kill answer as with real processes. A command with a terminal lives until it is
killed; one without ends with 0 when its input has ended, and writes what a switch says. Ids begin anew with each cold
start. Nothing runs, but what a curl asks of the sprite's tasks is done (`record_curl`).
"""

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from signal import Signals

from controller.lab.emulator.frames import Stream
from controller.lab.emulator.settings import DEFAULT_PATH
from controller.lab.emulator.switches import KillReach
from controller.lab.emulator.world import Command, ProcessEntry

_HARMLESS = frozenset({Signals.SIGCHLD, Signals.SIGCONT, Signals.SIGURG, Signals.SIGWINCH, Signals.SIGSTOP})
"""What does not end a process without a handler (and stopping, which a record cannot show)."""


@cache
def resolve(path: str) -> str:
    """Name a program as the list does, by its absolute path."""
    return shutil.which(path, path=DEFAULT_PATH) or path


class RecordProcess:
    """A process that is only written down."""

    def __init__(self, pid: int, command: Command, output: bytes) -> None:
        self.pid = pid
        self.argv = command.argv
        self.command = " ".join([resolve(command.path), *command.argv[1:]])
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tty = command.tty
        self._stdin = command.stdin
        self._output = output
        self._on_output: Callable[[Stream, bytes], None] | None = None
        self._on_drained: Callable[[], None] | None = None

    def start(self, on_output: Callable[[Stream, bytes], None], on_drained: Callable[[], None]) -> None:
        """Begin; without input to wait for, that is also the end of a command without a terminal."""
        self._on_output = on_output
        self._on_drained = on_drained
        if not self._stdin:
            # Not within the start: whoever starts it attaches first, as to a process that needs a moment.
            asyncio.get_running_loop().call_soon(self.end_input)

    def hold_output(self, *, held: bool) -> None:
        """Hold nothing."""

    async def write(self, data: bytes) -> None:
        """Take input and do nothing with it."""

    def end_input(self) -> None:
        """Write what there is to write, and end with the input."""
        if self._tty or self.exited.done():
            return
        if self._output and self._on_output is not None:
            self._on_output(Stream.STDOUT, self._output)
        self.end(0)

    def resize(self, rows: int, cols: int) -> None:
        """Have no size."""

    def close(self) -> None:
        """Hold nothing open."""
        self._on_output = None
        self._on_drained = None

    def end(self, code: int) -> None:
        """End; twice is once."""
        if not self.exited.done():
            self.exited.set_result(code)
            if self._on_drained is not None:
                self._on_drained()


class RecordWorld:
    """
    The records of one sprite between two cold starts.

    Args:
        read_output: Tells what a command without a terminal writes.
        answer_curl: Does what a curl asks of the sprite's tasks and tells what it writes; None where it asks nothing.
    """

    def __init__(self, read_output: Callable[[], str], answer_curl: Callable[[Sequence[str]], str | None]) -> None:
        self._read_output = read_output
        self._answer_curl = answer_curl
        self._next = 2
        self._processes: dict[int, RecordProcess] = {}

    async def spawn(self, command: Command) -> RecordProcess:
        """Write a process down."""
        answered = None if command.tty else self._answer_curl(command.argv)
        output = self._read_output() if answered is None else answered
        process = RecordProcess(self._next, command, output.encode())
        self._next += 1
        self._processes[process.pid] = process
        process.exited.add_done_callback(lambda _: self._processes.pop(process.pid, None))
        return process

    async def signal(self, pid: int, number: int, reach: KillReach) -> tuple[int, ...]:  # noqa: ARG002 - no groups
        """End the record, unless the signal would not end a process."""
        process = self._processes.get(pid)
        if process is None:
            return ()
        with contextlib.suppress(ValueError):
            if Signals(number) in _HARMLESS:
                return (pid,)
        process.end(128 + number)
        return (pid,)

    async def freeze(self) -> None:
        """Stand still, as always."""

    async def thaw(self) -> None:
        """Go on standing still."""

    async def end(self) -> None:
        """End all records."""
        for process in list(self._processes.values()):
            process.end(137)

    def read_ports(self, leader: int) -> dict[int, int]:  # noqa: ARG002 - a record opens no port
        """List no ports."""
        return {}

    def read_table(self) -> list[ProcessEntry]:
        """List the records."""
        return [ProcessEntry(None, p.pid, 1, "S", p.argv) for p in self._processes.values()]

"""
Start children that end in every way in which we can end.

Problem: a demo that leaves an API server behind is worse than none, and a parent may end normally, by Ctrl-C, by
SIGTERM, or by SIGKILL, which it cannot answer. Promise: a child started here gets a death signal from the kernel
(`tether.py`), lives in a process group of its own (so Ctrl-C at the terminal reaches only us, and we stop it in our
order), and `stop_child` ends the whole group within a bound. What a signal cannot do, removing folders and reaching
grandchildren, a `Janitor` does.

The death signal comes when the *thread* that started the child ends: start children from a thread that lives as long
as they should, which the thread of an event loop does.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Final, Self

from controller.lab.process_table import is_stopped

TETHER: Final = Path(__file__).with_name("tether.py")
JANITOR: Final = Path(__file__).with_name("janitor.py")

STOP_PATIENCE: Final = timedelta(seconds=5)
"""How long a child may take to end by itself. A real control plane needs less than one second when idle."""

FREEZE_PATIENCE: Final = timedelta(seconds=10)
"""It takes milliseconds; a busy machine and a write to its disk delay it."""

PIPES_PATIENCE: Final = timedelta(seconds=1)
"""For the pipes of a child that has ended."""

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a supervisor's wish, a terminal that was closed."""

Stream = int | IO[bytes] | None


def build_isolated_python(script: Path) -> list[str]:
    """Name this interpreter without site packages and without the user's PYTHON variables: it starts in 15 ms."""
    return [sys.executable, "-I", "-S", str(script)]


def build_tethered_command(
    command: Sequence[str], *, death_signal: signal.Signals = signal.SIGKILL, permit: int | None = None
) -> list[str]:
    """
    Wrap a command so that it dies with the thread that starts it, for starters other than `start_child`.

    The process id is that of the command: the wrapper executes it in its own place.

    Args:
        command: What is run.
        death_signal: What it gets at our end.
        permit: A pipe's end that the wrapper inherits: it reads a byte there before it executes the command, and
            gives up where the pipe ends instead. None waits for nobody.
    """
    waits_for = "-" if permit is None else str(permit)
    return [*build_isolated_python(TETHER), str(int(death_signal)), str(os.getpid()), waits_for, *command]


async def start_child(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    janitor: "Janitor | None" = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
    working_directory: Path | None = None,
) -> asyncio.subprocess.Process:
    """
    Start a child that does not outlive us.

    It begins when we know of it, and the janitor does: one whose start is cancelled, and one whose starter is killed
    meanwhile, never began, and so has no children that nobody knows of.

    A command that cannot be executed ends with 127 and says so on its stderr.

    Args:
        command: The program, by path or by name on PATH, and its arguments.
        death_signal: What the child gets when we die; SIGTERM for one that has children of its own to stop.
        janitor: Ends the child's whole group at our end, until it is told to forget it.
        stdin: As for `subprocess`; so are stdout and stderr.
        stdout: See above.
        stderr: See above.
        environment: The whole environment; None hands on ours.
        working_directory: None stays in ours.
    """
    permit, permits = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *build_tethered_command(command, death_signal=death_signal, permit=permit),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if environment is None else dict(environment),
            cwd=working_directory,
            start_new_session=True,
            pass_fds=(permit,),
        )
        if janitor is not None:
            janitor.end(child.pid)
        os.write(permits, b"!")
    finally:
        os.close(permit)
        os.close(permits)
    return child


async def stop_child(
    process: asyncio.subprocess.Process,
    *,
    polite: signal.Signals = signal.SIGTERM,
    patience: timedelta = STOP_PATIENCE,
) -> int:
    """
    Stop a child and its group: politely, and after the patience with SIGKILL. Return its exit code.

    A child that has ended already, and one that is frozen by SIGSTOP, are no special cases.
    """
    signal_group(process, polite)
    signal_group(process, signal.SIGCONT)
    try:
        async with asyncio.timeout(patience.total_seconds()):
            await _wait_exit(process)
    except TimeoutError:
        pass
    finally:
        # Also for a cancelled stop, and for members of the group whose leader has ended.
        _kill_group(process.pid)
    code = await _wait_exit(process)
    await _close_pipes(process)
    return code


def signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal to a child that `start_child` started and to all it started; a child that has ended is none."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)


async def freeze_child(process: asyncio.subprocess.Process) -> None:
    """
    Stop a child and its group where they are, until they get SIGCONT; when this returns, the child does not run.

    Raises:
        TimeoutError: It ran on. A process that waits for a disk cannot stop.
    """
    signal_group(process, signal.SIGSTOP)
    async with asyncio.timeout(FREEZE_PATIENCE.total_seconds()):
        while not is_stopped(process.pid):  # noqa: ASYNC110 - the kernel has no event for it
            await asyncio.sleep(0.001)


async def _wait_exit(process: asyncio.subprocess.Process) -> int:
    """
    Wait for the end of the process itself.

    asyncio's own `wait` also waits until nobody holds the pipes any more, and a grandchild may hold them for ever.
    """
    while process.returncode is None:  # noqa: ASYNC110 - asyncio has no event for it
        await asyncio.sleep(0.01)
    return process.returncode


async def _close_pipes(process: asyncio.subprocess.Process) -> None:
    """
    Take the last words of a child that has ended, and close its pipes even if somebody who left its group holds one.

    asyncio offers no public way to the transport, and leaves it open until every pipe has ended.
    """
    transport = getattr(process, "_transport", None)
    if not isinstance(transport, asyncio.SubprocessTransport):
        return
    pipes = [pipe for pipe in (transport.get_pipe_transport(1), transport.get_pipe_transport(2)) if pipe is not None]
    try:
        async with asyncio.timeout(PIPES_PATIENCE.total_seconds()):
            while not all(pipe.is_closing() for pipe in pipes):  # noqa: ASYNC110 - asyncio has no event for it
                await asyncio.sleep(0.01)
    except TimeoutError:
        pass
    finally:
        transport.close()


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


async def run_until_signalled(work: Coroutine[Any, Any, None]) -> signal.Signals | None:
    """
    Do the work in the foreground until it ends or somebody asks us to: it is cancelled then, and cleans up.

    Further signals change nothing, so that an impatient second Ctrl-C does not cut the cleaning short; it is bounded.

    Returns:
        The signal that ended it; None where it ended by itself.
    """
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        if len(received) == 1:
            task.cancel()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            await asyncio.wait([task])
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)
    return received[0] if received else None


class Janitor:
    """
    A small process that cleans up after us, even when we were killed with SIGKILL.

    It holds the one end of a pipe, we the other: nothing that we start inherits it. `close` makes it work now.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own script
            build_isolated_python(JANITOR),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    async def __aenter__(self) -> Self:
        """Be at work."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Clean up now."""
        await self.close()

    @property
    def process_id(self) -> int:
        """Name its process."""
        return self._process.pid

    def remove(self, folder: Path) -> None:
        """Remove this folder, with all that is in it, at our end."""
        if "\n" in str(folder):
            raise ValueError("The path of a folder to remove must not contain a line break.")
        self._tell(f"remove {folder}")

    def make_folder(self, prefix: str, *, within: Path | None = None) -> Path:
        """
        Make a private folder, among the temporary ones or within another, and remove it at our end.

        It is told of before it is there, so that no end of ours comes between.
        """
        folder = (within or Path(tempfile.gettempdir())) / f"{prefix}{secrets.token_urlsafe(6)}"
        self.remove(folder)
        folder.mkdir(mode=0o700)
        return folder

    def end(self, group: int) -> None:
        """Kill this process group at our end."""
        self._tell(f"end {group}")

    def forget(self, group: int) -> None:
        """Leave this process group alone: it has ended. One that is closed has done its work."""
        if not self._is_closed:
            self._tell(f"forget {group}")

    async def close(self) -> None:
        """Clean up, and return when that is done; closing twice is fine."""
        await asyncio.shield(asyncio.to_thread(self._close))

    @property
    def _is_closed(self) -> bool:
        return self._process.stdin is None or self._process.stdin.closed

    def _close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=30)

    def _tell(self, line: str) -> None:
        stdin = self._process.stdin
        if stdin is None or stdin.closed:
            raise ValueError("The janitor is closed.")
        stdin.write(f"{line}\n".encode(errors="surrogateescape"))
        stdin.flush()

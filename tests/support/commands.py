"""
Run one of our commands as a user does, and see that nothing of it stays.

The command gets a temporary folder, a home and a mark in its environment of its own; whatever it starts is found by
being its descendant while it runs, and by the mark afterwards. Sessions inside a sprite carry no mark, since their
environment is made anew, so they are found as descendants only.
"""

import asyncio
import contextlib
import io
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pexpect

from controller.settings import environment, read_cache_folder
from tests.lab.watching import is_alive, list_children, read_stat, until
from tests.support.secrecy import Kind, learn, look, look_at_file

ROOT = Path(__file__).parents[2]
AGENTTERMINAL = [sys.executable, "-m", "controller.cli.main"]
MARK = "STORY_MARK"
MOMENT_SECONDS = 80.0
"""A world stands after 6 to 8 s on an idle machine; other tests may be busy beside it."""


class Sandbox:
    """A place in which a command runs, and in which nothing may stay."""

    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "t"
        self.home = folder / "h"
        self.temporary.mkdir()
        self.home.mkdir()
        self.mark = secrets.token_hex(8)
        self._known: set[tuple[int, str]] = set()

    @property
    def environment(self) -> Mapping[str, str]:
        """What the command gets; the cache is the run's own, so that binaries are there."""
        inherited = environment()
        return {
            **{name: value for name, value in inherited.items() if name not in {"XDG_CACHE_HOME", "KUBECONFIG"}},
            "AGENTTERMINAL_CACHE": str(read_cache_folder(inherited)),
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            MARK: self.mark,
        }

    def remember(self, process: int) -> None:
        """Note a process and all its descendants as they are now, and see that no log of theirs shows a secret."""
        self._look()
        for pid in (process, *find_descendants(process)):
            with contextlib.suppress(OSError):
                self._known.add((pid, read_start(pid)))

    def _look(self) -> None:
        there = [path for path in list_below(self.temporary) if path.name == "tokens.csv" or path.suffix == ".log"]
        for tokens in there:
            # It may be on its way out, and its folder with it.
            with contextlib.suppress(FileNotFoundError):
                if tokens.name == "tokens.csv":
                    learn(Kind.ADMINISTRATOR, tokens.read_text().split(",")[0])
        for log in there:
            if log.suffix == ".log":
                look_at_file(f"The {log.name} of a command", log)

    @property
    def known(self) -> int:
        """How many processes were noted."""
        return len(self._known)

    def find_alive(self) -> list[str]:
        """Name what lives of all that was noted, and all that bears the mark."""
        known = [pid for pid, start in self._known if is_alive(pid) and read_start(pid) == start]
        return [describe(pid) for pid in sorted({*known, *find_marked(self.mark)})]

    def find_files(self) -> list[str]:
        """Name every file and folder that is there."""
        return sorted(str(path) for folder in (self.temporary, self.home) for path in list_below(folder))

    async def expect_nothing_left(self) -> None:
        """Wait until no process and no file is left."""
        with contextlib.suppress(TimeoutError):
            await until(lambda: not self.find_alive() and not self.find_files(), within_seconds=20)
        assert (self.find_alive(), self.find_files()) == ([], [])


def list_below(folder: Path) -> list[Path]:
    """All that is in a folder; one that somebody removes meanwhile is no error, as it is for `rglob`."""
    return [Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files)]


def find_descendants(process: int) -> Iterator[int]:
    for child in list_children(process):
        yield child
        yield from find_descendants(child)


def find_marked(mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0") and is_alive(int(folder.name)):
                yield int(folder.name)


def read_start(pid: int) -> str:
    try:
        return read_stat(pid)[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def describe(pid: int) -> str:
    with contextlib.suppress(OSError):
        return f"{pid}: " + Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return str(pid)


class Running:
    """A command whose output is no terminal."""

    def __init__(self, process: asyncio.subprocess.Process, sandbox: Sandbox) -> None:
        self.process = process
        self.sandbox = sandbox
        self.output = ""

    async def read_until(self, text: str) -> None:
        """Read until the text was written."""
        assert self.process.stdout is not None
        async with asyncio.timeout(MOMENT_SECONDS):
            while text not in self.output:
                chunk = await self.process.stdout.readline()
                assert chunk, f"It ended before it wrote {text!r}:\n{self.output}"
                self.output += chunk.decode()

    async def read_to_end(self) -> int:
        """Read all and return the exit code."""
        assert self.process.stdout is not None
        async with asyncio.timeout(MOMENT_SECONDS):
            self.output += (await self.process.stdout.read()).decode()
            return await self.process.wait()

    async def end(self, number: signal.Signals) -> int:
        """Send a signal to this process alone, and return the exit code."""
        self.sandbox.remember(self.process.pid)
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return await self.read_to_end()


@asynccontextmanager
async def running(folder: Path, *arguments: str, **environ: str) -> AsyncIterator[Running]:
    """Run a command, both its streams in one."""
    sandbox = Sandbox(folder)
    process = await asyncio.create_subprocess_exec(
        *AGENTTERMINAL,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**sandbox.environment, **environ},
        cwd=ROOT,
    )
    one = Running(process, sandbox)
    try:
        yield one
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        rest, _ = await process.communicate()
        look("What a command wrote", one.output.encode() + rest)


class Terminal(pexpect.spawn):  # type: ignore[misc]  # pexpect has no types
    """A command at a terminal; what the terminal showed is looked at when it is closed."""

    def close(self, force: bool = True) -> None:
        """End it, and look at what it showed."""
        super().close(force)
        look("A terminal", self.logfile_read.getvalue())


def open_terminal(command: Sequence[str], *, environment: Mapping[str, str], folder: Path = ROOT) -> Terminal:
    """Run a command at a terminal of its own, as a person does; whoever opens it closes it."""
    terminal = Terminal(
        command[0],
        [*command[1:]],
        env=dict(environment),
        cwd=str(folder),
        dimensions=(40, 160),
        encoding="utf-8",
        codec_errors="replace",  # What a terminal echoes comes in the middle of a character as well.
        timeout=MOMENT_SECONDS,
    )
    terminal.logfile_read = io.StringIO()
    return terminal


def kill_quietly(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)

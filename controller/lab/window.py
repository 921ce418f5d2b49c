"""
A terminal as a person has one: a pseudo-terminal with one line running in it, what it shows, and keys for it.

Problem: a program for terminals that is run with pipes shows that it works with pipes. Promise: the line is run by a
shell that has the pseudo-terminal as its controlling terminal, of a known size; what it writes is kept as plain text;
keys reach it as a keyboard's would. All that runs in it ends with us, however we end: by the kernel's death signal, by
the hang-up of the terminal, and by the janitor.
"""

import asyncio
import contextlib
import fcntl
import os
import re
import struct
import termios
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, Self

from controller.errors import AgentTerminalError
from controller.lab.processes import Janitor, start_child, stop_child

COLUMNS: Final = 160
"""Wide enough for a sentence, so that none is broken."""
ROWS: Final = 40
READ_BYTES: Final = 65536
TAIL_LINES: Final = 8

_TAKE_TERMINAL: Final = 'exec <>"$1" >&0 2>&1; eval "$2"'
"""The first terminal that a session's leader opens by name becomes its controlling terminal. Source: credentials(7)."""

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, modes, the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles
    r"|\x1b[ -/]*[0-~]"
)


class WindowFailed(AgentTerminalError):
    """A terminal did not show what it should have, or its line did not end. The text has the end of what it showed."""


def render_plain(output: bytes) -> str:
    """Write what a terminal was sent as lines of plain text, without colours and modes."""
    text = _ESCAPES.sub("", output.decode(errors="replace"))
    return "".join(character for character in text if character == "\n" or character.isprintable())


class Window:
    """
    One of them, open until `close`.

    Args:
        line: What runs in it.
        child: The shell that runs it.
        master: Our end of the pseudo-terminal.
        janitor: Ends the shell's group where we cannot.
    """

    def __init__(self, line: str, child: asyncio.subprocess.Process, master: int, janitor: Janitor) -> None:
        self.line = line
        self._child = child
        self._master = master
        self._janitor = janitor
        self._output = bytearray()
        self._taken = 0
        self._news = asyncio.Event()
        self._is_open = True
        self._is_empty = False
        asyncio.get_running_loop().add_reader(master, self._read)

    @classmethod
    async def open(cls, line: str, janitor: Janitor, *, environment: Mapping[str, str]) -> Self:
        """Run a line in a new one."""
        master, slave = os.openpty()
        try:
            os.set_blocking(master, False)
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
            child = await start_child(
                ["sh", "-c", _TAKE_TERMINAL, "sh", os.ttyname(slave), line],
                janitor=janitor,
                # So that the terminal has somebody in it from the beginning: one without anybody has hung up.
                stdin=slave,
                environment={**environment, "TERM": "xterm-256color"},
            )
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(line, child, master, janitor)

    @property
    def process_id(self) -> int:
        """The shell's."""
        return self._child.pid

    @property
    def text(self) -> str:
        """All that was written in it, as plain text."""
        return render_plain(bytes(self._output))

    @property
    def has_ended(self) -> bool:
        """Whether the line has ended."""
        return self._child.returncode is not None

    def take_lines(self) -> list[str]:
        """Give the lines that are new since the last time; one that is not complete comes next time."""
        text = self.text
        end = text.rfind("\n") + 1
        lines = text[self._taken : end].splitlines()
        self._taken = max(self._taken, end)
        return [line for line in lines if line.strip()]

    def type(self, keys: str) -> None:
        """Press keys; nobody gets them where the line has ended."""
        with contextlib.suppress(OSError):
            os.write(self._master, keys.encode())

    async def wait_shown(self, text: str, *, within: timedelta) -> None:
        """
        Wait until it has shown a text.

        Raises:
            WindowFailed: It has not, in time or before its line ended.
        """
        await self._wait(lambda: text in self.text, f"did not show {text!r}", within)

    async def wait_ended(self, *, within: timedelta) -> int:
        """
        Wait until its line has ended, and give the exit code.

        Raises:
            WindowFailed: It has not, in time.
        """
        try:
            async with asyncio.timeout(within.total_seconds()):
                code = await self._child.wait()
        except TimeoutError:
            raise self._fail("did not end", f"within {within.total_seconds():g} s") from None
        self._read()
        return code

    async def close(self) -> None:
        """End what runs in it; closing twice is fine."""
        if not self._is_open:
            return
        self._is_open = False
        asyncio.get_running_loop().remove_reader(self._master)
        # The terminal hangs up, which is what ends a program in it that is of good will.
        os.close(self._master)
        await stop_child(self._child, patience=timedelta(0))
        self._janitor.forget(self._child.pid)

    def _read(self) -> None:
        if not self._is_open:
            return
        try:
            while data := os.read(self._master, READ_BYTES):
                self._output += data
        except BlockingIOError:
            pass
        except OSError:
            # Nobody is in it any more.
            self._is_empty = True
            asyncio.get_running_loop().remove_reader(self._master)
        self._news.set()

    async def _wait(self, is_true: Callable[[], bool], otherwise: str, within: timedelta) -> None:
        limit = f"within {within.total_seconds():g} s"
        try:
            async with asyncio.timeout(within.total_seconds()):
                while not is_true():
                    if self._is_empty:
                        raise self._fail(otherwise, "before it ended")
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise self._fail(otherwise, limit) from None

    def _fail(self, otherwise: str, limit: str) -> WindowFailed:
        tail = "\n".join(self.text.splitlines()[-TAIL_LINES:])
        return WindowFailed(f"`{self.line}` {otherwise} {limit}. It showed:\n{tail}")

"""
A person's own terminal: raw for as long as a socket is open, and as it was before at every end.

Problem: a client that dies in raw mode leaves a shell that shows nothing of what is typed; one that leaves while an
editor runs on the other side leaves its mouse reports and its second screen behind; and what somebody types at the
moment when they are thrown out must not run in their own shell. Promise: the mode of the terminal is put back on every
way out of `raw`; the few modes of the screen that the other side switched on, and no others, are switched off; input
that nobody has read is thrown away. Nothing but the mode is changed: no flag of a descriptor that the shell shares.
Where this process is killed with SIGKILL, another does the same (`controller.client.restoring`).
"""

import asyncio
import contextlib
import fcntl
import os
import re
import struct
import termios
import tty
from collections.abc import Iterator
from typing import Any, Final

from controller.client.restoring import Restorer

READ_BYTES: Final = 4096
_WRITE_BYTES: Final = 4096
"""A pipe that is ready takes at least so many without blocking. Source: pipe(7), PIPE_BUF (read 2026-11)."""

_CLEARED: Final = b"\x1b[H\x1b[2J"

_SHOWN: Final = frozenset({25})
"""Private modes that are on where nobody changed them: the cursor is shown."""

_UNDONE: Final = frozenset({1, 9, 25, 47, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1015, 1016, 1047, 1049, 2004})
"""
Private modes that make a shell unusable where they stay: cursor keys, mouse, focus, second screen, pasting in brackets.
Source: invisible-island.net, "XTerm Control Sequences" (read 2026-11).
"""

_SEQUENCE: Final = re.compile(
    rb"\x1b\[\?(?P<modes>[0-9;]{1,64})(?P<set>[hl])"
    rb"|\x1b(?P<keypad>[=>])"
    rb"|\x1b\[(?P<keyboard>[<>])(?P<count>[0-9;]{0,16})u"
    rb"|\x1b\[>4;(?P<other>[0-9])m"
    rb"|\x1b(?P<reset>c|\[!p)"
)
_LONGEST: Final = 80


class Modes:
    """What the other side switched on, seen in its output."""

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self._keypad = False
        self._keyboards = 0
        self._other_keys = False
        self._seen = False
        self._carried = b""

    def see(self, output: bytes) -> None:
        """Look through output; a sequence may lie over the edge of two frames."""
        self._seen = True
        text = self._carried + output
        end = 0
        for match in _SEQUENCE.finditer(text):
            end = match.end()
            self._note(match)
        last = text.rfind(b"\x1b", max(end, len(text) - _LONGEST))
        self._carried = text[last:] if last >= 0 else b""

    def _note(self, match: re.Match[bytes]) -> None:
        if match["modes"]:
            for number in (int(part) for part in match["modes"].split(b";") if part):
                if number in _UNDONE:
                    is_usual = (match["set"] == b"h") == (number in _SHOWN)
                    (self._changed.discard if is_usual else self._changed.add)(number)
        elif match["keypad"]:
            self._keypad = match["keypad"] == b"="
        elif match["keyboard"]:
            pushed = 1 if match["keyboard"] == b">" else -int(match["count"] or b"1")
            self._keyboards = max(0, self._keyboards + pushed)
        elif match["other"]:
            self._other_keys = match["other"] != b"0"
        else:
            self._changed.clear()
            self._keypad, self._keyboards, self._other_keys = False, 0, False

    def render_undo(self) -> bytes:
        """Write what switches it off again; nothing where there was no output."""
        if not self._seen:
            return b""
        # The second screen last: what belongs to it is switched off on it.
        order = sorted(self._changed, key=lambda number: (number in {47, 1047, 1049}, number))
        undone = [b"\x1b[?%d%c" % (number, b"h" if number in _SHOWN else b"l") for number in order]
        if self._keyboards:
            undone.insert(0, b"\x1b[<%du" % self._keyboards)
        if self._other_keys:
            undone.insert(0, b"\x1b[>4m")
        if self._keypad:
            undone.append(b"\x1b>")
        return b"".join([*undone, b"\x1b[0m"])


class Screen:
    """
    Where a person types and reads.

    Args:
        input_fd: Standard input.
        output_fd: Standard output.
        error_fd: Standard error, where notices go.
    """

    def __init__(self, input_fd: int = 0, output_fd: int = 1, error_fd: int = 2) -> None:
        self._input, self._output, self._error = input_fd, output_fd, error_fd
        self._modes = Modes()
        self._saved: Any = None
        self._own_output: int | None = None
        self._restorer: Restorer | None = None
        self._is_raw = False
        self._is_inside_line = False

    @property
    def is_terminal(self) -> bool:
        """Whether a person sits here, not a pipe."""
        return os.isatty(self._input) and os.isatty(self._output)

    def read_size(self) -> tuple[int, int] | None:
        """Give columns and rows of the window; None where there is none, or it does not say."""
        for descriptor in (self._output, self._input):
            with contextlib.suppress(OSError):
                rows, columns = struct.unpack("hhhh", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8))[:2]
                if columns > 0 and rows > 0:
                    return columns, rows
        return None

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Hand every key over for the length of a `with` block; nothing changes where there is no terminal."""
        if not self.is_terminal:
            yield
            return
        self._saved = termios.tcgetattr(self._input)
        with contextlib.suppress(OSError):
            # A description of our own: what is set on it is not set on the shell's.
            self._own_output = os.open(os.ttyname(self._output), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        self._start_restorer()
        try:
            self.enter()
            yield
        finally:
            self.leave()
            self._end_restorer()
            if self._own_output is not None:
                os.close(self._own_output)
                self._own_output = None
            self._saved = None

    def _start_restorer(self) -> None:
        output = self._own_output if self._own_output is not None else self._output
        try:
            self._restorer = Restorer.start(self._input, output, self._saved)
        except OSError as error:
            self.tell(f"After a kill -9 of this client `stty sane` would have to be typed: {error.strerror}.")

    def _end_restorer(self) -> None:
        restorer, self._restorer = self._restorer, None
        if restorer is not None:
            restorer.end()

    def enter(self) -> None:
        """Set raw mode: at the beginning, and after the process was stopped and goes on."""
        if self._saved is not None:
            tty.setraw(self._input, termios.TCSANOW)
            self._is_raw = True

    def leave(self) -> None:
        """Put everything back; nothing here waits for anybody, since the terminal may not be read any more."""
        if self._saved is None or not self._is_raw:
            return
        self._is_raw = False
        # What is said from here on stands on a line of its own, and the shell's prompt too.
        undo = self._modes.render_undo() + (b"\r\n" if self._is_inside_line else b"")
        with contextlib.suppress(OSError):
            os.write(self._own_output if self._own_output is not None else self._output, undo)
        # A terminal that hung up cannot be put back, and nobody is there to miss it.
        with contextlib.suppress(termios.error):
            termios.tcflush(self._input, termios.TCIFLUSH)
            termios.tcsetattr(self._input, termios.TCSANOW, self._saved)

    async def read(self) -> bytes:
        """Wait for input; nothing is its end."""
        await _wait_for(self._input, writing=False)
        try:
            return os.read(self._input, READ_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes, *, to_error: bool = False) -> None:
        """
        Write output, as slowly as it is taken.

        Raises:
            OSError: Nobody reads any more.
        """
        if not to_error:
            self._modes.see(data)
            if self._restorer is not None:
                # Before it is shown: what is switched off in vain does no harm.
                self._restorer.note(self._modes.render_undo())
        if data:
            self._is_inside_line = not data.endswith((b"\n", _CLEARED))
        own = self._own_output
        target = self._error if to_error else own if own is not None else self._output
        view = memoryview(data)
        while view:
            await _wait_for(target, writing=True)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(target, view[:_WRITE_BYTES]) :]

    def tell(self, sentence: str) -> None:
        """Show a notice on a line of its own, on standard error."""
        before = "\r\n" if self._is_inside_line else ""
        line = f"{before}[aterm] {sentence}\r\n" if self._is_raw else f"[aterm] {sentence}\n"
        with contextlib.suppress(OSError):
            os.write(self._error, line.encode())
            self._is_inside_line = False


async def _wait_for(descriptor: int, *, writing: bool) -> None:
    """Wait until a descriptor is ready; a plain file, which cannot be waited for, always is."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    begin, end = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        begin(descriptor, note)
    except PermissionError:
        return
    try:
        await ready
    finally:
        end(descriptor)

"""
How a story is told while it happens: alive on a terminal, as plain lines elsewhere.

Promise: both say the same, in the same order; commands stand as they are typed; nothing is wrapped, so that what was
printed can be copied.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from controller.lab.board import Row, render_board


class Teller(Protocol):
    """Where a story is told."""

    def say(self, sentence: str) -> None:
        """Tell what happens next, or what has been seen."""

    def show_command(self, line: str) -> None:
        """Show a command as it is typed."""

    def show_output(self, text: str) -> None:
        """Show what a command wrote."""

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show how objects, sessions and processes stand now."""

    def keep_rows(self, rows: Sequence[Row]) -> None:
        """Show how they stand at a moment that is worth remembering."""

    def close(self) -> None:
        """End the telling, and leave a terminal as it was."""


class PlainTeller:
    """Lines to a stream that is no terminal: a row is told when it is new or has changed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._rows: dict[tuple[str | None, str | None], str] = {}

    def say(self, sentence: str) -> None:
        """Write a line, with space before it."""
        self._write(f"\n{sentence}")

    def show_command(self, line: str) -> None:
        """Write it behind a dollar sign."""
        self._write(f"$ {line}")

    def show_output(self, text: str) -> None:
        """Write it as it is."""
        if text:
            self._write(text.rstrip("\n"))

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Write the rows that are new, have changed or have gone."""
        current = {(row.name, None if row.name else row.session): row.describe() for row in rows}
        for name, _ in self._rows.keys() - current.keys():
            # A session without an object that is gone has found one, or is told by the object.
            if name is not None:
                self._write(f"  {name}: gone")
        for key, line in current.items():
            if self._rows.get(key) != line:
                self._write(f"  {line}")
        self._rows = current

    def keep_rows(self, rows: Sequence[Row]) -> None:
        """Do the same: lines stay."""
        self.show_rows(rows)

    def close(self) -> None:
        """Do nothing: lines stay."""

    def _write(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class LiveTeller:
    """A terminal: the story scrolls by, and below it a table shows how things stand."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def say(self, sentence: str) -> None:
        """Print it in bold, with space before it."""
        self._print(Text(f"\n{sentence}", style="bold"))

    def show_command(self, line: str) -> None:
        """Print it behind a dollar sign."""
        self._print(Text(f"$ {line}", style="cyan"))

    def show_output(self, text: str) -> None:
        """Print it as it is."""
        if text:
            self._print(Text(text.rstrip("\n")))

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Redraw the table; with nothing in it, it goes."""
        if not rows:
            self.close()
            return
        if self._live is None:
            # Without a thread of its own: it is redrawn when there is something new.
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(render_board(rows), refresh=True)

    def keep_rows(self, rows: Sequence[Row]) -> None:
        """Print the table into the story."""
        self._console.print(render_board(rows))

    def close(self) -> None:
        """Remove the table, and show the cursor again."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _print(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


@contextmanager
def telling(stream: IO[str] | None = None) -> Iterator[Teller]:
    """Choose by what the stream is, None being standard output, and close the telling at the end."""
    stream = sys.stdout if stream is None else stream
    console = Console(file=stream, highlight=False)
    teller = LiveTeller(console) if console.is_terminal else PlainTeller(stream)
    try:
        yield teller
    finally:
        teller.close()

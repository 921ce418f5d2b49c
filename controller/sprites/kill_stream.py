"""
The stream that answers a kill: newline-separated JSON events. Pure.

Problem: the status 200 says only that the request was taken; whether the signal reached a process stands in the lines
that follow, and an `error` line can come at any place. Promise: an `error` line fails the attempt whatever follows it,
success needs `complete`, blank lines and lines that are no event are passed over, and no line, however odd or long,
raises anything or holds more than `STREAM_BYTES`.

Source: sprites-api.md 6 and 12 row 20 (2026-09); behaviours.md K6 to K9.
"""

from enum import Enum
from typing import Final

from controller.sprites.texts import read_json

STREAM_BYTES: Final = 256 * 1024
"""
The most bytes of one answer, and so of one line. The platform sends less than 1 KiB. A longer answer is malformed
rather than cut: an `error` could stand in the part that was not read.
"""

ERROR_WITHOUT_TEXT: Final = "the platform reported an error and gave no text"
"""Stands for the text of an `error` line that has none (K8)."""


class StreamState(Enum):
    """What the events so far amount to."""

    SILENT = "silent"
    """No event."""
    BEGUN = "begun"
    """Events, but neither `complete` nor `error`."""
    COMPLETE = "complete"
    """`complete`, and no `error`."""
    FAILED = "failed"
    """An `error`: nothing that follows undoes it."""


class KillStream:
    """Takes the bytes of the stream in any portions; `finish` reads a last line that has no line end."""

    def __init__(self) -> None:
        self.state = StreamState.SILENT
        self.error = ""
        """The text of the first `error` line; empty without one."""
        self.is_overfull = False
        """More came than any answer to a kill has; the rest was not read."""
        self._bytes_read = 0
        self._line = bytearray()

    def feed(self, portion: bytes) -> None:
        """Take the next bytes."""
        self._bytes_read += len(portion)
        self.is_overfull = self._bytes_read > STREAM_BYTES
        if self.is_overfull:
            return
        *ended, rest = portion.split(b"\n")
        for piece in ended:
            self._line += piece
            self.finish()
        self._line += rest

    def finish(self) -> None:
        """Take the end of the line, which the end of the stream is too."""
        line = bytes(self._line)
        self._line.clear()
        if line:
            self._read(line)

    def _read(self, line: bytes) -> None:
        match read_json(line):
            case {"type": "error", **rest}:
                self._fail(rest)
            case {"type": "complete"}:
                if self.state is not StreamState.FAILED:
                    self.state = StreamState.COMPLETE
            case {"type": str()}:
                # After `complete`, a late `signal` is seen on terminals; it takes nothing back.
                if self.state is StreamState.SILENT:
                    self.state = StreamState.BEGUN
            case {"error": str(text), **rest} if text:
                # The plain error object of every other route: no event, and surely no success.
                self._fail({**rest, "error": text})
            case _:
                pass

    def _fail(self, event: dict[object, object]) -> None:
        if self.state is StreamState.FAILED:
            return
        self.state = StreamState.FAILED
        texts = [text for key in ("message", "error") if isinstance(text := event.get(key), str) and text.strip()]
        self.error = texts[0] if texts else ERROR_WITHOUT_TEXT

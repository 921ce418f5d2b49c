"""
What comes and goes on an exec socket, as values. Pure.

Problem: an exec socket carries JSON in text frames and numbered streams in binary frames, in an order that is only
partly promised: the text `exit` may come before the last output, the binary one is last. Promise: `CommandOutput`
takes messages one by one and says when the command has ended; text that is no JSON, unknown types and unknown streams
are passed over.

Source: sprites-api.md 3.3 to 3.5 and 12 rows 1, 3, 26 (2026-09).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from controller.api.session import Announced
from controller.sprites.errors import Malformed, OutputTooLarge
from controller.sprites.reading import read_moment, read_session_id
from controller.sprites.texts import read_json


class Stream(IntEnum):
    """The first byte of a binary frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    """One unsigned byte, the exit code; the last frame."""
    STDIN_END = 4


class Framing(StrEnum):
    """How binary frames are to be read: the session's own kind decides, on an attach too."""

    RAW = "raw"
    """A terminal: bytes as they are, one stream."""
    NUMBERED = "numbered"
    """No terminal: the first byte says which stream it is."""


STDIN_FRAME_BYTES: Final = 32 * 1024
"""Stdin bytes in one message. Source: sprites-api.md 3.7 (2026-09): the Go client's buffers hold 1 MB."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A command that ran to its end. A code other than 0 is a result, not an error."""

    exit_code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class ExitFrame:
    """A text `exit`: the command has ended, and output may still follow."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """A text `error`. Only third parties describe it, so it explains an end and never makes one."""

    text: str


@dataclass(frozen=True, slots=True)
class OtherFrame:
    """Text that says nothing to us: another type, or no JSON."""


TextFrame = Announced | ExitFrame | ErrorFrame | OtherFrame


def read_text_frame(text: str) -> TextFrame:
    """Read a text frame. A `session_info` without a readable id or time announces nothing."""
    match read_json(text.encode("utf-8", errors="replace")):
        case {"type": "session_info", **fields}:
            session_id, created = read_session_id(fields.get("session_id")), read_moment(fields.get("created"))
            if session_id is not None and created is not None:
                return Announced(id=session_id, created=created)
        case {"type": "exit", "exit_code": int(code)} if not isinstance(code, bool):
            return ExitFrame(code)
        case {"type": "error", **fields}:
            for key in ("message", "error"):
                if isinstance(said := fields.get(key), str) and said.strip():
                    return ErrorFrame(said)
        case _:
            pass
    return OtherFrame()


def read_framing(text: str) -> Framing:
    """
    Read from a `session_info` how its session frames.

    Assumed: one that says nothing of `tty` is a terminal, as the official JavaScript client assumes of every attach.
    """
    match read_json(text.encode("utf-8", errors="replace")):
        case {"tty": False}:
            return Framing.NUMBERED
        case _:
            return Framing.RAW


def split_stdin(stdin: bytes) -> Iterator[bytes]:
    """Cut stdin into frames, the end frame last."""
    for start in range(0, len(stdin), STDIN_FRAME_BYTES):
        yield bytes([Stream.STDIN]) + stdin[start : start + STDIN_FRAME_BYTES]
    yield bytes([Stream.STDIN_END])


class CommandOutput:
    """
    Gathers what a command without a terminal says.

    Args:
        limit_bytes: The most bytes of stdout and stderr together.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.error_text = ""
        """What an `error` frame said, to explain an end without an exit; empty without one."""
        self._limit_bytes = limit_bytes
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._early_code: int | None = None

    def take_text(self, text: str) -> None:
        """Take a text frame; an exit in it is only noted, because output may follow it."""
        match read_text_frame(text):
            case ExitFrame(code):
                self._early_code = code
            case ErrorFrame(said):
                self.error_text = said
            case Announced() | OtherFrame():
                pass

    def take_binary(self, frame: bytes) -> CommandResult | None:
        """
        Take a binary frame, and give the result if it was the last.

        Raises:
            OutputTooLarge: More output than the limit.
            Malformed: An exit frame that is not one byte.
        """
        if not frame:
            return None
        payload = frame[1:]
        match frame[0]:
            case Stream.STDOUT:
                self._gather(self._stdout, payload)
            case Stream.STDERR:
                self._gather(self._stderr, payload)
            case Stream.EXIT:
                if len(payload) != 1:
                    raise Malformed(f"The exit frame of the command has {len(payload)} bytes instead of 1.")
                return self._result(payload[0])
            case _:
                pass
        return None

    def close(self) -> CommandResult | None:
        """Take the end of the socket: the result if a text `exit` came before it, and None where no exit was seen."""
        return None if self._early_code is None else self._result(self._early_code)

    def _gather(self, stream: bytearray, payload: bytes) -> None:
        if len(self._stdout) + len(self._stderr) + len(payload) > self._limit_bytes:
            raise OutputTooLarge(f"The command printed more than {self._limit_bytes} bytes; it was cut off.")
        stream += payload

    def _result(self, exit_code: int) -> CommandResult:
        return CommandResult(exit_code, bytes(self._stdout), bytes(self._stderr))

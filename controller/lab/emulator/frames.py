"""
The frames of an exec socket, built and read without I/O.

Source: sprites-api.md 3.3 and 3.4. TTY frames are raw bytes; each non-TTY frame begins with the id of its stream.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any

import orjson


class Stream(IntEnum):
    """The first byte of a non-TTY frame."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    STDIN_EOF = 4


@dataclass(frozen=True)
class Input:
    """Bytes for the process."""

    data: bytes


@dataclass(frozen=True)
class InputEnd:
    """No more input will come (non-TTY)."""


@dataclass(frozen=True)
class Resize:
    """The terminal has another size now."""

    cols: int
    rows: int


@dataclass(frozen=True)
class SignalFrame:
    """Send a signal, by a name that is still to be judged."""

    name: str


@dataclass(frozen=True)
class Ignored:
    """Nothing that a server acts on."""


ClientFrame = Input | InputEnd | Resize | SignalFrame | Ignored


def render_text(kind: str, fields: Mapping[str, Any]) -> str:
    """Write a JSON frame."""
    return orjson.dumps({"type": kind, **fields}).decode()


def render_session_info(
    *, session_id: str | int, command: str, created: datetime, cols: int, rows: int, is_owner: bool, tty: bool
) -> str:
    """
    Write the frame that comes first on create and on every attach.

    Observed: the size is 0 x 0 even when it was honoured, and `is_owner` is true for everybody.
    """
    return render_text(
        "session_info",
        {
            "session_id": session_id,
            "command": command,
            "created": int(created.timestamp()),
            "cols": cols,
            "rows": rows,
            "is_owner": is_owner,
            "tty": tty,
        },
    )


def render_port(kind: str, port: int, pid: int) -> str:
    """Write that a port was opened or closed. Observed: the address is that of the sprite's inner network."""
    return render_text(kind, {"port": port, "address": "10.0.0.1", "pid": pid})


def render_output(stream: Stream, data: bytes, *, tty: bool) -> bytes:
    """Write output as this kind of session sends it."""
    return data if tty else bytes([stream]) + data


def render_exit(code: int, *, code_bytes: int = 1) -> bytes:
    """Write the last binary frame of a non-TTY session, with the code in so many bytes, big-endian."""
    return bytes([Stream.EXIT]) + (code & 0xFF).to_bytes(code_bytes, "big")


def parse_binary(frame: bytes, *, tty: bool) -> ClientFrame:
    """Read a binary frame; in a non-TTY session, what has no known stream id does not reach the process."""
    if tty:
        return Input(frame)
    match frame[:1]:
        case b"\x00":
            return Input(frame[1:])
        case b"\x04":
            return InputEnd()
        case _:
            return Ignored()


def parse_text(frame: str) -> ClientFrame:
    """Read a text frame; what is no JSON object of a known type is ignored."""
    try:
        fields = orjson.loads(frame)
    except orjson.JSONDecodeError:
        return Ignored()
    match fields:
        case {"type": "resize", "cols": int(cols), "rows": int(rows)} if 0 < cols < 65536 and 0 < rows < 65536:
            return Resize(cols, rows)
        case {"type": "signal", "signal": str(name)}:
            return SignalFrame(name)
        case _:
            return Ignored()

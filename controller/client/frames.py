"""
What comes over a socket of the gateway, and what our client says. Pure.

Problem: the gateway speaks JSON in text frames beside the terminal's bytes, and may say more in a later version.
Promise: each text frame is a value of a closed union, and what is none of ours is `Other`, never an error; what is for
a person's eyes is made printable here. Source: docs/attach.md, "The protocol", and `controller.gateway.stream.frames`.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import orjson

from controller.kube.errors import tidy

AUTHENTICATE: Final = "Authenticate"
"""The word of the notice that asks for a fresh token."""

HOLDING: Final = "Holding"
"""The word of the notice that input counts now, which is worth saying only where it had to wait."""

WAITING: Final = "Waiting"
"""The word of the notice that input waits until the one before has let go."""

TAKEOVER: Final = "Takeover"
"""The word of the notice that says who takes the terminal over."""


CLEAR: Final = b"\x1b[0m\x1b[H\x1b[2J"
"""What the output after a `replay` begins with, where the session has a terminal."""


class Stream(IntEnum):
    """The first byte of a binary frame of a session without a terminal."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    EXIT = 3
    STDIN_END = 4


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """Whose terminal it is, and whether it is one."""

    session_id: str
    is_terminal: bool


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that a person should know."""

    word: str
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """Why the close comes that comes next."""

    code: int
    reason: str
    message: str
    retry: bool


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has exited."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class Told:
    """The platform has something to say: an error."""

    text: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What the session has shown comes next, on a cleared screen where it has a terminal."""


@dataclass(frozen=True, slots=True)
class Other:
    """Nothing that we act on."""


Frame = SessionInfo | Notice | Closed | Exited | Told | Replay | Other


def read_frame(text: str) -> Frame:
    """Read a text frame."""
    try:
        fields = orjson.loads(text.encode("utf-8", errors="replace"))
    except orjson.JSONDecodeError:
        return Other()
    match fields:
        case {"type": "session_info", "session_id": str(session), "tty": bool(is_terminal)}:
            return SessionInfo(tidy(session), is_terminal)
        case {"type": "notice", "word": str(word), "text": str(told)}:
            return Notice(word, tidy(told))
        case {
            "type": "closed",
            "code": int(code),
            "reason": str(reason),
            "message": str(message),
            "retry": bool(retry),
        }:
            return Closed(code, tidy(reason), tidy(message), retry)
        case {"type": "exit", "exit_code": int(exit_code)} if not isinstance(exit_code, bool):
            return Exited(exit_code)
        case {"type": "replay"}:
            return Replay()
        case {"type": "error", "error": str(told)} | {"type": "error", "message": str(told)}:
            return Told(tidy(told))
        case _:
            return Other()


def render_resize(columns: int, rows: int) -> str:
    """Say how large the window is."""
    return orjson.dumps({"type": "resize", "cols": columns, "rows": rows}).decode()


def render_auth(token: str) -> str:
    """Give a fresh token, in a frame and nowhere else."""
    return orjson.dumps({"type": "auth", "token": token}).decode()

"""
The text frames between the gateway and a person's client. Pure.

Problem: three kinds of clients speak here, ours, the vendor's and the browser's page, and each ignores what it does not
know only as long as it is JSON with a `type`. Promise: what we send is one JSON object with a type; what we read is a
value of a closed union, and what is none of ours is `Unknown`, never an error.

| From us | Means |
| --- | --- |
| `session_info` | as the vendor's: whose terminal it is; first of all frames |
| `replay` | what follows begins with the past; only to our own clients |
| `notice` with `word` and `text` | something that a person should know and a program may: see `Word` |
| `closed` with `code`, `reason`, `message` and `retry` | the socket is closed next, for this reason |
| `exit` with `exit_code` | as the vendor's |
| `debug` | we are still here |

Source: sprites-api.md 3.3 (2026-09); gateway.md 5 and 6.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

import orjson

from controller.api.session import Identity
from controller.plan.fence_closing import Ending, describe_closing
from controller.sprites.exec_frames import Framing, Stream

CLEAR: Final = b"\x1b[0m\x1b[H\x1b[2J"
"""Plain colours, the cursor home, an empty screen: what a replayed screen is drawn on."""

TEXT_CHARACTERS: Final = 16 * 1024
"""The longest text frame we look into: a token with its envelope has less."""

PASSED_ON: Final = frozenset({"debug", "error", "port_opened", "port_closed"})
"""What the platform says to everybody. The rest of its words is for us, and nobody else speaks ours."""

_SIGNAL: Final = re.compile(r"(?:SIG)?[A-Z][A-Z0-9]{1,7}", re.ASCII)


class Word(Enum):
    """What a notice tells."""

    HOLDING = "Holding"
    """Your input counts now."""
    WAITING = "Waiting"
    """Your input waits until the one before you has let go."""
    INPUT_REFUSED = "InputRefused"
    """Input of somebody who may not type, or not any more, was dropped."""
    INPUT_UNSURE = "InputUnsure"
    """The connection broke under input that was not confirmed: it may or may not have arrived."""
    RECONNECTING = "Reconnecting"
    PAUSED = "Paused"
    """The sprite is paused, and looking on does not wake it."""
    UNSEEN = "Unseen"
    """Nobody can say whether the sprite is paused, and looking on must not wake it."""
    QUIET = "Quiet"
    """Nothing happened for a while, and the connection is down until you type."""
    STRANGER = "Stranger"
    """Another session answered in place of the recorded one; nothing was typed."""
    SESSION_MISSING = "SessionMissing"
    """The session is not listed any more; another may follow."""
    AUTHENTICATE = "Authenticate"
    """Send an `auth` frame with a fresh token."""
    TAKEOVER = "Takeover"
    """Somebody takes the terminal over, through this gateway; who, says the text."""


# --- what a client may say --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resize:
    """The client's window has this size."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal for the process, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Auth:
    """A fresh token. Its text is never shown."""

    token: str

    def __repr__(self) -> str:
        return "Auth(…)"


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing that we act on."""


ClientFrame = Resize | Signal | Auth | Unknown


def read_client_frame(text: str) -> ClientFrame:
    """Read what a client says; sizes beyond 1 to 65,535, and names that are no signal's, say nothing."""
    if len(text) > TEXT_CHARACTERS:
        return Unknown()
    try:
        fields = orjson.loads(text.encode("utf-8", errors="replace"))
    except orjson.JSONDecodeError:
        return Unknown()
    match fields:
        case {"type": "resize", "cols": int(columns), "rows": int(rows)} if _is_size(columns) and _is_size(rows):
            return Resize(columns, rows)
        case {"type": "signal", "signal": str(name)} if _SIGNAL.fullmatch(name):
            return Signal(name)
        case {"type": "auth", "token": str(token)} if token:
            return Auth(token)
        case _:
            return Unknown()


def _is_size(value: int) -> bool:
    return not isinstance(value, bool) and 0 < value < 65536


# --- what we say ------------------------------------------------------------------------------------------------------


def render_session_info(identity: Identity, framing: Framing, *, types: bool) -> str:
    """Say whose terminal it is; the command is not told, since it may hold what not every viewer should read."""
    created = 0 if identity.created is None else int(identity.created.timestamp())
    return _render(
        "session_info",
        session_id=identity.session_id,
        command="",
        created=created,
        cols=0,
        rows=0,
        is_owner=types,
        tty=framing is Framing.RAW,
    )


def render_replay() -> str:
    """Say that the past comes next; where it ends cannot be said, since the platform does not mark it."""
    return _render("replay")


def render_notice(word: Word, text: str) -> str:
    """Tell a person something, and a program its word."""
    return _render("notice", word=word.value, text=text)


def render_closing(ending: Ending, detail: str) -> str:
    """Tell why the close comes that comes next."""
    return orjson.dumps(describe_closing(ending, detail)).decode()


def render_debug() -> str:
    """Say that we are still here."""
    return _render("debug", msg="the gateway is still here")


def render_exit(exit_code: int, framing: Framing) -> tuple[str | bytes, ...]:
    """Say that the process has ended, in the form of its kind: where it has no terminal, the numbered frame is last."""
    text = _render("exit", exit_code=exit_code)
    return (text,) if framing is Framing.RAW else (text, bytes([Stream.EXIT, exit_code & 0xFF]))


def is_passed_on(text: str) -> bool:
    """Tell whether a text frame of the platform goes to everybody as it is."""
    try:
        fields = orjson.loads(text.encode("utf-8", errors="replace"))
    except orjson.JSONDecodeError:
        return False
    match fields:
        case {"type": str(kind)}:
            return kind in PASSED_ON
        case _:
            return False


def _render(kind: str, **fields: object) -> str:
    return orjson.dumps({"type": kind, **fields}).decode()

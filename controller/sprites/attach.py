"""
An attachment: one socket to a session that lives already.

Problem: whoever hands a terminal from one person to another must know what of the former's input is still on its way,
and a socket tells neither that nor, by its silence, whether the other side is there; its end is not the session's end;
and the session that answers may be another one with the same id. Promise: an attachment is given out only once it has
announced itself; what was sent counts as unconfirmed until a pong that was asked for after it, and is never more than
64 KiB; `drain` says how much could not be confirmed; `abort` cuts at once; and only an exit frame is an exit.

Who types also runs `confirm` beside it: it asks for the pongs.

Source: sprites-api.md 3.3 to 3.7 and 12 rows 25 to 27, 41 (2026-09).
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Final, assert_never

import orjson

from controller.api.session import Announced
from controller.sprites.exec_frames import (
    STDIN_FRAME_BYTES,
    ErrorFrame,
    ExitFrame,
    Framing,
    OtherFrame,
    Stream,
    read_text_frame,
)
from controller.sprites.sockets import Socket, SocketEnded
from controller.sprites.texts import scrub
from controller.sprites.token import Token

UNCONFIRMED_BYTES: Final = 64 * 1024
"""The most input that may be on its way without a pong: what a takeover may lose sight of, at the worst."""

DRAIN_LIMIT: Final = timedelta(seconds=5)
"""How long a drain waits for its pong before the socket is cut."""

LAST_OUTPUT: Final = timedelta(seconds=1)
"""
How long after a text `exit` the last output of a terminal, or the last frame of a command, is waited for.

Source: sprites-api.md 3.5 (2026-09): a terminal's connection drops right after it; without a terminal output may trail
it, and the numbered exit comes last.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """A text frame that is neither the session's name nor its exit, as it came."""

    text: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The process has ended with this code, and nothing follows."""

    code: int


AttachFrame = bytes | Told | Exit
"""Bytes are a binary frame as it came: with the number of its stream where the session has no terminal."""


class Typed(Enum):
    """What became of input."""

    SENT = auto()
    """All of it was sent."""
    HALTED = auto()
    """Some of it, or all, was not: the right to type ended, or a drain had begun."""


class AttachmentEnded(Exception):
    """
    The socket ended, and no exit was seen: this says nothing about the process.

    Args:
        told: How it ended, for an error text.
    """

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


class Attachment:
    """
    One open socket to a session. `SpritesClient.attach_session` makes it.

    Args:
        socket: The socket, on which nothing was read but the announcement and what came before it.
        announced: The session that answered; whether it is the wanted one is for the caller to judge.
        framing: How its binary frames are to be read.
        token: Whose secrets are taken out of texts.
    """

    def __init__(self, socket: Socket, announced: Announced, framing: Framing, token: Token) -> None:
        self.announced = announced
        self.framing = framing
        self._socket = socket
        self._token = token
        self._early_code: int | None = None
        self._sealed = False
        self._sent = 0
        self._confirmed = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def unconfirmed_bytes(self) -> int:
        """How many bytes were sent that no pong has confirmed: they may or may not reach the process."""
        return self._sent - self._confirmed

    async def receive(self) -> AttachFrame:
        """
        Wait for the next frame of the session.

        An exit is given last: the numbered one, or else a text `exit` with the end of the socket, or with
        `LAST_OUTPUT` of silence after it.

        Raises:
            AttachmentEnded: The socket ended without an exit.
        """
        while True:
            try:
                message = await self._next_message()
            except SocketEnded as ended:
                self._seal()
                if self._early_code is not None:
                    return Exit(self._early_code)
                raise AttachmentEnded(scrub(ended.told, self._token)) from None
            except TimeoutError:
                assert self._early_code is not None
                return Exit(self._early_code)
            if isinstance(message, bytes):
                if self.framing is Framing.NUMBERED and len(message) == 2 and message[0] == Stream.EXIT:
                    return Exit(message[1])
                return message
            frame = read_text_frame(message)
            match frame:
                case ExitFrame(code):
                    self._early_code = code
                case ErrorFrame() | OtherFrame():
                    return Told(message)
                case Announced():
                    pass
                case _:
                    assert_never(frame)

    def ignore_output(self) -> None:
        """
        Throw the output of a terminal away unread: whoever only types wants no more of it than the exit.

        Without a terminal the exit is a binary frame, so everything is read there.
        """
        if self.framing is Framing.RAW:
            self._socket.ignore_bytes()

    async def send_input(self, frame: bytes, *, may_type: Callable[[], bool]) -> Typed:
        """
        Send one binary frame of input, as slowly as it is confirmed.

        A long one goes in pieces, and `may_type` is asked directly before each of them is written. Without `confirm`
        beside it, this waits for ever once the limit is reached.

        Args:
            frame: In the form of the session's framing.
            may_type: Whether input may still be sent, at this very moment.

        Raises:
            AttachmentEnded: The socket has ended; what was not confirmed may or may not have arrived.
        """
        for piece in split_input(frame, self.framing):
            if not await self._send(piece, len(piece), may_type):
                return Typed.HALTED
        return Typed.SENT

    async def send_resize(self, *, columns: int, rows: int, may_type: Callable[[], bool]) -> Typed:
        """Tell the terminal its size, under the same rules as input."""
        return await self._send_text({"type": "resize", "cols": columns, "rows": rows}, may_type)

    async def send_signal(self, name: str, *, may_type: Callable[[], bool]) -> Typed:
        """Ask for a signal to the process, under the same rules as input."""
        return await self._send_text({"type": "signal", "signal": name}, may_type)

    async def confirm(self) -> None:
        """Ask for a pong after each stretch of input, until the socket ends."""
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                await self._ask_for_pong()
        except SocketEnded:
            self._seal()

    async def drain(self, *, limit: timedelta = DRAIN_LIMIT) -> int:
        """
        Send nothing more, wait for the pong that confirms all that was sent, and close.

        Returns:
            The bytes that could not be confirmed within the limit: 0 means that none of it is on its way any more.
        """
        self._seal()
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._ask_for_pong()
        except (TimeoutError, SocketEnded):
            return self.abort()
        await self._socket.close()
        return 0

    def abort(self) -> int:
        """Cut the socket at once, and give the bytes that were not confirmed; aborting twice is fine."""
        self._seal()
        self._socket.abort()
        return self.unconfirmed_bytes

    async def close(self) -> None:
        """Leave the session, which goes on; closing twice is fine."""
        self._seal()
        await self._socket.close()

    def _seal(self) -> None:
        self._sealed = True
        self._room.set()

    async def _next_message(self) -> str | bytes:
        if self._early_code is None:
            return await self._socket.receive()
        async with asyncio.timeout(LAST_OUTPUT.total_seconds()):
            return await self._socket.receive()

    async def _send_text(self, fields: dict[str, object], may_type: Callable[[], bool]) -> Typed:
        text = orjson.dumps(fields).decode()
        return Typed.SENT if await self._send(text, len(text), may_type) else Typed.HALTED

    async def _send(self, message: bytes | str, size: int, may_type: Callable[[], bool]) -> bool:
        while self.unconfirmed_bytes + size > UNCONFIRMED_BYTES and not self._sealed:
            self._room.clear()
            await self._room.wait()
        if self._sealed or not may_type():
            return False
        # Counted before it is written: what is cut in between is unconfirmed, not unknown.
        self._sent += size
        self._news.set()
        try:
            await self._socket.send(message)
        except SocketEnded as ended:
            self._seal()
            raise AttachmentEnded(scrub(ended.told, self._token)) from None
        return True

    async def _ask_for_pong(self) -> None:
        mark = self._sent
        await self._socket.ping()
        self._confirmed = max(self._confirmed, mark)
        self._room.set()


def split_input(frame: bytes, framing: Framing) -> Iterator[bytes]:
    """Cut input into pieces of at most `STDIN_FRAME_BYTES`, each with the number of its stream where it has one."""
    if len(frame) <= STDIN_FRAME_BYTES:
        yield frame
        return
    head = b"" if framing is Framing.RAW else frame[:1]
    for start in range(len(head), len(frame), STDIN_FRAME_BYTES):
        yield head + frame[start : start + STDIN_FRAME_BYTES]

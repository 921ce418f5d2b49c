"""
The one place that knows the WebSocket library.

Problem: whether a failed launch may be repeated hangs on *where* it failed, and the library's exceptions tell that only
to somebody who knows how far it had come; besides, it logs every header at DEBUG, follows redirects and compresses.
Promise: `open_socket` raises `DialFailed`, which carries the matching error and the `Step`; redirects are never
followed, nothing of a handshake is ever logged, messages are bounded, and leaving never waits for the other side.

Source: sprites-api.md 3.1, 3.7 and 12 row 27 (2026-09). Observed: websockets 17.4, its source, 2026-09.
"""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from enum import Enum
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import Event

from controller.sprites.errors import SpritesError, TimedOut, Unreachable
from controller.sprites.settings import SpritesSettings
from controller.sprites.texts import tidy

MESSAGE_BYTES: Final = 1024 * 1024
"""The largest message we take. Source: sprites-api.md 3.7 (2026-09): the Go client's buffers."""

WAITING_MESSAGES: Final = 16
"""Frames that wait to be read before the other side is slowed down."""

FAREWELL: Final = timedelta(milliseconds=500)
"""
The longest we wait for the answer to our close frame, before the connection is cut. The platform keeps a socket open
5 s after an exit (sprites-api.md trap 17), and a caller should not pay that.
"""

_wire_log: Final = logging.getLogger("controller.sprites.wire")
_wire_log.setLevel(logging.WARNING)
"""The library writes the bearer header and the query at DEBUG; this level of its own keeps them out of every log."""


class Step(Enum):
    """How far an opening had come when it failed."""

    BEFORE_SEND = "before_send"
    """Not a byte of the request had been sent."""
    SENT = "sent"
    """The request was on its way, or there, and no answer was read."""
    ANSWERED = "answered"
    """The other side answered with a status instead of the upgrade."""


class DialFailed(Exception):
    """
    The socket did not open. Internal to this room: callers of the client see `error`, or what they make of the step.

    Args:
        error: The matching error.
        step: How far it had come.
    """

    def __init__(self, error: SpritesError, step: Step) -> None:
        super().__init__(error.message)
        self.error = error
        self.step = step


class SocketEnded(Exception):
    """
    An open socket ended. Internal to this room.

    Args:
        told: How it ended, for an error text.
        oversized: It was ended by us, because a message was larger than `MESSAGE_BYTES`.
    """

    def __init__(self, told: str, *, oversized: bool) -> None:
        super().__init__(told)
        self.told = told
        self.oversized = oversized


class _Connection(ClientConnection):
    """
    The library's connection, which may be told to throw away what nobody reads before anybody is woken for it.

    Observed: websockets 17.4: `process_event` takes each frame, and a message in pieces goes on with frames of another
    kind than it began with (`test_output_that_nobody_wants_is_thrown_away_and_everything_else_is_told`).
    """

    ignores_bytes = False

    def process_event(self, event: Event) -> None:
        """Take in what came, but for whole binary messages that nobody wants."""
        is_bytes = isinstance(event, Frame) and event.opcode is Opcode.BINARY and event.fin
        if not (is_bytes and self.ignores_bytes):
            super().process_event(event)


class Socket:
    """An open socket."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def send(self, message: bytes | str) -> None:
        """
        Send a binary or a text message, as slowly as the other side reads.

        Nothing is waited for between the call and the write: what the caller checked directly before still holds.
        """
        try:
            await self._connection.send(message)
        except ConnectionClosed as ended:
            raise _describe_end(ended) from None

    async def ping(self) -> None:
        """Send a ping and wait for its pong, which comes after all that was sent before was read."""
        try:
            await (await self._connection.ping())
        except ConnectionClosed as ended:
            raise _describe_end(ended) from None

    async def receive(self) -> str | bytes:
        """Wait for the next message."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as ended:
            raise _describe_end(ended) from None

    def ignore_bytes(self) -> None:
        """Give no binary messages from now on, but for those that came before and those that come in pieces."""
        self._connection.ignores_bytes = True

    async def close(self) -> None:
        """Say goodbye and wait at most `FAREWELL` for the answer; closing twice is fine."""
        await self._connection.close()

    def abort(self) -> None:
        """Cut the connection at once: what is still in our buffers is never sent."""
        self._connection.transport.abort()


class Buffering(Enum):
    """How much of what we send may wait inside this process."""

    USUAL = 32 * 1024
    """As much as the library thinks best."""
    NONE = 0
    """Each message is handed to the system before the next is taken: what is cut is cut at once."""


@contextlib.asynccontextmanager
async def open_socket(
    url: str,
    headers: dict[str, str],
    *,
    subject: str,
    settings: SpritesSettings,
    tls: ssl.SSLContext | None,
    before_send: Callable[[], None],
    classify: Callable[[int, dict[str, str], bytes], SpritesError],
    buffering: Buffering = Buffering.USUAL,
) -> AsyncIterator[Socket]:
    """
    Open a socket for the length of a `with` block.

    At the end of the block we say goodbye and wait at most `FAREWELL`; out of an error the connection is cut at once.

    Args:
        url: The whole address, `ws` or `wss`.
        headers: Sent with the upgrade.
        subject: What the socket is for: the beginning of every error text.
        settings: Limits and pings.
        tls: For `wss`; None for `ws`.
        before_send: Called directly before the first byte of the request; if it raises, nothing is sent.
        classify: Makes the error of a status, headers (lower-case names) and body that came instead of the upgrade.
        buffering: How much of what we send may wait inside this process.

    Raises:
        DialFailed: It did not open.
    """
    dial = _Dial(url, headers, settings=settings, tls=tls, before_send=before_send, buffering=buffering)
    connection = await _dial(dial, subject, settings, classify)
    try:
        yield Socket(connection)
    except BaseException:
        connection.transport.abort()
        raise
    await connection.close()


async def _dial(
    dial: "_Dial",
    subject: str,
    settings: SpritesSettings,
    classify: Callable[[int, dict[str, str], bytes], SpritesError],
) -> _Connection:
    try:
        async with asyncio.timeout(settings.connect_limit.total_seconds()) as waiting:
            dial.waiting = waiting
            connection = await dial
            assert isinstance(connection, _Connection)
            return connection
    except InvalidStatus as refused:
        answer = refused.response
        names = {name.lower(): value for name, value in answer.headers.raw_items()}
        raise DialFailed(classify(answer.status_code, names, bytes(answer.body)), Step.ANSWERED) from None
    except TimeoutError:
        if dial.sent:
            limit = settings.upgrade_limit.total_seconds()
            error: SpritesError = TimedOut(f"{subject} failed: the upgrade was not answered within {limit:g} s.")
            raise DialFailed(error, Step.SENT) from None
        limit = settings.connect_limit.total_seconds()
        raise DialFailed(
            Unreachable(f"{subject} failed: no connection within {limit:g} s."), Step.BEFORE_SEND
        ) from None
    except (OSError, WebSocketException, EOFError) as broken:
        where = "before the upgrade was answered" if dial.sent else "before anything was sent"
        step = Step.SENT if dial.sent else Step.BEFORE_SEND
        raise DialFailed(Unreachable(f"{subject} failed {where}: {_describe_break(broken)}."), step) from None


def _describe_break(broken: Exception) -> str:
    """
    Say how an opening broke. Only the operating system's words are quoted.

    The library's own texts quote what the other side sent, cut anywhere, so that a secret in it would go unrecognised.
    """
    cause = broken.__cause__ or broken
    match cause:
        case OSError():
            return tidy(str(cause), characters=120) or type(cause).__name__
        case EOFError():
            return "the connection was cut"
        case _:
            return "the answer is no valid upgrade"


class _Dial(connect):
    """The library's opening, which notes when the request goes out and stays where it was sent."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        *,
        settings: SpritesSettings,
        tls: ssl.SSLContext | None,
        before_send: Callable[[], None],
        buffering: Buffering,
    ) -> None:
        self.sent = False
        self.waiting: asyncio.Timeout | None = None
        """The limit around the opening: for the connection at first, and anew for the answer to the upgrade."""
        self._before_send = before_send
        self._upgrade_limit = settings.upgrade_limit
        super().__init__(
            url,
            additional_headers=headers,
            user_agent_header=settings.user_agent,
            compression=None,  # a small message must not unfold into a large one
            proxy=True if settings.trust_env else None,
            open_timeout=None,  # our own limits tell the two waits apart
            ping_interval=settings.ping_every.total_seconds(),
            ping_timeout=settings.pong_limit.total_seconds(),
            close_timeout=FAREWELL.total_seconds(),
            max_size=MESSAGE_BYTES,
            max_queue=WAITING_MESSAGES,
            write_limit=buffering.value,
            logger=_wire_log,
            create_connection=_Connection,
            ssl=tls,
        )

    async def open_tcp_connection(self) -> ClientConnection:
        """Connect, then ask whether the request may go: the library sends it directly after this returns."""
        connection = await super().open_tcp_connection()
        try:
            self._before_send()
        except BaseException:
            connection.transport.abort()
            raise
        self.sent = True
        if self.waiting is not None:
            self.waiting.reschedule(asyncio.get_running_loop().time() + self._upgrade_limit.total_seconds())
        return connection

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Stay: a redirect would carry the token elsewhere."""
        return exc


def _describe_end(ended: ConnectionClosed) -> SocketEnded:
    oversized = ended.sent is not None and ended.sent.code == CloseCode.MESSAGE_TOO_BIG
    if ended.rcvd is None:
        told = "the message was too large" if oversized else "the connection was cut"
    else:
        told = f"closed with code {ended.rcvd.code}"
        if ended.rcvd.reason:
            told += f", {tidy(ended.rcvd.reason, characters=80)!r}"
    return SocketEnded(told, oversized=oversized)

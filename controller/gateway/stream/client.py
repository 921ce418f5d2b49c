"""
One person's socket.

Problem: whoever does not read must cost neither memory without end nor anybody else's time, and whoever is gone must
not look like somebody silent. Promise: what waits for a person is bounded, and who falls behind is told and dropped; a
ping that goes unanswered ends the socket, silence does so only after the idle limit, which is hours; every close was
told in a text frame first, and is over within the farewell, whatever the other side does.

The door makes the response with `build_socket`, since pongs must be seen here.

Source: gateway.md 5; sprites-api.md 3.3, 3.4, 3.7 (2026-09). Observed: aiohttp 3.14, its source, 2026-11.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import Enum, auto
from typing import Final

from aiohttp import WSMsgType, web

from controller.gateway.stream.delays import BothDelays
from controller.gateway.stream.frames import (
    CLEAR,
    Auth,
    ClientFrame,
    Resize,
    Word,
    read_client_frame,
    render_closing,
    render_debug,
    render_notice,
    render_replay,
    render_session_info,
)
from controller.gateway.stream.recorded import Recorded
from controller.gateway.stream_settings import StreamSettings
from controller.plan.fence_closing import CLOSINGS, Ending
from controller.sprites.exec_frames import Framing

JOINED_BYTES: Final = 32 * 1024
"""
So much terminal output that waits goes as one message. A terminal's frames have no edges of their own, so a person who
falls behind gets fewer and larger ones; without a terminal each frame stays what it is.
"""


class Role(Enum):
    """What a person attached for."""

    TYPE = auto()
    """To type, once they hold the terminal: this may wake the sprite."""
    VIEW = auto()
    """To look on."""


class Dialect(Enum):
    """Whose client it is."""

    OURS = auto()
    """Our own, and the console page: it knows `replay`, and gets a cleared screen before one."""
    VENDOR = auto()
    """The vendor's SDKs: they get what the platform sends, and control frames that they ignore."""


Incoming = bytes | ClientFrame
TakeIncoming = Callable[[Incoming], Awaitable[bool]]
"""Takes a frame, and tells whether it went on to the session: it may also be kept for later, or refused."""


def build_socket(settings: StreamSettings, *, protocols: Sequence[str] = ()) -> web.WebSocketResponse:
    """
    Make the response for an upgrade to be handed to a `Client`.

    No compression, which would unfold a small message into a large one; pongs and the answer to a close are left to us.
    """
    return web.WebSocketResponse(
        protocols=protocols,
        compress=False,
        autoclose=False,
        autoping=False,
        max_msg_size=settings.message_bytes,
        timeout=settings.farewell.total_seconds(),
    )


class Client:
    """
    A person's socket, from the upgrade to its end.

    Args:
        socket: From `build_socket`, prepared.
        abort: Cuts the connection at once: `request.transport.abort`.
        socket_id: Its id in the fence; a viewer has one too, for logs.
        role: What it is here for.
        dialect: Whose client it is.
        settings: Its bounds.
        size: Of its window, where the request told it.
        on_auth: Given a fresh token that the client sent; None where none is expected.
        delays: Where it is counted how long frames stay here; None where nobody wants to know.
    """

    def __init__(
        self,
        socket: web.WebSocketResponse,
        abort: Callable[[], None],
        *,
        socket_id: str,
        role: Role,
        dialect: Dialect,
        settings: StreamSettings,
        size: Resize | None = None,
        on_auth: Callable[[str], None] | None = None,
        delays: BothDelays | None = None,
    ) -> None:
        self.socket_id = socket_id
        self.role = role
        self.dialect = dialect
        self.size = size
        """What it last said of its window."""
        self.on_end: Callable[[Ending], None] | None = None
        """Told why this socket ends as soon as that is decided, whoever decides it; it must not wait."""
        self.queued_bytes = 0
        self._sent_bytes = 0
        self._received_bytes = 0
        self._socket = socket
        self._abort = abort
        self._settings = settings
        self._on_auth = on_auth
        self._delays = delays or BothDelays()
        self._queue: deque[tuple[str | bytes, float]] = deque()
        """What waits for the person, each with the moment at which it came."""
        self._queue_bytes = settings.queue_bytes
        self._queue_frames = settings.queue_frames
        self._wake = asyncio.Event()
        self._emptied = asyncio.Event()
        self._framing: Framing | None = None
        self._announced: Recorded | None = None
        self._ending: Ending | None = None
        self._loop = asyncio.get_running_loop()
        self._spoke = self._moved = self._loop.time()
        self._stuck_since: float | None = None
        self._pinged: float | None = None
        self._serving = False
        self._left = False
        self._farewell: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> timedelta:
        """How long no input and no output came or went; what only keeps a socket up does not count."""
        return timedelta(seconds=self._loop.time() - self._moved)

    @property
    def ending(self) -> Ending | None:
        """Why it is being closed, or was; None while it is open."""
        return self._ending

    def take_counts(self) -> tuple[int, int]:
        """Give the bytes of the terminal that went to and came from this person since the last time."""
        counts = (self._sent_bytes, self._received_bytes)
        self._sent_bytes = self._received_bytes = 0
        return counts

    def push(self, frame: str | bytes) -> None:
        """Queue a frame. One that does not fit ends the socket, which is told so; nobody waits for it."""
        if self._ending is not None:
            return
        waiting = self.queued_bytes + len(frame)
        if waiting > self._queue_bytes or len(self._queue) >= self._queue_frames:
            self.end(Ending.TOO_SLOW)
            return
        self.queued_bytes = waiting
        self._queue.append((frame, self._delays.output.now()))
        self._wake.set()

    def tell(self, word: Word, text: str) -> None:
        """Send a notice."""
        self.push(render_notice(word, text))

    def announce(self, recorded: Recorded) -> None:
        """Send whose terminal it is, once for each session, and not before it is known how it frames."""
        if recorded.framing is None or self._announced == recorded:
            return
        self._announced, self._framing = recorded, recorded.framing
        self.push(render_session_info(recorded.identity, recorded.framing, types=self.role is Role.TYPE))

    def begin_replay(self) -> None:
        """Say that the past comes next, and clear what is on the screen for it."""
        if self.dialect is Dialect.OURS:
            self.push(render_replay())
            if self._framing is Framing.RAW:
                self.push(CLEAR)

    def end(self, ending: Ending, detail: str = "", *, last: Sequence[str | bytes] = ()) -> None:
        """
        Close the socket for a reason that is told first; the first reason stays.

        Who is too slow, or gone, loses what waits; everybody else gets it before.

        Args:
            ending: Why: only after an exit that was seen is it EXITED.
            detail: The API server's own sentence, where a rule spoke.
            last: Frames of the exit, where it is one.
        """
        if self._ending is not None:
            return
        self._decide(ending)
        if ending is Ending.TOO_SLOW:
            self._queue.clear()
        if ending is not Ending.EXITED:
            last = [*last, render_closing(ending, detail)]
        now = self._delays.output.now()
        self._queue.extend((frame, now) for frame in last)
        self._wake.set()
        self._farewell = self._loop.call_later(self._settings.farewell.total_seconds(), self._abort)

    def _decide(self, ending: Ending) -> None:
        """End for this reason, unless there is one already; whoever says who may type hears it before a frame moves."""
        if self._ending is None:
            self._ending = ending
            if self.on_end is not None:
                self.on_end(ending)

    async def wait_until_empty(self) -> None:
        """Wait until all that was queued has been handed to the system, the socket has ended, or a nudge."""
        if self._queue and self._ending is None:
            self._emptied.clear()
            await self._emptied.wait()

    def nudge(self) -> None:
        """Let whoever waits for this person look again whether they still should."""
        self._emptied.set()

    async def run(self, take: TakeIncoming) -> Ending:
        """
        Serve the person until the socket has ended, and tell why it did.

        Args:
            take: Given each binary frame and each text frame that says something; the next is read once it returns,
                so whoever types faster than it is taken is slowed down by their own connection.
        """
        try:
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(self._send())
                reading = group.create_task(self._read(take))
                watching = group.create_task(self._watch())
                await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
                if self._farewell is not None:
                    # Told to end: the last frames and the close go out first, and what still comes is read, until the
                    # other side closes too. A connection that is dropped with something unread is reset, and a reset
                    # overtakes the reason. The farewell cuts this short.
                    await asyncio.wait({sending})
                    await asyncio.wait({reading}, timeout=self._settings.farewell.total_seconds())
                for task in (sending, reading, watching):
                    task.cancel()
        finally:
            if self._farewell is not None:
                self._farewell.cancel()
            ending = self._ending = self._ending or Ending.LEFT
            self._queue.clear()
            self._emptied.set()
            if not self._left:
                self._abort()
        return ending

    async def _send(self) -> None:
        queue, socket, delays = self._queue, self._socket, self._delays.output
        with contextlib.suppress(ConnectionError):
            while True:
                if not queue:
                    self._emptied.set()
                    if self._ending is not None:
                        break
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                frame, since = queue.popleft()
                self._stuck_since = self._spoke = self._loop.time()
                if isinstance(frame, str):
                    self.queued_bytes -= len(frame)
                    await socket.send_str(frame)
                else:
                    if queue and self._framing is Framing.RAW:
                        frame = self._join(frame)
                    self.queued_bytes -= len(frame)
                    self._sent_bytes += len(frame)
                    self._moved = self._spoke
                    await socket.send_bytes(frame)
                    # What goes as one message counts once, by what waited longest.
                    delays.note(since)
                self._stuck_since = None
            # `close` of the library would drop the connection at once where somebody reads from it, as we do.
            code = CLOSINGS[self._ending].code.to_bytes(2, "big")
            await socket.send_frame(code + self._ending.value.encode(), WSMsgType.CLOSE)

    def _join(self, frame: bytes) -> bytes:
        joined, size = [frame], len(frame)
        queue = self._queue
        while queue and size < JOINED_BYTES and isinstance(following := queue[0][0], bytes):
            joined.append(following)
            size += len(following)
            queue.popleft()
        return b"".join(joined)

    async def _read(self, take: TakeIncoming) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                message = await self._socket.receive()
                # Reading stands still while `take` waits, and the pong may lie behind what it waits for.
                self._serving = True
                match message.type:
                    case WSMsgType.BINARY | WSMsgType.TEXT if self._ending is not None:
                        pass
                    case WSMsgType.BINARY:
                        if message.data:
                            self._moved = self._loop.time()
                            self._received_bytes += len(message.data)
                            since = self._delays.input.now()
                            if await take(message.data):
                                self._delays.input.note(since)
                    case WSMsgType.TEXT:
                        await self._take_text(read_client_frame(message.data), take)
                    case WSMsgType.PING:
                        await self._socket.pong(message.data)
                    case WSMsgType.PONG:
                        self._pinged = None
                    case WSMsgType.CLOSE:
                        if self._ending is None:
                            self._left = True
                            await self._socket.close(code=message.data or CLOSINGS[Ending.LEFT].code)
                        # Ours has been sent, or goes out last. A second one, with which the library would let go, is a
                        # fault to a browser: its page sees 1006, and no reason. Observed: Chromium 156, 2026-11.
                        return
                    case WSMsgType.ERROR:
                        if getattr(message.data, "code", None) == CLOSINGS[Ending.TOO_LARGE].code:
                            self._decide(Ending.TOO_LARGE)
                        return
                    case _:
                        return
                self._serving = False
                if self._pinged is not None:
                    # Who sends lives; and a pong that lay behind this frame gets its full time from here.
                    self._pinged = self._loop.time()

    async def _take_text(self, frame: ClientFrame, take: TakeIncoming) -> None:
        match frame:
            case Auth(token):
                if self._on_auth is not None:
                    self._on_auth(token)
            case Resize():
                self.size = frame
                await take(frame)
            case _:
                await take(frame)

    async def _watch(self) -> None:
        """Ping, speak up after a silence, and end what is stuck or gone."""
        settings = self._settings
        silence, pong_limit = settings.silence_limit.total_seconds(), settings.pong_limit.total_seconds()
        every, idle_limit = settings.ping_every.total_seconds(), settings.idle_limit.total_seconds()
        next_ping = self._loop.time() + every
        while True:
            due = min(next_ping, self._spoke + silence)
            if self._ending is None:
                due = min(due, self._moved + idle_limit)
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            now = self._loop.time()
            if now - self._moved >= idle_limit:
                self.end(Ending.IDLE)
            if self._stuck_since is not None and now - self._stuck_since >= pong_limit:
                self.end(Ending.TOO_SLOW)
            elif self._pinged is not None and now - self._pinged >= pong_limit and not self._serving:
                self._decide(Ending.LEFT)
                self._abort()
                return
            if now >= next_ping:
                next_ping = now + every
                if self._stuck_since is None and self._ending is None:
                    self._pinged = self._pinged or now
                    try:
                        await self._socket.ping()
                    except ConnectionError:
                        self._decide(Ending.LEFT)
                        self._wake.set()
                        return
            if now - self._spoke >= silence:
                self._spoke = now
                if self._stuck_since is None:
                    self.push(render_debug())

"""
One exec session: its process, the clients attached to it, and what an attach gets of the past.

Promise: output goes to every client in order and into a bounded ring; a session ends once, and each client gets the
end in the form its kind of session has; who leaves starts the count of `max_run_after_disconnect`, who comes stops it.
Source: sprites-api.md 3.3 to 3.8.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

from controller.lab.emulator.frames import Stream, render_exit, render_output, render_session_info, render_text
from controller.lab.emulator.labclock import LabClock, Timer
from controller.lab.emulator.switches import (
    IdType,
    InputFrom,
    IsActive,
    IsOwner,
    Replay,
    RunOnFrom,
    Shown,
    SocketClose,
    Switches,
    TextExit,
)
from controller.lab.emulator.world import Process

DRAIN_SECONDS: Final = 1.0
"""How long output may trail its process: somebody else may hold the pipe open for ever."""
FAST_SECONDS: Final = 0.2
FAST_BYTES: Final = 65536
"""Observed: the fast path cuts at exactly this."""
QUEUE_BYTES: Final = 4 << 20
"""Beyond this the process is held up until its slowest client has read."""
RECEIVED_BYTES: Final = 1 << 16
RECENT: Final = timedelta(minutes=5)
_HYPERLINK: Final = re.compile(rb"\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")


class Ending(Enum):
    """How the server closes a socket after the last frame."""

    DROP = auto()
    """The TCP connection ends without a close frame."""
    NORMAL = auto()
    """Close 1000."""
    LINGER = auto()
    """Close 1000 after the linger time, unless the client closes first."""
    LINGER_THEN_DROP = auto()
    """The same without a close frame."""


NOISE: Final = ('{"type":"weather","sunny":true}', "not json")
"""What a client must ignore: an unknown type, and text that is no JSON."""


@dataclass(frozen=True)
class Size:
    """Of a terminal."""

    rows: int
    cols: int


class Attachment:
    """A client of a session: what is to be sent to it, in order."""

    def __init__(self, *, takes_input: bool, abort: Callable[[], None] = lambda: None) -> None:
        self.takes_input = takes_input
        self._abort = abort
        self._frames: deque[str | bytes | Ending] = deque()
        self._wake = asyncio.Event()
        self.queued_bytes = 0

    def push(self, frame: str | bytes | Ending) -> None:
        """Queue a frame, or the end."""
        self._frames.append(frame)
        if not isinstance(frame, Ending):
            self.queued_bytes += len(frame)
        self._wake.set()

    async def next_frame(self) -> str | bytes | Ending:
        """Wait for the next thing to send."""
        while not self._frames:
            self._wake.clear()
            await self._wake.wait()
        frame = self._frames.popleft()
        if not isinstance(frame, Ending):
            self.queued_bytes -= len(frame)
        return frame

    def abort(self) -> None:
        """Lose the connection at once, as at a pause."""
        self._abort()


class Session:
    """A started command with all that is known of it."""

    def __init__(
        self,
        process: Process,
        *,
        clock: LabClock,
        switches: Callable[[], Switches],
        tty: bool,
        stdin: bool,
        directory: str,
        argv: tuple[str, ...],
        size: Size,
        run_on: timedelta,
        on_activity: Callable[[], None],
        on_ended: Callable[["Session"], None],
        on_overdue: Callable[["Session"], None],
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Begin to listen to a process that has just started.

        Args:
            run_on: How long it may live without a client; zero is without limit.
            on_activity: Told of output and input.
            on_ended: Told when the process has ended: from then on the session is not listed.
            on_overdue: Told when `run_on` has passed.
            is_lost: Asked at the end of a fast command: whether it ends without output and without an exit.
        """
        self.process = process
        self.id = str(process.pid)
        self.tty = tty
        self.directory = directory
        self.argv = argv
        self.size = size
        self.created: datetime = clock.now()
        self.last_activity: datetime | None = None
        self.clients: list[Attachment] = []
        self.received = bytearray()
        self.signals: list[str] = []
        self._clock = clock
        self._switches = switches
        self._stdin = stdin
        self._run_on = run_on
        self._on_activity = on_activity
        self._on_ended = on_ended
        self._on_overdue = on_overdue
        self._is_lost = is_lost
        self._lost = False
        self._creator: Attachment | None = None
        self._ring: deque[tuple[Stream, bytes]] = deque()
        self._ring_bytes = 0
        self._rate: tuple[datetime, int] = (self.created, 0)
        self._countdown: Timer | None = None
        holds_back = not tty and (switches().fast_path or switches().lost_fast_every > 0)
        self._fast: list[tuple[Stream, bytes]] | None = [] if holds_back else None
        self._frozen = False
        self._exit_taken = False
        self._drained = False
        self._finished = False
        self._loop = asyncio.get_running_loop()
        self._drain_handle: asyncio.TimerHandle | None = None
        self._fast_handle = None if self._fast is None else self._loop.call_later(FAST_SECONDS, self._leave_fast_path)
        process.exited.add_done_callback(self._take_exit)
        process.start(self._take_output, self._take_drained)

    @property
    def ended(self) -> bool:
        """Whether its process has ended."""
        return self.process.exited.done()

    @property
    def bytes_per_second(self) -> float:
        """The output of the last second, roughly."""
        since, amount = self._rate
        return float(amount) if self._clock.now() - since <= timedelta(seconds=2) else 0.0

    def is_active(self) -> bool:
        """Answer by the meaning that the switch gives the question."""
        match self._switches().is_active:
            case IsActive.ATTACHED:
                return bool(self.clients)
            case IsActive.RECENT_OUTPUT:
                return self.last_activity is not None and self._clock.now() - self.last_activity <= RECENT
            case IsActive.ALWAYS:
                return True
            case IsActive.NEVER:
                return False

    def attach(self, client: Attachment, *, replay: bool) -> None:
        """Send who this is and what was, and from then on everything."""
        switches = self._switches()
        before, after = NOISE if switches.noise_frames else ("", "")
        if switches.debug_frames:
            client.push(render_text("debug", {"msg": "session created", "pid": self.process.pid, "t_ms": 0}))
        if before:
            client.push(before)
        client.push(self.render_info())
        if after:
            client.push(after)
        if replay:
            for frame in self._render_replay():
                client.push(frame)
        else:
            self._creator = client
        self.clients.append(client)
        if not self._counts_for_creator:
            self.stop_countdown()

    def detach(self, client: Attachment) -> None:
        """Go on without this client; twice is once."""
        if client in self.clients:
            self.clients.remove(client)
            self._balance()
            if not self.clients:
                self._on_activity()
            creator_left = client is self._creator
            if creator_left or not (self.clients or self._counts_for_creator):
                self.start_countdown()

    def drop_clients(self) -> None:
        """Cut every connection."""
        for client in list(self.clients):
            client.abort()

    def freeze(self) -> None:
        """Lose every connection and stand still, the countdown included."""
        self._frozen = True
        self.drop_clients()
        self.stop_countdown()

    def thaw(self) -> None:
        """Go on; without a client the countdown begins anew."""
        self._frozen = False
        self.start_countdown()

    def start_countdown(self) -> None:
        """Count down to the end, unless somebody is attached or it may run without limit."""
        self.stop_countdown()
        watched = self.clients and not self._counts_for_creator
        if self._run_on > timedelta() and not (watched or self.ended or self._finished or self._frozen):
            self._countdown = self._clock.call_later(self._run_on, lambda: self._on_overdue(self))

    def stop_countdown(self) -> None:
        """Let it live: somebody is here, or its time stands still."""
        if self._countdown is not None:
            self._countdown.cancel()
            self._countdown = None

    def set_run_on(self, run_on: timedelta) -> None:
        """Let a client that attaches say anew how long it may outlive its clients."""
        self._run_on = run_on

    async def take_input(self, client: Attachment, data: bytes) -> None:
        """Hand input to the process, if this client's counts."""
        if not self.may_type(client):
            return
        self.received += data[: max(0, RECEIVED_BYTES - len(self.received))]
        self._touch()
        await self.process.write(data)

    def take_input_end(self, client: Attachment) -> None:
        """End the input, if this client's counts."""
        if self.may_type(client):
            self.process.end_input()

    def may_type(self, client: Attachment) -> bool:
        """Tell whether a client's input counts, by the meaning that the switch gives the question."""
        if not self._stdin or not client.takes_input:
            return False
        typing = [other for other in self.clients if other.takes_input]
        match self._switches().input_from:
            case InputFrom.ALL:
                return True
            case InputFrom.OWNER:
                return typing[:1] == [client]
            case InputFrom.NEWEST:
                return typing[-1:] == [client]

    def resize(self, size: Size) -> None:
        """Take another size (TTY)."""
        if self.tty:
            self.size = size
            self.process.resize(size.rows, size.cols)

    def note_sent(self) -> None:
        """Hear that a client has taken something: its process may go on."""
        self._balance()

    def render_info(self) -> str:
        """Write the session's first frame, for a client that is about to attach."""
        switches = self._switches()
        shown = self.size if switches.info_size is Shown.REAL else Size(0, 0)
        return render_session_info(
            session_id=int(self.id) if switches.session_ids is IdType.INTEGER else self.id,
            command=self.process.command,
            created=self.created,
            cols=shown.cols,
            rows=shown.rows,
            is_owner=switches.is_owner is IsOwner.ALWAYS or (switches.is_owner is IsOwner.FIRST and not self.clients),
            tty=self.tty,
        )

    def close(self) -> None:
        """Forget everything: the sprite is gone."""
        self.stop_countdown()
        for handle in (self._drain_handle, self._fast_handle):
            if handle is not None:
                handle.cancel()
        self._finished = True
        self.process.close()

    @property
    def _counts_for_creator(self) -> bool:
        return self._creator is not None and self._switches().run_on_from is RunOnFrom.CREATOR

    def _touch(self) -> None:
        self.last_activity = self._clock.now()
        self._on_activity()

    def _take_output(self, stream: Stream, data: bytes) -> None:
        self._touch()
        since, amount = self._rate
        now = self._clock.now()
        self._rate = (since, amount + len(data)) if now - since < timedelta(seconds=1) else (now, len(data))
        self._remember(stream, data)
        if self._fast is not None:
            self._fast.append((stream, data))
        elif not self._lost:
            self._send(stream, data)

    def _send(self, stream: Stream, data: bytes) -> None:
        frame = render_output(stream, data, tty=self.tty)
        for client in self.clients:
            client.push(frame)
        self._balance()

    def _remember(self, stream: Stream, data: bytes) -> None:
        limit = self._switches().replay_bytes
        self._ring.append((stream, data))
        self._ring_bytes += len(data)
        while self._ring_bytes > limit:
            first, old = self._ring.popleft()
            spare = old[len(old) - min(len(old), max(0, limit - (self._ring_bytes - len(old)))) :]
            self._ring_bytes -= len(old) - len(spare)
            if spare:
                self._ring.appendleft((first, spare))

    def _render_replay(self) -> list[bytes]:
        match self._switches().replay:
            case Replay.NONE:
                return []
            case Replay.RENDERED if self.tty:
                screen = b"".join(data for _, data in self._ring)
                return [b"\x1b[2J\x1b[H" + _HYPERLINK.sub(b"", screen)] if screen else []
            case _ if self.tty:
                screen = b"".join(data for _, data in self._ring)
                return [screen] if screen else []
            case _ if not self._switches().replay_without_tty:
                return []
            case _:
                return [render_output(stream, data, tty=False) for stream, data in self._ring]

    def _balance(self) -> None:
        self.process.hold_output(held=any(client.queued_bytes > QUEUE_BYTES for client in self.clients))

    def _leave_fast_path(self) -> None:
        held, self._fast = self._fast or [], None
        for stream, data in () if self._lost else held:
            self._send(stream, data)

    def _take_drained(self) -> None:
        self._drained = True
        if self._exit_taken:
            self._finish()

    def _take_exit(self, _: "asyncio.Future[int]") -> None:
        self._exit_taken = True
        self.stop_countdown()
        self._on_ended(self)
        if self._finished:
            return
        self._lost = self._fast is not None and self._is_lost()
        if not self.tty and not self._lost and self._switches().text_exit is TextExit.EARLY:
            self._push(self._render_text_exit())
        if self._drained:
            self._finish()
        else:
            self._drain_handle = self._loop.call_later(DRAIN_SECONDS, self._finish)

    def _finish(self) -> None:
        if self._finished:
            return
        switches = self._switches()
        if self._lost:
            self._push(Ending.NORMAL)
            self.close()
            return
        self._send_fast()
        if self.tty:
            if switches.tty_text_exit:
                self._push(self._render_text_exit())
            self._push(Ending.DROP if switches.tty_close is SocketClose.DROP else Ending.NORMAL)
        else:
            if switches.text_exit is TextExit.LATE:
                self._push(self._render_text_exit())
            if switches.binary_exit:
                self._push(render_exit(self.process.exited.result(), code_bytes=switches.exit_bytes))
            self._push(Ending.LINGER if switches.pipe_close is SocketClose.NORMAL else Ending.LINGER_THEN_DROP)
        self.close()

    def _send_fast(self) -> None:
        """Send what a fast command has written: as one stream, or as it came."""
        held, self._fast = self._fast or [], None
        if not self._switches().fast_path:
            for stream, data in held:
                self._send(stream, data)
        elif merged := b"".join(data for _, data in held)[:FAST_BYTES]:
            self._send(Stream.STDOUT, merged)

    def _render_text_exit(self) -> str:
        return render_text("exit", {self._switches().exit_field.value: self.process.exited.result()})

    def _push(self, frame: str | bytes | Ending) -> None:
        for client in self.clients:
            client.push(frame)

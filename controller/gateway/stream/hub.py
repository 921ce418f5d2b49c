"""
One terminal: everybody who looks at it, the one who types, and its ways up.

Problem: people come, fall behind, take over and leave at any moment, the platform's sockets break at any other, and
none of it may cost anybody else a byte. Promise: output goes to all and waits for nobody; a late person gets a socket
of their own, or shares one that has not begun its replay; input goes through one socket, for the one person who was let
type, and stops at a word; a session is never created, and only its exit is told as one.

Whoever wires it calls `run` once, in a task group, and `join` for each person; the fence calls `let_type`,
`stop_input`, `drain` and `abort_typing`.

Source: gateway.md 3 and 5; behaviour cases R1 to R22.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, assert_never

from controller.api.session import Announced, Identity, SpriteState
from controller.clock import Clock
from controller.gateway.stream.backlog import Backlog
from controller.gateway.stream.client import Client, Incoming, Role
from controller.gateway.stream.fanout import Fanout
from controller.gateway.stream.frames import Auth, Resize, Signal, Unknown, Word, render_exit
from controller.gateway.stream.recorded import Recorded
from controller.gateway.stream.typist import MayType, Taken, Typist, WaitForWord
from controller.gateway.stream.upstream import (
    Exited,
    Missing,
    Permit,
    RightEnded,
    Stranger,
    Unreachable,
    Upstream,
    UpstreamEnd,
)
from controller.gateway.stream.way import Way
from controller.gateway.stream_settings import StreamSettings
from controller.plan.fence_closing import Ending
from controller.plan.fence_upstream import SETTLE_WAIT, Waiting, judge_buffer
from controller.sprites.attach import Attachment
from controller.sprites.exec_frames import Framing
from controller.tenure import Tenure

log: Final = logging.getLogger(__name__)

LAST_WORDS: Final = timedelta(seconds=2)
"""After the first exit that is seen, how long the other ways up have to see theirs, with the last output before it."""

NOT_LOOKED_AT: Final = {
    Word.PAUSED: "The sprite is paused; looking on does not wake it.",
    Word.UNSEEN: "Whether the sprite runs cannot be told now, and looking on must not wake it; it is asked again.",
}
"""Why somebody who looks on sees nothing."""


# --- what a hub tells -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionExited:
    """The process has ended with this code."""

    identity: Identity
    exit_code: int


@dataclass(frozen=True, slots=True)
class SessionMissing:
    """The recorded session is not listed; a new record is waited for (`Hub.note_recorded`)."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class StrangerAnswered:
    """Another session answered under the recorded id."""

    identity: Identity
    announced: Announced


@dataclass(frozen=True, slots=True)
class SessionUnreachable:
    """Too many attempts in a row failed."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class ClientTooSlow:
    """Somebody was dropped because they did not keep up."""

    socket_id: str


@dataclass(frozen=True, slots=True)
class TypingOpened:
    """Input of this socket flows: the end of a takeover."""

    socket_id: str


@dataclass(frozen=True, slots=True)
class InputLost:
    """So many bytes of input were not confirmed when their socket broke."""

    socket_id: str
    unconfirmed_bytes: int


class RefusedFor(StrEnum):
    """Why a piece of input was refused: a label of the metrics, so a closed list."""

    VIEWER = "Viewer"
    """Somebody typed who only looks on."""
    STALE = "Stale"
    """The right to type was gone, or the socket broke under it."""


@dataclass(frozen=True, slots=True)
class InputRefused:
    """A piece of input was refused; there may be many in a row."""

    socket_id: str
    cause: RefusedFor


News = (
    SessionExited
    | SessionMissing
    | StrangerAnswered
    | SessionUnreachable
    | ClientTooSlow
    | TypingOpened
    | InputLost
    | InputRefused
)
OnNews = Callable[[News], None]


@dataclass(slots=True)
class _Break:
    """
    A socket that broke under input.

    Args:
        moment: When it did.
        unconfirmed_bytes: What may still arrive.
        is_counted: It was given by `take_undrained`.
    """

    moment: timedelta
    unconfirmed_bytes: int
    is_counted: bool = False


class Hub:
    """
    One terminal.

    Args:
        recorded: The session that is recorded; None where none is yet.
        way: How its sprite is reached.
        may_type: The fence's two marks, asked for every frame of input.
        on_news: Told what happened; it must not raise and not wait.
        wait_for_word: Waits while the fence does not know whether somebody may still type; without it nothing waits.
        clock: For records and waits.
        settings: Bounds.
    """

    def __init__(
        self,
        recorded: Recorded | None,
        way: Way,
        *,
        may_type: MayType,
        on_news: OnNews,
        clock: Clock,
        settings: StreamSettings,
        wait_for_word: WaitForWord | None = None,
    ) -> None:
        self._recorded = recorded
        self._way = way
        self._may_type = may_type
        self._on_news = on_news
        self._wait_for_word = wait_for_word or _wait_for_nothing
        self._clock = clock
        self._settings = settings
        self._clients: list[Client] = []
        self._fanouts: list[Fanout] = []
        self._upstreams: dict[Fanout | Typist, Upstream] = {}
        self._tasks: dict[Fanout | Typist, asyncio.Task[None]] = {}
        self._typist: Typist | None = None
        self._backlogs: dict[Client, Backlog] = {}
        self._waits: dict[Client, timedelta] = {}
        self._backlog_ends: dict[Client, asyncio.TimerHandle] = {}
        self._refused: set[Client] = set()
        self._broken: list[_Break] = []
        self._exit: SessionExited | None = None
        self._missing: asyncio.TimerHandle | None = None
        self._look_again = asyncio.Event()
        self._stirred_until = 0.0
        self._sight = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._begun = asyncio.Event()
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._heard: float | None = None

    # --- what others may know -----------------------------------------------------------------------------------------

    @property
    def viewers(self) -> int:
        """How many people look, whoever types included."""
        return len(self._clients)

    @property
    def activity(self) -> datetime | None:
        """When something last came or went; None where nothing ever did."""
        if self._heard is None:
            return None
        return self._clock.now() - timedelta(seconds=self._loop.time() - self._heard)

    @property
    def recorded(self) -> Recorded | None:
        """The session that is recorded; None where none is yet."""
        return self._recorded

    @property
    def is_streaming(self) -> bool:
        """Output flows, so that the sprite is awake."""
        return any(fanout.is_open for fanout in self._fanouts)

    @property
    def is_idle(self) -> bool:
        """Nobody is here, and nothing is open: it may be closed."""
        return not self._clients and self._typist is None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Own all that is open, until `close`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._begun.set()
            await self._closed.wait()
            for task in self._tasks.values():
                task.cancel()
        if self._missing is not None:
            self._missing.cancel()

    def close(self, ending: Ending) -> None:
        """End everybody for a reason, and then everything; input is cut, so drain before where it matters."""
        self.end_all(ending)
        self.abort_typing()
        self._closed.set()

    def end_all(self, ending: Ending) -> None:
        """End everybody for a reason."""
        for client in list(self._clients):
            client.end(ending)

    async def wait_until_open(self) -> None:
        """Wait until `run` has begun: from then on `join` takes somebody in before it waits for anything."""
        await self._begun.wait()

    async def join(self, client: Client) -> Ending:
        """
        Serve a person until their socket has ended; this waits for `run` to begin, and after `close` ends at once.

        Their input stops with their socket, but what was sent is not confirmed yet: call `drain` afterwards, also out
        of a cancellation.
        """
        await self._begun.wait()
        if self._closed.is_set():
            client.end(Ending.RESTARTING)
        for other in self._clients:
            other.nudge()
        self._clients.append(client)
        self._backlogs[client] = Backlog()
        self._greet(client)
        try:
            return await client.run(lambda frame: self._take(client, frame))
        finally:
            self._leave(client)

    # --- commands of the fence ----------------------------------------------------------------------------------------

    def let_type(self, client: Client, tenure: Tenure) -> None:
        """
        Let a person type: they hold the lock. Their size and their backlog go first.

        Somebody else who still could is cut off at once; the fence has drained them before, unless it is broken. Twice
        for the same person and tenure is once.
        """
        typist = self._typist
        if client not in self._clients:
            return
        if typist is not None and (typist.client, typist.tenure, typist.halted) == (client, tenure, False):
            return
        if self._typist is not None:
            self.abort_typing()
        typist = Typist(
            client,
            tenure,
            self._backlogs[client],
            self._may_type,
            wait_for_word=self._wait_for_word,
            wait_for_sight=self._wait_for_sight,
            note_broken=lambda count: self._note_broken(client, count),
            on_open=lambda: self._note_typing(client),
        )
        self._typist = typist
        self._refused.discard(client)
        if self._recorded is not None and self._exit is None:
            self._start_typist(typist, self._recorded)

    def stop_input(self, client: Client) -> None:
        """Let nothing more of this person go upstream, from this very moment."""
        if self._typist is not None and self._typist.client is client:
            self._typist.halt()

    async def drain(self, client: Client) -> int:
        """
        Stop a person's input and bring what was sent to a confirmed end, within 5 s.

        Returns:
            The bytes that could not be confirmed, those of sockets that broke within the last 5 s included. 0 means
            that nothing of theirs is on its way any more.
        """
        typist = self._typist
        if typist is not None and typist.client is client:
            undrained = await typist.drain()
            if undrained:
                self._note_broken(client, undrained)
            self._drop_typist(typist)
        return self._count_broken()

    def abort(self, client: Client) -> int:
        """Cut off this person at once, also out of a drain; give the bytes that were not confirmed, as `drain` does."""
        if self._typist is not None and self._typist.client is client:
            return self.abort_typing()
        return self._count_broken()

    def abort_typing(self) -> int:
        """Cut off whoever types, at once; give the bytes that were not confirmed, as `drain` does."""
        typist = self._typist
        if typist is not None:
            undrained = typist.abort()
            if undrained:
                self._note_broken(typist.client, undrained)
            self._drop_typist(typist)
        return self._count_broken()

    def take_undrained(self) -> int:
        """
        Give the bytes of `drain` and `abort` for a count: those of each socket once, however often somebody asked.

        Their own answers repeat them, since whoever waits for what may still arrive has to wait each time.
        """
        taken = [broke for broke in self._broken if not broke.is_counted]
        for broke in taken:
            broke.is_counted = True
        return sum(broke.unconfirmed_bytes for broke in taken)

    # --- what others tell ---------------------------------------------------------------------------------------------

    def note_recorded(self, recorded: Recorded) -> None:
        """The object records this session now: whoever is here gets to it, and nothing of the former is used."""
        if self._recorded is not None and self._recorded.identity == recorded.identity:
            return
        self._recorded, self._exit = recorded, None
        if self._missing is not None:
            self._missing.cancel()
            self._missing = None
        for fanout in list(self._fanouts):
            self._stop(fanout)
        self._fanouts.clear()
        for client in list(self._clients):
            self._greet(client)
        if (typist := self._typist) is not None:
            # Who has left, or is being drained, types no more, into no session.
            goes_on = not typist.halted
            undrained = typist.abort()
            if undrained:
                self._note_broken(typist.client, undrained)
            self._drop_typist(typist)
            if goes_on:
                # What was typed for the former session is not for this one.
                self._forget_backlog(typist.client)
                self.let_type(typist.client, typist.tenure)

    def note_running(self) -> None:
        """The sprite is known to run: those who may not wake it may look again."""
        self._look_again.set()

    def note_stir(self) -> None:
        """Somebody at another gateway may just have woken the sprite: it is looked at more often for a while."""
        self._stirred_until = self._loop.time() + self._settings.stirred_for.total_seconds()
        self._look_again.set()

    # --- people -------------------------------------------------------------------------------------------------------

    def _greet(self, client: Client) -> None:
        """Tell a person whose terminal it is, and find them a way up."""
        if self._recorded is None or client.ending is not None:
            return
        client.announce(self._recorded)
        if self._exit is not None:
            self._tell_exit([client], self._exit.exit_code)
            return
        self._seat(client)

    def _seat(self, client: Client) -> None:
        forming = next((fanout for fanout in self._fanouts if not fanout.is_open), None)
        if forming is not None:
            forming.clients.append(client)
            self._wish(forming)
            self._look_again.set()
            return
        assert self._recorded is not None
        # A sole person may let a quarter of their queue fill before the upstream waits for them.
        fanout = Fanout(self, self._note_output, full_bytes=self._settings.queue_bytes // 4)
        fanout.clients.append(client)
        self._fanouts.append(fanout)
        upstream = self._build_upstream(fanout, self._recorded, None)
        self._start(fanout, upstream, self._look_on(fanout, upstream, self._recorded))

    def _leave(self, client: Client) -> None:
        self._clients.remove(client)
        if client.ending is Ending.TOO_SLOW:
            self._on_news(ClientTooSlow(client.socket_id))
        self.stop_input(client)
        self._forget_backlog(client)
        del self._backlogs[client]
        self._refused.discard(client)
        for fanout in list(self._fanouts):
            if client in fanout.clients:
                fanout.clients.remove(client)
                if not fanout.clients:
                    self._fanouts.remove(fanout)
                    self._stop(fanout)

    async def _take(self, client: Client, frame: Incoming) -> bool:
        """Do with a frame what its sender may have done, and tell whether it was sent to the session."""
        match frame:
            case Auth() | Unknown():
                return False
            case bytes() | Resize() | Signal():
                pass
            case _:
                assert_never(frame)
        if isinstance(frame, bytes):
            self._wish_for(client)
        if client.role is Role.VIEW:
            if isinstance(frame, bytes):
                self._on_news(InputRefused(client.socket_id, RefusedFor.VIEWER))
                self._refuse(client, "You are looking on; attach to type instead.")
            return False
        typist = self._typist
        if typist is not None and typist.client is client:
            self._heard = self._loop.time()
            taken = await typist.type(frame)
            if taken is Taken.SENT:
                return True
            if taken is Taken.REFUSED:
                if isinstance(frame, bytes):
                    self._on_news(InputRefused(client.socket_id, RefusedFor.STALE))
                if client.ending is None and isinstance(frame, bytes):
                    self._refuse(client, "The terminal is not yours any more, or the connection broke.")
                return False
        if isinstance(frame, bytes):
            # A size is remembered anyway, and a signal that comes late hits another moment.
            self._keep(client, frame)
        return False

    def _keep(self, client: Client, frame: bytes) -> None:
        backlog = self._backlogs.get(client)
        if backlog is None:
            return
        now = self._clock.monotonic()
        since = self._waits.setdefault(client, now)
        match judge_buffer(backlog.kept_bytes, len(frame), since=since, now=now):
            case Waiting.KEPT:
                backlog.add(frame)
                if client not in self._backlog_ends:
                    self._backlog_ends[client] = self._loop.call_later(
                        self._settings.backlog_limit.total_seconds(), self._end_waiting, client
                    )
                    client.tell(Word.WAITING, "Your input waits until it can be sent.")
            case Waiting.FULL:
                client.end(Ending.BUFFER_FULL)
            case Waiting.LATE:
                self._end_waiting(client)

    def _end_waiting(self, client: Client) -> None:
        """Refuse what has waited too long: for the lock, or for a socket to open again."""
        mine = self._typist is not None and self._typist.client is client
        client.end(Ending.UPSTREAM_LOST if mine else Ending.LOCK_LATE)

    def _forget_backlog(self, client: Client) -> None:
        self._backlogs[client].drop()
        self._waits.pop(client, None)
        if (handle := self._backlog_ends.pop(client, None)) is not None:
            handle.cancel()

    def _refuse(self, client: Client, text: str) -> None:
        """Tell a refusal once, until they may type."""
        if client not in self._refused:
            self._refused.add(client)
            client.tell(Word.INPUT_REFUSED, text)

    def _tell_exit(self, clients: list[Client], exit_code: int) -> None:
        for client in clients:
            framing = (self._recorded and self._recorded.framing) or Framing.RAW
            client.end(Ending.EXITED, last=render_exit(exit_code, framing))

    # --- ways up ------------------------------------------------------------------------------------------------------

    def _build_upstream(self, sink: Fanout | Typist, recorded: Recorded, typing: Tenure | None) -> Upstream:
        return Upstream(
            recorded,
            self._way,
            sink,
            typing=typing,
            clock=self._clock,
            find_activity=lambda: self.activity,
            idle_after=self._settings.idle_after,
        )

    def _start(self, owner: Fanout | Typist, upstream: Upstream, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._upstreams[owner] = upstream
        self._tasks[owner] = self._group.create_task(work)

    def _stop(self, owner: Fanout | Typist) -> None:
        self._upstreams.pop(owner, None)
        if (task := self._tasks.pop(owner, None)) is not None:
            task.cancel()

    def _wish(self, owner: Fanout | Typist) -> None:
        if (upstream := self._upstreams.get(owner)) is not None:
            upstream.wish()

    def _wish_for(self, client: Client) -> None:
        """A person types: what is down for them comes up."""
        for fanout in self._fanouts:
            if not fanout.is_open and client in fanout.clients:
                self._wish(fanout)
        if self._typist is not None and self._typist.client is client:
            self._wish(self._typist)

    async def _look_on(self, fanout: Fanout, upstream: Upstream, recorded: Recorded) -> None:
        end = await upstream.run()
        self._tasks.pop(fanout, None)
        self._upstreams.pop(fanout, None)
        if fanout in self._fanouts:
            self._fanouts.remove(fanout)
        if end is not None and self._recorded is not None and self._recorded.identity == recorded.identity:
            self._take_end(fanout, end, recorded.identity)

    def _take_end(self, fanout: Fanout, end: UpstreamEnd, identity: Identity) -> None:
        match end:
            case Exited(exit_code):
                self._tell_exit(fanout.clients, exit_code)
                self._note_exit(SessionExited(identity, exit_code))
            case Missing():
                self._on_news(SessionMissing(identity))
                if self._missing is None:
                    limit = self._settings.revival_limit.total_seconds()
                    self._missing = self._loop.call_later(limit, self._give_up_missing)
                for client in fanout.clients:
                    client.tell(Word.SESSION_MISSING, "The session is not there any more; another may follow.")
            case Unreachable():
                self._on_news(SessionUnreachable(identity))
                self._end_each(fanout.clients, Ending.UPSTREAM_LOST)
            case Stranger(announced):
                self._on_news(StrangerAnswered(identity, announced))
                self._end_for_stranger(fanout.clients)
            case RightEnded():
                self._end_each(fanout.clients, Ending.LEASE_LOST)
            case _:
                assert_never(end)

    def _note_exit(self, seen: SessionExited) -> None:
        if self._exit is None:
            self._exit = seen
            self._on_news(seen)
            self._loop.call_later(LAST_WORDS.total_seconds(), self._tell_all_exit, seen.identity)

    def _tell_all_exit(self, identity: Identity) -> None:
        if self._exit is not None and self._exit.identity == identity:
            self._tell_exit(self._clients, self._exit.exit_code)

    def _give_up_missing(self) -> None:
        self._missing = None
        seated = {client for fanout in self._fanouts for client in fanout.clients}
        self._end_each([client for client in self._clients if client not in seated], Ending.SESSION_ENDED)

    def _end_for_stranger(self, clients: list[Client]) -> None:
        for client in clients:
            client.tell(Word.STRANGER, "Another session answered in place of the recorded one; nothing was typed.")
            client.end(Ending.SESSION_ENDED)

    def _end_each(self, clients: list[Client], ending: Ending) -> None:
        for client in clients:
            client.end(ending)

    def _start_typist(self, typist: Typist, recorded: Recorded) -> None:
        upstream = self._build_upstream(typist, recorded, typist.tenure)
        self._start(typist, upstream, self._keep_typing(typist, upstream, recorded))

    async def _keep_typing(self, typist: Typist, upstream: Upstream, recorded: Recorded) -> None:
        end = await upstream.run()
        match end:
            case Stranger(announced):
                self._on_news(StrangerAnswered(recorded.identity, announced))
                self._end_for_stranger([typist.client])
            case Unreachable():
                typist.client.end(Ending.UPSTREAM_LOST)
            case RightEnded():
                typist.client.end(Ending.LEASE_LOST)
            case Exited(exit_code):
                # The sockets that look on tell of it, after the last output; but one of them may be down just now.
                self._note_exit(SessionExited(recorded.identity, exit_code))
            case None | Missing():
                pass
            case _:
                assert_never(end)

    async def _wait_for_sight(self, client: Client) -> None:
        while not any(fanout.is_open and client in fanout.clients for fanout in self._fanouts):
            self._sight.clear()
            await self._sight.wait()

    def _drop_typist(self, typist: Typist) -> None:
        self._stop(typist)
        if self._typist is typist:
            self._typist = None

    def _note_typing(self, client: Client) -> None:
        self._waits.pop(client, None)
        if (handle := self._backlog_ends.pop(client, None)) is not None:
            handle.cancel()
        client.tell(Word.HOLDING, "Your input counts now.")
        self._on_news(TypingOpened(client.socket_id))

    def _note_broken(self, client: Client, count: int) -> None:
        self._broken.append(_Break(self._clock.monotonic(), count))
        self._on_news(InputLost(client.socket_id, count))

    def _count_broken(self) -> int:
        since = self._clock.monotonic() - SETTLE_WAIT
        self._broken = [broke for broke in self._broken if broke.moment > since]
        return sum(broke.unconfirmed_bytes for broke in self._broken)

    def _note_output(self, news_from: float) -> None:
        now = self._loop.time()
        if now >= news_from:
            self._heard = now

    # --- what fan-outs ask --------------------------------------------------------------------------------------------

    async def permit_look(self, fanout: Fanout) -> Permit:
        """Wait until this fan-out may connect, or its people have gone."""
        told: Word | None = None
        while True:
            self._merge(fanout)
            if not fanout.clients:
                return Permit.NOT
            if any(other.is_open for other in self._fanouts):
                return Permit.AT_ONCE
            state = SpriteState.RUNNING if fanout.wakes else await self._way.find_state()
            if state is SpriteState.RUNNING:
                return Permit.LOOK_FIRST
            word = Word.PAUSED if state in (SpriteState.WARM, SpriteState.COLD) else Word.UNSEEN
            if told is not word:
                told = word
                for client in fanout.clients:
                    client.tell(word, NOT_LOOKED_AT[word])
            self._look_again.clear()
            is_stirred = self._loop.time() < self._stirred_until
            pause = self._settings.stirred_look if is_stirred else self._settings.paused_look
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause.total_seconds()):
                    await self._look_again.wait()

    def _merge(self, fanout: Fanout) -> None:
        """Let those who wait for another way up to open come over: one socket is enough for all of them."""
        for other in [each for each in self._fanouts if each is not fanout and not each.is_open]:
            fanout.clients.extend(other.clients)
            other.clients.clear()
            self._fanouts.remove(other)
            self._stop(other)

    def take_up(self, fanout: Fanout, attachment: Attachment) -> None:
        """Announce what is now known, and gather viewers where there are too many ways up."""
        self._look_again.set()
        self._sight.set()
        if self._recorded is not None and self._recorded.framing is None:
            self._recorded = Recorded(self._recorded.identity, attachment.framing)
        others = [each for each in self._fanouts if each is not fanout and each.is_open and not each.wakes]
        if len(others) >= self._settings.views and attachment.framing is Framing.RAW:
            for other in others:
                fanout.clients.extend(other.clients)
                other.clients.clear()
                self._fanouts.remove(other)
                self._stop(other)
        if self._recorded is not None:
            for client in fanout.clients:
                client.announce(self._recorded)

    def try_again(self, fanout: Fanout) -> None:
        """Tell a fan-out's people that its socket is being opened again, unless the exit was seen on another one."""
        if self._exit is None:
            for client in fanout.clients:
                client.tell(Word.RECONNECTING, "The connection to the session broke; it is being opened again.")

    def quiet(self, fanout: Fanout) -> None:
        """Tell a fan-out's people that nothing is opened until they type."""
        for client in fanout.clients:
            client.tell(Word.QUIET, "Nothing happened for a while; type to connect again.")

    def find_sole(self, fanout: Fanout) -> Client | None:
        """Give the one person who looks at the terminal, if there is just one."""
        return fanout.clients[0] if len(self._clients) == 1 and len(fanout.clients) == 1 else None


async def _wait_for_nothing(_client: Client) -> None:
    """Nobody is asked."""

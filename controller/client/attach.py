"""
An attach from its first connection to its end: what is typed goes out, what comes is shown, and what broke comes back.

Problem: a person at a terminal sees one stream of bytes, and a lost connection, a takeover and an exit all look like
silence. Promise: every end says in a sentence what happened and what to do; a lost connection is opened again, and that
is said; what is typed while there is none is dropped, and that is said too; nobody is thrown out by a reconnect; the
detach keys work at any time; only an exit that was seen gives the process's exit code. Source: gateway.md 5 and 6.
"""

import asyncio
import re
import signal
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import Final
from urllib.parse import urlencode

from controller.api import names
from controller.client.dial import NotOpened, Socket, SocketEnd, UpgradeRefused, open_socket
from controller.client.endings import LOST, Next, Verdict, judge_close
from controller.client.frames import (
    AUTHENTICATE,
    CLEAR,
    HOLDING,
    TAKEOVER,
    WAITING,
    Closed,
    Exited,
    Notice,
    Other,
    Replay,
    SessionInfo,
    Stream,
    Told,
    read_frame,
    render_auth,
    render_resize,
)
from controller.client.identity import Identity, NobodySpeaks, Presented
from controller.client.keys import CTRL_C, DetachKeys
from controller.client.screen import Screen
from controller.client.settings import AttachTimes
from controller.client.way import Way, WayClosed
from controller.clock import Clock
from controller.errors import AgentTerminalError
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import KubeError

_HELD: Final = "Held"
_ADVICE: Final = re.compile(r" (?:Try|Attach) again\.")
"""What a gateway advises, and a client that comes back by itself does for the person."""

_QUEUE_READS: Final = 16
"""Reads of input that wait to be sent: 64 KiB. Beyond, the person's terminal waits."""


class AttachMode(Enum):
    """What somebody attaches for."""

    TYPE = auto()
    VIEW = auto()
    TAKE_OVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachPlan:
    """
    What is attached to, and how.

    Args:
        namespace: Of the object.
        name: Its name.
        mode: What for.
        keys: The detach keys, as bytes.
        keys_words: The same, as they are written.
    """

    namespace: str
    name: str
    mode: AttachMode
    keys: bytes
    keys_words: str


@dataclass(frozen=True, slots=True)
class Farewell:
    """How an attach ended: the exit code, and a sentence where there is something to say."""

    exit_code: int
    sentence: str = ""


class AttachFailed(AgentTerminalError):
    """It could not be attached; the text says why, and the way out."""


def render_path(plan: AttachPlan, size: tuple[int, int] | None, *, may_take_over: bool) -> str:
    """Write the door and its query. A reconnect never takes over: that would throw out whoever came meanwhile."""
    query: dict[str, str] = {}
    if plan.mode is AttachMode.VIEW:
        query["view"] = "true"
    elif plan.mode is AttachMode.TAKE_OVER and may_take_over:
        query["takeover"] = "true"
    if size is not None:
        query |= {"columns": str(size[0]), "rows": str(size[1])}
    path = f"/v1/namespaces/{plan.namespace}/{names.PLURAL}/{plan.name}/attach"
    return f"{path}?{urlencode(query)}" if query else path


@dataclass(eq=False, slots=True)
class _Line:
    """The open connection, and what it has told."""

    socket: Socket
    presented: Presented
    is_terminal: bool = True
    announced: asyncio.Event = field(default_factory=asyncio.Event)
    """Only then it is known how input is framed."""
    closed: Closed | None = None
    exit_code: int | None = None
    taker: str = ""
    has_waited: bool = False
    greeting: str = ""
    """What was said when the session was announced, and is said again after the screen was cleared for the past."""
    replays: bool = False
    """The past comes next."""


@dataclass(slots=True)
class _Retry:
    """
    The tries to get a session back, or to get one at all.

    They go on over connections that open and end before a session was announced: a gateway that lets somebody in and
    closes at once would else be asked for ever.
    """

    end: timedelta
    patience: timedelta
    delay: timedelta
    told: str


@dataclass(eq=False)
class Attach:
    """
    One attach. Run once.

    Args:
        plan: To what.
        way: How the gateway is reached.
        identity: Who speaks.
        screen: Where the person sits.
        clock: For waits.
        times: How long anything may take.
    """

    plan: AttachPlan
    way: Way
    identity: Identity
    screen: Screen
    clock: Clock
    times: AttachTimes = field(default_factory=AttachTimes)

    def __post_init__(self) -> None:
        self._keys = DetachKeys(self.plan.keys)
        self._typed: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE_READS)
        self._line: _Line | None = None
        self._resized = asyncio.Event()
        self._told_dropped = False
        self._retry: _Retry | None = None
        self._was_attached = False

    async def run(self) -> Farewell:
        """
        Attach, and stay until an end.

        Raises:
            AttachFailed: Nothing was ever attached.
        """
        try:
            try:
                line = await self._open_first()
            except (WayClosed, NotOpened, NobodySpeaks, CredentialsUnusable, KubeError) as failed:
                raise AttachFailed(str(failed)) from None
            self._line = line
            with self.screen.raw():
                return await self._stay(line)
        finally:
            # The person has their terminal back by now; what follows may take its time.
            if self._line is not None:
                await self._line.socket.aclose()
            await self.way.aclose()

    @property
    def _name(self) -> str:
        return f"{self.plan.namespace}/{self.plan.name}"

    def note_size(self) -> None:
        """Tell the gateway that the window has changed: SIGWINCH."""
        self._resized.set()

    # --- Connections --------------------------------------------------------------------------------------------------

    async def _open_first(self) -> _Line:
        """Open the first connection; only a gateway that says that it is not ready is asked again."""
        end = self.clock.monotonic() + self.times.first_patience
        delay = self.times.first_delay
        told = False
        while True:
            try:
                return await self._open(may_take_over=True)
            except UpgradeRefused as refused:
                verdict = refused.verdict
                wait = max(delay, verdict.wait or timedelta(0))
                if verdict.next is not Next.AGAIN or self.clock.monotonic() + wait >= end:
                    raise AttachFailed(f"{self._name}: {verdict.sentence}") from None
                if not told:
                    told = True
                    self.screen.tell(f"{verdict.sentence} Trying again; Ctrl-C gives up.")
            await self.clock.sleep(wait)
            delay = min(2 * delay, self.times.longest_delay)

    async def _open(self, *, may_take_over: bool) -> _Line:
        """Open one connection, with a fresh token where the first was refused."""
        reached = await self.way.reach()
        presented = await self.identity.present(is_encrypted=reached.is_encrypted)
        path = render_path(self.plan, self.screen.read_size(), may_take_over=may_take_over)
        try:
            socket = await open_socket(reached, path, presented, self.times)
        except UpgradeRefused as refused:
            newer = await self.identity.renew(presented) if refused.verdict.next is Next.LOGIN else None
            if newer is None:
                raise
            presented = newer
            socket = await open_socket(reached, path, presented, self.times)
        return _Line(socket, presented)

    async def _open_again(self, why: Verdict) -> _Line | Farewell:
        """Open a connection in the place of one that ended, as long as patience lasts."""
        retry = self._note_end(why)
        last, wait = why.sentence, why.wait or timedelta(0)
        while self.clock.monotonic() < retry.end:
            await self.clock.sleep(max(wait, retry.delay))
            wait, retry.delay = timedelta(0), min(2 * retry.delay, self.times.longest_delay)
            try:
                return await self._open(may_take_over=not self._was_attached)
            except UpgradeRefused as refused:
                verdict = refused.verdict
                last, wait = verdict.sentence, verdict.wait or timedelta(0)
                # Our own socket may still stand there as the one that speaks, until the gateway has missed its pong or
                # another replica has proven that the first is dead.
                if verdict.next is not Next.AGAIN and verdict.cause != _HELD:
                    return Farewell(LOST, last)
            except (NotOpened, WayClosed, KubeError) as failed:
                last = str(failed)
            except (NobodySpeaks, CredentialsUnusable) as failed:
                return Farewell(LOST, str(failed))
        return Farewell(LOST, f"Given up after {retry.patience.total_seconds():g} s. {last}")

    def _note_end(self, why: Verdict) -> _Retry:
        """Say what ended and that it is tried again: once for each cause, until a session is there again."""
        if self._retry is None:
            patience = self.times.patience if self._was_attached else self.times.first_patience
            end = self.clock.monotonic() + patience
            self._retry = _Retry(end=end, patience=patience, delay=self.times.first_delay, told="")
        if self._retry.told != why.sentence:
            self._retry.told = why.sentence
            sentence = _ADVICE.sub("", why.sentence)
            doing = "Reconnecting" if self._was_attached else "Trying again"
            self.screen.tell(f"{sentence} {doing}; {self.plan.keys_words} or Ctrl-C leaves.")
        return self._retry

    def _greet(self, line: _Line) -> None:
        """Say that a session is there, once for each connection."""
        if line.announced.is_set():
            return
        line.announced.set()
        self._retry = None
        what = "look at" if self.plan.mode is AttachMode.VIEW else "are attached to"
        line.greeting = (
            f"Reconnected to {self._name}."
            if self._was_attached
            else f"You {what} {self._name}; {self.plan.keys_words} leaves it."
        )
        self._was_attached = True
        self.screen.tell(line.greeting)

    # --- While it lasts -----------------------------------------------------------------------------------------------

    async def _stay(self, line: _Line) -> Farewell:
        async with asyncio.TaskGroup() as group:
            typing = group.create_task(self._type())
            speaking = group.create_task(self._speak(line))
            await asyncio.wait({typing, speaking}, return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done() and typing.result() is None:
                # The end of a pipe is not the end of what it started.
                await asyncio.wait({speaking})
            for task in (typing, speaking):
                task.cancel()
        if not speaking.cancelled():
            return speaking.result()
        left = typing.result()
        assert left is not None
        return left

    async def _speak(self, line: _Line) -> Farewell:
        """Speak over one connection after the other."""
        while True:
            verdict = await self._speak_once(line)
            self._line = None
            self._drop_typed()
            await line.socket.aclose()
            match verdict.next:
                case Next.STOP:
                    return Farewell(verdict.exit_code, verdict.sentence)
                case Next.LOGIN if await self._log_in_again(line) is None:
                    return Farewell(LOST, verdict.sentence)
                case Next.LOGIN | Next.AGAIN:
                    pass
            following = await self._open_again(verdict)
            if isinstance(following, Farewell):
                return following
            self._told_dropped = False
            self._drop_typed()
            self._line = line = following

    async def _log_in_again(self, line: _Line) -> Presented | None:
        try:
            return await self.identity.renew(line.presented)
        except (CredentialsUnusable, KubeError):
            return None

    async def _speak_once(self, line: _Line) -> Verdict:
        """Speak over one connection until it ends."""
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(self._send(line)),
                group.create_task(self._send_sizes(line)),
                group.create_task(self._tell_waiting(line)),
            ]
            end = await self._receive(line, group)
            for helper in helpers:
                helper.cancel()
        verdict = judge_close(end.code, end.reason, line.closed, exit_code=line.exit_code)
        if verdict.cause == "Replaced" and line.taker:
            return Verdict(verdict.next, f"{line.taker} {verdict.sentence}", verdict.exit_code, verdict.cause)
        return verdict

    async def _receive(self, line: _Line, group: asyncio.TaskGroup) -> SocketEnd:
        while True:
            match await line.socket.receive():
                case SocketEnd() as end:
                    return end
                case bytes(data):
                    await self._show(line, data)
                case str(text):
                    match read_frame(text):
                        case SessionInfo(is_terminal=is_terminal):
                            line.is_terminal = is_terminal
                            self._greet(line)
                        case Notice(word, told):
                            self._note(line, word, told, group)
                        case Closed() as closed:
                            line.closed = closed
                        case Exited(exit_code):
                            line.exit_code = exit_code
                        case Told(told):
                            self.screen.tell(told)
                        case Replay():
                            line.replays = True
                        case Other():
                            pass

    def _note(self, line: _Line, word: str, told: str, group: asyncio.TaskGroup) -> None:
        """Show what a person should know, and do what they need not know."""
        if word == AUTHENTICATE:
            group.create_task(self._authenticate(line))
        elif word != HOLDING or line.has_waited:
            self.screen.tell(told)
        line.has_waited = line.has_waited or word == WAITING
        if word == TAKEOVER:
            line.taker = told

    async def _show(self, line: _Line, data: bytes) -> None:
        if line.is_terminal:
            if line.replays and line.greeting and data.startswith(CLEAR):
                # Else how to leave would be said and wiped away at once.
                await self.screen.write(CLEAR)
                self.screen.tell(line.greeting)
                data, line.greeting = data.removeprefix(CLEAR), ""
            await self.screen.write(data)
            return
        stream, rest = data[:1], data[1:]
        if stream == bytes([Stream.STDOUT]):
            await self.screen.write(rest)
        elif stream == bytes([Stream.STDERR]):
            await self.screen.write(rest, to_error=True)
        elif stream == bytes([Stream.EXIT]) and rest:
            line.exit_code = rest[0]

    async def _authenticate(self, line: _Line) -> None:
        """Answer the gateway's question for a fresh token; the socket goes on meanwhile, and is closed without one."""
        try:
            newer = await self.identity.renew(line.presented)
        except (CredentialsUnusable, KubeError) as failed:
            self.screen.tell(f"Your token has run out, and there is no fresh one: {failed}")
            return
        if newer is None or newer.token is None:
            self.screen.tell("Your token has run out, and the kubeconfig has no fresh one. Log in again, then attach.")
            return
        line.presented = newer
        await line.socket.send(render_auth(newer.token))

    async def _send(self, line: _Line) -> None:
        await line.announced.wait()
        while True:
            data = await self._typed.get()
            if not line.is_terminal:
                data = bytes([Stream.STDIN]) + data if data else bytes([Stream.STDIN_END])
            if data and not await line.socket.send(data):
                return

    async def _tell_waiting(self, line: _Line) -> None:
        """Say what is awaited where a session takes long: one that is being launched does."""
        await self.clock.sleep(self.times.silence)
        if not line.announced.is_set() and self._retry is None:
            self.screen.tell(f"Waiting for the session of {self._name}; {self.plan.keys_words} or Ctrl-C leaves.")

    async def _send_sizes(self, line: _Line) -> None:
        while True:
            await self._resized.wait()
            self._resized.clear()
            size = self.screen.read_size()
            if size is not None and self.plan.mode is not AttachMode.VIEW:
                await line.socket.send(render_resize(*size))

    # --- What is typed ------------------------------------------------------------------------------------------------

    async def _type(self) -> Farewell | None:
        """Read what is typed until the detach keys, or the end of the input; None is the end of a pipe."""
        while True:
            try:
                hold = self.times.key_hold.total_seconds() if self._keys.is_holding else None
                async with asyncio.timeout(hold):
                    data = await self.screen.read()
            except TimeoutError:
                await self._pass_on(self._keys.let_go())
                continue
            if not data and self.screen.is_terminal:
                return Farewell(128 + signal.SIGHUP, "The terminal hung up.")
            if not self.screen.is_terminal:
                # The last is empty, which tells a session without a terminal that its input has ended.
                await self._typed.put(data)
                if not data:
                    return None
                continue
            typed = self._keys.take(data)
            if CTRL_C in typed.data and not self._is_heard:
                return self._leave(128 + signal.SIGINT)
            await self._pass_on(typed.data)
            if typed.detached:
                return self._leave(0)

    def _leave(self, never_attached: int) -> Farewell:
        """Leave because the person wants to; the exit code is what it means where there never was a session."""
        if self._was_attached:
            return Farewell(0, f"Detached. The session goes on: {self._name}")
        return Farewell(never_attached, f"Left. Nothing was attached: {self._name}")

    @property
    def _takes_input(self) -> bool:
        return self._line is not None and self.plan.mode is not AttachMode.VIEW

    @property
    def _is_heard(self) -> bool:
        """Whether there is a session that hears Ctrl-C, so that it is not meant for us."""
        return self._takes_input and self._line is not None and self._line.announced.is_set()

    def _drop_typed(self) -> None:
        """Drop what a person typed and nobody got: later it may mean something else. A pipe means what it meant."""
        while self.screen.is_terminal and not self._typed.empty():
            self._typed.get_nowait()

    async def _pass_on(self, data: bytes) -> None:
        if not data:
            return
        if self._takes_input:
            await self._typed.put(data)
        elif not self._told_dropped:
            self._told_dropped = True
            what = "You only look on" if self.plan.mode is AttachMode.VIEW else "There is no connection"
            self.screen.tell(f"{what}: what you type is not sent.")

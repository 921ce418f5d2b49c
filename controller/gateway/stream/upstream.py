"""
One way up to a session, kept open by the plan of `plan.reconnect`.

Problem: a socket drops for many reasons, and none of them says that the process ended; connecting again in the wrong
way doubles a shell, wakes a sprite for nobody or types into a stranger's session. Promise: nothing is ever created;
what answers is compared with what is wanted before a byte of it is passed on or typed; drops are counted and waited out
as planned; only an exit is an exit.

Source: behaviour cases R1 to R22; gateway.md 5.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final, Protocol, assert_never

from controller.api.session import Announced, Identity, is_same_created
from controller.clock import Clock
from controller.gateway.stream.recorded import Recorded
from controller.gateway.stream.way import Way
from controller.plan.looks import Listed, LookFailed
from controller.plan.reconnect import (
    LIST_LIMIT,
    Asked,
    AskRevival,
    Attach,
    AwaitList,
    Bridge,
    EndTerminal,
    FetchList,
    Ignore,
    ListState,
    NotAsked,
    Retry,
    StayDown,
    note_announced,
    note_open,
    note_wish,
    plan_connect,
    plan_drop,
    plan_exit,
)
from controller.sprites.attach import Attachment, AttachmentEnded, Exit, Told
from controller.sprites.errors import SpritesError
from controller.tenure import Tenure, TenureEnded

log: Final = logging.getLogger(__name__)

FRAMES_AT_A_STRETCH: Final = 16
"""
After so many frames everybody else gets a turn. What has gathered at a socket comes as hundreds of frames at once, and
none of them is waited for; with hundreds of such sockets the Lease would not be renewed in time.
"""


# --- how a way up ends ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has ended, seen by its exit frame."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class Missing:
    """The session is not listed: the operator decides whether another follows."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Too many attempts failed in a row; nothing is known of the process."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Another session answered. Nothing of it was passed on, and nothing typed."""

    announced: Announced


@dataclass(frozen=True, slots=True)
class RightEnded:
    """The right to open it has ended."""


UpstreamEnd = Exited | Missing | Unreachable | Stranger | RightEnded


@dataclass(frozen=True, slots=True)
class _Dropped:
    told: str
    retry_after: timedelta | None = None


class Permit(Enum):
    """How a way up may connect."""

    NOT = auto()
    """Nobody needs it any more."""
    LOOK_FIRST = auto()
    """By the session list."""
    AT_ONCE = auto()
    """The session is known to live, by another socket that is open to it; a list would tell nothing new."""


class Sink(Protocol):
    """Who takes what comes down."""

    async def permit_connect(self) -> Permit:
        """Wait until connecting is allowed, or not needed any more."""

    def begin(self, attachment: Attachment) -> None:
        """Hear that a socket is open to the wanted session; its replay comes next."""

    def take(self, frame: bytes, /) -> bool:
        """Take output; True asks for `wait_for_room` before the next."""

    async def wait_for_room(self) -> None:
        """Wait until more output may come."""

    def tell(self, text: str, /) -> None:
        """Take a text frame of the platform."""

    async def speak(self, attachment: Attachment, /) -> None:
        """Run beside the socket for as long as it is open."""

    def lose(self, attachment: Attachment | None, /) -> None:
        """Hear that the socket, or the attempt at one, is no more; at the session's exit as well."""

    def try_again(self) -> None:
        """Hear that it broke and is being opened again: see `stay_down` for the other case."""

    def stay_down(self) -> None:
        """Hear that nothing is opened until somebody wants it: see `Upstream.wish`."""


class Upstream:
    """
    One way up.

    Args:
        recorded: The wanted session.
        way: How the sprite is reached.
        sink: Takes what comes.
        typing: Permits the sockets to type; None for those that cannot.
        clock: For waits and lists.
        find_activity: The last activity on the terminal, or None where it was never heard.
        idle_after: How long a silence leaves a dropped socket down.
    """

    def __init__(
        self,
        recorded: Recorded,
        way: Way,
        sink: Sink,
        *,
        typing: Tenure | None,
        clock: Clock,
        find_activity: Callable[[], datetime | None],
        idle_after: timedelta,
    ) -> None:
        self._recorded = recorded
        self._way = way
        self._sink = sink
        self._typing = typing
        self._clock = clock
        self._find_activity = find_activity
        self._idle_after = idle_after
        self._bridge = Bridge(known=recorded.identity)
        self._wished = asyncio.Event()

    def wish(self) -> None:
        """A person comes or types: what failed before is not held against them, and a quiet way is opened again."""
        self._bridge = note_wish(self._bridge)
        self._wished.set()

    async def run(self) -> UpstreamEnd | None:
        """Keep the way open until it ends for a reason, or nobody needs it any more (None)."""
        while True:
            permit = await self._sink.permit_connect()
            if permit is Permit.NOT:
                return None
            identity = await self._find_session(permit)
            if identity is None:
                return Missing()
            outcome = await self._hold_open(identity)
            if not isinstance(outcome, _Dropped):
                return outcome
            if (end := await self._sit_out(outcome)) is not None:
                return end

    async def _find_session(self, permit: Permit) -> Identity | None:
        """Look by the plan for what to attach to; None where the session is not there."""
        look: ListState = NotAsked()
        if permit is Permit.AT_ONCE and not self._bridge.failures:
            look = Asked(self._clock.monotonic() - LIST_LIMIT)
        while True:
            self._bridge, step = plan_connect(self._bridge, look, now=self._clock.monotonic())
            match step:
                case FetchList() | AwaitList():
                    look = await self._look()
                case Attach(identity):
                    return identity
                case AskRevival() | Ignore():
                    return None
                case _:
                    assert_never(step)

    async def _look(self) -> ListState:
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(LIST_LIMIT.total_seconds()):
                look: Listed | LookFailed = await self._way.list_sessions()
        except TimeoutError:
            return Asked(started - LIST_LIMIT)
        return look

    async def _hold_open(self, identity: Identity) -> UpstreamEnd | _Dropped:
        """Attach once and pass on what comes until the socket ends."""
        attempt = self._bridge.attempt
        try:
            async with self._way.attach(identity, typing=self._typing) as attachment:
                self._bridge = note_open(self._bridge, attempt)
                announced = attachment.announced
                if not is_wanted(identity, announced):
                    log.warning("Another session answered.", extra={"session": identity.session_id})
                    attachment.abort()
                    return Stranger(announced)
                self._bridge = note_announced(self._bridge, attempt, identity)
                self._sink.begin(attachment)
                try:
                    ended = await self._pass_on(attachment)
                finally:
                    self._sink.lose(attachment)
        except SpritesError as error:
            self._sink.lose(None)
            return _Dropped(error.message, error.retry_after)
        except TenureEnded:
            return RightEnded()
        if isinstance(ended, _Dropped):
            return ended
        self._bridge, step = plan_exit(self._bridge, attempt, ended.code)
        return Exited(ended.code) if isinstance(step, EndTerminal) else _Dropped("a late exit")

    async def _pass_on(self, attachment: Attachment) -> Exit | _Dropped:
        async with asyncio.TaskGroup() as group:
            speaking = group.create_task(self._sink.speak(attachment))
            ended = await _pump(attachment, self._sink)
            speaking.cancel()
        return ended

    async def _sit_out(self, dropped: _Dropped) -> UpstreamEnd | None:
        """Wait as planned after a drop; an end where the plan gives up."""
        self._wished.clear()
        self._bridge, step = plan_drop(
            self._bridge,
            self._bridge.attempt,
            activity=self._find_activity(),
            idle_after=self._idle_after,
            now=self._clock.now(),
        )
        log.info("A socket to a session dropped.", extra={"cause": dropped.told, "failures": self._bridge.failures})
        match step:
            case Retry(after):
                self._sink.try_again()
                await self._wait_for_wish(max(after, dropped.retry_after or after))
            case StayDown():
                self._sink.stay_down()
                await self._wished.wait()
            case EndTerminal():
                return Unreachable()
            case Ignore():
                pass
            case _:
                assert_never(step)
        return None

    async def _wait_for_wish(self, limit: timedelta) -> None:
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await self._wished.wait()
        except TimeoutError:
            pass


async def _pump(attachment: Attachment, sink: Sink) -> Exit | _Dropped:
    """Pass on what comes. This runs for every frame of every terminal, so it does nothing else."""
    receive, take = attachment.receive, sink.take
    while True:
        for _ in range(FRAMES_AT_A_STRETCH):
            try:
                frame = await receive()
            except AttachmentEnded as ended:
                return _Dropped(ended.told)
            if type(frame) is bytes:
                if take(frame):
                    await sink.wait_for_room()
            elif isinstance(frame, Told):
                sink.tell(frame.text)
            elif isinstance(frame, Exit):
                return frame
        await asyncio.sleep(0)


def is_wanted(identity: Identity, announced: Announced) -> bool:
    """A session that answered is the wanted one: same id, and its created time does not say otherwise."""
    return announced.id == identity.session_id and is_same_created(identity.created, announced.created)

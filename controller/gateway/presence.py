"""
What this process says in `status.gateways`: that somebody looks on, when a terminal was last at work, how it exited.

Problem: the operator holds and reaps by who watches, and sees no sockets; the exit code of a process is told to whoever
is attached, and to nobody else; a write for each of them would cost the API server more than it tells. Promise: of
viewers only the first and the last are written, of activity one moment in a while, of a session its exit, once, which
stands until the operator has taken it; each write goes by JSON patch with tests on our own entry, so that replicas
never undo each other; the entries of a process that goes are gone before it is.

Source: gateway.md 4; design.md 4.6 (exit codes come only from who was attached). `plan.fence_patches` makes the bodies.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from controller.api.status import SessionStatus
from controller.clock import Clock
from controller.gateway.fence_calls import CallFailed, FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.wishes import Target
from controller.kube.errors import Unreachable
from controller.plan.ends import is_exit_settled
from controller.plan.fence import Accepted, MovedOn, ObjectGone
from controller.plan.fence_objects import ExitEntry, GatewayEntry, view_object
from controller.plan.fence_patches import build_drop_entry, build_entry

ACTIVITY_EVERY: Final = timedelta(seconds=60)
"""Between two writes of activity: as often as a hold is renewed."""

TRIES: Final = 5
"""When others write the same list at once."""

RETRY_WAIT: Final = timedelta(seconds=2)
RETRIES: Final = 30
"""A presence that could not be told for a minute is told with its next change."""


@dataclass(eq=False, slots=True)
class _Entry:
    """What is to be told of one object, and what was."""

    target: Target
    uid: str
    begun: timedelta
    viewers: int = 0
    activity: datetime | None = None
    told_activity: datetime | None = None
    exit: ExitEntry | None = None
    """What the operator has not taken yet."""
    told_viewers: bool = False
    told_at: timedelta | None = None
    told_by: str | None = None
    """The incarnation whose entry stands; None where none does."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_due: bool = False


class Presences:
    """
    The presence of one process.

    Args:
        calls: Sends what is asked for.
        find_life: Gives the incarnation that runs.
        spawn: Runs something.
        clock: For moments and pauses.
    """

    def __init__(
        self,
        calls: FenceCalls,
        find_life: Callable[[], Life | None],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        clock: Clock,
    ) -> None:
        self._calls = calls
        self._find_life = find_life
        self._spawn = spawn
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    def note_viewers(self, target: Target, uid: str, count: int) -> None:
        """So many look on now."""
        entry = self._find(target, uid)
        entry.viewers = count
        if bool(count) != entry.told_viewers:
            self._kick(entry)

    def note_output(self, target: Target, uid: str, moment: datetime) -> None:
        """Something came or went at that moment; written once in a while."""
        entry = self._find(target, uid)
        if entry.activity is None or moment > entry.activity:
            entry.activity = moment
        last = entry.begun if entry.told_at is None else entry.told_at
        if entry.activity != entry.told_activity and self._clock.monotonic() - last >= ACTIVITY_EVERY:
            self._kick(entry)

    def note_exit(self, target: Target, uid: str, seen: ExitEntry) -> None:
        """The process of a session has exited, as its socket told."""
        entry = self._find(target, uid)
        if entry.exit != seen:
            entry.exit = seen
            self._kick(entry)

    def note_session(self, uid: str, session: SessionStatus | None) -> None:
        """
        The object records this of its session: an exit that was taken, or of a session of the past, is told no more.

        What stands of it in the status goes with our next write there.
        """
        entry = self._entries.get(uid)
        if entry is not None and entry.exit is not None and is_exit_settled(session, entry.exit):
            entry.exit = None

    async def note_activity(self, target: Target, uid: str) -> None:
        """
        Somebody says that it is at work: written at once, unless something was written just now.

        Raises:
            Unreachable: It could not be written.
        """
        entry = self._find(target, uid)
        entry.activity = self._clock.now()
        is_new = entry.told_at is None or self._clock.monotonic() - entry.told_at >= ACTIVITY_EVERY
        if is_new and not await self._write(entry):
            raise Unreachable("The activity could not be written to the status.")

    def drop_quiet(self) -> None:
        """Write what waited for its time, and forget objects of which nothing is to be told any more."""
        now = self._clock.monotonic()
        for uid, entry in list(self._entries.items()):
            waits = entry.activity != entry.told_activity
            if waits and entry.told_at is not None and now - entry.told_at >= ACTIVITY_EVERY:
                self._kick(entry)
            is_open = entry.exit is not None or entry.is_due
            is_quiet = entry.viewers == 0 and not waits and not entry.told_viewers and not is_open
            if is_quiet and now - (entry.told_at or entry.begun) >= 10 * ACTIVITY_EVERY:
                entry.activity = entry.told_activity = None
                if entry.told_by is None:
                    del self._entries[uid]
                else:
                    self._kick(entry)

    def note_gone(self, uid: str) -> None:
        """An object is gone."""
        self._entries.pop(uid, None)

    async def withdraw(self) -> None:
        """Remove all entries of this process, as well as can be."""
        entries = [entry for entry in self._entries.values() if entry.told_by is not None]
        for entry in entries:
            entry.viewers, entry.activity, entry.exit = 0, None, None
        await asyncio.gather(*(self._write(entry) for entry in entries))

    def _find(self, target: Target, uid: str) -> _Entry:
        return self._entries.setdefault(uid, _Entry(target, uid, self._clock.monotonic()))

    def _kick(self, entry: _Entry) -> None:
        if not entry.is_due:
            entry.is_due = True
            self._spawn(self._keep_writing(entry))

    async def _keep_writing(self, entry: _Entry) -> None:
        for _ in range(RETRIES):
            entry.is_due = False
            if await self._write(entry):
                return
            entry.is_due = True
            await self._clock.sleep(RETRY_WAIT)
        entry.is_due = False

    async def _write(self, entry: _Entry) -> bool:
        """Bring our entry to what is to be told; tells whether it stands."""
        async with entry.writing:
            for _ in range(TRIES):
                life = self._find_life()
                if life is None:
                    return False
                viewers, activity, seen = entry.viewers, entry.activity, entry.exit
                try:
                    raw = await self._calls.read(entry.target)
                except CallFailed:
                    return False
                if raw is None or raw["metadata"]["uid"] != entry.uid:
                    self._entries.pop(entry.uid, None)
                    return True
                view = view_object(raw)
                told = viewers > 0 or activity is not None or seen is not None
                wanted = GatewayEntry(life.incarnation, viewers, _render(activity), seen)
                patch = build_entry(view, wanted) if told else build_drop_entry(view, life.incarnation)
                if patch:
                    written = await self._calls.write(entry.target, patch, status=True, tenure=life.writes)
                    if isinstance(written.answer, MovedOn):
                        continue
                    if not isinstance(written.answer, Accepted | ObjectGone):
                        return False
                entry.told_viewers, entry.told_activity = viewers > 0, activity
                entry.told_at = self._clock.monotonic()
                entry.told_by = life.incarnation if told else None
                return True
            return False


def _render(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

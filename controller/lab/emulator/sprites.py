"""
A sprite: its record, its three states, and the sessions in it.

Promise: one transition at a time; `wake` returns when processes run; a pause drops every connection; warm keeps the
processes and stops them, cold ends them, and the disk stays. Idle sprites pause by themselves where the switch says.
Source: sprites-api.md 2.3, 3.8 and 8.
"""

import asyncio
import contextlib
import shutil
import uuid
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, Final

from controller.lab.emulator.labclock import LabClock, Timer
from controller.lab.emulator.lifecycle import Facts, Pauses, Status, judge_idle
from controller.lab.emulator.records import RecordWorld
from controller.lab.emulator.sessions import Session, Size
from controller.lab.emulator.settings import Isolation
from controller.lab.emulator.switches import KillReach, Switches
from controller.lab.emulator.tasks import TaskBook
from controller.lab.emulator.world import Command, NamespacesMissing, World, WorldLost, build_folder, start_world

ENDED_IDS: Final = 1000
"""How many ended sessions a sprite remembers, for the kill that answers 410 by switch."""

SPRITE_ENV: Final = """#!/bin/sh
# Fills in socket and host: sprite-env curl [options] /v1/tasks
[ "$1" = curl ] || { echo "usage: sprite-env curl [options] /path" >&2; exit 2; }
shift
for word; do
    shift
    case $word in /*) word=http://sprite$word ;; esac
    set -- "$@" "$word"
done
exec curl --unix-socket "${SPRITE_API_SOCKET:-/.sprite/api.sock}" "$@"
"""


@dataclass(frozen=True)
class Surroundings:
    """What a sprite shares with all others."""

    clock: LabClock
    isolation: Isolation
    switches: Callable[[], Switches]
    folder: Path
    run: Callable[[Coroutine[Any, Any, None]], None]
    """Start a task that the emulator owns."""
    open_door: Callable[["Sprite"], Coroutine[Any, Any, None]]
    """Serve the sprite's own API on its own socket."""
    close_door: Callable[["Sprite"], Coroutine[Any, Any, None]]
    on_change: Callable[["Sprite"], None]
    """Told of every change of state."""


@dataclass
class Wakes:
    """How often the sprite was woken, by what asked for it."""

    total: int = 0
    by_cause: dict[str, int] = field(default_factory=dict)

    def note(self, cause: str) -> None:
        """Count one."""
        self.total += 1
        self.by_cause[cause] = self.by_cause.get(cause, 0) + 1


class Sprite:
    """One sprite of an organization."""

    def __init__(self, name: str, organization: str, surroundings: Surroundings) -> None:
        self._all = surroundings
        self._clock = surroundings.clock
        now = self._clock.now()
        self.name = name
        self.organization = organization
        self.id = f"sprite-{uuid.uuid4()}"
        self.folder = surroundings.folder / uuid.uuid4().hex[:8]
        self.created_at = self.updated_at = now
        self.labels: list[str] = []
        self.url_settings: dict[str, str] = {"auth": "sprite"}
        self.last_running_at: datetime | None = None
        self.last_warming_at: datetime | None = None
        self.sessions: dict[str, Session] = {}
        self.trailing: deque[tuple[datetime, Session]] = deque(maxlen=ENDED_IDS)
        """Ended sessions with the moment of their end, for a list that trails."""
        self.ended_ids: deque[str] = deque(maxlen=ENDED_IDS)
        self.tasks = TaskBook()
        self.wakes = Wakes()
        self.deleted = False
        self._status = Status.COLD
        self._former: tuple[Status, datetime] = (Status.COLD, now)
        self._world: World | None = None
        self._transition = asyncio.Lock()
        self._active_at = now
        self._timer: Timer | None = None

    @property
    def status(self) -> Status:
        """What it is."""
        return self._status

    @property
    def shown_status(self) -> Status:
        """What the metadata says it is: that may lag."""
        former, since = self._former
        lag = timedelta(seconds=self._all.switches().status_lag_seconds)
        return former if self._clock.now() < since + lag else self._status

    @property
    def socket_path(self) -> Path:
        """Where its own API is served, as the host sees it."""
        return self.folder / "sprite" / "api.sock"

    def touch(self) -> None:
        """Notice activity."""
        self._active_at = self._clock.now()
        if self._timer is None and self._all.switches().idle_seconds > 0:
            self.arm()

    async def wake(self, cause: str) -> None:
        """Be running, from whatever state."""
        async with self._transition:
            await self._wake(cause)

    async def start_session(self, command: Command, *, run_on: timedelta, cause: str) -> Session:
        """Wake, start a command and keep it as a session."""
        async with self._transition:
            world = await self._wake(cause)
            process = await world.spawn(command)
            session = Session(
                process,
                clock=self._clock,
                switches=self._all.switches,
                tty=command.tty,
                stdin=command.stdin,
                directory=command.directory,
                size=Size(command.rows, command.cols),
                run_on=run_on,
                on_activity=self.touch,
                on_ended=self._forget,
                on_overdue=self._end_overdue,
            )
            self.sessions[session.id] = session
            return session

    async def signal(self, session: Session, number: int, reach: KillReach) -> tuple[int, ...]:
        """Send a signal to a session; one of before a cold stop is gone, though its id may be in use again."""
        if self._world is None or self.sessions.get(session.id) is not session:
            return ()
        session.signals.append(Signals(number).name)
        return await self._world.signal(session.process.pid, number, reach)

    async def pause(self) -> None:
        """Be warm: the processes stop where they are, every connection drops."""
        async with self._transition:
            await self._pause()

    async def chill(self) -> None:
        """Be cold: the processes end, the disk stays."""
        async with self._transition:
            await self._chill()

    async def delete(self) -> None:
        """Be gone, with everything."""
        async with self._transition:
            self.deleted = True
            await self._chill()
            await self._all.close_door(self)
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def read_table(self) -> list[Any]:
        """List its processes."""
        return [] if self._world is None else list(self._world.read_table())

    def find_listed(self) -> list[Session]:
        """List the sessions as the API does: an ended one may trail."""
        trail = timedelta(seconds=self._all.switches().list_trail_seconds)
        now = self._clock.now()
        live = (session for session in self.sessions.values() if not session.ended)
        return [*live, *(session for ended, session in self.trailing if now - ended < trail)]

    def arm(self) -> None:
        """Judge whether to pause, and wait for the moment when that changes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        switches = self._all.switches()
        if self._status is Status.WARM and switches.cold_after_seconds > 0 and self.last_warming_at is not None:
            left = self.last_warming_at + timedelta(seconds=switches.cold_after_seconds) - self._clock.now()
            self._timer = self._clock.call_later(left, self._grow_cold)
        elif self._status is Status.RUNNING:
            until = max((task.expires_at for task in self.tasks.live(self._clock.now())), default=None)
            attached = any(session.clients for session in self.sessions.values())
            judgement = judge_idle(
                Facts(attached=attached, last_activity=self._active_at, tasks_until=until),
                idle_after=timedelta(seconds=switches.idle_seconds),
                now=self._clock.now(),
            )
            if isinstance(judgement, Pauses):
                self._all.run(self._pause_if_idle())
            elif judgement.until is not None:
                self._timer = self._clock.call_later(judgement.until - self._clock.now(), self.arm)

    async def _pause_if_idle(self) -> None:
        async with self._transition:
            until = max((task.expires_at for task in self.tasks.live(self._clock.now())), default=None)
            facts = Facts(
                attached=any(session.clients for session in self.sessions.values()),
                last_activity=self._active_at,
                tasks_until=until,
            )
            idle_after = timedelta(seconds=self._all.switches().idle_seconds)
            if isinstance(judge_idle(facts, idle_after=idle_after, now=self._clock.now()), Pauses):
                await self._pause()
        self.arm()

    def _grow_cold(self) -> None:
        async def grow_cold() -> None:
            async with self._transition:
                if self._status is Status.WARM:
                    await self._chill()

        self._all.run(grow_cold())

    async def _wake(self, cause: str) -> World:
        if self.deleted:
            raise WorldLost("The sprite is deleted.")
        switches = self._all.switches()
        match self._status:
            case Status.COLD:
                self.wakes.note(cause)
                await self._clock.sleep(timedelta(seconds=switches.wake_cold_seconds))
                self._world = await self._start()
            case Status.WARM:
                self.wakes.note(cause)
                await self._clock.sleep(timedelta(seconds=switches.wake_warm_seconds))
                if self._world is None:
                    self._world = await self._start()
                await self._world.thaw()
                for session in self.sessions.values():
                    session.thaw()
            case Status.RUNNING:
                pass
        if self._world is None:
            raise WorldLost("The sprite's processes have ended.")
        self._active_at = self._clock.now()
        if self._status is not Status.RUNNING:
            self.last_running_at = self._active_at
            self._become(Status.RUNNING)
        return self._world

    async def _start(self) -> World:
        if self._all.isolation is Isolation.RECORDS:
            return RecordWorld(lambda: self._all.switches().record_output)
        await asyncio.to_thread(self._build_folder)
        await self._all.open_door(self)
        try:
            return await start_world(self.folder, self._all.isolation, self._lose_world)
        except NamespacesMissing as error:
            # It worked at the start of the emulator: this is a shortage.
            raise WorldLost(f"The sprite does not start: {error}") from error

    def _build_folder(self) -> None:
        build_folder(self.folder)
        helper = self.folder / "sprite" / "bin" / "sprite-env"
        helper.write_text(SPRITE_ENV)
        helper.chmod(0o755)

    async def _pause(self) -> None:
        if self._status is Status.WARM:
            return
        for session in self.sessions.values():
            session.freeze()
        if self._world is not None:
            with contextlib.suppress(WorldLost):
                await self._world.freeze()
        self.last_warming_at = self._clock.now()
        self._become(Status.WARM)

    async def _chill(self) -> None:
        world, self._world = self._world, None
        for session in list(self.sessions.values()):
            session.drop_clients()
            session.close()
        self.sessions.clear()
        self.trailing.clear()
        self.ended_ids.clear()
        if world is not None:
            await world.end()
        if not self._all.switches().tasks_survive_cold:
            self.tasks.clear()
        if self._status is not Status.COLD:
            self._become(Status.COLD)

    def _become(self, status: Status) -> None:
        self._former = (self._status, self._clock.now())
        self._status = status
        self.arm()
        self._all.on_change(self)

    def _forget(self, session: Session) -> None:
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
            self.trailing.append((self._clock.now(), session))
            self.ended_ids.append(session.id)
            self.arm()

    def _end_overdue(self, session: Session) -> None:
        async def end() -> None:
            with contextlib.suppress(WorldLost):
                await self.signal(session, SIGKILL, KillReach.FOREGROUND)

        self._all.run(end())

    def _lose_world(self) -> None:
        """Somebody killed the first process from outside: that is a cold stop."""
        self._all.run(self.chill())

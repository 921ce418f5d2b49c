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
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Any, Final

from controller.lab.emulator.labclock import LabClock, Timer
from controller.lab.emulator.lifecycle import Facts, Pauses, Status, StaysAwake, judge_idle
from controller.lab.emulator.record_curl import answer_curl
from controller.lab.emulator.records import RecordWorld
from controller.lab.emulator.sessions import Session, Size
from controller.lab.emulator.settings import Isolation
from controller.lab.emulator.switches import KeptAwakeBy, KillReach, Survive, Switches, TaskClock
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


MISSING: Final = """#!/bin/sh
echo "sh: 1: ${0##*/}: not found" >&2
exit 127
"""
"""Lies where a program would be that the image has not."""


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
        self.config: dict[str, Any] = {}
        """What its create said of it besides name and settings."""
        self.creates = 0
        """How many execs were started, for the switch that loses some of them."""
        self._fast_ends = 0
        self._own: dict[str, Any] = {}
        self._merged: tuple[Switches, Switches] | None = None
        self._paused_at: datetime | None = None
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
    def switches(self) -> Switches:
        """How it behaves: as all do, but for what is set for it alone."""
        common = self._all.switches()
        if not self._own:
            return common
        if self._merged is None or self._merged[0] is not common:
            self._merged = common, common.model_copy(update=self._own)
        return self._merged[1]

    @property
    def own_switches(self) -> dict[str, Any]:
        """What is set for it alone."""
        return dict(self._own)

    def set_own_switches(self, values: dict[str, Any]) -> None:
        """Set for it alone; an empty mapping takes all of that back."""
        self._own = {**self._own, **values} if values else {}
        self._merged = None
        self.arm()

    def task_now(self) -> datetime:
        """Tell the moment that its tasks' expiry is compared with: it may stand still during a pause."""
        stands = self._paused_at is not None and self.switches.task_clock is TaskClock.STOPS
        return self._paused_at if stands and self._paused_at is not None else self._clock.now()

    @property
    def shown_status(self) -> Status:
        """What the metadata says it is: that may lag."""
        former, since = self._former
        lag = timedelta(seconds=self.switches.status_lag_seconds)
        return former if self._clock.now() < since + lag else self._status

    @property
    def socket_path(self) -> Path:
        """Where its own API is served, as the host sees it."""
        return self.folder / "sprite" / "api.sock"

    def touch(self) -> None:
        """Notice activity."""
        self._active_at = self._clock.now()
        if self._timer is None and self.switches.idle_seconds > 0:
            self.arm()

    def note_read(self) -> None:
        """Notice a read that wakes nothing: by switch it counts as activity of a sprite that runs."""
        if self._status is Status.RUNNING and self.switches.reads_count:
            self.touch()

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
                switches=lambda: self.switches,
                tty=command.tty,
                stdin=command.stdin,
                directory=command.directory,
                argv=command.argv,
                size=Size(command.rows, command.cols),
                run_on=run_on,
                on_activity=self.touch,
                on_ended=self._forget,
                on_overdue=self._end_overdue,
                is_lost=self._is_fast_end_lost,
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

    async def restart(self, cause: str, *, keeps: bool) -> None:
        """Have a machine of its own again, with or without the sessions of before."""
        async with self._transition:
            if not keeps:
                await self._chill(ends=True)
            await self._wake(cause)

    async def delete(self) -> None:
        """Be gone, with everything."""
        async with self._transition:
            self.deleted = True
            await self._chill(ends=True)
            await self._all.close_door(self)
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    def read_ports(self, session: Session) -> dict[int, int]:
        """List the ports on which a session's processes listen, with the inner id of the process."""
        return {} if self._world is None else self._world.read_ports(session.process.pid)

    def read_table(self) -> list[Any]:
        """List its processes."""
        return [] if self._world is None else list(self._world.read_table())

    def find_listed(self) -> list[Session]:
        """List the sessions as the API does: an ended one may trail."""
        trail = timedelta(seconds=self.switches.list_trail_seconds)
        now = self._clock.now()
        live = (session for session in self.sessions.values() if not session.ended)
        return [*live, *(session for ended, session in self.trailing if now - ended < trail)]

    def arm(self) -> None:
        """Judge whether to pause, and wait for the moment when that changes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        switches = self.switches
        if self._status is Status.WARM and switches.cold_after_seconds > 0 and self.last_warming_at is not None:
            left = self.last_warming_at + timedelta(seconds=switches.cold_after_seconds) - self._clock.now()
            self._timer = self._clock.call_later(left, self._grow_cold)
        elif self._status is Status.RUNNING:
            judgement = self._judge_idle()
            if isinstance(judgement, Pauses):
                self._all.run(self._pause_if_idle())
            elif judgement.until is not None:
                self._timer = self._clock.call_later(judgement.until - self._clock.now(), self.arm)

    async def _pause_if_idle(self) -> None:
        async with self._transition:
            if isinstance(self._judge_idle(), Pauses):
                await self._pause()
        self.arm()

    def _judge_idle(self) -> StaysAwake | Pauses:
        facts = Facts(
            attached=any(self._keeps_awake(session) for session in self.sessions.values()),
            last_activity=self._active_at,
            tasks_until=max((task.expires_at for task in self.tasks.live(self._clock.now())), default=None),
        )
        return judge_idle(facts, idle_after=timedelta(seconds=self.switches.idle_seconds), now=self._clock.now())

    def _keeps_awake(self, session: Session) -> bool:
        match self.switches.kept_awake_by:
            case KeptAwakeBy.NONE:
                return False
            case KeptAwakeBy.ATTACHED:
                return bool(session.clients)
            case KeptAwakeBy.TERMINALS:
                return bool(session.clients) or (session.tty and not session.ended)
            case KeptAwakeBy.SESSIONS:
                return bool(session.clients) or not session.ended

    def _is_fast_end_lost(self) -> bool:
        every = self.switches.lost_fast_every
        self._fast_ends += 1
        return every > 0 and self._fast_ends % every == 0

    def _grow_cold(self) -> None:
        async def grow_cold() -> None:
            async with self._transition:
                if self._status is Status.WARM:
                    await self._chill()

        self._all.run(grow_cold())

    async def _wake(self, cause: str) -> World:
        if self.deleted:
            raise WorldLost("The sprite is deleted.")
        switches = self.switches
        match self._status:
            case Status.COLD:
                self.wakes.note(cause)
                await self._clock.sleep(timedelta(seconds=switches.wake_cold_seconds))
                await self._go_on()
            case Status.WARM:
                self.wakes.note(cause)
                await self._clock.sleep(timedelta(seconds=switches.wake_warm_seconds))
                await self._go_on()
            case Status.RUNNING:
                pass
        if self._world is None:
            raise WorldLost("The sprite's processes have ended.")
        self._active_at = self._clock.now()
        if self._status is not Status.RUNNING:
            self.last_running_at = self._active_at
            self._become(Status.RUNNING)
        return self._world

    async def _go_on(self) -> None:
        """Start the processes, or let those go on that a pause has only stopped."""
        if self._world is None:
            self._world = await self._start()
        else:
            await self._world.thaw()
            for session in self.sessions.values():
                session.thaw()
        if self._paused_at is not None and self.switches.task_clock is TaskClock.STOPS:
            self.tasks.shift(self._clock.now() - self._paused_at)
        self._paused_at = None

    def _answer_curl(self, argv: Sequence[str]) -> str | None:
        answered = answer_curl(argv, self.tasks, self.task_now(), hour=self.switches.task_hour)
        if answered is not None:
            self.arm()
        return answered

    async def _start(self) -> World:
        if self._all.isolation is Isolation.RECORDS:
            return RecordWorld(lambda: self.switches.record_output, self._answer_curl)
        hidden = () if self.switches.curl_in_image else ("curl",)
        await asyncio.to_thread(self._build_folder, hidden)
        await self._all.open_door(self)
        try:
            return await start_world(self.folder, self._all.isolation, self._lose_world, hidden=hidden)
        except NamespacesMissing as error:
            # It worked at the start of the emulator: this is a shortage.
            raise WorldLost(f"The sprite does not start: {error}") from error

    def _build_folder(self, hidden: tuple[str, ...]) -> None:
        build_folder(self.folder)
        programs = {"sprite-env": SPRITE_ENV, "missing": MISSING}
        if self._all.isolation is Isolation.PLAIN:
            # First on PATH there; in namespaces `missing` lies over the program itself.
            (self.folder / "sprite" / "bin" / "curl").unlink(missing_ok=True)
            programs |= dict.fromkeys(hidden, MISSING)
        for name, text in programs.items():
            program = self.folder / "sprite" / "bin" / name
            program.write_text(text)
            program.chmod(0o755)

    async def _pause(self) -> None:
        if self._status is Status.WARM:
            return
        if self.switches.sessions_survive is Survive.NONE:
            await self._end_world()
        else:
            await self._freeze()
        self._note_pause()
        self.last_warming_at = self._clock.now()
        self._become(Status.WARM)

    async def _chill(self, *, ends: bool = False) -> None:
        """
        Be cold.

        Args:
            ends: End the processes, whatever the switch says of sessions that survive this.
        """
        if self.switches.sessions_survive is Survive.COLD and not ends:
            await self._freeze()
        else:
            await self._end_world()
        self._note_pause()
        if not self.switches.tasks_survive_cold:
            self.tasks.clear()
        if self._status is not Status.COLD:
            self._become(Status.COLD)

    def _note_pause(self) -> None:
        self._paused_at = self._paused_at or self._clock.now()

    async def _freeze(self) -> None:
        for session in self.sessions.values():
            session.freeze()
        if self._world is not None:
            with contextlib.suppress(WorldLost):
                await self._world.freeze()

    async def _end_world(self) -> None:
        world, self._world = self._world, None
        for session in list(self.sessions.values()):
            session.drop_clients()
            session.close()
        self.sessions.clear()
        self.trailing.clear()
        self.ended_ids.clear()
        if world is not None:
            await world.end()

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

        async def chill() -> None:
            async with self._transition:
                await self._chill(ends=True)

        self._all.run(chill())

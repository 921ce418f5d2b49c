"""
The hold keeper: one per process, working per sprite, so that a hundred held terminals of one sprite cost one call.

Problem: a sprite pauses under a busy agent unless a task is refreshed in time, a call to a paused sprite wakes it and
costs money, and an operator that dies must not leave a hold behind. Promise: what a visit wishes for is judged again at
every beat; all that is due in one sprite goes out in one command; nothing is sent to a sprite that is not known to run;
no task is created without an expiry; after a restart the sprite's own list tells what is there.

A visit hands in a `Wish`; when what is held changes, the object is visited again and its status says so.

Source: behaviour cases C1 to C14; design 6 (docs/architecture.md).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random
from typing import Final

from controller.api.session import Cause, Identity, SpriteState
from controller.api.terminal import HoldMode, HoldStatus
from controller.clock import Clock
from controller.engine.launcher import Place
from controller.engine.limits import Priority
from controller.engine.observer import SpriteObserver
from controller.engine.queue import WorkQueue
from controller.engine.settings import QueueSettings
from controller.metrics import HOLD_CAUSES, OTHER, HoldCall, HoldCounts, HoldResult, HoldState, Metrics
from controller.plan.activity import (
    Activity,
    Hearing,
    HoldCause,
    HoldFor,
    LetGo,
    LetLapse,
    NoWork,
    Occasion,
    Presence,
    Work,
    WorkFacts,
    is_hold_idle_too_long,
    judge_work,
    observe_activity,
)
from controller.plan.hold_book import (
    HoldBook,
    HoldRules,
    SlotCall,
    Upsert,
    is_held,
    is_renewal,
    is_surely_held,
    note_lost,
    note_sent,
    note_verdict,
    rebuild_book,
    spread_beats,
)
from controller.plan.hold_round import (
    EntryCalls,
    HoldEntry,
    HoldRound,
    Quiet,
    ReadTasks,
    SendCalls,
    describe_hold,
    judge_held,
    plan_round,
)
from controller.plan.kill import METADATA_AGE
from controller.plan.looks import SpriteSeen
from controller.plan.status import HoldView
from controller.plan.steps import Verdict
from controller.plan.tasks import (
    EXEC_LIMIT,
    OUTPUT_BYTES,
    Done,
    ExecAnswer,
    ExecEnded,
    ExecFailed,
    TaskCall,
    TaskTrouble,
    build_exec,
    describe_verdict,
    judge_exec,
    split_calls,
)
from controller.plan.tasks_read import READ_OUTPUT_BYTES, TasksRead, build_read_exec, judge_read
from controller.sprites.client import SpritesClient
from controller.sprites.errors import OutputTooLarge, SpritesError
from controller.tenure import Tenure, TenureEnded

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Sprites that are worked on at the same time; a command in a sprite takes some 50 ms, and at most 10 s."""
ROUNDS: Final = 4
"""Commands of one visit: a read, and what follows from it; more is left for the next visit."""
ROUNDS_PAUSE: Final = timedelta(milliseconds=100)
SIGHT_BEFORE: Final = timedelta(seconds=1)
"""
The session list that says whether there was activity is at most this old when a beat is judged, and so is the metadata
that says whether a sprite runs that nothing keeps awake.

Well below the age at which a list ceases to be sight, or a beat could fall just behind it again and again.
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """
    What a visit found about one terminal, as far as its hold needs it.

    Args:
        uid: The object.
        key: From `hold_names.build_key`.
        place: Its sprite, by a token.
        identity: Its session; None where there is none any more.
        live: The session lives, and nothing asks for its end.
        wanted: `spec.holdWanted`, and a token that may hold.
        recorded: The hold of which the status tells, without its expiry; an earlier process may have left it.
        mode: `spec.hold.mode`.
        suspended: `spec.suspend`.
        presence: Who looks at it.
        hearing: Whether it was ever heard.
        times: When it was active, from all sources but the session list.
        rules: The durations.
    """

    uid: str
    key: str
    place: Place
    identity: Identity | None
    live: bool
    wanted: bool
    recorded: HoldStatus | None
    mode: HoldMode
    suspended: bool
    presence: Presence
    hearing: Hearing
    times: tuple[datetime | None, ...]
    rules: HoldRules


@dataclass(slots=True)
class _Terminal:
    """One terminal in the keeper's books."""

    wish: Wish
    known_since: timedelta
    occasion: Occasion = Occasion.BEAT
    book: HoldBook | None = None
    work: Work | None = None
    verdict: Verdict | None = None
    hold: HoldStatus | None = None
    trouble: TaskTrouble | None = None
    """Why the last call that should have set its task is not known to be done."""
    activity: Activity | None = None
    told: tuple[object, ...] = ()
    warned: bool = False
    counted_at: timedelta | None = None


@dataclass(slots=True)
class _Sprite:
    place: Place
    terminals: dict[str, _Terminal] = field(default_factory=dict)


class HoldKeeper:
    """
    All holds of this process.

    Args:
        client: The Sprites API.
        observer: Knows whether a sprite runs, and reads its session list for all.
        clock: Both clocks.
        tenure: Permits the calls.
        metrics: Counts.
        luck: For the back-off of the queue.
        on_change: Told the uid of an object whose hold has changed.
        on_idle: Told the uid of an object that was held for an hour in which nothing was active, once for each hold.
    """

    def __init__(
        self,
        client: SpritesClient,
        observer: SpriteObserver,
        clock: Clock,
        tenure: Tenure,
        *,
        metrics: Metrics,
        luck: Random,
        on_change: Callable[[str], None],
        on_idle: Callable[[str], None],
    ) -> None:
        self._client = client
        self._observer = observer
        self._clock = clock
        self._tenure = tenure
        self._metrics = metrics
        self._on_change = on_change
        self._on_idle = on_idle
        self._queue = WorkQueue(clock, QueueSettings(), luck)
        self._sprites: dict[str, _Sprite] = {}
        self._where: dict[str, str] = {}

    # --- what visits say and ask --------------------------------------------------------------------------------------

    def put(self, wish: Wish) -> None:
        """Take in what a visit found; something that changes the question is judged at once."""
        key = _name_sprite(wish.place)
        if self._where.get(wish.uid, key) != key:
            self._strike(wish.uid)
        known = self._find(wish.uid)
        if known is None:
            if not (wish.wanted and wish.live) and wish.recorded is None:
                return
            self._where[wish.uid] = key
            # A hold that goes on over a restart keeps its beginning.
            terminal = _Terminal(wish, self._clock.monotonic(), hold=wish.recorded)
            self._sprites.setdefault(key, _Sprite(wish.place)).terminals[wish.uid] = terminal
            self._queue.add(key)
            return
        if known.wish == wish:
            return
        if known.wish.presence is Presence.WATCHED and wish.presence is Presence.NOBODY:
            known.occasion = Occasion.LEAVING
        known.wish = wish
        self._sprites[key].place = wish.place
        self._queue.add(key)

    def drop(self, uid: str) -> None:
        """Let a terminal that is gone out of the books, once what it may still hold was removed or has lapsed."""
        key = self._where.get(uid)
        if key is None:
            return
        sprite = self._sprites[key]
        terminal = sprite.terminals[uid]
        if terminal.book is not None and is_held(terminal.book, self._clock.monotonic()):
            terminal.wish = replace(terminal.wish, live=False, recorded=None)
            self._queue.add(key)
            return
        self._strike(uid)

    def _strike(self, uid: str) -> None:
        key = self._where.pop(uid)
        sprite = self._sprites[key]
        del sprite.terminals[uid]
        if not sprite.terminals:
            del self._sprites[key]
            self._queue.drop(key)

    def wake(self, sprite: str) -> None:
        """A sprite changed its state: what is due there may be sent now."""
        for key, known in self._sprites.items():
            if known.place.sprite == sprite:
                self._queue.add(key)

    def view(self, uid: str) -> HoldView | None:
        """Tell what is held for a terminal; None where the keeper has no book for it."""
        terminal = self._find(uid)
        if terminal is None or terminal.verdict is None:
            return None
        return HoldView(terminal.verdict, terminal.hold, terminal.activity)

    def holds(self, uid: str) -> bool:
        """Tell whether a task may be alive for a terminal."""
        terminal = self._find(uid)
        return terminal is not None and terminal.book is not None and is_held(terminal.book, self._clock.monotonic())

    def count_holds(self) -> HoldCounts:
        """
        Count the terminals by what is known of their task and what it is for.

        One without work and task counts nowhere, nor does one without a task whose sprite is paused: nothing is at
        risk there, and a call would wake it.
        """
        now = self._clock.monotonic()
        counts: Counter[tuple[HoldState, str]] = Counter()
        for sprite in self._sprites.values():
            may_run = self._look(sprite.place) in (SpriteState.RUNNING, SpriteState.UNKNOWN)
            for terminal in sprite.terminals.values():
                state = _judge_state(terminal, now)
                if state is not None and (may_run or state is not HoldState.MISSING):
                    counts[state, _name_held_cause(terminal)] += 1
        return counts

    def measure_idle(self) -> Mapping[str, timedelta]:
        """Tell by cause for how long a held terminal has shown no activity: the longest of each."""
        now, now_time = self._clock.monotonic(), self._clock.now()
        longest: dict[str, timedelta] = {}
        for terminal in self._terminals():
            since = None if terminal.hold is None else terminal.hold.since
            if since is None or terminal.book is None or not is_held(terminal.book, now):
                continue
            latest = None if terminal.activity is None else terminal.activity.latest
            idle = max(timedelta(0), now_time - max(since, latest or since))
            cause = _name_held_cause(terminal)
            longest[cause] = max(idle, longest.get(cause, idle))
        return longest

    def _terminals(self) -> Iterator[_Terminal]:
        for sprite in self._sprites.values():
            yield from sprite.terminals.values()

    async def run(self) -> None:
        """Keep all holds, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"hold-{number}")

    def close(self) -> None:
        """Begin no command any more."""
        self._queue.close()

    async def wait_finished(self) -> None:
        """Wait, after `close`, until no command is under way."""
        await self._queue.wait_finished()

    # --- work ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if item.key in self._sprites:
                    await self._visit(item.key, self._sprites[item.key])
            except TenureEnded:
                raise
            except Exception:
                # A bug with one sprite must not cost all others their holds: it is logged whole, and repeated.
                self._queue.fail(item.key)
                log.exception("The holds of a sprite failed for a reason that nobody foresaw.")
            finally:
                self._queue.done(item.key)

    async def _visit(self, key: str, sprite: _Sprite) -> None:
        """Bring all holds of one sprite a beat further."""
        await self._observer.look_at_sprite(
            sprite.place.token, sprite.place.sprite, wanted_id=None, since=self._clock.monotonic() - METADATA_AGE
        )
        if self._look(sprite.place) is not SpriteState.RUNNING:
            self._wait_for_lapse(key, sprite)
            return
        await self._get_sight(sprite)
        for _ in range(ROUNDS):
            step = self._plan(sprite)
            if not isinstance(step, Quiet) and not await self._is_awake(sprite):
                self._wait_for_lapse(key, sprite)
                return
            match step:
                case ReadTasks():
                    await self._rebuild(sprite)
                case SendCalls(entries=entries):
                    await self._send_all(sprite, entries)
                case Quiet(after=after):
                    self._tell_changes(sprite)
                    self._plan_next(key, sprite, after)
                    return
        self._tell_changes(sprite)
        self._queue.add_after(key, ROUNDS_PAUSE)

    async def _is_awake(self, sprite: _Sprite) -> bool:
        """
        Make sure that a sprite runs before anything is sent to it.

        One that a task of ours surely keeps awake need not be asked; any other may have paused since its metadata was
        last read, and a call would wake it.
        """
        now = self._clock.monotonic()
        for terminal in sprite.terminals.values():
            if terminal.book is not None and is_surely_held(terminal.book, terminal.wish.rules, now):
                return True
        await self._observer.look_at_sprite(
            sprite.place.token, sprite.place.sprite, wanted_id=None, since=now - SIGHT_BEFORE
        )
        return self._look(sprite.place) is SpriteState.RUNNING

    def _wait_for_lapse(self, key: str, sprite: _Sprite) -> None:
        """Send nothing to a sprite that is not known to run; what an earlier process left there lapses by itself."""
        now = self._clock.monotonic()
        waits = []
        for terminal in sprite.terminals.values():
            terminal.work = self._judge_work(terminal, now)
            left = terminal.known_since + terminal.wish.rules.expire - now
            if terminal.book is None and left <= timedelta(0):
                terminal.book = HoldBook(spread_beats(terminal.wish.uid))
            elif terminal.book is None:
                waits.append(left)
            else:
                waits += [task.lapses - now for task in terminal.book.tasks if task is not None and task.lapses > now]
        self._tell_changes(sprite)
        if waits:
            self._queue.add_after(key, min(waits))

    def _look(self, place: Place) -> SpriteState:
        look = self._observer.recall_sprite(place.token, place.sprite, wanted_id=None)
        return look.sprite.state if isinstance(look, SpriteSeen) else SpriteState.UNKNOWN

    async def _rebuild(self, sprite: _Sprite) -> None:
        """Begin the books of those who have none from what the sprite lists."""
        answer = await self._run(sprite.place, build_read_exec(), output_bytes=READ_OUTPUT_BYTES)
        read = judge_read(answer)
        now, now_time = self._clock.monotonic(), self._clock.now()
        tasks = read if isinstance(read, TasksRead) else None
        for terminal in sprite.terminals.values():
            if terminal.book is None:
                terminal.book = rebuild_book(terminal.wish.key, terminal.wish.uid, tasks, now=now, now_time=now_time)

    async def _get_sight(self, sprite: _Sprite) -> None:
        """Read the session list where a hold hangs on it: nobody watches, and what is known would not keep it."""
        now = self._clock.monotonic()
        if not any(self._needs_sight(terminal, now) for terminal in sprite.terminals.values()):
            return
        if await self._is_awake(sprite):
            await self._observer.look_at_sessions(
                sprite.place.token, sprite.place.sprite, since=now - SIGHT_BEFORE, cause=Cause.HOLD
            )

    def _needs_sight(self, terminal: _Terminal, now: timedelta) -> bool:
        if terminal.book is None or not is_held(terminal.book, now):
            return False
        match self._judge_work(terminal, now):
            case LetGo(NoWork.IDLE) | HoldFor(HoldCause.UNSEEN):
                return True
            case HoldFor() | LetGo() | LetLapse():
                return False

    def _plan(self, sprite: _Sprite) -> HoldRound:
        """Judge the work of every terminal anew, and decide what is due."""
        now = self._clock.monotonic()
        entries = []
        for uid, terminal in sprite.terminals.items():
            terminal.work = self._judge_work(terminal, now)
            terminal.occasion = Occasion.BEAT
            wish = terminal.wish
            recorded = wish.recorded is not None
            entries.append(HoldEntry(uid, wish.key, terminal.book, recorded, terminal.work, wish.rules))
        return plan_round(entries, sprite=self._look(sprite.place), now=now)

    def _judge_work(self, terminal: _Terminal, now: timedelta) -> Work:
        wish, book = terminal.wish, terminal.book
        now_time = self._clock.now()
        activity = Activity(None, observable=False)
        if wish.identity is not None:
            activity = observe_activity(
                wish.identity,
                self._observer.recall_sessions(wish.place.token, wish.place.sprite),
                others=wish.times,
                presence=wish.presence,
                hearing=wish.hearing,
                occasion=terminal.occasion,
                now=now,
                now_time=now_time,
            )
        terminal.activity = activity
        return judge_work(
            WorkFacts(
                live=wish.live,
                wanted=wish.wanted,
                mode=wish.mode,
                suspended=wish.suspended,
                presence=wish.presence,
                activity=activity,
                held=book is not None and is_held(book, now),
                idle_after=wish.rules.idle_window,
                now=now_time,
            )
        )

    async def _send_all(self, sprite: _Sprite, entries: tuple[EntryCalls, ...]) -> None:
        """Note what is about to be sent, and send it in as few commands as carry it."""
        now = self._clock.monotonic()
        owners: dict[TaskCall, tuple[_Terminal, SlotCall]] = {}
        for entry in entries:
            terminal = sprite.terminals[entry.uid]
            assert terminal.book is not None
            terminal.book = note_sent(terminal.book, entry.calls, now=now)
            owners |= {task: (terminal, call) for task, call in zip(entry.tasks, entry.calls, strict=True)}
        try:
            for batch in split_calls(tuple(owners)):
                await self._send(sprite.place, batch, owners)
        finally:
            for terminal, _ in owners.values():
                if terminal.book is not None and terminal.book.in_flight:
                    terminal.book = note_lost(terminal.book, terminal.wish.rules, now=self._clock.monotonic())

    async def _send(
        self, place: Place, batch: tuple[TaskCall, ...], owners: dict[TaskCall, tuple[_Terminal, SlotCall]]
    ) -> None:
        """Send one command, and note what became of each of its calls, in their order."""
        run = build_exec(batch)
        answer = await self._run(place, run.argv, output_bytes=OUTPUT_BYTES)
        now = self._clock.monotonic()
        for task, verdict in judge_exec(run, answer):
            terminal, call = owners[task]
            assert terminal.book is not None
            if isinstance(call, Upsert) and isinstance(verdict, Done) and is_renewal(terminal.book, call):
                self._metrics.count_renewal(_name_cause(terminal.work))
            if isinstance(call, Upsert):
                terminal.trouble = None if isinstance(verdict, Done) else verdict.trouble
            terminal.book = note_verdict(terminal.book, call, verdict, terminal.wish.rules, now=now)
            self._metrics.count_hold_call(
                HoldCall.UPSERT if isinstance(call, Upsert) else HoldCall.REMOVE,
                HoldResult.DONE if isinstance(verdict, Done) else HoldResult.FAILED,
            )
            if not isinstance(verdict, Done):
                log.warning(describe_verdict(task, verdict), extra={"sprite": place.sprite})

    async def _run(self, place: Place, argv: tuple[str, ...], *, output_bytes: int) -> ExecAnswer:
        try:
            async with self._observer.calling(place.token, place.sprite, priority=Priority.NORMAL, cause=Cause.HOLD):
                result = await self._client.run_command(
                    place.token,
                    place.sprite,
                    argv,
                    stdin=b"",
                    tenure=self._tenure,
                    cause=Cause.HOLD,
                    time_limit=EXEC_LIMIT,
                    output_bytes=output_bytes,
                )
        except OutputTooLarge as error:
            return ExecFailed(error.failure, error.message, oversized=True)
        except SpritesError as error:
            return ExecFailed(error.failure, error.message)
        self._observer.note_awake(place.token, place.sprite)
        return ExecEnded(result.exit_code, result.stdout)

    # --- what follows -------------------------------------------------------------------------------------------------

    def _plan_next(self, key: str, sprite: _Sprite, after: timedelta | None) -> None:
        """Come again when something is due, and at the latest after a beat of whoever wishes for a hold."""
        if self._sprites.get(key) is not sprite:
            return
        now = self._clock.monotonic()
        waits = [] if after is None else [after]
        for uid, terminal in tuple(sprite.terminals.items()):
            wish = terminal.wish
            if wish.live and wish.wanted:
                waits.append(wish.rules.refresh)
            elif terminal.book is not None and not is_held(terminal.book, now) and wish.recorded is None:
                # The status was told before: a book that is gone says nothing about what was recorded.
                self._strike(uid)
        if waits and key in self._sprites:
            self._queue.add_after(key, max(min(waits), ROUNDS_PAUSE))

    def _tell_changes(self, sprite: _Sprite) -> None:
        """Keep the ledger, and have those visited whose hold is not what their status was last told."""
        now, now_time = self._clock.monotonic(), self._clock.now()
        for uid, terminal in sprite.terminals.items():
            if terminal.book is None and (terminal.work is None or terminal.wish.recorded is not None):
                continue
            held = terminal.book is not None and is_held(terminal.book, now)
            if not held:
                terminal.warned = False
            self._count_held(terminal, now)
            self._describe(terminal, now, now_time)
            self._warn_of_idle(uid, terminal, now_time)
            told = (terminal.verdict, None if terminal.hold is None else terminal.hold.cause)
            if told != terminal.told:
                terminal.told = told
                self._on_change(uid)

    def _describe(self, terminal: _Terminal, now: timedelta, now_time: datetime) -> None:
        """Write down what is held, as the status tells it."""
        wish, work = terminal.wish, terminal.work or LetGo(NoWork.NOT_WANTED)
        sprite = self._look(wish.place)
        terminal.verdict = judge_held(terminal.book, work, wish.rules, now=now, sprite=sprite, trouble=terminal.trouble)
        terminal.hold = describe_hold(
            terminal.hold, wish.key, terminal.book, work, wish.rules, now=now, now_time=now_time
        )

    def _count_held(self, terminal: _Terminal, now: timedelta) -> None:
        """Add the time since the last look to the held time of its cause."""
        if terminal.counted_at is not None and terminal.hold is not None and terminal.hold.cause is not None:
            self._metrics.count_held(terminal.hold.cause, now - terminal.counted_at)
        terminal.counted_at = now

    def _warn_of_idle(self, uid: str, terminal: _Terminal, now_time: datetime) -> None:
        latest = None if terminal.activity is None else terminal.activity.latest
        since = None if terminal.hold is None else terminal.hold.since
        if since is None or terminal.warned or not is_hold_idle_too_long(since, latest, now=now_time):
            return
        terminal.warned = True
        self._on_idle(uid)

    def _find(self, uid: str) -> _Terminal | None:
        key = self._where.get(uid)
        return None if key is None else self._sprites[key].terminals[uid]


def _judge_state(terminal: _Terminal, now: timedelta) -> HoldState | None:
    """Say what is known of a terminal's task; None where there is neither task nor work."""
    book, rules = terminal.book, terminal.wish.rules
    if book is not None and is_surely_held(book, rules, now):
        return HoldState.HELD
    if book is not None and is_held(book, now):
        return HoldState.UNCLEAR
    return HoldState.MISSING if isinstance(terminal.work, HoldFor) else None


def _name_held_cause(terminal: _Terminal) -> str:
    """Name what a terminal is held for, or was, while its task only lapses."""
    before = None if terminal.hold is None else terminal.hold.cause
    cause = _name_cause(terminal.work) or before or OTHER
    return cause if cause in HOLD_CAUSES else OTHER


def _name_cause(work: Work | None) -> str:
    return work.cause.value if isinstance(work, HoldFor) else ""


def _name_sprite(place: Place) -> str:
    return f"{place.token.fingerprint}/{place.sprite}"

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
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Final

from controller.api.session import Cause, Identity, SpriteState
from controller.api.terminal import HoldMode
from controller.clock import Clock
from controller.engine.launcher import Place
from controller.engine.limits import Priority
from controller.engine.observer import SpriteObserver
from controller.engine.queue import WorkQueue
from controller.engine.settings import QueueSettings
from controller.metrics import HoldCall, HoldResult, Metrics
from controller.plan.activity import (
    Activity,
    Hearing,
    HoldFor,
    Occasion,
    Presence,
    Work,
    WorkFacts,
    is_hold_idle_too_long,
    judge_work,
    observe_activity,
)
from controller.plan.hold import HoldPlan, plan_hold
from controller.plan.hold_book import (
    HoldBook,
    HoldRules,
    SlotCall,
    Upsert,
    is_held,
    is_surely_held,
    note_lost,
    note_sent,
    note_verdict,
    rebuild_book,
    spread_beats,
)
from controller.plan.hold_names import name_base, name_task
from controller.plan.kill import METADATA_AGE
from controller.plan.looks import SpriteSeen
from controller.plan.status import HoldView
from controller.plan.tasks import (
    EXEC_LIMIT,
    OUTPUT_BYTES,
    Done,
    ExecAnswer,
    ExecEnded,
    ExecFailed,
    RemoveTask,
    TaskCall,
    UpsertTask,
    Verdict,
    build_exec,
    describe_verdict,
    judge_exec,
    split_calls,
)
from controller.plan.tasks_read import READ_OUTPUT_BYTES, TasksRead, build_read_exec, judge_read
from controller.sprites.client import SpritesClient
from controller.sprites.errors import OutputTooLarge, SpritesError
from controller.tenure import Tenure

log = logging.getLogger(__name__)

WORKERS: Final = 8
"""Sprites that are worked on at the same time; a command in a sprite takes some 50 ms, and at most 10 s."""
SIGHT_BEFORE: Final = timedelta(seconds=1)
"""
The session list that says whether there was activity is at most this old when a beat is judged.

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
        recorded: The status tells of a hold, which an earlier process may have left.
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
    recorded: bool
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
    since: datetime | None = None
    work: Work | None = None
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
            self.drop(wish.uid)
        known = self._find(wish.uid)
        if known is None:
            if not (wish.wanted and wish.live) and not wish.recorded:
                return
            self._where[wish.uid] = key
            self._sprites.setdefault(key, _Sprite(wish.place)).terminals[wish.uid] = _Terminal(
                wish, self._clock.monotonic()
            )
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
        """Let a terminal that is gone out of the books; a task that is still there lapses within its expiry."""
        key = self._where.pop(uid, None)
        if key is None:
            return
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
        if terminal is None or terminal.book is None:
            return None
        return self._render(terminal, self._clock.monotonic())

    def count(self) -> int:
        """Count the terminals for which a task may be alive."""
        now = self._clock.monotonic()
        return sum(
            terminal.book is not None and is_held(terminal.book, now)
            for sprite in self._sprites.values()
            for terminal in sprite.terminals.values()
        )

    async def run(self) -> None:
        """Keep all holds, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"hold-{number}")

    # --- work ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            item = await self._queue.get()
            try:
                if item.key in self._sprites:
                    await self._visit(item.key, self._sprites[item.key])
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
        if any(terminal.book is None for terminal in sprite.terminals.values()):
            await self._rebuild(sprite)
        await self._get_sight(sprite)
        calls = self._plan(sprite)
        for batch in split_calls([call for _, _, call in calls]):
            chosen = [entry for entry in calls if entry[2] in batch]
            await self._send(sprite.place, chosen)
        self._tell_changes(sprite)
        self._plan_next(key, sprite)

    def _wait_for_lapse(self, key: str, sprite: _Sprite) -> None:
        """Send nothing to a sprite that is not known to run; what an earlier process left there lapses by itself."""
        now = self._clock.monotonic()
        waits = []
        for terminal in sprite.terminals.values():
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
        """Read the session list where a hold that nobody watches is about to be judged: it tells of activity."""
        now = self._clock.monotonic()
        due = any(
            terminal.wish.live
            and terminal.wish.wanted
            and terminal.wish.mode is HoldMode.WHILE_ACTIVE
            and terminal.wish.presence is Presence.NOBODY
            and terminal.book is not None
            and is_held(terminal.book, now)
            for terminal in sprite.terminals.values()
        )
        if due:
            await self._observer.look_at_sessions(
                sprite.place.token, sprite.place.sprite, since=now - SIGHT_BEFORE, cause=Cause.HOLD
            )

    def _plan(self, sprite: _Sprite) -> list[tuple[_Terminal, SlotCall, TaskCall]]:
        """Decide what is due; where anything is, what is due soon goes with it."""
        now = self._clock.monotonic()
        state = self._look(sprite.place)
        plans: list[tuple[_Terminal, HoldPlan]] = []
        for terminal in sprite.terminals.values():
            terminal.work = self._judge_work(terminal, now)
            terminal.occasion = Occasion.BEAT
            plans.append((terminal, self._plan_one(terminal, state, now, joining=False)))
        if any(plan.calls for _, plan in plans):
            plans = [
                (terminal, plan if plan.calls else self._plan_one(terminal, state, now, joining=True))
                for terminal, plan in plans
            ]
        calls = []
        for terminal, plan in plans:
            if plan.calls and terminal.book is not None:
                terminal.book = note_sent(terminal.book, plan.calls, now=now)
                calls += [(terminal, call, _name_call(terminal.wish, call)) for call in plan.calls]
        return calls

    def _plan_one(self, terminal: _Terminal, state: SpriteState, now: timedelta, *, joining: bool) -> HoldPlan:
        assert terminal.book is not None
        assert terminal.work is not None
        return plan_hold(terminal.book, terminal.work, terminal.wish.rules, sprite=state, now=now, joining=joining)

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

    async def _send(self, place: Place, calls: list[tuple[_Terminal, SlotCall, TaskCall]]) -> None:
        """Send one command, and note what became of each of its calls."""
        run = build_exec(call for _, _, call in calls)
        try:
            answer = await self._run(place, run.argv, output_bytes=OUTPUT_BYTES)
        except BaseException:
            for terminal, _, _ in calls:
                if terminal.book is not None:
                    terminal.book = note_lost(terminal.book, terminal.wish.rules, now=self._clock.monotonic())
            raise
        now = self._clock.monotonic()
        verdicts: dict[TaskCall, Verdict] = dict(judge_exec(run, answer))
        for terminal, slot_call, call in calls:
            verdict = verdicts[call]
            assert terminal.book is not None
            terminal.book = note_verdict(terminal.book, slot_call, verdict, terminal.wish.rules, now=now)
            self._metrics.count_hold_call(
                HoldCall.UPSERT if isinstance(slot_call, Upsert) else HoldCall.REMOVE,
                HoldResult.DONE if isinstance(verdict, Done) else HoldResult.FAILED,
            )
            if not isinstance(verdict, Done):
                log.warning(describe_verdict(call, verdict), extra={"sprite": place.sprite})

    async def _run(self, place: Place, argv: tuple[str, ...], *, output_bytes: int) -> ExecAnswer:
        try:
            await self._observer.enter(place.token, Priority.NORMAL)
            self._observer.note_wake(place.token, place.sprite)
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
            self._observer.slow_down(place.token, error)
            return ExecFailed(error.failure, error.message)
        self._observer.note_awake(place.token, place.sprite)
        return ExecEnded(result.exit_code, result.stdout)

    # --- what follows -------------------------------------------------------------------------------------------------

    def _plan_next(self, key: str, sprite: _Sprite) -> None:
        """Come again when the first hold of this sprite is due, and let those go that have nothing any more."""
        if self._sprites.get(key) is not sprite:
            return
        now = self._clock.monotonic()
        state = self._look(sprite.place)
        waits = []
        for uid, terminal in tuple(sprite.terminals.items()):
            if terminal.book is None:
                continue
            # The status must have been told first: a book that is gone says nothing about what was recorded.
            wish = terminal.wish
            if not is_held(terminal.book, now) and not (wish.live and wish.wanted) and not wish.recorded:
                self.drop(uid)
                continue
            plan = self._plan_one(terminal, state, now, joining=False)
            waits.append(_judge_wait(plan, terminal.wish.rules))
        if waits and key in self._sprites:
            self._queue.add_after(key, max(min(waits), timedelta(milliseconds=100)))

    def _tell_changes(self, sprite: _Sprite) -> None:
        """Keep the ledger, and have those visited whose hold is not what their status was last told."""
        now, now_time = self._clock.monotonic(), self._clock.now()
        for uid, terminal in sprite.terminals.items():
            if terminal.book is None:
                continue
            view = self._render(terminal, now)
            if view.surely is False:
                terminal.since, terminal.warned = None, False
            elif terminal.since is None:
                terminal.since = now_time
            self._count_held(terminal, view, now)
            self._warn_of_idle(uid, terminal, now_time)
            told = (view.surely, view.cause)
            if told != terminal.told:
                terminal.told = told
                self._on_change(uid)

    def _count_held(self, terminal: _Terminal, view: HoldView, now: timedelta) -> None:
        """Add the time since the last look to the held time of its cause."""
        if terminal.counted_at is not None and terminal.told and terminal.told[0] is True:
            cause = str(terminal.told[1] or view.cause)
            self._metrics.count_held(cause, now - terminal.counted_at)
        terminal.counted_at = now

    def _warn_of_idle(self, uid: str, terminal: _Terminal, now_time: datetime) -> None:
        latest = None if terminal.activity is None else terminal.activity.latest
        if terminal.since is None or terminal.warned or not is_hold_idle_too_long(terminal.since, latest, now=now_time):
            return
        terminal.warned = True
        self._on_idle(uid)

    def _render(self, terminal: _Terminal, now: timedelta) -> HoldView:
        book = terminal.book
        assert book is not None
        held = is_held(book, now)
        surely: bool | None = is_surely_held(book, terminal.wish.rules, now)
        if not surely:
            surely = None if held else False
        ends = [task.lapses for task in book.tasks if task is not None]
        return HoldView(
            surely=surely,
            task=name_base(terminal.wish.key),
            since=terminal.since,
            cause=terminal.work.cause.value if isinstance(terminal.work, HoldFor) else None,
            expiry_time=self._clock.now() + (max(ends) - now) if ends else None,
            activity=terminal.activity,
        )

    def _find(self, uid: str) -> _Terminal | None:
        key = self._where.get(uid)
        return None if key is None else self._sprites[key].terminals[uid]


def _judge_wait(plan: HoldPlan, rules: HoldRules) -> timedelta:
    """Tell when a hold is looked at again: when something is due, and at the latest after an interval."""
    if plan.calls:
        return timedelta(0)
    return rules.refresh if plan.after is None else min(plan.after, rules.refresh)


def _name_sprite(place: Place) -> str:
    return f"{place.token.fingerprint}/{place.sprite}"


def _name_call(wish: Wish, call: SlotCall) -> TaskCall:
    name = name_task(wish.key, call.slot)
    return UpsertTask(name, wish.rules.expire) if isinstance(call, Upsert) else RemoveTask(name)

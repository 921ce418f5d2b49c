"""
Who is worked on next.

Problem: events, due times and retries about one object come from everywhere and in bursts; two workers on one object
would undo each other, and a storm of one kind of work must not hold up the other. Promise: a key is with at most one
worker, a wish that arrives meanwhile brings it back afterwards, no wish is lost, of several due times the earliest
wins, what may be gathered waits for a moment from the first such wish and never longer, and deletions go first without
starving the rest. Everything is bounded by the number of keys.
Source: design.md 4, kopf.md 16.2; the manners are those of client-go's work queue.
"""

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from itertools import islice
from random import Random
from typing import Final

from controller.clock import Clock
from controller.engine.settings import QueueSettings

_DOUBLINGS_MAX: Final = 32
"""Beyond this many failures the back-off is at its maximum whatever the base; it only keeps the power small."""

_SOON: Final = timedelta(seconds=1)
"""What comes again this soon after `close` still belongs to what was under way: a proof is two lists, 300 ms apart."""

_STALE_ALLOWED: Final = 64
"""So many dead entries never matter; beyond them the heap is rebuilt once they outnumber the living."""


class Lane(StrEnum):
    """Who goes first."""

    URGENT = "urgent"
    """Deletions and terminations."""
    NORMAL = "normal"
    """Everything else."""


class Wait(StrEnum):
    """Why a key was not worked on at once."""

    QUEUE = "queue"
    """It was due, and no worker was free or its own worker was still busy with it."""
    BACKOFF = "backoff"
    """Its last work had failed."""
    PLANNED = "planned"
    """Somebody asked for a later time."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key handed to a worker, who ends with `done`."""

    key: str
    lane: Lane
    waited: timedelta
    """Since it was due."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many waits there were, and how long together."""

    count: int = 0
    total: timedelta = timedelta(0)

    def plus(self, wait: timedelta) -> "Tally":
        """Count one more."""
        return Tally(self.count + 1, self.total + wait)


@dataclass(frozen=True, slots=True)
class _Wish:
    """Work that is due."""

    lane: Lane
    since: timedelta

    def merged(self, other: "_Wish | None") -> "_Wish":
        """Make one wish of two: the more urgent lane, the earlier start."""
        if other is None:
            return self
        lane = Lane.URGENT if Lane.URGENT in (self.lane, other.lane) else Lane.NORMAL
        return _Wish(lane, min(self.since, other.since))


@dataclass(frozen=True, slots=True)
class _Plan:
    """Work that will be due."""

    due: timedelta
    asked: timedelta
    lane: Lane
    wait: Wait
    number: int


@dataclass(frozen=True, slots=True)
class _Gathering:
    """Wishes that are one work."""

    first: timedelta
    due: timedelta
    number: int


class WorkQueue:
    """
    The one queue of the engine; it belongs to one loop and takes no lock.

    A due time stays when the key is worked on earlier for another reason: whoever asked for it may know something that
    the earlier work did not. It costs at most one idle visit.

    Args:
        clock: Its monotonic time must run like the loop's.
        settings: Back-off and shares.
        rng: The luck in the back-off.
        on_wait: Told every wait that has ended, and what it was for.
    """

    def __init__(
        self,
        clock: Clock,
        settings: QueueSettings,
        rng: Random,
        on_wait: Callable[[Wait, timedelta], None] = lambda _wait, _duration: None,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._rng = rng
        self._on_wait = on_wait
        self._lanes: dict[Lane, OrderedDict[str, _Wish]] = {lane: OrderedDict() for lane in Lane}
        self._active: dict[str, Lane] = {}
        self._again: dict[str, _Wish] = {}
        self._plans: dict[str, _Plan] = {}
        self._heap: list[tuple[timedelta, int, str]] = []
        self._gathered: dict[str, _Gathering] = {}
        self._numbers = 0
        self._failures: dict[str, int] = {}
        self._urgent_in_a_row = 0
        self._waits = dict.fromkeys(Wait, Tally())
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._last: frozenset[str] | None = None
        self._finished = asyncio.Event()
        self._timer: tuple[timedelta, asyncio.TimerHandle] | None = None

    def add(self, key: str, lane: Lane = Lane.NORMAL) -> None:
        """Ask for work on a key as soon as may be. A waiting key may move to the more urgent lane, never back."""
        self._admit(key, _Wish(lane, self._clock.monotonic()))

    def add_after(self, key: str, delay: timedelta, lane: Lane = Lane.NORMAL) -> None:
        """
        Ask for work on a key at a later time.

        Of several such wishes the earliest stays, in the most urgent lane; a delay of nothing or less is `add`.
        """
        self._plan(key, delay, lane, Wait.PLANNED)

    def gather(self, key: str, *, within: timedelta) -> None:
        """
        Ask for one work on a key for this wish and all that follow it within a moment.

        The moment counts from the first of them, however many follow; the last says how long it is, and may so end it.
        Work that begins before, for whatever reason, takes them along.
        """
        if key in self._again or any(key in waiting for waiting in self._lanes.values()):
            return
        now, known = self._clock.monotonic(), self._gathered.pop(key, None)
        first = now if known is None else known.first
        if first + within <= now:
            self._admit(key, _Wish(Lane.NORMAL, now))
            return
        self._numbers += 1
        self._gathered[key] = _Gathering(first, first + within, self._numbers)
        heapq.heappush(self._heap, (first + within, self._numbers, key))
        self._compact()
        self._arm_for_waiters()

    def hasten(self, keys: Iterable[str], *, at_most: int) -> None:
        """Let so many of the keys that wait in the urgent lane be the next; those that do not wait there stay."""
        urgent = self._lanes[Lane.URGENT]
        for key in islice((key for key in keys if key in urgent), at_most):
            urgent.move_to_end(key, last=False)

    async def get(self) -> Item:
        """Wait for the next key. A cancelled wait takes nothing with it (use `asyncio.timeout`, not `wait_for`)."""
        while (item := self.take()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            self._arm()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake(1)
                elif waiter in self._waiters:
                    self._waiters.remove(waiter)
                raise
        return item

    def close(self) -> None:
        """
        Hand out nothing any more but what is with a worker now and comes again at once.

        A kill is several works in a row: cut between two of them, it would be done anew by whoever follows.
        """
        self._last = frozenset(self._active)
        self._judge_finished()

    async def wait_finished(self) -> None:
        """Wait, after `close`, until nothing is left to hand out and no worker has a key."""
        await self._finished.wait()

    def take(self) -> Item | None:
        """Hand out the next key that is due now, if there is one."""
        now = self._clock.monotonic()
        self._release(now)
        if self._last is not None:
            self._drop_all_but(self._last)
        lane = self._next_lane()
        if lane is None:
            return None
        key, wish = self._lanes[lane].popitem(last=False)
        self._active[key] = lane
        self._gathered.pop(key, None)
        waited = now - wish.since
        self._note_wait(Wait.QUEUE, waited)
        return Item(key, lane, waited)

    def done(self, key: str) -> None:
        """End the work on a key; if anybody asked for it meanwhile it comes again at once."""
        del self._active[key]
        wish = self._again.pop(key, None)
        if wish is not None:
            self._admit(key, wish)
        self._judge_finished()

    def fail(self, key: str, *, at_least: timedelta | None = None) -> timedelta:
        """
        Plan another try, twice as far away as after the failure before; the worker still ends with `done`.

        Args:
            key: What failed.
            at_least: How long the other side asked us to wait, where it did; no longer than the longest back-off.

        Returns:
            The wait that was chosen. An earlier due time of the key stands nevertheless.
        """
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        settings = self._settings
        doubled = settings.backoff_base * (1 << min(failures - 1, _DOUBLINGS_MAX))
        delay = min(settings.backoff_max, doubled) * (1 - settings.backoff_jitter * self._rng.random())
        if at_least is not None:
            delay = max(delay, min(at_least, settings.backoff_max))
        self._plan(key, delay, self._active.get(key, Lane.NORMAL), Wait.BACKOFF)
        return delay

    def forget(self, key: str) -> None:
        """Forget the failures of a key, because its work succeeded, and with them a try that is still planned."""
        self._failures.pop(key, None)
        plan = self._plans.get(key)
        if plan is not None and plan.wait is Wait.BACKOFF:
            del self._plans[key]
            self._compact()

    def drop(self, key: str) -> None:
        """Forget everything about a key, because its object is gone; a worker that has it ends with `done` still."""
        for lane in self._lanes.values():
            lane.pop(key, None)
        self._again.pop(key, None)
        self._gathered.pop(key, None)
        self._failures.pop(key, None)
        if self._plans.pop(key, None) is not None:
            self._compact()

    def depth(self, lane: Lane) -> int:
        """Count the keys that are due and with nobody."""
        return len(self._lanes[lane])

    @property
    def active(self) -> int:
        """Count the keys that are with a worker."""
        return len(self._active)

    @property
    def planned(self) -> int:
        """Count the keys that have a due time."""
        return len(self._plans)

    @property
    def waits(self) -> Mapping[Wait, Tally]:
        """Tell how long keys have waited, by cause, since the start."""
        return self._waits

    def failures(self, key: str) -> int:
        """Count the failures of a key since it last succeeded."""
        return self._failures.get(key, 0)

    def _note_wait(self, wait: Wait, duration: timedelta) -> None:
        self._waits[wait] = self._waits[wait].plus(duration)
        self._on_wait(wait, duration)

    def _drop_all_but(self, keys: Set[str]) -> None:
        for waiting in self._lanes.values():
            for key in [key for key in waiting if key not in keys]:
                del waiting[key]

    def _judge_finished(self) -> None:
        """After `close`: it is finished once nobody works, and nothing of the last comes again soon."""
        if self._last is None or self._active:
            return
        soon = self._clock.monotonic() + _SOON
        waits = any(key in waiting for waiting in self._lanes.values() for key in self._last)
        comes = any(key in self._plans and self._plans[key].due <= soon for key in self._last)
        if not waits and not comes:
            self._finished.set()

    def _admit(self, key: str, wish: _Wish) -> None:
        """Put a key where it waits: behind its own worker, or in its lane."""
        if key in self._active:
            self._again[key] = wish.merged(self._again.get(key))
            return
        for lane, waiting in self._lanes.items():
            known = waiting.get(key)
            if known is None:
                continue
            both = wish.merged(known)
            if both.lane is lane:
                waiting[key] = both
                return
            del waiting[key]
            wish = both
        self._lanes[wish.lane][key] = wish
        self._wake(1)

    def _plan(self, key: str, delay: timedelta, lane: Lane, wait: Wait) -> None:
        now = self._clock.monotonic()
        if delay <= timedelta(0):
            self._admit(key, _Wish(lane, now))
            return
        self._numbers += 1
        plan = _Plan(now + delay, now, lane, wait, self._numbers)
        known = self._plans.get(key)
        if known is not None:
            urgent = Lane.URGENT in (lane, known.lane)
            first = min(known, plan, key=lambda candidate: candidate.due)
            plan = _Plan(first.due, first.asked, Lane.URGENT if urgent else Lane.NORMAL, first.wait, first.number)
        self._plans[key] = plan
        if known is None or plan.number != known.number:
            heapq.heappush(self._heap, (plan.due, plan.number, key))
            self._compact()
        self._arm_for_waiters()

    def _release(self, now: timedelta) -> None:
        """Let everything whose time has come into its lane."""
        while self._heap and self._heap[0][0] <= now:
            _, number, key = heapq.heappop(self._heap)
            plan, gathering = self._plans.get(key), self._gathered.get(key)
            if plan is not None and plan.number == number:
                del self._plans[key]
                self._note_wait(plan.wait, plan.due - plan.asked)
                self._admit(key, _Wish(plan.lane, plan.due))
            elif gathering is not None and gathering.number == number:
                del self._gathered[key]
                self._note_wait(Wait.PLANNED, gathering.due - gathering.first)
                self._admit(key, _Wish(Lane.NORMAL, gathering.due))

    def _next_lane(self) -> Lane | None:
        urgent, normal = self._lanes[Lane.URGENT], self._lanes[Lane.NORMAL]
        if urgent and not (normal and self._urgent_in_a_row >= self._settings.urgent_share - 1):
            self._urgent_in_a_row = self._urgent_in_a_row + 1 if normal else 0
            return Lane.URGENT
        self._urgent_in_a_row = 0
        return Lane.NORMAL if normal else None

    def _compact(self) -> None:
        """Rebuild the heap once its dead entries outnumber the living, so that it stays bounded by the keys."""
        if len(self._heap) > 2 * (len(self._plans) + len(self._gathered)) + _STALE_ALLOWED:
            self._heap = [(plan.due, plan.number, key) for key, plan in self._plans.items()]
            self._heap += [(gathering.due, gathering.number, key) for key, gathering in self._gathered.items()]
            heapq.heapify(self._heap)

    def _wake(self, count: int) -> None:
        """Wake so many of those who wait."""
        while count and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _arm_for_waiters(self) -> None:
        if self._waiters:
            self._arm()

    def _arm(self) -> None:
        """Set the one timer to the earliest due time, if that is earlier than what it is set to."""
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer[0] <= due:
                return
            self._timer[1].cancel()
        delay = (due - self._clock.monotonic()).total_seconds()
        self._timer = (due, asyncio.get_running_loop().call_later(max(0.0, delay), self._ring))

    def _ring(self) -> None:
        self._timer = None
        self._release(self._clock.monotonic())
        self._arm_for_waiters()

"""
What is known of the tasks that hold a sprite for one terminal, and how that changes with every call. Pure.

Problem: a call whose answer was lost may have happened, a task lapses by itself on a clock that is not ours, and after
a restart nothing is remembered. Promise: whatever may be there is in the book until it has surely lapsed or was
removed; an age is never taken for shorter than it may be; a restart rebuilds the book from the sprite's own list.
Calls of one terminal are in flight together or not at all, so they keep their order. All times are monotonic.

Source: behaviour cases C1 to C14; sprites-api.md 7 (2026-09).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from controller.api.terminal import HoldSpec
from controller.plan.hold_names import Slot, hash_key, name_task
from controller.plan.hold_settings import HoldSettings, resolve_hold
from controller.plan.tasks import Done, Failed, TaskTrouble, Unclear, Verdict
from controller.plan.tasks_read import TasksRead

PLATFORM_HOUR: Final = timedelta(hours=1)
"""By one reading a task lives no longer than this from its creation."""

TURN_BEFORE_HOUR: Final = timedelta(minutes=5)
"""
The other name is created this long before the hour: room for many failed tries, and for clocks that differ.

Assumed: the sprite's clock and ours differ by less; after a restart a task's age is computed from both.
"""

RETRY_WAIT: Final = timedelta(seconds=1)
"""After a failed call, doubling: a hold that expires in 300 s survives an outage of almost as long (C4)."""
RETRY_WAIT_LIMIT: Final = timedelta(seconds=30)

AFTERLIFE: Final = timedelta(seconds=10)
"""
A command whose socket we left may run on for this long, and its upsert may land after a removal that was sent later.

Source: sprites-api.md 3.8 (2026-09): a session without a terminal ends 10 s after its client is gone.
"""


@dataclass(frozen=True, slots=True)
class HoldRules:
    """
    The durations of one hold. `idle_after` None means two beats (C10).

    `turn_after` is the age at which the other name takes its turn.
    """

    expire: timedelta
    refresh: timedelta
    idle_after: timedelta | None = None
    turn_after: timedelta = PLATFORM_HOUR - TURN_BEFORE_HOUR

    @property
    def idle_window(self) -> timedelta:
        """An agent whose last activity is this old is idle; the same window quiets a dropped socket (R22)."""
        return 2 * self.refresh if self.idle_after is None else self.idle_after


def resolve_rules(hold: HoldSpec | None, own: HoldSettings) -> HoldRules:
    """What an object leaves out comes from the operator's own settings, and the two then follow the rules G1 to G8."""
    expire = own.expire // timedelta(seconds=1)
    refresh_ms = own.refresh // timedelta(milliseconds=1)
    if hold is not None and hold.expire_seconds is not None:
        expire = hold.expire_seconds
    if hold is not None and hold.refresh_seconds is not None:
        refresh_ms = hold.refresh_seconds * 1000
    settings = resolve_hold(str(expire), str(refresh_ms))
    return HoldRules(settings.expire, settings.refresh)


@dataclass(frozen=True, slots=True)
class HeldTask:
    """
    A task that may be there.

    Args:
        created: The earliest moment at which it can have been created; the hour counts from here.
        refreshed: When the last upsert was sent that was answered; None where none was, or where it may be gone again.
        lapses: From here on it is surely gone, if nothing more is sent.
        settles: No removal before this moment: an upsert whose end we did not see may still be under way.
    """

    created: timedelta
    refreshed: timedelta | None
    lapses: timedelta
    settles: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Upsert:
    """Create or refresh the task of a slot."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the task of a slot."""

    slot: Slot


SlotCall = Upsert | Remove


@dataclass(frozen=True, slots=True)
class HoldBook:
    """
    What is known of the two tasks of one terminal in one sprite.

    Args:
        luck: From 0 up to 1, from the object's uid: spreads the first beat after a creation.
        tasks: What may be there, by slot.
        current: The slot that is kept alive; what may be in the other is removed.
        in_flight: Calls whose verdict is not known yet; nothing else is sent meanwhile, which keeps the order.
        sent: When they were sent.
        upsert_due: An upsert is due at this moment whatever the ages say: the last one failed, or nobody knows when the
            last one was.
        remove_due: No removal before this moment: the last one failed.
        failures: Failed calls in a row.
        is_fresh: Nothing was refreshed since the creation.
    """

    luck: float = 0.0
    tasks: tuple[HeldTask | None, HeldTask | None] = (None, None)
    current: Slot = 0
    in_flight: tuple[SlotCall, ...] = ()
    sent: timedelta = timedelta(0)
    upsert_due: timedelta | None = None
    remove_due: timedelta | None = None
    failures: int = 0
    is_fresh: bool = False


def spread_beats(uid: str) -> float:
    """Give an object's share of luck, from 0 up to 1: the same after every restart, and spread over all objects."""
    return hash_key(uid) / 2**32


def rebuild_book(key: str, uid: str, read: TasksRead | None, *, now: timedelta, now_time: datetime) -> HoldBook:
    """
    Begin the book of a terminal from what its sprite lists: a restart makes neither a gap nor a second task.

    A task that is found is refreshed at once, because no two clocks need to agree on when it would lapse. Of two the
    younger is kept. One without a readable start counts as an hour old.

    Args:
        key: From `hold_names.build_key`.
        uid: Of the object.
        read: All tasks of the sprite; None where they cannot be read, and then both names may be there.
        now: Monotonic.
        now_time: The same moment, as wall time.
    """
    unknown = HeldTask(now - PLATFORM_HOUR, None, now + PLATFORM_HOUR)
    if read is None:
        return HoldBook(spread_beats(uid), (unknown, unknown), upsert_due=now)
    started = {task.name: task.started for task in read.tasks}

    def find(slot: Slot) -> HeldTask | None:
        name = name_task(key, slot)
        if name not in started:
            return None
        start = started[name]
        age = PLATFORM_HOUR if start is None else max(timedelta(0), now_time - start)
        return replace(unknown, created=now - age)

    tasks = (find(0), find(1))
    first, second = tasks
    current: Slot = 1 if second is not None and (first is None or second.created > first.created) else 0
    return HoldBook(spread_beats(uid), tasks, current, upsert_due=None if tasks == (None, None) else now)


def is_held(book: HoldBook, now: timedelta) -> bool:
    """Tell whether a task of ours may be alive."""
    return any(task is not None and now < task.lapses for task in book.tasks)


def is_surely_held(book: HoldBook, rules: HoldRules, now: timedelta) -> bool:
    """Tell whether a task of ours is alive, by both readings of the hour and by nothing but answered calls."""
    return any(
        task is not None
        and task.refreshed is not None
        and now < task.refreshed + rules.expire
        and now < task.created + PLATFORM_HOUR
        for task in book.tasks
    )


def is_renewal(book: HoldBook, call: Upsert) -> bool:
    """Tell whether an upsert renews a task that was known to be there, rather than creating one."""
    task = book.tasks[call.slot]
    return task is not None and task.refreshed is not None


def note_sent(book: HoldBook, calls: tuple[SlotCall, ...], *, now: timedelta) -> HoldBook:
    """Remember what is about to be sent, before it is sent."""
    return replace(drop_lapsed(book, now), in_flight=calls, sent=now)


def note_lost(book: HoldBook, rules: HoldRules, *, now: timedelta) -> HoldBook:
    """Remember that nobody will tell what became of the calls in flight; each may have happened."""
    for call in book.in_flight:
        book = note_verdict(book, call, Unclear(TaskTrouble.EXEC_FAILED), rules, now=now)
    return book


def note_verdict(book: HoldBook, call: SlotCall, verdict: Verdict, rules: HoldRules, *, now: timedelta) -> HoldBook:
    """Remember what became of a call; verdicts are noted in the order of the calls. Total, and it never raises."""
    book = replace(book, in_flight=tuple(other for other in book.in_flight if other != call))
    match call:
        case Upsert(slot=slot):
            if isinstance(verdict, Done):
                return _note_upserted(book, slot, rules, now)
            return _note_upsert_failed(book, slot, verdict, rules, now)
        case Remove(slot=slot):
            if isinstance(verdict, Done):
                return _note_removed(book, slot)
            return _note_removal_failed(book, slot, verdict, rules, now)
        case _:
            assert_never(call)


def _note_upserted(book: HoldBook, slot: Slot, rules: HoldRules, now: timedelta) -> HoldBook:
    """The task is there, and its expiry counts from after the call was sent."""
    former, leading = book.tasks[slot], book.tasks[book.current]
    created = book.sent if former is None else former.created
    book = _put(book, slot, HeldTask(created, book.sent, now + rules.expire))
    takes_turn = slot != book.current and (leading is None or created > leading.created)
    return replace(
        book,
        current=slot if takes_turn else book.current,
        upsert_due=None,
        failures=0,
        is_fresh=(former is None or former.refreshed is None) and (slot == book.current or leading is None),
    )


def _note_upsert_failed(
    book: HoldBook, slot: Slot, verdict: Failed | Unclear, rules: HoldRules, now: timedelta
) -> HoldBook:
    """The task may be there, unless the call was certainly not made; what was there before is there as before."""
    former = book.tasks[slot]
    failures = book.failures + 1
    if not _is_certainly_unsent(verdict):
        lapses = now + AFTERLIFE + rules.expire
        settles = now + AFTERLIFE if isinstance(verdict, Unclear) else None
        if former is None:
            task = HeldTask(book.sent, None, lapses, settles)
        else:
            task = replace(former, lapses=lapses, settles=settles)
        book = _put(book, slot, task)
    return replace(book, upsert_due=now + wait_after(failures, rules), failures=failures)


def _note_removed(book: HoldBook, slot: Slot) -> HoldBook:
    book = _put(book, slot, None)
    other = other_slot(slot)
    if slot == book.current and book.tasks[other] is not None:
        book = replace(book, current=other)
    if book.tasks == (None, None):
        book = replace(book, upsert_due=None, failures=0)
    return replace(book, remove_due=None)


def _note_removal_failed(
    book: HoldBook, slot: Slot, verdict: Failed | Unclear, rules: HoldRules, now: timedelta
) -> HoldBook:
    """The task may be gone: should there be work again, it is upserted at once."""
    former = book.tasks[slot]
    failures = book.failures + 1
    book = replace(book, remove_due=now + wait_after(failures, rules), failures=failures)
    if former is None or _is_certainly_unsent(verdict):
        return book
    book = _put(book, slot, replace(former, refreshed=None))
    return replace(book, upsert_due=now) if slot == book.current else book


def wait_after(failures: int, rules: HoldRules) -> timedelta:
    """Give the wait after so many failures in a row: 1 s, doubling, at most 30 s and at most an interval."""
    doublings = max(0, min(failures - 1, 10))
    limit = min(RETRY_WAIT_LIMIT, max(RETRY_WAIT, rules.refresh))
    return min(RETRY_WAIT * (1 << doublings), limit)


def drop_lapsed(book: HoldBook, now: timedelta) -> HoldBook:
    """Leave out what has surely lapsed."""
    if not any(task is not None and now >= task.lapses for task in book.tasks):
        return book
    first, second = (None if task is None or now >= task.lapses else task for task in book.tasks)
    return replace(book, tasks=(first, second))


def _is_certainly_unsent(verdict: Failed | Unclear) -> bool:
    return isinstance(verdict, Failed) and verdict.trouble in (TaskTrouble.REFUSED, TaskTrouble.STOPPED)


def _put(book: HoldBook, slot: Slot, task: HeldTask | None) -> HoldBook:
    first, second = book.tasks
    return replace(book, tasks=(task, second) if slot == 0 else (first, task))


def other_slot(slot: Slot) -> Slot:
    """Give the name whose turn comes next."""
    return 1 if slot == 0 else 0

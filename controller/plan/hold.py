"""
The hold of one terminal: what to do next about the task that keeps its sprite from pausing. Pure.

Problem: the platform ends a task that nobody refreshes, and, by one of two readings of its documentation, ends every
task an hour after its creation whatever anybody refreshes. Delete-then-create at the hour leaves an instant without a
hold, in which a sprite may pause under a working agent; a lost answer leaves it open whether a task is there.
Promise: under both readings a sprite with work has a task at every moment from the first answered upsert on; it is let
go at once when the work ends; and nothing is sent to a sprite that is not known to run.

The form: a hold has two names (`plan.hold_names`) that take turns. Well before the hour the other name is created, and
only then the former one removed, together with the next refresh. What is known of both is in `plan.hold_book`. All
times are monotonic.

Source: behaviour cases H1 to H13; design 6 and 9 (docs/architecture.md); sprites-api.md 7, 12 row 7.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.api.session import SpriteState
from controller.plan.activity import HoldFor, LetGo, LetLapse, Work
from controller.plan.hold_book import HeldTask, HoldBook, HoldRules, Remove, SlotCall, Upsert, drop_lapsed, other_slot
from controller.plan.hold_names import Slot


class Beat(StrEnum):
    """What one look at a hold comes to."""

    CREATE = "Create"
    REFRESH = "Refresh"
    TURN = "Turn"
    """Create under the other name, because the platform's hour is near."""
    DELETE = "Delete"
    NOOP = "Noop"


def judge_beat(
    task: HeldTask | None, *, work: bool, rules: HoldRules, now: timedelta, early: timedelta = timedelta(0)
) -> Beat:
    """
    Decide from the age of a task what is due.

    Without work a task is deleted. With work and none it is created; one of the age at which names take turns is
    followed by the other; one whose last refresh is as old as the expiry is created anew, and one whose last refresh
    is as old as the interval is refreshed. Each limit counts when it is exactly reached, in that order. A task that was
    never refreshed counts from its creation.

    Args:
        task: What is known of it.
        work: Whether there is something to hold for.
        rules: The durations.
        now: Monotonic.
        early: The refresh comes this much sooner.
    """
    if not work:
        return Beat.NOOP if task is None else Beat.DELETE
    if task is None:
        return Beat.CREATE
    if now - task.created >= rules.turn_after:
        return Beat.TURN
    since = now - (task.created if task.refreshed is None else task.refreshed)
    if since >= rules.expire:
        return Beat.CREATE
    return Beat.REFRESH if since >= rules.refresh - early else Beat.NOOP


@dataclass(frozen=True, slots=True)
class HoldPlan:
    """
    What to send for a terminal, in this order, and when to ask again if nothing else happens.

    `after` None means that only an event (a verdict, a change of work, a sprite that runs again) leads further.
    """

    beat: Beat
    calls: tuple[SlotCall, ...] = ()
    after: timedelta | None = None


NOTHING: Final = HoldPlan(Beat.NOOP)


def plan_hold(
    book: HoldBook, work: Work, rules: HoldRules, *, sprite: SpriteState, now: timedelta, joining: bool = False
) -> HoldPlan:
    """
    Decide what to send for one terminal.

    Nothing is sent while an earlier call is in flight, nor to a sprite that is not known to run: a call would wake it.

    Args:
        book: What is known of its tasks.
        work: Whether there is something to hold for.
        rules: The durations.
        sprite: The sprite's state as known.
        now: Monotonic.
        joining: A command goes to this sprite anyway: a refresh that is due within half an interval goes with it.
    """
    if book.in_flight or sprite is not SpriteState.RUNNING:
        return NOTHING
    book = drop_lapsed(book, now)
    match work:
        case HoldFor():
            return _plan_work(book, rules, now, joining=joining)
        case LetGo():
            return _plan_release(book, now)
        case LetLapse():
            return _plan_lapse(book, now)
        case _:
            assert_never(work)


def _plan_release(book: HoldBook, now: timedelta) -> HoldPlan:
    """Remove all that may be there, the former name first; wait for what may still be under way."""
    present = [slot for slot in (other_slot(book.current), book.current) if book.tasks[slot] is not None]
    if not present:
        return NOTHING
    ready = max(_ready_to_remove(book, slot, now) for slot in present)
    if now < ready:
        return HoldPlan(Beat.NOOP, after=ready - now)
    return HoldPlan(Beat.DELETE, tuple(Remove(slot) for slot in present))


def _plan_lapse(book: HoldBook, now: timedelta) -> HoldPlan:
    """Send nothing, and look again when nothing can be left."""
    ends = [task.lapses for task in book.tasks if task is not None]
    return HoldPlan(Beat.NOOP, after=max(ends) - now) if ends else NOTHING


def _plan_work(book: HoldBook, rules: HoldRules, now: timedelta, *, joining: bool) -> HoldPlan:
    task = book.tasks[book.current]
    early = timedelta(0)
    if joining:
        early = rules.refresh / 2
    elif book.is_fresh:
        early = rules.refresh / 2 * book.luck
    beat = judge_beat(task, work=True, rules=rules, now=now, early=early)
    if book.upsert_due is not None:
        if now < book.upsert_due:
            return HoldPlan(Beat.NOOP, after=book.upsert_due - now)
        # An answer is owed, and the task's age is known: its own name will do as long as its hour does.
        unanswered = task is not None and task.refreshed is None and beat is Beat.CREATE
        beat = Beat.REFRESH if beat is Beat.NOOP or unanswered else beat
    if task is None:
        return HoldPlan(beat, (Upsert(book.current),))
    match beat:
        case Beat.NOOP | Beat.DELETE:
            due = min(_next_refresh(task, rules) - early, task.created + rules.turn_after)
            return HoldPlan(Beat.NOOP, after=due - now)
        case Beat.REFRESH:
            return HoldPlan(beat, (Upsert(book.current), *_remove_former(book, task, now)))
        case Beat.CREATE | Beat.TURN:
            return _plan_turn(book, task, rules, now, beat)
        case _:
            assert_never(beat)


def _plan_turn(book: HoldBook, task: HeldTask, rules: HoldRules, now: timedelta, beat: Beat) -> HoldPlan:
    """
    Begin anew under the other name, while the former one still holds.

    The former task is refreshed before, if its time has come and it may be alive, should the other not succeed. What
    may be left under the other name from the hour before is removed, else its old hour would count on; what a failed
    try of this very turn began there stays.
    """
    other = other_slot(book.current)
    refresh: tuple[SlotCall, ...] = ()
    if task.refreshed is None or _next_refresh(task, rules) <= now < task.refreshed + rules.expire:
        refresh = (Upsert(book.current),)
    left = book.tasks[other]
    if left is None or left.created > task.created:
        return HoldPlan(beat, (*refresh, Upsert(other)))
    ready = _ready_to_remove(book, other, now)
    if now >= ready:
        return HoldPlan(beat, (*refresh, Remove(other), Upsert(other)))
    if refresh:
        return HoldPlan(Beat.REFRESH, refresh)
    return HoldPlan(Beat.NOOP, after=min(ready, max(now, _next_refresh(task, rules))) - now)


def _remove_former(book: HoldBook, task: HeldTask, now: timedelta) -> tuple[SlotCall, ...]:
    """Remove what the former name may still hold, together with a refresh, if the current one is surely there."""
    other = other_slot(book.current)
    if book.tasks[other] is None or task.refreshed is None:
        return ()
    return (Remove(other),) if now >= _ready_to_remove(book, other, now) else ()


def _ready_to_remove(book: HoldBook, slot: Slot, now: timedelta) -> timedelta:
    task = book.tasks[slot]
    settles = now if task is None or task.settles is None else task.settles
    return max(now, settles, now if book.remove_due is None else book.remove_due)


def _next_refresh(task: HeldTask, rules: HoldRules) -> timedelta:
    return (task.created if task.refreshed is None else task.refreshed) + rules.refresh

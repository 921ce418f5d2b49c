"""
One round of a sprite's keeper: all that is due for its terminals, in one command; and what a status says of a hold.

Problem: a command of its own for every terminal would keep a sprite busy with nothing but our holds. Promise: whatever
is due on one sprite goes together, and what would be due within half an interval goes with it, so that terminals of one
sprite fall into step; the order of each terminal's calls is kept; a paused sprite is sent nothing.

Source: design 6 (docs/architecture.md); behaviour case C8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import SpriteState
from controller.api.terminal import HoldStatus
from controller.plan import steps
from controller.plan.activity import ACTIVITY_ANNOTATION, HoldFor, LetGo, LetLapse, NoWork, Work
from controller.plan.hold import plan_hold
from controller.plan.hold_book import HoldBook, HoldRules, SlotCall, Upsert, is_held, is_surely_held
from controller.plan.hold_names import name_base, name_task
from controller.plan.tasks import RemoveTask, TaskCall, TaskTrouble, UpsertTask

WORK_WAITS: Final = "There is work, and"
"""So begins a sentence that tells of something to mend or to wait for: it is written whenever it changes."""
BEING_SET: Final = "The hold is being set."
NO_SESSION: Final = "There is no session to hold for: it has ended, or its end is asked for."
IDLE: Final = "Nobody is attached, and nothing was active within"

_FAILED: Final = "the last command in the sprite failed, or its answer was lost."
_TROUBLES: Final[Mapping[TaskTrouble, str]] = {
    TaskTrouble.REFUSED: "the hold's name or expiry is not one that the Tasks API takes.",
    TaskTrouble.CURL_MISSING: "the sprite has no curl, by which holds are set: install it there.",
    TaskTrouble.CURL_FAILED: "the sprite's Tasks API did not answer the last command (`/.sprite/api.sock`).",
    TaskTrouble.NO_ANSWER: "the sprite's Tasks API did not answer the last command (`/.sprite/api.sock`).",
    TaskTrouble.STATUS: "the sprite's Tasks API refused the last command.",
    TaskTrouble.UNREADABLE: _FAILED,
    TaskTrouble.STOPPED: _FAILED,
    TaskTrouble.TOO_MUCH_OUTPUT: _FAILED,
    TaskTrouble.NO_EXIT: _FAILED,
    TaskTrouble.TIMED_OUT: _FAILED,
    TaskTrouble.EXEC_FAILED: _FAILED,
}


@dataclass(frozen=True, slots=True)
class HoldEntry:
    """
    One terminal of a sprite, for a round.

    Args:
        uid: Of the object.
        key: From `hold_names.build_key`.
        book: What is known of its tasks; None before the sprite's own list was read.
        recorded: `status.hold` says that there was a hold.
        work: Whether there is something to hold for.
        rules: The durations.
    """

    uid: str
    key: str
    book: HoldBook | None
    recorded: bool
    work: Work
    rules: HoldRules


@dataclass(frozen=True, slots=True)
class EntryCalls:
    """The calls of one terminal, as its book and as the Tasks API know them, in their order."""

    uid: str
    calls: tuple[SlotCall, ...]
    tasks: tuple[TaskCall, ...]


@dataclass(frozen=True, slots=True)
class ReadTasks:
    """Read the sprite's own list of tasks first, and rebuild the books from it."""


@dataclass(frozen=True, slots=True)
class SendCalls:
    """Send these, all together as far as one command carries them; then ask again."""

    entries: tuple[EntryCalls, ...]


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing is due. `after` None means that only an event leads further."""

    after: timedelta | None


HoldRound = ReadTasks | SendCalls | Quiet


def plan_round(entries: Sequence[HoldEntry], *, sprite: SpriteState, now: timedelta) -> HoldRound:
    """
    Decide what a sprite's keeper does next.

    Terminals without work and without a recorded hold cost nothing, not even the reading of the list.
    """
    if sprite is not SpriteState.RUNNING:
        return Quiet(None)
    if any(entry.book is None and (entry.recorded or isinstance(entry.work, HoldFor)) for entry in entries):
        return ReadTasks()
    known = [(entry, entry.book) for entry in entries if entry.book is not None]
    plans = [plan_hold(book, entry.work, entry.rules, sprite=sprite, now=now) for entry, book in known]
    if not any(plan.calls for plan in plans):
        waits = [plan.after for plan in plans if plan.after is not None]
        return Quiet(min(waits, default=None))
    sent = []
    for (entry, book), plan in zip(known, plans, strict=True):
        joined = plan.calls or plan_hold(book, entry.work, entry.rules, sprite=sprite, now=now, joining=True).calls
        if joined:
            sent.append(EntryCalls(entry.uid, joined, name_calls(entry.key, entry.rules, joined)))
    return SendCalls(tuple(sent))


def name_calls(key: str, rules: HoldRules, calls: tuple[SlotCall, ...]) -> tuple[TaskCall, ...]:
    """Say a terminal's calls in the words of the Tasks API."""
    return tuple(
        UpsertTask(name_task(key, call.slot), rules.expire)
        if isinstance(call, Upsert)
        else RemoveTask(name_task(key, call.slot))
        for call in calls
    )


def judge_held(
    book: HoldBook | None,
    work: Work,
    rules: HoldRules,
    *,
    now: timedelta,
    sprite: SpriteState = SpriteState.RUNNING,
    trouble: TaskTrouble | None = None,
) -> steps.Verdict:
    """
    Say what the condition Held is: True on answered calls alone, Unknown where a task merely may be there.

    Args:
        book: What is known of its tasks.
        work: Whether there is something to hold for.
        rules: The durations.
        now: Monotonic.
        sprite: Its state as known.
        trouble: Why the last call that should have set the task is not known to be done.
    """
    if book is not None and is_surely_held(book, rules, now):
        return steps.Verdict(ConditionStatus.TRUE, Reason.HOLD_ACTIVE)
    if book is not None and is_held(book, now):
        hindered = isinstance(work, HoldFor) and trouble is not None
        text = _explain_not_held(work, rules, SpriteState.RUNNING, trouble) if hindered else ""
        return steps.Verdict(ConditionStatus.UNKNOWN, Reason.HOLD_UNCLEAR, text)
    if work == LetGo(NoWork.NOT_WANTED):
        return steps.Verdict(ConditionStatus.FALSE, Reason.NOT_WANTED)
    return steps.Verdict(ConditionStatus.FALSE, Reason.NOT_HELD, _explain_not_held(work, rules, sprite, trouble))


def _explain_not_held(work: Work, rules: HoldRules, sprite: SpriteState, trouble: TaskTrouble | None) -> str:
    """Say why nothing is held although a hold is wanted, in words that stay the same for as long as the cause does."""
    match work:
        case HoldFor() if sprite is not SpriteState.RUNNING:
            return f"{WORK_WAITS} no sprite is woken by a hold: it begins when the sprite is next seen running."
        case HoldFor() if trouble is not None:
            return f"{WORK_WAITS} {_TROUBLES[trouble]} It is tried again; the operator's log says more."
        case HoldFor():
            return BEING_SET
        case LetGo(why=why):
            return _explain_no_work(why, rules)
        case LetLapse():
            return "Suspended: nothing is held until `spec.suspend` is false."
        case _:
            assert_never(work)


def _explain_no_work(why: NoWork, rules: HoldRules) -> str:
    match why:
        case NoWork.IDLE:
            seconds = int(rules.idle_window.total_seconds())
            return f"{IDLE} {seconds} s. A hold comes with the next activity."
        case NoWork.NOT_SEEN:
            return (
                "Nobody is attached, and nothing tells whether the session is active: what cannot be seen starts no "
                f"hold. Attach, tell of activity by the annotation {ACTIVITY_ANNOTATION}, or set `hold.mode: Always`."
            )
        case NoWork.SESSION_ENDED:
            return NO_SESSION
        case NoWork.NOT_WANTED:
            return ""
        case _:
            assert_never(why)


def describe_hold(
    old: HoldStatus | None,
    key: str,
    book: HoldBook | None,
    work: Work,
    rules: HoldRules,
    *,
    now: timedelta,
    now_time: datetime,
) -> HoldStatus | None:
    """
    Write down a hold: since when, what for, and when it would end by itself.

    The name is what both names begin with, so that their turns change nothing. `since` stays while it goes on; the
    cause is that of the work, and the last one while the hold only lapses.
    """
    if book is None or not is_held(book, now):
        return None
    cause = work.cause.value if isinstance(work, HoldFor) else None if old is None else old.cause
    ends = [
        task.lapses if task.refreshed is None else task.refreshed + rules.expire
        for task in book.tasks
        if task is not None
    ]
    since = now_time if old is None or old.since is None else old.since
    return HoldStatus(task=name_base(key), since=since, cause=cause, expiry_time=now_time + (max(ends) - now))

"""The hold of a terminal: its beats, its two names and its book (cases H1 to H13, C1 to C14, A6)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from itertools import repeat

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import SpriteState
from controller.api.terminal import HoldMode, HoldSpec, HoldStatus
from controller.plan.activity import (
    Activity,
    HoldCause,
    HoldFor,
    LetGo,
    LetLapse,
    NoWork,
    Presence,
    Work,
    WorkFacts,
    judge_work,
)
from controller.plan.hold import NOTHING, Beat, HoldPlan, judge_beat, plan_hold
from controller.plan.hold_book import (
    AFTERLIFE,
    PLATFORM_HOUR,
    HeldTask,
    HoldBook,
    HoldRules,
    Remove,
    SlotCall,
    Upsert,
    is_held,
    is_surely_held,
    note_lost,
    note_sent,
    note_verdict,
    rebuild_book,
    resolve_rules,
    spread_beats,
    wait_after,
)
from controller.plan.hold_names import build_key, name_base, name_task
from controller.plan.hold_round import (
    WORK_WAITS,
    HoldEntry,
    Quiet,
    ReadTasks,
    SendCalls,
    describe_hold,
    judge_held,
    name_calls,
    plan_round,
)
from controller.plan.hold_settings import HoldSettings
from controller.plan.tasks import Done, Failed, RemoveTask, TaskTrouble, Unclear, UpsertTask, Verdict
from controller.plan.tasks_read import ListedTask, TasksRead

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NOW = timedelta(milliseconds=10_000_000)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
RULES = HoldRules(timedelta(seconds=300), timedelta(milliseconds=60_000))
AT_THE_HOUR = replace(RULES, turn_after=PLATFORM_HOUR)
"""The seeds' own limit, to which the cases H8 and H9 are exact."""
VIEWER = HoldFor(HoldCause.VIEWER)
AGENT = HoldFor(HoldCause.ACTIVITY)
IDLE = LetGo(NoWork.IDLE)
UID = "0b6a1c9e-8f6d-4a53-9f3f-5c1f0e3b7a11"
KEY = build_key("default", "term-1", UID)
LOST = Unclear(TaskTrouble.TIMED_OUT)
EXIT_28 = Failed(TaskTrouble.CURL_FAILED, 28, 0)


def at(ms: int | None) -> timedelta | None:
    return None if ms is None else timedelta(milliseconds=ms)


def held(created: int, refreshed: int | None, *, rules: HoldRules = RULES) -> HeldTask:
    start, last = timedelta(milliseconds=created), at(refreshed)
    return HeldTask(start, last, (start if last is None else last) + rules.expire + AFTERLIFE)


def book_of(task: HeldTask | None, other: HeldTask | None = None) -> HoldBook:
    return HoldBook(tasks=(task, other))


def plan(book: HoldBook, work: Work = VIEWER, now: timedelta = NOW, rules: HoldRules = RULES) -> HoldPlan:
    return plan_hold(book, work, rules, sprite=SpriteState.RUNNING, now=now)


def send(book: HoldBook, calls: tuple[SlotCall, ...], now: timedelta, verdict: Verdict | None = None) -> HoldBook:
    """Send calls that are all answered in the same instant: done, unless said otherwise."""
    book = note_sent(book, calls, now=now)
    for call in calls:
        book = note_verdict(book, call, verdict or Done(200), RULES, now=now)
    return book


def follow(book: HoldBook, work: Work, now: timedelta, verdict: Verdict | None = None) -> tuple[HoldBook, HoldPlan]:
    """Plan, and do what was planned."""
    step = plan(book, work, now)
    return (send(book, step.calls, now, verdict), step) if step.calls else (book, step)


# --- the beat ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "created", "refreshed", "beat"),
    [
        pytest.param(True, None, None, Beat.CREATE, marks=pytest.mark.case("H1")),
        pytest.param(False, None, None, Beat.NOOP, marks=pytest.mark.case("H2")),
        pytest.param(False, 9_990_000, 9_990_000, Beat.DELETE, marks=pytest.mark.case("H3")),
        pytest.param(False, 6_400_000, 6_400_000, Beat.DELETE, marks=pytest.mark.case("H3")),
        pytest.param(True, 9_990_000, None, Beat.NOOP, marks=pytest.mark.case("H4")),
        pytest.param(True, 9_940_001, 9_940_001, Beat.NOOP, marks=pytest.mark.case("H4")),
        pytest.param(True, 9_940_001, None, Beat.NOOP, marks=pytest.mark.case("H4")),
        pytest.param(True, 9_940_000, 9_940_000, Beat.REFRESH, marks=pytest.mark.case("H5")),
        pytest.param(True, 9_940_000, None, Beat.REFRESH, marks=pytest.mark.case("H5")),
        pytest.param(True, 9_760_000, 9_760_000, Beat.REFRESH, marks=pytest.mark.case("H6")),
        pytest.param(True, 9_700_001, 9_700_001, Beat.REFRESH, marks=pytest.mark.case("H6")),
        pytest.param(True, 9_700_000, 9_700_000, Beat.CREATE, marks=pytest.mark.case("H7")),
        pytest.param(True, 9_600_000, 9_990_000, Beat.NOOP, marks=pytest.mark.case("H11")),
        pytest.param(True, 9_600_000, 9_940_000, Beat.REFRESH, marks=pytest.mark.case("H11")),
        pytest.param(True, 9_600_000, 9_700_000, Beat.CREATE, marks=pytest.mark.case("H11")),
    ],
)
def test_the_age_of_a_task_decides_what_is_due(
    work: bool, created: int | None, refreshed: int | None, beat: Beat
) -> None:
    task = None if created is None else held(created, refreshed)

    assert judge_beat(task, work=work, rules=RULES, now=NOW) is beat


@pytest.mark.parametrize(
    ("created", "refreshed", "beat"),
    [
        pytest.param(6_400_000, 9_940_000, Beat.TURN, marks=pytest.mark.case("H8")),
        pytest.param(6_400_001, 9_940_000, Beat.REFRESH, marks=pytest.mark.case("H9")),
        pytest.param(6_400_001, 9_999_000, Beat.NOOP, marks=pytest.mark.case("H9")),
        pytest.param(6_400_000, 9_999_000, Beat.TURN, marks=pytest.mark.case("H10")),
        pytest.param(6_400_000, 6_400_000, Beat.TURN, marks=pytest.mark.case("H10")),
    ],
)
def test_the_lifetime_outranks_expiry_and_refresh_to_the_millisecond(created: int, refreshed: int, beat: Beat) -> None:
    """The seeds' numbers. The product's own form: what they call "create" is a turn of the two names."""
    assert judge_beat(held(created, refreshed), work=True, rules=AT_THE_HOUR, now=NOW) is beat


@pytest.mark.case("H8", "H9", "H10")
@pytest.mark.parametrize(
    ("age", "beat"),
    [(3_300_000, Beat.TURN), (3_299_999, Beat.NOOP), (3_600_000, Beat.TURN), (3_300_001, Beat.TURN)],
)
def test_the_names_take_turns_five_minutes_before_the_hour(age: int, beat: Beat) -> None:
    """The product's own form: before the hour and not at it, since at the hour the task may be gone already."""
    task = held(10_000_000 - age, 9_999_000)

    assert judge_beat(task, work=True, rules=RULES, now=NOW) is beat


@pytest.mark.case("H12")
def test_a_working_agent_without_a_viewer_is_refreshed_for_like_a_viewer() -> None:
    book = book_of(held(9_940_000, 9_940_000))

    assert plan(book, AGENT) == plan(book, VIEWER) == HoldPlan(Beat.REFRESH, (Upsert(0),))


@pytest.mark.case("H1")
@pytest.mark.parametrize("work", [VIEWER, AGENT, HoldFor(HoldCause.ALWAYS)])
def test_work_of_any_kind_without_a_task_creates_one_at_once(work: HoldFor) -> None:
    assert plan(HoldBook(), work) == HoldPlan(Beat.CREATE, (Upsert(0),))


@pytest.mark.case("H2")
@pytest.mark.parametrize("why", list(NoWork))
def test_no_work_and_no_task_is_nothing(why: NoWork) -> None:
    assert plan(HoldBook(), LetGo(why)) == NOTHING


@pytest.mark.case("H3")
@pytest.mark.parametrize("why", list(NoWork))
def test_no_work_and_a_task_removes_it_at_once(why: NoWork) -> None:
    assert plan(book_of(held(9_990_000, 9_990_000)), LetGo(why)) == HoldPlan(Beat.DELETE, (Remove(0),))


@pytest.mark.case("H13")
@pytest.mark.parametrize(
    ("age", "beat"),
    [(5_999, Beat.NOOP), (6_000, Beat.REFRESH), (29_999, Beat.REFRESH), (30_000, Beat.CREATE)],
)
def test_shorter_settings_move_the_same_limits(age: int, beat: Beat) -> None:
    rules = HoldRules(timedelta(seconds=30), timedelta(milliseconds=6_000))
    task = held(10_000_000 - age, 10_000_000 - age, rules=rules)

    assert judge_beat(task, work=True, rules=rules, now=NOW) is beat


TIMES = st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=3))
TASKS = st.builds(HeldTask, TIMES, st.none() | TIMES, TIMES, st.none() | TIMES)
SLOTS = st.sampled_from([0, 1])
CALLS = st.builds(Upsert, SLOTS) | st.builds(Remove, SLOTS)
RULES_OF_ANY_KIND = st.builds(
    HoldRules,
    st.timedeltas(min_value=SECOND, max_value=PLATFORM_HOUR),
    st.timedeltas(min_value=MILLISECOND, max_value=PLATFORM_HOUR / 2),
)
BOOKS = st.builds(
    HoldBook,
    luck=st.floats(0, 1, exclude_max=True),
    tasks=st.tuples(st.none() | TASKS, st.none() | TASKS),
    current=SLOTS,
    upsert_due=st.none() | TIMES,
    remove_due=st.none() | TIMES,
    failures=st.integers(0, 1_000_000),
    is_fresh=st.booleans(),
    in_flight=st.lists(CALLS, max_size=2).map(tuple),
    sent=TIMES,
)
WORKS = st.builds(HoldFor, st.sampled_from(HoldCause)) | st.builds(LetGo, st.sampled_from(NoWork)) | st.just(LetLapse())
VERDICTS = (
    st.builds(Done, st.integers(200, 299))
    | st.builds(Failed, st.sampled_from(TaskTrouble), st.none() | st.integers(0, 255), st.none() | st.integers(0, 599))
    | st.builds(Unclear, st.sampled_from(TaskTrouble))
)


@pytest.mark.case("C9")
@given(BOOKS, WORKS, RULES_OF_ANY_KIND, st.sampled_from(SpriteState), TIMES, st.booleans())
def test_every_book_has_a_plan_and_no_plan_is_a_busy_loop(
    book: HoldBook, work: Work, rules: HoldRules, sprite: SpriteState, now: timedelta, joining: bool
) -> None:
    step = plan_hold(book, work, rules, sprite=sprite, now=now, joining=joining)

    assert step == plan_hold(book, work, rules, sprite=sprite, now=now, joining=joining)
    assert step.after is None or step.after > timedelta(0)
    if step.calls:
        assert sprite is SpriteState.RUNNING
        assert not book.in_flight
        assert step.after is None
        assert len(set(step.calls)) == len(step.calls)
    if not isinstance(work, HoldFor):
        assert not any(isinstance(call, Upsert) for call in step.calls)


@pytest.mark.case("C9")
@given(BOOKS, CALLS, VERDICTS, RULES_OF_ANY_KIND, TIMES)
def test_every_verdict_is_noted_and_none_loses_what_may_be_there(
    book: HoldBook, call: SlotCall, verdict: Verdict, rules: HoldRules, now: timedelta
) -> None:
    noted = note_verdict(book, call, verdict, rules, now=now)

    assert call not in noted.in_flight
    assert note_lost(noted, rules, now=now).in_flight == ()
    for slot in (0, 1):
        if book.tasks[slot] is not None:
            gone = isinstance(call, Remove) and call.slot == slot and isinstance(verdict, Done)
            assert (noted.tasks[slot] is None) == gone
    if isinstance(verdict, Unclear) and isinstance(call, Upsert):
        assert noted.tasks[call.slot] is not None


# --- the book ---------------------------------------------------------------------------------------------------------


@pytest.mark.case("C1")
def test_the_first_beat_creates_with_the_expiry_and_the_next_call_comes_after_an_interval() -> None:
    book, first = follow(HoldBook(), VIEWER, NOW)
    assert name_calls(KEY, RULES, first.calls) == (UpsertTask(name_task(KEY, 0), timedelta(seconds=300)),)

    book, soon = follow(book, VIEWER, NOW + 10 * SECOND)
    assert soon.calls == ()
    assert soon.after == 50 * SECOND

    _, later = follow(book, VIEWER, NOW + 70 * SECOND)
    assert later == HoldPlan(Beat.REFRESH, (Upsert(0),))


@pytest.mark.case("C2")
def test_an_idle_detach_removes_once_and_then_nothing() -> None:
    book, _ = follow(HoldBook(), VIEWER, NOW)
    book, gone = follow(book, IDLE, NOW + SECOND)
    assert gone == HoldPlan(Beat.DELETE, (Remove(0),))

    for seconds in (1, 2, 60, 400, 4000):
        assert plan(book, IDLE, NOW + seconds * SECOND) == NOTHING


@pytest.mark.case("C3")
def test_at_the_hour_the_other_name_is_created_and_only_then_the_former_removed() -> None:
    """
    The product's own form: overlap instead of delete-then-create.

    The former name goes with the next refresh, so the turn itself costs no command of its own.
    """
    book = book_of(held(6_700_000, 9_990_000))
    book, turn = follow(book, VIEWER, NOW)
    assert turn == HoldPlan(Beat.TURN, (Upsert(1),))
    assert is_surely_held(book, RULES, NOW)
    assert book.current == 1

    assert plan(book, VIEWER, NOW + 59_999 * MILLISECOND).calls == ()
    book, next_beat = follow(book, VIEWER, NOW + 60 * SECOND)
    assert next_beat == HoldPlan(Beat.REFRESH, (Upsert(1), Remove(0)))
    assert book.tasks[0] is None


@pytest.mark.case("C3")
def test_what_is_left_under_the_other_name_from_the_hour_before_goes_before_its_turn() -> None:
    left = held(3_000_000, None)
    book = book_of(held(6_700_000, 9_990_000), replace(left, lapses=NOW + SECOND))

    assert plan(book) == HoldPlan(Beat.TURN, (Remove(1), Upsert(1)))


def test_a_turn_whose_refresh_is_due_as_well_refreshes_the_former_name_first() -> None:
    book = book_of(held(6_700_000, 9_940_000))

    assert plan(book) == HoldPlan(Beat.TURN, (Upsert(0), Upsert(1)))


def test_a_turn_that_failed_is_tried_again_and_the_former_name_holds_meanwhile() -> None:
    book = book_of(held(6_700_000, 9_990_000))
    book, _ = follow(book, VIEWER, NOW, EXIT_28)
    assert book.current == 0
    assert is_surely_held(book, RULES, NOW)

    book, again = follow(book, VIEWER, NOW + SECOND)
    assert again == HoldPlan(Beat.TURN, (Upsert(1),))
    assert book.current == 1
    assert book.tasks[1] == HeldTask(NOW, NOW + SECOND, NOW + SECOND + RULES.expire)


def test_a_name_that_could_not_be_cleared_does_not_take_its_turn() -> None:
    """Its old hour would count on: the former name stays the one that is kept alive, and the turn is tried again."""
    book = book_of(held(6_700_000, 9_990_000), replace(held(3_000_000, None), lapses=NOW + 300 * SECOND))
    book = note_sent(book, (Remove(1), Upsert(1)), now=NOW)
    book = note_verdict(book, Remove(1), Failed(TaskTrouble.STATUS, 0, 500), RULES, now=NOW)
    book = note_verdict(book, Upsert(1), Done(200), RULES, now=NOW)
    assert book.current == 0

    assert plan(book) == HoldPlan(Beat.NOOP, after=SECOND)
    assert plan(book, VIEWER, NOW + SECOND) == HoldPlan(Beat.TURN, (Remove(1), Upsert(1)))


@pytest.mark.parametrize(
    ("ready", "step"),
    [
        (20_000, HoldPlan(Beat.NOOP, after=20 * SECOND)),
        (49_999, HoldPlan(Beat.NOOP, after=49_999 * MILLISECOND)),
        (50_001, HoldPlan(Beat.NOOP, after=50 * SECOND)),
    ],
)
def test_a_turn_that_waits_for_a_removal_asks_again_when_that_or_a_refresh_is_due(ready: int, step: HoldPlan) -> None:
    left = replace(held(3_000_000, None), lapses=NOW + 300 * SECOND)
    book = replace(book_of(held(6_700_000, 9_990_000), left), remove_due=NOW + ready * MILLISECOND)

    assert plan(book) == step
    assert plan(book, VIEWER, NOW + 50 * SECOND).beat is (Beat.REFRESH if ready > 50_000 else Beat.TURN)


def test_a_release_of_two_names_waits_for_the_one_that_may_still_be_under_way() -> None:
    settled = replace(held(9_000_000, 9_990_000), settles=NOW + SECOND)
    unsettled = replace(held(9_900_000, None), settles=NOW + 7 * SECOND)

    for book in (book_of(settled, unsettled), book_of(unsettled, settled)):
        assert plan(book, IDLE) == HoldPlan(Beat.NOOP, after=7 * SECOND)


def test_a_task_that_has_expired_is_followed_by_the_other_name() -> None:
    """The hour of what may be left under its own name would count on."""
    book = book_of(held(9_700_000, 9_700_000))

    assert plan(book) == HoldPlan(Beat.CREATE, (Upsert(1),))


@pytest.mark.case("C4")
@pytest.mark.parametrize("verdict", [EXIT_28, LOST, Failed(TaskTrouble.STATUS, 0, 500)])
def test_a_failed_upsert_is_tried_again_after_a_second_and_not_after_an_interval(verdict: Verdict) -> None:
    book, _ = follow(HoldBook(), VIEWER, NOW, verdict)

    assert plan(book, VIEWER, NOW + 999 * MILLISECOND) == HoldPlan(Beat.NOOP, after=MILLISECOND)
    assert plan(book, VIEWER, NOW + SECOND) == HoldPlan(Beat.REFRESH, (Upsert(0),))


@pytest.mark.case("C4")
def test_a_failed_refresh_is_tried_again_after_a_second_too() -> None:
    book = book_of(held(9_940_000, 9_940_000))
    book, _ = follow(book, VIEWER, NOW, EXIT_28)

    assert plan(book, VIEWER, NOW + SECOND) == HoldPlan(Beat.REFRESH, (Upsert(0),))


def test_each_further_failure_waits_longer_and_a_success_begins_anew() -> None:
    book, now = HoldBook(), NOW
    for seconds in (1, 2, 4):
        book, _ = follow(book, VIEWER, now, EXIT_28)
        assert plan(book, VIEWER, now).after == seconds * SECOND
        now += seconds * SECOND
    book, _ = follow(book, VIEWER, now)
    assert (book.failures, book.upsert_due) == (0, None)

    for seconds in (1, 2, 4):
        book, _ = follow(book, IDLE, now, EXIT_28)
        assert plan(book, IDLE, now).after == seconds * SECOND
        now += seconds * SECOND
    book, _ = follow(book, IDLE, now)
    assert (book.failures, book.upsert_due, book.remove_due) == (0, None, None)


def test_removing_the_former_name_keeps_what_is_owed_to_the_current_one() -> None:
    book = replace(book_of(held(6_000_000, 9_000_000), held(9_900_000, None)), current=1, failures=2, upsert_due=NOW)
    book = note_verdict(book, Remove(0), Done(204), RULES, now=NOW)

    assert (book.failures, book.upsert_due, book.current) == (2, NOW, 1)


@pytest.mark.parametrize(
    ("failures", "refresh", "wait"),
    [
        (1, 60_000, 1_000),
        (2, 60_000, 2_000),
        (5, 60_000, 16_000),
        (6, 60_000, 30_000),
        (10**9, 60_000, 30_000),
        (6, 6_000, 6_000),
        (6, 1, 1_000),
    ],
)
def test_the_wait_after_failures_doubles_up_to_half_a_minute_or_an_interval(
    failures: int, refresh: int, wait: int
) -> None:
    rules = HoldRules(timedelta(seconds=300), refresh * MILLISECOND)

    assert wait_after(failures, rules) == wait * MILLISECOND


@pytest.mark.case("C5")
@pytest.mark.parametrize("verdict", [EXIT_28, Failed(TaskTrouble.STATUS, 0, 500)])
def test_after_an_upsert_that_reported_failure_the_end_removes_all_the_same(verdict: Verdict) -> None:
    book, _ = follow(HoldBook(), VIEWER, NOW, verdict)

    assert plan(book, LetGo(NoWork.SESSION_ENDED), NOW + MILLISECOND) == HoldPlan(Beat.DELETE, (Remove(0),))


@pytest.mark.case("C5", "C8")
def test_an_upsert_that_may_still_be_under_way_is_waited_for_before_it_is_removed() -> None:
    """The product's own form: what we left by a time limit may run on for 10 s, and land after a quick removal."""
    book, _ = follow(HoldBook(), VIEWER, NOW, LOST)

    assert plan(book, IDLE, NOW + 9_999 * MILLISECOND) == HoldPlan(Beat.NOOP, after=MILLISECOND)
    assert plan(book, IDLE, NOW + 10 * SECOND) == HoldPlan(Beat.DELETE, (Remove(0),))


@pytest.mark.case("C6")
@pytest.mark.parametrize("trouble", [TaskTrouble.REFUSED, TaskTrouble.STOPPED])
def test_whoever_never_sent_an_upsert_removes_nothing(trouble: TaskTrouble) -> None:
    assert plan(HoldBook(), LetGo(NoWork.SESSION_ENDED)) == NOTHING

    book, _ = follow(HoldBook(), VIEWER, NOW, Failed(trouble))
    assert plan(book, LetGo(NoWork.SESSION_ENDED), NOW + SECOND) == NOTHING


@pytest.mark.case("C6", "C7")
def test_the_end_of_a_held_session_removes_once_also_while_the_removal_is_under_way() -> None:
    ended = LetGo(NoWork.SESSION_ENDED)
    book, _ = follow(HoldBook(), VIEWER, NOW)
    under_way = note_sent(book, plan(book, ended, NOW + SECOND).calls, now=NOW + SECOND)
    assert plan(under_way, ended, NOW + 2 * SECOND) == NOTHING

    book = note_verdict(under_way, Remove(0), Done(204), RULES, now=NOW + 3 * SECOND)
    assert plan(book, ended, NOW + 4 * SECOND) == NOTHING
    assert plan(book, ended, NOW + 4000 * SECOND) == NOTHING


@pytest.mark.case("C7")
def test_the_end_in_the_middle_of_a_turn_removes_both_names_the_former_first() -> None:
    book, _ = follow(book_of(held(6_700_000, 9_990_000)), VIEWER, NOW)

    assert plan(book, IDLE, NOW + SECOND) == HoldPlan(Beat.DELETE, (Remove(0), Remove(1)))


@pytest.mark.case("C8")
@given(BOOKS, WORKS, TIMES)
def test_nothing_is_sent_while_a_call_is_under_way(book: HoldBook, work: Work, now: timedelta) -> None:
    """The product's own form: one command at a time, and its calls run one after the other."""
    assert plan(replace(book, in_flight=(Upsert(0),)), work, now) == NOTHING


def test_a_removal_that_failed_is_repeated_until_the_task_has_surely_lapsed() -> None:
    book, _ = follow(HoldBook(), VIEWER, NOW)
    book, _ = follow(book, IDLE, NOW + SECOND, EXIT_28)
    assert plan(book, IDLE, NOW + SECOND) == HoldPlan(Beat.NOOP, after=SECOND)
    assert plan(book, IDLE, NOW + 2 * SECOND) == HoldPlan(Beat.DELETE, (Remove(0),))

    assert plan(book, IDLE, NOW + 299_999 * MILLISECOND).calls == (Remove(0),)
    assert plan(book, IDLE, NOW + 300 * SECOND) == NOTHING


def test_work_that_returns_after_a_doubtful_removal_upserts_at_once() -> None:
    book, _ = follow(HoldBook(), VIEWER, NOW)
    book, _ = follow(book, IDLE, NOW + SECOND, LOST)

    assert not is_surely_held(book, RULES, NOW + SECOND)
    assert plan(book, VIEWER, NOW + SECOND) == HoldPlan(Beat.REFRESH, (Upsert(0),))


def test_a_lost_command_leaves_everything_it_carried_in_doubt() -> None:
    book = book_of(held(9_000_000, 9_990_000), held(6_000_000, 9_900_000))
    book = note_lost(note_sent(book, (Upsert(0), Remove(1)), now=NOW), RULES, now=NOW + 10 * SECOND)

    assert book.in_flight == ()
    assert book.tasks[1] is not None
    assert book.tasks[1].refreshed is None
    assert book.upsert_due == NOW + 11 * SECOND


@pytest.mark.case("A6")
def test_a_beat_comes_at_once_then_every_interval_and_at_each_change_at_once() -> None:
    """The product's own form: a plan is asked at every change of work, and says itself when the next beat is."""
    book, first = follow(HoldBook(), VIEWER, NOW)
    assert first.beat is Beat.CREATE
    assert plan(book, VIEWER, NOW).after == RULES.refresh

    detached, gone = follow(book, IDLE, NOW + 7 * SECOND)
    assert gone.calls == (Remove(0),)
    _, back = follow(detached, VIEWER, NOW + 8 * SECOND)
    assert back.calls == (Upsert(0),)

    joined = plan(book, VIEWER, NOW + 9 * SECOND)
    assert joined.calls == ()


@pytest.mark.case("C10")
@pytest.mark.parametrize(
    ("refresh", "idle_after", "window"),
    [(60_000, None, 120_000), (15_000, None, 30_000), (15_000, 7_000, 7_000), (60_000, 0, 0)],
)
def test_the_cadence_is_the_refresh_and_the_idle_window_twice_that_unless_set(
    refresh: int, idle_after: int | None, window: int
) -> None:
    rules = HoldRules(timedelta(seconds=300), refresh * MILLISECOND, at(idle_after))
    book = replace(send(HoldBook(), (Upsert(0),), NOW), is_fresh=False)

    assert rules.idle_window == window * MILLISECOND
    assert plan(book, VIEWER, NOW, rules).after == refresh * MILLISECOND


@pytest.mark.case("C11")
@pytest.mark.parametrize(("age", "kept"), [(15_000, True), (19_999, True), (20_000, False), (25_000, False)])
def test_with_a_short_refresh_an_agent_that_was_seen_idle_is_let_go_after_two_intervals(age: int, kept: bool) -> None:
    rules = HoldRules(timedelta(seconds=300), timedelta(seconds=10))
    work = judge_work(
        WorkFacts(
            live=True,
            wanted=True,
            mode=HoldMode.WHILE_ACTIVE,
            suspended=False,
            presence=Presence.NOBODY,
            activity=Activity(NOON - age * MILLISECOND, observable=True),
            held=True,
            idle_after=rules.idle_window,
            now=NOON,
        )
    )

    step = plan(book_of(held(9_995_000, 9_995_000)), work, rules=rules)
    assert step.beat is (Beat.NOOP if kept else Beat.DELETE)


@pytest.mark.case("C12")
def test_a_session_opened_again_at_once_waits_for_the_removal_of_the_one_before() -> None:
    """
    The product's own form: one book for all sessions of an object, so nothing of an earlier one runs late.

    Another object of the same name has another uid, and so other names.
    """
    book, _ = follow(HoldBook(), VIEWER, NOW)
    ending = note_sent(book, (Remove(0),), now=NOW + SECOND)
    assert plan(ending, VIEWER, NOW + SECOND) == NOTHING

    ended = note_verdict(ending, Remove(0), Done(204), RULES, now=NOW + 2 * SECOND)
    assert plan(ended, VIEWER, NOW + 2 * SECOND).calls == (Upsert(0),)


def test_suspension_sends_nothing_and_looks_again_when_the_hold_has_lapsed() -> None:
    book, _ = follow(HoldBook(), VIEWER, NOW)

    assert plan(book, LetLapse(), NOW + 100 * SECOND) == HoldPlan(Beat.NOOP, after=200 * SECOND)
    assert plan(book, LetLapse(), NOW + 300 * SECOND) == NOTHING
    assert plan(book, VIEWER, NOW + 100 * SECOND).calls == (Upsert(0),)
    assert plan(book, VIEWER, NOW + 300 * SECOND) == HoldPlan(Beat.CREATE, (Upsert(0),))


@pytest.mark.case("U8")
@pytest.mark.parametrize("state", [SpriteState.WARM, SpriteState.COLD, SpriteState.UNKNOWN])
def test_nothing_is_sent_to_a_sprite_that_is_not_known_to_run(state: SpriteState) -> None:
    for book in (HoldBook(), book_of(held(9_700_000, 9_700_000))):
        for work in (VIEWER, IDLE, LetLapse()):
            assert plan_hold(book, work, RULES, sprite=state, now=NOW) == NOTHING


@pytest.mark.parametrize(
    ("hold", "own", "expire", "refresh"),
    [
        (None, HoldSettings(), 300_000, 60_000),
        (HoldSpec(), HoldSettings(), 300_000, 60_000),
        (HoldSpec(expire_seconds=90), HoldSettings(), 90_000, 18_000),
        (HoldSpec(expire_seconds=120), HoldSettings(), 120_000, 60_000),
        (HoldSpec(expire_seconds=30, refresh_seconds=15), HoldSettings(), 30_000, 15_000),
        (HoldSpec(refresh_seconds=150), HoldSettings(), 300_000, 150_000),
        (HoldSpec(refresh_seconds=151), HoldSettings(), 300_000, 60_000),
        (None, HoldSettings(600 * SECOND, 120 * SECOND), 600_000, 120_000),
        (HoldSpec(expire_seconds=300), HoldSettings(600 * SECOND, 200 * SECOND), 300_000, 60_000),
    ],
)
def test_what_an_object_leaves_out_comes_from_the_operators_settings_by_the_same_rules(
    hold: HoldSpec | None, own: HoldSettings, expire: int, refresh: int
) -> None:
    assert resolve_rules(hold, own) == HoldRules(expire * MILLISECOND, refresh * MILLISECOND)


# --- the start --------------------------------------------------------------------------------------------------------


def rebuild(*tasks: ListedTask) -> HoldBook:
    return rebuild_book(KEY, UID, TasksRead(tasks), now=NOW, now_time=NOON)


def listed(slot: int, age: timedelta | None = None) -> ListedTask:
    return ListedTask(name_task(KEY, 1 if slot else 0), None if age is None else NOON - age, NOON + 200 * SECOND)


def test_a_restart_finds_its_task_by_name_and_refreshes_it_at_once_without_a_second_one() -> None:
    book = rebuild(ListedTask("ps-hold-of-another", NOON, None), listed(1, timedelta(minutes=20)))

    assert book.tasks[0] is None
    assert plan(book) == HoldPlan(Beat.REFRESH, (Upsert(1),))
    book, _ = follow(book, VIEWER, NOW)
    assert book.tasks[1] == HeldTask(NOW - timedelta(minutes=20), NOW, NOW + RULES.expire)


def test_a_restart_without_tasks_creates_and_one_without_work_removes_what_it_finds() -> None:
    assert plan(rebuild()) == HoldPlan(Beat.CREATE, (Upsert(0),))
    assert plan(rebuild(), IDLE) == NOTHING
    assert plan(rebuild(listed(0, SECOND)), IDLE) == HoldPlan(Beat.DELETE, (Remove(0),))


def test_a_restart_in_the_middle_of_a_turn_keeps_the_younger_and_removes_the_older_later() -> None:
    book = rebuild(listed(0, timedelta(seconds=5)), listed(1, timedelta(minutes=56)))
    book, first = follow(book, VIEWER, NOW)
    assert first == HoldPlan(Beat.REFRESH, (Upsert(0),))

    _, second = follow(book, VIEWER, NOW + 60 * SECOND)
    assert second == HoldPlan(Beat.REFRESH, (Upsert(0), Remove(1)))


@pytest.mark.parametrize(
    ("age", "beat"),
    [
        (timedelta(minutes=55), Beat.TURN),
        (timedelta(minutes=55) - MILLISECOND, Beat.REFRESH),
        (None, Beat.TURN),
        (timedelta(hours=-1), Beat.REFRESH),
    ],
)
def test_a_restart_knows_the_age_and_takes_an_unknown_one_for_an_hour_and_a_future_one_for_new(
    age: timedelta | None, beat: Beat
) -> None:
    assert plan(rebuild(listed(0, age))).beat is beat


def test_where_the_list_cannot_be_read_both_names_may_be_there_and_no_order_leaves_a_gap() -> None:
    book = rebuild_book(KEY, UID, None, now=NOW, now_time=NOON)

    assert plan(book).calls == (Upsert(0), Remove(1), Upsert(1))
    assert plan(book, IDLE).calls == (Remove(1), Remove(0))


def test_the_first_beat_comes_earlier_by_the_uids_luck_and_the_later_ones_do_not() -> None:
    lucky = HoldBook(luck=0.5)
    book, _ = follow(lucky, VIEWER, NOW)
    assert plan(book).after == 45 * SECOND
    assert plan(book, VIEWER, NOW + 45 * SECOND - MILLISECOND).calls == ()

    book, refresh = follow(book, VIEWER, NOW + 45 * SECOND)
    assert refresh.beat is Beat.REFRESH
    assert plan(book, VIEWER, NOW + 45 * SECOND).after == 60 * SECOND


@given(st.uuids().map(str))
def test_luck_comes_from_the_uid_alone_and_is_less_than_one(uid: str) -> None:
    assert 0 <= spread_beats(uid) < 1
    assert spread_beats(uid) == spread_beats(uid)


def test_luck_spreads_the_beats_of_many() -> None:
    shares = [spread_beats(f"0b6a1c9e-8f6d-4a53-9f3f-{index:012x}") for index in range(1000)]
    tenths = [sum(share // 0.1 == tenth for share in shares) for tenth in range(10)]

    assert min(tenths) > 50


# --- the platform, played by both readings of the hour ----------------------------------------------------------------


class Reading(Enum):
    """What an hour may mean."""

    EXTENDS = auto()
    """A refresh extends a task past its hour."""
    FROM_CREATION = auto()
    """A task ends an hour after its creation, whatever anybody refreshes."""


class Fate(Enum):
    """What may become of a command."""

    DONE = auto()
    LOST_BEFORE = auto()
    """It never arrived, and nobody says so."""
    LOST_AFTER = auto()
    """All was done, and the answer was lost."""
    REFUSED = auto()
    """Every call is answered with 500, and nothing is done."""


@dataclass
class Platform:
    """The tasks of one terminal in a sprite, on the platform's own clock."""

    reading: Reading
    expire: timedelta
    tasks: dict[int, tuple[timedelta, timedelta]] = field(default_factory=dict)

    def live(self, now: timedelta) -> list[int]:
        return [slot for slot, (_, end) in self.tasks.items() if now < end]

    def apply(self, call: SlotCall, now: timedelta) -> None:
        self.tasks = {slot: self.tasks[slot] for slot in self.live(now)}
        if isinstance(call, Remove):
            self.tasks.pop(call.slot, None)
            return
        start, _ = self.tasks.get(call.slot, (now, now))
        end = now + self.expire
        self.tasks[call.slot] = (
            start,
            min(end, start + PLATFORM_HOUR) if self.reading is Reading.FROM_CREATION else end,
        )


def live_through(
    platform: Platform,
    rules: HoldRules,
    fates: Iterator[Fate],
    *,
    luck: float,
    hours: float,
    check: Callable[[timedelta], None],
) -> tuple[HoldBook, timedelta]:
    """Keep a hold for some hours; `check` is told each moment at which something was done, from the first answer on."""
    book, now, begun = HoldBook(luck=luck), timedelta(0), False
    while now < timedelta(hours=hours):
        step = plan_hold(book, VIEWER, rules, sprite=SpriteState.RUNNING, now=now)
        if not step.calls:
            assert step.after is not None
            now += step.after
            continue
        book, fate = note_sent(book, step.calls, now=now), next(fates)
        now += timedelta(milliseconds=150)
        for call in step.calls:
            if begun:
                check(now)
            if fate in (Fate.DONE, Fate.LOST_AFTER):
                platform.apply(call, now)
        now += timedelta(milliseconds=150)
        if fate in (Fate.LOST_BEFORE, Fate.LOST_AFTER):
            now += timedelta(seconds=10)
            book = note_lost(book, rules, now=now)
        for call in book.in_flight:
            verdict: Verdict = Done(200) if fate is Fate.DONE else Failed(TaskTrouble.STATUS, 0, 500)
            book = note_verdict(book, call, verdict, rules, now=now)
        begun = begun or fate is Fate.DONE
        if begun:
            check(now)
    return book, now


@pytest.mark.case("C3", "H8")
@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize(
    "rules",
    [
        RULES,
        HoldRules(timedelta(seconds=30), timedelta(seconds=6)),
        HoldRules(timedelta(seconds=30), timedelta(seconds=15)),
        HoldRules(timedelta(seconds=3600), timedelta(seconds=1800)),
        HoldRules(timedelta(seconds=3600), timedelta(seconds=60)),
    ],
    ids=lambda rules: f"{rules.expire.seconds}-{rules.refresh.seconds}",
)
def test_under_both_readings_of_the_hour_there_is_a_task_at_every_moment_and_none_is_left(
    reading: Reading, rules: HoldRules
) -> None:
    platform = Platform(reading, rules.expire)
    counts = set()

    def check(now: timedelta) -> None:
        counts.add(len(platform.live(now)))

    book, now = live_through(platform, rules, repeat(Fate.DONE), luck=0.3, hours=7, check=check)

    assert counts == {1, 2}
    assert is_surely_held(book, rules, now)
    for call in plan_hold(book, IDLE, rules, sprite=SpriteState.RUNNING, now=now).calls:
        platform.apply(call, now)
    assert platform.live(now) == []


@pytest.mark.parametrize("reading", list(Reading))
@given(fates=st.lists(st.sampled_from(Fate), max_size=80), luck=st.floats(0, 0.99))
@settings(deadline=None, max_examples=60)
def test_failures_leave_no_gap_as_long_as_no_outage_outlasts_the_slack(
    reading: Reading, fates: list[Fate], luck: float
) -> None:
    """At most three failures in a row: with 300 s and 60 s that is an outage the hold must survive."""
    platform = Platform(reading, RULES.expire)

    def bounded() -> Iterator[Fate]:
        failed = 0
        for fate in fates:
            failed = 0 if fate is Fate.DONE or failed == 3 else failed + 1
            yield Fate.DONE if failed == 0 else fate
        yield from repeat(Fate.DONE)

    def check(now: timedelta) -> None:
        assert platform.live(now)

    book, now = live_through(platform, RULES, bounded(), luck=luck, hours=2.2, check=check)

    for slot in platform.live(now):
        known = book.tasks[slot]
        assert known is not None
        assert known.created <= platform.tasks[slot][0]
        assert is_held(book, now)


# --- the round --------------------------------------------------------------------------------------------------------


def entry(name: str, book: HoldBook | None, work: Work = VIEWER, *, recorded: bool = False) -> HoldEntry:
    return HoldEntry(name, build_key("default", name, name), book, recorded, work, RULES)


def test_a_round_sends_nothing_to_a_paused_sprite() -> None:
    for state in (SpriteState.WARM, SpriteState.COLD, SpriteState.UNKNOWN):
        assert plan_round([entry("a", HoldBook()), entry("b", None)], sprite=state, now=NOW) == Quiet(None)


def test_a_round_reads_the_list_before_it_makes_a_hold_or_ends_a_recorded_one_and_else_never() -> None:
    running = SpriteState.RUNNING

    assert plan_round([entry("a", None)], sprite=running, now=NOW) == ReadTasks()
    assert plan_round([entry("a", None, IDLE, recorded=True)], sprite=running, now=NOW) == ReadTasks()
    assert plan_round([entry("a", None, IDLE)], sprite=running, now=NOW) == Quiet(None)
    assert plan_round([], sprite=running, now=NOW) == Quiet(None)


@pytest.mark.case("C8")
def test_a_round_carries_all_that_is_due_together_and_keeps_each_terminals_order() -> None:
    turning = book_of(held(6_700_000, 9_990_000), held(3_000_000, 9_990_000))
    step = plan_round(
        [entry("a", HoldBook()), entry("b", turning), entry("c", book_of(held(9_990_000, 9_990_000)), IDLE)],
        sprite=SpriteState.RUNNING,
        now=NOW,
    )

    assert isinstance(step, SendCalls)
    b = build_key("default", "b", "b")
    assert [(sent.uid, sent.calls) for sent in step.entries] == [
        ("a", (Upsert(0),)),
        ("b", (Remove(1), Upsert(1))),
        ("c", (Remove(0),)),
    ]
    assert step.entries[1].tasks == (RemoveTask(name_task(b, 1)), UpsertTask(name_task(b, 1), RULES.expire))


@pytest.mark.parametrize(("age", "joins"), [(30_000, True), (29_999, False), (59_999, True)])
def test_what_would_be_due_within_half_an_interval_goes_with_a_round_that_goes_anyway(age: int, joins: bool) -> None:
    due = entry("due", book_of(held(9_940_000, 9_940_000)))
    young = entry("young", book_of(held(10_000_000 - age, 10_000_000 - age)))
    step = plan_round([young, due], sprite=SpriteState.RUNNING, now=NOW)

    assert isinstance(step, SendCalls)
    assert [sent.uid for sent in step.entries] == (["young", "due"] if joins else ["due"])
    assert isinstance(plan_round([young], sprite=SpriteState.RUNNING, now=NOW), Quiet)


def test_a_quiet_round_waits_for_the_first_of_its_terminals() -> None:
    entries = [entry(str(age), book_of(held(10_000_000 - age, 10_000_000 - age))) for age in (10_000, 25_000)]

    assert plan_round(entries, sprite=SpriteState.RUNNING, now=NOW) == Quiet(35 * SECOND)


def test_terminals_of_one_sprite_fall_into_step_and_cost_as_many_commands_as_one_alone() -> None:
    def count(uids: list[str]) -> int:
        books = {uid: HoldBook(luck=spread_beats(uid)) for uid in uids}
        now, commands = timedelta(0), 0
        while now < timedelta(minutes=50):
            entries = [entry(uid, book) for uid, book in books.items()]
            match plan_round(entries, sprite=SpriteState.RUNNING, now=now):
                case SendCalls(entries=sent):
                    commands += 1
                    for one in sent:
                        books[one.uid] = send(books[one.uid], one.calls, now)
                case Quiet(after=after):
                    assert after is not None
                    now += after
                case ReadTasks():
                    pytest.fail("All books are known.")
        return commands

    alone = count(["uid-1"])

    assert count([f"uid-{index}" for index in range(10)]) <= alone * 1.1


# --- what the status says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("book", "work", "status", "reason"),
    [
        (None, VIEWER, ConditionStatus.FALSE, Reason.NOT_HELD),
        (HoldBook(), IDLE, ConditionStatus.FALSE, Reason.NOT_HELD),
        (HoldBook(), LetGo(NoWork.NOT_WANTED), ConditionStatus.FALSE, Reason.NOT_WANTED),
        (book_of(held(9_990_000, 9_990_000)), VIEWER, ConditionStatus.TRUE, Reason.HOLD_ACTIVE),
        (book_of(held(9_990_000, 9_990_000)), LetGo(NoWork.NOT_WANTED), ConditionStatus.TRUE, Reason.HOLD_ACTIVE),
        (book_of(held(9_700_001, 9_700_001)), VIEWER, ConditionStatus.TRUE, Reason.HOLD_ACTIVE),
        (book_of(held(9_700_000, 9_700_000)), VIEWER, ConditionStatus.UNKNOWN, Reason.HOLD_UNCLEAR),
        (book_of(held(9_990_000, None)), VIEWER, ConditionStatus.UNKNOWN, Reason.HOLD_UNCLEAR),
        (book_of(held(6_400_001, 9_990_000)), VIEWER, ConditionStatus.TRUE, Reason.HOLD_ACTIVE),
        (book_of(held(6_400_000, 9_990_000)), VIEWER, ConditionStatus.UNKNOWN, Reason.HOLD_UNCLEAR),
        (book_of(held(9_000_000, 9_000_000)), VIEWER, ConditionStatus.FALSE, Reason.NOT_HELD),
    ],
)
def test_held_is_true_on_answered_calls_alone_and_flips_both_ways(
    book: HoldBook | None, work: Work, status: ConditionStatus, reason: Reason
) -> None:
    held = judge_held(book, work, RULES, now=NOW)

    assert (held.status, held.reason) == (status, reason)
    assert bool(held.message) == (reason is Reason.NOT_HELD)


@pytest.mark.parametrize(
    ("work", "sprite", "trouble", "told"),
    [
        (VIEWER, SpriteState.RUNNING, None, "The hold is being set."),
        (VIEWER, SpriteState.WARM, None, "it begins when the sprite is next seen running."),
        (VIEWER, SpriteState.UNKNOWN, TaskTrouble.CURL_MISSING, "it begins when the sprite is next seen running."),
        (VIEWER, SpriteState.RUNNING, TaskTrouble.CURL_MISSING, "the sprite has no curl, by which holds are set: "),
        (IDLE, SpriteState.RUNNING, TaskTrouble.CURL_MISSING, "nothing was active within 120 s."),
        (LetGo(NoWork.NOT_SEEN), SpriteState.RUNNING, None, "what cannot be seen starts no hold. Attach, tell of"),
        (LetGo(NoWork.SESSION_ENDED), SpriteState.RUNNING, None, "There is no session to hold for"),
        (LetLapse(), SpriteState.RUNNING, None, "until `spec.suspend` is false."),
    ],
)
def test_why_nothing_is_held_is_told(work: Work, sprite: SpriteState, trouble: TaskTrouble | None, told: str) -> None:
    held = judge_held(HoldBook(), work, RULES, now=NOW, sprite=sprite, trouble=trouble)

    assert told in held.message


def test_a_task_that_may_be_there_after_a_failed_call_says_why_the_call_failed() -> None:
    unclear = book_of(held(9_990_000, None))

    told = judge_held(unclear, VIEWER, RULES, now=NOW, trouble=TaskTrouble.CURL_MISSING)
    assert (told.reason, "has no curl" in told.message) == (Reason.HOLD_UNCLEAR, True)
    assert judge_held(unclear, IDLE, RULES, now=NOW, trouble=TaskTrouble.CURL_MISSING).message == ""


@pytest.mark.parametrize("trouble", list(TaskTrouble))
def test_every_trouble_of_a_hold_has_its_sentence(trouble: TaskTrouble) -> None:
    held = judge_held(None, VIEWER, RULES, now=NOW, trouble=trouble)

    assert held.message.startswith(f"{WORK_WAITS} the ")
    assert held.message.endswith(" It is tried again; the operator's log says more.")


def test_a_status_names_the_hold_by_what_both_names_share_and_keeps_its_beginning() -> None:
    book = book_of(held(6_700_000, 9_990_000))
    first = describe_hold(None, KEY, book, VIEWER, RULES, now=NOW, now_time=NOON)
    assert first == HoldStatus(task=name_base(KEY), since=NOON, cause="Viewer", expiry_time=NOON + 290 * SECOND)

    turned, _ = follow(book, AGENT, NOW)
    later = NOON + timedelta(minutes=1)
    second = describe_hold(first, KEY, turned, AGENT, RULES, now=NOW, now_time=later)
    assert second == HoldStatus(task=name_base(KEY), since=NOON, cause="Activity", expiry_time=later + 300 * SECOND)

    lapsing = describe_hold(second, KEY, turned, LetLapse(), RULES, now=NOW, now_time=later)
    assert lapsing is not None
    assert lapsing.cause == "Activity"


def test_a_status_says_nothing_of_a_hold_that_is_gone() -> None:
    old = HoldStatus(task="x", since=NOON)

    assert describe_hold(old, KEY, HoldBook(), IDLE, RULES, now=NOW, now_time=NOON) is None
    assert describe_hold(old, KEY, None, IDLE, RULES, now=NOW, now_time=NOON) is None
    assert describe_hold(old, KEY, book_of(held(9_000_000, 9_000_000)), IDLE, RULES, now=NOW, now_time=NOON) is None

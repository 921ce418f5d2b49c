"""Reaping what nobody watches (cases I1 to I9)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.session import Identity, Sprite, SpriteState
from controller.api.terminal import HoldMode, IdlePolicy
from controller.errors import Failure
from controller.plan.activity import Activity, LetGo, NoWork, Presence, WorkFacts, judge_work
from controller.plan.kill import KillEvidence
from controller.plan.looks import NOT_LOOKED, LookFailed, SpriteLook, SpriteSeen
from controller.plan.reap import (
    Armed,
    LookFirst,
    NotArmed,
    Owed,
    Reap,
    ReapFacts,
    ReapPlan,
    ReapProven,
    describe_warning,
    find_idle_since,
    is_reread_due,
    plan_reap,
)
from tests.plan.building import CREATED, MILLISECOND, NOON, NOW, SPRITE_ID, build_away, build_seen

IDENTITY = Identity(SPRITE_ID, "41", CREATED)
HALF_HOUR = timedelta(minutes=30)
WINDOW = timedelta(minutes=2)
BUSY = Activity(NOON - timedelta(seconds=1), observable=True)
STALE = Activity(NOON - timedelta(hours=1), observable=True)

BASE = ReapFacts(
    identity=IDENTITY,
    live=True,
    attached=False,
    suspended=False,
    idle_timeout=HALF_HOUR,
    policy=IdlePolicy.DETACHED,
    detached_time=NOON - HALF_HOUR,
    activity=STALE,
    idle_after=WINDOW,
    warned_for=None,
    begun=False,
    settled=False,
    sprite=build_seen(),
    last_wake_time=None,
    now=NOW,
    now_time=NOON,
)


def reap(**fields: Any) -> ReapPlan:
    return plan_reap(replace(BASE, **fields))


def armed(age: timedelta, **fields: Any) -> Armed:
    step = reap(detached_time=NOON - age, **fields)
    assert isinstance(step, Armed), step
    return step


@pytest.mark.case("I1")
@pytest.mark.parametrize(
    ("age", "due"),
    [(HALF_HOUR - MILLISECOND, False), (HALF_HOUR, True), (HALF_HOUR + MILLISECOND, True), (timedelta(days=9), True)],
)
def test_exactly_half_an_hour_after_the_last_viewer_left_it_is_due(age: timedelta, due: bool) -> None:
    """By the session's id, so it is reached even if every socket to it died long before."""
    assert isinstance(reap(detached_time=NOON - age), Reap if due else Armed)


@pytest.mark.case("I2")
def test_a_viewer_who_joins_disarms_it_and_the_old_deadline_means_nothing() -> None:
    assert reap(attached=True) == NotArmed()
    assert reap(attached=True, detached_time=None) == NotArmed()


@pytest.mark.case("I3")
def test_one_of_two_viewers_leaving_arms_nothing() -> None:
    """The product's own form: somebody is still attached, and no moment of leaving is recorded."""
    assert reap(attached=True, detached_time=None) == NotArmed()


@pytest.mark.case("I4")
def test_after_a_reap_nothing_is_armed_and_nothing_held() -> None:
    assert reap(live=False) == NotArmed()
    assert judge_ended() == LetGo(NoWork.SESSION_ENDED)


@pytest.mark.case("I5", "T8")
def test_a_process_that_ends_by_itself_gets_no_kill_and_cancels_the_reap_and_the_hold() -> None:
    waiting = {"detached_time": NOON - timedelta(minutes=29)}
    assert isinstance(reap(**waiting), Armed)

    assert reap(**waiting, live=False) == NotArmed()
    assert judge_ended() == LetGo(NoWork.SESSION_ENDED)


def judge_ended() -> object:
    """What a session that has ended is held for, whatever speaks for a hold."""
    return judge_work(
        WorkFacts(
            live=False,
            wanted=True,
            mode=HoldMode.ALWAYS,
            suspended=False,
            presence=Presence.WATCHED,
            activity=BUSY,
            held=True,
            idle_after=WINDOW,
            now=NOON,
        )
    )


@pytest.mark.case("I6")
def test_a_session_that_starts_unwatched_is_armed_from_its_start() -> None:
    """Its start is in `detachedTime`; before that is written the full time counts from now."""
    assert armed(timedelta(0)).after == timedelta(minutes=25)
    assert reap(detached_time=None) == Armed(NOON, timedelta(minutes=25))


@pytest.mark.case("I7")
def test_arming_again_a_second_before_the_deadline_moves_it_by_the_full_time() -> None:
    assert armed(HALF_HOUR - timedelta(seconds=1)).after == timedelta(seconds=1)

    again = replace(BASE, detached_time=NOON)
    assert isinstance(plan_reap(replace(again, now_time=NOON + timedelta(seconds=1))), Armed)
    assert isinstance(plan_reap(replace(again, now_time=NOON + HALF_HOUR - MILLISECOND)), Armed)
    assert plan_reap(replace(again, now_time=NOON + HALF_HOUR)) == Reap()


@pytest.mark.case("I8")
def test_a_mere_look_does_not_arm_again() -> None:
    assert plan_reap(replace(BASE, sprite=build_seen(age=timedelta(seconds=1)))) == Reap()
    assert plan_reap(BASE) == plan_reap(BASE) == Reap()


@pytest.mark.case("I9")
def test_a_watched_session_is_not_reaped_however_quiet_its_socket_is() -> None:
    for hours in (1, 24, 24 * 365):
        assert reap(attached=True, detached_time=NOON - timedelta(hours=hours)) == NotArmed()


@pytest.mark.parametrize(
    ("timeout", "step"),
    [
        (timedelta(0), NotArmed()),
        (timedelta(seconds=1), Reap()),
        (timedelta(days=365), Armed(NOON - HALF_HOUR, timedelta(days=365) - HALF_HOUR - timedelta(minutes=5))),
    ],
)
def test_zero_means_never_and_every_other_time_is_a_time(timeout: timedelta, step: ReapPlan) -> None:
    assert reap(idle_timeout=timeout) == step


def test_output_does_not_postpone_it_unless_the_policy_says_so() -> None:
    assert reap(activity=BUSY) == Reap()
    assert isinstance(reap(activity=BUSY, policy=IdlePolicy.INACTIVE), Armed)


@pytest.mark.parametrize(
    ("age", "due"), [(HALF_HOUR - MILLISECOND, False), (HALF_HOUR, True), (timedelta(hours=2), True)]
)
def test_inactive_counts_from_the_last_activity_that_anybody_saw(age: timedelta, due: bool) -> None:
    fields = {"policy": IdlePolicy.INACTIVE, "detached_time": NOON - timedelta(hours=1)}
    for observable in (True, False):
        step = reap(**fields, activity=Activity(NOON - age, observable=observable))
        assert isinstance(step, Reap if due else Armed)


def test_inactive_without_any_activity_counts_from_the_leaving() -> None:
    unseen = Activity(None, observable=False)

    assert reap(policy=IdlePolicy.INACTIVE, activity=unseen) == Reap()


def test_activity_before_the_leaving_does_not_shorten_the_time() -> None:
    facts = replace(BASE, policy=IdlePolicy.INACTIVE, detached_time=NOON)

    assert find_idle_since(facts) == NOON


# --- the warning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("age", "warn", "after"),
    [
        (timedelta(minutes=25) - MILLISECOND, False, MILLISECOND),
        (timedelta(minutes=25), True, timedelta(minutes=5)),
        (HALF_HOUR - MILLISECOND, True, MILLISECOND),
    ],
)
def test_a_busy_terminal_is_announced_five_minutes_before(age: timedelta, warn: bool, after: timedelta) -> None:
    step = armed(age, activity=BUSY)

    assert (step.warn, step.after) == (warn, after)


@pytest.mark.parametrize(("age", "warn"), [(WINDOW - MILLISECOND, True), (WINDOW, False), (timedelta(hours=1), False)])
def test_a_terminal_is_busy_within_the_idle_window_and_an_idle_one_is_not_announced(age: timedelta, warn: bool) -> None:
    assert armed(timedelta(minutes=26), activity=Activity(NOON - age, observable=True)).warn == warn


def test_it_is_announced_once_for_each_leaving() -> None:
    left = NOON - timedelta(minutes=26)

    assert armed(timedelta(minutes=26), activity=BUSY).since == left
    assert not armed(timedelta(minutes=26), activity=BUSY, warned_for=left).warn
    assert armed(timedelta(minutes=26), activity=BUSY, warned_for=left - HALF_HOUR).warn


def test_where_activity_postpones_the_end_nothing_is_announced() -> None:
    short = timedelta(minutes=1)
    step = reap(policy=IdlePolicy.INACTIVE, activity=BUSY, idle_timeout=short)

    assert step == Armed(NOON - timedelta(seconds=1), timedelta(seconds=59))


def test_the_announcement_names_the_session_the_time_and_the_ways_out() -> None:
    warning = describe_warning(BASE, timedelta(minutes=4, seconds=59, milliseconds=900))

    assert warning.warning
    assert "Session 41" in warning.note
    assert "4 min 59 s" in warning.note
    assert "idleTimeoutSeconds" in warning.note


def test_an_end_that_is_close_is_not_announced_as_no_time_at_all() -> None:
    assert "it ends in less than a second." in describe_warning(BASE, timedelta(milliseconds=900)).note
    assert "it ends in 0 min 1 s." in describe_warning(BASE, timedelta(seconds=1)).note


# --- the sprite, the suspension and a kill that has begun -------------------------------------------------------------


@pytest.mark.parametrize(
    ("sprite", "step"),
    [
        pytest.param(build_seen(SpriteState.RUNNING), Reap(), id="running"),
        pytest.param(build_seen(SpriteState.UNKNOWN), Reap(), id="a state that is not told is not a pause"),
        pytest.param(build_seen(SpriteState.WARM), Owed(), id="warm"),
        pytest.param(build_seen(SpriteState.COLD), ReapProven(KillEvidence.SPRITE_COLD), id="cold is proof"),
        pytest.param(NOT_LOOKED, LookFirst(), id="nobody looked"),
        pytest.param(build_seen(age=timedelta(seconds=60)), Reap(), id="a look of a minute ago"),
        pytest.param(build_seen(age=timedelta(seconds=60) + MILLISECOND), LookFirst(), id="an older look"),
        pytest.param(build_away(confirmed=False), Reap(), id="away: the kill's plan says what it means"),
        pytest.param(LookFailed(Failure.SERVER, "", NOW), Reap(), id="failed: the kill's plan says what it means"),
    ],
)
def test_a_due_reap_asks_whether_the_sprite_runs_and_never_wakes_it(sprite: SpriteLook, step: ReapPlan) -> None:
    assert reap(sprite=sprite) == step


@pytest.mark.parametrize(
    ("since_creation", "since_wake", "proven"),
    [
        (timedelta(seconds=120), None, True),
        (timedelta(seconds=120) - MILLISECOND, None, False),
        (timedelta(hours=1), timedelta(seconds=120), True),
        (timedelta(hours=1), timedelta(seconds=120) - MILLISECOND, False),
    ],
)
def test_cold_proves_a_due_reap_by_the_rule_for_kills_and_else_it_is_owed(
    since_creation: timedelta, since_wake: timedelta | None, proven: bool
) -> None:
    step = reap(
        identity=replace(IDENTITY, created=NOON - since_creation),
        sprite=build_seen(SpriteState.COLD),
        last_wake_time=None if since_wake is None else NOON - since_wake,
    )

    assert step == (ReapProven(KillEvidence.SPRITE_COLD) if proven else Owed())


def test_suspension_stops_a_reap_that_has_not_begun_and_lets_a_begun_one_finish() -> None:
    assert reap(suspended=True) == NotArmed()
    assert reap(suspended=True, begun=True) == Reap()


def test_somebody_who_attaches_stops_a_begun_reap_and_not_one_that_waits_for_its_proof() -> None:
    assert reap(attached=True, begun=True) == NotArmed()
    assert reap(attached=True, begun=True, settled=True) == Reap()


def test_a_failed_reap_is_due_again_and_never_forgotten() -> None:
    """The product's own form: nothing but the proof of the end, or somebody who comes, ends it."""
    for days in range(3):
        later = replace(
            BASE,
            begun=True,
            now=NOW + timedelta(days=days),
            now_time=NOON + timedelta(days=days),
            sprite=SpriteSeen(Sprite(SPRITE_ID, "my-sprite", SpriteState.RUNNING), NOW + timedelta(days=days), NOON),
        )
        assert plan_reap(later) == Reap()


@pytest.mark.parametrize(
    ("age", "due"),
    [(None, True), (timedelta(0), False), (timedelta(seconds=1), False), (timedelta(seconds=1) + MILLISECOND, True)],
)
def test_the_object_is_read_again_within_a_second_before_sigkill(age: timedelta | None, due: bool) -> None:
    assert is_reread_due(None if age is None else NOW - age, now=NOW) == due


MOMENTS = st.datetimes(timezones=st.just(UTC))
LOOKS = st.sampled_from([NOT_LOOKED, LookFailed(Failure.SERVER, "", NOW), build_away(confirmed=True)]) | st.builds(
    build_seen, st.sampled_from(SpriteState)
)
FACTS = st.builds(
    ReapFacts,
    identity=st.just(IDENTITY),
    live=st.booleans(),
    attached=st.booleans(),
    suspended=st.booleans(),
    idle_timeout=st.timedeltas(timedelta(0), timedelta(days=365)),
    policy=st.sampled_from(IdlePolicy),
    detached_time=st.none() | MOMENTS,
    activity=st.builds(Activity, st.none() | MOMENTS, st.booleans()),
    idle_after=st.timedeltas(timedelta(0), timedelta(days=1)),
    warned_for=st.none() | MOMENTS,
    begun=st.booleans(),
    settled=st.booleans(),
    sprite=LOOKS,
    last_wake_time=st.none(),
    now=st.just(NOW),
    now_time=MOMENTS,
)


@given(FACTS)
def test_every_moment_has_an_answer_and_the_great_rules_hold(facts: ReapFacts) -> None:
    step = plan_reap(facts)
    due = facts.now_time - find_idle_since(facts) >= facts.idle_timeout

    assert step == plan_reap(facts)
    if isinstance(step, Armed):
        assert timedelta(0) < step.after <= max(facts.idle_timeout, facts.idle_timeout - (facts.now_time - step.since))
        assert not due
    if isinstance(step, Reap | Owed | ReapProven | LookFirst):
        assert facts.live
        assert facts.settled or due
        assert facts.settled or not facts.attached
        assert facts.settled or facts.idle_timeout > timedelta(0)
    if isinstance(step, Reap) and isinstance(facts.sprite, SpriteSeen) and not facts.settled:
        assert facts.sprite.sprite.state not in (SpriteState.WARM, SpriteState.COLD)


@given(st.timedeltas(timedelta(0), timedelta(days=2)), st.timedeltas(timedelta(seconds=1), timedelta(days=1)))
def test_a_restart_at_any_moment_changes_no_deadline(age: timedelta, timeout: timedelta) -> None:
    """Everything that counts is in the status: the same facts, read by another process, say the same."""
    before = replace(BASE, detached_time=NOON - age, idle_timeout=timeout)
    after = replace(
        before, now=timedelta(seconds=3), warned_for=None, sprite=replace(build_seen(), started=timedelta(0))
    )

    assert type(plan_reap(before)) is type(plan_reap(after))


def test_moments_far_apart_are_no_trouble() -> None:
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)

    assert isinstance(reap(detached_time=last, now_time=first), Armed)
    assert reap(detached_time=first, now_time=last) == Reap()

"""What is worth a hold, and what silence means (cases A1 to A14)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.session import Identity
from controller.api.terminal import HoldMode
from controller.errors import Failure
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
    find_latest,
    find_time_for_reconnect,
    is_agent_running,
    is_hold_idle_too_long,
    judge_work,
    observe_activity,
    read_activity_mark,
)
from controller.plan.looks import NOT_LOOKED, Listed, LookFailed, SessionsLook
from tests.plan.building import CREATED, MILLISECOND, NOON, NOW, SESSION, SPRITE_ID

WINDOW = timedelta(minutes=2)
IDENTITY = Identity(SPRITE_ID, "41", CREATED)
STALE = NOON - timedelta(minutes=30)
FRESH = NOON - timedelta(seconds=1)
TIMES = st.datetimes(timezones=st.just(UTC))

BASE = WorkFacts(
    live=True,
    wanted=True,
    mode=HoldMode.WHILE_ACTIVE,
    suspended=False,
    presence=Presence.NOBODY,
    activity=Activity(STALE, observable=True),
    held=True,
    idle_after=WINDOW,
    now=NOON,
)
IDLE = LetGo(NoWork.IDLE)
UNSEEN = HoldFor(HoldCause.UNSEEN)
ACTIVE = HoldFor(HoldCause.ACTIVITY)


def observe(
    *others: datetime | None,
    sessions: SessionsLook = NOT_LOOKED,
    presence: Presence = Presence.NOBODY,
    hearing: Hearing = Hearing.FROM_START,
    occasion: Occasion = Occasion.BEAT,
) -> Activity:
    return observe_activity(
        IDENTITY,
        sessions,
        others=others,
        presence=presence,
        hearing=hearing,
        occasion=occasion,
        now=NOW,
        now_time=NOON,
    )


def work(activity: Activity, *, held: bool = True, presence: Presence = Presence.NOBODY) -> Work:
    return judge_work(replace(BASE, activity=activity, held=held, presence=presence))


def tell(time: datetime | None, *, age: timedelta = timedelta(0), created: datetime | None = CREATED) -> Listed:
    """A list in which the session says when it was last active."""
    return Listed((replace(SESSION, created=created, last_activity=time),), NOW - age)


@pytest.mark.case("A1")
@pytest.mark.parametrize(
    ("age", "running"),
    [
        (timedelta(milliseconds=1_000), True),
        (timedelta(milliseconds=119_999), True),
        (timedelta(milliseconds=120_000), False),
        (timedelta(milliseconds=120_001), False),
        (timedelta(0), True),
    ],
)
def test_activity_younger_than_the_window_means_running(age: timedelta, running: bool) -> None:
    assert is_agent_running(NOON - age, idle_after=WINDOW, now=NOON) == running


@pytest.mark.case("A1")
def test_activity_that_never_was_means_idle() -> None:
    assert not is_agent_running(None, idle_after=WINDOW, now=NOON)


@pytest.mark.case("A2")
@pytest.mark.parametrize(
    ("one", "other", "latest"),
    [(STALE, FRESH, FRESH), (FRESH, STALE, FRESH), (None, STALE, STALE), (STALE, None, STALE), (None, None, None)],
)
def test_the_latest_activity_is_the_later_one_and_absent_only_if_both_are(
    one: datetime | None, other: datetime | None, latest: datetime | None
) -> None:
    assert find_latest([one, other]) == latest
    assert observe(one, other).latest == latest


@pytest.mark.case("A2")
def test_the_first_moment_of_all_is_a_time_and_not_an_absence() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)

    assert find_latest([None, epoch]) == epoch


@pytest.mark.case("A3")
def test_a_launch_that_has_printed_nothing_counts_as_activity() -> None:
    launched = NOON - timedelta(seconds=2)

    assert work(observe(launched, None), held=False) == ACTIVE


@pytest.mark.case("A4")
def test_what_was_typed_a_second_before_the_last_viewer_left_keeps_the_hold() -> None:
    typed = NOON - timedelta(seconds=1)

    assert work(observe(STALE, typed, occasion=Occasion.LEAVING)) == ACTIVE


@pytest.mark.case("A5")
def test_work_that_only_the_agent_knows_of_counts_when_it_is_patched_into_the_annotation() -> None:
    """The product's own form: the other way of running is told by the annotation, or at the gateway's door."""
    mark = read_activity_mark("2026-11-30T11:59:30.250Z", now=NOON)

    assert mark == NOON - timedelta(seconds=29, milliseconds=750)
    assert work(observe(STALE, mark), held=False) == ACTIVE


@pytest.mark.case("A7")
def test_stale_silence_at_the_last_viewers_leaving_is_believed_of_a_session_heard_from_its_start() -> None:
    assert work(observe(STALE, hearing=Hearing.FROM_START, occasion=Occasion.LEAVING)) == IDLE
    assert work(observe(STALE, hearing=Hearing.SPOKEN, occasion=Occasion.LEAVING)) == IDLE


@pytest.mark.case("A8")
def test_the_silence_of_a_resumed_session_that_never_said_a_byte_is_not_believed() -> None:
    assert work(observe(STALE, hearing=Hearing.SILENT, occasion=Occasion.LEAVING)) == UNSEEN


@pytest.mark.case("A9")
@pytest.mark.parametrize("hearing", list(Hearing))
def test_a_beat_without_a_viewer_hears_nothing_and_keeps_the_hold(hearing: Hearing) -> None:
    activity = observe(STALE, hearing=hearing)

    assert not activity.observable
    assert work(activity) == UNSEEN


@pytest.mark.case("A9")
def test_a_list_that_tells_is_sight_without_a_viewer() -> None:
    """The product's own form: activity is observable when the session list tells of it, whoever watches."""
    activity = observe(sessions=tell(STALE))

    assert activity == Activity(STALE, observable=True)
    assert work(activity) == IDLE


@pytest.mark.parametrize(("age", "seen"), [(timedelta(seconds=5), True), (timedelta(seconds=5, milliseconds=1), False)])
def test_a_list_shows_the_present_for_five_seconds(age: timedelta, seen: bool) -> None:
    assert observe(sessions=tell(STALE, age=age)).observable == seen


@pytest.mark.parametrize(
    "sessions",
    [
        pytest.param(tell(None), id="the entry does not tell"),
        pytest.param(tell(STALE, created=CREATED + timedelta(seconds=5)), id="another session has the id"),
        pytest.param(Listed((replace(SESSION, id="42", last_activity=FRESH),), NOW), id="a sibling's activity"),
        pytest.param(Listed((), NOW), id="not listed"),
        pytest.param(LookFailed(Failure.SERVER, "", NOW), id="the look failed"),
        pytest.param(NOT_LOOKED, id="nobody looked"),
    ],
)
def test_a_list_that_says_nothing_of_this_session_is_no_sight(sessions: SessionsLook) -> None:
    assert observe(sessions=sessions) == Activity(None, observable=False)


def test_a_listed_activity_in_the_future_is_one_of_now() -> None:
    assert observe(sessions=tell(NOON + timedelta(hours=1))).latest == NOON


@pytest.mark.case("A10")
def test_blindness_never_makes_a_hold() -> None:
    assert work(observe(STALE), held=False) == LetGo(NoWork.NOT_SEEN)
    assert work(observe(), held=False) == LetGo(NoWork.NOT_SEEN)


@pytest.mark.case("A11")
def test_a_hold_kept_blindly_ends_with_the_session_whether_it_exits_or_is_reaped() -> None:
    blind = replace(BASE, activity=observe(STALE))

    assert judge_work(blind) == UNSEEN
    assert judge_work(replace(blind, live=False)) == LetGo(NoWork.SESSION_ENDED)


@pytest.mark.case("A12")
def test_a_viewer_whose_socket_is_down_on_purpose_counts_as_nobody_and_is_sight() -> None:
    activity = observe(STALE, presence=Presence.QUIETED)

    assert activity.observable
    assert work(activity, presence=Presence.QUIETED) == IDLE
    assert work(activity, presence=Presence.WATCHED, held=False) == HoldFor(HoldCause.VIEWER)


@pytest.mark.case("A13")
def test_letting_go_needs_sight_and_the_lack_of_it_pins_a_hold() -> None:
    assert work(Activity(STALE, observable=False)) == UNSEEN
    assert work(Activity(STALE, observable=True)) == IDLE


@pytest.mark.case("A14")
def test_a_resumed_agent_without_a_byte_gives_the_reconnect_rule_no_time() -> None:
    activity = observe(STALE)

    assert find_time_for_reconnect(activity, Hearing.SILENT) is None
    assert find_time_for_reconnect(activity, Hearing.SPOKEN) == STALE
    assert find_time_for_reconnect(activity, Hearing.FROM_START) == STALE


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        pytest.param({}, IDLE, id="idle"),
        pytest.param({"wanted": False}, LetGo(NoWork.NOT_WANTED), id="not wanted"),
        pytest.param({"suspended": True}, LetLapse(), id="suspended: it ends within its expiry"),
        pytest.param({"suspended": True, "presence": Presence.WATCHED}, LetLapse(), id="suspended outranks a viewer"),
        pytest.param({"suspended": True, "mode": HoldMode.ALWAYS}, LetLapse(), id="suspended outranks always"),
        pytest.param({"suspended": True, "wanted": False}, LetGo(NoWork.NOT_WANTED), id="suspended and not wanted"),
        pytest.param({"mode": HoldMode.ALWAYS}, HoldFor(HoldCause.ALWAYS), id="always, though idle"),
        pytest.param({"mode": HoldMode.ALWAYS, "wanted": False}, LetGo(NoWork.NOT_WANTED), id="always, not wanted"),
        pytest.param({"mode": HoldMode.ALWAYS, "live": False}, LetGo(NoWork.SESSION_ENDED), id="always, ended"),
        pytest.param({"presence": Presence.WATCHED}, HoldFor(HoldCause.VIEWER), id="a viewer of an idle agent"),
        pytest.param({"presence": Presence.WATCHED, "live": False}, LetGo(NoWork.SESSION_ENDED), id="ended"),
    ],
)
def test_an_end_and_what_a_person_declared_outrank_what_is_seen(fields: dict[str, Any], verdict: Work) -> None:
    assert judge_work(replace(BASE, **fields)) == verdict


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-30T12:00:00Z", NOON),
        ("2026-11-30T13:00:00+01:00", NOON),
        ("2026-11-30T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2026-11-30T12:01:00Z", NOON + timedelta(minutes=1)),
        ("2026-11-30T12:01:00.001Z", None),
        ("2999-01-01T00:00:00Z", None),
        ("1999-01-01T00:00:00Z", datetime(1999, 1, 1, tzinfo=UTC)),
        (None, None),
        ("", None),
        ("now", None),
        ("1764504000", None),
        ("2026-11-30", None),
        ("2026-11-30T12:00:00", None),
        ("2026-11-30 12:00:00Z", None),
        ("2026-11-30t12:00:00z", None),
        ("2026-11-30T12:00:00Z\n", None),
        ("2026-02-30T12:00:00Z", None),
        ("2026-11-30T25:00:00Z", None),
        ("2026-11-30T12:00:60Z", None),
        ("٢٠٢٦-11-30T12:00:00Z", None),
        ("2026-11-30T12:00:00+25:00", None),
    ],
)
def test_the_annotation_is_rfc_3339_at_most_a_minute_ahead_and_nothing_else_counts(
    text: str | None, moment: datetime | None
) -> None:
    assert read_activity_mark(text, now=NOON) == moment


@given(st.text() | st.datetimes().map(lambda time: time.isoformat() + "Z"))
def test_whatever_somebody_patches_nothing_raises_and_nothing_lies_far_ahead(text: str) -> None:
    moment = read_activity_mark(text, now=NOON)

    assert moment is None or moment <= NOON + timedelta(minutes=1)


@pytest.mark.parametrize(
    ("since", "latest", "warns"),
    [
        (timedelta(hours=1), None, True),
        (timedelta(hours=1) - MILLISECOND, None, False),
        (timedelta(hours=2), timedelta(hours=1), True),
        (timedelta(hours=2), timedelta(hours=1) - MILLISECOND, False),
        (timedelta(minutes=5), timedelta(hours=3), False),
    ],
)
def test_an_hour_of_holding_without_activity_is_worth_a_warning(
    since: timedelta, latest: timedelta | None, warns: bool
) -> None:
    active = None if latest is None else NOON - latest

    assert is_hold_idle_too_long(NOON - since, active, now=NOON) == warns


FACTS = st.builds(
    WorkFacts,
    live=st.booleans(),
    wanted=st.booleans(),
    mode=st.sampled_from(HoldMode),
    suspended=st.booleans(),
    presence=st.sampled_from(Presence),
    activity=st.builds(Activity, st.none() | TIMES, st.booleans()),
    held=st.booleans(),
    idle_after=st.timedeltas(min_value=timedelta(0)),
    now=TIMES,
)


@given(FACTS)
def test_the_question_for_work_always_has_an_answer_and_keeps_the_great_rules(facts: WorkFacts) -> None:
    answer = judge_work(facts)

    if isinstance(answer, HoldFor):
        assert facts.live
        assert facts.wanted
        assert not facts.suspended
    if answer == UNSEEN:
        assert facts.held
        assert not facts.activity.observable
    if answer == IDLE:
        assert facts.activity.observable

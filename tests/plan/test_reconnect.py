"""What a bridge does when it connects and when a socket drops (cases R1 to R22, T6)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.session import Identity
from controller.errors import Failure
from controller.plan.activity import Activity, Hearing, find_time_for_reconnect
from controller.plan.hold_book import HoldRules
from controller.plan.looks import Listed, LookFailed
from controller.plan.reconnect import (
    Asked,
    AskRevival,
    Attach,
    AwaitList,
    Bridge,
    DropStep,
    EndTerminal,
    FetchList,
    Ignore,
    ListState,
    NotAsked,
    Retry,
    StayDown,
    note_announced,
    note_ending,
    note_open,
    note_recorded,
    note_wish,
    plan_connect,
    plan_drop,
    plan_exit,
)
from tests.plan.building import CREATED, MILLISECOND, NOON, NOW, SESSION, SPRITE_ID, build_list

KNOWN = Identity(SPRITE_ID, "41", CREATED)
OTHER = Identity(SPRITE_ID, "42", CREATED)
SIBLING = replace(SESSION, id="42")
WINDOW = timedelta(milliseconds=120_000)
FRESH = NOON - timedelta(seconds=1)
SHOWN = Bridge(known=KNOWN, attempt=1)
NAMELESS = Bridge(known=None, attempt=1)
FAILED = LookFailed(Failure.SERVER, "", NOW)


def connect(bridge: Bridge, sessions: ListState) -> Any:
    return plan_connect(bridge, sessions, now=NOW)[1]


def drop(bridge: Bridge, activity: datetime | None = FRESH, *, window: timedelta = WINDOW) -> tuple[Bridge, DropStep]:
    return plan_drop(bridge, bridge.attempt, activity=activity, idle_after=window, now=NOON)


def reopen(bridge: Bridge) -> Bridge:
    """Connect once more, and have it confirmed open."""
    bridge, _ = plan_connect(bridge, build_list(SESSION), now=NOW)
    return note_open(bridge, bridge.attempt)


# --- connecting -------------------------------------------------------------------------------------------------------


@pytest.mark.case("R1")
def test_a_known_session_that_is_listed_is_attached_to() -> None:
    assert connect(SHOWN, build_list(SIBLING, SESSION)) == Attach(KNOWN)


@pytest.mark.case("R2")
@pytest.mark.parametrize("entries", [(), (SIBLING,)])
def test_a_known_session_that_is_not_listed_leads_to_the_rules_of_revival(entries: tuple[Any, ...]) -> None:
    """The product's own form: whether another session follows is the operator's to decide, and the id is dropped."""
    bridge, step = plan_connect(SHOWN, build_list(*entries), now=NOW)

    assert step == AskRevival()
    assert bridge.known is None


@pytest.mark.case("R3", "R4")
@pytest.mark.parametrize("sessions", [NotAsked(), build_list(SESSION, SIBLING), build_list(), FAILED, Asked(NOW)])
def test_without_a_known_session_no_list_is_fetched_and_none_of_one_is_taken(sessions: ListState) -> None:
    """The product's own form: not created by the bridge, but asked for."""
    assert connect(NAMELESS, sessions) == AskRevival()


@pytest.mark.case("R5", "R18")
@pytest.mark.parametrize("failure", list(Failure))
def test_a_list_that_fails_does_not_stop_the_attach_to_the_known_session(failure: Failure) -> None:
    """The bridge attaches on trust; the operator concludes nothing from it."""
    assert connect(SHOWN, LookFailed(failure, "", NOW)) == Attach(KNOWN)


@pytest.mark.case("R6")
@pytest.mark.parametrize("tty", [True, False])
def test_flags_of_an_entry_do_not_count(tty: bool) -> None:
    assert connect(SHOWN, build_list(replace(SESSION, tty=tty, last_activity=None, command=""))) == Attach(KNOWN)


@pytest.mark.case("R6")
def test_an_id_that_was_given_to_another_session_is_not_attached_to() -> None:
    """The product's own form: an identity is id and created time, since ids come again after a cold start."""
    later = replace(SESSION, created=CREATED + timedelta(seconds=1))
    nearly = replace(SESSION, created=CREATED + timedelta(milliseconds=999))

    assert connect(SHOWN, build_list(later)) == AskRevival()
    assert connect(SHOWN, build_list(nearly)) == Attach(KNOWN)
    assert connect(SHOWN, build_list(replace(SESSION, created=None))) == Attach(KNOWN)


@pytest.mark.case("R17")
def test_on_connecting_a_listed_session_is_resumed_and_one_that_is_not_is_forgotten() -> None:
    fresh = Bridge(known=KNOWN)

    assert connect(fresh, NotAsked()) == FetchList()
    assert connect(fresh, build_list(SESSION)) == Attach(KNOWN)
    bridge, step = plan_connect(fresh, build_list(SIBLING), now=NOW)
    assert step == AskRevival()
    assert bridge.known is None


@pytest.mark.case("R18")
@pytest.mark.parametrize(
    ("age", "step"),
    [
        (timedelta(0), AwaitList(timedelta(seconds=5))),
        (timedelta(milliseconds=4_999), AwaitList(MILLISECOND)),
        (timedelta(milliseconds=5_000), Attach(KNOWN)),
        (timedelta(milliseconds=5_001), Attach(KNOWN)),
    ],
)
def test_a_list_that_takes_five_seconds_is_not_waited_for(age: timedelta, step: AwaitList | Attach) -> None:
    assert connect(SHOWN, Asked(NOW - age)) == step


@pytest.mark.case("R16", "T6")
@pytest.mark.parametrize("sessions", [build_list(SESSION), build_list(), FAILED, Asked(NOW - timedelta(seconds=9))])
def test_a_teardown_while_the_list_is_fetched_stops_what_would_follow(sessions: ListState) -> None:
    assert connect(note_ending(SHOWN), sessions) == Ignore()


# --- announcements ----------------------------------------------------------------------------------------------------


@pytest.mark.case("R7")
def test_two_bridges_that_start_at_once_each_learn_their_own_session() -> None:
    one = note_announced(NAMELESS, 1, KNOWN)
    other = note_announced(NAMELESS, 1, OTHER)

    assert (one.known, other.known) == (KNOWN, OTHER)


@pytest.mark.case("R7")
def test_an_empty_id_and_the_late_word_of_a_superseded_socket_are_ignored() -> None:
    assert note_announced(NAMELESS, 1, replace(KNOWN, session_id="")) == NAMELESS
    second = reopen(note_announced(NAMELESS, 1, KNOWN))
    assert second.attempt == 2

    assert note_announced(second, 1, OTHER) == second
    assert note_announced(note_ending(second), 2, OTHER).known == KNOWN


@pytest.mark.case("R8")
def test_of_two_announcements_the_later_one_remains() -> None:
    bridge = note_announced(note_announced(NAMELESS, 1, KNOWN), 1, OTHER)

    assert bridge.known == OTHER


def test_a_session_that_the_operator_recorded_is_the_one_to_attach_to() -> None:
    bridge, _ = plan_connect(SHOWN, build_list(), now=NOW)
    revived = note_recorded(bridge, OTHER)

    assert connect(revived, build_list(SIBLING)) == Attach(OTHER)
    assert note_recorded(note_ending(bridge), OTHER).known is None


# --- drops ------------------------------------------------------------------------------------------------------------


@pytest.mark.case("R10")
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_five_drops_in_a_row_are_retried_200_ms_times_their_number_apart(number: int) -> None:
    bridge, step = drop(replace(SHOWN, failures=number - 1))

    assert step == Retry(timedelta(milliseconds=200 * number))
    assert bridge.failures == number


@pytest.mark.case("R10")
def test_the_sixth_drop_in_a_row_ends_the_terminal_with_minus_one() -> None:
    bridge, step = drop(replace(SHOWN, failures=5))

    assert step == EndTerminal(-1)
    assert bridge.ending


@pytest.mark.case("R12")
def test_three_errors_of_one_open_are_one_drop_and_an_exit_after_them_is_not_believed() -> None:
    bridge, step = drop(SHOWN)
    assert step == Retry(timedelta(milliseconds=200))

    for _ in range(2):
        bridge, step = drop(bridge)
        assert step == Ignore()
    assert plan_exit(bridge, bridge.attempt, 0) == (bridge, Ignore())
    assert bridge.failures == 1


@pytest.mark.case("R12")
@pytest.mark.parametrize("code", [0, 1, 137])
def test_an_exit_without_an_error_before_it_is_real(code: int) -> None:
    bridge, step = plan_exit(SHOWN, 1, code)

    assert step == EndTerminal(code)
    assert drop(bridge)[1] == Ignore()


@pytest.mark.case("R13")
def test_opens_that_are_confirmed_and_stay_silent_never_end_the_terminal() -> None:
    bridge = note_open(SHOWN, 1)
    for _ in range(8):
        bridge, step = drop(bridge)
        assert step == Retry(timedelta(milliseconds=200))
        bridge = reopen(bridge)

    assert bridge.failures == 0


def test_a_late_open_of_an_earlier_socket_sets_nothing_back() -> None:
    bridge, _ = drop(replace(SHOWN, failures=3))
    bridge, _ = plan_connect(bridge, build_list(SESSION), now=NOW)

    assert note_open(bridge, bridge.attempt - 1) == bridge


@pytest.mark.case("R14")
def test_a_session_that_never_says_its_id_is_given_up_once_and_the_second_drop_ends_the_terminal() -> None:
    """The product's own form: the one replacement is a revival that the operator decides, so no command runs twice."""
    bridge, step = drop(note_open(NAMELESS, 1))
    assert isinstance(step, Retry)
    bridge, asked = plan_connect(bridge, NotAsked(), now=NOW)
    assert asked == AskRevival()

    assert drop(note_open(bridge, bridge.attempt))[1] == EndTerminal(-1)


@pytest.mark.case("R14")
def test_one_id_that_is_said_sets_that_count_back() -> None:
    bridge, _ = drop(note_open(NAMELESS, 1))
    bridge, _ = plan_connect(bridge, NotAsked(), now=NOW)
    bridge = note_announced(note_open(bridge, bridge.attempt), bridge.attempt, KNOWN)

    assert bridge.unnamed == 0
    assert isinstance(drop(bridge)[1], Retry)


@pytest.mark.case("R15")
def test_a_first_connection_that_never_opened_is_tried_anew_within_the_usual_number() -> None:
    """The product's own form: what is tried anew is the question for a session, never a second create."""
    bridge = NAMELESS
    for number in range(1, 6):
        bridge, step = drop(bridge)
        assert step == Retry(timedelta(milliseconds=200 * number))
        assert bridge.unnamed == 0
        bridge, asked = plan_connect(bridge, NotAsked(), now=NOW)
        assert asked == AskRevival()

    assert drop(bridge)[1] == EndTerminal(-1)


@pytest.mark.case("R19")
@pytest.mark.parametrize("failures", [0, 5, 99])
@pytest.mark.parametrize(
    ("age", "quiet"), [(WINDOW - MILLISECOND, False), (WINDOW, True), (WINDOW + MILLISECOND, True)]
)
def test_exactly_one_window_after_the_last_activity_a_dropped_socket_stays_down(
    failures: int, age: timedelta, quiet: bool
) -> None:
    _, step = drop(replace(SHOWN, failures=failures), NOON - age)

    assert (step == StayDown()) == quiet


@pytest.mark.case("R20")
def test_a_human_who_returns_or_types_reconnects_however_idle_the_terminal_is() -> None:
    bridge, step = drop(replace(SHOWN, failures=99), NOON - timedelta(days=1))
    assert step == StayDown()

    wished = note_wish(bridge)
    assert connect(wished, build_list(SESSION)) == Attach(KNOWN)
    assert wished.failures == 0


@pytest.mark.case("R21")
def test_without_a_usable_time_of_activity_a_terminal_is_never_quieted() -> None:
    assert isinstance(drop(SHOWN, None)[1], Retry)

    silent = find_time_for_reconnect(Activity(NOON - timedelta(days=1), observable=False), Hearing.SILENT)
    assert isinstance(drop(SHOWN, silent)[1], Retry)


@pytest.mark.case("R22")
@pytest.mark.parametrize(("age", "quiet"), [(239_999, False), (240_000, True)])
def test_the_quiet_rule_uses_the_window_of_the_hold(age: int, quiet: bool) -> None:
    rules = HoldRules(timedelta(seconds=300), timedelta(milliseconds=120_000))
    step = drop(SHOWN, NOON - age * MILLISECOND, window=rules.idle_window)[1]

    assert (step == StayDown()) == quiet


@pytest.mark.case("T6")
def test_once_a_teardown_runs_nothing_is_opened_and_a_late_exit_is_not_told_twice() -> None:
    bridge = note_ending(SHOWN)

    assert connect(bridge, build_list(SESSION)) == Ignore()
    assert drop(bridge) == (bridge, Ignore())
    assert plan_exit(bridge, 1, 0) == (bridge, Ignore())
    assert note_wish(bridge) == bridge


LISTS = (
    st.just(NotAsked())
    | st.builds(Asked, st.timedeltas(timedelta(0), NOW))
    | st.just(FAILED)
    | st.builds(Listed, st.sampled_from([(), (SESSION,), (SIBLING,), (SIBLING, SESSION)]), st.just(NOW))
)
BRIDGES = st.builds(
    Bridge,
    known=st.none() | st.just(KNOWN),
    ending=st.booleans(),
    attempt=st.integers(0, 3),
    opened=st.booleans(),
    counted=st.booleans(),
    failures=st.integers(0, 10**9),
    unnamed=st.integers(0, 5),
)
MOMENTS = st.datetimes(timezones=st.just(UTC))


@given(BRIDGES, LISTS)
def test_every_connect_has_an_answer_and_never_reaches_a_sibling_or_past_an_end(
    bridge: Bridge, sessions: ListState
) -> None:
    after, step = plan_connect(bridge, sessions, now=NOW)

    if isinstance(step, Attach):
        assert step.identity == bridge.known
        assert not bridge.ending
    if isinstance(step, AskRevival):
        assert after.known is None
    assert after.attempt - bridge.attempt == isinstance(step, Attach | AskRevival)


@given(BRIDGES, st.integers(0, 3), st.none() | MOMENTS, st.timedeltas(timedelta(0), timedelta(days=1)), MOMENTS)
def test_every_drop_has_an_answer_and_counts_once(
    bridge: Bridge, attempt: int, activity: datetime | None, window: timedelta, now: datetime
) -> None:
    after, step = plan_drop(bridge, attempt, activity=activity, idle_after=window, now=now)
    again = plan_drop(after, attempt, activity=activity, idle_after=window, now=now)

    assert again == (after, Ignore())
    if isinstance(step, Retry):
        assert timedelta(0) < step.after <= timedelta(seconds=1)
    if isinstance(step, EndTerminal):
        assert after.ending

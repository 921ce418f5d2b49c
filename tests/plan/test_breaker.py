"""The breaker of one token: an incident of the platform proves nothing, and one sprite's end opens nothing."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.session import Cause
from controller.errors import Failure
from controller.plan.breaker import (
    FURNISHED_AFTER,
    PROBE_INTERVAL,
    Breaker,
    Conclusion,
    judge_for,
    may_call,
    may_conclude,
    note_answer,
    note_call,
    note_listing,
    note_unlisted,
    probe_in,
    was_closed_since,
)

NOW = timedelta(hours=10)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
REFUSALS = frozenset({Failure.UNAUTHORIZED, Failure.NOT_FOUND})


def sprites(count: int) -> list[str]:
    return [f"s{index}" for index in range(count)]


def refuse(
    names: Iterable[str], *, of: int, failure: Failure = Failure.NOT_FOUND, breaker: Breaker | None = None
) -> Breaker:
    """Have some of a token's sprites refused, all at once."""
    breaker = breaker or Breaker()
    for name in names:
        breaker = note_answer(breaker, name, failure, known=sprites(of), now=NOW)
    return breaker


@pytest.mark.parametrize(
    ("refused", "known", "opens"),
    [
        (1, 1, False),
        (2, 2, False),
        (2, 3, False),
        (3, 3, True),
        (3, 6, True),
        (3, 7, False),
        (4, 7, True),
        (4, 8, True),
    ],
)
@pytest.mark.parametrize("failure", sorted(REFUSALS))
def test_three_sprites_and_half_of_those_known_open_it(refused: int, known: int, opens: bool, failure: Failure) -> None:
    assert refuse(sprites(refused), of=known, failure=failure).is_open == opens


def test_one_sprite_that_answers_404_again_and_again_opens_nothing() -> None:
    assert not refuse(["s0"] * 100, of=3).is_open


@pytest.mark.parametrize("failure", sorted(set(Failure) - REFUSALS))
def test_no_other_failure_counts(failure: Failure) -> None:
    assert refuse(sprites(9), of=9, failure=failure) == Breaker()


def test_a_sprite_that_was_never_seen_counts_for_nothing() -> None:
    """Somebody may have declared ten terminals before creating their sprites."""
    assert refuse([f"declared{index}" for index in range(10)], of=3) == Breaker()


@pytest.mark.parametrize(("age", "opens"), [(60 * SECOND, True), (60 * SECOND + MILLISECOND, False)])
def test_refusals_count_together_for_a_minute(age: timedelta, opens: bool) -> None:
    breaker = note_answer(Breaker(), "s0", Failure.NOT_FOUND, known=sprites(3), now=NOW - age)

    assert refuse(["s1", "s2"], of=3, breaker=breaker).is_open == opens


def test_a_sprite_that_answers_well_takes_its_refusal_back() -> None:
    breaker = refuse(["s0", "s1"], of=3)
    breaker = note_answer(breaker, "s0", None, known=sprites(3), now=NOW)

    assert set(breaker.refused) == {"s1"}
    assert not refuse(["s2"], of=3, breaker=breaker).is_open


def test_a_success_that_was_under_way_does_not_close_it() -> None:
    breaker = refuse(sprites(3), of=3)

    assert note_answer(breaker, "s0", None, known=sprites(3), now=NOW + SECOND).is_open


@pytest.mark.parametrize(("known", "opens"), [(2, False), (3, True), (500, True)])
@pytest.mark.parametrize("listed", [[], ["stranger"]])
def test_a_listing_without_any_known_sprite_refuses_them_all(known: int, opens: bool, listed: list[str]) -> None:
    breaker = note_listing(Breaker(), listed, known=sprites(known), now=NOW)

    assert (breaker.is_open, breaker.blind) == (opens, not opens)


def test_a_listing_that_still_shows_one_known_sprite_opens_nothing_however_many_are_gone() -> None:
    assert note_listing(Breaker(), ["s0"], known=sprites(500), now=NOW) == Breaker()


def test_it_closes_with_the_first_list_that_shows_a_known_sprite_which_was_not_refused_and_counts_afresh() -> None:
    breaker = refuse(sprites(3), of=4)
    assert note_listing(breaker, [], known=sprites(4), now=NOW + SECOND).is_open
    assert note_listing(breaker, ["stranger"], known=sprites(4), now=NOW + SECOND).is_open

    closed = note_listing(breaker, ["s3", "stranger"], known=sprites(4), now=NOW + 2 * SECOND)
    assert not closed.is_open
    assert not refuse(["s0", "s1"], of=4, breaker=closed).is_open


# --- what a list shows although it was refused ------------------------------------------------------------------------


def try_again(breaker: Breaker | None = None, *, now: timedelta = NOW + PROBE_INTERVAL) -> Breaker:
    """Read a list that shows all three sprites, which were refused."""
    return note_listing(breaker or refuse(sprites(3), of=3), sprites(3), known=sprites(3), now=now)


def answer(breaker: Breaker, name: str, failure: Failure | None, *, now: timedelta = NOW + PROBE_INTERVAL) -> Breaker:
    return note_answer(breaker, name, failure, known=sprites(3), now=now)


def test_a_list_that_shows_what_was_refused_closes_nothing_and_lets_the_first_that_is_asked_through() -> None:
    breaker = try_again()
    assert breaker.is_open
    assert all(may_call(breaker, None, name) for name in sprites(3))
    assert not may_call(breaker, None, "stranger")
    assert not may_call(breaker, None, None)

    asked = note_call(breaker, "s1")

    assert [may_call(asked, None, name) for name in sprites(3)] == [False, True, False]
    assert [judge_for(asked, name).is_open for name in sprites(3)] == [True, False, True]
    assert note_call(asked, "s2") == asked


@pytest.mark.parametrize("name", sprites(3))
def test_only_the_success_of_the_one_that_was_asked_closes_it(name: str) -> None:
    asked = note_call(try_again(), "s1")

    assert answer(asked, name, None).is_open == (name != "s1")
    assert answer(try_again(), name, None).is_open, "it was under way before"


@pytest.mark.parametrize("failure", sorted(REFUSALS))
def test_its_refusal_ends_the_trial_until_the_next_list_and_what_opened_it_stays_known(failure: Failure) -> None:
    refused = answer(note_call(try_again(), "s1"), "s1", failure)

    assert refused.is_open
    assert not any(may_call(refused, None, name) for name in sprites(3))
    assert set(refused.refused) == set(sprites(3))
    later = try_again(refused, now=NOW + 10 * PROBE_INTERVAL)
    assert all(may_call(later, None, name) for name in sprites(3))


@pytest.mark.parametrize("failure", sorted(set(Failure) - REFUSALS))
def test_any_other_failure_says_nothing_and_the_next_list_lets_another_through(failure: Failure) -> None:
    asked = note_call(try_again(), "s1")
    assert answer(asked, "s1", failure) == asked
    assert try_again(asked, now=NOW + 2 * PROBE_INTERVAL - MILLISECOND) == asked

    later = try_again(asked, now=NOW + 2 * PROBE_INTERVAL)

    assert [may_call(later, None, name) for name in sprites(3)] == [True, False, True]


def test_where_nobody_had_anything_to_ask_until_the_next_list_it_closes() -> None:
    breaker = try_again()
    assert try_again(breaker, now=NOW + 2 * PROBE_INTERVAL - MILLISECOND).is_open

    assert not try_again(breaker, now=NOW + 2 * PROBE_INTERVAL).is_open


def test_a_list_without_any_of_them_ends_the_trial() -> None:
    breaker = note_listing(try_again(), [], known=sprites(3), now=NOW + PROBE_INTERVAL + SECOND)

    assert breaker.is_open
    assert not any(may_call(breaker, None, name) for name in sprites(3))


def test_of_a_sprite_or_two_a_list_that_shows_neither_says_nothing_until_it_shows_one_again() -> None:
    blind = note_listing(Breaker(), [], known=sprites(2), now=NOW)
    assert not was_closed_since(blind, NOW)

    seen = note_listing(blind, ["s0"], known=sprites(2), now=NOW + 600 * SECOND)

    assert not seen.blind
    assert was_closed_since(seen, NOW + 600 * SECOND)
    assert not was_closed_since(seen, NOW + 600 * SECOND - MILLISECOND)


@pytest.mark.parametrize("shown", [["x"], []], ids=["others", "none"])
def test_of_a_sprite_or_two_lists_of_the_same_others_or_of_none_are_believed_after_ten_minutes(
    shown: list[str],
) -> None:
    breaker = Breaker()
    for minute in range(10):
        breaker = note_listing(breaker, shown, known=["s0"], now=NOW + minute * 60 * SECOND)
        assert breaker.blind
    assert note_listing(breaker, shown, known=["s0"], now=NOW + FURNISHED_AFTER - MILLISECOND).blind

    breaker = note_listing(breaker, shown, known=["s0"], now=NOW + FURNISHED_AFTER)

    assert not breaker.blind
    assert was_closed_since(breaker, NOW + FURNISHED_AFTER)
    assert not was_closed_since(breaker, NOW + FURNISHED_AFTER - MILLISECOND)


def test_a_list_without_anything_known_is_believed_after_ten_minutes_and_no_sooner() -> None:
    assert timedelta(minutes=10) == FURNISHED_AFTER


def test_an_empty_list_that_is_believed_stays_so_until_one_is_not_empty() -> None:
    breaker = Breaker()
    for minute in range(13):
        breaker = note_listing(breaker, [], known=["s0", "s1"], now=NOW + minute * 60 * SECOND)
    assert was_closed_since(breaker, NOW + FURNISHED_AFTER)

    later = NOW + 13 * 60 * SECOND
    assert note_listing(breaker, ["x"], known=["s0", "s1"], now=later).blind
    seen = note_listing(breaker, ["s1"], known=["s0", "s1"], now=later)
    assert not seen.blind
    assert was_closed_since(seen, NOW + FURNISHED_AFTER), "what it lacked counts from when that was believed"
    assert note_listing(seen, [], known=["s0", "s1"], now=later + SECOND).blind, "it counts anew"


@pytest.mark.parametrize("between", [["x"], ["s0"]], ids=["another", "a known one"])
def test_one_list_that_is_not_empty_makes_the_ten_minutes_count_anew(between: list[str]) -> None:
    breaker = note_listing(Breaker(), [], known=["s0"], now=NOW)
    breaker = note_listing(breaker, between, known=["s0"], now=NOW + 300 * SECOND)
    breaker = note_listing(breaker, [], known=["s0"], now=NOW + 301 * SECOND)

    assert note_listing(breaker, [], known=["s0"], now=NOW + FURNISHED_AFTER).blind
    assert not note_listing(breaker, [], known=["s0"], now=NOW + FURNISHED_AFTER + 301 * SECOND).blind


def test_a_404_for_the_list_is_no_empty_list_however_long_it_lasts() -> None:
    breaker = Breaker()
    for minute in range(100):
        breaker = note_unlisted(breaker, known=["s0"], now=NOW + minute * 60 * SECOND)
        assert breaker.blind

    later = NOW + 100 * 60 * SECOND
    assert note_listing(breaker, [], known=["s0"], now=later).blind
    assert note_unlisted(Breaker(), known=(), now=NOW) == Breaker()


@pytest.mark.parametrize(("known", "opens"), [(2, False), (3, True)])
def test_a_404_for_the_list_refuses_all_that_are_known(known: int, opens: bool) -> None:
    breaker = note_unlisted(Breaker(), known=sprites(known), now=NOW)

    assert (breaker.is_open, breaker.blind) == (opens, not opens)


def test_of_three_sprites_and_more_an_empty_list_is_never_believed() -> None:
    breaker = Breaker()
    for minute in range(100):
        breaker = note_listing(breaker, [], known=sprites(3), now=NOW + minute * 60 * SECOND)
        assert breaker.is_open


def test_while_nothing_is_known_nothing_opens_it() -> None:
    assert note_listing(Breaker(), [], known=[], now=NOW) == Breaker()


@pytest.mark.parametrize("cause", list(Cause))
def test_while_it_is_open_the_list_of_sprites_is_the_only_call(cause: Cause) -> None:
    assert may_call(Breaker(), cause, "s0")
    assert may_call(refuse(sprites(3), of=3), cause, "s0") == (cause is Cause.METADATA)


@pytest.mark.parametrize("conclusion", list(Conclusion))
def test_while_it_is_open_only_what_asks_nothing_of_the_platform_is_concluded(conclusion: Conclusion) -> None:
    assert may_conclude(Breaker(), conclusion)
    assert may_conclude(refuse(sprites(3), of=3), conclusion) == (
        conclusion in (Conclusion.ORPHANED, Conclusion.NOTHING_TO_GUARD)
    )


@pytest.mark.parametrize(
    ("last", "wait"),
    [
        (None, timedelta(0)),
        (NOW, 30 * SECOND),
        (NOW - 30 * SECOND + MILLISECOND, MILLISECOND),
        (NOW - 30 * SECOND, timedelta(0)),
        (NOW - 31 * SECOND, timedelta(0)),
    ],
)
def test_while_it_is_open_the_list_comes_every_thirty_seconds(last: timedelta | None, wait: timedelta) -> None:
    assert probe_in(refuse(sprites(3), of=3), last, now=NOW) == wait
    assert probe_in(Breaker(), last, now=NOW) is None


def test_two_listings_count_together_only_if_it_was_closed_all_the_while() -> None:
    assert was_closed_since(Breaker(), NOW - timedelta(days=1))

    breaker = refuse(sprites(3), of=3)
    assert not was_closed_since(breaker, NOW + SECOND)

    closed = note_listing(breaker, ["s3"], known=sprites(4), now=NOW + 60 * SECOND)
    assert not was_closed_since(closed, NOW + 60 * SECOND - MILLISECOND)
    assert was_closed_since(closed, NOW + 60 * SECOND)


NAMES = st.sampled_from(sprites(6))
ANSWERS = st.tuples(st.just("answer"), NAMES, st.none() | st.sampled_from(Failure))
CALLS = st.tuples(st.just("call"), NAMES, st.none())
LISTINGS = st.tuples(st.just("listing"), st.frozensets(NAMES | st.just("stranger")), st.none())


@given(st.lists(st.tuples(ANSWERS | CALLS | LISTINGS, st.timedeltas(timedelta(0), 90 * SECOND)), max_size=40))
def test_whatever_comes_it_opens_only_on_many_refusals_and_closes_only_by_a_known_sprite_or_its_success(
    events: list[tuple[tuple[str, object, Failure | None], timedelta]],
) -> None:
    known, breaker, now = sprites(6), Breaker(), NOW
    refused: dict[str, timedelta] = {}
    for (kind, what, failure), step in events:
        now += step
        before = breaker
        if kind == "call":
            assert isinstance(what, str)
            breaker = note_call(breaker, what)
        elif kind == "answer":
            assert isinstance(what, str)
            breaker = note_answer(breaker, what, failure, known=known, now=now)
            refused = {**refused, what: now} if failure in REFUSALS else refused
            assert breaker.is_open or not before.is_open or (failure is None and before.tried == what)
        else:
            assert isinstance(what, frozenset)
            breaker = note_listing(breaker, what, known=known, now=now)
            shown = bool(what & set(known))
            assert breaker.is_open or shown or breaker.strangers == frozenset()
            refused = refused if shown else dict.fromkeys(known, now)
        assert breaker.on_trial <= set(breaker.refused) | before.on_trial
        assert breaker.is_open or not breaker.on_trial
        if breaker.is_open and not before.is_open:
            assert sum(now - at <= 60 * SECOND for at in refused.values()) >= 3

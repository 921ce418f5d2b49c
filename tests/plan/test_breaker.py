"""The breaker of one token: an incident of the platform proves nothing, and one sprite's end opens nothing."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.session import Cause
from controller.errors import Failure
from controller.plan.breaker import (
    Breaker,
    Conclusion,
    may_call,
    may_conclude,
    note_answer,
    note_listing,
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
    assert note_listing(Breaker(), listed, known=sprites(known), now=NOW).is_open == opens


def test_a_listing_that_still_shows_one_known_sprite_opens_nothing_however_many_are_gone() -> None:
    assert note_listing(Breaker(), ["s0"], known=sprites(500), now=NOW) == Breaker()


def test_it_closes_with_the_first_list_that_shows_a_known_sprite_and_counts_afresh() -> None:
    breaker = refuse(sprites(3), of=3)
    assert note_listing(breaker, [], known=sprites(3), now=NOW + SECOND).is_open
    assert note_listing(breaker, ["stranger"], known=sprites(3), now=NOW + SECOND).is_open

    closed = note_listing(breaker, ["s1", "stranger"], known=sprites(3), now=NOW + 2 * SECOND)
    assert not closed.is_open
    assert not refuse(["s0", "s1"], of=3, breaker=closed).is_open


def test_while_nothing_is_known_nothing_opens_it() -> None:
    assert note_listing(Breaker(), [], known=[], now=NOW) == Breaker()


@pytest.mark.parametrize("cause", list(Cause))
def test_while_it_is_open_the_list_of_sprites_is_the_only_call(cause: Cause) -> None:
    assert may_call(Breaker(), cause)
    assert may_call(refuse(sprites(3), of=3), cause) == (cause is Cause.METADATA)


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

    closed = note_listing(breaker, ["s0"], known=sprites(3), now=NOW + 60 * SECOND)
    assert not was_closed_since(closed, NOW + 60 * SECOND - MILLISECOND)
    assert was_closed_since(closed, NOW + 60 * SECOND)


NAMES = st.sampled_from(sprites(6))
ANSWERS = st.tuples(st.just("answer"), NAMES, st.none() | st.sampled_from(Failure))
LISTINGS = st.tuples(st.just("listing"), st.frozensets(NAMES | st.just("stranger")), st.none())


@given(st.lists(st.tuples(ANSWERS | LISTINGS, st.timedeltas(timedelta(0), 90 * SECOND)), max_size=40))
def test_whatever_comes_it_opens_only_on_many_refusals_and_always_closes_on_a_known_sprite(
    events: list[tuple[tuple[str, object, Failure | None], timedelta]],
) -> None:
    known, breaker, now = sprites(6), Breaker(), NOW
    refused: dict[str, timedelta] = {}
    for (kind, what, failure), step in events:
        now += step
        was_open = breaker.is_open
        if kind == "answer":
            assert isinstance(what, str)
            breaker = note_answer(breaker, what, failure, known=known, now=now)
            refused = {**refused, what: now} if failure in REFUSALS else refused
        else:
            assert isinstance(what, frozenset)
            breaker = note_listing(breaker, what, known=known, now=now)
            shown = bool(what & set(known))
            assert not (shown and breaker.is_open)
            refused = refused if shown else dict.fromkeys(known, now)
        if breaker.is_open and not was_open:
            assert sum(now - at <= 60 * SECOND for at in refused.values()) >= 3

"""What a fresh list says: suspicion before belief, and lag only from what a list has shown."""

from collections.abc import Collection, Mapping
from datetime import timedelta

import pytest

from controller.plan.resync import Behind, Findings, Sight, Suspicions, judge_lag, judge_resync

SECOND = timedelta(seconds=1)
GRACE = 60 * SECOND


def sight(uid: str, version: int = 10, *, has_finalizer: bool = False) -> Sight:
    return Sight(uid, "team", uid, version, has_finalizer)


def by_uid(*sights: Sight) -> dict[str, Sight]:
    return {one.uid: one for one in sights}


def judged(
    listed: Mapping[str, Sight],
    known: Mapping[str, Sight],
    *,
    known_before: Collection[str] | None = None,
    buried: Collection[str] = (),
    suspicions: Suspicions | None = None,
    asked: timedelta = SECOND,
) -> Findings:
    return judge_resync(
        listed=listed,
        known_before=known.keys() if known_before is None else known_before,
        known=known,
        buried=buried,
        suspicions=suspicions or Suspicions(),
        asked=asked,
    )


def test_what_both_know_raises_no_suspicion() -> None:
    both = by_uid(sight("a"), sight("b"))
    assert judged(both, both) == Findings((), (), Suspicions(frozenset(), {}))


def test_an_object_missing_once_is_suspected_and_missing_twice_has_vanished() -> None:
    known = by_uid(sight("a"))
    first = judged({}, known)
    assert first.vanished == ()
    second = judged({}, known, suspicions=first.suspicions)
    assert second.vanished == (sight("a"),)


def test_an_object_that_was_not_confirmed_gone_vanishes_again_at_the_next_look() -> None:
    known = by_uid(sight("a"))
    second = judged({}, known, suspicions=Suspicions(absent=frozenset("a")))
    third = judged({}, known, suspicions=second.suspicions)
    assert third.vanished == (sight("a"),)


def test_an_object_seen_again_between_is_not_suspected_any_more() -> None:
    known = by_uid(sight("a"))
    seen = judged(known, known, suspicions=Suspicions(absent=frozenset("a")))
    assert judged({}, known, suspicions=seen.suspicions).vanished == ()


def test_an_object_created_while_the_list_was_on_its_way_is_not_suspected() -> None:
    known = by_uid(sight("a"))
    assert judged({}, known, known_before=()).suspicions.absent == frozenset()


def test_an_object_deleted_while_the_list_was_on_its_way_is_not_suspected() -> None:
    assert judged({}, {}, known_before={"a"}).suspicions.absent == frozenset()


@pytest.mark.parametrize("known", [{}, by_uid(sight("a", 9))])
def test_a_version_that_only_the_list_knows_is_behind_since_the_list_was_asked_for(known: dict[str, Sight]) -> None:
    assert judged(by_uid(sight("a", 10)), known).suspicions.behind == {"a": Behind(10, SECOND)}


def test_a_version_newer_than_the_list_is_not_behind() -> None:
    assert judged(by_uid(sight("a", 10)), by_uid(sight("a", 11))).suspicions.behind == {}


def test_a_list_that_began_before_a_deletion_does_not_make_the_registry_look_behind() -> None:
    assert judged(by_uid(sight("a")), {}, buried={"a"}).suspicions.behind == {}


def test_a_wait_that_was_never_served_keeps_its_beginning_although_the_object_moved_on() -> None:
    earlier = Suspicions(behind={"a": Behind(10, SECOND)})
    later = judged(by_uid(sight("a", 20)), by_uid(sight("a", 9)), suspicions=earlier, asked=100 * SECOND)
    assert later.suspicions.behind == {"a": Behind(10, SECOND)}


def test_a_wait_that_was_served_begins_anew_with_the_next_version() -> None:
    earlier = Suspicions(behind={"a": Behind(10, SECOND)})
    later = judged(by_uid(sight("a", 20)), by_uid(sight("a", 10)), suspicions=earlier, asked=100 * SECOND)
    assert later.suspicions.behind == {"a": Behind(20, 100 * SECOND)}


def test_an_object_that_is_not_listed_any_more_is_not_behind() -> None:
    assert judged({}, {}, suspicions=Suspicions(behind={"a": Behind(10, SECOND)})).suspicions.behind == {}


@pytest.mark.parametrize(
    ("listed", "known", "stripped"),
    [
        (sight("a", 11), sight("a", 10, has_finalizer=True), ("a",)),
        (sight("a", 10), sight("a", 10, has_finalizer=True), ("a",)),
        (sight("a", 9), sight("a", 10, has_finalizer=True), ()),
        (sight("a", 11, has_finalizer=True), sight("a", 10, has_finalizer=True), ()),
        (sight("a", 11), sight("a", 10), ()),
    ],
)
def test_a_finalizer_is_stripped_when_a_list_as_new_as_ours_does_not_show_it(
    listed: Sight, known: Sight, stripped: tuple[str, ...]
) -> None:
    assert judged(by_uid(listed), by_uid(known)).stripped == stripped


@pytest.mark.parametrize(
    ("versions", "buried", "now", "lag"),
    [
        ({}, (), 61, 61),
        ({"a": 9}, (), 61, 61),
        ({"a": 9}, (), 60, 0),
        ({"a": 10}, (), 500, 0),
        ({}, ("a",), 500, 0),
    ],
)
def test_lag_counts_beyond_the_grace_and_until_the_registry_has_caught_up(
    versions: dict[str, int], buried: tuple[str, ...], now: int, lag: int
) -> None:
    behind = {"a": Behind(10, timedelta(0))}
    assert judge_lag(behind, versions=versions, buried=buried, now=now * SECOND, grace=GRACE) == lag * SECOND


def test_the_longest_wait_is_the_lag() -> None:
    behind = {"a": Behind(10, 50 * SECOND), "b": Behind(10, 10 * SECOND)}
    assert judge_lag(behind, versions={}, buried=(), now=200 * SECOND, grace=GRACE) == 190 * SECOND

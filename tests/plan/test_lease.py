"""What is done about the Lease, as tables; and that a plan has an answer to whatever may stand in one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.plan.lease import (
    DURATION_MAX,
    Create,
    GiveUp,
    LeaseRecord,
    LeaseTimes,
    Look,
    Missing,
    NeverLooked,
    Present,
    Renew,
    Sighting,
    StandBy,
    Step,
    Take,
    judge_promise,
    judge_until,
    note_sighting,
    plan_lease,
    read_lease,
    render_held_lease,
    render_moment,
    render_new_lease,
    render_released_lease,
    settle,
)

TIMES = LeaseTimes()
ME, OTHER = "pod-a_1", "pod-b_2"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SEEN = timedelta(seconds=100)
TICK = timedelta(microseconds=1)
THEIRS = LeaseRecord("u", "7", OTHER, 3, TIMES.duration, "then")
OURS = replace(THEIRS, holder=ME)
NOBODYS = replace(THEIRS, holder="")


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


# --- what follows from a sighting -------------------------------------------------------------------------------------

FREE_AT = SEEN + TIMES.duration


@pytest.mark.parametrize(
    ("sighting", "leading", "now", "step"),
    [
        (NeverLooked(), False, SEEN, Look()),
        (NeverLooked(), True, SEEN, Look()),
        (Missing(None, SEEN), False, SEEN, Create(0)),
        (Missing(NOBODYS, SEEN), False, SEEN, Create(4)),
        (Missing(OURS, SEEN), False, SEEN, Create(4)),
        (Missing(THEIRS, SEEN), False, SEEN, StandBy(OTHER, FREE_AT)),
        (Missing(THEIRS, SEEN), False, FREE_AT - TICK, StandBy(OTHER, FREE_AT)),
        (Missing(THEIRS, SEEN), False, FREE_AT, Create(4)),
        (Missing(None, SEEN), True, SEEN, GiveUp("it was deleted")),
        (Missing(OURS, SEEN), True, SEEN, GiveUp("it was deleted")),
        (Present(NOBODYS, SEEN), False, SEEN, Take(4)),
        (Present(NOBODYS, SEEN), True, SEEN, GiveUp("somebody took our name out of it")),
        (Present(OURS, SEEN), False, SEEN, Renew()),
        (Present(OURS, SEEN), True, SEEN, Renew()),
        (Present(OURS, SEEN), True, FREE_AT + seconds(1000), Renew()),
        (Present(THEIRS, SEEN), False, SEEN, StandBy(OTHER, FREE_AT)),
        (Present(THEIRS, SEEN), False, FREE_AT - TICK, StandBy(OTHER, FREE_AT)),
        (Present(THEIRS, SEEN), False, FREE_AT, Take(4)),
        (Present(THEIRS, SEEN), True, FREE_AT + seconds(1000), GiveUp(f"{OTHER} holds it")),
    ],
)
def test_every_sighting_has_one_answer(sighting: Sighting, leading: bool, now: timedelta, step: Step) -> None:
    assert plan_lease(sighting, me=ME, leading=leading, times=TIMES, now=now) == step


@pytest.mark.parametrize(
    ("promised", "judged"),
    [
        (None, TIMES.duration),
        (seconds(1), TIMES.duration),
        (TIMES.duration, TIMES.duration),
        (seconds(60), seconds(60)),
        (seconds(86_400), DURATION_MAX),
    ],
)
def test_a_holder_is_given_what_it_was_promised_never_less_than_our_own_and_never_for_ever(
    promised: timedelta | None, judged: timedelta
) -> None:
    assert judge_promise(replace(THEIRS, duration=promised), TIMES) == judged


def test_a_tenure_ends_before_anybody_who_saw_its_last_renewal_may_take_the_lease() -> None:
    sent = SEEN
    seen_at_the_earliest = Present(THEIRS, sent)

    until = judge_until(sent, TIMES)

    for now in (until, until + seconds(4.9)):
        assert isinstance(plan_lease(seen_at_the_earliest, me=ME, leading=False, times=TIMES, now=now), StandBy)


# --- what is seen -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "record", "noted"),
    [
        (NeverLooked(), None, Missing(None, SEEN)),
        (NeverLooked(), THEIRS, Present(THEIRS, SEEN)),
        (Missing(THEIRS, seconds(1)), None, Missing(THEIRS, seconds(1))),
        (Missing(THEIRS, seconds(1)), THEIRS, Present(THEIRS, SEEN)),
        (Present(THEIRS, seconds(1)), None, Missing(THEIRS, seconds(1))),
        (Present(THEIRS, seconds(1)), THEIRS, Present(THEIRS, seconds(1))),
        (Present(THEIRS, seconds(1)), replace(THEIRS, version="8"), Present(replace(THEIRS, version="8"), SEEN)),
        (Present(THEIRS, seconds(1)), replace(THEIRS, uid="v"), Present(replace(THEIRS, uid="v"), SEEN)),
    ],
)
def test_time_is_counted_from_when_a_change_was_first_seen(
    known: Sighting, record: LeaseRecord | None, noted: Sighting
) -> None:
    assert note_sighting(known, record, now=SEEN) == noted


def test_no_moment_that_another_clock_wrote_matters() -> None:
    for written in ("1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z", "no time at all"):
        sighting = note_sighting(NeverLooked(), replace(THEIRS, renewed=written), now=SEEN)

        assert plan_lease(sighting, me=ME, leading=False, times=TIMES, now=SEEN) == StandBy(OTHER, FREE_AT)
        assert plan_lease(sighting, me=ME, leading=False, times=TIMES, now=FREE_AT) == Take(4)


@pytest.mark.parametrize(
    ("record", "sent"),
    [
        (replace(OURS, renewed="second"), SEEN + seconds(2)),
        (replace(OURS, renewed="third"), None),
        (replace(THEIRS, renewed="second"), None),
        (None, None),
    ],
)
def test_a_write_without_an_answer_counts_from_its_sending_once_it_is_seen_to_have_happened(
    record: LeaseRecord | None, sent: timedelta | None
) -> None:
    unsettled = {"first": SEEN, "second": SEEN + seconds(2)}

    assert settle(record, me=ME, unsettled=unsettled) == sent


# --- the object -------------------------------------------------------------------------------------------------------


def stored(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "record"),
    [
        ({}, LeaseRecord("u", "7", "", 0, None, "")),
        ({"holderIdentity": ""}, LeaseRecord("u", "7", "", 0, None, "")),
        (
            {"holderIdentity": OTHER, "leaseDurationSeconds": 15, "leaseTransitions": 3, "renewTime": "then"},
            THEIRS,
        ),
        (
            {"holderIdentity": 7, "leaseDurationSeconds": 0, "leaseTransitions": -1},
            LeaseRecord("u", "7", "", 0, None, ""),
        ),
        ({"leaseDurationSeconds": True, "leaseTransitions": "3"}, LeaseRecord("u", "7", "", 0, None, "")),
        ({"leaseDurationSeconds": 10**12}, LeaseRecord("u", "7", "", 0, DURATION_MAX, "")),
    ],
)
def test_what_cannot_be_read_in_a_lease_counts_as_not_there(spec: dict[str, Any], record: LeaseRecord) -> None:
    assert read_lease(stored(**spec)) == record


def test_a_lease_that_was_taken_names_us_and_counts_the_change() -> None:
    held = render_held_lease(
        stored(holderIdentity=OTHER, leaseTransitions=3, strategy="kept"), Take(4), me=ME, times=TIMES, now_time=NOON
    )

    assert held["spec"] == {
        "holderIdentity": ME,
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T12:00:00.000000Z",
        "renewTime": "2026-01-01T12:00:00.000000Z",
        "leaseTransitions": 4,
        "strategy": "kept",
    }
    assert held["metadata"] == stored()["metadata"]


def test_a_renewal_changes_neither_when_it_was_acquired_nor_how_often() -> None:
    held = render_held_lease(
        stored(holderIdentity=ME, acquireTime="then", leaseTransitions=3), Renew(), me=ME, times=TIMES, now_time=NOON
    )

    assert (held["spec"]["acquireTime"], held["spec"]["leaseTransitions"]) == ("then", 3)
    assert held["spec"]["renewTime"] == render_moment(NOON)


def test_a_released_lease_is_nobodys() -> None:
    released = render_released_lease(stored(holderIdentity=ME, leaseTransitions=3), now_time=NOON)

    assert read_lease(released).holder == ""
    assert released["spec"]["leaseTransitions"] == 3


def test_a_part_of_a_second_is_promised_as_a_whole_one() -> None:
    times = LeaseTimes(seconds(1.2), seconds(0.8), seconds(0.2))

    lease = render_new_lease("a", "b", me=ME, transitions=0, times=times, now_time=NOON)

    assert lease["spec"]["leaseDurationSeconds"] == 2


# --- its times --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "fault"),
    [
        ((15, 10, 0), "retry must be longer than zero."),
        ((15, 3.9, 2), "renew_deadline must be at least twice retry."),
        ((14.9, 10, 2), "duration must be at least one and a half times renew_deadline."),
        ((301, 10, 2), "duration must be at most 300 s."),
    ],
)
def test_times_that_let_two_lead_or_none_are_refused(times: tuple[float, float, float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        LeaseTimes(*map(seconds, times))


@pytest.mark.parametrize("times", [(15, 10, 2), (15, 10, 5), (3, 2, 1), (300, 200, 100)])
def test_times_at_their_limits_are_accepted(times: tuple[float, float, float]) -> None:
    assert LeaseTimes(*map(seconds, times)).retry == seconds(times[2])


# --- whatever may stand there -----------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
FIELDS = ("holderIdentity", "leaseDurationSeconds", "leaseTransitions", "renewTime", "acquireTime")
LEASES = st.none() | st.builds(
    lambda version, spec: {"metadata": {"uid": "u", "resourceVersion": version}, "spec": spec},
    st.sampled_from(["1", "2", "3"]),
    st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from([ME, OTHER, 15])),
)


@given(st.lists(st.tuples(LEASES, st.integers(min_value=0, max_value=20)), max_size=8), st.booleans())
def test_a_plan_has_an_answer_to_any_history_and_none_takes_what_was_just_seen_to_change(
    history: list[tuple[dict[str, Any] | None, int]],
    leading: bool,
) -> None:
    sighting: Sighting = NeverLooked()
    now = SEEN
    for lease, passed in history:
        now += seconds(passed)
        record = None if lease is None else read_lease(lease)
        known, sighting = sighting, note_sighting(sighting, record, now=now)
        step = plan_lease(sighting, me=ME, leading=leading, times=TIMES, now=now)
        assert step == plan_lease(sighting, me=ME, leading=leading, times=TIMES, now=now)
        is_foreign = record is not None and record.holder not in ("", ME)
        if is_foreign and sighting != known:
            assert isinstance(step, StandBy | GiveUp)
        if leading:
            assert isinstance(step, Renew | GiveUp)

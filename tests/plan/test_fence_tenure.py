"""Tenure, its renewals and its list, the proof of death, and the bytes on the way."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.plan.fence_objects import LeaseLook, LeaseView, NoLease, ObjectView
from controller.plan.fence_tenure import (
    RULES,
    BreakNow,
    Broken,
    IncarnationOver,
    Listed,
    NotBroken,
    Proof,
    ProvenOut,
    ReadLeaseAgain,
    ReadOwnLease,
    RenewalConflict,
    RenewalUnanswered,
    Renewed,
    TenureBegins,
    TenureGoesOn,
    begin_term,
    find_unknown,
    is_in_tenure,
    judge_break,
    judge_lease,
    judge_list,
    judge_own_lease,
    judge_renewal,
    may_renew,
)
from controller.plan.fence_upstream import (
    BUFFER_BYTES,
    BUFFER_TIME,
    UNCONFIRMED_BYTES,
    Flow,
    Waiting,
    is_ping_due,
    is_quiet,
    judge_buffer,
    may_send,
    note_ping,
    note_pong,
    note_sent,
)

ME = "gateway0"
START = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
LEASE = LeaseView("lease-uid", "7", ME)
TERM = begin_term(ME, LEASE, sent=START)


# --- one's own tenure -------------------------------------------------------------------------------------------------


def test_a_tenure_ends_five_seconds_after_the_sending_of_its_last_answered_renewal() -> None:
    assert TERM.ends == START + 5 * SECOND
    assert is_in_tenure(TERM, now=TERM.ends - MILLISECOND)
    assert not is_in_tenure(TERM, now=TERM.ends)


def test_a_renewal_counts_from_its_sending_however_long_its_answer_took() -> None:
    sent = START + 2 * SECOND
    step = judge_renewal(TERM, Renewed("8"), sent=sent, now=sent + 1400 * MILLISECOND)
    assert step == TenureGoesOn(replace(TERM, lease=replace(LEASE, version="8"), ends=sent + 5 * SECOND))


@pytest.mark.parametrize("late", [timedelta(0), MILLISECOND, timedelta(hours=9)])
def test_a_renewal_answered_after_the_end_extends_nothing_and_begins_a_new_tenure(late: timedelta) -> None:
    sent = TERM.ends - MILLISECOND
    step = judge_renewal(TERM, Renewed("8"), sent=sent, now=TERM.ends + late)
    assert isinstance(step, TenureBegins)
    assert step.term.number == TERM.number + 1
    assert step.term.ends == sent + 5 * SECOND


def test_an_older_renewal_never_shortens_a_tenure() -> None:
    step = judge_renewal(TERM, Renewed("8"), sent=START - SECOND, now=START + SECOND)
    assert isinstance(step, TenureGoesOn)
    assert step.term.ends == TERM.ends


def test_a_renewal_without_an_answer_changes_nothing() -> None:
    assert judge_renewal(TERM, RenewalUnanswered(), sent=START, now=START) == TenureGoesOn(TERM)


def test_after_a_conflict_a_lease_that_is_still_ours_goes_on_from_its_new_version() -> None:
    assert judge_renewal(TERM, RenewalConflict(), sent=START, now=START) == ReadOwnLease()
    moved = replace(LEASE, version="9")
    assert judge_own_lease(TERM, moved) == TenureGoesOn(replace(TERM, lease=moved))


@pytest.mark.parametrize(
    "look", [NoLease(), replace(LEASE, holder=""), replace(LEASE, uid="another"), replace(LEASE, holder="gateway1")]
)
def test_a_lease_that_is_broken_gone_or_another_ends_the_incarnation(look: LeaseLook) -> None:
    assert judge_own_lease(TERM, look) == IncarnationOver()


@pytest.mark.parametrize(
    ("started", "may"),
    [(None, False), (START, True), (START - RULES.timeout, True), (START - RULES.timeout - MILLISECOND, False)],
)
def test_nothing_is_renewed_without_a_list_of_just_now(started: timedelta | None, may: bool) -> None:
    assert may_renew(list_started=started, now=START) is may


@given(st.integers(0, 60_000), st.integers(0, 20_000), st.integers(0, 60_000), st.integers(0, 60_000))
def test_no_tenure_outlives_a_proof_whose_first_look_came_after_its_renewal_landed(
    sent: int, landed_after: int, looked_after: int, then_after: int
) -> None:
    """Sent, landed, first look, second look: where the proof is had, the tenure is over."""
    landed = sent + landed_after
    first_at, started = (landed + looked_after) * MILLISECOND, (landed + looked_after + then_after) * MILLISECOND
    proof = Proof(ME, first=LEASE, first_at=first_at)
    if isinstance(judge_lease(proof, LEASE, started=started, now=started), BreakNow):
        term = begin_term(ME, LEASE, sent=sent * MILLISECOND)
        assert not is_in_tenure(term, now=started)


# --- the list ---------------------------------------------------------------------------------------------------------

HELD = {"uid-1": ObjectView("uid-1", 5, 10), "uid-2": ObjectView("uid-2", 3, 11)}


@pytest.mark.parametrize(
    ("listed", "doubted"),
    [
        ([Listed("uid-1", 5), Listed("uid-2", 3)], set()),
        ([Listed("uid-1", 6), Listed("uid-2", 3)], {"uid-1"}),
        ([Listed("uid-1", 4), Listed("uid-2", 3)], set()),
        ([Listed("uid-1", 5, deleting=True), Listed("uid-2", 3)], {"uid-1"}),
        ([Listed("uid-2", 3)], {"uid-1"}),
        ([], {"uid-1", "uid-2"}),
    ],
)
def test_a_list_that_knows_more_or_misses_a_lock_of_ours_casts_a_doubt(listed: list[Listed], doubted: set[str]) -> None:
    assert judge_list(HELD, listed) == doubted


def test_a_lock_of_ours_without_a_socket_is_found_by_the_list() -> None:
    assert find_unknown(HELD, [Listed("uid-1", 5), Listed("uid-9", 1)]) == {"uid-9"}


# --- proof ------------------------------------------------------------------------------------------------------------

PROOF = Proof(ME)


def test_death_is_proven_by_two_looks_seven_seconds_apart_and_the_breaking() -> None:
    first = judge_lease(PROOF, LEASE, started=START, now=START + MILLISECOND)
    assert isinstance(first, ReadLeaseAgain)
    assert first.after == 7 * SECOND

    early = judge_lease(first.proof, LEASE, started=START + 7 * SECOND, now=START + 8 * SECOND)
    assert early == ReadLeaseAgain(first.proof, MILLISECOND)

    due = START + MILLISECOND + 7 * SECOND
    second = judge_lease(first.proof, LEASE, started=due, now=due)
    assert second == BreakNow(first.proof, LEASE)
    assert judge_break(first.proof, Broken()) == ProvenOut(ME)


def test_a_lease_that_moved_begins_the_proof_anew() -> None:
    first = Proof(ME, first=LEASE, first_at=START)
    moved = replace(LEASE, version="8")
    step = judge_lease(first, moved, started=START + 9 * SECOND, now=START + 9 * SECOND)
    assert step == ReadLeaseAgain(Proof(ME, moved, START + 9 * SECOND), 7 * SECOND)


def test_a_break_that_was_refused_or_lost_begins_the_proof_anew() -> None:
    assert judge_break(Proof(ME, LEASE, START), NotBroken()) == ReadLeaseAgain(PROOF, timedelta(0))


def test_a_lease_that_somebody_broke_is_proof_by_itself() -> None:
    assert judge_lease(PROOF, replace(LEASE, holder=""), started=START, now=START) == ProvenOut(ME)


def test_a_missing_lease_is_looked_at_twice_since_a_hand_may_have_removed_it() -> None:
    first = judge_lease(PROOF, NoLease(), started=START, now=START)
    assert isinstance(first, ReadLeaseAgain)
    assert judge_lease(first.proof, NoLease(), started=START + 7 * SECOND, now=START + 7 * SECOND) == ProvenOut(ME)


# --- bytes on the way -------------------------------------------------------------------------------------------------


def test_only_a_pong_of_a_ping_that_came_after_the_bytes_confirms_them() -> None:
    flow = note_sent(note_ping(note_sent(Flow(), 100)), 50)
    flow = note_pong(flow)
    assert flow.unconfirmed == 50
    assert not is_quiet(flow)
    assert note_pong(flow) == flow, "nobody asked for it"

    assert is_ping_due(flow)
    flow = note_pong(note_ping(flow))
    assert is_quiet(flow)
    assert not is_ping_due(flow)


def test_exactly_the_cap_may_be_on_the_way_and_a_larger_frame_goes_alone() -> None:
    assert may_send(Flow(sent=1), UNCONFIRMED_BYTES - 1)
    assert not may_send(Flow(sent=1), UNCONFIRMED_BYTES)
    assert may_send(Flow(sent=9, confirmed=9), 10 * UNCONFIRMED_BYTES)


@pytest.mark.parametrize(
    ("kept", "frame", "waited", "verdict"),
    [
        (0, BUFFER_BYTES, timedelta(0), Waiting.KEPT),
        (1, BUFFER_BYTES, timedelta(0), Waiting.FULL),
        (BUFFER_BYTES, 0, BUFFER_TIME - MILLISECOND, Waiting.KEPT),
        (0, 1, BUFFER_TIME, Waiting.LATE),
    ],
)
def test_input_before_the_lock_is_kept_within_bounds(
    kept: int, frame: int, waited: timedelta, verdict: Waiting
) -> None:
    assert judge_buffer(kept, frame, since=START, now=START + waited) is verdict

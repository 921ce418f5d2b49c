"""The fence in single decisions: ids, patches, answers, frames, drains, endings (cases F1 to F20, F24, F25)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.names import FINALIZER
from controller.plan.fence import (
    CLEAR_LIMIT,
    TRIES,
    AbortUpstream,
    Accepted,
    Action,
    Answer,
    Arrived,
    ClaimAnswered,
    ClearAnswered,
    Clearing,
    CloseClient,
    CountUndrained,
    Doubted,
    Draining,
    DrainUpstream,
    EndIncarnation,
    Event,
    Finished,
    Forget,
    Hold,
    IncarnationEnded,
    Left,
    LetSpeak,
    LockAnswered,
    Locking,
    Lost,
    MovedOn,
    NotNow,
    ObjectGone,
    ObjectRead,
    Pass,
    PauseInput,
    Rang,
    ReadFailed,
    ReadObject,
    Refuse,
    RuleSpoke,
    Seat,
    SendClaim,
    SendClear,
    SendLock,
    SendWithdrawal,
    SetTimer,
    Settling,
    ShutDown,
    Speaking,
    TenureBegan,
    TenureEnded,
    TimerName,
    Told,
    UpstreamClosed,
    Waiting,
    WithdrawAnswered,
    find_speaker,
    is_active,
    is_held,
    judge_claim,
    judge_input,
    step,
    take_seat,
)
from controller.plan.fence_closing import CLOSINGS, Ending, describe_closing
from controller.plan.fence_ids import (
    LONGEST_ID,
    BadSocketPart,
    ForeignSocket,
    NeverClaimed,
    OurSocket,
    Revoked,
    find_incarnation,
    has_lease_elsewhere,
    make_incarnation,
    make_socket_id,
    read_socket_name,
)
from controller.plan.fence_objects import LeaseView, Lock, ObjectView, read_lock, render_lock, view_object
from controller.plan.fence_patches import build_claim, build_clear_lock, build_withdrawal
from controller.plan.fence_tenure import Term

NOW = timedelta(hours=1)
ME, OTHER = "gateway0", "gateway1"
VIEW = ObjectView("uid-1", 4, 10)
TERM = Term(ME, LeaseView("lease", "1", ME), 1, NOW + timedelta(seconds=5))
LUCK = "abcdefgh"
MINE = f"at1.5.{ME}.{LUCK}"
CLAIMED = replace(VIEW, generation=5, version=11, attached=True, active_socket_id=MINE)
LOCK = Lock("uid-1", 5, MINE, ME, since="2026-11-30T12:00:00.000000Z")
LOCKED = replace(CLAIMED, version=12, lock=LOCK)
THEIRS = Lock("uid-1", 3, f"at1.3.{OTHER}.{LUCK}", OTHER)


def play(seat: Seat, *events: Event, now: timedelta = NOW) -> tuple[Seat, list[Action]]:
    """Feed events one after the other, and give the actions of the last."""
    actions: tuple[Action, ...] = ()
    for event in events:
        seat, actions = step(seat, event, now=now)
    return seat, list(actions)


def take() -> Seat:
    return take_seat("uid-1", ME, tenure=1)


def arrive(**fields: Any) -> Arrived:
    return Arrived(**{"key": 1, "luck": LUCK, "view": VIEW, **fields})


def speak() -> Seat:
    """A seat whose socket 1 speaks."""
    seat, _ = play(take(), arrive(), ClaimAnswered(1, Accepted(CLAIMED)), LockAnswered(1, Accepted(LOCKED)))
    assert isinstance(phase(seat), Speaking)
    return seat


def phase(seat: Seat, key: int = 1) -> object:
    speaker = find_speaker(seat, key)
    return None if speaker is None else speaker.phase


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions if not isinstance(action, SetTimer)]


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.case("F1")
def test_every_socket_gets_an_id_that_tells_generation_and_gateway() -> None:
    one = make_socket_id(generation=4, incarnation=ME, luck="aaaaaaaa")
    other = make_socket_id(generation=4, incarnation=ME, luck="bbbbbbbb")

    assert one == "at1.5.gateway0.aaaaaaaa"
    assert one != other
    assert read_socket_name(one) == OurSocket(5, ME, "aaaaaaaa")
    assert find_incarnation(one) == ME


def test_the_longest_id_fits_into_the_schema() -> None:
    incarnation = make_incarnation("a" * 32, lease_namespace="c" * 63)
    longest = make_socket_id(generation=2**63 - 2, incarnation=incarnation, luck="b" * 32)

    assert len(longest) <= LONGEST_ID
    assert isinstance(read_socket_name(longest), OurSocket)


@pytest.mark.parametrize(
    "text",
    [
        "my-bridge",
        "at1",
        "at1.5.gateway0",
        "at1.5.gateway0.abcdefgh.more",
        "at2.5.gateway0.abcdefgh",
        "at1.05.gateway0.abcdefgh",
        "at1.0.gateway0.abcdefgh",
        "at1.5.Gateway0.abcdefgh",
        "at1.5.gateway0.abcdefgh\n",
        "at1.\u0665.gateway0.abcdefgh",
        " ",
    ],
)
def test_what_is_not_exactly_of_our_form_is_foreign(text: str) -> None:
    assert read_socket_name(text) == ForeignSocket(text)
    assert find_incarnation(text) is None


def test_absent_and_empty_are_two_things() -> None:
    assert read_socket_name(None) == NeverClaimed()
    assert read_socket_name("") == Revoked()


def test_the_name_of_a_gateway_tells_whether_its_lease_is_looked_for_where_it_lies() -> None:
    incarnation = make_incarnation("gateway0", lease_namespace="home")
    socket_id = make_socket_id(generation=4, incarnation=incarnation, luck=LUCK)

    assert find_incarnation(socket_id) == incarnation
    assert not has_lease_elsewhere(incarnation, lease_namespace="home")
    assert has_lease_elsewhere(incarnation, lease_namespace="hom")
    # A name without a mark says nothing about it, and is looked for as ever.
    assert not has_lease_elsewhere("gateway0", lease_namespace="home")


@pytest.mark.parametrize("part", ["gateway0-", "gateway0-abc", "gateway0-ABCDEF01", "gateway0-01234567-01234567"])
def test_a_mark_that_does_not_fit_makes_no_id_and_is_read_from_none(part: str) -> None:
    with pytest.raises(BadSocketPart):
        make_socket_id(generation=1, incarnation=part, luck=LUCK)
    assert find_incarnation(f"at1.5.{part}.{LUCK}") is None


@pytest.mark.parametrize("part", ["", "short", "has.a.dot", "UPPERCASE", "a" * 33])
def test_a_part_that_does_not_fit_makes_no_id(part: str) -> None:
    with pytest.raises(BadSocketPart):
        make_socket_id(generation=1, incarnation=part, luck=LUCK)


# --- one predicate ----------------------------------------------------------------------------------------------------


@pytest.mark.case("F16", "F17", "F18", "F19")
@pytest.mark.parametrize(
    ("active", "socket_id", "is_it"),
    [
        (None, None, True),  # before the first claim a socket without an id may take itself for active
        (None, MINE, False),  # one of ours never is, before its claim
        (MINE, None, False),  # after the first claim none without an id is
        (MINE, MINE, True),
        (MINE, MINE + "x", False),
        ("", None, False),  # revoked: nobody is
        ("", MINE, False),
        ("", "", False),  # and empty never equals empty
        ("by-hand", "by-hand", True),
        ("by-hand", MINE, False),
    ],
)
def test_one_predicate_says_who_is_active(active: str | None, socket_id: str | None, is_it: bool) -> None:
    assert is_active(active, socket_id) is is_it


@pytest.mark.case("F20")
def test_revoking_writes_the_empty_text_and_nobody_watching() -> None:
    assert build_withdrawal("uid-1", MINE) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": "/spec/activeSocketId", "value": MINE},
        {"op": "add", "path": "/spec/activeSocketId", "value": ""},
        {"op": "add", "path": "/spec/attached", "value": False},
    ]


@pytest.mark.parametrize(
    ("active", "dead", "held"),
    [
        (None, frozenset(), False),
        ("", frozenset(), False),
        ("by-hand", frozenset({ME}), True),
        (MINE, frozenset(), True),
        (MINE, frozenset({OTHER}), True),
        (MINE, frozenset({ME}), False),
    ],
)
def test_held_by_a_gateway_that_is_not_proven_out_or_by_anything_foreign(
    active: str | None, dead: frozenset[str], held: bool
) -> None:
    assert is_held(active, dead) is held


@pytest.mark.parametrize(
    ("fields", "takeover", "refusal"),
    [
        ({}, False, None),
        ({"deleting": True, "terminated": True}, True, Ending.DELETED),
        ({"terminated": True}, True, Ending.TERMINATED),
        ({"suspended": True}, True, Ending.SUSPENDED),
        ({"has_finalizer": False}, True, Ending.NOT_READY),
        ({"active_socket_id": "by-hand"}, False, Ending.HELD),
        ({"active_socket_id": "by-hand"}, True, None),
        ({"active_socket_id": ""}, False, None),
    ],
)
def test_what_may_be_claimed(fields: dict[str, Any], takeover: bool, refusal: Ending | None) -> None:
    assert judge_claim(replace(VIEW, **fields), takeover=takeover, dead=frozenset()) is refusal


# --- claim ------------------------------------------------------------------------------------------------------------


def test_a_claim_tests_uid_generation_and_that_nothing_is_deleted() -> None:
    assert build_claim(VIEW, MINE) == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": "/metadata/generation", "value": 4},
        {"op": "test", "path": "/metadata/deletionTimestamp", "value": None},
        {"op": "add", "path": "/spec/activeSocketId", "value": MINE},
        {"op": "add", "path": "/spec/attached", "value": True},
    ]


def test_who_arrives_claims_and_then_locks_and_then_speaks() -> None:
    seat, actions = play(take(), arrive())
    assert kinds(actions) == [SendClaim]
    assert SetTimer(1, TimerName.PATIENCE, timedelta(seconds=20)) in actions

    seat, actions = play(seat, ClaimAnswered(1, Accepted(CLAIMED)))
    (sent,) = actions
    assert isinstance(sent, SendLock)
    assert sent.build(since="T") == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-1"},
        {"op": "test", "path": "/metadata/generation", "value": 5},
        {"op": "test", "path": "/status/socket", "value": None},
        {"op": "add", "path": "/status/socket", "value": {**render_lock(replace(LOCK, since="T"))}},
    ]

    seat, actions = play(seat, LockAnswered(1, Accepted(LOCKED)))
    assert actions == [LetSpeak(1)]
    assert judge_input(seat, 1, term=TERM, now=NOW) == Pass()


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (MovedOn(), [ReadObject]),
        (Lost(), [ReadObject]),
        (NotNow(), []),
        (RuleSpoke("a terminated terminal takes no new socket"), [CloseClient, Forget]),
        (ObjectGone(), [CloseClient, Forget]),
    ],
)
def test_what_follows_on_each_answer_to_a_claim(answer: Answer, then: list[type]) -> None:
    _, actions = play(take(), arrive(), ClaimAnswered(1, answer))
    assert kinds(actions) == then


def test_the_text_of_a_rule_reaches_the_person() -> None:
    _, actions = play(take(), arrive(), ClaimAnswered(1, RuleSpoke("no new socket")))
    assert CloseClient(1, Ending.REFUSED, "no new socket") in actions


def test_a_lost_claim_that_landed_is_found_by_reading() -> None:
    _, actions = play(take(), arrive(), ClaimAnswered(1, Lost()), ObjectRead(1, CLAIMED))
    assert kinds(actions) == [SendLock]


def test_a_lost_claim_that_did_not_land_is_written_again_under_the_same_id() -> None:
    seat, first = play(take(), arrive())
    _, second = play(seat, ClaimAnswered(1, Lost()), ObjectRead(1, VIEW))
    assert [action for action in second if isinstance(action, SendClaim)] == [
        action for action in first if isinstance(action, SendClaim)
    ]


def test_after_twenty_tries_a_claim_is_given_up() -> None:
    seat, _ = play(take(), arrive())
    for number in range(TRIES):
        assert phase(seat) is not None, number
        moved = replace(VIEW, generation=5 + number, version=20 + number)
        seat, actions = play(seat, ClaimAnswered(1, MovedOn()), ObjectRead(1, moved))
    assert actions == [CloseClient(1, Ending.CROWDED), Forget(1)]


def test_nothing_is_claimed_before_there_is_a_lease() -> None:
    seat, actions = play(take_seat("uid-1", ME, tenure=None), arrive())
    assert kinds(actions) == []

    _, actions = play(seat, TenureBegan(1), ObjectRead(1, VIEW))
    assert kinds(actions) == [SendClaim]


# --- lock -------------------------------------------------------------------------------------------------------------


def test_an_unrelated_edit_moves_the_epoch_and_shuts_nobody_out() -> None:
    edited = replace(CLAIMED, generation=6, version=12)
    _, actions = play(
        take(), arrive(), ClaimAnswered(1, Accepted(CLAIMED)), LockAnswered(1, MovedOn()), ObjectRead(1, edited)
    )
    (sent,) = actions
    assert isinstance(sent, SendLock)
    assert sent.lock.epoch == 6


def test_a_lock_answer_that_names_somebody_else_is_cleared_at_once_and_nothing_was_sent() -> None:
    taken = replace(LOCKED, active_socket_id=THEIRS.socket_id)
    seat, actions = play(take(), arrive(), ClaimAnswered(1, Accepted(CLAIMED)), LockAnswered(1, Accepted(taken)))
    assert kinds(actions) == [CloseClient, SendClear]
    assert isinstance(phase(seat), Clearing)


def test_a_claimer_waits_for_whom_the_lock_names_and_takes_it_when_it_is_free() -> None:
    held = replace(CLAIMED, lock=THEIRS)
    seat, actions = play(take(), arrive(), ClaimAnswered(1, Accepted(held)))
    assert kinds(actions) == []
    assert isinstance(phase(seat), Waiting)
    assert judge_input(seat, 1, term=TERM, now=NOW) == Hold()

    _, actions = play(seat, Told(replace(CLAIMED, version=13)))
    assert kinds(actions) == [SendLock]


@pytest.mark.parametrize("fields", [{"deleting": True}, {"has_finalizer": False}])
def test_no_lock_is_taken_on_an_object_that_goes_or_that_nobody_guards(fields: dict[str, Any]) -> None:
    _, actions = play(take(), arrive(), ClaimAnswered(1, Accepted(replace(CLAIMED, **fields))))
    assert SendLock not in kinds(actions)


def test_a_lock_that_was_answered_in_a_later_tenure_is_read_again_first() -> None:
    seat, _ = play(take(), arrive(), ClaimAnswered(1, Accepted(CLAIMED)))
    assert isinstance(phase(seat), Locking)

    seat, actions = play(seat, TenureEnded(), TenureBegan(2), LockAnswered(1, Accepted(LOCKED)))
    assert kinds(actions) == [ReadObject]
    assert judge_input(seat, 1, term=replace(TERM, number=2), now=NOW) == Hold()

    seat, actions = play(seat, ObjectRead(1, LOCKED))
    assert actions == [LetSpeak(1)]
    assert judge_input(seat, 1, term=replace(TERM, number=2), now=NOW) == Pass()
    assert judge_input(seat, 1, term=TERM, now=NOW) == Hold()


# --- frames and throwing out ------------------------------------------------------------------------------------------


@pytest.mark.case("F4", "F6")
def test_who_is_replaced_is_told_so_and_no_frame_of_theirs_passes_any_more() -> None:
    taken = replace(LOCKED, generation=6, version=13, active_socket_id=THEIRS.socket_id)
    seat, actions = play(speak(), Told(taken))

    assert kinds(actions) == [CloseClient, DrainUpstream]
    assert CloseClient(1, Ending.REPLACED) in actions
    assert CLOSINGS[Ending.REPLACED].code == 4001
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.REPLACED)


@pytest.mark.case("F2")
def test_the_new_id_is_stored_before_the_old_socket_is_closed() -> None:
    """Both on one gateway: the claim goes out and closes nobody; its answer does."""
    seat, actions = play(speak(), arrive(key=2, luck="zyxwvuts", view=LOCKED, takeover=True))
    assert kinds(actions) == [SendClaim]
    assert judge_input(seat, 1, term=TERM, now=NOW) == Pass()

    theirs = f"at1.6.{ME}.zyxwvuts"
    claimed = replace(LOCKED, generation=6, version=13, active_socket_id=theirs)
    seat, actions = play(seat, ClaimAnswered(2, Accepted(claimed)))
    assert CloseClient(1, Ending.REPLACED) in actions
    assert isinstance(phase(seat, 2), Waiting)


@pytest.mark.case("F3", "F11")
def test_every_socket_in_memory_that_the_spec_does_not_name_is_closed() -> None:
    """Whatever each of them is doing, and without stopping at one."""
    seat = speak()
    second = replace(LOCKED, generation=6, version=13, active_socket_id=f"at1.6.{ME}.zyxwvuts")
    seat, _ = play(seat, arrive(key=2, luck="zyxwvuts", view=LOCKED, takeover=True), ClaimAnswered(2, Accepted(second)))
    third = replace(second, generation=7, version=14, active_socket_id="by-hand")
    seat, actions = play(seat, Told(third))

    assert CloseClient(2, Ending.REPLACED) in actions
    assert [speaker.ending for speaker in seat.speakers] == [Ending.REPLACED]


@pytest.mark.case("F5")
def test_a_viewer_is_never_the_one_who_speaks() -> None:
    """A socket without a speaker has no way to type; its output is not the fence's matter."""
    assert judge_input(speak(), 77, term=TERM, now=NOW) == Refuse(Ending.REPLACED)


@pytest.mark.case("F8")
def test_of_what_an_earlier_process_left_only_the_named_socket_is_one_and_it_is_not_ours() -> None:
    """A restart leaves no socket: a new process has no speaker for the id that stands there, and must claim."""
    left = replace(LOCKED, active_socket_id=THEIRS.socket_id, lock=THEIRS)
    seat, actions = play(take(), Told(left))
    assert (seat.speakers, actions) == ((), [])


@pytest.mark.case("F9")
def test_a_seat_of_another_object_is_not_served_by_it() -> None:
    """The same name, another uid: everything is keyed by the uid."""
    successor = replace(LOCKED, uid="uid-2", version=99)
    seat, actions = play(speak(), Doubted(), ObjectRead(1, successor))
    assert CloseClient(1, Ending.DELETED) in actions
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.DELETED)

    ignored, actions = play(speak(), Told(successor))
    assert actions == []
    assert judge_input(ignored, 1, term=TERM, now=NOW) == Pass()


def test_a_missing_object_names_nobody() -> None:
    """Whoever speaks is refused from the read on which it was missing, and lets go without a write."""
    seat, actions = play(speak(), Doubted(), ObjectRead(1, None))
    assert CloseClient(1, Ending.DELETED) in actions
    assert DrainUpstream in kinds(actions)
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.DELETED)

    _, actions = play(seat, UpstreamClosed(1, 0))
    assert actions == [Forget(1)]


@pytest.mark.case("F10")
@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({"terminated": True}, Ending.TERMINATED),
        ({"deleting": True}, Ending.DELETED),
        ({"active_socket_id": ""}, Ending.REVOKED),
        ({"active_socket_id": None}, Ending.REVOKED),
        ({"attached": False}, Ending.REVOKED),
    ],
)
def test_each_of_these_ends_an_attached_terminal_at_once(fields: dict[str, Any], ending: Ending) -> None:
    seat, actions = play(speak(), Told(replace(LOCKED, generation=6, version=13, **fields)))
    assert CloseClient(1, ending) in actions
    assert CLOSINGS[ending].code == 4003
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(ending)


@pytest.mark.case("F12", "F13")
def test_who_leaves_takes_the_name_along_only_if_it_is_still_theirs() -> None:
    """The operator sees a loss of the viewer in the spec; the close of a replaced socket says nothing."""
    seat, actions = play(speak(), Left(1))
    assert kinds(actions) == [DrainUpstream]
    cleared = replace(LOCKED, version=13, lock=None)
    seat, actions = play(seat, UpstreamClosed(1, 0), ClearAnswered(1, Accepted(cleared)))
    assert kinds(actions) == [SendWithdrawal]

    taken = replace(LOCKED, generation=6, version=13, active_socket_id=THEIRS.socket_id)
    free = replace(taken, version=14, lock=None)
    seat, actions = play(speak(), Told(taken), Left(1), UpstreamClosed(1, 0), ClearAnswered(1, Accepted(free)))
    assert actions == [Forget(1)]


@pytest.mark.case("F14")
def test_who_was_thrown_out_by_hand_is_refused_whatever_comes_late() -> None:
    revoked = replace(LOCKED, generation=6, version=13, active_socket_id="")
    seat, _ = play(speak(), Told(revoked))
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.REVOKED)

    free = replace(revoked, version=14, lock=None)
    seat, actions = play(seat, UpstreamClosed(1, 0), ClearAnswered(1, Accepted(free)))
    assert actions == [Forget(1)]
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.REPLACED)


@pytest.mark.case("F15")
def test_a_claim_is_one_write_that_names_the_socket_and_says_that_somebody_watches() -> None:
    """The product's reservation: a relaunch writes nothing into spec, and whoever attaches names a newer generation."""
    patch = build_claim(replace(VIEW, active_socket_id=""), MINE)
    assert {one["path"] for one in patch if one["op"] != "test"} == {"/spec/activeSocketId", "/spec/attached"}


@pytest.mark.case("F24")
def test_on_a_terminated_object_no_socket_ever_speaks_again() -> None:
    _, actions = play(take(), arrive(view=replace(VIEW, terminated=True), takeover=True))
    assert actions[1:] == [CloseClient(1, Ending.TERMINATED), Forget(1)]


@pytest.mark.case("F25")
def test_an_accepted_claim_alone_lets_nobody_speak() -> None:
    seat, actions = play(take(), arrive(), ClaimAnswered(1, Accepted(CLAIMED)))
    assert LetSpeak not in kinds(actions)
    assert judge_input(seat, 1, term=TERM, now=NOW) == Hold()


def test_a_hand_that_takes_the_lock_away_stops_input() -> None:
    seat, actions = play(speak(), Told(replace(LOCKED, version=13, lock=None)))
    assert CloseClient(1, Ending.LOCK_LOST) in actions
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.LOCK_LOST)


@pytest.mark.parametrize(
    "view",
    [
        replace(LOCKED, lock=None),
        replace(LOCKED, lock=replace(LOCK, socket_id=THEIRS.socket_id)),
        replace(LOCKED, lock=replace(LOCK, incarnation=OTHER)),
        replace(LOCKED, lock=replace(LOCK, uid="uid-2")),
        replace(LOCKED, active_socket_id=THEIRS.socket_id),
        replace(LOCKED, attached=False),
    ],
)
def test_a_frame_needs_both_marks_whatever_the_phase_says(view: ObjectView) -> None:
    assert judge_input(replace(speak(), view=view), 1, term=TERM, now=NOW) == Hold()


def test_an_older_view_says_nothing() -> None:
    seat, actions = play(speak(), Told(VIEW))
    assert actions == []
    assert judge_input(seat, 1, term=TERM, now=NOW) == Pass()


def test_a_doubt_stops_input_until_the_object_was_read() -> None:
    seat, actions = play(speak(), Doubted())
    assert actions == [PauseInput(1), ReadObject(1)]
    assert judge_input(seat, 1, term=TERM, now=NOW) == Hold()

    seat, actions = play(seat, Doubted(), ObjectRead(1, LOCKED))
    assert actions == [ReadObject(1)], "the doubt came after the read was sent"
    seat, actions = play(seat, ObjectRead(1, replace(LOCKED, version=13)))
    assert actions == [LetSpeak(1)]
    assert judge_input(seat, 1, term=TERM, now=NOW) == Pass()


def test_who_is_doubted_ends_by_what_the_watch_tells_though_no_read_succeeds() -> None:
    """A right to read may be gone for good: a namespace that is deleted takes it along, and waits for the lock."""
    doubted, _ = play(speak(), Doubted(), ReadFailed(1), Rang(1, TimerName.RETRY))
    going = replace(LOCKED, version=13, deleting=True)
    seat, actions = play(doubted, Told(going))
    assert actions == [CloseClient(1, Ending.DELETED), DrainUpstream(1)]

    seat, actions = play(seat, UpstreamClosed(1, 0), ReadFailed(1), Rang(1, TimerName.RETRY))
    assert kinds(actions) == [SendClear]
    _, actions = play(seat, ClearAnswered(1, Accepted(replace(going, version=14, lock=None))))
    assert kinds(actions) == [SendWithdrawal]


def test_who_leaves_while_no_read_succeeds_lets_go_by_what_is_known() -> None:
    seat, _ = play(speak(), Doubted(), Left(1), UpstreamClosed(1, 0))
    _, actions = play(seat, ReadFailed(1), Rang(1, TimerName.RETRY))
    assert kinds(actions) == [SendClear]


@pytest.mark.parametrize(
    ("term", "now", "passes"),
    [
        (TERM, TERM.ends - timedelta(milliseconds=1), True),
        (TERM, TERM.ends, False),
        (replace(TERM, number=2), NOW, False),
    ],
)
def test_a_frame_passes_in_its_own_tenure_only_and_not_at_its_very_end(
    term: Term, now: timedelta, passes: bool
) -> None:
    assert (judge_input(speak(), 1, term=term, now=now) == Pass()) is passes


# --- drain and clear --------------------------------------------------------------------------------------------------


def revoke() -> Seat:
    seat, _ = play(speak(), Told(replace(LOCKED, generation=6, version=13, active_socket_id="")))
    return seat


def test_the_lock_is_cleared_only_after_the_upstream_is_quiet() -> None:
    seat = revoke()
    assert isinstance(phase(seat), Draining)

    _, actions = play(seat, UpstreamClosed(1, 0))
    (sent,) = actions
    assert isinstance(sent, SendClear)
    assert sent.patch == build_clear_lock(LOCK, uid="uid-1")


def test_bytes_that_may_still_arrive_keep_the_lock_for_five_seconds_and_are_counted() -> None:
    seat, actions = play(revoke(), UpstreamClosed(1, 700))
    assert actions == [CountUndrained(1, 700), SetTimer(1, TimerName.SETTLE, timedelta(seconds=5))]
    assert isinstance(phase(seat), Settling)

    _, actions = play(seat, Rang(1, TimerName.SETTLE))
    assert kinds(actions) == [SendClear]


def test_an_upstream_that_gives_no_pong_is_aborted() -> None:
    _, actions = play(revoke(), Rang(1, TimerName.PONG))
    assert actions == [AbortUpstream(1)]


def test_an_upstream_that_broke_while_speaking_taints_a_drain_within_five_seconds() -> None:
    broke, _ = play(speak(), UpstreamClosed(1, 700))
    assert judge_input(broke, 1, term=TERM, now=NOW) == Pass()

    seat, _ = play(broke, Left(1), UpstreamClosed(1, 0))
    assert isinstance(phase(seat), Settling)

    seat, _ = play(broke, Rang(1, TimerName.SETTLE), Left(1), UpstreamClosed(1, 0))
    assert isinstance(phase(seat), Clearing)


def test_a_lock_that_cannot_be_cleared_for_ten_seconds_ends_the_incarnation() -> None:
    seat, _ = play(revoke(), UpstreamClosed(1, 0))
    almost = NOW + CLEAR_LIMIT - timedelta(milliseconds=1)
    seat, actions = play(seat, ClearAnswered(1, Lost()), now=almost)
    assert kinds(actions) == [ReadObject]

    seat, actions = play(seat, ReadFailed(1), Rang(1, TimerName.RETRY), now=NOW + CLEAR_LIMIT)
    assert EndIncarnation in kinds(actions)


def test_a_lock_whose_clearing_was_lost_and_landed_is_not_cleared_twice() -> None:
    seat, _ = play(revoke(), UpstreamClosed(1, 0))
    free = replace(LOCKED, generation=6, version=14, active_socket_id="", lock=None)
    _, actions = play(seat, ClearAnswered(1, Lost()), ObjectRead(1, free))
    assert actions == [Forget(1)]


@pytest.mark.parametrize("answer", [MovedOn(), ObjectGone()])
def test_a_name_that_is_not_ours_any_more_needs_no_clearing(answer: Answer) -> None:
    free = replace(LOCKED, version=13, lock=None)
    seat, _ = play(speak(), Left(1), UpstreamClosed(1, 0), ClearAnswered(1, Accepted(free)))
    _, actions = play(seat, WithdrawAnswered(1, answer))
    assert actions == [Forget(1)]


# --- tenure, going ----------------------------------------------------------------------------------------------------


def test_at_the_end_of_a_tenure_every_upstream_is_aborted_and_its_client_told() -> None:
    seat, actions = play(speak(), TenureEnded())
    assert actions == [AbortUpstream(1), CloseClient(1, Ending.LEASE_LOST)]
    assert judge_input(seat, 1, term=TERM, now=NOW) == Refuse(Ending.LEASE_LOST)


def test_whoever_slept_through_the_end_of_a_tenure_ends_it_when_the_next_begins() -> None:
    seat, actions = play(speak(), TenureBegan(2))
    assert AbortUpstream(1) in actions
    assert judge_input(seat, 1, term=replace(TERM, number=2), now=NOW) == Refuse(Ending.LEASE_LOST)


def test_an_incarnation_that_is_over_drops_everything_and_writes_nothing() -> None:
    seat, actions = play(speak(), IncarnationEnded())
    assert kinds(actions) == [AbortUpstream, CloseClient, Forget]
    assert seat.speakers == ()


def test_a_process_that_goes_lets_go_in_order_and_lets_nobody_in() -> None:
    seat, actions = play(speak(), ShutDown())
    assert kinds(actions) == [CloseClient, DrainUpstream]
    assert CLOSINGS[Ending.RESTARTING].code == 1012

    _, actions = play(seat, arrive(key=2, luck="zyxwvuts"))
    assert actions == [CloseClient(2, Ending.RESTARTING), Forget(2)]


def test_whoever_waits_too_long_is_told_so_and_takes_the_name_along() -> None:
    seat, _ = play(take(), arrive(), ClaimAnswered(1, Accepted(replace(CLAIMED, lock=THEIRS))))
    _, actions = play(seat, Rang(1, TimerName.PATIENCE))
    assert kinds(actions) == [CloseClient, SendWithdrawal]

    _, actions = play(speak(), Rang(1, TimerName.PATIENCE))
    assert actions == []


# --- endings ----------------------------------------------------------------------------------------------------------


def test_the_table_of_endings_is_total_and_only_a_seen_exit_looks_like_one() -> None:
    assert set(CLOSINGS) == set(Ending)
    like_an_exit = {ending for ending, closing in CLOSINGS.items() if closing.code == 1000}
    assert like_an_exit == {Ending.EXITED, Ending.LEFT}
    for closing in CLOSINGS.values():
        assert 400 <= closing.status < 600
        assert closing.sentence.endswith(".")


@pytest.mark.parametrize("ending", list(Ending))
def test_every_close_is_told_in_a_frame_with_the_same_code(ending: Ending) -> None:
    frame = describe_closing(ending, "A rule said so.")
    assert frame["code"] == CLOSINGS[ending].code
    assert frame["reason"] == ending.value
    assert frame["message"].endswith("A rule said so.")


# --- objects ----------------------------------------------------------------------------------------------------------


def test_an_object_is_read_whole_and_its_lock_is_written_back_exactly() -> None:
    stored = {"uid": "u", "epoch": 3, "socketId": "s", "incarnation": "i", "since": "2026-11-30T12:00:00Z", "new": [1]}
    view = view_object(
        {
            "metadata": {"uid": "u", "generation": 3, "resourceVersion": "12", "finalizers": [FINALIZER]},
            "spec": {"activeSocketId": "", "attached": True, "suspend": True},
            "status": {"socket": stored, "gateways": [{"incarnation": "i", "viewers": 2}]},
        }
    )
    assert (view.version, view.has_finalizer, view.attached, view.suspended, view.active_socket_id) == (
        12,
        True,
        True,
        True,
        "",
    )
    assert view.lock is not None
    assert render_lock(view.lock) == stored
    assert view.gateways[0].viewers == 2


@pytest.mark.parametrize("raw", [{}, {"metadata": None, "spec": [], "status": {"socket": {}, "gateways": "x"}}])
def test_what_is_missing_reads_as_absent_and_a_broken_lock_is_still_a_lock(raw: dict[str, Any]) -> None:
    view = view_object(raw)
    assert (view.attached, view.active_socket_id, view.has_finalizer) == (False, None, False)
    assert (view.lock is None) == ("status" not in raw)


@given(st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.integers())))
def test_any_stored_lock_comes_back_with_every_field_it_had(rest: dict[str, Any]) -> None:
    stored = {"uid": "u", "epoch": 1, "socketId": "s", "incarnation": "i", **rest}
    if all(isinstance(stored[name], str) for name in ("uid", "socketId", "incarnation")) and "since" not in rest:
        lock = read_lock(stored)
        assert lock is not None
        if isinstance(stored["epoch"], int):
            assert render_lock(lock) == stored


# --- totality ---------------------------------------------------------------------------------------------------------

KEYS = st.integers(1, 3)
VIEWS = st.builds(
    ObjectView,
    uid=st.sampled_from(["uid-1", "uid-2"]),
    generation=st.integers(1, 8),
    version=st.integers(1, 30),
    deleting=st.booleans(),
    terminated=st.booleans(),
    attached=st.booleans(),
    active_socket_id=st.sampled_from([None, "", MINE, "by-hand", THEIRS.socket_id]),
    lock=st.sampled_from([None, LOCK, THEIRS]),
)
ANSWERS = st.one_of(
    st.builds(Accepted, VIEWS),
    st.sampled_from([MovedOn(), RuleSpoke("x"), ObjectGone(), NotNow(), Lost()]),
)
EVENTS = st.one_of(
    st.builds(Arrived, key=KEYS, luck=st.sampled_from([LUCK, "zyxwvuts"]), view=VIEWS, takeover=st.booleans()),
    st.builds(Left, KEYS),
    st.builds(Finished, KEYS, st.sampled_from(Ending)),
    st.builds(Rang, KEYS, st.sampled_from(TimerName)),
    st.builds(ObjectRead, KEYS, st.none() | VIEWS),
    st.builds(ReadFailed, KEYS),
    st.builds(ClaimAnswered, KEYS, ANSWERS),
    st.builds(LockAnswered, KEYS, ANSWERS),
    st.builds(ClearAnswered, KEYS, ANSWERS),
    st.builds(WithdrawAnswered, KEYS, ANSWERS),
    st.builds(UpstreamClosed, KEYS, st.integers(0, 9)),
    st.builds(Told, VIEWS),
    st.builds(TenureBegan, st.integers(1, 3)),
    st.sampled_from([Doubted(), TenureEnded(), ShutDown(), IncarnationEnded()]),
)


@given(st.lists(EVENTS, max_size=25))
def test_whatever_comes_in_whatever_order_nothing_raises_and_an_ended_socket_never_passes(events: list[Event]) -> None:
    seat = take()
    for event in events:
        seat, actions = step(seat, event, now=NOW)
        for action in actions:
            if isinstance(action, CloseClient):
                assert not isinstance(judge_input(seat, action.key, term=TERM, now=NOW), Pass)
        for speaker in seat.speakers:
            if judge_input(seat, speaker.key, term=TERM, now=NOW) == Pass():
                assert seat.view is not None
                assert seat.view.active_socket_id == speaker.socket_id
                assert seat.view.lock is not None
                assert seat.view.lock.socket_id == speaker.socket_id

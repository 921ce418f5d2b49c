"""Who watches, what is swept, when an object may go: the operator's side, and a gateway's own sweeping."""

from dataclasses import replace
from typing import Any

import pytest

from controller.api.conditions import ConditionStatus, Reason
from controller.plan.activity import Presence
from controller.plan.fence import Arrived, take_seat
from controller.plan.fence import step as take_step
from controller.plan.fence_objects import GatewayEntry, Lock, ObjectView
from controller.plan.fence_patches import build_drop_entry, build_entry, name_lease
from controller.plan.fence_presence import (
    AwaitHolder,
    ReleaseNow,
    SweepEntry,
    SweepFirst,
    SweepLock,
    find_incarnations,
    judge_fenced,
    judge_presence,
    judge_release,
    plan_status_sweep,
)
from controller.plan.fence_sweep import ClearLock, Withdraw, find_open_ids, may_delete_lease, plan_sweep
from tests.plan.building import NOW

ALIVE, DEAD = "gateway0", "gateway9"
DEADS = frozenset({DEAD})
ID_OF_ALIVE, ID_OF_DEAD = f"at1.5.{ALIVE}.abcdefgh", f"at1.5.{DEAD}.abcdefgh"
LOCK_OF_ALIVE = Lock("uid-1", 5, ID_OF_ALIVE, ALIVE)
LOCK_OF_DEAD = Lock("uid-1", 4, ID_OF_DEAD, DEAD)
VIEW = ObjectView("uid-1", 5, 10)


@pytest.mark.parametrize(
    ("attached", "active", "gateways", "presence"),
    [
        (False, None, (), Presence.NOBODY),
        (True, ID_OF_ALIVE, (), Presence.WATCHED),
        (True, ID_OF_DEAD, (), Presence.NOBODY),
        (False, ID_OF_ALIVE, (), Presence.NOBODY),
        (True, "by-hand", (), Presence.WATCHED),
        (True, None, (), Presence.WATCHED),  # a person with kubectl says so
        (True, "", (), Presence.NOBODY),  # thrown out, and nobody wrote `attached: false`
        (True, "", (GatewayEntry(ALIVE, 1),), Presence.WATCHED),
        (False, None, (GatewayEntry(ALIVE, 1),), Presence.WATCHED),
        (False, None, (GatewayEntry(ALIVE, 0),), Presence.NOBODY),
        (False, None, (GatewayEntry(DEAD, 3),), Presence.NOBODY),
        (True, ID_OF_DEAD, (GatewayEntry(ALIVE, 1),), Presence.WATCHED),
    ],
)
def test_who_counts_as_a_viewer(
    attached: bool, active: str | None, gateways: tuple[GatewayEntry, ...], presence: Presence
) -> None:
    judged = judge_presence(attached=attached, active_socket_id=active, gateways=gateways, dead=DEADS)
    assert judged is presence


def test_the_operator_asks_for_every_gateway_that_an_object_speaks_of() -> None:
    view = replace(VIEW, active_socket_id=ID_OF_ALIVE, lock=LOCK_OF_DEAD, gateways=(GatewayEntry("gateway5"),))
    assert find_incarnations(view) == {ALIVE, DEAD, "gateway5"}
    assert find_incarnations(replace(VIEW, active_socket_id="by-hand")) == frozenset()


def test_the_operator_sweeps_the_lock_and_then_each_entry_of_the_dead_and_never_the_spec() -> None:
    entries = (GatewayEntry(ALIVE, 1), GatewayEntry(DEAD, 2))
    view = replace(VIEW, active_socket_id=ID_OF_DEAD, attached=True, lock=LOCK_OF_DEAD, gateways=entries)
    first = plan_status_sweep(view, dead=DEADS)
    assert isinstance(first, SweepLock)
    assert first.lock == LOCK_OF_DEAD

    second = plan_status_sweep(replace(view, lock=None), dead=DEADS)
    assert isinstance(second, SweepEntry)
    assert second.patch[1:] == [
        {"op": "test", "path": "/status/gateways/1/incarnation", "value": DEAD},
        {"op": "remove", "path": "/status/gateways/1"},
    ]
    assert plan_status_sweep(replace(view, lock=LOCK_OF_ALIVE, gateways=entries[:1]), dead=DEADS) is None
    for sweep in (first, second):
        assert not [one for one in sweep.patch if one["op"] != "test" and one["path"].startswith("/spec")]


@pytest.mark.parametrize(
    ("lock", "release"),
    [(None, ReleaseNow()), (LOCK_OF_ALIVE, AwaitHolder(ALIVE))],
)
def test_an_object_stays_while_a_gateway_may_speak_for_it(lock: Lock | None, release: object) -> None:
    assert judge_release(replace(VIEW, deleting=True, lock=lock), dead=DEADS) == release


def test_a_dead_holders_lock_is_swept_before_an_object_goes() -> None:
    assert isinstance(judge_release(replace(VIEW, deleting=True, lock=LOCK_OF_DEAD), dead=DEADS), SweepFirst)


@pytest.mark.parametrize(
    ("active", "lock", "status", "reason", "told"),
    [
        (None, None, ConditionStatus.FALSE, Reason.NEVER_CLAIMED, ""),
        ("", None, ConditionStatus.TRUE, Reason.REVOKED, ""),
        ("", LOCK_OF_ALIVE, ConditionStatus.TRUE, Reason.REVOKED, "letting go"),
        (ID_OF_ALIVE, LOCK_OF_ALIVE, ConditionStatus.TRUE, Reason.SOCKET_NAMED, ""),
        (ID_OF_ALIVE, None, ConditionStatus.TRUE, Reason.SOCKET_NAMED, "not hold the lock yet"),
        (ID_OF_ALIVE, LOCK_OF_DEAD, ConditionStatus.TRUE, Reason.SOCKET_NAMED, "waits for the one before"),
        (ID_OF_DEAD, LOCK_OF_DEAD, ConditionStatus.TRUE, Reason.SOCKET_NAMED, "nobody speaks"),
        ("by-hand", None, ConditionStatus.TRUE, Reason.SOCKET_NAMED, "not one of a gateway of ours"),
    ],
)
def test_the_condition_fenced_says_who_may_speak(
    active: str | None, lock: Lock | None, status: ConditionStatus, reason: Reason, told: str
) -> None:
    verdict = judge_fenced(active, lock, dead=DEADS)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert told in verdict.message
    assert bool(told) is bool(verdict.message)


# --- a gateway's own sweeping -----------------------------------------------------------------------------------------


def sweep(view: ObjectView, *, open_ids: frozenset[str] = frozenset()) -> Any:
    return plan_sweep(view, incarnation=ALIVE, open_ids=open_ids, dead=DEADS)


def test_a_lock_of_ours_without_a_socket_is_cleared_and_then_its_name() -> None:
    view = replace(VIEW, active_socket_id=ID_OF_ALIVE, attached=True, lock=LOCK_OF_ALIVE)
    assert isinstance(sweep(view), ClearLock)
    assert isinstance(sweep(replace(view, lock=None)), Withdraw)
    assert sweep(view, open_ids=frozenset({ID_OF_ALIVE})) is None


def test_what_the_dead_left_is_cleared_and_what_strangers_and_the_living_wrote_is_not() -> None:
    assert isinstance(sweep(replace(VIEW, lock=LOCK_OF_DEAD)), ClearLock)
    assert isinstance(sweep(replace(VIEW, active_socket_id=ID_OF_DEAD)), Withdraw)
    living = Lock("uid-1", 5, "at1.5.gateway5.abcdefgh", "gateway5")
    assert sweep(replace(VIEW, active_socket_id=living.socket_id, lock=living)) is None
    assert sweep(replace(VIEW, active_socket_id="by-hand")) is None


def test_a_socket_on_its_way_to_the_lock_is_not_swept() -> None:
    seat, _ = take_step(
        take_seat("uid-1", ALIVE, tenure=1), Arrived(1, "abcdefgh", replace(VIEW, generation=4)), now=NOW
    )
    assert find_open_ids(seat) == {ID_OF_ALIVE}


def test_a_lease_is_deleted_only_when_no_socket_and_no_lock_is_left() -> None:
    idle = take_seat("uid-1", ALIVE, tenure=1)
    busy, _ = take_step(idle, Arrived(1, "abcdefgh", VIEW), now=NOW)
    assert may_delete_lease([idle], locks_listed=0)
    assert not may_delete_lease([idle], locks_listed=1)
    assert not may_delete_lease([idle, busy], locks_listed=0)
    assert name_lease(ALIVE) == "atgw-gateway0"


# --- a gateway's own entry --------------------------------------------------------------------------------------------


def test_the_first_entry_is_made_under_a_test_for_none_and_the_next_beside_it() -> None:
    mine = GatewayEntry(ALIVE, 1)
    assert build_entry(VIEW, mine)[1:] == [
        {"op": "test", "path": "/status/gateways", "value": None},
        {"op": "add", "path": "/status/gateways", "value": [{"incarnation": ALIVE, "viewers": 1}]},
    ]
    beside = build_entry(replace(VIEW, gateways=(GatewayEntry(DEAD),)), mine)
    assert beside[-1] == {"op": "add", "path": "/status/gateways/-", "value": {"incarnation": ALIVE, "viewers": 1}}


def test_an_entry_is_changed_only_at_the_index_where_it_still_stands() -> None:
    view = replace(VIEW, gateways=(GatewayEntry(DEAD), GatewayEntry(ALIVE, 1, "2026-11-30T12:00:00Z")))
    assert build_entry(view, GatewayEntry(ALIVE, 0, "2026-11-30T12:00:00Z"))[1:] == [
        {"op": "test", "path": "/status/gateways/1/incarnation", "value": ALIVE},
        {
            "op": "replace",
            "path": "/status/gateways/1",
            "value": {"incarnation": ALIVE, "viewers": 0, "activityTime": "2026-11-30T12:00:00Z"},
        },
    ]
    assert build_entry(view, view.gateways[1]) == []


def test_the_last_entry_takes_the_list_along() -> None:
    view = replace(VIEW, gateways=(GatewayEntry(DEAD, 2),))
    assert build_drop_entry(view, DEAD)[-1] == {"op": "remove", "path": "/status/gateways"}
    assert build_drop_entry(view, ALIVE) == []

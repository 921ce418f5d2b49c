"""
The protocol of the fence, in every order: the invariant holds, nobody waits for ever, and each rule is needed.

The invariant: no input of an older epoch arrives after the first input of a newer one. `AGENTTERMINAL_FENCE_MODEL=long`
searches wider worlds, for minutes.
"""

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.names import FINALIZER
from controller.plan.fence import SendClaim, SendClear, SendLock, SendWithdrawal
from controller.plan.fence_objects import Lock, ObjectView, render_lock, view_object
from controller.plan.fence_patches import JsonPatch, build_claim, build_clear_lock, build_lock, build_withdrawal
from tests.plan.fence_model import NOTHING, Budget, Found, Model, Scope, Without, apply_patch

LONG = os.environ.get("AGENTTERMINAL_FENCE_MODEL") == "long"

TWO = Scope(sockets=(0, 1))
TIMED = Scope(sockets=(0, 1), ticks=True, lag=0)
REVIVED = replace(TIMED, budget=Budget(revive=1))
WRITES = (SendClaim, SendLock, SendClear, SendWithdrawal)
HANDS = ("revoke", "foreign", "back", "detach", "edit", "terminate")

AFTER_A_DEATH = Scope(
    sockets=(0, 1, 2),
    gateways=3,
    ticks=True,
    lag=0,
    shaky=(),
    budget=Budget(crash=1),
    prelude=(
        "socket 0 comes to gateway0",
        "socket 0's SendClaim lands: Accepted",
        "socket 0's SendLock lands: Accepted",
        "socket 0 has the answer: LockAnswered Accepted",
        "socket 1 comes to gateway1",
        "socket 1's SendClaim lands: Accepted",
        "gateway1 dies",
    ),
)
"""The first gateway speaks, and the one that the spec names is dead."""

WORLDS = {
    "the third comes while the first speaks and the second is dead": AFTER_A_DEATH,
    "three sockets over two gateways": Scope(sockets=(0, 1, 0)),
    "three gateways": Scope(sockets=(0, 1, 2), gateways=3),
    "every answer takes its time, reads too": replace(TWO, slow_reads=True, slow=WRITES),
    "a person patches the spec": replace(TWO, budget=Budget(hand=1), hands=HANDS),
    "an answer or a write is lost, and may land later": replace(TWO, budget=Budget(lost=1)),
    "a client leaves while an answer is lost": replace(TWO, budget=Budget(lost=1, left=1)),
    "the object is deleted and made again": replace(TWO, budget=Budget(delete=2)),
    "it is made again and names the old socket": replace(TWO, budget=Budget(delete=2), recreate="back"),
    "the first gateway renews too late": REVIVED,
    "a gateway dies": replace(TIMED, budget=Budget(crash=1)),
    "a gateway is asked to go": replace(TIMED, shaky=(), budget=Budget(exit=1)),
    "somebody deletes a Lease": replace(TIMED, shaky=(), budget=Budget(lease_gone=1)),
}

WIDE_WORLDS = {
    "three sockets and a person": Scope(sockets=(0, 1, 0), budget=Budget(hand=1), hands=("revoke", "back")),
    "three gateways and a person": Scope(sockets=(0, 1, 2), gateways=3, budget=Budget(hand=1), hands=("back",)),
    "a renewal lands late": replace(TIMED, budget=Budget(slow=1, revive=1)),
    "three gateways, of which one dies": Scope(
        sockets=(0, 1, 2), gateways=3, ticks=True, lag=0, shaky=(), budget=Budget(crash=1)
    ),
    "two answers are lost": replace(TWO, budget=Budget(lost=2), slow=WRITES),
    "a person patches twice": replace(TWO, budget=Budget(hand=2), hands=HANDS),
    "a Lease is deleted and its holder renews late": replace(TIMED, budget=Budget(lease_gone=1, revive=1)),
    "a holder goes while a person patches": replace(TIMED, budget=Budget(exit=1, hand=1), hands=("back", "edit")),
}


def explore(scope: Scope, without: Without = NOTHING) -> Found:
    return Model(scope, without).explore()


def demand_sound(found: Found) -> None:
    assert found.broken is None, "\n".join(found.broken)
    assert found.stuck is None, "\n".join(found.stuck)
    assert found.whole
    assert found.spoke > 0


SEARCHED = WORLDS | WIDE_WORLDS if LONG else WORLDS


@pytest.mark.timeout(3600 if LONG else 120)
@pytest.mark.parametrize("world", SEARCHED.values(), ids=SEARCHED.keys())
def test_in_every_order_older_input_never_follows_newer_and_nobody_waits_for_ever(world: Scope) -> None:
    demand_sound(explore(world))


BREAKING = {
    "the second mark: frames pass by the spec alone": (TWO, Without(lock_mark=True)),
    "waiting for the lock, and the test on its former value": (TWO, Without(waiting=True, former_value=True)),
    "the test on the generation, and reading the answer": (
        replace(TWO, budget=Budget(hand=1), hands=("revoke",)),
        Without(generation_test=True, answer_read=True),
    ),
    "the drain before the lock is let go": (TWO, Without(drain=True)),
    "the end of a tenure": (TIMED, Without(tenure=True)),
    "the second look at a Lease": (TIMED, Without(two_looks=True)),
    "the breaking of a Lease, and reading again in a new tenure": (REVIVED, Without(breaking=True, reread=True)),
    "the breaking of a Lease, and looking only after the claim": (
        REVIVED,
        Without(breaking=True, reads_after_claim=True),
    ),
    "looking twice at a Lease that is missing": (
        replace(TIMED, shaky=(), budget=Budget(lease_gone=1)),
        Without(absent_twice=True),
    ),
    "deleting one's Lease last, and looking twice at a missing one": (
        replace(TIMED, shaky=(), budget=Budget(exit=1)),
        Without(lease_last=True, absent_twice=True),
    ),
    "waiting for whom the lock names": (
        AFTER_A_DEATH,
        Without(lock_holder=True),
    ),
    "the finalizer while a lock stands": (replace(TWO, budget=Budget(delete=2)), Without(finalizer=True)),
}
"""What is taken out, and the smallest world in which that shows."""


@pytest.mark.parametrize(("world", "without"), BREAKING.values(), ids=BREAKING.keys())
def test_without_it_older_input_follows_newer(world: Scope, without: Without) -> None:
    found = Model(world, without).explore(seek_stuck=False)

    assert found.broken is not None
    older, newer = found.broken[-1], [line for line in found.broken if line.startswith("input of")][-2]
    assert "arrives, epoch" in older
    assert older.split("epoch ")[1] < newer.split("epoch ")[1]


STOPPING = {
    "the clearing of locks whose socket is gone": (
        replace(TWO, budget=Budget(lost=1, left=1)),
        Without(own_sweep=True),
    ),
    "the epoch of the last read: an edit by hand shuts everybody out": (
        Scope(sockets=(0,), budget=Budget(hand=1), hands=("edit",)),
        Without(epoch_of_read=True),
    ),
}


@pytest.mark.parametrize(("world", "without"), STOPPING.values(), ids=STOPPING.keys())
def test_without_it_somebody_waits_for_ever(world: Scope, without: Without) -> None:
    found = explore(world, without)

    assert found.broken is None
    assert found.stuck is not None


GUARDED = {
    "waiting": (TWO, Without(waiting=True)),
    "the former value": (TWO, Without(former_value=True)),
    "the generation": (replace(TWO, budget=Budget(hand=1), hands=("revoke",)), Without(generation_test=True)),
    "the answer": (replace(TWO, budget=Budget(hand=1), hands=("revoke",)), Without(answer_read=True)),
    "the breaking": (REVIVED, Without(breaking=True)),
    "reading again": (REVIVED, Without(reread=True)),
}


@pytest.mark.parametrize(("world", "without"), GUARDED.values(), ids=GUARDED.keys())
def test_of_two_rules_that_guard_one_another_one_is_enough(world: Scope, without: Without) -> None:
    """So a pair is the smallest thing that can be taken out, and the model is fine enough to tell."""
    found = Model(world, without).explore(seek_stuck=False)

    assert found.broken is None
    assert found.whole


# --- the model's API server, against the words of RFC 6902 ------------------------------------------------------------

IDS = ("", "by-hand", "at1.2.gateway0.socket00", "at1.3.gateway1.socket01")
LOCKS = (
    None,
    Lock("object0", 2, IDS[2], "gateway0"),
    Lock("object0", 3, IDS[3], "gateway1", since="T", rest='{"x": 1}'),
)
VIEWS = st.builds(
    ObjectView,
    uid=st.sampled_from(["object0", "object1"]),
    generation=st.integers(1, 3),
    version=st.just(7),
    deleting=st.booleans(),
    attached=st.booleans(),
    active_socket_id=st.sampled_from([None, *IDS]),
    lock=st.sampled_from(LOCKS),
)


def render(view: ObjectView) -> dict[str, Any]:
    spec: dict[str, Any] = {"attached": view.attached}
    if view.active_socket_id is not None:
        spec["activeSocketId"] = view.active_socket_id
    metadata = {"uid": view.uid, "generation": view.generation, "resourceVersion": "7", "finalizers": [FINALIZER]}
    if view.deleting:
        metadata["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    status = {} if view.lock is None else {"socket": render_lock(view.lock)}
    return {"metadata": metadata, "spec": spec, "status": status}


def patch_plainly(document: dict[str, Any], patch: JsonPatch) -> dict[str, Any] | None:
    """Apply a JSON patch to a document; a test of an absent place passes for null, as the API server has it."""
    for one in patch:
        *way, last = one["path"].strip("/").split("/")
        place = document
        for name in way:
            place = place[name]
        match one["op"]:
            case "test" if place.get(last) != one["value"]:
                return None
            case "add":
                place[last] = one["value"]
            case "remove":
                del place[last]
            case _:
                pass
    return document


@given(before=VIEWS, known=VIEWS, lock=st.sampled_from(LOCKS[1:]), socket_id=st.sampled_from(IDS[1:]))
def test_the_models_api_server_does_with_our_patches_what_a_plain_reader_of_them_does(
    before: ObjectView, known: ObjectView, lock: Lock, socket_id: str
) -> None:
    patches = [
        build_claim(known, socket_id),
        build_lock(known, replace(lock, epoch=known.generation)),
        build_clear_lock(lock, uid=known.uid),
        build_withdrawal(known.uid, socket_id),
    ]
    for patch in patches:
        modelled, plain = apply_patch(before, patch), patch_plainly(render(before), patch)
        assert (modelled is None) is (plain is None)
        if modelled is not None and plain is not None:
            assert replace(view_object(plain), generation=modelled.generation) == modelled

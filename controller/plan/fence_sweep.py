"""
What a gateway clears beside the sockets it serves: what the object says, not what memory says.

Problem: a lock whose write was believed lost lands after its socket went, and a process that died leaves its locks and
names behind; nobody remembers either. Promise: every lock and every name of one's own incarnation without an open
socket is cleared, and those of incarnations that are proven out as well; each write tests the exact value, so it never
hits anything that came later.

Source: gateway.md 4, "what to clear" (a), (b) and (c).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.plan.fence import Seat
from controller.plan.fence_ids import find_incarnation
from controller.plan.fence_objects import Lock, ObjectView
from controller.plan.fence_patches import JsonPatch, build_clear_lock, build_withdrawal


@dataclass(frozen=True, slots=True)
class ClearLock:
    """Clear this lock (status subresource)."""

    lock: Lock
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Clear this name (main resource)."""

    socket_id: str
    patch: JsonPatch = field(hash=False)


SweepStep = ClearLock | Withdraw


def plan_sweep(
    view: ObjectView, *, incarnation: str, open_ids: frozenset[str], dead: frozenset[str]
) -> SweepStep | None:
    """
    Decide what a gateway clears of one object next; None where nothing is left over. The lock goes before the name.

    Args:
        view: The object, read consistently.
        incarnation: Our own.
        open_ids: The ids of our sockets for this object, those on their way to a lock or out of one included.
        dead: Incarnations that are proven out.
    """
    lock = view.lock
    if lock is not None and _is_left_over(lock.incarnation, lock.socket_id, incarnation, open_ids, dead):
        return ClearLock(lock, build_clear_lock(lock, uid=view.uid))
    named = view.active_socket_id
    drawn_by = find_incarnation(named)
    if named is not None and drawn_by is not None and _is_left_over(drawn_by, named, incarnation, open_ids, dead):
        return Withdraw(named, build_withdrawal(view.uid, named))
    return None


def find_open_ids(seat: Seat) -> frozenset[str]:
    """Give the ids of a seat's sockets, whatever each of them is doing."""
    return frozenset(speaker.socket_id for speaker in seat.speakers if speaker.socket_id is not None)


def may_delete_lease(seats: Iterable[Seat], *, locks_listed: int) -> bool:
    """
    Tell whether a process that goes may delete its Lease: every upstream is closed and every lock cleared.

    Whoever sees the Lease missing may take its locks, so it is the last thing to go.

    Args:
        seats: All of the process.
        locks_listed: How many objects a list, made now, shows whose lock is ours.
    """
    return locks_listed == 0 and not any(seat.speakers for seat in seats)


def _is_left_over(
    drawn_by: str, socket_id: str, incarnation: str, open_ids: frozenset[str], dead: frozenset[str]
) -> bool:
    if drawn_by == incarnation:
        return socket_id not in open_ids
    return drawn_by in dead

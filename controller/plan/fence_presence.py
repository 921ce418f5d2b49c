"""
The operator's side of the fence: who watches, what of the dead is swept, and when an object may go. Pure.

Problem: `attached: true` outlives the gateway that wrote it, and then a forgotten terminal is held and never reaped;
an object that goes while a gateway still speaks for it lets its successor begin beside a living holder. Promise: an id
of our form counts as a viewer only until its gateway is proven out, a foreign id as long as it is declared, and the
empty one never; the operator sweeps locks and entries of the dead with proof, and never writes spec; the finalizer
stays while a lock does.

Source: gateway.md 3, rule 6, and 4. The proof is `fence_tenure.judge_lease`, the same as a gateway's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.plan.activity import Presence
from controller.plan.fence_ids import (
    ForeignSocket,
    NeverClaimed,
    OurSocket,
    Revoked,
    find_incarnation,
    read_socket_name,
)
from controller.plan.fence_objects import GatewayEntry, Lock, ObjectView
from controller.plan.fence_patches import JsonPatch, build_clear_lock, build_drop_entry
from controller.plan.steps import Verdict


def judge_presence(
    *,
    attached: bool,
    active_socket_id: str | None,
    gateways: Iterable[GatewayEntry],
    dead: frozenset[str],
) -> Presence:
    """
    Decide who looks at a terminal. Total.

    Whoever types is declared in the spec; whoever only watches is counted by its gateway. Both count until that gateway
    is proven out: a Lease that was not asked yet takes nobody's presence away.

    Args:
        attached: `spec.attached`; absent is false.
        active_socket_id: `spec.activeSocketId`.
        gateways: `status.gateways`.
        dead: Incarnations that are proven out.
    """
    if attached and _is_alive(active_socket_id, dead):
        return Presence.WATCHED
    watched = any(entry.viewers > 0 and entry.incarnation not in dead for entry in gateways)
    return Presence.WATCHED if watched else Presence.NOBODY


def find_incarnations(view: ObjectView) -> frozenset[str]:
    """Give every gateway process that an object speaks of: the ones whose Leases the operator must know about."""
    named = find_incarnation(view.active_socket_id)
    found = {entry.incarnation for entry in view.gateways}
    found |= {name for name in (named, None if view.lock is None else view.lock.incarnation) if name is not None}
    return frozenset(found)


def _is_alive(active_socket_id: str | None, dead: frozenset[str]) -> bool:
    match read_socket_name(active_socket_id):
        case NeverClaimed() | ForeignSocket():
            return True
        case Revoked():
            # Who throws everybody out by this field alone leaves `attached` behind, and would pay for it for ever.
            return False
        case OurSocket(incarnation=incarnation):
            return incarnation not in dead
        case other:
            assert_never(other)


# --- sweeping ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SweepLock:
    """Clear the lock of a dead gateway (status subresource)."""

    lock: Lock
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """Remove the entry of a dead gateway (status subresource)."""

    incarnation: str
    patch: JsonPatch = field(hash=False)


StatusSweep = SweepLock | SweepEntry


def plan_status_sweep(view: ObjectView, *, dead: frozenset[str]) -> StatusSweep | None:
    """
    Decide what the operator clears of an object's status next; None where nothing of the dead is left.

    One write at a time, since indices move. Never spec: what a dead gateway's id there means is judged, not written.
    """
    if view.lock is not None and view.lock.incarnation in dead:
        return SweepLock(view.lock, build_clear_lock(view.lock, uid=view.uid))
    for entry in view.gateways:
        if entry.incarnation in dead:
            return SweepEntry(entry.incarnation, build_drop_entry(view, entry.incarnation))
    return None


# --- letting an object go ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReleaseNow:
    """No lock stands: the finalizer may go, by a patch that tests so."""


@dataclass(frozen=True, slots=True)
class SweepFirst:
    """The lock's holder is proven out: clear the lock, then ask again."""

    sweep: SweepLock


@dataclass(frozen=True, slots=True)
class AwaitHolder:
    """A gateway may still speak: wait until it lets go, or prove it out."""

    incarnation: str


Release = ReleaseNow | SweepFirst | AwaitHolder


def judge_release(view: ObjectView, *, dead: frozenset[str]) -> Release:
    """
    Decide whether an object may go as far as the fence is concerned, for `Orphan` too. Total.

    A successor of the same name must begin without a living holder; its epochs are newer than any of this one's.
    """
    if view.lock is None:
        return ReleaseNow()
    if view.lock.incarnation in dead:
        return SweepFirst(SweepLock(view.lock, build_clear_lock(view.lock, uid=view.uid)))
    return AwaitHolder(view.lock.incarnation)


# --- the condition ----------------------------------------------------------------------------------------------------


def judge_fenced(active_socket_id: str | None, lock: Lock | None, *, dead: frozenset[str]) -> Verdict:
    """
    Say of `Fenced` who may speak. Absent, empty and an id are three things: never claimed, revoked, and one socket.

    It speaks of what the spec asks for; the message tells whether the lock says so yet.
    """
    match read_socket_name(active_socket_id):
        case NeverClaimed():
            return Verdict(ConditionStatus.FALSE, Reason.NEVER_CLAIMED)
        case Revoked():
            return Verdict(ConditionStatus.TRUE, Reason.REVOKED, _tell_left(lock))
        case OurSocket(incarnation=incarnation):
            return Verdict(
                ConditionStatus.TRUE, Reason.SOCKET_NAMED, _tell_lock(active_socket_id, incarnation, lock, dead)
            )
        case ForeignSocket():
            return Verdict(ConditionStatus.TRUE, Reason.SOCKET_NAMED, "The socket is not one of a gateway of ours.")
        case other:
            assert_never(other)


def _tell_left(lock: Lock | None) -> str:
    return "" if lock is None else "The socket that spoke is letting go."


def _tell_lock(active: str | None, incarnation: str, lock: Lock | None, dead: frozenset[str]) -> str:
    if incarnation in dead:
        return "The gateway of the named socket is gone; nobody speaks."
    if lock is None:
        return "The named socket does not hold the lock yet."
    return "" if lock.socket_id == active else "The named socket waits for the one before it to let go."

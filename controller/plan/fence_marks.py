"""
Who may speak, as far as an object says: the questions that frames, claims, locks and closes all ask. Pure.

Problem: if a frame, a recovery and a close each ask in their own way who is active, they disagree one day. Promise: one
predicate answers all of them, and a frame passes only with both marks, the spec's name and the lock, inside a tenure.

Source: gateway.md 3, rules 1, 2, 4 and 6, and 4 ("held"); behaviour cases F4 to F6, F16 to F20.
"""

from dataclasses import dataclass
from datetime import timedelta

from controller.plan.fence_closing import Ending
from controller.plan.fence_ids import ForeignSocket, NeverClaimed, OurSocket, Revoked, read_socket_name
from controller.plan.fence_objects import Lock, ObjectView
from controller.plan.fence_state import Seat, Speaker, Speaking, find_speaker
from controller.plan.fence_tenure import Term, is_in_tenure


def is_active(active: str | None, socket_id: str | None) -> bool:
    """
    Tell whether what the spec says names a socket: one predicate for frames, recovery and closes.

    Absent means that the terminal was never claimed: only a socket without an id may take itself for active, and no
    socket of ours is without one. Empty names nobody, and empty never equals empty.
    """
    match read_socket_name(active):
        case NeverClaimed():
            return socket_id is None
        case Revoked():
            return False
        case OurSocket() | ForeignSocket():
            return active == socket_id


def is_named(view: ObjectView, socket_id: str | None) -> bool:
    """Tell whether a socket of ours is the one that may speak, as far as the spec goes (the first mark)."""
    open_to_input = view.attached and not view.terminated and not view.deleting
    return open_to_input and socket_id is not None and is_active(view.active_socket_id, socket_id)


def is_own_lock(lock: Lock | None, *, uid: str, incarnation: str, socket_id: str | None) -> bool:
    """Tell whether a lock is this very socket's (the second mark)."""
    return (
        lock is not None
        and lock.uid == uid
        and lock.incarnation == incarnation
        and socket_id is not None
        and lock.socket_id == socket_id
    )


def judge_unnamed(view: ObjectView, socket_id: str | None) -> Ending:
    """Say why a socket that was named is not any more."""
    if view.terminated:
        return Ending.TERMINATED
    if view.deleting:
        return Ending.DELETED
    if view.active_socket_id in (None, "", socket_id):
        return Ending.REVOKED
    return Ending.REPLACED


def is_held(active: str | None, dead: frozenset[str]) -> bool:
    """Tell whether somebody speaks already: an id of ours whose Lease is not proven out, or any foreign id."""
    match read_socket_name(active):
        case NeverClaimed() | Revoked():
            return False
        case OurSocket(incarnation=incarnation):
            return incarnation not in dead
        case ForeignSocket():
            return True


def judge_claim(view: ObjectView, *, takeover: bool, dead: frozenset[str]) -> Ending | None:
    """Say why an object may not be claimed now; None where it may."""
    if view.deleting:
        return Ending.DELETED
    if view.terminated:
        return Ending.TERMINATED
    if view.suspended:
        return Ending.SUSPENDED
    if not view.has_finalizer:
        return Ending.NOT_READY
    if not takeover and is_held(view.active_socket_id, dead):
        return Ending.HELD
    return None


def may_lock(view: ObjectView, *, proven: str | None) -> bool:
    """
    Tell whether the lock may be written: it is free, or its holder, as the lock itself names it, is proven out.

    Whom the former `activeSocketId` named does not matter: between it and us others may have spoken. No lock is taken
    on an object that is going or that nobody guards: its successor must begin without a living holder.
    """
    if view.deleting or not view.has_finalizer:
        return False
    return view.lock is None or view.lock.incarnation == proven


# --- the verdict for one frame ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pass:
    """Send it upstream now."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep it, within the bounds of `judge_buffer`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It changes nothing and is not acknowledged; the socket is closed (again)."""

    ending: Ending


Verdict = Pass | Hold | Refuse


def judge_input(seat: Seat, key: int, *, term: Term, now: timedelta) -> Verdict:
    """
    Decide what becomes of one frame of input: asked for each frame, directly before it is sent.

    It passes with two marks, the spec's name and the lock, both as newest known, in the tenure in which the lock was
    seen, while that tenure lasts by the clock. Total: a socket that is not among the speakers is not active.
    """
    speaker = find_speaker(seat, key)
    if speaker is None:
        return Refuse(Ending.REPLACED)
    if speaker.ending is not None:
        return Refuse(speaker.ending)
    if not isinstance(speaker.phase, Speaking) or seat.view is None:
        return Hold()
    if seat.tenure != speaker.phase.tenure or term.number != speaker.phase.tenure or not is_in_tenure(term, now=now):
        return Hold()
    marked = is_named(seat.view, speaker.socket_id) and holds_lock(seat, speaker)
    return Pass() if marked else Hold()


def holds_lock(seat: Seat, speaker: Speaker) -> bool:
    """Tell whether a speaker holds the lock, as far as is known."""
    lock = None if seat.view is None or seat.gone else seat.view.lock
    return is_own_lock(lock, uid=seat.uid, incarnation=seat.incarnation, socket_id=speaker.socket_id)

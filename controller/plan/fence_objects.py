"""
What the fence sees of the Kubernetes API: an object, its lock, and a Lease. Frozen values.

Problem: a decision on a raw object reads a missing field here as false and there as a failure. Promise: an object is
read once, totally, and a lock is rendered back exactly as it was stored, with fields that this version does not know,
since every write tests the whole of it.

Source: gateway.md 1 and 3.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.api.names import FINALIZER

_LOCK_FIELDS: Final = ("uid", "epoch", "socketId", "incarnation", "since")
_ENTRY_FIELDS: Final = ("incarnation", "viewers", "activityTime", "exit")


@dataclass(frozen=True, slots=True)
class Lock:
    """
    `status.socket`: the right to send upstream.

    Args:
        uid: Of the object for which it was taken.
        epoch: The generation that the write of the lock tested.
        socket_id: Whose it is.
        incarnation: The gateway process that holds it.
        since: As it is stored, RFC 3339; never read, only written back.
        rest: Fields that this version does not know, as JSON; the test of the lock covers them.
    """

    uid: str
    epoch: int
    socket_id: str
    incarnation: str
    since: str | None = None
    rest: str = ""


@dataclass(frozen=True, slots=True)
class ExitEntry:
    """The exit that a gateway has seen, in its entry of `status.gateways`. `created` as it is stored."""

    session_id: str
    sprite_id: str
    created: str | None
    code: int


@dataclass(frozen=True, slots=True)
class GatewayEntry:
    """
    One entry of `status.gateways`.

    Args:
        incarnation: Whose.
        viewers: How many look on.
        activity_time: As it is stored.
        exit: The exit that it saw.
        rest: Fields that this version does not know, as JSON; the test of a whole entry covers them.
    """

    incarnation: str
    viewers: int = 0
    activity_time: str | None = None
    exit: ExitEntry | None = None
    rest: str = ""


@dataclass(frozen=True, slots=True)
class ObjectView:
    """
    One AgentTerminal at one moment, as far as the fence asks.

    Args:
        uid: Everything in a gateway is keyed by it; a successor of the same name is another object.
        generation: Moves with the spec, and once with the deletion mark.
        version: resourceVersion, to tell which of two views of one object is the newer.
        deleting: The deletion mark is set.
        has_finalizer: Ours is on.
        terminated: `spec.terminated`.
        suspended: `spec.suspend`.
        attached: `spec.attached`; absent is false.
        active_socket_id: `spec.activeSocketId`; absent is None, and that is not the empty text.
        lock: `status.socket`.
        gateways: `status.gateways`, in order: patches name an entry by its index.
        has_status: A status was there at all; a test with null passes only where the parent exists.
    """

    uid: str
    generation: int
    version: int
    deleting: bool = False
    has_finalizer: bool = True
    terminated: bool = False
    suspended: bool = False
    attached: bool = False
    active_socket_id: str | None = None
    lock: Lock | None = None
    gateways: tuple[GatewayEntry, ...] = ()
    has_status: bool = True


@dataclass(frozen=True, slots=True)
class LeaseView:
    """
    A gateway's Lease, read consistently.

    Args:
        uid: Of the Lease; one that was deleted and made again is another.
        version: resourceVersion; each renewal moves it.
        holder: `spec.holderIdentity`: the incarnation, or empty where the Lease was broken.
    """

    uid: str
    version: str
    holder: str


@dataclass(frozen=True, slots=True)
class NoLease:
    """No Lease of that name exists."""


LeaseLook = LeaseView | NoLease


def view_object(raw: Mapping[str, Any]) -> ObjectView:
    """Read an AgentTerminal as the API server gave it. What is missing or of a wrong type reads as absent."""
    metadata, spec, status = _section(raw, "metadata"), _section(raw, "spec"), _section(raw, "status")
    socket_id = spec.get("activeSocketId")
    finalizers = metadata.get("finalizers")
    return ObjectView(
        uid=str(metadata.get("uid", "")),
        generation=_number(metadata.get("generation")),
        version=_number(metadata.get("resourceVersion")),
        deleting=metadata.get("deletionTimestamp") is not None,
        has_finalizer=isinstance(finalizers, list) and FINALIZER in finalizers,
        terminated=spec.get("terminated") is True,
        suspended=spec.get("suspend") is True,
        attached=spec.get("attached") is True,
        active_socket_id=socket_id if isinstance(socket_id, str) else None,
        lock=read_lock(status.get("socket")),
        gateways=_read_gateways(status.get("gateways")),
        has_status=isinstance(raw.get("status"), Mapping),
    )


def read_lock(raw: object) -> Lock | None:
    """
    Read `status.socket`; None only where there is none.

    A lock that lacks a field is still somebody's: it is read with an empty text there, so that it names no socket of
    ours and is not taken for a free one.
    """
    if not isinstance(raw, Mapping):
        return None
    rest = {str(key): value for key, value in raw.items() if key not in _LOCK_FIELDS}
    since = raw.get("since")
    return Lock(
        uid=str(raw.get("uid", "")),
        epoch=_number(raw.get("epoch")),
        socket_id=str(raw.get("socketId", "")),
        incarnation=str(raw.get("incarnation", "")),
        since=since if isinstance(since, str) else None,
        rest=json.dumps(rest, sort_keys=True) if rest else "",
    )


def render_lock(lock: Lock) -> dict[str, Any]:
    """Write a lock as `status.socket` stores it."""
    rendered: dict[str, Any] = {
        "uid": lock.uid,
        "epoch": lock.epoch,
        "socketId": lock.socket_id,
        "incarnation": lock.incarnation,
    }
    if lock.since is not None:
        rendered["since"] = lock.since
    if lock.rest:
        rendered.update(json.loads(lock.rest))
    return rendered


def view_lease(raw: Mapping[str, Any]) -> LeaseView:
    """Read a Lease; an absent holder is an empty one."""
    metadata, spec = _section(raw, "metadata"), _section(raw, "spec")
    return LeaseView(
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        holder=str(spec.get("holderIdentity") or ""),
    )


def _section(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = raw.get(name)
    return found if isinstance(found, Mapping) else {}


def _number(value: object) -> int:
    try:
        return int(value) if isinstance(value, int | str) else 0
    except ValueError:
        return 0


def _read_gateways(raw: object) -> tuple[GatewayEntry, ...]:
    if not isinstance(raw, list):
        return ()
    return tuple(_read_entry(entry) for entry in raw if isinstance(entry, Mapping))


def _read_entry(raw: Mapping[str, Any]) -> GatewayEntry:
    rest = {str(key): value for key, value in raw.items() if key not in _ENTRY_FIELDS}
    seen = raw.get("exit")
    return GatewayEntry(
        incarnation=str(raw.get("incarnation", "")),
        viewers=_number(raw.get("viewers")),
        activity_time=_text(raw.get("activityTime")),
        exit=_read_exit(seen) if isinstance(seen, Mapping) else None,
        rest=json.dumps(rest, sort_keys=True) if rest else "",
    )


def _read_exit(raw: Mapping[str, Any]) -> ExitEntry:
    return ExitEntry(
        session_id=str(raw.get("sessionId", "")),
        sprite_id=str(raw.get("spriteId", "")),
        created=_text(raw.get("created")),
        code=_number(raw.get("code")),
    )


def render_entry(entry: GatewayEntry) -> dict[str, Any]:
    """Write an entry as `status.gateways` stores it."""
    rendered: dict[str, Any] = {"incarnation": entry.incarnation, "viewers": entry.viewers}
    if entry.activity_time is not None:
        rendered["activityTime"] = entry.activity_time
    if (seen := entry.exit) is not None:
        told: dict[str, Any] = {"sessionId": seen.session_id, "spriteId": seen.sprite_id, "code": seen.code}
        if seen.created is not None:
            told["created"] = seen.created
        rendered["exit"] = told
    if entry.rest:
        rendered.update(json.loads(entry.rest))
    return rendered


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

"""
The bodies of the fence's writes: JSON patches whose tests carry what each write relies on.

Problem: two gateways, the operator and people with kubectl write the same object at once, and a write that lands late
must not undo what came after it was decided. Promise: each patch tests the uid, so it never lands on a successor; a
claim and a lock test the generation they were decided on, a lock and its clearing the whole former value, the clearing
of a name that very name. A failed test is a 422 without causes and changes nothing.

Source: gateway.md 1, 3 and 4. Verified there on kube-apiserver 1.37.2: a test with null passes on an absent path only
if its parent exists, so the whole of `/status/socket` is tested; status writes do not move the generation.
"""

from typing import Any, Final, TypeAlias

from controller.plan.fence_objects import GatewayEntry, Lock, ObjectView, render_entry, render_lock

JsonPatch: TypeAlias = list[dict[str, Any]]
"""The operations of one JSON patch, in order."""

LEASE_PREFIX: Final = "atgw-"
"""Every Lease of a gateway begins so; the admission policy of the chart holds the gateways to it."""


def build_claim(view: ObjectView, socket_id: str) -> JsonPatch:
    """Build the claim (main resource): name the socket, unless the spec has moved or the object is going."""
    return [
        *_same_generation(view.uid, view.generation),
        _test("/metadata/deletionTimestamp", None),
        {"op": "add", "path": "/spec/activeSocketId", "value": socket_id},
        {"op": "add", "path": "/spec/attached", "value": True},
    ]


def build_lock(view: ObjectView, lock: Lock) -> JsonPatch:
    """
    Build the write of a lock (status subresource).

    The former value is whatever the view shows: nothing, or the lock of a holder whose death is proven.
    """
    tests = _same_generation(view.uid, lock.epoch)
    if view.lock is None and not view.has_status:
        return [
            *tests,
            _test("/status", None),
            {"op": "add", "path": "/status", "value": {"socket": render_lock(lock)}},
        ]
    former = None if view.lock is None else render_lock(view.lock)
    return [
        *tests,
        _test("/status/socket", former),
        {"op": "add", "path": "/status/socket", "value": render_lock(lock)},
    ]


def build_clear_lock(lock: Lock, *, uid: str) -> JsonPatch:
    """
    Build the clearing of a lock (status subresource). It tests the exact value, and no generation.

    Args:
        lock: As it stands in the object.
        uid: Of the object it stands in.
    """
    return [
        _test("/metadata/uid", uid),
        _test("/status/socket", render_lock(lock)),
        {"op": "remove", "path": "/status/socket"},
    ]


def build_withdrawal(uid: str, socket_id: str) -> JsonPatch:
    """Build the clearing of a name (main resource): nobody speaks and nobody watches, if this very id still stands."""
    return [
        _test("/metadata/uid", uid),
        _test("/spec/activeSocketId", socket_id),
        {"op": "add", "path": "/spec/activeSocketId", "value": ""},
        {"op": "add", "path": "/spec/attached", "value": False},
    ]


def build_entry(view: ObjectView, entry: GatewayEntry) -> JsonPatch:
    """
    Build the write of a gateway's own entry in `status.gateways` (status subresource); empty if it stands there.

    Replicas that apply under one manager name delete each other's entries, so an entry is added under a test for none,
    or at the end of the others, and changed at its index only if its incarnation still stands there.
    """
    tests = [_test("/metadata/uid", view.uid)]
    if not view.has_status:
        value = {"gateways": [render_entry(entry)]}
        return [*tests, _test("/status", None), {"op": "add", "path": "/status", "value": value}]
    if not view.gateways:
        value_list = [render_entry(entry)]
        return [*tests, _test("/status/gateways", None), {"op": "add", "path": "/status/gateways", "value": value_list}]
    index = _find_entry(view, entry.incarnation)
    if index is None:
        first = view.gateways[0].incarnation
        return [
            *tests,
            _test("/status/gateways/0/incarnation", first),
            {"op": "add", "path": "/status/gateways/-", "value": render_entry(entry)},
        ]
    if view.gateways[index] == entry:
        return []
    path = f"/status/gateways/{index}"
    return [
        *tests,
        _test(f"{path}/incarnation", entry.incarnation),
        {"op": "replace", "path": path, "value": render_entry(entry)},
    ]


def build_drop_entry(view: ObjectView, incarnation: str) -> JsonPatch:
    """
    Build the removal of one entry of `status.gateways` (status subresource); empty if it is not there.

    The last entry goes alone, and the empty list that it leaves goes with it, since the next creation tests for none.
    """
    index = _find_entry(view, incarnation)
    if index is None:
        return []
    tests = [_test("/metadata/uid", view.uid)]
    if len(view.gateways) == 1:
        whole = [render_entry(view.gateways[0])]
        return [*tests, _test("/status/gateways", whole), {"op": "remove", "path": "/status/gateways"}]
    path = f"/status/gateways/{index}"
    return [*tests, _test(f"{path}/incarnation", incarnation), {"op": "remove", "path": path}]


def name_lease(incarnation: str) -> str:
    """Name the Lease of a gateway process."""
    return f"{LEASE_PREFIX}{incarnation}"


def _test(path: str, value: object) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


def _same_generation(uid: str, generation: int) -> JsonPatch:
    return [_test("/metadata/uid", uid), _test("/metadata/generation", generation)]


def _find_entry(view: ObjectView, incarnation: str) -> int | None:
    for index, entry in enumerate(view.gateways):
        if entry.incarnation == incarnation:
            return index
    return None

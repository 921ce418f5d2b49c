"""
The bodies of our patches, built without sending anything.

Problem: a finalizer list written whole loses the finalizers of others, an index taken from an old copy removes a
stranger's, and a status written whole undoes what others wrote beside us. Promise: finalizer patches test everything
they rely on (uid, resourceVersion, the element at the index), and a status patch names only what differs.
Source: RFC 6902, RFC 7386; design.md 4.2; gateway.md 3, rule 6.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonPatch: TypeAlias = list[dict[str, Any]]
"""The operations of one JSON patch, in order."""


def build_add_finalizer(obj: Mapping[str, Any], finalizer: str) -> JsonPatch:
    """
    Build the patch that adds a finalizer, and nothing if it is there.

    Args:
        obj: The object as it was read.
        finalizer: Whose it is.

    Returns:
        No operation where nothing has to be sent.
    """
    finalizers = _finalizers(obj)
    if finalizer in finalizers:
        return []
    if finalizers:
        return [*_same_version(obj), {"op": "add", "path": "/metadata/finalizers/-", "value": finalizer}]
    return [*_same_version(obj), {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]}]


def build_remove_finalizer(obj: Mapping[str, Any], finalizer: str, *, demand_free_socket: bool = False) -> JsonPatch:
    """
    Build the patch that removes a finalizer, and nothing if it is not there.

    Args:
        obj: The object as it was read.
        finalizer: Whose it is.
        demand_free_socket: Refuse it while a gateway holds `status.socket`, so that a new object of this name starts
            without a living holder.

    Returns:
        No operation where nothing has to be sent.
    """
    finalizers = _finalizers(obj)
    if finalizer not in finalizers:
        return []
    path = f"/metadata/finalizers/{finalizers.index(finalizer)}"
    return [
        *_same_version(obj),
        *(_free_socket(obj) if demand_free_socket else ()),
        {"op": "test", "path": path, "value": finalizer},
        {"op": "remove", "path": path},
    ]


def build_status_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """
    Build the smallest merge patch that turns one status into another; empty if they are the same.

    Lists are replaced whole and removed keys become null, as merge patches have it. A null in `new` means absent, since
    a merge patch cannot store one.
    """
    patch: dict[str, Any] = {key: None for key in old if new.get(key) is None and old[key] is not None}
    for key, value in new.items():
        before = old.get(key)
        if value is None or _is_same(value, before):
            continue
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            inner = build_status_patch(before, value)
            if inner:
                patch[key] = inner
        elif isinstance(value, Mapping):
            patch[key] = build_status_patch({}, value)
        else:
            patch[key] = value
    return patch


def _is_same(one: object, other: object) -> bool:
    """Compare as JSON does: True is not 1, at any depth, which Python alone would not tell."""
    if one != other:
        return False
    if isinstance(one, list) and isinstance(other, list):
        return all(map(_is_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(_is_same(value, other[key]) for key, value in one.items())
    return isinstance(one, bool) == isinstance(other, bool)


def _same_version(obj: Mapping[str, Any]) -> JsonPatch:
    metadata = obj["metadata"]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
    ]


def _free_socket(obj: Mapping[str, Any]) -> JsonPatch:
    """
    Test for an absent `status.socket`.

    A test with null passes on an absent path only if its parent exists (Verified on kube-apiserver 1.37.2), so where
    the object was read without a status the whole of it is tested.
    """
    return [{"op": "test", "path": "/status/socket" if "status" in obj else "/status", "value": None}]


def _finalizers(obj: Mapping[str, Any]) -> list[str]:
    return list(obj["metadata"].get("finalizers") or ())

"""Apply a JSON patch (RFC 6902) as an API server does, as far as this product's patches go."""

from collections.abc import Mapping
from typing import Any

from controller.kube.errors import Invalid


def apply_operation(target: Any, operation: Mapping[str, Any]) -> None:
    """Apply one operation in place; a test that fails, and a path that is not there, is 422."""
    *path, last = operation["path"].removeprefix("/").split("/")
    for part in path:
        target = target[int(part)] if isinstance(target, list) else target.get(part)
        if target is None:
            raise Invalid("The path is missing.", status=422)
    key = (len(target) if last == "-" else int(last)) if isinstance(target, list) else last
    match operation["op"]:
        case "test":
            found = target[key] if isinstance(target, list) else target.get(key)
            if found != operation["value"]:
                raise Invalid("A test of the patch failed.", status=422)
        case "add" if isinstance(target, list):
            target.insert(key, operation["value"])
        case "add" | "replace":
            target[key] = operation["value"]
        case "remove":
            del target[key]
        case other:
            raise AssertionError(other)

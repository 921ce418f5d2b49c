"""
What an installed CRD lacks of the kind as this program knows it. Pure.

Problem: the API server drops a field that its CRD does not declare from a merge patch, without an error; what was
written is then never read back, so it differs at every look and is written for ever. Promise: every such field is found
by comparing the schemas, a part without its required fields counts as lacking whole, and what is left out of a status
is left out before it is compared. Source: design 4.2 (Observed: kube-apiserver 1.37.2).
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from controller.api import names
from controller.api.crd import render_object_schema

ESSENTIAL: Final = ("status.observedGeneration", "status.conditions", "status.session")
"""Without these what must be remembered is forgotten: an end would be undone, and a session started twice."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Paths such as `status.kill.proof` and `status.conditions[].observedGeneration`, in the order of our schema."""

    spec: tuple[str, ...]
    status: tuple[str, ...]

    @property
    def essential(self) -> tuple[str, ...]:
        """Those without which the operator cannot do its work."""
        return tuple(path for path in self.status if _is_essential(path))


def find_lacking(crd: Mapping[str, Any]) -> Lacking | None:
    """
    Compare an installed CRD with our own; None where it does not serve our version at all.

    A node that keeps unknown fields lacks nothing.
    """
    for version in crd["spec"]["versions"]:
        if version["name"] == names.VERSION and version["served"]:
            ours, theirs = render_object_schema(), version.get("schema", {}).get("openAPIV3Schema", {})
            return Lacking(*(_find_part(ours, theirs, part) for part in ("spec", "status")))
    return None


def leave_out(status: Mapping[str, Any], lacking: AbstractSet[str]) -> dict[str, Any]:
    """Copy a rendered status without the fields that the installed CRD lacks."""
    left: dict[str, Any] = _copy(status, "status", lacking)
    return left


def _find_part(ours: Mapping[str, Any], theirs: Mapping[str, Any], part: str) -> tuple[str, ...]:
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return ()
    return tuple(_find(ours["properties"][part], theirs.get("properties", {}).get(part, {}), part))


def _find(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> list[str]:
    """Name what `theirs` lacks of `ours`: a path below, or the path itself where something required is not there."""
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return []
    if "items" in ours:
        inside = _find(ours["items"], theirs.get("items", {}), f"{path}[]")
        return [path] if f"{path}[]" in inside else inside
    found = []
    for name, field in ours.get("properties", {}).items():
        at, other = f"{path}.{name}", theirs.get("properties", {}).get(name)
        lacks = [at] if other is None else _find(field, other, at)
        if at in lacks and name in ours.get("required", ()):
            return [path]
        found += lacks
    return found


def _is_essential(path: str) -> bool:
    return path == "status" or path in ESSENTIAL or path.startswith("status.session.")


def _copy(value: Any, path: str, lacking: AbstractSet[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            name: _copy(field, f"{path}.{name}", lacking)
            for name, field in value.items()
            if f"{path}.{name}" not in lacking
        }
    if isinstance(value, list):
        return [_copy(entry, f"{path}[]", lacking) for entry in value]
    return value

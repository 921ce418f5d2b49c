"""
The recorded objects: one file for each scene, as the real operator wrote it, without what differs from run to run.

`REWRITE_OBJECTS=1` with tests/gitops/test_lives.py writes them anew; without it that test compares.
"""

import re
from pathlib import Path
from typing import Any, Final

import yaml

OBJECTS: Final = Path(__file__).with_name("objects")
NAMESPACE: Final = "agents"
MOMENT: Final = "2026-01-31T08:00:00Z"

_REPLACED: Final = (
    (re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), MOMENT),
    (re.compile(r"\bsprite-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "sprite-0001"),
    (re.compile(r"\b([Ss]ession(?: id)?) (?!9999\b)\d+\b"), r"\1 5"),
    (re.compile(r"\b\d+ \(sleep\)"), "8 (sleep)"),
    (re.compile(r"\bgitops-\d+\b"), NAMESPACE),
)
"""Times, ids of sprites, of sessions and of processes, and the namespace of the test."""

_FIXED: Final[tuple[tuple[tuple[str, ...], object], ...]] = (
    (("spec", "sessionId"), "5"),
    (("status", "session", "id"), "5"),
    (("status", "session", "launchIntent", "nonce"), "nonce"),
    (("status", "hold", "task"), "task"),
    (("status", "kill", "attempts"), 1),
)
"""What differs in a field of its own."""

_KEPT_METADATA: Final = (
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generation",
)


def tidy(state: dict[str, Any], *, name: str) -> dict[str, Any]:
    """Leave out, or make the same, what differs from run to run."""
    metadata = {key: state["metadata"][key] for key in _KEPT_METADATA if key in state["metadata"]}
    tidied: dict[str, Any] = _replace(
        {**state, "metadata": {"name": name, "namespace": NAMESPACE, **metadata}},
    )
    for path, value in _FIXED:
        *parents, last = path
        place: Any = tidied
        for parent in parents:
            place = place.get(parent, {})
        if place.get(last, "9999") != "9999":
            place[last] = value
    for process in tidied["status"].get("kill", {}).get("leftovers", {}).get("processes", ()):
        process["pid"] = 8
    return tidied


def _replace(value: Any) -> Any:
    match value:
        case str():
            for pattern, text in _REPLACED:
                value = pattern.sub(text, value)
            return value
        case dict():
            return {key: _replace(part) for key, part in value.items()}
        case list():
            return [_replace(part) for part in value]
        case _:
            return value


def read_recorded() -> dict[str, dict[str, Any]]:
    """Read all recorded objects, by scene."""
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(OBJECTS.glob("*.yaml"))}


def write_recorded(name: str, document: dict[str, Any]) -> None:
    """Record one object."""
    OBJECTS.mkdir(exist_ok=True)
    text = yaml.safe_dump(document, sort_keys=True, allow_unicode=True, width=120)
    (OBJECTS / f"{name}.yaml").write_text(text, encoding="utf-8")

"""
What the API server would answer to an object: all its faults, before anybody is asked.

Problem: `kubectl apply` tells of a fault only when it is too late for a pipeline, and two statements of one rule drift
apart. Promise: for every object and every change this gives the verdict and the fields that the API server gives, and
its sentence where a rule of ours speaks.

Observed: kube-apiserver 1.37.2 (2026-11), all of it held by `tests/cluster/test_kind_on_the_api_server.py`:

- before judging, unknown fields and nulls are dropped and defaults are filled in;
- after a fault of type, format, enum, requirement, maxLength or maxItems no rule is run; after any other the rules run;
- what is unchanged keeps its right: its faults are not told again, but for rules that compare with the old value.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from controller.api.instants import is_date_time
from controller.api.model import NO_TIME
from controller.api.rules import ABSENT, RULES, Rule, UnreadableByRule
from controller.api.schema import Schema, render_schema
from controller.api.spec import TerminalSpec

Step = str | int
Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: the field, and the sentence about it. The value itself is never in it."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class _Finding:
    """A fault of the schema with the node that the API server ascribes it to."""

    fault: Fault
    owner: Path
    is_blocking: bool


def render_path(root: str, steps: Iterable[Step]) -> str:
    """Write a path as the API server does: `spec.launch.env[0].name`."""
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


@cache
def _schema() -> Schema:
    return render_schema(TerminalSpec)


def judge_object(new_spec: Any, old_spec: Any = None) -> list[Fault]:
    """
    Find every fault of a new object, or of a change where the old spec is given.

    Args:
        new_spec: The JSON of `spec` as it is sent; None where it is missing.
        old_spec: The JSON of `spec` as it is stored; None at creation.
    """
    if new_spec is None:
        return [Fault("spec", "spec is required")]
    node = _schema()
    new = complete(new_spec, node)
    old = ABSENT if old_spec is None else complete(old_spec, node)
    findings = [finding for finding in _find_faults(new, old) if not _is_unchanged(finding.owner, new, old)]
    faults = [finding.fault for finding in findings]
    if any(finding.is_blocking for finding in findings):
        return faults
    return faults + [fault for rule in RULES for fault in _judge_rule(rule, new, old)]


def complete(value: Any, node: Schema) -> Any:
    """Do to a value what the API server does before it judges: drop the unknown and the null, fill in defaults."""
    if "properties" in node and isinstance(value, Mapping):
        fields = {}
        for name, field in node["properties"].items():
            given = value.get(name)
            if given is None and "default" in field:
                given = field["default"]
            if given is not None:
                fields[name] = complete(given, field)
        return fields
    if "items" in node and isinstance(value, list):
        return [complete(entry, node["items"]) for entry in value]
    return value


def _find_faults(new: Any, old: Any) -> Iterator[_Finding]:
    """Find what the schema refuses: shapes as the models have them, then limits, then names that stand twice."""
    try:
        TerminalSpec.model_validate(new)
    except ValidationError as error:
        for detail in error.errors(include_input=False, include_url=False, include_context=False):
            if detail["type"] != NO_TIME:  # The format, below, is what the API server asks of a time.
                yield _render_finding(detail)
    yield from _find_limits(new, _schema())
    if not list(_find_duplicates(old)):
        yield from _find_duplicates(new)


def _render_finding(detail: ErrorDetails) -> _Finding:
    """Tell a fault of a model; the API server ascribes a missing field to what it is missing in."""
    path = detail["loc"]
    return _Finding(
        fault=Fault(render_path("spec", path), detail["msg"]),
        owner=path[:-1] if detail["type"] == "missing" else path,
        is_blocking=True,
    )


def _find_limits(value: Any, node: Schema, path: Path = ()) -> Iterator[_Finding]:
    """Find every value beyond a limit of its schema; a value of another type has no limits."""
    for sentence, is_blocking in _judge_limits(value, node):
        yield _Finding(Fault(render_path("spec", path), sentence), path, is_blocking=is_blocking)
    if isinstance(value, Mapping):
        for name, field in node.get("properties", {}).items():
            if name in value:
                yield from _find_limits(value[name], field, (*path, name))
    if isinstance(value, list) and "items" in node:
        for index, entry in enumerate(value):
            yield from _find_limits(entry, node["items"], (*path, index))


def _judge_limits(value: Any, node: Schema) -> Iterator[tuple[str, bool]]:
    """Find the limits of one node that a value breaks: the sentence, and whether no rule is run after it."""
    match node.get("type"), value:
        case "integer", int() | float() if not isinstance(value, bool):
            if value < node.get("minimum", value):
                yield f"must be at least {node['minimum']}", False
            if value > node.get("maximum", value):
                yield f"must be at most {node['maximum']}", False
        case "string", str():
            if len(value) < node.get("minLength", 0):
                yield f"must have at least {node['minLength']} characters", False
            if len(value) > node.get("maxLength", len(value)):
                yield f"must have at most {node['maxLength']} characters", True
            if node.get("format") == "date-time" and not is_date_time(value):
                yield "must be a time that exists, in RFC 3339, like 2026-01-31T08:00:00Z", True
            if "pattern" in node and not re.search(node["pattern"], value, re.ASCII):
                yield f"must match {node['pattern']}", False
        case "array", list():
            if len(value) < node.get("minItems", 0):
                yield f"must have at least {node['minItems']} entries", False
            if len(value) > node.get("maxItems", len(value)):
                yield f"must have at most {node['maxItems']} entries", True


def _find_duplicates(spec: Any) -> Iterator[_Finding]:
    """Find variables whose name an earlier one has."""
    seen = set()
    for path, entry in _walk(spec, ("launch", "env", "[]")):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and name in seen:
            fault = Fault(render_path("spec", path), "the name of a variable stands in the list only once")
            yield _Finding(fault, path, is_blocking=False)
        seen.add(name)


def _walk(value: Any, steps: Path, done: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Find every part of a value that lies on a path; `[]` stands for each entry of a list."""
    if not steps:
        yield done, value
    elif steps[0] == "[]":
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from _walk(entry, steps[1:], (*done, index))
    elif isinstance(value, Mapping) and steps[0] in value:
        yield from _walk(value[steps[0]], steps[1:], (*done, steps[0]))


def _find_old(path: Path, new: Any, old: Any) -> Iterator[tuple[Any, Any]]:
    """Pair each part on a path with the same part before; entries of `env` are the same by name, of `command` never."""
    yield new, old
    for depth, step in enumerate(path):
        new = new[step] if _has(new, step) else ABSENT
        if isinstance(step, str):
            old = old[step] if _has(old, step) else ABSENT
        elif path[:depth] == ("launch", "env") and isinstance(old, list) and isinstance(new, Mapping):
            old = next(
                (entry for entry in old if isinstance(entry, Mapping) and entry.get("name") == new.get("name")), ABSENT
            )
        else:
            old = ABSENT
        yield new, old


def _has(value: Any, step: Step) -> bool:
    if isinstance(step, int):
        return isinstance(value, list) and step < len(value)
    return isinstance(value, Mapping) and step in value


def _is_unchanged(path: Path, new: Any, old: Any) -> bool:
    """This part, or something around it, is exactly as it was."""
    return any(before is not ABSENT and now == before for now, before in _find_old(path, new, old))


def _judge_rule(rule: Rule, new: Any, old: Any) -> Iterator[Fault]:
    """Run one rule on every part on which it stands."""
    steps = tuple(rule.node.replace("[]", ".[]").split("."))[1:]
    for path, part in _walk(new, steps):
        *_, (_, before) = _find_old(path, new, old)
        compares = rule.on_change or rule.on_creation_too
        if rule.on_change and before is ABSENT:
            continue
        if not compares and _is_unchanged(path, new, old):
            continue
        try:
            is_kept = rule.is_kept(part, before)
        except UnreadableByRule:
            yield Fault(render_path("spec", path), f"a value in it cannot be read, to judge this rule: {rule.message}")
            continue
        if not is_kept:
            reported = (*path, rule.reported_on) if rule.reported_on else path
            yield Fault(render_path("spec", reported), rule.message)

"""
The tables of docs/spec.md, rendered from the code.

The page is written by hand but for what stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; `make crds`
writes that part again, and a test finds it when it is stale.
"""

import ast
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.crd import COLUMNS, render_object_schema
from controller.api.rules import RULES
from controller.api.situations import Phase, Situation, judge_phase, judge_readiness

PAGE: Final = Path(__file__).parents[2] / "docs" / "spec.md"


def read_meanings(members: type[StrEnum]) -> Mapping[str, str]:
    """Read what stands below each member of an enum in its source: value → sentences, on one line."""
    (body,) = ast.parse(inspect.getsource(members)).body
    assert isinstance(body, ast.ClassDef)
    meanings = {}
    for member, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            (target,) = member.targets
            assert isinstance(target, ast.Name)
            meanings[str(members[target.id])] = " ".join(str(text.value.value).split())
    return meanings


def render_spec_page() -> str:
    """Write the page with its tables renewed."""
    page = PAGE.read_text(encoding="utf-8")
    for name, render in TABLES.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
        before, found_begin, rest = page.partition(begin)
        _, found_end, after = rest.partition(end)
        assert found_begin, f"docs/spec.md lacks the block {name}"
        assert found_end, f"docs/spec.md does not end the block {name}"
        page = before + begin + "".join(f"{line}\n" for line in render()) + end + after
    return page


def _render_fields(part: str) -> Iterator[str]:
    yield "| Field | Type | Default | Limits | Meaning |"
    yield "| --- | --- | --- | --- | --- |"
    for path, node, is_required in _walk_fields(render_object_schema()["properties"][part], ""):
        limits = ", ".join(_find_limits(node, is_required=is_required))
        default = f"`{_render_default(node['default'])}`" if "default" in node else ""
        yield f"| `{path}` | {node['type']} | {default} | {limits} | {node['description']} |"


def _render_default(default: Any) -> str:
    """Write a default as it stands in YAML."""
    return default if isinstance(default, str) else json.dumps(default)


def _walk_fields(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Find every field below a node, with whether it is required where it stands."""
    for name, field in node.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        yield below, field, name in node.get("required", ())
        yield from _walk_fields(field, below)
        yield from _walk_fields(field.get("items", {}), f"{below}[]")


def _find_limits(node: Mapping[str, Any], *, is_required: bool) -> Iterator[str]:
    """Say the limits of a field in words."""
    if is_required:
        yield "required"
    if "enum" in node:
        yield "one of " + ", ".join(f"`{word}`" for word in node["enum"])
    if "minimum" in node and "maximum" in node:
        yield f"{node['minimum']:,} to {node['maximum']:,}"
    elif "minimum" in node:
        yield f"at least {node['minimum']:,}"
    for least, most, things in (("minLength", "maxLength", "characters"), ("minItems", "maxItems", "entries")):
        if least in node:
            yield f"{node[least]:,} to {node[most]:,} {things}"
        elif most in node:
            yield f"at most {node[most]:,} {things}"
    if "maxLength" in node.get("items", {}):
        yield f"each at most {node['items']['maxLength']:,} characters"
    if node.get("format") == "date-time":
        yield "RFC 3339"


def _render_rules() -> Iterator[str]:
    yield "| Where | Rule |"
    yield "| --- | --- |"
    for rule in RULES:
        where = f"{rule.node}.{rule.reported_on}" if rule.reported_on else rule.node
        yield f"| `{where}` | {rule.message} |"


def _render_meanings(title: str, members: type[StrEnum]) -> Iterator[str]:
    meanings = read_meanings(members)
    yield f"| {title} | Meaning |"
    yield "| --- | --- |"
    for member in members:
        yield f"| `{member}` | {meanings[member]} |"


def _render_situations() -> Iterator[str]:
    yield "| Reason | Phase | Ready | Reconciling | Stalled |"
    yield "| --- | --- | --- | --- | --- |"
    for situation in Situation:
        readiness = judge_readiness(situation)
        phases = {judge_phase(situation, before) for before in Phase}
        phase = f"`{phases.pop()}`" if len(phases) == 1 else "as before"
        ready = readiness.ready or "as before"
        words = [str(ConditionStatus(str(flag))) for flag in (readiness.reconciling, readiness.stalled)]
        yield f"| `{situation}` | {phase} | {ready} | {words[0]} | {words[1]} |"


def _render_columns() -> Iterator[str]:
    yield "| Column | Meaning |"
    yield "| --- | --- |"
    for name, _, _, priority, description in COLUMNS:
        yield f"| {name}{' (with `-o wide`)' if priority else ''} | {description} |"


TABLES: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "spec fields": lambda: _render_fields("spec"),
    "rules": _render_rules,
    "columns": _render_columns,
    "situations": _render_situations,
    "conditions": lambda: _render_meanings("Condition", ConditionType),
    "reasons": lambda: _render_meanings("Reason", Reason),
    "status fields": lambda: _render_fields("status"),
}

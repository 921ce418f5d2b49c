"""
The CustomResourceDefinition, rendered from the models and the rules.

Promise: the same text from the same code, so that `crds/` can be checked for being up to date
(`tests/api/test_crd.py`).
"""

from typing import Any, Final

import yaml

from controller.api import names
from controller.api.rules import RULES, Rule
from controller.api.schema import Schema, get_node, order, render_schema
from controller.api.spec import TerminalSpec
from controller.api.status import TerminalStatus, render_status

HEADER: Final = "# Generated from controller/api by `make crds`. Change it there.\n"

KIND_DESCRIPTION: Final = (
    "AgentTerminal declares how one terminal session inside a Fly.io Sprite should be: attached or not, worth holding "
    "awake or not, alive or terminated, and which single socket speaks for it. The operator drives the real session "
    "there and tells in status what it saw."
)


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


COLUMNS: Final = (
    ("Sprite", "string", ".spec.spriteName", 0, "The Sprite of the session."),
    ("Session", "string", ".status.session.id", 0, "Id of the session inside its Sprite."),
    ("Phase", "string", ".status.phase", 0, "The state in one word."),
    ("Held", "string", _condition("Held", "status"), 0, "Whether a task keeps the Sprite from pausing."),
    ("Attached", "string", _condition("Attached", "status"), 0, "Whether somebody watches."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since this object was created."),
    ("Socket", "string", ".spec.activeSocketId", 1, "The one socket that speaks for the terminal."),
    ("Idle since", "date", ".status.detachedTime", 1, "Time since nobody is attached."),
    ("Reason", "string", _condition("Ready", "reason"), 1, "Why it is, or is not, ready."),
)
"""Name, type, JSON path, priority (1: only with `-o wide`) and description of what `kubectl get` shows."""

SELECTABLE: Final = (".spec.attached", ".status.socket.incarnation")
"""What a field selector may ask: who is attached, and which locks a gateway holds."""


def _render_rule(rule: Rule) -> Schema:
    """Write one rule as the API server reads it."""
    rendered: Schema = {"rule": rule.expression, "message": rule.message}
    if rule.reported_on:
        rendered["fieldPath"] = f".{rule.reported_on}"
    if rule.on_creation_too:
        rendered["optionalOldSelf"] = True
    return rendered


def render_object_schema() -> Schema:
    """Write the schema of a whole object, with its rules and the default of its status."""
    spec = render_schema(TerminalSpec)
    status = render_schema(TerminalStatus)
    # A default of the whole status: with a default on its fields alone a new object would have no status at all.
    status["default"] = render_status(TerminalStatus())
    get_node(status, "conditions").pop("default")
    root: Schema = {
        "description": KIND_DESCRIPTION,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": order(status),
        },
    }
    for rule in RULES:
        node = get_node(root, rule.node)
        node.setdefault("x-kubernetes-validations", []).append(_render_rule(rule))
    for node_path in {rule.node for rule in RULES}:
        node = get_node(root, node_path)
        ordered = order(node)
        node.clear()
        node.update(ordered)
    return root


def render_crd() -> Schema:
    """Write the whole CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": names.CRD_NAME},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": path} for path in SELECTABLE],
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": description}
                        | ({"priority": priority} if priority else {})
                        for name, kind, path, priority, description in COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": render_object_schema()},
                }
            ],
        },
    }


class _Dumper(yaml.SafeDumper):
    """Plain YAML: no anchors, lists set in."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # PyYAML's own signature.
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: FBT001, FBT002, ARG002  # As above.
        super().increase_indent(flow, indentless=False)


def render_crd_text() -> str:
    """Write the CustomResourceDefinition as the YAML file that `crds/` holds."""
    return HEADER + yaml.dump(render_crd(), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)

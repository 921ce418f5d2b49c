"""
From a pydantic model to the structural schema that a CRD wants.

Problem: pydantic writes JSON Schema with references, titles and `null` as a type, none of which a CRD may have.
Promise: the same fields, limits, defaults and descriptions, in the API server's words; a default of "nothing" is no
default there.

Observed: kube-apiserver 1.37.2 (2026-11) takes the result, and shows its texts in `kubectl explain`.
"""

from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]

_ORDER: Final = (
    "description",
    "type",
    "format",
    "enum",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
    "required",
    "properties",
    "items",
)
"""Every keyword we use, in the order in which they are written. One that is missing here fails the rendering."""


def render_schema(model: type[BaseModel]) -> Schema:
    """Write a model as one structural schema, without references."""
    whole = model.model_json_schema()
    return _render_node(whole, whole.get("$defs", {}))


def _render_node(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Write one node: what stands beside a reference or an "or null" is added to what it points at."""
    rest = {key: value for key, value in node.items() if key not in {"$defs", "$ref", "anyOf", "title"}}
    if "$ref" in node:
        return order(_render_node(definitions[node["$ref"].removeprefix("#/$defs/")], definitions) | _own(rest))
    if "anyOf" in node:
        (other,) = (choice for choice in node["anyOf"] if choice != {"type": "null"})
        return order(_render_node(other, definitions) | _own(rest))
    if "properties" in rest:
        rest["properties"] = {name: _render_node(field, definitions) for name, field in rest["properties"].items()}
    if "items" in rest:
        rest["items"] = _render_node(rest["items"], definitions)
    return order(_own(rest))


def _own(node: Schema) -> Schema:
    """Leave out a default of nothing: in a CRD an absent field is absent."""
    return {key: value for key, value in node.items() if key != "default" or value not in (None, [])}


def order(node: Schema) -> Schema:
    """Bring the keywords of a node into the written order."""
    return {key: node[key] for key in sorted(node, key=_ORDER.index)}


def get_node(root: Schema, path: str) -> Schema:
    """Find the node of a path like `spec.launch.command[]`."""
    node = root
    for step in path.replace("[]", ".[]").split("."):
        node = node["items"] if step == "[]" else node["properties"][step]
    return node

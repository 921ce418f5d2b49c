"""
The kind under looser limits, as an older version may have had it.

It lives in a group of its own, so that the other tests keep the kind as it is.
"""

import copy
from typing import Any, Final

from controller.api.crd import render_crd

GROUP: Final = "older.agentterminal.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"
NAME: Final = f"agentterminals.{GROUP}"

LIMITS: Final = frozenset(
    {"enum", "maxItems", "maxLength", "maximum", "minItems", "minLength", "minimum", "x-kubernetes-validations"}
)


def render_today() -> dict[str, Any]:
    """Write our CRD, under the other group."""
    crd = copy.deepcopy(render_crd())
    crd["metadata"]["name"] = NAME
    crd["spec"]["group"] = GROUP
    crd["spec"]["names"] |= {"shortNames": [], "categories": []}
    return crd


def render_looser() -> dict[str, Any]:
    """Write the same without rules and limits; types, required fields, list keys and the time's pattern stay."""
    crd = render_today()
    _loosen(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return crd


def _loosen(node: dict[str, Any]) -> None:
    for limit in LIMITS & node.keys():
        del node[limit]
    for field in node.get("properties", {}).values():
        _loosen(field)
    if "items" in node:
        _loosen(node["items"])

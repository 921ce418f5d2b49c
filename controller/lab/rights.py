"""
The rights of the operator in the lab.

Problem: an operator that is shown as administrator proves nothing about the rights it is installed with. Promise: the
rules are those of the chart, word for word (`tests/lab/test_rights.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

OPERATOR_NAMESPACE: Final = "agentterminal"
OPERATOR_NAME: Final = "agentterminal-operator"

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"

TERMINAL_RULES: Final[Sequence[Mapping[str, Any]]] = (
    {"apiGroups": ["agentterminal.dev"], "resources": ["agentterminals"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["agentterminal.dev"], "resources": ["agentterminals/status"], "verbs": ["patch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
)
CRD_RULES: Final[Sequence[Mapping[str, Any]]] = (
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": ["agentterminals.agentterminal.dev"],
        "verbs": ["get"],
    },
)


def build_secret_rules(names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Secrets: get, and only by name."""
    return ({"apiGroups": [""], "resources": ["secrets"], "resourceNames": list(names), "verbs": ["get"]},)


def build_rights(*, secrets: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """
    Build every RBAC object, each with the path it is created at.

    Args:
        secrets: The names of the Secrets that the operator may read, by namespace. The namespaces have to exist.
    """
    for name, rules in ((OPERATOR_NAME, TERMINAL_RULES), (f"{OPERATOR_NAME}:crd", CRD_RULES)):
        yield f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(rules)}
        yield f"{_RBAC}/clusterrolebindings", _bind("ClusterRole", name)
    for namespace, names in secrets.items():
        name = f"{OPERATOR_NAME}-secrets"
        yield (
            f"{_RBAC}/namespaces/{namespace}/roles",
            {"metadata": {"name": name}, "rules": list(build_secret_rules(names))},
        )
        yield f"{_RBAC}/namespaces/{namespace}/rolebindings", _bind("Role", name)


def _bind(kind: str, name: str) -> Mapping[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": OPERATOR_NAMESPACE}],
    }

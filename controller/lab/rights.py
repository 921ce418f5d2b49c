"""
The rights of operator, gateway and people in the lab.

Problem: a process that is shown as administrator proves nothing about the rights it is installed with. Promise: each
gets the rules that the chart gives it, out of the same file.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from controller.errors import AgentTerminalError

OPERATOR_NAMESPACE: Final = "agentterminal"
OPERATOR_NAME: Final = "agentterminal-operator"
LEASE_NAME: Final = "agentterminal-operator"
"""Assumed: the operator's default (`test_a_whole_life_uses_every_right_of_the_chart_and_asks_for_no_other`)."""

GATEWAY_NAME: Final = "agentterminal-gateway"

_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"

Rule = Mapping[str, Any]


class RulesMissing(AgentTerminalError):
    """The chart is not where it belongs."""


@dataclass(frozen=True)
class Rules:
    """What the operator may do, in five roles."""

    terminals: Sequence[Rule]
    crd: Sequence[Rule]
    lease: Sequence[Rule]
    """Without the name of the Lease, which is added where the role is made."""
    proof: Sequence[Rule]
    """For the Leases of gateways, in the operator's own namespace."""
    secrets: Sequence[Rule]
    """Without the names of Secrets, which are added where the role is made."""


@dataclass(frozen=True)
class GatewayRules:
    """What a gateway may do, in five roles."""

    terminals: Sequence[Rule]
    reviews: Sequence[Rule]
    leases: Sequence[Rule]
    """In the namespace of the gateways' Leases; the admission policy of the chart narrows their names."""
    authority: Sequence[Rule]
    """For a gateway that ends TLS itself, which the lab's does not."""
    secrets: Sequence[Rule]
    """Without the names of Secrets, which are added where the role is made."""


def read_rules(path: Path) -> Rules:
    """
    Read the chart's file of rules.

    Raises:
        RulesMissing: There is none.
    """
    return Rules(**_read(path))


def read_gateway_rules(path: Path) -> GatewayRules:
    """
    Read the chart's file of the gateway's rules.

    Raises:
        RulesMissing: There is none.
    """
    return GatewayRules(**_read(path))


def read_people_rules(path: Path) -> Mapping[str, Sequence[Rule]]:
    """
    Read the chart's file of what people may be given, by the names of the roles.

    Raises:
        RulesMissing: There is none.
    """
    roles: Mapping[str, Sequence[Rule]] = _read(path)
    return roles


def _read(path: Path) -> Any:
    try:
        text = path.read_text()
    except FileNotFoundError:
        raise RulesMissing(f"There is no file {path}: demo and lab run from a clone of the repository.") from None
    return yaml.safe_load(text)


def build_rights(
    rules: Rules, *, secrets: Mapping[str, Sequence[str]], lease: str = LEASE_NAME
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """
    Build every RBAC object, each with the path it is created at.

    Args:
        rules: What the operator may do.
        secrets: The names of the Secrets that the operator may read, by namespace. The namespaces have to exist.
        lease: The name of the Lease in the operator's own namespace.
    """
    for name, cluster_rules in ((OPERATOR_NAME, rules.terminals), (f"{OPERATOR_NAME}:crd", rules.crd)):
        yield f"{_RBAC}/clusterroles", {"metadata": {"name": name}, "rules": list(cluster_rules)}
        yield f"{_RBAC}/clusterrolebindings", _bind("ClusterRole", name)
    # A create cannot be narrowed to a name: the API server does not know it yet.
    named_lease = [rule if "create" in rule["verbs"] else {**rule, "resourceNames": [lease]} for rule in rules.lease]
    name, home = f"{OPERATOR_NAME}-lease", f"{_RBAC}/namespaces/{OPERATOR_NAMESPACE}"
    yield f"{home}/roles", {"metadata": {"name": name}, "rules": named_lease}
    yield f"{home}/rolebindings", _bind("Role", name)
    name = f"{OPERATOR_NAME}-proof"
    yield f"{home}/roles", {"metadata": {"name": name}, "rules": list(rules.proof)}
    yield f"{home}/rolebindings", _bind("Role", name)
    for namespace, names in secrets.items():
        name = f"{OPERATOR_NAME}-secrets"
        named = [{**rule, "resourceNames": list(names)} for rule in rules.secrets]
        yield f"{_RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": name}, "rules": named}
        yield f"{_RBAC}/namespaces/{namespace}/rolebindings", _bind("Role", name)


def build_gateway_rights(
    rules: GatewayRules, *, secrets: Mapping[str, Sequence[str]], namespace: str = OPERATOR_NAMESPACE
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """
    Build every RBAC object of the gateway, each with the path it is created at.

    Args:
        rules: What it may do.
        secrets: The names of the Secrets that it may read, by namespace. The namespaces have to exist.
        namespace: Where its account and its Leases lie; the objects without a namespace carry it in their names.
    """
    subject = {"kind": "ServiceAccount", "name": GATEWAY_NAME, "namespace": namespace}
    everywhere = GATEWAY_NAME if namespace == OPERATOR_NAMESPACE else f"{GATEWAY_NAME}:{namespace}"
    yield (
        f"{_RBAC}/clusterroles",
        {"metadata": {"name": everywhere}, "rules": [*rules.terminals, *rules.reviews]},
    )
    yield f"{_RBAC}/clusterrolebindings", _bind("ClusterRole", everywhere, subject)
    name, home = f"{GATEWAY_NAME}-leases", f"{_RBAC}/namespaces/{namespace}"
    yield f"{home}/roles", {"metadata": {"name": name}, "rules": list(rules.leases)}
    yield f"{home}/rolebindings", _bind("Role", name, subject)
    for place, names in secrets.items():
        name = f"{GATEWAY_NAME}-secrets"
        named = [{**rule, "resourceNames": list(names)} for rule in rules.secrets]
        yield f"{_RBAC}/namespaces/{place}/roles", {"metadata": {"name": name}, "rules": named}
        yield f"{_RBAC}/namespaces/{place}/rolebindings", _bind("Role", name, subject)


def build_people_rights(
    rules: Mapping[str, Sequence[Rule]], people: Mapping[str, str], *, namespace: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """
    Build every RBAC object of some people, each with the path it is created at.

    Args:
        rules: What each role may do.
        people: The role of each person, who is a service account of that namespace.
        namespace: Where the terminals and the people are. It has to exist.
    """
    for person, role in people.items():
        subject = {"kind": "ServiceAccount", "name": person, "namespace": namespace}
        yield (
            f"{_RBAC}/namespaces/{namespace}/roles",
            {"metadata": {"name": person}, "rules": list(rules[role])},
        )
        yield f"{_RBAC}/namespaces/{namespace}/rolebindings", _bind("Role", person, subject)


_OPERATOR: Final = {"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": OPERATOR_NAMESPACE}


def _bind(kind: str, name: str, subject: Mapping[str, str] = _OPERATOR) -> Mapping[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject],
    }

"""The operator of the lab has the rights that the chart gives it: no more, no less."""

from pathlib import Path

import pytest

from controller.cli.worlds import RULES
from controller.lab.rights import Rules, RulesMissing, build_rights, read_rules

TERMINALS = {"apiGroups": ["agentterminal.dev"], "resources": ["agentterminals"], "verbs": ["get"]}
CRD = {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"]}
LEASE = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]}
LEASE_CREATE = {**LEASE, "verbs": ["create"]}
PROOF = {**LEASE, "verbs": ["get", "update"]}
SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}


def test_every_rule_of_the_chart_is_given_and_no_other() -> None:
    rules = read_rules(RULES)
    given = [rule for _, body in build_rights(rules, secrets={"demo": ["one"]}) for rule in body.get("rules", [])]

    assert len(rules.terminals) > 0
    create, named = rules.lease
    assert given == [
        *rules.terminals,
        *rules.crd,
        create,
        {**named, "resourceNames": ["agentterminal-operator"]},
        *rules.proof,
        *({**rule, "resourceNames": ["one"]} for rule in rules.secrets),
    ]


def test_every_role_is_bound_to_the_operators_account_and_to_nobody_else() -> None:
    rights = build_rights(
        Rules([TERMINALS], [CRD], [LEASE], [PROOF], [SECRETS]), secrets={"demo": ["one"], "other": ["two"]}
    )
    objects = list(rights)
    roles = [(path.rsplit("/", 1)[0], body["metadata"]["name"]) for path, body in objects if "rules" in body]
    bound = [(path.rsplit("/", 1)[0], body["roleRef"]["name"]) for path, body in objects if "roleRef" in body]

    assert roles == bound
    assert len(roles) == 6
    for _, body in objects:
        for subject in body.get("subjects", []):
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "agentterminal")


def test_a_lease_is_held_by_its_name_only_and_made_in_the_operators_namespace() -> None:
    rights = list(build_rights(Rules([], [], [LEASE_CREATE, LEASE], [PROOF], []), secrets={}, lease="ours"))

    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/agentterminal/roles"
    held, proof = (body["rules"] for where, body in rights if where == path)
    assert held == [LEASE_CREATE, {**LEASE, "resourceNames": ["ours"]}]
    assert proof == [PROOF], "The names of gateways' Leases are drawn by luck."


def test_a_secret_may_be_read_by_its_name_only() -> None:
    rights = dict(build_rights(Rules([], [], [], [], [SECRETS]), secrets={"demo": ["one"], "other": ["two", "three"]}))

    for namespace, names in (("demo", ["one"]), ("other", ["two", "three"])):
        (rule,) = rights[f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles"]["rules"]
        assert rule == {**SECRETS, "resourceNames": names}


def test_a_package_without_its_repository_says_so(tmp_path: Path) -> None:
    with pytest.raises(RulesMissing, match=r"rules\.yaml: demo and lab run from a clone of the repository\."):
        read_rules(tmp_path / "rules.yaml")

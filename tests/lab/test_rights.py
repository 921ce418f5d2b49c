"""The operator of the lab has the rights of the chart: no more, no less."""

import re
from typing import Any

import yaml

from controller.lab.rights import CRD_RULES, TERMINAL_RULES, build_rights, build_secret_rules
from tests.house.cases import ROOT

TEMPLATE = ROOT / "charts/agentterminal-operator/templates/rbac.yaml"


def read_chart() -> list[list[dict[str, Any]]]:
    """The rules of each role in the chart, in the order of the file."""
    text = TEMPLATE.read_text().replace("{{- toYaml .names | nindent 6 }}", "[some-secret]")
    found = []
    for document in re.split(r"^---$", text, flags=re.MULTILINE):
        _, rules, body = document.partition("\nrules:\n")
        if rules:
            found.append(yaml.safe_load(re.sub(r"^\{\{.*$", "", body, flags=re.MULTILINE)))
    return found


def test_the_roles_of_the_lab_are_those_of_the_chart() -> None:
    assert read_chart() == [list(TERMINAL_RULES), list(CRD_RULES), list(build_secret_rules(["some-secret"]))]


def test_every_role_is_bound_to_the_operators_account_and_to_nobody_else() -> None:
    objects = list(build_rights(secrets={"demo": ["one"], "other": ["two"]}))
    roles = [(path.rsplit("/", 1)[0], body["metadata"]["name"]) for path, body in objects if "rules" in body]
    bound = [(path.rsplit("/", 1)[0], body["roleRef"]["name"]) for path, body in objects if "roleRef" in body]

    assert roles == bound
    assert len(roles) == 4
    for _, body in objects:
        for subject in body.get("subjects", []):
            assert (subject["kind"], subject["namespace"]) == ("ServiceAccount", "agentterminal")

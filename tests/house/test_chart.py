"""The chart as far as it can be judged without Helm: every value described, every setting real, one version."""

import json
import re
import tomllib
from typing import Any

import yaml

from controller import __version__
from controller.settings.table import PREFIX, VARIABLES, Reader
from tests.house.cases import ROOT

CHART = ROOT / "charts/agentterminal-operator"
VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}


def test_chart_package_and_code_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {chart["version"], chart["appVersion"], project["version"]} == {__version__}


def assert_described(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> None:
    """Every value stands in the schema and the other way round, and nothing else is admitted."""
    assert schema["additionalProperties"] is False, path
    assert set(values) == set(schema["properties"]) - {"global"}, path
    for name, value in values.items():
        inner = schema["properties"][name]
        if isinstance(value, dict) and value and "properties" in inner:
            assert_described(value, inner, f"{path}.{name}")


def test_every_value_is_in_the_schema_and_no_other_is_admitted() -> None:
    assert_described(yaml.safe_load(VALUES), SCHEMA)


def test_every_value_that_a_template_reads_exists() -> None:
    values = yaml.safe_load(VALUES)
    for name, text in TEMPLATES.items():
        for path in re.findall(r"\.Values\.([\w.]+)", text):
            at: Any = values
            for step in path.split("."):
                assert step in at, f"{name}: {path}"
                at = at[step]


def test_every_setting_that_the_chart_passes_is_one_of_the_operators() -> None:
    known = {variable.name for variable in VARIABLES}
    passed = set(re.findall(rf"{PREFIX}[A-Z_]*[A-Z]", TEMPLATES["deployment.yaml"].split("env:")[1]))
    admitted = {PREFIX + name for name in SCHEMA["properties"]["settings"]["propertyNames"]["enum"]}

    assert passed <= known
    assert admitted <= known


def test_a_setting_is_passed_by_its_own_value_or_in_the_settings_but_never_by_both() -> None:
    own = set(re.findall(rf"name: {PREFIX}([A-Z_]+)", TEMPLATES["deployment.yaml"])) - {"METRICS_ADDRESS"}
    free = set(SCHEMA["properties"]["settings"]["propertyNames"]["enum"])

    assert own & free == set()
    operators = {variable.name.removeprefix(PREFIX) for variable in VARIABLES if variable.reader is not Reader.GATEWAY}
    assert own | free | {"SPRITES_TOKEN", "CACHE", "ELECTION", "LEASE_NAMESPACE"} == operators


def test_the_templates_give_every_right_of_the_rules_file_and_none_of_their_own() -> None:
    parts = yaml.safe_load((CHART / "files/rules.yaml").read_text())
    template = TEMPLATES["rbac.yaml"]

    assert '$rules := .Files.Get "files/rules.yaml" | fromYaml' in template
    assert set(re.findall(r"\$rules\.(\w+)", template)) == set(parts)
    assert template.count("\nrules:") == len(parts)
    assert [name for name, text in TEMPLATES.items() if "apiGroups" in text or "verbs:" in text] == []

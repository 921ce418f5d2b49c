"""The chart as far as it can be judged without Helm: every value described, every setting real, one version."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from controller import __version__
from controller.settings.table import PREFIX, VARIABLES, Reader
from tests.house.cases import ROOT
from tests.house.chart_page import list_undescribed, read_values, render_chart_page

CHART = ROOT / "charts/agentterminal-operator"
VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
SHARED = TEMPLATES["_helpers.tpl"]
PASS_THROUGH = {"global", "podSecurityContext", "securityContext"}
"""What Helm, or a pod, gives its own meaning."""


def test_chart_package_and_code_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {chart["version"], chart["appVersion"], project["version"]} == {__version__}


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "").removeprefix("#/$defs/")
    return resolve(SCHEMA["$defs"][reference]) if reference else schema


def assert_described(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> None:
    """Every value stands in the schema and the other way round, and nothing else is admitted."""
    assert schema["additionalProperties"] is False, path
    optional = {"global"} if path == "" else {"claims"} if path.endswith(".resources") else set()
    assert set(values) == set(schema["properties"]) - optional, path
    for name, value in values.items():
        inner = resolve(schema["properties"][name])
        if isinstance(value, dict) and value and "properties" in inner:
            assert_described(value, inner, f"{path}.{name}")


def test_every_value_is_in_the_schema_and_no_other_is_admitted() -> None:
    assert_described(yaml.safe_load(VALUES), SCHEMA)


def objects_of(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield path, schema
        for key, inner in schema.items():
            yield from objects_of(inner, f"{path}/{key}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from objects_of(inner, f"{path}/{index}")


def test_every_object_of_the_schema_is_closed_or_is_one_that_kubernetes_judges() -> None:
    open_ones = {
        re.sub(r"/(properties|items|\$defs)\b", "", path).strip("/")
        for path, schema in objects_of(SCHEMA)
        if "additionalProperties" not in schema
    }

    assert open_ones == {*PASS_THROUGH, "objects", "named", "variables/valueFrom"} | {
        f"affinity/{name}" for name in ("nodeAffinity", "podAffinity", "podAntiAffinity")
    }


def test_every_value_says_what_it_means() -> None:
    assert list_undescribed(VALUES) == []
    for value in read_values(VALUES):
        assert value.meaning.endswith((".", "`.")), value
        assert value.meaning[0].isupper() or value.meaning.startswith(("debug", "json")), value
    page = render_chart_page()
    assert all(f"| `{value.path}` |" in page for value in read_values(VALUES))


@pytest.mark.parametrize("broken", ["a: 1\n", "# Said.\na:\n  # Said.\n  b: 1\n  c: 2\n"])
def test_a_value_without_a_comment_is_found(broken: str) -> None:
    assert list_undescribed(broken) in (["a"], ["a.c"])


def test_every_value_that_a_template_reads_exists() -> None:
    values = yaml.safe_load(VALUES)
    short = {
        "$gateway": "gateway",
        "$tls": "gateway.tls",
        "$maker": "gateway.tls.certManager",
        "$policy": "networkPolicy",
    }
    for name, text in TEMPLATES.items():
        prefixes = "|".join(re.escape(word) for word in (".Values", "$root.Values", *short))
        for prefix, path in re.findall(rf"({prefixes})\.([\w.]+)", text):
            whole = f"{short[prefix]}.{path}" if prefix in short else path
            at: Any = values
            for step in whole.split("."):
                assert step in at, f"{name}: {whole}"
                at = at[step]


def passed_by(template: str) -> set[str]:
    """The settings that a Deployment passes by name."""
    return set(re.findall(rf"name: {PREFIX}([A-Z_]*[A-Z])\b", TEMPLATES[template]))


@pytest.mark.parametrize(
    ("template", "schema", "reader", "elsewhere"),
    [
        (
            "deployment.yaml",
            SCHEMA["properties"]["settings"],
            Reader.OPERATOR,
            # A token in an environment is discouraged; without election two replicas would both act; the namespace is
            # the pod's own.
            {"SPRITES_TOKEN", "ELECTION", "LEASE_NAMESPACE"},
        ),
        (
            "gateway-deployment.yaml",
            SCHEMA["properties"]["gateway"]["properties"]["settings"],
            Reader.GATEWAY,
            {"SPRITES_TOKEN", "LEASE_NAMESPACE"},
        ),
    ],
)
def test_every_setting_is_passed_by_its_own_value_or_in_the_settings_but_never_by_both(
    template: str, schema: dict[str, Any], reader: Reader, elsewhere: set[str]
) -> None:
    # An address has a default of the chart, which the settings may replace.
    addresses = {"METRICS_ADDRESS", "GATEWAY_ADDRESS", "GATEWAY_METRICS_ADDRESS"}
    shared = set(re.findall(rf"name: {PREFIX}([A-Z_]*[A-Z])\b", SHARED))
    free = set(schema["properties"])
    own = (passed_by(template) - addresses) | shared
    known = {variable.name.removeprefix(PREFIX) for variable in VARIABLES}
    read = {
        variable.name.removeprefix(PREFIX)
        for variable in VARIABLES
        if variable.reader in (reader, Reader.BOTH, Reader.EVERY_COMMAND)
    }

    assert own & free == set()
    assert own | free <= known
    assert read <= own | free | elsewhere


RULES = {"rbac.yaml": "rules.yaml", "gateway-rbac.yaml": "gateway-rules.yaml", "roles.yaml": "people-rules.yaml"}


@pytest.mark.parametrize(("template", "file"), RULES.items())
def test_the_templates_give_every_right_of_the_rules_files_and_none_of_their_own(template: str, file: str) -> None:
    parts = yaml.safe_load((CHART / "files" / file).read_text())
    text = TEMPLATES[template]

    assert f'$rules := .Files.Get "files/{file}" | fromYaml' in text
    used = set(re.findall(r"\$rules\.(\w+)", text)) | set(re.findall(r'"(viewer|attacher|taker|reporter)"', text))
    assert used == set(parts)
    # Policies, which take away, name groups as well.
    others = {name: text for name, text in TEMPLATES.items() if not name.endswith("-policy.yaml")}
    assert [name for name, text in others.items() if "apiGroups" in text or "verbs:" in text] == []


def test_nobody_is_given_everything_by_a_star() -> None:
    for file in RULES.values():
        for rules in yaml.safe_load((CHART / "files" / file).read_text()).values():
            for rule in rules:
                assert not any("*" in word for words in rule.values() for word in words), rule

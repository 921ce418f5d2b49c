"""What PromQL asks for: the selectors of a query with their matchers, and the labels that it groups by."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql
import yaml

from tests.house.cases import ROOT

CHART: Final = ROOT / "charts/agentterminal-operator/files"
ALERTS: Final = CHART / "alerts.yaml"
DASHBOARD: Final = CHART / "dashboard.json"
RUNBOOKS: Final = ROOT / "docs/runbooks"

VARIABLES: Final = {"$__rate_interval": "5m", "$__range": "1h", "$job": ".*"}
"""What stands for Grafana's variables where there is no Grafana."""


@dataclass(frozen=True)
class Selector:
    """One selector of a query."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator and value."""

    def __str__(self) -> str:
        inside = ",".join(f"{label}{operator}{json.dumps(value)}" for label, operator, value in self.matchers)
        return f"{self.metric}{{{inside}}}"


def read_rules() -> list[dict[str, Any]]:
    """Every rule of the chart."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def read_panels() -> list[dict[str, Any]]:
    """Every panel of the dashboard that shows something."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in panels if panel["type"] != "row"]


def read_panel_queries() -> list[str]:
    """Every query of the dashboard, its variables filled in."""
    return [fill_in(target["expr"]) for panel in read_panels() for target in panel["targets"]]


def read_page_queries() -> list[str]:
    """Every query of the runbooks."""
    pages = "\n".join(page.read_text() for page in sorted(RUNBOOKS.glob("*.md")))
    return [line for block in re.findall(r"```promql\n(.*?)```", pages, re.DOTALL) for line in block.splitlines()]


def fill_in(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def find_selectors(query: str) -> list[Selector]:
    """Every selector of a query, in its order."""
    return [
        Selector(
            node.name or "",
            tuple((one.name, _OPERATORS[str(one.op).rpartition(".")[2]], one.value) for one in node.matchers.matchers),
        )
        for node in walk(query)
        if isinstance(node, promql.VectorSelector)
    ]


def find_grouping(query: str) -> set[str]:
    """Every label that a query groups by."""
    return {
        label
        for node in walk(query)
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None
        for label in node.modifier.labels
    }


def walk(query: str) -> Iterator[Any]:
    nodes: list[Any] = []
    promql.walk(promql.parse(query), nodes.append)
    yield from nodes


_OPERATORS: Final = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}

"""The dashboard: three questions and the gateway, each panel with title, unit and the data source that was chosen."""

import html
import json
import re
from typing import Any

import promql_parser
import pytest

from controller.gateway.metrics import build_gateway_metrics
from controller.metrics import build_metrics
from tests.house.cases import ROOT
from tests.metrics.drawing_names import PICTURES, name_picture, split_by_question, write_title
from tests.metrics.queries import (
    DASHBOARD,
    find_selectors,
    read_page_queries,
    read_panel_queries,
    read_panels,
    read_rules,
)

BOARD: dict[str, Any] = json.loads(DASHBOARD.read_text())
PANELS = {panel["title"]: panel for panel in read_panels()}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"none", "short", "s", "ops", "reqps", "percentunit", "bytes", "Bps"}


def test_it_asks_the_three_questions_and_looks_at_the_gateway() -> None:
    rows = [panel["title"] for panel in BOARD["panels"] if panel["type"] == "row"]

    assert rows == ["Is anything stuck?", "What is held, and why?", "What does it cost?", "The gateway"]


def test_every_title_and_every_number_of_a_panel_is_there_once() -> None:
    assert len(PANELS) == len(read_panels())
    numbers = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_has_a_title_a_sentence_a_unit_and_the_data_source_that_was_chosen(title: str) -> None:
    panel = PANELS[title]

    assert title
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == SOURCE
    assert panel["targets"]
    for target in panel["targets"]:
        assert target["datasource"] == SOURCE
        assert "$job" in target["expr"], "The choice of jobs holds for every query."


def test_no_panel_lies_on_another_or_beside_the_board() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + across, place["y"] + down) for across in range(place["w"]) for down in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_its_variables_are_the_data_source_and_the_jobs() -> None:
    assert [variable["name"] for variable in BOARD["templating"]["list"]] == ["datasource", "job"]
    assert BOARD["templating"]["list"][0]["type"] == "datasource"


# --- Its pictures -----------------------------------------------------------------------------------------------------

QUESTIONS = split_by_question(BOARD)
PAGE = (ROOT / "docs/dashboard.md").read_text()
BOLD = re.compile(r'<text style="font-weight: 700;[^>]*>([^<]*)</text>')


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_picture_shows_every_panel_of_its_question_and_no_other(question: str) -> None:
    drawn = BOLD.findall((ROOT / PICTURES / name_picture(question)).read_text())

    assert sorted(map(html.unescape, drawn)) == sorted(map(write_title, QUESTIONS[question])), "Run `make picture`."


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_picture_stands_in_the_section_of_its_question_and_is_small(question: str) -> None:
    name = name_picture(question)
    section = PAGE.split(f"## {question}\n")[1].split("\n## ")[0]

    assert f"](pictures/{name})" in section
    assert (ROOT / PICTURES / name).stat().st_size < 150_000


def test_there_is_no_picture_of_a_question_that_is_not_asked() -> None:
    assert {path.name for path in (ROOT / PICTURES).iterdir()} == set(map(name_picture, QUESTIONS))


# --- Its metrics ------------------------------------------------------------------------------------------------------


def exported() -> set[str]:
    """Every name that can be queried, of operator and gateway."""
    names = set()
    for registry in (build_metrics().registry, build_gateway_metrics().registry):
        for family in registry.collect():
            if family.type == "counter":
                names.add(f"{family.name}_total")
            elif family.type == "histogram":
                names |= {f"{family.name}_{part}" for part in ("bucket", "sum", "count")}
            else:
                names.add(family.name)
    return names


def test_every_metric_that_an_alert_a_panel_or_a_page_names_is_exported() -> None:
    queries = [*read_panel_queries(), *read_page_queries(), *(rule["expr"] for rule in read_rules())]
    named = {selector.metric for query in queries for selector in find_selectors(query)}

    assert len(named) > 20
    assert named - exported() == set()


def test_a_query_that_makes_no_sense_is_not_taken() -> None:
    with pytest.raises(ValueError, match="expected type matrix"):
        promql_parser.parse("rate(agentterminal_leader)")

"""The alerts: each fires under its fault and not under the neighbour of it, says what to do, and has its page."""

import re
import subprocess
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from controller.metrics import build_metrics
from tests.house.cases import ROOT
from tests.metrics.plays import PLAYS, Fires
from tests.metrics.queries import ALERTS, RUNBOOKS, find_selectors, read_page_queries, read_rules

RULES = {rule["alert"]: rule for rule in read_rules()}
TERMINAL = ("kubectl get ", "kubectl describe ", "kubectl logs ", "kubectl patch ", "kubectl rollout ", "kubectl top ")


def promtool(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.prometheus
def test_prometheus_reads_the_file_as_it_stands() -> None:
    told = promtool("check", "rules", "--lint=all", "--lint-fatal", ALERTS)

    assert told.returncode == 0, told.stderr
    assert f"{len(RULES)} rules found" in told.stdout


@pytest.mark.prometheus
def test_prometheus_finds_nothing_to_say_about_the_metrics_of_an_operator_that_has_just_started() -> None:
    told = promtool("check", "metrics", stdin=build_metrics().render()[0].decode())

    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_every_alert_is_played_and_every_play_has_its_alert() -> None:
    assert set(PLAYS) == set(RULES)


@pytest.mark.prometheus
@pytest.mark.parametrize("alert", PLAYS)
def test_an_alert_fires_under_its_fault_and_says_what_it_is(alert: str, tmp_path: Path) -> None:
    tests = [build_test(fires.series, alert, fires.at, [expect(alert, fires)]) for fires in PLAYS[alert].fires]

    run(tests, tmp_path)


@pytest.mark.prometheus
@pytest.mark.parametrize("alert", PLAYS)
def test_an_alert_is_quiet_under_what_is_only_near_its_fault(alert: str, tmp_path: Path) -> None:
    run([build_test(quiet.series, alert, quiet.at, [], name=quiet.why) for quiet in PLAYS[alert].quiet], tmp_path)


@pytest.mark.prometheus
@pytest.mark.parametrize("alert", PLAYS)
def test_an_alert_waits_for_its_fault_to_last(alert: str, tmp_path: Path) -> None:
    half = promql_parser.parse_duration(RULES[alert]["for"]) / 2
    at = f"{half // timedelta(seconds=1)}s"

    run([build_test(fires.series, alert, at, []) for fires in PLAYS[alert].fires], tmp_path)


@pytest.mark.prometheus
def test_a_play_that_expects_the_wrong_thing_fails(tmp_path: Path) -> None:
    alert = "AgentTerminalBreakerOpen"

    with pytest.raises(AssertionError, match="FAILED"):
        run([build_test(PLAYS[alert].fires[0].series, alert, "3m", [])], tmp_path)


def build_test(
    series: dict[str, str], alert: str, at: str, expected: list[dict[str, Any]], *, name: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": expected}],
    }


def expect(alert: str, fires: Fires) -> dict[str, Any]:
    rule = RULES[alert]
    told = {**rule["annotations"], "description": fires.description}
    return {"exp_labels": {**rule["labels"], **dict(fires.labels)}, "exp_annotations": told}


def run(tests: list[dict[str, Any]], folder: Path) -> None:
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    told = promtool("test", "rules", file)
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(alert: str) -> None:
    rule = RULES[alert]

    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert rule["for"]
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["annotations"]["summary"].endswith(".")
    assert "{{" not in rule["annotations"]["summary"], "A summary groups, so it is the same for all."
    page = ROOT / rule["annotations"]["runbook"]
    assert page.parent == RUNBOOKS
    assert page.read_text().startswith(f"# {alert}\n")
    assert f"**Severity: {rule['labels']['severity']}.**" in page.read_text()


def test_the_reason_for_the_numbers_stands_above_every_alert() -> None:
    lines = [line.strip() for line in ALERTS.read_text().splitlines()]

    for before, line in pairwise(lines):
        if line.startswith("- alert: "):
            assert before.startswith("# "), line


def test_every_page_has_its_alert_and_stands_in_the_table() -> None:
    pages = {page for page in RUNBOOKS.glob("*.md") if page.name != "README.md"}
    table = (RUNBOOKS / "README.md").read_text()

    assert {ROOT / rule["annotations"]["runbook"] for rule in RULES.values()} == pages
    for alert, rule in RULES.items():
        name = Path(rule["annotations"]["runbook"]).name
        assert f"| [{alert}]({name}) | {rule['labels']['severity']} |" in table
    assert len(re.findall(r"^\| \[", table, re.MULTILINE)) == len(RULES)


@pytest.mark.parametrize("alert", RULES)
def test_a_page_says_what_it_means_what_it_costs_how_to_look_and_how_to_end_it(alert: str) -> None:
    page = (ROOT / RULES[alert]["annotations"]["runbook"]).read_text()

    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [
        "What it means",
        "What it costs",
        "How to look",
        "How to end it",
    ]
    assert any(line.startswith(TERMINAL) for line in page.splitlines())


def test_every_query_of_a_page_can_be_read() -> None:
    queries = read_page_queries()

    assert len(queries) >= 10
    assert all(find_selectors(query) for query in queries)

"""
The alerts and the dashboard against operators at work: nothing fires while all is well, every alert under its fault.

Everything is played once, side by side (`faults.py`, which says what is hastened); the tests look at it afterwards.
"""

import itertools
import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster.plane import Cluster
from tests.metrics.faults import CALM, GATEWAY, LASTING, OPERATOR, STANDBY, Faults, Seen, open_faults
from tests.metrics.queries import RUNBOOKS, find_grouping, find_selectors, read_panel_queries, read_rules
from tests.support.process import await_true
from tests.support.secrecy import find_kinds

pytestmark = [pytest.mark.cluster, pytest.mark.sprites, pytest.mark.prometheus, pytest.mark.timeout(420)]

RULES = {rule["alert"]: rule for rule in read_rules()}
PLACEHOLDERS = {"TEAM": "default", "NAME": "well", "-n agentterminal": "-n default"}


@pytest.fixture(scope="module")
def faults(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    with open_faults(cluster, tmp_path_factory.mktemp("alerts"), Faults) as faults:
        yield faults


@pytest.fixture
def seen(faults: Faults) -> Seen:
    return faults.seen


def test_nothing_fires_while_all_is_well_but_for_the_one_who_only_stands_by(seen: Seen) -> None:
    assert seen.calm == CALM


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_fires_when_its_fault_is_played_and_tells_whose_it_is(seen: Seen, alert: str) -> None:
    assert {job for name, job in seen.fired if name == alert} == {job for name, job in LASTING if name == alert}


def test_every_alert_ends_when_its_fault_does(seen: Seen) -> None:
    assert seen.left == set()


def test_every_metric_and_every_value_of_a_label_that_is_asked_for_is_there(seen: Seen) -> None:
    assert len(seen.series) > 30
    assert [selector for selector, found in seen.series.items() if not found] == []


def test_every_label_that_is_grouped_by_is_there(seen: Seen) -> None:
    for query in (*read_panel_queries(), *(rule["expr"] for rule in RULES.values())):
        known: set[str] = set()
        for selector in find_selectors(query):
            known |= set(itertools.chain.from_iterable(seen.series[str(selector)]))
        assert find_grouping(query) <= known, query


def test_every_query_of_the_dashboard_and_of_the_runbooks_returns_series(seen: Seen) -> None:
    assert len(seen.answers) > 40
    assert [query for query, count in seen.answers.items() if count == 0] == []


@pytest.mark.parametrize("job", [OPERATOR, STANDBY, GATEWAY])
def test_prometheus_has_nothing_to_say_about_what_a_process_at_work_shows(seen: Seen, job: str) -> None:
    told = subprocess.run(
        ["promtool", "check", "metrics"], input=seen.pages[job], capture_output=True, text=True, check=False, timeout=60
    )

    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_the_names_of_objects_stand_on_one_metric_and_no_token_on_any(seen: Seen, faults: Faults) -> None:
    page = seen.pages[OPERATOR]

    named = {line.split("{")[0] for line in page.splitlines() if re.search(r'"(stalled|killed|unheld|dark-0)"', line)}
    assert named == {"agentterminal_stuck_seconds"}
    assert faults.world.namespace in page
    assert find_kinds(page.encode()) == set()


def test_no_list_of_values_is_too_short_for_what_happens(seen: Seen) -> None:
    for page in seen.pages.values():
        samples = (line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
        assert [name for name, value in samples if '"other"' in name and "_created{" not in name and float(value)] == []


def test_a_gone_object_has_left_the_metrics(faults: Faults) -> None:
    operator = faults.world.operator
    assert operator is not None

    await_true(lambda: 'terminal="stalled"' not in operator.read("metrics"), "it to be forgotten")


def test_every_command_of_the_runbooks_that_only_looks_runs(faults: Faults) -> None:
    pages = "\n".join(page.read_text() for page in sorted(RUNBOOKS.glob("*.md")))
    lines = {line for block in re.findall(r"```sh\n(.*?)```", pages, re.DOTALL) for line in block.splitlines()}
    terminals = {
        line for line in lines if re.match(r"kubectl (get|describe|patch) (aterm|events|lease|secret|--raw)", line)
    }

    assert len(terminals) >= 12
    for line in sorted(terminals):
        command = line
        for placeholder, value in {**PLACEHOLDERS, "TEAM": faults.world.namespace}.items():
            command = command.replace(placeholder, value)
        words = re.findall(r"'[^']*'|\S+", command.removeprefix("kubectl "))
        dry = ["--dry-run=server"] if words[0] == "patch" else []
        done = faults.cluster.kubectl(*(word.strip("'") for word in words), *dry)
        assert "error" not in done.stderr.lower(), line

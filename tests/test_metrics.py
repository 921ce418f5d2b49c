"""Metrics: closed labels, zeros from the start, and the present asked for at the scrape."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from prometheus_client.metrics import MetricWrapperBase

from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.session import Cause
from controller.api.situations import Situation
from controller.errors import Failure
from controller.kube.calls import Resource, Succeeded, Unsettled, Verb
from controller.metrics import (
    CAUSES,
    DESCRIBED_LABELS,
    HOLD_CAUSES,
    KUBE_OUTCOMES,
    RESOURCES,
    ROUTES,
    SPRITES_OUTCOMES,
    VERBS,
    HoldState,
    KillStage,
    KillVerdict,
    LaunchResult,
    Metrics,
    ReconcileResult,
    Stuck,
    WaitCause,
    build_metrics,
    describe_metrics,
    render_metrics_page,
)
from controller.plan.activity import HoldCause
from controller.plan.kill import KillEvidence
from controller.sprites.reports import Route, Settled


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"agentterminal_{name}", labels)


def test_a_visit_is_counted_with_its_result_and_its_duration() -> None:
    metrics = build_metrics()

    metrics.count_reconcile(ReconcileResult.SETTLED, timedelta(milliseconds=20))

    assert sample(metrics, "reconciles_total", result="Settled") == 1
    assert sample(metrics, "reconciles_total", result="Failed") == 0
    assert sample(metrics, "reconcile_duration_seconds_sum") == pytest.approx(0.02)


def test_a_call_is_counted_by_route_cause_and_outcome() -> None:
    metrics = build_metrics()

    metrics.count_sprites_call(Route.KILL_SESSION, Cause.KILL, Failure.NOT_FOUND, timedelta(seconds=1))
    metrics.count_kube_call(Verb.PATCH, Resource.TERMINAL_STATUS, Succeeded.OK, timedelta(seconds=2))

    assert sample(metrics, "sprites_calls_total", route="kill_session", cause="kill", outcome="NotFound") == 1
    assert sample(metrics, "sprites_call_duration_seconds_sum", route="kill_session") == 1
    assert sample(metrics, "kube_calls_total", verb="patch", resource="agentterminals/status", outcome="Ok") == 1
    assert sample(metrics, "kube_call_duration_seconds_sum", verb="patch") == 2


def test_a_value_outside_its_list_counts_as_other_so_that_no_text_from_outside_becomes_a_series() -> None:
    metrics = build_metrics()

    metrics.count_sprites_call("/v1/sprites/my-sprite", "a cause", "connection to 10.0.0.1 lost", timedelta(0))
    metrics.count_kube_call("patch secret-name", "pods", "no", timedelta(0))
    metrics.count_wake("a person")

    assert sample(metrics, "sprites_calls_total", route="other", cause="other", outcome="other") == 1
    assert sample(metrics, "kube_calls_total", verb="other", resource="other", outcome="other") == 1
    assert sample(metrics, "sprites_wakes_total", cause="other") == 1
    assert b"my-sprite" not in metrics.render()[0]


def test_every_word_of_the_rooms_that_are_counted_is_in_the_list_of_its_label() -> None:
    assert set(Route) <= set(ROUTES)
    assert set(Cause) <= set(CAUSES)
    assert {*Settled, *Failure} <= set(SPRITES_OUTCOMES)
    assert {*Succeeded, *Unsettled, *Failure} <= set(KUBE_OUTCOMES)
    assert set(Verb) <= set(VERBS)
    assert set(Resource) <= set(RESOURCES)
    assert set(KillEvidence) <= set(KillVerdict)
    assert set(HoldCause) <= set(HOLD_CAUSES)


def test_a_kill_without_proof_leaves_no_time_to_proof() -> None:
    metrics = build_metrics()

    metrics.count_kill(KillVerdict.UNPROVEN)
    metrics.count_kill(KillVerdict.SESSION_LIST, timedelta(seconds=3))

    assert sample(metrics, "kills_total", verdict="Unproven") == 1
    assert sample(metrics, "kills_total", verdict="SessionList") == 1
    assert sample(metrics, "kill_proof_seconds_count") == 1
    assert sample(metrics, "kill_proof_seconds_sum") == 3


class Known:
    """What is known of the present, as a test says it."""

    def __init__(self) -> None:
        self.situations: dict[Situation, int] = {Situation.RUNNING: 2}
        self.stuck = [Stuck("team", "one", Situation.LOST, timedelta(minutes=5))]

    def count_situations(self) -> Mapping[Situation, int]:
        return self.situations

    def count_conditions(self) -> Mapping[tuple[ConditionType, ConditionStatus], int]:
        return {(ConditionType.READY, ConditionStatus.TRUE): 2}

    def count_kills(self) -> Mapping[KillStage, int]:
        return {KillStage.ASKED: 3}

    def measure_oldest_kill(self) -> timedelta:
        return timedelta(minutes=1)

    def list_stuck(self) -> Sequence[Stuck]:
        return self.stuck


def test_objects_are_counted_at_the_scrape_so_that_deleted_ones_leave_nothing_behind() -> None:
    metrics, known = build_metrics(), Known()

    metrics.observe_present(known)
    assert sample(metrics, "objects", situation="Running") == 2
    assert sample(metrics, "objects", situation="Lost") == 0
    assert sample(metrics, "conditions", type="Ready", status="True") == 2
    assert sample(metrics, "conditions", type="Ready", status="False") == 0
    assert sample(metrics, "kills_open", stage="Asked") == 3
    assert sample(metrics, "kill_oldest_seconds") == 60
    assert sample(metrics, "stuck_seconds", terminal_namespace="team", terminal="one", reason="Lost") == 300
    known.situations.clear()
    known.stuck.clear()
    assert sample(metrics, "objects", situation="Running") == 0
    assert sample(metrics, "stuck_seconds", terminal_namespace="team", terminal="one", reason="Lost") is None


def test_holds_are_counted_at_the_scrape_by_state_and_cause() -> None:
    metrics = build_metrics()

    metrics.observe_holds(lambda: {(HoldState.MISSING, "Activity"): 1}, lambda: {"Viewer": timedelta(hours=1)})

    assert sample(metrics, "holds", state="Missing", cause="Activity") == 1
    assert sample(metrics, "holds", state="Held", cause="Viewer") == 0
    assert sample(metrics, "hold_idle_seconds", cause="Viewer") == 3600
    assert sample(metrics, "hold_idle_seconds", cause="Always") == 0


def test_a_wait_is_counted_by_what_it_was_for() -> None:
    metrics = build_metrics()

    metrics.count_wait(WaitCause.LIMITER, timedelta(seconds=2))

    assert sample(metrics, "queue_wait_seconds_sum", cause="limiter") == 2
    assert sample(metrics, "queue_wait_seconds_count", cause="backoff") == 0


def test_what_alerts_compare_with_exists_before_anything_happened() -> None:
    metrics = build_metrics()

    for result in LaunchResult:
        assert sample(metrics, "launches_total", result=result) == 0
    for verdict in KillVerdict:
        assert sample(metrics, "kills_total", verdict=verdict) == 0
    for cause in Cause:
        assert sample(metrics, "sprites_wakes_total", cause=cause) == 0


def test_two_operators_in_one_process_do_not_share_a_count() -> None:
    one, other = build_metrics(), build_metrics()

    one.count_launch(LaunchResult.LAUNCHED)

    assert sample(other, "launches_total", result="Launched") == 0


def test_the_label_lists_name_exactly_the_labels_that_exist() -> None:
    metrics = build_metrics()
    real = {
        f"{collector._name}_total" if collector._type == "counter" else collector._name: set(collector._labelnames)
        for collector in set(metrics.registry._collector_to_names)
        if isinstance(collector, MetricWrapperBase) and collector._labelnames
    }
    present = metrics._at_scrape.describe()
    real |= {family.name: set(family._labelnames) for family in present if family._labelnames}  # type: ignore[attr-defined]  # a gauge's

    assert {name: set(labels) for name, labels in DESCRIBED_LABELS.items()} == real


def test_every_metric_follows_the_naming_rules_and_says_what_it_means() -> None:
    for family in describe_metrics(build_metrics()):
        assert family.meaning.endswith("."), family.name
        assert not family.name.endswith(("_ms", "_minutes", "_count")), family.name
        assert (family.kind == "counter") == family.name.endswith("_total"), family.name
        if family.kind == "histogram":
            assert family.name.endswith("_seconds"), family.name


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [("", "text/plain"), ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text")],
)
def test_a_scrape_gets_the_format_it_asks_for(accept: str, content_type: str) -> None:
    body, sent_as = build_metrics().render(accept)

    assert sent_as.startswith(content_type)
    assert b"agentterminal_build_info" in body
    assert body.endswith(b"# EOF\n") == (content_type != "text/plain")


def test_the_page_names_every_metric() -> None:
    page = render_metrics_page()

    for family in describe_metrics(build_metrics()):
        assert f"`{family.name}" in page

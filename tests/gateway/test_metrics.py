"""The gateway's metrics: what a scrape shows of what was counted."""

from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.gateway.metrics import DIRECTIONS, LABELS, GatewayMetrics, build_gateway_metrics
from controller.gateway.stream import BOUNDS_SECONDS, Delays
from controller.metrics import OTHER


@pytest.fixture
def metrics() -> GatewayMetrics:
    return build_gateway_metrics()


def scrape(metrics: GatewayMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels, in the order of their names."""
    body, _ = metrics.render("text/plain")
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def note(delays: Delays, *seconds: float) -> None:
    """Count delays, on a clock that stands meanwhile."""
    moment = delays.now()
    delays.now = lambda: moment
    for delay in seconds:
        delays.note(moment - delay)


def test_delays_are_a_histogram_for_each_direction_with_cumulative_buckets(metrics: GatewayMetrics) -> None:
    note(metrics.delays.output, 0.003, 0.003, 0.3)
    note(metrics.delays.input, 60.0)

    shown = scrape(metrics)

    name = "agentterminal_gateway_delay_seconds"
    buckets = [shown[f"{name}_bucket", ("out", str(bound))] for bound in BOUNDS_SECONDS]
    assert buckets == [0, 0, 0, *[2] * 6, *[3] * 5]
    assert shown[f"{name}_bucket", ("out", "+Inf")] == shown[f"{name}_count", ("out",)] == 3
    assert shown[f"{name}_sum", ("out",)] == pytest.approx(0.306, abs=0.01)
    assert (shown[f"{name}_bucket", ("in", "10.0")], shown[f"{name}_bucket", ("in", "+Inf")]) == (0, 1)


def test_delays_are_there_before_anybody_comes(metrics: GatewayMetrics) -> None:
    shown = scrape(metrics)

    for direction in DIRECTIONS:
        assert shown["agentterminal_gateway_delay_seconds_count", (direction,)] == 0


def test_calls_to_the_platform_are_counted_under_the_names_of_the_operator(metrics: GatewayMetrics) -> None:
    metrics.count_sprites_call("attach_session", "attach", "Success", timedelta(seconds=0.2))
    metrics.count_sprites_call("attach_session", "view", "NotFound", timedelta(seconds=0.2))

    shown = scrape(metrics)

    assert shown["agentterminal_sprites_calls_total", ("attach", "Success", "attach_session")] == 1
    assert shown["agentterminal_sprites_calls_total", ("view", "NotFound", "attach_session")] == 1
    assert shown["agentterminal_sprites_call_duration_seconds_sum", ("attach_session",)] == pytest.approx(0.4)


def test_what_is_in_no_list_counts_as_other(metrics: GatewayMetrics) -> None:
    metrics.count_sprites_call("box-17", "because", "the token is abc", timedelta(0))

    assert scrape(metrics)["agentterminal_sprites_calls_total", (OTHER, OTHER, OTHER)] == 1


def test_the_watch_is_asked_at_each_scrape_and_the_loop_tells_its_last_lateness(metrics: GatewayMetrics) -> None:
    silences = iter([timedelta(seconds=3), timedelta(seconds=63)])
    metrics.observe_watch(lambda: next(silences))
    metrics.note_loop_lag(timedelta(seconds=2))
    metrics.note_loop_lag(timedelta(milliseconds=5))

    first, second = scrape(metrics), scrape(metrics)

    name = ("agentterminal_gateway_watch_silent_seconds", ())
    assert (first[name], second[name]) == (3, 63)
    assert second["agentterminal_loop_lag_seconds", ()] == 0.005


def test_every_label_that_is_shown_has_a_closed_list(metrics: GatewayMetrics) -> None:
    for family in metrics.registry.collect():
        for sample in family.samples:
            own = {label: value for label, value in sample.labels.items() if label not in {"le", "quantile"}}
            if not own or not sample.name.startswith("agentterminal_") or "version" in own:
                continue
            lists = LABELS[f"{family.name}_total" if family.type == "counter" else family.name]
            assert all(value in lists[label] for label, value in own.items()), sample

"""
What the gateway counts about its doors.

Problem and promise are those of `controller.metrics`: closed labels, no name, no address and no error text in any, and
zeros from the start. The labels are the enums of this room; what the process asks of both APIs is counted as the
operator's is, under the same names.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from controller.api.session import Cause
from controller.gateway.chair import Former
from controller.gateway.refusals import RefusalCause
from controller.gateway.stream import BOUNDS_SECONDS, BothDelays, RefusedFor
from controller.gateway.terminals import EndCause
from controller.gateway.wishes import Route
from controller.metrics import CALL_LABELS, CallMetrics, build_call_metrics
from controller.plan.fence_closing import Ending
from controller.sprites.reports import Route as SpritesRoute
from controller.sprites.reports import Settled

OK: Final = "Ok"
"""The answer of a request that was not refused."""

IN: Final = "in"
OUT: Final = "out"

ANSWERS: Final = (OK, *RefusalCause)

DIRECTIONS: Final = (IN, OUT)

LABELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    **CALL_LABELS,
    "agentterminal_gateway_requests_total": {"route": tuple(Route), "answer": ANSWERS},
    "agentterminal_gateway_sockets_ended_total": {"cause": tuple(EndCause)},
    "agentterminal_gateway_endings_total": {"ending": tuple(Ending)},
    "agentterminal_gateway_takeover_duration_seconds": {"former": tuple(Former)},
    "agentterminal_gateway_bytes_total": {"direction": DIRECTIONS},
    "agentterminal_gateway_delay_seconds": {"direction": DIRECTIONS},
    "agentterminal_gateway_frames_refused_total": {"cause": tuple(RefusedFor)},
}
"""Every label and its closed list of values."""

_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_LONG_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 15.0, 20.0)
"""A takeover from a dead replica takes 7 to 15 s."""


class _Delayed(Collector):
    """
    The delays of frames, rendered when somebody scrapes: the library's histogram takes a lock for each of them.

    Args:
        delays: What was counted.
    """

    def __init__(self, delays: BothDelays) -> None:
        self._delays = delays

    def describe(self) -> Iterable[Metric]:
        """Name the metric without its values, which is all that registration needs."""
        return [
            HistogramMetricFamily(
                "agentterminal_gateway_delay_seconds",
                "How long terminal bytes stay here: from the read of a frame until it was handed to the system for a "
                "person (out) or for the session (in); what goes out in one piece counts once, by what waited longest.",
                labels=["direction"],
            )
        ]

    def collect(self) -> Iterable[Metric]:
        """Render now."""
        bounds = [*map(str, BOUNDS_SECONDS), "+Inf"]
        for family in self.describe():
            assert isinstance(family, HistogramMetricFamily)
            for direction, delays in ((IN, self._delays.input), (OUT, self._delays.output)):
                buckets = list(zip(bounds, map(float, accumulate(delays.counts)), strict=True))
                family.add_metric([direction], buckets, delays.sum_seconds)
            yield family


@dataclass(frozen=True, slots=True)
class GatewayMetrics:
    """Every metric of the doors, in a registry to which the rooms behind them may add theirs."""

    registry: CollectorRegistry
    calls: CallMetrics
    requests: Counter
    admission: Histogram
    sockets: Gauge
    sockets_ended: Counter
    endings: Counter
    speaking: Histogram
    undrained: Counter
    undrained_bytes: Counter
    carried: Counter
    refused_frames: Counter
    watch_silent: Gauge
    delays: BothDelays
    """How long frames stay here: whoever carries them counts it there."""

    def count_request(self, route: str, answer: str) -> None:
        """Count one request by its route and its answer: `Ok`, or the cause of the refusal."""
        self.requests.labels(route, answer).inc()

    def count_admission(self, duration: timedelta) -> None:
        """Count how long the judgement of one request took that was let in."""
        self.admission.observe(duration.total_seconds())

    def count_socket_end(self, cause: str) -> None:
        """Count a socket that the doors ended."""
        self.sockets_ended.labels(cause).inc()

    def count_ending(self, ending: str) -> None:
        """Count a socket that has ended, by the word that its client was told."""
        self.endings.labels(ending).inc()

    def count_speaking(self, former: str, took: timedelta) -> None:
        """Count somebody who came to speak, by who spoke before, and how long it took."""
        self.speaking.labels(former).observe(took.total_seconds())

    def count_undrained(self, unconfirmed_bytes: int) -> None:
        """Count a lock that was let go although so many bytes of input were on the way."""
        self.undrained.inc()
        self.undrained_bytes.inc(unconfirmed_bytes)

    def count_refused_input(self, cause: str) -> None:
        """Count a frame of input that was not let through."""
        self.refused_frames.labels(cause).inc()

    def count_bytes(self, *, sent: int, received: int) -> None:
        """Count terminal bytes to and from people."""
        self.carried.labels(OUT).inc(sent)
        self.carried.labels(IN).inc(received)

    def count_kube_call(self, verb: str, resource: str, outcome: str, duration: timedelta) -> None:
        """Count one exchange with the Kubernetes API."""
        self.calls.count_kube_call(verb, resource, outcome, duration)

    def count_sprites_call(self, route: str, cause: str, outcome: str, duration: timedelta) -> None:
        """Count one exchange with the Sprites API; a socket counts until it is announced."""
        self.calls.count_sprites_call(route, cause, outcome, duration)

    def note_loop_lag(self, lag: timedelta) -> None:
        """Note by how much the event loop was late just now."""
        self.calls.note_loop_lag(lag)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Render everything for a scrape: the body, and the content type that `Accept` chose."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def observe_sockets(self, count: Callable[[], float]) -> None:
        """Name the function that counts open sockets at each scrape."""
        self.sockets.set_function(count)

    def observe_watch(self, measure: Callable[[], timedelta]) -> None:
        """Name the function that is asked at each scrape how long the watch has been silent."""
        self.watch_silent.set_function(lambda: measure().total_seconds())


def build_gateway_metrics() -> GatewayMetrics:
    """Build every metric at zero, in a fresh registry."""
    registry = CollectorRegistry()
    delays = BothDelays()
    registry.register(_Delayed(delays))
    metrics = GatewayMetrics(
        registry=registry,
        calls=build_call_metrics(registry),
        delays=delays,
        requests=Counter(
            "agentterminal_gateway_requests_total",
            "Requests at the gateway's doors, by route and answer: `Ok`, or why they were refused.",
            ["route", "answer"],
            registry=registry,
        ),
        admission=Histogram(
            "agentterminal_gateway_admission_seconds",
            "How long it took to judge a request that was let in, reviews and look-up included.",
            buckets=_BUCKETS,
            registry=registry,
        ),
        sockets=Gauge("agentterminal_gateway_sockets", "Sockets that are open.", registry=registry),
        sockets_ended=Counter(
            "agentterminal_gateway_sockets_ended_total",
            "Sockets that the doors ended: right withdrawn, token expired, or the gateway's own end.",
            ["cause"],
            registry=registry,
        ),
        endings=Counter(
            "agentterminal_gateway_endings_total",
            "Sockets that have ended, by the word that the client was told.",
            ["ending"],
            registry=registry,
        ),
        speaking=Histogram(
            "agentterminal_gateway_takeover_duration_seconds",
            "From an attach until its socket speaks, by who spoke before; each is one that the fence accepted.",
            ["former"],
            buckets=_LONG_BUCKETS,
            registry=registry,
        ),
        undrained=Counter(
            "agentterminal_gateway_undrained_total",
            "Locks that were let go although input was on the way to a sprite that did not answer.",
            registry=registry,
        ),
        undrained_bytes=Counter(
            "agentterminal_gateway_undrained_bytes_total",
            "Bytes of input that were on the way when their lock was let go.",
            registry=registry,
        ),
        carried=Counter(
            "agentterminal_gateway_bytes_total",
            "Bytes of terminals, from people (in) and to them (out).",
            ["direction"],
            registry=registry,
        ),
        refused_frames=Counter(
            "agentterminal_gateway_frames_refused_total",
            "Frames of input that were not let through: of a viewer, or of somebody whose right to type was gone.",
            ["cause"],
            registry=registry,
        ),
        watch_silent=Gauge(
            "agentterminal_gateway_watch_silent_seconds",
            "For how long the watch of the terminals has told nothing, bookmarks included, which come once a minute.",
            registry=registry,
        ),
    )
    for answer in ANSWERS:
        metrics.requests.labels(Route.ATTACH, answer)
    for cause in EndCause:
        metrics.sockets_ended.labels(cause)
    for ending in Ending:
        metrics.endings.labels(ending)
    for former in Former:
        metrics.speaking.labels(former)
    for refused in RefusedFor:
        metrics.refused_frames.labels(refused)
    for direction in DIRECTIONS:
        metrics.carried.labels(direction)
    for wanted in (Cause.ATTACH, Cause.VIEW):
        metrics.calls.sprites_calls.labels(SpritesRoute.ATTACH_SESSION, wanted, Settled.SUCCESS)
    return metrics


def render_gateway_metrics() -> str:
    """Render the gateway's part of docs/metrics.md."""
    families = sorted(
        (family for family in build_gateway_metrics().registry.collect() if family.name.startswith("agentterminal_g")),
        key=lambda family: family.name,
    )
    named = [(f"{one.name}_total" if one.type == "counter" else one.name, one) for one in families]
    lines = [
        "## The gateway",
        "",
        (
            "Served at `/metrics` on a port of its own, beside `agentterminal_build_info`, "
            "`agentterminal_loop_lag_seconds`, the two `agentterminal_kube_` metrics, the two "
            "`agentterminal_sprites_call` metrics and `process_`, which mean the same as above. Generated from "
            "`controller/gateway/metrics.py`."
        ),
        "",
        "| Metric | Type | Meaning |",
        "| --- | --- | --- |",
    ]
    for name, family in named:
        labels = LABELS.get(name, {})
        shown = "{" + ", ".join(labels) + "}" if labels else ""
        lines.append(f"| `{name}{shown}` | {family.type} | {family.documentation} |")
    lines.append("")
    for name, _ in named:
        for label, values in LABELS.get(name, {}).items():
            lines.append(f"- `{name}`, `{label}`: {', '.join(f'`{value}`' for value in values)}")
    return "\n".join(lines) + "\n"

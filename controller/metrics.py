"""
What the operator counts about itself.

Problem: one free text in a label, and the time series never end. Promise: every metric and every label stands in this
module with its closed list of values; what is not in the list counts as `other`; no address and no error text is a
label, and names of objects only on `agentterminal_stuck_seconds`, which is capped and can be turned off; what describes
the present (objects, kills, holds, queue, ages) is asked for at the scrape, so that deleted objects leave no series
behind. Durations are in seconds, sizes in bytes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from controller import __version__
from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.session import Cause
from controller.api.situations import Situation
from controller.errors import Failure

OTHER: Final = "other"
"""The value of a label for whatever is not in its list: seeing it means that a list here is too short."""


class ReconcileResult(StrEnum):
    """How one visit of an object ended."""

    SETTLED = "Settled"
    """Nothing is left to do until something changes."""
    WAITING = "Waiting"
    """It comes again by itself."""
    STALLED = "Stalled"
    """Only a person, or a changed object, gets it further."""
    FAILED = "Failed"
    """An outside call failed, or a bug was caught; it comes again with back-off."""


class LaunchResult(StrEnum):
    """How one launch ended."""

    LAUNCHED = "Launched"
    """A session runs."""
    FOUND = "Found"
    """The answer was lost, and the session was found by its nonce."""
    REFUSED = "Refused"
    """The Sprites API refused; the next launch has a new nonce."""
    UNCLEAR = "Unclear"
    """It may or may not have run."""


class LeftoversFinding(StrEnum):
    """What was found of the processes that a kill did not reach."""

    NONE = "None"
    """Nothing is left."""
    NONE_IN_SESSION = "NoneInSession"
    """Nothing is left in an adopted session; what had left it cannot be known."""
    FOUND = "Found"
    """Processes live on; an Event names them."""
    NOT_KNOWN = "NotKnown"
    """The sprite could not be searched."""


class HoldCall(StrEnum):
    """One call to the tasks of a sprite."""

    UPSERT = "Upsert"
    REMOVE = "Remove"


class HoldResult(StrEnum):
    """What became of it."""

    DONE = "Done"
    FAILED = "Failed"
    """It failed, or nobody knows; it is repeated."""


class KillVerdict(StrEnum):
    """What a kill came to."""

    SESSION_LIST = "SessionList"
    """Proven: two later lists do not have it."""
    SPRITE_COLD = "SpriteCold"
    """Proven: the sprite's memory is gone."""
    SPRITE_GONE = "SpriteGone"
    """Proven: the sprite is gone."""
    NEVER_STARTED = "NeverStarted"
    """Proven: nothing of the launch ever lived."""
    UNPROVEN = "Unproven"
    """A round of attempts ended without proof; another follows."""


class WaitCause(StrEnum):
    """What something waited for that was to be done."""

    QUEUE = "queue"
    """A due object, for a worker."""
    BACKOFF = "backoff"
    """An object whose last visit had failed, for its next try."""
    LIMITER = "limiter"
    """A call to the Sprites API, for its turn in the budget of its token."""


class KillStage(StrEnum):
    """How far a kill is that is not proven."""

    ASKED = "Asked"
    """The end was asked for, and no request for it is settled."""
    SETTLED = "Settled"
    """The Sprites API settled the request; the proof is missing."""
    OWED = "Owed"
    """The sprite is paused; it is done when it next runs."""


class HoldState(StrEnum):
    """What is known of the task that one terminal wants."""

    HELD = "Held"
    """It is there: its last refresh was answered, and has not expired."""
    UNCLEAR = "Unclear"
    """It may be there: an answer was lost."""
    MISSING = "Missing"
    """There is something to hold for, and no task."""


ROUTES: Final = (
    "list_sprites",
    "get_sprite",
    "list_sessions",
    "kill_session",
    "run_command",
    "launch_session",
    "attach_session",
    OTHER,
)
"""What is called at the Sprites API."""

CAUSES: Final = (*Cause, OTHER)
"""Why it is called."""

SPRITES_OUTCOMES: Final = ("Success", "Cancelled", *Failure, OTHER)
"""How a call to the Sprites API ended; `Cancelled` is our own doing."""

KUBE_OUTCOMES: Final = ("Ok", "Cancelled", "Withheld", *Failure, OTHER)
"""How a call to the Kubernetes API ended; `Withheld` was never sent."""

HOLD_CAUSES: Final = ("Always", "Viewer", "Activity", "Unseen", OTHER)
"""What a sprite is held for."""

VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", OTHER)
"""What is asked of the Kubernetes API."""

RESOURCES: Final = (
    "agentterminals",
    "agentterminals/status",
    "configmaps",
    "customresourcedefinitions",
    "events",
    "leases",
    "namespaces",
    "secrets",
    "serviceaccounts/token",
    "services",
    "subjectaccessreviews",
    "tokenreviews",
    OTHER,
)
"""What it is asked about."""

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets for what takes milliseconds when all is well."""

_WAITS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Buckets for waits: a back-off is at most 300 s."""

_PATIENT: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Buckets for what may take minutes without anything being wrong."""


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as docs/metrics.md tells it."""

    name: str
    kind: str
    labels: tuple[tuple[str, tuple[str, ...]], ...]
    meaning: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """An object that is not ready, by its name: the one place where a name becomes a label."""

    namespace: str
    name: str
    reason: Situation
    duration: timedelta


HoldCounts = Mapping[tuple[HoldState, str], int]
"""Terminals by what is known of their task and what it is for."""


class Present(Protocol):
    """Whoever knows the present; asked at every scrape, so it must be quick and must not raise."""

    def count_situations(self) -> Mapping[Situation, int]:
        """Count objects by situation."""
        ...

    def count_conditions(self) -> Mapping[tuple[ConditionType, ConditionStatus], int]:
        """Count objects by the status of each condition."""
        ...

    def count_kills(self) -> Mapping[KillStage, int]:
        """Count the kills that are not proven."""
        ...

    def measure_oldest_kill(self) -> timedelta:
        """Tell for how long the oldest of them has waited that is not owed; nothing where there is none."""
        ...

    def list_stuck(self) -> Sequence[Stuck]:
        """Name those that have not been ready for the longest time, as many as may be named."""
        ...


class _Nobody:
    """Before anybody knows the present, all counts are zero."""

    def count_situations(self) -> Mapping[Situation, int]:
        return {}

    def count_conditions(self) -> Mapping[tuple[ConditionType, ConditionStatus], int]:
        return {}

    def count_kills(self) -> Mapping[KillStage, int]:
        return {}

    def measure_oldest_kill(self) -> timedelta:
        return timedelta(0)

    def list_stuck(self) -> Sequence[Stuck]:
        return ()


class _AtScrape(Collector):
    """
    What is counted anew when somebody scrapes.

    A value without objects is 0 rather than absent, so that alerts can compare.
    """

    def __init__(self) -> None:
        self.present: Present = _Nobody()
        self.count_holds: Callable[[], HoldCounts] = dict
        self.measure_idle_holds: Callable[[], Mapping[str, timedelta]] = dict

    def describe(self) -> Iterable[Metric]:
        """Name the metrics without counting, which is all that registration needs."""
        return [
            _build_family("objects", "Objects by situation.", "situation"),
            _build_family("conditions", "Objects by the status of each of their conditions.", "type", "status"),
            _build_family("kills_open", "Kills that are asked for and not proven, by how far they are.", "stage"),
            _build_family(
                "kill_oldest_seconds", "For how long the oldest kill has waited for its proof, owed ones left out."
            ),
            _build_family(
                "holds",
                "Terminals with a task, or with work and none, by what is known of it and cause.",
                "state",
                "cause",
            ),
            _build_family(
                "hold_idle_seconds", "The longest time that a held terminal has shown no activity, by cause.", "cause"
            ),
            _build_family(
                "stuck_seconds",
                "For how long an object has not been ready, for those that have waited longest; see "
                "`AGENTTERMINAL_METRICS_NAMES`.",
                "terminal_namespace",
                "terminal",
                "reason",
            ),
        ]

    def collect(self) -> Iterable[Metric]:
        """Count now."""
        families = {family.name.removeprefix("agentterminal_"): family for family in self.describe()}

        def add(name: str, value: float, *labels: str) -> None:
            family = families[name]
            assert isinstance(family, GaugeMetricFamily)
            family.add_metric(labels, value)

        situations, conditions = self.present.count_situations(), self.present.count_conditions()
        for situation in Situation:
            add("objects", situations.get(situation, 0), situation)
        for kind in ConditionType:
            for status in ConditionStatus:
                add("conditions", conditions.get((kind, status), 0), kind, status)
        kills, holds, idle = self.present.count_kills(), self.count_holds(), self.measure_idle_holds()
        for stage in KillStage:
            add("kills_open", kills.get(stage, 0), stage)
        add("kill_oldest_seconds", self.present.measure_oldest_kill().total_seconds())
        for cause in HOLD_CAUSES:
            for state in HoldState:
                add("holds", holds.get((state, cause), 0), state, cause)
            add("hold_idle_seconds", idle.get(cause, timedelta(0)).total_seconds(), cause)
        for one in self.present.list_stuck():
            add("stuck_seconds", one.duration.total_seconds(), one.namespace, one.name, one.reason)
        return families.values()


def _build_family(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"agentterminal_{name}", meaning, labels=labels)


@dataclass(frozen=True, slots=True)
class CallMetrics:
    """What operator and gateway count alike, so that one query reads both: their calls, and how they keep up."""

    sprites_calls: Counter
    sprites_call_duration: Histogram
    kube_calls: Counter
    kube_call_duration: Histogram
    loop_lag: Gauge

    def count_sprites_call(self, route: str, cause: str, outcome: str, duration: timedelta) -> None:
        """Count one exchange with the Sprites API; a socket counts until it is announced."""
        route = _admit(route, ROUTES)
        self.sprites_calls.labels(route, _admit(cause, CAUSES), _admit(outcome, SPRITES_OUTCOMES)).inc()
        self.sprites_call_duration.labels(route).observe(duration.total_seconds())

    def count_kube_call(self, verb: str, resource: str, outcome: str, duration: timedelta) -> None:
        """Count one exchange with the Kubernetes API."""
        verb = _admit(verb, VERBS)
        self.kube_calls.labels(verb, _admit(resource, RESOURCES), _admit(outcome, KUBE_OUTCOMES)).inc()
        self.kube_call_duration.labels(verb).observe(duration.total_seconds())

    def note_loop_lag(self, lag: timedelta) -> None:
        """Note by how much the event loop was late just now."""
        self.loop_lag.set(lag.total_seconds())


def build_call_metrics(registry: CollectorRegistry) -> CallMetrics:
    """Add what every process of ours counts to a registry: the process itself, its version, and its calls."""
    ProcessCollector(registry=registry)
    build = Gauge("agentterminal_build_info", "1, with the version that runs.", ["version"], registry=registry)
    build.labels(__version__).set(1)
    return CallMetrics(
        sprites_calls=Counter(
            "agentterminal_sprites_calls_total",
            "Calls to the Sprites API, by route, cause and outcome.",
            ["route", "cause", "outcome"],
            registry=registry,
        ),
        sprites_call_duration=Histogram(
            "agentterminal_sprites_call_duration_seconds",
            "How long a call to the Sprites API took.",
            ["route"],
            buckets=_QUICK,
            registry=registry,
        ),
        kube_calls=Counter(
            "agentterminal_kube_calls_total",
            "Calls to the Kubernetes API, by verb, resource and outcome.",
            ["verb", "resource", "outcome"],
            registry=registry,
        ),
        kube_call_duration=Histogram(
            "agentterminal_kube_call_duration_seconds",
            "How long a call to the Kubernetes API took.",
            ["verb"],
            buckets=_QUICK,
            registry=registry,
        ),
        loop_lag=Gauge(
            "agentterminal_loop_lag_seconds",
            "By how much the event loop was late when it was last measured.",
            registry=registry,
        ),
    )


CALL_LABELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "agentterminal_build_info": {"version": ("the version that runs",)},
    "agentterminal_sprites_calls_total": {"route": ROUTES, "cause": CAUSES, "outcome": SPRITES_OUTCOMES},
    "agentterminal_sprites_call_duration_seconds": {"route": ROUTES},
    "agentterminal_kube_calls_total": {"verb": VERBS, "resource": RESOURCES, "outcome": KUBE_OUTCOMES},
    "agentterminal_kube_call_duration_seconds": {"verb": VERBS},
}
"""Their labels, each with its closed list of values."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """
    Every metric of the operator, in a registry of its own.

    Gauges may be given a function to be asked at the scrape: `metrics.queue_depth.set_function(...)`.
    """

    registry: CollectorRegistry
    calls: CallMetrics
    leader: Gauge
    reconciles: Counter
    reconcile_duration: Histogram
    queue_depth: Gauge
    wait: Histogram
    sprites_wakes: Counter
    kills: Counter
    kill_proof: Histogram
    leftovers: Counter
    launches: Counter
    adoptions: Counter
    watch_age: Gauge
    watch_unchecked: Gauge
    namespaces_unreadable: Gauge
    breakers_open: Gauge
    hold_calls: Counter
    held_seconds: Counter
    hold_renewals: Counter
    resync_lost: Counter
    events_dropped: Counter
    _at_scrape: _AtScrape

    def observe_present(self, present: Present) -> None:
        """Name who is asked about objects at each scrape."""
        self._at_scrape.present = present

    def observe_holds(
        self, count: Callable[[], HoldCounts], measure_idle: Callable[[], Mapping[str, timedelta]]
    ) -> None:
        """Name the functions that are asked about holds at each scrape; they must be quick and must not raise."""
        self._at_scrape.count_holds = count
        self._at_scrape.measure_idle_holds = measure_idle

    def count_wait(self, cause: WaitCause, duration: timedelta) -> None:
        """Count for how long something waited that was to be done."""
        self.wait.labels(cause).observe(duration.total_seconds())

    def count_reconcile(self, result: ReconcileResult, duration: timedelta) -> None:
        """Count one visit of an object."""
        self.reconciles.labels(result).inc()
        self.reconcile_duration.observe(duration.total_seconds())

    def count_sprites_call(self, route: str, cause: str, outcome: str, duration: timedelta) -> None:
        """Count one exchange with the Sprites API."""
        self.calls.count_sprites_call(route, cause, outcome, duration)

    def count_wake(self, cause: str) -> None:
        """Count one call that may wake a paused sprite, and so cost money."""
        self.sprites_wakes.labels(_admit(cause, CAUSES)).inc()

    def count_kube_call(self, verb: str, resource: str, outcome: str, duration: timedelta) -> None:
        """Count one exchange with the Kubernetes API."""
        self.calls.count_kube_call(verb, resource, outcome, duration)

    def note_loop_lag(self, lag: timedelta) -> None:
        """Note by how much the event loop was late just now."""
        self.calls.note_loop_lag(lag)

    def count_kill(self, verdict: KillVerdict, proof: timedelta | None = None) -> None:
        """
        Count what a kill came to.

        Args:
            verdict: How it ended.
            proof: From the question to the proof, where there is one.
        """
        self.kills.labels(verdict).inc()
        if proof is not None:
            self.kill_proof.observe(proof.total_seconds())

    def count_leftovers(self, finding: LeftoversFinding) -> None:
        """Count what was found of one killed session's processes."""
        self.leftovers.labels(finding).inc()

    def count_hold_call(self, call: HoldCall, result: HoldResult) -> None:
        """Count one call to the tasks of a sprite."""
        self.hold_calls.labels(call, result).inc()

    def count_renewal(self, cause: str) -> None:
        """Count one task that was known to be there and was given a new expiry."""
        self.hold_renewals.labels(_admit(cause, HOLD_CAUSES)).inc()

    def count_held(self, cause: str, duration: timedelta) -> None:
        """Add to the time for which sprites were held, each terminal for itself."""
        self.held_seconds.labels(_admit(cause, HOLD_CAUSES)).inc(duration.total_seconds())

    def count_launch(self, result: LaunchResult) -> None:
        """Count how one launch ended."""
        self.launches.labels(result).inc()

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """
        Render everything for a scrape.

        Args:
            accept: The request's `Accept` header; it chooses between the text and the OpenMetrics format.

        Returns:
            The body and its content type.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


def build_metrics() -> Metrics:
    """Build every metric at zero, in a fresh registry: two operators in one process do not mix."""
    registry = CollectorRegistry()
    at_scrape = _AtScrape()
    registry.register(at_scrape)

    def counter(name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"agentterminal_{name}", meaning, labels, registry=registry)

    def gauge(name: str, meaning: str) -> Gauge:
        return Gauge(f"agentterminal_{name}", meaning, registry=registry)

    def histogram(name: str, meaning: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"agentterminal_{name}", meaning, labels, buckets=buckets, registry=registry)

    metrics = Metrics(
        registry=registry,
        calls=build_call_metrics(registry),
        leader=gauge("leader", "1 while this process leads and acts, 0 while it stands by."),
        reconciles=counter("reconciles_total", "Visits of objects, by how they ended.", "result"),
        reconcile_duration=histogram("reconcile_duration_seconds", "How long one visit of an object took.", _QUICK),
        queue_depth=gauge("queue_depth", "Objects that wait for a visit and are due."),
        wait=histogram(
            "queue_wait_seconds", "How long a visit or a call waited before it began, by what for.", _WAITS, "cause"
        ),
        sprites_wakes=counter("sprites_wakes_total", "Calls that may have woken a paused sprite, by cause.", "cause"),
        kills=counter("kills_total", "Kills, by what they came to.", "verdict"),
        kill_proof=histogram("kill_proof_seconds", "From the question to the proof that it is dead.", _PATIENT),
        leftovers=counter("leftovers_total", "Killed sessions, by what was found of their processes.", "result"),
        launches=counter("launches_total", "Launches, by how they ended.", "result"),
        adoptions=counter("adoptions_total", "Sessions that were adopted."),
        watch_age=gauge("watch_age_seconds", "By how much the watch is behind a fresh list; 0 when it is not."),
        watch_unchecked=gauge(
            "watch_unchecked_seconds", "Since when the watch was not compared with a complete list of the API server."
        ),
        namespaces_unreadable=gauge(
            "namespaces_unreadable", "Namespaces of AGENTTERMINAL_NAMESPACES that may not be read: nobody acts there."
        ),
        breakers_open=gauge(
            "breakers_open", "Tokens whose sprites are refused (401, 404) many at once: nothing is believed or started."
        ),
        hold_calls=counter("hold_calls_total", "Calls to the tasks of sprites, by result.", "call", "result"),
        held_seconds=counter(
            "held_seconds_total",
            "For how long sprites were held, by cause; two terminals that hold one sprite count twice.",
            "cause",
        ),
        hold_renewals=counter("hold_renewals_total", "Tasks that were given a new expiry, by cause.", "cause"),
        resync_lost=counter("resync_lost_total", "Objects that a resync found and the watch had lost."),
        events_dropped=counter("events_dropped_total", "Kubernetes Events that were not posted."),
        _at_scrape=at_scrape,
    )
    _begin_at_zero(metrics)
    return metrics


def _begin_at_zero(metrics: Metrics) -> None:
    """A counter that appears only with its first event hides that event from `increase()`."""
    for result in ReconcileResult:
        metrics.reconciles.labels(result)
    for outcome in LaunchResult:
        metrics.launches.labels(outcome)
    for verdict in KillVerdict:
        metrics.kills.labels(verdict)
    for finding in LeftoversFinding:
        metrics.leftovers.labels(finding)
    for wait in WaitCause:
        metrics.wait.labels(wait)
    for cause in Cause:
        metrics.sprites_wakes.labels(cause)
    for call in HoldCall:
        for answer in HoldResult:
            metrics.hold_calls.labels(call, answer)
    for why in HOLD_CAUSES:
        metrics.held_seconds.labels(why)
        metrics.hold_renewals.labels(why)


def _admit(value: str, allowed: tuple[str, ...]) -> str:
    return value if value in allowed else OTHER


DESCRIBED_LABELS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    **CALL_LABELS,
    "agentterminal_objects": {"situation": tuple(Situation)},
    "agentterminal_conditions": {"type": tuple(ConditionType), "status": tuple(ConditionStatus)},
    "agentterminal_kills_open": {"stage": tuple(KillStage)},
    "agentterminal_holds": {"state": tuple(HoldState), "cause": HOLD_CAUSES},
    "agentterminal_hold_idle_seconds": {"cause": HOLD_CAUSES},
    "agentterminal_stuck_seconds": {
        "terminal_namespace": ("the object's namespace; a scrape has a `namespace` of its own",),
        "terminal": ("the object's name",),
        "reason": tuple(Situation),
    },
    "agentterminal_queue_wait_seconds": {"cause": tuple(WaitCause)},
    "agentterminal_reconciles_total": {"result": tuple(ReconcileResult)},
    "agentterminal_sprites_wakes_total": {"cause": CAUSES},
    "agentterminal_kills_total": {"verdict": tuple(KillVerdict)},
    "agentterminal_launches_total": {"result": tuple(LaunchResult)},
    "agentterminal_leftovers_total": {"result": tuple(LeftoversFinding)},
    "agentterminal_hold_calls_total": {"call": tuple(HoldCall), "result": tuple(HoldResult)},
    "agentterminal_held_seconds_total": {"cause": HOLD_CAUSES},
    "agentterminal_hold_renewals_total": {"cause": HOLD_CAUSES},
}
"""Every label and its closed list of values."""


def render_metrics_page() -> str:
    """Render docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Generated by `make crds` from `controller/metrics.py`; edit that.",
        "",
        (
            "Served at `/metrics`, as text or OpenMetrics. Every label has a closed list of values; no error text is a "
            "label, and names of objects stand on `agentterminal_stuck_seconds` alone, for at most "
            "`AGENTTERMINAL_METRICS_NAMES` of them (0 turns it off). A value `other` means that a list is too short: "
            "please report it. The usual `process_` metrics are there as well. What to be woken for is in "
            "[runbooks](runbooks/README.md), what to look at in [dashboard.md](dashboard.md)."
        ),
        "",
        "| Metric | Type | Meaning |",
        "| --- | --- | --- |",
    ]
    families = sorted(describe_metrics(build_metrics()), key=lambda family: family.name)
    lines += [f"| `{family.name}{_render_labels(family)}` | {family.kind} | {family.meaning} |" for family in families]
    lines += ["", "## Labels", ""]
    for family in families:
        for label, values in family.labels:
            lines.append(f"- `{family.name}`, `{label}`: {', '.join(f'`{value}`' for value in values)}")
    return "\n".join(lines) + "\n"


def describe_metrics(metrics: Metrics) -> Iterable[Described]:
    """Tell every metric of ours with its labels; the name is the one to query."""
    for family in metrics.registry.collect():
        if family.name.startswith("agentterminal_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = tuple(DESCRIBED_LABELS.get(name, {}).items())
            yield Described(name, family.type, labels, family.documentation)


def _render_labels(family: Described) -> str:
    return "{" + ", ".join(label for label, _ in family.labels) + "}" if family.labels else ""

"""
How the engine is set: each number with its unit, and the reason why it is that number.

Problem: a number that stands alone in the code cannot be argued about. Promise: every default says what it weighs, and
a group of values that contradict each other is refused with one sentence per fault before anything starts.
Source: design.md 4 and 8; the environment names belong to `controller/settings.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

_NO_TIME = timedelta(0)


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How long a key waits after a failure, and who goes first."""

    backoff_base: timedelta = timedelta(milliseconds=500)
    """The wait after the first failure: long enough to be no hammer, short enough to be no pause for a person."""

    backoff_max: timedelta = timedelta(minutes=5)
    """No wait is longer: what an outside failure delayed is tried again soon after it ends."""

    backoff_jitter: float = 0.2
    """The share of a wait that luck may take off, so that what failed together does not come back together."""

    urgent_share: int = 8
    """Of this many keys taken while both lanes wait, one is a normal one: a storm of deletions stops nobody else."""

    def __post_init__(self) -> None:
        _refuse(
            ("backoff_base", "must be longer than zero", self.backoff_base <= _NO_TIME),
            ("backoff_max", "must be at least backoff_base", self.backoff_max < self.backoff_base),
            ("backoff_jitter", "must be from 0 up to, not including, 1", not 0 <= self.backoff_jitter < 1),
            ("urgent_share", "must be at least 2, or one lane would starve", self.urgent_share < 2),
        )


@dataclass(frozen=True, slots=True)
class ResyncSettings:
    """How often the registry is held against the API server, and when a difference counts."""

    interval: timedelta = timedelta(minutes=2)
    """A deletion that the watch lost is found within two of these; the list costs the server about 1 s of CPU for
    10,000 objects, since it carries metadata only."""

    grace: timedelta = timedelta(seconds=60)
    """A newer object on the server counts as lag only after this: the watch is usually a few milliseconds behind."""

    retry: timedelta = timedelta(seconds=10)
    """After a list that failed, the next one comes this soon, or after `interval` if that is shorter."""

    def __post_init__(self) -> None:
        _refuse(
            ("interval", "must be longer than zero", self.interval <= _NO_TIME),
            ("grace", "must not be negative", self.grace < _NO_TIME),
            ("retry", "must be longer than zero", self.retry <= _NO_TIME),
        )


@dataclass(frozen=True, slots=True)
class LivenessSettings:
    """When the process is better started anew."""

    watch_lag_max: timedelta = timedelta(minutes=3)
    """Beyond the resync interval and its grace: one slow look is no reason to restart, two are."""

    loop_lag_max: timedelta = timedelta(seconds=30)
    """A loop that does not get its turn for this long renews no Lease and kills nobody in time."""

    loop_lag_window: timedelta = timedelta(minutes=1)
    """The worst lag of this last while counts: a probe that could not be answered during the lag sees it afterwards."""

    sample_interval: timedelta = timedelta(seconds=1)
    """How often the loop's own lateness is measured: cheap, and fine enough for a histogram."""

    def __post_init__(self) -> None:
        _refuse(
            ("watch_lag_max", "must be longer than zero", self.watch_lag_max <= _NO_TIME),
            ("loop_lag_max", "must be longer than zero", self.loop_lag_max <= _NO_TIME),
            ("loop_lag_window", "must be at least loop_lag_max", self.loop_lag_window < self.loop_lag_max),
            (
                "sample_interval",
                "must be longer than zero and at most loop_lag_max",
                not _NO_TIME < self.sample_interval <= self.loop_lag_max,
            ),
        )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine as a whole is told."""

    workers: int = 16
    """Reconciles at the same time: as many as requests may be in flight to the API server (design.md 4.2), since more
    would only queue there."""

    metadata_interval: timedelta = timedelta(seconds=30)
    """How often the pages of sprites are read while anything depends on them (design.md 4.3)."""

    full_check_interval: timedelta = timedelta(hours=1)
    """Every object is reconciled at least this often, whatever was missed; spread by jitter."""

    metrics_names: int = 20
    """So many objects that are not ready are named in the metrics: a person reads no more, and a series costs memory in
    every Prometheus. 0 names none."""

    queue: QueueSettings = field(default_factory=QueueSettings)
    resync: ResyncSettings = field(default_factory=ResyncSettings)
    liveness: LivenessSettings = field(default_factory=LivenessSettings)

    def __post_init__(self) -> None:
        _refuse(
            ("workers", "must be at least 1", self.workers < 1),
            ("metrics_names", "must not be negative", self.metrics_names < 0),
            ("metadata_interval", "must be longer than zero", self.metadata_interval <= _NO_TIME),
            ("full_check_interval", "must be longer than zero", self.full_check_interval <= _NO_TIME),
            (
                "liveness.watch_lag_max",
                "must be longer than resync.grace, or a healthy watch would fail it",
                self.liveness.watch_lag_max <= self.resync.grace,
            ),
        )


def _refuse(*rules: tuple[str, str, bool]) -> None:
    """
    Raise one error that names every broken rule.

    Args:
        rules: The field, its rule, and whether the rule is broken.

    Raises:
        ValueError: When any is.
    """
    faults = list(_sentences(rules))
    if faults:
        raise ValueError(" ".join(faults))


def _sentences(rules: tuple[tuple[str, str, bool], ...]) -> Iterator[str]:
    for name, rule, broken in rules:
        if broken:
            yield f"{name} {rule}."

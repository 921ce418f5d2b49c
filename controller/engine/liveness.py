"""
Whether this process is worth keeping, and whether it is ready.

Problem: a health answer that looks at the wrong thing stays green for hours while nothing is watched, and one that
looks at the age of events kills a healthy process in a quiet cluster. Promise: health is judged from what the resync
saw, from the pump, from the loop's own lateness and from the Lease; the answer is a sentence for the person who reads
the events of the pod.
Source: design.md 4.1, kopf.md 8 and 16.9.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from controller.clock import Clock
from controller.engine.settings import LivenessSettings

log = logging.getLogger(__name__)


class PumpState(StrEnum):
    """What the event pump does."""

    LISTING = "Listing"
    """It runs, and the first list has not passed."""
    RUNNING = "Running"
    """It watches."""
    ENDED = "Ended"
    """It has ended, and nothing is seen any more."""


class TenureState(StrEnum):
    """What the Lease says about us."""

    NONE = "None"
    """We do not lead; another process does, or nobody yet."""
    HELD = "Held"
    """We lead, and renewed in time."""
    OVERDUE = "Overdue"
    """We led, were not renewed in time, and should have ended."""


@dataclass(frozen=True, slots=True)
class LivenessFacts:
    """What is judged."""

    pump: PumpState
    watch_lag: timedelta
    loop_lag: timedelta
    tenure: TenureState


@dataclass(frozen=True, slots=True)
class Good:
    """Yes."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Bad:
    """No, and why."""

    sentence: str


Verdict = Good | Bad


def judge_liveness(facts: LivenessFacts, settings: LivenessSettings) -> Verdict:
    """Decide whether the process should go on; a wait at exactly its limit is still good."""
    if facts.pump is PumpState.ENDED:
        return Bad("The event pump has ended: objects are not watched any more.")
    if facts.tenure is TenureState.OVERDUE:
        return Bad("This process does not lead any more, and should have ended.")
    if facts.watch_lag > settings.watch_lag_max:
        return Bad(
            f"The watch is {_seconds(facts.watch_lag)} behind the API server, "
            f"more than {_seconds(settings.watch_lag_max)}."
        )
    if facts.loop_lag > settings.loop_lag_max:
        return Bad(f"The event loop was {_seconds(facts.loop_lag)} late, more than {_seconds(settings.loop_lag_max)}.")
    return Good("This process is well.")


def judge_readiness(facts: LivenessFacts) -> Verdict:
    """Decide whether the process does its work: standing by is one way of being ready."""
    match facts.pump:
        case PumpState.RUNNING if facts.tenure is TenureState.NONE:
            return Good("Standing by: all objects were seen, and this process does not lead.")
        case PumpState.RUNNING:
            return Good("All objects were seen.")
        case PumpState.LISTING:
            return Bad("The first list of the objects has not passed yet.")
        case PumpState.ENDED:
            return Bad("The event pump has ended: objects are not watched any more.")


STOOD_STILL: Final = timedelta(seconds=5)
"""A lateness of this much is no load that a person would not want to know of."""


class LoopLag:
    """
    Measure how late the loop gives a sleeper its turn.

    Args:
        clock: The loop's clock.
        settings: How often, and for how long the worst is remembered.
        on_sample: Told of each lateness, for a histogram.
    """

    def __init__(self, clock: Clock, settings: LivenessSettings, on_sample: Callable[[timedelta], None]) -> None:
        self._clock = clock
        self._settings = settings
        self._on_sample = on_sample
        self._samples: deque[tuple[timedelta, timedelta]] = deque()
        """When, and how late; only those that no later one has outdone."""

    async def run(self) -> None:
        """Sample, for ever."""
        interval = self._settings.sample_interval
        while True:
            asked = self._clock.monotonic()
            await self._clock.sleep(interval)
            now = self._clock.monotonic()
            late = max(timedelta(0), now - asked - interval)
            self._keep(now, late)
            self._on_sample(late)
            if late >= STOOD_STILL:
                # Whoever wonders about the time in between finds it in the log: nothing else tells of it.
                log.warning(
                    "This process stood still: it was stopped, its machine was, or it had no processor. What was due "
                    "meanwhile is done now; holds may have lapsed.",
                    extra={"seconds": round(late.total_seconds(), 1)},
                )

    @property
    def worst(self) -> timedelta:
        """The worst lateness of the last while."""
        self._drop_old(self._clock.monotonic())
        return self._samples[0][1] if self._samples else timedelta(0)

    def _keep(self, now: timedelta, late: timedelta) -> None:
        while self._samples and self._samples[-1][1] <= late:
            self._samples.pop()
        self._samples.append((now, late))
        self._drop_old(now)

    def _drop_old(self, now: timedelta) -> None:
        while self._samples and now - self._samples[0][0] > self._settings.loop_lag_window:
            self._samples.popleft()


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():.0f} s"

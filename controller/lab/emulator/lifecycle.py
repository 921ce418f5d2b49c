"""
When a running sprite pauses: a pure judgement.

Source: sprites-api.md 8 and question 5: attached clients, output, input and live tasks keep it awake; a silent
process does not, however busy it is.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum


class Status(StrEnum):
    """The only documented values."""

    RUNNING = "running"
    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True)
class Facts:
    """What keeps a sprite awake."""

    attached: bool
    """Whether a session does: by default, one with a client."""
    last_activity: datetime
    tasks_until: datetime | None
    """The latest expiry of a live task."""


@dataclass(frozen=True)
class StaysAwake:
    """Nothing is due before this moment; None: before something changes."""

    until: datetime | None


@dataclass(frozen=True)
class Pauses:
    """It has been silent for long enough."""


def judge_idle(facts: Facts, *, idle_after: timedelta, now: datetime) -> StaysAwake | Pauses:
    """Judge whether a running sprite pauses now; an idle window of zero means never."""
    if idle_after <= timedelta() or facts.attached:
        return StaysAwake(None)
    awake_until = max(facts.last_activity, facts.tasks_until or facts.last_activity) + idle_after
    return Pauses() if now >= awake_until else StaysAwake(awake_until)

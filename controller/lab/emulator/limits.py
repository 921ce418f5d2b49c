"""
How much an organization may ask for, and how it is told that it asked for too much.

Promise: windows are counted on the machine's clock, since a client compares `Retry-After` with its own; `now` is an
argument. Source: sprites-api.md 1.1 and 1.2 (read September 2026). Assumed: a window is fixed, and the code of a limit
of sessions and of requests is named like the two known ones (question 36).
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final

from controller.lab.emulator.answers import Refusal
from controller.lab.emulator.switches import LimitBody, RetryAfter, Switches

CREATION_WINDOW: Final = timedelta(seconds=60)
"""Source: comments in official clients."""
LONG: Final = timedelta(seconds=60)
"""What is said of a limit that no window lifts: try again then."""


@dataclass(frozen=True)
class Exceeded:
    """A limit that a request ran into."""

    code: str
    message: str
    limit: int
    current: int
    window: timedelta
    retry_after: timedelta


class Window:
    """How many came since the window began."""

    def __init__(self) -> None:
        self._began: datetime | None = None
        self.count = 0
        self.ends: datetime = datetime.fromtimestamp(0, UTC)

    def take(self, *, limit: int, length: timedelta, now: datetime) -> timedelta | None:
        """Count one; where that is one too many, count nothing and tell how long the window still lasts."""
        if self._began is None or not self._began <= now < self._began + length:
            self._began, self.count = now, 0
        self.ends = self._began + length
        if self.count >= limit:
            return self.ends - now
        self.count += 1
        return None


class Limits:
    """The windows of one organization."""

    def __init__(self) -> None:
        self.requests = Window()
        self.creations = Window()

    def take_request(self, switches: Switches, now: datetime) -> Exceeded | None:
        """Count a request."""
        if switches.rate_limit == 0:
            return None
        length = timedelta(seconds=switches.rate_window_seconds)
        left = self.requests.take(limit=switches.rate_limit, length=length, now=now)
        if left is None:
            return None
        return Exceeded(
            "rate_limit_exceeded",
            f"Rate limit of {switches.rate_limit} requests exceeded",
            switches.rate_limit,
            self.requests.count,
            length,
            left,
        )

    def take_creation(self, switches: Switches, now: datetime) -> Exceeded | None:
        """Count a create."""
        if switches.creation_limit == 0:
            return None
        left = self.creations.take(limit=switches.creation_limit, length=CREATION_WINDOW, now=now)
        if left is None:
            return None
        return Exceeded(
            "sprite_creation_rate_limited",
            f"Creation limit of {switches.creation_limit} sprites exceeded",
            switches.creation_limit,
            self.creations.count,
            CREATION_WINDOW,
            left,
        )

    def render_headers(self, switches: Switches) -> dict[str, str]:
        """Write what every answer tells of the window of requests."""
        if switches.rate_limit == 0 or not switches.rate_headers:
            return {}
        return {
            "X-RateLimit-Limit": str(switches.rate_limit),
            "X-RateLimit-Remaining": str(max(0, switches.rate_limit - self.requests.count)),
            "X-RateLimit-Reset": str(math.ceil(self.requests.ends.timestamp())),
        }


def judge_count(*, code: str, what: str, limit: int, current: int) -> Exceeded | None:
    """Judge a limit of how many there may be at once; a limit of zero is none."""
    if limit == 0 or current < limit:
        return None
    return Exceeded(code, f"Limit of {limit} {what} reached", limit, current, timedelta(), LONG)


def refuse(exceeded: Exceeded, switches: Switches, now: datetime) -> Refusal:
    """Make the 429 in the form that the switches say."""
    seconds = max(1, math.ceil(exceeded.retry_after.total_seconds()))
    headers: dict[str, str] = {}
    match switches.retry_after:
        case RetryAfter.SECONDS:
            headers["Retry-After"] = str(seconds)
        case RetryAfter.DATE:
            # A date has whole seconds: cut down, it would be too early.
            headers["Retry-After"] = format_datetime(now + timedelta(seconds=seconds + 1), usegmt=True)
        case RetryAfter.ABSENT:
            pass
    body: Any
    match switches.limit_body:
        case LimitBody.STRUCTURED:
            body = {
                "error": exceeded.code,
                "message": exceeded.message,
                "limit": exceeded.limit,
                "window_seconds": math.ceil(exceeded.window.total_seconds()),
                "retry_after_seconds": seconds,
                "current_count": exceeded.current,
                "upgrade_available": False,
                "upgrade_url": "",
            }
        case LimitBody.ERROR:
            body = {"error": exceeded.message}
        case LimitBody.TEXT:
            body = exceeded.message
    return Refusal(429, body, headers=headers)

"""
How long a hold lives and how often it is renewed, from two texts that anybody may have written.

Problem: a lenient reader turns `5m` into five, and a strict one stops the operator over a number that has a good
default. Promise: a text counts only if it is nothing but a number in range, everything else falls back to a value that
works, the refresh is never longer than half the expiry, and each fall-back is told so that it can be logged.
Source: behaviour cases G1 to G8 and C10.
"""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

EXPIRE_DEFAULT_SECONDS: Final = 300
EXPIRE_MAX_SECONDS: Final = 3600
"""The platform refuses a longer task."""

REFRESH_DEFAULT_MS: Final = 60_000
REFRESH_FLOOR_MS: Final = 1_000
"""Neither the upper limit of a refresh nor its fall-back is ever below this."""

_COUNT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


class HoldField(StrEnum):
    """The two values, named as a user knows them without a prefix."""

    EXPIRE = "expire"
    REFRESH = "refresh"


@dataclass(frozen=True, slots=True)
class HoldFallback:
    """A value that was given and does not count, and what counts instead."""

    field: HoldField
    used: timedelta
    rule: str


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """The two durations of a hold, in a relation that works."""

    expire: timedelta = timedelta(seconds=EXPIRE_DEFAULT_SECONDS)
    """A hold that nobody renews ends by itself after this: so long may a dead operator cost money."""

    refresh: timedelta = timedelta(milliseconds=REFRESH_DEFAULT_MS)
    """A hold is renewed this often; at most half the expiry, so that one lost call does no harm."""

    fallbacks: tuple[HoldFallback, ...] = field(default=(), compare=False)
    """What was given and did not count."""

    @property
    def idle_after(self) -> timedelta:
        """An agent whose last activity is this old counts as idle: two beats."""
        return 2 * self.refresh


def resolve_hold(expire: str | None, refresh: str | None) -> HoldSettings:
    """
    Two texts become two durations that work together, whatever the texts are.

    A text counts if it is 1 to 15 ASCII digits, nothing else, and more than zero. An expiry beyond an hour does not
    count. A refresh beyond half the effective expiry does not count, where that limit is never below one second; the
    fall-back is a fifth of the expiry, at least one second and at most the usual minute.

    Args:
        expire: Seconds, as written; None where nothing was.
        refresh: Milliseconds, as written; None where nothing was.
    """
    expire_given = _read_count(expire)
    expire_seconds = EXPIRE_DEFAULT_SECONDS
    if expire_given is not None and expire_given <= EXPIRE_MAX_SECONDS:
        expire_seconds = expire_given

    refresh_given = _read_count(refresh)
    refresh_max_ms = max(REFRESH_FLOOR_MS, expire_seconds * 1000 // 2)
    refresh_ms = max(REFRESH_FLOOR_MS, min(REFRESH_DEFAULT_MS, expire_seconds * 1000 // 5))
    if refresh_given is not None and refresh_given <= refresh_max_ms:
        refresh_ms = refresh_given

    fallbacks = []
    if expire is not None and expire_given != expire_seconds:
        rule = f"a whole number from 1 to {EXPIRE_MAX_SECONDS}, in ASCII digits and nothing else"
        fallbacks.append(HoldFallback(HoldField.EXPIRE, timedelta(seconds=expire_seconds), rule))
    if refresh is not None and refresh_given != refresh_ms:
        rule = f"a whole number from 1 to {refresh_max_ms} (half the expiry), in ASCII digits and nothing else"
        fallbacks.append(HoldFallback(HoldField.REFRESH, timedelta(milliseconds=refresh_ms), rule))

    return HoldSettings(
        expire=timedelta(seconds=expire_seconds),
        refresh=timedelta(milliseconds=refresh_ms),
        fallbacks=tuple(fallbacks),
    )


def _read_count(text: str | None) -> int | None:
    """Read a positive number of at most 15 digits; None for everything else."""
    if text is None or _COUNT.fullmatch(text) is None:
        return None
    return int(text) or None

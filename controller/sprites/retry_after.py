"""
How long the Sprites API asks us to wait. Pure.

Source: sprites-api.md 1.1, 1.2 and 12 row 36 (2026-09): `Retry-After` is integer seconds, the form as a date is not
excluded, and a body's `retry_after_seconds` is preferred where it is set.
"""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

LONGEST_WAIT: Final = timedelta(minutes=10)
"""The longest wait we believe: a clock set wrong on the other side must not stop a kill for a day."""


def read_retry_after(header: str | None, body: object, *, now: datetime) -> timedelta | None:
    """
    Tell how long to wait before the next call, or None where the answer does not tell.

    Args:
        header: The value of `Retry-After`.
        body: The answer's JSON, whatever it is; only a positive number in `retry_after_seconds` counts as set.
        now: The wall time against which a date is read. A date in the past means: no wait.
    """
    if isinstance(body, dict) and (told := _read_seconds(body.get("retry_after_seconds"))) is not None:
        return told
    if header is None:
        return None
    value = header.strip()
    if value.isascii() and value.isdigit():
        # A number of this many digits is absurd, and int() refuses a few thousand of them.
        return LONGEST_WAIT if len(value) > 9 else min(timedelta(seconds=int(value)), LONGEST_WAIT)
    return _read_date(value, now)


def _read_seconds(value: object) -> timedelta | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return None
    return timedelta(seconds=min(value, LONGEST_WAIT.total_seconds()))


def _read_date(value: str, now: datetime) -> timedelta | None:
    try:
        until = parsedate_to_datetime(value)
        if until.tzinfo is None:  # "-0000": a time in UTC from somebody who does not tell where he is
            until = until.replace(tzinfo=UTC)
        return min(max(until - now, timedelta(0)), LONGEST_WAIT)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None

"""
Times as the API server reads them, to the nanosecond.

Problem: Python's times end at microseconds, at the year 1 and at offsets of a day. Go's do not, and a rule that
compares two spellings of one instant must say what the API server says. Promise: the questions below are answered as
kube-apiserver 1.37.2 answers them; `tests/api/kind_table.py` holds the spellings on which Python and Go part.

Source: k8s.io/kube-openapi, pkg/validation/strfmt/time.go (`IsDateTime`, `ParseDateTime`), read 2026-11.
"""

import re
from datetime import date
from typing import Final

TIME_PATTERN: Final = r"^[12]\d{3}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$"
"""
RFC 3339 with capital T and Z, or an offset of less than a day, in a year that every program can reckon with.

Observed: kube-apiserver 1.37.2 (2026-11): the format `date-time` alone admits values that no rule can read, among them
an offset of +25:00; such an object can never be written again, not even to remove its finalizer.
"""

_CLOCK: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_INSTANT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_DAYS_IN_400_YEARS: Final = 146_097


def is_date_time(text: str) -> bool:
    """Tell whether a text has the format `date-time`: a day in the calendar, a time of day, and any offset at all."""
    day, *rest = text.lower().split("t")
    if not rest or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", day):
        return False
    clock = _CLOCK.fullmatch(rest[0])
    if clock is None or clock[1] > "23" or clock[2] > "59" or clock[3] > "59":
        return False
    return _count_days(*(int(part) for part in day.split("-"))) is not None


def read_instant(text: str) -> int | None:
    """
    Read a time as nanoseconds since an arbitrary start; None for what the API server's rules cannot read.

    It is asked only about texts that have the format: after any other no rule is run.
    """
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    days = _count_days(year, month, day)
    offset_hours, offset_minutes = int(match[9] or 0), int(match[10] or 0)
    if days is None or hour > 23 or minute > 59 or second > 59 or offset_hours > 24 or offset_minutes > 60:
        return None
    offset = (offset_hours * 60 + offset_minutes) * (-1 if match[8] == "-" else 1)
    seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    return seconds * 1_000_000_000 + int((match[7] or "")[:9].ljust(9, "0"))


def _count_days(year: int, month: int, day: int) -> int | None:
    """Count the days to a date, in any year of four digits; None if the calendar has no such day."""
    try:
        return date(2000 + year % 400, month, day).toordinal() + (year // 400) * _DAYS_IN_400_YEARS
    except ValueError:
        return None

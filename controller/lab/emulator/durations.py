"""
Durations as the Sprites API writes them: `600s`, `200ms`, `1h30m`, and bare integers of seconds.

Source: sprites-api.md 3.2, 6 and 7. Assumed: a bare integer in a kill's `timeout` is seconds (question 16).
"""

import re
from datetime import timedelta
from typing import Final

_UNITS: Final = {
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|us|h|m|s)", re.ASCII)
_BARE: Final = re.compile(r"\d{1,12}", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """
    Read a duration; a bare integer counts seconds.

    Raises:
        ValueError: It is none, or it is negative.
    """
    if _BARE.fullmatch(text):
        return timedelta(seconds=int(text))
    total, end = timedelta(), 0
    for part in _PART.finditer(text):
        if part.start() != end:
            break
        total, end = total + _UNITS[part[2]] * float(part[1]), part.end()
    if end == 0 or end != len(text):
        raise ValueError(f"{text!r} is no duration; write it like 600s, 200ms or 1h30m.")
    return total

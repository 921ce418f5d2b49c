"""
How the product speaks: a sentence and keys, to standard error.

Problem: libraries log what we would never write down (request lines, headers, whole objects), and a sentence alone
cannot be searched by machine. Promise: every line is a sentence with its keys beside it, as text for people or as JSON
for machines; loggers of others are quiet below WARNING, whatever level was asked for; nothing goes to standard output.
Source: the house's rule on logs; kopf's debug lines carry spec and annotations, httpx's and httpcore's carry addresses
and headers (observed with kopf 1.45.2, httpx 0.28.1).
"""

import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TextIO

from pythonjsonlogger.json import JsonFormatter

QUIET: Final = (
    "aiohttp",
    "asyncio",
    "hpack",
    "httpcore",
    "httpx",
    "kopf",
    "kubernetes",
    "urllib3",
    "websockets",
)
"""Loggers of others that may carry tokens, addresses, objects or terminal bytes below WARNING."""

_OWN_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; whatever else a record carries came as `extra`."""


class LogLevel(StrEnum):
    """How much is said. INFO is a change of state, steady state is DEBUG."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """For whom it is said."""

    TEXT = "text"
    """For people: time, level, sentence, then the keys."""
    JSON = "json"
    """For machines: one object per line with `time`, `level`, `logger`, `message` and the keys."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How the product speaks."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


class TextFormatter(logging.Formatter):
    """One line for people; a traceback, where there is one, follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Put time and level before the sentence, and the keys behind it."""
        keys = "".join(f" {key}={_show(value)}" for key, value in vars(record).items() if key not in _OWN_ATTRIBUTES)
        line = f"{_render_moment(record)} {record.levelname} {record.getMessage()}{keys}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(settings: LogSettings, stream: TextIO | None = None) -> None:
    """
    Send every log line to one place in one shape; calling it again replaces the shape.

    Args:
        settings: Level and shape.
        stream: Where to; standard error if None.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_build_formatter(settings.format))
    handler.addFilter(_is_named)
    root = logging.getLogger()
    for old in root.handlers[:]:
        if isinstance(old.formatter, TextFormatter | JsonFormatter):
            root.removeHandler(old)
    root.addHandler(handler)
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    root.setLevel(max(level, logging.WARNING))
    logging.getLogger("controller").setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _is_named(record: logging.LogRecord) -> bool:
    """
    Keep out what is said through the root logger: nothing of ours is.

    Observed: the `kubernetes` loader (37.0.2) logs a failed credential plugin there, with all that the plugin wrote to
    its standard error. What we say of it is the sentence of `CredentialsUnusable`.
    """
    return record.name != "root"


def _build_formatter(shape: LogFormat) -> logging.Formatter:
    if shape is LogFormat.TEXT:
        return TextFormatter()
    return _JsonLines(
        "%(levelname)s %(name)s %(message)s",
        rename_fields={"levelname": "level", "name": "logger"},
        json_ensure_ascii=False,
    )


class _JsonLines(JsonFormatter):
    """One object per line; the time comes first, in UTC."""

    def add_fields(
        self, log_data: dict[str, object], record: logging.LogRecord, message_dict: dict[str, object]
    ) -> None:
        log_data["time"] = _render_moment(record)
        super().add_fields(log_data, record, message_dict)
        log_data.pop("taskName", None)


def _render_moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _show(value: object) -> str:
    """Keep a value on its line and apart from the next key."""
    text = str(value)
    return text if text and text.isprintable() and " " not in text and '"' not in text else repr(text)

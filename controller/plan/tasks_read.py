"""
How the tasks of a sprite are read, so that book-keeping can begin from the truth.

Problem: after a restart nobody remembers which tasks are alive; a list that was cut short would look like a sprite
without holds. Promise: only a whole list counts, closed by the line of its call; whatever else came is a failure.

Source: sprites-api.md 7 (2026-09). The tasks of others are in the list too, and are none of our business.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from controller.plan.tasks import (
    CURL_LIMIT,
    CURL_MISSING_CODE,
    EXPIRE_MAX,
    LINE,
    SOCKET,
    TASKS_URL,
    Done,
    ExecAnswer,
    ExecFailed,
    Failed,
    TaskTrouble,
    Unclear,
    UpsertTask,
    judge_call,
    judge_exec_failure,
)

READ_OUTPUT_BYTES: Final = 64 * 1024
"""The most output of a command that reads the tasks: about 300 of them, some of which may be of others."""


@dataclass(frozen=True, slots=True)
class ListedTask:
    """One live task of a sprite. A time is None where the answer has none that can be read."""

    name: str
    started: datetime | None
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class TasksRead:
    """All live tasks of a sprite, those of others among them."""

    tasks: tuple[ListedTask, ...]


def build_read_exec() -> tuple[str, ...]:
    """Build the command that reads all tasks of a sprite; the body comes first and the line last."""
    tail = ["-s", "-w", "\\naterm 0 %{http_code} %{exitcode}\\n"]
    tail += ["--max-time", f"{CURL_LIMIT // timedelta(seconds=1)}", "--unix-socket", SOCKET, TASKS_URL]
    return ("curl", "-q", *tail)


def judge_read(answer: ExecAnswer) -> TasksRead | Failed | Unclear:
    """
    Read the answer of `build_read_exec`; a list counts only if it is whole.

    The line comes after the body, so a body that was cut off has none. An entry without a name is passed over.
    """
    if isinstance(answer, ExecFailed):
        return Unclear(judge_exec_failure(answer), answer.message)
    body, _, last = answer.stdout.decode("utf-8", "replace").rstrip("\n").rpartition("\n")
    line = LINE.fullmatch(last.strip())
    if line is None:
        trouble = TaskTrouble.CURL_MISSING if answer.exit_code == CURL_MISSING_CODE else TaskTrouble.CURL_FAILED
        return Failed(trouble if answer.exit_code else TaskTrouble.UNREADABLE, answer.exit_code)
    code = int(line[3]) if line[3] else answer.exit_code
    verdict = judge_call(_READ, exit_code=code or answer.exit_code, status=int(line[2]))
    if not isinstance(verdict, Done):
        return verdict
    tasks = _read_tasks(body)
    return Failed(TaskTrouble.UNREADABLE, answer.exit_code, verdict.status) if tasks is None else TasksRead(tasks)


_READ: Final = UpsertTask("read", EXPIRE_MAX)
"""Stands in for a read where a status is judged: unlike a removal, it is not done with a 404."""


def _read_tasks(body: str) -> tuple[ListedTask, ...] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match value:
        case {"tasks": [*entries]}:
            return tuple(
                ListedTask(name, _read_time(entry.get("started_at")), _read_time(entry.get("expires_at")))
                for entry in entries
                if isinstance(entry, dict) and isinstance(name := entry.get("name"), str)
            )
        case _:
            return None


def _read_time(value: Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None

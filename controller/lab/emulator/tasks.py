"""
The tasks of one sprite: holds with an expiry, by name.

Promise: reading it changes nothing but time; what has expired is not there. `now` is an argument.
Source: sprites-api.md 7. Assumed: zero, negative and over-long expiries are refused alike (question 8).
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from controller.lab.emulator.durations import parse_duration
from controller.lab.emulator.switches import TaskExpire, TaskHour, TaskNames

CEILING: Final = timedelta(hours=1)
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)
"""Assumed: the rule that is known to be safe (question 10)."""
ANY_NAME: Final = re.compile(r".{1,255}", re.DOTALL)


class TaskRefused(Exception):
    """The request cannot be done; the text says why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True)
class Task:
    """A hold."""

    name: str
    started_at: datetime
    expires_at: datetime


def parse_expire(value: Any, *, limits: TaskExpire = TaskExpire.REFUSED) -> timedelta:
    """Read an expiry: integer seconds or a duration, above zero and at most an hour; what is not may be clamped."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TaskRefused(400, "expire must be integer seconds or a duration such as 30m")
    try:
        expire = timedelta(seconds=value) if isinstance(value, int) else parse_duration(value)
    except (ValueError, OverflowError) as error:
        raise TaskRefused(400, f"invalid expire {value!r}") from error
    if limits is TaskExpire.CLAMPED:
        return min(max(expire, timedelta()), CEILING)
    if expire > CEILING:
        raise TaskRefused(400, f"expire {expire.total_seconds():.0f}s exceeds the maximum of 3600s")
    if expire <= timedelta():
        raise TaskRefused(400, "expire must be positive")
    return expire


def parse_name(value: Any, *, names: TaskNames = TaskNames.SAFE) -> str:
    """Read a task's name."""
    rule = NAME if names is TaskNames.SAFE else ANY_NAME
    if not isinstance(value, str) or not rule.fullmatch(value):
        raise TaskRefused(400, "invalid task name")
    return value


class TaskBook:
    """All tasks of a sprite."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def live(self, now: datetime) -> list[Task]:
        """List what has not expired."""
        self._tasks = {name: task for name, task in self._tasks.items() if task.expires_at > now}
        return list(self._tasks.values())

    def get(self, name: str, now: datetime) -> Task:
        """Find a live task."""
        self.live(now)
        if name not in self._tasks:
            raise TaskRefused(404, "task not found")
        return self._tasks[name]

    def create(self, name: str, expire: timedelta, now: datetime) -> Task:
        """Begin a task whose name is free."""
        self.live(now)
        if name in self._tasks:
            raise TaskRefused(409, "task already exists")
        self._tasks[name] = Task(name, now, now + expire)
        return self._tasks[name]

    def put(self, name: str, expire: timedelta, now: datetime, *, hour: TaskHour) -> Task:
        """Begin a task or reset its expiry."""
        self.live(now)
        task = self._tasks.get(name) or Task(name, now, now)
        expires_at = now + expire
        if hour is TaskHour.CREATION:
            expires_at = min(expires_at, task.started_at + CEILING)
        self._tasks[name] = replace(task, expires_at=expires_at)
        return self._tasks[name]

    def remove(self, name: str, now: datetime) -> None:
        """End a task."""
        self.get(name, now)
        del self._tasks[name]

    def shift(self, by: timedelta) -> None:
        """Let all expire later by what did not count."""
        self._tasks = {name: replace(task, expires_at=task.expires_at + by) for name, task in self._tasks.items()}

    def clear(self) -> None:
        """Forget all."""
        self._tasks.clear()

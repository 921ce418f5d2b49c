"""
What a recorded curl prints: records run nothing, and whoever measures holds needs their tasks all the same.

Promise: a command of one or more calls to `/v1/tasks` (`--next` between them) changes the sprite's tasks and prints
what curl would: the body unless `-o` takes it, then `-w` with `%{http_code}` and `%{exitcode}`. Anything else is no
command of this kind. Source: curl(1); sprites-api.md 7.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from controller.lab.emulator.switches import TaskHour
from controller.lab.emulator.tasks import Task, TaskBook, TaskRefused, parse_expire, parse_name

PATH: Final = "/v1/tasks"
WITH_VALUE: Final = frozenset({"-X", "-d", "-H", "-o", "-w", "--max-time", "--unix-socket"})


def answer_curl(argv: Sequence[str], tasks: TaskBook, now: datetime, *, hour: TaskHour) -> str | None:
    """Do what a curl asks of the tasks, and give what it prints; None where it is no such command."""
    if not argv or argv[0] != "curl":
        return None
    calls = [_read_options(words) for words in _split(argv[1:])]
    if not all(urlsplit(call.get("", "")).path.startswith(PATH) for call in calls):
        return None
    return "".join(_answer(call, tasks, now, hour) for call in calls)


def _split(words: Sequence[str]) -> Iterator[list[str]]:
    call: list[str] = []
    for word in words:
        if word == "--next":
            yield call
            call = []
        else:
            call.append(word)
    yield call


def _read_options(words: Sequence[str]) -> dict[str, str]:
    """Read one call: options with their values, and the address under the empty name."""
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in WITH_VALUE:
            options[word] = next(rest, "")
        elif not word.startswith("-"):
            options[""] = word
    return options


def _answer(call: dict[str, str], tasks: TaskBook, now: datetime, hour: TaskHour) -> str:
    try:
        status, body = _act(call, tasks, now, hour)
    except TaskRefused as refused:
        status, body = refused.status, json.dumps({"error": refused.text})
    written = call.get("-w", "").replace("\\n", "\n")
    written = written.replace("%{http_code}", f"{status:03d}").replace("%{exitcode}", "0")
    return ("" if "-o" in call else body) + written


def _act(call: dict[str, str], tasks: TaskBook, now: datetime, hour: TaskHour) -> tuple[int, str]:
    name = urlsplit(call[""]).path.removeprefix(PATH).strip("/")
    match call.get("-X", "GET"):
        case "GET" if not name:
            return 200, json.dumps({"tasks": [_render(task) for task in tasks.live(now)]})
        case "GET":
            return 200, json.dumps(_render(tasks.get(name, now)))
        case "PUT":
            expire = parse_expire(_read_body(call.get("-d", "")).get("expire"))
            return 200, json.dumps(_render(tasks.put(parse_name(name), expire, now, hour=hour)))
        case "DELETE":
            tasks.remove(name, now)
            return 204, ""
        case _:
            return 405, ""


def _read_body(text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise TaskRefused(400, "invalid JSON") from error
    return body if isinstance(body, dict) else {}


def _render(task: Task) -> dict[str, str]:
    started, expires = task.started_at.isoformat(), task.expires_at.isoformat()
    return {"name": task.name, "started_at": started, "expires_at": expires}

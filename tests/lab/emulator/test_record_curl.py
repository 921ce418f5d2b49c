"""A recorded curl does to the tasks what a real one would, and prints what a real one would."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from controller.lab.emulator.record_curl import answer_curl
from controller.lab.emulator.switches import TaskHour
from controller.lab.emulator.tasks import TaskBook

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
URL = "http://sprite/v1/tasks"
TOLD = ["-w", "\\n%{http_code} %{exitcode}\\n"]
QUIET = ["-s", "-o", "/dev/null", "--unix-socket", "/.sprite/api.sock", *TOLD]


def put(name: str, expire: object) -> list[str]:
    return [*QUIET, "-X", "PUT", "-H", "Content-Type: application/json", "-d", json.dumps({"expire": expire}), name]


def answer(book: TaskBook, *argv: str) -> str | None:
    return answer_curl(argv, book, NOON, hour=TaskHour.REFRESH)


def test_the_calls_of_one_command_are_done_in_their_order_and_each_is_told() -> None:
    book = TaskBook()

    calls = [put(f"{URL}/a", 60), put(f"{URL}/b", 0), [*QUIET, "-X", "DELETE", f"{URL}/c"]]

    told = answer(book, "curl", "-q", *calls[0], "--next", *calls[1], "--next", *calls[2])

    assert told == "\n200 0\n\n400 0\n\n404 0\n"
    assert [(task.name, task.expires_at - NOON) for task in book.live(NOON)] == [("a", timedelta(seconds=60))]


def test_a_list_is_printed_with_its_times() -> None:
    book = TaskBook()
    answer(book, "curl", *put(f"{URL}/a", 60))

    told = answer(book, "curl", "-q", "-s", *TOLD, URL)

    assert told is not None
    body, status = told.split("\n")[:2]
    assert json.loads(body) == {
        "tasks": [{"name": "a", "started_at": NOON.isoformat(), "expires_at": "2026-01-01T12:01:00+00:00"}]
    }
    assert status == "200 0"


@pytest.mark.parametrize("argv", [("sh", "-c", "true"), ("curl", "https://elsewhere.example/"), ("curl",), ()])
def test_any_other_command_is_none_of_its_business(argv: tuple[str, ...]) -> None:
    assert answer(TaskBook(), *argv) is None

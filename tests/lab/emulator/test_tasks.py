"""The Tasks API on a sprite's own socket, called from inside. Source: sprites-api.md 7."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.lab.emulator.switches import TaskHour
from controller.lab.emulator.tasks import TaskBook, TaskRefused, parse_expire
from tests.lab.emulator.talking import Client
from tests.support.emulator import EmulatorProcess

NOON = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


async def curl(
    client: Client, emulator: EmulatorProcess, method: str, path: str, body: Any = None, *, sprite: str = "my-sprite"
) -> tuple[int, Any]:
    """Call the sprite's own API as a program inside does: status and body."""
    emulator.switch(linger_seconds=0)
    data = () if body is None else ("-H", "Content-Type: application/json", "-d", json.dumps(body))
    words = ("-s", "--max-time", "8", "-w", "\n%{http_code}", "-X", method, *data, f"http://sprite{path}")
    talk = await client.start("curl", "--unix-socket", "/.sprite/api.sock", *words, sprite=sprite)
    heard = await talk.hear_all()
    assert heard.frames[-1] == b"\x03\x00", heard.stream(2)
    text, _, status = heard.stream(1).decode().rpartition("\n")
    return int(status), json.loads(text) if text else None


def parse(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.sprites
async def test_a_task_is_created_shown_reset_and_removed(client: Client, emulator: EmulatorProcess) -> None:
    status, made = await curl(client, emulator, "POST", "/v1/tasks", {"name": "hold", "expire": "5m"})
    assert (status, made["name"]) == (201, "hold")
    assert parse(made["expires_at"]) - parse(made["started_at"]) == timedelta(minutes=5)
    assert await curl(client, emulator, "POST", "/v1/tasks", {"name": "hold", "expire": 60}) == (
        409,
        {"error": "task already exists"},
    )
    status, reset = await curl(client, emulator, "PUT", "/v1/tasks/hold", {"expire": 3600})
    assert (status, reset["started_at"]) == (200, made["started_at"])
    assert parse(reset["expires_at"]) > parse(made["expires_at"])
    assert await curl(client, emulator, "GET", "/v1/tasks/hold") == (200, reset)
    assert await curl(client, emulator, "GET", "/v1/tasks") == (200, {"tasks": [reset]})
    assert emulator.tasks("my-sprite") == [reset]
    assert await curl(client, emulator, "DELETE", "/v1/tasks/hold") == (204, None)
    assert (await curl(client, emulator, "DELETE", "/v1/tasks/hold"))[0] == 404
    assert (await curl(client, emulator, "GET", "/v1/tasks/hold"))[0] == 404


@pytest.mark.sprites
async def test_a_put_without_a_name_in_the_path_creates_too(client: Client, emulator: EmulatorProcess) -> None:
    assert (await curl(client, emulator, "PUT", "/v1/tasks", {"name": "hold", "expire": "30m"}))[0] == 200
    assert [task["name"] for task in emulator.tasks("my-sprite")] == ["hold"]


@pytest.mark.sprites
async def test_a_sprite_sees_only_its_own_tasks(client: Client, emulator: EmulatorProcess) -> None:
    emulator.create_sprite("neighbour")
    await curl(client, emulator, "PUT", "/v1/tasks/mine", {"expire": 60})
    await curl(client, emulator, "PUT", "/v1/tasks/theirs", {"expire": 60}, sprite="neighbour")
    _, seen = await curl(client, emulator, "GET", "/v1/tasks")
    assert [task["name"] for task in seen["tasks"]] == ["mine"]


@pytest.mark.sprites
async def test_the_socket_also_says_which_sprite_it_is(client: Client, emulator: EmulatorProcess) -> None:
    status, info = await curl(client, emulator, "GET", "/info")
    assert (status, info["name"], info["org"], info["id"]) == (
        200,
        "my-sprite",
        "acme",
        emulator.sprite("my-sprite")["id"],
    )


@pytest.mark.sprites
async def test_the_public_api_has_no_tasks(client: Client) -> None:
    assert (await client.ask("GET", "/v1/tasks"))[0] == 404
    assert (await client.ask("GET", "/v1/sprites/my-sprite/tasks"))[0] == 404


@pytest.mark.sprites
@pytest.mark.parametrize("expire", [3601, "2h", 0, -1, "soon", True, None, 1.5, "-5m", ""])
async def test_a_wrong_expiry_is_refused_and_holds_nothing(
    client: Client, emulator: EmulatorProcess, expire: Any
) -> None:
    status, body = await curl(client, emulator, "PUT", "/v1/tasks/hold", {"expire": expire})
    assert status == 400
    assert expire not in (3601, "2h") or {"3600s", "7200s"} & set(body["error"].split())
    assert emulator.tasks("my-sprite") == []


@pytest.mark.sprites
async def test_calls_from_inside_are_in_the_log_with_their_own_door(client: Client, emulator: EmulatorProcess) -> None:
    await curl(client, emulator, "PUT", "/v1/tasks/hold", {"expire": 60})
    entries = emulator.requests(door="inside")
    assert [(entry["route"], entry["sprite"], entry["status"]) for entry in entries] == [
        ("tasks.put", "my-sprite", 200)
    ]


@pytest.mark.sprites
async def test_a_call_from_inside_fails_on_demand(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "status", "status": 503, "when": "after"}, route="tasks.put")
    assert (await curl(client, emulator, "PUT", "/v1/tasks/hold", {"expire": 60}))[0] == 503
    assert len(emulator.tasks("my-sprite")) == 1


@pytest.mark.sprites
@pytest.mark.parametrize("survive", [False, True])
async def test_whether_tasks_survive_a_cold_stop_is_a_switch(
    client: Client, emulator: EmulatorProcess, *, survive: bool
) -> None:
    emulator.switch(tasks_survive_cold=survive)
    await curl(client, emulator, "PUT", "/v1/tasks/hold", {"expire": 600})
    emulator.set_state("my-sprite", "cold")
    assert len(emulator.tasks("my-sprite")) == int(survive)


def test_an_expired_task_is_not_there() -> None:
    book = TaskBook()
    book.create("hold", timedelta(seconds=60), NOON)
    assert book.live(NOON + timedelta(seconds=59)) != []
    assert book.live(NOON + timedelta(seconds=60)) == []
    assert book.create("hold", HOUR, NOON + timedelta(seconds=60)).started_at == NOON + timedelta(seconds=60)


@pytest.mark.parametrize(("hour", "ends"), [(TaskHour.REFRESH, 7140), (TaskHour.CREATION, 3600)])
def test_what_the_hour_counts_from_is_a_switch(hour: TaskHour, ends: int) -> None:
    book = TaskBook()
    book.put("hold", HOUR, NOON, hour=hour)
    later = NOON + timedelta(seconds=3540)
    assert book.put("hold", HOUR, later, hour=hour).expires_at == NOON + timedelta(seconds=ends)
    book.remove("hold", later)
    assert book.put("hold", HOUR, later, hour=hour).expires_at == later + HOUR


@pytest.mark.parametrize(("given", "seconds"), [(1, 1), (3600, 3600), ("30m", 1800), ("1h", 3600), ("90s", 90)])
def test_an_expiry_is_seconds_or_a_duration(given: int | str, seconds: int) -> None:
    assert parse_expire(given) == timedelta(seconds=seconds)


def test_the_ceiling_names_both_numbers() -> None:
    with pytest.raises(TaskRefused, match=r"5400s .* 3600s"):
        parse_expire("90m")

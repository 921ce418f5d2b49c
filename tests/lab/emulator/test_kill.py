"""The kill of a session: its stream, its reach, and its refusals. Source: sprites-api.md 6."""

import json
import os
import signal
from typing import Any

import pytest

from tests.lab.emulator.talking import Client, wait_until
from tests.lab.watching import read_stat
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

STUBBORN = ("sh", "-c", "trap '' TERM INT; while :; do sleep 0.1; done")


async def kill(client: Client, session: str, *, body: Any = None, **query: str) -> tuple[int, list[dict[str, Any]]]:
    path = f"/v1/sprites/my-sprite/exec/{session}/kill"
    status, text, headers = await client.ask("POST", path, json=body, query=query)
    if status != 200:
        return status, []
    assert headers["Content-Type"] == "application/x-ndjson"
    return status, [json.loads(line) for line in text.splitlines()]


def read_parent(pid: int) -> int:
    return int(read_stat(pid)[1])


def count_processes(emulator: EmulatorProcess) -> int:
    return len(emulator.processes("my-sprite"))


@pytest.mark.parametrize(
    ("argv", "tty", "query", "types", "code"),
    [
        (("sleep", "1000"), True, {}, ["signal", "exited", "signal", "complete"], 143),
        (("sleep", "1000"), False, {}, ["signal", "exited", "complete"], 143),
        (("sleep", "1000"), False, {"signal": "SIGKILL"}, ["signal", "exited", "complete"], 137),
        (("sleep", "1000"), False, {"signal": "INT"}, ["signal", "exited", "complete"], 130),
        (STUBBORN, True, {"timeout": "50ms"}, ["signal", "timeout", "killed", "signal", "complete"], 137),
        (STUBBORN, False, {"timeout": "50ms"}, ["signal", "timeout", "killed", "complete"], 137),
        (STUBBORN, True, {"signal": "SIGKILL"}, ["signal", "exited", "signal", "complete"], 137),
    ],
)
async def test_the_stream_tells_what_happened_and_nothing_is_left(
    client: Client,
    emulator: EmulatorProcess,
    argv: tuple[str, ...],
    tty: bool,
    query: dict[str, str],
    types: list[str],
    code: int,
) -> None:
    session = emulator.start_session("my-sprite", *argv, tty=tty)
    if argv is STUBBORN:
        wait_until(lambda: count_processes(emulator), lambda count: count == 2)
    status, events = await kill(client, session["id"], **query)
    assert (status, [event["type"] for event in events]) == (200, types)
    assert events[0]["pid"] == int(session["id"])
    assert events[0]["signal"] in (query.get("signal", "SIGTERM"), "SIGINT")
    assert events[-1]["exit_code"] == code
    assert emulator.list_sessions("my-sprite") == []
    wait_until(lambda: count_processes(emulator), lambda count: count == 0)


async def test_the_grace_period_is_ten_seconds(client: Client, emulator: EmulatorProcess) -> None:
    emulator.stop_clock()
    session = emulator.start_session("my-sprite", *STUBBORN)
    wait_until(lambda: count_processes(emulator), lambda count: count == 2)
    path = f"/v1/sprites/my-sprite/exec/{session['id']}/kill"
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.http.post(client.url + path, headers=headers) as response:
        assert json.loads(await response.content.readline())["type"] == "signal"
        emulator.advance_clock(9.5)
        assert len(emulator.sessions("my-sprite")) == 1
        emulator.advance_clock(0.5)
        assert json.loads(await response.content.readline())["type"] == "timeout"


async def test_the_query_wins_over_the_body(client: Client, emulator: EmulatorProcess) -> None:
    first = emulator.start_session("my-sprite", "sleep", "1000")
    _, events = await kill(client, first["id"], body={"signal": "SIGKILL"}, signal="SIGHUP")
    assert events[0]["signal"] == "SIGHUP"
    second = emulator.start_session("my-sprite", "sleep", "1000")
    _, events = await kill(client, second["id"], body={"signal": "SIGKILL", "timeout": 3})
    assert events[0]["signal"] == "SIGKILL"


async def test_the_body_is_ignored_by_switch(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(kill_body="ignored")
    session = emulator.start_session("my-sprite", "sleep", "1000")
    _, events = await kill(client, session["id"], body={"signal": "SIGKILL"})
    assert events[0]["signal"] == "SIGTERM"


@pytest.mark.parametrize("query", [{"signal": "SIGNOTHING"}, {"timeout": "soon"}])
async def test_what_cannot_be_read_kills_nothing(
    client: Client, emulator: EmulatorProcess, query: dict[str, str]
) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")
    assert await kill(client, session["id"], **query) == (400, [])
    assert len(emulator.list_sessions("my-sprite")) == 1


async def test_a_wrong_route_answers_404_and_kills_nothing(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")
    status, _, _ = await client.ask("POST", f"/v1/sprites/my-sprite/exec/sessions/{session['id']}/kill")
    assert status == 404
    assert len(emulator.list_sessions("my-sprite")) == 1


@pytest.mark.parametrize(("switch", "status"), [("404", 404), ("410", 410)])
async def test_an_ended_session_is_not_found_or_gone(
    client: Client, emulator: EmulatorProcess, switch: str, status: int
) -> None:
    emulator.switch(kill_exited=switch)
    session = emulator.start_session("my-sprite", "sleep", "1000")
    await kill(client, session["id"], signal="SIGKILL")
    assert await kill(client, session["id"], signal="SIGKILL") == (status, [])
    assert await kill(client, "4711", signal="SIGKILL") == (404, [])


async def test_a_kill_reaches_the_foreground_job_of_a_shell(client: Client, emulator: EmulatorProcess) -> None:
    talk = await client.start("bash", "--norc", "-i", tty="true")
    await talk.say(b"sleep 1000\n")
    wait_until(lambda: count_processes(emulator), lambda count: count == 2)
    _, events = await kill(client, "2", signal="SIGKILL")
    assert events[-1] == {"type": "complete", "exit_code": 137}
    wait_until(lambda: count_processes(emulator), lambda count: count == 0)


@pytest.mark.parametrize(("switch", "left"), [("foreground", 0), ("leader", 1)])
async def test_a_foreground_job_that_ignores_the_hang_up_dies_too_unless_only_the_leader_is_reached(
    client: Client, emulator: EmulatorProcess, switch: str, left: int
) -> None:
    emulator.switch(kill_reach=switch)
    talk = await client.start("bash", "--norc", "-i", tty="true")
    await talk.say(b"sh -c 'trap \"\" HUP; exec sleep 1000'\n")
    wait_until(lambda: [e["argv"][0] for e in emulator.processes("my-sprite")], lambda found: found[1:] == ["sleep"])
    await kill(client, "2", signal="SIGKILL")
    wait_until(lambda: [e["argv"] for e in emulator.processes("my-sprite")], lambda f: f == [["sleep", "1000"]] * left)


async def test_by_switch_it_reaches_the_foreground_job_alone_and_the_shell_after_the_grace(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.switch(kill_reach="foreground-only")
    talk = await client.start("bash", "--norc", "-i", tty="true")
    await talk.say(b"sleep 1000\n")
    wait_until(lambda: count_processes(emulator), lambda count: count == 2)
    _, events = await kill(client, "2", signal="SIGKILL", timeout="300ms")
    assert [event["type"] for event in events] == ["signal", "timeout", "killed", "signal", "complete"]


async def test_a_background_job_of_its_own_group_is_left_over(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sh", "-c", "setsid sleep 1000 & sleep 2000")
    # It becomes this command after it has left the group.
    wait_until(
        lambda: [process["argv"] for process in emulator.processes("my-sprite")], lambda all_: ["sleep", "1000"] in all_
    )
    await kill(client, session["id"], signal="SIGKILL")
    assert wait_until(lambda: emulator.processes("my-sprite"), lambda found: len(found) == 1)[0]["argv"] == [
        "sleep",
        "1000",
    ]


async def test_the_other_session_and_the_sprite_are_untouched(client: Client, emulator: EmulatorProcess) -> None:
    killed, other = (emulator.start_session("my-sprite", "sleep", "1000") for _ in range(2))
    await kill(client, killed["id"], signal="SIGKILL")
    assert [session["id"] for session in emulator.list_sessions("my-sprite")] == [other["id"]]
    assert emulator.sprite("my-sprite")["true_status"] == "running"


async def test_the_list_may_trail_by_switch(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(list_trail_seconds=0.2)
    emulator.stop_clock()
    session = emulator.start_session("my-sprite", "sleep", "1000")
    await kill(client, session["id"], signal="SIGKILL")
    assert [listed["id"] for listed in emulator.list_sessions("my-sprite")] == [session["id"]]
    emulator.advance_clock(0.2)
    assert emulator.list_sessions("my-sprite") == []


async def test_killing_the_first_process_from_outside_is_a_cold_stop(client: Client, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sleep", "1000")
    host_pid = emulator.processes("my-sprite")[0]["host_pid"]
    os.kill(read_parent(host_pid), signal.SIGKILL)
    wait_until(lambda: emulator.sprite("my-sprite")["true_status"], lambda status: status == "cold")
    assert emulator.list_sessions("my-sprite") == []

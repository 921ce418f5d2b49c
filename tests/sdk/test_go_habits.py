"""What a client with the habits of the official Go SDK can do with the emulator, and what it sends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp
import pytest

from tests.lab.emulator.talking import wait_until
from tests.lab.watching import until
from tests.sdk.go_habits import Command, GoHabits, Refused, is_active
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

QUICK = timedelta(seconds=0.05)
UNTIL_TOUCHED = ("sh", "-c", "until [ -e go ]; do sleep 0.05; done; echo done")


def touch(emulator: EmulatorProcess) -> None:
    """Let it go."""
    (Path(emulator.sprite("my-sprite")["home"]) / "go").touch()


async def wait_touched_when(is_true: Callable[[], bool], command: Command, emulator: EmulatorProcess) -> int:
    """Wait for the end of a command as its client does, let it go once something is true, and give its exit code."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(command.wait())
        await until(is_true)
        touch(emulator)
    return waiting.result()


@pytest.fixture
async def client(emulator: EmulatorProcess) -> AsyncIterator[GoHabits]:
    async with aiohttp.ClientSession() as http:
        yield GoHabits(emulator.url, emulator.token, http)


@pytest.fixture
async def pinging(emulator: EmulatorProcess) -> AsyncIterator[GoHabits]:
    """One whose fifteen seconds pass at once."""
    async with aiohttp.ClientSession() as http:
        yield GoHabits(emulator.url, emulator.token, http, ping_every=QUICK)


def sent(emulator: EmulatorProcess, route: str) -> list[list[tuple[str, str]]]:
    """The queries of all requests of a route."""
    return [parse_qsl(entry["query"], keep_blank_values=True) for entry in emulator.requests(route=route)]


def start_reader(emulator: EmulatorProcess, *, tty: bool) -> str:
    """Start a session that has written a line and waits for another."""
    script = "echo before; read line; echo got $line; exit 5"
    body = {"argv": ["sh", "-c", script], "tty": tty, "stdin": True, "max_run_after_disconnect": "0"}
    session: str = emulator.call("POST", "/_lab/sprites/my-sprite/sessions", body)["sessions"][0]["id"]
    wait_until(lambda: emulator.sessions("my-sprite")[0]["last_activity"], bool)
    return session


def clients(emulator: EmulatorProcess) -> int:
    return int(emulator.sessions("my-sprite")[0]["clients"])


# --- sprites ----------------------------------------------------------------------------------------------------------


async def test_it_creates_changes_and_deletes_a_sprite(client: GoHabits, emulator: EmulatorProcess) -> None:
    emulator.call("PUT", "/v1/sprites/my-sprite", {"labels": ["blue"]})
    created = await client.create("another")
    assert (await client.get("another"))["id"] == created["id"]
    assert (await client.clear_labels("my-sprite")).get("labels", []) == []
    await client.delete("another")
    with pytest.raises(Refused, match="404"):
        await client.get("another")


async def test_it_asks_for_a_hundred_sprites_and_takes_fewer(client: GoHabits, emulator: EmulatorProcess) -> None:
    emulator.create_sprites(prefix="many-", count=120)
    found, counts = await client.list_all("many-")
    assert [sprite["name"] for sprite in found] == [f"many-{n:04d}" for n in range(120)]
    assert counts["cold"] == 121
    assert [("max_results", "100") in query for query in sent(emulator, "sprites.list")] == [True] * 3


async def test_it_comes_to_the_end_of_pages_that_never_say_so(client: GoHabits, emulator: EmulatorProcess) -> None:
    emulator.switch(has_more="stuck", page_ceiling=100)
    emulator.create_sprites(prefix="many-", count=120)
    found, _ = await client.list_all("many-")
    assert len(found) == 120
    assert len(sent(emulator, "sprites.list")) == 2


# --- commands ---------------------------------------------------------------------------------------------------------


async def test_it_runs_a_command_and_ends_its_input_at_once(client: GoHabits, emulator: EmulatorProcess) -> None:
    async with client.start("my-sprite", "sh", "-c", "cat; echo out; echo err >&2; exit 7") as command:
        assert await command.wait() == 7
    assert (command.stdout, command.stderr) == (b"out\n", b"err\n")
    assert sent(emulator, "exec.create") == [
        [
            ("cmd", "sh"),
            ("cmd", "-c"),
            ("cmd", "cat; echo out; echo err >&2; exit 7"),
            ("path", "sh"),
            ("stdin", "false"),
        ]
    ]


async def test_it_types_into_a_command_that_takes_input(client: GoHabits) -> None:
    async with client.start("my-sprite", "sh", "-c", "read line; echo got $line", typing=True) as command:
        await command.write(b"hello\n")
        assert await command.wait() == 0
    assert command.stdout == b"got hello\n"


async def test_it_tells_its_size_directly_after_the_connect(client: GoHabits) -> None:
    script = "stty size; read line; stty size"
    async with client.start("my-sprite", "sh", "-c", script, size=(30, 100), typing=True) as command:
        await command.read_until(b"30 100\r\n")
        await command.resize(31, 101)
        await command.write(b"\n")
        assert await command.wait() == 0
    assert command.stdout.endswith(b"31 101\r\n")


async def test_it_loses_what_comes_after_an_early_exit(client: GoHabits, emulator: EmulatorProcess) -> None:
    """The careless half of its habits: output that a client of ours has to wait for."""
    emulator.switch(text_exit="early")
    # It never comes while we listen.
    script = "echo soon; read line; (until [ -e go ]; do sleep 0.1; done; echo late) & exit 3"
    async with client.start("my-sprite", "sh", "-c", script, typing=True) as command:
        await command.read_until(b"soon\n")
        await command.write(b"\n")
        assert await command.wait() == 3
    assert command.stdout == b"soon\n"


@pytest.mark.parametrize(("close", "code"), [("1000", 0), ("drop", -1)])
async def test_it_reads_the_end_of_a_terminal_from_the_close_where_no_exit_is_told(
    client: GoHabits, emulator: EmulatorProcess, close: str, code: int
) -> None:
    emulator.switch(tty_close=close, tty_text_exit=False)
    async with client.start("my-sprite", "sh", "-c", "exit 5", size=(24, 80)) as command:
        assert await command.wait() == code


async def test_it_ignores_a_session_info_whose_id_is_a_number(client: GoHabits, emulator: EmulatorProcess) -> None:
    emulator.switch(session_ids="integer", noise_frames=True)
    async with client.start("my-sprite", "echo", "hi") as command:
        assert await command.wait() == 0
    assert command.session is None
    assert command.stdout == b"hi\n"


async def test_it_probes_for_control_connections_once_and_does_without(
    client: GoHabits, emulator: EmulatorProcess
) -> None:
    for _ in range(2):
        async with client.start("my-sprite", "true") as command:
            assert await command.wait() == 0
    assert client.uses_control is False
    probes = [entry for entry in emulator.requests() if entry["path"].endswith("/control")]
    assert [(entry["status"], entry["user_agent"]) for entry in probes] == [(404, "sprites-go-sdk/1.0")]


# --- keepalive --------------------------------------------------------------------------------------------------------


async def test_every_ping_of_its_is_answered(pinging: GoHabits, emulator: EmulatorProcess) -> None:
    async with pinging.start("my-sprite", *UNTIL_TOUCHED) as command:
        assert await wait_touched_when(lambda: command.pongs >= 3, command, emulator) == 0


async def test_a_server_that_pings_gets_no_pong_and_keeps_the_socket(
    client: GoHabits, emulator: EmulatorProcess
) -> None:
    emulator.switch(server_ping_seconds=0.05)
    async with client.start("my-sprite", *UNTIL_TOUCHED) as command:
        assert await wait_touched_when(lambda: command.pings_left_unanswered >= 3, command, emulator) == 0
    assert command.stdout == b"done\n"


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_it_attaches_by_the_path_where_the_version_has_it(client: GoHabits, emulator: EmulatorProcess) -> None:
    session = start_reader(emulator, tty=True)
    async with client.attach("my-sprite", session, size=(30, 100)) as command:
        await command.read_until(b"before\r\n")
        await command.write(b"now\n")
        assert await command.wait() == 5
    assert command.stdout == b"before\r\nnow\r\ngot now\r\n"
    (attached,) = emulator.requests(route="exec.attach")
    assert attached["path"] == f"/v1/sprites/my-sprite/exec/{session}"
    assert [entry["method"] for entry in emulator.requests(route="exec.list")] == ["HEAD"]


async def test_it_attaches_by_the_id_where_the_version_is_unknown(client: GoHabits, emulator: EmulatorProcess) -> None:
    session = start_reader(emulator, tty=True)
    emulator.arm_fault({"kind": "status", "status": 404}, route="exec.list", times=1)
    async with client.attach("my-sprite", session) as command:
        await command.read_until(b"before\r\n")
        await command.write(b"now\n")
        assert await command.wait() == 5
    assert sent(emulator, "exec.attach") == [
        [("id", session), ("stdin", "true"), ("tty", "true"), ("rows", "24"), ("cols", "80")]
    ]


async def test_it_tries_the_id_where_the_path_is_not_found(client: GoHabits, emulator: EmulatorProcess) -> None:
    session = start_reader(emulator, tty=True)
    emulator.arm_fault({"kind": "status", "status": 404}, route="exec.attach", times=1)
    async with client.attach("my-sprite", session) as command:
        await command.read_until(b"before\r\n")
    assert [(entry["path"], entry["status"]) for entry in emulator.requests(route="exec.attach")] == [
        (f"/v1/sprites/my-sprite/exec/{session}", 404),
        ("/v1/sprites/my-sprite/exec", 101),
    ]


async def test_what_it_forces_to_be_a_terminal_stays_what_it_is(client: GoHabits, emulator: EmulatorProcess) -> None:
    session = start_reader(emulator, tty=False)
    emulator.arm_fault({"kind": "status", "status": 404}, route="exec.attach", times=1)
    async with client.attach("my-sprite", session) as command:
        await command.read_until(b"before\n")
        assert command.tty is False
        await command.write(b"now\n")
        assert await command.wait() == 5
    assert command.stdout == b"before\ngot now\n"


async def test_a_terminal_lives_on_when_it_leaves(client: GoHabits, emulator: EmulatorProcess) -> None:
    async with client.start("my-sprite", "sleep", "1000", size=(24, 80)):
        assert await asyncio.to_thread(wait_until, lambda: clients(emulator), bool) == 1
    assert await asyncio.to_thread(wait_until, lambda: clients(emulator), lambda number: number == 0) == 0
    emulator.advance_clock(3600)
    assert len(emulator.sessions("my-sprite")) == 1


async def test_it_takes_a_session_for_active_only_with_both_signs(client: GoHabits, emulator: EmulatorProcess) -> None:
    session = start_reader(emulator, tty=True)
    now = datetime.fromisoformat(emulator.call("GET", "/_lab/clock")["now"])
    (alone,) = await client.list_sessions("my-sprite")
    assert not is_active(alone, now)
    async with client.attach("my-sprite", session, size=(24, 80)):
        await asyncio.to_thread(wait_until, lambda: clients(emulator), bool)
        (watched,) = await client.list_sessions("my-sprite")
        assert is_active(watched, now)
        assert not is_active(watched, now + timedelta(minutes=6))
        emulator.switch(list_last_activity=False)
        (silent,) = await client.list_sessions("my-sprite")
        assert not is_active(silent, now)


async def test_an_envelope_without_sessions_is_an_empty_list(client: GoHabits, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.arm_fault({"kind": "list", "shape": "no-sessions"}, route="exec.list")
    assert await client.list_sessions("my-sprite") == []


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "KILL", "QUIT", "USR1", "USR2"])
async def test_it_sends_short_signal_names_over_a_socket_that_knows_them(
    client: GoHabits, emulator: EmulatorProcess, name: str
) -> None:
    async with client.start("my-sprite", "sleep", "1000", size=(24, 80)) as command:
        assert command.capabilities == {"signal"}
        await command.signal(name)
        assert await command.wait() > 128
    assert emulator.processes("my-sprite") == []


async def test_it_kills_without_any_grace_and_reads_no_stream(client: GoHabits, emulator: EmulatorProcess) -> None:
    emulator.switch(signal_frames=False)
    script = "trap '' TERM; echo up; while :; do sleep 1; done"
    async with client.start("my-sprite", "sh", "-c", script, size=(24, 80)) as command:
        assert "signal" not in command.capabilities
        await command.read_until(b"up")
        assert command.session is not None
        assert await client.kill("my-sprite", command.session, "TERM") == 200
        await command.wait()
    assert sent(emulator, "exec.kill") == [[("signal", "TERM"), ("timeout", "0s")]]
    assert await asyncio.to_thread(wait_until, lambda: emulator.processes("my-sprite"), lambda found: not found) == []


async def test_it_takes_410_for_success_and_404_for_a_failure(client: GoHabits, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "true")["id"]
    wait_until(lambda: emulator.sessions("my-sprite"), lambda found: not found)
    emulator.switch(kill_exited="410")
    assert await client.kill("my-sprite", session, "KILL") == 410
    emulator.switch(kill_exited="404")
    with pytest.raises(Refused) as refused:
        await client.kill("my-sprite", session, "KILL")
    assert refused.value.status == 404


async def test_it_takes_an_error_line_that_it_never_reads_for_success(
    client: GoHabits, emulator: EmulatorProcess
) -> None:
    """A habit that our own client must not have."""
    emulator.switch(kill_error="undone")
    session: Any = emulator.start_session("my-sprite", "sleep", "1000")
    assert await client.kill("my-sprite", session["id"], "KILL") == 200
    assert len(emulator.processes("my-sprite")) == 1

"""Running, warm and cold with real processes. Source: sprites-api.md 3.8 and 8."""

import asyncio
import signal
import time
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from controller.lab.emulator import Emulator
from controller.lab.emulator.switches import KillReach
from controller.lab.emulator.world import Command
from tests.lab.emulator.talking import Client, wait_until
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

COUNTER = ("sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.01; done")


def exists(path: str) -> bool:
    return Path(path).exists()


def read_count(emulator: EmulatorProcess) -> int:
    path = Path(emulator.sprite("my-sprite")["home"]) / "count"
    return int(path.read_text() or 0) if path.exists() else 0


async def test_a_new_sprite_is_cold_and_has_no_processes(client: Client, emulator: EmulatorProcess) -> None:
    assert emulator.sprite("my-sprite")["true_status"] == "cold"
    assert emulator.processes("my-sprite") == []


async def test_warm_stops_the_processes_and_a_wake_continues_the_same_ones(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.start_session("my-sprite", *COUNTER)
    wait_until(lambda: read_count(emulator), lambda count: count > 3)
    before = emulator.list_sessions("my-sprite")
    emulator.set_state("my-sprite", "warm")
    assert {entry["state"] for entry in emulator.processes("my-sprite")} <= {"T", "Z"}
    frozen_at = read_count(emulator)
    with pytest.raises(AssertionError):
        wait_until_moved(emulator, frozen_at, 0.3)
    emulator.set_state("my-sprite", "running")
    wait_until_moved(emulator, frozen_at, 10)
    after = emulator.list_sessions("my-sprite")
    assert [(s["id"], s["created"]) for s in after] == [(s["id"], s["created"]) for s in before]


def wait_until_moved(emulator: EmulatorProcess, former: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while read_count(emulator) <= former + 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_an_interactive_shell_does_not_notice_a_pause_of_its_job(
    client: Client, emulator: EmulatorProcess
) -> None:
    talk = await client.start("bash", "--norc", "-i", tty="true")
    await talk.say(b"PS1=; sh -c 'until [ -e go ]; do sleep 0.05; done'; echo fin''ished\n")
    wait_until(
        lambda: [process["argv"][:2] for process in emulator.processes("my-sprite")], lambda all_: ["sh", "-c"] in all_
    )
    emulator.set_state("my-sprite", "warm")
    (Path(emulator.sprite("my-sprite")["home"]) / "go").touch()
    talk = await client.attach("2")
    heard = await talk.hear_until(b"finished")
    assert b"Stopped" not in heard


async def test_what_a_user_had_stopped_stays_stopped_after_a_wake(client: Client, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sh", "-c", "sleep 1000 & kill -STOP $!; wait")
    wait_until(lambda: emulator.processes("my-sprite"), lambda found: [e["state"] for e in found] == ["S", "T"])
    emulator.set_state("my-sprite", "warm")
    emulator.set_state("my-sprite", "running")
    wait_until(lambda: emulator.processes("my-sprite"), lambda found: [e["state"] for e in found] == ["S", "T"])


@pytest.mark.parametrize("state", ["warm", "cold"])
async def test_every_socket_drops_at_a_pause_without_a_close_frame(
    client: Client, emulator: EmulatorProcess, state: str
) -> None:
    talks = [await client.start("sleep", "1000", tty="true"), await client.start("sleep", "1000")]
    for talk in talks:
        await talk.hear()
    emulator.set_state("my-sprite", state)
    for talk in talks:
        heard = await talk.hear_all()
        assert (heard.frames, heard.close_code) == ([], 1006)


async def test_a_frozen_process_that_reads_nothing_does_not_keep_its_socket(
    client: Client, emulator: EmulatorProcess
) -> None:
    talk = await client.start("sleep", "1000", stdin="true")
    await talk.hear()
    for _ in range(20):
        await talk.say(b"\x00" + b"x" * 200_000)
    emulator.set_state("my-sprite", "warm")
    assert (await talk.hear_all()).close_code == 1006
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)


async def test_a_session_without_terminal_does_not_run_out_of_time_while_frozen(
    client: Client, emulator: EmulatorProcess
) -> None:
    talk = await client.start("sleep", "1000")
    await talk.hear()
    emulator.set_state("my-sprite", "warm")
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
    emulator.advance_clock(60)
    assert len(emulator.list_sessions("my-sprite")) == 1
    emulator.advance_clock(11)
    wait_until(lambda: emulator.sessions("my-sprite"), lambda sessions: sessions == [])


async def test_cold_ends_everything_and_ids_come_again(client: Client, emulator: EmulatorProcess) -> None:
    first = emulator.start_session("my-sprite", "sh", "-c", "setsid sleep 1000 & sleep 2000")
    hosts = [entry["host_pid"] for entry in wait_until(lambda: emulator.processes("my-sprite"), lambda p: len(p) == 3)]
    emulator.set_state("my-sprite", "cold")
    assert not any(exists(f"/proc/{host}") for host in hosts)
    assert emulator.list_sessions("my-sprite") == []
    second = emulator.start_session("my-sprite", "sleep", "1000")
    assert (first["id"], second["id"]) == ("2", "2")
    assert first["created"] != second["created"]


async def test_a_timer_of_before_a_cold_stop_does_not_reach_a_successor_with_the_same_id(
    client: Client, emulator: EmulatorProcess
) -> None:
    talk = await client.start("sleep", "1000")
    await talk.hear()
    await talk.leave()
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
    emulator.set_state("my-sprite", "cold")
    emulator.start_session("my-sprite", "sleep", "2000")
    emulator.advance_clock(60)
    assert [session["command"] for session in emulator.list_sessions("my-sprite")] == ["/usr/bin/sleep 2000"]


async def test_a_signal_for_a_session_of_before_a_cold_stop_reaches_nobody() -> None:
    async with Emulator() as emulator:
        organization = emulator.context.list_organizations()[0]
        sprite = await emulator.context.create_sprite(organization, "my-sprite")
        command = Command(("sleep", "1000"), "sleep", "/tmp", {}, tty=False, stdin=False)
        former = await sprite.start_session(command, run_on=timedelta(), cause="test")
        await sprite.chill()
        successor = await sprite.start_session(command, run_on=timedelta(), cause="test")
        assert (former.id, former.ended, successor.id) == ("2", True, "2")
        assert await sprite.signal(former, signal.SIGKILL, KillReach.FOREGROUND) == ()
        assert await sprite.signal(successor, signal.SIGKILL, KillReach.FOREGROUND) == (-2,)
        async with asyncio.timeout(30):
            assert await successor.process.exited == 137


async def test_the_disk_survives_cold_and_shared_memory_does_not(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    write = "echo kept > note; echo kept > /tmp/note; echo lost > /dev/shm/note"
    await (await client.start("sh", "-c", write)).hear_all()
    emulator.set_state("my-sprite", "cold")
    heard = await (await client.start("sh", "-c", "cat note /tmp/note; ls /dev/shm")).hear_all()
    assert heard.stream(1) == b"kept\nkept\n"


async def test_two_sprites_share_nothing(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    emulator.create_sprite("neighbour")
    mine = await client.start("sh", "-c", "touch here /tmp/here /dev/shm/here; ls -d here /tmp/here /dev/shm/here")
    assert len((await mine.hear_all()).stream(1).split()) == 3
    heard = await (await client.start("sh", "-c", "ls . /tmp /dev/shm; ps -eo comm=", sprite="neighbour")).hear_all()
    assert b"here" not in heard.stream(1)
    assert heard.stream(1).count(b"ps") == 1


async def test_a_deleted_sprite_leaves_no_process_and_no_file(client: Client, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sleep", "1000")
    shown, host = emulator.sprite("my-sprite"), emulator.processes("my-sprite")[0]["host_pid"]
    emulator.delete_sprite("my-sprite")
    assert not exists(shown["home"])
    assert not exists(f"/proc/{host}")
    created = emulator.create_sprite("my-sprite")
    assert created["id"] != shown["id"]


async def test_the_system_around_a_sprite_cannot_be_written(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    heard = await (await client.start("sh", "-c", "touch /usr/x /etc/x /var/x /root/x /sys/x /x")).hear_all()
    assert heard.stream(2).count(b"Read-only file system") >= 4


async def test_a_silent_sprite_becomes_warm_and_later_cold(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(idle_seconds=30, cold_after_seconds=60)
    emulator.stop_clock()
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.advance_clock(29)
    assert emulator.sprite("my-sprite")["true_status"] == "running"
    emulator.advance_clock(2)
    assert emulator.sprite("my-sprite")["true_status"] == "warm"
    emulator.advance_clock(60)
    assert emulator.sprite("my-sprite")["true_status"] == "cold"
    assert emulator.sprite("my-sprite")["sessions"] == []


async def test_output_keeps_a_sprite_awake(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(idle_seconds=30)
    emulator.start_session("my-sprite", "sh", "-c", "while :; do echo tick; sleep 0.02; done")
    seen: list[str] = [emulator.sessions("my-sprite")[0]["last_activity"]]
    for _ in range(3):
        now = wait_until(lambda: emulator.sessions("my-sprite")[0]["last_activity"], lambda now: now != seen[-1])
        seen.append(now)
        emulator.advance_clock(20)
    assert emulator.sprite("my-sprite")["true_status"] == "running"


async def test_an_attached_client_keeps_a_sprite_awake_until_it_leaves(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.switch(idle_seconds=30)
    talk = await client.start("sleep", "1000", tty="true")
    await talk.hear()
    emulator.advance_clock(1000)
    assert emulator.sprite("my-sprite")["true_status"] == "running"
    await talk.leave()
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
    emulator.advance_clock(31)
    assert emulator.sprite("my-sprite")["true_status"] == "warm"


async def test_a_task_keeps_a_sprite_awake_until_it_expires(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(idle_seconds=30, linger_seconds=0)
    emulator.stop_clock()
    put = "sprite-env curl -s -X PUT -d '{\"expire\":300}' /v1/tasks/hold"
    await (await client.start("sh", "-c", put)).hear_all()
    wait_until(lambda: emulator.sessions("my-sprite"), lambda sessions: sessions == [])
    emulator.advance_clock(299)
    assert emulator.sprite("my-sprite")["true_status"] == "running"
    emulator.advance_clock(32)
    assert emulator.sprite("my-sprite")["true_status"] == "warm"
    assert emulator.tasks("my-sprite") == []


async def test_metadata_never_wakes_and_the_session_list_does_by_switch(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.set_state("my-sprite", "warm")
    for path in ("/v1/sprites/my-sprite", "/v1/sprites", "/v1/sprites/my-sprite/check"):
        assert (await client.ask("GET", path))[0] == 200
    emulator.switch(list_wakes=False)
    assert len(emulator.list_sessions("my-sprite")) == 1
    assert emulator.sprite("my-sprite")["true_status"] == "warm"
    emulator.switch(list_wakes=True)
    emulator.list_sessions("my-sprite")
    assert emulator.sprite("my-sprite")["true_status"] == "running"
    assert emulator.sprite("my-sprite")["wakes"] == {"total": 2, "by_cause": {"lab": 1, "exec.list": 1}}


async def test_kill_and_attach_wake_a_warm_sprite(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")
    emulator.set_state("my-sprite", "warm")
    talk = await client.attach(session["id"])
    await talk.hear()
    emulator.set_state("my-sprite", "warm")
    path = f"/v1/sprites/my-sprite/exec/{session['id']}/kill?signal=SIGTERM"
    status, text, _ = await client.ask("POST", path)
    assert (status, '"exited"' in text) == (200, True)
    assert emulator.sprite("my-sprite")["wakes"]["by_cause"] == {"lab": 1, "exec.attach": 1, "exec.kill": 1}


async def test_a_wake_takes_as_long_as_is_set(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(wake_cold_seconds=2)
    emulator.stop_clock()
    starting = asyncio.ensure_future(client.ask("GET", "/v1/sprites/my-sprite/exec"))  # noqa: TID251, RUF100 - awaited below
    await asyncio.to_thread(emulator.requests, route="exec.list", at_least=1)
    assert emulator.sprite("my-sprite")["true_status"] == "cold"
    emulator.advance_clock(2)
    assert (await starting)[0] == 200


async def test_the_shown_status_may_lag(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(status_lag_seconds=60)
    emulator.set_state("my-sprite", "running")
    shown = emulator.sprite("my-sprite")
    assert (shown["status"], shown["true_status"]) == ("cold", "running")
    emulator.advance_clock(60)
    assert emulator.sprite("my-sprite")["status"] == "running"


async def test_the_first_socket_on_a_cold_sprite_may_drop(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(drop_first_socket_on_cold=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.start("sleep", "1000")
    assert emulator.sessions("my-sprite") == []
    await (await client.start("sleep", "1000")).hear()


@pytest.mark.parametrize("status", ["warm", "running"])
async def test_a_new_sprite_may_be_something_else(emulator: EmulatorProcess, status: str) -> None:
    emulator.switch(created_status=status)
    assert emulator.create_sprite("another")["status"] == status

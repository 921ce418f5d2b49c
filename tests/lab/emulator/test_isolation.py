"""What a session is in each kind of isolation, and that nothing outlives the emulator."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from controller.lab.emulator import Emulator, EmulatorSettings, Isolation, NamespacesMissing
from tests.lab.emulator.talking import Client, wait_until
from tests.lab.watching import is_alive
from tests.support.emulator import AGENTTERMINAL, EmulatorProcess, Lab, LabRefused

pytestmark = pytest.mark.sprites


def find_processes(words: str) -> list[int]:
    """Every process of this machine whose command line has these words."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if words in (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    found.append(int(path.name))
    return [pid for pid in found if is_alive(pid)]


def run_command(*options: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command that is expected to fail at once."""
    command = [AGENTTERMINAL, "sprites-emulator", *options]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=False)


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture(params=["--user-namespace", "--plain", "--records"])
def other(request: pytest.FixtureRequest) -> Iterator[EmulatorProcess]:
    with EmulatorProcess(request.param, "--switch", "linger_seconds=0") as process:
        yield process


async def test_each_kind_starts_lists_pauses_and_kills_alike(other: EmulatorProcess) -> None:
    other.create_sprite("my-sprite")
    first, second = (other.start_session("my-sprite", "sleep", "1000", tty=tty) for tty in (True, False))
    listed = other.list_sessions("my-sprite")
    assert [(s["id"], s["command"], s["tty"]) for s in listed] == [
        (first["id"], "/usr/bin/sleep 1000", True),
        (second["id"], "/usr/bin/sleep 1000", False),
    ]
    other.set_state("my-sprite", "warm")
    assert other.list_sessions("my-sprite")[0]["id"] == first["id"]
    events = other.call("POST", f"/v1/sprites/my-sprite/exec/{second['id']}/kill", signal="SIGKILL")
    assert '"type":"complete","exit_code":137' in str(events)
    assert [s["id"] for s in other.list_sessions("my-sprite")] == [first["id"]]
    hosts = [entry["host_pid"] for entry in other.processes("my-sprite")]
    other.set_state("my-sprite", "cold")
    assert not any(is_alive(host) for host in hosts if host is not None)
    assert other.list_sessions("my-sprite") == []
    third = other.start_session("my-sprite", "sleep", "1000")
    assert (third["id"] == first["id"]) is (other.isolation != "plain")


async def test_each_kind_speaks_over_a_socket(other: EmulatorProcess) -> None:
    other.create_sprite("my-sprite")
    async with aiohttp.ClientSession() as http:
        client = Client(other.url, other.token, http)
        talk = await client.start("sh", "-c", "cat > script; cat script", stdin="true")
        await talk.say(b"\x00hello")
        await talk.say(b"\x04")
        heard = await talk.hear_all()
        assert heard.frames[-1] == b"\x03\x00"
        assert heard.stream(1) == (b"" if other.isolation == "records" else b"hello")


async def test_a_record_without_input_ends_at_once_and_says_what_it_is_told_to() -> None:
    with EmulatorProcess("--records", "--switch", "linger_seconds=0", "--switch", "record_output=200") as process:
        process.create_sprite("my-sprite")
        async with aiohttp.ClientSession() as http:
            heard = await (await Client(process.url, process.token, http).start("curl")).hear_all()
        assert (heard.stream(1), heard.frames[-1]) == (b"200", b"\x03\x00")
        assert process.sessions("my-sprite") == []


async def test_in_a_user_namespace_the_tasks_answer_inside(other: EmulatorProcess) -> None:
    if other.isolation != "user":
        return
    other.create_sprite("my-sprite")
    async with aiohttp.ClientSession() as http:
        client = Client(other.url, other.token, http)
        put = "sprite-env curl -s -X PUT -d '{\"expire\":60}' /v1/tasks/hold; ls -a / | grep -x .sprite; echo $HOME"
        heard = await (await client.start("sh", "-c", put)).hear_all()
        assert heard.stream(1).endswith(b".sprite\n/home/sprite\n")
    assert [task["name"] for task in other.tasks("my-sprite")] == ["hold"]


async def test_in_plain_mode_the_socket_is_named_in_the_environment() -> None:
    with EmulatorProcess("--plain", "--switch", "linger_seconds=0") as process:
        process.create_sprite("my-sprite")
        async with aiohttp.ClientSession() as http:
            client = Client(process.url, process.token, http)
            put = "sprite-env curl -s -X PUT -d '{\"expire\":60}' /v1/tasks/hold"
            await (await client.start("sh", "-c", put)).hear_all()
        assert [task["name"] for task in process.tasks("my-sprite")] == ["hold"]


@pytest.mark.parametrize("option", [(), ("--user-namespace",), ("--plain",)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_however_the_emulator_ends_nothing_inside_lives_on_and_no_file_stays(
    option: tuple[str, ...], number: signal.Signals
) -> None:
    process = EmulatorProcess(*option)
    process.create_sprite("my-sprite")
    process.start_session("my-sprite", "sh", "-c", "trap '' TERM HUP INT; setsid sleep 1000 & sleep 2000; sleep 3000")
    process.start_session("my-sprite", "sleep", "1000")
    commands = [["sleep", seconds] for seconds in ("1000", "1000", "2000")]
    wait_until(
        lambda: sorted(entry["argv"] for entry in process.processes("my-sprite") if entry["argv"][:1] == ["sleep"]),
        lambda found: found == commands,
    )
    process.set_state("my-sprite", "warm")
    home = Path(process.sprite("my-sprite")["home"])
    inside = [entry["host_pid"] for entry in process.processes("my-sprite")]
    assert len(inside) >= 4
    os.kill(process.pid, number)
    process.process.communicate(timeout=30)
    assert process.process.returncode == (-9 if number is signal.SIGKILL else 0)
    wait_until(lambda: [pid for pid in inside if is_alive(pid)], lambda alive: alive == [])
    wait_until(lambda: find_processes(str(home.parent.parent)), lambda found: found == [])
    wait_until(home.parent.parent.exists, lambda exists: not exists)


def test_a_process_that_breeds_is_frozen_and_ended(emulator: EmulatorProcess) -> None:
    emulator.create_sprite("my-sprite")
    emulator.start_session("my-sprite", "sh", "-c", "while :; do sh -c 'sleep 0.3; sleep 0.3' & sleep 0.02; done")
    wait_until(lambda: emulator.processes("my-sprite"), lambda found: len(found) > 4)
    emulator.set_state("my-sprite", "warm")
    assert {entry["state"] for entry in emulator.processes("my-sprite")} <= {"T", "Z"}
    emulator.set_state("my-sprite", "cold")
    assert emulator.processes("my-sprite") == []


def test_without_namespaces_the_command_says_the_ways_out_in_one_sentence() -> None:
    done = run_command(env={"PATH": "/nowhere"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "gives the emulator no namespaces (unshare (of util-linux) is not on PATH.)" in done.stderr
    assert "--plain" in done.stderr
    assert "Traceback" not in done.stderr


async def test_what_was_asked_for_by_name_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NamespacesMissing, match="--plain"):
        await Emulator(EmulatorSettings(isolation=Isolation.USER)).start()


async def test_the_emulator_runs_in_a_loop_of_ours() -> None:
    async with Emulator(EmulatorSettings(tokens=("mine/1/a/b",))) as emulator, aiohttp.ClientSession() as http:
        assert emulator.token == "mine/1/a/b"
        client = Client(emulator.url, emulator.token, http)
        assert (await client.ask("POST", "/v1/sprites", json={"name": "my-sprite"}))[0] == 201
        talk = await client.start("echo", "hi")
        await talk.hear()
        assert await talk.hear() == b"\x01hi\n"
    await emulator.stop()


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cancelled = 0
    for turns in range(100):
        emulator = Emulator(EmulatorSettings(isolation=Isolation.RECORDS))
        async with asyncio.TaskGroup() as group:
            starting = group.create_task(emulator.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            has_started = starting.done()
            starting.cancel()
        if has_started:
            await emulator.stop()
            break
        cancelled += 1
        assert list_names(tmp_path) == []
    assert cancelled >= 3


def test_two_emulators_do_not_know_each_other(emulator: EmulatorProcess) -> None:
    emulator.create_sprite("my-sprite")
    with EmulatorProcess("--token", emulator.token) as second, pytest.raises(LabRefused):
        Lab(second.url, emulator.token).list_sessions("my-sprite")


def test_a_command_too_long_for_the_kernel_is_refused(emulator: EmulatorProcess) -> None:
    emulator.create_sprite("my-sprite")
    with pytest.raises(LabRefused, match="too long"):
        emulator.start_session("my-sprite", "echo", "x" * 200_000)
    with pytest.raises(LabRefused, match="too long"):
        emulator.start_session("my-sprite", "echo", *("x" * 100_000 for _ in range(4)))
    assert emulator.start_session("my-sprite", "sleep", "1000")["id"] in ("2", "3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--switch", "list_wakes=3", "--switch", "no_such=1"], ["switches.list_wakes = 3", "switches.no_such = 1"]),
        (["--switch", "tty_close"], ["name=value"]),
        (["--plain", "--records"], ["exclude each other"]),
        (["--idle-seconds", "-1"], ["--idle-seconds"]),
        (["--switch", "tty_close=1001"], ["switches.tty_close = '1001'", "'drop' or '1000'"]),
    ],
)
def test_bad_settings_are_all_named_and_the_command_ends_with_2(options: list[str], words: list[str]) -> None:
    done = run_command(*options)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_settings_of_the_command_reach_the_emulator() -> None:
    options = ("--idle-seconds", "30", "--cold-after-seconds", "60", "--switch", "tty_close=1000", "--records")
    with EmulatorProcess(*options) as process:
        shown = process.call("GET", "/_lab/")
    assert shown["isolation"] == "records"
    assert shown["switches"] | {"idle_seconds": 30, "cold_after_seconds": 60, "tty_close": "1000"} == shown["switches"]


def test_a_taken_port_is_said_in_one_sentence(emulator: EmulatorProcess) -> None:
    port = emulator.url.rpartition(":")[2]
    done = run_command("--port", port)
    assert done.returncode == 1
    assert "address already in use" in done.stderr.lower()
    assert done.stderr.count("\n") == 1


def test_the_welcome_can_be_read_by_a_shell() -> None:
    process = subprocess.Popen(
        [AGENTTERMINAL, "sprites-emulator", "--token", "acme/1/a/b"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
    assert lines[1].startswith("export SPRITES_API_URL=http://127.0.0.1:")
    assert lines[2] == "export SPRITE_TOKEN=acme/1/a/b\n"

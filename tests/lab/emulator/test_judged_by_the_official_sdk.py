"""
What the official Python SDK, unchanged, can do with the emulator.

The SDK is the one client whose behaviour is published: where it is content, the frames are right.
"""

import asyncio
import io
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
import sprites
from sprites.exceptions import APIError, AuthenticationError, NetworkError, NotFoundError, SpriteError
from sprites.exec import Cmd, run
from sprites.session import kill_session
from sprites.types import URLSettings
from sprites.websocket import WSCommand

from tests.lab.emulator.talking import wait_until
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites


@pytest.fixture
def client(emulator: EmulatorProcess) -> Iterator[sprites.SpritesClient]:
    with sprites.SpritesClient(emulator.token, base_url=emulator.url) as client:
        yield client


@pytest.fixture
def sprite(client: sprites.SpritesClient) -> sprites.Sprite:
    return client.create_sprite("my-sprite")


def test_it_creates_a_sprite_and_finds_it_again(client: sprites.SpritesClient) -> None:
    created = client.create_sprite("my-sprite", labels=["blue"])
    found = client.get_sprite("my-sprite")
    assert created.id is not None
    assert created.id.startswith("sprite-")
    assert (found.id, found.labels, found.status, found.organization_name) == (created.id, ["blue"], "cold", "acme")
    assert found.created_at is not None


def test_it_lists_more_sprites_than_fit_a_page(client: sprites.SpritesClient, emulator: EmulatorProcess) -> None:
    emulator.create_sprites(prefix="many-", count=120)
    emulator.create_sprites("another")
    assert [found.name for found in client.list_all_sprites(prefix="many-")] == [f"many-{n:04d}" for n in range(120)]
    pages = emulator.requests(route="sprites.list")
    assert [("max_results", "100") in parse_qsl(page["query"]) for page in pages] == [True] * 3


def test_it_changes_a_sprite(client: sprites.SpritesClient, sprite: sprites.Sprite) -> None:
    sprite.update_url_settings(URLSettings(auth="public"))
    sprite.update(labels=["green"])
    found = client.get_sprite("my-sprite")
    assert found.url_settings is not None
    assert (found.url_settings.auth, found.labels) == ("public", ["green"])


def test_what_the_emulator_does_not_serve_is_told_as_missing(sprite: sprites.Sprite) -> None:
    with pytest.raises(SpriteError):
        sprite.upgrade()
    with pytest.raises(SpriteError):
        sprite.list_services()


def test_it_deletes_a_sprite(client: sprites.SpritesClient, sprite: sprites.Sprite) -> None:
    sprite.delete()
    with pytest.raises(NotFoundError):
        client.get_sprite("my-sprite")


def test_a_wrong_token_is_refused(emulator: EmulatorProcess) -> None:
    with sprites.SpritesClient("acme/1/aa/wrong", base_url=emulator.url) as client, pytest.raises(AuthenticationError):
        client.get_sprite("my-sprite")


def test_it_runs_a_command_and_reads_its_output(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    assert sprite.command("sh", "-c", "echo one; echo two").output() == b"one\ntwo\n"
    (create,) = emulator.requests(route="exec.create")
    words = [("cmd", "sh"), ("cmd", "-c"), ("cmd", "echo one; echo two"), ("path", "sh"), ("stdin", "true")]
    assert parse_qsl(create["query"]) == words
    assert create["user_agent"].startswith("sprites-py/")


async def test_its_asynchronous_half_does_the_same(emulator: EmulatorProcess) -> None:
    async with sprites.AsyncSpritesClient(emulator.token, base_url=emulator.url) as client:
        sprite = await client.create_sprite("my-sprite")
        assert await sprite.command("echo", "hi").output() == b"hi\n"
        assert await sprite.list_sessions() == []
        await sprite.delete()


def test_it_stops_reading_at_an_early_exit_and_loses_the_rest(
    sprite: sprites.Sprite, emulator: EmulatorProcess
) -> None:
    """A habit that our own client must not have."""
    emulator.switch(text_exit="early")
    # What the shell itself wrote may be lost as well: the exit is told as soon as it is known.
    # It never comes while we listen.
    late = "echo soon; (until [ -e go ]; do sleep 0.1; done; echo late) &"
    assert b"late" not in sprite.command("sh", "-c", late).output()


def test_it_takes_a_close_without_an_exit_for_a_failure(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    emulator.switch(tty_text_exit=False, tty_close="1000")
    with pytest.raises(NetworkError, match="code=1000"):
        sprite.command("true", tty=True).output()


def test_it_reads_every_field_of_a_limit(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    emulator.switch(sessions_limit=1)
    emulator.start_session("my-sprite", "sleep", "1000")
    with pytest.raises(APIError) as caught:
        sprite.command("echo", "hi").output()
    assert caught.value.status_code == 429
    assert caught.value.is_rate_limit_error()


def test_a_command_that_takes_too_long_is_left_and_not_ended(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    for seconds in (0.5, 5, 25):
        with pytest.raises(TimeoutError):
            sprite.command("sleep", "1000", tty=True, timeout=seconds).output()
        # On a busy machine the time may be over before the command has begun.
        if emulator.sessions("my-sprite"):
            break
    (left,) = wait_until(lambda: emulator.sessions("my-sprite"), lambda found: found[0]["clients"] == 0)
    emulator.advance_clock(3600)
    assert [found["id"] for found in emulator.sessions("my-sprite")] == [left["id"]]


def test_it_sees_the_exit_code_and_stderr_apart_from_stdout(sprite: sprites.Sprite) -> None:
    with pytest.raises(sprites.ExecError) as caught:
        sprite.command("sh", "-c", "echo out; echo err >&2; exit 7").output()
    assert (caught.value.exit_code(), caught.value.stdout, caught.value.stderr) == (7, b"out\n", b"err\n")


def test_it_runs_a_command_as_subprocess_does(sprite: sprites.Sprite) -> None:
    done = run(sprite, "sh", "-c", "echo out; echo err >&2; exit 3", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_a_large_output_arrives_whole(sprite: sprites.Sprite) -> None:
    assert len(sprite.command("head", "-c", "3000000", "/dev/zero").output()) == 3_000_000


def test_it_feeds_standard_input_to_the_end(sprite: sprites.Sprite) -> None:
    command = sprite.command("sh", "-c", "tr a-z A-Z; echo end")
    command.stdin = io.BytesIO(b"hello\n" * 50_000)
    assert command.output() == b"HELLO\n" * 50_000 + b"end\n"


def test_it_works_in_a_directory_and_with_an_environment(sprite: sprites.Sprite) -> None:
    command = sprite.command("/bin/sh", "-c", 'pwd; echo "$COLOUR"', cwd="/tmp", env={"COLOUR": "blue"})
    assert command.output() == b"/tmp\nblue\n"


def test_a_terminal_has_the_size_it_was_given(sprite: sprites.Sprite) -> None:
    command = sprite.command("sh", "-c", "tty; stty size", tty=True, tty_rows=50, tty_cols=132)
    assert command.output() == b"/dev/pts/0\r\n50 132\r\n"


async def test_a_terminal_is_resized_while_it_runs(sprite: sprites.Sprite) -> None:
    heard: list[str] = []
    command = sprite.command("sh", "-c", "stty size; read line; stty size", tty=True, stdin=io.BytesIO())
    socket = WSCommand(command)
    socket.text_message_handler = lambda text: heard.append(json.loads(text)["type"])
    await socket.start()
    await asyncio.to_thread(wait_until, socket.get_stdout, lambda heard: b"24 80" in heard)
    async with asyncio.timeout(30):
        await socket.resize(101, 37)
        await socket._write_stdin(b"\n")
        assert await socket.wait() == 0
    await socket.close()
    assert socket.get_stdout().endswith(b"37 101\r\n")
    assert heard == ["session_info", "exit"]


def test_it_lists_the_sessions_that_live(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.start_session("my-sprite", "sleep", "2000", tty=False)
    listed = [(session.id, session.command, session.tty) for session in sprite.list_sessions()]
    assert listed == [("2", "/usr/bin/sleep 1000", True), ("3", "/usr/bin/sleep 2000", False)]


def attach(sprite: sprites.Sprite, session: str, *, typing: bytes | None = None) -> Cmd:
    """
    Attach to a terminal's session, and say so.

    Otherwise the SDK types as if into a session without terminal until it has read `session_info`: it puts a NUL before
    the input, and without any it types 0x04 at once, which ends a shell that waits for a line.
    """
    command: Cmd = sprite.attach_session(session)
    command.set_tty(True)
    command.stdin = None if typing is None else io.BytesIO(typing)
    return command


def test_it_attaches_and_gets_the_past_and_the_end(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sh", "-c", "echo before; read line; echo got $line; exit 5")
    while not emulator.sessions("my-sprite")[0]["last_activity"]:
        time.sleep(0.01)
    command = attach(sprite, session["id"], typing=b"now\n")
    with pytest.raises(sprites.ExecError) as caught:
        command.output()
    assert caught.value.exit_code() == 5
    assert caught.value.stdout == b"before\r\nnow\r\ngot now\r\n"


def test_to_attach_to_nothing_fails(sprite: sprites.Sprite) -> None:
    with pytest.raises(APIError, match="session not found"):
        sprite.attach_session("99").output()


def test_two_attached_clients_see_the_same(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sh", "-c", "read line; echo got $line")
    with ThreadPoolExecutor() as pool:
        viewer = pool.submit(attach(sprite, session["id"]).output)
        while emulator.sessions("my-sprite")[0]["clients"] != 1:
            time.sleep(0.01)
        typed = attach(sprite, session["id"], typing=b"hello\n").output()
        assert typed == viewer.result(timeout=30) == b"hello\r\ngot hello\r\n"


def test_it_kills_a_session_that_ignores_the_first_signal(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")
    wait_until(lambda: emulator.sessions("my-sprite")[0]["last_activity"], bool)
    events = [message.type for message in kill_session(sprite, session["id"], timeout=0)]
    assert events == ["signal", "timeout", "killed", "signal", "complete"]
    assert sprite.list_sessions() == []
    wait_until(lambda: emulator.processes("my-sprite"), lambda found: found == [])


def test_it_kills_by_the_signal_it_names(sprite: sprites.Sprite, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000", tty=False)
    assert [message.type for message in kill_session(sprite, session["id"], signal="SIGKILL")] == [
        "signal",
        "exited",
        "complete",
    ]


@pytest.mark.parametrize(("body", "received"), [("read", "HUP\n"), ("ignored", "TERM\n")])
def test_its_kill_names_the_signal_in_a_body_that_has_to_be_read(
    sprite: sprites.Sprite, emulator: EmulatorProcess, body: str, received: str
) -> None:
    emulator.switch(kill_body=body)
    traps = " ".join(f"trap 'echo {name} > $HOME/received; exit' {name};" for name in ("HUP", "TERM"))
    session = emulator.start_session("my-sprite", "sh", "-c", f"{traps} echo up; while :; do sleep 0.05; done")
    wait_until(lambda: emulator.sessions("my-sprite")[0]["last_activity"], bool)
    kill_session(sprite, session["id"], signal="SIGHUP")
    assert (Path(emulator.sprite("my-sprite")["home"]) / "received").read_text() == received
    (kill,) = emulator.requests(route="exec.kill")
    assert kill["query"] == ""


@pytest.mark.parametrize("status", ["404", "410"])
def test_a_kill_of_what_has_ended_is_refused(sprite: sprites.Sprite, emulator: EmulatorProcess, status: str) -> None:
    emulator.switch(kill_exited=status)
    session = emulator.start_session("my-sprite", "true")
    wait_until(lambda: emulator.sessions("my-sprite"), lambda found: not found)
    with pytest.raises(APIError) as caught:
        kill_session(sprite, session["id"])
    assert caught.value.status_code == int(status)


def test_a_control_connection_falls_back_to_direct_ones(emulator: EmulatorProcess, sprite: sprites.Sprite) -> None:
    with sprites.SpritesClient(emulator.token, base_url=emulator.url, control_mode=True) as client:
        assert client.sprite("my-sprite").command("echo", "hi").output() == b"hi\n"

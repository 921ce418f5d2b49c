"""Every frame of an exec socket. Source: sprites-api.md 3."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.lab.emulator.talking import Client, Heard, text, wait_until
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites


def touch(emulator: EmulatorProcess, name: str) -> None:
    """Make a file in the home, for a command that waits for it."""
    (Path(emulator.sprite("my-sprite")["home"]) / name).touch()


async def test_the_first_frame_says_which_session_it_is(client: Client, emulator: EmulatorProcess) -> None:
    before = int(emulator.now().timestamp())
    talk = await client.start("sleep", "1000", tty="true", rows="50", cols="132")
    info = text(await talk.hear())
    assert before <= info.pop("created") <= emulator.now().timestamp()
    assert info == {
        "type": "session_info",
        "session_id": "2",
        "command": "/usr/bin/sleep 1000",
        "cols": 0,
        "rows": 0,
        "is_owner": True,
        "tty": True,
    }


async def test_the_upgrade_names_version_and_capabilities(client: Client) -> None:
    talk = await client.start("sleep", "1000")
    assert talk.socket._response.headers["Sprite-Version"] == "v0.0.1-rc48"
    assert talk.socket._response.headers["X-Sprite-Capabilities"] == "signal"


async def test_a_command_without_terminal_has_two_streams_and_a_binary_exit(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.switch(linger_seconds=0)
    talk = await client.start("sh", "-c", "echo out; echo err >&2; exit 7")
    heard = await talk.hear_all()
    assert (heard.stream(1), heard.stream(2), heard.frames[-1]) == (b"out\n", b"err\n", b"\x03\x07")
    assert [frame["type"] for frame in heard.texts] == ["session_info", "exit"]
    assert heard.frames[-2] == '{"type":"exit","exit_code":7}'
    assert heard.close_code == 1000


async def test_its_text_exit_may_come_before_trailing_output(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0, text_exit="early")
    talk = await client.start("sh", "-c", "(until [ -e go ]; do sleep 0.05; done; echo late) & exit 3")
    first = [await talk.hear() for _ in range(2)]
    touch(emulator, "go")
    heard = await talk.hear_all()
    assert [*first[1:], *heard.frames] == ['{"type":"exit","exit_code":3}', b"\x01late\n", b"\x03\x03"]


async def test_its_socket_lingers_after_the_exit_until_the_client_leaves(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.stop_clock()
    talk = await client.start("true")
    frames = [await talk.hear() for _ in range(3)]
    assert frames[-1] == b"\x03\x00"
    with pytest.raises(TimeoutError):
        await talk.socket.receive(timeout=0.3)
    emulator.advance_clock(5)
    assert (await talk.hear_all()).close_code == 1000


@pytest.mark.parametrize(("switch", "close_code"), [("drop", 1006), ("1000", 1000)])
async def test_a_terminal_ends_with_a_text_exit(
    client: Client, emulator: EmulatorProcess, switch: str, close_code: int
) -> None:
    emulator.switch(tty_close=switch)
    talk = await client.start("sh", "-c", "echo hi; exit 4", tty="true")
    heard = await talk.hear_all()
    assert heard.data == b"hi\r\n"
    assert heard.frames[-1] == '{"type":"exit","exit_code":4}'
    assert heard.close_code == close_code


async def test_a_signal_counts_as_128_and_its_number(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    talk = await client.start("sh", "-c", "kill -KILL $$")
    assert (await talk.hear_all()).frames[-1] == bytes([3, 137])


async def run(client: Client, *argv: str, **options: str) -> Heard:
    talk = await client.start(*argv, **options)
    return await talk.hear_all()


async def test_the_default_environment_has_seven_names_and_no_term(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    for options in ({}, {"tty": "true"}):
        heard = await run(client, "/usr/bin/env", **options)
        lines = heard.data.replace(b"\r", b"").replace(b"\x03\x00", b"").strip(b"\x01\n").decode().split("\n")
        environment = dict(line.split("=", 1) for line in lines)
        assert set(environment) == {"BROWSER", "DEBIAN_FRONTEND", "HOME", "LANG", "PATH", "PWD", "SHLVL"}
        assert environment["HOME"] == environment["PWD"] == "/home/sprite"
        assert environment["PATH"] == (
            "/home/sprite/.local/bin:/.sprite/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        )


async def test_a_given_environment_replaces_all_but_home(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    heard = await run(client, "env", env="COLOUR=deep=blue")
    assert heard.stream(1) == b"HOME=/home/sprite\nCOLOUR=deep=blue\n"


async def test_a_terminal_controls_its_session_and_has_a_size(client: Client) -> None:
    talk = await client.start("sh", "-c", "tty; stty size; ps -o tpgid= -p $$", tty="true", rows="50", cols="132")
    name, size, group = (await talk.hear_all()).data.split(b"\r\n")[:3]
    assert (name, size) == (b"/dev/pts/0", b"50 132")
    assert int(group) > 1


async def test_a_resize_reaches_the_foreground_process(client: Client) -> None:
    talk = await client.start(
        "sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done", tty="true"
    )
    await talk.hear_until(b"ready")
    await talk.tell(type="resize", cols=100, rows=30)
    assert b"30 100" in await talk.hear_until(b"30 100")


@pytest.mark.parametrize("name", ["USR1", "SIGUSR1"])
async def test_a_signal_frame_reaches_the_process_by_either_name(client: Client, name: str) -> None:
    talk = await client.start("sh", "-c", "trap 'echo caught; exit' USR1; echo ready; while :; do sleep 0.05; done")
    await talk.hear_until(b"ready")
    await talk.tell(type="signal", signal=name)
    assert b"caught" in await talk.hear_until(b"caught")


async def test_input_and_its_end_reach_a_process_without_terminal(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=0)
    talk = await client.start("cat", stdin="true")
    await talk.say(b"\x00one ")
    await talk.say(b"no stream id, so this goes nowhere")
    await talk.say(b"\x00two")
    await talk.say(b"\x04")
    assert (await talk.hear_all()).stream(1) == b"one two"


async def test_more_input_than_is_kept_waits_for_a_process_that_reads_late(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.switch(linger_seconds=0)
    talk = await client.start("sh", "-c", "sleep 0.3; wc -c", stdin="true")
    for _ in range(20):
        await talk.say(b"\x00" + b"x" * 200_000)
    await talk.say(b"\x04")
    assert (await talk.hear_all()).stream(1) == b"4000000\n"


async def test_without_stdin_a_process_has_none_and_input_goes_nowhere(
    client: Client, emulator: EmulatorProcess
) -> None:
    talk = await client.start("sh", "-c", "wc -c; readlink /proc/self/fd/0")
    await talk.say(b"\x00lost")
    assert (await talk.hear_until(b"null")).startswith(b"\x010\n")
    await client.start("cat", tty="true", stdin="false")
    session = wait_until(lambda: emulator.sessions("my-sprite"), lambda found: len(found) == 1)[0]
    assert session["received"] == ""


async def test_unknown_frames_are_ignored(client: Client) -> None:
    talk = await client.start("cat", tty="true")
    await talk.socket.send_str("not json")
    await talk.tell(type="unheard-of")
    await talk.tell(type="resize", cols="wide")
    await talk.tell(type="signal", signal="SIGNOTHING")
    await talk.say(b"alive\n")
    await talk.hear_until(b"alive\r\nalive\r\n")


@pytest.mark.parametrize("form", ["path", "legacy"])
async def test_an_attach_gets_the_past_and_then_the_present(
    client: Client, emulator: EmulatorProcess, form: str
) -> None:
    first = await client.start("sh", "-c", "echo past; read word; echo $word", tty="true")
    await first.hear_until(b"past")
    await first.leave()
    second = (
        await client.attach("2") if form == "path" else await client.connect("/v1/sprites/my-sprite/exec", ("id", "2"))
    )
    assert text(await second.hear())["session_id"] == "2"
    assert await second.hear() == b"past\r\n"
    await second.say(b"present\n")
    assert (await second.hear_all()).data == b"present\r\npresent\r\n"


async def test_the_past_of_a_session_without_terminal_keeps_its_streams(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.start_session("my-sprite", "sh", "-c", "echo out; echo err >&2; sleep 1000", tty=False)
    wait_until(lambda: emulator.sessions("my-sprite")[0], lambda found: found["last_activity"] is not None)
    talk = await client.attach("2")
    await talk.hear()
    assert {await talk.hear(), await talk.hear()} == {b"\x01out\n", b"\x02err\n"}


async def test_the_past_is_bounded(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(replay_bytes=10)
    first = await client.start("sh", "-c", "printf 0123456789ABCDEF; printf G; sleep 1000", tty="true")
    await first.hear_until(b"G")
    second = await client.attach("2")
    await second.hear()
    assert await second.hear() == b"789ABCDEFG"


async def test_the_past_may_be_rendered_or_missing(client: Client, emulator: EmulatorProcess) -> None:
    link = r"\033]8;;http://secret\033\\word\033]8;;\033\\"
    first = await client.start("sh", "-c", f"printf '{link}'; sleep 1000", tty="true")
    await first.hear_until(b"word")
    emulator.switch(replay="rendered")
    second = await client.attach("2")
    await second.hear()
    assert await second.hear() == b"\x1b[2J\x1b[Hword"
    emulator.switch(replay="none")
    third = await client.attach("2")
    await third.hear()
    await third.say(b"x")
    assert await third.hear() == b"x"


@pytest.mark.parametrize(("switch", "typed"), [("all", "abc"), ("owner", "a"), ("newest", "c")])
async def test_whose_input_counts_is_a_switch(
    client: Client, emulator: EmulatorProcess, switch: str, typed: str
) -> None:
    emulator.switch(input_from=switch)
    first = await client.start("cat", tty="true")
    talks = [first, await client.attach("2"), await client.attach("2")]
    sizes: list[int] = []
    for talk, letter in zip(talks, (b"a", b"b", b"c"), strict=True):
        await talk.say(letter)
        await talk.tell(type="resize", cols=100 + letter[0], rows=10)
        sizes.append(100 + letter[0])
        wait_until(lambda: emulator.sessions("my-sprite")[0]["cols"], lambda cols: cols == sizes[-1])
    assert emulator.sessions("my-sprite")[0]["received"] == typed


async def test_a_viewer_attached_without_stdin_cannot_type(client: Client, emulator: EmulatorProcess) -> None:
    await client.start("cat", tty="true")
    viewer = await client.attach("2", stdin="false")
    await viewer.hear()
    await viewer.say(b"sneaky")
    await viewer.tell(type="resize", cols=99, rows=9)
    wait_until(lambda: emulator.sessions("my-sprite")[0]["cols"], lambda cols: cols == 99)
    assert emulator.sessions("my-sprite")[0]["received"] == ""


async def test_a_session_without_terminal_ends_10_s_after_its_client_left(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.stop_clock()
    talk = await client.start("sleep", "1000")
    await talk.hear()
    await talk.leave()
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
    emulator.advance_clock(9)
    assert len(emulator.sessions("my-sprite")) == 1
    emulator.advance_clock(2)
    wait_until(lambda: emulator.sessions("my-sprite"), lambda sessions: sessions == [])
    assert emulator.processes("my-sprite") == []


async def test_a_short_drop_is_survived_and_the_count_begins_anew(client: Client, emulator: EmulatorProcess) -> None:
    emulator.stop_clock()
    for _ in range(3):
        talk = await (client.attach("2") if emulator.sessions("my-sprite") else client.start("sleep", "1000"))
        await talk.hear()
        await talk.leave()
        wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
        emulator.advance_clock(9)
    assert len(emulator.sessions("my-sprite")) == 1


@pytest.mark.parametrize(
    ("options", "after_seconds", "lives"),
    [
        ({"tty": "true"}, 31_000_000, True),
        ({"tty": "true", "max_run_after_disconnect": "30s"}, 31, False),
        ({"max_run_after_disconnect": "0"}, 31_000_000, True),
        ({"max_run_after_disconnect": "200ms"}, 1, False),
    ],
)
async def test_how_long_a_session_outlives_its_client_can_be_set(
    client: Client, emulator: EmulatorProcess, options: dict[str, str], after_seconds: int, *, lives: bool
) -> None:
    talk = await client.start("sleep", "1000", **options)
    await talk.hear()
    await talk.leave()
    wait_until(lambda: emulator.sessions("my-sprite"), lambda found: not found or found[0]["clients"] == 0)
    emulator.advance_clock(after_seconds)
    if lives:
        assert len(emulator.sessions("my-sprite")) == 1
    else:
        wait_until(lambda: emulator.sessions("my-sprite"), lambda sessions: sessions == [])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ((("cmd", "no-such-program"),), "executable file not found"),
        ((("cmd", "sleep"), ("dir", "/no/such/folder")), "No such file or directory"),
        ((("cmd", "sleep"), ("env", "NOVALUE")), "KEY=VALUE"),
        ((("cmd", "sleep"), ("rows", "0")), "rows and cols"),
        ((("cmd", "sleep"), ("max_run_after_disconnect", "soon")), "no duration"),
        ((("cmd", ""),), "cmd is required"),
    ],
)
async def test_what_cannot_be_started_is_refused_before_the_upgrade(
    client: Client, emulator: EmulatorProcess, query: tuple[tuple[str, str], ...], words: str
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await client.connect("/v1/sprites/my-sprite/exec", *query)
    assert caught.value.status == 400
    _, body, _ = await client.ask(
        "GET", "/v1/sprites/my-sprite/exec", query=query, headers={"Upgrade": "websocket", "Connection": "Upgrade"}
    )
    assert words in body
    assert emulator.sessions("my-sprite") == []


async def test_a_session_that_is_not_there_fails_at_the_handshake_and_says_so_in_plain_text(client: Client) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await client.attach("999")
    assert caught.value.status == 404
    status, body, headers = await client.ask("GET", "/v1/sprites/my-sprite/exec/999")
    assert (status, body) == (404, "session not found: 999")
    assert headers["Content-Type"].startswith("text/plain")


async def test_the_fast_path_folds_and_cuts_the_output_of_short_commands(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.switch(fast_path=True, linger_seconds=0)
    for _ in range(20):
        heard = await run(client, "sh", "-c", "echo err >&2; head -c 70000 /dev/zero")
        # On a busy machine no command may be short enough.
        if heard.stream(2) == b"":
            break
    assert (len(heard.stream(1)), heard.stream(2)) == (65536, b"")
    slow = await client.start("sh", "-c", "echo err >&2; until [ -e go ]; do sleep 0.05; done; echo out")
    await slow.hear()
    assert await slow.hear() == b"\x02err\n"
    touch(emulator, "go")
    assert (await slow.hear_all()).stream(1) == b"out\n"


async def test_debug_frames_come_first_where_they_are_switched_on(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(debug_frames=True)
    talk = await client.start("sleep", "1000")
    assert [text(await talk.hear())["type"] for _ in range(2)] == ["debug", "session_info"]


async def test_a_process_waits_for_a_client_that_does_not_read(client: Client, emulator: EmulatorProcess) -> None:
    talk = await client.start("sh", "-c", "yes > /dev/stdout & echo $! ; wait", tty="true")
    await talk.hear_until(b"y\r\n")

    def read_written() -> int:
        return sum(
            int(line.split()[1])
            for entry in emulator.processes("my-sprite")
            if entry["argv"] == ["yes"]
            for line in Path(f"/proc/{entry['host_pid']}/io").read_text().splitlines()
            if line.startswith("wchar")
        )

    async with asyncio.timeout(20):
        before, now = -1, 0
        while now != before:
            await asyncio.sleep(0.3)
            before, now = now, read_written()
    assert now < 100_000_000


async def test_a_command_runs_over_plain_http_one_chunk_a_frame(client: Client) -> None:
    words = [("cmd", "sh"), ("cmd", "-c"), ("cmd", "cat; echo err >&2; exit 3"), ("stdin", "true")]
    async with client.http.post(
        f"{client.url}/v1/sprites/my-sprite/exec",
        params=words,
        data=b"body",
        headers={"Authorization": f"Bearer {client.token}"},
    ) as response:
        chunks = [chunk async for chunk, _ in response.content.iter_chunks() if chunk]
    assert chunks[-1] == b"\x03\x03"
    assert set(chunks[:-1]) == {b"\x01body", b"\x02err\n"}
    assert response.headers["Content-Type"] == "application/octet-stream"

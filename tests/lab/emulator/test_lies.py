"""
Each switch makes a difference on the wire, and every question and trap is accounted for.

One table: for each switch a probe, which looks at the wire, and what it sees for each value. What other files of this
folder show is named below the table. Source: sprites-api.md 11 and 12.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.lab.emulator.mixing import CLASHES, Mix, draw_mix, is_clash
from controller.lab.emulator.points import POINTS, Always, ClientOnly, Varied, list_switches
from controller.lab.emulator.switches import LIES, Switches, list_values
from tests.lab.emulator.talking import PATIENCE_SECONDS, Client, Heard, text, wait_until
from tests.support.emulator import EmulatorProcess, LabRefused

SPRITE = "/v1/sprites/my-sprite"
STUBBORN = ("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done")
MOMENT = 0.3
"""How long nothing has to happen; nothing waits longer for something to happen than the helpers' patience."""

Probe = Callable[[Client, EmulatorProcess], Awaitable[Any]]


async def ask(client: Client, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
    status, answer, headers = await client.ask(method, path, json=body, query=query)
    is_json = headers.get("Content-Type", "").startswith("application/json")
    return status, json.loads(answer) if is_json else answer


async def ask_inside(emulator: EmulatorProcess, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Call the sprite's own API over its socket, as a program inside does."""
    emulator.set_state("my-sprite", "running")
    connector = aiohttp.UnixConnector(emulator.sprite("my-sprite")["api_socket"])
    async with (
        aiohttp.ClientSession(connector=connector) as http,
        http.request(method, f"http://sprite{path}", json=body) as response,
    ):
        return response.status, await response.json()


async def run(client: Client, *argv: str, **options: str) -> Heard:
    return await (await client.start(*argv, **options)).hear_all()


async def kill(client: Client, session: str = "2", **query: str) -> tuple[int, list[dict[str, Any]]]:
    status, answer = await ask(client, "POST", f"{SPRITE}/exec/{session}/kill", **query)
    return status, [json.loads(line) for line in answer.splitlines()] if status == 200 else []


async def leave(emulator: EmulatorProcess, talk: Any, *, left: int = 0) -> None:
    await talk.leave()
    wait_until(lambda: emulator.sessions("my-sprite"), lambda found: not found or found[0]["clients"] == left)


def status(emulator: EmulatorProcess, sprite: str = "my-sprite") -> str:
    shown: str = emulator.sprite(sprite)["true_status"]
    return shown


def told(emulator: EmulatorProcess, name: str) -> Any:
    """How a switch stands."""
    return emulator.call("GET", "/_lab/switches")[name]


async def comes(work: "asyncio.Future[Any]", *, expected: bool) -> bool:
    """Whether something comes: what is expected is waited for, and what is not gets a moment."""
    done, _ = await asyncio.wait({work}, timeout=PATIENCE_SECONDS if expected else MOMENT)
    return bool(done)


def settle_sessions(emulator: EmulatorProcess, count: int) -> int:
    """How many sessions there are once it is so many, or after a moment."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: len(emulator.sessions("my-sprite")), lambda found: found == count)
    return len(emulator.sessions("my-sprite"))


# Pauses and wakes.


async def see_who_keeps_it_awake(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.create_sprites("terminal", "plain")
    emulator.start_session("terminal", "sleep", "1000")
    emulator.start_session("plain", "sleep", "1000", tty=False)
    talk = await client.start("sleep", "1000", tty="true")
    await talk.hear()
    emulator.switch(idle_seconds=30)
    emulator.advance_clock(31)
    assert not talk.socket.closed
    return [status(emulator, sprite) for sprite in ("my-sprite", "terminal", "plain")]


async def see_what_survives(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    seen = []
    for state in ("warm", "cold"):
        emulator.set_state("my-sprite", state)
        assert {entry["state"] for entry in emulator.processes("my-sprite")} <= {"T", "Z"}
        seen.append(len(emulator.list_sessions("my-sprite")))
    return seen


async def see_metadata_wake(client: Client, emulator: EmulatorProcess) -> Any:
    await ask(client, "GET", SPRITE)
    shown = [status(emulator)]
    emulator.set_state("my-sprite", "cold")
    await ask(client, "PUT", SPRITE, {"labels": []})
    return [*shown, status(emulator)]


async def see_reads_count(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.set_state("my-sprite", "running")
    emulator.switch(idle_seconds=30)
    emulator.advance_clock(20)
    await ask(client, "GET", SPRITE)
    emulator.advance_clock(20)
    return status(emulator)


async def see_check_wake(client: Client, emulator: EmulatorProcess) -> Any:
    assert (await ask(client, "GET", f"{SPRITE}/check"))[0] == 200
    return status(emulator)


async def see_restart(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    answered, _ = await ask(client, "POST", f"{SPRITE}/restart")
    return answered, len(emulator.sessions("my-sprite")), status(emulator)


async def see_sockets_while_waking(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.set_state("my-sprite", "warm")
    try:
        await client.attach("2")
    except aiohttp.ClientConnectionError:
        dropped = True
    else:
        dropped = False
    assert status(emulator) == "running"
    await (await client.attach("2")).hear()
    return dropped


async def see_hang(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.set_state("my-sprite", "warm")
    async with asyncio.TaskGroup() as group:
        killing = group.create_task(kill(client, signal="SIGKILL"))
        await asyncio.to_thread(emulator.requests, route="exec.kill", at_least=1)
        done = await comes(killing, expected=told(emulator, "paused_hang_seconds") == 0)
        emulator.advance_clock(60)
    return done, killing.result()[0]


async def see_slow_wake(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.set_state("my-sprite", "warm")
    async with asyncio.TaskGroup() as group:
        listing = group.create_task(ask(client, "GET", f"{SPRITE}/exec"))
        await asyncio.to_thread(emulator.requests, route="exec.list", at_least=1)
        done = await comes(listing, expected=told(emulator, "wake_warm_seconds") == 0)
        emulator.advance_clock(60)
    return done


async def see_wake_error(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    seen = []
    for _ in range(2):
        emulator.set_state("my-sprite", "warm")
        seen.append((await ask(client, "GET", f"{SPRITE}/exec"))[0])
    emulator.set_state("my-sprite", "warm")
    seen.append((await kill(client))[0])
    seen.append((await ask(client, "GET", f"{SPRITE}/exec"))[0])
    return seen


# The list of sessions.


async def see_listed(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    return (await ask(client, "GET", f"{SPRITE}/exec"))[1]


async def see_ids(client: Client, emulator: EmulatorProcess) -> Any:
    listed = await see_listed(client, emulator)
    return listed["sessions"][0]["id"], text(await (await client.attach("2")).hear())["session_id"]


async def see_envelope(client: Client, emulator: EmulatorProcess) -> Any:
    listed = await see_listed(client, emulator)
    return sorted(listed) if isinstance(listed, dict) else [entry["id"] for entry in listed]


async def see_listed_command(client: Client, emulator: EmulatorProcess) -> Any:
    talk = await client.start("sh", "-c", "echo ready; exec sleep 1000", tty="true")
    await talk.hear_until(b"ready")
    # A process that is just becoming its command has no words for a moment.
    wait_until(lambda: emulator.processes("my-sprite")[0]["argv"][:1], lambda words: words == ["sleep"])
    return emulator.list_sessions("my-sprite")[0]["command"]


def see_field(name: str) -> Probe:
    async def see(client: Client, emulator: EmulatorProcess) -> Any:
        return name in (await see_listed(client, emulator))["sessions"][0]

    return see


# An exec socket.


async def see_environment(client: Client, emulator: EmulatorProcess) -> Any:
    heard = await run(client, "/usr/bin/env", env="COLOUR=blue")
    names = {line.partition(b"=")[0].decode() for line in heard.stream(1).splitlines()}
    return {"COLOUR", "HOME"} <= names, "PATH" in names


async def see_term(client: Client, emulator: EmulatorProcess) -> Any:
    return b"TERM=xterm-256color" in (await run(client, "env", tty="true")).data


async def see_lost_create(client: Client, emulator: EmulatorProcess) -> Any:
    dropped = 0
    for _ in range(2):
        try:
            await client.start("sleep", "1000", tty="true")
        except aiohttp.ClientConnectionError:
            dropped += 1
    return dropped, len(emulator.sessions("my-sprite"))


async def see_creator_leave(client: Client, emulator: EmulatorProcess) -> Any:
    creator = await client.start("sleep", "1000", max_run_after_disconnect="30s")
    other = await client.attach("2")
    await other.hear()
    await leave(emulator, creator, left=1)
    emulator.advance_clock(31)
    assert not other.socket.closed
    return settle_sessions(emulator, 0 if emulator.call("GET", "/_lab/switches")["run_on_from"] == "creator" else 1)


async def see_run_on_on_attach(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.stop_clock()
    emulator.start_session("my-sprite", "sleep", "1000", tty=False)
    talk = await client.attach("2", max_run_after_disconnect="5s")
    await talk.hear()
    await leave(emulator, talk)
    emulator.advance_clock(6)
    return settle_sessions(emulator, 0 if emulator.call("GET", "/_lab/switches")["run_on_on_attach"] == "taken" else 1)


async def see_detachable(client: Client, emulator: EmulatorProcess) -> Any:
    talk = await client.start("sleep", "1000", detachable="true")
    await talk.hear()
    await leave(emulator, talk)
    emulator.advance_clock(11)
    return settle_sessions(emulator, 1 if emulator.call("GET", "/_lab/switches")["detachable"] == "taken" else 0)


async def see_size(client: Client, emulator: EmulatorProcess) -> Any:
    info = text(await (await client.start("sleep", "1000", tty="true", rows="50", cols="132")).hear())
    return info["cols"], info["rows"]


async def see_owners(client: Client, emulator: EmulatorProcess) -> Any:
    talks = [await client.start("sleep", "1000", tty="true"), await client.attach("2")]
    return [text(await talk.hear())["is_owner"] for talk in talks]


async def see_noise(client: Client, emulator: EmulatorProcess) -> Any:
    texts = [frame for frame in (await run(client, "echo", "out")).frames if isinstance(frame, str)]
    return [frame for frame in texts if '"session_info"' not in frame and '"exit"' not in frame]


async def see_signal_frame(client: Client, emulator: EmulatorProcess) -> Any:
    talk = await client.start("cat", tty="true")
    await talk.tell(type="signal", signal="TERM")
    await talk.say(b"x")
    # What was typed after the signal is taken after it; an end shows that it was taken too.
    found = wait_until(lambda: emulator.sessions("my-sprite"), lambda found: not found or bool(found[0]["received"]))
    signals = found[0]["signals"] if found else ["SIGTERM"]
    return talk.socket._response.headers.get("X-Sprite-Capabilities"), signals


async def see_pings(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.http.ws_connect(f"{client.url}{SPRITE}/exec/2", headers=headers, autoping=False) as socket:
        await socket.receive()
        try:
            patience = PATIENCE_SECONDS if told(emulator, "server_ping_seconds") else MOMENT
            return [(await socket.receive(timeout=patience)).type for _ in range(2)]
        except TimeoutError:
            return []


async def see_plain_replay(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sh", "-c", "echo past; cat", tty=False)
    wait_until(lambda: emulator.sessions("my-sprite")[0], lambda found: found["last_activity"] is not None)
    talk = await client.attach("2", stdin="true")
    await talk.hear()
    await talk.say(b"\x00now\n")
    return await talk.hear()


async def see_fast_commands(client: Client, emulator: EmulatorProcess) -> Any:
    """The first of some that run alike, and the one that differs; on a busy machine not every one is fast."""
    seen: list[Any] = []
    while len(seen) < (20 if told(emulator, "lost_fast_every") else 2) and (not seen or seen[-1] == seen[0]):
        heard = await run(client, "echo", "hi")
        seen.append((heard.data, [fields["type"] for fields in heard.texts], heard.close_code))
    return [seen[0], seen[-1]]


async def see_end(client: Client, emulator: EmulatorProcess) -> Any:
    heard = await run(client, "sh", "-c", "exit 7")
    return heard.texts[1:], heard.data, heard.close_code


async def see_terminal_end(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.switch(tty_close="1000")
    heard = await run(client, "sh", "-c", "exit 7", tty="true")
    return heard.texts[1:], heard.close_code


TEXT_EXIT = [{"type": "exit", "exit_code": 7}]


async def see_ports(client: Client, emulator: EmulatorProcess, **options: str) -> list[tuple[str, bool]]:
    """The frames about a port that a child of the session opens for a while, and whether they name that child."""
    listen = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(f'<{s.getsockname()[1]}>', flush=True)"
    script = f"{listen}; input(); s.close(); print('closed', flush=True); input()"
    talk = await client.start("sh", "-c", f'python3 -c "{script}"; true', stdin="true", **options)
    switches = emulator.call("GET", "/_lab/switches")
    is_told = switches["port_frames"] == "all" or (switches["port_frames"] == "tty" and "tty" in options)
    child = 3
    seen: list[tuple[str, bool]] = []
    data = b""

    async def hear_until(wanted: Callable[[], bool]) -> None:
        nonlocal data
        while not wanted():
            frame = await talk.hear()
            if isinstance(frame, bytes):
                data += frame
            elif (fields := text(frame))["type"].startswith("port"):
                port = int(re.findall(rb"<(\d+)>", data)[0]) if b">" in data else fields["port"]
                assert (fields["port"], fields["address"]) == (port, "10.0.0.1")
                seen.append((fields["type"], fields["pid"] == child))

    newline = b"\n" if "tty" in options else b"\x00\n"
    await hear_until(lambda: b">" in data and (bool(seen) or not is_told))
    if not is_told:
        await asyncio.sleep(MOMENT)  # Three looks: whoever would tell has told.
    await talk.say(newline)
    await hear_until(lambda: b"closed" in data and (len(seen) == 2 or not (is_told and switches["port_closed"])))
    await talk.say(newline)
    await talk.hear_all()
    return seen


async def see_ports_of_both(client: Client, emulator: EmulatorProcess) -> Any:
    seen = await see_ports(client, emulator, tty="true")
    emulator.set_state("my-sprite", "cold")
    return seen, await see_ports(client, emulator)


async def see_ports_of_terminal(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.switch(port_frames="tty")
    return await see_ports(client, emulator, tty="true")


OPENED = [("port_opened", True)]


async def see_post(client: Client, emulator: EmulatorProcess) -> Any:
    words = [("cmd", "sh"), ("cmd", "-c"), ("cmd", "echo out; sleep 0.2; echo err >&2; exit 3")]
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.http.post(f"{client.url}{SPRITE}/exec", params=words, headers=headers) as response:
        return response.content_type, [chunk async for chunk, _ in response.content.iter_chunks() if chunk]


# The kill.


async def see_grace(
    client: Client, emulator: EmulatorProcess, name: str, timeout: str, advance: float
) -> list[str | None]:
    """The second line of a kill of a process that is deaf to SIGTERM: at once, and after a while of emulated time."""
    expected = SEEN[name][1][told(emulator, name)]
    emulator.stop_clock()
    emulator.start_session("my-sprite", *STUBBORN)
    wait_until(lambda: emulator.sessions("my-sprite")[0], lambda found: found["last_activity"] is not None)
    headers = {"Authorization": f"Bearer {client.token}"}
    lines: list[str | None] = []
    path = f"{client.url}{SPRITE}/exec/2/kill"
    async with client.http.post(path, params={"timeout": timeout}, headers=headers) as response:
        await response.content.readline()
        reading = asyncio.ensure_future(response.content.readline())  # noqa: TID251, RUF100 - ended below
        # At once is a millisecond of a clock that stands.
        for step, line in zip((0.001, advance), expected, strict=True):
            emulator.advance_clock(step)
            done = await comes(reading, expected=line is not None)
            lines.append(json.loads(reading.result())["type"] if done else None)
        reading.cancel()
        await asyncio.wait({reading})
    return lines


async def see_zero_timeout(client: Client, emulator: EmulatorProcess) -> Any:
    return await see_grace(client, emulator, "kill_zero_timeout", "0s", 11)


async def see_bare_timeout(client: Client, emulator: EmulatorProcess) -> Any:
    return await see_grace(client, emulator, "kill_bare_unit", "5000", 6)


AT_ONCE, LATER, NOT_YET = ["timeout", "timeout"], [None, "timeout"], [None, None]


async def see_signal_names(client: Client, emulator: EmulatorProcess) -> Any:
    for _ in range(2):
        emulator.start_session("my-sprite", "sleep", "1000")
    return (await kill(client, "2", signal="SIGKILL"))[0], (await kill(client, "3", signal="KILL"))[0]


async def see_unknown_signal(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    answered, events = await kill(client, signal="SIGNOTHING")
    return answered, [event.get("signal") for event in events[:1]]


async def see_complete(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    return (await kill(client, signal="SIGKILL"))[1][-1]


async def see_signals_of_a_kill(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    return [event["type"] for event in (await kill(client, signal="SIGKILL"))[1]]


async def see_kill_error(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000", tty=False)
    answered, events = await kill(client, signal="SIGKILL")
    return answered, [event["type"] for event in events], len(emulator.sessions("my-sprite"))


async def see_after_error(client: Client, emulator: EmulatorProcess) -> Any:
    seen = []
    for error in ("done", "undone"):
        emulator.switch(kill_error=error)
        session = emulator.start_session("my-sprite", "sleep", "1000")
        seen.append([event["type"] for event in (await kill(client, session["id"], signal="SIGKILL"))[1]])
    return seen


async def see_deleted_session(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    answered, _ = await ask(client, "DELETE", f"{SPRITE}/exec/2")
    return answered, settle_sessions(emulator, 0 if answered == 204 else 1)


# The tasks.


def left(task: dict[str, Any]) -> float:
    parsed = [datetime.fromisoformat(task[name]) for name in ("started_at", "expires_at")]
    return (parsed[1] - parsed[0]).total_seconds()


async def see_task_hour(client: Client, emulator: EmulatorProcess) -> Any:
    await ask_inside(emulator, "PUT", "/v1/tasks/hold", {"expire": "1h"})
    emulator.advance_clock(30 * 60)
    return round(left((await ask_inside(emulator, "PUT", "/v1/tasks/hold", {"expire": "1h"}))[1]) / 60)


async def see_wrong_expiry(client: Client, emulator: EmulatorProcess) -> Any:
    seen = []
    for expire in (7200, 0, -5):
        answered, body = await ask_inside(emulator, "PUT", "/v1/tasks/hold", {"expire": expire})
        seen.append((answered, round(left(body)) if answered == 200 else None))
    return seen, emulator.tasks("my-sprite")


async def see_task_clock(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.stop_clock()
    await ask_inside(emulator, "PUT", "/v1/tasks/hold", {"expire": 300})
    before = emulator.tasks("my-sprite")
    emulator.set_state("my-sprite", "warm")
    emulator.advance_clock(200)
    emulator.set_state("my-sprite", "running")
    return round(left(emulator.tasks("my-sprite")[0]) - left(before[0]), -1)


async def see_task_name(client: Client, emulator: EmulatorProcess) -> Any:
    return (await ask_inside(emulator, "POST", "/v1/tasks", {"name": "a name!", "expire": 60}))[0]


# Sprites, their list and their watch.


async def see_names(client: Client, emulator: EmulatorProcess) -> Any:
    return [(await ask(client, "POST", "/v1/sprites", {"name": name}))[0] for name in ("a" * 63, "b" * 48, "Up.p_er")]


async def see_missing(client: Client, emulator: EmulatorProcess) -> Any:
    return [(await ask(client, "GET", f"/v1/sprites/nobody{path}"))[0] for path in ("", "/exec")]


async def see_config(client: Client, emulator: EmulatorProcess) -> Any:
    body = {"name": "new", "config": {"ram_mb": 512}, "environment": {"COLOUR": "blue"}}
    created = (await ask(client, "POST", "/v1/sprites", body))[1]
    return created.get("config"), created.get("environment")


async def see_fields(client: Client, emulator: EmulatorProcess) -> Any:
    shown = (await ask(client, "GET", SPRITE))[1]
    return {"id", "name", "url"} <= set(shown), "status" in shown


async def see_page(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.create_sprites(prefix="many-", count=60)
    return len((await ask(client, "GET", "/v1/sprites", max_results="100"))[1]["sprites"])


async def see_too_large_page(client: Client, emulator: EmulatorProcess) -> Any:
    return [(await ask(client, "GET", "/v1/sprites", max_results=size))[0] for size in ("50", "51")]


async def see_counts(client: Client, emulator: EmulatorProcess) -> Any:
    page = (await ask(client, "GET", "/v1/sprites"))[1]
    return page.get("org", {}).get("cold"), page.get("cold")


async def see_last_page(client: Client, emulator: EmulatorProcess) -> Any:
    page = (await ask(client, "GET", "/v1/sprites"))[1]
    return page["has_more"], page["next_continuation_token"]


async def watch(client: Client, emulator: EmulatorProcess, act: Callable[[], Any]) -> list[Any]:
    """The lines of a live watch until it tells of the sprite `marker`, created after an action; or until its end."""
    headers = {"Authorization": f"Bearer {client.token}", "Accept": "application/x-ndjson"}
    lines: list[Any] = []
    async with (
        client.http.get(f"{client.url}/v1/sprites", headers=headers) as response,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        if response.content_type != "application/x-ndjson":
            return [response.content_type]
        await asyncio.to_thread(act)
        await asyncio.to_thread(emulator.create_sprites, "marker")
        async for line in response.content:
            try:
                lines.append(json.loads(line))
            except json.JSONDecodeError:
                lines.append(line)
                continue
            if lines[-1].get("name") == "marker":
                break
    return lines


async def see_watch(client: Client, emulator: EmulatorProcess) -> Any:
    lines = await watch(client, emulator, lambda: None)
    return lines if isinstance(lines[0], str) else [(line["name"], line["org"]["name"]) for line in lines]


async def see_watch_of_a_delete(client: Client, emulator: EmulatorProcess) -> Any:
    lines = await watch(client, emulator, lambda: emulator.delete_sprite("my-sprite"))
    return [(line.get("type"), line["name"]) for line in lines]


async def see_watch_noise(client: Client, emulator: EmulatorProcess) -> Any:
    return [line for line in await watch(client, emulator, lambda: None) if isinstance(line, bytes)]


async def see_watch_end(client: Client, emulator: EmulatorProcess) -> Any:
    headers = {"Authorization": f"Bearer {client.token}", "Accept": "application/x-ndjson"}
    async with client.http.get(f"{client.url}/v1/sprites", headers=headers) as response:
        endless = emulator.call("GET", "/_lab/switches")["watch_end_seconds"] == 0
        try:
            async with asyncio.timeout(MOMENT if endless else PATIENCE_SECONDS):
                return await response.content.read()
        except TimeoutError:
            return "goes on"


# Limits and lost requests.


async def ask_too_often(client: Client, *, times: int) -> list[tuple[int, Any, dict[str, str]]]:
    answers = [await client.ask("GET", SPRITE) for _ in range(times)]
    return [(answered, body, headers) for answered, body, headers in answers]


async def see_rate(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.switch(rate_window_seconds=3600)
    return [answered for answered, _, _ in await ask_too_often(client, times=3)]


async def see_rate_window(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.switch(rate_limit=1)
    for _ in range(20):
        answers = [answered for answered, _, _ in await ask_too_often(client, times=2)]
        if answers == [200, 429]:
            break
        await asyncio.sleep(MOMENT)  # On a busy machine the window may be over before the second.
    await asyncio.sleep(MOMENT)  # As long as the shorter window.
    return [*answers, (await client.ask("GET", SPRITE))[0]]


async def see_rate_headers(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.switch(rate_limit=2, rate_window_seconds=3600)
    answers = await ask_too_often(client, times=3)
    names = ("X-RateLimit-Limit", "X-RateLimit-Remaining")
    assert all(("X-RateLimit-Reset" in headers) == ("X-RateLimit-Limit" in headers) for _, _, headers in answers)
    return [tuple(headers.get(name) for name in names) for _, _, headers in answers]


async def limit(client: Client, emulator: EmulatorProcess) -> tuple[Any, dict[str, str]]:
    emulator.switch(rate_limit=1, rate_window_seconds=3600)
    (_, body, headers) = (await ask_too_often(client, times=2))[1]
    return body, headers


async def see_retry_after(client: Client, emulator: EmulatorProcess) -> Any:
    value = (await limit(client, emulator))[1].get("Retry-After", "")
    if value.isdecimal():
        assert 3000 < int(value) <= 3600
        return "seconds"
    if value.endswith(" GMT"):
        assert 3000 < (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds() <= 3602
        return "date"
    return value


async def see_limit_body(client: Client, emulator: EmulatorProcess) -> Any:
    body, headers = await limit(client, emulator)
    if not headers["Content-Type"].startswith("application/json"):
        return body
    return {name: type(value).__name__ for name, value in json.loads(body).items()}


async def see_creations(client: Client, emulator: EmulatorProcess) -> Any:
    answers = [await ask(client, "POST", "/v1/sprites", {"name": name}) for name in ("one", "two")]
    return [(answered, body.get("error")) for answered, body in answers]


async def see_running(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.create_sprites("another")
    emulator.set_state("another", "running")
    answered, body = await ask(client, "GET", f"{SPRITE}/exec")
    return answered, body.get("error")


async def see_sessions(client: Client, emulator: EmulatorProcess) -> Any:
    emulator.start_session("my-sprite", "sleep", "1000")
    words = [("cmd", "true")]
    headers = {"Authorization": f"Bearer {client.token}"}
    async with client.http.post(f"{client.url}{SPRITE}/exec", params=words, headers=headers) as response:
        return response.status


async def see_dropped_reads(client: Client, emulator: EmulatorProcess) -> Any:
    dropped = 0
    for _ in range(4):
        try:
            await client.ask("GET", SPRITE)
        except aiohttp.ClientConnectionError:
            dropped += 1
    return dropped


async def see_curl(client: Client, emulator: EmulatorProcess) -> Any:
    return (await run(client, "curl", "--version")).frames[-1], (await run(client, "true")).frames[-1]


STRUCTURED = {
    "error": "str",
    "message": "str",
    "limit": "int",
    "window_seconds": "int",
    "retry_after_seconds": "int",
    "current_count": "int",
    "upgrade_available": "bool",
    "upgrade_url": "str",
}
STARTED = "/usr/bin/sh -c echo ready; exec sleep 1000"
HI = (b"\x01hi\n\x03\x00", ["session_info", "exit"], 1000)

SEEN: dict[str, tuple[Probe, dict[Any, Any]]] = {
    "kept_awake_by": (
        see_who_keeps_it_awake,
        {
            "attached": ["running", "warm", "warm"],
            "none": ["warm", "warm", "warm"],
            "terminals": ["running", "running", "warm"],
            "sessions": ["running", "running", "running"],
        },
    ),
    "sessions_survive": (see_what_survives, {"warm": [1, 0], "none": [0, 0], "cold": [1, 1]}),
    "metadata_wakes": (see_metadata_wake, {False: ["cold", "cold"], True: ["running", "running"]}),
    "reads_count": (see_reads_count, {False: "warm", True: "running"}),
    "check_wakes": (see_check_wake, {False: "cold", True: "running"}),
    "restart": (
        see_restart,
        {"absent": (404, 1, "running"), "ends": (200, 0, "running"), "keeps": (200, 1, "running")},
    ),
    "drop_while_waking": (see_sockets_while_waking, {False: False, True: True}),
    "paused_hang_seconds": (see_hang, {0: (True, 200), 60: (False, 200)}),
    "wake_error": (
        see_wake_error,
        {
            "none": [200, 200, 200, 200],
            "502": [502, 502, 502, 200],
            "503": [503, 503, 503, 200],
            "504": [504, 504, 504, 200],
        },
    ),
    "wake_warm_seconds": (see_slow_wake, {0: True, 60: False}),
    "session_ids": (see_ids, {"string": ("2", "2"), "integer": (2, 2)}),
    "list_envelope": (see_envelope, {"object": ["count", "sessions"], "no-count": ["sessions"], "array": [2]}),
    "listed_command": (see_listed_command, {"started": STARTED, "current": "sleep 1000", "argv": STARTED[9:]}),
    "list_tty": (see_field("tty"), {True: True, False: False}),
    "list_last_activity": (see_field("last_activity"), {True: True, False: False}),
    "env": (see_environment, {"replaces": (True, False), "adds": (True, True)}),
    "tty_term": (see_term, {"unset": False, "xterm-256color": True}),
    "lost_create_every": (see_lost_create, {0: (0, 2), 1: (2, 2), 2: (1, 2)}),
    "run_on_from": (see_creator_leave, {"last": 1, "creator": 0}),
    "run_on_on_attach": (see_run_on_on_attach, {"ignored": 1, "taken": 0}),
    "detachable": (see_detachable, {"ignored": 0, "taken": 1}),
    "info_size": (see_size, {"zero": (0, 0), "real": (132, 50)}),
    "is_owner": (see_owners, {"always": [True, True], "first": [True, False], "never": [False, False]}),
    "noise_frames": (see_noise, {False: [], True: ['{"type":"weather","sunny":true}', "not json"]}),
    "server_ping_seconds": (see_pings, {0: [], 0.05: [aiohttp.WSMsgType.PING] * 2}),
    "signal_frames": (see_signal_frame, {True: ("signal", ["SIGTERM"]), False: (None, [])}),
    "port_frames": (see_ports_of_both, {"none": ([], []), "tty": (OPENED, []), "all": (OPENED, OPENED)}),
    "port_closed": (see_ports_of_terminal, {False: OPENED, True: [*OPENED, ("port_closed", True)]}),
    "port_type": (see_ports_of_terminal, {"port_opened": OPENED, "port": [("port", True)]}),
    "replay_without_tty": (see_plain_replay, {True: b"\x01past\n", False: b"\x01now\n"}),
    "lost_fast_every": (see_fast_commands, {0: [HI, HI], 2: [HI, (b"", ["session_info"], 1000)]}),
    "binary_exit": (see_end, {True: (TEXT_EXIT, b"\x03\x07", 1000), False: (TEXT_EXIT, b"", 1000)}),
    "exit_bytes": (see_end, {1: (TEXT_EXIT, b"\x03\x07", 1000), 4: (TEXT_EXIT, b"\x03\x00\x00\x00\x07", 1000)}),
    "exit_field": (
        see_end,
        {"exit_code": (TEXT_EXIT, b"\x03\x07", 1000), "code": ([{"type": "exit", "code": 7}], b"\x03\x07", 1000)},
    ),
    "pipe_close": (see_end, {"1000": (TEXT_EXIT, b"\x03\x07", 1000), "drop": (TEXT_EXIT, b"\x03\x07", 1006)}),
    "tty_text_exit": (see_terminal_end, {True: (TEXT_EXIT, 1000), False: ([], 1000)}),
    "post_answer": (
        see_post,
        {
            "frames": ("application/octet-stream", [b"\x01out\n", b"\x02err\n", b"\x03\x03"]),
            "merged": ("application/octet-stream", [b"\x01out\n\x02err\n\x03\x03"]),
            "json": ("application/json", [b'{"stdout":"out\\n","stderr":"err\\n","exit_code":3}']),
        },
    ),
    "kill_zero_timeout": (see_zero_timeout, {"at-once": AT_ONCE, "default": LATER, "never": NOT_YET}),
    "kill_bare_unit": (see_bare_timeout, {"s": NOT_YET, "ms": LATER, "ns": AT_ONCE}),
    "signal_names": (see_signal_names, {"both": (200, 200), "sig": (200, 400), "short": (400, 200)}),
    "unknown_signal": (see_unknown_signal, {"refused": (400, []), "term": (200, ["SIGTERM"])}),
    "kill_exit_code": (
        see_complete,
        {
            "shell": {"type": "complete", "exit_code": 137},
            "negative": {"type": "complete", "exit_code": -9},
            "absent": {"type": "complete"},
        },
    ),
    "kill_second_signal": (
        see_signals_of_a_kill,
        {True: ["signal", "exited", "signal", "complete"], False: ["signal", "exited", "complete"]},
    ),
    "kill_error": (
        see_kill_error,
        {
            "none": (200, ["signal", "exited", "complete"], 0),
            "done": (200, ["signal", "error"], 0),
            "undone": (200, ["signal", "error"], 1),
        },
    ),
    "complete_after_error": (
        see_after_error,
        {False: [["signal", "error"]] * 2, True: [["signal", "error", "complete"]] * 2},
    ),
    "delete_session": (see_deleted_session, {"absent": (405, 1), "kills": (204, 0)}),
    "task_hour": (see_task_hour, {"refresh": 90, "creation": 60}),
    "task_expire": (
        see_wrong_expiry,
        {"refused": ([(400, None)] * 3, []), "clamped": ([(200, 3600), (200, 0), (200, 0)], [])},
    ),
    "task_clock": (see_task_clock, {"runs": 0, "stops": 200}),
    "task_names": (see_task_name, {"safe": 400, "any": 201}),
    "sprite_names": (see_names, {"dns": [201, 201, 400], "short": [400, 201, 400], "loose": [201, 201, 201]}),
    "missing_sprite_status": (see_missing, {404: [404, 404], 500: [500, 500]}),
    "config": (see_config, {"ignored": (None, None), "shown": ({"ram_mb": 512}, {"COLOUR": "blue"})}),
    "sprite_fields": (see_fields, {"full": (True, True), "sure": (True, False)}),
    "page_ceiling": (see_page, {50: 50, 100: 61}),
    "page_over": (see_too_large_page, {"clamped": [200, 200], "refused": [200, 400]}),
    "counts": (see_counts, {"both": (1, 1), "org": (1, None), "top": (None, 1)}),
    "has_more": (see_last_page, {"honest": (False, None), "stuck": (True, None)}),
    "watch": (see_watch, {"stream": [("marker", "acme")], "page": ["application/json"]}),
    "watch_deletes": (
        see_watch_of_a_delete,
        {False: [(None, "marker")], True: [("deleted", "my-sprite"), (None, "marker")]},
    ),
    "watch_noise": (see_watch_noise, {False: [], True: [b"\n", b"not json\n", b'{"type":\n']}),
    "watch_end_seconds": (see_watch_end, {0: "goes on", 0.1: b""}),
    "rate_limit": (see_rate, {0: [200, 200, 200], 2: [200, 200, 429]}),
    "rate_window_seconds": (see_rate_window, {3600: [200, 429, 429], MOMENT: [200, 429, 200]}),
    "rate_headers": (see_rate_headers, {True: [("2", "1"), ("2", "0"), ("2", "0")], False: [(None, None)] * 3}),
    "retry_after": (see_retry_after, {"seconds": "seconds", "date": "date", "absent": ""}),
    "limit_body": (
        see_limit_body,
        {
            "structured": STRUCTURED,
            "error": {"error": "str"},
            "text": "Rate limit of 1 requests exceeded",
        },
    ),
    "creation_limit": (
        see_creations,
        {0: [(201, None), (201, None)], 1: [(201, None), (429, "sprite_creation_rate_limited")]},
    ),
    "running_limit": (see_running, {0: (200, None), 1: (429, "concurrent_sprite_limit_exceeded")}),
    "sessions_limit": (see_sessions, {0: 200, 1: 429}),
    "dropped_read_every": (see_dropped_reads, {0: 0, 2: 2, 1: 4}),
    "curl_in_image": (see_curl, {True: (b"\x03\x00", b"\x03\x00"), False: (b"\x03\x7f", b"\x03\x00")}),
}
"""For each switch: what looks at the wire, and what it sees for each value."""

ELSEWHERE = {
    "idle_seconds": "test_lifecycle.py",
    "cold_after_seconds": "test_lifecycle.py",
    "created_status": "test_lifecycle.py",
    "status_lag_seconds": "test_lifecycle.py",
    "wake_cold_seconds": "test_lifecycle.py",
    "list_wakes": "test_lifecycle.py",
    "drop_first_socket_on_cold": "test_lifecycle.py",
    "list_trail_seconds": "test_kill.py",
    "is_active": "test_sprites_api.py",
    "debug_frames": "test_exec_sockets.py",
    "input_from": "test_exec_sockets.py",
    "replay": "test_exec_sockets.py",
    "replay_bytes": "test_exec_sockets.py",
    "fast_path": "test_exec_sockets.py",
    "text_exit": "test_exec_sockets.py",
    "tty_close": "test_exec_sockets.py",
    "linger_seconds": "test_exec_sockets.py",
    "kill_body": "test_kill.py",
    "kill_reach": "test_kill.py",
    "kill_exited": "test_kill.py",
    "tasks_survive_cold": "test_tasks.py",
    "duplicate_status": "test_sprites_api.py",
    "watch_snapshot": "test_sprites_api.py",
    "heartbeat_seconds": "test_sprites_api.py",
    "record_output": "test_isolation.py",
}
"""The switches that tests of another file change."""


@pytest.mark.sprites
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, (_, seen) in SEEN.items() for value in seen])
async def test_a_switch_makes_a_difference_on_the_wire(
    client: Client, emulator: EmulatorProcess, name: str, value: Any
) -> None:
    probe, seen = SEEN[name]
    emulator.switch(linger_seconds=0)
    emulator.switch(**{name: value})
    assert await probe(client, emulator) == seen[value]


@pytest.mark.parametrize("name", LIES)
def test_every_switch_is_shown_with_every_value_it_has(name: str) -> None:
    assert (name in SEEN) != (name in ELSEWHERE)
    if name in ELSEWHERE:
        # As a keyword of a call, or as the option's name.
        assert re.search(rf"\b{name}=", (Path(__file__).parent / ELSEWHERE[name]).read_text())
        return
    values = list_values(Switches.model_fields[name])
    shown = SEEN[name][1]
    assert len({repr(seen) for seen in shown.values()}) > 1
    if values is not None:
        assert set(shown) == set(values)


@pytest.mark.parametrize("name", SEEN)
def test_what_is_shown_of_a_switch_includes_its_default(name: str) -> None:
    default = Switches().model_dump(mode="json")[name]
    assert default in SEEN[name][1] or name == "rate_window_seconds"


def test_all_42_questions_and_all_32_traps_are_accounted_for() -> None:
    assert list(POINTS) == [*(f"Q{n}" for n in range(1, 43)), *(f"T{n}" for n in range(1, 33))]
    assert {point for lie in LIES.values() for point in lie.points} <= set(POINTS)


@pytest.mark.parametrize("number", POINTS)
def test_a_point_has_switches_or_says_why_not(number: str) -> None:
    match POINTS[number].account:
        case Varied():
            assert list_switches(number)
        case Always(said) | ClientOnly(said):
            assert len(said) > 20
    if isinstance(POINTS[number].account, ClientOnly):
        assert not list_switches(number)


async def test_a_sprite_may_tell_other_lies_than_its_neighbour(client: Client, emulator: EmulatorProcess) -> None:
    emulator.create_sprites("neighbour")
    path = "/_lab/sprites/my-sprite/switches"
    changed = emulator.switch_sprite("my-sprite", session_ids="integer", tty_close="1000")
    assert changed["own"] == {"session_ids": "integer", "tty_close": "1000"}
    for sprite in ("my-sprite", "neighbour"):
        emulator.start_session(sprite, "sleep", "1000")

    def list_ids() -> list[Any]:
        return [emulator.list_sessions(sprite)[0]["id"] for sprite in ("my-sprite", "neighbour")]

    assert list_ids() == [2, "2"]
    emulator.switch(list_tty=False)
    assert emulator.call("GET", path)["all"]["list_tty"] is False
    assert list_ids() == [2, "2"]
    assert emulator.switch_sprite("my-sprite")["own"] == {}
    assert list_ids() == ["2", "2"]


async def test_what_is_about_the_whole_api_cannot_be_set_for_one_sprite(
    client: Client, emulator: EmulatorProcess
) -> None:
    with pytest.raises(LabRefused) as caught:
        emulator.call("PATCH", "/_lab/sprites/my-sprite/switches", {"counts": "org", "list_tty": False})
    assert caught.value.status == 400
    assert "counts" in caught.value.body
    assert emulator.call("GET", "/_lab/sprites/my-sprite/switches")["own"] == {}


async def test_all_lies_are_listed_and_taken_back(client: Client, emulator: EmulatorProcess) -> None:
    emulator.switch(kill_exited="410")
    listed = {lie["name"]: lie for lie in emulator.call("GET", "/_lab/lies")["lies"]}
    assert list(listed) == list(LIES)
    assert listed["kill_exited"] == {
        "name": "kill_exited",
        "points": ["Q18"],
        "says": LIES["kill_exited"].says,
        "values": ["404", "410"],
        "default": "404",
        "now": "410",
        "scope": "sprite",
        "mixed": ["410"],
        "never_mixed_because": "",
    }
    assert emulator.call("DELETE", "/_lab/switches")["kill_exited"] == "404"


# The mix.


@cache
def draw_mixes() -> list[Mix]:
    return [draw_mix(seed) for seed in range(300)]


def test_the_same_seed_draws_the_same_and_another_one_something_else() -> None:
    assert draw_mix(7) == draw_mix(7)
    assert draw_mix(7).values != draw_mix(8).values
    # Written down, since another machine or a later version has to draw the same.
    drawn = [draw_mix(seed).values.get("is_active") for seed in range(6)]
    assert drawn == [None, None, "always", None, "never", None]


@pytest.mark.parametrize("name", LIES)
def test_a_switch_draws_only_from_its_closed_list_or_says_why_not(name: str) -> None:
    lie, field = LIES[name], Switches.model_fields[name]
    drawn = {mix.values.get(name) for mix in draw_mixes()} - {None}
    assert drawn == set(lie.mixed)
    assert Switches().model_dump(mode="json")[name] not in drawn
    values = list_values(field)
    if values is None:
        assert lie.mixed or lie.kept
    else:
        assert lie.kept or set(values) - {field.default} == set(lie.mixed)


def test_no_seed_draws_a_combination_that_nobody_survives() -> None:
    mixes = draw_mixes()
    for mix in mixes:
        Switches.model_validate(dict(mix.values))
    for clash in CLASHES:
        assert set(clash.values) <= set(LIES)
        assert clash.given_up in clash.values
        assert any(clash.given_up in mix.given_up for mix in mixes)
        assert not any(is_clash(clash, mix.values) for mix in mixes)


def test_an_emulator_tells_the_lies_of_its_seed_but_keeps_what_was_said() -> None:
    mix = draw_mix(11)
    kept = next(name for name in mix.values if list_values(Switches.model_fields[name]) == (True, False))
    default = Switches().model_dump(mode="json")[kept]
    with EmulatorProcess("--records", "--random-lies", "11", "--lie", f"{kept}={json.dumps(default)}") as process:
        assert process.random_lies == process.call("GET", "/_lab/lies")["random"] == mix.render()
        now = process.call("GET", "/_lab/switches")
        assert {name: now[name] for name in mix.values} == {**mix.values, kept: default}
        other = process.tell_random_lies(12)
        assert other == draw_mix(12).render()
        assert process.call("GET", "/_lab/")["random_seed"] == 12
        process.reset()
        assert process.call("GET", "/_lab/lies")["random"]["seed"] == 11
        assert process.call("GET", "/_lab/switches") == now

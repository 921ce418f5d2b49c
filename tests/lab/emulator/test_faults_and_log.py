"""The request log, and every fault on the routes where it matters. The interface: docs/emulator.md."""

import asyncio
import errno
import json
import time
from typing import Any

import aiohttp
import pytest

from tests.lab.emulator.talking import Client, text
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

SHOW = "/v1/sprites/my-sprite"
LIST = "/v1/sprites/my-sprite/exec"


async def kill(client: Client, session: str) -> tuple[int, list[Any]]:
    status, body, _ = await client.ask("POST", f"{LIST}/{session}/kill?signal=SIGKILL")
    return status, body.splitlines()


async def test_a_request_is_logged_with_its_cause_and_its_moment(client: Client, emulator: EmulatorProcess) -> None:
    emulator.clear_requests()
    before = time.time()
    await client.ask("GET", SHOW + "?a=b%20c", headers={"Agentterminal-Cause": "Kill"})
    after = time.time()
    (entry,) = emulator.requests()
    assert before <= entry.pop("time") <= entry.pop("finished") <= after
    assert entry.pop("number") > 0
    assert entry.pop("user_agent").startswith("Python")
    assert entry == {
        "method": "GET",
        "path": SHOW,
        "query": "a=b%20c",
        "route": "sprites.get",
        "door": "api",
        "sprite": "my-sprite",
        "organization": "acme",
        "cause": "Kill",
        "status": 200,
    }


async def test_every_route_has_a_name(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")["id"]
    emulator.clear_requests()
    await client.ask("GET", "/v1/sprites")
    await client.ask("GET", "/v1/sprites/my-sprite")
    await client.ask("PUT", "/v1/sprites/my-sprite", json={})
    await client.ask("GET", "/v1/sprites/my-sprite/check")
    await client.ask("GET", LIST)
    await (await client.start("sleep", "1000")).leave()
    await (await client.attach(session)).leave()
    await (await client.connect(LIST, ("id", session))).leave()
    await client.ask("POST", LIST + "?cmd=true")
    await kill(client, session)
    await client.ask("POST", "/v1/sprites", json={"name": "new"})
    await client.ask("DELETE", "/v1/sprites/new")
    await client.ask("GET", "/v1/other")
    assert [entry["route"] for entry in emulator.requests()] == [
        *("sprites.list", "sprites.get", "sprites.update", "sprites.check", "exec.list", "exec.create"),
        *("exec.attach", "exec.attach", "exec.post", "exec.kill", "sprites.create", "sprites.delete", "unknown"),
    ]


async def test_the_log_is_filtered_counted_and_waited_for(client: Client, emulator: EmulatorProcess) -> None:
    emulator.clear_requests()
    await client.ask("GET", SHOW)
    await client.ask("GET", LIST)
    first = emulator.requests()[0]
    assert [entry["route"] for entry in emulator.requests(since=first["number"])] == ["exec.list"]
    assert emulator.requests(after=time.time() + 1) == []
    assert emulator.requests(sprite="another") == emulator.requests(status=500) == []
    assert emulator.count_requests(sprite="my-sprite") == {"sprites.get": 1, "exec.list": 1}
    waiting = asyncio.to_thread(emulator.requests, route="exec.list", at_least=2, wait_seconds=10)
    async with asyncio.TaskGroup() as group:
        found = group.create_task(waiting)
        await asyncio.sleep(0)
        await client.ask("GET", LIST)
    assert len(found.result()) == 2
    assert emulator.requests(route="exec.list", at_least=3, wait_seconds=0.05) == found.result()
    emulator.clear_requests()
    assert emulator.requests() == []


async def test_an_open_socket_is_logged_as_answered(client: Client, emulator: EmulatorProcess) -> None:
    talk = await client.start("sleep", "1000")
    await talk.hear()
    (entry,) = emulator.requests(route="exec.create")
    assert (entry["status"], entry["finished"]) == (101, None)


async def test_a_fault_hits_the_next_calls_that_match_and_no_others(client: Client, emulator: EmulatorProcess) -> None:
    emulator.create_sprite("another")
    rule = {"route": "sprites.get", "sprite": "my-sprite", "method": "GET", "skip": 1, "times": 2}
    emulator.arm_fault({"kind": "status", "status": 500}, **rule)
    assert (await client.ask("GET", "/v1/sprites/another"))[0] == 200
    assert [(await client.ask("GET", SHOW))[0] for _ in range(4)] == [200, 500, 500, 200]
    assert emulator.call("GET", "/_lab/faults") == {"faults": []}


async def test_a_fault_may_be_for_a_cause_or_a_session_and_is_taken_back(
    client: Client, emulator: EmulatorProcess
) -> None:
    emulator.arm_fault({"kind": "status", "status": 500}, cause="Resync")
    emulator.arm_fault({"kind": "status", "status": 502}, session="77")
    assert (await client.ask("GET", SHOW))[0] == 200
    assert (await client.ask("GET", SHOW, headers={"Agentterminal-Cause": "Resync"}))[0] == 500
    assert (await kill(client, "77"))[0] == 502
    armed = emulator.arm_fault({"kind": "status", "status": 500})
    emulator.call("DELETE", f"/_lab/faults/{armed['number']}")
    assert (await client.ask("GET", SHOW))[0] == 200


@pytest.mark.parametrize(
    ("fault", "status", "body", "kind"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}, "body": {"error": "x"}}, 429, '{"error":"x"}', "json"),
        ({"status": 502, "html": "<h1>Bad gateway</h1>"}, 502, "<h1>Bad gateway</h1>", "html"),
        ({"status": 404, "text": "404 page not found"}, 404, "404 page not found", "plain"),
        ({"status": 503}, 503, '{"error":"fault 503"}', "json"),
        ({"status": 200, "text": ""}, 200, "", "plain"),
    ],
)
async def test_a_status_comes_with_headers_and_any_body(
    client: Client, emulator: EmulatorProcess, fault: dict[str, Any], status: int, body: str, kind: str
) -> None:
    emulator.arm_fault({"kind": "status", **fault})
    got, words, headers = await client.ask("GET", SHOW)
    assert (got, words) == (status, body)
    assert kind in headers["Content-Type"]
    assert headers.get("Retry-After") == fault.get("headers", {}).get("Retry-After")


@pytest.mark.parametrize("where", ["headers_seconds", "body_seconds"])
async def test_a_status_may_be_late_without_the_thing_being_done(
    client: Client, emulator: EmulatorProcess, where: str
) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")["id"]
    emulator.arm_fault({"kind": "status", "status": 200, "text": "{}\n{}\n", where: 0.3}, route="exec.kill")
    began = time.monotonic()

    assert (await kill(client, session))[:2] == (200, ["{}", "{}"])

    assert time.monotonic() - began >= 0.3
    assert len(emulator.sessions("my-sprite")) == 1


async def test_a_body_may_be_cut_and_a_connection_reset(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "status", "status": 200, "text": "{}\n{}\n", "cut": True})
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.ask("GET", SHOW)
    emulator.arm_fault({"kind": "drop", "reset": True})
    with pytest.raises(aiohttp.ClientOSError) as caught:
        await client.ask("GET", SHOW)
    assert caught.value.errno == errno.ECONNRESET


async def test_a_fault_may_be_for_one_organization(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "status", "status": 500}, organization="nobody")
    assert (await client.ask("GET", SHOW))[0] == 200
    emulator.arm_fault({"kind": "status", "status": 500}, organization=emulator.token.split("/")[0])
    assert (await client.ask("GET", SHOW))[0] == 500


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
@pytest.mark.parametrize("kind", ["status", "drop"])
async def test_a_kill_may_fail_before_or_after_it_was_done(
    client: Client, emulator: EmulatorProcess, kind: str, when: str, *, done: bool
) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")["id"]
    fault = {"kind": kind, "when": when, **({"status": 500} if kind == "status" else {})}
    emulator.arm_fault(fault, route="exec.kill")
    if kind == "status":
        assert (await kill(client, session))[0] == 500
    else:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await kill(client, session)
        assert emulator.requests(route="exec.kill")[0]["status"] is None
    assert len(emulator.sessions("my-sprite")) == (0 if done else 1)


@pytest.mark.parametrize(("when", "started"), [("before", 0), ("after", 1), ("upgraded", 1)])
async def test_a_create_may_lose_its_connection_at_three_points(
    client: Client, emulator: EmulatorProcess, when: str, started: int
) -> None:
    emulator.arm_fault({"kind": "drop", "when": when}, route="exec.create")
    if when == "upgraded":
        heard = await (await client.start("sleep", "1000", tty="true")).hear_all()
        assert (heard.frames, heard.close_code) == ([], 1006)
    else:
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.start("sleep", "1000", tty="true")
    assert len(emulator.sessions("my-sprite")) == started


async def test_a_create_may_be_refused_after_it_was_done(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "status", "status": 503, "when": "after"}, route="exec.create")
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await client.start("sleep", "1000", tty="true")
    assert caught.value.status == 503
    assert len(emulator.sessions("my-sprite")) == 1


async def test_session_info_may_be_late(client: Client, emulator: EmulatorProcess) -> None:
    waited: list[float] = []
    # Whoever is kept from looking for a while after the upgrade sees less of the delay.
    while max(waited, default=0.0) <= 0.2 and len(waited) < 10:
        emulator.arm_fault({"kind": "delay", "seconds": 0.3, "when": "body"}, route="exec.create")
        talk = await client.start("sleep", "1000", tty="true")
        began = time.monotonic()
        assert text(await talk.hear())["type"] == "session_info"
        waited.append(time.monotonic() - began)
    assert max(waited) > 0.2


async def test_a_socket_may_break_off_after_some_frames(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "early-end", "after_lines": 1}, route="exec.create")
    heard = await (await client.start("echo", "hi")).hear_all()
    assert ([frame["type"] for frame in heard.texts], len(heard.frames), heard.close_code) == (
        ["session_info"],
        1,
        1006,
    )


@pytest.mark.parametrize("when", ["before", "after", "body"])
@pytest.mark.parametrize("route", ["sprites.get", "exec.kill"])
async def test_an_answer_may_be_late_in_its_headers_or_in_its_body(
    client: Client, emulator: EmulatorProcess, route: str, when: str
) -> None:
    headers_after: list[float] = []
    # Whoever is kept from looking for a while sees headers late that were not.
    while min(headers_after, default=1.0) > 0.25 and len(headers_after) < (10 if when == "body" else 1):
        session = emulator.start_session("my-sprite", "sleep", "1000")["id"]
        emulator.arm_fault({"kind": "delay", "seconds": 0.3, "when": when}, route=route)
        began = time.monotonic()
        method, path = ("GET", SHOW) if route == "sprites.get" else ("POST", f"{LIST}/{session}/kill?signal=SIGKILL")
        async with client.http.request(
            method, client.url + path, headers={"Authorization": f"Bearer {client.token}"}
        ) as response:
            headers_after.append(time.monotonic() - began)
            body = await response.text()
        assert time.monotonic() - began > 0.25
        assert ("complete" in body) or json.loads(body)["name"] == "my-sprite"
    assert (min(headers_after) > 0.25) is (when != "body")


async def test_a_plain_body_may_end_early(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "early-end"}, route="sprites.get")
    with pytest.raises(aiohttp.ClientPayloadError):
        await client.ask("GET", SHOW)


async def test_a_kill_stream_may_break_off_or_end_too_early(client: Client, emulator: EmulatorProcess) -> None:
    for clean in (False, True):
        session = emulator.start_session("my-sprite", "sleep", "1000", tty=False)["id"]
        emulator.arm_fault({"kind": "early-end", "after_lines": 1, "clean": clean}, route="exec.kill")
        if clean:
            status, lines = await kill(client, session)
            assert (status, [json.loads(line)["type"] for line in lines]) == (200, ["signal"])
        else:
            with pytest.raises(aiohttp.ClientPayloadError):
                await kill(client, session)
        assert emulator.sessions("my-sprite") == []


@pytest.mark.parametrize(
    ("position", "types"),
    [
        ("first", ["error", "signal", "exited", "complete"]),
        ("middle", ["signal", "error", "exited", "complete"]),
        ("last", ["signal", "exited", "complete", "error"]),
        ("instead", ["signal", "error"]),
    ],
)
async def test_an_error_line_may_stand_anywhere(
    client: Client, emulator: EmulatorProcess, position: str, types: list[str]
) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000", tty=False)["id"]
    emulator.arm_fault({"kind": "error-line", "position": position}, route="exec.kill")
    status, lines = await kill(client, session)
    assert (status, [json.loads(line)["type"] for line in lines]) == (200, types)
    assert '{"type":"error","message":"process would not die"}' in lines


async def test_an_error_line_may_be_without_message_and_the_process_alive(
    client: Client, emulator: EmulatorProcess
) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000")["id"]
    emulator.arm_fault({"kind": "error-line", "message": None, "undone": True}, route="exec.kill")
    assert (await kill(client, session))[1][1:] == ['{"type":"error"}']
    assert len(emulator.processes("my-sprite")) == 1


async def test_garbage_lines_stand_among_the_real_ones(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "sleep", "1000", tty=False)["id"]
    emulator.arm_fault({"kind": "garbage", "lines": ["", "not json"]}, route="exec.kill")
    _, lines = await kill(client, session)
    assert lines[::3] == ["", "", ""]
    assert lines[1::3] == ["not json"] * 3
    assert json.loads(lines[-1])["type"] == "complete"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"shape": "hide", "session": "2"}, {"count": 1, "ids": ["3"]}),
        ({"shape": "hide"}, {"count": 0, "ids": []}),
        ({"shape": "empty"}, {"count": 0, "ids": []}),
        ({"shape": "error"}, {"count": 0, "ids": [], "error": "session manager unavailable"}),
        ({"shape": "no-sessions"}, {"count": 2}),
    ],
)
async def test_a_session_list_may_say_less_than_the_truth(
    client: Client, emulator: EmulatorProcess, fault: dict[str, Any], expected: dict[str, Any]
) -> None:
    for _ in range(2):
        emulator.start_session("my-sprite", "sleep", "1000")
    emulator.arm_fault({"kind": "list", **fault}, route="exec.list")
    body = json.loads((await client.ask("GET", LIST))[1])
    if "sessions" in body:
        body["ids"] = [session["id"] for session in body.pop("sessions")]
    assert body == expected
    assert len(emulator.list_sessions("my-sprite")) == 2


async def test_a_session_list_may_be_no_json(client: Client, emulator: EmulatorProcess) -> None:
    emulator.arm_fault({"kind": "list", "shape": "not-json"}, route="exec.list")
    status, body, _ = await client.ask("GET", LIST)
    assert (status, body[:6]) == (200, "<html>")

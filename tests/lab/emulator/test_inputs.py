"""The log of what was typed: which socket, in which order. The interface: docs/emulator.md."""

import base64
import time
from typing import Any

import pytest

from controller.lab.emulator.inputlog import InputLog
from tests.lab.emulator.talking import Client, wait_until
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites


def read_inputs(emulator: EmulatorProcess, count: int, **query: Any) -> list[dict[str, Any]]:
    """Wait until so much was typed."""

    def read() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = emulator.call("GET", "/_lab/inputs", **query)["inputs"]
        return found

    return wait_until(read, lambda found: len(found) == count)


async def test_every_input_is_logged_in_one_order_with_its_socket(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "cat")["id"]
    emulator.clear_requests()
    one, other = await client.attach(session), await client.attach(session)
    looking = await client.connect(f"/v1/sprites/my-sprite/exec/{session}", ("stdin", "false"))
    before = time.time()
    for number, talk in enumerate((one, other, one)):
        await talk.say(b"%d\n" % number)
        await looking.say(b"not typed\n")
        found = read_inputs(emulator, number + 1)
    after = time.time()

    assert [base64.b64decode(entry["data_base64"]) for entry in found] == [b"0\n", b"1\n", b"2\n"]
    assert found[0]["socket"] == found[2]["socket"] != found[1]["socket"]
    assert [entry["number"] for entry in found] == list(range(found[0]["number"], found[0]["number"] + 3))
    assert all(before <= entry["time"] <= after for entry in found)
    assert {(entry["sprite"], entry["session"]) for entry in found} == {("my-sprite", session)}
    emulator.call("DELETE", "/_lab/inputs", until=found[0]["number"])
    assert read_inputs(emulator, 2) == found[1:]
    assert read_inputs(emulator, 1, since=found[0]["number"], limit=1) == found[1:2]
    emulator.call("DELETE", "/_lab/inputs")
    assert read_inputs(emulator, 0) == []


async def test_a_socket_keeps_its_number_after_a_signal(client: Client, emulator: EmulatorProcess) -> None:
    session = emulator.start_session("my-sprite", "cat")["id"]
    emulator.call("DELETE", "/_lab/inputs")
    talk = await client.attach(session)
    await talk.say(b"before\n")
    await talk.tell(type="signal", signal="WINCH")
    await talk.say(b"after\n")

    before, after = read_inputs(emulator, 2)
    assert before["socket"] == after["socket"]


def fill(log: InputLog, *inputs: bytes) -> None:
    for data in inputs:
        log.note(time=1.0, sprite="box", session="7", socket=1, data=data)


def test_what_is_too_much_is_forgotten_from_the_oldest_and_shows_as_a_gap() -> None:
    few, light = InputLog(2), InputLog(100, limit_bytes=5)
    for log in (few, light):
        fill(log, b"a", b"bb", b"ccc")

    assert [entry.number for entry in few.read(since=0, limit=10)] == [2, 3]
    assert [entry.number for entry in light.read(since=0, limit=10)] == [2, 3]
    assert few.last == 3


def test_reading_goes_on_after_any_number_also_one_that_is_forgotten() -> None:
    log = InputLog(100)
    fill(log, b"a", b"b", b"c", b"d")
    log.forget(until=2)

    assert [entry.data for entry in log.read(since=0, limit=10)] == [b"c", b"d"]
    assert [entry.data for entry in log.read(since=3, limit=10)] == [b"d"]
    assert log.read(since=4, limit=10) == []
    log.forget(until=9)
    assert log.read(since=0, limit=10) == []
    fill(log, b"e")
    assert [entry.number for entry in log.read(since=0, limit=10)] == [5]

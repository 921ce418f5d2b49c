"""
What the official JavaScript SDK, unchanged and on its own Node, can do with the emulator.

Each flow is a process of its own (flows.mjs). What it found is judged together with what it sent, which the emulator's
log tells, and with what is true inside.
"""

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.lab.emulator.talking import wait_until
from tests.sdk.node import Packages
from tests.sdk.running import FLOWS, run_flow
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites

PINNED = json.loads(FLOWS.with_name("package.json").read_text())["dependencies"]["@fly/sprites"]


class Flow:
    """Runs flows of the SDK."""

    def __init__(self, packages: Packages, emulator: EmulatorProcess) -> None:
        self._packages = packages
        self._emulator = emulator

    def __call__(self, name: str, meanwhile: Callable[[], Any] | None = None) -> Any:
        """Run a flow and return what it found; `meanwhile` is done where the flow waits for something from outside."""
        environment = {"SPRITES_URL": self._emulator.url, "SPRITE_TOKEN": self._emulator.token}
        return run_flow(self._packages, name, environment, meanwhile)


@pytest.fixture
def flow(packages: Packages, emulator: EmulatorProcess) -> Flow:
    return Flow(packages, emulator)


def query_of(entry: dict[str, Any]) -> list[tuple[str, str]]:
    return parse_qsl(entry["query"], keep_blank_values=True)


def sent(emulator: EmulatorProcess, route: str) -> list[tuple[str, str]]:
    """The query of the only request of a route."""
    (entry,) = emulator.requests(route=route)
    return query_of(entry)


def test_it_is_the_pinned_sdk_on_node_24_or_newer(flow: Flow) -> None:
    found = flow("versions")
    assert found["sdk"] == PINNED
    assert int(found["node"].split(".")[0]) >= 24


# --- sprites ----------------------------------------------------------------------------------------------------------


def test_it_creates_a_sprite_and_finds_it_again(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.delete_sprite("my-sprite")
    answer = flow("create")
    found = answer["found"]
    assert answer["created"] == found["id"]
    assert found["id"].startswith("sprite-")
    assert (found["name"], found["status"], found["organizationName"]) == ("my-sprite", "cold", "acme")
    assert found["labels"] == ["blue"]
    assert re.match(r"\d{4}-\d\d-\d\dT", found["createdAt"])


def test_it_lists_more_sprites_than_fit_a_page(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.create_sprites(prefix="many-", count=120)
    assert flow("listAll") == [f"many-{n:04d}" for n in range(120)]
    pages = emulator.requests(route="sprites.list")
    assert len(pages) == 3
    assert all(("max_results", "50") in query_of(page) for page in pages)


def test_it_watches_sprites_as_they_change(flow: Flow, emulator: EmulatorProcess) -> None:
    event = flow("watch", meanwhile=lambda: emulator.set_state("my-sprite", "running"))
    assert (event["name"], event["status"]) == ("my-sprite", "running")
    assert event["organization"]["running"] == 1


def test_it_changes_and_checks_a_sprite(flow: Flow) -> None:
    found = flow("change")
    assert (found["auth"], found["labels"]) == ("public", ["green"])
    assert (found["check"]["spriteName"], found["check"]["status"]) == ("my-sprite", "cold")


def test_it_restarts_a_sprite_where_the_platform_can(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.switch(restart="ends")
    emulator.start_session("my-sprite", "sleep", "1000")
    assert flow("restart")["spriteName"] == "my-sprite"
    assert emulator.sessions("my-sprite") == []


def test_it_deletes_a_sprite(flow: Flow) -> None:
    assert flow("deleteIt")["status"] == 404


def test_a_wrong_token_is_refused(flow: Flow) -> None:
    error = flow("wrongToken")
    assert (error["kind"], error["status"]) == ("APIError", 401)


def test_a_bad_name_is_refused(flow: Flow) -> None:
    assert flow("badName")["status"] == 400


def test_it_reads_every_field_of_a_limit(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.switch(creation_limit=1)
    error = flow("limited")
    assert (error["status"], error["code"]) == (429, "sprite_creation_rate_limited")
    assert error["creationLimited"] is True
    assert 0 < error["retryAfter"] <= 60


# --- commands ---------------------------------------------------------------------------------------------------------


def test_it_runs_a_command_and_reads_both_streams_apart(flow: Flow, emulator: EmulatorProcess) -> None:
    assert flow("output") == {"stdout": "out\n", "stderr": "err\n", "exitCode": 0}
    assert sent(emulator, "exec.create") == [
        ("cmd", "sh"),
        ("cmd", "-c"),
        ("cmd", "echo out; echo err >&2"),
        ("path", "sh"),
        ("stdin", "true"),
    ]


def test_it_does_not_wait_for_the_socket_that_lingers(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.switch(linger_seconds=3600)
    assert flow("output")["exitCode"] == 0


def test_it_takes_the_binary_exit_whatever_the_text_one_does(flow: Flow, emulator: EmulatorProcess) -> None:
    for text_exit in ("early", "absent"):
        emulator.switch(text_exit=text_exit)
        error = flow("lateOutput")
        assert (error["exitCode"], error["stdout"]) == (3, "soon\nlate\n")


def test_a_failure_carries_the_exit_code_and_both_streams(flow: Flow) -> None:
    error = flow("exitCode")
    assert error["kind"] == "ExecError"
    assert (error["exitCode"], error["stdout"], error["stderr"]) == (7, "out\n", "err\n")


def test_it_splits_a_line_into_words(flow: Flow) -> None:
    assert flow("words") == "one two\n"


def test_a_program_that_does_not_exist_is_no_success(flow: Flow) -> None:
    assert "WebSocket" in flow("notThere")["message"]


def test_a_large_output_arrives_whole(flow: Flow) -> None:
    assert flow("largeOutput") == 3_000_000


def test_it_feeds_standard_input_to_the_end(flow: Flow) -> None:
    assert flow("input") == {"code": 0, "stdout": "HELLO\n" * 50_000 + "end\n"}


def test_it_works_in_a_directory_and_with_an_environment(flow: Flow) -> None:
    assert flow("surroundings") == "/tmp\nblue\n"


def test_it_runs_commands_over_plain_http(flow: Flow, emulator: EmulatorProcess) -> None:
    found = flow("plainHTTP")
    assert found["done"] == {"stdout": "hello", "stderr": "err\n", "exitCode": 0}
    assert (found["failed"]["kind"], found["failed"]["exitCode"]) == ("ExecError", 9)
    assert [("stdin", "true") in query_of(entry) for entry in emulator.requests(route="exec.post")] == [True, False]


def test_it_sends_a_signal_over_the_socket(flow: Flow) -> None:
    assert flow("signal") == {"code": 4, "stdout": "begin\ninterrupted\n"}


def test_a_command_outlives_its_client_where_it_says_so(flow: Flow, emulator: EmulatorProcess) -> None:
    flow(
        "leavePipe", meanwhile=lambda: wait_until(lambda: emulator.sessions("my-sprite"), lambda found: len(found) == 1)
    )
    assert ("max_run_after_disconnect", "0") in sent(emulator, "exec.create")
    wait_until(lambda: emulator.sessions("my-sprite")[0]["clients"], lambda clients: clients == 0)
    emulator.advance_clock(3600)
    assert len(emulator.sessions("my-sprite")) == 1


def test_a_control_connection_falls_back_to_a_direct_one(flow: Flow) -> None:
    assert flow("controlMode") == "hi\n"


def test_what_the_emulator_does_not_serve_is_told_as_missing(flow: Flow) -> None:
    found = flow("notServed")
    assert "404" in found["services"]["message"]
    assert found["upgrade"]["status"] == 404


# --- terminals --------------------------------------------------------------------------------------------------------


def test_a_terminal_has_the_size_it_was_given(flow: Flow, emulator: EmulatorProcess) -> None:
    found = flow("terminal")
    assert found["stdout"] == "/dev/pts/0\r\n50 132\r\n"
    assert [message["type"] for message in found["messages"]] == ["session_info", "exit"]
    assert {("tty", "true"), ("rows", "50"), ("cols", "132")} <= set(sent(emulator, "exec.create"))


def test_a_terminal_is_resized_while_it_runs(flow: Flow, emulator: EmulatorProcess) -> None:
    assert flow("resize").endswith("37 101\r\n")
    assert ("detachable", "true") in sent(emulator, "exec.create")


@pytest.mark.parametrize(("close", "code"), [("drop", 1), ("1000", 0)])
def test_the_end_of_a_terminal_is_read_from_its_close_and_not_from_its_exit(
    flow: Flow, emulator: EmulatorProcess, close: str, code: int
) -> None:
    """So whoever replaces a socket must not close it with 1000."""
    emulator.switch(tty_close=close)
    assert flow("endOfTerminal") == {"code": code, "exits": [{"type": "exit", "exit_code": 5}]}


def test_it_is_told_of_ports_that_a_terminal_opens(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.switch(port_frames="tty")
    found = flow("ports")
    assert found["opened"]["port"] == int(found["stdout"].split()[0])


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_it_lists_the_sessions_that_live(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sleep", "1000")
    emulator.start_session("my-sprite", "sleep", "2000", tty=False)
    assert [(session["id"], session["command"], session["tty"]) for session in flow("list")] == [
        ("2", "/usr/bin/sleep 1000", True),
        ("3", "/usr/bin/sleep 2000", False),
    ]


def test_a_terminal_lives_on_when_its_client_has_gone(flow: Flow, emulator: EmulatorProcess) -> None:
    session = flow("leave")
    (left,) = wait_until(lambda: emulator.sessions("my-sprite"), lambda found: found[0]["clients"] == 0)
    assert left["id"] == session
    emulator.advance_clock(3600)
    assert [found["id"] for found in emulator.sessions("my-sprite")] == [session]


def start_reader(emulator: EmulatorProcess, *, tty: bool) -> None:
    """Start a session that has written a line and waits for another."""
    script = "echo before; read line; echo got $line; exit 5"
    emulator.call(
        "POST",
        "/_lab/sprites/my-sprite/sessions",
        {"argv": ["sh", "-c", script], "tty": tty, "stdin": True, "max_run_after_disconnect": "0"},
    )
    wait_until(lambda: emulator.sessions("my-sprite")[0]["last_activity"], bool)


def test_it_attaches_and_gets_the_past_and_the_rest(flow: Flow, emulator: EmulatorProcess) -> None:
    start_reader(emulator, tty=True)
    found = flow("attach")
    assert found["stdout"] == "before\r\nnow\r\ngot now\r\n"
    assert {message["type"] for message in found["messages"]} == {"session_info", "exit"}
    assert found["messages"][-1]["exit_code"] == 5
    (attached,) = emulator.requests(route="exec.attach")
    assert attached["path"] == "/v1/sprites/my-sprite/exec/2"
    assert query_of(attached) == [("stdin", "true")]


def test_it_finds_out_by_itself_that_what_it_attached_to_is_no_terminal(flow: Flow, emulator: EmulatorProcess) -> None:
    start_reader(emulator, tty=False)
    assert flow("attachToPipe") == {"code": 5, "stdout": "before\ngot now\n"}


def test_to_attach_to_nothing_fails(flow: Flow) -> None:
    assert flow("attachToNothing") != []


def test_a_kill_that_names_no_signal_takes_the_grace_it_names_and_then_kills(
    flow: Flow, emulator: EmulatorProcess
) -> None:
    emulator.start_session("my-sprite", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    wait_until(lambda: emulator.sessions("my-sprite")[0]["last_activity"], bool)
    events = flow("killByDefault")
    assert [event["type"] for event in events] == ["signal", "timeout", "killed", "signal", "complete"]
    assert events[0]["signal"] == "SIGTERM"
    assert events[-1]["exitCode"] == 137
    assert sent(emulator, "exec.kill") == [("timeout", "300ms")]
    wait_until(lambda: emulator.processes("my-sprite"), lambda found: found == [])


def test_it_kills_by_the_signal_it_names(flow: Flow, emulator: EmulatorProcess) -> None:
    emulator.start_session("my-sprite", "sleep", "1000", tty=False)
    events = flow("killByName")
    assert [event["type"] for event in events] == ["signal", "exited", "complete"]
    assert (events[0]["signal"], events[0]["pid"], events[-1]["exitCode"]) == ("SIGKILL", 2, 137)
    assert sent(emulator, "exec.kill") == [("signal", "SIGKILL")]
    assert emulator.processes("my-sprite") == []


def test_it_takes_an_error_line_for_no_failure(flow: Flow, emulator: EmulatorProcess) -> None:
    """A habit that our own client must not have."""
    emulator.switch(kill_error="undone")
    emulator.start_session("my-sprite", "sleep", "1000")
    assert "error" in [event["type"] for event in flow("killByName")]
    assert len(emulator.processes("my-sprite")) == 1


def test_a_kill_of_what_is_not_there_is_refused(flow: Flow) -> None:
    error = flow("killNothing")
    assert (error["kind"], error["status"]) == ("APIError", 404)

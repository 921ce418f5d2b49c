"""The life of a terminal: a real API server, the operator as its own process, real processes in the sprite."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.gate import At, Gate
from tests.cluster.stage import is_session_list
from tests.support.emulator import Lab
from tests.support.operator import World
from tests.support.process import await_true
from tests.support.secrecy import Kind, secret

STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")


def terminals(world: World) -> list[dict[str, Any]]:
    """
    The sessions with a terminal that live.

    Some seconds after a deletion a command without one looks for what was left behind.
    """
    return [session for session in world.live() if session["tty"]]


def adopt(world: World, name: str, session: dict[str, Any], **spec: Any) -> None:
    world.create(name, sessionId=session["id"], **spec)
    world.await_reason(name, "Detached")


# --- adopt ------------------------------------------------------------------------------------------------------------


def test_a_running_session_is_adopted_with_two_writes_and_left_running(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)

    adopt(world, "one", session)

    terminal = world.get("one")
    assert terminal is not None
    assert terminal["status"]["session"]["id"] == session["id"]
    assert terminal["status"]["session"]["origin"] == "Adopted"
    assert terminal["metadata"]["finalizers"] == ["agentterminal.dev/session"]
    assert {entry["manager"] for entry in terminal["metadata"]["managedFields"]} == {
        "agentterminal-operator",
        terminal["metadata"]["managedFields"][0]["manager"],
    }
    assert len(world.live()) == 1


def test_a_session_of_another_creation_is_left_alone(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)

    world.create("one", sessionId=session["id"], sessionCreatedTime="2020-01-01T00:00:00Z")

    world.await_reason("one", "SessionNotOurs", "Stalled")
    world.delete("one")
    world.await_gone("one")
    assert len(terminals(world)) == 1


def test_a_session_that_is_not_there_stalls_without_a_launch_and_launches_with_one(world: World) -> None:
    world.create("without", sessionId="9999")
    world.create("with", sessionId="9999", launch={"command": ["sleep", "600"]})

    world.await_reason("without", "SessionNotFound", "Stalled")
    status = world.await_reason("with", "Detached")
    assert status["session"]["origin"] == "Launched"


def test_of_two_objects_on_one_session_the_second_is_stalled_and_ends_nothing(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "first", session)

    world.create("second", sessionId=session["id"])
    world.await_reason("second", "SessionTaken", "Stalled")
    second = world.get("second")
    assert second is not None
    assert "finalizers" not in second["metadata"]
    assert "session" not in second["status"]

    world.patch("second", terminated=True)
    world.await_reason("second", "SessionTaken", "Terminated")
    world.delete("second")
    world.await_gone("second")
    assert len(terminals(world)) == 1


def test_the_second_object_adopts_once_the_owner_has_let_go(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "first", session, deletionPolicy="Orphan")
    world.create("second", sessionId=session["id"])
    world.await_reason("second", "SessionTaken", "Stalled")

    world.delete("first")

    status = world.await_reason("second", "Detached")
    assert status["session"]["id"] == session["id"]


# --- launch -----------------------------------------------------------------------------------------------------------


def test_a_launched_session_is_the_command_itself_with_its_environment_and_size(world: World) -> None:
    world.put_secret("password", value="s3cr3t-$(id)-'\"")
    show = "stty size > /home/sprite/size; pwd >> /home/sprite/size; exec sleep 600"
    world.create(
        "one",
        launch={
            "command": ["sh", "-c", show],
            "workingDirectory": "/tmp",
            "env": [
                {"name": "GREETING", "value": 'it\'s a "test"'},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "value"}}},
            ],
            "columns": 133,
            "rows": 41,
        },
    )
    status = world.await_reason("one", "Detached")

    def command() -> str:
        table = world.lab.processes("box")
        return " ".join(next(row["argv"] for row in table if str(row["inner_pid"]) == status["session"]["id"]))

    await_true(lambda: command() == "sleep 600", "the session's process to be the command")
    environ = host_environment(world.lab, status["session"]["id"])
    assert environ["GREETING"] == 'it\'s a "test"'
    assert environ["PASSWORD"] == "s3cr3t-$(id)-'\""
    assert environ["TERM"] == "xterm-256color"
    assert "/usr/bin" in environ["PATH"].split(":")
    home = Path(world.lab.sprite("box")["home"])
    assert (home / "size").read_text().split() == ["41", "133", "/tmp"]


def host_environment(lab: Lab, session_id: str) -> dict[str, str]:
    row = next(row for row in lab.processes("box") if str(row["inner_pid"]) == session_id)
    pairs = Path(f"/proc/{row['host_pid']}/environ").read_bytes().decode().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def test_neither_environment_nor_argv_travel_in_an_address_a_status_an_event_or_a_log(world: World) -> None:
    world.put_secret("password", value=f"planted-{secret(Kind.SECRET_VALUE)}")
    world.create(
        "one",
        launch={
            "command": ["sh", "-c", "exec sleep 600", f"planted-{secret(Kind.ENVIRONMENT)}"],
            "env": [
                {"name": "OPEN", "value": f"planted-{secret(Kind.ENVIRONMENT)}"},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "value"}}},
            ],
        },
    )
    world.await_reason("one", "Detached")
    await_true(lambda: len(world.events("one")) == 1, "the event of the launch")

    assert world.operator is not None
    outputs = json.dumps(
        [
            world.lab.requests(),
            world.status("one"),
            world.events("one"),
            world.operator.log_file.read_text(),
            world.operator.read("metrics"),
            world.lab.call("GET", "/v1/sprites/box/exec"),
        ]
    )
    assert "planted" not in outputs
    assert world.lab.token not in outputs


def test_a_launch_whose_secret_is_missing_says_so_and_starts_once_it_is_there(world: World) -> None:
    reference = {"secretKeyRef": {"name": "later", "key": "value"}}
    world.create("one", launch={"command": ["sleep", "600"], "env": [{"name": "A", "valueFrom": reference}]})
    status = world.await_reason("one", "LaunchInvalid", "Stalled")
    assert "Secret later" in json.dumps(status)
    assert world.live() == []

    world.put_secret("later", value="x")
    world.patch("one", relaunch="OnLost")

    world.await_reason("one", "Detached")
    assert len(world.live()) == 1


def test_a_launched_command_that_ends_is_not_started_again(world: World) -> None:
    world.create("one", launch={"command": ["true"]})
    world.await_reason("one", "Detached")

    request_look(world, "one")  # Nobody comes: whoever does would get a fresh session.

    status = world.await_reason("one", "ExitUnseen")
    assert status["phase"] == "Exited"
    time.sleep(1)
    assert world.live() == []
    assert len([entry for entry in world.lab.requests(cause="launch") if "tty=true" in entry["query"]]) == 1


def request_look(world: World, name: str) -> None:
    """Ask for a look, as `flux reconcile` does."""
    annotations = {"reconcile.fluxcd.io/requestedAt": str(time.time())}
    status, _ = world.cluster.request(
        "PATCH",
        f"{world.path}/{name}",
        body={"metadata": {"annotations": annotations}},
        content_type="application/merge-patch+json",
    )
    assert status == 200


def test_somebody_who_attaches_after_an_end_gets_a_fresh_session(world: World) -> None:
    world.create("one", launch={"command": ["true"]})
    world.await_reason("one", "Detached")
    request_look(world, "one")
    first = world.await_reason("one", "ExitUnseen")

    world.patch("one", attached=True, activeSocketId="socket-1")

    def is_second() -> bool:
        session = world.status("one")["session"]
        return bool(session.get("id") and session["launchIntent"] != first["session"]["launchIntent"])

    await_true(is_second, "a second session")


# --- terminate --------------------------------------------------------------------------------------------------------


@pytest.mark.case("K1")
@pytest.mark.case("K3")
@pytest.mark.case("K13")
def test_a_process_that_ignores_sigterm_dies_with_proof_while_somebody_is_attached(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    world.create("one", sessionId=session["id"], attached=True)
    world.await_reason("one", "Running")
    row = next(row for row in world.lab.processes("box") if str(row["inner_pid"]) == session["id"])
    world.lab.clear_requests()

    world.patch("one", terminated=True)
    status = world.await_reason("one", "Confirmed", "Terminated")

    assert not Path(f"/proc/{row['host_pid']}").exists()
    kills = world.lab.requests(route="exec.kill")
    assert [(entry["path"], entry["query"]) for entry in kills] == [
        (f"/v1/sprites/box/exec/{session['id']}/kill", "signal=SIGKILL")
    ]
    kill = status["kill"]
    assert (kill["signal"], kill["verdict"], kill["proof"], kill["attempts"]) == (
        "SIGKILL",
        "Complete",
        "SessionList",
        1,
    )
    assert kill["requestedTime"] <= kill["settledTime"] < kill["confirmedTime"]
    proofs = world.lab.requests(cause="prove")
    assert len(proofs) >= 2
    assert all(proof["time"] > kills[0]["finished"] for proof in proofs)


@pytest.mark.case("K18")
def test_killing_one_terminal_leaves_its_sprite_and_its_sibling_alone(world: World) -> None:
    one, two = (world.lab.start_session("box", *STUBBORN) for _ in range(2))
    adopt(world, "one", one)
    adopt(world, "two", two)

    world.patch("one", terminated=True)
    world.await_reason("one", "Confirmed", "Terminated")

    assert [entry["id"] for entry in world.live()] == [two["id"]]
    assert world.status("two")["phase"] == "Detached"


def test_a_reused_id_is_never_killed(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "one", session)
    assert world.operator is not None
    world.operator.stop()

    world.lab.set_state("box", "cold")
    time.sleep(1.1)
    world.lab.set_state("box", "running")
    innocent = world.lab.start_session("box", *STUBBORN)
    assert innocent["id"] == session["id"]
    world.patch("one", terminated=True)
    world.lab.clear_requests()
    world.start_operator()

    status = world.await_reason("one", "Confirmed", "Terminated")

    assert status["kill"]["verdict"] == "IdReused"
    assert world.lab.requests(route="exec.kill") == []
    assert [entry["id"] for entry in world.live()] == [innocent["id"]]


def test_a_session_declared_together_with_its_end_dies_too(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)

    world.create("one", sessionId=session["id"], terminated=True)

    world.await_reason("one", "Confirmed", "Terminated")
    assert world.live() == []


def test_a_terminal_that_never_had_a_session_terminates_without_a_call(world: World) -> None:
    world.lab.clear_requests()

    world.create("one", launch={"command": ["sleep", "600"]}, terminated=True)

    world.await_reason("one", "NothingToEnd", "Terminated")
    assert world.lab.requests(door="api") == []
    assert world.live() == []


@pytest.mark.case("K7")
def test_an_error_line_fails_the_kill_until_it_is_gone_and_stages_are_written(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "one", session)
    world.lab.arm_fault({"kind": "error-line", "undone": True}, route="exec.kill", times=1000)

    world.patch("one", terminated=True)
    status = world.await_reason("one", "KillFailed", "Terminated")
    assert status["kill"]["attempts"] == 3
    assert "deletionPolicy: Orphan" in json.dumps(status)
    assert status["phase"] == "Terminating"
    world.lab.disarm_faults()

    world.await_reason("one", "Confirmed", "Terminated")
    # That they are no longer than that is seen without a clock, by tests/plan/test_kill.py.
    times = [entry["time"] for entry in world.lab.requests(route="exec.kill")]
    assert times[1] - times[0] >= 0.5
    assert times[2] - times[1] >= 1.0
    assert world.live() == []


# --- delete, orphan, suspend ------------------------------------------------------------------------------------------


def test_deletion_waits_for_the_proof_and_then_lets_go(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "one", session)

    world.delete("one")
    world.await_gone("one")

    assert terminals(world) == []
    assert len(world.lab.requests(route="exec.kill")) == 1


def test_deletion_with_orphan_lets_go_and_leaves_the_session(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "one", session, deletionPolicy="Orphan")

    world.delete("one")
    world.await_gone("one")

    assert [entry["id"] for entry in terminals(world)] == [session["id"]]
    assert world.lab.requests(route="exec.kill") == []


def test_orphan_frees_an_object_whose_kill_cannot_be_confirmed(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "one", session)
    world.lab.arm_fault({"kind": "status", "status": 500}, route="exec.kill", times=1000)
    world.delete("one")
    world.await_reason("one", "KillFailed", "Terminated")

    world.patch("one", deletionPolicy="Orphan")

    world.await_gone("one")
    assert len(terminals(world)) == 1


def test_a_suspended_terminal_starts_nothing_and_can_be_deleted(world: World) -> None:
    world.create("one", launch={"command": ["sleep", "600"]}, suspend=True)
    world.await_reason("one", "Suspended")
    assert world.live() == []

    world.delete("one")
    world.await_gone("one")


def test_a_suspended_terminal_starts_once_it_is_resumed(world: World) -> None:
    world.create("one", launch={"command": ["sleep", "600"]}, suspend=True)
    world.await_reason("one", "Suspended")

    world.patch("one", suspend=False)

    world.await_reason("one", "Detached")
    assert len(world.live()) == 1


# --- rest -------------------------------------------------------------------------------------------------------------


def test_nothing_is_written_at_rest_nor_after_a_restart(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    adopt(world, "one", session)
    before = world.get("one")

    world.start_operator(RESYNC_SECONDS="10", METADATA_SECONDS="5")
    operator = world.operator
    assert operator is not None
    listed = 'agentterminal_kube_calls_total{outcome="Ok",resource="agentterminals",verb="list"}'
    await_true(lambda: listed in operator.read("metrics"), "a resync")

    after = world.get("one")
    assert before is not None
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_status_never_lands_on_a_successor_of_the_same_name(world: World) -> None:
    session = world.lab.start_session("box", *STUBBORN)
    with Gate(world.lab.url) as gate:
        world.sprites_url = gate.url
        world.start_operator()
        look = gate.hold(is_session_list, At.AFTER)
        world.create("one", sessionId=session["id"])
        look.await_reached()
        world.delete("one")
        world.create("one", sessionId="9999")
        look.release()

        status = world.await_reason("one", "SessionNotFound", "Stalled")
        assert "session" not in status


def test_the_operator_ends_in_good_order_and_says_so(world: World) -> None:
    assert world.operator is not None
    assert "agentterminal_build_info" in world.operator.read("metrics")
    assert "well" in world.operator.read("healthz")
    assert "seen" in world.operator.read("readyz")
    pid = world.operator.process.pid

    assert world.operator.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_finalizer_that_somebody_took_off_comes_back_and_guards_the_deletion(world: World) -> None:
    world.create("one", launch={"command": ["sleep", "600"]})
    world.await_reason("one", "Detached")

    world.cluster.request(
        "PATCH",
        f"{world.path}/one",
        body={"metadata": {"finalizers": None}},
        content_type="application/merge-patch+json",
    )

    await_true(lambda: has_finalizer(world, "one"), "the finalizer to be back")
    world.delete("one")
    world.await_gone("one")
    assert terminals(world) == []


def has_finalizer(world: World, name: str) -> bool:
    terminal = world.get(name)
    assert terminal is not None
    return bool(terminal["metadata"].get("finalizers") == ["agentterminal.dev/session"])

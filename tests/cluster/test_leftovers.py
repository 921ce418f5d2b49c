"""
What kills do not reach, with real processes: it is found, told by id and name and nothing else, and costs little.

Every test ends by emptying its sprite, so that what was left behind on purpose goes with it.
"""

import json
import time
from typing import Any

import pytest

from tests.cluster.gate import At, Gate
from tests.cluster.stage import is_kill, of
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import Kind, secret

SERVER = "setsid sleep 98765431 & exec sleep 600"
"""Leaves a process in a session of its own, as a server that somebody put into the background."""
JOB = "set -m; nohup sleep 98765432 >/dev/null & exec sleep 600"
"""Leaves a background job in the terminal's session, in a process group of its own."""
QUIET = "exec sleep 600"
SECRET = secret(Kind.ENVIRONMENT)


def launch(script: str, **more: Any) -> dict[str, Any]:
    """Launch a script that has something in its environment which must not be told."""
    return {"launch": {"command": ["sh", "-c", script], "env": [{"name": "PLANTED", "value": SECRET}]}, **more}


def find_sleepers(world: World, seconds: int, sprite: str = "box") -> list[str]:
    """The process ids inside of what sleeps for so many seconds."""
    processes = world.lab.processes(sprite)
    return [str(process["inner_pid"]) for process in processes if process["argv"] == ["sleep", str(seconds)]]


def count_searches(world: World) -> int:
    return len(world.lab.requests(cause="leftovers"))


def read_count(world: World, result: str) -> float:
    assert world.operator is not None
    name = f'agentterminal_leftovers_total{{result="{result}"}} '
    return next(float(line.removeprefix(name)) for line in world.operator.read("metrics").splitlines() if name in line)


def await_counts(world: World, **wanted: int) -> None:
    """Wait until findings have been counted, which they are once they were told."""
    wanted = {result.rstrip("_"): count for result, count in wanted.items()}

    def read_counts() -> dict[str, float]:
        return {result: read_count(world, result) for result in wanted}

    await_true(lambda: read_counts() == wanted, f"{wanted} to be counted", tell=lambda: str(read_counts()))


def tell_leftovers(world: World, name: str) -> list[str]:
    """The notes of the Events about leftovers."""
    return [event["note"] for event in world.events(name) if event["reason"] == "LeftoversFound"]


def await_note(world: World, name: str) -> str:
    """Wait for the one Event about leftovers, and give its note."""
    await_true(lambda: len(tell_leftovers(world, name)) == 1, f"an Event about {name}", 40)
    return tell_leftovers(world, name)[0]


def test_what_left_the_terminals_process_group_is_reported_with_the_proof_and_left_alone(world: World) -> None:
    world.create("server", **launch(SERVER))
    world.create("job", **launch(JOB))
    world.create("reaped", **launch(SERVER))
    world.create("quiet", **launch(QUIET))
    adopted = world.lab.start_session("box", "sh", "-c", f"setsid sleep 98765433 & {JOB}")
    clean = world.lab.start_session("box", "sh", "-c", "setsid sleep 98765434 & exec sleep 600")
    world.create("adopted", sessionId=adopted["id"])
    world.create("clean", sessionId=clean["id"])
    names = ("server", "job", "adopted", "quiet", "clean")
    for name in (*names, "reaped"):
        world.await_reason(name, "Detached")
    counts = {98765431: 2, 98765432: 2, 98765433: 1, 98765434: 1}
    # A job becomes its command a moment after its session is seen.
    await_true(
        lambda: all(len(find_sleepers(world, seconds)) == count for seconds, count in counts.items()), "the jobs"
    )
    sleepers = {seconds: find_sleepers(world, seconds) for seconds in counts}

    world.patch("reaped", idleTimeoutSeconds=1)
    for name in names:
        world.patch(name, terminated=True)
    told = {"reaped": world.await_reason("reaped", "Reaped", "SessionLive")}
    for name in ("server", "job", "adopted"):
        told[name] = world.await_reason(name, "LeftoversFound", "Terminated")
        assert read_condition(told[name], "Terminated")["status"] == "True"
        assert read_condition(told[name], "Ready")["status"] == "True"
    for name in ("quiet", "clean"):
        told[name] = world.await_reason(name, "Confirmed", "Terminated")

    left = {name: status["kill"]["leftovers"] for name, status in told.items()}
    assert {name: found["result"] for name, found in left.items()} == {
        "server": "Found",
        "job": "Found",
        "reaped": "Found",
        "adopted": "Found",
        "quiet": "None",
        "clean": "NoneInSession",
    }
    for name in ("server", "job", "reaped", "adopted"):
        (process,) = left[name]["processes"]
        assert (left[name]["count"], process["name"]) == (1, "sleep")
        expected = sleepers[98765431 if name in ("server", "reaped") else 98765432]
        assert str(process["pid"]) in expected
        kind = "SessionLive" if name == "reaped" else "Terminated"
        assert f"{process['pid']} (sleep)" in read_condition(told[name], kind)["message"]
        assert f"{process['pid']} (sleep)" in await_note(world, name)
    assert "cannot be known" in read_condition(told["clean"], "Terminated")["message"]
    assert tell_leftovers(world, "quiet") == tell_leftovers(world, "clean") == []

    # Reported, and not killed: whether somebody wants them is not ours to know.
    assert {seconds: find_sleepers(world, seconds) for seconds in sleepers} == sleepers
    await_counts(world, Found=4, None_=1, NoneInSession=1)
    assert_nothing_private_was_told(world)

    # The next generation says the same.
    world.patch("server", holdWanted=True)
    status = world.await_reason("server", "LeftoversFound", "Terminated")
    assert status["kill"]["leftovers"] == left["server"]
    assert len(tell_leftovers(world, "server")) == 1


def assert_nothing_private_was_told(world: World) -> None:
    """Process ids and command names are told; arguments and environments are not."""
    assert world.operator is not None
    _, events = world.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    statuses = [status["status"] for status in world.cluster.request("GET", world.path)[1]["items"]]
    told = json.dumps([statuses, events]) + world.operator.log_file.read_text()
    assert "9876543" not in told
    assert SECRET not in told
    assert "PLANTED" not in told


def test_many_that_are_deleted_at_once_are_searched_for_together_and_told_of_after_they_are_gone(world: World) -> None:
    world.lab.create_sprites("other")
    world.lab.set_state("other", "running")
    for number in range(6):
        world.create(f"box-{number}", **launch(SERVER if number == 0 else QUIET))
        world.create(f"other-{number}", spriteName="other", **launch(QUIET))
    for number in range(6):
        world.await_reason(f"box-{number}", "Detached")
        world.await_reason(f"other-{number}", "Detached")
    world.lab.clear_requests()
    await_true(lambda: len(find_sleepers(world, 98765431)) == 1, "the job")
    (sleeper,) = find_sleepers(world, 98765431)

    for number in range(6):
        world.delete(f"box-{number}")
        world.delete(f"other-{number}")
    for number in range(6):
        world.await_gone(f"box-{number}")
        world.await_gone(f"other-{number}")

    assert f"{sleeper} (sleep)" in await_note(world, "box-0")
    await_counts(world, Found=1, None_=11)
    searches = world.lab.requests(cause="leftovers")
    # One a sprite, and another where something was found; a busy machine may make two bursts of one.
    assert {"box", "other"} == {search["sprite"] for search in searches}
    assert 3 <= len(searches) <= 6
    assert find_sleepers(world, 98765431) == [sleeper]
    assert_nothing_private_was_told(world)


def test_a_search_that_fails_holds_no_proof_back_and_says_that_nothing_is_known(world: World) -> None:
    world.create("one", **launch(SERVER))
    world.await_reason("one", "Detached")
    world.lab.arm_fault({"kind": "status", "status": 500}, cause="leftovers", times=1)

    world.patch("one", terminated=True)
    status = world.await_reason("one", "Confirmed", "Terminated")

    assert status["kill"]["leftovers"]["result"] == "NotKnown"
    assert "not known" in read_condition(status, "Terminated")["message"]
    await_counts(world, NotKnown=1)


def test_many_that_are_terminated_at_once_share_their_searches(world: World) -> None:
    names = [f"one-{number}" for number in range(12)]
    for name in names:
        world.create(name, **launch(QUIET))
    for name in names:
        world.await_reason(name, "Detached")
    world.lab.clear_requests()

    for name in names:
        world.patch(name, terminated=True)
    for name in names:
        status = world.await_reason(name, "Confirmed", "Terminated")
        assert status["kill"]["leftovers"]["result"] == "None"

    assert 1 <= count_searches(world) <= len(world.lab.requests(route="exec.kill"))
    assert len(world.lab.requests(route="exec.kill")) == len(names)


@pytest.mark.case("K13")
def test_a_kill_that_waited_for_its_place_hits_nobody_who_got_the_id_meanwhile(world: World) -> None:
    """Two kills hang, the sprite restarts cold, other sessions get the same ids, and then the third gets its turn."""
    sessions = [world.lab.start_session("box", "sleep", "600") for _ in range(3)]
    names = [session["id"] for session in sessions]
    with Gate(world.lab.url) as gate:
        world.sprites_url = gate.url
        world.start_operator(METADATA_SECONDS="1")
        for number, session in enumerate(sessions):
            world.create(f"one-{number}", sessionId=session["id"])
        for number in range(3):
            world.await_reason(f"one-{number}", "Detached")
        held = [gate.hold(of(name, is_kill), At.BEFORE) for name in names[:2]]
        for number in range(2):
            world.patch(f"one-{number}", terminated=True)
        for hold in held:
            hold.await_reached()
        world.lab.clear_requests()
        world.patch("one-2", terminated=True)
        await_true(lambda: bool(world.lab.requests(cause="identify")), "the third to be identified")

        world.lab.set_state("box", "cold")
        later = time.monotonic() + 1.2
        await_true(lambda: time.monotonic() > later, "the second in which an id does not come again")
        world.lab.set_state("box", "running")
        strangers = [world.lab.start_session("box", "sleep", "600") for _ in range(3)]
        assert [stranger["id"] for stranger in strangers] == names

        for number in range(3):
            world.await_reason(f"one-{number}", "Confirmed", "Terminated", within=60)
        assert sorted(entry["id"] for entry in world.live()) == sorted(names)
        assert all(entry["signals"] == [] for entry in world.live())

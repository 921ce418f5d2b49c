"""Holds on a real API server, with real processes and the sprite's own Tasks API on its unix socket."""

import time
from typing import Any

import pytest

from controller.plan.hold_names import PREFIX
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World, read_condition
from tests.support.process import await_true

QUICK = {"expireSeconds": 30, "refreshSeconds": 5}
LASTING = {"expireSeconds": 120, "refreshSeconds": 5}
"""As quick, and there for as long as a busy machine may need to start an operator."""


def tasks(world: World) -> list[dict[str, Any]]:
    return [task for task in world.lab.tasks("box") if task["name"].startswith(PREFIX)]


def hold_commands(world: World) -> list[dict[str, Any]]:
    """The commands that set or remove tasks, in their order."""
    return [entry for entry in world.lab.requests(cause="hold") if "X=" in entry["query"] or "-X" in entry["query"]]


def create_held(world: World, name: str, **spec: Any) -> dict[str, Any]:
    world.create(name, **{"launch": {"command": ["sleep", "600"]}, "holdWanted": True, "attached": True, **spec})
    return world.await_reason(name, "HoldActive", "Held")


def test_work_holds_the_sprite_and_the_status_says_why(world: World) -> None:
    status = create_held(world, "one")

    assert len(tasks(world)) == 1
    assert status["phase"] == "Held"
    assert status["hold"]["cause"] == "Viewer"
    assert tasks(world)[0]["name"].startswith(status["hold"]["task"])
    assert read_condition(status, "Ready")["status"] == "True"


def test_no_hold_without_a_wish(world: World) -> None:
    world.create("one", launch={"command": ["sleep", "600"]}, attached=True)
    world.await_reason("one", "Running")

    assert world.condition("one", "Held")["reason"] == "NotWanted"
    assert tasks(world) == []
    assert world.lab.requests(cause="hold") == []


@pytest.mark.case("C2")
def test_a_hold_ends_at_once_when_it_is_not_wanted_any_more(world: World) -> None:
    create_held(world, "one")

    world.patch("one", holdWanted=False)

    status = world.await_reason("one", "NotWanted", "Held")
    assert tasks(world) == []
    assert "hold" not in status
    assert status["phase"] == "Running"


@pytest.mark.case("A11")
def test_a_hold_ends_with_its_session(world: World) -> None:
    create_held(world, "one")

    world.patch("one", terminated=True)
    world.await_reason("one", "Confirmed", "Terminated")

    await_true(lambda: tasks(world) == [], "the task to be removed")


def test_a_hold_goes_with_its_object(world: World) -> None:
    create_held(world, "one")

    world.delete("one")
    world.await_gone("one")

    await_true(lambda: tasks(world) == [], "the task to be removed")


@pytest.mark.case("C1")
def test_a_hold_is_refreshed_before_it_expires(world: World) -> None:
    create_held(world, "one", hold=QUICK)
    first = tasks(world)[0]["expires_at"]

    await_true(lambda: tasks(world)[0]["expires_at"] > first, "a refresh", within=25)
    assert len(tasks(world)) == 1


def test_all_terminals_of_a_sprite_share_one_command(world: World) -> None:
    for number in range(4):
        create_held(world, f"held-{number}", hold=QUICK)
    await_true(lambda: len(tasks(world)) == 4, "four tasks")
    world.lab.clear_requests()

    time.sleep(11)

    commands = hold_commands(world)
    assert 1 <= len(commands) <= 6
    assert all(task["expires_at"] for task in tasks(world))
    assert len(tasks(world)) == 4


@pytest.mark.case("C14")
def test_a_dead_operator_leaves_no_hold_beyond_its_expiry(cluster: Cluster, namespace: str) -> None:
    """On an emulator of its own, since its clock is moved."""
    with EmulatorProcess() as lab, World(cluster, namespace, lab) as world:
        lab.create_sprites("box")
        operator = world.start_operator()
        create_held(world, "one")

        operator.kill()
        lab.advance_clock(240)
        assert len(tasks(world)) == 1
        lab.advance_clock(61)

        assert tasks(world) == []


def test_a_restart_makes_neither_a_gap_nor_a_second_task(world: World) -> None:
    create_held(world, "one", hold=LASTING)
    before = tasks(world)[0]
    assert world.operator is not None
    world.operator.kill()

    world.start_operator()

    await_true(lambda: tasks(world)[0]["expires_at"] > before["expires_at"], "the hold to go on")
    assert [task["name"] for task in tasks(world)] == [before["name"]]


def test_a_hold_that_was_not_wanted_any_more_during_an_outage_is_removed_after_it(world: World) -> None:
    create_held(world, "one")
    assert world.operator is not None
    world.operator.kill()
    world.patch("one", holdWanted=False)

    world.start_operator()

    await_true(lambda: tasks(world) == [], "the task to be removed")
    assert "hold" not in world.await_reason("one", "NotWanted", "Held")


def test_an_idle_terminal_is_let_go_by_itself(world: World) -> None:
    once = {"command": ["sh", "-c", "echo hello; exec sleep 600"]}
    status = create_held(world, "one", attached=None, hold=QUICK, launch=once)
    assert status["hold"]["cause"] == "Activity"

    world.await_reason("one", "NotHeld", "Held", within=60)

    assert tasks(world) == []


def test_an_agents_own_hook_keeps_the_hold(world: World) -> None:
    create_held(world, "one", attached=None, hold=QUICK)
    end = time.monotonic() + 16
    while time.monotonic() < end:
        mark_activity(world, "one")
        assert len(tasks(world)) == 1
        time.sleep(2)

    assert world.condition("one", "Held")["status"] == "True"


def mark_activity(world: World, name: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status, _ = world.cluster.request(
        "PATCH",
        f"{world.path}/{name}",
        body={"metadata": {"annotations": {"agentterminal.dev/activity": now}}},
        content_type="application/merge-patch+json",
    )
    assert status == 200


PAUSES = 5
"""Whoever saw the sprite run a moment ago may call it once more, and wakes it."""


def await_looks(world: World) -> None:
    """Wait until the operator knows what the sprite is now: a look begins when the one before it was taken in."""
    since = time.time()
    await_true(lambda: len(world.lab.requests(cause="metadata", after=since)) >= 3, "looks at the sprite")


@pytest.mark.case("U8")
def test_a_paused_sprite_is_never_woken_for_a_hold(world: World) -> None:
    create_held(world, "one", hold=QUICK)
    world.start_operator(METADATA_SECONDS="1")
    for _ in range(PAUSES):
        world.lab.set_state("box", "warm")
        await_looks(world)
        if world.lab.sprite("box")["true_status"] == "warm":
            break
    world.lab.clear_requests()

    time.sleep(12)

    assert world.lab.requests(cause="hold") == []
    assert world.lab.sprite("box")["true_status"] == "warm"

"""Reaps on a real API server, with real processes: what nobody watches ends, with proof, and never by a wake."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.operator import World
from tests.support.process import await_true

STUBBORN = {"command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]}


@pytest.mark.case("I1")
@pytest.mark.case("I6")
def test_a_session_that_starts_unwatched_is_reaped_with_proof_when_its_time_is_over(world: World) -> None:
    begun = time.monotonic()
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=3)

    status = world.await_reason("one", "Reaped", "SessionLive")

    assert time.monotonic() - begun >= 3
    assert status["phase"] == "Exited"
    kill = status["kill"]
    assert (kill["trigger"], kill["signal"], kill["proof"]) == ("Reaped", "SIGKILL", "SessionList")
    assert world.condition("one", "Terminated")["status"] == "False"
    assert world.condition("one", "Ready")["status"] == "True"
    assert world.live() == []


@pytest.mark.case("I2")
def test_a_viewer_who_comes_in_time_keeps_the_session(world: World) -> None:
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=8)
    world.await_reason("one", "Detached")

    world.patch("one", attached=True)
    # Its time would have been over before that of a later one, which is reaped when nobody comes.
    world.create("later", launch=STUBBORN, idleTimeoutSeconds=8)
    world.await_reason("later", "Reaped", "SessionLive")

    assert world.condition("one", "Reconciling")["reason"] == "Running"
    assert len(world.live()) == 1
    assert len(world.lab.requests(route="exec.kill")) == 1


def test_the_idle_time_counts_across_a_restart(world: World) -> None:
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=12)
    detached = datetime.fromisoformat(world.await_reason("one", "Detached")["detachedTime"])
    # It would be reaped at the same moment without a restart, so that this wait makes nothing longer.
    time.sleep(8)
    assert world.operator is not None
    world.operator.kill()

    world.start_operator()
    # However long the start took: a clock that began with it has its 12 s before it from about now.
    anew = datetime.now(UTC)

    status = world.await_reason("one", "Reaped", "SessionLive")
    ended = datetime.fromisoformat(status["session"]["ended"]["time"])
    assert detached + timedelta(seconds=12) <= ended < anew + timedelta(seconds=10)
    assert world.live() == []


@pytest.mark.case("I9")
def test_a_timeout_of_zero_never_reaps(world: World) -> None:
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=0)
    world.await_reason("one", "Detached")

    time.sleep(2)

    assert len(world.live()) == 1
    assert world.condition("one", "Reconciling")["reason"] == "Detached"


def test_a_reaped_terminal_is_not_started_again_until_somebody_comes(world: World) -> None:
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=2, relaunch="OnLost")
    world.await_reason("one", "Reaped", "SessionLive")
    time.sleep(2)
    assert world.live() == []

    world.patch("one", attached=True, activeSocketId="somebody")

    world.await_reason("one", "Running")
    assert len(world.live()) == 1


def test_a_reap_on_a_paused_sprite_is_owed_and_done_when_it_runs_again(world: World) -> None:
    world.start_operator(METADATA_SECONDS="5")
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=12)
    world.await_reason("one", "Detached")
    world.lab.set_state("box", "warm")

    world.await_reason("one", "ReapOwed", within=60)
    assert world.lab.sprite("box")["true_status"] == "warm"
    assert world.lab.requests(route="exec.kill") == []

    world.lab.set_state("box", "running")
    world.await_reason("one", "Reaped", "SessionLive", within=60)
    assert world.live() == []


def test_a_failed_reap_is_tried_again_and_never_forgotten(world: World) -> None:
    world.lab.arm_fault({"kind": "error-line", "undone": True}, route="exec.kill", times=4)
    world.create("one", launch=STUBBORN, idleTimeoutSeconds=2)

    await_true(lambda: len(world.lab.requests(route="exec.kill")) >= 3, "three kills")
    world.await_reason("one", "Reaped", "SessionLive", within=60)

    assert world.live() == []

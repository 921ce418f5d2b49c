"""
kill -9 of the operator at every point of a life: a fresh start comes to one session, one proven kill and no leftover.

A gate on each side stops the operator at an exact point; it is killed there, and a fresh one starts with nothing but
what is recorded.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cluster.gate import At, Hold, Match
from tests.cluster.plane import Cluster
from tests.cluster.stage import (
    LAUNCH,
    Stage,
    is_command,
    is_create,
    is_finalizer_write,
    is_kill,
    is_session_list,
    is_status_write,
    is_upload,
    of,
)
from tests.support.emulator import EmulatorProcess
from tests.support.process import await_true

CONVERGES_SECONDS = 25.0
"""Less than a second on a machine that is idle; before the next look at all objects in any case."""
STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")


@pytest.fixture(scope="module")
def standing(
    cluster: Cluster, lab_process: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """One stage for all tests of this module: the operator that a test leaves is the one that the next one kills."""
    status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "crashes"}})
    assert status == 201
    lab_process.reset()
    stage = Stage(cluster, "crashes", lab_process, tmp_path_factory.mktemp("crashes"))
    stage.open()
    try:
        yield stage
        stage.await_all_empty()
    finally:
        stage.close()
        cluster.empty_namespace("crashes")
        lab_process.reset()


@pytest.fixture
def stage(standing: Stage) -> Stage:
    """The stage with an operator that runs, whatever the test before did."""
    standing.lab.disarm_faults()
    standing.lab.switch(listed_command="started")
    standing.start()
    return standing


@dataclass(frozen=True)
class Point:
    """Where the operator is killed."""

    name: str
    match: Match
    at: At
    skip: int = 0

    def arm(self, stage: Stage, name: str) -> Hold:
        """Stop the next request about an object of that name here."""
        is_kubernetes = self.match in (is_finalizer_write, is_status_write)
        gate = stage.kube if is_kubernetes else stage.sprites
        return gate.hold(of(name, self.match), self.at, skip=self.skip)


def end_well(stage: Stage, name: str, *, session_id: str | None = None) -> None:
    """Terminate and delete an object, and see one proven kill and nothing left."""
    status = stage.world.status(name)
    session_id = session_id or status["session"]["id"]
    stage.world.patch(name, terminated=True)
    expect_confirmed(stage, name, session_id)
    stage.world.delete(name)
    stage.world.await_gone(name)
    stage.expect_empty(name)


def expect_confirmed(stage: Stage, name: str, session_id: str) -> dict[str, Any]:
    """Wait for the proof, and see that the session died of one kill."""
    status = stage.world.await_reason(name, "Confirmed", "Terminated")
    assert status["phase"] == "Terminated"
    assert status["session"]["id"] == session_id
    assert status["session"]["ended"]["reason"] == "Terminated"
    assert status["kill"]["proof"] == "SessionList"
    assert [entry["path"].split("/")[-2] for entry in stage.list_kills(name)] == [session_id]
    assert stage.list_terminals(name) == []
    return status


# --- a start that is cut ----------------------------------------------------------------------------------------------

LAUNCH_POINTS = (
    Point("before the finalizer is written", is_finalizer_write, At.BEFORE),
    Point("once the finalizer is written", is_finalizer_write, At.AFTER),
    Point("before the intent is written", is_status_write, At.BEFORE),
    Point("once the intent is written", is_status_write, At.AFTER),
    Point("before the upload of the script", is_upload, At.BEFORE),
    Point("while the upload waits for the script", is_upload, At.AFTER),
    Point("once the script is stored", is_upload, At.UPGRADED),
    Point("between the upload and the create", is_create, At.BEFORE),
    Point("once the process is created and before the upgrade is answered", is_create, At.AFTER),
    Point("between the upgrade and session_info", is_create, At.UPGRADED),
    Point("between session_info and the status", is_status_write, At.BEFORE, skip=1),
    Point("once the session is written", is_status_write, At.AFTER, skip=1),
)


@pytest.mark.parametrize("point", LAUNCH_POINTS, ids=lambda point: point.name)
def test_a_launch_that_is_cut_runs_its_command_exactly_once(stage: Stage, point: Point) -> None:
    name = stage.prepare()
    hold = point.arm(stage, name)
    stage.create(name, launch=LAUNCH)
    hold.await_reached()

    stage.crash()
    stage.start()
    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)

    stage.expect_one_run(name)
    assert stage.list_terminals(name) == [status["session"]["id"]]
    end_well(stage, name)
    stage.expect_one_run(name)


def test_a_create_that_arrives_after_the_crash_is_the_one_session(stage: Stage) -> None:
    name = stage.prepare()
    hold = stage.sprites.hold(of(name, is_create), At.BEFORE_FOR_SURE)
    stage.create(name, launch=LAUNCH)
    hold.await_reached()

    stage.crash()
    hold.release()
    await_true(lambda: stage.count_runs(name) == 1, "the late create to run its command")
    stage.start()

    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    assert stage.list_terminals(name) == [status["session"]["id"]]
    end_well(stage, name)
    stage.expect_one_run(name)


def test_a_create_that_arrives_when_another_has_followed_runs_nothing(stage: Stage) -> None:
    name = stage.prepare()
    late = stage.sprites.hold(of(name, is_create), At.BEFORE_FOR_SURE)
    stage.create(name, launch=LAUNCH)
    late.await_reached()
    stage.crash()
    stage.start()
    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)

    late.release()
    late.await_done()

    await_true(lambda: stage.list_terminals(name) == [status["session"]["id"]], "the late session to be gone")
    end_well(stage, name)
    stage.expect_one_run(name)


def test_two_creates_of_one_launch_that_race_run_its_command_once_and_leave_no_session_behind(stage: Stage) -> None:
    """The late one of the dead operator arrives between the upload and the create of the fresh one."""
    name = stage.prepare()
    late = stage.sprites.hold(of(name, is_create), At.BEFORE_FOR_SURE)
    stage.create(name, launch=LAUNCH)
    late.await_reached()
    stage.crash()
    own = stage.sprites.hold(of(name, is_create), At.BEFORE)
    stage.start()
    own.await_reached()

    late.release()
    late.await_done()
    own.release()

    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    stage.expect_one_run(name)
    await_true(lambda: stage.list_terminals(name) == [status["session"]["id"]], "one session")
    end_well(stage, name)
    stage.expect_one_run(name)


def test_a_write_of_a_dead_operator_that_arrives_late_changes_nothing(stage: Stage) -> None:
    name = stage.prepare()
    late = stage.kube.hold(of(name, is_status_write), At.BEFORE_FOR_SURE)
    stage.create(name, launch=LAUNCH)
    late.await_reached()
    stage.crash()
    stage.start()
    stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    before = stage.world.get(name)

    late.release()
    late.await_done()

    assert stage.world.get(name) == before
    end_well(stage, name)
    stage.expect_one_run(name)


# --- a search that is cut ---------------------------------------------------------------------------------------------

SEARCH_POINTS = (
    Point("before its list", is_session_list, At.BEFORE),
    Point("before its probe", is_command, At.BEFORE),
    Point("once its probe has looked", is_command, At.AFTER),
)
BAR_POINTS = (
    Point("before its bar", is_command, At.BEFORE, skip=1),
    Point("while its bar is under way", is_command, At.AFTER, skip=1),
    Point("once its bar stands", is_command, At.UPGRADED, skip=1),
    Point("before the new intent is written", is_status_write, At.BEFORE),
    Point("once the new intent is written", is_status_write, At.AFTER),
)


@pytest.mark.parametrize("point", SEARCH_POINTS, ids=lambda point: point.name)
def test_a_second_crash_while_a_running_launch_is_searched_for_changes_nothing(stage: Stage, point: Point) -> None:
    stage.lab.switch(listed_command="current")
    name = stage.prepare()
    lost = stage.sprites.hold(of(name, is_create), At.AFTER)
    stage.create(name, launch=LAUNCH)
    lost.await_reached()
    stage.crash()
    stage.expect_one_run(name)

    hold = point.arm(stage, name)
    stage.start()
    hold.await_reached()
    stage.crash()
    stage.start()

    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    assert stage.list_terminals(name) == [status["session"]["id"]]
    end_well(stage, name)
    stage.expect_one_run(name)


@pytest.mark.parametrize("point", BAR_POINTS, ids=lambda point: point.name)
def test_a_second_crash_while_a_launch_that_never_ran_is_barred_changes_nothing(stage: Stage, point: Point) -> None:
    name = stage.prepare()
    lost = stage.sprites.hold(of(name, is_create), At.BEFORE)
    stage.create(name, launch=LAUNCH)
    lost.await_reached()
    stage.crash()

    hold = point.arm(stage, name)
    stage.start()
    hold.await_reached()
    stage.crash()
    stage.start()

    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    stage.expect_one_run(name)
    assert stage.list_terminals(name) == [status["session"]["id"]]
    end_well(stage, name)
    stage.expect_one_run(name)


# --- an answer that is lost without a crash ---------------------------------------------------------------------------


@pytest.mark.parametrize("listed", ["started", "current"], ids=["by the list", "by its environment"])
@pytest.mark.parametrize("lost", ["after", "upgraded"])
def test_a_session_whose_create_was_not_answered_is_found(stage: Stage, lost: str, listed: str) -> None:
    stage.lab.switch(listed_command=listed)
    name = stage.prepare()
    stage.lab.arm_fault({"kind": "drop", "when": lost}, route="exec.create", sprite=name, skip=1)

    stage.create(name, launch=LAUNCH)

    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    stage.expect_one_run(name)
    assert stage.list_terminals(name) == [status["session"]["id"]]
    end_well(stage, name)
    stage.expect_one_run(name)


def test_a_command_that_ran_to_its_end_behind_a_lost_answer_is_known_by_its_mark_and_not_run_again(
    stage: Stage,
) -> None:
    name = stage.prepare()
    lost = stage.sprites.hold(of(name, is_create), At.AFTER)
    stage.create(name, launch={**LAUNCH, "command": ["sh", "-c", 'echo "$$" >> "$HOME/runs"']})
    lost.await_reached()
    await_true(lambda: stage.count_runs(name) == 1 and stage.list_terminals(name) == [], "the command to end")

    stage.sprites.cut(of(name, is_create))
    stage.sprites.mend()

    status = stage.world.await_reason(name, "ExitUnseen", within=CONVERGES_SECONDS)
    assert status["phase"] == "Exited"
    stage.expect_one_run(name)
    stage.world.delete(name)
    stage.world.await_gone(name)
    stage.expect_empty(name)


def test_a_create_that_never_reached_the_sprite_is_followed_by_another(stage: Stage) -> None:
    name = stage.prepare()
    stage.lab.arm_fault({"kind": "drop", "when": "before"}, route="exec.create", sprite=name, skip=1)

    stage.create(name, launch=LAUNCH)

    stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)
    stage.expect_one_run(name)
    end_well(stage, name)
    stage.expect_one_run(name)


def test_a_launch_that_went_down_with_its_sprite_is_searched_for_and_then_unclear_and_never_run_again(
    stage: Stage,
) -> None:
    name = stage.prepare()
    lost = stage.sprites.hold(of(name, is_create), At.AFTER)
    stage.create(name, launch=LAUNCH)
    lost.await_reached()
    stage.crash()
    stage.expect_one_run(name)
    stage.lab.set_state(name, "cold")
    stage.start()
    stage.world.await_reason(name, "WakeOwed")
    assert stage.lab.sprite(name)["true_status"] == "cold", "a restart wakes nobody"
    stage.lab.set_state(name, "running")
    asked = {"cause": "find", "route": "exec.create", "sprite": name}
    await_true(lambda: stage.lab.requests(**asked) != [], "the search", within=45)
    stage.world.await_reason(name, "Starting")

    stage.lab.set_state(name, "running")
    age_intent(stage, name, seconds=130)

    status = stage.world.await_reason(name, "LaunchUnclear", "Stalled")
    assert status["phase"] == "Failed"
    assert "run it twice" in json.dumps(status)
    stage.expect_one_run(name)

    stage.world.patch(name, attached=True)
    await_true(lambda: stage.count_runs(name) == 2, "somebody who came since to get a session")
    stage.world.await_reason(name, "Running")
    end_well(stage, name)


def age_intent(stage: Stage, name: str, *, seconds: float) -> None:
    """Make an intent older than it is, in the place of the wait; a crash follows, since the operator never rereads."""
    stage.crash()
    asked = datetime.now(UTC) - timedelta(seconds=seconds)
    patch = {"status": {"session": {"launchIntent": {"requestedTime": asked.isoformat().replace("+00:00", "Z")}}}}
    status, answer = stage.cluster.request(
        "PATCH", f"{stage.world.path}/{name}/status", body=patch, content_type="application/merge-patch+json"
    )
    assert status == 200, answer
    stage.start()


# --- an end of what was lost ------------------------------------------------------------------------------------------


def lose_launch(stage: Stage, at: At) -> tuple[str, Hold]:
    """Crash around a create, and give its name and the create that was held."""
    name = stage.prepare()
    lost = stage.sprites.hold(of(name, is_create), at)
    stage.create(name, launch=LAUNCH)
    lost.await_reached()
    stage.crash()
    return name, lost


def test_the_session_of_a_lost_launch_dies_when_the_terminal_is_terminated(stage: Stage) -> None:
    name, _ = lose_launch(stage, At.AFTER)
    stage.expect_one_run(name)
    session_id = stage.list_terminals(name)[0]

    stage.world.patch(name, terminated=True)
    stage.start()

    expect_confirmed(stage, name, session_id)
    stage.world.delete(name)
    stage.world.await_gone(name)
    stage.expect_empty(name)


def test_the_session_of_a_lost_launch_dies_when_the_terminal_is_deleted(stage: Stage) -> None:
    name, _ = lose_launch(stage, At.AFTER)
    stage.expect_one_run(name)
    stage.world.delete(name)
    stage.start()

    stage.world.await_gone(name)

    assert len(stage.list_kills(name)) == 1
    stage.expect_empty(name)
    stage.expect_one_run(name)


def test_a_lost_launch_that_never_ran_is_barred_before_a_deleted_terminal_goes(stage: Stage) -> None:
    name, late = lose_launch(stage, At.BEFORE_FOR_SURE)
    stage.world.delete(name)
    stage.start()
    stage.world.await_gone(name)

    late.release()
    late.await_done()

    await_true(lambda: stage.list_terminals(name) == [], "the late session to be gone")
    stage.expect_empty(name)
    assert stage.count_runs(name) == 0
    assert stage.list_kills(name) == []


def test_a_lost_launch_that_never_ran_is_proven_never_to_have_started(stage: Stage) -> None:
    name, late = lose_launch(stage, At.BEFORE_FOR_SURE)
    stage.world.patch(name, terminated=True)
    stage.start()

    status = stage.world.await_reason(name, "Confirmed", "Terminated")
    assert status["kill"]["proof"] == "NeverStarted"
    late.release()
    late.await_done()

    await_true(lambda: stage.list_terminals(name) == [], "the late session to be gone")
    stage.expect_empty(name)
    assert stage.count_runs(name) == 0


# --- an adoption that is cut ------------------------------------------------------------------------------------------

ADOPTION_POINTS = (
    Point("before the finalizer is written", is_finalizer_write, At.BEFORE),
    Point("between the finalizer and the status", is_finalizer_write, At.AFTER),
    Point("before the status is written", is_status_write, At.BEFORE),
    Point("once the status is written", is_status_write, At.AFTER),
)


@pytest.mark.parametrize("point", ADOPTION_POINTS, ids=lambda point: point.name)
def test_an_adoption_that_is_cut_adopts_the_session_and_starts_none(stage: Stage, point: Point) -> None:
    name = stage.prepare()
    session = stage.lab.start_session(name, *STUBBORN)
    hold = point.arm(stage, name)
    stage.create(name, sessionId=session["id"], launch=LAUNCH)
    hold.await_reached()

    stage.crash()
    stage.start()
    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)

    assert (status["session"]["id"], status["session"]["origin"]) == (session["id"], "Adopted")
    end_well(stage, name)
    commands = stage.lab.requests(route="exec.create", sprite=name)
    assert {entry["cause"] for entry in commands} <= {"leftovers"}, "Only what a kill left may be looked for."


# --- an end that is cut -----------------------------------------------------------------------------------------------

KILL_POINTS = (
    Point("before the identity is read", is_session_list, At.BEFORE),
    Point("once the identity is read", is_session_list, At.AFTER),
    Point("before the kill arrives", is_kill, At.BEFORE),
    Point("once the kill is done and its answer lost", is_kill, At.AFTER),
    Point("between the settled kill and its proof", is_session_list, At.BEFORE, skip=1),
    Point("between the two lists of the proof", is_session_list, At.BEFORE, skip=2),
)


@pytest.mark.parametrize(
    "point",
    [
        *KILL_POINTS,
        Point("between the proof and the status", is_status_write, At.BEFORE),
        Point("once the status is written", is_status_write, At.AFTER),
    ],
    ids=lambda point: point.name,
)
def test_a_termination_that_is_cut_ends_in_one_proven_kill(stage: Stage, point: Point) -> None:
    name = stage.prepare()
    session = stage.lab.start_session(name, *STUBBORN)
    sibling = stage.lab.start_session(name, *STUBBORN)
    stage.create(name, sessionId=session["id"])
    stage.world.await_reason(name, "Detached")
    hold = point.arm(stage, name)
    stage.world.patch(name, terminated=True)
    hold.await_reached()

    stage.crash()
    stage.start()
    stage.world.await_reason(name, "Confirmed", "Terminated", within=CONVERGES_SECONDS)

    assert [entry["path"].split("/")[-2] for entry in stage.list_kills(name)] == [session["id"]]
    assert stage.list_terminals(name) == [sibling["id"]]
    stage.world.delete(name)
    stage.world.await_gone(name)


@pytest.mark.parametrize(
    "point",
    [
        *KILL_POINTS,
        Point("between the proof and the removal of the finalizer", is_finalizer_write, At.BEFORE),
        Point("once the finalizer is removed", is_finalizer_write, At.AFTER),
    ],
    ids=lambda point: point.name,
)
def test_a_deletion_that_is_cut_ends_in_one_proven_kill_and_no_object(stage: Stage, point: Point) -> None:
    name = stage.prepare()
    session = stage.lab.start_session(name, *STUBBORN)
    sibling = stage.lab.start_session(name, *STUBBORN)
    stage.create(name, sessionId=session["id"])
    stage.world.await_reason(name, "Detached")
    hold = point.arm(stage, name)
    stage.world.delete(name)
    hold.await_reached()

    stage.crash()
    stage.start()
    stage.world.await_gone(name, within=CONVERGES_SECONDS)

    assert [entry["path"].split("/")[-2] for entry in stage.list_kills(name)] == [session["id"]]
    assert stage.list_terminals(name) == [sibling["id"]]


def test_a_kill_that_arrives_after_the_crash_is_the_one_kill(stage: Stage) -> None:
    name = stage.prepare()
    session = stage.lab.start_session(name, *STUBBORN)
    stage.create(name, sessionId=session["id"])
    stage.world.await_reason(name, "Detached")
    late = stage.sprites.hold(of(name, is_kill), At.BEFORE_FOR_SURE)
    stage.world.patch(name, terminated=True)
    late.await_reached()

    stage.crash()
    late.release()
    late.await_done()
    stage.start()

    expect_confirmed(stage, name, session["id"])


def test_three_crashes_in_one_life_end_in_one_session_and_one_proven_kill(stage: Stage) -> None:
    name = stage.prepare()
    stored = stage.sprites.hold(of(name, is_upload), At.UPGRADED)
    stage.create(name, launch=LAUNCH)
    stored.await_reached()
    stage.crash()
    created = stage.sprites.hold(of(name, is_create), At.UPGRADED)
    stage.start()
    created.await_reached()
    stage.crash()
    stage.start()
    status = stage.world.await_reason(name, "Detached", within=CONVERGES_SECONDS)

    killed = stage.sprites.hold(of(name, is_kill), At.AFTER)
    stage.world.patch(name, terminated=True)
    killed.await_reached()
    stage.crash()
    stage.start()

    expect_confirmed(stage, name, status["session"]["id"])
    stage.world.delete(name)
    stage.world.await_gone(name)
    stage.expect_empty(name)
    stage.expect_one_run(name)

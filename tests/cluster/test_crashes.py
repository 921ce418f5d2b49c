"""
kill -9 of the operator at every point of a life: a fresh start comes to one session, one proven kill and no leftover.

A gate on each side stops the operator at an exact point; it is killed there, and a fresh one starts with nothing but
what is recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.cluster.gate import At, Hold, Match
from tests.cluster.plane import Cluster
from tests.cluster.stage import (
    LAUNCH,
    Stage,
    is_create,
    is_finalizer_write,
    is_status_write,
    is_upload,
    of,
)
from tests.support.emulator import EmulatorProcess
from tests.support.operator import await_true

CONVERGES_SECONDS = 8.0
"""Less than a second on a machine that is idle."""
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
    finally:
        stage.close()
        cluster.empty_namespace("crashes")
        lab_process.reset()


@pytest.fixture
def stage(standing: Stage) -> Stage:
    """The stage with an operator that runs, whatever the test before did."""
    standing.lab.disarm_faults()
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
    stage.await_empty(name)


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

    await_true(lambda: stage.count_runs(name) == 1, "the command to run")
    assert stage.list_terminals(name) == [status["session"]["id"]]
    end_well(stage, name)
    assert stage.count_runs(name) == 1

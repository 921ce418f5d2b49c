"""
Both sides fail for a while: what is pending says why and waits, what rests is left alone, and all goes on by itself.

The Kubernetes API hangs, restarts, refuses and loses answers; the Sprites API is away, broken or asks for patience.
Gates on both sides see every request, so that a write too many, a call too early and a storm are seen as well.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cluster.gate import At, Match, Request
from tests.cluster.plane import Cluster
from tests.cluster.stage import (
    LAUNCH,
    Stage,
    is_create,
    is_finalizer_write,
    is_kill,
    is_session_list,
    is_status_write,
    is_watch,
    is_write,
    of,
)
from tests.support.emulator import EmulatorProcess
from tests.support.operator import read_condition
from tests.support.process import await_true

STUBBORN = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
NEVER = float("inf")
RECOVERS_SECONDS = 60.0
"""The back-off of an object has not grown beyond 8 s in an outage as short as ours; the rest is for a busy machine."""
PATIENCE_SECONDS = 8
"""Long enough for a busy machine to have everything asked for, refused and told before it is over."""


@pytest.fixture(scope="module")
def standing(
    cluster: Cluster, lab_process: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """One stage for all tests of this module, with an operator that looks at everything often."""
    status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "outages"}})
    assert status == 201
    lab_process.reset()
    stage = Stage(cluster, "outages", lab_process, tmp_path_factory.mktemp("outages"))
    stage.open()
    try:
        yield stage
    finally:
        stage.close()
        cluster.empty_namespace("outages")
        lab_process.reset()


@pytest.fixture
def stage(standing: Stage) -> Iterator[Stage]:
    """The stage, mended before and after; the operator must come through every test."""
    standing.start(RESYNC_SECONDS="10", METADATA_SECONDS="1")
    pid = standing.operator.process.pid
    yield standing
    standing.kube.mend()
    standing.sprites.mend()
    standing.lab.disarm_faults()
    assert standing.operator.process.poll() is None, "The operator has ended."
    assert standing.operator.process.pid == pid
    assert "nobody foresaw" not in standing.operator.log_file.read_text()
    standing.cluster.empty_namespace("outages")


def adopt(stage: Stage, **spec: Any) -> tuple[str, str]:
    """Make an object that rests on a live session, and give its name and the session's id."""
    name = stage.prepare()
    session = stage.lab.start_session(name, *STUBBORN)
    stage.create(name, sessionId=session["id"], **spec)
    stage.world.await_reason(name, "Detached")
    return name, session["id"]


def read_version(stage: Stage, name: str) -> str:
    terminal = stage.world.get(name)
    assert terminal is not None
    version: str = terminal["metadata"]["resourceVersion"]
    return version


def count_warnings(stage: Stage) -> int:
    return sum(line.get("level", line.get("severity")) in ("WARNING", "ERROR") for line in stage.operator.lines)


def is_ours(request: Request) -> bool:
    """A write to the objects or their events."""
    return is_write(request)


# --- the Kubernetes API -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lost:
    """A write whose answer never comes."""

    name: str
    match: Match
    skip: int = 0


@pytest.mark.parametrize(
    "lost",
    [
        Lost("the finalizer", is_finalizer_write),
        Lost("the intent", is_status_write),
        Lost("the session", is_status_write, skip=1),
    ],
    ids=lambda lost: lost.name,
)
def test_a_write_of_a_launch_whose_answer_is_lost_is_not_done_twice(stage: Stage, lost: Lost) -> None:
    name = stage.prepare()
    lose_answer(stage, of(name, lost.match), lost.skip, lambda: stage.create(name, launch=LAUNCH))

    status = stage.world.await_reason(name, "Detached")

    stage.expect_one_run(name)
    assert stage.list_terminals(name) == [status["session"]["id"]]
    stage.world.patch(name, terminated=True)
    stage.world.await_reason(name, "Confirmed", "Terminated")
    assert len(stage.list_kills(name)) == 1
    stage.expect_one_run(name)


def test_a_proof_whose_record_is_lost_is_recorded(stage: Stage) -> None:
    name, session_id = adopt(stage)
    lose_answer(stage, of(name, is_status_write), 0, lambda: stage.world.patch(name, terminated=True))

    status = stage.world.await_reason(name, "Confirmed", "Terminated")

    assert status["session"]["id"] == session_id
    assert len(stage.list_kills(name)) == 1


@pytest.mark.parametrize("end", ["terminated", "deleted"])
def test_a_proof_that_cannot_be_written_for_a_while_is_kept_and_costs_no_second_kill(stage: Stage, end: str) -> None:
    name, _ = adopt(stage)
    refusals = 4
    stage.kube.answer(of(name, is_write), 500, b"{}", times=refusals)
    before = len(stage.kube.find(of(name, is_write)))

    if end == "terminated":
        stage.world.patch(name, terminated=True)
        status = stage.world.await_reason(name, "Confirmed", "Terminated", within=RECOVERS_SECONDS)
        assert (status["kill"]["proof"], status["kill"]["attempts"]) == ("SessionList", 1)
    else:
        stage.world.delete(name)
        stage.world.await_gone(name, within=RECOVERS_SECONDS)

    assert len(stage.kube.find(of(name, is_write))) - before > refusals
    assert [entry["status"] for entry in stage.lab.requests(route="exec.kill", sprite=name)] == [200]


def test_a_release_whose_answer_is_lost_lets_the_object_go(stage: Stage) -> None:
    name, _ = adopt(stage)
    lose_answer(stage, of(name, is_finalizer_write), 0, lambda: stage.world.delete(name))

    stage.world.await_gone(name)

    assert len(stage.list_kills(name)) == 1


def lose_answer(stage: Stage, match: Match, skip: int, act: Callable[[], object]) -> None:
    """Let a write be done, and cut its connection before the answer."""
    hold = stage.kube.hold(match, At.AFTER, skip=skip)
    act()
    hold.await_reached()
    stage.kube.cut(match)
    stage.kube.mend()


@pytest.mark.parametrize(
    ("status", "headers", "pause"),
    [(500, {}, 0.0), (503, {}, 0.0), (429, {"Retry_After": "3"}, 3.0)],
    ids=["500", "503", "429 with Retry-After"],
)
def test_writes_that_are_refused_for_a_while_are_done_afterwards(
    stage: Stage, status: int, headers: dict[str, str], pause: float
) -> None:
    adopt(stage)
    name = stage.prepare()
    await_metadata(stage)  # else the news of the sprite would wake the object in between
    refusals = 2
    body = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}).encode()
    stage.kube.answer(of(name, is_write), status, body, times=refusals, **headers)

    stage.create(name, launch=LAUNCH)

    stage.world.await_reason(name, "Detached")
    times = [request.time for request in stage.kube.find(of(name, is_write))]
    assert len(times) == refusals + 3, "two refusals, the finalizer, the intent and the session"
    assert all(later - earlier >= pause for earlier, later in pairwise(times[: refusals + 1]))
    stage.expect_one_run(name)


def test_credentials_that_are_refused_once_cost_nothing(stage: Stage) -> None:
    name = stage.prepare()
    stage.kube.answer(of(name, is_write), 401, b"{}", times=1)

    stage.create(name, launch=LAUNCH)

    stage.world.await_reason(name, "Detached")
    assert len(stage.kube.find(of(name, is_write))) == 4
    stage.expect_one_run(name)


def test_an_api_server_that_hangs_delays_a_proof_and_costs_no_second_kill(stage: Stage) -> None:
    name, _ = adopt(stage)
    resting, _ = adopt(stage)
    before = read_version(stage, resting)
    kill = stage.sprites.hold(of(name, is_kill), At.AFTER)
    stage.world.patch(name, terminated=True)
    kill.await_reached()
    stage.cluster.hang()
    hanging = threading.Timer(10, stage.cluster.resume)
    hanging.start()
    warned = count_warnings(stage)

    kill.release()
    hanging.join()
    status = stage.world.await_reason(name, "Confirmed", "Terminated")

    assert status["kill"]["verdict"] == "Complete"
    assert len(stage.lab.requests(route="exec.kill", sprite=name)) == 1
    assert read_version(stage, resting) == before
    assert count_warnings(stage) - warned <= 5


def test_an_api_server_that_restarts_in_the_middle_of_a_launch_and_of_a_kill_loses_neither(stage: Stage) -> None:
    dying, _ = adopt(stage)
    starting = stage.prepare()
    create = stage.sprites.hold(of(starting, is_create), At.AFTER)
    kill = stage.sprites.hold(of(dying, is_kill), At.AFTER)
    stage.create(starting, launch=LAUNCH)
    stage.world.patch(dying, terminated=True)
    create.await_reached()
    kill.await_reached()

    restarting = threading.Thread(target=stage.cluster.restart_api_server)
    restarting.start()
    create.release()
    kill.release()
    restarting.join()

    stage.world.await_reason(dying, "Confirmed", "Terminated", within=RECOVERS_SECONDS)
    stage.world.await_reason(starting, "Detached", within=RECOVERS_SECONDS)
    assert len(stage.list_kills(dying)) == 1
    stage.expect_one_run(starting)
    later, _ = adopt(stage)
    assert stage.world.status(later)["phase"] == "Detached"


def test_what_happens_while_the_watch_is_cut_is_done_once_it_stands_again(stage: Stage) -> None:
    dying, _ = adopt(stage)
    going, _ = adopt(stage)
    starting = stage.prepare()
    stage.kube.cut(is_watch)

    stage.create(starting, launch=LAUNCH)
    stage.world.patch(dying, terminated=True)
    stage.world.delete(going)
    watches = len(stage.kube.find(is_watch))
    await_true(lambda: len(stage.kube.find(is_watch)) >= watches + 2, "two more watches that are cut")
    assert stage.list_kills(dying) == []
    stage.kube.mend()

    stage.world.await_reason(dying, "Confirmed", "Terminated")
    stage.world.await_gone(going)
    stage.world.await_reason(starting, "Detached")


def test_a_deletion_that_the_watch_has_lost_is_found_and_frees_the_session_for_the_next(stage: Stage) -> None:
    owner, session_id = adopt(stage)
    waiting = f"{owner}-next"
    stage.world.create(waiting, spriteName=owner, sessionId=session_id)
    stage.world.await_reason(waiting, "SessionTaken", "Stalled")
    expired = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}})
    # Not only the watch: a list for comparison would find what was taken off before it was deleted.
    stage.kube.cut(is_look)
    strip_and_delete(stage, owner)
    stage.kube.mend()
    stage.kube.answer(is_watch, 200, expired.encode(), times=1)

    status = stage.world.await_reason(waiting, "Detached", within=40)

    assert status["session"]["id"] == session_id
    assert stage.list_kills(owner) == []


def is_look(request: Request) -> bool:
    """A watch or a list of the objects."""
    return request.method == "GET" and urlsplit(request.target).path.endswith("/agentterminals")


def strip_and_delete(stage: Stage, name: str) -> None:
    """Take an object away by force, as an administrator can."""
    stage.cluster.request(
        "PATCH",
        f"{stage.world.path}/{name}",
        body={"metadata": {"finalizers": None}},
        content_type="application/merge-patch+json",
    )
    stage.world.delete(name)
    stage.world.await_gone(name)


# --- the Sprites API --------------------------------------------------------------------------------------------------

HTML = b"<html><head><title>502 Bad Gateway</title></head><body>upstream connect error</body></html>"


def is_any(_: Request) -> bool:
    return True


def refuse(stage: Stage) -> None:
    stage.sprites.refuse()


def fail(stage: Stage) -> None:
    stage.sprites.answer(is_any, 500, b'{"error": "internal"}', times=NEVER)


def answer_html(stage: Stage) -> None:
    stage.sprites.answer(is_any, 200, HTML, times=NEVER, Content_Type="text/html")


def drop(stage: Stage) -> None:
    stage.sprites.cut(is_any)


@pytest.mark.parametrize("break_", [refuse, fail, answer_html, drop], ids=lambda act: act.__name__)
def test_while_the_sprites_api_is_away_what_is_pending_waits_and_nothing_else_is_touched(
    stage: Stage, break_: Callable[[Stage], None]
) -> None:
    resting, _ = adopt(stage)
    dying, dying_id = adopt(stage)
    going, _ = adopt(stage)
    starting = stage.prepare()
    rested = read_version(stage, resting)
    await_metadata(stage)

    break_(stage)
    warned = count_warnings(stage)
    stage.create(starting, launch=LAUNCH)
    stage.world.patch(dying, terminated=True)
    stage.world.delete(going)
    for name in (dying, going):
        stage.world.await_reason(name, "SpritesUnavailable")
        expect_blind(stage, name)
    await_true(lambda: is_waiting(stage, starting), "the launch to wait", tell=lambda: str(stage.world.get(starting)))
    await_rest(stage, starting)
    written = len(stage.kube.find(is_ours))
    versions = [read_version(stage, name) for name in (resting, starting, dying, going)]
    await_failed_calls(stage, 6)

    assert [read_version(stage, name) for name in (resting, starting, dying, going)] == versions
    events = [request for request in stage.kube.find(is_ours)[written:] if "/events" not in request.target]
    assert events == [], "writes while nothing changed"
    assert versions[0] == rested
    assert count_warnings(stage) - warned <= 12, "a storm in the log"

    stage.sprites.mend()
    stage.world.await_reason(dying, "Confirmed", "Terminated", within=RECOVERS_SECONDS)
    stage.world.await_reason(starting, "Detached", within=RECOVERS_SECONDS)
    stage.world.await_gone(going, within=RECOVERS_SECONDS)
    assert [entry["path"].split("/")[-2] for entry in stage.list_kills(dying)] == [dying_id]
    stage.expect_one_run(starting)
    assert read_version(stage, resting) == rested
    assert len(stage.world.events(dying)) <= 3


def await_metadata(stage: Stage) -> None:
    """Wait until the operator has read the metadata of all sprites that there are now."""
    since = time.time()
    await_true(lambda: len(stage.lab.requests(route="sprites.list", after=since)) >= 2, "two lists of sprites")


def expect_blind(stage: Stage, name: str) -> None:
    """Ready is Unknown, and it goes on: the row of the table for an API that is down."""
    status = stage.world.status(name)
    told = {kind: read_condition(status, kind)["status"] for kind in ("Ready", "Reconciling", "Stalled")}
    assert told == {"Ready": "Unknown", "Reconciling": "True", "Stalled": "False"}
    assert status["phase"] != "Terminated"


def is_waiting(stage: Stage, name: str) -> bool:
    """Whether a launch waits for the API: with its intent, or without where the sprite was seen too long ago."""
    status = stage.world.status(name)
    told = read_condition(status, "Reconciling")["reason"]
    return "launchIntent" in status.get("session", {}) or told == "SpritesUnavailable"


def await_rest(stage: Stage, name: str) -> None:
    """Wait until all is told of an object that there is to be told while nothing changes."""
    told = ""

    def rests() -> bool:
        nonlocal told
        before, told = told, read_version(stage, name)
        await_failed_calls(stage, 3)
        return told == before

    await_true(rests, f"{name} to rest")


def await_failed_calls(stage: Stage, calls: int) -> None:
    """Wait until so many more calls to the Sprites API have failed."""

    def count() -> float:
        lines = [line for line in stage.operator.read("metrics").splitlines() if "sprites_calls_total{" in line]
        return sum(float(line.split()[-1]) for line in lines if 'outcome="Success"' not in line)

    before = count()
    await_true(lambda: count() >= before + calls, "more calls to fail")


def count_throttled(stage: Stage) -> float:
    """How many answers have asked for patience so far."""
    lines = [line for line in stage.operator.read("metrics").splitlines() if "sprites_calls_total{" in line]
    return sum(float(line.split()[-1]) for line in lines if 'outcome="Throttled"' in line)


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_token_that_is_asked_for_patience_makes_no_call_until_it_is_over(stage: Stage, form: str) -> None:
    resting, _ = adopt(stage)
    dying, _ = adopt(stage)
    starting = stage.prepare()
    rested = read_version(stage, resting)
    throttled: list[Request] = []

    def is_first(request: Request) -> bool:
        throttled.append(request)
        return True

    before = count_throttled(stage)
    asked = time.monotonic()
    until = datetime.now(UTC) + timedelta(seconds=PATIENCE_SECONDS)
    retry_after = str(PATIENCE_SECONDS) if form == "seconds" else format_datetime(until, usegmt=True)
    stage.sprites.answer(is_first, 429, b'{"error": "slow down"}', times=1, Retry_After=retry_after)
    # One of those that come every second; nothing else is under way while the operator hears of it.
    await_true(lambda: count_throttled(stage) > before, "the operator to hear that it is throttled")
    stage.create(starting, launch=LAUNCH)
    stage.world.patch(dying, terminated=True)
    for name in (starting, dying):
        stage.world.await_reason(name, "Throttled")
        expect_blind(stage, name)
    stage.world.await_reason(dying, "Confirmed", "Terminated", within=RECOVERS_SECONDS)
    stage.world.await_reason(starting, "Detached", within=RECOVERS_SECONDS)

    (first,) = throttled
    following = stage.sprites.find(lambda request: request.number > first.number)[0]
    # A date has whole seconds, so the last one may be cut off.
    over = first.time + PATIENCE_SECONDS if form == "seconds" else asked + PATIENCE_SECONDS - 1
    assert following.time >= over - 0.05
    assert len(stage.list_kills(dying)) == 1
    stage.expect_one_run(starting)
    assert read_version(stage, resting) == rested


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "early-end"},
        {"kind": "list", "shape": "no-sessions"},
        {"kind": "list", "shape": "error"},
        {"kind": "list", "shape": "not-json"},
    ],
    ids=lambda fault: fault.get("shape", fault["kind"]),
)
def test_a_list_that_is_cut_or_tells_less_than_the_truth_ends_nothing_and_proves_nothing(
    stage: Stage, fault: dict[str, Any]
) -> None:
    live, session_id = adopt(stage)
    dying, _ = adopt(stage)
    stage.lab.arm_fault(fault, route="exec.list", times=1000)

    stage.world.patch(live, attached=True)
    stage.world.patch(dying, terminated=True)
    stage.world.await_reason(dying, "SpritesUnavailable", "Terminated")
    await_failed_calls(stage, 1)
    assert stage.world.status(live)["phase"] in ("Running", "Detached")
    assert stage.list_kills(dying) == []
    stage.lab.disarm_faults()

    stage.world.await_reason(dying, "Confirmed", "Terminated", within=RECOVERS_SECONDS)
    status = stage.world.await_reason(live, "Running", within=RECOVERS_SECONDS)
    assert status["session"]["id"] == session_id
    assert "ended" not in status["session"]


def test_a_proof_that_fails_is_asked_for_again_without_another_kill(stage: Stage) -> None:
    name, _ = adopt(stage)
    stage.lab.arm_fault({"kind": "status", "status": 503}, route="exec.list", sprite=name, cause="prove", times=2)

    stage.world.patch(name, terminated=True)

    status = stage.world.await_reason(name, "Confirmed", "Terminated")
    assert status["kill"]["attempts"] == 1
    assert len(stage.lab.requests(route="exec.list", sprite=name, cause="prove", status=503)) == 2
    assert len(stage.lab.requests(route="exec.kill", sprite=name)) == 1


@pytest.mark.parametrize("match", [is_any, is_session_list], ids=["all calls fail", "only lists fail"])
def test_an_end_that_nobody_could_see_in_an_outage_is_seen_afterwards(stage: Stage, match: Match) -> None:
    """Somebody attaches, and the question whether the session lives stays open until it is answered."""
    name, session_id = adopt(stage)
    stage.sprites.answer(match, 503, HTML, times=NEVER)
    stage.world.patch(name, attached=True)
    await_failed_calls(stage, 2)
    stage.lab.call("POST", f"/v1/sprites/{name}/exec/{session_id}/kill", signal="SIGKILL")
    await_true(lambda: stage.list_terminals(name) == [], "the session to end")
    assert "ended" not in stage.world.status(name)["session"]

    stage.sprites.mend()

    status = stage.world.await_reason(name, "ExitUnseen", within=RECOVERS_SECONDS)
    assert status["phase"] == "Exited"


def test_a_metadata_list_that_breaks_off_makes_no_sprite_disappear(stage: Stage) -> None:
    name, _ = adopt(stage)
    rested = read_version(stage, name)
    since = time.time()
    stage.lab.arm_fault({"kind": "early-end"}, route="sprites.list", times=3)

    await_true(lambda: len(stage.lab.requests(route="sprites.list", after=since)) >= 3, "the lists")
    await_metadata(stage)

    assert read_version(stage, name) == rested

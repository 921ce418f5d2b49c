"""
Every error of the Sprites API, on a real API server: the condition it becomes, and how it ends.

The operator reads metadata every second here, so that what takes 30 s elsewhere is seen soon.
"""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from tests.cluster.errors import (
    LAUNCH,
    MANY,
    WAIT_SECONDS,
    Corner,
    Fault,
    Plays,
    assert_blind,
    assert_stalled,
    in_two_seconds,
    open_world,
    playing,
    summarize,
)
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess, Lab
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import build_sprites_token

pytestmark = pytest.mark.timeout(300)

LATE_SECONDS: Final = 3.0
"""How much later the emulator may note a request than it was sent, on a machine that stood still."""


@dataclass(frozen=True)
class Row:
    """A fault, the reason it becomes, and what the message says of it; None where nothing need be seen of it."""

    name: str
    fault: Callable[[], Fault]
    reason: str | None
    said: str = ""


def status(code: int, **more: object) -> Callable[[], Fault]:
    """An answer in place of the API's own."""
    return lambda: {"kind": "status", "status": code, **more}


def listed(shape: str, **more: object) -> Callable[[], Fault]:
    """A session list that says less than the truth."""
    return lambda: {"kind": "list", "shape": shape, **more}


def kind(name: str) -> Callable[[], Fault]:
    """A fault without more to say."""
    return lambda: {"kind": name}


UNAVAILABLE = "SpritesUnavailable"
OUTAGES = [
    Row("500", status(500, body={"error": "no luck"}), UNAVAILABLE, "no luck"),
    Row("502 as a page", status(502, html="<html>Bad gateway</html>"), UNAVAILABLE, "HTTP 502 (an HTML page)"),
    Row("503 that says when", status(503, headers={"Retry-After": "1"}), UNAVAILABLE, "HTTP 503"),
    Row("429 with seconds", status(429, headers={"Retry-After": "1"}), "Throttled", "HTTP 429"),
    Row(
        "429 with a date",
        lambda: {"kind": "status", "status": 429, "headers": {"Retry-After": in_two_seconds()}},
        "Throttled",
        "HTTP 429",
    ),
    Row("429 that says at once", status(429, headers={"Retry-After": "0"}), "Throttled", "429"),
    Row("429 alone", status(429), "Throttled", "HTTP 429"),
    Row("a page with 200", status(200, html="<html>Hello</html>"), UNAVAILABLE, "HTML"),
    Row("an error with 200", status(200, body={"error": "later"}), UNAVAILABLE, "later"),
    Row("an answer without the list", status(200, body={}), UNAVAILABLE, "`sprites`"),
    Row("a redirect", status(302, headers={"Location": "/"}), UNAVAILABLE, "302"),
    Row("400", status(400), UNAVAILABLE, "HTTP 400"),
    Row("a cut connection", kind("drop"), UNAVAILABLE, "Listing the sprites"),
    Row("an early end", kind("early-end"), UNAVAILABLE, "Listing the sprites"),
]
LISTS = [
    Row("an error", listed("error", error="agent is away"), UNAVAILABLE, "agent is away"),
    Row("no key", listed("no-sessions"), UNAVAILABLE, "no list named `sessions`"),
    Row("no JSON", listed("not-json"), UNAVAILABLE, "session list"),
    Row("an early end", kind("early-end"), UNAVAILABLE, "the sessions of the sprite corner-"),
    Row("a cut connection", kind("drop"), UNAVAILABLE, "the sessions of the sprite corner-"),
    Row("404", status(404, body={"error": "sprite not found"}), "SpriteNotFound", "HTTP 404"),
]
LAUNCHES = [
    Row("401", status(401), "TokenRejected"),
    Row("403", status(403), "TokenForbidden"),
    Row("429", status(429, headers={"Retry-After": "1"}), "Throttled"),
    Row("a cut connection", kind("drop"), None),
    Row("500", status(500), UNAVAILABLE),
    Row("503", status(503, html="<html></html>"), None),
]


def play_outage(row: Row, corner: Corner) -> None:
    corner.adopt("resting")
    # One that was never listed, so that it has to be looked for.
    other = f"other-{corner.name}"
    before = corner.get("resting")
    reason = row.reason
    assert reason is not None
    with corner.failing(row.fault(), route="sprites.list"):
        corner.create("pending", spriteName=other, launch=LAUNCH)
        seen = corner.await_reason("pending", reason)

        assert_blind(seen, reason)
        assert seen["phase"] == "Pending"
        assert summarize(seen, "SpriteReachable", "Terminated", "SessionLive") == {
            "SpriteReachable": ("Unknown", reason),
            "Terminated": ("False", "NotRequested"),
            "SessionLive": ("False", "NoSession"),
        }
        message = read_condition(seen, "Reconciling")["message"]
        assert row.said in message or "asked us to slow down" in message
        assert message.endswith("It is tried again.")
        corner.lab.create_sprite(other)

    corner.await_reason("pending", "Detached")
    assert corner.get("resting")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert corner.world.events(corner.label("resting")) == []


def play_list(row: Row, corner: Corner) -> None:
    session = corner.start_session()
    assert row.reason is not None
    with corner.failing(row.fault(), route="exec.list"):
        corner.create("one", sessionId=session["id"], launch=LAUNCH)
        seen = corner.await_reason("one", row.reason)

        assert row.said in read_condition(seen, "Reconciling")["message"]
        assert len(corner.live()) == 1

    seen = corner.await_reason("one", "Detached")
    assert seen["session"]["origin"] == "Adopted"
    assert len(corner.live()) == 1


def play_launch(row: Row, corner: Corner) -> None:
    # What is to be seen stands until it was seen.
    with corner.failing(row.fault(), route="exec.create", times=1 if row.reason is None else MANY):
        corner.create("one", launch=LAUNCH)
        if row.reason is None:
            corner.await_reason("one", "Detached")
        else:
            seen = corner.await_reason("one", row.reason)
            assert seen["session"]["launchIntent"]["nonce"]
    if row.reason in ("TokenRejected", "TokenForbidden"):
        corner.patch("one", relaunch="OnLost")  # a person's nudge; a Secret is read again by itself after a minute

    seen = corner.await_reason("one", "Detached")
    (session,) = corner.live()
    assert seen["session"]["id"] == session["id"]


def play_missing_sprite(corner: Corner) -> None:
    later = f"later-{corner.name}"
    corner.create("one", spriteName=later, launch=LAUNCH)
    seen = corner.await_reason("one", "SpriteNotFound")

    assert summarize(seen, "Ready", "Reconciling", "Stalled", "SpriteReachable") == {
        "Ready": ("False", "SpriteNotFound"),
        "Reconciling": ("True", "SpriteNotFound"),
        "Stalled": ("False", "SpriteNotFound"),
        "SpriteReachable": ("False", "SpriteNotFound"),
    }
    assert f"no sprite {later}" in read_condition(seen, "Reconciling")["message"]

    corner.lab.create_sprite(later)
    seen = corner.await_reason("one", "Detached")
    assert summarize(seen, "SpriteReachable") == {"SpriteReachable": ("True", "Reachable")}


def play_right_to_come(corner: Corner) -> None:
    with corner.failing(status(403, body={"error": "not yours"})(), route="sprites.list"):
        corner.create("one", launch=LAUNCH)
        seen = corner.await_reason("one", "TokenForbidden", "Stalled")

        assert_stalled(seen, "TokenForbidden")
        assert summarize(seen, "SpriteReachable") == {"SpriteReachable": ("False", "TokenForbidden")}
        message = read_condition(seen, "Stalled")["message"]
        assert "HTTP 403 (not yours)" in message
        assert f"the token under the key token of Secret {corner.name}" in message
        corner.await_events("one", ("Warning", "TokenForbidden"))

    corner.await_reason("one", "Detached")


def play_slow_list(corner: Corner) -> None:
    session = corner.start_session()
    # Twice, so that the state between the two stands long enough to be seen.
    with corner.failing({"kind": "delay", "seconds": 40}, route="exec.list", times=2):
        corner.create("one", sessionId=session["id"])
        seen = corner.await_reason("one", UNAVAILABLE)

        assert_blind(seen, UNAVAILABLE)
        assert "took longer than 20 s" in read_condition(seen, "Reconciling")["message"]
        corner.await_reason("one", "Detached")


def play_slow_kill(corner: Corner) -> None:
    corner.adopt("one")
    with corner.failing({"kind": "delay", "seconds": 30}, route="exec.kill", times=1):
        corner.patch("one", terminated=True)
        corner.await_reason("one", "Confirmed", "Terminated")

    first, second = corner.requests(route="exec.kill")
    assert 10 - LATE_SECONDS <= second["time"] - first["time"] < 25, "not at once, and not when it was answered"
    assert corner.live() == []


@pytest.fixture(scope="module")
def plays(cluster: Cluster) -> Iterator[Plays]:
    """All tables of this page, side by side."""
    acts: dict[str, Callable[[Corner], None]] = {
        "slow list": play_slow_list,
        "slow kill": play_slow_kill,
        "missing sprite": play_missing_sprite,
        "right to come": play_right_to_come,
    }
    acts |= {f"outage: {row.name}": partial(play_outage, row) for row in OUTAGES}
    acts |= {f"list: {row.name}": partial(play_list, row) for row in LISTS}
    acts |= {f"launch: {row.name}": partial(play_launch, row) for row in LAUNCHES}
    with playing(cluster, acts) as running:
        yield running


@pytest.mark.parametrize("row", OUTAGES, ids=lambda row: row.name)
def test_while_the_api_fails_what_is_pending_says_so_and_what_rests_is_left_alone(plays: Plays, row: Row) -> None:
    plays.watch(f"outage: {row.name}")


@pytest.mark.parametrize("row", LISTS, ids=lambda row: row.name)
def test_a_session_list_that_says_less_than_the_truth_adopts_and_launches_nothing(plays: Plays, row: Row) -> None:
    plays.watch(f"list: {row.name}")


@pytest.mark.parametrize("row", LAUNCHES, ids=lambda row: row.name)
def test_a_launch_that_meets_an_error_starts_its_command_once(plays: Plays, row: Row) -> None:
    plays.watch(f"launch: {row.name}")


def test_a_sprite_that_is_missing_is_waited_for_and_used_once_it_is_created(plays: Plays) -> None:
    plays.watch("missing sprite")


def test_a_token_without_the_right_to_a_sprite_is_told_and_used_once_it_has_it(plays: Plays) -> None:
    plays.watch("right to come")


def test_a_call_that_takes_too_long_is_given_up_and_made_again(plays: Plays) -> None:
    plays.watch("slow list")


@pytest.mark.case("K12")
def test_a_kill_that_takes_too_long_is_given_up_after_ten_seconds_and_sent_again(plays: Plays) -> None:
    plays.watch("slow kill")


@pytest.fixture
def quick(cluster: Cluster, lab: EmulatorProcess) -> Iterator[World]:
    """A world for one test alone."""
    with open_world(cluster, lab, METADATA_SECONDS="1") as world:
        yield world


def test_a_throttled_token_is_left_in_peace_for_as_long_as_it_asked(quick: World) -> None:
    wait = {"kind": "status", "status": 429, "headers": {"Retry-After": "3"}}
    quick.lab.arm_fault(wait, route="sprites.list", times=1)
    quick.lab.clear_requests()

    for number in range(20):
        quick.create(f"one-{number}", launch=LAUNCH)
    for number in range(20):
        quick.await_reason(f"one-{number}", "Detached", within=WAIT_SECONDS)

    calls = quick.lab.requests(door="api")
    refused = next(call for call in calls if call["status"] == 429)
    others = [call["time"] for call in calls if call["number"] > refused["number"]]
    assert min(others) - refused["finished"] >= 2.9


def test_a_throttled_token_keeps_no_other_from_its_work(cluster: Cluster) -> None:
    with (
        EmulatorProcess("--token", build_sprites_token("lab"), "--token", build_sprites_token("other")) as slow,
        open_world(cluster, slow, METADATA_SECONDS="1", WORKERS="4") as world,
    ):
        quick = Lab(slow.url, build_sprites_token("other"))
        slow.create_sprite("box")
        quick.create_sprite("quick")
        world.put_secret("quick", token=quick.token)
        wait = {"kind": "status", "status": 429, "headers": {"Retry-After": "600"}}
        slow.arm_fault(wait, route="sprites.list", times=1)

        world.create("slow-first", launch=LAUNCH)
        world.await_reason("slow-first", "Throttled")
        later = time.monotonic() + 1.2
        await_true(lambda: time.monotonic() > later, "the shared failure to be too old for those who come now")
        for number in range(12):
            world.create(f"slow-{number}", launch=LAUNCH)
        for number in range(12):
            world.await_reason(f"slow-{number}", "Throttled")
        world.create("quick", spriteName="quick", tokenSecretRef={"name": "quick"}, launch=LAUNCH)
        world.await_reason("quick", "Detached", within=WAIT_SECONDS)


def test_an_api_that_refuses_connections_is_waited_for(quick: World) -> None:
    with socket.socket() as reserved:
        # Whoever asks for the same may listen at a port that is bound so, and nobody is given it.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        quick.sprites_url = f"http://127.0.0.1:{port}"
        quick.start_operator(METADATA_SECONDS="1")

        quick.create("one", launch=LAUNCH)
        seen = quick.await_reason("one", UNAVAILABLE)
        assert_blind(seen, UNAVAILABLE)
        assert "Listing the sprites" in read_condition(seen, "Reconciling")["message"]

        with EmulatorProcess("--port", str(port), "--token", quick.lab.token) as late:
            late.create_sprite("box")
            quick.await_reason("one", "Detached", within=WAIT_SECONDS)
            quick.patch("one", terminated=True)
            quick.await_reason("one", "Confirmed", "Terminated")

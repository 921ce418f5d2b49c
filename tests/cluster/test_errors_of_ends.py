"""Ends under every error of the Sprites API, on a real API server: the record stays, says why, and is completed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from tests.cluster.errors import WAIT_SECONDS, Corner, Fault, Plays, playing
from tests.cluster.plane import Cluster
from tests.support.operator import read_condition
from tests.support.process import await_true

pytestmark = pytest.mark.timeout(300)

NUDGE_SECONDS: Final = 2.5
"""A failure answers for the API until it is a second old, and the one that is told may have come late."""


@dataclass(frozen=True)
class Row:
    """A fault, where it strikes, and what becomes of `Terminated` under it."""

    name: str
    fault: Fault
    status: str
    reason: str
    route: str | None = None


SLOW_DOWN = {"kind": "status", "status": 429, "headers": {"Retry-After": "1"}}
NO_SPRITE = {"kind": "status", "status": 404, "body": {"error": "sprite not found"}}
LIST, KILL = "exec.list", "exec.kill"
ROWS = [
    Row("500 to all", {"kind": "status", "status": 500}, "Unknown", "SpritesUnavailable"),
    Row("429 to all", SLOW_DOWN, "Unknown", "Throttled"),
    Row("401 to all", {"kind": "status", "status": 401}, "False", "TokenRejected"),
    Row("403 to all", {"kind": "status", "status": 403}, "False", "TokenForbidden"),
    Row("all cut", {"kind": "drop"}, "Unknown", "SpritesUnavailable"),
    Row("502 to all", {"kind": "status", "status": 502, "html": "<html></html>"}, "Unknown", "SpritesUnavailable"),
    Row(
        "a list with an error",
        {"kind": "list", "shape": "error", "error": "away"},
        "Unknown",
        "SpritesUnavailable",
        LIST,
    ),
    Row("a list without its key", {"kind": "list", "shape": "no-sessions"}, "Unknown", "SpritesUnavailable", LIST),
    Row("404 to the list", NO_SPRITE, "False", "SpriteNotFound", LIST),
    Row("429 to the kill", SLOW_DOWN, "Unknown", "Throttled", KILL),
    Row("401 to the kill", {"kind": "status", "status": 401}, "False", "TokenRejected", KILL),
    Row("403 to the kill", {"kind": "status", "status": 403}, "False", "TokenForbidden", KILL),
    Row("500 to the kill", {"kind": "status", "status": 500}, "False", "KillFailed", KILL),
    Row("an error line", {"kind": "error-line", "undone": True}, "False", "KillFailed", KILL),
]


def play_end(row: Row, corner: Corner) -> None:
    sessions = [corner.adopt("ended"), corner.adopt("deleted")]
    with corner.failing(row.fault, route=row.route):
        corner.patch("ended", terminated=True)
        corner.delete("deleted")
        for name, session in zip(("ended", "deleted"), sessions, strict=True):
            seen = corner.await_reason(name, row.reason, "Terminated")
            assert corner.get(name)["metadata"]["finalizers"] == ["agentterminal.dev/session"]
            assert seen["session"]["id"] == session["id"]
            assert "ended" not in seen["session"]
            condition = read_condition(seen, "Terminated")
            assert condition["status"] == row.status
            assert "`deletionPolicy: Orphan`" in condition["message"]
            assert read_condition(seen, "Ready")["status"] != "True"
            corner.await_events(name, ("Warning", row.reason))
        assert len(corner.live()) == 2

    if row.reason in ("TokenRejected", "TokenForbidden"):
        # Its own wait is a minute, so it is nudged, and again in case a failure still answered for the API.
        await_true(partial(nudge_both, corner), "both to be over", WAIT_SECONDS, poll_seconds=NUDGE_SECONDS)
    corner.await_reason("ended", "Confirmed", "Terminated")
    corner.await_gone("deleted")
    assert corner.live() == []


def nudge_both(corner: Corner) -> bool:
    """Tell whether both ends are over, and ask for a look at each if not."""
    world = corner.world
    ended = read_condition(world.status(corner.label("ended")), "Terminated")
    if ended["reason"] == "Confirmed" and world.get(corner.label("deleted")) is None:
        return True
    corner.nudge("ended")
    corner.nudge("deleted")
    return False


def play_forgotten_address(corner: Corner) -> None:
    """What was recorded lacks the sprite's id, as if an older version had written it."""
    corner.adopt("one")
    body = {"status": {"sprite": None, "session": {"spriteId": None}}}
    path = f"{corner.world.path}/{corner.label('one')}/status"
    status, answer = corner.world.cluster.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    assert status == 200, answer
    assert "spriteId" not in answer["status"]["session"]

    corner.patch("one", terminated=True)

    seen = corner.await_reason("one", "Confirmed", "Terminated")
    assert seen["kill"]["proof"] == "SessionList"
    assert len(corner.requests(route="exec.kill")) == 1
    assert corner.live() == []


def play_orphan(corner: Corner) -> None:
    corner.adopt("one")
    with corner.failing({"kind": "status", "status": 500}):
        corner.delete("one")
        corner.await_reason("one", "SpritesUnavailable", "Terminated")

        corner.patch("one", deletionPolicy="Orphan")

        corner.await_gone("one")
    assert len(corner.live()) == 1


def play_declared_with_its_end(corner: Corner) -> None:
    session = corner.start_session()
    with corner.failing({"kind": "status", "status": 500}, route="sprites.list"):
        corner.create("one", sessionId=session["id"], terminated=True)
        seen = corner.await_reason("one", "SpritesUnavailable", "Terminated")
        assert read_condition(seen, "Terminated")["status"] == "Unknown"

    corner.await_reason("one", "Confirmed", "Terminated")
    assert corner.live() == []


@pytest.fixture(scope="module")
def plays(cluster: Cluster) -> Iterator[Plays]:
    """All rows of this page, side by side."""
    acts: dict[str, Callable[[Corner], None]] = {row.name: partial(play_end, row) for row in ROWS}
    acts |= {
        "orphan": play_orphan,
        "declared with its end": play_declared_with_its_end,
        "forgotten address": play_forgotten_address,
    }
    with playing(cluster, acts) as running:
        yield running


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_end_under_an_error_keeps_its_record_names_the_way_out_and_is_completed_afterwards(
    plays: Plays, row: Row
) -> None:
    plays.watch(row.name)


def test_orphan_lets_a_deleted_object_go_under_any_error(plays: Plays) -> None:
    plays.watch("orphan")


def test_what_is_declared_for_adoption_and_its_end_is_not_called_unasked_while_the_api_fails(plays: Plays) -> None:
    plays.watch("declared with its end")


@pytest.mark.case("K20")
def test_where_nobody_wrote_down_the_sprites_id_the_session_is_killed_in_the_sprite_that_the_platform_names(
    plays: Plays,
) -> None:
    """The product's own form: a terminal has no address but its sprite's name, and whose that is the platform says."""
    plays.watch("forgotten address")

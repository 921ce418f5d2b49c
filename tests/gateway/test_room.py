"""What a room reads off its object about people at other gateways, and how long it waits for a session."""

import asyncio
from typing import Any, cast

import pytest

from controller.api.terminal import read_spec, read_status
from controller.gateway.room import Room, find_stir, is_stirred
from controller.gateway.wishes import Target
from controller.plan.fence_closing import Ending
from tests.gateway.doubles import NAME, NAMESPACE, build_object

EARLY, LATE = "2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"


def build(typist: str | None = None, *active: str | None, version: int = 1) -> dict[str, Any]:
    raw = build_object()
    raw["metadata"]["resourceVersion"] = str(version)
    lock = {"uid": "u", "epoch": 1, "socketId": typist, "incarnation": "i"}
    raw["status"] |= {} if typist is None else {"socket": lock}
    raw["status"]["gateways"] = [
        {"incarnation": f"i{number}", "viewers": 1, **({} if time is None else {"activityTime": time})}
        for number, time in enumerate(active)
    ]
    return raw


@pytest.mark.parametrize(
    ("before", "now", "stirred"),
    [
        (build(), build("a"), True),
        (build("a"), build("b"), True),
        (build("a"), build("a"), False),
        (build("a"), build(), False),
        (build(), build(None, EARLY), True),
        (build(None, EARLY), build(None, EARLY, LATE), True),
        (build(None, EARLY, LATE), build(None, None, LATE), False),
        (build(None, LATE), build(None, EARLY), False),
        (build(None, LATE), build(None), False),
    ],
)
def test_who_comes_to_type_or_was_active_may_have_woken_the_sprite_and_who_leaves_has_not(
    before: dict[str, Any], now: dict[str, Any], *, stirred: bool
) -> None:
    first, later = (find_stir(read_status(raw["status"])) for raw in (before, now))
    assert is_stirred(first, later) is stirred


class Heard:
    """A hub, or somebody at it, of whom only is asked what they were told."""

    def __init__(self) -> None:
        self.stirs = 0
        self.recorded: object | None = None
        self.endings: list[Ending] = []

    def note_stir(self) -> None:
        self.stirs += 1

    def end(self, ending: Ending) -> None:
        self.endings.append(ending)

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def open_room(hub: Heard, raw: dict[str, Any]) -> Room:
    return Room(
        Target(NAMESPACE, NAME),
        "uid-1",
        read_spec(raw["spec"]),
        read_status(raw["status"]),
        build_way=lambda _: cast("Any", None),
        build_hub=lambda *_: cast("Any", hub),
        spawn=lambda _: None,
    )


@pytest.mark.looptime
@pytest.mark.parametrize("comes", [True, False], ids=["one comes in time", "none comes"])
async def test_whoever_attaches_waits_thirty_seconds_for_a_session_and_no_longer(*, comes: bool) -> None:
    hub, given_up = Heard(), list[float]()
    loop = asyncio.get_running_loop()
    room, since = open_room(hub, build()), loop.time()
    waiting = asyncio.ensure_future(room.wait_for_session(lambda: given_up.append(loop.time() - since)))

    await asyncio.sleep(29)
    if comes:
        hub.recorded = "a session"
    await waiting

    assert given_up == ([] if comes else [pytest.approx(30)])


def test_a_room_tells_its_streams_once_of_each_one_who_comes() -> None:
    hub, first = Heard(), build("a")
    room = open_room(hub, first)

    for version, typist in enumerate(("a", "b", "b", None, "b"), start=2):
        room.note(build(typist, version=version))

    assert hub.stirs == 2


@pytest.mark.parametrize(
    ("terminated", "deleting", "ending"),
    [(True, False, Ending.TERMINATED), (False, True, Ending.DELETED), (True, True, Ending.TERMINATED)],
)
def test_whoever_looks_on_is_told_at_once_of_the_end_for_good_and_of_a_deletion(
    *, terminated: bool, deleting: bool, ending: Ending
) -> None:
    room = open_room(Heard(), build_object())
    viewer = Heard()
    room.viewers.add(cast("Any", viewer))

    room.note(build_object() | build("a", version=2))
    assert viewer.endings == []
    last = build_object(terminated=terminated, deleting=deleting)
    last["metadata"]["resourceVersion"] = "3"
    room.note(last)

    assert viewer.endings == [ending]

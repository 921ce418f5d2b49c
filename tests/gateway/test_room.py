"""What a room reads off its object about people at other gateways."""

from typing import Any, cast

import pytest

from controller.api.terminal import read_spec, read_status
from controller.gateway.room import Room, find_stir, is_stirred
from controller.gateway.wishes import Target
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
    """A hub of which only is asked what it was told."""

    def __init__(self) -> None:
        self.stirs = 0

    def note_stir(self) -> None:
        self.stirs += 1

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def test_a_room_tells_its_streams_once_of_each_one_who_comes() -> None:
    hub, first = Heard(), build("a")
    room = Room(
        Target(NAMESPACE, NAME),
        "uid-1",
        read_spec(first["spec"]),
        read_status(first["status"]),
        build_way=lambda _: cast("Any", None),
        build_hub=lambda *_: cast("Any", hub),
        spawn=lambda _: None,
    )

    for version, typist in enumerate(("a", "b", "b", None, "b"), start=2):
        room.note(build(typist, version=version))

    assert hub.stirs == 2

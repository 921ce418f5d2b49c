"""What a person is shown of AgentTerminals."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from controller.api.conditions import ConditionType
from controller.api.session import SpriteState
from controller.api.terminal import read_status
from controller.client.telling import (
    build_row,
    describe_progress,
    is_proven,
    order_rows,
    render_costs,
    render_events,
    render_proof,
    render_span,
    render_sum,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (45, "45s"),
        (60, "1m"),
        (723, "12m3s"),
        (3600, "1h"),
        (11_520, "3h12m"),
        (187_200, "2d4h"),
    ],
)
def test_a_duration_shows_its_two_largest_units(seconds: int, text: str) -> None:
    assert render_span(timedelta(seconds=seconds)) == text


def build(name: str, *, state: str = "running", held: bool = False, attached: bool = False, **status: Any) -> Any:
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"spriteName": name, "sessionId": "7", "attached": attached},
        "status": {
            "phase": "Detached",
            "session": {"id": "7"},
            "sprite": {"id": f"sprite-{name}", "state": state},
            "detachedTime": "2026-01-01T11:00:00Z",
            "conditions": [
                {
                    "type": "Held",
                    "status": "True" if held else "False",
                    "reason": "HoldActive",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T11:00:00Z",
                }
            ],
            **status,
        },
    }


def show(table: Any) -> str:
    console = Console(width=300, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_what_costs_most_comes_first_and_is_counted_by_sprite() -> None:
    hold = {"task": "t", "since": "2026-01-01T09:30:00Z", "cause": "Viewer"}
    objects = [
        build("cold", state="cold"),
        build("idle"),
        build("watched", attached=True),
        build("held", held=True, hold=hold),
        # The hold of an object that is not held any more is a memory.
        build("released", hold=hold, detachedTime="2026-01-01T11:59:00Z"),
    ]
    rows = order_rows(build_row(terminal, NOON) for terminal in objects)

    assert [row.name for row in rows] == ["held", "idle", "released", "watched", "cold"]
    assert (rows[0].held_for, rows[0].held_cause) == (timedelta(hours=2, minutes=30), "Viewer")
    assert [row.idle_for for row in rows[1:4]] == [timedelta(hours=1), timedelta(minutes=1), None]
    assert render_sum(rows) == (
        "5 terminals; 4 sprites running, 1 held awake by us; 3 terminals in running sprites without anybody attached."
    )
    shown = show(render_costs(rows, with_namespace=True)).splitlines()
    assert shown[0].split()[:3] == ["NAMESPACE", "NAME", "SPRITE"]
    assert shown[1].split() == ["team-a", "held", "held", "running", "7", "Detached", "2h30m", "Viewer", "1h", "-"]


def test_an_object_of_another_version_still_has_its_line() -> None:
    row = build_row({"metadata": {"name": "new"}, "spec": {"spriteName": 7}}, NOON)

    assert (row.phase, row.state) == ("Unreadable", SpriteState.UNKNOWN)


def test_nothing_that_an_object_says_can_move_the_cursor() -> None:
    row = build_row(build("evil", sprite={"id": "x", "state": "running"}, session={"id": "\x1b[2J[red]"}), NOON)

    shown = show(render_costs([row], with_namespace=False))

    assert "\x1b" not in shown
    assert "[red]" in shown


def test_a_proof_names_who_was_killed_how_often_and_what_showed_the_death() -> None:
    status = read_status(
        {
            "session": {"id": "77", "created": "2026-01-01T11:00:00Z"},
            "kill": {
                "trigger": "Terminated",
                "verdict": "Complete",
                "proof": "NotListed",
                "settledTime": "2026-01-01T11:30:00Z",
                "confirmedTime": "2026-01-01T11:30:01Z",
                "attempts": 2,
                "leftovers": {"result": "Found", "count": 1, "processes": [{"pid": 9, "name": "nc\x1b[0m"}]},
            },
            "conditions": [
                {
                    "type": "Terminated",
                    "status": "True",
                    "reason": "LeftoversFound",
                    "message": "One lives on.",
                    "lastTransitionTime": "2026-01-01T11:30:01Z",
                }
            ],
        }
    )

    assert render_proof(status) == (
        "  verdict  LeftoversFound: One lives on.",
        "  session  77, created 2026-01-01T11:00:00.000Z",
        "  signal   SIGKILL, 2 attempts",
        "  settled  2026-01-01T11:30:00.000Z (Complete)",
        "  proven   2026-01-01T11:30:01.000Z (NotListed)",
        "  left     Found: 9 nc [0m",
    )


def test_events_come_by_their_last_time_whatever_form_they_have() -> None:
    events: list[dict[str, Any]] = [
        {"reason": "Third", "type": "Normal", "note": "c", "eventTime": "2026-01-01T11:59:00.5Z"},
        {
            "reason": "Fourth",
            "type": "Warning",
            "note": "d",
            "eventTime": "2026-01-01T08:00:00Z",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T11:59:30Z"},
        },
        {"reason": "First", "note": "a", "eventTime": "never", "metadata": {}},
        {"reason": "Second", "note": "b", "metadata": {"creationTimestamp": "2026-01-01T11:00:00Z"}},
    ]

    lines = show(render_events(events, NOON)).splitlines()

    assert [line.split()[-2] for line in lines[1:]] == ["First", "Second", "Third", "Fourth"]
    assert lines[4].split() == ["30s", "ago", "3", "Warning", "Fourth", "d"]


@pytest.mark.parametrize(
    ("status", "observed", "proven"),
    [("True", 3, True), ("True", 4, True), ("True", 2, False), ("True", None, False), ("False", 3, False)],
)
def test_a_death_is_proven_only_for_the_generation_that_asks_for_it(
    status: str, observed: int | None, proven: bool
) -> None:
    condition = {
        "type": "Terminated",
        "status": status,
        "reason": "Signalled",
        "message": "Soon.",
        "lastTransitionTime": "2026-01-01T11:00:00Z",
        **({} if observed is None else {"observedGeneration": observed}),
    }
    read = read_status({"conditions": [condition]})

    assert is_proven(read, 3) is proven
    told = describe_progress(read, ConditionType.TERMINATED, 3)
    is_stale = observed is None or observed < 3
    assert told == ("The operator has not looked at it yet." if is_stale else "Signalled: Soon.")


def test_a_wish_without_work_is_told_in_a_sentence_and_not_by_a_bare_word() -> None:
    held = {
        "type": "Held",
        "status": "False",
        "reason": "NotHeld",
        "message": "",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    told = describe_progress(read_status({"conditions": [held]}), ConditionType.HELD, 3)

    assert told == (
        "NotHeld: Nobody watches and nothing tells of activity, or there is no session. The wish stands: a hold comes"
        " with the next work."
    )

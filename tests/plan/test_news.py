"""Which words about an object bring it back at once, which may wait for what follows, and which are only an echo."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, Final

import pytest

from controller.plan.fence_ids import make_socket_id
from controller.plan.news import GATHERED_WITHIN, MOMENT, UNDER_WAY_LIMIT, Face, News, judge_news

NOON: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
SPEC: Final = {"spriteName": "box", "sessionId": "1", "holdWanted": False}
LIVING: Final = {"id": "1", "spriteId": "s", "created": "2026-11-30T11:00:00Z"}
SOCKET: Final = make_socket_id(generation=1, incarnation="gatewayaaaa", luck="luckluck")
OTHER_SOCKET: Final = make_socket_id(generation=2, incarnation="gatewaybbbb", luck="luckluck")
LOCK: Final = {"uid": "u", "epoch": 2, "socketId": SOCKET, "incarnation": "gatewayaaaa"}
OTHER_LOCK: Final = {"uid": "u", "epoch": 3, "socketId": OTHER_SOCKET, "incarnation": "gatewaybbbb"}
ENTRY: Final = {"incarnation": "a", "viewers": 1}
EXIT: Final = {"sessionId": "1", "spriteId": "s", "created": "2026-11-30T11:00:00Z", "code": 0}
KNOWN: Final = Face(
    generation=1,
    deleted=None,
    has_finalizer=True,
    annotations=(),
    spec=SPEC,
    status={"phase": "Running", "session": LIVING},
)
CAME: Final[dict[str, Any]] = {"attached": True, "activeSocketId": SOCKET}


def with_spec(face: Face = KNOWN, **spec: Any) -> Face:
    return replace(face, generation=face.generation + 1, spec={**face.spec, **spec})


def with_status(face: Face = KNOWN, **status: Any) -> Face:
    return replace(face, status={**face.status, **status})


HELD: Final = with_status(with_spec(**CAME), socket=LOCK)

LEFT: Final = with_spec(HELD, attached=False, activeSocketId="")
UNLOCKED: Final = replace(LEFT, status=KNOWN.status)
TAKEN: Final = with_spec(HELD, activeSocketId=OTHER_SOCKET)

UNDER_WAY: Final[dict[str, tuple[Face, Face]]] = {
    "a claim": (KNOWN, with_spec(**CAME)),
    "a lock that is cleared": (HELD, with_spec(**CAME)),
    "a claim over another's lock": (HELD, TAKEN),
    "a takeover between two locks": (TAKEN, replace(TAKEN, status=KNOWN.status)),
    "a lock that came too late": (replace(TAKEN, status=KNOWN.status), TAKEN),
    "a leave while the lock stands": (HELD, LEFT),
    "a patch by hand": (HELD, with_spec(HELD, activeSocketId="")),
    "another bridge while the lock stands": (HELD, with_spec(HELD, activeSocketId="foreign")),
    "somebody looks on meanwhile": (TAKEN, with_status(TAKEN, gateways=[ENTRY])),
}

PEOPLE: Final[dict[str, tuple[Face, Face]]] = {
    "a claim and its lock": (KNOWN, HELD),
    "a lock": (with_spec(**CAME), HELD),
    "a takeover and its lock": (HELD, with_status(TAKEN, socket=OTHER_LOCK)),
    "a leave": (with_spec(**CAME), UNLOCKED),
    "a lock that is cleared after its name": (LEFT, UNLOCKED),
    "a foreign bridge": (KNOWN, with_spec(attached=True)),
    "a foreign bridge with a name": (KNOWN, with_spec(attached=True, activeSocketId="foreign")),
    "a name that nobody is attached by": (KNOWN, with_spec(activeSocketId=SOCKET)),
    "somebody looks on": (KNOWN, with_status(gateways=[ENTRY])),
    "nobody looks on": (with_status(gateways=[ENTRY]), with_status(gateways=[{**ENTRY, "viewers": 0}])),
    "activity": (
        with_status(gateways=[ENTRY]),
        with_status(gateways=[{**ENTRY, "activityTime": "2026-11-30T12:00:00Z"}]),
    ),
    "an exit that was taken": (with_status(gateways=[{**ENTRY, "exit": EXIT}]), with_status(gateways=[ENTRY])),
    "a lock beside a status of ours": (with_spec(**CAME), with_status(HELD, phase="Detached")),
    "somebody comes where a launched session lives": (
        with_spec(launch={"command": ["sh"]}),
        with_spec(with_spec(launch={"command": ["sh"]}), attached=True),
    ),
    "a leave from a session that ended": (
        with_status(with_spec(launch={"command": ["sh"]}, **CAME), session={**LIVING, "ended": {"reason": "Exited"}}),
        with_status(
            with_spec(launch={"command": ["sh"]}, attached=False, activeSocketId=""),
            session={**LIVING, "ended": {"reason": "Exited"}},
        ),
    ),
    "a claim of an ended session that nobody launches": (
        with_status(session={**LIVING, "ended": {"reason": "Exited"}}),
        with_status(HELD, session={**LIVING, "ended": {"reason": "Exited"}}),
    ),
}

OTHER: Final[dict[str, tuple[Face, Face]]] = {
    "terminated": (KNOWN, with_spec(terminated=True)),
    "a deletion": (KNOWN, replace(KNOWN, generation=2, deleted=NOON)),
    "a wish to be held": (KNOWN, with_spec(holdWanted=True)),
    "a launch": (KNOWN, with_spec(launch={"command": ["sh"]})),
    "a field that went": (KNOWN, replace(KNOWN, generation=2, spec={"spriteName": "box"})),
    "a suspension": (KNOWN, with_spec(suspend=True)),
    "our finalizer was taken": (KNOWN, replace(KNOWN, has_finalizer=False)),
    "an annotation": (KNOWN, replace(KNOWN, annotations=(("agentterminal.dev/activity", "now"),))),
    "an annotation that went": (replace(KNOWN, annotations=(("agentterminal.dev/activity", "now"),)), KNOWN),
    "an exit": (with_status(gateways=[ENTRY]), with_status(gateways=[{**ENTRY, "exit": EXIT}])),
    "who speaks lets go of an object that is to go": (
        replace(HELD, deleted=NOON),
        replace(with_spec(**CAME), deleted=NOON),
    ),
    "who speaks lets go of what is terminated": (with_spec(HELD, terminated=True), with_spec(**CAME, terminated=True)),
    "somebody comes whose session ended": (
        with_status(with_spec(launch={"command": ["sh"]}), session={**LIVING, "ended": {"reason": "Exited"}}),
        with_status(with_spec(launch={"command": ["sh"]}, **CAME), session={**LIVING, "ended": {"reason": "Exited"}}),
    ),
    "somebody comes before the first launch": (
        with_status(with_spec(launch={"command": ["sh"]}), session=None),
        with_status(with_spec(launch={"command": ["sh"]}, **CAME), session=None),
    ),
}

NOTHING: Final[dict[str, tuple[Face, Face]]] = {
    "nothing differs": (KNOWN, KNOWN),
    "a status of ours": (KNOWN, with_status(phase="Detached", conditions=[{"type": "Ready"}])),
    "our finalizer was placed": (replace(KNOWN, has_finalizer=False), KNOWN),
}


@pytest.mark.parametrize(("known", "word"), PEOPLE.values(), ids=PEOPLE)
def test_who_comes_speaks_and_leaves_is_news_that_may_wait_for_what_follows(known: Face, word: Face) -> None:
    assert judge_news(known, word) is News.PEOPLE


@pytest.mark.parametrize(("known", "word"), UNDER_WAY.values(), ids=UNDER_WAY)
def test_who_has_the_name_or_the_lock_without_the_other_is_about_to_change_the_object_again(
    known: Face, word: Face
) -> None:
    assert judge_news(known, word) is News.PEOPLE_UNDER_WAY


def test_what_is_under_way_is_waited_for_and_not_for_long() -> None:
    assert GATHERED_WITHIN == {News.PEOPLE: MOMENT, News.PEOPLE_UNDER_WAY: UNDER_WAY_LIMIT}
    assert timedelta(milliseconds=250) == MOMENT
    assert MOMENT < UNDER_WAY_LIMIT <= timedelta(seconds=1)


@pytest.mark.parametrize(("known", "word"), OTHER.values(), ids=OTHER)
def test_whatever_somebody_waits_for_is_other_news(known: Face, word: Face) -> None:
    assert judge_news(known, word) is News.OTHER


@pytest.mark.parametrize(("known", "word"), NOTHING.values(), ids=NOTHING)
def test_an_echo_of_our_own_write_is_no_news(known: Face, word: Face) -> None:
    assert judge_news(known, word) is News.NONE


@pytest.mark.parametrize(("known", "word"), OTHER.values(), ids=OTHER)
def test_other_news_stays_other_news_with_people_in_it(known: Face, word: Face) -> None:
    crowded = replace(word, spec={**word.spec, "activeSocketId": OTHER_SOCKET}, generation=word.generation + 1)

    assert judge_news(known, crowded) is News.OTHER


STRANGE: Final[tuple[object, ...]] = (
    None,
    "x",
    7,
    [],
    ["x"],
    {"incarnation": 3},
    [{"exit": "x"}],
    [{"exit": {"code": "x"}}],
)


def test_a_spec_that_was_changed_and_changed_back_is_other_news_since_nobody_knows_what_it_was() -> None:
    assert judge_news(KNOWN, replace(KNOWN, generation=3)) is News.OTHER


@pytest.mark.parametrize(("before", "after"), list(product(STRANGE, repeat=2)))
def test_whatever_is_stored_is_judged(before: object, after: object) -> None:
    known, word = (
        Face(1, None, has_finalizer=True, annotations=(), spec={"launch": odd, "attached": odd}, status=parts)
        for odd, parts in (
            (None, {"socket": before, "gateways": before, "session": before}),
            (after, {"socket": after, "gateways": after, "session": after}),
        )
    )

    assert judge_news(known, word) in News

"""
What a newer state of an object asks for: no visit, a visit now, or one soon. Pure.

Problem: an attach, a takeover or a leave is several writes of a gateway within a moment, and a visit for each of them
writes the status each time; besides, our own writes come back through the watch, often before their answers, and each
would bring the object back at once, past the wait that was just chosen for it. Promise: news that consists of people
alone may wait for what follows it; everything that somebody waits for, or that ends something, never does; an echo of
our own writes is no news. Total: whatever differs falls under one of these.

Source: gateway.md 4 ("at most 1 of the operator's, coalesced over 250 ms"); design 4.1 (docs/architecture.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from controller.plan.fence_ids import find_incarnation
from controller.plan.fence_objects import ExitEntry, view_object

PEOPLE_IN_SPEC: Final = ("attached", "activeSocketId")
"""Written together by whoever bridges sockets."""

GATEWAYS_PARTS: Final = ("socket", "gateways")
"""These parts of the status belong to the gateways and are never written by the operator."""


MOMENT: Final = timedelta(milliseconds=250)
"""Claim, drain and lock of a takeover follow one another within it, and nobody who attaches waits for what the operator
says of them."""

UNDER_WAY_LIMIT: Final = timedelta(seconds=1)
"""
Whoever comes to speak and has no lock yet is about to change the object again, so a visit now would be one too many,
and its write would meet the lock's. A takeover on a busy machine takes half a second; one that takes longer than this
waits for the proof of a death.
"""


class News(StrEnum):
    """What a newer state asks for."""

    NONE = "None"
    """An echo of our own write, or something that is nothing to us."""
    PEOPLE = "People"
    """Who is attached, who speaks, who looks on: one visit for all that comes within a moment."""
    PEOPLE_UNDER_WAY = "PeopleUnderWay"
    """The same, and their gateway has not come to its end with it: lock and spec say different things."""
    OTHER = "Other"
    """Anything else: a visit at once, which takes the people along."""


GATHERED_WITHIN: Final = {News.PEOPLE: MOMENT, News.PEOPLE_UNDER_WAY: UNDER_WAY_LIMIT}
"""How long such news may wait, from the first of it."""


@dataclass(frozen=True, slots=True)
class Face:
    """
    As much of an object as may be news.

    Args:
        generation: `metadata.generation`.
        deleted: The deletion mark.
        has_finalizer: Ours is on.
        annotations: Those that speak to us.
        spec: As it is stored, never changed.
        status: The same.
    """

    generation: int
    deleted: datetime | None
    has_finalizer: bool
    annotations: tuple[tuple[str, str], ...]
    spec: Mapping[str, Any]
    status: Mapping[str, Any]


def judge_news(known: Face, word: Face) -> News:
    """
    Tell what a newer state of an object asks for.

    Of a status only the gateways' parts are news, and of the finalizers only the loss of ours. An exit that a gateway
    saw is no news of people, and neither is anything about an object that is to end, or whose session is yet to be
    launched for the one who came: for each of these somebody waits.
    """
    if (known.deleted, known.annotations) != (word.deleted, word.annotations):
        return News.OTHER
    if known.has_finalizer and not word.has_finalizer:
        return News.OTHER
    if _without_people(known.spec) != _without_people(word.spec) or _find_exits(word) - _find_exits(known):
        return News.OTHER
    if not _have_people_changed(known, word):
        # A spec that was changed and changed back between two words: nobody knows what it was.
        return News.NONE if known.generation == word.generation else News.OTHER
    if _is_awaited(word):
        return News.OTHER
    return News.PEOPLE if _is_settled(word) else News.PEOPLE_UNDER_WAY


def _without_people(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in spec.items() if field not in PEOPLE_IN_SPEC}


def _find_exits(face: Face) -> frozenset[ExitEntry]:
    gateways = view_object({"status": face.status}).gateways
    return frozenset(entry.exit for entry in gateways if entry.exit is not None)


def _have_people_changed(known: Face, word: Face) -> bool:
    return any(known.spec.get(field) != word.spec.get(field) for field in PEOPLE_IN_SPEC) or any(
        known.status.get(part) != word.status.get(part) for part in GATEWAYS_PARTS
    )


def _is_awaited(word: Face) -> bool:
    """Tell whether an end waits for the one who speaks to let go, or the one who came for a session to be launched."""
    if word.deleted is not None or word.spec.get("terminated") is True:
        return True
    if word.spec.get("attached") is not True or word.spec.get("launch") is None:
        return False
    session = word.status.get("session")
    return not isinstance(session, Mapping) or session.get("id") is None or session.get("ended") is not None


def _is_settled(word: Face) -> bool:
    """Tell whether the lock is with whom the spec names: with a socket of a gateway of ours, or else with nobody."""
    view = view_object({"spec": word.spec, "status": word.status})
    if not view.attached or find_incarnation(view.active_socket_id) is None:
        return view.lock is None
    return view.lock is not None and view.lock.socket_id == view.active_socket_id

"""
Which object owns a session.

One session has one owner: the object whose `status.session` names it, else the one that asked first in this process and
is about to record it, else the older object, else the smaller uid. Without this two objects could each kill the
other's session. Who wishes for a session of another created time than the list shows wishes for another session, and
stands in nobody's way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from controller.api.session import is_same_created
from controller.engine.registry import Snapshot

Place = tuple[str, str]
"""A sprite's name and a session id: where owners may clash."""

_NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Claim:
    """
    What one object says about a session.

    Args:
        uid: The object.
        label: `namespace/name`, for people.
        age: Its creation time: the older one wins.
        sprite: `spec.spriteName`.
        session_id: The id it owns or wants.
        owned: `status.session` names it, and it has not ended.
        sprite_id: Of the owned session; None for a wish.
        created: Of the owned session, or the wished `sessionCreatedTime`.
        attached: Somebody watches, so that an end is looked for more often.
    """

    uid: str
    label: str
    age: datetime
    sprite: str
    session_id: str
    owned: bool
    sprite_id: str | None
    created: datetime | None
    attached: bool


class Owners:
    """All claims, by object and by place. It belongs to one loop and takes no lock."""

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._places: dict[Place, set[str]] = {}
        self._reserved: dict[str, Place] = {}

    def get(self, uid: str) -> Claim | None:
        """Give what an object says, if it says anything."""
        return self._claims.get(uid)

    def owned(self) -> Iterator[Claim]:
        """Walk over the claims of all sessions that are owned and have not ended."""
        return iter([claim for claim in self._claims.values() if claim.owned])

    def put(self, claim: Claim) -> None:
        """Take in what an object says now, in place of what it said."""
        if self._claims.get(claim.uid) == claim:
            return
        self._drop_claim(claim.uid)
        self._claims[claim.uid] = claim
        self._places.setdefault((claim.sprite, claim.session_id), set()).add(claim.uid)
        if claim.owned:
            self._reserved.pop(claim.uid, None)

    def drop(self, uid: str) -> tuple[str, ...]:
        """Take an object out, and name those who may have waited for its session."""
        self._reserved.pop(uid, None)
        return self._drop_claim(uid)

    def reserve(self, uid: str, *, listed: datetime | None) -> str | None:
        """
        Let an object take the session that it wishes for, or name (`namespace/name`) the other that owns it.

        The reservation stands until the object is put as owner or dropped: between the question and the record others
        may ask as well.

        Args:
            uid: The object that asks.
            listed: The created time that the sprite's list shows beside the id; None where nobody has looked yet.
        """
        claim = self._claims.get(uid)
        if claim is None:
            return None
        place = (claim.sprite, claim.session_id)
        meant = claim if listed is None else replace(claim, created=listed)
        rivals = [
            other
            for other in map(self._claims.__getitem__, self._places.get(place, _NOBODY))
            if other.uid != uid and _is_same_session(meant, other)
        ]
        owner = next((other for other in rivals if other.owned), None)
        if owner is None:
            owner = next((other for other in rivals if self._reserved.get(other.uid) == place), None)
        if owner is None and self._reserved.get(uid) != place:
            older = [other for other in rivals if (other.age, other.uid) < (claim.age, claim.uid)]
            owner = min(older, key=lambda other: (other.age, other.uid), default=None)
        if owner is not None:
            return owner.label
        self._reserved[uid] = place
        return None

    def _drop_claim(self, uid: str) -> tuple[str, ...]:
        claim = self._claims.pop(uid, None)
        if claim is None:
            return ()
        place = (claim.sprite, claim.session_id)
        others = self._places[place]
        others.discard(uid)
        if not others:
            del self._places[place]
        return tuple(others)


def read_claim(snapshot: Snapshot, spec: Mapping[str, Any], status: Mapping[str, Any]) -> Claim | None:
    """
    Read what an object says about a session; None where it says nothing (ended, or launching).

    It reads the raw object, since it runs for every word about every object.
    """
    session = status.get("session") or {}
    owned_id = session.get("id")
    if session.get("ended") is not None:
        return None
    if owned_id is None and (session or spec.get("sessionId") is None):
        return None
    return Claim(
        uid=snapshot.uid,
        label=f"{snapshot.namespace}/{snapshot.name}",
        age=snapshot.created,
        sprite=snapshot.sprite,
        session_id=owned_id or spec["sessionId"],
        owned=owned_id is not None,
        sprite_id=session.get("spriteId"),
        created=_read_time(session.get("created") if owned_id is not None else spec.get("sessionCreatedTime")),
        attached=bool(spec.get("attached")) and spec.get("activeSocketId") != "",
    )


def _read_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _is_same_session(one: Claim, other: Claim) -> bool:
    """Two claims may mean one session unless the sprites' ids or the created times say otherwise."""
    if one.sprite_id is not None and other.sprite_id is not None and one.sprite_id != other.sprite_id:
        return False
    return is_same_created(one.created, other.created)

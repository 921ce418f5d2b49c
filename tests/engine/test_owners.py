"""One session has one owner."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

from controller.engine.owners import Claim, Owners, read_claim
from controller.engine.registry import Snapshot

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def wish(uid: str, *, age: timedelta = timedelta(0), **fields: Any) -> Claim:
    claim = Claim(
        uid=uid,
        label=f"default/{uid}",
        age=NOON + age,
        sprite="my-sprite",
        session_id="41",
        owned=False,
        sprite_id=None,
        created=None,
        attached=False,
    )
    return replace(claim, **fields)


def build(*claims: Claim) -> Owners:
    owners = Owners()
    for claim in claims:
        owners.put(claim)
    return owners


def test_the_only_one_who_wishes_for_a_session_gets_it() -> None:
    assert build(wish("a")).reserve("a", listed=None) is None


def test_whoever_is_recorded_as_owner_keeps_it_whatever_the_age() -> None:
    owners = build(wish("old"), wish("young", age=timedelta(hours=1), owned=True, sprite_id="sprite-1"))

    assert owners.reserve("old", listed=None) == "default/young"


def test_of_two_who_wish_the_older_gets_it() -> None:
    owners = build(wish("old"), wish("young", age=timedelta(seconds=1)))

    assert owners.reserve("young", listed=None) == "default/old"
    assert owners.reserve("old", listed=None) is None


def test_of_two_equally_old_the_smaller_uid_gets_it() -> None:
    owners = build(wish("a"), wish("b"))

    assert owners.reserve("b", listed=None) == "default/a"
    assert owners.reserve("a", listed=None) is None


def test_a_reservation_holds_until_it_is_recorded_although_an_older_one_appears() -> None:
    owners = build(wish("young", age=timedelta(seconds=1)))
    assert owners.reserve("young", listed=None) is None

    owners.put(wish("old"))

    assert owners.reserve("old", listed=None) == "default/young"
    assert owners.reserve("young", listed=None) is None


def test_a_reservation_ends_with_its_object() -> None:
    owners = build(wish("young", age=timedelta(seconds=1)))
    owners.reserve("young", listed=None)
    owners.put(wish("old"))

    assert owners.drop("young") == ("old",)
    assert owners.reserve("old", listed=None) is None


def test_the_same_id_in_another_sprite_or_of_another_creation_is_another_session() -> None:
    owners = build(
        wish("a", sprite="other", owned=True),
        wish("b", owned=True, created=NOON),
        wish("c", owned=True, sprite_id="sprite-2"),
        wish("d", age=timedelta(hours=1), sprite_id="sprite-1", created=NOON + timedelta(seconds=1)),
    )

    assert owners.reserve("d", listed=None) is None


def test_the_owner_is_named_and_not_an_older_one_who_only_wishes_for_another_session_of_that_id() -> None:
    owners = build(
        wish("mistaken", created=NOON - timedelta(days=1)),
        wish("owner", age=timedelta(seconds=1), owned=True, sprite_id="sprite-1", created=NOON),
        wish("late", age=timedelta(seconds=2)),
    )

    assert owners.reserve("late", listed=None) == "default/owner"
    assert owners.reserve("late", listed=NOON) == "default/owner"


def test_of_several_who_stand_in_the_way_the_oldest_is_named_whatever_the_order() -> None:
    for order in permutations((wish("a"), wish("b", age=timedelta(seconds=1)), wish("c", age=timedelta(seconds=2)))):
        assert build(*order).reserve("c", listed=None) == "default/a"


def test_who_wishes_for_another_created_time_than_the_list_shows_stands_in_nobodys_way() -> None:
    owners = build(wish("mistaken", created=NOON - timedelta(days=1)), wish("late", age=timedelta(seconds=2)))
    assert owners.reserve("mistaken", listed=None) is None

    assert owners.reserve("late", listed=NOON) is None


def test_only_owned_sessions_are_walked_over() -> None:
    owners = build(wish("a"), wish("b", owned=True))

    assert [claim.uid for claim in owners.owned()] == ["b"]


def snapshot() -> Snapshot:
    return Snapshot.of(
        {
            "metadata": {
                "uid": "u",
                "namespace": "default",
                "name": "one",
                "resourceVersion": "5",
                "creationTimestamp": "2026-11-30T12:00:00Z",
            },
            "spec": {"spriteName": "my-sprite"},
        }
    )


def test_an_object_wishes_for_its_declared_session_until_it_has_one() -> None:
    spec = {"sessionId": "41", "sessionCreatedTime": "2026-11-30T11:00:00Z"}
    claim = read_claim(snapshot(), spec, {})
    assert claim is not None
    assert (claim.owned, claim.session_id, claim.created) == (False, "41", NOON - timedelta(hours=1))

    session = {"id": "77", "spriteId": "sprite-1", "created": "2026-11-30T11:30:00.5Z"}
    claim = read_claim(snapshot(), spec, {"session": session})
    assert claim is not None
    assert (claim.owned, claim.session_id, claim.sprite_id) == (True, "77", "sprite-1")


def test_an_object_whose_session_has_ended_or_is_being_launched_says_nothing() -> None:
    ended = {"session": {"id": "77", "ended": {"reason": "Lost"}}}
    launching = {"session": {"launchIntent": {"nonce": "n"}}}

    assert read_claim(snapshot(), {"sessionId": "41"}, ended) is None
    assert read_claim(snapshot(), {"sessionId": "41"}, launching) is None
    assert read_claim(snapshot(), {}, {}) is None

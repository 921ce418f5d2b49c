"""Which sprites a token is known to serve because an object says so."""

from typing import Any

import pytest

from controller.api.names import FINALIZER
from controller.engine.registry import Snapshot
from controller.engine.stakes import OWN, Stakes, find_source, has_stake

ONE, TWO = ("default", "one", "token"), ("default", "two", "token")


def build(status: dict[str, Any] | None = None, *, finalizers: tuple[str, ...] = ()) -> Snapshot:
    metadata = {
        "uid": "u",
        "namespace": "default",
        "name": "one",
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-30T12:00:00Z",
        "finalizers": list(finalizers),
    }
    return Snapshot.of({"metadata": metadata, "spec": {"spriteName": "box"}, "status": status or {}})


def test_a_token_knows_the_sprites_of_all_sources_at_which_it_was_found() -> None:
    stakes = Stakes()
    stakes.put("u1", ONE, "a")
    stakes.put("u2", ONE, "b")
    stakes.put("u3", TWO, "c")
    stakes.bind(ONE, "first")
    assert set(stakes.names("first")) == {"a", "b"}

    stakes.bind(TWO, "first")
    assert set(stakes.names("first")) == {"a", "b", "c"}
    assert set(stakes.names("other")) == set()


def test_a_token_that_was_replaced_at_its_source_serves_it_no_longer() -> None:
    stakes = Stakes()
    stakes.put("u1", ONE, "a")
    stakes.bind(ONE, "first")
    stakes.bind(ONE, "second")

    assert set(stakes.names("first")) == set()
    assert set(stakes.names("second")) == {"a"}


def test_a_sprite_is_known_until_the_last_object_has_nothing_to_lose_there() -> None:
    stakes = Stakes()
    stakes.bind(ONE, "first")
    for uid in ("u1", "u2", "u2"):
        stakes.put(uid, ONE, "a")

    stakes.drop("u1")
    assert set(stakes.names("first")) == {"a"}
    stakes.drop("u2")
    stakes.drop("u2")
    assert set(stakes.names("first")) == set()


def test_an_object_whose_token_comes_from_elsewhere_is_counted_there() -> None:
    stakes = Stakes()
    stakes.bind(ONE, "first")
    stakes.bind(TWO, "second")
    stakes.put("u1", ONE, "a")

    stakes.put("u1", TWO, "a")

    assert set(stakes.names("first")) == set()
    assert set(stakes.names("second")) == {"a"}


@pytest.mark.parametrize(
    ("spec", "source"),
    [
        ({}, OWN),
        ({"tokenSecretRef": None}, OWN),
        ({"tokenSecretRef": {"name": "one"}}, ONE),
        ({"tokenSecretRef": {"name": "one", "key": "other"}}, ("default", "one", "other")),
    ],
)
def test_the_source_of_a_token_is_its_secret_or_the_operator(
    spec: dict[str, Any], source: tuple[str, str, str]
) -> None:
    assert find_source("default", spec) == source


@pytest.mark.parametrize(
    ("status", "finalizers", "stake"),
    [
        ({}, (), False),
        ({}, (FINALIZER,), True),
        ({"session": {"id": "41"}}, (FINALIZER,), True),
        ({"session": {"id": "41"}}, (), True),
        ({"session": {"launchIntent": {"nonce": "n"}}}, (FINALIZER,), True),
        ({"session": {"id": "41", "ended": {"reason": "Exited"}}}, (FINALIZER,), False),
    ],
    ids=["nothing", "an adoption under way", "a session", "a stripped object", "a launch", "an ended session"],
)
def test_a_stake_is_a_session_that_has_not_ended(
    status: dict[str, Any], finalizers: tuple[str, ...], stake: bool
) -> None:
    assert has_stake(build(status, finalizers=finalizers), status) == stake

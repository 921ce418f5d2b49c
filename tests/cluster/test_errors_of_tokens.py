"""
Every trouble with a token, on a real API server: the condition it becomes, and how it ends.

The operator reads metadata every second here, so that what takes 30 s elsewhere is seen soon. What takes a minute
whatever is done (a Secret is read again, an absence is sure) goes on beside the other tests, in worlds of its own.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.errors import (
    LAUNCH,
    MANY,
    POLL_SECONDS,
    STUBBORN,
    Plays,
    assert_no_secret_was_told,
    assert_stalled,
    await_events,
    delete_secret,
    open_world,
    summarize,
    tell_events,
)
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import Kind, build_sprites_token, secret

STRANGER = build_sprites_token("stranger")
"""A token of another organization."""
FORMER, PLANTED = build_sprites_token("lab"), secret(Kind.SPRITES, "planted")
REREAD_WITHIN = 130.0
"""A Secret is read again after 60 s; the rest is for a busy machine."""
AT_ONCE_SECONDS = 20.0
"""By nobody's waiting: whoever waits for a Secret waits for a minute."""


SECRETS: dict[str, tuple[dict[str, str] | None, str, str]] = {
    "missing": (None, "SecretNotFound", "Secret missing does not exist, or the operator may not read it."),
    "keyless": ({"other": "x"}, "SecretKeyMissing", "Secret keyless has no value under the key token."),
    "empty": ({"token": ""}, "SecretKeyMissing", "Secret empty has no value under the key token."),
    "spaced": (
        {"token": f"{PLANTED} secret/1"},
        "TokenInvalid",
        "Key token of Secret spaced: The Sprites token has white space",
    ),
    "broken": (
        {"token": f"{PLANTED}\x07secret"},
        "TokenInvalid",
        "Key token of Secret broken: The Sprites token has a control",
    ),
    "newline": ({"token": "\n"}, "TokenInvalid", "Key token of Secret newline: The Sprites token is empty"),
    "refused": (
        {"token": build_sprites_token("planted")},
        "TokenRejected",
        "the token under the key token of Secret refused",
    ),
}


# --- what takes a minute ----------------------------------------------------------------------------------------------


def play_troubles(world: World) -> None:
    for name, (values, _, _) in SECRETS.items():
        if values is not None:
            world.put_secret(name, **values)
        world.create(name, tokenSecretRef={"name": name}, launch=LAUNCH)

    for name, (_, reason, said) in SECRETS.items():
        status = world.await_reason(name, reason, "Stalled")
        assert_stalled(status, reason)
        assert said in read_condition(status, "Stalled")["message"]
        reachable = ("False", "TokenRejected") if name == "refused" else ("Unknown", "Pending")
        assert summarize(status, "SpriteReachable") == {"SpriteReachable": reachable}
        await_events(world, name, ("Warning", reason))
    assert world.live() == []
    assert_no_secret_was_told(world, PLANTED)
    mended = time.monotonic()
    for name in SECRETS:
        world.put_secret(name, token=world.lab.token)

    for name in SECRETS:
        left = max(0.1, REREAD_WITHIN - (time.monotonic() - mended))
        status = world.await_reason(name, "Detached", within=left)
        assert summarize(status, "Stalled", "Ready") == {
            "Stalled": ("False", "Detached"),
            "Ready": ("True", "Detached"),
        }
    assert len(world.live()) == len(SECRETS)


def play_stranger(world: World, both: EmulatorProcess, folder: Path) -> None:
    both.create_sprite("box")
    session = both.start_session("box", *STUBBORN)
    world.create("one", sessionId=session["id"])
    world.await_reason("one", "Detached")
    delete_secret(world, "sprites")
    start_with_own_token(world, folder, namespaces="*", sprites="*", token=STRANGER)

    world.patch("one", terminated=True)
    world.await_reason("one", "SpriteNotFound", "Terminated")
    # Two complete listings that lie a minute apart would be a proof to a token that had seen the sprite.
    later = time.time() + 62
    await_true(lambda: bool(both.requests(route="sprites.list", after=later)), "a listing a minute later", 110)
    both.clear_requests()
    world.patch("one", holdWanted=True)
    await_true(lambda: bool(both.requests(route="sprites.get", sprite="box")), "another look")
    status = world.await_reason("one", "SpriteNotFound", "Terminated")
    assert both.requests(route="exec.kill") == []
    assert summarize(status, "Terminated") == {"Terminated": ("False", "SpriteNotFound")}
    assert len(both.sessions("box")) == 1


@pytest.fixture(scope="module", autouse=True)
def plays(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plays]:
    """Begin with what takes a minute; the other tests of this page go on meanwhile."""
    with (
        EmulatorProcess() as own,
        EmulatorProcess("--token", FORMER, "--token", STRANGER) as both,
        open_world(cluster, own, METADATA_SECONDS="1") as troubled,
        open_world(cluster, both, METADATA_SECONDS="1") as strange,
        ThreadPoolExecutor(2) as pool,
    ):
        own.create_sprite("box")
        troubled.poll_seconds = strange.poll_seconds = POLL_SECONDS
        running = Plays(pool)
        running.begin("troubles", partial(play_troubles, troubled))
        running.begin("stranger", partial(play_stranger, strange, both, tmp_path_factory.mktemp("stranger")))
        yield running
        pool.shutdown(wait=True, cancel_futures=True)
        assert_no_secret_was_told(troubled, own.token, PLANTED)
        assert_no_secret_was_told(strange, both.token)


@pytest.fixture
def world(cluster: Cluster, lab: EmulatorProcess) -> Iterator[World]:
    """A world for one test."""
    with open_world(cluster, lab, METADATA_SECONDS="1") as world:
        yield world
        assert_no_secret_was_told(world, lab.token)


def adopt(world: World, name: str, **spec: Any) -> dict[str, Any]:
    """Adopt a fresh session, and return it."""
    session: dict[str, Any] = world.lab.start_session("box", *STUBBORN)
    world.create(name, sessionId=session["id"], **spec)
    world.await_reason(name, "Detached")
    return session


def test_a_refused_token_is_read_again_and_its_successor_is_used_at_once(world: World) -> None:
    successor = build_sprites_token("lab", "two")
    with EmulatorProcess("--token", FORMER, "--token", successor) as rotating:
        rotating.create_sprite("box")
        world.put_secret("sprites", token=FORMER)
        world.sprites_url = rotating.url
        world.start_operator()
        world.create("first", launch=LAUNCH)
        world.await_reason("first", "Detached")

        world.put_secret("sprites", token=successor)
        rotating.arm_fault({"kind": "status", "status": 401}, route="exec.list", times=1)
        session = rotating.start_session("box", *STUBBORN)
        rotating.clear_requests()
        world.create("second", sessionId=session["id"])
        world.await_reason("second", "Detached")

        refused, repeated = rotating.requests(route="exec.list", cause="adopt")
        assert (refused["status"], repeated["status"]) == (401, 200)
        assert repeated["time"] - refused["finished"] < AT_ONCE_SECONDS
        assert tell_events(world, "second") == []

        rotating.arm_fault({"kind": "status", "status": 401}, route="exec.kill", times=MANY)
        world.put_secret("sprites", token=FORMER)
        world.patch("second", terminated=True)
        world.await_reason("second", "TokenRejected", "Terminated")
        kills = rotating.requests(route="exec.kill")
        assert [kill["status"] for kill in kills] == [401, 401]
        assert kills[1]["time"] - kills[0]["finished"] < AT_ONCE_SECONDS
        assert_no_secret_was_told(world, successor, FORMER)


def test_the_last_good_token_ends_what_it_started_after_its_secret_was_deleted(world: World) -> None:
    adopt(world, "ended")
    adopt(world, "deleted")
    delete_secret(world, "sprites")

    world.delete("deleted")
    world.patch("ended", terminated=True)

    world.await_gone("deleted")
    world.await_reason("ended", "Confirmed", "Terminated")
    assert world.live() == []


def test_without_any_token_an_end_keeps_its_record_until_the_operator_has_one_of_its_own(
    world: World, tmp_path: Path
) -> None:
    session = adopt(world, "ended")
    adopt(world, "deleted")
    delete_secret(world, "sprites")
    world.start_operator(METADATA_SECONDS="1")
    world.delete("deleted")
    world.patch("ended", terminated=True)
    for name in ("deleted", "ended"):
        status = world.await_reason(name, "SecretNotFound", "Terminated")
        assert_stalled(status, "SecretNotFound")
        assert "`deletionPolicy: Orphan`" in read_condition(status, "Terminated")["message"]
    assert world.status("ended")["session"]["id"] == session["id"]
    assert len(world.live()) == 2

    # It serves neither this namespace nor this sprite; what is recorded is ended with it all the same.
    start_with_own_token(world, tmp_path, namespaces="elsewhere", sprites="nothing")
    world.await_gone("deleted")
    world.await_reason("ended", "Confirmed", "Terminated")
    assert world.live() == []


def start_with_own_token(
    world: World, folder: Path, *, namespaces: str, sprites: str, token: str | None = None
) -> Path:
    file = folder / "token"
    file.write_text(f"{token or world.lab.token}\n")
    world.start_operator(
        METADATA_SECONDS="1",
        SPRITES_TOKEN_FILE=str(file),
        OWN_TOKEN_NAMESPACES=namespaces,
        OWN_TOKEN_SPRITES=sprites,
    )
    return file


def test_the_operators_own_token_serves_exactly_what_its_patterns_name(world: World, tmp_path: Path) -> None:
    world.lab.create_sprites("dev-1", "prod-1")
    file = start_with_own_token(world, tmp_path, namespaces="elsewhere,test-*", sprites="dev-?")

    world.create("served", spriteName="dev-1", tokenSecretRef=None, launch=LAUNCH)
    world.create("other-sprite", spriteName="prod-1", tokenSecretRef=None, launch=LAUNCH)
    world.await_reason("served", "Detached")
    status = world.await_reason("other-sprite", "TokenNotAllowed", "Stalled")
    assert_stalled(status, "TokenNotAllowed")
    message = read_condition(status, "Stalled")["message"]
    assert "sprite prod-1" in message
    assert f"namespace {world.namespace}" in message
    assert "Name a Secret" in message
    world.patch("other-sprite", tokenSecretRef={"name": "sprites"})
    world.await_reason("other-sprite", "Detached")

    file.write_text("not a token\n")
    world.create("third", spriteName="dev-1", tokenSecretRef=None, launch=LAUNCH)
    status = world.await_reason("third", "TokenInvalid", "Stalled")
    assert "The operator's own token cannot be read" in read_condition(status, "Stalled")["message"]
    file.write_text(world.lab.token)
    world.patch("third", holdWanted=True)
    world.await_reason("third", "Detached")


def test_a_namespace_without_right_to_the_operators_token_is_told_what_to_do(world: World, tmp_path: Path) -> None:
    start_with_own_token(world, tmp_path, namespaces="elsewhere", sprites="*")

    world.create("one", tokenSecretRef=None, launch=LAUNCH)

    status = world.await_reason("one", "TokenNotAllowed", "Stalled")
    assert_stalled(status, "TokenNotAllowed")
    assert world.lab.requests(door="api") == []


def test_a_live_terminal_whose_token_was_taken_away_says_so_and_is_still_ended(world: World, tmp_path: Path) -> None:
    start_with_own_token(world, tmp_path, namespaces="elsewhere", sprites="*")
    session = adopt(world, "one")

    world.patch("one", tokenSecretRef=None)
    status = world.await_reason("one", "TokenNotAllowed", "Stalled")
    assert_stalled(status, "TokenNotAllowed")
    assert status["session"]["id"] == session["id"]

    world.patch("one", terminated=True)
    world.await_reason("one", "Confirmed", "Terminated")
    assert world.live() == []


@pytest.mark.timeout(300)
def test_every_trouble_with_a_token_has_its_reason_and_ends_by_itself_once_the_secret_is_mended(plays: Plays) -> None:
    plays.watch("troubles")


@pytest.mark.timeout(300)
def test_the_own_token_of_another_organization_proves_no_death_by_seeing_nothing(plays: Plays) -> None:
    plays.watch("stranger")

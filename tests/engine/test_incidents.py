"""
Incidents of the Sprites API seen by the whole engine, in virtual time: what everybody would have to suffer from.

Two kinds that a count of refusals alone does not stop: one in which the sprites refuse while their list is right, and
one that befalls an organization with a sprite or two.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.api.names import FINALIZER
from controller.sprites.errors import NotFound, SpritesError, Unauthorized
from tests.engine.memory_world import MemoryWorld

MOMENT: Final = timedelta(minutes=2)
PROBE: Final = timedelta(seconds=30)
NAMES: Final = ("live", "dying", "going", "doubted")
ROUTES: Final = ("list_sessions", "kill_session", "launch_session", "run_command")
RESTS: Final = {"live": "Held"}
FOREVER: Final = 100_000
REFUSALS: Final = [NotFound("HTTP 404.", status=404), Unauthorized("HTTP 401.", status=401)]


async def furnish(world: MemoryWorld, names: Sequence[str]) -> None:
    """A sprite with a session for each name, and a terminal that has adopted it and would start another if it died."""
    for name in names:
        world.sprites.add(name)
        world.sprites.start(name, "7")
        launch = {"command": ["bash"]}
        world.kube.create(
            name,
            spriteName=name,
            sessionId="7",
            launch=launch,
            relaunch="OnLost",
            idleTimeoutSeconds=0,
            holdWanted=name == "live",
            hold={"mode": "Always"},
        )
    await world.pass_time(MOMENT)
    assert [world.reason(name) for name in names] == [RESTS.get(name, "Detached") for name in names]


def ask_for_ends(world: MemoryWorld) -> None:
    """Ask for two ends, and whether a third one lives."""
    world.kube.patch("dying", terminated=True)
    world.kube.delete("going")
    world.kube.request_reconcile("doubted", "now")


def expect_nothing_lost(world: MemoryWorld, names: Sequence[str]) -> None:
    for name in names:
        assert list(world.sprites.sprites[name].sessions) == ["7"], name
        assert FINALIZER in world.kube.objects[name]["metadata"]["finalizers"]
        assert world.status(name)["session"]["id"] == "7"
        assert "ended" not in world.status(name)["session"]
        assert world.condition(name, "Terminated")["status"] != "True"


def read_open(world: MemoryWorld) -> float:
    value = world.metrics.registry.get_sample_value("agentterminal_breakers_open")
    assert value is not None
    return value


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", REFUSALS, ids=["404", "401"])
async def test_sprites_that_refuse_while_their_list_is_right_are_one_incident_and_not_one_every_thirty_seconds(
    refusal: SpritesError, caplog: pytest.LogCaptureFixture
) -> None:
    async with MemoryWorld() as world:
        await furnish(world, NAMES)
        for route in ROUTES:
            world.sprites.troubles[route] = [refusal] * FOREVER
        ask_for_ends(world)
        await world.pass_time(MOMENT)
        assert read_open(world) == 1
        world.sprites.forget_calls()
        caplog.clear()
        world.kube.writes.clear()
        for _ in range(120):
            await world.pass_time(PROBE)
            assert read_open(world) == 1

        calls = world.sprites.count()
        lists = sum(count for (route, _), count in calls.items() if route == "list_sprites")
        assert lists <= 125
        assert sum(calls.values()) - lists <= 125, "one call inside for each list"
        assert [record for record in caplog.records if "incident" in record.getMessage().lower()] == []
        assert world.kube.writes == ["status live"], "its hold has lapsed"
        assert world.reason("dying") == world.reason("going") == "ApiIncident"
        expect_nothing_lost(world, NAMES)

        world.sprites.troubles.clear()
        await world.pass_time(MOMENT)
        assert read_open(world) == 0
        assert world.reason("dying", "Terminated") == "Confirmed"
        assert world.is_gone("going")
        assert (world.reason("doubted"), world.reason("live")) == ("Detached", "Held")
        assert list(world.sprites.sprites["live"].sessions) == ["7"]


@pytest.mark.looptime
@pytest.mark.parametrize("names", [("dying",), ("going",), ("live",), ("dying", "going"), ("live", "doubted")])
@pytest.mark.parametrize("restarts", [False, True])
async def test_of_a_sprite_or_two_that_are_not_listed_and_not_found_nothing_is_proven_lost_or_started_anew(
    names: tuple[str, ...], restarts: bool
) -> None:
    async with MemoryWorld() as world:
        await furnish(world, names)
        shown, world.sprites.sprites = world.sprites.sprites, {}
        ask: dict[str, Any] = {
            "dying": lambda: world.kube.patch("dying", terminated=True),
            "going": lambda: world.kube.delete("going"),
            "doubted": lambda: world.kube.request_reconcile("doubted", "now"),
        }
        for name in names:
            ask.get(name, lambda: None)()
        await world.pass_time(4 * MOMENT)
        if restarts:
            await world.restart()
            await world.pass_time(4 * MOMENT)

        world.sprites.sprites = shown
        expect_nothing_lost(world, names)
        for name in {"live", "doubted"} & set(names):
            told = world.condition(name, "Ready")
            assert (told["status"], told["reason"]) == ("False", "SpriteNotFound")
            assert "An incident looks just so" in told["message"]
        for name in {"dying", "going"} & set(names):
            told = world.condition(name, "Terminated")
            assert (told["status"], told["reason"]) == ("False", "SpriteNotFound")
            assert "An incident looks just so" in told["message"]
            assert "`deletionPolicy: Orphan`" in told["message"]

        await world.pass_time(2 * MOMENT)
        for name in names:
            match name:
                case "dying":
                    assert world.reason(name, "Terminated") == "Confirmed"
                case "going":
                    assert world.is_gone(name)
                case _:
                    assert world.reason(name) == RESTS.get(name, "Detached")
                    assert list(shown[name].sessions) == ["7"]


@pytest.mark.looptime
async def test_an_only_sprite_that_was_made_anew_under_its_name_proves_the_end_of_the_former_one() -> None:
    async with MemoryWorld() as world:
        await furnish(world, ["going"])
        world.sprites.sprites = {}
        world.kube.delete("going")
        await world.pass_time(MOMENT)
        assert not world.is_gone("going")

        world.sprites.add("going").id = "another"
        await world.pass_time(2 * MOMENT)

        assert world.is_gone("going")


@pytest.mark.looptime
@pytest.mark.parametrize("names", [("going",), ("dying", "going")])
async def test_whoever_deletes_the_only_sprites_of_an_organization_sees_their_terminals_end_some_minutes_later(
    names: tuple[str, ...],
) -> None:
    async with MemoryWorld() as world:
        await furnish(world, names)
        world.sprites.sprites = {}
        for name in names:
            world.kube.delete("going") if name == "going" else world.kube.patch(name, terminated=True)

        await world.pass_time(timedelta(minutes=9))
        assert not world.is_gone("going")
        await world.pass_time(timedelta(minutes=4))

        assert world.is_gone("going")
        if "dying" in names:
            assert world.reason("dying", "Terminated") == "Confirmed"
            assert world.status("dying")["kill"]["proof"] == "SpriteGone"

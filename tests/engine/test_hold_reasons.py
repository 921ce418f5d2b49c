"""Why nothing is held, as the whole engine tells it: the condition names the cause, and at rest nothing is written."""

from datetime import timedelta
from typing import Any, Final

import pytest

from controller.api.session import SpriteState
from controller.sprites.exec_frames import CommandResult
from tests.engine.memory_world import MemoryWorld

MOMENT: Final = timedelta(minutes=2)
HOUR: Final = timedelta(hours=1)
NO_CURL: Final = CommandResult(127, b"", b"")


async def adopt(world: MemoryWorld, state: SpriteState = SpriteState.RUNNING, **spec: Any) -> None:
    """A terminal that wants a hold, of a session in which nothing happens."""
    world.sprites.add("box", state)
    world.sprites.start("box", "7")
    await world.pass_time(HOUR)
    world.kube.create("one", sessionId="7", idleTimeoutSeconds=0, holdWanted=True, **spec)
    await world.pass_time(MOMENT)


def tell(world: MemoryWorld) -> str:
    held = world.condition("one", "Held")
    assert (held["status"], held["reason"]) == ("False", "NotHeld")
    message: str = held["message"]
    return message


@pytest.mark.looptime
async def test_a_wish_without_work_says_so_and_costs_one_write_that_is_not_repeated_by_time_or_a_restart() -> None:
    async with MemoryWorld() as world:
        await adopt(world)
        assert tell(world).startswith("Nobody is attached, and nothing")
        assert world.kube.writes.count("status one") == 2
        world.kube.writes.clear()
        await world.pass_time(24 * HOUR)
        await world.restart()
        await world.pass_time(HOUR)

        assert world.kube.writes == []


@pytest.mark.looptime
async def test_a_hold_that_waits_for_its_sprite_says_so_until_it_runs() -> None:
    async with MemoryWorld() as world:
        await adopt(world)
        world.sprites.sprites["box"].state = SpriteState.WARM
        await world.pass_time(MOMENT)
        world.kube.patch("one", hold={"mode": "Always"})
        await world.pass_time(MOMENT)
        assert tell(world).endswith("no sprite is woken by a hold: it begins when the sprite is next seen running.")

        world.sprites.sprites["box"].state = SpriteState.RUNNING
        await world.pass_time(MOMENT)

        assert world.reason("one", "Held") == "HoldActive"
        assert world.condition("one", "Held").get("message", "") == ""


@pytest.mark.looptime
async def test_a_sprite_without_curl_is_named_as_the_reason_and_what_goes_on_is_not_written_again() -> None:
    async with MemoryWorld() as world:
        world.sprites.spoil_commands(NO_CURL, times=100_000)
        await adopt(world, hold={"mode": "Always"})
        await world.pass_time(MOMENT)
        told, writes = world.condition("one", "Held"), len(world.kube.writes)
        assert (told["status"], told["reason"]) == ("Unknown", "HoldUnclear")
        assert "the sprite has no curl, by which holds are set: install it there." in told["message"]

        await world.pass_time(HOUR)

        assert len(world.kube.writes) == writes

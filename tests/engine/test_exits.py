"""What the operator makes of an exit that a gateway tells, in virtual time: it looks at once, and once only."""

from datetime import timedelta
from typing import Final

import pytest

from controller.api.session import Cause, SpriteState
from tests.engine.memory_world import SECOND, MemorySprite, MemoryWorld

GATEWAY: Final = "gateway1"


async def run(world: MemoryWorld) -> MemorySprite:
    """A terminal `one` whose session runs, at rest."""
    sprite = world.sprites.add("box")
    world.sprites.start("box", "7")
    world.kube.create("one", sessionId="7", idleTimeoutSeconds=0)
    await world.pass_time(timedelta(minutes=1))
    world.sprites.forget_calls()
    world.kube.writes.clear()
    return sprite


def count_looks(world: MemoryWorld) -> int:
    """How often the sprite was asked whether the session lives."""
    return world.sprites.count()["list_sessions", Cause.CHECK]


@pytest.mark.looptime
async def test_an_exit_that_is_told_is_in_the_status_within_two_seconds_and_costs_one_write() -> None:
    async with MemoryWorld() as world:
        sprite = await run(world)
        sprite.sessions.clear()
        world.kube.tell_exit("one", GATEWAY, 3)

        await world.pass_time(2 * SECOND)

        assert world.reason("one", "SessionLive") == "Exited"
        assert world.status("one")["exit"] == {"code": 3}
        assert world.status("one")["session"]["ended"]["reason"] == "Exited"
        assert len(world.kube.writes) == 1
        assert count_looks(world) <= 2


@pytest.mark.looptime
async def test_an_exit_that_the_list_denies_is_looked_into_once_and_not_believed() -> None:
    async with MemoryWorld() as world:
        await run(world)
        world.kube.tell_exit("one", GATEWAY, 3)
        await world.pass_time(10 * SECOND)
        looks = count_looks(world)

        # Each visit finds it standing there, and asks no more.
        for _ in range(3):
            world.kube.annotate("one", **{"agentterminal.dev/activity": world.clock.now().isoformat()})
            await world.pass_time(5 * SECOND)

        assert 1 <= looks <= 20
        assert count_looks(world) == looks
        assert world.reason("one", "SessionLive") == "Live"
        assert "exit" not in world.status("one")


@pytest.mark.looptime
async def test_an_exit_in_a_sprite_that_pauses_at_once_is_believed_and_wakes_nothing() -> None:
    async with MemoryWorld() as world:
        sprite = await run(world)
        sprite.sessions.clear()
        sprite.state = SpriteState.WARM
        await world.pass_time(timedelta(minutes=1))
        world.sprites.forget_calls()
        world.kube.tell_exit("one", GATEWAY, 137)

        await world.pass_time(timedelta(minutes=1))

        assert world.reason("one", "SessionLive") == "Exited"
        assert world.status("one")["exit"] == {"code": 137}
        assert sprite.state is SpriteState.WARM
        assert count_looks(world) == 0


@pytest.mark.looptime
async def test_a_code_that_comes_after_the_end_was_seen_is_taken_into_that_end() -> None:
    async with MemoryWorld() as world:
        sprite = await run(world)
        sprite.sessions.clear()
        world.kube.request_reconcile("one", "now")
        await world.pass_time(5 * SECOND)
        before = world.status("one")["session"]["ended"]
        world.kube.tell_exit("one", GATEWAY, 0)
        await world.pass_time(5 * SECOND)

        assert before["reason"] == "ExitUnseen"
        assert world.status("one")["session"]["ended"] == {**before, "reason": "Exited"}
        assert world.status("one")["exit"] == {"code": 0}

"""Hours of virtual time with the real engine: what a paused sprite is asked, and what a hundred terminals cost."""

from collections import Counter
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.api.session import SpriteState
from tests.engine.memory_world import MemoryWorld, at

DAY: Final = timedelta(days=1)
SETTLED: Final = timedelta(minutes=2)
METADATA_INTERVAL: Final = timedelta(seconds=30)
RESYNC_INTERVAL: Final = timedelta(minutes=2)
NEVER_REAPED: Final = {"idleTimeoutSeconds": 0}

WISHES: Final[dict[str, dict[str, Any]]] = {
    "watched": {"attached": True},
    "held-watched": {"attached": True, "holdWanted": True},
    "held-always": {"holdWanted": True, "hold": {"mode": "Always"}, **NEVER_REAPED},
    "to-be-reaped": {"idleTimeoutSeconds": 3600},
    "suspended": {"idleTimeoutSeconds": 600},
}
"""Five terminals of each sprite, each of which might wish for something."""


@pytest.mark.looptime
async def test_a_day_on_paused_sprites_wakes_none_runs_nothing_and_reads_only_the_pages_of_metadata() -> None:
    async with MemoryWorld() as world:
        world.sprites.latency = timedelta(0)
        for number in range(4):
            world.sprites.add(f"box-{number}")
            for session, (wish, spec) in enumerate(WISHES.items()):
                world.sprites.start(f"box-{number}", str(session))
                world.kube.create(f"{wish}-{number}", spriteName=f"box-{number}", sessionId=str(session), **spec)
        await world.pass_time(SETTLED)
        for number in range(4):
            assert world.reason(f"held-watched-{number}", "Held") == "HoldActive"
            world.kube.patch(f"suspended-{number}", suspend=True)
            world.sprites.sprites[f"box-{number}"].state = SpriteState.WARM
        await world.pass_time(SETTLED)
        world.sprites.forget_calls()

        await world.pass_time(DAY)

        assert world.sprites.count() == Counter({("list_sprites", "metadata"): DAY // METADATA_INTERVAL})
        assert world.sprites.wakes == []
        assert world.count_wakes() == {}
        for number in range(4):
            assert world.reason(f"watched-{number}") == "Running"
            assert world.reason(f"held-watched-{number}", "Held") == "NotHeld"
            assert world.reason(f"to-be-reaped-{number}") == "ReapOwed"
            assert world.reason(f"suspended-{number}") == "Suspended"
        assert all(sprite.state is SpriteState.WARM for sprite in world.sprites.sprites.values())


@pytest.mark.looptime
async def test_an_object_at_rest_is_not_written_however_its_sprite_comes_and_goes() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        world.sprites.start("box", "1")
        world.kube.create("one", sessionId="1", attached=True)
        await world.pass_time(SETTLED)
        world.kube.writes.clear()

        for seconds in range(5, 25):
            world.sprites.sprites["box"].state = SpriteState.WARM
            await world.pass_time(timedelta(minutes=5, seconds=seconds))
            world.sprites.sprites["box"].state = SpriteState.RUNNING
            await world.pass_time(timedelta(minutes=5, seconds=seconds))

        assert world.kube.writes == []
        assert world.sprites.wakes == []


# --- what many cost ---------------------------------------------------------------------------------------------------

MODES: Final = ("watched", "always", "printing", "hooked", "printing")
"""What five terminals of a sprite are held for."""
HELD_FOR: Final = timedelta(minutes=65)
"""Long enough for a turn of the names."""


async def count_calls(*, terminals: int, held: int) -> Counter[tuple[str, str]]:
    """Count the calls for ten sprites with so many terminals each, some of them held, over some hours."""
    async with MemoryWorld() as world:
        modes: dict[str, str] = {}
        for sprite in range(10):
            world.sprites.add(f"box-{sprite}", pauses_after=timedelta(seconds=30))
            for number in range(terminals):
                world.sprites.start(f"box-{sprite}", str(number))
                name = f"{sprite}-{number}"
                spec: dict[str, Any] = {"spriteName": f"box-{sprite}", "sessionId": str(number), **NEVER_REAPED}
                if number < held:
                    modes[name] = MODES[(sprite + number) % len(MODES)]
                    spec |= {"holdWanted": True, "attached": True}
                    spec |= {"hold": {"mode": "Always"}} if modes[name] == "always" else {}
                world.kube.create(name, **spec)
        await world.pass_time(timedelta(minutes=1))
        end = world.clock.monotonic() + HELD_FOR
        for name, mode in modes.items():
            world.kube.annotate(name, activity=at(world.clock.now()))
            world.kube.patch(name, attached=mode == "watched")
        world.sprites.forget_calls()

        while world.clock.monotonic() < end:
            for name, mode in modes.items():
                sprite_number, _, session = name.partition("-")
                if mode == "printing":
                    world.sprites.print_something(f"box-{sprite_number}", session)
                if mode == "hooked":
                    world.kube.annotate(name, activity=at(world.clock.now()))
                    await world.pass_time(timedelta(milliseconds=700))
            await world.pass_time(timedelta(seconds=20))

        assert all(world.condition(name, "Held")["status"] == "True" for name in modes)
        assert all(sprite.state is SpriteState.RUNNING for sprite in world.sprites.sprites.values())
        assert world.sprites.wakes == []
        assert sum(len(sprite.tasks) for sprite in world.sprites.sprites.values()) >= len(modes)
        return world.sprites.count()


@pytest.mark.looptime
async def test_a_hundred_terminals_on_ten_sprites_half_of_them_held_cost_as_many_calls_as_ten() -> None:
    few = await count_calls(terminals=1, held=1)
    many = await count_calls(terminals=10, held=5)

    assert sum(few.values()) > 1000
    assert abs(sum(many.values()) - sum(few.values())) <= 0.1 * sum(few.values()), (few, many)
    assert set(many) == set(few)
    for route in few:
        assert many[route] <= 1.1 * few[route] + 1, (route, few, many)

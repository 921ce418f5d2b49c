"""The keeper of holds in virtual time: how each trouble of a command is told and outlived, and whose numbers count."""

import logging
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.plan.hold_settings import resolve_hold
from controller.sprites.errors import OutputTooLarge, ServerFault, SpritesError, TimedOut, Unfinished
from controller.sprites.exec_frames import CommandResult
from tests.engine.memory_world import MemorySprite, MemoryWorld

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)


async def hold(world: MemoryWorld, **spec: Any) -> MemorySprite:
    """A watched terminal that wishes for a hold, in a sprite that pauses where it may."""
    sprite = world.sprites.add("box", pauses_after=timedelta(seconds=30))
    world.sprites.start("box", "7")
    world.kube.create("one", sessionId="7", holdWanted=True, attached=True, **spec)
    await world.pass_time(SECOND)
    return sprite


TROUBLES: Final[list[tuple[SpritesError | CommandResult, str]]] = [
    (OutputTooLarge("It said more than 4096 bytes and was cut off."), "more than 4096 bytes"),
    (CommandResult(127, b"sh: curl: not found\n", b""), "has no curl (exit code 127)"),
    (CommandResult(7, b"\naterm 0 000 7\n", b""), "exit code 7"),
    (CommandResult(0, b"nothing of ours\n", b""), "Unreadable"),
    (Unfinished("It ended without an exit."), "ended without an exit"),
    (TimedOut("It took longer than 10 s."), "longer than 10 s"),
    (ServerFault("HTTP 503.", status=503), "HTTP 503"),
]


@pytest.mark.looptime
@pytest.mark.case("C4", "C13")
@pytest.mark.parametrize(("trouble", "told"), TROUBLES, ids=[told for _, told in TROUBLES])
async def test_each_trouble_of_a_renewal_is_told_apart_and_leaves_no_gap(
    trouble: SpritesError | CommandResult, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with MemoryWorld() as world:
        sprite = await hold(world)
        await world.pass_time(3 * MINUTE)
        caplog.clear()
        caplog.set_level(logging.WARNING)
        world.sprites.spoil_commands(trouble, times=3)

        await world.pass_time(10 * MINUTE)

        warnings = [record.message for record in caplog.records if "task" in record.message]
        assert len(warnings) == 3
        assert all(told in warning for warning in warnings)
        assert world.condition("one", "Held")["status"] == "True"
        world.sprites.settle()
        assert len(sprite.tasks) == 1
        assert world.sprites.wakes == []
        failed = world.read("agentterminal_hold_calls_total", "result")["Failed"]
        assert failed == 3


@pytest.mark.looptime
@pytest.mark.case("C5")
async def test_what_a_doubtful_creation_may_have_left_is_removed_when_the_work_ends() -> None:
    """The command's answer is lost after it was done, again and again; then the wish is withdrawn."""
    async with MemoryWorld() as world:
        sprite = world.sprites.add("box")
        world.sprites.start("box", "7")
        world.kube.create("one", sessionId="7", attached=True)
        await world.pass_time(SECOND)
        world.sprites.troubles["run_command"] = [Unfinished("It ended without an exit.")] * 3
        world.sprites.does_before_trouble = True
        world.kube.patch("one", holdWanted=True)
        await world.pass_time(2 * SECOND)
        assert sprite.tasks
        assert world.condition("one", "Held")["status"] == "Unknown"

        world.kube.patch("one", holdWanted=False)
        await world.pass_time(MINUTE)

        assert sprite.tasks == {}
        assert world.reason("one", "Held") == "NotWanted"


@pytest.mark.looptime
@pytest.mark.case("G1", "G5", "G6")
@pytest.mark.parametrize(
    ("own", "spec", "expire"),
    [
        (("", ""), {}, 300),
        (("90", ""), {}, 90),
        (("90", ""), {"hold": {"expireSeconds": 45}}, 45),
        (("90", "45000"), {"hold": {"expireSeconds": 30}}, 30),
    ],
)
async def test_what_an_object_leaves_out_comes_from_the_operators_settings(
    own: tuple[str, str], spec: dict[str, Any], expire: int
) -> None:
    async with MemoryWorld(hold=resolve_hold(*own)) as world:
        world.sprites.latency = timedelta(0)
        sprite = await hold(world, **spec)
        await world.pass_time(5 * MINUTE)

        world.sprites.settle()
        (task,) = sprite.tasks.values()
        assert timedelta(0) < task.expires - world.clock.now() <= timedelta(seconds=expire)
        sent = [call.time for call in world.sprites.calls if "PUT" in call.argv]
        assert len(sent) >= 5
        assert task.expires - sent[-1] == timedelta(seconds=expire)


@pytest.mark.looptime
@pytest.mark.case("C14")
async def test_an_operator_that_is_gone_leaves_no_task_beyond_its_expiry_and_the_sprite_pauses() -> None:
    async with MemoryWorld() as world:
        sprite = await hold(world)
        await world.pass_time(10 * MINUTE)
        assert sprite.tasks

        await world.stop()
        await world.pass_time(timedelta(seconds=300))

        world.sprites.settle()
        assert sprite.tasks == {}

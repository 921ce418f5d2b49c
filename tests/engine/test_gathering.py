"""One visit and one write for people who come and go within a moment, and nobody who waits is kept waiting for it."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.plan.news import MOMENT, UNDER_WAY_LIMIT
from tests.engine.memory_world import MemoryWorld

A_LITTLE: Final = timedelta(milliseconds=40)
"""What one write of a gateway is after another, on a machine that is busy."""
SETTLED: Final = timedelta(seconds=5)
"""Less than it takes to prove a gateway out that does not renew."""
IDLE: Final = timedelta(minutes=10)
ONE: Final = "gatewayaaaa"
OTHER: Final = "gatewaybbbb"
ONE_STATUS: Final = ["status one"]

Step = Callable[[MemoryWorld], object]


async def settle(world: MemoryWorld, **spec: Any) -> None:
    """Have a terminal that rests."""
    world.sprites.latency = timedelta(0)
    world.sprites.add("box")
    world.sprites.start("box", "1")
    world.kube.create("one", **{"sessionId": "1", **spec})
    await world.pass_time(SETTLED)
    world.kube.writes.clear()


def claim(incarnation: str) -> Step:
    return lambda world: world.kube.attach("one", incarnation, locks=False)


def lock(incarnation: str) -> Step:
    return lambda world: world.kube.lock("one", incarnation)


def clear(world: MemoryWorld) -> None:
    world.kube.clear_lock("one")


def leave(world: MemoryWorld) -> None:
    world.kube.patch("one", attached=False, activeSocketId="")


async def go(world: MemoryWorld, *steps: Step) -> None:
    world.kube.renew(ONE)
    world.kube.renew(OTHER)
    for step in steps:
        step(world)
        await world.pass_time(A_LITTLE)


COMING: Final = (claim(ONE), lock(ONE))


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("before", "steps", "attached"),
    [
        ((), COMING, "Viewer"),
        (COMING, (claim(OTHER), clear, lock(OTHER)), "Viewer"),
        (COMING, (clear, leave), "NoViewer"),
    ],
    ids=["an attach", "a takeover", "a leave"],
)
async def test_whatever_a_gateway_writes_within_a_moment_is_one_write_of_ours(
    before: tuple[Step, ...], steps: tuple[Step, ...], attached: str
) -> None:
    async with MemoryWorld() as world:
        await settle(world)
        await go(world, *before)
        await world.pass_time(SETTLED)
        world.kube.writes.clear()

        await go(world, *steps)
        assert world.kube.writes == []
        await world.pass_time(MOMENT)
        assert world.kube.writes == ONE_STATUS
        assert world.reason("one", "Attached") == attached
        assert "lock" not in world.condition("one", "Fenced")["message"]

        await world.pass_time(SETTLED)
        assert world.kube.writes == ONE_STATUS


@pytest.mark.looptime
async def test_a_takeover_that_takes_longer_is_one_write_at_its_end() -> None:
    async with MemoryWorld() as world:
        await settle(world)
        await go(world, *COMING)
        await world.pass_time(MOMENT)
        world.kube.writes.clear()

        await go(world, claim(OTHER))
        await world.pass_time(MOMENT)
        await go(world, clear)
        await world.pass_time(MOMENT)
        assert world.kube.writes == []
        await go(world, lock(OTHER))

        assert world.kube.writes == ONE_STATUS
        await world.pass_time(SETTLED)
        assert world.kube.writes == ONE_STATUS


@pytest.mark.looptime
async def test_who_waits_for_a_lock_for_long_is_told_of_before() -> None:
    async with MemoryWorld() as world:
        await settle(world)
        await go(world, *COMING)
        await world.pass_time(MOMENT)
        world.kube.writes.clear()

        await go(world, claim(OTHER))
        await world.pass_time(UNDER_WAY_LIMIT - A_LITTLE - timedelta(milliseconds=1))
        assert world.kube.writes == []
        await world.pass_time(timedelta(milliseconds=2))
        assert world.kube.writes == ONE_STATUS
        assert "waits" in world.condition("one", "Fenced")["message"]


@pytest.mark.looptime
async def test_who_comes_and_goes_without_end_puts_no_visit_off() -> None:
    async with MemoryWorld() as world:
        await settle(world)

        for number in range(50):
            world.kube.patch("one", attached=True, activeSocketId=f"foreign-{number}")
            await world.pass_time(A_LITTLE)

        # The next moment begins with the first change after a visit.
        assert len(world.kube.writes) == 50 * A_LITTLE // (7 * A_LITTLE)
        assert world.reason("one", "Attached") == ""
        await world.pass_time(MOMENT)
        assert world.reason("one", "Attached") == "Viewer"


@pytest.mark.looptime
async def test_terminated_ends_an_attached_terminal_at_once_and_takes_the_people_along() -> None:
    async with MemoryWorld() as world:
        await settle(world)
        await go(world, *COMING)
        world.sprites.forget_calls()

        world.kube.patch("one", terminated=True)
        await world.pass_time(timedelta(milliseconds=1))

        assert [call.route for call in world.sprites.calls if call.cause == "kill"] == ["kill_session"]
        await world.pass_time(SETTLED)
        assert world.reason("one", "Terminated") == "Confirmed"
        assert world.kube.writes == ONE_STATUS


@pytest.mark.looptime
async def test_other_news_takes_the_people_along_and_is_no_second_visit() -> None:
    async with MemoryWorld() as world:
        await settle(world)
        await go(world, *COMING)

        world.kube.patch("one", idleTimeoutSeconds=60)
        await world.pass_time(timedelta(milliseconds=1))

        assert world.reason("one", "Attached") == "Viewer"
        visits = world.read("agentterminal_reconciles_total", "result")
        await world.pass_time(MOMENT)
        assert world.read("agentterminal_reconciles_total", "result") == visits


@pytest.mark.looptime
async def test_a_hold_for_somebody_who_came_begins_a_moment_late_and_no_later() -> None:
    async with MemoryWorld() as world:
        await settle(world, holdWanted=True)
        await world.pass_time(IDLE)
        assert not world.sprites.sprites["box"].tasks

        await go(world, *COMING)
        assert not world.sprites.sprites["box"].tasks
        await world.pass_time(MOMENT)

        assert world.sprites.sprites["box"].tasks


@pytest.mark.looptime
async def test_who_comes_for_a_session_that_has_ended_waits_for_no_moment() -> None:
    async with MemoryWorld() as world:
        await settle(world, sessionId=None, launch={"command": ["sh"]})
        world.sprites.sprites["box"].sessions.clear()
        world.kube.request_reconcile("one", "look")
        await world.pass_time(SETTLED)
        assert world.status("one")["session"]["ended"]
        world.sprites.forget_calls()

        claim(ONE)(world)
        await world.pass_time(timedelta(milliseconds=1))

        assert "launch_session" in {call.route for call in world.sprites.calls}

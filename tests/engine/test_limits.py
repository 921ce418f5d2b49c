"""The budget of calls per token, in virtual time."""

import asyncio
from datetime import timedelta
from typing import cast

import pytest

from controller.api.session import Cause
from controller.engine.limits import Limiter, Paused, Priority
from controller.engine.observer import SpriteObserver
from controller.sprites.client import SpritesClient
from controller.sprites.token import Token
from tests.engine.clocks import LoopClock
from tests.engine.test_observer import FakeSprites

TOKEN = Token("lab/1/one")


async def spend(limiter: Limiter, count: int, priority: Priority = Priority.NORMAL) -> float:
    begun = asyncio.get_running_loop().time()
    for _ in range(count):
        await limiter.enter(priority)
    return asyncio.get_running_loop().time() - begun


@pytest.mark.looptime
async def test_a_burst_of_one_second_passes_at_once_but_for_the_reserve() -> None:
    assert await spend(Limiter(LoopClock(), per_second=10), 8) == 0


@pytest.mark.looptime
async def test_what_exceeds_the_burst_passes_at_the_agreed_rate() -> None:
    assert await spend(Limiter(LoopClock(), per_second=10), 18) == pytest.approx(1.0, abs=0.2)


@pytest.mark.looptime
@pytest.mark.parametrize("urgent", [Priority.KILL, Priority.PROOF])
async def test_kills_and_their_proofs_use_the_reserve_that_nobody_else_may_touch(urgent: Priority) -> None:
    limiter = Limiter(LoopClock(), per_second=10)
    await spend(limiter, 8)

    assert await spend(limiter, 2, urgent) == 0

    others = Limiter(LoopClock(), per_second=10)
    await spend(others, 8)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.09):
            await others.enter(Priority.NORMAL)


@pytest.mark.looptime
async def test_kills_go_before_what_waits_already() -> None:
    limiter, order = Limiter(LoopClock(), per_second=10), []
    await spend(limiter, 10, Priority.KILL)

    async def call(name: str, priority: Priority) -> None:
        await limiter.enter(priority)
        order.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(call("list", Priority.NORMAL))
        group.create_task(call("proof", Priority.PROOF))
        await asyncio.sleep(0)
        group.create_task(call("kill", Priority.KILL))

    assert order == ["kill", "proof", "list"]


@pytest.mark.looptime
async def test_a_pause_that_was_asked_for_turns_everybody_away_with_what_is_left_of_it_and_then_ends() -> None:
    limiter = Limiter(LoopClock(), per_second=10)
    limiter.pause(timedelta(seconds=7))

    await asyncio.sleep(3)
    with pytest.raises(Paused) as turned_away:
        await limiter.enter(Priority.KILL)
    assert turned_away.value.left == timedelta(seconds=4)

    await asyncio.sleep(4)
    assert await spend(limiter, 1, Priority.KILL) == 0


@pytest.mark.looptime
async def test_whoever_waits_when_a_pause_begins_is_not_kept_until_its_end() -> None:
    limiter = Limiter(LoopClock(), per_second=1)
    await spend(limiter, 1, Priority.KILL)
    waiting = [asyncio.ensure_future(limiter.enter(Priority.KILL)) for _ in range(3)]
    await asyncio.sleep(0)

    limiter.pause(timedelta(minutes=5))

    async with asyncio.timeout(1):
        answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [Paused] * 3


@pytest.mark.looptime
@pytest.mark.parametrize("delay", [timedelta(0), timedelta(seconds=-3)])
async def test_a_pause_of_nothing_stops_nobody(delay: timedelta) -> None:
    limiter = Limiter(LoopClock(), per_second=10)

    limiter.pause(delay)

    assert await spend(limiter, 1) == 0


@pytest.mark.looptime
async def test_a_wait_that_is_cancelled_takes_no_turn_with_it() -> None:
    limiter = Limiter(LoopClock(), per_second=1)
    await spend(limiter, 1, Priority.KILL)
    waiting = [asyncio.ensure_future(limiter.enter(Priority.KILL)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()

    await asyncio.wait_for(waiting[1], timeout=1.5)
    assert waiting[0].cancelled()


@pytest.mark.looptime
@pytest.mark.parametrize("per_second", [0.5, 1, 1.2])
async def test_a_budget_too_small_for_a_reserve_lets_everything_pass_all_the_same(per_second: float) -> None:
    limiter = Limiter(LoopClock(), per_second=per_second)

    async with asyncio.timeout(10):
        assert await spend(limiter, 2) == pytest.approx(1 / per_second, abs=1.2 / per_second)


@pytest.mark.looptime
async def test_a_kill_goes_before_the_holds_and_lists_that_wait_for_the_same_token_and_not_for_another() -> None:
    """Through the observer, whose budget all callers of a token share."""
    api, order = FakeSprites(), []
    observer = SpriteObserver(cast("SpritesClient", api), LoopClock(), per_second=10, on_change=lambda _: None)

    async def call(name: str, priority: Priority, token: Token = TOKEN) -> None:
        await observer.enter(token, priority)
        order.append(name)

    for _ in range(10):
        await observer.enter(TOKEN, Priority.KILL)
    async with asyncio.TaskGroup() as group:
        group.create_task(call("hold", Priority.NORMAL))
        group.create_task(observer.look_at_sessions(TOKEN, "box", since=timedelta(0), cause=Cause.CHECK))
        group.create_task(observer.look_at_sessions(TOKEN, "other", since=timedelta(0), cause=Cause.PROVE))
        await asyncio.sleep(0)
        group.create_task(call("kill", Priority.KILL))
        group.create_task(call("another token's hold", Priority.NORMAL, Token("lab/2/other")))
        await asyncio.sleep(0.05)
        assert order == ["another token's hold"]
        await asyncio.sleep(0.06)
        assert (order, api.calls) == (["another token's hold", "kill"], [])

    assert order == ["another token's hold", "kill", "hold"]
    assert api.calls == ["sessions other prove", "sessions box check"]

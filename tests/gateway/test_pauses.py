"""What the doors know of a sprite's pause."""

import asyncio
from datetime import timedelta

from controller.api.session import SpriteState
from controller.clock import SystemClock
from controller.gateway.pauses import KEPT, Pauses
from controller.gateway.standing import Presence
from tests.gateway.doubles import NAME, PATH, build_object, open_doors


class Watch(SystemClock):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.time = timedelta(0)

    def monotonic(self) -> timedelta:
        return self.time


class Platform:
    """Says how the sprite is, once it is let."""

    def __init__(self, *states: SpriteState | None) -> None:
        self.states = list(states)
        self.passage = asyncio.Event()
        self.passage.set()
        self.asked = 0

    async def ask(self) -> SpriteState | None:
        self.asked += 1
        await self.passage.wait()
        return self.states.pop(0)


async def test_one_question_serves_all_who_come_within_two_seconds_and_then_it_is_asked_again() -> None:
    clock, platform = Watch(), Platform(SpriteState.WARM, SpriteState.RUNNING)
    pauses = Pauses(clock)
    platform.passage.clear()
    crowd = [asyncio.ensure_future(pauses.find("uid-1", platform.ask)) for _ in range(5)]
    await asyncio.sleep(0)
    platform.passage.set()

    assert await asyncio.gather(*crowd) == [SpriteState.WARM] * 5
    clock.time += KEPT - timedelta(milliseconds=1)
    assert await pauses.find("uid-1", platform.ask) is SpriteState.WARM
    clock.time += timedelta(milliseconds=1)
    assert await pauses.find("uid-1", platform.ask) is SpriteState.RUNNING
    assert platform.asked == 2


async def test_what_is_known_of_one_object_says_nothing_of_another() -> None:
    pauses, platform = Pauses(Watch()), Platform(SpriteState.WARM, None)

    assert await pauses.find("uid-1", platform.ask) is SpriteState.WARM
    assert await pauses.find("uid-2", platform.ask) is None


async def test_the_doors_ask_for_a_look_alone_and_refuse_it_while_the_sprite_is_paused() -> None:
    async with open_doors() as doors:
        doors.terminals.state = SpriteState.WARM

        look = await doors.ask(f"{PATH}/attach?view=true")
        vendors_look = await doors.attempt(f"{PATH}/sdk/v1/sprites/box/exec/77?stdin=false")
        asked = doors.terminals.state_asked
        hold = await doors.ask()
        listed = await doors.ask(f"{PATH}/sdk/v1/sprites/box/exec")

        assert (look.status, look.cause) == (409, "Paused")
        assert look.headers["Retry-After"] == "30"
        assert vendors_look == 409
        assert (hold.cause, listed.cause) == ("Ok", "Ok")
        assert doors.terminals.state_asked == asked == 2

        doors.terminals.presence = Presence(held=True, streaming=True)
        assert (await doors.ask(f"{PATH}/attach?view=true")).cause == "Ok"
        assert doors.terminals.state_asked == asked


async def test_an_old_word_of_the_status_keeps_nobody_out_and_counts_where_the_platform_is_silent() -> None:
    async with open_doors() as doors:
        paused = build_object()
        paused["status"]["sprite"]["state"] = "warm"
        doors.kube.objects = {NAME: paused}

        doors.terminals.state = SpriteState.RUNNING
        assert (await doors.ask(f"{PATH}/attach?view=true")).cause == "Ok"
        doors.terminals.state = None
        assert (await doors.ask(f"{PATH}/attach?view=true")).cause == "Paused"

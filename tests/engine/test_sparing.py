"""What must not be done too often, too many at once or a moment too late, seen on the whole engine in virtual time."""

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.api.session import SpriteState
from controller.sprites.errors import ServerFault
from tests.engine.memory_world import MemorySprite, MemoryWorld

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)


async def adopt(world: MemoryWorld, **spec: Any) -> MemorySprite:
    """A terminal that has adopted a session of a sprite which pauses only by hand."""
    world.sprites.latency = timedelta(milliseconds=10)
    sprite = world.sprites.add("box")
    world.sprites.start("box", "7")
    world.kube.create("one", **{"sessionId": "7", "idleTimeoutSeconds": 0, **spec})
    await world.pass_time(MINUTE)
    return sprite


@pytest.mark.looptime
async def test_a_sprite_that_paused_since_it_was_last_looked_at_is_not_woken_by_a_wish_for_a_hold() -> None:
    """The wish comes at every second between two looks, which are half a minute apart; one a second ago counts."""
    async with MemoryWorld() as world:
        sprite = await adopt(world, attached=True)
        for _ in range(31):
            await world.pass_time(SECOND)
            world.sprites.forget_calls()
            sprite.state = SpriteState.WARM
            await world.pass_time(1.1 * SECOND)

            world.kube.patch("one", holdWanted=True)
            await world.pass_time(5 * SECOND)

            assert world.sprites.wakes == []
            assert sprite.state is SpriteState.WARM
            world.kube.patch("one", holdWanted=False)
            sprite.state = SpriteState.RUNNING
            await world.pass_time(MINUTE)


@pytest.mark.looptime
async def test_a_hold_without_activity_is_warned_of_once_and_not_at_every_beat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with MemoryWorld() as world:
        await adopt(world, attached=True, holdWanted=True)

        await world.pass_time(3 * HOUR)

        assert len([record for record in caplog.records if "held for an hour" in record.message]) == 1


@pytest.mark.looptime
@pytest.mark.case("A7")
async def test_the_last_viewer_leaves_an_idle_terminal_and_its_hold_goes_although_no_list_tells_of_activity() -> None:
    """A hold that nobody could hear any more would otherwise be kept for ever."""
    async with MemoryWorld() as world:
        sprite = await adopt(world, sessionId="8", launch={"command": ["bash"]}, attached=True, holdWanted=True)
        for name, session in tuple(sprite.sessions.items()):
            sprite.sessions[name] = replace(session, last_activity=None)
        await world.pass_time(10 * MINUTE)
        assert sprite.tasks

        world.kube.patch("one", attached=False)
        await world.pass_time(10 * SECOND)

        assert sprite.tasks == {}
        assert world.reason("one", "Held") == "NotHeld"


@pytest.mark.looptime
async def test_of_many_kills_in_one_sprite_two_are_in_flight_and_those_of_another_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryWorld() as world:
        flying = {"box": 0, "other": 0}
        most = dict(flying)
        kill = world.sprites.kill_session

        async def watch(token: Any, sprite: str, *args: Any, **named: Any) -> Any:
            flying[sprite] += 1
            most[sprite] = max(most[sprite], flying[sprite])
            try:
                await world.clock.sleep(3 * SECOND)
                return await kill(token, sprite, *args, **named)
            finally:
                flying[sprite] -= 1

        monkeypatch.setattr(world.sprites, "kill_session", watch)
        names = []
        for sprite in most:
            world.sprites.add(sprite)
            for number in range(6):
                world.sprites.start(sprite, str(number))
                names.append(f"{sprite}-{number}")
                world.kube.create(names[-1], spriteName=sprite, sessionId=str(number))
        await world.pass_time(MINUTE)

        for name in names:
            world.kube.patch(name, terminated=True)
        await world.pass_time(SECOND)
        assert flying == {"box": 2, "other": 2}
        await world.pass_time(MINUTE)

        assert most == {"box": 2, "other": 2}
        assert {world.condition(name, "Terminated")["status"] for name in names} == {"True"}


@pytest.mark.looptime
@pytest.mark.case("U7")
async def test_a_command_of_a_hold_has_ten_seconds_and_4096_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with MemoryWorld() as world:
        limits = []
        run = world.sprites.run_command

        async def watch(token: Any, sprite: str, argv: Any, **named: Any) -> Any:
            if "-X" in argv:
                limits.append((named["time_limit"], named["output_bytes"]))
            return await run(token, sprite, argv, **named)

        monkeypatch.setattr(world.sprites, "run_command", watch)
        await adopt(world, attached=True, holdWanted=True)
        world.kube.patch("one", holdWanted=False)
        await world.pass_time(MINUTE)

        assert len(limits) >= 2, "it was set and removed"
        assert set(limits) == {(10 * SECOND, 4096)}


@pytest.mark.looptime
@pytest.mark.case("K17")
async def test_a_sprite_is_gone_for_sure_when_two_listings_a_minute_apart_lack_it_and_no_sooner() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("witness")
        await adopt(world)
        del world.sprites.sprites["box"]
        world.sprites.forget_calls()
        world.kube.patch("one", terminated=True)
        while not world.sprites.calls:
            await world.pass_time(SECOND)
        first = world.sprites.calls[0].time

        while world.clock.now() < first + 59 * SECOND:
            await world.pass_time(SECOND)
            assert world.condition("one", "Terminated")["status"] != "True", world.clock.now() - first
        await world.pass_time(MINUTE)

        assert world.condition("one", "Terminated")["status"] == "True"
        assert world.status("one")["kill"]["proof"] == "SpriteGone"
        assert "kill_session" not in {call.route for call in world.sprites.calls}


@pytest.mark.looptime
@pytest.mark.case("T5")
async def test_a_kill_that_fails_for_a_round_is_one_warning_in_the_log_with_session_and_trigger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with MemoryWorld() as world:
        await adopt(world)
        caplog.clear()
        world.sprites.troubles["kill_session"] = [ServerFault("HTTP 500.", status=500)] * 3

        world.kube.patch("one", terminated=True)
        await world.pass_time(MINUTE)

        assert world.reason("one", "Terminated") == "Confirmed"
        told = [
            (record.levelname, record.getMessage()) for record in caplog.records if "Session 7" in record.getMessage()
        ]
        warnings = [message for level, message in told if level == "WARNING"]
        assert len(warnings) == 1, told
        assert warnings[0].startswith("Session 7 is to end (Terminated) and is not proven dead: ")
        assert "HTTP 500." in warnings[0]
        assert [level for level, message in told if message not in warnings] == ["INFO"]

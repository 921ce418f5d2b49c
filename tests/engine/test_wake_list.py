"""
What wakes a paused sprite: a closed list, a row for each entry and for each thing that is none.

In every row the sprite has paused, and the operator knows it; what the Sprites API saw and what the operator counted
must agree.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.api.session import SpriteState
from controller.sprites.errors import ServerFault
from tests.engine.memory_world import MemorySprite, MemoryWorld

MOMENT: Final = timedelta(minutes=2)
HOUR: Final = timedelta(hours=1)
IDLE_WINDOW: Final = timedelta(seconds=30)
BASH: Final = {"launch": {"command": ["bash"]}}
REFUSED: Final = ServerFault("HTTP 500.", status=500)


def build_paused(world: MemoryWorld, state: SpriteState = SpriteState.WARM) -> MemorySprite:
    """A sprite that has paused, with a session that nobody speaks for yet."""
    sprite = world.sprites.add("box", pauses_after=IDLE_WINDOW)
    world.sprites.start("box", "7")
    sprite.state = state
    return sprite


async def adopt(world: MemoryWorld, **spec: Any) -> MemorySprite:
    """A terminal that has adopted, and whose sprite has paused since."""
    sprite = build_paused(world, SpriteState.RUNNING)
    world.kube.create("one", sessionId="7", **{"idleTimeoutSeconds": 0, **spec})
    await world.pass_time(MOMENT)
    return sprite


async def launch(world: MemoryWorld, **spec: Any) -> MemorySprite:
    """A terminal that has launched, and whose sprite has paused since."""
    sprite = world.sprites.add("box", pauses_after=IDLE_WINDOW)
    world.kube.create("one", **{"idleTimeoutSeconds": 0, **BASH, **spec})
    await world.pass_time(MOMENT)
    assert world.status("one")["session"]["id"] in sprite.sessions
    return sprite


def begin(world: MemoryWorld) -> None:
    """See that the sprite has paused, and count from here."""
    world.sprites.settle()
    assert all(sprite.state is not SpriteState.RUNNING for sprite in world.sprites.sprites.values())
    world.sprites.forget_calls()
    world.metrics.sprites_wakes.clear()


def run_for_a_while(world: MemoryWorld) -> None:
    """Somebody else wakes the sprite, and keeps it awake for a minute."""
    sprite = world.sprites.sprites["box"]
    sprite.state = SpriteState.RUNNING
    sprite.stirred = world.clock.now() + timedelta(minutes=1)


Story = Callable[[MemoryWorld], Awaitable[None]]


@dataclass(frozen=True)
class Row:
    """One entry of the list, or one thing that is none: what happens, and which calls woke the sprite."""

    what: str
    story: Story
    wakes: tuple[str, ...] = ()


# --- what wakes -------------------------------------------------------------------------------------------------------


async def adopt_first(world: MemoryWorld) -> None:
    build_paused(world)
    begin(world)
    world.kube.create("one", sessionId="7")
    await world.pass_time(timedelta(seconds=10))
    assert world.reason("one") == "Detached"


async def adopt_many(world: MemoryWorld) -> None:
    build_paused(world)
    for number in range(10, 19):
        world.sprites.start("box", str(number))
    begin(world)
    for number in [7, *range(10, 19)]:
        world.kube.create(f"one-{number}", sessionId=str(number))
    await world.pass_time(timedelta(seconds=10))
    assert all(world.reason(name) == "Detached" for name in world.kube.objects)


async def launch_first(world: MemoryWorld) -> None:
    world.sprites.add("box", SpriteState.WARM, pauses_after=IDLE_WINDOW)
    begin(world)
    world.kube.create("one", **BASH)
    await world.pass_time(timedelta(seconds=10))
    assert world.reason("one") == "Detached"


async def launch_first_in_the_cold(world: MemoryWorld) -> None:
    world.sprites.add("box", SpriteState.COLD, pauses_after=IDLE_WINDOW)
    begin(world)
    world.kube.create("one", **BASH)
    await world.pass_time(timedelta(seconds=10))
    assert world.reason("one") == "Detached"


async def terminate(world: MemoryWorld) -> None:
    sprite = await adopt(world)
    begin(world)
    world.kube.patch("one", terminated=True)
    await world.pass_time(MOMENT)
    assert world.reason("one", "Terminated") == "Confirmed"
    assert sprite.sessions == {}


async def delete(world: MemoryWorld) -> None:
    sprite = await adopt(world)
    begin(world)
    world.kube.delete("one")
    await world.pass_time(MOMENT)
    assert world.is_gone("one")
    assert sprite.sessions == {}


async def terminate_while_suspended(world: MemoryWorld) -> None:
    await adopt(world, suspend=None)
    world.kube.patch("one", suspend=True)
    await world.pass_time(MOMENT)
    begin(world)
    world.kube.patch("one", terminated=True)
    await world.pass_time(MOMENT)
    assert world.reason("one", "Terminated") == "Confirmed"


async def revive_lost(world: MemoryWorld) -> None:
    sprite = await launch(world)
    await world.pass_time(MOMENT)
    sprite.state = SpriteState.COLD
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Lost"
    begin(world)
    world.kube.patch("one", attached=True, activeSocketId="somebody")
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Running"


async def revive_exited(world: MemoryWorld) -> None:
    sprite = await launch(world, attached=True, activeSocketId="first")
    sprite.sessions.clear()
    run_for_a_while(world)
    await world.pass_time(MOMENT)
    assert world.reason("one") == "ExitUnseen"
    begin(world)
    world.kube.patch("one", activeSocketId="second")
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Running"


async def kill_that_fails(world: MemoryWorld) -> None:
    """The rounds are 5, 10, 20 and 40 s apart, and the sprite pauses after 30 s: it is woken for the first and last."""
    sprite = await adopt(world)
    world.sprites.spares_killed = True
    begin(world)
    world.kube.patch("one", terminated=True)
    for _ in range(24):
        await world.pass_time(timedelta(minutes=5))
    assert world.reason("one") == "KillOwed"
    assert sprite.sessions

    world.sprites.spares_killed = False
    run_for_a_while(world)
    await world.pass_time(MOMENT)
    assert world.reason("one", "Terminated") == "Confirmed"


async def adopt_after_an_outage(world: MemoryWorld) -> None:
    """What did not get through has used no wake."""
    build_paused(world)
    begin(world)
    world.sprites.unreachable = True
    world.kube.create("one", sessionId="7")
    await world.pass_time(MOMENT)
    world.sprites.unreachable = False
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Detached"


async def launch_after_an_outage(world: MemoryWorld) -> None:
    """Its sprite ran when it was asked for, so its wake was not used when the sprite paused over the outage."""
    world.sprites.add("box", pauses_after=IDLE_WINDOW)
    world.sprites.troubles["run_command"] = [REFUSED] * 100
    world.kube.create("one", **BASH)
    await world.pass_time(timedelta(seconds=1))
    world.sprites.unreachable = True
    await world.pass_time(MOMENT)
    begin(world)
    world.sprites.troubles.clear()
    world.sprites.unreachable = False
    await world.pass_time(timedelta(minutes=6))
    assert world.reason("one") == "Detached"


async def adopt_again_after_a_change(world: MemoryWorld) -> None:
    """A change of the spec has a wake of its own."""
    build_paused(world)
    begin(world)
    world.sprites.troubles["list_sessions"] = [REFUSED]
    world.kube.create("one", sessionId="7")
    await world.pass_time(MOMENT)
    assert world.reason("one") != "Detached"
    world.kube.patch("one", idleTimeoutSeconds=3600)
    await world.pass_time(timedelta(seconds=10))
    assert world.reason("one") == "Detached"


WAKES: Final = [
    Row("first adoption", adopt_first, ("adopt",)),
    Row("ten first adoptions at once", adopt_many, ("adopt",)),
    Row("first launch", launch_first, ("launch",)),
    Row("first launch into a cold sprite", launch_first_in_the_cold, ("launch",)),
    Row("terminated", terminate, ("identify",)),
    Row("terminated while suspended", terminate_while_suspended, ("identify",)),
    Row("deletion with Terminate", delete, ("identify",)),
    Row("revival of a lost one by an attach", revive_lost, ("launch",)),
    Row("revival of an exited one by another socket", revive_exited, ("launch",)),
    Row("a kill that fails, in each of its first rounds", kill_that_fails, ("identify",) * 2),
    Row("a launch after an outage", launch_after_an_outage, ("launch",)),
    Row("an adoption after an outage", adopt_after_an_outage, ("adopt",)),
    Row("an adoption that failed, and a change of the spec", adopt_again_after_a_change, ("adopt", "adopt")),
]


# --- what does not ----------------------------------------------------------------------------------------------------


async def wish_for_a_hold(world: MemoryWorld) -> None:
    await adopt(world)
    begin(world)
    world.kube.patch("one", holdWanted=True, attached=True)
    await world.pass_time(MOMENT)
    assert world.reason("one", "Held") == "NotHeld"


async def release_a_hold(world: MemoryWorld) -> None:
    """Its sprite was paused by somebody else, task or no task."""
    sprite = await adopt(world, holdWanted=True, attached=True)
    assert world.reason("one", "Held") == "HoldActive"
    sprite.state = SpriteState.WARM
    await world.pass_time(timedelta(seconds=31))
    begin(world)
    world.kube.patch("one", holdWanted=False)
    await world.pass_time(HOUR)
    assert world.reason("one", "Held") == "NotWanted"


async def lose_a_hold(world: MemoryWorld) -> None:
    sprite = await adopt(world, holdWanted=True, attached=True)
    sprite.state = SpriteState.WARM
    await world.pass_time(timedelta(seconds=31))
    begin(world)
    await world.pass_time(HOUR)
    assert world.reason("one", "Held") == "NotHeld"


async def resync(world: MemoryWorld) -> None:
    """Two hours hold sixty resyncs and two full visits of every object."""
    await adopt(world)
    begin(world)
    await world.pass_time(2 * HOUR)


async def ask_for_a_look(world: MemoryWorld) -> None:
    await adopt(world)
    begin(world)
    world.kube.request_reconcile("one", "now")
    await world.pass_time(MOMENT)
    assert world.status("one")["lastHandledReconcileAt"] == "now"


async def restart(world: MemoryWorld) -> None:
    await adopt(world, holdWanted=True)
    await world.pass_time(HOUR)
    begin(world)
    await world.restart()
    world.kube.patch("one", attached=True)
    await world.pass_time(HOUR)
    assert world.reason("one") == "Running"


async def restart_with_nothing_to_adopt(world: MemoryWorld) -> None:
    build_paused(world)
    world.kube.create("one", sessionId="missing")
    world.kube.create("first", sessionId="7", idleTimeoutSeconds=0)
    world.kube.create("second", sessionId="7")
    await world.pass_time(MOMENT)
    reasons = [world.reason(name) for name in ("one", "second")]
    assert reasons == ["SessionNotFound", "SessionTaken"]
    begin(world)
    world.kube.writes.clear()
    await world.restart()
    await world.pass_time(HOUR)
    assert [world.reason(name) for name in ("one", "second")] == reasons
    assert world.kube.writes == []


async def restart_in_the_middle_of_a_launch(world: MemoryWorld) -> None:
    sprite = world.sprites.add("box", pauses_after=IDLE_WINDOW)
    world.sprites.troubles["run_command"] = [REFUSED] * 100
    world.kube.create("one", **BASH)
    await world.pass_time(timedelta(seconds=1))
    assert world.status("one")["session"]["launchIntent"]
    await world.stop()
    world.sprites.troubles.clear()
    sprite.state = SpriteState.WARM
    begin(world)
    world.start()
    await world.pass_time(HOUR)
    assert world.reason("one") == "WakeOwed"
    assert "when the sprite next runs" in world.condition("one")["message"]

    run_for_a_while(world)
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Detached"


async def retry_a_launch(world: MemoryWorld) -> None:
    """Its one wake is used by the first try; then the waits grow longer than it takes the sprite to pause."""
    world.sprites.add("box", SpriteState.WARM, pauses_after=IDLE_WINDOW)
    begin(world)
    world.sprites.troubles["run_command"] = [REFUSED] * 1000
    world.kube.create("one", **BASH)
    await world.pass_time(2 * HOUR)
    assert world.reason("one") == "WakeOwed"


async def retry_an_adoption(world: MemoryWorld) -> None:
    sprite = build_paused(world)
    world.sprites.troubles["list_sessions"] = [REFUSED]
    world.kube.create("one", sessionId="7")
    await world.pass_time(timedelta(milliseconds=100))
    sprite.state = SpriteState.WARM
    begin(world)
    await world.pass_time(HOUR)
    assert world.reason("one") == "WakeOwed"


async def relaunch_on_loss(world: MemoryWorld) -> None:
    sprite = await launch(world, relaunch="OnLost")
    await world.pass_time(MOMENT)
    sprite.state = SpriteState.COLD
    begin(world)
    await world.pass_time(HOUR)
    assert world.reason("one") == "Relaunching"


async def relaunch_on_loss_under_a_viewer_who_stayed(world: MemoryWorld) -> None:
    """Whoever was attached when it was lost has not come since: to wake for them would be a loop."""
    sprite = await launch(world, relaunch="OnLost", attached=True, activeSocketId="first")
    await world.pass_time(MOMENT)
    sprite.state = SpriteState.COLD
    begin(world)
    await world.pass_time(HOUR)
    assert world.reason("one") == "Relaunching"


async def come_and_go(world: MemoryWorld) -> None:
    await adopt(world)
    begin(world)
    for number in range(5):
        world.kube.patch("one", attached=True, activeSocketId=f"socket-{number}")
        await world.pass_time(MOMENT)
        world.kube.patch("one", attached=False)
        await world.pass_time(MOMENT)
    assert world.reason("one") == "Detached"


async def stay(world: MemoryWorld) -> None:
    """A viewer for some hours, in front of a sprite that runs and pauses again and again."""
    await adopt(world, attached=True)
    begin(world)
    for _ in range(30):
        run_for_a_while(world)
        await world.pass_time(timedelta(minutes=7, seconds=7))
    assert world.reason("one") == "Running"


async def owe_a_reap(world: MemoryWorld) -> None:
    await adopt(world, idleTimeoutSeconds=600)
    begin(world)
    await world.pass_time(HOUR)
    assert world.reason("one") == "ReapOwed"

    run_for_a_while(world)
    await world.pass_time(MOMENT)
    assert world.reason("one", "SessionLive") == "Reaped"


async def fail_a_reap(world: MemoryWorld) -> None:
    sprite = await adopt(world, idleTimeoutSeconds=300)
    world.sprites.spares_killed = True
    begin(world)
    sprite.state = SpriteState.RUNNING
    sprite.pauses_after = None
    await world.pass_time(timedelta(minutes=4))
    assert sprite.sessions
    sprite.pauses_after = IDLE_WINDOW
    await world.pass_time(HOUR)
    assert world.reason("one") == "ReapOwed"


async def suspend_and_resume(world: MemoryWorld) -> None:
    await adopt(world, idleTimeoutSeconds=600)
    begin(world)
    world.kube.patch("one", suspend=True)
    await world.pass_time(HOUR)
    assert world.reason("one") == "Suspended"
    world.kube.patch("one", suspend=False)
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Detached"


async def create_suspended(world: MemoryWorld) -> None:
    build_paused(world)
    begin(world)
    world.kube.create("one", suspend=True, attached=True, **BASH)
    world.kube.create("two", suspend=True, sessionId="7")
    await world.pass_time(HOUR)
    assert [world.reason(name) for name in ("one", "two")] == ["Suspended"] * 2


async def orphan(world: MemoryWorld) -> None:
    sprite = await adopt(world, deletionPolicy="Orphan")
    begin(world)
    world.kube.delete("one")
    await world.pass_time(MOMENT)
    assert world.is_gone("one")
    assert "7" in sprite.sessions


async def terminate_what_has_ended(world: MemoryWorld) -> None:
    sprite = await launch(world)
    await world.pass_time(MOMENT)
    sprite.state = SpriteState.COLD
    await world.pass_time(MOMENT)
    assert world.reason("one") == "Lost"
    begin(world)
    world.kube.patch("one", terminated=True)
    await world.pass_time(MOMENT)
    assert world.reason("one", "Terminated") == "AlreadyEnded"


async def end_in_the_cold(world: MemoryWorld) -> None:
    """Cold proves it, without a call."""
    sprite = await launch(world)
    await world.pass_time(MOMENT)
    await world.stop()
    sprite.state = SpriteState.COLD
    begin(world)
    world.start()
    await world.pass_time(MOMENT)
    world.kube.patch("one", terminated=True)
    await world.pass_time(MOMENT)
    assert world.condition("one", "Terminated")["status"] == "True"


WAKES_NOT: Final = [
    Row("a wish for a hold", wish_for_a_hold),
    Row("the release of a hold", release_a_hold),
    Row("a hold whose sprite paused all the same", lose_a_hold),
    Row("resyncs and full visits", resync),
    Row("a request to reconcile", ask_for_a_look),
    Row("a restart with a live session", restart),
    Row("a restart where there is nothing to adopt", restart_with_nothing_to_adopt),
    Row("a restart in the middle of a launch", restart_in_the_middle_of_a_launch),
    Row("retries of a launch", retry_a_launch, ("launch",)),
    Row("retries of an adoption", retry_an_adoption),
    Row("OnLost", relaunch_on_loss),
    Row("OnLost under a viewer who stayed", relaunch_on_loss_under_a_viewer_who_stayed),
    Row("viewers of a live session that come and go", come_and_go),
    Row("a viewer who stays", stay),
    Row("a reap that is due", owe_a_reap),
    Row("a reap that failed", fail_a_reap),
    Row("suspend and resume", suspend_and_resume),
    Row("creation under suspend", create_suspended),
    Row("deletion with Orphan", orphan),
    Row("terminated after the end", terminate_what_has_ended),
    Row("terminated in the cold", end_in_the_cold),
]


@pytest.mark.looptime
@pytest.mark.parametrize("row", [*WAKES, *WAKES_NOT], ids=lambda row: row.what)
async def test_the_wake_list_is_closed(row: Row) -> None:
    async with MemoryWorld() as world:
        await row.story(world)

        assert tuple(call.cause for call in world.sprites.wakes) == row.wakes
        assert world.count_wakes() == {cause: row.wakes.count(cause) for cause in set(row.wakes)}

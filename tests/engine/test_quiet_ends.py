"""Idle times, ends, suspensions and ledgers over hours of virtual time, with the real engine."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from controller.api.session import Cause, Sprite, SpriteState
from controller.plan.activity import ACTIVITY_ANNOTATION
from tests.engine.memory_world import MemorySprite, MemoryWorld, at

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
BASH: Final = {"launch": {"command": ["bash"]}}


async def adopt(world: MemoryWorld, **spec: Any) -> MemorySprite:
    """A terminal in a sprite that always runs."""
    sprite = world.sprites.add("box")
    world.sprites.start("box", "7")
    world.kube.create("one", sessionId="7", **{"idleTimeoutSeconds": 0, **spec})
    await world.pass_time(SECOND)
    return sprite


def read_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


# --- the idle time ----------------------------------------------------------------------------------------------------


@pytest.mark.looptime
@pytest.mark.case("I1", "I6")
async def test_a_session_that_starts_unwatched_is_reaped_when_its_time_is_over_and_not_before() -> None:
    async with MemoryWorld() as world:
        sprite = await adopt(world, idleTimeoutSeconds=1800)
        detached = read_time(world.status("one")["detachedTime"])

        await world.pass_time(detached + 30 * MINUTE - SECOND - world.clock.now())
        assert sprite.sessions
        assert not [call for call in world.sprites.calls if call.route == "kill_session"]

        await world.pass_time(3 * SECOND)
        assert sprite.sessions == {}
        assert world.reason("one", "SessionLive") == "Reaped"
        assert world.status("one")["kill"]["trigger"] == "Reaped"
        assert world.status("one")["kill"]["proof"] == "SessionList"


@pytest.mark.looptime
async def test_the_idle_time_counts_from_the_leaving_over_two_restarts() -> None:
    async with MemoryWorld() as world:
        sprite = await adopt(world, idleTimeoutSeconds=1800, attached=True)
        await world.pass_time(HOUR)
        world.kube.patch("one", attached=False)
        await world.pass_time(10 * MINUTE)
        await world.stop()
        await world.pass_time(10 * MINUTE)
        world.start()
        await world.pass_time(5 * MINUTE)
        await world.restart()
        await world.pass_time(5 * MINUTE - 10 * SECOND)
        assert sprite.sessions

        await world.pass_time(20 * SECOND)

        assert world.reason("one", "SessionLive") == "Reaped"


@pytest.mark.looptime
async def test_a_busy_terminal_is_announced_once_five_minutes_before_it_is_reaped_and_an_idle_one_is_not() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        for name in ("busy", "idle"):
            world.sprites.start("box", name)
            world.kube.create(name, sessionId=name, idleTimeoutSeconds=1800)
        await world.pass_time(24 * MINUTE)
        for _ in range(12):
            world.kube.annotate("busy", activity=at(world.clock.now()))
            await world.pass_time(MINUTE / 2)

        [note] = [note for note in world.notes("busy") if "is busy" in note]
        assert note.startswith("Session busy is busy and nobody is attached; it ends in 5 min 0 s.")
        assert not [note for note in world.notes("idle") if "is busy" in note]


@pytest.mark.looptime
async def test_idle_policy_inactive_spares_a_terminal_for_as_long_as_something_is_seen_of_it() -> None:
    async with MemoryWorld() as world:
        sprite = await adopt(world, idleTimeoutSeconds=1800, idlePolicy="Inactive")
        for _ in range(12):
            await world.pass_time(10 * MINUTE)
            world.kube.annotate("one", activity=at(world.clock.now()))
        assert sprite.sessions

        await world.pass_time(29 * MINUTE)
        assert sprite.sessions
        await world.pass_time(2 * MINUTE)
        assert world.reason("one", "SessionLive") == "Reaped"


@pytest.mark.looptime
@pytest.mark.case("I2")
async def test_a_reap_gives_way_to_somebody_who_attaches_at_the_last_moment() -> None:
    async with MemoryWorld() as world:
        sprite = await adopt(world, idleTimeoutSeconds=1800)
        detached = read_time(world.status("one")["detachedTime"])
        await world.pass_time(detached + 30 * MINUTE - world.clock.now())
        world.kube.patch("one", attached=True)

        await world.pass_time(HOUR)

        assert sprite.sessions
        assert world.reason("one") == "Running"


# --- suspend ----------------------------------------------------------------------------------------------------------

Story = Callable[[MemoryWorld], Awaitable[None]]


@dataclass(frozen=True)
class Crossing:
    """Something that meets a suspension."""

    what: str
    story: Story


async def launch_nothing(world: MemoryWorld) -> None:
    world.sprites.add("box")
    world.kube.create("one", suspend=True, attached=True, **BASH)
    await world.pass_time(HOUR)
    assert world.reason("one") == "Suspended"
    assert world.sprites.sprites["box"].sessions == {}
    world.kube.patch("one", suspend=False)
    await world.pass_time(10 * SECOND)
    assert world.reason("one") == "Running"


async def adopt_nothing(world: MemoryWorld) -> None:
    await adopt(world, suspend=True)
    await world.pass_time(HOUR)
    assert world.reason("one") == "Suspended"
    assert "session" not in world.status("one")
    world.kube.patch("one", suspend=False)
    await world.pass_time(10 * SECOND)
    assert world.reason("one") == "Detached"


async def reap_nothing(world: MemoryWorld) -> None:
    """On resume the idle time starts anew."""
    sprite = await adopt(world, idleTimeoutSeconds=600)
    await world.pass_time(5 * MINUTE)
    world.kube.patch("one", suspend=True)
    await world.pass_time(2 * HOUR)
    assert sprite.sessions
    world.kube.patch("one", suspend=False)
    await world.pass_time(10 * MINUTE - 5 * SECOND)
    assert sprite.sessions
    await world.pass_time(10 * SECOND)
    assert world.reason("one", "SessionLive") == "Reaped"


async def finish_a_reap_that_has_begun(world: MemoryWorld) -> None:
    sprite = await adopt(world, idleTimeoutSeconds=600)
    world.sprites.spares_killed = True
    await world.pass_time(11 * MINUTE)
    assert world.status("one")["kill"]["trigger"] == "Reaped"
    world.kube.patch("one", suspend=True)
    world.sprites.spares_killed = False
    await world.pass_time(10 * MINUTE)
    assert sprite.sessions == {}
    assert world.status("one")["session"]["ended"]["reason"] == "Reaped"
    assert world.reason("one") == "Suspended"


async def create_no_hold(world: MemoryWorld) -> None:
    sprite = await adopt(world, suspend=None)
    world.kube.patch("one", suspend=True)
    await world.pass_time(MINUTE)
    world.kube.patch("one", attached=True, holdWanted=True)
    await world.pass_time(HOUR)
    assert sprite.tasks == {}
    world.kube.patch("one", suspend=False)
    await world.pass_time(10 * SECOND)
    assert world.reason("one", "Held") == "HoldActive"


async def renew_no_hold(world: MemoryWorld) -> None:
    """It is neither renewed nor removed: it ends within its expiry."""
    sprite = await adopt(world, attached=True, holdWanted=True)
    await world.pass_time(10 * MINUTE)
    assert sprite.tasks
    world.kube.patch("one", suspend=True)
    await world.pass_time(SECOND)
    world.sprites.forget_calls()
    await world.pass_time(2 * MINUTE)
    assert sprite.tasks
    await world.pass_time(4 * MINUTE)
    world.sprites.settle()
    assert sprite.tasks == {}
    assert not [call for call in world.sprites.calls if call.cause == "hold"]
    assert world.condition("one", "Held")["status"] == "False"


async def terminate(world: MemoryWorld) -> None:
    sprite = await adopt(world)
    world.kube.patch("one", suspend=True)
    await world.pass_time(MINUTE)
    world.kube.patch("one", terminated=True)
    await world.pass_time(MINUTE)
    assert sprite.sessions == {}
    assert world.reason("one", "Terminated") == "Confirmed"


async def delete(world: MemoryWorld) -> None:
    sprite = await adopt(world)
    world.kube.patch("one", suspend=True)
    await world.pass_time(MINUTE)
    world.kube.delete("one")
    await world.pass_time(MINUTE)
    assert sprite.sessions == {}
    assert world.is_gone("one")


async def notice_an_end(world: MemoryWorld) -> None:
    sprite = await adopt(world)
    world.kube.patch("one", suspend=True)
    await world.pass_time(MINUTE)
    sprite.sessions.clear()
    await world.pass_time(15 * MINUTE)
    assert world.status("one")["session"]["ended"]["reason"] == "ExitUnseen"
    assert world.reason("one") == "Suspended"


async def relaunch_nothing(world: MemoryWorld) -> None:
    sprite = world.sprites.add("box")
    world.kube.create("one", relaunch="OnLost", idleTimeoutSeconds=0, **BASH)
    await world.pass_time(3 * MINUTE)
    world.kube.patch("one", suspend=True)
    sprite.state = SpriteState.COLD
    await world.pass_time(3 * MINUTE)
    sprite.sessions.clear()
    sprite.state = SpriteState.RUNNING
    await world.pass_time(HOUR)
    assert world.status("one")["session"]["ended"]["reason"] == "Lost"
    assert sprite.sessions == {}
    world.kube.patch("one", suspend=False)
    await world.pass_time(10 * SECOND)
    assert world.reason("one") == "Detached"


CROSSINGS: Final = [
    Crossing("no launch", launch_nothing),
    Crossing("no adoption", adopt_nothing),
    Crossing("no reap, and the clock starts anew", reap_nothing),
    Crossing("a reap that has begun is finished", finish_a_reap_that_has_begun),
    Crossing("no new hold", create_no_hold),
    Crossing("no renewal and no removal of a hold", renew_no_hold),
    Crossing("terminated passes", terminate),
    Crossing("deletion passes", delete),
    Crossing("ends are observed", notice_an_end),
    Crossing("no relaunch", relaunch_nothing),
]


@pytest.mark.looptime
@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: crossing.what)
async def test_a_suspension_stops_what_begins_and_nothing_that_ends(crossing: Crossing) -> None:
    async with MemoryWorld() as world:
        await crossing.story(world)


# --- revival ----------------------------------------------------------------------------------------------------------


@pytest.mark.looptime
@pytest.mark.case("R2", "R11", "R17")
async def test_somebody_who_comes_back_gets_a_fresh_session_once_and_the_status_does_not_call_it_resumed() -> None:
    async with MemoryWorld() as world:
        sprite = world.sprites.add("box")
        world.kube.create("one", **BASH)
        await world.pass_time(10 * SECOND)
        first = world.status("one")["session"]
        sprite.sessions.clear()
        world.kube.patch("one", attached=True, activeSocketId="first")
        await world.pass_time(10 * SECOND)
        second = world.status("one")["session"]

        assert second["id"] != first["id"]
        assert second["origin"] == "Launched"
        assert "ended" not in second
        assert list(sprite.sessions) == [second["id"]]

        sprite.sessions.clear()
        await world.pass_time(HOUR)
        assert world.reason("one") == "ExitUnseen"
        assert sprite.sessions == {}


# --- the ledger of holds ----------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_hold_keeps_its_beginning_over_a_restart_and_the_restart_writes_nothing() -> None:
    async with MemoryWorld() as world:
        sprite = await adopt(world, attached=True, holdWanted=True)
        await world.pass_time(20 * MINUTE)
        hold, tasks = world.status("one")["hold"], set(sprite.tasks)
        world.kube.writes.clear()

        await world.restart()
        await world.pass_time(20 * MINUTE)

        assert world.status("one")["hold"]["since"] == hold["since"]
        assert world.kube.writes == []
        assert set(sprite.tasks) == tasks


@pytest.mark.looptime
async def test_held_seconds_and_renewals_are_counted_by_cause() -> None:
    async with MemoryWorld() as world:
        await adopt(world, attached=True, holdWanted=True)
        await world.pass_time(30 * MINUTE)

        assert world.read("agentterminal_held_seconds_total", "cause") == {"Viewer": pytest.approx(1800, abs=61)}
        assert world.read("agentterminal_hold_renewals_total", "cause") == {"Viewer": pytest.approx(30, abs=2)}
        assert world.read("agentterminal_hold_calls_total", "call") == {"Upsert": pytest.approx(31, abs=2)}


@pytest.mark.looptime
async def test_the_condition_held_flips_both_ways_with_its_times() -> None:
    async with MemoryWorld() as world:
        await adopt(world, attached=True, holdWanted=True)
        seen = []
        for attached in (False, True, False):
            await world.pass_time(10 * MINUTE)
            seen.append(world.condition("one", "Held"))
            world.kube.patch("one", attached=attached)
        await world.pass_time(10 * MINUTE)
        seen.append(world.condition("one", "Held"))

        assert [condition["status"] for condition in seen] == ["True", "False", "True", "False"]
        moved = [condition["lastTransitionTime"] for condition in seen]
        assert moved == sorted(set(moved))


@pytest.mark.looptime
async def test_a_hold_of_an_hour_without_any_activity_is_warned_of_once_over_a_restart() -> None:
    async with MemoryWorld() as world:
        await adopt(world, attached=True, holdWanted=True)
        await world.pass_time(30 * MINUTE)
        await world.restart()
        await world.pass_time(28 * MINUTE)
        assert not [note for note in world.notes("one") if "held for an hour" in note]

        await world.pass_time(2 * HOUR)

        [note] = [note for note in world.notes("one") if "held for an hour" in note]
        assert note.endswith("Set `holdWanted: false` to let it pause, or detach.")


@pytest.mark.looptime
async def test_a_hold_under_activity_is_not_warned_of() -> None:
    async with MemoryWorld() as world:
        await adopt(world, attached=True, holdWanted=True)
        for _ in range(18):
            await world.pass_time(10 * MINUTE)
            world.sprites.print_something("box", "7")

        assert not [note for note in world.notes("one") if "held for an hour" in note]


# --- the annotation ---------------------------------------------------------------------------------------------------


@pytest.mark.looptime
@pytest.mark.parametrize(
    "value", ["", "now", "2026-01-01", "2026-01-01T12:00:00", "2026-13-01T12:00:00Z", "2027-01-01T12:00:00Z"]
)
async def test_an_annotation_that_counts_for_nothing_gets_one_sentence_with_the_way_out(value: str) -> None:
    async with MemoryWorld() as world:
        await adopt(world, holdWanted=True)
        await world.pass_time(10 * MINUTE)

        world.kube.annotate("one", activity=value)
        await world.pass_time(2 * HOUR)

        notes = [note for note in world.notes("one") if ACTIVITY_ANNOTATION in note]
        assert len(notes) == 1
        assert "RFC 3339" in notes[0]
        assert world.condition("one", "Held")["status"] == "False"


@pytest.mark.looptime
async def test_an_annotation_that_counts_holds_and_gets_no_sentence() -> None:
    async with MemoryWorld() as world:
        await adopt(world, holdWanted=True)
        await world.pass_time(10 * MINUTE)

        world.kube.annotate("one", activity=at(world.clock.now()))
        await world.pass_time(SECOND)

        assert world.condition("one", "Held")["status"] == "True"
        assert world.status("one")["hold"]["cause"] == "Activity"
        assert not [note for note in world.notes("one") if ACTIVITY_ANNOTATION in note]


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_question_that_arises_while_a_visit_writes_is_not_closed_by_that_visit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with MemoryWorld() as world:
        sprite = await adopt(world)
        read, write = world.sprites.list_sprites, world.kube.patch_status

        async def read_and_ask(*arguments: Any, **named: Any) -> tuple[Sprite, ...]:
            """Somebody asks for a look just when the sprite is seen cold, so that the visit has something to write."""
            found = await read(*arguments, **named)
            monkeypatch.setattr(world.sprites, "list_sprites", read)
            world.kube.request_reconcile("one", "now")
            return found

        async def write_slowly(*arguments: Any, **named: Any) -> dict[str, Any]:
            """The sprite runs again meanwhile, and the id names another session."""
            monkeypatch.setattr(world.kube, "patch_status", write)
            sprite.state = SpriteState.RUNNING
            world.sprites.start("box", "7")
            await world.clock.sleep(MINUTE)
            return await write(*arguments, **named)

        monkeypatch.setattr(world.sprites, "list_sprites", read_and_ask)
        monkeypatch.setattr(world.kube, "patch_status", write_slowly)
        sprite.state = SpriteState.COLD
        sprite.sessions.clear()
        await world.pass_time(2 * MINUTE)

        assert world.status("one")["lastHandledReconcileAt"] == "now"
        assert world.reason("one", "SessionLive") == "Lost"


@pytest.mark.looptime
async def test_a_command_that_ended_at_once_is_seen_half_a_minute_later_and_no_other_is_asked_for_again() -> None:
    async with MemoryWorld() as world:
        sprite = world.sprites.add("box")
        world.kube.create("right", launch={"command": ["right"]})
        await world.pass_time(MINUTE)
        others = set(sprite.sessions)
        world.kube.create("wrong", launch={"command": ["wrong"]})
        await world.pass_time(2 * SECOND)
        assert world.reason("wrong") == "Detached"
        (ended,) = set(sprite.sessions) - others
        del sprite.sessions[ended]

        await world.pass_time(timedelta(seconds=45))
        assert world.reason("wrong", "SessionLive") == "ExitUnseen"
        assert world.reason("right") == "Detached"

        world.sprites.forget_calls()
        await world.pass_time(timedelta(minutes=8))
        assert world.sprites.count()["list_sessions", Cause.CHECK] == 0

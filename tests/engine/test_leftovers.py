"""Searches for what kills left, in virtual time: shared by who can wait, owed to the deleted, and never a wake."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from controller.api.session import Cause, SpriteState
from controller.api.terminal import LeftoverProcess, LeftoversResult, LeftoversStatus
from controller.engine.launcher import Place
from controller.engine.leftovers import LeftoverSearch, Owed
from controller.engine.observer import SpriteObserver
from controller.kube.events import ObjectRef
from controller.plan.leftovers import NOT_KNOWN, NOTHING_LEFT, Mark, Process, ProcessesSeen, render_search_command
from controller.plan.looks import LookFailed, NotLooked
from controller.sprites.client import SpritesClient
from controller.sprites.errors import ServerFault
from controller.sprites.exec_frames import CommandResult
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.engine.clocks import LoopClock
from tests.engine.test_observer import BOX, FakeSprites

pytestmark = pytest.mark.looptime

TOKEN = Token("lab/1/one")
PLACE, OTHER = Place(TOKEN, "box"), Place(TOKEN, "other")
SLEEP = "/proc/57/status:Name:\tsleep\n/proc/57/status:State:\tS (sleeping)\n/proc/57/status:NSsid:\t41\n"
END = "end\n"
FOUND = LeftoversStatus(result=LeftoversResult.FOUND, count=1, processes=(LeftoverProcess(pid=57, name="sleep"),))


class Sprites(FakeSprites):
    """The Sprites API, with commands that print what stands in `outputs`, the last of them again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = [END]
        self.code = 0

    async def run_command(self, token: Token, sprite: str, argv: Sequence[str], **rest: Any) -> CommandResult:
        assert argv == render_search_command()
        assert rest["cause"] is Cause.LEFTOVERS
        output = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        await self._pass(f"search {sprite} at {asyncio.get_running_loop().time():g}")
        return CommandResult(self.code, output.encode(), b"")


class Bench:
    def __init__(self, *, owed_limit: int = 100) -> None:
        self.clock = LoopClock()
        changes: list[str] = []
        self.api = Sprites()
        client = cast("SpritesClient", self.api)
        self.observer = SpriteObserver(client, self.clock, per_second=1000, on_change=changes.append)
        self.told: list[tuple[str, LeftoversStatus]] = []
        self.search = LeftoverSearch(
            client, self.observer, self.clock, Tenure(1), on_found=self._tell, owed_limit=owed_limit
        )

    def _tell(self, ref: ObjectRef, left: LeftoversStatus) -> None:
        self.told.append((ref.name, left))

    def owe(self, name: str, session_id: str = "41", *, nonce: str | None = "nonce1234", place: Place = PLACE) -> None:
        ref = ObjectRef(namespace="default", name=name, uid=f"uid-{name}")
        self.search.owe(place, Owed(ref, Mark(session_id, nonce)))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.search.run())
            yield
            task.cancel()


async def test_what_is_deleted_in_one_sprite_is_searched_for_together_once_it_has_come_to_rest() -> None:
    bench = Bench()
    async with bench.running():
        for number in range(5):
            bench.owe(f"one-{number}")
            bench.owe(f"other-{number}", place=OTHER)
            await asyncio.sleep(1)
        await asyncio.sleep(10)

    assert sorted(bench.api.calls) == ["search box at 9", "search other at 9"]
    assert len(bench.told) == 10
    assert {left for _, left in bench.told} == {NOTHING_LEFT}


async def test_deletions_without_end_are_searched_for_twenty_seconds_after_the_first() -> None:
    bench = Bench()
    async with bench.running():
        for number in range(28):
            bench.owe(f"one-{number}")
            await asyncio.sleep(1)
        await asyncio.sleep(20)

    assert len(bench.api.calls) == 2
    assert bench.api.calls[0] in ("search box at 20", "search box at 20.5")
    assert len(bench.told) == 28


async def test_what_was_found_is_looked_at_again_a_second_later_and_only_then_told() -> None:
    bench = Bench()
    bench.api.outputs = [SLEEP + END]
    async with bench.running():
        bench.owe("left")
        bench.owe("clean", "42")
        await asyncio.sleep(10)

    assert bench.told == [("clean", NOTHING_LEFT), ("left", FOUND)]
    first, second = (float(call.split()[-1]) for call in bench.api.calls)
    assert second - first == 1


async def test_what_was_about_to_go_is_not_told() -> None:
    bench = Bench()
    bench.api.outputs = [SLEEP + END, END]
    async with bench.running():
        bench.owe("one")
        await asyncio.sleep(10)

    assert bench.told == [("one", NOTHING_LEFT)]


@pytest.mark.parametrize("state", [SpriteState.WARM, SpriteState.COLD])
async def test_a_sprite_that_paused_meanwhile_is_not_woken_for_a_search(state: SpriteState) -> None:
    bench = Bench()
    bench.api.sprites["box"] = type(BOX)(BOX.id, BOX.name, state)
    await bench.observer.look_at_sprite(TOKEN, "box", wanted_id=None, since=timedelta(0))
    bench.api.calls.clear()
    async with bench.running():
        bench.owe("one")
        await asyncio.sleep(10)

    assert bench.api.calls == []
    assert bench.told == [("one", NOT_KNOWN)]


async def test_a_search_that_fails_is_not_repeated_for_the_deleted() -> None:
    bench = Bench()
    bench.api.error = ServerFault("The Sprites API answered HTTP 500.", status=500)
    async with bench.running():
        bench.owe("one")
        await asyncio.sleep(60)

    assert len(bench.api.calls) == 1
    assert bench.told == [("one", NOT_KNOWN)]


async def test_what_does_not_fit_into_the_memory_of_what_is_owed_is_told_as_not_known() -> None:
    bench = Bench(owed_limit=2)
    for number in range(3):
        bench.owe(f"one-{number}")

    assert bench.told == [("one-2", NOT_KNOWN)]


@pytest.mark.parametrize(("output", "code"), [("", 0), (SLEEP, 0), ("/dev/shm", 0), (SLEEP + END, 1)])
async def test_a_search_that_did_not_come_to_its_end_is_a_look_that_failed(output: str, code: int) -> None:
    bench = Bench()
    bench.api.outputs, bench.api.code = [output], code

    assert isinstance(await bench.search.look(PLACE, timedelta(0)), LookFailed)


async def test_who_asks_for_less_than_was_seen_gets_it_without_another_command() -> None:
    bench = Bench()
    assert isinstance(bench.search.recall(PLACE), NotLooked)
    bench.api.outputs = [SLEEP + END]
    await asyncio.sleep(3)

    looks = await asyncio.gather(*(bench.search.look(PLACE, timedelta(seconds=3)) for _ in range(20)))

    seen = ProcessesSeen((Process(57, "sleep", session=41),), timedelta(seconds=3))
    assert looks == [seen] * 20
    assert bench.search.recall(PLACE) == seen
    assert len(bench.api.calls) == 1

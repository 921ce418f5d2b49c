"""What a gateway says in its entry of `status.gateways`, against an API server that holds one object."""

import asyncio
import copy
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.api.status import SessionStatus
from controller.api.terminal import read_status
from controller.gateway.fence_calls import FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.presence import ACTIVITY_EVERY, Presences
from controller.gateway.wishes import Target
from controller.kube.errors import Unreachable
from controller.plan.fence_objects import ExitEntry, LeaseView
from controller.plan.fence_tenure import Term
from controller.tenure import Tenure
from tests.gateway.doubles import UnaskedKube
from tests.gateway.test_desk_lease import VirtualClock
from tests.support.json_patch import apply_operation

ME = "gateway0"
PLACE = Target("team-a", "one")
EXIT = ExitEntry("77", "sprite-1", "2026-11-30T11:00:00Z", 3)
TOLD = {"sessionId": "77", "spriteId": "sprite-1", "created": "2026-11-30T11:00:00Z", "code": 3}
LIVE = {"id": "77", "spriteId": "sprite-1", "created": "2026-11-30T11:00:00Z", "origin": "Adopted"}


def read_session(**fields: Any) -> SessionStatus | None:
    return read_status({"session": LIVE | fields}).session


class World(UnaskedKube):
    """One object, and the presence of one process in it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.raw: dict[str, Any] = {
            "metadata": {"uid": "uid-1", "name": "one", "namespace": "team-a", "resourceVersion": "1"},
            "status": {"session": LIVE},
        }
        self.writes = 0
        self.is_down = False
        self.life = Life(Term(ME, LeaseView("lease", "1", ME), 1, self.clock.time + timedelta(days=1)), self.clock)
        self.work: list[Coroutine[Any, Any, None]] = []
        self.presences = Presences(FenceCalls(self, "home"), lambda: self.life, self.work.append, self.clock)

    @property
    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.raw["status"].get("gateways", [])
        return found

    async def settle(self) -> None:
        """Do what was spawned."""
        while self.work:
            async with asyncio.timeout(5):
                await self.work.pop(0)

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        if self.is_down:
            raise Unreachable("No answer.")
        return copy.deepcopy(self.raw)

    async def patch_json(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        tenure: Tenure,
    ) -> dict[str, Any]:
        tenure.demand()
        assert subresource == "status"
        patched = copy.deepcopy(self.raw)
        for operation in operations:
            apply_operation(patched, operation)
        self.raw = patched
        self.writes += 1
        return copy.deepcopy(patched)


async def test_an_exit_is_told_at_once_and_once_with_whose_it_is() -> None:
    world = World()
    for _ in range(3):
        world.presences.note_exit(PLACE, "uid-1", EXIT)
    await world.settle()

    assert world.entries == [{"incarnation": ME, "viewers": 0, "exit": TOLD}]
    assert world.writes == 1


async def test_an_exit_stands_through_other_writes_until_the_operator_has_taken_it() -> None:
    world = World()
    world.presences.note_exit(PLACE, "uid-1", EXIT)
    world.presences.note_viewers(PLACE, "uid-1", 1)
    await world.settle()
    world.presences.note_session("uid-1", read_session())
    # An end of which nobody saw the exit is what the code is still wanted for.
    unseen = {"reason": "ExitUnseen", "time": "2026-11-30T12:00:00Z", "generation": 1}
    world.presences.note_session("uid-1", read_session(ended=unseen))
    world.presences.note_viewers(PLACE, "uid-1", 0)
    await world.settle()
    standing = world.entries
    world.presences.note_session("uid-1", read_session(ended=unseen | {"reason": "Exited"}))
    world.presences.note_viewers(PLACE, "uid-1", 1)
    await world.settle()

    assert standing == [{"incarnation": ME, "viewers": 0, "exit": TOLD}]
    assert world.entries == [{"incarnation": ME, "viewers": 1}]


async def test_the_end_of_the_session_costs_no_write_of_its_own_and_the_entry_goes_in_time() -> None:
    world = World()
    world.presences.note_exit(PLACE, "uid-1", EXIT)
    await world.settle()
    world.clock.time += 10 * ACTIVITY_EVERY
    world.presences.drop_quiet()
    kept = not world.work
    world.presences.note_session("uid-1", read_session(id="78"))
    after_end = list(world.work)
    world.presences.drop_quiet()
    await world.settle()

    assert kept
    assert after_end == []
    assert world.entries == []
    assert world.writes == 2


async def test_an_exit_that_cannot_be_written_is_tried_again() -> None:
    world = World()
    world.is_down = True
    world.presences.note_exit(PLACE, "uid-1", EXIT)
    async with asyncio.TaskGroup() as group:
        telling = group.create_task(world.settle())
        for _ in range(5):
            await asyncio.sleep(0)
        world.is_down = False
        while not telling.done():
            world.clock.time += timedelta(seconds=1)
            await asyncio.sleep(0)

    assert world.entries == [{"incarnation": ME, "viewers": 0, "exit": TOLD}]


async def test_a_process_that_goes_takes_its_entry_along() -> None:
    world = World()
    world.presences.note_exit(PLACE, "uid-1", EXIT)
    world.presences.note_output(PLACE, "uid-1", datetime(2026, 11, 30, 12, tzinfo=UTC))
    await world.settle()
    await world.presences.withdraw()

    assert "gateways" not in world.raw["status"]


async def test_that_somebody_looks_on_is_told_with_the_first_of_them_and_the_last() -> None:
    world, writes = World(), []
    other = {"incarnation": "gateway9", "viewers": 4}
    world.raw["status"]["gateways"] = [other]

    for count in (1, 2, 3, 2, 1, 0):
        world.presences.note_viewers(PLACE, "uid-1", count)
        await world.settle()
        writes.append(world.writes)
        assert world.entries[0] == other

    assert writes == [1, 1, 1, 1, 1, 2]
    assert world.entries == [other]


async def test_however_much_is_said_a_terminal_at_work_costs_a_write_a_minute() -> None:
    world = World()
    for _ in range(300):
        world.presences.note_output(PLACE, "uid-1", world.clock.now())
        world.presences.drop_quiet()
        await world.settle()
        world.clock.time += timedelta(seconds=1)

    assert world.writes == 300 // ACTIVITY_EVERY.total_seconds() - 1
    assert world.entries[0]["viewers"] == 0
    assert "activityTime" in world.entries[0]

"""
Random histories of two gateways, and what they have found, each in a few lines.

`AGENTTERMINAL_SEED=7` plays the histories from another seed on; one that breaks a promise shows itself whole.
"""

import asyncio
import inspect
from collections.abc import Coroutine
from dataclasses import replace
from datetime import timedelta
from os import environ
from random import Random
from typing import Any, Final, cast

import pytest

from controller.api.session import Identity
from controller.clock import SystemClock
from controller.gateway.chair import Chair, Former
from controller.gateway.desk import Desk, Outside
from controller.gateway.fence_calls import FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.stream import Client, Dialect, Hub, Recorded, Role, StreamSettings
from controller.gateway.stream.backlog import Backlog
from controller.gateway.stream.typist import Typist
from controller.gateway.wishes import Target
from controller.plan.fence import IncarnationEnded, Speaking, UpstreamClosed, find_speaker
from controller.plan.fence_closing import Ending
from controller.plan.fence_objects import LeaseView, ObjectView
from controller.plan.fence_tenure import begin_term
from controller.sprites.attach import Attachment
from controller.tenure import Tenure
from tests.gateway.doubles import UnaskedKube
from tests.gateway.stream.outsides import PersonSocket, Weather
from tests.gateway.stream.schedules import Counter, History

FIRST: Final = int(environ.get("AGENTTERMINAL_SEED", "0"))
HISTORIES: Final = 150
STRANDED: Final = 7
"""Bytes."""


def test_no_promise_is_broken_in_any_history() -> None:
    undrained = spoke = typed = 0

    for seed in range(FIRST, FIRST + HISTORIES):
        history = History(seed)
        history.play()
        undrained += sum(len(place.counter.undrained) for place in history.places)
        spoke += sum(place.counter.spoke for place in history.places)
        typed += len(history.arrived)

    assert min(undrained, spoke - HISTORIES, typed - HISTORIES) > HISTORIES // 10, "nothing much happened"


# --- what they have found ---------------------------------------------------------------------------------------------


class House:
    """Whoever has the chair: no call is ever answered, and it notes what is counted."""

    def __init__(self) -> None:
        self.undrained: list[int] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()

    def note_read(self, raw: dict[str, Any]) -> None:
        raise AssertionError("Nothing is read.")

    def note_spoke(self, former: Former, took: timedelta) -> None:
        raise AssertionError("Nobody speaks.")

    def note_undrained(self, unconfirmed_bytes: int) -> None:
        self.undrained.append(unconfirmed_bytes)

    def note_proven(self, incarnation: str) -> None:
        raise AssertionError("Nobody dies.")

    def note_empty(self, chair: Chair) -> None:
        """Keep the chair."""

    def end_incarnation(self) -> None:
        raise AssertionError("Every lock can be cleared.")


class DeadEnd:
    """An upstream socket over which no pong comes any more."""

    unconfirmed_bytes = STRANDED

    def __init__(self) -> None:
        self._cut = asyncio.Event()

    def ignore_output(self) -> None:
        """There is none."""

    async def drain(self) -> int:
        await self._cut.wait()
        return STRANDED

    def abort(self) -> int:
        self._cut.set()
        return STRANDED


class Alone:
    """One person at one hub, and the chair in front of it."""

    def __init__(self) -> None:
        socket, clock = PersonSocket(Weather(Random(0)), lambda *_: None), SystemClock()
        self.client = Client(
            cast("Any", socket),
            socket.abort,
            socket_id="socket01",
            role=Role.TYPE,
            dialect=Dialect.OURS,
            settings=StreamSettings(),
        )
        self.hub = Hub(
            None,
            cast("Any", None),
            may_type=lambda _: False,
            on_news=lambda _: None,
            clock=clock,
            settings=StreamSettings(),
        )
        self.house = House()
        life = Life(begin_term("gateway0", LeaseView("lease", "1", "gateway0"), sent=clock.elapsed()), clock)
        calls = FenceCalls(UnaskedKube(), "home")
        self.chair = Chair(Target("team-a", "one"), "uid-1", life, calls=calls, house=self.house, clock=clock)

    def arrive(self) -> None:
        view = ObjectView("uid-1", 1, 1)
        self.chair.arrive(1, self.client, self.hub, view, luck="socket01", takeover=True, dead=frozenset())

    def type_into_a_dead_end(self) -> None:
        """Let the person have typed, without a confirmation."""

        async def wait(_: Client) -> None:
            """Wait for nothing."""

        typist = Typist(
            self.client,
            Tenure(1),
            Backlog(),
            lambda _: True,
            wait_for_word=wait,
            wait_for_sight=wait,
            note_broken=lambda _: None,
            on_open=lambda: None,
        )
        typist.begin(cast("Attachment", DeadEnd()))
        self.hub._typist = typist


@pytest.mark.parametrize("ending", [Ending.BUFFER_FULL, Ending.TOO_SLOW, Ending.UPSTREAM_LOST, Ending.TOO_LARGE])
async def test_the_fence_knows_at_once_who_was_told_no_by_the_streams(ending: Ending) -> None:
    """It locked in the two seconds until their socket had ended, and typed what they had been told was not sent."""
    alone = Alone()
    alone.arrive()

    alone.client.end(ending)

    speaker = find_speaker(alone.chair.seat, 1)
    assert speaker is not None
    assert speaker.ending is ending


async def test_whoever_listens_for_an_end_hears_the_first_reason_alone() -> None:
    alone, heard = Alone(), list[Ending]()
    alone.client.on_end = heard.append

    alone.client.end(Ending.TOO_SLOW)
    alone.client.end(Ending.REPLACED)

    assert heard == [Ending.TOO_SLOW]
    assert alone.client.ending is Ending.TOO_SLOW


async def test_a_socket_that_is_cut_out_of_two_drains_is_told_to_each_and_counted_once() -> None:
    alone = Alone()
    alone.type_into_a_dead_end()

    async with asyncio.TaskGroup() as group:
        drains = [group.create_task(alone.hub.drain(alone.client)) for _ in range(2)]
        await asyncio.sleep(0)
        assert alone.hub.abort(alone.client) == STRANDED

    assert [drain.result() for drain in drains] == [STRANDED, STRANDED]
    assert [alone.hub.take_undrained(), alone.hub.take_undrained()] == [STRANDED, 0]


async def test_two_answers_about_one_socket_are_one_in_the_metric() -> None:
    alone = Alone()
    alone.arrive()
    alone.client.end(Ending.BUFFER_FULL)
    alone.type_into_a_dead_end()
    undrained = alone.hub.abort(alone.client)

    for _ in range(2):
        alone.chair.feed(UpstreamClosed(1, undrained))

    assert alone.house.undrained == [STRANDED]


@pytest.mark.parametrize("has_left", [True, False])
async def test_who_has_left_or_is_being_drained_does_not_type_into_the_next_session(has_left: bool) -> None:
    """The whole gateway ended by it where they had left, and where they were still here their socket stayed open."""
    alone = Alone()
    alone.client.end(Ending.REPLACED)
    if not has_left:
        alone.hub._clients.append(alone.client)
        alone.hub._backlogs[alone.client] = Backlog()
    alone.type_into_a_dead_end()
    draining = asyncio.get_running_loop().create_task(alone.hub.drain(alone.client))
    await asyncio.sleep(0)

    alone.hub.note_recorded(Recorded(Identity("sprite-1", "78", None)))

    assert await draining == STRANDED
    assert alone.hub._typist is None


async def test_what_a_lost_incarnation_cut_off_is_counted_as_well() -> None:
    alone = Alone()
    alone.arrive()
    speaking = replace(alone.chair.seat.speakers[0], phase=Speaking(1), upstream=True)
    alone.chair.seat = replace(alone.chair.seat, speakers=(speaking,))
    alone.type_into_a_dead_end()

    alone.chair.feed(IncarnationEnded())

    assert alone.house.undrained == [STRANDED]


async def test_a_socket_that_ends_after_the_desk_does_so_quietly() -> None:
    """A person who does not answer the close is there for longer than the tasks of the desk."""
    nobody = cast("Any", None)
    desk = Desk(
        Outside(nobody, nobody, nobody, nobody, nobody, nobody),
        lease_namespace="home",
        namespaces=None,
        streams=StreamSettings(),
        metrics=Counter(),
        clock=SystemClock(),
        luck=Random(0),
        draw=lambda: "gateway0",
    )
    async with asyncio.TaskGroup() as group:
        desk._group = group
    work = asyncio.sleep(0)

    desk.spawn(work)

    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED

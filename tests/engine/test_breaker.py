"""The breaker at work in the observer: when everything is refused, hardly anything is asked and nothing is believed."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import cast

import pytest

from controller.api.session import Cause, Sprite, SpriteState
from controller.engine.limits import Priority
from controller.engine.observer import AWAY_IS_SURE_AFTER, Refreshed, SpriteObserver
from controller.errors import Failure
from controller.plan.breaker import FURNISHED_AFTER, PROBE_INTERVAL, WITHIN
from controller.plan.looks import Listed, LookFailed, NotLooked, SpriteAway, SpriteSeen
from controller.sprites.client import SpritesClient
from controller.sprites.errors import Incident, NotFound, ServerFault, SpritesError, Unauthorized
from controller.sprites.token import Token
from tests.engine.clocks import HandClock, LoopClock
from tests.engine.test_observer import FakeSprites

TOKEN, OTHER = Token("lab/1/one"), Token("lab/2/other")
IN_USE = frozenset({TOKEN.fingerprint, OTHER.fingerprint})
A_MOMENT = timedelta(milliseconds=1)
NAMES = ("a", "b", "c", "d")
REFUSALS = [NotFound("HTTP 404.", status=404), Unauthorized("HTTP 401.", status=401)]


class Fleet:
    """Four sprites of one token, with something to lose in each of them."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.api = FakeSprites()
        self.api.sprites = {name: build_sprite(name) for name in NAMES}
        self.stakes: Collection[str] = frozenset(NAMES)
        self.changed: list[str] = []
        self.told: list[str] = []
        self.observer = SpriteObserver(
            cast("SpritesClient", self.api),
            self.clock,
            per_second=1000,
            on_change=self.changed.append,
            find_stakes=lambda fingerprint: self.stakes if fingerprint == TOKEN.fingerprint else (),
            on_breaker=self.told.append,
        )

    def is_open(self) -> bool:
        return self.observer.breaker(TOKEN).is_open

    def pass_time(self, time: timedelta = A_MOMENT) -> timedelta:
        self.clock.passed += time
        return self.clock.passed

    async def look(self, name: str = "a") -> object:
        return await self.observer.look_at_sprite(TOKEN, name, wanted_id=f"id-{name}", since=self.clock.passed)

    async def list(self, name: str) -> object:
        return await self.observer.look_at_sessions(TOKEN, name, since=self.clock.passed, cause=Cause.CHECK)

    async def refuse(self, *names: str, error: SpritesError = REFUSALS[0]) -> None:
        """Have the session lists of some sprites refused."""
        self.api.error = error
        for name in names:
            await self.list(name)
        self.api.error = None

    async def refuse_one(self, name: str, error: SpritesError) -> object:
        self.api.error = error
        look = await self.list(name)
        self.api.error = None
        return look

    async def refresh(self, *, only_open: bool = False) -> Refreshed:
        return await self.observer.refresh(IN_USE, only_open=only_open)

    async def break_down(self) -> None:
        """See all sprites, and then have an incident."""
        await self.look()
        self.pass_time()
        await self.refuse("a", "b", "c")
        assert self.is_open()
        self.api.calls.clear()

    async def probe(self) -> Refreshed:
        self.pass_time(PROBE_INTERVAL)
        return await self.refresh()


def build_sprite(name: str, id_: str | None = None) -> Sprite:
    return Sprite(id_ or f"id-{name}", name, SpriteState.RUNNING)


def assert_incident(look: object) -> None:
    assert isinstance(look, LookFailed)
    assert look.failure is Failure.API_INCIDENT


# --- what opens it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", REFUSALS, ids=["404", "401"])
async def test_three_sprites_whose_lists_are_refused_open_it_and_two_do_not(error: SpritesError) -> None:
    fleet = Fleet()
    await fleet.look()
    await fleet.refuse("a", "b", error=error)
    assert not fleet.is_open()

    await fleet.refuse("c", error=error)
    assert fleet.is_open()
    assert fleet.observer.count_open() == 1
    assert not fleet.observer.breaker(OTHER).is_open


async def test_one_sprite_that_is_refused_again_and_again_opens_nothing() -> None:
    fleet = Fleet()
    await fleet.look()
    for _ in range(20):
        await fleet.refuse("a")
        fleet.pass_time()

    assert not fleet.is_open()


async def test_every_call_about_a_sprite_counts_and_a_success_takes_its_refusal_back() -> None:
    fleet = Fleet()
    await fleet.look()
    fleet.observer.note_failure(TOKEN, "a", Unauthorized("HTTP 401.", status=401))
    fleet.observer.note_refusal(TOKEN, "b")
    fleet.observer.note_awake(TOKEN, "b")
    fleet.observer.note_failure(TOKEN, "c", NotFound("HTTP 404.", status=404))
    fleet.observer.note_failure(TOKEN, "d", ServerFault("HTTP 500.", status=500))
    assert not fleet.is_open()

    del fleet.api.sprites["d"]
    fleet.pass_time()
    assert_incident(await fleet.look("d"))


async def test_an_empty_list_opens_it_at_once_and_is_not_taken_in() -> None:
    fleet = Fleet()
    await fleet.look()
    fleet.api.sprites = {}
    fleet.pass_time()

    assert_incident(await fleet.look())

    assert fleet.is_open()
    assert fleet.changed == []
    assert len(fleet.api.calls) == 2, "nobody was asked for by name"


async def test_a_list_that_answers_404_speaks_of_all_sprites_at_once_and_one_that_answers_401_of_the_token() -> None:
    fleet = Fleet()
    fleet.api.error = REFUSALS[1]
    look = await fleet.look()
    assert isinstance(look, LookFailed)
    assert look.failure is Failure.UNAUTHORIZED

    fleet.pass_time(timedelta(seconds=5))
    fleet.api.error = REFUSALS[0]
    assert_incident(await fleet.look())


async def test_the_first_list_after_a_start_is_not_believed_where_it_shows_nothing_of_what_is_recorded() -> None:
    fleet = Fleet()
    fleet.api.sprites = {"stranger": build_sprite("stranger")}

    assert_incident(await fleet.look())


async def test_where_nothing_can_be_lost_an_empty_list_is_the_truth() -> None:
    fleet = Fleet()
    await fleet.look()
    fleet.stakes = frozenset()
    fleet.api.sprites = {}
    fleet.pass_time()

    assert isinstance(await fleet.look(), SpriteAway)
    assert not fleet.is_open()


# --- while it is open -------------------------------------------------------------------------------------------------


async def test_while_it_is_open_nothing_is_asked_and_nothing_that_was_known_is_given_out() -> None:
    fleet = Fleet()
    await fleet.break_down()

    assert_incident(await fleet.look())
    assert_incident(await fleet.list("d"))
    with pytest.raises(Incident) as told:
        await fleet.observer.enter(TOKEN, Priority.KILL)
    assert told.value.retry_after == PROBE_INTERVAL - A_MOMENT
    assert isinstance(fleet.observer.recall_sprite(TOKEN, "d", wanted_id=None), NotLooked)
    assert fleet.api.calls == []


async def test_while_it_is_open_the_list_is_asked_for_every_thirty_seconds_however_often_somebody_refreshes() -> None:
    fleet = Fleet()
    await fleet.break_down()
    fleet.api.sprites = {}
    for _ in range(120):
        fleet.pass_time(timedelta(seconds=1))
        await fleet.refresh(only_open=True)
        await fleet.look()

    assert fleet.api.calls == [f"list {TOKEN.fingerprint}"] * 4


async def test_a_token_whose_breaker_is_closed_is_left_alone_by_a_probe() -> None:
    fleet = Fleet()
    await fleet.observer.look_at_sprite(OTHER, "a", wanted_id=None, since=timedelta(0))
    await fleet.break_down()

    fleet.pass_time(PROBE_INTERVAL)
    await fleet.refresh(only_open=True)

    assert fleet.api.calls == [f"list {TOKEN.fingerprint}"]


@pytest.mark.looptime
async def test_whoever_waits_for_a_turn_when_it_opens_sends_nothing() -> None:
    api = FakeSprites()
    observer = SpriteObserver(cast("SpritesClient", api), LoopClock(), per_second=10, on_change=lambda _: None)
    api.sprites = {name: build_sprite(name) for name in NAMES}
    await observer.look_at_sprite(TOKEN, "a", wanted_id=None, since=timedelta(0))
    for _ in range(9):
        await observer.enter(TOKEN, Priority.KILL)
    waiting = [asyncio.ensure_future(observer.enter(TOKEN, priority)) for priority in Priority]
    await asyncio.sleep(0)
    for name in ("a", "b", "c"):
        observer.note_refusal(TOKEN, name)

    answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Incident] * len(Priority)


async def test_a_list_that_fails_leaves_it_open() -> None:
    fleet = Fleet()
    await fleet.break_down()
    fleet.api.error = Unauthorized("HTTP 401.", status=401)

    assert await fleet.probe() == Refreshed(frozenset({TOKEN.fingerprint}), frozenset())

    assert fleet.is_open()
    assert_incident(await fleet.look())


# --- how it ends ------------------------------------------------------------------------------------------------------


async def test_it_closes_with_a_list_that_shows_a_known_sprite_and_tells_whom_to_wake() -> None:
    fleet = Fleet()
    await fleet.break_down()
    fleet.api.sprites = {"d": build_sprite("d")}

    assert await fleet.probe() == Refreshed(frozenset(), frozenset({TOKEN.fingerprint}))

    assert not fleet.is_open()
    assert fleet.told == [TOKEN.fingerprint] * 2, "when it opened, and when it closed"
    assert isinstance(await fleet.look("d"), SpriteSeen)
    assert isinstance(await fleet.list("d"), Listed)


@pytest.mark.parametrize("error", REFUSALS, ids=["404", "401"])
async def test_what_is_listed_and_refused_keeps_it_open_for_hours_with_one_call_for_each_list(
    error: SpritesError,
) -> None:
    fleet = Fleet()
    await fleet.break_down()
    fleet.told.clear()
    for number in range(1, 121):
        await fleet.probe()
        for name in NAMES:
            assert_incident(await fleet.refuse_one(name, error))
        assert fleet.is_open()
        assert len(fleet.api.calls) == 2 * number

    assert len(fleet.told) == 120, "whoever waits is told of each trial"
    await fleet.probe()
    assert isinstance(await fleet.list("a"), Listed)
    assert not fleet.is_open()
    assert isinstance(await fleet.list("d"), Listed)


async def test_who_is_on_trial_is_looked_at_and_the_others_are_not() -> None:
    fleet = Fleet()
    await fleet.break_down()
    await fleet.probe()

    assert isinstance(fleet.observer.recall_sprite(TOKEN, "a", wanted_id=None), SpriteSeen)
    assert isinstance(fleet.observer.recall_sprite(TOKEN, "d", wanted_id=None), NotLooked), "it was not refused"
    async with fleet.observer.calling(TOKEN, "b", priority=Priority.KILL, cause=Cause.KILL):
        assert_incident(await fleet.look("a"))
        assert_incident(await fleet.list("a"))
    fleet.observer.note_awake(TOKEN, "b")

    assert isinstance(await fleet.look("a"), SpriteSeen)


async def test_of_one_sprite_an_empty_list_and_a_404_are_no_proof_for_ten_minutes() -> None:
    fleet = Fleet()
    fleet.stakes = {"a"}
    fleet.api.sprites = {"a": build_sprite("a")}
    await fleet.look()
    fleet.api.sprites = {}
    for _ in range(20):
        fleet.pass_time(PROBE_INTERVAL)
        look = await fleet.look()
        assert isinstance(look, SpriteAway)
        assert (look.confirmed, look.blind) == (False, True)

    fleet.api.sprites = {"a": build_sprite("a", "another")}
    looks = []
    for wait in (PROBE_INTERVAL, AWAY_IS_SURE_AFTER - A_MOMENT, A_MOMENT):
        fleet.pass_time(wait)
        looks.append(await fleet.look())

    assert [look.confirmed for look in looks if isinstance(look, SpriteAway)] == [False, False, True]


async def test_an_absence_is_sure_only_after_a_minute_in_which_it_was_closed_all_the_while() -> None:
    fleet = Fleet()
    await fleet.look()
    del fleet.api.sprites["a"]
    fleet.pass_time()
    assert isinstance(await fleet.look(), SpriteAway)
    fleet.pass_time(AWAY_IS_SURE_AFTER - PROBE_INTERVAL)
    await fleet.look("b")
    await fleet.refuse("b", "c", "d")
    assert fleet.is_open()
    await fleet.probe()
    await fleet.list("b")
    assert not fleet.is_open()

    looks = [await fleet.look()]
    fleet.pass_time(AWAY_IS_SURE_AFTER - A_MOMENT)
    looks.append(await fleet.look())
    fleet.pass_time(A_MOMENT)
    looks.append(await fleet.look())

    assert [look.confirmed for look in looks if isinstance(look, SpriteAway)] == [False, False, True]


async def test_a_fleet_of_which_one_is_left_is_proven_gone_within_minutes_although_each_refusal_opens_it() -> None:
    fleet = Fleet()
    await fleet.look()
    fleet.api.sprites = {"d": build_sprite("d")}
    confirmed: dict[str, timedelta] = {}
    while len(confirmed) < 3:
        assert fleet.pass_time(timedelta(seconds=5)) < timedelta(minutes=4)
        await fleet.refresh(only_open=fleet.clock.passed % PROBE_INTERVAL > timedelta(0))
        for name in ("a", "b", "c"):
            look = await fleet.look(name)
            if isinstance(look, SpriteAway) and look.confirmed:
                confirmed.setdefault(name, fleet.clock.passed)

    assert not fleet.is_open()
    assert min(confirmed.values()) >= 2 * AWAY_IS_SURE_AFTER


async def test_an_organization_that_was_furnished_anew_is_believed_after_ten_minutes_and_not_before() -> None:
    fleet = Fleet()
    await fleet.look()
    fleet.api.sprites = {"x": build_sprite("x"), "y": build_sprite("y")}
    opened = fleet.pass_time()
    assert_incident(await fleet.look())

    while fleet.is_open():
        await fleet.probe()
        fleet.api.sprites[f"later-{fleet.clock.passed}"] = build_sprite("later", f"id-{fleet.clock.passed}")

    assert fleet.clock.passed - opened == FURNISHED_AFTER
    look = await fleet.look()
    assert not (isinstance(look, SpriteAway) and look.confirmed)


@pytest.mark.parametrize("shown", [(), ("changing",)], ids=["nothing", "ever other strangers"])
async def test_lists_that_show_nothing_or_ever_other_strangers_are_never_believed(shown: tuple[str, ...]) -> None:
    fleet = Fleet()
    await fleet.break_down()
    for number in range(60):
        fleet.api.sprites = {f"{name}-{number}": build_sprite(f"{name}-{number}") for name in shown}
        await fleet.probe()
        assert fleet.is_open()


async def test_refusals_that_lie_more_than_a_minute_apart_do_not_count_together() -> None:
    fleet = Fleet()
    await fleet.look()
    await fleet.refuse("a", "b")
    fleet.pass_time(WITHIN + A_MOMENT)

    await fleet.refuse("c")

    assert not fleet.is_open()

"""One look for all who ask: who shares a call, what a failed one spoils, and when an absence is sure."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from controller.api.session import Cause, Session, Sprite, SpriteState
from controller.engine.limits import Priority
from controller.engine.observer import AWAY_IS_SURE_AFTER, FORGET_AFTER, Refreshed, SpriteObserver
from controller.engine.shared import FAILURE_AGE
from controller.errors import Failure
from controller.plan.looks import Listed, LookFailed, NotLooked, SpriteAway, SpriteSeen
from controller.sprites.client import SpritesClient
from controller.sprites.errors import NotFound, ServerFault, SpritesError, Throttled, Unauthorized
from controller.sprites.token import Token
from tests.engine.clocks import NOON, HandClock

TOKEN, OTHER = Token("lab/1/one"), Token("lab/2/other")
START = timedelta(0)
A_MOMENT = timedelta(milliseconds=1)
MINUTE = timedelta(minutes=1)
BOX = Sprite("id-1", "box", SpriteState.RUNNING)
SESSION = Session("41", datetime(2026, 1, 1, tzinfo=UTC), "bash", True, None)

IN_USE = frozenset({TOKEN.fingerprint, OTHER.fingerprint})


class FakeSprites:
    """The Sprites API for one token; a call waits at the gate, and is answered with what was true when it was made."""

    def __init__(self) -> None:
        self.sprites: dict[str, Sprite] = {BOX.name: BOX}
        self.hidden: set[str] = set()
        """Names that the list leaves out, though the sprites are there."""
        self.sessions: tuple[Session, ...] = (SESSION,)
        self.error: SpritesError | None = None
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def list_sprites(self, token: Token, *, cause: Cause) -> tuple[Sprite, ...]:
        sprites = tuple(sprite for sprite in self.sprites.values() if sprite.name not in self.hidden)
        await self._pass(f"list {token.fingerprint}")
        return sprites

    async def get_sprite(self, token: Token, name: str, *, cause: Cause) -> Sprite:
        found = self.sprites.get(name)
        await self._pass(f"get {name}")
        if found is None:
            raise NotFound("No such sprite.", status=404)
        return found

    async def list_sessions(self, token: Token, sprite: str, *, cause: Cause) -> tuple[Session, ...]:
        sessions = self.sessions
        await self._pass(f"sessions {sprite} {cause}")
        return sessions

    async def _pass(self, call: str) -> None:
        self.calls.append(call)
        error = self.error
        await self.gate.wait()
        if error is not None:
            raise error


class Bench:
    def __init__(self, *, per_second: float = 1000) -> None:
        self.clock = HandClock()
        self.api = FakeSprites()
        self.changed: list[str] = []
        self.observer = SpriteObserver(
            cast("SpritesClient", self.api), self.clock, per_second=per_second, on_change=self.changed.append
        )

    def pass_time(self, time: timedelta = A_MOMENT) -> timedelta:
        """Move the clock, and give what it shows."""
        self.clock.passed += time
        return self.clock.passed

    async def look(
        self, *, since: timedelta | None = None, wanted_id: str | None = None, token: Token = TOKEN, name: str = "box"
    ) -> object:
        """Look at the sprite's metadata, by default by a call that begins now or later."""
        since = self.clock.passed if since is None else since
        return await self.observer.look_at_sprite(token, name, wanted_id=wanted_id, since=since)

    async def list(self, *, since: timedelta | None = None, cause: Cause = Cause.CHECK) -> object:
        since = self.clock.passed if since is None else since
        return await self.observer.look_at_sessions(TOKEN, "box", since=since, cause=cause)


async def gather_sessions(looks: Sequence[asyncio.Task[object]]) -> list[tuple[Session, ...]]:
    answers = await asyncio.gather(*looks)
    return [look.sessions for look in answers if isinstance(look, Listed)]


# --- one call for many ------------------------------------------------------------------------------------------------


async def test_who_asks_while_a_call_runs_that_began_late_enough_shares_it() -> None:
    bench = Bench()
    bench.api.gate.clear()
    async with asyncio.TaskGroup() as group:
        looks = [group.create_task(bench.list(since=START)) for _ in range(50)]
        await asyncio.sleep(0)
        bench.api.gate.set()

    assert len(await gather_sessions(looks)) == 50
    assert bench.api.calls == ["sessions box check"]


async def test_an_answer_that_was_on_its_way_before_the_question_does_not_answer_it() -> None:
    bench = Bench()
    bench.api.gate.clear()
    async with asyncio.TaskGroup() as group:
        early = group.create_task(bench.list())
        await asyncio.sleep(0)
        bench.api.sessions = ()
        bench.pass_time()
        late = [group.create_task(bench.list()) for _ in range(50)]
        await asyncio.sleep(0)
        bench.api.gate.set()

    assert await gather_sessions([early]) == [(SESSION,)]
    assert await gather_sessions(late) == [()] * 50
    assert len(bench.api.calls) == 2


async def test_an_answer_is_given_again_for_as_long_as_it_is_young_enough() -> None:
    bench = Bench()
    await bench.list()
    bench.pass_time(timedelta(seconds=5))

    await bench.list(since=START)
    assert len(bench.api.calls) == 1

    await bench.list(since=START + A_MOMENT)
    assert len(bench.api.calls) == 2


@pytest.mark.parametrize("leaving", [0, 1], ids=["the one that made the call", "one that waits"])
async def test_a_caller_that_leaves_takes_no_answer_from_those_who_wait_for_the_same_call(leaving: int) -> None:
    bench = Bench()
    bench.api.gate.clear()
    callers = []
    for _ in range(3):
        callers.append(asyncio.ensure_future(bench.list()))
        await asyncio.sleep(0)

    callers.pop(leaving).cancel()
    await asyncio.sleep(0)
    bench.api.gate.set()

    async with asyncio.timeout(10):
        for look in await asyncio.gather(*callers):
            assert isinstance(look, Listed)


async def test_one_listing_serves_all_sprites_of_a_token_and_none_of_another() -> None:
    bench = Bench()
    bench.api.sprites["two"] = Sprite("id-2", "two", SpriteState.WARM)

    await bench.look()
    await bench.look(name="two")
    await bench.look(token=OTHER)

    assert bench.api.calls == [f"list {TOKEN.fingerprint}", f"list {OTHER.fingerprint}"]


async def test_a_look_names_its_start_and_not_its_end() -> None:
    bench = Bench()
    bench.api.gate.clear()
    looking = asyncio.ensure_future(bench.look())
    await asyncio.sleep(0)
    bench.pass_time(timedelta(seconds=3))
    bench.api.gate.set()

    assert await looking == SpriteSeen(BOX, START, NOON + timedelta(seconds=3))


# --- failures ---------------------------------------------------------------------------------------------------------


async def test_a_failed_look_answers_who_asked_and_spoils_nothing_that_was_known() -> None:
    bench = Bench()
    await bench.look()
    await bench.list()
    bench.pass_time()
    bench.api.error = ServerFault("HTTP 503.", status=503)

    assert await bench.look() == LookFailed(Failure.SERVER, "HTTP 503.", A_MOMENT)
    assert await bench.list() == LookFailed(Failure.SERVER, "HTTP 503.", A_MOMENT)

    assert bench.observer.recall_sprite(TOKEN, "box", wanted_id=None) == SpriteSeen(BOX, START, NOON)
    assert bench.observer.recall_sessions(TOKEN, "box") == Listed((SESSION,), START)
    assert bench.changed == []


async def test_a_failure_is_shared_like_an_answer_and_asked_anew_by_whoever_comes_later() -> None:
    bench = Bench()
    bench.api.error = ServerFault("HTTP 503.", status=503)
    await bench.list()
    await bench.list(since=START)
    assert len(bench.api.calls) == 1

    bench.api.error = None
    bench.pass_time()
    assert isinstance(await bench.list(), Listed)


async def test_an_old_question_that_was_met_by_a_failure_is_put_again() -> None:
    bench = Bench()
    bench.api.error = ServerFault("HTTP 503.", status=503)
    await bench.list(since=START)

    bench.pass_time(FAILURE_AGE)
    await bench.list(since=START)
    assert len(bench.api.calls) == 1

    bench.api.error = None
    bench.pass_time()
    assert isinstance(await bench.list(since=START), Listed)


async def test_a_pause_that_was_asked_for_stops_all_calls_of_its_token_and_no_other() -> None:
    bench = Bench()
    bench.api.error = Throttled("HTTP 429.", status=429, retry_after=timedelta(seconds=30))
    await bench.look()
    bench.api.error = None
    bench.pass_time(timedelta(seconds=10))

    for look in (await bench.look(), await bench.list()):
        assert isinstance(look, LookFailed)
        assert (look.failure, look.retry_after) == (Failure.THROTTLED, timedelta(seconds=20))
    with pytest.raises(Throttled):
        await bench.observer.enter(TOKEN, Priority.KILL)
    assert len(bench.api.calls) == 1
    assert bench.observer.recall_wake(TOKEN, "box") is None
    assert isinstance(await bench.look(token=OTHER), SpriteSeen)

    bench.pass_time(timedelta(seconds=20))
    assert isinstance(await bench.look(), SpriteSeen)


# --- absence ----------------------------------------------------------------------------------------------------------


async def test_a_sprite_that_the_list_lacks_is_asked_for_by_name() -> None:
    bench = Bench()
    bench.api.hidden.add("box")

    look = await bench.look(wanted_id="id-1")

    assert isinstance(look, SpriteSeen)
    assert bench.api.calls == [f"list {TOKEN.fingerprint}", "get box"]


async def test_a_sprite_that_is_younger_than_the_list_is_known_from_its_name_until_a_list_begins_without_it() -> None:
    bench = Bench()
    bench.api.hidden.add("box")
    await bench.observer.look_at_sprite(TOKEN, "box", wanted_id=None, since=START)

    known = bench.observer.recall_sprite(TOKEN, "box", wanted_id="id-1")
    assert isinstance(known, SpriteSeen)
    assert known.sprite == BOX
    assert isinstance(bench.observer.recall_sprite(TOKEN, "box", wanted_id="id-2"), NotLooked)

    bench.clock.passed += A_MOMENT
    await bench.observer.refresh(IN_USE)

    assert isinstance(bench.observer.recall_sprite(TOKEN, "box", wanted_id="id-1"), NotLooked)


async def test_an_absence_is_sure_after_two_complete_listings_a_minute_apart() -> None:
    bench = Bench()
    await bench.look(wanted_id="id-1")
    del bench.api.sprites["box"]
    bench.pass_time()

    first = await bench.look(wanted_id="id-1")
    bench.pass_time(AWAY_IS_SURE_AFTER - A_MOMENT)
    early = await bench.look(wanted_id="id-1")
    bench.pass_time()
    late = await bench.look(wanted_id="id-1")

    assert [look.confirmed for look in (first, early, late) if isinstance(look, SpriteAway)] == [False, False, True]


async def test_a_listing_that_fails_in_between_neither_helps_nor_hinders_a_sure_absence() -> None:
    bench = Bench()
    del bench.api.sprites["box"]
    await bench.look(wanted_id="id-1")

    bench.pass_time(AWAY_IS_SURE_AFTER)
    bench.api.error = ServerFault("HTTP 503.", status=503)
    assert isinstance(await bench.look(wanted_id="id-1"), LookFailed)
    bench.api.error = None
    bench.pass_time()

    look = await bench.look(wanted_id="id-1")
    assert isinstance(look, SpriteAway)
    assert look.confirmed


@pytest.mark.parametrize("how", ["in a list", "by its name"])
async def test_a_sprite_that_was_seen_in_between_begins_its_absence_anew(how: str) -> None:
    bench = Bench()
    del bench.api.sprites["box"]
    await bench.look(wanted_id="id-1")

    bench.pass_time(MINUTE)
    bench.api.sprites["box"] = BOX
    if how == "by its name":
        bench.api.hidden.add("box")
    assert isinstance(await bench.look(wanted_id="id-1"), SpriteSeen)
    del bench.api.sprites["box"]
    bench.pass_time(MINUTE)

    look = await bench.look(wanted_id="id-1")
    assert isinstance(look, SpriteAway)
    assert not look.confirmed


async def test_a_successor_of_the_same_name_is_told_and_is_not_the_sprite() -> None:
    bench = Bench()
    await bench.look()
    successor = Sprite("id-9", "box", SpriteState.RUNNING)
    bench.api.sprites["box"] = successor
    bench.pass_time()

    look = await bench.look(wanted_id="id-1")
    assert look == SpriteAway(A_MOMENT, NOON + A_MOMENT, confirmed=False, successor=successor)
    assert bench.changed == ["box"]

    bench.pass_time(AWAY_IS_SURE_AFTER)
    look = await bench.look(wanted_id="id-1")
    assert isinstance(look, SpriteAway)
    assert look.confirmed


async def test_absence_by_name_alone_is_never_sure() -> None:
    bench = Bench()
    for _ in range(3):
        look = await bench.look(name="never")
        assert isinstance(look, SpriteAway)
        assert not look.confirmed
        bench.pass_time(MINUTE)


async def test_a_token_has_seen_what_its_listings_showed_and_nothing_else() -> None:
    bench = Bench()
    await bench.look()
    del bench.api.sprites["box"]
    bench.pass_time()
    await bench.look()

    assert bench.observer.has_seen(TOKEN, "id-1")
    assert not bench.observer.has_seen(OTHER, "id-1")
    assert not bench.observer.has_seen(TOKEN, None)


# --- awake and cold ---------------------------------------------------------------------------------------------------


async def test_a_sprite_that_answered_from_inside_runs_whatever_an_older_listing_says() -> None:
    bench = Bench()
    bench.api.sprites["box"] = Sprite("id-1", "box", SpriteState.COLD)
    await bench.look()
    bench.pass_time()

    bench.observer.note_awake(TOKEN, "box")
    recalled = bench.observer.recall_sprite(TOKEN, "box", wanted_id="id-1")
    assert isinstance(recalled, SpriteSeen)
    assert recalled.sprite.state is SpriteState.RUNNING

    bench.pass_time()
    newer = await bench.look()
    assert isinstance(newer, SpriteSeen)
    assert newer.sprite.state is SpriteState.COLD


async def test_a_session_list_shows_that_the_sprite_runs_and_counts_as_a_call_that_may_wake_it() -> None:
    bench = Bench()
    bench.api.sprites["box"] = Sprite("id-1", "box", SpriteState.WARM)
    await bench.look()
    bench.pass_time()

    await bench.list()

    recalled = bench.observer.recall_sprite(TOKEN, "box", wanted_id=None)
    assert isinstance(recalled, SpriteSeen)
    assert recalled.sprite.state is SpriteState.RUNNING
    assert bench.observer.recall_wake(TOKEN, "box") == NOON + A_MOMENT


async def test_a_change_of_state_is_told_once_and_cold_at_every_listing() -> None:
    bench = Bench()
    states = [SpriteState.RUNNING, SpriteState.WARM, SpriteState.WARM, SpriteState.COLD, SpriteState.COLD]
    told = []
    for state in states:
        bench.api.sprites["box"] = Sprite("id-1", "box", state)
        await bench.look()
        told.append(len(bench.changed))
        bench.pass_time()

    assert told == [0, 1, 1, 2, 3]


async def test_a_sprite_that_comes_or_goes_is_told() -> None:
    bench = Bench()
    await bench.look()
    bench.api.sprites = {"new": Sprite("id-2", "new", SpriteState.RUNNING)}
    bench.pass_time()
    await bench.look()

    assert sorted(bench.changed) == ["box", "new"]


async def test_what_nobody_has_looked_at_is_not_known() -> None:
    bench = Bench()

    assert isinstance(bench.observer.recall_sprite(TOKEN, "box", wanted_id=None), NotLooked)
    assert isinstance(bench.observer.recall_sessions(TOKEN, "box"), NotLooked)
    assert bench.api.calls == []


# --- refresh ----------------------------------------------------------------------------------------------------------


async def test_a_refresh_reads_every_token_in_use_by_one_call_each() -> None:
    bench = Bench()
    await bench.look()
    await bench.look(token=OTHER)
    bench.api.calls.clear()
    bench.pass_time()

    assert await bench.observer.refresh(IN_USE) == Refreshed(frozenset(), frozenset())
    assert sorted(bench.api.calls) == sorted([f"list {TOKEN.fingerprint}", f"list {OTHER.fingerprint}"])


async def test_a_refresh_does_not_wait_for_one_token_before_it_asks_for_the_next() -> None:
    bench = Bench()
    await bench.look()
    await bench.look(token=OTHER)
    bench.api.calls.clear()
    bench.pass_time()
    bench.api.gate.clear()

    refreshing = asyncio.ensure_future(bench.observer.refresh(IN_USE))
    for _ in range(5):
        await asyncio.sleep(0)

    assert len(bench.api.calls) == 2
    bench.api.gate.set()
    await refreshing


async def test_a_token_that_nobody_uses_any_more_is_forgotten_after_a_while() -> None:
    bench = Bench()
    await bench.look()
    bench.api.calls.clear()

    bench.pass_time(FORGET_AFTER)
    await bench.observer.refresh(frozenset())
    assert len(bench.api.calls) == 1

    bench.pass_time()
    await bench.observer.refresh(frozenset())
    assert len(bench.api.calls) == 1


async def test_a_refused_token_that_nobody_uses_any_more_is_not_asked_again() -> None:
    bench = Bench()
    bench.api.error = Unauthorized("HTTP 401.", status=401)
    await bench.look()
    bench.api.calls.clear()

    bench.pass_time()
    await bench.observer.refresh(IN_USE)
    assert len(bench.api.calls) == 1

    bench.pass_time()
    await bench.observer.refresh(frozenset())
    assert len(bench.api.calls) == 1


async def test_a_refused_token_is_told_at_every_refresh_and_a_recovered_one_once() -> None:
    bench = Bench()
    await bench.look()
    bench.api.error = Unauthorized("HTTP 401.", status=401)
    refused = frozenset({TOKEN.fingerprint})
    for _ in range(2):
        bench.pass_time()
        assert await bench.observer.refresh(IN_USE) == Refreshed(refused, frozenset())

    bench.api.error = None
    bench.pass_time()
    assert await bench.observer.refresh(IN_USE) == Refreshed(frozenset(), refused)
    bench.pass_time()
    assert await bench.observer.refresh(IN_USE) == Refreshed(frozenset(), frozenset())


async def test_a_token_whose_trouble_somebody_else_saw_end_has_recovered_all_the_same() -> None:
    bench = Bench()
    bench.api.error = ServerFault("HTTP 503.", status=503)
    await bench.look()
    bench.api.error = None
    bench.pass_time()
    await bench.look()
    bench.pass_time()

    assert (await bench.observer.refresh(IN_USE)).recovered == {TOKEN.fingerprint}


async def test_a_list_of_sprites_that_fails_is_told_once_and_once_that_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bench = Bench()
    bench.api.error = ServerFault("HTTP 500.", status=500)
    for _ in range(5):
        bench.pass_time(MINUTE)
        await bench.look()
    bench.api.error = None
    for _ in range(2):
        bench.pass_time(MINUTE)
        await bench.look()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert vars(caplog.records[0])["fault"] == "HTTP 500."
    assert vars(caplog.records[1])["token"] == TOKEN.fingerprint

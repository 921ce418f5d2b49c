"""The leave of an open socket, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from controller.gateway.access import BearerToken, Person
from controller.gateway.guard import TRIES, Guard
from controller.gateway.reviews import Reviews
from controller.gateway.settings import LimitSettings, TimeSettings
from controller.gateway.terminals import EndCause, Ending, Notice, Renewal, TokenWanted
from controller.gateway.wishes import Door, Right, Target
from tests.engine.clocks import NOON, LoopClock
from tests.gateway.doubles import ANNA, BERT, FakeKube, build_jwt

pytestmark = pytest.mark.looptime

PERSON = Person("anna", "uid-of-anna", ("system:authenticated",))
WANTED = TokenWanted(timedelta(seconds=60))


class WallClock(LoopClock):
    """The virtual clock of the loop, on the wall as well."""

    def now(self) -> datetime:
        return NOON + self.monotonic()


@dataclass
class Watch:
    """A guard that runs, and what it is asked of."""

    guard: Guard
    kube: FakeKube
    running: "asyncio.Task[Ending]"

    async def notice_after(self) -> tuple[Notice, float]:
        """Wait for the next notice, and tell after how many seconds it came."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.timeout(10_000):
            notice = await self.guard.next_notice()
        return notice, round(loop.time() - start, 3)


@asynccontextmanager
async def watching(
    kube: FakeKube | None = None,
    *,
    token: str | None = ANNA,
    ends_in: float | None = None,
    door: Door = Door.OWN,
    rights: tuple[Right, ...] = (Right.ATTACH,),
) -> AsyncIterator[Watch]:
    kube, clock = kube or FakeKube(), WallClock()
    reviews = Reviews(
        kube,
        audiences=("gateway",),
        own_audience_only=False,
        kept=TimeSettings().verdict_kept,
        limits=LimitSettings(),
        clock=clock,
    )
    guard = Guard(
        reviews,
        token=BearerToken(token) if token is not None else None,
        person=PERSON,
        expires=clock.now() + timedelta(seconds=ends_in) if ends_in is not None else None,
        target=Target("team-a", "one"),
        rights=rights,
        door=door,
        times=TimeSettings(),
        clock=clock,
    )
    async with asyncio.TaskGroup() as group:
        running = group.create_task(guard.run())
        yield Watch(guard, kube, running)
        running.cancel()


def cause_of(notice: Notice) -> EndCause:
    assert isinstance(notice, Ending)
    return notice.cause


async def test_a_right_that_is_withdrawn_ends_the_socket_with_the_next_review() -> None:
    async with watching() as watch:
        await asyncio.sleep(45)
        watch.kube.rights.clear()
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.WITHDRAWN, 15)
        assert await watch.running == notice
        assert await watch.guard.next_notice() == notice


async def test_each_right_that_was_needed_stays_needed() -> None:
    async with watching(rights=(Right.ATTACH, Right.TAKEOVER)) as watch:
        watch.kube.rights.remove(("anna", "takeover"))
        assert cause_of((await watch.notice_after())[0]) is EndCause.WITHDRAWN


async def test_an_expiry_is_asked_for_when_it_comes_and_ends_the_socket_a_minute_later() -> None:
    async with watching(ends_in=100) as watch:
        assert await watch.notice_after() == (WANTED, 100)
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.EXPIRED, 60)


async def test_a_token_that_the_api_server_takes_no_more_counts_as_expired() -> None:
    async with watching() as watch:
        watch.kube.users.clear()
        assert await watch.notice_after() == (WANTED, 30)


async def test_a_right_withdrawn_while_a_token_is_awaited_does_not_wait_for_it() -> None:
    async with watching(ends_in=10) as watch:
        assert await watch.notice_after() == (WANTED, 10)
        watch.kube.rights.clear()
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.WITHDRAWN, 30)


async def test_a_fresh_token_of_the_same_person_goes_on_until_its_own_end() -> None:
    async with watching(ends_in=10) as watch:
        await watch.notice_after()
        await asyncio.sleep(59)
        fresh = build_jwt("anna", NOON + timedelta(seconds=asyncio.get_running_loop().time() + 500))
        watch.kube.users = {fresh: "anna"}

        assert await watch.guard.renew(fresh) is Renewal.RENEWED
        notice, after = await watch.notice_after()
        assert notice == WANTED
        assert 499 <= after <= 500  # a JWT counts whole seconds


async def test_a_fresh_token_may_come_before_it_is_asked_for() -> None:
    async with watching(ends_in=100) as watch:
        watch.kube.users = {"fresh": "anna"}
        assert await watch.guard.renew("fresh") is Renewal.RENEWED
        await asyncio.sleep(1000)
        assert not watch.running.done()


async def test_the_groups_of_a_fresh_token_are_reviewed_at_once() -> None:
    async with watching() as watch:
        await asyncio.sleep(15)
        watch.kube.users = {"fresh": "anna"}
        watch.kube.rights.clear()
        await watch.guard.renew("fresh")
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.WITHDRAWN, 0)


@pytest.mark.parametrize(
    ("token", "renewal"),
    [(BERT, Renewal.OTHER_PERSON), ("nobody", Renewal.BAD_TOKEN), ("no token", Renewal.BAD_TOKEN)],
)
async def test_a_token_of_somebody_else_or_of_nobody_prolongs_nothing(token: str, renewal: Renewal) -> None:
    async with watching(ends_in=10) as watch:
        await watch.notice_after()
        assert await watch.guard.renew(token) is renewal
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.EXPIRED, 60)


async def test_after_some_tokens_that_are_not_taken_no_other_costs_a_review() -> None:
    async with watching() as watch:
        for number in range(TRIES):
            assert await watch.guard.renew(f"bad-{number}") is Renewal.BAD_TOKEN
        made = len(watch.kube.calls)
        assert await watch.guard.renew(ANNA) is Renewal.BAD_TOKEN
        assert len(watch.kube.calls) == made


async def test_a_recreated_user_of_the_same_name_is_somebody_else() -> None:
    class Recreated(FakeKube):
        async def review_token(self, token: str, *, audiences: object = ()) -> dict[str, object]:
            return {"authenticated": True, "user": {"username": "anna", "uid": "another"}}

    async with watching(Recreated()) as watch:
        assert await watch.guard.renew("fresh") is Renewal.OTHER_PERSON


@pytest.mark.parametrize("fault", ["is_down", "cannot_log_in"])
async def test_what_the_api_server_does_not_say_changes_nothing(fault: str) -> None:
    async with watching() as watch:
        setattr(watch.kube, fault, True)
        await asyncio.sleep(600)
        assert not watch.running.done()
        assert await watch.guard.renew("fresh") is Renewal.UNDECIDED

        setattr(watch.kube, fault, False)
        watch.kube.rights.clear()
        assert cause_of((await watch.notice_after())[0]) is EndCause.WITHDRAWN


async def test_at_the_vendors_door_an_expiry_ends_the_socket() -> None:
    async with watching(ends_in=10, door=Door.SDK) as watch:
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.EXPIRED, 10)


async def test_a_client_certificate_is_not_reviewed_as_a_token_and_ends_when_it_says() -> None:
    async with watching(token=None, ends_in=100) as watch:
        assert await watch.notice_after() == (WANTED, 100)
        assert "token" not in watch.kube.calls
        assert "access" in watch.kube.calls


async def test_a_drain_ends_the_socket_at_once_and_the_first_cause_stands() -> None:
    async with watching() as watch:
        await asyncio.sleep(1)
        watch.guard.end(EndCause.DRAIN)
        watch.guard.end(EndCause.EXPIRED)
        notice, after = await watch.notice_after()
        assert (cause_of(notice), after) == (EndCause.DRAIN, 0)
        async with asyncio.timeout(0.001):
            assert (await watch.running).cause is EndCause.DRAIN

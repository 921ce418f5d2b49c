"""Verdicts of the API server: which tokens are taken, what is remembered, and how many are asked for at once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from controller.gateway.access import BearerToken, Person
from controller.gateway.reviews import Known, Reviews, Unknown, read_expiry
from controller.gateway.settings import LimitSettings
from controller.gateway.wishes import Right, Target
from controller.kube.errors import Unreachable
from tests.engine.clocks import HandClock
from tests.gateway.doubles import ANNA, BERT, FakeKube, build_jwt, wait_until

TOKEN = BearerToken(ANNA)
PERSON = Person("anna", "uid-of-anna", ("system:authenticated",))
ONE = Target("team-a", "one")
KEPT = timedelta(seconds=10)


def reviews(
    kube: FakeKube, clock: HandClock | None = None, *, strict: bool = False, limits: LimitSettings | None = None
) -> Reviews:
    return Reviews(
        kube,
        audiences=("gateway", "console"),
        own_audience_only=strict,
        kept=KEPT,
        limits=limits or LimitSettings(),
        clock=clock or HandClock(),
    )


@pytest.mark.parametrize(
    ("meant_for", "lenient", "strict"),
    [
        (None, True, False),  # the API server itself
        (("gateway",), True, True),
        (("other", "console"), True, True),
        (("other",), False, False),
    ],
)
async def test_a_token_for_us_or_for_the_api_server_is_taken_and_strictly_only_one_for_us(
    meant_for: tuple[str, ...] | None, lenient: bool, strict: bool
) -> None:
    for is_strict, taken in ((False, lenient), (True, strict)):
        kube = FakeKube()
        if meant_for is not None:
            kube.audiences[ANNA] = meant_for
        verdict = await reviews(kube, strict=is_strict).identify(TOKEN)
        assert verdict == (Known(PERSON, None) if taken else Unknown())


async def test_an_authenticator_that_knows_no_audience_speaks_for_the_api_server_only() -> None:
    class Unaware(FakeKube):
        async def review_token(self, token: str, *, audiences: object = ()) -> dict[str, object]:
            return {"authenticated": True, "user": {"username": "anna"}}

    assert await reviews(Unaware()).identify(TOKEN) == Known(Person("anna"), None)
    assert await reviews(Unaware(), strict=True).identify(TOKEN) == Unknown()


async def test_a_yes_and_a_no_are_each_believed_for_ten_seconds() -> None:
    kube, clock = FakeKube(), HandClock()
    asked = reviews(kube, clock)
    for token, right in ((TOKEN, Right.ATTACH), (BearerToken("nobody"), Right.VIEW)):
        kube.rights = {("anna", "attach")}
        kube.calls.clear()
        first = (await asked.identify(token), await asked.is_allowed(PERSON, ONE, right))
        made = len(kube.calls)
        kube.users, kube.rights = {"nobody": "nobody"}, {("anna", "view")}
        clock.passed += KEPT - timedelta(milliseconds=1)
        assert (await asked.identify(token), await asked.is_allowed(PERSON, ONE, right)) == first
        assert len(kube.calls) == made

        clock.passed += timedelta(milliseconds=1)
        assert (await asked.identify(token), await asked.is_allowed(PERSON, ONE, right)) != first
        kube.users = {ANNA: "anna"}


async def test_a_verdict_holds_for_one_token_one_person_one_object_and_one_right() -> None:
    kube = FakeKube(rights={("anna", "attach")})
    asked = reviews(kube)
    assert await asked.is_allowed(PERSON, ONE, Right.ATTACH)
    for person, target, right in (
        (Person("anna", "uid-of-anna", ("other",)), ONE, Right.ATTACH),
        (PERSON, Target("team-b", "one"), Right.ATTACH),
        (PERSON, Target("team-a", "two"), Right.ATTACH),
        (PERSON, ONE, Right.VIEW),
    ):
        before = len(kube.calls)
        await asked.is_allowed(person, target, right)
        assert len(kube.calls) == before + 1
    assert await asked.identify(TOKEN) != await asked.identify(BearerToken(BERT))


async def test_a_failure_is_told_and_never_remembered() -> None:
    kube = FakeKube(is_down=True)
    asked = reviews(kube)
    with pytest.raises(Unreachable):
        await asked.identify(TOKEN)
    with pytest.raises(Unreachable):
        await asked.is_allowed(PERSON, ONE, Right.ATTACH)

    kube.is_down = False
    assert isinstance(await asked.identify(TOKEN), Known)
    assert await asked.is_allowed(PERSON, ONE, Right.ATTACH)


async def test_so_many_verdicts_are_kept_and_no_token_among_them() -> None:
    kube = FakeKube(users={f"token-{number}": "anna" for number in range(4)})
    asked = reviews(kube, limits=LimitSettings(cached_verdicts=3))
    for number in range(4):
        await asked.identify(BearerToken(f"token-{number}"))
    kube.calls.clear()
    await asked.identify(BearerToken("token-3"))
    assert kube.calls == []
    await asked.identify(BearerToken("token-0"))
    assert kube.calls != []
    assert "token-" not in repr(vars(asked._tokens))


async def test_so_many_reviews_are_in_flight_and_who_asks_the_same_waits_for_the_one_answer() -> None:
    kube = FakeKube(users={f"token-{number}": "anna" for number in range(9)})
    kube.audiences = dict.fromkeys(kube.users, ("gateway",))
    asked = reviews(kube, limits=LimitSettings(reviews=2))
    kube.passage.clear()
    async with asyncio.TaskGroup() as group:
        for number in range(9):
            for _ in range(3):
                group.create_task(asked.identify(BearerToken(f"token-{number}")))
        await wait_until(lambda: len(kube.calls) == 2)
        await asyncio.sleep(0)
        assert len(kube.calls) == 2
        kube.passage.set()
    assert len(kube.calls) <= 10  # one each; the first token may have been asked about twice at once


async def test_the_review_says_who_asks_in_full() -> None:
    kube = FakeKube()
    person = Person("anna", "u", ("a", "b"), (("scopes", ("x", "y")),))
    await reviews(kube).is_allowed(person, ONE, Right.ACTIVITY)
    (spec,) = kube.specs
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == (
        "anna",
        "u",
        ["a", "b"],
        {"scopes": ["x", "y"]},
    )


@pytest.mark.parametrize(
    "token",
    ["opaque", "a.b.c", "a.b", "..", "e30.e30.e30", "x.eyJleHAiOiJzb29uIn0.x", "x.eyJleHAiOjFlOTl9.x", "x.W10.x"],
)
def test_a_token_that_does_not_say_when_it_ends_has_no_end(token: str) -> None:
    assert read_expiry(BearerToken(token)) is None


def test_a_token_that_says_when_it_ends_ends_then() -> None:
    end = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert read_expiry(BearerToken(build_jwt("anna", end))) == end

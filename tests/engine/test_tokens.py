"""Which token speaks for an object: what is read when, what is kept, and what is said where there is none."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from controller.api.situations import Situation
from controller.api.terminal import TokenSecretRef
from controller.engine.tokens import REREAD_AFTER, OwnToken, TokenBook, TokenTrouble
from controller.kube.errors import Forbidden, KubeError, NotFound, ServerFault, Unreachable
from controller.sprites.token import Token
from tests.engine.clocks import HandClock

REF = TokenSecretRef(name="sprites")
A_MOMENT = timedelta(milliseconds=1)
GOOD, BETTER, OWN = Token("lab/1/good"), Token("lab/2/better"), Token("lab/3/own")


class FakeSecrets:
    """The Secrets of one namespace; an error in the place of data is raised."""

    def __init__(self, **secrets: Mapping[str, bytes] | KubeError) -> None:
        self.secrets: dict[str, Mapping[str, bytes] | KubeError] = dict(secrets)
        self.reads: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        self.reads.append(f"{namespace}/{name}")
        found = self.secrets.get(name, NotFound("No such Secret.", status=404))
        await self.gate.wait()
        if isinstance(found, KubeError):
            raise found
        return found


class World:
    def __init__(self, *, own: OwnToken | None = None, **secrets: Mapping[str, bytes] | KubeError) -> None:
        self.clock = HandClock()
        self.secrets = FakeSecrets(**secrets)
        self.book = TokenBook(self.secrets, self.clock, own)

    async def find(self, ref: TokenSecretRef | None = REF, *, sprite: str = "box") -> Token | TokenTrouble:
        return await self.book.find("team", ref, sprite)


def hold(token: Token) -> dict[str, bytes]:
    return {"token": f"{token.reveal()}\n".encode()}


def own(token: Token | None = OWN, *, namespaces: tuple[str, ...] = (), sprites: tuple[str, ...] = ()) -> OwnToken:
    return OwnToken(lambda: token, namespaces, sprites)


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_good_token_is_read_once_a_minute() -> None:
    world = World(sprites=hold(GOOD))

    assert await world.find() == GOOD
    world.clock.passed += REREAD_AFTER - A_MOMENT
    assert await world.find() == GOOD
    assert world.secrets.reads == ["team/sprites"]

    world.secrets.secrets["sprites"] = hold(BETTER)
    world.clock.passed += A_MOMENT
    assert await world.find() == BETTER


async def test_a_trouble_is_looked_at_anew_by_everybody_who_asks() -> None:
    world = World()
    assert isinstance(await world.find(), TokenTrouble)

    world.secrets.secrets["sprites"] = hold(GOOD)
    world.clock.passed += A_MOMENT

    assert await world.find() == GOOD


async def test_many_who_ask_at_once_share_a_call_that_began_when_they_asked() -> None:
    world = World(sprites=hold(GOOD))
    world.secrets.gate.clear()
    early = asyncio.ensure_future(world.find())
    await asyncio.sleep(0)
    world.clock.passed += A_MOMENT
    late = [asyncio.ensure_future(world.find()) for _ in range(20)]
    await asyncio.sleep(0)

    world.secrets.secrets["sprites"] = hold(BETTER)
    world.clock.passed += A_MOMENT
    world.secrets.gate.set()

    assert await early == GOOD
    assert set(await asyncio.gather(*late)) == {BETTER}
    assert len(world.secrets.reads) == 2


async def test_two_keys_of_one_secret_are_two_tokens() -> None:
    world = World(sprites={"token": b"lab/1/good", "other": b"lab/2/better"})

    assert await world.find() == GOOD
    assert await world.find(TokenSecretRef(name="sprites", key="other")) == BETTER


TROUBLES: list[tuple[Mapping[str, bytes] | KubeError, Situation, str]] = [
    (NotFound("No.", status=404), Situation.SECRET_NOT_FOUND, "Secret sprites does not exist, or the operator may not"),
    (Forbidden("No.", status=403), Situation.SECRET_NOT_FOUND, "chart's `secretAccess`"),
    ({}, Situation.SECRET_KEY_MISSING, "Secret sprites has no value under the key token."),
    ({"other": b"x"}, Situation.SECRET_KEY_MISSING, "Secret sprites has no value under the key token."),
    ({"token": b""}, Situation.SECRET_KEY_MISSING, "Secret sprites has no value under the key token."),
    ({"token": b"\r\n"}, Situation.TOKEN_INVALID, "is empty"),
    ({"token": b"planted secret"}, Situation.TOKEN_INVALID, "white space"),
    ({"token": b"planted\x00secret"}, Situation.TOKEN_INVALID, "control character"),
    ({"token": b"planted\xffsecret"}, Situation.TOKEN_INVALID, "outside ASCII"),
    ({"token": b"planted" * 1000}, Situation.TOKEN_INVALID, "7000 characters"),
]


@pytest.mark.parametrize(("secret", "situation", "said"), TROUBLES)
async def test_every_trouble_has_its_situation_and_names_its_place_but_never_the_value(
    secret: Mapping[str, bytes] | KubeError, situation: Situation, said: str
) -> None:
    trouble = await World(sprites=secret).find()

    assert isinstance(trouble, TokenTrouble)
    assert (trouble.situation, trouble.passing) == (situation, False)
    assert said in trouble.message
    assert "sprites" in trouble.message
    assert "planted" not in trouble.message


@pytest.mark.parametrize("error", [ServerFault("Down.", status=500), Unreachable("Gone.")])
async def test_a_read_that_fails_is_a_trouble_that_passes(error: KubeError) -> None:
    trouble = await World(sprites=error).find()

    assert isinstance(trouble, TokenTrouble)
    assert (trouble.situation, trouble.passing) == (Situation.PENDING, True)


async def test_a_read_that_fails_does_not_take_away_what_is_known() -> None:
    world = World(sprites=hold(GOOD))
    await world.find()

    world.secrets.secrets["sprites"] = ServerFault("Down.", status=500)
    world.clock.passed += REREAD_AFTER

    assert await world.find() == GOOD


async def test_a_secret_that_was_deleted_takes_its_token_away() -> None:
    world = World(sprites=hold(GOOD))
    await world.find()

    del world.secrets.secrets["sprites"]
    world.clock.passed += REREAD_AFTER

    assert isinstance(await world.find(), TokenTrouble)


# --- after a 401 ------------------------------------------------------------------------------------------------------


async def test_a_refused_token_is_replaced_only_by_another_one() -> None:
    world = World(sprites=hold(GOOD))
    await world.find()
    world.clock.passed += A_MOMENT
    assert await world.book.reread("team", REF, "box", refused=GOOD) is None

    world.secrets.secrets["sprites"] = hold(BETTER)
    world.clock.passed += A_MOMENT

    assert await world.book.reread("team", REF, "box", refused=GOOD) == BETTER
    assert await world.find() == BETTER
    assert len(world.secrets.reads) == 3


async def test_a_refused_token_whose_secret_is_in_trouble_has_no_successor() -> None:
    world = World(sprites={"token": b"not a token"})

    assert await world.book.reread("team", REF, "box", refused=GOOD) is None


async def test_the_operators_own_token_is_read_again_too() -> None:
    tokens = [OWN, BETTER]
    changing = OwnToken(lambda: tokens.pop(0), ("*",), ("*",))
    world = World(own=changing)

    assert await world.find(None) == OWN
    assert await world.book.reread("team", None, "box", refused=OWN) == BETTER


# --- the operator's own token -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespaces", "sprites", "is_served"),
    [
        (("team",), ("box",), True),
        (("t*",), ("b?x",), True),
        (("other", "*"), ("other", "*"), True),
        (("team",), (), False),
        ((), ("box",), False),
        (("tea",), ("box",), False),
        (("TEAM",), ("box",), False),
        (("team",), ("box-?",), False),
    ],
)
async def test_the_own_token_serves_where_a_pattern_of_each_list_matches(
    namespaces: tuple[str, ...], sprites: tuple[str, ...], is_served: bool
) -> None:
    found = await World(own=own(namespaces=namespaces, sprites=sprites)).find(None)

    if is_served:
        assert found == OWN
    else:
        assert isinstance(found, TokenTrouble)
        assert found.situation is Situation.TOKEN_NOT_ALLOWED
        assert "sprite box in namespace team" in found.message


async def test_without_an_own_token_a_secret_must_be_named() -> None:
    found = await World().find(None)

    assert isinstance(found, TokenTrouble)
    assert found.situation is Situation.TOKEN_NOT_ALLOWED
    assert "Name a Secret" in found.message


async def test_an_own_token_that_cannot_be_read_is_the_matter_of_whoever_runs_the_operator() -> None:
    found = await World(own=own(None, namespaces=("*",), sprites=("*",))).find(None)

    assert isinstance(found, TokenTrouble)
    assert found.situation is Situation.TOKEN_INVALID


async def test_a_named_secret_is_never_replaced_by_the_own_token() -> None:
    assert isinstance(await World(own=own(namespaces=("*",), sprites=("*",))).find(REF), TokenTrouble)


# --- for ending what is recorded --------------------------------------------------------------------------------------


async def test_the_last_good_token_of_the_secret_comes_first_and_then_the_own_one() -> None:
    world = World(own=own(), sprites=hold(GOOD))
    assert world.book.find_for_kill("team", REF) == OWN

    await world.find()
    world.secrets.secrets["sprites"] = {"token": b"not a token"}
    world.clock.passed += REREAD_AFTER
    await world.find()

    assert world.book.find_for_kill("team", REF) == GOOD
    assert world.book.find_for_kill("team", REF, refused=GOOD) == OWN
    assert world.book.find_for_kill("other-team", REF) == OWN


async def test_without_any_token_there_is_none_to_end_with() -> None:
    world = World()
    await world.find()

    assert world.book.find_for_kill("team", REF) is None
    assert world.book.find_for_kill("team", None) is None


async def test_the_own_token_ends_what_it_may_not_start() -> None:
    assert World(own=own()).book.find_for_kill("team", None) == OWN


# --- values for a launch ----------------------------------------------------------------------------------------------


async def test_a_value_is_given_as_it_stands() -> None:
    assert await World(other={"key": "ä\n".encode()}).book.read_value("team", "other", "key") == "ä\n"


@pytest.mark.parametrize(
    ("secret", "said", "is_passing"),
    [
        (NotFound("No.", status=404), "Secret other, which `spec.launch.env` names, does not exist", False),
        (Forbidden("No.", status=403), "may not read it", False),
        ({"planted": b"planted"}, "Secret other has no key key, which `spec.launch.env` names.", False),
        ({"key": b"planted\xff"}, "is not UTF-8 text", False),
        (ServerFault("Down.", status=500), "Secret other could not be read", True),
    ],
)
async def test_a_value_that_cannot_be_had_says_why(
    secret: Mapping[str, bytes] | KubeError, said: str, is_passing: bool
) -> None:
    trouble = await World(other=secret).book.read_value("team", "other", "key")

    assert isinstance(trouble, TokenTrouble)
    assert (trouble.situation, trouble.passing) == (Situation.LAUNCH_INVALID, is_passing)
    assert said in trouble.message
    assert "planted" not in trouble.message

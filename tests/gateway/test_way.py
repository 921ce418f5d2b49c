"""With which token a gateway goes to a sprite: the one of the present, and none where none is allowed."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest

from controller.api.session import Cause, Identity
from controller.api.terminal import TerminalSpec, TokenSecretRef
from controller.engine.tokens import OwnToken, TokenBook
from controller.gateway.way import TokenWay
from controller.kube.errors import KubeError
from controller.plan.looks import Listed, LookFailed
from controller.sprites.client import SpritesClient
from controller.sprites.errors import Unauthorized
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.engine.clocks import HandClock
from tests.engine.test_tokens import FakeSecrets, hold

STALE, FRESH, OWN = Token("lab/1/stale"), Token("lab/2/fresh"), Token("lab/3/own")
SESSION = Identity("sprite-1", "77", None)
WITH_SECRET = TerminalSpec(sprite_name="box", token_secret_ref=TokenSecretRef(name="sprites"))
WITHOUT = TerminalSpec(sprite_name="box")


class FakeSprites:
    """A platform that takes some tokens, and notes with which it was called."""

    def __init__(self, taken: Iterable[Token], before: Callable[[], None] = lambda: None) -> None:
        self.calls: list[tuple[str, Token]] = []
        self._taken = set(taken)
        self._before = before

    def _judge(self, call: str, token: Token) -> None:
        self.calls.append((call, token))
        if token not in self._taken:
            # What is wrong with a token is mended by whoever keeps the Secret, now.
            self._before()
            raise Unauthorized("The Sprites API does not accept the token.", status=401)

    @asynccontextmanager
    async def attach_session(
        self, token: Token, sprite: str, session_id: str, *, typing: Tenure | None, cause: Cause
    ) -> AsyncIterator[str]:
        self._judge(f"{cause} {sprite}/{session_id}", token)
        yield "open"

    async def list_sessions(self, token: Token, sprite: str, *, cause: Cause) -> tuple[()]:
        self._judge("list", token)
        return ()

    async def get_sprite(self, token: Token, sprite: str, *, cause: Cause) -> Any:
        self._judge("get", token)
        raise AssertionError("It is never asked with a token that is taken.")


class SlowSecrets(FakeSecrets):
    """Reading takes a moment of its own."""

    def __init__(self, **secrets: Mapping[str, bytes] | KubeError) -> None:
        super().__init__(**secrets)
        self.clock = HandClock()

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        await self.clock.sleep(timedelta(milliseconds=1))
        return await super().get_secret(namespace, name)


def build(sprites: FakeSprites, secrets: SlowSecrets, spec: TerminalSpec, own: OwnToken | None = None) -> TokenWay:
    clock = secrets.clock
    return TokenWay(cast("SpritesClient", sprites), TokenBook(secrets, clock, own), "team", lambda: spec, clock)


@pytest.mark.parametrize("typing", [None, Tenure(1)], ids=["to look", "to type"])
async def test_after_a_401_the_secret_is_read_again_and_the_socket_opens_with_the_token_of_the_present(
    typing: Tenure | None,
) -> None:
    secrets = SlowSecrets(sprites=hold(STALE))
    sprites = FakeSprites([FRESH], lambda: secrets.secrets.update(sprites=hold(FRESH)))
    way = build(sprites, secrets, WITH_SECRET)

    async with way.attach(SESSION, typing=typing):
        pass
    listed = await way.list_sessions()

    call = f"{Cause.VIEW if typing is None else Cause.ATTACH} box/77"
    assert sprites.calls == [(call, STALE), (call, FRESH), ("list", FRESH)]
    assert isinstance(listed, Listed)


async def test_a_token_that_is_refused_and_has_not_changed_is_sent_once() -> None:
    secrets = SlowSecrets(sprites=hold(STALE))
    sprites = FakeSprites([])
    way = build(sprites, secrets, WITH_SECRET)

    with pytest.raises(Unauthorized):
        async with way.attach(SESSION, typing=None):
            pass
    assert len(sprites.calls) == 1
    assert isinstance(await way.list_sessions(), LookFailed)
    assert len(sprites.calls) == 2


@pytest.mark.parametrize(
    ("namespaces", "names", "is_served"),
    [(("team",), ("b*",), True), (("team",), ("other",), False), (("other",), ("*",), False), ((), (), False)],
    ids=["both are listed", "the sprite is not", "the namespace is not", "nothing is"],
)
async def test_a_gateways_own_token_goes_only_where_the_settings_let_it(
    namespaces: tuple[str, ...], names: tuple[str, ...], is_served: bool
) -> None:
    sprites = FakeSprites([OWN])
    way = build(sprites, SlowSecrets(), WITHOUT, OwnToken(lambda: OWN, namespaces, names))
    trouble = await way.find_trouble()

    if is_served:
        async with way.attach(SESSION, typing=None):
            pass
        assert trouble is None
        assert [token for _, token in sprites.calls] == [OWN]
        return
    with pytest.raises(Unauthorized):
        async with way.attach(SESSION, typing=Tenure(1)):
            pass
    assert isinstance(await way.list_sessions(), LookFailed)
    assert await way.find_state() is None
    assert sprites.calls == []
    assert trouble is not None
    assert "`spec.tokenSecretRef`" in trouble
    assert OWN.reveal() not in trouble

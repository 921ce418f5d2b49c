"""
The way from a stream to its sprite, with the token that the object names.

Problem: a token lies in a Secret, which is read when it is needed, may be changed at any time, and may be wrong.
Promise: each call has the token of the present, read again once after a 401; without a token nothing is sent, and the
stream hears it as it hears a refusal.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from controller.api.session import Cause, Identity, SpriteState
from controller.api.terminal import TerminalSpec
from controller.clock import Clock
from controller.engine.tokens import TokenBook, TokenTrouble
from controller.plan.looks import Listed, LookFailed
from controller.sprites.attach import Attachment
from controller.sprites.client import SpritesClient
from controller.sprites.errors import SpritesError, Unauthorized
from controller.sprites.token import Token
from controller.tenure import Tenure


class TokenWay:
    """
    The way to the sprite of one object: a `controller.gateway.stream.Way`.

    Args:
        sprites: Our client.
        tokens: All tokens in use.
        namespace: The object's.
        find_spec: Gives the spec of the present, since the name of the Secret may be changed.
        clock: For the start of each look.
    """

    def __init__(
        self,
        sprites: SpritesClient,
        tokens: TokenBook,
        namespace: str,
        find_spec: Callable[[], TerminalSpec],
        clock: Clock,
    ) -> None:
        self._sprites = sprites
        self._tokens = tokens
        self._namespace = namespace
        self._find_spec = find_spec
        self._clock = clock

    async def find_trouble(self) -> str | None:
        """Say in a sentence why there is no token; None where there is one."""
        spec = self._find_spec()
        found = await self._tokens.find(self._namespace, spec.token_secret_ref, spec.sprite_name)
        return found.message if isinstance(found, TokenTrouble) else None

    @asynccontextmanager
    async def attach(self, identity: Identity, *, typing: Tenure | None) -> AsyncIterator[Attachment]:
        """Open a socket to a session."""
        cause = Cause.VIEW if typing is None else Cause.ATTACH
        sprite = self._find_spec().sprite_name
        async with AsyncExitStack() as stack:
            token = await self._find()
            try:
                opening = self._sprites.attach_session(token, sprite, identity.session_id, typing=typing, cause=cause)
                attachment = await stack.enter_async_context(opening)
            except Unauthorized:
                token = await self._find_other(token)
                opening = self._sprites.attach_session(token, sprite, identity.session_id, typing=typing, cause=cause)
                attachment = await stack.enter_async_context(opening)
            yield attachment

    async def list_sessions(self) -> Listed | LookFailed:
        """List what lives in the sprite."""
        started = self._clock.monotonic()
        sprite = self._find_spec().sprite_name
        try:
            token = await self._find()
            try:
                sessions = await self._sprites.list_sessions(token, sprite, cause=Cause.ATTACH)
            except Unauthorized:
                token = await self._find_other(token)
                sessions = await self._sprites.list_sessions(token, sprite, cause=Cause.ATTACH)
        except SpritesError as error:
            return LookFailed(error.failure, error.message, started, error.retry_after)
        return Listed(sessions, started)

    async def find_state(self) -> SpriteState | None:
        """Ask how the sprite is, without waking it; None where that cannot be known."""
        try:
            sprite = await self._sprites.get_sprite(
                await self._find(), self._find_spec().sprite_name, cause=Cause.METADATA
            )
        except SpritesError:
            return None
        return sprite.state

    async def _find(self) -> Token:
        spec = self._find_spec()
        found = await self._tokens.find(self._namespace, spec.token_secret_ref, spec.sprite_name)
        if isinstance(found, TokenTrouble):
            raise Unauthorized(found.message)
        return found

    async def _find_other(self, refused: Token) -> Token:
        spec = self._find_spec()
        found = await self._tokens.reread(self._namespace, spec.token_secret_ref, spec.sprite_name, refused=refused)
        if found is None:
            raise Unauthorized("The Sprites API does not accept the token.", status=401)
        return found

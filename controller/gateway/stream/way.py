"""
The way from a stream to its sprite.

Problem: a stream must neither know tokens nor be able to create anything. Promise: a `Way` can attach to a session that
lives, list what lives, and look whether the sprite runs without waking it; no more.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from controller.api.session import Cause, Identity, SpriteState
from controller.clock import Clock
from controller.plan.looks import Listed, LookFailed
from controller.sprites.attach import Attachment
from controller.sprites.client import SpritesClient
from controller.sprites.errors import SpritesError
from controller.sprites.token import Token
from controller.tenure import Tenure


class Way(Protocol):
    """What a stream may ask of the platform."""

    def attach(self, identity: Identity, *, typing: Tenure | None) -> AbstractAsyncContextManager[Attachment]:
        """Open a socket to a session; this wakes the sprite. Raises `SpritesError` or `TenureEnded`."""

    async def list_sessions(self) -> Listed | LookFailed:
        """List what lives in the sprite; this may wake it."""

    async def find_state(self) -> SpriteState | None:
        """Ask how the sprite is, without waking it; None where that cannot be known."""


class SpriteWay:
    """
    The way to one sprite by the Sprites API.

    Args:
        client: Our client.
        sprite: The sprite's name.
        find_token: Gives the present token at each call, since it may be changed meanwhile.
        clock: For the start of each look.
    """

    def __init__(self, client: SpritesClient, sprite: str, find_token: Callable[[], Token], clock: Clock) -> None:
        self._client = client
        self._sprite = sprite
        self._find_token = find_token
        self._clock = clock

    def attach(self, identity: Identity, *, typing: Tenure | None) -> AbstractAsyncContextManager[Attachment]:
        """Open a socket to a session."""
        cause = Cause.VIEW if typing is None else Cause.ATTACH
        return self._client.attach_session(
            self._find_token(), self._sprite, identity.session_id, typing=typing, cause=cause
        )

    async def list_sessions(self) -> Listed | LookFailed:
        """List what lives in the sprite."""
        started = self._clock.monotonic()
        try:
            sessions = await self._client.list_sessions(self._find_token(), self._sprite, cause=Cause.ATTACH)
        except SpritesError as error:
            return LookFailed(error.failure, error.message, started, error.retry_after)
        return Listed(sessions, started)

    async def find_state(self) -> SpriteState | None:
        """Ask how the sprite is, without waking it."""
        try:
            sprite = await self._client.get_sprite(self._find_token(), self._sprite, cause=Cause.METADATA)
        except SpritesError:
            return None
        return sprite.state

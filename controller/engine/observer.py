"""
What we know of sprites and their sessions, looked up once for all who ask.

Problem: a hundred terminals on one sprite must not ask a hundred times, and an answer that was on its way before a
question arose does not answer it. Promise: one call at a time per question; who asks while it runs shares it if it
started late enough, and else shares the next one. Metadata is read per token (pages of 50, which never wake a sprite),
session lists per sprite. A failed look answers those who asked and spoils nothing that was known.
"""

import asyncio
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Generic, TypeVar

from controller.api.session import Cause, Sprite, SpriteState
from controller.clock import Clock
from controller.engine.limits import Limiter, Paused, Priority
from controller.errors import Failure
from controller.plan.looks import NOT_LOOKED, Listed, LookFailed, SessionsLook, SpriteAway, SpriteLook, SpriteSeen
from controller.sprites.client import SpritesClient
from controller.sprites.errors import NotFound, SpritesError, Throttled
from controller.sprites.token import Token

AWAY_IS_SURE_AFTER: Final = timedelta(seconds=60)
"""A sprite's id must be missing from two complete listings that lie this far apart."""

FORGET_AFTER: Final = timedelta(minutes=10)
"""What is known by a token that no object uses any more is kept this long, for objects that are between two visits."""

FAILURE_AGE: Final = timedelta(seconds=1)
"""A failed look also answers whoever asks within this time: a thousand objects need not hear it from the API itself."""

_URGENT: Final = frozenset({Cause.IDENTIFY, Cause.PROVE})


@dataclass(frozen=True, slots=True)
class _Listing:
    """All sprites of one token."""

    sprites: dict[str, Sprite]
    started: timedelta
    read_time: datetime


@dataclass(frozen=True, slots=True)
class Refreshed:
    """
    What a refresh has brought to light, as fingerprints of tokens.

    Args:
        refused: Those that are not accepted (401).
        recovered: Those whose metadata could not be read for a while, and now can.
    """

    refused: frozenset[str]
    recovered: frozenset[str]


L = TypeVar("L", _Listing | LookFailed, SessionsLook, SpriteLook)


class _Shared(Generic[L]):
    """
    One question that many ask: at most one call at a time, and nobody gets an answer older than the question.

    A failure answers those who ask at the same time and no others: whoever still waits for an answer to an old question
    asks again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answer: L | None = None
        self._started = timedelta(0)
        self._ended = timedelta(0)
        self._flight: asyncio.Future[None] | None = None

    async def get(self, since: timedelta, fetch: Callable[[], Awaitable[tuple[timedelta, L]]]) -> L:
        """Give an answer whose call started at `since` or later; `fetch` gives a call's start and its answer."""
        while True:
            if self._answer is not None and self._started >= since and not self._is_stale():
                return self._answer
            if self._flight is not None:
                await asyncio.shield(self._flight)
                continue
            flight = self._flight = asyncio.get_running_loop().create_future()
            try:
                self._started, self._answer = await fetch()
                self._ended = self._clock.monotonic()
            finally:
                self._flight = None
                flight.set_result(None)

    def _is_stale(self) -> bool:
        return isinstance(self._answer, LookFailed) and self._clock.monotonic() - self._ended > FAILURE_AGE


@dataclass(slots=True)
class _SpriteBook:
    """One sprite of one token."""

    lists: _Shared[SessionsLook]
    alone: _Shared[SpriteLook]
    sessions: SessionsLook = NOT_LOOKED
    last_wake_time: datetime | None = None
    awake_at: timedelta | None = None
    """When it last answered from inside: metadata that was read before lags behind."""
    kills: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))


@dataclass(slots=True)
class _TokenBook:
    """What one token sees."""

    token: Token
    limiter: Limiter
    listings: _Shared[_Listing | LookFailed]
    used_at: timedelta = timedelta(0)
    listing: _Listing | None = None
    sprites: dict[str, _SpriteBook] = field(default_factory=dict)
    is_troubled: bool = False
    """Its metadata could not be read at some time since the last refresh that worked."""
    seen: set[str] = field(default_factory=set)
    """The id of every sprite that it ever showed."""
    missing: dict[str, timedelta] = field(default_factory=dict)
    """Sprite id → start of the first complete listing that lacked it."""


class SpriteObserver:
    """
    The one place that asks the Sprites API about the present.

    Args:
        client: The Sprites API.
        clock: Both clocks.
        per_second: The budget of calls per token.
        on_change: Told the sprite's name whenever its state or id was seen to change, or while it is seen cold.
    """

    def __init__(
        self, client: SpritesClient, clock: Clock, *, per_second: float, on_change: Callable[[str], None]
    ) -> None:
        self._client = client
        self._clock = clock
        self._per_second = per_second
        self._on_change = on_change
        self._tokens: dict[str, _TokenBook] = {}

    async def look_at_sprite(self, token: Token, name: str, *, wanted_id: str | None, since: timedelta) -> SpriteLook:
        """
        Look a sprite up in a listing that started at `since` or later; one that is not listed is asked for by name.

        Args:
            token: Whose sprites.
            name: Its name.
            wanted_id: The id it had; another id means that the sprite is away, with a successor.
            since: Monotonic.
        """
        book = self._book(token)
        answer = await book.listings.get(since, lambda: self._list_sprites(book))
        if isinstance(answer, LookFailed):
            return answer
        if name in answer.sprites:
            return self._judge_sprite(book, answer, wanted_id, answer.sprites[name])
        look = await self._sprite_book(book, name).alone.get(since, lambda: self._get_sprite(book, name))
        if isinstance(look, SpriteSeen):
            # It was only missing from a list, so the time of its absence begins anew.
            book.missing.pop(look.sprite.id, None)
        if isinstance(look, SpriteSeen) and wanted_id in (None, look.sprite.id):
            return look
        if isinstance(look, LookFailed):
            return look
        return self._judge_sprite(book, answer, wanted_id, look.sprite if isinstance(look, SpriteSeen) else None)

    def recall_sprite(self, token: Token, name: str, *, wanted_id: str | None) -> SpriteLook:
        """Give what the last listing said, without asking anybody."""
        book = self._book(token)
        listing = book.listing
        if listing is None or name not in listing.sprites:
            return NOT_LOOKED
        return self._judge_sprite(book, listing, wanted_id, listing.sprites[name])

    def has_seen(self, token: Token, sprite_id: str | None) -> bool:
        """Tell whether a sprite was ever listed by a token: only then does its absence from that list mean anything."""
        return sprite_id in self._book(token).seen

    async def look_at_sessions(self, token: Token, name: str, *, since: timedelta, cause: Cause) -> SessionsLook:
        """Read the session list of a sprite, by a call that started at `since` or later."""
        book = self._book(token)
        sprite = self._sprite_book(book, name)
        return await sprite.lists.get(since, lambda: self._list_sessions(book, sprite, name, cause))

    def recall_sessions(self, token: Token, name: str) -> SessionsLook:
        """Give the last complete list, without asking anybody."""
        return self._sprite_book(self._book(token), name).sessions

    def recall_wake(self, token: Token, name: str) -> datetime | None:
        """Tell when we last made a call that could have woken the sprite."""
        return self._sprite_book(self._book(token), name).last_wake_time

    def note_wake(self, token: Token, name: str) -> None:
        """Remember a call that could have woken the sprite."""
        self._sprite_book(self._book(token), name).last_wake_time = self._clock.now()

    def note_awake(self, token: Token, name: str) -> None:
        """Remember that the sprite has just answered from inside, so it runs."""
        self._sprite_book(self._book(token), name).awake_at = self._clock.monotonic()

    async def enter(self, token: Token, priority: Priority) -> None:
        """
        Wait for a call's turn in the token's budget.

        Raises:
            Throttled: The API asked for a pause that is not over; nothing was sent.
        """
        await self._enter(self._book(token), priority)

    @staticmethod
    async def _enter(book: _TokenBook, priority: Priority) -> None:
        try:
            await book.limiter.enter(priority)
        except Paused as paused:
            raise Throttled(str(paused), retry_after=paused.left) from None

    def slow_down(self, token: Token, error: SpritesError) -> None:
        """Keep to what a 429 asked for."""
        if isinstance(error, Throttled) and error.retry_after is not None:
            self._book(token).limiter.pause(error.retry_after)

    def kill_slot(self, token: Token, name: str) -> asyncio.Semaphore:
        """Give the two places for kills in flight on one sprite."""
        return self._sprite_book(self._book(token), name).kills

    async def refresh(self, in_use: Set[str]) -> Refreshed:
        """
        Read the metadata of every token in use, and forget the others: a rotated token is not asked for ever.

        Args:
            in_use: The fingerprints of the tokens by which objects are looked at.
        """
        now = self._clock.monotonic()
        for fingerprint, book in tuple(self._tokens.items()):
            if fingerprint not in in_use and now - book.used_at > FORGET_AFTER:
                del self._tokens[fingerprint]
        refused, recovered = set(), set()

        async def read(fingerprint: str, book: _TokenBook) -> None:
            look = await book.listings.get(now, partial(self._list_sprites, book))
            if not isinstance(look, LookFailed):
                if book.is_troubled:
                    recovered.add(fingerprint)
                book.is_troubled = False
            elif look.failure is Failure.UNAUTHORIZED:
                refused.add(fingerprint)

        # At the same time: a token whose calls time out must not keep the others waiting.
        async with asyncio.TaskGroup() as group:
            for fingerprint, book in self._tokens.items():
                group.create_task(read(fingerprint, book))
        return Refreshed(frozenset(refused), frozenset(recovered))

    def _book(self, token: Token) -> _TokenBook:
        book = self._tokens.get(token.fingerprint)
        if book is None:
            book = _TokenBook(token, Limiter(self._clock, per_second=self._per_second), _Shared(self._clock))
            self._tokens[token.fingerprint] = book
        book.used_at = self._clock.monotonic()
        return book

    def _sprite_book(self, book: _TokenBook, name: str) -> _SpriteBook:
        sprite = book.sprites.get(name)
        if sprite is None:
            sprite = book.sprites[name] = _SpriteBook(_Shared(self._clock), _Shared(self._clock))
        return sprite

    async def _list_sprites(self, book: _TokenBook) -> tuple[timedelta, _Listing | LookFailed]:
        started = self._clock.monotonic()
        try:
            await self._enter(book, Priority.NORMAL)
            started = self._clock.monotonic()
            sprites = await self._client.list_sprites(book.token, cause=Cause.METADATA)
        except SpritesError as error:
            book.is_troubled = True
            return started, self._fail(book, error, started)
        listing = _Listing({sprite.name: sprite for sprite in sprites}, started, self._clock.now())
        former, book.listing = book.listing, listing
        book.seen.update(sprite.id for sprite in sprites)
        self._note_missing(book, former, listing)
        self._tell_changes(former, listing)
        return started, listing

    def _fail(self, book: _TokenBook, error: SpritesError, started: timedelta) -> LookFailed:
        self.slow_down(book.token, error)
        return LookFailed(error.failure, error.message, started, error.retry_after)

    @staticmethod
    def _note_missing(book: _TokenBook, former: _Listing | None, listing: _Listing) -> None:
        present = {sprite.id for sprite in listing.sprites.values()}
        for id_ in present & book.missing.keys():
            del book.missing[id_]
        for sprite in () if former is None else former.sprites.values():
            if sprite.id not in present:
                book.missing.setdefault(sprite.id, listing.started)

    def _tell_changes(self, former: _Listing | None, listing: _Listing) -> None:
        if former is None:
            return
        for name, sprite in listing.sprites.items():
            if sprite != former.sprites.get(name) or sprite.state.value == "cold":
                self._on_change(name)
        for name in former.sprites.keys() - listing.sprites.keys():
            self._on_change(name)

    async def _get_sprite(self, book: _TokenBook, name: str) -> tuple[timedelta, SpriteLook]:
        started = self._clock.monotonic()
        try:
            await self._enter(book, Priority.NORMAL)
            started = self._clock.monotonic()
            sprite = await self._client.get_sprite(book.token, name, cause=Cause.METADATA)
        except NotFound:
            return started, SpriteAway(started, self._clock.now(), confirmed=False)
        except SpritesError as error:
            return started, self._fail(book, error, started)
        return started, SpriteSeen(sprite, started, self._clock.now())

    def _judge_sprite(
        self, book: _TokenBook, listing: _Listing, wanted_id: str | None, sprite: Sprite | None
    ) -> SpriteLook:
        """Tell a sprite that is there from one that is away, and how sure the latter is."""
        if sprite is not None and wanted_id in (None, sprite.id):
            awake_at = self._sprite_book(book, sprite.name).awake_at
            if awake_at is not None and awake_at >= listing.started:
                sprite = replace(sprite, state=SpriteState.RUNNING)
            return SpriteSeen(sprite, listing.started, listing.read_time)
        confirmed = False
        if wanted_id is not None and all(other.id != wanted_id for other in listing.sprites.values()):
            first = book.missing.setdefault(wanted_id, listing.started)
            confirmed = listing.started - first >= AWAY_IS_SURE_AFTER
        return SpriteAway(listing.started, listing.read_time, confirmed=confirmed, successor=sprite)

    async def _list_sessions(
        self, book: _TokenBook, sprite: _SpriteBook, name: str, cause: Cause
    ) -> tuple[timedelta, SessionsLook]:
        started = self._clock.monotonic()
        try:
            await self._enter(book, Priority.PROOF if cause in _URGENT else Priority.NORMAL)
            started = self._clock.monotonic()
            sprite.last_wake_time = self._clock.now()
            sessions = await self._client.list_sessions(book.token, name, cause=cause)
        except SpritesError as error:
            return started, self._fail(book, error, started)
        sprite.sessions = Listed(sessions, started)
        sprite.awake_at = self._clock.monotonic()
        return started, sprite.sessions

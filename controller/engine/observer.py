"""
What we know of sprites and their sessions, looked up once for all who ask.

Problem: a hundred terminals on one sprite must not ask a hundred times, and an answer that was on its way before a
question arose does not answer it. Promise: one call at a time per question; who asks while it runs shares it if it
started late enough, and else shares the next one. Metadata is read per token (pages of 50, which never wake a sprite),
session lists per sprite. A failed look answers those who asked and spoils nothing that was known. While a token's
breaker is open nothing is asked but the list of sprites, every 30 s, and one sprite that this list puts on trial; one
that shows nothing we know is forgotten.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from controller.api.session import Cause, Sprite, SpriteState
from controller.clock import Clock
from controller.engine.limits import Limiter, Paused, Priority
from controller.engine.shared import FAILURE_AGE, Shared
from controller.errors import Failure
from controller.plan.breaker import (
    PROBE_INTERVAL,
    REFUSALS,
    Breaker,
    describe_incident,
    is_on_trial,
    judge_for,
    may_call,
    note_answer,
    note_call,
    note_listing,
    note_unlisted,
    probe_in,
    was_closed_since,
)
from controller.plan.kill import WAKES_NOBODY
from controller.plan.looks import NOT_LOOKED, Listed, LookFailed, SessionsLook, SpriteAway, SpriteLook, SpriteSeen
from controller.plan.resting import is_paused
from controller.sprites.client import SpritesClient
from controller.sprites.errors import Incident, NotFound, SpritesError, Throttled
from controller.sprites.token import Token

log = logging.getLogger(__name__)

AWAY_IS_SURE_AFTER: Final = timedelta(seconds=60)
"""A sprite's id must be missing from two complete listings that lie this far apart."""

FORGET_AFTER: Final = timedelta(minutes=10)
"""What is known by a token that no object uses any more is kept this long, for objects that are between two visits."""

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


@dataclass(slots=True)
class _SpriteBook:
    """One sprite of one token."""

    lists: Shared[SessionsLook]
    alone: Shared[SpriteLook]
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
    listings: Shared[_Listing | LookFailed]
    used_at: timedelta = timedelta(0)
    listing: _Listing | None = None
    sprites: dict[str, _SpriteBook] = field(default_factory=dict)
    is_troubled: bool = False
    """Its metadata could not be read at some time since the last refresh that worked."""
    is_unlisted: bool = False
    """Its last list failed, and that was told."""
    seen: set[str] = field(default_factory=set)
    """The id of every sprite that it ever showed."""
    missing: dict[str, timedelta] = field(default_factory=dict)
    """Sprite id → start of the first complete listing that lacked it."""
    breaker: Breaker = field(default_factory=Breaker)
    listed: set[str] = field(default_factory=set)
    """The name of every sprite that it showed, but for those that have been absent for long."""
    absent: dict[str, timedelta] = field(default_factory=dict)
    """Name → start of the first believed listing that lacked it, of all that are known."""
    asked: timedelta | None = None
    """When the last list of sprites was asked for."""


class SpriteObserver:
    """
    The one place that asks the Sprites API about the present.

    Args:
        client: The Sprites API.
        clock: Both clocks.
        per_second: The budget of calls per token.
        on_change: Told the sprite's name whenever its state or id was seen to change, or while it is seen cold.
        find_stakes: Names the sprites in which objects that use a token (its fingerprint) have something to lose.
        on_breaker: Told the fingerprint of a token whose breaker has opened or closed, or has sprites on trial.
        on_wake: Told the cause of each call that found a sprite paused and got through to it.
        on_wait: Told for how long each call has waited for its turn in the budget.
    """

    def __init__(
        self,
        client: SpritesClient,
        clock: Clock,
        *,
        per_second: float,
        on_change: Callable[[str], None],
        find_stakes: Callable[[str], Collection[str]] = lambda _: (),
        on_breaker: Callable[[str], None] = lambda _: None,
        on_wake: Callable[[Cause], None] = lambda _: None,
        on_wait: Callable[[timedelta], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._per_second = per_second
        self._on_change = on_change
        self._find_stakes = find_stakes
        self._on_breaker = on_breaker
        self._on_wake = on_wake
        self._on_wait = on_wait
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
        if self.breaker(token, name).is_open:
            return self._refuse_look(book)
        answer = await book.listings.get(since, lambda: self._list_sprites(book))
        if self.breaker(token, name).is_open:
            # It has opened while this was on its way.
            return self._refuse_look(book)
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
        """Give what the last listing said, without asking anybody; nothing while nothing is believed."""
        book = self._book(token)
        listing = book.listing
        if self.breaker(token, name).is_open or listing is None:
            return NOT_LOOKED
        if name not in listing.sprites:
            return self._recall_newcomer(book, listing, name, wanted_id)
        return self._judge_sprite(book, listing, wanted_id, listing.sprites[name])

    def _recall_newcomer(self, book: _TokenBook, listing: _Listing, name: str, wanted_id: str | None) -> SpriteLook:
        """Give what was read of a sprite by its name since that listing: one that is younger stands in no list yet."""
        sprite = self._sprite_book(book, name)
        look = sprite.alone.last
        if not isinstance(look, SpriteSeen) or look.started < listing.started:
            return NOT_LOOKED
        if wanted_id not in (None, look.sprite.id):
            return NOT_LOOKED
        if sprite.awake_at is not None and sprite.awake_at >= look.started:
            return replace(look, sprite=replace(look.sprite, state=SpriteState.RUNNING))
        return look

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

    def note_wake(self, token: Token, name: str, cause: Cause) -> None:
        """Remember, and count, a call that could have woken the sprite."""
        book = self._book(token)
        self._sprite_book(book, name).last_wake_time = self._clock.now()
        if self._is_paused(book, name):
            self._on_wake(cause)

    def _is_paused(self, book: _TokenBook, name: str) -> bool:
        listing = book.listing
        if listing is None or name not in listing.sprites:
            return False
        return is_paused(self._judge_sprite(book, listing, None, listing.sprites[name]))

    def note_awake(self, token: Token, name: str) -> None:
        """Remember that the sprite has just answered from inside, so it runs."""
        book = self._book(token)
        self._sprite_book(book, name).awake_at = self._clock.monotonic()
        self._note_answer(book, name, None)

    @contextlib.asynccontextmanager
    async def calling(self, token: Token, name: str, *, priority: Priority, cause: Cause) -> AsyncIterator[timedelta]:
        """
        Frame one call into a sprite: wait for its turn, count what it may wake, and weigh its failure.

        That it succeeded says nothing yet: whoever has heard from inside tells it by `note_awake`.

        Yields:
            When the call starts, monotonic.

        Raises:
            SpritesError: The call's own, after it was weighed; or, with nothing sent, what `enter` raises.
            Incident: Also where the call was the one on trial, and was refused.
        """
        book = self._book(token)
        try:
            await self._enter(book, priority, name)
            self.note_wake(token, name, cause)
            yield self._clock.monotonic()
        except SpritesError as error:
            was_tried = is_on_trial(book.breaker, name)
            self.note_failure(token, name, error)
            if was_tried and error.failure in REFUSALS:
                # The incident goes on, and is what there is to say; a refusal would be told anew with every trial.
                raise self._describe_barred(book) from error
            raise

    async def enter(self, token: Token, priority: Priority) -> None:
        """
        Wait for a call's turn in the token's budget.

        Raises:
            Throttled: The API asked for a pause that is not over; nothing was sent.
            Incident: The platform has an incident; nothing was sent.
        """
        await self._enter(self._book(token), priority)

    async def _enter(
        self, book: _TokenBook, priority: Priority, sprite: str | None = None, *, cause: Cause | None = None
    ) -> None:
        """Wait for a turn; whoever waited is told of an incident that has begun meanwhile."""
        self._demand_closed(book, sprite, cause)
        begun = self._clock.monotonic()
        try:
            await book.limiter.enter(priority)
        except Paused as paused:
            raise Throttled(str(paused), retry_after=paused.left) from None
        self._on_wait(self._clock.monotonic() - begun)
        self._demand_closed(book, sprite, cause)
        if sprite is not None:
            book.breaker = note_call(book.breaker, sprite)

    def _demand_closed(self, book: _TokenBook, sprite: str | None, cause: Cause | None) -> None:
        if not may_call(book.breaker, cause, sprite):
            raise self._describe_barred(book)

    def _describe_barred(self, book: _TokenBook) -> Incident:
        return Incident(describe_incident(book.breaker), retry_after=self._find_probe(book))

    def note_failure(self, token: Token, name: str, error: SpritesError) -> None:
        """Weigh a call about one sprite that failed: keep to what a 429 asked for, and count refusals."""
        book = self._book(token)
        self._slow_down(book, error)
        self._note_answer(book, name, error.failure)

    def note_refusal(self, token: Token, name: str) -> None:
        """Count a 404 that contradicts what the platform itself has just said."""
        self._note_answer(self._book(token), name, Failure.NOT_FOUND)

    @staticmethod
    def _slow_down(book: _TokenBook, error: SpritesError) -> None:
        if isinstance(error, Throttled) and error.retry_after is not None:
            book.limiter.pause(error.retry_after)

    # --- the breaker --------------------------------------------------------------------------------------------------

    def breaker(self, token: Token, sprite: str | None = None) -> Breaker:
        """Tell what the answers to a token come to; for the one sprite that is asked on trial it is closed."""
        breaker = self._book(token).breaker
        return breaker if sprite is None else judge_for(breaker, sprite)

    def count_open(self) -> int:
        """Count the tokens whose platform has an incident."""
        return sum(book.breaker.is_open for book in self._tokens.values())

    def _note_answer(self, book: _TokenBook, name: str, failure: Failure | None) -> None:
        known = self._find_known(book) if failure in REFUSALS else ()
        self._set_breaker(book, note_answer(book.breaker, name, failure, known=known, now=self._clock.monotonic()))

    def _set_breaker(self, book: _TokenBook, breaker: Breaker) -> None:
        former, book.breaker = book.breaker, breaker
        was_open = former.is_open
        book.is_troubled = book.is_troubled or breaker.is_open
        if breaker.is_open and not was_open:
            log.warning(describe_incident(breaker), extra={"sprites": len(breaker.refused)})
        elif was_open and not breaker.is_open:
            log.info("The incident of the Sprites API is over; what waited goes on.")
        if was_open is not breaker.is_open or former.on_trial < breaker.on_trial:
            self._on_breaker(book.token.fingerprint)

    def _find_known(self, book: _TokenBook) -> frozenset[str]:
        """
        Name the sprites that count for the breaker.

        One that believed listings have lacked for a minute is gone, so its refusals are the truth.
        """
        until = self._clock.monotonic() if book.listing is None else book.listing.started
        gone = {name for name, first in book.absent.items() if until - first >= AWAY_IS_SURE_AFTER}
        return frozenset(book.listed.union(self._find_stakes(book.token.fingerprint)) - gone)

    def _weigh_listing(self, book: _TokenBook, names: Set[str], started: timedelta) -> bool:
        """Let a complete listing open or close the breaker, and tell whether it is believed."""
        stakes = self._find_stakes(book.token.fingerprint)
        known = self._find_known(book) if stakes else ()
        self._set_breaker(book, note_listing(book.breaker, names, known=known, now=self._clock.monotonic()))
        if book.breaker.is_open and not book.breaker.on_trial:
            return False
        if book.breaker.blind:
            # It says where these sprites are, and nothing of those that we know.
            return True
        for name in (book.listed | set(stakes)) - names:
            book.absent.setdefault(name, started)
        book.listed |= names
        for name, first in tuple(book.absent.items()):
            long_gone = started - first >= AWAY_IS_SURE_AFTER
            if long_gone:
                book.listed.discard(name)
            if name in names or (long_gone and name not in stakes):
                del book.absent[name]
        return True

    def _refuse_all(self, book: _TokenBook) -> None:
        """Take a 404 for the list, which always exists, as one for every sprite in which something can be lost."""
        known = self._find_known(book) if self._find_stakes(book.token.fingerprint) else ()
        self._set_breaker(book, note_unlisted(book.breaker, known=known, now=self._clock.monotonic()))

    def _find_probe(self, book: _TokenBook) -> timedelta:
        """Give the time until the next list while the breaker is open, and at least a second."""
        left = probe_in(book.breaker, book.asked, now=self._clock.monotonic())
        return max(FAILURE_AGE, PROBE_INTERVAL if left is None else left)

    def _refuse_look(self, book: _TokenBook) -> LookFailed:
        text = describe_incident(book.breaker)
        return LookFailed(Failure.API_INCIDENT, text, self._clock.monotonic(), self._find_probe(book))

    def kill_slot(self, token: Token, name: str) -> asyncio.Semaphore:
        """Give the two places for kills in flight on one sprite."""
        return self._sprite_book(self._book(token), name).kills

    async def refresh(self, in_use: Set[str], *, only_open: bool = False) -> Refreshed:
        """
        Read the metadata of every token in use, and forget the others: a rotated token is not asked for ever.

        One that nobody uses and that is refused is not asked at all: whoever replaced it did all well, and an alert
        would say otherwise. A token whose breaker is open is asked no sooner than its probe is due.

        Args:
            in_use: The fingerprints of the tokens by which objects are looked at.
            only_open: Ask only for those whose breaker is open.
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
                if book.is_troubled and fingerprint not in in_use:
                    continue
                left = probe_in(book.breaker, book.asked, now=now)
                if only_open if left is None else left > timedelta(0):
                    continue
                group.create_task(read(fingerprint, book))
        return Refreshed(frozenset(refused), frozenset(recovered))

    def _book(self, token: Token) -> _TokenBook:
        book = self._tokens.get(token.fingerprint)
        if book is None:
            book = _TokenBook(token, Limiter(self._clock, per_second=self._per_second), Shared(self._clock))
            self._tokens[token.fingerprint] = book
        book.used_at = self._clock.monotonic()
        return book

    def _sprite_book(self, book: _TokenBook, name: str) -> _SpriteBook:
        sprite = book.sprites.get(name)
        if sprite is None:
            sprite = book.sprites[name] = _SpriteBook(Shared(self._clock), Shared(self._clock))
        return sprite

    async def _list_sprites(self, book: _TokenBook) -> tuple[timedelta, _Listing | LookFailed]:
        started = self._clock.monotonic()
        try:
            await self._enter(book, Priority.NORMAL, cause=Cause.METADATA)
            started = book.asked = self._clock.monotonic()
            sprites = await self._client.list_sprites(book.token, cause=Cause.METADATA)
        except SpritesError as error:
            self._note_unlisted(book, error)
            self._slow_down(book, error)
            if error.failure is Failure.NOT_FOUND:
                self._refuse_all(book)
            return started, _describe_failure(error, started)
        if book.is_unlisted:
            book.is_unlisted = False
            log.info("The sprites of a token are listed again.", extra={"token": book.token.fingerprint})
        listing = _Listing({sprite.name: sprite for sprite in sprites}, started, self._clock.now())
        if not self._weigh_listing(book, listing.sprites.keys(), started):
            return started, self._refuse_look(book)
        former, book.listing = book.listing, listing
        book.seen.update(sprite.id for sprite in sprites)
        self._note_missing(book, former, listing)
        self._tell_changes(former, listing)
        return started, listing

    @staticmethod
    def _note_unlisted(book: _TokenBook, error: SpritesError) -> None:
        """Tell once of a list that fails: whatever waits for it says so itself, and this says that they are one."""
        book.is_troubled = True
        if book.is_unlisted:
            return
        book.is_unlisted = True
        log.warning(
            "The sprites of a token cannot be listed; what is to be done in them waits, and it is tried again.",
            extra={"token": book.token.fingerprint, "fault": error.message},
        )

    def _fail(self, book: _TokenBook, name: str, error: SpritesError, started: timedelta) -> LookFailed:
        was_tried = is_on_trial(book.breaker, name)
        self._slow_down(book, error)
        self._note_answer(book, name, error.failure)
        if was_tried and error.failure in REFUSALS:
            return self._refuse_look(book)
        return _describe_failure(error, started)

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
            await self._enter(book, Priority.NORMAL, name)
            started = self._clock.monotonic()
            sprite = await self._client.get_sprite(book.token, name, cause=Cause.METADATA)
        except NotFound as error:
            self._note_answer(book, name, error.failure)
            if book.breaker.is_open:
                return started, self._refuse_look(book)
            return started, SpriteAway(started, self._clock.now(), confirmed=False)
        except SpritesError as error:
            return started, self._fail(book, name, error, started)
        self._note_answer(book, name, None)
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
            first = max(book.missing.setdefault(wanted_id, listing.started), book.breaker.closed_since)
            confirmed = listing.started - first >= AWAY_IS_SURE_AFTER and was_closed_since(book.breaker, first)
        return SpriteAway(
            listing.started, listing.read_time, confirmed=confirmed, successor=sprite, blind=book.breaker.blind
        )

    async def _list_sessions(
        self, book: _TokenBook, sprite: _SpriteBook, name: str, cause: Cause
    ) -> tuple[timedelta, SessionsLook]:
        started, was_paused = self._clock.monotonic(), False
        try:
            await self._enter(book, Priority.PROOF if cause in _URGENT else Priority.NORMAL, name)
            started = self._clock.monotonic()
            sprite.last_wake_time = self._clock.now()
            was_paused = self._is_paused(book, name)
            sessions = await self._client.list_sessions(book.token, name, cause=cause)
        except SpritesError as error:
            if was_paused and error.failure not in WAKES_NOBODY:
                self._on_wake(cause)
            return started, self._fail(book, name, error, started)
        if was_paused:
            self._on_wake(cause)
        self._note_answer(book, name, None)
        sprite.sessions = Listed(sessions, started)
        sprite.awake_at = self._clock.monotonic()
        return started, sprite.sessions


def _describe_failure(error: SpritesError, started: timedelta) -> LookFailed:
    return LookFailed(error.failure, error.message, started, error.retry_after)

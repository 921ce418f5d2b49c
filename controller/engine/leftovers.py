"""
The search for what kills left behind: one command per sprite, for all who wait for one.

Problem: a thousand objects that are deleted at once must not cost a thousand commands, and a deleted object has no
status in which its leftovers could be told. Promise: who has a status to write shares a look that started late enough;
what was deleted is searched for once the deletions in its sprite have come to rest, all of it by one command (and by a
second one, where something was found), and told by an Event about the object that is gone. No search wakes a sprite.

What was deleted is remembered in this process only: an operator that ends in these few seconds reports nothing of it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from controller.api.session import Cause
from controller.api.terminal import LeftoversStatus
from controller.clock import Clock
from controller.engine.launcher import Place
from controller.engine.limits import Priority
from controller.engine.observer import SpriteObserver
from controller.engine.shared import Shared
from controller.errors import Failure
from controller.kube.events import ObjectRef
from controller.plan.leftovers import (
    NOT_KNOWN,
    AskProcesses,
    Mark,
    ProcessesLook,
    ProcessesSeen,
    plan_search,
    read_processes,
    render_search_command,
)
from controller.plan.looks import NOT_LOOKED, LookFailed
from controller.plan.resting import is_paused
from controller.sprites.client import SpritesClient
from controller.sprites.errors import SpritesError
from controller.tenure import Tenure

SEARCH_LIMIT: Final = timedelta(seconds=5)
"""The proof of a death waits no longer than this for a search."""
OUTPUT_BYTES: Final = 256 * 1024
"""Some two thousand processes."""
QUIET: Final = timedelta(seconds=5)
"""Deletions in one sprite that follow each other this closely are searched for together."""
QUIET_LIMIT: Final = timedelta(seconds=20)
"""And no later than this after the first: a sprite pauses about 30 s after its last session (sprites-api.md 8)."""
OWED_LIMIT: Final = 10_000
"""So many deleted objects wait for a search; more than that is counted as not known."""
LOOK_ROUND: Final = timedelta(milliseconds=500)
"""How often it is asked which sprites have come to rest, while any has something owed."""
KEEP: Final = timedelta(minutes=1)
"""How long a look is kept for those who may share it."""


@dataclass(frozen=True, slots=True)
class Owed:
    """A deleted object whose session's leftovers are still to be searched for."""

    ref: ObjectRef
    mark: Mark


@dataclass(slots=True)
class _SpriteBook:
    looks: Shared[ProcessesLook]
    last: ProcessesLook = NOT_LOOKED
    used_at: timedelta = timedelta(0)
    owed: list[Owed] = field(default_factory=list)
    owed_first: timedelta = timedelta(0)
    owed_last: timedelta = timedelta(0)

    @property
    def due(self) -> timedelta:
        return min(self.owed_last + QUIET, self.owed_first + QUIET_LIMIT)


class LeftoverSearch:
    """
    Looks at the processes of sprites after kills.

    Args:
        client: The Sprites API.
        observer: Knows whether a sprite runs, and keeps the budget of calls.
        clock: Both clocks.
        tenure: Permits the commands.
        on_found: Told of a deleted object, and of what was found of its session.
        owed_limit: How many deleted objects may wait.
    """

    def __init__(
        self,
        client: SpritesClient,
        observer: SpriteObserver,
        clock: Clock,
        tenure: Tenure,
        *,
        on_found: Callable[[ObjectRef, LeftoversStatus], None],
        owed_limit: int = OWED_LIMIT,
    ) -> None:
        self._client = client
        self._observer = observer
        self._clock = clock
        self._tenure = tenure
        self._on_found = on_found
        self._owed_limit = owed_limit
        self._books: dict[Place, _SpriteBook] = {}
        self._woken = asyncio.Event()
        self._count = 0

    async def look(self, place: Place, since: timedelta) -> ProcessesLook:
        """Look at all processes of a sprite, by a command that started at `since` or later."""
        book = self._book(place)
        book.last = await book.looks.get(since, lambda: self._search(place))
        return book.last

    def recall(self, place: Place) -> ProcessesLook:
        """Give the last look, without asking anybody."""
        book = self._books.get(place)
        return NOT_LOOKED if book is None else book.last

    def owe(self, place: Place, owed: Owed) -> None:
        """Take in a deleted object, to be searched for once its sprite has come to rest."""
        if self._count >= self._owed_limit:
            self._on_found(owed.ref, NOT_KNOWN)
            return
        book = self._book(place)
        now = self._clock.monotonic()
        if not book.owed:
            book.owed_first = now
        book.owed_last = now
        book.owed.append(owed)
        self._count += 1
        self._woken.set()

    async def run(self) -> None:
        """Search for what is owed, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await self._woken.wait()
                self._woken.clear()
                while waiting := {place: book for place, book in self._books.items() if book.owed}:
                    now = self._clock.monotonic()
                    for place, book in waiting.items():
                        if book.due <= now:
                            owed, book.owed = book.owed, []
                            self._count -= len(owed)
                            group.create_task(self._settle(place, owed, since=book.owed_last))
                    await self._clock.sleep(LOOK_ROUND)

    async def _settle(self, place: Place, owed: list[Owed], *, since: timedelta) -> None:
        """Tell of each what is left; a second look is only for what the first has found."""
        look = await self._look_awake(place, since)
        again: list[tuple[Owed, timedelta | None]] = []
        question = since
        for one in owed:
            found_at, step = plan_search(one.mark, look, None, since=since)
            if isinstance(step, AskProcesses):
                question = step.since
                again.append((one, found_at))
            else:
                self._on_found(one.ref, step)
        if not again:
            return
        await self._clock.sleep(max(timedelta(0), question - self._clock.monotonic()))
        look = await self._look_awake(place, question)
        for one, found_at in again:
            _, step = plan_search(one.mark, look, found_at, since=since)
            self._on_found(one.ref, NOT_KNOWN if isinstance(step, AskProcesses) else step)

    async def _look_awake(self, place: Place, since: timedelta) -> ProcessesLook:
        """Look, unless that would wake the sprite."""
        if is_paused(self._observer.recall_sprite(place.token, place.sprite, wanted_id=None)):
            return LookFailed(Failure.UNREACHABLE, "The sprite is paused, and is not woken for this.", since)
        return await self.look(place, since)

    def _book(self, place: Place) -> _SpriteBook:
        now = self._clock.monotonic()
        book = self._books.get(place)
        if book is None:
            for other, old in tuple(self._books.items()):
                if not old.owed and now - old.used_at > KEEP:
                    del self._books[other]
            book = self._books[place] = _SpriteBook(Shared(self._clock))
        book.used_at = now
        return book

    async def _search(self, place: Place) -> tuple[timedelta, ProcessesLook]:
        started = self._clock.monotonic()
        try:
            async with self._observer.calling(
                place.token, place.sprite, priority=Priority.PROOF, cause=Cause.LEFTOVERS
            ) as started:
                result = await self._client.run_command(
                    place.token,
                    place.sprite,
                    render_search_command(),
                    stdin=b"",
                    tenure=self._tenure,
                    cause=Cause.LEFTOVERS,
                    time_limit=SEARCH_LIMIT,
                    output_bytes=OUTPUT_BYTES,
                )
        except SpritesError as error:
            return started, LookFailed(error.failure, error.message, started, error.retry_after)
        self._observer.note_awake(place.token, place.sprite)
        processes = read_processes(result.stdout.decode("utf-8", "replace")) if result.exit_code == 0 else None
        if processes is None:
            text = f"Looking at the processes of sprite {place.sprite} did not come to its end."
            return started, LookFailed(Failure.MALFORMED, text, started)
        return started, ProcessesSeen(processes, started)

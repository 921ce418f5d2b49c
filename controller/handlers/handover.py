"""
From kopf's thread to the main loop.

Problem: kopf sees ten thousand objects within seconds in a thread of its own; a wake-up of the main loop for each
would flood it, and a main loop that is busy must not make a queue grow without end. Promise: words wait one per uid,
the newest replaces the one before; one wake-up carries many; they come in portions, between which the loop breathes.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from controller.engine.registry import Gone, Snapshot

log = logging.getLogger(__name__)

PORTION: Final = 128
"""Words delivered in one turn of the loop: about 2 ms of registry and queue."""

Word = Snapshot | Gone


class Handover:
    """
    Deliver words about objects on a loop, from whatever thread they come.

    Args:
        loop: Where `deliver` is called.
        deliver: Takes one word; what it raises is logged and counted, and the next word is delivered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[Word], None]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._lock = threading.Lock()
        self._words: dict[str, Word] = {}
        self._marks: list[Callable[[], None]] = []
        self._awake = False
        self._portion: deque[Word] = deque()
        self._reached: deque[Callable[[], None]] = deque()
        self.delivered = 0
        self.wakes = 0
        self.errors = 0

    def put(self, word: Word) -> None:
        """Hand over a word, from any thread. Words about one uid must come in their order."""
        with self._lock:
            self._words[word.uid] = word
            self._wake()

    def mark(self, call: Callable[[], None]) -> None:
        """Call on the loop, once, after everything that was handed over before; from any thread."""
        with self._lock:
            self._marks.append(call)
            self._wake()

    def _wake(self) -> None:
        if not self._awake:
            self._awake = True
            self.wakes += 1
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        """Deliver one portion; come again while anything is left."""
        if not self._portion and not self._reached:
            with self._lock:
                self._portion.extend(self._words.values())
                self._words.clear()
                self._reached.extend(self._marks)
                self._marks.clear()
        for _ in range(min(PORTION, len(self._portion))):
            word = self._portion.popleft()
            try:
                self._deliver(word)
            except Exception:  # One word that cannot be taken must not cost all the others.
                self.errors += 1
                log.exception("A word about an object was not taken.", extra={"uid": word.uid})
            self.delivered += 1
        if not self._portion:
            while self._reached:
                self._reached.popleft()()
        with self._lock:
            self._awake = bool(self._portion or self._words or self._marks)
            if self._awake:
                self._loop.call_soon(self._turn)

"""
A list and then a watch of AgentTerminals, for as long as the process lives.

Problem: a watch breaks, its version expires, and between two watches things happen that nobody tells. Promise: it goes
on from the last version it saw, bookmarks included; only a version that has expired leads to a new list, after which
whoever is not in it is gone; a failure waits a little and never ends the watch; a named namespace that may not be read
is not waited for without end, unless it is the only one. What it tells may be late: nobody may take it for proof that
nothing has happened.

Source: Kubernetes API concepts, "Efficient detection of changes" (read 2026-11).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from controller.clock import Clock
from controller.kube.client import JsonObject, Page
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import Forbidden, Gone, KubeError

log: Final = logging.getLogger(__name__)

SHORTEST_PAUSE: Final = timedelta(milliseconds=200)
LONGEST_PAUSE: Final = timedelta(seconds=5)
"""After a failure it waits so long, twice as long after each further one."""
PATIENCE: Final = timedelta(seconds=60)
"""So long the first list waits for a namespace that may not be read: a right that was given just now arrives sooner."""
TOLD_AGAIN_AFTER: Final = timedelta(minutes=10)
"""That a namespace may not be read is told at once, and so long after as long as it lasts."""


class WatchingKube(Protocol):
    """The calls that it makes: `controller.kube.client.KubeClient`."""

    def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None = None) -> AsyncIterator[Page]:
        """List AgentTerminals page by page."""

    def watch(self, *, namespace: str | None, resource_version: str) -> AsyncIterator[JsonObject]:
        """Follow AgentTerminals from a version on."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An object as it was at some moment not long ago."""

    raw: JsonObject


@dataclass(frozen=True, slots=True)
class Removed:
    """An object was removed; this is what it was last."""

    raw: JsonObject


@dataclass(frozen=True, slots=True)
class Relisted:
    """Every object of a namespace (None: of all) was seen anew; whose uid is not among these is gone."""

    namespace: str | None
    uids: frozenset[str]


Change = Seen | Removed | Relisted


def describe_unreadable(namespace: str) -> str:
    """Say that a namespace of the settings may not be read, and what to do; the answer names no cause."""
    return (
        f"AGENTTERMINAL_NAMESPACES names the namespace {namespace}, which may not be read: there is no such namespace, "
        "or this process has no rights in it. Its terminals are not looked after; it is asked again. Give the rights "
        "there (the chart does for each of its `namespaces`), or take it out of the setting."
    )


class Watch:
    """
    One watch.

    Args:
        kube: Whom it asks.
        namespaces: Which; None is all of them.
        on_change: Told of everything, in order for each object; it must not wait and not raise.
        clock: For pauses.
    """

    def __init__(
        self, kube: WatchingKube, namespaces: Sequence[str] | None, on_change: Callable[[Change], None], clock: Clock
    ) -> None:
        self._kube = kube
        self._namespaces = namespaces
        self._on_change = on_change
        self._clock = clock
        self._heard = dict.fromkeys(namespaces or (None,), clock.monotonic())
        self._unlisted = set(self._heard)
        self._told: dict[str, timedelta] = {}
        self._refused: dict[str, timedelta] = {}
        """Since when a namespace may not be read."""
        self.listed = asyncio.Event()
        """Every object was seen once, as far as it may be."""

    @property
    def silence(self) -> timedelta:
        """How long nothing was heard, bookmarks included, of the namespace where it is longest."""
        return self._clock.monotonic() - min(self._heard.values())

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for namespace in self._namespaces or (None,):
                group.create_task(self._run(namespace))

    async def _run(self, namespace: str | None) -> None:
        version: str | None = None
        pause = SHORTEST_PAUSE
        while True:
            try:
                if version is None:
                    version = await self._list(namespace)
                    self._note_listed(namespace)
                async with aclosing(self._follow(namespace, version)) as versions:
                    async for newer in versions:
                        version, pause = newer, SHORTEST_PAUSE
            except Gone:
                version = None
            except (KubeError, CredentialsUnusable) as error:
                told = error.failure.value if isinstance(error, KubeError) else type(error).__name__
                log.info("The watch was interrupted.", extra={"failure": told, "namespace": namespace})
                if isinstance(error, Forbidden):
                    self._note_refused(namespace)
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _note_listed(self, namespace: str | None) -> None:
        self._unlisted.discard(namespace)
        if namespace is not None and self._refused.pop(namespace, None) is not None:
            log.info("A namespace may be read now.", extra={"namespace": namespace})
        self._judge_listed()

    def _note_refused(self, namespace: str | None) -> None:
        if namespace is None:
            return
        now = self._clock.monotonic()
        self._refused.setdefault(namespace, now)
        told = self._told.get(namespace)
        if told is None or now - told >= TOLD_AGAIN_AFTER:
            self._told[namespace] = now
            log.warning(describe_unreadable(namespace), extra={"namespace": namespace})
        self._judge_listed()

    def _judge_listed(self) -> None:
        """Wait no longer once all was listed but what may not be read for long; something has to be there."""
        if self.listed.is_set() or len(self._unlisted) == len(self._heard):
            return
        now = self._clock.monotonic()
        missing = {namespace for namespace, since in self._refused.items() if now - since >= PATIENCE}
        if self._unlisted <= missing:
            self.listed.set()

    async def _list(self, namespace: str | None) -> str:
        uids: set[str] = set()
        version = ""
        async for page in self._kube.list_pages(
            metadata_only=False, namespaces=None if namespace is None else (namespace,)
        ):
            if page.begins:
                uids.clear()
            for raw in page.items:
                uids.add(raw["metadata"]["uid"])
                self._on_change(Seen(raw))
            version = page.resource_version
            self._heard[namespace] = self._clock.monotonic()
        self._on_change(Relisted(namespace, frozenset(uids)))
        return version

    async def _follow(self, namespace: str | None, version: str) -> AsyncGenerator[str, None]:
        async for event in self._kube.watch(namespace=namespace, resource_version=version):
            raw = event["object"]
            self._heard[namespace] = self._clock.monotonic()
            match event.get("type"):
                case "ADDED" | "MODIFIED":
                    self._on_change(Seen(raw))
                case "DELETED":
                    self._on_change(Removed(raw))
                case _:
                    pass
            yield str(raw["metadata"]["resourceVersion"])

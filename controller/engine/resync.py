"""
Hold the registry against the API server, every two minutes.

Problem: kopf compares a new list with nothing, so that a deletion in a gap of the watch stays unknown for ever, and a
quiet cluster looks like a dead watch. Promise: a paged list of metadata finds lost deletions (believed after two looks
and a consistent read), finalizers that somebody took off, and how long the watch has been behind; an API server that
does not answer is no proof of anything.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from controller.api.names import FINALIZER
from controller.clock import Clock
from controller.engine.registry import Registry
from controller.engine.settings import ResyncSettings
from controller.errors import Failure, OutsideError
from controller.plan.resync import Findings, Sight, Suspicions, judge_lag, judge_resync

log = logging.getLogger(__name__)


class Page(Protocol):
    """A part of a list."""

    @property
    def items(self) -> Sequence[Mapping[str, Any]]:
        """The objects' metadata."""

    @property
    def namespace(self) -> str | None:
        """The namespace that is listed; None is all of them."""

    @property
    def begins(self) -> bool:
        """What earlier pages said about this namespace is void."""


class Lister(Protocol):
    """What the resync asks of the Kubernetes API."""

    def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None) -> AsyncIterator[Page]:
        """List page by page, consistently."""

    async def get(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Read one object, consistently."""


class Resync:
    """
    One looker. Its callbacks are called on the loop and must not block.

    Args:
        lister: The Kubernetes API.
        registry: What we believe.
        clock: For durations and pauses.
        settings: How often, and what counts.
        namespaces: The ones that are watched; empty is all.
        on_gone: Told of an object that is proven gone and still in the registry.
        on_stripped: Told of an object that lost our finalizer.
    """

    def __init__(
        self,
        lister: Lister,
        registry: Registry,
        clock: Clock,
        settings: ResyncSettings,
        *,
        namespaces: Sequence[str],
        on_gone: Callable[[str], None],
        on_stripped: Callable[[str], None],
    ) -> None:
        self._lister = lister
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._namespaces = list(namespaces) or None
        self._on_gone = on_gone
        self._on_stripped = on_stripped
        self._suspicions = Suspicions()
        self._looked: timedelta | None = None
        self._begun: timedelta | None = None
        self.looks = 0
        """Complete looks since the start."""
        self.failures = 0
        """Looks that failed, in a row."""

    async def run(self) -> None:
        """Look, for ever. The first look comes after one interval: the pump lists at the start itself."""
        pause = self._settings.interval
        self._begun = self._clock.monotonic()
        while True:
            await self._clock.sleep(pause)
            pause = self._settings.interval
            try:
                await self.look()
            except OutsideError as error:
                self.failures += 1
                pause = min(self._settings.retry, pause)
                level = logging.WARNING if self.failures == 1 else logging.DEBUG
                log.log(level, "The objects could not be listed for comparison.", extra={"error": error.message})
            else:
                self.failures = 0

    async def look(self) -> Findings:
        """
        List once, compare, and act on what was found.

        Raises:
            OutsideError: When the list did not come to its end; nothing was concluded then.
        """
        known_before = frozenset(snapshot.uid for snapshot in self._registry)
        asked = self._clock.monotonic()
        listed = await self._list()
        findings = judge_resync(
            listed=listed,
            known_before=known_before,
            known={
                snapshot.uid: Sight(
                    snapshot.uid,
                    snapshot.namespace,
                    snapshot.name,
                    snapshot.version,
                    FINALIZER in snapshot.finalizers,
                )
                for snapshot in self._registry
            },
            buried=self._registry.buried,
            suspicions=self._suspicions,
            asked=asked,
        )
        self._suspicions = findings.suspicions
        self._looked = self._clock.monotonic()
        self.looks += 1
        for uid in findings.stripped:
            log.warning("Somebody took our finalizer off an object.", extra={"uid": uid})
            self._on_stripped(uid)
        for sight in findings.vanished:
            await self._confirm(sight)
        return findings

    @property
    def unchecked(self) -> timedelta:
        """Tell since when nothing was compared: while lists fail, nobody knows whether the watch is behind."""
        last = self._begun if self._looked is None else self._looked
        return timedelta(0) if last is None else self._clock.monotonic() - last

    @property
    def lag(self) -> timedelta:
        """
        Tell how long the registry has been behind what a list showed.

        It grows for one interval after the last look and then stands: a server that does not answer our lists does not
        feed our watch either, and a restart would not help.
        """
        if self._looked is None:
            return timedelta(0)
        behind = self._suspicions.behind
        return judge_lag(
            behind,
            versions={uid: known.version for uid in behind if (known := self._registry.get(uid)) is not None},
            buried=self._registry.buried,
            now=min(self._clock.monotonic(), self._looked + self._settings.interval),
            grace=self._settings.grace,
        )

    async def _list(self) -> dict[str, Sight]:
        passes: dict[str | None, dict[str, Sight]] = {}
        async for page in self._lister.list_pages(metadata_only=True, namespaces=self._namespaces):
            if page.begins:
                passes[page.namespace] = {}
            for item in page.items:
                sight = _sight(item["metadata"])
                passes[page.namespace][sight.uid] = sight
        return {uid: sight for listed in passes.values() for uid, sight in listed.items()}

    async def _confirm(self, sight: Sight) -> None:
        """Ask for the object itself before it is believed gone; without an answer the next look asks again."""
        try:
            answer = await self._lister.get(sight.namespace, sight.name)
        except OutsideError as error:
            if error.failure is not Failure.NOT_FOUND:
                log.warning(
                    "An object that lists do not show could not be read.",
                    extra={"namespace": sight.namespace, "terminal": sight.name, "error": error.message},
                )
                return
        else:
            if answer["metadata"]["uid"] == sight.uid:
                return
        if sight.uid in self._registry:
            log.info(
                "An object was deleted while nobody watched.",
                extra={"namespace": sight.namespace, "terminal": sight.name},
            )
            self._on_gone(sight.uid)


def _sight(metadata: Mapping[str, Any]) -> Sight:
    return Sight(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        version=int(metadata["resourceVersion"]),
        has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
    )

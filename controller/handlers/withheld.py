"""
Namespaces that are named in the settings, and that nobody may read.

Problem: a right that is given in a namespace goes with it, and the API server answers 403 from then on, whether there
is such a namespace or not. kopf repeats that for two minutes and ends: one team that leaves would take all others'
operator with it, and keep the next from starting. Promise: a refused namespace is asked for again and again, the others
go on, and after a while nothing waits for it any more. That it may not be read is said at once, since a slip in a
setting should not cost a minute, and every ten minutes as long as it lasts; and once that it may be read again.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Final

import aiohttp

from controller.api.names import PLURAL
from controller.clock import Clock
from controller.kube.watching import TOLD_AGAIN_AFTER, describe_unreadable

log = logging.getLogger(__name__)

_OF_A_NAMESPACE: Final = re.compile(rf"/namespaces/(?P<namespace>[^/]+)/{PLURAL}$")


class Withheld:
    """
    A middleware of kopf's HTTP session; it outlives each of them.

    Args:
        clock: Monotonic time.
        pause: Between a refusal and the next try.
        patience: So long after the first refusal `on_missing` is called: a right that was given just now arrives within
            a moment, and API servers that are being replaced refuse for a while.
        on_missing: Told the path of a namespace's objects that is not waited for any more, once while it lasts.
    """

    def __init__(
        self, clock: Clock, *, pause: timedelta, patience: timedelta, on_missing: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._pause = pause
        self._patience = patience
        self._on_missing = on_missing
        self._refused: dict[str, timedelta] = {}
        self._missing: set[str] = set()
        self._told: dict[str, timedelta] = {}

    def count(self) -> int:
        """Count the namespaces that may not be read now; it may be asked from any thread."""
        return len(self._refused)

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request; what is refused to a namespace ends like a connection that broke, after a pause."""
        response = await handler(request)
        path = request.url.path
        found = _OF_A_NAMESPACE.search(path)
        if found is None:
            return response
        if response.status != HTTPStatus.FORBIDDEN:
            self._note_answer(path, found["namespace"])
            return response
        response.release()
        self._note_refusal(path, found["namespace"])
        await asyncio.sleep(self._pause.total_seconds())
        # Of all errors this is one that kopf neither counts nor repeats by itself: its watch begins anew, without end.
        raise aiohttp.ClientPayloadError(f"Namespace {found['namespace']} may not be read.")

    def _note_refusal(self, path: str, namespace: str) -> None:
        now = self._clock.monotonic()
        since = self._refused.setdefault(path, now)
        told = self._told.get(path)
        if told is None or now - told >= TOLD_AGAIN_AFTER:
            self._told[path] = now
            log.warning(describe_unreadable(namespace), extra={"namespace": namespace})
        if path not in self._missing and now - since >= self._patience:
            self._missing.add(path)
            self._on_missing(path)

    def _note_answer(self, path: str, namespace: str) -> None:
        self._missing.discard(path)
        if self._refused.pop(path, None) is not None:
            self._told.pop(path, None)
            log.info("A namespace may be read now.", extra={"namespace": namespace})

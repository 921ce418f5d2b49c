"""
When what happened to which object, as a user who watches sees it.

Problem: asking again and again for a thousand objects would load the API server more than the operator does, and a
watch that is closed in a burst may cost an event. Promise: one watch, which goes on from the last version it saw, and
begins with a list when that version is forgotten.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import aiohttp
import orjson

from controller.clock import Clock
from controller.lab.bench.client import TERMINALS, ApiClient
from controller.lab.bench.errors import BenchFailed

PAGE_OBJECTS: Final = 500
AGAIN_AFTER: Final = timedelta(milliseconds=50)
GONE: Final = 410


class Follower:
    """
    What a watch has shown, by the objects' names; moments are monotonic.

    Args:
        client: The API server.
        clock: Tells the moments.
    """

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._version = ""
        self._changed = asyncio.Event()
        self.ready: dict[str, timedelta] = {}
        """When Ready was first seen True for the generation that is."""
        self.terminated: dict[str, timedelta] = {}
        """When Terminated was first seen True."""
        self.gone: dict[str, timedelta] = {}
        self.known: set[str] = set()
        """The objects that exist."""
        self.activity_writes = 0
        """How often a gateway was seen to write when a terminal was last at work."""
        self._activity: dict[str, Mapping[str, str]] = {}

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Watch during the body."""
        await self._list()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._follow(), name="follower")
            try:
                yield
            finally:
                task.cancel()

    async def wait_for(self, seen: Mapping[str, timedelta], names: frozenset[str], *, within: timedelta) -> timedelta:
        """
        Wait until every one of these objects is among those seen, and give the moment of the last.

        Args:
            seen: `ready`, `terminated` or `gone`.
            names: The objects.
            within: How long to wait.

        Raises:
            BenchFailed: It did not come about in time.
        """
        try:
            async with asyncio.timeout(within.total_seconds()):
                # The count first: it is looked at after every event, and the names are many.
                while len(seen) < len(names) or not names <= seen.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            missing = sorted(names - seen.keys())
            raise BenchFailed(
                f"After {within.total_seconds():g} s {len(missing)} of {len(names)} objects are not there yet,"
                f" {missing[0]} among them."
            ) from None
        return max(seen[name] for name in names)

    async def _follow(self) -> None:
        while True:
            try:
                async with self._client.watch(self._version) as answer:
                    if answer.status == GONE:
                        await self._list()
                    elif answer.status != 200:
                        raise BenchFailed(f"The API server answered {answer.status} to a watch.")
                    else:
                        await self._read(answer)
            except aiohttp.ClientError:
                # The server closes streams in bursts: go on from the last version.
                await self._clock.sleep(AGAIN_AFTER)

    async def _read(self, answer: aiohttp.ClientResponse) -> None:
        rest = b""
        async for chunk in answer.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            now = self._clock.monotonic()
            for line in lines:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == GONE:
                        await self._list()
                    return
                self._take(event["type"], event["object"], now)
            self._changed.set()

    def _take(self, kind: str, terminal: Mapping[str, Any], now: timedelta) -> None:
        metadata = terminal["metadata"]
        self._version = metadata["resourceVersion"]
        if kind == "BOOKMARK":
            return
        name = metadata["name"]
        if kind == "DELETED":
            self.known.discard(name)
            self._activity.pop(name, None)
            self.gone.setdefault(name, now)
            return
        self.known.add(name)
        self._count_activity(name, dict(_read_activity(terminal)))
        true = set(_read_true(terminal))
        if "Ready" in true:
            self.ready.setdefault(name, now)
        if "Terminated" in true:
            self.terminated.setdefault(name, now)

    def _count_activity(self, name: str, told: Mapping[str, str]) -> None:
        before = self._activity.get(name, {})
        self.activity_writes += sum(before.get(gateway) != moment for gateway, moment in told.items())
        self._activity[name] = told

    async def _list(self) -> None:
        """Read everything anew; what was known and is not there any more has gone."""
        now, found, token = self._clock.monotonic(), set[str](), ""
        version = ""
        while True:
            query = f"?limit={PAGE_OBJECTS}" + (f"&continue={token}" if token else "")
            page = orjson.loads(await self._client.request("GET", TERMINALS + query))
            for terminal in page["items"]:
                found.add(terminal["metadata"]["name"])
                self._take("ADDED", terminal, now)
            version = page["metadata"]["resourceVersion"]
            token = page["metadata"].get("continue", "")
            if not token:
                break
        for name in self.known - found:
            self.gone.setdefault(name, now)
        self.known, self._version = found, version
        self._changed.set()


def _read_activity(terminal: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Tell when each gateway says that a terminal was last at work."""
    for entry in terminal.get("status", {}).get("gateways", ()):
        if "activityTime" in entry:
            yield entry["incarnation"], entry["activityTime"]


def _read_true(terminal: Mapping[str, Any]) -> Iterator[str]:
    """Name the conditions that are True for the spec as it is now."""
    generation = terminal["metadata"]["generation"]
    for condition in terminal.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition.get("observedGeneration") == generation:
            yield condition["type"]

"""The eyes and the hand of the race: what was received, who has the lock, and patches as a person makes them."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any, Final, Protocol

import aiohttp
import orjson

from controller.clock import Clock
from controller.lab.bench.client import MERGE_PATCH, ApiClient
from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.race_judge import Gatherer, Received
from controller.lab.bench.race_locks import LockBook

READ_AT_ONCE: Final = 20_000
OTHER_EDIT_SECONDS: Final = 10_000
"""Of `idleTimeoutSeconds`: an edit that moves the generation, and has nothing to do with who speaks."""


class InputReader:
    """
    Reads the emulator's log of input as it grows, and lets it forget what was read.

    Args:
        http: What asks.
        sprites_url: The emulator.
        terminals: The terminals, by the sprites that they are in.
    """

    def __init__(self, http: aiohttp.ClientSession, sprites_url: str, terminals: dict[str, str]) -> None:
        self.gathered = Gatherer()
        self._http = http
        self._url = f"{sprites_url}/_lab/inputs"
        self._terminals = terminals

    async def begin(self) -> None:
        """Forget what was typed before, by whomever."""
        async with self._http.get(self._url, params={"limit": "0"}) as answer:
            self.gathered.last = orjson.loads(await answer.read())["last"]

    async def read(self) -> bool:
        """Read on once; tell whether there was anything."""
        query = {"since": str(self.gathered.last), "limit": str(READ_AT_ONCE)}
        async with self._http.get(self._url, params=query) as answer:
            found = orjson.loads(await answer.read())["inputs"]
        for entry in found:
            self.gathered.take(
                Received(
                    number=entry["number"],
                    time=datetime.fromtimestamp(entry["time"], UTC),
                    terminal=self._terminals.get(entry["sprite"], entry["sprite"]),
                    socket=entry["socket"],
                    data=base64.b64decode(entry["data_base64"]),
                )
            )
        if found:
            async with self._http.delete(self._url, params={"until": str(self.gathered.last)}) as answer:
                await answer.read()
        return bool(found)


class Pieces(Protocol):
    """The body of an answer, as it comes."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """Give what has come, piece by piece."""


class WatchAnswer(Protocol):
    """What a watch is answered: `aiohttp.ClientResponse`."""

    @property
    def status(self) -> int:
        """Whether it goes on."""

    @property
    def content(self) -> Pieces:
        """What it shows."""


class WatchedApi(Protocol):
    """Whom a watcher asks: `ApiClient`."""

    async def request(self, method: str, path: str) -> bytes:
        """Give the body of an answer."""

    def watch(self, version: str, path: str) -> AbstractAsyncContextManager[WatchAnswer]:
        """Watch from a version on."""


class Holder(Protocol):
    """Whose locks are looked for: `RacingGateway`."""

    @property
    def incarnations(self) -> Sequence[str]:
        """All processes of one place."""


class LockWatcher:
    """
    Sees every lock that is ever written, by one watch that goes on from the last version it saw.

    A watch comes late, on a busy machine above all: who was let speak may know it before their lock is seen here. So
    what is waited for has come only when a read, made after the watch showed it, shows nothing that the watch did not.

    Args:
        api: The API server, without a line between.
        path: Of the terminals.
        clock: For moments.
    """

    def __init__(self, api: WatchedApi, path: str, clock: Clock) -> None:
        self.book = LockBook()
        self._api = api
        self._path = path
        self._clock = clock
        self._version = ""
        self._seen: dict[str, int] = {}
        """The newest version of each terminal that the book knows."""
        self._changed = asyncio.Event()

    async def begin(self) -> None:
        """Take in what there is."""
        listed = await self._list()
        for terminal in listed["items"]:
            self._note(terminal)
        self._version = listed["metadata"]["resourceVersion"]

    async def run(self) -> None:
        """
        Watch, until cancelled.

        Raises:
            BenchFailed: The watch could not go on from where it was: a lock may have been missed.
        """
        while True:
            async with self._api.watch(self._version, self._path) as answer:
                if answer.status != 200:
                    raise BenchFailed(f"The API server answered {answer.status} to a watch.")
                await self._read(answer)

    async def wait_until_holding(self, gateway: Holder, terminals: Sequence[str]) -> None:
        """Wait until a gateway holds the lock of each of these."""
        await self._wait_until(
            lambda: all(self.book.find_holder(terminal) in gateway.incarnations for terminal in terminals)
        )

    async def wait_until_free(self, terminals: Sequence[str]) -> None:
        """Wait until nobody holds any of these; every lock that was written before is known then."""
        await self._wait_until(lambda: all(self.book.find_holder(terminal) is None for terminal in terminals))

    async def _wait_until(self, is_true: Callable[[], bool]) -> None:
        while True:
            while not is_true():
                await self._wait_for_change()
            await self._catch_up()
            if is_true():
                return

    async def _catch_up(self) -> None:
        """Wait until the watch has shown all that a read shows that is made now."""
        written = {
            terminal["metadata"]["name"]: int(terminal["metadata"]["resourceVersion"])
            for terminal in (await self._list())["items"]
        }
        while any(self._seen.get(name, 0) < version for name, version in written.items()):
            await self._wait_for_change()

    async def _list(self) -> Any:
        return orjson.loads(await self._api.request("GET", self._path))

    def _note(self, terminal: Mapping[str, Any]) -> None:
        self.book.note(terminal, self._clock.now())
        self._seen[terminal["metadata"]["name"]] = int(terminal["metadata"]["resourceVersion"])

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _read(self, answer: WatchAnswer) -> None:
        rest = b""
        async for piece in answer.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise BenchFailed("The watch of the locks broke off.")
                self._version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._note(event["object"])
            self._changed.set()


class Hand:
    """
    Patches terminals as people do with kubectl: nobody, somebody else, and something that does not matter here.

    Args:
        api: The API server.
        path: Of the terminals.
        terminals: Their names.
        luck: Which one is next.
    """

    def __init__(self, api: ApiClient, path: str, terminals: Sequence[str], luck: Random) -> None:
        self.revoked = self.renamed = self.edited = 0
        self._api = api
        self._path = path
        self._terminals = terminals
        self._luck = luck
        self._numbers = count()

    @property
    def has_done_all(self) -> bool:
        """Whether each kind of patch was made."""
        return min(self.revoked, self.renamed, self.edited) > 0

    async def patch(self) -> None:
        """Patch one of them."""
        number = next(self._numbers)
        match number % 3:
            case 0:
                self.revoked += 1
                spec: dict[str, Any] = {"activeSocketId": "", "attached": False}
            case 1:
                self.edited += 1
                spec = {"idleTimeoutSeconds": OTHER_EDIT_SECONDS + number}
            case _:
                self.renamed += 1
                spec = {"activeSocketId": f"bridge-{number}", "attached": True}
        name = self._luck.choice(self._terminals)
        await self._api.request("PATCH", f"{self._path}/{name}", {"spec": spec}, content_type=MERGE_PATCH)

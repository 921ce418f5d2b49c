"""The eyes of the race on a watch that comes late: nothing is over before all of it was seen."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from controller.clock import SystemClock
from controller.lab.bench.race_watching import LockWatcher

LIMIT_SECONDS = 30.0
TURNS = 50
"""Of the loop, for whoever would not wait."""


class LateApi:
    """One terminal, and a watch that shows its changes only when it is let."""

    def __init__(self) -> None:
        self.status = 200
        self.content = self
        self._version = 0
        self._told: asyncio.Queue[bytes] = asyncio.Queue()
        self._kept: list[bytes] = []
        self.write(None)
        self._kept.clear()

    def write(self, socket_id: str | None) -> None:
        """Change the lock; the watch does not show it yet."""
        self._version += 1
        lock = {"epoch": self._version, "socketId": socket_id, "incarnation": "gw", "since": "2026-11-30T12:00:00Z"}
        self._terminal = {
            "metadata": {"name": "t", "resourceVersion": str(self._version)},
            "status": {} if socket_id is None else {"socket": lock},
        }
        self._kept.append(orjson.dumps({"type": "MODIFIED", "object": self._terminal}) + b"\n")

    def show(self) -> None:
        """Let the watch show the oldest change that it has not."""
        self._told.put_nowait(self._kept.pop(0))

    async def request(self, method: str, path: str) -> bytes:
        assert (method, path) == ("GET", "/terminals")
        # Leases and the like move the version of a list as well.
        return orjson.dumps({"metadata": {"resourceVersion": "999"}, "items": [self._terminal]})

    @asynccontextmanager
    async def watch(self, version: str, path: str) -> AsyncIterator[Any]:
        assert (version, path) == ("999", "/terminals")
        yield self

    async def iter_any(self) -> AsyncIterator[bytes]:
        while True:
            yield await self._told.get()


class Place:
    """A gateway, as far as it is asked."""

    incarnations = ("gw",)


async def pass_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def watching(api: LateApi) -> AsyncIterator[LockWatcher]:
    watcher = LockWatcher(api, "/terminals", SystemClock())
    await watcher.begin()
    async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as group:
        running = group.create_task(watcher.run())
        yield watcher
        running.cancel()


async def test_nobody_is_taken_to_have_left_before_their_lock_was_seen() -> None:
    """Who was let speak at the very end would be a stranger: the watch has not shown their lock when they leave."""
    api = LateApi()
    async with watching(api) as watcher, asyncio.TaskGroup() as group:
        api.write("socket")
        leaving = group.create_task(watcher.wait_until_free(["t"]))
        await pass_turns()
        assert not leaving.done()
        api.write(None)
        api.show()
        await pass_turns()
        assert not leaving.done()
        api.show()
        await leaving

        assert [held.socket_id for held in watcher.book.locks["t"]] == ["socket"]


@pytest.mark.parametrize("is_over", [False, True])
async def test_nobody_is_taken_to_hold_what_they_have_let_go(*, is_over: bool) -> None:
    api = LateApi()
    api.write("socket")
    async with watching(api) as watcher, asyncio.TaskGroup() as group:
        if is_over:
            api.write(None)
        holding = group.create_task(watcher.wait_until_holding(Place(), ["t"]))
        await pass_turns()
        assert holding.done() is not is_over
        if is_over:
            api.write("another")
            while not holding.done():
                api.show()
                await pass_turns()
            assert watcher.book.find_holder("t") == "gw"
            assert len(watcher.book.locks["t"]) == 2

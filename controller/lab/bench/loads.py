"""Work for many clients at once, bounded."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from controller.clock import Clock
from controller.lab.bench.sizes import CLIENTS

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Asked:
    """When a request was sent and answered, by the wall clock: others compare it with theirs."""

    sent: datetime
    answered: datetime


async def send_all(items: Iterable[Item], send: Callable[[Item], Awaitable[None]]) -> None:
    """Send one request for each, as many at a time as there are clients."""
    left = iter(items)

    async def be_client() -> None:
        for item in left:
            await send(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(be_client())


async def send_at_pace(
    items: Sequence[Item], send: Callable[[Item], Awaitable[None]], *, per_second: float, clock: Clock
) -> Mapping[Item, Asked]:
    """Send one request for each at a steady pace, whether the ones before are answered or not."""
    asked: dict[Item, Asked] = {}
    began = clock.monotonic()

    async def ask(item: Item) -> None:
        sent = clock.now()
        await send(item)
        asked[item] = Asked(sent, clock.now())

    async with asyncio.TaskGroup() as group:
        for number, item in enumerate(items):
            await clock.sleep(began + timedelta(seconds=number / per_second) - clock.monotonic())
            group.create_task(ask(item))
    return asked


def find_percentile(values: Iterable[timedelta], percent: float) -> timedelta:
    """Give the smallest value that this share of all values does not exceed."""
    ordered = sorted(values)
    place = max(0, -int(-len(ordered) * percent // 100) - 1)
    return ordered[place]

"""A namespace that may not be read: told at once, again while it lasts, and counted."""

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import aiohttp
import pytest
from yarl import URL

from controller.api.names import GROUP, PLURAL, VERSION
from controller.handlers.withheld import Withheld
from controller.kube.watching import TOLD_AGAIN_AFTER
from tests.engine.clocks import HandClock

PATIENCE: Final = timedelta(seconds=60)
A_MOMENT: Final = timedelta(milliseconds=1)


class Bench:
    """Requests for one namespace after the other, answered with a status."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.missing: list[str] = []
        self.withheld = Withheld(self.clock, pause=timedelta(0), patience=PATIENCE, on_missing=self.missing.append)

    async def ask(self, namespace: str, status: int) -> None:
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURAL}"

        async def answer(_: aiohttp.ClientRequest) -> aiohttp.ClientResponse:
            return cast("aiohttp.ClientResponse", SimpleNamespace(status=status, release=lambda: None))

        request: Any = SimpleNamespace(url=URL(f"https://api.test{path}"))
        if status == 403:
            with pytest.raises(aiohttp.ClientPayloadError):
                await self.withheld(request, answer)
        else:
            await self.withheld(request, answer)


async def test_it_is_told_at_once_with_the_setting_the_namespace_and_the_way_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()

    await bench.ask("team-a", 403)

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "AGENTTERMINAL_NAMESPACES names the namespace team-a, which may not be read" in record.getMessage()
    assert "or take it out of the setting." in record.getMessage()
    assert bench.withheld.count() == 1
    assert bench.missing == [], "the first list waits for it a while"


async def test_it_is_told_again_every_ten_minutes_each_namespace_for_itself_and_once_that_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench()
    for namespace in ("team-a", "team-b"):
        await bench.ask(namespace, 403)
    for _ in range(100):
        bench.clock.passed += (TOLD_AGAIN_AFTER - A_MOMENT) / 100
        await bench.ask("team-a", 403)
    assert len(caplog.records) == 2

    bench.clock.passed += A_MOMENT
    await bench.ask("team-a", 403)
    await bench.ask("team-b", 200)
    await bench.ask("team-b", 200)

    assert [(record.levelname, vars(record)["namespace"]) for record in caplog.records[2:]] == [
        ("WARNING", "team-a"),
        ("INFO", "team-b"),
    ]
    assert bench.withheld.count() == 1
    assert len(bench.missing) == 1

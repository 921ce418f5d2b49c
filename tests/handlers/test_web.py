"""The door for probes and scrapers."""

import socket
from collections.abc import AsyncIterator

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter

from controller.engine.liveness import Bad, Good, Verdict
from controller.handlers.web import Web, WebSettings


class Door:
    """A started door whose verdicts a test may change."""

    def __init__(self) -> None:
        self.liveness: Verdict = Good("This process is well.")
        self.readiness: Verdict = Bad("The first list of the objects has not passed yet.")
        metrics = CollectorRegistry()
        Counter("lab_doors", "Doors opened.", registry=metrics).inc(3)
        self.web = Web(WebSettings("127.0.0.1", 0), metrics, lambda: self.liveness, lambda: self.readiness)

    async def read(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        url = f"http://127.0.0.1:{self.web.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, headers={"Accept": accept}) as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    await door.web.start()
    yield door
    await door.web.stop()


async def test_health_is_told_in_a_sentence(door: Door) -> None:
    assert await door.read("/healthz") == (200, "text/plain; charset=utf-8", "This process is well.\n")
    door.liveness = Bad("The watch is 190 s behind the API server, more than 180 s.")
    status, _, text = await door.read("/healthz")
    assert (status, text) == (503, "The watch is 190 s behind the API server, more than 180 s.\n")


async def test_readiness_is_asked_apart_from_health(door: Door) -> None:
    status, _, text = await door.read("/readyz")
    assert (status, text) == (503, "The first list of the objects has not passed yet.\n")
    door.readiness = Good("All objects were seen.")
    assert (await door.read("/readyz"))[0] == 200


async def test_metrics_come_in_the_format_that_the_scraper_asks_for(door: Door) -> None:
    status, plain_type, plain = await door.read("/metrics", "text/plain")
    assert (status, plain_type.split(";")[0]) == (200, "text/plain")
    assert "lab_doors_total 3.0" in plain
    assert "# EOF" not in plain
    status, open_type, opened = await door.read("/metrics", "application/openmetrics-text; version=1.0.0")
    assert (status, open_type.split(";")[0]) == (200, "application/openmetrics-text")
    assert opened.endswith("# EOF\n")


async def test_any_other_page_is_not_there(door: Door) -> None:
    assert (await door.read("/"))[0] == 404


async def test_a_door_that_was_stopped_is_closed_and_can_be_stopped_again(door: Door) -> None:
    port = door.web.port
    await door.web.stop()
    await door.web.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    with pytest.raises(RuntimeError, match="not started"):
        _ = door.web.port


async def test_a_taken_port_is_an_error_and_leaves_nothing_open(door: Door) -> None:
    second = Web(
        WebSettings("127.0.0.1", door.web.port),
        CollectorRegistry(),
        lambda: Good("Well."),
        lambda: Good("Ready."),
    )
    with pytest.raises(OSError):
        await second.start()
    await second.stop()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_does_not_exist_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match=r"^port must be from 0 to 65535"):
        WebSettings(port=port)

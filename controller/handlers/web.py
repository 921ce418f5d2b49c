"""
The door for probes and scrapers: one port, three pages.

Problem: a probe must be answered by the loop whose health it asks for, and from outside of kopf, whose own liveness
page says 200 while its watch is failing (kopf.md 8). Promise: `/healthz` and `/readyz` answer 200 or 503 with the
sentence that says why, `/metrics` in the format the scraper asks for; nothing is logged per request.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from controller.engine.liveness import Bad, Good, Verdict


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Where the door stands."""

    address: str = "0.0.0.0"  # noqa: S104  # The kubelet and the scraper come from other addresses of the pod's network.
    """The address to listen on."""

    port: int = 8080
    """The port; 0 takes a free one."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError("port must be from 0 to 65535.")


class Web:
    """
    Serve the three pages. It is started once; stopping twice is fine.

    Args:
        settings: Where.
        metrics: What `/metrics` shows.
        liveness: Answers `/healthz`, at once.
        readiness: Answers `/readyz`, at once.
    """

    def __init__(
        self,
        settings: WebSettings,
        metrics: CollectorRegistry,
        liveness: Callable[[], Verdict],
        readiness: Callable[[], Verdict],
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._liveness = liveness
        self._readiness = readiness
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("The door for probes was not started.")
        return int(self._runner.addresses[0][1])

    async def start(self) -> None:
        """
        Listen.

        Raises:
            OSError: When the address cannot be used.
        """
        application = web.Application()
        application.router.add_get("/metrics", self._show_metrics)
        application.router.add_get("/healthz", self._show_liveness)
        application.router.add_get("/readyz", self._show_readiness)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._settings.address, self._settings.port).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Close the port and what is open on it."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _show_metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._metrics), headers={"Content-Type": content_type})

    async def _show_liveness(self, _: web.Request) -> web.Response:
        return _page(self._liveness())

    async def _show_readiness(self, _: web.Request) -> web.Response:
        return _page(self._readiness())


def _page(verdict: Verdict) -> web.Response:
    match verdict:
        case Good(sentence):
            return web.Response(text=f"{sentence}\n")
        case Bad(sentence):
            return web.Response(text=f"{sentence}\n", status=503)
        case _:
            assert_never(verdict)

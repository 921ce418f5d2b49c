"""One socket to the gateway: whatever answers in its place gets the token at most once, and none of it comes back."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from controller.client.dial import NotOpened, UpgradeRefused, open_socket
from controller.client.endings import Next
from controller.client.identity import Presented
from controller.client.settings import AttachTimes
from controller.client.way import Reached
from tests.support.secrecy import Kind, secret

TOKEN = secret(Kind.PERSON)
DOOR = "/v1/namespaces/team-a/agentterminals/one/attach"

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[str]:
    """A server on loopback that answers everything alike."""
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_since_it_would_carry_the_token_elsewhere(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    came: list[str] = []

    async def take(request: web.BaseRequest) -> web.StreamResponse:
        came.append(request.headers.get("Authorization", ""))
        return web.Response(status=404)

    async with answering(take) as elsewhere:

        async def send_away(_request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": f"{elsewhere.replace('http', 'ws', 1)}{DOOR}"})

        async with answering(send_away) as url:
            with pytest.raises((UpgradeRefused, NotOpened)) as told:
                await open_socket(Reached(url), DOOR, Presented(TOKEN, None), AttachTimes())

    assert came == []
    assert isinstance(told.value, UpgradeRefused)
    assert told.value.verdict.next is Next.STOP
    assert elsewhere.removeprefix("http://") not in str(told.value)
    assert TOKEN not in str(told.value) + caplog.text

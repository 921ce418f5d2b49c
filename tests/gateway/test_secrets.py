"""
Nothing that was sent comes back or is written down.

One world in which a token is planted wherever a client may put one; then every answer, close reason, log line of every
logger at every level, and the metrics are searched for it, for its beginning and for its other spellings.
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from urllib.parse import quote

import aiohttp
import pytest

from controller.gateway.access import BEARER_SUBPROTOCOL, SUBPROTOCOL
from controller.gateway.settings import GatewaySettings
from tests.gateway.doubles import ANNA, PATH, Doors, Records, build_object, exchange, offer, open_doors, receive_close
from tests.gateway.test_doors import QUICK
from tests.support.secrecy import secret

PLANTED = f"{secret()}.t0ken-7f3a/91c2"
BEGINNING = PLANTED[:9]
SPELLINGS = (
    BEGINNING,
    quote(PLANTED, safe=""),
    base64.urlsafe_b64encode(PLANTED.encode()).decode().rstrip("=")[:10],
    PLANTED[::-1][:9],
)
LONG = PLANTED + "A" * 40_000

UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
)
HOST = "Host: localhost\r\n"


def carry(token: str) -> str:
    return offer(token)[1]


def heads() -> Iterator[str]:
    """Heads of requests with the token in every place, in forms that are read, refused and not even parsed."""
    for more in ("", UPGRADE):
        for place in (
            f"Authorization: Bearer {PLANTED}",
            f"Authorization: Bearer {LONG}",
            f"Authorization: Basic {PLANTED}",
            f"Authorization: {PLANTED}",
            f"Authorization: Bearer {PLANTED} {PLANTED}",
            f"Authorization: Bearer {ANNA}\r\nAuthorization: Bearer {PLANTED}",
            f"Authorization: Bearer {PLANTED}\x01",
            f"Cookie: token={PLANTED}",
            f"Origin: https://{PLANTED}",
            f"X-Token: {PLANTED}",
            f"X-Token: {LONG}",
            f"X-{PLANTED} a: b",
            f"Content-Length: {PLANTED}",
            f"Transfer-Encoding: {PLANTED}",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}, {carry(PLANTED)}",
            f"Sec-WebSocket-Protocol: {carry(PLANTED)}",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}, {BEARER_SUBPROTOCOL}{PLANTED}",
            f"Sec-WebSocket-Protocol: {PLANTED}",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}, {carry(LONG)}",
            f"Sec-WebSocket-Extensions: {PLANTED}",
        ):
            yield f"GET {PATH}/attach HTTP/1.1\r\n{HOST}{more}{place}\r\n\r\n"
        for line in (
            f"GET {PATH}/attach?token={PLANTED} HTTP/1.1",
            f"GET {PATH}/attach?{PLANTED}=1 HTTP/1.1",
            f"GET {PATH}/attach?env=TOKEN%3D{PLANTED} HTTP/1.1",
            f"GET {PATH}/attach?cmd={PLANTED}&path={PLANTED}&dir={PLANTED} HTTP/1.1",
            f"GET {PATH}/attach?view={PLANTED} HTTP/1.1",
            f"GET {PATH}/attach?columns={PLANTED} HTTP/1.1",
            f"GET {PATH}/attach?token={LONG} HTTP/1.1",
            f"GET {PATH}/attach/{PLANTED} HTTP/1.1",
            f"GET {PATH}/sdk/v1/sprites/{PLANTED}/exec HTTP/1.1",
            f"GET {PATH}/sdk/v1/sprites/box/exec?env=TOKEN%3D{PLANTED}&cmd=sh HTTP/1.1",
            f"GET {PATH}/sdk/v1/sprites/box/exec/77?env=TOKEN%3D{PLANTED} HTTP/1.1",
            f"POST {PATH}/sdk/v1/sprites/box/exec?cmd={PLANTED} HTTP/1.1",
            f"GET /{PLANTED} HTTP/1.1",
            f"{PLANTED} / HTTP/1.1",
            f"GET / {PLANTED}",
            f"GET http://{PLANTED}/attach HTTP/1.1",
        ):
            yield f"{line}\r\n{HOST}{more}Authorization: Bearer {ANNA}\r\n\r\n"
    yield f"GET {PATH}/attach HTTP/1.1\r\nHost: {PLANTED}\r\nAuthorization: Bearer {ANNA}\r\n\r\n"
    for swapped in UPGRADE.strip().split("\r\n"):
        name, _, _ = swapped.partition(":")
        broken = UPGRADE.replace(swapped, f"{name}: {PLANTED}")
        yield f"GET {PATH}/attach HTTP/1.1\r\n{HOST}{broken}Authorization: Bearer {ANNA}\r\n\r\n"
    for offered in (PLANTED, f"{PLANTED}, {carry(PLANTED)}"):
        more = f"{UPGRADE}Authorization: Bearer {ANNA}\r\nSec-WebSocket-Protocol: {offered}"
        yield f"GET {PATH}/attach HTTP/1.1\r\n{HOST}{more}\r\n\r\n"
    yield f"POST {PATH}/activity HTTP/1.1\r\n{HOST}Authorization: Bearer {PLANTED}\r\nContent-Length: 3\r\n\r\nabc"


@pytest.fixture
def records() -> Iterator[Records]:
    """Everything that any logger says, whatever its level was."""
    handler, root = Records(), logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in ("", "aiohttp", "asyncio", "controller")}
    root.addHandler(handler)
    for name in levels:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    limits = GatewaySettings().limits
    settings = GatewaySettings(port=0, metrics_port=0, times=QUICK, limits=type(limits)(address_burst=10_000))
    async with open_doors(settings) as doors:
        yield doors


async def live_through_everything(doors: Doors, outputs: list[str]) -> int:
    """Send everything, and gather all that comes back; give the number of requests."""
    sent = 0
    for head in heads():
        outputs.append((await exchange(doors.gateway.port, head.encode("latin-1"))).decode("latin-1"))
        sent += 1
    for wrong in ("refused", "down", "unreadable", "broken", "let in"):
        doors.kube.is_down = wrong == "down"
        doors.kube.users = {ANNA: "anna"} if wrong == "refused" else {ANNA: "anna", PLANTED: "anna"}
        doors.kube.objects["one"] = (
            {"metadata": {"uid": "u"}, "spec": PLANTED} if wrong == "unreadable" else build_object()
        )
        doors.terminals.broken = wrong == "broken"
        outputs.append((await doors.ask(token=PLANTED)).text)
        outputs.append((await doors.ask(token=PLANTED, method="POST", path=f"{PATH}/activity")).text)
        for protocols, token in ((offer(PLANTED), None), ((), PLANTED)):
            with suppress(aiohttp.WSServerHandshakeError):
                async with doors.attached(token=token, protocols=protocols) as socket:
                    outputs.append(str(socket.protocol))
                    await outlive_the_token(doors, socket, outputs)
                    doors.kube.users[PLANTED] = "anna"
            sent += 2
        await asyncio.sleep(QUICK.verdict_kept.total_seconds())
    return sent


async def outlive_the_token(doors: Doors, socket: aiohttp.ClientWebSocketResponse, outputs: list[str]) -> None:
    """Let the token be refused, send others that are, and read to the end."""
    doors.kube.users.pop(PLANTED, None)
    for text in (f"auth {PLANTED}", f"auth {PLANTED} {PLANTED}"):
        with suppress(ConnectionError):
            await socket.send_str(text)
    outputs.append(repr(await receive_close(socket)))


async def test_no_output_of_any_kind_repeats_a_token_or_the_beginning_of_one(doors: Doors, records: Records) -> None:
    outputs: list[str] = []

    sent = await live_through_everything(doors, outputs)
    outputs.append(doors.metrics_page())

    assert sent > 90
    assert sum(" 400 " in output or '"code":400' in output for output in outputs) > 40
    assert any("(4401, 'Expired')" in output for output in outputs)
    assert any("(1011, 'Bug')" in output for output in outputs)
    assert "A request was refused." in records.text
    for spelling in SPELLINGS:
        assert [output for output in outputs if spelling in output] == []
        assert [line for line in records.lines if spelling in line] == []

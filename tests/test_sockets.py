"""A loop that ends directly after its client leaves no socket behind, whatever the other side does."""

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import uvloop

from controller.lab.certificates import Authority
from controller.sockets import Sockets

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


class Silent:
    """A server over TLS that begins an answer and says no further word, not even good-bye."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(now=datetime.now(UTC))
        pair = authority.issue_server("127.0.0.1")
        file = folder / "pair.pem"
        file.write_bytes(pair.certificate + pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        self.trust = ssl.create_default_context(cadata=authority.certificate.decode())
        self._listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
        self.port = self._listener.getsockname()[1]
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._thread.join()
        for taken in (*self._taken, self._listener):
            taken.close()

    def _serve(self) -> None:
        taken, _ = self._listener.accept()
        self._taken.append(taken)
        taken.recv(65_536)
        taken.sendall(HEAD)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    server = Silent(tmp_path)
    yield server
    server.close()


async def give_up(silent: Silent, sockets: Sockets) -> None:
    """Begin to read an answer, give it up as a watch is given up, and close everything."""
    connector = aiohttp.TCPConnector(ssl=silent.trust, socket_factory=sockets.make)
    async with sockets, aiohttp.ClientSession(connector=connector) as session:
        answer = await session.get(f"https://127.0.0.1:{silent.port}/")
        assert await answer.content.readany() == b"{}"
        answer.close()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_a_watch_leaves_is_closed_before_its_loop_ends(
    silent: Silent, new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(record=True) as caught, asyncio.Runner(loop_factory=new_loop) as runner:
        warnings.simplefilter("always")
        runner.run(give_up(silent, Sockets()))
        runner.close()
        gc.collect()

    assert [str(one.message) for one in caught] == []
    assert caplog.records == []

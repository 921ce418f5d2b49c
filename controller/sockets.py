"""
Know when the connections of an HTTP client are closed, and not only asked to close.

Problem: aiohttp begins the good-bye of TLS for an answer that is given up, forgets the connection and returns; a loop
that ends in that moment logs a traceback and warns of a socket that nobody closed. Promise: after `close` the loop has
put every socket away, also where the other side has stopped to answer.
Observed: aiohttp 3.14 over TLS, a watch that is given up directly before the end of the loop.
"""

import asyncio
import contextlib
import socket
from datetime import timedelta
from typing import Any, Final, Self
from weakref import WeakSet

CLOSED_WITHIN: Final = timedelta(seconds=1)
_LOOK_INTERVAL_SECONDS: Final = 0.005


class Sockets:
    """The sockets of one connector: give `make` to aiohttp as `socket_factory`, and close them after the session."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def make(self, address: tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, Any]) -> socket.socket:
        """Make one for an address as `getaddrinfo` tells it: family, type and protocol count."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._made.add(made)
        return made

    async def close(self) -> None:
        """Cut what is open still, and wait until the loop has put it away, for a second at most."""
        for left in self._find_open():
            with contextlib.suppress(OSError):
                left.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSED_WITHIN.total_seconds()):
                while self._find_open():  # noqa: ASYNC110 - a socket tells nobody that it was closed
                    await asyncio.sleep(_LOOK_INTERVAL_SECONDS)

    def _find_open(self) -> list[socket.socket]:
        return [made for made in self._made if made.fileno() >= 0]

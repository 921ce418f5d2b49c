"""
Somebody who looks at a stream, and misses nothing.

Problem: a gateway may join frames and add its own words, so what arrives is not frame by frame what was sent. Promise:
bytes are read as one stream; from the first frame of the source on each must be the one that follows; every other byte
is counted as lost or out of order; of each frame the moment of its arrival is kept.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import aiohttp
import orjson

from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.streams_source import FRAME_BYTES, HEAD, MARK

HOLDING: Final = "Holding"
"""The word with which the gateway says that a person's input counts. Source: docs/attach.md."""

ANSWER_WITHIN: Final = timedelta(seconds=30)


class Sink:
    """
    One socket that is read; `read` does it, until the socket ends.

    Args:
        socket: It is open.
        number: Of the stream that must come.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, number: int) -> None:
        self.socket = socket
        self.number = number
        self.first = self.following = 0
        """Numbers of the first frame that came, and of the one that must come next."""
        self.sent_ns = array("q")
        """When each frame was made, from the first one on."""
        self.came_ns = array("q")
        """When it came."""
        self.lost_bytes = 0
        self.disordered_bytes = 0
        self.has_ended = False
        self.farewell = "no reason"
        """Why it ended, in the word of the gateway."""
        self._rest = b""
        self._changed = asyncio.Event()
        self._is_holding = False

    async def read(self) -> None:
        """Take everything until the socket ends."""
        socket = self.socket
        while True:
            message = await socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                self.take(message.data, time.monotonic_ns())
            elif message.type is aiohttp.WSMsgType.TEXT:
                self._take_text(orjson.loads(message.data))
            else:
                break
        self.has_ended = True
        self._changed.set()

    def take(self, data: bytes, now_ns: int) -> None:
        """Take bytes that came; a frame may come in pieces, and several at once."""
        if self._rest:
            data = self._rest + data
        place = 0
        if not self.following:
            # The past, and what clears a screen for it, come before the first frame.
            place = data.find(MARK)
            if place < 0:
                self._rest = data[1 - len(MARK) :]
                return
        while len(data) - place >= FRAME_BYTES:
            if not data.startswith(MARK, place):
                self.disordered_bytes += len(data) - place
                place = len(data)
                break
            _, stream, number, sent_ns = HEAD.unpack_from(data, place)
            self._take_frame(stream, number, sent_ns, now_ns)
            place += FRAME_BYTES
        self._rest = data[place:]

    def _take_frame(self, stream: int, number: int, sent_ns: int, now_ns: int) -> None:
        if not self.following:
            self.first = self.following = number
        if stream != self.number or number < self.following:
            self.disordered_bytes += FRAME_BYTES
            return
        missing = number - self.following
        self.lost_bytes += missing * FRAME_BYTES
        # A missing frame keeps its place, so that a frame's place tells its number.
        self.sent_ns.extend([0] * missing)
        self.came_ns.extend([0] * missing)
        self.sent_ns.append(sent_ns)
        self.came_ns.append(now_ns)
        self.following = number + 1
        self._changed.set()

    def _take_text(self, told: Mapping[str, Any]) -> None:
        if told.get("word") == HOLDING:
            self._is_holding = True
            self._changed.set()
        if told.get("type") == "closed":
            self.farewell = str(told.get("reason"))

    async def wait_until_holding(self) -> bool:
        """Wait until the gateway says that input counts, or the socket has ended; tell whether it counts."""
        await self._wait_for(lambda: self._is_holding or self.has_ended, "was not let type")
        return not self.has_ended

    async def wait_until_closed(self) -> None:
        """Wait until the socket has ended."""
        await self._wait_for(lambda: self.has_ended, "was not closed")

    async def wait_for_frames(self, following: int, *, within: timedelta) -> None:
        """
        Wait until all frames before a number have come, and no longer than is bearable; what misses then is lost.

        Of a socket that has ended nothing is lost: its person was told.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                while self.following < following and not self.has_ended:
                    self._changed.clear()
                    await self._changed.wait()
        if not self.has_ended:
            self.lost_bytes += max(0, following - self.following) * FRAME_BYTES

    async def _wait_for(self, met: Callable[[], bool], failure: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                while not met():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise BenchFailed(
                f"The socket of stream {self.number} {failure} within {ANSWER_WITHIN.total_seconds():g} s."
            ) from None

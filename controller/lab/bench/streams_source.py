"""
Terminals that talk: a stand-in for the Sprites API that costs next to nothing, and frames that tell their own story.

Problem: to find what a gateway adds to each of eight thousand frames a second, whoever sends them may not be what is
measured; the emulator, which is exact, would be. Promise: what the gateway calls is answered as the platform does, a
session's name first, then its past, then output to every socket alike, whether it may type or not; each frame carries
its stream, its number in it and the moment at which it was made; nothing that is sent waits for a reader.

Source: sprites-api.md 1, 2.3, 3.3, 3.4, 3.6 and 5 (2026-09).
"""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

FRAME_BYTES: Final = 1024
FRAMES_PER_SECOND: Final = 40
"""Of one terminal: 40 KiB/s, as much as a build that is watched."""

MARK: Final = b"\x1eATB"
"""How a frame begins; nothing else that is sent contains it."""

HEAD: Final = struct.Struct(">4sIQQ")
"""The mark, the number of the stream, the frame's own number in it, and when it was made: monotonic nanoseconds."""

_FILL: Final = (b"0123456789abcdef" * (FRAME_BYTES // 16))[HEAD.size : FRAME_BYTES - 2] + b"\r\n"
_PAST: Final = b"A screen of the past.\r\n" * 40
_MESSAGE_HEAD: Final = bytes([0x82, 126]) + FRAME_BYTES.to_bytes(2, "big")
"""Of an unmasked binary WebSocket message of this length. Source: RFC 6455, 5.2."""

TICK: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Where a stream is: a session in a sprite."""

    sprite: str
    session: str
    created: datetime


@dataclass(slots=True)
class Stream:
    """One terminal's output, and the connections that get it."""

    number: int
    place: StreamPlace
    made: int = 0
    """So many frames were made: the next one has this number."""
    outlets: list[asyncio.Transport] = field(default_factory=list)

    def make_frame(self) -> bytes:
        """Make the next message, with its WebSocket header."""
        head = HEAD.pack(MARK, self.number, self.made, time.monotonic_ns())
        self.made += 1
        return b"".join((_MESSAGE_HEAD, head, _FILL))


class StreamSource:
    """
    The stand-in; use it as `async with source.serving()`.

    Args:
        places: Its sessions. The number of a stream is its place here.
        token: The one that is accepted.
    """

    def __init__(self, places: tuple[StreamPlace, ...], token: str) -> None:
        self.url = ""
        self.streams: Mapping[tuple[str, str], Stream] = {
            (place.sprite, place.session): Stream(number, place) for number, place in enumerate(places)
        }
        self._authorization = f"Bearer {token}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer during the body, on a free port of loopback."""
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_get("/v1/sprites/{sprite}", self._get_sprite)
        app.router.add_get("/v1/sprites/{sprite}/exec", self._list_sessions)
        app.router.add_get("/v1/sprites/{sprite}/exec/{session}", self._attach)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield
        finally:
            await runner.cleanup()

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        """Let every terminal talk during the body, each at its own beat."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._talk())
            try:
                yield
            finally:
                task.cancel()

    async def _talk(self) -> None:
        """
        Make each frame when it is due, evenly spread over time.

        What could not be made in time is made as soon as it can be, so that the rate is kept.
        """
        loop, streams = asyncio.get_running_loop(), list(self.streams.values())
        every = 1 / (FRAMES_PER_SECOND * len(streams))
        began, turn = loop.time(), 0
        while True:
            due = int((loop.time() - began) / every)
            while turn < due:
                stream = streams[turn % len(streams)]
                frame = stream.make_frame()
                for outlet in stream.outlets:
                    if not outlet.is_closing():
                        outlet.write(frame)
                turn += 1
            await asyncio.sleep(TICK.total_seconds())

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Ask for the token before anything else, as the platform does."""
        if request.headers.get("Authorization") != self._authorization:
            return _refuse(HTTPStatus.UNAUTHORIZED, "authentication failed")
        response: web.StreamResponse = await handler(request)
        return response

    async def _get_sprite(self, request: web.Request) -> web.Response:
        name = request.match_info["sprite"]
        if not any(sprite == name for sprite, _ in self.streams):
            return _refuse(HTTPStatus.NOT_FOUND, "sprite not found")
        return web.json_response({"id": f"sprite-{name}", "name": name, "status": "running"})

    async def _list_sessions(self, request: web.Request) -> web.Response:
        sessions = [_describe(stream) for stream in self._find_in(request.match_info["sprite"])]
        return web.json_response({"count": len(sessions), "sessions": sessions})

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        stream = self.streams.get((request.match_info["sprite"], request.match_info["session"]))
        if stream is None:
            return web.Response(status=HTTPStatus.NOT_FOUND, text=f"session not found: {request.match_info['session']}")
        socket = web.WebSocketResponse(compress=False)
        await socket.prepare(request)
        await socket.send_json(_introduce(stream))
        await socket.send_bytes(_PAST)
        outlet = request.transport
        if outlet is None:
            return socket
        # The newest first: who reads directly comes last, and is never put at a disadvantage.
        stream.outlets.insert(0, outlet)
        try:
            with suppress(ConnectionError):
                async for _ in socket:
                    pass
        finally:
            stream.outlets.remove(outlet)
        return socket

    def _find_in(self, sprite: str) -> Iterator[Stream]:
        return (stream for stream in self.streams.values() if stream.place.sprite == sprite)


def _describe(stream: Stream) -> dict[str, Any]:
    created = stream.place.created.isoformat()
    return {"id": stream.place.session, "command": "talk", "created": created, "tty": True, "is_active": True}


def _introduce(stream: Stream) -> dict[str, Any]:
    return {
        "type": "session_info",
        "session_id": stream.place.session,
        "command": "talk",
        "created": int(stream.place.created.timestamp()),
        "cols": 0,
        "rows": 0,
        "is_owner": True,
        "tty": True,
    }


def _refuse(status: HTTPStatus, error: str) -> web.Response:
    return web.json_response({"error": error}, status=status)

"""A plain client of the emulator for tests that look at each frame and each byte."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp

PATIENCE_SECONDS = 30.0

Found = TypeVar("Found")


def text(frame: str | bytes) -> dict[str, Any]:
    """Read a text frame."""
    assert isinstance(frame, str)
    fields: dict[str, Any] = json.loads(frame)
    return fields


def wait_until(look: Callable[[], Found], wanted: Callable[[Found], bool]) -> Found:
    """Look again until it is as wanted; the emulator runs in another process."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not wanted(found := look()):
        assert time.monotonic() < deadline, f"still {found!r}"
        time.sleep(0.01)
    return found


@dataclass(frozen=True)
class Heard:
    """All that came until the connection ended."""

    frames: list[str | bytes]
    close_code: int | None
    """1006 where no close frame came."""

    @property
    def texts(self) -> list[dict[str, Any]]:
        return [text(frame) for frame in self.frames if isinstance(frame, str)]

    @property
    def data(self) -> bytes:
        return b"".join(frame for frame in self.frames if isinstance(frame, bytes))

    def stream(self, number: int) -> bytes:
        """The payloads of one stream of a non-TTY session."""
        frames = [frame for frame in self.frames if isinstance(frame, bytes)]
        return b"".join(frame[1:] for frame in frames if frame[0] == number)


class Talk:
    """An open exec socket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def hear(self) -> str | bytes:
        """The next frame."""
        message = await self.socket.receive(timeout=PATIENCE_SECONDS)
        assert message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY), message
        frame: str | bytes = message.data
        return frame

    async def hear_until(self, wanted: bytes) -> bytes:
        """Frames until these bytes have come."""
        heard = b""
        while wanted not in heard:
            frame = await self.hear()
            if isinstance(frame, bytes):
                heard += frame
        return heard

    async def hear_all(self) -> Heard:
        """Everything until the end."""
        frames: list[str | bytes] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            frames += [message.data async for message in self.socket]
        return Heard(frames, self.socket.close_code)

    async def say(self, data: bytes) -> None:
        """Send a binary frame."""
        await self.socket.send_bytes(data)

    async def tell(self, **fields: Any) -> None:
        """Send a text frame."""
        await self.socket.send_json(fields)

    async def leave(self) -> None:
        """Close."""
        await self.socket.close()


class Client:
    """The API by hand."""

    def __init__(self, url: str, token: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.token = token
        self.http = http

    async def ask(
        self, method: str, path: str, *, json: Any = None, query: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str, dict[str, str]]:
        """Make a call: status, text, headers."""
        given = {"Authorization": f"Bearer {self.token}", **(headers or {})}
        async with self.http.request(
            method, self.url + path, json=json, params=query, headers=given, allow_redirects=False
        ) as response:
            return response.status, await response.text(), dict(response.headers)

    async def connect(self, path: str, *query: tuple[str, str]) -> Talk:
        """Open an exec socket."""
        socket = await self.http.ws_connect(
            self.url + path, params=query, headers={"Authorization": f"Bearer {self.token}"}, max_msg_size=1 << 24
        )
        return Talk(socket)

    async def start(self, *argv: str, sprite: str = "my-sprite", **options: str) -> Talk:
        """Start a session; options are those of the query."""
        words = [("cmd", word) for word in argv]
        return await self.connect(f"/v1/sprites/{sprite}/exec", *words, *options.items())

    async def attach(self, session: str, *, sprite: str = "my-sprite", **options: str) -> Talk:
        """Attach by the path."""
        return await self.connect(f"/v1/sprites/{sprite}/exec/{session}", *options.items())

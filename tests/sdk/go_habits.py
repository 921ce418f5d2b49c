"""
A client with the documented habits of the official Go SDK, which cannot be had as a module where these tests run.

Problem: the oldest and most complete client of the platform does several things that the two others do not. Promise:
each of its published habits is here, those that are careless too, and nothing else: a server that this client is
content with serves the Go SDK. What it sends is asserted by test_go_habits.py.
Source: sprites-api.md 1 to 6, 9 and 11, rows of [go-sdk] (read September 2026).
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp

PING_EVERY: Final = timedelta(seconds=15)
READ_WITHIN: Final = timedelta(seconds=45)
"""Without a frame or a pong for so long it gives up."""
ACTIVE_WITHIN: Final = timedelta(minutes=5)
PAGE_SIZE: Final = 100
FIRST_WITH_PATH: Final = 30
"""From this release candidate on a session is attached to by its path."""
STDOUT, STDERR, EXIT = 1, 2, 3
STDIN_END: Final = b"\x04"


class Refused(Exception):
    """An answer that it takes for a failure."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


@dataclass
class Command:
    """A command behind a socket."""

    socket: aiohttp.ClientWebSocketResponse
    capabilities: frozenset[str]
    tty: bool
    ping_every: timedelta
    stdout: bytes = b""
    stderr: bytes = b""
    session: str | None = None
    texts: list[Mapping[str, Any]] = field(default_factory=list)
    pongs: int = 0
    pings_left_unanswered: int = 0

    async def wait(self) -> int:
        """
        Read to the first exit of either kind and return its code.

        Without an exit a terminal's code comes from the close: 0 of 1000, 1 of any other code, -1 of none.
        """
        async with asyncio.TaskGroup() as group:
            pinging = group.create_task(self._ping())
            try:
                return await self._read_to_exit()
            finally:
                pinging.cancel()

    async def read_until(self, text: bytes) -> None:
        """Read until the output has a text."""
        while text not in self.stdout:
            code = self._take(await self._receive())
            assert code is None, f"It ended with {code}: {self.stdout!r}"

    async def write(self, data: bytes) -> None:
        """Type."""
        await self.socket.send_bytes(data if self.tty else b"\0" + data)

    async def resize(self, rows: int, cols: int) -> None:
        """Tell the size of the terminal, as it does directly after the connect."""
        await self.socket.send_str(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    async def signal(self, name: str) -> None:
        """Send a short name in a frame."""
        await self.socket.send_str(json.dumps({"type": "signal", "signal": name}))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self.ping_every.total_seconds())
            await self.socket.ping()

    async def _read_to_exit(self) -> int:
        while True:
            code = self._take(await self._receive())
            if code is not None:
                return code

    async def _receive(self) -> aiohttp.WSMessage:
        return await self.socket.receive(timeout=READ_WITHIN.total_seconds())

    def _take(self, message: aiohttp.WSMessage) -> int | None:
        match message.type:
            case aiohttp.WSMsgType.PONG:
                self.pongs += 1
            case aiohttp.WSMsgType.PING:
                # Its handler only moves the read deadline.
                self.pings_left_unanswered += 1
            case aiohttp.WSMsgType.TEXT:
                return self._take_text(message.data)
            case aiohttp.WSMsgType.BINARY if self.tty:
                self.stdout += message.data
            case aiohttp.WSMsgType.BINARY:
                return self._take_frame(message.data)
            case _ if not self.tty:
                raise ConnectionError("The socket ended without an exit.")
            case aiohttp.WSMsgType.CLOSE if message.data is not None:
                return 0 if message.data == 1000 else 1
            case _:
                return -1
        return None

    def _take_text(self, text: str) -> int | None:
        try:
            fields = json.loads(text)
        except json.JSONDecodeError:
            return None
        if fields.get("type") == "session_info":
            # The field is a string in its structure, and a number there fails the whole frame.
            if not isinstance(fields["session_id"], str):
                return None
            self.session, self.tty = fields["session_id"], fields["tty"]
        self.texts.append(fields)
        return int(fields["exit_code"]) if fields.get("type") == "exit" else None

    def _take_frame(self, frame: bytes) -> int | None:
        match frame[0]:
            case 1:
                self.stdout += frame[1:]
            case 2:
                self.stderr += frame[1:]
            case 3:
                return frame[1]
            case _:
                pass
        return None


class GoHabits:
    """The client."""

    def __init__(
        self, url: str, token: str, http: aiohttp.ClientSession, *, ping_every: timedelta = PING_EVERY
    ) -> None:
        self._url = f"{url.rstrip('/')}/v1/sprites"
        self._headers = {"Authorization": f"Bearer {token}"}
        self._http = http
        self._ping_every = ping_every
        self.uses_control: bool | None = None

    # Sprites.

    async def create(self, name: str) -> Any:
        """Create a sprite; only 201 is success."""
        return await self._call("POST", "", {201}, body={"name": name})

    async def list_all(self, prefix: str) -> tuple[list[Any], Mapping[str, Any]]:
        """List page by page, a hundred at a time, to the end of the tokens; the counts come from `org`."""
        found: list[Any] = []
        query = {"prefix": prefix, "max_results": str(PAGE_SIZE)}
        while True:
            page = await self._call("GET", "", {200}, query=query)
            found += page["sprites"]
            if not page["has_more"] or not page["next_continuation_token"]:
                return found, page.get("org", {})
            query["continuation_token"] = page["next_continuation_token"]

    async def get(self, name: str) -> Any:
        """Show a sprite. The name goes into the path as it is."""
        return await self._call("GET", f"/{name}", {200})

    async def clear_labels(self, name: str) -> Any:
        """Take all labels away, by a flag of its own."""
        return await self._call("PUT", f"/{name}", {200}, body={"clear_labels": True})

    async def delete(self, name: str) -> None:
        """Delete a sprite."""
        await self._call("DELETE", f"/{name}", {200, 204})

    # Sessions.

    async def list_sessions(self, name: str) -> list[Any]:
        """List the sessions; a missing key is an empty list."""
        answer = await self._call("GET", f"/{name}/exec", {200})
        return list(answer.get("sessions", []))

    async def kill(self, name: str, session: str, signal: str) -> int:
        """Kill a session: a short name and no grace. 200 and 410 are success, and the stream is never read."""
        query = {"signal": signal, "timeout": "0s"}
        async with self._http.post(
            f"{self._url}/{name}/exec/{session}/kill", params=query, headers=self._headers
        ) as response:
            if response.status not in (200, 410):
                raise Refused(response.status, await response.text())
            response.close()
            return response.status

    async def probe_version(self, name: str) -> int | None:
        """Ask which release candidate runs there; None where nothing says so."""
        async with self._http.head(f"{self._url}/{name}/exec", headers=self._headers) as response:
            _, _, candidate = response.headers.get("Sprite-Version", "").partition("-rc")
            return int(candidate) if candidate.isdecimal() else None

    @asynccontextmanager
    async def start(
        self, name: str, *argv: str, size: tuple[int, int] | None = None, typing: bool = False
    ) -> AsyncIterator[Command]:
        """
        Start a command.

        Args:
            name: The sprite.
            argv: The words; the first is sent as `path` as well.
            size: Rows and columns of its terminal; None is no terminal.
            typing: Whether there is input. Without, the end of the input is sent at once.
        """
        if self.uses_control is None:
            self.uses_control = await self._probe_control(name)
        query = [("cmd", word) for word in argv]
        query += [("path", argv[0]), ("stdin", str(typing).lower())]
        async with self._dial(f"/{name}/exec", query, size) as command:
            if not typing and size is None:
                await command.socket.send_bytes(STDIN_END)
            yield command

    @asynccontextmanager
    async def attach(self, name: str, session: str, *, size: tuple[int, int] | None = None) -> AsyncIterator[Command]:
        """Attach: by the path where the version has it, and on 404 or before it by `?id=`, then as a terminal."""
        typing = ("stdin", "true")
        candidate = await self.probe_version(name)
        if candidate is not None and candidate >= FIRST_WITH_PATH:
            try:
                async with self._dial(f"/{name}/exec/{session}", [typing], size) as command:
                    yield command
                    return
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 404:
                    raise
        async with self._dial(f"/{name}/exec", [("id", session), typing], size or (24, 80)) as command:
            yield command

    async def _probe_control(self, name: str) -> bool:
        try:
            async with asyncio.timeout(20):
                socket = await self._http.ws_connect(
                    f"{self._url}/{name}/control",
                    headers={**self._headers, "User-Agent": "sprites-go-sdk/1.0"},
                )
        except (TimeoutError, aiohttp.WSServerHandshakeError):
            return False
        await socket.close()
        return True

    @asynccontextmanager
    async def _dial(
        self, path: str, query: list[tuple[str, str]], size: tuple[int, int] | None
    ) -> AsyncIterator[Command]:
        if size is not None:
            rows, cols = size
            query = [*query, ("tty", "true"), ("rows", str(rows)), ("cols", str(cols))]
        async with self._http.ws_connect(
            self._url + path, params=query, headers=self._headers, autoping=False, autoclose=False
        ) as socket:
            told = socket._response.headers.get("X-Sprite-Capabilities", "")
            command = Command(
                socket, frozenset(told.replace(" ", "").split(",")), tty=size is not None, ping_every=self._ping_every
            )
            if size is not None:
                await command.resize(*size)
            yield command

    async def _call(
        self, method: str, path: str, successes: set[int], *, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Any:
        async with self._http.request(
            method, self._url + path, json=body, params=query, headers=self._headers
        ) as response:
            text = await response.text()
            if response.status not in successes:
                raise Refused(response.status, text)
            return json.loads(text) if text else None


def is_active(session: Mapping[str, Any], now: datetime) -> bool:
    """Its helper: `is_active`, and output within five minutes."""
    last = session.get("last_activity")
    if not session.get("is_active") or not last:
        return False
    return now.astimezone(UTC) - datetime.fromisoformat(last) < ACTIVE_WITHIN

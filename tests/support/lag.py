"""A slow line: bytes go through on loopback, each way a fixed time later, in their order."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

CALL_SECONDS = 10.0
CHUNK = 64 * 1024


class SlowLine:
    """One slow line to a server; use it as a context manager. It lives in a thread of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 0
        self.seconds = 0.0
        """How long a byte takes that is sent from now on; a test may change it."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="slow line", daemon=True)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                there, back = await asyncio.open_connection(self._host, self._port)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._carry(reader, back))
                        group.create_task(self._carry(there, writer))
                finally:
                    back.transport.abort()
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one way: what was sent before an end arrives before it, as on any line."""
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                self._loop.call_later(self.seconds, _write, writer, chunk)
        await asyncio.sleep(self.seconds)
        writer.close()


def _write(writer: asyncio.StreamWriter, chunk: bytes) -> None:
    if not writer.is_closing():
        writer.write(chunk)

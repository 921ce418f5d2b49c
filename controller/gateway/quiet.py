"""
One connection that says nothing of what it was sent.

Problem: a head that cannot be parsed is answered by aiohttp with its own beginning and logged with a traceback, tokens
included; and every answer names the library and the Python with their versions. Promise: whatever cannot be read, or
meets a bug, is answered in our own words; a bug is logged by its kind and its place in the code; no answer says what
serves it; a frame without a mask ends its socket. Source: gateway.md 6. Observed: aiohttp 3.14, its source and on the
wire, 2026-11.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aiohttp import StreamReader, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage, WebSocketReader

from controller.gateway.answers import BUG, answer_refusal
from controller.gateway.masks import MaskedReader
from controller.gateway.refusals import Refusal, RefusalCause

log = logging.getLogger(__name__)

_PACKAGE: Final = Path(__file__).parents[1]


class QuietRequest(web.BaseRequest):
    """One request whose answer, a socket's too, does not say what serves it."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # The last word before an answer's head is written. Assumed: aiohttp asks for it, and adds its name before
        # (tests/gateway/test_doors.py looks at the wire).
        response.headers.popall(hdrs.SERVER, None)


class QuietProtocol(web.RequestHandler):
    """
    One connection that answers what cannot be read with our own words, and logs none of it.

    Args:
        manager: The server.
        tell: Told of each head that could not be read, and of each bug, by cause.
        most: So many connections are kept, and the next one is cut before anything of it is read.
        options: As for aiohttp's own.
    """

    __slots__ = ("_most", "_server", "_tell")

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[RefusalCause], None],
        most: int,
        **options: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self._server = manager
        self._most = most
        self._tell = tell

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection, or cut it where there are too many: each costs memory before it says a word."""
        super().connection_made(transport)
        if len(self._server.connections) > self._most:
            self._tell(RefusalCause.BUSY)
            self.force_close()

    def set_parser(self, parser: WebSocketReader, data_received_cb: Callable[[], None] | None = None) -> None:
        """Begin to read frames, masked ones only."""
        # aiohttp names its own class here, and only feeds and ends it: `masks.Reader` is all that it asks.
        super().set_parser(MaskedReader(parser), data_received_cb)  # type: ignore[arg-type]  # as said above

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it repeats what was sent
    ) -> web.StreamResponse:
        """Answer for aiohttp; its message and the exception's text repeat headers."""
        if request.writer.output_size > 0:
            raise ConnectionError("The answer has begun already.")
        if 400 <= status <= 499:
            refusal = Refusal(
                RefusalCause.MALFORMED, "The request cannot be read: its head breaks HTTP, or one header is too long."
            )
        else:
            log.error("A request met a bug.", extra={"error": type(exc).__name__, "place": find_place(exc)})
            refusal = BUG
        self._tell(refusal.cause)
        response = answer_refusal(refusal)
        response.force_close()
        return response

    def log_exception(self, *_: Any, **keywords: Any) -> None:
        """Log that something failed, never what it was about."""
        error = keywords.get("exc_info")
        log.error(
            "A connection met a bug.",
            extra={"error": type(error).__name__, "place": find_place(error)},
        )

    def log_debug(self, *_: Any, **__: Any) -> None:
        """Log nothing: what aiohttp would tell carries addresses and exceptions."""


class QuietServer(web.Server):
    """aiohttp's low-level server, with our protocol for each connection."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        tell: Callable[[RefusalCause], None],
        **options: Any,
    ) -> None:
        super().__init__(handler, request_factory=_build_request)
        self._tell = tell
        self._options = options

    def __call__(self) -> web.RequestHandler:
        """Build the protocol of one connection."""
        return QuietProtocol(self, loop=asyncio.get_running_loop(), tell=self._tell, **self._options)


def _build_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    return QuietRequest(message, payload, protocol, writer, task, asyncio.get_running_loop())


def find_place(error: BaseException | None) -> str:
    """Name the last line of our own code that an error passed; its text is nobody's business."""
    for frame in reversed(traceback.extract_tb(error.__traceback__) if error is not None else []):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f"{path.relative_to(_PACKAGE)}:{frame.lineno}"
    return ""

"""
How the emulator answers: errors in the API's own forms, streams line by line, and faults at the right moment.

Source: sprites-api.md 1.1 and 1.2.
"""

import asyncio
import socket
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, assert_never

import orjson
from aiohttp import web

from controller.lab.emulator.faults import (
    DelayFault,
    DropFault,
    EarlyEndFault,
    ErrorLineFault,
    Fault,
    GarbageFault,
    ListFault,
    StatusFault,
    When,
)

FAULT: Final = web.RequestKey("fault", object)
NDJSON: Final = "application/x-ndjson"
FAULT_KINDS: Final = (StatusFault, DelayFault, DropFault, EarlyEndFault, ErrorLineFault, GarbageFault, ListFault)

Line = dict[str, Any]


class Refusal(Exception):
    """An answer other than success, in one of the API's forms."""

    def __init__(self, status: int, body: Any, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"{status}")
        self.status = status
        self.body = body
        self.headers = headers

    def respond(self) -> web.Response:
        """Make the answer: JSON, or plain text where the body is one."""
        if isinstance(self.body, str):
            return web.Response(status=self.status, text=self.body, headers=self.headers)
        return respond_json(self.body, status=self.status, headers=self.headers)


def respond_json(body: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Answer with JSON."""
    return web.Response(
        status=status, body=orjson.dumps(body), headers={"Content-Type": "application/json", **(headers or {})}
    )


def build_request_headers() -> dict[str, str]:
    """Make the headers that come with every answer."""
    number = uuid.uuid4().hex
    return {"X-Request-Id": number, "Fly-Request-Id": number.upper(), "Server": "Fly/emulated", "Via": "1.1 fly.io"}


def get_fault(request: web.Request) -> Fault | None:
    """Tell which fault this request runs into."""
    fault = request.get(FAULT)
    return fault if isinstance(fault, FAULT_KINDS) else None


class Dropped(web.Response):
    """Stands for an answer that nobody gets."""


def drop_connection(request: web.Request, *, reset: bool = False) -> Dropped:
    """End the TCP connection without a word."""
    if request.transport is not None:
        if reset:
            peer = request.transport.get_extra_info("socket")
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        request.transport.abort()
    return Dropped(status=500)


async def respond_fault(request: web.Request, fault: StatusFault) -> web.StreamResponse:
    """Give the answer that a fault prescribes."""
    await asyncio.sleep(fault.headers_seconds)
    response = _build_fault(fault)
    if fault.cut:
        return await send_broken_body(request, response, pause_seconds=None)
    if fault.body_seconds:
        return await send_broken_body(request, response, pause_seconds=fault.body_seconds)
    return response


def _build_fault(fault: StatusFault) -> web.Response:
    if fault.html is not None:
        return web.Response(status=fault.status, text=fault.html, content_type="text/html", headers=fault.headers)
    if fault.text is not None:
        return web.Response(status=fault.status, text=fault.text, headers=fault.headers)
    body = {"error": f"fault {fault.status}"} if fault.body is None else fault.body
    return respond_json(body, status=fault.status, headers=fault.headers)


async def run_with_fault(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], fault: Fault
) -> web.StreamResponse:
    """
    Do what a request asks with a fault before, after, or in the answer's body.

    Streams and sockets answer by themselves, so their handlers look at the fault too; what comes back unanswered from
    here on is a plain body.
    """
    match fault:
        case StatusFault(when=When.BEFORE):
            return await respond_fault(request, fault)
        case DropFault(when=When.BEFORE):
            return drop_connection(request, reset=fault.reset)
        case DelayFault(when=When.BEFORE):
            await asyncio.sleep(fault.seconds)
        case _:
            pass
    response = await handler(request)
    if response.prepared or not isinstance(response, web.Response):
        return response
    match fault:
        case StatusFault(when=When.AFTER):
            return await respond_fault(request, fault)
        case DropFault(when=When.AFTER):
            return drop_connection(request, reset=fault.reset)
        case DelayFault(when=When.AFTER):
            await asyncio.sleep(fault.seconds)
            return response
        case DelayFault(when=When.BODY):
            return await send_broken_body(request, response, pause_seconds=fault.seconds)
        case EarlyEndFault():
            return await send_broken_body(request, response, pause_seconds=None)
        case _:
            return response


async def send_broken_body(
    request: web.Request, response: web.Response, *, pause_seconds: float | None
) -> web.StreamResponse:
    """Send half of a body, then the rest after a pause, or nothing more for ever (None)."""
    body = response.body if isinstance(response.body, bytes) else b""
    broken = web.StreamResponse(status=response.status, headers=response.headers)
    broken.content_length = len(body)
    await broken.prepare(request)
    half = len(body) // 2
    await broken.write(body[:half])
    if pause_seconds is None:
        return drop_connection(request)
    await asyncio.sleep(pause_seconds)
    await broken.write(body[half:])
    await broken.write_eof()
    return broken


async def send_lines(
    request: web.Request, lines: AsyncIterator[Line], *, headers: dict[str, str], endless: bool = False
) -> web.StreamResponse:
    """
    Send a stream of JSON lines, each as it comes, with the request's fault in it.

    The lines are made to the end even where the client gets less: what they stand for happens. Those of an endless
    stream stand for nothing, so it ends with its client.
    """
    fault = get_fault(request)
    if isinstance(fault, (DropFault, StatusFault)) and not endless:
        # `before` never comes here. Whatever this is about is done, and the answer is another.
        async for _ in lines:
            pass
        if isinstance(fault, DropFault):
            return drop_connection(request, reset=fault.reset)
        return await respond_fault(request, fault)
    if isinstance(fault, DelayFault) and fault.when is When.AFTER:
        kept = [line async for line in lines]
        await asyncio.sleep(fault.seconds)
        lines = _iterate(kept)
    response = web.StreamResponse(headers={"Content-Type": NDJSON, **headers})
    await response.prepare(request)
    sent = 0
    broken_off = False
    async for line in _spoil(lines, fault):
        if broken_off:
            if endless:
                break
            continue
        if isinstance(fault, EarlyEndFault) and sent >= fault.after_lines:
            broken_off = True
            continue
        try:
            await response.write(line + b"\n")
        except ConnectionError:
            broken_off = True  # The client has left; what the lines stand for goes on.
            continue
        sent += 1
        if sent == 1 and isinstance(fault, DelayFault) and fault.when is When.BODY:
            await asyncio.sleep(fault.seconds)
    if broken_off and isinstance(fault, EarlyEndFault) and not fault.clean:
        return drop_connection(request)
    await response.write_eof()
    return response


async def _iterate(lines: list[Line]) -> AsyncIterator[Line]:
    for line in lines:
        yield line


async def _spoil(lines: AsyncIterator[Line], fault: Fault | None) -> AsyncIterator[bytes]:
    """Write the lines, with an error or garbage among them where the fault says so."""
    error = _render_error(fault) if isinstance(fault, ErrorLineFault) else None
    number = 0
    async for line in lines:
        match fault:
            case ErrorLineFault(position="first") if number == 0 and error is not None:
                yield error
                yield orjson.dumps(line)
            case ErrorLineFault(position="middle") if number == 0 and error is not None:
                yield orjson.dumps(line)
                yield error
            case ErrorLineFault(position="instead") if number > 0:
                pass
            case GarbageFault():
                for garbage in fault.lines:
                    yield garbage.encode()
                yield orjson.dumps(line)
            case _:
                yield orjson.dumps(line)
        number += 1
    if isinstance(fault, ErrorLineFault) and fault.position in ("last", "instead") and error is not None:
        yield error


def _render_error(fault: ErrorLineFault) -> bytes:
    return orjson.dumps({"type": "error"} if fault.message is None else {"type": "error", "message": fault.message})


def spoil_list(body: dict[str, Any], fault: Fault | None) -> Any:
    """Change a session list as the fault says; bytes are sent as they are."""
    if not isinstance(fault, ListFault):
        return body
    match fault.shape:
        case "hide":
            left = [entry for entry in body["sessions"] if fault.session is not None and entry["id"] != fault.session]
            return {"count": len(left), "sessions": left}
        case "empty":
            return {"count": 0, "sessions": []}
        case "error":
            return {"count": 0, "sessions": [], "error": fault.error}
        case "no-sessions":
            return {"count": body["count"]}
        case "not-json":
            return b"<html><body>upstream connect error</body></html>"
        case _:
            assert_never(fault.shape)

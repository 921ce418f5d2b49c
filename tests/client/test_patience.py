"""How long the client comes back by itself: a gateway that lets it in and closes at once is not asked for ever."""

import asyncio
import json
import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from controller.client.attach import Attach, AttachMode, AttachPlan, Farewell
from controller.client.identity import Presented
from controller.client.screen import Screen
from controller.client.settings import AttachTimes
from controller.client.way import Address
from controller.clock import Clock, SystemClock
from tests.client.test_screen import read_shown

TIMES = AttachTimes(
    patience=timedelta(seconds=1),
    first_patience=timedelta(seconds=1),
    first_delay=timedelta(milliseconds=10),
    longest_delay=timedelta(milliseconds=100),
    silence=timedelta(milliseconds=200),
)
PLAN = AttachPlan(namespace="team-a", name="one", mode=AttachMode.TAKE_OVER, keys=b"\x10", keys_words="ctrl-p")
SESSION = {"type": "session_info", "session_id": "7", "tty": True}
NOT_READY = {
    "type": "closed",
    "code": 1013,
    "reason": "NotReady",
    "message": "The operator does not guard this terminal yet. Try again.",
    "retry": True,
}
EXIT = {"type": "exit", "exit_code": 5}

Serve = Callable[[web.WebSocketResponse, int], Awaitable[None]]


class Nobody:
    """An identity without a proof, for a gateway that asks for none."""

    async def present(self, *, is_encrypted: bool) -> Presented:
        return Presented(None, None)

    async def renew(self, refused: Presented) -> Presented | None:
        return None


class Gateway:
    """The door, and nothing behind it but what a test says."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.queries: list[str] = []

    async def attach(self, request: web.Request) -> web.WebSocketResponse:
        self.queries.append(request.query_string)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await self.serve(socket, len(self.queries))
        await socket.close(code=1013)
        return socket

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/{path:.*}", self.attach)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int]]:
    """Standard input that never ends, and where remarks can be read."""
    input_read, input_write = os.pipe()
    error_read, error_write = os.pipe()
    yield input_read, error_read, error_write
    for descriptor in (input_read, input_write, error_read, error_write):
        os.close(descriptor)


class Waits(SystemClock):
    """A clock on which time passes by waiting alone, however long the machine takes for anything else."""

    def __init__(self) -> None:
        self.passed = timedelta(0)

    def monotonic(self) -> timedelta:
        return self.passed

    async def sleep(self, delay: timedelta) -> None:
        await super().sleep(delay)
        self.passed += delay


async def attach(
    gateway: Gateway, pipes: tuple[int, int, int], *, clock: Clock | None = None, times: AttachTimes = TIMES
) -> tuple[Farewell, str]:
    """Attach until the end, and give it with all that was said meanwhile."""
    input_read, error_read, error_write = pipes
    async with gateway.open() as url, asyncio.timeout(60):
        screen = Screen(input_read, error_write, error_write)
        farewell = await Attach(PLAN, Address(url), Nobody(), screen, clock or Waits(), times).run()
    return farewell, os.read(error_read, 65536).decode()


async def test_a_gateway_that_lets_in_and_closes_at_once_is_given_up_and_told_once(
    pipes: tuple[int, int, int],
) -> None:
    async def serve(socket: web.WebSocketResponse, _: int) -> None:
        await socket.send_str(json.dumps(NOT_READY))

    gateway = Gateway(serve)
    farewell, told = await attach(gateway, pipes, times=replace(TIMES, silence=timedelta(minutes=1)))

    assert farewell.exit_code == 255
    assert farewell.sentence.startswith("Given up after 1 s. The operator does not guard this terminal yet.")
    assert told == (
        "[aterm] The operator does not guard this terminal yet. `kubectl describe aterm` says what it waits for."
        " Trying again; ctrl-p or Ctrl-C leaves.\n"
    )
    assert 3 < len(gateway.queries) < 40
    # Nobody was there yet: the takeover that was asked for is still wanted.
    assert gateway.queries == ["takeover=true"] * len(gateway.queries)


async def test_a_session_that_was_there_makes_patience_new_and_coming_back_takes_nothing_over(
    pipes: tuple[int, int, int],
) -> None:
    clock = Waits()

    async def serve(socket: web.WebSocketResponse, number: int) -> None:
        await socket.send_str(json.dumps(SESSION))
        # Longer, all in all, than patience lasts.
        clock.passed += timedelta(seconds=0.4)
        await socket.send_str(json.dumps(EXIT if number == 4 else NOT_READY))

    gateway = Gateway(serve)
    farewell, told = await attach(gateway, pipes, clock=clock)

    assert farewell == Farewell(5)
    assert told.count("You are attached to team-a/one; ctrl-p leaves it.") == 1
    assert told.count("Reconnected to team-a/one.") == told.count("Reconnecting; ") == 3
    assert gateway.queries == ["takeover=true", "", "", ""]


NOTHING = "Left. Nothing was attached: team-a/one"


@pytest.mark.parametrize(
    ("said", "cue", "keys", "left"),
    [
        (NOT_READY, "Trying again;", "\x03", Farewell(130, NOTHING)),
        (NOT_READY, "Trying again;", "\x10", Farewell(0, NOTHING)),
        (None, "Waiting for the session", "\x03", Farewell(130, NOTHING)),
        (SESSION, "You are attached", "\x10", Farewell(0, "Detached. The session goes on: team-a/one")),
    ],
)
async def test_somebody_who_gives_up_before_there_was_a_session_is_told_so(
    said: dict[str, Any] | None, cue: str, keys: str, left: Farewell
) -> None:
    async def serve(socket: web.WebSocketResponse, _: int) -> None:
        if said is not None:
            await socket.send_str(json.dumps(said))
        if said != NOT_READY:
            await socket.receive()

    ours, theirs = os.openpty()
    try:
        async with Gateway(serve).open() as url, asyncio.timeout(30), asyncio.TaskGroup() as group:
            screen = Screen(theirs, theirs, theirs)
            times = replace(TIMES, first_patience=timedelta(seconds=60))
            running = group.create_task(Attach(PLAN, Address(url), Nobody(), screen, SystemClock(), times).run())
            shown = ""
            while cue not in shown:
                shown += (await asyncio.to_thread(read_shown, ours)).decode()
            os.write(ours, keys.encode())
        assert running.result() == left
        assert b"what you type is not sent" not in read_shown(ours)
    finally:
        os.close(ours)
        os.close(theirs)


async def test_a_session_that_lets_itself_be_awaited_is_said_to(pipes: tuple[int, int, int]) -> None:
    _, error_read, _ = pipes

    async def serve(socket: web.WebSocketResponse, _: int) -> None:
        await asyncio.to_thread(select.select, [error_read], [], [], 20)
        await socket.send_str(json.dumps(SESSION))
        await socket.send_str(json.dumps(EXIT))

    farewell, told = await attach(Gateway(serve), pipes)

    assert farewell == Farewell(5)
    assert told.splitlines() == [
        "[aterm] Waiting for the session of team-a/one; ctrl-p or Ctrl-C leaves.",
        "[aterm] You are attached to team-a/one; ctrl-p leaves it.",
    ]

import asyncio
from datetime import timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web

from controller.api.session import Cause
from controller.clock import SystemClock
from controller.errors import Failure
from controller.sprites.client import CommandResult, SpritesClient
from controller.sprites.errors import (
    Malformed,
    NotFound,
    OutputTooLarge,
    Rejected,
    ServerFault,
    SpritesError,
    TimedOut,
    Unauthorized,
    Unfinished,
    Unreachable,
)
from controller.sprites.reports import CallReport, Route, Settled
from controller.sprites.sockets import MESSAGE_BYTES
from controller.sprites.token import Token
from controller.tenure import Tenure, TenureEnded
from tests.sprites.conftest import MakeClient, choose_limits
from tests.sprites.server import (
    Counterpart,
    Do,
    Talk,
    answer,
    find_closed_port,
    read_stdin,
    serve_raw,
    talk,
    wait_for_leaving,
)

OUT, ERR, EXIT = b"\x01", b"\x02", b"\x03"


async def run(
    client: SpritesClient,
    token: Token,
    argv: tuple[str, ...] = ("curl", "-s"),
    *,
    stdin: bytes = b"",
    seconds: float = 5,
    output_bytes: int = 4096,
) -> CommandResult:
    return await client.run_command(
        token,
        "s1",
        argv,
        stdin=stdin,
        tenure=Tenure(1),
        cause=Cause.HOLD,
        time_limit=timedelta(seconds=seconds),
        output_bytes=output_bytes,
    )


def say(*messages: dict[str, object] | bytes, close: bool = False) -> Talk:
    """Read stdin, send messages, and then close, or linger until the client leaves."""

    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_json({"type": "session_info", "session_id": "9", "created": 1})
        await read_stdin(ws)
        for message in messages:
            if isinstance(message, bytes):
                await ws.send_bytes(message)
            else:
                await ws.send_json(message)
        if close:
            await ws.close(code=1000)
        else:
            await wait_for_leaving(ws)

    return script


async def test_a_command_is_fed_and_its_streams_and_code_are_given(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    async def script(ws: web.WebSocketResponse) -> None:
        stdin = await read_stdin(ws)
        await ws.send_bytes(OUT + stdin.upper())
        await ws.send_bytes(ERR + b"warning")
        await ws.send_bytes(OUT + b"!")
        await ws.send_bytes(EXIT + b"\x07")
        await wait_for_leaving(ws)

    counterpart.then(talk(script))

    assert await run(client, token, stdin=b"hello") == CommandResult(7, b"HELLO!", b"warning")

    address = urlsplit(counterpart.seen[0].target)
    assert address.path == "/v1/sprites/s1/exec"
    assert parse_qsl(address.query) == [("cmd", "curl"), ("cmd", "-s"), ("path", "curl"), ("stdin", "true")]
    assert [(report.route, report.outcome) for report in reports] == [(Route.RUN_COMMAND, Settled.SUCCESS)]


async def test_output_after_the_text_exit_is_not_lost(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "exit", "exit_code": 0}, OUT + b"late", EXIT + b"\x00")))

    assert await run(client, token) == CommandResult(0, b"late", b"")


async def test_the_binary_exit_outranks_the_text_one(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "exit", "exit_code": 0}, EXIT + b"\xff")))

    assert (await run(client, token)).exit_code == 255


async def test_a_text_exit_and_the_close_are_an_end_too(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "exit", "exit_code": 137}, OUT + b"x", close=True)))

    assert await run(client, token) == CommandResult(137, b"x", b"")


async def test_the_lingering_of_the_server_is_not_waited_for(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    release = asyncio.Event()

    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_bytes(EXIT + b"\x00")
        await asyncio.wait_for(release.wait(), 20)  # does not even read our close frame

    counterpart.then(talk(script))
    clock = SystemClock()
    began = clock.monotonic()

    assert (await run(client, token)).exit_code == 0

    assert clock.monotonic() - began < timedelta(seconds=15)
    release.set()


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [OUT + b"some"],
        [{"type": "exit"}],
        [{"type": "exit", "exit_code": "0"}],
        [{"type": "exit", "exit_code": True}],
        [{"type": "exit", "code": 0}],
        [b"\x00\x00", b"\x04", b"\x09x", b""],
    ],
)
async def test_a_close_without_an_exit_is_no_success(
    client: SpritesClient, counterpart: Counterpart, token: Token, messages: list[dict[str, object] | bytes]
) -> None:
    counterpart.then(talk(say(*messages, close=True)))

    with pytest.raises(Unfinished, match="without an exit"):
        await run(client, token)


async def test_what_an_error_frame_says_explains_the_missing_exit(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "error", "message": "no such directory"}, close=True)))

    with pytest.raises(Unfinished, match="no such directory"):
        await run(client, token)


@pytest.mark.parametrize("frame", [EXIT, EXIT + b"\x00\x00\x00\x00"])
async def test_an_exit_frame_that_is_not_one_byte_is_malformed(
    client: SpritesClient, counterpart: Counterpart, token: Token, frame: bytes
) -> None:
    counterpart.then(talk(say(frame)))

    with pytest.raises(Malformed):
        await run(client, token)


@pytest.mark.case("U7")
async def test_a_command_that_never_ends_is_left_when_its_time_is_over(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    left = asyncio.Event()

    async def script(ws: web.WebSocketResponse) -> None:
        try:
            await wait_for_leaving(ws)
        finally:
            left.set()

    counterpart.then(talk(script))

    with pytest.raises(TimedOut, match=r"longer than 0\.2 s"):
        await run(client, token, seconds=0.2)

    await asyncio.wait_for(left.wait(), 5)
    assert [report.outcome for report in reports] == [Failure.TIMED_OUT]


@pytest.mark.case("U7")
@pytest.mark.parametrize(
    ("out", "err", "fits"), [(4096, 0, True), (4097, 0, False), (4000, 97, False), (0, 4097, False)]
)
async def test_output_above_the_limit_fails_the_command(
    *, client: SpritesClient, counterpart: Counterpart, token: Token, out: int, err: int, fits: bool
) -> None:
    counterpart.then(talk(say(OUT + b"o" * out, ERR + b"e" * err, EXIT + b"\x00")))

    if fits:
        assert len((await run(client, token)).stdout) == out
    else:
        with pytest.raises(OutputTooLarge, match="more than 4096 bytes") as raised:
            await run(client, token)
        assert raised.value.failure is Failure.MALFORMED


async def test_a_single_message_above_the_bound_fails_the_command(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "exit", "exit_code": 0}, OUT + b"o" * MESSAGE_BYTES)))

    with pytest.raises(OutputTooLarge):
        await run(client, token, output_bytes=100 * MESSAGE_BYTES)


async def test_much_input_and_much_output_do_not_wait_for_each_other(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    size = 8 * 1024 * 1024

    async def script(ws: web.WebSocketResponse) -> None:
        # Writes everything before it reads anything, as a command may do.
        for _ in range(size // 65536):
            await ws.send_bytes(OUT + b"o" * 65536)
        stdin = await read_stdin(ws)
        await ws.send_bytes(ERR + str(len(stdin)).encode())
        await ws.send_bytes(EXIT + b"\x00")

    counterpart.then(talk(script))

    result = await run(client, token, stdin=b"i" * size, seconds=30, output_bytes=2 * size)

    assert (len(result.stdout), result.stderr) == (size, str(size).encode())


async def test_a_command_may_end_before_it_has_read_all(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_bytes(EXIT + b"\x01")
        await ws.close()

    counterpart.then(talk(script))

    assert (await run(client, token, stdin=b"i" * 8 * 1024 * 1024)).exit_code == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(401, Unauthorized), (404, NotFound), (500, ServerFault), (503, ServerFault), (400, Rejected)]
)
async def test_a_refused_upgrade_is_named_by_its_status(
    client: SpritesClient, counterpart: Counterpart, token: Token, status: int, kind: type[SpritesError]
) -> None:
    counterpart.then(answer(status))

    with pytest.raises(kind, match=f"HTTP {status}") as raised:
        await run(client, token)
    assert raised.value.status == status


@pytest.mark.parametrize(("script", "kind"), [([], Unreachable), ([Do.RESET], Unreachable), ([Do.STALL], TimedOut)])
async def test_an_upgrade_without_an_answer_is_named(
    make_client: MakeClient, token: Token, script: list[bytes | Do], kind: type[SpritesError]
) -> None:
    async with serve_raw(*script) as raw:
        with pytest.raises(kind):
            await run(make_client(raw.url, **choose_limits(script)), token)


async def test_nobody_listening_is_unreachable(make_client: MakeClient, token: Token) -> None:
    with pytest.raises(Unreachable):
        await run(make_client(f"http://127.0.0.1:{find_closed_port()}"), token)


async def test_a_cut_connection_is_no_success(client: SpritesClient, counterpart: Counterpart, token: Token) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        await ws.send_bytes(OUT + b"half")
        await asyncio.sleep(0.05)
        assert request.transport is not None
        request.transport.abort()
        return ws

    counterpart.then(handle)

    with pytest.raises(Unfinished, match="without an exit"):
        await run(client, token)


async def test_without_tenure_no_command_is_run(client: SpritesClient, counterpart: Counterpart, token: Token) -> None:
    tenure = Tenure(1)
    tenure.end()

    with pytest.raises(TenureEnded):
        await client.run_command(
            token,
            "s1",
            ["true"],
            stdin=b"",
            tenure=tenure,
            cause=Cause.HOLD,
            time_limit=timedelta(seconds=1),
            output_bytes=1,
        )
    assert counterpart.seen == []


class EndingTenure(Tenure):
    """Ends at the demand after so many."""

    def __init__(self, *, demands: int) -> None:
        super().__init__(1)
        self._left = demands

    def demand(self) -> None:
        if self._left == 0:
            self.end()
        self._left -= 1
        super().demand()


async def test_a_term_that_ends_between_the_upgrade_and_the_input_keeps_the_input_back(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    received: list[bytes] = []

    async def script(ws: web.WebSocketResponse) -> None:
        received.extend([message.data async for message in ws])

    counterpart.then(talk(script))

    with pytest.raises(TenureEnded):
        await client.run_command(
            token,
            "s1",
            ["sh"],
            stdin=b"a script with secrets",
            tenure=EndingTenure(demands=2),
            cause=Cause.LAUNCH,
            time_limit=timedelta(seconds=20),
            output_bytes=1,
        )

    assert len(counterpart.seen) == 1
    assert received == []
    assert reports == []


async def test_we_ping_and_a_socket_that_does_not_answer_is_dead(
    counterpart: Counterpart, make_client: MakeClient, token: Token
) -> None:
    release = asyncio.Event()

    async def script(_ws: web.WebSocketResponse) -> None:
        await asyncio.wait_for(release.wait(), 20)  # reads nothing, so it answers no ping

    counterpart.then(talk(script))
    quick = timedelta(milliseconds=50)
    client = make_client(counterpart.url, ping_every=quick, pong_limit=quick)

    with pytest.raises(Unfinished):
        await run(client, token)
    release.set()


async def test_we_answer_pings(client: SpritesClient, counterpart: Counterpart, token: Token) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(autoping=False)
        await ws.prepare(request)
        await ws.ping(b"there?")
        while (await ws.receive()).type is not web.WSMsgType.PONG:
            pass
        await ws.send_bytes(EXIT + b"\x00")
        return ws

    counterpart.then(handle)

    assert (await run(client, token)).exit_code == 0

"""An attachment against a server that follows a script: what the emulator, being decent, never does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from aiohttp import WSMsgType, web

from controller.api.session import Announced, Cause
from controller.sprites.attach import (
    UNCONFIRMED_BYTES,
    AttachFrame,
    Attachment,
    AttachmentEnded,
    Exit,
    Told,
    Typed,
    split_input,
)
from controller.sprites.client import SpritesClient
from controller.sprites.errors import Missing, NotFound, SpritesError, TimedOut, Unfinished
from controller.sprites.exec_frames import STDIN_FRAME_BYTES, Framing
from controller.sprites.reports import CallReport, Route, Settled
from controller.sprites.token import Token
from controller.tenure import Tenure, TenureEnded
from tests.sprites.conftest import SECRET, MakeClient
from tests.sprites.server import Counterpart, Handler, Talk, answer, talk, wait_for_leaving

CREATED = 1_788_264_000
INFO = {"type": "session_info", "session_id": "17", "created": CREATED, "command": "sh", "cols": 0, "rows": 0}
TERMINAL = INFO | {"tty": True}
COMMAND = INFO | {"tty": False}

Say = dict[str, object] | str | bytes


def say(*messages: Say, then: Talk = wait_for_leaving) -> Talk:  # type: ignore[assignment]  # the code is nobody's
    async def script(ws: web.WebSocketResponse) -> None:
        for message in messages:
            match message:
                case bytes():
                    await ws.send_bytes(message)
                case str():
                    await ws.send_str(message)
                case _:
                    await ws.send_json(message)
        await then(ws)

    return script


async def drop(ws: web.WebSocketResponse) -> None:
    transport = ws._req.transport if ws._req is not None else None
    assert transport is not None
    transport.close()


def close(code: int) -> Talk:
    async def script(ws: web.WebSocketResponse) -> None:
        await ws.close(code=code)

    return script


def talk_without_pongs(script: Talk) -> Handler:
    """Accept an upgrade, and answer no ping."""

    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse(autoping=False, max_msg_size=0, timeout=0.2)
        await ws.prepare(request)
        await script(ws)
        return ws

    return handle


@asynccontextmanager
async def attached(client: SpritesClient, token: Token, *, typing: Tenure | None = None) -> AsyncIterator[Attachment]:
    cause = Cause.VIEW if typing is None else Cause.ATTACH
    async with (
        client.attach_session(token, "s1", "17", typing=typing, cause=cause) as attachment,
        asyncio.TaskGroup() as group,
    ):
        confirmation = group.create_task(attachment.confirm())
        yield attachment
        confirmation.cancel()


async def read_all(attachment: Attachment) -> list[AttachFrame]:
    frames: list[AttachFrame] = []
    async with asyncio.timeout(30):
        while True:
            frame = await attachment.receive()
            frames.append(frame)
            if isinstance(frame, Exit):
                return frames


def always() -> bool:
    return True


# --- opening ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("typing", "stdin", "cause"), [(Tenure(1), "true", "attach"), (None, "false", "view")])
async def test_an_attach_asks_for_the_session_by_its_path_and_says_whether_it_types(
    typing: Tenure | None,
    stdin: str,
    cause: str,
    client: SpritesClient,
    counterpart: Counterpart,
    token: Token,
    reports: list[CallReport],
) -> None:
    counterpart.then(talk(say(TERMINAL)))

    async with attached(client, token, typing=typing) as attachment:
        assert attachment.announced == Announced(id="17", created=datetime(2026, 9, 1, 12, tzinfo=UTC))
        assert attachment.framing is Framing.RAW

    (seen,) = counterpart.seen
    address = urlsplit(seen.target)
    assert (address.path, address.query) == ("/v1/sprites/s1/exec/17", f"stdin={stdin}")
    assert seen.headers["Agentterminal-Cause"] == cause
    assert [(report.route, report.outcome) for report in reports] == [(Route.ATTACH_SESSION, Settled.SUCCESS)]


@pytest.mark.parametrize(
    ("info", "framing"), [(TERMINAL, Framing.RAW), (COMMAND, Framing.NUMBERED), (INFO, Framing.RAW)]
)
async def test_the_session_itself_says_how_it_frames(
    info: dict[str, object], framing: Framing, client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "debug"}, b"before", info)))

    async with attached(client, token) as attachment:
        assert attachment.framing is framing


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (answer(404, "session not found: 17"), NotFound),
        (talk(say({"type": "debug"}, {"type": "session_info"})), TimedOut),
        (talk(say({"type": "error", "message": f"bad {SECRET}"}, then=close(1011))), Unfinished),
        (talk(say(then=drop)), Unfinished),
    ],
)
async def test_whoever_does_not_announce_a_session_is_given_to_nobody(
    handler: Handler,
    kind: type[SpritesError],
    counterpart: Counterpart,
    token: Token,
    make_client: MakeClient,
    reports: list[CallReport],
) -> None:
    counterpart.then(handler)
    client = make_client(counterpart.url, announce_limit=timedelta(milliseconds=300))

    with pytest.raises(kind) as refused:
        async with attached(client, token):
            raise AssertionError("it was given out")

    assert SECRET not in str(refused.value)
    assert [report.outcome for report in reports] == [kind.failure]
    if isinstance(refused.value, NotFound):
        assert refused.value.missing is Missing.SESSION


async def test_nothing_is_opened_to_type_once_the_tenure_has_ended(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    tenure = Tenure(1)
    tenure.end()

    with pytest.raises(TenureEnded):
        async with attached(client, token, typing=tenure):
            raise AssertionError("it was given out")

    assert counterpart.seen == []


# --- what comes -------------------------------------------------------------------------------------------------------

EXIT_TEXT: Say = {"type": "exit", "exit_code": 3}


@pytest.mark.parametrize(
    ("script", "frames"),
    [
        pytest.param(say(TERMINAL, b"out", EXIT_TEXT, then=drop), [b"out", Exit(3)], id="a terminal's drop after exit"),
        pytest.param(say(TERMINAL, EXIT_TEXT, b"late", then=close(1000)), [b"late", Exit(3)], id="output after exit"),
        pytest.param(say(TERMINAL, EXIT_TEXT), [Exit(3)], id="an exit, and no end of the socket"),
        pytest.param(say(TERMINAL, b"\x03\x07", EXIT_TEXT, then=drop), [b"\x03\x07", Exit(3)], id="raw bytes"),
        pytest.param(
            say(COMMAND, EXIT_TEXT, b"\x01late", b"\x02err", b"\x03\x07"),
            [b"\x01late", b"\x02err", Exit(7)],
            id="the numbered exit is last and counts",
        ),
        pytest.param(say(COMMAND, b"\x01x", b"\x03\xff"), [b"\x01x", Exit(255)], id="no text at all"),
        pytest.param(say(COMMAND, EXIT_TEXT, then=close(1000)), [Exit(3)], id="a text exit and the close"),
        pytest.param(
            say(TERMINAL, '{"type":"port_opened","port":1}', "not json", TERMINAL, EXIT_TEXT, then=drop),
            [Told('{"type":"port_opened","port":1}'), Told("not json"), Exit(3)],
            id="other text",
        ),
    ],
)
async def test_frames_come_in_order_and_the_exit_comes_last(
    script: Talk, frames: list[AttachFrame], client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(script))

    async with attached(client, token) as attachment:
        assert await read_all(attachment) == frames


@pytest.mark.parametrize("end", [drop, close(1000), close(1011)])
@pytest.mark.parametrize("info", [TERMINAL, COMMAND])
async def test_a_socket_that_ends_without_an_exit_is_no_exit(
    end: Talk, info: dict[str, object], client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say(info, b"\x01out", then=end)))

    async with attached(client, token) as attachment:
        with pytest.raises(AttachmentEnded):
            await read_all(attachment)


async def test_a_lost_pong_ends_the_socket_and_a_silence_does_not(
    counterpart: Counterpart, token: Token, make_client: MakeClient
) -> None:
    client = make_client(counterpart.url, ping_every=timedelta(milliseconds=50), pong_limit=timedelta(milliseconds=300))
    ended: list[bool] = []
    # A machine that stands still between a ping and its pong loses that pong.
    while all(ended) and len(ended) < 3:
        counterpart.then(talk(say(TERMINAL)))
        async with attached(client, token) as attachment:
            try:
                async with asyncio.timeout(1):
                    await attachment.receive()
            except (TimeoutError, AttachmentEnded) as error:
                ended.append(isinstance(error, AttachmentEnded))
    assert ended[-1] is False

    counterpart.then(talk_without_pongs(say(TERMINAL)))
    async with attached(client, token) as attachment:
        with pytest.raises(AttachmentEnded):
            async with asyncio.timeout(30):
                await attachment.receive()


# --- what goes --------------------------------------------------------------------------------------------------------


class Listener:
    """Reads what is typed, and answers pings only as long as it is told to."""

    def __init__(self, *, answers: bool = True) -> None:
        self.heard: list[str | bytes] = []
        self.code: int | None = None
        self.pinged = 0
        self.answers = asyncio.Event()
        self.answer_once = asyncio.Event()
        self._news = asyncio.Event()
        if answers:
            self.answers.set()

    async def __call__(self, ws: web.WebSocketResponse) -> None:
        await ws.send_json(TERMINAL)
        while True:
            message = await ws.receive()
            match message.type:
                case WSMsgType.TEXT | WSMsgType.BINARY:
                    self.heard.append(message.data)
                case WSMsgType.PING:
                    self.pinged += 1
                    self._news.set()
                    await self._may_answer()
                    await ws.pong(message.data)
                case _:
                    self.code = ws.close_code
                    self._news.set()
                    return
            self._news.set()

    async def _may_answer(self) -> None:
        once, always = asyncio.ensure_future(self.answer_once.wait()), asyncio.ensure_future(self.answers.wait())
        try:
            await asyncio.wait({once, always}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            once.cancel()
            always.cancel()
            self.answer_once.clear()

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not met():
                self._news.clear()
                await self._news.wait()


async def test_input_sizes_and_signals_go_in_order_and_are_confirmed(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener()
    counterpart.then(talk_without_pongs(listener))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        assert await attachment.send_resize(columns=100, rows=30, may_type=always) is Typed.SENT
        assert await attachment.send_input(b"ls\r", may_type=always) is Typed.SENT
        assert await attachment.send_signal("INT", may_type=always) is Typed.SENT
        assert await attachment.drain() == 0

    assert listener.heard == ['{"type":"resize","cols":100,"rows":30}', b"ls\r", '{"type":"signal","signal":"INT"}']
    assert listener.code == 1000


async def test_no_more_than_the_limit_is_ever_on_its_way(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener(answers=False)
    counterpart.then(talk_without_pongs(listener))
    data = b"".join(b"%07d\n" % number for number in range(40_000))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        most = 0

        def may_type() -> bool:
            nonlocal most
            most = max(most, attachment.unconfirmed_bytes)
            return True

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(attachment.send_input(data, may_type=may_type))
            await listener.until(lambda: attachment.unconfirmed_bytes == UNCONFIRMED_BYTES)
            done, _ = await asyncio.wait({sending}, timeout=0.2)
            assert not done
            assert sum(map(len, listener.heard)) <= UNCONFIRMED_BYTES
            listener.answers.set()
            assert await sending is Typed.SENT
        assert await attachment.drain() == 0

    assert b"".join(frame for frame in listener.heard if isinstance(frame, bytes)) == data
    assert most + STDIN_FRAME_BYTES <= UNCONFIRMED_BYTES


async def test_nothing_that_is_typed_waits_inside_this_process_behind_what_it_was_judged_by(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk_without_pongs(Listener()))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        transport = attachment._socket._connection.transport

        assert transport.get_write_buffer_limits() == (0, 0)


async def test_a_pong_confirms_what_was_sent_before_its_ping_and_nothing_else(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener(answers=False)
    counterpart.then(talk_without_pongs(listener))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        await attachment.send_input(b"12345", may_type=always)
        await listener.until(lambda: listener.pinged == 1)
        await attachment.send_input(b"678", may_type=always)
        listener.answer_once.set()
        await listener.until(lambda: listener.pinged == 2)

        assert listener.heard == [b"12345", b"678"]
        assert attachment.unconfirmed_bytes == 3
        listener.answers.set()
        assert await attachment.drain() == 0


async def test_what_no_pong_confirmed_is_counted_by_a_drain_and_the_socket_is_cut(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener(answers=False)
    counterpart.then(talk_without_pongs(listener))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        await attachment.send_input(b"x" * 1000, may_type=always)
        assert await attachment.drain(limit=timedelta(milliseconds=200)) == 1000
        with pytest.raises(AttachmentEnded):
            await attachment.receive()
        assert await attachment.send_input(b"more", may_type=always) is Typed.HALTED
        listener.answers.set()

    assert b"more" not in listener.heard


async def test_a_drain_of_what_broke_already_counts_what_was_not_confirmed(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_json(TERMINAL)
        await ws.receive()
        await drop(ws)

    counterpart.then(talk_without_pongs(script))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        await attachment.send_input(b"12345", may_type=always)
        with pytest.raises(AttachmentEnded):
            await attachment.receive()
        assert await attachment.drain() == 5


async def test_an_abort_cuts_at_once_and_tells_what_was_on_its_way(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener(answers=False)
    counterpart.then(talk_without_pongs(listener))

    async with attached(client, token, typing=Tenure(1)) as attachment:
        await attachment.send_input(b"12345", may_type=always)
        assert attachment.abort() == 5
        assert attachment.abort() == 5
        listener.answers.set()


async def test_each_piece_of_input_is_asked_for_directly_before_it_is_written(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener()
    counterpart.then(talk_without_pongs(listener))
    allowed = [True, True, False]

    async with attached(client, token, typing=Tenure(1)) as attachment:
        typed = await attachment.send_input(b"x" * (3 * STDIN_FRAME_BYTES), may_type=lambda: allowed.pop(0))
        assert typed is Typed.HALTED
        assert await attachment.drain() == 0

    assert listener.heard == [b"x" * STDIN_FRAME_BYTES] * 2


async def test_a_drain_lets_no_input_pass_that_waited_for_room(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    listener = Listener(answers=False)
    counterpart.then(talk_without_pongs(listener))

    async with attached(client, token, typing=Tenure(1)) as attachment, asyncio.TaskGroup() as group:
        sending = group.create_task(attachment.send_input(b"x" * (1 << 20), may_type=always))
        await listener.until(lambda: attachment.unconfirmed_bytes == UNCONFIRMED_BYTES)
        draining = group.create_task(attachment.drain())
        assert await sending is Typed.HALTED
        listener.answers.set()
        assert await draining == 0

    assert sum(map(len, listener.heard)) == UNCONFIRMED_BYTES


@pytest.mark.parametrize(
    ("frame", "framing", "pieces"),
    [
        (b"", Framing.RAW, [b""]),
        (b"a" * STDIN_FRAME_BYTES, Framing.RAW, [b"a" * STDIN_FRAME_BYTES]),
        (b"a" * STDIN_FRAME_BYTES + b"b", Framing.RAW, [b"a" * STDIN_FRAME_BYTES, b"b"]),
        (b"\x00" + b"a" * STDIN_FRAME_BYTES + b"b", Framing.NUMBERED, [b"\x00" + b"a" * STDIN_FRAME_BYTES, b"\x00b"]),
        (b"\x04", Framing.NUMBERED, [b"\x04"]),
    ],
)
def test_long_input_is_cut_and_each_piece_keeps_its_stream(frame: bytes, framing: Framing, pieces: list[bytes]) -> None:
    assert list(split_input(frame, framing)) == pieces


# --- output that nobody wants -----------------------------------------------------------------------------------------


PORT: Say = {"type": "port_opened", "port": 8080}


async def speak_when_typed_to(ws: web.WebSocketResponse) -> None:
    await ws.receive()
    await say(b"output", PORT, b"more", bytes([3, 7]), {"type": "exit", "exit_code": 7}, then=drop)(ws)


@pytest.mark.parametrize(("kind", "output"), [(TERMINAL, []), (COMMAND, [b"output", b"more"])], ids=["raw", "numbered"])
async def test_output_that_nobody_wants_is_thrown_away_and_everything_else_is_told(
    counterpart: Counterpart, client: SpritesClient, token: Token, kind: dict[str, object], output: list[bytes]
) -> None:
    counterpart.then(talk(say(kind, then=speak_when_typed_to)))
    async with attached(client, token, typing=Tenure(1)) as attachment:
        attachment.ignore_output()
        assert await attachment.send_input(b"\x00go", may_type=always) is Typed.SENT
        frames = await read_all(attachment)

    assert [frame for frame in frames if isinstance(frame, bytes)] == output
    assert [type(frame) for frame in frames if not isinstance(frame, bytes)] == [Told, Exit]
    assert frames[-1] == Exit(7)


async def test_what_nobody_wants_delays_no_pong(counterpart: Counterpart, client: SpritesClient, token: Token) -> None:
    async def flood(ws: web.WebSocketResponse) -> None:
        await ws.receive()
        for _ in range(200):
            await ws.send_bytes(b"x" * 8192)
        await wait_for_leaving(ws)

    counterpart.then(talk(say(TERMINAL, then=flood)))
    async with attached(client, token, typing=Tenure(1)) as attachment:
        attachment.ignore_output()
        assert await attachment.send_input(b"go", may_type=always) is Typed.SENT
        # Nobody receives: the pong is seen although 1.6 MB lie before it.
        assert await attachment.drain() == 0

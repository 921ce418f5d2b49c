import asyncio
import json
import socket
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web

from controller.api.session import Announced, Cause
from controller.errors import Failure
from controller.sprites.client import CAUSE_HEADER, SpritesClient
from controller.sprites.errors import (
    Conflict,
    Forbidden,
    Gone,
    LaunchUnclear,
    Missing,
    NotFound,
    Redirected,
    Rejected,
    ServerFault,
    SpritesError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from controller.sprites.reports import CallReport, Route, Settled
from controller.sprites.sockets import MESSAGE_BYTES
from controller.sprites.token import Token
from controller.tenure import Tenure, TenureEnded
from tests.sprites.conftest import SECRET, SHORT, MakeClient, choose_limits
from tests.sprites.server import (
    Counterpart,
    Do,
    Talk,
    answer,
    answer_json,
    find_closed_port,
    serve_raw,
    talk,
    wait_for_leaving,
)

CREATED = 1_788_264_000
INFO = {"type": "session_info", "session_id": "17", "created": CREATED, "command": "sh", "cols": 0, "rows": 0}
ANNOUNCED = Announced(id="17", created=datetime(2026, 9, 1, 12, tzinfo=UTC))


async def launch(client: SpritesClient, token: Token, tenure: Tenure | None = None) -> Announced:
    return await client.launch_session(
        token,
        "s1",
        ["/bin/sh", "/dev/shm/aterm-n0nce"],
        columns=120,
        rows=40,
        tenure=tenure or Tenure(1),
        cause=Cause.LAUNCH,
    )


def say(*messages: dict[str, object] | str | bytes, then_close: int | None = None) -> Talk:
    """Send messages, then wait for the client to leave, or close with a code."""

    async def script(ws: web.WebSocketResponse) -> None:
        for message in messages:
            match message:
                case bytes():
                    await ws.send_bytes(message)
                case str():
                    await ws.send_str(message)
                case _:
                    await ws.send_json(message)
        if then_close is None:
            await wait_for_leaving(ws)
        else:
            await ws.close(code=then_close)

    return script


async def test_a_launch_asks_for_a_terminal_that_outlives_its_socket(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    counterpart.then(talk(say(INFO)))

    assert await launch(client, token) == ANNOUNCED

    (seen,) = counterpart.seen
    address = urlsplit(seen.target)
    assert (seen.method, address.path) == ("GET", "/v1/sprites/s1/exec")
    assert parse_qsl(address.query, keep_blank_values=True) == [
        ("cmd", "/bin/sh"),
        ("cmd", "/dev/shm/aterm-n0nce"),
        ("path", "/bin/sh"),
        ("tty", "true"),
        ("cols", "120"),
        ("rows", "40"),
        ("max_run_after_disconnect", "0"),
    ]
    assert seen.headers["Authorization"] == f"Bearer {SECRET}"
    assert seen.headers[CAUSE_HEADER] == "launch"
    assert seen.headers["User-Agent"] == "agentterminal-operator/0.1.0"
    assert "Sec-WebSocket-Extensions" not in seen.headers
    assert [(report.route, report.outcome, report.sprite) for report in reports] == [
        (Route.LAUNCH_SESSION, Settled.SUCCESS, "s1")
    ]


async def test_the_socket_is_closed_properly_once_the_session_is_known(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    codes: asyncio.Queue[int | None] = asyncio.Queue()

    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_json(INFO)
        codes.put_nowait(await wait_for_leaving(ws))

    counterpart.then(talk(script))

    await launch(client, token)

    assert await asyncio.wait_for(codes.get(), 5) == 1000


@pytest.mark.parametrize("session_id", ["17", 17])
@pytest.mark.parametrize("created", [CREATED, float(CREATED), "2026-09-01T12:00:00Z"])
async def test_the_identity_is_read_in_every_form_that_was_seen(
    client: SpritesClient, counterpart: Counterpart, token: Token, session_id: str | int, created: object
) -> None:
    counterpart.then(talk(say(INFO | {"session_id": session_id, "created": created})))

    assert await launch(client, token) == ANNOUNCED


async def test_what_comes_before_the_announcement_is_passed_over(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    before: list[dict[str, object] | str | bytes] = [
        {"type": "debug", "msg": "session created", "pid": 17},
        "not json",
        "[1]",
        "[" * 5000,
        "",
        b"\x1b[2Jprompt",
        b"",
        {"type": "session_info"},
        {"type": "session_info", "session_id": "", "created": CREATED},
        {"type": "session_info", "session_id": True, "created": CREATED},
        {"type": "session_info", "session_id": "9", "created": "yesterday"},
        {"type": ["session_info"]},
        {"type": "port_opened", "port": 8080},
    ]
    counterpart.then(talk(say(*before, INFO)))

    assert await launch(client, token) == ANNOUNCED


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, Redirected),
        (400, Rejected),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Rejected),
        (429, Throttled),
        (500, ServerFault),
    ],
)
async def test_a_launch_that_was_refused_before_the_upgrade_did_not_start(
    *,
    client: SpritesClient,
    counterpart: Counterpart,
    token: Token,
    reports: list[CallReport],
    status: int,
    kind: type[SpritesError],
) -> None:
    counterpart.then(answer(status, '{"error": "because"}', Location=f"{counterpart.url}/x", Retry_After="5"))

    with pytest.raises(kind, match=rf"Launching .* HTTP {status} \(because\)") as raised:
        await launch(client, token)

    assert not isinstance(raised.value, LaunchUnclear)
    assert raised.value.status == status
    assert raised.value.retry_after == timedelta(seconds=5)
    assert len(counterpart.seen) == 1
    assert [report.outcome for report in reports] == [kind.failure]


async def test_a_404_to_a_launch_tells_what_is_missing(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer_json({"error": "sprite not found"}, 404))

    with pytest.raises(NotFound) as raised:
        await launch(client, token)
    assert raised.value.missing is Missing.SPRITE


@pytest.mark.parametrize("status", [200, 204, 501, 502, 503, 504, 520, 599])
async def test_an_answer_of_an_edge_leaves_a_launch_unclear(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport], status: int
) -> None:
    counterpart.then(answer(status, "<html>bad gateway</html>" if status != 204 else ""))

    with pytest.raises(LaunchUnclear, match=f"HTTP {status}.*may have started") as raised:
        await launch(client, token)

    assert raised.value.status == status
    assert [report.outcome for report in reports] == [Failure.UNFINISHED]


async def test_nobody_listening_means_that_nothing_was_sent(make_client: MakeClient, token: Token) -> None:
    with pytest.raises(Unreachable, match="before anything was sent"):
        await launch(make_client(f"http://127.0.0.1:{find_closed_port()}"), token)


async def test_an_unknown_host_means_that_nothing_was_sent(
    make_client: MakeClient, token: Token, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def know_nobody(*_args: object, **_kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", know_nobody)

    with pytest.raises(Unreachable, match=r"before anything was sent: .*not known"):
        await launch(make_client("https://sprites.invalid"), token)


async def test_no_tls_means_that_nothing_was_sent(
    make_client: MakeClient, counterpart: Counterpart, token: Token
) -> None:
    # The plain server answers the TLS greeting with an error in plain text.
    with pytest.raises(Unreachable, match="before anything was sent"):
        await launch(make_client(counterpart.url.replace("http://", "https://")), token)

    assert counterpart.seen == []


async def test_a_connection_that_is_not_made_in_time_means_that_nothing_was_sent(
    make_client: MakeClient, token: Token
) -> None:
    async with serve_raw(Do.STALL) as raw:  # TLS begins and is never answered
        client = make_client(raw.url.replace("http://", "https://"), connect_limit=timedelta(milliseconds=200))
        with pytest.raises(Unreachable, match=r"no connection within 0\.2 s"):
            await launch(client, token)


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    "script",
    [
        [],
        [Do.RESET],
        [Do.STALL],
        [b"HTTP/1.1 101 Switching Protocols\r\n", Do.STALL],
        [b"HTTP/1.1 101 Switching Protocols\r\n"],
        [b"SSH-2.0-nothing\r\n\r\n"],
        [SWITCH + b"\r\n"],
        [SWITCH + b"Sec-WebSocket-Accept: wrong\r\n\r\n", Do.STALL],
        [b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 50\r\n\r\nhalf"],
    ],
    ids=str,
)
async def test_a_request_that_was_sent_and_not_answered_leaves_a_launch_unclear(
    make_client: MakeClient, token: Token, reports: list[CallReport], script: list[bytes | Do]
) -> None:
    async with serve_raw(*script) as raw:
        with pytest.raises(LaunchUnclear, match="may have started"):
            await launch(make_client(raw.url, **choose_limits(script)), token)

    assert len(raw.requests) == 1
    assert [report.outcome for report in reports] == [Failure.UNFINISHED]


@pytest.mark.parametrize(
    "script",
    [
        say(then_close=1000),
        say(then_close=1011),
        say({"type": "exit", "exit_code": 0}, then_close=1000),
        say(b"output", then_close=1000),
        say({"type": "session_info", "session_id": "17"}, then_close=1000),
        say(INFO | {"command": "x" * MESSAGE_BYTES}),
    ],
)
async def test_a_socket_that_ends_before_the_announcement_leaves_a_launch_unclear(
    client: SpritesClient, counterpart: Counterpart, token: Token, script: Talk
) -> None:
    counterpart.then(talk(script))

    with pytest.raises(LaunchUnclear, match="before `session_info`"):
        await launch(client, token)


async def test_text_that_is_no_unicode_leaves_a_launch_unclear(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    async def script(ws: web.WebSocketResponse) -> None:
        assert ws._writer is not None
        await ws._writer.send_frame(b"\xff\xfe", 1)
        await wait_for_leaving(ws)

    counterpart.then(talk(script))

    with pytest.raises(LaunchUnclear):
        await launch(client, token)


async def test_a_socket_that_is_cut_before_the_announcement_leaves_a_launch_unclear(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        return ws

    counterpart.then(handle)

    with pytest.raises(LaunchUnclear, match="the connection was cut before"):
        await launch(client, token)


async def test_a_silent_socket_leaves_a_launch_unclear_after_the_limit(
    make_client: MakeClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(talk(say({"type": "error", "message": "no such file"})))

    with pytest.raises(LaunchUnclear, match=r"no `session_info` within 0\.8 s \(no such file\)"):
        await launch(make_client(counterpart.url, announce_limit=SHORT["announce_limit"]), token)


async def test_without_tenure_no_connection_is_made(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    tenure = Tenure(1)
    tenure.end()

    with pytest.raises(TenureEnded):
        await launch(client, token, tenure)
    assert counterpart.seen == []
    assert reports == []


async def test_a_term_that_ends_while_the_connection_is_made_stops_the_launch(
    make_client: MakeClient, token: Token, reports: list[CallReport]
) -> None:
    tenure = Tenure(1)

    async def end_soon() -> None:
        await asyncio.sleep(0)
        tenure.end()

    async with serve_raw(Do.STALL) as raw:
        with pytest.raises(TenureEnded):
            await asyncio.gather(launch(make_client(raw.url), token, tenure), end_soon())

    assert raw.requests == []
    assert reports == []


@pytest.mark.parametrize("argv", [[], [""], ["sh", "\ud800"]])
async def test_a_command_that_no_address_can_hold_is_rejected_before_anything_is_sent(
    client: SpritesClient, counterpart: Counterpart, token: Token, argv: list[str]
) -> None:
    with pytest.raises(Rejected, match="nothing was sent"):
        await client.launch_session(token, "s1", argv, columns=80, rows=24, tenure=Tenure(1), cause=Cause.LAUNCH)
    assert counterpart.seen == []


async def test_words_arrive_as_they_were_given(client: SpritesClient, counterpart: Counterpart, token: Token) -> None:
    argv = ["sh", "-c", "echo a+b & c=d? #1 %41 'ü'\n", ""]
    counterpart.then(talk(say(INFO)))

    await client.launch_session(token, "a/b", argv, columns=80, rows=24, tenure=Tenure(1), cause=Cause.LAUNCH)

    address = urlsplit(counterpart.seen[0].target)
    words = [value for key, value in parse_qsl(address.query, keep_blank_values=True) if key == "cmd"]
    assert (address.path, words) == ("/v1/sprites/a%2Fb/exec", argv)


async def test_a_redirect_does_not_carry_the_token_elsewhere(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer(307, Location=f"{counterpart.url}/other".replace("http", "ws")), talk(say(INFO)))

    with pytest.raises(Redirected):
        await launch(client, token)
    assert len(counterpart.seen) == 1


async def test_a_launch_that_its_caller_gives_up_leaves_no_connection(
    make_client: MakeClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    came, left = asyncio.Event(), asyncio.Event()

    async def script(ws: web.WebSocketResponse) -> None:
        came.set()
        try:
            await wait_for_leaving(ws)
        finally:
            left.set()

    counterpart.then(talk(script))
    client = make_client(counterpart.url, announce_limit=timedelta(seconds=30))
    async with asyncio.TaskGroup() as group:
        launching = group.create_task(launch(client, token))
        await asyncio.wait_for(came.wait(), 30)
        launching.cancel()

    await asyncio.wait_for(left.wait(), 30)
    assert [report.outcome for report in reports] == [Settled.CANCELLED]


def test_the_frames_of_this_page_are_those_of_the_contract() -> None:
    assert json.loads(json.dumps(INFO))["created"] == datetime(2026, 9, 1, 12, tzinfo=UTC).timestamp()

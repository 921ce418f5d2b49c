import asyncio
import json
from collections.abc import Awaitable
from datetime import timedelta

import pytest
from aiohttp import web

from controller.api.session import Cause, KillAnswer
from controller.errors import Failure
from controller.sprites.client import CAUSE_HEADER, SpritesClient
from controller.sprites.errors import (
    Malformed,
    Redirected,
    Refused,
    Rejected,
    ServerFault,
    SpritesError,
    Throttled,
    TimedOut,
    Unauthorized,
    Unfinished,
    Unreachable,
)
from controller.sprites.kill_stream import ERROR_WITHOUT_TEXT, STREAM_BYTES
from controller.sprites.reports import CallReport, Route, Settled
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from controller.tenure import Tenure, TenureEnded
from tests.sprites.conftest import SECRET, SHORT, MakeClient, choose_limits
from tests.sprites.server import Counterpart, Do, answer, find_closed_port, serve_raw

SIGNAL = json.dumps({"type": "signal", "message": "sent", "signal": "SIGKILL", "pid": 7})
EXITED = json.dumps({"type": "exited", "message": "gone"})
COMPLETE = json.dumps({"type": "complete", "exit_code": 137})
ERROR = json.dumps({"type": "error", "message": "process would not die"})


def lines(*texts: str) -> str:
    return "".join(text + "\n" for text in texts)


async def kill(client: SpritesClient, token: Token, sprite: str = "my-sprite", session: str = "sess-1") -> KillAnswer:
    return await client.kill_session(token, sprite, session, tenure=Tenure(1), cause=Cause.KILL)


@pytest.mark.case("K1")
@pytest.mark.case("K2")
@pytest.mark.case("K3")
async def test_a_kill_is_one_post_with_the_signal_in_the_query_and_the_bearer_token(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer(200, lines(SIGNAL, EXITED, COMPLETE)))

    assert await kill(client, token) is KillAnswer.COMPLETE

    (seen,) = counterpart.seen
    assert (seen.method, seen.target) == ("POST", "/v1/sprites/my-sprite/exec/sess-1/kill?signal=SIGKILL")
    assert seen.headers["Authorization"] == f"Bearer {SECRET}"
    assert seen.headers[CAUSE_HEADER] == "kill"
    assert seen.headers["User-Agent"] == "agentterminal-operator/0.1.0"
    assert seen.body == b""


@pytest.mark.case("K1")
def test_the_default_address_is_the_public_one() -> None:
    assert SpritesSettings().base_url == "https://api.sprites.dev"


@pytest.mark.case("K4")
@pytest.mark.parametrize(
    ("sprite", "session", "target"),
    [
        ("my/sprite", "sess/1", "/v1/sprites/my%2Fsprite/exec/sess%2F1/kill?signal=SIGKILL"),
        ("a b", "x?y#z", "/v1/sprites/a%20b/exec/x%3Fy%23z/kill?signal=SIGKILL"),
        ("s", "100%", "/v1/sprites/s/exec/100%25/kill?signal=SIGKILL"),
        ("s", "%2e%2e", "/v1/sprites/s/exec/%252e%252e/kill?signal=SIGKILL"),
        ("s", "ü", "/v1/sprites/s/exec/%C3%BC/kill?signal=SIGKILL"),
    ],
)
async def test_each_name_is_one_segment_of_the_address(
    *, client: SpritesClient, counterpart: Counterpart, token: Token, sprite: str, session: str, target: str
) -> None:
    counterpart.then(answer(200))

    await kill(client, token, sprite, session)

    assert counterpart.seen[0].target == target


@pytest.mark.case("K2")
@pytest.mark.parametrize(("sprite", "session"), [("s", ".."), ("s", "."), ("s", ""), ("..", "1"), ("s", "\ud800")])
async def test_a_name_that_no_address_can_hold_is_refused_before_anything_is_sent(
    client: SpritesClient, counterpart: Counterpart, token: Token, sprite: str, session: str
) -> None:
    with pytest.raises(Rejected, match="nothing was sent"):
        await kill(client, token, sprite, session)

    assert counterpart.seen == []


@pytest.mark.case("K5")
@pytest.mark.parametrize(
    ("status", "settled", "failure"),
    [(404, KillAnswer.NOT_FOUND, Failure.NOT_FOUND), (410, KillAnswer.GONE, Failure.GONE)],
)
async def test_a_session_that_is_already_gone_settles_the_request_after_one_post(
    *,
    client: SpritesClient,
    counterpart: Counterpart,
    token: Token,
    reports: list[CallReport],
    status: int,
    settled: KillAnswer,
    failure: Failure,
) -> None:
    counterpart.then(answer(status, "session not found: sess-1"))

    assert await kill(client, token) is settled

    assert len(counterpart.seen) == 1
    assert [report.outcome for report in reports] == [failure]


@pytest.mark.case("K6")
@pytest.mark.parametrize(
    ("status", "body", "settled"),
    [
        (200, lines(SIGNAL, EXITED, COMPLETE), KillAnswer.COMPLETE),
        (200, lines(SIGNAL, EXITED) + COMPLETE, KillAnswer.COMPLETE),  # no line end after the last
        (200, lines(SIGNAL, EXITED, COMPLETE, SIGNAL), KillAnswer.COMPLETE),  # a late signal, seen on terminals
        (201, lines(COMPLETE), KillAnswer.COMPLETE),
        (200, lines(SIGNAL, EXITED, COMPLETE).replace("\n", "\r\n"), KillAnswer.COMPLETE),
        (200, "", KillAnswer.EMPTY),
        (202, "", KillAnswer.EMPTY),
        (204, "", KillAnswer.EMPTY),
        (200, "\n\n", KillAnswer.EMPTY),
        (200, "<html>hello</html>", KillAnswer.EMPTY),
    ],
)
async def test_a_success_is_read_to_its_end(
    *, client: SpritesClient, counterpart: Counterpart, token: Token, status: int, body: str, settled: KillAnswer
) -> None:
    counterpart.then(answer(status, body))

    assert await kill(client, token) is settled


@pytest.mark.case("K7")
@pytest.mark.parametrize(
    "body",
    [
        lines(SIGNAL, ERROR),
        lines(ERROR),
        lines(SIGNAL, ERROR, EXITED, COMPLETE),
        lines(SIGNAL, COMPLETE, ERROR),
        lines(SIGNAL) + ERROR,
        lines(json.dumps({"error": "process would not die"})),
    ],
)
async def test_an_error_line_fails_the_attempt_whatever_follows(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport], body: str
) -> None:
    counterpart.then(answer(200, body))

    with pytest.raises(Refused, match="process would not die"):
        await kill(client, token)

    assert len(counterpart.seen) == 1
    assert reports[0].outcome is Failure.REFUSED


@pytest.mark.case("K8")
@pytest.mark.parametrize("message", [{}, {"message": ""}, {"message": 7}, {"message": None}, {"message": ["x"]}])
async def test_an_error_line_without_a_text_fails_with_a_fixed_one(
    client: SpritesClient, counterpart: Counterpart, token: Token, message: dict[str, object]
) -> None:
    counterpart.then(answer(200, lines(json.dumps({"type": "error"} | message))))

    with pytest.raises(Refused, match=ERROR_WITHOUT_TEXT):
        await kill(client, token)


@pytest.mark.case("K9")
@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "   ",
        "not json",
        "{",
        "[]",
        "[1,2]",
        "7",
        "null",
        '"complete"',
        "{}",
        '{"type":7}',
        '{"type":null}',
        '{"type":["error"]}',
        '{"type":{"type":"error"}}',
        '{"no":"type"}',
        "\x00\x01",
        "[" * 2000,
        '{"type":' * 2000,
    ],
)
async def test_blank_lines_and_garbage_are_passed_over(
    client: SpritesClient, counterpart: Counterpart, token: Token, garbage: str
) -> None:
    counterpart.then(answer(200, lines(garbage, SIGNAL, garbage, COMPLETE, garbage)), answer(200, lines(garbage)))

    assert await kill(client, token) is KillAnswer.COMPLETE
    assert await kill(client, token) is KillAnswer.EMPTY


@pytest.mark.case("K10")
@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, ServerFault), (503, ServerFault), (401, Unauthorized), (400, Rejected), (429, Throttled), (302, Redirected)],
)
async def test_any_other_status_fails_the_one_attempt_and_is_named(
    client: SpritesClient, counterpart: Counterpart, token: Token, status: int, kind: type[SpritesError]
) -> None:
    counterpart.then(answer(status, Location="/elsewhere"))

    with pytest.raises(kind, match=f"HTTP {status}") as raised:
        await kill(client, token)

    assert raised.value.status == status
    assert len(counterpart.seen) == 1


@pytest.mark.case("K10")
async def test_a_connection_error_fails_the_one_attempt(make_client: MakeClient, token: Token) -> None:
    with pytest.raises(Unreachable):
        await kill(make_client(f"http://127.0.0.1:{find_closed_port()}"), token)


async def test_events_without_complete_are_an_unfinished_answer(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer(200, lines(SIGNAL, EXITED)))

    with pytest.raises(Unfinished, match="without `complete`"):
        await kill(client, token)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


@pytest.mark.case("K12")
@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([Do.STALL], TimedOut),
        ([b"HTTP/1.1 200 OK\r\n", Do.STALL], TimedOut),
        ([CHUNKED, Do.STALL], TimedOut),
        ([CHUNKED, chunk(lines(SIGNAL)), Do.STALL], TimedOut),
        ([CHUNKED, chunk(lines(SIGNAL, COMPLETE)), Do.STALL], TimedOut),
        ([CHUNKED, chunk(lines(SIGNAL, ERROR)), Do.STALL], Refused),
        ([], Unreachable),
        ([Do.RESET], Unreachable),
        ([b"garbage\r\n\r\n"], Unreachable),
        ([CHUNKED], Unfinished),
        ([CHUNKED, chunk(lines(SIGNAL, COMPLETE))], Unfinished),
        ([CHUNKED, chunk(lines(SIGNAL, ERROR))], Refused),
        ([CHUNKED, chunk(lines(SIGNAL)), Do.RESET], Unfinished),
        ([CHUNKED, chunk(lines(SIGNAL, ERROR)), Do.RESET], Refused),
        ([HEAD + b"Content-Length: 900\r\n\r\n", lines(SIGNAL, COMPLETE).encode()], Unfinished),
        ([HEAD + b"Connection: close\r\n\r\n", lines(SIGNAL).encode()], Unfinished),
    ],
    ids=str,
)
async def test_an_answer_that_is_not_whole_within_the_limit_is_a_failed_attempt(
    make_client: MakeClient, token: Token, script: list[bytes | Do], kind: type[SpritesError]
) -> None:
    async with serve_raw(*script) as raw:
        with pytest.raises(kind) as raised:
            await kill(make_client(raw.url, **choose_limits(script)), token)

    assert type(raised.value) is kind
    assert len(raw.requests) == 1


@pytest.mark.case("K12")
async def test_a_trickle_of_bytes_does_not_extend_the_limit(
    make_client: MakeClient, token: Token, reports: list[CallReport]
) -> None:
    script: list[bytes | Do] = [chunk(lines(SIGNAL)), Do.WAIT]
    async with serve_raw(CHUNKED, *script * 1000) as raw:
        with pytest.raises(TimedOut, match=r"longer than 0\.8 s"):
            await kill(make_client(raw.url, **SHORT), token)

    assert timedelta(milliseconds=750) < reports[0].duration < timedelta(seconds=20)


@pytest.mark.case("K12")
def test_the_limit_of_one_attempt_is_ten_seconds() -> None:
    assert SpritesSettings().kill_limit == timedelta(seconds=10)


async def test_a_body_that_the_server_ends_by_closing_is_whole_if_complete_is_in_it(
    make_client: MakeClient, token: Token
) -> None:
    async with serve_raw(HEAD + b"Connection: close\r\n\r\n" + lines(SIGNAL, COMPLETE).encode()) as raw:
        assert await kill(make_client(raw.url), token) is KillAnswer.COMPLETE


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (" " * (STREAM_BYTES + 1), Malformed),
        (lines(COMPLETE) + "x" * STREAM_BYTES, Malformed),
        (lines(COMPLETE) * (STREAM_BYTES // len(COMPLETE)), Malformed),
        (lines(ERROR) + "x" * STREAM_BYTES, Refused),
    ],
    ids=["one line", "a long last line", "many lines", "after an error"],
)
async def test_a_stream_without_an_end_is_cut_off_and_never_a_success(
    client: SpritesClient, counterpart: Counterpart, token: Token, body: str, kind: type[SpritesError]
) -> None:
    counterpart.then(answer(200, body))

    with pytest.raises(kind):
        await kill(client, token)


async def test_a_long_line_below_the_limit_is_read_like_any_other(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    long_error = json.dumps({"type": "error", "message": "m" * 200_000})
    counterpart.then(answer(200, lines(long_error, COMPLETE)))

    with pytest.raises(Refused) as raised:
        await kill(client, token)

    assert len(raised.value.message) == 256


async def test_a_404_whose_body_stalls_is_still_a_404(make_client: MakeClient, token: Token) -> None:
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\n"
    async with serve_raw(head, Do.STALL) as raw:
        client = make_client(raw.url, kill_limit=timedelta(seconds=5))

        assert await kill(client, token) is KillAnswer.NOT_FOUND


async def test_without_tenure_nothing_is_sent_and_nothing_is_reported(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    tenure = Tenure(1)
    tenure.end()

    with pytest.raises(TenureEnded):
        await client.kill_session(token, "s", "1", tenure=tenure, cause=Cause.KILL)

    assert counterpart.seen == []
    assert reports == []


async def test_without_tenure_not_even_a_connection_is_made(make_client: MakeClient, token: Token) -> None:
    tenure = Tenure(1)
    tenure.end()
    client = make_client(f"http://127.0.0.1:{find_closed_port()}")

    for write in (
        client.kill_session(token, "s", "1", tenure=tenure, cause=Cause.KILL),
        client.launch_session(token, "s", ["sh"], columns=80, rows=24, tenure=tenure, cause=Cause.LAUNCH),
        client.run_command(
            token,
            "s",
            ["sh"],
            stdin=b"",
            tenure=tenure,
            cause=Cause.HOLD,
            time_limit=timedelta(seconds=1),
            output_bytes=1,
        ),
    ):
        with pytest.raises(TenureEnded):
            await write


async def test_a_term_that_ends_while_the_kill_waits_for_a_connection_stops_it(
    counterpart: Counterpart, make_client: MakeClient, token: Token, reports: list[CallReport]
) -> None:
    client = make_client(counterpart.url, kill_limit=timedelta(seconds=5), connections=1)
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> web.StreamResponse:
        arrived.set()
        await release.wait()
        return await answer(200)(request)

    counterpart.then(hold, answer(200))
    tenure = Tenure(1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(kill(client, token))
        await asyncio.wait_for(arrived.wait(), 30)
        second = group.create_task(_catch(client.kill_session(token, "s", "2", tenure=tenure, cause=Cause.KILL)))
        for _ in range(20):
            await asyncio.sleep(0)
        tenure.end()
        release.set()

    assert await first is KillAnswer.EMPTY
    assert isinstance(await second, TenureEnded)
    assert len(counterpart.seen) == 1
    assert len(reports) == 1


async def _catch(call: Awaitable[object]) -> TenureEnded | None:
    try:
        await call
    except TenureEnded as ended:
        return ended
    return None


async def test_a_report_tells_route_cause_outcome_and_sprite(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    counterpart.then(answer(200, lines(COMPLETE)))

    await kill(client, token)

    (report,) = reports
    assert (report.route, report.cause, report.outcome) == (Route.KILL_SESSION, Cause.KILL, Settled.SUCCESS)
    assert report.sprite == "my-sprite"
    assert report.duration > timedelta(0)


async def test_a_call_that_its_caller_gives_up_is_reported_as_cancelled(
    make_client: MakeClient, token: Token, reports: list[CallReport]
) -> None:
    async with serve_raw(Do.STALL) as raw:
        client = make_client(raw.url, kill_limit=timedelta(seconds=5))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await kill(client, token)

    assert [report.outcome for report in reports] == [Settled.CANCELLED]

"""Nothing of a token, a query or a page of HTML reaches an error text, a traceback or a log."""

import logging
import traceback
from collections.abc import Awaitable
from datetime import timedelta

import pytest
from aiohttp import web

from controller.api.session import Cause
from controller.sprites.client import SpritesClient
from controller.sprites.errors import SpritesError
from controller.sprites.reports import CallReport
from controller.sprites.texts import EXCERPT_CHARACTERS, MESSAGE_CHARACTERS, excerpt, scrub, tidy
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.sprites.conftest import SECRET, MakeClient, choose_limits
from tests.sprites.server import Counterpart, Do, Handler, answer, serve_raw, talk

PIECES = [SECRET, *SECRET.split("/")[2:]]
WORD = "planted-word-in-the-query"

ECHOES: list[Handler] = [
    answer(500, f'{{"error": "bad header Authorization: Bearer {SECRET}"}}'),
    answer(500, f"cannot parse {SECRET} here"),
    answer(400, f'{{"errors": ["{SECRET}", "GET /v1/sprites/s1/exec?cmd={WORD}&path=x is wrong"]}}'),
    answer(401, f"<html><body>{SECRET} {WORD}</body></html>"),
    answer(404, f'{{"message": "no route /v1/x?cmd={WORD}"}}'),
    answer(429, f'{{"error": "x", "message": "{SECRET.split("/")[3]} is limited"}}'),
    answer(502, f"<!doctype html><title>{WORD}</title>"),
    answer(500, SECRET.replace("/", "%2F")),
    answer(500, " " * 8100 + SECRET),
    answer(500, f"\x1b[31m{SECRET}\x1b[0m\u202e{WORD[:0]}"),
]


async def call_all(client: SpritesClient, token: Token) -> list[SpritesError]:
    """Make each call once, and give the errors of those that fail."""
    argv, tenure = ["sh", WORD], Tenure(1)
    calls: list[Awaitable[object]] = [
        client.list_sprites(token, cause=Cause.METADATA, prefix=WORD),
        client.get_sprite(token, "s1", cause=Cause.LAUNCH),
        client.list_sessions(token, "s1", cause=Cause.CHECK),
        client.kill_session(token, "s1", "1", tenure=tenure, cause=Cause.KILL),
        client.run_command(
            token,
            "s1",
            argv,
            stdin=SECRET.encode(),
            tenure=tenure,
            cause=Cause.HOLD,
            time_limit=timedelta(seconds=1),
            output_bytes=10,
        ),
        client.launch_session(token, "s1", argv, columns=80, rows=24, tenure=tenure, cause=Cause.LAUNCH),
    ]
    raised = []
    for call in calls:
        try:
            await call
        except SpritesError as error:
            raised.append(error)
    return raised


def find_spills(text: str) -> list[str]:
    return [planted for planted in [*PIECES, WORD, SECRET.replace("/", "%2F")] if planted in text]


@pytest.mark.parametrize("echo", ECHOES, ids=range(len(ECHOES)))
async def test_an_answer_that_echoes_the_request_spills_nothing(
    *,
    client: SpritesClient,
    counterpart: Counterpart,
    token: Token,
    caplog: pytest.LogCaptureFixture,
    reports: list[CallReport],
    echo: Handler,
) -> None:
    caplog.set_level(logging.DEBUG)
    counterpart.always(echo, 6)

    errors = await call_all(client, token)

    assert len(errors) >= 5  # a kill takes a 404 as an answer
    for error in errors:
        assert find_spills(str(error)) == []
        assert find_spills("".join(traceback.format_exception(error))) == []
        assert "<" not in error.message
        assert len(error.message) <= MESSAGE_CHARACTERS
        assert error.message.isprintable()
    assert find_spills(caplog.text) == []
    assert find_spills(repr(reports)) == []


@pytest.mark.parametrize(
    "script",
    [[], [Do.RESET], [Do.STALL], [f"HTTP/1.1 Bearer {SECRET} no\r\n\r\n".encode()], [SECRET.encode() + b"\r\n\r\n"]],
    ids=str,
)
async def test_a_broken_connection_spills_nothing(
    make_client: MakeClient, token: Token, caplog: pytest.LogCaptureFixture, script: list[bytes | Do]
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_raw(*script) as raw:
        errors = await call_all(make_client(raw.url, **choose_limits(script)), token)

    assert len(errors) == 6
    for error in errors:
        assert find_spills("".join(traceback.format_exception(error))) == []
    assert find_spills(caplog.text) == []


async def test_a_socket_that_works_logs_nothing_of_its_handshake(
    client: SpritesClient, counterpart: Counterpart, token: Token, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_bytes(b"\x03\x00")

    counterpart.always(answer(200, '{"sprites": [], "sessions": []}'), 4)
    counterpart.then(talk(script), talk(script))
    await call_all(client, token)

    assert len(counterpart.seen) == 6
    assert find_spills(caplog.text) == []
    assert "/v1/sprites" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith(("httpx", "httpcore", "controller"))
    )


async def test_an_error_frame_that_echoes_the_token_spills_nothing(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    async def script(ws: web.WebSocketResponse) -> None:
        await ws.send_json({"type": "error", "message": f"bad {SECRET}"})
        await ws.close(code=1011, message=SECRET.split("/")[3].encode())

    counterpart.then(talk(script), talk(script))
    for call in (
        client.launch_session(token, "s1", ["sh"], columns=1, rows=1, tenure=Tenure(1), cause=Cause.LAUNCH),
        client.run_command(
            token,
            "s1",
            ["sh"],
            stdin=b"",
            tenure=Tenure(1),
            cause=Cause.HOLD,
            time_limit=timedelta(seconds=5),
            output_bytes=1,
        ),
    ):
        with pytest.raises(SpritesError) as raised:
            await call
        assert find_spills(raised.value.message) == []
        assert "[redacted]" in raised.value.message


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", ""),
        (b"  \n", ""),
        (b"<html><h1>502</h1></html>", "an HTML page"),
        (b"\n<!DOCTYPE html>", "an HTML page"),
        (b"404 page not found\n", "404 page not found"),
        (b'{"error": "sprite not found"}', "sprite not found"),
        (b'{"error": "code", "message": "a sentence"}', "a sentence"),
        (b'{"error": "code", "message": ""}', "code"),
        (b'{"errors": ["one", "two", 3]}', "one; two"),
        (b'{"errors": []}', '{"errors": []}'),
        (b'{"other": 1}', '{"other": 1}'),
        (b"[1]", "[1]"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"what? nothing", "what? nothing"),
        (b"see https://x/y?token=1&b=2 there", "see https://x/y there"),
        (b"a\x1b[31mred\x00\r\nb", "a [31mred b"),
    ],
)
def test_the_sentence_of_a_body_is_picked(body: bytes, told: str) -> None:
    assert excerpt(body, None) == told


def test_a_token_that_the_read_limit_cut_in_two_is_not_within_the_excerpt(token: Token) -> None:
    body = (b" " * (8 * 1024 - len(SECRET) // 2 - 1)).replace(b" ", b"\x01", 1) + SECRET.encode()

    told = excerpt(body, token)

    assert SECRET[8:40] not in told
    assert len(told) <= EXCERPT_CHARACTERS


@pytest.mark.parametrize("said", ["Bearer abc", "bearer  abc", "Authorization: BEARER abc,"])
def test_any_bearer_credential_is_taken_out(said: str) -> None:
    assert "abc" not in scrub(said, None)


def test_a_long_text_is_cut_with_a_mark() -> None:
    assert tidy("x" * 300) == "x" * 255 + "…"
    assert tidy("x" * 256) == "x" * 256
    assert tidy("a\ud800b\u200fc") == "a b c"

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from aiohttp import web

from controller.api.session import Cause, Session, Sprite, SpriteState
from controller.errors import Failure
from controller.sprites.client import BODY_BYTES, CAUSE_HEADER, PAGES, SpritesClient
from controller.sprites.errors import (
    Malformed,
    Missing,
    NotFound,
    Refused,
    ServerFault,
    SpritesError,
    Throttled,
    TimedOut,
    Unauthorized,
    Unfinished,
    Unreachable,
)
from controller.sprites.reports import CallReport, Route, Settled
from controller.sprites.token import Token
from controller.tenure import Tenure, TenureEnded
from tests.sprites.conftest import SECRET, MakeClient, choose_limits
from tests.sprites.server import Counterpart, Do, answer, answer_json, find_closed_port, serve_raw


def sprite(number: int, **more: object) -> dict[str, object]:
    return {"id": f"sprite-{number}", "name": f"s{number}", "status": "running"} | more


def page(*entries: dict[str, object], **more: object) -> dict[str, object]:
    return {"sprites": list(entries)} | more


async def list_sprites(client: SpritesClient, token: Token, prefix: str = "") -> tuple[Sprite, ...]:
    return await client.list_sprites(token, cause=Cause.METADATA, prefix=prefix)


async def list_sessions(client: SpritesClient, token: Token) -> tuple[Session, ...]:
    return await client.list_sessions(token, "s1", cause=Cause.CHECK)


async def test_the_sprites_are_listed_in_pages_of_fifty_to_the_end(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    counterpart.then(
        answer_json(page(sprite(1), sprite(2), has_more=True, next_continuation_token="a/b+c=")),
        answer_json(page(sprite(3, status="cold"), has_more=False, next_continuation_token=None)),
    )

    found = await list_sprites(client, token, prefix="s")

    assert [(entry.id, entry.name, entry.state) for entry in found] == [
        ("sprite-1", "s1", SpriteState.RUNNING),
        ("sprite-2", "s2", SpriteState.RUNNING),
        ("sprite-3", "s3", SpriteState.COLD),
    ]
    assert [seen.target for seen in counterpart.seen] == [
        "/v1/sprites?max_results=50&prefix=s",
        "/v1/sprites?max_results=50&prefix=s&continuation_token=a%2Fb%2Bc%3D",
    ]
    assert {seen.headers["Authorization"] for seen in counterpart.seen} == {f"Bearer {SECRET}"}
    assert {seen.headers[CAUSE_HEADER] for seen in counterpart.seen} == {"metadata"}
    assert [(report.route, report.sprite) for report in reports] == [(Route.LIST_SPRITES, None)] * 2


@pytest.mark.parametrize("end", [{"has_more": True, "next_continuation_token": None}, {}, {"has_more": True}])
@pytest.mark.parametrize("token_at_end", [{}, {"next_continuation_token": ""}])
async def test_the_list_ends_when_the_token_is_empty_whatever_has_more_says(
    client: SpritesClient, counterpart: Counterpart, token: Token, end: dict[str, object], token_at_end: dict[str, str]
) -> None:
    counterpart.then(answer_json(page(**(end | token_at_end))))

    assert await list_sprites(client, token) == ()
    assert len(counterpart.seen) == 1


async def test_a_sprite_on_two_pages_is_given_once_as_it_was_seen_last(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(
        answer_json(page(sprite(1), next_continuation_token="x")), answer_json(page(sprite(1, status="warm")))
    )

    assert await list_sprites(client, token) == (Sprite("sprite-1", "s1", SpriteState.WARM),)


async def test_a_pager_that_goes_round_is_an_error(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.always(answer_json(page(sprite(1), next_continuation_token="again")), 10)

    with pytest.raises(Malformed, match="goes round"):
        await list_sprites(client, token)
    assert len(counterpart.seen) == 2


async def test_a_pager_without_an_end_is_an_error(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    numbers = count()

    async def next_page(_request: web.Request) -> web.StreamResponse:
        return web.json_response(page(next_continuation_token=f"t{next(numbers)}"))

    counterpart.always(next_page, PAGES + 1)

    with pytest.raises(Malformed, match=f"within {PAGES} pages"):
        await list_sprites(client, token)
    assert len(counterpart.seen) == PAGES


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", Malformed),
        ("{", Malformed),
        ("[]", Malformed),
        ("null", Malformed),
        ("{}", Malformed),
        ('{"sprites": null}', Malformed),
        ('{"sprites": {}}', Malformed),
        ('{"sprites": [1]}', Malformed),
        ('{"sprites": [{"name": "x"}]}', Malformed),
        ('{"sprites": [{"id": "x"}]}', Malformed),
        ('{"sprites": [{"id": "", "name": "x"}]}', Malformed),
        ('{"sprites": [{"id": 7, "name": "x"}]}', Malformed),
        ('{"sprites": [], "next_continuation_token": 7}', Malformed),
        ('{"sprites": [], "error": "database away"}', Refused),
        ("<html><body>Welcome</body></html>", Malformed),
        ("[" * 100_000, Malformed),
        ("\xff\xfe", Malformed),
    ],
)
async def test_a_page_that_is_not_what_the_contract_says_is_never_an_empty_one(
    client: SpritesClient, counterpart: Counterpart, token: Token, body: str, kind: type[SpritesError]
) -> None:
    counterpart.then(answer(200, body.encode("latin-1")))

    with pytest.raises(kind):
        await list_sprites(client, token)


@pytest.mark.parametrize("status", [201, 204, 206, 304, 101])
async def test_only_a_200_is_a_list(make_client: MakeClient, token: Token, status: int) -> None:
    async with serve_raw(f"HTTP/1.1 {status} Odd\r\nContent-Length: 0\r\n\r\n".encode()) as raw:
        with pytest.raises(SpritesError):
            await list_sprites(make_client(raw.url), token)


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("running", SpriteState.RUNNING),
        ("warm", SpriteState.WARM),
        ("cold", SpriteState.COLD),
        ("Cold", SpriteState.UNKNOWN),
        ("created", SpriteState.UNKNOWN),
        (None, SpriteState.UNKNOWN),
        (7, SpriteState.UNKNOWN),
        (["cold"], SpriteState.UNKNOWN),
    ],
)
async def test_a_state_that_we_do_not_know_is_unknown_and_never_a_pause(
    client: SpritesClient, counterpart: Counterpart, token: Token, status: object, state: SpriteState
) -> None:
    counterpart.then(answer_json(sprite(1, status=status)))

    assert (await client.get_sprite(token, "s1", cause=Cause.LAUNCH)).state is state


async def test_a_sprite_without_a_status_can_be_read(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer_json({"id": "sprite-1", "name": "s1"}))

    assert await client.get_sprite(token, "s1", cause=Cause.LAUNCH) == Sprite("sprite-1", "s1", SpriteState.UNKNOWN)
    assert counterpart.seen[0].target == "/v1/sprites/s1"


async def test_an_answer_about_another_sprite_is_malformed(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer_json(sprite(2)))

    with pytest.raises(Malformed, match="'s2'"):
        await client.get_sprite(token, "s1", cause=Cause.LAUNCH)


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ('{"error": "sprite not found"}', Missing.SPRITE),
        ('{"error":"Sprite not found."}', Missing.SPRITE),
        ('{"error": "sprite not found in this region"}', Missing.OTHER),
        ("sprite not found", Missing.OTHER),
        ("session not found: 123", Missing.SESSION),
        ('{"error": "session not found: 123"}', Missing.SESSION),
        ("404 page not found", Missing.OTHER),
        ("<html>sprite not found</html>", Missing.OTHER),
        ('{"message": "sprite not found"}', Missing.OTHER),
        ("", Missing.OTHER),
        ("[]", Missing.OTHER),
    ],
)
async def test_a_404_tells_what_is_missing(
    client: SpritesClient, counterpart: Counterpart, token: Token, body: str, missing: Missing
) -> None:
    counterpart.then(answer(404, body))

    with pytest.raises(NotFound) as raised:
        await client.get_sprite(token, "s1", cause=Cause.LAUNCH)

    assert raised.value.missing is missing


async def test_sessions_are_read_from_the_envelope_and_from_a_bare_array(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    entries = [
        {
            "id": "17",
            "command": "/bin/bash -l",
            "workdir": "/home/sprite",
            "created": "2026-09-01T12:00:00.123456789Z",
            "tty": True,
            "bytes_per_second": 1.5,
            "is_active": False,
            "last_activity": "2026-09-01T12:05:00Z",
        },
        {"id": 23, "created": 1_788_264_000, "last_activity": None},
    ]
    expected = (
        Session(
            id="17",
            created=datetime(2026, 9, 1, 12, 0, 0, 123456, UTC),
            command="/bin/bash -l",
            tty=True,
            last_activity=datetime(2026, 9, 1, 12, 5, tzinfo=UTC),
        ),
        Session(id="23", created=datetime(2026, 9, 1, 12, tzinfo=UTC), command="", tty=False, last_activity=None),
    )
    counterpart.then(answer_json({"count": 2, "sessions": entries}), answer_json(entries))

    assert await list_sessions(client, token) == expected
    assert await list_sessions(client, token) == expected
    assert [(seen.method, seen.target) for seen in counterpart.seen] == [("GET", "/v1/sprites/s1/exec")] * 2


@pytest.mark.parametrize("body", [{"count": 0, "sessions": []}, {"sessions": [], "error": None}, []])
async def test_no_sessions_is_an_answer(
    client: SpritesClient, counterpart: Counterpart, token: Token, body: object
) -> None:
    counterpart.then(answer_json(body))

    assert await list_sessions(client, token) == ()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({}, Malformed),
        ({"count": 0}, Malformed),
        ({"sessions": None}, Malformed),
        ({"sessions": {}}, Malformed),
        ({"sessions": [], "error": "the VM does not answer"}, Refused),
        ({"error": "the VM does not answer"}, Refused),
        ({"sessions": [], "error": {"code": 7}}, Refused),
        ({"sessions": [{"command": "sh"}]}, Malformed),
        ({"sessions": [{"id": ""}]}, Malformed),
        ({"sessions": [{"id": None}]}, Malformed),
        ({"sessions": [{"id": True}]}, Malformed),
        ({"sessions": [{"id": 1.5}]}, Malformed),
        ({"sessions": [{"id": "1"}, "2"]}, Malformed),
        ([["1"]], Malformed),
        ("sessions", Malformed),
        (None, Malformed),
    ],
    ids=str,
)
async def test_a_list_that_is_not_one_is_never_no_sessions(
    client: SpritesClient, counterpart: Counterpart, token: Token, body: object, kind: type[SpritesError]
) -> None:
    counterpart.then(answer_json(body))

    with pytest.raises(kind) as raised:
        await list_sessions(client, token)
    assert type(raised.value) is kind


async def test_what_the_body_says_about_its_error_is_told(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    counterpart.then(answer_json({"sessions": [], "error": "the VM does not answer"}))

    with pytest.raises(Refused, match="the VM does not answer"):
        await list_sessions(client, token)
    assert [report.outcome for report in reports] == [Failure.REFUSED]


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([], Unreachable),
        ([Do.RESET], Unreachable),
        ([b"SSH-2.0-nothing\r\n"], Unreachable),
        ([HEAD], Unreachable),
        ([Do.STALL], TimedOut),
        ([HEAD + b"\r\n", b'{"sessions": []', Do.STALL], TimedOut),
        ([HEAD + b"Content-Length: 100\r\n\r\n", b'{"sessions": []}'], Unfinished),
        ([HEAD + b"Content-Length: 100\r\n\r\n", b'{"sessions": []}', Do.RESET], Unfinished),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b'10\r\n{"sessions": []}\r\n'], Unfinished),
        ([HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n", b"\x1f\x8b\x08\x00"], Malformed),
    ],
    ids=str,
)
async def test_a_list_that_did_not_arrive_whole_is_an_error(
    make_client: MakeClient, token: Token, reports: list[CallReport], script: list[bytes | Do], kind: type[SpritesError]
) -> None:
    async with serve_raw(*script) as raw:
        with pytest.raises(kind) as raised:
            await list_sessions(make_client(raw.url, **choose_limits(script)), token)

    assert type(raised.value) is kind
    assert [report.outcome for report in reports] == [kind.failure]


async def test_a_refused_connection_is_unreachable(make_client: MakeClient, token: Token) -> None:
    with pytest.raises(Unreachable):
        await list_sessions(make_client(f"http://127.0.0.1:{find_closed_port()}"), token)


async def test_a_body_above_the_limit_is_cut_off(make_client: MakeClient, token: Token) -> None:
    async with serve_raw(HEAD + b"\r\n", *[b" " * (1024 * 1024)] * (BODY_BYTES // (1024 * 1024) + 1)) as raw:
        with pytest.raises(Malformed, match="more than"):
            await list_sessions(make_client(raw.url), token)


async def test_a_429_tells_how_long_to_wait(client: SpritesClient, counterpart: Counterpart, token: Token) -> None:
    counterpart.then(
        answer(429, Retry_After="7"),
        answer_json({"error": "x", "message": "slow down", "retry_after_seconds": 3}, 429, Retry_After="7"),
        answer(429),
    )

    waits = []
    for _ in range(3):
        with pytest.raises(Throttled) as raised:
            await list_sessions(client, token)
        waits.append(raised.value.retry_after)

    assert waits == [timedelta(seconds=7), timedelta(seconds=3), None]


async def test_a_503_may_tell_how_long_to_wait_too(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer(503, Retry_After="2"))

    with pytest.raises(ServerFault) as raised:
        await list_sessions(client, token)
    assert raised.value.retry_after == timedelta(seconds=2)


async def test_a_redirect_is_not_followed(client: SpritesClient, counterpart: Counterpart, token: Token) -> None:
    counterpart.then(answer(302, Location=f"{counterpart.url}/elsewhere"))

    with pytest.raises(SpritesError) as raised:
        await list_sessions(client, token)

    assert raised.value.failure is Failure.REDIRECTED
    assert len(counterpart.seen) == 1


async def test_a_cookie_of_one_answer_does_not_travel_with_the_next_call(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer(200, "[]", Set_Cookie="edge=1; Path=/"), answer(200, "[]"))

    await list_sessions(client, token)
    await list_sessions(client, token)

    assert "Cookie" not in counterpart.seen[1].headers
    assert [len(rested.lane.cookies.jar) for rested in client._lanes._rested] == [0]


async def test_each_token_goes_only_with_its_own_call(
    client: SpritesClient, counterpart: Counterpart, token: Token
) -> None:
    counterpart.then(answer(401, '{"error": "authentication failed"}'), answer(200, "[]"))

    with pytest.raises(Unauthorized, match="authentication failed"):
        await list_sessions(client, token)
    await list_sessions(client, Token.read("another-token"))

    assert [seen.headers["Authorization"] for seen in counterpart.seen] == [
        f"Bearer {SECRET}",
        "Bearer another-token",
    ]


async def test_a_success_is_reported_once(
    client: SpritesClient, counterpart: Counterpart, token: Token, reports: list[CallReport]
) -> None:
    counterpart.then(answer(200, "[]"))

    await list_sessions(client, token)

    (report,) = reports
    assert (report.route, report.cause, report.outcome, report.sprite) == (
        Route.LIST_SESSIONS,
        Cause.CHECK,
        Settled.SUCCESS,
        "s1",
    )


async def test_closing_twice_is_fine(client: SpritesClient) -> None:
    async with client:
        await client.aclose()


async def test_a_client_with_a_tenure_reads_only_while_it_lasts_since_a_read_may_wake(
    counterpart: Counterpart, make_client: MakeClient, token: Token, reports: list[CallReport]
) -> None:
    counterpart.then(answer_json({"sessions": []}))
    tenure = Tenure(1)
    client = make_client(counterpart.url, tenure=tenure)
    assert await list_sessions(client, token) == ()

    tenure.end()
    for read in (
        list_sessions(client, token),
        list_sprites(client, token),
        client.get_sprite(token, "s1", cause=Cause.METADATA),
    ):
        with pytest.raises(TenureEnded):
            await read

    assert len(counterpart.seen) == 1
    assert len(reports) == 1

"""The doors over real sockets, with an API server that says what it was told: order, refusals, sockets, limits, end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta

import aiohttp
import pytest
import sprites
from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from controller.clock import SystemClock
from controller.gateway.access import BEARER_SUBPROTOCOL, SUBPROTOCOL
from controller.gateway.metrics import build_gateway_metrics
from controller.gateway.refusals import RefusalCause
from controller.gateway.server import Gateway
from controller.gateway.settings import GatewaySettings, LimitSettings, TimeSettings
from controller.gateway.standing import Presence
from controller.gateway.wishes import Door, Mode
from tests.gateway.doubles import (
    ANNA,
    BERT,
    NAME,
    NAMESPACE,
    PATH,
    SOON_SECONDS,
    Doors,
    EchoTerminals,
    FakeKube,
    build_jwt,
    build_object,
    exchange,
    in_seconds,
    offer,
    open_doors,
    receive_close,
    receive_text,
    wait_until,
)

CONSOLE = "https://console.example.com"


class StandingClock(SystemClock):
    """However slow the machine is, no time has passed; what the wall shows, a test may change."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead

    def monotonic(self) -> timedelta:
        return timedelta(hours=1)


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    async with open_doors(GatewaySettings(port=0, metrics_port=0, origins=(CONSOLE,))) as doors:
        yield doors


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.case("F21")
async def test_what_is_wrong_is_told_in_the_one_order_and_each_mended_fault_shows_the_next() -> None:
    settings = GatewaySettings(port=0, metrics_port=0, origins=(CONSOLE,), limits=LimitSettings(person_sockets=1))
    async with open_doors(settings) as doors, AsyncExitStack() as stack:
        await stack.enter_async_context(doors.attached(token=ANNA))  # anna has her one socket
        await wait_until(lambda: bool(doors.terminals.requests))
        kube, terminals = doors.kube, doors.terminals
        kube.objects, kube.users, kube.rights = {}, {ANNA: "anna", BERT: "bert"}, set()
        terminals.unready, terminals.presence = "This gateway has no Lease.", Presence(held=True, streaming=False)
        headers = {"Host": "evil.example.com", "Origin": "https://evil.example.com"}
        told: list[str] = []

        async def ask(query: str = "", token: str | None = None) -> None:
            told.append((await doors.ask(f"{PATH}/attach{query}", token=token, **headers)).cause)

        await ask("?env=A%3D1")
        await ask()
        headers["Host"] = "localhost"
        await ask()
        headers["Origin"] = CONSOLE
        await ask()
        await ask(token="nobody")
        await ask(token=BERT)
        kube.rights = {("anna", "attach"), ("bert", "attach")}
        before = len(kube.calls)
        await ask(token="nobody")  # still 401, whatever stands behind it; and asked of nobody again
        assert kube.calls[before:] == []
        # Bert's no is remembered for seconds; anna's yes as well, and she is the one whose place is taken.
        await ask(token=ANNA)
        kube.objects = {NAME: build_object(terminated=True, deleting=True, suspend=True)}
        await ask(token=ANNA)
        kube.objects = {NAME: build_object(deleting=True, suspend=True)}
        await ask(token=ANNA)
        kube.objects = {NAME: build_object(suspend=True)}
        await ask(token=ANNA)
        terminals.presence = Presence(held=False, streaming=False)
        await ask(token=ANNA)
        kube.objects = {NAME: build_object()}
        await ask(token=ANNA)
        await stack.aclose()
        await wait_until(lambda: doors.gateway.sockets == 0)
        await ask(token=ANNA)
        terminals.unready = None
        await ask(token=ANNA)

    assert told == [
        "Malformed",
        "Host",
        "Origin",
        "NoToken",
        "BadToken",
        "NoRight",
        "BadToken",
        "NotFound",
        "Terminated",
        "Deleting",
        "Held",
        "Suspended",
        "PersonLimit",
        "NotReady",
        "Ok",
    ]


async def test_an_address_that_asks_too_much_is_refused_before_anything_is_read() -> None:
    limits = LimitSettings(address_requests_per_second=1, address_burst=2)
    async with open_doors(GatewaySettings(port=0, metrics_port=0, limits=limits), clock=StandingClock()) as doors:
        for _ in range(2):
            assert (await doors.ask(token=None)).cause == "NoToken"
        answer = await doors.ask(f"{PATH}/attach?env=A%3D1")

    assert (answer.status, answer.cause) == (429, "AddressLimit")
    assert answer.headers["Retry-After"] == "1"
    assert answer.body["details"]["retryAfterSeconds"] == 1
    assert doors.kube.calls == []


async def test_requests_that_nobody_knows_yet_have_a_cap_in_all_and_give_their_place_back() -> None:
    limits = LimitSettings(unauthenticated=1)
    async with open_doors(GatewaySettings(port=0, metrics_port=0, limits=limits)) as doors:
        doors.kube.passage.clear()
        first = asyncio.ensure_future(doors.ask())
        await wait_until(lambda: bool(doors.kube.calls))

        assert (await doors.ask()).cause == "Busy"

        doors.kube.passage.set()
        assert (await first).cause == "Ok"
        assert (await doors.ask()).cause == "Ok"


async def test_nobody_learns_whether_an_object_exists_who_may_not_use_it(doors: Doors) -> None:
    there = await doors.ask(token=BERT)
    absent = await doors.ask(f"/v1/namespaces/{NAMESPACE}/agentterminals/two/attach", token=BERT)

    assert (there.status, absent.status) == (403, 403)
    assert there.text.replace(f'"{NAME}"', '"two"') == absent.text
    assert "get" not in doors.kube.calls


@pytest.mark.case("F22")
async def test_an_object_that_is_ended_while_the_token_is_checked_is_refused_and_not_touched(doors: Doors) -> None:
    doors.kube.passage.clear()
    asked = asyncio.ensure_future(doors.ask())
    await wait_until(lambda: bool(doors.kube.calls))

    doors.kube.objects[NAME] = build_object(terminated=True)
    doors.kube.passage.set()

    assert (await asked).cause == "Terminated"
    assert doors.terminals.requests == []


async def test_a_right_that_is_taken_while_the_token_is_checked_refuses(doors: Doors) -> None:
    doors.kube.passage.clear()
    asked = asyncio.ensure_future(doors.ask())
    await wait_until(lambda: bool(doors.kube.calls))

    doors.kube.rights.clear()
    doors.kube.passage.set()

    assert (await asked).cause == "NoRight"


@pytest.mark.parametrize("fault", ["is_down", "cannot_log_in"])
async def test_an_api_server_that_does_not_say_who_may_refuses_nobody_for_good(doors: Doors, fault: str) -> None:
    setattr(doors.kube, fault, True)
    answer = await doors.ask()

    assert (answer.status, answer.cause, answer.headers["Retry-After"]) == (503, "Undecided", "5")

    setattr(doors.kube, fault, False)
    assert (await doors.ask()).cause == "Ok"
    setattr(doors.kube, fault, True)
    assert (await doors.ask()).cause == "Undecided"  # who may is remembered, what is there is not


async def test_a_token_that_ends_while_its_verdict_is_remembered_is_refused_all_the_same() -> None:
    clock, token = StandingClock(), build_jwt("anna", in_seconds(3600))
    async with open_doors(clock=clock) as doors:
        doors.kube.users[token] = "anna"
        assert (await doors.ask(token=token)).cause == "Ok"
        clock.ahead = timedelta(seconds=3601)

        assert (await doors.ask(token=token)).cause == "BadToken"
        assert doors.kube.calls.count("token") == 2


async def test_an_api_server_that_hangs_is_given_so_long_and_no_longer() -> None:
    times = TimeSettings(authenticate=timedelta(seconds=0.2))
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=times)) as doors:
        doors.kube.passage.clear()
        assert (await doors.ask()).cause == "Undecided"


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_a_refusal_is_a_kubernetes_status(doors: Doors) -> None:
    doors.kube.objects.clear()
    answer = await doors.ask()

    assert answer.headers["Content-Type"] == "application/json"
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "There is no AgentTerminal of this name.",
        "reason": "NotFound",
        "code": 404,
        "details": {
            "group": "agentterminal.dev",
            "kind": "agentterminals",
            "name": NAME,
            "causes": [{"reason": "NotFound", "message": "There is no AgentTerminal of this name."}],
        },
    }
    assert doors.count("requests_total", route="attach", answer="NotFound") == 1


async def test_who_says_nothing_about_himself_is_told_how(doors: Doors) -> None:
    answer = await doors.ask(token=None)

    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_a_path_that_is_no_door_and_a_method_that_is_none_are_told_apart(doors: Doors) -> None:
    nowhere = await doors.ask("/api/v1/secrets")
    wrong = await doors.ask(method="DELETE")

    assert (nowhere.status, nowhere.cause) == (404, "NoDoor")
    assert (wrong.status, wrong.cause, wrong.headers["Allow"]) == (405, "NoMethod", "GET")


async def test_a_page_may_ask_beforehand_and_gets_the_same_verdict_without_attaching(doors: Doors) -> None:
    asked = await doors.ask(method="OPTIONS", token=None, Origin=CONSOLE, Access_Control_Request_Method="GET")
    yes = await doors.ask(Origin=CONSOLE)
    no = await doors.ask(token="nobody", Origin=CONSOLE)

    assert (asked.status, asked.headers["Access-Control-Allow-Headers"]) == (204, "authorization")
    assert (yes.status, yes.body["status"]) == (200, "Success")
    assert (no.status, no.cause) == (401, "BadToken")
    for answer in (asked, yes, no):
        assert answer.headers["Access-Control-Allow-Origin"] == CONSOLE
        assert "Access-Control-Allow-Credentials" not in answer.headers
    assert doors.terminals.requests == []


async def test_a_page_that_is_not_listed_gets_nothing_it_could_read(doors: Doors) -> None:
    for method in ("GET", "OPTIONS"):
        answer = await doors.ask(method=method, Origin="https://evil.example.com")
        assert (answer.status, "Access-Control-Allow-Origin" in answer.headers) == (403, False)
    assert doors.kube.calls == []


async def test_probes_are_answered_to_whatever_name_and_readiness_tells_the_reason(doors: Doors) -> None:
    assert (await doors.ask("/healthz", token=None, Host="10.1.2.3:8443")).text == "This process is well.\n"
    assert (await doors.ask("/readyz", token=None)).status == 200
    doors.terminals.unready = "This gateway has no Lease."
    answer = await doors.ask("/readyz", token=None)
    assert (answer.status, answer.text) == (503, "This gateway has no Lease.\n")
    assert (await doors.ask("/healthz", token=None)).status == 200


# --- what follows -----------------------------------------------------------------------------------------------------


async def test_who_is_let_in_is_handed_over_as_who_he_is_and_to_the_object_that_was_judged(doors: Doors) -> None:
    async with doors.attached("?takeover=true&columns=120&rows=40") as socket:
        await socket.send_str("hello")
        assert await receive_text(socket) == "hello"

    (request,) = doors.terminals.requests
    assert (request.target.namespace, request.target.name, request.uid) == (NAMESPACE, NAME, "uid-1")
    assert (request.person.name, request.person.groups) == ("anna", ("system:authenticated",))
    assert (request.mode, request.door) == (Mode.TAKEOVER, Door.OWN)
    assert (request.columns, request.rows) == (120, 40)
    assert request.terminal.raw == doors.kube.objects[NAME]


@pytest.mark.parametrize(
    ("query", "rights"),
    [("", ["attach"]), ("?view=true", ["view"]), ("?takeover=true", ["attach", "takeover"])],
)
async def test_each_way_to_come_needs_its_own_right_on_the_named_object(
    doors: Doors, query: str, rights: list[str]
) -> None:
    async with doors.attached(query):
        pass

    asked = [spec["resourceAttributes"] for spec in doors.kube.specs]
    assert [one["subresource"] for one in asked] == rights
    assert {(one["verb"], one["resource"], one["namespace"], one["name"], one["group"]) for one in asked} == {
        ("create", "agentterminals", NAMESPACE, NAME, "agentterminal.dev")
    }
    for right in rights:
        async with open_doors() as others:
            others.kube.rights.remove(("anna", right))
            assert (await others.ask(f"{PATH}/attach{query}")).cause == "NoRight"


async def test_a_page_attaches_with_two_subprotocols_and_only_the_first_is_selected(doors: Doors) -> None:
    async with doors.attached(token=None, protocols=offer(ANNA)) as socket:
        assert socket.protocol == SUBPROTOCOL
    assert doors.terminals.requests[0].person.name == "anna"


async def test_the_vendors_paths_list_and_attach_to_this_objects_session_and_to_no_other(doors: Doors) -> None:
    base = f"{PATH}/sdk/v1/sprites"
    listed = await doors.ask(f"{base}/box/exec")
    async with doors.attached(path=f"{base}/box/exec/77", query="?stdin=true&tty=true&rows=30&cols=100"):
        pass
    async with doors.attached(path=f"{base}/box/exec", query="?id=77&stdin=true"):
        pass
    async with doors.attached(path=f"{PATH}/sdk-takeover/v1/sprites/box/exec/77", query="?stdin=true"):
        pass

    assert listed.body == {
        "count": 1,
        "sessions": [
            {"id": "77", "command": "", "created": "2026-01-01T11:00:00Z", "is_active": True, "tty": True},
        ],
    }
    assert [one.mode for one in doors.terminals.requests] == [Mode.HOLD, Mode.HOLD, Mode.TAKEOVER]
    assert {one.door for one in doors.terminals.requests} == {Door.SDK}
    assert (doors.terminals.requests[0].columns, doors.terminals.requests[0].rows) == (100, 30)
    assert (await doors.ask(f"{base}/other/exec")).cause == "NotFound"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await doors.http.ws_connect(f"{doors.url}{base}/box/exec/78", headers={"Authorization": f"Bearer {ANNA}"})
    assert refused.value.status == 404


async def test_the_vendors_sdk_lists_the_one_session_unchanged(doors: Doors) -> None:
    def list_them() -> list[sprites.Session]:
        with sprites.SpritesClient(ANNA, base_url=f"{doors.url}{PATH}/sdk") as client:
            return client.sprite("box").list_sessions()

    (session,) = await asyncio.to_thread(list_them)

    assert (session.id, session.tty, session.is_active) == ("77", True, True)
    assert session.created.isoformat() == "2026-01-01T11:00:00+00:00"


async def test_through_the_vendors_paths_nothing_is_started_or_ended(doors: Doors) -> None:
    base = f"{PATH}/sdk/v1/sprites/box/exec"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await doors.http.ws_connect(f"{doors.url}{base}?cmd=sh&path=sh", headers={"Authorization": f"Bearer {ANNA}"})
    assert refused.value.status == 405
    for method, path in (("POST", base), ("POST", f"{base}/77/kill"), ("POST", f"{base}/77"), ("DELETE", base)):
        assert (await doors.ask(path, method=method)).cause == "NoMethod"
    assert doors.kube.calls == []


async def test_activity_is_noted_for_the_object_with_a_right_of_its_own(doors: Doors) -> None:
    answer = await doors.ask(f"{PATH}/activity", method="POST")
    assert (answer.status, answer.body["message"]) == (200, "Noted.")
    assert doors.terminals.activity == ["uid-1"]
    assert doors.kube.specs[-1]["resourceAttributes"]["subresource"] == "activity"

    doors.kube.objects[NAME] = build_object(terminated=True)
    assert (await doors.ask(f"{PATH}/activity", method="POST")).cause == "Terminated"
    assert doors.terminals.activity == ["uid-1"]


async def test_activity_that_cannot_be_noted_is_told_and_may_be_sent_again(doors: Doors) -> None:
    doors.terminals.unwritten = True
    answer = await doors.ask(f"{PATH}/activity", method="POST")
    assert (answer.status, answer.cause, answer.headers["Retry-After"]) == (503, "Undecided", "5")


async def test_an_object_of_another_version_is_told_as_such(doors: Doors) -> None:
    doors.kube.objects[NAME]["spec"] = {"spriteName": {"S3CRET": 1}}
    answer = await doors.ask()

    assert (answer.status, answer.cause) == (503, "Undecided")
    assert "its CRD is of another version" in answer.text
    assert "S3CRET" not in answer.text


async def test_only_an_attach_becomes_a_socket(doors: Doors) -> None:
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": "13"}
    answer = await doors.ask(f"{PATH}/activity", method="POST", Sec_WebSocket_Key="MDEyMzQ1Njc4OWFiY2RlZg==", **upgrade)

    assert (answer.status, answer.cause) == (400, "Malformed")
    assert doors.terminals.activity == []


# --- limits of sockets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "cause", "status"),
    [
        (LimitSettings(person_sockets=1), RefusalCause.PERSON_LIMIT, 429),
        (LimitSettings(object_sockets=1), RefusalCause.OBJECT_LIMIT, 429),
        (LimitSettings(sockets=1), RefusalCause.FULL, 503),
    ],
)
async def test_sockets_have_limits_by_person_by_object_and_in_all_and_a_closed_one_gives_its_place_back(
    limits: LimitSettings, cause: RefusalCause, status: int
) -> None:
    async with open_doors(GatewaySettings(port=0, metrics_port=0, limits=limits)) as doors:
        async with doors.attached():
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await doors.http.ws_connect(
                    f"{doors.url}{PATH}/attach?view=true", headers={"Authorization": f"Bearer {ANNA}"}
                )
            assert refused.value.status == status
            assert doors.count("requests_total", route="attach", answer=cause) == 1
        await wait_until(lambda: doors.gateway.sockets == 0)
        async with doors.attached():
            pass


# --- the leave of an open socket --------------------------------------------------------------------------------------


QUICK = TimeSettings(
    review_again=timedelta(seconds=0.05),
    verdict_kept=timedelta(seconds=0.01),
    fresh_token=timedelta(seconds=0.3),
    farewell=timedelta(seconds=0.3),
    drain=timedelta(seconds=5),
)


async def test_a_right_that_is_withdrawn_closes_the_socket_and_says_so() -> None:
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=QUICK)) as doors, doors.attached() as socket:
        await wait_until(lambda: bool(doors.terminals.requests))
        doors.kube.rights.clear()

        assert (await receive_text(socket)).startswith("Forbidden: ")
        assert await receive_close(socket) == (1008, "Forbidden")
        await wait_until(lambda: doors.count("sockets_ended_total", cause="Withdrawn") == 1)


async def test_a_token_that_expires_is_asked_for_and_a_fresh_one_of_the_same_person_goes_on() -> None:
    times = replace(QUICK, fresh_token=timedelta(seconds=SOON_SECONDS))
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=times)) as doors, doors.attached() as socket:
        doors.kube.users = {"fresh-token": "anna", BERT: "bert"}

        assert await receive_text(socket) == "token wanted within 20 s"
        await socket.send_str(f"auth {BERT}")
        assert await receive_text(socket) == "renewal OtherPerson"
        await socket.send_str("auth fresh-token")
        assert await receive_text(socket) == "renewal Renewed"
        asked = len(doors.kube.calls)
        await wait_until(lambda: len(doors.kube.calls) > asked + 8)  # several reviews on, it is still open
        await socket.send_str("still here")
        assert await receive_text(socket) == "still here"


async def test_without_a_fresh_token_the_socket_ends_as_expired() -> None:
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=QUICK)) as doors, doors.attached() as socket:
        doors.kube.users = {}
        assert await receive_text(socket) == "token wanted within 0.3 s"
        assert (await receive_text(socket)).startswith("Expired: ")
        assert await receive_close(socket) == (4401, "Expired")


async def test_whoever_does_not_heed_the_leave_is_closed_all_the_same() -> None:
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=QUICK)) as doors:
        doors.terminals.deaf = True
        async with doors.attached() as socket:
            await wait_until(lambda: bool(doors.terminals.requests))
            doors.kube.rights.clear()
            assert await receive_close(socket) == (1008, "Forbidden")
        await wait_until(lambda: doors.gateway.sockets == 0)


async def test_a_bug_behind_the_doors_ends_its_own_socket_and_keeps_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async with open_doors() as doors, doors.attached() as healthy:
        await wait_until(lambda: bool(doors.terminals.requests))
        doors.terminals.broken = True
        async with doors.attached("?view=true") as socket:
            assert await receive_close(socket) == (1011, "Bug")
        await healthy.send_str("well")
        assert await receive_text(healthy) == "well"

    bugs = [record for record in caplog.records if record.getMessage() == "A socket met a bug."]
    assert [vars(record)["error"] for record in bugs] == ["ValueError"]
    assert ANNA not in caplog.text


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_a_drain_tells_every_socket_lets_nobody_in_and_is_bounded() -> None:
    times = replace(QUICK, drain=timedelta(seconds=SOON_SECONDS))
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=times)) as doors, AsyncExitStack() as stack:
        first = await stack.enter_async_context(doors.attached())
        second = await stack.enter_async_context(doors.attached("?view=true"))
        await wait_until(lambda: len(doors.terminals.requests) == 2)
        await doors.ask("/healthz", token=None)  # leaves a connection that is kept
        url = doors.url
        draining = asyncio.ensure_future(doors.gateway.drain())

        for socket in (first, second):
            assert (await receive_text(socket)).startswith("Restarting: ")
            assert await receive_close(socket) == (1012, "Restarting")
        await draining
        assert doors.gateway.sockets == 0
        async with doors.http.get(f"{url}/readyz") as kept:
            assert (kept.status, await kept.text()) == (503, "This gateway ends.\n")
        async with aiohttp.ClientSession() as fresh:
            with pytest.raises(aiohttp.ClientConnectorError):
                await fresh.get(f"{url}/healthz")


async def test_a_drain_does_not_wait_for_ever_for_who_does_not_heed_it() -> None:
    times = replace(QUICK, drain=timedelta(seconds=0.2), farewell=timedelta(minutes=5))
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=times)) as doors:
        doors.terminals.deaf = True
        async with doors.attached():
            await wait_until(lambda: bool(doors.terminals.requests))
            async with asyncio.timeout(SOON_SECONDS):
                await doors.gateway.drain()
                assert doors.gateway.sockets == 1
                await doors.gateway.stop()
            await wait_until(lambda: doors.gateway.sockets == 0)


async def test_serving_ends_with_a_drain_when_it_is_cancelled() -> None:
    gateway = Gateway(
        GatewaySettings(port=0, metrics_port=0, times=QUICK),
        FakeKube(),
        terminals := EchoTerminals(),
        build_gateway_metrics(),
        SystemClock(),
    )
    async with aiohttp.ClientSession() as http:
        serving = asyncio.ensure_future(gateway.serve())
        await wait_until(lambda: gateway.is_listening)
        url = f"ws://127.0.0.1:{gateway.port}{PATH}/attach"
        async with http.ws_connect(url, headers={"Authorization": f"Bearer {ANNA}"}) as socket:
            await wait_until(lambda: bool(terminals.requests))
            serving.cancel()
            assert (await receive_text(socket)).startswith("Restarting: ")
            assert await receive_close(socket) == (1012, "Restarting")
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not gateway.is_listening


async def test_metrics_and_probes_have_a_port_of_their_own_that_is_no_door(doors: Doors) -> None:
    url = f"http://127.0.0.1:{doors.gateway.metrics_port}"
    async with doors.attached():
        await wait_until(lambda: bool(doors.terminals.requests))
        async with doors.http.get(f"{url}/metrics") as page:
            text = await page.text()
            assert page.headers["Content-Type"].startswith("text/plain")
    async with doors.http.get(f"{url}/metrics", headers={"Accept": "application/openmetrics-text"}) as page:
        assert page.headers["Content-Type"].startswith("application/openmetrics-text")

    assert 'agentterminal_gateway_requests_total{answer="Ok",route="attach"} 1.0' in text
    assert "agentterminal_gateway_sockets 1.0" in text
    told = {}
    for path in ("/healthz", "/readyz", f"{PATH}/attach", "/"):
        async with doors.http.get(f"{url}{path}", headers={"Authorization": f"Bearer {ANNA}"}) as answer:
            told[path] = answer.status
    assert told == {"/healthz": 200, "/readyz": 200, f"{PATH}/attach": 404, "/": 404}
    assert (await doors.ask("/metrics")).status == 404


# --- raw bytes --------------------------------------------------------------------------------------------------------

HEAD = f"GET {PATH}/attach HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(f"{HEAD}Authorization: Bearer {'S3CRET' * 8000}\r\n\r\n".encode(), id="a header over 32 KiB"),
        pytest.param(f"GET {PATH}/attach?t={'S3CRET' * 3000} HTTP/1.1\r\nHost: l\r\n\r\n".encode(), id="a long line"),
        pytest.param(f"{HEAD}Bad Header S3CRET: x\r\n\r\n".encode(), id="a space in a name"),
        pytest.param(f"{HEAD}X-A: S3CRET\x00\r\n\r\n".encode(), id="a NUL"),
        pytest.param(b"S3CRET S3CRET S3CRET\r\n\r\n", id="no HTTP"),
        pytest.param(HEAD.encode() + b"".join(b"X-%d: S3CRET\r\n" % n for n in range(200)) + b"\r\n", id="many"),
        pytest.param(f"{HEAD}Content-Length: S3CRET\r\n\r\n".encode(), id="a wrong length"),
    ],
)
async def test_a_head_that_cannot_be_read_is_answered_with_our_own_words(
    doors: Doors, request_bytes: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answer = await exchange(doors.gateway.port, request_bytes)

    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 ")), answer[:200]
    assert b'"reason":"BadRequest"' in answer
    assert b"S3CRET" not in answer
    assert "S3CRET" not in caplog.text
    assert doors.count("requests_total", route="none", answer="Malformed") == 1


async def test_a_connection_too_many_is_cut_before_it_is_read() -> None:
    async with open_doors(
        GatewaySettings(port=0, metrics_port=0, limits=LimitSettings(sockets=1, connections=1))
    ) as doors:
        async with doors.attached() as socket:
            head = f"{HEAD}Authorization: Bearer {ANNA}\r\n\r\n".encode()
            with suppress(ConnectionError):
                assert await exchange(doors.gateway.port, head) == b""
            await socket.send_str("well")
            assert await receive_text(socket) == "well"
        await wait_until(lambda: doors.gateway.sockets == 0)
        assert doors.count("requests_total", route="none", answer="Busy") == 1


async def test_a_header_of_thirty_kib_is_read(doors: Doors) -> None:
    assert (await doors.ask(token="a" * 30_000)).cause == "BadToken"


async def test_who_never_ends_his_head_is_cut_off() -> None:
    times = TimeSettings(request_head=timedelta(seconds=0.3))
    async with open_doors(GatewaySettings(port=0, metrics_port=0, times=times)) as doors:
        assert await exchange(doors.gateway.port, HEAD.encode() + b"Authorization: Bea") == b""


class Stuck(web.WebSocketResponse):
    """A client that does not take the answer to its upgrade."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        await asyncio.Event().wait()
        raise AssertionError("Nobody wakes it.")


async def test_who_does_not_take_the_answer_to_an_upgrade_is_cut_off_and_gives_the_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits, times = LimitSettings(person_sockets=1), TimeSettings(upgrade=timedelta(seconds=0.2))
    async with open_doors(GatewaySettings(port=0, metrics_port=0, limits=limits, times=times)) as doors:
        with monkeypatch.context() as patch:
            patch.setattr(doors.terminals, "build_socket", lambda _protocols: Stuck())
            with pytest.raises(aiohttp.ServerDisconnectedError):
                async with doors.attached():
                    pass
        await wait_until(lambda: doors.gateway.sockets == 0)

        assert doors.terminals.requests == []
        assert (await doors.ask()).cause == "Ok"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(f"Sec-WebSocket-Protocol: {BEARER_SUBPROTOCOL}UzNDUkVU\r\n", id="the bearer alone"),
        pytest.param("Sec-WebSocket-Protocol: S3CRET\r\n", id="a foreign subprotocol"),
        pytest.param("Sec-WebSocket-Version: S3CRET\r\n", id="a wrong version"),
        pytest.param("Upgrade: S3CRET\r\n", id="another upgrade"),
        pytest.param("Sec-WebSocket-Key: S3CRET\r\n", id="a wrong key"),
        pytest.param("Authorization: Basic S3CRET\r\n", id="another scheme"),
        pytest.param("Authorization: Bearer S3CRET with spaces\r\n", id="no token"),
        pytest.param(f"Sec-WebSocket-Protocol: {offer(ANNA)[1]}\r\n", id="the bearer of anna alone"),
    ],
)
async def test_an_upgrade_that_cannot_be_answered_is_refused_before_anything_repeats_it(
    doors: Doors, lines: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    standard = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg==",
    }
    head = HEAD + "".join(f"{key}: {value}\r\n" for key, value in standard.items() if f"{key}:" not in lines)
    # Everything else is as it should be, so that only this is left to be refused for.
    right = "" if "Authorization" in lines or BEARER_SUBPROTOCOL in lines else f"Authorization: Bearer {ANNA}\r\n"
    answer = await exchange(doors.gateway.port, f"{head}{right}{lines}\r\n".encode())

    assert answer.split(b" ")[1] == (b"401" if "Basic" in lines else b"400")
    assert b"S3CRET" not in answer
    assert "S3CRET" not in caplog.text
    assert BEARER_SUBPROTOCOL not in caplog.text
    assert doors.terminals.requests == []

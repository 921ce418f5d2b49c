"""What the client does when the API server, the connection or our own tenure fails. Real sockets, one real server."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import orjson
import pytest
from aiohttp import web

from controller.errors import Failure
from controller.kube.calls import Call, KubeCallReport, Resource, Succeeded, Unsettled, Verb
from controller.kube.client import KubeClient, Page
from controller.kube.credentials import ConnectionFacts, load_credentials
from controller.kube.errors import (
    Conflict,
    Gone,
    Invalid,
    KubeError,
    Malformed,
    Rejected,
    ServerFault,
    Throttled,
    TimedOut,
    Unauthorized,
    Unreachable,
)
from controller.kube.settings import KubeSettings
from controller.tenure import Tenure, TenureEnded
from tests.kube.doubles import (
    Bench,
    Gate,
    HandClock,
    Server,
    answer,
    answer_object,
    bench,
    cut,
    cut_in_the_middle,
    hang,
)

SECOND = timedelta(seconds=1)
LEASE = {"metadata": {"namespace": "ours", "name": "operator", "uid": "u", "resourceVersion": "5"}}

Write = Callable[[KubeClient, Tenure], Awaitable[object]]


async def patch_status(client: KubeClient, tenure: Tenure) -> object:
    return await client.patch_status("a", "b", {"status": {"phase": "Running"}}, tenure=tenure)


async def patch_json(client: KubeClient, tenure: Tenure) -> object:
    return await client.patch_json("a", "b", [{"op": "test", "path": "/x", "value": 1}], tenure=tenure)


async def create_event(client: KubeClient, tenure: Tenure) -> object:
    return await client.create_event("a", {}, tenure=tenure)


async def patch_event(client: KubeClient, tenure: Tenure) -> object:
    return await client.patch_event("a", "b", {}, tenure=tenure)


async def put_lease(client: KubeClient, _tenure: Tenure) -> object:
    return await client.put_lease(LEASE, timeout=SECOND)


async def delete_lease(client: KubeClient, _tenure: Tenure) -> object:
    await client.delete_lease("ours", "operator", uid="u", resource_version="5", timeout=SECOND)
    return None


async def create_lease(client: KubeClient, _tenure: Tenure) -> object:
    return await client.create_lease(LEASE, timeout=SECOND)


UNDER_TENURE: list[Write] = [patch_status, patch_json, create_event, patch_event]
WRITES: list[Write] = [*UNDER_TENURE, put_lease, delete_lease, create_lease]


def outcomes(api: Bench) -> list[object]:
    return [report.outcome for report in api.reports]


# --- What goes over the wire -----------------------------------------------------------------------------------------


async def test_a_read_is_consistent(api: Bench) -> None:
    await api.client.get("team-a", "one")
    [seen] = api.server.seen
    assert (seen.method, seen.target) == (
        "GET",
        "/apis/agentterminal.dev/v1alpha1/namespaces/team-a/agentterminals/one",
    )
    assert "resourceVersion" not in seen.target
    assert seen.headers["Authorization"] == "Bearer first-token"
    assert seen.headers["User-Agent"].startswith("agentterminal-operator/")


async def test_a_status_patch_is_a_merge_patch_of_our_manager(api: Bench) -> None:
    await api.client.patch_status("a", "b", {"status": {"phase": "Running"}}, tenure=Tenure(1))
    [seen] = api.server.seen
    assert seen.method == "PATCH"
    assert seen.target.endswith("/agentterminals/b/status?fieldManager=agentterminal-operator")
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert orjson.loads(seen.body) == {"status": {"phase": "Running"}}


@pytest.mark.parametrize(("subresource", "end"), [(None, "/agentterminals/b"), ("status", "/agentterminals/b/status")])
async def test_a_json_patch_names_its_subresource(api: Bench, subresource: str | None, end: str) -> None:
    await api.client.patch_json("a", "b", [], subresource=subresource, tenure=Tenure(1))
    [seen] = api.server.seen
    assert seen.target.split("?")[0].endswith(end)
    assert seen.headers["Content-Type"] == "application/json-patch+json"


async def test_a_secret_is_decoded(api: Bench) -> None:
    api.server.script = [answer(200, {"data": {"token": "aMOk"}}), answer(200, {})]
    assert await api.client.get_secret("a", "b") == {"token": "hä".encode()}
    assert await api.client.get_secret("a", "b") == {}


async def test_a_secret_that_is_not_base64_is_malformed_and_not_shown(api: Bench) -> None:
    api.server.script = [answer(200, {"data": {"token": "hunter2!"}})]
    with pytest.raises(Malformed) as refused:
        await api.client.get_secret("a", "b")
    assert "hunter2" not in str(refused.value)


async def test_a_lease_is_deleted_with_its_uid_and_version(api: Bench) -> None:
    await api.client.delete_lease("ours", "operator", uid="u", resource_version="5", timeout=SECOND)
    [seen] = api.server.seen
    assert seen.method == "DELETE"
    assert orjson.loads(seen.body)["preconditions"] == {"uid": "u", "resourceVersion": "5"}


@pytest.mark.parametrize("missing", ["uid", "resourceVersion"])
async def test_a_lease_is_never_put_blindly(api: Bench, missing: str) -> None:
    metadata = {key: value for key, value in LEASE["metadata"].items() if key != missing}
    with pytest.raises(ValueError):
        await api.client.put_lease({"metadata": metadata}, timeout=SECOND)
    assert api.server.seen == []


async def test_a_write_without_a_tenure_cannot_be_made_by_reading(api: Bench) -> None:
    with pytest.raises(ValueError):
        await api.client.read(Call(verb=Verb.DELETE, resource=Resource.LEASES, namespace="a", name="b"))
    assert api.server.seen == []


# --- Tenure ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", UNDER_TENURE)
async def test_no_write_leaves_after_the_tenure_ended(api: Bench, write: Write) -> None:
    tenure = Tenure(1)
    tenure.end()
    with pytest.raises(TenureEnded):
        await write(api.client, tenure)
    assert api.server.seen == []
    assert outcomes(api) == [Unsettled.WITHHELD]


async def test_a_write_that_waited_for_its_connection_does_not_leave_after_the_tenure_ended(server: Server) -> None:
    gate = Gate()
    server.otherwise = gate
    tenure = WatchedTenure(1)
    async with bench(server, connections=4) as api, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(api.client.get("a", f"reader-{number}"))
        await gate.wait_entered(4)
        write = group.create_task(expect(TenureEnded, patch_status(api.client, tenure)))
        async with asyncio.timeout(10):
            await tenure.demanded.wait()
        tenure.end()
        gate.open()
        await write
        await api.client.get("a", "later")
    assert [seen.method for seen in server.seen] == ["GET"] * 5


async def test_a_client_with_a_tenure_of_its_own_reads_only_while_it_lasts(server: Server) -> None:
    tenure = Tenure(1)
    async with bench(server, tenure=tenure) as api:
        await api.client.get("a", "b")
        tenure.end()
        for read in (api.client.get("a", "b"), api.client.get_secret("a", "b"), api.client.get_crd("a")):
            await expect(TenureEnded, read)
    assert len(server.seen) == 1


async def test_a_read_that_waited_for_its_connection_does_not_leave_after_the_clients_tenure_ended(
    server: Server,
) -> None:
    gate = Gate()
    server.otherwise = gate
    tenure = WatchedTenure(1)
    async with bench(server, tenure=tenure, connections=4) as api, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(api.client.get("a", f"reader-{number}"))
        await gate.wait_entered(4)
        tenure.demanded.clear()
        late = group.create_task(expect(TenureEnded, api.client.get("a", "late")))
        async with asyncio.timeout(10):
            await tenure.demanded.wait()
        tenure.end()
        gate.open()
        await late
    assert len(server.seen) == 4


class WatchedTenure(Tenure):
    """Tells when it was demanded."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.demanded = asyncio.Event()

    def demand(self) -> None:
        super().demand()
        self.demanded.set()


async def expect(kind: type[BaseException], work: Awaitable[object]) -> BaseException:
    with pytest.raises(kind) as caught:
        await work
    return caught.value


# --- Connections -----------------------------------------------------------------------------------------------------


async def test_few_connections_carry_many_calls(server: Server) -> None:
    async with bench(server, connections=4) as api, asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(api.client.get("a", str(number)))
    assert len(server.seen) == 64
    assert len({seen.connection for seen in server.seen}) <= 4


async def test_no_more_calls_are_in_flight_than_permitted(server: Server) -> None:
    gate = Gate()
    server.otherwise = gate
    async with bench(server, connections=4, in_flight=5) as api, asyncio.TaskGroup() as group:
        for number in range(9):
            group.create_task(api.client.get("a", str(number)))
        await gate.wait_entered(4)
        assert api.client._turns.locked()
        gate.open()
    assert len(server.seen) == 9


async def test_a_read_is_sent_again_when_its_idle_connection_was_dropped(api: Bench) -> None:
    api.server.script = [answer_object, cut, answer_object]
    await api.client.get("a", "b")
    await api.client.get("a", "b")
    assert len(api.server.seen) == 3
    assert outcomes(api) == [Succeeded.OK, Succeeded.OK]


async def test_a_read_is_sent_again_only_once(api: Bench) -> None:
    api.server.otherwise = cut
    error = await expect(Unreachable, api.client.get("a", "b"))
    assert isinstance(error, Unreachable)
    assert not error.may_have_happened
    assert len(api.server.seen) == 2


@pytest.mark.parametrize("breaking", [cut, cut_in_the_middle])
@pytest.mark.parametrize("write", WRITES)
async def test_no_write_is_sent_twice(api: Bench, write: Write, breaking: Any) -> None:
    api.server.script = [answer_object, breaking]
    await api.client.get("a", "b")
    error = await expect(Unreachable, write(api.client, Tenure(1)))
    assert isinstance(error, Unreachable)
    assert error.may_have_happened
    assert len(api.server.seen) == 2
    assert outcomes(api) == [Succeeded.OK, Failure.UNREACHABLE]


async def test_a_write_that_nobody_listened_to_did_not_happen(server: Server) -> None:
    await server.stop()
    async with bench(server) as api:
        error = await expect(Unreachable, patch_status(api.client, Tenure(1)))
    assert isinstance(error, Unreachable)
    assert not error.may_have_happened
    assert str(error) == (
        f"No answer from the Kubernetes API at 127.0.0.1:{server.port} to patch agentterminals/status a/b: "
        "Connection refused."
    )


# --- Time ------------------------------------------------------------------------------------------------------------

SHORT = timedelta(milliseconds=200)
"""Where nothing has to be done in this time."""


async def test_a_call_without_an_answer_has_an_end(server: Server) -> None:
    server.otherwise = hang
    # Long enough to be sent.
    async with bench(server, request_timeout=SECOND, connect_timeout=SECOND) as api:
        read, written = await asyncio.gather(
            expect(TimedOut, api.client.get("a", "b")), expect(TimedOut, patch_status(api.client, Tenure(1)))
        )
    assert isinstance(read, TimedOut)
    assert isinstance(written, TimedOut)
    assert (read.may_have_happened, written.may_have_happened) == (False, True)
    assert sorted(seen.method for seen in server.seen) == ["GET", "PATCH"]


async def test_a_write_that_never_got_a_connection_in_time_did_not_happen(server: Server) -> None:
    gate = Gate()
    server.otherwise = gate
    async with bench(server, connections=4) as api, asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(api.client.get("a", str(number)))
        await gate.wait_entered(4)
        error = await expect(TimedOut, api.client.put_lease(LEASE, timeout=SHORT))
        gate.open()
    assert isinstance(error, TimedOut)
    assert not error.may_have_happened
    assert [seen.method for seen in server.seen] == ["GET"] * 4


async def test_a_lease_call_ends_by_its_own_time(server: Server) -> None:
    server.otherwise = hang
    async with bench(server) as api, asyncio.timeout(10):
        await expect(TimedOut, api.client.get_lease("a", "b", timeout=SHORT))


async def test_a_cancelled_call_gives_its_turn_back(server: Server) -> None:
    gate = Gate()
    server.otherwise = gate
    async with bench(server, connections=4, in_flight=4) as api:
        tasks = [asyncio.get_running_loop().create_task(api.client.get("a", str(n))) for n in range(4)]
        await gate.wait_entered(4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.otherwise = answer_object
        await api.client.get("a", "b")
    assert outcomes(api) == [Unsettled.CANCELLED] * 4 + [Succeeded.OK]


# --- Answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"), [(409, Conflict), (422, Invalid), (429, Throttled), (503, ServerFault), (302, Rejected)]
)
async def test_a_refusal_is_an_error_and_is_not_repeated(api: Bench, status: int, kind: type[KubeError]) -> None:
    api.server.otherwise = answer(status, b"{}", Location="/elsewhere", Retry_After="4")
    error = await expect(kind, patch_status(api.client, Tenure(1)))
    assert isinstance(error, KubeError)
    assert error.status == status
    assert len(api.server.seen) == 1
    assert outcomes(api) == [error.failure]
    if kind is Throttled:
        assert error.retry_after == timedelta(seconds=4)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'"x"'])
async def test_success_without_an_object_is_malformed(api: Bench, body: bytes) -> None:
    api.server.otherwise = answer(200, body)
    read = await expect(Malformed, api.client.get("a", "b"))
    written = await expect(Malformed, patch_status(api.client, Tenure(1)))
    assert isinstance(read, Malformed)
    assert isinstance(written, Malformed)
    assert (read.may_have_happened, written.may_have_happened) == (False, True)


async def test_each_call_reports_itself(api: Bench) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        api.clock.passed += SECOND
        return await answer_object(request)

    api.server.script = [slow]
    await patch_status(api.client, Tenure(1))
    assert api.reports == [KubeCallReport(Verb.PATCH, Resource.TERMINAL_STATUS, Succeeded.OK, SECOND)]


# --- Credentials -----------------------------------------------------------------------------------------------------


async def test_a_401_is_answered_with_newer_credentials_once(api: Bench) -> None:
    api.server.script = [answer(401, b"{}"), answer_object]
    api.facts.change(token="second-token")
    await patch_status(api.client, Tenure(1))
    assert [seen.headers["Authorization"] for seen in api.server.seen] == ["Bearer first-token", "Bearer second-token"]
    assert outcomes(api) == [Succeeded.OK]


async def test_a_401_with_the_same_credentials_stands(api: Bench) -> None:
    api.server.otherwise = answer(401, b"{}")
    await expect(Unauthorized, api.client.get("a", "b"))
    assert len(api.server.seen) == 1
    assert outcomes(api) == [Failure.UNAUTHORIZED]


async def test_a_401_for_the_newer_credentials_too_stands(api: Bench) -> None:
    api.server.otherwise = answer(401, b"{}")
    api.facts.change(token="second-token")
    await expect(Unauthorized, api.client.get("a", "b"))
    assert len(api.server.seen) == 2


async def test_many_401_read_the_credentials_once(api: Bench) -> None:
    api.server.script = [answer(401, b"{}")] * 16
    api.facts.change(token="second-token")
    before = api.facts.readings
    async with asyncio.TaskGroup() as group:
        for number in range(16):
            group.create_task(api.client.get("a", str(number)))
    assert api.facts.readings == before + 1
    assert outcomes(api) == [Succeeded.OK] * 16


async def test_the_write_after_a_401_demands_its_tenure_again(api: Bench) -> None:
    tenure = Tenure(1)

    async def refuse(_request: web.Request) -> web.StreamResponse:
        tenure.end()
        return web.Response(status=401)

    api.server.script = [refuse]
    api.facts.change(token="second-token")
    await expect(TenureEnded, patch_status(api.client, tenure))
    assert len(api.server.seen) == 1


async def test_no_error_shows_the_token(api: Bench) -> None:
    api.server.otherwise = answer(401, b"{}")
    texts = [str(await expect(KubeError, api.client.get("a", "b")))]
    api.server.otherwise = cut
    texts.append(str(await expect(KubeError, api.client.get("a", "b"))))
    assert not any("first-token" in text for text in texts)


# --- Proxies ---------------------------------------------------------------------------------------------------------


async def test_the_environments_proxy_is_not_trusted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with bench(server) as api:
        await api.client.get("a", "b")
    assert len(server.seen) == 1


async def test_a_kubeconfigs_own_proxy_is_used(server: Server) -> None:
    facts = ConnectionFacts(server="http://127.0.0.1:9", proxy_url=server.url)
    settings = KubeSettings()
    credentials = await load_credentials(settings, clock=HandClock(), read=lambda _settings: facts)
    async with KubeClient(credentials, settings, HandClock(), lambda _report: None) as client:
        await client.get("a", "b")
    [seen] = server.seen
    assert seen.target.startswith("http://127.0.0.1:9/apis/")


# --- Lists -----------------------------------------------------------------------------------------------------------


def page(*names: str, following: str = "", version: str = "9") -> Any:
    items = [{"metadata": {"name": name}} for name in names]
    return answer(200, {"metadata": {"resourceVersion": version, "continue": following}, "items": items})


async def listed(client: KubeClient, **arguments: Any) -> list[Page]:
    return [page async for page in client.list_pages(**({"metadata_only": True} | arguments))]


def names_of(page: Page) -> list[str]:
    return [item["metadata"]["name"] for item in page.items]


async def test_a_list_goes_on_to_its_last_page(api: Bench) -> None:
    api.server.script = [page("a", "b", following="t/1"), page("c")]
    pages = await listed(api.client, limit=2, field_selector="status.socket.incarnation=x")
    assert [(names_of(page), page.begins) for page in pages] == [(["a", "b"], True), (["c"], False)]
    assert [seen.target.partition("?")[2] for seen in api.server.seen] == [
        "limit=2&fieldSelector=status.socket.incarnation%3Dx",
        "limit=2&fieldSelector=status.socket.incarnation%3Dx&continue=t%2F1",
    ]
    assert "as=PartialObjectMetadataList" in api.server.seen[0].headers["Accept"]


async def test_an_empty_list_is_one_page(api: Bench) -> None:
    api.server.script = [answer(200, {"metadata": {"resourceVersion": "9"}, "items": None})]
    assert await listed(api.client) == [Page((), None, begins=True, resource_version="9")]


async def test_several_namespaces_are_listed_one_after_the_other(api: Bench) -> None:
    api.server.script = [page("a"), page("b")]
    pages = await listed(api.client, namespaces=["x", "y"], metadata_only=False)
    assert [(page.namespace, names_of(page), page.begins) for page in pages] == [
        ("x", ["a"], True),
        ("y", ["b"], True),
    ]
    assert api.server.seen[0].headers["Accept"] == "application/json"


async def test_a_version_that_expires_between_two_pages_begins_the_list_again(api: Bench) -> None:
    api.server.script = [page("a", following="t"), answer(410, b"{}"), page("a", following="u"), page("b")]
    pages = await listed(api.client)
    assert [(names_of(page), page.begins) for page in pages] == [(["a"], True), (["a"], True), (["b"], False)]


async def test_a_version_that_expires_in_every_pass_ends_the_list(server: Server) -> None:
    server.script = [page("a", following="t"), answer(410, b"{}")] * 2
    async with bench(server, list_passes=2) as api:
        await expect(Gone, listed(api.client))
    assert len(server.seen) == 4


@pytest.mark.parametrize("body", [{}, {"items": {}}, {"items": []}, {"items": "x", "metadata": {}}])
async def test_an_answer_that_is_no_list_is_malformed(api: Bench, body: Any) -> None:
    api.server.script = [answer(200, body)]
    await expect(Malformed, listed(api.client))


# --- The end ---------------------------------------------------------------------------------------------------------


async def test_closing_twice_is_fine_and_calling_afterwards_is_a_bug(api: Bench) -> None:
    await api.client.get("a", "b")
    await api.client.aclose()
    await api.client.aclose()
    with pytest.raises(RuntimeError):
        await api.client.get("a", "b")

"""Who may at the gateway's doors, as a real API server says it: its tokens, its certificates, its RBAC."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from controller.api import names
from controller.clock import SystemClock
from controller.gateway.access import SUBPROTOCOL
from controller.gateway.metrics import build_gateway_metrics
from controller.gateway.server import Gateway
from controller.gateway.settings import OWN_AUDIENCE, GatewaySettings, TimeSettings, TlsFiles
from controller.kube.client import KubeClient
from controller.kube.credentials import load_credentials
from controller.kube.settings import Kubeconfig, KubeSettings
from controller.lab.certificates import Authority
from tests.cluster.plane import Cluster
from tests.gateway.doubles import EchoTerminals, exchange, offer, receive_close, receive_text

RBAC = f"/apis/{'rbac.authorization.k8s.io'}/v1"
SPEC = {"spriteName": "box", "sessionId": "812"}
QUICK = TimeSettings(
    review_again=timedelta(seconds=0.2),
    verdict_kept=timedelta(seconds=0.1),
    fresh_token=timedelta(seconds=5),
    farewell=timedelta(seconds=2),
)
SOON_SECONDS = 30


@dataclass
class Site:
    """A namespace with two terminals, a gateway's account with its rights, and what people are given."""

    cluster: Cluster
    namespace: str
    folder: Path
    made: list[str] = field(default_factory=list)

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return await asyncio.to_thread(self.cluster.request, method, path, body=body)

    async def create(self, path: str, body: Mapping[str, Any], *, everywhere: bool = False) -> None:
        status, answer = await self.request("POST", path, body)
        assert status == 201, answer
        if everywhere:
            self.made.append(f"{path}/{body['metadata']['name']}")

    async def prepare(self) -> None:
        for name in ("one", "two"):
            await self.create(
                f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}",
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.KIND,
                    "metadata": {"name": name},
                    "spec": SPEC,
                },
            )
        gateway = {"kind": "ServiceAccount", "name": "gateway", "namespace": self.namespace}
        read = {"apiGroups": [names.GROUP], "resources": [names.PLURAL], "verbs": ["get"]}
        name = f"gateway-{self.namespace}"
        await self.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [read]}, everywhere=True)
        for role, where in (
            (("ClusterRole", name), "clusterrolebindings"),
            (("ClusterRole", "system:auth-delegator"), "clusterrolebindings"),
            (("Role", "extension-apiserver-authentication-reader"), "namespaces/kube-system/rolebindings"),
        ):
            await self.create(f"{RBAC}/{where}", bind(f"{name}-{role[1]}", role, gateway), everywhere=True)

    async def clean(self) -> None:
        for path in self.made:
            await self.request("DELETE", path)

    async def grant(self, account: str, *rules: Mapping[str, Any]) -> None:
        """Give an account of this namespace a role of its own."""
        roles = f"{RBAC}/namespaces/{self.namespace}"
        await self.create(f"{roles}/roles", {"metadata": {"name": account}, "rules": list(rules)})
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        await self.create(f"{roles}/rolebindings", bind(account, ("Role", account), subject))

    async def withdraw(self, account: str) -> None:
        status, _ = await self.request("DELETE", f"{RBAC}/namespaces/{self.namespace}/rolebindings/{account}")
        assert status == 200

    async def token(self, account: str, *audiences: str) -> str:
        work = self.cluster.plane.service_account_token(self.namespace, account, audiences=audiences)
        return await asyncio.to_thread(self.cluster.call, work)

    def path(self, name: str = "one", door: str = "attach") -> str:
        return f"/v1/namespaces/{self.namespace}/agentterminals/{name}/{door}"

    def sign_again(self, token: str, **claims: Any) -> str:
        """Change what a token says, and sign it as this cluster would."""
        header, payload, _ = token.split(".")
        told = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))) | claims
        unsigned = f"{header}.{encode(json.dumps(told).encode())}"
        pem = (self.cluster.plane.directory / "service-accounts.key").read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        r, s = decode_dss_signature(key.sign(unsigned.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{unsigned}.{encode(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    @asynccontextmanager
    async def open(self, *, strict: bool = False, tls: TlsFiles | None = None) -> AsyncIterator["RealDoors"]:
        path = await asyncio.to_thread(self.cluster.service_account_kubeconfig, self.namespace, "gateway")
        settings, clock = KubeSettings(login=Kubeconfig(str(path))), SystemClock()
        credentials = await load_credentials(settings, clock=clock)
        doors = GatewaySettings(port=0, metrics_port=0, own_audience_only=strict, tls=tls, times=QUICK)
        async with (
            KubeClient(credentials, settings, clock, lambda _: None) as kube,
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SOON_SECONDS)) as http,
        ):
            terminals = EchoTerminals()
            gateway = Gateway(doors, kube, terminals, build_gateway_metrics(), clock)
            await gateway.start()
            try:
                yield RealDoors(gateway, terminals, http, self)
            finally:
                await gateway.stop()


@dataclass
class RealDoors:
    """A gateway that asks the real API server."""

    gateway: Gateway
    terminals: EchoTerminals
    http: aiohttp.ClientSession
    site: Site

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.gateway.port}{path}"

    async def ask(self, token: str | None, name: str = "one", query: str = "", door: str = "attach") -> str:
        """Ask without an upgrade; give `Ok`, or the cause of the refusal."""
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        method = "POST" if door == "activity" else "GET"
        url = self.url(self.site.path(name, door) + query)
        async with self.http.request(method, url, headers=headers) as answer:
            body = await answer.json()
        return "Ok" if answer.status == 200 else str(body["details"]["causes"][0]["reason"])

    async def await_answer(self, wanted: str, token: str, name: str = "one", query: str = "") -> None:
        """Ask until it is answered so: RBAC reaches the API server's authorizer a moment after it was written."""
        for _ in range(SOON_SECONDS * 10):
            if await self.ask(token, name, query) == wanted:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"It was never answered {wanted}.")

    @asynccontextmanager
    async def attached(
        self, token: str | None, protocols: Sequence[str] = ()
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with self.http.ws_connect(self.url(self.site.path()), headers=headers, protocols=protocols) as socket:
            yield socket

    @asynccontextmanager
    async def attached_until_soon(self, token: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Attach with a token that ends soon, and less soon where it has ended before it was looked at."""
        async with AsyncExitStack() as stack:
            for seconds in (3, 10, 30):
                now = int(datetime.now(UTC).timestamp())
                ending = self.site.sign_again(token, iat=now - 60, nbf=now - 60, exp=now + seconds)
                try:
                    socket = await stack.enter_async_context(self.attached(ending))
                    break
                except aiohttp.WSServerHandshakeError as error:
                    if error.status != 401:
                        raise
            yield socket


def bind(name: str, role: tuple[str, str], subject: Mapping[str, str]) -> dict[str, Any]:
    kind, named = role
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": named}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}


def rule(*resources: str, verbs: Sequence[str] = ("create",), **named: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [names.GROUP], "resources": list(resources), "verbs": list(verbs), **named}


def encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@pytest.fixture
async def site(cluster: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(cluster, namespace, tmp_path)
    await site.prepare()
    yield site
    await site.clean()


async def test_rights_are_what_rbac_grants_on_the_named_objects_virtual_subresources(site: Site) -> None:
    on_one = {"resourceNames": ["one"]}
    await site.grant("anna", rule("agentterminals/attach", "agentterminals/view", **on_one))
    await site.grant("bert", rule("agentterminals", "agentterminals/*", verbs=["*"]))
    await site.grant("carl", rule("agentterminals/attach", "agentterminals/takeover", "agentterminals/activity"))
    await site.grant("dora", rule("agentterminals/takeover", "agentterminals/view", verbs=["get", "list", "watch"]))
    anna, bert, carl, dora = [await site.token(account) for account in ("anna", "bert", "carl", "dora")]

    async with site.open() as doors:
        await doors.await_answer("Ok", anna)
        await doors.await_answer("Ok", carl, query="?takeover=true")

        told = {
            "anna views": await doors.ask(anna, query="?view=true"),
            "anna takes over": await doors.ask(anna, query="?takeover=true"),
            "anna at two": await doors.ask(anna, "two"),
            "anna at an absent one": await doors.ask(anna, "three"),
            "anna is active": await doors.ask(anna, door="activity"),
            "carl at two": await doors.ask(carl, "two"),
            "carl at an absent one": await doors.ask(carl, "three"),
            "carl views": await doors.ask(carl, query="?view=true"),
            "carl is active": await doors.ask(carl, door="activity"),
            "bert attaches": await doors.ask(bert),
            "dora views": await doors.ask(dora, query="?view=true"),
        }

    assert told == {
        "anna views": "Ok",
        "anna takes over": "NoRight",
        "anna at two": "NoRight",
        "anna at an absent one": "NoRight",
        "anna is active": "NoRight",
        "carl at two": "Ok",
        "carl at an absent one": "NotFound",
        "carl views": "NoRight",
        "carl is active": "Ok",
        "bert attaches": "NoRight",
        "dora views": "NoRight",
    }
    assert len(doors.terminals.activity) == 1


async def test_a_token_is_taken_for_its_audience_until_its_end_and_if_it_is_the_clusters(site: Site) -> None:
    await site.grant("anna", rule("agentterminals/attach"))
    for_api, for_us = await site.token("anna"), await site.token("anna", OWN_AUDIENCE)
    for_both, for_others = await site.token("anna", "vault", OWN_AUDIENCE), await site.token("anna", "vault")
    now = int(datetime.now(UTC).timestamp())
    tokens = {
        "for the API server": for_api,
        "for the gateway": for_us,
        "for the gateway and others": for_both,
        "for others": for_others,
        "static": site.cluster.admin_token,
        "signed again": site.sign_again(for_api),
        "expired": site.sign_again(for_api, iat=now - 7200, nbf=now - 7200, exp=now - 60),
        "of another cluster": site.sign_again(for_api, iss="https://elsewhere.example.com"),
        "forged": f"{for_api.rsplit('.', 1)[0]}.{encode(bytes(64))}",
        "nonsense": "nonsense",
    }

    answers: dict[bool, dict[str, str]] = {}
    for strict in (False, True):
        async with site.open(strict=strict) as doors:
            await doors.await_answer("Ok", for_us)
            answers[strict] = {words: await doors.ask(token) for words, token in tokens.items()}

    taken = {strict: [words for words, answer in told.items() if answer == "Ok"] for strict, told in answers.items()}
    assert taken == {
        False: ["for the API server", "for the gateway", "for the gateway and others", "static", "signed again"],
        True: ["for the gateway", "for the gateway and others"],
    }
    assert {answer for told in answers.values() for answer in told.values()} == {"Ok", "BadToken"}


async def test_an_open_socket_ends_when_its_right_is_withdrawn(site: Site) -> None:
    await site.grant("anna", rule("agentterminals/attach"))
    anna = await site.token("anna")
    async with site.open() as doors:
        await doors.await_answer("Ok", anna)
        async with doors.attached(None, offer(anna)) as socket:
            assert socket.protocol == SUBPROTOCOL
            await socket.send_str("hello")
            assert await receive_text(socket) == "hello"

            await site.withdraw("anna")

            assert (await receive_text(socket)).startswith("Forbidden: ")
            assert await receive_close(socket) == (1008, "Forbidden")
    (request,) = doors.terminals.requests
    assert request.person.name == f"system:serviceaccount:{site.namespace}:anna"
    assert request.person.uid
    assert request.uid == request.terminal.raw["metadata"]["uid"]


async def test_a_token_that_ends_is_asked_for_and_a_fresh_one_of_the_same_account_goes_on(site: Site) -> None:
    await site.grant("anna", rule("agentterminals/attach"))
    await site.grant("bert", rule("agentterminals/attach"))
    fresh, bert = await site.token("anna"), await site.token("bert")
    async with site.open() as doors:
        await doors.await_answer("Ok", fresh)
        async with doors.attached_until_soon(fresh) as socket:
            assert await receive_text(socket) == "token wanted within 5 s"
            await socket.send_str(f"auth {bert}")
            assert await receive_text(socket) == "renewal OtherPerson"
            await socket.send_str(f"auth {fresh}")
            assert await receive_text(socket) == "renewal Renewed"
            await asyncio.sleep(2 * QUICK.review_again.total_seconds())
            await socket.send_str("hello")
            assert await receive_text(socket) == "hello"

            # An account that is deleted takes its tokens with it: no fresh one can come.
            await site.request("DELETE", f"/api/v1/namespaces/{site.namespace}/serviceaccounts/anna")
            assert await receive_text(socket) == "token wanted within 5 s"
            assert (await receive_text(socket)).startswith("Expired: ")
            assert await receive_close(socket) == (4401, "Expired")


async def test_the_clusters_client_certificates_speak_for_their_users(site: Site) -> None:
    servers = Authority(now=datetime.now(UTC))
    files = TlsFiles(site.folder / "tls.crt", site.folder / "tls.key")
    pair = servers.issue_server("127.0.0.1")
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)
    kubeconfig = yaml.safe_load(site.cluster.plane.certificate_kubeconfig.read_text())
    (user,) = (one["user"] for one in kubeconfig["users"])
    client = site.folder / "client.pem"
    client.write_bytes(
        b"".join(base64.b64decode(user[name]) for name in ("client-certificate-data", "client-key-data"))
    )
    trusting = ssl.create_default_context(cadata=servers.certificate.decode())
    known = ssl.create_default_context(cadata=servers.certificate.decode())
    known.load_cert_chain(client)

    async with site.open(tls=files) as doors:
        url = doors.url(site.path()).replace("http:", "https:")
        told = []
        for context, headers in ((trusting, {}), (known, {}), (known, {"Sec-Fetch-Site": "cross-site"})):
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http,
                http.get(url, headers=headers) as answer,
            ):
                told.append(answer.status)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=known)) as http,
            http.ws_connect(url) as socket,
        ):
            await socket.send_str("hello")
            assert await receive_text(socket) == "hello"

    assert told == [401, 200, 401]
    (request,) = doors.terminals.requests
    assert request.person.name == "lab-administrator"
    assert request.person.groups == ("system:masters", "system:authenticated")


async def test_real_tokens_come_back_in_no_answer_and_no_log_line(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await site.grant("anna", rule("agentterminals/attach"))
    anna, foreign = await site.token("anna"), await site.token("anna", "vault")
    outputs = []
    async with site.open() as doors:
        await doors.await_answer("Ok", anna)
        for token in (anna, foreign):
            for lines in (
                f"Authorization: Bearer {token}",
                f"Authorization: Bearer {token}{'a' * 40_000}",
                f"Authorization: Basic {token}",
                f"Sec-WebSocket-Protocol: {offer(token)[1]}",
                f"X-Bad {token}: b",
            ):
                head = f"GET {site.path()} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n"
                outputs.append((await exchange(doors.gateway.port, head.encode())).decode())
            query = f"GET {site.path()}?access_token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            outputs.append((await exchange(doors.gateway.port, query.encode())).decode())
    assert len(outputs) == 12
    assert all(output.startswith("HTTP/1.") for output in outputs)
    for token in (anna, foreign):
        for piece in (token[:40], offer(token)[1][-40:], token[-20:]):
            assert piece not in caplog.text
            assert not any(piece in output for output in outputs)

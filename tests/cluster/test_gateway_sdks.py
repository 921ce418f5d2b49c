"""
The vendor's SDKs, unchanged, and the cluster's client certificates, at the TLS doors of a real gateway process.

One world: an operator, a gateway that ends TLS, an emulator with real processes; each test has a terminal of its own.
Both SDKs trust the gateway by what their users would set: a file with its authority.
"""

import asyncio
import base64
import io
import os
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import aiohttp
import pytest
import sprites
import yaml
from sprites.exceptions import NetworkError
from sprites.exec import Cmd

from controller.lab.certificates import Authority
from controller.lab.rights import GATEWAY_NAME
from tests.cluster.plane import Cluster
from tests.cluster.test_gateway import RBAC, Site, run
from tests.sdk.node import Packages, prepare_packages
from tests.sdk.running import run_flow
from tests.support.gateway import GatewayProcess, open_gateway_world, visiting
from tests.support.process import await_true

pytestmark = pytest.mark.sprites

TALK = 'echo ready; while read line; do echo "got $line"; [ "$line" = go ] && exit 5; done'
"""Answers each line, and exits with 5 after the word that asks for it."""
SOON_SECONDS = 40


@dataclass
class Doors:
    """A gateway that ends TLS, and who vouches for it."""

    site: Site
    gateway: GatewayProcess
    folder: Path

    @property
    def authority(self) -> Path:
        """What a client has to trust."""
        return self.folder / "ca.pem"

    def write(self, authority: Authority) -> None:
        """Give the gateway a certificate of this authority."""
        write_pair(self.folder, authority)

    def base_url(self, name: str, door: str) -> str:
        """What an SDK takes for the Sprites API."""
        return f"{self.gateway.url}/v1/namespaces/{self.site.world.namespace}/agentterminals/{name}/{door}"

    def make_terminal(self) -> str:
        return self.site.make_terminal("sh", "-c", TALK)

    def await_exit(self, name: str, code: int) -> None:
        status = self.site.world.await_reason(name, "Exited", "SessionLive")
        assert status["exit"] == {"code": code}


def write_pair(folder: Path, authority: Authority) -> None:
    pair = authority.issue_server("127.0.0.1", "localhost")
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "tls.crt").write_bytes(pair.certificate)


@pytest.fixture(scope="module")
def packages() -> Packages:
    """What `make test` has fetched before the first test."""
    return prepare_packages()


@pytest.fixture(scope="module")
def doors(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    namespace, folder = f"sdks-{os.getpid()}", tmp_path_factory.mktemp("tls")
    write_pair(folder, Authority(now=datetime.now(UTC)))
    with open_gateway_world(cluster, namespace) as (world, kubeconfig):
        world.start_operator(LEASE_NAMESPACE=namespace, METADATA_SECONDS="1")
        site = Site(world, [], kubeconfig)
        # As the chart gives it where the gateway ends TLS: to learn whose client certificates the cluster takes.
        reader, binding = "extension-apiserver-authentication-reader", f"{RBAC}/namespaces/kube-system/rolebindings"
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": reader}
        subject = {"kind": "ServiceAccount", "name": GATEWAY_NAME, "namespace": namespace}
        body = {"metadata": {"name": namespace}, "roleRef": reference, "subjects": [subject]}
        site.create(binding, body)
        gateway = site.start_gateway(
            GATEWAY_TLS_CERT_FILE=str(folder / "tls.crt"), GATEWAY_TLS_KEY_FILE=str(folder / "tls.key")
        )
        try:
            yield Doors(site, gateway, folder)
        finally:
            gateway.kill()
            gateway.forget()
            cluster.request("DELETE", f"{binding}/{namespace}")


@pytest.fixture
def token(doors: Doors) -> str:
    return doors.site.account("anna", "attach", "takeover", "view")


@dataclass
class Languages:
    """Programs in both languages that reach a terminal through the gateway as if it were the Sprites API."""

    doors: Doors
    packages: Packages
    token: str = field(repr=False)

    def javascript(self, flow: str, name: str, door: str, meanwhile: Any = None) -> Any:
        environment = {
            "SPRITES_URL": self.doors.base_url(name, door),
            "SPRITE_TOKEN": self.token,
            "SPRITE_NAME": name,
            "NODE_EXTRA_CA_CERTS": str(self.doors.authority),
        }
        return run_flow(self.packages, flow, environment, meanwhile)

    def python(self, name: str, door: str, typing: BinaryIO) -> bytes:
        """Attach to the only session and type, up to its end; give what was said, or raise as the SDK does."""
        with sprites.SpritesClient(self.token, base_url=self.doors.base_url(name, door)) as client:
            sprite = client.sprite(name)
            (session,) = sprite.list_sessions()
            command: Cmd = sprite.attach_session(session.id)
            # Otherwise it types as if into a session without a terminal, until it has read of one.
            command.set_tty(True)
            command.stdin = typing
            return command.output()


@pytest.fixture
def languages(doors: Doors, packages: Packages, token: str, monkeypatch: pytest.MonkeyPatch) -> Languages:
    monkeypatch.setenv("SSL_CERT_FILE", str(doors.authority))
    return Languages(doors, packages, token)


def test_a_takeover_never_looks_like_an_exit_to_the_javascript_sdk_and_an_exit_does_to_the_python_sdk(
    doors: Doors, languages: Languages
) -> None:
    name, ended = doors.make_terminal(), []

    def take_over() -> None:
        with pytest.raises(sprites.ExecError) as caught:
            languages.python(name, "sdk-takeover", io.BytesIO(b"from python\ngo\n"))
        ended.append((caught.value.exit_code(), b"got from python" in caught.value.stdout))

    found = languages.javascript("attachAndStay", name, "sdk", take_over)

    (closed,) = [message for message in found["messages"] if message["type"] == "closed"]
    assert (closed["code"], closed["reason"]) == (4001, "Replaced")
    assert found["code"] == 1
    assert "exit" not in [message["type"] for message in found["messages"]]
    assert "from python" not in found["stdout"]
    assert ended == [(5, True)]
    assert found["stdout"].count("got from javascript") == 1
    doors.await_exit(name, 5)


def test_a_takeover_never_looks_like_an_exit_to_the_python_sdk_and_an_exit_does_to_the_javascript_sdk(
    doors: Doors, languages: Languages
) -> None:
    name, raised = doors.make_terminal(), []
    reading, writing = os.pipe()

    def stay() -> None:
        # Unbuffered: what is typed is read at once.
        with os.fdopen(reading, "rb", buffering=0) as typing, pytest.raises(NetworkError) as caught:
            languages.python(name, "sdk", cast("BinaryIO", typing))
        raised.append(str(caught.value))

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        os.write(writing, b"from python\n")
        await_true(lambda: doors.site.received(name) == b"from python\n", "the SDK to type", SOON_SECONDS)

        found = languages.javascript("attachAndEnd", name, "sdk-takeover")
    finally:
        os.close(writing)
        thread.join(SOON_SECONDS)

    # Of a terminal's end this SDK takes any close with 1000 for exit 0; the code comes as a message.
    assert found["code"] == 0
    assert [message["exit_code"] for message in found["messages"] if message["type"] == "exit"] == [5]
    assert len(raised) == 1
    assert "4001" in raised[0]
    assert "Replaced" in raised[0]
    doors.await_exit(name, 5)


async def test_a_certificate_is_exchanged_under_open_sockets_and_a_client_certificate_of_the_cluster_types(
    doors: Doors, tmp_path: Path
) -> None:
    name = await run(doors.make_terminal)
    kubeconfig = yaml.safe_load(doors.site.world.cluster.plane.certificate_kubeconfig.read_text())
    (user,) = (one["user"] for one in kubeconfig["users"])
    pair = tmp_path / "client.pem"
    parts = ("client-certificate-data", "client-key-data")
    pair.write_bytes(b"".join(base64.b64decode(user[part]) for part in parts))

    def build_trust() -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(doors.authority))
        context.load_cert_chain(pair)
        return context

    old = build_trust()
    async with visiting(doors.site.world.namespace, trust=old) as visitors:
        person = await visitors.attach_to_type(doors.gateway, "", name)
        await person.types(b"before\n")
        await person.sees(b"got before")

        await run(doors.write, Authority(now=datetime.now(UTC)))

        async with visiting(doors.site.world.namespace, trust=build_trust()) as newcomers:
            for _ in range(10 * SOON_SECONDS):
                try:
                    answer = await newcomers.ask(doors.gateway, "", name)
                    break
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.1)
            assert answer == (409, "Held")
            viewer = await newcomers.attach(doors.gateway, "", name, "?view=true")
            await person.types(b"after\n")
            await viewer.sees(b"got after")
        await person.sees(b"got after")
        assert person.close_code is None

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=old)) as http:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http.get(f"{doors.gateway.url}/healthz")

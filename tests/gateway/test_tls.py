"""TLS over real sockets: a certificate that changes, client certificates, and an authority that is taken away."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from controller.gateway.server import AUTHORITY_KEY, AUTHORITY_NAME
from controller.gateway.settings import GatewaySettings, TimeSettings, TlsFiles
from controller.gateway.tls import PairUnusable, Tls
from controller.lab.certificates import Authority, Pair
from controller.sockets import Sockets
from tests.gateway.doubles import ANNA, PATH, SOON_SECONDS, Doors, FakeKube, open_doors, wait_until

CONSOLE = "https://console.example.com"


def write(files: TlsFiles, pair: Pair) -> None:
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)


class Lab:
    """Two authorities: one for servers, one for clients as a cluster publishes it."""

    def __init__(self, folder: Path) -> None:
        self.servers = Authority(now=datetime.now(UTC))
        self.clients = Authority(now=datetime.now(UTC))
        self.folder = folder
        self.files = TlsFiles(folder / "tls.crt", folder / "tls.key")
        write(self.files, self.servers.issue_server("127.0.0.1", "localhost"))
        self.kube = FakeKube(config_maps={AUTHORITY_NAME: {AUTHORITY_KEY: self.clients.certificate.decode()}})

    def build_context(self, client: Pair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.servers.certificate.decode())
        if client is not None:
            path = self.folder / "client.pem"
            path.write_bytes(client.certificate + client.key)
            context.load_cert_chain(path)
        return context

    @asynccontextmanager
    async def open(self, times: TimeSettings | None = None) -> AsyncIterator[Doors]:
        times = times or TimeSettings()
        settings = GatewaySettings(port=0, metrics_port=0, tls=self.files, origins=(CONSOLE,), times=times)
        async with open_doors(settings, kube=self.kube) as doors:
            doors.scheme = "https"
            yield doors

    async def ask(self, doors: Doors, client: Pair | None = None, **headers: str) -> int:
        """Ask over a connection of its own; give the status."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sockets = Sockets()
        connector = aiohttp.TCPConnector(ssl=self.build_context(client), socket_factory=sockets.make)
        async with (
            sockets,
            aiohttp.ClientSession(connector=connector) as http,
            http.get(f"{doors.url}{PATH}/attach", headers=sent) as answer,
        ):
            return answer.status

    async def see_serial(self, port: int) -> str:
        """Tell which certificate is shown, with and without a server's name."""
        seen = set()
        for name in ("127.0.0.1", "localhost"):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self.build_context(), server_hostname=name)
            seen.add(writer.get_extra_info("peercert")["serialNumber"])
            writer.close()
            await writer.wait_closed()
        (serial,) = seen
        return str(serial)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


async def test_a_client_certificate_of_the_cluster_speaks_for_its_user_and_groups(lab: Lab) -> None:
    async with lab.open() as doors:
        assert await lab.ask(doors) == 401
        assert await lab.ask(doors, lab.clients.issue_client("anna", "team-a", "team-b")) == 200
        assert await lab.ask(doors, lab.clients.issue_client("bert")) == 403
    anna, bert = doors.kube.specs
    assert (anna["user"], anna["groups"]) == ("anna", ["team-a", "team-b", "system:authenticated"])
    assert bert["user"] == "bert"
    assert "token" not in doors.kube.calls


@pytest.mark.parametrize("header", [{"Origin": CONSOLE}, {"Sec_Fetch_Site": "cross-site"}])
async def test_a_page_cannot_use_the_certificate_that_a_browser_adds(lab: Lab, header: dict[str, str]) -> None:
    anna = lab.clients.issue_client("anna")
    async with lab.open() as doors:
        assert await lab.ask(doors, anna, **header) == 401
        assert await lab.ask(doors, anna, Authorization=f"Bearer {ANNA}", **header) == 200


async def test_a_token_that_is_not_taken_is_not_covered_by_a_certificate(lab: Lab) -> None:
    async with lab.open() as doors:
        assert await lab.ask(doors, lab.clients.issue_client("anna"), Authorization="Bearer nobody") == 401


async def test_who_never_begins_the_handshake_is_cut_off(lab: Lab) -> None:
    async with lab.open(TimeSettings(tls_handshake=timedelta(seconds=0.2))) as doors:
        reader, writer = await asyncio.open_connection("127.0.0.1", doors.gateway.port)
        async with asyncio.timeout(SOON_SECONDS):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def test_a_certificate_of_a_stranger_is_no_handshake(lab: Lab) -> None:
    stranger = Authority(now=datetime.now(UTC)).issue_client("anna")
    async with lab.open() as doors:
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await lab.ask(doors, stranger)
        assert doors.kube.specs == []


async def test_without_the_clusters_authority_no_certificate_is_asked_for(lab: Lab) -> None:
    lab.kube.config_maps.clear()
    async with lab.open() as doors:
        assert await lab.ask(doors, lab.clients.issue_client("anna")) == 401
        assert await lab.ask(doors, Authorization=f"Bearer {ANNA}") == 200


async def test_a_gateway_that_runs_follows_its_files_and_the_clusters_authority(lab: Lab) -> None:
    soon = timedelta(seconds=0.05)
    anna, newer = lab.clients.issue_client("anna"), Authority(now=datetime.now(UTC))
    async with lab.open(TimeSettings(files_reread=soon, authority_reread=soon)) as doors, asyncio.TaskGroup() as group:
        running = group.create_task(doors.gateway.run())
        first = await lab.see_serial(doors.gateway.port)
        assert await lab.ask(doors, anna) == 200

        write(lab.files, lab.servers.issue_server("127.0.0.1", "localhost"))
        asked = lab.kube.calls.count("config map")
        await wait_until(lambda: lab.kube.calls.count("config map") >= asked + 2)
        assert await lab.see_serial(doors.gateway.port) != first

        lab.kube.config_maps[AUTHORITY_NAME][AUTHORITY_KEY] = newer.certificate.decode()
        asked = lab.kube.calls.count("config map")
        await wait_until(lambda: lab.kube.calls.count("config map") >= asked + 2)
        assert await lab.ask(doors, newer.issue_client("anna")) == 200
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await lab.ask(doors, anna)
        lab.kube.is_down = True  # without its word the last authority stands
        asked = lab.kube.calls.count("config map")
        await wait_until(lambda: lab.kube.calls.count("config map") >= asked + 2)
        lab.kube.is_down = False
        assert await lab.ask(doors, newer.issue_client("anna")) == 200
        running.cancel()


async def serve(tls: Tls) -> asyncio.Server:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(repr(writer.get_extra_info("peercert")).encode() + b"\n")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls.context)


async def read_peer(lab: Lab, port: int, client: Pair) -> str:
    """Tell as whom the server sees us; nothing where it breaks off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=lab.build_context(client))
    try:
        return (await reader.readline()).decode()
    except (ssl.SSLError, ConnectionError):
        return ""
    finally:
        writer.close()


async def test_each_handshake_sees_the_newest_pair_that_fits(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tls = Tls(lab.files)
    async with await serve(tls) as server:
        port = server.sockets[0].getsockname()[1]
        first = await lab.see_serial(port)
        assert not await tls.refresh()

        newer = lab.servers.issue_server("127.0.0.1", "localhost")
        lab.files.certificate.write_bytes(newer.certificate)  # half of it
        assert not await tls.refresh()
        assert not await tls.refresh()
        assert await lab.see_serial(port) == first
        lab.files.key.write_bytes(newer.key)
        assert await tls.refresh()
        second = await lab.see_serial(port)
        assert second != first

        lab.files.key.unlink()
        assert not await tls.refresh()
        assert await lab.see_serial(port) == second
    told = [record.getMessage() for record in caplog.records if record.name.startswith("controller")]
    assert told == [
        "The certificate's files changed and are no pair; the last one is used.",
        "The certificate was read again.",
        "The certificate's files cannot be read; the last one is used.",
    ]


async def test_an_authority_that_was_taken_away_vouches_for_nobody_any_more(lab: Lab) -> None:
    tls, client = Tls(lab.files), lab.clients.issue_client("anna")
    other = Authority(now=datetime.now(UTC))
    async with await serve(tls) as server:
        port = server.sockets[0].getsockname()[1]
        assert tls.trust_clients(lab.clients.certificate.decode())
        assert "anna" in await read_peer(lab, port, client)

        assert tls.trust_clients(other.certificate.decode())
        assert await read_peer(lab, port, client) == ""

        assert not tls.trust_clients("no certificate")
        assert "anna" not in await read_peer(lab, port, client)
        assert tls.trust_clients(lab.clients.certificate.decode())
        assert "anna" in await read_peer(lab, port, client)


def resume(lab: Lab, port: int) -> list[bool | None]:
    """Connect twice, the second time with the session of the first; tell which connection was a resumed one."""
    context, session, reused = lab.build_context(), None, []
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as wrapped,
        ):
            assert wrapped.version() == "TLSv1.3"
            while wrapped.recv(4096):  # a ticket comes with the first bytes
                pass
            reused.append(wrapped.session_reused)
            session = wrapped.session
    return reused


async def test_no_session_is_resumed_past_an_authority_that_may_have_changed(lab: Lab) -> None:
    tls = Tls(lab.files)
    async with await serve(tls) as server:
        assert await asyncio.to_thread(resume, lab, server.sockets[0].getsockname()[1]) == [False, False]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (None, "another certificate"),
        (b"no PEM at all", "not PEM"),
        (b"", "not PEM"),
    ],
)
def test_a_pair_that_is_none_is_told_at_the_start(lab: Lab, key: bytes | None, told: str) -> None:
    lab.files.key.write_bytes(lab.servers.issue_server("127.0.0.1").key if key is None else key)
    with pytest.raises(PairUnusable, match=rf"CERT_FILE \(.*KEY_FILE \(.*{told}.*PEM, as a Secret"):
        Tls(lab.files)


def test_a_pair_that_is_not_there_is_told_at_the_start(lab: Lab) -> None:
    lab.files.key.unlink()
    with pytest.raises(PairUnusable, match="No such file"):
        Tls(lab.files)

"""
The gateway for tests: as a process of its own, with people at its doors who have tokens of the cluster.

`GatewayProcess` blocks, as the operator's does; people are coroutines.
"""

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from controller.cli.worlds import GATEWAY_RULES
from controller.lab.rights import GATEWAY_NAME, build_gateway_rights, read_gateway_rules
from controller.sockets import Sockets
from tests.cluster.plane import Cluster
from tests.gateway.stream.stage import Person
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World
from tests.support.process import CommandProcess
from tests.support.secrecy import look

DOORS_OPEN = "The gateway's doors are open."


class GatewayProcess(CommandProcess):
    """A running `agentterminal gateway`; its log stays until `forget`."""

    def __init__(self, kubeconfig: Path, sprites_url: str, **settings: str) -> None:
        """
        Start it and wait until it is ready.

        Args:
            kubeconfig: How it logs in; its Leases lie in the namespace of its context.
            sprites_url: Where the Sprites API is.
            settings: More of its environment, without the prefix.
        """
        own = {
            "SPRITES_URL": sprites_url,
            "GATEWAY_PORT": "0",
            "GATEWAY_METRICS_PORT": "0",
            "GATEWAY_ADDRESS_REQUESTS_PER_SECOND": "1000",
            "LOG_FORMAT": "json",
            # Whatever it may say is looked through for secrets.
            "LOG_LEVEL": "debug",
            "DEBUG": "1",
        }
        self._scheme = "https" if "GATEWAY_TLS_CERT_FILE" in settings else "http"
        super().__init__("gateway", kubeconfig, {**own, **settings})

    @property
    def url(self) -> str:
        """Where its doors are."""
        return f"{self._scheme}://127.0.0.1:{self._find_open()['port']}"

    @property
    def incarnation(self) -> str:
        """The incarnation that began last."""
        return str([line for line in self.lines if line["message"] == "An incarnation begins."][-1]["incarnation"])

    def read(self, page: str) -> str:
        """Read one page of its metrics port."""
        url = f"http://127.0.0.1:{self._find_open()['metrics_port']}/{page}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text: str = answer.read().decode()
        look(f"The page {page} of a gateway", text)
        return text

    def metric(self, line: str) -> float:
        """Read one metric by the beginning of its line."""
        found = [one for one in self.read("metrics").splitlines() if one.startswith(line)]
        assert len(found) == 1, found
        return float(found[0].rsplit(" ", 1)[1])

    def is_ready(self) -> bool:
        """Whether it says that it can serve."""
        try:
            self.read("readyz")
        except (OSError, StopIteration, urllib.error.HTTPError):
            return False
        return True

    def _find_open(self) -> dict[str, Any]:
        return next(line for line in self.lines if line["message"] == DOORS_OPEN)


@contextmanager
def open_gateway_world(cluster: Cluster, namespace: str) -> Iterator[tuple[World, Path]]:
    """
    Make a namespace with an emulator, in which gateways may run with the rights of the chart; no operator runs yet.

    Yields:
        The world, and the kubeconfig with which a gateway logs in.
    """
    cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    rights = build_gateway_rights(
        read_gateway_rules(GATEWAY_RULES), secrets={namespace: ["sprites"]}, namespace=namespace
    )
    made = []
    with EmulatorProcess() as lab, World(cluster, namespace, lab) as world:
        try:
            for path, right in rights:
                status, answer = cluster.request("POST", path, body=right)
                assert status == 201, answer
                made.append(f"{path}/{right['metadata']['name']}")
            yield world, cluster.service_account_kubeconfig(namespace, GATEWAY_NAME)
        finally:
            # The operator still runs, and lets the objects go.
            cluster.empty_namespace(namespace)
            for path in made:
                cluster.request("DELETE", path)


class Visitors:
    """People at the doors of gateways; use it with `visiting`."""

    def __init__(self, http: aiohttp.ClientSession, readers: asyncio.TaskGroup, namespace: str) -> None:
        self._http = http
        self._readers = readers
        self._namespace = namespace
        self._stack = AsyncExitStack()
        self.people: list[Person] = []

    def path(self, name: str, door: str = "attach") -> str:
        """The path of a door."""
        return f"/v1/namespaces/{self._namespace}/agentterminals/{name}/{door}"

    async def attach(self, gateway: GatewayProcess, token: str, name: str, query: str = "") -> Person:
        """Attach; a refusal before the upgrade raises `aiohttp.WSServerHandshakeError`."""
        connection = await self._http.ws_connect(
            f"{gateway.url}{self.path(name)}{query}",
            headers=_sign(token),
            autoping=False,
            max_msg_size=0,
        )
        self._stack.push_async_callback(connection.close)
        person = Person(connection)
        self.people.append(person)
        self._readers.create_task(person.read())
        return person

    async def attach_to_type(self, gateway: GatewayProcess, token: str, name: str, query: str = "") -> Person:
        """Attach, and wait until input counts."""
        person = await self.attach(gateway, token, name, query)
        await person.until(lambda one: "Holding" in one.words or one.close_code is not None, within=25)
        assert person.close_code is None, person.texts
        return person

    async def ask(self, gateway: GatewayProcess, token: str, name: str, query: str = "") -> tuple[int, str]:
        """Ask without an upgrade; give the status and the cause of a refusal."""
        url = f"{gateway.url}{self.path(name)}{query}"
        async with self._http.get(url, headers=_sign(token)) as answer:
            look("The answer of a gateway", f"{dict(answer.headers)} {await answer.text()}")
            body = await answer.json()
        return answer.status, "" if answer.status == 200 else str(body["details"]["causes"][0]["reason"])

    async def await_answer(
        self, wanted: tuple[int, str], gateway: GatewayProcess, token: str, name: str, query: str = ""
    ) -> None:
        """Ask until it is answered so, bounded."""
        for _ in range(300):
            if (told := await self.ask(gateway, token, name, query)) == wanted:
                return
            await asyncio.sleep(0.1)
        raise AssertionError(f"It was answered {told} to the end.")

    async def attempt(self, url: str, token: str) -> int:
        """Ask for an upgrade at an address that is refused, and give the status."""
        try:
            async with self._http.ws_connect(url, headers=_sign(token)):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status

    async def close(self) -> None:
        """Let everybody go."""
        await self._stack.aclose()


def _sign(token: str) -> dict[str, str]:
    """Who comes without a token has a certificate."""
    return {"Authorization": f"Bearer {token}"} if token else {}


@asynccontextmanager
async def visiting(namespace: str, *, trust: ssl.SSLContext | None = None) -> AsyncIterator[Visitors]:
    """Let people come, for the length of a `with` block; `trust` is for gateways that end TLS."""
    sockets = Sockets()
    connector = aiohttp.TCPConnector(ssl=True if trust is None else trust, socket_factory=sockets.make)
    async with sockets, aiohttp.ClientSession(connector=connector) as http, asyncio.TaskGroup() as readers:
        visitors = Visitors(http, readers, namespace)
        try:
            yield visitors
        finally:
            await visitors.close()

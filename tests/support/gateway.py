"""
The gateway for tests: as a process of its own, with people at its doors who have tokens of the cluster.

`GatewayProcess` blocks, as the operator's does; people are coroutines.
"""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from controller.cli.worlds import GATEWAY_RULES
from controller.lab.processes import build_tethered_command
from controller.lab.rights import GATEWAY_NAME, build_gateway_rights, read_gateway_rules
from tests.cluster.plane import Cluster
from tests.gateway.stream.stage import Person
from tests.support.emulator import EmulatorProcess
from tests.support.operator import AGENTTERMINAL, STOP_SECONDS, World, await_true

DOORS_OPEN = "The gateway's doors are open."


class GatewayProcess:
    """A running `agentterminal gateway`; its log is kept and may be read at any time."""

    def __init__(self, kubeconfig: Path, sprites_url: str, **settings: str) -> None:
        """
        Start it and wait until it is ready.

        Args:
            kubeconfig: How it logs in; its Leases lie in the namespace of its context.
            sprites_url: Where the Sprites API is.
            settings: More of its environment, without the prefix.
        """
        with tempfile.NamedTemporaryFile(prefix="gateway-", suffix=".log", delete=False) as log:
            self.log_file = Path(log.name)
            self.process = subprocess.Popen(
                build_tethered_command(
                    [AGENTTERMINAL, "gateway", "--kubeconfig", str(kubeconfig)], death_signal=signal.SIGKILL
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("AGENTTERMINAL_")},
                    "AGENTTERMINAL_SPRITES_URL": sprites_url,
                    "AGENTTERMINAL_GATEWAY_PORT": "0",
                    "AGENTTERMINAL_GATEWAY_METRICS_PORT": "0",
                    "AGENTTERMINAL_GATEWAY_ADDRESS_REQUESTS_PER_SECOND": "1000",
                    "AGENTTERMINAL_LOG_FORMAT": "json",
                    "AGENTTERMINAL_DEBUG": "1",
                    **{f"AGENTTERMINAL_{name}": value for name, value in settings.items()},
                },
            )
        await_true(
            lambda: self.process.poll() is not None or self.is_ready(), "the gateway to be ready", tell=self.told
        )
        if self.process.poll() is not None:
            told = self.told()
            self.log_file.unlink()
            raise RuntimeError(f"The gateway ended with {self.process.returncode}: {told}")

    def told(self) -> str:
        """Everything it logged."""
        return self.log_file.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Everything it logged, parsed."""
        return [json.loads(line) for line in self.told().splitlines() if line.startswith("{")]

    @property
    def url(self) -> str:
        """Where its doors are."""
        return f"http://127.0.0.1:{self._find_open()['port']}"

    @property
    def incarnation(self) -> str:
        """The incarnation that began last."""
        return str([line for line in self.lines if line["message"] == "An incarnation begins."][-1]["incarnation"])

    def read(self, page: str) -> str:
        """Read one page of its metrics port."""
        url = f"http://127.0.0.1:{self._find_open()['metrics_port']}/{page}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            text: str = answer.read().decode()
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

    def stop(self) -> int:
        """End it in good order and return its exit code. Stopped is stopped."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it with SIGKILL: nothing is put away. Killing it twice is fine."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def pause(self) -> None:
        """Stop it: it does not run, and does not know."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run on."""
        self.process.send_signal(signal.SIGCONT)

    def forget(self) -> None:
        """Remove its log."""
        self.log_file.unlink(missing_ok=True)

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
            headers={"Authorization": f"Bearer {token}"},
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
        async with self._http.get(url, headers={"Authorization": f"Bearer {token}"}) as answer:
            body = await answer.json()
        return answer.status, "" if answer.status == 200 else str(body["details"]["causes"][0]["reason"])

    async def close(self) -> None:
        """Let everybody go."""
        await self._stack.aclose()


@asynccontextmanager
async def visiting(namespace: str) -> AsyncIterator[Visitors]:
    """Let people come, for the length of a `with` block."""
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as readers:
        visitors = Visitors(http, readers, namespace)
        try:
            yield visitors
        finally:
            await visitors.close()

"""
The gateway as a process, at a real API server, with sprites whose processes are real.

One world for the whole module: two gateways, an operator, an emulator; each test has a terminal and a sprite of its
own.
"""

import asyncio
import base64
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from controller.cli.worlds import GATEWAY_RULES
from controller.lab.rights import GATEWAY_NAME, build_gateway_rights, read_gateway_rules
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.gateway import GatewayProcess, visiting
from tests.support.operator import World, await_true

RBAC = f"/apis/{'rbac.authorization.k8s.io'}/v1"
NUMBERS = itertools.count(1)


@dataclass
class Site:
    """A namespace with an operator and two gateways. All calls block."""

    world: World
    gateways: list[GatewayProcess]
    kubeconfig: Path
    tokens: dict[str, str] = field(default_factory=dict, repr=False)

    def start_gateway(self, kubeconfig: Path | None = None) -> GatewayProcess:
        gateway = GatewayProcess(kubeconfig or self.kubeconfig, self.world.lab.url, NAMESPACES=self.world.namespace)
        self.gateways.append(gateway)
        return gateway

    def account(self, name: str, *rights: str) -> str:
        """Make an account with rights to every terminal here, and give its token."""
        if name not in self.tokens:
            roles = f"{RBAC}/namespaces/{self.world.namespace}"
            rules = [
                {
                    "apiGroups": ["agentterminal.dev"],
                    "resources": [f"agentterminals/{right}" for right in rights],
                    "verbs": ["create"],
                }
            ]
            subject = {"kind": "ServiceAccount", "name": name, "namespace": self.world.namespace}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            self.create(f"{roles}/roles", {"metadata": {"name": name}, "rules": rules})
            self.create(
                f"{roles}/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
            )
            cluster = self.world.cluster
            self.tokens[name] = cluster.call(cluster.plane.service_account_token(self.world.namespace, name))
        return self.tokens[name]

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        status, answer = self.world.cluster.request("POST", path, body=body)
        assert status == 201, answer

    def make_terminal(self, **spec: Any) -> str:
        """Make a sprite with a session that echoes, and a terminal that adopts it; wait until it runs."""
        name = f"t{next(NUMBERS)}"
        self.world.lab.create_sprites(name)
        self.world.lab.set_state(name, "running")
        session = self.world.lab.start_session(name, "cat")
        self.world.create(name, **{"spriteName": name, "sessionId": session["id"], **spec})
        self.world.await_reason(name, "Live", "SessionLive")
        return name

    def received(self, name: str) -> bytes:
        """What the sprite's sessions were sent."""
        return b"".join(base64.b64decode(session["received_base64"]) for session in self.world.lab.sessions(name))

    def spec(self, name: str) -> dict[str, Any]:
        terminal = self.world.get(name)
        assert terminal is not None
        spec: dict[str, Any] = terminal["spec"]
        return spec

    def is_free(self, name: str) -> bool:
        """Nobody speaks, and nobody is named."""
        terminal = self.world.get(name)
        assert terminal is not None
        spec = terminal["spec"]
        return "socket" not in terminal["status"] and spec["activeSocketId"] == "" and not spec["attached"]

    def await_free(self, name: str, within: float = 10) -> None:
        await_true(lambda: self.is_free(name), f"{name} to be free", within, lambda: str(self.world.get(name)))


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    namespace = f"gateway-{os.getpid()}"
    cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    with EmulatorProcess() as lab, World(cluster, namespace, lab) as world:
        made = []
        for path, right in build_gateway_rights(
            read_gateway_rules(GATEWAY_RULES), secrets={namespace: ["sprites"]}, namespace=namespace
        ):
            status, answer = cluster.request("POST", path, body=right)
            assert status == 201, answer
            made.append(f"{path}/{right['metadata']['name']}")
        world.start_operator()
        site = Site(world, [], cluster.service_account_kubeconfig(namespace, GATEWAY_NAME))
        try:
            site.start_gateway()
            site.start_gateway()
            yield site
        finally:
            for gateway in site.gateways:
                gateway.kill()
                gateway.forget()
            cluster.empty_namespace(namespace)
            for path in made:
                cluster.request("DELETE", path)


@pytest.fixture
def anna(site: Site) -> str:
    return site.account("anna", "attach", "takeover", "view", "activity")


async def test_whoever_attaches_types_and_leaves_nothing_behind(site: Site, anna: str) -> None:
    name = await asyncio.to_thread(site.make_terminal)
    async with visiting(site.world.namespace) as visitors:
        person = await visitors.attach_to_type(site.gateways[0], anna, name)
        held = await asyncio.to_thread(site.world.get, name)
        await person.types(b"hello\n")
        await person.sees(b"hello")
    await asyncio.to_thread(site.await_free, name)

    assert held is not None
    lock = held["status"]["socket"]
    assert held["spec"]["attached"] is True
    assert held["spec"]["activeSocketId"] == lock["socketId"]
    assert lock["incarnation"] == site.gateways[0].incarnation
    assert site.received(name) == b"hello\n"

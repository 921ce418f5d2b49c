"""
Operator and gateway as the chart installs them: its environment, its accounts, exactly its rights.

One life that a user might lead with them, and then the audit log: what was asked for, and what was granted.
"""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from tests.chart.helm import Helm
from tests.chart.installing import RELEASE, installed
from tests.chart.site import Site
from tests.house.chart_page import CHART
from tests.support.emulator import EmulatorProcess
from tests.support.gateway import GatewayProcess, visiting
from tests.support.operator import World
from tests.support.process import await_true

VALUES: Mapping[str, Any] = {
    "namespaces": ["team-a"],
    "secretAccess": [{"namespace": "team-a", "names": ["sprites"]}],
    "gateway": {"enabled": True, "tls": {"plain": True}},
}
HERE = {"ADDRESS", "PORT"}
"""What a test that shares a machine chooses itself."""

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a"
NOT_IN_EVERY_LIFE = {("coordination.k8s.io", "leases", "list"), ("coordination.k8s.io", "leases", "get")}
"""Of the gateway: it looks at others' Leases once a minute, and at its own where an answer was lost."""


@dataclass(frozen=True)
class Installation:
    """Both processes as they run."""

    world: World
    gateway: GatewayProcess
    site: Site
    since: int
    """The place in the audit log before them: other tests try out the same accounts on the same API server."""

    def bind(self, person: str, role: str) -> str:
        """Give a person a role of the chart in this namespace; return a token."""
        body = {
            "metadata": {"name": f"{person}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": person, "namespace": "team-a"}],
        }
        assert self.site.request("POST", f"{RBAC}/rolebindings", body=body)[0] == 201
        return self.site.token("team-a", person)

    def received(self) -> bytes:
        return b"".join(base64.b64decode(one["received_base64"]) for one in self.world.lab.sessions("box"))

    def is_free(self) -> bool:
        terminal = self.world.get("one")
        assert terminal is not None
        return "socket" not in terminal["status"] and terminal["spec"]["activeSocketId"] == ""


def read_environment(site: Site, name: str) -> dict[str, str]:
    """The settings that a Deployment gives its process, but for where it listens."""
    _, deployment = site.request("GET", f"/apis/apps/v1/namespaces/agents/deployments/{name}")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    variables = {entry["name"].removeprefix("AGENTTERMINAL_"): entry["value"] for entry in container["env"]}
    return {name: value for name, value in variables.items() if name.rsplit("_", 1)[-1] not in HERE}


@pytest.fixture(scope="module")
def lab() -> Iterator[EmulatorProcess]:
    with EmulatorProcess() as process:
        process.create_sprites("box")
        process.set_state("box", "running")
        yield process


@pytest.fixture(scope="module")
def installation(
    helm: Helm, site: Site, lab: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    values = tmp_path_factory.mktemp("values") / "values.yaml"
    values.write_text(yaml.safe_dump(dict(VALUES)))
    since = site.mark_audit()
    with installed(helm, site, values), World(site, "team-a", lab) as world:
        world.kubeconfig = site.service_account_kubeconfig("agents", RELEASE)
        # The chart leaves the election on and the namespace of the Lease to the pod; a test names it.
        world.start_operator(**{**read_environment(site, RELEASE), "ELECTION": "1", "LEASE_NAMESPACE": "agents"})
        login = site.service_account_kubeconfig("agents", f"{RELEASE}-gateway")
        told = read_environment(site, f"{RELEASE}-gateway")
        gateway = GatewayProcess(login, lab.url, **{**told, "LEASE_NAMESPACE": "agents"})
        try:
            yield Installation(world, gateway, site, since)
        finally:
            gateway.kill()
            gateway.forget()
            site.empty_namespace("team-a")


async def run(work: Any, *arguments: Any) -> Any:
    return await asyncio.to_thread(work, *arguments)


async def lead_a_life(installation: Installation) -> None:
    """Adopt; look, type, be refused and take over; say that it is at work; leave; terminate and delete."""
    world, gateway = installation.world, installation.gateway
    session = await run(world.lab.start_session, "box", "cat")
    await run(lambda: world.create("one", sessionId=session["id"]))
    await run(world.await_reason, "one", "Live", "SessionLive")
    vera, nora, tom = [
        await run(installation.bind, person, f"agentterminal-{role}")
        for person, role in (("vera", "viewer"), ("nora", "attacher"), ("tom", "taker"))
    ]
    async with visiting("team-a") as visitors:
        assert await visitors.ask(gateway, vera, "one") == (403, "NoRight")
        typing = await visitors.attach_to_type(gateway, nora, "one")
        await typing.types(b"hello\n")
        looking = await visitors.attach(gateway, vera, "one", "?view=true")
        await typing.sees(b"hello")
        await looking.sees(b"hello")
        assert await visitors.ask(gateway, nora, "one", "?takeover=true") == (403, "NoRight")
        taking = await visitors.attach_to_type(gateway, tom, "one", "?takeover=true")
        assert await typing.is_closed() == 4001
        await taking.types(b"mine\n")
        await taking.sees(b"mine")
        assert await run(installation.received) == b"hello\nmine\n"
    await run(await_true, installation.is_free, "nobody to speak")
    await run(lambda: world.patch("one", terminated=True))
    await run(world.await_reason, "one", "Confirmed", "Terminated")
    await run(world.delete, "one")
    await run(world.await_gone, "one")


def read_granted(file: str) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rules in yaml.safe_load((CHART / "files" / file).read_text()).values()
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def user(account: str) -> str:
    return f"system:serviceaccount:agents:{account}"


def read_used(site: Site, account: str, since: int) -> set[tuple[str, str, str]]:
    """The rights that an account of the chart has used since a place in the audit log."""
    return {entry.right for entry in site.read_audit(user(account), since=since) if entry.resource}


@pytest.mark.timeout(240)
async def test_a_life_under_exactly_the_charts_rights_is_refused_nothing_and_asks_for_nothing_else(
    installation: Installation,
) -> None:
    await lead_a_life(installation)

    site, since = installation.site, installation.since
    renewed = ("coordination.k8s.io", "leases", "update")
    await run(
        await_true, lambda: renewed in read_used(site, f"{RELEASE}-gateway", since), "a renewal of the gateway's Lease"
    )
    assert await run(installation.gateway.stop) == 0
    for account, file in ((RELEASE, "rules.yaml"), (f"{RELEASE}-gateway", "gateway-rules.yaml")):
        asked = list(site.read_audit(user(account), since=since))
        assert [(entry.right, entry.name) for entry in asked if entry.code in (401, 403)] == [], account
        assert read_used(site, account, since) <= read_granted(file), account
        assert {entry.namespace for entry in asked if entry.resource == "leases"} == {"agents"}
        secrets = {(entry.namespace, entry.name) for entry in asked if entry.resource == "secrets"}
        assert secrets == {("team-a", "sprites")}
    # That the operator uses each of its rights is shown by tests/cluster/test_rights.py, with more trouble in its life.
    unused = read_granted("gateway-rules.yaml") - read_used(site, f"{RELEASE}-gateway", since)
    assert unused <= NOT_IN_EVERY_LIFE

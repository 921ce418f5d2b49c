"""
Operator and gateway as the chart installs them: its environment, its accounts, exactly its rights.

One life that a user might lead with them, and then the audit log: what was asked for, and what was granted.
"""

import asyncio
import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.names import API_VERSION, KIND, PLURAL
from tests.chart.helm import Helm
from tests.chart.installing import RELEASE, installed
from tests.chart.running import start_gateway, start_operator
from tests.chart.site import Site
from tests.house.chart_page import CHART
from tests.support.emulator import EmulatorProcess
from tests.support.gateway import GatewayProcess, visiting
from tests.support.operator import World
from tests.support.process import await_true

LEAVING = "team-c"
"""A namespace that is deleted while terminals live in it."""
VALUES: Mapping[str, Any] = {
    "namespaces": ["team-a", LEAVING],
    "secretAccess": [{"namespace": namespace, "names": ["sprites"]} for namespace in ("team-a", LEAVING)],
    "gateway": {"enabled": True, "tls": {"plain": True}},
}
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
JSON_PATCH = "application/json-patch+json"
SPEC = {"spriteName": "box", "sessionId": "812"}
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

    def bind(self, person: str, role: str, namespace: str = "team-a") -> str:
        """Give a person a role of the chart in a namespace; return a token."""
        body = {
            "metadata": {"name": f"{person}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": person, "namespace": namespace}],
        }
        assert self.site.request("POST", f"{RBAC}/{namespace}/rolebindings", body=body)[0] == 201
        return self.site.token(namespace, person)

    def told(self) -> str:
        """Everything that the operator logged."""
        return "" if self.world.operator is None else self.world.operator.told()

    def received(self) -> bytes:
        return b"".join(base64.b64decode(one["received_base64"]) for one in self.world.lab.sessions("box"))

    def is_free(self) -> bool:
        terminal = self.world.get("one")
        assert terminal is not None
        return "socket" not in terminal["status"] and terminal["spec"]["activeSocketId"] == ""


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
    site.create_namespace(LEAVING)
    with installed(helm, site, values), World(site, "team-a", lab) as world:
        world.operator = start_operator(site, "agents", lab.url)
        gateway = start_gateway(site, "agents", lab.url, mounts=tmp_path_factory.mktemp("mounts"))
        try:
            yield Installation(world, gateway, site, since)
        finally:
            gateway.kill()
            gateway.forget()
            # Before it: an operator puts its finalizer back.
            world.operator.kill()
            for namespace in ("team-a", LEAVING):
                site.empty_namespace(namespace)
            site.kubectl("delete", "namespace", LEAVING, "--ignore-not-found", "--timeout=60s")


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
        # A write that the admission policies refuse is not told to anybody: what it wrote must stand there.
        await run(await_true, lambda: count_viewers(world) == [1], "whoever looks on to be counted")
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


def count_viewers(world: World) -> list[int]:
    return [entry["viewers"] for entry in world.status("one").get("gateways", [])]


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


@pytest.mark.timeout(180)
async def test_a_named_namespace_goes_though_the_rights_in_it_go_first_and_nobody_elsewhere_is_thrown_out(
    installation: Installation, tmp_path: Path
) -> None:
    site, lab = installation.site, installation.world.lab
    leaving = World(site, LEAVING, lab)
    worlds = (installation.world, "stays"), (leaving, "one"), (leaving, "two")
    gateway = start_gateway(site, "agents", lab.url, mounts=tmp_path)
    try:
        for world, name in worlds:
            await run(lambda where=world, what=name: where.create(what, launch={"command": ["cat"]}))
        for world, name in worlds:
            await run(world.await_reason, name, "Detached")
        stays = await run(installation.bind, "sue", "agentterminal-taker")
        leaves = await run(installation.bind, "tom", "agentterminal-taker", LEAVING)
        async with visiting("team-a") as here, visiting(LEAVING) as there:
            staying = await here.attach_to_type(gateway, stays, "stays")
            typing = await there.attach_to_type(gateway, leaves, "one")
            # Both keep their watches; of their rights in this namespace none is left.
            for binding in (RELEASE, f"{RELEASE}-gateway"):
                await run(lambda called=binding: site.request("DELETE", f"{RBAC}/{LEAVING}/rolebindings/{called}"))
            since = site.mark_audit()
            await run(await_true, lambda: has_been_refused(site, since), "the gateway to see that it may not list")
            await run(lambda: site.kubectl("delete", "namespace", LEAVING, "--wait=false"))

            def tell() -> str:
                left = site.request("GET", leaving.path)[1].get("items")
                return f"{json.dumps(left)}\n{gateway.told()[-4000:]}\n{installation.told()[-4000:]}"

            path = f"/api/v1/namespaces/{LEAVING}"
            await run(lambda: await_true(lambda: site.request("GET", path)[0] == 404, "the end", 60, tell))
            await typing.is_closed()
            # Long enough for a tenure to end that is not renewed.
            await run(await_true, lambda: count_renewals(site, since) >= 6, "renewals of the gateway's Lease")
            await staying.types(b"still here\n")
            await staying.sees(b"still here")
        assert len(lab.sessions("box")) == 1, "The one that stays."
    finally:
        gateway.kill()
        gateway.forget()


def has_been_refused(site: Site, since: int) -> bool:
    """Whether a gateway was refused the list of a namespace since a place in the audit log."""
    asked = site.read_audit(user(f"{RELEASE}-gateway"), since=since)
    return any((entry.verb, entry.namespace, entry.code) == ("list", LEAVING, 403) for entry in asked)


def count_renewals(site: Site, since: int) -> int:
    """How often gateways have renewed their Lease since a place in the audit log."""
    asked = site.read_audit(user(f"{RELEASE}-gateway"), since=since)
    return sum(entry.right == ("coordination.k8s.io", "leases", "update") and entry.code == 200 for entry in asked)


def test_neither_writes_outside_of_the_namespaces_that_are_named(installation: Installation) -> None:
    site = installation.site
    path = f"/apis/{API_VERSION}/namespaces/team-b/{PLURAL}"
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "theirs"}, "spec": SPEC}
    assert site.request("POST", path, body=body)[0] == 201
    change = [{"op": "add", "path": "/spec/attached", "value": True}]

    for account in (RELEASE, f"{RELEASE}-gateway"):
        token = site.token("agents", account)
        assert site.request_as(token, "GET", f"{path}/theirs")[0] == 403
        code, answer = site.request_as(token, "PATCH", f"{path}/theirs", body=change, content_type=JSON_PATCH)
        assert code == 422, answer
        assert "in the namespaces of the chart's value `namespaces`, and nowhere else" in answer["message"]
    site.request("DELETE", f"{path}/theirs")

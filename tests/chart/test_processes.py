"""
Operator and gateway as the chart installs them: its environment, its accounts, exactly its rights.

Lives that users might lead with them in two named namespaces, troubles included; and then the audit log: each right
that was granted was used, and each that was used was granted. The tests are told in the order of the story.
`test_installation.py` tells that of an installation for all namespaces.
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
from tests.chart.granting import Book
from tests.chart.helm import Helm
from tests.chart.installing import RELEASE, installed
from tests.chart.running import start_gateway, start_operator
from tests.chart.site import Site
from tests.support.emulator import EmulatorProcess
from tests.support.gateway import GatewayProcess, Visitors, visiting
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
GATEWAY = f"{RELEASE}-gateway"
DOORS = {"agentterminal-viewer": "view", "agentterminal-attacher": "attach", "agentterminal-taker": "takeover"}
"""The widest that each role opens."""
FAILED_KILLS = 6
"""Two sessions' first rounds."""


@dataclass(frozen=True)
class Installation:
    """Both processes as they run."""

    world: World
    gateway: GatewayProcess
    site: Site
    book: Book
    """What both were granted and have used: it begins with them, since other tests try out the same accounts."""

    def bind(self, person: str, role: str, namespace: str = "team-a") -> str:
        """Give a person a role of the chart in a namespace; return a token."""
        body = {
            "metadata": {"name": f"{person}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": person, "namespace": namespace}],
        }
        assert self.site.request("POST", f"{RBAC}/{namespace}/rolebindings", body=body)[0] == 201
        # The authorizer hears of it a moment later.
        self.site.await_right(namespace, person, DOORS[role])
        return self.site.token(namespace, person)

    def told(self) -> str:
        """Everything that the operator logged."""
        return "" if self.world.operator is None else self.world.operator.told()

    def tell_ends(self, gateway: GatewayProcess) -> str:
        """The end of what the operator and a gateway have logged."""
        return f"\n{gateway.told()[-4000:]}\n{self.told()[-4000:]}"


def read_input(world: World, session: str) -> bytes:
    (found,) = [one for one in world.lab.sessions("box") if one["id"] == session]
    return base64.b64decode(found["received_base64"])


def is_free(world: World, name: str) -> bool:
    terminal = world.get(name)
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
    site.create_namespace(LEAVING)
    # Leases of other tests' processes outlive their release.
    site.request("DELETE", "/apis/coordination.k8s.io/v1/namespaces/agents/leases")
    with installed(helm, site, values), World(site, "team-a", lab) as world:
        book = Book(site, "agents", RELEASE, GATEWAY)
        book.begin_chapter()
        world.operator = start_operator(site, "agents", lab.url)
        gateway = start_gateway(site, "agents", lab.url, mounts=tmp_path_factory.mktemp("mounts"))
        try:
            yield Installation(world, gateway, site, book)
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


async def lead_a_life(installation: Installation, world: World) -> None:
    """Adopt; look, type, be refused and take over; leave; meet the same trouble twice; terminate and delete."""
    gateway = installation.gateway
    session = await run(world.lab.start_session, "box", "cat")
    await run(lambda: world.create("one", sessionId=session["id"]))
    await run(world.await_reason, "one", "Live", "SessionLive")
    vera, nora, tom = [
        await run(installation.bind, person, f"agentterminal-{role}", world.namespace)
        for person, role in (("vera", "viewer"), ("nora", "attacher"), ("tom", "taker"))
    ]
    async with visiting(world.namespace) as visitors:
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
        assert await run(read_input, world, session["id"]) == b"hello\nmine\n"
    await run(await_true, lambda: is_free(world, "one"), "nobody to speak")
    for key, reason in (("other", "SecretKeyMissing"), ("token", "Detached")) * 2:
        await run(lambda given=key: world.patch("one", tokenSecretRef={"name": "sprites", "key": given}))
        await run(world.await_reason, "one", reason)
    await run(lambda: world.patch("one", terminated=True))
    await run(world.await_reason, "one", "Confirmed", "Terminated")
    await run(world.delete, "one")
    await run(world.await_gone, "one")


async def be_left_alone(world: World) -> None:
    """Launch, and be reaped because nobody comes."""
    await run(lambda: world.create("brief", launch={"command": ["sleep", "600"]}, idleTimeoutSeconds=1))
    await run(world.await_reason, "brief", "Reaped")
    await run(world.delete, "brief")
    await run(world.await_gone, "brief")


def count_viewers(world: World) -> list[int]:
    return [entry["viewers"] for entry in world.status("one").get("gateways", [])]


def user(account: str) -> str:
    return f"system:serviceaccount:agents:{account}"


@pytest.mark.timeout(240)
async def test_lives_in_both_namespaces_are_refused_nothing_and_ask_for_nothing_but_what_was_granted(
    installation: Installation,
) -> None:
    both = installation.world, World(installation.site, LEAVING, installation.world.lab)

    await asyncio.gather(*(work for world in both for work in (lead_a_life(installation, world), be_left_alone(world))))

    await run(installation.book.begin_chapter)
    for account in installation.book.accounts.values():
        assert (account.refused, account.ungranted) == ([], []), account.name


@pytest.mark.timeout(180)
async def test_a_named_namespace_goes_though_the_rights_in_it_go_first_and_nobody_elsewhere_is_thrown_out(
    installation: Installation, tmp_path: Path
) -> None:
    site, lab, here = installation.site, installation.world.lab, installation.world
    leaving = World(site, LEAVING, lab)
    worlds = (here, "stays"), (here, "inherited"), (here, "abandoned"), (leaving, "one"), (leaving, "two")
    gateway, doomed = [start_gateway(site, "agents", lab.url, mounts=tmp_path) for _ in range(2)]
    try:
        for world, name in worlds:
            await run(lambda where=world, what=name: where.create(what, launch={"command": ["cat"]}))
        for world, name in worlds:
            await run(world.await_reason, name, "Detached")
        stays = await run(installation.bind, "sue", "agentterminal-taker")
        leaves = await run(installation.bind, "tim", "agentterminal-taker", LEAVING)

        def tell() -> str:
            return json.dumps(site.request("GET", leaving.path)[1]) + installation.tell_ends(gateway)

        async with visiting("team-a") as visitors, visiting(LEAVING) as visitors_there:
            staying = await visitors.attach_to_type(gateway, stays, "stays")
            typing = await visitors_there.attach_to_type(gateway, leaves, "one")
            # Both keep their watches; of their rights in this namespace none is left.
            for binding in (RELEASE, GATEWAY):
                await run(lambda called=binding: site.request("DELETE", f"{RBAC}/{LEAVING}/rolebindings/{called}"))
            since = site.mark_audit()
            await run(await_true, lambda: has_been_refused(site, since), "the gateway to see that it may not list")
            await run(installation.book.begin_chapter)
            # A death that is not proven at once is written down, in a namespace that goes as well.
            await run(lambda: lab.arm_fault({"kind": "status", "status": 500}, route="exec.kill", times=FAILED_KILLS))
            await run(lambda: site.kubectl("delete", "namespace", LEAVING, "--wait=false"))

            async with asyncio.TaskGroup() as group:
                # Beside it, since a proof of death takes as long as the end of a namespace.
                group.create_task(follow_the_dead(installation, visitors, stays, gateway, doomed))
                path = f"/api/v1/namespaces/{LEAVING}"
                await run(lambda: await_true(lambda: site.request("GET", path)[0] == 404, "the end", 100, tell))
                await typing.is_closed()
                # Long enough for a tenure to end that is not renewed.
                await run(await_true, lambda: count_renewals(site, since) >= 6, "renewals of the gateway's Lease")
            await staying.types(b"still here\n")
            await staying.sees(b"still here")
        # At times a command without a terminal looks for what was left behind.
        assert len([one for one in lab.sessions("box") if one["tty"]]) == 3, "Those that stay."
        assert await run(gateway.stop) == 0
    finally:
        for process in (gateway, doomed):
            process.kill()
            process.forget()


async def follow_the_dead(
    installation: Installation, visitors: Visitors, token: str, gateway: GatewayProcess, doomed: GatewayProcess
) -> None:
    """
    Kill two gateways that speak.

    One has a successor, which needs the proof; of the other nobody but the operator takes notice.
    """
    for dying, name in ((installation.gateway, "inherited"), (doomed, "abandoned")):
        await visitors.attach_to_type(dying, token, name)
        await run(dying.kill)
    taking = await visitors.attach_to_type(gateway, token, "inherited", "?takeover=true")
    await taking.types(b"mine now\n")
    await taking.sees(b"mine now")
    world = installation.world
    await run(
        await_true, lambda: "socket" not in world.status("abandoned"), "the operator to clear the dead one's lock"
    )


def test_each_right_that_was_granted_was_used_and_each_that_was_used_was_granted(installation: Installation) -> None:
    installation.book.begin_chapter()

    for account in installation.book.accounts.values():
        assert (account.unused, account.ungranted) == ([], []), account.name
        assert {asked.namespace for asked in account.refused} <= {LEAVING}, account.name


def has_been_refused(site: Site, since: int) -> bool:
    """Whether a gateway was refused the list of a namespace since a place in the audit log."""
    asked = site.read_audit(user(GATEWAY), since=since)
    return any((entry.verb, entry.namespace, entry.code) == ("list", LEAVING, 403) for entry in asked)


def count_renewals(site: Site, since: int) -> int:
    """How often gateways have renewed their Lease since a place in the audit log."""
    asked = site.read_audit(user(GATEWAY), since=since)
    return sum(entry.right == ("coordination.k8s.io", "leases", "update") and entry.code == 200 for entry in asked)


def test_neither_writes_outside_of_the_namespaces_that_are_named(installation: Installation) -> None:
    site = installation.site
    path = f"/apis/{API_VERSION}/namespaces/team-b/{PLURAL}"
    body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "theirs"}, "spec": SPEC}
    assert site.request("POST", path, body=body)[0] == 201
    change = [{"op": "add", "path": "/spec/attached", "value": True}]

    for account in (RELEASE, GATEWAY):
        token = site.token("agents", account)
        assert site.request_as(token, "GET", f"{path}/theirs")[0] == 403
        code, answer = site.request_as(token, "PATCH", f"{path}/theirs", body=change, content_type=JSON_PATCH)
        assert code == 422, answer
        assert "in the namespaces of the chart's value `namespaces`, and nowhere else" in answer["message"]
    site.request("DELETE", f"{path}/theirs")

"""
An installation as a user has it, from the first command to the last: the tests are told in the order of the story.

Problem: rights, policies, processes and pages are each tried by themselves, and what a user meets is all of them at
once, one day after the other. Promise: the pages' own commands install, upgrade and uninstall; operator and gateway run
with exactly the tokens of their service accounts; people come with tokens and rights of their own; and in the end the
cluster has the objects that it had before.

What is real: helm, kubectl, etcd, kube-apiserver, kube-controller-manager (aggregation of roles, deletion of
namespaces, garbage collection), Prometheus, both processes, and the processes inside the sprites. What differs from a
cluster of machines: there is no kubelet, so Deployments are stored and make no pods. `running.py` starts the two
processes instead, from what the Deployments say.
"""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from controller.api.names import API_VERSION, FINALIZER, GROUP, KIND, PLURAL
from controller.lab.certificates import Authority
from tests.chart.desk import (
    IN_A_CLUSTER,
    WHEN_A_TEAM_LEAVES,
    WITH_A_CERTIFICATE,
    WITH_A_TOKEN,
    Desk,
    build_desk,
    find_commands,
)
from tests.chart.granting import Book
from tests.chart.helm import Helm
from tests.chart.installing import CRD_PATH, RELEASE, remove_kind
from tests.chart.remains import list_objects, list_settled_objects
from tests.chart.running import start_gateway, start_operator
from tests.chart.site import Site
from tests.metrics.faults import hasten
from tests.metrics.server import Prometheus, keeping_port
from tests.support.emulator import EmulatorProcess
from tests.support.gateway import GatewayProcess, visiting
from tests.support.operator import OperatorProcess, read_condition
from tests.support.process import await_true

pytestmark = pytest.mark.timeout(180)

HOME = "agentterminal"
"""The namespace of the release, as the pages have it."""
WEBSHOP, WAREHOUSE, DEPOT, CELLAR = TEAMS = ("webshop", "warehouse", "depot", "cellar")
"""Teams, each with a namespace and a Secret; the pages' own is the first."""
UPGRADE = (
    f"helm upgrade {RELEASE} charts/{RELEASE} --namespace {HOME} --reuse-values"
    " --set replicas=3 --set monitoring.prometheusRule.enabled=true --set-json 'secretAccess={access}'"
)
ECHO = ("cat",)
SOON = 40.0
"""What happens at once, on a machine that does other things as well."""
GOES_WITHIN = 100.0
"""A namespace with live terminals: the controller looks again after some five seconds, and again."""

Answer = TypeVar("Answer")


@dataclass
class Place:
    """The installation, and who is there."""

    site: Site
    desk: Desk
    lab: EmulatorProcess
    before: set[str]
    """Every object of the cluster before the first command."""
    trust: ssl.SSLContext
    """What a client of the gateway has to trust."""
    operator: OperatorProcess
    gateway: GatewayProcess
    book: Book
    """What both were granted and have used."""
    more: list[GatewayProcess] = field(default_factory=list)
    """Every gateway that was started after the first."""

    @property
    def folder(self) -> Path:
        return self.desk.folder

    def close(self) -> None:
        """End whatever process is there."""
        self.operator.kill()
        for gateway in (self.gateway, *self.more):
            gateway.kill()
            gateway.forget()

    # Not from another thread: a process is ended when the thread ends that started it.

    def start_operator(self) -> OperatorProcess:
        return start_operator(self.site, HOME, self.lab.url)

    def start_gateway(self, **settings: str) -> GatewayProcess:
        gateway = start_gateway(self.site, HOME, self.lab.url, mounts=self.folder, **settings)
        self.more.append(gateway)
        return gateway

    # objects

    def create(self, namespace: str, name: str, *command: str, **spec: Any) -> None:
        """Create a terminal in the sprite of its namespace."""
        full = {
            "spriteName": namespace,
            "launch": {"command": list(command)},
            "tokenSecretRef": {"name": "sprites-token"},
        }
        body = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {**full, **spec}}
        status, answer = self.site.request("POST", terminals(namespace), body=body)
        assert status == 201, answer

    def get(self, namespace: str, name: str) -> Any:
        """Read a terminal; None where there is none."""
        status, answer = self.site.request("GET", f"{terminals(namespace)}/{name}")
        return answer if status == 200 else None

    def await_condition(self, namespace: str, name: str, kind: str, reason: str, within: float = SOON) -> str:
        """Wait until a condition has a reason for the present generation; return its message."""

        def read() -> dict[str, Any]:
            terminal = self.get(namespace, name)
            condition = read_condition(terminal["status"], kind)
            current = condition.get("observedGeneration") == terminal["metadata"]["generation"]
            return condition if current else {**condition, "reason": "of an earlier generation"}

        await_true(
            lambda: bool(read()["reason"] == reason),
            f"{kind} of {namespace}/{name} to be {reason}",
            within,
            tell=lambda: json.dumps(self.get(namespace, name)["status"]),
        )
        return str(read()["message"])

    def await_namespace_gone(self, namespace: str) -> None:
        def tell() -> str:
            left = {name: self.site.request("GET", terminals(name))[1].get("items") for name in (namespace,)}
            return json.dumps(left) + self.operator.told()[-2000:]

        path = f"/api/v1/namespaces/{namespace}"
        await_true(lambda: self.site.request("GET", path)[0] == 404, f"{namespace} to be gone", GOES_WITHIN, tell)

    def ask_for_a_look(self, namespace: str, name: str) -> None:
        """Have the operator look at a terminal now, and wait until it has."""
        asked = str(time.monotonic_ns())
        self.site.kubectl(
            "annotate", "aterm", name, f"--namespace={namespace}", "--overwrite",
            f"reconcile.agentterminal.dev/requestedAt={asked}",
        )  # fmt: skip
        await_true(
            lambda: self.get(namespace, name)["status"].get("lastHandledReconcileAt") == asked,
            f"a look at {namespace}/{name}",
            tell=self.operator.told,
        )

    # people

    def bind(self, namespace: str, person: str, *role: str) -> str:
        """Give a person a role, as install.md does; return their token."""
        token = self.site.token(namespace, person)
        self.site.kubectl(
            "create", "rolebinding", f"{person}-works", f"--namespace={namespace}", *role,
            f"--serviceaccount={namespace}:{person}",
        )  # fmt: skip
        # The authorizer hears of it a moment later, and so does the controller that puts roles together.
        user, attach = f"system:serviceaccount:{namespace}:{person}", f"{PLURAL}/attach"
        await_true(
            lambda: self.site.may(user, "create", attach, namespace=namespace, name="launched"), f"{person}'s right"
        )
        return token

    def login(self, person: str) -> Path:
        """A kubeconfig of a person of the webshop."""
        return self.site.service_account_kubeconfig(WEBSHOP, person)

    # sprites

    def count_sessions(self, sprite: str) -> int:
        """Count the sessions with a terminal: at times a command without one looks for what was left behind."""
        return len([session for session in self.lab.sessions(sprite) if session["tty"]])


def terminals(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"


def build_access(*namespaces: str) -> str:
    return json.dumps([{"namespace": namespace, "names": ["sprites-token"]} for namespace in namespaces])


@pytest.fixture(scope="module")
def lab() -> Iterator[EmulatorProcess]:
    with EmulatorProcess() as process:
        process.create_sprites("dev", *TEAMS)
        for name in ("dev", *TEAMS):
            process.set_state(name, "running")
        yield process


@pytest.fixture(scope="module")
def place(helm: Helm, site: Site, lab: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """What install.md says, typed from top to bottom; three more teams; and both processes."""
    desk = build_desk(tmp_path_factory.mktemp("desk"), helm, site)
    authority = Authority(now=datetime.now(UTC))
    certificate = authority.issue_server("127.0.0.1", "localhost")
    (desk.folder / "tls.crt").write_bytes(certificate.certificate)
    (desk.folder / "tls.key").write_bytes(certificate.key)
    (desk.folder / "token.txt").write_text(lab.token)
    with ExitStack() as stack:
        before = list_settled_objects(site)
        stack.callback(clear, site, desk)
        for commands in find_commands("install", IN_A_CLUSTER, WITH_A_TOKEN, WITH_A_CERTIFICATE):
            desk.type(commands)
        for team in TEAMS[1:]:
            desk.type(
                f"kubectl create namespace {team}\n"
                f"kubectl -n {team} create secret generic sprites-token --from-file=token=token.txt"
            )
        desk.type(UPGRADE.format(access=build_access(*TEAMS)))
        book = Book(site, HOME, RELEASE, f"{RELEASE}-gateway")
        book.begin_chapter()
        operator = start_operator(site, HOME, lab.url)
        stack.callback(operator.kill)
        gateway = start_gateway(site, HOME, lab.url, mounts=desk.folder)
        trust = ssl.create_default_context(cadata=authority.certificate.decode())
        place = Place(site, desk, lab, before, trust, operator, gateway, book)
        stack.callback(place.close)
        yield place


def clear(site: Site, desk: Desk) -> None:
    """Leave nothing to other tests, wherever the story ended."""
    desk.run(f"helm uninstall {RELEASE} --namespace {HOME}")
    for namespace in TEAMS:
        site.empty_namespace(namespace)
    remove_kind(site)
    site.kubectl("delete", "namespace", HOME, *TEAMS, "--ignore-not-found", "--timeout=60s")


async def run(work: Callable[..., Answer], *arguments: Any) -> Answer:
    return await asyncio.to_thread(work, *arguments)


# --- Installed --------------------------------------------------------------------------------------------------------


def test_after_the_install_page_a_terminal_of_the_examples_lives(place: Place) -> None:
    place.desk.type("kubectl -n webshop wait aterm launched --for=condition=Ready --timeout=60s")

    assert place.get(WEBSHOP, "launched")["metadata"]["finalizers"] == [FINALIZER]
    assert place.count_sessions("dev") == 1


def test_the_rights_end_at_the_named_secrets_and_the_people_of_the_page_have_theirs(place: Place) -> None:
    site = place.site
    _, role = site.request(
        "GET", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{WEBSHOP}/roles/agentterminal-operator-secrets"
    )
    assert role["rules"][0]["resourceNames"] == ["sprites-token"]
    for user, name, may in (("vera", "any", True), ("nora", "launched", True), ("nora", "any", False)):
        given = site.may(user, "create", f"{PLURAL}/attach", namespace=WEBSHOP, name=name)
        assert given is may, (user, name)


@pytest.mark.parametrize("role", ["view", "edit", "admin"])
def test_the_clusters_own_roles_know_the_kind(place: Place, role: str) -> None:
    await_true(lambda: is_aggregated(place.site, role), f"the kind in {role}")


def is_aggregated(site: Site, role: str) -> bool:
    _, found = site.request("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}")
    return any(GROUP in rule["apiGroups"] for rule in found["rules"] or ())


# --- People -----------------------------------------------------------------------------------------------------------

LIFE = """
kubectl apply -f examples/stubborn.yaml
kubectl wait aterm stubborn --for=condition=Ready --timeout=60s
kubectl get aterm stubborn -o wide
kubectl patch aterm stubborn --type=merge -p '{"spec":{"terminated":true}}'
kubectl wait aterm stubborn --for=condition=Terminated --timeout=60s
kubectl describe aterm stubborn
kubectl delete aterm stubborn --timeout=60s
"""


@pytest.fixture(scope="module")
def eve(place: Place) -> str:
    """Somebody who is bound to `edit` in the webshop."""
    return place.bind(WEBSHOP, "eve", "--clusterrole=edit")


@pytest.fixture(scope="module")
def nick(place: Place) -> str:
    """Somebody who has the page's role for one named terminal."""
    return place.bind(WEBSHOP, "nick", "--role=attach-to-launched")


def test_whoever_edits_a_namespace_leads_a_terminal_through_its_life(place: Place, eve: str) -> None:
    await_true(lambda: is_aggregated(place.site, "edit"), "the kind in edit")

    told = place.desk.type(LIFE, kubeconfig=place.login("eve"))

    assert "Confirmed" in told
    assert place.get(WEBSHOP, "stubborn") is None
    assert place.count_sessions("dev") == 1, "The one of launched.yaml."


async def test_whoever_edits_a_namespace_comes_through_every_door_there(place: Place, eve: str) -> None:
    await run(lambda: place.create(WEBSHOP, "talk", *ECHO))
    await run(place.await_condition, WEBSHOP, "talk", "Ready", "Detached")

    async with visiting(WEBSHOP, trust=place.trust) as visitors:
        person = await visitors.attach_to_type(place.gateway, eve, "talk")
        await person.types(b"hello\n")
        await person.sees(b"hello")
        looking = await visitors.attach(place.gateway, eve, "talk", "?view=true")
        await looking.sees(b"hello")
        again = await visitors.attach_to_type(place.gateway, eve, "talk", "?takeover=true")
        assert await person.is_closed() == 4001
        await again.types(b"mine\n")
        await again.sees(b"mine")


@pytest.mark.parametrize(
    "command",
    [
        'kubectl patch aterm launched --subresource=status --type=merge -p \'{"status":{"phase":"Lost"}}\'',
        "kubectl get aterm --all-namespaces",
        "kubectl -n warehouse get aterm",
        "kubectl -n warehouse get secret sprites-token",
        "kubectl -n warehouse apply -f examples/launched.yaml",
        "kubectl -n agentterminal get lease",
        "kubectl get crd agentterminals.agentterminal.dev",
        "kubectl create rolebinding more --clusterrole=agentterminal-taker --user=nora",
    ],
)
def test_whoever_edits_a_namespace_may_nothing_else(place: Place, eve: str, command: str) -> None:
    done = place.desk.run(command, kubeconfig=place.login("eve"))

    assert done.returncode != 0
    assert "(Forbidden)" in done.stderr or "is forbidden" in done.stderr, done.stderr


async def test_whoever_edits_a_namespace_finds_the_doors_of_another_closed(place: Place, eve: str) -> None:
    async with visiting(WAREHOUSE, trust=place.trust) as visitors:
        assert await visitors.ask(place.gateway, eve, "any") == (403, "NoRight")


async def test_whoever_has_one_named_terminal_types_there_and_comes_through_no_other_door(
    place: Place, eve: str, nick: str
) -> None:
    async with visiting(WEBSHOP, trust=place.trust) as visitors:
        await visitors.attach_to_type(place.gateway, nick, "launched")
        assert await visitors.ask(place.gateway, nick, "launched", "?view=true") == (403, "NoRight")
        assert await visitors.ask(place.gateway, nick, "launched", "?takeover=true") == (403, "NoRight")
        assert await visitors.ask(place.gateway, nick, "talk") == (403, "NoRight")
        assert await visitors.ask(place.gateway, "nobody", "launched") == (401, "BadToken")
    for command in ("kubectl get aterm launched", "kubectl delete aterm launched", "kubectl get aterm"):
        done = await run(lambda words=command: place.desk.run(words, kubeconfig=place.login("nick")))
        assert "(Forbidden)" in done.stderr, command


# --- Upgraded ---------------------------------------------------------------------------------------------------------


async def test_an_upgrade_throws_nobody_out_but_by_the_gateways_own_restart(place: Place, eve: str) -> None:
    await run(lambda: place.create(WEBSHOP, "stay", *ECHO))
    await run(lambda: place.create(CELLAR, "kept", "sleep", "600"))
    for namespace, name in ((WEBSHOP, "stay"), (CELLAR, "kept")):
        await run(place.await_condition, namespace, name, "Ready", "Detached")
    kim = await run(place.bind, CELLAR, "kim", "--clusterrole=edit")
    async with visiting(CELLAR, trust=place.trust) as visitors:
        await visitors.attach_to_type(place.gateway, kim, "kept")
    # For later: whoever is started anew finds no token for what lives there.
    await run(lambda: place.site.kubectl("delete", "secret", "sprites-token", f"--namespace={CELLAR}"))
    async with visiting(WEBSHOP, trust=place.trust) as visitors:
        person = await visitors.attach_to_type(place.gateway, eve, "stay")

        # Values and chart, forth and back.
        for commands in find_commands("upgrade", IN_A_CLUSTER):
            await run(place.desk.type, commands)
            await person.types(b"upgraded\n")
            await person.sees(b"upgraded")
        # The operator, whose next pod is there before the last one goes.
        before, place.operator = place.operator, place.start_operator()
        assert await run(before.stop) == 0
        await run(place.ask_for_a_look, WEBSHOP, "stay")
        await person.types(b"another leads\n")
        await person.sees(b"another leads")
        assert person.close_code is None
        # The gateway, likewise.
        old, place.gateway = place.gateway, place.start_gateway()
        assert await run(old.stop) == 0
        assert await person.is_closed() == 1012
        back = await visitors.attach_to_type(place.gateway, eve, "stay")
        await back.types(b"back again\n")
        await back.sees(b"back again")
        old.forget()
    (session,) = [one for one in place.lab.sessions(WEBSHOP) if b"back again" in read_input(one)]
    assert b"upgraded" in read_input(session), "It is the session of before."


def read_input(session: Any) -> bytes:
    return base64.b64decode(session["received_base64"])


# --- Watched ----------------------------------------------------------------------------------------------------------


@pytest.mark.prometheus
async def test_the_charts_alerts_fire_in_a_real_prometheus_when_something_is_wrong_and_clear_when_it_is_mended(
    place: Place, eve: str
) -> None:
    _, rule = place.site.request("GET", f"/apis/monitoring.coreos.com/v1/namespaces/{HOME}/prometheusrules/{RELEASE}")
    rules = place.folder / "rules.yaml"
    rules.write_text(hasten(yaml.safe_dump(rule["spec"])))
    metrics_port = next(line["metrics_port"] for line in place.gateway.lines if "metrics_port" in line)
    ports = {
        "operator": next(line["port"] for line in place.operator.lines if "port" in line),
        "gateway": metrics_port,
    }
    not_ready, gateway_down = ("AgentTerminalTerminalsNotReady", "operator"), ("AgentTerminalGatewayDown", "gateway")
    with Prometheus(place.folder, ports, rules) as prometheus:
        await_true(lambda: len(prometheus.query("agentterminal_build_info")) == 2, "both to be scraped")

        def await_firing(alerts: set[tuple[str, str]]) -> None:
            await_true(
                lambda: prometheus.firing() & {not_ready, gateway_down} == alerts,
                f"{alerts or 'nothing'} to fire",
                SOON,
                tell=lambda: str(prometheus.firing()),
                poll_seconds=0.3,
            )

        # A Secret that is gone, and a gateway that dies while somebody types.
        place.ask_for_a_look(CELLAR, "kept")
        place.await_condition(CELLAR, "kept", "Stalled", "SecretNotFound")
        # First by itself, since the other does not fire for long here.
        await_firing({not_ready})
        async with visiting(WEBSHOP, trust=place.trust) as visitors:
            await visitors.attach_to_type(place.gateway, eve, "stay")
            place.gateway.kill()
        with keeping_port(metrics_port):
            await_firing({not_ready, gateway_down})
            await_true(lambda: "socket" not in place.get(WEBSHOP, "stay")["status"], "the operator to prove its death")

        place.gateway.forget()
        place.gateway = place.start_gateway(GATEWAY_METRICS_PORT=str(metrics_port))
        place.desk.type(f"kubectl -n {CELLAR} create secret generic sprites-token --from-file=token=token.txt")
        place.ask_for_a_look(CELLAR, "kept")
        await_firing(set())


def test_a_terminal_to_which_nobody_comes_is_reaped(place: Place) -> None:
    place.create(WEBSHOP, "brief", *ECHO, idleTimeoutSeconds=1)

    place.await_condition(WEBSHOP, "brief", "Ready", "Reaped")


def test_a_trouble_that_comes_twice_is_told_by_one_event(place: Place) -> None:
    for key, kind, reason in (("other", "Stalled", "SecretKeyMissing"), ("token", "Ready", "Detached")) * 2:
        spec = json.dumps({"spec": {"tokenSecretRef": {"key": key}}})
        place.site.kubectl("patch", "aterm", "talk", f"--namespace={WEBSHOP}", "--type=merge", f"-p={spec}")
        place.await_condition(WEBSHOP, "talk", kind, reason)

    await_true(lambda: count_events(place, "talk", "SecretKeyMissing") == [2], "one event that counts to two")


def count_events(place: Place, name: str, reason: str) -> list[int]:
    """How often each event about a terminal says that it came."""
    _, found = place.site.request("GET", f"/apis/events.k8s.io/v1/namespaces/{WEBSHOP}/events")
    return [
        event.get("series", {}).get("count", 1)
        for event in found["items"]
        if (event["regarding"]["name"], event["reason"]) == (name, reason)
    ]


# --- Teams leave ------------------------------------------------------------------------------------------------------


async def test_namespaces_go_with_their_secrets_and_their_live_terminals_whatever_goes_first(
    place: Place, eve: str
) -> None:
    for namespace in (WAREHOUSE, DEPOT):
        for name in ("one", "two"):
            await run(lambda where=namespace, what=name: place.create(where, what, *ECHO))
    for namespace in (WAREHOUSE, DEPOT):
        for name in ("one", "two"):
            await run(place.await_condition, namespace, name, "Ready", "Detached")
    wim, dan = [
        await run(place.bind, namespace, person, "--clusterrole=edit")
        for namespace, person in ((WAREHOUSE, "wim"), (DEPOT, "dan"))
    ]
    dying = place.start_gateway()
    async with (
        visiting(WAREHOUSE, trust=place.trust) as visitors,
        visiting(DEPOT, trust=place.trust) as visitors_there,
        visiting(WEBSHOP, trust=place.trust) as staying,
        asyncio.TaskGroup() as group,
    ):
        person = await visitors.attach_to_type(place.gateway, wim, "one")
        await visitors_there.attach_to_type(place.gateway, dan, "one")
        # Meanwhile, elsewhere, a gateway dies and another follows it.
        await staying.attach_to_type(dying, eve, "talk")
        dying.kill()
        following = group.create_task(staying.attach_to_type(place.gateway, eve, "talk", "?takeover=true"))

        # The Secret first: what was started with its token is ended with it.
        for words in (("secret", "sprites-token", f"--namespace={DEPOT}"), ("namespace", DEPOT, "--wait=false")):
            await run(lambda told=words: place.site.kubectl("delete", *told))
        # And in the order that the controller chooses, while somebody types.
        for commands in find_commands("uninstall", WHEN_A_TEAM_LEAVES):
            await run(place.desk.type, commands)
        assert await person.is_closed() is not None
        await following
    await run(place.await_namespace_gone, DEPOT)

    for sprite in (WAREHOUSE, DEPOT):
        assert place.count_sessions(sprite) == 0
        assert [one["argv"] for one in place.lab.processes(sprite) if one["argv"] == list(ECHO)] == []


def test_without_any_token_a_namespace_waits_and_says_so_and_goes_when_the_session_is_let_go(place: Place) -> None:
    place.site.kubectl("delete", "secret", "sprites-token", f"--namespace={CELLAR}", "--ignore-not-found")
    first, place.operator = place.operator, place.start_operator()
    assert first.stop() == 0
    place.site.kubectl("delete", "namespace", CELLAR, "--wait=false")

    message = place.await_condition(CELLAR, "kept", "Stalled", "SecretNotFound")
    assert "Orphan" in message
    place.site.kubectl(
        "patch", "aterm", "kept", f"--namespace={CELLAR}", "--type=merge", '-p={"spec":{"deletionPolicy":"Orphan"}}'
    )
    place.await_namespace_gone(CELLAR)

    assert place.count_sessions(CELLAR) == 1, "Nobody had the right to end it, so the page says that it goes on."


# --- Uninstalled ------------------------------------------------------------------------------------------------------


def test_each_right_that_was_granted_was_used_and_each_that_was_used_was_granted(place: Place) -> None:
    place.book.begin_chapter()

    for account in place.book.accounts.values():
        assert (account.unused, account.ungranted) == ([], []), account.name
        assert {asked.namespace for asked in account.refused} <= {WAREHOUSE, DEPOT, CELLAR}, account.name


def test_after_the_uninstall_page_nothing_remains(place: Place) -> None:
    site = place.site
    for commands in find_commands("uninstall", IN_A_CLUSTER):
        place.desk.type(commands)
        if "helm uninstall" in commands:
            # A kubelet ends the pods when their Deployments are gone, and their rights may be gone by then.
            assert place.gateway.stop() == 0
            assert "Traceback" not in place.gateway.told() + place.operator.told()
            assert place.operator.stop() == 0

    assert place.count_sessions("dev") == 1, "The page lets the session of launched.yaml live on."
    assert place.count_sessions(WEBSHOP) == 0
    await_true(
        lambda: not any(is_aggregated(site, role) for role in ("view", "edit", "admin")), "the kind to be in no role"
    )
    # What is left are the teams' own namespaces, and what this test made in them.
    left = {name.split()[1] for name in list_objects(site) - place.before if "/api/v1/namespaces " not in name}
    made = {f"{WEBSHOP}/{name}" for name in ("eve", "nick", "eve-works", "nick-works")}
    assert left - made <= {f"{team}/sprites-token" for team in TEAMS[1:]}
    site.kubectl("delete", "namespace", *TEAMS, "--ignore-not-found", "--timeout=60s")
    await_true(
        lambda: list_objects(site) == place.before,
        "the cluster to be as it was",
        tell=lambda: str(list_objects(site) ^ place.before),
    )
    assert site.request("GET", CRD_PATH)[0] == 404

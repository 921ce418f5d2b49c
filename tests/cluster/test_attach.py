"""
People at a shell, at a real API server with operator and gateway: every command of `kubectl aterm`, typed.

One world for the whole module; each test has a terminal and a sprite of its own.
"""

import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from controller.client.finding import DOORS, LABELS
from tests.client.conftest import AGENTTERMINAL, ATERM, Window, open_windows
from tests.client.test_way import LISTENS, Kubectl
from tests.cluster.plane import Cluster
from tests.lab.watching import list_children
from tests.support.gateway import GatewayProcess, open_gateway_world
from tests.support.operator import World
from tests.support.process import await_true

NUMBERS = itertools.count(1)
PROMPT = "over there> "


class People:
    """A namespace with an operator and a gateway, and people who type commands. All calls block."""

    def __init__(self, world: World, gateway: GatewayProcess) -> None:
        self.world = world
        self.gateway = gateway
        self.cluster = world.cluster

    def run(
        self,
        *words: str,
        kubeconfig: Path | None = None,
        program: str = ATERM,
        environment: dict[str, str] | None = None,
    ) -> tuple[int, str, str]:
        """Type a command of the plugin; give its exit code, its output and its remarks."""
        ended = subprocess.run(
            [program, *words, "-n", self.world.namespace, "--kubeconfig", str(kubeconfig or self.cluster.kubeconfig)],
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        return ended.returncode, ended.stdout, ended.stderr

    def start_session(self) -> tuple[str, dict[str, Any]]:
        """Make a sprite with a shell in it."""
        name = f"p{next(NUMBERS)}"
        self.world.lab.create_sprites(name)
        self.world.lab.set_state(name, "running")
        environment = {"PS1": PROMPT, "PATH": os.environ["PATH"], "TERM": "xterm"}
        return name, self.world.lab.start_session(name, "/bin/sh", "-i", env=environment)

    def make_terminal(self, **spec: Any) -> str:
        """Make a terminal that has adopted such a session."""
        name, session = self.start_session()
        self.world.create(name, spriteName=name, sessionId=session["id"], **spec)
        self.world.await_reason(name, "Live", "SessionLive")
        return name

    def create(self, plural: str, body: dict[str, Any]) -> None:
        """Make something of the core group in this namespace."""
        status, answer = self.cluster.request("POST", f"/api/v1/namespaces/{self.world.namespace}/{plural}", body=body)
        assert status == 201, answer

    def allow(self, account: str, *rights: str, lists_services: bool = False) -> Path:
        """Make an account with rights to the terminals here, and give its kubeconfig."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.world.namespace}"
        rules = [
            {"apiGroups": ["agentterminal.dev"], "resources": [f"agentterminals/{right}"], "verbs": ["create"]}
            for right in rights
        ]
        if lists_services:
            rules.append({"apiGroups": [""], "resources": ["services"], "verbs": ["list"]})
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.world.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
        for kind, body in (
            ("roles", {"metadata": {"name": account}, "rules": rules}),
            ("rolebindings", {"metadata": {"name": account}, "roleRef": reference, "subjects": [subject]}),
        ):
            status, answer = self.cluster.request("POST", f"{path}/{kind}", body=body)
            assert status == 201, answer
        for right in rights:
            self.cluster.await_right(self.world.namespace, account, right)
        return self.cluster.service_account_kubeconfig(self.world.namespace, account)


@pytest.fixture(scope="module")
def people(cluster: Cluster) -> Iterator[People]:
    namespace = f"people-{os.getpid()}"
    with open_gateway_world(cluster, namespace) as (world, kubeconfig):
        world.start_operator()
        hosts = f"127.0.0.1,gw.{namespace}.svc"
        gateway = GatewayProcess(kubeconfig, world.lab.url, NAMESPACES=namespace, GATEWAY_HOSTS=hosts)
        try:
            yield People(world, gateway)
        finally:
            gateway.kill()
            gateway.forget()


@pytest.fixture
def open_window() -> Iterator[Callable[..., Window]]:
    with open_windows() as open_one:
        yield open_one


def test_a_kill_waits_for_the_proof_and_shows_it(people: People) -> None:
    name = people.make_terminal()

    code, told, remarks = people.run("kill", name)

    assert code == 0, remarks
    assert f"{people.world.namespace}/{name} is dead." in told
    assert "verdict  Confirmed" in told
    assert re.search(r"signal   SIGKILL, [1-9][0-9]* attempts?\n", told)
    assert re.search(r"proven   20\d\d-.*Z \(.+\)\n", told)
    assert people.world.condition(name, "Terminated")["status"] == "True"
    assert people.world.lab.sessions(name) == [] or not any(
        session["id"] == people.world.status(name)["session"]["id"] for session in people.world.lab.list_sessions(name)
    )


def test_a_kill_that_is_not_proven_in_time_says_what_it_waits_for_and_ends_with_1(people: People) -> None:
    name = people.make_terminal()
    people.world.lab.arm_fault({"kind": "status", "status": 500}, route="exec.kill", sprite=name, times=100)
    try:
        # By somebody else: what an operator that stands still has not tried yet would not be told in so short a time.
        people.world.patch(name, terminated=True)
        people.world.await_reason(name, "KillFailed", "Terminated")
        code, told, remarks = people.run("kill", name, "--wait-seconds", "3")
    finally:
        people.world.lab.disarm_faults()

    assert (code, told) == (1, "")
    assert "is not proven after 3 s: KillFailed" in remarks
    # The operator goes on by itself, and asking again only waits.
    assert people.run("kill", name)[0] == 0


def test_an_adoption_writes_id_and_created_time_and_shows_the_session(people: People) -> None:
    name, session = people.start_session()
    words = ("adopt", name, "--sprite", name, "--session", session["id"], "--token-secret", "sprites/token")

    refused, _, why = people.run(*words)
    code, told, remarks = people.run(*words, "--created", session["created"])
    again, _, taken = people.run(*words, "--trust-id")

    assert refused == 2
    assert "--trust-id" in why
    assert code == 0, remarks
    assert f"{people.world.namespace}/{name} has session {session['id']}, created " in told
    terminal = people.world.get(name)
    assert terminal is not None
    assert terminal["spec"]["sessionId"] == session["id"]
    assert terminal["spec"]["sessionCreatedTime"] == session["created"]
    assert again == 1
    assert "There is an AgentTerminal" in taken


def test_an_adoption_of_another_session_than_was_meant_fails_with_the_reason(people: People) -> None:
    name, session = people.start_session()

    code, told, remarks = people.run(
        *("adopt", name, "--sprite", name, "--session", session["id"], "--token-secret", "sprites"),
        *("--created", "2020-01-01T00:00:00Z"),
    )

    assert (code, told) == (1, "")
    assert "SessionNotOurs" in remarks


def test_a_hold_is_asked_for_shown_and_released(people: People) -> None:
    name = people.make_terminal(hold={"mode": "Always", "expireSeconds": 30, "refreshSeconds": 5})

    code, told, remarks = people.run("hold", name)
    assert code == 0, remarks
    assert told.startswith(f"{people.world.namespace}/{name} is held. HoldActive")
    code, rows, summed = people.run("ps")
    row = next(line for line in rows.splitlines() if line.startswith(f"{name} "))
    assert re.search(r" running +\d+ +Held +\d+s +\w+ +\d+s ", row), row
    assert re.search(r"\d+ terminals?; \d+ sprites? running, 1 held awake by us;", summed)

    code, told, remarks = people.run("release", name)
    assert code == 0, remarks
    assert told.startswith(f"{people.world.namespace}/{name} is not held. NotWanted")


def test_events_are_shown_with_the_latest_last(people: People) -> None:
    name = people.make_terminal()
    assert people.run("kill", name)[0] == 0
    await_true(lambda: len(people.world.events(name)) > 0, "an Event")

    code, told, remarks = people.run("events", name)

    assert code == 0, remarks
    assert told.splitlines()[0].split() == ["LAST", "SEEN", "COUNT", "TYPE", "REASON", "MESSAGE"]
    assert len(told.splitlines()) > 1
    for command in ("kill", "hold", "release"):
        assert people.run(command, "nobody")[2].startswith(
            f"Error: There is no AgentTerminal {people.world.namespace}/nobody."
        )
    assert people.run("events", "nobody")[1].startswith("There are no Events about")


def test_kubectl_finds_the_plugin_and_whoever_lacks_a_right_reads_which(people: People) -> None:
    name = people.make_terminal()
    kubectl = str(Path(ATERM).with_name("kubectl"))
    looker = people.allow("looker", "view")

    found = subprocess.run(
        [kubectl, "aterm", "ps", "-n", people.world.namespace],
        env={
            **os.environ,
            "PATH": f"{Path(ATERM).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(people.cluster.kubeconfig),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    code, told, remarks = people.run("kill", name, kubeconfig=looker)

    assert found.returncode == 0, found.stderr
    assert name in found.stdout
    assert (code, told) == (1, "")
    assert remarks == (
        f"Error: system:serviceaccount:{people.world.namespace}:looker may not patch agentterminals in namespace"
        f" {people.world.namespace} (403). The chart adds that right to ClusterRole edit: a RoleBinding in"
        f" {people.world.namespace} gives it to you. To ask for yourself: `kubectl auth can-i patch"
        f" agentterminals.agentterminal.dev -n {people.world.namespace}`\n"
    )


def test_a_person_attaches_types_detaches_is_thrown_out_and_gets_the_exit_code(
    people: People, open_window: Callable[..., Window]
) -> None:
    name = people.make_terminal()
    anna, bert = people.allow("anna", "attach", "view"), people.allow("bert", "attach", "takeover")
    where = f"attach {name} --gateway {people.gateway.url} -n {people.world.namespace}"
    first, second = open_window(), open_window()
    mode = first.read_mode()

    first.attaches(f"{AGENTTERMINAL} {where} --kubeconfig {anna}", PROMPT)
    first.runs("echo $((6 * 7)) typed; stty size")
    first.sees("42 typed")
    first.sees("30 100")
    first.types(b"\x10\x11")
    first.ended(0)
    await_true(lambda: (people.world.get(name) or {})["spec"]["attached"] is False, "the claim to be let go")

    first.attaches(f"{AGENTTERMINAL} {where} --kubeconfig {anna}", PROMPT)
    second.attaches(f"{AGENTTERMINAL} {where} --kubeconfig {bert} --takeover", PROMPT)
    first.sees("To take it back: --takeover.")
    first.ended(255)
    assert first.read_mode() == mode

    second.runs("exit 9")
    second.ended(9)


def test_a_named_service_account_attaches_with_a_token_that_stands_in_no_argument(
    people: People, open_window: Callable[..., Window]
) -> None:
    name = people.make_terminal()
    people.allow("robot", "attach")
    # The administrator here has a client certificate alone, which a gateway without TLS cannot take.
    certificate = people.cluster.plane.certificate_kubeconfig
    where = f"attach {name} --gateway {people.gateway.url} -n {people.world.namespace} --kubeconfig {certificate}"
    window = open_window()

    window.runs(f"{AGENTTERMINAL} {where}")
    window.sees("There are three ways:")
    window.ended(255)
    window.attaches(f"{AGENTTERMINAL} {where} --as-service-account {people.world.namespace}/robot", PROMPT)
    (client,) = list_children(window.shell.pid)
    spoken = Path(f"/proc/{client}/cmdline").read_bytes() + Path(f"/proc/{client}/environ").read_bytes()
    window.types(b"\x10\x11")
    window.ended(0)

    assert b"robot" in spoken
    assert b"eyJ" not in spoken
    assert json.dumps(people.gateway.lines).count("eyJ") == 0


def build_labelled(name: str, port_name: str) -> dict[str, Any]:
    ports = [{"name": port_name, "port": 443, "targetPort": port_name}]
    return {"metadata": {"name": name, "labels": dict(LABELS)}, "spec": {"ports": ports}}


def test_the_gateways_service_is_found_by_its_labels_by_whoever_may_list(
    people: People, open_window: Callable[..., Window], tmp_path: Path
) -> None:
    name, namespace = people.make_terminal(), people.world.namespace
    blind, seeing = people.allow("blind", "attach"), people.allow("seeing", "attach", lists_services=True)
    kubectl = Kubectl(tmp_path, LISTENS, port=urlsplit(people.gateway.url).port)
    path = f"{kubectl.folder}:{os.environ['PATH']}"
    window = open_window(environment={"PATH": path})
    command = f"{AGENTTERMINAL} attach {name} -n {namespace} --gateway-service {namespace} --gateway-plain"

    window.runs(f"{command} --kubeconfig {seeing}")
    window.sees(f"no Service in namespace {namespace} has its labels")
    window.ended(255)
    people.create("services", build_labelled("gw-metrics", "metrics"))
    people.create("services", build_labelled("gw", DOORS))
    window.runs(f"{command} --kubeconfig {blind}")
    window.sees(f"you may not list Services in namespace {namespace}")
    window.ended(255)
    window.attaches(f"{command} --kubeconfig {seeing}", PROMPT)
    window.types(b"\x10\x11")
    window.ended(0)
    assert f"[aterm] The gateway is Service {namespace}/gw, by its labels.".encode() in window.output
    assert kubectl.log.read_text().endswith(f"--namespace {namespace} service/gw :443\n")
    kubectl.until_none_is_left()

    # Without a namespace it is looked for in all of them, and what answers here speaks no TLS.
    plain = people.run("attach", name, program=AGENTTERMINAL, environment={"PATH": path})
    people.create("services", build_labelled("gw-two", DOORS))
    crowded = people.run("attach", name, program=AGENTTERMINAL, environment={"PATH": path})

    assert f"The gateway is Service {namespace}/gw, by its labels." in plain[2]
    assert "a gateway that speaks plain HTTP is reached by --gateway-plain." in plain[2]
    assert f"2 Services in any namespace have its labels: {namespace}/gw, {namespace}/gw-two." in crowded[2]
    assert (plain[0], crowded[0]) == (255, 255)

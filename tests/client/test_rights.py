"""Whatever command the API server refuses, the person reads what was asked, who may not, and the way out."""

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from controller.cli.aterm import aterm
from controller.client.rights import explain_refusal
from controller.kube.calls import Call, Resource, Verb
from controller.kube.errors import Forbidden, NotFound
from tests.client.conftest import write_kubeconfig

ADOPT: Final = "adopt one --sprite dev --session 2 --trust-id"
TOKEN: Final = "planted-0123456789"
SERVICE_ACCOUNT: Final = "view one --gateway https://127.0.0.1:1 --as-service-account infra/robot"

ASKED: Final = [
    ("ps", "list agentterminals in namespace team-a"),
    ("ps -A", "list agentterminals in all namespaces"),
    ("kill one", "patch agentterminals in namespace team-a"),
    ("hold one", "patch agentterminals in namespace team-a"),
    ("release one", "patch agentterminals in namespace team-a"),
    (ADOPT, "create agentterminals in namespace team-a"),
    ("events one", "list events in namespace team-a"),
    (SERVICE_ACCOUNT, "create serviceaccounts/token in namespace infra"),
]
"""Every command that asks the API server, and what it asks."""


class ApiServer(ThreadingHTTPServer):
    """Answers everything by a function of the path: the status and the message."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str], tuple[int, str]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer


class _Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, message = self.server.answer(self.path)
        shape = {"items": [], "metadata": {"resourceVersion": "1"}} if status == 200 else {"message": message}
        body = json.dumps(shape).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - as http.server has it
    do_PATCH = do_GET  # noqa: N815 - as http.server has it

    def log_message(self, *_: object) -> None:
        pass


Run = Callable[[str, Callable[[str], tuple[int, str]]], tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Type a command at an API server that answers so; give the exit code and what was said."""
    servers: list[ApiServer] = []

    def type_command(typed: str, answer: Callable[[str], tuple[int, str]]) -> tuple[int, str]:
        servers.append(server := ApiServer(answer))
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        url = f"http://127.0.0.1:{server.server_port}"
        kubeconfig = write_kubeconfig(tmp_path, {"token": TOKEN}, server=url)
        ended = CliRunner().invoke(aterm, [*shlex.split(typed), "--kubeconfig", str(kubeconfig)], standalone_mode=False)
        said = ended.output if ended.exception is None else f"{ended.output}{ended.exception}"
        return ended.exit_code if ended.exception is not None else ended.return_value, said

    yield type_command
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("typed", "asked"), ASKED)
def test_who_may_not_reads_what_who_and_how_to_ask(run: Run, typed: str, asked: str) -> None:
    code, said = run(typed, lambda _: (403, 'agentterminals "one" is forbidden: User "bert" cannot do "this" here'))

    assert code in {1, 255}
    assert f"bert may not {asked} (403). " in said
    assert "gives it to you. To ask for yourself: `kubectl auth can-i " in said
    assert TOKEN not in said


@pytest.mark.parametrize(("typed", "asked"), ASKED)
def test_who_is_not_known_reads_that_it_is_the_login(run: Run, typed: str, asked: str) -> None:
    code, said = run(typed, lambda _: (401, "Unauthorized"))

    assert code in {1, 255}
    assert f"The API server does not know who you are (401 to {asked}): the login of your kubeconfig" in said
    assert "`kubectl auth whoami`" in said
    assert TOKEN not in said


@pytest.mark.parametrize(
    ("namespace", "code", "sentence"),
    [
        (200, 0, "There is no AgentTerminal in namespace nosuch."),
        (403, 0, "There is no AgentTerminal in namespace nosuch."),
        (404, 1, "There is no namespace nosuch. `kubectl aterm ps -A` lists the terminals of all namespaces."),
    ],
)
def test_an_empty_list_tells_an_empty_namespace_from_none_where_one_may_know(
    run: Run, namespace: int, code: int, sentence: str
) -> None:
    def answer(path: str) -> tuple[int, str]:
        return (namespace, 'User "bert" cannot') if path == "/api/v1/namespaces/nosuch" else (200, "")

    assert run("ps -n nosuch", answer) == (code, f"{sentence}\n" if code == 0 else sentence)


def test_an_empty_cluster_is_no_mistake(run: Run) -> None:
    def answer(path: str) -> tuple[int, str]:
        return (200, "") if path.startswith("/apis/agentterminal.dev/") else (404, "")

    assert run("ps -A", answer) == (0, "There is no AgentTerminal in any namespace.\n")


def test_a_cluster_without_the_crd_is_told_from_one_without_terminals(run: Run) -> None:
    code, said = run("ps", lambda _: (404, ""))

    assert code == 1
    assert "This cluster has no agentterminals.agentterminal.dev: the operator's CRD is not installed." in said


LIST = Call(verb=Verb.LIST, resource=Resource.TERMINALS, namespace="team-a")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            LIST,
            (
                "jane may not list agentterminals in namespace team-a (403). The chart adds that right to ClusterRole"
                " view, and agentterminal-viewer has it: a RoleBinding in team-a gives it to you. To ask for yourself:"
                " `kubectl auth can-i list agentterminals.agentterminal.dev -n team-a`"
            ),
        ),
        (
            Call(verb=Verb.LIST, resource=Resource.TERMINALS),
            (
                "jane may not list agentterminals in all namespaces (403). The chart adds that right to ClusterRole"
                " view, and agentterminal-viewer has it: a ClusterRoleBinding gives it to you. To ask for yourself:"
                " `kubectl auth can-i list agentterminals.agentterminal.dev --all-namespaces`"
            ),
        ),
        (
            Call(verb=Verb.CREATE, resource=Resource.ACCOUNT_TOKENS, namespace="infra", name="robot"),
            (
                "jane may not create serviceaccounts/token in namespace infra (403). ClusterRole edit has that right: a"
                " RoleBinding in infra gives it to you. To ask for yourself: `kubectl auth can-i create serviceaccounts"
                " --subresource=token -n infra`"
            ),
        ),
        (
            Call(verb=Verb.LIST, resource=Resource.EVENTS, namespace="team-a"),
            (
                "jane may not list events in namespace team-a (403). ClusterRole view has that right: a RoleBinding in"
                " team-a gives it to you. To ask for yourself: `kubectl auth can-i list events.events.k8s.io -n team-a`"
            ),
        ),
    ],
)
def test_each_right_is_told_with_the_role_that_has_it(call: Call, sentence: str) -> None:
    assert str(explain_refusal(call, Forbidden('x is forbidden: User "jane" cannot', status=403))) == sentence


def test_a_long_name_cuts_no_sentence() -> None:
    namespace = "n" * 63
    user = f"system:serviceaccount:{namespace}:{'a' * 63}"
    call = Call(verb=Verb.LIST, resource=Resource.TERMINALS, namespace=namespace)

    said = str(explain_refusal(call, Forbidden(f'x is forbidden: User "{user}" cannot', status=403)))

    assert said.endswith(f"`kubectl auth can-i list agentterminals.agentterminal.dev -n {namespace}`")


def test_nobody_is_told_to_log_in() -> None:
    said = str(explain_refusal(LIST, Forbidden('x is forbidden: User "system:anonymous" cannot', status=403)))

    assert said.endswith("(403). That is nobody: your kubeconfig has no login for this cluster. Log in first.")


@pytest.mark.parametrize(
    "refused",
    [
        Forbidden("namespace team-a is being terminated", status=403),
        Forbidden("ValidatingAdmissionPolicy 'x' denied request: no", status=403),
    ],
)
def test_what_no_right_would_change_is_told_in_the_servers_own_words(refused: Forbidden) -> None:
    assert explain_refusal(LIST, refused) is refused


def test_an_object_that_is_missing_stays_a_missing_object() -> None:
    missing = NotFound("no such", status=404)

    assert (
        explain_refusal(Call(verb=Verb.GET, resource=Resource.TERMINALS, namespace="a", name="b"), missing) is missing
    )

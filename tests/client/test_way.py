"""The way to the gateway: kubectl's port-forward by a double of kubectl, and who speaks at the doors."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from controller.client.settings import AttachTimes
from controller.client.way import Address, PortForward, Reached, Service, WayClosed
from controller.gateway.server import AUTHORITY_KEY, AUTHORITY_NAME
from controller.lab.certificates import Authority, Pair
from tests.client.conftest import AGENTTERMINAL, LIMIT, PROMPT, StandIn, Window, start_shell, write_kubeconfig
from tests.gateway.doubles import ANNA, NAME, build_jwt, in_seconds
from tests.lab.watching import is_alive, list_children
from tests.support.emulator import EmulatorProcess
from tests.support.process import await_true

KUBECTL = """#!{python}
import os, sys, time
open({log!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
open({pids!r}, "a").write(f"{{os.getpid()}}\\n")
{body}
"""
LISTENS = 'print("Forwarding from 127.0.0.1:{port} -> 8443", flush=True)\ntime.sleep(1000)'
REFUSED = 'sys.exit("error: services \\"gw\\" not found")'
SILENT = "time.sleep(1000)"


class Kubectl:
    """A program called kubectl, which says that it forwards to a port of this machine, and what it was told."""

    def __init__(self, folder: Path, body: str, **values: Any) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.log, self.pids = folder / "log", folder / "pids"
        self.path = self.folder / "kubectl"
        self.path.write_text(
            KUBECTL.format(python=sys.executable, log=str(self.log), pids=str(self.pids), body=body.format(**values))
        )
        self.path.chmod(0o755)

    def living(self) -> list[int]:
        pids = [int(line) for line in self.pids.read_text().splitlines()] if self.pids.exists() else []
        return [pid for pid in pids if is_alive(pid)]

    def until_none_is_left(self) -> None:
        await_true(lambda: not self.living(), "kubectl to end", tell=lambda: f"Left: {self.living()}")


async def test_a_given_address_is_taken_as_it_is() -> None:
    assert await Address("https://gw.example.com/base/").reach() == Reached("https://gw.example.com/base")


async def test_a_port_forward_is_spoken_to_by_the_gateways_own_name_and_made_anew_each_time(tmp_path: Path) -> None:
    kubectl = Kubectl(tmp_path, LISTENS, port=4711)
    way = PortForward(
        str(kubectl.path), Service("infra", "gw", 8443), ["--context", "prod"], AttachTimes(), is_plain=False
    )

    assert await way.reach() == await way.reach() == Reached("https://gw.infra.svc:8443", 4711)
    await_true(lambda: len(kubectl.living()) <= 1, "the first kubectl to end")
    assert len(kubectl.living()) == 1
    await way.aclose()
    await way.aclose()

    kubectl.until_none_is_left()
    asked = "port-forward --context prod --address 127.0.0.1 --namespace infra service/gw :8443\n"
    assert kubectl.log.read_text() == asked * 2


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (REFUSED, 'kubectl port-forward to Service infra/gw ended: error: services "gw" not found'),
        (SILENT, "kubectl port-forward to Service infra/gw did not listen within 0.5 s."),
        ('print("Hello")', "kubectl port-forward to Service infra/gw ended without a word"),
    ],
)
async def test_a_port_forward_that_does_not_open_says_why_and_leaves_no_process(
    tmp_path: Path, body: str, sentence: str
) -> None:
    kubectl = Kubectl(tmp_path, body)
    # Long enough for a program to start and fail, where that is what is awaited.
    within = timedelta(seconds=0.5 if body == SILENT else LIMIT)
    way = PortForward(str(kubectl.path), Service("infra", "gw"), [], AttachTimes(forward=within), is_plain=True)

    with pytest.raises(WayClosed) as closed:
        await way.reach()

    assert str(closed.value) == sentence
    kubectl.until_none_is_left()


async def test_a_port_forward_whose_start_is_cancelled_never_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = Kubectl(tmp_path, SILENT)
    way = PortForward(str(kubectl.path), Service("infra", "gw"), [], AttachTimes(), is_plain=True)
    start = asyncio.create_subprocess_exec

    async def start_and_be_cancelled(*command: str, **how: Any) -> None:
        """As asyncio does it: whoever is cancelled while the child starts gets no child, and its leader is killed."""
        child = await start(*command, **how)
        await asyncio.sleep(0.3)
        child.kill()
        await child.wait()
        raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start_and_be_cancelled)
    with pytest.raises(asyncio.CancelledError):
        await way.reach()
    await way.aclose()

    assert not kubectl.pids.exists()


async def test_without_kubectl_the_way_out_is_an_address() -> None:
    with pytest.raises(WayClosed, match="--gateway https://"):
        await PortForward(None, Service("infra", "gw"), [], AttachTimes(), is_plain=True).reach()


@pytest.fixture
def session(lab: EmulatorProcess) -> Any:
    return start_shell(lab)


@pytest.fixture
def stand_in(lab: EmulatorProcess, session: Any) -> Iterator[Callable[..., StandIn]]:
    made: list[StandIn] = []

    def make(**facts: Any) -> StandIn:
        made.append(StandIn(lab, session, **facts))
        return made[-1]

    yield make
    for one in made:
        one.close()


def find_client(window: Window) -> int:
    (child,) = list_children(window.shell.pid)
    return child


def test_an_attach_through_a_port_forward_leaves_no_kubectl_behind_however_it_ends(
    open_window: Callable[..., Window], stand_in: Callable[..., StandIn], tmp_path: Path, anna: Path
) -> None:
    kubectl = Kubectl(tmp_path, LISTENS, port=stand_in().port)
    environment = {
        "PATH": f"{kubectl.folder}:{os.environ['PATH']}",
        "AGENTTERMINAL_ATTACH_SERVICE": "infra/gw",
        "AGENTTERMINAL_ATTACH_DETACH_KEYS": "ctrl-a,d",
    }
    window = open_window(environment=environment)
    command = f"{AGENTTERMINAL} attach {NAME} --gateway-plain --kubeconfig {anna}"

    window.attaches(command, PROMPT)
    assert len(kubectl.living()) == 1
    window.sees("ctrl-a d leaves it.")
    window.types(b"\x01d")
    window.ended(0)
    kubectl.until_none_is_left()

    window.attaches(command, PROMPT)
    os.kill(find_client(window), signal.SIGKILL)
    kubectl.until_none_is_left()
    asked = f"port-forward --kubeconfig {anna} --address 127.0.0.1 --namespace infra service/gw :443\n"
    assert kubectl.log.read_text() == asked * 2


def test_a_client_certificate_speaks_where_there_is_no_token_and_the_gateway_is_known(
    open_window: Callable[..., Window], stand_in: Callable[..., StandIn], tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    servers, clients = Authority(now=now), Authority(now=now)
    trusted, certificate, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))
    trusted.write_bytes(servers.certificate)
    pair = servers.issue_server("127.0.0.1", "localhost")
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    config_maps = {AUTHORITY_NAME: {AUTHORITY_KEY: clients.certificate.decode()}}
    gateway = stand_in(tls=[str(certificate), str(key)], config_maps=config_maps)
    kubeconfig = write_kubeconfig(tmp_path, write_client(tmp_path, clients.issue_client("anna")))
    window = open_window()
    command = f"{AGENTTERMINAL} attach {NAME} --gateway {gateway.url} --kubeconfig {kubeconfig}"

    window.runs(command)
    window.sees("its certificate is not accepted")
    window.sees("--gateway-ca")
    window.ended(255)
    window.attaches(f"{command} --gateway-ca {trusted}", PROMPT)
    window.types(b"\x10\x11")
    window.ended(0)


def write_client(folder: Path, pair: Pair) -> dict[str, str]:
    certificate, key = folder / "client.crt", folder / "client.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return {"client-certificate": str(certificate), "client-key": str(key)}


PLUGIN = """#!{python}
import json, pathlib
count = pathlib.Path({counted!r})
run = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(run))
tokens = {tokens!r}
status = {{"token": tokens[min(run, len(tokens)) - 1]}}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}}))
"""


def write_plugin(folder: Path, tokens: list[str]) -> dict[str, Any]:
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN.format(python=sys.executable, counted=str(folder / "runs"), tokens=tokens))
    plugin.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}}


def test_a_token_that_runs_out_is_renewed_by_the_exec_plugin_and_the_socket_goes_on(
    open_window: Callable[..., Window], stand_in: Callable[..., StandIn], tmp_path: Path
) -> None:
    tokens = [build_jwt("anna", in_seconds(20)), build_jwt("anna", in_seconds(3600))]
    gateway = stand_in(users=dict.fromkeys(tokens, "anna"))
    kubeconfig = write_kubeconfig(tmp_path, write_plugin(tmp_path, tokens))
    window = open_window()

    window.attaches(f"{AGENTTERMINAL} attach {NAME} --gateway {gateway.url} --kubeconfig {kubeconfig}", PROMPT)
    assert gateway.read_line() == "hold"
    assert gateway.read_line() == "Renewed", window.output
    assert (tmp_path / "runs").read_text() == "2"
    window.runs("echo $((2 + 3)) goes on")
    window.sees("5 goes on")
    window.types(b"\x10\x11")
    window.ended(0)

    assert "Reconnect" not in window.output.decode()
    assert not [token for token in tokens if token in window.output.decode()]


def test_a_token_that_is_refused_is_read_again_once_and_no_token_shows_anywhere(
    open_window: Callable[..., Window], stand_in: Callable[..., StandIn], tmp_path: Path
) -> None:
    gateway = stand_in()
    kubeconfig = write_kubeconfig(tmp_path, write_plugin(tmp_path, ["stale-token-7f3a", ANNA]))
    window = open_window()

    window.attaches(f"{AGENTTERMINAL} attach {NAME} --gateway {gateway.url} --kubeconfig {kubeconfig}", PROMPT)
    client = find_client(window)
    spoken = Path(f"/proc/{client}/cmdline").read_bytes() + Path(f"/proc/{client}/environ").read_bytes()
    window.types(b"\x10\x11")
    window.ended(0)

    for token in (b"stale-token-7f3a", ANNA.encode()):
        assert token not in spoken + window.output


@pytest.mark.parametrize(
    ("options", "sentence", "code"),
    [
        # This kubeconfig's API server answers nobody, so the labels cannot be asked for.
        ("", "No answer from the Kubernetes API at 127.0.0.1:1 to list services", 255),
        ("--gateway-plain", "Without TLS nothing proves that a Service is the gateway", 255),
        ("--gateway http://gw.example.com", "must be an https address", 2),
        ("--gateway https://user:pw@gw.example.com", "must be an https address", 2),
        ("--gateway-service infra/GW", "must be a Service as NAMESPACE/NAME", 2),
        ("--detach-keys hyper-x", "separated by commas, each a letter, a digit, or ctrl-", 2),
        ("--as-service-account robot", "must be a service account as NAMESPACE/NAME", 2),
        ("--view --takeover", "give one of the two", 2),
        ("--gateway http://127.0.0.1:1", "The gateway at 127.0.0.1:1 cannot be reached: Connection refused.", 255),
        ("--gateway https://127.0.0.1:1 --gateway-ca /no/file", "/no/file cannot be read: No such file", 255),
    ],
)
def test_what_cannot_work_is_told_in_a_sentence(anna: Path, options: str, sentence: str, code: int) -> None:
    ended = subprocess.run(
        [AGENTTERMINAL, "attach", NAME, "--kubeconfig", str(anna), *options.split()],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert ended.returncode == code, ended.stderr
    assert sentence in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


def test_https_to_a_gateway_that_speaks_plain_http_is_told_with_the_way_out(
    anna: Path, stand_in: Callable[..., StandIn]
) -> None:
    https = stand_in().url.replace("http:", "https:")

    ended = subprocess.run(
        [AGENTTERMINAL, "attach", NAME, "--kubeconfig", str(anna), "--gateway", https],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )

    assert ended.returncode == 255
    assert ended.stderr.endswith("a gateway that speaks plain HTTP is reached by http, only on this machine.\n")

"""
A stage for crashes and outages: an operator between two gates, one to each side, that is killed and started again.

Each object of a test has a sprite and a name of its own, so that one operator may serve many tests.
"""

import json
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from tests.cluster.gate import Gate, Match, Request
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import OperatorProcess, World
from tests.support.process import await_true
from tests.support.secrecy import Kind, secret

SECRET: Final = secret(Kind.ENVIRONMENT)  # What must not stay in a sprite.
LINGER_SECONDS: Final = 40.0
"""A command without terminal outlives its client by 10 s; the rest is for a busy machine."""

LAUNCH: Final[Mapping[str, Any]] = {
    "command": ["sh", "-c", 'echo "$$" >> "$HOME/runs"; trap "" TERM; while :; do sleep 1; done'],
    "env": [{"name": "PLANTED", "value": SECRET}],
}
"""A command that leaves a line for each time that it ran, and does not end by itself."""

NUMBERS: Final = count(1)


class Stage:
    """Everything that a test of a crash or an outage needs; all calls block."""

    def __init__(self, cluster: Cluster, namespace: str, lab: EmulatorProcess, folder: Path) -> None:
        self.cluster = cluster
        self.lab = lab
        self.kube = Gate(cluster.url, cluster.ca_file)
        self.sprites = Gate(lab.url)
        self.world = World(cluster, namespace, lab)
        self._folder = folder
        self._ended: list[str] = []

    def open(self) -> None:
        """Open the gates."""
        self.kube.__enter__()
        self.sprites.__enter__()
        self.world.kubeconfig = write_kubeconfig(self._folder / "through-the-gate", self.kube.url, self.cluster)
        self.world.sprites_url = self.sprites.url

    def close(self) -> None:
        """End the operator and close the gates."""
        self.world.__exit__()
        self.sprites.__exit__()
        self.kube.__exit__()

    @property
    def operator(self) -> OperatorProcess:
        """The one that runs."""
        assert self.world.operator is not None
        return self.world.operator

    def start(self, **settings: str) -> None:
        """Start the operator unless it runs."""
        if self.world.operator is None:
            self.world.start_operator(**settings)

    def crash(self) -> None:
        """Kill the operator with SIGKILL, and start none."""
        self.operator.kill()
        self.world.operator = None

    def prepare(self) -> str:
        """Make a sprite that runs, and give its name, which the object of the test bears too."""
        name = f"box-{next(NUMBERS)}"
        self.lab.create_sprites(name)
        self.lab.set_state(name, "running")
        return name

    def create(self, name: str, **spec: Any) -> None:
        """Create the object of a sprite of the same name."""
        self.world.create(name, spriteName=name, **spec)

    def count_runs(self, name: str) -> int:
        """Count how often the declared command ran in a sprite."""
        runs = Path(self.lab.sprite(name)["home"]) / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def expect_one_run(self, name: str) -> None:
        """Wait for the command, which writes its line a moment after its session is seen, and hold that it ran once."""
        await_true(lambda: self.count_runs(name) > 0, "the command to run")
        assert self.count_runs(name) == 1

    def list_terminals(self, name: str) -> list[str]:
        """The ids of the sessions with a terminal that live in a sprite."""
        return [session["id"] for session in self.world.live(name) if session["tty"]]

    def list_kills(self, name: str) -> list[Any]:
        """The kills that reached a session of a sprite."""
        return [entry for entry in self.lab.requests(route="exec.kill", sprite=name) if entry["status"] == 200]

    def expect_empty(self, name: str) -> None:
        """See that no terminal lives in a sprite; `await_all_empty` sees the rest, once for all of them."""
        assert self.list_terminals(name) == []
        self._ended.append(name)

    def await_all_empty(self) -> None:
        """Wait until nothing runs in the sprites whose lives have ended, and see that no secret is left there."""
        for name in self._ended:
            await_true(lambda name=name: self.lab.processes(name) == [], f"{name} to be empty", LINGER_SECONDS)  # type: ignore[misc]  # a bound default
            home = Path(self.lab.sprite(name)["home"])
            look = 'ls -A /dev/shm /tmp > "$HOME/left"; grep -rl "$0" /dev/shm /tmp >> "$HOME/left"; : > "$HOME/looked"'
            self.lab.start_session(name, "sh", "-c", look, SECRET)
            await_true((home / "looked").exists, f"the look into {name}")
            left = [line for line in (home / "left").read_text().splitlines() if line and not line.endswith(":")]
            assert all(line.endswith(".ran") for line in left), (name, left)


def write_kubeconfig(path: Path, server: str, cluster: Cluster) -> Path:
    """Write a kubeconfig of the administrator for another address of the API server."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "gate",
                "contexts": [{"name": "gate", "context": {"cluster": "gate", "user": "admin"}}],
                "clusters": [{"name": "gate", "cluster": {"server": server}}],
                "users": [{"name": "admin", "user": {"token": cluster.admin_token}}],
            }
        )
    )
    return path


# --- which request ----------------------------------------------------------------------------------------------------


def is_finalizer_write(request: Request) -> bool:
    return request.method == "PATCH" and "/agentterminals/" in request.target and "/status" not in request.target


def is_status_write(request: Request) -> bool:
    return request.method == "PATCH" and "/status?" in request.target and "/agentterminals/" in request.target


def is_write(request: Request) -> bool:
    """Any write to the API server."""
    return request.method not in ("GET", "HEAD") and "/apis/" in request.target


def is_watch(request: Request) -> bool:
    return "watch=true" in request.target


def is_upload(request: Request) -> bool:
    """The command that stores a launch script."""
    return _is_exec(request) and "stdin=true" in request.target and "umask" in request.target


def is_command(request: Request) -> bool:
    """Any command without a terminal."""
    return _is_exec(request) and "stdin=true" in request.target and "tty=true" not in request.target


def is_create(request: Request) -> bool:
    """The create of a session with a terminal."""
    return _is_exec(request) and "tty=true" in request.target


def is_session_list(request: Request) -> bool:
    return _is_exec(request) and not urlsplit(request.target).query


def is_kill(request: Request) -> bool:
    return request.method == "POST" and urlsplit(request.target).path.endswith("/kill")


def of(name: str, match: Match) -> Match:
    """Narrow down to the requests about one object or one sprite of that name."""

    def is_of(request: Request) -> bool:
        return match(request) and name in urlsplit(request.target).path.split("/")

    return is_of


def _is_exec(request: Request) -> bool:
    return request.method == "GET" and urlsplit(request.target).path.endswith("/exec")


def read_words(request: Request) -> list[str]:
    """The argv in the address of an exec."""
    return [value for name, value in parse_qsl(urlsplit(request.target).query) if name == "cmd"]


def measure(begun: float) -> float:
    """Seconds since a moment of the monotonic clock."""
    return time.monotonic() - begun

"""
The operator for tests: as a process of its own, watching one namespace, against a real API server and an emulator.

`World` joins the three for one test and speaks in the test's words: apply, patch, wait for a condition, list sessions.
"""

import contextlib
import http.client
import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.cluster.plane import Cluster
from tests.support.emulator import Lab, LabRefused
from tests.support.process import POLL_SECONDS, CommandProcess, await_true
from tests.support.secrecy import Kind, learn, look

GROUP_PATH = "/apis/agentterminal.dev/v1alpha1"


class OperatorProcess(CommandProcess):
    """A running `agentterminal operator`."""

    def __init__(self, kubeconfig: Path, sprites_url: str, namespace: str, **settings: str) -> None:
        """
        Start it and wait until it has seen every object.

        Args:
            kubeconfig: How it logs in.
            sprites_url: Where the Sprites API is.
            namespace: The one that it watches.
            settings: More of its environment, without the prefix: `RESYNC_SECONDS="1"`.
        """
        own = {
            "SPRITES_URL": sprites_url,
            "NAMESPACES": namespace,
            "METRICS_ADDRESS": "127.0.0.1",
            "METRICS_PORT": "0",
            "LOG_FORMAT": "json",
            # Whatever it may say is looked through for secrets.
            "LOG_LEVEL": "debug",
            "DEBUG": "1",
            # Tests kill it and start the next at once, which a Lease would make wait.
            "ELECTION": "0",
        }
        super().__init__("operator", kubeconfig, {**own, **settings})

    def read(self, page: str) -> str:
        """Read one of its pages: metrics, healthz, readyz."""
        port = next(line["port"] for line in self.lines if "port" in line)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=30) as answer:
            text: str = answer.read().decode()
        look(f"The page {page} of the operator", text)
        return text

    def is_ready(self) -> bool:
        """Tell whether it has seen every object."""
        return "Every object was seen." in self.told()

    def kill(self) -> None:
        """Kill it with SIGKILL: nothing is put away, but for its log. Killing it twice is fine."""
        super().kill()
        self.forget()

    def stop(self) -> int:
        """End it in good order, forget its log, and return its exit code."""
        code = super().stop()
        self.forget()
        return code


class World:
    """One namespace, one emulator, one operator at a time."""

    def __init__(self, cluster: Cluster, namespace: str, lab: Lab) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.lab = lab
        self.operator: OperatorProcess | None = None
        self.kubeconfig = cluster.kubeconfig
        """How the operator logs in; a test may put a gate between."""
        self.sprites_url = lab.url
        """Where the operator finds the Sprites API; likewise."""
        self.poll_seconds = POLL_SECONDS
        """How often is looked while something is awaited; where many wait at once, each looks less often."""
        self.path = f"{GROUP_PATH}/namespaces/{namespace}/agentterminals"
        self.put_secret("sprites", token=lab.token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.operator is not None:
            self.look_at_metrics(self.operator)
            self.operator.kill()
        # The emulator may be down by now, as a test wanted it.
        with contextlib.suppress(OSError, LabRefused, http.client.HTTPException):
            look("An address of a call to the Sprites API", json.dumps(self.lab.requests(door="api")))

    def look_at_metrics(self, operator: OperatorProcess) -> None:
        """Read the metrics once more, if there is somebody to be asked."""
        if operator.process.poll() is None:
            with contextlib.suppress(OSError, StopIteration):
                operator.read("metrics")

    def start_operator(self, **settings: str) -> OperatorProcess:
        """Start the operator, in the place of the one that was there, which is killed."""
        if self.operator is not None:
            self.operator.kill()
        self.operator = OperatorProcess(self.kubeconfig, self.sprites_url, self.namespace, **settings)
        return self.operator

    # objects

    def put_secret(self, name: str, **values: str) -> None:
        """Create a Secret, or replace its values at once, which nobody may show from now on."""
        for value in values.values():
            learn(Kind.SECRET_VALUE, value)
        body = {"metadata": {"name": name}, "stringData": values}
        path = f"/api/v1/namespaces/{self.namespace}/secrets"
        status, _ = self.cluster.request("POST", path, body=body)
        if status == 409:
            # Never deleted in between: whoever looked then would look again after a minute.
            status, _ = self.cluster.request("PUT", f"{path}/{name}", body=body)
        assert status in (200, 201)

    def create(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a terminal; without other words it is in sprite `box`, with the Secret `sprites`."""
        full = {"spriteName": "box", "tokenSecretRef": {"name": "sprites"}, **spec}
        body = {
            "apiVersion": "agentterminal.dev/v1alpha1",
            "kind": "AgentTerminal",
            "metadata": {"name": name},
            "spec": {key: value for key, value in full.items() if value is not None},
        }
        status, answer = self.cluster.request("POST", self.path, body=body)
        assert status == 201, answer
        created: dict[str, Any] = answer
        return created

    def patch(self, name: str, **spec: Any) -> dict[str, Any]:
        """Merge into the spec of a terminal."""
        status, answer = self.cluster.request(
            "PATCH", f"{self.path}/{name}", body={"spec": spec}, content_type="application/merge-patch+json"
        )
        assert status == 200, answer
        patched: dict[str, Any] = answer
        return patched

    def delete(self, name: str) -> None:
        """Ask for the deletion of a terminal."""
        status, answer = self.cluster.request("DELETE", f"{self.path}/{name}")
        assert status in (200, 202), answer

    def get(self, name: str) -> dict[str, Any] | None:
        """Read a terminal; None where there is none."""
        status, answer = self.cluster.request("GET", f"{self.path}/{name}")
        return answer if status == 200 else None

    def status(self, name: str) -> dict[str, Any]:
        """Read the status of a terminal that is there."""
        terminal = self.get(name)
        assert terminal is not None
        status: dict[str, Any] = terminal["status"]
        return status

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Read one condition of a terminal that is there."""
        found: dict[str, Any] = read_condition(self.status(name), kind)
        return found

    def events(self, name: str) -> list[dict[str, Any]]:
        """Read the events about a terminal."""
        _, answer = self.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [event for event in answer["items"] if event["regarding"]["name"] == name]

    # waiting

    def await_reason(self, name: str, reason: str, kind: str = "Reconciling", within: float = 40) -> dict[str, Any]:
        """Wait until a condition of a terminal has a reason for the present generation; return that status."""
        seen: dict[str, Any] = {}

        def is_there() -> bool:
            terminal = self.get(name)
            if terminal is None:
                return False
            condition = read_condition(terminal["status"], kind)
            current = condition.get("observedGeneration") == terminal["metadata"]["generation"]
            seen.update(status=terminal["status"])
            return bool(current and condition["reason"] == reason)

        def tell() -> str:
            return json.dumps(self.get(name))

        await_true(is_there, f"{kind} of {name} to be {reason}", within, tell, poll_seconds=self.poll_seconds)
        # Not as it is by now: it may have gone on.
        status: dict[str, Any] = seen["status"]
        return status

    def await_gone(self, name: str, within: float = 40) -> None:
        """Wait until a terminal is gone, as the API server says it; that it fails says nothing."""

        def tell() -> str:
            return json.dumps(self.get(name))

        def is_gone() -> bool:
            return self.cluster.request("GET", f"{self.path}/{name}")[0] == 404

        await_true(is_gone, f"{name} to be gone", within, tell, poll_seconds=self.poll_seconds)

    def live(self, sprite: str = "box") -> list[dict[str, Any]]:
        """The sessions that live, as the lab knows them; this wakes nobody."""
        return self.lab.sessions(sprite)


def read_condition(status: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Find one condition in a status."""
    found: dict[str, Any] = next(entry for entry in status["conditions"] if entry["type"] == kind)
    return found

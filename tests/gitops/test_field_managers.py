"""
Who owns which field: Git, the gateway and the operator never touch what is another's.

Real kubectl plays Git; the gateway's writes are those that its plan builds, under its field manager; the operator is
the real one. Each test has a terminal with somebody attached.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from itertools import combinations, count
from pathlib import Path
from typing import Any, Final

import pytest

from controller.api.names import FIELD_MANAGER, GATEWAY_FIELD_MANAGER
from controller.lab.control_plane import Completed
from controller.plan.fence_objects import GatewayEntry, Lock, ObjectView, view_object
from controller.plan.fence_patches import (
    JsonPatch,
    build_claim,
    build_entry,
    build_lock,
    build_withdrawal,
    name_lease,
)
from tests.gitops.lives import LAUNCH
from tests.support.operator import World, read_condition
from tests.support.process import await_true

FLUX: Final = "kustomize-controller"
SPRITE: Final = "managers"
NUMBERS: Final = count(1)
STAYS: Final = "activeSocketId may change but not go away"

Paths = frozenset[tuple[str, ...]]


INCARNATION: Final = "gateway-1"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
"""Where an operator looks for those of the gateways, if nobody tells it another place."""
BEAT_SECONDS: Final = 1.0


class Terminal:
    """One terminal, and what its three writers do to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.name = f"managed-{next(NUMBERS)}"
        self.socket = f"{self.name}-socket"

    def declare(self, **spec: Any) -> str:
        """Write a manifest as Git has it: all but the gateway's fields, unless a test adds them."""
        full = {
            "spriteName": SPRITE,
            "launch": dict(LAUNCH),
            "holdWanted": False,
            "hold": {"mode": "WhileActive", "expireSeconds": 300},
            "idleTimeoutSeconds": 1800,
            "idlePolicy": "Detached",
            "relaunch": "Never",
            "deletionPolicy": "Terminate",
            "suspend": False,
            "tokenSecretRef": {"name": "sprites"},
            **spec,
        }
        metadata = {"name": self.name, "namespace": self.world.namespace, "labels": {"team": "a"}}
        return json.dumps(
            {"apiVersion": "agentterminal.dev/v1alpha1", "kind": "AgentTerminal", "metadata": metadata, "spec": full}
        )

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> Completed:
        return self.world.cluster.kubectl(*words, f"--namespace={self.world.namespace}", stdin=stdin, check=check)

    def apply(self, manifest: str, *words: str, check: bool = True) -> Completed:
        """Apply as Flux does."""
        return self.kubectl(
            "apply", "--server-side", f"--field-manager={FLUX}", *words, "--filename=-", stdin=manifest, check=check
        )

    def read(self) -> dict[str, Any]:
        terminal = self.world.get(self.name)
        assert terminal is not None
        return terminal

    def view(self) -> ObjectView:
        return view_object(self.read())

    def write_as_gateway(self, operations: JsonPatch, subresource: str = "") -> None:
        """Send a patch of the gateway's plan under the gateway's name."""
        path = f"{self.world.path}/{self.name}{subresource}?fieldManager={GATEWAY_FIELD_MANAGER}"
        status, answer = self.world.cluster.request(
            "PATCH", path, body=operations, content_type="application/json-patch+json"
        )
        assert status == 200, answer

    def attach(self) -> None:
        """Claim, lock and tell of presence, as a gateway does for somebody who comes."""
        self.write_as_gateway(build_claim(self.view(), self.socket))
        view = self.view()
        lock = Lock(uid=view.uid, epoch=view.generation, socket_id=self.socket, incarnation=INCARNATION, since=None)
        self.write_as_gateway(build_lock(view, lock), "/status")
        self.write_as_gateway(
            build_entry(self.view(), GatewayEntry(incarnation=INCARNATION, viewers=1, activity_time=None)), "/status"
        )
        self.world.await_reason(self.name, "Running")

    def expect_nobody_thrown_out(self) -> None:
        """Socket, lock and presence stand, the operator says so, and the session is the one that was there."""
        terminal = self.read()
        assert terminal["spec"]["attached"] is True
        assert terminal["spec"]["activeSocketId"] == self.socket
        assert terminal["status"]["socket"]["socketId"] == self.socket
        assert [entry["viewers"] for entry in terminal["status"]["gateways"]] == [1]
        assert read_condition(terminal["status"], "Attached")["status"] == "True"

    def read_shares(self) -> dict[str, Paths]:
        """Who owns which leaves: spec, metadata and status together, by manager."""
        shares: dict[str, set[tuple[str, ...]]] = {}
        for entry in self.read()["metadata"]["managedFields"]:
            shares.setdefault(entry["manager"], set()).update(find_leaves(entry["fieldsV1"]))
        return {manager: frozenset(paths) for manager, paths in shares.items()}


def find_leaves(fields: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Walk down to what holds a value; a dot only says that the parent exists."""
    for key, below in fields.items():
        if key == ".":
            continue
        if below and set(below) != {"."}:
            yield from find_leaves(below, (*above, key))
        else:
            yield (*above, key)


@pytest.fixture(scope="module", autouse=True)
def heartbeat(stand: World) -> Iterator[None]:
    """Renew the Lease of the gateway that is played here: what a dead one left, the operator clears away."""
    ended = threading.Event()
    name = name_lease(INCARNATION)

    def write(beat: int) -> None:
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": INCARNATION, "leaseTransitions": beat}}
        if beat == 0:
            stand.cluster.request("POST", LEASES, body=lease)
        else:
            stand.cluster.request("PATCH", f"{LEASES}/{name}", body=lease, content_type="application/merge-patch+json")

    def beat() -> None:
        for number in count(1):
            if ended.wait(BEAT_SECONDS):
                return
            write(number)

    write(0)
    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()
    stand.cluster.request("DELETE", f"{LEASES}/{name}")


@pytest.fixture
def terminal(stand: World) -> Terminal:
    """One that is not there yet; its sprite runs."""
    if SPRITE not in {sprite["name"] for sprite in stand.lab.call("GET", "/v1/sprites")["sprites"]}:
        stand.lab.create_sprites(SPRITE)
    stand.lab.set_state(SPRITE, "running")
    return Terminal(stand)


def test_the_shares_of_git_the_gateway_and_the_operator_are_disjoint(terminal: Terminal) -> None:
    terminal.apply(terminal.declare())
    terminal.world.await_reason(terminal.name, "Detached")
    terminal.attach()

    shares = terminal.read_shares()

    assert shares.keys() == {FLUX, GATEWAY_FIELD_MANAGER, FIELD_MANAGER}
    for one, another in combinations(shares.values(), 2):
        assert not one & another
    spec = {manager: {path[1] for path in paths if path[0] == "f:spec"} for manager, paths in shares.items()}
    assert spec[GATEWAY_FIELD_MANAGER] == {"f:attached", "f:activeSocketId"}
    assert spec[FIELD_MANAGER] == set()
    status = {manager: {path[1] for path in paths if path[0] == "f:status"} for manager, paths in shares.items()}
    assert status[GATEWAY_FIELD_MANAGER] == {"f:socket", "f:gateways"}
    assert status[FLUX] == set()
    assert not status[FIELD_MANAGER] & status[GATEWAY_FIELD_MANAGER]


def test_a_server_side_apply_of_all_but_the_gateways_fields_never_conflicts_and_throws_nobody_out(
    terminal: Terminal,
) -> None:
    terminal.apply(terminal.declare())
    terminal.world.await_reason(terminal.name, "Detached")
    terminal.attach()
    session = terminal.read()["status"]["session"]["id"]

    for change in ({}, {"idleTimeoutSeconds": 3600}, {"holdWanted": True}, {"hold": {"mode": "Always"}}, {}):
        terminal.apply(terminal.declare(**change))
        terminal.world.await_reason(terminal.name, "Held" if change.get("holdWanted") else "Running")
        terminal.expect_nobody_thrown_out()

    assert terminal.read()["status"]["session"]["id"] == session
    terminal.write_as_gateway(build_withdrawal(terminal.view().uid, terminal.socket))
    terminal.apply(terminal.declare())
    terminal.world.await_reason(terminal.name, "Revoked", "Fenced")
    assert terminal.read()["spec"]["activeSocketId"] == ""


def test_a_client_side_apply_of_all_but_the_gateways_fields_throws_nobody_out(terminal: Terminal) -> None:
    terminal.kubectl("apply", "--filename=-", stdin=terminal.declare())
    terminal.world.await_reason(terminal.name, "Detached")
    terminal.attach()

    for change in ({"idleTimeoutSeconds": 3600}, {"relaunch": "OnLost"}, {}):
        terminal.kubectl("apply", "--filename=-", stdin=terminal.declare(**change))
        terminal.world.await_reason(terminal.name, "Running")
        terminal.expect_nobody_thrown_out()


# --- where Git does list the gateway's fields -------------------------------------------------------------------------


def test_git_that_lists_the_gateways_fields_conflicts_and_by_force_throws_people_out(terminal: Terminal) -> None:
    manifest = terminal.declare(attached=False, activeSocketId="")
    terminal.apply(manifest)
    terminal.world.await_reason(terminal.name, "Detached")
    terminal.attach()

    refused = terminal.apply(manifest, check=False)

    assert refused.code != 0
    assert f'conflicts with "{GATEWAY_FIELD_MANAGER}"' in refused.stderr
    assert ".spec.activeSocketId" in refused.stderr
    terminal.expect_nobody_thrown_out()

    terminal.apply(manifest, "--force-conflicts")

    terminal.world.await_reason(terminal.name, "Revoked", "Fenced")
    assert terminal.read()["spec"]["activeSocketId"] == ""


def test_git_that_took_the_socket_by_force_cannot_drop_it_until_somebody_else_has_written_it(
    terminal: Terminal,
) -> None:
    """The way out of docs/gitops.md: change the field once by another hand, and nobody removes it any more."""
    terminal.apply(terminal.declare(activeSocketId="", attached=False))
    terminal.world.await_reason(terminal.name, "Detached")

    refused = terminal.apply(terminal.declare(), check=False)
    assert refused.code != 0
    assert STAYS in refused.stderr

    for socket in ("handed-over", ""):
        terminal.kubectl(
            "patch",
            "aterm",
            terminal.name,
            "--type=merge",
            f"--field-manager={GATEWAY_FIELD_MANAGER}",
            f"--patch={json.dumps({'spec': {'activeSocketId': socket}})}",
        )
    terminal.apply(terminal.declare())
    terminal.attach()
    terminal.apply(terminal.declare())
    terminal.expect_nobody_thrown_out()


def test_a_client_side_apply_that_listed_the_socket_drops_it_once_its_memory_is_set_right(terminal: Terminal) -> None:
    terminal.kubectl("apply", "--filename=-", stdin=terminal.declare(activeSocketId="", attached=False))
    terminal.world.await_reason(terminal.name, "Detached")
    terminal.attach()

    refused = terminal.kubectl("apply", "--filename=-", stdin=terminal.declare(), check=False)
    assert refused.code != 0
    assert STAYS in refused.stderr
    terminal.expect_nobody_thrown_out()

    terminal.kubectl("apply", "set-last-applied", "--filename=-", stdin=terminal.declare())
    terminal.kubectl("apply", "--filename=-", stdin=terminal.declare())
    terminal.expect_nobody_thrown_out()


def test_a_replace_is_refused_after_a_claim_or_revokes_it(terminal: Terminal) -> None:
    terminal.apply(terminal.declare())
    terminal.world.await_reason(terminal.name, "Detached")
    terminal.attach()

    refused = terminal.kubectl("replace", "--filename=-", stdin=terminal.declare(), check=False)
    assert refused.code != 0
    assert STAYS in refused.stderr
    terminal.expect_nobody_thrown_out()

    terminal.kubectl("replace", "--filename=-", stdin=terminal.declare(activeSocketId=""))
    terminal.world.await_reason(terminal.name, "Revoked", "Fenced")


# --- a person's hand, and Flux ----------------------------------------------------------------------------------------


def test_flux_rolls_back_a_plain_edit_and_leaves_one_under_another_name(terminal: Terminal) -> None:
    """
    Flux takes over what the managers called kubectl* own, and then removes what Git does not list.

    Source: Flux, FAQ, "Why are kubectl edits rolled back by Flux?" (read 2026-11). Played by hand: the names of the
    managers are changed as Flux changes them.
    """
    terminal.apply(terminal.declare())
    terminal.world.await_reason(terminal.name, "Detached")
    patch = f"--patch={json.dumps({'spec': {'terminated': True}})}"
    terminal.kubectl("patch", "aterm", terminal.name, "--type=merge", "--field-manager=agentterminal-person", patch)
    take_over(terminal)
    terminal.apply(terminal.declare())
    assert terminal.read()["spec"]["terminated"] is True

    another = Terminal(terminal.world)
    another.apply(another.declare())
    another.kubectl("patch", "aterm", another.name, "--type=merge", patch)
    take_over(another)
    refused = another.apply(another.declare(), check=False)
    assert refused.code != 0
    assert "terminated is one way" in refused.stderr


def take_over(terminal: Terminal) -> None:
    """Put what kubectl* owns into Flux's share."""
    entries = terminal.read()["metadata"]["managedFields"]
    (flux,) = [entry for entry in entries if entry["manager"] == FLUX]
    kept = []
    for entry in entries:
        if entry["manager"].startswith("kubectl"):
            flux["fieldsV1"]["f:spec"].update(entry["fieldsV1"]["f:spec"])
        else:
            kept.append(entry)
    operations = [{"op": "replace", "path": "/metadata/managedFields", "value": kept}]
    status, answer = terminal.world.cluster.request(
        "PATCH",
        f"{terminal.world.path}/{terminal.name}",
        body=operations,
        content_type="application/json-patch+json",
    )
    assert status == 200, answer


# --- the commands of the page -----------------------------------------------------------------------------------------

PAGE: Final = Path(__file__).parents[2] / "docs" / "gitops.md"
KUBECTL: Final = Path(sys.executable).with_name("kubectl")
BLOCKS: Final = dict(
    re.findall(r"^<!-- run: (.+?) -->\n```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
)


def run_block(terminal: Terminal, how: str, folder: Path) -> str:
    """Run the commands of a block as its reader would, on this terminal."""
    manifest = folder / f"{terminal.name}.yaml"
    manifest.write_text(terminal.declare())
    block = BLOCKS[how].replace("review-bot", terminal.name).replace("kubectl ", "kubectl --namespace $TEAM ")
    ended = subprocess.run(
        ["sh", "-ec", block],
        env={
            **os.environ,
            "KUBECONFIG": str(terminal.world.cluster.kubeconfig),
            "PATH": f"{KUBECTL.parent}:{os.environ['PATH']}",
            "TEAM": terminal.world.namespace,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_ways_out_of_the_page_work_and_a_look_is_answered(terminal: Terminal, tmp_path: Path) -> None:
    by_client = Terminal(terminal.world)
    terminal.apply(terminal.declare(activeSocketId="", attached=False))
    by_client.kubectl("apply", "--filename=-", stdin=by_client.declare(activeSocketId="", attached=False))
    assert STAYS in terminal.apply(terminal.declare(), check=False).stderr
    assert STAYS in by_client.kubectl("apply", "--filename=-", stdin=by_client.declare(), check=False).stderr

    run_block(terminal, "a server-side apply that has listed the socket", tmp_path)
    run_block(by_client, "a client-side apply that has listed the socket", tmp_path)
    run_block(by_client, "a look", tmp_path)

    assert terminal.read()["spec"]["activeSocketId"] == by_client.read()["spec"]["activeSocketId"] == ""
    asked = by_client.read()["metadata"]["annotations"]["reconcile.agentterminal.dev/requestedAt"]
    await_true(lambda: by_client.read()["status"].get("lastHandledReconcileAt") == asked, "the look to be answered")
    assert len(BLOCKS) == 3

"""
What the tests of errors share: many rows of many tables, side by side in one running world.

Most of what these tests do is to wait, each for an operator of its own to start, to meet a failure and to come again.
So each row is played in a thread, in a corner of one world: with a token, a sprite and objects of its own, and with
faults that only its token meets. What a play asserts is told by the test of its row.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from itertools import count
from typing import Any, Final

from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess, Lab
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import build_sprites_token

Fault = dict[str, Any]

STUBBORN: Final = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
LAUNCH: Final[Mapping[str, Any]] = {"command": ["sleep", "600"]}
MANY: Final = 100_000
NUMBERS: Final = count(1)
POLL_SECONDS: Final = 0.25
"""Dozens wait at once, on a machine that has two cores for them and for what they wait for."""
PLAY_SECONDS: Final = 240.0
"""Less than the bound of a test, which is longer than elsewhere: dozens of plays share the machine with other tests."""
WAIT_SECONDS: Final = 90.0
"""
For one change, among dozens. The queue comes again after 1, 2, 4 … s, so that whoever failed for half a minute on a
machine that stood still waits for half a minute more.
"""


# --- a corner ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Corner:
    """A token, a sprite and objects of its own, in a world that others share."""

    name: str
    """Of the organization, the sprite and the Secret; objects end with it."""
    world: World
    lab: Lab
    """With the token of this corner."""

    def label(self, name: str) -> str:
        """Name an object of this corner."""
        return f"{name}-{self.name}"

    def create(self, name: str, **spec: Any) -> None:
        """Create a terminal in this corner."""
        full = {"spriteName": self.name, "tokenSecretRef": {"name": self.name}, **spec}
        self.world.create(self.label(name), **full)

    def adopt(self, name: str, **spec: Any) -> dict[str, Any]:
        """Adopt a fresh session, and return it."""
        session = self.start_session()
        self.create(name, sessionId=session["id"], **spec)
        self.await_reason(name, "Detached")
        return session

    def start_session(self) -> dict[str, Any]:
        """Start a session that nobody has adopted."""
        session: dict[str, Any] = self.lab.start_session(self.name, *STUBBORN)
        return session

    def await_reason(self, name: str, reason: str, kind: str = "Reconciling") -> dict[str, Any]:
        """Wait until a condition has a reason for the present generation; return the status."""
        return self.world.await_reason(self.label(name), reason, kind, WAIT_SECONDS)

    def await_gone(self, name: str) -> None:
        """Wait until a terminal is gone."""
        self.world.await_gone(self.label(name), WAIT_SECONDS)

    def get(self, name: str) -> dict[str, Any]:
        """Read a terminal that is there."""
        terminal = self.world.get(self.label(name))
        assert terminal is not None
        return terminal

    def patch(self, name: str, **spec: Any) -> None:
        """Merge into the spec of a terminal."""
        self.world.patch(self.label(name), **spec)

    def nudge(self, name: str) -> None:
        """Ask for a look now; whoever is gone needs none."""
        path = f"{self.world.path}/{self.label(name)}"
        body = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": str(next(NUMBERS))}}}
        status, answer = self.world.cluster.request(
            "PATCH", path, body=body, content_type="application/merge-patch+json"
        )
        assert status in (200, 404), answer

    def delete(self, name: str) -> None:
        """Ask for the deletion of a terminal."""
        self.world.delete(self.label(name))

    def live(self) -> list[dict[str, Any]]:
        """The sessions that live."""
        return self.lab.sessions(self.name)

    def requests(self, **wanted: Any) -> list[Any]:
        """The requests about this corner's sprite."""
        return self.lab.requests(sprite=self.name, **wanted)

    def await_events(self, name: str, *expected: tuple[str, str]) -> None:
        """Wait until there are exactly these events about a terminal."""
        await_events(self.world, self.label(name), *expected)

    @contextmanager
    def failing(self, fault: Fault, *, times: int = MANY, route: str | None = None) -> Iterator[None]:
        """Let this corner's requests fail during the body, all or those of one route."""
        number = self.lab.arm_fault(fault, times=times, organization=self.name, route=route)["number"]
        try:
            yield
        finally:
            self.lab.call("DELETE", f"/_lab/faults/{number}")


# --- plays ------------------------------------------------------------------------------------------------------------


class Plays:
    """Plays that run side by side, by name; what one asserts is raised where its result is asked for."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._plays: dict[str, Future[None]] = {}

    def begin(self, name: str, play: Callable[[], None]) -> None:
        """Begin a play."""
        assert name not in self._plays
        self._plays[name] = self._pool.submit(play)

    def watch(self, name: str) -> None:
        """Wait for the end of a play, and raise what it has raised."""
        self._plays[name].result(PLAY_SECONDS)


@contextmanager
def playing(cluster: Cluster, plays: Mapping[str, Callable[[Corner], None]]) -> Iterator[Plays]:
    """
    Play every play in a corner of one world.

    Args:
        cluster: The API server.
        plays: Each play by its name.
    """
    names = {f"corner-{number}": play for number, play in enumerate(plays)}
    tokens = {corner: build_sprites_token(corner) for corner in names}
    options = [word for token in tokens.values() for word in ("--token", token)]
    with (
        EmulatorProcess(*options) as emulator,
        open_world(cluster, emulator, METADATA_SECONDS="1") as world,
        ThreadPoolExecutor(len(names)) as pool,
    ):
        world.poll_seconds = POLL_SECONDS
        running = Plays(pool)
        for corner, play in names.items():
            lab = Lab(emulator.url, tokens[corner])
            lab.create_sprite(corner)
            lab.set_state(corner, "running")
            world.put_secret(corner, token=lab.token)
            running.begin(play, partial(plays[play], Corner(corner, world, lab)))
        yield running
        pool.shutdown(wait=True, cancel_futures=True)
        assert_no_secret_was_told(world, *tokens.values())


@contextmanager
def open_world(cluster: Cluster, lab: EmulatorProcess, **settings: str) -> Iterator[World]:
    """Give a world in a namespace of its own, with an operator that runs."""
    namespace = f"test-errors-{os.getpid()}-{next(NUMBERS)}"
    status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
    assert status == 201
    try:
        with World(cluster, namespace, lab) as world:
            world.start_operator(**settings)
            yield world
    finally:
        cluster.empty_namespace(namespace)


# --- what is said -----------------------------------------------------------------------------------------------------


def assert_no_secret_was_told(world: World, *secrets: str) -> None:
    """Neither objects nor events nor the log show a token, and no bug was met."""
    assert world.operator is not None
    _, terminals = world.cluster.request("GET", world.path)
    _, events = world.cluster.request("GET", f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    log = world.operator.log_file.read_text()
    for secret in secrets:
        assert secret not in json.dumps([terminals, events]) + log
    assert "Traceback" not in log
    assert "nobody foresaw" not in log


def summarize(status: dict[str, Any], *kinds: str) -> dict[str, tuple[str, str]]:
    """Status and reason of some conditions."""
    conditions = {kind: read_condition(status, kind) for kind in kinds}
    return {kind: (condition["status"], condition["reason"]) for kind, condition in conditions.items()}


def assert_blind(status: dict[str, Any], reason: str) -> None:
    """Nothing is known, and it is tried again: the row "Sprites API down" of the table."""
    assert summarize(status, "Ready", "Reconciling", "Stalled") == {
        "Ready": ("Unknown", reason),
        "Reconciling": ("True", reason),
        "Stalled": ("False", reason),
    }


def assert_stalled(status: dict[str, Any], reason: str) -> None:
    """A person must act: the row of the table with phase Failed."""
    assert summarize(status, "Ready", "Reconciling", "Stalled") == {
        "Ready": ("False", reason),
        "Reconciling": ("False", reason),
        "Stalled": ("True", reason),
    }
    assert status["phase"] == "Failed"


def await_events(world: World, name: str, *expected: tuple[str, str]) -> None:
    """Wait until there are exactly these events about a terminal."""
    await_true(
        lambda: tell_events(world, name) == list(expected),
        f"events about {name}",
        WAIT_SECONDS,
        lambda: str(tell_events(world, name)),
        poll_seconds=world.poll_seconds,
    )


def tell_events(world: World, name: str) -> list[tuple[str, str]]:
    """Type and reason of the events about a terminal."""
    return [(event["type"], event["reason"]) for event in world.events(name)]


def delete_secret(world: World, name: str) -> None:
    """Delete a Secret."""
    status, _ = world.cluster.request("DELETE", f"/api/v1/namespaces/{world.namespace}/secrets/{name}")
    assert status == 200


def in_two_seconds() -> str:
    """A date as HTTP writes it; it has whole seconds, so this is one to two seconds from now."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)

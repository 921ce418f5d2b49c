"""
No answer of the platform, and no two of them together, make a death that did not happen, or lose what still lives.

All pairs of tests/cluster/matrix.py run side by side: real operator, real API server, real processes. What lives is
taken from the machine's process table.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from controller.api.names import FINALIZER
from controller.settings import environment
from tests.cluster.matrix import BLIND, LIVES, PAGE, PAIRS, REWRITE, Ending, Pair, Sight, read_ending, render_page
from tests.cluster.plane import Cluster
from tests.lab.watching import is_alive
from tests.support.commands import read_start
from tests.support.emulator import EmulatorProcess, Lab
from tests.support.operator import World, read_condition
from tests.support.process import await_true
from tests.support.secrecy import build_sprites_token

SLEEP: Final = ("sleep", "100000")
MANY: Final = 100_000
COLD_SECONDS: Final = 122.0
"""Cold proves an end 120 s after the session's creation."""
STALL_SECONDS: Final = 95.0
"""A token that was refused is tried again after 60 s; the rest is for a busy machine."""
SETTLED_SECONDS: Final = 300.0
KILL_LIMIT_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.5
"""Between two looks at all combinations, whose bound is `SETTLED_SECONDS`."""


@dataclass
class Played:
    """One pair on the stage."""

    pair: Pair
    session: str
    pid: int
    start: str
    list_fault: int | None = None
    acted: float | None = None
    """When the sprite was changed, in unix seconds."""
    innocent: int | None = None
    """The process that has the id now."""

    @property
    def lives(self) -> bool:
        """Tell by the process table whether its process lives."""
        return is_alive(self.pid) and read_start(self.pid) == self.start


@dataclass
class Matrix:
    """All pairs at once."""

    world: World
    played: dict[str, Played] = field(default_factory=dict)
    begun: float = 0
    asked: float = 0

    def set_up(self) -> None:
        """Have every session adopted."""
        lab = self.world.lab
        for organization in sorted({pair.organization for pair in PAIRS}):
            names = [pair.name for pair in PAIRS if pair.organization == organization]
            sessions = {"argv": SLEEP, "count": 1}
            lab.call("POST", "/_lab/sprites", {"names": names, "sessions": sessions}, organization=organization)
            # A list that shows nothing proves nothing: something known has to be left in it.
            lab.call("POST", "/_lab/sprites", {"names": [f"witness-{organization}"]}, organization=organization)
            self.world.put_secret(organization, token=name_token(organization))
        self.begun = time.monotonic()
        sprites = lab.call("GET", "/_lab/sprites")["sprites"]
        ids = {sprite["name"]: sprite["sessions"][0]["id"] for sprite in sprites if sprite["sessions"]}
        for pair in PAIRS:
            (process,) = lab.processes(pair.name)
            pid, session = process["host_pid"], ids[pair.name]
            self.played[pair.name] = Played(pair, session, pid, read_start(pid))
            token = {"name": pair.organization}
            self.world.create(pair.name, spriteName=pair.name, tokenSecretRef=token, sessionId=session)
        self.world.start_operator(METADATA_SECONDS="5")
        await_true(lambda: all(read_phase(item) == "Detached" for item in self.list_items()), "all adoptions", 120)

    def kill_all(self) -> None:
        """Arm the faults, and ask for every end; first for those that take longest."""
        for sight in sorted(Sight, key=lambda sight: sight is not Sight.MISSING):
            for played in self.played.values():
                if played.pair.sight is sight:
                    self._arm(played)
                    self.world.patch(played.pair.name, terminated=True)
            self.change_sprites()
        self.asked = time.monotonic()

    def _arm(self, played: Played) -> None:
        lab, pair = self.world.lab, played.pair
        lab.arm_fault(pair.build_fault(), route="exec.kill", sprite=pair.name, times=MANY)
        if pair.sight in BLIND:
            # The identity is read once, and the kill sent.
            fault = {"kind": "status", "status": 502}
            armed = lab.arm_fault(fault, route="exec.list", sprite=pair.name, skip=1, times=MANY)
            played.list_fault = armed["number"]

    @property
    def is_settled(self) -> bool:
        """Tell whether everything that takes its time has happened."""
        now = time.monotonic()
        if now - self.begun < COLD_SECONDS or now - self.asked < STALL_SECONDS:
            return False
        return not any(pair.sight is Sight.MISSING for pair, _ in self.find_unproven())

    def change_sprites(self) -> None:
        """Change the sprite of each pair whose first kill was answered, or is waited for in vain."""
        killed: dict[str, Any] = {}
        for call in self.world.lab.requests(route="exec.kill"):
            killed.setdefault(call["sprite"], call)
        for played in self.played.values():
            call = killed.get(played.pair.name)
            if played.acted is None and call is not None and is_answered(call):
                self._change_sprite(played)

    def _change_sprite(self, played: Played) -> None:
        lab, name = self.world.lab, played.pair.name
        match played.pair.sight:
            case Sight.LISTED | Sight.NOT_LISTED | Sight.LIST_FAILS:
                pass
            case Sight.MISSING:
                self._delete(played.pair)
            case Sight.COLD:
                lab.set_state(name, "cold")
            case Sight.REUSED:
                lab.set_state(name, "cold")
                lab.set_state(name, "running")
                assert lab.start_session(name, *SLEEP)["id"] == played.session
                (process,) = lab.processes(name)
                played.innocent = process["host_pid"]
                lab.call("DELETE", f"/_lab/faults/{played.list_fault}")
        played.acted = time.time()

    def _delete(self, pair: Pair) -> None:
        """Delete a sprite as a client of its own organization does."""
        Lab(self.world.lab.url, name_token(pair.organization)).delete_sprite(pair.name)

    def list_items(self) -> list[dict[str, Any]]:
        """Read every object."""
        _, answer = self.world.cluster.request("GET", self.world.path)
        items: list[dict[str, Any]] = answer["items"]
        return items

    def expect_truth(self) -> None:
        """Nothing that lives is called dead, or given up."""
        for item in self.list_items():
            played = self.played[item["metadata"]["name"]]
            if not played.lives:
                continue
            # It lived after the object was read.
            terminated = read_condition(item["status"], "Terminated")
            assert terminated["status"] != "True", (played.pair, item["status"])
            assert FINALIZER in item["metadata"]["finalizers"], played.pair
            assert item["status"]["session"]["id"] == played.session, played.pair
            assert "ended" not in item["status"]["session"], played.pair

    def read_endings(self) -> dict[str, Ending]:
        """Read what the operator says of every pair."""
        return {item["metadata"]["name"]: read_ending(item["status"]) for item in self.list_items()}

    def find_unproven(self) -> list[tuple[Pair, Ending]]:
        """Name the pairs whose end is not proven."""
        endings = self.read_endings()
        return [(self.played[name].pair, ending) for name, ending in endings.items() if ending.terminated != "True"]


def read_phase(item: Mapping[str, Any]) -> str:
    phase: str = item["status"]["phase"]
    return phase


def is_answered(call: Mapping[str, Any]) -> bool:
    """Tell whether a kill was answered, or is not waited for any more."""
    return call["finished"] is not None or time.time() - call["time"] > KILL_LIMIT_SECONDS + 1


def name_token(organization: str) -> str:
    return build_sprites_token(organization)


@pytest.fixture
def matrix(cluster: Cluster, namespace: str) -> Iterator[Matrix]:
    tokens = [word for name in sorted({pair.organization for pair in PAIRS}) for word in ("--token", name_token(name))]
    with EmulatorProcess(*tokens) as emulator, World(cluster, namespace, emulator) as world:
        yield Matrix(world)
        # So many sprites take longer to end than the emulator itself may.
        emulator.reset()


@pytest.mark.timeout(600)
def test_no_pair_of_lies_makes_a_false_death_or_loses_what_lives(matrix: Matrix) -> None:
    world = matrix.world
    matrix.set_up()
    matrix.kill_all()

    while not matrix.is_settled:
        assert time.monotonic() - matrix.begun < SETTLED_SECONDS, matrix.find_unproven()
        matrix.change_sprites()
        matrix.expect_truth()
        time.sleep(PAUSE_SECONDS)
    assert all(played.acted is not None for played in matrix.played.values()), "each kill was answered"
    endings = matrix.read_endings()
    matrix.expect_truth()

    # A successor remembers nothing, and finds all of them again. What is cold is left as it is, the rest is mended.
    assert world.operator is not None
    world.operator.kill()
    world.lab.disarm_faults()
    for played in matrix.played.values():
        if played.pair.sight is Sight.COLD:
            world.lab.arm_fault({"kind": "status", "status": 502}, sprite=played.pair.name, times=MANY)
    world.start_operator(METADATA_SECONDS="5")
    await_true(lambda: matrix.find_unproven() == [], "every end", 120, lambda: str(matrix.find_unproven()))
    matrix.expect_truth()
    last = matrix.read_endings()
    assert {ending.reason for ending in last.values()} == {"Confirmed"}
    for name, played in matrix.played.items():
        pair = played.pair
        if pair.sight is Sight.COLD:
            endings[name] = last[name]
        assert not played.lives, pair
        assert (endings[name].terminated == "True") <= (pair.sight not in LIVES), (pair, endings[name])
        if pair.sight is Sight.REUSED:
            assert played.innocent is not None
            assert is_alive(played.innocent), pair
            kills = world.lab.requests(route="exec.kill", sprite=name)
            assert all(call["time"] < (played.acted or 0) for call in kills), pair

    page = render_page({played.pair: endings[name] for name, played in matrix.played.items()})
    if environment().get(REWRITE):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "docs/fault-matrix.md is not what came of it; run `make matrix`."

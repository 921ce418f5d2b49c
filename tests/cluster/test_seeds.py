"""
One terminal's whole life, and that of four others, under ten mixes of the emulator's lies.

Problem: each lie has a test of its own, and a platform tells many at once. Promise: whatever a seed draws, a live
terminal is never doubled, `Terminated=True` is never said of a process that lives, a held sprite does not pause, a
paused one is woken by nobody without a right to, and nothing but the orphan is left after the last deletion. What is
judged is the process table of the emulator, never an answer of its API, which lies; phases are not judged, since a mix
may pause a sprite or end its sessions. `AGENTTERMINAL_SEED=7` lives through a single seed, also one beyond the ten.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from controller.lab.emulator.mixing import draw_mix
from controller.settings import environment
from tests.cluster.errors import assert_no_secret_was_told, open_world
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World, read_condition
from tests.support.process import await_true

ONE_SEED: Final = environment().get("AGENTTERMINAL_SEED", "")
SEEDS: Final = [int(ONE_SEED)] if ONE_SEED else list(range(10))
SIDE_BY_SIDE: Final = 4
PAUSES: Final = 5
PAGES: Final = 3
"""So many reads show a change for sure: they are a second apart, and a mix lets the state lag by one."""
SETTINGS: Final = {"METADATA_SECONDS": "1"}
POLL_SECONDS: Final = 0.2
WITHIN_SECONDS: Final = 60.0
"""For each step: a mix may cost a launch or an end several rounds of its back-off."""
SILENCE_SECONDS: Final = 45.0
"""Longer than any idle time that a mix draws, shorter than a hold and than what makes a warm sprite cold."""

LOOP: Final = 'echo "$$" >> "$HOME/runs-$0"; trap "" TERM; while :; do sleep 1; done'
SHORT: Final = 'echo "$$" >> "$HOME/runs-$0"; sleep 1; exit 3'
LAUNCHED: Final = ("held", "lost", "short")
ADOPTED: Final = ("adopted", "orphan")


class Life:
    """The lives of five terminals in one sprite; all calls block."""

    def __init__(self, world: World, lab: EmulatorProcess) -> None:
        self.world = world
        self.lab = lab
        self.allowed_runs = dict.fromkeys((*LAUNCHED, *ADOPTED), 1)
        """How often a command may have been started by now."""
        self._nudges = count(1)

    # What is true.

    def leaders(self, name: str) -> list[int]:
        """
        The processes of a terminal, without what they started: those whose command ends with its name.

        A shell's child has its parent's command until it becomes a program of its own, also where its parent has died
        by then; but it leads no session.
        """
        rows = [row for row in self.lab.processes("box") if row["argv"][-1:] == [name]]
        return [row["host_pid"] for row in rows if leads_session(row["host_pid"])]

    def count_runs(self, name: str) -> int:
        """How often a terminal's command ran; its home outlives every pause."""
        runs = Path(self.lab.sprite("box")["home"]) / f"runs-{name}"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def judge(self) -> None:
        """What must hold at every moment; what is claimed is read before what is true."""
        _, objects = self.world.cluster.request("GET", self.world.path)
        claims = {
            item["metadata"]["name"]: read_condition(item["status"], "Terminated")["status"]
            for item in objects["items"]
        }
        for name, allowed in self.allowed_runs.items():
            leaders = self.leaders(name)
            assert len(leaders) <= 1, f"{name} lives {len(leaders)} times"
            assert claims.get(name) != "True" or not leaders, f"{name} is called terminated and lives"
            runs = self.count_runs(name)
            assert runs <= allowed, f"{name} was started {runs} times"

    # Waiting and doing.

    def until(self, is_true: Callable[[], Any], what: str) -> None:
        """Wait until something is true, and judge all the while."""

        def look() -> bool:
            self.judge()
            return bool(is_true())

        await_true(look, what, WITHIN_SECONDS, self.tell, poll_seconds=POLL_SECONDS)

    def has_session(self, name: str) -> bool:
        return bool(self.status(name).get("session", {}).get("id"))

    def runs_once(self, name: str) -> bool:
        return self.count_runs(name) == 1

    def is_gone(self, name: str) -> bool:
        return self.world.get(name) is None

    def tell(self) -> str:
        """Tell everything that helps to understand a failure."""
        _, objects = self.world.cluster.request("GET", self.world.path)
        shown = [{"name": item["metadata"]["name"], **item["status"]} for item in objects["items"]]
        assert self.world.operator is not None
        log = [line for line in self.world.operator.lines if line.get("level") != "DEBUG"][-20:]
        requests = self.lab.requests(sprite="box")[-20:]
        sprite = self.lab.sprite("box")
        return "\n".join(json.dumps(part) for part in (sprite, self.lab.processes("box"), requests, log, shown))

    def status(self, name: str) -> dict[str, Any]:
        """Read a status."""
        return self.world.status(name)

    def nudge(self, name: str) -> None:
        """Ask for a look now."""
        body = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": str(next(self._nudges))}}}
        path = f"{self.world.path}/{name}"
        status, answer = self.world.cluster.request(
            "PATCH", path, body=body, content_type="application/merge-patch+json"
        )
        assert status == 200, answer

    def is_terminated(self, name: str) -> bool:
        """Whether the operator says so."""
        return bool(self.world.condition(name, "Terminated")["status"] == "True")

    def let_operator_read(self, pages: int) -> None:
        """Wait until the operator has read what the sprites are so many times more."""
        last = self.last_request()
        self.until(
            lambda: len(self.lab.requests(route="sprites.list", since=last, status=200)) >= pages,
            "the operator to read the metadata",
        )

    # The chapters.

    def begin(self) -> None:
        """Adopt two, launch three, hold one."""
        self.lab.create_sprites("box")
        self.lab.set_state("box", "running")
        for name in ADOPTED:
            session = self.lab.start_session("box", "sh", "-c", LOOP, name)
            policy = "Orphan" if name == "orphan" else "Terminate"
            self.world.create(name, sessionId=session["id"], deletionPolicy=policy)
        for name in LAUNCHED:
            self.world.create(
                name,
                launch={"command": ["sh", "-c", SHORT if name == "short" else LOOP, name]},
                **({"attached": True, "activeSocketId": "socket-1", "holdWanted": True} if name == "held" else {}),
            )
        for name in (*ADOPTED, *LAUNCHED):
            self.until(partial(self.has_session, name), f"the session of {name}")
            self.until(partial(self.runs_once, name), f"{name} to run")
        self.until(lambda: self.lab.tasks("box"), "the hold to be created")

    def let_go_of_the_orphan(self) -> None:
        """It lives on, and nobody asked for its end."""
        before = self.leaders("orphan")
        self.world.delete("orphan")
        self.until(lambda: self.world.get("orphan") is None, "the orphan to be let go")
        assert self.leaders("orphan") == before

    def see_the_exit(self) -> None:
        """A command that ended by itself is not started again."""
        self.until(lambda: not self.leaders("short"), "the short command to end")
        self.nudge("short")
        self.until(lambda: "ended" in self.status("short").get("session", {}), "the end to be seen")
        assert not self.is_terminated("short") or self.leaders("short") == []

    def stay_awake(self) -> None:
        """A held sprite does not pause, however silent it is."""
        living = [self.leaders(name) for name in ("held", "lost", "adopted")]
        self.lab.advance_clock(SILENCE_SECONDS)
        assert self.is_awake()
        assert [self.leaders(name) for name in ("held", "lost", "adopted")] == living

    def pause(self, *, restart: bool) -> None:
        """The hold is released, the sprite pauses, and nobody wakes it, a new operator neither."""
        self.world.patch("held", attached=False, activeSocketId="", holdWanted=False)
        self.until(lambda: not self.lab.tasks("box"), "the hold to be released")
        self.until(lambda: not self.running_commands(), "commands without a terminal to end")
        self.lab.advance_clock(SILENCE_SECONDS)
        # What it saw running a moment ago it may call once more; from when it has seen the pause it may not.
        for _ in range(PAUSES):
            if self.is_awake():
                self.lab.set_state("box", "warm")
            self.let_operator_read(PAGES)
            # A call to a paused sprite may hang for seconds before it wakes it.
            self.until(self.is_quiet, "the calls that are under way to end")
            if not self.is_awake():
                break
        wakes = self.lab.sprite("box")["wakes"]
        last = self.last_request()
        if restart:
            self.world.start_operator(**SETTINGS)
        for _ in range(2):
            for name in ("held", "lost", "adopted"):
                self.nudge(name)
            self.let_operator_read(PAGES)
        if not self.lab.call("GET", "/_lab/switches")["metadata_wakes"]:
            now = self.lab.sprite("box")["wakes"]
            assert now == wakes, (now, wakes, self.lab.requests(since=last, sprite="box"))

    def is_quiet(self) -> bool:
        """Whether no call to the sprite is under way."""
        return all(entry["finished"] for entry in self.lab.requests(sprite="box"))

    def is_awake(self) -> bool:
        """Whether the sprite runs."""
        return bool(self.lab.sprite("box")["true_status"] == "running")

    def last_request(self) -> int:
        """The number of the last request so far."""
        return max((int(entry["number"]) for entry in self.lab.requests()), default=0)

    def running_commands(self) -> list[Any]:
        """The sessions without a terminal."""
        return [session for session in self.lab.sessions("box") if not session["tty"]]

    def terminate(self) -> None:
        """A process in a paused sprite dies, and is proven dead."""
        self.world.patch("adopted", terminated=True)
        self.until(lambda: self.is_terminated("adopted"), "adopted to be terminated")
        assert self.leaders("adopted") == []

    def lose_and_come_back(self) -> None:
        """A cold start ends a session unless the mix says otherwise; whoever comes back gets one, and only one."""
        self.lab.set_state("box", "cold")
        self.let_operator_read(PAGES)
        self.lab.set_state("box", "running")
        self.let_operator_read(2)
        self.nudge("lost")
        lives = bool(self.leaders("lost"))
        if not lives:
            self.until(lambda: "ended" in self.status("lost").get("session", {}), "the loss to be seen")
            self.allowed_runs["lost"] = 2
        self.world.patch("lost", attached=True, activeSocketId="socket-2")
        self.until(lambda: len(self.leaders("lost")) == 1, "somebody who came back to have a terminal")
        self.until(lambda: "ended" not in self.status("lost")["session"], "the terminal to be recorded")
        self.until(lambda: self.count_runs("lost") == self.allowed_runs["lost"], "it to run")

    def end(self) -> None:
        """After the last deletion nothing is left, neither processes nor tasks nor scripts."""
        names = ("held", "lost", "short", "adopted")
        for name in names:
            self.world.delete(name)
        for name in names:
            self.until(partial(self.is_gone, name), f"{name} to be gone")
            assert self.leaders(name) == []
        assert self.lab.tasks("box") == []
        orphans = self.leaders("orphan")
        self.until(
            lambda: all(
                row["host_pid"] in orphans or row["argv"] == ["sleep", "1"] for row in self.lab.processes("box")
            ),
            "the sprite to be empty",
        )
        look = Path(self.lab.sprite("box")["home"]) / "look"
        self.lab.start_session("box", "sh", "-c", 'ls /dev/shm > "$HOME/looking"; mv "$HOME/looking" "$HOME/look"')
        await_true(look.exists, "the look for scripts")
        assert [name for name in look.read_text().split() if not name.endswith(".ran")] == []


def leads_session(pid: int) -> bool:
    """Tell whether a process leads a session; none that has ended does."""
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def live_through(cluster: Cluster, seed: int) -> None:
    """Live through one seed; whatever fails is told with the seed and its mix."""
    try:
        with (
            EmulatorProcess("--random-lies", str(seed)) as lab,
            open_world(cluster, lab, **SETTINGS) as world,
        ):
            assert lab.random_lies is not None
            assert lab.random_lies["seed"] == seed
            life = Life(world, lab)
            life.begin()
            life.let_go_of_the_orphan()
            life.see_the_exit()
            life.stay_awake()
            life.pause(restart=seed % 2 == 1)
            life.terminate()
            life.lose_and_come_back()
            life.end()
            life.judge()
            assert_no_secret_was_told(world, lab.token)
    except BaseException as error:
        mix = json.dumps(draw_mix(seed).render())
        raise AssertionError(f"Seed {seed} (again: AGENTTERMINAL_SEED={seed}): {error}\nThe mix: {mix}") from error


@pytest.fixture(scope="module")
def lives(cluster: Cluster) -> Iterator[dict[int, Future[None]]]:
    """All lives, a few at a time."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {seed: pool.submit(live_through, cluster, seed) for seed in SEEDS}
        pool.shutdown(wait=True, cancel_futures=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_terminals_live_and_die_as_promised_whatever_lies_a_seed_draws(
    lives: dict[int, Future[None]], seed: int
) -> None:
    lives[seed].result()

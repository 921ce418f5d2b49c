"""
Two operators on one Lease, in five ways in which the first one stops leading, each with a kill and a hold under way.

Everything that a process says passes gates of its own, which note it; so what was sent after the end of a tenure is
seen, whoever sent it. The five happen side by side in one control plane, each in a namespace and with a Lease of its
own, with the times of the product: whatever happens first, the tests look at it afterwards.
"""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from controller.plan.lease import LeaseTimes
from tests.cluster.gate import At, Gate, Hold, Request
from tests.cluster.plane import Cluster
from tests.cluster.stage import is_command, is_kill, is_session_list, of, write_kubeconfig
from tests.support.emulator import EmulatorProcess
from tests.support.operator import OperatorProcess, World
from tests.support.process import await_true

TIMES: Final = LeaseTimes()
TAKEOVER_SECONDS: Final = 20.0
CLEAN_SECONDS: Final = 3.0
DEPOSED: Final = 3
"""The exit code of a process that led and does not any more."""
ON_ITS_WAY_SECONDS: Final = 4.0
"""From the demand of a tenure to the gate, on a machine that has much to do. Nobody else acts for 5 s after it."""
AT_ONCE_SECONDS: Final = 0.5
"""The same where nothing stood still."""
METADATA_SECONDS: Final = "1"
"""Whoever may send does so this often, so that one who goes on after the end of a tenure is not missed."""
LATE_SECONDS: Final = 1.0
"""Two looks at the Lease that are so much farther apart than they should be: somebody stood still between them."""
EXPIRE_SECONDS: Final = 60
STUBBORN: Final = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
ENDS_WITHIN: Final = 60.0


class End(StrEnum):
    """How the first one stops leading."""

    KILLED = "killed"
    PAUSED = "paused"
    HUNG = "hung"
    REFUSED = "refused"
    ASKED = "asked"


class Replica:
    """One operator behind its own gates."""

    def __init__(self, name: str, cluster: Cluster, lab: EmulatorProcess, folder: Path) -> None:
        self.kube = Gate(cluster.url, cluster.ca_file)
        self.sprites = Gate(lab.url)
        self._kubeconfig = folder / f"{name}.kubeconfig"
        self._cluster = cluster
        self.operator: OperatorProcess

    def open(self, stack: ExitStack) -> None:
        for gate in (self.kube, self.sprites):
            stack.enter_context(gate)
        write_kubeconfig(self._kubeconfig, self.kube.url, self._cluster)

    def start(self, stack: ExitStack, namespace: str) -> None:
        settings = {"ELECTION": "1", "LEASE_NAMESPACE": namespace, "METADATA_SECONDS": METADATA_SECONDS}
        self.operator = OperatorProcess(self._kubeconfig, self.sprites.url, namespace, **settings)
        stack.callback(self.operator.kill)

    @property
    def is_leading(self) -> bool:
        return "\nagentterminal_leader 1.0\n" in self.operator.read("metrics")

    def told(self, sentence: str) -> list[dict[str, Any]]:
        return [line for line in self.operator.lines if line["message"].startswith(sentence)]

    def renewals(self) -> list[Request]:
        return self.kube.find(lambda request: "/leases" in request.target and request.method in ("PUT", "POST"))

    @property
    def last_renewal(self) -> float:
        """When the last renewal came that was answered."""
        return max(request.time for request in self.renewals() if request.number in self.kube.answered)

    def looks(self) -> list[float]:
        """When it asked for the Lease, or wrote it."""
        return [request.time for request in self.kube.find(lambda request: "/leases" in request.target)]

    def stood_still(self, begin: float, end: float) -> float:
        """For how long it did not look at the Lease between two moments although it was time to."""
        times = [begin, *(look for look in self.looks() if begin < look <= end)]
        late = [later - earlier - TIMES.retry.total_seconds() for earlier, later in pairwise(times)]
        return sum(pause for pause in late if pause > LATE_SECONDS)


class Pair:
    """One way to end, from the start to the takeover."""

    def __init__(self, end: End, cluster: Cluster, lab: EmulatorProcess, folder: Path) -> None:
        self.end = end
        self.namespace = f"replicas-{end}"
        self.held, self.doomed = f"{end}-held", f"{end}-doomed"
        self.lab = lab
        status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": self.namespace}})
        assert status == 201
        self.world = World(cluster, self.namespace, lab)
        self.first = Replica(f"{end}-first", cluster, lab, folder)
        self.second = Replica(f"{end}-second", cluster, lab, folder)
        self.ended_at = 0.0
        """When the first one was cut off, paused, killed or asked."""
        self.under_way: list[Hold] = []

    def open(self, stack: ExitStack) -> None:
        self.first.open(stack)
        self.second.open(stack)
        self.first.start(stack, self.namespace)

    def work(self) -> None:
        """Give the leader a hold to renew, and a session that it will have to kill."""
        self.lab.create_sprites(self.held, self.doomed)
        for sprite in (self.held, self.doomed):
            self.lab.set_state(sprite, "running")
        session = self.lab.start_session(self.doomed, *STUBBORN)
        self.world.create("doomed", spriteName=self.doomed, sessionId=session["id"])
        self.world.create(
            "held",
            spriteName=self.held,
            launch={"command": ["sleep", "600"]},
            holdWanted=True,
            attached=True,
            hold={"expireSeconds": EXPIRE_SECONDS, "refreshSeconds": 5},
        )

    def await_work(self) -> None:
        self.world.await_reason("doomed", "Detached")
        self.world.await_reason("held", "HoldActive", "Held")

    def begin_under_way(self) -> None:
        """Have a kill and a renewal of the hold stopped on their way, each at the point that is worst for its end."""
        kill, hold = of(self.doomed, is_kill), of(self.held, is_command)
        gate = self.first.sprites
        match self.end:
            case End.KILLED:
                self.under_way = [gate.hold(kill, At.BEFORE), gate.hold(hold, At.BEFORE)]
            case End.PAUSED | End.HUNG | End.REFUSED:
                # The kill is next: it waits for the list that says whose session it is. The hold comes due meanwhile.
                self.under_way = [gate.hold(of(self.doomed, is_session_list), At.AFTER)]
            case End.ASKED:
                self.under_way = [gate.hold(kill, At.AFTER), gate.hold(hold, At.AFTER)]
        self.world.patch("doomed", terminated=True)

    def await_under_way(self) -> None:
        for hold in self.under_way:
            hold.await_reached()

    def happen(self) -> None:
        """End the first one's leadership."""
        process, kube = self.first.operator.process, self.first.kube
        match self.end:
            case End.KILLED:
                process.kill()
            case End.PAUSED:
                self.first.operator.pause()
            case End.HUNG:
                kube.call(lambda: kube.stall(lambda _: True))
            case End.REFUSED:
                kube.refuse()
            case End.ASKED:
                process.send_signal(signal.SIGTERM)
                # It has five seconds for what is under way.
                await_true(lambda: bool(self.first.told("The operator was asked to end")), "the signal to be heard")
                for hold in self.under_way:
                    hold.release()
        self.ended_at = time.monotonic()

    # afterwards

    def await_takeover(self) -> float:
        """Wait until the second one leads, and tell when it took the Lease."""
        await_true(lambda: self.second.is_leading, f"the second operator to lead after {self.end}", ENDS_WITHIN)
        return self.second.renewals()[0].time

    def await_end_of_first(self) -> int:
        return self.first.operator.process.wait(ENDS_WITHIN)

    def await_kill(self) -> None:
        """Wait for the proof, and see that one SIGKILL was all that reached the sprite."""
        status = self.world.await_reason("doomed", "Confirmed", "Terminated", within=60)
        assert status["kill"]["proof"] == "SessionList"
        kills = self.lab.requests(route="exec.kill", sprite=self.doomed)
        assert [entry["status"] for entry in kills] == [200], kills

    def upserts(self) -> list[float]:
        """When commands that set a task of the hold came to the sprite."""
        commands = self.lab.requests(cause="hold", sprite=self.held)
        return [entry["time"] for entry in commands if "X=" in entry["query"] or "-X" in entry["query"]]

    def await_hold(self, taken: float) -> None:
        """Wait until the second one has renewed the hold, and see that the task never lapsed."""
        renewed = of(self.held, is_command)
        await_true(lambda: len(self.second.sprites.find(renewed)) >= 2, "the hold to be renewed", 60)
        assert self.second.sprites.find(renewed)[0].time > taken
        times = self.upserts()
        assert max(later - earlier for earlier, later in pairwise(times)) < EXPIRE_SECONDS
        assert len(self.lab.tasks(self.held)) == 1

    def sent_by_first_after(self, moment: float) -> list[str]:
        """What the first one sent after a moment, but for what it may always: ask for the Lease, list and watch."""
        told = [f"{entry.method} {entry.target}" for entry in self.first.sprites.requests if entry.time > moment]
        for entry in self.first.kube.requests:
            is_look = entry.method == "GET" and entry.target.split("?")[0].endswith("/agentterminals")
            if entry.time > moment and not is_look and "/leases" not in entry.target:
                told.append(f"{entry.method} {entry.target}")
        return told

    @property
    def tenure_end(self) -> float:
        """When the first one's tenure was over at the latest; the gate saw the renewal a moment after it was sent."""
        return self.first.last_renewal + TIMES.renew_deadline.total_seconds()


@pytest.fixture(scope="module")
def pairs(
    cluster: Cluster, lab_process: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[End, Pair]]:
    """All five pairs, in each of which the first one has just stopped leading."""
    lab_process.reset()
    folder = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        pairs = [Pair(end, cluster, lab_process, folder) for end in End]
        for pair in pairs:
            pair.open(stack)
            pair.work()
        for pair in pairs:
            pair.second.start(stack, pair.namespace)
        for pair in pairs:
            pair.await_work()
            assert pair.first.is_leading
            assert not pair.second.is_leading
        for pair in pairs:
            pair.begin_under_way()
        for pair in pairs:
            pair.await_under_way()
            pair.happen()
        yield {pair.end: pair for pair in pairs}
    for pair in pairs:
        cluster.empty_namespace(pair.namespace)
    lab_process.reset()


def test_a_standby_is_ready_and_well_says_that_it_stands_by_and_does_nothing(pairs: dict[End, Pair]) -> None:
    """Asked first, since the others wait until none stands by; but where one was asked to end, they still do."""
    for second in (pair.second for pair in pairs.values()):
        pages = {name: second.operator.read(name) for name in ("healthz", "readyz", "metrics")}
        to_sprites, to_kube = list(second.sprites.requests), list(second.kube.requests)
        if not second.renewals():
            # It stood by when it was asked, since it does now.
            assert pages["healthz"] == "This process is well.\n"
            assert pages["readyz"].startswith("Standing by")
            assert to_sprites == []
            assert {request.method for request in to_kube} == {"GET"}
            counts = re.findall(r"^agentterminal_objects\{.*\} (\S+)$", pages["metrics"], re.MULTILINE)
            assert set(counts) == {"0.0"}
            return
    pytest.fail("All have taken over before the first look.")


def test_a_leader_that_was_asked_to_end_finishes_what_is_under_way_and_is_followed_within_three_seconds(
    pairs: dict[End, Pair],
) -> None:
    pair = pairs[End.ASKED]

    assert pair.await_end_of_first() == 0
    taken = pair.await_takeover()

    released = pair.first.renewals()[-1].time
    assert pair.first.told("The Lease was released.")
    assert taken - released <= CLEAN_SECONDS + pair.second.stood_still(released, taken)
    assert pair.sent_by_first_after(released) == []
    pair.await_kill()
    pair.await_hold(taken)


def test_a_killed_leader_is_followed_within_twenty_seconds_and_its_kill_and_its_hold_are_taken_up(
    pairs: dict[End, Pair],
) -> None:
    pair = pairs[End.KILLED]

    taken = pair.await_takeover()

    assert taken - pair.ended_at <= TAKEOVER_SECONDS + pair.second.stood_still(pair.ended_at, taken)
    pair.await_kill()
    pair.await_hold(taken)


@pytest.mark.parametrize("end", [End.HUNG, End.REFUSED])
def test_a_leader_without_an_api_server_stops_before_another_takes_its_place(pairs: dict[End, Pair], end: End) -> None:
    pair = pairs[end]

    code = pair.await_end_of_first()
    stopped = time.monotonic()
    taken = pair.await_takeover()

    assert code == DEPOSED
    assert "could not be renewed for 10 s" in pair.first.operator.log_file.read_text()
    assert taken - pair.ended_at <= TAKEOVER_SECONDS + pair.second.stood_still(pair.ended_at, taken)
    assert taken - pair.tenure_end >= 4
    for hold in pair.under_way:
        hold.release()
    pair.await_kill()
    pair.await_hold(taken)
    assert pair.sent_by_first_after(pair.tenure_end + ON_ITS_WAY_SECONDS) == []
    assert pair.sent_by_first_after(stopped) == []


def test_whoever_stands_by_looks_as_often_as_a_takeover_in_time_needs(pairs: dict[End, Pair]) -> None:
    """Asked once they lead: what counts as standing still is a look that is late, and never how often they look."""
    pauses: list[float] = []
    for pair in pairs.values():
        taken = pair.await_takeover()
        pauses += [later - earlier for earlier, later in pairwise(pair.second.looks()) if later < taken]

    assert median(pauses) <= TIMES.retry.total_seconds() + LATE_SECONDS, pauses


def test_what_was_on_its_way_at_the_end_of_a_tenure_is_no_more_than_that(pairs: dict[End, Pair]) -> None:
    """Of two that were cut off: in one of them nothing stood still at this very moment."""
    cut_off = [pairs[end] for end in (End.HUNG, End.REFUSED)]
    for pair in cut_off:
        pair.await_end_of_first()

    sent = [
        (pair.sent_by_first_after(pair.tenure_end - 3), pair.sent_by_first_after(pair.tenure_end + AT_ONCE_SECONDS))
        for pair in cut_off
    ]

    assert any(before and not after for before, after in sent), sent


def test_a_leader_that_was_paused_beyond_its_tenure_sends_nothing_any_more_when_it_goes_on(
    pairs: dict[End, Pair],
) -> None:
    pair = pairs[End.PAUSED]
    taken = pair.await_takeover()
    assert taken - pair.ended_at <= TAKEOVER_SECONDS + pair.second.stood_still(pair.ended_at, taken)
    pair.await_kill()
    pair.await_hold(taken)

    # The list that it waits for shows the session alive: a SIGKILL is next. Its hold has been due for long.
    for hold in pair.under_way:
        hold.release()
    went_on = time.monotonic()
    pair.first.operator.resume()

    assert pair.await_end_of_first() == DEPOSED
    assert pair.sent_by_first_after(pair.tenure_end) == []
    assert [entry for entry in pair.first.sprites.requests if entry.time > went_on] == []
    pair.await_kill()

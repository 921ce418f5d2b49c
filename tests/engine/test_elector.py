"""
The elector in virtual time, against a Lease API in memory that fails as a test tells it.

Each candidate has a clock of its own, whose wall time may be hours off; a stand-in for SIGSTOP lets a candidate's time
pass without giving its loop a turn.
"""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from controller.engine.elector import Candidate, Elector
from controller.kube.errors import Conflict, Forbidden, KubeError, NotFound, Unreachable
from controller.plan.lease import LeaseTimes
from controller.tenure import LeasedTenure, TenureEnded
from tests.engine.clocks import NOON, LoopClock

TIMES = LeaseTimes()
pytestmark = pytest.mark.looptime


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class SkewedClock(LoopClock):
    """A clock whose wall time is off, and whose elapsed time may jump, as after a suspension."""

    def __init__(self, *, ahead: timedelta = timedelta(0)) -> None:
        super().__init__()
        self._ahead = ahead
        self.slept_through = timedelta(0)

    def now(self) -> Any:
        return NOON + self._ahead + self.elapsed()

    def elapsed(self) -> timedelta:
        return self.monotonic() + self.slept_through


class Store:
    """One Lease, with the optimistic concurrency of the API server."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    @property
    def holder(self) -> str | None:
        return None if self.lease is None else self.lease["spec"].get("holderIdentity")

    def put(self, lease: dict[str, Any], *, uid: str) -> dict[str, Any]:
        self.version += 1
        metadata = {**lease["metadata"], "uid": uid, "resourceVersion": str(self.version)}
        self.lease = {**copy.deepcopy(lease), "metadata": metadata}
        return copy.deepcopy(self.lease)


class Leases:
    """One candidate's way to the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[tuple[str, float]] = []
        self.is_refused = False
        self.hangs = False
        self.loses_answers = False
        self.delay = 0.0

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        await self._pass("get")
        if self._store.lease is None:
            raise NotFound("There is none.")
        return copy.deepcopy(self._store.lease)

    async def create_lease(self, lease: dict[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        await self._pass("create")
        if self._store.lease is not None:
            raise Conflict("There is one.")
        return await self._answer(self._store.put(lease, uid=f"uid-{self._store.version}"))

    async def put_lease(self, lease: dict[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        await self._pass("put")
        stored = self._store.lease
        if stored is None:
            raise NotFound("There is none.")
        if lease["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]:
            raise Conflict("Somebody was faster.")
        return await self._answer(self._store.put(lease, uid=stored["metadata"]["uid"]))

    async def _pass(self, verb: str) -> None:
        self.calls.append((verb, loop_time()))
        if self.is_refused:
            raise Unreachable("Nobody there.")
        if self.hangs:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay)

    async def _answer(self, lease: dict[str, Any]) -> dict[str, Any]:
        if self.loses_answers:
            await asyncio.Event().wait()
        return lease

    def count(self, verb: str) -> int:
        return sum(1 for called, _ in self.calls if called == verb)


class Runner:
    """One candidate as a process."""

    def __init__(self, store: Store, name: str, *, ahead: timedelta = timedelta(0), times: LeaseTimes = TIMES) -> None:
        self.clock = SkewedClock(ahead=ahead)
        self.leases = Leases(store)
        self.tenure = LeasedTenure(self.clock.elapsed)
        self.elector = Elector(self.leases, Candidate("ns", "lease", name), times, self.clock, self.tenure)
        self.ended: KubeError | TenureEnded | None = None
        self.ended_at = 0.0
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            await self.elector.run()
        except (KubeError, TenureEnded) as error:
            self.ended, self.ended_at = error, loop_time()

    async def kill(self) -> None:
        """As SIGKILL: nothing is put away."""
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    async def stop(self) -> None:
        """As SIGTERM."""
        await self.kill()
        await self.elector.release()


@asynccontextmanager
async def candidates(store: Store, *names: str, **settings: Any) -> AsyncIterator[list[Runner]]:
    """Start candidates one after the other; the first one leads."""
    runners = []
    try:
        for name in names:
            runners.append(Runner(store, name, **settings))
            await asyncio.sleep(0.5)
        yield runners
    finally:
        for runner in runners:
            await runner.kill()


async def test_the_first_one_leads_at_once_and_the_second_stands_by() -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(100)

        assert a.tenure.is_held
        assert not b.tenure.has_begun
        assert not b.elector.won.is_set()


async def test_a_leader_renews_by_one_call_every_two_seconds_and_a_standby_only_looks() -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(60)

        assert 29 <= a.leases.count("put") <= 31
        assert a.leases.count("get") == 1
        assert 29 <= b.leases.count("get") <= 32
        assert b.leases.count("put") == b.leases.count("create") == 0


@pytest.mark.parametrize("ahead", [timedelta(hours=-9), timedelta(0), timedelta(days=400)])
async def test_a_killed_leader_is_followed_after_the_leases_duration_whatever_the_wall_clocks_say(
    ahead: timedelta,
) -> None:
    store = Store()
    async with candidates(store, "a") as (a,), candidates(store, "b", ahead=ahead) as (b,):
        await asyncio.sleep(30)
        await a.kill()
        killed = loop_time()

        await b.elector.won.wait()

        assert 13 <= loop_time() - killed <= 17.5
        assert b.tenure.number == a.tenure.number + 1 == 1


async def test_two_that_wait_for_the_same_lease_never_both_get_it() -> None:
    store = Store()
    async with candidates(store, "a", "b", "c", "d") as (a, *others):
        for other in others:
            other.leases.delay = 0.3
        await a.kill()
        await asyncio.sleep(60)

        assert [other.tenure.is_held for other in others].count(True) == 1
        assert store.holder == next(name for name, other in zip("bcd", others, strict=True) if other.tenure.is_held)


async def test_a_leader_that_was_asked_to_end_is_followed_within_two_seconds() -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(31.3)
        await a.stop()
        stopped = loop_time()

        await b.elector.won.wait()

        assert not a.tenure.is_held
        assert loop_time() - stopped <= 2.1


async def test_a_standby_that_ends_leaves_the_lease_alone() -> None:
    store = Store()
    async with candidates(store, "a", "b") as (a, b):
        await asyncio.sleep(30)
        await b.stop()

        assert store.holder == "a"
        assert b.leases.count("put") == 0
        assert a.tenure.is_held


@pytest.mark.parametrize("trouble", ["is_refused", "hangs"])
async def test_a_leader_that_is_cut_off_ends_ten_seconds_after_its_last_answered_renewal_was_sent(trouble: str) -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(30)
        last = a.leases.calls[-1][1]
        setattr(a.leases, trouble, True)

        await b.elector.won.wait()

        assert isinstance(a.ended, TenureEnded)
        assert a.ended_at == pytest.approx(last + 10, abs=0.2)
        assert loop_time() - a.ended_at >= 4.5
        assert len([at for _, at in a.leases.calls if at > last]) >= 4  # It did not give up at the first failure.


async def test_a_slow_answer_counts_from_the_sending() -> None:
    store = Store()
    async with candidates(store, "a") as (a,):
        a.leases.delay = 1.5
        await asyncio.sleep(30.1)
        begun = max(at for verb, at in a.leases.calls if at <= loop_time() - 1.5)
        assert a.tenure.left <= seconds(begun + 10 - loop_time()) + seconds(0.01)
        assert a.tenure.is_held


async def test_a_short_outage_costs_nothing() -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(30)
        a.leases.is_refused = b.leases.is_refused = True
        await asyncio.sleep(6)
        a.leases.is_refused = b.leases.is_refused = False
        await asyncio.sleep(60)

        assert a.ended is None
        assert a.tenure.is_held
        assert not b.tenure.has_begun


async def test_an_outage_of_the_standby_alone_does_not_make_it_take_what_was_renewed_meanwhile() -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(30)
        b.leases.is_refused = True
        await asyncio.sleep(60)
        b.leases.is_refused = False
        await asyncio.sleep(30)

        assert a.tenure.is_held
        assert not b.tenure.has_begun
        assert b.leases.count("put") == 0


async def test_a_renewal_whose_answer_was_lost_is_settled_by_a_look_and_counts_from_its_sending() -> None:
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(29.9)
        a.leases.loses_answers = True
        await asyncio.sleep(60)

        assert a.ended is None
        assert a.tenure.is_held
        assert a.leases.count("get") > 10
        assert not b.tenure.has_begun


async def test_a_create_whose_answer_was_lost_makes_a_leader_all_the_same() -> None:
    store = Store()
    async with candidates(store, "a") as (a,):
        await a.kill()
        store.lease = None
        b = Runner(store, "b")
        b.leases.loses_answers = True
        await asyncio.sleep(5)

        assert b.tenure.is_held
        assert b.leases.count("create") == 1
        await b.kill()


async def test_a_write_that_never_arrived_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    async with candidates(store, "a") as (a,):
        await asyncio.sleep(30)
        put = a.leases.put_lease

        async def lose(lease: dict[str, Any], *, timeout: timedelta) -> dict[str, Any]:
            a.leases.calls.append(("put", loop_time()))
            await asyncio.sleep(timeout.total_seconds() * 2)
            return await put(lease, timeout=timeout)

        monkeypatch.setattr(a.leases, "put_lease", lose)
        last = a.leases.calls[-1][1]
        await asyncio.wait([a.task], timeout=30)

        assert isinstance(a.ended, TenureEnded)
        assert a.ended_at <= last + 10.1


# --- a pause of the whole process -------------------------------------------------------------------------------------


async def test_a_leader_that_slept_refuses_every_call_before_any_of_its_timers_has_fired() -> None:
    async with candidates(Store(), "a") as (a,):
        await asyncio.sleep(30)
        a.tenure.demand()

        a.clock.slept_through = seconds(60)

        with pytest.raises(TenureEnded):
            a.tenure.demand()
        await asyncio.wait([a.task], timeout=5)
        assert isinstance(a.ended, TenureEnded)


async def test_a_pause_that_is_shorter_than_the_deadline_ends_nothing() -> None:
    async with candidates(Store(), "a") as (a,):
        await asyncio.sleep(30)
        a.clock.slept_through = seconds(7)
        a.tenure.demand()
        await asyncio.sleep(30)

        assert a.tenure.is_held


async def test_a_term_that_is_over_does_not_begin_again_by_an_answer_that_comes_late() -> None:
    clock = SkewedClock()
    tenure = LeasedTenure(clock.elapsed)
    tenure.begin(3, until=clock.elapsed() + seconds(10))
    clock.slept_through = seconds(10)
    assert not tenure.is_held

    tenure.extend(until=clock.elapsed() + seconds(10))

    assert not tenure.is_held
    with pytest.raises(TenureEnded):
        tenure.demand()


async def test_a_term_holds_up_to_its_last_moment_and_not_at_it() -> None:
    clock = SkewedClock()
    tenure = LeasedTenure(clock.elapsed)
    with pytest.raises(TenureEnded):
        tenure.demand()
    tenure.begin(1, until=clock.elapsed() + seconds(10))

    clock.slept_through = seconds(10) - timedelta(microseconds=1)
    tenure.demand()
    clock.slept_through = seconds(10)

    with pytest.raises(TenureEnded):
        tenure.demand()


async def test_a_standby_that_slept_believes_no_old_sighting_longer_than_it_is_true() -> None:
    """Time that passed while it slept counts, but it looks before it takes: the leader has renewed meanwhile."""
    async with candidates(Store(), "a", "b") as (a, b):
        await asyncio.sleep(30)
        b.clock.slept_through = seconds(3600)
        await asyncio.sleep(30)

        assert a.tenure.is_held
        assert b.leases.count("put") == 0


# --- what others do to the Lease --------------------------------------------------------------------------------------


async def test_a_leader_whose_lease_was_deleted_ends_and_a_standby_waits_its_duration_before_it_makes_another() -> None:
    store = Store()
    async with candidates(store, "a", "b") as (a, b):
        await asyncio.sleep(30)
        store.lease = None
        deleted = loop_time()

        await b.elector.won.wait()

        assert isinstance(a.ended, TenureEnded)
        assert a.ended_at - deleted <= 2.5
        assert loop_time() - deleted >= 12.5
        assert store.holder == "b"


@pytest.mark.parametrize("holder", ["", "somebody"])
async def test_a_leader_that_finds_another_name_than_its_own_ends_at_once(holder: str) -> None:
    store = Store()
    async with candidates(store, "a") as (a,):
        await asyncio.sleep(30)
        assert store.lease is not None
        store.put({**store.lease, "spec": {**store.lease["spec"], "holderIdentity": holder}}, uid="uid-0")
        changed = loop_time()
        await asyncio.wait([a.task], timeout=30)

        assert isinstance(a.ended, TenureEnded)
        assert a.ended_at - changed <= 2.5
        assert not a.tenure.is_held
        await a.elector.release()
        assert store.holder == holder


async def test_a_harmless_edit_of_the_lease_costs_no_leadership() -> None:
    store = Store()
    async with candidates(store, "a", "b") as (a, b):
        await asyncio.sleep(30)
        assert store.lease is not None
        store.put({**store.lease, "metadata": {**store.lease["metadata"], "labels": {"a": "b"}}}, uid="uid-0")
        await asyncio.sleep(30)

        assert a.tenure.is_held
        assert store.lease["metadata"]["labels"] == {"a": "b"}
        assert not b.tenure.has_begun


async def test_a_release_that_is_outrun_by_a_late_renewal_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    async with candidates(store, "a") as (a,):
        await asyncio.sleep(30)
        await a.kill()
        get = a.leases.get_lease

        async def be_outrun(namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
            lease = await get(namespace, name, timeout=timeout)
            if a.leases.count("get") == 2:
                store.put(lease, uid="uid-0")
            return lease

        monkeypatch.setattr(a.leases, "get_lease", be_outrun)
        await a.elector.release()

        assert store.holder == ""


async def test_a_candidate_that_may_not_make_the_lease_says_so_once_and_goes_on_trying(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    runner = Runner(store, "a")

    async def forbid(lease: dict[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        runner.leases.calls.append(("create", loop_time()))
        raise Forbidden("Leases are not for you.")

    monkeypatch.setattr(runner.leases, "create_lease", forbid)
    await asyncio.sleep(60)

    assert runner.leases.count("create") >= 29
    assert not runner.tenure.has_begun
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    await runner.stop()
    assert runner.leases.count("put") == 0


@pytest.mark.parametrize("trouble", ["is_refused", "hangs"])
async def test_a_release_that_cannot_be_told_ends_all_the_same(trouble: str) -> None:
    async with candidates(Store(), "a") as (a,):
        await asyncio.sleep(30)
        await a.kill()
        setattr(a.leases, trouble, True)
        begun = loop_time()

        await a.elector.release()

        assert loop_time() - begun <= 4.1
        assert not a.tenure.is_held

"""A gateway's Lease: renewed behind a look, late, lost, broken and gone. Time is virtual; there is no socket."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from controller.gateway.incarnation import Holding, Incarnations
from controller.gateway.wishes import Target
from controller.kube.client import Page
from controller.kube.errors import Conflict, Forbidden, KubeError, NotFound, ServerFault, Throttled, TimedOut
from controller.plan.fence_objects import ObjectView
from controller.plan.fence_tenure import RULES
from tests.gateway.doubles import UnaskedKube

PLACE = Target("team-a", "one")


class VirtualClock:
    """Time that passes only when everybody sleeps: in steps of a tenth of a second."""

    def __init__(self) -> None:
        self.time = timedelta(hours=1)

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + self.time

    def monotonic(self) -> timedelta:
        return self.time

    def elapsed(self) -> timedelta:
        return self.time

    async def sleep(self, delay: timedelta) -> None:
        end = self.time + max(delay, timedelta(0))
        while self.time < end:  # noqa: ASYNC110 - nobody tells that time has passed but the test that lets it pass
            await asyncio.sleep(0)


class LeaseServer(UnaskedKube):
    """An API server with Leases and a list of what is held; a call fails as it is told."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.leases: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.listed: list[dict[str, Any]] = []
        self.withheld: set[str] = set()
        """Namespaces in which nothing may be read."""
        self.calls: list[str] = []
        self.fails: dict[str, Callable[[], KubeError | None]] = {}
        self._versions = count(1)

    def _enter(self, call: str) -> KubeError | None:
        self.calls.append(call)
        fails = self.fails.get(call)
        return None if fails is None else fails()

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        if (error := self._enter("get")) is not None:
            raise error
        return self.objects[name]

    async def list_pages(
        self, *, metadata_only: bool, namespaces: Sequence[str] | None = None, field_selector: str | None = None
    ) -> AsyncIterator[Page]:
        assert metadata_only
        assert field_selector is not None
        assert field_selector.startswith("status.socket.incarnation=")
        if (error := self._enter("list")) is not None:
            raise error
        if namespaces is None:
            yield Page(tuple(self.listed), None, True, "1")
            return
        (namespace,) = namespaces
        if namespace in self.withheld:
            raise Forbidden("no right", status=403)
        listed = (raw for raw in self.listed if raw["metadata"]["namespace"] == namespace)
        yield Page(tuple(listed), namespace, True, "1")

    async def create_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        return self._write("create", lease, None)

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        return self._write("put", lease, lease["metadata"]["resourceVersion"])

    def _write(self, call: str, lease: Mapping[str, Any], version: str | None) -> dict[str, Any]:
        error = self._enter(call)
        if error is not None and not error.may_have_happened:
            raise error
        name = lease["metadata"]["name"]
        standing = self.leases.get(name)
        if version is not None and standing is None:
            raise NotFound("gone", status=404)
        if standing is not None and standing["metadata"]["resourceVersion"] != version:
            raise Conflict("moved", status=409)
        metadata = {**lease["metadata"], "uid": "lease-1", "resourceVersion": str(next(self._versions))}
        self.leases[name] = {"metadata": metadata, "spec": dict(lease["spec"])}
        if error is not None:
            raise error
        return self.leases[name]

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        if (error := self._enter("get lease")) is not None:
            raise error
        if name not in self.leases:
            raise NotFound("gone", status=404)
        return self.leases[name]

    async def delete_lease(
        self, namespace: str, name: str, *, uid: str, resource_version: str, timeout: timedelta
    ) -> None:
        self._enter("delete")
        if self.leases[name]["metadata"]["resourceVersion"] != resource_version:
            raise Conflict("moved", status=409)
        del self.leases[name]


class House:
    """Notes what the incarnations tell."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.held: dict[str, Holding] = {}

    def find_held(self) -> Mapping[str, Holding]:
        return self.held

    def doubt(self, uid: str) -> None:
        self.told.append(f"doubt {uid}")

    def tell(self, raw: Mapping[str, Any]) -> None:
        self.told.append(f"tell {raw['metadata']['uid']}")

    def sweep(self, target: Target, uid: str) -> None:
        self.told.append(f"sweep {uid}")

    def begin_tenure(self) -> None:
        self.told.append("begin")

    def end_tenure(self) -> None:
        self.told.append("end")

    def end_incarnation(self) -> None:
        self.told.append("over")


class Play:
    """Incarnations that run, and a clock to turn."""

    def __init__(self, namespaces: Sequence[str] | None = None) -> None:
        self.clock = VirtualClock()
        self.server = LeaseServer(self.clock)
        self.house = House()
        names = count()
        self.incarnations = Incarnations(
            self.server,
            "home",
            namespaces=namespaces,
            house=self.house,
            draw=lambda: f"gateway{next(names)}",
            clock=self.clock,
        )

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, in steps small enough that everybody acts in their order."""
        for _ in range(round(seconds * 10)):
            self.clock.time += timedelta(seconds=0.1)
            for _ in range(12):
                await asyncio.sleep(0)

    def hold(self, uid: str, generation: int = 5) -> dict[str, Any]:
        """Have a socket of ours speak for an object that is listed."""
        raw = {"metadata": {"uid": uid, "name": "one", "namespace": "team-a", "generation": generation}}
        self.house.held[uid] = Holding(PLACE, ObjectView(uid, generation, 1))
        self.server.listed = [raw]
        self.server.objects["one"] = raw
        return raw


@asynccontextmanager
async def playing(*namespaces: str) -> AsyncIterator[Play]:
    """Let incarnations run that look after some namespaces, or after all."""
    play = Play(namespaces or None)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(play.incarnations.run())
        await play.pass_time(0.2)
        yield play
        running.cancel()


@pytest.fixture
async def play() -> AsyncIterator[Play]:
    async with playing() as play:
        yield play


def fail_while(is_failing: Callable[[], bool], error: KubeError) -> Callable[[], KubeError | None]:
    return lambda: error if is_failing() else None


async def test_each_renewal_goes_behind_a_list_and_the_tenure_goes_on(play: Play) -> None:
    play.server.calls.clear()

    await play.pass_time(9)

    assert play.server.calls == ["list", "put"] * 4
    life = play.incarnations.life
    assert life is not None
    assert (life.incarnation, life.term.number, life.is_in_tenure) == ("gateway0", 1, True)
    assert play.house.told == ["begin"]


async def test_without_a_list_nothing_is_renewed_and_the_tenure_ends_by_the_clock(play: Play) -> None:
    play.server.fails["list"] = lambda: TimedOut("nothing")
    play.server.calls.clear()

    await play.pass_time(RULES.span.total_seconds() + 0.3)

    life = play.incarnations.life
    assert "put" not in play.server.calls
    assert life is not None
    assert not life.is_in_tenure
    assert not life.typing.is_held


@pytest.mark.parametrize(
    "fault",
    [ServerFault("the kind is being changed", status=500), Throttled("the kind is being changed", status=429)],
    ids=["500", "429"],
)
async def test_where_lists_answer_with_a_fault_each_held_object_is_read_instead(play: Play, fault: KubeError) -> None:
    play.hold("uid-1")
    play.server.fails["list"] = lambda: fault
    play.server.calls.clear()

    await play.pass_time(2.3)

    assert play.server.calls == ["list", "get", "put"]
    assert play.house.told == ["begin", "tell uid-1"]


@pytest.mark.parametrize("found", ["gone", "another of its name"])
async def test_where_each_is_read_one_that_is_gone_or_has_a_successor_is_doubted(play: Play, found: str) -> None:
    raw = play.hold("uid-1")
    play.server.fails["list"] = lambda: ServerFault("the kind is being changed", status=503)
    if found == "gone":
        play.server.fails["get"] = lambda: NotFound("gone", status=404)
    else:
        raw["metadata"]["uid"] = "uid-2"
    play.server.calls.clear()

    await play.pass_time(2.3)

    assert play.server.calls == ["list", "get", "put"]
    assert play.house.told[-1] == "doubt uid-1"


async def test_where_a_held_object_cannot_be_read_either_nothing_is_renewed(play: Play) -> None:
    play.hold("uid-1")
    play.server.fails["list"] = play.server.fails["get"] = lambda: ServerFault("down", status=503)
    play.server.calls.clear()

    await play.pass_time(2.3)

    assert "put" not in play.server.calls


async def test_of_a_namespace_that_may_not_be_read_what_is_held_is_doubted_and_the_tenure_goes_on() -> None:
    async with playing("team-a", "team-b") as play:
        play.hold("uid-1")
        play.server.withheld.add("team-a")
        play.server.calls.clear()

        await play.pass_time(2.3)

        assert play.server.calls == ["list", "list", "put"]
        assert play.house.told == ["begin", "doubt uid-1"]


async def test_where_no_namespace_may_be_read_nothing_is_renewed() -> None:
    async with playing("team-a", "team-b") as play:
        play.server.withheld |= {"team-a", "team-b"}
        play.server.calls.clear()

        await play.pass_time(2.3)

        assert "put" not in play.server.calls


@pytest.mark.parametrize("listed", ["newer", "missing"])
async def test_an_object_of_which_the_list_knows_more_is_doubted(play: Play, listed: str) -> None:
    raw = play.hold("uid-1")
    if listed == "newer":
        raw["metadata"]["generation"] = 6
    else:
        play.server.listed = []

    await play.pass_time(2.3)

    assert play.house.told == ["begin", "doubt uid-1"]


async def test_a_lock_of_ours_for_which_nobody_speaks_is_swept(play: Play) -> None:
    play.hold("uid-1")
    play.house.held.clear()

    await play.pass_time(2.3)

    assert play.house.told == ["begin", "sweep uid-1"]


async def test_a_renewal_after_the_end_begins_a_new_tenure_and_the_former_is_over_first(play: Play) -> None:
    until = play.clock.time + timedelta(seconds=8)
    play.server.fails["put"] = fail_while(lambda: play.clock.time < until, TimedOut("nothing"))

    await play.pass_time(9)

    life = play.incarnations.life
    assert life is not None
    assert (life.term.number, life.is_in_tenure, life.typing.is_held) == (2, True, True)
    assert play.house.told == ["begin", "end", "begin"]


async def test_a_renewal_that_landed_unheard_is_settled_by_a_read(play: Play) -> None:
    lost = iter([TimedOut("no answer", may_have_happened=True)])
    play.server.fails["put"] = lambda: next(lost, None)

    await play.pass_time(4.5)

    life = play.incarnations.life
    assert life is not None
    assert (life.incarnation, life.term.number, life.is_in_tenure) == ("gateway0", 1, True)
    assert "get lease" in play.server.calls
    assert play.house.told == ["begin"]


@pytest.mark.parametrize("hand", ["broken", "deleted"])
async def test_a_lease_that_was_taken_away_ends_the_incarnation_and_begins_another(play: Play, hand: str) -> None:
    former = play.incarnations.life
    assert former is not None
    if hand == "deleted":
        play.server.leases.clear()
    else:
        lease = play.server.leases["atgw-gateway0"]
        lease["spec"]["holderIdentity"] = ""
        lease["metadata"]["resourceVersion"] = "broken"

    await play.pass_time(3)

    life = play.incarnations.life
    assert life is not None
    assert life.incarnation == "gateway1"
    assert former.has_ended()
    assert not former.writes.is_held
    assert play.house.told == ["begin", "over", "begin"]


async def test_a_lease_whose_creation_was_lost_is_found_and_renewed() -> None:
    play = Play()
    lost = iter([TimedOut("no answer", may_have_happened=True)])
    play.server.fails["create"] = lambda: next(lost, None)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(play.incarnations.run())
        await play.pass_time(1)
        life = play.incarnations.life
        running.cancel()

    assert life is not None
    assert life.incarnation == "gateway0"
    assert list(play.server.leases) == ["atgw-gateway0"]


async def test_the_lease_is_deleted_also_when_the_last_renewal_was_not_heard(play: Play) -> None:
    play.server.leases["atgw-gateway0"]["metadata"]["resourceVersion"] = "newer"

    await play.incarnations.release()

    assert play.server.leases == {}
    assert play.incarnations.life is None

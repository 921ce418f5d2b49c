"""What the operator makes of gateways that live, die and come back, in virtual time: nobody is dead unproven."""

import copy
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from controller.kube.errors import Forbidden
from controller.plan.fence_ids import LEASE_ELSEWHERE, make_incarnation
from controller.plan.fence_patches import name_lease
from tests.engine.memory_world import SECOND, MemoryWorld

PROVEN_WITHIN: Final = timedelta(seconds=15)
MINUTE: Final = timedelta(minutes=1)
LIVING, DYING, THIRD = "livinggw", "dyinggw1", "thirdgw1"
NEVER_REAPED: Final[dict[str, Any]] = {"idleTimeoutSeconds": 0}


def add_session(world: MemoryWorld) -> None:
    world.sprites.add("box")
    world.sprites.start("box", "7")


async def renew(world: MemoryWorld, *incarnations: str, during: timedelta) -> None:
    """Let time pass in which these gateways live."""
    end = world.clock.monotonic() + during
    while world.clock.monotonic() < end:
        for incarnation in incarnations:
            world.kube.renew(incarnation)
        await world.pass_time(2 * SECOND)


async def attach(world: MemoryWorld, **spec: Any) -> None:
    """A terminal `one` with somebody who types through a gateway that lives."""
    add_session(world)
    world.kube.create("one", sessionId="7", **spec)
    await world.pass_time(5 * SECOND)
    world.kube.renew(DYING)
    world.kube.attach("one", DYING)
    await renew(world, DYING, during=MINUTE)
    assert world.reason("one", "Attached") == "Viewer"


def specs(world: MemoryWorld) -> dict[str, Any]:
    return {name: copy.deepcopy(stored["spec"]) for name, stored in world.kube.objects.items()}


# --- what a death changes ---------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_viewer_whose_gateway_died_stops_counting_and_its_lock_and_its_entry_are_swept() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        world.kube.count_viewers("one", dyinggw1=2)
        await renew(world, DYING, during=10 * SECOND)
        before, died = specs(world), world.clock.now()

        await world.pass_time(PROVEN_WITHIN)

        status = world.status("one")
        assert world.reason("one", "Attached") == "NoViewer"
        assert world.reason("one") == "Detached"
        assert died < datetime.fromisoformat(status["detachedTime"]) <= died + PROVEN_WITHIN
        assert status.get("socket") is None
        assert not status.get("gateways")
        assert "nobody speaks" in world.condition("one", "Fenced")["message"]
        assert world.kube.writes.count("swept one") == 2
        assert world.kube.leases[name_lease(DYING)]["spec"]["holderIdentity"] == ""
        assert specs(world) == before


@pytest.mark.looptime
async def test_a_viewer_whose_gateway_lives_counts_for_hours_and_nothing_is_written() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        world.kube.writes.clear()

        await renew(world, DYING, during=timedelta(hours=2))

        assert world.reason("one", "Attached") == "Viewer"
        assert world.status("one")["socket"]["incarnation"] == DYING
        assert world.kube.writes == []


@pytest.mark.looptime
async def test_a_reader_whose_gateway_died_stops_counting_while_another_goes_on() -> None:
    async with MemoryWorld() as world:
        add_session(world)
        world.kube.create("one", sessionId="7")
        world.kube.renew(DYING)
        world.kube.count_viewers("one", dyinggw1=1, livinggw=1)
        await renew(world, DYING, LIVING, during=MINUTE)

        await renew(world, LIVING, during=PROVEN_WITHIN)

        assert world.reason("one", "Attached") == "Viewer"
        assert world.status("one")["gateways"] == [{"incarnation": LIVING, "viewers": 1}]

        await world.pass_time(PROVEN_WITHIN + 2 * SECOND)
        assert world.reason("one", "Attached") == "NoViewer"


@pytest.mark.looptime
async def test_a_hold_for_somebody_whose_gateway_died_is_released() -> None:
    async with MemoryWorld() as world:
        await attach(world, holdWanted=True)
        assert world.reason("one", "Held") == "HoldActive"

        await world.pass_time(PROVEN_WITHIN + timedelta(minutes=3))

        assert world.condition("one", "Held")["status"] == "False"
        world.sprites.settle()
        assert world.sprites.sprites["box"].tasks == {}


@pytest.mark.looptime
async def test_a_terminal_whose_gateway_died_is_reaped_in_time_and_not_started_again_by_its_old_name() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        world.kube.create("one", launch={"command": ["bash"]}, idleTimeoutSeconds=300)
        await world.pass_time(5 * SECOND)
        world.kube.renew(DYING)
        world.kube.attach("one", DYING)
        await renew(world, DYING, during=MINUTE)

        await world.pass_time(PROVEN_WITHIN + timedelta(seconds=310))
        assert world.reason("one", "SessionLive") == "Reaped"
        assert world.sprites.sprites["box"].sessions == {}

        await world.restart()
        await world.pass_time(timedelta(hours=3))
        assert world.sprites.sprites["box"].sessions == {}
        assert world.sprites.count()["launch_session", "launch"] == 1

        world.kube.attach("one", LIVING)
        await renew(world, LIVING, during=MINUTE)
        assert world.reason("one") == "Running"


@pytest.mark.looptime
async def test_a_terminal_whose_sockets_were_thrown_out_is_watched_by_nobody_whatever_attached_still_says() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        world.kube.create("one", launch={"command": ["bash"]}, idleTimeoutSeconds=300)
        await world.pass_time(5 * SECOND)
        world.kube.patch("one", attached=True, activeSocketId="by-hand")
        await world.pass_time(MINUTE)
        assert world.reason("one", "Attached") == "Viewer"

        world.kube.patch("one", activeSocketId="")
        await world.pass_time(5 * SECOND)
        assert world.reason("one", "Attached") == "NoViewer"
        await world.pass_time(timedelta(seconds=310))
        assert world.reason("one", "SessionLive") == "Reaped"

        await world.pass_time(timedelta(hours=3))
        assert world.sprites.count()["launch_session", "launch"] == 1
        world.kube.patch("one", activeSocketId="by-hand-again")
        await world.pass_time(MINUTE)
        assert world.reason("one") == "Running"


@pytest.mark.looptime
async def test_a_restart_neither_counts_the_dead_again_nor_begins_the_idle_time_anew() -> None:
    async with MemoryWorld() as world:
        await attach(world, **NEVER_REAPED)
        await world.pass_time(PROVEN_WITHIN)
        detached = world.status("one")["detachedTime"]
        world.kube.writes.clear()

        del world.kube.leases[name_lease(DYING)]
        await world.restart()
        world.kube.annotate("one", activity="2026-11-30T11:00:00Z")
        await world.pass_time(timedelta(minutes=20))

        assert world.status("one")["detachedTime"] == detached
        assert world.reason("one", "Attached") == "NoViewer"
        assert world.kube.writes == []


@pytest.mark.looptime
async def test_somebody_who_comes_after_a_death_counts_at_once() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        await world.pass_time(PROVEN_WITHIN)
        assert world.reason("one", "Attached") == "NoViewer"

        world.kube.renew(LIVING)
        world.kube.attach("one", LIVING)
        await world.pass_time(SECOND)

        assert world.reason("one", "Attached") == "Viewer"
        assert world.status("one").get("detachedTime") is None


# --- what proves nothing ----------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_a_lease_that_a_hand_deletes_for_a_moment_proves_nothing() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        world.kube.writes.clear()

        for _ in range(10):
            del world.kube.leases[name_lease(DYING)]
            await world.pass_time(5 * SECOND)
            await renew(world, DYING, during=9 * SECOND)

        assert world.reason("one", "Attached") == "Viewer"
        assert world.kube.writes == []


@pytest.mark.looptime
async def test_a_lease_that_stays_missing_is_a_proof_after_two_looks() -> None:
    async with MemoryWorld() as world:
        await attach(world)

        del world.kube.leases[name_lease(DYING)]
        await world.pass_time(6 * SECOND)
        assert world.reason("one", "Attached") == "Viewer"
        await world.pass_time(PROVEN_WITHIN - 6 * SECOND)

        assert world.reason("one", "Attached") == "NoViewer"
        assert world.kube.leases == {}


@pytest.mark.looptime
async def test_a_lease_that_somebody_broke_is_believed_at_once() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        world.kube.leases[name_lease(DYING)]["spec"]["holderIdentity"] = ""

        await world.pass_time(8 * SECOND)

        assert world.reason("one", "Attached") == "NoViewer"


@pytest.mark.looptime
async def test_leases_that_cannot_be_read_prove_nothing_and_are_asked_ever_less_often() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        world.kube.lease_trouble = Forbidden("You may not.", status=403)
        world.kube.lease_reads.clear()

        await world.pass_time(timedelta(hours=1))

        assert world.reason("one", "Attached") == "Viewer"
        assert 50 <= world.kube.lease_reads.total() <= 70

        world.kube.lease_trouble = None
        await world.pass_time(MINUTE + PROVEN_WITHIN)
        assert world.reason("one", "Attached") == "NoViewer"


@pytest.mark.looptime
async def test_a_gateway_whose_lease_cannot_be_broken_is_not_proven_dead() -> None:
    async with MemoryWorld() as world:
        await attach(world)
        world.kube.refuses_writes = True

        await world.pass_time(timedelta(minutes=5))

        assert world.status("one")["socket"]["incarnation"] == DYING
        assert world.kube.leases[name_lease(DYING)]["spec"]["holderIdentity"] == DYING


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_many_objects_on_a_few_gateways_cost_the_reads_of_a_few_gateways() -> None:
    async with MemoryWorld() as world:
        for number in range(300):
            world.kube.create(f"t-{number}", tokenSecretRef={"name": "sprites"}, launch=None, sessionId=str(number))
            world.kube.attach(f"t-{number}", (LIVING, DYING, THIRD)[number % 3])
        await renew(world, LIVING, DYING, THIRD, during=MINUTE)
        world.kube.lease_reads.clear()

        await renew(world, LIVING, DYING, THIRD, during=7 * MINUTE)

        assert set(world.kube.lease_reads) == {name_lease(name) for name in (LIVING, DYING, THIRD)}
        assert max(world.kube.lease_reads.values()) <= 61

        await renew(world, LIVING, THIRD, during=PROVEN_WITHIN + 5 * SECOND)
        assert sum(stored["status"].get("socket") is None for stored in world.kube.objects.values()) == 100


@pytest.mark.looptime
async def test_where_no_gateway_is_named_no_lease_is_ever_read() -> None:
    async with MemoryWorld() as world:
        add_session(world)
        world.kube.create("one", sessionId="7", attached=True, activeSocketId="a-foreign-bridge")
        world.kube.create("two", attached=True, sessionId="8", activeSocketId="")

        await world.pass_time(timedelta(hours=12))

        assert world.reason("one", "Attached") == "Viewer"
        assert world.kube.lease_reads.total() == 0


@pytest.mark.looptime
async def test_a_gateway_through_which_nobody_watches_is_asked_about_seldom_and_again_at_once_when_somebody_does() -> (
    None
):
    async with MemoryWorld() as world:
        add_session(world)
        world.kube.create("one", sessionId="7")
        world.kube.count_viewers("one", dyinggw1=0)
        await renew(world, DYING, during=MINUTE)
        world.kube.lease_reads.clear()

        await renew(world, DYING, during=timedelta(hours=1))
        assert 11 <= world.kube.lease_reads.total() <= 13

        world.kube.attach("one", DYING)
        await world.pass_time(PROVEN_WITHIN)
        assert world.reason("one", "Attached") == "NoViewer"
        assert world.status("one").get("gateways") is None


@pytest.mark.looptime
async def test_a_proven_gateway_is_read_of_no_more_and_its_viewer_no_reason_to_look_often() -> None:
    async with MemoryWorld() as world:
        await attach(world, **NEVER_REAPED)
        await world.pass_time(PROVEN_WITHIN)
        world.kube.lease_reads.clear()
        world.sprites.forget_calls()

        await world.pass_time(timedelta(hours=5))

        assert world.kube.lease_reads.total() == 0
        assert 25 <= world.sprites.count()["list_sessions", "check"] <= 45


# --- letting an object go ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["Terminate", "Orphan"])
@pytest.mark.looptime
async def test_an_object_stays_until_the_gateway_that_lives_has_let_go(policy: str) -> None:
    async with MemoryWorld() as world:
        await attach(world, deletionPolicy=policy)
        world.kube.delete("one")

        await renew(world, DYING, during=5 * MINUTE)

        assert not world.is_gone("one")
        assert world.reason("one") == "Terminating"
        assert "A gateway may still speak" in world.condition("one")["message"]
        assert ("7" in world.sprites.sprites["box"].sessions) == (policy == "Orphan")
        assert (world.reason("one", "Terminated") == "Confirmed") == (policy == "Terminate")

        world.kube.clear_lock("one")
        await renew(world, DYING, during=SECOND)
        assert world.is_gone("one")
        assert world.sprites.count()["kill_session", "kill"] == (1 if policy == "Terminate" else 0)


@pytest.mark.parametrize("policy", ["Terminate", "Orphan"])
@pytest.mark.looptime
async def test_an_object_goes_once_the_gateway_that_held_it_is_proven_out(policy: str) -> None:
    async with MemoryWorld() as world:
        await attach(world, deletionPolicy=policy)
        world.kube.delete("one")
        await world.pass_time(4 * SECOND)
        assert not world.is_gone("one")

        await world.pass_time(PROVEN_WITHIN - 4 * SECOND)

        assert world.is_gone("one")
        assert world.kube.writes[-2:] == ["swept one", "metadata one"]
        await world.pass_time(MINUTE)


# --- a proof that cannot be written -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminated", "deleted", "reaped"])
@pytest.mark.looptime
async def test_an_end_that_is_proven_while_no_write_gets_through_is_not_sent_again(end: str) -> None:
    async with MemoryWorld() as world:
        add_session(world)
        world.kube.create("one", sessionId="7", idleTimeoutSeconds=120)
        await world.pass_time(MINUTE)
        world.kube.refuses_writes = True

        if end == "terminated":
            world.kube.patch("one", terminated=True)
        elif end == "deleted":
            world.kube.delete("one")
        await world.pass_time(timedelta(minutes=10))
        assert world.sprites.count()["kill_session", "kill"] == 1
        lists = world.sprites.count()["list_sessions", "prove"]
        await world.pass_time(timedelta(minutes=30))
        assert world.sprites.count()["list_sessions", "prove"] == lists

        world.kube.refuses_writes = False
        await world.pass_time(timedelta(minutes=6))
        assert world.sprites.count()["kill_session", "kill"] == 1
        assert world.read("agentterminal_kills_total", "verdict") == {"SessionList": 1}
        if end == "deleted":
            assert world.is_gone("one")
        else:
            assert world.status("one")["kill"]["proof"] == "SessionList"
            assert world.status("one")["kill"]["attempts"] == 1
            assert world.status("one")["session"]["ended"]["reason"] == end.capitalize()


@pytest.mark.looptime
async def test_a_proof_that_waits_for_its_write_ends_no_later_session() -> None:
    async with MemoryWorld() as world:
        add_session(world)
        world.kube.create("one", sessionId="7", idleTimeoutSeconds=120, launch={"command": ["bash"]})
        await world.pass_time(MINUTE)
        world.kube.refuses_writes = True
        await world.pass_time(timedelta(minutes=5))
        assert world.sprites.sprites["box"].sessions == {}

        world.kube.patch("one", attached=True, activeSocketId="somebody")
        world.kube.refuses_writes = False
        await world.pass_time(timedelta(minutes=6))

        assert world.reason("one") == "Running"
        assert world.status("one")["session"]["id"] in world.sprites.sprites["box"].sessions
        await world.pass_time(timedelta(hours=2))
        assert world.sprites.count()["kill_session", "kill"] == 1


@pytest.mark.looptime
async def test_a_gateway_whose_lease_lies_in_another_namespace_is_never_taken_for_dead_and_its_lock_stands(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranger = make_incarnation("stranger", lease_namespace="elsewhere")
    async with MemoryWorld() as world:
        add_session(world)
        world.kube.create("one", sessionId="7")
        await world.pass_time(5 * SECOND)
        world.kube.attach("one", stranger)

        # No Lease of it is ever found here.
        await world.pass_time(timedelta(hours=2))

        assert world.reason("one", "Attached") == "Viewer"
        assert world.status("one")["socket"]["incarnation"] == stranger
        assert "swept one" not in world.kube.writes
    told = [record for record in caplog.records if record.message == LEASE_ELSEWHERE]
    assert [record.__dict__["incarnation"] for record in told] == [stranger]

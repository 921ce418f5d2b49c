"""The operator's writes: on what they rest, what they carry, and what becomes of them when the object has moved on."""

import copy
from collections.abc import Mapping
from typing import Any, Final

import pytest

from controller.api.names import FINALIZER
from controller.api.terminal import ExitStatus, KillStatus, KillTrigger, TerminalStatus, read_status
from controller.engine.registry import Registry, Snapshot
from controller.engine.writer import Outrun, Writer
from controller.kube.errors import Cause, Conflict, Invalid, KubeError, NotFound, ServerFault
from controller.tenure import Tenure

UID, OTHER_UID = "uid-1", "uid-2"


def build_object(*, uid: str = UID, version: int = 7, **fields: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "team",
        "name": "one",
        "uid": uid,
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {
        "metadata": {**metadata, **fields.pop("metadata", {})},
        "spec": {"spriteName": "box", "sessionId": "41"},
        **fields,
    }


class FakeObjects:
    """One object: it answers each write with a newer version, or raises; a read gives what is there."""

    def __init__(self, current: dict[str, Any] | None) -> None:
        self.current = current
        self.error: KubeError | None = None
        self.sent: list[tuple[str, Any]] = []
        self.reads = 0

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        self.reads += 1
        if self.current is None:
            raise NotFound("Gone.", status=404)
        return copy.deepcopy(self.current)

    async def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure
    ) -> dict[str, Any]:
        self.sent.append((f"{namespace}/{name} status", patch))
        return self._answer({"status": {**(self.current or {}).get("status", {}), **patch["status"]}})

    async def patch_json(
        self, namespace: str, name: str, operations: list[dict[str, Any]], *, subresource: str | None, tenure: Tenure
    ) -> dict[str, Any]:
        self.sent.append((f"{namespace}/{name} {subresource}", operations))
        finalizers = [FINALIZER] if operations[-1]["op"] == "add" else []
        assert self.current is not None
        return self._answer({"metadata": {**self.current["metadata"], "finalizers": finalizers}})

    def _answer(self, change: dict[str, Any]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        assert self.current is not None
        self.current = {**self.current, **change}
        metadata = self.current["metadata"]
        self.current["metadata"] = {**metadata, "resourceVersion": str(int(metadata["resourceVersion"]) + 1)}
        return copy.deepcopy(self.current)


class Bench:
    def __init__(self, stored: dict[str, Any] | None = None, *, lacking: frozenset[str] = frozenset()) -> None:
        stored = stored or build_object()
        self.objects = FakeObjects(stored)
        self.registry = Registry()
        self.known: list[Snapshot] = []
        self.snapshot = Snapshot.of(copy.deepcopy(stored))
        self.registry.observe(self.snapshot)
        self.writer = Writer(self.objects, self.registry, Tenure(1), on_known=self.known.append, lacking=lacking)

    def registered(self, uid: str = UID) -> str | None:
        found = self.registry.get(uid)
        return None if found is None else found.resource_version


SEEN = TerminalStatus(observed_generation=1, exit=ExitStatus(code=3))


# --- status -----------------------------------------------------------------------------------------------------------


async def test_a_status_is_written_against_the_uid_and_version_that_were_judged() -> None:
    bench = Bench()

    written = await bench.writer.write_status(bench.snapshot, SEEN)

    ((where, patch),) = bench.objects.sent
    assert where == "team/one status"
    assert patch["metadata"] == {"uid": UID, "resourceVersion": "7"}
    assert patch["status"]["exit"] == {"code": 3}
    assert written.resource_version == "8"
    assert read_status(written.status()) == SEEN


async def test_only_what_differs_is_sent() -> None:
    bench = Bench()
    first = await bench.writer.write_status(bench.snapshot, SEEN)

    await bench.writer.write_status(first, SEEN.model_copy(update={"exit": None, "observed_generation": 2}))

    assert bench.objects.sent[-1][1]["status"] == {"exit": None, "observedGeneration": 2}


async def test_the_gateways_parts_are_neither_written_nor_removed() -> None:
    lock = {"uid": UID, "epoch": 2, "socketId": "at1.x", "incarnation": "gw-1"}
    bench = Bench(build_object(status={"socket": lock, "gateways": [{"incarnation": "gw-1"}]}))

    await bench.writer.write_status(bench.snapshot, SEEN)

    patch = bench.objects.sent[0][1]["status"]
    assert {"socket", "gateways"} & patch.keys() == set()


async def test_our_own_write_is_known_before_the_watch_tells_of_it() -> None:
    bench = Bench()

    await bench.writer.write_status(bench.snapshot, SEEN)

    assert bench.registered() == "8"
    assert [snapshot.resource_version for snapshot in bench.known] == ["8"]


# --- an older CRD -----------------------------------------------------------------------------------------------------

KILL = KillStatus(trigger=KillTrigger.DELETED, proof="SessionList", attempts=2)


async def test_a_status_is_not_sent_where_the_watch_has_told_that_it_would_be_refused() -> None:
    bench = Bench()
    newer = Snapshot.of(build_object(version=8, status={"socket": {"uid": UID}}))
    bench.registry.observe(newer)

    with pytest.raises(Outrun):
        await bench.writer.write_status(bench.snapshot, SEEN)

    assert (bench.objects.sent, bench.objects.reads) == ([], 0)
    assert bench.registry.get(UID) == newer


async def test_what_the_installed_crd_lacks_is_never_sent() -> None:
    bench = Bench(lacking=frozenset({"status.exit", "status.kill.proof", "status.conditions[].observedGeneration"}))

    await bench.writer.write_status(bench.snapshot, SEEN.model_copy(update={"kill": KILL}))

    patch = bench.objects.sent[0][1]["status"]
    assert "exit" not in patch
    assert patch["kill"]["attempts"] == 2
    assert "proof" not in patch["kill"]
    assert all("observedGeneration" not in condition for condition in patch["conditions"])


async def test_a_status_is_compared_as_the_installed_crd_can_hold_it() -> None:
    bench = Bench(lacking=frozenset({"status.exit", "status.kill.proof"}))
    status = SEEN.model_copy(update={"kill": KILL})

    fitted = bench.writer.fit(status)
    written = await bench.writer.write_status(bench.snapshot, status)

    assert (fitted.exit, fitted.kill) == (None, KILL.model_copy(update={"proof": None}))
    assert read_status(written.status()) == fitted


async def test_with_our_own_crd_a_status_stays_as_it_is() -> None:
    assert Bench().writer.fit(SEEN) is SEEN


# --- the finalizer ----------------------------------------------------------------------------------------------------


async def test_the_finalizer_is_placed_once_and_only_on_the_object_that_was_judged() -> None:
    bench = Bench()

    placed = await bench.writer.place_finalizer(bench.snapshot)
    again = await bench.writer.place_finalizer(placed)

    assert placed.finalizers == (FINALIZER,)
    assert again is placed
    ((where, operations),) = bench.objects.sent
    assert where == "team/one None"
    assert {"op": "test", "path": "/metadata/uid", "value": UID} in operations
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in operations


async def test_an_object_whose_last_finalizer_goes_is_forgotten_and_another_is_kept() -> None:
    marked = {"deletionTimestamp": "2026-01-01T01:00:00Z", "finalizers": [FINALIZER]}
    deleted, alive = Bench(build_object(metadata=marked)), Bench(build_object(metadata={"finalizers": [FINALIZER]}))

    for bench in (deleted, alive):
        await bench.writer.remove_finalizer(bench.snapshot)

    assert deleted.registered() is None
    assert alive.registered() == "8"


@pytest.mark.parametrize(
    ("fields", "path"), [({"status": {"phase": "Exited"}}, "/status/socket"), ({}, "/status")], ids=["status", "none"]
)
async def test_the_finalizer_goes_only_while_no_gateway_holds_the_lock(fields: dict[str, Any], path: str) -> None:
    bench = Bench(build_object(metadata={"finalizers": [FINALIZER]}, **fields))

    await bench.writer.remove_finalizer(bench.snapshot)

    ((_, operations),) = bench.objects.sent
    assert {"op": "test", "path": path, "value": None} in operations


# --- what a dead gateway left -----------------------------------------------------------------------------------------

SWEEP: Final = [{"op": "test", "path": "/metadata/uid", "value": UID}, {"op": "remove", "path": "/status/socket"}]


async def test_a_sweep_is_a_json_patch_of_the_status_that_tests_no_version() -> None:
    bench = Bench()

    swept = await bench.writer.sweep(bench.snapshot, SWEEP)

    assert bench.objects.sent == [("team/one status", SWEEP)]
    assert swept.resource_version == "8"
    assert bench.registered() == "8"


async def test_a_sweep_that_brings_news_of_the_spec_lets_the_visit_begin_anew() -> None:
    bench = Bench()
    bench.objects.current = build_object(version=8, metadata={"generation": 2})

    with pytest.raises(Outrun, match="has changed"):
        await bench.writer.sweep(bench.snapshot, SWEEP)

    assert bench.registered() == "9"


async def test_a_finalizer_that_is_not_there_is_not_removed() -> None:
    bench = Bench()

    await bench.writer.remove_finalizer(bench.snapshot)

    assert bench.objects.sent == []


# --- an object that has moved on --------------------------------------------------------------------------------------

RACES = [Conflict("Changed.", status=409), Invalid("A test failed.", status=422), NotFound("Gone.", status=404)]


@pytest.mark.parametrize("error", RACES)
async def test_a_write_that_was_outrun_reads_the_object_again_and_begins_anew(error: KubeError) -> None:
    bench = Bench()
    bench.objects.current = build_object(version=9)
    bench.objects.error = error

    with pytest.raises(Outrun, match="team/one has changed"):
        await bench.writer.write_status(bench.snapshot, SEEN)

    assert bench.registered() == "9"
    assert [snapshot.resource_version for snapshot in bench.known] == ["9"]


@pytest.mark.parametrize("error", RACES)
async def test_a_write_to_an_object_that_is_gone_forgets_it(error: KubeError) -> None:
    bench = Bench()
    bench.objects.current = None
    bench.objects.error = error

    with pytest.raises(Outrun, match="is gone"):
        await bench.writer.write_status(bench.snapshot, SEEN)

    assert bench.registered() is None


async def test_a_successor_of_the_same_name_is_taken_in_and_the_former_one_forgotten() -> None:
    bench = Bench()
    bench.objects.current = build_object(uid=OTHER_UID, version=12)
    bench.objects.error = Conflict("Another uid.", status=409)

    with pytest.raises(Outrun):
        await bench.writer.write_status(bench.snapshot, SEEN)

    assert bench.registered() is None
    assert bench.registered(OTHER_UID) == "12"


async def test_a_rule_that_spoke_is_no_race_and_is_told() -> None:
    bench = Bench()
    bench.objects.error = Invalid("No.", status=422, causes=(Cause("status.exit", "No."),), spoke=True)

    with pytest.raises(Invalid):
        await bench.writer.write_status(bench.snapshot, SEEN)

    assert bench.objects.reads == 0


async def test_a_failure_of_the_server_is_the_callers_to_repeat() -> None:
    bench = Bench()
    bench.objects.error = ServerFault("Down.", status=500)

    with pytest.raises(ServerFault):
        await bench.writer.place_finalizer(bench.snapshot)

    assert bench.registered() == "7"

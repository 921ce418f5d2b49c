"""The registry: newest wins, gone stays gone, ten thousand objects stay small."""

import gc
import tracemalloc
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.engine.registry import TOMBSTONES_MAX, Change, Registry, Snapshot


def raw_terminal(
    *,
    uid: str = "u1",
    name: str = "one",
    namespace: str = "team",
    version: int = 10,
    sprite: str = "box",
    **metadata: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "agentterminal.dev/v1alpha1",
        "kind": "AgentTerminal",
        "metadata": {
            "uid": uid,
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(version),
            "generation": 3,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            **metadata,
        },
        "spec": {"spriteName": sprite, "launch": {"command": ["claude"]}},
        "status": {"phase": "Pending"},
    }


def terminal(**arguments: Any) -> Snapshot:
    return Snapshot.of(raw_terminal(**arguments))


@pytest.fixture
def registry() -> Registry:
    return Registry()


OURS, FLUXS = "reconcile.agentterminal.dev/requestedAt", "reconcile.fluxcd.io/requestedAt"


@pytest.mark.parametrize(
    ("annotations", "token"),
    [
        ({}, None),
        ({OURS: "a"}, "a"),
        ({FLUXS: "b"}, "b"),
        ({OURS: "a", FLUXS: "b"}, "a"),
        ({OURS: "", FLUXS: "b"}, "b"),
        ({OURS: ""}, None),
    ],
    ids=["nobody asks", "ours", "Flux's", "ours counts", "an empty one asks for nothing", "nothing at all"],
)
def test_of_the_requests_for_a_look_one_counts(annotations: dict[str, str], token: str | None) -> None:
    assert terminal(annotations=annotations).requested_at() == token


def test_a_snapshot_keeps_what_we_work_with_and_drops_the_rest() -> None:
    raw = raw_terminal(
        finalizers=["agentterminal.dev/session", "other/one"],
        deletionTimestamp="2026-01-02T04:00:00Z",
        annotations={
            "reconcile.agentterminal.dev/requestedAt": "today",
            "reconcile.fluxcd.io/requestedAt": "now",
            "agentterminal.dev/x": "1",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
    )
    snapshot = Snapshot.of(raw)
    assert snapshot == Snapshot(
        uid="u1",
        namespace="team",
        name="one",
        resource_version="10",
        version=10,
        generation=3,
        created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        deleted=datetime(2026, 1, 2, 4, tzinfo=UTC),
        finalizers=("agentterminal.dev/session", "other/one"),
        annotations=(
            ("agentterminal.dev/x", "1"),
            ("reconcile.agentterminal.dev/requestedAt", "today"),
            ("reconcile.fluxcd.io/requestedAt", "now"),
        ),
        sprite="box",
        spec_json=b'{"spriteName":"box","launch":{"command":["claude"]}}',
        status_json=b'{"phase":"Pending"}',
    )
    assert snapshot.spec() == raw["spec"]
    assert snapshot.status() == raw["status"]
    assert snapshot.annotation("agentterminal.dev/x") == "1"
    assert snapshot.annotation("agentterminal.dev/y") is None


def test_an_object_without_status_or_annotations_has_empty_ones() -> None:
    raw = raw_terminal()
    del raw["status"]
    snapshot = Snapshot.of(raw)
    assert (snapshot.status(), snapshot.annotations, snapshot.finalizers, snapshot.deleted) == ({}, (), (), None)


def test_the_first_word_is_new_a_later_version_newer_and_an_equal_or_older_one_stale(registry: Registry) -> None:
    changes = [registry.observe(terminal(version=version)) for version in (10, 9, 10, 100, 99)]
    assert changes == [Change.NEW, Change.STALE, Change.STALE, Change.NEWER, Change.STALE]
    known = registry.get("u1")
    assert known is not None
    assert known.version == 100


def test_versions_are_compared_as_numbers_and_not_as_text(registry: Registry) -> None:
    registry.observe(terminal(version=9))
    assert registry.observe(terminal(version=10)) is Change.NEWER


def test_a_late_word_does_not_bring_a_forgotten_object_back(registry: Registry) -> None:
    registry.observe(terminal())
    assert registry.forget("u1") == terminal()
    assert registry.observe(terminal(version=99)) is Change.STALE
    assert "u1" not in registry
    assert registry.find("team", "one") is None
    assert registry.by_sprite("box") == ()


def test_the_first_word_about_an_object_that_is_already_gone_is_not_believed(registry: Registry) -> None:
    assert registry.forget("u1") is None
    assert registry.observe(terminal()) is Change.STALE


def test_only_so_many_deletions_are_remembered(registry: Registry) -> None:
    for number in range(TOMBSTONES_MAX + 1):
        registry.forget(f"u{number}")
    assert registry.observe(terminal(uid="u1")) is Change.STALE
    assert registry.observe(terminal(uid="u0")) is Change.NEW
    assert len(registry._tombstones) == TOMBSTONES_MAX


def test_objects_are_found_by_name_in_their_namespace(registry: Registry) -> None:
    registry.observe(terminal())
    registry.observe(terminal(uid="u2", namespace="other"))
    found = registry.find("other", "one")
    assert found is not None
    assert found.uid == "u2"
    assert registry.find("other", "two") is None


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_objects_of_one_name_the_later_bears_it_and_the_earlier_is_gone(
    registry: Registry, order: tuple[int, int]
) -> None:
    both = (terminal(uid="old", version=10), terminal(uid="young", version=20))
    for position in order:
        assert registry.observe(both[position]) is Change.NEW
    found = registry.find("team", "one")
    assert found is not None
    assert found.uid == "young"
    assert registry.take_displaced() == ("old",)
    assert registry.take_displaced() == ()
    registry.forget("old")
    assert registry.find("team", "one") == found


def test_an_object_forgotten_in_time_was_not_displaced(registry: Registry) -> None:
    registry.observe(terminal(uid="old", version=10))
    registry.forget("old")
    registry.observe(terminal(uid="young", version=20))
    assert registry.take_displaced() == ()


def test_objects_are_listed_by_sprite_in_the_order_of_their_first_word(registry: Registry) -> None:
    registry.observe(terminal(uid="b", name="b"))
    registry.observe(terminal(uid="a", name="a", namespace="other"))
    registry.observe(terminal(uid="c", name="c", sprite="else"))
    registry.observe(terminal(uid="b", name="b", version=11))
    assert registry.by_sprite("box") == ("b", "a")
    assert registry.by_sprite("box", namespace="other") == ("a",)
    assert registry.by_sprite("none") == ()


def test_the_registry_may_change_while_it_is_walked(registry: Registry) -> None:
    for number in range(3):
        registry.observe(terminal(uid=f"u{number}", name=f"n{number}"))
    for snapshot in registry:
        registry.forget(snapshot.uid)
    assert len(registry) == 0


def raw_full_terminal(number: int) -> dict[str, Any]:
    """An object as it is in life: nine conditions with sentences, a launch, a kubectl annotation."""
    raw = raw_terminal(uid=f"00000000-0000-4000-8000-{number:012d}", name=f"terminal-{number}", version=1000 + number)
    raw["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 600}
    raw["metadata"]["finalizers"] = ["agentterminal.dev/session"]
    raw["spec"] = {"spriteName": f"box-{number % 500}", "launch": {"command": ["claude", "--resume", str(number)]}}
    raw["status"] = {
        "observedGeneration": 3,
        "phase": "Running",
        "session": {"id": str(number), "created": "2026-01-02T03:04:05.123456Z", "spriteId": f"sprite-{number}"},
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": "Running",
                "message": f"The session {number} of the sprite box-{number % 500} is alive and nobody asks for more.",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
                "observedGeneration": 3,
            }
            for kind in (
                "Ready", "Reconciling", "Stalled", "SessionLive", "Attached", "Held", "Fenced", "Terminated",
                "SpriteReachable",
            )
        ],
    }  # fmt: skip
    return raw


def test_ten_thousand_objects_with_nine_conditions_stay_below_45_mb() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        registry = Registry()
        for number in range(10_000):
            registry.observe(Snapshot.of(raw_full_terminal(number)))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(registry) == 10_000
    assert held < 45_000_000

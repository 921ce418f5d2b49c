"""Which words about an object bring it back, which are only the echo of our own writes, and what may wait."""

from typing import Any

import pytest

from controller.api.names import FINALIZER
from controller.engine.operator import is_at_rest, judge_word
from controller.engine.registry import Snapshot
from controller.plan.news import GATHERED_WITHIN, News


def build(status: dict[str, Any] | None = None, version: int = 1, **metadata: Any) -> Snapshot:
    return Snapshot.of(
        {
            "metadata": {
                "uid": "u",
                "namespace": "default",
                "name": "one",
                "resourceVersion": str(version),
                "creationTimestamp": "2026-11-30T12:00:00Z",
                "generation": 1,
                "finalizers": [FINALIZER],
                **metadata,
            },
            "spec": {"spriteName": "box"},
            "status": status or {"phase": "Pending"},
        }
    )


@pytest.mark.parametrize(
    "word",
    [
        build(version=2),
        build({"phase": "Detached", "conditions": [{"type": "Ready"}]}, version=2),
        build(version=2, labels={"team": "a"}),
        build(version=2, finalizers=[FINALIZER, "other/one"]),
    ],
    ids=["nothing differs", "a status of ours", "a label", "the finalizer of another"],
)
def test_an_echo_of_our_own_write_is_no_news(word: Snapshot) -> None:
    assert judge_word(build(), word) is News.NONE


def test_our_finalizer_on_an_object_is_no_news() -> None:
    assert judge_word(build(finalizers=[]), build(version=2)) is News.NONE


@pytest.mark.parametrize(
    "word",
    [
        build(version=2, generation=2),
        build(version=2, deletionTimestamp="2026-11-30T12:00:00Z"),
        build(version=2, finalizers=[]),
        build(version=2, annotations={"agentterminal.dev/activity": "now"}),
        build(version=2, annotations={"reconcile.agentterminal.dev/requestedAt": "now"}),
        build(version=2, annotations={"reconcile.fluxcd.io/requestedAt": "now"}),
    ],
    ids=["a spec", "a deletion", "our finalizer was taken", "activity", "a request", "Flux's"],
)
def test_what_somebody_else_says_is_news(word: Snapshot) -> None:
    assert judge_word(build(), word) is News.OTHER


@pytest.mark.parametrize(
    "word",
    [
        build({"phase": "Pending", "socket": {"uid": "u"}}, version=2),
        build({"phase": "Pending", "gateways": [{"incarnation": "a", "viewers": 1}]}, version=2),
    ],
    ids=["a lock", "a gateway"],
)
def test_what_gateways_say_of_people_is_news_of_people(word: Snapshot) -> None:
    assert judge_word(build(), word) in GATHERED_WITHIN


@pytest.mark.parametrize(
    ("asked", "handled", "rests"),
    [(None, None, True), (None, "once", True), ("now", "now", True), ("now", None, False), ("now", "once", False)],
)
def test_whatever_was_asked_for_a_look_does_not_rest_when_another_begins_to_lead(
    asked: str | None, handled: str | None, *, rests: bool
) -> None:
    ready = [{"type": "Ready", "status": "True"}, {"type": "Reconciling", "status": "False"}]
    status = {"observedGeneration": 1, "conditions": ready, "lastHandledReconcileAt": handled}
    annotations = {} if asked is None else {"reconcile.agentterminal.dev/requestedAt": asked}
    snapshot = build(status, annotations=annotations)

    assert is_at_rest(snapshot, snapshot.spec(), snapshot.status()) is rests

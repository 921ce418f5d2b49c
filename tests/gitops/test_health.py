"""What Flux and Argo CD say about the recorded objects, and what our rule for Argo CD says about strange ones."""

from pathlib import Path
from typing import Any

import pytest

from controller.api.situations import Phase
from tests.gitops.judges import ArgoRule, Health, judge_by_kstatus
from tests.gitops.lives import SCENES
from tests.gitops.recorded import read_recorded

RECORDED = read_recorded()


@pytest.fixture(scope="module")
def rule() -> ArgoRule:
    return ArgoRule()


@pytest.mark.parametrize("name", SCENES)
def test_argo_cd_gives_the_right_word_and_a_sentence(rule: ArgoRule, name: str) -> None:
    health, message = rule.judge(RECORDED[name])

    assert health is SCENES[name].words.argo
    assert message
    assert message[0].isupper()


def test_kstatus_gives_the_right_word(kstatus: Path) -> None:
    words = judge_by_kstatus(kstatus, [RECORDED[name] for name in SCENES])

    assert dict(zip(SCENES, words, strict=True)) == {name: scene.words.kstatus for name, scene in SCENES.items()}


def test_every_phase_is_recorded_and_twenty_objects_at_least() -> None:
    assert {document["status"]["phase"] for document in RECORDED.values()} == {phase.value for phase in Phase}
    assert len(RECORDED) >= 20


def build(conditions: list[dict[str, Any]] | None, **metadata: Any) -> dict[str, Any]:
    status = {} if conditions is None else {"status": {"observedGeneration": 2, "conditions": conditions}}
    return {"metadata": {"generation": 2, **metadata}, "spec": {}, **status}


READY = {"type": "Ready", "status": "True", "reason": "Running", "message": "It runs."}


@pytest.mark.parametrize(
    ("document", "health", "message"),
    [
        (build(None), Health.PROGRESSING, "The operator has not seen this generation yet"),
        (build([]), Health.PROGRESSING, "Waiting for the operator"),
        (build([READY]), Health.HEALTHY, "It runs."),
        (build([{**READY, "message": ""}]), Health.HEALTHY, "Running"),
        (build([READY], generation=3), Health.PROGRESSING, "The operator has not seen this generation yet"),
        (build([READY], deletionTimestamp="2026-01-31T08:00:00Z"), Health.PROGRESSING, "Pending deletion"),
        (build([{**READY, "status": "Unknown", "reason": "ApiIncident"}]), Health.PROGRESSING, "It runs."),
        (build([READY, {"type": "Stalled", "status": "True", "reason": "Lost"}]), Health.DEGRADED, "Lost"),
    ],
    ids=["no status", "no conditions", "Ready", "no message", "older", "deleted", "Unknown", "both"],
)
def test_a_condition_that_is_missing_or_old_never_makes_it_healthy(
    rule: ArgoRule, document: dict[str, Any], health: Health, message: str
) -> None:
    assert rule.judge(document) == (health, message)


def test_a_rule_without_the_question_for_the_generation_would_be_noticed() -> None:
    """The judge itself is tried: the same script, with that question taken out, calls an edited object healthy."""
    script = Path(__file__).parents[2].joinpath("config/argocd/health.lua").read_text(encoding="utf-8")
    blind = script.replace("status.observedGeneration ~= obj.metadata.generation", "false")

    assert blind != script
    assert ArgoRule(blind).judge(RECORDED["edited"])[0] is Health.HEALTHY

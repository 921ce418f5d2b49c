"""While the platform has an incident nothing is proven, forgotten or started, whatever was seen before."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.session import Announced, KillAnswer, SpriteState
from controller.api.situations import BLIND, Situation, judge_readiness
from controller.api.terminal import KillTrigger
from controller.errors import Failure
from controller.plan.breaker import PROBE_INTERVAL, Breaker, describe_incident
from controller.plan.facts import Facts, Memory
from controller.plan.kill import KillProgress, note_barred
from controller.plan.looks import LookFailed
from controller.plan.status import build_status
from controller.plan.steps import LookAtSprite, ReleaseObject, Rest
from controller.plan.terminal import plan_terminal
from tests.plan.building import (
    ADOPTED,
    INTENDED,
    MILLISECOND,
    NOON,
    NOW,
    SESSION,
    build_away,
    build_end,
    build_facts,
    build_list,
    build_seen,
    build_spec,
    decide,
    decide_step,
)

OPEN = Breaker(refused={"a": NOW, "b": NOW, "c": NOW}, opened=NOW)
INCIDENT = LookFailed(Failure.API_INCIDENT, describe_incident(OPEN), NOW, PROBE_INTERVAL)
ENDED = ADOPTED.model_copy(update={"ended": build_end("Lost")})
SETTLED = KillProgress(
    asked=NOW - timedelta(seconds=9),
    asked_time=NOON,
    attempts=1,
    settled=KillAnswer.NOT_FOUND,
    settled_at=NOW - timedelta(seconds=5),
    settled_time=NOON,
    absent_at=NOW - timedelta(seconds=2),
)

PENDING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "terminated": ({"terminated": True}, {"session": ADOPTED}),
    "deleted": ({}, {"session": ADOPTED, "deleting": True}),
    "terminated during its launch": ({"terminated": True}, {"session": INTENDED}),
    "deleted during its launch": ({}, {"session": INTENDED, "deleting": True}),
    "to be launched": ({}, {}),
    "to be adopted": ({"sessionId": "41", "launch": None}, {}),
    "to be adopted and ended": ({"sessionId": "41", "terminated": True}, {}),
    "deleted while it was adopted": ({"sessionId": "41"}, {"deleting": True}),
    "a launch whose answer was lost": ({}, {"session": INTENDED}),
    "lost, and to be launched again": ({"relaunch": "OnLost", "attached": True}, {"session": ENDED}),
    "due to be reaped": ({"idleTimeoutSeconds": 1}, {"session": ADOPTED}),
}
SIGHTS: dict[str, dict[str, Any]] = {
    "nothing": {"sprite": INCIDENT, "sessions": INCIDENT},
    "the sprite gone for sure": {"sprite": build_away(confirmed=True)},
    "the sprite cold": {"sprite": build_seen(SpriteState.COLD)},
    "a list without the session": {"sessions": build_list()},
    "a list with the session": {"sessions": build_list(SESSION)},
}


def build(name: str, sight: str = "nothing", **more: Any) -> Facts:
    spec, facts = PENDING[name]
    built = build_facts(spec=build_spec(**spec), breaker=OPEN, **{**facts, **SIGHTS[sight], **more})
    detached = NOON - timedelta(hours=1)
    return replace(built, status=built.status.model_copy(update={"detached_time": detached}))


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("name", PENDING)
@pytest.mark.parametrize("memory", [Memory(), Memory(kill=SETTLED)], ids=["afresh", "a kill that waits for its proof"])
def test_what_is_pending_says_why_it_waits_and_keeps_all_that_it_has(name: str, sight: str, memory: Memory) -> None:
    facts = build(name, sight)
    plan = plan_terminal(facts, memory)
    if plan.step == LookAtSprite(NOW):
        # Nobody is asked: the observer answers by itself, and the status can say that nothing is known of the sprite.
        plan = plan_terminal(replace(facts, sprite=INCIDENT), plan.memory)

    rest = plan.step
    assert isinstance(rest, Rest)
    assert rest.outcome.situation is Situation.API_INCIDENT
    assert rest.outcome.session == facts.status.session
    assert rest.after == PROBE_INTERVAL
    assert not rest.retry
    assert plan.memory.kill == memory.kill
    assert "incident" in rest.outcome.message
    if facts.spec.terminated or facts.deleting:
        assert rest.outcome.terminated is not None
        assert rest.outcome.terminated.status is ConditionStatus.UNKNOWN
        assert rest.outcome.terminated.reason is Reason.API_INCIDENT
        assert "`deletionPolicy: Orphan`" in rest.outcome.message


def test_a_kill_that_waits_for_its_proof_keeps_what_it_has_come_to_in_the_status() -> None:
    step = plan_terminal(build("terminated"), Memory(kill=SETTLED)).step

    assert isinstance(step, Rest)
    assert step.outcome.kill is not None
    assert (step.outcome.kill.verdict, step.outcome.kill.proof) == ("NotFound", None)
    assert step.outcome.kill.trigger is KillTrigger.TERMINATED


@pytest.mark.parametrize("session", [ADOPTED, INTENDED, ENDED, None])
def test_orphan_lets_a_deleted_object_go_all_the_same(session: Any) -> None:
    spec = build_spec(deletionPolicy="Orphan", sessionId="41")

    assert isinstance(decide_step(build_facts(spec=spec, session=session, deleting=True, breaker=OPEN)), ReleaseObject)


def test_an_object_whose_end_was_proven_before_goes() -> None:
    assert decide_step(build_facts(session=ENDED, deleting=True, breaker=OPEN)) == ReleaseObject(None)


@pytest.mark.parametrize("sight", SIGHTS)
def test_what_lives_is_left_as_it_is_and_the_question_whether_it_does_stays_open(sight: str) -> None:
    facts = build_facts(session=ADOPTED, doubt=NOW - MILLISECOND, breaker=OPEN, **SIGHTS[sight])

    for spec in (facts.spec, build_spec(suspend=True)):
        step = decide_step(replace(facts, spec=spec))
        assert isinstance(step, Rest)
        assert step.outcome.situation in (Situation.DETACHED, Situation.SUSPENDED)
        assert step.outcome.session == ADOPTED
        assert step.outcome.live is None
        assert not step.outcome.doubt_settled


def test_what_lives_and_is_not_in_question_rests() -> None:
    step = decide_step(build_facts(session=ADOPTED, breaker=OPEN))

    assert isinstance(step, Rest)
    assert (step.outcome.situation, step.retry) == (Situation.DETACHED, False)


def test_a_session_that_was_just_created_is_recorded_all_the_same() -> None:
    announced = Announced("77", NOON)

    step = decide(build_facts(session=INTENDED, announced=announced, breaker=OPEN)).step

    assert isinstance(step, Rest)
    assert step.outcome.session is not None
    assert step.outcome.session.id == "77"


def test_the_status_says_of_the_sprite_that_nothing_is_known() -> None:
    facts = build("terminated")
    step = decide_step(facts)
    assert isinstance(step, Rest)

    status = build_status(
        facts.status, step.outcome, spec=facts.spec, generation=1, sprite=INCIDENT, requested_at=None, now=NOON
    )

    told = {condition.type: (condition.status, condition.reason) for condition in status.conditions}
    unknown = (ConditionStatus.UNKNOWN, "ApiIncident")
    assert (
        told[ConditionType.SPRITE_REACHABLE] == told[ConditionType.READY] == told[ConditionType.TERMINATED] == unknown
    )
    assert told[ConditionType.RECONCILING] == (ConditionStatus.TRUE, "ApiIncident")
    assert told[ConditionType.STALLED] == (ConditionStatus.FALSE, "ApiIncident")
    assert judge_readiness(Situation.API_INCIDENT) is BLIND


def test_a_kill_that_was_never_sent_is_no_attempt() -> None:
    progress = replace(SETTLED, settled=None)

    held_back, step = note_barred(progress, INCIDENT)
    turned_away, _ = note_barred(progress, replace(INCIDENT, failure=Failure.THROTTLED))

    assert (held_back.attempts, turned_away.attempts) == (1, 2)
    assert (step.situation, step.reason, step.after) == (Situation.API_INCIDENT, Reason.API_INCIDENT, PROBE_INTERVAL)

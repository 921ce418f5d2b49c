"""Who may wake a paused sprite, and how often. The same on the whole engine: tests/engine/test_wake_list.py."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.session import Cause, Identity, SpriteState
from controller.api.situations import Situation
from controller.api.terminal import SessionStatus, TerminalStatus
from controller.errors import Failure
from controller.plan.facts import Facts, Memory, Wakes
from controller.plan.looks import NOT_LOOKED, LookFailed, SpriteLook
from controller.plan.status import is_true
from controller.plan.steps import (
    BarLaunch,
    LookAtProcesses,
    LookAtSessions,
    LookAtSprite,
    Plan,
    ProbeLaunch,
    Rest,
    SendKill,
    StartSession,
    Step,
)
from controller.plan.wakes import guard_wake, may_wake, note_wake
from tests.plan.building import (
    ADOPTED,
    CREATED,
    INTENDED,
    INTENT,
    MILLISECOND,
    NOW,
    SPRITE_ID,
    build_away,
    build_end,
    build_facts,
    build_list,
    build_seen,
    build_spec,
)

PAUSED = build_seen(SpriteState.WARM)
CAME = build_spec(attached=True, activeSocketId="new")
USED = Memory(wakes=Wakes(1, 1))


def ended(reason: str, **fields: Any) -> SessionStatus:
    return ADOPTED.model_copy(update={"ended": build_end(reason, **fields)})


def observed(situation: Situation, session: SessionStatus | None = None, generation: int = 1) -> TerminalStatus:
    """A status that says so of a generation."""
    status = TerminalStatus(observed_generation=generation, session=session)
    conditions = tuple(
        condition.model_copy(update={"status": ConditionStatus.TRUE, "reason": situation.value})
        if condition.type is ConditionType.RECONCILING
        else condition
        for condition in status.conditions
    )
    return status.model_copy(update={"conditions": conditions})


@pytest.mark.parametrize(
    ("facts", "memory", "may"),
    [
        (build_facts(), Memory(), True),
        (build_facts(), USED, False),
        (build_facts(generation=2), USED, True),
        (build_facts(spec=build_spec(suspend=True)), Memory(), False),
        (build_facts(status=observed(Situation.SESSION_NOT_FOUND)), Memory(), False),
        (build_facts(status=observed(Situation.SESSION_NOT_FOUND), generation=2), Memory(), True),
        (build_facts(status=observed(Situation.SESSION_TAKEN)), Memory(), False),
        (build_facts(status=observed(Situation.SPRITES_UNAVAILABLE)), Memory(), True),
        (build_facts(session=INTENDED), Memory(), False),
        (build_facts(session=INTENDED, generation=2), Memory(), True),
        (build_facts(session=INTENDED, first_seen=NOW - timedelta(seconds=10)), Memory(), True),
        (build_facts(session=INTENDED, first_seen=NOW - timedelta(seconds=10)), USED, False),
        (build_facts(session=INTENDED, first_seen=NOW - timedelta(seconds=10) + MILLISECOND), Memory(), False),
        (build_facts(session=INTENDED, spec=build_spec(terminated=True)), Memory(wakes=Wakes(1, 4)), True),
        (build_facts(session=INTENDED, spec=build_spec(terminated=True)), Memory(wakes=Wakes(1, 5)), False),
        (build_facts(session=INTENDED, deleting=True), Memory(wakes=Wakes(1, 5)), False),
        (build_facts(session=ADOPTED), Memory(), False),
        (build_facts(session=ADOPTED, generation=2, spec=CAME), Memory(), False),
        (build_facts(session=ADOPTED, deleting=True), Memory(wakes=Wakes(1, 9)), True),
        (build_facts(session=ended("Lost"), spec=build_spec(relaunch="OnLost")), Memory(), False),
        (build_facts(session=ended("Lost"), spec=CAME), Memory(), True),
        (build_facts(session=ended("Lost"), spec=CAME), USED, False),
        (build_facts(session=ended("Lost", attached=True, socket_id="new"), spec=CAME), Memory(), False),
        (build_facts(session=ended("Exited", attached=True, socket_id="old"), spec=CAME), Memory(), True),
    ],
)
def test_only_a_change_of_the_spec_that_needs_it_may_wake_and_once(facts: Facts, memory: Memory, may: bool) -> None:
    assert may_wake(facts, memory) is may


LOOK = Plan(LookAtSessions(NOW, Cause.CHECK), Memory())


@pytest.mark.parametrize(
    ("sprite", "step"),
    [
        (build_seen(), LookAtSessions),
        (build_seen(age=timedelta(seconds=1)), LookAtSessions),
        (build_seen(age=timedelta(seconds=1) + MILLISECOND), LookAtSprite),
        (build_seen(SpriteState.UNKNOWN), LookAtSessions),
        (NOT_LOOKED, LookAtSprite),
        (PAUSED, Rest),
        (build_away(confirmed=False), LookAtSessions),
        (LookFailed(Failure.SERVER, "It is down.", NOW), Rest),
    ],
)
def test_what_may_not_wake_calls_only_where_the_sprite_was_seen_running_a_second_before(
    sprite: SpriteLook, step: type
) -> None:
    assert isinstance(guard_wake(build_facts(session=ADOPTED, sprite=sprite), LOOK).step, step)


@pytest.mark.parametrize(
    "step",
    [
        LookAtSessions(NOW, Cause.CHECK),
        LookAtProcesses(NOW),
        ProbeLaunch(INTENT),
        BarLaunch(INTENT),
        StartSession(INTENT),
        SendKill(Identity(SPRITE_ID, "41", CREATED)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_no_step_that_reaches_inside_gets_past_the_list(step: Step) -> None:
    paused = build_facts(session=ADOPTED, sprite=PAUSED)

    assert isinstance(guard_wake(paused, Plan(step, Memory())).step, Rest)
    assert guard_wake(replace(paused, sprite=build_seen()), Plan(step, Memory())).step == step


def test_a_sprite_that_has_just_answered_from_inside_runs_whatever_its_metadata_says() -> None:
    lately = build_facts(session=ADOPTED, sprite=PAUSED, sessions=build_list(age=timedelta(seconds=10)))
    before = replace(lately, sessions=build_list(age=timedelta(seconds=10) + MILLISECOND))

    assert guard_wake(lately, LOOK) == LOOK
    assert isinstance(guard_wake(before, LOOK).step, Rest)


@pytest.mark.parametrize(
    ("facts", "situation"),
    [
        (build_facts(session=INTENDED, sprite=PAUSED), Situation.WAKE_OWED),
        (build_facts(session=ADOPTED, sprite=PAUSED), Situation.REAP_OWED),
        (build_facts(session=ended("Lost"), sprite=PAUSED), Situation.RELAUNCHING),
        (build_facts(status=observed(Situation.SESSION_TAKEN), sprite=PAUSED), Situation.SESSION_TAKEN),
    ],
)
def test_what_is_owed_says_so(facts: Facts, situation: Situation) -> None:
    step = guard_wake(facts, LOOK).step

    assert isinstance(step, Rest)
    assert step.outcome.situation is situation


def test_an_end_that_has_used_its_wakes_is_owed_and_not_called_unasked() -> None:
    facts = build_facts(session=INTENDED, sprite=PAUSED, spec=build_spec(terminated=True))

    step = guard_wake(facts, replace(LOOK, memory=Memory(wakes=Wakes(1, 5)))).step

    assert isinstance(step, Rest)
    assert step.outcome.situation is Situation.KILL_OWED
    assert step.outcome.terminated is not None
    assert step.outcome.terminated.reason is Reason.KILL_OWED


@pytest.mark.parametrize("failure", Failure)
def test_a_call_that_did_not_get_through_has_used_no_wake(failure: Failure) -> None:
    kept = {
        Failure.UNREACHABLE,
        Failure.UNAUTHORIZED,
        Failure.FORBIDDEN,
        Failure.THROTTLED,
        Failure.API_INCIDENT,
    }

    assert (note_wake(Memory(), generation=1, failure=failure).wakes is None) is (failure in kept)


def test_wakes_are_counted_for_each_generation_anew() -> None:
    memory = note_wake(note_wake(Memory(), generation=1, failure=None), generation=1, failure=None)

    assert memory.wakes == Wakes(1, 2)
    assert note_wake(memory, generation=2, failure=None).wakes == Wakes(2, 1)


def test_a_new_object_says_of_no_condition_that_it_is_true() -> None:
    assert not any(is_true(TerminalStatus(), kind) for kind in ConditionType)

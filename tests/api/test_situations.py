"""The table of situations, one row each: what an object is in, and what its phase and three conditions say."""

from typing import Final

import pytest

from controller.api.conditions import ConditionStatus, Reason
from controller.api.situations import Phase, Readiness, Situation, judge_phase, judge_readiness

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
AS_BEFORE: Final = None

TABLE: Final = [
    # situation, phase, Ready, Reconciling, Stalled
    (Situation.RUNNING, Phase.RUNNING, TRUE, False, False),
    (Situation.DETACHED, Phase.DETACHED, TRUE, False, False),
    (Situation.HELD, Phase.HELD, TRUE, False, False),
    (Situation.PENDING, Phase.PENDING, FALSE, True, False),
    (Situation.STARTING, Phase.STARTING, FALSE, True, False),
    (Situation.RELAUNCHING, Phase.STARTING, FALSE, True, False),
    (Situation.TERMINATING, Phase.TERMINATING, FALSE, True, False),
    (Situation.REAP_OWED, Phase.DETACHED, FALSE, True, False),
    (Situation.WAKE_OWED, Phase.STARTING, FALSE, True, False),
    (Situation.KILL_OWED, Phase.TERMINATING, FALSE, True, False),
    (Situation.SPRITE_NOT_FOUND, Phase.PENDING, FALSE, True, False),
    (Situation.TERMINATED, Phase.TERMINATED, TRUE, False, False),
    (Situation.REAPED, Phase.EXITED, TRUE, False, False),
    (Situation.EXITED, Phase.EXITED, TRUE, False, False),
    (Situation.EXIT_UNSEEN, Phase.EXITED, TRUE, False, False),
    (Situation.LOST, Phase.LOST, FALSE, False, True),
    (Situation.SESSION_TAKEN, Phase.FAILED, FALSE, False, True),
    (Situation.SESSION_NOT_OURS, Phase.FAILED, FALSE, False, True),
    (Situation.SESSION_NOT_FOUND, Phase.FAILED, FALSE, False, True),
    (Situation.LAUNCH_UNCLEAR, Phase.FAILED, FALSE, False, True),
    (Situation.LAUNCH_REFUSED, Phase.FAILED, FALSE, False, True),
    (Situation.LAUNCH_INVALID, Phase.FAILED, FALSE, False, True),
    (Situation.TOKEN_NOT_ALLOWED, Phase.FAILED, FALSE, False, True),
    (Situation.SECRET_NOT_FOUND, Phase.FAILED, FALSE, False, True),
    (Situation.SECRET_KEY_MISSING, Phase.FAILED, FALSE, False, True),
    (Situation.TOKEN_INVALID, Phase.FAILED, FALSE, False, True),
    (Situation.TOKEN_REJECTED, Phase.FAILED, FALSE, False, True),
    (Situation.TOKEN_FORBIDDEN, Phase.FAILED, FALSE, False, True),
    (Situation.OBJECT_INVALID, Phase.FAILED, FALSE, False, True),
    (Situation.SUSPENDED, Phase.SUSPENDED, AS_BEFORE, False, False),
    (Situation.SPRITES_UNAVAILABLE, AS_BEFORE, UNKNOWN, True, False),
    (Situation.THROTTLED, AS_BEFORE, UNKNOWN, True, False),
    (Situation.API_INCIDENT, AS_BEFORE, UNKNOWN, True, False),
]


@pytest.mark.parametrize(("situation", "phase", "ready", "reconciling", "stalled"), TABLE, ids=str)
def test_a_situation_has_its_row(
    situation: Situation, phase: Phase | None, ready: ConditionStatus | None, reconciling: bool, stalled: bool
) -> None:
    assert judge_readiness(situation) == Readiness(ready, reconciling=reconciling, stalled=stalled)
    for before in Phase:
        assert judge_phase(situation, before) is (phase or before)


def test_every_situation_has_exactly_one_row() -> None:
    assert sorted(row[0] for row in TABLE) == sorted(Situation)


def test_every_situation_is_a_reason() -> None:
    assert {str(situation) for situation in Situation} <= {str(reason) for reason in Reason}


@pytest.mark.parametrize("situation", [known for known in Situation if known is not Situation.SUSPENDED])
def test_exactly_one_of_the_three_is_the_answer(situation: Situation) -> None:
    readiness = judge_readiness(situation)
    assert [readiness.ready is TRUE, readiness.reconciling, readiness.stalled].count(True) == 1


def test_every_phase_is_reached() -> None:
    reached = {judge_phase(situation, Phase.PENDING) for situation in Situation}
    assert reached == set(Phase)

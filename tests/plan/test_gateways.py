"""What a plan makes of gateways: who is asked about, what a restart still knows, and what waits for whom."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.session import KillAnswer
from controller.api.situations import Situation
from controller.api.terminal import DeletionPolicy, KillTrigger, TerminalSpec, TerminalStatus
from controller.plan.ends import EndReason, may_follow
from controller.plan.facts import Facts, Memory, ProvenEnd
from controller.plan.fence_ids import make_socket_id
from controller.plan.fence_objects import GatewayEntry, LeaseLook, LeaseView, Lock, NoLease, ObjectView
from controller.plan.gateways import (
    FAILED_WAIT_LIMIT,
    SELDOM,
    Interest,
    find_wait,
    find_wait_after_failure,
    is_alive_by,
    judge_interests,
    recall_gone,
)
from controller.plan.kill import KillEvidence, KillProgress, note_settled
from controller.plan.leftovers import NOTHING_LEFT
from controller.plan.resting import end_session
from controller.plan.status import build_status
from controller.plan.steps import LookAtSessions, Outcome, ReleaseObject, Rest, SendKill, SweepGateway
from controller.plan.teardown import find_asked, forget_proven
from tests.plan.building import (
    ADOPTED,
    INTENDED,
    MILLISECOND,
    NOON,
    NOW,
    SESSION,
    build_end,
    build_facts,
    build_list,
    build_spec,
    decide,
    decide_outcome,
    decide_step,
)

DEAD, OTHER = "deadgw01", "othergw1"
ID = make_socket_id(generation=4, incarnation=DEAD, luck="luckluck")
LOCK = Lock("uid-1", 5, ID, DEAD)
VIEW = ObjectView("uid-1", 5, 50)
GAP = timedelta(seconds=7)
ATTACHED = build_spec(attached=True, activeSocketId=ID)
DEADS: Final = frozenset({DEAD})


def locked_facts(**fields: Any) -> Facts:
    """A terminal whose lock is held, by a gateway that lives unless it is given as dead."""
    given = {"spec": ATTACHED, "view": replace(VIEW, attached=True, active_socket_id=ID, lock=LOCK), **fields}
    return build_facts(session=ADOPTED, **given)


# --- who is asked about -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "interests"),
    [
        (VIEW, {}),
        (replace(VIEW, attached=True, active_socket_id="foreign"), {}),
        (replace(VIEW, attached=True, active_socket_id=""), {}),
        (replace(VIEW, attached=True, active_socket_id=ID), {DEAD: Interest.NOW}),
        (replace(VIEW, attached=False, active_socket_id=ID), {DEAD: Interest.SOMETIME}),
        (replace(VIEW, lock=LOCK), {DEAD: Interest.NOW}),
        (replace(VIEW, gateways=(GatewayEntry(DEAD, 1),)), {DEAD: Interest.NOW}),
        (replace(VIEW, gateways=(GatewayEntry(DEAD, 0),)), {DEAD: Interest.SOMETIME}),
        (
            replace(VIEW, active_socket_id=ID, gateways=(GatewayEntry(OTHER, 2),)),
            {DEAD: Interest.SOMETIME, OTHER: Interest.NOW},
        ),
    ],
)
def test_a_gateway_matters_now_where_somebody_watches_through_it_or_it_holds_a_lock(
    view: ObjectView, interests: dict[str, Interest]
) -> None:
    assert judge_interests(view) == interests


@pytest.mark.parametrize(
    ("interest", "is_first", "wait"),
    [
        (Interest.NOW, True, GAP),
        (Interest.NOW, False, GAP),
        (Interest.SOMETIME, True, GAP),
        (Interest.SOMETIME, False, SELDOM),
    ],
)
def test_a_gateway_that_does_not_matter_is_looked_at_twice_and_then_seldom(
    interest: Interest, *, is_first: bool, wait: timedelta
) -> None:
    assert find_wait(GAP, interest, is_first=is_first) == wait


def test_failed_reads_are_repeated_ever_less_often_up_to_once_a_minute() -> None:
    waits = [find_wait_after_failure(failures) // timedelta(seconds=1) for failures in (0, 1, 2, 3, 4, 5, 6)]

    assert waits == [2, 2, 4, 8, 16, 32, 60]
    assert find_wait_after_failure(10_000) == FAILED_WAIT_LIMIT


@pytest.mark.parametrize(
    ("look", "alive"),
    [(None, False), (NoLease(), False), (LeaseView("u", "1", ""), False), (LeaseView("u", "1", DEAD), True)],
)
def test_only_a_lease_with_its_holder_denies_what_was_recorded(look: LeaseLook | None, *, alive: bool) -> None:
    assert is_alive_by(look, DEAD) is alive


# --- what a restart still knows ---------------------------------------------------------------------------------------


def judged(spec: TerminalSpec, *, generation: int, gone: frozenset[str]) -> TerminalStatus:
    outcome = Outcome(Situation.DETACHED, "", session=ADOPTED, kill=None)
    return build_status(
        TerminalStatus(),
        outcome,
        spec=spec,
        generation=generation,
        sprite=build_facts().sprite,
        requested_at=None,
        now=NOON,
        view=VIEW,
        gone=gone,
    )


@pytest.mark.parametrize(
    ("spec", "generation", "gone", "recalled"),
    [
        (ATTACHED, 5, DEADS, DEAD),
        (ATTACHED, 6, DEADS, DEAD),
        (ATTACHED, 5, frozenset(), None),
        (ATTACHED, 4, DEADS, None),
        (build_spec(attached=True, activeSocketId="foreign"), 5, DEADS, None),
        (build_spec(attached=False, activeSocketId=ID), 5, DEADS, None),
        (build_spec(attached=True), 5, DEADS, None),
    ],
    ids=["judged with it", "judged later", "alive", "before its claim", "foreign", "detached", "no id"],
)
def test_a_death_is_recalled_only_where_the_status_was_judged_with_this_socket_attached(
    spec: TerminalSpec, generation: int, gone: frozenset[str], recalled: str | None
) -> None:
    assert recall_gone(spec, judged(spec, generation=generation, gone=gone)) == recalled


def test_a_status_that_was_never_written_recalls_nobody() -> None:
    assert recall_gone(ATTACHED, TerminalStatus()) is None


# --- who counts -------------------------------------------------------------------------------------------------------


def test_the_status_of_a_terminal_whose_gateway_is_gone_says_so_and_begins_the_idle_time() -> None:
    alive, dead = (judged(ATTACHED, generation=5, gone=gone) for gone in (frozenset[str](), DEADS))

    assert (alive.detached_time, dead.detached_time) == (None, NOON)
    conditions = {condition.type: condition for condition in dead.conditions}
    assert conditions[ConditionType.ATTACHED].status is ConditionStatus.FALSE
    assert conditions[ConditionType.FENCED].reason == Reason.SOCKET_NAMED
    assert conditions[ConditionType.FENCED].message == "The gateway of the named socket is gone; nobody speaks."


def test_a_terminal_whose_gateway_is_gone_is_detached_and_reaped_in_time() -> None:
    assert decide_outcome(locked_facts()).situation is Situation.RUNNING
    assert decide_outcome(locked_facts(gone=DEADS)).situation is Situation.DETACHED

    long_ago = TerminalStatus(observed_generation=1, session=ADOPTED, detached_time=NOON - timedelta(hours=2))
    assert decide_outcome(locked_facts(status=long_ago)).situation is Situation.RUNNING
    assert isinstance(decide_step(locked_facts(status=long_ago, gone=DEADS)), LookAtSessions)


def test_an_attachment_whose_gateway_is_gone_was_there_at_the_end_and_starts_nothing_new() -> None:
    ended = end_session(locked_facts(gone=DEADS), ADOPTED, EndReason.REAPED).ended
    came = end_session(locked_facts(), ADOPTED, EndReason.REAPED).ended

    assert ended is not None
    assert came is not None
    assert not may_follow(ATTACHED, ended)
    assert may_follow(build_spec(attached=True, activeSocketId="another"), ended)
    assert may_follow(ATTACHED, came), "Of one that lives the status did not tell: they came after the end."


# --- sweeping and letting go ------------------------------------------------------------------------------------------


def test_what_is_left_of_the_dead_is_cleared_before_a_rest_one_write_at_a_time_and_the_lock_first() -> None:
    both = replace(VIEW, lock=LOCK, gateways=(GatewayEntry(DEAD, 1),))

    lock = decide_step(locked_facts(view=both, dead=DEADS, gone=DEADS))
    entry = decide_step(locked_facts(view=replace(both, lock=None), dead=DEADS, gone=DEADS))
    rest = decide_step(locked_facts(view=VIEW, dead=DEADS, gone=DEADS))

    assert isinstance(lock, SweepGateway)
    assert isinstance(entry, SweepGateway)
    assert lock.patch[-1] == {"op": "remove", "path": "/status/socket"}
    assert entry.patch[-1] == {"op": "remove", "path": "/status/gateways"}
    assert isinstance(rest, Rest)


def test_one_that_is_only_remembered_as_gone_loses_no_lock() -> None:
    assert isinstance(decide_step(locked_facts(gone=DEADS)), Rest)


RELEASES: Final = {
    "nothing to guard": {"status": TerminalStatus(observed_generation=1), "spec": build_spec(attached=True)},
    "ended": {
        "status": TerminalStatus(
            observed_generation=1, session=ADOPTED.model_copy(update={"ended": build_end("Exited")})
        )
    },
    "orphaned": {"spec": ATTACHED.model_copy(update={"deletion_policy": DeletionPolicy.ORPHAN})},
}


@pytest.mark.parametrize("fields", RELEASES.values(), ids=RELEASES)
def test_an_object_waits_for_a_holder_that_lives_whyever_it_goes(fields: dict[str, Any]) -> None:
    held = locked_facts(deleting=True, **fields)

    waiting = decide_outcome(held)
    swept = decide_step(replace(held, dead=DEADS))
    free = decide_step(replace(held, view=VIEW))

    assert waiting.situation is Situation.TERMINATING
    assert "A gateway may still speak" in waiting.message
    assert isinstance(swept, SweepGateway)
    assert isinstance(free, ReleaseObject)


# --- a proof that is not written yet ----------------------------------------------------------------------------------

PROVEN: Final = ProvenEnd(
    ADOPTED, KillEvidence.SESSION_LIST, NOTHING_LEFT, KillProgress(asked=NOW - GAP, asked_time=NOON - GAP, attempts=1)
)
KEPT: Final = Memory(proven=PROVEN)
DOWN: Final = build_spec(terminated=True)


def test_a_proof_is_kept_with_its_plan_until_the_end_stands_in_the_status() -> None:
    settled = note_settled(
        KillProgress(asked=NOW - GAP, asked_time=NOON), KillAnswer.COMPLETE, now=NOW - GAP, now_time=NOON
    )
    absent = replace(settled, absent_at=NOW - timedelta(seconds=1))
    facts = build_facts(session=ADOPTED, spec=build_spec(terminated=True), deleting=True, sessions=build_list())

    plan = decide(facts, Memory(kill=absent))

    assert isinstance(plan.step, ReleaseObject)
    assert plan.memory.proven is not None
    assert forget_proven(plan.memory, ADOPTED) == plan.memory
    ended = ADOPTED.model_copy(update={"ended": build_end("Terminated")})
    assert forget_proven(plan.memory, ended).proven is None
    assert forget_proven(plan.memory, None).proven is None


@pytest.mark.parametrize(
    ("fields", "situation", "trigger"),
    [
        ({"spec": DOWN}, Situation.TERMINATED, KillTrigger.TERMINATED),
        ({}, Situation.REAPED, KillTrigger.REAPED),
        ({"spec": build_spec(attached=True)}, Situation.REAPED, KillTrigger.REAPED),
        ({"spec": build_spec(suspend=True)}, Situation.REAPED, KillTrigger.REAPED),
    ],
    ids=["terminated", "reaped", "reaped, and somebody came", "reaped, and suspended"],
)
def test_a_proven_end_is_written_without_a_look_or_a_kill_though_the_session_seems_to_live_again(
    fields: dict[str, Any], situation: Situation, trigger: KillTrigger
) -> None:
    outcome = decide_outcome(build_facts(session=ADOPTED, sessions=build_list(SESSION), **fields), KEPT)

    assert outcome.situation is situation
    assert outcome.kill is not None
    assert (outcome.kill.trigger, outcome.kill.proof, outcome.kill.attempts) == (trigger, "SessionList", 1)
    assert find_asked(KEPT) == NOW - GAP


def test_the_proof_of_one_session_ends_no_other() -> None:
    later = ADOPTED.model_copy(update={"created": NOON - MILLISECOND})
    listed = replace(SESSION, created=NOON - MILLISECOND)

    step = decide_step(build_facts(session=later, spec=DOWN, sessions=build_list(listed)), KEPT)

    assert isinstance(step, SendKill)


def test_the_proof_of_a_lost_launch_is_known_by_its_nonce() -> None:
    found = ADOPTED.model_copy(update={"launch_intent": INTENDED.launch_intent})
    kept = Memory(proven=replace(PROVEN, session=found))

    outcome = decide_outcome(build_facts(session=INTENDED, spec=DOWN), kept)

    assert outcome.session is not None
    assert outcome.session.id == ADOPTED.id
    assert outcome.situation is Situation.TERMINATED

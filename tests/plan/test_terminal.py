"""What is decided next about a terminal, situation by situation."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Announced, Cause, KillAnswer, Sprite, SpriteState
from controller.api.situations import Situation
from controller.api.terminal import SessionStatus, TerminalStatus
from controller.errors import Failure
from controller.plan.facts import Facts, Memory, Probed, TokenFinding
from controller.plan.kill import ComeAgain, KillProgress, NotSent, note_settled
from controller.plan.launch import Traces
from controller.plan.leftovers import Process, ProcessesSeen
from controller.plan.looks import NOT_LOOKED, Listed, LookFailed, SpriteAway
from controller.plan.starting import LAUNCH_WAIT, LaunchPart, note_launch_failed, rest_launch_failed
from controller.plan.status import build_status, is_worth_writing
from controller.plan.steps import (
    BarLaunch,
    Leave,
    LookAtProcesses,
    LookAtSessions,
    LookAtSprite,
    PlaceFinalizer,
    ProbeLaunch,
    RecordIntent,
    ReleaseObject,
    Rest,
    SendKill,
    StartSession,
)
from tests.plan.building import (
    ADOPTED,
    CREATED,
    INTENDED,
    INTENT,
    MILLISECOND,
    NONCE,
    NOON,
    NOW,
    SESSION,
    SPRITE_ID,
    build_away,
    build_end,
    build_facts,
    build_list,
    build_seen,
    build_spec,
    decide,
    decide_outcome,
    decide_step,
)

ADOPT = build_spec(sessionId="41", launch=None)
ADOPT_OR_LAUNCH = build_spec(sessionId="41")
ENDED = ADOPTED.model_copy(update={"ended": build_end("ExitUnseen")})
NO_TOKEN = TokenFinding(Situation.SECRET_NOT_FOUND, "Secret sprites does not exist.", kill_usable=False)
RUNS_SINCE_LONG = Traces(script=False, ran=False, pids=frozenset(), init_age=timedelta(hours=1))


# --- adoption ---------------------------------------------------------------------------------------------------------


def test_an_object_asks_for_its_sprite_before_anything_else() -> None:
    assert isinstance(decide_step(build_facts(sprite=NOT_LOOKED, spec=ADOPT)), LookAtSprite)


def test_a_declared_session_is_looked_for_in_a_list_up_to_five_seconds_old() -> None:
    assert decide_step(build_facts(spec=ADOPT)) == LookAtSessions(NOW - timedelta(seconds=5), Cause.ADOPT)


def test_a_listed_session_is_adopted_after_the_finalizer_is_placed() -> None:
    seen = build_facts(spec=ADOPT, sessions=build_list(SESSION), has_finalizer=False)

    assert decide_step(seen) == PlaceFinalizer()

    outcome = decide_outcome(replace(seen, has_finalizer=True))
    assert outcome.session == ADOPTED
    assert outcome.situation is Situation.DETACHED


def test_an_attached_terminal_is_running_and_another_is_detached() -> None:
    attached = build_spec(sessionId="41", launch=None, attached=True)

    assert decide_outcome(build_facts(spec=attached, sessions=build_list(SESSION))).situation is Situation.RUNNING


def test_absence_counts_only_from_a_list_that_is_younger_than_the_object() -> None:
    first_seen = NOW - timedelta(seconds=1)
    old = build_facts(spec=ADOPT, first_seen=first_seen, sessions=build_list(age=timedelta(seconds=1) + MILLISECOND))
    young = build_facts(spec=ADOPT, first_seen=first_seen, sessions=build_list(age=timedelta(seconds=1)))

    assert decide_step(old) == LookAtSessions(first_seen, Cause.ADOPT)
    assert decide_outcome(young).situation is Situation.SESSION_NOT_FOUND
    assert "Add `spec.launch`" in decide_outcome(young).message


def test_a_session_that_is_absent_is_launched_where_a_launch_is_declared() -> None:
    absent = build_facts(spec=ADOPT_OR_LAUNCH, sessions=build_list())

    assert decide_step(absent) == RecordIntent(SPRITE_ID)


def test_a_session_of_another_creation_is_left_alone() -> None:
    other = build_spec(sessionId="41", launch=None, sessionCreatedTime="2026-11-30T10:00:00Z")

    outcome = decide_outcome(build_facts(spec=other, sessions=build_list(SESSION)))

    assert outcome.situation is Situation.SESSION_NOT_OURS
    assert outcome.session is None
    assert "delete this object, which ends nothing, and create one" in outcome.message


def test_a_session_created_at_the_declared_time_is_adopted() -> None:
    same = build_spec(sessionId="41", launch=None, sessionCreatedTime=CREATED.isoformat())

    assert decide_outcome(build_facts(spec=same, sessions=build_list(SESSION))).session == ADOPTED


def test_a_session_of_another_owner_is_neither_adopted_nor_guarded() -> None:
    taken = build_facts(spec=ADOPT, sessions=build_list(SESSION), owner="default/first", has_finalizer=False)

    outcome = decide_outcome(taken)

    assert outcome.situation is Situation.SESSION_TAKEN
    assert outcome.session is None
    assert "default/first" in outcome.message
    assert "Delete one of the two" in outcome.message


def test_terminating_an_object_without_the_session_of_another_kills_nothing() -> None:
    spec = build_spec(sessionId="41", launch=None, terminated=True)

    outcome = decide_outcome(build_facts(spec=spec, sessions=build_list(SESSION), owner="default/first"))

    assert outcome.situation is Situation.SESSION_TAKEN
    assert outcome.terminated is not None
    assert outcome.terminated.status is ConditionStatus.FALSE


def test_a_session_that_is_declared_together_with_its_end_is_adopted_to_be_ended() -> None:
    spec = build_spec(sessionId="41", launch=None, terminated=True)

    outcome = decide_outcome(build_facts(spec=spec, sessions=build_list(SESSION)))

    assert outcome.session == ADOPTED
    assert outcome.situation is Situation.TERMINATING


# --- launch -----------------------------------------------------------------------------------------------------------


def test_a_launch_places_the_finalizer_then_records_its_intent_then_starts() -> None:
    fresh = build_facts(has_finalizer=False)
    assert decide_step(fresh) == PlaceFinalizer()
    assert decide_step(build_facts()) == RecordIntent(SPRITE_ID)
    assert decide_step(build_facts(session=INTENDED), Memory(fresh_nonce=NONCE)) == StartSession(INTENT)


def test_an_announced_session_is_recorded_with_its_intent() -> None:
    announced = Announced("77", NOON)

    outcome = decide_outcome(build_facts(session=INTENDED, announced=announced))

    assert outcome.session is not None
    assert (outcome.session.id, outcome.session.created, outcome.session.launch_intent) == ("77", NOON, INTENT)


def test_nothing_is_launched_without_a_token() -> None:
    outcome = decide_outcome(build_facts(token=NO_TOKEN))

    assert outcome.situation is Situation.SECRET_NOT_FOUND


def test_nothing_is_launched_in_a_sprite_that_does_not_exist() -> None:
    outcome = decide_outcome(build_facts(sprite=build_away(confirmed=False)))

    assert outcome.situation is Situation.SPRITE_NOT_FOUND


def test_a_refused_launch_waits_longer_each_time_and_stalls_after_five() -> None:
    memory, waits = Memory(fresh_nonce=NONCE), []
    for _ in range(5):
        memory = note_launch_failed(memory, now=NOW)
        assert memory.launch_not_before is not None
        waits.append(memory.launch_not_before - NOW)
    assert waits == [LAUNCH_WAIT * 2**number for number in range(5)]

    assert isinstance(decide_step(build_facts(session=INTENDED), replace(memory, refusals=4)), ComeAgain)
    assert decide_outcome(build_facts(session=INTENDED), memory).situation is Situation.LAUNCH_REFUSED


@pytest.mark.parametrize("part", LaunchPart)
@pytest.mark.parametrize(
    ("failure", "situation"),
    [
        (Failure.UNAUTHORIZED, Situation.TOKEN_REJECTED),
        (Failure.FORBIDDEN, Situation.TOKEN_FORBIDDEN),
        (Failure.THROTTLED, Situation.THROTTLED),
        (Failure.NOT_FOUND, Situation.SPRITE_NOT_FOUND),
        (Failure.UNREACHABLE, Situation.SPRITES_UNAVAILABLE),
        (Failure.TIMED_OUT, Situation.SPRITES_UNAVAILABLE),
        (Failure.UNFINISHED, Situation.SPRITES_UNAVAILABLE),
        (Failure.REJECTED, Situation.STARTING),
        (Failure.MALFORMED, Situation.STARTING),
    ],
)
def test_a_launch_that_failed_says_why(failure: Failure, situation: Situation, part: LaunchPart) -> None:
    failed = LookFailed(failure, "It failed.", NOW)

    plan = rest_launch_failed(build_facts(session=INTENDED), Memory(fresh_nonce=NONCE), failed, part)

    assert isinstance(plan.step, Rest)
    assert plan.step.outcome.situation is situation
    assert plan.memory.fresh_nonce == NONCE


@pytest.mark.parametrize(
    ("part", "situation"),
    [(LaunchPart.UPLOAD, Situation.SPRITES_UNAVAILABLE), (LaunchPart.CREATE, Situation.STARTING)],
)
def test_a_5xx_to_the_upload_is_the_apis_trouble_and_to_the_create_it_may_be_the_launchs(
    part: LaunchPart, situation: Situation
) -> None:
    failed = LookFailed(Failure.SERVER, "HTTP 500.", NOW)
    memory = Memory(fresh_nonce=NONCE)

    plan = rest_launch_failed(build_facts(session=INTENDED), memory, failed, part)

    assert isinstance(plan.step, Rest)
    assert plan.step.outcome.situation is situation
    assert plan.memory.fresh_nonce == NONCE


def test_an_upload_that_fails_for_ever_so_long_refuses_no_launch() -> None:
    failed, memory = LookFailed(Failure.SERVER, "HTTP 500.", NOW), Memory(fresh_nonce=NONCE)
    for _ in range(20):
        memory = rest_launch_failed(build_facts(session=INTENDED), memory, failed, LaunchPart.UPLOAD).memory

    assert decide_step(build_facts(session=INTENDED), memory) == StartSession(INTENT)


@pytest.mark.parametrize("state", [SpriteState.COLD, SpriteState.WARM, SpriteState.UNKNOWN])
def test_a_sprite_is_woken_before_a_launch_into_it_is_recorded(state: SpriteState) -> None:
    """A sprite that starts after the intent could have lost the traces of the launch with a restart."""
    asleep = build_facts(sprite=build_seen(state), sessions=build_list(age=timedelta(minutes=1)))
    assert decide_step(asleep) == LookAtSessions(NOW - timedelta(seconds=5), Cause.LAUNCH)

    assert decide_step(replace(asleep, sessions=build_list(age=timedelta(seconds=5)))) == RecordIntent(SPRITE_ID)


def test_a_sprite_that_cannot_be_woken_gets_no_intent() -> None:
    failed = LookFailed(Failure.SERVER, "The API is down.", NOW)

    outcome = decide_outcome(build_facts(sprite=build_seen(SpriteState.COLD), sessions=failed))

    assert outcome.situation is Situation.SPRITES_UNAVAILABLE
    assert outcome.session is None


# --- a launch whose answer was lost -----------------------------------------------------------------------------------

LOST = build_facts(session=INTENDED, sessions=build_list(age=timedelta(hours=1)))
SEARCHING = Memory(search_asked=NOW - timedelta(seconds=6))
NAMED = replace(SESSION, id="55", command=f"/bin/sh /dev/shm/aterm-{NONCE}", created=NOON)


def test_a_lost_launch_is_searched_for_in_a_list_that_starts_now() -> None:
    assert decide_step(LOST) == LookAtSessions(NOW, Cause.FIND)


def test_a_listed_command_with_the_nonce_is_the_session() -> None:
    outcome = decide_outcome(replace(LOST, sessions=build_list(SESSION, NAMED)))

    assert outcome.session is not None
    assert outcome.session.id == "55"


def test_without_the_nonce_in_the_list_the_sprite_itself_is_asked() -> None:
    assert decide_step(replace(LOST, sessions=build_list(SESSION)), SEARCHING) == ProbeLaunch(INTENT)


def test_a_process_with_the_nonce_in_its_environment_is_the_session() -> None:
    probed = Probed(replace(RUNS_SINCE_LONG, pids=frozenset({"41", "99"})), NOW)

    outcome = decide_outcome(replace(LOST, sessions=build_list(SESSION), probed=probed), SEARCHING)

    assert outcome.session is not None
    assert outcome.session.id == "41"


@pytest.mark.parametrize(
    "traces",
    [RUNS_SINCE_LONG, replace(RUNS_SINCE_LONG, script=True, init_age=None)],
    ids=["no trace and no restart since", "the script has not run"],
)
def test_a_launch_that_never_ran_is_barred_before_another_follows_it(traces: Traces) -> None:
    """Its create may still be under way, and arrive at any time."""
    facts = replace(LOST, sessions=build_list(SESSION), probed=Probed(traces, NOW))

    plan = decide(facts, SEARCHING)
    assert plan.step == BarLaunch(INTENT)

    barred = replace(plan.memory, barred_nonce=NONCE)
    assert decide_step(facts, barred) == RecordIntent(SPRITE_ID)


def test_a_launch_that_was_withdrawn_is_barred_before_its_end_is_told() -> None:
    facts = replace(
        LOST, spec=build_spec(session_id="9", launch=None), sessions=build_list(), probed=Probed(RUNS_SINCE_LONG, NOW)
    )
    assert decide_step(facts, SEARCHING) == BarLaunch(INTENT)

    assert decide_outcome(facts, replace(SEARCHING, barred_nonce=NONCE)).situation is Situation.EXIT_UNSEEN


def test_a_bar_of_another_launch_is_no_bar_of_this_one() -> None:
    facts = replace(LOST, sessions=build_list(), probed=Probed(RUNS_SINCE_LONG, NOW))

    assert decide_step(facts, replace(SEARCHING, barred_nonce="another0nonce")) == BarLaunch(INTENT)


def test_a_command_that_ran_and_is_gone_has_ended() -> None:
    ran = Probed(replace(RUNS_SINCE_LONG, ran=True), NOW)
    once = decide(replace(LOST, sessions=build_list(), probed=ran), SEARCHING)
    assert isinstance(once.step, ComeAgain)

    later = NOW + timedelta(milliseconds=300)
    twice = replace(LOST, sessions=Listed((), later), probed=ran, now=later)
    outcome = decide_outcome(twice, once.memory)
    assert outcome.situation is Situation.EXIT_UNSEEN


UNTRACEABLE = Probed(replace(RUNS_SINCE_LONG, init_age=timedelta(seconds=1)), NOW)


def test_a_launch_without_trace_in_a_sprite_that_restarted_is_searched_for_two_minutes() -> None:
    young = INTENDED.model_copy(
        update={"launch_intent": INTENT.model_copy(update={"requested_time": NOON - timedelta(seconds=119)})}
    )

    outcome = decide_outcome(build_facts(session=young, sessions=build_list(), probed=UNTRACEABLE), SEARCHING)

    assert outcome.situation is Situation.STARTING


def test_after_two_minutes_a_launch_without_trace_is_unclear_and_never_run_twice() -> None:
    old = INTENDED.model_copy(
        update={"launch_intent": INTENT.model_copy(update={"requested_time": NOON - timedelta(seconds=120)})}
    )
    once = decide(build_facts(session=old, sessions=build_list(), probed=UNTRACEABLE), SEARCHING)
    assert isinstance(once.step, ComeAgain)

    later = NOW + timedelta(milliseconds=300)
    twice = build_facts(session=old, sessions=Listed((), later), probed=UNTRACEABLE, now=later)
    outcome = decide_outcome(twice, once.memory)
    assert outcome.situation is Situation.LAUNCH_UNCLEAR


@pytest.mark.case("K14")
def test_a_terminal_that_must_end_searches_for_its_lost_launch_first() -> None:
    """The product's own form: nothing recorded is not proof that nothing runs."""
    ending = replace(LOST, spec=build_spec(terminated=True))
    assert decide_step(ending) == LookAtSessions(NOW, Cause.FIND)

    found = decide(replace(ending, sessions=build_list(NAMED)))
    assert isinstance(found.step, SendKill)
    assert found.step.identity.session_id == "55"


def test_a_lost_launch_that_was_found_is_killed_with_the_proof_of_any_other() -> None:
    """It was listed, so only two later lists tell that it died; that it left no trace would be no proof."""
    ending = replace(LOST, spec=build_spec(terminated=True))
    found = decide(replace(ending, sessions=build_list(NAMED)))
    assert found.memory.kill is not None
    settled = note_settled(found.memory.kill, KillAnswer.COMPLETE, now=NOW, now_time=NOON)
    memory = replace(found.memory, kill=settled)

    assert decide_step(replace(ending, sessions=build_list(NAMED, age=MILLISECOND)), memory) == LookAtSessions(
        NOW, Cause.PROVE
    )

    once = decide(replace(ending, sessions=build_list()), memory)
    assert once.step == LookAtProcesses(NOW)
    searched = replace(ending, processes=ProcessesSeen((), NOW))
    once = decide(replace(searched, sessions=build_list()), memory)
    assert isinstance(once.step, ComeAgain)
    later = NOW + timedelta(milliseconds=300)
    outcome = decide_outcome(replace(searched, sessions=Listed((), later), now=later), once.memory)
    assert outcome.kill is not None
    assert outcome.kill.proof == "SessionList"
    assert outcome.session is not None
    assert outcome.session.id == "55"


def test_a_launch_that_must_not_run_any_more_is_barred_before_anything_is_proven() -> None:
    ending = replace(LOST, spec=build_spec(terminated=True), sessions=build_list(), probed=Probed(RUNS_SINCE_LONG, NOW))

    swept = decide(ending, SEARCHING)
    assert swept.step == BarLaunch(INTENT)

    outcome = decide_outcome(ending, replace(swept.memory, barred_nonce=NONCE))
    assert outcome.situation is Situation.TERMINATED
    assert outcome.kill is not None
    assert outcome.kill.proof == "NeverStarted"


# --- live -------------------------------------------------------------------------------------------------------------

LIVE = build_facts(session=ADOPTED)
DOUBTED = replace(LIVE, doubt=NOW)


def test_a_live_session_at_rest_asks_nobody() -> None:
    assert decide_outcome(LIVE).situation is Situation.DETACHED


@pytest.mark.parametrize(
    ("session", "spec", "again"),
    [
        (ADOPTED, {}, True),
        (ADOPTED, {"suspend": True}, True),
        (ADOPTED, {"terminated": True}, True),
        (INTENDED, {}, True),
        (ENDED, {}, True),  # it may revive, and nobody may claim what is not guarded
        (ENDED, {"terminated": True}, False),
    ],
)
def test_a_finalizer_that_somebody_took_off_is_placed_again_while_a_session_hangs_on_it(
    session: SessionStatus, spec: dict[str, Any], again: bool
) -> None:
    facts = build_facts(session=session, spec=build_spec(**spec))

    assert (decide_step(replace(facts, has_finalizer=False)) == PlaceFinalizer()) is again
    assert decide_step(facts) != PlaceFinalizer()


def test_a_doubted_session_is_looked_up_in_a_list_that_starts_after_the_doubt() -> None:
    before = replace(DOUBTED, sessions=build_list(SESSION, age=MILLISECOND))

    assert decide_step(before) == LookAtSessions(NOW, Cause.CHECK)
    assert decide_outcome(replace(DOUBTED, sessions=build_list(SESSION))).doubt_settled


@pytest.mark.parametrize("state", [SpriteState.WARM, SpriteState.COLD])
def test_doubt_never_wakes_a_paused_sprite(state: SpriteState) -> None:
    fresh = ADOPTED.model_copy(update={"created": NOON})

    assert isinstance(decide_step(build_facts(session=fresh, doubt=NOW, sprite=build_seen(state))), Rest)


def test_a_session_that_two_lists_lack_has_ended_unseen() -> None:
    once = decide(replace(DOUBTED, sessions=build_list()))
    assert once.step == ComeAgain(timedelta(milliseconds=300))

    later = NOW + timedelta(milliseconds=300)
    outcome = decide_outcome(replace(DOUBTED, sessions=Listed((), later), now=later), once.memory)
    assert outcome.situation is Situation.EXIT_UNSEEN
    assert outcome.session is not None
    assert outcome.session.ended is not None


def test_a_session_whose_id_another_one_has_is_lost() -> None:
    other = replace(SESSION, created=NOON)

    assert decide_outcome(replace(DOUBTED, sessions=build_list(other))).situation is Situation.LOST


def test_a_session_is_lost_when_its_sprite_went_cold_or_away_for_sure() -> None:
    assert decide_outcome(replace(DOUBTED, sprite=build_seen(SpriteState.COLD))).situation is Situation.LOST
    assert decide_outcome(replace(DOUBTED, sprite=build_away(confirmed=True))).situation is Situation.LOST


def test_a_list_that_fails_ends_nothing() -> None:
    failed = replace(DOUBTED, sessions=LookFailed(Failure.SERVER, "It failed.", NOW))

    step = decide_step(failed)
    assert isinstance(step, Rest)
    assert step.outcome.situation is Situation.DETACHED
    assert step.retry
    assert not step.outcome.doubt_settled


# --- after an end -----------------------------------------------------------------------------------------------------


def ended(reason: str, *, attached: bool = False, socket_id: str | None = None) -> SessionStatus:
    return ADOPTED.model_copy(update={"ended": build_end(reason, attached=attached, socket_id=socket_id)})


def test_a_lost_session_is_launched_anew_only_with_on_lost() -> None:
    assert decide_outcome(build_facts(session=ended("Lost"))).situation is Situation.LOST
    again = build_facts(session=ended("Lost"), spec=build_spec(relaunch="OnLost"))
    assert decide_step(again) == RecordIntent(SPRITE_ID)


@pytest.mark.parametrize("reason", ["Exited", "ExitUnseen", "Reaped"])
def test_no_other_end_is_launched_anew_by_on_lost(reason: str) -> None:
    spec = build_spec(relaunch="OnLost")

    assert isinstance(decide_step(build_facts(session=ended(reason), spec=spec)), Rest)


@pytest.mark.parametrize("state", [SpriteState.WARM, SpriteState.COLD, SpriteState.UNKNOWN])
def test_a_relaunch_after_a_loss_waits_until_the_sprite_runs(state: SpriteState) -> None:
    again = build_facts(session=ended("Lost"), spec=build_spec(relaunch="OnLost"), sprite=build_seen(state))

    assert decide_outcome(again).situation is Situation.RELAUNCHING


@pytest.mark.parametrize("reason", ["Exited", "ExitUnseen", "Reaped", "Lost", "LaunchUnclear"])
def test_somebody_who_attaches_after_an_end_gets_a_fresh_session(reason: str) -> None:
    spec = build_spec(attached=True, activeSocketId="new")

    assert decide_step(build_facts(session=ended(reason), spec=spec)) == RecordIntent(SPRITE_ID)


@pytest.mark.parametrize(
    ("then", "now", "follows"),
    [
        ((False, None), (True, None), True),
        ((True, "a"), (True, "b"), True),
        ((True, "a"), (True, "a"), False),
        ((True, "a"), (False, "b"), False),
        ((True, None), (True, None), False),
        ((False, ""), (True, ""), False),
        ((True, "a"), (True, ""), False),
        ((False, ""), (True, "b"), True),
    ],
)
def test_only_an_attachment_that_came_since_the_end_revives(
    then: tuple[bool, str | None], now: tuple[bool, str | None], *, follows: bool
) -> None:
    session = ended("Exited", attached=then[0], socket_id=then[1])
    spec = build_spec(attached=now[0], activeSocketId=now[1])

    assert isinstance(decide_step(build_facts(session=session, spec=spec)), RecordIntent) is follows


def test_a_terminated_session_never_comes_back() -> None:
    spec = build_spec(attached=True, activeSocketId="new")

    assert isinstance(decide_step(build_facts(session=ended("Terminated"), spec=spec)), Rest)


# --- terminated and deleted -------------------------------------------------------------------------------------------


def test_termination_works_while_somebody_is_attached() -> None:
    spec = build_spec(terminated=True, attached=True)

    assert isinstance(decide_step(build_facts(session=ADOPTED, spec=spec, sessions=build_list(SESSION))), SendKill)


def test_a_list_that_a_sibling_read_since_the_end_was_asked_for_serves_the_kill_and_an_older_one_does_not() -> None:
    sibling = build_list(SESSION, age=timedelta(seconds=1))
    facts = build_facts(session=ADOPTED, deleting=True, sessions=sibling)

    assert isinstance(decide_step(replace(facts, end_asked=NOW - timedelta(seconds=1))), SendKill)
    just_later = NOW - timedelta(seconds=1) + timedelta(milliseconds=1)
    assert decide_step(replace(facts, end_asked=just_later)) == LookAtSessions(just_later, Cause.IDENTIFY)


@pytest.mark.case("K20")
@pytest.mark.parametrize("deleting", [True, False])
@pytest.mark.parametrize(
    ("session", "spec", "step"),
    [
        (ADOPTED.model_copy(update={"sprite_id": None}), {}, LookAtSessions),
        (SessionStatus(id="41"), {}, LookAtSessions),
        (SessionStatus(id="41", created=CREATED, sprite_id=""), {}, LookAtSessions),
        (INTENDED, {}, LookAtSessions),
        (None, {"sessionId": "41"}, LookAtSessions),
    ],
    ids=["no sprite id", "nothing but the session's id", "an empty sprite id", "no session id", "nothing at all"],
)
def test_an_empty_field_is_no_proof_that_there_is_nothing_to_kill(
    session: SessionStatus | None, spec: dict[str, Any], step: type, *, deleting: bool
) -> None:
    """The product's own form: the platform is asked where the session lives; only it, or a whole record, can say no."""
    facts = build_facts(session=session, deleting=deleting, spec=build_spec(terminated=not deleting, **spec))

    assert isinstance(decide_step(facts), step)


@pytest.mark.case("K20")
def test_a_session_is_never_looked_for_in_a_successor_of_its_sprite() -> None:
    """Whoever has the name now is another sprite; only the id that was recorded names the one that has the session."""
    successor = replace(build_away(confirmed=False), successor=Sprite("sprite-2", "my-sprite", SpriteState.RUNNING))
    facts = build_facts(session=ADOPTED, spec=build_spec(terminated=True), sprite=successor)

    outcome = decide_outcome(replace(facts, sessions=build_list(SESSION)))

    assert outcome.situation is Situation.TERMINATING
    assert outcome.terminated is not None
    assert outcome.terminated.status is ConditionStatus.FALSE


def test_termination_before_any_session_has_nothing_to_end() -> None:
    outcome = decide_outcome(build_facts(spec=build_spec(terminated=True)))

    assert outcome.terminated is not None
    assert outcome.terminated.reason is Reason.NOTHING_TO_END
    assert outcome.terminated.status is ConditionStatus.TRUE


def test_termination_after_an_end_kills_nothing() -> None:
    outcome = decide_outcome(build_facts(session=ENDED, spec=build_spec(terminated=True)))

    assert outcome.terminated is not None
    assert outcome.terminated.reason is Reason.ALREADY_ENDED


def prove(facts: Facts) -> tuple[Facts, Memory]:
    """The facts and the memory of the moment in which a kill is proven."""
    progress = KillProgress(
        asked=NOW - timedelta(seconds=1),
        asked_time=NOON,
        settled=NotSent.ID_REUSED,
        settled_at=NOW - timedelta(milliseconds=400),
        settled_time=NOON,
        absent_at=NOW - timedelta(milliseconds=300),
    )
    return replace(facts, sessions=build_list(), processes=ProcessesSeen((), NOW)), Memory(kill=progress)


def test_a_proven_end_is_recorded_with_its_evidence() -> None:
    outcome = decide_outcome(*prove(build_facts(session=ADOPTED, spec=build_spec(terminated=True))))

    assert outcome.situation is Situation.TERMINATED
    assert outcome.kill is not None
    assert (outcome.kill.proof, outcome.kill.signal) == ("SessionList", "SIGKILL")
    assert outcome.session is not None
    assert outcome.session.ended is not None


def test_a_deleted_object_goes_when_its_session_is_proven_dead_and_not_before() -> None:
    deleting = build_facts(session=ADOPTED, deleting=True)

    assert isinstance(decide_step(replace(deleting, sessions=build_list(SESSION))), SendKill)
    assert isinstance(decide_step(*prove(deleting)), ReleaseObject)


@pytest.mark.parametrize(
    "session", [None, ENDED], ids=["nothing was ever adopted or launched", "the session has ended"]
)
@pytest.mark.case("K19")
def test_a_deleted_object_without_a_session_goes_at_once(session: SessionStatus | None) -> None:
    assert decide_step(build_facts(session=session, deleting=True)) == ReleaseObject(None)


def test_an_adoption_that_was_cut_before_its_record_is_recorded_and_ended() -> None:
    cut = build_facts(spec=ADOPT, deleting=True)
    assert isinstance(decide_step(cut), LookAtSessions)

    outcome = decide_outcome(replace(cut, sessions=build_list(SESSION)))
    assert outcome.session == ADOPTED
    assert outcome.situation is Situation.TERMINATING

    assert decide_step(replace(cut, sessions=build_list())) == ReleaseObject(None)
    assert decide_step(replace(cut, sessions=build_list(SESSION), owner="default/first")) == ReleaseObject(None)
    assert isinstance(decide_step(replace(cut, sessions=LookFailed(Failure.SERVER, "No.", NOW))), Rest)
    orphan = build_spec(sessionId="41", launch=None, deletionPolicy="Orphan")
    assert decide_step(replace(cut, spec=orphan)) == ReleaseObject(None)


def test_orphan_lets_a_deleted_object_go_and_its_session_live() -> None:
    step = decide_step(build_facts(session=ADOPTED, deleting=True, spec=build_spec(deletionPolicy="Orphan")))

    assert isinstance(step, ReleaseObject)
    assert step.happening is not None
    assert step.happening.reason is Reason.ORPHANED


def test_an_object_without_our_finalizer_is_left_to_go() -> None:
    assert decide_step(build_facts(session=ADOPTED, deleting=True, has_finalizer=False)) == Leave()


@pytest.mark.case("K16")
def test_a_kill_without_a_usable_token_keeps_the_record() -> None:
    plan = decide(build_facts(session=ADOPTED, deleting=True, token=NO_TOKEN))

    assert isinstance(plan.step, Rest)
    assert plan.step.outcome.session == ADOPTED
    assert plan.step.outcome.situation is Situation.SECRET_NOT_FOUND


def test_a_token_that_is_not_allowed_any_more_still_ends_what_was_recorded() -> None:
    token = TokenFinding(Situation.TOKEN_NOT_ALLOWED, "It serves other namespaces.", kill_usable=True)
    spec = build_spec(terminated=True)

    assert isinstance(
        decide_step(build_facts(session=ADOPTED, spec=spec, token=token, sessions=build_list(SESSION))), SendKill
    )


# --- errors -----------------------------------------------------------------------------------------------------------

LOST_API = LookFailed(Failure.SERVER, "Listing the sprites failed: HTTP 503.", NOW)
ENDING = [{"deleting": True}, {"spec": build_spec(terminated=True)}]


@pytest.mark.parametrize("ending", ENDING)
@pytest.mark.parametrize(
    ("fields", "situation", "status"),
    [
        ({"sprite": LOST_API}, Situation.SPRITES_UNAVAILABLE, ConditionStatus.UNKNOWN),
        ({"sprite": replace(LOST_API, failure=Failure.THROTTLED)}, Situation.THROTTLED, ConditionStatus.UNKNOWN),
        ({"sprite": replace(LOST_API, failure=Failure.FORBIDDEN)}, Situation.TOKEN_FORBIDDEN, ConditionStatus.FALSE),
        ({"sprite": replace(LOST_API, failure=Failure.UNAUTHORIZED)}, Situation.TOKEN_REJECTED, ConditionStatus.FALSE),
        ({"token": NO_TOKEN}, Situation.SECRET_NOT_FOUND, ConditionStatus.FALSE),
    ],
)
@pytest.mark.parametrize("session", [ADOPTED, INTENDED])
def test_an_end_that_cannot_be_proven_says_why_and_names_the_way_out(
    session: SessionStatus,
    fields: dict[str, Any],
    situation: Situation,
    status: ConditionStatus,
    ending: dict[str, Any],
) -> None:
    outcome = decide_outcome(build_facts(session=session, **fields, **ending))

    assert outcome.situation is situation
    assert outcome.terminated is not None
    assert (outcome.terminated.status, outcome.terminated.reason) == (status, Reason(situation.value))
    assert "`deletionPolicy: Orphan`" in outcome.terminated.message
    assert outcome.session == session


@pytest.mark.parametrize("away", [build_away(confirmed=False), LookFailed(Failure.SERVER, "HTTP 503.", NOW)])
def test_a_session_that_is_to_be_adopted_and_ended_is_not_said_to_be_unasked(away: SpriteAway | LookFailed) -> None:
    spec = build_spec(sessionId="41", launch=None, terminated=True)

    outcome = decide_outcome(build_facts(spec=spec, sprite=away))

    assert outcome.terminated is not None
    assert outcome.terminated.reason is Reason(outcome.situation.value)


@pytest.mark.parametrize("failure", [Failure.SERVER, Failure.THROTTLED, Failure.MALFORMED])
def test_an_answer_that_says_at_once_is_repeated_by_the_back_off_all_the_same(failure: Failure) -> None:
    look = LookFailed(failure, "It failed.", NOW, retry_after=timedelta(0))

    step = decide_step(build_facts(sprite=look))

    assert isinstance(step, Rest)
    assert (step.after, step.retry) == (None, True)


def test_an_answer_that_says_how_long_is_obeyed() -> None:
    look = LookFailed(Failure.THROTTLED, "It failed.", NOW, retry_after=timedelta(seconds=7))

    step = decide_step(build_facts(sprite=look))

    assert isinstance(step, Rest)
    assert (step.after, step.retry) == (timedelta(seconds=7), False)


@pytest.mark.parametrize("failure", [Failure.UNAUTHORIZED, Failure.FORBIDDEN])
def test_a_refused_token_is_named_with_its_place_and_what_to_do(failure: Failure) -> None:
    spec = build_spec(tokenSecretRef={"name": "sprites", "key": "other"})

    message = decide_outcome(build_facts(spec=spec, sprite=LookFailed(failure, "It failed.", NOW))).message

    assert message.startswith("It failed. The Sprites API ")
    assert "the token under the key other of Secret sprites" in message
    assert "within a minute" in message


def test_a_terminal_that_lives_says_that_its_token_is_gone() -> None:
    outcome = decide_outcome(build_facts(session=ADOPTED, token=NO_TOKEN))

    assert outcome.situation is Situation.SECRET_NOT_FOUND
    assert outcome.session == ADOPTED
    assert outcome.live is None


def test_a_terminal_that_lives_is_left_alone_when_its_secret_cannot_be_read_this_time() -> None:
    passing = TokenFinding(Situation.PENDING, "Secret sprites could not be read.", passing=True)

    assert decide_outcome(build_facts(session=ADOPTED, token=passing)).situation is Situation.DETACHED


# --- suspension -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", [None, ADOPTED, INTENDED, ENDED])
def test_a_suspended_terminal_starts_nothing(session: SessionStatus | None) -> None:
    spec = build_spec(suspend=True, attached=True, activeSocketId="new", relaunch="OnLost")

    assert decide_outcome(build_facts(session=session, spec=spec)).situation is Situation.SUSPENDED


def test_suspension_stops_neither_an_end_nor_a_deletion() -> None:
    asked = build_facts(session=ADOPTED, spec=build_spec(suspend=True, terminated=True), sessions=build_list(SESSION))
    deleted = build_facts(session=ADOPTED, spec=build_spec(suspend=True), deleting=True, sessions=build_list(SESSION))

    assert isinstance(decide_step(asked), SendKill)
    assert isinstance(decide_step(deleted), SendKill)


def test_an_end_is_observed_in_suspension_as_well() -> None:
    other = replace(SESSION, created=NOON)
    facts = replace(DOUBTED, spec=build_spec(suspend=True), sessions=build_list(other))

    assert decide_outcome(facts).situation is Situation.LOST


# --- every combination ------------------------------------------------------------------------------------------------

moments = st.integers(-200_000, 1_000).map(lambda ms: NOW + timedelta(milliseconds=ms))
all_facts = st.builds(
    build_facts,
    session=st.sampled_from([None, ADOPTED, INTENDED, ENDED, ended("Lost"), ended("LaunchUnclear", attached=True)]),
    deleting=st.booleans(),
    has_finalizer=st.booleans(),
    spec=st.builds(
        build_spec,
        sessionId=st.sampled_from([None, "41"]),
        terminated=st.booleans(),
        suspend=st.booleans(),
        attached=st.sampled_from([None, True, False]),
        relaunch=st.sampled_from(["Never", "OnLost"]),
        deletionPolicy=st.sampled_from(["Terminate", "Orphan"]),
    ),
    token=st.sampled_from([TokenFinding(), NO_TOKEN, replace(NO_TOKEN, kill_usable=True)]),
    owner=st.sampled_from([None, "default/first"]),
    sprite=st.sampled_from(
        [NOT_LOOKED, build_away(confirmed=True), build_away(confirmed=False), LookFailed(Failure.SERVER, "No.", NOW)]
        + [build_seen(state) for state in SpriteState]
    ),
    sessions=st.one_of(
        st.just(NOT_LOOKED),
        st.builds(Listed, st.sampled_from([(), (SESSION,), (NAMED,), (replace(SESSION, created=NOON),)]), moments),
        st.builds(LookFailed, st.sampled_from(Failure), st.just("No."), moments),
    ),
    probed=st.one_of(
        st.none(),
        st.builds(Probed, st.sampled_from([None, RUNS_SINCE_LONG, UNTRACEABLE.traces]), moments),
        st.builds(LookFailed, st.sampled_from(Failure), st.just("No."), moments),
    ),
    announced=st.sampled_from([None, Announced("77", NOON)]),
    doubt=st.none() | moments,
    end_asked=st.none() | moments,
    processes=st.one_of(
        st.just(NOT_LOOKED),
        st.builds(ProcessesSeen, st.sampled_from([(), (Process(57, "sleep", session=41, nonce=NONCE),)]), moments),
        st.builds(LookFailed, st.sampled_from(Failure), st.just("No."), moments),
    ),
    last_wake_time=st.none() | st.just(NOON - timedelta(hours=1)),
    held=st.booleans(),
)
memories = st.builds(
    Memory,
    kill=st.none()
    | st.builds(
        KillProgress,
        asked=moments,
        asked_time=st.just(NOON),
        attempts=st.integers(0, 3),
        round_attempts=st.integers(0, 2),
        rounds=st.integers(0, 6),
        not_before=st.none() | moments,
        settled=st.none() | st.sampled_from(KillAnswer),
        settled_at=moments,
        absent_at=st.none() | moments,
    ),
    fresh_nonce=st.sampled_from([None, NONCE]),
    refusals=st.integers(0, 6),
    launch_not_before=st.none() | moments,
    search_asked=st.none() | moments,
    absent_at=st.none() | moments,
    barred_nonce=st.sampled_from([None, NONCE]),
    leftovers_at=st.none() | moments,
)


def settle(facts: Facts, memory: Memory) -> tuple[int, list[Situation]]:
    """Record every outcome until nothing new is said, and count the writes; stop at any other step."""
    writes, told = 0, []
    while writes <= 4:
        plan = decide(facts, memory)
        if not isinstance(plan.step, Rest):
            break
        told.append(plan.step.outcome.situation)
        status = build_status(
            facts.status,
            plan.step.outcome,
            spec=facts.spec,
            generation=facts.generation,
            sprite=facts.sprite,
            requested_at=None,
            now=facts.now_time,
        )
        if not is_worth_writing(facts.status, status, stored=writes > 0):
            break
        writes, facts, memory = writes + 1, replace(facts, status=status), plan.memory
    return writes, told


@given(all_facts, memories)
def test_every_combination_of_facts_has_an_answer(facts: Facts, memory: Memory) -> None:
    plan = decide(facts, memory)

    if isinstance(plan.step, StartSession | RecordIntent):
        assert not facts.deleting
        assert not facts.spec.terminated
        assert not facts.spec.suspend
        assert facts.has_finalizer or facts.status.session is not None
        assert facts.token.trouble is None
    if isinstance(plan.step, SendKill):
        assert facts.deleting or facts.spec.terminated
    if isinstance(plan.step, ReleaseObject):
        assert facts.deleting
        assert facts.has_finalizer
    if isinstance(plan.step, ComeAgain):
        assert plan.step.delay > timedelta(0)


@given(all_facts)
def test_asking_twice_gives_the_same_answer(facts: Facts) -> None:
    once = decide(facts)

    assert decide(facts) == once


@given(all_facts, memories)
def test_what_was_decided_is_decided_again_once_it_is_recorded_and_then_nothing_is_written_any_more(
    facts: Facts, memory: Memory
) -> None:
    """An end takes one write, and what follows from it another; nothing goes round in circles."""
    writes, told = settle(facts, memory)

    assert writes <= 3, told


def test_a_status_of_an_older_version_has_an_answer_too() -> None:
    assert isinstance(decide_step(replace(build_facts(), status=TerminalStatus())), RecordIntent)


@pytest.mark.parametrize(
    ("spec", "way_out"),
    [
        ({}, "Attach to start another session, or set `relaunch: OnLost`."),
        ({"sessionId": "41", "launch": None}, "delete this object, and create another."),
    ],
)
def test_a_loss_names_the_way_out(spec: dict[str, Any], way_out: str) -> None:
    away = build_away(confirmed=True)

    outcome = decide_outcome(build_facts(spec=build_spec(**spec), session=ADOPTED, doubt=NOW, sprite=away))

    assert outcome.situation is Situation.LOST
    assert outcome.message.endswith(way_out)
    assert outcome.live is not None
    assert outcome.live.message == outcome.message

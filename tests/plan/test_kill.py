"""Kill with proof, decided: what is sent, what settles, what proves."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.conditions import Reason
from controller.api.session import Identity, KillAnswer, Sprite, SpriteState
from controller.api.situations import Situation
from controller.errors import Failure
from controller.plan.kill import (
    AskSessions,
    AskSprite,
    ComeAgain,
    KillEvidence,
    KillFacts,
    KillProgress,
    NotSent,
    Proven,
    Send,
    Unproven,
    begin_kill,
    note_attempt_failed,
    note_refused,
    note_settled,
    plan_kill,
    round_wait,
)
from controller.plan.looks import NOT_LOOKED, Listed, LookFailed, SessionsLook, SpriteAway, SpriteLook, SpriteSeen
from tests.plan.building import CREATED, MILLISECOND, NOON, NOW, SESSION, SPRITE_ID, build_away, build_list, build_seen

IDENTITY = Identity(SPRITE_ID, "41", CREATED)
ASKED = NOW - timedelta(milliseconds=10)
FRESH = KillProgress(asked=ASKED, asked_time=NOON)
OTHER = replace(SESSION, created=CREATED + timedelta(seconds=5))
SIBLING = replace(SESSION, id="42")


def facts(
    sessions: SessionsLook = NOT_LOOKED,
    sprite: SpriteLook | None = None,
    *,
    last_wake_time: datetime | None = None,
    identity: Identity = IDENTITY,
) -> KillFacts:
    return KillFacts(identity, sprite or build_seen(), sessions, last_wake_time, NOW, NOON, NOW)


def settled(answer: KillAnswer = KillAnswer.COMPLETE, *, ago: timedelta = timedelta(milliseconds=5)) -> KillProgress:
    return note_settled(FRESH, answer, now=NOW - ago, now_time=NOON)


def failed(failure: Failure = Failure.SERVER, *, age: timedelta = timedelta(0)) -> LookFailed:
    return LookFailed(failure, "The Sprites API answered 500.", NOW - age)


def test_an_unknown_sprite_is_looked_at_first() -> None:
    assert plan_kill(FRESH, facts(sprite=NOT_LOOKED))[1] == AskSprite()


def test_metadata_of_a_minute_ago_is_read_again_and_a_little_younger_will_do() -> None:
    old, young = build_seen(age=timedelta(seconds=60, milliseconds=1)), build_seen(age=timedelta(seconds=60))

    assert plan_kill(FRESH, facts(sprite=old))[1] == AskSprite()
    assert plan_kill(FRESH, facts(sprite=young))[1] == AskSessions(ASKED)


def test_a_list_from_before_the_question_identifies_nobody() -> None:
    before = Listed((SESSION,), ASKED - MILLISECOND)

    assert plan_kill(FRESH, facts(before))[1] == AskSessions(ASKED)
    assert plan_kill(FRESH, facts(Listed((SESSION,), ASKED)))[1] == Send()


@pytest.mark.case("K13")
@pytest.mark.parametrize(
    ("asked_ago", "list_ago", "sent"),
    [
        (0, 0, True),
        (0, 1, False),
        (500, 500, True),
        (500, 501, False),
        (1000, 1000, True),
        (600_000, 1000, True),
        (600_000, 1001, False),
        (600_000, 190_000, False),
    ],
)
def test_a_list_since_the_end_was_asked_for_identifies_whom_to_kill_until_it_is_a_second_old(
    asked_ago: int, list_ago: int, *, sent: bool
) -> None:
    """An id comes again after a cold start, and no sprite stops, starts and runs as many sessions in a second."""
    progress = begin_kill(asked=NOW - asked_ago * MILLISECOND, now=NOW, now_time=NOON)

    _, step = plan_kill(progress, facts(build_list(SESSION, age=list_ago * MILLISECOND)))

    assert step == (Send() if sent else AskSessions(NOW - min(asked_ago, 1000) * MILLISECOND))


def test_an_end_that_is_only_found_out_now_is_a_question_of_now() -> None:
    assert begin_kill(asked=None, now=NOW, now_time=NOON) == KillProgress(NOW, NOON)


def test_a_list_that_took_long_to_come_identifies_in_the_visit_that_asked_for_it() -> None:
    """Else a slow platform would be asked for ever, and nothing would ever be killed."""
    slow = Listed((SESSION,), NOW)
    later = replace(facts(slow), now=NOW + timedelta(seconds=15), began=NOW)

    assert plan_kill(FRESH, later)[1] == Send()
    assert plan_kill(FRESH, replace(later, began=NOW + timedelta(seconds=15)))[1] != Send()


def test_the_kill_goes_to_exactly_the_listed_identity() -> None:
    assert plan_kill(FRESH, facts(build_list(SIBLING, SESSION)))[1] == Send()


@pytest.mark.case("K18")
def test_a_sibling_on_the_same_sprite_neither_stands_in_for_nor_hides_the_session() -> None:
    progress, step = plan_kill(FRESH, facts(build_list(SIBLING)))

    assert step == Send()
    assert progress.settled is None


def test_a_reused_id_is_never_killed_and_counts_as_a_first_look() -> None:
    progress, step = plan_kill(FRESH, facts(build_list(OTHER)))

    assert isinstance(step, ComeAgain)
    assert progress.settled is NotSent.ID_REUSED

    later = build_list(OTHER, age=-timedelta(milliseconds=300))
    assert plan_kill(progress, replace(facts(later), now=NOW + timedelta(milliseconds=300)))[1] == Proven(
        KillEvidence.SESSION_LIST
    )


def test_created_times_that_differ_by_less_than_a_second_are_one_session() -> None:
    same = replace(SESSION, created=CREATED + timedelta(milliseconds=999))
    another = replace(SESSION, created=CREATED + timedelta(milliseconds=1000))

    assert plan_kill(FRESH, facts(build_list(same)))[1] == Send()
    assert plan_kill(FRESH, facts(build_list(another)))[1] != Send()


@pytest.mark.parametrize("state", [SpriteState.RUNNING, SpriteState.WARM, SpriteState.UNKNOWN])
def test_a_list_that_failed_sends_no_kill(state: SpriteState) -> None:
    _, step = plan_kill(FRESH, facts(failed(), sprite=build_seen(state)))

    assert isinstance(step, Unproven)
    assert step.reason is Reason.SPRITES_UNAVAILABLE


@pytest.mark.parametrize("stage", ["identity", "proof", "second proof"])
@pytest.mark.parametrize("state", [SpriteState.WARM, SpriteState.UNKNOWN])
def test_a_failed_list_that_may_have_woken_the_sprite_uses_up_a_wake(state: SpriteState, stage: str) -> None:
    absent = replace(settled(), absent_at=NOW - timedelta(seconds=1))
    before = {"identity": FRESH, "proof": settled(), "second proof": absent}[stage]
    woken = facts(failed(), sprite=build_seen(state))

    progress, _ = plan_kill(before, woken)

    assert progress.rounds == 1
    assert progress.not_before == NOW + timedelta(seconds=5)
    assert plan_kill(progress, replace(woken, sessions=NOT_LOOKED))[1] == ComeAgain(timedelta(seconds=5))


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (Failure.UNREACHABLE, SpriteState.WARM),
        (Failure.UNAUTHORIZED, SpriteState.WARM),
        (Failure.FORBIDDEN, SpriteState.WARM),
        (Failure.THROTTLED, SpriteState.WARM),
        (Failure.SERVER, SpriteState.RUNNING),
        (Failure.TIMED_OUT, SpriteState.RUNNING),
    ],
)
def test_an_outage_uses_up_no_wake_and_leaves_no_wait_behind(failure: Failure, state: SpriteState) -> None:
    progress, step = plan_kill(FRESH, facts(failed(failure), sprite=build_seen(state)))

    assert isinstance(step, Unproven)
    assert progress == FRESH


@pytest.mark.parametrize("answer", list(KillAnswer))
@pytest.mark.case("K5")
def test_no_answer_of_the_endpoint_is_a_proof(answer: KillAnswer) -> None:
    """The product's own form: the answer settles the request, and the proof is a later look."""
    progress = settled(answer)

    assert plan_kill(progress, facts(build_list(age=timedelta(milliseconds=6))))[1] == AskSessions(progress.settled_at)


def test_the_proof_is_two_lists_without_the_session_300_ms_apart_after_the_kill_was_settled() -> None:
    first, step = plan_kill(settled(), facts(build_list()))
    assert step == ComeAgain(timedelta(milliseconds=300))
    assert first.absent_at == NOW

    early = replace(facts(build_list()), now=NOW + timedelta(milliseconds=299))
    assert isinstance(plan_kill(first, early)[1], ComeAgain)

    due = replace(early, now=NOW + timedelta(milliseconds=300))
    assert plan_kill(first, due)[1] == AskSessions(NOW + timedelta(milliseconds=300))

    second = replace(due, sessions=Listed((SIBLING,), NOW + timedelta(milliseconds=300)))
    assert plan_kill(first, second)[1] == Proven(KillEvidence.SESSION_LIST)


def test_a_session_that_shows_again_in_the_second_list_is_not_dead() -> None:
    first, _ = plan_kill(settled(), facts(build_list()))
    again = replace(facts(Listed((SESSION,), NOW + timedelta(milliseconds=300))), now=NOW + timedelta(milliseconds=300))

    progress, step = plan_kill(first, again)

    assert isinstance(step, ComeAgain)
    assert progress.absent_at is None


def test_a_list_that_trails_is_looked_at_again_before_another_kill() -> None:
    progress, step = plan_kill(settled(), facts(build_list(SESSION)))

    assert step == ComeAgain(timedelta(milliseconds=300))
    assert progress.settled is KillAnswer.COMPLETE


def test_a_session_still_listed_after_a_second_is_killed_again() -> None:
    still = settled(ago=timedelta(seconds=1))

    progress, step = plan_kill(still, facts(build_list(SESSION)))

    assert step == ComeAgain(timedelta(milliseconds=500))
    assert progress.settled is None
    assert progress.trouble is Reason.STILL_LISTED


def test_a_proof_that_cannot_be_read_is_not_confirmed() -> None:
    _, step = plan_kill(settled(), facts(failed()))

    assert isinstance(step, Unproven)
    assert step.reason is Reason.NOT_CONFIRMED


@pytest.mark.case("K10")
def test_attempts_wait_500_and_1000_ms_and_the_third_ends_the_round_with_its_text() -> None:
    first, step = note_refused(FRESH, "Status 500.", now=NOW)
    assert step == ComeAgain(timedelta(milliseconds=500))
    second, step = note_refused(first, "Status 500.", now=NOW)
    assert step == ComeAgain(timedelta(milliseconds=1000))
    third, step = note_refused(second, "Status 500.", now=NOW)

    assert isinstance(step, Unproven)
    assert step.reason is Reason.KILL_FAILED
    assert "Status 500." in step.message
    assert step.message == "Status 500. The kill is repeated."
    assert (third.attempts, third.round_attempts, third.rounds) == (3, 0, 1)


@pytest.mark.case("K11")
def test_an_attempt_that_failed_is_followed_by_another_after_its_wait() -> None:
    waiting, _ = note_refused(FRESH, "Cut.", now=NOW)
    assert isinstance(plan_kill(waiting, facts(build_list(SESSION)))[1], ComeAgain)

    due = NOW + timedelta(milliseconds=500)
    assert plan_kill(waiting, replace(facts(Listed((SESSION,), due)), now=due))[1] == Send()


def test_an_attempt_after_a_wait_asks_anew_who_has_the_id() -> None:
    waiting, _ = note_refused(FRESH, "Cut.", now=NOW)
    due = NOW + timedelta(milliseconds=500)

    assert plan_kill(waiting, replace(facts(build_list(SESSION)), now=due))[1] == AskSessions(due)


def test_rounds_wait_5_s_and_double_up_to_5_min() -> None:
    assert [round_wait(rounds).total_seconds() for rounds in (1, 2, 3, 6, 7, 8, 1000)] == [
        5,
        10,
        20,
        160,
        300,
        300,
        300,
    ]


@pytest.mark.parametrize(
    ("read_after_created", "read_after_wake", "proven"),
    [
        (timedelta(seconds=120), None, True),
        (timedelta(seconds=120) - MILLISECOND, None, False),
        (timedelta(hours=1), timedelta(seconds=120), True),
        (timedelta(hours=1), timedelta(seconds=120) - MILLISECOND, False),
    ],
)
def test_cold_proves_an_end_only_120_s_after_creation_and_after_our_last_waking_call(
    read_after_created: timedelta, read_after_wake: timedelta | None, *, proven: bool
) -> None:
    identity = replace(IDENTITY, created=NOON - read_after_created)
    wake = None if read_after_wake is None else NOON - read_after_wake

    _, step = plan_kill(FRESH, facts(sprite=build_seen(SpriteState.COLD), last_wake_time=wake, identity=identity))

    assert (step == Proven(KillEvidence.SPRITE_COLD)) is proven


@pytest.mark.parametrize("state", [SpriteState.UNKNOWN, SpriteState.WARM, SpriteState.RUNNING])
def test_no_other_state_proves_anything(state: SpriteState) -> None:
    assert plan_kill(FRESH, facts(sprite=build_seen(state)))[1] == AskSessions(ASKED)


def test_a_paused_sprite_is_woken_in_five_rounds_and_then_the_kill_is_owed() -> None:
    warm = facts(sprite=build_seen(SpriteState.WARM))

    assert plan_kill(replace(FRESH, rounds=4), warm)[1] == AskSessions(ASKED)
    _, step = plan_kill(replace(FRESH, rounds=5), warm)
    assert isinstance(step, Unproven)
    assert step.situation is Situation.KILL_OWED


@pytest.mark.case("K17")
def test_a_missing_sprite_proves_an_end_only_once_two_complete_listings_agree() -> None:
    """The product's own form: a 404 alone is no proof, since an incident answers 404 as well."""
    assert isinstance(plan_kill(FRESH, facts(sprite=build_away(confirmed=False)))[1], Unproven)
    assert plan_kill(FRESH, facts(sprite=build_away(confirmed=True)))[1] == Proven(KillEvidence.SPRITE_GONE)


@pytest.mark.parametrize(
    ("settled", "reason"),
    [
        (None, Reason.SPRITE_NOT_FOUND),
        (next(iter(NotSent)), Reason.SPRITE_NOT_FOUND),
        (next(iter(KillAnswer)), Reason.SIGNALLED),
    ],
)
@pytest.mark.parametrize("blind", [False, True])
def test_what_was_sent_before_its_sprite_went_from_the_list_is_said_to_be(
    settled: KillAnswer | NotSent | None, reason: Reason, blind: bool
) -> None:
    away = replace(build_away(confirmed=False), blind=blind)

    _, step = plan_kill(replace(FRESH, settled=settled), facts(sprite=away))

    assert isinstance(step, Unproven)
    assert step.reason is reason


@pytest.mark.case("K15")
def test_a_sprite_that_cannot_be_looked_up_ends_nothing() -> None:
    _, step = plan_kill(FRESH, facts(sprite=failed(Failure.UNREACHABLE)))

    assert isinstance(step, Unproven)
    assert step.situation is Situation.SPRITES_UNAVAILABLE


moments = st.integers(-120_000, 120_000).map(lambda ms: NOW + timedelta(milliseconds=ms))
sprites = st.builds(Sprite, st.just(SPRITE_ID), st.just("my-sprite"), st.sampled_from(SpriteState))
entries = st.sampled_from([SESSION, OTHER, SIBLING])
session_looks = st.one_of(
    st.just(NOT_LOOKED),
    st.builds(LookFailed, st.sampled_from(Failure), st.just("It failed."), moments),
    st.builds(Listed, st.lists(entries, max_size=3, unique=True).map(tuple), moments),
)
sprite_looks = st.one_of(
    st.just(NOT_LOOKED),
    st.builds(LookFailed, st.sampled_from(Failure), st.just("It failed."), moments),
    st.builds(SpriteAway, moments, st.just(NOON), st.booleans()),
    st.builds(
        SpriteSeen,
        st.builds(Sprite, st.just(SPRITE_ID), st.just("my-sprite"), st.sampled_from(SpriteState)),
        moments,
        st.just(NOON),
    ),
)
progresses = st.builds(
    KillProgress,
    asked=moments,
    asked_time=st.just(NOON),
    attempts=st.integers(0, 20),
    round_attempts=st.integers(0, 2),
    rounds=st.integers(0, 12),
    not_before=st.none() | moments,
    settled=st.none() | st.sampled_from(KillAnswer) | st.sampled_from(NotSent),
    settled_at=moments,
    settled_time=st.just(NOON),
    absent_at=st.none() | moments,
)


@given(progresses, sprite_looks, session_looks)
def test_every_combination_has_a_step_and_only_sound_evidence_proves(
    progress: KillProgress, sprite: SpriteLook, sessions: SessionsLook
) -> None:
    _, step = plan_kill(progress, facts(sessions, sprite))

    if isinstance(step, Send):
        assert isinstance(sessions, Listed)
        assert sessions.started >= progress.asked
        assert sessions.started >= NOW - timedelta(seconds=1)
        assert all(entry != OTHER for entry in sessions.sessions[:1]) or SESSION in sessions.sessions
    if step == Proven(KillEvidence.SESSION_LIST):
        assert isinstance(sessions, Listed)
        assert progress.settled is not None
        assert progress.absent_at is not None
        assert sessions.started >= progress.absent_at + timedelta(milliseconds=300)
        assert not any(entry == SESSION for entry in sessions.sessions[:1])
    if step == Proven(KillEvidence.SPRITE_GONE):
        assert isinstance(sprite, SpriteAway)
        assert sprite.confirmed


@given(progresses, st.sampled_from(Reason))
def test_a_failed_attempt_never_leaves_a_settled_request_behind(progress: KillProgress, reason: Reason) -> None:
    after, step = note_attempt_failed(progress, reason, "It failed.", now=NOW)

    assert after.settled is None
    assert after.absent_at is None
    assert isinstance(step, ComeAgain | Unproven)
    assert after.not_before is not None
    assert after.not_before > NOW

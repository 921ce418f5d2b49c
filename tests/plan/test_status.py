"""The status that follows from an outcome, and whether it is worth a write."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.session import SpriteState
from controller.api.situations import Phase, Situation, judge_readiness
from controller.api.terminal import Condition, TerminalStatus
from controller.errors import Failure
from controller.plan.activity import Activity
from controller.plan.hold_round import IDLE, WORK_WAITS
from controller.plan.looks import NOT_LOOKED, LookFailed, SpriteLook
from controller.plan.status import NOT_JUDGED, HoldView, build_status, is_worth_writing
from controller.plan.steps import Outcome, Verdict
from tests.plan.building import ADOPTED, NOON, NOW, build_away, build_seen, build_spec

LIVES = Outcome(Situation.DETACHED, "It lives.", session=ADOPTED, kill=None)


def build(old: TerminalStatus | None = None, outcome: Outcome = LIVES, **fields: object) -> TerminalStatus:
    given = {
        "spec": build_spec(),
        "generation": 3,
        "sprite": build_seen(),
        "requested_at": None,
        "now": NOON + timedelta(microseconds=5),
        **fields,
    }
    return build_status(old or TerminalStatus(), outcome, **given)  # type: ignore[arg-type]  # a bag of arguments


def find(status: TerminalStatus, kind: ConditionType) -> Condition:
    return next(condition for condition in status.conditions if condition.type is kind)


def test_all_nine_conditions_stand_in_every_status_with_their_own_generation() -> None:
    status = build()

    assert tuple(condition.type for condition in status.conditions) == tuple(ConditionType)
    assert {condition.observed_generation for condition in status.conditions} == {3}
    assert status.observed_generation == 3


@pytest.mark.parametrize("situation", list(Situation))
def test_ready_reconciling_and_stalled_follow_the_table(situation: Situation) -> None:
    status = build(outcome=replace(LIVES, situation=situation))
    readiness = judge_readiness(situation)

    assert find(status, ConditionType.RECONCILING).status == str(readiness.reconciling)
    assert find(status, ConditionType.STALLED).status == str(readiness.stalled)
    if readiness.ready is not None:
        assert find(status, ConditionType.READY).status == readiness.ready


def test_a_suspended_terminal_keeps_the_ready_it_had() -> None:
    running = build()
    suspended = build(running, replace(LIVES, situation=Situation.SUSPENDED))

    assert find(suspended, ConditionType.READY).status is ConditionStatus.TRUE
    assert find(suspended, ConditionType.READY).reason == Reason.DETACHED
    assert find(suspended, ConditionType.RECONCILING).reason == Reason.SUSPENDED
    assert suspended.phase is Phase.SUSPENDED


def test_a_transition_time_moves_only_with_the_value() -> None:
    first = build()
    later = build(first, replace(LIVES, situation=Situation.RUNNING), now=NOON + timedelta(minutes=1))

    assert find(later, ConditionType.READY).last_transition_time == NOON
    assert find(later, ConditionType.READY).reason == Reason.RUNNING


@pytest.mark.parametrize(
    ("socket_id", "status", "reason"),
    [
        (None, ConditionStatus.FALSE, Reason.NEVER_CLAIMED),
        ("", ConditionStatus.TRUE, Reason.REVOKED),
        ("at1.1.a.b", ConditionStatus.TRUE, Reason.SOCKET_NAMED),
    ],
)
def test_absent_empty_and_an_id_are_three_things(
    socket_id: str | None, status: ConditionStatus, reason: Reason
) -> None:
    fenced = find(build(spec=build_spec(activeSocketId=socket_id)), ConditionType.FENCED)

    assert (fenced.status, fenced.reason) == (status, reason)


@pytest.mark.parametrize(
    ("look", "status", "reason"),
    [
        (build_seen(), ConditionStatus.TRUE, Reason.REACHABLE),
        (build_away(confirmed=False), ConditionStatus.FALSE, Reason.SPRITE_NOT_FOUND),
        (LookFailed(Failure.UNAUTHORIZED, "No.", NOW), ConditionStatus.FALSE, Reason.TOKEN_REJECTED),
        (LookFailed(Failure.FORBIDDEN, "No.", NOW), ConditionStatus.FALSE, Reason.TOKEN_FORBIDDEN),
        (LookFailed(Failure.THROTTLED, "No.", NOW), ConditionStatus.UNKNOWN, Reason.THROTTLED),
        (LookFailed(Failure.SERVER, "No.", NOW), ConditionStatus.UNKNOWN, Reason.SPRITES_UNAVAILABLE),
        (NOT_LOOKED, ConditionStatus.UNKNOWN, Reason.PENDING),
    ],
)
def test_whether_the_sprite_is_reachable_follows_from_the_last_look(
    look: SpriteLook, status: ConditionStatus, reason: Reason
) -> None:
    reachable = find(build(sprite=look), ConditionType.SPRITE_REACHABLE)

    assert (reachable.status, reachable.reason) == (status, reason)


def test_terminated_goes_back_only_where_the_spec_never_asked() -> None:
    proven = replace(LIVES, terminated=Verdict(ConditionStatus.TRUE, Reason.CONFIRMED))
    asked = build_spec(terminated=True)
    first = build(outcome=proven, spec=asked)

    assert find(build(first, LIVES, spec=asked), ConditionType.TERMINATED).status is ConditionStatus.TRUE
    assert find(build(first, LIVES), ConditionType.TERMINATED).status is ConditionStatus.FALSE


def test_a_status_that_was_never_stored_is_worth_a_write() -> None:
    assert is_worth_writing(build(), build(), stored=False)


def test_the_same_outcome_again_is_not_worth_a_write() -> None:
    first = build()

    assert not is_worth_writing(first, build(first, now=NOON + timedelta(hours=1)), stored=True)


@pytest.mark.parametrize(
    "again",
    [
        {"outcome": replace(LIVES, message="Other words.")},
        {"sprite": build_seen(SpriteState.WARM)},
    ],
    ids=["only the wording differs", "only the sprite's lagging state differs"],
)
def test_what_merely_goes_on_is_not_worth_a_write(again: dict[str, object]) -> None:
    first = build()

    assert not is_worth_writing(first, build(first, **again), stored=True)  # type: ignore[arg-type]  # a bag


@pytest.mark.parametrize(
    "news",
    [
        {"outcome": replace(LIVES, situation=Situation.RUNNING)},
        {"generation": 4},
        {"spec": build_spec(attached=True)},
        {"requested_at": "now"},
        {"sprite": build_away(confirmed=False)},
    ],
)
def test_what_is_news_is_worth_a_write(news: dict[str, object]) -> None:
    first = build()

    assert is_worth_writing(first, build(first, **news), stored=True)  # type: ignore[arg-type]  # a bag


@pytest.mark.parametrize(
    ("situation", "is_news"),
    [
        (Situation.SESSION_TAKEN, True),
        (Situation.LAUNCH_INVALID, True),
        (Situation.TOKEN_NOT_ALLOWED, True),
        (Situation.SECRET_NOT_FOUND, True),
        (Situation.SECRET_KEY_MISSING, True),
        (Situation.TOKEN_INVALID, True),
        (Situation.OBJECT_INVALID, True),
        (Situation.TOKEN_REJECTED, False),
        (Situation.TOKEN_FORBIDDEN, False),
        (Situation.LAUNCH_REFUSED, False),
        (Situation.SPRITES_UNAVAILABLE, False),
    ],
)
def test_another_thing_to_mend_is_news_and_the_wording_of_a_failed_call_is_not(
    situation: Situation, *, is_news: bool
) -> None:
    first = build(outcome=replace(LIVES, situation=situation, message="Secret one is missing."))
    again = build(first, replace(LIVES, situation=situation, message="Secret two is missing."))

    assert is_worth_writing(first, again, stored=True) is is_news


def test_the_idle_time_counts_from_the_last_viewers_leaving() -> None:
    watched = build(spec=build_spec(attached=True))
    assert watched.detached_time is None

    left = build(watched, now=NOON + timedelta(seconds=1))
    assert left.detached_time == NOON + timedelta(seconds=1)
    assert build(left, now=NOON + timedelta(minutes=9)).detached_time == left.detached_time


@pytest.mark.case("I8")
@pytest.mark.parametrize("stay", [timedelta(0), timedelta(milliseconds=1), timedelta(hours=1)])
def test_whoever_comes_to_type_has_the_idle_time_begin_anew_by_leaving(stay: timedelta) -> None:
    """The product's own form: no input is delivered but over the socket of somebody who is attached."""
    left = build(build(spec=build_spec(attached=True)), now=NOON)
    came = NOON + timedelta(minutes=29)

    typing = build(left, spec=build_spec(attached=True, activeSocketId="socket-2"), now=came)
    gone = build(typing, now=came + stay)

    assert left.detached_time == NOON
    assert typing.detached_time is None
    assert gone.detached_time == came + stay


def test_the_idle_time_starts_anew_on_resume() -> None:
    left = build()
    suspended = build(left, replace(LIVES, situation=Situation.SUSPENDED), spec=build_spec(suspend=True))
    resumed = build(suspended, now=NOON + timedelta(hours=1))

    assert resumed.detached_time == NOON + timedelta(hours=1)


# --- why nothing is held ----------------------------------------------------------------------------------------------


def build_view(message: str, latest: datetime | None = None, reason: Reason = Reason.NOT_HELD) -> HoldView:
    return HoldView(Verdict(ConditionStatus.FALSE, reason, message), None, Activity(latest, observable=True))


def build_wanting(old: TerminalStatus | None = None, outcome: Outcome = LIVES, **fields: object) -> TerminalStatus:
    spec = build_spec(holdWanted=True, terminated=outcome.situation is Situation.TERMINATED)
    return build(old, outcome, spec=spec, **fields)


def tell_held(status: TerminalStatus) -> str:
    held = find(status, ConditionType.HELD)
    assert (held.status, held.reason) == (ConditionStatus.FALSE, Reason.NOT_HELD)
    return held.message


def test_a_wish_without_a_book_says_what_is_missing() -> None:
    no_secret = replace(LIVES, situation=Situation.SECRET_NOT_FOUND, message="Secret one does not exist.")
    cut_off = build_view("", reason=Reason.NOT_WANTED)

    assert tell_held(build_wanting()) == NOT_JUDGED
    assert tell_held(build_wanting(outcome=replace(LIVES, session=None))) == "There is no session to hold for yet."
    assert "its end is asked for" in tell_held(build_wanting(outcome=replace(LIVES, situation=Situation.TERMINATED)))
    assert tell_held(build_wanting(outcome=no_secret, hold=cut_off)).endswith("a token: Secret one does not exist.")


def test_the_last_activity_is_told_and_calls_for_no_write() -> None:
    idle = f"{IDLE} 120 s."
    first = build_wanting(hold=build_view(idle, NOON))
    later = build_wanting(first, hold=build_view(idle, NOON + timedelta(hours=1)))

    assert tell_held(first) == f"{idle} The last activity was seen at 2026-11-30T12:00:00Z."
    assert tell_held(later).endswith("13:00:00Z.")
    assert not is_worth_writing(first, later, stored=True)


def test_what_hinders_a_hold_is_written_when_it_changes_and_what_was_found_gives_way_to_no_guess() -> None:
    unjudged = build_wanting()
    idle = build_wanting(unjudged, hold=build_view(f"{IDLE} 120 s."))
    assert is_worth_writing(unjudged, idle, stored=True)

    # As after a restart.
    assert not is_worth_writing(idle, build_wanting(idle), stored=True)
    assert build_wanting(idle).conditions == idle.conditions

    hindered = [build_wanting(idle, hold=build_view(f"{WORK_WAITS} {what}.")) for what in ("one", "two")]
    assert is_worth_writing(idle, hindered[0], stored=True)
    assert is_worth_writing(*hindered, stored=True)
    assert not is_worth_writing(hindered[0], hindered[0], stored=True)

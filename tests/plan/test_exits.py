"""What becomes of an exit that a gateway has seen: whose it is, when it is believed, and what it never undoes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.api.session import Cause, SpriteState
from controller.api.situations import Situation
from controller.api.terminal import GatewayStatus, SessionStatus, TerminalStatus, read_status
from controller.plan.ends import is_exit_settled
from controller.plan.facts import Facts, Memory
from controller.plan.fence_objects import ExitEntry, ObjectView, render_entry, view_object
from controller.plan.fence_patches import build_drop_entry, build_entry
from controller.plan.kill import ComeAgain
from controller.plan.looks import Listed
from controller.plan.status import build_status, is_worth_writing
from controller.plan.steps import LookAtSessions, Outcome, Rest, SweepGateway
from controller.plan.terminal import EXIT_TRAIL
from tests.plan.building import (
    ADOPTED,
    CREATED,
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

GATEWAY = "gateway01"
SEEN: dict[str, Any] = {"sessionId": "41", "spriteId": SPRITE_ID, "created": CREATED.isoformat(), "code": 3}
VIEW = ObjectView(uid="uid-1", generation=1, version=1)


def tell(**fields: Any) -> tuple[GatewayStatus, ...]:
    """What two gateways say, one of which has seen an exit."""
    entries = [{"incarnation": "other0001", "viewers": 1}, {"incarnation": GATEWAY, "exit": SEEN | fields}]
    return read_status({"gateways": entries}).gateways


def build(session: SessionStatus = ADOPTED, gateways: tuple[GatewayStatus, ...] | None = None, **fields: Any) -> Facts:
    """A terminal whose gateway says that its session has exited, which was just heard."""
    status = TerminalStatus(observed_generation=1, session=session, gateways=tell() if gateways is None else gateways)
    return build_facts(**{"status": status, "doubt": NOW, **fields})


def write(facts: Facts, outcome: Outcome) -> TerminalStatus:
    """The status that follows."""
    return build_status(
        facts.status,
        outcome,
        spec=facts.spec,
        generation=facts.generation,
        sprite=facts.sprite,
        requested_at=None,
        now=NOON,
        hold=None,
        view=facts.view,
    )


def test_a_session_whose_exit_was_seen_has_exited_with_that_code_once_two_lists_lack_it() -> None:
    facts = build(sessions=build_list())
    once = decide(facts)
    later = NOW + timedelta(milliseconds=300)
    facts = replace(facts, sessions=Listed((), later), now=later, began=later)
    outcome = decide_outcome(facts, once.memory)

    assert isinstance(once.step, ComeAgain)
    assert outcome.situation is Situation.EXITED
    assert outcome.message == "Session 41 has exited with code 3."
    status = write(facts, outcome)
    assert status.exit is not None
    assert status.exit.code == 3
    assert status.session is not None
    assert status.session.ended is not None
    assert status.session.ended.reason == "Exited"
    assert is_worth_writing(facts.status, status, stored=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"sessionId": "42"},
        {"spriteId": "sprite-2"},
        {"created": "2026-11-30T10:59:00Z"},
    ],
    ids=["another id", "another sprite of that name", "an id that came again"],
)
def test_the_exit_of_another_session_says_nothing(fields: dict[str, Any]) -> None:
    later = NOW + timedelta(milliseconds=300)
    facts = build(gateways=tell(**fields), sessions=Listed((), later), now=later, began=later)

    outcome = decide_outcome(facts, Memory(absent_at=NOW))
    assert outcome.situation is Situation.EXIT_UNSEEN
    assert write(facts, outcome).exit is None


def test_an_exit_of_which_no_created_time_is_known_is_believed() -> None:
    seen = {key: value for key, value in SEEN.items() if key != "created"}
    gateways = read_status({"gateways": [{"incarnation": GATEWAY, "exit": seen}]}).gateways
    facts = build(gateways=gateways, sprite=build_seen(SpriteState.WARM))

    assert decide_outcome(facts).situation is Situation.EXITED


@pytest.mark.parametrize(
    "sprite",
    [build_seen(SpriteState.COLD), build_seen(SpriteState.WARM), build_away(confirmed=True)],
    ids=["cold", "warm", "gone"],
)
def test_what_was_seen_of_an_end_comes_before_a_loss_and_asks_nothing_of_a_paused_sprite(sprite: Any) -> None:
    outcome = decide_outcome(build(sprite=sprite))

    assert outcome.situation is Situation.EXITED
    assert outcome.exit_code == 3


def test_a_list_that_trails_is_asked_again_and_believed_after_five_seconds() -> None:
    listed = build(sessions=build_list(SESSION))
    again = decide(listed)
    next_visit = replace(listed, now=NOW + timedelta(seconds=1), began=NOW + timedelta(seconds=1))
    late = NOW + EXIT_TRAIL
    at_last = replace(listed, now=late, began=late, sessions=Listed((SESSION,), late))

    assert isinstance(again.step, ComeAgain)
    assert decide_step(next_visit, again.memory) == LookAtSessions(NOW + timedelta(seconds=1), Cause.CHECK)
    outcome = decide_outcome(at_last, again.memory)
    assert outcome.situation is Situation.DETACHED
    assert outcome.doubt_settled


def test_an_end_of_which_nobody_saw_the_exit_takes_a_code_that_comes_late_and_stays_the_same_end() -> None:
    end = build_end("ExitUnseen", attached=True, socket_id="a")
    facts = build(ADOPTED.model_copy(update={"ended": end}), doubt=None, now_time=NOON + timedelta(minutes=1))
    outcome = decide_outcome(facts)

    assert outcome.session is not None
    assert outcome.session.ended == end.model_copy(update={"reason": "Exited"})
    assert write(facts, outcome).exit is not None


@pytest.mark.parametrize("reason", ["Lost", "Reaped", "Exited", "LaunchUnclear"])
def test_an_end_that_is_known_stays_what_it_is(reason: str) -> None:
    session = ADOPTED.model_copy(update={"ended": build_end(reason)})
    outcome = decide_outcome(build(session, doubt=None, spec=build_spec(launch=None, sessionId="41")))

    assert outcome.session == session
    assert outcome.exit_code is None


def test_the_exit_stands_until_another_session_is_begun() -> None:
    ended = ADOPTED.model_copy(update={"ended": build_end("Exited")})
    facts = build(ended, doubt=None)
    known = read_status({"exit": {"code": 3}}).exit
    facts = replace(facts, status=facts.status.model_copy(update={"exit": known}))

    kept = write(facts, decide_outcome(facts))
    begun = write(facts, Outcome(Situation.STARTING, "", session=ADOPTED, kill=None))

    assert kept.exit == known
    assert begun.exit is None


def test_an_end_is_written_before_the_entry_of_a_dead_gateway_that_told_of_it_is_swept() -> None:
    raw = {"metadata": {"uid": "uid-1"}, "status": {"gateways": [{"incarnation": GATEWAY, "viewers": 0, "exit": SEEN}]}}
    view = view_object(raw)
    facts = build(sprite=build_seen(SpriteState.WARM), view=view, dead=frozenset({GATEWAY}))
    first = decide_step(facts)
    assert isinstance(first, Rest)
    written = write(facts, first.outcome)

    assert first.outcome.situation is Situation.EXITED
    assert isinstance(decide_step(replace(facts, doubt=None, status=written)), SweepGateway)


# --- what a gateway writes --------------------------------------------------------------------------------------------


def test_an_entry_is_written_back_as_it_was_stored_with_its_exit_and_what_a_later_version_added() -> None:
    stored = {
        "incarnation": GATEWAY,
        "viewers": 0,
        "exit": {"sessionId": "41", "spriteId": SPRITE_ID, "created": "2026-11-30T11:00:00.5Z", "code": 137},
        "later": {"a": 1},
    }
    view = view_object({"metadata": {"uid": "uid-1"}, "status": {"gateways": [stored]}})
    (entry,) = view.gateways

    assert render_entry(entry) == stored
    assert entry.exit == ExitEntry("41", SPRITE_ID, "2026-11-30T11:00:00.5Z", 137)
    assert build_drop_entry(view, GATEWAY)[1] == {"op": "test", "path": "/status/gateways", "value": [stored]}
    assert build_entry(view, entry) == []
    assert build_entry(view, replace(entry, exit=None))[-1]["value"] == {
        key: value for key, value in stored.items() if key != "exit"
    }


@pytest.mark.parametrize(
    ("session", "settled"),
    [
        (ADOPTED, False),
        (ADOPTED.model_copy(update={"ended": build_end("ExitUnseen")}), False),
        (ADOPTED.model_copy(update={"ended": build_end("Exited")}), True),
        (ADOPTED.model_copy(update={"ended": build_end("Terminated")}), True),
        (ADOPTED.model_copy(update={"id": "42"}), True),
        (None, True),
    ],
)
def test_an_exit_is_told_until_the_end_of_its_session_is_known(session: SessionStatus | None, *, settled: bool) -> None:
    assert is_exit_settled(session, ExitEntry("41", SPRITE_ID, None, 3)) is settled

"""What may end a session, decided on the whole object (cases T1 to T8): an end that was asked for, and the reap."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.api.conditions import Reason
from controller.api.situations import Situation
from controller.api.terminal import KillTrigger
from controller.errors import Failure
from controller.plan.facts import Facts, Memory
from controller.plan.kill import begin_kill
from controller.plan.looks import LookFailed
from controller.plan.steps import ReleaseObject, RereadObject, Rest, SendKill, Step
from tests.plan.building import (
    ADOPTED,
    NOON,
    NOW,
    SESSION,
    build_end,
    build_facts,
    build_list,
    build_seen,
    build_spec,
    decide,
    decide_outcome,
    decide_step,
)

LONG_AGO = NOON - timedelta(hours=1)
READ = Memory(object_read=NOW)
"""The object was read just now, as it is before a reap's SIGKILL."""

ENDINGS: dict[KillTrigger, dict[str, Any]] = {
    KillTrigger.TERMINATED: {"spec": build_spec(terminated=True)},
    KillTrigger.DELETED: {"deleting": True},
    KillTrigger.REAPED: {"detached": True},
}
"""
The product's own form of the triggers: every end is declared in the object, revoked access and an unpaid account as
`terminated` or a deletion like a user's own wish. So each kill has one of three, and there is no second way.
"""


def build(*, detached: bool = False, **fields: Any) -> Facts:
    """A session that lives and is listed, and that nobody has watched for an hour where it is said."""
    facts = build_facts(session=ADOPTED, **{"sessions": build_list(SESSION), "sprite": build_seen(), **fields})
    if not detached:
        return facts
    return replace(facts, status=facts.status.model_copy(update={"detached_time": LONG_AGO}))


def find_sent(facts: Facts, memory: Memory = READ) -> Step | None:
    """The kill that a decision comes to, if it does."""
    step = decide_step(facts, memory)
    return step if isinstance(step, SendKill) else None


@pytest.mark.case("T1", "T7")
@pytest.mark.parametrize("trigger", list(KillTrigger))
def test_an_end_that_is_declared_and_the_reap_kill_that_session(trigger: KillTrigger) -> None:
    step = find_sent(build(**ENDINGS[trigger]))

    assert isinstance(step, SendKill)
    assert (step.identity.session_id, step.identity.sprite_id) == (ADOPTED.id, ADOPTED.sprite_id)


@pytest.mark.parametrize(
    ("trigger", "step"),
    [(KillTrigger.TERMINATED, SendKill), (KillTrigger.DELETED, SendKill), (KillTrigger.REAPED, RereadObject)],
)
def test_a_reap_alone_reads_the_object_again_directly_before_the_kill(trigger: KillTrigger, step: type) -> None:
    assert isinstance(decide_step(build(**ENDINGS[trigger]), Memory()), step)


@pytest.mark.case("T2", "T3")
@pytest.mark.parametrize(
    "spec",
    [
        {"attached": False, "activeSocketId": "socket-1"},
        {"attached": False, "activeSocketId": ""},
        {"attached": True, "activeSocketId": ""},
    ],
    ids=["left", "thrown out", "revoked alone"],
)
def test_a_detach_kills_nothing_and_merely_starts_the_clock(spec: dict[str, Any]) -> None:
    facts = build(spec=build_spec(**spec))

    assert find_sent(facts) is None
    assert decide_outcome(facts, READ).situation is Situation.DETACHED


@pytest.mark.case("T2", "T8")
@pytest.mark.parametrize("reason", ["Exited", "ExitUnseen", "Lost"])
@pytest.mark.parametrize("trigger", list(KillTrigger))
def test_after_a_shells_own_end_nothing_kills_any_more(reason: str, trigger: KillTrigger) -> None:
    """Also where another session has its id meanwhile."""
    facts = build(**ENDINGS[trigger])
    ended = ADOPTED.model_copy(update={"ended": build_end(reason)})

    assert find_sent(replace(facts, status=facts.status.model_copy(update={"session": ended}))) is None


@pytest.mark.case("T4")
def test_without_a_session_that_was_ever_learned_nothing_is_killed_and_that_is_no_error() -> None:
    """The product's own form: a launch that may have begun is searched for first, by its recorded intent (K14)."""
    unknown = build_facts(spec=build_spec(terminated=True))
    outcome = decide_outcome(unknown, READ)

    assert outcome.situation is Situation.TERMINATED
    assert outcome.terminated is not None
    assert outcome.terminated.reason is Reason.NOTHING_TO_END
    assert isinstance(decide_step(build_facts(deleting=True), READ), ReleaseObject)


@pytest.mark.case("T5")
@pytest.mark.parametrize("trigger", list(KillTrigger))
def test_a_kill_that_fails_is_told_in_one_line_with_session_and_trigger_and_is_repeated(trigger: KillTrigger) -> None:
    facts = build(**ENDINGS[trigger], sprite=LookFailed(Failure.SERVER, "The Sprites API answered 500.", NOW))

    step = decide(facts, replace(READ, kill=begin_kill(asked=NOW, now=NOW, now_time=NOON))).step

    assert isinstance(step, Rest)
    (warning,) = step.happenings
    assert warning.warning
    assert warning.event
    for part in ("Session 41", f"({trigger.value})", "The Sprites API answered 500."):
        assert part in warning.note
    assert "\n" not in warning.note
    assert step.retry or step.after is not None, "it is tried again"
    assert step.outcome.session == ADOPTED, "and its record stays"

"""
What may wake a paused sprite: the closed list. Pure and total.

Problem: any call to a sprite's inside wakes it, and its owner pays; a retry, a restart or a periodic look that does so
keeps a forgotten sprite awake for ever. Promise: every step that reaches inside passes `guard_wake`, and one that has
no right to wake goes out only to a sprite that was seen running directly before. What it cannot do then is *owed*: done
when the sprite next runs.

| May wake | How often |
| --- | --- |
| the end of a recorded session, by `terminated` or deletion | once in each of the first 5 rounds (`plan.kill`) |
| the end of a lost launch, or of a session that was never adopted, likewise | 5 times |
| the first adoption, the first launch | once, and once more for each change of the spec |
| a launch for somebody who attached since the last session ended | likewise |

Nothing else: no hold, reap, check, retry, restart, `relaunch: OnLost`, and no viewer of a session that lives.

Source: design 4.4 (docs/architecture.md).
"""

from dataclasses import replace
from typing import Final

from controller.api.conditions import ConditionType, Reason
from controller.api.situations import Situation
from controller.api.terminal import SessionStatus, TerminalStatus
from controller.errors import Failure
from controller.plan.ends import has_come_since
from controller.plan.facts import Facts, Memory, Wakes
from controller.plan.kill import WAKES_NOBODY, WAKING_ROUNDS
from controller.plan.looks import LookFailed, NotLooked, SpriteAway, SpriteSeen
from controller.plan.resting import is_known_awake, is_paused, judge_unended, look_freshly, rest_on_failure
from controller.plan.steps import (
    BarLaunch,
    LookAtProcesses,
    LookAtSessions,
    Outcome,
    Plan,
    ProbeLaunch,
    Rest,
    SendKill,
    StartSession,
    Verdict,
)

REACHES_INSIDE: Final = (LookAtSessions, LookAtProcesses, ProbeLaunch, BarLaunch, StartSession, SendKill)
"""The steps that call something in the sprite."""

ANSWERED: Final = frozenset({Situation.SESSION_TAKEN, Situation.SESSION_NOT_OURS, Situation.SESSION_NOT_FOUND})
"""The sprite was woken for this spec and has given its answer: asking again is a retry."""


def guard_wake(facts: Facts, plan: Plan) -> Plan:
    """Let a step that reaches inside pass if it wakes nobody, or may."""
    if not isinstance(plan.step, REACHES_INSIDE) or is_known_awake(facts) or may_wake(facts, plan.memory):
        return plan
    match facts.sprite:
        case NotLooked():
            return look_freshly(facts, plan.memory)
        case LookFailed() as failed:
            return rest_on_failure(facts, plan.memory, failed)
        case SpriteAway():
            return plan
        case SpriteSeen():
            return _rest_owed(facts, plan.memory) if is_paused(facts.sprite) else look_freshly(facts, plan.memory)


def may_wake(facts: Facts, memory: Memory) -> bool:
    """Tell whether the next call may wake the sprite: a change of the spec needs it, and has not used its wake."""
    session, status = facts.status.session, facts.status
    is_observed = status.observed_generation == facts.generation
    used = memory.wakes.count if memory.wakes is not None and memory.wakes.generation == facts.generation else 0
    if session is None and is_observed and read_situation(status) in ANSWERED:
        return False
    if facts.deleting or facts.spec.terminated:
        return used < WAKING_ROUNDS or (session is not None and session.id is not None)
    if facts.spec.suspend or used > 0:
        return False
    if session is None:
        return True
    if session.ended is not None:
        return has_come_since(facts.spec, session.ended)
    return session.id is None and (not is_observed or _is_our_own(facts, session))


def _is_our_own(facts: Facts, session: SessionStatus) -> bool:
    """
    Tell whether this process has recorded a launch, and so knows whether a wake was used for it.

    Of one that was recorded before a restart it is taken to be used: a restart must not wake.
    """
    intent = session.launch_intent
    return intent is not None and facts.now_time - intent.requested_time <= facts.now - facts.first_seen


def note_wake(memory: Memory, *, generation: int, failure: Failure | None) -> Memory:
    """Remember a call to a paused sprite; one that did not get through has woken nobody."""
    if failure in WAKES_NOBODY:
        return memory
    used = memory.wakes.count if memory.wakes is not None and memory.wakes.generation == generation else 0
    return replace(memory, wakes=Wakes(generation, used + 1))


def read_situation(status: TerminalStatus) -> Situation | None:
    """Read the situation off the condition that always carries it."""
    for condition in status.conditions:
        if condition.type is ConditionType.RECONCILING and condition.reason in Situation.__members__.values():
            return Situation(condition.reason)
    return None


def _rest_owed(facts: Facts, memory: Memory) -> Plan:
    """Say that it goes on when the sprite next runs; what was answered before stands."""
    recorded = read_situation(facts.status)
    if facts.status.session is None and recorded in ANSWERED:
        return Plan(Rest(_repeat(facts.status, recorded)), memory)
    situation = _judge_owed(facts)
    text = (
        f"Sprite {facts.spec.sprite_name} is paused, and this has used its wake: it goes on when the sprite next runs, "
        "or when the spec changes."
    )
    outcome = Outcome(
        situation,
        text,
        session=facts.status.session,
        kill=facts.status.kill,
        terminated=judge_unended(facts, situation, text, reason=Reason.KILL_OWED),
    )
    return Plan(Rest(outcome), memory)


def _judge_owed(facts: Facts) -> Situation:
    session = facts.status.session
    if facts.deleting or facts.spec.terminated:
        return Situation.KILL_OWED
    if session is not None and session.ended is not None:
        return Situation.RELAUNCHING
    if session is not None and session.id is not None:
        return Situation.REAP_OWED
    return Situation.WAKE_OWED


def _repeat(status: TerminalStatus, situation: Situation) -> Outcome:
    """Give the outcome that was recorded, so that nothing is written."""
    told = {condition.type: condition for condition in status.conditions}
    live = told[ConditionType.SESSION_LIVE]
    return Outcome(
        situation,
        told[ConditionType.RECONCILING].message,
        session=None,
        kill=status.kill,
        live=Verdict(live.status, Reason(live.reason), live.message),
    )

"""
What to do next about one AgentTerminal: the decision core. Pure, total, level-triggered.

The engine gathers `Facts`, asks `plan_terminal`, does the one `Step` it gets, and asks again with what it learned,
until the step is a `Rest` (write this status, come again then) or a `ComeAgain` (write nothing). Nothing here remembers
an event: whatever woke the object, the answer depends on what is declared, recorded and seen. `Memory` is what this
process alone knows; losing it costs time, never a second session and never a false proof.

Order of the questions: may it go (deletion), must it end (`terminated`), may it start (`suspend`, token), then adopt,
launch, or look whether it still lives.
"""

from dataclasses import replace

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import Cause, Identity, SpriteState
from controller.api.situations import Situation
from controller.api.terminal import (
    SessionEnd,
    SessionStatus,
    TerminalStatus,
)
from controller.plan.ends import EndReason, judge_end_by_list, judge_end_by_sprite, may_follow
from controller.plan.facts import Facts, Memory
from controller.plan.kill import (
    SECOND_LOOK,
    ComeAgain,
    Presence,
)
from controller.plan.looks import Listed, LookFailed, is_answer_to
from controller.plan.resting import is_paused, judge_situation_after, need_sprite, rest_ended, rest_live, rest_token
from controller.plan.starting import plan_first, plan_launch
from controller.plan.steps import LookAtSessions, Outcome, Plan, Rest, Verdict
from controller.plan.teardown import plan_deletion, plan_terminated


def plan_terminal(facts: Facts, memory: Memory) -> Plan:
    """Decide the next step. Total: it never raises, and every combination of facts has an answer."""
    if facts.deleting:
        return plan_deletion(facts, memory)
    if facts.spec.terminated:
        return plan_terminated(facts, memory)
    if facts.spec.suspend:
        return _plan_suspended(facts, memory)
    session = facts.status.session
    if session is None:
        return plan_first(facts, memory)
    if session.ended is not None:
        return _plan_after_end(facts, memory, session, session.ended)
    if session.id is None:
        return plan_launch(facts, memory)
    return _plan_live(facts, memory, session)


def _plan_suspended(facts: Facts, memory: Memory) -> Plan:
    """Start nothing. Ends are still observed and written."""
    session = facts.status.session
    if session is not None and session.id is not None and session.ended is None:
        plan = _judge_live(facts, memory, session)
        if plan is not None:
            return plan
    outcome = Outcome(
        Situation.SUSPENDED,
        "Suspended: nothing is started, adopted, held or reaped until `spec.suspend` is false.",
        session=session,
        kill=facts.status.kill,
        doubt_settled=True,
    )
    return Plan(Rest(outcome), memory)


def _plan_live(facts: Facts, memory: Memory, session: SessionStatus) -> Plan:
    """Say that it lives; look only where that is in question."""
    plan = _judge_live(facts, memory, session)
    if plan is not None:
        return plan
    if facts.token.trouble is not None and not facts.token.passing:
        return rest_token(facts, memory, facts.token.trouble)
    rested = rest_live(facts, replace(memory, absent_at=None), session)
    if _is_unanswered(facts) and isinstance(rested.step, Rest):
        outcome = replace(rested.step.outcome, live=None, doubt_settled=False)
        return Plan(Rest(outcome, retry=True), memory)
    return rested


def _is_unanswered(facts: Facts) -> bool:
    """Tell whether somebody asked whether the session lives, and the list that should say so failed."""
    return facts.doubt is not None and isinstance(facts.sessions, LookFailed) and facts.sessions.started >= facts.doubt


def _judge_live(facts: Facts, memory: Memory, session: SessionStatus) -> Plan | None:
    """Answer the question whether a session still lives: None means as far as anybody can tell."""
    if facts.doubt is None or session.id is None:
        return None
    identity = Identity(session.sprite_id or "", session.id, session.created)
    lost = judge_end_by_sprite(identity, facts.sprite)
    if lost is not None:
        return rest_ended(facts, memory, session, EndReason.LOST, lost.value)
    if facts.token.trouble is not None or is_paused(facts.sprite):
        return None
    question = facts.doubt if memory.absent_at is None else memory.absent_at + SECOND_LOOK
    if not is_answer_to(facts.sessions, question):
        if question > facts.now:
            return Plan(ComeAgain(question - facts.now), memory)
        return Plan(LookAtSessions(question, Cause.CHECK), memory)
    match judge_end_by_list(identity, facts.sessions):
        case None | Presence.LISTED:
            return None
        case Presence.REUSED:
            text = "The session's id is in use by another session."
            return rest_ended(facts, memory, session, EndReason.LOST, text)
        case Presence.ABSENT:
            assert isinstance(facts.sessions, Listed)
            if memory.absent_at is None:
                return Plan(ComeAgain(SECOND_LOOK), replace(memory, absent_at=facts.sessions.started))
            text = f"Session {session.id} is not in the sprite's list any more; nobody saw how it ended."
            return rest_ended(facts, memory, session, EndReason.EXIT_UNSEEN, text)


def _plan_after_end(facts: Facts, memory: Memory, session: SessionStatus, ended: SessionEnd) -> Plan:
    """Start a fresh session where the rules allow one, else say how the last one ended."""
    if may_follow(facts.spec, ended):
        return _plan_follow(facts, memory, ended)
    situation = judge_situation_after(facts.spec, ended)
    outcome = Outcome(
        situation,
        _message_of_end(facts.status, session),
        session=session,
        kill=facts.status.kill,
        live=Verdict(ConditionStatus.FALSE, Reason(situation.value)),
        doubt_settled=True,
    )
    return Plan(Rest(outcome), memory)


def _plan_follow(facts: Facts, memory: Memory, ended: SessionEnd) -> Plan:
    """A loss never wakes a sprite to start again; somebody who attaches does."""
    if ended.reason == EndReason.LOST and not facts.spec.attached:
        seen = need_sprite(facts, memory)
        if isinstance(seen, Plan):
            return seen
        if seen.sprite.state is not SpriteState.RUNNING:
            outcome = Outcome(
                Situation.RELAUNCHING,
                "The session was lost; another is launched when the sprite next runs.",
                session=facts.status.session,
                kill=facts.status.kill,
            )
            return Plan(Rest(outcome), memory)
    return plan_launch(facts, memory)


def _message_of_end(status: TerminalStatus, session: SessionStatus) -> str:
    """Keep the sentence that was written with the end."""
    for condition in status.conditions:
        if condition.type == "SessionLive" and condition.message:
            return condition.message
    return f"Session {session.id} has ended."

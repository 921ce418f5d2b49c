"""
What the fence asks of every plan: it waits for the living, and clears what is left of the dead. Pure and total.

Problem: a finalizer goes for many reasons (proof, nothing to guard, `Orphan`), and each of them alone knows nothing of
a gateway that still holds the lock; the object's successor would then begin beside a living holder. Promise: every
`ReleaseObject` passes `guard_fence`; a lock is cleared only where its holder is proven out, one write at a time; and
`spec` is never written.

Source: gateway.md 3, rule 6, and 4 (docs/fence.md).
"""

from typing import assert_never

from controller.api.conditions import ConditionStatus, Reason
from controller.api.situations import Situation
from controller.plan.facts import Facts, Memory
from controller.plan.fence_presence import (
    AwaitHolder,
    ReleaseNow,
    StatusSweep,
    SweepEntry,
    SweepFirst,
    SweepLock,
    judge_release,
    plan_status_sweep,
)
from controller.plan.steps import Outcome, Plan, ReleaseObject, Rest, SweepGateway, Verdict


def guard_fence(facts: Facts, memory: Memory, plan: Plan) -> Plan:
    """
    Let a plan pass, put a sweep before it, or let a release wait.

    Args:
        facts: What the plan was made of.
        memory: As it was before: after a sweep the plan is made again.
        plan: What is about to be done.
    """
    match plan.step:
        case ReleaseObject() as release:
            return _guard_release(facts, memory, plan, release)
        case Rest(outcome=outcome) if _is_fresh_end(facts, outcome):
            # What a gateway told of the end stands in the entry that would be swept.
            return plan
        case Rest():
            sweep = plan_status_sweep(facts.view, dead=facts.dead)
            return plan if sweep is None else Plan(_build_step(sweep), memory)
        case _:
            return plan


def _is_fresh_end(facts: Facts, outcome: Outcome) -> bool:
    """Tell whether this very outcome says, first of all, how the session ended."""
    known, session = facts.status.session, outcome.session
    if known is None or session is None or session.ended is None:
        return False
    return known.ended is None or known.ended.reason != session.ended.reason


def _guard_release(facts: Facts, memory: Memory, plan: Plan, release: ReleaseObject) -> Plan:
    match judge_release(facts.view, dead=facts.dead):
        case ReleaseNow():
            return plan
        case SweepFirst(sweep=sweep):
            return Plan(_build_step(sweep), memory)
        case AwaitHolder():
            return _rest_held(facts, plan.memory, release)
        case other:
            assert_never(other)


def _rest_held(facts: Facts, memory: Memory, release: ReleaseObject) -> Plan:
    """Say who is waited for; news of the lock, or the proof, brings the object back."""
    text = (
        "A gateway may still speak for this terminal. The object goes once it has let go, or its Lease proves "
        "that it is gone."
    )
    told = release.happening
    proven = told.note if told is not None and told.evidence is not None else None
    outcome = Outcome(
        Situation.TERMINATING,
        text,
        session=facts.status.session,
        kill=facts.status.kill,
        terminated=None if proven is None else Verdict(ConditionStatus.TRUE, Reason.CONFIRMED, proven),
        live=None if proven is None else Verdict(ConditionStatus.FALSE, Reason.CONFIRMED, proven),
    )
    return Plan(Rest(outcome), memory)


def _build_step(sweep: StatusSweep) -> SweepGateway:
    match sweep:
        case SweepLock(lock=lock, patch=patch):
            return SweepGateway(lock.incarnation, patch)
        case SweepEntry(incarnation=incarnation, patch=patch):
            return SweepGateway(incarnation, patch)
        case _:
            assert_never(sweep)

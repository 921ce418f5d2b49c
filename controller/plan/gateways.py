"""
What the operator wants to know of gateways, and what it still knows after a restart. Pure.

Problem: whether a viewer counts depends on a gateway's Lease, which costs a read to ask about, and what was proven is
forgotten with the process that proved it. Promise: a Lease is read often only while an answer would change anything;
and a viewer whose gateway was proven out counts for nobody after a restart too, so that no idle time begins anew.

Source: gateway.md 3, rule 5, and 4 (docs/fence.md). The proof itself is `fence_tenure.judge_lease`.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.terminal import TerminalSpec, TerminalStatus
from controller.plan.activity import Presence
from controller.plan.fence_ids import OurSocket, find_incarnation, read_socket_name
from controller.plan.fence_objects import LeaseLook, LeaseView, ObjectView
from controller.plan.fence_presence import find_incarnations, judge_presence

SELDOM: Final = timedelta(minutes=5)
"""
How often a gateway is asked about whose death would only tidy a status: nobody appears attached through it, and it
holds no lock.
"""

FAILED_WAIT: Final = timedelta(seconds=2)
FAILED_WAIT_LIMIT: Final = timedelta(minutes=1)


class Interest(StrEnum):
    """How much it matters whether a gateway lives."""

    NOW = "Now"
    """Somebody counts as a viewer through it, or it holds a lock."""
    SOMETIME = "Sometime"
    """Its name stands somewhere, and means nothing."""


def judge_interests(view: ObjectView) -> Mapping[str, Interest]:
    """Tell of which gateways an object speaks, and how much it matters to it whether each of them lives."""
    weighty = {entry.incarnation for entry in view.gateways if entry.viewers > 0}
    if view.lock is not None:
        weighty.add(view.lock.incarnation)
    named = find_incarnation(view.active_socket_id)
    if view.attached and named is not None:
        weighty.add(named)
    return {name: Interest.NOW if name in weighty else Interest.SOMETIME for name in find_incarnations(view)}


def find_wait(after: timedelta, interest: Interest, *, is_first: bool) -> timedelta:
    """
    Give the wait until a Lease is read again.

    Args:
        after: When the proof could go on.
        interest: How much it matters.
        is_first: Nothing but this look is known: a second one soon tells whether it lives at all.
    """
    match interest:
        case Interest.NOW:
            return after
        case Interest.SOMETIME:
            return after if is_first else max(after, SELDOM)
        case _:
            assert_never(interest)


def find_wait_after_failure(failures: int) -> timedelta:
    """Give the wait after so many reads in a row that gave no answer: it doubles from 2 s to a minute."""
    return min(FAILED_WAIT * (1 << min(max(failures, 1) - 1, 10)), FAILED_WAIT_LIMIT)


def is_alive_by(look: LeaseLook | None, incarnation: str) -> bool:
    """Tell whether the last look at a Lease shows its holder, and so denies what an earlier process concluded."""
    return isinstance(look, LeaseView) and look.holder == incarnation


def recall_gone(spec: TerminalSpec, status: TerminalStatus) -> str | None:
    """
    Read off the status that the named socket's gateway was proven out by an earlier process; None where it was not.

    `Attached` was False although the spec said that this very socket is attached: its id tells the generation that its
    claim made, and the condition the generation it was judged for. It is a word about presence and never a proof: locks
    are cleared by the Lease alone.
    """
    name = read_socket_name(spec.active_socket_id)
    if not spec.attached or not isinstance(name, OurSocket):
        return None
    for condition in status.conditions:
        if condition.type is ConditionType.ATTACHED and condition.status is ConditionStatus.FALSE:
            judged = condition.observed_generation
            return name.incarnation if judged is not None and judged >= name.generation else None
    return None


def find_presence(spec: TerminalSpec, view: ObjectView, *, gone: frozenset[str]) -> Presence:
    """Decide who looks at a terminal: whoever the spec declares, and whoever the gateways count, but for the gone."""
    return judge_presence(
        attached=bool(spec.attached), active_socket_id=spec.active_socket_id, gateways=view.gateways, dead=gone
    )

"""
Tenure and proof of death: how long a gateway process may use its locks, and when others may take them.

Problem: a process that was stopped, or cut off, does not know that it is out; one that looks on from outside cannot
tell a slow renewal from a dead process; and a renewal that the client gave up on may still land. Promise: a tenure
counts from the *sending* of the last renewal that was answered in time, and ends before anybody can have proof; proof
is two consistent reads of an unmoved Lease, further apart than any tenure lasts, and then the breaking of that very
version of it, after which no renewal lands any more.

All moments are those of a clock that runs on in suspend (`CLOCK_BOOTTIME`).

Source: gateway.md 3, rules 4 and 5. Stricter than it in one point, which docs/fence.md explains: a Lease that is
*absent* is read twice as well. One that a hand removed says nothing about its holder, who may speak until its tenure
ends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, assert_never

from controller.plan.fence_objects import LeaseLook, LeaseView, NoLease, ObjectView


@dataclass(frozen=True, slots=True)
class TenureRules:
    """
    The numbers of a Lease, the same in every process of one installation.

    Args:
        lease: How long a renewal is good for.
        renew: How often it is renewed.
        timeout: How long a renewal, and the list before it, is waited for.
        margin: Taken off a tenure and added to the time of the proof, so that the two never meet.
    """

    lease: timedelta = timedelta(seconds=6)
    renew: timedelta = timedelta(seconds=2)
    timeout: timedelta = timedelta(milliseconds=1500)
    margin: timedelta = timedelta(seconds=1)

    @property
    def span(self) -> timedelta:
        """How long a tenure lasts from the sending of a renewal that was answered."""
        return self.lease - self.margin

    @property
    def proof_gap(self) -> timedelta:
        """How long a Lease must stand unmoved before its holder counts as dead."""
        return self.lease + self.margin


RULES: Final = TenureRules()

LEASE_KEPT: Final = timedelta(minutes=10)
"""A broken Lease is removed after this long; one that is not broken is never removed by another process."""


# --- one's own tenure -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Term:
    """
    What a gateway process knows of its own right.

    Args:
        incarnation: Which process it is; it never comes back once it is over.
        lease: Its Lease as last written or read.
        number: Which tenure of this incarnation it is; a new one begins where a renewal was answered too late.
        ends: When the running tenure ends.
    """

    incarnation: str
    lease: LeaseView
    number: int
    ends: timedelta


@dataclass(frozen=True, slots=True)
class Renewed:
    """The renewal was written; `version` is the Lease's new one."""

    version: str


@dataclass(frozen=True, slots=True)
class RenewalConflict:
    """409 or 404: the Lease is not at the version we knew, not ours, or gone."""


@dataclass(frozen=True, slots=True)
class RenewalUnanswered:
    """No answer, or one that does not tell (429, 5xx): it may have landed, and may land later."""


RenewalAnswer = Renewed | RenewalConflict | RenewalUnanswered


@dataclass(frozen=True, slots=True)
class TenureGoesOn:
    """The tenure that was running lasts longer, or as long as it did."""

    term: Term


@dataclass(frozen=True, slots=True)
class TenureBegins:
    """The old tenure had ended: a new one begins, and nothing speaks in it before its object was read again."""

    term: Term


@dataclass(frozen=True, slots=True)
class ReadOwnLease:
    """Read our Lease once, and ask `judge_own_lease`."""


@dataclass(frozen=True, slots=True)
class IncarnationOver:
    """Drop every socket and take a new incarnation: this one is out for good."""


TenureStep = TenureGoesOn | TenureBegins | ReadOwnLease | IncarnationOver


def begin_term(incarnation: str, lease: LeaseView, *, sent: timedelta, rules: TenureRules = RULES) -> Term:
    """Begin the first tenure: our Lease was created, and its creation was sent at that moment."""
    return Term(incarnation, lease, number=1, ends=sent + rules.span)


def is_in_tenure(term: Term, *, now: timedelta) -> bool:
    """Tell whether locks may be used. At the very end they may not."""
    return now < term.ends


def find_next_renewal(sent: timedelta, *, rules: TenureRules = RULES) -> timedelta:
    """Give the moment of the next round: a list of what we hold, then a renewal."""
    return sent + rules.renew


def may_renew(*, list_started: timedelta | None, now: timedelta, rules: TenureRules = RULES) -> bool:
    """
    Tell whether a renewal may be sent: not without a list (or one read of each held object) that started just now.

    A watch cannot be known to be live. Whoever renewed without looking would speak for as long as the API server takes
    writes, whatever the spec says by then.
    """
    return list_started is not None and now - list_started <= rules.timeout


def judge_renewal(
    term: Term, answer: RenewalAnswer, *, sent: timedelta, now: timedelta, rules: TenureRules = RULES
) -> TenureStep:
    """
    Decide what the answer to a renewal means. Total.

    Args:
        term: As it was when the answer came.
        answer: What came.
        sent: When the renewal was sent; the tenure counts from there, since nobody knows when it landed.
        now: When the answer came. After the end of the tenure it extends nothing: it begins a new one.
        rules: The numbers.
    """
    match answer:
        case Renewed(version=version):
            lease = replace(term.lease, version=version)
            if is_in_tenure(term, now=now):
                return TenureGoesOn(replace(term, lease=lease, ends=max(term.ends, sent + rules.span)))
            return TenureBegins(replace(term, lease=lease, number=term.number + 1, ends=sent + rules.span))
        case RenewalConflict():
            return ReadOwnLease()
        case RenewalUnanswered():
            return TenureGoesOn(term)
        case _:
            assert_never(answer)


def judge_own_lease(term: Term, look: LeaseLook) -> TenureGoesOn | IncarnationOver:
    """
    Decide after a conflict: a Lease that is still ours was moved by a renewal of ours whose answer was lost.

    Its version is taken over and the next renewal counts from its own sending. Broken, gone, or another Lease of that
    name: this incarnation is over, and never comes back.
    """
    match look:
        case LeaseView(uid=term.lease.uid, holder=term.incarnation) as lease:
            return TenureGoesOn(replace(term, lease=lease))
        case LeaseView() | NoLease():
            return IncarnationOver()
        case _:
            assert_never(look)


# --- the list that goes with each renewal -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listed:
    """One object of the list of those whose lock is ours: its metadata, as far as it is asked."""

    uid: str
    generation: int
    deleting: bool = False


def judge_list(held: Mapping[str, ObjectView], listed: Iterable[Listed]) -> frozenset[str]:
    """
    Tell which objects' input stops until each was read: those of which we know less than the list says.

    A newer generation than we know, a deletion mark, or an object of ours that is missing from the list of those whose
    lock is ours. Missing does not mean gone, so each is read with a GET.

    Args:
        held: The objects for which a socket of ours speaks, as we know them, by uid.
        listed: The selected list, complete.
    """
    shown = {entry.uid: entry for entry in listed}
    return frozenset(uid for uid, view in held.items() if _is_doubtful(view, shown.get(uid)))


def find_unknown(held: Iterable[str], listed: Iterable[Listed]) -> frozenset[str]:
    """Give the objects whose lock is ours and for which no socket of ours speaks: read each, and sweep it."""
    return frozenset(entry.uid for entry in listed) - frozenset(held)


def _is_doubtful(view: ObjectView, entry: Listed | None) -> bool:
    return entry is None or entry.generation > view.generation or entry.deleting != view.deleting


# --- proof of another's death -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proof:
    """
    How far the proof of one incarnation's death has come.

    Args:
        incarnation: Whose.
        first: The first of the two reads; None where there was none yet.
        first_at: When its answer was there.
    """

    incarnation: str
    first: LeaseLook | None = None
    first_at: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class ReadLeaseAgain:
    """Read the Lease again after a while: it lives, or has not stood still for long enough."""

    proof: Proof
    after: timedelta


@dataclass(frozen=True, slots=True)
class BreakNow:
    """It stood still for longer than any tenure: write an empty holder over this very version of it."""

    proof: Proof
    lease: LeaseView


@dataclass(frozen=True, slots=True)
class ProvenOut:
    """Proven: this incarnation never speaks again."""

    incarnation: str


ProofStep = ReadLeaseAgain | BreakNow | ProvenOut


def judge_lease(
    proof: Proof, look: LeaseLook, *, started: timedelta, now: timedelta, rules: TenureRules = RULES
) -> ProofStep:
    """
    Decide what a consistent read of somebody's Lease means. Total.

    A Lease without this holder was broken by somebody who had the proof: that is proof by itself. Otherwise two looks
    must agree, the second started at least `rules.proof_gap` after the first was there. `renewTime` and what a watch
    tells are never asked.

    Args:
        proof: How far it has come. It begins only after one's own claim was committed.
        look: What the read gave.
        started: When it was sent.
        now: When its answer was there.
        rules: The numbers.
    """
    if isinstance(look, LeaseView) and look.holder != proof.incarnation:
        return ProvenOut(proof.incarnation)
    if proof.first != look:
        return ReadLeaseAgain(replace(proof, first=look, first_at=now), rules.proof_gap)
    waited = started - proof.first_at
    if waited < rules.proof_gap:
        return ReadLeaseAgain(proof, rules.proof_gap - waited)
    match look:
        case NoLease():
            return ProvenOut(proof.incarnation)
        case LeaseView() as lease:
            return BreakNow(proof, lease)
        case _:
            assert_never(look)


@dataclass(frozen=True, slots=True)
class Broken:
    """Our write of the empty holder is in."""


@dataclass(frozen=True, slots=True)
class NotBroken:
    """It was refused: the Lease has moved, so its holder lives; or nobody knows."""


BreakAnswer = Broken | NotBroken


def judge_break(proof: Proof, answer: BreakAnswer) -> ProofStep:
    """Decide after the write of the empty holder. A lost one begins anew: if it landed, the next read shows it."""
    match answer:
        case Broken():
            return ProvenOut(proof.incarnation)
        case NotBroken():
            return ReadLeaseAgain(Proof(proof.incarnation), timedelta(0))
        case _:
            assert_never(answer)

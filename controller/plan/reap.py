"""
When a session that nobody watches is ended.

Problem: a forgotten terminal bills until somebody notices, and one that is ended too early loses somebody's work.
Promise: the idle time counts from a moment in the status, so a restart neither shortens nor extends it; somebody who
attaches stops a reap up to the last read before SIGKILL; a reap never wakes a sprite, it is owed until the sprite runs;
a reap that fails is repeated, since nothing but its proof ends it; and a busy terminal is announced beforehand.

Source: behaviour cases I1 to I9; design 3, 4.4, 5 and 9 (docs/architecture.md).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from controller.api.conditions import Reason
from controller.api.session import Identity, SpriteState
from controller.api.terminal import IdlePolicy
from controller.plan.activity import Activity, find_latest, is_agent_running
from controller.plan.kill import METADATA_AGE, KillEvidence, is_cold_proof
from controller.plan.looks import LookFailed, NotLooked, SpriteAway, SpriteLook, SpriteSeen
from controller.plan.steps import Happening

WARNED_BEFORE: Final = timedelta(minutes=5)
"""A busy terminal is announced this long before it is reaped."""

OBJECT_READ_AGE: Final = timedelta(seconds=1)
"""The object is read again, consistently, at most this long before a reap's SIGKILL."""


@dataclass(frozen=True, slots=True)
class ReapFacts:
    """
    What the question for a reap weighs.

    Args:
        identity: The session.
        live: It is not known to have ended, and neither `terminated` nor a deletion ends it.
        attached: Somebody counts as a viewer.
        suspended: `spec.suspend`.
        idle_timeout: Zero means never.
        policy: What counts as idle.
        detached_time: `status.detachedTime`; None where it is not recorded yet, and then it counts from now.
        activity: What was seen of it, as far as anybody saw.
        idle_after: Activity younger than this makes a terminal busy.
        warned_for: From which moment the idle time counted when its end was last announced.
        begun: `status.kill` stands with trigger Reaped and without proof.
        settled: A SIGKILL of this reap was settled and waits for its proof.
        sprite: The last look at its sprite.
        last_wake_time: Our last call that could have woken the sprite.
        now: Monotonic.
        now_time: Wall time.
    """

    identity: Identity
    live: bool
    attached: bool
    suspended: bool
    idle_timeout: timedelta
    policy: IdlePolicy
    detached_time: datetime | None
    activity: Activity
    idle_after: timedelta
    warned_for: datetime | None
    begun: bool
    settled: bool
    sprite: SpriteLook
    last_wake_time: datetime | None
    now: timedelta
    now_time: datetime


@dataclass(frozen=True, slots=True)
class NotArmed:
    """Nothing counts down."""


@dataclass(frozen=True, slots=True)
class Armed:
    """
    It counts down from `since`; ask again after `after`.

    `warn` True means: announce it now, and remember that with `since`.
    """

    since: datetime
    after: timedelta
    warn: bool = False


@dataclass(frozen=True, slots=True)
class LookFirst:
    """Due, and nobody knows whether the sprite runs: read its metadata."""


@dataclass(frozen=True, slots=True)
class Owed:
    """Due, and the sprite is paused: done when it next runs."""


@dataclass(frozen=True, slots=True)
class Reap:
    """Due: kill with proof, trigger Reaped."""


@dataclass(frozen=True, slots=True)
class ReapProven:
    """Due, and the session is gone already: Reaped, not Lost."""

    evidence: KillEvidence


ReapPlan = NotArmed | Armed | LookFirst | Owed | Reap | ReapProven


def plan_reap(facts: ReapFacts) -> ReapPlan:
    """
    Decide whether a session is reaped. Total.

    Exactly at the end of the idle time it is due. A kill that was settled is proven whatever happens meanwhile; one
    that was only begun goes on under `suspend`, and gives way to somebody who attaches.
    """
    if not facts.live:
        return NotArmed()
    if facts.settled:
        return Reap()
    if facts.attached or facts.idle_timeout <= timedelta(0) or (facts.suspended and not facts.begun):
        return NotArmed()
    since = find_idle_since(facts)
    remaining = facts.idle_timeout - (facts.now_time - since)
    if remaining > timedelta(0):
        return _count_down(facts, since, remaining)
    return _plan_due(facts)


def find_idle_since(facts: ReapFacts) -> datetime:
    """
    Give the moment from which the idle time counts: the last viewer's leaving. Whoever types is one (I8).

    With `Inactive` activity counts as well, as far as anybody saw it: silence that nobody could hear does not postpone
    a reap for ever.
    """
    times: list[datetime | None] = [facts.detached_time or facts.now_time]
    if facts.policy is IdlePolicy.INACTIVE:
        times.append(facts.activity.latest)
    return find_latest(times) or facts.now_time


def is_reread_due(read: timedelta | None, *, now: timedelta) -> bool:
    """Tell whether the object must be read again before a reap's SIGKILL: somebody may just have attached."""
    return read is None or now - read > OBJECT_READ_AGE


def describe_warning(facts: ReapFacts, after: timedelta) -> Happening:
    """Announce the reap of a busy terminal, with the ways out."""
    minutes, seconds = divmod(int(after.total_seconds()), 60)
    when = f"in {minutes} min {seconds} s" if (minutes, seconds) != (0, 0) else "in less than a second"
    note = (
        f"Session {facts.identity.session_id} is busy and nobody is attached; it ends {when}. "
        "Attach, or set `idlePolicy: Inactive` or a longer `idleTimeoutSeconds`, to keep it."
    )
    return Happening(Reason.DETACHED, note, warning=True)


def _count_down(facts: ReapFacts, since: datetime, remaining: timedelta) -> Armed:
    if remaining > WARNED_BEFORE:
        return Armed(since, remaining - WARNED_BEFORE)
    busy = is_agent_running(facts.activity.latest, idle_after=facts.idle_after, now=facts.now_time)
    warn = busy and facts.policy is IdlePolicy.DETACHED and facts.warned_for != since
    return Armed(since, remaining, warn=warn)


def _plan_due(facts: ReapFacts) -> ReapPlan:
    match facts.sprite:
        case NotLooked():
            return LookFirst()
        case SpriteSeen() as seen:
            if facts.now - seen.started > METADATA_AGE:
                return LookFirst()
            if is_cold_proof(seen, facts.identity, last_wake_time=facts.last_wake_time):
                return ReapProven(KillEvidence.SPRITE_COLD)
            return Owed() if seen.sprite.state in (SpriteState.WARM, SpriteState.COLD) else Reap()
        case SpriteAway() | LookFailed():
            # The kill's own plan says what these mean; neither of them sends anything.
            return Reap()
        case _:
            assert_never(facts.sprite)

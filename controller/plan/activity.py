"""
Whether there is work that is worth keeping a sprite awake, and whether silence was heard or only not listened to.

Problem: an operator that nobody tells anything sees no output. If it takes that for idleness it lets a working agent
freeze; if it takes it for work it pays for ever. Promise: silence lets go of a hold only where it could be heard; what
cannot be seen keeps a hold that is there and never makes one; everything that an end, a reap or a person decides
outranks both. `is_active` of the session list is never asked.

What counts as activity: the launch itself, `last_activity` of a session list that was read just now, what gateways
saw, and the annotation `agentterminal.dev/activity`, which an agent's own hook may patch.

Source: behaviour cases A1 to A14; design 6 and 9 (docs/architecture.md); sprites-api.md 5 and trap 8 (2026-09).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.api.instants import TIME_PATTERN
from controller.api.names import GROUP
from controller.api.session import Identity, is_session
from controller.api.terminal import HoldMode
from controller.plan.looks import Listed, LookFailed, NotLooked, SessionsLook

ACTIVITY_ANNOTATION: Final = f"{GROUP}/activity"
"""RFC 3339: when an agent last did something that only it knows of."""

LIST_IS_SIGHT: Final = timedelta(seconds=5)
"""A session list up to this old shows the present; an older one says nothing about silence since."""

MARK_AHEAD: Final = timedelta(minutes=1)
"""
So far may a patched time lie ahead of our clock. One further ahead is no time of an activity: taken for one, a slip in
the year would hold a sprite for as long.
"""

IDLE_HOLD_WARNING: Final = timedelta(hours=1)
"""A hold that was kept this long without any activity is worth a warning: somebody pays for it."""

_MARK: Final = re.compile(TIME_PATTERN, re.ASCII)


class Presence(StrEnum):
    """Who looks at a terminal."""

    WATCHED = "Watched"
    """Somebody, over a socket that is up."""
    QUIETED = "Quieted"
    """Somebody, and their socket is down on purpose because nothing happened. Counts as nobody, and is sight."""
    NOBODY = "Nobody"
    """No viewer, or one whose gateway is proven dead."""


class Hearing(StrEnum):
    """Whether a session was ever heard, so that its silence means something."""

    FROM_START = "FromStart"
    """Launched by us: whatever it said was said to us."""
    SPOKEN = "Spoken"
    """Adopted or resumed, and it has said something since."""
    SILENT = "Silent"
    """Adopted or resumed, and not a byte since: the ear itself may be deaf."""


class Occasion(StrEnum):
    """At which moment the question is put."""

    BEAT = "Beat"
    """At the interval, or because something else changed."""
    LEAVING = "Leaving"
    """The last viewer leaves: until now somebody was listening."""


@dataclass(frozen=True, slots=True)
class Activity:
    """The last activity that anybody saw, and whether more would have been seen."""

    latest: datetime | None
    observable: bool


class HoldCause(StrEnum):
    """What a hold is kept for. Stored in `status.hold.cause`, and a label of the ledger: a closed list."""

    ALWAYS = "Always"
    VIEWER = "Viewer"
    ACTIVITY = "Activity"
    UNSEEN = "Unseen"
    """Nothing can be seen, and letting go could stop an agent at work."""


class NoWork(StrEnum):
    """Why there is nothing to hold for."""

    SESSION_ENDED = "SessionEnded"
    """It ended, was reaped, or is being ended."""
    NOT_WANTED = "NotWanted"
    IDLE = "Idle"
    """No viewer, and no activity within the window, and that was seen."""
    NOT_SEEN = "NotSeen"
    """Nothing can be seen, and there is no hold: blindness makes none."""


@dataclass(frozen=True, slots=True)
class HoldFor:
    """There is work."""

    cause: HoldCause


@dataclass(frozen=True, slots=True)
class LetGo:
    """There is none: release what is held."""

    why: NoWork


@dataclass(frozen=True, slots=True)
class LetLapse:
    """Suspended: nothing is created, renewed or removed; a hold ends within its expiry."""


Work = HoldFor | LetGo | LetLapse


@dataclass(frozen=True, slots=True)
class WorkFacts:
    """
    What the question for work weighs.

    Args:
        live: The session lives, and nothing asks for its end.
        wanted: `spec.holdWanted`.
        mode: `spec.hold.mode`.
        suspended: `spec.suspend`.
        presence: Who looks at it.
        activity: What was seen.
        held: A task of ours may be alive.
        idle_after: Activity this old is idleness.
        now: Wall time.
    """

    live: bool
    wanted: bool
    mode: HoldMode
    suspended: bool
    presence: Presence
    activity: Activity
    held: bool
    idle_after: timedelta
    now: datetime


def judge_work(facts: WorkFacts) -> Work:
    """
    Decide whether a sprite is worth keeping awake for a terminal. Total.

    An end comes first, then what a person declared, then a viewer, then activity; only then counts what cannot be seen.
    """
    if not facts.live:
        return LetGo(NoWork.SESSION_ENDED)
    if not facts.wanted:
        return LetGo(NoWork.NOT_WANTED)
    if facts.suspended:
        return LetLapse()
    if facts.mode is HoldMode.ALWAYS:
        return HoldFor(HoldCause.ALWAYS)
    if facts.presence is Presence.WATCHED:
        return HoldFor(HoldCause.VIEWER)
    if is_agent_running(facts.activity.latest, idle_after=facts.idle_after, now=facts.now):
        return HoldFor(HoldCause.ACTIVITY)
    if facts.activity.observable:
        return LetGo(NoWork.IDLE)
    return HoldFor(HoldCause.UNSEEN) if facts.held else LetGo(NoWork.NOT_SEEN)


def is_agent_running(latest: datetime | None, *, idle_after: timedelta, now: datetime) -> bool:
    """Activity younger than the window means running; exactly as old, or none at all, means idle."""
    return latest is not None and now - latest < idle_after


def find_latest(times: Iterable[datetime | None]) -> datetime | None:
    """Give the latest of some times, and None only if there is none among them."""
    return max((time for time in times if time is not None), default=None)


def observe_activity(
    identity: Identity,
    sessions: SessionsLook,
    *,
    others: Iterable[datetime | None],
    presence: Presence,
    hearing: Hearing,
    occasion: Occasion,
    now: timedelta,
    now_time: datetime,
) -> Activity:
    """
    Put together what is known of a session's activity, and whether its silence would be heard.

    Args:
        identity: The session.
        sessions: The last look at its sprite's list. Its time is never taken to lie in the future.
        others: The launch, what gateways saw, the annotation, and what was recorded before.
        presence: Who looks at it.
        hearing: Whether it was ever heard.
        occasion: At which moment the question is put.
        now: Monotonic.
        now_time: Wall time.
    """
    listed = _find_listed(identity, sessions, now_time=now_time)
    seen_now = listed is not None and isinstance(sessions, Listed) and now - sessions.started <= LIST_IS_SIGHT
    return Activity(
        latest=find_latest((listed, *others)),
        observable=seen_now or is_listened_to(presence, hearing, occasion),
    )


def is_listened_to(presence: Presence, hearing: Hearing, occasion: Occasion) -> bool:
    """
    Tell whether silence would be heard without a list that tells.

    A viewer's socket hears, and so does one that is down on purpose: nothing but its being idle took it down. At the
    moment when the last viewer leaves, what was heard until then counts, if anything ever was. A beat without a viewer
    hears nothing.
    """
    match presence:
        case Presence.WATCHED | Presence.QUIETED:
            return True
        case Presence.NOBODY:
            return occasion is Occasion.LEAVING and hearing is not Hearing.SILENT
        case _:
            assert_never(presence)


def find_time_for_reconnect(activity: Activity, hearing: Hearing) -> datetime | None:
    """Give the time by which a dropped socket may be left down; a session that was never heard gives none (A14)."""
    return None if hearing is Hearing.SILENT else activity.latest


def read_activity_mark(text: str | None, *, now: datetime) -> datetime | None:
    """
    Read the annotation: RFC 3339, at most a minute ahead of our clock; anything else is no activity.

    Anybody who may patch the object may write anything here, so nothing of it raises.
    """
    if text is None or _MARK.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment - now <= MARK_AHEAD else None


def describe_unread_mark(text: str | None, *, now: datetime) -> str | None:
    """Say why the annotation counts for nothing, with the way out; None where it is absent or counts."""
    if text is None or read_activity_mark(text, now=now) is not None:
        return None
    return (
        f"Annotation {ACTIVITY_ANNOTATION} is no time of an activity and counts for nothing. Write a time as in RFC "
        f"3339, with Z or an offset and at most {MARK_AHEAD.seconds} s ahead of the operator's clock, "
        "like 2026-01-31T12:00:00Z."
    )


def is_hold_idle_too_long(since: datetime, latest: datetime | None, *, now: datetime) -> bool:
    """Tell whether a hold was kept for an hour in which nothing was active."""
    return now - max(since, latest or since) >= IDLE_HOLD_WARNING


def _find_listed(identity: Identity, sessions: SessionsLook, *, now_time: datetime) -> datetime | None:
    match sessions:
        case NotLooked() | LookFailed():
            return None
        case Listed(sessions=entries):
            times = (entry.last_activity for entry in entries if is_session(identity, entry))
            latest = find_latest(times)
            return None if latest is None else min(latest, now_time)
        case _:
            assert_never(sessions)

"""
What a fresh list of the API server says about what we believe to know.

Problem: a deletion that happens while the watch is down is never told (kopf.md 0.2), a watch can be dead without
anybody noticing, and a list is true as of one moment while objects come and go around it. Promise: an object is only
suspected gone when it was known before the list was asked for, is still believed to exist after, and is missing in two
lists in a row; and the registry is only behind where a list showed a later version, counted from the moment the list
was asked for.
Source: design.md 4.1, kopf.md 16.8 and 16.9.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be compared of an object."""

    uid: str
    namespace: str
    name: str
    version: int
    has_finalizer: bool
    """Ours."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A version that a list has shown and the registry had not."""

    version: int
    since: timedelta
    """The monotonic time at which that list was asked for."""


@dataclass(frozen=True, slots=True)
class Suspicions:
    """What one look leaves to the next."""

    absent: frozenset[str] = frozenset()
    behind: Mapping[str, Behind] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Findings:
    """What a look has found."""

    vanished: tuple[Sight, ...]
    """Missing in two lists in a row: gone, if a consistent read says so too."""
    stripped: tuple[str, ...]
    """Somebody took our finalizer off: nothing would keep a deletion any more."""
    suspicions: Suspicions


def judge_resync(
    *,
    listed: Mapping[str, Sight],
    known_before: Collection[str],
    known: Mapping[str, Sight],
    buried: Collection[str],
    suspicions: Suspicions,
    asked: timedelta,
) -> Findings:
    """
    Compare a complete list with the registry.

    Args:
        listed: The list, by uid.
        known_before: The uids in the registry when the list was asked for.
        known: The registry now, by uid.
        buried: Uids that are known to be gone; a list that began before may still show them.
        suspicions: Those of the look before.
        asked: The monotonic time at which the list was asked for.
    """
    absent = frozenset(uid for uid in known_before if uid in known and uid not in listed)
    behind: dict[str, Behind] = {}
    stripped: list[str] = []
    for uid, sight in listed.items():
        if uid in buried:
            continue
        ours = known.get(uid)
        if ours is None or ours.version < sight.version:
            before = suspicions.behind.get(uid)
            is_same_wait = before is not None and (ours is None or ours.version < before.version)
            behind[uid] = before if before is not None and is_same_wait else Behind(sight.version, asked)
        if ours is not None and ours.has_finalizer and not sight.has_finalizer and sight.version >= ours.version:
            stripped.append(uid)
    return Findings(
        vanished=tuple(known[uid] for uid in sorted(absent & suspicions.absent)),
        stripped=tuple(stripped),
        suspicions=Suspicions(absent, behind),
    )


def judge_lag(
    behind: Mapping[str, Behind],
    *,
    versions: Mapping[str, int],
    buried: Collection[str],
    now: timedelta,
    grace: timedelta,
) -> timedelta:
    """
    Tell how long the registry has lacked something that a list has shown; nothing within the grace counts.

    Args:
        behind: What the last look left.
        versions: The versions in the registry now, for the uids in `behind`; absent ones are unknown to it.
        buried: Of these uids those that are known to be gone.
        now: The monotonic time up to which we may judge.
        grace: How long a watch may take.
    """
    waits = [
        now - wait.since for uid, wait in behind.items() if uid not in buried and versions.get(uid, -1) < wait.version
    ]
    longest = max(waits, default=timedelta(0))
    return longest if longest > grace else timedelta(0)

"""
What the objects are in, counted for whoever scrapes.

Problem: gauges that are set and reset by events drift, and a deleted object stays in them for ever. Promise: the counts
are made at the scrape from one small entry an object, which goes with the object; a kill counts as open from the moment
its end was asked for until its proof is written; who stands by counts nothing, so that a sum over all replicas is true.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.names import FINALIZER
from controller.api.situations import Situation, judge_readiness
from controller.api.terminal import EPOCH
from controller.clock import Clock
from controller.engine.registry import Snapshot
from controller.metrics import KillStage, Stuck

Statuses = tuple[ConditionStatus, ...]
"""The status of each condition, in the order of `ConditionType`."""

_OWED = frozenset({Situation.KILL_OWED, Situation.REAP_OWED})


@dataclass(frozen=True, slots=True)
class _Entry:
    namespace: str
    name: str
    situation: Situation
    statuses: Statuses
    unready_since: datetime | None
    """None where it is ready, or rests."""
    stage: KillStage | None
    """None where no kill is open."""
    asked: datetime


class Census:
    """
    One entry for each object.

    Args:
        clock: Wall time, to which the times in objects belong.
        names: So many objects may be named.
    """

    def __init__(self, clock: Clock, *, names: int) -> None:
        self._clock = clock
        self._names = names
        self._entries: dict[str, _Entry] = {}
        self._alike: dict[Statuses, Statuses] = {}
        self._is_open = False

    def open(self) -> None:
        """Count from now on: this process leads."""
        self._is_open = True

    def put(self, snapshot: Snapshot, spec: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Take in a state of an object."""
        conditions = {entry.get("type"): entry for entry in status.get("conditions") or ()}
        situation = read_situation(conditions)
        statuses = tuple(_read_condition(conditions.get(kind)) for kind in ConditionType)
        stage = judge_stage(snapshot, spec, status, situation)
        known = self._entries.get(snapshot.uid)
        self._entries[snapshot.uid] = _Entry(
            namespace=snapshot.namespace,
            name=snapshot.name,
            situation=situation,
            # Ten thousand objects share a few dozen of these.
            statuses=self._alike.setdefault(statuses, statuses),
            unready_since=_find_unready(snapshot, conditions, situation),
            stage=stage,
            asked=self._find_asked(snapshot, status, None if known is None or known.stage is None else known.asked),
        )

    def drop(self, uid: str) -> None:
        """Forget an object that is gone."""
        self._entries.pop(uid, None)

    def count_situations(self) -> Mapping[Situation, int]:
        """Count objects by situation."""
        return Counter(entry.situation for entry in self._counted())

    def count_conditions(self) -> Mapping[tuple[ConditionType, ConditionStatus], int]:
        """Count objects by the status of each condition."""
        counts: Counter[tuple[ConditionType, ConditionStatus]] = Counter()
        for statuses, number in Counter(entry.statuses for entry in self._counted()).items():
            for kind, status in zip(ConditionType, statuses, strict=True):
                counts[kind, status] += number
        return counts

    def count_kills(self) -> Mapping[KillStage, int]:
        """Count the kills that are not proven."""
        return Counter(entry.stage for entry in self._counted() if entry.stage is not None)

    def measure_oldest_kill(self) -> timedelta:
        """Tell for how long the oldest kill has waited that is not owed; nothing where there is none."""
        asked = [entry.asked for entry in self._counted() if entry.stage in (KillStage.ASKED, KillStage.SETTLED)]
        return max(timedelta(0), self._clock.now() - min(asked)) if asked else timedelta(0)

    def list_stuck(self) -> Sequence[Stuck]:
        """Name those that have not been ready for the longest time, as many as may be named."""
        waiting = [
            (entry.unready_since, entry.namespace, entry.name, entry.situation)
            for entry in (self._counted() if self._names else ())
            if entry.unready_since is not None
        ]
        now = self._clock.now()
        return [
            Stuck(namespace, name, situation, max(timedelta(0), now - since))
            for since, namespace, name, situation in heapq.nsmallest(self._names, waiting)
        ]

    def _counted(self) -> Sequence[_Entry]:
        return tuple(self._entries.values()) if self._is_open else ()

    def _find_asked(self, snapshot: Snapshot, status: Mapping[str, Any], noted: datetime | None) -> datetime:
        """Find when a session's end was asked for: as it was recorded, else as the object says, else as first seen."""
        recorded = (status.get("kill") or {}).get("requestedTime")
        return _read_time(recorded) or snapshot.deleted or noted or self._clock.now()


def read_situation(conditions: Mapping[Any, Mapping[str, Any]]) -> Situation:
    """Read the situation off the condition that always carries it."""
    reason = str(conditions.get(ConditionType.RECONCILING, {}).get("reason"))
    return Situation(reason) if reason in Situation.__members__.values() else Situation.PENDING


def judge_stage(
    snapshot: Snapshot, spec: Mapping[str, Any], status: Mapping[str, Any], situation: Situation
) -> KillStage | None:
    """Say how far an object's kill is; None where no end is asked for, or its proof is written."""
    kill = status.get("kill") or {}
    ends = snapshot.deleted is not None and FINALIZER in snapshot.finalizers
    ends = ends and spec.get("deletionPolicy") != "Orphan"
    terminates = bool(spec.get("terminated")) and not _is_true(status, ConditionType.TERMINATED)
    if kill.get("proof") or not (kill or ends or terminates):
        return None
    if situation in _OWED:
        return KillStage.OWED
    return KillStage.SETTLED if kill.get("settledTime") else KillStage.ASKED


def _find_unready(
    snapshot: Snapshot, conditions: Mapping[Any, Mapping[str, Any]], situation: Situation
) -> datetime | None:
    readiness = judge_readiness(situation)
    if readiness.ready in (None, ConditionStatus.TRUE):
        return None
    since = _read_time(conditions.get(ConditionType.READY, {}).get("lastTransitionTime"))
    return snapshot.created if since is None or since <= EPOCH else since


def _is_true(status: Mapping[str, Any], kind: ConditionType) -> bool:
    return any(
        entry.get("type") == kind and entry.get("status") == ConditionStatus.TRUE
        for entry in status.get("conditions") or ()
    )


def _read_condition(entry: Mapping[str, Any] | None) -> ConditionStatus:
    """Read a status; what is missing, or of another version, is Unknown, as the kind says."""
    value = "" if entry is None else str(entry.get("status"))
    return ConditionStatus(value) if value in ConditionStatus.__members__.values() else ConditionStatus.UNKNOWN


def _read_time(text: Any) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)

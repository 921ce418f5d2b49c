"""
Events: what the operator tells people about an object, without ever standing in its own way.

Problem: an Event is a write like any other; a terminal whose kill fails all night would write thousands, and an API
server that refuses Events must not stop a kill. Promise: `record` neither blocks nor raises; what repeats within ten
minutes is one Event with a series (count, last time); one object may write a burst and then one a minute; the queue is
bounded, and what it could not take is counted. Nothing is written while nothing is recorded.

Source: Kubernetes API conventions, "Events"; events.k8s.io/v1 (read 2026-11): the server demands eventTime,
reportingController, reportingInstance, action, reason and type, admits changes of `series` only, and refuses a note
beyond 1,024 bytes. Pinned in tests/cluster/test_kube_client.py.

Secrets are the caller's duty: notes are written as they are given.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from controller.api import names
from controller.api.conditions import Reason
from controller.clock import Clock
from controller.errors import Failure
from controller.kube.errors import Conflict, KubeError, NotFound
from controller.tenure import Tenure, TenureEnded

log = logging.getLogger(__name__)

NOTE_BYTES: Final = 1024
"""Source: events.k8s.io/v1, `note`."""

WORD_CHARACTERS: Final = 128
"""Source: events.k8s.io/v1, `action`, `reason` and `reportingInstance`."""

_NAME_CHARACTERS: Final = 220
"""Of the object's name in the Event's own, which has 253 at most and ends in a time and a number."""


class EventType(StrEnum):
    """Whether somebody should look."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """The object that an Event is about."""

    namespace: str
    name: str
    uid: str
    api_version: str = names.API_VERSION
    kind: str = names.KIND


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """How much may be told."""

    series_gap: timedelta = timedelta(minutes=10)
    """What comes again within this joins the series; after it, a new Event begins."""

    queue_events: int = 1024
    """Events that wait for the API server; beyond, they are dropped and counted. About 1 MB."""

    series_kept: int = 4096
    """Series that are remembered; the one that was silent longest goes first. About 4 MB."""

    burst: int = 25
    """Writes of one object before its rate counts. Source: client-go's spam filter."""

    refill: timedelta = timedelta(minutes=1)
    """One more write for an object after its burst."""

    attempts: int = 3
    """Tries for one write; then it is given up and counted."""

    retry_pause: timedelta = timedelta(seconds=1)
    """Between two tries, where the server asked for no other wait."""


class EventWriter(Protocol):
    """What the recorder needs of the client."""

    async def create_event(self, namespace: str, event: Mapping[str, Any], *, tenure: Tenure) -> object:
        """Create one."""

    async def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure) -> object:
        """Change its series."""


@dataclass(frozen=True, slots=True)
class _Key:
    """What makes two Events the same."""

    regarding: ObjectRef
    type: EventType
    reason: Reason
    action: str
    note: str


@dataclass(slots=True)
class _Series:
    """One Event as it is, or is about to be, in the cluster."""

    name: str
    first: datetime
    last: datetime
    count: int = 1
    is_stored: bool = False
    is_queued: bool = True


@dataclass(slots=True)
class _Allowance:
    """What one object may still write: whole writes, and since when they refill."""

    writes: int
    since: timedelta


@dataclass(slots=True)
class EventCounts:
    """What became of the Events since the start."""

    written: int = 0
    dropped: int = 0
    """The queue was full, or the object had used up its rate."""
    failed: int = 0
    """Given up after the permitted tries, or withheld because the tenure had ended."""


class EventRecorder:
    """
    Takes Events at once and writes them when it can. For one event loop.

    Args:
        writer: Writes them.
        clock: The clocks.
        reporting_instance: Which replica speaks: the pod's name.
        settings: How much may be told.
    """

    def __init__(
        self, writer: EventWriter, clock: Clock, *, reporting_instance: str, settings: EventSettings | None = None
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._instance = reporting_instance[:WORD_CHARACTERS]
        self._settings = settings or EventSettings()
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()
        self._queue: deque[_Key] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._made = 0
        self._last_failure: Failure | None = None
        self.counts = EventCounts()

    def record(
        self,
        regarding: ObjectRef,
        *,
        type: EventType,  # noqa: A002  The API's own word for it.
        reason: Reason,
        action: str,
        note: str,
    ) -> None:
        """
        Take an Event; it is written later, or counted as dropped. Never blocks, never raises.

        Args:
            regarding: The object.
            type: Whether somebody should look.
            reason: Why, one of the closed set.
            action: What the operator did or tried, in one word.
            note: The sentence; cut to 1,024 bytes on a character.
        """
        key = _Key(regarding, type, reason, action[:WORD_CHARACTERS], cut_note(note))
        now = self._clock.now()
        series = self._series.get(key)
        if series is not None and now - series.last <= self._settings.series_gap:
            series.count += 1
            series.last = now
            self._series.move_to_end(key)
            if series.is_queued:
                return
        else:
            series = _Series(self._name_event(regarding, now), first=now, last=now, is_queued=False)
        if not self._is_allowed(regarding.uid) or len(self._queue) >= self._settings.queue_events:
            self.counts.dropped += 1
            return
        series.is_queued = True
        self._remember(key, series)
        self._queue.append(key)
        self._idle.clear()
        self._filled.set()

    async def run(self, tenure: Tenure) -> None:
        """
        Write what was and will be recorded, one at a time, until cancelled. A failed Event is counted and passed over.

        Args:
            tenure: The term in which this process may write; what is recorded before it begins waits in the queue.
        """
        while True:
            while self._queue:
                await self._write(self._queue.popleft(), tenure)
            self._filled.clear()
            self._idle.set()
            await self._filled.wait()

    async def drain(self) -> None:
        """Wait until everything recorded so far was written or given up; it needs `run` beside it."""
        await self._idle.wait()

    def _is_allowed(self, uid: str) -> bool:
        """Take one write from an object's allowance, if there is one."""
        now = self._clock.monotonic()
        allowance = self._allowances.pop(uid, None) or _Allowance(self._settings.burst, now)
        refilled = (now - allowance.since) // self._settings.refill
        if allowance.writes + refilled >= self._settings.burst:
            allowance.writes, allowance.since = self._settings.burst, now
        else:
            allowance.writes += refilled
            allowance.since += refilled * self._settings.refill
        self._allowances[uid] = allowance
        if len(self._allowances) > self._settings.series_kept:
            self._allowances.popitem(last=False)
        if allowance.writes < 1:
            return False
        allowance.writes -= 1
        return True

    def _remember(self, key: _Key, series: _Series) -> None:
        self._series[key] = series
        self._series.move_to_end(key)
        if len(self._series) > self._settings.series_kept:
            self._series.popitem(last=False)

    def _name_event(self, regarding: ObjectRef, now: datetime) -> str:
        """Name it as everybody does, by object and time; a number keeps two of one moment apart."""
        self._made += 1
        microseconds = (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        return f"{regarding.name[:_NAME_CHARACTERS].rstrip('-.')}.{microseconds:x}.{self._made:x}"

    async def _write(self, key: _Key, tenure: Tenure) -> None:
        series = self._series.get(key)
        if series is None:
            # Forgotten while it waited: more series than are kept came in between.
            self.counts.dropped += 1
            return
        series.is_queued = False
        for attempt in range(1, self._settings.attempts + 1):
            try:
                await self._write_once(key, series, tenure)
            except TenureEnded:
                self.counts.failed += 1
                return
            except KubeError as error:
                if attempt < self._settings.attempts and _is_worth_another_try(error):
                    await self._clock.sleep(error.retry_after or self._settings.retry_pause)
                    continue
                self._give_up(key, error)
                return
            else:
                self.counts.written += 1
                self._last_failure = None
                return

    async def _write_once(self, key: _Key, series: _Series, tenure: Tenure) -> None:
        namespace = key.regarding.namespace
        if series.is_stored:
            try:
                await self._writer.patch_event(
                    namespace, series.name, {"series": render_series(series.count, series.last)}, tenure=tenure
                )
            except NotFound:
                # Events live for an hour, less where a cluster is set so; the next try begins a new one.
                series.is_stored = False
                series.first, series.count = series.last, 1
                series.name = self._name_event(key.regarding, series.last)
            else:
                return
        body = _render_event(key, series, self._instance)
        # A conflict: the answer of an earlier try was lost, and it had happened.
        try:
            await self._writer.create_event(namespace, body, tenure=tenure)
        except Conflict:
            log.debug("The Event was there already.", extra={"event": series.name})
        series.is_stored = True

    def _give_up(self, key: _Key, error: KubeError) -> None:
        self.counts.failed += 1
        level = logging.DEBUG if error.failure is self._last_failure else logging.WARNING
        self._last_failure = error.failure
        log.log(
            level,
            "An Event could not be written; until this changes, others like it are told at DEBUG only.",
            extra={"reason": key.reason, "failure": error.failure, "error": error.message},
        )


def cut_note(note: str) -> str:
    """Cut a note to 1,024 bytes of UTF-8, never inside a character."""
    return note.encode("utf-8", "replace")[:NOTE_BYTES].decode("utf-8", "ignore")


def _render_event(key: _Key, series: _Series, reporting_instance: str) -> dict[str, Any]:
    """Make the Event's body; a series only from the second occurrence on, as the API has it."""
    regarding = key.regarding
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": regarding.namespace, "name": series.name},
        "eventTime": render_micro_time(series.first),
        "reportingController": names.REPORTING_CONTROLLER,
        "reportingInstance": reporting_instance,
        "action": key.action,
        "reason": key.reason,
        "type": key.type,
        "note": key.note,
        "regarding": {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
        },
    }
    if series.count > 1:
        event["series"] = render_series(series.count, series.last)
    return event


def render_series(count: int, last: datetime) -> dict[str, Any]:
    """Make the series of an Event that came again."""
    return {"count": count, "lastObservedTime": render_micro_time(last)}


def render_micro_time(moment: datetime) -> str:
    """Write a moment as the API's MicroTime: UTC, six digits, a Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _is_worth_another_try(error: KubeError) -> bool:
    match error.failure:
        case Failure.THROTTLED | Failure.SERVER | Failure.TIMED_OUT | Failure.UNREACHABLE:
            return True
        case _:
            return False

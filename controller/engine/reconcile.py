"""
Visits of all objects, and what this process alone remembers between two of them.

Losing it costs time: when it is asked again, everything is found again. Nothing here is ever a reason to start a
session a second time, or to believe that one is dead.
"""

import logging
from collections.abc import Set
from datetime import timedelta
from typing import Final

from controller.api.conditions import Reason
from controller.api.terminal import (
    ObjectUnreadable,
)
from controller.engine.launcher import Place
from controller.engine.registry import Snapshot
from controller.engine.visit import Tools, Visit, label
from controller.engine.writer import Outrun
from controller.kube.events import EventType, ObjectRef
from controller.metrics import ReconcileResult
from controller.plan.facts import Memory

log = logging.getLogger(__name__)

_NOTHING_KNOWN: Final = Memory()


class Reconciler:
    """Visits objects, and keeps between visits what only this process knows."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._memories: dict[str, Memory] = {}
        self._doubts: dict[str, timedelta] = {}
        self._places: dict[str, Place] = {}
        self._first_seen: dict[str, timedelta] = {}
        self._ends_asked: dict[str, timedelta] = {}

    def note_seen(self, uid: str) -> None:
        """Remember when an object was first seen: an older session list says nothing about its absence."""
        self._first_seen.setdefault(uid, self._tools.clock.monotonic())

    def note_end_asked(self, uid: str) -> None:
        """Remember when an end was first seen to be asked for: a list since then may serve the kill."""
        self._ends_asked.setdefault(uid, self._tools.clock.monotonic())

    def note_doubt(self, uid: str) -> None:
        """Put it in question whether an object's session lives; the first question stands."""
        self._doubts.setdefault(uid, self._tools.clock.monotonic())

    def forget(self, uid: str) -> None:
        """Drop everything about an object that is gone."""
        self._memories.pop(uid, None)
        self._doubts.pop(uid, None)
        self._places.pop(uid, None)
        self._first_seen.pop(uid, None)
        self._ends_asked.pop(uid, None)
        self._tools.keeper.drop(uid)

    async def visit(self, uid: str) -> ReconcileResult:
        """
        Bring one object a visit further, and plan its next one.

        Raises:
            TenureEnded: This process no longer leads.
            OutsideError: The Kubernetes API did not do what was asked; the caller backs off.
        """
        snapshot = self._tools.registry.get(uid)
        if snapshot is None:
            self.forget(uid)
            return ReconcileResult.SETTLED
        self.note_seen(uid)
        # Taken out, so that a question that arises during the visit is a question of its own.
        doubt = self._doubts.pop(uid, None)
        try:
            visit = Visit(
                self._tools,
                snapshot,
                memory=self._memories.get(uid, _NOTHING_KNOWN),
                doubt=doubt,
                first_seen=self._first_seen[uid],
                end_asked=self._ends_asked.get(uid),
            )
        except ObjectUnreadable as error:
            self._keep_open(uid, doubt)
            return self._stall_unreadable(snapshot, error)
        try:
            return await visit.run()
        except Outrun:
            self._tools.queue.add(uid, visit.lane)
            return ReconcileResult.WAITING
        finally:
            self._keep(uid, visit)
            visit.tell_keeper()

    def place_of(self, uid: str) -> Place | None:
        """Tell where an object's session was last looked for."""
        return self._places.get(uid)

    def fingerprints(self) -> frozenset[str]:
        """Tell by which tokens objects are looked at."""
        return frozenset(place.token.fingerprint for place in self._places.values())

    def find_by_tokens(self, fingerprints: Set[str]) -> tuple[str, ...]:
        """Name the objects that are looked at by one of these tokens: a visit finds whether there is a newer one."""
        if not fingerprints:
            return ()
        return tuple(uid for uid, place in self._places.items() if place.token.fingerprint in fingerprints)

    def _stall_unreadable(self, snapshot: Snapshot, error: ObjectUnreadable) -> ReconcileResult:
        """Tell of an object that was stored under another schema; nothing is done about it, and nothing is let go."""
        ref = ObjectRef(namespace=snapshot.namespace, name=snapshot.name, uid=snapshot.uid)
        self._tools.events.record(
            ref, type=EventType.WARNING, reason=Reason.OBJECT_INVALID, action="Read", note=str(error)
        )
        log.warning("An object cannot be read.", extra={"object": label(snapshot), "fault": str(error)})
        self._tools.queue.add_after(snapshot.uid, self._tools.full_check_interval)
        return ReconcileResult.STALLED

    def _keep(self, uid: str, visit: Visit) -> None:
        if uid not in self._tools.registry:
            self.forget(uid)
            return
        if visit.place is not None:
            self._places[uid] = visit.place
        if visit.memory == _NOTHING_KNOWN:
            self._memories.pop(uid, None)
        else:
            self._memories[uid] = visit.memory
        if not visit.doubt_settled:
            # The visit may have written down what made it ask, so that no later one would find the question again.
            self._keep_open(uid, visit.doubt)

    def _keep_open(self, uid: str, doubt: timedelta | None) -> None:
        """Leave a question for the next visit; the first one stands."""
        if doubt is not None:
            self._doubts[uid] = min(doubt, self._doubts.get(uid, doubt))

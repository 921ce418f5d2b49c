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
from controller.api.terminal import ObjectUnreadable, read_frame
from controller.engine.launcher import Place
from controller.engine.registry import Snapshot
from controller.engine.visit import Tools, Visit, label, refer_to
from controller.engine.writer import Outrun
from controller.kube.errors import Invalid
from controller.kube.events import EventType
from controller.metrics import ReconcileResult
from controller.plan.facts import Memory
from controller.plan.status import build_unread_status

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
        self._unwritable: dict[str, tuple[int, str]] = {}
        """What cannot be read of an object and could not be written into it, with its generation."""

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
        self._unwritable.pop(uid, None)
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
            return await self._stall_unreadable(snapshot, str(error))
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

    async def _stall_unreadable(self, snapshot: Snapshot, sentence: str) -> ReconcileResult:
        """Tell of an object that was stored under another schema; nothing is done about it, and nothing is let go."""
        try:
            await self._tell_unreadable(snapshot, sentence)
        except Outrun:
            self._tools.queue.add(snapshot.uid)
            return ReconcileResult.WAITING
        self._tools.queue.forget(snapshot.uid)
        self._tools.queue.add_after(snapshot.uid, self._tools.full_check_interval)
        return ReconcileResult.STALLED

    async def _tell_unreadable(self, snapshot: Snapshot, sentence: str) -> None:
        """
        Write what cannot be read into the conditions, and post an Event, once for each generation.

        Where the status cannot be written, the Event alone tells, once for as long as this process lives.
        """
        tools, known = self._tools, read_frame(snapshot.status())
        told = build_unread_status(
            known,
            sentence,
            generation=snapshot.generation,
            requested_at=snapshot.requested_at(),
            now=tools.clock.now(),
        )
        told = tools.writer.fit(told)
        if told == known or self._unwritable.get(snapshot.uid) == (snapshot.generation, sentence):
            return
        try:
            await tools.writer.write_frame(snapshot, told)
        except Invalid as refusal:
            self._unwritable[snapshot.uid] = snapshot.generation, sentence
            log.warning(
                "The status of an object that cannot be read cannot be written either.",
                extra={"object": label(snapshot), "fault": refusal.message},
            )
        tools.events.record(
            refer_to(snapshot), type=EventType.WARNING, reason=Reason.OBJECT_INVALID, action="Read", note=sentence
        )
        log.warning("An object cannot be read.", extra={"object": label(snapshot), "fault": sentence})

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

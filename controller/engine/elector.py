"""
One leader among the replicas, by a Lease.

Problem: two operators that act at the same time kill and launch twice; a leader that was paused, or cut off from the
API server, does not know that it was replaced. Promise: whoever leads has a tenure that ends, by a clock that does not
stop with the machine, well before anybody else may take the Lease; a renewal counts from the moment it was sent; one
whose answer was lost is settled by reading; a leader that ends in good order gives the Lease back.

A process leads at most once. What it loses it does not win again: it ends, and its pod starts a fresh one, which knows
nothing that may have become untrue meanwhile.

Source: kopf.md 7; design 5 (docs/architecture.md).
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol, assert_never

from controller.clock import ElapsedClock
from controller.errors import Failure
from controller.kube.errors import KubeError
from controller.plan.lease import (
    Create,
    GiveUp,
    LeaseRecord,
    LeaseTimes,
    Look,
    NeverLooked,
    Present,
    Renew,
    Sighting,
    StandBy,
    Take,
    judge_until,
    note_sighting,
    plan_lease,
    read_lease,
    render_held_lease,
    render_new_lease,
    render_released_lease,
    settle,
)
from controller.tenure import LeasedTenure, TenureEnded

log = logging.getLogger(__name__)

SOON: Final = timedelta(milliseconds=100)
"""After somebody was faster, we look again this soon."""

RELEASE_TRIES: Final = 3
"""A renewal that was on its way may arrive between our look and our release, and is seen by the next look."""


class Leases(Protocol):
    """What the elector asks of the Kubernetes API."""

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        """Read it, consistently."""

    async def create_lease(self, lease: dict[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        """Create it; `Conflict` where there is one."""

    async def put_lease(self, lease: dict[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        """Replace exactly what was read; `Conflict` where somebody else was faster."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    Who stands for what.

    Args:
        namespace: Where the Lease is.
        name: Its name.
        identity: Ours, which no other process has, not even the next one of the same pod.
    """

    namespace: str
    name: str
    identity: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Unanswered(Exception):
    """A call to the Lease brought no answer that tells what it is now."""


class Elector:
    """
    Stands by until the Lease is free, and holds it then.

    Args:
        leases: A client of its own: a renewal must not wait behind other calls.
        candidate: Who stands for what.
        times: How long everything lasts.
        clock: Also counts the time of a suspended machine.
        tenure: Begun when the Lease is won; it has the same clock.
    """

    def __init__(
        self, leases: Leases, candidate: Candidate, times: LeaseTimes, clock: ElapsedClock, tenure: LeasedTenure
    ) -> None:
        self._leases = leases
        self._candidate = candidate
        self._times = times
        self._clock = clock
        self._tenure = tenure
        self._sighting: Sighting = NeverLooked()
        self._lease: dict[str, Any] = {}
        self._is_fresh = False
        """What is known of the Lease is what our own last call has shown, and no call since was left open."""
        self._unsettled: dict[str, timedelta] = {}
        self._told_holder: str | None = None
        self._told_failure: str | None = None
        self.won = asyncio.Event()
        """Set once this process leads."""

    async def run(self) -> None:
        """
        Stand by, then lead, until cancelled.

        Raises:
            TenureEnded: We led, and do not any more.
        """
        while True:
            began = self._clock.elapsed()
            pause = await self._act_once()
            self._demand_unless_standing_by()
            spent = self._clock.elapsed() - began
            await self._clock.sleep(self._bound_by_tenure(max(pause - spent, timedelta(0))))
            self._demand_unless_standing_by()

    async def release(self) -> None:
        """Give the Lease back if it may be ours. It comes after the last call of this tenure; it never raises."""
        self._tenure.end()
        if not self._may_be_ours():
            return
        try:
            async with asyncio.timeout(2 * self._times.retry.total_seconds()):
                for _ in range(RELEASE_TRIES):
                    if await self._release_once():
                        return
        except (KubeError, TimeoutError) as error:
            log.warning(
                "The Lease could not be released; it lapses by itself.",
                extra={"lease": str(self._candidate), "fault": str(error) or type(error).__name__},
            )

    # --- one round ----------------------------------------------------------------------------------------------------

    async def _act_once(self) -> timedelta:
        """Look where nothing fresh is known, do what follows, and tell when the next round is due."""
        try:
            if not self._is_fresh:
                await self._look()
            pause = await self._follow()
        except _Unanswered:
            self._is_fresh = False
            return self._times.retry
        except KubeError as error:
            self._is_fresh = False
            self._tell_failure(error.failure, error.message)
            is_outrun = error.failure in (Failure.CONFLICT, Failure.NOT_FOUND)
            return SOON if is_outrun else self._times.retry
        self._told_failure = None
        return pause

    async def _follow(self) -> timedelta:
        now = self._clock.elapsed()
        step = plan_lease(
            self._sighting,
            me=self._candidate.identity,
            leading=self._tenure.has_begun,
            times=self._times,
            now=now,
        )
        match step:
            case Look():
                return timedelta(0)
            case StandBy(holder, until):
                self._tell_standing_by(holder)
                self._is_fresh = False
                return min(self._times.retry, until - now)
            case GiveUp(told):
                raise self._lose(f"The Lease {self._candidate} is lost: {told}. This process ends.")
            case Create() | Take() | Renew():
                await self._write(step)
                return self._times.retry
            case _:
                assert_never(step)

    async def _look(self) -> None:
        """Read the Lease; it may show that a write happened whose answer was lost."""
        lease: dict[str, Any] | None
        try:
            async with self._bounded() as timeout:
                lease = await self._leases.get_lease(self._candidate.namespace, self._candidate.name, timeout=timeout)
        except KubeError as error:
            if error.failure is not Failure.NOT_FOUND:
                raise
            lease = None
        record = None if lease is None else read_lease(lease)
        self._take_in(lease or {}, record)
        sent = settle(record, me=self._candidate.identity, unsettled=self._unsettled)
        if sent is not None and record is not None:
            self._note_held(record, sent)

    async def _write(self, step: Create | Take | Renew) -> None:
        """Write the Lease as ours. Its moment names the write, so that a later look can tell whether it happened."""
        me, now_time = self._candidate.identity, self._clock.now()
        if isinstance(step, Create):
            lease = render_new_lease(
                self._candidate.namespace,
                self._candidate.name,
                me=me,
                transitions=step.transitions,
                times=self._times,
                now_time=now_time,
            )
        else:
            lease = render_held_lease(self._lease, step, me=me, times=self._times, now_time=now_time)
        sent, moment = self._clock.elapsed(), lease["spec"]["renewTime"]
        self._unsettled[moment] = sent
        try:
            async with self._bounded() as timeout:
                call = self._leases.create_lease if isinstance(step, Create) else self._leases.put_lease
                answer = await call(lease, timeout=timeout)
        except KubeError as error:
            if not error.may_have_happened:
                del self._unsettled[moment]
            raise
        record = read_lease(answer)
        self._take_in(answer, record)
        self._note_held(record, sent)

    @contextlib.asynccontextmanager
    async def _bounded(self) -> AsyncIterator[timedelta]:
        """Bound a call by our own time as well: to log in anew may take longer than the client's limit for the call."""
        limit = self._bound_by_tenure(self._times.retry)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                yield limit
        except TimeoutError:
            self._tell_failure(Failure.TIMED_OUT, "The Kubernetes API did not answer in time.")
            raise _Unanswered from None

    def _take_in(self, lease: dict[str, Any], record: LeaseRecord | None) -> None:
        self._sighting = note_sighting(self._sighting, record, now=self._clock.elapsed())
        self._lease = lease
        self._is_fresh = True

    def _note_held(self, record: LeaseRecord, sent: timedelta) -> None:
        """Begin the tenure, or let it last longer: the Lease was ours at a time after `sent`."""
        self._unsettled.clear()
        until = judge_until(sent, self._times)
        if self._tenure.has_begun:
            self._tenure.extend(until=until)
        elif self._clock.elapsed() < until:
            self._tenure.begin(record.transitions, until=until)
            self.won.set()
            log.info("This process leads now.", extra={"lease": str(self._candidate), "tenure": record.transitions})

    async def _release_once(self) -> bool:
        """Release what is ours; False where somebody wrote between our look and our write."""
        place, timeout = self._candidate, self._times.retry
        lease = await self._leases.get_lease(place.namespace, place.name, timeout=timeout)
        if read_lease(lease).holder != place.identity:
            return True
        try:
            await self._leases.put_lease(render_released_lease(lease, now_time=self._clock.now()), timeout=timeout)
        except KubeError as error:
            if error.failure is Failure.CONFLICT:
                return False
            raise
        log.info("The Lease was released.", extra={"lease": str(place), "tenure": self._tenure.number})
        return True

    # --- the tenure ---------------------------------------------------------------------------------------------------

    def _demand_unless_standing_by(self) -> None:
        if self._tenure.has_begun and not self._tenure.is_held:
            seconds = self._times.renew_deadline.total_seconds()
            raise self._lose(f"The Lease {self._candidate} could not be renewed for {seconds:g} s. This process ends.")

    def _lose(self, told: str) -> TenureEnded:
        self._tenure.end()
        log.error(told, extra={"lease": str(self._candidate), "tenure": self._tenure.number})
        return TenureEnded(told)

    def _bound_by_tenure(self, wait: timedelta) -> timedelta:
        """Let no wait outlast the tenure."""
        return min(wait, self._tenure.left) if self._tenure.has_begun else wait

    def _may_be_ours(self) -> bool:
        holder = self._sighting.record.holder if isinstance(self._sighting, Present) else ""
        return holder == self._candidate.identity or bool(self._unsettled)

    # --- what is told -------------------------------------------------------------------------------------------------

    def _tell_standing_by(self, holder: str) -> None:
        if holder != self._told_holder:
            self._told_holder = holder
            log.info("Standing by: another process leads.", extra={"lease": str(self._candidate), "holder": holder})

    def _tell_failure(self, failure: str, told: str) -> None:
        """Tell a failure that goes on once; how often it repeats stands in the metrics."""
        level = logging.DEBUG if failure == self._told_failure else logging.WARNING
        self._told_failure = failure
        log.log(level, "A call to the Lease failed.", extra={"lease": str(self._candidate), "fault": told})

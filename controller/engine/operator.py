"""
The engine as a whole: words about objects come in, visits go out, and a few clocks tick beside them.

Every task here belongs to one task group; the end of any of them is the end of all, and so of the process. Nothing is
visited before the first list has passed: whether a session has another owner can only be said by who has seen all.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final, assert_never

from controller.api.conditions import Reason
from controller.api.names import FINALIZER
from controller.api.session import Cause, Identity
from controller.api.terminal import LeftoversResult, LeftoversStatus
from controller.clock import Clock
from controller.engine.census import Census
from controller.engine.keeper import HoldKeeper
from controller.engine.launcher import Launcher, Place
from controller.engine.leases import LeaseProver
from controller.engine.leftovers import LeftoverSearch
from controller.engine.liveness import LoopLag
from controller.engine.observer import SpriteObserver
from controller.engine.owners import Claim, Owners, read_claim
from controller.engine.queue import Lane, Wait, WorkQueue
from controller.engine.reconcile import Reconciler
from controller.engine.registry import Change, Gone, Registry, Snapshot
from controller.engine.resync import Lister, Resync
from controller.engine.settings import EngineSettings
from controller.engine.stakes import Stakes, find_source, has_stake
from controller.engine.tokens import OwnToken, TokenBook
from controller.engine.visit import Tools
from controller.engine.writer import Writer
from controller.errors import OutsideError
from controller.kube.client import KubeClient
from controller.kube.events import EventRecorder, EventType, ObjectRef
from controller.metrics import LeftoversFinding, Metrics, ReconcileResult, WaitCause
from controller.plan.hold_settings import HoldSettings
from controller.plan.kill import Presence, find_presence
from controller.plan.leftovers import describe_leftovers
from controller.plan.looks import AWAKE_AGE, Listed, SpriteSeen
from controller.plan.news import GATHERED_WITHIN, Face, News, judge_news
from controller.plan.resting import is_paused
from controller.sprites.client import SpritesClient
from controller.tenure import Tenure, TenureEnded

log = logging.getLogger(__name__)

REST_SPREAD: Final = timedelta(minutes=10)
"""After a start, objects at rest are visited within this time: a burst would help nobody."""
HELD_SPREAD: Final = timedelta(seconds=10)
"""After a start, what may have to be held is visited within this time: a hold of 30 s must not lapse meanwhile."""
PORTION: Final = 200
"""So many first visits are planned before the loop gets its turn: some milliseconds."""
PROBE_TICK: Final = timedelta(seconds=5)
"""While a breaker is open, this often it is seen whether its next list is due."""
CHECK_SLACK: Final = timedelta(seconds=5)
"""A check that would be due within this time comes now: the next occasion is a reading of the metadata away."""
CHECKS_AT_ONCE: Final = 4
CHECK_WATCHED: Final = timedelta(seconds=60)
"""How old the list of a sprite may grow while somebody is attached to one of its sessions, or one of them is held."""
CHECK_UNWATCHED: Final = timedelta(minutes=10)
CHECK_YOUNG: Final = timedelta(seconds=5)
"""At this age a session is looked at once: by then a command that does not exist has ended, and nobody may watch."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The clients of the engine, already built."""

    kube: KubeClient
    sprites: SpritesClient
    events: EventRecorder
    own_token: OwnToken | None


class Operator:
    """
    The engine of one term of leadership.

    Args:
        outside: The clients.
        settings: How many workers, which intervals.
        per_second: The budget of Sprites calls per token.
        metrics: Counts.
        clock: Both clocks.
        tenure: Permits every write.
        luck: For jitter.
        draw_nonce: Gives a new launch nonce: lower-case letters and digits, never twice the same.
        lease_namespace: Where the Leases of gateways lie.
        namespaces: The ones that are watched; empty is all.
        lacking: The fields of the status that the installed CRD does not have.
        lookout: Lists the objects for comparison, whether this process leads or not; None is the client of `outside`.
    """

    def __init__(
        self,
        outside: Outside,
        settings: EngineSettings,
        *,
        per_second: float,
        metrics: Metrics,
        clock: Clock,
        tenure: Tenure,
        luck: Random,
        draw_nonce: Callable[[], str],
        lease_namespace: str,
        namespaces: tuple[str, ...] = (),
        lacking: frozenset[str] = frozenset(),
        hold: HoldSettings | None = None,
        lookout: Lister | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._luck = luck
        self._metrics = metrics
        self._events = outside.events
        self._tenure = tenure
        self._census = Census(clock, names=settings.metrics_names)
        self._refreshed = asyncio.Event()
        self.registry = Registry()
        self.queue = WorkQueue(clock, settings.queue, luck, self._count_wait)
        self._owners = Owners()
        self._stakes = Stakes()
        self._observer = SpriteObserver(
            outside.sprites,
            clock,
            per_second=per_second,
            on_change=self._take_sprite_change,
            find_stakes=self._stakes.names,
            on_breaker=self._take_breaker,
            on_wake=metrics.count_wake,
            on_wait=lambda duration: metrics.count_wait(WaitCause.LIMITER, duration),
        )
        tokens = TokenBook(outside.kube, clock, outside.own_token)
        self._keeper = HoldKeeper(
            outside.sprites,
            self._observer,
            clock,
            tenure,
            metrics=metrics,
            luck=luck,
            on_change=self.wake,
            on_idle=self._warn_of_idle_hold,
        )
        self._leftovers = LeftoverSearch(
            outside.sprites, self._observer, clock, tenure, on_found=self._tell_of_leftovers
        )
        self._leases = LeaseProver(outside.kube, lease_namespace, clock, on_dead=self._wake)
        self._reconciler = Reconciler(
            Tools(
                registry=self.registry,
                queue=self.queue,
                observer=self._observer,
                tokens=tokens,
                owners=self._owners,
                stakes=self._stakes,
                writer=Writer(outside.kube, self.registry, tenure, on_known=self._note_written, lacking=lacking),
                launcher=Launcher(outside.sprites, self._observer, tokens, clock, tenure),
                client=outside.sprites,
                events=outside.events,
                metrics=metrics,
                clock=clock,
                tenure=tenure,
                luck=luck,
                draw_nonce=draw_nonce,
                full_check_interval=settings.full_check_interval,
                keeper=self._keeper,
                hold=hold or HoldSettings(),
                leftovers=self._leftovers,
                leases=self._leases,
            )
        )
        self._is_leading = False
        self.resync = Resync(
            lookout or outside.kube,
            self.registry,
            clock,
            settings.resync,
            namespaces=namespaces,
            on_gone=self._take_lost,
            on_stripped=self.wake,
        )
        self.loop_lag = LoopLag(clock, settings.liveness, self._take_sample)
        self._events_lost = 0
        metrics.watch_age.set_function(self._measure_watch_age)
        metrics.watch_unchecked.set_function(self._measure_watch_unchecked)
        metrics.observe_holds(self._keeper.count_holds, self._keeper.measure_idle)
        metrics.breakers_open.set_function(self._observer.count_open)
        metrics.queue_depth.set_function(lambda: sum(self.queue.depth(lane) for lane in Lane))
        metrics.observe_present(self._census)

    def take_word(self, word: Snapshot | Gone) -> None:
        """Take in what the watch or a resync says about an object, and plan a visit where it is news."""
        if isinstance(word, Gone):
            self.take_gone(word.uid)
            return
        known = self.registry.get(word.uid)
        change = self.registry.observe(word)
        if change is Change.STALE:
            return
        for uid in self.registry.take_displaced():
            self.take_gone(uid)
        raw_spec, raw_status = self._note(word)
        self._reconciler.note_seen(word.uid)
        if not self._is_leading:
            return
        match News.OTHER if known is None else judge_word(known, word):
            case News.NONE:
                pass
            case News.PEOPLE | News.PEOPLE_UNDER_WAY as news:
                self.queue.gather(word.uid, within=GATHERED_WITHIN[news])
            case News.OTHER:
                self._plan_visit(word, raw_spec, raw_status, is_first=change is Change.NEW)
            case other:
                assert_never(other)

    def _plan_visit(
        self, word: Snapshot, raw_spec: Mapping[str, Any], raw_status: Mapping[str, Any], *, is_first: bool
    ) -> None:
        """Ask for a visit by what is news; what rests, and was never visited by us, can wait."""
        lane = _judge_lane(word, raw_spec)
        if lane is Lane.URGENT:
            self._reconciler.note_end_asked(word.uid)
        if is_first and is_at_rest(word, raw_spec, raw_status):
            spread = HELD_SPREAD if raw_spec.get("holdWanted") or raw_status.get("hold") else REST_SPREAD
            wait = spread * self._luck.random()
            self.queue.add_after(word.uid, min(wait, self._judge_reap_wait(raw_spec, raw_status) or wait), lane)
        else:
            self.queue.add(word.uid, lane)

    def _judge_reap_wait(self, spec: Mapping[str, Any], status: Mapping[str, Any]) -> timedelta | None:
        """Tell how long an object at rest may wait for its first visit before its reap is due; None where none is."""
        detached, timeout = status.get("detachedTime"), spec.get("idleTimeoutSeconds")
        if not detached or not timeout:
            return None
        due = datetime.fromisoformat(detached) + timedelta(seconds=timeout) - self._clock.now()
        return max(timedelta(0), due)

    def take_gone(self, uid: str) -> None:
        """Forget an object that is gone, and wake those who waited for its session."""
        self.registry.forget(uid)
        self._reconciler.forget(uid)
        self._census.drop(uid)
        self._stakes.drop(uid)
        self._leases.drop(uid)
        self.queue.drop(uid)
        self._wake(self._owners.drop(uid))

    def _take_lost(self, uid: str) -> None:
        """Take in a deletion that the watch had lost."""
        self._metrics.resync_lost.inc()
        self.take_gone(uid)

    def wake(self, uid: str) -> None:
        """Plan a visit now, for whatever reason."""
        self.queue.add(uid)

    async def run(self, first_list: asyncio.Event, leading: asyncio.Event | None = None) -> None:
        """
        Work until cancelled, or until a part of it fails.

        Until this process leads it only looks: the registry follows the watch, and nothing is visited.

        Args:
            first_list: Set once every object of the first list was taken in.
            leading: Set once the tenure has begun; None where it holds from the start.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loop_lag.run(), name="loop-lag")
            await first_list.wait()
            log.info("Every object was seen.", extra={"objects": len(self.registry)})
            group.create_task(self.resync.run(), name="resync")
            if leading is not None:
                await leading.wait()
            await self._plan_first_visits()
            group.create_task(self._events.run(self._tenure), name="events")
            for number in range(self._settings.workers):
                group.create_task(self._work(), name=f"worker-{number}")
            group.create_task(self._keeper.run(), name="holds")
            group.create_task(self._leftovers.run(), name="leftovers")
            group.create_task(self._leases.run(), name="leases")
            group.create_task(self._read_metadata(), name="metadata")
            group.create_task(self._check_sessions(), name="sessions")

    async def _plan_first_visits(self) -> None:
        """Begin to plan visits: at first of everything that was seen so far, and from now on of what is news."""
        self._is_leading = True
        self._census.open()
        for number, snapshot in enumerate(tuple(self.registry), start=1):
            self._plan_visit(snapshot, snapshot.spec(), snapshot.status(), is_first=True)
            if number % PORTION == 0:
                await asyncio.sleep(0)

    async def finish(self, *, within: timedelta) -> None:
        """
        Begin nothing any more, and let what is under way come to its end.

        Args:
            within: What takes longer is left to be cut.
        """
        self.queue.close()
        self._keeper.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                await self.queue.wait_finished()
                await self._keeper.wait_finished()
                if self._is_leading:
                    await self._events.drain()

    # --- what is known of objects -------------------------------------------------------------------------------------

    def _note(self, snapshot: Snapshot) -> tuple[dict[str, Any], dict[str, Any]]:
        """Bring claims and counts up to date with a state that the registry took in."""
        spec, status = snapshot.spec(), snapshot.status()
        claim = read_claim(snapshot, spec, status)
        if claim is None:
            self._wake(self._owners.drop(snapshot.uid))
        else:
            self._owners.put(claim)
        if has_stake(snapshot, status):
            self._stakes.put(snapshot.uid, find_source(snapshot.namespace, spec), snapshot.sprite)
        else:
            self._stakes.drop(snapshot.uid)
        self._leases.note(snapshot, spec, status)
        self._census.put(snapshot, spec, status)
        return spec, status

    def _warn_of_idle_hold(self, uid: str) -> None:
        """Tell of a hold that was kept for an hour in which nothing was active: somebody pays for it."""
        snapshot = self.registry.get(uid)
        if snapshot is None:
            return
        note = (
            f"Sprite {snapshot.sprite} has been held for an hour without any activity. Set `holdWanted: false` to let "
            "it pause, or detach."
        )
        ref = ObjectRef(namespace=snapshot.namespace, name=snapshot.name, uid=uid)
        self._events.record(ref, type=EventType.WARNING, reason=Reason.HOLD_ACTIVE, action="Hold", note=note)
        log.warning(note, extra={"object": f"{snapshot.namespace}/{snapshot.name}"})

    def _tell_of_leftovers(self, ref: ObjectRef, left: LeftoversStatus) -> None:
        """Tell what the session of an object that is gone left behind."""
        self._metrics.count_leftovers(LeftoversFinding(left.result.value))
        if left.result is LeftoversResult.FOUND:
            note = describe_leftovers(left)
            reason = Reason.LEFTOVERS_FOUND
            self._events.record(ref, type=EventType.WARNING, reason=reason, action="Search", note=note)
            log.warning(note, extra={"object": f"{ref.namespace}/{ref.name}", "reason": reason.value})

    def _note_written(self, snapshot: Snapshot) -> None:
        self._note(snapshot)

    def _wake(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.queue.add(uid)

    def _take_sample(self, lag: timedelta) -> None:
        """Bring up to date, once a second, what nobody tells by itself."""
        self._metrics.note_loop_lag(lag)
        lost = self._events.counts.dropped + self._events.counts.failed
        self._metrics.events_dropped.inc(lost - self._events_lost)
        self._events_lost = lost

    def _measure_watch_age(self) -> float:
        return self.resync.lag.total_seconds()

    def _measure_watch_unchecked(self) -> float:
        return self.resync.unchecked.total_seconds()

    def _count_wait(self, wait: Wait, duration: timedelta) -> None:
        """Count a wait that somebody may mind; a planned one is nobody's delay."""
        match wait:
            case Wait.QUEUE:
                self._metrics.count_wait(WaitCause.QUEUE, duration)
            case Wait.BACKOFF:
                self._metrics.count_wait(WaitCause.BACKOFF, duration)
            case Wait.PLANNED:
                pass
            case _:
                assert_never(wait)

    # --- what is known of sprites -------------------------------------------------------------------------------------

    def _take_sprite_change(self, name: str) -> None:
        """A sprite changed its state, or is cold: the question is open whether what lives there still does."""
        self._keeper.wake(name)
        for uid in self.registry.by_sprite(name):
            claim = self._owners.get(uid)
            if claim is not None and claim.owned:
                self._reconciler.note_doubt(uid)
                self.queue.add(uid)
            elif not self._is_settled(uid):
                self.queue.add(uid)

    def _take_breaker(self, fingerprint: str) -> None:
        """An incident has begun, is over or may be: what waits says so, or goes on."""
        uids = self._reconciler.find_by_tokens(frozenset({fingerprint}))
        for uid in uids:
            if not self._is_settled(uid):
                self.queue.add(uid)
        places = (self._reconciler.place_of(uid) for uid in uids)
        for sprite in {place.sprite for place in places if place is not None}:
            self._keeper.wake(sprite)

    def _is_settled(self, uid: str) -> bool:
        snapshot = self.registry.get(uid)
        return snapshot is None or is_at_rest(snapshot, snapshot.spec(), snapshot.status())

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        """Be one worker: visit what is due, one object at a time."""
        while True:
            item = await self.queue.get()
            begun = self._clock.monotonic()
            try:
                result = await self._visit(item.key)
            finally:
                self.queue.done(item.key)
            self._metrics.count_reconcile(result, self._clock.monotonic() - begun)

    async def _visit(self, uid: str) -> ReconcileResult:
        try:
            return await self._reconciler.visit(uid)
        except TenureEnded:
            raise
        except OutsideError as error:
            wait = self.queue.fail(uid, at_least=error.retry_after)
            log.warning(
                "A visit was cut short; it is repeated.",
                extra={"object": uid, "fault": error.message, "after_seconds": wait.total_seconds()},
            )
        except Exception:
            # A bug with one object must not cost all others their operator: it is logged whole, counted, and repeated.
            self.queue.fail(uid)
            log.exception("A visit failed for a reason that nobody foresaw.", extra={"object": uid})
        return ReconcileResult.FAILED

    async def _read_metadata(self) -> None:
        """Read the sprites of every token in use, again and again; it never wakes one."""
        due = self._clock.monotonic() + self._settings.metadata_interval
        while True:
            await self._clock.sleep(min(due - self._clock.monotonic(), PROBE_TICK))
            only_open = self._clock.monotonic() < due
            if not only_open:
                due = self._clock.monotonic() + self._settings.metadata_interval
            refreshed = await self._observer.refresh(self._reconciler.fingerprints(), only_open=only_open)
            for uid in self._reconciler.find_by_tokens(refreshed.refused):
                self.queue.add(uid)
            for uid in self._reconciler.find_by_tokens(refreshed.recovered):
                # Its own wait may have grown to minutes during the outage.
                if not self._is_settled(uid):
                    self.queue.add(uid)
            self._refreshed.set()

    async def _check_sessions(self) -> None:
        """
        Look now and then whether what lives still does: per sprite, and only where the sprite runs by itself.

        Directly after the metadata was read, which then need not be read again to know that.
        """
        while True:
            await self._refreshed.wait()
            self._refreshed.clear()
            places = iter(self._group_by_sprite().items())
            async with asyncio.TaskGroup() as group:
                for _ in range(CHECKS_AT_ONCE):
                    group.create_task(self._check_places(places))

    async def _check_places(self, places: Iterator[tuple[Place, list[Claim]]]) -> None:
        for place, claims in places:
            await self._check_sprite(place, claims)

    def _group_by_sprite(self) -> dict[Place, list[Claim]]:
        places: dict[Place, list[Claim]] = {}
        for claim in self._owners.owned():
            place = self._reconciler.place_of(claim.uid)
            if place is not None:
                places.setdefault(place, []).append(claim)
        return places

    def _find_first_looks(self, claims: list[Claim]) -> Iterator[timedelta]:
        """Give the moments, past and on the monotonic clock, since which each session's first look is due."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        for claim in claims:
            if claim.created is not None and claim.created + CHECK_YOUNG <= now:
                yield monotonic - (now - claim.created) + CHECK_YOUNG

    def _is_watched(self, claim: Claim) -> bool:
        return claim.attached and not self._leases.is_forlorn(claim.uid)

    async def _check_sprite(self, place: Place, claims: list[Claim]) -> None:
        """Read one sprite's list where it is due, and put in question what it does not show."""
        sprite = self._observer.recall_sprite(place.token, place.sprite, wanted_id=None)
        if is_paused(sprite) or not isinstance(sprite, SpriteSeen):
            return
        watched = any(self._is_watched(claim) or self._keeper.holds(claim.uid) for claim in claims)
        age = CHECK_WATCHED if watched else CHECK_UNWATCHED
        oldest = max((self._clock.monotonic() - age + CHECK_SLACK, *self._find_first_looks(claims)))
        known = self._observer.recall_sessions(place.token, place.sprite)
        if isinstance(known, Listed) and known.started >= oldest:
            return
        sprite = await self._observer.look_at_sprite(
            place.token, place.sprite, wanted_id=None, since=self._clock.monotonic() - AWAKE_AGE
        )
        if is_paused(sprite) or not isinstance(sprite, SpriteSeen):
            return
        look = await self._observer.look_at_sessions(place.token, place.sprite, since=oldest, cause=Cause.CHECK)
        if not isinstance(look, Listed):
            return
        for claim in claims:
            identity = Identity(claim.sprite_id or "", claim.session_id, claim.created)
            if find_presence(identity, look.sessions) is not Presence.LISTED:
                self._reconciler.note_doubt(claim.uid)
                self.queue.add(claim.uid)


def judge_word(known: Snapshot, word: Snapshot) -> News:
    """Tell what a newer state of an object asks for."""
    return judge_news(_find_face(known), _find_face(word))


def _find_face(snapshot: Snapshot) -> Face:
    return Face(
        generation=snapshot.generation,
        deleted=snapshot.deleted,
        has_finalizer=FINALIZER in snapshot.finalizers,
        annotations=snapshot.annotations,
        spec=snapshot.spec(),
        status=snapshot.status(),
    )


def is_at_rest(snapshot: Snapshot, spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """An object is at rest if what was recorded answers what is declared and asked, and nothing was left to do."""
    if snapshot.deleted is not None or status.get("observedGeneration") != snapshot.generation:
        return False
    if snapshot.requested_at() not in (None, status.get("lastHandledReconcileAt")):
        return False
    values = {condition.get("type"): condition.get("status") for condition in status.get("conditions") or ()}
    if spec.get("terminated") and values.get("Terminated") != "True":
        return False
    return values.get("Ready") == "True" and values.get("Reconciling") == "False"


def _judge_lane(snapshot: Snapshot, spec: Mapping[str, Any]) -> Lane:
    return Lane.URGENT if snapshot.deleted is not None or spec.get("terminated") else Lane.NORMAL

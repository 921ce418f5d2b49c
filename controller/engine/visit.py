"""
One visit of one object: observe, plan, apply, write the status once.

Whatever wakes an object (a watch event, a due time, the resync, a change of its sprite) is only a hint that leads here.
A visit asks `plan_terminal` for a step, does it, and asks again with what it learned. It may be cut at any `await` and
run again: what must be remembered is recorded before the call that it guards.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.names import FINALIZER
from controller.api.session import Announced, Cause, Identity, KillAnswer
from controller.api.situations import Situation, judge_readiness
from controller.api.terminal import (
    HoldMode,
    HoldStatus,
    KillTrigger,
    LaunchIntent,
    Origin,
    SessionStatus,
    TerminalSpec,
    TerminalStatus,
    read_spec,
    read_status,
)
from controller.clock import Clock
from controller.engine.keeper import HoldKeeper, Wish
from controller.engine.launcher import Launcher, LaunchLost, Place
from controller.engine.leases import LeaseProver, view_snapshot
from controller.engine.leftovers import LeftoverSearch, Owed
from controller.engine.limits import Priority
from controller.engine.observer import SpriteObserver
from controller.engine.owners import Owners
from controller.engine.queue import Lane, WorkQueue
from controller.engine.registry import Registry, Snapshot
from controller.engine.stakes import Stakes, find_source
from controller.engine.tokens import TokenBook, TokenTrouble
from controller.engine.writer import Writer
from controller.errors import Failure
from controller.kube.events import EventRecorder, EventType, ObjectRef
from controller.metrics import KillVerdict, LaunchResult, LeftoversFinding, Metrics, ReconcileResult
from controller.plan.activity import (
    ACTIVITY_ANNOTATION,
    Activity,
    Hearing,
    Occasion,
    describe_unread_mark,
    observe_activity,
    read_activity_mark,
)
from controller.plan.ends import find_exit
from controller.plan.facts import CLOSED, NOTHING_SEEN, Facts, Memory, Probed, TokenFinding
from controller.plan.fence_objects import ObjectView
from controller.plan.gateways import find_presence, recall_gone
from controller.plan.hold_book import resolve_rules
from controller.plan.hold_names import build_key
from controller.plan.hold_settings import HoldSettings
from controller.plan.kill import (
    IDENTITY_AGE,
    ComeAgain,
    KillProgress,
    KillStep,
    Unproven,
    note_barred,
    note_refused,
    note_settled,
)
from controller.plan.kill import Presence as KillPresence
from controller.plan.kill import find_presence as find_session
from controller.plan.leftovers import Mark, ProcessesLook
from controller.plan.looks import (
    NOT_LOOKED,
    Listed,
    LookFailed,
    NotLooked,
    SessionsLook,
    SpriteAway,
    SpriteLook,
)
from controller.plan.resting import is_paused, rest_on_failure
from controller.plan.starting import LaunchPart, rest_launch_failed, rest_launch_invalid, rest_launch_unread
from controller.plan.status import HoldView, build_status, is_true, is_worth_writing
from controller.plan.steps import (
    BarLaunch,
    Happening,
    Leave,
    LookAtProcesses,
    LookAtSessions,
    LookAtSprite,
    Outcome,
    PlaceFinalizer,
    Plan,
    ProbeLaunch,
    RecordIntent,
    ReleaseObject,
    RereadObject,
    Rest,
    SendKill,
    StartSession,
    SweepGateway,
)
from controller.plan.teardown import find_asked, forget_proven, rest_unproven
from controller.plan.terminal import plan_terminal
from controller.plan.wakes import note_wake, read_situation
from controller.sprites.client import SpritesClient
from controller.sprites.errors import SpritesError
from controller.sprites.token import Token
from controller.tenure import Tenure

log = logging.getLogger(__name__)

STEPS_LIMIT: Final = 24
"""More steps in one visit than any plan needs: the object comes again by its back-off."""

_AT_THE_DOOR: Final = frozenset({Failure.UNAUTHORIZED, Failure.FORBIDDEN, Failure.THROTTLED, Failure.API_INCIDENT})
"""Failures that turn a kill away before anything is tried."""

SLOT_WAIT: Final = timedelta(milliseconds=100)
"""Who waits less than this for a place to kill in has not waited."""

HASTENED: Final = 2
"""As many as kills may be in flight on one sprite: more would only hold workers that others need."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Everything that a visit works with."""

    registry: Registry
    queue: WorkQueue
    observer: SpriteObserver
    tokens: TokenBook
    owners: Owners
    stakes: Stakes
    writer: Writer
    launcher: Launcher
    client: SpritesClient
    events: EventRecorder
    metrics: Metrics
    clock: Clock
    tenure: Tenure
    luck: Random
    draw_nonce: Callable[[], str]
    full_check_interval: timedelta
    keeper: HoldKeeper
    hold: HoldSettings
    leftovers: LeftoverSearch
    leases: LeaseProver


class Visit:
    """The state of one visit."""

    def __init__(
        self,
        tools: Tools,
        snapshot: Snapshot,
        *,
        memory: Memory,
        doubt: timedelta | None,
        first_seen: timedelta,
        end_asked: timedelta | None,
    ) -> None:
        self._tools = tools
        self._snapshot = snapshot
        self._spec: TerminalSpec
        self._status: TerminalStatus
        self._view: ObjectView
        self._take_in(snapshot)
        self._requested_at = snapshot.requested_at()
        self.memory = memory
        told = self._find_told_exit()
        self.doubt = doubt if doubt is not None else self._find_doubt(told)
        self.memory = replace(memory, exit_heard=told)
        self.doubt_settled = False
        self._first_seen = first_seen
        self._end_asked = end_asked
        self._token: Token | None = None
        self._finding = TokenFinding()
        self._sprite: SpriteLook = NOT_LOOKED
        self._sessions: SessionsLook = NOT_LOOKED
        self._processes: ProcessesLook = NOT_LOOKED
        self._probed: Probed | LookFailed | None = None
        self._announced: Announced | None = None
        self._reread_done = False
        self._is_substitute = False
        self._began = tools.clock.monotonic()

    def _take_in(self, snapshot: Snapshot) -> None:
        """Read an object as it is now."""
        spec, status = snapshot.spec(), snapshot.status()
        self._snapshot = snapshot
        self._spec, self._status = read_spec(spec), read_status(status)
        self._view = view_snapshot(snapshot, spec, status)

    def _find_gone(self) -> frozenset[str]:
        """Name the gateways through which nobody watches: the proven, and what an earlier process had proven."""
        leases = self._tools.leases
        recalled = recall_gone(self._spec, self._status)
        return leases.dead if recalled is None or leases.is_seen_alive(recalled) else leases.dead | {recalled}

    @property
    def lane(self) -> Lane:
        """Ends go before everything else."""
        return Lane.URGENT if self._snapshot.deleted is not None or self._spec.terminated else Lane.NORMAL

    @property
    def place(self) -> Place | None:
        """Where this visit looks, if there is a token for it."""
        return None if self._token is None else Place(self._token, self._spec.sprite_name)

    async def run(self) -> ReconcileResult:
        """Take steps until one is a rest."""
        await self._find_token()
        self._recall()
        self._tell_unread_mark()
        for _ in range(STEPS_LIMIT):
            plan = plan_terminal(self._facts(), self.memory)
            result = await self._take(plan)
            if result is not None:
                return result
        log.warning("A visit took too many steps; it goes on later.", extra={"object": label(self._snapshot)})
        self._tools.queue.fail(self._snapshot.uid)
        return ReconcileResult.WAITING

    def _find_told_exit(self) -> Identity | None:
        """Name the session that lives as far as is recorded, where a gateway says that it has exited."""
        session = self._status.session
        identity = None if session is None or session.ended is not None else _find_identity(session)
        if identity is None or find_exit(identity, self._status.gateways) is None:
            return None
        return identity

    def _find_doubt(self, told: Identity | None) -> timedelta | None:
        """
        Find out whether it is in question if the session still lives.

        A person who asks for a look, or who has just attached, wants to know; and a gateway that has seen its exit
        raises the question, once. It stays open over a restart where the sprite was away.
        """
        asked = self._requested_at is not None and self._requested_at != self._status.last_handled_reconcile_at
        came = self._spec.declares_viewer and not is_true(self._status, ConditionType.ATTACHED)
        is_news = told is not None and told != self.memory.exit_heard
        was_away = read_situation(self._status) is Situation.SPRITE_NOT_FOUND
        return self._tools.clock.monotonic() if asked or came or is_news or was_away else None

    # --- holds ---

    def tell_keeper(self) -> None:
        """Hand on what this visit found, as far as the hold needs it."""
        if self._token is None or self._snapshot.uid not in self._tools.registry:
            return
        snapshot, spec, session = self._snapshot, self._spec, self._status.session
        lives = session is not None and session.id is not None and session.ended is None
        wish = Wish(
            uid=snapshot.uid,
            key=build_key(snapshot.namespace, snapshot.name, snapshot.uid),
            place=self._place(),
            identity=_find_identity(session),
            live=lives and not spec.terminated and snapshot.deleted is None,
            wanted=spec.hold_wanted and self._finding.trouble is None,
            recorded=_without_expiry(self._status.hold),
            mode=HoldMode.WHILE_ACTIVE if spec.hold is None else spec.hold.mode,
            suspended=spec.suspend,
            presence=find_presence(spec, self._view, gone=self._find_gone()),
            hearing=_find_hearing(session),
            times=self._find_activity(session),
            rules=resolve_rules(spec.hold, self._tools.hold),
        )
        self._tools.keeper.put(wish)

    def _tell_unread_mark(self) -> None:
        """Tell of an activity annotation that counts for nothing, once for each value."""
        text = self._snapshot.annotation(ACTIVITY_ANNOTATION)
        sentence = describe_unread_mark(text, now=self._tools.clock.now())
        if sentence is not None and self.memory.mark_told != text:
            self._tell(Happening(Reason.ACTIVITY_UNREADABLE, sentence, warning=True))
        self.memory = replace(self.memory, mark_told=None if sentence is None else text)

    def _find_activity(self, session: SessionStatus | None) -> tuple[datetime | None, ...]:
        """Gather when the terminal was active: its launch, what gateways saw, and what its own hook says."""
        launched = session.created if session is not None and session.origin is Origin.LAUNCHED else None
        mark = read_activity_mark(self._snapshot.annotation(ACTIVITY_ANNOTATION), now=self._tools.clock.now())
        recorded = None if self._status.activity is None else self._status.activity.last_time
        return (launched, mark, recorded, *(gateway.activity_time for gateway in self._status.gateways))

    # --- facts --------------------------------------------------------------------------------------------------------

    async def _find_token(self) -> None:
        """Get the token, or say why there is none; ends may still use the one that served before."""
        ref = self._spec.token_secret_ref
        found = await self._tools.tokens.find(self._snapshot.namespace, ref, self._spec.sprite_name)
        if isinstance(found, Token):
            self._token = found
            self._finding = TokenFinding()
            self._tools.stakes.bind(find_source(self._snapshot.namespace, self._snapshot.spec()), found.fingerprint)
            return
        self._token = self._tools.tokens.find_for_kill(self._snapshot.namespace, ref)
        self._is_substitute = True
        self._finding = TokenFinding(
            found.situation, found.message, kill_usable=self._token is not None, passing=found.passing
        )

    def _recall(self) -> None:
        self._recall_sprite()
        if self._token is not None:
            self._sessions = self._tools.observer.recall_sessions(self._token, self._spec.sprite_name)
            self._processes = self._tools.leftovers.recall(self._place())

    def _recall_sprite(self) -> None:
        if self._token is not None:
            self._sprite = self._tools.observer.recall_sprite(
                self._token, self._spec.sprite_name, wanted_id=self._wanted_sprite_id()
            )

    def _wanted_sprite_id(self) -> str | None:
        session = self._status.session
        if session is None or session.ended is not None:
            return None
        if session.id is not None:
            return session.sprite_id
        return None if session.launch_intent is None else session.launch_intent.sprite_id

    def _facts(self) -> Facts:
        tools, snapshot = self._tools, self._snapshot
        wake = None if self._token is None else tools.observer.recall_wake(self._token, self._spec.sprite_name)
        return Facts(
            generation=snapshot.generation,
            deleting=snapshot.deleted is not None,
            has_finalizer=FINALIZER in snapshot.finalizers,
            spec=self._spec,
            status=self._status,
            token=self._finding,
            owner=self._find_owner(),
            sprite=self._sprite,
            sessions=self._sessions,
            probed=self._probed,
            announced=self._announced,
            first_seen=self._first_seen,
            end_asked=self._end_asked,
            doubt=self.doubt,
            last_wake_time=wake,
            now=tools.clock.monotonic(),
            now_time=tools.clock.now(),
            held=self._is_held(),
            activity=self._observe_activity(),
            idle_after=resolve_rules(self._spec.hold, tools.hold).idle_window,
            processes=self._processes,
            began=self._began,
            breaker=CLOSED if self._token is None else tools.observer.breaker(self._token, self._spec.sprite_name),
            view=self._view,
            dead=tools.leases.dead,
            gone=self._find_gone(),
        )

    def _is_held(self) -> bool:
        """Tell whether it is surely held; where no book is kept yet, as after a start, what is recorded stands."""
        hold: HoldView | None = self._tools.keeper.view(self._snapshot.uid)
        if hold is None:
            return self._status.hold is not None and is_true(self._status, ConditionType.HELD)
        return hold.held.status is ConditionStatus.TRUE

    def _observe_activity(self) -> Activity:
        """Put together what is known of the session's activity, without asking anybody."""
        session = self._status.session
        identity = _find_identity(session)
        if identity is None:
            return NOTHING_SEEN
        return observe_activity(
            identity,
            self._sessions,
            others=self._find_activity(session),
            presence=find_presence(self._spec, self._view, gone=self._find_gone()),
            hearing=_find_hearing(session),
            occasion=Occasion.BEAT,
            now=self._tools.clock.monotonic(),
            now_time=self._tools.clock.now(),
        )

    def _find_owner(self) -> str | None:
        """Ask for the declared session before adopting it; who has one already need not ask."""
        if self._status.session is not None or self._spec.session_id is None:
            return None
        listed = self._sessions.sessions if isinstance(self._sessions, Listed) else ()
        found = next((entry for entry in listed if entry.id == self._spec.session_id), None)
        return self._tools.owners.reserve(self._snapshot.uid, listed=None if found is None else found.created)

    # --- steps --------------------------------------------------------------------------------------------------------

    async def _take(self, plan: Plan) -> ReconcileResult | None:
        """Do one step; None means ask for the next."""
        asked = find_asked(self.memory)
        self.memory = plan.memory
        match plan.step:
            case LookAtSprite(since=since):
                await self._look_at_sprite(since)
            case LookAtSessions(since=since, cause=cause):
                await self._look_at_sessions(since, cause)
            case LookAtProcesses(since=since):
                self._processes = await self._tools.leftovers.look(self._place(), since)
            case PlaceFinalizer():
                self._take_in(await self._tools.writer.place_finalizer(self._snapshot))
            case RecordIntent(sprite_id=sprite_id):
                await self._record_intent(sprite_id)
            case StartSession(intent=intent):
                return await self._start_session(intent)
            case ProbeLaunch(intent=intent):
                was_paused = is_paused(self._sprite)
                self._probed = await self._tools.launcher.probe(self._place(), intent)
                self._note_wake(self._probed, was_paused=was_paused)
            case BarLaunch(intent=intent):
                return await self._bar(intent)
            case RereadObject():
                self._take_in(await self._tools.writer.reread(self._snapshot))
                self.memory = replace(self.memory, object_read=self._tools.clock.monotonic())
            case SendKill() as send:
                return await self._send_kill(send)
            case SweepGateway() as sweep:
                await self._sweep(sweep)
            case ReleaseObject(happening=happening, mark=mark):
                return await self._release(happening, mark)
            case Rest() as rest:
                return await self._rest(rest, asked)
            case ComeAgain(delay=delay):
                self._tools.queue.add_after(self._snapshot.uid, delay, self.lane)
                return ReconcileResult.WAITING
            case Leave():
                return ReconcileResult.SETTLED
            case _:
                assert_never(plan.step)
        return None

    def _place(self) -> Place:
        assert self._token is not None
        return Place(self._token, self._spec.sprite_name)

    async def _look_at_sprite(self, since: timedelta) -> None:
        look = await self._ask_sprite(since)
        if await self._has_better_token(look):
            look = await self._ask_sprite(self._tools.clock.monotonic())
        self._sprite = look

    async def _ask_sprite(self, since: timedelta) -> SpriteLook:
        place, wanted_id, observer = self._place(), self._wanted_sprite_id(), self._tools.observer
        look = await observer.look_at_sprite(place.token, place.sprite, wanted_id=wanted_id, since=since)
        if isinstance(look, SpriteAway) and self._is_substitute and not observer.has_seen(place.token, wanted_id):
            # The token of another organization sees none of our sprites, which says nothing about them.
            return replace(look, confirmed=False)
        return look

    async def _look_at_sessions(self, since: timedelta, cause: Cause) -> None:
        was_paused = is_paused(self._sprite)
        look = await self._ask_sessions(since, cause)
        self._note_wake(look, was_paused=was_paused)
        if await self._has_better_token(look):
            look = await self._ask_sessions(self._tools.clock.monotonic(), cause)
        self._sessions = look
        if isinstance(look, Listed):
            self._note_awake()

    def _note_awake(self) -> None:
        """Take in that the sprite has just answered from inside, where a listing shows it."""
        before = self._sprite
        self._recall_sprite()
        if isinstance(self._sprite, NotLooked):
            self._sprite = before

    async def _ask_sessions(self, since: timedelta, cause: Cause) -> SessionsLook:
        place = self._place()
        return await self._tools.observer.look_at_sessions(place.token, place.sprite, since=since, cause=cause)

    async def _has_better_token(self, look: SpriteLook | SessionsLook) -> bool:
        """After a 401, read the Secret once more; only another token is worth another call."""
        if not isinstance(look, LookFailed) or look.failure is not Failure.UNAUTHORIZED or self._reread_done:
            return False
        self._reread_done = True
        assert self._token is not None
        tokens, namespace, ref = self._tools.tokens, self._snapshot.namespace, self._spec.token_secret_ref
        better = await tokens.reread(namespace, ref, self._spec.sprite_name, refused=self._token)
        if better is None and self._is_substitute:
            better = tokens.find_for_kill(namespace, ref, refused=self._token)
        if better is None:
            return False
        self._token = better
        return True

    def _note_wake(self, answer: object, *, was_paused: bool) -> None:
        """Remember that this object has used a wake, where its sprite was last seen paused."""
        if was_paused:
            failure = answer.failure if isinstance(answer, LookFailed) else None
            self.memory = note_wake(self.memory, generation=self._snapshot.generation, failure=failure)

    async def _record_intent(self, sprite_id: str) -> None:
        """Write the nonce down before anything is created under it."""
        nonce = self._tools.draw_nonce()
        intent = LaunchIntent(nonce=nonce, requested_time=self._tools.clock.now(), sprite_id=sprite_id)
        session = SessionStatus(origin=Origin.LAUNCHED, sprite_id=sprite_id, launch_intent=intent)
        text = f"A session is being launched in sprite {self._spec.sprite_name}."
        await self._write(Outcome(Situation.STARTING, text, session=session, kill=None))
        self.memory = replace(self.memory, fresh_nonce=nonce, search_asked=None, absent_at=None)

    async def _start_session(self, intent: LaunchIntent) -> ReconcileResult | None:
        """Upload the script and create the session; from the create on, the intent is not fresh any more."""
        launch = self._spec.launch
        assert launch is not None
        launcher, place = self._tools.launcher, self._place()
        environment = await launcher.resolve_environment(self._snapshot.namespace, launch)
        if isinstance(environment, TokenTrouble):
            rest = rest_launch_unread if environment.passing else rest_launch_invalid
            return await self._take(rest(self._facts(), self.memory, environment.message))
        was_paused = is_paused(self._sprite)
        directory = await launcher.store_script(place, launch, environment, intent)
        self._note_wake(directory, was_paused=was_paused)
        if isinstance(directory, LookFailed):
            return await self._take_failed_launch(directory, LaunchPart.UPLOAD)
        self.memory = replace(self.memory, fresh_nonce=None)
        answer = await launcher.create(place, directory, launch, intent)
        match answer:
            case Announced():
                self._announced = answer
                self._recall_sprite()
                self._tools.metrics.count_launch(LaunchResult.LAUNCHED)
            case LaunchLost():
                self._tools.metrics.count_launch(LaunchResult.UNCLEAR)
            case LookFailed():
                self.memory = replace(self.memory, fresh_nonce=intent.nonce)
                return await self._take_failed_launch(answer, LaunchPart.CREATE)
            case _:
                assert_never(answer)
        return None

    async def _take_failed_launch(self, failed: LookFailed, part: LaunchPart) -> ReconcileResult | None:
        self._tools.metrics.count_launch(LaunchResult.REFUSED)
        if await self._has_better_token(failed):
            return None
        return await self._take(rest_launch_failed(self._facts(), self.memory, failed, part))

    async def _bar(self, intent: LaunchIntent) -> ReconcileResult | None:
        """Keep a launch from ever running; where it was faster, the search for it begins anew."""
        was_paused = is_paused(self._sprite)
        answer = await self._tools.launcher.bar(self._place(), intent)
        self._note_wake(answer, was_paused=was_paused)
        if isinstance(answer, LookFailed):
            return await self._take(rest_on_failure(self._facts(), self.memory, answer))
        if answer:
            self.memory = replace(self.memory, barred_nonce=intent.nonce)
        else:
            self.memory = replace(self.memory, search_asked=None, absent_at=None)
        return None

    async def _send_kill(self, send: SendKill) -> ReconcileResult | None:
        """Send SIGKILL once; what came of it is the plan's to judge."""
        tools, place = self._tools, self._place()
        progress = self.memory.kill
        assert progress is not None
        answer = await self._request_kill(place, send)
        if answer is None:
            return None
        if isinstance(answer, LookFailed):
            return await self._take_failed_kill(answer, progress)
        # What waits for its end in the same sprite goes next: it shares the lists before and after the kill.
        tools.queue.hasten(tools.registry.by_sprite(place.sprite), at_most=HASTENED)
        now, now_time = tools.clock.monotonic(), tools.clock.now()
        self.memory = replace(self.memory, kill=note_settled(progress, answer, now=now, now_time=now_time))
        return None

    async def _request_kill(self, place: Place, send: SendKill) -> KillAnswer | LookFailed | None:
        """Send SIGKILL when there is a place for it; None where the id may name another session by then."""
        tools, decided = self._tools, self._tools.clock.monotonic()
        async with tools.observer.kill_slot(place.token, place.sprite):
            if not await self._is_still_identified(send.identity, decided):
                return None
            calling = tools.observer.calling(place.token, place.sprite, priority=Priority.KILL, cause=Cause.KILL)
            try:
                async with calling:
                    answer = await tools.client.kill_session(
                        place.token, place.sprite, send.identity.session_id, tenure=tools.tenure, cause=Cause.KILL
                    )
            except SpritesError as error:
                return LookFailed(error.failure, error.message, tools.clock.monotonic(), error.retry_after)
        self._weigh_kill_answer(place, send.identity, answer)
        return answer

    async def _is_still_identified(self, identity: Identity, decided: timedelta) -> bool:
        """Ask once more who has the id, where the wait for a place made the list old that the kill was decided by."""
        now = self._tools.clock.monotonic()
        if now - decided < SLOT_WAIT:
            return True
        if isinstance(self._sessions, Listed) and now - self._sessions.started <= IDENTITY_AGE:
            return True
        self._sessions = await self._ask_sessions(now, Cause.IDENTIFY)
        if not isinstance(self._sessions, Listed):
            return False
        return find_session(identity, self._sessions.sessions) is not KillPresence.REUSED

    def _weigh_kill_answer(self, place: Place, identity: Identity, answer: KillAnswer) -> None:
        """Count a 404 for a session that the list has just shown; for any other it was to be expected."""
        known = self._tools.observer.recall_sessions(place.token, place.sprite)
        if answer is not KillAnswer.NOT_FOUND or not isinstance(known, Listed):
            return
        if find_session(identity, known.sessions) is KillPresence.LISTED:
            self._tools.observer.note_refusal(place.token, place.sprite)

    async def _take_failed_kill(self, failed: LookFailed, progress: KillProgress) -> ReconcileResult | None:
        """Repeat a kill at once with a better token, later where it was turned away, and soon in any other case."""
        if await self._has_better_token(failed):
            return None
        step: KillStep
        if failed.failure in _AT_THE_DOOR:
            progress, step = note_barred(progress, failed)
        else:
            progress, step = note_refused(progress, failed.message, now=self._tools.clock.monotonic())
        self.memory = replace(self.memory, kill=progress)
        if isinstance(step, Unproven):
            self._tools.metrics.count_kill(KillVerdict.UNPROVEN)
            return await self._take(rest_unproven(self._facts(), self.memory, self._trigger(), step))
        assert isinstance(step, ComeAgain)
        return await self._take(Plan(step, self.memory))

    def _trigger(self) -> KillTrigger:
        if self._snapshot.deleted is not None:
            return KillTrigger.DELETED
        return KillTrigger.TERMINATED if self._spec.terminated else KillTrigger.REAPED

    # --- endings ------------------------------------------------------------------------------------------------------

    async def _sweep(self, sweep: SweepGateway) -> None:
        """Clear what a dead gateway left."""
        self._take_in(await self._tools.writer.sweep(self._snapshot, sweep.patch))
        log.info(
            "What a dead gateway left was cleared.",
            extra={"object": label(self._snapshot), "incarnation": sweep.incarnation},
        )

    async def _release(self, happening: Happening | None, mark: Mark | None) -> ReconcileResult:
        """Take the finalizer off and tell what happened; what its session left behind is searched for later."""
        await self._tools.writer.remove_finalizer(self._snapshot)
        if happening is not None:
            self._tell(happening)
            self._count_end(happening, find_asked(self.memory))
        if mark is not None:
            self._tools.leftovers.owe(self._place(), Owed(refer_to(self._snapshot), mark))
        return ReconcileResult.SETTLED

    async def _rest(self, rest: Rest, asked: timedelta | None) -> ReconcileResult | None:
        """
        Write the outcome if it says anything new, tell about it, and plan the next visit.

        Args:
            rest: What the plan found.
            asked: Since when a kill was going on, monotonic, if one was.
        """
        for tiding in rest.tidings:
            self._tell(tiding)
        outcome, before = rest.outcome, self._status
        self.doubt_settled = self.doubt_settled or outcome.doubt_settled
        is_written = await self._write(outcome)
        self.memory = forget_proven(self.memory, self._status.session)
        if is_written:
            for happening in rest.happenings:
                self._tell(happening)
                self._count_end(happening, asked)
            if self._has_session_moved(before):
                self._recall()
                return None
        return self._plan_next(rest)

    def _has_session_moved(self, before: TerminalStatus) -> bool:
        """A session that was just adopted, launched or lost may have to be ended, or followed, at once."""
        session, former = self._status.session, before.session
        if session is None:
            return False
        ended_now = session.ended is not None and (former is None or former.ended is None)
        begun_now = session.id is not None and (former is None or former.id != session.id)
        return ended_now or begun_now

    def _plan_next(self, rest: Rest) -> ReconcileResult:
        tools, uid = self._tools, self._snapshot.uid
        if rest.retry:
            tools.queue.fail(uid)
            return ReconcileResult.WAITING
        tools.queue.forget(uid)
        readiness = judge_readiness(rest.outcome.situation)
        if rest.after is not None:
            tools.queue.add_after(uid, rest.after, self.lane)
        else:
            tools.queue.add_after(uid, tools.full_check_interval * (0.5 + tools.luck.random() / 2), self.lane)
        if readiness.stalled:
            return ReconcileResult.STALLED
        return ReconcileResult.WAITING if readiness.reconciling else ReconcileResult.SETTLED

    async def _write(self, outcome: Outcome) -> bool:
        """Write the status that follows from an outcome, if it differs in anything that matters."""
        status = build_status(
            self._status,
            outcome,
            spec=self._spec,
            generation=self._snapshot.generation,
            sprite=self._sprite,
            requested_at=self._requested_at,
            now=self._tools.clock.now(),
            hold=self._tools.keeper.view(self._snapshot.uid),
            view=self._view,
            gone=self._find_gone(),
        )
        status = self._tools.writer.fit(status)
        if not is_worth_writing(self._status, status, stored=self._status.observed_generation >= 0):
            return False
        self._take_in(await self._tools.writer.write_status(self._snapshot, status))
        return True

    def _tell(self, happening: Happening) -> None:
        """Log the change of state, and post an Event where it is worth one."""
        snapshot = self._snapshot
        level = logging.WARNING if happening.warning else logging.INFO
        log.log(level, happening.note, extra={"object": label(snapshot), "reason": happening.reason.value})
        if not happening.event:
            return
        kind = EventType.WARNING if happening.warning else EventType.NORMAL
        ref = refer_to(snapshot)
        self._tools.events.record(ref, type=kind, reason=happening.reason, action="Reconcile", note=happening.note)

    def _count_end(self, happening: Happening, asked: timedelta | None) -> None:
        """Count what ended or began."""
        metrics = self._tools.metrics
        if happening.reason is Reason.ADOPTED:
            metrics.adoptions.inc()
        if happening.evidence is not None:
            proof = None if asked is None else self._tools.clock.monotonic() - asked
            metrics.count_kill(KillVerdict(happening.evidence.value), proof)
        if happening.leftovers is not None:
            metrics.count_leftovers(LeftoversFinding(happening.leftovers.value))


def _without_expiry(hold: HoldStatus | None) -> HoldStatus | None:
    """What was recorded of a hold, without the part that only says how long it was good for."""
    return None if hold is None else hold.model_copy(update={"expiry_time": None})


def _find_hearing(session: SessionStatus | None) -> Hearing:
    return Hearing.FROM_START if session is not None and session.origin is Origin.LAUNCHED else Hearing.SILENT


def _find_identity(session: SessionStatus | None) -> Identity | None:
    if session is None or session.id is None:
        return None
    return Identity(session.sprite_id or "", session.id, session.created)


def refer_to(snapshot: Snapshot) -> ObjectRef:
    """Name an object for its Events; it may be gone by then."""
    return ObjectRef(namespace=snapshot.namespace, name=snapshot.name, uid=snapshot.uid)


def label(snapshot: Snapshot) -> str:
    """Name an object for people."""
    return f"{snapshot.namespace}/{snapshot.name}"

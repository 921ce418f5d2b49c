"""
The desk behind the doors: whoever was let in gets to a terminal, and speaks if the fence says so.

Problem: doors, fence, streams and Lease each keep their own promise, and each knows nothing of the others. Promise:
here they meet and nothing is decided. Sockets come and go by tasks of the doors; what the fence has to do for them,
which may take longer, runs in tasks of the desk, so that no socket's end cuts off the clearing of its lock. What the
watch tells reaches the fence, the room and the broom in the order in which it came.

Source: gateway.md whole; docs/fence.md and docs/access.md tell it to a stranger.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, Final, Protocol, assert_never

from aiohttp import web

from controller.api.model import render_moment
from controller.api.session import Identity, SpriteState
from controller.api.terminal import TerminalSpec
from controller.clock import ElapsedClock
from controller.engine.tokens import TokenBook
from controller.gateway.chair import Chair, Former
from controller.gateway.fence_calls import FenceCalls, FenceKube
from controller.gateway.incarnation import DrawName, Holding, Incarnations, LeaseKube, Life
from controller.gateway.pauses import Pauses
from controller.gateway.presence import Presences
from controller.gateway.room import Room
from controller.gateway.standing import Presence, Terminal
from controller.gateway.stream import (
    BothDelays,
    Client,
    ClientTooSlow,
    Dialect,
    Hub,
    InputLost,
    InputRefused,
    News,
    Recorded,
    Resize,
    Role,
    SessionExited,
    SessionMissing,
    SessionUnreachable,
    StrangerAnswered,
    StreamSettings,
    TypingOpened,
    Word,
    build_socket,
)
from controller.gateway.sweeper import LeasesKube, Sweeper
from controller.gateway.terminals import AttachRequest, Leave, Renewal, TokenWanted
from controller.gateway.terminals import Ending as DoorEnding
from controller.gateway.way import TokenWay
from controller.gateway.wishes import Door, Mode, Target
from controller.kube.watching import Change, Relisted, Removed, Seen, Watch, WatchingKube
from controller.plan.fence import (
    Doubted,
    Event,
    Finished,
    IncarnationEnded,
    Left,
    ShutDown,
    TenureBegan,
    TenureEnded,
    Told,
    is_held,
)
from controller.plan.fence_closing import Ending
from controller.plan.fence_ids import make_incarnation
from controller.plan.fence_objects import ExitEntry, view_object
from controller.plan.fence_sweep import find_open_ids, may_delete_lease
from controller.sprites.client import SpritesClient

log: Final = logging.getLogger(__name__)

TICK: Final = timedelta(seconds=5)
"""How often activity and bytes are looked at."""


class DeskMetrics(Protocol):
    """What the desk counts: `controller.gateway.metrics.GatewayMetrics`."""

    def count_ending(self, ending: str) -> None:
        """Count a socket that ended."""

    def count_speaking(self, former: str, took: timedelta) -> None:
        """Count somebody who came to speak, and how long it took."""

    def count_undrained(self, unconfirmed_bytes: int) -> None:
        """Count a lock that was let go although bytes were on the way."""

    def count_bytes(self, *, sent: int, received: int) -> None:
        """Count bytes to and from people."""

    def count_refused_input(self, cause: str) -> None:
        """Count a frame of input that was not let through."""

    @property
    def delays(self) -> BothDelays:
        """Where it is counted how long frames stay here."""

    def observe_watch(self, measure: Callable[[], timedelta]) -> None:
        """Name the function that tells how long the watch has been silent."""


@dataclass(frozen=True, slots=True)
class Outside:
    """
    What the desk reaches.

    Args:
        kube: The API server, for the fence's calls.
        leases: The same by connections of its own: no other call may delay a renewal.
        watch: The same, for the watch.
        broom: The same, for looking at others' Leases.
        sprites: The Sprites API.
        tokens: All tokens in use.
    """

    kube: FenceKube
    leases: LeaseKube
    watch: WatchingKube
    broom: LeasesKube
    sprites: SpritesClient
    tokens: TokenBook


class Desk:
    """
    The terminals of one process: `controller.gateway.terminals.Terminals`.

    Args:
        outside: What is reached.
        lease_namespace: Where the Leases of gateways lie.
        namespaces: Whose objects are served; None is all.
        streams: Bounds of each terminal and socket.
        metrics: What is counted.
        clock: One that runs on in suspend.
        luck: For jitter.
        draw: Draws names of incarnations and sockets.
    """

    def __init__(
        self,
        outside: Outside,
        *,
        lease_namespace: str,
        namespaces: Sequence[str] | None,
        streams: StreamSettings,
        metrics: DeskMetrics,
        clock: ElapsedClock,
        luck: Random,
        draw: DrawName,
    ) -> None:
        self._outside = outside
        self._streams = streams
        self._metrics = metrics
        self._clock = clock
        self._draw = draw
        self._calls = FenceCalls(outside.kube, lease_namespace)
        self._incarnations = Incarnations(
            outside.leases,
            lease_namespace,
            namespaces=namespaces,
            house=self,
            draw=lambda: make_incarnation(draw(), lease_namespace=lease_namespace),
            clock=clock,
        )
        self._sweeper = Sweeper(self._calls, outside.broom, lease_namespace, house=self, luck=luck, clock=clock)
        self._presences = Presences(self._calls, self.find_life, self.spawn, clock)
        self._watch = Watch(outside.watch, namespaces, self._take_change, clock)
        metrics.observe_watch(lambda: self._watch.silence)
        self._pauses = Pauses(clock)
        self._keys = count(1)
        self._chairs: dict[str, Chair] = {}
        self._rooms: dict[str, Room] = {}
        self._group: asyncio.TaskGroup | None = None
        self._leading: asyncio.Task[None] | None = None
        self._is_leaving = False
        self._emptied = asyncio.Event()

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run everything, until cancelled or something fails."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._leading = group.create_task(self._incarnations.run(), name="incarnations")
            group.create_task(self._watch.run(), name="watch")
            group.create_task(self._sweeper.run(), name="sweeper")
            group.create_task(self._tick(), name="tick")

    async def leave(self, *, within: timedelta) -> None:
        """
        Let go of everything in order: sockets, locks, presence, and the Lease last.

        What cannot be let go in time stands until its Lease runs out.
        """
        self._is_leaving = True
        self._feed_all(ShutDown())
        for room in list(self._rooms.values()):
            room.hub.end_all(Ending.RESTARTING)
        with suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                while self._chairs:
                    self._emptied.clear()
                    await self._emptied.wait()
                await self._presences.withdraw()
                locks = await self._incarnations.count_locks()
                seats = [chair.seat for chair in self._chairs.values()]
                if locks is not None and may_delete_lease(seats, locks_listed=locks):
                    if self._leading is not None:
                        self._leading.cancel()
                    await self._incarnations.release()
                    log.info("The Lease was given back.")
                    return
        log.warning("Not everything could be let go: the Lease is left to run out.", extra={"seats": len(self._chairs)})

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that outlives the socket that it is for; what comes once the desk has ended is dropped."""
        if self._group is None:
            raise RuntimeError("The desk does not run.")
        try:
            self._group.create_task(work)
        except RuntimeError:
            # The group has ended, and the last sockets end after it: nothing can be let go, the Lease runs out.
            work.close()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK)
            for room in self._rooms.values():
                for client in room.clients:
                    self._count_bytes(client)
                if (moment := room.hub.activity) is not None:
                    self._presences.note_output(room.target, room.uid, moment)
            self._presences.drop_quiet()

    # --- What the doors ask -------------------------------------------------------------------------------------------

    def find_unready(self) -> str | None:
        """Say why nothing can be attached now; None when it can."""
        life = self._incarnations.life
        if self._is_leaving:
            return "This gateway ends."
        if life is None:
            return "This gateway has no Lease yet."
        if not life.is_in_tenure:
            return "This gateway could not renew its Lease."
        return None if self._watch.listed.is_set() else "This gateway has not seen every terminal yet."

    def look(self, terminal: Terminal) -> Presence:
        """Tell what is known of an object."""
        room = self._rooms.get(terminal.uid)
        named = view_object(terminal.raw).active_socket_id
        return Presence(
            held=is_held(named, frozenset(self._sweeper.dead)),
            streaming=room is not None and room.hub.is_streaming,
        )

    async def find_state(self, terminal: Terminal) -> SpriteState | None:
        """Ask the platform how an object's sprite is, without waking it."""
        way = self._build_way_to(terminal.raw["metadata"]["namespace"], lambda: terminal.spec)
        return await self._pauses.find(terminal.uid, way.find_state)

    def build_socket(self, protocols: Sequence[str]) -> web.WebSocketResponse:
        """Make the response for an upgrade."""
        return build_socket(self._streams, protocols=protocols)

    async def note_activity(self, terminal: Terminal) -> None:
        """Note that a terminal is at work."""
        await self._presences.note_activity(_find_target(terminal.raw), terminal.uid)

    async def attach(self, request: AttachRequest, socket: web.WebSocketResponse) -> None:
        """Carry one socket to its end."""
        luck = self._draw()
        client = Client(
            socket,
            request.abort,
            socket_id=luck,
            role=Role.VIEW if request.mode is Mode.VIEW else Role.TYPE,
            dialect=Dialect.OURS if request.door is Door.OWN else Dialect.VENDOR,
            settings=self._streams,
            size=_find_size(request),
            on_auth=lambda text: self.spawn(_renew(client, request.leave, text)),
            delays=self._metrics.delays,
        )
        room = self._open_room(request)
        await room.hub.wait_until_open()
        room.clients.add(client)
        try:
            if client.role is Role.VIEW:
                ending = await self._view(request, room, client)
            else:
                ending = await self._speak(request, room, client, luck)
        finally:
            room.clients.discard(client)
            self._count_bytes(client)
            self._tidy(room.uid)
        self._metrics.count_ending(ending.value)

    async def _view(self, request: AttachRequest, room: Room, client: Client) -> Ending:
        room.viewers.add(client)
        self._presences.note_viewers(room.target, room.uid, len(room.viewers))
        try:
            return await self._serve(request, room, client, client.end)
        finally:
            room.viewers.discard(client)
            self._presences.note_viewers(room.target, room.uid, len(room.viewers))

    async def _speak(self, request: AttachRequest, room: Room, client: Client, luck: str) -> Ending:
        key = next(self._keys)
        chair = self._take_chair(room.target, room.uid)
        if chair is None:
            return await self._serve(request, room, client, client.end, at_once=Ending.LEASE_LOST)

        def end(ending: Ending) -> None:
            chair.feed(Finished(key, ending))
            # Where the fence does not know it any more, it has been told already, or the incarnation has ended.
            client.end(ending)

        if request.mode is Mode.TAKEOVER:
            _tell_takeover(request, room, client)
        chair.arrive(
            key,
            client,
            room.hub,
            view_object(request.terminal.raw),
            luck=luck,
            takeover=request.mode is Mode.TAKEOVER,
            dead=frozenset(self._sweeper.dead),
        )
        try:
            return await self._serve(request, room, client, end)
        finally:
            chair.feed(Left(key))

    async def _serve(
        self,
        request: AttachRequest,
        room: Room,
        client: Client,
        end: Callable[[Ending], None],
        *,
        at_once: Ending | None = None,
    ) -> Ending:
        """Serve a socket to its end, and heed its leave meanwhile."""
        if at_once is not None:
            client.end(at_once)
        async with asyncio.TaskGroup() as group:
            beside = [
                group.create_task(_heed(request.leave, client, end)),
                group.create_task(room.wait_for_session(lambda: end(Ending.NOT_READY))),
                group.create_task(self._tell_trouble(room, client)),
            ]
            try:
                return await room.hub.join(client)
            finally:
                for task in beside:
                    task.cancel()

    async def _tell_trouble(self, room: Room, client: Client) -> None:
        """Say it where there is no token for the sprite: nothing will come then."""
        trouble = await room.way.find_trouble()
        if trouble is not None:
            client.end(Ending.NOT_READY, trouble)

    # --- Rooms and chairs ---------------------------------------------------------------------------------------------

    def _open_room(self, request: AttachRequest) -> Room:
        room = self._rooms.get(request.uid)
        if room is None:
            terminal = request.terminal
            room = Room(
                request.target,
                request.uid,
                terminal.spec,
                terminal.status,
                build_way=self._build_way,
                build_hub=self._build_hub,
                spawn=self.spawn,
            )
            self._rooms[request.uid] = room
        return room

    def _build_way(self, room: Room) -> TokenWay:
        return self._build_way_to(room.target.namespace, lambda: room.spec)

    def _build_way_to(self, namespace: str, find_spec: Callable[[], TerminalSpec]) -> TokenWay:
        return TokenWay(self._outside.sprites, self._outside.tokens, namespace, find_spec, self._clock)

    def _build_hub(self, room: Room, recorded: Recorded | None) -> Hub:
        return Hub(
            recorded,
            room.way,
            may_type=lambda client: self._may_type(room.uid, client),
            wait_for_word=lambda client: self._wait_for_word(room.uid, client),
            on_news=lambda news: self._take_news(room, news),
            clock=self._clock,
            settings=self._streams,
        )

    def _may_type(self, uid: str, client: Client) -> bool:
        chair = self._chairs.get(uid)
        return chair is not None and chair.may_type(client)

    async def _wait_for_word(self, uid: str, client: Client) -> None:
        chair = self._chairs.get(uid)
        if chair is not None:
            await chair.wait_for_word(client)

    def _take_news(self, room: Room, news: News) -> None:
        where = {"namespace": room.target.namespace, "terminal": room.target.name}
        match news:
            case InputLost(socket_id=socket_id, unconfirmed_bytes=unconfirmed):
                chair = self._chairs.get(room.uid)
                client = next((one for one in room.clients if one.socket_id == socket_id), None)
                if chair is not None and client is not None:
                    chair.note_broken(client, unconfirmed)
            case InputRefused(cause=cause):
                self._metrics.count_refused_input(cause)
            case StrangerAnswered():
                log.warning("Another session answered in place of the recorded one.", extra=where)
            case SessionUnreachable():
                log.warning("The session cannot be reached.", extra=where)
            case SessionExited(identity=identity, exit_code=code):
                log.info("The process of a terminal has exited.", extra={**where, "exit_code": code})
                self._presences.note_exit(room.target, room.uid, _tell_exit(identity, code))
            case SessionMissing() | ClientTooSlow() | TypingOpened():
                log.debug("News of a terminal.", extra={**where, "news": type(news).__name__})
            case _:
                assert_never(news)

    def _take_chair(self, target: Target, uid: str) -> Chair | None:
        life = self._incarnations.life
        if life is None:
            return None
        chair = self._chairs.get(uid)
        if chair is None or chair.life is not life:
            chair = Chair(target, uid, life, calls=self._calls, house=self, clock=self._clock)
            self._chairs[uid] = chair
            if self._is_leaving:
                chair.feed(ShutDown())
        return chair

    def _tidy(self, uid: str) -> None:
        """Close a room in which nobody is left, and nothing under way."""
        room = self._rooms.get(uid)
        if room is not None and not room.clients and uid not in self._chairs and room.hub.is_idle:
            del self._rooms[uid]
            room.hub.close(Ending.RESTARTING)

    def _count_bytes(self, client: Client) -> None:
        sent, received = client.take_counts()
        self._metrics.count_bytes(sent=sent, received=received)

    # --- What the chairs ask ------------------------------------------------------------------------------------------

    def note_spoke(self, former: Former, took: timedelta) -> None:
        """Somebody speaks for the first time."""
        self._metrics.count_speaking(former.value, took)

    def note_undrained(self, unconfirmed_bytes: int) -> None:
        """A lock was let go although bytes were on the way."""
        self._metrics.count_undrained(unconfirmed_bytes)
        log.warning("A lock was let go with input on its way.", extra={"unconfirmed_bytes": unconfirmed_bytes})

    def note_proven(self, incarnation: str) -> None:
        """An incarnation was proven out."""
        self._sweeper.dead.add(incarnation)

    def note_empty(self, chair: Chair) -> None:
        """Nobody is left in a chair."""
        uid = chair.seat.uid
        if self._chairs.get(uid) is chair:
            del self._chairs[uid]
            self._emptied.set()
            self._tidy(uid)

    def end_incarnation(self) -> None:
        """
        The incarnation is over: everybody who speaks is cut off and told, and its seats are gone.

        Both a seat that cannot clear its lock and a Lease that is lost lead here.
        """
        self._incarnations.end()
        self._feed_all(IncarnationEnded())

    # --- What the incarnations tell -----------------------------------------------------------------------------------

    def find_life(self) -> Life | None:
        """Give the incarnation that runs."""
        return self._incarnations.life

    def find_held(self) -> Mapping[str, Holding]:
        """Give the objects for which a socket of ours speaks."""
        return {
            uid: Holding(chair.target, chair.seat.view)
            for uid, chair in self._chairs.items()
            if chair.speaks and chair.seat.view is not None
        }

    def find_open_ids(self, uid: str) -> frozenset[str]:
        """Give the ids of our sockets for an object."""
        chair = self._chairs.get(uid)
        return frozenset() if chair is None else find_open_ids(chair.seat)

    def doubt(self, uid: str) -> None:
        """More may be known of an object than we know."""
        if (chair := self._chairs.get(uid)) is not None:
            chair.feed(Doubted())

    def tell(self, raw: Mapping[str, Any]) -> None:
        """Take in an object that was read."""
        self._take_object(raw)

    def sweep(self, target: Target, uid: str) -> None:
        """Read an object that bears a lock of ours, and clear what is left over."""
        self._sweeper.sweep(target, uid)

    def begin_tenure(self) -> None:
        """A tenure began."""
        life = self._incarnations.life
        if life is not None:
            self._feed_all(TenureBegan(life.term.number))

    def end_tenure(self) -> None:
        """The tenure has ended."""
        self._feed_all(TenureEnded())

    def _feed_all(self, event: Event) -> None:
        for chair in list(self._chairs.values()):
            chair.feed(event)

    # --- What the watch tells -----------------------------------------------------------------------------------------

    def note_read(self, raw: Mapping[str, Any]) -> None:
        """Take in an object that a call of ours gave."""
        self._take_object(raw)

    def _take_change(self, change: Change) -> None:
        match change:
            case Seen(raw=raw):
                self._take_object(raw)
            case Removed(raw=raw):
                self._take_gone(raw["metadata"]["uid"])
            case Relisted(namespace=namespace, uids=uids):
                for uid in {*self._chairs, *self._rooms} - uids:
                    target = self._find_target_of(uid)
                    if namespace is None or target.namespace == namespace:
                        self._take_gone(uid)
            case _:
                assert_never(change)

    def _find_target_of(self, uid: str) -> Target:
        return self._rooms[uid].target if uid in self._rooms else self._chairs[uid].target

    def _take_object(self, raw: Mapping[str, Any]) -> None:
        view = view_object(raw)
        if (chair := self._chairs.get(view.uid)) is not None:
            chair.feed(Told(view))
        if (room := self._rooms.get(view.uid)) is not None:
            room.note(raw)
            self._presences.note_session(view.uid, room.session)
        self._sweeper.note(_find_target(raw), view)

    def _take_gone(self, uid: str) -> None:
        """An object was removed: who speaks for it is asked about once more, and who looks on is told."""
        self._sweeper.note_gone(uid)
        self._presences.note_gone(uid)
        if (chair := self._chairs.get(uid)) is not None:
            chair.feed(Doubted())
        if (room := self._rooms.get(uid)) is not None:
            room.end_viewers(Ending.DELETED)


def _tell_takeover(request: AttachRequest, room: Room, taker: Client) -> None:
    """Say who comes to whoever types through this gateway; another one knows a socket by its id, which names nobody."""
    for client in room.clients:
        if client is not taker and client.role is Role.TYPE:
            client.tell(Word.TAKEOVER, f"{request.person.name} takes this terminal over.")


async def _heed(leave: Leave, client: Client, end: Callable[[Ending], None]) -> None:
    """Pass on what the doors have to say about a socket's leave."""
    while True:
        notice = await leave.next_notice()
        match notice:
            case TokenWanted(within=within):
                client.tell(
                    Word.AUTHENTICATE,
                    f"Your token has run out. Send a fresh one of the same user within {within.total_seconds():.0f} s.",
                )
            case DoorEnding() as ending:
                end(ending.word)
                return
            case _:
                assert_never(notice)


async def _renew(client: Client, leave: Leave, text: str) -> None:
    """Take a fresh token, and say what is wrong with one that is not taken."""
    match await leave.renew(text):
        case Renewal.RENEWED:
            return
        case Renewal.BAD_TOKEN:
            client.tell(Word.AUTHENTICATE, "The API server does not take this token. Send another.")
        case Renewal.OTHER_PERSON:
            client.tell(Word.AUTHENTICATE, "This token is somebody else's. Send one of the same user.")
        case Renewal.UNDECIDED:
            client.tell(Word.AUTHENTICATE, "The API server did not say whose token this is. Send it again.")


def _tell_exit(identity: Identity, code: int) -> ExitEntry:
    created = None if identity.created is None else render_moment(identity.created)
    return ExitEntry(identity.session_id, identity.sprite_id, created, code)


def _find_target(raw: Mapping[str, Any]) -> Target:
    return Target(raw["metadata"]["namespace"], raw["metadata"]["name"])


def _find_size(request: AttachRequest) -> Resize | None:
    if request.columns is None or request.rows is None:
        return None
    return Resize(request.columns, request.rows)

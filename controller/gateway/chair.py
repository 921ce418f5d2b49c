"""
One terminal's seat in one incarnation: events go in, actions are carried out, and nothing is decided here.

Problem: a decision that is right on paper is wrong if two of its actions change places, or if a call is answered twice
or never. Promise: events are taken one after the other, actions are begun in their order, each call is answered by
exactly one event, and what a speaker left running ends with it.

Source: the contract in `controller.plan.fence`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, assert_never

from controller.clock import ElapsedClock
from controller.gateway.fence_calls import CallFailed, FenceCalls
from controller.gateway.incarnation import Life
from controller.gateway.stream import Client, Hub
from controller.gateway.wishes import Target
from controller.plan.fence import (
    AbortUpstream,
    Accepted,
    Action,
    Answer,
    Arrived,
    BreakLease,
    ClaimAnswered,
    ClearAnswered,
    CloseClient,
    CountUndrained,
    DrainUpstream,
    EndIncarnation,
    Event,
    Finished,
    Forget,
    Hold,
    LeaseReadFailed,
    LeaseWasBroken,
    LeaseWasRead,
    LetSpeak,
    LockAnswered,
    ObjectRead,
    Pass,
    PauseInput,
    Rang,
    ReadFailed,
    ReadLease,
    ReadObject,
    SendClaim,
    SendClear,
    SendLock,
    SendWithdrawal,
    SetTimer,
    Speaking,
    TimerName,
    UpstreamClosed,
    Verdict,
    WithdrawAnswered,
    find_speaker,
    judge_input,
    step,
    take_seat,
)
from controller.plan.fence_ids import find_incarnation
from controller.plan.fence_objects import LeaseView, ObjectView, view_object
from controller.plan.fence_patches import JsonPatch

JsonObject = dict[str, Any]


class Former(StrEnum):
    """Who spoke before somebody came to speak. A closed list: it is a label of our metrics."""

    NOBODY = "Nobody"
    SAME_REPLICA = "SameReplica"
    OTHER_REPLICA = "OtherReplica"
    """Of this product, or a bridge that is not ours."""
    DEAD_REPLICA = "DeadReplica"
    """Its death was proven first."""


@dataclass(eq=False, slots=True)
class Guest:
    """
    A person's socket that wants to type, with what it is reached by.

    Args:
        client: The socket.
        hub: The streams that it has joined.
        came: When it came.
        former: Who spoke then.
        speaks: It was let speak once.
        asked: Whose Lease it asked for, since that one did not let go at once.
    """

    client: Client
    hub: Hub
    came: timedelta
    former: Former
    speaks: bool = False
    asked: str | None = None


class ChairHouse(Protocol):
    """Whoever has the chairs."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that outlives the socket that it is for."""

    def note_read(self, raw: JsonObject) -> None:
        """Take in an object that was read or written."""

    def note_spoke(self, former: Former, took: timedelta) -> None:
        """Somebody speaks for the first time."""

    def note_undrained(self, unconfirmed_bytes: int) -> None:
        """A lock was let go although bytes were on the way."""

    def note_proven(self, incarnation: str) -> None:
        """An incarnation was proven out."""

    def note_empty(self, chair: "Chair") -> None:
        """Nobody is left in a chair."""

    def end_incarnation(self) -> None:
        """The incarnation has to end."""


class Chair:
    """
    One seat.

    Args:
        target: The object's place.
        uid: Which object of that name.
        life: The incarnation.
        calls: Sends what is asked for.
        house: Whoever has the chairs.
        clock: That of the tenures.
    """

    def __init__(
        self, target: Target, uid: str, life: Life, *, calls: FenceCalls, house: ChairHouse, clock: ElapsedClock
    ) -> None:
        self.target = target
        self.life = life
        self.seat = take_seat(uid, life.incarnation, tenure=life.term.number if life.is_in_tenure else None)
        self._calls = calls
        self._house = house
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._guests: dict[int, Guest] = {}
        self._keys: dict[Client, int] = {}
        self._timers: dict[tuple[int, TimerName], asyncio.TimerHandle] = {}
        self._cut: set[int] = set()
        self._events: deque[Event] = deque()
        self._is_feeding = False
        self._changed = asyncio.Event()

    # --- What others ask ----------------------------------------------------------------------------------------------

    @property
    def speaks(self) -> bool:
        """Whether a socket speaks here, or is being asked whether it still may."""
        return any(speaker.upstream or isinstance(speaker.phase, Speaking) for speaker in self.seat.speakers)

    def may_type(self, client: Client) -> bool:
        """Tell whether a frame of this socket passes, at this very moment."""
        return isinstance(self._judge(client), Pass)

    async def wait_for_word(self, client: Client) -> None:
        """Wait while nobody knows whether a socket may still type: what it types next is kept, not refused."""
        while isinstance(self._judge(client), Hold):
            await self._changed.wait()

    def find_key(self, client: Client) -> int | None:
        """Give the handle of a socket, while the seat knows it."""
        return self._keys.get(client)

    def arrive(
        self, key: int, client: Client, hub: Hub, view: ObjectView, *, luck: str, takeover: bool, dead: frozenset[str]
    ) -> None:
        """
        Let a socket ask to speak.

        Why it ends is known here as soon as it is decided, by whomever: who was told no must not come to speak, and
        their input stops, while their socket is still being closed.
        """
        client.on_end = lambda ending: self.feed(Finished(key, ending))
        self._guests[key] = Guest(client, hub, self._clock.elapsed(), self._find_former(view, dead))
        self._keys[client] = key
        self.feed(Arrived(key, luck, view, takeover=takeover, dead=dead))

    def feed(self, event: Event) -> None:
        """Take an event in, and carry out what follows."""
        self._events.append(event)
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                self.seat, actions = step(self.seat, self._events.popleft(), now=self._clock.elapsed())
                for action in actions:
                    self._do(action)
        finally:
            self._is_feeding = False
        self._changed.set()
        self._changed = asyncio.Event()
        if not self.seat.speakers:
            self._house.note_empty(self)

    def note_broken(self, client: Client, unconfirmed_bytes: int) -> None:
        """The upstream of a socket that speaks broke by itself."""
        key = self._keys.get(client)
        speaker = None if key is None else find_speaker(self.seat, key)
        if speaker is not None and isinstance(speaker.phase, Speaking):
            self.feed(UpstreamClosed(speaker.key, unconfirmed_bytes))

    def _judge(self, client: Client) -> Verdict | None:
        key = self._keys.get(client)
        if key is None:
            return None
        return judge_input(self.seat, key, term=self.life.term, now=self._clock.elapsed())

    def _find_former(self, view: ObjectView, dead: frozenset[str]) -> Former:
        if view.lock is not None:
            named = view.lock.incarnation
        else:
            named = find_incarnation(view.active_socket_id) or view.active_socket_id or ""
        if not named or named in dead:
            return Former.NOBODY
        return Former.SAME_REPLICA if named == self.life.incarnation else Former.OTHER_REPLICA

    # --- Actions ------------------------------------------------------------------------------------------------------

    def _do(self, action: Action) -> None:
        match action:
            case ReadObject(key=key):
                self._house.spawn(self._read(key))
            case SendClaim(key=key, patch=patch):
                self._house.spawn(self._write(key, ClaimAnswered, patch, status=False))
            case SendLock(key=key, former=former):
                if former is not None and (guest := self._guests.get(key)) is not None:
                    guest.former = Former.DEAD_REPLICA
                since = self._clock.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
                self._house.spawn(self._write(key, LockAnswered, action.build(since=since), status=True))
            case SendClear(key=key, patch=patch):
                self._house.spawn(self._write(key, ClearAnswered, patch, status=True))
            case SendWithdrawal(key=key, patch=patch):
                self._house.spawn(self._write(key, WithdrawAnswered, patch, status=False))
            case ReadLease(key=key, incarnation=incarnation):
                if (guest := self._guests.get(key)) is not None:
                    guest.asked = incarnation
                self._house.spawn(self._read_lease(key, incarnation))
            case BreakLease(key=key, incarnation=incarnation, lease=lease):
                self._house.spawn(self._break_lease(key, incarnation, lease))
            case SetTimer(key=key, timer=timer, after=after):
                self._set_timer(key, timer, after)
            case LetSpeak(key=key):
                self._let_speak(key)
            case PauseInput():
                # `judge_input` holds every frame from now on, and whoever types waits in `wait_for_word`.
                pass
            case DrainUpstream(key=key):
                self._house.spawn(self._drain(key))
            case AbortUpstream(key=key):
                self._abort(key)
            case CountUndrained(key=key):
                self._count_undrained(key)
            case CloseClient(key=key, ending=ending, detail=detail):
                if (guest := self._guests.get(key)) is not None:
                    guest.client.end(ending, detail)
            case Forget(key=key):
                self._forget(key)
            case EndIncarnation():
                self._house.end_incarnation()
            case _:
                assert_never(action)

    async def _read(self, key: int) -> None:
        try:
            raw = await self._calls.read(self.target)
        except CallFailed:
            self.feed(ReadFailed(key))
            return
        if raw is not None:
            self._house.note_read(raw)
        self.feed(ObjectRead(key, None if raw is None else view_object(raw)))

    async def _write(
        self, key: int, answered: Callable[[int, Answer], Event], patch: JsonPatch, *, status: bool
    ) -> None:
        written = await self._calls.write(self.target, patch, status=status, tenure=self.life.writes)
        self.feed(answered(key, written.answer))
        if isinstance(written.answer, Accepted) and written.raw is not None:
            self._house.note_read(written.raw)

    async def _read_lease(self, key: int, incarnation: str) -> None:
        started = self._clock.elapsed()
        try:
            look = await self._calls.read_lease(incarnation)
        except CallFailed:
            self.feed(LeaseReadFailed(key))
            return
        self.feed(LeaseWasRead(key, look, started))
        self._note_proven(key)

    async def _break_lease(self, key: int, incarnation: str, lease: LeaseView) -> None:
        self.feed(LeaseWasBroken(key, await self._calls.break_lease(incarnation, lease)))
        self._note_proven(key)

    def _note_proven(self, key: int) -> None:
        speaker = find_speaker(self.seat, key)
        if speaker is not None and speaker.proven is not None:
            self._house.note_proven(speaker.proven)

    def _set_timer(self, key: int, timer: TimerName, after: timedelta) -> None:
        if (running := self._timers.pop((key, timer), None)) is not None:
            running.cancel()
        self._timers[key, timer] = self._loop.call_later(after.total_seconds(), self._ring, key, timer)

    def _ring(self, key: int, timer: TimerName) -> None:
        self._timers.pop((key, timer), None)
        self.feed(Rang(key, timer))

    def _let_speak(self, key: int) -> None:
        guest = self._guests.get(key)
        if guest is None:
            return
        guest.hub.let_type(guest.client, self.life.typing)
        if not guest.speaks:
            guest.speaks = True
            self._house.spawn(self._count_speaking(guest, self._clock.elapsed() - guest.came))

    async def _count_speaking(self, guest: Guest, took: timedelta) -> None:
        """Count who spoke before: somebody else may have proven them out, and freed the lock."""
        if guest.asked is not None and guest.former is Former.OTHER_REPLICA:
            with suppress(CallFailed):
                look = await self._calls.read_lease(guest.asked)
                if not isinstance(look, LeaseView) or look.holder != guest.asked:
                    guest.former = Former.DEAD_REPLICA
        self._house.note_spoke(guest.former, took)

    async def _drain(self, key: int) -> None:
        guest = self._guests.get(key)
        self._cut.discard(key)
        undrained = 0 if guest is None else await guest.hub.drain(guest.client)
        # What was cut out of its drain has been told by then.
        self.feed(UpstreamClosed(key, 0 if key in self._cut else undrained))

    def _abort(self, key: int) -> None:
        self._cut.add(key)
        guest = self._guests.get(key)
        undrained = 0 if guest is None else guest.hub.abort(guest.client)
        if find_speaker(self.seat, key) is None:
            # The incarnation has ended: nobody is left to be told, and what was cut off counts all the same.
            self._count_undrained(key)
        self.feed(UpstreamClosed(key, undrained))

    def _count_undrained(self, key: int) -> None:
        """Count each upstream's bytes once: two drains of one that broke are both answered with them."""
        guest = self._guests.get(key)
        undrained = 0 if guest is None else guest.hub.take_undrained()
        if undrained:
            self._house.note_undrained(undrained)

    def _forget(self, key: int) -> None:
        for known in [known for known in self._timers if known[0] == key]:
            self._timers.pop(known).cancel()
        self._cut.discard(key)
        guest = self._guests.pop(key, None)
        if guest is not None:
            self._keys.pop(guest.client, None)

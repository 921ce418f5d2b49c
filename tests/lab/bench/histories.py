"""
Histories of the race as they may be: real decisions in a world in which nothing happens at once.

Problem: whose lock a lock is, the race tells by moments alone, and a way of telling that is right in each case that
somebody thought of may be wrong in one that they did not. Promise: who claims, waits, locks and lets go is decided by
the product's own `step`; the world around it is late, loses answers, lets writes land long after they were given up,
kills a gateway and lets a hand in; and since each socket's id bears its sender's name, the truth is known.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

from controller.lab.bench.race_locks import LockBook, Turn
from controller.plan.fence import (
    AbortUpstream,
    Accepted,
    Action,
    Arrived,
    BreakLease,
    ClaimAnswered,
    ClearAnswered,
    CloseClient,
    DrainUpstream,
    Event,
    Forget,
    LeaseWasRead,
    Left,
    LetSpeak,
    LockAnswered,
    Lost,
    MovedOn,
    ObjectRead,
    Rang,
    ReadFailed,
    ReadLease,
    ReadObject,
    Seat,
    SendClaim,
    SendClear,
    SendLock,
    SendWithdrawal,
    SetTimer,
    TimerName,
    Told,
    UpstreamClosed,
    WithdrawAnswered,
    step,
    take_seat,
)
from controller.plan.fence_ids import OurSocket, read_socket_name
from controller.plan.fence_objects import LeaseView, ObjectView, render_lock
from controller.plan.fence_patches import JsonPatch
from controller.plan.fence_sweep import ClearLock, find_open_ids, plan_sweep
from tests.plan.fence_model import apply_patch, by_hand

NOON: Final = datetime(2026, 11, 30, 12, tzinfo=UTC)
TERMINAL: Final = "t"
PLACES: Final = ("a", "b")
HANDS: Final = ("revoke", "foreign", "edit", "edit")
GIVEN_UP_AFTER: Final = 5_000
"""Milliseconds, as everything here: so long a call is waited for."""
ANSWERS: Final[dict[type, Callable[[int, Any], Event]]] = {
    SendClaim: ClaimAnswered,
    SendLock: LockAnswered,
    SendClear: ClearAnswered,
    SendWithdrawal: WithdrawAnswered,
}


@dataclass
class Gateway:
    """One process."""

    place: str
    incarnation: str
    seat: Seat
    alive: bool = True
    timers: dict[tuple[int, TimerName], int] = field(default_factory=dict)


@dataclass
class Asking:
    """Somebody who asks to speak, and has no answer yet; or had one."""

    sender: str
    place: str
    came: datetime
    answered: bool = False


class History:
    """
    One history, played to its end.

    Args:
        luck: Whatever is not decided by the fence.
        span: For so many milliseconds people come; then everybody leaves.
    """

    def __init__(self, luck: Random, *, span: int) -> None:
        self.book = LockBook()
        self.turns: list[Turn] = []
        self.places: dict[str, str] = {}
        self._luck = luck
        self._span = span
        self._now = 0
        self._numbers = count()
        self._keys = count(1)
        self._todo: list[tuple[int, int, Callable[[], object]]] = []
        self._object = ObjectView("uid", 1, 1)
        self._gateways: dict[str, Gateway] = {}
        self._people: dict[int, Asking] = {}
        for place in PLACES:
            self._start(place)
            self._after(self._soon(), partial(self._come, place))
        self._after(self._soon(), self._patch_by_hand)
        self._after(luck.randrange(span), lambda: self._kill("a"))
        while self._todo:
            self._now, _, happen = heapq.heappop(self._todo)
            happen()

    @property
    def dead(self) -> frozenset[str]:
        return frozenset(self.places) - {gateway.incarnation for gateway in self._gateways.values()}

    # --- time ---

    def _after(self, wait: int, happen: Callable[[], object]) -> None:
        heapq.heappush(self._todo, (self._now + wait, next(self._numbers), happen))

    def _soon(self) -> int:
        """Draw how long something takes: short mostly, and now and then as long as on a machine that is overrun."""
        return 1 + self._luck.randrange(1_500 if self._luck.random() < 0.05 else 20)

    @property
    def _moment(self) -> datetime:
        return NOON + timedelta(milliseconds=self._now)

    # --- people ---

    def _come(self, place: str) -> None:
        if self._now >= self._span:
            return
        key, gateway = next(self._keys), self._gateways[place]
        self._people[key] = Asking(f"sender{key:03}", place, self._moment)
        self._after(self._soon(), lambda: self._arrive(gateway, key))

    def _arrive(self, gateway: Gateway, key: int) -> None:
        if not gateway.alive:
            self._answer(key, spoke=False)
            return
        self._feed(gateway, Arrived(key, self._people[key].sender, self._object, takeover=True))

    def _answer(self, key: int, *, spoke: bool) -> None:
        """Let somebody hear that they speak, or that they do not; then the next may come."""
        person = self._people[key]
        if not person.answered:
            person.answered = True
            self.turns.append(Turn(person.sender, TERMINAL, person.place, person.came, self._moment, spoke))
            self._after(self._luck.randrange(200), lambda: self._come(person.place))

    def _patch_by_hand(self) -> None:
        changed = by_hand(self._object, self._luck.choice(HANDS), None)
        if changed is not None:
            self._store(changed)
        if self._now < self._span:
            self._after(self._luck.randrange(1, 2_000), self._patch_by_hand)

    # --- gateways ---

    def _start(self, place: str) -> None:
        incarnation = f"gateway{place}{len(self.places):02}"
        self.places[incarnation] = place
        self._gateways[place] = Gateway(place, incarnation, take_seat("uid", incarnation, tenure=1))

    def _kill(self, place: str) -> None:
        """Kill a gateway: what it has sent lands all the same, whoever is there hears nothing more."""
        killed = self._gateways[place]
        killed.alive = False
        self._start(place)
        for key, person in self._people.items():
            if person.place == place and not person.answered:
                self._after(self._soon(), partial(self._answer, key, spoke=False))

    def _feed(self, gateway: Gateway, event: Event) -> None:
        if gateway.alive:
            now = timedelta(milliseconds=self._now)
            gateway.seat, actions = step(gateway.seat, event, now=now)
            for action in actions:
                self._do(gateway, action)

    def _feed_later(self, gateway: Gateway, event: Event) -> None:
        self._after(self._soon(), lambda: self._feed(gateway, event))

    def _do(self, gateway: Gateway, action: Action) -> None:
        match action:
            case SendLock(key=key):
                self._write(gateway, key, SendLock, action.build(since=self._moment.isoformat()))
            case (
                SendClaim(key=key, patch=patch) | SendClear(key=key, patch=patch) | SendWithdrawal(key=key, patch=patch)
            ):
                self._write(gateway, key, type(action), patch)
            case ReadObject(key=key):
                self._after(self._soon(), lambda: self._read(gateway, key))
            case ReadLease(key=key, incarnation=incarnation):
                self._after(self._soon(), lambda: self._read_lease(gateway, key, incarnation))
            case SetTimer(key=key, timer=timer, after=after):
                self._set_timer(gateway, key, timer, after)
            case LetSpeak(key=key):
                self._after(self._soon(), lambda: self._answer(key, spoke=gateway.alive))
                if self._luck.random() < 0.2:
                    self._after(100 + self._soon(), lambda: self._feed(gateway, Left(key)))
            case CloseClient(key=key):
                self._after(self._soon(), lambda: self._answer(key, spoke=False))
                self._feed_later(gateway, Left(key))
            case DrainUpstream(key=key):
                self._feed_later(gateway, UpstreamClosed(key, 0))
            case AbortUpstream(key=key):
                self._feed(gateway, UpstreamClosed(key, 0))
            case Forget(key=key):
                gateway.timers = {known: number for known, number in gateway.timers.items() if known[0] != key}
                self._after(self._soon(), lambda: self._sweep(gateway))
            case BreakLease():
                raise AssertionError("The Lease of a dead one is broken already, that of a living one moves.")
            case _:
                pass

    def _set_timer(self, gateway: Gateway, key: int, timer: TimerName, after: timedelta) -> None:
        number = gateway.timers[key, timer] = next(self._numbers)

        def ring() -> None:
            if gateway.timers.get((key, timer)) == number:
                del gateway.timers[key, timer]
                self._feed(gateway, Rang(key, timer))

        self._after(int(after.total_seconds() * 1_000), ring)

    def _sweep(self, gateway: Gateway) -> None:
        """Clear what bears the gateway's name without a socket."""
        open_ids = find_open_ids(gateway.seat)
        swept = plan_sweep(self._object, incarnation=gateway.incarnation, open_ids=open_ids, dead=frozenset())
        if gateway.alive and swept is not None:
            self._land(swept.patch)
            if isinstance(swept, ClearLock):
                self._after(self._soon(), lambda: self._sweep(gateway))

    # --- calls ---

    def _read(self, gateway: Gateway, key: int) -> None:
        if self._luck.random() < 0.05:
            self._after(GIVEN_UP_AFTER, lambda: self._feed(gateway, ReadFailed(key)))
        else:
            self._feed_later(gateway, ObjectRead(key, self._object))

    def _read_lease(self, gateway: Gateway, key: int, incarnation: str) -> None:
        is_dead = incarnation in self.dead
        lease = LeaseView("lease", str(self._now), "" if is_dead else incarnation)
        started = timedelta(milliseconds=self._now)
        self._feed_later(gateway, LeaseWasRead(key, lease, started))

    def _write(self, gateway: Gateway, key: int, kind: type, patch: JsonPatch) -> None:
        """Send a write. It may be given up, and land before that, long after it, or never."""
        answered = ANSWERS[kind]

        def land() -> None:
            view = self._land(patch)
            self._feed_later(gateway, answered(key, MovedOn() if view is None else Accepted(view)))

        if self._luck.random() >= 0.15:
            self._after(self._soon(), land)
            return
        given_up = self._luck.choice((20, GIVEN_UP_AFTER))
        self._after(given_up, lambda: self._feed(gateway, answered(key, Lost())))
        if self._luck.random() < 0.7:
            self._after(self._luck.randrange(1, 2 * GIVEN_UP_AFTER), partial(self._land, patch))

    def _land(self, patch: JsonPatch) -> ObjectView | None:
        """Let a patch land. None: a test failed."""
        new = apply_patch(self._object, patch)
        if new is not None and new != self._object:
            self._store(new)
        return None if new is None else self._object

    def _store(self, new: ObjectView) -> None:
        """Store the object, and let every watch tell it, in the order of versions."""
        self._object = view = replace(new, version=self._object.version + 1)
        status = {} if view.lock is None else {"socket": render_lock(view.lock)}
        self.book.note({"metadata": {"name": TERMINAL}, "status": status}, self._moment)
        for gateway in self._gateways.values():
            self._feed_later(gateway, Told(view))
            self._after(self._soon(), partial(self._sweep, gateway))


def find_sender(socket_id: str) -> str:
    """Tell whose a socket is: the truth, which no gateway tells in the race."""
    name = read_socket_name(socket_id)
    assert isinstance(name, OurSocket)
    return name.luck

"""
An explorer of the fence: every order in which gateways, the API server, Leases and time can take their steps.

Problem: a protocol between processes is not shown right by the orders that somebody thought of. Promise: what gateways
and the operator *decide* is decided by the product's own functions (`step`, `judge_input`, `judge_renewal`,
`judge_list`, `plan_sweep`, `judge_release`, and the patches with their tests); only the world around them is modelled:
the API server and its watch, Leases, time in whole steps, the sprite, people with kubectl, crashes, lost answers.

The search is breadth first over hashed states, so a counterexample is a shortest one. A state is kept small: values are
numbered once, times are relative and cut off where nothing depends on them, versions count only by their order, and a
Lease's version is either the present one or an old one, since old ones never come back. Sockets that differ in nothing
arrive in a fixed order, which leaves out mere renamings.

Taking a rule out is a parameter (`Without`): a test of a patch is dropped, an action is carried out in the simpler way,
or a verdict is replaced.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final, NamedTuple

from controller.plan.fence import (
    AbortUpstream,
    Accepted,
    Arrived,
    BreakLease,
    ClaimAnswered,
    ClearAnswered,
    Doubted,
    Draining,
    DrainUpstream,
    IncarnationEnded,
    LeaseWasBroken,
    LeaseWasRead,
    Left,
    LockAnswered,
    Locking,
    Lost,
    MovedOn,
    ObjectGone,
    ObjectRead,
    Pass,
    Pausing,
    Rang,
    Reading,
    ReadLease,
    ReadObject,
    Seat,
    SendClaim,
    SendClear,
    SendLock,
    SendWithdrawal,
    Settling,
    ShutDown,
    Speaking,
    TenureBegan,
    TenureEnded,
    TimerName,
    Told,
    UpstreamClosed,
    Waiting,
    WithdrawAnswered,
    is_named,
    judge_input,
    step,
    take_seat,
)
from controller.plan.fence_ids import OurSocket, read_socket_name
from controller.plan.fence_objects import LeaseView, Lock, NoLease, ObjectView, read_lock
from controller.plan.fence_presence import ReleaseNow, judge_release
from controller.plan.fence_sweep import ClearLock, find_open_ids, may_delete_lease, plan_sweep
from controller.plan.fence_tenure import (
    Broken,
    IncarnationOver,
    Listed,
    NotBroken,
    ReadOwnLease,
    RenewalConflict,
    Renewed,
    TenureBegins,
    TenureGoesOn,
    TenureRules,
    Term,
    judge_list,
    judge_own_lease,
    judge_renewal,
)

ZERO: Final = timedelta(0)
SECOND: Final = timedelta(seconds=1)
PRESENT, OLD = "present", "old"
"""The two versions of a Lease that can still be told apart."""


EXCUSED: Final = (-2, 0)
"""
Input that was on the way when its gateway's tenure ran out: aborted by a process that lives, and in the buffers of one
that is stopped. It is what remains (docs/fence.md), and is not held against the protocol.
"""


ANY: Final = -1
BELIEVED, BELIEVED_AND_MOVED = 3, 4
MOVED_ON: Final = {0: -1, 1: -1, 2: -1, BELIEVED: BELIEVED_AND_MOVED}
"""How far looks from before a claim have come (the numbers below are steps of time), and what a renewal makes of it."""


class SmallRules(TenureRules):
    """Two steps of time for a Lease and none of margin: in whole steps and with one clock, no more is needed."""


SMALL: Final = SmallRules(lease=2 * SECOND, renew=SECOND, timeout=SECOND, margin=ZERO)


class HastyRules(TenureRules):
    """Death is believed at the first look."""

    @property
    def proof_gap(self) -> timedelta:
        return ZERO


HASTY: Final = HastyRules(lease=2 * SECOND, renew=SECOND, timeout=SECOND, margin=ZERO)


@dataclass(frozen=True, slots=True)
class Without:
    """
    What is taken out of the protocol.

    Args:
        lock_mark: Frames pass by the spec alone.
        former_value: A lock is written over whatever stands there.
        waiting: A claimer does not look whether the lock is somebody else's.
        generation_test: The write of a lock does not test the generation.
        answer_read: The answer to the write of a lock is believed to show the object as it was before.
        epoch_of_read: A lock tests the generation that its claim made, not that of the last read.
        drain: The lock is let go while frames are on the way.
        tenure: Frames pass, and nothing is aborted, after the tenure ended.
        reread: A new tenure takes over what the old one knew.
        breaking: A Lease that is out is not broken.
        reads_after_claim: Looks at the Lease from before the claim count.
        two_looks: One look at the Lease is proof.
        absent_twice: A missing Lease is proof at once.
        lease_last: A process that goes deletes its Lease first.
        lock_holder: The one to be proven out is whom the id before ours named, not whom the lock names.
        finalizer: An object goes although its lock stands.
        own_sweep: Nobody clears a lock whose socket is gone.
    """

    lock_mark: bool = False
    former_value: bool = False
    waiting: bool = False
    generation_test: bool = False
    answer_read: bool = False
    epoch_of_read: bool = False
    drain: bool = False
    tenure: bool = False
    reread: bool = False
    breaking: bool = False
    reads_after_claim: bool = False
    two_looks: bool = False
    absent_twice: bool = False
    lease_last: bool = False
    lock_holder: bool = False
    finalizer: bool = False
    own_sweep: bool = False


NOTHING: Final = Without()


class Budget(NamedTuple):
    """How often each unkind thing may happen in one run."""

    hand: int = 0
    lost: int = 0
    crash: int = 0
    left: int = 0
    delete: int = 0
    exit: int = 0
    slow: int = 0
    revive: int = 0
    lease_gone: int = 0


KIND: Final = Budget()


@dataclass(frozen=True, slots=True)
class Scope:
    """
    One bounded world.

    Args:
        sockets: For each socket the gateway to which it comes.
        gateways: How many there are.
        budget: How often unkind things happen.
        hands: What a person may write: "revoke", "foreign", "back" (the id before), "detach", "edit", "terminate".
        ticks: Time passes.
        lag: How many events a watch may be behind; further back, events are skipped.
        ordered: Sockets arrive in their order.
        slow_reads: The answer to a read takes its time, and what it shows may have passed by then.
        slow: The writes whose answers take their time; those of others are there at once.
        shaky: The gateways that may renew too late, when time passes; the others always renew in time.
        mortal: The gateways that may die.
        prelude: The steps that have been taken when the search begins.
        recreate: What a person names in an object that is created again: "nobody" or "back".
    """

    sockets: tuple[int, ...]
    gateways: int = 2
    budget: Budget = KIND
    hands: tuple[str, ...] = ()
    ticks: bool = False
    lag: int = 1
    ordered: bool = True
    slow_reads: bool = False
    slow: tuple[type, ...] = (SendLock,)
    shaky: tuple[int, ...] = (0,)
    mortal: tuple[int, ...] = (0, 1, 2)
    prelude: tuple[str, ...] = ()
    recreate: str = "nobody"


class Gate(NamedTuple):
    """One gateway process. `seats` holds (object, seat, order of its view), `calls` those under way."""

    alive: bool
    going: bool
    seats: tuple[tuple[int, int, int], ...]
    ends: int
    number: int
    lease: str
    slow: tuple[int, str, str] | None
    calls: tuple[tuple[int, int, int, int, int], ...]
    queue: tuple[tuple[int, int], ...]
    channels: tuple[tuple[int, int, tuple[int, int], bool], ...]


class World(NamedTuple):
    """Everything. `obj` numbers the object, 0 where it is gone; `top` is the newest epoch whose input arrived."""

    obj: int
    order: int
    uid: int
    gates: tuple[Gate, ...]
    leases: tuple[str, ...]
    ghosts: tuple[int, ...]
    top: tuple[int, int]
    arrived: int
    budget: Budget
    before: str | None
    early: int
    broken: bool


Edge = tuple[str, bool, World]
"""What happened, whether a fair schedule may be relied on to bring it, and what came of it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has come to: how many states, whether all, the way to a broken invariant, and to a stuck socket."""

    states: int
    edges: int
    whole: bool
    broken: tuple[str, ...] | None
    stuck: tuple[str, ...] | None
    spoke: int


def name_gateway(number: int) -> str:
    return f"gateway{number}"


def name_socket(number: int) -> str:
    return f"socket0{number}"


@dataclass
class Model:
    """The world's rules, with a table of every value that was ever seen."""

    scope: Scope
    without: Without = NOTHING
    rules: TenureRules = SMALL
    numbers: dict[Any, int] = field(default_factory=dict)
    values: list[Any] = field(default_factory=list)
    steps: dict[tuple[int, int], tuple[int, tuple[Any, ...]]] = field(default_factory=dict)
    patched: dict[tuple[int, int], int | None] = field(default_factory=dict)
    shifted: dict[int, int] = field(default_factory=dict)
    aged: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.number(None)
        if self.without.two_looks:
            self.rules = HASTY

    # --- values ---

    def number(self, value: Any) -> int:
        known = self.numbers.get(value)
        if known is None:
            known = self.numbers[value] = len(self.values)
            self.values.append(value)
        return known

    def begin(self) -> World:
        scope = self.scope
        gate = Gate(True, False, (), 2 if scope.ticks else 1, 1, PRESENT, None, (), (), ())
        return World(
            obj=self.number(ObjectView("object0", 1, 0)),
            order=0,
            uid=0,
            gates=(gate,) * scope.gateways,
            leases=("live",) * scope.gateways,
            ghosts=(),
            top=(-1, 0),
            arrived=0,
            budget=scope.budget,
            before=None,
            early=-1,
            broken=False,
        )

    # --- the API server ---

    def write(self, w: World, patch_number: int) -> tuple[World, int | None]:
        """Let a JSON patch land. None: a test failed. The new object goes into every watch."""
        if w.obj == 0:
            return w, 0
        new = self.patch(w.obj, patch_number)
        if new is None or new == w.obj:
            return w, new
        return self.change(w, new), new

    def change(self, w: World, new: int) -> World:
        """Store the object, or its absence (0), and tell every watch."""
        order = w.order + 1
        was, now_is = self.values[w.obj], self.values[new]
        before = w.before
        if was is not None and (now_is is None or was.active_socket_id != now_is.active_socket_id):
            before = was.active_socket_id or before
        gates = tuple(
            gate._replace(queue=(*gate.queue, (order, new or -w.uid - 1))[-self.scope.lag :])
            if gate.alive and self.scope.lag
            else gate
            for gate in w.gates
        )
        return w._replace(obj=new, order=order, gates=gates, before=before)

    def patch(self, obj: int, patch_number: int) -> int | None:
        key = (obj, patch_number)
        if key not in self.patched:
            new = apply_patch(self.values[obj], json.loads(self.values[patch_number]))
            self.patched[key] = None if new is None else self.number(new)
        return self.patched[key]

    def read_patch(self, action: Any) -> int:
        """Take the patch of an action, with the tests that are left of it."""
        without = self.without
        if not isinstance(action, SendLock):
            return self.number(json.dumps(action.patch))
        if without.epoch_of_read:
            name = read_socket_name(action.lock.socket_id)
            assert isinstance(name, OurSocket)
            action = replace(action, lock=replace(action.lock, epoch=name.generation))
        dropped = set()
        if without.generation_test:
            dropped.add("/metadata/generation")
        if without.former_value:
            dropped.add("/status/socket")
        patch = [one for one in action.build(since=None) if one["op"] != "test" or one["path"] not in dropped]
        return self.number(json.dumps(patch))

    # --- feeding a gateway ---

    def feed(self, w: World, g: int, uid: int, event: Any, order: int | None = None) -> World:
        """Give an event to a seat, and carry out what follows; a view in it has the given place in the order."""
        gate = w.gates[g]
        at = next((at for at, seat in enumerate(gate.seats) if seat[0] == uid), len(gate.seats))
        if at < len(gate.seats):
            _, seat_number, seat_order = gate.seats[at]
        else:
            tenure = gate.number if gate.ends > 0 else None
            seat_number, seat_order = self.number(take_seat(f"object{uid}", name_gateway(g), tenure=tenure)), -1
        if order is not None and not has_view(event):
            order = None
        if order is not None:
            event = place(event, (order > seat_order) - (order < seat_order))
            if self.without.waiting:
                event = hide_lock(event, name_gateway(g))
        event_number = self.number(event)
        key = (seat_number, event_number)
        if key not in self.steps:
            self.steps[key] = self.take_step(self.values[seat_number], event)
        new_number, actions = self.steps[key]
        new_seat: Seat = self.values[new_number]
        if order is not None and order > seat_order and new_seat.view is not None:
            seat_order = order
        seats = list(gate.seats)
        if not new_seat.speakers:
            seats[at : at + 1] = []
        else:
            seats[at : at + 1] = [(uid, new_number, seat_order)]
        w = put_gate(w, g, gate._replace(seats=tuple(seats)))
        for action in actions:
            w = self.act(w, g, uid, action)
        return w

    def take_step(self, seat: Seat, event: Any) -> tuple[int, tuple[Any, ...]]:
        new, actions = step(seat, event, now=ZERO, rules=self.rules)
        if self.without.reread and isinstance(event, TenureBegan):
            new, actions = keep_all(seat, event.number), ()
        if new.view is not None and new.view.version != 0:
            new = replace(new, view=replace(new.view, version=0))
        if new.gone:
            new = replace(new, view=None)
        return self.number(change_seat(new, self.forget)), actions

    def forget(self, speaker: Any) -> Any:
        """Leave out what tells nothing here: the count of tries never runs out, and without time nobody is proven."""
        if self.scope.ticks:
            return replace(speaker, tries=0)
        return replace(speaker, tries=0, proof=None, lease_due=ZERO)

    def act(self, w: World, g: int, uid: int, action: Any) -> World:
        gate = w.gates[g]
        match action:
            case ReadObject(key=key) if not self.scope.slow_reads:
                return self.feed(w, g, uid, ObjectRead(key, self.values[w.obj]), w.order)
            case ReadObject() | ReadLease() | BreakLease():
                return put_gate(w, g, add_call(gate, (uid, action.key, self.number(action), 0, 0)))
            case SendClaim() | SendClear() | SendWithdrawal() | SendLock():
                payload = self.number((type(action), action.key, self.read_patch(action)))
                return put_gate(w, g, add_call(gate, (uid, action.key, payload, 0, 0)))
            case DrainUpstream(key=key):
                frame = find_channel(gate, uid, key)
                if frame is None or self.without.drain:
                    return self.feed(w, g, uid, UpstreamClosed(key, 0))
                return put_gate(w, g, drop_channel(gate, uid, key, keep=(uid, key, frame[2], True)))
            case AbortUpstream(key=key):
                frame = find_channel(gate, uid, key)
                w = put_gate(w, g, drop_channel(gate, uid, key))
                return self.feed(w, g, uid, UpstreamClosed(key, 0 if frame is None else 1))
            case _:
                return w

    # --- the steps of the world ---

    def successors(self, w: World) -> Iterator[Edge]:
        for label, fair, new in self.raw_successors(w):
            if new is not w:
                yield label, fair, self.tidy(new)

    def raw_successors(self, w: World) -> Iterator[Edge]:
        yield from self.arrivals(w)
        for g, gate in enumerate(w.gates):
            if gate.alive:
                yield from self.gate_steps(w, g, gate)
        for at, ghost in enumerate(w.ghosts):
            left = w._replace(ghosts=w.ghosts[:at] + w.ghosts[at + 1 :])
            yield f"a write that was given up lands: {self.tell(ghost)}", True, self.land_ghost(left, ghost)
        yield from self.people(w)
        yield from self.operator(w)
        if self.scope.ticks:
            yield "time passes", True, self.tick(w)

    def arrivals(self, w: World) -> Iterator[Edge]:
        if w.obj == 0:
            return
        for number, g in enumerate(self.scope.sockets):
            bit = 1 << number
            if w.arrived & bit or not w.gates[g].alive or w.gates[g].going:
                continue
            if self.scope.ordered and w.arrived != bit - 1:
                continue
            view = self.values[w.obj]
            event = Arrived(number, name_socket(number), view, takeover=True)
            new = self.feed(w._replace(arrived=w.arrived | bit), g, w.uid, event, w.order)
            yield f"socket {number} comes to {name_gateway(g)}", False, new

    def gate_steps(self, w: World, g: int, gate: Gate) -> Iterator[Edge]:
        me = name_gateway(g)
        for at, call in enumerate(gate.calls):
            yield from self.call_steps(w, g, gate, at, call)
        if gate.queue:
            order, obj = gate.queue[0]
            rest = put_gate(w, g, gate._replace(queue=gate.queue[1:]))
            yield f"{me}'s watch tells", True, self.told(rest, g, order, obj)
        for uid, seat_number, _ in gate.seats:
            yield from self.seat_steps(w, g, gate, uid, self.values[seat_number])
        for uid, key, epoch, draining in gate.channels:
            new = put_gate(w, g, drop_channel(gate, uid, key))
            if epoch != EXCUSED:
                new = new._replace(broken=w.broken or epoch < w.top, top=max(w.top, epoch))
            if draining:
                new = self.feed(new, g, uid, UpstreamClosed(key, 0))
            yield f"input of socket {key} arrives, epoch {epoch}", True, new
        yield from self.tenure_steps(w, g, gate)
        yield from self.sweep_steps(w, g, gate)
        if w.budget.crash and g in self.scope.mortal:
            ghosts = [payload for _, _, payload, stage, _ in gate.calls if not stage and self.is_write(payload)]
            dead = gate._replace(alive=False, seats=(), calls=(), queue=(), channels=(), slow=None)
            new = put_gate(w, g, dead)._replace(ghosts=tuple(sorted((*w.ghosts, *ghosts))))
            yield f"{me} dies", False, spend(new, "crash")
        if w.budget.exit and not gate.going:
            yield f"{me} is asked to go", False, spend(self.go(w, g, gate), "exit")
        if gate.going:
            locks = self.lists_own_lock(w, g)
            seats = [self.values[number] for _, number, _ in gate.seats]
            if may_delete_lease(seats, locks_listed=locks):
                gone = gate._replace(alive=False, seats=(), calls=(), queue=(), channels=(), slow=None)
                yield (
                    f"{me} deletes its Lease and is gone",
                    True,
                    put_gate(w, g, gone)._replace(leases=put(w.leases, g, "absent")),
                )

    def go(self, w: World, g: int, gate: Gate) -> World:
        w = put_gate(w, g, gate._replace(going=True))
        if self.without.lease_last:
            # It lets go of its Lease first, and of its sockets some time later.
            return w._replace(leases=put(w.leases, g, "absent"))
        for uid, _, _ in gate.seats:
            w = self.feed(w, g, uid, ShutDown())
        return w

    def lists_own_lock(self, w: World, g: int) -> int:
        view = self.values[w.obj]
        return int(view is not None and view.lock is not None and view.lock.incarnation == name_gateway(g))

    def is_write(self, payload: int) -> bool:
        return isinstance(self.values[payload], tuple)

    def call_steps(self, w: World, g: int, gate: Gate, at: int, call: tuple[int, int, int, int, int]) -> Iterator[Edge]:
        uid, key, payload, stage, order = call
        action = self.values[payload]
        rest = put_gate(w, g, gate._replace(calls=gate.calls[:at] + gate.calls[at + 1 :]))
        if isinstance(action, ReadObject):
            if not stage:
                read = (uid, key, payload, self.number(ObjectRead(key, self.values[w.obj])), w.order)
                yield f"socket {key}'s read sees the object", True, put_gate(rest, g, add_call(rest.gates[g], read))
            else:
                yield f"socket {key} has read the object", True, self.feed(rest, g, uid, self.values[stage], order)
            return
        if isinstance(action, ReadLease):
            look = self.look_at_lease(w, action.incarnation, g)
            if isinstance(look, NoLease) and self.without.absent_twice:
                look = LeaseView("lease", PRESENT, "")
            event = LeaseWasRead(key, look, ZERO)
            yield f"socket {key} reads the Lease of {action.incarnation}", True, self.feed(rest, g, uid, event)
            return
        if isinstance(action, BreakLease):
            new, answer = self.break_lease(rest, action, g)
            label = f"socket {key} breaks the Lease of {action.incarnation}: {type(answer).__name__}"
            yield label, True, self.feed(new, g, uid, LeaseWasBroken(key, answer))
            return
        if stage:
            answer_event = self.values[stage]
            yield (
                f"socket {key} has the answer: {describe(answer_event)}",
                True,
                self.answer(rest, g, uid, key, answer_event, order),
            )
            if w.budget.lost:
                kind = self.values[payload][0]
                lost = self.feed(spend(rest, "lost"), g, uid, ANSWERS[kind](key, Lost()))
                yield f"the answer to socket {key}'s {kind.__name__} is lost", False, lost
            return
        kind, _, patch_number = action
        landed, new_obj = self.write(w, patch_number)
        if new_obj is None:
            answer_value: Any = MovedOn()
        elif new_obj == 0:
            answer_value = ObjectGone()
        else:
            answer_value = Accepted(self.show(w, g, kind, landed))
        stage = self.number(ANSWERS[kind](key, answer_value))
        calls = put(landed.gates[g].calls, at, (uid, key, payload, stage, landed.order))
        label = f"socket {key}'s {kind.__name__} lands: {type(answer_value).__name__}"
        waits = put_gate(landed, g, landed.gates[g]._replace(calls=calls))
        if kind in self.scope.slow:
            yield label, True, waits
        else:
            calls = waits.gates[g].calls
            here = put_gate(waits, g, waits.gates[g]._replace(calls=calls[:at] + calls[at + 1 :]))
            yield label, True, self.answer(here, g, uid, key, self.values[stage], landed.order)
            if w.budget.lost:
                lost = self.feed(spend(here, "lost"), g, uid, ANSWERS[kind](key, Lost()))
                yield f"socket {key}'s {kind.__name__} lands, and its answer is lost", False, lost
        if w.budget.lost:
            lost = spend(rest, "lost")._replace(ghosts=tuple(sorted((*w.ghosts, payload))))
            lost = self.feed(lost, g, uid, ANSWERS[kind](key, Lost()))
            yield f"socket {key}'s {kind.__name__} is given up", False, lost

    def show(self, w: World, g: int, kind: type, landed: World) -> ObjectView:
        """Give what the answer shows; without reading it, the object is believed to be as it was known, and locked."""
        view: ObjectView = self.values[landed.obj]
        if kind is SendLock and self.without.answer_read:
            for uid, number, _ in w.gates[g].seats:
                known = self.values[number].view
                if uid == w.uid and known is not None:
                    return replace(view, active_socket_id=known.active_socket_id, attached=known.attached)
        return view

    def answer(self, w: World, g: int, uid: int, key: int, event: Any, order: int) -> World:
        if isinstance(event, ClaimAnswered) and isinstance(event.answer, Accepted) and g == 1:
            w = self.use_early_looks(w, g, uid)
        return self.feed(w, g, uid, event, order)

    def use_early_looks(self, w: World, g: int, uid: int) -> World:
        """Take the looks from before the claim for proof; where it breaks the Lease, it must not have moved since."""
        if w.early not in (BELIEVED, BELIEVED_AND_MOVED):
            return w
        if not self.without.breaking:
            if w.early != BELIEVED or w.leases[0] != "live":
                return w
            w = self.write_lease(w, 0, "broken")
        return self.change_speakers(w, g, uid, lambda one: replace(one, proven=name_gateway(0)))

    def change_speakers(self, w: World, g: int, uid: int, change: Callable[[Any], Any]) -> World:
        gate = w.gates[g]
        seats = tuple(
            (seat_uid, self.number(change_seat(self.values[number], change)) if seat_uid == uid else number, order)
            for seat_uid, number, order in gate.seats
        )
        return put_gate(w, g, gate._replace(seats=seats))

    def told(self, w: World, g: int, order: int, obj: int) -> World:
        """Deliver one event of a watch; that an object is gone only raises a doubt."""
        if obj < 0:
            return self.feed_known(w, g, -obj - 1, Doubted())
        view: ObjectView = self.values[obj]
        return self.feed_known(w, g, int(view.uid[-1]), Told(view), order)

    def feed_known(self, w: World, g: int, uid: int, event: Any, order: int | None = None) -> World:
        known = any(seat_uid == uid for seat_uid, _, _ in w.gates[g].seats)
        return self.feed(w, g, uid, event, order) if known else w

    def seat_steps(self, w: World, g: int, gate: Gate, uid: int, seat: Seat) -> Iterator[Edge]:
        term = self.term(gate, g)
        for speaker in seat.speakers:
            key = speaker.key
            timer = TIMERS.get(type(speaker.phase))
            if timer is not None:
                yield f"socket {key}'s {timer.value} timer rings", True, self.feed(w, g, uid, Rang(key, timer))
            if find_channel(gate, uid, key) is None and self.passes(seat, key, term):
                frame = (uid, key, self.epoch(seat, speaker, uid), False)
                channels = tuple(sorted((*gate.channels, frame)))
                yield f"socket {key} types", True, put_gate(w, g, gate._replace(channels=channels))
            if w.budget.left and speaker.ending is None:
                yield f"socket {key}'s client leaves", False, spend(self.feed(w, g, uid, Left(key)), "left")

    def passes(self, seat: Seat, key: int, term: Term) -> bool:
        """Ask the verdict on a frame, or what is left of it."""
        if self.without.tenure:
            term = replace(term, ends=SECOND)
        if self.without.lock_mark:
            speaker = next(one for one in seat.speakers if one.key == key)
            return speaker.ending is None and seat.view is not None and is_named(seat.view, speaker.socket_id)
        return isinstance(judge_input(seat, key, term=term, now=ZERO), Pass)

    def epoch(self, seat: Seat, speaker: Any, uid: int) -> tuple[int, int]:
        lock = None if seat.view is None else seat.view.lock
        if lock is not None and lock.socket_id == speaker.socket_id:
            return (uid, lock.epoch)
        name = read_socket_name(speaker.socket_id)
        return (uid, name.generation if isinstance(name, OurSocket) else 0)

    # --- Leases and time ---

    def term(self, gate: Gate, g: int) -> Term:
        me = name_gateway(g)
        return Term(me, LeaseView("lease", gate.lease, me), gate.number, gate.ends * SECOND)

    def look_at_lease(self, w: World, incarnation: str, g: int) -> LeaseView | NoLease:
        at = self.asked_lease(w, incarnation, g)
        match w.leases[at]:
            case "absent":
                return NoLease()
            case "broken":
                return LeaseView("lease", PRESENT, "")
            case _:
                return LeaseView("lease", PRESENT, incarnation)

    def asked_lease(self, w: World, incarnation: str, g: int) -> int:
        """Whose Lease is asked: the lock's holder, or whom the id before named."""
        if self.without.lock_holder:
            name = read_socket_name(w.before)
            if isinstance(name, OurSocket) and name.incarnation != name_gateway(g):
                return int(name.incarnation[-1])
        return int(incarnation[-1])

    def break_lease(self, w: World, action: BreakLease, g: int) -> tuple[World, Broken | NotBroken]:
        at = self.asked_lease(w, action.incarnation, g)
        if self.without.breaking:
            return w, Broken()
        if w.leases[at] != "live" or action.lease.version != PRESENT:
            return w, NotBroken()
        return self.write_lease(w, at, "broken"), Broken()

    def write_lease(self, w: World, g: int, state: str) -> World:
        """Move the version of a Lease: what anybody knew of it is old now."""
        w = w._replace(leases=put(w.leases, g, state), early=MOVED_ON.get(w.early, w.early) if g == 0 else w.early)
        gates = tuple(self.age_gate(w, number, g) for number in range(len(w.gates)))
        return w._replace(gates=gates)

    def age_gate(self, w: World, number: int, g: int) -> Gate:
        """Let what one gateway knew of that Lease become old."""
        gate = w.gates[number]
        whose = g
        if self.without.lock_holder:
            whose = ANY if self.asked_lease(w, name_gateway(g), number) == g else -2
        seats = tuple((uid, self.age(seat, whose), order) for uid, seat, order in gate.seats)
        calls = tuple((uid, key, self.age_call(payload, whose), s, o) for uid, key, payload, s, o in gate.calls)
        gate = gate._replace(seats=seats, calls=calls)
        if number != g:
            return gate
        slow = None if gate.slow is None else (gate.slow[0], gate.slow[1], OLD)
        return gate._replace(lease=OLD, slow=slow)

    def age(self, seat_number: int, g: int) -> int:
        key = (seat_number, g)
        if key not in self.aged:
            self.aged[key] = self.number(change_seat(self.values[seat_number], lambda one: age_proof(one, g)))
        return self.aged[key]

    def age_call(self, payload: int, g: int) -> int:
        action = self.values[payload]
        if isinstance(action, BreakLease) and g in (ANY, int(action.incarnation[-1])):
            return self.number(replace(action, lease=replace(action.lease, version=OLD)))
        return payload

    def tenure_steps(self, w: World, g: int, gate: Gate) -> Iterator[Edge]:
        if not self.scope.ticks:
            return
        if w.budget.lease_gone and w.leases[g] == "live":
            gone = self.write_lease(w, g, "absent")
            yield f"somebody deletes the Lease of {name_gateway(g)}", False, spend(gone, "lease_gone")
        if self.without.reads_after_claim and g == 1 and w.leases[0] == "live":
            if w.early == -1:
                yield "gateway1 looks at the Lease of gateway0 before any claim", False, w._replace(early=0)
            if w.early == 2:
                yield "gateway1 looks again, and believes gateway0 out", False, w._replace(early=BELIEVED)
        if g not in self.scope.shaky:
            return
        me = name_gateway(g)
        if gate.ends <= 0 and not self.without.tenure:
            new = w
            for uid, number, _ in gate.seats:
                if self.values[number].tenure is not None:
                    new = self.feed_known(new, g, uid, TenureEnded())
            yield f"{me} notices that its tenure has ended", True, new
        if gate.slow is None:
            if gate.ends <= 1:
                yield f"{me} renews", True, self.renew(self.listed(w, g), g)
            if w.budget.slow:
                slow = self.listed(w, g)
                slow = put_gate(slow, g, slow.gates[g]._replace(slow=(0, "sent", slow.gates[g].lease)))
                yield f"{me} sends a slow renewal", False, spend(slow, "slow")
        else:
            yield from self.slow_steps(w, g, gate, gate.slow)

    def slow_steps(self, w: World, g: int, gate: Gate, slow: tuple[int, str, str]) -> Iterator[Edge]:
        me = name_gateway(g)
        sent, stage, version = slow
        if stage == "sent":
            if w.leases[g] == "live" and version == PRESENT:
                new = self.write_lease(w, g, "live")
                new = put_gate(new, g, new.gates[g]._replace(slow=(sent, "landed", PRESENT)))
            else:
                new = put_gate(w, g, gate._replace(slow=(sent, "refused", version)))
            yield f"the slow renewal of {me} lands", True, new
        else:
            answer = Renewed(version) if stage == "landed" else RenewalConflict()
            new = put_gate(w, g, gate._replace(slow=None))
            label = f"{me} has the answer to its slow renewal: {type(answer).__name__}"
            yield label, True, self.judge(new, g, answer, sent * SECOND)

    def listed(self, w: World, g: int) -> World:
        """Let the list that goes with a renewal speak: what it knows more about is doubted."""
        view: ObjectView | None = self.values[w.obj]
        mine = view is not None and view.lock is not None and view.lock.incarnation == name_gateway(g)
        listed = [Listed(view.uid, view.generation, deleting=view.deleting)] if mine and view is not None else []
        for uid, number, _ in w.gates[g].seats:
            seat: Seat = self.values[number]
            speaks = any(isinstance(one.phase, Speaking) for one in seat.speakers)
            if seat.view is not None and speaks and judge_list({seat.uid: seat.view}, listed):
                w = self.feed_known(w, g, uid, Doubted())
        return w

    def renew(self, w: World, g: int) -> World:
        """Renew at once: sent, landed and answered in one step."""
        if w.leases[g] != "live" or w.gates[g].lease != PRESENT:
            return self.judge(w, g, RenewalConflict(), ZERO)
        w = self.write_lease(w, g, "live")
        return self.judge(w, g, Renewed(PRESENT), ZERO)

    def judge(self, w: World, g: int, answer: Any, sent: timedelta) -> World:
        gate = w.gates[g]
        term = self.term(gate, g)
        verdict = judge_renewal(term, answer, sent=sent, now=ZERO, rules=self.rules)
        if isinstance(verdict, ReadOwnLease):
            look = self.look_at_lease_plainly(w, g)
            own = judge_own_lease(term, look)
            if isinstance(own, IncarnationOver):
                return self.drop(w, g)
            return put_gate(w, g, gate._replace(lease=own.term.lease.version))
        if isinstance(verdict, TenureGoesOn | TenureBegins):
            ends = max(-1, int(verdict.term.ends / SECOND))
            moved = gate._replace(ends=ends, number=verdict.term.number, lease=verdict.term.lease.version)
            if isinstance(verdict, TenureBegins):
                if not w.budget.revive:
                    return w
                w = spend(w, "revive")
            w = put_gate(w, g, moved)
            if isinstance(verdict, TenureBegins):
                for uid, _, _ in gate.seats:
                    w = self.feed_known(w, g, uid, TenureBegan(verdict.term.number))
            return w
        raise AssertionError(verdict)

    def look_at_lease_plainly(self, w: World, g: int) -> LeaseView | NoLease:
        if w.leases[g] == "absent":
            return NoLease()
        return LeaseView("lease", PRESENT, "" if w.leases[g] == "broken" else name_gateway(g))

    def drop(self, w: World, g: int) -> World:
        """End an incarnation: everything is aborted, and what was sent may still land."""
        gate = w.gates[g]
        ghosts = [payload for _, _, payload, stage, _ in gate.calls if not stage and self.is_write(payload)]
        for uid, _, _ in gate.seats:
            w = self.feed_known(w, g, uid, IncarnationEnded())
        over = w.gates[g]._replace(alive=False, seats=(), calls=(), queue=(), channels=(), slow=None)
        return put_gate(w, g, over)._replace(ghosts=tuple(sorted((*w.ghosts, *ghosts))))

    def tick(self, w: World) -> World:
        gates = []
        for gate in w.gates:
            seats = tuple((uid, self.shift(number), order) for uid, number, order in gate.seats)
            slow = None if gate.slow is None else (max(-3, gate.slow[0] - 1), gate.slow[1], gate.slow[2])
            ends = max(-1, gate.ends - 1)
            channels = gate.channels
            if ends <= 0 and gate.ends > 0:
                channels = tuple((uid, key, EXCUSED, draining) for uid, key, _, draining in channels)
            gates.append(gate._replace(seats=seats, slow=slow, ends=ends, channels=channels))
        new = w._replace(gates=tuple(gates), early=min(2, w.early + 1) if w.early in (0, 1) else w.early)
        for g, gate in enumerate(new.gates):
            if gate.alive and g not in self.scope.shaky:
                new = self.renew(self.listed(new, g), g)
        return w if new == w else new

    def shift(self, seat_number: int) -> int:
        if seat_number not in self.shifted:
            gap = int(SMALL.proof_gap / SECOND)
            seat = change_seat(self.values[seat_number], lambda one: shift_speaker(one, gap))
            self.shifted[seat_number] = self.number(seat)
        return self.shifted[seat_number]

    # --- sweeping, people, the operator ---

    def sweep_steps(self, w: World, g: int, gate: Gate) -> Iterator[Edge]:
        if w.obj == 0 or self.without.own_sweep:
            return
        seats = [self.values[number] for uid, number, _ in gate.seats if uid == w.uid]
        open_ids = find_open_ids(seats[0]) if seats else frozenset()
        dead = frozenset(name_gateway(at) for at, lease in enumerate(w.leases) if lease == "broken")
        swept = plan_sweep(self.values[w.obj], incarnation=name_gateway(g), open_ids=open_ids, dead=dead)
        if swept is not None:
            new, _ = self.write(w, self.number(json.dumps(swept.patch)))
            what = "lock" if isinstance(swept, ClearLock) else "name"
            yield f"{name_gateway(g)} sweeps a {what} without a socket", True, new

    def people(self, w: World) -> Iterator[Edge]:
        if w.obj == 0:
            if w.budget.delete:
                uid = w.uid + 1
                named = w.before if self.scope.recreate == "back" else None
                view = ObjectView(f"object{uid}", 1, 0, attached=named is not None, active_socket_id=named)
                new = self.change(w._replace(uid=uid), self.number(view))
                yield "the object is created again", False, spend(new, "delete")
            return
        view = self.values[w.obj]
        if w.budget.delete and not view.deleting:
            gone = replace(view, deleting=True, generation=view.generation + 1)
            yield "the object is deleted", False, spend(self.change(w, self.number(gone)), "delete")
        if w.budget.hand and not view.deleting:
            for hand in self.scope.hands:
                new_view = by_hand(view, hand, w.before)
                if new_view is not None:
                    yield f"a hand: {hand}", False, spend(self.change(w, self.number(new_view)), "hand")

    def operator(self, w: World) -> Iterator[Edge]:
        view = self.values[w.obj]
        if view is None:
            return
        dead = frozenset(name_gateway(at) for at, lease in enumerate(w.leases) if lease == "broken")
        if view.deleting and (self.without.finalizer or isinstance(judge_release(view, dead=dead), ReleaseNow)):
            yield "the operator lets the object go", True, self.change(w, 0)

    # --- tidying ---

    def tidy(self, w: World) -> World:
        """Bring a state into its one form: events that say nothing new are left out, and orders are counted anew."""
        gates = [gate._replace(queue=self.find_news(gate)) if gate.queue else gate for gate in w.gates]
        orders = {w.order}
        for gate in gates:
            orders.update(order for _, _, order in gate.seats)
            orders.update(order for order, _ in gate.queue)
            orders.update(call[4] for call in gate.calls)
        if len(orders) == w.order + 1:
            return w._replace(gates=tuple(gates))
        rank = {order: at for at, order in enumerate(sorted(orders))}
        gates = [
            gate._replace(
                seats=tuple((uid, number, rank[order]) for uid, number, order in gate.seats),
                queue=tuple((rank[order], obj) for order, obj in gate.queue),
                calls=tuple((uid, key, payload, stage, rank[order]) for uid, key, payload, stage, order in gate.calls),
            )
            for gate in gates
        ]
        return w._replace(order=rank[w.order], gates=tuple(gates))

    def find_news(self, gate: Gate) -> tuple[tuple[int, int], ...]:
        """Give the events of a watch that its receiver does not know of already."""
        known = {uid: order for uid, _, order in gate.seats}
        return tuple(
            (order, obj)
            for order, obj in gate.queue
            if known.get(-obj - 1 if obj < 0 else int(self.values[obj].uid[-1]), order) < order
        )

    def land_ghost(self, w: World, ghost: int) -> World:
        new, _ = self.write(w, self.values[ghost][2])
        return new

    def tell(self, ghost: int) -> str:
        kind, key, _ = self.values[ghost]
        return f"socket {key}'s {kind.__name__}"

    # --- the search ---

    def waiting_sockets(self, w: World) -> Iterator[tuple[int, bool]]:
        """Give every socket of a living gateway, and whether it waits to speak."""
        for gate in w.gates:
            if not gate.alive or gate.ends <= 0:
                continue
            for _, number, _ in gate.seats:
                for speaker in self.values[number].speakers:
                    yield speaker.key, speaker.ending is None and not isinstance(speaker.phase, Speaking)

    def start(self) -> World:
        """Begin, and take the steps of the prelude."""
        w = self.tidy(self.begin())
        for wanted in self.scope.prelude:
            (w,) = (new for label, _, new in self.successors(w) if label == wanted)
        return w

    def explore(self, *, limit: int = 10**9, seek_stuck: bool = True) -> Found:
        """Search breadth first, up to so many states; a broken invariant ends it."""
        start = self.start()
        known: dict[World, int] = {start: 0}
        states = [start]
        origin: list[tuple[int, str]] = [(-1, "")]
        backward: list[list[int]] = [[]]
        edges = spoke = 0
        todo = deque([0])
        while todo:
            at = todo.popleft()
            for label, fair, new in self.successors(states[at]):
                edges += 1
                number = known.get(new)
                if number is None:
                    number = known[new] = len(states)
                    states.append(new)
                    origin.append((at, label))
                    backward.append([])
                    todo.append(number)
                    if new.broken:
                        return Found(len(states), edges, False, trace(origin, number), None, spoke)
                    spoke += new.top > states[at].top
                if fair and seek_stuck:
                    backward[number].append(at)
            if len(states) >= limit:
                return Found(len(states), edges, False, None, None, spoke)
        stuck = self.find_stuck(states, backward) if seek_stuck else None
        return Found(len(states), edges, True, None, None if stuck is None else trace(origin, stuck), spoke)

    def find_stuck(self, states: list[World], backward: list[list[int]]) -> int | None:
        """
        Find the first state in which a living socket waits, and from which no fair way leads to its end of waiting.

        It has ended where it speaks, was told, or its own gateway is without a right to speak; going in circles on the
        server's refusals for ever does not count.
        """
        waits: dict[int, set[int]] = {}
        for number, w in enumerate(states):
            for key, is_waiting in self.waiting_sockets(w):
                if is_waiting:
                    waits.setdefault(key, set()).add(number)
        for waiting in waits.values():
            good = [number for number in range(len(states)) if number not in waiting]
            reached = set(good)
            while good:
                for earlier in backward[good.pop()]:
                    if earlier not in reached:
                        reached.add(earlier)
                        good.append(earlier)
            left = sorted(waiting - reached)
            if left:
                return left[0]
        return None


# --- small parts ------------------------------------------------------------------------------------------------------

ANSWERS: Final[dict[type, Any]] = {
    SendClaim: ClaimAnswered,
    SendLock: LockAnswered,
    SendClear: ClearAnswered,
    SendWithdrawal: WithdrawAnswered,
}

TIMERS: Final[dict[type, TimerName]] = {
    Pausing: TimerName.RETRY,
    Waiting: TimerName.POLL,
    Settling: TimerName.SETTLE,
    Draining: TimerName.PONG,
}


def trace(origin: list[tuple[int, str]], number: int) -> tuple[str, ...]:
    labels = []
    while number > 0:
        number, label = origin[number]
        labels.append(label)
    return tuple(reversed(labels))


def put(items: tuple[Any, ...], at: int, item: Any) -> tuple[Any, ...]:
    return (*items[:at], item, *items[at + 1 :])


def put_gate(w: World, g: int, gate: Gate) -> World:
    return w._replace(gates=put(w.gates, g, gate))


def spend(w: World, name: str) -> World:
    return w._replace(budget=w.budget._replace(**{name: getattr(w.budget, name) - 1}))


def add_call(gate: Gate, call: tuple[int, int, int, int, int]) -> Gate:
    return gate._replace(calls=tuple(sorted((*gate.calls, call))))


def find_channel(gate: Gate, uid: int, key: int) -> tuple[int, int, tuple[int, int], bool] | None:
    for channel in gate.channels:
        if channel[:2] == (uid, key):
            return channel
    return None


def drop_channel(gate: Gate, uid: int, key: int, *, keep: Any = None) -> Gate:
    channels = [channel for channel in gate.channels if channel[:2] != (uid, key)]
    return gate._replace(channels=tuple(sorted([*channels, keep] if keep else channels)))


def change_seat(seat: Seat, change: Callable[[Any], Any]) -> Seat:
    return replace(seat, speakers=tuple(change(speaker) for speaker in seat.speakers))


def keep_all(seat: Seat, tenure: int) -> Seat:
    """Let a new tenure take over what the old one knew, as if it had never ended."""

    def keep(speaker: Any) -> Any:
        if isinstance(speaker.phase, Speaking | Locking | Reading):
            return replace(speaker, phase=replace(speaker.phase, tenure=tenure))
        return speaker

    return replace(change_seat(seat, keep), tenure=tenure)


def age_proof(speaker: Any, g: int) -> Any:
    proof = speaker.proof
    if proof is None or g not in (ANY, int(proof.incarnation[-1])) or not isinstance(proof.first, LeaseView):
        return speaker
    return replace(speaker, proof=replace(proof, first=replace(proof.first, version=OLD)))


def shift_speaker(speaker: Any, gap: int) -> Any:
    """Let one step of time pass; what is long ago enough is not told apart any more."""
    due = max(ZERO, speaker.lease_due - SECOND)
    proof = speaker.proof
    if proof is not None and proof.first is not None:
        proof = replace(proof, first_at=max(-gap * SECOND, proof.first_at - SECOND))
    return replace(speaker, lease_due=due, proof=proof)


def has_view(event: Any) -> bool:
    return find_view(event) is not None


def find_view(event: Any) -> ObjectView | None:
    """Give the object that an event shows."""
    if isinstance(event, Arrived | Told | ObjectRead):
        return event.view
    answer = getattr(event, "answer", None)
    return answer.view if isinstance(answer, Accepted) else None


def show(event: Any, view: ObjectView) -> Any:
    """Let an event show another view."""
    if isinstance(event, Arrived | Told | ObjectRead):
        return replace(event, view=view)
    return replace(event, answer=Accepted(view))


def hide_lock(event: Any, me: str) -> Any:
    """Show the lock as free where it is not one's own gateway's."""
    view = find_view(event)
    assert view is not None
    if view.lock is None or view.lock.incarnation == me:
        return event
    return show(event, replace(view, lock=None))


def place(event: Any, version: int) -> Any:
    """Give the view in an event its place relative to what its receiver knows."""
    view = find_view(event)
    assert view is not None
    return show(event, replace(view, version=version))


def describe(event: Any) -> str:
    return f"{type(event).__name__} {type(event.answer).__name__}"


def by_hand(view: ObjectView, hand: str, before: str | None) -> ObjectView | None:
    """Give what a person with kubectl makes of an object; None where it would change nothing."""
    moved = view.generation + 1
    match hand:
        case "revoke":
            return replace(view, generation=moved, active_socket_id="") if view.active_socket_id else None
        case "foreign":
            return replace(view, generation=moved, active_socket_id="by-hand", attached=True)
        case "back":
            if before in (None, view.active_socket_id):
                return None
            return replace(view, generation=moved, active_socket_id=before, attached=True)
        case "detach":
            return replace(view, generation=moved, attached=False) if view.attached else None
        case "edit":
            return replace(view, generation=moved)
        case "terminate":
            return None if view.terminated else replace(view, generation=moved, terminated=True)
        case _:
            raise AssertionError(hand)


READERS: Final[dict[str, Callable[[ObjectView], Any]]] = {
    "/metadata/uid": lambda view: view.uid,
    "/metadata/generation": lambda view: view.generation,
    "/metadata/deletionTimestamp": lambda view: "set" if view.deleting else None,
    "/spec/activeSocketId": lambda view: view.active_socket_id,
    "/status/socket": lambda view: view.lock,
}


def apply_patch(view: ObjectView, patch: list[dict[str, Any]]) -> ObjectView | None:
    """Do as the API server does with the patches of the fence: all tests hold, or nothing happens."""
    new = view
    for one in patch:
        path, value = one["path"], one.get("value")
        match one["op"]:
            case "test":
                wanted: str | int | Lock | None = read_lock(value) if path == "/status/socket" else value
                if READERS[path](view) != wanted:
                    return None
            case "remove":
                assert path == "/status/socket"
                new = replace(new, lock=None)
            case "add" if path == "/status/socket":
                new = replace(new, lock=read_lock(value))
            case "add" if path == "/spec/activeSocketId":
                new = replace(new, active_socket_id=value)
            case "add" if path == "/spec/attached":
                new = replace(new, attached=bool(value))
            case _:
                raise AssertionError(one)
    spec_moved = (new.active_socket_id, new.attached) != (view.active_socket_id, view.attached)
    return replace(new, generation=view.generation + 1) if spec_moved else new

"""
The fence: which socket of a gateway may send into a terminal, decided per object. Pure.

Problem: two people, or two replicas of a gateway, may believe at the same moment that they speak for one terminal; what
each of them types arrives in an order that nobody chose. Promise: **no input of an older epoch goes upstream after the
first input of a newer one**, where an epoch is the object's uid and the generation that the write of the lock tested;
and a socket that waits to speak is not left waiting: it speaks, or is told why not.

Source: gateway.md 1 to 4 (docs/fence.md tells it to a stranger). Every rule is model-checked in
tests/plan/test_fence_model.py, which drives exactly these functions.

How a gateway process uses it
-----------------------------

One `Seat` per terminal (keyed by uid) and gateway process; one `Speaker` in it per client socket that wants to type.
Read-only viewers have none. The process carries out actions and feeds events, and decides nothing itself::

    seat = take_seat(uid, incarnation, tenure=term.number)          # tenure=None: no Lease yet, or it is out
    seat, actions = step(seat, event, now=boottime)                 # total; never raises
    verdict = judge_input(seat, key, term=term, now=boottime)       # Pass | Hold | Refuse(ending), for every frame

Events: `Arrived` (with a consistent read of the object), `Left`, `Finished` (an ending that the process found: exit,
token, right, too slow), `Rang`; answers to calls: `ObjectRead`, `ReadFailed`, `ClaimAnswered`, `LockAnswered`,
`ClearAnswered`, `WithdrawAnswered`, `LeaseWasRead`, `LeaseReadFailed`, `LeaseWasBroken`; from the watch and the list:
`Told` (a newer object), `Doubted` (the list or a DELETED event says that we may know too little); from upstream:
`UpstreamClosed` (with the bytes that no pong confirmed); from the Lease: `TenureEnded`, `TenureBegan`,
`IncarnationEnded`; `ShutDown`.

Actions: `ReadObject`, `SendClaim`, `SendLock`, `SendClear`, `SendWithdrawal`, `ReadLease`, `BreakLease`, `SetTimer`,
`LetSpeak`, `PauseInput`, `DrainUpstream`, `AbortUpstream`, `CountUndrained`, `CloseClient`, `Forget`, `EndIncarnation`.

The contract of the process:

* A speaker has at most one call to the API server under way, and each call is answered by exactly one event, lost ones
  too (`Lost`, `ReadFailed`, ...). An answer that comes after the call was given up is dropped.
* `SetTimer` with a name that already runs replaces it.
* `DrainUpstream` and `AbortUpstream` are each answered by `UpstreamClosed`; where there is no upstream, at once with 0.
* After `LetSpeak` the process opens the upstream that can type, if there is none, by its plan for reconnecting
  (`plan.reconnect`), drops its replay, and sends what was kept. It may open it again only while `judge_input` passes.
* `TenureEnded` is fed to every seat when the tenure runs out, `TenureBegan` when `judge_renewal` gives `TenureBegins`;
  in between the frames are refused by `judge_input` anyway, which looks at the clock.
* The times of `Rang` do not matter for the invariant, only the two that `fence_tenure` measures do.

The rest of the family
----------------------

* `fence_ids`: `make_socket_id`, `read_socket_name`, `find_incarnation`
* `fence_objects`: `ObjectView`, `Lock`, `GatewayEntry`, `LeaseView`, `NoLease`; `view_object`, `view_lease`
* `fence_patches`: `build_claim`, `build_lock`, `build_clear_lock`, `build_withdrawal`, `build_entry`,
  `build_drop_entry`, `build_release`, `name_lease`
* `fence_tenure`: `TenureRules`, `Term`, `begin_term`, `is_in_tenure`, `may_renew`, `judge_renewal`, `judge_own_lease`,
  `judge_list`, `find_unknown`, `Proof`, `judge_lease`, `judge_break`
* `fence_upstream`: `Flow`, `may_send`, `note_sent`, `is_ping_due`, `note_ping`, `note_pong`, `is_quiet`, `judge_buffer`
* `fence_closing`: `Ending`, `CLOSINGS`, `describe_closing`
* `fence_sweep`: `plan_sweep`, `find_open_ids`, `may_delete_lease`
* `fence_presence` (the operator's side): `judge_presence`, `judge_release`, `judge_fenced`, `plan_status_sweep`,
  `find_incarnations`
"""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.plan.fence_closing import Ending
from controller.plan.fence_ids import ForeignSocket, NeverClaimed, OurSocket, Revoked, make_socket_id, read_socket_name
from controller.plan.fence_objects import LeaseLook, LeaseView, Lock, ObjectView
from controller.plan.fence_patches import (
    JsonPatch,
    build_claim,
    build_clear_lock,
    build_lock,
    build_withdrawal,
)
from controller.plan.fence_tenure import (
    RULES,
    BreakAnswer,
    BreakNow,
    Proof,
    ProofStep,
    ProvenOut,
    ReadLeaseAgain,
    TenureRules,
    Term,
    is_in_tenure,
    judge_break,
    judge_lease,
)
from controller.plan.fence_upstream import BUFFER_TIME, PONG_WAIT, SETTLE_WAIT

TRIES: Final = 20
"""So often a claim, and a lock, is tried when the object has moved on in between."""

RETRY_WAIT: Final = timedelta(milliseconds=500)
"""Until a call that failed is made again."""

POLL_WAIT: Final = timedelta(seconds=1)
"""
Who waits for a lock reads the object this often, since a watch may be dead; and asks for the holder's Lease only after
this, since a holder that lives lets go within a round trip.
"""

CLEAR_LIMIT: Final = timedelta(seconds=10)
"""A gateway that cannot clear a lock for this long ends its incarnation, so that others may prove it out."""


# --- the state --------------------------------------------------------------------------------------------------------


class TimerName(StrEnum):
    """What a timer is for."""

    PATIENCE = "Patience"
    """From the arrival: until then it speaks, or is told no."""
    RETRY = "Retry"
    POLL = "Poll"
    PONG = "Pong"
    SETTLE = "Settle"


@dataclass(frozen=True, slots=True)
class Reading:
    """
    A read of the object is under way.

    Args:
        tenure: In which it was sent; a lock is believed only if read in the running one.
        again: What it gives is not new enough any more: read once more.
    """

    tenure: int | None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Claiming:
    """The claim is under way."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The spec names it, and the lock is somebody else's, or there is no tenure; it looks again by a timer."""


@dataclass(frozen=True, slots=True)
class AskingLease:
    """A read of the holder's Lease is under way."""


@dataclass(frozen=True, slots=True)
class Breaking:
    """The breaking of the holder's Lease is under way."""


@dataclass(frozen=True, slots=True)
class Locking:
    """The write of the lock is under way, sent in that tenure."""

    tenure: int


@dataclass(frozen=True, slots=True)
class Pausing:
    """A call failed; the object is read after a while."""


@dataclass(frozen=True, slots=True)
class Speaking:
    """It holds the lock, as seen in that tenure, and speaks while that lasts."""

    tenure: int


@dataclass(frozen=True, slots=True)
class Draining:
    """Its input has stopped; its upstream is being quieted and closed."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Its upstream was lost with bytes on the way; the lock is kept until they can be expected to have gone."""


@dataclass(frozen=True, slots=True)
class Clearing:
    """The clearing of its lock is under way."""


@dataclass(frozen=True, slots=True)
class Withdrawing:
    """The clearing of its name from the spec is under way."""


Phase = (
    Reading
    | Claiming
    | Waiting
    | AskingLease
    | Breaking
    | Locking
    | Pausing
    | Speaking
    | Draining
    | Settling
    | Clearing
    | Withdrawing
)

_CALLS: Final = (Reading, Claiming, AskingLease, Breaking, Locking, Clearing, Withdrawing)


@dataclass(frozen=True, slots=True)
class Speaker:
    """
    One socket that wants to type.

    Args:
        key: The process's own handle.
        luck: The random part of its id.
        takeover: It may replace somebody who speaks.
        phase: What it waits for.
        dead: Incarnations that were proven out when it came; whom they named, nobody holds.
        socket_id: The id of its last claim.
        claimed: That claim was seen in the spec.
        tries: How often the object had moved on.
        upstream: An upstream that can type may be open.
        tainted: An upstream of it was lost with bytes on the way, which may still arrive.
        proof: How far the proof of the holder's death has come.
        lease_due: When the holder's Lease is read next.
        proven: The incarnation that was proven out.
        ending: Why it leaves; its client was told.
        clearing_since: Since when its lock should be cleared.
    """

    key: int
    luck: str
    takeover: bool
    phase: Phase
    dead: frozenset[str] = frozenset()
    socket_id: str | None = None
    claimed: bool = False
    tries: int = 0
    upstream: bool = False
    tainted: bool = False
    proof: Proof | None = None
    lease_due: timedelta = timedelta(0)
    proven: str | None = None
    ending: Ending | None = None
    clearing_since: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Seat:
    """
    What one gateway process knows of one terminal.

    Args:
        uid: Of the object; a successor of the same name has a seat of its own.
        incarnation: The gateway process.
        view: The newest view of the object.
        gone: A consistent read said that this uid is gone.
        tenure: The number of the running tenure; None where there is none.
        closing: The process goes; nobody is let in any more.
        speakers: In the order in which they came.
    """

    uid: str
    incarnation: str
    view: ObjectView | None = None
    gone: bool = False
    tenure: int | None = None
    closing: bool = False
    speakers: tuple[Speaker, ...] = ()


def take_seat(uid: str, incarnation: str, *, tenure: int | None) -> Seat:
    """Begin with an object of which nothing is known yet."""
    return Seat(uid, incarnation, tenure=tenure)


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """
    A socket asks to speak. `view` is a consistent read, made after it was let in by the door.

    `dead` are the incarnations that this process knows to be proven out; without a takeover they hold nothing.
    """

    key: int
    luck: str
    view: ObjectView
    takeover: bool = False
    dead: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Left:
    """The client went."""

    key: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The process found a reason to end this socket."""

    key: int
    ending: Ending


@dataclass(frozen=True, slots=True)
class Rang:
    """A timer ran out."""

    key: int
    timer: TimerName


@dataclass(frozen=True, slots=True)
class ObjectRead:
    """A consistent read that was asked for by this speaker. None: there is no object of that name."""

    key: int
    view: ObjectView | None


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """It failed, or its answer was lost."""

    key: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """2xx, with the object as it is now."""

    view: ObjectView


@dataclass(frozen=True, slots=True)
class TestFailed:
    """422 without causes, or 409: the object has moved on. Read again."""


@dataclass(frozen=True, slots=True)
class RuleSpoke:
    """422 with causes, or a plain refusal (400, 401, 403): told to the person, not repeated."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """404."""


@dataclass(frozen=True, slots=True)
class NotNow:
    """It surely did not happen, and may later: 429, or no connection."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Nobody knows whether it happened, or will: no answer in time, a cut connection, a 5xx. A read settles it."""


Answer = Accepted | TestFailed | RuleSpoke | ObjectGone | NotNow | Lost


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    """The answer to `SendClaim`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class LockAnswered:
    """The answer to `SendLock`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class ClearAnswered:
    """The answer to `SendClear`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class WithdrawAnswered:
    """The answer to `SendWithdrawal`."""

    key: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class LeaseWasRead:
    """The answer to `ReadLease`: consistent, sent at `started`."""

    key: int
    look: LeaseLook
    started: timedelta


@dataclass(frozen=True, slots=True)
class LeaseReadFailed:
    """It failed, or its answer was lost."""

    key: int


@dataclass(frozen=True, slots=True)
class LeaseWasBroken:
    """The answer to `BreakLease`."""

    key: int
    answer: BreakAnswer


@dataclass(frozen=True, slots=True)
class Told:
    """The watch shows the object, or some answer to another call did. An older view than the known one says nothing."""

    view: ObjectView


@dataclass(frozen=True, slots=True)
class Doubted:
    """The list of what we hold, or a DELETED event, says that we may know too little: stop input and read."""


@dataclass(frozen=True, slots=True)
class UpstreamClosed:
    """The upstream that can type is closed, for whatever reason; so many bytes were never confirmed."""

    key: int
    unconfirmed_bytes: int


@dataclass(frozen=True, slots=True)
class TenureEnded:
    """The tenure ran out."""


@dataclass(frozen=True, slots=True)
class TenureBegan:
    """A tenure began, after one that ended or as the first."""

    number: int


@dataclass(frozen=True, slots=True)
class IncarnationEnded:
    """This incarnation is out for good: every socket goes, and nothing is written any more."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The process was asked to go: it lets go of everything in order."""


Event = (
    Arrived
    | Left
    | Finished
    | Rang
    | ObjectRead
    | ReadFailed
    | ClaimAnswered
    | LockAnswered
    | ClearAnswered
    | WithdrawAnswered
    | LeaseWasRead
    | LeaseReadFailed
    | LeaseWasBroken
    | Told
    | Doubted
    | UpstreamClosed
    | TenureEnded
    | TenureBegan
    | IncarnationEnded
    | ShutDown
)


# --- actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadObject:
    """Read the object consistently (GET without a resourceVersion)."""

    key: int


@dataclass(frozen=True, slots=True)
class SendClaim:
    """Patch the main resource."""

    key: int
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class SendLock:
    """
    Patch the status subresource; `build` makes the patch, with the moment that is stored in it.

    `former` is the dead holder's lock that is replaced, None where the lock was free.
    """

    key: int
    base: ObjectView
    lock: Lock
    former: Lock | None

    def build(self, *, since: str | None) -> JsonPatch:
        """Build the patch, with the moment as it will be stored."""
        return build_lock(self.base, replace(self.lock, since=since))


@dataclass(frozen=True, slots=True)
class SendClear:
    """Patch the status subresource: clear this very lock."""

    key: int
    lock: Lock
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class SendWithdrawal:
    """Patch the main resource: clear this very name."""

    key: int
    socket_id: str
    patch: JsonPatch = field(hash=False)


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the Lease of an incarnation consistently."""

    key: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class BreakLease:
    """Write an empty holder over this very version (PUT with its uid and resourceVersion)."""

    key: int
    incarnation: str
    lease: LeaseView


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `Rang` after a while."""

    key: int
    timer: TimerName
    after: timedelta


@dataclass(frozen=True, slots=True)
class LetSpeak:
    """It holds the lock: open its upstream if there is none, and send what was kept."""

    key: int


@dataclass(frozen=True, slots=True)
class PauseInput:
    """Keep what it types; `LetSpeak` or an end follows."""

    key: int


@dataclass(frozen=True, slots=True)
class DrainUpstream:
    """Send no further frame; ping, wait for the pong, close."""

    key: int


@dataclass(frozen=True, slots=True)
class AbortUpstream:
    """`transport.abort()`, at once."""

    key: int


@dataclass(frozen=True, slots=True)
class CountUndrained:
    """Count a lock that is let go although bytes were on the way."""

    key: int
    unconfirmed_bytes: int


@dataclass(frozen=True, slots=True)
class CloseClient:
    """Tell the client why, and close its socket; or answer its upgrade. `detail` is a rule's own sentence."""

    key: int
    ending: Ending
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing is left of this speaker."""

    key: int


@dataclass(frozen=True, slots=True)
class EndIncarnation:
    """A lock could not be cleared for too long: end the incarnation, so that others may prove it out."""


Action = (
    ReadObject
    | SendClaim
    | SendLock
    | SendClear
    | SendWithdrawal
    | ReadLease
    | BreakLease
    | SetTimer
    | LetSpeak
    | PauseInput
    | DrainUpstream
    | AbortUpstream
    | CountUndrained
    | CloseClient
    | Forget
    | EndIncarnation
)

Step = tuple[Seat, tuple[Action, ...]]


# --- the predicates ---------------------------------------------------------------------------------------------------


def is_active(active: str | None, socket_id: str | None) -> bool:
    """
    Tell whether what the spec says names a socket: one predicate for frames, recovery and closes.

    Absent means that the terminal was never claimed: only a socket without an id may take itself for active, and no
    socket of ours is without one. Empty names nobody, and empty never equals empty.
    """
    match read_socket_name(active):
        case NeverClaimed():
            return socket_id is None
        case Revoked():
            return False
        case OurSocket() | ForeignSocket():
            return active == socket_id


def is_named(view: ObjectView, socket_id: str | None) -> bool:
    """Tell whether a socket of ours is the one that may speak, as far as the spec goes (the first mark)."""
    open_to_input = view.attached and not view.terminated and not view.deleting
    return open_to_input and socket_id is not None and is_active(view.active_socket_id, socket_id)


def is_own_lock(lock: Lock | None, *, uid: str, incarnation: str, socket_id: str | None) -> bool:
    """Tell whether a lock is this very socket's (the second mark)."""
    return (
        lock is not None
        and lock.uid == uid
        and lock.incarnation == incarnation
        and socket_id is not None
        and lock.socket_id == socket_id
    )


def judge_unnamed(view: ObjectView, socket_id: str | None) -> Ending:
    """Say why a socket that was named is not any more."""
    if view.terminated:
        return Ending.TERMINATED
    if view.deleting:
        return Ending.DELETED
    if view.active_socket_id in (None, "", socket_id):
        return Ending.REVOKED
    return Ending.REPLACED


def is_held(active: str | None, dead: frozenset[str]) -> bool:
    """Tell whether somebody speaks already: an id of ours whose Lease is not proven out, or any foreign id."""
    match read_socket_name(active):
        case NeverClaimed() | Revoked():
            return False
        case OurSocket(incarnation=incarnation):
            return incarnation not in dead
        case ForeignSocket():
            return True


def judge_claim(view: ObjectView, *, takeover: bool, dead: frozenset[str]) -> Ending | None:
    """Say why an object may not be claimed now; None where it may."""
    if view.deleting:
        return Ending.DELETED
    if view.terminated:
        return Ending.TERMINATED
    if view.suspended:
        return Ending.SUSPENDED
    if not view.has_finalizer:
        return Ending.NOT_READY
    if not takeover and is_held(view.active_socket_id, dead):
        return Ending.HELD
    return None


def may_lock(view: ObjectView, *, proven: str | None) -> bool:
    """
    Tell whether the lock may be written: it is free, or its holder, as the lock itself names it, is proven out.

    Whom the former `activeSocketId` named does not matter: between it and us others may have spoken. No lock is taken
    on an object that is going or that nobody guards: its successor must begin without a living holder.
    """
    if view.deleting or not view.has_finalizer:
        return False
    return view.lock is None or view.lock.incarnation == proven


# --- the verdict for one frame ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pass:
    """Send it upstream now."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep it, within the bounds of `judge_buffer`."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """It changes nothing and is not acknowledged; the socket is closed (again)."""

    ending: Ending


Verdict = Pass | Hold | Refuse


def judge_input(seat: Seat, key: int, *, term: Term, now: timedelta) -> Verdict:
    """
    Decide what becomes of one frame of input: asked for each frame, directly before it is sent.

    It passes with two marks, the spec's name and the lock, both as newest known, in the tenure in which the lock was
    seen, while that tenure lasts by the clock. Total: a socket that is not among the speakers is not active.
    """
    speaker = find_speaker(seat, key)
    if speaker is None:
        return Refuse(Ending.REPLACED)
    if speaker.ending is not None:
        return Refuse(speaker.ending)
    if not isinstance(speaker.phase, Speaking) or seat.view is None:
        return Hold()
    if seat.tenure != speaker.phase.tenure or term.number != speaker.phase.tenure or not is_in_tenure(term, now=now):
        return Hold()
    marked = is_named(seat.view, speaker.socket_id) and _holds(seat, speaker)
    return Pass() if marked else Hold()


def find_speaker(seat: Seat, key: int) -> Speaker | None:
    """Find a speaker by the process's handle."""
    for speaker in seat.speakers:
        if speaker.key == key:
            return speaker
    return None


# --- the step ---------------------------------------------------------------------------------------------------------


def step(seat: Seat, event: Event, *, now: timedelta, rules: TenureRules = RULES) -> Step:
    """
    Take one event in, and say what follows. Total, and never raises: an event that does not fit changes nothing.

    Args:
        seat: The state so far.
        event: What happened.
        now: By the clock that runs on in suspend.
        rules: The numbers of the Leases.
    """
    work = _Work(seat, now, rules)
    _take(work, event)
    return work.seat, tuple(work.actions)


class _Work:
    """One step under way: the state as it becomes, and the actions so far."""

    def __init__(self, seat: Seat, now: timedelta, rules: TenureRules) -> None:
        self.seat = seat
        self.now = now
        self.rules = rules
        self.actions: list[Action] = []

    def do(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def put(self, speaker: Speaker) -> Speaker:
        speakers = tuple(speaker if known.key == speaker.key else known for known in self.seat.speakers)
        self.seat = replace(self.seat, speakers=speakers)
        return speaker

    def enter(self, speaker: Speaker, phase: Phase, *actions: Action) -> None:
        self.put(replace(speaker, phase=phase))
        self.do(*actions)

    def drop(self, key: int) -> None:
        speakers = tuple(known for known in self.seat.speakers if known.key != key)
        self.seat = replace(self.seat, speakers=speakers)
        self.do(Forget(key))


def _take(work: _Work, event: Event) -> None:
    match event:
        case Arrived():
            _arrive(work, event)
        case Told(view=view):
            _learn(work, view)
            _react(work)
        case Doubted():
            for speaker in work.seat.speakers:
                _doubt(work, speaker)
        case TenureEnded():
            _end_tenure(work)
        case TenureBegan(number=number):
            _begin_tenure(work, number)
        case IncarnationEnded():
            _end_incarnation(work)
        case ShutDown():
            work.seat = replace(work.seat, closing=True)
            for speaker in work.seat.speakers:
                _end(work, speaker, Ending.RESTARTING)
        case _:
            own = find_speaker(work.seat, event.key)
            if own is not None:
                _take_own(work, own, event)


_Answered = (
    ObjectRead
    | ReadFailed
    | ClaimAnswered
    | LockAnswered
    | ClearAnswered
    | WithdrawAnswered
    | LeaseWasRead
    | LeaseReadFailed
    | LeaseWasBroken
)
_Own = Left | Finished | Rang | UpstreamClosed | _Answered


def _take_own(work: _Work, speaker: Speaker, event: _Own) -> None:
    """Take an event of one speaker. An answer to a call that it does not wait for changes nothing."""
    match event:
        case Left():
            _end(work, speaker, Ending.LEFT)
        case Finished(ending=ending):
            _end(work, speaker, ending)
        case Rang(timer=timer):
            _ring(work, speaker, timer)
        case UpstreamClosed(unconfirmed_bytes=unconfirmed):
            _close_upstream(work, speaker, unconfirmed)
        case _:
            _take_answer(work, speaker, speaker.phase, event)


def _take_answer(work: _Work, asked: Speaker, phase: Phase, event: _Answered) -> None:
    """Take the answer to a call: whatever follows begins without one under way."""
    speaker = replace(asked, phase=Waiting())
    match event:
        case ObjectRead(view=view) if isinstance(phase, Reading):
            _take_read(work, speaker, phase, view)
        case ReadFailed() if isinstance(phase, Reading):
            _pause(work, speaker)
        case ClaimAnswered(answer=answer) if isinstance(phase, Claiming):
            _take_claim(work, speaker, answer)
        case LockAnswered(answer=answer) if isinstance(phase, Locking):
            _take_lock(work, speaker, phase, answer)
        case ClearAnswered(answer=answer) if isinstance(phase, Clearing):
            _take_clear(work, speaker, answer)
        case WithdrawAnswered(answer=answer) if isinstance(phase, Withdrawing):
            _take_withdrawal(work, speaker, answer)
        case LeaseWasRead(look=look, started=started) if isinstance(phase, AskingLease) and speaker.proof is not None:
            judged = judge_lease(speaker.proof, look, started=started, now=work.now, rules=work.rules)
            _take_proof(work, speaker, judged)
        case LeaseReadFailed() if isinstance(phase, AskingLease):
            _resume(work, replace(speaker, lease_due=work.now + POLL_WAIT), seen_in=None)
        case LeaseWasBroken(answer=answer) if isinstance(phase, Breaking) and speaker.proof is not None:
            _take_proof(work, speaker, judge_break(speaker.proof, answer))
        case _:
            pass


# --- what is known ----------------------------------------------------------------------------------------------------


def _learn(work: _Work, view: ObjectView) -> None:
    """Take a newer view in; another uid is another object and says nothing of this one here."""
    known = work.seat.view
    if view.uid == work.seat.uid and (known is None or view.version > known.version):
        work.seat = replace(work.seat, view=view)


def _react(work: _Work) -> None:
    """Let every speaker that waits for no answer look at what is known now."""
    for key in [speaker.key for speaker in work.seat.speakers]:
        speaker = find_speaker(work.seat, key)
        if speaker is None:
            continue
        if isinstance(speaker.phase, Speaking):
            _look_while_speaking(work, speaker)
        elif isinstance(speaker.phase, Waiting):
            _resume(work, speaker, seen_in=None)


def _look_while_speaking(work: _Work, speaker: Speaker) -> None:
    view = work.seat.view
    if work.seat.gone or view is None:
        _end(work, speaker, Ending.DELETED)
    elif not is_named(view, speaker.socket_id):
        _end(work, speaker, judge_unnamed(view, speaker.socket_id))
    elif not _holds(work.seat, speaker):
        _end(work, speaker, Ending.LOCK_LOST)


def _doubt(work: _Work, speaker: Speaker) -> None:
    match speaker.phase:
        case Speaking():
            speaker = replace(speaker, upstream=True)
            work.enter(speaker, Reading(work.seat.tenure), PauseInput(speaker.key), ReadObject(speaker.key))
        case Waiting():
            _read(work, speaker)
        case Reading() as reading:
            work.put(replace(speaker, phase=replace(reading, again=True)))
        case _:
            pass


def _holds(seat: Seat, speaker: Speaker) -> bool:
    lock = None if seat.view is None or seat.gone else seat.view.lock
    return is_own_lock(lock, uid=seat.uid, incarnation=seat.incarnation, socket_id=speaker.socket_id)


# --- coming -----------------------------------------------------------------------------------------------------------


def _arrive(work: _Work, event: Arrived) -> None:
    if find_speaker(work.seat, event.key) is not None:
        return
    if work.seat.closing:
        work.do(CloseClient(event.key, Ending.RESTARTING), Forget(event.key))
        return
    _learn(work, event.view)
    speaker = Speaker(event.key, event.luck, event.takeover, Waiting(), dead=event.dead)
    work.seat = replace(work.seat, speakers=(*work.seat.speakers, speaker))
    work.do(SetTimer(event.key, TimerName.PATIENCE, BUFFER_TIME))
    if event.view.uid == work.seat.uid:
        _resume(work, speaker, seen_in=None)
    else:
        _read(work, speaker)


def _resume(work: _Work, speaker: Speaker, *, seen_in: int | None) -> None:
    """
    Go on from what is known, whatever happened before: claim, lock, wait, speak, or leave.

    Args:
        work: The step.
        speaker: Without a call under way.
        seen_in: The tenure in which the call was sent whose answer is the newest view; None where no call was.
    """
    seat, view = work.seat, work.seat.view
    if speaker.ending is not None:
        _leave(work, speaker)
    elif seat.gone:
        _end(work, speaker, Ending.DELETED)
    elif view is None:
        _read(work, speaker)
    elif not is_named(view, speaker.socket_id):
        if speaker.claimed or (speaker.socket_id is not None and view.active_socket_id == speaker.socket_id):
            _end(work, speaker, judge_unnamed(view, speaker.socket_id))
        else:
            _claim(work, speaker, view)
    else:
        _go_for_lock(work, work.put(replace(speaker, claimed=True)), view, seen_in=seen_in)


def _claim(work: _Work, speaker: Speaker, view: ObjectView) -> None:
    refusal = judge_claim(view, takeover=speaker.takeover, dead=speaker.dead)
    if refusal is not None:
        _end(work, speaker, refusal)
    elif speaker.tries >= TRIES:
        _end(work, speaker, Ending.CROWDED)
    elif work.seat.tenure is None:
        # No claim before one's Lease exists: whoever waits for us must have something to prove us out by.
        _rest(work, speaker)
    else:
        incarnation = work.seat.incarnation
        socket_id = make_socket_id(generation=view.generation, incarnation=incarnation, luck=speaker.luck)
        speaker = replace(speaker, socket_id=socket_id)
        work.enter(speaker, Claiming(), SendClaim(speaker.key, build_claim(view, socket_id)))


def _take_claim(work: _Work, speaker: Speaker, answer: Answer) -> None:
    match answer:
        case Accepted(view=view):
            _learn(work, view)
            _resume(work, replace(speaker, claimed=True, tries=0), seen_in=None)
            _react(work)
        case TestFailed() | Lost():
            _read(work, replace(speaker, tries=speaker.tries + 1))
        case RuleSpoke(text=text):
            _end(work, speaker, Ending.REFUSED, text)
        case ObjectGone():
            _find_gone(work, speaker)
        case NotNow():
            _pause(work, speaker)
        case _:
            assert_never(answer)


# --- the lock ---------------------------------------------------------------------------------------------------------


def _go_for_lock(work: _Work, speaker: Speaker, view: ObjectView, *, seen_in: int | None) -> None:
    tenure = work.seat.tenure
    if _holds(work.seat, speaker):
        if tenure is None:
            _end(work, speaker, Ending.LEASE_LOST)
        elif seen_in != tenure:
            _read(work, speaker)
        else:
            speaking = replace(speaker, tries=0, proof=None, upstream=True)
            work.enter(speaking, Speaking(tenure), LetSpeak(speaker.key))
    elif tenure is None or not may_lock(view, proven=speaker.proven):
        _rest(work, speaker)
    elif speaker.tries >= TRIES:
        _end(work, speaker, Ending.CROWDED)
    else:
        lock = Lock(view.uid, view.generation, speaker.socket_id or "", work.seat.incarnation)
        work.enter(speaker, Locking(tenure), SendLock(speaker.key, view, lock, view.lock))


def _take_lock(work: _Work, speaker: Speaker, phase: Locking, answer: Answer) -> None:
    """The answer is read whole: if its spec names us no more, or we are leaving, the lock is cleared at once."""
    match answer:
        case Accepted(view=view):
            _learn(work, view)
            _resume(work, replace(speaker, tries=0), seen_in=phase.tenure)
            _react(work)
        case TestFailed() | Lost():
            _read(work, replace(speaker, tries=speaker.tries + 1))
        case RuleSpoke(text=text):
            _end(work, speaker, Ending.REFUSED, text)
        case ObjectGone():
            _find_gone(work, speaker)
        case NotNow():
            _pause(work, speaker)
        case _:
            assert_never(answer)


def _rest(work: _Work, speaker: Speaker) -> None:
    """Wait for the one who holds the lock now; read the Lease of that one when it is time."""
    lock = None if work.seat.view is None else work.seat.view.lock
    holder = None if lock is None else lock.incarnation
    if speaker.claimed and holder is not None and holder != work.seat.incarnation and work.seat.tenure is not None:
        if speaker.proof is None or speaker.proof.incarnation != holder:
            speaker = replace(speaker, proof=Proof(holder), lease_due=work.now + POLL_WAIT)
        elif work.now >= speaker.lease_due:
            work.enter(speaker, AskingLease(), ReadLease(speaker.key, holder))
            return
    else:
        speaker = replace(speaker, proof=None)
    work.enter(speaker, Waiting(), SetTimer(speaker.key, TimerName.POLL, POLL_WAIT))


def _take_proof(work: _Work, speaker: Speaker, proof: ProofStep) -> None:
    match proof:
        case ReadLeaseAgain(proof=further, after=after):
            _resume(work, replace(speaker, proof=further, lease_due=work.now + max(after, POLL_WAIT)), seen_in=None)
        case BreakNow(proof=further, lease=lease):
            speaker = replace(speaker, proof=further)
            work.enter(speaker, Breaking(), BreakLease(speaker.key, further.incarnation, lease))
        case ProvenOut(incarnation=incarnation):
            _resume(work, replace(speaker, proven=incarnation, proof=None), seen_in=None)
        case _:
            assert_never(proof)


# --- reading ----------------------------------------------------------------------------------------------------------


def _read(work: _Work, speaker: Speaker) -> None:
    work.enter(speaker, Reading(work.seat.tenure), ReadObject(speaker.key))


def _pause(work: _Work, speaker: Speaker) -> None:
    work.enter(speaker, Pausing(), SetTimer(speaker.key, TimerName.RETRY, RETRY_WAIT))


def _take_read(work: _Work, speaker: Speaker, phase: Reading, view: ObjectView | None) -> None:
    if view is None or view.uid != work.seat.uid:
        _find_gone(work, speaker)
        return
    _learn(work, view)
    if phase.again:
        _read(work, speaker)
    else:
        _resume(work, speaker, seen_in=phase.tenure)
    _react(work)


def _find_gone(work: _Work, speaker: Speaker) -> None:
    """This uid is gone for everybody here."""
    work.seat = replace(work.seat, gone=True)
    _resume(work, speaker, seen_in=None)
    _react(work)


def _ring(work: _Work, speaker: Speaker, timer: TimerName) -> None:
    """A timer of a phase that is over says nothing."""
    match timer:
        case TimerName.PATIENCE:
            if speaker.ending is None and not speaker.upstream and not isinstance(speaker.phase, Speaking):
                _end(work, speaker, Ending.LOCK_LATE)
        case TimerName.RETRY:
            if isinstance(speaker.phase, Pausing):
                _read(work, speaker)
                _give_up_clearing(work, speaker)
        case TimerName.POLL:
            if isinstance(speaker.phase, Waiting):
                _read(work, speaker)
        case TimerName.PONG:
            if isinstance(speaker.phase, Draining):
                work.do(AbortUpstream(speaker.key))
        case TimerName.SETTLE:
            settled = work.put(replace(speaker, tainted=False))
            if isinstance(speaker.phase, Settling):
                _leave(work, settled)
        case _:
            assert_never(timer)


# --- leaving ----------------------------------------------------------------------------------------------------------


def _end(work: _Work, speaker: Speaker, ending: Ending, detail: str = "") -> None:
    """Tell the client once, stop its input, and leave as soon as no call is under way."""
    if speaker.ending is None:
        speaker = work.put(replace(speaker, ending=ending))
        if ending is not Ending.LEFT:
            work.do(CloseClient(speaker.key, ending, detail))
        if not isinstance(speaker.phase, _CALLS):
            _leave(work, speaker)
        elif speaker.upstream:
            work.do(DrainUpstream(speaker.key))


def _leave(work: _Work, speaker: Speaker) -> None:
    """Let go in order: the upstream, what may still arrive, the lock, the name."""
    seat, key = work.seat, speaker.key
    if speaker.upstream or isinstance(speaker.phase, Speaking):
        timer = SetTimer(key, TimerName.PONG, PONG_WAIT)
        work.enter(replace(speaker, upstream=True), Draining(), DrainUpstream(key), timer)
    elif speaker.tainted:
        work.enter(speaker, Settling(), SetTimer(key, TimerName.SETTLE, SETTLE_WAIT))
    elif seat.gone or seat.view is None:
        work.drop(key)
    elif _holds(seat, speaker) and seat.view.lock is not None:
        since = work.now if speaker.clearing_since is None else speaker.clearing_since
        patch = build_clear_lock(seat.view.lock, uid=seat.uid)
        work.enter(replace(speaker, clearing_since=since), Clearing(), SendClear(key, seat.view.lock, patch))
    elif speaker.socket_id is not None and seat.view.active_socket_id == speaker.socket_id:
        patch = build_withdrawal(seat.uid, speaker.socket_id)
        work.enter(replace(speaker, clearing_since=None), Withdrawing(), SendWithdrawal(key, speaker.socket_id, patch))
    else:
        work.drop(key)


def _close_upstream(work: _Work, speaker: Speaker, unconfirmed: int) -> None:
    """
    Take in that the upstream is closed. Bytes that were never confirmed may still arrive for a while.

    One that broke while its socket speaks may be opened again by the process: the lock is still held.
    """
    speaking = isinstance(speaker.phase, Speaking)
    tainted = speaker.tainted or unconfirmed > 0
    speaker = work.put(replace(speaker, upstream=False, tainted=tainted))
    if unconfirmed > 0:
        if speaker.ending is not None:
            work.do(CountUndrained(speaker.key, unconfirmed))
        if speaking or isinstance(speaker.phase, Settling):
            work.do(SetTimer(speaker.key, TimerName.SETTLE, SETTLE_WAIT))
    if isinstance(speaker.phase, Draining):
        _leave(work, speaker)


def _take_clear(work: _Work, speaker: Speaker, answer: Answer) -> None:
    match answer:
        case Accepted(view=view):
            _learn(work, view)
            _leave(work, speaker)
            _react(work)
        case TestFailed() | Lost():
            _read(work, speaker)
            _give_up_clearing(work, speaker)
        case ObjectGone():
            _find_gone(work, speaker)
        case RuleSpoke() | NotNow():
            _pause(work, speaker)
            _give_up_clearing(work, speaker)
        case _:
            assert_never(answer)


def _give_up_clearing(work: _Work, speaker: Speaker) -> None:
    if speaker.clearing_since is not None and work.now - speaker.clearing_since >= CLEAR_LIMIT:
        work.do(EndIncarnation())


def _take_withdrawal(work: _Work, speaker: Speaker, answer: Answer) -> None:
    """A failed test means that the spec does not name it any more, which is all that was wanted."""
    match answer:
        case Accepted(view=view):
            _learn(work, view)
            work.drop(speaker.key)
            _react(work)
        case TestFailed() | ObjectGone():
            work.drop(speaker.key)
        case RuleSpoke() | NotNow() | Lost():
            _pause(work, speaker)
        case _:
            assert_never(answer)


# --- tenure -----------------------------------------------------------------------------------------------------------


def _end_tenure(work: _Work) -> None:
    """Every upstream is aborted and its client told; who only waits goes on waiting, and locks nothing."""
    work.seat = replace(work.seat, tenure=None)
    for key in [speaker.key for speaker in work.seat.speakers]:
        speaker = find_speaker(work.seat, key)
        if speaker is not None and (speaker.upstream or isinstance(speaker.phase, Speaking | Draining)):
            _abort(work, speaker)


def _abort(work: _Work, speaker: Speaker) -> None:
    """Cut the upstream off at once; how much was on the way comes back with `UpstreamClosed`."""
    work.do(AbortUpstream(speaker.key))
    if speaker.ending is None:
        work.do(CloseClient(speaker.key, Ending.LEASE_LOST))
    phase = speaker.phase if isinstance(speaker.phase, _CALLS) else Draining()
    work.put(replace(speaker, phase=phase, upstream=True, ending=speaker.ending or Ending.LEASE_LOST))


def _begin_tenure(work: _Work, number: int) -> None:
    """Whoever slept through the end of the last tenure ends it now; then every object is read again."""
    if work.seat.tenure is not None and work.seat.tenure != number:
        _end_tenure(work)
    work.seat = replace(work.seat, tenure=number)
    for speaker in work.seat.speakers:
        if isinstance(speaker.phase, Waiting):
            _read(work, speaker)


def _end_incarnation(work: _Work) -> None:
    for speaker in work.seat.speakers:
        if speaker.upstream or isinstance(speaker.phase, Speaking | Draining):
            work.do(AbortUpstream(speaker.key))
        if speaker.ending is None:
            work.do(CloseClient(speaker.key, Ending.LEASE_LOST))
        work.drop(speaker.key)
    work.seat = replace(work.seat, tenure=None, closing=True)

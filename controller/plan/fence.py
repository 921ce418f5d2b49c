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
* `SetTimer` with a name that already runs replaces it; `Forget` stops those of its speaker.
* `DrainUpstream` and `AbortUpstream` are each answered by `UpstreamClosed`; where there is no upstream, at once with 0.
  A drain may be asked for again while it is under way, and no answer may come before it is over: the first lets go.
* After `LetSpeak` the process opens the upstream that can type, if there is none, by its plan for reconnecting
  (`plan.reconnect`), drops its replay, and sends what was kept. It may open it again only while `judge_input` passes.
* `TenureEnded` is fed to every seat when the tenure runs out, `TenureBegan` when `judge_renewal` gives `TenureBegins`;
  in between the frames are refused by `judge_input` anyway, which looks at the clock.
* After each list, and with each read of an object that bears a lock or a name of our incarnation, `plan_sweep` is asked
  and its writes carried out: a lock whose write was believed lost may land after its socket went, unknown to all.
* The times of `Rang` do not matter for the invariant, only the two that `fence_tenure` measures do.

The rest of the family
----------------------

* `fence_state`, `fence_events`, `fence_actions`, `fence_marks`: the parts of this module; import them from here
* `fence_ids`: `make_socket_id`, `read_socket_name`, `find_incarnation`
* `fence_objects`: `ObjectView`, `Lock`, `GatewayEntry`, `LeaseView`, `NoLease`; `view_object`, `view_lease`
* `fence_patches`: `build_claim`, `build_lock`, `build_clear_lock`, `build_withdrawal`, `build_entry`,
  `build_drop_entry`, `name_lease`
* `fence_tenure`: `TenureRules`, `Term`, `begin_term`, `is_in_tenure`, `may_renew`, `judge_renewal`, `judge_own_lease`,
  `judge_list`, `find_unknown`, `Proof`, `judge_lease`, `judge_break`
* `fence_upstream`: `Flow`, `may_send`, `note_sent`, `is_ping_due`, `note_ping`, `note_pong`, `is_quiet`, `judge_buffer`
* `fence_closing`: `Ending`, `CLOSINGS`, `describe_closing`
* `fence_sweep`: `plan_sweep`, `find_open_ids`, `may_delete_lease`
* `fence_presence` (the operator's side): `judge_presence`, `judge_release`, `judge_fenced`, `plan_status_sweep`,
  `find_incarnations`
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final, assert_never

from controller.plan.fence_actions import (
    AbortUpstream,
    Action,
    BreakLease,
    CloseClient,
    CountUndrained,
    DrainUpstream,
    EndIncarnation,
    Forget,
    LetSpeak,
    PauseInput,
    ReadLease,
    ReadObject,
    SendClaim,
    SendClear,
    SendLock,
    SendWithdrawal,
    SetTimer,
)
from controller.plan.fence_closing import Ending
from controller.plan.fence_events import (
    Accepted,
    Answer,
    Arrived,
    ClaimAnswered,
    ClearAnswered,
    Doubted,
    Event,
    Finished,
    IncarnationEnded,
    LeaseReadFailed,
    LeaseWasBroken,
    LeaseWasRead,
    Left,
    LockAnswered,
    Lost,
    MovedOn,
    NotNow,
    ObjectGone,
    ObjectRead,
    Rang,
    ReadFailed,
    RuleSpoke,
    ShutDown,
    TenureBegan,
    TenureEnded,
    Told,
    UpstreamClosed,
    WithdrawAnswered,
)
from controller.plan.fence_ids import make_socket_id
from controller.plan.fence_marks import (
    Hold,
    Pass,
    Refuse,
    Verdict,
    holds_lock,
    is_active,
    is_held,
    is_named,
    is_own_lock,
    judge_claim,
    judge_input,
    judge_unnamed,
    may_lock,
)
from controller.plan.fence_objects import Lock, ObjectView
from controller.plan.fence_patches import build_claim, build_clear_lock, build_withdrawal
from controller.plan.fence_state import (
    CALLS,
    AskingLease,
    Breaking,
    Claiming,
    Clearing,
    Draining,
    Locking,
    Pausing,
    Phase,
    Reading,
    Seat,
    Settling,
    Speaker,
    Speaking,
    TimerName,
    Waiting,
    Withdrawing,
    find_speaker,
    take_seat,
)
from controller.plan.fence_tenure import (
    RULES,
    BreakNow,
    Proof,
    ProofStep,
    ProvenOut,
    ReadLeaseAgain,
    TenureRules,
    judge_break,
    judge_lease,
)
from controller.plan.fence_upstream import BUFFER_TIME, PONG_WAIT, SETTLE_WAIT

__all__ = [
    "CLEAR_LIMIT",
    "POLL_WAIT",
    "RETRY_WAIT",
    "TRIES",
    "AbortUpstream",
    "Accepted",
    "Action",
    "Answer",
    "Arrived",
    "AskingLease",
    "BreakLease",
    "Breaking",
    "ClaimAnswered",
    "Claiming",
    "ClearAnswered",
    "Clearing",
    "CloseClient",
    "CountUndrained",
    "Doubted",
    "DrainUpstream",
    "Draining",
    "EndIncarnation",
    "Event",
    "Finished",
    "Forget",
    "Hold",
    "IncarnationEnded",
    "LeaseReadFailed",
    "LeaseWasBroken",
    "LeaseWasRead",
    "Left",
    "LetSpeak",
    "LockAnswered",
    "Locking",
    "Lost",
    "MovedOn",
    "NotNow",
    "ObjectGone",
    "ObjectRead",
    "Pass",
    "PauseInput",
    "Pausing",
    "Phase",
    "Rang",
    "ReadFailed",
    "ReadLease",
    "ReadObject",
    "Reading",
    "Refuse",
    "RuleSpoke",
    "Seat",
    "SendClaim",
    "SendClear",
    "SendLock",
    "SendWithdrawal",
    "SetTimer",
    "Settling",
    "ShutDown",
    "Speaker",
    "Speaking",
    "Step",
    "TenureBegan",
    "TenureEnded",
    "TimerName",
    "Told",
    "UpstreamClosed",
    "Verdict",
    "Waiting",
    "WithdrawAnswered",
    "Withdrawing",
    "find_speaker",
    "is_active",
    "is_held",
    "is_named",
    "is_own_lock",
    "judge_claim",
    "judge_input",
    "judge_unnamed",
    "may_lock",
    "step",
    "take_seat",
]

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


Step = tuple[Seat, tuple[Action, ...]]
"""The state as it is then, and what to do, in order."""


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
            _pause(work, speaker, blind=True)
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
    """
    Let every speaker that waits for no answer look at what is known now.

    One that was doubted waits for a read before it speaks again, and for nothing before it ends.
    """
    for key in [speaker.key for speaker in work.seat.speakers]:
        speaker = find_speaker(work.seat, key)
        if speaker is None:
            continue
        if isinstance(speaker.phase, Speaking):
            _look_while_speaking(work, speaker)
        elif isinstance(speaker.phase, Waiting):
            _resume(work, speaker, seen_in=None)
        elif isinstance(speaker.phase, Reading | Pausing) and speaker.upstream:
            _look_while_doubted(work, speaker)


def _look_while_doubted(work: _Work, speaker: Speaker) -> None:
    view = work.seat.view
    if work.seat.gone or view is None:
        _end(work, speaker, Ending.DELETED)
    elif not is_named(view, speaker.socket_id):
        _end(work, speaker, judge_unnamed(view, speaker.socket_id))


def _look_while_speaking(work: _Work, speaker: Speaker) -> None:
    _look_while_doubted(work, speaker)
    known = find_speaker(work.seat, speaker.key)
    if known is not None and known.ending is None and not holds_lock(work.seat, known):
        _end(work, known, Ending.LOCK_LOST)


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
    _take_write(work, speaker, answer, accepted=replace(speaker, claimed=True, tries=0), seen_in=None)


def _take_write(work: _Work, speaker: Speaker, answer: Answer, *, accepted: Speaker, seen_in: int | None) -> None:
    """
    Go on after the answer to a claim or a lock.

    It is read whole: if its spec names us no more, or we are leaving, what was won is cleared at once.
    """
    match answer:
        case Accepted(view=view):
            _learn(work, view)
            _resume(work, accepted, seen_in=seen_in)
            _react(work)
        case MovedOn() | Lost():
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
    if holds_lock(work.seat, speaker):
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
    _take_write(work, speaker, answer, accepted=replace(speaker, tries=0), seen_in=phase.tenure)


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


def _pause(work: _Work, speaker: Speaker, *, blind: bool = False) -> None:
    work.enter(speaker, Pausing(blind), SetTimer(speaker.key, TimerName.RETRY, RETRY_WAIT))


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
                if speaker.phase.blind and speaker.ending is not None:
                    _leave(work, speaker)
                else:
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
        if not isinstance(speaker.phase, CALLS):
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
    elif holds_lock(seat, speaker) and seat.view.lock is not None:
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
        case MovedOn() | Lost():
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
        case MovedOn() | ObjectGone():
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
    phase = speaker.phase if isinstance(speaker.phase, CALLS) else Draining()
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

"""
The status that follows from an outcome, and whether it is worth a write. Pure.

All nine conditions are in every status, each with the generation it was judged for. A transition time moves only with
the condition's value. What merely goes on (attempts, the sprite's lagging state, the wording of a sentence) is kept up
to date in a write that something else calls for, and never calls for one itself: an object at rest is not written. A
sentence that says what a person has to mend is no such wording: it is written when it changes.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.situations import Phase, Situation, judge_phase, judge_readiness
from controller.api.terminal import (
    ActivityStatus,
    Condition,
    ExitStatus,
    HoldStatus,
    KillStatus,
    SpriteStatus,
    TerminalSpec,
    TerminalStatus,
)
from controller.errors import Failure
from controller.plan.activity import Activity, Presence, find_latest
from controller.plan.ends import EndReason
from controller.plan.facts import UNFENCED
from controller.plan.fence_objects import ObjectView
from controller.plan.fence_presence import judge_fenced
from controller.plan.gateways import find_presence
from controller.plan.hold_round import BEING_SET, IDLE, NO_SESSION, WORK_WAITS
from controller.plan.looks import LookFailed, NotLooked, SpriteAway, SpriteLook, SpriteSeen
from controller.plan.steps import Outcome, Verdict

_TRUE: Final = ConditionStatus.TRUE
_FALSE: Final = ConditionStatus.FALSE
_UNKNOWN: Final = ConditionStatus.UNKNOWN


_TO_MEND: Final = frozenset(
    {
        Reason.SESSION_TAKEN,
        Reason.LAUNCH_INVALID,
        Reason.TOKEN_NOT_ALLOWED,
        Reason.SECRET_NOT_FOUND,
        Reason.SECRET_KEY_MISSING,
        Reason.TOKEN_INVALID,
        Reason.OBJECT_INVALID,
    }
)
"""
Stalls whose sentence names the very thing to mend: another Secret, another owner or another field is news, while the
reason stays. It says nothing of calls that vary, so it never changes by itself.
"""


_NO_TOKEN: Final = frozenset(
    {
        Situation.TOKEN_NOT_ALLOWED,
        Situation.SECRET_NOT_FOUND,
        Situation.SECRET_KEY_MISSING,
        Situation.TOKEN_INVALID,
    }
)

NOT_JUDGED: Final = "Nothing is held yet: nobody has looked whether there is work."
"""It gives way to what is found, by a write of its own; and it never takes the place of what was found before."""


@dataclass(frozen=True, slots=True)
class HoldView:
    """What is held for one terminal, as its status tells it."""

    held: Verdict
    hold: HoldStatus | None
    activity: Activity | None


def build_status(
    old: TerminalStatus,
    outcome: Outcome,
    *,
    spec: TerminalSpec,
    generation: int,
    sprite: SpriteLook,
    requested_at: str | None,
    now: datetime,
    hold: HoldView | None = None,
    view: ObjectView = UNFENCED,
    gone: frozenset[str] = frozenset(),
) -> TerminalStatus:
    """
    Compose the whole status of an object after a visit.

    Args:
        old: What is recorded.
        outcome: What the visit found.
        spec: What is declared.
        generation: Of the object that was judged.
        sprite: The last look at its sprite.
        requested_at: The token of the request for a look now that this visit answers.
        now: Wall time.
        hold: What is held for it; None where nobody keeps a book for it (yet), and then what is recorded stands.
        view: The object as the fence sees it.
        gone: Gateways through which nobody watches any more.
    """
    is_watched = find_presence(spec, view, gone=gone) is Presence.WATCHED
    verdicts = _judge_conditions(outcome, spec, sprite, hold)
    verdicts[ConditionType.ATTACHED] = _judge_attached(is_watched=is_watched)
    verdicts[ConditionType.FENCED] = judge_fenced(spec.active_socket_id, view.lock, dead=gone)
    known = {condition.type: condition for condition in old.conditions}
    is_judged = known[ConditionType.HELD].reason == Reason.NOT_HELD and known[ConditionType.HELD].message
    if hold is None and (old.hold is not None or (is_judged and verdicts[ConditionType.HELD].message == NOT_JUDGED)):
        del verdicts[ConditionType.HELD]
    conditions = tuple(
        _move_condition(known[kind], verdicts.get(kind), generation=generation, now=now) for kind in ConditionType
    )
    return old.model_copy(
        update={
            "observed_generation": generation,
            "phase": judge_phase(outcome.situation, old.phase),
            "session": outcome.session,
            "sprite": _move_sprite(old.sprite, sprite),
            "detached_time": _move_detached(old, outcome, spec, now, is_watched=is_watched),
            "hold": old.hold if hold is None else hold.hold,
            "activity": _move_activity(old.activity, hold),
            "kill": outcome.kill,
            "exit": _move_exit(old.exit, outcome),
            "last_handled_reconcile_at": requested_at or old.last_handled_reconcile_at,
            "conditions": conditions,
        }
    )


def build_unread_status(
    old: TerminalStatus, sentence: str, *, generation: int, requested_at: str | None, now: datetime
) -> TerminalStatus:
    """
    Compose what is said of an object that cannot be read: that a person must act, and nothing about its session.

    The other conditions keep their say and the generation they were judged for, since nobody judged them now: whether a
    gateway was proven dead is told by that generation (`recall_gone`). A suspension is remembered by the phase alone,
    and by it the idle time begins anew: so that word stands.

    Args:
        old: What is recorded of how far the operator got.
        sentence: What cannot be read, and the way out.
        generation: Of the object that was looked at.
        requested_at: The token of the request for a look now that this look answers.
        now: Wall time.
    """
    readiness, reason = judge_readiness(Situation.OBJECT_INVALID), Reason.OBJECT_INVALID
    assert readiness.ready is not None
    verdicts = {
        ConditionType.READY: Verdict(readiness.ready, reason, sentence),
        ConditionType.RECONCILING: Verdict(_truth(holds=readiness.reconciling), reason, sentence),
        ConditionType.STALLED: Verdict(_truth(holds=readiness.stalled), reason, sentence),
    }
    return old.model_copy(
        update={
            "observed_generation": generation,
            "phase": old.phase if old.phase is Phase.SUSPENDED else judge_phase(Situation.OBJECT_INVALID, old.phase),
            "last_handled_reconcile_at": requested_at or old.last_handled_reconcile_at,
            "conditions": tuple(
                _move_condition(known, verdicts[known.type], generation=generation, now=now)
                if known.type in verdicts
                else known
                for known in old.conditions
            ),
        }
    )


def is_worth_writing(old: TerminalStatus, new: TerminalStatus, *, stored: bool) -> bool:
    """
    Tell whether a status says anything new.

    A status that was never stored (the default that the schema shows) is always worth the write.
    """
    return not stored or _essence(old) != _essence(new)


def is_resumed(status: TerminalStatus, spec: TerminalSpec) -> bool:
    """Tell whether a suspension has just ended: the status still says so, and the spec does not any more."""
    return status.phase is Phase.SUSPENDED and not spec.suspend


def is_true(status: TerminalStatus, kind: ConditionType) -> bool:
    """Tell whether a condition was True when the status was written."""
    return any(condition.type is kind and condition.status is _TRUE for condition in status.conditions)


def _essence(status: TerminalStatus) -> TerminalStatus:
    """Strip what is only kept up to date on the way."""
    return status.model_copy(
        update={
            "sprite": None if status.sprite is None else status.sprite.id,
            "kill": None if status.kill is None else _essence_of_kill(status.kill),
            "hold": None if status.hold is None else status.hold.model_copy(update={"expiry_time": None}),
            "activity": None,
            "conditions": tuple(
                condition.model_copy(update={"message": _essence_of_message(condition), "last_transition_time": None})
                for condition in status.conditions
            ),
        }
    )


def _essence_of_message(condition: Condition) -> str:
    stalled = condition.type is ConditionType.STALLED and condition.reason in _TO_MEND
    is_held = condition.type is ConditionType.HELD
    waits = is_held and (condition.message.startswith(WORK_WAITS) or condition.message in (NOT_JUDGED, BEING_SET))
    return condition.message if stalled or waits else ""


def _essence_of_kill(kill: KillStatus) -> KillStatus:
    return kill.model_copy(update={"attempts": 0, "message": None, "requested_time": None, "settled_time": None})


def _judge_conditions(
    outcome: Outcome, spec: TerminalSpec, sprite: SpriteLook, hold: HoldView | None
) -> dict[ConditionType, Verdict]:
    readiness = judge_readiness(outcome.situation)
    reason = Reason(outcome.situation.value)
    verdicts = {
        ConditionType.RECONCILING: Verdict(_truth(holds=readiness.reconciling), reason, outcome.message),
        ConditionType.STALLED: Verdict(_truth(holds=readiness.stalled), reason, outcome.message),
        ConditionType.HELD: _judge_held(outcome, spec, hold),
    }
    if readiness.ready is not None:
        verdicts[ConditionType.READY] = Verdict(readiness.ready, reason, outcome.message)
    terminated = outcome.terminated or _judge_not_terminated(spec)
    if terminated is not None:
        verdicts[ConditionType.TERMINATED] = terminated
    live = outcome.live or _judge_live_by_default(outcome)
    if live is not None:
        verdicts[ConditionType.SESSION_LIVE] = live
    reachable = _judge_reachable(sprite)
    if reachable is not None:
        verdicts[ConditionType.SPRITE_REACHABLE] = reachable
    return verdicts


def _judge_not_terminated(spec: TerminalSpec) -> Verdict | None:
    """`Terminated` goes back to False only where the spec never asked."""
    if spec.terminated:
        return None
    return Verdict(_FALSE, Reason.NOT_REQUESTED)


def _judge_live_by_default(outcome: Outcome) -> Verdict | None:
    """No session at all is known; a launch in flight is not."""
    session = outcome.session
    if session is None:
        return Verdict(_FALSE, Reason.NO_SESSION)
    if session.id is None and session.ended is None:
        return Verdict(_UNKNOWN, Reason.STARTING)
    return None


def _judge_attached(*, is_watched: bool) -> Verdict:
    return Verdict(_TRUE, Reason.VIEWER) if is_watched else Verdict(_FALSE, Reason.NO_VIEWER)


def _judge_held(outcome: Outcome, spec: TerminalSpec, hold: HoldView | None) -> Verdict:
    if hold is not None and hold.held.reason is not Reason.NOT_WANTED:
        return _tell_last_activity(hold)
    if not spec.hold_wanted:
        return Verdict(_FALSE, Reason.NOT_WANTED)
    return Verdict(_FALSE, Reason.NOT_HELD, _explain_no_book(outcome, spec))


def _tell_last_activity(hold: HoldView) -> Verdict:
    """Add when the last activity was; it calls for no write of its own."""
    held, latest = hold.held, None if hold.activity is None else hold.activity.latest
    if latest is None or not held.message.startswith(IDLE):
        return held
    return replace(held, message=f"{held.message} The last activity was seen at {latest:%Y-%m-%dT%H:%M:%SZ}.")


def _explain_no_book(outcome: Outcome, spec: TerminalSpec) -> str:
    """Say why nobody keeps a book for a terminal whose hold is wanted."""
    session = outcome.session
    if session is None or session.id is None:
        return "There is no session to hold for yet."
    if session.ended is not None or spec.terminated:
        return NO_SESSION
    if outcome.situation in _NO_TOKEN:
        return f"Nothing can be held without a token: {outcome.message}"
    return NOT_JUDGED


def _judge_reachable(sprite: SpriteLook) -> Verdict | None:
    match sprite:
        case NotLooked():
            return None
        case SpriteSeen():
            return Verdict(_TRUE, Reason.REACHABLE)
        case SpriteAway():
            return Verdict(_FALSE, Reason.SPRITE_NOT_FOUND)
        case LookFailed(failure=Failure.UNAUTHORIZED, message=message):
            return Verdict(_FALSE, Reason.TOKEN_REJECTED, message)
        case LookFailed(failure=Failure.FORBIDDEN, message=message):
            return Verdict(_FALSE, Reason.TOKEN_FORBIDDEN, message)
        case LookFailed(failure=Failure.THROTTLED, message=message):
            return Verdict(_UNKNOWN, Reason.THROTTLED, message)
        case LookFailed(failure=Failure.API_INCIDENT, message=message):
            return Verdict(_UNKNOWN, Reason.API_INCIDENT, message)
        case LookFailed(message=message):
            return Verdict(_UNKNOWN, Reason.SPRITES_UNAVAILABLE, message)
        case _:
            assert_never(sprite)


def _truth(*, holds: bool) -> ConditionStatus:
    return _TRUE if holds else _FALSE


def _move_condition(known: Condition, verdict: Verdict | None, *, generation: int, now: datetime) -> Condition:
    """Bring one condition up to date; without a verdict it keeps its say and takes the new generation."""
    if verdict is None:
        return known.model_copy(update={"observed_generation": generation})
    moved = known.last_transition_time if known.status is verdict.status else now.replace(microsecond=0)
    return Condition(
        type=known.type,
        status=verdict.status,
        reason=verdict.reason.value,
        message=verdict.message,
        last_transition_time=moved,
        observed_generation=generation,
    )


def _move_sprite(known: SpriteStatus | None, look: SpriteLook) -> SpriteStatus | None:
    """Note id and state as last seen, with the moment at which the state was first seen so."""
    if not isinstance(look, SpriteSeen):
        return known
    state = look.sprite.state.value
    same = known is not None and known.id == look.sprite.id and known.state == state
    since = known.since if known is not None and same else look.read_time
    return SpriteStatus(id=look.sprite.id, state=state, since=since)


def _move_exit(known: ExitStatus | None, outcome: Outcome) -> ExitStatus | None:
    """Note the exit that somebody saw; it stands as long as the session that it is of."""
    session = outcome.session
    if session is None or session.ended is None or session.ended.reason != EndReason.EXITED:
        return None
    return known if outcome.exit_code is None else ExitStatus(code=outcome.exit_code)


def _move_activity(known: ActivityStatus | None, hold: HoldView | None) -> ActivityStatus | None:
    """Note the last activity that was seen, and never an earlier one than was recorded."""
    if hold is None or hold.activity is None:
        return known
    before = None if known is None else known.last_time
    latest = find_latest((before, hold.activity.latest))
    return ActivityStatus(last_time=latest, observable=hold.activity.observable)


def _move_detached(
    old: TerminalStatus, outcome: Outcome, spec: TerminalSpec, now: datetime, *, is_watched: bool
) -> datetime | None:
    """The idle time counts from the last viewer's leaving, or the start of a session that nobody watches."""
    session = outcome.session
    if session is None or session.id is None or session.ended is not None or is_watched:
        return None
    fresh = old.session is None or old.session.id != session.id
    if old.detached_time is None or is_resumed(old, spec) or fresh:
        return now
    return old.detached_time

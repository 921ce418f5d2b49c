"""
Whether an object can be attached to as it stands. Pure.

Problem: the order of the answers matters: whoever may not know of an object learns nothing, whoever comes to the end of
one should not be told to wait. Promise: 404 before 410 before 409, each with the sentence that says what to do; what
only a person can mend is no reason to come again.
Source: gateway.md 4 and 6; behaviour cases F21, F22 and F24.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.session import SpriteState
from controller.api.terminal import TerminalSpec, TerminalStatus
from controller.gateway.refusals import Refusal, RefusalCause
from controller.gateway.wishes import ActivityWish, AttachWish, ListWish, Mode, Wish

_A_WHILE: Final = timedelta(seconds=30)
"""When to look again at a paused sprite, which nobody announces to have been woken."""


@dataclass(frozen=True, slots=True)
class Presence:
    """
    What the fence and the streams know of an object.

    Args:
        held: A socket that lives, as far as is known, is named by the spec.
        streaming: Output flows through some gateway, so that its sprite is awake, whatever the status says by now.
    """

    held: bool
    streaming: bool


@dataclass(frozen=True, slots=True)
class Terminal:
    """One object as a consistent read saw it."""

    name: str
    uid: str
    deleting: bool
    spec: TerminalSpec
    status: TerminalStatus
    raw: Mapping[str, Any]


def judge_standing(terminal: Terminal, wish: Wish, presence: Presence) -> Refusal | None:
    """Tell why the object cannot be had as it is wished; None where it can, but for a pause of its sprite."""
    name, spec, status = terminal.name, terminal.spec, terminal.status
    other = _find_other_session(terminal, wish)
    if other is not None:
        return Refusal(RefusalCause.NOT_FOUND, other, name)
    if spec.terminated:
        return Refusal(RefusalCause.TERMINATED, "spec.terminated is true: this terminal was ended for good.", name)
    if terminal.deleting:
        return Refusal(RefusalCause.DELETING, "This terminal is being deleted.", name)
    if isinstance(wish, ListWish):
        return None
    if status.session is not None and status.session.ended is not None:
        if spec.launch is None:
            return Refusal(
                RefusalCause.ENDED, "The session has ended, and spec.launch does not say how to start another.", name
            )
        if isinstance(wish, ActivityWish) or wish.mode is Mode.VIEW:
            return Refusal(RefusalCause.ENDED, "The session has ended; only who attaches to type starts another.", name)
    if isinstance(wish, ActivityWish):
        return None
    if wish.mode is Mode.HOLD and presence.held:
        return Refusal(
            RefusalCause.HELD,
            "Another socket speaks for this terminal. Attach with view=true to look, or with takeover=true to throw "
            "it out, which needs the right to agentterminals/takeover.",
            name,
        )
    if spec.suspend:
        return Refusal(RefusalCause.SUSPENDED, "spec.suspend is true: nothing is attached until it is false.", name)
    stall = _find_stall(terminal)
    if stall is not None:
        return Refusal(RefusalCause.STALLED, stall, name)
    return None


def _find_stall(terminal: Terminal) -> str | None:
    """
    Say what a person has to mend before there is a session; None where there is one, or one may come.

    Whoever attaches would wait for it in vain, and be told to come again in vain. What was found of an earlier spec
    says nothing of this one. A session that has ended is another matter: to attach starts the next one.
    """
    session = terminal.status.session
    if session is not None and (session.id is not None or session.ended is not None):
        return None
    for condition in terminal.status.conditions:
        is_present = condition.observed_generation == terminal.raw["metadata"]["generation"]
        if condition.type is ConditionType.STALLED and condition.status is ConditionStatus.TRUE and is_present:
            return (
                f"There is no session to attach to, and none comes by waiting ({condition.reason}): {condition.message}"
            )
    return None


def must_run(wish: Wish, presence: Presence) -> bool:
    """Tell whether the sprite must run already: somebody who only looks wakes none. Where output flows, it does."""
    return isinstance(wish, AttachWish) and wish.mode is Mode.VIEW and not presence.streaming


def judge_pause(terminal: Terminal, state: SpriteState | None) -> Refusal | None:
    """
    Refuse a look at a paused sprite.

    Args:
        terminal: Its status says how the sprite was when something was last written, which may be long ago.
        state: How the platform says it is; None where it did not answer, and then the status counts.
    """
    written = terminal.status.sprite.state if terminal.status.sprite is not None else None
    if (written if state is None else state) not in (SpriteState.WARM, SpriteState.COLD):
        return None
    return Refusal(
        RefusalCause.PAUSED,
        "The sprite is paused, and looking wakes none. Attach to type, or try again once it runs.",
        terminal.name,
        _A_WHILE,
    )


def _find_other_session(terminal: Terminal, wish: Wish) -> str | None:
    """Find out that a path of the vendor's API names something that is not this object's."""
    if isinstance(wish, ListWish | AttachWish) and wish.sprite not in (None, terminal.spec.sprite_name):
        return "This door leads to the sprite of spec.spriteName only."
    if not isinstance(wish, AttachWish) or wish.session_id is None:
        return None
    session = terminal.status.session
    if session is None or session.id != wish.session_id:
        return "This door leads to the session of status.session only."
    return None

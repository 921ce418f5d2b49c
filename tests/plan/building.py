"""Facts for decisions, written as short as the situation they stand for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from controller.api.session import Session, Sprite, SpriteState
from controller.api.terminal import (
    LaunchIntent,
    Origin,
    SessionEnd,
    SessionStatus,
    TerminalSpec,
    TerminalStatus,
    read_spec,
)
from controller.plan.facts import Facts, Memory, TokenFinding
from controller.plan.looks import NOT_LOOKED, Listed, SpriteAway, SpriteSeen
from controller.plan.steps import Outcome, Plan, Rest, Step
from controller.plan.terminal import plan_terminal

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
CREATED = NOON - timedelta(hours=1)
NOW = timedelta(hours=10)
"""Monotonic."""
MILLISECOND = timedelta(milliseconds=1)
SPRITE_ID = "sprite-1"
NONCE = "nonce1234"

SESSION = Session(id="41", created=CREATED, command="/bin/bash", tty=True, last_activity=None)
ADOPTED = SessionStatus(id="41", created=CREATED, sprite_id=SPRITE_ID, origin=Origin.ADOPTED)
INTENT = LaunchIntent(nonce=NONCE, requested_time=NOON - timedelta(seconds=10), sprite_id=SPRITE_ID)
INTENDED = SessionStatus(origin=Origin.LAUNCHED, sprite_id=SPRITE_ID, launch_intent=INTENT)


def build_spec(**fields: Any) -> TerminalSpec:
    """A spec that launches bash; fields in camelCase come on top, None removes one."""
    raw: dict[str, Any] = {"spriteName": "my-sprite", "launch": {"command": ["bash"]}, **fields}
    return read_spec({name: value for name, value in raw.items() if value is not None})


def build_seen(state: SpriteState = SpriteState.RUNNING, *, age: timedelta = timedelta(0)) -> SpriteSeen:
    return SpriteSeen(Sprite(SPRITE_ID, "my-sprite", state), NOW - age, NOON - age)


def build_away(*, confirmed: bool) -> SpriteAway:
    return SpriteAway(NOW, NOON, confirmed=confirmed)


def build_list(*sessions: Session, age: timedelta = timedelta(0)) -> Listed:
    return Listed(sessions, NOW - age)


def build_end(reason: str, *, attached: bool = False, socket_id: str | None = None) -> SessionEnd:
    return SessionEnd(reason=reason, time=NOON, generation=1, attached=attached, socket_id=socket_id)


BASE = Facts(
    generation=1,
    deleting=False,
    has_finalizer=True,
    spec=build_spec(),
    status=TerminalStatus(),
    token=TokenFinding(),
    owner=None,
    sprite=build_seen(),
    sessions=NOT_LOOKED,
    probed=None,
    announced=None,
    first_seen=NOW - timedelta(seconds=1),
    end_asked=None,
    doubt=None,
    last_wake_time=None,
    now=NOW,
    now_time=NOON,
    began=NOW,
)


def build_facts(*, session: SessionStatus | None = None, **fields: Any) -> Facts:
    """The facts of a live moment at noon: the sprite runs, nothing was listed yet, all else as given."""
    status = TerminalStatus(observed_generation=1, session=session)
    return replace(BASE, **{"status": status, **fields})


def decide(facts: Facts, memory: Memory | None = None) -> Plan:
    return plan_terminal(facts, memory or Memory())


def decide_step(facts: Facts, memory: Memory | None = None) -> Step:
    return decide(facts, memory).step


def decide_outcome(facts: Facts, memory: Memory | None = None) -> Outcome:
    """The outcome of a decision that must be a rest."""
    step = decide_step(facts, memory)
    assert isinstance(step, Rest), step
    return step.outcome

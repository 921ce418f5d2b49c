"""
What a person is shown of AgentTerminals: rows, sentences and times, from objects that were read. Pure but for tables.

Problem: a terminal that nobody watches still costs money, and the status tells that in five places. Promise: one line
for each terminal, the dearest first: what runs, what is held and for how long, what has been idle and for how long; a
kill shows its proof or what it still waits for. What an object says is made printable before it is shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from controller.api.conditions import ConditionStatus, ConditionType, Reason
from controller.api.session import SpriteState
from controller.api.terminal import Condition, ObjectUnreadable, TerminalStatus, read_spec, read_status
from controller.kube.errors import tidy

NOTHING: Final = "-"

_UNSAID: Final[Mapping[str, str]] = {
    Reason.NOT_HELD: (
        "Nobody watches and nothing tells of activity, or there is no session. The wish stands: a hold comes with the"
        " next work."
    ),
    Reason.NOT_WANTED: "This terminal keeps its sprite awake no more.",
}
"""What a reason without a message means to somebody who asked at a shell; docs/spec.md says the same in a table."""


def render_span(span: timedelta | None) -> str:
    """
    Write a duration with its two largest units: `45s`, `12m3s`, `3h12m`, `2d4h`.

    One that is negative, as clocks of two machines may make it, is none.
    """
    if span is None:
        return NOTHING
    seconds = max(0, int(span.total_seconds()))
    units = (("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("m", seconds // 60 % 60), ("s", seconds % 60))
    first = next((number for number, (_, count) in enumerate(units) if count), len(units) - 1)
    return "".join(f"{count}{unit}" for unit, count in units[first : first + 2] if count) or "0s"


# --- What terminals cost ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """
    One terminal, and what it costs.

    Args:
        namespace: Where.
        name: Which.
        sprite: The name of its sprite.
        sprite_key: What tells that sprite from all others.
        state: What the platform says of the sprite.
        session: The session's id.
        phase: The word for people.
        held_for: Since when a task of ours keeps the sprite awake; None where none does.
        held_cause: What it is held for.
        idle_for: Since when nobody has watched; None while somebody does, or where there is nothing to watch.
        active_ago: Since when the session was last seen to do something.
    """

    namespace: str
    name: str
    sprite: str
    sprite_key: str
    state: SpriteState
    session: str | None
    phase: str
    held_for: timedelta | None
    held_cause: str | None
    idle_for: timedelta | None
    active_ago: timedelta | None


def build_row(terminal: Mapping[str, Any], now: datetime) -> CostRow:
    """Read one object. One that cannot be read shows by its name and the phase `Unreadable`."""
    metadata = terminal["metadata"]
    namespace, name = str(metadata.get("namespace", "")), str(metadata["name"])
    try:
        spec, status = read_spec(terminal.get("spec")), read_status(terminal.get("status"))
    except ObjectUnreadable:
        return CostRow(
            namespace=namespace,
            name=name,
            sprite=NOTHING,
            sprite_key=f"{namespace}/{name}",
            state=SpriteState.UNKNOWN,
            session=None,
            phase="Unreadable",
            held_for=None,
            held_cause=None,
            idle_for=None,
            active_ago=None,
        )
    is_held = find_condition(status, ConditionType.HELD).status is ConditionStatus.TRUE
    hold = status.hold if is_held else None
    is_live = status.session is not None and status.session.id is not None and status.session.ended is None
    is_watched = bool(spec.attached)
    return CostRow(
        namespace=namespace,
        name=name,
        sprite=spec.sprite_name,
        sprite_key=(status.sprite.id if status.sprite is not None else None) or f"{namespace}/{spec.sprite_name}",
        state=_read_state(status),
        session=status.session.id if status.session is not None else None,
        phase=status.phase.value,
        held_for=_since(hold.since if hold is not None else None, now),
        held_cause=hold.cause if hold is not None else None,
        idle_for=_since(status.detached_time, now) if is_live and not is_watched else None,
        active_ago=_since(status.activity.last_time if status.activity is not None else None, now),
    )


def order_rows(rows: Iterable[CostRow]) -> tuple[CostRow, ...]:
    """Put first what costs: sprites that run, the longest held and then the longest idle before the others."""
    zero = timedelta(0)
    return tuple(
        sorted(
            rows,
            key=lambda row: (
                row.state is not SpriteState.RUNNING,
                -(row.held_for or zero),
                -(row.idle_for or zero),
                row.namespace,
                row.name,
            ),
        )
    )


def render_costs(rows: Sequence[CostRow], *, with_namespace: bool) -> Table:
    """Draw the rows."""
    table = Table(box=None, pad_edge=False, header_style="")
    titles = ("NAME", "SPRITE", "STATE", "SESSION", "PHASE", "HELD FOR", "HELD BY", "IDLE FOR", "ACTIVE")
    for title in ("NAMESPACE", *titles) if with_namespace else titles:
        table.add_column(title, no_wrap=True)
    for row in rows:
        cells = (
            row.name,
            row.sprite,
            row.state.value,
            row.session or NOTHING,
            row.phase,
            render_span(row.held_for),
            row.held_cause or NOTHING,
            render_span(row.idle_for),
            NOTHING if row.active_ago is None else f"{render_span(row.active_ago)} ago",
        )
        # As Text, since a value may hold square brackets, which a plain string would give to the style.
        table.add_row(*(Text(tidy(cell)) for cell in ((row.namespace, *cells) if with_namespace else cells)))
    return table


def render_sum(rows: Sequence[CostRow]) -> str:
    """Say in one line what is paid for: a sprite is paid for once, however many terminals live in it."""
    running = {row.sprite_key for row in rows if row.state is SpriteState.RUNNING}
    held = {row.sprite_key for row in rows if row.held_for is not None}
    idle = sum(1 for row in rows if row.idle_for is not None and row.state is SpriteState.RUNNING)
    return (
        f"{_count(len(rows), 'terminal')}; {_count(len(running), 'sprite')} running, {len(held)} held awake by us; "
        f"{_count(idle, 'terminal')} in running sprites without anybody attached."
    )


# --- How an end goes --------------------------------------------------------------------------------------------------


def find_condition(status: TerminalStatus, kind: ConditionType) -> Condition:
    """Find a condition; every status has all of them."""
    return next(condition for condition in status.conditions if condition.type is kind)


def is_judged(condition: Condition, generation: int) -> bool:
    """Tell whether the operator has said this of the object as it is now."""
    return condition.observed_generation is not None and condition.observed_generation >= generation


def is_proven(status: TerminalStatus, generation: int) -> bool:
    """Tell whether the end that this generation asks for is proven."""
    condition = find_condition(status, ConditionType.TERMINATED)
    return condition.status is ConditionStatus.TRUE and is_judged(condition, generation)


def describe_progress(status: TerminalStatus, kind: ConditionType, generation: int) -> str:
    """Say in one line how far the operator has got with one condition."""
    condition = find_condition(status, kind)
    if not is_judged(condition, generation):
        return "The operator has not looked at it yet."
    message = condition.message or _UNSAID.get(condition.reason, "")
    return tidy(f"{condition.reason}: {message}" if message else condition.reason)


def render_proof(status: TerminalStatus) -> tuple[str, ...]:
    """Tell how a session was ended, and how that is known, line by line."""
    condition = find_condition(status, ConditionType.TERMINATED)
    lines = [_line("verdict", f"{condition.reason}: {condition.message}" if condition.message else condition.reason)]
    session, kill = status.session, status.kill
    if session is not None and session.id is not None:
        created = f", created {_moment(session.created)}" if session.created is not None else ""
        lines.append(_line("session", f"{session.id}{created}"))
    if kill is not None:
        attempts = _count(kill.attempts, "attempt")
        lines.append(_line("signal", f"{kill.signal}, {attempts}"))
        if kill.settled_time is not None:
            lines.append(_line("settled", f"{_moment(kill.settled_time)} ({kill.verdict or NOTHING})"))
        if kill.confirmed_time is not None:
            lines.append(_line("proven", f"{_moment(kill.confirmed_time)} ({kill.proof or NOTHING})"))
        if kill.leftovers is not None:
            found = ", ".join(f"{process.pid} {process.name}" for process in kill.leftovers.processes or ())
            lines.append(_line("left", f"{kill.leftovers.result.value}{f': {found}' if found else ''}"))
    return tuple(lines)


def render_session(status: TerminalStatus) -> str:
    """Name the session of an object by its identity."""
    session = status.session
    if session is None or session.id is None:
        return "no session"
    created = _moment(session.created) if session.created is not None else "at an unknown time"
    return tidy(f"session {session.id}, created {created}")


# --- What was told ----------------------------------------------------------------------------------------------------


def render_events(events: Iterable[Mapping[str, Any]], now: datetime) -> Table:
    """Draw Events, the latest last."""
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("LAST SEEN", "COUNT", "TYPE", "REASON"):
        table.add_column(title, no_wrap=True)
    table.add_column("MESSAGE", overflow="fold")
    for seen, event in sorted(((_last_seen(event), event) for event in events), key=lambda pair: pair[0]):
        series = event.get("series") or {}
        count = series.get("count", 1) if isinstance(series, Mapping) else 1
        ago = f"{render_span(now - seen)} ago" if seen > _NEVER else NOTHING
        words = (ago, str(count), *(tidy(str(event.get(key) or NOTHING)) for key in ("type", "reason", "note")))
        table.add_row(*map(Text, words))
    return table


_NEVER: Final = datetime.min.replace(tzinfo=UTC)


def _last_seen(event: Mapping[str, Any]) -> datetime:
    """Find when an Event was last told, in whichever form it was written."""
    series = event.get("series")
    last = series.get("lastObservedTime") if isinstance(series, Mapping) else None
    created = event.get("metadata", {}).get("creationTimestamp")
    for text in (last, event.get("eventTime"), event.get("deprecatedLastTimestamp"), created):
        if isinstance(text, str) and text:
            try:
                return datetime.fromisoformat(text).astimezone(UTC)
            except ValueError:
                continue
    return _NEVER


def _read_state(status: TerminalStatus) -> SpriteState:
    state = status.sprite.state if status.sprite is not None else None
    return next((known for known in SpriteState if known == state), SpriteState.UNKNOWN)


def _since(moment: datetime | None, now: datetime) -> timedelta | None:
    return None if moment is None else max(timedelta(0), now - moment)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(title: str, text: str) -> str:
    return f"  {title:<8} {tidy(text)}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"

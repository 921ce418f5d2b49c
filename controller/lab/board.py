"""
Objects, sessions and processes side by side.

Problem: what an object says, what the Sprites API lists and what the kernel runs are three truths, and a demo is only
worth watching when they stand in one line. Promise: one row for each object and one for each session that no object
names, from facts that were read; nothing here reads anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

NOTHING = "-"


@dataclass(frozen=True)
class InnerProcess:
    """A process inside a sprite, as the emulator and the host's process table know it."""

    host_pid: int
    inner_pid: int
    parent_pid: int
    """Inside as well."""
    command: str


@dataclass(frozen=True)
class Row:
    """One object with its session and that session's process, as far as there are any."""

    name: str | None
    phase: str
    reason: str
    session: str | None
    process: InnerProcess | None
    """The session's own process; None once it has ended."""

    def render(self) -> tuple[str, str, str, str, str, str]:
        """Write its cells."""
        return (
            self.name or NOTHING,
            self.phase,
            self.reason,
            self.session or NOTHING,
            str(self.process.host_pid) if self.process else NOTHING,
            self.process.command if self.process else NOTHING,
        )

    def describe(self) -> str:
        """Say the same in a line."""
        name, phase, reason, session, process, _ = self.render()
        if self.name is None:
            return f"no object: session {session}, process {process}"
        state = phase if reason in (phase, NOTHING) else f"{phase} ({reason})"
        return f"{name}: {state}, session {session}, process {process}"


def build_rows(objects: Iterable[Mapping[str, Any]], processes: Sequence[InnerProcess]) -> tuple[Row, ...]:
    """
    Join objects with what runs, by the session id, which is the process id inside the sprite.

    Args:
        objects: AgentTerminals of one sprite, as the API server returns them.
        processes: What runs inside that sprite; a child of the sprite's first process is a session's own.
    """
    inside = {process.inner_pid for process in processes}
    leaders = {str(process.inner_pid): process for process in processes if process.parent_pid not in inside}
    rows = []
    for terminal in objects:
        status = terminal.get("status", {})
        session = status.get("session", {}).get("id")
        rows.append(
            Row(
                name=terminal["metadata"]["name"],
                phase=status.get("phase", NOTHING),
                reason=_read_reason(status),
                session=session,
                process=leaders.pop(session, None) if session else None,
            )
        )
    rows += [Row(None, NOTHING, NOTHING, session, process) for session, process in sorted(leaders.items())]
    return tuple(rows)


def _read_reason(status: Mapping[str, Any]) -> str:
    return next((entry["reason"] for entry in status.get("conditions", ()) if entry["type"] == "Ready"), NOTHING)


def render_board(rows: Iterable[Row]) -> Table:
    """Draw the rows for a terminal."""
    table = Table(title="What the API server says, and what the kernel runs", title_justify="left")
    for title in ("Object", "Phase", "Reason", "Session"):
        table.add_column(title, no_wrap=True)
    table.add_column("Process", no_wrap=True, justify="right")
    table.add_column("Command", no_wrap=True, overflow="ellipsis")
    for row in rows:
        alive = row.process is not None
        # As Text, since a command may hold square brackets, which a plain string would give to the style.
        table.add_row(*map(Text, row.render()), style="green" if alive else "dim")
    return table

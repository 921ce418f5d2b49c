"""
What a user sees when a command fails: one sentence, and an exit code that scripts can trust.

Problem: a traceback tells a user nothing and may show what nobody should see. Promise: failures that were foreseen say
their own sentence; any other names only its kind and its place in the code, never its text, since nobody vetted that;
`AGENTTERMINAL_DEBUG=1` shows the traceback instead.

    0    done
    1    failed
    2    used wrongly: bad arguments, bad settings
    3    no longer the leader: another operator may act from now on
    130  interrupted by Ctrl-C
"""

import traceback
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

import click

from controller.errors import AgentTerminalError
from controller.tenure import TenureEnded

_PACKAGE: Final = Path(__file__).parent.parent


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    DEPOSED = 3
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last words of a command that failed."""

    code: int
    text: str


def judge_farewell(error: BaseException) -> Farewell:
    """Say what a user should read, and with which code the process ends."""
    # Imported late: a command that failed for another reason need not have loaded the settings.
    from controller.settings import SettingsFaulty  # noqa: PLC0415 - see the line above

    match _find_cause(error):
        case SettingsFaulty() as faulty:
            lines = [f"  {fault}" for fault in faulty.faults]
            count = "1 setting is faulty" if len(lines) == 1 else f"{len(lines)} settings are faulty"
            return Farewell(ExitCode.MISUSED, "\n".join([f"{count}:", *lines]))
        case TenureEnded() as deposed:
            return Farewell(ExitCode.DEPOSED, f"Error: {deposed}")
        case AgentTerminalError() as foreseen:
            return Farewell(ExitCode.FAILED, f"Error: {foreseen}")
        case click.exceptions.Abort() | KeyboardInterrupt():
            return Farewell(ExitCode.INTERRUPTED, "Interrupted.")
        case click.ClickException() as misuse:
            return Farewell(misuse.exit_code, f"Error: {misuse.format_message()}")
        case OSError() as refused if refused.strerror:
            name = f": {refused.filename}" if refused.filename else ""
            return Farewell(ExitCode.FAILED, f"Error: the operating system refused: {refused.strerror}{name}.")
        case unforeseen:
            return Farewell(
                ExitCode.FAILED,
                f"Error: an unexpected {type(unforeseen).__name__}{_render_place(unforeseen)}. "
                "This is a bug; AGENTTERMINAL_DEBUG=1 shows where it came from.",
            )


def _find_cause(error: BaseException) -> BaseException:
    """Look into groups: a task group wraps even a single failure. What was foreseen speaks before what was not."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves = [_find_cause(inner) for inner in error.exceptions]
    return next((leaf for leaf in leaves if isinstance(leaf, AgentTerminalError)), leaves[0])


def _render_place(error: BaseException) -> str:
    """Name the last line of our own code that the error passed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f" at {path.relative_to(_PACKAGE.parent)}:{frame.lineno}"
    return ""

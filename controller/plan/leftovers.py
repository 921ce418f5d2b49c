"""
What a killed session left behind: processes that its kill did not reach.

Problem: SIGKILL reaches the session's leader and, on a terminal, its foreground process group. What left that group
(`setsid`, `nohup … &`, a background job) lives on, and the session list shows none of it: the terminal is proven dead
while its work goes on and its sprite may be kept busy. Promise: after a kill that a list proved, one look at the
sprite's processes, shared by all who wait for one, tells what is left; it is reported by process id and name, never by
its arguments or its environment, and never killed by us: a server that somebody started on purpose looks the same.

Two marks tell what belonged to a session. A launched one has our nonce in its environment, which every child inherits,
also one that began a session of its own. Of any session the kernel's session id is its leader's process id, which the
kernel does not give out again while a process of that session lives; it names those that did not begin a session of
their own. So of an adopted session it cannot be known whether anything had left it, and that is said. Nor is seen what
threw its environment away *and* left the session.

Source: sprites-api.md 5, 6 and question 19 (read 2026-11-30); proc(5) `status`, `NSsid` since Linux 4.1; setsid(2).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never

from controller.api.terminal import LeftoverProcess, LeftoversResult, LeftoversStatus
from controller.plan.launch import NONCE_VARIABLE
from controller.plan.looks import LookFailed, NotLooked

FOUND_AGAIN: Final = timedelta(seconds=1)
"""What is found must be found again this much later: a process that was told to go needs a moment."""

NAMES_LIMIT: Final = 10
"""So many processes are named; a status is no process table."""

SEARCH_SCRIPT: Final = (
    "grep -sH -e '^Name:' -e '^State:' -e '^NSsid:' /proc/[0-9]*/status; "
    f"for e in $(grep -ls '{NONCE_VARIABLE}=' /proc/[0-9]*/environ); do "
    f"echo \"$e:$(tr '\\000' '\\n' < \"$e\" 2>/dev/null | grep '^{NONCE_VARIABLE}=')\"; done; "
    "echo end"
)
"""
Prints of every process its name, state and session, and the nonce of those that have one; and `end` when it saw all.

Names come from `status`, where the kernel escapes what would break a line; of an environment only our own variable
leaves the sprite.
"""

_STATUS: Final = re.compile(r"/proc/([0-9]{1,9})/status:(Name|State|NSsid):\s*(.*)")
_ENVIRON: Final = re.compile(rf"/proc/([0-9]{{1,9}})/environ:{NONCE_VARIABLE}=([a-z0-9]{{8,64}})")
_ODD: Final = re.compile(r"[^ -~]")
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
_ENDED: Final = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a sprite. `session` and `nonce` are None where they could not be read, or there is none."""

    pid: int
    name: str
    ended: bool = False
    """A zombie: dead, and not yet taken note of."""
    session: int | None = None
    nonce: str | None = None


@dataclass(frozen=True, slots=True)
class ProcessesSeen:
    """All processes of a sprite."""

    processes: tuple[Process, ...]
    started: timedelta


ProcessesLook = NotLooked | LookFailed | ProcessesSeen


@dataclass(frozen=True, slots=True)
class Mark:
    """What the processes of one session have in common. `nonce` is None for one that was adopted."""

    session_id: str
    nonce: str | None


@dataclass(frozen=True, slots=True)
class AskProcesses:
    """Look at the sprite's processes; the look must start at this moment or later."""

    since: timedelta


SearchStep = AskProcesses | LeftoversStatus


NOTHING_LEFT: Final = LeftoversStatus(result=LeftoversResult.NONE, count=0)
"""Also where the sprite's memory is gone, and all processes with it."""
NONE_IN_SESSION: Final = LeftoversStatus(result=LeftoversResult.NONE_IN_SESSION)
NOT_KNOWN: Final = LeftoversStatus(result=LeftoversResult.NOT_KNOWN)


def render_search_command() -> tuple[str, ...]:
    """Give the argv that looks at all processes of a sprite."""
    return ("/bin/sh", "-c", SEARCH_SCRIPT)


def read_processes(output: str) -> tuple[Process, ...] | None:
    """Read what the search printed; None where it did not come to its end, since then nothing was learned."""
    lines = output.split("\n")
    if "end" not in lines:
        return None
    fields: dict[int, dict[str, str]] = {}
    for line in lines:
        if match := _STATUS.fullmatch(line):
            fields.setdefault(int(match[1]), {})[match[2]] = match[3]
        elif match := _ENVIRON.fullmatch(line):
            fields.setdefault(int(match[1]), {})["nonce"] = match[2]
    found = (_read_process(pid, told) for pid, told in sorted(fields.items()))
    return tuple(process for process in found if process is not None)


def _read_process(pid: int, told: dict[str, str]) -> Process | None:
    """One that ended while it was being read has no name, and is none."""
    if "Name" not in told:
        return None
    # From the outermost namespace that this /proc knows to the innermost; ours is the first.
    session = told.get("NSsid", "").split()
    return Process(
        pid=pid,
        name=_ODD.sub("?", told["Name"])[:64],
        ended=told.get("State", "")[:1] in _ENDED,
        session=int(session[0]) if session and _NUMBER.fullmatch(session[0]) else None,
        nonce=told.get("nonce"),
    )


def find_leftovers(mark: Mark, processes: Iterable[Process]) -> tuple[Process, ...]:
    """
    Find what lives and belonged to a session that is proven dead.

    Where its id names a living process, that one is somebody else, and so are the members of its session.
    """
    alive = [process for process in processes if not process.ended]
    leader = int(mark.session_id) if _NUMBER.fullmatch(mark.session_id) else None
    id_in_use = any(process.pid == leader for process in alive)

    def belongs(process: Process) -> bool:
        if mark.nonce is not None and process.nonce == mark.nonce:
            return True
        return leader is not None and not id_in_use and process.session == leader

    return tuple(filter(belongs, alive))


def plan_search(
    mark: Mark, look: ProcessesLook, found_at: timedelta | None, *, since: timedelta
) -> tuple[timedelta | None, SearchStep]:
    """
    Decide what is left of a session, or which look would tell. Where nothing is found, one look will do.

    Args:
        mark: Of the session.
        look: The last look at the sprite's processes.
        found_at: When the look started that found something first, as returned by the call before.
        since: When the kill was settled: what was seen earlier says nothing.
    """
    if found_at is not None and found_at < since:
        found_at = None
    question = since if found_at is None else found_at + FOUND_AGAIN
    if isinstance(look, NotLooked) or look.started < question:
        return found_at, AskProcesses(question)
    if isinstance(look, LookFailed):
        return found_at, NOT_KNOWN
    found = find_leftovers(mark, look.processes)
    if not found:
        return None, NOTHING_LEFT if mark.nonce is not None else NONE_IN_SESSION
    if found_at is None:
        return look.started, AskProcesses(look.started + FOUND_AGAIN)
    named = tuple(LeftoverProcess(pid=process.pid, name=process.name) for process in found[:NAMES_LIMIT])
    return found_at, LeftoversStatus(result=LeftoversResult.FOUND, count=len(found), processes=named)


def describe_leftovers(left: LeftoversStatus) -> str:
    """Say what is left in a sentence for people; empty where nothing is."""
    match left.result:
        case LeftoversResult.NONE:
            return ""
        case LeftoversResult.NONE_IN_SESSION:
            return (
                "No process of its session is left; whether any had left the session before cannot be known of one "
                "that was adopted."
            )
        case LeftoversResult.NOT_KNOWN:
            return "Whether the kill left processes behind is not known: the sprite could not be searched."
        case LeftoversResult.FOUND:
            processes = left.processes or ()
            count = left.count or len(processes)
            names = ", ".join(f"{process.pid} ({process.name})" for process in processes)
            more = count - len(processes)
            return (
                f"The kill left {_count(count)} behind: {names}{f' and {more} more' if more else ''}. What leaves "
                "its terminal's process group is not killed with it; end it inside the sprite if it is not wanted."
            )
        case _:
            assert_never(left.result)


def _count(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"

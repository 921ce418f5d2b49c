"""
How the tasks that hold a sprite are set and removed: one command with many calls, and a verdict for each.

Problem: the Tasks API exists only inside the sprite, so a curl runs there; an exec costs time and keeps the sprite
awake, so one exec must carry all that is due; and what comes back is one exit code and some text, which a broken
socket, a missing curl or a flood of output can cut short. Promise: each call has a verdict of its own; only what was
answered counts as done; what was not answered is unclear, never done and never failed for certain; nothing here
raises, and nothing is repeated inside a call.

The form of the output: a call ends with a line `aterm <index> <status> <curl's exit code>` that begins a line of its
own, bodies are discarded, and curl stops at its first call without an answer, so that a dead API costs one time limit
and not many. Where curl is too old to know its own exit code per call, that of the whole command stands in for the
last call that has a line: it is the one at which curl stopped.

Source: behaviour cases U1 to U8; sprites-api.md 7 and trap 16 (2026-09); curl(1): `--next` resets all but global
options, `--fail-early` is global. Observed: curl 7.88 (2026-12): lines come in order, the failed call has one too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.errors import Failure
from controller.plan.hold_names import is_safe_name

SOCKET: Final = "/.sprite/api.sock"
TASKS_URL: Final = "http://sprite/v1/tasks"

EXPIRE_MAX: Final = timedelta(hours=1)
"""The platform refuses a longer task."""

CURL_LIMIT: Final = timedelta(seconds=8)
"""For one call inside the sprite."""

EXEC_LIMIT: Final = timedelta(seconds=10)
"""For the whole command, as seen from outside (U7)."""

OUTPUT_BYTES: Final = 4096
"""The most output of a command that sets or removes tasks (U7)."""

CALLS_IN_AN_EXEC: Final = 15
"""
Calls in one command. The words of an exec travel in the address of its socket, and 8 KB is what servers commonly take.
"""

CURL_MISSING_CODE: Final = 127
"""What a shell, and the platform, say of a program that is not there."""

LINE: Final = re.compile(r"aterm ([0-9]{1,4}) ([0-9]{3})( [0-9]{1,3})?", re.ASCII)
"""The line that closes a call: index, status, and curl's own exit code, which an old curl leaves out."""


@dataclass(frozen=True, slots=True)
class UpsertTask:
    """Create a task, or set its expiry anew. There is no upsert without an expiry: no hold outlives the operator."""

    name: str
    expire: timedelta


@dataclass(frozen=True, slots=True)
class RemoveTask:
    """Remove a task; one that is not there will do."""

    name: str


TaskCall = UpsertTask | RemoveTask


class TaskTrouble(StrEnum):
    """Why a call is not known to be done, told apart as far as people act differently: a closed list."""

    REFUSED = "Refused"
    """It was unsafe to build; nothing was sent."""
    CURL_MISSING = "CurlMissing"
    """Exit code 127: the sprite has no curl."""
    CURL_FAILED = "CurlFailed"
    """curl ended with another code: no answer of the Tasks API."""
    NO_ANSWER = "NoAnswer"
    """curl ended well and printed 000."""
    STATUS = "Status"
    """The Tasks API answered with a status that is no success."""
    UNREADABLE = "Unreadable"
    """The command ended well, and its output lacks the call's line or has it twice."""
    STOPPED = "Stopped"
    """An earlier call of the same command got no answer, and this one was not tried."""
    TOO_MUCH_OUTPUT = "TooMuchOutput"
    """The command said more than the limit and was cut off."""
    NO_EXIT = "NoExit"
    """The socket ended without an exit: it may have happened."""
    TIMED_OUT = "TimedOut"
    """No end within the time limit: it may have happened."""
    EXEC_FAILED = "ExecFailed"
    """The command could not be started, as far as anybody knows."""


@dataclass(frozen=True, slots=True)
class Done:
    """The Tasks API answered that it is so."""

    status: int


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed, with what is known of it. An upsert that failed may nevertheless have been applied (C5)."""

    trouble: TaskTrouble
    exit_code: int | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Unclear:
    """Nobody knows: it may have happened."""

    trouble: TaskTrouble
    message: str = ""


Verdict = Done | Failed | Unclear


@dataclass(frozen=True, slots=True)
class ExecEnded:
    """The command came to its end."""

    exit_code: int
    stdout: bytes


@dataclass(frozen=True, slots=True)
class ExecFailed:
    """
    The command did not come to an end that we saw. `message` is safe to show.

    `oversized` True where it was cut off for saying too much.
    """

    failure: Failure
    message: str
    oversized: bool = False


ExecAnswer = ExecEnded | ExecFailed


@dataclass(frozen=True, slots=True)
class TaskExec:
    """
    One command for many calls.

    `argv` is empty where nothing is left to run; `refused` are the calls that were unsafe to build.
    """

    argv: tuple[str, ...]
    calls: tuple[TaskCall, ...]
    refused: tuple[TaskCall, ...] = ()


def build_exec(calls: Iterable[TaskCall]) -> TaskExec:
    """Build the command for some calls, in their order; an unsafe one is left out and told."""
    taken: list[TaskCall] = []
    refused: list[TaskCall] = []
    for call in calls:
        (taken if is_buildable(call) else refused).append(call)
    if not taken:
        return TaskExec((), (), tuple(refused))
    # Without -q a ~/.curlrc of the sprite's user would have its say in every call.
    argv = ["curl", "-q", "--fail-early"]
    for index, call in enumerate(taken):
        argv += ["--next"] if index else []
        argv += _render_call(index, call)
    return TaskExec(tuple(argv), tuple(taken), tuple(refused))


def is_buildable(call: TaskCall) -> bool:
    """Tell whether a call may be built: a safe name, and for an upsert whole seconds from 1 to 3600 (U2)."""
    match call:
        case UpsertTask(name=name, expire=expire):
            return is_safe_name(name) and timedelta(0) < expire <= EXPIRE_MAX and not expire % timedelta(seconds=1)
        case RemoveTask(name=name):
            return is_safe_name(name)
        case _:
            assert_never(call)


def split_calls(calls: Sequence[TaskCall]) -> tuple[tuple[TaskCall, ...], ...]:
    """Split calls into commands of a size that fits an address, in their order: run one after the other."""
    return tuple(tuple(calls[start : start + CALLS_IN_AN_EXEC]) for start in range(0, len(calls), CALLS_IN_AN_EXEC))


def judge_exec(run: TaskExec, answer: ExecAnswer) -> tuple[tuple[TaskCall, Verdict], ...]:
    """Give the verdict of each call, the refused ones last. Total: no answer is too strange."""
    refused = tuple((call, Failed(TaskTrouble.REFUSED)) for call in run.refused)
    match answer:
        case ExecFailed() as failed:
            unclear = Unclear(judge_exec_failure(failed), failed.message)
            return (*((call, unclear) for call in run.calls), *refused)
        case ExecEnded(exit_code=code, stdout=stdout):
            lines = _read_lines(stdout, exit_code=code, count=len(run.calls))
            told = ((call, _judge_call(call, index, lines, code)) for index, call in enumerate(run.calls))
            return (*told, *refused)
        case _:
            assert_never(answer)


def judge_exec_failure(failed: ExecFailed) -> TaskTrouble:
    """Name why a command gave no verdicts. Total over what can happen to a call."""
    if failed.oversized:
        return TaskTrouble.TOO_MUCH_OUTPUT
    match failed.failure:
        case Failure.TIMED_OUT:
            return TaskTrouble.TIMED_OUT
        case Failure.UNFINISHED:
            return TaskTrouble.NO_EXIT
        case Failure.MALFORMED:
            return TaskTrouble.UNREADABLE
        case (
            Failure.UNAUTHORIZED
            | Failure.FORBIDDEN
            | Failure.NOT_FOUND
            | Failure.GONE
            | Failure.CONFLICT
            | Failure.REJECTED
            | Failure.REDIRECTED
            | Failure.THROTTLED
            | Failure.SERVER
            | Failure.UNREACHABLE
            | Failure.REFUSED
            | Failure.API_INCIDENT
        ):
            return TaskTrouble.EXEC_FAILED
        case _:
            assert_never(failed.failure)


def describe_verdict(call: TaskCall, verdict: Verdict) -> str:
    """Say in a sentence what became of a call, with exit code and status where they are known (C13)."""
    deed = "Setting" if isinstance(call, UpsertTask) else "Removing"
    # An unsafe name may hold anything, so it is shown as a quoted text.
    name = call.name if is_safe_name(call.name) else ascii(call.name)[:80]
    match verdict:
        case Done(status=status):
            return f"{deed} task {name} is done ({status})."
        case Failed(trouble=TaskTrouble.CURL_MISSING):
            return (
                f"{deed} task {name} failed: the sprite has no curl (exit code {CURL_MISSING_CODE}); install it there."
            )
        case Failed(trouble=TaskTrouble.REFUSED):
            return (
                f"{deed} task {name} was refused: a name has 1 to 63 of A-Z, a-z, 0-9, _ and -, an expiry 1 to 3600 s."
            )
        case Failed(exit_code=code, status=status):
            known = [f"exit code {code}"] if code is not None else []
            known += [f"status {status:03d}"] if status is not None else []
            return f"{deed} task {name} failed ({', '.join(known) or verdict.trouble.value})."
        case Unclear(trouble=trouble, message=message):
            return f"{deed} task {name} may or may not have happened: {message or trouble.value}"
        case _:
            assert_never(verdict)


def _render_call(index: int, call: TaskCall) -> list[str]:
    common = ["-s", "-o", "/dev/null", "-w", f"\\naterm {index} %{{http_code}} %{{exitcode}}\\n"]
    common += ["--max-time", f"{CURL_LIMIT // timedelta(seconds=1)}", "--unix-socket", SOCKET]
    match call:
        case UpsertTask(name=name, expire=expire):
            body = f'{{"expire":{expire // timedelta(seconds=1)}}}'
            put = ["-X", "PUT", "-H", "Content-Type: application/json", "-d", body]
            return [*common, *put, f"{TASKS_URL}/{name}"]
        case RemoveTask(name=name):
            return [*common, "-X", "DELETE", f"{TASKS_URL}/{name}"]
        case _:
            assert_never(call)


@dataclass(frozen=True, slots=True)
class _Lines:
    """What the output said: index → (status, curl's own exit code), and which indices were told twice."""

    told: dict[int, tuple[int, int]]
    doubled: frozenset[int]
    stopped: bool
    """curl stopped early: a call without a line was not tried."""


def _read_lines(stdout: bytes, *, exit_code: int, count: int) -> _Lines:
    found: list[tuple[int, int, str | None]] = []
    for line in stdout.decode("utf-8", "replace").splitlines():
        match = LINE.fullmatch(line.strip())
        if match is not None and int(match[1]) < count:
            found.append((int(match[1]), int(match[2]), match[3]))
    told: dict[int, tuple[int, int]] = {}
    doubled = set()
    for position, (index, status, code) in enumerate(found):
        is_last = position == len(found) - 1
        if index in told:
            doubled.add(index)
        told[index] = (status, int(code) if code else exit_code if is_last else 0)
    return _Lines(told, frozenset(doubled), stopped=any(code != 0 for _, code in told.values()))


def _judge_call(call: TaskCall, index: int, lines: _Lines, exit_code: int) -> Verdict:
    if exit_code == CURL_MISSING_CODE and not lines.told:
        return Failed(TaskTrouble.CURL_MISSING, exit_code)
    if index in lines.doubled:
        return Unclear(TaskTrouble.UNREADABLE)
    if index not in lines.told:
        if lines.stopped:
            return Failed(TaskTrouble.STOPPED)
        if exit_code != 0:
            return Failed(TaskTrouble.CURL_FAILED, exit_code)
        return Unclear(TaskTrouble.UNREADABLE)
    status, code = lines.told[index]
    return judge_call(call, exit_code=code, status=status)


def judge_call(call: TaskCall, *, exit_code: int, status: int | None) -> Verdict:
    """
    Say what an exit code of curl and a status mean for one call (U4 to U6).

    Done needs exit code 0 and any 2xx; a removal is done with 404 as well, because what is not there need not go.
    """
    if exit_code == CURL_MISSING_CODE:
        return Failed(TaskTrouble.CURL_MISSING, exit_code, status)
    if exit_code != 0:
        return Failed(TaskTrouble.CURL_FAILED, exit_code, status)
    if status is None:
        return Failed(TaskTrouble.UNREADABLE, exit_code)
    if status == 0:
        return Failed(TaskTrouble.NO_ANSWER, exit_code, status)
    if 200 <= status <= 299 or (status == 404 and isinstance(call, RemoveTask)):
        return Done(status)
    return Failed(TaskTrouble.STATUS, exit_code, status)

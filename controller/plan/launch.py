"""
How a session is started so that no command runs twice, and how a launch whose answer was lost is found again.

Problem: creating a session is not idempotent, its answer can be lost at every point, and neither environment nor argv
may travel in a URL. Promise: what is declared runs at most once for each nonce, whatever crashes.

The declared command goes, with its environment, into a script that is uploaded by standard input (mode 0600). The
session then runs `/bin/sh <directory>/aterm-<nonce>`. The script's first act is to make the directory
`aterm-<nonce>.ran`, which only one process can do: a second run of the same script ends at once. It then removes
itself and *execs* the command, so that the session's process is the command and SIGKILL hits it. Thus three traces tell
a lost launch apart: a process with the nonce in its environment (running), the directory (it ran), the script or
neither in a sprite that has not restarted since (it never ran).

A launch that never ran may still be on its way: its create was sent by a process that has died, and nobody knows when
it arrives. So it is barred before anything else is done: the name of the directory is taken by a link, which is as
exclusive as the directory itself. Either the bar stands, and then no late create ever runs the command, or the command
was faster and is found. Only then a new launch follows, under a new nonce.

Source: sprites-api.md 3.2 and traps 20, 21, 22, 28 (read 2026-11-30).
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controller.api.session import Session
from controller.api.terminal import Launch, LaunchIntent

NONCE_VARIABLE: Final = "AGENTTERMINAL_LAUNCH"
"""Carries the nonce in the environment of everything that a launch started."""

DEFAULT_TERM: Final = "xterm-256color"
"""Source: sprites-api.md trap 28: TERM is unset on a new TTY session, so full-screen programs misbehave."""

ALREADY_RAN_CODE: Final = 125
"""The exit code of a second run of one script."""

SEARCH_PATIENCE: Final = timedelta(seconds=120)
"""After this long, a launch without any trace, in a sprite that restarted, counts as unclear for good."""

_SAFE_NONCE: Final = re.compile(r"[a-z0-9]{8,64}")

_CHOOSE_DIRECTORY: Final = 'd=/dev/shm; { [ -d "$d" ] && [ -w "$d" ]; } || d=/tmp; f="$d/aterm-$1"; '

UPLOAD_SCRIPT: Final = (
    f"umask 077; {_CHOOSE_DIRECTORY}"
    'cat > "$f.part" && if [ -L "$f.ran" ]; then rm -f "$f.part"; exit 1; fi && '
    'mv -f "$f.part" "$f" && printf %s "$d"'
)
"""
Takes the nonce as its one argument and the launch script as standard input; prints the directory it chose.

It stores nothing under a nonce that was barred: a script that comes so late would lie there for ever, with its secrets.
"""

PROBE_SCRIPT: Final = (
    "for d in /dev/shm /tmp; do "
    '[ -e "$d/aterm-$1" ] && echo script; [ -d "$d/aterm-$1.ran" ] && echo ran; done; '
    "for e in /proc/[0-9]*/environ; do "
    f"if tr '\\000' '\\n' < \"$e\" 2>/dev/null | grep -qx \"{NONCE_VARIABLE}=$1\"; "
    'then e=${e#/proc/}; echo "pid ${e%/environ}"; fi; done; '
    'read -r up rest < /proc/uptime; echo "uptime $up"; read -r init < /proc/1/stat; echo "init $init"; echo end'
)
"""Takes the nonce; prints the traces of its launch, a line each, and `end` when it saw them all."""

BAR_SCRIPT: Final = (
    f"{_CHOOSE_DIRECTORY}"
    '[ -d "$f.ran" ] || ln -s "$f.barred" "$f.ran" 2>/dev/null; '
    'if [ -L "$f.ran" ]; then rm -f "$f" "$f.part"; echo barred; elif [ -d "$f.ran" ]; then echo ran; fi'
)
"""
Takes the nonce of a launch that never ran, bars it from ever running, and removes its script; prints `barred` or `ran`.

A link that is there already is a bar of an earlier try, whose answer was lost.
"""


def render_launch_script(launch: Launch, environment: Mapping[str, str], nonce: str) -> bytes:
    """
    Write the script that becomes the declared command, at most once.

    Every word is quoted for the shell; a working directory that is missing ends it with code 126, as a shell would.

    Args:
        launch: What to start.
        environment: The values to export, secrets resolved; names are shell identifiers by the API's rule.
        nonce: Lower-case letters and digits.
    """
    check_nonce(nonce)
    lines = [f'mkdir "$0.ran" 2>/dev/null || exit {ALREADY_RAN_CODE}', 'rm -f -- "$0"']
    if "TERM" not in environment:
        lines.append(f'TERM="${{TERM:-{DEFAULT_TERM}}}"; export TERM')
    lines.append(f"{NONCE_VARIABLE}={nonce}; export {NONCE_VARIABLE}")
    lines.extend(f"{name}={shlex.quote(value)}; export {name}" for name, value in environment.items())
    if launch.working_directory is not None:
        lines.append(f"cd -- {shlex.quote(launch.working_directory)} || exit 126")
    lines.append("exec " + " ".join(shlex.quote(word) for word in launch.command))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def render_upload_command(nonce: str) -> tuple[str, ...]:
    """Give the argv that takes the script by standard input; it holds nothing of the declaration but the nonce."""
    return ("/bin/sh", "-c", UPLOAD_SCRIPT, "aterm", check_nonce(nonce))


def render_probe_command(nonce: str) -> tuple[str, ...]:
    """Give the argv that looks for the traces of a launch."""
    return ("/bin/sh", "-c", PROBE_SCRIPT, "aterm", check_nonce(nonce))


def render_bar_command(nonce: str) -> tuple[str, ...]:
    """Give the argv that keeps a launch from ever running."""
    return ("/bin/sh", "-c", BAR_SCRIPT, "aterm", check_nonce(nonce))


def read_bar(output: str) -> bool | None:
    """Tell whether a launch was barred (True) or had run before (False); None where neither was said."""
    return {"barred": True, "ran": False}.get(output.strip())


def render_session_command(directory: str, nonce: str) -> tuple[str, ...]:
    """Give the argv of the session itself."""
    return ("/bin/sh", f"{directory}/aterm-{check_nonce(nonce)}")


def check_nonce(nonce: str) -> str:
    """
    Pass a nonce that is safe as a file name and in a shell, and refuse any other.

    Raises:
        ValueError: It was not made by us.
    """
    if not _SAFE_NONCE.fullmatch(nonce):
        raise ValueError("A launch nonce has 8 to 64 lower-case letters and digits.")
    return nonce


@dataclass(frozen=True, slots=True)
class Traces:
    """What the probe saw of one launch."""

    script: bool
    ran: bool
    pids: frozenset[str]
    init_age: timedelta | None
    """How long the sprite's first process has been running; None where it could not be read."""


def read_traces(output: str) -> Traces | None:
    """Read what the probe printed; None where it did not come to its end, since then nothing was learned."""
    lines = output.split("\n")
    if "end" not in lines:
        return None
    fields = {word: rest for word, _, rest in (line.partition(" ") for line in lines)}
    return Traces(
        script="script" in lines,
        ran="ran" in lines,
        pids=frozenset(line.removeprefix("pid ").strip() for line in lines if line.startswith("pid ")),
        init_age=_read_init_age(fields.get("uptime", ""), fields.get("init", "")),
    )


def _read_init_age(uptime: str, stat: str) -> timedelta | None:
    """
    Compute the age of the first process.

    Source: proc(5): field 22 of `stat` is the start time in ticks of 1/100 s; the name (field 2) may hold spaces.
    """
    try:
        started = int(stat.rpartition(")")[2].split()[19])
        return timedelta(seconds=float(uptime) - started / 100)
    except (ValueError, IndexError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class LaunchRunning:
    """It runs as this session."""

    session: Session


@dataclass(frozen=True, slots=True)
class LaunchRan:
    """It ran and is not in the list: it has ended."""


@dataclass(frozen=True, slots=True)
class LaunchNeverRan:
    """Nothing of it ever ran; once it is barred it never will, and another may follow."""


@dataclass(frozen=True, slots=True)
class LaunchUntraceable:
    """It may or may not have run, and cannot be traced."""


LaunchFinding = LaunchRunning | LaunchRan | LaunchNeverRan | LaunchUntraceable


def judge_launch(
    intent: LaunchIntent, sessions: tuple[Session, ...], traces: Traces | None, *, now: datetime
) -> LaunchFinding:
    """
    Say what became of a launch whose answer was lost.

    The list is asked first: a listed command that names the script needs no probe. The nonce alone does not tell: our
    own commands about a launch (the upload of its script, for one) have it among their words, and are listed as well.
    Processes with the nonce that no session leads (left behind by a leader that ended) do not count as running.

    Without traces it never ran if the sprite's first process is older than the intent, so that nothing was lost with a
    restart. Both ages are durations, so the clocks of sprite and operator need not agree; a clock that stood still in a
    pause makes the process look younger, which errs towards "untraceable". The clocks of two operators may differ by
    less than the second that a sprite takes, at the very least, to run a command, stop and start again.

    Args:
        intent: What was recorded before the create.
        sessions: A list that started after the question arose.
        traces: What the probe saw; None where it could not be asked.
        now: Wall time.
    """
    for session in sessions:
        if f"/aterm-{intent.nonce}" in session.command or (traces is not None and session.id in traces.pids):
            return LaunchRunning(session)
    if traces is None:
        return LaunchUntraceable()
    if traces.ran:
        return LaunchRan()
    if traces.script:
        return LaunchNeverRan()
    since_intent = now - intent.requested_time
    if traces.init_age is not None and traces.init_age >= since_intent:
        return LaunchNeverRan()
    return LaunchUntraceable()

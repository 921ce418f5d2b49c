"""
Every point on which the published material disagrees, as a switch.

Problem: the Sprites API is known from documents and observations that contradict each other, and a client tested
against one reading only is not tested. Promise: each open question is a switch with a closed set of values and a
default, may be changed while the emulator runs, and a wrong value is refused with the name and the rule.
Source: sprites-api.md, sections 3 to 8 and 12 (read September 2026).
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from controller.lab.emulator.strict import Seconds, Strict


class IsActive(StrEnum):
    """What the list's `is_active` means (question 4)."""

    ATTACHED = "attached"
    RECENT_OUTPUT = "recent-output"
    """Output within the last 5 minutes."""
    ALWAYS = "always"
    NEVER = "never"


class Replay(StrEnum):
    """What an attach gets of the past (question 23)."""

    RAW = "raw"
    RENDERED = "rendered"
    """Begins with a cleared screen, and without the targets of hyperlinks. TTY only."""
    NONE = "none"


class InputFrom(StrEnum):
    """Whose input counts when several clients are attached (question 41)."""

    ALL = "all"
    OWNER = "owner"
    """The client that has been attached longest."""
    NEWEST = "newest"


class TtyClose(StrEnum):
    """How the socket of a TTY session ends after the text `exit` (question 25)."""

    DROP = "drop"
    """The TCP connection ends without a close frame."""
    NORMAL = "1000"


class TextExit(StrEnum):
    """When a non-TTY session sends the text `exit` (question 26)."""

    LATE = "late"
    """After all output, directly before the binary frame."""
    EARLY = "early"
    """At the end of the process, before trailing output."""
    ABSENT = "absent"


class KillReach(StrEnum):
    """Whom a signal reaches (question 19)."""

    FOREGROUND = "foreground"
    """The leader's group and, on a TTY, its foreground group."""
    FOREGROUND_ONLY = "foreground-only"
    """On a TTY the foreground group alone."""
    LEADER = "leader"
    """The leader alone."""


class KillExited(StrEnum):
    """What a kill of a session that has ended answers (question 18)."""

    NOT_FOUND = "404"
    GONE = "410"


class KillBody(StrEnum):
    """Whether a kill reads its JSON body (question 15); the query wins in any case."""

    READ = "read"
    IGNORED = "ignored"


class TaskHour(StrEnum):
    """What the hour of a task is counted from (question 7)."""

    REFRESH = "refresh"
    """Each PUT may extend it by up to an hour."""
    CREATION = "creation"
    """No PUT extends it beyond an hour after its creation; DELETE and a new PUT do."""


class ListedCommand(StrEnum):
    """Whether the listed command follows an exec (question 42)."""

    STARTED = "started"
    CURRENT = "current"


class Envelope(StrEnum):
    """The form of the session list (questions 1 and 2)."""

    OBJECT = "object"
    ARRAY = "array"
    """A bare array with integer ids, as the early reference shows it."""


class CreatedStatus(StrEnum):
    """What a new sprite is."""

    COLD = "cold"
    WARM = "warm"
    RUNNING = "running"


class Switches(Strict):
    """
    The emulator's behaviour where the sources leave it open. All may change while it runs.

    Durations are seconds; 0 means never for `idle_seconds` and `cold_after_seconds`, and at once for the others.
    """

    idle_seconds: Seconds = 0
    """Silence after which a running sprite becomes warm. Default: never, so that no test pauses by surprise."""
    cold_after_seconds: Seconds = 0
    """How long a sprite stays warm before it becomes cold."""
    wake_warm_seconds: Seconds = 0
    wake_cold_seconds: Seconds = 0
    status_lag_seconds: Seconds = 0
    """How long the metadata still shows the former status."""
    created_status: CreatedStatus = CreatedStatus.COLD
    list_wakes: bool = True
    """Whether listing sessions wakes a paused sprite and counts as activity (question 13)."""
    list_trail_seconds: Seconds = 0
    """How long an ended session is still listed; the real list trails by about 0.2."""
    list_envelope: Envelope = Envelope.OBJECT
    listed_command: ListedCommand = ListedCommand.STARTED
    is_active: IsActive = IsActive.ATTACHED
    replay: Replay = Replay.RAW
    replay_bytes: Annotated[int, Field(ge=0, le=1 << 24)] = 65536
    input_from: InputFrom = InputFrom.ALL
    tty_close: TtyClose = TtyClose.DROP
    text_exit: TextExit = TextExit.LATE
    linger_seconds: Seconds = 5
    """How long the socket of a non-TTY session stays open after its exit."""
    fast_path: bool = False
    """A command of less than 0.2 s comes as one stdout stream, stderr folded in, cut at 65536 bytes."""
    debug_frames: bool = False
    """Send the undocumented `debug` frame before `session_info`."""
    drop_first_socket_on_cold: bool = False
    """The first exec on a cold sprite wakes it and loses its connection before the upgrade."""
    kill_reach: KillReach = KillReach.FOREGROUND
    kill_exited: KillExited = KillExited.NOT_FOUND
    kill_body: KillBody = KillBody.READ
    kill_second_signal: bool = True
    """A TTY's second `signal` line after `exited`, as observed live."""
    task_hour: TaskHour = TaskHour.REFRESH
    tasks_survive_cold: bool = False
    duplicate_status: Annotated[int, Field(ge=400, le=499)] = 409
    """The answer to a name that is taken (question 31)."""
    watch_snapshot: bool = False
    """Whether the live watch of sprites begins with what there is (question 35)."""
    heartbeat_seconds: Seconds = 15
    """Between two heartbeats of the live watch."""
    record_output: str = ""
    """What a command without a terminal writes where sessions are records: whoever waits for an answer gets this."""
    signal_frames: bool = True
    """Announce and obey WebSocket signal frames."""

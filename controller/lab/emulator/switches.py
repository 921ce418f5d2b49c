"""
Every point on which the published material disagrees, and every trap of a server, as a switch: one table.

Problem: the Sprites API is known from documents and observations that contradict each other, and a client tested
against one reading only is not tested. Promise: each open question is a switch with a closed set of values and a
default, may be changed while the emulator runs, and a wrong value is refused with the name and the rule. Each switch
says in its `Lie` which questions and traps it answers, what its values mean, and which of them the seeded mix may draw.
`points.py` shows that none of the 42 questions and 32 traps is left out.
Source: sprites-api.md, sections 1 to 8, 11 and 12 (read September 2026).
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field
from pydantic.fields import FieldInfo

from controller.lab.emulator.strict import Seconds, Strict

Every = Annotated[int, Field(ge=0, le=1_000_000)]
"""Each so manyth; 0 is none."""
Limit = Annotated[int, Field(ge=0, le=1_000_000)]
"""At most so many; 0 is without limit."""


class Scope(StrEnum):
    """For what a switch can be set."""

    SPRITE = "sprite"
    """For all sprites, and for one of them differently."""
    API = "api"
    """For the whole API: it is about no single sprite."""


@dataclass(frozen=True)
class Lie:
    """
    What a switch is about.

    Args:
        points: The questions (`Q1` to `Q42`) and traps (`T1` to `T32`) that it answers; some switches answer none.
        says: One sentence with the meaning of each value.
        mixed: What the seeded mix may draw besides the default.
        kept: Why other values are never drawn; empty where all may be.
    """

    points: tuple[str, ...]
    says: str
    mixed: tuple[bool | int | float | str, ...] = ()
    kept: str = ""
    scope: Scope = Scope.SPRITE


class IsActive(StrEnum):
    """What the list's `is_active` means."""

    ATTACHED = "attached"
    RECENT_OUTPUT = "recent-output"
    ALWAYS = "always"
    NEVER = "never"


class Replay(StrEnum):
    """What an attach gets of the past."""

    RAW = "raw"
    RENDERED = "rendered"
    NONE = "none"


class InputFrom(StrEnum):
    """Whose input counts when several clients that may type are attached."""

    ALL = "all"
    OWNER = "owner"
    NEWEST = "newest"


class SocketClose(StrEnum):
    """How a socket ends after its last frame."""

    DROP = "drop"
    NORMAL = "1000"


class TextExit(StrEnum):
    """When a session without terminal sends the text `exit`."""

    LATE = "late"
    EARLY = "early"
    ABSENT = "absent"


class KillReach(StrEnum):
    """Whom a signal reaches."""

    FOREGROUND = "foreground"
    FOREGROUND_ONLY = "foreground-only"
    LEADER = "leader"


class KillExited(StrEnum):
    """What a kill of a session that has ended answers."""

    NOT_FOUND = "404"
    GONE = "410"


class KillBody(StrEnum):
    """Whether a kill reads its JSON body; the query wins in any case."""

    READ = "read"
    IGNORED = "ignored"


class KillError(StrEnum):
    """Whether a kill answers 200 and then an `error` line."""

    NONE = "none"
    DONE = "done"
    UNDONE = "undone"


class KillExitCode(StrEnum):
    """What the `complete` line says of an end by a signal."""

    SHELL = "shell"
    NEGATIVE = "negative"
    ABSENT = "absent"


class ZeroTimeout(StrEnum):
    """What a kill's `timeout=0s` means."""

    AT_ONCE = "at-once"
    DEFAULT = "default"
    NEVER = "never"


class BareUnit(StrEnum):
    """What a bare integer counts in a kill's `timeout`."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    NANOSECONDS = "ns"


class SignalNames(StrEnum):
    """Which form of a signal's name is read."""

    BOTH = "both"
    LONG = "sig"
    SHORT = "short"


class UnknownSignal(StrEnum):
    """What a kill with an unknown signal does."""

    REFUSED = "refused"
    TERM = "term"


class TaskHour(StrEnum):
    """What the hour of a task is counted from."""

    REFRESH = "refresh"
    CREATION = "creation"


class TaskExpire(StrEnum):
    """What happens to an expiry that is not above zero or above the ceiling."""

    REFUSED = "refused"
    CLAMPED = "clamped"


class TaskClock(StrEnum):
    """Whether a task's time passes while the sprite is paused."""

    RUNS = "runs"
    STOPS = "stops"


class TaskNames(StrEnum):
    """Which names a task may have."""

    SAFE = "safe"
    ANY = "any"


class ListedCommand(StrEnum):
    """What the list shows as a session's command."""

    STARTED = "started"
    CURRENT = "current"
    ARGV = "argv"


class Envelope(StrEnum):
    """The form of the session list."""

    OBJECT = "object"
    NO_COUNT = "no-count"
    ARRAY = "array"


class IdType(StrEnum):
    """What a session's id is in JSON."""

    STRING = "string"
    INTEGER = "integer"


class CreatedStatus(StrEnum):
    """What a new sprite is."""

    COLD = "cold"
    WARM = "warm"
    RUNNING = "running"


class KeptAwakeBy(StrEnum):
    """Which sessions keep a sprite running, besides their output and input."""

    ATTACHED = "attached"
    NONE = "none"
    TERMINALS = "terminals"
    SESSIONS = "sessions"


class Survive(StrEnum):
    """Which pause sessions survive."""

    WARM = "warm"
    NONE = "none"
    COLD = "cold"


class Restart(StrEnum):
    """What a restart of the machine does."""

    ABSENT = "absent"
    ENDS = "ends"
    KEEPS = "keeps"


class RunOnFrom(StrEnum):
    """From when `max_run_after_disconnect` counts."""

    LAST = "last"
    CREATOR = "creator"


class Taken(StrEnum):
    """Whether something that a client sends has an effect."""

    IGNORED = "ignored"
    TAKEN = "taken"


class IsOwner(StrEnum):
    """To whom `session_info` says that it owns the session."""

    ALWAYS = "always"
    FIRST = "first"
    NEVER = "never"


class ExitField(StrEnum):
    """The name of the code in the text `exit`."""

    EXIT_CODE = "exit_code"
    CODE = "code"


class PortType(StrEnum):
    """The type of the frame that tells of an open port."""

    PORT_OPENED = "port_opened"
    PORT = "port"


class PortFrames(StrEnum):
    """Which sessions are told of ports."""

    NONE = "none"
    TTY = "tty"
    ALL = "all"


class PageOver(StrEnum):
    """What happens to a `max_results` above the ceiling."""

    CLAMPED = "clamped"
    REFUSED = "refused"


class Counts(StrEnum):
    """Where a page has the organization's counts."""

    BOTH = "both"
    ORG = "org"
    TOP = "top"


class HasMore(StrEnum):
    """What the last page says."""

    HONEST = "honest"
    STUCK = "stuck"


class SpriteNames(StrEnum):
    """Which names a sprite may have."""

    DNS = "dns"
    SHORT = "short"
    LOOSE = "loose"


class Config(StrEnum):
    """What becomes of `config` and `environment` of a create."""

    IGNORED = "ignored"
    SHOWN = "shown"


class Watch(StrEnum):
    """What `Accept: application/x-ndjson` on the list of sprites gives."""

    STREAM = "stream"
    PAGE = "page"


class RetryAfter(StrEnum):
    """The form of `Retry-After` with a 429."""

    SECONDS = "seconds"
    DATE = "date"
    ABSENT = "absent"


class LimitBody(StrEnum):
    """The form of the body of a 429."""

    STRUCTURED = "structured"
    ERROR = "error"
    TEXT = "text"


class PostAnswer(StrEnum):
    """What an exec by POST answers."""

    FRAMES = "frames"
    MERGED = "merged"
    JSON = "json"


class WakeError(StrEnum):
    """What a session list or a kill that wakes a sprite answers."""

    NONE = "none"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"


class DeleteSession(StrEnum):
    """What `DELETE` on a session does."""

    ABSENT = "absent"
    KILLS = "kills"


class Environment(StrEnum):
    """What `env` does to the default environment."""

    REPLACES = "replaces"
    ADDS = "adds"


class Term(StrEnum):
    """What `TERM` is on a new terminal."""

    UNSET = "unset"
    XTERM = "xterm-256color"


class Shown(StrEnum):
    """What `session_info` says of the size."""

    ZERO = "zero"
    REAL = "real"


class SpriteFields(StrEnum):
    """Which fields of a sprite are shown."""

    FULL = "full"
    SURE = "sure"


PROTOCOL: Final = "it is the wire format that every current client relies on, and nothing on the wire announces another"
UNSTARTED: Final = "a start that is lost although nothing ran can be told by no client from one that ran and ended"


class Switches(Strict):
    """
    The emulator's behaviour where the sources leave it open, and where they warn of it. All may change while it runs.

    Durations are seconds, of emulated time unless said otherwise; 0 means never for `idle_seconds` and
    `cold_after_seconds`, and at once for the others.
    """

    # When a sprite pauses and wakes.

    idle_seconds: Annotated[
        Seconds,
        Lie(("Q11",), "The silence after which a running sprite becomes warm; 0 is never, as in most tests.", (30,)),
    ] = 0
    kept_awake_by: Annotated[
        KeptAwakeBy,
        Lie(
            ("Q5",),
            "What keeps a sprite running besides output, input and live tasks: `attached` clients, `none` of the "
            "sessions, all live `terminals` also when nobody is attached, or all live `sessions`.",
            ("none", "terminals", "sessions"),
        ),
    ] = KeptAwakeBy.ATTACHED
    cold_after_seconds: Annotated[
        Seconds, Lie(("Q12",), "How long a sprite stays warm before it becomes cold; 0 is for ever.", (60,))
    ] = 0
    sessions_survive: Annotated[
        Survive,
        Lie(
            ("Q6",),
            "What sessions survive: a `warm` pause only, `none`, or even `cold`, which then only stops them.",
            ("none",),
            kept="`cold` is documented to end every process, and a proof of death may rest on it",
        ),
    ] = Survive.WARM
    created_status: Annotated[
        CreatedStatus,
        Lie((), "What a new sprite is: `cold`, `warm` or `running`.", ("warm", "running"), scope=Scope.API),
    ] = CreatedStatus.COLD
    status_lag_seconds: Annotated[
        Seconds, Lie((), "How long metadata still shows the former status.", (1,), scope=Scope.SPRITE)
    ] = 0
    wake_warm_seconds: Annotated[Seconds, Lie((), "How long a wake from warm takes.", (0.3,))] = 0
    wake_cold_seconds: Annotated[Seconds, Lie((), "How long a wake from cold takes.", (1.5,))] = 0
    list_wakes: Annotated[
        bool,
        Lie(("Q13", "T27"), "Whether listing sessions wakes a paused sprite and counts as activity.", (False,)),
    ] = True
    metadata_wakes: Annotated[
        bool, Lie(("Q13",), "Whether showing or changing one sprite wakes it; a page of many never does.", (True,))
    ] = False
    reads_count: Annotated[
        bool,
        Lie(("Q13",), "Whether a read that does not wake counts as activity of a sprite that runs anyway.", (True,)),
    ] = False
    check_wakes: Annotated[bool, Lie(("Q14",), "Whether `check` wakes the sprite.", (True,))] = False
    restart: Annotated[
        Restart,
        Lie(
            ("Q14",),
            "`POST restart` is `absent` (404), or it wakes the sprite and `ends` or `keeps` its sessions.",
            ("ends", "keeps"),
        ),
    ] = Restart.ABSENT
    drop_first_socket_on_cold: Annotated[
        bool,
        Lie(
            ("T22",),
            "Whether the first exec or attach on a cold sprite wakes it and loses its connection before the upgrade.",
            kept=UNSTARTED,
        ),
    ] = False
    drop_while_waking: Annotated[
        bool,
        Lie(
            ("T22", "T30"),
            "Whether every exec and attach that comes while the sprite is not running wakes it and loses its "
            "connection before the upgrade.",
            kept=UNSTARTED,
        ),
    ] = False
    paused_hang_seconds: Annotated[
        Seconds, Lie(("T7",), "How much longer whatever wakes a paused sprite hangs before it is answered.", (2,))
    ] = 0
    wake_error: Annotated[
        WakeError,
        Lie(
            ("Q38",),
            "What a session list or a kill answers that wakes a sprite: its own answer (`none`), or an error of the "
            "edge, `502`, `503` or `504`, while the wake goes on.",
            ("502", "503", "504"),
        ),
    ] = WakeError.NONE

    # The list of sessions.

    session_ids: Annotated[
        IdType, Lie(("Q1", "T12"), "Session ids in lists and in `session_info`: `string` or `integer`.", ("integer",))
    ] = IdType.STRING
    list_envelope: Annotated[
        Envelope,
        Lie(
            ("Q2",),
            "The session list: an `object` with `count` and `sessions`, one with `no-count`, or a bare `array` (whose "
            "ids are integers, as the reference shows them).",
            ("no-count", "array"),
        ),
    ] = Envelope.OBJECT
    list_trail_seconds: Annotated[
        Seconds, Lie((), "How long an ended session is still listed; the real list trails by about 0.2.", (0.2,))
    ] = 0
    listed_command: Annotated[
        ListedCommand,
        Lie(
            ("Q42", "T11", "T21"),
            "What is listed as the command: the resolved one that was `started`, the `current` one after an exec, or "
            "the `argv` as it was sent.",
            ("current", "argv"),
        ),
    ] = ListedCommand.STARTED
    list_tty: Annotated[bool, Lie(("T9",), "Whether the list has the field `tty`.", (False,))] = True
    list_last_activity: Annotated[bool, Lie(("Q4",), "Whether the list has the field `last_activity`.", (False,))] = (
        True
    )
    is_active: Annotated[
        IsActive,
        Lie(
            ("Q4", "T8"),
            "What `is_active` means: a client is `attached`, `recent-output` (within 5 minutes), `always` true, or "
            "`never`.",
            ("recent-output", "always", "never"),
        ),
    ] = IsActive.ATTACHED

    # An exec socket, from its start to its end.

    env: Annotated[
        Environment,
        Lie(
            ("T20",),
            "Whether `env` of an exec `replaces` the default environment, PATH included, or `adds` to it.",
            ("adds",),
        ),
    ] = Environment.REPLACES
    tty_term: Annotated[
        Term, Lie(("T28",), "`TERM` on a new terminal: `unset` or `xterm-256color`.", ("xterm-256color",))
    ] = Term.UNSET
    lost_create_every: Annotated[
        Every,
        Lie(
            ("T22",),
            "Each so manyth exec starts its command and then loses its connection before the upgrade; 0 is none.",
            (4,),
            kept="1 would let no start ever be seen",
        ),
    ] = 0
    run_on_from: Annotated[
        RunOnFrom,
        Lie(
            ("Q21",),
            "`max_run_after_disconnect` counts from when the `last` client left, or from when the `creator` left, "
            "whoever is attached then.",
            ("creator",),
        ),
    ] = RunOnFrom.LAST
    run_on_on_attach: Annotated[
        Taken,
        Lie(("Q21", "T23"), "Whether `max_run_after_disconnect` on an attach is `ignored` or `taken`.", ("taken",)),
    ] = Taken.IGNORED
    detachable: Annotated[
        Taken,
        Lie(
            ("Q22", "T23"),
            "`detachable=true` is `ignored`, or `taken`: a session without terminal then runs on without limit.",
            ("taken",),
        ),
    ] = Taken.IGNORED
    info_size: Annotated[Shown, Lie(("T13",), "The size in `session_info`: `zero`, or the `real` one.", ("real",))] = (
        Shown.ZERO
    )
    is_owner: Annotated[
        IsOwner,
        Lie(
            ("Q24",),
            "`is_owner` in `session_info`: `always` true, for the `first` client only, or `never`.",
            ("first", "never"),
        ),
    ] = IsOwner.ALWAYS
    debug_frames: Annotated[
        bool, Lie((), "Whether the undocumented `debug` frame comes before `session_info`.", (True,))
    ] = False
    noise_frames: Annotated[
        bool,
        Lie((), "Whether frames of unknown types and text that is no JSON come around `session_info`.", (True,)),
    ] = False
    input_from: Annotated[
        InputFrom,
        Lie(
            ("Q41",),
            "Whose input counts among the clients that may type: `all`, the `owner` (attached longest), or the "
            "`newest`.",
            ("owner", "newest"),
        ),
    ] = InputFrom.ALL
    signal_frames: Annotated[
        bool, Lie(("T4",), "Whether signal frames are announced and obeyed, or silently dropped.", (False,))
    ] = True
    server_ping_seconds: Annotated[
        Seconds,
        Lie(
            ("Q27", "T18"),
            "How often the server pings, on the machine's clock, without asking for pongs; 0 is never.",
            (0.5,),
        ),
    ] = 0
    port_frames: Annotated[
        PortFrames,
        Lie(
            ("Q28",),
            "Who is told of ports that a session's processes open: `none`, clients of a `tty`, or `all`. Looked at "
            "every 0.1 s; records have none.",
            ("tty", "all"),
        ),
    ] = PortFrames.NONE
    port_closed: Annotated[bool, Lie(("Q28",), "Whether they are also told of ports that close.", (True,))] = False
    port_type: Annotated[
        PortType,
        Lie(("Q3",), "The type of the frame about an open port: `port_opened` or `port`.", ("port",)),
    ] = PortType.PORT_OPENED
    replay: Annotated[
        Replay,
        Lie(
            ("Q23", "T14"),
            "What an attach gets of the past: `raw` bytes, on a terminal a `rendered` screen (cleared first, without "
            "targets of hyperlinks), or `none`.",
            ("rendered", "none"),
        ),
    ] = Replay.RAW
    replay_bytes: Annotated[
        Annotated[int, Field(ge=0, le=1 << 24)], Lie(("Q23",), "How much of the past is kept.", (1024,))
    ] = 65536
    replay_without_tty: Annotated[
        bool, Lie(("Q23",), "Whether a session without terminal replays at all.", (False,))
    ] = True
    fast_path: Annotated[
        bool,
        Lie(
            ("Q23", "T16"),
            "Whether a command under 0.2 s comes as one stdout stream, stderr folded in, cut at 65536 bytes.",
            (True,),
        ),
    ] = False
    lost_fast_every: Annotated[
        Every,
        Lie(
            ("Q25", "T19"),
            "Each so manyth command under 0.2 s closes with 1000, without its output and without an exit; 0 is none.",
            (4,),
            kept="1 would let no short command ever succeed",
        ),
    ] = 0
    text_exit: Annotated[
        TextExit,
        Lie(
            ("Q26", "T15"),
            "The text `exit` without terminal: `late` (directly before the binary one), `early` (before trailing "
            "output), or `absent`.",
            ("early", "absent"),
        ),
    ] = TextExit.LATE
    binary_exit: Annotated[
        bool,
        Lie(("Q26",), "Whether a session without terminal sends the binary exit frame.", kept=PROTOCOL),
    ] = True
    exit_bytes: Annotated[
        Literal[1, 4],
        Lie(("Q3",), "The code in the binary exit: `1` byte, or `4` bytes, big-endian.", kept=PROTOCOL),
    ] = 1
    exit_field: Annotated[
        ExitField, Lie(("Q3",), "The code's name in the text `exit`: `exit_code` or `code`.", kept=PROTOCOL)
    ] = ExitField.EXIT_CODE
    tty_text_exit: Annotated[
        bool, Lie(("Q25", "T19"), "Whether a terminal sends the text `exit` before its socket ends.", (False,))
    ] = True
    tty_close: Annotated[
        SocketClose,
        Lie(
            ("Q25", "T19"),
            "How a terminal's socket ends: `drop` the TCP connection, or close `1000`.",
            ("1000",),
        ),
    ] = SocketClose.DROP
    linger_seconds: Annotated[
        Seconds,
        Lie(("Q25", "T17"), "How long a socket without terminal stays open after its exit.", (0, 0.5, 10)),
    ] = 5
    pipe_close: Annotated[
        SocketClose,
        Lie(("Q25",), "How a socket without terminal ends after that: close `1000`, or `drop`.", ("drop",)),
    ] = SocketClose.NORMAL

    # The exec by POST.

    post_answer: Annotated[
        PostAnswer,
        Lie(
            ("Q37",),
            "An exec by POST answers one chunk a frame (`frames`), all frames `merged` into one, or `json` with "
            "`stdout`, `stderr` and `exit_code`.",
            ("merged", "json"),
        ),
    ] = PostAnswer.FRAMES

    # The kill.

    kill_body: Annotated[
        KillBody,
        Lie(("Q15",), "Whether the JSON body of a kill is `read` or `ignored`; the query wins.", ("ignored",)),
    ] = KillBody.READ
    kill_zero_timeout: Annotated[
        ZeroTimeout,
        Lie(
            ("Q16", "T6"),
            "A kill's `timeout=0s`: SIGKILL follows `at-once`, after the `default` of 10 s, or `never`.",
            ("default", "never"),
        ),
    ] = ZeroTimeout.AT_ONCE
    kill_bare_unit: Annotated[
        BareUnit,
        Lie(("Q16",), "What a bare integer counts in a kill's `timeout`: `s`, `ms` or `ns`.", ("ms", "ns")),
    ] = BareUnit.SECONDS
    signal_names: Annotated[
        SignalNames,
        Lie(
            ("Q17",),
            "Which signal names a kill and a signal frame know: `both` forms, those with `sig` only, or the `short` "
            "ones only.",
            kept="the official clients use one form or the other, and each of them is right",
        ),
    ] = SignalNames.BOTH
    unknown_signal: Annotated[
        UnknownSignal,
        Lie(("Q17",), "A kill with an unknown signal is `refused` with 400, or taken as SIGTERM (`term`).", ("term",)),
    ] = UnknownSignal.REFUSED
    kill_reach: Annotated[
        KillReach,
        Lie(
            ("Q19",),
            "Whom a signal reaches: the leader's own group and the `foreground` group of its terminal, on a terminal "
            "the `foreground-only`, or the `leader` alone.",
            ("foreground-only", "leader"),
        ),
    ] = KillReach.FOREGROUND
    kill_exited: Annotated[
        KillExited, Lie(("Q18",), "What a kill of an ended session answers: `404` or `410`.", ("410",))
    ] = KillExited.NOT_FOUND
    kill_second_signal: Annotated[
        bool, Lie((), "Whether a terminal's kill has a second `signal` line after `exited`, as seen live.", (False,))
    ] = True
    kill_error: Annotated[
        KillError,
        Lie(
            ("T3",),
            "Whether every kill answers 200 and then an `error` line: `none`; all the same it is `done`; or it is "
            "`undone` and the process lives on.",
            ("done",),
            kept="`undone` lets nothing ever die",
        ),
    ] = KillError.NONE
    complete_after_error: Annotated[
        bool, Lie(("Q20", "T3"), "Whether a `complete` line follows an `error` line.", (True,))
    ] = False
    kill_exit_code: Annotated[
        KillExitCode,
        Lie(
            ("Q20",),
            "The code in `complete` after an end by a signal: `shell` (137), `negative` (-9), or `absent`.",
            ("negative", "absent"),
        ),
    ] = KillExitCode.SHELL
    delete_session: Annotated[
        DeleteSession,
        Lie(
            ("Q39",), "`DELETE` on a session is `absent` (405), or it `kills` with SIGKILL and answers 204.", ("kills",)
        ),
    ] = DeleteSession.ABSENT

    # The tasks.

    task_hour: Annotated[
        TaskHour,
        Lie(
            ("Q7", "T24"),
            "A task's hour counts from each `refresh`, or from its `creation`, past which no PUT extends it.",
            ("creation",),
        ),
    ] = TaskHour.REFRESH
    task_expire: Annotated[
        TaskExpire,
        Lie(
            ("Q8",),
            "An expiry of zero, below it or above an hour is `refused` with 400, or `clamped` to what is allowed (a "
            "task that expires at once, or an hour).",
            ("clamped",),
        ),
    ] = TaskExpire.REFUSED
    task_clock: Annotated[
        TaskClock, Lie(("Q9",), "Whether a task's time `runs` or `stops` while the sprite is paused.", ("stops",))
    ] = TaskClock.RUNS
    tasks_survive_cold: Annotated[bool, Lie(("Q9",), "Whether tasks outlive a cold stop and a restart.", (True,))] = (
        False
    )
    task_names: Annotated[
        TaskNames,
        Lie(("Q10",), "Task names: up to 63 `safe` characters, or `any` text up to 255.", ("any",)),
    ] = TaskNames.SAFE

    # Sprites, their list and their watch.

    sprite_names: Annotated[
        SpriteNames,
        Lie(
            ("Q33",),
            "Names of new sprites: labels as in `dns` up to 63, `short` ones up to 48, or `loose` (upper case, dots "
            "and underscores too).",
            ("loose",),
            kept="`short` would refuse names that a test gives",
            scope=Scope.API,
        ),
    ] = SpriteNames.DNS
    duplicate_status: Annotated[
        Annotated[int, Field(ge=400, le=499)],
        Lie(("Q31",), "The answer to a name that is taken.", (400,), scope=Scope.API),
    ] = 409
    missing_sprite_status: Annotated[
        Literal[404, 500],
        Lie(
            ("Q32",),
            "The answer about a sprite that does not exist: `404` or `500`.",
            kept="with `500` nothing ever shows that a sprite is gone",
            scope=Scope.API,
        ),
    ] = 404
    config: Annotated[
        Config,
        Lie(
            ("Q34",),
            "`config` and `environment` of a create are `ignored`, or `shown` again; commands never see them.",
            ("shown",),
            scope=Scope.API,
        ),
    ] = Config.IGNORED
    sprite_fields: Annotated[
        SpriteFields,
        Lie(
            (),
            "A sprite is shown in `full`, or only with the fields that are `sure`: there is no `status` then.",
            kept="without a status nobody knows that a sprite runs, and nothing may be held",
        ),
    ] = SpriteFields.FULL
    page_ceiling: Annotated[
        Literal[50, 100], Lie(("Q29",), "How many sprites a page has at most: `50` or `100`.", (100,), scope=Scope.API)
    ] = 50
    page_over: Annotated[
        PageOver,
        Lie(
            ("Q29",),
            "A `max_results` above the ceiling is `clamped`, or `refused` with 400.",
            kept="`refused` would stop the official clients, two of which ask for 100",
            scope=Scope.API,
        ),
    ] = PageOver.CLAMPED
    counts: Annotated[
        Counts,
        Lie(
            ("Q30",),
            "The organization's counts stand in `org`, at the `top` level, or in `both`.",
            ("org", "top"),
            scope=Scope.API,
        ),
    ] = Counts.BOTH
    has_more: Annotated[
        HasMore,
        Lie(
            ("T29",),
            "The last page is `honest`, or `stuck`: `has_more` is true and the token null.",
            ("stuck",),
            scope=Scope.API,
        ),
    ] = HasMore.HONEST
    watch: Annotated[
        Watch,
        Lie(("Q35",), "The live watch is an endless `stream`, or an ordinary `page`.", ("page",), scope=Scope.API),
    ] = Watch.STREAM
    watch_snapshot: Annotated[
        bool, Lie(("Q35",), "Whether the live watch begins with what there is.", (True,), scope=Scope.API)
    ] = False
    watch_deletes: Annotated[bool, Lie(("Q35",), "Whether it tells of deleted sprites.", (True,), scope=Scope.API)] = (
        False
    )
    watch_noise: Annotated[
        bool, Lie(("Q35",), "Whether blank and malformed lines are among its lines.", (True,), scope=Scope.API)
    ] = False
    watch_end_seconds: Annotated[
        Seconds,
        Lie(("Q35",), "When it ends by itself, on the machine's clock; 0 is never.", (2,), scope=Scope.API),
    ] = 0
    heartbeat_seconds: Annotated[
        Seconds,
        Lie(("Q35",), "Between two heartbeats of the live watch, on the machine's clock.", (1,), scope=Scope.API),
    ] = 15

    # Limits and lost requests. Windows are on the machine's clock, as those are who keep them.

    rate_limit: Annotated[
        Limit,
        Lie(
            ("Q36",),
            "How many requests an organization may make in a window before 429; 0 is any number.",
            (50,),
            scope=Scope.API,
        ),
    ] = 0
    rate_window_seconds: Annotated[
        Annotated[float, Field(gt=0, le=3600)],
        Lie(("Q36",), "The length of that window.", kept="one length is enough for a mix", scope=Scope.API),
    ] = 1
    creation_limit: Annotated[
        Limit,
        Lie(
            ("Q36",),
            "How many sprites may be created within 60 s before 429 `sprite_creation_rate_limited`; 0 is any number.",
            kept="it would stop a test's own preparations",
            scope=Scope.API,
        ),
    ] = 0
    running_limit: Annotated[
        Limit,
        Lie(
            ("Q36",),
            "How many sprites may run before a wake gets 429 `concurrent_sprite_limit_exceeded`; 0 is any number.",
            kept="no client can make room",
            scope=Scope.API,
        ),
    ] = 0
    sessions_limit: Annotated[
        Limit,
        Lie(
            ("Q36",),
            "How many sessions a sprite may have before an exec gets 429; 0 is any number.",
            kept="no client can make room",
        ),
    ] = 0
    retry_after: Annotated[
        RetryAfter,
        Lie(
            ("Q36",),
            "`Retry-After` with a 429 of these limits: in `seconds`, as an HTTP `date`, or `absent`.",
            ("date", "absent"),
            scope=Scope.API,
        ),
    ] = RetryAfter.SECONDS
    rate_headers: Annotated[
        bool,
        Lie(
            ("Q36",),
            "Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` come with every answer while `rate_limit` is set.",
            (False,),
            scope=Scope.API,
        ),
    ] = True
    limit_body: Annotated[
        LimitBody,
        Lie(
            ("Q36",),
            "The body of a 429 of these limits: `structured`, only an `error`, or plain `text`.",
            ("error", "text"),
            scope=Scope.API,
        ),
    ] = LimitBody.STRUCTURED
    dropped_read_every: Annotated[
        Every,
        Lie(
            ("T30",),
            "Each so manyth GET that is no socket loses its connection before anything is done; 0 is none.",
            (5,),
            kept="1 would let nobody ever read",
            scope=Scope.API,
        ),
    ] = 0

    # The machine.

    curl_in_image: Annotated[
        bool,
        Lie(
            ("Q40",),
            "Whether a sprite has `curl`; without, calling it exits with 127. Counts from the next cold start.",
            kept="without it nobody can hold a sprite awake",
        ),
    ] = True
    record_output: Annotated[
        str,
        Lie(
            (),
            "What a command without terminal writes where sessions are records.",
            kept="it is no lie, but what a benchmark sets",
        ),
    ] = ""


def get_lie(name: str) -> Lie:
    """Tell what a switch is about."""
    (lie,) = (item for item in Switches.model_fields[name].metadata if isinstance(item, Lie))
    return lie


LIES: Final = MappingProxyType({name: get_lie(name) for name in Switches.model_fields})
"""The table, in the order of the switches."""


def list_values(field: FieldInfo) -> tuple[Any, ...] | None:
    """List the values of a switch as JSON has them; None: a number or a text."""
    kind = field.annotation
    if kind is bool:
        return (True, False)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return get_args(kind) or None


def render_value(value: Any) -> str:
    """Write a value as it is typed on the command line."""
    match value:
        case bool():
            return str(value).lower()
        case Enum():
            return str(value.value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def is_for_one_sprite(name: str) -> bool:
    """Tell whether a switch can be set for one sprite differently."""
    return LIES[name].scope is Scope.SPRITE

"""
All open questions and all traps of the Sprites API, each accounted for.

Problem: "the emulator tells every documented lie" is a claim that nobody can check from a list of switches. Promise:
each of the 42 questions and 32 traps is here by its number, with the switches that vary it (their own table says
which), with what the emulator does in any case, or with the reason why a server has no say in it.
Source: sprites-api.md 11 and 12 (read September 2026).
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from controller.lab.emulator.switches import LIES


@dataclass(frozen=True)
class Varied:
    """Switches vary it, and that is all."""


@dataclass(frozen=True)
class Always:
    """The emulator does it in any case, whatever else switches vary about it."""

    how: str


@dataclass(frozen=True)
class ClientOnly:
    """A server has no say in it."""

    why: str


Account = Varied | Always | ClientOnly
VARIED: Final = Varied()


@dataclass(frozen=True)
class Point:
    """A question or a trap."""

    title: str
    account: Account = VARIED


POINTS: Final = MappingProxyType(
    {
        "Q1": Point("Type of a session's id"),
        "Q2": Point("Envelope of the session list"),
        "Q3": Point("Width of the exit frame, names of fields"),
        "Q4": Point("Meaning of `is_active`"),
        "Q5": Point("Whether a detached session keeps the sprite running"),
        "Q6": Point("Whether sessions survive a pause"),
        "Q7": Point("What a task's hour counts from"),
        "Q8": Point("An expiry of zero, below it or over the limit"),
        "Q9": Point("Tasks and their clock across a pause, a cold start and a restart"),
        "Q10": Point("Rule for task names"),
        "Q11": Point("Idle window"),
        "Q12": Point("Time from warm to cold"),
        "Q13": Point("Which reads wake, or reset the idle clock"),
        "Q14": Point("What `check` and `restart` do"),
        "Q15": Point("Where a kill's arguments are"),
        "Q16": Point("A kill's `timeout=0s`, and the unit of a bare integer"),
        "Q17": Point("Names of signals"),
        "Q18": Point("Kill of an exited session"),
        "Q19": Point("Whom a kill reaches"),
        "Q20": Point("`complete` after an `error` line, and its code"),
        "Q21": Point("`max_run_after_disconnect` with several clients and on attach"),
        "Q22": Point("`detachable`"),
        "Q23": Point("Size and form of the replay"),
        "Q24": Point("`is_owner` on attach"),
        "Q25": Point("How the socket closes at the exit"),
        "Q26": Point("Order of the two exits"),
        "Q27": Point("Whether the server pings"),
        "Q28": Point("Frames about ports"),
        "Q29": Point("Ceiling of `max_results`"),
        "Q30": Point("Place of the organization's counts"),
        "Q31": Point("A duplicate name"),
        "Q32": Point("A missing sprite"),
        "Q33": Point("Rule for sprite names"),
        "Q34": Point("Effect of `config`"),
        "Q35": Point("The live watch"),
        "Q36": Point("Rate limits, `Retry-After`, sessions per sprite"),
        "Q37": Point("Answer of an exec by POST"),
        "Q38": Point("Errors while paused"),
        "Q39": Point(
            "`DELETE` of a session, restart of a service, `http_port`",
            Always("Services and their restart answer 404, as was seen live; there is no `http_port`."),
        ),
        "Q40": Point("Base image"),
        "Q41": Point("Whose input counts"),
        "Q42": Point("Whether the listed command follows an exec"),
        "T1": Point(
            "A kill sent to `/exec/sessions/{id}/kill`", Always("That path answers 404 and kills nothing, as live.")
        ),
        "T2": Point("SIGTERM by default", Always("A kill that names no signal sends SIGTERM, which may be trapped.")),
        "T3": Point("200 and then an `error` line"),
        "T4": Point("A signal that is silently dropped"),
        "T5": Point(
            "Kill events read by other field names",
            ClientOnly("The stream has the documented fields; only a client reads others."),
        ),
        "T6": Point("A kill with `timeout=0s`"),
        "T7": Point("Calls that hang on a paused sprite"),
        "T8": Point("`is_active` is not liveness"),
        "T9": Point("A list without `tty`"),
        "T10": Point(
            "Ids that are process ids and come again",
            Always("An id is the process id, shared by all sessions of a sprite, and begins anew with a cold start."),
        ),
        "T11": Point("A listed command that is not the argv"),
        "T12": Point("Number or string id in `session_info`"),
        "T13": Point(
            "Two forms of `created`, sizes of 0 x 0",
            Always("`created` is unix seconds in `session_info` and RFC 3339 in the list."),
        ),
        "T14": Point("A replay that duplicates, or is rendered"),
        "T15": Point("Text `exit` before the last output"),
        "T16": Point("Fast commands cut and folded"),
        "T17": Point("A socket that lingers"),
        "T18": Point(
            "Silent sessions closed by a client's watchdog",
            Always("A silent session sends nothing, for as long as it likes, and lives on without its client."),
        ),
        "T19": Point("Close 1000 without an exit"),
        "T20": Point("`env` replaces the environment"),
        "T21": Point(
            "`env` and `cmd` are in the URL",
            Always("The log of requests under `/_lab/` shows the query, as an access log would."),
        ),
        "T22": Point("A create that dropped and may have started"),
        "T23": Point(
            "A session without terminal dies 10 s after a disconnect",
            Always("It does, unless `max_run_after_disconnect` says otherwise."),
        ),
        "T24": Point("A task's hour from its creation"),
        "T25": Point("Task names are per sprite", Always("All sessions of a sprite share one book of tasks.")),
        "T26": Point(
            "A forgotten heartbeat loop",
            ClientOnly("The server extends a hold as often as it is asked; only its client can forget to stop."),
        ),
        "T27": Point(
            "Refreshing a task wakes a paused sprite",
            Always("Every exec wakes, and from outside only an exec reaches a task."),
        ),
        "T28": Point("`TERM` unset on a terminal"),
        "T29": Point("`has_more` with a null token"),
        "T30": Point("Socket errors read as a missing sprite"),
        "T31": Point(
            "Delete by name hits a successor",
            Always("A sprite created again under a name has another id and an empty disk."),
        ),
        "T32": Point(
            "A request timeout that ends the open socket",
            ClientOnly("The timeout is the client's own; the server keeps an upgraded socket as long as it is used."),
        ),
    }
)


def list_switches(point: str) -> list[str]:
    """List the switches that answer a point."""
    return [name for name, lie in LIES.items() if point in lie.points]

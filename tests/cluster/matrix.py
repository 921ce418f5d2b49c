"""
The fault matrix: every answer to a kill, together with every state of what proves an end, and the page about it.

Problem: each lie of the platform is harmless alone, and two of them together may look like a proof. Promise: each pair
is played as an answer of its own, and docs/fault-matrix.md says what came of it; it is written by the run itself.

An answer is played without the thing being done, so that the process lives on, but for the column in which the list
rightly lacks it. Nobody can refuse the connections of one sprite alone: that row closes the connection without a word,
which looks the same to who asks; tests/cluster/test_outages.py refuses them in earnest.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from enum import StrEnum
from typing import Any, Final

from tests.house.cases import ROOT

PAGE: Final = ROOT / "docs" / "fault-matrix.md"
REWRITE: Final = "REWRITE_FAULT_MATRIX"
"""Set in the environment, it has the page written instead of compared: `make matrix`."""

Fault = dict[str, Any]

SIGNAL: Final = {"type": "signal", "message": "Signal SIGKILL sent to process 2", "signal": "SIGKILL", "pid": 2}
EXITED: Final = {"type": "exited", "message": "Process exited"}
COMPLETE: Final = {"type": "complete", "exit_code": 137}
ERROR: Final = {"type": "error", "message": "process would not die"}
TOO_LONG: Final = 25
"""Seconds; a kill is waited for for ten, by somebody who may stand still for some."""
PATIENCE: Final = 3
"""Seconds that a 429 asks for."""


def _lines(*lines: object) -> dict[str, Any]:
    """Write a stream that ends well."""
    return {
        "status": 200,
        "text": "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines),
    }


def _tell_until() -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=PATIENCE), usegmt=True)


@dataclass(frozen=True)
class KillAnswer:
    """
    What the kill endpoint says.

    Args:
        name: For people.
        build: Makes the fault at the time at which it is armed.
        alone: It slows its whole token down, so that it has one for itself.
    """

    name: str
    build: Callable[[], Fault]
    alone: bool = False


def _status(name: str, status: int, **more: Any) -> KillAnswer:
    return KillAnswer(name, lambda: {"status": status, **more})


_HTML: Final = "<html><head><title>Not here</title></head></html>"
_WELL: Final = _lines(SIGNAL, EXITED, COMPLETE)

ANSWERS: Final = (
    KillAnswer("200 complete", lambda: _WELL),
    KillAnswer("200, an `error` line first", lambda: _lines(ERROR, SIGNAL, EXITED, COMPLETE)),
    KillAnswer("200, an `error` line in the middle", lambda: _lines(SIGNAL, ERROR, EXITED, COMPLETE)),
    KillAnswer("200, an `error` line last", lambda: _lines(SIGNAL, EXITED, COMPLETE, ERROR)),
    KillAnswer("200, an `error` line without text", lambda: _lines(SIGNAL, {"type": "error"}, COMPLETE)),
    KillAnswer(
        "200, an `error` line whose text is a number", lambda: _lines({"type": "error", "message": 5}, COMPLETE)
    ),
    KillAnswer("200, an error object without type", lambda: _lines(SIGNAL, {"error": "no such process"}, COMPLETE)),
    KillAnswer("200, ended before `complete`", lambda: _lines(SIGNAL, EXITED)),
    KillAnswer("200, cut in the middle", lambda: {**_WELL, "cut": True}),
    KillAnswer("200 empty", _lines),
    KillAnswer("200, garbage alone", lambda: _lines("", "not json", '{"type":', "[1]", "null")),
    KillAnswer("200, garbage between the lines", lambda: _lines("?", SIGNAL, "", EXITED, "{", COMPLETE)),
    _status("204", 204, text=""),
    _status("301", 301, headers={"Location": "/v1/elsewhere"}),
    _status("400", 400),
    _status("401", 401),
    _status("403", 403),
    _status("404 as JSON", 404, body={"error": "session not found"}),
    _status("404 as a page", 404, html=_HTML),
    _status("410", 410),
    _status("409", 409),
    KillAnswer("429 with seconds", lambda: {"status": 429, "headers": {"Retry-After": str(PATIENCE)}}, alone=True),
    KillAnswer("429 with a date", lambda: {"status": 429, "headers": {"Retry-After": _tell_until()}}, alone=True),
    _status("500", 500),
    _status("502 as a page", 502, html=_HTML),
    KillAnswer("no headers in time", lambda: {**_WELL, "headers_seconds": TOO_LONG}),
    KillAnswer("no whole body in time", lambda: {**_WELL, "body_seconds": TOO_LONG}),
    KillAnswer("refused", lambda: {"kind": "drop"}),
    KillAnswer("reset", lambda: {"kind": "drop", "reset": True}),
)


class Sight(StrEnum):
    """What is to be seen of the session after the first answer to its kill."""

    LISTED = "the list shows it"
    """It lives, and nobody hides it."""
    NOT_LISTED = "the list does not show it"
    """It died with the first kill, whatever the answer said."""
    LIST_FAILS = "the list fails"
    """It lives, and no list can be read any more (502)."""
    MISSING = "the sprite is missing"
    """The sprite was deleted, and its process with it; no list can be read."""
    COLD = "the sprite is cold"
    """The sprite went cold, and its process with it; no list can be read."""
    REUSED = "the id is another process's"
    """The sprite started anew, and another process has the same id: it must live."""


LIVES: Final = frozenset({Sight.LISTED, Sight.LIST_FAILS})
"""While the faults last the process lives, and nothing may say that it is dead."""
BLIND: Final = frozenset({Sight.LIST_FAILS, Sight.MISSING, Sight.COLD, Sight.REUSED})
"""Lists fail from the first kill on."""


@dataclass(frozen=True)
class Pair:
    """One combination; `name` is the name of its sprite and its object."""

    number: int
    answer: KillAnswer
    sight: Sight

    @property
    def name(self) -> str:
        """Name its sprite and its object."""
        return f"pair-{self.number:03d}"

    @property
    def organization(self) -> str:
        """Name whose token it uses."""
        return f"alone-{self.number:03d}" if self.answer.alone else "many"

    def build_fault(self) -> Fault:
        """Make the fault of its kill."""
        when = "after" if self.sight is Sight.NOT_LISTED else "before"
        return {"kind": "status", "when": when, **self.answer.build()}


PAIRS: Final = tuple(
    Pair(number, answer, sight)
    for number, (sight, answer) in enumerate((sight, answer) for sight in Sight for answer in ANSWERS)
)


@dataclass(frozen=True)
class Ending:
    """What the operator says of a pair, while the faults last."""

    situation: str
    terminated: str
    reason: str
    verdict: str
    proof: str


def read_ending(status: Mapping[str, Any]) -> Ending:
    """Read what matters off a status."""
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    kill = status.get("kill") or {}
    return Ending(
        situation=conditions["Reconciling"]["reason"],
        terminated=conditions["Terminated"]["status"],
        reason=conditions["Terminated"]["reason"],
        verdict=kill.get("verdict") or "",
        proof=kill.get("proof") or "",
    )


WHY_NOT: Final = {
    "KillFailed": "none: no request was settled",
    "StillListed": "none: a later list shows it",
    "NotConfirmed": "none: no later list could be read",
    "SpritesUnavailable": "none: its identity could not be read again",
    "TokenRejected": "none: nobody may ask",
    "TokenForbidden": "none: nobody may ask",
    "Throttled": "none: asked to wait",
}
"""Why there is no second proof, by the reason of `Terminated`."""


def render_page(endings: Mapping[Pair, Ending]) -> str:
    """Write docs/fault-matrix.md."""
    return "\n".join([*_render_head(), *(line for sight in Sight for line in _render_table(sight, endings))]) + "\n"


def _render_head() -> Iterable[str]:
    yield "# Fault matrix"
    yield ""
    yield (
        f"What comes of a kill, for each of {len(ANSWERS)} answers of the kill endpoint together with each of"
        f" {len(Sight)} states of what could prove the end:"
    )
    yield (
        f"{len(PAIRS)} pairs. Written by `tests/cluster/test_fault_matrix.py` (`make matrix`), which plays them all on"
        " real sockets, with real"
    )
    yield "processes, and fails where this page is not what came of it."
    yield ""
    yield "Each answer comes for as long as a kill is tried. *Situation* is the reason of `Reconciling`, *settled* is"
    yield "`status.kill.verdict`. In no row in which the process lives is `Terminated` True; where it is not True the"
    yield "finalizer and `status.session` stay, the kill is tried again, and once the platform answers as it should the"
    yield "row ends with `Terminated` True, reason `Confirmed`."
    yield ""


_TRUTHS: Final = {
    Sight.LISTED: "The process lives, and each session list shows it.",
    Sight.NOT_LISTED: "The process died with the first kill, whatever the answer said; lists are right.",
    Sight.LIST_FAILS: "The process lives; from the first kill on each session list answers 502.",
    Sight.MISSING: "After the first kill the sprite is deleted, and its process with it; session lists answer 502.",
    Sight.COLD: (
        "After the first kill the sprite goes cold, and its process with it; session lists answer 502. The operator is "
        "killed and started again before the end."
    ),
    Sight.REUSED: (
        "After the first kill the sprite starts anew and another process gets the same id; that one is never killed."
    ),
}


def _render_table(sight: Sight, endings: Mapping[Pair, Ending]) -> Iterable[str]:
    yield f"## {sight.value[0].upper()}{sight.value[1:]}"
    yield ""
    yield _TRUTHS[sight]
    yield ""
    yield "| Answer to the kill | Settled | Situation | `Terminated` | Second proof |"
    yield "| --- | --- | --- | --- | --- |"
    for pair, ending in endings.items():
        if pair.sight is sight:
            proof = f"`{ending.proof}`" if ending.proof else WHY_NOT[ending.reason]
            settled = f"`{ending.verdict}`" if ending.verdict else "no"
            yield (
                f"| {pair.answer.name} | {settled} | `{ending.situation}` | {ending.terminated}, `{ending.reason}` "
                f"| {proof} |"
            )
    yield ""

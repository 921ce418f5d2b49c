"""
Faults on demand: what the next requests of a route run into.

Promise: a rule names what it matches, how many it lets pass first and how many it hits; a request is hit by at most
one rule, the oldest that matches and is not used up. What a fault means for a route is done where the route is served
(`answers.py`); this module only decides which request is hit.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from controller.lab.emulator.strict import Seconds, Strict


class When(StrEnum):
    """Where in the life of a request a fault strikes."""

    BEFORE = "before"
    """Before the thing is done: nothing happens."""
    AFTER = "after"
    """After the thing was done, before its answer."""
    UPGRADED = "upgraded"
    """Exec only: after the upgrade, before `session_info`."""
    BODY = "body"
    """Within the answer's body; for an exec after the upgrade, before `session_info`."""


class StatusFault(Strict):
    """Answer with this status."""

    kind: Literal["status"]
    status: Annotated[int, Field(ge=200, le=599)]
    headers: dict[str, str] = Field(default_factory=dict)
    body: Any = None
    """JSON; a fault with `html` or `text` sends that instead."""
    html: str | None = None
    text: str | None = None
    headers_seconds: Seconds = 0
    """Of the machine's clock, before the headers."""
    body_seconds: Seconds = 0
    """Likewise, in the middle of the body."""
    cut: bool = False
    """Whether the connection is dropped in the middle of the body."""
    when: Literal[When.BEFORE, When.AFTER] = When.BEFORE


class DelayFault(Strict):
    """Wait on the machine's clock, then go on."""

    kind: Literal["delay"]
    seconds: Seconds
    when: Literal[When.BEFORE, When.AFTER, When.BODY] = When.BEFORE


class DropFault(Strict):
    """Drop the connection."""

    kind: Literal["drop"]
    reset: bool = False
    """Whether it is reset (RST); else it is closed."""
    when: Literal[When.BEFORE, When.AFTER, When.UPGRADED] = When.BEFORE


class EarlyEndFault(Strict):
    """End a stream after this many lines (frames of an exec; any other body after half of it)."""

    kind: Literal["early-end"]
    after_lines: Annotated[int, Field(ge=0)] = 1
    clean: bool = False
    """Whether the stream ends as if it were complete, or breaks off."""


class ErrorLineFault(Strict):
    """Put an `error` line into a stream."""

    kind: Literal["error-line"]
    position: Literal["first", "middle", "last", "instead"] = "instead"
    """First or last of all lines, after the first one, or after the first one instead of all others."""
    message: str | None = "process would not die"
    """None: a line without the field."""
    undone: bool = False
    """Whether the thing is not even done: the session lives on."""


class GarbageFault(Strict):
    """Put lines that are no JSON (and a blank one) between the lines of a stream."""

    kind: Literal["garbage"]
    lines: tuple[str, ...] = ("", "not json", '{"type":')


class ListFault(Strict):
    """Answer a session list with 200 and less than the truth."""

    kind: Literal["list"]
    shape: Literal["hide", "empty", "error", "no-sessions", "not-json"]
    session: str | None = None
    """Which one is hidden; None: all."""
    error: str = "session manager unavailable"


Fault = Annotated[
    StatusFault | DelayFault | DropFault | EarlyEndFault | ErrorLineFault | GarbageFault | ListFault,
    Field(discriminator="kind"),
]


class FaultRule(Strict):
    """A fault with what it matches; None matches all."""

    route: str | None = None
    method: str | None = None
    sprite: str | None = None
    session: str | None = None
    cause: str | None = None
    organization: str | None = None
    skip: Annotated[int, Field(ge=0)] = 0
    """How many matching requests pass before the first is hit."""
    times: Annotated[int, Field(ge=1)] = 1
    """How many are hit."""
    fault: Fault


class Armed:
    """A rule with what is left of it."""

    def __init__(self, number: int, rule: FaultRule) -> None:
        self.number = number
        self.rule = rule
        self.to_skip = rule.skip
        self.left = rule.times

    def render(self) -> dict[str, Any]:
        """Write it for the lab interface."""
        return {"number": self.number, "left": self.left, "to_skip": self.to_skip, **self.rule.model_dump(mode="json")}


class FaultBook:
    """All armed rules."""

    def __init__(self) -> None:
        self._rules: list[Armed] = []
        self._number = 0

    def arm(self, rule: FaultRule) -> Armed:
        """Add a rule."""
        self._number += 1
        self._rules.append(armed := Armed(self._number, rule))
        return armed

    def __iter__(self) -> Iterator[Armed]:
        """List the rules that are not used up."""
        return iter(self._rules)

    def disarm(self, number: int | None = None) -> None:
        """Remove one rule, or all."""
        self._rules = [armed for armed in self._rules if number is not None and armed.number != number]

    def hit(
        self,
        *,
        route: str,
        method: str,
        sprite: str | None,
        session: str | None,
        cause: str | None,
        organization: str | None = None,
    ) -> Fault | None:
        """Decide which fault this request runs into, and use it up."""
        for armed in self._rules:
            rule = armed.rule
            pairs = (
                (rule.route, route),
                (rule.method, method),
                (rule.sprite, sprite),
                (rule.session, session),
                (rule.cause, cause),
                (rule.organization, organization),
            )
            if any(want is not None and want != is_ for want, is_ in pairs):
                continue
            if armed.to_skip > 0:
                armed.to_skip -= 1
                continue
            armed.left -= 1
            self._rules = [other for other in self._rules if other.left > 0]
            return rule.fault
        return None

"""
The rules that a schema alone cannot say: about changes, about fields that go together, and where a sentence helps.

Problem: a rule lives in the API server as CEL, and a program that wants to know beforehand needs it in Python. Promise:
both stand side by side here, and one table of objects runs through both
(`tests/api/test_kind_in_the_models.py`, `tests/cluster/test_kind_on_the_api_server.py`).

Two laws for every rule, because rules on `spec` run on status writes and on the finalizer's removal too:
a rule that looks at the old value is true for an unchanged object, and no rule reads a value that can fail to convert.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.api.instants import read_instant

SPRITE_NAME: Final = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
ENV_NAME: Final = "^[A-Za-z_][A-Za-z0-9_]*$"


class Absent:
    """There is no old value: the object, or this part of it, is new."""


ABSENT: Final = Absent()


class UnreadableByRule(Exception):
    """
    A rule met a value that CEL cannot read; the API server then refuses the part on which the rule stands.

    Observed: kube-apiserver 1.37.2 (2026-11): 90.0 passes for an integer, and a rule that reads it says "expected int,
    got float64". A time that cannot be read is refused by its pattern as well.
    """


@dataclass(frozen=True, slots=True)
class Rule:
    """
    One rule of the kind, said twice.

    Args:
        node: The part of the object on which it stands, as `spec.launch.command[]`.
        expression: The rule in CEL; `self` is that part.
        message: What the user reads when it does not hold.
        is_kept: The same rule in Python, over JSON with its defaults filled in: (new part, old part or `ABSENT`).
        reported_on: The field inside the part on which the API server reports it; empty: the part itself.
        on_change: It compares with the old value, so it runs only where there is one, and runs for unchanged parts too.
        on_creation_too: It looks at the old value where there is one and also runs without (`optionalOldSelf`).
    """

    node: str
    expression: str
    message: str
    is_kept: Callable[[Any, Any], bool]
    reported_on: str = ""
    on_change: bool = False
    on_creation_too: bool = False


def _is_session_id_kept(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return bool(new.get("sessionId") == old.get("sessionId"))


def _read_created_time(spec: Mapping[str, Any]) -> int | None:
    """Read the created time. Observed: even `has()` fails on one that cannot be read."""
    if "sessionCreatedTime" not in spec:
        return None
    instant = read_instant(spec["sessionCreatedTime"])
    if instant is None:
        raise UnreadableByRule
    return instant


def _is_created_time_kept(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    return _read_created_time(new) == _read_created_time(old)


def _is_created_time_beside_id(new: Mapping[str, Any], _: Any) -> bool:
    # The order matters: where the id is there, the time is not read.
    return "sessionId" in new or _read_created_time(new) is None


def _is_attachment_allowed(new: Mapping[str, Any], old: Any) -> bool:
    was_attached: bool = isinstance(old, Mapping) and old.get("attached") is True
    return not (new.get("terminated") is True and new.get("attached") is True) or was_attached


def _is_socket_allowed(new: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    if not (new.get("terminated") is True and old.get("terminated") is True):
        return True
    socket = new.get("activeSocketId", "")
    return socket in ("", old.get("activeSocketId"))


def _is_refresh_early(new: Mapping[str, Any], _: Any) -> bool:
    if "expireSeconds" not in new or "refreshSeconds" not in new:
        return True
    expire, refresh = new["expireSeconds"], new["refreshSeconds"]
    if isinstance(expire, float) or isinstance(refresh, float):
        raise UnreadableByRule
    return bool(refresh * 2 <= expire)


def _is_without_nul(new: str, _: Any) -> bool:
    return "\x00" not in new


RULES: Final = (
    Rule(
        node="spec",
        expression="has(self.sessionId) || has(self.launch)",
        message="at least one of sessionId (adopt a running session) and launch (how to start one) is needed",
        is_kept=lambda new, _: "sessionId" in new or "launch" in new,
    ),
    Rule(
        node="spec",
        expression=(
            "has(self.sessionId) == has(oldSelf.sessionId) && "
            "(!has(self.sessionId) || self.sessionId == oldSelf.sessionId)"
        ),
        message=(
            "sessionId is given at creation only and cannot be set, changed or removed later; "
            "to adopt another session create another AgentTerminal"
        ),
        is_kept=_is_session_id_kept,
        reported_on="sessionId",
        on_change=True,
    ),
    Rule(
        node="spec",
        expression="!has(self.sessionCreatedTime) || has(self.sessionId)",
        message="sessionCreatedTime says which session of that id is meant, so it needs sessionId beside it",
        is_kept=_is_created_time_beside_id,
        reported_on="sessionCreatedTime",
    ),
    Rule(
        node="spec",
        expression=(
            "has(self.sessionCreatedTime) == has(oldSelf.sessionCreatedTime) && "
            "(!has(self.sessionCreatedTime) || self.sessionCreatedTime == oldSelf.sessionCreatedTime)"
        ),
        message=(
            "sessionCreatedTime is given at creation only and cannot be set, changed or removed later; "
            "to adopt another session create another AgentTerminal"
        ),
        is_kept=_is_created_time_kept,
        reported_on="sessionCreatedTime",
        on_change=True,
    ),
    Rule(
        node="spec",
        expression="!has(oldSelf.activeSocketId) || has(self.activeSocketId)",
        message='activeSocketId may change but not go away once it is there; write "" to revoke every socket',
        is_kept=lambda new, old: "activeSocketId" not in old or "activeSocketId" in new,
        reported_on="activeSocketId",
        on_change=True,
    ),
    Rule(
        node="spec",
        expression=(
            "!(has(self.terminated) && self.terminated && has(self.attached) && self.attached) || "
            "(oldSelf.hasValue() && has(oldSelf.value().attached) && oldSelf.value().attached)"
        ),
        message="a terminated terminal cannot be attached; its session has ended, or is being ended, for good",
        is_kept=_is_attachment_allowed,
        reported_on="attached",
        on_creation_too=True,
    ),
    Rule(
        node="spec",
        expression=(
            "!(has(self.terminated) && self.terminated && has(oldSelf.terminated) && oldSelf.terminated) || "
            "!has(self.activeSocketId) || self.activeSocketId == '' || "
            "(has(oldSelf.activeSocketId) && self.activeSocketId == oldSelf.activeSocketId)"
        ),
        message='a terminated terminal takes no new socket; activeSocketId may only stay as it is or become ""',
        is_kept=_is_socket_allowed,
        reported_on="activeSocketId",
        on_change=True,
    ),
    Rule(
        node="spec.spriteName",
        expression=f"self.matches('{SPRITE_NAME}')",
        message=(
            "spriteName consists of lower-case letters a-z, digits and '-', "
            "and begins and ends with a letter or a digit"
        ),
        is_kept=lambda new, _: re.fullmatch(SPRITE_NAME.removesuffix("$"), new) is not None,
    ),
    Rule(
        node="spec.spriteName",
        expression="self == oldSelf",
        message="spriteName cannot be changed; create another AgentTerminal for a session in another Sprite",
        is_kept=lambda new, old: bool(new == old),
        on_change=True,
    ),
    Rule(
        node="spec.terminated",
        expression="!oldSelf || self",
        message="terminated is one way: it cannot be taken back; create another AgentTerminal for a new session",
        is_kept=lambda new, old: new or not old,
        on_change=True,
    ),
    Rule(
        node="spec.hold",
        expression=(
            "!has(self.expireSeconds) || !has(self.refreshSeconds) || self.refreshSeconds * 2 <= self.expireSeconds"
        ),
        message="refreshSeconds is at most half of expireSeconds, so that one lost refresh does not end the hold",
        is_kept=_is_refresh_early,
        reported_on="refreshSeconds",
    ),
    Rule(
        node="spec.launch.command",
        expression="size(self) == 0 || self[0] != ''",
        message="the first word of command is the program to run and cannot be empty",
        is_kept=lambda new, _: not new or new[0] != "",
    ),
    Rule(
        node="spec.launch.command[]",
        expression="!self.contains('\\x00')",
        message="a word of command cannot contain the character NUL",
        is_kept=_is_without_nul,
    ),
    Rule(
        node="spec.launch.workingDirectory",
        expression="!self.contains('\\x00')",
        message="workingDirectory cannot contain the character NUL",
        is_kept=_is_without_nul,
    ),
    Rule(
        node="spec.launch.env[]",
        expression="has(self.value) != has(self.valueFrom)",
        message="a variable has exactly one of value and valueFrom",
        is_kept=lambda new, _: ("value" in new) != ("valueFrom" in new),
    ),
    Rule(
        node="spec.launch.env[].name",
        expression=f"self.matches('{ENV_NAME}')",
        message=(
            "the name of a variable consists of letters A-Z and a-z, digits and '_', and does not begin with a digit"
        ),
        is_kept=lambda new, _: re.fullmatch(ENV_NAME.removesuffix("$"), new) is not None,
    ),
    Rule(
        node="spec.launch.env[].value",
        expression="!self.contains('\\x00')",
        message="the value of a variable cannot contain the character NUL",
        is_kept=_is_without_nul,
    ),
)
"""Every rule, in the order in which the CRD lists them."""

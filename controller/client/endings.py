"""
What the end of a socket means for a person: a sentence with the way out, and what to do next. Pure.

Problem: "connection closed" makes people press the arrow key and Enter, which throws somebody else out; and a client
that comes back by itself after it was thrown out does the same. Promise: every close code and every refusal has one
answer: stop, come back, or come back with a fresh token; only an exit that was seen gives the process's exit code.
Source: gateway.md 5 and 6; `controller.plan.fence_closing`, `docs/access.md`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final

import orjson

from controller.client.frames import Closed
from controller.kube.errors import read_retry_after, tidy
from controller.plan.fence_closing import CLOSINGS, Ending

LOST: Final = 255
"""The exit code where the process's own is not known, as ssh has it: thrown out, refused, or lost."""

THREE_WAYS: Final = (
    "The gateway must know who you are. There are three ways: a token, from the kubeconfig or its exec plugin; a client"
    " certificate of the cluster, at a gateway that is reached by https; or a service account that you may ask for a"
    " token: --as-service-account NAMESPACE/NAME."
)


class Next(Enum):
    """What the client does after a socket ended, or did not open."""

    STOP = auto()
    AGAIN = auto()
    """Come back by itself."""
    LOGIN = auto()
    """Come back with a fresh token, if there is one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What an end means.

    Args:
        next: What to do.
        sentence: For the person.
        exit_code: What the client ends with where it stops.
        cause: The gateway's word for it, where it gave one.
        wait: How long the gateway asked to wait.
    """

    next: Next
    sentence: str
    exit_code: int = LOST
    cause: str = ""
    wait: timedelta | None = None


_WAYS_OUT: Final[Mapping[str, str]] = {
    Ending.REPLACED: "To take it back: --takeover.",
    Ending.HELD: "To throw them out: --takeover. To look on: --view.",
    Ending.FORBIDDEN: "Ask for `create` on `agentterminals/attach`, or on `agentterminals/view` to look.",
    Ending.NOT_READY: "`kubectl describe aterm` says what it waits for.",
    Ending.TERMINATED: "`kubectl aterm events` tells more.",
    Ending.DELETED: "`kubectl aterm events` tells more.",
}
"""What is added to the gateway's own sentence, by the ending's word: the options of this client."""

_HELD: Final = (
    "Another socket speaks for this terminal. To throw it out, which needs the right `agentterminals/takeover`:"
    " --takeover. To look on: --view."
)
"""In place of the gateway's own sentence, which speaks of its parameters."""

_PAUSED: Final = (
    "The sprite is paused, and looking wakes none. Attach to type, without --view, which wakes it, or look again once"
    " it runs."
)
"""As for `_HELD`."""

_INSTEAD: Final[Mapping[str, str]] = {"Held": _HELD, "Paused": _PAUSED}

_REFUSALS: Final[Mapping[str, str]] = {
    "NoToken": THREE_WAYS,
    "BadToken": THREE_WAYS,
    "Host": "--gateway must use one of those names.",
}
"""What is added for a refused upgrade, by its cause."""

_RETRY_STATUSES: Final = frozenset({429, 502, 503, 504})


def judge_close(code: int | None, reason: str, closed: Closed | None, *, exit_code: int | None) -> Verdict:
    """
    Judge the end of an open socket.

    Args:
        code: Of the close frame; None where the connection broke without one.
        reason: The word in the close frame.
        closed: The text frame that went before, where there was one.
        exit_code: Of the process, where its exit was told.
    """
    if exit_code is not None:
        return Verdict(Next.STOP, "", exit_code & 0xFF)
    if code is None:
        return Verdict(Next.AGAIN, "The connection was lost; what you typed last may not have arrived.")
    word = closed.reason if closed is not None else reason
    known = CLOSINGS[Ending(word)] if word in Ending.__members__.values() else None
    said = closed.message if closed is not None else known.sentence if known is not None else ""
    may_retry = closed.retry if closed is not None else known.retry if known is not None else code in {1001, 1012}
    sentence = " ".join(part for part in (said or _describe_code(code), _WAYS_OUT.get(word, "")) if part)
    if code == CLOSINGS[Ending.EXPIRED].code:
        return Verdict(Next.LOGIN, sentence, cause=word)
    return Verdict(Next.AGAIN if may_retry else Next.STOP, sentence, cause=word)


def judge_refusal(status: int, body: bytes, retry_after: str | None) -> Verdict:
    """
    Judge an answer that came in place of the upgrade: a Kubernetes `Status`, or whatever stands before the gateway.

    Args:
        status: The HTTP status.
        body: The answer's body.
        retry_after: The header of that name.
    """
    told = _read_status(body)
    message = told.get("message")
    said = tidy(message) if isinstance(message, str) and message else f"The gateway answered {status}."
    cause = _read_cause(told)
    way_out = _REFUSALS.get(cause, "" if cause or status != 401 else THREE_WAYS)
    sentence = _INSTEAD.get(cause) or f"{said} {way_out}".strip()
    if status == 401:
        return Verdict(Next.LOGIN, sentence, cause=cause)
    following = Next.AGAIN if status in _RETRY_STATUSES else Next.STOP
    return Verdict(following, sentence, cause=cause, wait=read_retry_after(retry_after))


def _describe_code(code: int) -> str:
    return f"The gateway closed the socket with code {code}, and gave no reason."


def _read_status(body: bytes) -> dict[str, Any]:
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) and told.get("kind") == "Status" else {}


def _read_cause(told: Mapping[str, Any]) -> str:
    match told.get("details"):
        case {"causes": [{"reason": str(reason)}, *_]}:
            return tidy(reason)
        case _:
            return ""

"""
What a request asks for: its path and query, read into a wish or refused. Pure.

Problem: a door that ignores what it does not know lets a client believe that it was heard, and one that repeats it in
an error shows a secret to everybody. Promise: each door knows its paths and parameters to the letter; whatever else
comes is refused without being repeated; no path of the vendor's API starts anything or names another session than the
one of the object in the path. Source: gateway.md 5; sprites-api.md 3.1 and 3.2 (read 2026-11).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from controller.api import names
from controller.gateway.refusals import RefusalCause, Refused, refuse


class Mode(StrEnum):
    """As what somebody comes."""

    HOLD = "hold"
    """To type, where nobody else does."""
    TAKEOVER = "takeover"
    """To type, and whoever does so now is thrown out."""
    VIEW = "view"
    """To look."""


class Door(StrEnum):
    """Through which door somebody comes."""

    OWN = "own"
    """Ours: people, the console, our client."""
    SDK = "sdk"
    """The vendor's protocol: its SDKs, pointed at a base URL of ours."""


class Route(StrEnum):
    """The path as the log and the metrics name it, without what was put into it. A closed list."""

    ATTACH = "attach"
    SDK_SESSIONS = "sdk/sessions"
    SDK_ATTACH = "sdk/attach"
    ACTIVITY = "activity"
    HEALTH = "healthz"
    READY = "readyz"
    NONE = "none"
    """No door of ours, or a head that could not be read."""


class Right(StrEnum):
    """The virtual subresources that RBAC grants, each by `create`."""

    ATTACH = "attach"
    VIEW = "view"
    TAKEOVER = "takeover"
    ACTIVITY = "activity"


@dataclass(frozen=True, slots=True)
class Target:
    """The object in the path."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachWish:
    """
    Open a socket.

    Args:
        target: To what.
        mode: As what.
        door: Through which door.
        columns: The client's width, where it told.
        rows: The client's height, where it told.
        sprite: The sprite that the path names; None at our own door.
        session_id: The session that the path names; None at our own door.
    """

    target: Target
    mode: Mode
    door: Door
    columns: int | None = None
    rows: int | None = None
    sprite: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class ListWish:
    """List the sessions of a sprite, of which the object's own is the only one that shows."""

    target: Target
    mode: Mode
    sprite: str


@dataclass(frozen=True, slots=True)
class ActivityWish:
    """Say that the terminal is at work."""

    target: Target


Wish = AttachWish | ListWish | ActivityWish


class Probe(StrEnum):
    """What kubelet asks."""

    HEALTH = "healthz"
    READY = "readyz"


_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN: Final = rf"(?=[^/]{{1,253}}(?:/|\Z)){_LABEL}(?:\.{_LABEL})*"
_OBJECT: Final = rf"/v1/namespaces/(?P<namespace>{_LABEL})/{names.PLURAL}/(?P<name>{_SUBDOMAIN})"
_SEGMENT: Final = r"[^/?#]{1,384}"
_SDK: Final = rf"{_OBJECT}/sdk(?P<takeover>-takeover)?"

_ATTACH: Final = re.compile(rf"{_OBJECT}/attach")
_ACTIVITY: Final = re.compile(rf"{_OBJECT}/activity")
_SDK_EXEC: Final = re.compile(rf"{_SDK}/v1/sprites/(?P<sprite>{_SEGMENT})/exec(?:/(?P<session>{_SEGMENT}))?")
_SDK_KILL: Final = re.compile(rf"{_SDK}/v1/sprites/{_SEGMENT}/exec/{_SEGMENT}/kill")

FORBIDDEN: Final = frozenset({"env", "cmd", "path", "dir"})
"""Parameters of the vendor's API that start something or carry secrets: an attach has none of them."""

_OWN_PARAMETERS: Final = ("view", "takeover", "columns", "rows")
_SDK_PARAMETERS: Final = ("id", "tty", "stdin", "cols", "rows", "detachable", "max_run_after_disconnect")
"""`detachable` and `max_run_after_disconnect` are for a create; SDKs send them always, and here they say nothing."""


def read_route(raw_path: str) -> Route:
    """Name a path for log and metrics; whatever is no door is `none`."""
    match = _SDK_EXEC.fullmatch(raw_path)
    if match is not None:
        return Route.SDK_SESSIONS if match["session"] is None else Route.SDK_ATTACH
    if _ATTACH.fullmatch(raw_path):
        return Route.ATTACH
    if _ACTIVITY.fullmatch(raw_path):
        return Route.ACTIVITY
    if _SDK_KILL.fullmatch(raw_path):
        return Route.SDK_ATTACH
    return {"/healthz": Route.HEALTH, "/readyz": Route.READY}.get(raw_path, Route.NONE)


def read_wish(method: str, raw_path: str, query: Iterable[tuple[str, str]], *, is_upgrade: bool) -> Wish | Probe:
    """
    Read what a request asks for.

    Args:
        method: The HTTP method.
        raw_path: The path as it came, still escaped.
        query: The parameters, decoded, in their order.
        is_upgrade: It asks for a WebSocket.

    Raises:
        Refused: 400, 404 or 405.
    """
    pairs = list(query)
    route = read_route(raw_path)
    match route:
        case Route.HEALTH | Route.READY:
            _demand_method(method, "GET", "HEAD")
            return Probe(route.value)
        case Route.ATTACH:
            _demand_method(method, "GET")
            return _read_attach(_read_target(_ATTACH, raw_path), _read_parameters(pairs, _OWN_PARAMETERS))
        case Route.ACTIVITY:
            _demand_method(method, "POST")
            _read_parameters(pairs, ())
            return ActivityWish(_read_target(_ACTIVITY, raw_path))
        case Route.SDK_SESSIONS | Route.SDK_ATTACH:
            return _read_sdk(method, raw_path, pairs, is_upgrade=is_upgrade)
        case Route.NONE:
            raise refuse(
                RefusalCause.NO_DOOR,
                "There is no such path here. Terminals are at "
                f"/v1/namespaces/<namespace>/{names.PLURAL}/<name>/attach, /sdk, /sdk-takeover and /activity.",
            )


def list_rights(wish: Wish) -> tuple[Right, ...]:
    """List what a person needs. Taking over is attaching, and throwing somebody out."""
    match wish:
        case ActivityWish():
            return (Right.ACTIVITY,)
        case AttachWish(mode=mode) | ListWish(mode=mode):
            match mode:
                case Mode.VIEW:
                    return (Right.VIEW,)
                case Mode.HOLD:
                    return (Right.ATTACH,)
                case Mode.TAKEOVER:
                    return (Right.ATTACH, Right.TAKEOVER)


def _read_target(pattern: re.Pattern[str], raw_path: str) -> Target:
    match = pattern.fullmatch(raw_path)
    assert match is not None
    return Target(match["namespace"], match["name"])


def _read_attach(target: Target, parameters: Mapping[str, str]) -> AttachWish:
    view, takeover = _read_switch(parameters, "view"), _read_switch(parameters, "takeover")
    if view and takeover:
        raise _malformed("view and takeover exclude one another: who looks throws nobody out.")
    return AttachWish(
        target=target,
        mode=Mode.VIEW if view else Mode.TAKEOVER if takeover else Mode.HOLD,
        door=Door.OWN,
        columns=_read_size(parameters, "columns"),
        rows=_read_size(parameters, "rows"),
    )


def _read_sdk(method: str, raw_path: str, pairs: list[tuple[str, str]], *, is_upgrade: bool) -> Wish:
    match = _SDK_EXEC.fullmatch(raw_path)
    legacy = [value for key, value in pairs if key == "id"]
    if match is None or method not in {"GET", "HEAD"}:
        raise _starts_nothing()
    target, sprite = Target(match["namespace"], match["name"]), _read_segment(match["sprite"])
    mode = Mode.TAKEOVER if match["takeover"] else Mode.HOLD
    if match["session"] is None and not legacy:
        if is_upgrade:
            raise _starts_nothing()
        _read_parameters(pairs, ())
        return ListWish(target, mode, sprite)
    parameters = _read_parameters(pairs, _SDK_PARAMETERS)
    if match["session"] is not None and legacy:
        raise _malformed("The session stands in the path; it must not stand in the query as well.")
    if method != "GET":
        raise _starts_nothing()
    if not is_upgrade:
        raise _malformed("A session is attached to by a WebSocket upgrade.")
    _read_switch(parameters, "tty")
    if parameters.get("stdin") == "false":
        if mode is Mode.TAKEOVER:
            raise _malformed("Who does not type throws nobody out: leave stdin=false away, or use /sdk.")
        mode = Mode.VIEW
    else:
        _read_switch(parameters, "stdin")
    return AttachWish(
        target=target,
        mode=mode,
        door=Door.SDK,
        columns=_read_size(parameters, "cols"),
        rows=_read_size(parameters, "rows"),
        sprite=sprite,
        session_id=_read_segment(match["session"]) if match["session"] is not None else legacy[0],
    )


def _starts_nothing() -> Refused:
    return refuse(
        RefusalCause.NO_METHOD,
        "Through this door a session is only listed and attached to: GET .../exec and GET .../exec/<session>. "
        "Sessions are started and ended by the AgentTerminal's spec.",
        headers=(("Allow", "GET, HEAD"),),
    )


def _demand_method(method: str, *allowed: str) -> None:
    if method not in allowed:
        raise refuse(
            RefusalCause.NO_METHOD,
            f"This path takes {' and '.join(allowed)} only.",
            headers=(("Allow", ", ".join(allowed)),),
        )


def _read_parameters(pairs: list[tuple[str, str]], allowed: tuple[str, ...]) -> dict[str, str]:
    """Read each parameter once; names that are not allowed are not repeated, since a secret may stand there."""
    keys = [key for key, _ in pairs]
    if FORBIDDEN.intersection(key.removesuffix("[]") for key in keys):
        raise _malformed(
            "env, cmd, path and dir are not for an attach: it starts nothing. They belong into spec.launch."
        )
    if not set(keys) <= set(allowed):
        listed = ", ".join(allowed) if allowed else "none"
        raise _malformed(
            f"The query has a parameter that this path does not know; it knows: {listed}. A token never "
            "belongs into a URL; it goes into the Authorization header."
        )
    if len(set(keys)) < len(keys):
        raise _malformed("A parameter of the query stands there twice.")
    return dict(pairs)


def _read_switch(parameters: Mapping[str, str], key: str) -> bool:
    value = parameters.get(key, "false")
    if value not in {"true", "false"}:
        raise _malformed(f"{key} must be true or false.")
    return value == "true"


def _read_size(parameters: Mapping[str, str], key: str) -> int | None:
    text = parameters.get(key)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) or not 1 <= int(text) <= 65_535:
        raise _malformed(f"{key} must be a whole number from 1 to 65,535.")
    return int(text)


def _read_segment(raw: str) -> str:
    """Decode one segment; a name with a control character or a slash in it names nothing here."""
    try:
        text = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable() or len(text) > 128:
        raise _malformed("A segment of the path is not readable text of at most 128 characters.")
    return text


def _malformed(message: str) -> Refused:
    return refuse(RefusalCause.MALFORMED, message)

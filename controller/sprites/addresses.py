"""
The addresses of the Sprites API. Pure.

Problem: a wrong address answers 404, and a 404 to a kill is easily read as "already gone", so a mistake here lets
processes run on. Promise: every name is one path segment whatever it holds; a name that cannot be one is refused
before anything is sent.

Source: sprites-api.md 2.1, 2.4, 3.1, 3.2, 5 and 6 (2026-09).
"""

from collections.abc import Sequence
from urllib.parse import quote, urlencode

from controller.sprites.errors import Rejected
from controller.sprites.texts import tidy

PAGE_SPRITES = 50
"""Sprites in one page. Source: sprites-api.md 12 row 29 (2026-09): the documented ceiling."""


def sprites_page(*, prefix: str, continuation: str | None) -> str:
    """Address one page of the sprites; the first page has no continuation."""
    query = {"max_results": str(PAGE_SPRITES)}
    if prefix:
        query["prefix"] = prefix
    if continuation is not None:
        query["continuation_token"] = continuation
    return f"/v1/sprites?{_query(list(query.items()))}"


def sprite_path(sprite: str) -> str:
    """Address one sprite."""
    return f"/v1/sprites/{_segment(sprite, 'sprite name')}"


def sessions_path(sprite: str) -> str:
    """Address the session list of a sprite: the exec route without a command."""
    return f"{sprite_path(sprite)}/exec"


def attach_path(sprite: str, session_id: str, *, stdin: bool) -> str:
    """
    Address a session that lives, by its path (runtime rc30 and later).

    `stdin` is always said: its default differs between kinds of sessions. No size is sent, since a `resize` frame says
    it to whoever may type only.
    """
    return f"{sessions_path(sprite)}/{_segment(session_id, 'session id')}?stdin={'true' if stdin else 'false'}"


def kill_path(sprite: str, session_id: str) -> str:
    """
    Address a SIGKILL.

    The signal stands in the query, since the platform's default is SIGTERM, which a process may ignore (K3). There is
    no `sessions` segment (K2) and no `timeout`: SIGKILL has no grace.
    """
    return f"{sessions_path(sprite)}/{_segment(session_id, 'session id')}/kill?signal=SIGKILL"


def command_path(sprite: str, argv: Sequence[str]) -> str:
    """
    Address a command without a terminal that reads stdin.

    The environment is never sent: it would replace PATH, and it would stand in access logs.
    """
    return f"{sessions_path(sprite)}?{_query([*_words(argv), ('stdin', 'true')])}"


def launch_path(sprite: str, argv: Sequence[str], *, columns: int, rows: int) -> str:
    """Address a new terminal session that outlives its socket without limit."""
    options = [("tty", "true"), ("cols", str(columns)), ("rows", str(rows)), ("max_run_after_disconnect", "0")]
    return f"{sessions_path(sprite)}?{_query([*_words(argv), *options])}"


def _words(argv: Sequence[str]) -> list[tuple[str, str]]:
    if not argv or not argv[0]:
        raise Rejected("The command is empty; nothing was sent.")
    return [*(("cmd", word) for word in argv), ("path", argv[0])]


def _query(pairs: Sequence[tuple[str, str]]) -> str:
    try:
        return urlencode(pairs, quote_via=quote, safe="")
    except UnicodeEncodeError:
        raise Rejected("A word of the request is no valid Unicode text; nothing was sent.") from None


def _segment(name: str, what: str) -> str:
    """
    Encode one path segment.

    `.` and `..` are refused rather than encoded, since clients and proxies resolve them: killing `..` would address
    another route, whose 404 says nothing about the session.
    """
    if name in ("", ".", ".."):
        raise Rejected(f"The {what} {name!r} cannot stand in an address; nothing was sent.")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise Rejected(f"The {what} {tidy(ascii(name), characters=80)} is no valid text; nothing was sent.") from None

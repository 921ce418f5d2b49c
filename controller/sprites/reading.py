"""
Reading what the Sprites API answers: sprites, sessions, times. Pure.

Problem: the sources disagree about envelopes and types, and an answer that was misread as "nothing there" would prove
a death that did not happen. Promise: what the contract lets vary is accepted in every form; what it promises and is
not there is `Malformed`, never an empty result; nothing else is raised, whatever the bytes.

Source: sprites-api.md 2.3, 2.4, 5 and 12 rows 1, 2 (2026-09).
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

import orjson

from controller.api.session import Session, Sprite, SpriteState
from controller.sprites.errors import Malformed, Refused

_MOMENT: Final = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(?:([Zz])|([+-])(\d{2}):(\d{2}))", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of sprites, and the way to the next: None at the end."""

    sprites: tuple[Sprite, ...]
    continuation: str | None


def read_page(body: bytes) -> Page:
    """
    Read one page of sprites.

    The token alone tells the end: `has_more` was recorded as true on an empty last page.
    """
    answer = _read_object(body, "page of sprites")
    entries = answer.get("sprites")
    if not isinstance(entries, list):
        raise Malformed("The page of sprites has no list named `sprites`.")
    continuation = answer.get("next_continuation_token")
    if continuation is not None and not isinstance(continuation, str):
        raise Malformed("The page of sprites has a `next_continuation_token` that is no text.")
    return Page(tuple(_read_sprite_entry(entry) for entry in entries), continuation or None)


def read_sprite(body: bytes, *, name: str) -> Sprite:
    """Read one sprite; an answer about another one than was asked for is malformed."""
    sprite = _read_sprite_entry(_read_object(body, "sprite"))
    if sprite.name != name:
        raise Malformed(f"The answer is about the sprite {sprite.name!r}, not about {name!r}.")
    return sprite


def read_sessions(body: bytes) -> tuple[Session, ...]:
    """
    Read a session list: an object with the key `sessions`, or a bare array.

    An object without the key is malformed, since "no sessions" and "an answer about something else" must not look the
    same. A filled `error` beside the list says that the list was not made.
    """
    answer = _read_json(body, "session list")
    if isinstance(answer, dict):
        _demand_no_error(answer, "session list")
        answer = answer.get("sessions")
        if not isinstance(answer, list):
            raise Malformed("The session list has no list named `sessions`.")
    if not isinstance(answer, list):
        raise Malformed("The session list is neither an object nor an array.")
    return tuple(_read_session_entry(entry) for entry in answer)


def read_moment(value: object) -> datetime | None:
    """
    Read a time: RFC 3339 with a fraction of any length, or unix seconds. None where it is no time.

    Digits after the microsecond are cut off. Zero, and Go's zero time in the year 1, mean that nobody set it.
    """
    try:
        if isinstance(value, str):
            return _read_rfc3339(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            return None
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def read_session_id(value: object) -> str | None:
    """Read a session id, which is text or a whole number; None where it is neither, or empty."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str) and value:
        return value
    return None


def _read_rfc3339(text: str) -> datetime | None:
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, _zulu, sign, hours, minutes = found.groups()
    zone = UTC
    if sign is not None:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        zone = timezone(offset if sign == "+" else -offset)
    # A leap second is a legal spelling that datetime does not know: it is the second after 59.
    leap = second == "60"
    moment = datetime(
        int(year),
        int(month),
        int(day),
        int(hour),
        int(minute),
        59 if leap else int(second),
        int((fraction or "0")[:6].ljust(6, "0")),
        tzinfo=zone,
    ).astimezone(UTC)
    if moment.year == 1:
        return None
    return moment + timedelta(seconds=1) if leap else moment


def _read_json(body: bytes, what: str) -> object:
    try:
        answer: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        shown = "is an HTML page" if body.lstrip()[:1] == b"<" else "is no JSON"
        raise Malformed(f"The answer to the request for the {what} {shown}.") from None
    return answer


def _read_object(body: bytes, what: str) -> dict[str, object]:
    answer = _read_json(body, what)
    if not isinstance(answer, dict):
        raise Malformed(f"The answer to the request for the {what} is no JSON object.")
    _demand_no_error(answer, what)
    return answer


def _demand_no_error(answer: dict[str, object], what: str) -> None:
    """An `error` that says something, beside a success, means that the rest is not to be believed."""
    if error := answer.get("error"):
        told = f": {error}" if isinstance(error, str) else ""
        raise Refused(f"The Sprites API could not make the {what}{told}.")


def _read_sprite_entry(entry: object) -> Sprite:
    match entry:
        case {"id": str(sprite_id), "name": str(name), **others} if sprite_id and name:
            return Sprite(id=sprite_id, name=name, state=_read_state(others.get("status")))
        case _:
            raise Malformed("A sprite in the answer has no readable `id` and `name`.")


def _read_state(value: object) -> SpriteState:
    """Read a state; a word we do not know is unknown, so that it is never taken for a pause."""
    if value in (SpriteState.RUNNING, SpriteState.WARM, SpriteState.COLD):
        return SpriteState(str(value))
    return SpriteState.UNKNOWN


def _read_session_entry(entry: object) -> Session:
    if not isinstance(entry, dict):
        raise Malformed("An entry of the session list is no object.")
    session_id = read_session_id(entry.get("id"))
    if session_id is None:
        raise Malformed("An entry of the session list has no readable `id`.")
    command = entry.get("command")
    return Session(
        id=session_id,
        created=read_moment(entry.get("created")),
        command=command if isinstance(command, str) else "",
        tty=entry.get("tty") is True,
        last_activity=read_moment(entry.get("last_activity")),
    )

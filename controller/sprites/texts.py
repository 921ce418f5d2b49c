"""
What of an answer may be shown: short, clean, and without secrets. Pure.

Problem: an error text from outside may be a page of HTML, carry terminal control sequences, or echo the very header
or query that held a secret; and it ends in a condition that everybody may read. Promise: `tidy` makes one short
printable line of any text, `scrub` takes out the token and every query, `excerpt` picks the one sentence of a body.
"""

import re
import unicodedata
from typing import Final
from urllib.parse import quote

import orjson

from controller.sprites.token import Token

MESSAGE_CHARACTERS: Final = 256
"""The longest error text. A condition's message is read in a table by people."""

ERROR_BODY_BYTES: Final = 8 * 1024
"""How much of an error's body is read: the platform's own errors have less than 1 KiB."""

EXCERPT_CHARACTERS: Final = 1024
"""
How much of a body's text is looked at, after scrubbing. Less than `ERROR_BODY_BYTES`, so that a token which the read
limit cut in two, and which scrubbing therefore did not recognise, is never within the part that is shown.
"""

SECRET_PIECE_CHARACTERS: Final = 16
"""
Pieces of a token between slashes are secrets of their own from this length on.

Source: sprites-api.md 1 (2026-09): `<org-slug>/<number>/<32 hex>/<64 hex>`.
"""

REDACTED: Final = "[redacted]"

_BEARER: Final = re.compile(r"(?i)\bbearer\s+[^\s\"',;]+")
_QUERY: Final = re.compile(r"\?[^\s\"'<>=]*=[^\s\"'<>]*")


def tidy(text: str, *, characters: int = MESSAGE_CHARACTERS) -> str:
    """
    Make one printable line of any text, cut at a number of characters.

    Control and format characters (escape sequences, direction marks, lone surrogates) become spaces, and runs of
    white space one space.
    """
    printable = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in text[: characters * 8])
    line = " ".join(printable.split())
    if len(line) <= characters:
        return line
    return line[: characters - 1].rstrip() + "…"


def scrub(text: str, token: Token | None) -> str:
    """Take the token, its long pieces, any bearer credential and any query out of a text."""
    if token is not None:
        secret = token.reveal()
        pieces = [piece for piece in secret.split("/") if len(piece) >= SECRET_PIECE_CHARACTERS]
        for piece in [secret, quote(secret, safe=""), *pieces]:
            text = text.replace(piece, REDACTED)
    return _QUERY.sub("", _BEARER.sub(REDACTED, text))


def excerpt(body: bytes, token: Token | None) -> str:
    """
    Pick the sentence that an error's body holds.

    JSON gives its `message`, `error` or `errors`; HTML is named, never quoted; other text is quoted. An empty body
    gives an empty text.

    Source: sprites-api.md 1.1 (2026-09).
    """
    text = body[:ERROR_BODY_BYTES].decode("utf-8", errors="replace").strip()
    if not text:
        return ""
    if text.startswith("<"):
        return "an HTML page"
    told = _told(body)
    return tidy(scrub(text if told is None else told, token)[:EXCERPT_CHARACTERS])


def read_json(body: bytes) -> object:
    """Read JSON, or give None where it is none: for answers whose body may be anything."""
    try:
        found: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return found


def _told(body: bytes) -> str | None:
    """Find what a JSON body says about its error; None where it does not say it the known ways."""
    match read_json(body):
        case {"message": str(message)} if message.strip():
            return message
        case {"error": str(error)} if error.strip():
            return error
        case {"errors": list(errors)} if texts := [text for text in errors if isinstance(text, str)]:
            return "; ".join(texts)
        case _:
            return None

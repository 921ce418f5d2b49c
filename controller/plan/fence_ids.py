"""
Names of sockets: the ids that we draw, and what `spec.activeSocketId` may say.

Problem: absent, empty and an id are three answers to "who speaks", and an id that somebody else wrote must never be
taken for one of ours. Promise: an id of our form tells the generation that its claim made and the gateway process that
drew it, and nothing that is not exactly of our form is read so.

Source: gateway.md 1 (the fence's words), behaviour cases F1 and F16 to F20.
"""

import re
from dataclasses import dataclass
from typing import Final

from controller.errors import AgentTerminalError

FORM: Final = "at1"
"""The first part of every id of ours; another form would bring another number."""

LONGEST_ID: Final = 128
"""The schema's limit of `spec.activeSocketId`."""

NAME_PATTERN: Final = r"[a-z0-9]{8,32}"
"""
What an incarnation, and the random part of an id, may look like. An incarnation is the end of a Lease's name, so it has
lower-case letters and digits only; no part holds a dot, which separates the parts.
"""

_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_OURS: Final = re.compile(rf"{FORM}\.([1-9][0-9]{{0,18}})\.({NAME_PATTERN})\.({NAME_PATTERN})", re.ASCII)


class BadSocketPart(AgentTerminalError):
    """A part of a socket id is not what the form allows; only our own code draws them."""


@dataclass(frozen=True, slots=True)
class NeverClaimed:
    """Absent: nobody ever claimed the terminal, and nobody is named."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """The empty text: every socket was thrown out. It names nobody, and equals no socket's id."""


@dataclass(frozen=True, slots=True)
class OurSocket:
    """
    An id of our form.

    Args:
        generation: The generation that its claim made, exact because the claim tested the one before.
        incarnation: The gateway process that drew it.
        luck: Its random part.
    """

    generation: int
    incarnation: str
    luck: str


@dataclass(frozen=True, slots=True)
class ForeignSocket:
    """An id of any other form: a foreign bridge's, or a person's. It is trusted as it is declared."""

    text: str


SocketName = NeverClaimed | Revoked | OurSocket | ForeignSocket


def make_socket_id(*, generation: int, incarnation: str, luck: str) -> str:
    """
    Make the id that a claim writes.

    Args:
        generation: The generation that the claim tests; the id carries the next one, which the claim makes.
        incarnation: Our own.
        luck: Drawn by the caller; the same for every try of one socket, so that a claim whose answer was lost and its
            repetition at the same generation write the same id.

    Raises:
        BadSocketPart: A part is not of its form.
    """
    for part in (incarnation, luck):
        if _NAME.fullmatch(part) is None:
            raise BadSocketPart(f"A part of a socket id must match {NAME_PATTERN}, and has {len(part)} characters.")
    return f"{FORM}.{generation + 1}.{incarnation}.{luck}"


def read_socket_name(text: str | None) -> SocketName:
    """Read `spec.activeSocketId`. Total: what is not exactly of our form is foreign."""
    if text is None:
        return NeverClaimed()
    if text == "":
        return Revoked()
    match = _OURS.fullmatch(text)
    if match is None:
        return ForeignSocket(text)
    generation, incarnation, luck = match.groups()
    return OurSocket(int(generation), incarnation, luck)


def find_incarnation(text: str | None) -> str | None:
    """Give the gateway process that drew an id; None where it is not of our form, or there is none."""
    name = read_socket_name(text)
    return name.incarnation if isinstance(name, OurSocket) else None

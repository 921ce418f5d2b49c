"""
Names of sockets: the ids that we draw, and what `spec.activeSocketId` may say.

Problem: absent, empty and an id are three answers to "who speaks", and an id that somebody else wrote must never be
taken for one of ours. And a Lease that is not found proves no death where one looks in another namespace than the
gateway wrote it to: two settings that differ would let the locks of the living be cleared. Promise: an id of our form
tells the generation that its claim made and the gateway process that drew it, and nothing that is not exactly of our
form is read so; the name of a gateway process tells, by a mark, in which namespace its Lease lies.

Source: gateway.md 1 (the fence's words), behaviour cases F1 and F16 to F20.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from controller.errors import AgentTerminalError

FORM: Final = "at1"
"""The first part of every id of ours; another form would bring another number."""

LONGEST_ID: Final = 128
"""The schema's limit of `spec.activeSocketId`."""

NAME_PATTERN: Final = r"[a-z0-9]{8,32}"
"""What the random part of an id, and of an incarnation, looks like; no part holds a dot, which separates the parts."""

_HOME_DIGITS: Final = 8
INCARNATION_PATTERN: Final = rf"{NAME_PATTERN}(?:-[0-9a-f]{{{_HOME_DIGITS}}})?"
"""
What an incarnation looks like: the end of a Lease's name. After its random part comes the mark of the namespace in
which that Lease lies. A name without a mark says nothing about it.
"""

_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_INCARNATION: Final = re.compile(INCARNATION_PATTERN, re.ASCII)
_OURS: Final = re.compile(rf"{FORM}\.([1-9][0-9]{{0,18}})\.({INCARNATION_PATTERN})\.({NAME_PATTERN})", re.ASCII)


LEASE_ELSEWHERE: Final = (
    "A gateway keeps its Lease in another namespace than is looked in here: nobody can know whether it lives, so it "
    "counts as alive. Give operator and gateways the same AGENTTERMINAL_LEASE_NAMESPACE."
)


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
    for part, pattern in ((incarnation, _INCARNATION), (luck, _NAME)):
        if pattern.fullmatch(part) is None:
            raise BadSocketPart(f"A part of a socket id must match {pattern.pattern}, and has {len(part)} characters.")
    return f"{FORM}.{generation + 1}.{incarnation}.{luck}"


def make_incarnation(luck: str, *, lease_namespace: str) -> str:
    """Name a gateway process, so that whoever reads the name can tell whether it looks for the Lease where it lies."""
    return f"{luck}-{_mark_home(lease_namespace)}"


def has_lease_elsewhere(incarnation: str, *, lease_namespace: str) -> bool:
    """Tell whether a gateway's Lease lies in another namespace than this one: then its absence here proves nothing."""
    _, _, mark = incarnation.partition("-")
    return mark not in ("", _mark_home(lease_namespace))


def _mark_home(namespace: str) -> str:
    return hashlib.sha256(namespace.encode()).hexdigest()[:_HOME_DIGITS]


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

"""
What the doors hand over: an attach that was let in, to whoever carries terminals.

Problem: the doors know who may, the fence knows who holds, the streams know the bytes, and each has its own tests.
Promise: these few values are all that passes between them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, Protocol

from aiohttp import web

from controller.api.session import SpriteState
from controller.gateway.access import Person
from controller.gateway.standing import Presence, Terminal
from controller.gateway.wishes import Door, Mode, Target
from controller.plan import fence_closing


class EndCause(StrEnum):
    """Why the doors want an open socket to end. A closed list: it is a label of our metrics."""

    WITHDRAWN = "Withdrawn"
    EXPIRED = "Expired"
    DRAIN = "Drain"


WORDS: Final[Mapping[EndCause, fence_closing.Ending]] = {
    EndCause.WITHDRAWN: fence_closing.Ending.FORBIDDEN,
    EndCause.EXPIRED: fence_closing.Ending.EXPIRED,
    EndCause.DRAIN: fence_closing.Ending.RESTARTING,
}
"""Each cause in the words of the one table of endings."""


@dataclass(frozen=True, slots=True)
class Ending:
    """An open socket has to end, for this cause."""

    cause: EndCause

    @property
    def word(self) -> fence_closing.Ending:
        """How the one table of endings calls it: its code, its sentence, and the word that stands in the close."""
        return WORDS[self.cause]


@dataclass(frozen=True, slots=True)
class TokenWanted:
    """The token expired: ask by text frame for a fresh one of the same user. The socket goes on meanwhile."""

    within: timedelta


Notice = TokenWanted | Ending


class Renewal(StrEnum):
    """What became of a fresh token."""

    RENEWED = "Renewed"
    BAD_TOKEN = "BadToken"
    """The API server does not take it. Another may be sent."""
    OTHER_PERSON = "OtherPerson"
    """It is somebody else's: never taken."""
    UNDECIDED = "Undecided"
    """The API server did not say, in time. The same may be sent again."""


class Leave(Protocol):
    """One socket's leave to go on, which is reviewed as long as it lasts: `controller.gateway.guard.Guard`."""

    async def next_notice(self) -> Notice:
        """Wait for the next thing to tell the client; an `Ending` is the last."""

    async def renew(self, text: str) -> Renewal:
        """Take a fresh token, from an `auth` control frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """
    One attach that was let in.

    Args:
        target: Namespace and name, as in the path.
        uid: Which object of that name: everything behind the doors is keyed by it.
        person: Who.
        mode: As what.
        door: Through which door, which decides about the protocol.
        columns: The client's width, where it told.
        rows: The client's height, where it told.
        terminal: The object, as the look-up saw it.
        leave: What ends the socket from outside, and takes fresh tokens.
        abort: Cuts the connection at once.
    """

    target: Target
    uid: str
    person: Person
    mode: Mode
    door: Door
    columns: int | None
    rows: int | None
    terminal: Terminal = field(repr=False)
    leave: Leave = field(repr=False)
    abort: Callable[[], None] = field(repr=False)


class Terminals(Protocol):
    """Whoever carries terminals behind the doors."""

    def find_unready(self) -> str | None:
        """Say in a sentence why nothing can be attached now (no Lease yet, or lost); None when it can."""

    def look(self, terminal: Terminal) -> Presence:
        """Tell at once what is known of an object."""

    async def find_state(self, terminal: Terminal) -> SpriteState | None:
        """Ask the platform how the object's sprite is, without waking it; None where it does not say, in time."""

    def build_socket(self, protocols: Sequence[str]) -> web.WebSocketResponse:
        """Make the response that an upgrade is answered with: its pings and bounds are those of who carries it."""

    async def attach(self, request: AttachRequest, socket: web.WebSocketResponse) -> None:
        """
        Carry one socket to its end, the close frame included.

        It watches `request.leave`, and ends the socket soon after an `Ending`, with a text frame and the close code;
        after `TimeSettings.farewell` it is cancelled, and the socket closed for it.
        """

    async def note_activity(self, terminal: Terminal) -> None:
        """Note that a terminal is at work; coalesced to one status write per refresh."""

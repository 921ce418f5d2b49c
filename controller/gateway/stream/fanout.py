"""
One upstream socket that only looks, and the people who get what it says.

Problem: the platform sends the past at each attach and marks neither its end nor any position, so nobody can be put
into a stream that runs already without losing bytes or getting some twice. Promise: everybody here joined before the
replay of the present socket began, so all get the same bytes in the same order; nobody waits for anybody else. Only
where one person alone looks at a terminal may their reading slow the upstream, as in any terminal.

Source: sprites-api.md 3.6 (2026-09); gateway.md 5.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from controller.gateway.stream.client import Client, Role
from controller.gateway.stream.frames import is_passed_on
from controller.gateway.stream.upstream import Permit
from controller.sprites.attach import Attachment

REPLAY_SECONDS: Final = 1.0
"""
So long after an attach output is taken for the past, and is no activity: a viewer who comes, or a socket that breaks,
must not make a silent terminal look busy. The past comes at once; news within this second are noticed by what follows.
"""


class House(Protocol):
    """What a fan-out asks of its terminal."""

    async def permit_look(self, fanout: "Fanout") -> Permit:
        """Wait until this fan-out may connect, or is not needed any more."""

    def take_up(self, fanout: "Fanout", attachment: Attachment) -> None:
        """Hear that a fan-out's replay is about to begin."""

    def try_again(self, fanout: "Fanout") -> None:
        """Hear that a fan-out's socket broke and is being opened again."""

    def quiet(self, fanout: "Fanout") -> None:
        """Hear that a fan-out stays down until somebody wants it."""

    def find_sole(self, fanout: "Fanout") -> Client | None:
        """Give the one person who looks at the terminal, if there is just one."""


class Fanout:
    """
    The people of one upstream socket. It is the `Sink` of an `Upstream`.

    Args:
        house: The terminal it belongs to.
        note_output: Told of each frame, with the moment from which frames are no replay any more; cheap.
        full_bytes: So much waiting for a sole person slows the upstream.
    """

    def __init__(self, house: House, note_output: Callable[[float], None], *, full_bytes: int) -> None:
        self.clients: list[Client] = []
        self.is_open = False
        """Its replay has begun: nobody may join any more."""
        self._house = house
        self._note_output = note_output
        self._news_from = 0.0
        self._full_bytes = full_bytes

    @property
    def wakes(self) -> bool:
        """Somebody here attached to type, so the sprite may be woken."""
        return any(client.role is Role.TYPE for client in self.clients)

    async def permit_connect(self) -> Permit:
        """Wait until connecting is allowed."""
        return await self._house.permit_look(self)

    def begin(self, attachment: Attachment) -> None:
        """Announce the session and the replay to everybody."""
        self._house.take_up(self, attachment)
        self.is_open = True
        self._news_from = asyncio.get_running_loop().time() + REPLAY_SECONDS
        for client in self.clients:
            client.begin_replay()

    def take(self, frame: bytes) -> bool:
        """Hand a frame to everybody; nothing of this waits."""
        self._note_output(self._news_from)
        clients = self.clients
        for client in clients:
            client.push(frame)
        return len(clients) == 1 and clients[0].queued_bytes > self._full_bytes

    async def wait_for_room(self) -> None:
        """Wait for a sole person to read; whoever is not alone is not waited for."""
        while (sole := self._house.find_sole(self)) is not None and sole.queued_bytes > self._full_bytes:
            if sole.ending is not None:
                return
            await sole.wait_until_empty()

    def tell(self, text: str) -> None:
        """Pass on what the platform says to everybody."""
        if is_passed_on(text):
            for client in self.clients:
                client.push(text)

    async def speak(self, _attachment: Attachment) -> None:
        """Say nothing: this socket cannot type."""

    def lose(self, _attachment: Attachment | None) -> None:
        """Be joined again."""
        self.is_open = False

    def try_again(self) -> None:
        """Be opened again."""
        self._house.try_again(self)

    def stay_down(self) -> None:
        """Stay down until somebody types or comes."""
        self._house.quiet(self)

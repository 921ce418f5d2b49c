"""
The one upstream socket that types, for the one person who holds the terminal.

Problem: input must stop at a word, in the very frame, and whoever lets go must be able to say what may still be on its
way. Promise: each piece of input passes two questions directly before it is written, whether it was halted here and
whether the fence still names its sender; order is kept over the backlog and over a reconnect; what broke unconfirmed is
remembered for as long as it may still land. Its output is read and thrown away: the people see it through the sockets
that only look, and the replay of this one, whose end is not marked, can therefore never be mistaken for news.

Source: gateway.md 3, rules 1, 3, 4 and 7, and 5.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto

from controller.gateway.stream.backlog import Backlog
from controller.gateway.stream.client import Client
from controller.gateway.stream.frames import Resize, Signal, Word
from controller.gateway.stream.upstream import Permit
from controller.sprites.attach import Attachment, AttachmentEnded, Typed
from controller.tenure import Tenure

MayType = Callable[[Client], bool]
"""Whether the fence names this client at this moment: asked for every frame, so it only looks into memory."""

WaitForWord = Callable[[Client], Awaitable[None]]
"""Waits while the fence does not know whether this client may still type, so that what it types is kept meanwhile."""

WaitForSight = Callable[[Client], Awaitable[None]]
"""Waits until this client sees the terminal: what it types may end it, and its last words must not be lost."""


class Taken(Enum):
    """What became of a frame."""

    SENT = auto()
    REFUSED = auto()
    """Dropped: the right to type is gone, or the socket broke under it."""
    DOWN = auto()
    """Not touched: no socket is open."""


class Typist:
    """
    A person's right to type, and the socket it goes through. It is the `Sink` of an `Upstream`.

    Args:
        client: The person.
        tenure: Permits the sockets.
        backlog: What the person typed before.
        may_type: The fence's two marks.
        wait_for_word: Waits while the fence does not know.
        wait_for_sight: Waits until the person sees what their input does.
        note_broken: Told of bytes that a broken socket left unconfirmed.
        on_open: Told each time that input flows.
    """

    def __init__(
        self,
        client: Client,
        tenure: Tenure,
        backlog: Backlog,
        may_type: MayType,
        *,
        wait_for_word: WaitForWord,
        wait_for_sight: WaitForSight,
        note_broken: Callable[[int], None],
        on_open: Callable[[], None],
    ) -> None:
        self.client = client
        self.tenure = tenure
        self.halted = False
        self._backlog = backlog
        self._may_type = may_type
        self._wait_for_word = wait_for_word
        self._wait_for_sight = wait_for_sight
        self._note_broken = note_broken
        self._on_open = on_open
        self._attachment: Attachment | None = None
        self._draining: Attachment | None = None
        self._drains = asyncio.Lock()
        self._told_of: set[Attachment] = set()
        self._caught_up = asyncio.Event()

    async def type(self, frame: bytes | Resize | Signal) -> Taken:
        """Send after all that came before; as slowly as the other side confirms."""
        while (attachment := self._attachment) is not None and not self.halted:
            await self._caught_up.wait()
            # It may have broken meanwhile, and this frame was not on it: then it goes to the next.
            if attachment is self._attachment:
                sent = await self._send(attachment, frame)
                return Taken.SENT if sent is Typed.SENT else Taken.REFUSED
        return Taken.REFUSED if self.halted else Taken.DOWN

    def halt(self) -> None:
        """Send nothing more from this very moment."""
        self.halted = True

    async def drain(self) -> int:
        """
        Halt, and bring what was sent to a confirmed end; give the bytes that could not be confirmed.

        The fence may ask again while it is being done. Whoever asks second waits as long, and is told of nothing that
        the first was told of: an answer at once would let the lock go with input on its way.
        """
        self.halt()
        async with self._drains:
            attachment, self._attachment = self._attachment, None
            self._caught_up.set()
            self._draining = attachment
            try:
                return 0 if attachment is None else self._tell_once(attachment, await attachment.drain())
            finally:
                self._draining = None

    def abort(self) -> int:
        """Halt, and cut the socket at once, also out of a drain; give the bytes that were not confirmed."""
        self.halt()
        attachment, self._attachment = self._attachment or self._draining, None
        self._caught_up.set()
        return 0 if attachment is None else self._tell_once(attachment, attachment.abort())

    def _tell_once(self, attachment: Attachment, unconfirmed_bytes: int) -> int:
        """Tell of a socket's bytes once, also where it is cut out of a drain, which then ends as well."""
        if attachment in self._told_of:
            return 0
        self._told_of.add(attachment)
        return unconfirmed_bytes

    # The sink of its upstream.

    async def permit_connect(self) -> Permit:
        """Connect as long as the right lasts; that the session lives is seen by those who look on."""
        await self._wait_for_sight(self.client)
        return Permit.NOT if self.halted else Permit.AT_ONCE

    def begin(self, attachment: Attachment) -> None:
        """Have a socket; what was typed meanwhile goes first, and what it says is for nobody."""
        attachment.ignore_output()
        self._caught_up.clear()
        if not self.halted:
            self._attachment = attachment

    def take(self, _frame: bytes) -> bool:
        """Throw it away."""
        return False

    async def wait_for_room(self) -> None:
        """Wait for nothing."""

    def tell(self, _text: str) -> None:
        """Pass nothing on."""

    async def speak(self, attachment: Attachment) -> None:
        """Ask for pongs, send the size and the backlog, and let input flow."""
        async with asyncio.TaskGroup() as group:
            group.create_task(attachment.confirm())
            await self._catch_up(attachment)

    def lose(self, attachment: Attachment | None) -> None:
        """Have no socket any more; what it left unconfirmed may still land."""
        if attachment is None or attachment is not self._attachment:
            return
        self._attachment = None
        self._caught_up.set()
        if attachment.unconfirmed_bytes:
            self._note_broken(attachment.unconfirmed_bytes)
            self.client.tell(
                Word.INPUT_UNSURE,
                f"The connection broke; which of your last {attachment.unconfirmed_bytes} bytes arrived is not known.",
            )

    def try_again(self) -> None:
        """Tell nobody: whoever types also looks on, and is told of that socket."""

    def stay_down(self) -> None:
        """Stay down until the person types."""

    async def _catch_up(self, attachment: Attachment) -> None:
        if self.client.size is not None:
            await self._send(attachment, self.client.size)
        while self._backlog and attachment is self._attachment:
            await self._send(attachment, self._backlog.take())
        if attachment is self._attachment:
            self._caught_up.set()
            self._on_open()

    async def _send(self, attachment: Attachment, frame: bytes | Resize | Signal) -> Typed:
        await self._wait_for_word(self.client)
        try:
            match frame:
                case bytes():
                    return await attachment.send_input(frame, may_type=self._may_send)
                case Resize(columns, rows):
                    return await attachment.send_resize(columns=columns, rows=rows, may_type=self._may_send)
                case Signal(name):
                    return await attachment.send_signal(name, may_type=self._may_send)
        except AttachmentEnded:
            # Its upstream hears of the end as well, and tells.
            return Typed.HALTED

    def _may_send(self) -> bool:
        return not self.halted and self._may_type(self.client)

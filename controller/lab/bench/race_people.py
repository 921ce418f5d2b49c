"""
The people of the race: one after the other takes a terminal over, types numbered input, and is thrown out.

Promise: at each gateway one person at a time asks for a terminal, so that each lock can be told to be theirs; the
former types on until thrown out; whoever is neither let speak nor sent away in time is counted as stuck.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from random import Random
from typing import Final

import aiohttp
import orjson

from controller.clock import ElapsedClock
from controller.lab.bench.race_judge import render_input
from controller.lab.bench.race_locks import Turn

STUCK_AFTER: Final = timedelta(seconds=45)
"""Input waits for 20 s at most, then its sender is sent away; so long a stopped gateway stands still at most."""

BEFORE_SPEAKING: Final = 20
"""Inputs that are typed at once, most of them before the lock is had."""

SEND_BUFFER_BYTES: Final = 32 * 1024
"""Of each person's connection: what is typed into a wall stays with who typed it."""

MOST_DOUBLED: Final = 5
"""So often the wait of somebody is doubled who was thrown out before they spoke."""

GONE: Final = (ConnectionError, aiohttp.ClientError, RuntimeError)
"""What a socket raises that has been closed, also under the hands of who writes."""


@dataclass(frozen=True, slots=True)
class Pace:
    """
    How fast people are.

    Args:
        burst: Inputs that are typed without a pause.
        pause: Between two bursts.
        stay: How long until the next one at the same gateway comes, at most, after one came to speak.
    """

    burst: int
    pause: timedelta
    stay: timedelta


class Person:
    """One person's socket."""

    def __init__(
        self, sender: str, connection: aiohttp.ClientWebSocketResponse, pace: Pace, clock: ElapsedClock
    ) -> None:
        self.sender = sender
        self.speaks = False
        self.reason = ""
        """Why they were sent away."""
        self._connection = connection
        self._pace = pace
        self._clock = clock
        self._answered = asyncio.Event()
        transport = connection.get_extra_info("socket")
        if transport is not None:
            transport.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    async def live(self) -> None:
        """Type and read, until thrown out."""
        async with asyncio.TaskGroup() as group:
            typing = group.create_task(self._type())
            await self._read()
            typing.cancel()
        await self._connection.close()

    async def wait_for_answer(self) -> bool:
        """Wait until they speak, or are sent away; tell whether either came in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STUCK_AFTER.total_seconds()):
                await self._answered.wait()
        return self._answered.is_set()

    async def leave(self) -> None:
        """Go by oneself."""
        with suppress(*GONE):
            await self._connection.close()

    async def _read(self) -> None:
        with suppress(*GONE):
            async for message in self._connection:
                if message.type is aiohttp.WSMsgType.TEXT:
                    self._hear(orjson.loads(message.data))
        self._answered.set()

    def _hear(self, told: dict[str, object]) -> None:
        match told:
            case {"type": "notice", "word": "Holding"}:
                self.speaks = True
                self._answered.set()
            case {"type": "closed", "reason": str(reason)}:
                self.reason = reason
                self._answered.set()
            case _:
                pass

    async def _type(self) -> None:
        pace = self._pace
        with suppress(*GONE):
            for number in count(1):
                if number > BEFORE_SPEAKING and not self.speaks:
                    await self._answered.wait()
                await self._connection.send_bytes(render_input(self.sender, number, self._clock.elapsed()))
                if number % pace.burst == 0:
                    await self._clock.sleep(pace.pause)


class Corner:
    """
    Everybody who comes to one terminal through one gateway.

    Args:
        gateway: The gateway's place.
        terminal: Whose door.
        find_url: Gives the address of the door; a gateway that was started again has another.
        token: Everybody's.
        http: What connects.
        group: Runs those who are there.
        pace: How fast they are.
        luck: For how long somebody stays.
        clock: For moments.
    """

    def __init__(
        self,
        gateway: str,
        terminal: str,
        *,
        find_url: Callable[[], str],
        token: str,
        http: aiohttp.ClientSession,
        group: asyncio.TaskGroup,
        pace: Pace,
        luck: Random,
        clock: ElapsedClock,
    ) -> None:
        self.gateway = gateway
        self.turns: list[Turn] = []
        self.spoken = 0
        """How many came to speak."""
        self.stuck: list[Turn] = []
        """Those of whoever was neither let speak nor sent away in time."""
        self.refused: Counter[str] = Counter()
        """Came to a closed door: that of a gateway that was down, or not ready; by the answer."""
        self.reasons: Counter[str] = Counter()
        """Why people were sent away without having spoken."""
        self.coming = asyncio.Event()
        """While it is set, people come."""
        self._terminal = terminal
        self._find_url = find_url
        self._token = token
        self._http = http
        self._group = group
        self._pace = pace
        self._luck = luck
        self._clock = clock
        self._numbers = count(1)
        self._in_vain = 0
        self._there: set[Person] = set()
        self._asking = asyncio.Lock()

    async def run(self) -> None:
        """Let one after the other come, until cancelled."""
        while True:
            await self.coming.wait()
            before = self.spoken
            await self._come()
            # Two who take over from each other faster than either comes to speak would never speak: they give way.
            self._in_vain = self._in_vain + 1 if self.spoken == before else 0
            longest = self._pace.stay * 2 ** min(self._in_vain, MOST_DOUBLED)
            await self._clock.sleep(longest * self._luck.random())

    async def rest(self) -> None:
        """Let nobody come any more, and wait until the last one has an answer."""
        self.coming.clear()
        async with self._asking:
            pass

    async def leave(self) -> None:
        """Let everybody go."""
        await self.rest()
        for person in tuple(self._there):
            await person.leave()

    async def _come(self) -> None:
        """Let one person ask, and wait until they have an answer."""
        async with self._asking:
            sender, came = f"{self._terminal}/{self.gateway}/{next(self._numbers)}", self._clock.now()
            try:
                async with asyncio.timeout(STUCK_AFTER.total_seconds()):
                    connection = await self._http.ws_connect(
                        self._find_url(), headers={"Authorization": f"Bearer {self._token}"}, max_msg_size=0
                    )
            except aiohttp.WSServerHandshakeError as error:
                self.refused[f"{type(error).__name__} {error.status}"] += 1
                return
            except (*GONE, TimeoutError) as error:
                # Whether the gateway had let them in is not known: if it had, they may have come to a lock.
                self.refused[type(error).__name__] += 1
                turn = self._note_turn(sender, came, reason=type(error).__name__)
                if isinstance(error, TimeoutError):
                    self.stuck.append(turn)
                return
            person = Person(sender, connection, self._pace, self._clock)
            self._group.create_task(self._serve(person))
            is_answered = await person.wait_for_answer()
            if not is_answered:
                await person.leave()
            if not person.speaks:
                self.reasons[person.reason] += 1
            turn = self._note_turn(sender, came, spoke=person.speaks, reason=person.reason)
            if not is_answered:
                self.stuck.append(turn)
            self.spoken += person.speaks

    def _note_turn(self, sender: str, came: datetime, *, spoke: bool = False, reason: str) -> Turn:
        turn = Turn(sender, self._terminal, self.gateway, came, self._clock.now(), spoke, reason)
        self.turns.append(turn)
        return turn

    async def _serve(self, person: Person) -> None:
        self._there.add(person)
        try:
            await person.live()
        finally:
            self._there.discard(person)

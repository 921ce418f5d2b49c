"""
Histories of two gateways on virtual time: everything between the API server's calls and the sprite's sockets is real.

Problem: the fence's decisions are searched in every order (tests/plan/test_fence_model.py); that they are carried out
as they were meant was tried in the orders that somebody thought of. Promise: each seed is one history, in which people
come, type, take over and go through two real desks while calls, watches and upstream sockets fail as `outsides` says,
hands patch and a gateway leaves; and whatever breaks a promise raises `Broken` with the whole history:

* no input of an older lock arrives after the first of a newer one, except what was counted as undrained, within 64 KiB;
* no gateway asks for its own lock to be cleared while input that it guards is on its way;
* nothing is sent without the lock, or for somebody whom the fence does not let, who was told no, or has gone;
* whoever comes speaks or is told why not, in time; once it is calm, whoever takes over speaks, and everybody can leave;
* every task ends, every upstream socket is closed, every seat and list is empty;
* the bytes of one upstream socket are counted as undrained once.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import Any, Final, cast

from aiohttp import WSMsgType

from controller.api.terminal import read_spec, read_status
from controller.gateway.access import Person
from controller.gateway.chair import Chair
from controller.gateway.desk import Desk, Outside
from controller.gateway.standing import Terminal
from controller.gateway.stream import BothDelays, Client, Hub, StreamSettings
from controller.gateway.terminals import AttachRequest, EndCause, Ending, Notice, Renewal
from controller.gateway.wishes import Door, Mode, Target
from controller.plan import fence_closing
from controller.plan.fence import Speaking, find_speaker
from controller.plan.fence_upstream import BUFFER_TIME, UNCONFIRMED_BYTES
from tests.gateway.stream.outsides import (
    NAME,
    NAMESPACE,
    UID,
    WORD,
    ApiServer,
    JsonObject,
    Line,
    LoopClock,
    OneToken,
    PersonSocket,
    Pipe,
    SpritesApi,
    VirtualLoop,
    Weather,
)

SPAN: Final = 20.0
"""Seconds of bad weather."""
AFTERMATH: Final = 32.0
"""Until everything that failed has been waited out: a tenure, a proof, a drain, and who waited in vain."""
ANSWERED_WITHIN: Final = BUFFER_TIME.total_seconds() + 6
"""Somebody who came speaks by then, or is being told why not: their patience, and one call under way at its end."""
LEFT_WITHIN: Final = timedelta(seconds=25)
SETTINGS: Final = StreamSettings(
    queue_frames=24, ping_every=timedelta(seconds=4), pong_limit=timedelta(seconds=8), idle_limit=timedelta(minutes=5)
)
NO: Final = frozenset(fence_closing.Ending) - {fence_closing.Ending.LEFT, fence_closing.Ending.EXITED}
TARGET: Final = Target(NAMESPACE, NAME)


class Broken(AssertionError):
    """A promise was broken."""


class Counter:
    """What a desk counts."""

    def __init__(self) -> None:
        self.delays = BothDelays()
        self.undrained: list[int] = []
        self.spoke = 0

    def count_ending(self, ending: str) -> None: ...

    def count_speaking(self, former: str, took: timedelta) -> None:
        self.spoke += 1

    def count_undrained(self, unconfirmed_bytes: int) -> None:
        self.undrained.append(unconfirmed_bytes)

    def count_bytes(self, *, sent: int, received: int) -> None: ...

    def count_refused_input(self, cause: str) -> None: ...

    def observe_watch(self, measure: Callable[[], timedelta]) -> None: ...


class Pass:
    """A person's leave, which may be withdrawn."""

    def __init__(self) -> None:
        self._withdrawn = asyncio.Event()

    def withdraw(self) -> None:
        self._withdrawn.set()

    async def next_notice(self) -> Notice:
        await self._withdrawn.wait()
        return Ending(EndCause.WITHDRAWN)

    async def renew(self, text: str) -> Renewal:
        return Renewal.BAD_TOKEN


class Caller:
    """Somebody who came, by one socket."""

    def __init__(self, number: int, place: "Place", mode: Mode, socket: PersonSocket) -> None:
        self.number = number
        self.place = place
        self.mode = mode
        self.socket = socket
        self.leave = Pass()
        self.luck = ""
        self.is_over = False

    @property
    def client(self) -> Client | None:
        room = self.place.desk._rooms.get(UID)
        if room is None:
            return None
        return next((client for client in room.clients if client.socket_id == self.luck), None)

    def note_over(self, _task: object) -> None:
        self.is_over = True

    def types(self, size: int) -> None:
        self.socket.say(WSMsgType.BINARY, f"{self.number:0{WORD}}".encode() * (size // WORD))

    def resizes(self, rows: int) -> None:
        self.socket.say(WSMsgType.TEXT, f'{{"type":"resize","cols":{self.number},"rows":{rows}}}')

    def leaves(self) -> None:
        self.socket.say(WSMsgType.CLOSE, 1000)


class Place:
    """One gateway."""

    def __init__(self, number: int, history: "History") -> None:
        self.number = number
        self.counter = Counter()
        self.is_leaving = False
        self.line = Line(number, history.server, history.weather, history)
        self.tasks: set[asyncio.Task[None]] = set()
        self._drawn = 0
        line, sprites = (
            cast("Any", self.line),
            SpritesApi(self.line, history.server, history.weather, history, history.pipes),
        )
        self.desk = Desk(
            Outside(line, line, line, line, cast("Any", sprites), cast("Any", OneToken())),
            lease_namespace="home",
            namespaces=None,
            streams=SETTINGS,
            metrics=self.counter,
            clock=LoopClock(history.loop),
            luck=history.weather.luck,
            draw=self._draw,
        )
        self.running: asyncio.Task[None]

    def _draw(self) -> str:
        self._drawn += 1
        return f"place{self.number}{self._drawn:06}"

    def peek(self) -> str:
        """Tell what is drawn next."""
        return f"place{self.number}{self._drawn + 1:06}"


class History:
    """
    One history.

    Args:
        seed: Which.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.loop = VirtualLoop()
        self.weather = Weather(Random(seed))
        self.pipes: list[Pipe] = []
        self.lines: list[tuple[float, tuple[object, ...]]] = []
        self.faults: list[str] = []
        self.callers: dict[int, Caller] = {}
        self.order: dict[str, int] = {}
        """The lucks of those who ever had the lock, and in which place."""
        self.newest = -1
        self.late: dict[Pipe, int] = {}
        self.arrived: dict[int, int] = {}
        self.chairs: set[Chair] = set()
        self.hubs: set[Hub] = set()
        self.server: ApiServer
        self.places: list[Place] = []
        self._group: asyncio.TaskGroup

    def play(self) -> None:
        """Play it, and raise `Broken` where a promise was."""
        logging.disable(logging.CRITICAL)
        try:
            self.loop.run_until_complete(self._play())
            left = asyncio.all_tasks(self.loop)
            self._demand(not left, f"tasks are left: {left}")
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        except Exception as error:
            raise Broken(f"{self.render()}\n{error!r}") from error
        finally:
            logging.disable(logging.NOTSET)
            self.loop.close()
        self._judge_end()
        if self.faults:
            raise Broken(self.render())

    def render(self) -> str:
        told = "\n".join(f"{moment - 1_000:10.4f} {' '.join(map(str, words))}" for moment, words in self.lines)
        faults = "\n".join(self.faults)
        return f"{told}\nSeed {self.seed} (again: AGENTTERMINAL_SEED={self.seed}):\n{faults}"

    # --- what is seen outside -----------------------------------------------------------------------------------------

    def note(self, *words: object) -> None:
        self.lines.append((self.loop.time(), words))

    def _demand(self, holds: bool, fault: str) -> None:
        if not holds:
            self.note("FAULT", fault)
            self.faults.append(fault)

    def _remember(self, place: Place) -> None:
        """Keep what must be empty in the end."""
        if (chair := place.desk._chairs.get(UID)) is not None:
            self.chairs.add(chair)
        if (room := place.desk._rooms.get(UID)) is not None:
            self.hubs.add(room.hub)

    def see_lock(self, before: JsonObject | None, after: JsonObject | None) -> None:
        if after is not None:
            self.order.setdefault(_find_luck(after), len(self.order))

    def see_clear(self, line: Line, lock: JsonObject) -> None:
        place = self.places[line.number]
        life = place.desk._incarnations.life
        if life is None or lock["incarnation"] != life.incarnation:
            return
        holder = next((one for one in self.callers.values() if one.luck == _find_luck(lock)), None)
        if holder is not None:
            on_way = sum(pipe.on_way(holder.number) for pipe in self.pipes)
            self.note("clear", holder.number, "by", line.number)
            self._demand(on_way == 0, f"the lock of {holder.number} goes with {on_way} bytes on their way")

    def see_sent(self, pipe: Pipe, sender: int) -> None:
        caller = self.callers[sender]
        client = caller.client
        self._remember(caller.place)
        self.note("sent", sender, "on", pipe.number)
        self._demand(pipe.types, f"{sender} typed through a socket that looks on")
        self._demand(client is not None, f"something was sent for {sender}, who has gone")
        if client is not None:
            self._demand(client.ending not in NO, f"something was sent for {sender}, who was told {client.ending}")
            chair, lock = caller.place.desk._chairs.get(UID), self.server.lock
            is_let = chair is not None and chair.may_type(client)
            self._demand(is_let, f"something was sent for {sender}, whom the fence does not let")
            holds = lock is not None and _find_luck(lock) == caller.luck
            self._demand(holds, f"something was sent for {sender} beside the lock")

    def see_arrived(self, pipe: Pipe, sender: int, size: int) -> None:
        order = self.order.get(self.callers[sender].luck)
        self.note("arrived", sender, size, "on", pipe.number)
        self.arrived[sender] = self.arrived.get(sender, 0) + size
        if order is None:
            self._demand(False, f"{sender} never had the lock, and their input arrived")
        elif order < self.newest:
            self.late[pipe] = self.late.get(pipe, 0) + size
            self._demand(pipe.ended is not None, f"input of {sender} arrived late on a socket that was never cut")
        else:
            self.newest = order

    # --- the course of it ---------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        self.server = ApiServer(self)
        self.places = [Place(number, self) for number in range(2)]
        async with asyncio.TaskGroup() as self._group:
            for place in self.places:
                place.running = self._group.create_task(place.desk.run())
            await asyncio.sleep(0.5)
            self.weather.is_calm = False
            self._plan()
            await asyncio.sleep(SPAN)
            self.note("calm")
            self.weather.is_calm = True
            for pipe in self.pipes:
                pipe.is_slow = pipe.loses_pongs = False
            await asyncio.sleep(AFTERMATH)
            self._judge_calm()
            await self._probe()
            self.note("everybody leaves")
            for caller in self.callers.values():
                caller.leaves()
            await asyncio.gather(*(self._let_go(place) for place in self.places))
        await asyncio.sleep(6)

    def _plan(self) -> None:
        """Draw what happens when."""
        luck = self.weather.luck
        for _ in range(luck.randint(4, 9)):
            self.loop.call_later(luck.uniform(0, SPAN), self._come)
        trouble: Sequence[Callable[[], None]] = (
            self._patch,
            self._patch,
            self._edit,
            self._edit,
            self._stick,
            self._stick,
            self._stick,
            self._break,
            self._strand,
            self._strand,
            self._slow_watch,
            self._slow_watch,
            self._lose_pongs,
            self._hang,
            self._cut_watch,
            self._flood,
            self._withdraw,
            self._lose_touch,
            self._drop_lease,
            self._relaunch,
        )
        for happen in luck.choices(trouble, k=luck.randint(5, 14)):
            self.loop.call_later(luck.choice((luck.uniform(0, SPAN), luck.randrange(int(SPAN)))), happen)
        if luck.random() < 0.25:
            self.loop.call_later(luck.uniform(5, SPAN), self._terminate, luck.choice(self.places))

    def _come(self) -> Caller | None:
        luck = self.weather.luck
        place = luck.choice(self.places)
        mode = luck.choices((Mode.TAKEOVER, Mode.HOLD, Mode.VIEW), (70, 15, 15))[0]
        if place.desk.find_unready() is not None:
            return None
        caller = self._enter(place, mode)
        moment = 0.0
        for _ in range(luck.randint(0, 6)):
            moment += luck.choice((0.0, 0.01, 0.3, 1.0, 2.5))
            if luck.random() < 0.15:
                self.loop.call_later(moment, caller.resizes, luck.randint(1, 60))
            else:
                self.loop.call_later(moment, caller.types, luck.choice((WORD, WORD, 400, 20_000, 36_000)))
        fate = luck.choice(("stays", "stays", "leaves", "vanishes", "stops reading"))
        moment += luck.choice((0.0, 0.5, 3.0))
        if fate == "leaves":
            self.loop.call_later(moment, caller.leaves)
        elif fate == "vanishes":
            self.loop.call_later(moment, caller.socket.abort)
        elif fate == "stops reading":
            self.loop.call_later(luck.uniform(0, moment), caller.socket.stop_reading)
        caller.socket.is_deaf = luck.random() < 0.1
        return caller

    def _enter(self, place: Place, mode: Mode) -> Caller:
        number = len(self.callers) + 1
        socket = PersonSocket(self.weather, lambda *words: self.note(number, *words))
        caller = self.callers[number] = Caller(number, place, mode, socket)
        task = self._group.create_task(self._carry(caller))
        place.tasks.add(task)
        task.add_done_callback(place.tasks.discard)
        task.add_done_callback(caller.note_over)
        return caller

    async def _carry(self, caller: Caller) -> None:
        raw = self.server.raw
        terminal = Terminal(NAME, UID, False, read_spec(raw["spec"]), read_status(raw["status"]), raw)
        request = AttachRequest(
            target=TARGET,
            uid=UID,
            person=Person(f"person-{caller.number}"),
            mode=caller.mode,
            door=Door.OWN,
            columns=caller.number,
            rows=24,
            terminal=terminal,
            leave=caller.leave,
            abort=caller.socket.abort,
        )
        await asyncio.sleep(self.weather.draw_delay())
        caller.luck = caller.place.peek()
        self.note("come", caller.number, "to", caller.place.number, caller.mode)
        if caller.mode is not Mode.VIEW:
            self.loop.call_later(ANSWERED_WITHIN, self._judge_answered, caller)
        await caller.place.desk.attach(request, cast("Any", caller.socket))
        self.note("over", caller.number)

    # Trouble.

    def _patch(self) -> None:
        spec = self.weather.luck.choice(
            (
                {"activeSocketId": "", "attached": False},
                {"activeSocketId": ""},
                {"activeSocketId": "somebody-else", "attached": True},
                {"attached": False},
            )
        )
        self.note("by hand", spec)
        self.server.edit(**spec)

    def _edit(self) -> None:
        self.server.edit(note=self.weather.luck.random())

    def _find_pipe(self) -> Pipe | None:
        open_ones = [pipe for pipe in self.pipes if pipe.ended is None]
        typing = [pipe for pipe in open_ones if pipe.types]
        return self.weather.luck.choice(typing or open_ones) if open_ones else None

    def _stick(self) -> None:
        if (pipe := self._find_pipe()) is not None:
            pipe.stick(seconds := self.weather.luck.choice((0.5, 2.0, 5.0, 7.0)))
            self.note("stuck", pipe.number, seconds)

    def _break(self) -> None:
        if (pipe := self._find_pipe()) is not None:
            self.note("broken", pipe.number)
            pipe.end("the connection was cut")

    def _strand(self) -> None:
        """Cut somebody off with input on its way, as they are being replaced or not."""
        pipe = self._find_pipe()
        if pipe is None or not pipe.types:
            return
        luck = self.weather.luck
        pipe.stick(luck.choice((0.3, 1.0, 2.0, 9.0)))
        self.note("stranded", pipe.number)
        size = luck.choice((WORD, 400, 20_000, 36_000, 36_000))
        for caller in self.callers.values():
            if self._speaks(caller):
                for _ in range(luck.randint(1, 3)):
                    caller.types(size)
        if luck.random() < 0.5:
            self.loop.call_later(luck.choice((0.1, 1.0, 4.0)), pipe.end, "the connection was cut")
        fate = luck.random()
        if fate < 0.6:
            self.loop.call_later(luck.choice((0.05, 0.3, 1.5, 4.0)), self._patch)
        elif fate < 0.9:
            # The list knows more than the watch tells: whoever types is asked about.
            pipe.line.watch_sleeps_until = self.loop.time() + 4.0
            self._edit()

    def _lose_pongs(self) -> None:
        if (pipe := self._find_pipe()) is not None:
            self.note("loses pongs", pipe.number)
            pipe.loses_pongs = True

    def _hang(self) -> None:
        place, seconds = self.weather.luck.choice(self.places), self.weather.luck.choice((1.0, 3.0, 6.0, 9.0))
        self.note("hangs", place.number, seconds)
        place.line.hangs_until = max(place.line.hangs_until, self.loop.time() + seconds)

    def _lose_touch(self) -> None:
        """Let a gateway's tenure end with input on its way, and somebody else take over with proof."""
        speaking = [one for one in self.callers.values() if self._speaks(one)]
        if not speaking:
            return
        place, luck = speaking[0].place, self.weather.luck
        for pipe in self.pipes:
            if pipe.line is place.line and pipe.types and pipe.ended is None:
                pipe.stick(12.0)
        speaking[0].types(luck.choice((WORD, 20_000)))
        self.note("loses touch", place.number)
        place.line.hangs_until = self.loop.time() + luck.choice((6.0, 9.0, 12.0))
        other = self.places[1 - place.number]
        if other.desk.find_unready() is None:
            self._enter(other, Mode.TAKEOVER).types(WORD)

    def _drop_lease(self) -> None:
        """Delete a living gateway's Lease by hand."""
        if self.server.leases:
            name = self.weather.luck.choice(list(self.server.leases))
            self.note("deleted by hand", name)
            del self.server.leases[name]

    def _relaunch(self) -> None:
        """Let the operator record another session."""
        self.server.relaunch()
        self.note("another session", self.server.session)

    def _slow_watch(self) -> None:
        """Let a list, or an answer, know more than the watch tells."""
        self.weather.luck.choice(self.places).line.watch_sleeps_until = self.loop.time() + 4.0

    def _cut_watch(self) -> None:
        self.weather.luck.choice(self.places).line.cut_watch()

    def _flood(self) -> None:
        for pipe in self.pipes:
            for _ in range(40):
                pipe.say(b"x")

    def _withdraw(self) -> None:
        here = [caller for caller in self.callers.values() if not caller.is_over]
        if here:
            self.weather.luck.choice(here).leave.withdraw()

    def _terminate(self, place: Place) -> None:
        if not place.is_leaving:
            task = self._group.create_task(self._let_go(place))
            place.tasks.add(task)

    async def _let_go(self, place: Place) -> None:
        """End a gateway as SIGTERM does."""
        if place.is_leaving:
            return
        place.is_leaving = True
        self.note("leaves", place.number)
        await place.desk.leave(within=LEFT_WITHIN)
        self.note("has left", place.number, len(place.desk._chairs))
        me = asyncio.current_task()
        for task in list(place.tasks):
            if task is not me:
                task.cancel()
        place.running.cancel()
        if self.weather.is_calm:
            self._demand(not place.desk._chairs, f"gateway {place.number} has left with {place.desk._chairs}")

    async def _probe(self) -> None:
        """Once it is calm, whoever takes over speaks, at each gateway that is left."""
        for place in self.places:
            if place.is_leaving:
                continue
            self._demand(place.desk.find_unready() is None, f"{place.desk.find_unready()}")
            caller = self._enter(place, Mode.TAKEOVER)
            caller.types(WORD)
            for _ in range(40):
                await asyncio.sleep(0.5)
                if self.arrived.get(caller.number, 0) >= WORD + 20:
                    break
            else:
                self._demand(False, f"{caller.number} came when it was calm, and their input does not arrive")

    # --- judgement ----------------------------------------------------------------------------------------------------

    def _judge_answered(self, caller: Caller) -> None:
        client = caller.client
        self._remember(caller.place)
        if caller.is_over or client is None or client.ending is not None:
            return
        self._demand(self._speaks(caller), f"{caller.number} neither speaks nor was told why not")

    def _speaks(self, caller: Caller) -> bool:
        """Tell whether somebody speaks, or is being asked whether they still may."""
        chair, client = caller.place.desk._chairs.get(UID), caller.client
        key = None if chair is None or client is None else chair.find_key(client)
        speaker = None if chair is None or key is None else find_speaker(chair.seat, key)
        return speaker is not None and (speaker.upstream or isinstance(speaker.phase, Speaking))

    def _judge_calm(self) -> None:
        """Once it has been calm for long, who is still there either looks on or is the one who may type."""
        here = [one for one in self.callers.values() if not one.is_over and one.mode is not Mode.VIEW]
        for caller in here:
            chair, client = caller.place.desk._chairs.get(UID), caller.client
            may = chair is not None and client is not None and chair.may_type(client)
            is_ending = client is not None and client.ending is not None
            self._demand(may or is_ending, f"{caller.number} is still here and may not type")
        self._demand(len(here) <= 1, f"{len(here)} may type")

    def _judge_end(self) -> None:
        for place in self.places:
            desk = place.desk
            self._demand(not desk._rooms or place.is_leaving, f"rooms are left: {desk._rooms}")
            cut = sum(pipe.most_undrained for pipe in self.pipes if pipe.line is place.line and pipe.types)
            counted = sum(place.counter.undrained)
            self._demand(counted <= cut, f"{counted} bytes were counted as undrained, and {cut} were")
            late = sum(size for pipe, size in self.late.items() if pipe.line is place.line)
            self._demand(late <= counted, f"{late} bytes were late, and {counted} were counted as undrained")
        for pipe, size in self.late.items():
            self._demand(size <= UNCONFIRMED_BYTES, f"{size} bytes were late on {pipe.number}")
        for chair in self.chairs:
            here = (chair._guests, chair._keys, chair._timers, chair._cut, chair._events)
            self._demand(not any(here), f"a chair has kept {here}")
        for hub in self.hubs:
            queues = (hub._backlogs, hub._waits, hub._backlog_ends, hub._refused)
            kept = (hub._clients, hub._fanouts, hub._upstreams, hub._tasks, *queues)
            self._demand(not any(kept), f"a hub has kept {kept}")
        left = [pipe.number for pipe in self.pipes if pipe.ended is None]
        self._demand(not left, f"upstream sockets are left open: {left}")
        if not all(caller.is_over for caller in self.callers.values()):
            self._demand(False, "somebody is still being served")


def _find_luck(lock: JsonObject) -> str:
    return str(lock["socketId"]).rpartition(".")[2]

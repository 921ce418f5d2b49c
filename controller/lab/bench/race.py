"""
The race: two gateways, people who take terminals over from each other as fast as they can, and everything that fails.

Problem: that only one socket speaks is promised by a protocol between processes that may be late, cut off, stopped or
dead; a model of it is searched elsewhere, but a model has no kernel, no sockets and no API server. Promise: two real
gateways at a real API server, each on lines that fail as told; what the sessions received is judged by `race_judge`
with nothing of what a gateway says about itself. A fault that did not take hold is told, never passed over.

Source: docs/fence.md, "How it is tried".
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import reduce
from operator import add
from random import Random
from typing import Final, Self

import aiohttp
import orjson

from controller.api.names import GROUP, PLURAL, VERSION
from controller.clock import ElapsedClock
from controller.lab.bench.client import ApiClient
from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.race_gateways import RACER, Ground, RacingGateway
from controller.lab.bench.race_judge import TENURE, Verdict, judge
from controller.lab.bench.race_locks import Kind, match
from controller.lab.bench.race_people import Corner, Pace
from controller.lab.bench.race_watching import Hand, InputReader, LockWatcher

READ_EVERY: Final = timedelta(milliseconds=300)
WITHIN: Final = timedelta(seconds=60)
"""For anything that is awaited: more than twice what a takeover from a dead replica may take."""
SETTLED_WITHIN: Final = timedelta(seconds=5)
"""For locks to come to rest where nobody new comes."""

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
LEASES: Final = "/apis/coordination.k8s.io/v1"
LEASE_PREFIX: Final = "atgw-"
RIGHTS: Final = ("attach", "takeover")

POLL_INTERVAL: Final = timedelta(milliseconds=50)

SLOW: Final = timedelta(seconds=0.4)
"""Each way: less than a drain waits, and more than a takeover takes without one."""
BLINK: Final = timedelta(seconds=1.2)
"""Less than a tenure: whoever stands still for so long lives."""
WATCH_LATE: Final = timedelta(seconds=0.8)
HANG: Final = timedelta(seconds=2)
"""Less than a tenure."""
ON_THE_WAY_BYTES: Final = 8 * 1024
"""More than pings and the heads of requests come to, and less than one socket may leave unconfirmed."""


class Fault(StrEnum):
    """What fails."""

    WATCHES = "watches are cut and late"
    HANG = "the API server hangs"
    LATE_LOCK = "a lock lands late"
    SLOW = "the way to the sprites is slow"
    BLINK = "a gateway blinks"
    CUT_OFF = "a gateway is cut off"
    STOP = "a gateway is stopped"
    KILL = "a gateway is killed"


@dataclass(frozen=True, slots=True)
class RaceSize:
    """
    How long it goes on.

    Args:
        terminals: Raced for at the same time.
        inputs: Until so many were received, and every fault was played.
        faults: What fails, in this order.
        pace: How fast people are.
        patch_every: Between two patches by hand, at least.
        calm: Before each fault.
        within: For all of it.
    """

    terminals: int
    inputs: int
    faults: Sequence[Fault]
    pace: Pace
    patch_every: timedelta
    calm: timedelta
    within: timedelta


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What came of a race.

    Args:
        verdict: The judge's.
        missing: Inputs that the log had forgotten before they were read.
        unmatched: Locks that no person explains.
        stuck: People who were neither let speak nor sent away.
        locks: How many locks were written.
        takeovers: How long people asked until they spoke, by whom they took the terminal from.
        successions: How often somebody held a terminal after a gateway that was proven dead.
        faults: How often each kind of fault took hold.
        writes: Of the gateways to the terminals.
        reasons: Why people were sent away who never spoke.
        odd: What should not have been, one by one, each in a line: nothing where all went well.
    """

    verdict: Verdict
    missing: int
    unmatched: int
    stuck: int
    locks: int
    takeovers: Mapping[Kind, Sequence[timedelta]]
    successions: int
    faults: Mapping[str, int]
    writes: int
    reasons: Mapping[str, int]
    odd: Sequence[str]


class Race:
    """
    One race; use it as `async with`, then `run` it.

    Args:
        ground: Where; an operator runs there.
        api: The API server, as an administrator.
        size: How long.
        clock: For moments.
        luck: For who does what next; with the same seed the same is tried.
    """

    def __init__(self, ground: Ground, api: ApiClient, size: RaceSize, clock: ElapsedClock, luck: Random) -> None:
        self._ground = ground
        self._api = api
        self._size = size
        self._clock = clock
        self._luck = luck
        self._path = f"/apis/{GROUP}/{VERSION}/namespaces/{ground.namespace}/{PLURAL}"
        self._names = [f"race-{number}" for number in range(size.terminals)]
        self._first = RacingGateway("a", ground, clock)
        self._second = RacingGateway("b", ground, clock)
        self._gateways = (self._first, self._second)
        self._locks = LockWatcher(api, self._path, clock)
        self._hand = Hand(api, self._path, self._names, luck)
        self._still = asyncio.Lock()
        """Whoever has it keeps the hand still."""
        self._corners: dict[str, list[Corner]] = {}
        self._dead: set[str] = set()
        self._http: aiohttp.ClientSession
        self._inputs: InputReader
        self._awaited: list[str] = []
        """What is waited for, or was in vain."""
        self.told = "it is prepared"
        """Where it stands, for people."""

    async def __aenter__(self) -> Self:
        """Open what asks."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        self._inputs = InputReader(self._http, self._ground.sprites_url, {name: name for name in self._names})
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self._http.close()

    @property
    def received(self) -> int:
        """How many inputs were received so far."""
        return self._inputs.gathered.inputs

    async def run(self) -> Outcome:
        """
        Run it, and judge.

        Raises:
            BenchFailed: It did not come about in time, or a fault did not take hold.
        """
        try:
            async with asyncio.timeout(self._size.within.total_seconds()):
                await self._prepare()
                async with self._running():
                    await self._race()
                return self._judge()
        except TimeoutError:
            awaited = f", waiting for {' and '.join(self._awaited)}" if self._awaited else ""
            raise BenchFailed(
                f"The race was not over in {self._size.within.total_seconds():g} s: {self.told}{awaited},"
                f" {self.received:,} inputs. {self._tell_people()}"
            ) from None

    # --- before -------------------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        await self._grant()
        for name in self._names:
            await self._make_terminal(name)
        await self._until_told(self._are_live, "every terminal to have its session")
        await self._inputs.begin()
        await self._locks.begin()

    async def _grant(self) -> None:
        """Let the person of the ground attach and take over."""
        roles = f"{RBAC}/namespaces/{self._ground.namespace}"
        rule = {
            "apiGroups": [GROUP],
            "resources": [f"{PLURAL}/{right}" for right in RIGHTS],
            "verbs": ["create"],
        }
        subject = {"kind": "ServiceAccount", "name": RACER, "namespace": self._ground.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": RACER}
        metadata = {"name": RACER}
        await self._api.request("POST", f"{roles}/roles", {"metadata": metadata, "rules": [rule]})
        binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
        await self._api.request("POST", f"{roles}/rolebindings", binding)

    async def _make_terminal(self, name: str) -> None:
        lab = f"{self._ground.sprites_url}/_lab/sprites"
        wanted = {"names": [name], "sessions": {"argv": ["bash"], "count": 1}}
        async with self._http.post(lab, data=orjson.dumps(wanted)) as answer:
            session = orjson.loads(await answer.read())["sprites"][0]["sessions"][0]["id"]
        async with self._http.put(f"{lab}/{name}/state", data=b'{"status":"running"}') as answer:
            await answer.read()
        spec = {"spriteName": name, "sessionId": session, "tokenSecretRef": {"name": self._ground.secret}}
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "AgentTerminal", "metadata": {"name": name}, "spec": spec}
        await self._api.request("POST", self._path, body)

    async def _are_live(self) -> bool:
        terminals = orjson.loads(await self._api.request("GET", self._path))["items"]
        return all(
            "id" in terminal["status"].get("session", {}) and terminal["metadata"].get("finalizers")
            for terminal in terminals
            if terminal["metadata"]["name"] in self._names
        )

    # --- the race -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Run both gateways during the body; they start side by side."""
        async with self._first, self._second:
            try:
                await asyncio.gather(*(gateway.start() for gateway in self._gateways))
                yield
            finally:
                await asyncio.gather(*(gateway.stop() for gateway in self._gateways))

    async def _race(self) -> None:
        async with asyncio.TaskGroup() as group:
            patching = group.create_task(self._keep_patching(), name="hand")
            beside = [
                group.create_task(self._locks.run(), name="locks"),
                group.create_task(self._keep_reading(), name="inputs"),
            ]
            for gateway in self._gateways:
                corners = [self._build_corner(gateway, name, group) for name in self._names]
                self._corners[gateway.name] = corners
                beside += [group.create_task(corner.run()) for corner in corners]
            await self._play()
            self.told = "everybody leaves"
            patching.cancel()
            await self._see_leave(*self._find_corners())
            await self._bounded(self._locks.wait_until_free(self._names), "the last lock to be cleared")
            for task in beside:
                task.cancel()
        await self._bounded(self._read_on(), "the log of input to be read to its end")
        await self._note_dead()

    async def _read_on(self) -> None:
        while await self._inputs.read():
            pass

    def _build_corner(self, gateway: RacingGateway, terminal: str, group: asyncio.TaskGroup) -> Corner:
        door = f"/v1/namespaces/{self._ground.namespace}/agentterminals/{terminal}/attach?takeover=true"
        return Corner(
            gateway.name,
            terminal,
            find_url=lambda: f"{gateway.url}{door}",
            token=self._ground.person_token,
            http=self._http,
            group=group,
            pace=self._size.pace,
            luck=self._luck,
            clock=self._clock,
        )

    def _find_corners(self, *gateways: RacingGateway) -> list[Corner]:
        """Give the corners of some gateways, or of all."""
        return [corner for gateway in gateways or self._gateways for corner in self._corners[gateway.name]]

    def _count_hung(self) -> int:
        return sum(gateway.line.counts.hung for gateway in self._gateways)

    def _count_spoken(self) -> int:
        return sum(corner.spoken for corner in self._find_corners())

    def _let_come(self, *gateways: RacingGateway) -> None:
        for corner in self._find_corners(*gateways):
            corner.coming.set()

    async def _keep_patching(self) -> None:
        """Patch again and again, but let people come to speak between: on a slow machine nobody else would."""
        while True:
            spoken = self._count_spoken()
            await self._clock.sleep(self._size.patch_every)
            while self._count_spoken() == spoken:
                await self._clock.sleep(POLL_INTERVAL)
            async with self._still:
                await self._hand.patch()

    async def _keep_reading(self) -> None:
        while True:
            await self._inputs.read()
            await self._note_dead()
            await self._clock.sleep(READ_EVERY)

    async def _note_dead(self) -> None:
        """See whose Leases were broken; they stay for ten minutes."""
        path = f"{LEASES}/namespaces/{self._ground.lease_namespace}/leases"
        for lease in orjson.loads(await self._api.request("GET", path))["items"]:
            name = lease["metadata"]["name"]
            if name.startswith(LEASE_PREFIX) and not lease["spec"].get("holderIdentity"):
                self._dead.add(name.removeprefix(LEASE_PREFIX))

    # --- what fails ---------------------------------------------------------------------------------------------------

    async def _play(self) -> None:
        """Play every fault, again and again until enough was received."""
        plays: Mapping[Fault, Callable[[], Awaitable[None]]] = {
            Fault.WATCHES: self._spoil_watches,
            Fault.HANG: self._hang,
            Fault.LATE_LOCK: self._land_late,
            Fault.SLOW: self._slow_down,
            Fault.BLINK: self._blink,
            Fault.CUT_OFF: self._cut_off,
            Fault.STOP: self._stop,
            Fault.KILL: self._kill,
        }
        self._let_come()
        await self._see_all_speak()
        while True:
            for fault in self._size.faults:
                self.told = "nothing fails"
                await self._clock.sleep(self._size.calm)
                self.told = fault.value
                await plays[fault]()
            self.told = "nothing fails any more"
            await self._see_all_speak()
            await self._until(lambda: self._hand.has_done_all, "every patch by hand")
            if self.received >= self._size.inputs:
                return

    async def _see_all_speak(self) -> None:
        """Wait until somebody came to speak at every terminal through every gateway."""
        before = {corner: corner.spoken for corner in self._find_corners()}
        await self._until(
            lambda: all(corner.spoken > spoken for corner, spoken in before.items()),
            "somebody to speak through each gateway",
        )
        for gateway in self._gateways:
            gateway.check()

    async def _spoil_watches(self) -> None:
        async with self._first.line.cutting_watches(), self._second.line.delaying_watches(WATCH_LATE):
            cut, late = self._first.line.counts, self._second.line.counts
            before = cut.cut_watches, late.delayed
            await self._clock.sleep(2 * WATCH_LATE)
            await self._until(lambda: cut.cut_watches > before[0] and late.delayed > before[1], "the watches to be hit")

    async def _hang(self) -> None:
        async with self._first.line.hanging(), self._second.line.hanging():
            before = self._count_hung()
            await self._clock.sleep(HANG)
            await self._until(lambda: self._count_hung() > before, "the API server to be asked in vain")

    async def _land_late(self) -> None:
        """
        Let locks land when somebody newer has spoken and left.

        The old one's write finds the lock free: only the generation that it tests tells it that its time is over.
        """
        async with self._still:
            await self._see_leave(*self._find_corners())
            await self._bounded(self._locks.wait_until_free(self._names), "everybody to leave")
            kept, line = self._first.line.counts.kept_locks, self._first.line
            async with line.keeping_locks():
                self._let_come(self._first)
                await self._until(lambda: line.counts.kept_locks >= kept + len(self._names), "locks to be on their way")
                self._let_come(self._second)
                await self._wait_for_successors(self._second)
                await self._see_leave(*self._find_corners(self._second))
                await self._bounded(self._locks.wait_until_free(self._names), "the newer ones to leave")
        self._let_come()

    async def _slow_down(self) -> None:
        """Take over from a gateway that speaks everywhere and whose input takes long to arrive."""
        async with self._speaking(self._first):
            with self._first.wire.slowed_down(SLOW):
                await self._clock.sleep(SLOW)
                self._let_come(self._second)
                await self._wait_for_successors(self._second)
        self._let_come()

    async def _blink(self) -> None:
        async with self._second.pausing():
            await self._clock.sleep(BLINK)

    async def _cut_off(self) -> None:
        """Cut a gateway that speaks everywhere, and lives, off from the API server until others have proven it out."""
        ended = self._second.ended_tenures
        async with self._speaking(self._second), self._second.line.hanging():
            self._let_come()
            await self._wait_for_successors(self._first)
            # Only for a while: that it ended is told by the outcome, and whether nothing late was let through as well.
            until = self._clock.elapsed() + 2 * TENURE
            while self._second.ended_tenures == ended and self._clock.elapsed() < until:
                await self._clock.sleep(POLL_INTERVAL)

    async def _stop(self) -> None:
        """Stop a gateway that speaks everywhere until others have proven it out and speak."""
        async with self._speaking(self._first), self._first.pausing():
            self._let_come()
            await self._wait_for_successors(self._second)

    async def _kill(self) -> None:
        """Kill a gateway that speaks everywhere with input on its way, which arrives after its successors'."""
        async with self._speaking(self._first):
            wire = self._first.wire
            wire.stop()
            await self._until(lambda: wire.kept_bytes > ON_THE_WAY_BYTES, "input to be on its way")
            await self._first.kill()
            self._let_come(self._second)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._first.start())
                await self._wait_for_successors(self._second)
                before = self.received
                await self._until(lambda: self.received > before, "the successors to type")
            wire.flow()
        self._let_come(self._first)

    @asynccontextmanager
    async def _speaking(self, gateway: RacingGateway) -> AsyncIterator[None]:
        """Let a gateway hold every lock as the body begins; nobody patches, and nobody new comes by then."""
        async with self._still:
            for other in self._find_corners(*(set(self._gateways) - {gateway})):
                await self._bounded(other.rest(), f"whoever asks last through {other.gateway} to have an answer")
            await self._bounded(self._settle(gateway), f"{gateway.name} to hold all")
            yield

    async def _settle(self, gateway: RacingGateway) -> None:
        """
        Let nobody come to a gateway any more once it holds every lock.

        A patch by hand from just before may still throw somebody out after the last one came: then they come again.
        """
        while True:
            self._let_come(gateway)
            await self._locks.wait_until_holding(gateway, self._names)
            for corner in self._find_corners(gateway):
                await corner.rest()
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLED_WITHIN.total_seconds()):
                    return await self._locks.wait_until_holding(gateway, self._names)

    async def _see_leave(self, *corners: Corner) -> None:
        for corner in corners:
            await self._bounded(corner.leave(), f"everybody to leave through {corner.gateway}")

    async def _wait_for_successors(self, gateway: RacingGateway) -> None:
        """Wait until those who come through a gateway hold everything, and know it."""
        before = {corner: corner.spoken for corner in self._find_corners(gateway)}
        await self._until(
            lambda: all(corner.spoken > spoken for corner, spoken in before.items()),
            f"somebody to speak everywhere through {gateway.name}",
        )
        await self._bounded(
            self._locks.wait_until_holding(gateway, self._names), f"{gateway.name} to take everything over"
        )

    async def _until(self, is_true: Callable[[], bool], what: str) -> None:
        async def ask() -> bool:
            return is_true()

        await self._until_told(ask, what)

    async def _until_told(self, ask: Callable[[], Awaitable[bool]], what: str) -> None:
        async def look() -> None:
            while not await ask():
                await self._clock.sleep(POLL_INTERVAL)

        await self._bounded(look(), what)

    async def _bounded(self, waiting: Awaitable[None], what: str) -> None:
        self._awaited.append(what)
        try:
            async with asyncio.timeout(WITHIN.total_seconds()):
                await waiting
        except TimeoutError:
            raise BenchFailed(
                f"Waited {WITHIN.total_seconds():g} s in vain for {what} ({self.told}). {self._tell_people()}"
            ) from None
        # Not in a `finally`: where the whole race is over time, what was waited for then is told.
        self._awaited.remove(what)

    def _tell_people(self) -> str:
        corners = self._find_corners() if self._corners else []
        return "; ".join(f"{one.gateway}: {one.spoken} spoke, {dict(one.refused + one.reasons)}" for one in corners)

    # --- after --------------------------------------------------------------------------------------------------------

    def _judge(self) -> Outcome:
        gathered, corners = self._inputs.gathered, self._find_corners()
        places = {name: gateway.name for gateway in self._gateways for name in gateway.incarnations}
        turns = [turn for corner in corners for turn in corner.turns]
        matched = match(self._locks.book.locks, turns, places, self._dead)
        hurts = {name: hurt for gateway in self._gateways for name, hurt in gateway.find_hurts(self._dead).items()}
        verdicts = [judge(runs, matched.epochs, hurts) for runs in gathered.runs.values()]
        counts = [gateway.line.counts for gateway in self._gateways]
        verdict, stuck = reduce(add, verdicts, Verdict()), [turn for corner in corners for turn in corner.stuck]
        return Outcome(
            verdict=verdict,
            missing=gathered.missing,
            unmatched=len(matched.unmatched),
            stuck=len(stuck),
            locks=self._locks.book.count,
            takeovers=matched.takeovers,
            successions=matched.successions,
            faults={
                "watches_cut": sum(one.cut_watches for one in counts),
                "watches_late": sum(one.delayed for one in counts),
                "requests_hung": sum(one.hung for one in counts),
                "locks_late": sum(one.kept_locks for one in counts),
                "slowed": sum(gateway.wire.slowed for gateway in self._gateways),
                "pauses": sum(gateway.pauses for gateway in self._gateways),
                "kills": sum(gateway.kills for gateway in self._gateways),
                "tenures_ended": sum(gateway.ended_tenures for gateway in self._gateways),
                "proven_dead": len(self._dead),
                "revoked": self._hand.revoked,
                "renamed": self._hand.renamed,
                "edited": self._hand.edited,
            },
            writes=sum(one.claims + one.locks for one in counts),
            reasons=dict(sum((corner.reasons for corner in corners), Counter[str]())),
            odd=[*(f"stuck: {turn}" for turn in stuck), *map(str, (*matched.unmatched, *verdict.odd)), *gathered.gaps],
        )

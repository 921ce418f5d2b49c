"""
The scenarios: what is done, and which figures come of it.

Every figure is one flat key with its unit in its name. The keys are named after the full size and keep their names in
others; `objects`, `launches` and `many_objects` say how many there were.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any, Final

from controller.clock import ElapsedClock
from controller.lab.bench.follower import Follower
from controller.lab.bench.kernel import read_busy, read_cpu, read_peak_mib, read_resident_mib
from controller.lab.bench.loads import find_percentile, send_all, send_at_pace
from controller.lab.bench.meter import DISTURBED, Cost, Meter
from controller.lab.bench.race import Race
from controller.lab.bench.race_figures import build_race_size, measure_race
from controller.lab.bench.sizes import KILLS_PER_SECOND, Scenario, Size
from controller.lab.bench.sprites import SessionPlace
from controller.lab.bench.stage import SECRET, GatewayPlace, Role, Stage
from controller.lab.bench.streams import (
    PERSON,
    READ_DIRECTLY,
    Crowd,
    grant_attaching,
    measure_memory,
    measure_stretch,
    read_place,
)
from controller.lab.bench.streams_cores import keep_to, keeping_to, split_cores
from controller.lab.bench.streams_source import StreamSource
from controller.lab.binaries import Progress

Figures = dict[str, float]

CHECK_INTERVAL: Final = timedelta(seconds=1)
WARM_UP: Final = timedelta(seconds=2)
"""After the operator's first list: as long as the others were given."""
QUIET_LOOK: Final = timedelta(seconds=2)

RACE_SEED: Final = 5
"""For who is patched and how long somebody stays; what meets what is left to the machine."""

HOLD_SPRITES: Final = 10
HOLD_GROUPS: Final = (("one", HOLD_SPRITES, HOLD_SPRITES), ("ten", 10 * HOLD_SPRITES, 5 * HOLD_SPRITES))
"""What a group is called, and how many terminals it has in all its sprites, and how many of them are held."""
HELD: Final[Mapping[str, Any]] = {
    "attached": True,
    "holdWanted": True,
    "hold": {"expireSeconds": 30, "refreshSeconds": 5},
}
HOLD_CALLS: Final = ("exec_create_hold", "exec_list_check", "exec_list_hold")
"""The calls that a held sprite costs, as the emulator names them: route and cause."""
HOLD_WARM_UP: Final = timedelta(seconds=6)
"""One beat: those who were created one after the other fall into step."""

ROOM_FOR_ALL: Final[Mapping[str, str]] = {
    "GATEWAY_PERSON_SOCKETS": "1000",
    "GATEWAY_ADDRESS_REQUESTS_PER_SECOND": "1000",
}
"""All come from one address, and are one person."""
WRITES_FOLLOW: Final = timedelta(seconds=1)
"""Nobody wrote for so long: the operator tells of people within less."""
WRITES_LOOKS: Final = 30

PATIENCE_BASE: Final = timedelta(seconds=60)
PATIENCE_PER_OBJECT: Final = timedelta(milliseconds=200)
"""Ten times what the slowest of those measured needed: whoever is slower than this has stopped."""


class Bench:
    """
    The scenarios on one stage. Each that creates objects begins with a fresh operator, whose memory is of it alone.

    Args:
        stage: Where.
        size: How much.
        progress: Where it is told what happens.
        clock: Both clocks.
        quiet_within: How long to wait before each measurement for others to leave the cores alone.
    """

    def __init__(
        self,
        stage: Stage,
        size: Size,
        progress: Progress,
        clock: ElapsedClock,
        *,
        quiet_within: timedelta = timedelta(),
    ) -> None:
        self._stage = stage
        self._size = size
        self._progress = progress
        self._clock = clock
        self._quiet_within = quiet_within
        self._follower = Follower(stage.api, clock)
        self._places: dict[str, SessionPlace] = {}
        """The sessions that the living objects were to adopt."""
        self._life_writes = 0

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Watch the objects, and the processes, during the body."""
        async with self._follower.following():
            yield

    async def adopt(self) -> Figures:
        """A thousand objects adopt sessions on a hundred sprites."""
        size = self._size
        await self._start_operator()
        places = await self._stage.sprites.create("adopt", sprites=size.sprites, sessions=size.objects)
        self._places = {f"adopt-{number:05d}": place for number, place in enumerate(places)}
        ready, p50, p99, creates, cost = await self._create(Scenario.ADOPT, _build_adopters(self._places))
        self._life_writes = cost.operator_writes
        pid = self._stage.operator_pid
        return {
            "ready_1000_s": ready,
            "creates_1000_s": creates,
            "ready_1000_p50_s": p50,
            "ready_1000_p99_s": p99,
            **_tell_cpu(cost, "1000"),
            "operator_peak_mib": read_peak_mib(pid),
            "writes_to_ready": cost.operator_writes / size.objects,
            "writes_refused_1000": cost.counts.refused,
            "events_1000": cost.counts.events,
            "sprites_calls_1000": cost.calls_total,
            "sprites_calls_per_sprite": cost.calls_total / size.sprites,
            "watches_closed_1000": cost.counts.watches_closed,
            **self._tell_others(Scenario.ADOPT, cost),
        }

    async def rest(self) -> Figures:
        """Nothing happens for two minutes."""
        meter = await self._begin(Scenario.REST)
        seconds = self._size.rest.total_seconds()
        async with self._showing(lambda: f"rest: nothing is done for {seconds:g} s"):
            await self._clock.sleep(self._size.rest)
        cost = await meter.stop()
        return {
            "idle_s": cost.wall.total_seconds(),
            "idle_writes": cost.operator_writes,
            "events_idle": cost.counts.events,
            "idle_sprites_calls": cost.calls_total,
            "idle_cpu_percent": 100 * (cost.cpu[Role.OPERATOR] / cost.wall),
            "idle_resident_mib": read_resident_mib(self._stage.operator_pid),
            **self._tell_others(Scenario.REST, cost),
        }

    async def kill(self) -> Figures:
        """`terminated` is patched onto two hundred objects, twenty a second."""
        chosen = list(self._places)[: self._size.kills]
        names = frozenset(chosen)
        meter = await self._begin(Scenario.KILL)
        began, began_time = self._clock.monotonic(), self._clock.now()
        async with self._showing(lambda: f"kill: {len(self._follower.terminated):,} of {len(names):,} proven dead"):
            asked = await send_at_pace(
                chosen, self._stage.api.terminate, per_second=KILLS_PER_SECOND, clock=self._clock
            )
            await self._follower.wait_for(self._follower.terminated, names, within=_judge_patience(len(names)))
            await self._clock.sleep(self._size.settle)
        cost = await meter.stop()
        arrivals = await self._stage.sprites.list_kills()
        arrived = {name: arrivals[self._places[name]] for name in chosen}
        from_sent = [arrived[name] - asked[name].sent for name in chosen]
        from_answered = [arrived[name] - asked[name].answered for name in chosen]
        proven = [(self._follower.terminated[name] - began) - (asked[name].sent - began_time) for name in chosen]
        self._life_writes += cost.operator_writes
        return {
            "patch_to_kill_p50_s": _at(from_sent, 50),
            "patch_to_kill_p99_s": _at(from_sent, 99),
            "patch_to_kill_max_s": _at(from_sent, 100),
            "answer_to_kill_p50_s": _at(from_answered, 50),
            "answer_to_kill_p99_s": _at(from_answered, 99),
            "patch_to_terminated_p50_s": _at(proven, 50),
            "patch_to_terminated_p99_s": _at(proven, 99),
            "writes_per_kill": cost.operator_writes / len(names),
            "events_kill": cost.counts.events,
            "sprites_calls_per_kill": cost.calls_total / len(names),
            "operator_cpu_per_kill_s": cost.cpu[Role.OPERATOR].total_seconds() / len(names),
            **self._tell_others(Scenario.KILL, cost),
        }

    async def delete(self) -> Figures:
        """All objects are deleted, those whose sessions live and those that were terminated."""
        names = frozenset(self._places)
        meter = await self._begin(Scenario.DELETE)
        began = self._clock.monotonic()
        async with self._showing(lambda: f"delete: {len(self._follower.gone):,} of {len(names):,} gone"):
            await send_all(self._places, self._stage.api.delete_terminal)
            sent = self._clock.monotonic() - began
            last = await self._follower.wait_for(self._follower.gone, names, within=_judge_patience(len(names)))
            await self._clock.sleep(self._size.settle)
        cost = await meter.stop()
        self._life_writes += cost.operator_writes
        return {
            "delete_1000_s": (last - began).total_seconds(),
            "deletes_sent_1000_s": sent.total_seconds(),
            "operator_cpu_delete_1000_s": cost.cpu[Role.OPERATOR].total_seconds(),
            "operator_peak_mib": read_peak_mib(self._stage.operator_pid),
            "writes_per_delete": cost.operator_writes / len(names),
            "writes_per_life": self._life_writes / len(names),
            "events_delete": cost.counts.events,
            "sprites_calls_delete_1000": cost.calls_total,
            **self._tell_others(Scenario.DELETE, cost),
        }

    async def launch(self) -> Figures:
        """A thousand objects launch sessions."""
        size = self._size
        await self._start_operator()
        sprites = await self._stage.sprites.create_empty("launch", sprites=size.launch_sprites)
        specs = {
            f"launch-{number:05d}": _build_spec(sprites[number % len(sprites)], launch={"command": ["bash", "-l"]})
            for number in range(size.launches)
        }
        ready, p50, p99, _, cost = await self._create(Scenario.LAUNCH, specs)
        return {
            "launches_1000_s": ready,
            "launches_1000_p50_s": p50,
            "launches_1000_p99_s": p99,
            "operator_cpu_launches_1000_s": cost.cpu[Role.OPERATOR].total_seconds(),
            "emulator_cpu_launches_1000_s": cost.cpu[Role.EMULATOR].total_seconds(),
            "launches_peak_mib": read_peak_mib(self._stage.operator_pid),
            "writes_to_launched": cost.operator_writes / size.launches,
            "events_launches": cost.counts.events,
            "sprites_calls_per_launch": cost.calls_total / size.launches,
            **self._tell_others(Scenario.LAUNCH, cost),
        }

    async def hold(self) -> Figures:
        """Ten sprites are held for one terminal each, and ten for five of ten each."""
        await self._start_operator()
        specs: dict[str, Mapping[str, Any]] = {}
        sprites: set[str] = set()
        for group, terminals, held in HOLD_GROUPS:
            places = await self._stage.sprites.create(f"hold-{group}", sprites=HOLD_SPRITES, sessions=terminals)
            sprites |= {place.sprite for place in places}
            for number, place in enumerate(places):
                # Neighbours are in different sprites, so the first of them are equally many in each.
                wish = HELD if number < held else {}
                specs[f"hold-{group}-{number:03d}"] = _build_spec(place.sprite, sessionId=place.session, **wish)
        await self._create(Scenario.HOLD, specs)
        await self._clock.sleep(HOLD_WARM_UP)
        meter = await self._begin(Scenario.HOLD)
        seconds = self._size.hold.total_seconds()
        async with self._showing(lambda: f"hold: sprites are held for {seconds:g} s"):
            await self._clock.sleep(self._size.hold)
        cost = await meter.stop()
        lab = self._stage.sprites
        calls = {group: await lab.count_calls_of(f"hold-{group}-") for group, _, _ in HOLD_GROUPS}
        figures: Figures = {
            "hold_s": cost.wall.total_seconds(),
            "hold_tasks": await lab.count_tasks(sprites),
            "hold_writes": cost.operator_writes,
            "hold_metadata_calls": cost.calls.get("sprites.list", 0),
            "operator_cpu_hold_s": cost.cpu[Role.OPERATOR].total_seconds(),
            **self._tell_others(Scenario.HOLD, cost),
        }
        for group, counted in calls.items():
            figures[f"hold_calls_{group}"] = sum(counted.values())
            named = {**dict.fromkeys(HOLD_CALLS, 0), **counted}
            figures |= {f"hold_{group}_{call}": count for call, count in named.items()}
        figures["hold_calls_ratio"] = figures["hold_calls_ten"] / max(1, figures["hold_calls_one"])
        return figures

    async def streams(self) -> Figures:
        """Two hundred terminals talk through one gateway; then each is taken over once, and left."""
        size, stage = self._size, self._stage
        await self._start_operator()
        adopted = await stage.sprites.create("streams", sprites=max(1, size.streams // 10), sessions=size.streams)
        names = [f"streams-{number:03d}" for number in range(size.streams)]
        await self._create(Scenario.STREAMS, _build_adopters(dict(zip(names, adopted, strict=True))))
        await grant_attaching(stage.api)
        places = tuple([read_place(await stage.api.read_terminal(name)) for name in names])
        token, source = await stage.account(PERSON), StreamSource(places, stage.sprites_token)
        own_core, other_cores = split_cores()
        with keeping_to(stage.processes.values(), other_cores):
            async with source.serving():
                gateway = await stage.start_gateway(source.url, **ROOM_FOR_ALL)
                keep_to(gateway.pid, own_core)
                async with Crowd(gateway, token, source, names, sprites_token=stage.sprites_token) as crowd:
                    figures = await self._measure_streams(crowd, gateway)
                await stage.stop_gateways()
        return figures

    async def _measure_streams(self, crowd: Crowd, gateway: GatewayPlace) -> Figures:
        numbers, before_mib = range(self._size.streams), read_resident_mib(gateway.pid)

        async def take_over(number: int) -> None:
            await crowd.attach(number, takeover=True)

        writes = await self._count_writes("attach", crowd, numbers, crowd.attach)
        for number in numbers[::READ_DIRECTLY]:
            await crowd.look_directly(number)
        meter = await self._begin(Scenario.STREAMS)
        seconds = self._size.talk.total_seconds()
        async with self._showing(lambda: f"streams: {len(numbers)} terminals talk for {seconds:g} s"):
            stretch = await crowd.listen(self._size.talk, self._clock)
        cost = await meter.stop()
        return {
            **measure_stretch(crowd.through, crowd.direct, stretch),
            **measure_memory(gateway, len(numbers), before_mib=before_mib),
            "streams_writes": cost.operator_writes,
            **writes,
            **await self._count_writes("takeover", crowd, numbers, take_over),
            **await self._count_writes("leave", crowd, numbers, crowd.leave),
            **self._tell_others(Scenario.STREAMS, cost),
        }

    async def _count_writes(
        self, what: str, crowd: Crowd, numbers: Sequence[int], act: Callable[[int], Awaitable[None]]
    ) -> Figures:
        """
        Let something be done to each terminal, and tell how many writes to AgentTerminals each of it has cost.

        Once a minute a gateway writes that a terminal was at work, whatever is done to it: that is counted apart.
        """
        meter, before = Meter(self._stage, self._clock), await crowd.count_writes()
        active = self._follower.activity_writes
        await meter.start()
        async with self._showing(lambda: f"streams: each terminal sees one {what}"):
            await send_all(numbers, act)
            await self._wait_for_writes()
        cost = await meter.stop()
        active = self._follower.activity_writes - active
        return {
            f"writes_per_{what}": (cost.operator_writes - active) / len(numbers),
            f"gateway_writes_per_{what}": (await crowd.count_writes() - before - active) / len(numbers),
            f"{what}_activity_writes": active,
        }

    async def _wait_for_writes(self) -> None:
        """Wait until nobody writes any more: what follows an act comes after it."""
        seen = -1
        for _ in range(WRITES_LOOKS):
            await self._clock.sleep(WRITES_FOLLOW)
            if (writes := (await self._stage.api.count()).writes) == seen:
                return
            seen = writes

    async def race(self) -> Figures:
        """Two gateways race for terminals while everything around them fails."""
        await self._start_operator()
        self._progress.tell("race: begins")
        began, size = self._clock.monotonic(), build_race_size(self._size.name)
        luck = Random(RACE_SEED)  # noqa: S311 - who is patched next needs no secrecy
        ground = await self._stage.find_ground()
        async with (
            Race(ground, self._stage.api, size, self._clock, luck) as race,
            self._showing(lambda: f"race: {race.received:,} of {size.inputs:,} inputs; {race.told}"),
        ):
            outcome = await race.run()
        for odd in outcome.odd:
            self._progress.tell(f"race: {odd}")
        return {**measure_race(outcome, self._clock.monotonic() - began)}

    async def many(self) -> Figures:
        """Ten thousand objects adopt; then the operator starts again and sees them all."""
        size = self._size
        await self._start_operator()
        places = await self._stage.sprites.create("many", sprites=size.many_sprites, sessions=size.many_objects)
        specs = _build_adopters({f"many-{number:05d}": place for number, place in enumerate(places)})
        ready, p50, p99, creates, cost = await self._create(Scenario.MANY, specs)
        created: Figures = {
            "ready_10000_s": ready,
            "creates_10000_s": creates,
            "ready_10000_p50_s": p50,
            "ready_10000_p99_s": p99,
            **_tell_cpu(cost, "10000"),
            "peak_10000_mib": read_peak_mib(self._stage.operator_pid),
            "writes_to_ready_10000": cost.operator_writes / size.many_objects,
            "events_10000": cost.counts.events,
            "sprites_calls_10000": cost.calls_total,
            "watches_closed_10000": cost.counts.watches_closed,
            **self._tell_others(Scenario.MANY, cost),
        }
        return created | await self._restart()

    async def _restart(self) -> Figures:
        """End the operator and start it again: how long until it has seen what there is, and what does it write."""
        await self._stage.stop_operator()
        await self._wait_quiet()
        self._progress.tell("many: the operator starts again")
        meter = Meter(self._stage, self._clock)
        await meter.start()
        first_pass = await self._stage.start_operator()
        pid = self._stage.operator_pid
        cpu, peak = read_cpu(pid), read_peak_mib(pid)
        await self._clock.sleep(10 * self._size.settle)
        cost = await meter.stop()
        return {
            "first_pass_10000_s": first_pass.total_seconds(),
            "first_pass_cpu_10000_s": cpu.total_seconds(),
            "first_pass_peak_10000_mib": peak,
            "restarted_cpu_10000_s": cost.cpu[Role.OPERATOR].total_seconds(),
            "restarted_peak_10000_mib": read_peak_mib(pid),
            "restarted_resident_10000_mib": read_resident_mib(pid),
            "restarted_writes_10000": cost.operator_writes,
            "restarted_sprites_calls_10000": cost.calls_total,
            "others_cpu_share_first_pass": cost.others_cores,
        }

    # --- what they share ----------------------------------------------------------------------------------------------

    async def _create(
        self, scenario: Scenario, specs: Mapping[str, Mapping[str, Any]]
    ) -> tuple[float, float, float, float, Cost]:
        """
        Create objects with all clients, and wait until all are Ready.

        Returns:
            Seconds from the first create to the last Ready; from an object's own create to its Ready, half and 99 of
            100; of the creates alone; and what it cost until some seconds after the last Ready.
        """
        names, sent = frozenset(specs), dict[str, timedelta]()
        follower, before = self._follower, len(self._follower.ready)
        meter = await self._begin(scenario)
        began = self._clock.monotonic()

        async def create(name: str) -> None:
            sent[name] = self._clock.monotonic()
            await self._stage.api.create_terminal(name, specs[name])

        def tell() -> str:
            ready = len(follower.ready) - before
            return f"{scenario.value}: {len(sent):,} of {len(names):,} created, {ready:,} ready"

        async with self._showing(tell):
            await send_all(specs, create)
            creates = self._clock.monotonic() - began
            last = await follower.wait_for(follower.ready, names, within=_judge_patience(len(names)))
            await self._clock.sleep(self._size.settle)
        cost = await meter.stop()
        waits = [follower.ready[name] - sent[name] for name in names]
        return (last - began).total_seconds(), _at(waits, 50), _at(waits, 99), creates.total_seconds(), cost

    async def _start_operator(self) -> None:
        """Start the operator, in the place of the one that runs, and let it come to rest."""
        await self._stage.stop_operator()
        await self._stage.start_operator()
        await self._clock.sleep(min(WARM_UP, self._size.settle))

    async def _begin(self, scenario: Scenario) -> Meter:
        await self._wait_quiet()
        self._progress.tell(f"{scenario.value}: begins")
        meter = Meter(self._stage, self._clock)
        await meter.start()
        return meter

    async def _wait_quiet(self) -> None:
        """Wait until all that runs leaves the cores alone, for as long as was asked."""
        deadline = self._clock.monotonic() + self._quiet_within
        while self._clock.monotonic() < deadline:
            before = read_busy()
            await self._clock.sleep(QUIET_LOOK)
            if (read_busy() - before) / QUIET_LOOK < DISTURBED:
                return

    @asynccontextmanager
    async def _showing(self, sentence: Callable[[], str]) -> AsyncIterator[None]:
        """Tell again and again where it stands, and see that everything still runs."""

        async def show() -> None:
            told = self._clock.monotonic()
            while True:
                await self._clock.sleep(CHECK_INTERVAL)
                self._stage.check()
                if self._clock.monotonic() - told >= self._progress.interval:
                    told = self._clock.monotonic()
                    self._progress.follow(sentence())

        async with asyncio.TaskGroup() as group:
            task = group.create_task(show())
            try:
                yield
            finally:
                task.cancel()
                self._progress.finish()

    def _tell_others(self, scenario: Scenario, cost: Cost) -> Figures:
        return {f"others_cpu_share_{scenario.value}": cost.others_cores}


def _build_adopters(places: Mapping[str, SessionPlace]) -> Mapping[str, Mapping[str, Any]]:
    return {name: _build_spec(place.sprite, sessionId=place.session) for name, place in places.items()}


def _build_spec(sprite: str, **source: Any) -> Mapping[str, Any]:
    return {"spriteName": sprite, "tokenSecretRef": {"name": SECRET}, **source}


def _tell_cpu(cost: Cost, suffix: str) -> Figures:
    return {f"{role.value}_cpu_{suffix}_s": time.total_seconds() for role, time in cost.cpu.items()}


def _judge_patience(objects: int) -> timedelta:
    return PATIENCE_BASE + objects * PATIENCE_PER_OBJECT


def _at(values: Sequence[timedelta], percent: float) -> float:
    return find_percentile(values, percent).total_seconds()

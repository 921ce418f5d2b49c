"""
The whole engine between two outsides that are objects: for virtual time, where a day takes seconds.

The `Operator` is the real one. `MemorySprites` is the Sprites API of one organization, whose sprites wake at any call
to their inside and may pause by themselves; `MemoryKube` is a Kubernetes API that checks versions and echoes every
change to the operator, as a watch does. Both remember what they were asked.
"""

import asyncio
import contextlib
import copy
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, Self, cast

from controller.api.names import GROUP, RECONCILE_REQUEST
from controller.api.session import Announced, Cause, KillAnswer, Session, Sprite, SpriteState
from controller.clock import Clock
from controller.engine.operator import Operator, Outside
from controller.engine.registry import Gone, Snapshot
from controller.engine.settings import EngineSettings, LivenessSettings
from controller.kube.client import KubeClient
from controller.kube.errors import Conflict, Invalid, KubeError, NotFound, ServerFault
from controller.kube.events import EventRecorder
from controller.metrics import Metrics, build_metrics
from controller.plan.fence_ids import make_socket_id
from controller.plan.fence_patches import name_lease
from controller.plan.hold_settings import HoldSettings
from controller.plan.launch import BAR_SCRIPT, PROBE_SCRIPT, UPLOAD_SCRIPT
from controller.plan.leftovers import SEARCH_SCRIPT
from controller.plan.tasks import SOCKET
from controller.sprites.client import SpritesClient
from controller.sprites.errors import NotFound as SpriteMissing
from controller.sprites.errors import SpritesError, Unreachable
from controller.sprites.exec_frames import CommandResult
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.engine.clocks import NOON
from tests.support.json_patch import apply_operation

NAMESPACE: Final = "default"
LEASES: Final = "gateways"
SECRET: Final = "sprites"  # A name.
LATENCY: Final = timedelta(milliseconds=20)
SECOND: Final = timedelta(seconds=1)
CALM: Final = EngineSettings(liveness=LivenessSettings(sample_interval=timedelta(seconds=30)))
"""The defaults, but that a day has not 86,400 samples of the loop's lateness."""


class VirtualClock:
    """Both clocks, on the running loop's virtual time."""

    def now(self) -> datetime:
        return NOON + self.monotonic()

    def monotonic(self) -> timedelta:
        return timedelta(seconds=asyncio.get_running_loop().time())

    async def sleep(self, delay: timedelta) -> None:
        await asyncio.sleep(max(0.0, delay.total_seconds()))


# --- the Sprites API --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MemoryTask:
    started: datetime
    expires: datetime


@dataclass(slots=True)
class MemorySprite:
    """One sprite. `pauses_after` None: its state changes only by a wake, or by hand."""

    id: str
    name: str
    state: SpriteState = SpriteState.RUNNING
    pauses_after: timedelta | None = None
    sessions: dict[str, Session] = field(default_factory=dict)
    tasks: dict[str, MemoryTask] = field(default_factory=dict)
    scripts: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    stirred: datetime = NOON


@dataclass(frozen=True, slots=True)
class Call:
    """One call that reached the Sprites API."""

    route: str
    cause: str
    sprite: str | None
    time: datetime
    argv: tuple[str, ...] = ()


class MemorySprites:
    """The Sprites API of one organization."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sprites: dict[str, MemorySprite] = {}
        self.calls: list[Call] = []
        self.wakes: list[Call] = []
        """Those that found a sprite paused, and so woke it."""
        self.troubles: dict[str, list[SpritesError]] = {}
        """By route: raised by the next calls instead of an answer, after they have woken the sprite."""
        self.does_before_trouble = False
        """A command that ends in trouble was done all the same."""
        self._spoilt: list[CommandResult] = []
        self.unreachable = False
        """Nothing gets through."""
        self.spares_killed = False
        """A kill is answered well, and the session lives on."""
        self.latency = LATENCY
        self._numbers = 100

    # what tests do

    def add(self, name: str, state: SpriteState = SpriteState.RUNNING, **fields: Any) -> MemorySprite:
        sprite = MemorySprite(f"id-of-{name}", name, state, stirred=self._clock.now(), **fields)
        self.sprites[name] = sprite
        return sprite

    def start(self, name: str, session_id: str) -> None:
        """Start a session by somebody else's hand."""
        now = self._clock.now()
        self.sprites[name].sessions[session_id] = Session(session_id, now, "bash", True, now)

    def print_something(self, name: str, session_id: str) -> None:
        sprite = self.sprites[name]
        sprite.sessions[session_id] = replace(sprite.sessions[session_id], last_activity=self._clock.now())

    def spoil_commands(self, trouble: SpritesError | CommandResult, *, times: int) -> None:
        """Let the next commands fail, or end with a result of this kind, without being done."""
        if isinstance(trouble, SpritesError):
            self.troubles["run_command"] = [trouble] * times
        else:
            self._spoilt = [trouble] * times

    def settle(self) -> None:
        """Let what is due by now happen: tasks lapse, and sprites without any of them pause."""
        now = self._clock.now()
        for sprite in self.sprites.values():
            lapsed = [task.expires for task in sprite.tasks.values() if task.expires <= now]
            sprite.tasks = {name: task for name, task in sprite.tasks.items() if task.expires > now}
            awake_until = max([sprite.stirred, *lapsed])
            sprite.stirred = awake_until
            idle = sprite.pauses_after is not None and now - awake_until >= sprite.pauses_after
            if idle and not sprite.tasks and sprite.state is SpriteState.RUNNING:
                sprite.state = SpriteState.WARM

    def count(self) -> Counter[tuple[str, str]]:
        """Count the calls by route and cause."""
        return Counter((call.route, call.cause) for call in self.calls)

    def forget_calls(self) -> None:
        self.calls.clear()
        self.wakes.clear()

    # what the operator calls

    async def list_sprites(self, token: Token, *, cause: Cause, prefix: str = "") -> tuple[Sprite, ...]:
        await self._outside("list_sprites", cause)
        self.settle()
        return tuple(Sprite(sprite.id, sprite.name, sprite.state) for sprite in self.sprites.values())

    async def get_sprite(self, token: Token, name: str, *, cause: Cause) -> Sprite:
        await self._outside("get_sprite", cause)
        self.settle()
        if name not in self.sprites:
            raise SpriteMissing("There is no such sprite.", status=404)
        sprite = self.sprites[name]
        return Sprite(sprite.id, sprite.name, sprite.state)

    async def list_sessions(self, token: Token, sprite: str, *, cause: Cause) -> tuple[Session, ...]:
        place = await self._inside("list_sessions", cause, sprite)
        return tuple(place.sessions.values())

    async def kill_session(
        self, token: Token, sprite: str, session_id: str, *, tenure: Tenure, cause: Cause
    ) -> KillAnswer:
        tenure.demand()
        place = await self._inside("kill_session", cause, sprite)
        if session_id not in place.sessions:
            return KillAnswer.NOT_FOUND
        if not self.spares_killed:
            del place.sessions[session_id]
        return KillAnswer.COMPLETE

    async def launch_session(
        self, token: Token, sprite: str, argv: Sequence[str], *, columns: int, rows: int, tenure: Tenure, cause: Cause
    ) -> Announced:
        tenure.demand()
        place = await self._inside("launch_session", cause, sprite)
        nonce = argv[1].rpartition("aterm-")[2]
        place.scripts.discard(nonce)
        place.ran.add(nonce)
        self._numbers += 1
        now = self._clock.now()
        place.sessions[str(self._numbers)] = Session(str(self._numbers), now, "bash", True, now)
        return Announced(str(self._numbers), now.replace(microsecond=0))

    async def run_command(
        self,
        token: Token,
        sprite: str,
        argv: Sequence[str],
        *,
        stdin: bytes,
        tenure: Tenure,
        cause: Cause,
        time_limit: timedelta,
        output_bytes: int,
    ) -> CommandResult:
        tenure.demand()
        if self.does_before_trouble and self.troubles.get("run_command"):
            self._run(self.sprites[sprite], list(argv))
        place = await self._inside("run_command", cause, sprite, tuple(argv))
        if self._spoilt:
            return self._spoilt.pop()
        return CommandResult(0, self._run(place, list(argv)).encode(), b"")

    # inside

    async def _outside(self, route: str, cause: Cause) -> None:
        self._raise_unreachable()
        self.calls.append(Call(route, cause.value, None, self._clock.now()))
        await asyncio.sleep(self.latency.total_seconds())
        self._raise_trouble(route)

    async def _inside(self, route: str, cause: Cause, name: str, argv: tuple[str, ...] = ()) -> MemorySprite:
        """Wake the sprite if it is paused; one that was cold has lost what ran in it."""
        self._raise_unreachable()
        call = Call(route, cause.value, name, self._clock.now(), argv)
        self.calls.append(call)
        self.settle()
        sprite = self.sprites.get(name)
        if sprite is None:
            await asyncio.sleep(self.latency.total_seconds())
            raise SpriteMissing("There is no such sprite.", status=404)
        if sprite.state is not SpriteState.RUNNING:
            self.wakes.append(call)
            if sprite.state is SpriteState.COLD:
                sprite.sessions.clear()
            sprite.state = SpriteState.RUNNING
        sprite.stirred = max(sprite.stirred, self._clock.now())
        await asyncio.sleep(self.latency.total_seconds())
        self._raise_trouble(route)
        return sprite

    def _raise_unreachable(self) -> None:
        if self.unreachable:
            raise Unreachable("Nobody is there.")

    def _raise_trouble(self, route: str) -> None:
        if self.troubles.get(route):
            raise self.troubles[route].pop(0)

    def _run(self, sprite: MemorySprite, argv: list[str]) -> str:
        if argv[0] == "curl":
            return self._run_curl(sprite, argv)
        if argv[2] == SEARCH_SCRIPT:
            return "end\n"
        script, nonce = argv[2], argv[4]
        if script == UPLOAD_SCRIPT:
            sprite.scripts.add(nonce)
            return "/dev/shm"
        if script == BAR_SCRIPT:
            return "ran" if nonce in sprite.ran else "barred"
        assert script == PROBE_SCRIPT
        found = ["script"] * (nonce in sprite.scripts) + ["ran"] * (nonce in sprite.ran)
        stat = "1 (init) " + " ".join(["S", *["0"] * 18, "0"])
        return "\n".join([*found, "uptime 1000000.00", f"init {stat}", "end", ""])

    def _run_curl(self, sprite: MemorySprite, argv: list[str]) -> str:
        """Do what the calls of one command ask of the Tasks API, and print what curl would."""
        assert SOCKET in argv
        now = self._clock.now()
        if "-X" not in argv:
            tasks = [
                {"name": name, "started_at": task.started.isoformat(), "expires_at": task.expires.isoformat()}
                for name, task in sprite.tasks.items()
            ]
            return json.dumps({"tasks": tasks}) + "\naterm 0 200 0\n"
        lines = []
        for index, words in enumerate(_split(argv)):
            name = words[-1].rpartition("/")[2]
            if words[words.index("-X") + 1] == "DELETE":
                lines.append(f"\naterm {index} {'204' if sprite.tasks.pop(name, None) else '404'} 0\n")
                continue
            expire = timedelta(seconds=json.loads(words[words.index("-d") + 1])["expire"])
            known = sprite.tasks.get(name)
            started = now if known is None else known.started
            # The stricter reading of the hour: it counts from the creation, whatever is renewed.
            sprite.tasks[name] = MemoryTask(started, min(now + expire, started + timedelta(hours=1)))
            lines.append(f"\naterm {index} {'201' if known is None else '200'} 0\n")
        return "".join(lines)


def _split(argv: list[str]) -> list[list[str]]:
    """Split the words of one curl at each `--next`."""
    calls: list[list[str]] = [[]]
    for word in argv:
        if word == "--next":
            calls.append([])
        else:
            calls[-1].append(word)
    return calls


# --- the Kubernetes API -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryPage:
    items: Sequence[Mapping[str, Any]]
    namespace: str | None = None
    begins: bool = True


class MemoryKube:
    """Objects, one Secret, Events, Leases of gateways; every change of an object is told to whoever watches."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.writes: list[str] = []
        """What the operator wrote: `status` or `metadata`, and of whom."""
        self.watchers: list[Any] = []
        self.leases: dict[str, dict[str, Any]] = {}
        self.lease_reads: Counter[str] = Counter()
        self.lease_trouble: KubeError | None = None
        """Raised by every read of a Lease."""
        self.refuses_writes = False
        """No write of the operator's gets through, its Events included; everybody else's does."""
        self.status_trouble: KubeError | None = None
        """Raised by every write of a status."""
        self.status_tries = 0
        self._version = 1000
        self._uids = 0

    # what people do

    def create(self, name: str, **spec: Any) -> None:
        self._uids += 1
        self._store(
            {
                "metadata": {
                    "name": name,
                    "namespace": NAMESPACE,
                    "uid": f"uid-{self._uids:04d}",
                    "generation": 1,
                    "creationTimestamp": self._clock.now().isoformat(),
                },
                "spec": {"spriteName": "box", "tokenSecretRef": {"name": SECRET}, "idleTimeoutSeconds": 1800, **spec},
            }
        )

    def patch(self, name: str, **spec: Any) -> None:
        changed = copy.deepcopy(self.objects[name])
        changed["spec"] = {key: value for key, value in (changed["spec"] | spec).items() if value is not None}
        changed["metadata"]["generation"] += 1
        self._store(changed)

    def annotate(self, name: str, **annotations: str) -> None:
        changed = copy.deepcopy(self.objects[name])
        known = changed["metadata"].setdefault("annotations", {})
        known.update({f"{GROUP}/{key}": value for key, value in annotations.items()})
        self._store(changed)

    def request_reconcile(self, name: str, text: str) -> None:
        """Ask for a look now."""
        changed = copy.deepcopy(self.objects[name])
        changed["metadata"].setdefault("annotations", {})[RECONCILE_REQUEST] = text
        self._store(changed)

    def delete(self, name: str) -> None:
        changed = copy.deepcopy(self.objects[name])
        changed["metadata"]["deletionTimestamp"] = self._clock.now().isoformat()
        changed["metadata"]["generation"] += 1
        self._store(changed)

    # what gateways do

    def attach(self, name: str, incarnation: str, *, locks: bool = True) -> str:
        """Claim a terminal through a gateway, and lock it."""
        generation = self.objects[name]["metadata"]["generation"]
        socket_id = make_socket_id(generation=generation, incarnation=incarnation, luck="luckluck")
        self.patch(name, attached=True, activeSocketId=socket_id)
        if locks:
            self.lock(name, incarnation)
        return socket_id

    def lock(self, name: str, incarnation: str) -> None:
        """Write the lock for the socket that the spec names."""
        changed = copy.deepcopy(self.objects[name])
        metadata = changed["metadata"]
        socket = {
            "uid": metadata["uid"],
            "epoch": metadata["generation"],
            "socketId": changed["spec"]["activeSocketId"],
        }
        changed.setdefault("status", {})["socket"] = {**socket, "incarnation": incarnation}
        self._store(changed)

    def count_viewers(self, name: str, **viewers: int) -> None:
        """Write the entries of gateways, by incarnation."""
        changed = copy.deepcopy(self.objects[name])
        entries = [{"incarnation": incarnation, "viewers": number} for incarnation, number in viewers.items()]
        changed.setdefault("status", {})["gateways"] = entries
        self._store(changed)

    def tell_exit(self, name: str, incarnation: str, code: int) -> None:
        """Write the entry of a gateway that has seen the recorded session exit."""
        changed = copy.deepcopy(self.objects[name])
        session = changed["status"]["session"]
        seen = {"sessionId": session["id"], "spriteId": session["spriteId"], "created": session["created"]}
        entry = {"incarnation": incarnation, "viewers": 0, "exit": {**seen, "code": code}}
        changed["status"]["gateways"] = [entry]
        self._store(changed)

    def clear_lock(self, name: str) -> None:
        changed = copy.deepcopy(self.objects[name])
        del changed["status"]["socket"]
        self._store(changed)

    def renew(self, incarnation: str) -> None:
        """Write a gateway's Lease, made anew where there is none."""
        self._version += 1
        known = self.leases.get(name_lease(incarnation))
        uid = f"lease-{self._version}" if known is None else known["metadata"]["uid"]
        metadata = {"name": name_lease(incarnation), "namespace": LEASES, "uid": uid}
        metadata["resourceVersion"] = str(self._version)
        self.leases[name_lease(incarnation)] = {"metadata": metadata, "spec": {"holderIdentity": incarnation}}

    # what the operator calls

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        assert namespace == LEASES
        self.lease_reads[name] += 1
        await asyncio.sleep(0)
        if self.lease_trouble is not None:
            raise self.lease_trouble
        if name not in self.leases:
            raise NotFound("There is no such Lease.")
        return copy.deepcopy(self.leases[name])

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> dict[str, Any]:
        await asyncio.sleep(0)
        self._demand_writes()
        known, given = self.leases[lease["metadata"]["name"]]["metadata"], lease["metadata"]
        if (known["uid"], known["resourceVersion"]) != (given["uid"], given["resourceVersion"]):
            raise Conflict("It has moved on.")
        self._version += 1
        put = copy.deepcopy(dict(lease))
        put["metadata"]["resourceVersion"] = str(self._version)
        self.leases[given["name"]] = put
        return copy.deepcopy(put)

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        if name not in self.objects:
            raise NotFound("It is gone.")
        return copy.deepcopy(self.objects[name])

    async def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure
    ) -> dict[str, Any]:
        tenure.demand()
        await asyncio.sleep(0)
        self._demand_writes()
        self.status_tries += 1
        if self.status_trouble is not None:
            raise self.status_trouble
        changed = self._check(name, patch["metadata"]["uid"], patch["metadata"]["resourceVersion"])
        changed["status"] = _merge(changed.get("status") or {}, patch["status"])
        self.writes.append(f"status {name}")
        return self._store(changed)

    async def patch_json(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        tenure: Tenure,
    ) -> dict[str, Any]:
        tenure.demand()
        await asyncio.sleep(0)
        self._demand_writes()
        if name not in self.objects:
            raise NotFound("It is gone.")
        assert any(operation["path"] == "/metadata/uid" for operation in operations)
        changed = copy.deepcopy(self.objects[name])
        for operation in operations:
            apply_operation(changed, operation)
        assert changed["spec"] == self.objects[name]["spec"]
        self.writes.append(f"{'swept' if subresource == 'status' else 'metadata'} {name}")
        return self._store(changed)

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        await asyncio.sleep(0)
        return {"token": b"lab/1/planted"}

    async def list_pages(
        self, *, metadata_only: bool, namespaces: Sequence[str] | None = None
    ) -> AsyncIterator[MemoryPage]:
        await asyncio.sleep(0)
        yield MemoryPage([{"metadata": copy.deepcopy(stored["metadata"])} for stored in self.objects.values()])

    async def create_event(self, namespace: str, event: Mapping[str, Any], *, tenure: Tenure) -> dict[str, Any]:
        tenure.demand()
        await asyncio.sleep(0)
        self._demand_writes()
        self.events.append(dict(event))
        return dict(event)

    async def patch_event(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure
    ) -> dict[str, Any]:
        tenure.demand()
        await asyncio.sleep(0)
        return dict(patch)

    # inside

    def _demand_writes(self) -> None:
        if self.refuses_writes:
            raise ServerFault("No writes now.", status=500)

    def _check(self, name: str, uid: str, version: str) -> dict[str, Any]:
        if name not in self.objects:
            raise NotFound("It is gone.")
        metadata = self.objects[name]["metadata"]
        if metadata["uid"] != uid:
            raise Invalid("It is another one.")
        if metadata["resourceVersion"] != version:
            raise Conflict("It has moved on.")
        return copy.deepcopy(self.objects[name])

    def _store(self, changed: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = changed["metadata"]
        metadata["resourceVersion"] = str(self._version)
        word: Snapshot | Gone = Snapshot.of(changed)
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[metadata["name"]]
            word = Gone(metadata["uid"], NAMESPACE, metadata["name"], self._version)
        else:
            self.objects[metadata["name"]] = changed
        for watcher in self.watchers:
            asyncio.get_running_loop().call_soon(watcher, word)
        return copy.deepcopy(changed)


def _merge(known: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a merge patch."""
    merged = dict(known)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            before = merged.get(key)
            merged[key] = _merge(before if isinstance(before, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


# --- both, with the operator between them -----------------------------------------------------------------------------


class MemoryWorld:
    """One operator at a time between two outsides that outlive it; use it as `async with`."""

    def __init__(
        self,
        *,
        settings: EngineSettings = CALM,
        hold: HoldSettings | None = None,
        sprites_client: SpritesClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.sprites = MemorySprites(self.clock)
        self.kube = MemoryKube(self.clock)
        self.metrics: Metrics = build_metrics()
        self._settings = settings
        self._hold = hold
        self._client = sprites_client or cast("SpritesClient", self.sprites)
        self._running: asyncio.Task[None] | None = None
        self._tenure = Tenure(0)
        self._nonces = 0

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self) -> None:
        """Start an operator that knows nothing but what is stored."""
        self._tenure = Tenure(0)
        self.metrics = build_metrics()
        kube = cast("KubeClient", self.kube)
        operator = Operator(
            Outside(kube, self._client, EventRecorder(kube, self.clock, reporting_instance="here"), None),
            self._settings,
            per_second=100,
            metrics=self.metrics,
            clock=self.clock,
            tenure=self._tenure,
            luck=Random(7),
            draw_nonce=self._draw_nonce,
            lease_namespace=LEASES,
            hold=self._hold,
        )
        for stored in self.kube.objects.values():
            operator.take_word(Snapshot.of(stored))
        self.kube.watchers = [operator.take_word]
        seen = asyncio.Event()
        seen.set()
        self._running = asyncio.get_running_loop().create_task(operator.run(seen))

    async def stop(self) -> None:
        """End the operator; what it was doing is cut."""
        self._tenure.end()
        self.kube.watchers = []
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def restart(self) -> None:
        await self.stop()
        self.start()

    async def pass_time(self, time: timedelta) -> None:
        """Let time pass, and fail with what the operator failed with, if it did."""
        await self.clock.sleep(time)
        if self._running is not None and self._running.done():
            await self._running

    def _draw_nonce(self) -> str:
        self._nonces += 1
        return f"nonce{self._nonces:05d}"

    # what is to be seen

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.kube.objects[name].get("status") or {}
        return status

    def condition(self, name: str, kind: str = "Reconciling") -> dict[str, Any]:
        conditions = self.status(name).get("conditions") or ()
        found: dict[str, Any] = next((entry for entry in conditions if entry["type"] == kind), {})
        return found

    def reason(self, name: str, kind: str = "Reconciling") -> str:
        """The reason of a condition, if it was judged for the present generation."""
        found = self.condition(name, kind)
        current = found.get("observedGeneration") == self.kube.objects[name]["metadata"]["generation"]
        return str(found["reason"]) if current else ""

    def is_gone(self, name: str) -> bool:
        return name not in self.kube.objects

    def count_wakes(self) -> dict[str, float]:
        """The counter of wakes, by cause, without those that are zero."""
        return self.read("agentterminal_sprites_wakes_total", "cause")

    def read(self, metric: str, label: str) -> dict[str, float]:
        """Read one metric of the running operator by one of its labels, without zeros."""
        values: defaultdict[str, float] = defaultdict(float)
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if sample.name == metric and sample.value:
                    values[sample.labels[label]] += sample.value
        return dict(values)

    def notes(self, name: str) -> list[str]:
        """The sentences of the Events about an object."""
        return [event["note"] for event in self.kube.events if event["regarding"]["name"] == name]


def at(moment: datetime) -> str:
    """A moment as the API has it."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")

"""
Two hundred terminals that talk through one gateway on one core: what it adds, what it costs, and whether all comes.

Problem: a gateway stands in the way of every byte, and one that is quick for a single terminal may fall behind with
two hundred; besides, its people come and go, and each of them costs the API server writes. Promise: gateway, API
server, operator and admission are the real ones; the gateway has a core to itself, and whoever sends and reads has the
others; what a frame is late is held against the very same frame, read directly from where it came from. A terminal that
somebody types in costs the gateway two sockets up, of which one is only typed into: so it is here.

Source: what each figure means is told in docs/performance.md, "Streams".
"""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, Self

import aiohttp

from controller.api.names import GROUP, PLURAL
from controller.clock import Clock
from controller.lab.bench.client import NAMESPACE, ApiClient
from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.kernel import read_cpu, read_peak_mib, read_resident_mib
from controller.lab.bench.stage import GatewayPlace
from controller.lab.bench.streams_sink import Sink
from controller.lab.bench.streams_source import FRAME_BYTES, FRAMES_PER_SECOND, StreamPlace, StreamSource

Figures = dict[str, float]

PERSON: Final = "taker"
RIGHTS: Final = ("attach", "takeover")

READ_DIRECTLY: Final = 10
"""One terminal in so many is read directly as well: more would cost those who send and read more than it tells."""

WARM_UP: Final = timedelta(seconds=1)
ATTACH_TRIES: Final = 10
AGAIN_AFTER: Final = timedelta(seconds=1)
LAST_FRAMES_WITHIN: Final = timedelta(seconds=10)
"""What has not come so long after the last frame was sent is lost."""

_RBAC: Final = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
_KUBE_CALLS: Final = re.compile(r"^agentterminal_kube_calls_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_NANOSECONDS: Final = 1_000_000_000


async def grant_attaching(api: ApiClient) -> None:
    """Let the one who attaches do it, with rights to every terminal of the bench and to nothing else."""
    rule = {"apiGroups": [GROUP], "resources": [f"agentterminals/{right}" for right in RIGHTS], "verbs": ["create"]}
    subject = {"kind": "ServiceAccount", "name": PERSON, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": PERSON}
    await api.request("POST", f"{_RBAC}/roles", {"metadata": {"name": PERSON}, "rules": [rule]})
    binding = {"metadata": {"name": PERSON}, "roleRef": reference, "subjects": [subject]}
    await api.request("POST", f"{_RBAC}/rolebindings", binding)


def read_place(terminal: Mapping[str, Any]) -> StreamPlace:
    """Read from an object which session it adopted, and when that was created."""
    session = terminal["status"]["session"]
    return StreamPlace(terminal["spec"]["spriteName"], session["id"], datetime.fromisoformat(session["created"]))


def read_gateway_writes(text: str) -> int:
    """Count in a gateway's metrics the writes to AgentTerminals, whatever they were answered."""
    writes = 0.0
    for labels, value in _KUBE_CALLS.findall(text):
        named = dict(_LABEL.findall(labels))
        if named["verb"] == "patch" and named["resource"].startswith(PLURAL) and named["outcome"] != "Withheld":
            writes += float(value)
    return int(writes)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which all terminals talked. Moments are monotonic."""

    began: timedelta
    ended: timedelta
    gateway_cpu: timedelta
    loader_cpu: timedelta

    @property
    def wall(self) -> timedelta:
        """How long it was."""
        return self.ended - self.began


class Crowd:
    """
    Everybody who looks, through the gateway and directly; use it as `async with`.

    Args:
        gateway: The gateway.
        token: Of the one who attaches.
        source: Where the streams come from.
        names: Objects by the number of their stream.
        sprites_token: What the source accepts.
    """

    def __init__(
        self,
        gateway: GatewayPlace,
        token: str,
        source: StreamSource,
        names: Sequence[str],
        *,
        sprites_token: str,
    ) -> None:
        self._gateway = gateway
        self._token = token
        self._source = source
        self._names = names
        self._sprites_token = sprites_token
        self._stack = AsyncExitStack()
        self._http: aiohttp.ClientSession
        self._readers: asyncio.TaskGroup
        self.through: dict[int, Sink] = {}
        """Who looks through the gateway, by stream."""
        self.direct: dict[int, Sink] = {}

    async def __aenter__(self) -> Self:
        """Be there, and look at nothing yet."""
        self._readers = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._http = await self._stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        )
        return self

    async def __aexit__(self, *failure: Any) -> None:
        """Leave."""
        await self._stack.__aexit__(*failure)

    async def attach(self, number: int, *, takeover: bool = False) -> None:
        """Attach to a terminal to type, and wait until input counts; whoever did before is thrown out by it."""
        path = f"/v1/namespaces/{NAMESPACE}/agentterminals/{self._names[number]}/attach"
        former = self.through.get(number)
        url = f"{self._gateway.url}{path}{'?takeover=true' if takeover else ''}"
        for _ in range(ATTACH_TRIES):
            sink = await self._open(url, self._token, number)
            if await sink.wait_until_holding():
                break
        else:
            raise BenchFailed(f"Stream {number} was never let type: {sink.farewell}.")
        self.through[number] = sink
        if former is not None:
            await former.wait_until_closed()

    async def look_directly(self, number: int) -> None:
        """Read a stream where it comes from."""
        place = list(self._source.streams.values())[number].place
        url = f"{self._source.url}/v1/sprites/{place.sprite}/exec/{place.session}?stdin=false"
        self.direct[number] = await self._open(url, self._sprites_token, number)

    async def leave(self, number: int) -> None:
        """Close the socket that types in a terminal."""
        sink = self.through.pop(number)
        await sink.socket.close()
        await sink.wait_until_closed()

    async def listen(self, duration: timedelta, clock: Clock) -> Stretch:
        """Let all terminals talk, measure after a moment, and wait for the last frame of each."""
        gateway, loader = self._gateway.pid, os.getpid()
        async with self._source.talking():
            await clock.sleep(WARM_UP)
            began, cpu = clock.monotonic(), (read_cpu(gateway), read_cpu(loader))
            await clock.sleep(duration)
            ended = clock.monotonic()
            spent = (read_cpu(gateway) - cpu[0], read_cpu(loader) - cpu[1])
        made = [stream.made for stream in self._source.streams.values()]
        async with asyncio.TaskGroup() as group:
            for number, sink in chain(self.through.items(), self.direct.items()):
                group.create_task(sink.wait_for_frames(made[number], within=LAST_FRAMES_WITHIN))
        return Stretch(began, ended, *spent)

    async def count_writes(self) -> int:
        """Read from the gateway's metrics how many writes to AgentTerminals it has sent."""
        async with self._http.get(f"{self._gateway.metrics_url}/metrics") as answer:
            return read_gateway_writes(await answer.text())

    async def _open(self, url: str, token: str, number: int) -> Sink:
        """Open a socket, again where the other side says that it is not ready, as any client does."""
        for _ in range(ATTACH_TRIES):
            try:
                socket = await self._http.ws_connect(
                    url, headers={"Authorization": f"Bearer {token}"}, max_msg_size=0, compress=0
                )
            except aiohttp.WSServerHandshakeError as refused:
                if refused.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    raise BenchFailed(f"Stream {number} could not be attached to: {refused.status}.") from refused
                await asyncio.sleep(AGAIN_AFTER.total_seconds())
            except (aiohttp.ClientError, TimeoutError) as error:
                raise BenchFailed(f"Stream {number} could not be attached to: {type(error).__name__}.") from error
            else:
                sink = Sink(socket, number)
                self._readers.create_task(sink.read())
                return sink
        raise BenchFailed(f"Stream {number} could not be attached to: the gateway was not ready {ATTACH_TRIES} times.")


def measure_stretch(
    through_gateway: Mapping[int, Sink], read_directly: Mapping[int, Sink], stretch: Stretch
) -> Figures:
    """
    Say how late frames were, what was lost, and what the gateway and we have cost.

    A gateway that does not get its core loses its Lease and lets go of everybody: then sockets have ended.
    """
    sinks = through_gateway.values()
    through = sorted(chain.from_iterable(_find_delays(sink, stretch) for sink in sinks))
    direct = sorted(chain.from_iterable(_find_delays(sink, stretch) for sink in read_directly.values()))
    added = sorted(
        chain.from_iterable(
            _find_added(through_gateway[number], sink, stretch) for number, sink in read_directly.items()
        )
    )
    return {
        "streams": len(sinks),
        "streams_s": stretch.wall.total_seconds(),
        "streams_kb_per_s": FRAMES_PER_SECOND * FRAME_BYTES / 1000,
        "streams_frames": len(through),
        "streams_frames_paired": len(added),
        "streams_added_p50_s": _at(added, 50),
        "streams_added_p99_s": _at(added, 99),
        "streams_through_p50_s": _at(through, 50),
        "streams_through_p99_s": _at(through, 99),
        "streams_through_max_s": _at(through, 100),
        "streams_direct_p50_s": _at(direct, 50),
        "streams_direct_p99_s": _at(direct, 99),
        "streams_lost_bytes": sum(sink.lost_bytes for sink in sinks),
        "streams_sockets_ended": sum(sink.has_ended for sink in sinks),
        "streams_disordered_bytes": sum(sink.disordered_bytes for sink in sinks),
        "streams_gateway_cpu_percent": 100 * (stretch.gateway_cpu / stretch.wall),
        "streams_gateway_cpu_percent_per_terminal": 100 * (stretch.gateway_cpu / stretch.wall) / len(sinks),
        "streams_loader_cpu_percent": 100 * (stretch.loader_cpu / stretch.wall),
    }


def measure_memory(gateway: GatewayPlace, terminals: int, *, before_mib: float) -> Figures:
    """Say what a terminal costs the gateway in memory."""
    return {
        "streams_memory_kib_per_terminal": 1024 * (read_resident_mib(gateway.pid) - before_mib) / terminals,
        "streams_gateway_start_mib": before_mib,
        "streams_gateway_peak_mib": read_peak_mib(gateway.pid),
    }


def _find_delays(sink: Sink, stretch: Stretch) -> Iterator[int]:
    """Give the nanoseconds from the making of each frame of a stretch to its arrival."""
    return (came - sent for sent, came in zip(sink.sent_ns, sink.came_ns, strict=True) if _is_in(sent, stretch))


def _find_added(through: Sink, direct: Sink, stretch: Stretch) -> Iterator[int]:
    """Give how much later each frame came through the gateway than it was read directly."""
    for number in range(max(through.first, direct.first), min(through.following, direct.following)):
        there, here = number - through.first, number - direct.first
        # A frame that is lost was made never.
        if _is_in(through.sent_ns[there], stretch) and _is_in(direct.sent_ns[here], stretch):
            yield through.came_ns[there] - direct.came_ns[here]


def _is_in(sent_ns: int, stretch: Stretch) -> bool:
    return stretch.began.total_seconds() <= sent_ns / _NANOSECONDS < stretch.ended.total_seconds()


def _at(ordered_ns: Sequence[int], percent: float) -> float:
    """Give the smallest value, in seconds, that this share of all values does not exceed."""
    if not ordered_ns:
        raise BenchFailed("Not one frame came while it was measured.")
    return ordered_ns[max(0, -int(-len(ordered_ns) * percent // 100) - 1)] / _NANOSECONDS

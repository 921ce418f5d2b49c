"""
A gateway in the race: a process of its own that is killed, stopped and started again, on lines that fail.

Promise: its place keeps its name and its lines when a new process follows a killed one; what its log says of
incarnations and tenures is read from all of its processes.
"""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from signal import SIGCONT, SIGKILL
from typing import Any, Final, Self

import orjson

from controller.clock import ElapsedClock
from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.race_judge import TENURE, Hurt
from controller.lab.bench.race_lines import ApiLine, Wire
from controller.lab.processes import freeze_child, signal_group, start_child, stop_child

START_WITHIN: Final = timedelta(seconds=60)
STOP_PATIENCE: Final = timedelta(seconds=20)
LOG_TAIL_LINES: Final = 12
POLL_INTERVAL: Final = timedelta(milliseconds=30)

RACER: Final = "racer"
"""The account of everybody who attaches."""

NOTICED: Final = timedelta(seconds=4)
"""Who stood still for less is as good as one that never did: its tenure lasts, and nothing of it is excused."""

DOORS_OPEN: Final = "The gateway's doors are open."
BEGINS: Final = "An incarnation begins."
TENURE_ENDED: Final = "The tenure has ended: nothing speaks until the Lease is renewed."
"""Assumed: the gateway logs these sentences (`tests/cluster/test_race.py`)."""


@dataclass(frozen=True)
class Ground:
    """
    Where a race is run.

    Args:
        server: The API server.
        ca_file: What to trust.
        gateway_token: How the gateways log in: a service account with the rights of the chart.
        person_token: How the people log in.
        gateway_command: What starts a gateway; `--kubeconfig FILE` is put behind it.
        environment: What the gateways get beside their own settings.
        sprites_url: The emulator.
        folder: For kubeconfigs and logs.
        namespace: Where the terminals are; the Secret for their sprites is there.
        lease_namespace: Where the gateways' Leases lie.
        secret: The name of that Secret.
    """

    server: str
    ca_file: Path
    gateway_token: str = field(repr=False)
    person_token: str = field(repr=False)
    gateway_command: Sequence[str]
    environment: Mapping[str, str]
    sprites_url: str
    folder: Path
    namespace: str
    lease_namespace: str
    secret: str


class RacingGateway:
    """
    One gateway's place; use it as `async with`.

    Args:
        name: Of the place.
        ground: Where.
        clock: For moments.
    """

    def __init__(self, name: str, ground: Ground, clock: ElapsedClock) -> None:
        self.name = name
        self.line = ApiLine(ground.server, ground.ca_file, clock)
        self.wire = Wire(ground.sprites_url)
        self.url = ""
        self.kills = 0
        self.pauses = 0
        self._hurts: dict[str, datetime] = {}
        self._ground = ground
        self._clock = clock
        self._stack = AsyncExitStack()
        self._logs: list[Path] = []
        self._read_bytes = 0
        """Of the last log."""
        self._begun: list[str] = []
        self._ended = 0
        self._child: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Open the lines; no process runs yet."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.line)
            await stack.enter_async_context(self.wire)
            stack.push_async_callback(self.stop)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        await self._stack.aclose()

    async def start(self) -> None:
        """
        Start a process, and wait until its doors are open.

        Raises:
            BenchFailed: It has ended, or its doors were not open in time.
        """
        number, known = len(self._logs), len(self._begun)
        kubeconfig = self._ground.folder / f"racing-{self.name}.kubeconfig"
        kubeconfig.write_bytes(self._render_kubeconfig())
        log = self._ground.folder / f"racing-{self.name}-{number}.log"
        if self._logs:
            self._read_logs()
        log.touch()
        self._logs.append(log)
        self._read_bytes, self.url = 0, ""
        settings = {
            "SPRITES_URL": self.wire.url,
            "NAMESPACES": self._ground.namespace,
            "LEASE_NAMESPACE": self._ground.lease_namespace,
            "GATEWAY_PORT": "0",
            "GATEWAY_METRICS_PORT": "0",
            "GATEWAY_ADDRESS_REQUESTS_PER_SECOND": "100000",
            "GATEWAY_PERSON_SOCKETS": "1000",
            "LOG_FORMAT": "json",
        }
        with log.open("wb") as sink:
            self._child = await start_child(
                [*self._ground.gateway_command, "--kubeconfig", str(kubeconfig)],
                stdout=sink,
                stderr=subprocess.STDOUT,
                environment={
                    **self._ground.environment,
                    **{f"AGENTTERMINAL_{name}": value for name, value in settings.items()},
                },
            )
        try:
            async with asyncio.timeout(START_WITHIN.total_seconds()):
                while len(self.incarnations) == known or not self.url:
                    self.check()
                    await self._clock.sleep(POLL_INTERVAL)
        except TimeoutError:
            raise BenchFailed(
                f"Waited {START_WITHIN.total_seconds():g} s in vain for the gateway {self.name} to open its doors."
                f" The end of its log:\n{self._find_last_words()}"
            ) from None

    def check(self) -> None:
        """
        See that it runs.

        Raises:
            BenchFailed: It does not.
        """
        if self._child is not None and self._child.returncode is not None:
            raise BenchFailed(
                f"The gateway {self.name} ended with code {self._child.returncode}. The end of its log:\n"
                f"{self._find_last_words()}"
            )

    def _find_last_words(self) -> str:
        return "\n".join(self._logs[-1].read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])

    async def kill(self) -> None:
        """Kill the process with SIGKILL: nothing is put away."""
        child, self._child = self._child, None
        if child is None:
            raise BenchFailed(f"There is no gateway {self.name} to be killed.")
        self._hurts[self.incarnation] = self._clock.now()
        child.kill()
        if await child.wait() != -SIGKILL:
            raise BenchFailed(f"The gateway {self.name} ended before it was killed.")
        self.kills += 1

    @asynccontextmanager
    async def pausing(self) -> AsyncIterator[None]:
        """Stop the process during the body: it does not run, and does not know."""
        self.check()
        since, began, incarnation = self._clock.now(), self._clock.elapsed(), self.incarnation
        try:
            if self._child is not None:
                await freeze_child(self._child)
            yield
        finally:
            self._resume()
            self.pauses += 1
            if self._clock.elapsed() - began >= NOTICED:
                self._hurts[incarnation] = since

    @property
    def incarnation(self) -> str:
        """The incarnation that began last."""
        return self.incarnations[-1]

    @property
    def incarnations(self) -> list[str]:
        """All incarnations of this place, in order."""
        self._read_logs()
        return self._begun

    @property
    def ended_tenures(self) -> int:
        """How many tenures have run out."""
        self._read_logs()
        return self._ended

    def find_hurts(self, dead: Collection[str]) -> Mapping[str, Hurt]:
        """
        Tell which incarnations did not come back from being stopped or killed, and when their tenures ended at most.

        Args:
            dead: Those that others proved out: only these are excused for anything.
        """
        renewals = self.line.counts.renewals
        return {name: Hurt(since, renewals[name] + TENURE) for name, since in self._hurts.items() if name in dead}

    def _resume(self) -> None:
        if self._child is not None:
            signal_group(self._child, SIGCONT)

    async def stop(self) -> None:
        """End it in good order. Stopped is stopped."""
        self.wire.flow()
        if self._child is not None:
            self._resume()
            await stop_child(self._child, patience=STOP_PATIENCE)
            self._child = None

    def _read_logs(self) -> None:
        """Read on in the log of the process that was started last, which is the only one that grows."""
        with self._logs[-1].open("rb") as log:
            log.seek(self._read_bytes)
            *lines, _ = log.read().split(b"\n")
        self._read_bytes += sum(len(line) + 1 for line in lines)
        for line in lines:
            if line.startswith(b"{"):
                self._take(orjson.loads(line))

    def _take(self, entry: Mapping[str, Any]) -> None:
        match entry:
            case {"message": str(message), "port": int(port)} if message == DOORS_OPEN:
                self.url = f"http://127.0.0.1:{port}"
            case {"message": str(message), "incarnation": str(incarnation)} if message == BEGINS:
                self._begun.append(incarnation)
            case {"message": str(message)} if message == TENURE_ENDED:
                self._ended += 1
            case _:
                pass

    def _render_kubeconfig(self) -> bytes:
        """Write how it logs in: over its line, which is on loopback and speaks TLS from there on."""
        return orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "race",
                "contexts": [{"name": "race", "context": {"cluster": "race", "user": "gateway"}}],
                "clusters": [{"name": "race", "cluster": {"server": self.line.url}}],
                "users": [{"name": "gateway", "user": {"token": self._ground.gateway_token}}],
            }
        )

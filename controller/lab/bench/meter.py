"""What a stretch of time has cost everybody."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from controller.clock import Clock
from controller.lab.bench.counting import ApiCounts
from controller.lab.bench.kernel import read_busy, read_cpu
from controller.lab.bench.stage import Role, Stage

DISTURBED: Final = 0.1
"""Cores that others may have taken before a figure is called disturbed: the rule of the measurements of others."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stretch has cost."""

    wall: timedelta
    cpu: Mapping[Role, timedelta]
    others_cores: float
    """How many cores everybody else on this machine kept busy."""
    counts: ApiCounts
    operator_writes: int
    """Requests that were to change AgentTerminals, and were not sent by the loader."""
    calls: Mapping[str, int]
    """Requests to the Sprites API by route."""

    @property
    def calls_total(self) -> int:
        """Count the requests to the Sprites API."""
        return sum(self.calls.values())


class Meter:
    """
    Measures from `start` to `stop`.

    What the measuring itself costs the API server (its metrics are long) lies outside of the stretch.
    """

    def __init__(self, stage: Stage, clock: Clock) -> None:
        self._stage = stage
        self._clock = clock

    async def start(self) -> None:
        """Begin the stretch."""
        await self._stage.sprites.clear_log()
        self._counts = await self._stage.api.count()
        self._sent = self._stage.api.terminal_writes
        self._cpu, self._busy, self._began = self._read_cpu(), read_busy(), self._clock.monotonic()

    async def stop(self) -> Cost:
        """End the stretch and tell what it has cost."""
        wall, busy, cpu = self._clock.monotonic() - self._began, read_busy() - self._busy, self._read_cpu()
        calls = await self._stage.sprites.count_calls()
        counts = (await self._stage.api.count()).since(self._counts)
        spent = {role: time - self._cpu.get(role, timedelta()) for role, time in cpu.items()}
        return Cost(
            wall=wall,
            cpu=spent,
            others_cores=max(0.0, (busy - sum(spent.values(), timedelta())) / wall),
            counts=counts,
            operator_writes=counts.writes - (self._stage.api.terminal_writes - self._sent),
            calls=calls,
        )

    def _read_cpu(self) -> Mapping[Role, timedelta]:
        ids = {**self._stage.processes, Role.LOADER: os.getpid()}
        return {role: read_cpu(pid) for role, pid in ids.items()}

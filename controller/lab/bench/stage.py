"""
The processes that are measured, and those around them.

Promise: etcd, the API server, the emulator and the operator are each a process of its own; the operator logs in as a
service account with the rights of the chart; all end with us, however we end.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from signal import Signals
from typing import Final, Self

import orjson
import yaml

from controller.api.crd import render_crd_text
from controller.api.names import PLURAL
from controller.clock import ElapsedClock
from controller.lab.bench.client import NAMESPACE, ApiClient
from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.race_gateways import RACER, Ground
from controller.lab.bench.sprites import SpritesLab
from controller.lab.binaries import Binaries
from controller.lab.control_plane import ControlPlane
from controller.lab.processes import start_child, stop_child
from controller.lab.rights import (
    GATEWAY_NAME,
    OPERATOR_NAME,
    OPERATOR_NAMESPACE,
    GatewayRules,
    Rules,
    build_gateway_rights,
    build_rights,
)

SECRET: Final = "sprites-token"
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

START_WITHIN: Final = timedelta(seconds=60)
"""The operator needs 1 to 2 s on an idle machine, the emulator less; ten thousand objects take the operator longer."""
STOP_PATIENCE: Final = timedelta(seconds=20)
POLL_INTERVAL: Final = timedelta(milliseconds=10)
TOKEN_SECONDS: Final = 24 * 3600
LOG_TAIL_LINES: Final = 12

ALL_SEEN: Final = "Every object was seen."
"""Assumed: the operator logs this once it has taken in every object that there is (`test_the_smallest_bench_...`)."""

DOORS_OPEN: Final = "The gateway's doors are open."
"""Assumed: the gateway logs this with its ports (`test_the_smallest_bench_...`)."""

UPLOAD_ANSWERS: Final = "record_output=/dev/shm"
"""Records run no commands: an upload of a launch script is answered with the folder that it would have chosen."""


class Role(StrEnum):
    """Whose cost it is."""

    OPERATOR = "operator"
    GATEWAY = "gateway"
    API_SERVER = "api_server"
    ETCD = "etcd"
    EMULATOR = "emulator"
    LOADER = "loader"


@dataclass(frozen=True)
class StageSettings:
    """
    What a stage is made of.

    Args:
        operator_command: What starts the operator; `--kubeconfig FILE` is put behind it.
        gateway_command: What starts a gateway, likewise.
        emulator_command: What starts the emulator; its options are put behind it.
        rules: What the operator may do.
        gateway_rules: What a gateway may do.
        environment: What all of them get, less everything that is meant for an operator of the user's own.
        clock: Tells how long things take.
    """

    operator_command: Sequence[str]
    gateway_command: Sequence[str]
    emulator_command: Sequence[str]
    rules: Rules
    gateway_rules: GatewayRules
    environment: Mapping[str, str]
    clock: ElapsedClock


@dataclass(frozen=True)
class GatewayPlace:
    """
    A gateway that runs.

    Args:
        pid: Its process id.
        url: Where its doors are.
        metrics_url: Where its metrics and probes are.
    """

    pid: int
    url: str
    metrics_url: str


class Stage:
    """
    One fresh world without an operator; use it as `async with`, in one task, in the thread that ends last.

    Args:
        binaries: Of the control plane.
        settings: What else it is made of.
    """

    def __init__(self, binaries: Binaries, settings: StageSettings) -> None:
        self._settings = settings
        self._plane = ControlPlane(binaries, clock=settings.clock)
        self._emulator: asyncio.subprocess.Process | None = None
        self._operator: asyncio.subprocess.Process | None = None
        self._operators = 0
        self._gateways: dict[str, asyncio.subprocess.Process] = {}
        self._stack = contextlib.AsyncExitStack()
        self._environment = _without_own(settings.environment)
        self._sprites_url = ""
        self.sprites_token = ""
        """The one that the objects' Secret has."""
        self.api: ApiClient
        self.sprites: SpritesLab

    async def __aenter__(self) -> Self:
        """Start everything but the operator."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._plane)
            self.sprites_token = await self._start_emulator(stack)
            self.sprites = await stack.enter_async_context(SpritesLab(self._sprites_url))
            self.api = await stack.enter_async_context(
                ApiClient(self._plane.url, self._plane.admin_token, self._plane.ca_file)
            )
            await self._prepare_cluster(self.sprites_token)
            stack.push_async_callback(self.stop_operator)
            stack.push_async_callback(self.stop_gateways)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End everything."""
        await self._stack.aclose()

    @property
    def processes(self) -> Mapping[Role, int]:
        """The process ids of what runs, but for our own; of several gateways that of the last."""
        planes = self._plane.process_ids
        ids = {Role.ETCD: planes.get("etcd"), Role.API_SERVER: planes.get("kube-apiserver")}
        gateway = next(reversed(self._gateways.values()), None)
        children = ((Role.EMULATOR, self._emulator), (Role.OPERATOR, self._operator), (Role.GATEWAY, gateway))
        for role, child in children:
            ids[role] = child.pid if child is not None and child.returncode is None else None
        return {role: pid for role, pid in ids.items() if pid is not None}

    @property
    def operator_pid(self) -> int:
        """The process id of the operator, which runs."""
        self.check()
        return self.processes[Role.OPERATOR]

    def check(self) -> None:
        """
        See that everything still runs that was started.

        Raises:
            BenchFailed: Something does not.
        """
        children = (("emulator", self._emulator), (self._operator_name, self._operator), *self._gateways.items())
        for name, child in children:
            if child is not None and child.returncode is not None:
                raise BenchFailed(f"{_describe_end(name, child.returncode)}{self._read_tail(name)}")

    async def start_operator(self) -> timedelta:
        """Start an operator, wait until it has seen every object, and tell how long that took."""
        kubeconfig = await self._plane.service_account_kubeconfig(
            OPERATOR_NAMESPACE, OPERATOR_NAME, expire_seconds=TOKEN_SECONDS
        )
        environment = {
            **self._environment,
            "AGENTTERMINAL_SPRITES_URL": self._sprites_url,
            "AGENTTERMINAL_METRICS_PORT": "0",
            "AGENTTERMINAL_LEASE_NAMESPACE": OPERATOR_NAMESPACE,
            # As the chart has it: a line of JSON costs more than one of text.
            "AGENTTERMINAL_LOG_FORMAT": "json",
        }
        self._operators += 1
        started = self._settings.clock.monotonic()
        with self._log_of(self._operator_name).open("wb") as log:
            self._operator = await start_child(
                [*self._settings.operator_command, "--kubeconfig", str(kubeconfig)],
                stdout=log,
                stderr=subprocess.STDOUT,
                environment=environment,
            )
        await self._wait_for_line(self._operator_name, ALL_SEEN)
        return self._settings.clock.monotonic() - started

    async def stop_operator(self) -> None:
        """End the operator in good order, if one runs."""
        operator, self._operator = self._operator, None
        if operator is not None:
            await stop_child(operator, patience=STOP_PATIENCE)

    async def start_gateway(self, sprites_url: str, **settings: str) -> GatewayPlace:
        """
        Start a gateway with the rights of the chart, beside those that run, and wait until its doors are open.

        Args:
            sprites_url: Where its Sprites API is.
            settings: More of its environment, without the prefix.
        """
        kubeconfig = await self._plane.service_account_kubeconfig(
            OPERATOR_NAMESPACE, GATEWAY_NAME, expire_seconds=TOKEN_SECONDS
        )
        own = {
            "SPRITES_URL": sprites_url,
            "GATEWAY_PORT": "0",
            "GATEWAY_METRICS_PORT": "0",
            "LEASE_NAMESPACE": OPERATOR_NAMESPACE,
            "LOG_FORMAT": "json",
            **settings,
        }
        name = f"gateway-{len(self._gateways)}"
        with self._log_of(name).open("wb") as log:
            gateway = self._gateways[name] = await start_child(
                [*self._settings.gateway_command, "--kubeconfig", str(kubeconfig)],
                stdout=log,
                stderr=subprocess.STDOUT,
                environment={**self._environment, **{f"AGENTTERMINAL_{key}": value for key, value in own.items()}},
            )
        opened = orjson.loads(await self._wait_for_line(name, DOORS_OPEN))
        host = "http://127.0.0.1"
        return GatewayPlace(gateway.pid, f"{host}:{opened['port']}", f"{host}:{opened['metrics_port']}")

    async def stop_gateways(self) -> None:
        """End every gateway in good order."""
        while self._gateways:
            _, gateway = self._gateways.popitem()
            await stop_child(gateway, patience=STOP_PATIENCE)

    async def account(self, name: str) -> str:
        """Give a token of a service account beside the objects."""
        return await self._plane.service_account_token(NAMESPACE, name, expire_seconds=TOKEN_SECONDS)

    async def find_ground(self) -> Ground:
        """Give the ground of a race: this stage, for gateways that are none of its own."""
        return Ground(
            server=self._plane.url,
            ca_file=self._plane.ca_file,
            gateway_token=await self._plane.service_account_token(
                OPERATOR_NAMESPACE, GATEWAY_NAME, expire_seconds=TOKEN_SECONDS
            ),
            person_token=await self.account(RACER),
            gateway_command=self._settings.gateway_command,
            environment=self._environment,
            sprites_url=self._sprites_url,
            folder=self._plane.directory,
            namespace=NAMESPACE,
            lease_namespace=OPERATOR_NAMESPACE,
            secret=SECRET,
        )

    @property
    def _operator_name(self) -> str:
        return f"operator-{self._operators}"

    async def _start_emulator(self, stack: contextlib.AsyncExitStack) -> str:
        """Start the emulator and give the token that it accepts."""
        with self._log_of("emulator").open("wb") as log:
            self._emulator = await start_child(
                [*self._settings.emulator_command, "--records", "--json", "--switch", UPLOAD_ANSWERS],
                stdout=log,
                stderr=subprocess.STDOUT,
                environment=self._environment,
            )
        stack.push_async_callback(stop_child, self._emulator)
        announced = orjson.loads(await self._wait_for_line("emulator", '"tokens"'))
        self._sprites_url = announced["url"]
        token: str = announced["tokens"][0]
        return token

    async def _prepare_cluster(self, token: str) -> None:
        await self.api.request("POST", CRDS, yaml.safe_load(render_crd_text()))
        for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
            await self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        secret = {"metadata": {"name": SECRET}, "stringData": {"token": token}}
        await self.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        for path, right in build_rights(self._settings.rules, secrets={NAMESPACE: [SECRET]}):
            await self.api.request("POST", path, right)
        for path, right in build_gateway_rights(self._settings.gateway_rules, secrets={NAMESPACE: [SECRET]}):
            await self.api.request("POST", path, right)
        await self._wait_for_kind()

    async def _wait_for_kind(self) -> None:
        """Wait until the API server serves the kind that it has just been told of."""
        try:
            async with asyncio.timeout(START_WITHIN.total_seconds()):
                while not await self.api.is_served():  # noqa: ASYNC110 - the API server has no event for it
                    await asyncio.sleep(POLL_INTERVAL.total_seconds())
        except TimeoutError:
            raise BenchFailed(f"The API server does not serve {PLURAL} after {START_WITHIN.seconds} s.") from None

    async def _wait_for_line(self, name: str, mark: str) -> str:
        """Read a log as it grows until a line has the mark, and give the line."""
        try:
            async with asyncio.timeout(START_WITHIN.total_seconds()):
                with self._log_of(name).open(errors="replace") as log:
                    unfinished = ""
                    while True:
                        unfinished += log.readline()
                        if not unfinished.endswith("\n"):
                            self.check()
                            await asyncio.sleep(POLL_INTERVAL.total_seconds())
                            continue
                        if mark in unfinished:
                            return unfinished
                        unfinished = ""
        except TimeoutError:
            within = f"{START_WITHIN.total_seconds():g} s"
            raise BenchFailed(f"{name} is not ready after {within}.{self._read_tail(name)}") from None

    def _log_of(self, name: str) -> Path:
        return self._plane.directory / f"{name}.log"

    def _read_tail(self, name: str) -> str:
        if name == "emulator":
            # Its first line has a token.
            return ""
        with contextlib.suppress(OSError):
            lines = self._log_of(name).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
            return "\n".join([" The end of its log:", *lines])
        return ""


def _describe_end(name: str, code: int) -> str:
    how = f"was ended by {Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return f"{name} {how}."


def _without_own(environment: Mapping[str, str]) -> dict[str, str]:
    """
    Keep a real token, a real address, a real cluster and the user's own settings out of the measurement.

    Python may keep what it has compiled, as the image has it: compiling takes half of a start.
    """
    return {
        name: value
        for name, value in environment.items()
        if not (name.startswith("AGENTTERMINAL_") or name in {"KUBECONFIG", "PYTHONDONTWRITEBYTECODE"})
    }

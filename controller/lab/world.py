"""
The whole outside on one machine, with the operator in it: what `demo` and `lab` show.

Problem: a control plane, a Sprites API with real processes and an operator are three things to start in the right
order, and whoever only wants to look should neither do that nor clean up afterwards. Promise: one value that starts
all three, with a namespace, a token in a Secret, and a sprite in which somebody works already; the operator is a
process of its own, and so is the gateway where one is wanted, each logged in as a service account with the rights of
the chart and no more, and so are the people who sit at terminals of this world; and all of it is gone afterwards,
however we end.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from signal import Signals
from typing import Any, Final, Self

import aiohttp

from controller.api.crd import render_crd_text
from controller.errors import AgentTerminalError
from controller.lab.binaries import Binaries
from controller.lab.board import InnerProcess
from controller.lab.control_plane import Completed, ControlPlane
from controller.lab.emulator import Emulator, EmulatorSettings, Isolation
from controller.lab.process_table import HostProcess, find_process
from controller.lab.processes import Janitor, start_child, stop_child
from controller.lab.rights import (
    GATEWAY_NAME,
    OPERATOR_NAME,
    OPERATOR_NAMESPACE,
    GatewayRules,
    Rule,
    Rules,
    build_gateway_rights,
    build_people_rights,
    build_rights,
)
from controller.lab.window import Window

NAMESPACE: Final = "demo"
SECRET: Final = "sprites-token"
SPRITE: Final = "dev"
HAND_MADE: Final = ("sh", "-i")
"""The session that somebody started before any object names it: a shell, for whoever attaches to type in."""

PEOPLE: Final = {"anna": "attacher", "bert": "taker", "carla": "viewer"}
"""Who may sit at a terminal of this world, and the role of the chart that each has; all are service accounts."""

TERMINALS: Final = f"/apis/agentterminal.dev/v1alpha1/namespaces/{NAMESPACE}/agentterminals"

OWN_PREFIX: Final = "AGENTTERMINAL_"
OPERATOR_READY: Final = "Every object was seen."
"""Assumed: the operator logs this once it watches (`test_the_operator_is_there_when_the_world_is`)."""

GATEWAY_READY: Final = "The gateway's doors are open."
"""Assumed: the gateway logs this with its port (`test_the_gateway_is_there_when_the_world_is`)."""

READY_WITHIN: Final = timedelta(seconds=60)
"""The operator needs 1 to 2 s on an idle machine."""
COMMAND_WITHIN: Final = timedelta(seconds=60)
REQUEST_WITHIN: Final = timedelta(seconds=30)
POLL_INTERVAL: Final = timedelta(milliseconds=50)
TOKEN_SECONDS: Final = 30 * 24 * 3600
"""A lab may stay open over a holiday."""
LOG_TAIL_LINES: Final = 12


class WorldFailed(AgentTerminalError):
    """A part of the world did not start, or ended by itself. The text has the tail of its log."""


@dataclass(frozen=True)
class HoldTask:
    """A task inside the sprite: while one lives, the sprite does not pause."""

    name: str
    expires: datetime


@dataclass(frozen=True)
class WorldSettings:
    """
    What a world is made of.

    Args:
        operator_command: What starts the operator; `--kubeconfig FILE` is put behind it.
        rules: What the operator may do.
        environment: What operator and commands get, less everything that is meant for an operator of the user's own.
        isolation: What a session's process is.
        gateway_command: What starts the gateway, likewise; None where there is none.
        gateway_rules: What the gateway may do.
        people_rules: What each role for people may do; empty where there are no people.
    """

    operator_command: Sequence[str]
    rules: Rules
    environment: Mapping[str, str]
    isolation: Isolation = Isolation.AUTO
    gateway_command: Sequence[str] | None = None
    gateway_rules: GatewayRules | None = None
    people_rules: Mapping[str, Sequence[Rule]] = field(default_factory=dict)


class World:
    """
    One world, from `start` to `stop`; also usable as `async with`.

    Start it from a thread that lives as long as it should (see `controller.lab.processes`).
    """

    def __init__(self, binaries: Binaries, settings: WorldSettings) -> None:
        self._settings = settings
        self._kubectl = binaries.kubectl
        self._plane = ControlPlane(binaries)
        self._emulator = Emulator(EmulatorSettings(isolation=settings.isolation))
        self._operator: asyncio.subprocess.Process | None = None
        self._gateway: asyncio.subprocess.Process | None = None
        self.gateway_url = ""
        """Where the gateway's doors are; empty where there is none."""
        self._operator_ended = asyncio.Event()
        self._windows: list[Window] = []
        self._people: dict[str, Path] = {}
        self._seen: set[HostProcess] = set()
        self._folders: list[Path] = []
        self.hand_made_session = ""

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its namespace is that of the terminals."""
        return self._plane.kubeconfig

    @property
    def api_server_url(self) -> str:
        """Where the API server is."""
        return self._plane.url

    @property
    def sprites_url(self) -> str:
        """Where the Sprites API is."""
        return self._emulator.url

    @property
    def isolation(self) -> Isolation:
        """What a session's process turned out to be."""
        return self._emulator.isolation

    @property
    def kubectl(self) -> Path:
        """The kubectl that belongs to this world."""
        return self._kubectl

    @property
    def environment(self) -> Mapping[str, str]:
        """What a command needs to speak to this world and to nobody else."""
        return {
            **_without_own(self._settings.environment),
            "KUBECONFIG": str(self.kubeconfig),
            # Else kubectl writes a cache into the user's home, and reads aliases and defaults from there. The control
            # plane's own cache will not do either: it is older than our kind.
            "KUBECACHEDIR": str(self._plane.directory / "commands-cache"),
            "KUBERC": "off",
            # `agentterminal` and the kubectl plugin lie beside the Python that runs us.
            "PATH": os.pathsep.join(
                [
                    str(self._kubectl.parent),
                    str(Path(sys.executable).parent),
                    self._settings.environment.get("PATH", os.defpath),
                ]
            ),
            **({"AGENTTERMINAL_ATTACH_URL": self.gateway_url} if self.gateway_url else {}),
        }

    async def start(self) -> None:
        """
        Start everything and return when the operator watches.

        Raises:
            AgentTerminalError: A part did not start; the text says which and why. Nothing is left then.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End everything; stopping twice is fine."""
        try:
            for window in self._windows:
                await window.close()
            for child in (self._gateway, self._operator):
                if child is not None:
                    await stop_child(child)
                    self._plane.janitor.forget(child.pid)
        finally:
            try:
                # One that failed to start says so again, which is no news.
                with contextlib.suppress(AgentTerminalError):
                    await self._emulator.stop()
            finally:
                await self._plane.stop()

    async def wait_ended(self) -> str:
        """Wait until a part ends that nobody stopped, and say which, with the tail of its log."""
        tasks: list[asyncio.Task[str]] = []
        async with asyncio.TaskGroup() as group:
            tasks += [
                group.create_task(self._plane.wait_ended()),
                group.create_task(self._wait_emulator_ended()),
                group.create_task(self._wait_operator_ended()),
                *([] if self._gateway is None else [group.create_task(self._wait_gateway_ended(self._gateway))]),
            ]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
        return next(iter(done)).result()

    async def run(self, line: str, *, within: timedelta = COMMAND_WITHIN) -> Completed:
        """
        Run a line as a user would type it, with a shell, in our working directory.

        Raises:
            WorldFailed: It did not end in time; it has been killed then.
        """
        return await run_line(line, self._plane.janitor, environment=self.environment, within=within)

    async def open_window(self, line: str, *, person: str) -> Window:
        """Let one of the people run a line in a terminal of their own, with their own kubeconfig; it ends with us."""
        environment = {**self.environment, "KUBECONFIG": str(self._people[person])}
        window = await Window.open(line, self._plane.janitor, environment=environment)
        self._windows.append(window)
        self._watch_over(window.process_id)
        return window

    async def read_terminals(self) -> Sequence[Mapping[str, Any]]:
        """Read the AgentTerminals of the namespace, in the order of their names."""
        status, answer = await self._plane.request("GET", TERMINALS)
        if status != 200:
            raise WorldFailed(f"The API server answered {status} to the list of terminals.")
        items: list[Mapping[str, Any]] = answer["items"]
        return items

    async def read_processes(self) -> Sequence[InnerProcess]:
        """Read what runs inside the sprite, as the process table of this machine knows it."""
        answer = await self._call_lab("GET", f"sprites/{SPRITE}/processes")
        found = [
            InnerProcess(entry["host_pid"], entry["inner_pid"], entry["parent_pid"], " ".join(entry["argv"]))
            for entry in answer["processes"]
        ]
        self._watch_over(*(process.host_pid for process in found))
        return found

    async def read_received(self, session: str) -> str:
        """Read all input that ever arrived at a session of the sprite, as the sprite itself saw it."""
        answer = await self._call_lab("GET", f"sprites/{SPRITE}/sessions")
        return next((str(entry["received"]) for entry in answer["sessions"] if entry["id"] == session), "")

    async def read_tasks(self) -> Sequence[HoldTask]:
        """Read the tasks that keep the sprite awake, as the sprite itself lists them."""
        answer = await self._call_lab("GET", f"sprites/{SPRITE}/tasks")
        return [HoldTask(task["name"], datetime.fromisoformat(task["expires_at"])) for task in answer["tasks"]]

    def find_left(self) -> list[str]:
        """Name every process and folder of this world that is still there; meant to be asked after `stop`."""
        processes = [f"process {process.pid}" for process in sorted(self._seen) if process.is_alive()]
        return processes + [f"folder {folder}" for folder in self._folders if folder.exists()]

    @property
    def seen_processes(self) -> int:
        """How many processes `find_left` watches over."""
        return len(self._seen)

    def _watch_over(self, *pids: int) -> None:
        self._seen.update(filter(None, map(find_process, pids)))

    async def _start(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._emulator.start())
            group.create_task(self._start_plane())
        self._folders += [self._plane.directory, self._emulator.context.folder]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._prepare_sprite())
            group.create_task(self._plane.kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}"))
            group.create_task(self._prepare_cluster_and_operator())
        self._watch_over(*self._plane.process_ids.values())

    async def _start_plane(self) -> None:
        await self._plane.start()
        crd = self._plane.directory / "crd.yaml"
        crd.write_text(render_crd_text())
        await self._plane.install_crds(crd)

    async def _prepare_sprite(self) -> None:
        """Have a sprite that somebody uses already."""
        answer = await self._call_lab(
            "POST", "sprites", {"names": [SPRITE], "sessions": {"argv": list(HAND_MADE), "tty": True}}
        )
        self.hand_made_session = answer["sprites"][0]["sessions"][0]["id"]

    async def _prepare_cluster_and_operator(self) -> None:
        for namespace in (NAMESPACE, OPERATOR_NAMESPACE):
            await self._create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        secret = {"metadata": {"name": SECRET}, "stringData": {"token": self._emulator.token}}
        await self._create(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        for path, right in build_rights(self._settings.rules, secrets={NAMESPACE: [SECRET]}):
            await self._create(path, right)
        await self._admit_people()
        await self._start_operator()
        await self._start_gateway()

    async def _admit_people(self) -> None:
        """Give each of the people a role and a kubeconfig."""
        if not self._settings.people_rules:
            return
        for path, right in build_people_rights(self._settings.people_rules, PEOPLE, namespace=NAMESPACE):
            await self._create(path, right)
        for person in PEOPLE:
            self._people[person] = await self._plane.service_account_kubeconfig(
                NAMESPACE, person, expire_seconds=TOKEN_SECONDS
            )

    async def _start_gateway(self) -> None:
        """Start the gateway, where one is wanted, and wait until its doors are open."""
        command, rules = self._settings.gateway_command, self._settings.gateway_rules
        if command is None or rules is None:
            return
        for path, right in build_gateway_rights(rules, secrets={NAMESPACE: [SECRET]}):
            await self._create(path, right)
        kubeconfig = await self._plane.service_account_kubeconfig(
            OPERATOR_NAMESPACE, GATEWAY_NAME, expire_seconds=TOKEN_SECONDS
        )
        environment = {
            **_without_own(self._settings.environment),
            "AGENTTERMINAL_SPRITES_URL": self.sprites_url,
            "AGENTTERMINAL_GATEWAY_PORT": "0",
            "AGENTTERMINAL_GATEWAY_METRICS_PORT": "0",
            # Where the operator looks for the proof of its death.
            "AGENTTERMINAL_LEASE_NAMESPACE": OPERATOR_NAMESPACE,
            "AGENTTERMINAL_LOG_FORMAT": "json",
        }
        with self._gateway_log.open("ab") as log:
            self._gateway = await start_child(
                [*command, "--kubeconfig", str(kubeconfig)],
                janitor=self._plane.janitor,
                stdout=log,
                stderr=subprocess.STDOUT,
                environment=environment,
            )
        self._watch_over(self._gateway.pid)
        try:
            async with asyncio.timeout(READY_WITHIN.total_seconds()):
                while not self.gateway_url:
                    if self._gateway.returncode is not None:
                        raise WorldFailed(self._describe_end("gateway", self._gateway.returncode, self._gateway_log))
                    await asyncio.sleep(POLL_INTERVAL.total_seconds())
                    self.gateway_url = self._find_gateway()
        except TimeoutError:
            raise WorldFailed(
                f"The gateway is not ready after {READY_WITHIN.total_seconds():g} s."
                f" The end of its log:\n{_read_tail(self._gateway_log)}"
            ) from None

    @property
    def _gateway_log(self) -> Path:
        return self._plane.directory / "gateway.log"

    def _find_gateway(self) -> str:
        for line in self._gateway_log.read_text(errors="replace").splitlines():
            if f'"{GATEWAY_READY}"' in line:
                return f"http://127.0.0.1:{json.loads(line)['port']}"
        return ""

    async def _wait_gateway_ended(self, gateway: asyncio.subprocess.Process) -> str:
        return self._describe_end("gateway", await gateway.wait(), self._gateway_log)

    async def _start_operator(self) -> None:
        kubeconfig = await self._plane.service_account_kubeconfig(
            OPERATOR_NAMESPACE, OPERATOR_NAME, expire_seconds=TOKEN_SECONDS
        )
        environment = {
            **_without_own(self._settings.environment),
            "AGENTTERMINAL_SPRITES_URL": self.sprites_url,
            "AGENTTERMINAL_METRICS_PORT": "0",
            "AGENTTERMINAL_LEASE_NAMESPACE": OPERATOR_NAMESPACE,
            "AGENTTERMINAL_LOG_FORMAT": "json",
        }
        with self._operator_log.open("ab") as log:
            self._operator = await start_child(
                [*self._settings.operator_command, "--kubeconfig", str(kubeconfig)],
                janitor=self._plane.janitor,
                stdout=log,
                stderr=subprocess.STDOUT,
                environment=environment,
            )
        self._watch_over(self._operator.pid)
        try:
            async with asyncio.timeout(READY_WITHIN.total_seconds()):
                while not self._is_operator_ready():
                    if self._operator.returncode is not None:
                        raise WorldFailed(self._describe_end("operator", self._operator.returncode, self._operator_log))
                    await asyncio.sleep(POLL_INTERVAL.total_seconds())
        except TimeoutError:
            raise WorldFailed(
                f"The operator is not ready after {READY_WITHIN.total_seconds():g} s."
                f" The end of its log:\n{_read_tail(self._operator_log)}"
            ) from None

    @property
    def _operator_log(self) -> Path:
        return self._plane.directory / "operator.log"

    def _is_operator_ready(self) -> bool:
        return any(
            f'"{OPERATOR_READY}"' in line for line in self._operator_log.read_text(errors="replace").splitlines()
        )

    async def _wait_operator_ended(self) -> str:
        operator = self._operator
        if operator is None:
            raise ValueError("The operator was not started.")
        return self._describe_end("operator", await operator.wait(), self._operator_log)

    async def _wait_emulator_ended(self) -> str:
        await self._emulator.wait()
        return "The Sprites emulator has ended."

    def _describe_end(self, name: str, code: int, log: Path) -> str:
        how = f"was ended by {Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"The {name} {how}. The end of its log:\n{_read_tail(log)}"

    async def _create(self, path: str, body: object) -> None:
        status, answer = await self._plane.request("POST", path, body=body)
        if status != 201:
            reason = answer.get("message", "") if isinstance(answer, dict) else ""
            raise WorldFailed(f"The API server answered {status} to a POST at {path}: {reason}")

    async def _call_lab(self, method: str, path: str, body: object = None) -> Any:
        timeout = aiohttp.ClientTimeout(total=REQUEST_WITHIN.total_seconds())
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(
                method, f"{self.sprites_url}/_lab/{path}", data=None if body is None else json.dumps(body)
            ) as answer,
        ):
            if answer.status >= 400:
                raise WorldFailed(f"The emulator answered {answer.status} to {method} /_lab/{path}.")
            return await answer.json()


async def run_line(line: str, janitor: Janitor, *, environment: Mapping[str, str], within: timedelta) -> Completed:
    """
    Run a line with a shell; all that it started ends when it takes too long, and when we are cancelled or killed.

    Raises:
        WorldFailed: It did not end in time.
    """
    child = await start_child(
        ["sh", "-c", line],
        # A death signal would reach the shell alone, and not what it waits for.
        janitor=janitor,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        environment=environment,
    )
    try:
        async with asyncio.timeout(within.total_seconds()):
            output, _ = await child.communicate()
    except TimeoutError:
        raise WorldFailed(f"`{line}` did not end within {within.total_seconds():g} s.") from None
    finally:
        await stop_child(child, patience=timedelta(0))
        janitor.forget(child.pid)
    return Completed(output.decode(errors="replace"), "", child.returncode or 0)


def _read_tail(log: Path) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
    return "(no log)"


def _without_own(environment: Mapping[str, str]) -> dict[str, str]:
    """Keep a real token, a real address and a real cluster of the user out of the lab."""
    kept = {"AGENTTERMINAL_DEBUG"}
    return {
        name: value
        for name, value in environment.items()
        if name in kept or not (name.startswith(OWN_PREFIX) or name == "KUBECONFIG")
    }

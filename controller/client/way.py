"""
The way to the gateway: an address, or a port-forward as kubectl makes it.

Problem: most gateways have no address outside of their cluster, and a client that leaves a `kubectl` running for each
attach fills a machine. Promise: the way is open when `reach` returns; asked anew it is made anew, since a port-forward
ends with its pod; the `kubectl` ends with this process however that ends, kill -9 included; a token never travels
unencrypted but to this machine.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from controller.client.settings import AttachTimes
from controller.errors import AgentTerminalError
from controller.kube.errors import tidy

HTTPS_PORT: Final = 443
_LINE: Final = re.compile(r"Forwarding from 127\.0\.0\.1:([0-9]+) -> [0-9]+")
_TETHER: Final = (
    'exec 3<&0; read -r permit <&3 || exit; "$@" </dev/null & exec >/dev/null 2>&1; cat <&3; kill $! 2>/dev/null'
)
"""
Begins with our word, before which nobody knows of it: what is cancelled or killed until then never ran.

Ends what it runs as soon as its own standard input ends, which it does with us. What it runs alone keeps our pipes, so
that its end is seen; a process that was not waited for keeps its number, so the kill can hit nobody else.
"""


class WayClosed(AgentTerminalError):
    """The gateway cannot be reached. The text says what to do about it."""


@dataclass(frozen=True, slots=True)
class Service:
    """The gateway's Service, and its port for the doors."""

    namespace: str
    name: str
    port: int = HTTPS_PORT

    def __str__(self) -> str:
        return f"Service {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reached:
    """
    Where the gateway is now.

    Args:
        base: The address with the name by which it is spoken to: `https://host:port`, with a path where it has one.
        port: The port of this machine to connect to in its place; None: connect to the address itself.
    """

    base: str
    port: int | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether it is spoken to by TLS."""
        return self.base.startswith("https:")


class Way(Protocol):
    """How the gateway is reached."""

    async def reach(self) -> Reached:
        """
        Open the way, or open it anew.

        Raises:
            WayClosed: It does not open.
        """

    async def aclose(self) -> None:
        """Close it; closing twice is fine."""


@dataclass(frozen=True, slots=True)
class Address:
    """A given address, which `controller.settings.rules.URL` has read: https, or http to this machine."""

    base: str

    async def reach(self) -> Reached:
        """Give it."""
        return Reached(self.base.rstrip("/"))

    async def aclose(self) -> None:
        """Have nothing to close."""


class PortForward:
    """
    A way through the API server and kubelet to a pod of the gateway's Service.

    Args:
        kubectl: The program; None where there is none.
        service: To what.
        login: The options with which kubectl logs in as we do: `--kubeconfig`, `--context`.
        is_plain: The gateway speaks HTTP inside its pod. What kubectl forwards is encrypted up to the node.
        times: How long it may take.
    """

    def __init__(
        self, kubectl: str | None, service: Service, login: Sequence[str], times: AttachTimes, *, is_plain: bool
    ) -> None:
        self._kubectl = kubectl
        self._service = service
        self._login = tuple(login)
        self._times = times
        self._scheme = "http" if is_plain else "https"
        self._process: asyncio.subprocess.Process | None = None

    async def reach(self) -> Reached:
        """Start kubectl, and wait until it listens."""
        await self.aclose()
        if self._kubectl is None:
            raise WayClosed(
                "There is no kubectl on PATH to make a port-forward with. Install it, or give the gateway's address:"
                " --gateway https://…"
            )
        service = self._service
        self._process = process = await asyncio.create_subprocess_exec(
            *("sh", "-c", _TETHER, "sh", self._kubectl, "port-forward", *self._login),
            *("--address", "127.0.0.1", "--namespace", service.namespace),
            *(f"service/{service.name}", f":{service.port}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(b"permit\n")
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._times.forward.total_seconds()):
                line = (await process.stdout.readline()).decode(errors="replace")
        except TimeoutError:
            await self.aclose()
            limit = self._times.forward.total_seconds()
            raise WayClosed(f"kubectl port-forward to {service} did not listen within {limit:g} s.") from None
        match = _LINE.match(line)
        if match is None:
            raise WayClosed(await self._describe_failure())
        return Reached(f"{self._scheme}://{service.name}.{service.namespace}.svc:{service.port}", int(match[1]))

    async def aclose(self) -> None:
        """End kubectl."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        # Pipes that fill up would keep it from ending.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._times.farewell.total_seconds()):
                await process.communicate()
        if process.returncode is None:
            # Not the shell alone: it may not have come to end what it runs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _describe_failure(self) -> str:
        """Quote the last line that kubectl wrote before it ended."""
        process = self._process
        assert process is not None
        assert process.stderr is not None
        text = b""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._times.farewell.total_seconds()):
                text = await process.stderr.read()
        await self.aclose()
        lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
        said = f": {tidy(lines[-1])}" if lines else " without a word"
        return f"kubectl port-forward to {self._service} ended{said}"


def describe_host(base: str) -> str:
    """Name the host of an address, for a sentence."""
    parts = urlsplit(base)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

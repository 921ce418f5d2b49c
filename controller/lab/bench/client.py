"""
The loader's hand on the API server: an administrator with few connections.

An administrator's requests are never made to wait by the API server's fairness; those of the operator, which logs in as
a service account, are treated as in any cluster.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import orjson

from controller.api.names import GROUP, PLURAL, VERSION
from controller.lab.bench.counting import WRITES, ApiCounts, parse_counts
from controller.lab.bench.errors import BenchFailed
from controller.lab.bench.sizes import CLIENTS

NAMESPACE: Final = "bench"
TERMINALS: Final = f"/apis/{GROUP}/{VERSION}/namespaces/{NAMESPACE}/{PLURAL}"
MERGE_PATCH: Final = "application/merge-patch+json"
REQUEST_SECONDS: Final = 60.0


class ApiClient:
    """
    Requests to one API server; use it as `async with`.

    Args:
        url: Where it is.
        token: An administrator's.
        ca_file: What to trust.
    """

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self._url = url
        trust = ssl.create_default_context(cafile=str(ca_file))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CLIENTS + 1, ssl=trust),
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS),
        )
        self.terminal_writes = 0
        """Requests that were to change AgentTerminals, sent from here."""

    async def __aenter__(self) -> Self:
        """Be open."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._session.close()

    async def request(
        self, method: str, path: str, body: object = None, *, content_type: str = "application/json"
    ) -> bytes:
        """
        Send one request and give the body of its answer.

        Raises:
            BenchFailed: It was not answered, or not with success.
        """
        if method in WRITES and path.startswith(TERMINALS):
            self.terminal_writes += 1
        try:
            async with self._session.request(
                method,
                self._url + path,
                data=None if body is None else orjson.dumps(body),
                headers={"Content-Type": content_type},
            ) as answer:
                content = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise BenchFailed(f"The API server did not answer {method} {path}: {type(error).__name__}.") from error
        if answer.status >= 400:
            raise BenchFailed(f"The API server answered {answer.status} to {method} {path}: {_explain(content)}")
        return content

    async def is_served(self) -> bool:
        """Tell whether the API server knows the kind."""
        async with self._session.get(f"{self._url}{TERMINALS}?limit=1") as answer:
            return answer.status == 200

    async def create_terminal(self, name: str, spec: Mapping[str, Any]) -> None:
        """Create an AgentTerminal."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "AgentTerminal",
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.request("POST", TERMINALS, body)

    async def read_terminal(self, name: str) -> Mapping[str, Any]:
        """Read an AgentTerminal."""
        terminal: Mapping[str, Any] = orjson.loads(await self.request("GET", f"{TERMINALS}/{name}"))
        return terminal

    async def terminate(self, name: str) -> None:
        """Patch `terminated`, as kubectl does it."""
        await self.request("PATCH", f"{TERMINALS}/{name}", {"spec": {"terminated": True}}, content_type=MERGE_PATCH)

    async def delete_terminal(self, name: str) -> None:
        """Delete an AgentTerminal; its finalizer decides when it is gone."""
        await self.request("DELETE", f"{TERMINALS}/{name}")

    async def count(self) -> ApiCounts:
        """Read what the API server has counted."""
        return parse_counts((await self.request("GET", "/metrics")).decode())

    @asynccontextmanager
    async def watch(self, version: str, path: str = TERMINALS) -> AsyncIterator[aiohttp.ClientResponse]:
        """Watch the AgentTerminals, of another namespace by its path, during the body, from a version on."""
        async with self._session.get(
            f"{self._url}{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}",
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            yield answer


def _explain(content: bytes) -> str:
    """Take the server's sentence out of a Status."""
    try:
        return str(orjson.loads(content)["message"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "no reason given"

"""
Every state that objects of a namespace went through, as the API server's watch told it.

A test that polls sees what is there when it looks; what must never be seen, not even for a moment, needs the watch.
"""

import http.client
import json
import socket
import ssl
import threading
from collections import defaultdict
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tests.cluster.plane import Cluster
from tests.support.operator import GROUP_PATH
from tests.support.process import await_true

OPENED_WITHIN_SECONDS: Final = 60


class Recorder:
    """A watch in a thread of its own, from the beginning of a block to its end."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._path = f"{GROUP_PATH}/namespaces/{namespace}/agentterminals"
        self._states: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._gone: set[str] = set()
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._read, name="recorder", daemon=True)
        self._connection: http.client.HTTPSConnection | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._opened.wait(OPENED_WITHIN_SECONDS), "the watch did not begin"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._connection is not None
        if self._connection.sock is not None:
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(OPENED_WITHIN_SECONDS)
        self._connection.close()

    def states(self, name: str) -> list[dict[str, Any]]:
        """All states of an object so far, the last one of a deleted object included."""
        return list(self._states[name])

    def await_version(self, name: str, resource_version: str) -> None:
        """Wait until the watch has told of a state, or of a later one."""
        wanted = int(resource_version)

        def is_told() -> bool:
            return any(int(state["metadata"]["resourceVersion"]) >= wanted for state in self.states(name))

        await_true(is_told, f"the watch to tell of {name} at {resource_version}")

    def await_gone(self, name: str) -> None:
        """Wait until the watch has told of an object's end."""
        await_true(lambda: name in self._gone, f"the watch to tell of the end of {name}")

    def _read(self) -> None:
        address = urlsplit(self._cluster.url)
        trust = ssl.create_default_context(cafile=str(self._cluster.ca_file))
        self._connection = http.client.HTTPSConnection(address.netloc, context=trust)
        headers = {"Authorization": f"Bearer {self._cluster.admin_token}"}
        self._connection.request("GET", f"{self._path}?watch=true", headers=headers)
        response = self._connection.getresponse()
        self._opened.set()
        try:
            while line := response.readline():
                self._take(json.loads(line))
        except (OSError, http.client.HTTPException, ValueError):
            # The end of the block has cut it.
            return

    def _take(self, event: dict[str, Any]) -> None:
        state = event["object"]
        name = state["metadata"]["name"]
        if event["type"] == "DELETED":
            self._gone.add(name)
        self._states[name].append(state)

"""
What people do with AgentTerminals without a socket: with their own kubeconfig, against the API server alone.

Problem: a patch that was taken is not yet done, and a person who ended an agent wants to know that it is dead. Promise:
each write is one merge patch of the field it is about; whoever waits follows the object until the operator has judged
*this* generation of it; a wait is bounded.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any, Final

import orjson

from controller.api import names
from controller.clock import Clock
from controller.errors import AgentTerminalError
from controller.kube.calls import MERGE_PATCH, Call, Resource, Verb
from controller.kube.client import KubeClient
from controller.kube.errors import Conflict, Forbidden, NotFound
from controller.tenure import Tenure

FIELD_MANAGER: Final = "agentterminal-aterm"
"""
Whose writes these are in `managedFields`.

Not `kubectl-…`: Flux takes over what managers of such a name wrote and removes what is not in Git, so that the end of a
terminal would be taken back, and refused (docs/gitops.md).
"""

LOOK_EVERY: Final = timedelta(milliseconds=500)
"""Between two looks at an object that is followed: a person waits, and one of them is not many."""

JsonObject = dict[str, Any]


class NameTaken(AgentTerminalError):
    """There is an object of that name already."""


class NoTerminal(AgentTerminalError):
    """There is no object of that name."""


class NoNamespace(AgentTerminalError):
    """There is no namespace of that name."""


class Objects:
    """
    AgentTerminals, as one person may read and write them.

    Args:
        kube: Logged in as that person.
        clock: For waits.
    """

    def __init__(self, kube: KubeClient, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        # A person holds no Lease: what they ask for is theirs to ask for.
        self._tenure = Tenure(0)

    async def read(self, namespace: str, name: str) -> JsonObject:
        """
        Read one.

        Raises:
            NoTerminal: There is none of that name.
        """
        try:
            return await self._kube.get(namespace, name)
        except NotFound:
            raise _miss(namespace, name) from None

    async def list_all(self, namespace: str | None) -> list[JsonObject]:
        """
        List those of one namespace, or of all.

        To the API server a namespace that does not exist is an empty one. A person has mistyped it, so that it is
        looked for where nothing was found and they may look.

        Raises:
            NoNamespace: It is known that there is no such namespace.
        """
        namespaces = None if namespace is None else [namespace]
        pages = self._kube.list_pages(metadata_only=False, namespaces=namespaces)
        found: list[JsonObject] = []
        async for page in pages:
            found = [*([] if page.begins else found), *page.items]
        if namespace is not None and not found:
            await self._demand_namespace(namespace)
        return found

    async def _demand_namespace(self, namespace: str) -> None:
        try:
            await self._kube.read(Call(verb=Verb.GET, resource=Resource.NAMESPACES, name=namespace))
        except NotFound:
            raise NoNamespace(
                f"There is no namespace {namespace}. `kubectl aterm ps -A` lists the terminals of all namespaces."
            ) from None
        except Forbidden:
            # Nobody need know whether it exists who may not ask.
            return

    async def terminate(self, namespace: str, name: str) -> JsonObject:
        """Ask for the end of the session; it cannot be taken back."""
        return await self._patch_spec(namespace, name, {"terminated": True})

    async def want_hold(self, namespace: str, name: str, *, wanted: bool) -> JsonObject:
        """Say whether the sprite is to be kept from pausing while there is work."""
        return await self._patch_spec(namespace, name, {"holdWanted": wanted})

    async def adopt(self, namespace: str, name: str, spec: Mapping[str, Any]) -> JsonObject:
        """
        Declare a session that runs already.

        Raises:
            NameTaken: There is an object of that name. A session is named at creation only.
        """
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": dict(spec),
        }
        call = Call(
            verb=Verb.CREATE,
            resource=Resource.TERMINALS,
            namespace=namespace,
            query={"fieldManager": FIELD_MANAGER},
            body=orjson.dumps(body),
        )
        try:
            return await self._kube.write(call, tenure=self._tenure)
        except Conflict:
            raise NameTaken(
                f"There is an AgentTerminal {namespace}/{name} already, and a session is named at creation only. Choose"
                f" another name, or delete that one first."
            ) from None

    async def list_events(self, namespace: str, name: str) -> list[JsonObject]:
        """List the Events about one object."""
        selector = f"regarding.kind={names.KIND},regarding.name={name}"
        call = Call(
            verb=Verb.LIST,
            resource=Resource.EVENTS,
            namespace=namespace,
            query={"fieldSelector": selector, "limit": "500"},
        )
        answer = await self._kube.read(call)
        items = answer.get("items")
        return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []

    async def follow(self, namespace: str, name: str, *, within: timedelta) -> AsyncIterator[JsonObject]:
        """Give the object again and again, at once and until the time is over."""
        end = self._clock.monotonic() + within
        while True:
            yield await self.read(namespace, name)
            if self._clock.monotonic() >= end:
                return
            await self._clock.sleep(LOOK_EVERY)

    async def _patch_spec(self, namespace: str, name: str, fields: Mapping[str, Any]) -> JsonObject:
        call = Call(
            verb=Verb.PATCH,
            resource=Resource.TERMINALS,
            namespace=namespace,
            name=name,
            query={"fieldManager": FIELD_MANAGER},
            body=orjson.dumps({"spec": dict(fields)}),
            content_type=MERGE_PATCH,
        )
        try:
            return await self._kube.write(call, tenure=self._tenure)
        except NotFound:
            raise _miss(namespace, name) from None


def _miss(namespace: str, name: str) -> NoTerminal:
    return NoTerminal(
        f"There is no AgentTerminal {namespace}/{name}. `kubectl aterm ps -A` lists those of all namespaces."
    )

"""
What the operator writes to the Kubernetes API: its finalizer and the status, each against the object that was judged.

Every write names the uid and the resource version it was decided on, so a late one never lands on a successor of the
same name, and never undoes what somebody else wrote meanwhile. When the object has moved on, it is read again and
`Outrun` is raised: the visit begins anew with what is there now.
"""

from collections.abc import Callable, Mapping
from typing import Any, Never, Protocol

from controller.api.lacking import leave_out
from controller.api.names import FINALIZER
from controller.api.terminal import FRAME, TerminalStatus, read_status, render_status
from controller.engine.registry import Change, Registry, Snapshot
from controller.errors import AgentTerminalError
from controller.kube.errors import Conflict, Invalid, NotFound
from controller.kube.patches import build_add_finalizer, build_remove_finalizer, build_status_patch
from controller.plan.news import GATEWAYS_PARTS
from controller.tenure import Tenure


class Objects(Protocol):
    """The part of the Kubernetes client that is needed here."""

    async def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Read one object, consistently."""

    async def patch_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, tenure: Tenure
    ) -> dict[str, Any]:
        """Merge a patch into the status subresource."""

    async def patch_json(
        self, namespace: str, name: str, operations: list[dict[str, Any]], *, subresource: str | None, tenure: Tenure
    ) -> dict[str, Any]:
        """Apply a JSON patch."""


class Outrun(AgentTerminalError):
    """The object has moved on, or is gone; the registry knows what is there now."""


class Writer:
    """
    The operator's hand on one kind of object.

    Args:
        objects: The Kubernetes API.
        registry: Takes in each answer, so that our own writes never come back as news.
        tenure: Permits the writes.
        on_known: Told each state that the registry took in here.
        lacking: The fields of the status that the installed CRD does not have.
    """

    def __init__(
        self,
        objects: Objects,
        registry: Registry,
        tenure: Tenure,
        *,
        on_known: Callable[[Snapshot], None],
        lacking: frozenset[str] = frozenset(),
    ) -> None:
        self._objects = objects
        self._registry = registry
        self._tenure = tenure
        self._on_known = on_known
        self._lacking = lacking

    def fit(self, status: TerminalStatus) -> TerminalStatus:
        """Leave out what the installed CRD cannot hold: it would be written, dropped and written again for ever."""
        return read_status(self._render(status)) if self._lacking else status

    async def place_finalizer(self, snapshot: Snapshot) -> Snapshot:
        """Put our finalizer on, and give the object as it is then."""
        operations = build_add_finalizer(_describe(snapshot), FINALIZER)
        return await self._patch(snapshot, operations) if operations else snapshot

    async def remove_finalizer(self, snapshot: Snapshot) -> None:
        """Take our finalizer off, unless a gateway holds the lock; the object may be gone with it."""
        operations = build_remove_finalizer(_describe(snapshot), FINALIZER, demand_free_socket=True)
        if not operations:
            return
        left = await self._patch(snapshot, operations)
        if left.deleted is not None and not left.finalizers:
            self._registry.forget(snapshot.uid)

    async def sweep(self, snapshot: Snapshot, operations: list[dict[str, Any]]) -> Snapshot:
        """
        Clear what a dead gateway left in the status, and give the object as it is then.

        The patch tests what it removes, and no version: what others wrote meanwhile may come with its answer.

        Raises:
            Outrun: It has changed, the spec included, or is gone.
        """
        swept = await self._patch(snapshot, operations, subresource="status")
        if swept.generation != snapshot.generation:
            raise Outrun(f"AgentTerminal {snapshot.namespace}/{snapshot.name} has changed meanwhile.")
        return swept

    async def write_status(self, snapshot: Snapshot, status: TerminalStatus) -> Snapshot:
        """Write what differs of the status, and give the object as it is then."""
        old, new = snapshot.status(), self._render(status)
        for part in GATEWAYS_PARTS:
            old.pop(part, None)
            new.pop(part, None)
        return await self._merge_status(snapshot, build_status_patch(old, new))

    async def write_frame(self, snapshot: Snapshot, status: TerminalStatus) -> Snapshot:
        """
        Write what differs of how far the operator got, and leave the rest as it is stored, readable or not.

        Raises:
            Invalid: The stored object does not admit it.
            Outrun: The object has moved on, or is gone.
        """
        old, new = (
            {part: value for part, value in whole.items() if part in FRAME}
            for whole in (snapshot.status(), self._render(status))
        )
        return await self._merge_status(snapshot, build_status_patch(old, new))

    async def _merge_status(self, snapshot: Snapshot, status: dict[str, Any]) -> Snapshot:
        known = self._registry.get(snapshot.uid)
        if known is not None and known.version > snapshot.version:
            # It would be refused, and the API server counts and pays for that like for any other write.
            raise Outrun(f"AgentTerminal {snapshot.namespace}/{snapshot.name} has changed meanwhile.")
        patch = {
            "metadata": {"uid": snapshot.uid, "resourceVersion": snapshot.resource_version},
            "status": status,
        }
        try:
            answer = await self._objects.patch_status(snapshot.namespace, snapshot.name, patch, tenure=self._tenure)
        except (Conflict, Invalid, NotFound) as error:
            await self._read_again(snapshot, error)
        return self._take(answer)

    def _render(self, status: TerminalStatus) -> dict[str, Any]:
        rendered = render_status(status)
        return leave_out(rendered, self._lacking) if self._lacking else rendered

    async def reread(self, snapshot: Snapshot) -> Snapshot:
        """
        Read the object consistently, and give it if it is as it was.

        Raises:
            Outrun: It has changed, or is gone.
        """
        try:
            current = Snapshot.of(await self._objects.get(snapshot.namespace, snapshot.name))
        except NotFound as error:
            self._registry.forget(snapshot.uid)
            raise Outrun(f"AgentTerminal {snapshot.namespace}/{snapshot.name} is gone.") from error
        if current.uid == snapshot.uid and current.version == snapshot.version:
            return current
        if current.uid != snapshot.uid:
            self._registry.forget(snapshot.uid)
        if self._registry.observe(current) is not Change.STALE:
            self._on_known(current)
        raise Outrun(f"AgentTerminal {snapshot.namespace}/{snapshot.name} has changed meanwhile.")

    async def _patch(
        self, snapshot: Snapshot, operations: list[dict[str, Any]], *, subresource: str | None = None
    ) -> Snapshot:
        try:
            answer = await self._objects.patch_json(
                snapshot.namespace, snapshot.name, operations, subresource=subresource, tenure=self._tenure
            )
        except (Conflict, Invalid, NotFound) as error:
            await self._read_again(snapshot, error)
        return self._take(answer)

    def _take(self, answer: Mapping[str, Any]) -> Snapshot:
        written = Snapshot.of(answer)
        if self._registry.observe(written) is not Change.STALE:
            self._on_known(written)
        return written

    async def _read_again(self, snapshot: Snapshot, error: Conflict | Invalid | NotFound) -> Never:
        """Find out what became of the object, and let the visit begin anew; a rule that spoke is no race."""
        if isinstance(error, Invalid) and error.spoke:
            raise error
        try:
            current = Snapshot.of(await self._objects.get(snapshot.namespace, snapshot.name))
        except NotFound:
            self._registry.forget(snapshot.uid)
            raise Outrun(f"AgentTerminal {snapshot.namespace}/{snapshot.name} is gone.") from error
        if current.uid != snapshot.uid:
            self._registry.forget(snapshot.uid)
        if self._registry.observe(current) is not Change.STALE:
            self._on_known(current)
        raise Outrun(f"AgentTerminal {snapshot.namespace}/{snapshot.name} has changed meanwhile.") from error


def _describe(snapshot: Snapshot) -> dict[str, Any]:
    described: dict[str, Any] = {
        "metadata": {
            "uid": snapshot.uid,
            "resourceVersion": snapshot.resource_version,
            "finalizers": list(snapshot.finalizers),
        }
    }
    status = snapshot.status()
    return {**described, "status": status} if status else described

"""
The fence's calls to the API server, and what their answers mean to it.

Problem: the fence knows six answers to a write, the API server a hundred ways to fail. Promise: every failure is read
as one of them, and whether a write happened is never guessed: it did, it surely did not, or nobody knows.

Source: gateway.md 1 and 3, rule 5.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Protocol

from controller.gateway.wishes import Target
from controller.kube.credentials import CredentialsUnusable
from controller.kube.errors import (
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    Rejected,
    Throttled,
    Unauthorized,
)
from controller.plan.fence import Accepted, Answer, Lost, MovedOn, NotNow, ObjectGone, RuleSpoke
from controller.plan.fence_ids import LEASE_ELSEWHERE, has_lease_elsewhere
from controller.plan.fence_objects import LeaseLook, LeaseView, NoLease, view_lease, view_object
from controller.plan.fence_patches import JsonPatch, name_lease
from controller.plan.fence_tenure import RULES, BreakAnswer, Broken, NotBroken
from controller.tenure import Tenure, TenureEnded

log: Final = logging.getLogger(__name__)

JsonObject = dict[str, Any]

LEASE_TIMEOUT: Final = RULES.timeout


class FenceKube(Protocol):
    """The calls that the fence makes: `controller.kube.client.KubeClient`. They raise `KubeError`."""

    async def get(self, namespace: str, name: str) -> JsonObject:
        """Read one AgentTerminal, consistently."""

    async def patch_json(
        self,
        namespace: str,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        tenure: Tenure,
    ) -> JsonObject:
        """Change an AgentTerminal by JSON patch."""

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> JsonObject:
        """Read a Lease, consistently."""

    async def put_lease(self, lease: Mapping[str, Any], *, timeout: timedelta) -> JsonObject:
        """Write a Lease over the version that it carries."""


class CallFailed(Exception):
    """A read gave no answer."""


@dataclass(frozen=True, slots=True)
class Written:
    """The answer to a write, and the object where it came with one."""

    answer: Answer
    raw: JsonObject | None = None


class FenceCalls:
    """
    Sends what the fence asks for.

    Args:
        kube: The API server, with a bound that fits a person who waits.
        lease_namespace: Where the Leases of gateways lie.
    """

    def __init__(self, kube: FenceKube, lease_namespace: str) -> None:
        self._kube = kube
        self._lease_namespace = lease_namespace
        self._told: set[str] = set()

    async def read(self, target: Target) -> JsonObject | None:
        """
        Read an object consistently; None where there is none of that name.

        Raises:
            CallFailed: Nobody knows.
        """
        try:
            return await self._kube.get(target.namespace, target.name)
        except NotFound:
            return None
        except (KubeError, CredentialsUnusable) as error:
            raise CallFailed(str(error)) from None

    async def write(self, target: Target, patch: JsonPatch, *, status: bool, tenure: Tenure) -> Written:
        """Patch an object, or its status."""
        try:
            raw = await self._kube.patch_json(
                target.namespace, target.name, patch, subresource="status" if status else None, tenure=tenure
            )
        except KubeError as error:
            return Written(judge_failure(error))
        except (CredentialsUnusable, TenureEnded):
            return Written(NotNow())
        return Written(Accepted(view_object(raw)), raw)

    async def read_lease(self, incarnation: str) -> LeaseLook:
        """
        Read the Lease of a gateway consistently.

        Raises:
            CallFailed: Nobody knows; the Lease of one that keeps it in another namespace is never known here.
        """
        if has_lease_elsewhere(incarnation, lease_namespace=self._lease_namespace):
            if incarnation not in self._told:
                self._told.add(incarnation)
                log.error(LEASE_ELSEWHERE, extra={"incarnation": incarnation, "looked_in": self._lease_namespace})
            raise CallFailed(LEASE_ELSEWHERE)
        try:
            raw = await self._kube.get_lease(self._lease_namespace, name_lease(incarnation), timeout=LEASE_TIMEOUT)
        except NotFound:
            return NoLease()
        except (KubeError, CredentialsUnusable) as error:
            raise CallFailed(str(error)) from None
        return view_lease(raw)

    async def break_lease(self, incarnation: str, lease: LeaseView) -> BreakAnswer:
        """Write an empty holder over this very version of a Lease."""
        body = render_lease(self._lease_namespace, incarnation, lease, holder="")
        try:
            await self._kube.put_lease(body, timeout=LEASE_TIMEOUT)
        except (KubeError, CredentialsUnusable):
            return NotBroken()
        return Broken()


def render_lease(
    namespace: str, incarnation: str, lease: LeaseView | None, *, holder: str, renewed: str | None = None
) -> JsonObject:
    """
    Write a gateway's Lease.

    Args:
        namespace: Where it lies.
        incarnation: Whose it is.
        lease: The version that is written over; None where it is created.
        holder: The incarnation, or nobody where it is broken.
        renewed: For people who look at it; nobody's proof.
    """
    metadata = {"name": name_lease(incarnation), "namespace": namespace}
    if lease is not None:
        metadata |= {"uid": lease.uid, "resourceVersion": lease.version}
    spec: JsonObject = {"holderIdentity": holder, "leaseDurationSeconds": int(RULES.lease.total_seconds())}
    if renewed is not None:
        spec["renewTime"] = renewed
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def judge_failure(error: KubeError) -> Answer:
    """Read a failed write as one of the fence's answers. Total."""
    match error:
        case Invalid(spoke=True):
            return RuleSpoke(" ".join(cause.message for cause in error.causes) or error.message)
        case Invalid() | Conflict() | Gone():
            return MovedOn()
        case NotFound():
            return ObjectGone()
        case Throttled():
            return NotNow()
        case Unauthorized() | Forbidden() | Rejected():
            return RuleSpoke(error.message)
        case _:
            # A 5xx says that it may have happened; a broken connection may say that it did not.
            return Lost() if error.may_have_happened else NotNow()

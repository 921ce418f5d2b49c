"""
The words for one call: what it does, to which kind of thing, and how it went.

Problem: metrics need labels from a closed list, and paths written by hand go wrong in the group. Promise: every kind of
thing that we ask for stands here once with its path; every call reports itself in these words.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import quote

from controller.api import names
from controller.errors import Failure


class Verb(StrEnum):
    """What a call does, in the words of RBAC."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"


_METHODS: Final[Mapping[Verb, str]] = {
    Verb.GET: "GET",
    Verb.LIST: "GET",
    Verb.WATCH: "GET",
    Verb.CREATE: "POST",
    Verb.UPDATE: "PUT",
    Verb.PATCH: "PATCH",
    Verb.DELETE: "DELETE",
}
READS: Final = frozenset({Verb.GET, Verb.LIST, Verb.WATCH})


class Resource(StrEnum):
    """Every kind of thing that we ask for, in the words of RBAC: a subresource follows a slash."""

    TERMINALS = names.PLURAL
    TERMINAL_STATUS = f"{names.PLURAL}/status"
    LEASES = "leases"
    SECRETS = "secrets"
    EVENTS = "events"
    CRDS = "customresourcedefinitions"
    CONFIG_MAPS = "configmaps"
    TOKEN_REVIEWS = "tokenreviews"
    ACCESS_REVIEWS = "subjectaccessreviews"
    ACCOUNT_TOKENS = "serviceaccounts/token"
    SERVICES = "services"
    NAMESPACES = "namespaces"


_ROOTS: Final[Mapping[Resource, str]] = {
    Resource.TERMINALS: f"/apis/{names.API_VERSION}",
    Resource.TERMINAL_STATUS: f"/apis/{names.API_VERSION}",
    Resource.LEASES: "/apis/coordination.k8s.io/v1",
    Resource.SECRETS: "/api/v1",
    Resource.EVENTS: "/apis/events.k8s.io/v1",
    Resource.CRDS: "/apis/apiextensions.k8s.io/v1",
    Resource.CONFIG_MAPS: "/api/v1",
    Resource.TOKEN_REVIEWS: "/apis/authentication.k8s.io/v1",
    Resource.ACCESS_REVIEWS: "/apis/authorization.k8s.io/v1",
    Resource.ACCOUNT_TOKENS: "/api/v1",
    Resource.SERVICES: "/api/v1",
    Resource.NAMESPACES: "/api/v1",
}

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    One call to the API server.

    Args:
        verb: What it does.
        resource: To what kind of thing.
        namespace: Where; None for things without a namespace, and for lists over all namespaces.
        name: Which one; None for lists and creates.
        query: The query string's parameters.
        body: What is sent, ready for the wire.
        content_type: How the body is to be read.
        accept: How the answer is to be written.
        timeout: The whole of it; None is the settings' `request_timeout`.
    """

    verb: Verb
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    accept: str = JSON
    timeout: timedelta | None = None

    @property
    def method(self) -> str:
        """The HTTP method of the verb."""
        return _METHODS[self.verb]

    @property
    def path(self) -> str:
        """The path with its query string, escaped and ready for the wire."""
        plural, _, subresource = self.resource.partition("/")
        parts = [_ROOTS[self.resource]]
        if self.namespace is not None:
            parts += ["namespaces", quote(self.namespace, safe="")]
        parts.append(plural)
        if self.name is not None:
            parts.append(quote(self.name, safe=""))
        if subresource:
            parts.append(subresource)
        path = "/".join(parts)
        if not self.query:
            return path
        return path + "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in self.query.items())

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part is not None)
        return f"{self.verb} {self.resource} {where}".rstrip()


class Unsettled(StrEnum):
    """Outcomes of a call that are neither success nor a failure of the outside."""

    CANCELLED = "Cancelled"
    """The caller gave up."""
    WITHHELD = "Withheld"
    """Not sent: the tenure had ended, or there were no credentials."""


class Succeeded(StrEnum):
    """The outcome of a call that did what was asked."""

    OK = "Ok"


Outcome: TypeAlias = Succeeded | Unsettled | Failure
"""How a call went. Its values are all the values of the metric's label."""


@dataclass(frozen=True, slots=True)
class KubeCallReport:
    """One call that is over; its duration includes the wait for a connection, not the wait for a turn."""

    verb: Verb
    resource: Resource
    outcome: Outcome
    duration: timedelta


OnCall: TypeAlias = Callable[[KubeCallReport], None]
"""Who is told of each call. It must not block and must not raise."""

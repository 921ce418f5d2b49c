"""
How the client of the Kubernetes API is set.

Problem: a client with the defaults of its library waits for five minutes and opens hundreds of connections. Promise:
each number says what it weighs, and values that contradict each other are refused with one sentence per fault.
Source: design.md 4.2; docs/decisions/2026-11-30-kubernetes-http-client.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from controller.api import names

_NO_TIME: Final = timedelta(0)

SERVICE_ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Source: kubernetes.io, "Accessing the Kubernetes API from a Pod" (read 2026-11)."""


@dataclass(frozen=True, slots=True)
class InCluster:
    """
    The pod's own service account. `token`, `ca.crt` and `namespace` lie in its folder and are re-read: they rotate.

    Args:
        host: The value of `KUBERNETES_SERVICE_HOST`.
        port: The value of `KUBERNETES_SERVICE_PORT`.
        folder: Where the three files lie.
    """

    host: str
    port: str
    folder: Path = SERVICE_ACCOUNT_FOLDER


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """
    One or more kubeconfig files.

    Args:
        paths: A list separated by colons, as in `$KUBECONFIG`; files that are missing are passed over.
        context: The context to use; None is the files' `current-context`.
    """

    paths: str = "~/.kube/config"
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeSettings:
    """How the API server is found and how it is spoken to."""

    login: InCluster | Kubeconfig = field(default_factory=Kubeconfig)

    field_manager: str = names.FIELD_MANAGER
    """Whose writes these are in `managedFields`."""

    connections: int = 8
    """From four on the server is the limit; eight leave room for a long list beside the writes. Measured."""

    in_flight: int = 16
    """As many requests at once as there are workers. Those beyond `connections` wait for one."""

    request_timeout: timedelta = timedelta(seconds=20)
    """The whole of one request, its wait for a connection included. Lease calls bring a shorter one of their own."""

    connect_timeout: timedelta = timedelta(seconds=5)
    """TCP and TLS. A server on its way out answers nobody; another try may reach its successor."""

    watch_silence: timedelta = timedelta(seconds=150)
    """A watch that says nothing for so long is begun again: its bookmarks come about once a minute."""

    idle_timeout: timedelta = timedelta(seconds=60)
    """
    How long an idle connection is kept: below the server's own 90 s, so that we close first and no write is sent into
    a connection that is being closed. Source: k8s.io/apiserver, secure_serving.go, `IdleTimeout` (read 2026-11).
    """

    page_objects: int = 500
    """Objects in a page of a list: 1.7 MB and 30 ms of the server's CPU for terminals of 3 KB. Measured."""

    list_passes: int = 3
    """A list whose version expires between two pages begins again; more than this often, and it fails."""

    login_timeout: timedelta = timedelta(seconds=30)
    """How long an exec plugin may take."""

    token_reread: timedelta = timedelta(minutes=1)
    """A token that lies in a file is read again this often, as client-go does; it rotates well before its end."""

    expiry_margin: timedelta = timedelta(minutes=5)
    """A token that tells its end is renewed this long before it, or at 80 % of its life if that is later."""

    reload_pause: timedelta = timedelta(seconds=10)
    """After a reload that brought nothing new, the next one waits this long: a stray 401 starts no storm of plugins."""

    def __post_init__(self) -> None:
        faults = list(self._faults())
        if faults:
            raise ValueError(" ".join(faults))

    def _faults(self) -> Iterator[str]:
        if not 4 <= self.connections <= 16:
            yield "connections must be from 4 to 16."
        if self.in_flight < self.connections:
            yield "in_flight must be at least connections, or some of them would never be used."
        if not 1 <= self.page_objects <= 5000:
            yield "page_objects must be from 1 to 5,000."
        if self.list_passes < 1:
            yield "list_passes must be at least 1."
        for name in (
            "request_timeout",
            "connect_timeout",
            "idle_timeout",
            "login_timeout",
            "token_reread",
            "watch_silence",
        ):
            if getattr(self, name) <= _NO_TIME:
                yield f"{name} must be longer than zero."
        for name in ("expiry_margin", "reload_pause"):
            if getattr(self, name) < _NO_TIME:
                yield f"{name} must not be negative."
        if self.connect_timeout > self.request_timeout:
            yield "connect_timeout must be at most request_timeout."

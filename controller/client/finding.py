"""
The gateway's Service, found by the labels that the chart puts on it.

Problem: whoever attaches rarely knows what a release is called, or where it lies; and whoever is taken for the gateway
is given a token. Promise: exactly one Service that has the labels and the port of the doors is taken, and named to the
person; none, two, or no right to list them is a sentence with the way out, and never a guess. Whether what answers is
the gateway says its certificate, so that one without TLS is not searched for in namespaces that nobody named.
Source: `charts/agentterminal-operator/templates/gateway-service.yaml`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from controller.client.way import Reached, Service, Way, WayClosed
from controller.kube.calls import Call, Resource, Verb
from controller.kube.errors import Forbidden, tidy

LABELS: Final[Mapping[str, str]] = {
    "app.kubernetes.io/name": "agentterminal-operator",
    "app.kubernetes.io/component": "gateway",
}
"""Whatever the release is called. The Service of the metrics bears them too."""

DOORS: Final = "doors"
"""The name of the port, by which the doors are told from the metrics."""

_NAME_IT: Final = (
    "Name it (--gateway-service NAMESPACE/NAME, or AGENTTERMINAL_ATTACH_SERVICE), or give its address (--gateway, or"
    " AGENTTERMINAL_ATTACH_URL)."
)
_NAMED: Final = 5
"""How many are named where there are too many."""

JsonObject = Mapping[str, Any]


class ServiceKube(Protocol):
    """The call that it takes: `controller.kube.client.KubeClient`."""

    async def read(self, call: Call) -> dict[str, Any]:
        """Read."""


class LabelledForward:
    """
    A port-forward to the Service that is found by its labels, once.

    Args:
        kube: Logged in as the person.
        namespace: Where to look; None is everywhere.
        build: Makes the way to what was found.
        on_found: Told what was found, before anything is sent to it.
    """

    def __init__(
        self,
        kube: ServiceKube,
        namespace: str | None,
        build: Callable[[Service], Way],
        on_found: Callable[[Service], None],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._build = build
        self._on_found = on_found
        self._way: Way | None = None

    async def reach(self) -> Reached:
        """Find it where it was not found yet, then open the way."""
        if self._way is None:
            service = await find_service(self._kube, self._namespace)
            self._on_found(service)
            self._way = self._build(service)
        return await self._way.reach()

    async def aclose(self) -> None:
        """Close the way, if there is one."""
        if self._way is not None:
            await self._way.aclose()


async def find_service(kube: ServiceKube, namespace: str | None) -> Service:
    """
    Find the gateway's Service by its labels.

    Args:
        kube: Logged in as the person.
        namespace: Where to look; None is everywhere.

    Raises:
        WayClosed: There is none, there is more than one, or the person may not look.
    """
    selector = ",".join(f"{label}={value}" for label, value in LABELS.items())
    call = Call(
        verb=Verb.LIST,
        resource=Resource.SERVICES,
        namespace=namespace,
        query={"labelSelector": selector, "limit": "100"},
    )
    try:
        answer = await kube.read(call)
    except Forbidden:
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        less = " Where you may list them in its namespace: --gateway-service NAMESPACE." if namespace is None else ""
        raise WayClosed(
            f"It is not known where the gateway is, and you may not list Services in {where} to find it by its labels."
            f" {_NAME_IT}{less}"
        ) from None
    items = answer.get("items")
    found = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    return choose_service(found, namespace)


def choose_service(found: Sequence[JsonObject], namespace: str | None) -> Service:
    """
    Choose among Services that have the labels. Pure.

    Args:
        found: As the API server lists them.
        namespace: Where they were looked for; None is everywhere.

    Raises:
        WayClosed: Not exactly one of them has the port of the doors.
    """
    services = sorted(
        (service for service in map(_read_service, found) if service is not None),
        key=lambda service: (service.namespace, service.name),
    )
    match services:
        case [service]:
            return service
        case []:
            labels = " and ".join(f"{label}: {value}" for label, value in LABELS.items())
            raise WayClosed(
                f"It is not known where the gateway is: no Service {_where(namespace)} has its labels ({labels}) and a"
                f" port named {DOORS}. Is it installed (gateway.enabled in the chart)? {_NAME_IT}"
            )
        case _:
            names = ", ".join(f"{service.namespace}/{service.name}" for service in services[:_NAMED])
            more = f" and {len(services) - _NAMED} more" if len(services) > _NAMED else ""
            raise WayClosed(
                f"It is not known which gateway is meant: {len(services)} Services {_where(namespace)} have its labels:"
                f" {names}{more}. {_NAME_IT}"
            )


def _where(namespace: str | None) -> str:
    return "in any namespace" if namespace is None else f"in namespace {namespace}"


def _read_service(item: JsonObject) -> Service | None:
    """Read a Service that has the port of the doors; any other is none."""
    match item:
        case {"metadata": {"name": str(name), "namespace": str(namespace)}, "spec": {"ports": list(ports)}}:
            for port in ports:
                match port:
                    case {"name": str(port_name), "port": int(number)} if port_name == DOORS:
                        return Service(tidy(namespace), tidy(name), number)
                    case _:
                        pass
    return None

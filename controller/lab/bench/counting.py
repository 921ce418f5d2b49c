"""
What the API server counted.

Its own counter tells every request with verb and resource, whoever sent it, and whatever it was answered; so nobody has
to be trusted to count what he sends himself. Leases are not counted: they are the price of leading, not of objects.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.api.names import GROUP, PLURAL

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})

_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_CLOSED: Final = re.compile(rf'^apiserver_terminated_watchers_total\{{.*resource="{PLURAL}".*\}} (\S+)$', re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class ApiCounts:
    """What was counted since the start of the API server."""

    writes: int
    """Requests that were to change AgentTerminals, by anybody."""
    refused: int
    """Those of them that were not answered with success."""
    events: int
    """Requests that were to change Events."""
    watches_closed: int
    """Watches of AgentTerminals that the server closed because somebody read too slowly."""

    def since(self, before: "ApiCounts") -> "ApiCounts":
        """Tell what came on top."""
        return ApiCounts(
            self.writes - before.writes,
            self.refused - before.refused,
            self.events - before.events,
            self.watches_closed - before.watches_closed,
        )


def parse_counts(text: str) -> ApiCounts:
    """Read the API server's metrics, in Prometheus' text format."""
    writes = refused = events = 0
    for labels, count in _read_writes(text):
        match labels.get("group"), labels.get("resource"):
            case (group, resource) if (group, resource) == (GROUP, PLURAL):
                writes += count
                refused += count if not labels.get("code", "").startswith("2") else 0
            case _, "events":
                events += count
    closed = sum(int(float(value)) for value in _CLOSED.findall(text))
    return ApiCounts(writes, refused, events, closed)


def _read_writes(text: str) -> Iterator[tuple[Mapping[str, str], int]]:
    for labels, value in _REQUESTS.findall(text):
        named = dict(_LABEL.findall(labels))
        if named.get("verb") in WRITES:
            yield named, int(float(value))

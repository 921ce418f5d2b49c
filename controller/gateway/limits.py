"""
How much anybody gets: by address before authentication, by person, by object and in all.

Problem: whoever is not known yet costs calls to the API server, and whoever is known may still open sockets without
end. Promise: each count is bounded and given back exactly once; what is remembered about addresses is bounded too.
Source: gateway.md 6.
"""

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from controller.clock import Clock
from controller.gateway.refusals import RefusalCause, refuse
from controller.gateway.settings import LimitSettings

_SECOND: Final = timedelta(seconds=1)
_SOON: Final = timedelta(seconds=5)
"""When to try again where a place gets free with the next socket that closes."""


@dataclass(slots=True)
class _Bucket:
    """What one address has left. `left` may be a fraction."""

    left: float
    since: timedelta


class AddressLimit:
    """
    A bucket of requests for each address, refilled at a steady rate.

    Args:
        settings: Rate, burst, and how many addresses are remembered.
        clock: For the refill.
    """

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def demand(self, address: str) -> None:
        """
        Take one request from the address's bucket.

        Raises:
            Refused: It is empty.
        """
        key, now, rate = _group_address(address), self._clock.monotonic(), self._settings.address_requests_per_second
        bucket = self._buckets.pop(key, None) or _Bucket(self._settings.address_burst, now)
        filled = bucket.left + (now - bucket.since) / _SECOND * rate
        bucket.left, bucket.since = min(float(self._settings.address_burst), filled), now
        self._buckets[key] = bucket
        if len(self._buckets) > self._settings.addresses:
            self._buckets.popitem(last=False)
        if bucket.left < 1:
            wait = (1 - bucket.left) / rate * _SECOND
            raise refuse(
                RefusalCause.ADDRESS_LIMIT, "Too many requests came from this address; slow down.", retry_after=wait
            )
        bucket.left -= 1


class Places:
    """
    The places for requests that are not authenticated yet, and for sockets.

    Args:
        settings: How many there are.
    """

    def __init__(self, settings: LimitSettings) -> None:
        self._settings = settings
        self._strangers = 0
        self._persons: Counter[str] = Counter()
        self._objects: Counter[str] = Counter()

    @property
    def sockets(self) -> int:
        """How many sockets have a place."""
        return self._persons.total()

    @contextmanager
    def stranger(self) -> Iterator[None]:
        """
        Give a place to a request whose sender is not known yet.

        Raises:
            Refused: All are taken.
        """
        if self._strangers >= self._settings.unauthenticated:
            raise refuse(
                RefusalCause.BUSY, "Too many requests wait for their authentication; try again.", retry_after=_SECOND
            )
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    def demand_person(self, person: str) -> None:
        """
        Ask whether one more socket of this person, or of anybody, has room; it takes no place.

        Raises:
            Refused: It has none.
        """
        if self._persons[person] >= self._settings.person_sockets:
            raise refuse(
                RefusalCause.PERSON_LIMIT,
                f"You have {self._settings.person_sockets} sockets open here, which is the limit; close some.",
                retry_after=_SOON,
            )

    @contextmanager
    def socket(self, person: str, uid: str) -> Iterator[None]:
        """
        Give a place to a socket.

        Raises:
            Refused: The person, the object or this replica has no more.
        """
        self.demand_person(person)
        if self._objects[uid] >= self._settings.object_sockets:
            raise refuse(
                RefusalCause.OBJECT_LIMIT,
                f"This terminal has {self._settings.object_sockets} sockets open here, which is the limit.",
                retry_after=_SOON,
            )
        if self.sockets >= self._settings.sockets:
            raise refuse(RefusalCause.FULL, "This gateway has no room for another socket.", retry_after=_SOON)
        self._persons[person] += 1
        self._objects[uid] += 1
        try:
            yield
        finally:
            _give_back(self._persons, person)
            _give_back(self._objects, uid)


def _give_back(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _group_address(text: str) -> str:
    """Take the /64 of an IPv6 address for one sender: whoever has one address there has them all."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)

"""
What we last saw of every object, small enough for ten thousand of them.

Problem: the watch, the resync and the answers of our own writes tell about the same object in any order, and a late
word must neither roll an object back nor bring a deleted one to life. Promise: the registry holds per uid the newest
state that anybody has shown it, forgets what is gone for good, and keeps an object of 5 KB in less than that.
Source: resource versions of one kind may be compared as whole numbers on Kubernetes 1.35 and newer
(kubernetes.io, "Kubernetes API Concepts", resource versions); Observed: true on 1.37.2, and before, since they are
etcd's revisions.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from sys import intern
from typing import Any, Final, Self, cast

import orjson

from controller.api.names import FLUX_RECONCILE_REQUEST, GROUP, RECONCILE_REQUEST

TOMBSTONES_MAX: Final = 4096
"""How many deleted uids are remembered. A late word comes within seconds of a deletion (an answer of our own write that
was in flight); this many deletions take longer than that."""

_OWN_ANNOTATIONS: Final = f"{GROUP}/"
_REQUESTS: Final = (RECONCILE_REQUEST, FLUX_RECONCILE_REQUEST)
"""Those that ask for a look now, in the order in which they count."""


def _packed(part: Mapping[str, Any]) -> bytes:
    """
    Render as JSON in exactly as many bytes as it needs.

    orjson hands out its working buffer, 4 KiB for 70 bytes of spec; the copy is what keeps 10,000 objects small.
    Observed: orjson 3.11 with tracemalloc.
    """
    return bytes(memoryview(orjson.dumps(part)))


class Change(StrEnum):
    """What a word about an object was to the registry."""

    NEW = "New"
    """The first word about this uid."""
    NEWER = "Newer"
    """It moved the object forward."""
    STALE = "Stale"
    """We knew this or better already, or the object is known to be gone. Nothing changed."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """
    One object as it stood at one resource version.

    Spec and status stay as JSON, a fifth of the size of their parsed form; whoever works on the object parses them.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str
    version: int
    generation: int
    created: datetime
    deleted: datetime | None
    finalizers: tuple[str, ...]
    annotations: tuple[tuple[str, str], ...]
    """Those that speak to us: our own and the requests for a look now; in the order of their names."""
    sprite: str
    """`spec.spriteName`, which never changes; empty only where the schema was bypassed."""
    spec_json: bytes
    status_json: bytes

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Self:
        """
        Keep of an object, as the API server sent it, what we work with; everything else can be collected at once.

        Args:
            raw: The parsed object, read only.

        Raises:
            KeyError, ValueError: When it is no Kubernetes object with a uid, a version and a time of creation.
        """
        metadata = raw["metadata"]
        spec = raw.get("spec") or {}
        sprite = spec.get("spriteName")
        deleted = metadata.get("deletionTimestamp")
        return cls(
            uid=metadata["uid"],
            namespace=intern(metadata["namespace"]),
            name=metadata["name"],
            resource_version=metadata["resourceVersion"],
            version=int(metadata["resourceVersion"]),
            generation=int(metadata.get("generation", 0)),
            created=datetime.fromisoformat(metadata["creationTimestamp"]),
            deleted=None if deleted is None else datetime.fromisoformat(deleted),
            finalizers=tuple(intern(finalizer) for finalizer in metadata.get("finalizers") or ()),
            annotations=tuple(
                sorted(
                    (intern(key), value)
                    for key, value in (metadata.get("annotations") or {}).items()
                    if key.startswith(_OWN_ANNOTATIONS) or key in _REQUESTS
                )
            ),
            sprite=intern(sprite) if isinstance(sprite, str) else "",
            spec_json=_packed(spec),
            status_json=_packed(raw.get("status") or {}),
        )

    def spec(self) -> dict[str, Any]:
        """Parse the spec anew; the caller may keep and change it."""
        return cast("dict[str, Any]", orjson.loads(self.spec_json))

    def status(self) -> dict[str, Any]:
        """Parse the status anew; the caller may keep and change it."""
        return cast("dict[str, Any]", orjson.loads(self.status_json))

    def annotation(self, key: str) -> str | None:
        """Read one of the annotations that speak to us; None where it is absent."""
        return next((value for known, value in self.annotations if known == key), None)

    def requested_at(self) -> str | None:
        """
        Read the token of the last request for a look now; None where there is none.

        Where several annotations ask, only the first that counts is read: to answer them in turn in one field would
        never end. An empty value asks for nothing.
        """
        return next((token for key in _REQUESTS if (token := self.annotation(key))), None)


@dataclass(frozen=True, slots=True)
class Gone:
    """The API server said that an object does not exist any more."""

    uid: str
    namespace: str
    name: str
    version: int
    """The version of its end."""


class Registry:
    """
    The newest known state of every object, by uid, by name and by sprite.

    It belongs to one loop and takes no lock.
    """

    def __init__(self) -> None:
        self._objects: dict[str, Snapshot] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._sprites: dict[str, dict[str, str]] = {}
        self._tombstones: OrderedDict[str, None] = OrderedDict()
        self._displaced: dict[str, None] = {}

    def observe(self, snapshot: Snapshot) -> Change:
        """
        Take in a word about an object, from wherever it comes.

        An older or equal version of the same uid changes nothing, and neither does any word about an object that was
        forgotten.
        """
        known = self._objects.get(snapshot.uid)
        if snapshot.uid in self._tombstones or (known is not None and snapshot.version <= known.version):
            return Change.STALE
        self._objects[snapshot.uid] = snapshot
        self._name(snapshot)
        if known is not None:
            return Change.NEWER
        self._sprites.setdefault(snapshot.sprite, {})[snapshot.uid] = snapshot.namespace
        return Change.NEW

    def forget(self, uid: str) -> Snapshot | None:
        """
        Bury an object for good and return its last state.

        An unknown uid is buried as well, since its first word may still be on its way.
        """
        self._tombstones[uid] = None
        self._tombstones.move_to_end(uid)
        if len(self._tombstones) > TOMBSTONES_MAX:
            self._tombstones.popitem(last=False)
        self._displaced.pop(uid, None)
        known = self._objects.pop(uid, None)
        if known is None:
            return None
        if self._names.get((known.namespace, known.name)) == uid:
            del self._names[known.namespace, known.name]
        siblings = self._sprites[known.sprite]
        del siblings[uid]
        if not siblings:
            del self._sprites[known.sprite]
        return known

    def get(self, uid: str) -> Snapshot | None:
        """Look up by uid."""
        return self._objects.get(uid)

    def find(self, namespace: str, name: str) -> Snapshot | None:
        """Look up by name: of two objects that bore it one after the other, the later."""
        uid = self._names.get((namespace, name))
        return None if uid is None else self._objects[uid]

    def by_sprite(self, sprite: str, *, namespace: str | None = None) -> tuple[str, ...]:
        """
        Name the objects that speak about a sprite, in the order in which they were first seen.

        Args:
            sprite: `spec.spriteName`.
            namespace: Only those in it; None for all, since one token may serve several namespaces.
        """
        siblings = self._sprites.get(sprite, {})
        return tuple(uid for uid, place in siblings.items() if namespace is None or place == namespace)

    def take_displaced(self) -> tuple[str, ...]:
        """
        Name the objects whose name was seen on a later uid, once each: a proof that they are gone.

        This finds a deletion that the watch lost as soon as the successor appears, before the next resync.
        """
        displaced = tuple(self._displaced)
        self._displaced.clear()
        return displaced

    @property
    def buried(self) -> Collection[str]:
        """The uids that were forgotten lately; a live view."""
        return self._tombstones.keys()

    def __iter__(self) -> Iterator[Snapshot]:
        """Walk over all objects as they stand now; the registry may change during the walk."""
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, uid: object) -> bool:
        return uid in self._objects

    def _name(self, snapshot: Snapshot) -> None:
        """Let the later of two objects bear the name, and note the other as gone."""
        key = (snapshot.namespace, snapshot.name)
        bearer = self._objects[self._names.get(key, snapshot.uid)]
        later = max(bearer, snapshot, key=lambda candidate: candidate.version)
        self._names[key] = later.uid
        if bearer.uid != snapshot.uid:
            self._displaced[min(bearer, snapshot, key=lambda candidate: candidate.version).uid] = None

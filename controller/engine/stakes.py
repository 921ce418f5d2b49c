"""
Which sprites a token is known to serve because an object says so.

Problem: an operator that is started in the middle of an incident has never seen a list, and would believe the first
one. Promise: every sprite in which an object has a session to lose is known to the token that serves the object, from
the first visit on, and as long as the session has not ended. It belongs to one loop and takes no lock.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from controller.api.names import FINALIZER
from controller.engine.registry import Snapshot

TokenSource = tuple[str, str, str]
"""Where an object's token comes from: namespace, Secret and key; all empty for the operator's own."""

OWN: Final[TokenSource] = ("", "", "")


class Stakes:
    """Sprites by the source of their token, and sources by the token that was last found there."""

    def __init__(self) -> None:
        self._stakes: dict[str, tuple[TokenSource, str]] = {}
        self._sprites: dict[TokenSource, dict[str, int]] = {}
        self._tokens: dict[TokenSource, str] = {}
        self._sources: dict[str, set[TokenSource]] = {}

    def put(self, uid: str, source: TokenSource, sprite: str) -> None:
        """Note that an object has something to lose in a sprite."""
        if self._stakes.get(uid) == (source, sprite):
            return
        self.drop(uid)
        self._stakes[uid] = (source, sprite)
        sprites = self._sprites.setdefault(source, {})
        sprites[sprite] = sprites.get(sprite, 0) + 1

    def drop(self, uid: str) -> None:
        """Note that an object has nothing to lose (any more)."""
        known = self._stakes.pop(uid, None)
        if known is None:
            return
        source, sprite = known
        sprites = self._sprites[source]
        sprites[sprite] -= 1
        if not sprites[sprite]:
            del sprites[sprite]
        if not sprites:
            del self._sprites[source]

    def bind(self, source: TokenSource, fingerprint: str) -> None:
        """Note which token was found at a source; one that was there before serves it no longer."""
        former = self._tokens.get(source)
        if former == fingerprint:
            return
        if former is not None:
            self._sources[former].discard(source)
            if not self._sources[former]:
                del self._sources[former]
        self._tokens[source] = fingerprint
        self._sources.setdefault(fingerprint, set()).add(source)

    def names(self, fingerprint: str) -> Collection[str]:
        """Name the sprites in which objects served by a token have something to lose."""
        sources = [self._sprites.get(source, {}) for source in self._sources.get(fingerprint, ())]
        return sources[0].keys() if len(sources) == 1 else frozenset().union(*sources)


def find_source(namespace: str, spec: Mapping[str, Any]) -> TokenSource:
    """Tell where an object's token comes from, off the raw spec."""
    ref = spec.get("tokenSecretRef")
    return OWN if not ref else (namespace, ref.get("name") or "", ref.get("key") or "token")


def has_stake(snapshot: Snapshot, status: Mapping[str, Any]) -> bool:
    """Tell whether an object has something to lose: a session that has not ended, or one that is just being taken."""
    session = status.get("session")
    if not session:
        return FINALIZER in snapshot.finalizers
    return session.get("ended") is None

"""
Which Sprites token speaks for an object.

Problem: a token in a Secret may be missing, broken or changed at any time, and the right to read Secrets is kept as
small as it can be: get by name, no list and no watch. Promise: a Secret is read when it is needed and again after 60 s;
what is wrong with it has its own reason; the last good token stays in memory for ending what it once started; the
operator's own token serves only what its settings list. Values never leave this module but inside a `Token`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final, Protocol

from controller.api.situations import Situation
from controller.api.terminal import TokenSecretRef
from controller.clock import Clock
from controller.errors import OutsideError
from controller.kube.errors import Forbidden, NotFound
from controller.sprites.token import Token, TokenUnreadable

REREAD_AFTER: Final = timedelta(seconds=60)


class Secrets(Protocol):
    """What reads a Secret."""

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Give the decoded data of one Secret."""


@dataclass(frozen=True, slots=True)
class OwnToken:
    """
    The operator's own token and whom it serves.

    Args:
        read: Gives the token of this moment (its file may change); None where there is none.
        namespaces: Patterns, of which the object's namespace must match one.
        sprites: Patterns, of which the sprite's name must match one.
    """

    read: Callable[[], Token | None]
    namespaces: tuple[str, ...]
    sprites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TokenTrouble:
    """Why there is no token, and whether that is likely to pass by itself."""

    situation: Situation
    message: str
    passing: bool = False


@dataclass(slots=True)
class _Known:
    token: Token
    read_at: timedelta


class TokenBook:
    """All tokens in use, in memory only."""

    def __init__(self, secrets: Secrets, clock: Clock, own: OwnToken | None) -> None:
        self._secrets = secrets
        self._clock = clock
        self._own = own
        self._known: dict[tuple[str, str, str], _Known] = {}

    async def find(self, namespace: str, ref: TokenSecretRef | None, sprite: str) -> Token | TokenTrouble:
        """Give the token for an object, or why there is none."""
        if ref is None:
            return self._find_own(namespace, sprite)
        key = (namespace, ref.name, ref.key)
        known = self._known.get(key)
        if known is not None and self._clock.monotonic() - known.read_at < REREAD_AFTER:
            return known.token
        return await self._read(key)

    def find_for_kill(self, namespace: str, ref: TokenSecretRef | None) -> Token | None:
        """Give a token to end a recorded session with: the last good one of the Secret, or the operator's own."""
        if ref is not None:
            known = self._known.get((namespace, ref.name, ref.key))
            if known is not None:
                return known.token
        return None if self._own is None else self._own.read()

    async def reread(self, namespace: str, ref: TokenSecretRef | None, sprite: str, *, refused: Token) -> Token | None:
        """After a 401: read the Secret again, and give its token if it is another than the refused one."""
        found = self._find_own(namespace, sprite) if ref is None else await self._read((namespace, ref.name, ref.key))
        if isinstance(found, Token) and found.fingerprint != refused.fingerprint:
            return found
        return None

    async def read_value(self, namespace: str, name: str, key: str) -> str | TokenTrouble:
        """Read one value of a Secret for a launch's environment."""
        try:
            data = await self._secrets.get_secret(namespace, name)
            return data[key].decode()
        except KeyError:
            text = f"Secret {name} has no key {key}."
        except UnicodeDecodeError:
            text = f"Key {key} of Secret {name} is not UTF-8 text."
        except (NotFound, Forbidden):
            text = f"Secret {name} does not exist, or the operator may not read it."
        except OutsideError as error:
            return TokenTrouble(Situation.LAUNCH_INVALID, f"Secret {name} could not be read: {error}", passing=True)
        return TokenTrouble(Situation.LAUNCH_INVALID, text)

    def _find_own(self, namespace: str, sprite: str) -> Token | TokenTrouble:
        own = self._own
        if own is None or not (_matches(namespace, own.namespaces) and _matches(sprite, own.sprites)):
            text = (
                f"There is no `spec.tokenSecretRef`, and the operator's own token does not serve sprite {sprite} in "
                f"namespace {namespace}. Name a Secret that holds a Sprites token."
            )
            return TokenTrouble(Situation.TOKEN_NOT_ALLOWED, text)
        token = own.read()
        if token is None:
            return TokenTrouble(Situation.TOKEN_INVALID, "The operator's own token cannot be read.")
        return token

    async def _read(self, key: tuple[str, str, str]) -> Token | TokenTrouble:
        namespace, name, entry = key
        try:
            data = await self._secrets.get_secret(namespace, name)
        except (NotFound, Forbidden):
            text = f"Secret {name} does not exist, or the operator may not read it."
            return TokenTrouble(Situation.SECRET_NOT_FOUND, text)
        except OutsideError as error:
            return TokenTrouble(Situation.PENDING, f"Secret {name} could not be read: {error}", passing=True)
        if not data.get(entry):
            return TokenTrouble(Situation.SECRET_KEY_MISSING, f"Secret {name} has no value under the key {entry}.")
        try:
            token = Token.read(data[entry].decode("utf-8", "replace"))
        except TokenUnreadable as error:
            return TokenTrouble(Situation.TOKEN_INVALID, f"Key {entry} of Secret {name}: {error}")
        self._known[key] = _Known(token, self._clock.monotonic())
        return token


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)

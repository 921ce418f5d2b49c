"""
Which Sprites token speaks for an object.

Problem: a token in a Secret may be missing, broken or changed at any time, and the right to read Secrets is kept as
small as it can be: get by name, no list and no watch. Promise: a Secret is read when it is needed and again after 60 s;
what is wrong with it has its own reason; the last good token stays in memory for ending what it once started; the
operator's own token serves only what its settings list. Values never leave this module but inside a `Token`.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Final, Protocol, TypeAlias

from controller.api.situations import Situation
from controller.api.terminal import TokenSecretRef
from controller.clock import Clock
from controller.errors import OutsideError
from controller.kube.errors import Forbidden, NotFound
from controller.sprites.token import Token, TokenUnreadable

REREAD_AFTER: Final = timedelta(seconds=60)

_Key: TypeAlias = tuple[str, str, str]
"""Namespace, Secret, key in it."""


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
class _Entry:
    """What is known of one key of one Secret. `answer` and `begun` are those of the last read."""

    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: Token | TokenTrouble | None = None
    begun: timedelta = timedelta(0)
    good: Token | None = None
    """The last good token, whatever became of the Secret since."""


class TokenBook:
    """
    All tokens in use, in memory only.

    Args:
        secrets: Reads Secrets.
        clock: Its monotonic time.
        own: The operator's own token, where it has one.
    """

    def __init__(self, secrets: Secrets, clock: Clock, own: OwnToken | None) -> None:
        self._secrets = secrets
        self._clock = clock
        self._own = own
        self._entries: dict[_Key, _Entry] = {}

    async def find(self, namespace: str, ref: TokenSecretRef | None, sprite: str) -> Token | TokenTrouble:
        """Give the token for an object, or why there is none. A good one serves for 60 s, a trouble only who asked."""
        if ref is None:
            return self._find_own(namespace, sprite)
        key = (namespace, ref.name, ref.key)
        entry = self._entries.get(key)
        if (
            entry is None
            or not isinstance(entry.answer, Token)
            or self._clock.monotonic() - entry.begun >= REREAD_AFTER
        ):
            return await self._read(key)
        return entry.answer

    def find_for_kill(
        self, namespace: str, ref: TokenSecretRef | None, *, refused: Token | None = None
    ) -> Token | None:
        """
        Give a token to end a recorded session with: the last good one of the Secret, else the operator's own.

        Args:
            namespace: The object's.
            ref: Its `tokenSecretRef`.
            refused: One that the Sprites API does not accept any more, and that is not given.
        """
        entry = None if ref is None else self._entries.get((namespace, ref.name, ref.key))
        candidates = (None if entry is None else entry.good, None if self._own is None else self._own.read())
        return next((token for token in candidates if token is not None and token != refused), None)

    async def reread(self, namespace: str, ref: TokenSecretRef | None, sprite: str, *, refused: Token) -> Token | None:
        """After a 401: read the Secret again, and give its token if it is another than the refused one."""
        found = self._find_own(namespace, sprite) if ref is None else await self._read((namespace, ref.name, ref.key))
        return found if isinstance(found, Token) and found != refused else None

    async def read_value(self, namespace: str, name: str, key: str) -> str | TokenTrouble:
        """Read one value of a Secret for a launch's environment."""
        try:
            data = await self._secrets.get_secret(namespace, name)
            return data[key].decode()
        except KeyError:
            text = f"Secret {name} has no key {key}, which `spec.launch.env` names."
        except UnicodeDecodeError:
            text = f"Key {key} of Secret {name}, which `spec.launch.env` names, is not UTF-8 text."
        except (NotFound, Forbidden):
            text = _describe_absence(f"{name}, which `spec.launch.env` names,")
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
            text = "The operator's own token cannot be read; its log says why. Whoever runs the operator can mend it."
            return TokenTrouble(Situation.TOKEN_INVALID, text)
        return token

    async def _read(self, key: _Key) -> Token | TokenTrouble:
        """Read one key, by a call that began when this was asked or later: many who ask at once share one."""
        asked = self._clock.monotonic()
        entry = self._entries.setdefault(key, _Entry())
        async with entry.reading:
            if entry.answer is None or entry.begun < asked:
                entry.begun = self._clock.monotonic()
                entry.answer = await self._ask(key, entry.good)
                if isinstance(entry.answer, Token):
                    entry.good = entry.answer
            return entry.answer

    async def _ask(self, key: _Key, good: Token | None) -> Token | TokenTrouble:
        namespace, name, inner = key
        try:
            data = await self._secrets.get_secret(namespace, name)
        except (NotFound, Forbidden):
            return TokenTrouble(Situation.SECRET_NOT_FOUND, _describe_absence(name))
        except OutsideError as error:
            if good is not None:
                # Nothing says that it has changed.
                return good
            return TokenTrouble(Situation.PENDING, f"Secret {name} could not be read: {error}", passing=True)
        if not data.get(inner):
            text = f"Secret {name} has no value under the key {inner}. Put a Sprites token there."
            return TokenTrouble(Situation.SECRET_KEY_MISSING, text)
        try:
            return Token.read(data[inner].decode("utf-8", "replace"))
        except TokenUnreadable as error:
            return TokenTrouble(Situation.TOKEN_INVALID, f"Key {inner} of Secret {name}: {error}")


def _describe_absence(named: str) -> str:
    return (
        f"Secret {named} does not exist, or the operator may not read it. Create it in this namespace, and list it in "
        f"the chart's `secretAccess`."
    )


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)

"""
The keys that detach, found in what a person types. Pure.

Problem: everything a person types belongs to the process on the other side, the detach keys excepted; and whoever types
the first of them alone (ctrl-p recalls the last command) must not wait for it. Promise: nothing of the whole sequence
is sent; anything else is sent, unchanged and in order, and the beginning of a sequence that does not go on is let go.
Source: docs.docker.com, "docker container attach", `--detach-keys` (read 2026-11), for how they are written.
"""

import re
from dataclasses import dataclass
from typing import Final

from controller.errors import AgentTerminalError

DEFAULT_KEYS: Final = "ctrl-p,ctrl-q"

CTRL_C: Final = b"\x03"

KEYS_SENTENCE: Final = (
    "keys separated by commas, each a letter, a digit, or ctrl- with one of a to z, @ [ \\ ] ^ _ (such as"
    f" {DEFAULT_KEYS})"
)

_KEY: Final = re.compile(r"[A-Za-z0-9]|ctrl-[a-z@\[\\\]^_]", re.ASCII)


class KeysUnreadable(AgentTerminalError):
    """The detach keys are not written as they must be."""


def read_keys(text: str) -> bytes:
    r"""
    Read detach keys as the bytes that a terminal sends for them: `ctrl-p,ctrl-q` is `\x10\x11`.

    Raises:
        KeysUnreadable: With the rule.
    """
    words = [word.strip() for word in text.split(",")]
    if len(words) > 8 or not all(_KEY.fullmatch(word) for word in words):
        raise KeysUnreadable(f"The detach keys must be at most eight {KEYS_SENTENCE}.")
    return bytes(_read_key(word) for word in words)


def _read_key(word: str) -> int:
    return ord(word) if len(word) == 1 else ord(word.removeprefix("ctrl-").upper()) & 0x1F


@dataclass(frozen=True, slots=True)
class Typed:
    """
    What came of some input.

    Args:
        data: To be sent.
        detached: The person typed the detach keys; what followed them is dropped.
    """

    data: bytes
    detached: bool = False


class DetachKeys:
    """Looks for the detach keys over the edges of reads."""

    def __init__(self, keys: bytes) -> None:
        if not keys:
            raise ValueError("There must be at least one key.")
        self._keys = keys
        self._held = bytearray()

    @property
    def is_holding(self) -> bool:
        """Whether the beginning of the sequence was typed, and waits for its rest."""
        return bool(self._held)

    def take(self, data: bytes) -> Typed:
        """Look through input, after all that came before."""
        sent = bytearray()
        for byte in data:
            self._held.append(byte)
            while not self._keys.startswith(self._held):
                sent.append(self._held.pop(0))
            if len(self._held) == len(self._keys):
                self._held.clear()
                return Typed(bytes(sent), detached=True)
        return Typed(bytes(sent))

    def let_go(self) -> bytes:
        """Give what was held back: its rest does not come."""
        held = bytes(self._held)
        self._held.clear()
        return held

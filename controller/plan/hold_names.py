"""
The names of the tasks that hold a sprite awake.

Problem: task names are shared by all who use one sprite, and a name that two holds share lets the release of one drop
the other. Promise: one key always gives one name of at most 63 safe characters; keys that differ, even in case or in
the characters that are cleaned away, give different names but for a collision of a 32-bit hash; a name that was not
made here is checked before it is used as a path segment or a program argument.

The key of a hold is `<namespace>/<name>:<uid>:<slot>`. The uid is the incarnation: a terminal that is deleted and made
again never touches its predecessor's task. The slot (0 or 1) tells apart the two names that take turns at the hour.

Source: behaviour cases N1 to N9; sprites-api.md 7 and trap 25 (2026-09).
"""

import re
from typing import Final, Literal

Slot = Literal[0, 1]
"""Which of a hold's two names."""

PREFIX: Final = "ps-hold-"
CLEANED_MAX: Final = 45
"""Prefix, 45, a dash and 8 digits make 62 characters; 63 are known to be safe."""
NAME_MAX: Final = 63

_FNV_OFFSET: Final = 0x811C9DC5
_FNV_PRIME: Final = 0x01000193
_UNCLEAN: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_SAFE: Final = re.compile(r"[A-Za-z0-9_-]{1,63}", re.ASCII)


def name_hold(key: str) -> str:
    """A key is named by its prefix, what is left of it when cleaned, and the hash of what it was."""
    cleaned = clean_key(key)
    digits = f"{hash_key(key):08x}"
    return f"{PREFIX}{cleaned}-{digits}" if cleaned else f"{PREFIX}{digits}"


def build_key(namespace: str, name: str, uid: str) -> str:
    """Give the key of one object's holds, without the slot."""
    return f"{namespace}/{name}:{uid}"


def name_task(key: str, slot: Slot) -> str:
    """Name one of the two tasks of a hold."""
    return name_hold(f"{key}:{slot}")


def name_base(key: str) -> str:
    """Give what both names of a hold begin with: it stays the same when they take turns, so a status can carry it."""
    return f"{PREFIX}{clean_key(key)}"


def clean_key(key: str) -> str:
    """Keep `a-z` and `0-9` of the lower-cased key, one dash for each run of others inside, at most 45 characters."""
    return _UNCLEAN.sub("-", key.lower()).lstrip("-")[:CLEANED_MAX].rstrip("-")


def hash_key(key: str) -> int:
    """
    Hash a key with FNV-1a, 32 bits, over its UTF-16 code units, each combined whole; the case counts.

    For ASCII this is the usual byte-wise FNV-1a. A lone surrogate is a code unit like any other.
    """
    digest = _FNV_OFFSET
    units = key.encode("utf-16-le", "surrogatepass")
    for low, high in zip(units[::2], units[1::2], strict=True):
        digest = ((digest ^ (low | high << 8)) * _FNV_PRIME) & 0xFFFFFFFF
    return digest


def is_safe_name(name: str) -> bool:
    """Tell whether a name may stand in an address and in an argv: letters, digits, `_` and `-`, 1 to 63 of them."""
    return _SAFE.fullmatch(name) is not None

"""
What a secret of the tests looks like, and whether something shows one.

Problem: "no token in any output" is a promise about every output, and a test that searches only what it made itself
keeps it for that one test. Promise: whatever secret a test or a world makes is recognisable, in the spellings that it
takes on its way (plain, within an address, in base64); `look` finds it and remembers where, and the plugin beside this
module fails the test by a sentence that names the place and the kind, never the secret.

Recognisable is what `secret` and `build_sprites_token` made, since it bears one mark; a service account's token and a
private key, by the form that all of them have; and what `learn` was told: the few that are drawn at random.
"""

import base64
import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from itertools import count
from pathlib import Path
from typing import Final

MARK: Final = "k33pqu13t"
"""Stands at the beginning of each secret, so that the beginning alone is found too; nothing else in the tree has it."""

SHORTEST: Final = 8
"""Characters of a value that can be learned; a shorter one occurs by accident."""

CHUNK_BYTES: Final = 4 * 1024 * 1024
OVERLAP_BYTES: Final = 4096
"""What is read twice of a large file, so that nothing is missed between two chunks."""


class Kind(StrEnum):
    """What a secret is good for. The value is what a failing test says."""

    SPRITES = "a Sprites token"
    PERSON = "a token of a person or a process at the API server"
    ACCOUNT = "a service account's token"
    ADMINISTRATOR = "the administrator's token"
    ENVIRONMENT = "a value for the environment of a session"
    SECRET_VALUE = "a value of a Secret"
    KEY = "a private key"
    PLANTED = "a planted value"
    ENCODED = "a secret in base64"


@dataclass(frozen=True)
class Shape:
    """A form by which secrets are known."""

    kind: Kind
    needle: bytes
    """What is searched first, since it is quick."""
    pattern: re.Pattern[bytes]
    """All of it; what matches is blotted out wherever it would be shown."""


@dataclass(frozen=True)
class Finding:
    """A secret where none may be."""

    place: str
    kind: Kind

    def __str__(self) -> str:
        """Name the place and the kind, in a sentence."""
        return f"{self.place} shows {self.kind.value}."


def _spell_in_base64(word: str) -> Iterator[bytes]:
    """What stays the same of a word in base64, whatever stands before and behind it."""
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + word.encode())
        # The characters at both ends carry bits of the neighbours.
        yield encoded[-(-shift * 8 // 6) : (shift + len(word)) * 8 // 6]


def _shape(kind: Kind, needle: bytes, rest: bytes) -> Shape:
    return Shape(kind, needle, re.compile(re.escape(needle) + rest))


_TAIL: Final = rb"[\w.%+/=-]*"

SHAPES: Final = (
    *(_shape(kind, f"{MARK}-{kind.name.lower()}-".encode(), _TAIL) for kind in Kind),
    _shape(Kind.PLANTED, MARK.encode(), _TAIL),
    *(_shape(Kind.ENCODED, spelling, _TAIL) for spelling in _spell_in_base64(MARK)),
    # Each begins with `{"alg":` (RFC 7519), in base64.
    _shape(Kind.ACCOUNT, b"eyJhbGciOi", _TAIL),
    _shape(Kind.KEY, b"PRIVATE KEY-----", rb"[\w+/=\s\\]*"),
    *(_shape(Kind.KEY, spelling, _TAIL) for spelling in _spell_in_base64("PRIVATE KEY-----")),
    # What the emulator draws where nobody gave it a token.
    Shape(Kind.SPRITES, b"lab/1/", re.compile(rb"lab/1/[0-9a-f]{32}/[0-9a-f]{0,64}")),
)

_learned: dict[bytes, Kind] = {}
_findings: list[Finding] = []
_lock: Final = threading.RLock()
_numbers: Final = count(1)


# --- what is secret ---------------------------------------------------------------------------------------------------


def secret(kind: Kind = Kind.PLANTED, name: str = "") -> str:
    """Make a secret that is found wherever it shows; without a name it is a new one each time."""
    return f"{MARK}-{kind.name.lower()}-{name or next(_numbers)}"


def build_sprites_token(organization: str = "lab", name: str = "one") -> str:
    """Make a Sprites token: the slug of the organization may be shown, the last two parts may not."""
    return f"{organization}/1/{secret(Kind.SPRITES, f'{name}-id')}/{secret(Kind.SPRITES, f'{name}-key')}"


def learn(kind: Kind, value: str) -> None:
    """Note a secret that was not made here; what is known by its form, or is too short, is not noted."""
    raw = value.encode()
    with _lock:
        if len(value) >= SHORTEST and not find_kinds(raw):
            _learned[raw] = kind


def find_kinds(content: bytes) -> set[Kind]:
    """Tell what kinds of secrets something shows."""
    found = {shape.kind for shape in SHAPES if shape.needle in content and shape.pattern.search(content)}
    # A mark of one kind is the mark of planted values with more behind it.
    if len(found) > 1 and Kind.PLANTED in found and f"{MARK}-planted-".encode() not in content:
        found.discard(Kind.PLANTED)
    with _lock:
        return found | {kind for value, kind in _learned.items() if value in content}


def redact(text: str) -> str:
    """Blot out every secret, so that a failing test may be shown."""
    raw = text.encode(errors="surrogateescape")
    for shape in SHAPES:
        if shape.needle in raw:
            raw = shape.pattern.sub(b"[secret]", raw)
    with _lock:
        for value in _learned:
            raw = raw.replace(value, b"[secret]")
    return raw.decode(errors="surrogateescape")


# --- what may show one ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Excuse:
    """A place that has to hold a secret, and why."""

    reason: str
    is_meant: Callable[[Path, bytes], bool]
    """Whether it speaks of a file, by its path and the first of its bytes."""


def _is_named(*patterns: str) -> Callable[[Path, bytes], bool]:
    return lambda path, _: any(fnmatch(path.name, pattern) for pattern in patterns)


EXCUSED_FILES: Final = (
    Excuse(
        "A kubeconfig is how a process logs in.",
        lambda path, head: "kubeconfig" in path.name or b"current-context" in head,
    ),
    Excuse("A setting names a file with a token, as a mounted Secret.", _is_named("token", "*.token", "token.*")),
    Excuse("A plugin of a kubeconfig hands out what a process logs in with.", _is_named("plugin")),
    Excuse("A private key is in a file of its own.", lambda _, head: head.startswith(b"-----BEGIN")),
)
"""The whole list of files in which a secret may stand. Of objects, their owners write `spec`, which nobody looks at."""

EXCUSED_COMMANDS: Final = (
    (b"sprites-emulator", "The emulator is the other side; the tests choose which token it accepts."),
)
"""The whole list of commands whose words may name one."""


# --- looking ----------------------------------------------------------------------------------------------------------


def look(place: str, content: bytes | str) -> None:
    """Look for secrets, and remember each kind that is shown."""
    raw = content.encode(errors="surrogateescape") if isinstance(content, str) else content
    for kind in find_kinds(raw):
        with _lock:
            _findings.append(Finding(redact(place), kind))


def look_at_file(place: str, path: Path) -> None:
    """Look through one file, unless it is excused; one that has gone shows nothing."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        chunk = file.read(CHUNK_BYTES)
        if any(excuse.is_meant(path, chunk[:OVERLAP_BYTES]) for excuse in EXCUSED_FILES):
            return
        while chunk:
            look(place, chunk)
            more = file.read(CHUNK_BYTES)
            chunk = chunk[-OVERLAP_BYTES:] + more if more else b""


def look_at_lines(place: str, path: Path, *, since: int) -> int:
    """Look through the whole lines of a log from a place on, and give the place up to which it was looked through."""
    with path.open("rb") as file:
        file.seek(since)
        written = file.read()
    whole = written[: written.rfind(b"\n") + 1]
    look(place, whole)
    return since + len(whole)


def look_through(place: str, folder: Path) -> None:
    """Look through all files of a folder and their names; nothing outside is followed."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            look(f"The name of a file in {place}", name)
            if path.is_file() and not path.is_symlink():
                look_at_file(f"The file {path.relative_to(folder)} in {place}", path)


def look_at_command(place: str, words: bytes) -> None:
    """Look at the words of a command, which are separated by zeros or spaces."""
    if not any(name in words for name, _ in EXCUSED_COMMANDS):
        look(place, words)


def look_at_children(process: int | str = "self") -> None:
    """
    Look at the command line of every process that descends from one.

    The lists of children under `/proc` are cut short while one comes to its end (proc_pid_children(5)): then one is
    missed here, and found at another time.
    """
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    words = Path(f"/proc/{child}/cmdline").read_bytes()
                    name = words.split(b"\0")[0].rpartition(b"/")[2].decode(errors="replace")
                    look_at_command(f"The command line of a running {name}", words)
                    look_at_children(child)


def take_findings() -> list[Finding]:
    """Give what was found since the last time, each finding once, and forget it."""
    with _lock:
        found = list(dict.fromkeys(_findings))
        _findings.clear()
    return found


@contextlib.contextmanager
def catching() -> Iterator[list[Finding]]:
    """Catch what is found within a `with` block, for a test that wants it found; what was found before stays."""
    caught: list[Finding] = []
    with _lock:
        before = take_findings()
    try:
        yield caught
    finally:
        with _lock:
            caught += take_findings()
            _findings.extend(before)

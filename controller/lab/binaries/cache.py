"""
The folder that keeps binaries from one start to the next.

Promise: a binary in it is whole. It is made in a workshop beside it, written through to the disk, and only then moved
to its place in one step. The folder's name carries the version and a digest of the Go module, so that an upgrade
makes its own and an older checkout keeps finding the old. One start at a time works in it (flock, which the kernel
releases however the holder ends); what a killed start left is swept by the next.
"""

import asyncio
import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

from controller.lab.binaries.errors import BinariesMissing
from controller.lab.binaries.progress import Progress, following
from controller.lab.processes import Janitor

SOURCE: Final = Path(__file__).with_name("source")
"""The Go module of the control plane."""

KUBERNETES: Final = "k8s.io/kubernetes"

LOCK_INTERVAL: Final = timedelta(milliseconds=200)


def read_version(module: str, source: Path) -> str:
    """Return the version of another module that the Go module in a folder requires, without its v."""
    pattern = rf"^\s*(?:require )?{re.escape(module)} v(\S+)"
    found = re.search(pattern, (source / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"The module in {source} does not require {module}.")
    return found.group(1)


def read_kubernetes_version(source: Path = SOURCE) -> str:
    """Return the version that the Go module requires, such as 1.37.2."""
    return read_version(KUBERNETES, source)


AnyName = TypeVar("AnyName", bound=str)


@dataclass(frozen=True)
class Cache:
    """One version's folder in the cache."""

    root: Path
    key: str

    @property
    def folder(self) -> Path:
        """Where the finished binaries are."""
        return self.root / self.key

    def path(self, name: str) -> Path:
        """Return where a binary is, or would be."""
        return self.folder / name

    def lacks(self, names: tuple[AnyName, ...]) -> tuple[AnyName, ...]:
        """Return the ones that are not there."""
        return tuple(name for name in names if not os.access(self.path(name), os.X_OK))

    def keep(self, name: str, finished: Path) -> None:
        """Take a finished binary out of a workshop of this cache, whole or not at all."""
        finished.chmod(0o755)
        _write_through(finished)
        self.folder.mkdir(parents=True, exist_ok=True)
        finished.replace(self.path(name))
        _write_through(self.folder)

    @asynccontextmanager
    async def locked(self, progress: Progress) -> AsyncIterator[None]:
        """Work in the cache alone; tell when somebody else does."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.root / f"{self.key}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise BinariesMissing(
                f"The cache folder {self.root} cannot be written: {error.strerror}."
                " Set AGENTTERMINAL_CACHE to a folder that can."
            ) from error
        try:
            if not _try_lock(descriptor):
                async with following(progress, "Waiting for another start that is making the binaries"):
                    while not _try_lock(descriptor):  # noqa: ASYNC110 - no event comes from another process
                        await asyncio.sleep(LOCK_INTERVAL.total_seconds())
            yield
        finally:
            os.close(descriptor)

    @asynccontextmanager
    async def workshop(self) -> AsyncIterator[tuple[Path, Janitor]]:
        """
        Make a folder beside the cache's own, on the same disk, that goes however we end. Needs the lock.

        The janitor also ends the process groups it is told of.
        """
        for left in self.root.glob(f".{self.key}-*"):
            shutil.rmtree(left, ignore_errors=True)
        async with Janitor() as janitor:
            yield janitor.make_folder(f".{self.key}-", within=self.root), janitor


def open_cache(folder: Path, *, source: Path = SOURCE, module: str = KUBERNETES, prefix: str = "") -> Cache:
    """
    Name the folder for this version of the module and this kind of machine.

    Args:
        folder: The cache folder of the user.
        source: The Go module.
        module: The one of its requirements whose version names the folder.
        prefix: What the name begins with, where the version alone would not tell what is in it.
    """
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((source / name).read_bytes())
    key = f"{prefix}{read_version(module, source)}-{digest.hexdigest()[:12]}-{sys.platform}-{platform.machine()}"
    return Cache(folder / "binaries", key)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_through(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

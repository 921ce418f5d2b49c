"""
Files for libraries that read keys and certificates from nothing else, gone with us however we end.

Problem: `ssl` and the loaders of the `kubernetes` package want paths, and a folder that is removed after the reading
stays, a private key in it, where the process is killed before. Promise: what is written here lies in the memory of this
process, under a path that only its own threads and its own user can open, and no longer than the `with` block; the
kernel drops it where the process does not get that far. Systems without such files (anything but Linux) get a private
folder that is removed at the end of the block.

Source: memfd_create(2), proc_pid_fd(5).
"""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

PREFIX: Final = "agentterminal-"


class PrivateFiles:
    """Any number of them, while it is entered."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        """Be ready for the first."""
        return self

    def __exit__(self, *_: object) -> None:
        """Drop them all."""
        self._stack.close()

    def write(self, content: bytes) -> str:
        """Put the content into a file of its own, and give its path."""
        path = self._make_in_memory() or self._make_in_folder()
        path.write_bytes(content)
        return str(path)

    def _make_in_memory(self) -> Path | None:
        if not hasattr(os, "memfd_create"):
            return None
        try:
            descriptor = os.memfd_create(PREFIX)
        except OSError:
            return None
        self._stack.callback(os.close, descriptor)
        path = Path(f"/proc/self/fd/{descriptor}")
        # A system may have no /proc, or not show it to us.
        return path if path.is_file() else None

    def _make_in_folder(self) -> Path:
        if self._folder is None:
            self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
        descriptor, path = tempfile.mkstemp(dir=self._folder)
        os.close(descriptor)
        return Path(path)

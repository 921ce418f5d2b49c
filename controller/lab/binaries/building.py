"""
Build a binary with Go from a module beside this file: `source/` for the control plane, one more for each other program.

Observed: 2026-11, Go 1.26.8: the module builds with the 31 staging modules replaced; nothing but the module proxy is
needed, and nothing at all once Go has its caches.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from controller.lab.binaries.cache import SOURCE, Cache, read_kubernetes_version
from controller.lab.binaries.errors import WAYS_OUT, BinariesMissing
from controller.lab.binaries.names import Name, go_package, usual_build_time
from controller.lab.binaries.progress import Progress, following
from controller.lab.binaries.running import run_bounded
from controller.lab.binaries.settings import BinariesSettings
from controller.lab.processes import start_child, stop_child

OLDEST_GO: Final = (1, 26)
"""What the module's go.mod says."""

OLDEST_SWITCHING_GO: Final = (1, 21)
"""From here on Go fetches the version that a module asks for, unless GOTOOLCHAIN forbids it."""

LOG_TAIL_LINES: Final = 15

KEPT_FLAGS: Final = re.compile(r"-p=\d+|-modcacherw|-x|-v")
"""What a user's GOFLAGS may ask of our build: all else, such as -mod=vendor or -tags, could only break it."""


@dataclass(frozen=True)
class Recipe:
    """
    How one program is built.

    Args:
        name: Of the program.
        source: The folder of the Go module.
        package: What is built; a `tool` of the module.
        variables: What is set while linking, such as the version that it reports.
        sentence: What is told while it is built.
        ways_out: What is told when it cannot be built.
    """

    name: str
    source: Path
    package: str
    variables: Mapping[str, str]
    sentence: str
    ways_out: str = WAYS_OUT


async def find_go(settings: BinariesSettings, names: Sequence[str], *, ways_out: str = WAYS_OUT) -> Path:
    """
    Find a Go that can build the modules.

    Raises:
        BinariesMissing: None, or too old and not allowed to fetch a newer one.
    """
    needed = " and ".join(names)
    them = "them" if len(names) > 1 else "it"
    found = shutil.which("go", path=settings.path)
    if found is None:
        raise BinariesMissing(f"The lab needs {needed}, and there is neither a copy nor Go to build {them}. {ways_out}")
    ended = await run_bounded(
        [found, "env", "GOVERSION", "GOTOOLCHAIN"],
        # It may first fetch the toolchain that the user has chosen.
        within=settings.download_within,
        environment={**settings.environment, "GOFLAGS": "-mod=readonly"},
        # Outside of any module, so that Go tells its own version.
        working_directory=Path("/"),
    )
    lines = ended.stdout.splitlines()
    version = re.match(r"go(\d+)\.(\d+)", lines[0]) if lines else None
    if ended.code != 0 or version is None:
        raise BinariesMissing(f"The lab needs {needed}, and {found} does not work (`go env` fails). {ways_out}")
    number = (int(version[1]), int(version[2]))
    stays = number < OLDEST_SWITCHING_GO or lines[1:2] == ["local"]
    if number < OLDEST_GO and stays:
        raise BinariesMissing(
            f"The lab needs {needed}, and {found} is Go {version[1]}.{version[2]}, too old to build {them}. {ways_out}"
        )
    return Path(found)


def plan_control_plane_build(name: Name) -> Recipe:
    """Say how a program of the control plane is built, with the version that it reports."""
    version = read_kubernetes_version()
    major, minor, _ = version.split(".", 2)
    component = "k8s.io/component-base/version"
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    idle, busy = usual_build_time(name)
    return Recipe(
        name=name,
        source=SOURCE,
        package=go_package(name),
        variables={f"{component}.{key}": value for key, value in told.items()},
        sentence=f"Building {name} for Kubernetes {version}, once: usually {render_span(idle, busy)} on two cores",
    )


async def build_binary(
    recipe: Recipe, *, go: Path, cache: Cache, environment: Mapping[str, str], progress: Progress
) -> None:
    """
    Build one binary into the cache. Needs the cache's lock.

    Raises:
        BinariesMissing: Go failed; the text has the end of what it wrote.
    """
    name = recipe.name
    async with cache.workshop() as (workshop, janitor):
        target, log = workshop / name, workshop / "log"
        with log.open("wb") as output:
            child = await start_child(
                build_go_command(go, recipe, target=target),
                janitor=janitor,
                stdout=output,
                stderr=subprocess.STDOUT,
                environment=plan_go_environment(environment, temporary=workshop),
                working_directory=recipe.source,
            )
        try:
            async with following(progress, recipe.sentence):
                code = await child.wait()
        finally:
            # At once: a compiler has nothing to say at its end.
            await stop_child(child, patience=timedelta(0))
            janitor.forget(child.pid)
        if code != 0 or not target.is_file():
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise BinariesMissing(
                f"Go could not build {name} (exit code {code}). {recipe.ways_out} Go wrote at last:\n{tail}"
            )
        cache.keep(name, target)


def build_go_command(go: Path, recipe: Recipe, *, target: Path) -> list[str]:
    """Say the whole command; small (`-s -w`), without paths of this machine, and with the version it reports."""
    link = " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in recipe.variables.items())])
    return [
        str(go),
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        f"-ldflags={link}",
        "-o",
        str(target),
        recipe.package,
    ]


def plan_go_environment(environ: Mapping[str, str], *, temporary: Path) -> dict[str, str]:
    """
    Take the user's environment, without what would break this build.

    Proxies, caches and the choice of the toolchain stay theirs. GOFLAGS is never empty: an empty one would let the
    one from `go env -w` through.
    """
    kept = [flag for flag in environ.get("GOFLAGS", "").split() if KEPT_FLAGS.fullmatch(flag)]
    dropped = {"GOOS", "GOARCH", "GOEXPERIMENT", "GOROOT", "GOBIN"}
    return {key: value for key, value in environ.items() if key not in dropped} | {
        "CGO_ENABLED": "0",
        "GO111MODULE": "on",
        "GOFLAGS": " ".join(["-mod=readonly", *kept]),
        # Compilers leave their half-done work there when they are killed.
        "GOTMPDIR": str(temporary),
        "GOWORK": "off",
    }


def render_span(least: timedelta, most: timedelta) -> str:
    """Say how long something takes, from the least to the most."""
    if most < timedelta(minutes=2):
        return f"{least.total_seconds():.0f} to {most.total_seconds():.0f} s"
    return f"{least.total_seconds() / 60:.0f} to {most.total_seconds() / 60:.0f} min"

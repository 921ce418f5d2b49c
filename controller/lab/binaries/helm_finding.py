"""
Where helm comes from.

Problem: a chart that no Helm has read is a guess, and Helm comes with no package index. Promise: ours is looked for
first, then one on PATH that is a Helm 3, and else it is built once with Go from the module in `helm/`, whose go.sum
pins every byte, and kept in the cache folder.
"""

import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Final

from controller.lab.binaries.building import Recipe, build_binary, find_go, render_span
from controller.lab.binaries.cache import open_cache, read_version
from controller.lab.binaries.progress import Progress
from controller.lab.binaries.running import run_bounded
from controller.lab.binaries.settings import BinariesSettings

SOURCE: Final = Path(__file__).with_name("helm")
"""The Go module."""

MODULE: Final = "helm.sh/helm/v3"

CLIENT: Final = "k8s.io/client-go"

HELM: Final = "helm"

WAYS_OUT: Final = (
    "Three ways out: put Go 1.26 or newer on PATH (it is then built once, in about six minutes); or put Helm 3.17 or"
    " newer on PATH; or leave its tests out with `make test WITHOUT=chart`."
)

OLDEST: Final = (3, 17)
"""From here on `helm install --take-ownership` exists."""

USUAL_BUILD_TIME: Final = (timedelta(minutes=2), timedelta(minutes=6))
"""Observed: 2026-11, Go 1.26.8, nothing compiled before, on an idle machine with two cores and on a busy one."""


async def find_helm(settings: BinariesSettings, progress: Progress) -> Path:
    """
    Return a Helm 3 that works, made now if need be.

    Raises:
        BinariesMissing: It is nowhere and cannot be made.
    """
    cache = open_cache(settings.cache, source=SOURCE, module=MODULE, prefix="helm-")
    if not cache.lacks((HELM,)):
        return cache.path(HELM)
    installed = await _find_installed(settings)
    if installed is not None:
        return installed
    async with cache.locked(progress):
        # Whoever we waited for may have made it meanwhile.
        if cache.lacks((HELM,)):
            go = await find_go(settings, (HELM,), ways_out=WAYS_OUT)
            await build_binary(
                plan_helm_build(), go=go, cache=cache, environment=settings.environment, progress=progress
            )
        return cache.path(HELM)


def plan_helm_build() -> Recipe:
    """
    Say how helm is built, with the version that it reports and the Kubernetes it takes for granted without a cluster.

    Source: Helm's own Makefile (read 2026-11): the latter is the release of client-go, in two places; unset it is 1.20,
    which our chart refuses.
    """
    version = read_version(MODULE, SOURCE)
    minor = read_version(CLIENT, SOURCE).split(".")[1]
    assumed = {
        f"{MODULE}/pkg/{package}.k8sVersion{part}": number
        for package in ("chartutil", "lint/rules")
        for part, number in (("Major", "1"), ("Minor", minor))
    }
    return Recipe(
        name=HELM,
        source=SOURCE,
        package=f"{MODULE}/cmd/helm",
        variables={f"{MODULE}/internal/version.version": f"v{version}", **assumed},
        sentence=f"Building helm {version}, once: usually {render_span(*USUAL_BUILD_TIME)} on two cores",
        ways_out=WAYS_OUT,
    )


async def _find_installed(settings: BinariesSettings) -> Path | None:
    """Find a helm on PATH that is a 3 and new enough; Helm 4 is another program with other words."""
    found = shutil.which(HELM, path=settings.path)
    if found is None:
        return None
    ended = await run_bounded(
        [found, "version", "--template", "{{.Version}}"], within=settings.ask_within, environment=settings.environment
    )
    version = re.match(r"v(\d+)\.(\d+)\.", ended.stdout)
    if ended.code != 0 or version is None or int(version[1]) != OLDEST[0] or int(version[2]) < OLDEST[1]:
        return None
    return Path(found)

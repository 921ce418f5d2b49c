"""
kube-score: what a stranger's linter says about the manifests that the chart renders.

It is built once from the Go module in `kube_score/`, whose go.sum pins every byte, and kept in the cache folder. It
looks at manifests alone and reaches no network.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from controller.lab.binaries import build_progress, read_binaries_settings
from controller.lab.binaries.building import Recipe, build_binary, find_go
from controller.lab.binaries.cache import open_cache, read_version
from controller.settings import environment, read_cache_folder
from tests.chart.helm import Document

SOURCE: Final = Path(__file__).with_name("kube_score")
MODULE: Final = "github.com/zegl/kube-score"
KUBE_SCORE: Final = "kube-score"
OPTIONAL: Final = ("container-seccomp-profile", "container-ports-check")
"""Checks that it makes only when it is asked to."""
FULL: Final = 10
"""Its best grade."""
JUDGED_WITHIN_SECONDS: Final = 60
WAYS_OUT: Final = (
    "Two ways out: put Go 1.26 or newer on PATH (it is then built once, in about a minute); or leave its tests out with"
    " `make test WITHOUT=chart`."
)


def prepare_kube_score() -> Path:
    """Find or make it now, with progress, outside of any test's bound."""
    return asyncio.run(_prepare())


async def _prepare() -> Path:
    settings, progress = read_binaries_settings(environment(), cache=read_cache_folder(environment())), build_progress()
    cache = open_cache(settings.cache, source=SOURCE, module=MODULE, prefix="kube-score-")
    async with cache.locked(progress):
        if cache.lacks((KUBE_SCORE,)):
            recipe = Recipe(
                name=KUBE_SCORE,
                source=SOURCE,
                package=f"{MODULE}/cmd/kube-score",
                variables={},
                sentence=f"Building kube-score {read_version(MODULE, SOURCE)}, once: usually about a minute",
                ways_out=WAYS_OUT,
            )
            go = await find_go(settings, (KUBE_SCORE,), ways_out=WAYS_OUT)
            await build_binary(recipe, go=go, cache=cache, environment=settings.environment, progress=progress)
    return cache.path(KUBE_SCORE)


def score(program: Path, documents: Sequence[Document]) -> Iterator[tuple[str, str, str, str]]:
    """
    Ask for all findings.

    Yields:
        The object, the check, the container (empty for the pod), and what is found.
    """
    words = ["score", "--output-format=json", *(f"--enable-optional-test={name}" for name in OPTIONAL), "-"]
    done = subprocess.run(
        [program, *words],
        input=yaml.safe_dump_all(documents),
        capture_output=True,
        text=True,
        check=False,
        timeout=JUDGED_WITHIN_SECONDS,
    )
    assert done.stdout, done.stderr
    for judged in json.loads(done.stdout):
        for check in judged["checks"]:
            if not check["skipped"] and check["grade"] < FULL:
                for comment in check["comments"]:
                    yield judged["object_meta"]["name"], check["check"]["id"], comment["path"], comment["summary"]


if __name__ == "__main__":
    sys.stderr.write(f"kube-score is there: {prepare_kube_score()}\n")

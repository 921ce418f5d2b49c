"""
The two judges of an object's health: the kstatus library, and the Lua of Argo CD.

Problem: what a pipeline does with our objects is decided by code that is not ours. Promise: that very code is asked.
kstatus is built once from the Go module in `kstatus/`, whose go.sum pins every byte, and kept in the cache folder; our
rule for Argo CD runs under Lua 5.1, as there.
Source: Argo CD, "Resource Health", custom health checks: the object is the global `obj`, and the script returns a table
with `status` and `message` (read 2026-11).
"""

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from lupa.lua51 import LuaRuntime

from controller.lab.binaries import build_progress, read_binaries_settings
from controller.lab.binaries.building import Recipe, build_binary, find_go
from controller.lab.binaries.cache import Cache, open_cache, read_version
from controller.settings import environment, read_cache_folder

SOURCE: Final = Path(__file__).with_name("kstatus")
MODULE: Final = "sigs.k8s.io/cli-utils"
KSTATUS: Final = "kstatus"
HEALTH_RULE: Final = Path(__file__).parents[2] / "config" / "argocd" / "health.lua"
JUDGED_WITHIN_SECONDS: Final = 60
WAYS_OUT: Final = (
    "Two ways out: put Go 1.26 or newer on PATH (it is then built once, in one or two minutes); or leave its tests out"
    " with `make test WITHOUT=cluster`."
)

Document = Mapping[str, Any]


class Word(StrEnum):
    """What kstatus says. `NotFound` is not for objects that are there."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"


class Health(StrEnum):
    """What Argo CD says."""

    HEALTHY = "Healthy"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SUSPENDED = "Suspended"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Words:
    """Both words about one object; two of these are equal if the words are."""

    kstatus: Word
    argo: Health


def prepare_kstatus() -> Path:
    """Find or make kstatus now, with progress, outside of any test's bound."""
    return asyncio.run(_prepare())


async def _prepare() -> Path:
    settings, progress = read_binaries_settings(environment(), cache=read_cache_folder(environment())), build_progress()
    cache = _open_cache(settings.cache)
    async with cache.locked(progress):
        if cache.lacks((KSTATUS,)):
            recipe = Recipe(
                name=KSTATUS,
                source=SOURCE,
                package=".",
                variables={},
                sentence=f"Building kstatus {read_version(MODULE, SOURCE)}, once: usually one or two minutes",
                ways_out=WAYS_OUT,
            )
            go = await find_go(settings, (KSTATUS,), ways_out=WAYS_OUT)
            await build_binary(recipe, go=go, cache=cache, environment=settings.environment, progress=progress)
    return cache.path(KSTATUS)


def _open_cache(folder: Path) -> Cache:
    """Name the folder by our program too, which the module's pins do not cover."""
    digest = hashlib.sha256((SOURCE / "main.go").read_bytes()).hexdigest()[:8]
    return open_cache(folder, source=SOURCE, module=MODULE, prefix=f"kstatus-{digest}-")


def judge_by_kstatus(program: Path, objects: Sequence[Document]) -> list[Word]:
    """Ask the library about each object."""
    done = subprocess.run(
        [program],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
        check=False,
        timeout=JUDGED_WITHIN_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return [Word(answer["status"]) for answer in json.loads(done.stdout)]


class ArgoRule:
    """Our health rule, as Argo CD runs it."""

    def __init__(self, script: str | None = None) -> None:
        self._lua = LuaRuntime(unpack_returned_tuples=True)
        run = self._lua.eval(
            "function(script, obj) return setfenv(assert(loadstring(script)), setmetatable({obj = obj}, {__index ="
            " {ipairs = ipairs, pairs = pairs, tostring = tostring, type = type}}))() end"
        )
        text = HEALTH_RULE.read_text(encoding="utf-8") if script is None else script
        self._run: Callable[[Any], Any] = partial(run, text)

    def judge(self, document: Document) -> tuple[Health, str]:
        """Give the word and the sentence."""
        answer = self._run(self._convert(document))
        return Health(answer["status"]), str(answer["message"])

    def _convert(self, value: Any) -> Any:
        """Turn JSON into tables; lists begin at 1."""
        match value:
            case dict():
                return self._lua.table_from({key: self._convert(part) for key, part in value.items()})
            case list():
                return self._lua.table_from([self._convert(part) for part in value])
            case _:
                return value


def judge(program: Path, objects: Iterable[Document]) -> list[Words]:
    """Ask both judges about each object."""
    asked, rule = list(objects), ArgoRule()
    healths = [rule.judge(document)[0] for document in asked]
    return [Words(*pair) for pair in zip(judge_by_kstatus(program, asked), healths, strict=True)]


if __name__ == "__main__":
    sys.stderr.write(f"kstatus is there: {prepare_kstatus()}\n")

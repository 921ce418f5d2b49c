"""Where helm comes from: our cache, a Helm 3 on PATH, a build with Go; and what is said where none of them is."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from controller.lab.binaries import BinariesMissing, BinariesSettings, PlainProgress, find_helm
from controller.lab.binaries.building import build_go_command
from controller.lab.binaries.cache import Cache, open_cache, read_version
from controller.lab.binaries.helm_finding import MODULE, SOURCE, plan_helm_build

VERSION = read_version(MODULE, SOURCE)


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def settings(tmp_path: Path) -> BinariesSettings:
    programs = tmp_path / "programs"
    programs.mkdir()
    return BinariesSettings(
        assets=None, cache=tmp_path / "cache", path=str(programs), environment={"PATH": str(programs)}
    )


def cache_of(settings: BinariesSettings) -> Cache:
    return open_cache(settings.cache, source=SOURCE, module=MODULE, prefix="helm-")


def install_helm(settings: BinariesSettings, version: str) -> Path:
    return write_program(Path(settings.path) / "helm", f"echo {version}")


def install_go(settings: BinariesSettings, build: str = "") -> None:
    write_program(
        Path(settings.path) / "go",
        f"""
        if [ "$1" = env ]; then echo go1.26.8; echo auto; exit; fi
        while [ "$1" != -o ]; do shift; done
        {build}
        printf '#!/bin/sh\\n' > "$2"; chmod 755 "$2"
        """,
    )


async def find(settings: BinariesSettings) -> Path:
    return await find_helm(settings, PlainProgress(io.StringIO()))


async def test_ours_comes_first_then_one_on_path_then_a_build_that_is_kept(settings: BinariesSettings) -> None:
    cache = cache_of(settings)
    install_go(settings)
    on_path = install_helm(settings, "v3.20.1")
    ours = write_program(cache.path("helm"), "exit 0")

    assert await find(settings) == ours
    ours.unlink()
    assert await find(settings) == on_path
    on_path.unlink()
    assert await find(settings) == ours
    assert ours.is_file()


@pytest.mark.parametrize("version", ["v4.3.1", "v3.16.4", "v2.17.0", "nonsense", "v3.20.0; exit 1"])
async def test_a_helm_on_path_with_other_words_is_passed_over(settings: BinariesSettings, version: str) -> None:
    install_helm(settings, version)
    install_go(settings)

    assert await find(settings) == cache_of(settings).path("helm")


async def test_without_go_and_without_helm_one_sentence_says_the_three_ways_out(settings: BinariesSettings) -> None:
    with pytest.raises(BinariesMissing) as caught:
        await find(settings)

    sentence = str(caught.value)
    assert sentence.startswith("The lab needs helm, and there is neither a copy nor Go to build it. Three ways out: ")
    assert all(way in sentence for way in ("Go 1.26 or newer", "Helm 3.17 or newer", "make test WITHOUT=chart"))
    assert "KUBEBUILDER_ASSETS" not in sentence
    assert "\n" not in sentence


async def test_a_failed_build_tells_what_go_wrote_and_leaves_nothing(settings: BinariesSettings) -> None:
    install_go(settings, "echo no such module; exit 1")

    with pytest.raises(BinariesMissing, match="Go could not build helm") as caught:
        await find(replace(settings))

    assert "no such module" in str(caught.value)
    assert not cache_of(settings).folder.exists()


def test_the_module_pins_helm_as_a_tool_and_the_build_tells_its_version(tmp_path: Path) -> None:
    module = (SOURCE / "go.mod").read_text()
    command = build_go_command(Path("/go"), plan_helm_build(), target=tmp_path / "helm")

    assert re.search(rf"^tool {re.escape(MODULE)}/cmd/helm$", module, re.MULTILINE)
    assert f"{MODULE} v{VERSION} h1:" in (SOURCE / "go.sum").read_text()
    assert f"-X {MODULE}/internal/version.version=v{VERSION}" in " ".join(command)
    assert re.search(rf"-X {re.escape(MODULE)}/pkg/chartutil\.k8sVersionMinor=3[2-9]\b", " ".join(command))
    assert command[-1] == f"{MODULE}/cmd/helm"

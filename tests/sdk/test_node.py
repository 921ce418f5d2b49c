"""Where the JavaScript SDK comes from: the cache folder, else npm; and what is said where there is none."""

import io
import json
import platform
from pathlib import Path

import pytest

from controller.lab.binaries import PlainProgress
from tests.sdk.node import HERE, NODES, NodeMissing, Packages, find_packages


def install_npm(folder: Path, script: str) -> dict[str, str]:
    """Put an npm on a PATH of its own, and return the environment."""
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    npm.chmod(0o755)
    return {"PATH": str(folder)}


async def find(environ: dict[str, str], cache: Path, told: io.StringIO | None = None) -> Packages:
    return await find_packages(environ, cache, PlainProgress(told or io.StringIO()))


def list_cache(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "cache" / "sdk").iterdir())


MAKE_NODE = f"""
[ "$1" = ci ] && [ -e package-lock.json ] && echo once >> "$(dirname "$0")/runs"
mkdir -p node_modules/{NODES.get(platform.machine(), "node")}/bin
touch node_modules/{NODES.get(platform.machine(), "node")}/bin/node
"""


async def test_it_is_fetched_once_with_a_word_about_it_and_found_ever_after(tmp_path: Path) -> None:
    environ, told = install_npm(tmp_path, MAKE_NODE), io.StringIO()

    first = await find(environ, tmp_path / "cache", told)
    second = await find({"PATH": ""}, tmp_path / "cache")

    assert first == second
    assert first.node.exists()
    assert (tmp_path / "runs").read_text() == "once\n"
    assert "Fetching the official JavaScript SDK" in told.getvalue()
    assert list_cache(tmp_path) == [first.folder.name, f"{first.folder.name}.lock"]


async def test_without_npm_one_sentence_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(NodeMissing, match=r"npm is missing.*apt-get install.*WITHOUT=sprites"):
        await find({"PATH": str(tmp_path)}, tmp_path / "cache")


async def test_an_npm_that_fails_is_quoted_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NodeMissing, match="ended with 3: no such host"):
        await find(install_npm(tmp_path, "echo no such host >&2; exit 3"), tmp_path / "cache")
    assert [name for name in list_cache(tmp_path) if not name.endswith(".lock")] == []


async def test_packages_without_a_node_for_this_machine_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(NodeMissing, match="no Node for"):
        await find(install_npm(tmp_path, "exit 0"), tmp_path / "cache")
    assert [name for name in list_cache(tmp_path) if not name.endswith(".lock")] == []


def test_every_package_is_pinned_by_hash_and_no_place_is_named() -> None:
    locked = json.loads((HERE / "package-lock.json").read_text())["packages"]
    described = json.loads((HERE / "package.json").read_text())
    packages = {name.removeprefix("node_modules/"): entry for name, entry in locked.items() if name}

    assert {name: entry["version"] for name, entry in packages.items()} == {
        **described["dependencies"],
        **described["optionalDependencies"],
    }
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not [name for name, entry in packages.items() if "resolved" in entry]

"""
The image, built from the Dockerfile and run: by nobody, with nothing to build with, and with everything it needs.

There is no registry to take a base from, so it is made of Debian's packages, once, and kept in the cache folder, as are
the wheels, whose hashes requirements/ pins.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from controller import __version__
from controller.api.crd import render_crd_text
from controller.settings import environment, read_cache_folder
from tests.house.cases import ROOT

SUITE = "bookworm"
PYTHON = "3.11"
REQUIREMENTS = [ROOT / "requirements/runtime.txt", ROOT / "requirements/build.txt"]
STEP_SECONDS = 500

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]


def run(*command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment(), "STORAGE_DRIVER": "vfs"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=STEP_SECONDS,
    )
    assert not check or done.returncode == 0, done.stderr[-4000:]
    return done


@dataclass(frozen=True)
class Builder:
    """buildah with a store of its own."""

    folder: Path

    def __call__(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        store = (f"--root={self.folder / 'root'}", f"--runroot={self.folder / 'run'}")
        return run("buildah", *store, *words, check=check)


@dataclass(frozen=True)
class Image:
    """What was built, as an image and as a container that is ready to run commands."""

    builder: Builder
    container: str

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.builder("run", "--isolation=chroot", self.container, "--", *command, check=check)

    def inspect(self) -> Any:
        return json.loads(self.builder("inspect", "--type=image", "localhost/built").stdout)["OCIv1"]["config"]


def make_base(folder: Path) -> Path:
    """A root file system with Python and nothing else that anybody asked for."""
    made = folder / f"base-{SUITE}.tar"
    if not made.exists():
        half = folder / f"half-{SUITE}.tar"
        half.unlink(missing_ok=True)
        run("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", SUITE, half)
        half.replace(made)
    return made


def fetch_wheels(folder: Path) -> Path:
    """Every package that the build installs, from where this user's pip is told to look."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in REQUIREMENTS)).hexdigest()[:12]
    made = folder / f"wheels-{digest}"
    if not made.exists():
        half = folder / f"half-{digest}"
        shutil.rmtree(half, ignore_errors=True)
        for path in REQUIREMENTS:
            words = ("--quiet", "--only-binary=:all:", f"--python-version={PYTHON}", "--require-hashes")
            run(ROOT / "build/bootstrap/bin/python", "-m", "pip", "download", *words, "-r", path, "-d", half)
        half.replace(made)
    return made


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    cache = read_cache_folder(environment()) / "images"
    cache.mkdir(parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("image")
    builder = Builder(folder)
    base = builder("from", "scratch").stdout.strip()
    builder("add", "--quiet", base, make_base(cache), "/")
    builder("commit", "--quiet", "--rm", base, "localhost/base")
    pip = folder / "pip.conf"
    pip.write_text("[global]\nno-index = true\nfind-links = /run/wheels\n")
    builder(
        *("bud", "--quiet", "--isolation=chroot", "--tag=localhost/built", "--build-arg=BASE=localhost/base"),
        *(f"--volume={fetch_wheels(cache)}:/run/wheels:ro", f"--volume={pip}:/etc/pip.conf:ro", ROOT),
    )
    yield Image(builder, builder("from", "localhost/built").stdout.strip())
    # Each layer lies there whole: 0.7 GB.
    builder("rm", "--all")
    shutil.rmtree(folder)


def test_it_runs_our_command_as_nobody(image: Image) -> None:
    config = image.inspect()

    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (["/opt/agentterminal/bin/agentterminal"], ["operator"])
    assert config["Labels"]["org.opencontainers.image.version"] == __version__
    assert image.run("id", "-u").stdout == "65532\n"
    assert image.run("agentterminal", "--version").stdout == f"agentterminal, version {__version__}\n"
    assert image.run("agentterminal", "crd").stdout == render_crd_text()


def test_the_operator_starts_and_says_what_it_lacks(image: Image) -> None:
    ended = image.run("agentterminal", "operator", check=False)

    assert "Error: No kubeconfig file at ~/.kube/config." in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("tool", ["pip", "pip3", "gcc", "make", "git", "curl", "uv"])
def test_nothing_to_build_or_fetch_with_is_in_it(image: Image, tool: str) -> None:
    assert image.run("sh", "-c", f"command -v {tool}", check=False).returncode != 0


@pytest.mark.parametrize("module", ["pip", "setuptools", "ensurepip", "hatchling", "pytest", "cryptography"])
def test_no_module_to_build_or_test_with_is_in_it(image: Image, module: str) -> None:
    script = f"import importlib.util as u; raise SystemExit(u.find_spec('{module}') is not None)"

    assert image.run("/opt/agentterminal/bin/python", "-c", script).returncode == 0


def test_nobody_may_write_to_what_is_run(image: Image) -> None:
    written = image.run("find", "/opt", "/usr", "/bin", "/lib", "-writable", "!", "-type", "l").stdout

    assert written == ""

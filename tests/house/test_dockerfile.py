"""The image's recipe and its bill of materials, as far as they can be judged without building."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from controller import __version__
from tests.house.cases import ROOT

SCRIPTS = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
STAGES = re.split(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)[1:]


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / "hadolint", path], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


def test_hadolint_has_nothing_to_say() -> None:
    found = lint(ROOT / "Dockerfile")

    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("line", "finding"),
    [("RUN cd /tmp && pip install kopf", "DL3013"), ("RUN sudo true", "DL3004"), ("USER root", "DL3002")],
)
def test_hadolint_would_find_what_is_wrong(tmp_path: Path, line: str, finding: str) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.replace("USER 65532:65532", line))

    assert finding in lint(broken).stdout


def test_the_last_stage_runs_as_nobody_without_build_tools_and_without_a_health_check() -> None:
    assert len(STAGES) == 2
    last = STAGES[1]

    assert re.findall(r"^USER (.*)$", last, re.MULTILINE) == ["65532:65532"]
    assert re.findall(r"^COPY (.*)$", last, re.MULTILINE) == ["--from=build /opt/agentterminal /opt/agentterminal"]
    assert "pip install" not in last
    assert "HEALTHCHECK" not in DOCKERFILE, "Probes are the chart's."
    assert re.search(r"uninstall --yes setuptools pip$", STAGES[0].rstrip())


def test_whatever_is_installed_is_pinned_by_hash_or_was_built_here() -> None:
    installs = re.findall(r"pip (?:install|wheel) (.*?)(?: \\| &&|$)", DOCKERFILE, re.MULTILINE)

    assert len(installs) == 4
    assert all("--require-hashes" in words or "--no-index" in words for words in installs), installs


def test_the_labels_tell_the_version_that_is_built() -> None:
    assert f"ARG VERSION={__version__}\n" in STAGES[1]
    labels = set(re.findall(r"org\.opencontainers\.image\.(\w+)=", STAGES[1]))
    assert labels == {"title", "description", "licenses", "version", "revision"}


def test_only_what_is_built_from_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = {name for line in re.findall(r"^COPY ([^-].*) \S+$", STAGES[0], re.MULTILINE) for name in line.split()}

    assert ignored[0] == "*"
    assert {name.split("/")[0] for name in copied} == {line[1:] for line in ignored if line.startswith("!")}


def write_bill(path: Path) -> bytes:
    planned = subprocess.run(
        ["make", "-s", "-n", "sbom", f"SBOM={path}"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    (command,) = [line for line in planned.splitlines() if "cyclonedx-py" in line]
    subprocess.run(["sh", "-c", command], cwd=ROOT, check=True, capture_output=True, timeout=60)
    return path.read_bytes()


def test_the_bill_of_materials_lists_what_is_installed_and_is_the_same_twice(tmp_path: Path) -> None:
    first, second = write_bill(tmp_path / "one.json"), write_bill(tmp_path / "two.json")
    bill = json.loads(first)
    pinned = dict(
        re.findall(r"^([\w.-]+)(?:\[[\w,-]+\])?==(\S+)", (ROOT / "requirements/runtime.txt").read_text(), re.MULTILINE)
    )

    assert first == second
    assert bill["bomFormat"] == "CycloneDX"
    assert {part["name"]: part["version"] for part in bill["components"]} == pinned
    root = bill["metadata"]["component"]
    assert (root["name"], root["version"]) == ("agentterminal-operator", __version__)
    assert subprocess.run(["git", "check-ignore", "build/sbom.json"], cwd=ROOT, check=False).returncode == 0

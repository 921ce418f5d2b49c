"""The tree as a whole: generated files, links, pins, scripts, and what must not stand in it."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from tests.house.cases import ROOT
from tests.house.generated import GENERATED, find_stale

LEFT_OUT = {".venv", ".git", "build", "dist", "__pycache__", ".hypothesis"}
SCRIPTS = sorted(path for path in (ROOT / ".ci").iterdir() if path.is_file())
# In two pieces, since this file is part of the tree that it searches.
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "XX" + "X:"]
REGISTRIES = [
    "py" + "pi.org",
    "python" + "hosted.org",
    "proxy." + "golang.org",
    "sum." + "golang.org",
    "goproxy" + ".io",
    "npm" + "js.org",
    "docker" + ".io",
    "gh" + "cr.io",
    "qu" + "ay.io",
    "gc" + "r.io",
    "registry." + "k8s.io",
    "pkg." + "dev/",
]


@cache
def texts() -> dict[str, str]:
    """Every text file of the tree by its path."""
    found = {}
    for path in walk(ROOT):
        try:
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT or path.name.endswith(("_cache", ".egg-info")):
            continue
        if path.is_dir():
            yield from walk(path)
        elif not path.is_symlink():
            yield path


def occurrences(words: list[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if any(word in line for word in words)
    ]


def test_no_file_names_a_host_that_packages_come_from() -> None:
    assert occurrences(REGISTRIES) == []


def test_nothing_is_left_unfinished_by_a_note() -> None:
    assert occurrences(UNFINISHED) == []


def test_the_search_reads_the_whole_tree() -> None:
    assert {"Makefile", "pyproject.toml", ".ci/run", "controller/clock.py", "README.md"} <= set(texts())


@cache
def stale() -> set[str]:
    return set(find_stale())


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_file_is_what_the_code_renders(name: str) -> None:
    assert name not in stale(), "Run `make crds`."


def test_a_generated_file_that_was_edited_by_hand_is_found(tmp_path: Path) -> None:
    for name, render in GENERATED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(render())
    assert find_stale(tmp_path) == {}

    edited = tmp_path / "docs/settings.md"
    edited.write_text(edited.read_text() + "By hand.\n")

    assert set(find_stale(tmp_path)) == {"docs/settings.md"}


def links() -> Iterator[tuple[str, str]]:
    for name, text in texts().items():
        if name.endswith(".md"):
            prose = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
            for target in re.findall(r"\]\(([^)\s]+)\)", prose):
                yield name, target


def headings(text: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    lines = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_every_link_of_every_page_leads_somewhere() -> None:
    broken = []
    for name, target in links():
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if not file.exists() or (anchor and anchor not in headings(file.read_text())):
            broken.append(f"{name}: {target}")

    assert broken == []


def requirements(name: str) -> dict[str, str]:
    """The pinned packages of a lock file, each with the line that pins it."""
    joined = (ROOT / "requirements" / name).read_text().replace("\\\n", " ")
    return {line.split("==")[0].partition("[")[0]: line for line in joined.splitlines() if line.strip()}


@pytest.mark.parametrize("name", ["build.txt", "dev.txt", "picture.txt", "runtime.txt", "uv.txt"])
def test_every_package_is_pinned_by_version_and_hash(name: str) -> None:
    for package, line in requirements(name).items():
        assert re.match(rf"{re.escape(package)}(\[[\w,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{{64}}", line), package


@pytest.mark.parametrize("name", ["build.txt", "runtime.txt"])
def test_what_is_built_and_runs_in_production_is_what_was_tested(name: str) -> None:
    tested = requirements("dev.txt")

    for package, line in requirements(name).items():
        assert tested[package] == line


def test_every_dependency_that_is_declared_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"]
    others = [*project["project"]["optional-dependencies"]["lab"], *project["dependency-groups"]["dev"]]

    def names(declared: list[str]) -> set[str]:
        return {re.split(r"[<>=;\[ ]", line)[0].lower() for line in declared}

    assert names(runtime) <= set(requirements("runtime.txt"))
    assert names(others) <= set(requirements("dev.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_can_be_run_and_read_by_a_plain_shell(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert script.read_text().startswith("#!/bin/sh\n")
    assert "\nset -eu\n" in script.read_text()
    assert subprocess.run(["sh", "-n", script], capture_output=True, check=False).stderr == b""


def test_help_lists_every_word_of_the_makefile() -> None:
    makefile = texts()["Makefile"]
    words = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    shown = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout

    listed = set(re.findall(r"^ {2}make (\w+)", shown, re.MULTILINE))

    assert {"venv", "check", "test", "cluster", "crds", "demo", "lab", "bench", "clean", "help"} <= listed
    assert words - listed == {"packages", "binaries", "sdks", "world"}, "Steps of other words; the rest is for people."


def test_the_changelog_keeps_its_form() -> None:
    lines = texts()["CHANGELOG.md"].splitlines()
    releases = [line for line in lines if line.startswith("## ")]
    sections = [line.removeprefix("### ") for line in lines if line.startswith("### ")]

    assert releases[0] == "## [Unreleased]"
    assert all(re.fullmatch(r"## \[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", release) for release in releases[1:])
    assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for entry in (line for line in lines if line.startswith("- ")):
        assert re.match(r"- [A-Z][a-z]+(ed|t|de|ve|ew|an) ", entry), f"Simple past tense: {entry}"


def test_the_readme_shows_the_two_commands_to_begin_with() -> None:
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", texts()["README.md"], re.DOTALL)
    commands = {line.strip() for block in blocks for line in block.splitlines()}

    assert {"make demo", "make test"} <= commands


def test_an_assertion_of_a_helper_shows_its_values_where_it_fails() -> None:
    helpers = {name: module for name, module in sys.modules.items() if name.startswith("tests.") and module.__file__}

    assert "tests.house.cases" in helpers
    assert [name for name, module in helpers.items() if not isinstance(module.__loader__, AssertionRewritingHook)] == []

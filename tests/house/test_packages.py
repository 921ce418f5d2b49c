"""Operating system packages: installed as root on Debian, else named with the line to run."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.settings import environment
from tests.house.cases import ROOT

EVERYTHING = {
    "buildah",
    "chromium",
    "curl",
    "mmdebstrap",
    "npm",
    "prometheus",
    "promtool",
    "ps",
    "setsid",
    "unshare",
    "python3",
}
SHELL = ["sh", "dirname", "cat", "chmod", "rm"]
PARTS = ("base", "browser", "image", "prometheus", "sprites")


@dataclass(frozen=True)
class Machine:
    """A machine on which only some commands exist; what its apt-get was told stands in a file."""

    folder: Path

    def run(self, *parts: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROOT / ".ci/packages", *parts],
            env={"PATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def apt_calls(self) -> list[str]:
        log = self.folder / "apt.log"
        return log.read_text().splitlines() if log.exists() else []


def build_machine(
    folder: Path, *, commands: set[str], user: int, debian: bool = True, whole_python: bool = True
) -> Machine:
    def script(name: str, body: str) -> None:
        (folder / name).write_text(f"#!{shutil.which('sh')}\n{body}\n")
        (folder / name).chmod(0o755)

    for name in SHELL:
        (folder / name).symlink_to(shutil.which(name) or name)
    for name in commands - {"python3"}:
        script(name, "exit 0")
    if "python3" in commands:
        # A Debian without python3-venv has the interpreter and no ensurepip.
        lacking = "" if whole_python else 'case "$2" in *ensurepip*) exit 1 ;; esac\n'
        script("python3", f'{lacking}exec {sys.executable} "$@"')
    script("id", f"echo {user}")
    if debian:
        script("apt-get", f'echo "$*" >> {folder}/apt.log')
    return Machine(folder)


@pytest.mark.parametrize("user", [0, 1000])
def test_where_everything_is_there_nothing_is_said_or_done(tmp_path: Path, user: int) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING, user=user)

    result = machine.run("base", "sprites", "sdks")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert machine.apt_calls() == []


def test_root_on_debian_installs_what_is_missing_after_one_update(tmp_path: Path) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"unshare", "ps"}, user=0)

    assert machine.run(*PARTS).returncode == 0

    assert machine.apt_calls() == ["update -q", "install -q -y --no-install-recommends procps util-linux"]


@pytest.mark.parametrize(("user", "debian"), [(1000, True), (0, False)])
def test_anybody_else_gets_the_line_to_run_and_a_failure(tmp_path: Path, user: int, debian: bool) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"curl"}, user=user, debian=debian)

    result = machine.run(*PARTS)

    assert result.returncode == 1
    assert "    sudo apt-get install --no-install-recommends curl\n" in result.stderr
    assert "make test WITHOUT=sprites" in result.stderr
    assert machine.apt_calls() == []


def test_a_part_that_is_left_out_is_not_asked_for(tmp_path: Path) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"unshare"}, user=1000)

    assert machine.run("base").returncode == 0
    assert machine.run(*PARTS).returncode == 1


def test_nobody_needs_npm_but_for_the_tests_with_the_sdks(tmp_path: Path) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"npm"}, user=1000)

    assert machine.run(*PARTS).returncode == 0
    result = machine.run("sdks")
    assert result.returncode == 1
    assert "    sudo apt-get install --no-install-recommends npm\n" in result.stderr
    assert "make test WITHOUT=sprites" in result.stderr


def test_a_browser_comes_with_letters_to_draw_and_may_be_left_out(tmp_path: Path) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"chromium"}, user=1000)

    assert machine.run("base", "sprites").returncode == 0
    result = machine.run(*PARTS)
    assert result.returncode == 1
    assert "    sudo apt-get install --no-install-recommends chromium fonts-dejavu-core\n" in result.stderr
    assert "make test WITHOUT=browser" in result.stderr


@pytest.mark.parametrize("asked_before", [False, True])
def test_an_installation_starts_no_service_and_leaves_no_rule_about_it(tmp_path: Path, asked_before: bool) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"prometheus"} | {"invoke-rc.d"}, user=0)
    policy, seen = tmp_path / "policy-rc.d", tmp_path / "seen"
    (tmp_path / "apt-get").write_text(f"#!{shutil.which('sh')}\n{policy}; echo $? >> {seen}\n")
    if asked_before:
        policy.write_text("#!/bin/sh\nexit 104\n")
        policy.chmod(0o755)

    assert machine.run(*PARTS).returncode == 0

    # Once for the update, and once for the installation.
    assert seen.read_text().split() == ["104" if asked_before else "101"] * 2
    assert policy.exists() == asked_before


def test_somebody_who_installs_prometheus_by_hand_hears_of_its_service(tmp_path: Path) -> None:
    result = build_machine(tmp_path, commands=EVERYTHING - {"promtool"}, user=1000).run(*PARTS)

    assert "apt-get install --no-install-recommends prometheus\n" in result.stderr
    assert "systemctl mask prometheus" in result.stderr
    assert "make test WITHOUT=prometheus" in result.stderr


def test_debians_half_of_python_is_completed(tmp_path: Path) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING, user=0, whole_python=False)

    assert machine.run().returncode == 0

    assert machine.apt_calls() == ["update -q", "install -q -y --no-install-recommends python3-venv"]


def test_a_machine_without_python_gets_it(tmp_path: Path) -> None:
    machine = build_machine(tmp_path, commands=EVERYTHING - {"python3"}, user=0)

    assert machine.run().returncode == 0

    assert machine.apt_calls() == ["update -q", "install -q -y --no-install-recommends python3 python3-venv"]


def test_a_part_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = build_machine(tmp_path, commands=EVERYTHING, user=1000).run("sprite")

    assert result.returncode == 2
    assert "There is no part 'sprite'" in result.stderr


def plan_make(word: str, without: str = "") -> subprocess.CompletedProcess[str]:
    """What `make word` would run. A make around this test does not count: its flags would come with the environment."""
    own = {name: value for name, value in environment().items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "-n", word, f"WITHOUT={without}"],
        cwd=ROOT,
        env=own,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("without", "expression"),
    [
        ("", None),
        ("sprites", '-m "not sprites"'),
        ("cluster", '-m "not cluster"'),
        ("prometheus", '-m "not prometheus"'),
        ("image", '-m "not image"'),
        ("browser", '-m "not browser"'),
        ("cluster sprites", '-m "not cluster and not sprites"'),
        ("chart", '-m "not chart"'),
    ],
)
def test_leaving_out_a_part_leaves_out_its_tests_and_its_packages(without: str, expression: str | None) -> None:
    planned = plan_make("test", without).stdout.splitlines()

    pytest_line = next(line for line in planned if "/pytest " in line)
    packages_line = next(line for line in planned if line.startswith(".ci/packages base"))
    assert (expression in pytest_line) if expression else (" -m " not in pytest_line)
    for part in ("sprites", "prometheus"):
        assert (part in packages_line.split()) == (part not in without)
    assert any("control-plane" in line for line in planned) == ("cluster" not in without)
    # Its tests need all three.
    kept = not {"browser", "cluster", "sprites"} & set(without.split())
    assert ("browser" in packages_line.split()) == kept
    for step in ("tests.sdk.node", ".ci/packages sdks"):
        assert any(step in line for line in planned) == ("sprites" not in without)
    assert any("tests.chart.helm" in line for line in planned) == ("chart" not in without)


def test_leaving_out_an_unknown_part_is_refused() -> None:
    result = plan_make("test", "curl")

    assert result.returncode != 0
    assert "WITHOUT may name browser, chart, cluster, image, prometheus and sprites, not: curl" in result.stderr


@pytest.mark.parametrize("word", ["demo", "lab", "bench"])
def test_whoever_wants_to_see_it_is_asked_for_nothing_that_only_tests_need(word: str) -> None:
    planned = plan_make(word).stdout.splitlines()

    assert [line for line in planned if line.startswith(".ci/packages base")] == [".ci/packages base sprites"]

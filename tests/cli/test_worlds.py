"""What demo and lab tell a user to type works where the user is."""

import os
import subprocess
from pathlib import Path

import yaml

from controller.cli.worlds import find_examples, render_apply, render_path_line
from tests.support.commands import ROOT

KUBECTL = "#!/bin/sh\ncat\n"


def test_the_examples_are_three_objects_for_the_sprite_of_the_lab() -> None:
    objects = [yaml.safe_load(path.read_text()) for path in sorted(find_examples().glob("*.yaml"))]

    assert [entry["metadata"]["name"] for entry in objects] == ["adopted", "launched", "stubborn"]
    assert {entry["spec"]["spriteName"] for entry in objects} == {"dev"}
    assert {entry["spec"]["tokenSecretRef"]["name"] for entry in objects} == {"sprites-token"}


def test_the_session_that_the_example_names_needs_no_change() -> None:
    assert render_apply(find_examples(), "2", here=ROOT) == "kubectl apply -f examples/"


def test_from_elsewhere_the_examples_are_named_by_their_whole_path(tmp_path: Path) -> None:
    assert render_apply(find_examples(), "2", here=tmp_path) == f"kubectl apply -f {ROOT}/examples/"


def test_another_session_is_put_in_the_place_of_the_one_that_the_example_names(tmp_path: Path) -> None:
    # A kubectl that shows what it was given to read.
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    line = render_apply(find_examples(), "4711", here=ROOT)

    path = f"{tmp_path}{os.pathsep}{os.defpath}"
    shown = subprocess.run(["sh", "-c", line], cwd=ROOT, env={"PATH": path}, capture_output=True, check=True).stdout

    example = yaml.safe_load((find_examples() / "adopted.yaml").read_text())
    assert yaml.safe_load(shown) == {**example, "spec": {**example["spec"], "sessionId": "4711"}}
    assert line.endswith("| kubectl apply -f examples/launched.yaml -f examples/stubborn.yaml -f -")


def test_where_a_program_is_not_found_the_line_that_brings_it_is_told(tmp_path: Path) -> None:
    brought, other = tmp_path / "with space" / "kubectl", tmp_path / "with space" / "agentterminal"

    assert render_path_line([brought], {"PATH": str(tmp_path)}) == f"""export PATH="$PATH":'{brought.parent}'"""
    assert render_path_line([brought, other], {}) == f"""export PATH="$PATH":'{brought.parent}'"""
    assert render_path_line([Path("/one/a"), Path("/two/b")], {}) == """export PATH="$PATH":/one:/two"""


def test_where_every_program_is_found_nothing_is_told_and_else_only_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    path = {"PATH": f"/absent:{tmp_path}"}

    assert render_path_line([Path("/brought/kubectl")], path) is None
    line = render_path_line([Path("/brought/kubectl"), Path("/other/agentterminal")], path)
    assert line == """export PATH="$PATH":/other"""

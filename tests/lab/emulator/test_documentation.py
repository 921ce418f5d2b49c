"""docs/emulator.md names everything that can be set, called or made to fail."""

import re
from pathlib import Path
from typing import get_args

import pytest

from controller.lab.emulator import faults
from controller.lab.emulator.inside_door import ROUTES as INSIDE_ROUTES
from controller.lab.emulator.lab_door import ROUTES as LAB_ROUTES
from controller.lab.emulator.server import STATIC_ROUTES
from controller.lab.emulator.strict import Strict

PAGE = (Path(__file__).parents[3] / "docs" / "emulator.md").read_text()
WORDS = set(re.findall(r"`([^`\n]+)`", PAGE))


@pytest.mark.parametrize(("method", "path"), [(method, path) for method, path, _ in LAB_ROUTES])
def test_every_lab_call_is_documented(method: str, path: str) -> None:
    assert f"{method} {path.replace(':[0-9]+', '')}" in WORDS


@pytest.mark.parametrize("kind", get_args(get_args(faults.Fault)[0]))
def test_every_fault_is_documented_with_its_fields(kind: type[Strict]) -> None:
    (name,) = get_args(kind.model_fields["kind"].annotation)
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}`"))
    for field in set(kind.model_fields) - {"kind"}:
        assert f"`{field}`" in row
    for field in ("when", "position", "shape"):
        if field in kind.model_fields:
            values = get_args(kind.model_fields[field].annotation)
            assert all(f"`{value}`" in row for value in values)


def test_every_route_is_documented() -> None:
    routes = {
        *STATIC_ROUTES.values(),
        *(name for _, _, name, _ in INSIDE_ROUTES),
        "exec.create",
        "exec.list",
        "exec.post",
    }
    assert routes <= WORDS

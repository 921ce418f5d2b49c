"""The map is true: the floors in docs/architecture.md are those of the import contract and of the tree."""

import re
import tomllib

from tests.house.cases import ROOT

CONTROLLER = ROOT / "controller"


def read_contract() -> list[list[str]]:
    """The floors that import-linter enforces, from the top; a room in brackets need not exist yet."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = [contract for contract in contracts if contract["type"] == "layers"]
    assert floors["exhaustive"] is True
    return [[room.strip() for room in floor.split("|")] for floor in floors["layers"]]


def read_page() -> list[list[str]]:
    """The same as docs/architecture.md tells it."""
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", text, re.MULTILINE)
    return [[room.strip().replace("`", "") for room in row.split(",")] for row in rows]


def read_tree() -> set[str]:
    """The rooms that are there."""
    modules = {path.stem for path in CONTROLLER.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in CONTROLLER.glob("*/__init__.py")}
    return modules | folders


def test_the_page_tells_the_floors_that_the_contract_enforces() -> None:
    assert read_page() == read_contract()


def test_every_room_of_the_tree_has_a_floor_and_only_rooms_in_brackets_are_still_to_come() -> None:
    floors = [room for floor in read_page() for room in floor]
    coming = {room.strip("()") for room in floors if room.startswith("(")}

    assert {room.strip("()") for room in floors} - coming <= read_tree()
    assert read_tree() <= {room.strip("()") for room in floors}


def test_every_room_says_in_its_first_line_what_it_is() -> None:
    for path in [*CONTROLLER.glob("*.py"), *CONTROLLER.glob("*/__init__.py")]:
        assert path.read_text().startswith('"""'), path


def test_every_folder_of_tests_is_a_room_or_one_of_the_few_that_are_none() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("*.py"))}

    assert folders <= read_tree() | {"house", "cluster", "support", "chart", "gitops", "sdk", "browser"}

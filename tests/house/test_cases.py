"""Every numbered case is known, and has a test."""

from collections import Counter
from pathlib import Path

from tests.house.cases import CASES, TITLES, find_pins


def test_there_are_150_cases_each_once_and_numbered_without_a_gap() -> None:
    numbers = [case.number for case in CASES]

    assert len(numbers) == 150
    assert Counter(numbers).most_common(1)[0][1] == 1
    for letter in TITLES:
        own = [number for number in numbers if number.startswith(letter)]
        assert own == [f"{letter}{index}" for index in range(1, len(own) + 1)]


def test_a_marker_names_a_known_case() -> None:
    strangers = {
        number: files for number, files in find_pins().items() if number not in {case.number for case in CASES}
    }

    assert strangers == {}


def test_every_case_has_a_test() -> None:
    pins = find_pins()

    assert [f"{case.number}: {case.sentence}" for case in CASES if case.number not in pins] == []


def test_a_marker_is_found_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "tests" / "room").mkdir(parents=True)
    (tmp_path / "tests" / "room" / "test_it.py").write_text(
        "import pytest\n"
        "pytestmark = [pytest.mark.case('K1')]\n"
        "@pytest.mark.case('K2', 'K3')\n"
        "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.case('K4'))])\n"
        "def test_it(x): ...\n"
        "# pytest.mark.case('K5')\n"
    )

    assert find_pins(tmp_path) == dict.fromkeys(["K1", "K2", "K3", "K4"], ("tests/room/test_it.py",))

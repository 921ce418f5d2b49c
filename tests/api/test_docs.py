"""docs/spec.md says what the code says."""

import re
from pathlib import Path

import pytest
import yaml

from controller.api.conditions import ConditionType, Reason
from controller.api.names import API_VERSION, KIND
from controller.api.situations import Situation
from controller.api.terminal import judge_object, read_spec
from tests.api.spec_page import PAGE, read_meanings, render_spec_page

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)]


def test_the_tables_of_the_page_are_up_to_date() -> None:
    assert render_spec_page() == TEXT, "docs/spec.md is stale; run `make crds`"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: str(example["metadata"]["name"]))
def test_every_example_of_the_page_is_a_good_object(example: dict[str, object]) -> None:
    assert (example["apiVersion"], example["kind"]) == (API_VERSION, KIND)
    assert judge_object(example["spec"]) == []
    assert read_spec(example["spec"]).token_secret_ref is not None  # type: ignore[arg-type]  # judged just above


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("members", [ConditionType, Reason])
def test_every_condition_and_reason_says_what_it_means(members: type[ConditionType] | type[Reason]) -> None:
    meanings = read_meanings(members)
    assert meanings.keys() == {str(member) for member in members}
    assert all(meaning.endswith((".", "(Event.)")) for meaning in meanings.values())


@pytest.mark.parametrize("condition", ConditionType)
def test_every_condition_says_what_true_and_false_mean(condition: ConditionType) -> None:
    meaning = read_meanings(ConditionType)[condition]
    assert meaning.startswith("True: ")
    assert "False: " in meaning


def test_every_reason_and_situation_is_on_the_page() -> None:
    assert [word for word in [*Reason, *Situation, *ConditionType] if f"| `{word}` |" not in TEXT] == []


def test_every_reason_is_one_that_the_operator_gives() -> None:
    package = Path(__file__).parents[2] / "controller"
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path != package / "api" / "conditions.py"
    )
    given = set(re.findall(r"\b(?:Reason|Situation)\.([A-Z_]+)\b", code))

    assert {reason.name for reason in Reason} - given == set()

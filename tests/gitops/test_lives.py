"""Some thirty lives on the real API server: what was written is what is recorded, and no step misleads anybody."""

import os
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

from controller.api.conditions import ConditionType
from tests.gitops.judges import judge
from tests.gitops.lives import SCENES, STEPS, Lives
from tests.gitops.recorded import read_recorded, tidy, write_recorded
from tests.support.operator import World
from tests.support.process import await_true


def test_the_recorded_objects_are_what_the_operator_writes_today(lives: Lives) -> None:
    today = {name: tidy(lives.find(name), name=name) for name in SCENES}
    if os.environ.get("REWRITE_OBJECTS"):
        for name, document in today.items():
            write_recorded(name, document)

    recorded = read_recorded()
    assert recorded.keys() == today.keys()
    for name, document in today.items():
        assert document == recorded[name], f"{name}; if this is meant, record it anew with REWRITE_OBJECTS=1"


@pytest.mark.parametrize("name", STEPS)
def test_flux_and_argo_cd_say_the_right_word_at_every_step_of_a_life(lives: Lives, kstatus: Path, name: str) -> None:
    assert tuple(words for words, _ in groupby(judge(kstatus, lives.states[name]))) == STEPS[name]


def test_every_object_is_born_with_minus_one_and_all_nine_conditions_and_loses_none(lives: Lives) -> None:
    kinds = [kind.value for kind in ConditionType]
    for name, states in lives.states.items():
        assert states[0]["status"]["observedGeneration"] == -1, name
        for state in states:
            conditions = state["status"]["conditions"]
            assert sorted(condition["type"] for condition in conditions) == sorted(kinds), name
            assert all(condition["reason"] for condition in conditions), name


def test_no_status_is_ahead_of_its_object_and_its_conditions_are_of_one_generation(lives: Lives) -> None:
    for name, states in lives.states.items():
        observed = [state["status"]["observedGeneration"] for state in states]
        assert observed == sorted(observed), name
        for state in states:
            assert read_generations(state) <= {state["status"]["observedGeneration"]}, name
            assert state["status"]["observedGeneration"] <= state["metadata"]["generation"], name


def read_generations(state: dict[str, Any]) -> set[int]:
    """The generations that the conditions were judged for; those of a new object have none."""
    found = [condition.get("observedGeneration") for condition in state["status"]["conditions"]]
    return {generation for generation in found if generation is not None}


# --- what `kubectl describe` tells ------------------------------------------------------------------------------------

STORIES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "terminated": (("Normal", "Launched"), ("Normal", "Confirmed")),
    "terminating": (("Normal", "Launched"), ("Warning", "KillFailed")),
    "leftovers": (("Normal", "Launched"), ("Normal", "Confirmed"), ("Warning", "LeftoversFound")),
    "reaped": (("Normal", "Launched"), ("Warning", "Detached"), ("Normal", "Reaped")),
    "exit-unseen": (("Normal", "Launched"), ("Warning", "ExitUnseen")),
    "lost": (("Warning", "Lost"),),
    "suspended-alive": (("Normal", "Launched"),),
    "session-taken": (("Warning", "SessionTaken"),),
    "secret-not-found": (("Warning", "SecretNotFound"),),
    "launch-invalid": (("Warning", "LaunchInvalid"),),
}


@pytest.mark.parametrize("name", STORIES)
def test_kubectl_describe_tells_the_story_of_a_life(lives: Lives, stand: World, name: str) -> None:
    def read_story() -> tuple[tuple[str, str], ...]:
        """The first two columns of the events, in the order in which kubectl shows them."""
        text = stand.cluster.kubectl("describe", "aterm", name, f"--namespace={stand.namespace}").stdout
        _, _, events = text.partition("\nEvents:")
        rows = [line.split() for line in events.splitlines()]
        return tuple((row[0], row[1]) for row in rows if row and row[0] in {"Normal", "Warning"})

    await_true(lambda: read_story() == STORIES[name], f"the story of {name}", tell=lambda: str(read_story()))


def test_the_end_of_a_deleted_object_is_told_as_well(lives: Lives, stand: World) -> None:
    def read_reasons() -> list[str]:
        return [event["reason"] for event in sorted(stand.events("deleted"), key=lambda event: event["eventTime"])]

    await_true(lambda: read_reasons() == ["Launched", "Confirmed"], "the events", tell=lambda: str(read_reasons()))

"""What the operator makes of the CRD that it finds at its start."""

import copy
import logging
from datetime import timedelta
from typing import Any

import pytest

from controller.api.crd import render_crd
from controller.engine.schema import INSTALL, PATIENCE, CrdUnfit, observe_lacking
from controller.kube.errors import Forbidden, KubeError, NotFound, ServerFault, Throttled, Unauthorized
from tests.engine.clocks import HandClock


class FakeDefinitions:
    """Gives one answer after the other; the last one stays."""

    def __init__(self, *answers: dict[str, Any] | KubeError) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def get_crd(self, name: str) -> dict[str, Any]:
        self.asked.append(name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KubeError):
            raise answer
        return answer


def build_older(*removed: tuple[str, str]) -> dict[str, Any]:
    crd = copy.deepcopy(render_crd())
    parts = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part, field in removed:
        del parts[part]["properties"][field]
    return crd


async def test_our_own_crd_is_taken_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    definitions = FakeDefinitions(render_crd())

    assert await observe_lacking(definitions, HandClock()) == frozenset()
    assert definitions.asked == ["agentterminals.agentterminal.dev"]
    assert caplog.records == []


async def test_a_missing_crd_is_told_with_the_line_that_installs_it() -> None:
    with pytest.raises(CrdUnfit) as told:
        await observe_lacking(FakeDefinitions(NotFound("No.", status=404)), HandClock())

    assert str(told.value) == f"The cluster has no CRD agentterminals.agentterminal.dev. Install it: {INSTALL}"


async def test_a_crd_of_another_version_is_told_with_the_line_that_installs_ours() -> None:
    crd = build_older()
    crd["spec"]["versions"][0]["name"] = "v1alpha0"

    with pytest.raises(CrdUnfit, match="does not serve v1alpha1"):
        await observe_lacking(FakeDefinitions(crd), HandClock())


async def test_a_crd_that_cannot_hold_what_must_be_remembered_ends_the_start() -> None:
    with pytest.raises(CrdUnfit) as told:
        await observe_lacking(FakeDefinitions(build_older(("status", "session"))), HandClock())

    assert "it lacks status.session, " in str(told.value)
    assert INSTALL in str(told.value)


async def test_fields_that_merely_go_missing_are_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    older = build_older(("status", "exit"), ("status", "detachedTime"), ("spec", "suspend"))

    lacking = await observe_lacking(FakeDefinitions(older), HandClock())

    assert lacking == {"status.exit", "status.detachedTime"}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.__dict__["lacking"] == ["spec.suspend", "status.detachedTime", "status.exit"]


async def test_without_the_right_to_read_it_the_operator_starts_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert await observe_lacking(FakeDefinitions(Forbidden("No right.", status=403)), HandClock()) == frozenset()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_a_server_that_is_not_ready_yet_is_asked_again_as_it_says() -> None:
    clock = HandClock()
    busy = Throttled("Busy.", status=429, retry_after=timedelta(seconds=1))

    assert await observe_lacking(FakeDefinitions(busy, busy, render_crd()), clock) == frozenset()
    assert clock.passed == timedelta(seconds=2)


async def test_a_server_that_stays_away_ends_the_start() -> None:
    clock = HandClock()

    with pytest.raises(ServerFault):
        await observe_lacking(FakeDefinitions(ServerFault("Down.", status=500)), clock)
    assert PATIENCE <= clock.passed < 2 * PATIENCE


async def test_a_server_that_does_not_know_us_is_not_asked_again() -> None:
    definitions = FakeDefinitions(Unauthorized("Who?", status=401))

    with pytest.raises(Unauthorized):
        await observe_lacking(definitions, HandClock())
    assert len(definitions.asked) == 1

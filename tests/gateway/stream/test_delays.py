"""How long frames stay in the gateway is counted in both directions, by its length."""

import pytest

from controller.gateway.stream import BOUNDS_SECONDS, Delays, SpriteWay
from tests.gateway.stream.conftest import ask, record
from tests.gateway.stream.stage import Stage, open_stage
from tests.support.emulator import EmulatorProcess


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("delay", "place"),
    [(0.0, 0), (0.25, 8), (0.26, 9), (10.0, len(BOUNDS_SECONDS) - 1), (11.0, len(BOUNDS_SECONDS))],
    ids=["none", "exactly a bound", "more than a bound", "the last bound", "beyond all bounds"],
)
def test_a_delay_is_counted_with_those_that_are_no_longer_than_its_bound(delay: float, place: int) -> None:
    hand = Hand()
    delays = Delays(hand)

    since = delays.now()
    hand.seconds += delay
    delays.note(since)

    assert [number for number, count in enumerate(delays.counts) if count] == [place]
    assert delays.sum_seconds == pytest.approx(delay)


def count(stage: Stage) -> tuple[int, int]:
    return sum(stage.delays.input.counts), sum(stage.delays.output.counts)


@pytest.mark.sprites
async def test_what_is_typed_and_what_is_shown_is_counted_and_what_is_refused_or_kept_is_not(
    lab: EmulatorProcess, way: SpriteWay
) -> None:
    session = await ask(lab.start_session, "s1", "sh", "-c", "stty raw -echo; echo ready; cat")
    async with open_stage(way, record(session)) as stage:
        person = await stage.come("typist")
        viewer = await stage.come("viewer", "view")
        await person.sees(b"ready")
        await viewer.types(b"refused")
        await viewer.hears("InputRefused")
        await person.types(b"kept")
        await person.hears("Waiting")
        before = count(stage)
        stage.let_type("typist")
        await person.sees(b"kept")
        between = count(stage)
        await person.types(b"typed")
        await person.sees(b"typed")
        await viewer.sees(b"typed")
        after = count(stage)

    assert before[0] == between[0] == 0
    assert after[0] == 1
    assert before[1] > 0
    assert after[1] >= between[1] + 1

"""Those who share one way up: whoever does not read holds nobody else up; and whose terminal answered is compared."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from controller.api.session import Announced, Identity
from controller.gateway.stream.client import Client, Role
from controller.gateway.stream.fanout import Fanout, House
from controller.gateway.stream.upstream import is_wanted
from controller.plan.fence_closing import Ending

FULL_BYTES = 10
CREATED = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass
class Reader:
    """As much of a person as a fan-out sees; whoever is deaf takes nothing off their queue."""

    is_deaf: bool
    role: Role = Role.VIEW
    ending: Ending | None = None
    queued_bytes: int = 0
    frames: list[bytes] = field(default_factory=list)

    def push(self, frame: bytes) -> None:
        self.frames.append(frame)
        if self.is_deaf:
            self.queued_bytes += len(frame)

    async def wait_until_empty(self) -> None:
        await asyncio.Event().wait()


class AtHome:
    """The terminal of one fan-out: tells whether one person alone looks at it."""

    def find_sole(self, fanout: Fanout) -> Client | None:
        return fanout.clients[0] if len(fanout.clients) == 1 else None


def share(*readers: Reader) -> Fanout:
    fanout = Fanout(cast("House", AtHome()), lambda _since: None, full_bytes=FULL_BYTES)
    fanout.clients.extend(cast("Client", reader) for reader in readers)
    return fanout


async def test_of_many_on_one_way_up_the_one_who_does_not_read_slows_nobody() -> None:
    deaf, quick = Reader(is_deaf=True), Reader(is_deaf=False)
    fanout = share(deaf, quick)

    asked = [fanout.take(b"output!") for _ in range(100)]
    async with asyncio.timeout(5):
        await fanout.wait_for_room()

    assert deaf.queued_bytes > FULL_BYTES
    assert not any(asked)
    assert quick.frames == [b"output!"] * 100


async def test_one_alone_who_does_not_read_slows_what_comes_until_somebody_else_comes_or_they_have_ended() -> None:
    deaf = Reader(is_deaf=True)
    fanout = share(deaf)

    assert [fanout.take(b"output!") for _ in range(3)] == [False, True, True]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await fanout.wait_for_room()
    deaf.ending = Ending.TOO_SLOW
    async with asyncio.timeout(5):
        await fanout.wait_for_room()
    deaf.ending = None
    fanout.clients.append(cast("Client", Reader(is_deaf=False)))
    async with asyncio.timeout(5):
        await fanout.wait_for_room()


@pytest.mark.parametrize(
    ("announced", "created", "verdict"),
    [
        (Announced("77", CREATED), CREATED, True),
        (Announced("78", CREATED), CREATED, False),
        (Announced("77", CREATED + timedelta(hours=1)), CREATED, False),
        (Announced("77", CREATED), None, True),
        (Announced("78", CREATED), None, False),
    ],
    ids=["the same", "another id", "an id that came again", "a created time nobody knew", "another id without one"],
)
def test_the_session_that_answers_is_the_wanted_one_by_its_id_and_by_when_it_was_created(
    announced: Announced, created: datetime | None, verdict: bool
) -> None:
    assert is_wanted(Identity("box", "77", created), announced) is verdict

"""What comes down one way up keeps nobody else from their turn."""

import asyncio
from typing import cast

from controller.gateway.stream.upstream import FRAMES_AT_A_STRETCH, Sink, _pump
from controller.sprites.attach import AttachFrame, Attachment, Exit

FRAMES = 50 * FRAMES_AT_A_STRETCH


class Backlog:
    """A socket at which hundreds of frames have gathered: none of them is waited for."""

    def __init__(self) -> None:
        self._left = FRAMES

    async def receive(self) -> AttachFrame:
        self._left -= 1
        return b"frame" if self._left >= 0 else Exit(7)


class Keeper:
    """Takes everything."""

    def __init__(self) -> None:
        self.taken = 0

    def take(self, _frame: bytes) -> bool:
        self.taken += 1
        return False


async def test_a_backlog_of_frames_lets_others_have_a_turn_every_few_frames() -> None:
    keeper, seen = Keeper(), list[int]()

    async def renew() -> None:
        while True:
            seen.append(keeper.taken)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        renewing = group.create_task(renew())
        await asyncio.sleep(0)
        ended = await _pump(cast("Attachment", Backlog()), cast("Sink", keeper))
        renewing.cancel()

    assert (ended, keeper.taken) == (Exit(7), FRAMES)
    assert max(after - before for before, after in zip(seen, [*seen[1:], FRAMES], strict=True)) <= FRAMES_AT_A_STRETCH

"""What the other side switches on in a person's terminal, and how it is switched off."""

import asyncio
import os

import pytest

from controller.client.screen import Modes, Screen


@pytest.mark.parametrize(
    ("output", "undo"),
    [
        (b"plain", b"\x1b[0m"),
        (b"\x1b[?1049h", b"\x1b[?1049l\x1b[0m"),
        (b"\x1b[?1049h\x1b[?1049l", b"\x1b[0m"),
        (b"\x1b[?1049;1000;1006h", b"\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[0m"),
        (b"\x1b[?25l", b"\x1b[?25h\x1b[0m"),
        (b"\x1b[?2004h\x1b[?1h\x1b=", b"\x1b[?1l\x1b[?2004l\x1b>\x1b[0m"),
        (b"\x1b[>1u\x1b[>3u\x1b[<u", b"\x1b[<1u\x1b[0m"),
        (b"\x1b[>4;2m", b"\x1b[>4m\x1b[0m"),
        (b"\x1b[?1000h\x1b[?25l\x1b=\x1bc", b"\x1b[0m"),
        (b"\x1b[?7l\x1b[?12h", b"\x1b[0m"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000], ids=lambda size: f"in pieces of {size}")
def test_what_was_switched_on_is_switched_off_and_nothing_else(output: bytes, undo: bytes, size: int) -> None:
    modes = Modes()
    for start in range(0, len(output), size):
        modes.see(output[start : start + size])

    assert modes.render_undo() == undo


def test_nothing_is_undone_where_nothing_came() -> None:
    assert Modes().render_undo() == b""


async def test_output_to_a_pipe_is_written_whole_as_slowly_as_it_is_read() -> None:
    reader, writer = os.pipe()
    screen = Screen(reader, writer, writer)
    sent = bytes(range(256)) * 4096
    assert not screen.is_terminal

    async def read_all() -> bytes:
        received = b""
        while len(received) < len(sent):
            received += await screen.read()
        return received

    try:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            reading = group.create_task(read_all())
            with screen.raw():
                await screen.write(sent)
    finally:
        os.close(reader)
        os.close(writer)
    assert reading.result() == sent

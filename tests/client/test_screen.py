"""What the other side switches on in a person's terminal, and how it is switched off."""

import asyncio
import fcntl
import os
import select
import struct
import termios
from collections.abc import Iterator

import pytest

from controller.client.screen import Modes, Screen
from tests.client.conftest import LIMIT


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


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_the_mode_is_put_back_also_after_a_failure_and_no_flag_of_the_descriptor_was_touched(
    terminal: tuple[int, int],
) -> None:
    _, theirs = terminal
    mode, flags = termios.tcgetattr(theirs), fcntl.fcntl(theirs, fcntl.F_GETFL)
    screen = Screen(theirs, theirs, theirs)

    def fail() -> None:
        with screen.raw():
            assert termios.tcgetattr(theirs) != mode
            assert fcntl.fcntl(theirs, fcntl.F_GETFL) == flags
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert termios.tcgetattr(theirs) == mode
    assert fcntl.fcntl(theirs, fcntl.F_GETFL) == flags


def test_what_was_typed_for_the_other_side_and_not_read_does_not_run_in_ones_own_shell(
    terminal: tuple[int, int],
) -> None:
    ours, theirs = terminal
    with Screen(theirs, theirs, theirs).raw():
        os.write(ours, b"rm -rf build\n")
        assert select.select([theirs], [], [], LIMIT)[0]

    assert not select.select([theirs], [], [], 0)[0]


async def test_a_terminal_that_nobody_reads_holds_nothing_up_but_the_output(terminal: tuple[int, int]) -> None:
    _, theirs = terminal
    mode = termios.tcgetattr(theirs)
    screen = Screen(theirs, theirs, theirs)

    with pytest.raises(TimeoutError), screen.raw():
        async with asyncio.timeout(0.3):
            await screen.write(b"x" * 1_000_000)

    assert termios.tcgetattr(theirs) == mode


def test_the_size_of_the_window_is_read_and_none_is_made_up(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    screen = Screen(theirs, theirs, theirs)
    assert screen.read_size() is None

    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    assert screen.read_size() == (120, 40)


def read_shown(ours: int, awaited: bytes = b"") -> bytes:
    """All that was written to the terminal by now, as much as is awaited at least; it may come late and in pieces."""
    shown = b""
    while select.select([ours], [], [], 0.1 if len(shown) >= len(awaited) else LIMIT)[0]:
        shown += os.read(ours, 1000)
    return shown


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"half a line", b"half a line\r\n[aterm] Gone.\r\nprompt\x1b[0m\r\n"),
        (b"a line\r\n", b"a line\r\n[aterm] Gone.\r\nprompt\x1b[0m\r\n"),
        (b"", b"[aterm] Gone.\r\nprompt\x1b[0m\r\n"),
    ],
)
async def test_what_is_said_stands_on_a_line_of_its_own_and_so_does_what_comes_afterwards(
    terminal: tuple[int, int], output: bytes, shown: bytes
) -> None:
    ours, theirs = terminal
    screen = Screen(theirs, theirs, theirs)

    with screen.raw():
        await screen.write(output)
        screen.tell("Gone.")
        await screen.write(b"prompt")

    assert read_shown(ours, shown) == shown


async def test_a_shell_that_has_ended_its_line_gets_no_other(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    screen = Screen(theirs, theirs, theirs)

    with screen.raw():
        await screen.write(b"exit\r\n")

    assert read_shown(ours, b"exit\r\n\x1b[0m") == b"exit\r\n\x1b[0m"

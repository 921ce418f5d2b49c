"""The process that puts a terminal back, beside a client of which only the screen is there."""

import os
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.client.restorer import read_mode, render_mode
from tests.client.conftest import LIMIT, ROOT
from tests.client.test_screen import read_shown
from tests.lab.watching import is_alive, list_children, read_command, read_stat
from tests.support.process import await_true

SHOWN = b"\x1b[?1049h\x1b[?25lhalf a line"
UNDONE = b"\x1b[?25h\x1b[?1049l\x1b[0m"

CLIENT = f"""
import asyncio, signal, sys
from controller.client.screen import Screen
signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGUSR1}})
screen = Screen()
with screen.raw():
    asyncio.run(screen.write({SHOWN!r}))
    print("raw", file=sys.stderr, flush=True)
    signal.sigwait({{signal.SIGUSR1}})
"""
"""Reads nothing, and leaves at SIGUSR1."""


class Desk:
    """A terminal, and a client at it that shows something and waits."""

    def __init__(self) -> None:
        self.ours, self.theirs = os.openpty()
        self.mode = termios.tcgetattr(self.theirs)
        self.client = subprocess.Popen(
            [sys.executable, "-c", CLIENT], stdin=self.theirs, stdout=self.theirs, stderr=subprocess.PIPE, cwd=ROOT
        )
        assert self.client.stderr is not None
        assert self.client.stderr.readline() == b"raw\n"
        (self.beside,) = list_children(self.client.pid)
        # Only then it hears no signal but those that none can ignore.
        await_true(
            lambda: "restorer.py" in " ".join(read_command(self.beside)) and _ignores(self.beside),
            "whoever waits beside to hear no signal",
        )
        self.shows(SHOWN)

    def shows(self, shown: bytes) -> None:
        """Wait until so much was shown since the last time, and see that it is this and no more."""
        assert read_shown(self.ours, shown) == shown

    def until_all_ended(self) -> None:
        self.client.wait(timeout=LIMIT)
        await_true(lambda: not is_alive(self.beside), "whoever waits beside to end")

    def close(self) -> None:
        self.client.kill()
        self.client.communicate()
        for descriptor in (self.ours, self.theirs):
            try:
                os.close(descriptor)
            except OSError:
                assert descriptor == self.ours


def _ignores(process: int) -> bool:
    """Whether the last of its signals is ignored: `proc_pid_stat(5)`, field 33, of which the first two are cut."""
    return bool(int(read_stat(process)[30]) & 1 << signal.SIGTERM - 1)


@pytest.fixture
def desk() -> Iterator[Desk]:
    opened = Desk()
    yield opened
    opened.close()


def test_a_killed_client_leaves_its_mode_its_screen_and_what_was_typed_for_the_other_side_to_nobody(
    desk: Desk,
) -> None:
    assert termios.tcgetattr(desk.theirs) != desk.mode
    os.write(desk.ours, b"rm -rf build\n")
    assert select.select([desk.theirs], [], [], LIMIT)[0]

    desk.client.kill()
    desk.until_all_ended()

    assert termios.tcgetattr(desk.theirs) == desk.mode
    desk.shows(UNDONE + b"\r\n")
    assert not select.select([desk.theirs], [], [], 0)[0]


def test_what_it_knows_lies_in_memory_so_that_no_kill_leaves_a_file(desk: Desk) -> None:
    open_files = [str(path.readlink()) for path in Path(f"/proc/{desk.beside}/fd").iterdir()]

    assert [name.split()[0] for name in open_files if not name.startswith(("/dev/", "pipe:"))] == ["/memfd:aterm-state"]


def test_a_mode_that_somebody_has_set_meanwhile_stays(desk: Desk) -> None:
    edits: list[Any] = [*desk.mode]
    edits[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(desk.theirs, termios.TCSANOW, edits)

    desk.client.kill()
    desk.until_all_ended()

    # As Linux gives it back: the numbers for the end of a read are numbers by now.
    assert termios.tcgetattr(desk.theirs)[:4] == edits[:4]
    desk.shows(UNDONE)


def test_no_signal_that_is_meant_for_the_client_ends_what_waits_for_its_end(desk: Desk) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        os.kill(desk.beside, number)

    desk.client.kill()
    desk.until_all_ended()

    assert termios.tcgetattr(desk.theirs) == desk.mode


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT])
def test_a_client_that_leaves_by_itself_needs_nobody_and_leaves_nobody(desk: Desk, number: signal.Signals) -> None:
    os.kill(desk.beside, number)

    desk.client.send_signal(signal.SIGUSR1)
    assert desk.client.wait(timeout=LIMIT) == 0

    # It was waited for, so it is not even a zombie.
    assert not is_alive(desk.beside)
    assert termios.tcgetattr(desk.theirs) == desk.mode
    desk.shows(UNDONE + b"\r\n")


def test_a_terminal_that_is_gone_is_left_at_once(desk: Desk) -> None:
    os.close(desk.ours)

    desk.client.kill()

    desk.until_all_ended()


def test_a_mode_is_read_as_it_was_written(desk: Desk) -> None:
    for mode in (desk.mode, termios.tcgetattr(desk.theirs)):
        termios.tcsetattr(desk.theirs, termios.TCSANOW, read_mode(render_mode(mode)))

        assert termios.tcgetattr(desk.theirs) == mode

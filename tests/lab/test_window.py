"""A terminal of the lab: a real one for what runs in it, and nothing of it stays."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from controller.lab.processes import Janitor
from controller.lab.window import COLUMNS, ROWS, Window, WindowFailed, render_plain
from tests.lab.watching import is_alive, until_gone

SOON = timedelta(seconds=30)
Opens = Callable[[str], Coroutine[Any, Any, Window]]


@pytest.fixture
async def opens() -> AsyncIterator[Opens]:
    windows: list[Window] = []

    async with Janitor() as janitor:

        async def open_one(line: str) -> Window:
            windows.append(await Window.open(line, janitor, environment=dict(os.environ)))
            return windows[-1]

        yield open_one
        for window in windows:
            await window.close()
            # Twice is fine.
            await window.close()


async def test_its_line_has_a_controlling_terminal_of_a_known_size_and_gives_its_exit_code(opens: Opens) -> None:
    window = await opens("tty >/dev/tty; stty size; read word; echo got $word; exit 7")

    await window.wait_shown(f"{ROWS} {COLUMNS}", within=SOON)
    assert window.take_lines()[0].startswith("/dev/pts/")
    window.type("hello\r")

    assert await window.wait_ended(within=SOON) == 7
    assert window.take_lines() == ["hello", "got hello"]
    assert window.take_lines() == []
    window.type("too late")
    assert window.has_ended


async def test_ctrl_c_reaches_what_runs_in_it_as_from_a_keyboard(opens: Opens) -> None:
    window = await opens("trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep 0.05; done")
    await window.wait_shown("ready", within=SOON)

    window.type("\x03")

    assert await window.wait_ended(within=SOON) == 3
    assert "interrupted" in window.text


async def test_what_does_not_come_is_told_with_the_end_of_what_it_showed(opens: Opens) -> None:
    window = await opens("echo something else; sleep 1000")
    await window.wait_shown("something else", within=SOON)

    with pytest.raises(WindowFailed) as shown:
        await window.wait_shown("hello", within=timedelta(milliseconds=50))
    with pytest.raises(WindowFailed, match=r"did not end within 0\.05 s"):
        await window.wait_ended(within=timedelta(milliseconds=50))

    assert str(shown.value).endswith("did not show 'hello' within 0.05 s. It showed:\nsomething else")


async def test_what_can_not_come_any_more_is_not_waited_for(opens: Opens) -> None:
    window = await opens("echo refused; exit 1")

    with pytest.raises(WindowFailed, match="did not show 'hello' before it ended") as failed:
        await window.wait_shown("hello", within=SOON)

    assert str(failed.value).endswith("refused")


async def test_closing_it_ends_all_that_runs_in_it_also_what_ignores_the_hang_up(opens: Opens) -> None:
    window = await opens("trap '' HUP TERM; sh -c 'echo inner $$; while :; do sleep 1; done'; true")
    await window.wait_shown("inner ", within=SOON)
    await window.wait_shown("\n", within=SOON)
    inner = int(window.text.split()[1])
    assert is_alive(inner)

    await window.close()

    await until_gone(window.process_id, inner)


def test_colours_modes_and_titles_are_no_text() -> None:
    output = b"\x1b[?1049h\x1b[1;31mred\x1b[0m\x1b]0;title\x07 and\x1b(B plain\r\nnext\x1b=\x07\n"

    assert render_plain(output) == "red and plain\nnext\n"

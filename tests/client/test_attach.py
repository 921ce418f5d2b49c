"""A person at a real terminal: a pty with a shell in it, the client as its own process, the real doors and streams."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client.conftest import AGENTTERMINAL, ATERM, LIMIT, PROMPT, StandIn, Window, start_shell, write_kubeconfig
from tests.gateway.doubles import BERT, NAME
from tests.lab.watching import is_alive, list_children, read_command
from tests.support.emulator import EmulatorProcess
from tests.support.process import await_true


@pytest.fixture(scope="module")
def shared(emulator_process: EmulatorProcess) -> Iterator[StandIn]:
    """A gateway for all tests that leave it and its session as they were."""
    emulator_process.reset()
    emulator_process.create_sprite("box")
    emulator_process.set_state("box", "running")
    gateway = StandIn(emulator_process, start_shell(emulator_process))
    yield gateway
    gateway.close()


@pytest.fixture
def own(emulator_process: EmulatorProcess, shared: StandIn) -> Iterator[StandIn]:
    """A gateway with a session of its own, for a test that ends either."""
    gateway = StandIn(emulator_process, start_shell(emulator_process))
    yield gateway
    gateway.close()


def attach(window: Window, gateway: StandIn, kubeconfig: Path, *options: str) -> None:
    """Type the command, and wait until the other side answers a question."""
    command = f"{AGENTTERMINAL} attach {NAME} --gateway {gateway.url} --kubeconfig {kubeconfig} {' '.join(options)}"
    window.attaches(command, PROMPT)


def find_client(window: Window) -> int:
    """The process that the window's shell runs in the foreground."""
    (child,) = list_children(window.shell.pid)
    return child


def test_somebody_types_resizes_detaches_and_comes_back_to_the_same_session(
    open_window: Callable[..., Window], own: StandIn, anna: Path
) -> None:
    window = open_window()
    mode = window.read_mode()
    attach(window, own, anna)
    # Still there after the screen was cleared for what the session had shown.
    assert window.text.startswith(f"[aterm] You are attached to team-a/one; ctrl-p ctrl-q leaves it.\n{PROMPT.strip()}")

    window.runs("echo $((40 + 2)) are here")
    window.sees("42 are here")
    window.resize(70, 20)
    # Asked over there, since each question takes a line of the screen.
    window.runs("until [ \"$(stty size)\" = '20 70' ]; do sleep 0.05; done; echo resized-$((1 + 1))")
    window.sees("resized-2")
    window.types(b"\x10\x11")
    window.sees("Detached. The session goes on: team-a/one")
    window.ended(0)
    assert window.read_mode().replace("rows 20; columns 70", "rows 30; columns 100") == mode

    attach(window, own, anna, "--detach-keys", "ctrl-a,x")
    window.sees("42 are here")
    # The first of the usual keys is the other side's own again.
    window.types(b"exit 7\n")
    window.ended(7)
    assert "columns 70" in window.read_mode()
    assert "-icanon" not in window.read_mode()


def test_ctrl_c_goes_to_the_other_side_and_ends_nothing_here(
    open_window: Callable[..., Window], shared: StandIn, anna: Path
) -> None:
    window = open_window()
    attach(window, shared, anna)

    # Said by what has the terminal by then: the shell itself would not hand Ctrl-C on.
    window.runs("sh -c 'echo asleep-$((1 + 1)); exec sleep 1000'; echo slept=$?")
    window.sees("asleep-2")
    window.types(b"\x03")
    window.runs("echo still $((1 + 1)) here")
    window.sees("still 2 here")
    # The first of the detach keys alone belongs to the other side too, and does not wait for ever.
    window.runs("sh -c 'echo listens-$((1 + 1)); exec cat -v'")
    window.sees("listens-2")
    window.types(b"\x10")
    window.sees("^P")
    window.types(b"\x03")
    window.runs("echo all $((1 + 2)) heard")
    window.sees("all 3 heard")
    window.types(b"\x10\x11")
    window.ended(0)


def test_somebody_who_is_thrown_out_is_told_by_whom_and_how_to_come_back(
    open_window: Callable[..., Window], shared: StandIn, anna: Path
) -> None:
    first, second = open_window(), open_window()
    mode = first.read_mode()
    attach(first, shared, anna)

    second.runs(f"{AGENTTERMINAL} attach {NAME} --gateway {shared.url} --kubeconfig {anna}")
    second.sees("--takeover")
    second.ended(255)
    attach(second, shared, anna, "--takeover")

    first.sees(
        "anna takes this terminal over. Another socket speaks for this terminal now. To take it back: --takeover."
    )
    first.ended(255)
    assert first.read_mode() == mode
    second.runs("echo $((4 * 5)) is mine")
    second.sees("20 is mine")
    assert "20 is mine" not in first.text


def test_somebody_who_looks_on_sees_and_types_nothing(
    open_window: Callable[..., Window], shared: StandIn, anna: Path
) -> None:
    typing, looking = open_window(), open_window()
    attach(typing, shared, anna)
    looking.runs(f"{ATERM} view {NAME} --gateway {shared.url} --kubeconfig {anna}")
    looking.sees(PROMPT)

    typing.runs("echo $((5 * 6)) to see")
    looking.sees("30 to see")
    looking.types("echo mine")
    looking.sees("You only look on: what you type is not sent.")
    looking.types(b"\x03")
    looking.ended(0)
    assert "echo mine" not in typing.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_client_that_is_asked_to_end_gives_the_terminal_back(
    open_window: Callable[..., Window], shared: StandIn, anna: Path, number: signal.Signals, code: int
) -> None:
    window = open_window()
    mode = window.read_mode()
    attach(window, shared, anna)
    assert "-icanon" in window.read_mode()
    # As an editor does: the second screen, the mouse, and a hidden cursor.
    window.runs(r"printf '\033[?1049h\033[?1000h\033[?25l%s\n' on-the-second-$((1 + 1))")
    window.sees("on-the-second-2")
    client = find_client(window)
    beside = list_children(client)

    os.kill(client, number)

    window.until(lambda: window.read_mode() == mode, "the terminal's own mode")
    window.until(lambda: b"\x1b[?25h" in window.output, "the cursor")
    window.ended(code)
    assert not any(map(is_alive, (client, *beside)))
    assert window.output.rfind(b"\x1b[?1049l") > window.output.rfind(b"\x1b[?1049h")
    assert window.output.rfind(b"\x1b[?1000l") > window.output.rfind(b"\x1b[?1000h")


WAITS = ("/bin/sh", "-c", "while printf 'home> ' && read -r line; do (exit $code); eval \"$line\"; code=$?; done")
"""Starts what is typed and waits for it, in its own group of processes, and looks at no mode."""

EDITS = ("/bin/bash", "--norc", "--noprofile")


@pytest.mark.parametrize(
    ("shell", "program"),
    [
        (("/bin/dash", "-i"), f"{AGENTTERMINAL} attach"),
        (WAITS, f"{AGENTTERMINAL} attach"),
        (EDITS, f"{AGENTTERMINAL} attach"),
        (("/bin/dash", "-i"), "kubectl aterm attach"),
    ],
    ids=["a shell that does not look", "a parent that only waits", "a shell that edits lines", "kubectl"],
)
def test_a_client_that_is_killed_leaves_the_terminal_as_it_was(
    open_window: Callable[..., Window],
    shared: StandIn,
    anna: Path,
    tmp_path: Path,
    shell: tuple[str, ...],
    program: str,
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    window = open_window(shell=shell, environment={"PATH": f"{Path(ATERM).parent}:{os.environ['PATH']}"})
    # Asked by a program of the shell: a shell that edits lines has a mode of its own meanwhile.
    window.runs(f"stty -a > {before}")
    window.attaches(f"{program} {NAME} --gateway {shared.url} --kubeconfig {anna}", PROMPT)
    window.runs(r"printf '\033[?1049h\033[?1000h\033[?2004h\033[?25l%s\n' on-the-second-$((1 + 1))")
    window.sees("on-the-second-2")
    client = find_client(window)
    beside = list_children(client)

    # A job of its own dies with all its group; a parent that only waits is in the same one.
    (os.killpg if os.getpgid(client) == client else os.kill)(client, signal.SIGKILL)

    window.until(lambda: window.output.rfind(b"\x1b[?1049l") > window.output.rfind(b"\x1b[?1049h"), "the first screen")
    window.until(lambda: not any(map(is_alive, beside)), "the end of all processes")
    window.ended(137)
    window.runs(f"stty -a > {after}; echo asked-$((1 + 1))")
    window.sees("asked-2")
    assert after.read_text() == before.read_text()
    assert " -icanon" not in after.read_text()
    for switched_on, undone in ((b"\x1b[?1000h", b"\x1b[?1000l"), (b"\x1b[?25l", b"\x1b[?25h")):
        assert window.output.rfind(undone) > window.output.rfind(switched_on)


def test_a_stopped_client_that_is_killed_does_nothing_to_the_program_that_has_the_terminal_by_then(
    open_window: Callable[..., Window], shared: StandIn, anna: Path
) -> None:
    window = open_window()
    attach(window, shared, anna)
    client = find_client(window)
    beside = list_children(client)
    os.kill(client, signal.SIGSTOP)
    window.sees("Stopped")
    window.runs("stty raw -echo; cat")
    # Not stty, which comes before it and has the terminal as well.
    window.until(lambda: ["cat"] in map(read_command, list_children(window.shell.pid)), "a program with the terminal")
    window.types("raw by now")
    window.sees("raw by now")
    mode, shown = window.read_mode(), window.output

    os.kill(client, signal.SIGKILL)
    window.until(lambda: not any(map(is_alive, (client, *beside))), "the end of all processes")

    window.types("still raw?")
    window.sees("still raw?")
    assert window.read_mode() == mode
    assert window.output.removeprefix(shown) == b"still raw?"


def test_a_window_that_is_closed_leaves_no_process(
    open_window: Callable[..., Window], shared: StandIn, anna: Path
) -> None:
    window = open_window()
    attach(window, shared, anna)
    client = find_client(window)
    beside = list_children(client)
    assert beside

    window.close()

    await_true(lambda: not any(map(is_alive, (client, *beside))), "all that the window had to end")


def test_a_gateway_that_is_killed_is_waited_for_and_found_again(
    open_window: Callable[..., Window], own: StandIn, anna: Path
) -> None:
    window = open_window()
    attach(window, own, anna, "--takeover")
    assert own.read_line() == "takeover"

    own.kill()
    window.sees("The connection was lost; what you typed last may not have arrived. Reconnecting;")
    window.types("rm")
    window.sees("There is no connection: what you type is not sent.")
    own.start()
    window.sees("[aterm] Reconnected to team-a/one.")
    window.sees(PROMPT)
    window.runs("echo $((6 * 7)) again")
    window.sees("42 again")
    assert "rmecho" not in window.text
    # Whoever came meanwhile keeps the terminal: coming back asks for it, and does not take it.
    assert own.read_line() == "hold"

    own.kill()
    mode = window.read_mode()
    assert "-icanon" in mode
    window.was_told("Reconnecting;", times=2)
    window.types(b"\x03")
    window.ended(0)
    assert "-icanon" not in window.read_mode()


@pytest.mark.parametrize(
    ("ending", "sentence", "code"),
    [
        ("Revoked", "This socket was thrown out: the terminal names nobody.", 255),
        ("Terminated", "The terminal is being terminated; nobody can attach to it any more.", 255),
        ("Forbidden", "Your right to this terminal was withdrawn.", 255),
        ("SessionEnded", "The session has ended; nobody saw its exit code.", 255),
    ],
)
def test_every_end_that_is_none_of_ours_is_a_sentence_and_255(
    open_window: Callable[..., Window], shared: StandIn, anna: Path, ending: str, sentence: str, code: int
) -> None:
    window = open_window()
    mode = window.read_mode()
    attach(window, shared, anna)

    shared.end_holder(ending)

    window.sees(sentence)
    window.ended(code)
    assert window.read_mode() == mode


@pytest.mark.parametrize("ending", ["Restarting", "TooSlow", "UpstreamLost"])
def test_an_end_that_passes_is_told_and_the_client_comes_back_by_itself(
    open_window: Callable[..., Window], shared: StandIn, anna: Path, ending: str
) -> None:
    window = open_window()
    attach(window, shared, anna)

    shared.end_holder(ending)

    window.was_told("Reconnecting; ctrl-p ctrl-q or Ctrl-C leaves.")
    window.sees("Reconnected to team-a/one.")
    window.runs("echo $((3 * 3)) goes on")
    window.sees("9 goes on")
    window.types(b"\x10\x11")
    window.ended(0)


def test_whoever_has_no_right_reads_why_and_keeps_their_terminal(
    open_window: Callable[..., Window], shared: StandIn, tmp_path: Path
) -> None:
    window = open_window()
    mode = window.read_mode()
    bert = write_kubeconfig(tmp_path, {"token": BERT})
    window.runs(f"{AGENTTERMINAL} attach {NAME} --gateway {shared.url} --kubeconfig {bert}")

    window.sees("Error: ")
    window.ended(255)
    assert window.read_mode() == mode
    assert BERT not in window.text


def test_a_client_that_is_stopped_and_goes_on_has_its_keys_again(
    open_window: Callable[..., Window], shared: StandIn, anna: Path
) -> None:
    window = open_window()
    attach(window, shared, anna)

    os.kill(find_client(window), signal.SIGSTOP)
    window.sees("Stopped")
    window.until(lambda: " icanon" in window.read_mode(), "the shell's own mode")
    window.runs("fg")
    window.until(lambda: "-icanon" in window.read_mode(), "raw mode")
    window.runs("echo $((8 * 8)) again")
    window.sees("64 again")
    window.types(b"\x10\x11")
    window.ended(0)


def test_a_session_without_a_terminal_takes_a_pipe_and_gives_both_streams_and_the_exit_code(
    emulator_process: EmulatorProcess, shared: StandIn, anna: Path
) -> None:
    script = "echo got $(cat); echo complaint >&2; exit 4"
    session = emulator_process.start_session("box", "/bin/sh", "-c", script, tty=False)
    gateway = StandIn(emulator_process, session, tty=False)
    try:
        ended = subprocess.run(
            [AGENTTERMINAL, "attach", NAME, "--gateway", gateway.url, "--kubeconfig", str(anna)],
            input="hello\n",
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    finally:
        gateway.close()

    assert (ended.returncode, ended.stdout) == (4, "got hello\n"), ended.stderr
    assert "complaint\n" in ended.stderr

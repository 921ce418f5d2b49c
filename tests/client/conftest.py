import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect
import pyte
import pytest

from controller.lab.processes import build_tethered_command
from tests.gateway.doubles import ANNA, NAMESPACE
from tests.lab.watching import is_alive, list_children
from tests.support.emulator import EmulatorProcess
from tests.support.process import await_true
from tests.support.secrecy import build_sprites_token, look

AGENTTERMINAL = str(Path(sys.executable).with_name("agentterminal"))
ATERM = str(Path(sys.executable).with_name("kubectl-aterm"))
ROOT = Path(__file__).parents[2]
SECRET = build_sprites_token("acme")
LIMIT = 30.0
"""Seconds that any wait of a test may take: the machine may be busy."""


PROMPT = "over there> "

SHELL = ("/bin/bash", "--norc", "--noprofile", "--noediting")
"""Without line editing: the shell itself leaves the terminal's mode alone."""


def start_shell(lab: EmulatorProcess) -> Any:
    """Start a session in the sprite `box` in which a person can type."""
    return lab.start_session("box", "/bin/sh", "-i", env={"PS1": PROMPT, "PATH": os.environ["PATH"], "TERM": "xterm"})


@pytest.fixture(scope="package")
def emulator_process() -> Iterator[EmulatorProcess]:
    with EmulatorProcess("--token", SECRET) as process:
        yield process


@pytest.fixture
def lab(emulator_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    emulator_process.reset()
    emulator_process.create_sprite("box")
    emulator_process.set_state("box", "running")
    yield emulator_process
    emulator_process.reset()


class StandIn:
    """A gateway as a process, which is found at one place however often it is killed and started."""

    def __init__(self, lab: EmulatorProcess, session: Any, **facts: Any) -> None:
        # Bound without listening, so that nobody else gets this port while there is no gateway.
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.port = self._place.getsockname()[1]
        self.facts = {
            "sprites": lab.url,
            "token": SECRET,
            "sprite": "box",
            "session": session,
            "port": self.port,
            **facts,
        }
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.client.stand_in"]
        self.process = subprocess.Popen(
            build_tethered_command(command, death_signal=signal.SIGKILL),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._unread = b""
        # A command line may be read by everybody.
        self._say(json.dumps(self.facts))
        line = self.read_line()
        if not line:
            self.process.kill()
            raise RuntimeError(f"The gateway did not start: {self.process.communicate()[1]}")
        assert int(line) == self.port

    def read_line(self) -> str:
        """
        Read the next line that it says: its port, and then the mode of each attach.

        From the pipe itself: a client may have come back before the port was read, and a second line that a buffer has
        swallowed with the first is nothing that a wait for the pipe would see.
        """
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], LIMIT)
            said = os.read(pipe, 4096) if ready else b""
            if not said:
                return ""
            self._unread += said
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode().strip()

    @property
    def url(self) -> str:
        scheme = "https" if "tls" in self.facts else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    def end_holder(self, ending: str) -> None:
        self._say(ending)

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        look("What a gateway wrote", "".join(self.process.communicate()))

    def close(self) -> None:
        self.kill()
        self._place.close()


class Window:
    """A real terminal with a shell in it, as a person has it, and what its screen shows."""

    def __init__(
        self,
        *,
        columns: int = 100,
        rows: int = 30,
        environment: dict[str, str] | None = None,
        shell: Sequence[str] = SHELL,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.shell = pexpect.spawn(
            shell[0],
            list(shell[1:]),
            dimensions=(rows, columns),
            env={**_plain_environment(), "PS1": "home> ", **(environment or {})},
            timeout=LIMIT,
        )
        self.sees("home> ")

    @property
    def text(self) -> str:
        """All lines of the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def _read(self) -> None:
        try:
            data = self.shell.read_nonblocking(65536, timeout=0.05)
        except pexpect.TIMEOUT:
            return
        self.output += data
        self.stream.feed(data)

    def until(self, is_true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + LIMIT
        while not is_true():
            assert time.monotonic() < end, f"Waited in vain for {what}:\n{self.text}\n{self.output[-2000:]!r}"
            self._read()

    def sees(self, text: str) -> None:
        """Wait until the screen shows a text; a line may be wrapped."""
        self.until(lambda: text in "".join(line for line in self.screen.display), text)

    def was_told(self, text: str, times: int = 1) -> None:
        """Wait for a text that the screen may show for a moment only."""
        self.until(lambda: self.output.count(text.encode()) >= times, text)

    def types(self, text: str | bytes) -> None:
        self.shell.send(text)

    def runs(self, command: str) -> None:
        """Type a command, with Enter."""
        self.types(f"{command}\n")

    def attaches(self, command: str, prompt: str) -> None:
        """Type a command that attaches, and wait until the other side shows its prompt on a cleared screen."""
        before = len(self.output)
        self.runs(command)
        cleared = b"\x1b[H\x1b[2J"
        self.until(lambda: prompt.encode() in self.output[before:].partition(cleared)[2], prompt)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.shell.setwinsize(rows, columns)

    def read_mode(self) -> str:
        """Ask the terminal itself for its mode, by a program in another process."""
        return subprocess.run(
            ["stty", "-a", "-F", str(Path(f"/proc/{self.shell.pid}/fd/0").readlink())],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT,
        ).stdout

    def ended(self, code: int) -> None:
        """Wait for the shell's prompt to come back, ask for the exit code, and see that what is typed is echoed."""
        self.until(lambda: self.text.rstrip().endswith("home>"), "the shell's prompt")
        self.runs("echo code=$?.")
        self.sees(f"code={code}.")
        assert "echo code=$?." in "".join(self.screen.display)

    def close(self) -> None:
        """Close it, and see that all that ran in it ends, as where a person closes one; closing twice is fine."""
        ran = [] if self.shell.closed else _list_family(self.shell.pid)
        self.shell.close(force=True)
        look("A person's terminal", self.output)
        await_true(lambda: not any(map(is_alive, ran)), "all that ran in a window to end")


def _list_family(process: int) -> list[int]:
    children = list_children(process)
    return [*children, *(one for child in children for one in _list_family(child))]


def _plain_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTTERMINAL_")}
    return {**kept, "TERM": "xterm-256color", "LANG": "C.UTF-8", "BASH_SILENCE_DEPRECATION_WARNING": "1"}


@contextmanager
def open_windows() -> Iterator[Callable[..., Window]]:
    """Open windows, and close them at the end of a `with` block, with whatever runs in them."""
    windows: list[Window] = []

    def open_one(**options: Any) -> Window:
        windows.append(Window(**options))
        return windows[-1]

    try:
        yield open_one
    finally:
        for window in windows:
            window.close()


@pytest.fixture
def open_window() -> Iterator[Callable[..., Window]]:
    with open_windows() as open_one:
        yield open_one


def write_kubeconfig(folder: Path, user: Any, *, server: str = "https://127.0.0.1:1", name: str = "config") -> Path:
    """A kubeconfig whose API server answers nobody: what is tested here must not need it."""
    file = folder / name
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
            }
        )
    )
    return file


@pytest.fixture
def anna(tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path, {"token": ANNA})

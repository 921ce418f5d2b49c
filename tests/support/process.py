"""One of our own long-running commands as a process of its own, whose log is kept and may be read at any time."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from controller.lab.process_table import is_stopped
from controller.lab.processes import build_tethered_command
from tests.support.secrecy import look_at_file

AGENTTERMINAL = str(Path(sys.executable).with_name("agentterminal"))
START_SECONDS = 30.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.03


def await_true(
    is_true: Callable[[], bool],
    what: str,
    within: float = START_SECONDS,
    tell: Callable[[], str] = str,
    *,
    poll_seconds: float = POLL_SECONDS,
) -> None:
    """Wait until something is true, or fail with what there was instead."""
    end = time.monotonic() + within
    while not is_true():
        if time.monotonic() > end:
            raise AssertionError(f"Waited {within} s in vain for {what}. {tell()}")
        time.sleep(poll_seconds)


class CommandProcess(ABC):
    """
    A running `agentterminal WORD --kubeconfig FILE`.

    It ends with the process of the tests, however that ends, and one that does not become ready is ended here.
    """

    def __init__(self, word: str, kubeconfig: Path, settings: Mapping[str, str]) -> None:
        """
        Start it and wait until it is ready.

        Args:
            word: What it does: `operator`, `gateway`.
            kubeconfig: How it logs in.
            settings: The whole of its own environment, without the prefix; nothing of the caller's own gets in.
        """
        self.word = word
        with tempfile.NamedTemporaryFile(prefix=f"{word}-", suffix=".log", delete=False) as log:
            self.log_file = Path(log.name)
            self.process = subprocess.Popen(
                build_tethered_command(
                    [AGENTTERMINAL, word, "--kubeconfig", str(kubeconfig)], death_signal=signal.SIGKILL
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **{name: value for name, value in os.environ.items() if not name.startswith("AGENTTERMINAL_")},
                    **{f"AGENTTERMINAL_{name}": value for name, value in settings.items()},
                },
            )
        try:
            self._await_ready()
        except BaseException:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.forget()
            raise

    def _await_ready(self) -> None:
        await_true(
            lambda: self.process.poll() is not None or self.is_ready(), f"the {self.word} to be ready", tell=self.told
        )
        if self.process.poll() is not None:
            raise RuntimeError(f"The {self.word} ended with {self.process.returncode}: {self.told()}")

    @abstractmethod
    def is_ready(self) -> bool:
        """Tell whether it does its work."""

    def told(self) -> str:
        """Everything it logged."""
        return self.log_file.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All whole lines that it logged, parsed: it may be in the middle of the next one."""
        return [json.loads(line) for line in self.told().split("\n")[:-1] if line.startswith("{")]

    def stop(self) -> int:
        """End it in good order and return its exit code. Stopped is stopped."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Kill it with SIGKILL: nothing is put away. Killing it twice is fine."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def pause(self) -> None:
        """Stop it: when this returns it does not run, and it does not know."""
        self.process.send_signal(signal.SIGSTOP)
        await_true(lambda: is_stopped(self.process.pid), f"the {self.word} to stand still")

    def resume(self) -> None:
        """Let it run on."""
        self.process.send_signal(signal.SIGCONT)

    def forget(self) -> None:
        """Remove its log, in which no secret may stand."""
        look_at_file(f"The log of the {self.word}", self.log_file)
        self.log_file.unlink(missing_ok=True)

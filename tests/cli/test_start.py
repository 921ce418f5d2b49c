"""Ctrl-C ends a program of ours without a traceback, however early it comes."""

import subprocess
import sys

import pytest

INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, {handler})
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["--version"]
from controller.cli.start import {program}
{program}()
"""
AS_PYTHON_HAS_IT = "signal.default_int_handler"


def run(program: str, module: str, handler: str = AS_PYTHON_HAS_IT) -> "subprocess.CompletedProcess[str]":
    script = INTERRUPTED.format(program=program, module=module, handler=handler)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("program", "module"),
    [
        ("agentterminal", "controller.cli.main"),
        ("agentterminal", "click"),
        ("agentterminal", "controller.cli.errors"),
        ("kubectl_aterm", "controller.cli.aterm"),
        ("kubectl_aterm", "rich.console"),
        ("kubectl_aterm", "controller.client.telling"),
    ],
)
def test_ctrl_c_while_modules_are_read_ends_quietly_with_130(program: str, module: str) -> None:
    ended = run(program, module)

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


@pytest.mark.parametrize(("program", "says"), [("agentterminal", "agentterminal"), ("kubectl_aterm", "kubectl aterm")])
def test_a_program_that_was_told_to_ignore_ctrl_c_ignores_it_from_the_beginning(program: str, says: str) -> None:
    ended = run(program, "click", handler="signal.SIG_IGN")

    assert ended.returncode == 0
    assert ended.stdout.startswith(f"{says}, version ")
    assert ended.stderr == ""


@pytest.mark.parametrize("program", ["agentterminal", "kubectl_aterm"])
def test_once_a_command_runs_ctrl_c_is_its_own_again(program: str) -> None:
    script = f"""
import signal, sys
from controller.cli import main, aterm, start
main.main = aterm.main = lambda: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
start.{program}()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert (ended.stdout, ended.stderr) == ("True\n", "")

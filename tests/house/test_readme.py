"""
Every command of the README is run, as the comment before its block says.

Left out is `make test`, which runs this. The environment is made once, by whoever runs the tests, so `make` is told to
take it as it is.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pexpect
import pytest

from tests.support.commands import MOMENT_SECONDS, ROOT, Sandbox, open_terminal
from tests.support.secrecy import build_sprites_token

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"(?:<!-- run: (?P<how>[^\n]*) -->\n)?```(?P<language>\w*)\n(?P<body>.*?)```", re.DOTALL)

AS_IT_STANDS = "as it stands"
BY_YOU = "by you"
AS_THE_LAB = "in the foreground, as the lab"
IN_THE_LAB = "in the lab"
WITH_A_TOKEN = "in the lab, with a token in token.txt"
AT_A_TERMINAL = "in the lab, at a terminal, each until ctrl-p ctrl-q leaves it"
UNTIL = re.compile(r'in the lab, until it says "(.+)"')
LAB_READY = "Ctrl-C ends everything."


@dataclass(frozen=True)
class Block:
    """Some commands, and how they are run."""

    how: str | None
    language: str
    commands: str


BLOCKS = [Block(found["how"], found["language"], found["body"]) for found in BLOCK.finditer(README)]


def commands_to_run(how: str) -> list[str]:
    return [block.commands for block in BLOCKS if block.how == how]


def test_every_block_of_commands_says_how_it_is_run() -> None:
    known = {AS_IT_STANDS, BY_YOU, AS_THE_LAB, IN_THE_LAB, WITH_A_TOKEN, AT_A_TERMINAL}

    assert len(BLOCKS) == README.count("```") / 2 > 5
    for block in BLOCKS:
        assert block.language == "sh", block
        assert block.how in known or UNTIL.fullmatch(block.how or ""), block


def test_nothing_is_left_to_the_reader_but_make_test() -> None:
    assert commands_to_run(BY_YOU) == ["make test\n"]


def take_environment_as_it_is(commands: str) -> str:
    """Keep `make` from making the environment anew under the running tests."""
    return re.sub(r"^make ", "make -s -o .venv/.ready -o packages -o world -o venv ", commands, flags=re.MULTILINE)


@dataclass
class Shell:
    """Commands that a reader types, and what they have written so far."""

    process: asyncio.subprocess.Process
    output: str = ""

    async def read_until(self, text: str) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(MOMENT_SECONDS):
            while text not in self.output:
                line = await self.process.stdout.readline()
                assert line, f"It ended before it said {text!r}:\n{self.output}"
                self.output += line.decode()

    async def read_to_end(self) -> int:
        assert self.process.stdout is not None
        async with asyncio.timeout(MOMENT_SECONDS):
            self.output += (await self.process.stdout.read()).decode()
            return await self.process.wait()

    def press_ctrl_c(self) -> None:
        """Do what the terminal does: everything in the foreground gets the signal."""
        os.killpg(self.process.pid, signal.SIGINT)


@asynccontextmanager
async def typed(commands: str, folder: Path, environment: dict[str, str]) -> AsyncIterator[Shell]:
    """Type commands into a shell that stops at the first that fails."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-euo", "pipefail", "-c", take_environment_as_it_is(commands)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )
    try:
        yield Shell(process)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


@pytest.mark.cluster
@pytest.mark.sprites
@pytest.mark.timeout(240)
async def test_the_commands_that_stand_alone_work(sandbox: Sandbox) -> None:
    commands = commands_to_run(AS_IT_STANDS)
    assert commands == ["make demo\n"]
    for command in commands:
        async with typed(command, ROOT, dict(sandbox.environment)) as shell:
            assert await shell.read_to_end() == 0, shell.output
            assert "no file is left" in shell.output
    await sandbox.expect_nothing_left()


def read_lab(output: str) -> dict[str, str]:
    """What the lab tells: the line to type, and where its Sprites API is."""
    (line,) = re.findall(r"^export KUBECONFIG=.*$", output, re.MULTILINE)
    (address,) = re.findall(r"curl (http://127\.0\.0\.1:\d+)/_lab/", output)
    return {"line": line, "address": address}


@pytest.mark.cluster
@pytest.mark.sprites
@pytest.mark.timeout(300)
async def test_the_commands_for_the_lab_work_in_the_lab(sandbox: Sandbox, tmp_path: Path) -> None:
    (lab_command,) = commands_to_run(AS_THE_LAB)
    folder = tmp_path / "reader"
    folder.mkdir()
    for name in ("examples", "crds"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    (folder / "token.txt").write_text(build_sprites_token("team"))
    async with typed(lab_command, ROOT, dict(sandbox.environment)) as lab:
        await lab.read_until(LAB_READY)
        sandbox.remember(lab.process.pid)
        told = read_lab(lab.output)
        path = f"{ROOT / '.venv/bin'}{os.pathsep}{sandbox.environment['PATH']}"
        environment = {
            **sandbox.environment,
            "PATH": path,
            # A reader's operator would speak to the real Sprites API, and serve its pages on the usual port.
            "AGENTTERMINAL_SPRITES_URL": told["address"],
            "AGENTTERMINAL_METRICS_PORT": "0",
            "AGENTTERMINAL_GATEWAY_PORT": "0",
            "AGENTTERMINAL_GATEWAY_METRICS_PORT": "0",
            "KUBECACHEDIR": str(folder / "kubectl-cache"),
        }
        run = 0
        for block in BLOCKS:
            if block.how not in {AS_IT_STANDS, BY_YOU, AS_THE_LAB}:
                await follow(block, told["line"], folder, environment)
                run += 1
        assert run == 6
        lab.press_ctrl_c()
        # The lab ends with 0; make, which was interrupted as well, waits for it and ends by the signal.
        assert await lab.read_to_end() == -signal.SIGINT, lab.output
    await sandbox.expect_nothing_left()


async def follow(block: Block, line: str, folder: Path, environment: dict[str, str]) -> None:
    """Type a block into a terminal that has typed the lab's line, and see it succeed."""
    if block.how == AT_A_TERMINAL:
        for command in block.commands.splitlines():
            await asyncio.to_thread(attach_and_leave, f"{line}\n{command}", folder, environment)
        return
    until = UNTIL.fullmatch(block.how or "")
    async with typed(f"{line}\n{block.commands}", folder, environment) as shell:
        if until is not None:
            await shell.read_until(until[1])
            shell.press_ctrl_c()
        assert await shell.read_to_end() == 0, shell.output


def attach_and_leave(commands: str, folder: Path, environment: dict[str, str]) -> None:
    """Type commands that attach a real terminal, and leave it by the detach keys."""
    terminal = open_terminal(
        ["/bin/bash", "-euo", "pipefail", "-c", commands],
        environment={**environment, "TERM": "xterm-256color"},
        folder=folder,
    )
    try:
        terminal.expect_exact("ctrl-p ctrl-q leaves it.")
        terminal.send("\x10\x11")
        terminal.expect_exact("Detached. The session goes on: demo/adopted")
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)
    assert terminal.exitstatus == 0, commands

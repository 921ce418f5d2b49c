"""The lab stands until it is ended, what it says to type works, and nothing of it stays however it ends."""

import asyncio
import re
import signal
import subprocess
from pathlib import Path

import pexpect
import pytest

from tests.lab.watching import list_children, read_command, until
from tests.support.commands import (
    AGENTTERMINAL,
    MOMENT_SECONDS,
    ROOT,
    Running,
    Sandbox,
    kill_quietly,
    open_terminal,
    running,
)

pytestmark = [pytest.mark.cluster, pytest.mark.sprites, pytest.mark.timeout(240)]

READY = "Ctrl-C ends everything."


async def type_line(line: str, lab: Running) -> str:
    """Type a line into another terminal, in which the lab's first line was typed."""
    (export,) = re.findall(r"^export KUBECONFIG=.*$", lab.output, re.MULTILINE)
    shell = await asyncio.create_subprocess_shell(
        f"{export}\n{line}",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**lab.sandbox.environment, "PATH": f"{ROOT / '.venv/bin'}:{lab.sandbox.environment['PATH']}"},
        cwd=ROOT,
    )
    async with asyncio.timeout(MOMENT_SECONDS):
        output, _ = await shell.communicate()
    assert shell.returncode == 0, f"{line}\n{output.decode()}"
    return output.decode()


async def test_the_three_commands_that_it_prints_work_as_they_stand(tmp_path: Path) -> None:
    async with running(tmp_path, "lab") as lab:
        await lab.read_until(READY)
        apply, get, patch = re.findall(r"^  (kubectl .*)$", lab.output, re.MULTILINE)

        assert "terminals" not in await type_line("kubectl auth whoami", lab)
        await type_line(apply, lab)
        await type_line("kubectl wait aterm --all --for=condition=Ready --timeout=30s", lab)
        listed = await type_line(get, lab)
        assert re.findall(r"^(\w+) +dev +\d+ +Detached ", listed, re.MULTILINE) == ["adopted", "launched", "stubborn"]
        await type_line(patch, lab)
        await type_line("kubectl wait aterm stubborn --for=condition=Terminated --timeout=30s", lab)
        (look,) = re.findall(r"(curl http://\S+)", lab.output)
        assert "trap" not in await type_line(f"{look} -s", lab)
        assert lab.process.returncode is None
        assert await lab.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("death", "code"), [(signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -9), (signal.SIGABRT, -6)]
)
async def test_however_it_ends_nothing_stays(death: signal.Signals, code: int, tmp_path: Path) -> None:
    async with running(tmp_path, "lab") as lab:
        await lab.read_until(READY)

        assert await lab.end(death) == code, lab.output
        assert lab.sandbox.known > 8
        await lab.sandbox.expect_nothing_left()


async def test_ctrl_c_typed_at_a_terminal_ends_it_with_0_and_leaves_nothing(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    terminal = open_terminal([*AGENTTERMINAL, "lab"], environment=sandbox.environment)
    try:
        terminal.expect_exact(READY)
        sandbox.remember(terminal.pid)
        # Twice, as impatient people do: the second changes nothing.
        terminal.send("\x03\x03")
        terminal.expect(pexpect.EOF)
    finally:
        terminal.close(force=True)

    assert terminal.exitstatus == 0
    await sandbox.expect_nothing_left()


async def test_ctrl_c_before_it_is_ready_ends_it_with_130(tmp_path: Path) -> None:
    async with running(tmp_path, "lab") as lab:
        await until(lambda: bool(find_stores(lab)), within_seconds=MOMENT_SECONDS)
        # Without its store nothing becomes ready, however long the next lines take.
        kill_quietly(find_stores(lab)[0], signal.SIGSTOP)

        assert await lab.end(signal.SIGINT) == 130, lab.output
        await lab.sandbox.expect_nothing_left()


def find_stores(lab: Running) -> list[int]:
    return [pid for pid in programs(lab) if [Path(word).name for word in read_command(pid)[:1]] == ["etcd"]]


def programs(lab: Running) -> list[int]:
    return [pid for pid in list_children(lab.process.pid) if read_command(pid)]


async def test_a_part_that_ends_by_itself_ends_the_lab_with_1_and_the_end_of_its_log(tmp_path: Path) -> None:
    async with running(tmp_path, "lab") as lab:
        await lab.read_until(READY)
        lab.sandbox.remember(lab.process.pid)
        (operator,) = [pid for pid in programs(lab) if "operator" in read_command(pid)]
        kill_quietly(operator, signal.SIGKILL)

        assert await lab.read_to_end() == 1
        assert "Error: The operator was ended by SIGKILL. The end of its log:" in lab.output
        assert "Every object was seen." in lab.output
        await lab.sandbox.expect_nothing_left()

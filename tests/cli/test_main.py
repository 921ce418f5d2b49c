"""The switchboard: lazy, complete in its help, and one sentence for every failure."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from controller.cli import main as switchboard
from controller.cli.errors import ExitCode, judge_farewell
from controller.cli.main import COMMANDS, cli, run
from controller.errors import AgentTerminalError
from controller.settings import Fault, SettingsFaulty
from controller.tenure import TenureEnded
from tests.support.secrecy import secret

ROOM = Path(switchboard.__file__).parent
PLANTED = secret()


def raise_it(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Run a command that ends with the given failure."""

    def end_with(error: BaseException) -> int:
        broken = click.Command("broken", callback=raise_it(error))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "get_command", lambda ctx, name: broken)
            return run(["broken"])

    monkeypatch.delenv("AGENTTERMINAL_DEBUG", raising=False)
    return end_with


def test_a_foreseen_failure_says_its_own_sentence(
    command: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(AgentTerminalError("The Sprites API has no sprite of this name.")) == 1

    assert capsys.readouterr().err == "Error: The Sprites API has no sprite of this name.\n"


def test_bad_settings_are_all_listed_and_exit_with_2(
    command: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    faults = (Fault("A", "'x'", "must be a number", "Unset it."), Fault("B", None, "must be set", "Set it."))

    assert command(SettingsFaulty(faults)) == 2

    assert capsys.readouterr().err == (
        "2 settings are faulty:\n  A is 'x', but must be a number. Unset it.\n  B must be set. Set it.\n"
    )


def test_an_unexpected_failure_is_one_line_that_shows_neither_its_text_nor_a_traceback(
    command: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(RuntimeError(f"Authorization: Bearer {PLANTED}")) == 1

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Error: an unexpected RuntimeError at controller/cli/main.py:")
    assert PLANTED not in line


def test_debug_shows_the_traceback_as_well(
    command: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTTERMINAL_DEBUG", "1")

    assert command(RuntimeError("why")) == 1

    err = capsys.readouterr().err
    assert "Traceback (most recent call last):" in err
    assert "RuntimeError: why" in err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "Interrupted."),
        (click.exceptions.Abort(), ExitCode.INTERRUPTED, "Interrupted."),
        (click.ClickException("No."), ExitCode.FAILED, "Error: No."),
        (
            PermissionError(13, "Permission denied", "/x"),
            ExitCode.FAILED,
            "Error: the operating system refused: Permission denied: /x.",
        ),
        (
            OSError(98, "Address already in use"),
            ExitCode.FAILED,
            "Error: the operating system refused: Address already in use.",
        ),
        (
            ExceptionGroup("tasks", [KeyError("bug"), ExceptionGroup("inner", [AgentTerminalError("Known.")])]),
            ExitCode.FAILED,
            "Error: Known.",
        ),
        (
            ExceptionGroup("tasks", [KeyError("bug"), TenureEnded("The Lease is lost.")]),
            ExitCode.DEPOSED,
            "Error: The Lease is lost.",
        ),
        (
            ExceptionGroup("tasks", [KeyError("bug")]),
            ExitCode.FAILED,
            "Error: an unexpected KeyError. This is a bug; AGENTTERMINAL_DEBUG=1 shows where it came from.",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_every_kind_of_end_has_its_sentence_and_its_code(error: BaseException, code: int, text: str) -> None:
    farewell = judge_farewell(error)

    assert (farewell.code, farewell.text) == (code, text)


def test_a_command_that_gives_a_number_ends_with_it() -> None:
    counted = click.Command("counted", callback=lambda: 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "get_command", lambda ctx, name: counted)
        assert run(["counted"]) == 3


@pytest.mark.parametrize("arguments", [["nope"], ["--nope"], ["nope", "--help"]])
def test_a_wrong_word_exits_with_2_and_says_which(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2

    assert "nope" in capsys.readouterr().err


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0

    assert capsys.readouterr().out == "agentterminal, version 0.1.0\n"


def test_a_reader_that_has_seen_enough_gets_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "controller.cli.main", "crd"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    finally:
        os.close(write_end)

    assert (ended.returncode, ended.stderr) == (1, "")


def modules_after(code: str) -> set[str]:
    """What a fresh interpreter has loaded after the code ran."""
    script = f"{code}\nimport sys\nprint('LOADED', *sys.modules)"
    output = subprocess.run(  # noqa: PLW1510 - the text below is the check
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    loaded = [line for line in output.stdout.splitlines() if line.startswith("LOADED ")]
    assert loaded, output.stderr
    return set(loaded[-1].split()[1:])


def test_listing_the_commands_imports_none_of_them() -> None:
    loaded = modules_after("from controller.cli.main import run\nrun(['--help'])")

    assert not loaded & {"aiohttp", "httpx", "kopf", "kubernetes", "pydantic", "rich", "prometheus_client"}
    assert not {
        name for name in loaded if name.startswith(("controller.engine", "controller.lab", "controller.cli."))
    } - {
        "controller.cli.main",
        "controller.cli.errors",
    }


@pytest.mark.parametrize("name", ["operator", "crd"])
def test_what_runs_in_a_cluster_does_not_import_the_lab(name: str) -> None:
    loaded = modules_after(f"from controller.cli.main import run\nrun(['{name}', '--help'])")

    assert COMMANDS[name].module in loaded
    assert not {module for module in loaded if module.startswith("controller.lab")}


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, (*path, name)
            yield from walk(inner, (*path, name))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_is_complete(name: str) -> None:
    top = cli.get_command(click.Context(cli), name)
    assert top is not None
    assert top.name == name

    for path, command in walk(top, (name,)):
        assert command.help, f"{path} has no help"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path}: {parameter.opts} has no help"
            else:
                assert parameter.human_readable_name in command.help, f"{path}: the help does not name its argument"
        shown = CliRunner().invoke(cli, [*path, "--help"])
        assert shown.exit_code == 0, shown.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_each_command_what_its_own_help_begins_with(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.help is not None
    assert " ".join(command.help.split()).startswith(COMMANDS[name].summary.removesuffix("."))


def test_every_module_of_this_room_that_offers_a_command_is_in_the_list() -> None:
    offering = {path.stem for path in ROOM.glob("*.py") if "\n@click.command(" in path.read_text()}

    assert offering == {entry.module.rpartition(".")[2] for entry in COMMANDS.values()}

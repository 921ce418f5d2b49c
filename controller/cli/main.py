"""
The console script `agentterminal`: a switchboard, nothing else.

Problem: a command that imports everything starts slowly and lets the operator's image drag the lab along. Promise:
only the chosen command's module is imported; the list of commands needs none; every failure ends in one sentence and an
exit code (`controller.cli.errors`).
"""

import importlib
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import click

from controller import __version__
from controller.cli.errors import ExitCode, judge_farewell


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and the line that `--help` shows for it without importing it."""

    module: str
    attribute: str
    summary: str


COMMANDS: Final[Mapping[str, Entry]] = {
    "operator": Entry(
        "controller.cli.operator", "operator_command", "Run the operator against a cluster, in the foreground."
    ),
    "gateway": Entry(
        "controller.cli.gateway",
        "gateway_command",
        "Let people and programs attach to terminals by their Kubernetes identity.",
    ),
    "crd": Entry("controller.cli.crd", "crd_command", "Print the CustomResourceDefinition of AgentTerminal as YAML."),
    "demo": Entry("controller.cli.demo", "demo_command", "Watch three terminals live and die."),
    "lab": Entry("controller.cli.lab", "lab_command", "Keep the demo's world running in the foreground."),
    "control-plane": Entry(
        "controller.cli.control_plane",
        "control_plane_command",
        "Run a real Kubernetes control plane on loopback: etcd and kube-apiserver.",
    ),
    "sprites-emulator": Entry(
        "controller.cli.sprites_emulator",
        "sprites_emulator_command",
        "Serve the Sprites API on loopback, with real processes, until Ctrl-C.",
    ),
    "attach": Entry("controller.cli.attach", "attach_command", "Attach this terminal to the AgentTerminal NAME."),
    "bench": Entry("controller.cli.bench", "bench_command", "Measure the operator on a real API server."),
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and loads only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import the command's module, and nothing else."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.attribute} is no command.")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Show the table's own lines, so that listing imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="agentterminal", help="Show the version and exit.")
def cli() -> None:
    """
    Declare the terminals of AI agents in Fly.io Sprites.

    `agentterminal demo` shows it on this machine; `agentterminal operator` runs it against a cluster,
    and `agentterminal gateway` lets people attach.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """
    Run one command and give its exit code; failures have been told on standard error.

    Args:
        arguments: Without the program's name; those of the process if None.
    """
    return run_command(cli, arguments, program="agentterminal")


def run_command(command: click.Command, arguments: Sequence[str] | None, *, program: str) -> int:
    """Run any command of ours in the same way: its exit code, and every failure told in one sentence."""
    try:
        result = command.main(args=arguments, prog_name=program, standalone_mode=False)
    except click.UsageError as misuse:
        misuse.show()
        return misuse.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last net: no traceback reaches a user
        return _say_farewell(error)
    return result if isinstance(result, int) else ExitCode.DONE


def _say_farewell(error: BaseException) -> int:
    from controller.settings import environment, is_debug  # noqa: PLC0415 - settings cost time that --help need not pay

    if is_debug(environment()):
        traceback.print_exception(error)
    farewell = judge_farewell(error)
    click.echo(farewell.text, err=True)
    return farewell.code


if __name__ == "__main__":
    main()

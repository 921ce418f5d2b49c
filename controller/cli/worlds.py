"""What `demo` and `lab` share: how a world comes about, and what a user types in it."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import yaml

from controller.errors import AgentTerminalError
from controller.lab.binaries import build_progress, find_binaries, read_binaries_settings
from controller.lab.emulator import Isolation
from controller.lab.rights import read_gateway_rules, read_people_rules, read_rules
from controller.lab.world import World, WorldSettings
from controller.settings import environment, read_cache_folder

OPERATOR_COMMAND: Final = (sys.executable, "-P", "-m", "controller.cli.main", "operator")
"""-P: a folder that happens to be called `controller` where we were started is not ours."""

GATEWAY_COMMAND: Final = (*OPERATOR_COMMAND[:-1], "gateway")

PROGRAMS: Final = tuple(Path(sys.executable).parent / name for name in ("agentterminal", "kubectl-aterm"))
"""Beside the Python that runs us."""

REPOSITORY: Final = Path(__file__).parents[2]
RULES: Final = REPOSITORY / "charts/agentterminal-operator/files/rules.yaml"
GATEWAY_RULES: Final = REPOSITORY / "charts/agentterminal-operator/files/gateway-rules.yaml"
PEOPLE_RULES: Final = REPOSITORY / "charts/agentterminal-operator/files/people-rules.yaml"

PLAIN_HELP: Final = (
    "Run sessions without namespaces, where the system has none. Lost are: a sprite's own /home/sprite, /tmp and"
    " /dev/shm, session ids that come again after a cold start, and the certainty that nothing outlives a kill -9."
)


class ExamplesMissing(AgentTerminalError):
    """The objects to apply are not where they belong."""


async def build_world(*, plain: bool) -> World:
    """Find or make the binaries, and give a world that is still to be started."""
    environ = environment()
    settings = read_binaries_settings(environ, cache=read_cache_folder(environ))
    # What can be missing at once is looked for before what may take minutes.
    rules, gateway_rules, people = read_rules(RULES), read_gateway_rules(GATEWAY_RULES), read_people_rules(PEOPLE_RULES)
    find_examples()
    binaries = await find_binaries(settings, build_progress())
    isolation = Isolation.PLAIN if plain else Isolation.AUTO
    return World(
        binaries,
        WorldSettings(OPERATOR_COMMAND, rules, environ, isolation, GATEWAY_COMMAND, gateway_rules, people),
    )


def find_examples() -> Path:
    """
    Find the folder with the three objects, in the repository that this code belongs to.

    Raises:
        ExamplesMissing: The code was installed without its repository.
    """
    folder = REPOSITORY / "examples"
    if not (folder / "adopted.yaml").is_file():
        raise ExamplesMissing(f"There is no folder {folder}: demo and lab run from a clone of the repository.")
    return folder


def render_apply(examples: Path, session: str, *, here: Path) -> str:
    """
    Write the command that applies the three examples.

    Args:
        examples: Where they are.
        session: The session to adopt. In plain mode its id cannot be foreseen, and is put in its place.
        here: The folder the command is typed in.
    """
    folder = shlex.quote(str(examples.relative_to(here) if examples.is_relative_to(here) else examples))
    foreseen = read_foreseen_session(examples)
    if session == foreseen:
        return f"kubectl apply -f {folder}/"
    others = " ".join(f"-f {folder}/{name}.yaml" for name in ("launched", "stubborn"))
    change = f"""sed 's/sessionId: "{foreseen}"/sessionId: "{session}"/' {folder}/adopted.yaml"""
    return f"{change} | kubectl apply {others} -f -"


def read_foreseen_session(examples: Path) -> str:
    """Read the session id that the example of an adoption names."""
    document = yaml.safe_load((examples / "adopted.yaml").read_text())
    return str(document["spec"]["sessionId"])


def render_path_line(programs: Iterable[Path], environ: Mapping[str, str]) -> str | None:
    """Write the line that makes programs found, where one of them is not."""
    folders = [Path(folder) for folder in environ.get("PATH", "").split(os.pathsep) if folder]
    missing = [
        program.parent
        for program in programs
        if not any(os.access(folder / program.name, os.X_OK) for folder in folders)
    ]
    if not missing:
        return None
    return f'export PATH="$PATH":{shlex.quote(os.pathsep.join(map(str, dict.fromkeys(missing))))}'

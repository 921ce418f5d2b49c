"""`agentterminal lab`: the demo's world, kept running in the foreground."""

import asyncio
import shlex
from pathlib import Path

import click

from controller.cli.worlds import PLAIN_HELP, PROGRAMS, build_world, find_examples, render_apply, render_path_line
from controller.lab.processes import run_until_signalled
from controller.lab.world import SPRITE, World, WorldFailed
from controller.settings import environment


def render_welcome(world: World) -> str:
    """Say what is there, and what to type in another terminal."""
    path_line = render_path_line([world.kubectl, *PROGRAMS], environment())
    return "\n".join(
        [
            f"export KUBECONFIG={shlex.quote(str(world.kubeconfig))} AGENTTERMINAL_ATTACH_URL={world.gateway_url}",
            *([] if path_line is None else [path_line]),
            "",
            f"A real API server, operator, gateway and a sprite named {SPRITE} are running.",
            "Type the above in another terminal, then try:",
            "",
            f"  {render_apply(find_examples(), world.hand_made_session, here=Path.cwd())}",
            "  kubectl get aterm -o wide",
            """  kubectl patch aterm stubborn --type=merge -p '{"spec":{"terminated":true}}'""",
            "  agentterminal attach adopted",
            "",
            f"The processes inside the sprite: curl {world.sprites_url}/_lab/sprites/{SPRITE}/processes",
            "Ctrl-C ends everything.",
        ]
    )


@click.command(name="lab")
@click.option("--plain", is_flag=True, help=PLAIN_HELP)
def lab_command(*, plain: bool) -> int:
    """
    Keep the demo's world running in the foreground: a real API server, operator, gateway, and a local Sprites API.

    Prints a line `export KUBECONFIG=...` and three commands to try when it is ready, and runs until Ctrl-C or SIGTERM.
    However it ends, no process and no file of it stays, but for the binaries in the cache folder.

    Exit code: 0 when it was ended after it was ready; 130 (Ctrl-C), 143 (SIGTERM) or 129 (hang-up) when it was ended
    before; 1 when it failed, also when a part of it ended by itself.
    """
    ready = asyncio.Event()

    async def work() -> None:
        async with await build_world(plain=plain) as world:
            click.echo(render_welcome(world))
            ready.set()
            raise WorldFailed(await world.wait_ended())

    received = asyncio.run(run_until_signalled(work()))
    return 0 if received is None or ready.is_set() else 128 + received

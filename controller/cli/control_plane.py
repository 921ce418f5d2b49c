"""`agentterminal control-plane`: a real etcd and kube-apiserver in the foreground."""

import asyncio
import shlex
from pathlib import Path

import click

from controller.lab.binaries import build_progress, find_binaries, read_binaries_settings
from controller.lab.control_plane import ControlPlane, ControlPlaneFailed
from controller.lab.processes import run_until_signalled
from controller.settings import environment, read_cache_folder


@click.command(name="control-plane")
@click.option(
    "--controller-manager",
    is_flag=True,
    help="Run kube-controller-manager as well, with the controllers for aggregated roles, namespaces and garbage"
    " collection. Without it aggregated roles stay empty and deleted namespaces never finish. Building it takes some"
    " minutes more, once.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Put kubeconfig, keys and logs there instead of in a temporary folder. It has to be absent or empty, and is"
    " removed at the end.",
)
@click.option("--fetch", is_flag=True, help="Only find or make the binaries, and end.")
def control_plane_command(*, controller_manager: bool, directory: Path | None, fetch: bool) -> int:
    """
    Run a real Kubernetes control plane on loopback: etcd and kube-apiserver.

    Prints one line, `export KUBECONFIG=...`, when it is ready, and runs until Ctrl-C or SIGTERM. However it ends, no
    process and no file of it stays.

    The binaries come from the first place that has them: the folder in $KUBEBUILDER_ASSETS; the cache folder
    ($AGENTTERMINAL_CACHE, else agentterminal in the user's cache folder); setup-envtest; a build with Go, once.

    Exit code: 0 when it was ended after it was ready; 130 (Ctrl-C), 143 (SIGTERM) or 129 (hang-up) when it was ended
    before; 1 when it failed, also when etcd or kube-apiserver ended by itself.
    """
    ready = asyncio.Event()

    async def work() -> None:
        environ = environment()
        settings = read_binaries_settings(environ, cache=read_cache_folder(environ))
        binaries = await find_binaries(settings, build_progress(), controller_manager=controller_manager)
        if fetch:
            click.echo(f"The binaries are there, from {binaries.origin}: {binaries.kube_apiserver.parent}", err=True)
            return
        async with ControlPlane(binaries, directory=directory) as plane:
            click.echo(f"export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}")
            click.echo(f"The API server is ready at {plane.url}. Ctrl-C ends it.", err=True)
            ready.set()
            raise ControlPlaneFailed(await plane.wait_ended())

    received = asyncio.run(run_until_signalled(work()))
    return 0 if received is None or ready.is_set() else 128 + received

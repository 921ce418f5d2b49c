"""
The cluster into which the chart is installed: a control plane with controllers, other people's kinds, and no kind of
ours.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.lab.binaries import Binaries, build_progress, find_binaries, read_binaries_settings
from controller.lab.control_plane import ControlPlane
from controller.settings import environment, read_cache_folder
from tests.cluster.plane import Cluster

FOREIGN_KINDS: Final = Path(__file__).parent / "crds"
NAMESPACES: Final = ("agents", "team-a", "team-b")


async def _find() -> Binaries:
    settings = read_binaries_settings(environment(), cache=read_cache_folder(environment()))
    return await find_binaries(settings, build_progress(), controller_manager=True)


def prepare_site() -> None:
    """Find or make the binaries now, with progress, outside of any test's bound."""
    asyncio.run(_find())


class Site(Cluster):
    """A `Cluster` with controllers, the namespaces of the value files, and the kinds that switches ask for."""

    def __init__(self) -> None:
        super().__init__()
        for name in NAMESPACES:
            self.create_namespace(name)

    def create_namespace(self, name: str) -> None:
        """Make a namespace."""
        status, answer = self.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
        assert status == 201, answer

    async def _start(self, api_server_arguments: Sequence[str]) -> ControlPlane:
        plane = ControlPlane(await _find(), api_server_arguments=api_server_arguments)
        await plane.start()
        try:
            await plane.install_crds(FOREIGN_KINDS)
        except BaseException:
            await plane.stop()
            raise
        return plane

"""The pages for whoever runs a cluster as a reader has them: their commands, and a terminal in which they are typed."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.settings import environment
from tests.chart.helm import Helm
from tests.chart.site import Site
from tests.house.cases import ROOT
from tests.house.test_readme import BLOCK

PAGES: Final = ("install", "upgrade", "uninstall")
RUN_WITHIN_SECONDS: Final = 110

BY_YOU: Final = "by you"
IN_A_CLUSTER: Final = "in a cluster"
WITH_A_TOKEN: Final = "in a cluster, with a token in token.txt"
WITH_A_CERTIFICATE: Final = "in a cluster, with a certificate in tls.crt and tls.key"
WHEN_A_TEAM_LEAVES: Final = "in a cluster, when the team of warehouse leaves"
WITHOUT_AN_OPERATOR: Final = "in a cluster, when the operator went first"
IN_ANOTHER: Final = "in another cluster"
AFTER_KUBECTL: Final = "in another cluster, which may have the kind already"
"""How a block of commands is run: what its page's comment says."""


@dataclass(frozen=True)
class Block:
    """Some commands of a page, and how they are run."""

    page: str
    how: str | None
    commands: str


def _read_blocks() -> Iterator[Block]:
    for page in PAGES:
        for found in BLOCK.finditer((ROOT / f"docs/{page}.md").read_text()):
            assert found["language"] == "sh", found["body"]
            yield Block(page, found["how"], found["body"])


BLOCKS: Final = tuple(_read_blocks())


def find_commands(page: str, *ways: str) -> list[str]:
    """Give the blocks of a page that are run in one of these ways, in their order."""
    found = [block.commands for block in BLOCKS if block.page == page and block.how in ways]
    assert found, (page, ways)
    return found


@dataclass(frozen=True)
class Desk:
    """A folder with this repository in it, and a terminal whose kubectl and helm reach the cluster."""

    folder: Path
    helm: Helm
    site: Site

    def type(self, commands: str, *, kubeconfig: Path | None = None) -> str:
        """Type some commands, as the administrator or as the kubeconfig says; give what they wrote."""
        done = self.run(commands, kubeconfig=kubeconfig)
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def run(self, commands: str, *, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Type some commands that may fail."""
        path = [str(ROOT / ".venv/bin"), str(self.helm.program.parent), environment().get("PATH", "")]
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env={
                "PATH": os.pathsep.join(path),
                "HOME": str(self.helm.home),
                "KUBECONFIG": str(kubeconfig or self.site.kubeconfig),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_WITHIN_SECONDS,
        )


def build_desk(folder: Path, helm: Helm, site: Site) -> Desk:
    """Make the folder as the pages expect it."""
    for name in ("charts", "config", "crds", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return Desk(folder, helm, site)

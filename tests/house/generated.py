"""
The files that are rendered from the code: `python -m tests.house.generated` writes them, `--check` only compares.

A generated file that is edited by hand, or forgotten after a change, is found by `make check` and by a test.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from controller.api.crd import render_crd_text
from controller.api.names import CRD_NAME
from controller.gateway.metrics import render_gateway_metrics
from controller.lab.emulator.lies_page import render_lies_page
from controller.metrics import render_metrics_page
from controller.settings.table import render_settings_page
from tests.api.spec_page import render_spec_page
from tests.house.cases import ROOT, render_behaviour_page
from tests.house.chart_page import render_chart_page

GENERATED: Final[Mapping[str, Callable[[], str]]] = {
    f"crds/{CRD_NAME}.yaml": render_crd_text,
    "charts/agentterminal-operator/README.md": render_chart_page,
    "charts/agentterminal-operator/files/crd.yaml": render_crd_text,
    f"config/crd/{CRD_NAME}.yaml": render_crd_text,
    "docs/behaviour.md": render_behaviour_page,
    "docs/emulator-lies.md": render_lies_page,
    "docs/metrics.md": lambda: f"{render_metrics_page()}\n{render_gateway_metrics()}",
    "docs/settings.md": render_settings_page,
    "docs/spec.md": render_spec_page,
}


def find_stale(root: Path = ROOT) -> Mapping[str, str]:
    """Give the files that are not what the code renders, with what they should be."""
    stale = {}
    for name, render in GENERATED.items():
        path, text = root / name, render()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale[name] = text
    return stale


def main(arguments: list[str]) -> int:
    """Write what is stale, or only name it."""
    stale = find_stale()
    for name, text in stale.items():
        if arguments == ["--check"]:
            print(f"{name} is not what the code renders; run `make crds`.", file=sys.stderr)  # noqa: T201 - a script
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(text, encoding="utf-8")
            print(f"Wrote {name}.")  # noqa: T201 - a script
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""
The kustomize base, rendered from the chart: `python -m tests.chart.base` writes config/base/operator.yaml.

One source of every manifest: whoever installs without Helm gets what Helm would have applied.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chart.helm import Helm, prepare_helm
from tests.house.cases import ROOT

BASE: Final = ROOT / "config/base/operator.yaml"
HEAD: Final = "# Rendered from charts/agentterminal-operator by `make config`; edit that.\n"


def render_base(helm: Helm) -> str:
    """Render the chart without what is Helm's own, and without the kind, which config/crd has."""
    documents = helm.render(
        release="agentterminal-operator", namespace="agentterminal", settings={"crds.install": "false"}
    )
    return HEAD + yaml.safe_dump_all(map(_without_helm, documents), sort_keys=False, width=120)


def _without_helm(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_helm(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _without_helm(entry) for key, entry in value.items() if key != "helm.sh/chart"}
    if "app.kubernetes.io/managed-by" in kept:
        kept["app.kubernetes.io/managed-by"] = "kustomize"
    return kept


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        BASE.write_text(render_base(Helm(prepare_helm(), Path(home))))
    sys.stderr.write(f"Wrote {BASE.relative_to(ROOT)}.\n")

"""An installation as a user makes it, for as long as a test needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from controller.api.names import API_VERSION, CRD_NAME, PLURAL
from tests.chart.helm import Helm
from tests.chart.site import Site
from tests.house.chart_page import CHART
from tests.support.process import await_true

RELEASE: Final = "agentterminal-operator"
CRD_PATH: Final = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{CRD_NAME}"
KIND_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"
GOES_WITHIN_SECONDS: Final = 60.0


def install(helm: Helm, site: Site, *words: str, chart: Path = CHART) -> None:
    """Install the chart, or bring the release to these values, and return when the kind is served."""
    helm.run("upgrade", "--install", RELEASE, str(chart), "--namespace=agents", *words, kubeconfig=site.kubeconfig)
    await_kind(site)


def uninstall(helm: Helm, site: Site) -> None:
    """Uninstall the release."""
    helm.run("uninstall", RELEASE, "--namespace=agents", kubeconfig=site.kubeconfig)


def await_kind(site: Site) -> None:
    """
    Return when the kind is served.

    Whoever deletes it again waits for this first: a server that has to open a kind's store only to empty it tries again
    5 ms after "storage is (re)initializing", and where its own note of that has not come back to it by then, it takes
    the conflict for news that will follow, and never comes again (kube-apiserver 1.37.2: 1 of 150 deletions, on two
    busy cores; of 100 that waited, none).
    """
    await_true(lambda: is_served(site), "the kind to be served")


def is_served(site: Site) -> bool:
    """Tell whether objects of the kind can be asked for."""
    return site.request("GET", KIND_PATH)[0] == 200


def remove_kind(site: Site) -> None:
    """Delete the kind with everything of it, and return when it is gone."""

    def is_gone() -> bool:
        return site.request("GET", CRD_PATH)[0] == 404

    # It may be on its way out already.
    await_true(lambda: is_gone() or is_served(site), "the kind to be served or gone")
    site.request("DELETE", CRD_PATH)
    await_true(is_gone, "the kind to be gone", GOES_WITHIN_SECONDS)


@contextmanager
def installed(helm: Helm, site: Site, *values: Path) -> Iterator[None]:
    """Install for a while; afterwards nothing is left, the kind included."""
    install(helm, site, *(f"--values={path}" for path in values))
    try:
        yield
    finally:
        uninstall(helm, site)
        remove_kind(site)

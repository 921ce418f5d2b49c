"""All tests of this folder need helm; those on the API server also kube-controller-manager."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.helm import Helm, prepare_helm
from tests.chart.remains import list_settled_objects
from tests.chart.scoring import prepare_kube_score
from tests.chart.site import Site, prepare_site

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `make test WITHOUT=chart` leaves them out, and WITHOUT=cluster those on the API server."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("chart")
            if "site" in getattr(item, "fixturenames", ()):
                item.add_marker("cluster")
            if "lab" in getattr(item, "fixturenames", ()):
                item.add_marker("sprites")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or make what is built with Go before the first test: a build takes longer than a test may."""
    if session.config.option.collectonly:
        return
    mine = [item for item in session.items if item.path.is_relative_to(HERE)]
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
        if mine:
            prepare_helm()
        if any("program" in getattr(item, "fixturenames", ()) for item in mine):
            prepare_kube_score()
        if any("site" in getattr(item, "fixturenames", ()) for item in mine):
            prepare_site()


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The judge of the chart."""
    return Helm(prepare_helm(), tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A real API server with its controllers and without our kind: the chart brings it."""
    site = Site()
    list_settled_objects(site)
    yield site
    site.close()

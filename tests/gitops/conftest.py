"""One stand for all tests of this folder: a real API server, the operator as its own process, an emulator."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.plane import Cluster
from tests.gitops.judges import prepare_kstatus
from tests.gitops.lives import Lives, play_lives
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World

HERE = Path(__file__).parent
NEEDY = {"kstatus", "stand", "lives"}
"""The fixtures that need what is built with Go."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `make cluster` finds them and `make test WITHOUT=cluster` leaves them out."""
    for item in items:
        if item.path.is_relative_to(HERE) and NEEDY & set(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or make kstatus before the first test: a build takes longer than a test may."""
    if session.config.option.collectonly:
        return
    if not any(item.path.is_relative_to(HERE) and item.get_closest_marker("cluster") for item in session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
        prepare_kstatus()


@pytest.fixture(scope="session")
def kstatus() -> Path:
    """The program that asks the kstatus library."""
    return prepare_kstatus()


@pytest.fixture(scope="session")
def emulator() -> Iterator[EmulatorProcess]:
    """A Sprites emulator with real processes."""
    with EmulatorProcess() as process:
        yield process


@pytest.fixture(scope="session")
def stand(cluster: Cluster, emulator: EmulatorProcess) -> Iterator[World]:
    """A namespace and a running operator that looks at the sprites every second; each test has objects of its own."""
    name = f"gitops-{os.getpid()}"
    for namespace in (name, f"{name}-unwatched"):
        status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": namespace}})
        assert status == 201
    with World(cluster, name, emulator) as world:
        world.start_operator(METADATA_SECONDS="1")
        yield world
    for namespace in (name, f"{name}-unwatched"):
        cluster.empty_namespace(namespace)


@pytest.fixture(scope="session")
def lives(stand: World) -> Lives:
    """The lives of some thirty objects, played once, side by side."""
    return play_lives(stand)

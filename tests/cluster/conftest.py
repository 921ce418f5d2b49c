"""All tests of this folder need a real etcd and kube-apiserver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.auditing import AuditedCluster
from tests.cluster.plane import Cluster
from tests.support.emulator import EmulatorProcess
from tests.support.operator import World

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `make cluster` finds them and `make test WITHOUT=cluster` leaves them out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("cluster")


@pytest.fixture(scope="session")
def lab_process() -> Iterator[EmulatorProcess]:
    """A Sprites emulator with real processes, one for all tests of a worker."""
    with EmulatorProcess() as process:
        yield process


@pytest.fixture
def lab(lab_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    """The emulator, with one sprite that is called `box` and runs."""
    lab_process.reset()
    lab_process.create_sprites("box")
    lab_process.set_state("box", "running")
    yield lab_process
    lab_process.reset()


@pytest.fixture(scope="session")
def audited() -> Iterator[AuditedCluster]:
    """Another control plane, for tests that change the kind itself or ask who was asked for what."""
    cluster = AuditedCluster()
    yield cluster
    cluster.close()


@pytest.fixture
def world(cluster: Cluster, namespace: str, lab: EmulatorProcess) -> Iterator[World]:
    """A namespace of its own, the emulator, and a running operator that watches it."""
    with World(cluster, namespace, lab) as world:
        world.start_operator()
        yield world

"""What all rooms of the tests share."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.cluster.plane import Cluster

HERE = Path(__file__).parent
# Of itself pytest shows the values of an assertion that failed only where it stands in a test's own file.
pytest.register_assert_rewrite(*(f"tests.{folder.name}" for folder in HERE.iterdir() if folder.is_dir()))

pytest_plugins = ["tests.support.secrecy_plugin"]

# An example that this machine let wait for a while is no slow one, and would count as a failure.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

NUMBERS = itertools.count(1)
LONGEST = (
    "cluster/test_fault_matrix.py",
    "house/test_image.py",
    "cli/test_demo.py",
    "cluster/test_seeds.py",
    "cluster/test_breaker.py",
    "chart/test_installation.py",
    "cluster/test_outages.py",
    "house/test_readme.py",
    "cli/test_lab.py",
    "cluster/test_counts.py",
    "cluster/test_replicas.py",
    "cluster/test_errors_of_tokens.py",
    "cluster/test_gateway.py",
    "cluster/test_race.py",
    "cluster/test_holds.py",
    "engine/test_quiet.py",
    "cli/test_bench.py",
    "metrics/test_live.py",
    "cluster/test_reap.py",
    "cluster/test_errors_of_the_api.py",
    "cluster/test_attach.py",
    "gitops/test_waits.py",
)
"""
The modules that take most of a minute or more, longest first: whichever of them begins last is waited for by a machine
that has nothing else to do.
"""


def pytest_sessionstart() -> None:
    """
    Say that this thread has no event loop of its own.

    pytest-asyncio asks for "the loop before" around each test; without this line asyncio makes one for the answer and
    nobody closes it, and the warning about it falls on whatever test runs when it is collected.
    Observed: pytest-asyncio 1.5 on Python 3.11.
    """
    asyncio.set_event_loop(None)
    # Whoever runs the tests in the background of a script has these ignored (POSIX, "Signals and Error Handling" of the
    # shell), and every child would inherit that.
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest where tests run side by side; one by one, the quick ones tell more at first."""
    if hasattr(config, "workerinput"):
        places = {HERE / name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(item.path, len(LONGEST)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or make the control plane's binaries before the first test: a build takes longer than a test may."""
    if session.config.option.collectonly:
        return
    if any(
        "cluster" in getattr(item, "fixturenames", ()) or item.get_closest_marker("cluster") for item in session.items
    ):
        from tests.cluster.plane import prepare_binaries

        capture = session.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
            prepare_binaries()


@pytest.fixture(scope="session")
def cluster() -> Iterator["Cluster"]:
    """A real API server with our kind installed, one for all tests of a worker."""
    from tests.cluster.plane import Cluster

    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture
def namespace(cluster: "Cluster") -> Iterator[str]:
    """A fresh namespace; its terminals go with the test."""
    name = f"test-{os.getpid()}-{next(NUMBERS)}"
    status, _ = cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
    assert status == 201
    yield name
    cluster.empty_namespace(name)

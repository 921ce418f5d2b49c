"""One emulator process for all tests of this folder, emptied before each of them."""

from collections.abc import Iterator

import pytest

from tests.support.emulator import EmulatorProcess


@pytest.fixture(scope="session")
def emulator_process() -> Iterator[EmulatorProcess]:
    """Real processes in namespaces."""
    with EmulatorProcess("--token", "acme/1/aa/bb", "--token", "other/2/cc/dd") as process:
        yield process


@pytest.fixture
def emulator(emulator_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    """The emulator, as empty as at its start."""
    emulator_process.reset()
    yield emulator_process
    emulator_process.reset()

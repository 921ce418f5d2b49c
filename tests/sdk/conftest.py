"""One emulator for all tests of this folder, emptied before each of them, and the packages of the JavaScript SDK."""

from collections.abc import Iterator

import pytest

from tests.sdk.node import Packages, prepare_packages
from tests.support.emulator import EmulatorProcess
from tests.support.secrecy import build_sprites_token


@pytest.fixture(scope="session")
def packages() -> Packages:
    """What `make test` has fetched before the first test."""
    return prepare_packages()


@pytest.fixture(scope="session")
def emulator_process() -> Iterator[EmulatorProcess]:
    """Real processes in namespaces."""
    with EmulatorProcess("--token", build_sprites_token("acme")) as process:
        yield process


@pytest.fixture
def emulator(emulator_process: EmulatorProcess) -> Iterator[EmulatorProcess]:
    """The emulator, as empty as at its start but for one sprite."""
    emulator_process.reset()
    emulator_process.create_sprite("my-sprite")
    emulator_process.clear_requests()
    yield emulator_process
    emulator_process.reset()

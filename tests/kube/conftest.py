"""What the tests of the Kubernetes client share."""

from collections.abc import AsyncIterator

import pytest

from tests.kube.doubles import Bench, Server, bench


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = await Server().start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: Server) -> AsyncIterator[Bench]:
    async with bench(server) as made:
        yield made

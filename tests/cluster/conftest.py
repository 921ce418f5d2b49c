"""All tests of this folder need a real etcd and kube-apiserver."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `make cluster` finds them and `make test WITHOUT=cluster` leaves them out."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("cluster")

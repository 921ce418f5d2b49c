"""All tests of this folder need Chromium, a real API server, and sprites whose processes are real."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them, so that `make test WITHOUT=browser` leaves them out, and so does whatever else they need."""
    for item in items:
        if item.path.is_relative_to(HERE):
            for part in ("browser", "cluster", "sprites"):
                item.add_marker(part)

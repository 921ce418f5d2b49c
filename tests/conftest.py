"""What all rooms of the tests share."""

import asyncio


def pytest_sessionstart() -> None:
    """
    Say that this thread has no event loop of its own.

    pytest-asyncio asks for "the loop before" around each test; without this line asyncio makes one for the answer and
    nobody closes it, and the warning about it falls on whatever test runs when it is collected.
    Observed: pytest-asyncio 1.5 on Python 3.11.
    """
    asyncio.set_event_loop(None)

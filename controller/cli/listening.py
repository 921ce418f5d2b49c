"""
What a user reads where a port cannot be listened on.

Problem: the system's own words name an address, and neither the setting that chose it nor the way out. Promise: the
sentence names both.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from controller.errors import AgentTerminalError

_WAY_OUT: Final = "Name an address of this machine and a port that is free; port 0 takes any."


@contextlib.contextmanager
def name_settings(*pairs: tuple[str, str]) -> Iterator[None]:
    """
    Explain why nothing can be listened on.

    Args:
        pairs: The variables that chose an address and its port, one pair for each place that is listened on inside.

    Raises:
        AgentTerminalError: In the place of the system's error.
    """
    try:
        yield
    except OSError as error:
        # What asyncio says itself names the place; the number alone gives the bare reason.
        said = error.strerror or (os.strerror(error.errno) if error.errno is not None else "no reason was given")
        names = ", or ".join(f"{address} and {port}" for address, port in pairs)
        raise AgentTerminalError(f"{names} cannot be used: {said}. {_WAY_OUT}") from error

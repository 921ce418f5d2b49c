"""
Where both of our programs begin, before anything is imported that takes time.

Problem: Python reads our modules for some tenths of a second, and a Ctrl-C meanwhile ends in a traceback. Promise:
until the program's own way of ending begins, Ctrl-C ends it at once, without a word and with 130.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


def agentterminal() -> None:
    """Be `agentterminal`."""
    with _ending_quietly():
        from controller.cli.main import main  # noqa: PLC0415 - see above
    main()


def kubectl_aterm() -> None:
    """Be `kubectl aterm`."""
    with _ending_quietly():
        from controller.cli.aterm import main  # noqa: PLC0415 - see above
    main()


@contextmanager
def _ending_quietly() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        # Whoever had us ignore it, as a shell does for a program in the background of a script, means it.
        yield
        return
    # Nothing is open yet that would have to be put away.
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

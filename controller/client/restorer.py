"""
Put a terminal back whose client was killed with SIGKILL, and so could not do it itself.

Problem: what a killed process set on a terminal stays set, and many shells do not look: raw mode leaves a person with a
shell that shows nothing of what they type. Promise: this script waits for the end of a pipe whose other end the client
alone holds. A client that ends in any other way puts the terminal back itself and ends this script before it closes the
pipe. So the end of the pipe means that the client was killed: then the mode that it found is put back, unless somebody
has set another meanwhile; what the other side switched on the screen is switched off; what nobody has read is thrown
away. A terminal that another program has by now is left alone. It imports nothing but four modules of the standard
library, and it does not outlive its client.

It runs in the client's session, else it could not ask who has the terminal, and in a process group of its own: what is
typed sends signals to the client's group. From there a change of the mode would stop it, were SIGTTOU not ignored.

Usage: `python -I -S restorer.py INPUT_FD STATE_FD CLIENT_GROUP SHELL_GROUP MODE`, the pipe as standard input, the
terminal's output as standard output. MODE is what `render_mode` makes. The file STATE_FD holds what is to be written,
up to its first zero byte.

Source: tcsetattr(3) and tty_ioctl(4) for background groups (read 2026-11).
"""

import os
import signal
import sys
import termios

_IGNORED = (
    *(signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP),
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
)
"""The first change nothing that a background group has to say here; the others are meant for the client, and end it."""

_STATE_BYTES = 4096
_LAST_SECONDS = 5
"""A terminal that is not read any more must not keep this process."""

_OFLAG, _LFLAG = 1, 3
_COOKED = termios.ICANON | termios.ECHO | termios.ISIG


def main(input_fd: int, state_fd: int, friends: frozenset[int], mode: list[int | list[int]]) -> None:
    """Wait for the end of the client, and put the terminal back where that is still ours to do."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 1):
        pass
    signal.alarm(_LAST_SECONDS)
    if not is_ours(input_fd, friends):
        return
    undo = os.pread(state_fd, _STATE_BYTES, 0).partition(b"\0")[0]
    was_raw = is_raw(input_fd)
    try:  # noqa: SIM105 - contextlib costs as much time as all the rest
        # The screen first, as at every other end: a shell that is waited for begins to write as soon as it can.
        os.write(1, undo + (b"\r\n" if was_raw else b""))
    except OSError:
        # Nobody reads. The mode is put back all the same.
        pass
    if was_raw:
        termios.tcflush(input_fd, termios.TCIFLUSH)
        termios.tcsetattr(input_fd, termios.TCSANOW, mode)


def is_ours(terminal: int, friends: frozenset[int]) -> bool:
    """Whether nobody has the terminal but the killed client, the shell that started it, or the session's first."""
    try:
        return os.tcgetpgrp(terminal) in friends | {os.getsid(0)}
    except OSError:
        # It controls no session of ours, so that no group of processes has it.
        return True


def is_raw(terminal: int) -> bool:
    """Whether it is as the client set it. A shell that edits lines by itself leaves the keys for signals on."""
    attributes = termios.tcgetattr(terminal)
    return not attributes[_LFLAG] & _COOKED and not attributes[_OFLAG] & termios.OPOST


def render_mode(attributes: list[int | list[bytes | int]]) -> str:
    """Write the answer of `termios.tcgetattr` as one argument."""
    *words, characters = attributes
    assert isinstance(characters, list)
    flat = [*words, *(each if isinstance(each, int) else each[0] for each in characters)]
    return ",".join(str(number) for number in flat)


def read_mode(text: str) -> list[int | list[int]]:
    """Read what `render_mode` wrote, for `termios.tcsetattr`."""
    numbers = [int(word) for word in text.split(",")]
    return [*numbers[:6], numbers[6:]]


if __name__ == "__main__":
    try:
        main(
            int(sys.argv[1]),
            int(sys.argv[2]),
            frozenset({int(sys.argv[3]), int(sys.argv[4])}),
            read_mode(sys.argv[5]),
        )
    except (OSError, termios.error):
        # The terminal hung up: nobody is there to miss it.
        sys.exit(1)

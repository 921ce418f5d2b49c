"""
How the gateway ends a person's socket: one table of codes and reasons. Pure.

Problem: a client sees nothing but a number, and some read 1000 as "the process ended with 0". Promise: 1000 is sent
only after a real exit, with its exit frame before it; every other end has a code of its own and is told in a text frame
before the close. A reason names no person, no token and no command.

Source: gateway.md 5; sprites-api.md 3.5 (2026-09); RFC 6455 7.4.
"""

from dataclasses import dataclass
from enum import Enum, unique
from typing import Final

REASON_BYTES: Final = 123
"""The longest reason of a close frame. Source: RFC 6455 5.5."""


@dataclass(frozen=True, slots=True)
class Close:
    """What is sent: a code, a word for programs, and a sentence for people."""

    code: int
    word: str
    reason: str


@unique
class Ending(Enum):
    """Why a socket is closed by us."""

    EXITED = Close(1000, "Exited", "The process has ended.")
    """Only after its exit frame."""
    LEFT = Close(1001, "Left", "The other side is gone.")
    """The person's connection broke, or no pong came: nobody is there to read it."""
    TOO_BIG = Close(1009, "TooBig", "A message was larger than the gateway takes; send it in pieces.")
    WITHDRAWN = Close(1008, "Withdrawn", "You may not use this terminal any more.")
    """The right was taken away."""
    DRAINING = Close(1012, "Draining", "This gateway is being restarted; connect again.")
    TOO_SLOW = Close(1013, "TooSlow", "Output came faster than it was read; connect again for the present screen.")
    REPLACED = Close(4001, "Replaced", "Another socket has taken over this terminal.")
    UNREACHABLE = Close(4002, "Unreachable", "The session could not be reached; whether it lives is not known.")
    """Six attempts in a row failed."""
    REVOKED = Close(4003, "Revoked", "This socket was revoked; no socket speaks for the terminal now.")
    GONE = Close(4004, "Gone", "The session is not there any more, and no other has followed.")
    """No exit was seen, so no exit code is known."""
    WRONG_SESSION = Close(
        4005, "WrongSession", "Another session answered in place of the recorded one; nothing was typed."
    )
    PAUSED = Close(4006, "Paused", "The sprite is paused; only an attachment that types wakes it.")
    TERMINATED = Close(4007, "Terminated", "The terminal was terminated or deleted.")
    SUSPENDED = Close(4008, "Suspended", "The terminal is suspended.")
    IDLE = Close(4009, "Idle", "Nothing came or went for as long as a socket may stay idle.")
    FENCE_LOST = Close(4010, "FenceLost", "This gateway could not confirm that you hold the terminal; connect again.")
    """The end of its tenure."""
    EXPIRED = Close(4401, "Expired", "The token has expired; connect again with a fresh one.")


def is_exit(ending: Ending) -> bool:
    """Tell whether an end is the process's own: all others say nothing about it."""
    return ending is Ending.EXITED

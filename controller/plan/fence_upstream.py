"""
What of a socket's input is surely at the sprite, and what waits before the lock. Pure book-keeping in bytes.

Problem: bytes that were written are not bytes that have arrived; whoever lets go of the lock while some are on the way
lets the next one speak before them. Promise: input counts as arrived when a pong answers a ping that was sent after it,
no more than 64 KiB are ever on the way, and an upstream that broke or was aborted with bytes on the way says how many.

Source: gateway.md 3, rules 3 and 7. Assumed: a Sprite answers a ping after it has read the frames before it (frames of
one WebSocket are handled in order); the race test against the emulator watches it.
"""

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

UNCONFIRMED_BYTES: Final = 64 * 1024
"""No more than this is on the way between two pongs."""

BUFFER_BYTES: Final = 64 * 1024
"""So much may be typed before the socket may speak."""

BUFFER_TIME: Final = timedelta(seconds=20)
"""So long it waits to speak, then it is told no."""

PONG_WAIT: Final = timedelta(seconds=5)
"""So long the pong of a drain is waited for."""

SETTLE_WAIT: Final = timedelta(seconds=5)
"""So long after an abort with bytes on the way the lock is kept, since some may still arrive."""


@dataclass(frozen=True, slots=True)
class Flow:
    """
    One upstream socket's input, counted in bytes since it was opened.

    Args:
        sent: Handed to the socket.
        confirmed: Surely arrived.
        pinged: What had been sent when the ping that is on its way was; None where none is.
    """

    sent: int = 0
    confirmed: int = 0
    pinged: int | None = None

    @property
    def unconfirmed(self) -> int:
        """Bytes that may or may not have arrived."""
        return self.sent - self.confirmed


def may_send(flow: Flow, frame_bytes: int) -> bool:
    """Tell whether a frame may be sent now. A frame larger than the cap goes alone, else it would never go."""
    return flow.unconfirmed == 0 or flow.unconfirmed + frame_bytes <= UNCONFIRMED_BYTES


def note_sent(flow: Flow, frame_bytes: int) -> Flow:
    """Count a frame that was handed to the socket."""
    return replace(flow, sent=flow.sent + frame_bytes)


def is_ping_due(flow: Flow) -> bool:
    """Tell whether a ping must go out for its pong to say what has arrived: one at a time."""
    return flow.pinged is None and flow.unconfirmed > 0


def note_ping(flow: Flow) -> Flow:
    """Count a ping: its pong will confirm all that was sent before it."""
    return replace(flow, pinged=flow.sent)


def note_pong(flow: Flow) -> Flow:
    """Count the pong of our last ping. One that nobody asked for confirms nothing."""
    if flow.pinged is None:
        return flow
    return replace(flow, confirmed=flow.pinged, pinged=None)


def is_quiet(flow: Flow) -> bool:
    """Tell whether all that was sent has arrived, so that the socket may be closed and the lock let go."""
    return flow.unconfirmed == 0


class Waiting(StrEnum):
    """What becomes of input that came before its socket may speak."""

    KEPT = "Kept"
    FULL = "Full"
    LATE = "Late"


def judge_buffer(kept_bytes: int, frame_bytes: int, *, since: timedelta, now: timedelta) -> Waiting:
    """
    Decide whether input is kept until its socket may speak. Exactly 64 KiB are kept, for just under 20 s.

    Args:
        kept_bytes: What waits already.
        frame_bytes: What comes on top.
        since: When the socket began to wait.
        now: By the same clock.
    """
    if now - since >= BUFFER_TIME:
        return Waiting.LATE
    return Waiting.KEPT if kept_bytes + frame_bytes <= BUFFER_BYTES else Waiting.FULL

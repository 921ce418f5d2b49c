"""
How the gateway's streams are set.

Problem: a socket that is not read, or says nothing, costs memory or a held process for as long as nobody decides that
it is dead. Promise: everything that waits is bounded in bytes and in time, and every bound says why it is what it is.
Source: gateway.md 3 and 5; sprites-api.md 3.7 (2026-09).
"""

from dataclasses import dataclass, fields
from datetime import timedelta

from controller.plan.fence_upstream import BUFFER_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """
    Bounds of one terminal and of each socket to it.

    Raises:
        ValueError: A value breaks its rule; the text names every field, value and rule at fault.
    """

    queue_bytes: int = 4 * 1024 * 1024
    """Output that may wait for one person. More means a link that does not keep up: the person is told and dropped."""

    queue_frames: int = 8192
    """The same in frames: many tiny ones weigh more than their bytes."""

    message_bytes: int = 1024 * 1024
    """The largest message of a person. Source: sprites-api.md 3.7 (2026-09): the Go client's buffers."""

    backlog_limit: timedelta = BUFFER_TIME
    """How long input may wait until it can be sent: longer than a takeover from a dead replica takes (15 s)."""

    ping_every: timedelta = timedelta(seconds=15)
    """Between two pings to a person."""

    pong_limit: timedelta = timedelta(seconds=45)
    """For the answer to one; then nobody is there."""

    silence_limit: timedelta = timedelta(seconds=20)
    """After so long without a frame a `debug` frame is sent: a vendor's watchdog of 45 s counts messages, not pings."""

    idle_limit: timedelta = timedelta(hours=12)
    """
    A socket over which nothing of the terminal came or went for so long is ended, whoever looks on or types: it counts
    as presence, so a forgotten page would keep the sprite awake for good. Longer than a working day, and nothing is
    reaped by it: the time after which that happens only begins.
    """

    farewell: timedelta = timedelta(seconds=2)
    """For a person to take the last frames and to answer the close; then the connection is cut."""

    revival_limit: timedelta = timedelta(seconds=30)
    """How long a session that is not there any more is waited for by the rules of revival."""

    paused_look: timedelta = timedelta(seconds=30)
    """Between two looks whether a paused sprite runs again, while only viewers wait: as often as metadata is read."""

    stirred_look: timedelta = timedelta(seconds=2)
    """The same, while somebody at another gateway has just come to type or was active: that wakes the sprite."""

    stirred_for: timedelta = timedelta(seconds=30)
    """So long; a sprite that is cold takes 1 to 12 s to wake (sprites-api.md 8), and its metadata lags behind."""

    views: int = 4
    """
    Upstream sockets that only look, for one terminal, before viewers are gathered on one: each costs the sprite's link
    the whole output once more.
    """

    idle_after: timedelta = timedelta(seconds=120)
    """A terminal that was silent for so long is not reconnected until somebody types or comes: the hold's window."""

    def __post_init__(self) -> None:
        faults = []
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, timedelta) and value <= timedelta(0):
                faults.append(f"{field.name} {value} must be longer than 0")
            elif isinstance(value, int) and value < 1:
                faults.append(f"{field.name} {value} must be at least 1")
        if self.idle_limit < self.ping_every:
            faults.append(f"idle_limit {self.idle_limit} must not be shorter than ping_every {self.ping_every}")
        if self.pong_limit < self.ping_every:
            faults.append(f"pong_limit {self.pong_limit} must not be shorter than ping_every {self.ping_every}")
        if faults:
            raise ValueError("; ".join(faults))

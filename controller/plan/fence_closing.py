"""
How a socket of a client ends: one closed table of codes, words and sentences.

Problem: a vendor's SDK reads a close with 1000 as exit code 0, so a socket that was merely replaced would look like a
process that went well; and "closed" without a reason makes people try again for ever. Promise: 1000 only after an exit
that was seen; every other end has a code and a word of its own, told in a text frame before the close; where the
upgrade was not answered yet, the same end has an HTTP status.

Source: gateway.md 5 and 6; sprites-api.md 3.5 (2026-09).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Ending(StrEnum):
    """Why a client's socket ends. The value is the word that stands in the close's reason."""

    EXITED = "Exited"
    """The process exited, and the exit was seen."""
    SESSION_ENDED = "SessionEnded"
    """The session is gone, and nobody saw its exit."""
    UPSTREAM_LOST = "UpstreamLost"
    """The sprite's side broke, and the plan for reconnecting has given up."""
    LEFT = "Left"
    """The client went by itself."""
    REPLACED = "Replaced"
    """The spec names another socket."""
    REVOKED = "Revoked"
    """The spec names nobody, or says that nobody is attached."""
    TERMINATED = "Terminated"
    """`spec.terminated` is true."""
    DELETED = "Deleted"
    """The object is being deleted, or is gone."""
    EXPIRED = "Expired"
    """The person's token has run out and no fresh one came."""
    FORBIDDEN = "Forbidden"
    """The person's right was withdrawn."""
    IDLE = "Idle"
    """Nothing was said for as long as the gateway allows."""
    TOO_LARGE = "TooLarge"
    """A message was larger than the gateway allows."""
    RESTARTING = "Restarting"
    """This gateway is going; another one serves."""
    LEASE_LOST = "LeaseLost"
    """This gateway could not renew its Lease, so it may not speak."""
    LOCK_LOST = "LockLost"
    """The lock of this socket was taken away or changed by somebody else."""
    TOO_SLOW = "TooSlow"
    """The client does not read as fast as the terminal writes."""
    NOT_READY = "NotReady"
    """The operator has not taken the object under its care yet, or it owns no session."""
    HELD = "Held"
    """Somebody else speaks for it, and a takeover was not asked for."""
    SUSPENDED = "Suspended"
    """`spec.suspend` is true."""
    REFUSED = "Refused"
    """A rule of the API server refused the claim; its own sentence is told."""
    CROWDED = "Crowded"
    """Twenty tries, and each time the object had moved on."""
    LOCK_LATE = "LockLate"
    """The lock did not become free in time."""
    BUFFER_FULL = "BufferFull"
    """More was typed before the lock was had than is kept."""


@dataclass(frozen=True, slots=True)
class Closing:
    """
    What one ending looks like from outside.

    Args:
        code: Of the WebSocket close.
        status: Of the HTTP answer, where the upgrade was not answered yet.
        sentence: For a person, with the way out.
        retry: A client may come again by itself.
    """

    code: int
    status: int
    sentence: str
    retry: bool = False


CLOSINGS: Final[Mapping[Ending, Closing]] = {
    Ending.EXITED: Closing(1000, 410, "The process exited."),
    Ending.SESSION_ENDED: Closing(1011, 410, "The session has ended; nobody saw its exit code."),
    Ending.UPSTREAM_LOST: Closing(
        1011, 502, "The connection to the sprite was lost; what was typed last may not have arrived.", retry=True
    ),
    Ending.LEFT: Closing(1000, 499, "The client left."),
    Ending.REPLACED: Closing(4001, 409, "Another socket speaks for this terminal now."),
    Ending.REVOKED: Closing(4003, 409, "This socket was thrown out: the terminal names nobody. Attach again to speak."),
    Ending.TERMINATED: Closing(4003, 410, "The terminal is being terminated; nobody can attach to it any more."),
    Ending.DELETED: Closing(4003, 410, "The terminal is being deleted."),
    Ending.EXPIRED: Closing(4401, 401, "Your token has run out. Attach again with a fresh one."),
    Ending.FORBIDDEN: Closing(1008, 403, "Your right to this terminal was withdrawn."),
    Ending.IDLE: Closing(1008, 408, "Nothing was said for too long. Attach again to go on."),
    Ending.TOO_LARGE: Closing(1009, 413, "The message was too large. Send it in smaller ones."),
    Ending.RESTARTING: Closing(1012, 503, "This gateway is restarting. Attach again.", retry=True),
    Ending.LEASE_LOST: Closing(
        1012,
        503,
        "This gateway lost touch with the Kubernetes API; what was typed last may not have arrived. Attach again.",
        retry=True,
    ),
    Ending.LOCK_LOST: Closing(
        1012, 503, "The lock of this socket was taken away; what was typed last may not have arrived.", retry=True
    ),
    Ending.TOO_SLOW: Closing(1013, 503, "The terminal writes faster than you read. Attach again.", retry=True),
    Ending.NOT_READY: Closing(1013, 503, "The operator does not guard this terminal yet. Try again.", retry=True),
    Ending.HELD: Closing(1013, 409, "Somebody speaks for this terminal. Ask for a takeover to replace them."),
    Ending.SUSPENDED: Closing(1013, 409, "The terminal is suspended. Set `spec.suspend` to false to attach."),
    Ending.REFUSED: Closing(1008, 422, "The API server refused the claim."),
    Ending.CROWDED: Closing(1013, 503, "The terminal changes too often to be claimed. Try again.", retry=True),
    Ending.LOCK_LATE: Closing(
        1013, 503, "The socket before you has not let go in time. What you typed was not sent. Try again.", retry=True
    ),
    Ending.BUFFER_FULL: Closing(
        1013, 503, "More was typed before you could speak than is kept. What you typed was not sent.", retry=True
    ),
}
"""Every ending; `LEFT` is never seen by anybody and stands here so that the table is total."""


def describe_closing(ending: Ending, detail: str = "") -> dict[str, Any]:
    """
    Make the text frame that goes before a close; clients ignore frames of a type that they do not know.

    Args:
        ending: Why.
        detail: The API server's own sentence, where a rule spoke.
    """
    closing = CLOSINGS[ending]
    message = f"{closing.sentence} {detail}".strip()
    return {"type": "closed", "code": closing.code, "reason": ending.value, "message": message, "retry": closing.retry}

"""The session that the object's status records, as a stream needs it."""

from dataclasses import dataclass

from controller.api.session import Identity
from controller.sprites.exec_frames import Framing


@dataclass(frozen=True, slots=True)
class Recorded:
    """
    One session, and how it frames.

    Args:
        identity: As in `status.session`.
        framing: RAW for a session that we launched, which is a terminal always; None where only the session itself can
            tell, and then `session_info` waits for its word.
    """

    identity: Identity
    framing: Framing | None = None

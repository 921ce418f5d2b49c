"""
What the client tells about each of its calls, for whoever counts them: a closed set of labels and one duration.

One report for each HTTP exchange, so a list of three pages gives three. A call that was never sent because the tenure
had ended gives none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from controller.api.session import Cause
from controller.errors import Failure


class Route(StrEnum):
    """What is called, without names."""

    LIST_SPRITES = "list_sprites"
    GET_SPRITE = "get_sprite"
    LIST_SESSIONS = "list_sessions"
    KILL_SESSION = "kill_session"
    RUN_COMMAND = "run_command"
    LAUNCH_SESSION = "launch_session"
    ATTACH_SESSION = "attach_session"


class Settled(StrEnum):
    """How a call ended that did not fail."""

    SUCCESS = "Success"
    CANCELLED = "Cancelled"
    """The caller stopped waiting; it may have happened."""


Outcome = Settled | Failure
"""A 404 or 410 to a kill is `NotFound` or `Gone` here, although the caller gets an answer and no error."""


@dataclass(frozen=True, slots=True)
class CallReport:
    """One call, after its end; an attach is reported once it is announced or has failed."""

    route: Route
    cause: Cause
    outcome: Outcome
    duration: timedelta
    sprite: str | None
    """The sprite's name, for logs; never a metric's label. None for a list of sprites."""


OnCall = Callable[[CallReport], None]

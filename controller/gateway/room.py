"""
One terminal behind the doors: its streams, and everybody who is here.

Problem: people are here before the session is, after it has ended, and while the object changes under them. Promise:
a room follows what its object says: a new session is joined by everybody who waits, a terminal that ends ends for
those who look on as well, and whoever waits for a session that does not come is told so.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from controller.api.session import Identity, SpriteState
from controller.api.status import Origin, SessionStatus
from controller.api.terminal import ObjectUnreadable, TerminalSpec, TerminalStatus, read_spec, read_status
from controller.gateway.stream import Client, Hub, Recorded
from controller.gateway.way import TokenWay
from controller.gateway.wishes import Target
from controller.plan.activity import find_latest
from controller.plan.fence_closing import Ending
from controller.sprites.exec_frames import Framing

SESSION_WAIT: Final = timedelta(seconds=30)
"""How long whoever attaches waits for the operator to start a session."""

BuildHub = Callable[["Room", Recorded | None], Hub]


class Room:
    """
    One object that somebody is attached to.

    Args:
        target: Its place.
        uid: Which object of that name.
        spec: As the door saw it.
        status: Likewise.
        build_way: Makes the way to its sprite.
        build_hub: Makes its streams.
        spawn: Runs them.
    """

    def __init__(
        self,
        target: Target,
        uid: str,
        spec: TerminalSpec,
        status: TerminalStatus,
        *,
        build_way: Callable[["Room"], TokenWay],
        build_hub: BuildHub,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.target = target
        self.uid = uid
        self.spec = spec
        self.clients: set[Client] = set()
        self.viewers: set[Client] = set()
        self.way = build_way(self)
        self.session = status.session
        """What the object records, of a session that has ended too."""
        self.hub = build_hub(self, find_recorded(status.session))
        self._version = 0
        self._stir = find_stir(status)
        spawn(self.hub.run())

    def note(self, raw: Mapping[str, Any]) -> None:
        """Take in a newer view of the object; what this version cannot read changes nothing."""
        version = int(raw["metadata"]["resourceVersion"])
        if version <= self._version:
            return
        self._version = version
        try:
            spec, status = read_spec(raw.get("spec")), read_status(raw.get("status"))
        except ObjectUnreadable:
            return
        self.spec, self.session = spec, status.session
        if spec.terminated:
            self.end_viewers(Ending.TERMINATED)
        elif raw["metadata"].get("deletionTimestamp") is not None:
            self.end_viewers(Ending.DELETED)
        recorded = find_recorded(status.session)
        if recorded is not None:
            self.hub.note_recorded(recorded)
        if status.sprite is not None and status.sprite.state is SpriteState.RUNNING:
            self.hub.note_running()
        before, self._stir = self._stir, find_stir(status)
        if is_stirred(before, self._stir):
            self.hub.note_stir()

    def end_viewers(self, ending: Ending) -> None:
        """End everybody who only looks on; who types is ended by the fence."""
        for viewer in list(self.viewers):
            viewer.end(ending)

    async def wait_for_session(self, give_up: Callable[[], None]) -> None:
        """Let somebody go who waits in vain for a session."""
        await asyncio.sleep(SESSION_WAIT.total_seconds())
        if self.hub.recorded is None:
            give_up()


@dataclass(frozen=True, slots=True)
class Stir:
    """
    What an object tells of people at any gateway, as far as it wakes a sprite: nothing tells of the wake itself.

    Args:
        typist: The socket that holds the lock.
        active: When any gateway last saw activity.
    """

    typist: str | None
    active: datetime | None


def find_stir(status: TerminalStatus) -> Stir:
    """Read off what may tell of a wake."""
    typist = None if status.socket is None else status.socket.socket_id
    return Stir(typist, find_latest(gateway.activity_time for gateway in status.gateways))


def is_stirred(before: Stir, now: Stir) -> bool:
    """Tell whether somebody has come to type, or was active, since an earlier view; who leaves wakes nothing."""
    has_come = now.typist is not None and now.typist != before.typist
    is_active = now.active is not None and (before.active is None or now.active > before.active)
    return has_come or is_active


def find_recorded(session: SessionStatus | None) -> Recorded | None:
    """Find the session that lives, as far as the status tells."""
    if session is None or session.id is None or session.ended is not None:
        return None
    identity = Identity(session.sprite_id or "", session.id, session.created)
    return Recorded(identity, Framing.RAW if session.origin is Origin.LAUNCHED else None)

"""
How a session ended, and whether another may follow it.

An end is final for its session. *Lost* needs evidence that the platform took it (the sprite went cold or was replaced,
or another process has its id); otherwise it ended by itself, and with which code is known only where a gateway saw its
exit. A second start must never become a loop: it needs `launch`, and either a loss with `relaunch: OnLost`, or somebody
who came *after* the end.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import assert_never

from controller.api.session import Identity, is_same_created
from controller.api.terminal import GatewayStatus, Relaunch, SessionEnd, SessionStatus, TerminalSpec
from controller.plan.fence_objects import ExitEntry
from controller.plan.kill import COLD_IS_PROOF_AFTER, Presence, find_presence, is_cold_proof
from controller.plan.looks import Listed, LookFailed, NotLooked, SessionsLook, SpriteAway, SpriteLook, SpriteSeen

__all__ = [
    "COLD_IS_PROOF_AFTER",
    "EndReason",
    "LostEvidence",
    "find_exit",
    "is_exit_settled",
    "judge_end_by_list",
    "judge_end_by_sprite",
    "may_follow",
]


class EndReason(StrEnum):
    """How a session ended; stored in `status.session.ended.reason`."""

    EXITED = "Exited"
    EXIT_UNSEEN = "ExitUnseen"
    LOST = "Lost"
    REAPED = "Reaped"
    TERMINATED = "Terminated"
    LAUNCH_UNCLEAR = "LaunchUnclear"
    """A launch without a trace: it may have run and ended."""


class LostEvidence(StrEnum):
    """Why an end is a loss; the sentence goes into the message."""

    SPRITE_COLD = "The sprite went cold, and its processes with it."
    SPRITE_REPLACED = "The sprite was deleted, or replaced by another one of the same name."
    ID_REUSED = "The session's id is in use by another session."


def find_exit(identity: Identity, gateways: Iterable[GatewayStatus]) -> int | None:
    """
    Find the exit code of a session: a gateway saw it while somebody was attached. None where nobody did.

    The whole identity counts: an id comes again, and so does a sprite's name.
    """
    for gateway in gateways:
        seen = gateway.exit
        if seen is None or (seen.sprite_id, seen.session_id) != (identity.sprite_id, identity.session_id):
            continue
        if is_same_created(identity.created, seen.created):
            return seen.code
    return None


def is_exit_settled(session: SessionStatus | None, seen: ExitEntry) -> bool:
    """
    Tell whether an exit need not be told any more: it is recorded how this session ended, or that another one is there.

    An end of which nobody saw the exit is open: it takes the code that comes late.
    """
    if session is None or session.id != seen.session_id:
        return True
    return session.ended is not None and session.ended.reason != EndReason.EXIT_UNSEEN


def judge_end_by_sprite(identity: Identity, look: SpriteLook) -> LostEvidence | None:
    """Tell whether the sprite's own metadata proves that a session is lost. A state that is absent proves nothing."""
    match look:
        case NotLooked() | LookFailed():
            return None
        case SpriteAway(confirmed=confirmed):
            return LostEvidence.SPRITE_REPLACED if confirmed else None
        case SpriteSeen() as seen:
            if is_cold_proof(seen, identity, last_wake_time=None):
                return LostEvidence.SPRITE_COLD
            return None
        case _:
            assert_never(look)


def judge_end_by_list(identity: Identity, look: SessionsLook) -> Presence | None:
    """Look a session up in a list; None where there is no complete list to look in."""
    match look:
        case NotLooked() | LookFailed():
            return None
        case Listed(sessions=sessions):
            return find_presence(identity, sessions)
        case _:
            assert_never(look)


def may_follow(spec: TerminalSpec, ended: SessionEnd) -> bool:
    """
    Decide whether a fresh session may follow one that ended.

    Somebody has come *since* if `attached` is true now and, at the end, it was false or another socket spoke. A
    terminal that was terminated stays ended for good.
    """
    if spec.launch is None or spec.terminated or ended.reason == EndReason.TERMINATED:
        return False
    if ended.reason == EndReason.LOST and spec.relaunch is Relaunch.ON_LOST:
        return True
    return has_come_since(spec, ended)


def has_come_since(spec: TerminalSpec, ended: SessionEnd) -> bool:
    """Tell whether somebody has attached since a session ended; one who was there all the while has not."""
    if not spec.declares_viewer:
        return False
    return not ended.attached or ended.socket_id != spec.active_socket_id

"""
What whoever bridges sockets to a session does when it connects, and when a socket drops. Pure.

Problem: a dropped socket never proves that a process ended; reconnecting for ever keeps a sprite awake for nobody, and
creating a session anew runs a command twice. Promise: a bridge attaches only to the session that is recorded, never to
a sibling's; it stays down where nothing happens; it gives up after five failures in a row; and it starts nothing
itself: where a fresh session is needed it asks for a revival, which the operator decides by its rules.

There is a bridge only while somebody is there: whoever leaves last takes it along, and whoever comes next gets another.

Source: behaviour cases R1 to R22 and T6; design 4.6 and 9 (docs/architecture.md).
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, assert_never

from controller.api.session import Identity
from controller.plan.activity import is_agent_running
from controller.plan.kill import Presence, find_presence
from controller.plan.looks import Listed, LookFailed

FAILURES_IN_A_ROW: Final = 5
RECONNECT_WAIT: Final = timedelta(milliseconds=200)
"""Times the number of the failure."""
UNNAMED_IN_A_ROW: Final = 1
"""So many sessions that never said their id may be given up before the terminal ends."""
LIST_LIMIT: Final = timedelta(seconds=5)
"""A list that takes this long is not waited for any longer."""
LOST_EXIT_CODE: Final = -1
"""What a terminal ends with that could not be reached any more."""


@dataclass(frozen=True, slots=True)
class Bridge:
    """
    One terminal's way to its session, as its bridge knows it.

    Args:
        known: The session that is recorded; None where none was ever named.
        ending: A teardown runs or is done, or the process's exit was seen: nothing is opened any more.
        attempt: Counts the sockets; what comes from an earlier one is late.
        opened: This attempt was confirmed open.
        counted: A failure of this attempt was counted already.
        failures: Attempts that dropped in a row, since one was confirmed open.
        unnamed: Sessions in a row that opened and never said their id.
    """

    known: Identity | None
    ending: bool = False
    attempt: int = 0
    opened: bool = False
    counted: bool = False
    failures: int = 0
    unnamed: int = 0


# --- connecting -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotAsked:
    """Nobody has asked for the session list."""


@dataclass(frozen=True, slots=True)
class Asked:
    """It was asked for at this moment, monotonic, and has not come."""

    since: timedelta


ListState = NotAsked | Asked | LookFailed | Listed


@dataclass(frozen=True, slots=True)
class FetchList:
    """Ask for the session list."""


@dataclass(frozen=True, slots=True)
class AwaitList:
    """Wait for the list, at most this long."""

    limit: timedelta


@dataclass(frozen=True, slots=True)
class Attach:
    """Attach to this session, with replay; to those who look it is resumed."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class AskRevival:
    """
    There is nothing to attach to: let the operator decide whether another session follows. Not resumed, no exit told.

    The dead id is not handed on.
    """


@dataclass(frozen=True, slots=True)
class StayDown:
    """Open nothing until a human returns or types."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Connect again after a while."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class EndTerminal:
    """Tell those who look that it ended with this code."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class Ignore:
    """It is late, or was counted already: do nothing."""


ConnectStep = FetchList | AwaitList | Attach | AskRevival | Ignore
DropStep = Retry | EndTerminal | StayDown | Ignore


def plan_connect(bridge: Bridge, sessions: ListState, *, now: timedelta) -> tuple[Bridge, ConnectStep]:
    """
    Decide how to connect: at first, after a drop, or because somebody came back. Total.

    Without a recorded session no list is fetched and none of a list is taken. A list that fails, or takes 5 s, does
    not stop an attach: nothing was learned, and the recorded session is the best that is known. A listed id counts if
    it is the recorded session, whatever flags it carries; an id that was given to another session does not.
    """
    if bridge.ending:
        return bridge, Ignore()
    if bridge.known is None:
        return _begin(bridge), AskRevival()
    match sessions:
        case NotAsked():
            return bridge, FetchList()
        case Asked(since=since) if now - since < LIST_LIMIT:
            return bridge, AwaitList(LIST_LIMIT - (now - since))
        case Asked() | LookFailed():
            return _begin(bridge), Attach(bridge.known)
        case Listed(sessions=entries):
            if find_presence(bridge.known, entries) is Presence.LISTED:
                return _begin(bridge), Attach(bridge.known)
            return replace(_begin(bridge), known=None), AskRevival()
        case _:
            assert_never(sessions)


def _begin(bridge: Bridge) -> Bridge:
    return replace(bridge, attempt=bridge.attempt + 1, opened=False, counted=False)


# --- what happens on a socket -----------------------------------------------------------------------------------------


def note_open(bridge: Bridge, attempt: int) -> Bridge:
    """An open that was confirmed sets the failures back, even if nothing is ever said on it."""
    if attempt != bridge.attempt:
        return bridge
    return replace(bridge, opened=True, failures=0)


def note_announced(bridge: Bridge, attempt: int, identity: Identity) -> Bridge:
    """
    A socket said its session. The last to speak on the present socket is recorded; an empty id and a late word are not.

    Two bridges that start at the same time each hear only their own socket.
    """
    if attempt != bridge.attempt or bridge.ending or not identity.session_id:
        return bridge
    return replace(bridge, known=identity, unnamed=0)


def note_recorded(bridge: Bridge, identity: Identity) -> Bridge:
    """The operator recorded another session, by its rules of revival: that is the one to attach to."""
    return bridge if bridge.ending else replace(bridge, known=identity, unnamed=0)


def note_wish(bridge: Bridge) -> Bridge:
    """A human returns or types: the failures of before are theirs no more."""
    return bridge if bridge.ending else replace(bridge, failures=0, unnamed=0)


def note_ending(bridge: Bridge) -> Bridge:
    """A teardown begins: what comes late opens nothing and is told to nobody."""
    return replace(bridge, ending=True)


def plan_exit(bridge: Bridge, attempt: int, exit_code: int) -> tuple[Bridge, DropStep]:
    """An exit on the present socket is real, unless a failure of the same attempt came before it."""
    if bridge.ending or attempt != bridge.attempt or bridge.counted:
        return bridge, Ignore()
    return note_ending(bridge), EndTerminal(exit_code)


def plan_drop(
    bridge: Bridge, attempt: int, *, activity: datetime | None, idle_after: timedelta, now: datetime
) -> tuple[Bridge, DropStep]:
    """
    Decide what a dropped socket leads to. Total.

    Several events of one attempt are one drop. Where the last activity is a window old it stays down, however often it
    dropped; without a usable time of activity it is never quieted. Otherwise five failures in a
    row are retried, 200 ms times their number apart, and the sixth ends the terminal. A session that opened and never
    said its id may be given up once; an attempt that never opened does not count as one.

    Args:
        bridge: What is known.
        attempt: On which socket it happened.
        activity: From `activity.find_time_for_reconnect`.
        idle_after: The window, the same as the hold's.
        now: Wall time.
    """
    if bridge.ending or attempt != bridge.attempt or bridge.counted:
        return bridge, Ignore()
    unnamed = bridge.unnamed + (bridge.opened and bridge.known is None)
    dropped = replace(bridge, counted=True, failures=bridge.failures + 1, unnamed=unnamed)
    quiet = activity is not None and not is_agent_running(activity, idle_after=idle_after, now=now)
    if quiet:
        return dropped, StayDown()
    if dropped.failures > FAILURES_IN_A_ROW or dropped.unnamed > UNNAMED_IN_A_ROW:
        return note_ending(dropped), EndTerminal(LOST_EXIT_CODE)
    return dropped, Retry(RECONNECT_WAIT * dropped.failures)

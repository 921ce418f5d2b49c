"""
The kill of a session, as the sequence of events that its stream shows.

Promise: `signal`, then `exited` or (`timeout`, `killed`), then `complete`; an `error` line where the signal could not
be delivered. The status stays 200. Source: sprites-api.md 6.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

from controller.lab.emulator.durations import parse_duration
from controller.lab.emulator.labclock import LabClock
from controller.lab.emulator.sessions import Session
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.switches import (
    BareUnit,
    KillError,
    KillExitCode,
    KillReach,
    SignalNames,
    Switches,
    ZeroTimeout,
)
from controller.lab.emulator.world import WorldLost

Event = dict[str, Any]

STUBBORN: Final = "process would not die"
DEFAULT_GRACE: Final = timedelta(seconds=10)
STUCK: Final = timedelta(seconds=5)
"""How long a process may outlive SIGKILL before the stream says that it cannot be ended."""


def parse_signal(name: str, *, names: SignalNames = SignalNames.BOTH) -> signal.Signals:
    """
    Read a signal's name, with or without `SIG`.

    Raises:
        ValueError: There is none of that name, or not in this form.
    """
    long = name.upper().startswith("SIG")
    wanted = name.upper() if long else f"SIG{name.upper()}"
    refused = (names is SignalNames.LONG and not long) or (names is SignalNames.SHORT and long)
    if wanted not in signal.Signals.__members__ or refused:
        raise ValueError(f"unknown signal {name!r}")
    return signal.Signals[wanted]


def parse_timeout(text: str, switches: Switches) -> timedelta | None:
    """
    Read how long a kill waits before SIGKILL; None is for ever.

    Raises:
        ValueError: It is no duration.
    """
    timeout = parse_duration(text)
    if text.isdecimal():
        match switches.kill_bare_unit:
            case BareUnit.SECONDS:
                pass
            case BareUnit.MILLISECONDS:
                timeout /= 1000
            case BareUnit.NANOSECONDS:
                # Above zero stays above zero, which may mean something else.
                timeout = max(timeout / 1_000_000_000, timedelta.resolution if timeout else timeout)
    if timeout > timedelta():
        return timeout
    match switches.kill_zero_timeout:
        case ZeroTimeout.AT_ONCE:
            return timedelta()
        case ZeroTimeout.DEFAULT:
            return DEFAULT_GRACE
        case ZeroTimeout.NEVER:
            return None


def render_complete(code: int, form: KillExitCode) -> Event:
    """Write the last line."""
    match form:
        case KillExitCode.ABSENT:
            return {"type": "complete"}
        case KillExitCode.NEGATIVE if code > 128:
            return {"type": "complete", "exit_code": 128 - code}
        case _:
            return {"type": "complete", "exit_code": code}


def render_signal(session: Session, name: str) -> Event:
    """Write that a signal was sent."""
    return {
        "type": "signal",
        "message": f"Signal {name} sent to process {session.id}",
        "signal": name,
        "pid": session.process.pid,
    }


async def kill_session(
    sprite: Sprite,
    session: Session,
    number: signal.Signals,
    timeout: timedelta | None,
    *,
    clock: LabClock,
    switches: Switches,
) -> AsyncIterator[Event]:
    """Send the signal, wait for the end, and enforce it after the timeout; by switch say then that it failed."""
    failed = render_complete(128 + number, switches.kill_exit_code) if switches.complete_after_error else None
    if switches.kill_error is KillError.UNDONE:
        events = _pretend(session, number)
    else:
        events = _kill(sprite, session, number, timeout, clock=clock, switches=switches)
    told_error = False
    async for event in events:
        if told_error:
            continue  # The rest is done and not told.
        told_error = event["type"] == "error" or switches.kill_error is KillError.DONE
        yield event
        if switches.kill_error is KillError.DONE and event["type"] != "error":
            yield {"type": "error", "message": STUBBORN}
    if told_error and failed is not None:
        yield failed


async def _pretend(session: Session, number: signal.Signals) -> AsyncIterator[Event]:
    """Signal nobody."""
    yield render_signal(session, number.name)
    yield {"type": "error", "message": STUBBORN}


async def _kill(
    sprite: Sprite,
    session: Session,
    number: signal.Signals,
    timeout: timedelta | None,
    *,
    clock: LabClock,
    switches: Switches,
) -> AsyncIterator[Event]:
    try:
        reached = await sprite.signal(session, number, switches.kill_reach)
        if not reached and not session.ended:
            yield {"type": "error", "message": f"Signal {number.name} could not be delivered"}
            return
        yield render_signal(session, number.name)
        if await wait_for_exit(session, timeout, clock):
            yield {"type": "exited", "message": "Process exited"}
        else:
            grace = timeout or timedelta()
            yield {"type": "timeout", "message": f"Process did not exit within {grace.total_seconds():g}s"}
            await sprite.signal(session, signal.SIGKILL, KillReach.FOREGROUND)
            if not await wait_for_exit(session, STUCK, clock):
                yield {"type": "error", "message": STUBBORN}
                return
            yield {"type": "killed", "message": "Process killed"}
    except WorldLost as error:
        yield {"type": "error", "message": str(error)}
        return
    if session.tty and switches.kill_second_signal:
        yield render_signal(session, "SIGHUP")
    yield render_complete(session.process.exited.result(), switches.kill_exit_code)


async def wait_for_exit(session: Session, timeout: timedelta | None, clock: LabClock) -> bool:
    """Wait for the end of the leader; say whether it came in time."""
    if session.ended:
        return True
    woken = asyncio.Event()
    session.process.exited.add_done_callback(lambda _: woken.set())
    timer = None if timeout is None else clock.call_later(timeout, woken.set)
    await woken.wait()
    if timer is not None:
        timer.cancel()
    # The end of the process and the end of the wait may fall together: then the process has ended.
    return session.ended

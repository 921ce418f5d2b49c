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

from controller.lab.emulator.labclock import LabClock
from controller.lab.emulator.sessions import Session
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.switches import KillReach, Switches
from controller.lab.emulator.world import WorldLost

Event = dict[str, Any]

STUCK: Final = timedelta(seconds=5)
"""How long a process may outlive SIGKILL before the stream says that it cannot be ended."""


def parse_signal(name: str) -> signal.Signals:
    """
    Read a signal's name, with or without `SIG`.

    Raises:
        ValueError: There is none of that name.
    """
    wanted = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    if wanted not in signal.Signals.__members__:
        raise ValueError(f"unknown signal {name!r}")
    return signal.Signals[wanted]


async def kill_session(
    sprite: Sprite, session: Session, number: signal.Signals, timeout: timedelta, *, clock: LabClock, switches: Switches
) -> AsyncIterator[Event]:
    """Send the signal, wait for the end, and enforce it after the timeout."""
    try:
        reached = await sprite.signal(session, number, switches.kill_reach)
        if not reached and not session.ended:
            yield {"type": "error", "message": f"Signal {number.name} could not be delivered"}
            return
        yield {
            "type": "signal",
            "message": f"Signal {number.name} sent to process {session.id}",
            "signal": number.name,
            "pid": session.process.pid,
        }
        if await wait_for_exit(session, timeout, clock):
            yield {"type": "exited", "message": "Process exited"}
        else:
            yield {"type": "timeout", "message": f"Process did not exit within {timeout.total_seconds():g}s"}
            await sprite.signal(session, signal.SIGKILL, KillReach.FOREGROUND)
            if not await wait_for_exit(session, STUCK, clock):
                yield {"type": "error", "message": "process would not die"}
                return
            yield {"type": "killed", "message": "Process killed"}
    except WorldLost as error:
        yield {"type": "error", "message": str(error)}
        return
    if session.tty and switches.kill_second_signal:
        yield {
            "type": "signal",
            "message": f"Signal SIGHUP sent to process {session.id}",
            "signal": "SIGHUP",
            "pid": session.process.pid,
        }
    yield {"type": "complete", "exit_code": session.process.exited.result()}


async def wait_for_exit(session: Session, timeout: timedelta, clock: LabClock) -> bool:
    """Wait for the end of the leader; say whether it came in time."""
    if session.ended:
        return True
    woken = asyncio.Event()
    session.process.exited.add_done_callback(lambda _: woken.set())
    timer = clock.call_later(timeout, woken.set)
    await woken.wait()
    timer.cancel()
    # The end of the process and the end of the wait may fall together: then the process has ended.
    return session.ended

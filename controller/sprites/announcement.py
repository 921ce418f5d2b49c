"""
Waiting for a session's name, the first thing that an exec socket must say.

Problem: an upgrade alone says neither which session it led to nor whether one was started. Promise: either the name is
read, or `NotAnnounced` says why it is not; what that means for the call, only its caller knows.

Source: sprites-api.md 3.3 (2026-09).
"""

import asyncio
from datetime import timedelta
from typing import assert_never

from controller.api.session import Announced
from controller.sprites.exec_frames import ErrorFrame, ExitFrame, Framing, OtherFrame, read_framing, read_text_frame
from controller.sprites.sockets import Socket, SocketEnded
from controller.sprites.texts import scrub
from controller.sprites.token import Token


class NotAnnounced(Exception):
    """
    No name was read. Internal to this room.

    Args:
        why: For an error text; without secrets.
        in_time: False where the limit has passed, True where the socket ended before it.
    """

    def __init__(self, why: str, *, in_time: bool) -> None:
        super().__init__(why)
        self.why = why
        self.in_time = in_time


async def await_announcement(socket: Socket, token: Token, *, limit: timedelta) -> tuple[Announced, Framing]:
    """
    Read up to the session's name; what comes before it is passed over, but for an error, which is told.

    Raises:
        NotAnnounced: No readable `session_info` within the limit, or the socket ended before it.
    """
    told = ""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while True:
                message = await socket.receive()
                if isinstance(message, bytes):
                    continue
                frame = read_text_frame(message)
                match frame:
                    case Announced():
                        return frame, read_framing(message)
                    case ErrorFrame(said):
                        told = f" ({scrub(said, token)})"
                    case ExitFrame() | OtherFrame():
                        pass
                    case _:
                        assert_never(frame)
    except TimeoutError:
        why = f"no `session_info` within {limit.total_seconds():g} s{told}."
        raise NotAnnounced(why, in_time=False) from None
    except SocketEnded as ended:
        why = f"{scrub(ended.told, token)} before `session_info`{told}."
        raise NotAnnounced(why, in_time=True) from None

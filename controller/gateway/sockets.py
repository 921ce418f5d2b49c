"""
Open sockets: each carried by the terminals behind the doors, each with a guard beside it.

Problem: whoever carries a socket may be slow to heed its leave, or broken, and must neither keep a socket open that has
lost its right nor take others along. Promise: carrier and guard end together, within a farewell; a bug behind the doors
ends its own socket; a drain tells everybody and is bounded.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from aiohttp import WSCloseCode, web

from controller.clock import Clock
from controller.gateway.access import SUBPROTOCOL, BearerToken
from controller.gateway.admission import Admitted
from controller.gateway.guard import Guard
from controller.gateway.limits import Places
from controller.gateway.quiet import find_place
from controller.gateway.reviews import Reviews
from controller.gateway.settings import TimeSettings
from controller.gateway.terminals import AttachRequest, EndCause, Terminals
from controller.gateway.wishes import AttachWish, list_rights
from controller.plan.fence_closing import CLOSINGS

log = logging.getLogger(__name__)

T = TypeVar("T")


class Sockets:
    """
    All sockets of this replica.

    Args:
        terminals: Whoever carries them.
        reviews: Who reviews their leave.
        places: How many there may be.
        times: Bounds of upgrade, farewell and drain.
        clock: For the guards.
        count_end: Told of each socket that its guard ended.
    """

    def __init__(
        self,
        terminals: Terminals,
        reviews: Reviews,
        places: Places,
        *,
        times: TimeSettings,
        clock: Clock,
        count_end: Callable[[EndCause], None],
    ) -> None:
        self._terminals = terminals
        self._reviews = reviews
        self._places = places
        self._times = times
        self._clock = clock
        self._count_end = count_end
        self._guards: set[Guard] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()

    def __len__(self) -> int:
        return len(self._guards)

    async def drain(self) -> None:
        """Tell every socket that this gateway ends, and wait for them, bounded. No other may be let in by then."""
        for guard in list(self._guards):
            guard.end(EndCause.DRAIN)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._times.drain.total_seconds()):
                await self._all_ended.wait()

    async def serve(
        self, request: web.BaseRequest, wish: AttachWish, admitted: Admitted, *, count_open: Callable[[], None]
    ) -> web.WebSocketResponse:
        """
        Upgrade, and keep the socket until it ends by itself or its leave does.

        Args:
            request: It asks for the upgrade.
            wish: What was asked for.
            admitted: Who was let in.
            count_open: Told when the upgrade is done.

        Raises:
            Refused: There is no place for it.
        """
        with self._places.socket(admitted.known.person.name, admitted.terminal.uid):
            return await self._serve(request, wish, admitted, count_open)

    async def _serve(
        self, request: web.BaseRequest, wish: AttachWish, admitted: Admitted, count_open: Callable[[], None]
    ) -> web.WebSocketResponse:
        socket = self._terminals.build_socket((SUBPROTOCOL,))
        guard = Guard(
            self._reviews,
            token=admitted.presented if isinstance(admitted.presented, BearerToken) else None,
            person=admitted.known.person,
            expires=admitted.known.expires,
            target=wish.target,
            rights=list_rights(wish),
            door=wish.door,
            times=self._times,
            clock=self._clock,
        )
        attach = AttachRequest(
            target=wish.target,
            uid=admitted.terminal.uid,
            person=admitted.known.person,
            mode=wish.mode,
            door=wish.door,
            columns=wish.columns,
            rows=wish.rows,
            terminal=admitted.terminal,
            leave=guard,
            abort=lambda: _abort(request),
        )
        self._guards.add(guard)
        self._all_ended.clear()
        try:
            await self._upgrade(request, socket)
            count_open()
            about = {"namespace": wish.target.namespace, "terminal": wish.target.name, "mode": wish.mode.value}
            log.info("A socket was let in.", extra={**about, "door": wish.door.value})
            await self._carry(attach, socket, guard)
            log.info("A socket has ended.", extra={**about, "close_code": socket.close_code})
        finally:
            self._guards.discard(guard)
            if not self._guards:
                self._all_ended.set()
        return socket

    async def _upgrade(self, request: web.BaseRequest, socket: web.WebSocketResponse) -> None:
        try:
            async with asyncio.timeout(self._times.upgrade.total_seconds()):
                await socket.prepare(request)
        except TimeoutError:
            _abort(request)
            raise ConnectionError("The client did not take the answer to its upgrade.") from None

    async def _carry(self, attach: AttachRequest, socket: web.WebSocketResponse, guard: Guard) -> None:
        """Run the terminal's side and the guard side by side; neither outlives the other by more than a farewell."""
        farewell = self._times.farewell.total_seconds()
        async with asyncio.TaskGroup() as group:
            carrier = group.create_task(_tend(self._terminals.attach(attach, socket)), name="attach")
            watcher = group.create_task(_tend(guard.run()), name="guard")
            await asyncio.wait((carrier, watcher), return_when=asyncio.FIRST_COMPLETED)
            if not carrier.done():
                await asyncio.wait((carrier,), timeout=farewell)
            watcher.cancel()
            carrier.cancel()
        ending = None if watcher.cancelled() else watcher.result()
        if ending is not None:
            self._count_end(ending.cause)
        if not socket.closed:
            if socket.close_code is None:
                # Nobody has closed it: it was given its time, or a bug behind the doors left it open. A socket that the
                # other side has closed as well takes no second close.
                code, reason = int(WSCloseCode.INTERNAL_ERROR), "Bug"
                if ending is not None:
                    code, reason = CLOSINGS[ending.word].code, ending.word.value
                with suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(farewell):
                        await socket.close(code=code, message=reason.encode(), drain=False)
            attach.abort()


async def _tend(work: Coroutine[Any, Any, T]) -> T | None:
    """Let a bug behind the doors end its own socket and no other, and keep what it says to ourselves."""
    try:
        return await work
    except ConnectionError:
        return None
    except Exception as error:  # noqa: BLE001 - a bug ends its own socket, whatever it is
        log.error(  # noqa: TRY400 - its text and traceback may hold terminal bytes
            "A socket met a bug.", extra={"error": type(error).__name__, "place": find_place(error)}
        )
        return None


def _abort(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()

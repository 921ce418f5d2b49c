"""
One socket to the gateway: opened, read and written, with every end as a value.

Problem: the WebSocket library follows redirects with the token, logs every header at DEBUG, obeys the environment's
proxies, and tells ends by exceptions whose texts quote the other side. Promise: none of these; a refusal and an end
come as what `controller.client.endings` judges. Observed: websockets 17.4, its source, 2026-11.
"""

import asyncio
import contextlib
import logging
import os
import ssl
from dataclasses import dataclass
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from controller.client.endings import Verdict, judge_refusal
from controller.client.identity import Presented
from controller.client.settings import AttachTimes
from controller.client.way import Reached, describe_host
from controller.errors import AgentTerminalError

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""The largest message that is taken: the gateway joins what waits, and a replay may be long."""

WAITING_MESSAGES: Final = 16

_wire_log: Final = logging.getLogger("controller.client.wire")
_wire_log.setLevel(logging.CRITICAL)
"""The library writes the bearer header at DEBUG; this level of its own keeps it out of every log."""


class NotOpened(AgentTerminalError):
    """The socket did not open: no connection, no TLS, or no answer. The text names no more than the host."""


class UpgradeRefused(AgentTerminalError):
    """The gateway answered with a refusal; the verdict says what it means."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.sentence)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class SocketEnd:
    """
    How an open socket ended.

    Args:
        code: Of the gateway's close frame; None where it broke without one.
        reason: The word in it.
    """

    code: int | None
    reason: str = ""


class Socket:
    """An open socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> str | bytes | SocketEnd:
        """Wait for the next message, or the end."""
        try:
            return await self._connection.recv()
        except ConnectionClosed as ended:
            received = ended.rcvd
            return SocketEnd(received.code, received.reason) if received is not None else SocketEnd(None)

    async def send(self, message: str | bytes) -> bool:
        """Send, as slowly as the gateway reads; False where the socket has ended, and the message may not arrive."""
        try:
            await self._connection.send(message)
        except ConnectionClosed:
            return False
        return True

    async def aclose(self) -> None:
        """Say goodbye, bounded; closing twice is fine."""
        await self._connection.close()


async def open_socket(reached: Reached, path: str, presented: Presented, times: AttachTimes) -> Socket:
    """
    Open a socket.

    Args:
        reached: Where the gateway is.
        path: The door, with its query; nothing secret is in it.
        presented: Who speaks.
        times: How long it may take.

    Raises:
        NotOpened: No answer.
        UpgradeRefused: Another answer than the upgrade.
    """
    where = describe_host(reached.base)
    headers = {} if presented.token is None else {"Authorization": f"Bearer {presented.token}"}
    limit = (times.connect + times.upgrade).total_seconds()
    try:
        async with asyncio.timeout(limit):
            connection = await _Dial(reached, path, headers, presented.tls, times)
    except InvalidStatus as refused:
        answer = refused.response
        body, retry_after = bytes(answer.body or b""), answer.headers.get("Retry-After")
        raise UpgradeRefused(judge_refusal(answer.status_code, body, retry_after)) from None
    except TimeoutError:
        raise NotOpened(f"The gateway at {where} did not answer within {limit:g} s.") from None
    except (OSError, WebSocketException, EOFError) as broken:
        told = _describe(broken, forwarded=reached.port is not None)
        raise NotOpened(f"The gateway at {where} cannot be reached: {told}.") from None
    return Socket(connection)


class _Dial(connect):
    """The library's opening, set as we need it; it stays where it was sent."""

    def __init__(
        self, reached: Reached, path: str, headers: dict[str, str], tls: ssl.SSLContext | None, times: AttachTimes
    ) -> None:
        # Through a port-forward the name stays the gateway's own, for its certificate and its list of hosts.
        instead: dict[str, Any] = {} if reached.port is None else {"host": "127.0.0.1", "port": reached.port}
        super().__init__(
            f"ws{reached.base.removeprefix('http')}{path}",
            additional_headers=headers,
            user_agent_header="kubectl-aterm",
            compression=None,
            proxy=None,
            open_timeout=None,  # ours is around all of it
            ping_interval=times.ping.total_seconds(),
            ping_timeout=times.pong.total_seconds(),
            close_timeout=times.farewell.total_seconds(),
            max_size=MESSAGE_BYTES,
            max_queue=WAITING_MESSAGES,
            logger=_wire_log,
            ssl=tls,
            **instead,
        )

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Stay: a redirect would carry the token elsewhere."""
        return exc


def _describe(broken: Exception, *, forwarded: bool) -> str:
    """Say what broke. The library's own texts quote what the other side sent, so they are not shown."""
    causes = [broken, broken.__cause__, *getattr(broken, "exceptions", ())]
    for cause in causes:
        match cause:
            case ssl.SSLCertVerificationError():
                return (
                    f"its certificate is not accepted ({cause.verify_message}); --gateway-ca names the authority to"
                    " trust"
                )
            case ssl.SSLError():
                plain = "--gateway-plain" if forwarded else "http, only on this machine"
                return f"TLS could not be agreed on; a gateway that speaks plain HTTP is reached by {plain}"
            case OSError() if cause.errno is not None and cause.errno > 0:
                # The event loop writes its own words over the system's.
                return os.strerror(cause.errno)
            case OSError() if cause.strerror:
                return cause.strerror
    with contextlib.suppress(AttributeError, TypeError):
        if isinstance(broken, EOFError | ConnectionError):
            return "the connection was cut"
    return "the answer is no valid upgrade"

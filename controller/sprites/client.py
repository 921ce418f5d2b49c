"""
The client of the Sprites API: each method is one call and says exactly how it ended.

Problem: between "it worked" and "it failed" lie answers that are half one and half the other (200 and an `error` line,
a stream that ends early, an upgrade that was never answered), and whoever reads them carelessly kills nothing or
starts something twice. Promise: a method returns only what was said completely; everything else is one `SpritesError`
of a class that names what happened. Nothing is repeated here, nothing is followed, nothing is remembered between
calls but open connections; each call says in a header why it was made, and reports itself once it has ended.

Writes take the tenure that permits them and demand it directly before the first byte goes out.

Source: sprites-api.md 1 to 6 and 12 (2026-09); behaviours.md K1 to K12.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, assert_never

import httpx

from controller.api.session import Announced, Cause, KillAnswer, Session, Sprite
from controller.clock import Clock
from controller.sprites import addresses
from controller.sprites.announcement import NotAnnounced, await_announcement
from controller.sprites.attach import Attachment
from controller.sprites.errors import (
    Gone,
    LaunchUnclear,
    Malformed,
    NotFound,
    OutputTooLarge,
    Progress,
    Refused,
    SpritesError,
    TimedOut,
    Unfinished,
    classify_missing,
    classify_status,
    classify_transport,
)
from controller.sprites.exec_frames import (
    CommandOutput,
    CommandResult,
    split_stdin,
)
from controller.sprites.kill_stream import KillStream, StreamState
from controller.sprites.lanes import Lanes
from controller.sprites.reading import Page, read_page, read_sessions, read_sprite
from controller.sprites.reports import CallReport, OnCall, Outcome, Route, Settled
from controller.sprites.retry_after import read_retry_after
from controller.sprites.settings import SpritesSettings
from controller.sprites.sockets import Buffering, DialFailed, Socket, SocketEnded, Step, open_socket
from controller.sprites.texts import ERROR_BODY_BYTES, excerpt, read_json, scrub, tidy
from controller.sprites.token import Token
from controller.tenure import Tenure, TenureEnded

__all__ = [
    "CAUSE_HEADER",
    "CallReport",
    "CommandResult",
    "OnCall",
    "Route",
    "Settled",
    "SpritesClient",
    "SpritesSettings",
]

CAUSE_HEADER: Final = "Agentterminal-Cause"
"""Why we call, for the platform's support and for the lab's request log."""

BODY_BYTES: Final = 8 * 1024 * 1024
"""The largest answer we read. A page of 50 sprites has about 100 KiB."""

PAGES: Final = 1000
"""The most pages of one list: 50,000 sprites. A pager that goes on beyond it does not end."""

ERROR_BODY_LIMIT: Final = timedelta(seconds=1)
"""How long we wait for the body of an error whose status we have: the status alone says what to do."""


class SpritesClient:
    """
    One client for all tokens and sprites, over few connections that are kept.

    Close it with `aclose`, or use it as a context manager; closing twice is fine.

    Args:
        settings: Where, and how long to wait.
        clock: For the duration of calls, and for `Retry-After` given as a date.
        on_call: Told of each call after its end; it must not raise.
        tenure: Permits every read, since a read may wake a sprite and cost money; None leaves reads free.
    """

    def __init__(
        self, settings: SpritesSettings, clock: Clock, on_call: OnCall, *, tenure: Tenure | None = None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_call = on_call
        self._tenure = tenure
        self._tls = _build_tls(settings)
        self._lanes = Lanes(settings, clock, self._tls)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._lanes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def list_sprites(self, token: Token, *, cause: Cause, prefix: str = "") -> tuple[Sprite, ...]:
        """
        List all sprites of the token's organization, paged to the end.

        The list is complete or an error: paging ends only with an empty continuation token, whatever `has_more` says.
        It is no snapshot, since sprites come and go between pages; one that is met twice is given once.

        Raises:
            Malformed: A page is not what the contract says, or the pages do not end.
        """
        sprites: dict[str, Sprite] = {}
        met: set[str] = set()
        continuation: str | None = None
        for _ in range(PAGES):
            page = await self._read_page(token, cause, prefix, continuation)
            sprites.update((sprite.id, sprite) for sprite in page.sprites)
            if page.continuation is None:
                return tuple(sprites.values())
            if page.continuation in met:
                raise Malformed("The list of sprites goes round: a continuation token came twice.")
            met.add(page.continuation)
            continuation = page.continuation
        raise Malformed(f"The list of sprites did not end within {PAGES} pages.")

    async def get_sprite(self, token: Token, name: str, *, cause: Cause) -> Sprite:
        """
        Read one sprite's metadata, which does not wake it.

        Raises:
            NotFound: With `missing` Sprite, the API itself says that there is none.
        """
        path = addresses.sprite_path(name)
        with self._reporting(Route.GET_SPRITE, cause, name):
            return read_sprite(await self._get(path, f"Reading the sprite {name}", token, cause), name=name)

    async def list_sessions(self, token: Token, sprite: str, *, cause: Cause) -> tuple[Session, ...]:
        """List the live sessions of a sprite. This may wake it; a session that has exited is not in the list."""
        path = addresses.sessions_path(sprite)
        with self._reporting(Route.LIST_SESSIONS, cause, sprite):
            return read_sessions(await self._get(path, f"Listing the sessions of the sprite {sprite}", token, cause))

    async def kill_session(
        self, token: Token, sprite: str, session_id: str, *, tenure: Tenure, cause: Cause
    ) -> KillAnswer:
        """
        Send one SIGKILL and read the answer to its end. No answer is proof of a death.

        | The platform says | Result |
        | --- | --- |
        | 2xx, `complete`, no `error`, the body ends | COMPLETE |
        | 2xx and no event (an empty body, blank lines, garbage) | EMPTY |
        | 404, 410 | NOT_FOUND, GONE |
        | 2xx and an `error` line, whatever follows or breaks afterwards | Refused with its text |
        | 2xx, events, and an end without `complete`, or a cut body | Unfinished |
        | not all of it within `kill_limit` | TimedOut |
        | more than the stream's limit | Malformed |
        | any other status | its class |

        Raises:
            TenureEnded: The term is over; nothing was sent.
        """
        path = addresses.kill_path(sprite, session_id)
        subject = f"Killing the session {session_id} of the sprite {sprite}"
        tenure.demand()
        try:
            with self._reporting(Route.KILL_SESSION, cause, sprite):
                return await self._kill(path, subject, token, cause, tenure)
        except NotFound:
            return KillAnswer.NOT_FOUND
        except Gone:
            return KillAnswer.GONE

    async def run_command(
        self,
        token: Token,
        sprite: str,
        argv: Sequence[str],
        *,
        stdin: bytes,
        tenure: Tenure,
        cause: Cause,
        time_limit: timedelta,
        output_bytes: int,
    ) -> CommandResult:
        """
        Run a command without a terminal to its end, and give what it printed and its exit code, whatever the code.

        It has ended with the binary exit frame, or with a text `exit` and the close of the socket. When we leave
        earlier, the platform ends it by itself 10 s later.

        Args:
            token: Whose sprite it is.
            sprite: Its name.
            argv: The words of the command; they stand in the address and in the session list, so no secret in them.
            stdin: Given to the command, and then the end of its input.
            tenure: Permits the call.
            cause: Why.
            time_limit: For all of it, opening included.
            output_bytes: The most bytes of stdout and stderr together.

        Raises:
            Unfinished: The socket ended, and no exit was seen.
            OutputTooLarge: It printed more than `output_bytes`.
            TenureEnded: The term is over; nothing was sent.
        """
        path = addresses.command_path(sprite, argv)
        subject = f"Running a command in the sprite {sprite}"
        tenure.demand()
        output = CommandOutput(output_bytes)
        with self._reporting(Route.RUN_COMMAND, cause, sprite):
            try:
                async with (
                    asyncio.timeout(time_limit.total_seconds()),
                    self._open(path, subject, token, cause, tenure) as socket,
                ):
                    return await _converse(socket, stdin, output, tenure)
            except TimeoutError:
                raise TimedOut(f"{subject} took longer than {time_limit.total_seconds():g} s.") from None
            except DialFailed as failed:
                raise failed.error from None
            except SocketEnded as ended:
                if ended.oversized:
                    raise OutputTooLarge(f"{subject} gave a message that was too large; it was cut off.") from None
                told = output.error_text or ended.told
                raise Unfinished(f"{subject} ended without an exit ({scrub(told, token)}).") from None

    async def launch_session(
        self,
        token: Token,
        sprite: str,
        argv: Sequence[str],
        *,
        columns: int,
        rows: int,
        tenure: Tenure,
        cause: Cause,
    ) -> Announced:
        """
        Start a terminal session that lives on without us, and give the identity it announced.

        What went wrong decides whether the caller may start another one, so it is told apart exactly:

        | What happens | Raised | Started? |
        | --- | --- | --- |
        | no name, no connection, no TLS within `connect_limit` | Unreachable | no, nothing was sent |
        | the term has ended | TenureEnded | no, nothing was sent |
        | a word or a name that no address can hold | Rejected | no, nothing was sent |
        | 3xx, 4xx instead of the upgrade | the status's class | no, it was refused |
        | 500 instead of the upgrade | ServerFault | no, the API itself refused it |
        | any other 5xx (502, 503, 504 and the like) | LaunchUnclear | perhaps: an edge lost the API's answer |
        | 2xx instead of the upgrade, an upgrade that is none | LaunchUnclear | perhaps |
        | cut, or no HTTP, before the upgrade was answered | LaunchUnclear | perhaps |
        | no answer to the upgrade within `upgrade_limit` | LaunchUnclear | perhaps |
        | the socket ends before `session_info` | LaunchUnclear | perhaps |
        | no readable `session_info` within `announce_limit` | LaunchUnclear | perhaps |
        | `session_info` | (returns) | yes |

        Assumed: a 500 comes from the one that would have started the process, before it did. The lab's emulator and
        `tests/sprites/test_launch.py` hold it that way; the platform's documentation says nothing.
        """
        path = addresses.launch_path(sprite, argv, columns=columns, rows=rows)
        subject = f"Launching a session in the sprite {sprite}"
        tenure.demand()
        with self._reporting(Route.LAUNCH_SESSION, cause, sprite):
            try:
                async with self._open(path, subject, token, cause, tenure) as socket:
                    announced, _ = await await_announcement(socket, token, limit=self._settings.announce_limit)
                    return announced
            except NotAnnounced as unheard:
                raise LaunchUnclear(f"{subject} is unclear: {unheard.why}") from None
            except DialFailed as failed:
                if _is_refusal(failed):
                    raise failed.error from None
                raise LaunchUnclear(
                    f"{failed.error.message.removesuffix('.')}; it may have started all the same.",
                    status=failed.error.status,
                    retry_after=failed.error.retry_after,
                ) from None

    @contextlib.asynccontextmanager
    async def attach_session(
        self, token: Token, sprite: str, session_id: str, *, typing: Tenure | None, cause: Cause
    ) -> AsyncIterator[Attachment]:
        """
        Attach to a session that lives, for the length of a `with` block. This wakes the sprite; it creates nothing.

        The attachment is given once it has announced itself; the caller compares what it announced with what was
        wanted. The block's end closes the socket, or cuts it out of an error; the session goes on.

        Args:
            token: Whose sprite it is.
            sprite: Its name.
            session_id: The session.
            typing: Permits the socket to type, and is demanded directly before it opens. None opens one that cannot.
            cause: Why.

        Raises:
            NotFound: With `missing` Session, the sprite's runtime knows no such session.
            TimedOut: No upgrade, or no `session_info` in time.
            Unfinished: The socket ended before `session_info`.
            TenureEnded: The term is over; nothing was sent.
        """
        path = addresses.attach_path(sprite, session_id, stdin=typing is not None)
        subject = f"Attaching to the session {session_id} of the sprite {sprite}"
        permit = typing or Tenure(0)
        permit.demand()
        async with contextlib.AsyncExitStack() as stack:
            with self._reporting(Route.ATTACH_SESSION, cause, sprite):
                try:
                    opening = self._open(path, subject, token, cause, permit, buffering=Buffering.NONE)
                    socket = await stack.enter_async_context(opening)
                except DialFailed as failed:
                    raise failed.error from None
                try:
                    limit = self._settings.announce_limit
                    announced, framing = await await_announcement(socket, token, limit=limit)
                except NotAnnounced as unheard:
                    text = f"{subject} failed: {unheard.why}"
                    raise (Unfinished(text) if unheard.in_time else TimedOut(text)) from None
            yield Attachment(socket, announced, framing, token)

    async def _read_page(self, token: Token, cause: Cause, prefix: str, continuation: str | None) -> Page:
        path = addresses.sprites_page(prefix=prefix, continuation=continuation)
        with self._reporting(Route.LIST_SPRITES, cause, None):
            return read_page(await self._get(path, "Listing the sprites", token, cause))

    async def _get(self, path: str, subject: str, token: Token, cause: Cause) -> bytes:
        """Read one whole answer, or raise what its status or its breaking off means."""
        request = self._build_request("GET", path, token, cause)
        if self._tenure is not None:
            _demand_at_sending(request, self._tenure)
        async with self._exchange(request, subject, token, limit=self._settings.read_limit) as response:
            if response.status_code != 200:
                raise await self._read_refusal(response, subject, token)
            body = bytearray()
            async for portion in response.aiter_raw():
                body += portion
                if len(body) > BODY_BYTES:
                    raise Malformed(f"{subject} gave more than {BODY_BYTES} bytes.", status=200)
            return bytes(body)

    async def _kill(self, path: str, subject: str, token: Token, cause: Cause, tenure: Tenure) -> KillAnswer:
        stream = KillStream()
        request = self._build_request("POST", path, token, cause)
        _demand_at_sending(request, tenure)
        try:
            async with self._exchange(request, subject, token, limit=self._settings.kill_limit) as response:
                if not response.is_success:
                    raise await self._read_refusal(response, subject, token)
                async for portion in response.aiter_raw():
                    stream.feed(portion)
                    if stream.is_overfull:
                        break
                stream.finish()
        except (TimedOut, Unfinished):
            if stream.state is not StreamState.FAILED:
                raise
            # An `error` line fails the attempt whatever follows, and says more than the way the stream broke.
        return _judge_stream(stream, subject, token)

    def _build_request(self, method: str, path: str, token: Token, cause: Cause) -> httpx.Request:
        """Build a request from nothing but its parts: no cookie and no default travels with it."""
        return httpx.Request(
            method,
            self._settings.base_url + path,
            headers=self._headers(token, cause) | {"Accept-Encoding": "identity"},
            extensions={"timeout": {"connect": self._settings.connect_limit.total_seconds()}},
        )

    def _headers(self, token: Token, cause: Cause) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {token.reveal()}",
            "User-Agent": self._settings.user_agent,
            CAUSE_HEADER: cause.value,
        }

    @contextlib.asynccontextmanager
    async def _exchange(
        self, request: httpx.Request, subject: str, token: Token, *, limit: timedelta
    ) -> AsyncIterator[httpx.Response]:
        """Send a request and give its answer to be read; whatever breaks becomes the matching error."""
        progress = Progress.ASKING
        try:
            async with asyncio.timeout(limit.total_seconds()), self._lanes.take() as lane:
                response = await lane.send(request, stream=True)
                progress = Progress.READING
                try:
                    yield response
                finally:
                    await response.aclose()
        except TimeoutError:
            raise TimedOut(f"{subject} took longer than {limit.total_seconds():g} s.") from None
        except httpx.HTTPError as broken:
            raise _translate(broken, progress, subject, token) from None

    async def _read_refusal(self, response: httpx.Response, subject: str, token: Token) -> SpritesError:
        """Make the error of an answer whose status is not the hoped for; its body is read if it comes quickly."""
        body = bytearray()
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(ERROR_BODY_LIMIT.total_seconds()):
                async for portion in response.aiter_raw():
                    body += portion
                    if len(body) >= ERROR_BODY_BYTES:
                        break
        refusal = bytes(body[:ERROR_BODY_BYTES])
        retry_after = response.headers.get("retry-after")
        return self._describe_refusal(response.status_code, retry_after, refusal, subject, token)

    def _describe_refusal(
        self, status: int, retry_after: str | None, body: bytes, subject: str, token: Token
    ) -> SpritesError:
        kind = classify_status(status)
        told = excerpt(body, token)
        message = f"{subject} failed: HTTP {status}{f' ({told})' if told else ''}."
        wait = read_retry_after(retry_after, read_json(body), now=self._clock.now())
        if kind is NotFound:
            missing = classify_missing(body)
            return NotFound(message, status=status, retry_after=wait, missing=missing)
        return kind(message, status=status, retry_after=wait)

    def _open(
        self,
        path: str,
        subject: str,
        token: Token,
        cause: Cause,
        tenure: Tenure,
        *,
        buffering: Buffering = Buffering.USUAL,
    ) -> contextlib.AbstractAsyncContextManager[Socket]:
        def classify(status: int, headers: dict[str, str], body: bytes) -> SpritesError:
            return self._describe_refusal(status, headers.get("retry-after"), body, subject, token)

        # https becomes wss, and http ws.
        url = "ws" + (self._settings.base_url + path).removeprefix("http")
        return open_socket(
            url,
            self._headers(token, cause),
            subject=subject,
            settings=self._settings,
            tls=self._tls if url.startswith("wss") else None,
            before_send=tenure.demand,
            classify=classify,
            buffering=buffering,
        )

    @contextlib.contextmanager
    def _reporting(self, route: Route, cause: Cause, sprite: str | None) -> Iterator[None]:
        """Report the call that the block makes; a call that never went out, and a bug, are not reported."""
        began = self._clock.monotonic()

        def report(outcome: Outcome) -> None:
            self._on_call(CallReport(route, cause, outcome, self._clock.monotonic() - began, sprite))

        try:
            yield
        except SpritesError as error:
            report(error.failure)
            raise
        except TenureEnded:
            raise
        except asyncio.CancelledError:
            report(Settled.CANCELLED)
            raise
        report(Settled.SUCCESS)


def _demand_at_sending(request: httpx.Request, tenure: Tenure) -> None:
    """Have a request demand its tenure now, and again with its connection in hand, directly before its first byte."""

    async def demand(event: str, _info: dict[str, Any]) -> None:
        # A wait for a connection may lie between the call and its first byte, and the term may end in it.
        if event.endswith(".send_request_headers.started"):
            tenure.demand()

    tenure.demand()
    request.extensions["trace"] = demand


async def _converse(socket: Socket, stdin: bytes, output: CommandOutput, tenure: Tenure) -> CommandResult:
    """
    Feed stdin and gather the output side by side: each end may wait for the other to read.

    A command may end, or close its input, before it has read all; then the rest of stdin is not sent. Nor is it once
    the term is over: then the command, too, is given up.
    """

    async def feed() -> None:
        with contextlib.suppress(SocketEnded):
            for frame in split_stdin(stdin):
                tenure.demand()
                await socket.send(frame)

    async def gather() -> CommandResult:
        while True:
            try:
                message = await socket.receive()
            except SocketEnded as ended:
                result = None if ended.oversized else output.close()
                if result is None:
                    raise
                return result
            if isinstance(message, str):
                output.take_text(message)
            elif (result := output.take_binary(message)) is not None:
                return result

    # Kept as a value: raised in the group it would leave as a group of errors.
    outcome: CommandResult | SpritesError | SocketEnded | TenureEnded
    try:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(feed())
            try:
                outcome = await gather()
            except (SpritesError, SocketEnded) as error:
                outcome = error
            feeding.cancel()
    except* TenureEnded:
        outcome = TenureEnded("This process no longer leads; the rest of the command's input was not sent.")
    if isinstance(outcome, CommandResult):
        return outcome
    raise outcome


def _judge_stream(stream: KillStream, subject: str, token: Token) -> KillAnswer:
    """Say what a stream that has ended amounts to."""
    if stream.is_overfull and stream.state is not StreamState.FAILED:
        raise Malformed(f"{subject} gave an answer without an end.", status=200)
    match stream.state:
        case StreamState.COMPLETE:
            return KillAnswer.COMPLETE
        case StreamState.SILENT:
            return KillAnswer.EMPTY
        case StreamState.BEGUN:
            raise Unfinished(f"{subject} gave an answer that ended without `complete`.", status=200)
        case StreamState.FAILED:
            raise Refused(f"{subject} failed: {tidy(scrub(stream.error, token))}.", status=200)
        case _:
            assert_never(stream.state)


def _is_refusal(failed: DialFailed) -> bool:
    """A launch was refused for certain: nothing was sent, or the API itself declined (3xx, 4xx, its own 500)."""
    match failed.step:
        case Step.BEFORE_SEND:
            return True
        case Step.SENT:
            return False
        case Step.ANSWERED:
            status = failed.error.status
            return status is not None and (300 <= status < 500 or status == 500)
        case _:
            assert_never(failed.step)


def _translate(broken: httpx.HTTPError, progress: Progress, subject: str, token: Token) -> SpritesError:
    kind = classify_transport(type(broken), progress)
    where = "before any answer" if progress is Progress.ASKING else "in the middle of the answer"
    match broken:
        case httpx.LocalProtocolError():
            # Its text quotes the header that cannot be sent, and that may be the one with the token.
            told = "the request breaks a rule of HTTP"
        case httpx.RemoteProtocolError():
            # Its text may quote what the other side sent, cut anywhere: a secret in it would go unrecognised.
            told = "the connection was closed, or what came is no valid HTTP"
        case _:
            told = tidy(scrub(str(broken), token), characters=120) or type(broken).__name__
    return kind(f"{subject} failed {where}: {told}.")


def _build_tls(settings: SpritesSettings) -> ssl.SSLContext:
    if settings.base_url.startswith("https:"):
        return httpx.create_ssl_context(trust_env=settings.trust_env)
    # Never used, and it trusts nobody: the usual one costs 20 ms and megabytes of certificates.
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

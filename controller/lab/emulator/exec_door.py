"""
The routes of exec sessions: start, attach, list, kill, and the plain POST.

Source: sprites-api.md 3 to 6.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from signal import Signals
from typing import Any, Final

import orjson
from aiohttp import WSMsgType, web

from controller.lab.emulator.accounts import render_time
from controller.lab.emulator.answers import (
    Line,
    Refusal,
    drop_connection,
    get_fault,
    respond_fault,
    respond_json,
    send_lines,
    spoil_list,
)
from controller.lab.emulator.context import Context, get_cause, get_context, get_sprite, wake, wake_or_fail
from controller.lab.emulator.durations import parse_duration
from controller.lab.emulator.faults import DelayFault, DropFault, EarlyEndFault, ErrorLineFault, StatusFault, When
from controller.lab.emulator.frames import (
    Input,
    InputEnd,
    Resize,
    SignalFrame,
    Stream,
    parse_binary,
    parse_text,
    render_port,
)
from controller.lab.emulator.kill import DEFAULT_GRACE, kill_session, parse_signal, parse_timeout
from controller.lab.emulator.lifecycle import Status
from controller.lab.emulator.limits import judge_count, refuse
from controller.lab.emulator.sessions import Attachment, Ending, Session, Size
from controller.lab.emulator.settings import DEFAULT_PATH, HOME, Isolation
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.switches import (
    DeleteSession,
    Envelope,
    Environment,
    IdType,
    KillBody,
    KillExited,
    KillReach,
    ListedCommand,
    PortFrames,
    PostAnswer,
    Switches,
    Taken,
    Term,
    UnknownSignal,
)
from controller.lab.emulator.world import Command, SpawnRefused, WorldLost

SLOW_CLIENT: Final = timedelta(seconds=30)
"""A client that takes nothing for so long is dropped."""
MESSAGE_BYTES: Final = 16 << 20
DEFAULT_RUN_ON: Final = {True: timedelta(), False: timedelta(seconds=10)}
"""By TTY: how long a session outlives its last client; zero is without limit."""
PORTS_EVERY: Final = timedelta(milliseconds=100)


@dataclass(frozen=True)
class Start:
    """A session to be started."""

    command: Command
    run_on: timedelta


def is_upgrade(request: web.Request) -> bool:
    """Tell whether a request asks for a WebSocket."""
    return request.headers.get("Upgrade", "").lower() == "websocket"


def name_exec_route(request: web.Request) -> str:
    """Tell the routes apart that share one path."""
    if request.method == "POST":
        return "exec.post"
    if "id" in request.query:
        return "exec.attach"
    return "exec.create" if "cmd" in request.query or is_upgrade(request) else "exec.list"


def parse_flag(query: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read a boolean of the query."""
    return default if name not in query else query[name].lower() in ("true", "1", "yes")


def parse_size(text: str) -> int:
    """Read rows or columns."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError("rows and cols must be between 1 and 65535")
    return int(text)


def build_environment(pairs: list[str], sprite: Sprite, isolation: Isolation, *, tty: bool) -> dict[str, str]:
    """
    Make a command's environment: the documented default, or what was given instead, with HOME kept.

    Observed: `env` replaces the default, so PATH is lost, and there is no TERM.
    """
    home = str(sprite.folder / "home") if isolation is Isolation.PLAIN else HOME
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise Refusal(400, {"error": "env must be KEY=VALUE"})
        given[name] = value
    default = {"HOME": home}
    if not given or sprite.switches.env is Environment.ADDS:
        default |= {
            "BROWSER": "/.sprite/bin/open-url",
            "DEBIAN_FRONTEND": "noninteractive",
            "LANG": "C.UTF-8",
            "PATH": DEFAULT_PATH if isolation is not Isolation.PLAIN else f"{sprite.folder}/sprite/bin:{DEFAULT_PATH}",
            "PWD": home,
            "SHLVL": "0",
        }
        if tty and sprite.switches.tty_term is Term.XTERM:
            default["TERM"] = Term.XTERM.value
    environment = {**default, **given}
    if isolation is Isolation.PLAIN:
        environment.setdefault("SPRITE_API_SOCKET", str(sprite.socket_path))
    return environment


def parse_start(request: web.Request, sprite: Sprite, isolation: Isolation, *, post: bool = False) -> Start:
    """Read what to start; refuse with 400 what cannot be read."""
    query = request.query
    argv = tuple(query.getall("cmd", []))
    if not argv or not argv[0]:
        raise Refusal(400, {"error": "cmd is required"})
    tty = parse_flag(query, "tty", default=False) and not post
    home = str(sprite.folder / "home") if isolation is Isolation.PLAIN else HOME
    try:
        rows, cols = parse_size(query.get("rows", "24")), parse_size(query.get("cols", "80"))
        run_on = parse_run_on(query, sprite, tty=tty)
    except ValueError as error:
        raise Refusal(400, {"error": str(error)}) from error
    command = Command(
        argv=argv,
        path=query.get("path") or argv[0],
        directory=query.get("dir") or home,
        environment=build_environment(query.getall("env", []), sprite, isolation, tty=tty),
        tty=tty,
        stdin=parse_flag(query, "stdin", default=tty),
        rows=rows,
        cols=cols,
    )
    if any("\0" in word for word in (*argv, command.path, command.directory, *command.environment.values())):
        raise Refusal(400, {"error": "NUL is not allowed"})
    return Start(command, run_on)


def parse_run_on(query: Mapping[str, str], sprite: Sprite, *, tty: bool) -> timedelta:
    """
    Read how long a session outlives its last client; zero is without limit.

    Raises:
        ValueError: It is no duration.
    """
    text = query.get("max_run_after_disconnect")
    if text is not None:
        return parse_duration(text)
    detachable = sprite.switches.detachable is Taken.TAKEN and parse_flag(query, "detachable", default=False)
    return timedelta() if detachable else DEFAULT_RUN_ON[tty]


async def start_session(sprite: Sprite, start: Start, cause: str) -> Session:
    """Start a session, or refuse as the API does."""
    try:
        return await sprite.start_session(start.command, run_on=start.run_on, cause=cause)
    except SpawnRefused as error:
        raise Refusal(400, {"error": f"failed to start command: {error}"}) from error
    except WorldLost as error:
        raise Refusal(502, {"error": "sprite is not reachable"}) from error


async def exec_get(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites/{name}/exec: start, legacy attach or list."""
    sprite = get_sprite(request)
    match name_exec_route(request):
        case "exec.attach":
            return await attach(request, sprite, request.query["id"])
        case "exec.create":
            return await create(request, sprite)
        case _:
            return await list_sessions(request, sprite)


async def create(request: web.Request, sprite: Sprite) -> web.StreamResponse:
    """Start a session and speak for it on this connection."""
    context = get_context(request)
    start = parse_start(request, sprite, context.isolation)
    if not is_upgrade(request):
        raise Refusal(400, {"error": "websocket upgrade required"})
    if await lose_while_waking(request, sprite):
        return drop_connection(request)
    await wake(request, sprite)
    check_sessions_limit(context, sprite)
    session = await start_session(sprite, start, get_cause(request))
    sprite.creates += 1
    if sprite.switches.lost_create_every > 0 and sprite.creates % sprite.switches.lost_create_every == 0:
        session.start_countdown()
        return drop_connection(request)
    return await serve_socket(request, session, replay=False, takes_input=True)


async def lose_while_waking(request: web.Request, sprite: Sprite) -> bool:
    """Wake a sprite for a socket whose connection is lost over it, where the switches say so."""
    switches = sprite.switches
    cold = sprite.status is Status.COLD and switches.drop_first_socket_on_cold
    lost = cold or (sprite.status is not Status.RUNNING and switches.drop_while_waking)
    if lost:
        await wake(request, sprite)
    return lost


def check_sessions_limit(context: Context, sprite: Sprite) -> None:
    """Refuse a session above the limit."""
    live = sum(not session.ended for session in sprite.sessions.values())
    exceeded = judge_count(
        code="session_limit_exceeded", what="sessions", limit=sprite.switches.sessions_limit, current=live
    )
    if exceeded is not None:
        raise refuse(exceeded, context.switches, context.wall.now())


async def attach(request: web.Request, sprite: Sprite, session_id: str) -> web.StreamResponse:
    """Speak for a session that lives."""
    if is_upgrade(request) and await lose_while_waking(request, sprite):
        return drop_connection(request)
    await wake(request, sprite)
    session = sprite.sessions.get(session_id)
    if session is None or session.ended:
        raise Refusal(404, f"session not found: {session_id}")
    if not is_upgrade(request):
        raise Refusal(400, {"error": "websocket upgrade required"})
    takes_input = parse_flag(request.query, "stdin", default=session.tty)
    text = request.query.get("max_run_after_disconnect")
    if text is not None and sprite.switches.run_on_on_attach is Taken.TAKEN:
        try:
            session.set_run_on(parse_duration(text))
        except ValueError as error:
            raise Refusal(400, {"error": str(error)}) from error
    return await serve_socket(request, session, replay=True, takes_input=takes_input)


async def attach_by_path(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites/{name}/exec/{session}."""
    return await attach(request, get_sprite(request), request.match_info["session"])


async def serve_socket(
    request: web.Request, session: Session, *, replay: bool, takes_input: bool
) -> web.StreamResponse:
    """Be a session's client on this connection, from the upgrade to whichever end comes first."""
    context, fault, sprite = get_context(request), get_fault(request), get_sprite(request)
    gone = asyncio.Event()

    def abort() -> None:
        gone.set()
        drop_connection(request)

    client = Attachment(takes_input=takes_input, abort=abort)
    session.attach(client, replay=replay)
    try:
        match fault:
            case StatusFault():
                return await respond_fault(request, fault)
            case DropFault(when=When.AFTER):
                return drop_connection(request)
            case DelayFault(when=When.AFTER):
                await asyncio.sleep(fault.seconds)
            case _:
                pass
        socket = web.WebSocketResponse(compress=False, max_msg_size=MESSAGE_BYTES, timeout=1.0)
        socket.headers["Sprite-Version"] = context.settings.runtime_version
        if sprite.switches.signal_frames:
            socket.headers["X-Sprite-Capabilities"] = "signal"
        await socket.prepare(request)
        if isinstance(fault, DropFault):
            return drop_connection(request)
        if isinstance(fault, DelayFault) and fault.when is When.BODY:
            await asyncio.sleep(fault.seconds)
        after = fault.after_lines if isinstance(fault, EarlyEndFault) else None
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send_frames(request, socket, session, client, end_after=after))
            taking = group.create_task(take_frames(context, sprite, socket, session, client))
            leaving = group.create_task(wait_for(gone))
            pinging = group.create_task(send_pings(socket, sprite))
            watching = group.create_task(watch_ports(sprite, session, client))
            # The end of the sending ends the connection, which the taking sees.
            await asyncio.wait({taking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            for task in (sending, taking, leaving, pinging, watching):
                task.cancel()
    except ConnectionError:
        return drop_connection(request)
    finally:
        session.detach(client)
    return socket


async def wait_for(event: asyncio.Event) -> None:
    """Wait until it is set."""
    await event.wait()


async def send_pings(socket: web.WebSocketResponse, sprite: Sprite) -> None:
    """Ping as often as the switch said at the start; whether a pong comes is nobody's business."""
    if (every := sprite.switches.server_ping_seconds) <= 0:
        return
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.sleep(every)
            await socket.ping()


async def watch_ports(sprite: Sprite, session: Session, client: Attachment) -> None:
    """Tell a client which ports its session's processes open and close, where the switches said so at the start."""
    switches = sprite.switches
    if switches.port_frames is PortFrames.NONE or (switches.port_frames is PortFrames.TTY and not session.tty):
        return
    known: dict[int, int] = {}
    while True:
        found = await asyncio.to_thread(sprite.read_ports, session)
        for port in found.keys() - known.keys():
            client.push(render_port(switches.port_type.value, port, found[port]))
        for port in known.keys() - found.keys() if switches.port_closed else ():
            client.push(render_port("port_closed", port, known[port]))
        known = found
        await asyncio.sleep(PORTS_EVERY.total_seconds())


async def send_frames(
    request: web.Request, socket: web.WebSocketResponse, session: Session, client: Attachment, *, end_after: int | None
) -> None:
    """Send what is queued for a client until its end."""
    context, sprite = get_context(request), get_sprite(request)
    sent = 0
    with contextlib.suppress(ConnectionError):
        while True:
            frame = await client.next_frame()
            if sent == end_after:
                client.abort()
                return
            try:
                async with asyncio.timeout(SLOW_CLIENT.total_seconds()):
                    if isinstance(frame, str):
                        await socket.send_str(frame)
                    elif isinstance(frame, bytes):
                        await socket.send_bytes(frame)
            except TimeoutError:
                client.abort()
                return
            sent += 1
            session.note_sent()
            match frame:
                case Ending.DROP | Ending.LINGER_THEN_DROP:
                    if frame is Ending.LINGER_THEN_DROP:
                        await context.clock.sleep(timedelta(seconds=sprite.switches.linger_seconds))
                    if request.transport is not None:
                        request.transport.close()
                    return
                case Ending.LINGER | Ending.NORMAL:
                    if frame is Ending.LINGER:
                        await context.clock.sleep(timedelta(seconds=sprite.switches.linger_seconds))
                    await socket.close(code=1000)
                    return
                case _:
                    pass


async def take_frames(
    context: Context, sprite: Sprite, socket: web.WebSocketResponse, session: Session, client: Attachment
) -> None:
    """Act on what a client sends until it leaves."""
    number = context.inputs.name_socket()
    async for message in socket:
        match message.type:
            case WSMsgType.TEXT:
                frame = parse_text(message.data)
            case WSMsgType.BINARY:
                frame = parse_binary(message.data, tty=session.tty)
            case _:
                continue
        match frame:
            case Input(data):
                if session.may_type(client):
                    # Before anything is awaited: the order of the log is the order in which input was taken.
                    context.inputs.note(
                        time=context.wall.now().timestamp(),
                        sprite=sprite.name,
                        session=session.id,
                        socket=number,
                        data=data,
                    )
                await session.take_input(client, data)
            case InputEnd():
                session.take_input_end(client)
            case Resize(cols, rows):
                session.resize(Size(rows, cols))
            case SignalFrame(name) if sprite.switches.signal_frames:
                with contextlib.suppress(ValueError, WorldLost):
                    wanted = parse_signal(name, names=sprite.switches.signal_names)
                    await sprite.signal(session, wanted, sprite.switches.kill_reach)
            case _:
                pass


async def list_sessions(request: web.Request, sprite: Sprite) -> web.StreamResponse:
    """GET /v1/sprites/{name}/exec: what lives."""
    context, switches = get_context(request), sprite.switches
    if switches.list_wakes:
        await wake_or_fail(request, sprite)
    sprite.note_read()
    current = read_current_commands(sprite)
    sessions = [render_session(session, current, switches) for session in sprite.find_listed()]
    headers = {"Sprite-Version": context.settings.runtime_version}
    body = spoil_list({"count": len(sessions), "sessions": sessions}, get_fault(request))
    if isinstance(body, bytes):
        return web.Response(body=body, content_type="text/html", headers=headers)
    return respond_json(render_envelope(body, switches), headers=headers)


def render_envelope(body: dict[str, Any], switches: Switches) -> Any:
    """Give a session list the form that the switches say; one without its key stays without."""
    if "sessions" not in body:
        return body
    if switches.session_ids is IdType.INTEGER or switches.list_envelope is Envelope.ARRAY:
        body = {**body, "sessions": [{**entry, "id": int(entry["id"])} for entry in body["sessions"]]}
    match switches.list_envelope:
        case Envelope.OBJECT:
            return body
        case Envelope.NO_COUNT:
            return {name: value for name, value in body.items() if name != "count"}
        case Envelope.ARRAY:
            return body["sessions"]


def read_current_commands(sprite: Sprite) -> dict[str, str]:
    """Read what the leaders run now, where the list shows that."""
    if sprite.switches.listed_command is not ListedCommand.CURRENT:
        return {}
    return {str(entry.inner_pid): " ".join(entry.argv) for entry in sprite.read_table() if entry.argv}


def render_session(session: Session, current: Mapping[str, str], switches: Switches) -> dict[str, Any]:
    """Write a session as the list shows it."""
    as_sent = switches.listed_command is ListedCommand.ARGV
    command = " ".join(session.argv) if as_sent else current.get(session.id, session.process.command)
    shown = {
        "id": session.id,
        "command": command,
        "workdir": session.directory,
        "created": render_time(session.created),
        "tty": session.tty,
        "bytes_per_second": session.bytes_per_second,
        "is_active": session.is_active(),
        "last_activity": render_time(session.last_activity),
    }
    absent = {"tty"} if not switches.list_tty else set()
    absent |= {"last_activity"} if not switches.list_last_activity else set()
    return {name: value for name, value in shown.items() if name not in absent}


async def kill(request: web.Request) -> web.StreamResponse:
    """POST /v1/sprites/{name}/exec/{session}/kill."""
    context, sprite, fault = get_context(request), get_sprite(request), get_fault(request)
    number, timeout = await parse_kill(request, sprite.switches)
    await wake_or_fail(request, sprite)
    session_id = request.match_info["session"]
    session = sprite.sessions.get(session_id)
    if session is None or session.ended:
        if session_id in sprite.ended_ids and sprite.switches.kill_exited is KillExited.GONE:
            raise Refusal(410, f"session already exited: {session_id}")
        raise Refusal(404, f"session not found: {session_id}")
    headers = {"Sprite-Version": context.settings.runtime_version}
    if isinstance(fault, ErrorLineFault) and fault.undone:
        return await send_lines(request, leave_alive(session, number), headers=headers)
    events = kill_session(sprite, session, number, timeout, clock=context.clock, switches=sprite.switches)
    return await send_lines(request, events, headers=headers)


async def leave_alive(session: Session, number: Signals) -> AsyncIterator[Line]:
    """Pretend to have sent a signal."""
    yield {"type": "signal", "message": "Signal sent", "signal": number.name, "pid": session.process.pid}


async def parse_kill(request: web.Request, switches: Switches) -> tuple[Signals, timedelta | None]:
    """Read signal and timeout (None: for ever) from the query and, where it is silent, from a JSON body."""
    asked: dict[str, Any] = {}
    if switches.kill_body is KillBody.READ and request.can_read_body:
        with contextlib.suppress(orjson.JSONDecodeError):
            body = orjson.loads(await request.read())
            asked = body if isinstance(body, dict) else {}
    asked = {**asked, **request.query}
    try:
        timeout = DEFAULT_GRACE if asked.get("timeout") is None else parse_timeout(str(asked["timeout"]), switches)
        number = parse_signal(str(asked["signal"]), names=switches.signal_names) if asked.get("signal") else None
    except ValueError as error:
        if str(error).startswith("unknown signal") and switches.unknown_signal is UnknownSignal.TERM:
            return Signals.SIGTERM, timeout
        raise Refusal(400, {"error": str(error)}) from error
    return number or Signals.SIGTERM, timeout


async def delete_session(request: web.Request) -> web.StreamResponse:
    """DELETE /v1/sprites/{name}/exec/{session}, where there is one."""
    sprite = get_sprite(request)
    if sprite.switches.delete_session is DeleteSession.ABSENT:
        raise web.HTTPMethodNotAllowed("DELETE", ["GET"])
    await wake_or_fail(request, sprite)
    session = sprite.sessions.get(request.match_info["session"])
    if session is None or session.ended:
        raise Refusal(404, f"session not found: {request.match_info['session']}")
    with contextlib.suppress(WorldLost):
        await sprite.signal(session, Signals.SIGKILL, sprite.switches.kill_reach)
    return web.Response(status=204)


async def post(request: web.Request) -> web.StreamResponse:
    """POST /v1/sprites/{name}/exec: run a command to its end, one chunk a frame."""
    context, sprite = get_context(request), get_sprite(request)
    start = parse_start(request, sprite, context.isolation, post=True)
    body = await request.read() if start.command.stdin else b""
    await wake(request, sprite)
    check_sessions_limit(context, sprite)
    session = await start_session(sprite, start, get_cause(request))
    gone = asyncio.Event()
    client = Attachment(takes_input=True, abort=gone.set)
    session.attach(client, replay=False)
    response = web.StreamResponse(
        headers={"Content-Type": "application/octet-stream", "Sprite-Version": context.settings.runtime_version}
    )
    try:
        await session.take_input(client, body)
        session.take_input_end(client)
        if sprite.switches.post_answer is PostAnswer.JSON:
            return respond_json(await gather_post(client, session))
        await response.prepare(request)
        merged = bytearray()
        while not gone.is_set():
            frame = await client.next_frame()
            session.note_sent()
            if isinstance(frame, Ending):
                if merged:
                    await response.write(bytes(merged))
                await response.write_eof()
                return response
            if isinstance(frame, bytes) and sprite.switches.post_answer is PostAnswer.MERGED:
                merged += frame
            elif isinstance(frame, bytes):
                await response.write(frame)
    except ConnectionError:
        with contextlib.suppress(WorldLost):
            await sprite.signal(session, Signals.SIGKILL, KillReach.FOREGROUND)
    finally:
        session.detach(client)
    return drop_connection(request)


async def gather_post(client: Attachment, session: Session) -> dict[str, Any]:
    """Read a command's output to its end, for an answer in one piece."""
    streams = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    while not isinstance(frame := await client.next_frame(), Ending):
        session.note_sent()
        if isinstance(frame, bytes) and frame[0] in streams:
            streams[Stream(frame[0])] += frame[1:]
    texts = {stream.name.lower(): bytes(data).decode(errors="replace") for stream, data in streams.items()}
    return {**texts, "exit_code": session.process.exited.result()}

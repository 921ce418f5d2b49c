"""
The lab's own interface under `/_lab/`: what happened, what shall go wrong, what time it is.

Problem: it runs commands for whoever reaches it. Promise: the emulator listens on loopback only, and this door also
refuses requests that a web page could make (an `Origin`, or a `Host` that is not a name of loopback).
The interface is described in docs/emulator.md.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

from aiohttp import web
from pydantic import Field, ValidationError

from controller.lab.emulator.accounts import Organization, render_sprite, render_time
from controller.lab.emulator.answers import Refusal, respond_json
from controller.lab.emulator.context import Context, get_context
from controller.lab.emulator.durations import parse_duration
from controller.lab.emulator.exec_door import Start, build_environment, start_session
from controller.lab.emulator.faults import FaultRule
from controller.lab.emulator.inside_door import render_task
from controller.lab.emulator.lifecycle import Status
from controller.lab.emulator.limits import Limits
from controller.lab.emulator.mixing import draw_mix
from controller.lab.emulator.requestlog import Filter
from controller.lab.emulator.sessions import Session
from controller.lab.emulator.settings import HOME, Isolation
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.strict import Seconds, Strict
from controller.lab.emulator.switches import LIES, Switches, is_for_one_sprite, list_values
from controller.lab.emulator.world import Command

LOOPBACK_NAMES: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
LONGEST_WAIT: Final = 60.0
INPUTS_AT_ONCE: Final = 20_000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Model = TypeVar("Model", bound=Strict)


class NewSessions(Strict):
    """Sessions to start inside a sprite."""

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    tty: bool = True
    stdin: bool = True
    env: dict[str, str] | None = None
    dir: str | None = None
    rows: int = 24
    cols: int = 80
    max_run_after_disconnect: str | None = None
    count: Annotated[int, Field(ge=1, le=10_000)] = 1


class NewSprites(Strict):
    """Sprites to create at once: the names given, or so many of a prefix."""

    names: tuple[str, ...] = ()
    prefix: str = "sprite-"
    count: Annotated[int, Field(ge=0, le=10_000)] = 0
    sessions: NewSessions | None = None
    """Started in each of them."""


class NewState(Strict):
    """A state to be in at once, whatever would keep the sprite from it."""

    status: Status


class Seed(Strict):
    """Of a mix of lies."""

    seed: Annotated[int, Field(ge=0)]


class Advance(Strict):
    """A step of the clock, and whether it goes by itself from now on; None leaves that as it is."""

    advance_seconds: Seconds = 0
    stands: bool | None = None


async def _read(request: web.Request, model: type[Model]) -> Model:
    return model.model_validate_json(await request.read() or b"{}")


def is_from_loopback(request: web.Request) -> bool:
    """Tell whether a request is one that only a program on this machine makes."""
    host = request.host
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return "Origin" not in request.headers and name in LOOPBACK_NAMES


def guard(handler: Handler) -> Handler:
    """Let in what may enter, and answer wrong requests with the rule they broke."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if not is_from_loopback(request):
            return respond_json({"error": "the lab interface answers programs on this machine only"}, status=403)
        try:
            return await handler(request)
        except ValidationError as error:
            faults = [{"field": ".".join(map(str, fault["loc"])), "rule": fault["msg"]} for fault in error.errors()]
            return respond_json({"error": "invalid request", "faults": faults}, status=400)
        except ValueError as error:
            return respond_json({"error": str(error)}, status=400)

    return handle


def find_organization(request: web.Request) -> Organization:
    """Find the organization that the query names, or the first."""
    organizations = get_context(request).list_organizations()
    wanted = request.query.get("organization")
    for organization in organizations:
        if wanted in (None, organization.slug):
            return organization
    raise Refusal(404, {"error": f"no organization {wanted}"})


def find_sprite(request: web.Request) -> Sprite:
    """Find the sprite that the path names, in the organization that the query names or in any."""
    wanted = request.query.get("organization")
    for sprite in get_context(request).list_sprites():
        if sprite.name == request.match_info["name"] and wanted in (None, sprite.organization):
            return sprite
    raise Refusal(404, {"error": "sprite not found"})


def render_lab_session(session: Session) -> dict[str, Any]:
    """Write what only the lab may see of a session."""
    received = bytes(session.received)
    return {
        "id": session.id,
        "command": session.process.command,
        "created": render_time(session.created),
        "tty": session.tty,
        "rows": session.size.rows,
        "cols": session.size.cols,
        "clients": len(session.clients),
        "signals": session.signals,
        "received": received.decode(errors="replace"),
        "received_base64": base64.b64encode(received).decode(),
        "last_activity": render_time(session.last_activity),
    }


def render_lab_sprite(context: Context, sprite: Sprite) -> dict[str, Any]:
    """Write what only the lab may see of a sprite."""
    return {
        **render_sprite(sprite, context.settings.runtime_version),
        "true_status": sprite.status.value,
        "home": str(sprite.folder / "home"),
        "api_socket": str(sprite.socket_path),
        "wakes": asdict(sprite.wakes),
        "sessions": [render_lab_session(session) for session in sprite.sessions.values()],
        "tasks": [render_task(task) for task in sprite.tasks.live(sprite.task_now())],
    }


async def show(request: web.Request) -> web.StreamResponse:
    """GET /_lab/: how the emulator runs."""
    context = get_context(request)
    return respond_json(
        {
            "isolation": context.isolation.value,
            "sprites": len(context.list_sprites()),
            "sessions": sum(len(sprite.sessions) for sprite in context.list_sprites()),
            "organizations": [organization.slug for organization in context.list_organizations()],
            "switches": context.switches.model_dump(mode="json"),
            "random_seed": context.random_seed,
        }
    )


async def list_requests(request: web.Request) -> web.StreamResponse:
    """GET /_lab/requests: what was asked; with `at_least` wait until it is so many."""
    context, query = get_context(request), request.query
    wanted = Filter(
        route=query.get("route"),
        method=query.get("method"),
        sprite=query.get("sprite"),
        cause=query.get("cause"),
        door=query.get("door"),
        status=int(query["status"]) if "status" in query else None,
        since=int(query.get("since", 0)),
        after=float(query.get("after", 0)),
    )
    at_least = int(query.get("at_least", 0))
    within = min(LONGEST_WAIT, float(query.get("wait_seconds", 5)))
    found = await context.log.wait(wanted, at_least=at_least, within=timedelta(seconds=within))
    if query.get("count") == "true":
        return respond_json({"last": context.log.last, "count": len(found), "by_route": context.log.count(wanted)})
    return respond_json({"last": context.log.last, "requests": [entry.render() for entry in found]})


async def clear_requests(request: web.Request) -> web.StreamResponse:
    """DELETE /_lab/requests."""
    get_context(request).log.clear()
    return web.Response(status=204)


async def list_inputs(request: web.Request) -> web.StreamResponse:
    """GET /_lab/inputs: what was typed, with a number above `since`, so many at most."""
    inputs, query = get_context(request).inputs, request.query
    found = inputs.read(since=int(query.get("since", 0)), limit=int(query.get("limit", INPUTS_AT_ONCE)))
    return respond_json({"last": inputs.last, "inputs": [entry.render() for entry in found]})


async def forget_inputs(request: web.Request) -> web.StreamResponse:
    """DELETE /_lab/inputs: those with a number up to `until`, or all."""
    inputs = get_context(request).inputs
    inputs.forget(until=int(request.query.get("until", inputs.last)))
    return web.Response(status=204)


async def list_faults(request: web.Request) -> web.StreamResponse:
    """GET /_lab/faults."""
    return respond_json({"faults": [armed.render() for armed in get_context(request).faults]})


async def arm_fault(request: web.Request) -> web.StreamResponse:
    """POST /_lab/faults."""
    return respond_json(get_context(request).faults.arm(await _read(request, FaultRule)).render(), status=201)


async def disarm_faults(request: web.Request) -> web.StreamResponse:
    """DELETE /_lab/faults and /_lab/faults/{number}."""
    number = request.match_info.get("number")
    get_context(request).faults.disarm(None if number is None else int(number))
    return web.Response(status=204)


async def show_switches(request: web.Request) -> web.StreamResponse:
    """GET /_lab/switches."""
    return respond_json(get_context(request).switches.model_dump(mode="json"))


async def change_switches(request: web.Request) -> web.StreamResponse:
    """PATCH /_lab/switches: those named change, the others stay."""
    context = get_context(request)
    set_switches(context, context.switches.model_copy(update=await read_changes(request)))
    return await show_switches(request)


async def reset_switches(request: web.Request) -> web.StreamResponse:
    """DELETE /_lab/switches: for all as at the start; what is set for one sprite stays."""
    context = get_context(request)
    context.random_seed = context.settings.random_lies
    set_switches(context, context.settings.build_switches())
    return await show_switches(request)


async def read_changes(request: web.Request) -> dict[str, Any]:
    """Read the switches that a request names, as values."""
    changed = await _read(request, Switches)
    return {name: getattr(changed, name) for name in changed.model_fields_set}


def set_switches(context: Context, switches: Switches) -> None:
    """Behave differently from now on."""
    context.switches = switches
    for sprite in context.list_sprites():
        sprite.arm()


async def show_lies(request: web.Request) -> web.StreamResponse:
    """GET /_lab/lies: the table of all switches with what is told now, and the mix."""
    context = get_context(request)
    now = context.switches.model_dump(mode="json")
    fields = Switches.model_fields
    lies = [
        {
            "name": name,
            "points": lie.points,
            "says": lie.says,
            "values": list_values(fields[name]),
            "default": fields[name].default,
            "now": now[name],
            "scope": lie.scope.value,
            "mixed": lie.mixed,
            "never_mixed_because": lie.kept,
        }
        for name, lie in LIES.items()
    ]
    mix = None if context.random_seed is None else draw_mix(context.random_seed).render()
    return respond_json({"lies": lies, "random": mix})


async def tell_random_lies(request: web.Request) -> web.StreamResponse:
    """POST /_lab/random-lies: the mix of a seed over the switches of the start, in place of all that was set since."""
    context = get_context(request)
    mix = draw_mix((await _read(request, Seed)).seed)
    context.random_seed = mix.seed
    set_switches(context, mix.build_switches(context.settings.switches))
    return respond_json(mix.render())


async def show_sprite_switches(request: web.Request) -> web.StreamResponse:
    """GET /_lab/sprites/{name}/switches: all as they are for this sprite, and which are set for it alone."""
    sprite = find_sprite(request)
    own = sprite.switches.model_dump(mode="json", include=set(sprite.own_switches))
    return respond_json({"own": own, "all": sprite.switches.model_dump(mode="json")})


async def change_sprite_switches(request: web.Request) -> web.StreamResponse:
    """PATCH /_lab/sprites/{name}/switches: for this sprite alone."""
    changes = await read_changes(request)
    if common := sorted(name for name in changes if not is_for_one_sprite(name)):
        raise ValueError(f"{', '.join(common)}: about the whole API, so set it with PATCH /_lab/switches")
    find_sprite(request).set_own_switches(changes)
    return await show_sprite_switches(request)


async def reset_sprite_switches(request: web.Request) -> web.StreamResponse:
    """DELETE /_lab/sprites/{name}/switches: as for all others."""
    find_sprite(request).set_own_switches({})
    return await show_sprite_switches(request)


async def show_clock(request: web.Request) -> web.StreamResponse:
    """GET /_lab/clock."""
    clock = get_context(request).clock
    return respond_json(
        {"now": render_time(clock.now()), "ahead_seconds": clock.ahead.total_seconds(), "stands": clock.stands}
    )


async def advance_clock(request: web.Request) -> web.StreamResponse:
    """POST /_lab/clock: what has become due is done when this answers."""
    context, wanted = get_context(request), await _read(request, Advance)
    if wanted.stands is not None:
        (context.clock.stop if wanted.stands else context.clock.go)()
    context.clock.advance(timedelta(seconds=wanted.advance_seconds))
    await context.settle()
    return await show_clock(request)


async def list_sprites(request: web.Request) -> web.StreamResponse:
    """GET /_lab/sprites."""
    context = get_context(request)
    return respond_json({"sprites": [render_lab_sprite(context, sprite) for sprite in context.list_sprites()]})


async def create_sprites(request: web.Request) -> web.StreamResponse:
    """POST /_lab/sprites: many at once, with sessions."""
    context, organization = get_context(request), find_organization(request)
    wanted = await _read(request, NewSprites)
    names = [*wanted.names, *(f"{wanted.prefix}{number:04d}" for number in range(wanted.count))]
    created = []
    for name in names:
        sprite = await context.create_sprite(organization, name)
        sessions = [] if wanted.sessions is None else await start_sessions(context, sprite, wanted.sessions)
        created.append(
            {
                "name": name,
                "id": sprite.id,
                "sessions": [{"id": session.id, "created": render_time(session.created)} for session in sessions],
            }
        )
    return respond_json({"sprites": created}, status=201)


async def start_sessions(context: Context, sprite: Sprite, wanted: NewSessions) -> list[Session]:
    """Start sessions as a client would that leaves at once."""
    home = str(sprite.folder / "home") if context.isolation is Isolation.PLAIN else HOME
    pairs = [f"{name}={value}" for name, value in (wanted.env or {}).items()]
    text = wanted.max_run_after_disconnect
    start = Start(
        Command(
            argv=wanted.argv,
            path=wanted.argv[0],
            directory=wanted.dir or home,
            environment=build_environment(pairs, sprite, context.isolation, tty=wanted.tty),
            tty=wanted.tty,
            stdin=wanted.stdin,
            rows=wanted.rows,
            cols=wanted.cols,
        ),
        # Nobody was ever attached: without a word, it may run on.
        timedelta() if text is None else parse_duration(text),
    )
    sessions = []
    for _ in range(wanted.count):
        session = await start_session(sprite, start, "lab")
        session.start_countdown()
        sessions.append(session)
    return sessions


async def show_sprite(request: web.Request) -> web.StreamResponse:
    """GET /_lab/sprites/{name}."""
    return respond_json(render_lab_sprite(get_context(request), find_sprite(request)))


async def set_state(request: web.Request) -> web.StreamResponse:
    """PUT /_lab/sprites/{name}/state: at once."""
    sprite = find_sprite(request)
    match (await _read(request, NewState)).status:
        case Status.RUNNING:
            await sprite.wake("lab")
        case Status.WARM:
            await sprite.pause()
        case Status.COLD:
            await sprite.chill()
    return respond_json(render_lab_sprite(get_context(request), sprite))


async def create_sessions(request: web.Request) -> web.StreamResponse:
    """POST /_lab/sprites/{name}/sessions."""
    sessions = await start_sessions(get_context(request), find_sprite(request), await _read(request, NewSessions))
    return respond_json({"sessions": [render_lab_session(session) for session in sessions]}, status=201)


async def list_lab_sessions(request: web.Request) -> web.StreamResponse:
    """GET /_lab/sprites/{name}/sessions: with what they received."""
    sprite = find_sprite(request)
    return respond_json({"sessions": [render_lab_session(session) for session in sprite.sessions.values()]})


async def list_processes(request: web.Request) -> web.StreamResponse:
    """GET /_lab/sprites/{name}/processes: as the host sees them."""
    entries = await asyncio.to_thread(find_sprite(request).read_table)
    return respond_json({"processes": [asdict(entry) for entry in entries]})


async def list_tasks(request: web.Request) -> web.StreamResponse:
    """GET /_lab/sprites/{name}/tasks."""
    sprite = find_sprite(request)
    return respond_json({"tasks": [render_task(task) for task in sprite.tasks.live(sprite.task_now())]})


async def reset(request: web.Request) -> web.StreamResponse:
    """POST /_lab/reset: no sprites, no faults, an empty log, the switches of the start, a clock that goes."""
    context = get_context(request)
    for organization in context.list_organizations():
        organization.limits = Limits()
        for name in list(organization.sprites):
            await context.delete_sprite(organization, name)
    context.faults.disarm()
    context.log.clear()
    context.inputs.forget(until=context.inputs.last)
    context.switches = context.settings.build_switches()
    context.random_seed = context.settings.random_lies
    context.clock.go()
    return web.Response(status=204)


ROUTES: Final = (
    ("GET", "/_lab/", show),
    ("GET", "/_lab/requests", list_requests),
    ("DELETE", "/_lab/requests", clear_requests),
    ("GET", "/_lab/inputs", list_inputs),
    ("DELETE", "/_lab/inputs", forget_inputs),
    ("GET", "/_lab/faults", list_faults),
    ("POST", "/_lab/faults", arm_fault),
    ("DELETE", "/_lab/faults", disarm_faults),
    ("DELETE", "/_lab/faults/{number:[0-9]+}", disarm_faults),
    ("GET", "/_lab/switches", show_switches),
    ("PATCH", "/_lab/switches", change_switches),
    ("DELETE", "/_lab/switches", reset_switches),
    ("GET", "/_lab/lies", show_lies),
    ("POST", "/_lab/random-lies", tell_random_lies),
    ("GET", "/_lab/clock", show_clock),
    ("POST", "/_lab/clock", advance_clock),
    ("POST", "/_lab/reset", reset),
    ("GET", "/_lab/sprites", list_sprites),
    ("POST", "/_lab/sprites", create_sprites),
    ("GET", "/_lab/sprites/{name}", show_sprite),
    ("PUT", "/_lab/sprites/{name}/state", set_state),
    ("GET", "/_lab/sprites/{name}/switches", show_sprite_switches),
    ("PATCH", "/_lab/sprites/{name}/switches", change_sprite_switches),
    ("DELETE", "/_lab/sprites/{name}/switches", reset_sprite_switches),
    ("GET", "/_lab/sprites/{name}/sessions", list_lab_sessions),
    ("POST", "/_lab/sprites/{name}/sessions", create_sessions),
    ("GET", "/_lab/sprites/{name}/processes", list_processes),
    ("GET", "/_lab/sprites/{name}/tasks", list_tasks),
)

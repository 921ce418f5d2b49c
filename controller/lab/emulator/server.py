"""
The emulator as a whole: it opens its doors, owns its tasks and leaves nothing.

Promise: `start` returns when the API answers, `stop` when every process inside every sprite is gone; a kill -9 in
between ends them as well. Every request is logged, then authenticated, then meets its fault, then its handler.
"""

import asyncio
import contextlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from controller.clock import Clock, SystemClock
from controller.lab.emulator import exec_door, inside_door, lab_door, sprites_door
from controller.lab.emulator.accounts import Organization
from controller.lab.emulator.answers import (
    FAULT,
    NDJSON,
    Dropped,
    Refusal,
    build_request_headers,
    drop_connection,
    respond_json,
    run_with_fault,
)
from controller.lab.emulator.context import CONTEXT, ENTRY, ORGANIZATION, Context
from controller.lab.emulator.inputlog import InputLog
from controller.lab.emulator.inside_door import INSIDE_SPRITE, Doors
from controller.lab.emulator.labclock import LabClock
from controller.lab.emulator.limits import refuse
from controller.lab.emulator.mixing import Mix
from controller.lab.emulator.requestlog import CAUSE_HEADER, Entry, RequestLog
from controller.lab.emulator.settings import EmulatorSettings, Isolation
from controller.lab.emulator.sprites import Sprite, Surroundings
from controller.lab.emulator.world import NamespacesMissing, build_folder, render_losses, start_world
from controller.lab.processes import Janitor

LOOPBACK: Final = "127.0.0.1"
HEAD_BYTES: Final = 1 << 18
"""Of a request line: commands travel in the query."""
SHUTDOWN_SECONDS: Final = 1.0
SOCKET_PATH_BYTES: Final = 107
"""Source: unix(7)."""

STATIC_ROUTES: Final = {
    ("POST", "/v1/sprites"): "sprites.create",
    ("GET", "/v1/sprites/{name}"): "sprites.get",
    ("PUT", "/v1/sprites/{name}"): "sprites.update",
    ("DELETE", "/v1/sprites/{name}"): "sprites.delete",
    ("GET", "/v1/sprites/{name}/check"): "sprites.check",
    ("POST", "/v1/sprites/{name}/restart"): "sprites.restart",
    ("DELETE", "/v1/sprites/{name}/exec/{session}"): "exec.delete",
    ("GET", "/v1/sprites/{name}/exec/{session}"): "exec.attach",
    ("POST", "/v1/sprites/{name}/exec/{session}/kill"): "exec.kill",
}


def name_route(request: web.Request) -> str:
    """Name the route of a request, for log, faults and counts."""
    resource = request.match_info.route.resource
    template = "" if resource is None else resource.canonical
    method = "GET" if request.method == "HEAD" else request.method
    if template == "/v1/sprites" and method == "GET":
        return "sprites.watch" if NDJSON in request.headers.get("Accept", "") else "sprites.list"
    if template == "/v1/sprites/{name}/exec":
        return exec_door.name_exec_route(request)
    return STATIC_ROUTES.get((method, template), "unknown")


def find_token(request: web.Request) -> str | None:
    """Read the bearer token."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


class Emulator:
    """
    A Sprites API on loopback with real processes behind it.

    Use it as `async with Emulator(settings) as emulator`, or with `start` and `stop`, which may run in different tasks.
    """

    def __init__(self, settings: EmulatorSettings | None = None, *, clock: Clock | None = None) -> None:
        self._settings = settings or EmulatorSettings()
        self._wall = clock or SystemClock()
        self._tokens = self._settings.tokens or (f"lab/1/{secrets.token_hex(16)}/{secrets.token_hex(32)}",)
        self._url: str | None = None
        self._context: Context | None = None
        self._owner: asyncio.Task[None] | None = None
        self._started: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        """Where the API is, without a trailing slash."""
        if self._url is None:
            raise RuntimeError("The emulator is not started.")
        return self._url

    @property
    def token(self) -> str:
        """The first organization's token."""
        return self._tokens[0]

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens."""
        return self._tokens

    @property
    def mix(self) -> Mix | None:
        """The lies that were drawn at the start."""
        return self._settings.draw_mix()

    @property
    def isolation(self) -> Isolation:
        """What sessions are here."""
        return self.context.isolation

    @property
    def context(self) -> Context:
        """The state behind the doors, for tests in this process."""
        if self._context is None:
            raise RuntimeError("The emulator is not started.")
        return self._context

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def start(self) -> None:
        """
        Serve. A start that fails or is cancelled leaves nothing.

        Raises:
            NamespacesMissing: This system cannot isolate processes; the text names the ways out.
            OSError: The port is taken.
        """
        loop = asyncio.get_running_loop()
        self._started = loop.create_future()
        # The one task that owns all others: a task group must be left in the task that entered it, and `start` and
        # `stop` may be called from two. `stop` ends it and waits for it.
        self._owner = loop.create_task(self._live())
        try:
            await asyncio.wait([self._started, self._owner], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Whoever was not let in does not leave either.
            self._stop.set()
            await asyncio.wait([self._owner])
            self._owner.exception()
            raise
        if self._owner.done():
            await self._owner
        await self._started

    async def stop(self) -> None:
        """End every session and close every door; stopped is stopped."""
        self._stop.set()
        await self.wait()

    async def wait(self) -> None:
        """Wait until it has stopped; a bug inside is raised here."""
        if self._owner is not None:
            await asyncio.shield(self._owner)

    async def _live(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            folder = await self._open_folder(stack)
            isolation = await choose_isolation(self._settings.isolation, folder)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            context = self._build_context(folder, isolation, group)
            inside = web.Application(middlewares=[self._meet_inside])
            doors = Doors(inside)
            context.surroundings = build_surroundings(context, doors)
            inside[CONTEXT] = context
            for method, path, _, handler in inside_door.ROUTES:
                inside.router.add_route(method, path, handler)
            self._doors = doors
            await doors.start()
            stack.push_async_callback(doors.stop)
            await self._serve(context, stack)
            self._context = context
            if self._started is not None and not self._started.done():
                self._started.set_result(None)
            stack.push_async_callback(end_sprites, context)
            await self._stop.wait()

    async def _open_folder(self, stack: contextlib.AsyncExitStack) -> Path:
        folder = self._settings.folder
        if folder is not None:
            await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            return folder
        # Also after a kill -9, when nothing of ours runs any more.
        janitor = await stack.enter_async_context(Janitor())
        folder = janitor.make_folder("aterm-")
        if len(os.fsencode(folder)) + len("/01234567/sprite/api.sock") > SOCKET_PATH_BYTES:
            return janitor.make_folder("aterm-", within=Path("/tmp"))  # noqa: S108 - short everywhere
        return folder

    def _build_context(self, folder: Path, isolation: Isolation, group: asyncio.TaskGroup) -> Context:
        context = Context(
            settings=self._settings,
            switches=self._settings.build_switches(),
            random_seed=self._settings.random_lies,
            isolation=isolation,
            wall=self._wall,
            clock=LabClock(self._wall),
            folder=folder,
            log=RequestLog(self._settings.request_log_entries),
            inputs=InputLog(self._settings.input_log_entries),
            group=group,
        )
        for token in self._tokens:
            context.add_token(token)
        return context

    async def _serve(self, context: Context, stack: contextlib.AsyncExitStack) -> None:
        application = web.Application(middlewares=[self._meet], client_max_size=64 << 20)
        application[CONTEXT] = context
        application.on_response_prepare.append(add_headers)
        router = application.router
        router.add_post("/v1/sprites", sprites_door.create)
        router.add_get("/v1/sprites", sprites_door.list_all)
        router.add_get("/v1/sprites/{name}", sprites_door.show)
        router.add_put("/v1/sprites/{name}", sprites_door.update)
        router.add_delete("/v1/sprites/{name}", sprites_door.delete)
        router.add_get("/v1/sprites/{name}/check", sprites_door.check)
        router.add_post("/v1/sprites/{name}/restart", sprites_door.restart)
        router.add_get("/v1/sprites/{name}/exec", exec_door.exec_get)
        router.add_post("/v1/sprites/{name}/exec", exec_door.post)
        router.add_get("/v1/sprites/{name}/exec/{session}", exec_door.attach_by_path)
        router.add_delete("/v1/sprites/{name}/exec/{session}", exec_door.delete_session)
        router.add_post("/v1/sprites/{name}/exec/{session}/kill", exec_door.kill)
        for method, path, handler in lab_door.ROUTES:
            router.add_route(method, path, lab_door.guard(handler))
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=SHUTDOWN_SECONDS,
            max_line_size=HEAD_BYTES,
            max_field_size=HEAD_BYTES,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, LOOPBACK, self._settings.port)
        await site.start()
        port = runner.addresses[0][1]
        self._url = f"http://{LOOPBACK}:{port}"

    @web.middleware
    async def _meet(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.startswith("/_lab"):
            return await answer(request, handler)
        context = request.app[CONTEXT]
        token = find_token(request)
        organization = None if token is None else context.organizations.get(token)
        request[ENTRY] = context.log.enter(
            time=self._wall.now().timestamp(),
            method=request.method,
            path=request.rel_url.raw_path,
            query=request.rel_url.raw_query_string,
            route=name_route(request),
            door="api",
            sprite=request.match_info.get("name"),
            organization=None if organization is None else organization.slug,
            cause=request.headers.get(CAUSE_HEADER),
            user_agent=request.headers.get("User-Agent"),
        )
        if organization is None:
            # Before routing: unknown paths too answer 401.
            response: web.StreamResponse = respond_json({"error": "authentication failed"}, status=401)
        else:
            request[ORGANIZATION] = organization
            try:
                response = await self._face_limits(request, handler, organization)
            except ConnectionError:
                # The client did not wait for the end of it.
                response = drop_connection(request)
        self._finish(request, response)
        return response

    async def _face_limits(
        self, request: web.Request, handler: Handler, organization: Organization
    ) -> web.StreamResponse:
        context = request.app[CONTEXT]
        switches, now = context.switches, self._wall.now()
        exceeded = organization.limits.take_request(switches, now)
        if exceeded is not None:
            return refuse(exceeded, switches, now).respond()
        if request.method == "GET" and not exec_door.is_upgrade(request):
            context.reads += 1
            if switches.dropped_read_every > 0 and context.reads % switches.dropped_read_every == 0:
                return drop_connection(request)
        return await self._face_fault(request, handler)

    @web.middleware
    async def _meet_inside(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        context = request.app[CONTEXT]
        sprite = self._doors.find_sprite(request)
        if sprite is None:
            return respond_json({"error": "sprite not found"}, status=404)
        resource = request.match_info.route.resource
        template = "" if resource is None else resource.canonical
        names = {(method, path): name for method, path, name, _ in inside_door.ROUTES}
        request[INSIDE_SPRITE] = sprite
        request[ENTRY] = context.log.enter(
            time=self._wall.now().timestamp(),
            method=request.method,
            path=request.rel_url.raw_path,
            query=request.rel_url.raw_query_string,
            route=names.get((request.method, template), "unknown"),
            door="inside",
            sprite=sprite.name,
            organization=sprite.organization,
            cause=request.headers.get(CAUSE_HEADER),
            user_agent=request.headers.get("User-Agent"),
        )
        response = await self._face_fault(request, handler)
        self._finish(request, response)
        return response

    async def _face_fault(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        context, entry = request.app[CONTEXT], request[ENTRY]
        fault = context.faults.hit(
            route=entry.route,
            method=request.method,
            sprite=entry.sprite,
            session=request.match_info.get("session") or request.query.get("id"),
            cause=entry.cause,
            organization=entry.organization,
        )
        if fault is None:
            return await answer(request, handler)
        request[FAULT] = fault
        return await run_with_fault(request, lambda request: answer(request, handler), fault)

    def _finish(self, request: web.Request, response: web.StreamResponse) -> None:
        entry = request[ENTRY]
        status = entry.status if isinstance(response, Dropped) else response.status
        request.app[CONTEXT].log.finish(entry, status, self._wall.now().timestamp())


async def answer(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Run a handler and give its refusals their form."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return refusal.respond()
    except web.HTTPException as error:
        return web.Response(status=error.status, text="404 page not found" if error.status == 404 else error.text)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Put the headers of the edge on every answer, and note its status: a stream is answered long before its end."""
    entry = request.get(ENTRY)
    if isinstance(entry, Entry) and not isinstance(response, Dropped):
        entry.status = response.status
    organization = request.get(ORGANIZATION)
    limits = {}
    if isinstance(organization, Organization):
        limits = organization.limits.render_headers(request.app[CONTEXT].switches)
    for name, value in {**build_request_headers(), **limits}.items():
        response.headers.setdefault(name, value)


def build_surroundings(context: Context, doors: Doors) -> Surroundings:
    """Tell sprites what they share."""

    async def open_door(sprite: Sprite) -> None:
        await doors.open(sprite)

    async def close_door(sprite: Sprite) -> None:
        await doors.close(sprite)

    return Surroundings(
        clock=context.clock,
        isolation=context.isolation,
        switches=lambda: context.switches,
        folder=context.folder,
        run=context.run,
        open_door=open_door,
        close_door=close_door,
        on_change=context.tell_watchers,
    )


async def end_sprites(context: Context) -> None:
    """End everything inside all sprites, and every wait."""
    await asyncio.gather(*(sprite.delete() for sprite in context.list_sprites()))
    for queue in context.watchers:
        queue.put_nowait(None)
    context.clock.close()
    for task in set(context.working):
        task.cancel()


async def choose_isolation(wanted: Isolation, folder: Path) -> Isolation:
    """
    Find out by trying what this system gives us.

    Raises:
        NamespacesMissing: Not what was wanted.
    """
    match wanted:
        case Isolation.PLAIN | Isolation.RECORDS:
            return wanted
        case Isolation.AUTO:
            candidates = [Isolation.ROOT, Isolation.USER] if os.geteuid() == 0 else [Isolation.USER]
        case _:
            candidates = [wanted]
    reason = ""
    for candidate in candidates:
        trial = folder / "trial"
        try:
            await asyncio.to_thread(build_folder, trial)
            world = await start_world(trial, candidate, lambda: None)
            await world.end()
        except NamespacesMissing as missing:
            reason = str(missing)
        else:
            return candidate
        finally:
            await asyncio.to_thread(shutil.rmtree, trial, ignore_errors=True)
    raise NamespacesMissing(render_losses(reason))

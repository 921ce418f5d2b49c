"""
The API inside a sprite, on its own unix socket: the tasks, and who it is.

Source: sprites-api.md 7.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import orjson
from aiohttp import web

from controller.lab.emulator.accounts import render_time
from controller.lab.emulator.answers import respond_json
from controller.lab.emulator.context import get_context
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.tasks import Task, TaskRefused, parse_expire, parse_name

INSIDE_SPRITE: Final = web.RequestKey("inside_sprite", Sprite)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def render_task(task: Task) -> dict[str, Any]:
    """Write a task."""
    return {"name": task.name, "started_at": render_time(task.started_at), "expires_at": render_time(task.expires_at)}


def handles_refusals(handler: Handler) -> Handler:
    """Answer what the book of tasks refuses."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except TaskRefused as refused:
            return respond_json({"error": refused.text}, status=refused.status)

    return handle


async def _read(request: web.Request) -> dict[str, Any]:
    try:
        body = orjson.loads(await request.read() or b"{}")
    except orjson.JSONDecodeError as error:
        raise TaskRefused(400, "invalid JSON body") from error
    if not isinstance(body, dict):
        raise TaskRefused(400, "the body must be an object")
    return body


@handles_refusals
async def list_tasks(request: web.Request) -> web.StreamResponse:
    """GET /v1/tasks."""
    sprite = request[INSIDE_SPRITE]
    return respond_json({"tasks": [render_task(task) for task in sprite.tasks.live(sprite.task_now())]})


@handles_refusals
async def show_task(request: web.Request) -> web.StreamResponse:
    """GET /v1/tasks/{task}."""
    sprite = request[INSIDE_SPRITE]
    return respond_json(render_task(sprite.tasks.get(request.match_info["task"], sprite.task_now())))


@handles_refusals
async def create_task(request: web.Request) -> web.StreamResponse:
    """POST /v1/tasks."""
    sprite, body = request[INSIDE_SPRITE], await _read(request)
    switches = sprite.switches
    name = parse_name(body.get("name"), names=switches.task_names)
    expire = parse_expire(body.get("expire"), limits=switches.task_expire)
    task = sprite.tasks.create(name, expire, sprite.task_now())
    sprite.arm()
    return respond_json(render_task(task), status=201)


@handles_refusals
async def put_task(request: web.Request) -> web.StreamResponse:
    """PUT /v1/tasks/{task} and PUT /v1/tasks."""
    sprite, body = request[INSIDE_SPRITE], await _read(request)
    switches = sprite.switches
    name = parse_name(request.match_info.get("task", body.get("name")), names=switches.task_names)
    expire = parse_expire(body.get("expire"), limits=switches.task_expire)
    task = sprite.tasks.put(name, expire, sprite.task_now(), hour=switches.task_hour)
    sprite.arm()
    return respond_json(render_task(task))


@handles_refusals
async def delete_task(request: web.Request) -> web.StreamResponse:
    """DELETE /v1/tasks/{task}."""
    sprite = request[INSIDE_SPRITE]
    sprite.tasks.remove(request.match_info["task"], sprite.task_now())
    sprite.arm()
    return web.Response(status=204)


async def show_info(request: web.Request) -> web.StreamResponse:
    """GET /info."""
    sprite = request[INSIDE_SPRITE]
    return respond_json(
        {
            "id": sprite.id,
            "name": sprite.name,
            "url": f"https://{sprite.name}-lab.sprites.invalid",
            "version": get_context(request).settings.runtime_version,
            "org": sprite.organization,
        }
    )


ROUTES: Final = (
    ("GET", "/v1/tasks", "tasks.list", list_tasks),
    ("POST", "/v1/tasks", "tasks.create", create_task),
    ("PUT", "/v1/tasks", "tasks.put", put_task),
    ("GET", "/v1/tasks/{task}", "tasks.get", show_task),
    ("PUT", "/v1/tasks/{task}", "tasks.put", put_task),
    ("DELETE", "/v1/tasks/{task}", "tasks.delete", delete_task),
    ("GET", "/info", "info", show_info),
)


class Doors:
    """The open sockets of all sprites, served by one application."""

    def __init__(self, application: web.Application) -> None:
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        self._sites: dict[str, tuple[web.UnixSite, Sprite]] = {}

    async def start(self) -> None:
        """Be ready to open doors."""
        await self._runner.setup()

    async def stop(self) -> None:
        """Close all."""
        await self._runner.cleanup()

    async def open(self, sprite: Sprite) -> None:
        """Serve a sprite's socket; open is open."""
        path = str(sprite.socket_path)
        if path in self._sites:
            return
        site = web.UnixSite(self._runner, path)
        await site.start()
        await asyncio.to_thread(sprite.socket_path.chmod, 0o666)
        self._sites[path] = (site, sprite)

    async def close(self, sprite: Sprite) -> None:
        """Serve it no more; closed is closed."""
        site, _ = self._sites.pop(str(sprite.socket_path), (None, None))
        if site is not None:
            await site.stop()

    def find_sprite(self, request: web.Request) -> Sprite | None:
        """Tell through whose door a request came."""
        name = None if request.transport is None else request.transport.get_extra_info("sockname")
        _, sprite = self._sites.get(name or "", (None, None))
        return sprite

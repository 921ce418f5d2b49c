"""
The routes that create, show, list, change and delete sprites. None of them wakes one but by switch.

Source: sprites-api.md 2.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web

from controller.lab.emulator.accounts import (
    Organization,
    list_page,
    render_counts,
    render_page,
    render_sprite,
    render_time,
)
from controller.lab.emulator.answers import FAULT, NDJSON, Line, Refusal, get_fault, respond_json, send_lines
from controller.lab.emulator.context import ORGANIZATION, Context, get_cause, get_context, get_sprite, wake
from controller.lab.emulator.faults import GarbageFault
from controller.lab.emulator.limits import refuse
from controller.lab.emulator.sprites import Sprite
from controller.lab.emulator.switches import PageOver, Restart, Switches, Watch


async def read_body(request: web.Request) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        body = orjson.loads(await request.read() or b"{}")
    except orjson.JSONDecodeError as error:
        raise Refusal(400, {"errors": ["invalid JSON body"]}) from error
    if not isinstance(body, dict):
        raise Refusal(400, {"errors": ["the body must be an object"]})
    return body


def apply_settings(sprite: Sprite, body: dict[str, Any]) -> None:
    """Take over what a create or an update sets; what is absent stays."""
    settings = body.get("url_settings")
    if settings is not None:
        if not isinstance(settings, dict) or settings.get("auth", "sprite") not in ("sprite", "public"):
            raise Refusal(400, {"errors": ["url_settings.auth must be one of: sprite, public"]})
        sprite.url_settings = {**sprite.url_settings, **settings}
    labels = body.get("labels")
    if labels is not None:
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise Refusal(400, {"errors": ["labels must be a list of strings"]})
        sprite.labels = list(labels)
    if body.get("clear_labels") is True:
        sprite.labels = []


def parse_page_size(text: str, switches: Switches) -> int:
    """Read how many are wanted; official clients ask for 100 and get what there is."""
    ceiling = switches.page_ceiling
    over = text.isdecimal() and int(text) > ceiling and switches.page_over is PageOver.REFUSED
    if not text.isdecimal() or int(text) < 1 or over:
        raise ValueError(f"max_results must be between 1 and {ceiling}")
    return min(int(text), ceiling)


async def create(request: web.Request) -> web.StreamResponse:
    """POST /v1/sprites."""
    context, body = get_context(request), await read_body(request)
    name = body.get("name")
    if not isinstance(name, str):
        raise Refusal(400, {"errors": ["name is required"]})
    exceeded = request[ORGANIZATION].limits.take_creation(context.switches, context.wall.now())
    if exceeded is not None:
        raise refuse(exceeded, context.switches, context.wall.now())
    sprite = await context.create_sprite(request[ORGANIZATION], name)
    sprite.config = {field: body[field] for field in ("config", "environment") if field in body}
    try:
        apply_settings(sprite, body)
    except Refusal:
        await context.delete_sprite(request[ORGANIZATION], name)
        raise
    return respond_json(render_sprite(sprite, context.settings.runtime_version), status=201)


async def list_all(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites, as a page or as a live watch."""
    context, organization = get_context(request), request[ORGANIZATION]
    prefix = request.query.get("prefix", "")
    switches = context.switches
    try:
        size = parse_page_size(request.query.get("max_results", str(switches.page_ceiling)), switches)
        if NDJSON in request.headers.get("Accept", "") and switches.watch is Watch.STREAM:
            if switches.watch_noise and get_fault(request) is None:
                request[FAULT] = GarbageFault(kind="garbage")
            return await send_lines(request, watch(context, organization, prefix, size), headers={}, endless=True)
        page = list_page(organization, prefix=prefix, size=size, token=request.query.get("continuation_token") or None)
    except ValueError as error:
        raise Refusal(400, {"errors": [str(error)]}) from error
    slim = request.query.get("bulk_load") == "true"
    return respond_json(render_page(page, organization, context.settings.runtime_version, switches, slim=slim))


async def watch(context: Context, organization: Organization, prefix: str, size: int) -> AsyncIterator[Line]:
    """Tell of each change, and that the connection lives; without end, unless a switch says when."""
    queue: asyncio.Queue[Sprite | None] = asyncio.Queue()
    context.watchers.add(queue)
    ends_after = context.switches.watch_end_seconds
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + ends_after if ends_after > 0 else math.inf
    told: set[str] = set()
    try:
        if context.switches.watch_snapshot:
            for known in list_page(organization, prefix=prefix, size=size, token=None).sprites:
                queue.put_nowait(known)
        while loop.time() < ends_at:
            beat = context.switches.heartbeat_seconds or math.inf
            patience = min(beat, ends_at - loop.time())
            try:
                async with asyncio.timeout(None if patience == math.inf else patience):
                    sprite = await queue.get()
            except TimeoutError:
                if loop.time() < ends_at:
                    yield {"type": "heartbeat", "timestamp": render_time(context.clock.now())}
                continue
            if sprite is None:
                return
            if sprite.organization != organization.slug or not sprite.name.startswith(prefix):
                continue
            if not sprite.deleted:
                yield render_change(sprite, organization, context)
            elif context.switches.watch_deletes and sprite.id not in told:
                told.add(sprite.id)
                yield {"type": "deleted", "name": sprite.name, "timestamp": render_time(context.clock.now())}
    finally:
        context.watchers.discard(queue)


def render_change(sprite: Sprite, organization: Organization, context: Context) -> dict[str, Any]:
    """Write a state update as the live watch does."""
    return {
        "name": sprite.name,
        "status": sprite.status.value,
        "running_version": context.settings.runtime_version,
        "last_running_at": render_time(sprite.last_running_at),
        "last_warming_at": render_time(sprite.last_warming_at),
        "timestamp": render_time(context.clock.now()),
        "org": render_counts(organization),
    }


async def read_metadata(request: web.Request) -> Sprite:
    """Find the sprite for a call about its metadata, which by switch wakes it or counts as activity."""
    sprite = get_sprite(request)
    if sprite.switches.metadata_wakes:
        await wake(request, sprite)
    sprite.note_read()
    return sprite


async def show(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites/{name}."""
    return respond_json(render_sprite(await read_metadata(request), get_context(request).settings.runtime_version))


async def check(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites/{name}/check. Assumed: it wakes nothing (question 14)."""
    sprite = get_sprite(request)
    if sprite.switches.check_wakes:
        await wake(request, sprite)
    sprite.note_read()
    return respond_json(
        {
            "sprite_name": sprite.name,
            "sprite_id": sprite.id,
            "status": sprite.shown_status.value,
            "checked_at": render_time(get_context(request).clock.now()),
        }
    )


async def update(request: web.Request) -> web.StreamResponse:
    """PUT /v1/sprites/{name}."""
    sprite, context = await read_metadata(request), get_context(request)
    apply_settings(sprite, await read_body(request))
    sprite.updated_at = context.clock.now()
    return respond_json(render_sprite(sprite, context.settings.runtime_version))


async def restart(request: web.Request) -> web.StreamResponse:
    """POST /v1/sprites/{name}/restart, where there is one."""
    sprite = get_sprite(request)
    wanted = sprite.switches.restart
    if wanted is Restart.ABSENT:
        raise web.HTTPNotFound
    await sprite.restart(get_cause(request), keeps=wanted is Restart.KEEPS)
    return respond_json({"sprite_name": sprite.name, "machine_id": sprite.folder.name, "message": "restarted"})


async def delete(request: web.Request) -> web.StreamResponse:
    """DELETE /v1/sprites/{name}."""
    sprite = get_sprite(request)
    await get_context(request).delete_sprite(request[ORGANIZATION], sprite.name)
    return web.Response(status=204)

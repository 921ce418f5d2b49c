"""
The routes that create, show, list, change and delete sprites. None of them wakes one.

Source: sprites-api.md 2.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web

from controller.lab.emulator.accounts import PAGE, list_page, render_counts, render_slim, render_sprite, render_time
from controller.lab.emulator.answers import NDJSON, Line, Refusal, respond_json, send_lines
from controller.lab.emulator.context import ORGANIZATION, Context, get_context, get_sprite
from controller.lab.emulator.sprites import Sprite


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


def parse_page_size(text: str) -> int:
    """Read how many are wanted; official clients ask for 100 and get what there is."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("max_results must be between 1 and 50")
    return min(int(text), PAGE)


async def create(request: web.Request) -> web.StreamResponse:
    """POST /v1/sprites."""
    context, body = get_context(request), await read_body(request)
    name = body.get("name")
    if not isinstance(name, str):
        raise Refusal(400, {"errors": ["name is required"]})
    sprite = await context.create_sprite(request[ORGANIZATION], name)
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
    if NDJSON in request.headers.get("Accept", ""):
        return await send_lines(request, watch(context, organization.slug, prefix), headers={}, endless=True)
    try:
        size = parse_page_size(request.query.get("max_results", str(PAGE)))
        page = list_page(organization, prefix=prefix, size=size, token=request.query.get("continuation_token") or None)
    except ValueError as error:
        raise Refusal(400, {"errors": [str(error)]}) from error
    slim = request.query.get("bulk_load") == "true"
    counts = render_counts(organization)
    version = context.settings.runtime_version
    return respond_json(
        {
            "sprites": [render_slim(sprite) if slim else render_sprite(sprite, version) for sprite in page.sprites],
            "has_more": page.next_token is not None,
            "next_continuation_token": page.next_token,
            "org": counts,
            **counts,
        }
    )


async def watch(context: Context, slug: str, prefix: str) -> AsyncIterator[Line]:
    """Tell of each change, and that the connection lives; without end."""
    queue: asyncio.Queue[Sprite | None] = asyncio.Queue()
    context.watchers.add(queue)
    try:
        if context.switches.watch_snapshot:
            for known in context.list_sprites():
                queue.put_nowait(known)
        while True:
            try:
                async with asyncio.timeout(context.switches.heartbeat_seconds or None):
                    sprite = await queue.get()
            except TimeoutError:
                yield {"type": "heartbeat", "timestamp": render_time(context.clock.now())}
                continue
            if sprite is None:
                return
            if sprite.organization == slug and sprite.name.startswith(prefix) and not sprite.deleted:
                yield render_change(sprite, context)
    finally:
        context.watchers.discard(queue)


def render_change(sprite: Sprite, context: Context) -> dict[str, Any]:
    """Write a state update as the live watch does."""
    return {
        "name": sprite.name,
        "status": sprite.status.value,
        "running_version": context.settings.runtime_version,
        "last_running_at": render_time(sprite.last_running_at),
        "last_warming_at": render_time(sprite.last_warming_at),
        "timestamp": render_time(context.clock.now()),
    }


async def show(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites/{name}."""
    return respond_json(render_sprite(get_sprite(request), get_context(request).settings.runtime_version))


async def check(request: web.Request) -> web.StreamResponse:
    """GET /v1/sprites/{name}/check. Assumed: it wakes nothing (question 14)."""
    sprite = get_sprite(request)
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
    sprite, context = get_sprite(request), get_context(request)
    apply_settings(sprite, await read_body(request))
    sprite.updated_at = context.clock.now()
    return respond_json(render_sprite(sprite, context.settings.runtime_version))


async def delete(request: web.Request) -> web.StreamResponse:
    """DELETE /v1/sprites/{name}."""
    sprite = get_sprite(request)
    await get_context(request).delete_sprite(request[ORGANIZATION], sprite.name)
    return web.Response(status=204)

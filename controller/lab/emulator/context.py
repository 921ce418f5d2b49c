"""
What all doors of the emulator share: who exists, how it behaves, what was asked, what goes wrong next.

Promise: the doors (`sprites_door`, `exec_door`, `inside_door`, `lab_door`) know this and not each other.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from controller.clock import Clock
from controller.lab.emulator.accounts import NAMES, Organization, parse_slug
from controller.lab.emulator.answers import Refusal
from controller.lab.emulator.faults import FaultBook
from controller.lab.emulator.inputlog import InputLog
from controller.lab.emulator.labclock import LabClock
from controller.lab.emulator.lifecycle import Status
from controller.lab.emulator.limits import judge_count, refuse
from controller.lab.emulator.requestlog import Entry, RequestLog
from controller.lab.emulator.settings import EmulatorSettings, Isolation
from controller.lab.emulator.sprites import Sprite, Surroundings
from controller.lab.emulator.switches import CreatedStatus, Switches, WakeError
from controller.lab.emulator.world import WorldLost


@dataclass
class Context:
    """The emulator's state."""

    settings: EmulatorSettings
    switches: Switches
    isolation: Isolation
    wall: Clock
    clock: LabClock
    folder: Path
    log: RequestLog
    inputs: InputLog
    group: asyncio.TaskGroup
    surroundings: Surroundings | None = None
    """Set once, before the first sprite: it leads back here."""
    faults: FaultBook = field(default_factory=FaultBook)
    organizations: dict[str, Organization] = field(default_factory=dict)
    """By token."""
    random_seed: int | None = None
    """Of the mix that the switches were last drawn by; None: they were not."""
    reads: int = 0
    """How many GET requests came, for the switch that loses some of them."""
    watchers: set["asyncio.Queue[Sprite | None]"] = field(default_factory=set)
    """The live watches; None is their end. Unbounded queues: a reader that stalls is told of sprites, not of output."""
    working: set["asyncio.Task[None]"] = field(default_factory=set)

    def add_token(self, token: str) -> Organization:
        """Accept a token, for the organization that its first part names."""
        slug = parse_slug(token)
        known = {organization.slug: organization for organization in self.organizations.values()}
        return self.organizations.setdefault(token, known.get(slug) or Organization(slug))

    def list_organizations(self) -> list[Organization]:
        """List the organizations, each once."""
        return list({organization.slug: organization for organization in self.organizations.values()}.values())

    def list_sprites(self) -> list[Sprite]:
        """List all sprites of all organizations."""
        return [sprite for organization in self.list_organizations() for sprite in organization.sprites.values()]

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that ends with the emulator."""
        task = self.group.create_task(work)
        self.working.add(task)
        task.add_done_callback(self.working.discard)

    async def settle(self) -> None:
        """Wait until what was started has been done."""
        while self.working:
            await asyncio.wait(set(self.working))

    async def create_sprite(self, organization: Organization, name: str) -> Sprite:
        """Make a sprite in the state that new ones have."""
        if not NAMES[self.switches.sprite_names].fullmatch(name):
            raise Refusal(400, {"errors": ["invalid sprite name format"]})
        if name in organization.sprites:
            raise Refusal(self.switches.duplicate_status, {"error": "sprite already exists"})
        if self.surroundings is None:
            raise RuntimeError("The emulator is not started.")
        sprite = Sprite(name, organization.slug, self.surroundings)
        organization.sprites[name] = sprite
        if self.switches.created_status is not CreatedStatus.COLD:
            await sprite.wake("create")
        if self.switches.created_status is CreatedStatus.WARM:
            await sprite.pause()
        self.tell_watchers(sprite)
        return sprite

    async def delete_sprite(self, organization: Organization, name: str) -> None:
        """End a sprite."""
        sprite = organization.sprites.pop(name)
        await sprite.delete()
        self.tell_watchers(sprite)

    def tell_watchers(self, sprite: Sprite) -> None:
        """Tell the live watches of a change."""
        for queue in self.watchers:
            queue.put_nowait(sprite)


CONTEXT: Final = web.AppKey("context", Context)
ORGANIZATION: Final = web.RequestKey("organization", Organization)
ENTRY: Final = web.RequestKey("entry", Entry)


def get_context(request: web.Request) -> Context:
    """Find the emulator that serves a request."""
    return request.app[CONTEXT]


def get_cause(request: web.Request) -> str:
    """Name what woke a sprite: the route, for the lab's count of wakes."""
    entry = request.get(ENTRY)
    return entry.route if isinstance(entry, Entry) else "lab"


def get_sprite(request: web.Request) -> Sprite:
    """Find the sprite a path names, in the caller's organization."""
    sprite = request[ORGANIZATION].sprites.get(request.match_info["name"])
    if sprite is None:
        status = get_context(request).switches.missing_sprite_status
        raise Refusal(status, {"error": "sprite not found" if status == 404 else "internal server error"})
    return sprite


async def wake(request: web.Request, sprite: Sprite) -> None:
    """
    Have the sprite running, for a request that needs it.

    By switch a paused sprite lets its first callers hang, refuses them, or may not run at all.
    """
    context, switches = get_context(request), sprite.switches
    if sprite.status is not Status.RUNNING:
        exceeded = judge_count(
            code="concurrent_sprite_limit_exceeded",
            what="running sprites",
            limit=context.switches.running_limit,
            current=request[ORGANIZATION].count_running(),
        )
        if exceeded is not None:
            raise refuse(exceeded, context.switches, context.wall.now())
        await context.clock.sleep(timedelta(seconds=switches.paused_hang_seconds))
    try:
        await sprite.wake(get_cause(request))
    except WorldLost as error:
        raise Refusal(502, {"error": "sprite is not reachable"}) from error


async def wake_or_fail(request: web.Request, sprite: Sprite) -> None:
    """Have the sprite running, for a request that the edge may answer with an error while it wakes."""
    paused = sprite.status is not Status.RUNNING
    await wake(request, sprite)
    if paused and sprite.switches.wake_error is not WakeError.NONE:
        raise Refusal(int(sprite.switches.wake_error.value), "upstream connect error")

"""
A gateway in a process of its own: the real doors and the real streams, around a fence of one line.

Whoever comes to type holds the terminal; whoever takes over replaces them. The API server behind the doors is a double,
the Sprites API is the emulator. Started as `python -m tests.client.stand_in`; facts come as the first line of JSON, the
port goes out as the first line, then the mode of each attach and what became of each fresh token; each further line
that comes in ends the holder's socket with that ending.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from controller.api.session import Identity, SpriteState
from controller.clock import SystemClock
from controller.gateway.metrics import build_gateway_metrics
from controller.gateway.server import Gateway
from controller.gateway.settings import GatewaySettings, TimeSettings, TlsFiles
from controller.gateway.standing import Presence, Terminal
from controller.gateway.stream import (
    Client,
    Dialect,
    Hub,
    Recorded,
    Resize,
    Role,
    SpriteWay,
    StreamSettings,
    Word,
    build_socket,
)
from controller.gateway.terminals import AttachRequest, EndCause, TokenWanted
from controller.gateway.terminals import Ending as DoorEnding
from controller.gateway.wishes import Mode
from controller.plan.fence_closing import Ending
from controller.sprites.client import SpritesClient
from controller.sprites.exec_frames import Framing
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.gateway.doubles import NAME, FakeKube, build_object

_ENDINGS = {
    EndCause.DRAIN: Ending.RESTARTING,
    EndCause.EXPIRED: Ending.EXPIRED,
    EndCause.WITHDRAWN: Ending.FORBIDDEN,
}


class StreamTerminals:
    """One terminal, carried by one hub; the last who came to type holds it."""

    def __init__(self, way: SpriteWay, recorded: Recorded, settings: StreamSettings) -> None:
        self.holder: Client | None = None
        self.settings = settings
        self.hub = Hub(
            recorded,
            way,
            may_type=lambda client: client is self.holder,
            on_news=lambda _: None,
            clock=SystemClock(),
            settings=settings,
        )

    def find_unready(self) -> str | None:
        return None

    def look(self, terminal: Terminal) -> Presence:
        return Presence(held=self.holder is not None and self.holder.ending is None, streaming=True)

    async def find_state(self, terminal: Terminal) -> SpriteState | None:
        return SpriteState.RUNNING

    def build_socket(self, protocols: Sequence[str]) -> web.WebSocketResponse:
        return build_socket(self.settings, protocols=protocols)

    async def note_activity(self, terminal: Terminal) -> None:
        pass

    async def attach(self, request: AttachRequest, socket: web.WebSocketResponse) -> None:
        _say(request.mode.value)
        tokens: asyncio.Queue[str] = asyncio.Queue()
        size = Resize(request.columns, request.rows) if request.columns and request.rows else None
        client = Client(
            socket,
            request.abort,
            socket_id=str(id(socket)),
            role=Role.VIEW if request.mode is Mode.VIEW else Role.TYPE,
            dialect=Dialect.OURS,
            settings=self.settings,
            size=size,
            on_auth=tokens.put_nowait,
        )
        async with asyncio.TaskGroup() as group:
            helpers = [
                group.create_task(self._watch(request, client)),
                group.create_task(self._renew(request, tokens)),
            ]
            if client.role is Role.TYPE:
                helpers.append(group.create_task(self._seat(request, client)))
            await self.hub.join(client)
            for helper in helpers:
                helper.cancel()
        if self.holder is client:
            self.holder = None

    async def _seat(self, request: AttachRequest, client: Client) -> None:
        former, self.holder = self.holder, client
        if former is not None:
            self.hub.stop_input(former)
            former.tell(Word.TAKEOVER, f"{request.person.name} takes this terminal over.")
            former.end(Ending.REPLACED)
            await self.hub.drain(former)
        self.hub.let_type(client, Tenure(1))

    async def _watch(self, request: AttachRequest, client: Client) -> None:
        while True:
            match await request.leave.next_notice():
                case TokenWanted():
                    client.tell(Word.AUTHENTICATE, "Send a fresh token.")
                case DoorEnding(cause=cause):
                    client.end(_ENDINGS[cause])
                    return

    async def _renew(self, request: AttachRequest, tokens: asyncio.Queue[str]) -> None:
        while True:
            _say((await request.leave.renew(await tokens.get())).value)


async def serve(facts: dict[str, Any]) -> None:
    settings = StreamSettings()
    async with SpritesClient(SpritesSettings(base_url=facts["sprites"]), SystemClock(), lambda _: None) as sprites:
        session = facts["session"]
        identity = Identity("sprite-1", session["id"], datetime.fromisoformat(session["created"]))
        way = SpriteWay(sprites, facts["sprite"], lambda: Token.read(facts["token"]), SystemClock())
        framing = Framing.RAW if facts.get("tty", True) else Framing.NUMBERED
        terminals = StreamTerminals(way, Recorded(identity, framing), settings)
        kube = FakeKube(users={**FakeKube().users, **facts.get("users", {})})
        kube.objects = {NAME: build_object(**facts.get("spec", {}))}
        kube.config_maps = facts.get("config_maps", {})
        kube.rights |= {(name, right) for name in facts.get("users", {}).values() for right in ("attach", "view")}
        files = facts.get("tls")
        tls = TlsFiles(Path(files[0]), Path(files[1])) if files else None
        times = TimeSettings(review_again=timedelta(seconds=1), verdict_kept=timedelta(milliseconds=100))
        gateway_settings = GatewaySettings(
            port=facts.get("port", 0), metrics_port=0, tls=tls, hosts=("*",), times=times
        )
        gateway = Gateway(gateway_settings, kube, terminals, build_gateway_metrics(), SystemClock())
        await gateway.start()
        _say(gateway.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(terminals.hub.run())
            group.create_task(_obey(terminals))


def _say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def _obey(terminals: StreamTerminals) -> None:
    while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
        if terminals.holder is not None:
            terminals.holder.end(Ending(word))


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.stdin.readline())))

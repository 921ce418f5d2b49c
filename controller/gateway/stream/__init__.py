"""
What flows through the gateway: upstream sockets, the fan-out of one terminal, and people's sockets.

Problem: one terminal, many people, one of whom types, and a platform whose sockets break, repeat the past without a
mark and never say whose input counts. Promise: everybody sees all output in order from the moment they came; nobody
slows anybody else; only the one who was let type reaches the process, and can be stopped between two frames; nothing
here creates a session, knows Kubernetes, or decides who may.

How it is wired:

    settings = StreamSettings()
    way = SpriteWay(sprites_client, sprite_name, find_token, clock)
    hub = Hub(Recorded(identity, Framing.RAW), way, may_type=..., on_news=..., wait_for_word=..., clock=clock,
              settings=settings)
    group.create_task(hub.run())                       # once, in the task group that owns the terminal

    socket = build_socket(settings, protocols=[...])   # in the door, after every check
    await socket.prepare(request)
    client = Client(socket, request.transport.abort, socket_id=..., role=Role.TYPE, dialect=Dialect.OURS,
                    settings=settings, size=Resize(columns, rows), on_auth=...)
    ending = await hub.join(client)                    # until the person's socket has ended
    undrained_bytes = await hub.drain(client)          # then the lock may be cleared

    hub.let_type(client, tenure)                       # the lock is held
    hub.stop_input(client)                             # between two frames
    undrained_bytes = await hub.drain(client)          # 0: nothing of theirs is on its way any more
    undrained_bytes = hub.abort(client)                # the tenure has ended
    client.tell(Word.AUTHENTICATE, "...")              # a notice
    client.end(Ending.REPLACED)                        # told, then closed
    client.idle                                        # since a byte last came or went, for a limit on idle sockets
    hub.note_recorded(recorded); hub.note_running()    # what the status and the metadata say
    hub.close(Ending.RESTARTING)                       # everybody, and then everything

`Ending` is the one table of `plan.fence_closing`. `may_type(client)` is asked directly before each piece of input is
written; it looks into memory and does not wait. `wait_for_word(client)` is awaited before that: while the fence reads
an object again, what is typed waits instead of being refused. `on_news(news)` gets what a record, a metric or a log
wants to know; it does not wait either.

Two kinds of upstream sockets, never one for both: those that only look (`stdin=false`) carry the output, and the one
that types carries input alone. Its own output, which begins with a replay whose end nobody marks, is thrown away; so a
takeover costs those who look on not a byte, and no replay is ever mistaken for news.

A late person gets an upstream socket of their own, unless one is just being opened. Where more than
`StreamSettings.views` sockets look on, those of viewers are gathered on the newest, which costs them a screen drawn
anew.

Assumed: sockets with `stdin=false` do not count where the platform chooses whose input it takes (sprites-api.md 12 row
41); then every reading of it will do, and `tests/gateway/stream/test_hub.py` takes over under each of them. Should they
count, input would be ignored while somebody looks on, and no test can notice that before the platform does.

The alternatives that were refused are in docs/decisions/2026-11-30-gateway-streams.md.
"""

from controller.gateway.stream.client import Client, Dialect, Role, build_socket
from controller.gateway.stream.delays import BOUNDS_SECONDS, BothDelays, Delays
from controller.gateway.stream.frames import Resize, Word
from controller.gateway.stream.hub import (
    ClientTooSlow,
    Hub,
    InputLost,
    InputRefused,
    News,
    RefusedFor,
    SessionExited,
    SessionMissing,
    SessionUnreachable,
    StrangerAnswered,
    TypingOpened,
)
from controller.gateway.stream.recorded import Recorded
from controller.gateway.stream.typist import MayType
from controller.gateway.stream.way import SpriteWay, Way
from controller.gateway.stream_settings import StreamSettings

__all__ = [
    "BOUNDS_SECONDS",
    "BothDelays",
    "Client",
    "ClientTooSlow",
    "Delays",
    "Dialect",
    "Hub",
    "InputLost",
    "InputRefused",
    "MayType",
    "News",
    "Recorded",
    "RefusedFor",
    "Resize",
    "Role",
    "SessionExited",
    "SessionMissing",
    "SessionUnreachable",
    "SpriteWay",
    "StrangerAnswered",
    "StreamSettings",
    "TypingOpened",
    "Way",
    "Word",
    "build_socket",
]

"""One terminal with real sockets on both sides: the emulator with real processes above, people below."""

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from controller.api.session import SpriteState
from controller.clock import SystemClock
from controller.gateway.stream import (
    ClientTooSlow,
    InputLost,
    InputRefused,
    Recorded,
    RefusedFor,
    SessionExited,
    SessionMissing,
    SpriteWay,
    StreamSettings,
    TypingOpened,
)
from controller.gateway.stream.frames import CLEAR
from controller.plan.fence_closing import Ending
from controller.plan.looks import Listed, LookFailed
from controller.plan.reconnect import RECONNECT_WAIT
from controller.sprites.attach import UNCONFIRMED_BYTES
from controller.sprites.client import SpritesClient
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.gateway.stream.conftest import SECRET, ask, record
from tests.gateway.stream.stage import LIMIT, Person, Stage, open_stage
from tests.support.emulator import EmulatorProcess
from tests.support.secrecy import Kind, secret

PERSON_TOKEN = secret(Kind.PERSON)

pytestmark = pytest.mark.sprites

BUSY = ["sh", "-c", "stty raw -echo; echo ready; head -c 1 >/dev/null; seq 100000 300000; echo all-done; cat"]
"""Waits for one byte, then writes about 1.4 MB of numbers."""

STEPS = range(10, 20)
STEADY = [
    "sh",
    "-c",
    f"""
    stty raw -echo; echo ready; i={STEPS.start}
    while [ $i -lt {STEPS.stop} ]; do head -c 1 >/dev/null; seq ${{i}}0000 ${{i}}9999; i=$((i+1)); done
    echo all-done; cat
    """,
]
"""Writes 700 KB in steps, each of which waits for one byte, so that whoever reads at all keeps up."""

SMALL = StreamSettings(queue_bytes=256 * 1024, farewell=timedelta(seconds=LIMIT))


async def start(lab: EmulatorProcess, *argv: str, tty: bool = True) -> Any:
    return await ask(lab.start_session, "s1", *argv, tty=tty)


async def show(lab: EmulatorProcess) -> Any:
    (session,) = await ask(lab.sessions, "s1")
    return session


def after_replay(person: Person) -> bytes:
    """What came since the screen was cleared for the last time."""
    return person.output.rpartition(CLEAR)[2]


@contextlib.asynccontextmanager
async def raw(
    stage: Stage, name: str, *, buffer_bytes: int = 65_536
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Somebody who looks on over a plain connection, whose every byte the test reads and writes itself."""
    address = urlsplit(stage.url)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=plain, limit=1024)
    writer.write(
        f"GET /{name}?view=1 HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


# --- output -----------------------------------------------------------------------------------------------------------


async def test_whoever_holds_the_terminal_types_and_sees_the_answer(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "cat")

    async with open_stage(way, record(session)) as stage:
        person = await stage.come_to_type("ann")
        await person.types(b"hello\r")
        await person.sees(b"hello\r\nhello\r\n")

        (info,) = person.told("session_info")
        assert (info["session_id"], info["tty"], info["is_owner"]) == (session["id"], True, True)
        assert json.loads(str(person.frames[0]))["type"] == "session_info"
        assert stage.news == [TypingOpened("ann")]
        assert stage.hub.activity is not None
    assert person.close_code == 1012


async def test_a_holder_and_twenty_viewers_see_the_same_bytes(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, *BUSY)

    async with open_stage(way, record(session)) as stage:
        people = [await stage.come(f"viewer-{number}", "view") for number in range(20)]
        people.append(await stage.come_to_type("ann"))
        for person in people:
            await person.sees(b"ready")
        await people[-1].types(b"x")
        for person in people:
            await person.sees(b"all-done")

        outputs = {after_replay(person) for person in people}
        assert len(outputs) == 1
        numbers = re.findall(rb"\d+", outputs.pop())
        assert numbers == [b"%d" % number for number in range(100_000, 300_001)]
        # Neither one upstream for each viewer nor one for all: they came while some were open.
        assert (await show(lab))["clients"] <= StreamSettings().views + 3


async def test_somebody_who_does_not_read_is_told_and_dropped_and_nobody_else_waits(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, *STEADY)

    async with open_stage(way, record(session), SMALL) as stage:
        ann = await stage.come_to_type("ann")
        bob = await stage.come("bob", "view")
        await asyncio.gather(ann.sees(b"ready"), bob.sees(b"ready"))
        async with raw(stage, "deaf", buffer_bytes=4096) as (reader, writer):
            # With an upstream socket of its own, which must not be held up either.
            await stage.until(lambda stage: "deaf" in stage.clients)
            for step in STEPS:
                await ann.types(b"x")
                await asyncio.gather(ann.sees(b"%d9999" % step), bob.sees(b"%d9999" % step))
            await asyncio.gather(ann.sees(b"all-done"), bob.sees(b"all-done"))

            await stage.until(lambda stage: stage.clients["deaf"].ending is not None)
            assert stage.clients["deaf"].ending is Ending.TOO_SLOW
            # Only now does the other side read: what was on the way, then why it is thrown out, then the close.
            heard, close = b"", b"\x88\x09\x03\xf5TooSlow"
            while not heard.endswith(close):
                portion = await asyncio.wait_for(reader.read(1 << 20), LIMIT)
                assert portion, heard[-100:]
                heard += portion
            assert b'"type":"closed","code":1013,"reason":"TooSlow"' in heard
            writer.write(b"\x88\x82\0\0\0\0\x03\xf5")
            assert await asyncio.wait_for(reader.read(), LIMIT) == b""
            # What waited here was thrown away: only what the system had taken comes before the reason.
            assert len(heard) < SMALL.queue_bytes + 100_000
        await stage.until(lambda stage: stage.endings.get("deaf") is Ending.TOO_SLOW)
        assert ClientTooSlow("deaf") in stage.news
        numbers = [b"%d" % number for number in range(100_000, 200_000)]
        for person in (ann, bob):
            assert re.findall(rb"\d+", after_replay(person)) == numbers
            assert person.close_code is None


async def test_somebody_alone_loses_nothing_of_far_more_than_may_wait_for_them(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, *BUSY)
    settings = StreamSettings(queue_bytes=64 * 1024)

    async with open_stage(way, record(session), settings) as stage:
        ann = await stage.come_to_type("ann")
        await ann.sees(b"ready")
        await ann.types(b"x")
        await ann.sees(b"all-done")

        assert re.findall(rb"\d+", after_replay(ann)) == [b"%d" % number for number in range(100_000, 300_001)]
        assert ClientTooSlow("ann") not in stage.news


async def test_a_late_viewer_sees_the_screen_and_nobody_else_sees_it_again(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; echo the-past; cat")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come_to_type("ann")
        await ann.sees(b"the-past")
        late = await stage.come("late", "view")
        await late.sees(b"the-past")
        await ann.types(b"the-present\r")
        await asyncio.gather(ann.sees(b"the-present"), late.sees(b"the-present"))

        for person in (ann, late):
            assert person.output.count(b"the-past") == 1
            assert person.output.count(b"the-present") == 1
            assert len(person.told("replay")) == 1
            order = [frame for frame in person.frames if not (isinstance(frame, str) and "notice" in frame)]
            assert [json.loads(frame)["type"] for frame in order[:2]] == ["session_info", "replay"]
            assert person.output.startswith(CLEAR)


async def test_the_past_that_comes_with_an_attach_is_no_activity(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; echo the-past; cat")
    async with open_stage(way, record(session)) as earlier:
        await (await earlier.come("bob", "view")).sees(b"the-past")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come_to_type("ann")
        await ann.sees(b"the-past")
        before = stage.hub.activity
        assert before is None
        await ann.types(b"the-present\r")
        await ann.sees(b"the-present")
        assert stage.hub.activity is not None
        assert stage.clients["ann"].idle < timedelta(seconds=LIMIT)


async def test_letting_somebody_type_twice_leaves_their_socket_alone(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; cat")
    tenure = Tenure(1)

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come("ann")
        stage.may_type.add("ann")
        for _ in range(2):
            stage.hub.let_type(stage.clients["ann"], tenure)
            await ann.hears("Holding")
        await ann.types(b"here\r")
        await ann.sees(b"here")

        assert ann.words == ["Holding"]


async def test_viewers_beyond_the_number_of_ways_up_are_gathered_on_one(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; echo the-past; cat")

    async with open_stage(way, record(session), StreamSettings(views=2)) as stage:
        ann = await stage.come_to_type("ann")
        await ann.sees(b"the-past")
        viewers = []
        for number in range(6):
            viewers.append(await stage.come(f"viewer-{number}", "view"))
            await viewers[-1].sees(b"the-past")
        await ann.types(b"the-present\r")
        for person in (ann, *viewers):
            await person.sees(b"the-present")

        for person in viewers:
            assert after_replay(person).count(b"the-past") == 1
            assert after_replay(person).count(b"the-present") == 1
        assert len(ann.told("replay")) == 1
        # The one that types, the one of its holder, and two of viewers.
        await count_clients(lab, 4)


async def test_a_vendors_client_gets_what_the_platform_sends(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "echo the-past; cat")

    async with open_stage(way, record(session)) as stage:
        person = await stage.come("sdk", "view", "vendor")
        await person.sees(b"the-past")

        assert person.output == b"the-past\r\n"
        assert person.told("replay") == []


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_a_killed_session_gives_everybody_its_exit_and_only_then_1000(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "cat")

    async with open_stage(way, record(session)) as stage:
        people = [await stage.come_to_type("ann"), await stage.come("bob", "view"), await stage.come("eve", "view")]
        await people[2].until(lambda person: person.told("replay"))
        await ask(lab.call, "POST", f"/v1/sprites/s1/exec/{session['id']}/kill", signal="SIGKILL")

        for person in people:
            assert await person.is_closed() == 1000
            assert person.texts[-1] == {"type": "exit", "exit_code": 137}
            assert "Reconnecting" not in person.words, "a session that has exited is said to be opened again"
        assert [news for news in stage.news if isinstance(news, SessionExited)] == [
            SessionExited(record(session).identity, 137)
        ]

        late = await stage.come("late", "view")
        assert await late.is_closed() == 1000
        assert late.texts[-1] == {"type": "exit", "exit_code": 137}


async def test_a_session_without_a_terminal_keeps_its_streams_and_its_numbered_exit(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "sh", "-c", "read line; echo out-$line; echo err-$line >&2; cat; exit 7", tty=False)
    unknown = Recorded(record(session).identity)

    async with open_stage(way, unknown) as stage:
        ann = await stage.come_to_type("ann")
        await ann.until(lambda person: person.told("session_info"))
        assert ann.told("session_info")[0]["tty"] is False
        await ann.types(b"\x00one\n")
        await ann.until(lambda person: b"\x01out-one\n" in person.frames and b"\x02err-one\n" in person.frames)
        await ann.types(b"\x04")

        assert await ann.is_closed() == 1000
        assert json.loads(str(ann.frames[-2])) == {"type": "exit", "exit_code": 7}
        assert ann.frames[-1] == b"\x03\x07"
        assert CLEAR not in ann.output


async def test_a_session_that_is_gone_is_no_exit_and_another_may_follow(way: SpriteWay, lab: EmulatorProcess) -> None:
    gone = await start(lab, "true")
    await await_lab(lambda: not lab.list_sessions("s1"))

    async with open_stage(way, record(gone)) as stage:
        ann = await stage.come("ann")
        await ann.hears("SessionMissing")
        assert stage.news == [SessionMissing(record(gone).identity)]
        session = await start(lab, "sh", "-c", "echo the-next; cat")
        stage.hub.note_recorded(record(session))
        await ann.sees(b"the-next")

        assert [info["session_id"] for info in ann.told("session_info")] == [gone["id"], session["id"]]
        assert (await ask(lab.count_requests)).get("exec.create", 0) == 0


async def test_where_no_other_session_follows_the_end_says_that_no_exit_was_seen(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    gone = await start(lab, "true")
    await await_lab(lambda: not lab.list_sessions("s1"))

    async with open_stage(way, record(gone), StreamSettings(revival_limit=timedelta(milliseconds=100))) as stage:
        ann = await stage.come("ann")

        assert await ann.is_closed() == 1011
        assert ann.texts[-1]["reason"] == "SessionEnded"
        assert ann.told("exit") == []


# --- reconnecting -----------------------------------------------------------------------------------------------------


@pytest.mark.case("R11")
async def test_a_broken_upstream_is_opened_again_to_the_same_session(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; echo the-past; cat")

    async with open_stage(way, record(session)) as stage:
        ann, bob = await stage.come_to_type("ann"), await stage.come("bob", "view")
        await asyncio.gather(ann.sees(b"the-past"), bob.sees(b"the-past"))
        # A pause drops every socket; the process is the same after the wake.
        await ask(lab.set_state, "s1", "warm")
        await asyncio.gather(ann.hears("Reconnecting"), bob.hears("Reconnecting"))
        await ann.until(lambda person: person.words.count("Holding") == 2)
        await ann.types(b"and-on\r")
        await asyncio.gather(ann.sees(b"and-on"), bob.sees(b"and-on"))

        for person in (ann, bob):
            assert len(person.told("replay")) == 2
            assert after_replay(person).count(b"the-past") == 1
        assert (await show(lab))["id"] == session["id"]
        assert (await ask(lab.count_requests)).get("exec.create", 0) == 0


async def test_looking_on_never_wakes_a_paused_sprite(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "echo the-past; cat")

    async with open_stage(way, record(session)) as stage:
        bob = await stage.come("bob", "view")
        await bob.sees(b"the-past")
        await ask(lab.set_state, "s1", "warm")
        await bob.hears("Paused")
        eve = await stage.come("eve", "view")
        await eve.until(lambda person: person.told("session_info"))
        assert (await ask(lab.sprite, "s1"))["true_status"] == "warm"

        ann = await stage.come("ann")
        await asyncio.gather(ann.sees(b"the-past"), eve.sees(b"the-past"))
        await bob.until(lambda person: len(person.told("replay")) == 2)
        assert (await ask(lab.sprite, "s1"))["true_status"] == "running"


async def test_who_looks_on_sees_at_once_what_somebody_at_another_gateway_has_woken(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "sh", "-c", "echo the-past; cat")
    await ask(lab.set_state, "s1", "warm")
    settings = StreamSettings(paused_look=timedelta(hours=1), stirred_look=timedelta(milliseconds=20))

    async with open_stage(way, record(session), settings) as stage:
        bob = await stage.come("bob", "view")
        await bob.hears("Paused")
        # The lock is written before the sprite is woken.
        stage.hub.note_stir()
        await ask(lab.set_state, "s1", "running")
        await bob.sees(b"the-past")


class Blind(SpriteWay):
    """A way by which the sprite's state cannot be learned for a while."""

    states: list[SpriteState | None]

    async def find_state(self) -> SpriteState | None:
        return self.states.pop(0) if self.states else await super().find_state()


@pytest.mark.parametrize("state", [None, SpriteState.UNKNOWN], ids=["no answer", "an answer without it"])
async def test_where_nobody_can_say_whether_it_is_paused_looking_on_waits_and_says_so(
    sprites: SpritesClient, lab: EmulatorProcess, state: SpriteState | None
) -> None:
    session = await start(lab, "sh", "-c", "echo ready; cat")
    blind = Blind(sprites, "s1", lambda: Token.read(SECRET), SystemClock())
    blind.states = [state, state, SpriteState.WARM]

    async with open_stage(blind, record(session), StreamSettings(paused_look=timedelta(milliseconds=50))) as stage:
        bob = await stage.come("bob", "view")
        await bob.sees(b"ready")

        assert bob.words == ["Unseen", "Paused"]


@pytest.mark.case("R19")
@pytest.mark.case("R20")
async def test_a_quiet_terminal_stays_down_until_somebody_types(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; echo the-past; cat")

    async with open_stage(way, record(session), StreamSettings(idle_after=timedelta(milliseconds=1))) as stage:
        ann = await stage.come_to_type("ann")
        await ann.types(b"busy\r")
        await ann.sees(b"busy")
        await asyncio.sleep(0.01)  # the window itself
        await ask(lab.set_state, "s1", "warm")
        await ann.hears("Quiet")
        assert (await ask(lab.sprite, "s1"))["true_status"] == "warm"

        await ann.types(b"hello\r")
        await ann.sees(b"hello")
        assert (await ask(lab.sprite, "s1"))["true_status"] == "running"


async def test_a_session_that_cannot_be_reached_is_given_up_without_an_exit(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "cat")
    await ask(lab.arm_fault, {"kind": "status", "status": 502}, route="exec.attach", times=99)

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come("ann")

        assert await ann.is_closed() == 1011
        assert ann.texts[-1]["reason"] == "UpstreamLost"
        assert ann.told("exit") == []
        assert (await ask(lab.count_requests))["exec.attach"] == 6


async def test_another_session_that_answers_is_not_shown_and_never_typed_to(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "sh", "-c", "echo the-secret; cat")
    recorded = record(session)
    created = recorded.identity.created
    assert created is not None
    former = Recorded(
        type(recorded.identity)(
            recorded.identity.sprite_id, recorded.identity.session_id, created - timedelta(hours=1)
        ),
        recorded.framing,
    )
    # The list cannot be had, so only the session's own word tells the one from the other.
    await ask(lab.arm_fault, {"kind": "status", "status": 500}, route="exec.list")

    async with open_stage(way, former) as stage:
        ann = await stage.come("ann")
        stage.let_type("ann")
        await ann.types(b"rm -rf /\r")

        assert await ann.is_closed() == 1011
        assert "Stranger" in ann.words
        assert ann.output == b""
        assert (await show(lab))["received"] == ""


# --- input ------------------------------------------------------------------------------------------------------------


async def test_two_megabytes_are_typed_as_fast_as_it_is_read_and_nothing_is_lost_or_reordered(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    script = "stty raw -echo; mkfifo gate; echo ready; read go <gate; head -c 2097152 | sha256sum; cat"
    session = await start(lab, "sh", "-c", script)
    data = b"".join(b"%07d\n" % number for number in range(262_144))

    settings = StreamSettings(ping_every=timedelta(milliseconds=400), pong_limit=timedelta(milliseconds=900))

    async with open_stage(way, record(session), settings) as stage:
        ann = await stage.come_to_type("ann")
        await ann.sees(b"ready")

        async def type_all() -> None:
            for begin in range(0, len(data), 10_000):
                await ann.types(data[begin : begin + 10_000])

        async with asyncio.TaskGroup() as group:
            typing = group.create_task(type_all())
            attachment = stage.hub._typist._attachment  # type: ignore[union-attr]  # somebody types
            assert attachment is not None
            await stage.until(lambda _: attachment.unconfirmed_bytes > UNCONFIRMED_BYTES - 10_000)
            # While the process does not read, what is on its way stays bounded, and the person is held up.
            assert attachment.unconfirmed_bytes <= UNCONFIRMED_BYTES
            # A pong lies behind what waits, and is not missed for that.
            pings = ann.pinged
            await ann.until(lambda person: person.pinged > pings + 3)
            opened = await stage.come("opener", "view")
            await open_gate(lab)
            await typing
        await ann.sees(hashlib.sha256(data).hexdigest().encode())
        await opened.sees(b"ready")
        assert await stage.hub.drain(stage.clients["ann"]) == 0


async def open_gate(lab: EmulatorProcess) -> None:
    """Run a command beside the session that lets it go on."""
    await start(lab, "sh", "-c", "echo go >gate", tty=False)


async def test_what_is_typed_before_the_lock_waits_and_comes_first(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; cat")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come("ann")
        await ann.says(type="resize", cols=101, rows=31)
        for line in (b"one\r", b"two\r"):
            await ann.types(line)
        await ann.hears("Waiting")
        assert (await show(lab))["received"] == ""
        stage.let_type("ann")
        await ann.types(b"three\r")
        await ann.sees(b"three\r\n")

        assert (await show(lab))["received"] == "one\rtwo\rthree\r"
        assert ((await show(lab))["cols"], (await show(lab))["rows"]) == (101, 31)


async def test_nothing_is_typed_before_its_sender_sees_the_terminal_so_last_words_are_not_lost(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "sh", "-c", "read line; echo bye-$line; exit 7", tty=False)
    await ask(lab.arm_fault, {"kind": "delay", "seconds": 1.0}, route="exec.list", times=1)

    async with open_stage(way, record(session, tty=False)) as stage:
        ann = await stage.come("ann")
        stage.let_type("ann")
        await ann.types(b"\x00now\n")

        assert await ann.is_closed() == 1000
        assert b"\x01bye-now\n" in ann.frames
        assert ann.frames[-1] == b"\x03\x07"


async def test_input_that_waits_too_long_or_is_too_much_is_refused_with_a_reason(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "cat")
    settings = StreamSettings(backlog_limit=timedelta(milliseconds=100))

    async with open_stage(way, record(session), settings) as stage:
        late, much = await stage.come("late"), await stage.come("much")
        await late.types(b"x")
        await much.types(b"x" * 65_537)

        for person, reason in ((late, "LockLate"), (much, "BufferFull")):
            assert await person.is_closed() == 1013
            assert person.texts[-1]["reason"] == reason
        assert (await show(lab))["received"] == ""


@pytest.mark.parametrize("input_from", ["all", "owner", "newest"])
async def test_after_a_takeover_only_the_new_holder_reaches_the_process(
    input_from: str, way: SpriteWay, lab: EmulatorProcess
) -> None:
    """Whichever of several attached sockets the platform listens to: sockets that only look on are none of them."""
    await ask(lab.switch, input_from=input_from)
    session = await start(lab, "sh", "-c", "stty -echo; cat")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come_to_type("ann")
        bob = await stage.come("bob")
        await bob.says(type="resize", cols=133, rows=43)
        await ann.types(b"from-ann\r")
        await asyncio.gather(ann.sees(b"from-ann"), bob.sees(b"from-ann"))

        stage.hub.stop_input(stage.clients["ann"])
        await ann.types(b"too-late\r")
        await ann.says(type="resize", cols=77, rows=27)
        await ann.hears("InputRefused")
        assert await stage.hub.drain(stage.clients["ann"]) == 0
        stage.let_type("bob")
        stage.clients["ann"].end(Ending.REPLACED)
        eve = await stage.come("eve", "view")
        await eve.until(lambda person: person.told("replay"))
        await bob.types(b"from-bob\r")
        await bob.sees(b"from-bob")

        assert await ann.is_closed() == 4001
        shown = await show(lab)
        assert shown["received"] == "from-ann\rfrom-bob\r"
        assert (shown["cols"], shown["rows"]) == (133, 43)
        # Nobody's screen was drawn anew for it.
        assert len(bob.told("replay")) == 1


async def test_whoever_is_thrown_out_in_the_middle_of_typing_hears_why_before_the_connection_goes(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    """A connection that is dropped with something unread is reset, and a reset overtakes the reason."""
    session = await start(lab, "cat")
    settings = StreamSettings(farewell=timedelta(seconds=LIMIT))

    async with open_stage(way, record(session), settings) as stage, raw(stage, "ann") as (reader, writer):
        await stage.until(lambda stage: "ann" in stage.clients)
        stage.clients["ann"].end(Ending.REVOKED)
        heard = b""
        while not heard.endswith(b"\x88\x09\x0f\xa3Revoked"):
            heard += await asyncio.wait_for(reader.read(4096), LIMIT)
        for _ in range(5):
            writer.write(b"\x82\x81\0\0\0\0x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        writer.write(b"\x88\x82\0\0\0\0\x0f\xa3")

        # The end, and no second close: a browser takes one for a fault, and its page would see 1006.
        assert await asyncio.wait_for(reader.read(), LIMIT) == b""
        await stage.until(lambda stage: stage.endings.get("ann") is Ending.REVOKED)


async def test_each_frame_is_judged_by_the_fence_when_it_is_sent(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; cat")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come_to_type("ann")
        await ann.types(b"one\r")
        await ann.sees(b"one")
        stage.may_type.clear()
        await ann.types(b"two\r")
        await ann.hears("InputRefused")
        assert InputRefused("ann", RefusedFor.STALE) in stage.news
        stage.may_type.add("ann")
        await ann.types(b"three\r")
        await ann.sees(b"three")

        assert (await show(lab))["received"] == "one\rthree\r"


async def test_a_viewers_keys_and_sizes_reach_nothing(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "stty -echo; cat")

    async with open_stage(way, record(session)) as stage:
        ann, bob = await stage.come_to_type("ann"), await stage.come("bob", "view")
        await ann.says(type="resize", cols=91, rows=21)
        await bob.says(type="resize", cols=10, rows=10)
        await bob.says(type="signal", signal="KILL")
        await bob.types(b"x")
        await bob.hears("InputRefused")
        assert InputRefused("bob", RefusedFor.VIEWER) in stage.news
        await ann.types(b"done\r")
        await ann.sees(b"done")

        shown = await show(lab)
        assert (shown["received"], shown["cols"], shown["rows"]) == ("done\r", 91, 21)


async def test_a_signal_of_the_holder_reaches_the_process(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "sh", "-c", "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.1; done")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come_to_type("ann")
        await ann.sees(b"ready")
        await ann.says(type="signal", signal="SIGTERM")

        assert await ann.is_closed() == 1000
        assert b"caught" in ann.output
        assert ann.texts[-1] == {"type": "exit", "exit_code": 5}


async def test_at_the_end_of_a_tenure_typing_is_cut_at_once_and_looking_goes_on(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "sh", "-c", "stty raw -echo; echo ready; sleep 600")

    async with open_stage(way, record(session)) as stage:
        ann, bob = await stage.come_to_type("ann"), await stage.come("bob", "view")
        await asyncio.gather(ann.sees(b"ready"), bob.sees(b"ready"))
        # The process reads nothing, so what is beyond the kernel's buffers stays without a pong.
        for _ in range(120):
            await ann.types(b"x" * 10_000)
        await stage.until(lambda stage: stage.hub._typist._attachment.unconfirmed_bytes > 40_000)
        lost = stage.hub.abort_typing()

        assert 40_000 < lost <= UNCONFIRMED_BYTES
        assert InputLost("ann", lost) in stage.news
        # What was cut may still land for a while, and whoever asks for it is told so.
        assert await stage.hub.drain(stage.clients["ann"]) == lost
        assert ann.close_code is None
        assert bob.close_code is None


# --- people -----------------------------------------------------------------------------------------------------------


async def test_somebody_who_answers_pings_may_be_silent_and_somebody_who_does_not_is_gone(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    session = await start(lab, "cat")
    settings = StreamSettings(
        ping_every=timedelta(milliseconds=200),
        pong_limit=timedelta(milliseconds=1500),
        silence_limit=timedelta(milliseconds=400),
    )

    async with open_stage(way, record(session), settings) as stage:
        alive = await stage.come("alive", "view")
        await stage.come("gone", "view", answer_pings=False)
        await stage.until(lambda stage: "gone" in stage.endings)
        await alive.until(lambda person: len(person.told("debug")) >= 3)

        assert stage.endings["gone"] is Ending.LEFT
        assert alive.pinged >= 5
        assert alive.close_code is None


async def listen_for_long(stage: Stage) -> bool:
    """
    Tell whether somebody may only listen for longer than they may be idle.

    A machine that stands still for as long makes them idle; then another tries.
    """
    for number in range(5):
        eve = await stage.come(f"eve-{number}", "view")
        await eve.sees(b"tick")
        with contextlib.suppress(TimeoutError):
            await eve.is_closed(within=stage.settings.idle_limit.total_seconds() + 0.5)
        if eve.close_code is None:
            return True
    return False


async def test_whoever_says_and_hears_nothing_is_told_so_and_ended_and_whoever_only_listens_is_not(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    quiet = await start(lab, "cat")
    loud = await start(lab, "sh", "-c", "stty raw; while :; do echo tick; sleep 0.1; done")
    settings = StreamSettings(
        # Longer than it takes people to come, and a session to speak.
        idle_limit=timedelta(seconds=3),
        ping_every=timedelta(milliseconds=100),
        silence_limit=timedelta(seconds=0.4),
    )

    async with (
        open_stage(way, record(loud), settings) as beside,
        open_stage(way, record(quiet), settings) as stage,
        asyncio.TaskGroup() as group,
    ):
        listening = group.create_task(listen_for_long(beside))
        ann, bob = await stage.come_to_type("ann"), await stage.come("bob", "view")
        since = asyncio.get_running_loop().time()
        await ann.types(b"hello\r")
        await bob.sees(b"hello")
        codes = [await ann.is_closed(), await bob.is_closed()]
        took = asyncio.get_running_loop().time() - since
        await stage.until(lambda stage: len(stage.endings) == 2)

        assert codes == [1008, 1008]
        assert stage.endings == {"ann": Ending.IDLE, "bob": Ending.IDLE}
        assert [ann.told("closed")[0]["reason"], bob.told("closed")[0]["reason"]] == ["Idle", "Idle"]
        # Frames that only keep a socket up did not count, and what was typed did.
        assert bob.told("debug")
        assert took >= 3.0
        assert await listening, "whoever only listens was taken for idle each time"
        # The sessions go on.
        assert {session["id"] for session in await ask(lab.sessions, "s1")} == {quiet["id"], loud["id"]}
        assert len(await ask(lab.processes, "s1")) >= 2


async def test_a_fresh_token_is_handed_on_and_shown_nowhere(
    way: SpriteWay, lab: EmulatorProcess, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    session = await start(lab, "sh", "-c", "stty -echo; echo ready; cat")

    async with open_stage(way, record(session)) as stage:
        ann = await stage.come_to_type("ann")
        await ann.says(type="auth", token=PERSON_TOKEN)
        await ann.types(b"planted-input\r")
        await ann.sees(b"planted-input")
        await ask(lab.set_state, "s1", "warm")
        await ann.hears("Reconnecting")
        await ann.until(lambda person: person.words.count("Holding") == 2)
        stage.clients["ann"].end(Ending.EXPIRED)
        assert await ann.is_closed() == 4401

        assert stage.auths == [PERSON_TOKEN]
        told = [json.dumps(text) for text in ann.texts]
    shown = "\n".join([caplog.text, *(str(vars(entry)) for entry in caplog.records), *told, repr(stage.news)])
    assert "A socket to a session dropped." in shown
    for planted in (SECRET, SECRET.split("/")[2], SECRET.split("/")[3], PERSON_TOKEN, "planted-input"):
        assert planted not in shown


async def test_a_message_that_is_too_large_ends_its_sender_alone(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "cat")

    async with open_stage(way, record(session), StreamSettings(message_bytes=1024)) as stage:
        ann, bob = await stage.come("ann"), await stage.come("bob", "view")
        await ann.types(b"x" * 2000)

        assert await ann.is_closed() == 1009
        await stage.until(lambda stage: stage.endings.get("ann") is Ending.TOO_LARGE)
        assert bob.close_code is None


async def test_nothing_stays_open_upstream_once_everybody_has_left(way: SpriteWay, lab: EmulatorProcess) -> None:
    session = await start(lab, "cat")

    async with open_stage(way, record(session)) as stage:
        ann, bob = await stage.come_to_type("ann"), await stage.come("bob", "view")
        await bob.until(lambda person: person.told("replay"))
        await ann.socket.close()
        await bob.socket.close()
        await stage.until(lambda stage: len(stage.endings) == 2)
        assert stage.hub.viewers == 0
        # The socket that types stays until it was drained, for whoever asks.
        await count_clients(lab, 1)
        assert await stage.hub.drain(stage.clients["ann"]) == 0
        await count_clients(lab, 0)


@pytest.mark.case("R9", "R11", "T3")
async def test_after_the_last_one_has_left_a_drop_causes_nothing_and_whoever_comes_next_is_attached_again(
    way: SpriteWay, lab: EmulatorProcess
) -> None:
    """The product's own form: what is owed to nobody is not kept; whoever comes gets a way up of their own."""
    session = await start(lab, "sh", "-c", "echo the-past; cat")

    async with open_stage(way, record(session)) as stage:
        bob = await stage.come("bob", "view")
        await bob.sees(b"the-past")
        # The drop and the leaving at once: a reconnect that was planned goes as well.
        await ask(lab.set_state, "s1", "warm")
        await bob.hears("Reconnecting")
        await bob.socket.close()
        await stage.until(lambda stage: len(stage.endings) == 1)
        asked = await ask(lab.count_requests)
        await asyncio.sleep(2 * RECONNECT_WAIT.total_seconds())
        assert await ask(lab.count_requests) == asked
        assert (await ask(lab.sprite, "s1"))["true_status"] == "warm"

        ann = await stage.come_to_type("ann")
        await ann.sees(b"the-past")
        assert ann.told("exit") == []
        assert (await show(lab))["id"] == session["id"]
        assert (await ask(lab.count_requests)).get("exec.create", 0) == 0


class Slow(SpriteWay):
    """A way by which the list of sessions is given when a test lets it."""

    passage: asyncio.Event

    async def list_sessions(self) -> Listed | LookFailed:
        listed = await super().list_sessions()
        await self.passage.wait()
        return listed


@pytest.mark.case("R16")
async def test_whoever_leaves_while_the_session_list_is_fetched_is_not_attached_by_it(
    sprites: SpritesClient, lab: EmulatorProcess
) -> None:
    session = await start(lab, "cat")
    slow = Slow(sprites, "s1", lambda: Token.read(SECRET), SystemClock())
    slow.passage = asyncio.Event()

    async with open_stage(slow, record(session)) as stage:
        bob = await stage.come("bob", "view")
        await await_lab(lambda: bool(lab.count_requests().get("exec.list")))
        await bob.socket.close()
        await stage.until(lambda stage: len(stage.endings) == 1)
        slow.passage.set()
        await asyncio.sleep(0.3)

        counted = await ask(lab.count_requests)
        assert (counted["exec.list"], counted.get("exec.attach", 0), counted.get("exec.create", 0)) == (1, 0, 0)


async def count_clients(lab: EmulatorProcess, wanted: int) -> None:
    await await_lab(lambda: lab.sessions("s1")[0]["clients"] == wanted)


async def await_lab(is_true: Callable[[], bool]) -> None:
    """Wait for something that the lab tells only to who asks."""
    async with asyncio.timeout(LIMIT):
        while not await ask(is_true):  # noqa: ASYNC110 - the lab has no way to wait for anything
            await asyncio.sleep(0.01)

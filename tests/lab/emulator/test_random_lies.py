"""
A careful client reaches its end under any mix of lies: that is what the closed lists of the mix promise.

The client here is written from the documentation alone, as short as care allows: it reads again what was lost, looks
before it starts anything twice, takes both forms of everything, and believes in an end only when it is gone twice.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from controller.cli.sprites_emulator import parse_switches, render_mix
from controller.lab.emulator import Emulator, EmulatorSettings, Isolation, Switches
from controller.lab.emulator.mixing import CLASHES, Mix, draw_mix
from controller.lab.emulator.switches import LIES

SEEDS = range(12)
PATIENCE_SECONDS = 60
PAUSE = 0.3
LOST = (aiohttp.ClientConnectionError, aiohttp.ServerDisconnectedError, aiohttp.WSServerHandshakeError)


class Careful:
    """A client that expects the worst that the documentation allows."""

    def __init__(self, emulator: Emulator, http: aiohttp.ClientSession) -> None:
        self._url = f"{emulator.url}/v1/sprites"
        self._headers = {"Authorization": f"Bearer {emulator.token}"}
        self._http = http

    async def read(self, path: str = "", **query: str) -> Any:
        """Read until an answer is one."""
        while True:
            try:
                async with self._http.get(self._url + path, params=query, headers=self._headers) as response:
                    if response.status == 200:
                        return await response.json()
                    assert response.status in (429, 502, 503, 504), await response.text()
            except LOST:
                pass
            await asyncio.sleep(PAUSE)

    async def list_names(self) -> list[str]:
        """List all sprites, page by page, to the end of the tokens."""
        names: list[str] = []
        token = ""
        while True:
            page = await self.read(max_results="50", **({"continuation_token": token} if token else {}))
            names += [sprite["name"] for sprite in page["sprites"]]
            token = page["next_continuation_token"] or ""
            if not token:
                return names

    async def list_sessions(self) -> dict[str, str]:
        """List the sessions: their commands by id."""
        answer = await self.read("/my-sprite/exec")
        entries = answer if isinstance(answer, list) else answer["sessions"]
        return {str(entry["id"]): entry["command"] for entry in entries}

    async def start(self, nonce: str) -> str:
        """Start a terminal and find it, also where its connection was lost; never start it twice."""
        words = [("cmd", "sleep"), ("cmd", "1000"), ("cmd", nonce), ("tty", "true")]
        while True:
            try:
                async with self._http.ws_connect(
                    f"{self._url}/my-sprite/exec", params=words, headers=self._headers
                ) as socket:
                    async for message in socket:
                        fields = read_text(message)
                        if fields.get("type") == "session_info":
                            return str(fields["session_id"])
            except LOST:
                await asyncio.sleep(PAUSE)
            for session, command in (await self.list_sessions()).items():
                if nonce in command:
                    return session

    async def run(self) -> int:
        """Run a short command until one of its runs has told its exit code."""
        while True:
            code = await self.run_once()
            if code is not None:
                return code
            await asyncio.sleep(PAUSE)

    async def run_once(self) -> int | None:
        """Run it, up to the authoritative frame; None: nobody knows how it ended."""
        words = [("cmd", "true")]
        try:
            async with self._http.ws_connect(
                f"{self._url}/my-sprite/exec", params=words, headers=self._headers
            ) as socket:
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\x03":
                        return int.from_bytes(message.data[1:], "big")
        except LOST:
            pass
        return None

    async def kill(self, session: str, nonce: str) -> None:
        """Kill a session, and believe it when it is missing from two lists in a row."""
        missing = 0
        while missing < 2:
            path = f"{self._url}/my-sprite/exec/{session}/kill"
            try:
                async with self._http.post(path, params={"signal": "SIGKILL"}, headers=self._headers) as response:
                    await response.read()
            except LOST:
                pass
            await asyncio.sleep(PAUSE)
            missing = 0 if any(nonce in command for command in (await self.list_sessions()).values()) else missing + 1


def read_text(message: aiohttp.WSMessage) -> Mapping[str, Any]:
    """Read a text frame; whatever is none says nothing."""
    if message.type is not aiohttp.WSMsgType.TEXT:
        return {}
    try:
        fields = json.loads(message.data)
    except json.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


async def live_through(settings: EmulatorSettings) -> None:
    nonce = secrets.token_hex(8)
    async with Emulator(settings) as emulator, aiohttp.ClientSession() as http:
        organization = emulator.context.list_organizations()[0]
        sprite = await emulator.context.create_sprite(organization, "my-sprite")
        client = Careful(emulator, http)
        assert await client.list_names() == ["my-sprite"]
        session = await client.start(nonce)
        assert [known.argv[-1] for known in sprite.sessions.values()].count(nonce) == 1
        assert await client.run() == 0
        await client.kill(session, nonce)
        assert nonce not in [known.argv[-1] for known in sprite.sessions.values() if not known.ended]


async def test_a_careful_client_starts_runs_and_kills_under_every_seed() -> None:
    async def live(seed: int) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await live_through(EmulatorSettings(isolation=Isolation.RECORDS, random_lies=seed))
        except Exception as error:
            raise AssertionError(f"Seed {seed}: {draw_mix(seed).render()}") from error

    async with asyncio.TaskGroup() as group:
        for seed in SEEDS:
            group.create_task(live(seed))


async def test_it_would_not_under_what_is_never_drawn() -> None:
    async def live(**switches: Any) -> None:
        settings = EmulatorSettings.model_validate({"isolation": "records", "switches": switches})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await live_through(settings)

    async with asyncio.TaskGroup() as group:
        group.create_task(live(kill_error="undone"))
        group.create_task(live(dropped_read_every=1))
        group.create_task(live(lost_fast_every=1))
        group.create_task(live(running_limit=1, sessions_limit=1))


def test_those_seeds_tell_nearly_every_lie() -> None:
    told = {(name, value) for seed in SEEDS for name, value in draw_mix(seed).values.items()}
    wanted = {(name, value) for name, lie in LIES.items() for value in lie.mixed}
    assert len(told) > 0.9 * len(wanted)


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4])
def test_what_is_printed_of_a_mix_can_be_told_again_one_by_one(seed: int) -> None:
    mix = draw_mix(seed)
    (line, *_) = render_mix(mix)
    pairs = [word for word in line.split() if "=" in word]
    told = Switches.model_validate(parse_switches(pairs))
    assert f"seed {seed}:" in line
    assert told == mix.build_switches(Switches())


def test_a_drawn_lie_that_clashed_is_printed_too() -> None:
    clash = CLASHES[0].given_up
    assert clash in render_mix(Mix(3, {}, (clash,)))[1]
    assert render_mix(None) == []


def test_what_is_set_outlives_the_mix() -> None:
    mix = draw_mix(0)
    name, value = next(iter(mix.values.items()))
    default = Switches().model_dump(mode="json")[name]
    assert value != default
    settings = EmulatorSettings.model_validate({"random_lies": 0, "switches": {name: default}})
    assert settings.build_switches().model_dump(mode="json")[name] == default
    assert EmulatorSettings(random_lies=0).build_switches() == mix.build_switches(Switches())

"""
`agentterminal demo`: the product in half a minute, on this machine.

Problem: a demo that only prints proves nothing. Promise: every command that is shown is run as it stands, by a shell,
against a real API server; after each step the demo asks for itself whether it came out as told, the kernel included,
and ends with 1 and one sentence where it did not.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from signal import Signals
from typing import Final

import click

from controller.cli.telling import Teller, telling
from controller.cli.worlds import PLAIN_HELP, build_world, find_examples, render_apply
from controller.clock import Clock, SystemClock
from controller.errors import AgentTerminalError
from controller.lab.board import Row, build_rows
from controller.lab.control_plane import Completed
from controller.lab.emulator import Isolation
from controller.lab.process_table import find_process, is_ignoring
from controller.lab.processes import run_until_signalled
from controller.lab.world import SPRITE, HoldTask, World, WorldFailed

EXPECTED: Final = ("adopted", "launched", "stubborn")
STUBBORN: Final = "stubborn"
LAUNCHED: Final = "launched"
EXPIRE_SECONDS: Final = 30
REFRESH_SECONDS: Final = 5
"""The shortest that `spec.hold` allows: a renewal is worth seeing, and not worth waiting for."""
IDLE_SECONDS: Final = 3
STEP_WITHIN: Final = timedelta(seconds=30)
"""What is awaited takes less than a second each on an idle machine."""
LOOK_INTERVAL: Final = timedelta(milliseconds=250)


class DemoFailed(AgentTerminalError):
    """A step did not come out as it was told."""


@click.command(name="demo")
@click.option("--plain", is_flag=True, help=PLAIN_HELP)
def demo_command(*, plain: bool) -> int:
    """
    Watch three terminals live and die: a real API server, the operator, and real processes, all on this machine.

    One terminal is launched, one is adopted, and one ignores SIGTERM until `kubectl patch` ends it. One is held awake
    while somebody watches, and reaped when nobody does. Every command that is shown is run as it stands. It needs no
    account and no cluster, and when it has ended, no process and no file of it is left but for the binaries in the
    cache folder.

    Exit code: 0 when everything came out as told; 1 when something did not; 130 (Ctrl-C), 143 (SIGTERM) or 129
    (hang-up) when it was ended before.
    """

    async def work() -> None:
        with telling() as teller:
            await tell(teller, SystemClock(), plain=plain)

    received = asyncio.run(run_until_signalled(work()))
    return 0 if received is None else 128 + received


async def tell(teller: Teller, clock: Clock, *, plain: bool) -> None:
    """Tell everything, from the start of the world to the proof that nothing of it is left."""
    world = await build_world(plain=plain)
    started = clock.monotonic()
    teller.say("Starting etcd, kube-apiserver, a local Sprites API, and the operator with its own, least rights.")
    async with world:
        ready = clock.monotonic()
        teller.say(
            f"Ready after {(ready - started).total_seconds():.0f} s. Sprite {SPRITE} runs session"
            f" {world.hand_made_session}, which somebody started by hand."
        )
        async with guarded(world), watching(world, teller):
            await Story(world, teller).tell()
        teller.say("Stopping the operator, the API server, etcd and the Sprites API.")
    left = world.find_left()
    if left:
        raise DemoFailed(f"The demo ended, but this was left: {', '.join(left)}.")
    took = (clock.monotonic() - started).total_seconds()
    teller.say(f"Done in {took:.0f} s. All {world.seen_processes} processes have ended and no file is left.")
    teller.say("To try it yourself: make lab")


@asynccontextmanager
async def guarded(world: World) -> AsyncIterator[None]:
    """Fail as soon as a part of the world ends by itself, instead of waiting for what cannot come any more."""

    async def guard() -> None:
        raise WorldFailed(await world.wait_ended())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(guard())
        yield
        task.cancel()


@asynccontextmanager
async def watching(world: World, teller: Teller) -> AsyncIterator[None]:
    """Keep the table up to date while something else happens."""

    async def watch() -> None:
        while True:
            teller.show_rows(await read_rows(world))
            await asyncio.sleep(LOOK_INTERVAL.total_seconds())

    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch())
        yield
        task.cancel()
    teller.show_rows(await read_rows(world))


async def read_rows(world: World) -> tuple[Row, ...]:
    """Read how objects, sessions and processes stand now."""
    return build_rows(await world.read_terminals(), await world.read_processes())


@dataclass(frozen=True)
class Story:
    """The steps, in their order."""

    world: World
    teller: Teller

    async def tell(self) -> None:
        """Tell them all."""
        await self.apply()
        if self.world.isolation is Isolation.PLAIN:
            self.teller.say("Without namespaces a sprite has no Tasks API of its own, so no hold is shown here.")
        else:
            await self.hold()
        await self.reap()
        process = await self.ask_politely()
        await self.terminate(process)
        await self.show_proof()
        await self.delete()

    async def apply(self) -> None:
        """Three objects become three live sessions."""
        self.teller.say(
            "Three terminals are declared: one is launched, one adopts session"
            f" {self.world.hand_made_session}, and one launches a process that traps SIGTERM."
        )
        await self.run(render_apply(find_examples(), self.world.hand_made_session, here=Path.cwd()))
        await self.run("kubectl wait aterm --all --for=condition=Ready --timeout=30s")
        await self.run("kubectl get aterm -o wide")
        rows = await self.keep_rows()
        for name in EXPECTED:
            row = rows.get(name)
            if row is None or row.process is None:
                raise DemoFailed(f"Terminal {name} is Ready, but no process of it runs.")
        if rows["adopted"].session != self.world.hand_made_session:
            raise DemoFailed(f"Terminal adopted has session {rows['adopted'].session}, which is not the one it names.")

    async def hold(self) -> None:
        """A task of ours keeps the sprite awake while somebody watches; it is renewed, and it goes."""
        self.teller.say(
            f"Somebody watches {LAUNCHED} and wants its sprite kept awake. A hold lasts {EXPIRE_SECONDS} s unless it is"
            " renewed:"
        )
        times = f'"hold":{{"expireSeconds":{EXPIRE_SECONDS},"refreshSeconds":{REFRESH_SECONDS}}}'
        await self.run(
            f"""kubectl patch aterm {LAUNCHED} --type=merge"""
            f""" -p '{{"spec":{{"attached":true,"holdWanted":true,{times}}}}}'"""
        )
        await self.run(f"kubectl wait aterm {LAUNCHED} --for=condition=Held --timeout=30s")
        await self.run(f"kubectl get aterm {LAUNCHED} -o wide", shows="Held")
        task = await self.find_task("The object says Held, but the sprite has no task.")
        self.teller.say(f"Created: the sprite itself lists task {task.name}, which ends at {_tell_time(task)}.")
        renewed = await self.find_task("The hold was not renewed.", ends_after=task.expires)
        if renewed.name != task.name:
            raise DemoFailed(f"Instead of a renewal of task {task.name} there is {renewed.name}.")
        self.teller.say(f"Renewed: the same task now ends at {_tell_time(renewed)}, whatever happens to the operator.")
        await self.run(
            f"""kubectl patch aterm {LAUNCHED} --type=merge -p '{{"spec":{{"attached":false,"holdWanted":false}}}}'"""
        )
        await self.run(f"kubectl wait aterm {LAUNCHED} --for=condition=Held=false --timeout=30s")
        tasks = await self.world.read_tasks()
        if tasks:
            raise DemoFailed(f"The object says that nothing is held, but the sprite has task {tasks[0].name}.")
        self.teller.say(f"Released: sprite {SPRITE} has no task any more, and may pause.")

    async def reap(self) -> None:
        """What nobody watches for long enough ends, with the same proof."""
        process = await self.find_process_of(LAUNCHED)
        identity = find_process(process)
        self.teller.say(f"Nobody watches {LAUNCHED} any more. After {IDLE_SECONDS} s of that it is reaped:")
        await self.run(
            f"""kubectl patch aterm {LAUNCHED} --type=merge -p '{{"spec":{{"idleTimeoutSeconds":{IDLE_SECONDS}}}}}'"""
        )
        await self.run(f"kubectl wait aterm {LAUNCHED} --for=jsonpath='{{.status.phase}}'=Exited --timeout=30s")
        await self.run(f"kubectl get aterm {LAUNCHED} -o wide", shows="Reaped")
        if identity is None or identity.is_alive():
            raise DemoFailed(f"Terminal {LAUNCHED} says Reaped, but its process {process} was not there or lives.")

    async def ask_politely(self) -> int:
        """SIGTERM changes nothing; return the process that ignores it."""
        process = await self.find_process_of(STUBBORN)
        await self.wait_until(
            lambda: is_ignoring(process, Signals.SIGTERM), f"Process {process} did not begin to ignore SIGTERM."
        )
        self.teller.say(f"The process of {STUBBORN} is {process} on this machine. Asked politely to end, it stays:")
        await self.run(f"kill -TERM {process}")
        await self.run(f"ps -o pid,stat,args -p {process}", shows=str(process))
        return process

    async def terminate(self, process: int) -> None:
        """A patch ends it, and the condition says so only when it is true."""
        identity = find_process(process)
        self.teller.say("One patch ends it. Terminated turns True only after SIGKILL and a later, second look:")
        await self.run(f"""kubectl patch aterm {STUBBORN} --type=merge -p '{{"spec":{{"terminated":true}}}}'""")
        await self.run(f"kubectl wait aterm {STUBBORN} --for=condition=Terminated --timeout=30s")
        if identity is None or identity.is_alive():
            raise DemoFailed(f"Terminal {STUBBORN} says Terminated, but its process {process} was not there or lives.")
        self.teller.say("The kernel agrees: there is no such process any more, and ps ends with 1.")
        await self.run(f"ps -o pid,stat,args -p {process}", code=1)

    async def show_proof(self) -> None:
        """The object tells what was done and how it was proven."""
        self.teller.say("The proof stands in the object, and the adopted one is as it was:")
        await self.run("kubectl get aterm -o wide", shows="Confirmed")
        # From the kill on: what comes before it, spec and conditions, is long.
        await self.run(f"kubectl describe aterm {STUBBORN} | sed -n '/^  Kill:/,$p'", shows="SIGKILL")
        rows = await self.keep_rows()
        for name in EXPECTED:
            dead = name in (STUBBORN, LAUNCHED)
            if name not in rows or (rows[name].process is None) != dead:
                raise DemoFailed(f"Terminal {name} should {'be dead' if dead else 'live'}, and does not.")

    async def delete(self) -> None:
        """Deleting an object ends its session, and waits for the proof."""
        self.teller.say("Deleting the objects ends the adopted session as well, again with proof:")
        await self.run("kubectl delete aterm --all --timeout=30s")
        processes = await self.world.read_processes()
        if processes:
            raise DemoFailed(f"Every object is deleted, but {len(processes)} processes live in sprite {SPRITE}.")
        self.teller.say(f"Sprite {SPRITE} is empty: not one process is left in it.")

    async def run(self, line: str, *, code: int = 0, shows: str = "") -> Completed:
        """
        Show a command and run it as it stands.

        Raises:
            DemoFailed: It ended otherwise than with `code`, or did not write what it should show.
        """
        self.teller.show_command(line)
        done = await self.world.run(line)
        self.teller.show_output(done.stdout)
        if done.code != code:
            raise DemoFailed(f"`{line}` ended with {done.code} instead of {code}.")
        if shows not in done.stdout:
            raise DemoFailed(f"`{line}` did not show {shows}.")
        return done

    async def keep_rows(self) -> Mapping[str | None, Row]:
        """Read how things stand now, print it into the story, and give it by the objects' names."""
        rows = await read_rows(self.world)
        self.teller.keep_rows(rows)
        return {row.name: row for row in rows}

    async def find_process_of(self, name: str) -> int:
        """Find the process of an object's session, as this machine numbers it."""
        for row in await read_rows(self.world):
            if row.name == name and row.process is not None:
                return row.process.host_pid
        raise DemoFailed(f"Terminal {name} has no process.")

    async def find_task(self, otherwise: str, *, ends_after: datetime | None = None) -> HoldTask:
        """Wait for the sprite's one task, or for a renewal of it."""
        try:
            async with asyncio.timeout(STEP_WITHIN.total_seconds()):
                while True:
                    for task in await self.world.read_tasks():
                        if ends_after is None or task.expires > ends_after:
                            return task
                    await asyncio.sleep(LOOK_INTERVAL.total_seconds())
        except TimeoutError:
            raise DemoFailed(otherwise) from None

    async def wait_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Wait for something that sends no event."""
        try:
            async with asyncio.timeout(STEP_WITHIN.total_seconds()):
                while not condition():  # noqa: ASYNC110 - the kernel has no event for it
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise DemoFailed(otherwise) from None


def _tell_time(task: HoldTask) -> str:
    return f"{task.expires:%H:%M:%S} UTC"

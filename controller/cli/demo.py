"""
`agentterminal demo`: the product in half a minute, on this machine.

Problem: a demo that only prints proves nothing. Promise: every command that is shown is run as it stands, by a shell,
against a real API server; after each step the demo asks for itself whether it came out as told, the kernel included,
and ends with 1 and one sentence where it did not.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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
from controller.lab.window import Window
from controller.lab.world import PEOPLE, SPRITE, HoldTask, World, WorldFailed

ADOPTED: Final = "adopted"
EXPECTED: Final = (ADOPTED, "launched", "stubborn")
STUBBORN: Final = "stubborn"
LAUNCHED: Final = "launched"
EXPIRE_SECONDS: Final = 30
REFRESH_SECONDS: Final = 5
"""The shortest that `spec.hold` allows: a renewal is worth seeing, and not worth waiting for."""
IDLE_SECONDS: Final = 3
KEY_INTERVAL: Final = timedelta(milliseconds=50)
"""Between two lines of somebody who goes on typing while they are replaced."""
DETACH_KEYS: Final = "\x10\x11"
THROWN_OUT: Final = 255
"""What the client ends with where the socket was closed on it."""
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

    One terminal is launched, one is adopted, and one ignores SIGTERM until `kubectl patch` ends it. People attach
    through the gateway, take over from one another and are thrown out. One terminal is held awake while somebody
    watches, and reaped when nobody does. Every command that is shown is run as it stands. It needs no
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
    teller.say("Starting etcd, kube-apiserver, a local Sprites API, and operator and gateway with their least rights.")
    async with world:
        ready = clock.monotonic()
        teller.say(
            f"Ready after {(ready - started).total_seconds():.0f} s. Sprite {SPRITE} runs session"
            f" {world.hand_made_session}, a shell that somebody started by hand."
        )
        async with guarded(world), watching(world, teller):
            await Story(world, teller).tell()
        teller.say("Stopping gateway, operator, API server, etcd and the Sprites API.")
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
    clock: Clock = field(default_factory=SystemClock)

    async def tell(self) -> None:
        """Tell them all."""
        await self.apply()
        await self.attach()
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
        if rows[ADOPTED].session != self.world.hand_made_session:
            raise DemoFailed(f"Terminal {ADOPTED} has session {rows[ADOPTED].session}, which is not the one it names.")

    async def attach(self) -> None:
        """People attach through the gateway: one types, one looks on, one takes over and is thrown out by a patch."""
        roles = ", ".join(f"{person} as {role}" for person, role in PEOPLE.items())
        self.teller.say(
            f"People attach with their kubeconfigs alone ({roles}), each in a terminal of their own. Anna types:"
        )
        anna = await self.sit_down("anna", f"agentterminal attach {ADOPTED}", "You are attached to")
        await self.type_sum(anna, "anna", 6)
        self.teller.say("Carla looks on. What she types goes nowhere:")
        carla = await self.sit_down("carla", f"kubectl aterm view {ADOPTED}", "6 times 7 is 42")
        carla.type("rm notes\r")
        await carla.wait_shown("You only look on: what you type is not sent.", within=STEP_WITHIN)
        self.show_window("carla", carla)
        await self.take_over(anna)
        await self.leave(carla)

    async def take_over(self, anna: Window) -> None:
        """Whoever is replaced is told so, and nothing of what they still type arrives after the other's first key."""
        self.teller.say("Bert takes over while Anna goes on typing. Anna is told so, and her socket is closed:")
        bert, typed = await self.replace(anna)
        code = await anna.wait_ended(within=STEP_WITHIN)
        self.show_window("anna", anna)
        if code != THROWN_OUT or "Another socket speaks for this terminal now." not in anna.text:
            raise DemoFailed(f"Anna was replaced, and her client ended with {code} and without saying so.")
        await self.type_sum(bert, "bert", 7)
        received = await self.world.read_received(self.world.hand_made_session)
        arrived = judge_input(received, typed)
        self.teller.say(
            f"Of the {typed} lines that Anna typed meanwhile, the sprite received the first {arrived}, all of them"
            " before Bert's first key, and none after it."
        )
        await self.throw_out(bert)

    async def replace(self, anna: Window) -> tuple[Window, int]:
        """Let Bert take over while Anna types a line after the other; tell how many she typed."""
        bert = await self.sit_down("bert", f"agentterminal attach {ADOPTED} --takeover")
        typed = 0
        end = self.clock.monotonic() + STEP_WITHIN
        while not anna.has_ended and self.clock.monotonic() < end:
            typed += 1
            anna.type(f": anna {typed}\r")
            await asyncio.sleep(KEY_INTERVAL.total_seconds())
        await bert.wait_shown("You are attached to", within=STEP_WITHIN)
        return bert, typed

    async def throw_out(self, bert: Window) -> None:
        """A patch by hand closes the socket at once."""
        self.teller.say("Who speaks stands in the object. A patch that names nobody throws whoever types out:")
        await self.run(
            f"""kubectl patch aterm {ADOPTED} --type=merge"""
            """ -p '{"spec":{"activeSocketId":"","attached":false}}'"""
        )
        patched = self.clock.monotonic()
        code = await bert.wait_ended(within=STEP_WITHIN)
        took = (self.clock.monotonic() - patched).total_seconds()
        self.show_window("bert", bert)
        if code != THROWN_OUT or "This socket was thrown out: the terminal names nobody." not in bert.text:
            raise DemoFailed(f"Bert was thrown out, and his client ended with {code} and without saying so.")
        self.teller.say(f"Bert was out {took:.1f} s after the patch. Carla, who only looks, leaves by ctrl-p ctrl-q:")

    async def leave(self, carla: Window) -> None:
        """Who looks on leaves by the detach keys, and then nobody is attached."""
        carla.take_lines()
        carla.type(DETACH_KEYS)
        code = await carla.wait_ended(within=STEP_WITHIN)
        self.show_window("carla", carla)
        if code != 0:
            raise DemoFailed(f"Carla left, and her client ended with {code} instead of 0.")
        await self.run(f"kubectl wait aterm {ADOPTED} --for=condition=Attached=false --timeout=30s")

    async def sit_down(self, person: str, line: str, shows: str = "") -> Window:
        """Show a line and run it in a terminal of one of the people; wait until it shows a text."""
        self.teller.show_command(line)
        window = await self.world.open_window(line, person=person)
        await window.wait_shown(shows, within=STEP_WITHIN)
        return window

    async def type_sum(self, window: Window, person: str, factor: int) -> None:
        """Let somebody type a line whose answer only the shell on the other side can give."""
        window.type(f'echo "{factor} times 7 is $(({factor} * 7))"\r')
        await window.wait_shown(f"{factor} times 7 is {factor * 7}", within=STEP_WITHIN)
        self.show_window(person, window)

    def show_window(self, person: str, window: Window) -> None:
        """Show what is new in somebody's terminal, but for lines typed without end."""
        lines = [line for line in window.take_lines() if ": anna" not in line]
        self.teller.show_output("".join(f"{person} | {line}\n" for line in lines))

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


def judge_input(received: str, typed: int) -> int:
    """
    Tell how many of Anna's lines arrived: in their order, without a gap, and all of them before Bert's first. Pure.

    Args:
        received: All input that arrived at the session.
        typed: How many lines she typed.

    Raises:
        DemoFailed: They came otherwise.
    """
    before, bert, after = received.partition('echo "7 times 7')
    arrived = [int(number) for number in re.findall(r": anna (\d+)\r", before)]
    if not bert or ": anna" in after:
        raise DemoFailed("Input of whoever was replaced arrived after that of whoever took over.")
    if "rm notes" in received:
        raise DemoFailed("Input of somebody who only looks arrived.")
    if arrived != list(range(1, len(arrived) + 1)) or len(arrived) > typed:
        raise DemoFailed(f"Of the {typed} lines that Anna typed these arrived: {arrived}.")
    return len(arrived)


def _tell_time(task: HoldTask) -> str:
    return f"{task.expires:%H:%M:%S} UTC"

"""
The seam between a sprite and its processes, with the real side of it.

Problem: a sprite's sessions must be startable, signalled, frozen and ended together, as real processes or, for
benchmarks, as records. Promise: `World` says what a sprite needs of either; `RealWorld` starts `inside.py` as the
first process of fresh namespaces and speaks with it; when the emulator dies, however, the socket between them ends,
and with it everything inside.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from controller.errors import AgentTerminalError
from controller.lab.emulator.frames import Stream
from controller.lab.emulator.ports import find_descendants, read_ports
from controller.lab.emulator.settings import DEFAULT_PATH, Isolation
from controller.lab.emulator.switches import KillReach

INSIDE: Final = Path(__file__).with_name("inside.py")
FRAME_BYTES: Final = 1 << 18
READ_BYTES: Final = 1 << 16
PENDING_BYTES: Final = 1 << 20
"""How much input is kept for a process that does not read, before its client has to wait."""
START_PATIENCE: Final = timedelta(seconds=20)
"""A first process is ready after 40 ms; a machine that runs a whole control plane beside it may need longer."""
END_PATIENCE: Final = timedelta(seconds=10)


class NamespacesMissing(AgentTerminalError):
    """This system gives us no namespaces; the text names the ways out."""


class WorldLost(AgentTerminalError):
    """The sprite's first process has ended under us."""


class SpawnRefused(AgentTerminalError):
    """The command could not be started."""


@dataclass(frozen=True)
class Command:
    """What to start in a sprite."""

    argv: tuple[str, ...]
    path: str
    directory: str
    environment: dict[str, str]
    tty: bool
    stdin: bool
    rows: int = 24
    cols: int = 80


@dataclass(frozen=True)
class ProcessEntry:
    """A line of the process table. In plain mode the inner id equals the host's; records have no host id."""

    host_pid: int | None
    inner_pid: int
    parent_pid: int
    state: str
    argv: tuple[str, ...] = field(repr=False)


class Process(Protocol):
    """A session's leader with its streams."""

    pid: int
    command: str
    exited: "asyncio.Future[int]"
    """The exit code; 128 and the signal's number where a signal ended it."""

    def start(self, on_output: Callable[[Stream, bytes], None], on_drained: Callable[[], None]) -> None:
        """Begin to hand on output; `on_drained` comes once, after the last of it."""

    def hold_output(self, *, held: bool) -> None:
        """Stop or go on reading, so that the process is held up by its full pipe."""

    async def write(self, data: bytes) -> None:
        """Hand input to the process, waiting while it does not read; input for a gone process is dropped."""

    def end_input(self) -> None:
        """Close its standard input (not on a TTY)."""

    def resize(self, rows: int, cols: int) -> None:
        """Give its terminal another size."""

    def close(self) -> None:
        """Let go of its streams."""


class World(Protocol):
    """The processes of one sprite between two cold starts."""

    async def spawn(self, command: Command) -> Process:
        """Start a command or raise `SpawnRefused`."""

    async def signal(self, pid: int, number: int, reach: KillReach) -> tuple[int, ...]:
        """Send a signal; return the inner processes and groups (negative) it reached, none where it has ended."""

    async def freeze(self) -> None:
        """Let nothing inside run until `thaw`."""

    async def thaw(self) -> None:
        """Let everything inside go on."""

    async def end(self) -> None:
        """End everything inside; it is gone when this returns."""

    def read_ports(self, leader: int) -> dict[int, int]:
        """List the ports that a leader and its descendants listen on, with the inner id of the process."""

    def read_table(self) -> list[ProcessEntry]:
        """List what runs inside, the first process excepted."""


class RealProcess:
    """A leader in a namespace, reached through the outer ends of its streams."""

    def __init__(self, pid: int, command: str, descriptors: Sequence[int], *, tty: bool, stdin: bool) -> None:
        self.pid = pid
        self.command = command
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self._tty = tty
        self._input: int | None
        if tty:
            self._input = descriptors[0]
            self._outputs = {descriptors[0]: Stream.STDOUT}
        else:
            self._input = descriptors[0] if stdin else None
            out, err = descriptors[-2:]
            self._outputs = {out: Stream.STDOUT, err: Stream.STDERR}
        self._open = set(descriptors)
        for descriptor in descriptors:
            os.set_blocking(descriptor, False)
        self._on_output: Callable[[Stream, bytes], None] | None = None
        self._on_drained: Callable[[], None] | None = None
        self._held = False
        self._pending = bytearray()
        self._input_ends = False
        self._room: asyncio.Future[None] | None = None

    def start(self, on_output: Callable[[Stream, bytes], None], on_drained: Callable[[], None]) -> None:
        """Begin to hand on output."""
        self._on_output, self._on_drained = on_output, on_drained
        self._watch()

    def hold_output(self, *, held: bool) -> None:
        """Stop or go on reading."""
        if held != self._held:
            self._held = held
            self._watch()

    async def write(self, data: bytes) -> None:
        """Hand input over; beyond what is kept for a process that does not read, wait."""
        if self._input is None or self._input_ends:
            return
        self._pending += data
        self._flush()
        while len(self._pending) > PENDING_BYTES and self._input is not None:
            self._room = self._loop.create_future()
            waiting: list[asyncio.Future[Any]] = [self._room, self.exited]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.exited.done():
                return

    def end_input(self) -> None:
        """Close standard input after what is pending; a TTY has none of its own."""
        if not self._tty and self._input is not None:
            self._input_ends = True
            self._flush()

    def resize(self, rows: int, cols: int) -> None:
        """Set the size; the kernel tells the foreground group."""
        if self._tty and self._input is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def close(self) -> None:
        """Let go of all streams."""
        self._on_output = self._on_drained = None
        self._input = None
        self._outputs.clear()
        for descriptor in list(self._open):
            self._shut(descriptor)

    def _flush(self) -> None:
        """Write what the process takes now, and come back when it takes more."""
        descriptor = self._input
        if descriptor is None:
            return
        try:
            while self._pending:
                del self._pending[: os.write(descriptor, self._pending)]
        except BlockingIOError:
            self._loop.add_writer(descriptor, self._flush)
        except OSError:
            self._pending.clear()  # EPIPE and EIO: nobody reads any more, as with a process that has ended.
        if not self._pending:
            self._loop.remove_writer(descriptor)
            if self._input_ends:
                self._input = None
                self._shut(descriptor)
        if self._room is not None and not self._room.done() and len(self._pending) <= PENDING_BYTES:
            self._room.set_result(None)

    def _watch(self) -> None:
        for descriptor in self._outputs:
            if self._held or self._on_output is None:
                self._loop.remove_reader(descriptor)
            else:
                self._loop.add_reader(descriptor, self._read, descriptor)

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # EIO: the last slave side of the terminal is closed.
        if data:
            if self._on_output is not None:
                self._on_output(self._outputs[descriptor], data)
            return
        del self._outputs[descriptor]
        if descriptor == self._input:
            self._input = None
        self._shut(descriptor)
        if not self._outputs and self._on_drained is not None:
            self._on_drained()

    def _shut(self, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        self._loop.remove_writer(descriptor)
        self._open.discard(descriptor)
        os.close(descriptor)


class RealWorld:
    """The processes in one set of namespaces (or, in plain mode, below one process)."""

    def __init__(
        self,
        popen: "subprocess.Popen[bytes]",
        control: socket.socket,
        *,
        host_pid: int,
        namespaces: bool,
        on_lost: Callable[[], None],
    ) -> None:
        self.host_pid = host_pid
        self._popen = popen
        self._control = control
        self._namespaces = namespaces
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._answers: dict[int, tuple[asyncio.Future[dict[str, Any]], Command | None]] = {}
        self._spawned: dict[int, RealProcess] = {}
        self._processes: dict[int, RealProcess] = {}
        self._number = 0
        self._ending = False
        self._loop.add_reader(control, self._read)

    async def spawn(self, command: Command) -> RealProcess:
        """Start a command inside."""
        request = {
            "op": "spawn",
            "argv": command.argv,
            "path": command.path,
            "dir": command.directory,
            "env": command.environment,
            "tty": command.tty,
            "stdin": command.stdin,
            "rows": command.rows,
            "cols": command.cols,
        }
        number, answer = await self._ask(request, command)
        if (text := answer.get("error")) is not None:
            raise SpawnRefused(str(text))
        return self._spawned.pop(number)

    async def signal(self, pid: int, number: int, reach: KillReach) -> tuple[int, ...]:
        """Send a signal from inside, where the id means the session."""
        _, answer = await self._ask({"op": "signal", "pid": pid, "signal": number, "reach": reach.value})
        return tuple(answer.get("pids", ()))

    async def freeze(self) -> None:
        """Stop all processes inside."""
        await self._ask({"op": "freeze"})

    async def thaw(self) -> None:
        """Continue all processes inside."""
        await self._ask({"op": "thaw"})

    async def end(self) -> None:
        """
        Let go of the first process, and wait until it is gone with everything inside.

        The kernel ends a pid namespace before it lets anybody see the end of its first process.
        """
        self._ending = True
        self._let_go()
        try:
            await asyncio.to_thread(self._popen.wait, END_PATIENCE.total_seconds())
        except subprocess.TimeoutExpired:
            self._popen.kill()
            await asyncio.to_thread(self._popen.wait, END_PATIENCE.total_seconds())

    def read_table(self) -> list[ProcessEntry]:
        """Read the host's /proc for what shares the first process's pid namespace, or descends from it."""
        return read_namespace(self.host_pid) if self._namespaces else read_descendants(self.host_pid)

    def read_ports(self, leader: int) -> dict[int, int]:
        """Read the host's /proc for the sockets of a session."""
        table = self.read_table()
        inside = find_descendants(leader, {entry.inner_pid: entry.parent_pid for entry in table})
        wanted = [(entry.host_pid, entry.inner_pid) for entry in table if entry.inner_pid in inside]
        return read_ports((host_pid, inner_pid) for host_pid, inner_pid in wanted if host_pid is not None)

    async def _ask(self, request: dict[str, Any], command: Command | None = None) -> tuple[int, dict[str, Any]]:
        self._number += 1
        number = self._number
        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._answers[number] = (future, command)
        message = orjson.dumps({"n": number, **request})
        try:
            await self._send(message)
            return number, await future
        finally:
            self._answers.pop(number, None)

    async def _send(self, message: bytes) -> None:
        if len(message) >= FRAME_BYTES:
            raise SpawnRefused("argument list too long")
        while True:
            try:
                self._control.send(message)
            except BlockingIOError:
                await _wait_writable(self._control)
            except OSError as error:
                if isinstance(error, (BrokenPipeError, ConnectionResetError)) or self._control.fileno() < 0:
                    raise WorldLost("The sprite's processes have ended.") from error
                raise SpawnRefused(f"argument list too long ({error.strerror})") from error
            else:
                return

    def _read(self) -> None:
        while True:
            try:
                message, descriptors, _ = receive(self._control)
            except BlockingIOError:
                return
            except ConnectionError:
                message, descriptors = b"", []
            if not message:
                self._let_go()
                if not self._ending:
                    self._on_lost()
                return
            self._take(orjson.loads(message), descriptors)

    def _take(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "ended" in message:
            process = self._processes.pop(message["ended"], None)
            if process is not None and not process.exited.done():
                process.exited.set_result(message["code"])
            return
        future, command = self._answers.get(message["n"], (None, None))
        if "pid" in message and command is not None:
            # Made here and not by the waiting caller: its end may be the very next message.
            process = RealProcess(message["pid"], message["command"], descriptors, tty=command.tty, stdin=command.stdin)
            self._processes[process.pid] = self._spawned[message["n"]] = process
        else:
            for descriptor in descriptors:
                os.close(descriptor)
        if future is not None and not future.done():
            future.set_result(message)

    def _let_go(self) -> None:
        if self._control.fileno() < 0:
            return
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        for future, _ in self._answers.values():
            if not future.done():
                future.set_exception(WorldLost("The sprite's processes have ended."))
        for process in self._processes.values():
            if not process.exited.done():
                process.exited.set_result(137)
        self._processes.clear()


def receive(control: socket.socket) -> tuple[bytes, list[int], int | None]:
    """Take one message, the descriptors that came with it, and the host's id of its sender."""
    space = socket.CMSG_SPACE(16 * 4) + socket.CMSG_SPACE(12)
    message, ancillary, _, _ = control.recvmsg(FRAME_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    descriptors: list[int] = []
    sender: int | None = None
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.extend(struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4]))
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            sender = struct.unpack("3i", data[:12])[0]
    return message, descriptors, sender


def build_command(isolation: Isolation, descriptor: int, settings: dict[str, Any]) -> list[str]:
    """Write the command line that starts a first process in this kind of isolation."""
    python = [sys.executable, "-I", "-S", "-E", str(INSIDE), str(descriptor), orjson.dumps(settings).decode()]
    if isolation is Isolation.PLAIN:
        return python
    unshare = shutil.which("unshare")
    if unshare is None:
        raise NamespacesMissing("unshare (of util-linux) is not on PATH.")
    user = ["--user", "--map-root-user"] if isolation is Isolation.USER else []
    return [unshare, *user, "--mount", "--pid", "--ipc", "--fork", "--kill-child", *python]


async def start_world(
    folder: Path, isolation: Isolation, on_lost: Callable[[], None], *, hidden: tuple[str, ...] = ()
) -> RealWorld:
    """
    Start a first process on this folder (`home`, `tmp`, `sprite`, `root`) and wait until its world stands.

    Args:
        hidden: Programs that this world has not; `sprite/bin/missing` lies over them.

    Raises:
        NamespacesMissing: The system does not allow it; the text says at which step.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)  # noqa: FBT003 - the standard library takes it so
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    namespaces = isolation is not Isolation.PLAIN
    settings = {"namespaces": namespaces, "folder": str(folder), "search": DEFAULT_PATH, "hidden": hidden}
    complaints = folder / "complaints"
    try:
        with theirs, complaints.open("wb") as stderr:
            popen = subprocess.Popen(  # noqa: S603, ASYNC220 - our own script; the fork takes 2 ms
                build_command(isolation, theirs.fileno(), settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd="/",
                # Nothing of ours: a process inside can read its first process's environment.
                env={"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"},
            )
    except BaseException:
        ours.close()
        raise
    text, host_pid = "", 0
    try:
        async with asyncio.timeout(START_PATIENCE.total_seconds()):
            await _wait_readable(ours)
        message, _, sender = receive(ours)
        answer = orjson.loads(message) if message else {}
        host_pid, text = sender or popen.pid, answer.get("failed") or ("" if answer else complaints.read_text())
    except TimeoutError:
        text = "the first process does not answer"
    except BaseException:
        ours.close()
        popen.kill()
        raise
    if text or not answer:
        ours.close()
        popen.kill()
        await asyncio.to_thread(popen.wait)
        raise NamespacesMissing(text.strip() or "the first process ended at once")
    return RealWorld(popen, ours, host_pid=host_pid, namespaces=namespaces, on_lost=on_lost)


async def _wait_readable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(control, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(control)


async def _wait_writable(control: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(control, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        if control.fileno() >= 0:
            loop.remove_writer(control)


def build_folder(folder: Path) -> None:
    """Make the folders of a sprite: its disk (`home`, `tmp`), its socket's place, and a mount point."""
    for name in ("home", "tmp", "sprite/bin", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "tmp").chmod(0o1777)


def _read_entry(pid: int) -> tuple[ProcessEntry, int] | None:
    """Read one process as the host sees it, and the host's id of its parent; one that has ended is None."""
    try:
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return None
    # It has no words in the instant in which it becomes another program, nor as a zombie, but a name, as `ps` shows.
    argv = tuple(word.decode(errors="replace") for word in words) or (f"[{status['Name']}]",)
    inner = int(status["NSpid"].split()[-1])
    return ProcessEntry(pid, inner, 0, status["State"][0], argv), int(status["PPid"])


def _read_host() -> dict[int, tuple[ProcessEntry, int]]:
    entries = ((int(path.name), _read_entry(int(path.name))) for path in Path("/proc").iterdir() if path.name.isdigit())
    return {pid: entry for pid, entry in entries if entry is not None}


def _with_parent(pid: int, host: dict[int, tuple[ProcessEntry, int]]) -> ProcessEntry:
    entry, parent = host[pid]
    inner_parent = host[parent][0].inner_pid if parent in host else 0
    return ProcessEntry(entry.host_pid, entry.inner_pid, inner_parent, entry.state, entry.argv)


def read_namespace(first: int) -> list[ProcessEntry]:
    """List the processes of a first process's pid namespace, by inner id."""

    def read_link(pid: int) -> str | None:
        with contextlib.suppress(OSError):
            return str(Path(f"/proc/{pid}/ns/pid").readlink())
        return None

    wanted = read_link(first)
    # Each is read as soon as it is known to be inside: a short one would have ended once all of the host were read.
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    entries = ((pid, _read_entry(pid)) for pid in numbers if wanted is not None and read_link(pid) == wanted)
    inside = {pid: entry for pid, entry in entries if entry is not None}
    return sorted((_with_parent(pid, inside) for pid in inside if pid != first), key=lambda entry: entry.inner_pid)


def read_descendants(first: int) -> list[ProcessEntry]:
    """List the descendants of a process."""
    host = _read_host()

    def descends(pid: int) -> bool:
        while pid in host:
            pid = host[pid][1]
            if pid == first:
                return True
        return False

    return sorted((_with_parent(pid, host) for pid in host if descends(pid)), key=lambda entry: entry.inner_pid)


def render_losses(reason: str) -> str:
    """Say in one sentence why there are no namespaces and what the ways out are."""
    return (
        f"This system gives the emulator no namespaces ({reason}): run it as root, allow unprivileged user namespaces, "
        "or start it with --plain, which loses the sprite's own /.sprite/api.sock, /home/sprite, /tmp and /dev/shm, "
        "session ids that come again after a cold start, and the certainty that nothing outlives a kill -9."
    )

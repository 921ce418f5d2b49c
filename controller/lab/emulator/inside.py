"""
The first process of an emulated sprite: it builds the sprite's world, starts its commands and reports their ends.

Problem: the emulator must start, freeze and end real processes whose ids begin anew with every cold start, from
outside a namespace in which those ids mean nothing. Promise: this script runs as process 1 of the namespace (or, in
plain mode, as an ordinary process that adopts its orphans), takes one JSON message at a time from a SOCK_SEQPACKET
socket, and answers each with one message that may carry file descriptors. When the other end of that socket is gone,
for whatever reason, it ends, and everything inside ends with it.

It is read by a bare interpreter (`python -I -S -E`), so it imports the standard library only and little of that.

Source: mount(2), pivot_root(2), mount_setattr(2), pid_namespaces(7), prctl(2), tty_ioctl(4).
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
from pathlib import Path
from typing import Any, Final

Message = dict[str, Any]

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2
SYS_MOUNT_SETATTR: Final = 442
"""The same number on every architecture. Source: linux/unistd.h, since 5.12."""
AT_FDCWD: Final = -100
AT_RECURSIVE: Final = 0x8000
MOUNT_ATTR_RDONLY: Final = 1
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36

FRAME_BYTES: Final = 1 << 18
"""The longest message: beyond it the emulator refuses the command."""

FREEZE_ROUNDS: Final = 10_000
"""
A process that starts others as fast as it can is caught long before that. Each round waits 1 ms: a busy machine may let
a process wait for seconds before it runs into its stop.
"""

IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Ends come from the emulator, not from a terminal or from inside."""

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount, or say in the error what could not be mounted where."""
    result = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(result, f"mount {source} at {target}")


def make_read_only(target: str) -> None:
    """Make a tree of mounts read-only; a kernel before 5.12 cannot, and then it stays as it is."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    _libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(target), AT_RECURSIVE, attributes, len(attributes))


def build_root(folder: str) -> None:
    """
    Show the machine's own system read-only, with a sprite's home, socket and temporary files over it.

    Args:
        folder: Has `root` (a mount point), `home`, `tmp` and `sprite` (the socket's folder).
    """
    root = f"{folder}/root"
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=16m")
    own = {"proc", "home", "tmp", ".sprite"}
    for entry in os.scandir("/"):
        target = f"{root}/{entry.name}"
        if entry.name in own:
            continue
        if entry.is_symlink():
            Path(target).symlink_to(Path(entry.path).readlink())
        elif entry.is_dir():
            Path(target).mkdir()
            mount(entry.path, target, "", MS_BIND | MS_REC)
            if entry.name != "dev":
                make_read_only(target)
    for name in ("proc", "tmp", ".sprite", "home"):
        Path(f"{root}/{name}").mkdir()
    Path(f"{root}/home/sprite").mkdir()
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount(f"{folder}/tmp", f"{root}/tmp", "", MS_BIND)  # noqa: S108 - the sprite's own
    mount(f"{folder}/sprite", f"{root}/.sprite", "", MS_BIND)
    mount(f"{folder}/home", f"{root}/home/sprite", "", MS_BIND)
    mount("devpts", f"{root}/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    mount(f"{root}/dev/pts/ptmx", f"{root}/dev/ptmx", "", MS_BIND)
    shared_memory = f"{root}/dev/shm"  # noqa: S108 - the sprite's own
    if Path(shared_memory).is_dir():
        mount("tmpfs", shared_memory, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    os.chdir(root)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "umount of the former root")
    os.chdir("/")


def hide_programs(names: list[str], search: str) -> None:
    """Lay over these programs, wherever they are found, what says that they are missing."""
    for name in names:
        for place in {str(Path(place).resolve()) for place in search.split(":")}:
            program = Path(place, name).resolve()
            if program.is_file():
                mount("/.sprite/bin/missing", str(program), "", MS_BIND)


def read_processes() -> dict[int, tuple[int, str]]:
    """Read the parent and the state letter of every process that /proc shows; those that end meanwhile are none."""
    found: dict[int, tuple[int, str]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted, thousands of times
        if name.isdigit():
            with contextlib.suppress(OSError):
                rest = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
                found[int(name)] = (int(rest[1]), rest[0].decode())
    return found


class World:
    """The processes of one sprite."""

    def __init__(self, control: socket.socket, settings: Message) -> None:
        self._control = control
        self._settings = settings
        self._terminals: dict[int, int | None] = {}
        """The live leaders: process id to the master side of the terminal, None for pipes."""
        self._stopped_before: set[int] = set()
        self._pause = select.poll()

    def run(self) -> None:
        """Serve until the emulator is gone, then leave nothing."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(woken, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == woken:
                    os.read(woken, 4096)
                    self._reap()
                else:
                    message = self._control.recv(FRAME_BYTES)
                    if not message:
                        self._end()
                        return
                    self._serve(json.loads(message))

    def _serve(self, request: Message) -> None:
        answer: Message = {"n": request["n"]}
        descriptors: list[int] = []
        try:
            match request["op"]:
                case "spawn":
                    descriptors = self._spawn(request, answer)
                case "signal":
                    answer["pids"] = self._signal(request["pid"], request["signal"], request["reach"])
                case "freeze":
                    self._freeze()
                case "thaw":
                    self._thaw()
                case unknown:
                    answer["error"] = f"unknown request {unknown}"
        except OSError as error:
            answer["error"] = error.strerror or str(error)
        with contextlib.suppress(BrokenPipeError):
            socket.send_fds(self._control, [json.dumps(answer).encode()], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def _spawn(self, request: Message, answer: Message) -> list[int]:
        """Start a command; the answer gets its id and resolved name, the emulator the outer ends of its streams."""
        program = self._find(request["path"], request["dir"])
        failed, fails = os.pipe()
        master: int | None = None
        if request["tty"]:
            master, slave = os.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", request["rows"], request["cols"], 0, 0))
            inner, outer = [slave, slave, slave], [os.dup(master)]
        elif request["stdin"]:
            (stdin, feed), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
            inner, outer = [stdin, stdout, stderr], [feed, out, err]
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
            (out, stdout), (err, stderr) = os.pipe(), os.pipe()
            inner, outer = [stdin, stdout, stderr], [out, err]
        pid = os.fork()
        if pid == 0:
            self._become(program, request, inner, fails)
        for descriptor in {*inner, fails}:
            os.close(descriptor)
        with open(failed, "rb") as reader:  # noqa: PTH123 - a descriptor, not a path
            failure = reader.read()
        if failure:
            for descriptor in (*outer, *(() if master is None else (master,))):
                os.close(descriptor)
            raise OSError(0, failure.decode())
        self._terminals[pid] = master
        answer["pid"] = pid
        answer["command"] = " ".join([program, *request["argv"][1:]])
        return outer

    def _find(self, path: str, folder: str) -> str:
        if "/" in path:
            return str(Path(folder, path))
        for place in self._settings["search"].split(":"):
            candidate = f"{place}/{path}"
            if os.access(candidate, os.X_OK) and not Path(candidate).is_dir():
                return candidate
        raise OSError(errno.ENOENT, f'exec: "{path}": executable file not found in $PATH')

    def _become(self, program: str, request: Message, streams: list[int], fails: int) -> None:
        """Be the command; this returns never."""
        try:
            signal.set_wakeup_fd(-1)
            # What this process ignores, and what Python does, would stay ignored across exec: a deaf command.
            for number in (*IGNORED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            if not self._settings["namespaces"]:
                _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            os.setsid()
            if request["tty"]:
                fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
            for target, stream in enumerate(streams):
                os.dup2(stream, target)
            os.chdir(request["dir"])
            os.execve(program, request["argv"], request["env"])  # noqa: S606 - this is what a sprite is for
        except (OSError, ValueError) as error:
            os.write(fails, str(error).encode())
        finally:
            os._exit(127)

    def _signal(self, pid: int, number: int, reach: str) -> list[int]:
        """Send a signal to a live session; return the processes and groups (negative) that got it."""
        if pid not in self._terminals:
            raise OSError(errno.ESRCH, "no such process")
        master = self._terminals[pid]
        foreground = pid
        if master is not None:
            with contextlib.suppress(OSError):
                foreground = os.tcgetpgrp(master) or pid
        match reach:
            case "foreground":
                targets = {-foreground: None, -pid: None}
            case "foreground-only":
                targets = {-foreground: None}
            case _:
                targets = {pid: None}
        reached = []
        for target in targets:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, number)
                reached.append(target)
        return reached

    def _inside(self) -> dict[int, tuple[int, str, int]]:
        """Read what runs inside: process id to parent, state letter and depth below this process."""
        processes = read_processes()
        me = os.getpid()
        inside: dict[int, tuple[int, str, int]] = {}
        for pid, (parent, state) in processes.items():
            depth, ancestor = 1, parent
            while ancestor not in (me, 0) and ancestor in processes:
                depth, ancestor = depth + 1, processes[ancestor][0]
            if pid != me and (ancestor == me or self._settings["namespaces"]):
                inside[pid] = (parent, state, depth)
        return inside

    def _freeze(self) -> None:
        """
        Stop everything inside, parents before their children, so that no shell sees its child stop.

        A parent has to *be* stopped first, not only to be told: one that waits would still learn of its child. What a
        user had stopped before stays stopped after the thaw. It looks twice without seeing anybody run: one that was
        started during the first look, by somebody who stopped before their turn, is only in the second.
        """
        self._stopped_before = {pid for pid, (_, state, _) in self._inside().items() if state == "T"}
        told: set[int] = set()
        quiet = 0
        for _ in range(FREEZE_ROUNDS):
            running = {pid: depth for pid, (_, state, depth) in self._inside().items() if state not in "TtZX"}
            quiet = 0 if running else quiet + 1
            if quiet == 2:
                return
            if quiet:
                continue
            next_depth = min(running.values())
            next_ones = {pid for pid, depth in running.items() if depth == next_depth}
            for pid in next_ones:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            self._pause.poll(1 if next_ones <= told else 0)
            told |= next_ones
        raise OSError(errno.EBUSY, "the processes inside do not stop")

    def _thaw(self) -> None:
        """Let everything go on, children first."""
        inside = self._inside()
        for pid in sorted(inside, key=lambda pid: -inside[pid][2]):
            if pid not in self._stopped_before:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _reap(self) -> None:
        """Report the ends of leaders; orphans end unseen."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._terminals:
                master = self._terminals.pop(pid)
                if master is not None:
                    os.close(master)
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(BrokenPipeError):
                    self._control.send(json.dumps({"ended": pid, "code": code if code >= 0 else 128 - code}).encode())

    def _end(self) -> None:
        """End everything inside. In a namespace the kernel does that at our own end, before anybody sees it."""
        if self._settings["namespaces"]:
            return
        for _ in range(FREEZE_ROUNDS):
            inside = self._inside()
            if not inside:
                return
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            self._pause.poll(1)


def main() -> None:
    """Build the world, say so, and serve."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    settings: Message = json.loads(sys.argv[2])
    for ignored in IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    try:
        if settings["namespaces"]:
            build_root(settings["folder"])
            hide_programs(settings["hidden"], settings["search"])
        else:
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except OSError as error:
        control.send(json.dumps({"failed": error.strerror or str(error)}).encode())
        return
    os.umask(0o022)
    control.send(json.dumps({"ready": os.getpid()}).encode())
    World(control, settings).run()


if __name__ == "__main__":
    main()
    os._exit(0)

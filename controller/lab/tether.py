"""
Become another program that dies with the one who asked.

Problem: a parent that is killed with SIGKILL cannot stop its children, and a `preexec_fn` that would arm them runs
Python between fork and exec, which hangs when another thread held a lock. Promise: this script runs *as* the child,
arms the kernel's death signal, makes sure that the parent was still there after that, and executes the command in the
same process, so the process id does not change. Where it is told to, it first waits for the parent's word that the
command may begin. It imports nothing but four modules of the standard library.

Usage: `python -I -S tether.py DEATH_SIGNAL PARENT_PID PERMIT_FD COMMAND...`, a `-` where nobody's word is waited for.
Exit code 127: the command could not be executed, or must not be.

Source: prctl(2), PR_SET_PDEATHSIG: kept across execve, cleared for set-user-id programs; the signal comes when the
*thread* that made the child ends. Other systems than Linux have no death signal: the command runs, and only the
ordinary ways to end reach it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Source: linux/prctl.h."""

CANNOT_EXECUTE = 127
"""As shells say it."""


def main(death_signal: int, parent: int, permit: str, command: list[str]) -> None:
    """Arm the death signal and become the command; return only where that failed."""
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        print("The kernel refuses a death signal (prctl PR_SET_PDEATHSIG).", file=sys.stderr)  # noqa: T201 - a script
        return
    if os.getppid() != parent:
        # It died before the signal was armed, so the signal will never come.
        return
    if permit != "-":
        permitted = os.read(int(permit), 1)
        os.close(int(permit))
        if not permitted:
            return
    # Python ignores these two at its start, and what is ignored stays so across exec.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    try:
        execute(command)
    except OSError as error:
        print(f"{command[0]} cannot be executed: {error.strerror}.", file=sys.stderr)  # noqa: T201 - a script


def execute(command: list[str]) -> None:
    """
    Become the command, with the environment that we were given.

    In a bare C locale Python adds LC_CTYPE to its own (PEP 538) before this script can say no; the kernel remembers
    what there was before.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib costs as much time as all the rest
            lines = os.fsdecode(file.read()).split("\0")
    except OSError:
        os.execvp(command[0], command)  # noqa: S606 - to be that command is the purpose
    given = dict(line.split("=", 1) for line in lines if "=" in line)
    os.execvpe(command[0], command, given)  # noqa: S606 - as above


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    sys.exit(CANNOT_EXECUTE)

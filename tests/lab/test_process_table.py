"""What the kernel says about a process is read without being fooled by zombies and reused ids."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from controller.lab.process_table import find_process, is_ignoring, is_stopped
from tests.support.process import await_true

THREADS = """
import threading, time
for _ in range(8):
    threading.Thread(target=time.sleep, args=(60,)).start()
print(1, flush=True)
"""
IGNORING = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"


def test_a_running_process_is_found_and_alive() -> None:
    found = find_process(os.getpid())

    assert found is not None
    assert found.pid == os.getpid()
    assert found.is_alive()


def test_another_process_under_the_same_id_is_not_the_one_that_was_found() -> None:
    found = find_process(os.getpid())

    assert found is not None
    assert not replace(found, started_ticks=found.started_ticks - 1).is_alive()


def test_a_zombie_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = find_process(child.pid)
    assert found is not None
    assert found.is_alive()
    child.kill()

    # Wait for its end and leave it as it is: nobody has reaped it yet.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert Path(f"/proc/{child.pid}").exists()
    assert not found.is_alive()
    assert find_process(child.pid) is None
    child.communicate()


def test_nothing_is_found_under_an_id_that_nobody_has() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert find_process(child.pid) is None
    assert not is_ignoring(child.pid, signal.SIGTERM)


def test_a_signal_is_ignored_by_who_said_so_and_by_nobody_else() -> None:
    with subprocess.Popen([sys.executable, "-c", IGNORING], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"

        assert is_ignoring(child.pid, signal.SIGTERM)
        assert not is_ignoring(child.pid, signal.SIGUSR1)
        child.kill()


def test_a_process_has_stopped_when_its_last_thread_has() -> None:
    child = subprocess.Popen([sys.executable, "-c", THREADS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert not is_stopped(child.pid)
        child.send_signal(signal.SIGSTOP)
        await_true(lambda: is_stopped(child.pid), "the process to stand still", poll_seconds=0.001)
        states = [(thread / "stat").read_text().split()[2] for thread in Path(f"/proc/{child.pid}/task").iterdir()]
        assert len(states) >= 8
        assert set(states) == {"T"}
        child.send_signal(signal.SIGCONT)
        await_true(lambda: not is_stopped(child.pid), "the process to go on", poll_seconds=0.001)
    finally:
        child.kill()
        child.communicate()

    assert is_stopped(child.pid)

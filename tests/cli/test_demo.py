"""The demo comes out as told, on a terminal and without one, and nothing of it stays however it ends."""

import re
import signal
from pathlib import Path

import pexpect
import pytest

from controller.clock import SystemClock
from tests.lab.watching import list_children, read_command
from tests.support.commands import AGENTTERMINAL, Sandbox, kill_quietly, open_terminal, running

pytestmark = [pytest.mark.cluster, pytest.mark.sprites, pytest.mark.timeout(240)]

BOUND_SECONDS = 180.0
"""Half a minute on an idle machine; other tests may be busy beside it."""
TRIES = 4

STORY = [
    "Starting etcd, kube-apiserver, a local Sprites API, and operator and gateway with their least rights.",
    "Ready after ",
    "Three terminals are declared: one is launched, one adopts session 2, and one launches a process that traps",
    "$ kubectl apply -f examples/\n",
    "agentterminal.agentterminal.dev/adopted created\n",
    "agentterminal.agentterminal.dev/launched created\n",
    "agentterminal.agentterminal.dev/stubborn created\n",
    "$ kubectl wait aterm --all --for=condition=Ready --timeout=30s\n",
    "agentterminal.agentterminal.dev/stubborn condition met\n",
    "$ kubectl get aterm -o wide\nNAME ",
    "People attach with their kubeconfigs alone (anna as attacher, bert as taker, carla as viewer)",
    "$ agentterminal attach adopted\n",
    "anna | [aterm] You are attached to demo/adopted; ctrl-p ctrl-q leaves it.\n",
    "anna | 6 times 7 is 42\n",
    "Carla looks on. What she types goes nowhere:\n",
    "$ kubectl aterm view adopted\n",
    "carla | 6 times 7 is 42\n",
    "carla | [aterm] You only look on: what you type is not sent.\n",
    "Bert takes over while Anna goes on typing. Anna is told so, and her socket is closed:\n",
    "$ agentterminal attach adopted --takeover\n",
    "anna | [aterm] system:serviceaccount:demo:bert takes this terminal over. Another socket speaks",
    "bert | 7 times 7 is 49\n",
    "all of them before Bert's first key, and none after it.\n",
    '$ kubectl patch aterm adopted --type=merge -p \'{"spec":{"activeSocketId":"","attached":false}}\'\n',
    "agentterminal.agentterminal.dev/adopted patched\n",
    "bert | [aterm] This socket was thrown out: the terminal names nobody.",
    "Bert was out ",
    "carla | [aterm] Detached. The session goes on: demo/adopted\n",
    "$ kubectl wait aterm adopted --for=condition=Attached=false --timeout=30s\n",
    "agentterminal.agentterminal.dev/adopted condition met\n",
    "Somebody watches launched and wants its sprite kept awake. A hold lasts 30 s unless it is renewed:\n",
    '"attached":true,"holdWanted":true,"hold":{"expireSeconds":30,"refreshSeconds":5}',
    "$ kubectl wait aterm launched --for=condition=Held --timeout=30s\n",
    "agentterminal.agentterminal.dev/launched condition met\n",
    "$ kubectl get aterm launched -o wide\n",
    "Created: the sprite itself lists task ps-hold-demo-launched-",
    "Renewed: the same task now ends at ",
    '"attached":false,"holdWanted":false',
    "$ kubectl wait aterm launched --for=condition=Held=false --timeout=30s\n",
    "Released: sprite dev has no task any more, and may pause.\n",
    "Nobody watches launched any more. After 3 s of that it is reaped:\n",
    '$ kubectl patch aterm launched --type=merge -p \'{"spec":{"idleTimeoutSeconds":3}}\'\n',
    "$ kubectl wait aterm launched --for=jsonpath='{.status.phase}'=Exited --timeout=30s\n",
    "agentterminal.agentterminal.dev/launched condition met\n",
    "Reaped\n",
    "$ kill -TERM ",
    "$ ps -o pid,stat,args -p ",
    "sh -c trap '' TERM HUP INT; while :; do sleep 1; done\n",
    '$ kubectl patch aterm stubborn --type=merge -p \'{"spec":{"terminated":true}}\'\n',
    "agentterminal.agentterminal.dev/stubborn patched\n",
    "$ kubectl wait aterm stubborn --for=condition=Terminated --timeout=30s\n",
    "agentterminal.agentterminal.dev/stubborn condition met\n",
    "The kernel agrees: there is no such process any more",
    "$ kubectl get aterm -o wide\nNAME ",
    "$ kubectl describe aterm stubborn",
    "Signal:             SIGKILL\n",
    "$ kubectl delete aterm --all --timeout=30s\n",
    '"stubborn" deleted',
    "Sprite dev is empty: not one process is left in it.",
    "processes have ended and no file is left.",
    "make lab\n",
]
"""What has to be told, in this order; rows of the table come between as they happen."""


def without_rows(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("  ") or ":  " in line)


async def test_without_a_terminal_it_tells_the_whole_story_in_plain_lines(tmp_path: Path) -> None:
    clock = SystemClock()
    started = clock.monotonic()
    async with running(tmp_path, "demo") as demo:
        await demo.read_until("Deleting the objects")
        demo.sandbox.remember(demo.process.pid)
        code = await demo.read_to_end()
    took = (clock.monotonic() - started).total_seconds()

    assert code == 0, demo.output
    assert "\x1b" not in demo.output
    told, at = without_rows(demo.output), 0
    for part in STORY:
        at = told.find(part, at)
        assert at >= 0, f"Not told, or not in its place: {part!r}\n{demo.output}"
    for row in (
        r"adopted: Detached, session 2, process \d+",
        r"adopted: Running, session 2, process \d+",
        r"launched: Held, session \d+, process \d+",
        r"launched: Exited \(Reaped\), session \d+, process -",
        r"stubborn: Terminated \(Confirmed\), session \d+, process -",
    ):
        assert re.search(row, demo.output), row
    counted = re.search(r"Of the (\d+) lines that Anna typed .* received the first (\d+),", demo.output)
    assert counted is not None
    assert 0 < int(counted[2]) <= int(counted[1])
    assert took < BOUND_SECONDS
    assert demo.sandbox.known > 8
    await demo.sandbox.expect_nothing_left()


async def test_on_a_terminal_a_live_table_shows_objects_sessions_and_processes(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    terminal = open_terminal([*AGENTTERMINAL, "demo"], environment={**sandbox.environment, "TERM": "xterm-256color"})
    try:
        terminal.expect("What the API server says, and what the kernel runs")
        terminal.expect(r"stubborn.*Detached.*\d+.*\d+.*trap")
        terminal.expect("Deleting the objects")
        sandbox.remember(terminal.pid)
        terminal.expect("no file is left")
        terminal.expect(pexpect.EOF)
        rest = terminal.before
    finally:
        terminal.close(force=True)

    assert terminal.exitstatus == 0
    assert rest is not None
    assert "What the API server says" not in rest, "The table is gone at the end."
    await sandbox.expect_nothing_left()


@pytest.mark.parametrize(
    "moment",
    [
        "Starting etcd",
        "Ready after",
        "$ kubectl wait aterm --all",
        "$ agentterminal attach adopted --takeover",
        "Created: the sprite itself",
        "$ kubectl wait aterm launched --for=jsonpath",
        "Stopping gateway",
    ],
)
async def test_ctrl_c_at_any_moment_ends_it_and_leaves_nothing(moment: str, tmp_path: Path) -> None:
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with running(folder, "demo") as demo:
            await demo.read_until(moment)
            code = await demo.end(signal.SIGINT)

            assert "Traceback" not in demo.output
            await demo.sandbox.expect_nothing_left()
        # From the last of these moments on, it has ended by itself before a signal that comes late.
        if (code, moment) != (0, "Stopping gateway"):
            break
    assert code == 130, demo.output


async def test_ctrl_c_typed_at_a_terminal_ends_it_and_shows_the_cursor_again(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    terminal = open_terminal([*AGENTTERMINAL, "demo"], environment={**sandbox.environment, "TERM": "xterm-256color"})
    try:
        terminal.expect_exact("\x1b[?25l")
        terminal.expect_exact("kubectl wait aterm --all")
        sandbox.remember(terminal.pid)
        terminal.send("\x03")
        terminal.expect(pexpect.EOF)
        rest = terminal.before
    finally:
        terminal.close(force=True)

    assert terminal.exitstatus == 130
    assert rest is not None
    assert rest.rfind("\x1b[?25h") > rest.rfind("\x1b[?25l")
    await sandbox.expect_nothing_left()


@pytest.mark.parametrize(
    ("death", "code", "moment"),
    [
        (signal.SIGKILL, -9, "$ kubectl wait aterm --all"),
        (signal.SIGTERM, 143, "carla | 6 times 7 is 42"),
        (signal.SIGKILL, -9, "carla | 6 times 7 is 42"),
    ],
)
async def test_a_command_that_waits_and_people_who_are_attached_go_with_the_demo(
    death: signal.Signals, code: int, moment: str, tmp_path: Path
) -> None:
    async with running(tmp_path, "demo") as demo:
        await demo.read_until(moment)

        assert await demo.end(death) == code, demo.output
        assert demo.sandbox.known > 8
        await demo.sandbox.expect_nothing_left()


async def test_a_part_that_ends_by_itself_ends_the_demo_with_1_and_one_sentence(tmp_path: Path) -> None:
    async with running(tmp_path, "demo") as demo:
        await demo.read_until("$ kubectl apply")
        demo.sandbox.remember(demo.process.pid)
        (operator,) = [pid for pid in list_children(demo.process.pid) if "operator" in read_command(pid)]
        kill_quietly(operator, signal.SIGKILL)
        code = await demo.read_to_end()

        assert code == 1, demo.output
        assert "Error: The operator was ended by SIGKILL. The end of its log:" in demo.output
        assert "Traceback" not in demo.output
        await demo.sandbox.expect_nothing_left()


async def test_without_namespaces_it_comes_out_as_told_as_well(tmp_path: Path) -> None:
    async with running(tmp_path, "demo", "--plain") as demo:
        await demo.read_until("Deleting the objects")
        demo.sandbox.remember(demo.process.pid)

        assert await demo.read_to_end() == 0, demo.output
        assert "no hold is shown here" in demo.output
        assert "--for=condition=Held" not in demo.output
        # A session id is a process id of this machine then, and cannot be foreseen by an example.
        assert re.search(r"""sed 's/sessionId: "2"/sessionId: "\d{2,}"/' examples/adopted.yaml""", demo.output)
        await demo.sandbox.expect_nothing_left()

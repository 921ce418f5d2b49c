"""The launch script, run by a real shell, and the judgement of what a launch has left behind."""

import os
import subprocess
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.api.terminal import Launch
from controller.plan.launch import (
    ALREADY_RAN_CODE,
    LaunchNeverRan,
    LaunchRan,
    LaunchRunning,
    LaunchUntraceable,
    Traces,
    judge_launch,
    read_bar,
    read_traces,
    render_bar_command,
    render_launch_script,
    render_probe_command,
    render_session_command,
    render_upload_command,
)
from tests.plan.building import INTENT, NONCE, NOON, SESSION

PRINT_WORDS = ("sh", "-c", 'for word in "$@"; do printf "%s\\0" "$word"; done', "sh")
words = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=40)


def build_launch(*command: str, working_directory: str | None = None) -> Launch:
    return Launch(command=command, working_directory=working_directory)


def run_script(folder: Path, script: bytes, *, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    path = folder / f"aterm-{NONCE}"
    path.write_bytes(script)
    return subprocess.run(
        ["/bin/sh", path], capture_output=True, check=False, env=env or {"PATH": os.environ["PATH"]}, timeout=30
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(words, max_size=4))
def test_every_word_of_the_command_arrives_as_it_was_declared(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str]
) -> None:
    script = render_launch_script(build_launch(*PRINT_WORDS, *arguments), {}, NONCE)

    done = run_script(tmp_path_factory.mktemp("sprite"), script)

    assert done.stdout.split(b"\0")[:-1] == [word.encode() for word in arguments]
    assert done.returncode == 0


@settings(max_examples=40, deadline=None)
@given(words)
def test_every_value_of_the_environment_arrives_as_it_was_declared(
    tmp_path_factory: pytest.TempPathFactory, value: str
) -> None:
    script = render_launch_script(build_launch("sh", "-c", 'printf "%s." "$GREETING"'), {"GREETING": value}, NONCE)

    assert run_script(tmp_path_factory.mktemp("sprite"), script).stdout == value.encode() + b"."


def test_path_stays_and_term_is_set_unless_declared(tmp_path: Path) -> None:
    show = build_launch("sh", "-c", 'printf "%s|%s" "$PATH" "$TERM"')
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin"}

    done = run_script(tmp_path, render_launch_script(show, {}, NONCE), env=env)
    assert done.stdout == b"/usr/local/bin:/usr/bin:/bin|xterm-256color"

    (tmp_path / f"aterm-{NONCE}.ran").rmdir()
    assert run_script(tmp_path, render_launch_script(show, {"TERM": "dumb"}, NONCE), env=env).stdout.endswith(b"|dumb")


def test_the_command_takes_the_place_of_the_shell(tmp_path: Path) -> None:
    path = tmp_path / f"aterm-{NONCE}"
    path.write_bytes(render_launch_script(build_launch("sleep", "60"), {}, NONCE))
    with subprocess.Popen(["/bin/sh", path], stdout=subprocess.PIPE) as child:
        try:
            while path.exists():
                assert child.poll() is None
            command = Path(f"/proc/{child.pid}/cmdline")
            while command.read_bytes() != b"sleep\x0060\0":
                assert child.poll() is None
        finally:
            child.kill()


def test_a_script_runs_once_and_removes_itself(tmp_path: Path) -> None:
    script = render_launch_script(build_launch("echo", "hello"), {}, NONCE)

    first = run_script(tmp_path, script)
    assert (first.returncode, first.stdout) == (0, b"hello\n")
    assert not (tmp_path / f"aterm-{NONCE}").exists()

    second = run_script(tmp_path, script)
    assert (second.returncode, second.stdout) == (ALREADY_RAN_CODE, b"")


def test_a_working_directory_is_entered_and_a_missing_one_ends_it_with_126(tmp_path: Path) -> None:
    here = build_launch("pwd", working_directory=str(tmp_path))
    gone = build_launch("pwd", working_directory=str(tmp_path / "gone"))

    assert run_script(tmp_path, render_launch_script(here, {}, NONCE)).stdout.decode().strip() == str(tmp_path)
    (tmp_path / f"aterm-{NONCE}.ran").rmdir()
    assert run_script(tmp_path, render_launch_script(gone, {}, NONCE)).returncode == 126


def test_nothing_of_the_declaration_travels_in_a_command_line() -> None:
    commands = (
        render_upload_command(NONCE),
        render_session_command("/dev/shm", NONCE),
        render_probe_command(NONCE),
        render_bar_command(NONCE),
    )

    for command in commands:
        assert command[0] == "/bin/sh"
        assert NONCE in command[-1]


@pytest.mark.parametrize("nonce", ["", "short", "UPPERCASE1", "a/../../etc", "a b c d e f", "x" * 65, "nonce123\n"])
def test_a_nonce_that_is_unsafe_in_a_shell_or_a_path_is_refused(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        render_upload_command(nonce)


def probe(folder: Path, *, pids: list[int]) -> Traces | None:
    """Run the probe as it is, but for where it looks for scripts."""
    *shell, script, name, nonce = render_probe_command(NONCE)
    script = script.replace("/dev/shm /tmp", str(folder))
    done = subprocess.run([*shell, script, name, nonce], capture_output=True, check=True, text=True, timeout=30)
    traces = read_traces(done.stdout)
    assert all(traces is not None and str(pid) in traces.pids for pid in pids)
    return traces


def test_the_probe_sees_the_script_before_it_ran_and_the_process_when_it_runs(tmp_path: Path) -> None:
    path = tmp_path / f"aterm-{NONCE}"
    path.write_bytes(render_launch_script(build_launch("sleep", "60"), {}, NONCE))
    before = probe(tmp_path, pids=[])
    assert before is not None
    assert (before.script, before.ran) == (True, False)

    with subprocess.Popen(["/bin/sh", path]) as child:
        try:
            while Path(f"/proc/{child.pid}/cmdline").read_bytes() != b"sleep\x0060\0":
                assert child.poll() is None
            during = probe(tmp_path, pids=[child.pid])
        finally:
            child.kill()
    assert during is not None
    assert (during.script, during.ran) == (False, True)
    assert during.init_age is not None
    assert during.init_age > timedelta(0)


def run_in(folder: Path, command: tuple[str, ...], *, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """Run one of our commands as it is, but for the folder of the scripts."""
    *shell, script, name, nonce = command
    script = script.replace("/dev/shm", str(folder))
    return subprocess.run(
        [*shell, script, name, nonce], capture_output=True, check=False, text=True, timeout=30, input=stdin.decode()
    )


def bar(folder: Path) -> bool | None:
    return read_bar(run_in(folder, render_bar_command(NONCE)).stdout)


def test_a_launch_that_was_barred_never_runs_its_command_however_late_it_comes(tmp_path: Path) -> None:
    script = render_launch_script(build_launch("echo", "hello"), {}, NONCE)
    (tmp_path / f"aterm-{NONCE}").write_bytes(script)
    (tmp_path / f"aterm-{NONCE}.part").write_bytes(script)

    assert bar(tmp_path) is True
    assert [path.name for path in tmp_path.iterdir()] == [f"aterm-{NONCE}.ran"]
    assert bar(tmp_path) is True, "a bar whose answer was lost is one still"

    late = run_script(tmp_path, script)
    assert (late.returncode, late.stdout) == (ALREADY_RAN_CODE, b"")


def test_a_launch_that_was_faster_than_its_bar_is_told_to_have_run(tmp_path: Path) -> None:
    run_script(tmp_path, render_launch_script(build_launch("true"), {}, NONCE))

    assert bar(tmp_path) is False
    assert bar(tmp_path) is False
    assert (tmp_path / f"aterm-{NONCE}.ran").is_dir()


def test_the_probe_does_not_take_a_bar_for_a_run(tmp_path: Path) -> None:
    bar(tmp_path)

    traces = probe(tmp_path, pids=[])

    assert traces is not None
    assert (traces.script, traces.ran) == (False, False)


def test_an_upload_stores_the_script_for_its_owner_alone_and_none_that_was_barred(tmp_path: Path) -> None:
    script = render_launch_script(build_launch("true"), {"SECRET": "planted"}, NONCE)
    stored = run_in(tmp_path, render_upload_command(NONCE), stdin=script)
    assert (stored.returncode, stored.stdout) == (0, str(tmp_path))
    path = tmp_path / f"aterm-{NONCE}"
    assert path.read_bytes() == script
    assert path.stat().st_mode & 0o777 == 0o600

    bar(tmp_path)
    assert run_in(tmp_path, render_upload_command(NONCE), stdin=script).returncode != 0
    assert [left.name for left in tmp_path.iterdir()] == [f"aterm-{NONCE}.ran"]


@pytest.mark.parametrize("output", ["", "barred ran", "sh: ln: not found"])
def test_a_bar_that_says_neither_is_none(output: str) -> None:
    assert read_bar(output) is None


def test_a_probe_that_was_cut_off_tells_nothing() -> None:
    assert read_traces("script\nuptime 5") is None
    assert read_traces("") is None


@pytest.mark.parametrize(
    ("stat", "age"),
    [
        ("1 (init) S " + " ".join(["0"] * 18) + " 100 0 0", timedelta(seconds=9)),
        ("1 (a ) b) S " + " ".join(["0"] * 18) + " 100 0 0", timedelta(seconds=9)),
        ("1 (init) S", None),
        ("", None),
        ("1 (init) " + " ".join(["x"] * 30), None),
    ],
)
def test_the_age_of_the_first_process_is_read_behind_its_name(stat: str, age: timedelta | None) -> None:
    traces = read_traces(f"uptime 10.00\ninit {stat}\nend\n")

    assert traces is not None
    assert traces.init_age == age


NO_TRACE = Traces(script=False, ran=False, pids=frozenset(), init_age=None)
SINCE_INTENT = NOON - INTENT.requested_time


@pytest.mark.parametrize(
    ("sessions", "traces", "finding"),
    [
        ((replace(SESSION, command=f"/bin/sh /tmp/aterm-{NONCE}"),), None, LaunchRunning),
        ((SESSION,), replace(NO_TRACE, pids=frozenset({"41"})), LaunchRunning),
        ((SESSION,), replace(NO_TRACE, pids=frozenset({"42"}), ran=True), LaunchRan),
        ((SESSION,), None, LaunchUntraceable),
        ((), replace(NO_TRACE, ran=True, script=True), LaunchRan),
        ((), replace(NO_TRACE, script=True), LaunchNeverRan),
        ((), NO_TRACE, LaunchUntraceable),
        ((), replace(NO_TRACE, init_age=SINCE_INTENT), LaunchNeverRan),
        ((), replace(NO_TRACE, init_age=SINCE_INTENT - timedelta(milliseconds=10)), LaunchUntraceable),
        ((replace(SESSION, command=" ".join(render_upload_command(NONCE))),), None, LaunchUntraceable),
        ((replace(SESSION, command=" ".join(render_probe_command(NONCE))),), None, LaunchUntraceable),
        ((replace(SESSION, command=" ".join(render_bar_command(NONCE))),), None, LaunchUntraceable),
    ],
)
def test_what_became_of_a_launch(sessions: tuple[object, ...], traces: Traces | None, finding: type) -> None:
    assert isinstance(judge_launch(INTENT, sessions, traces, now=NOON), finding)  # type: ignore[arg-type]  # a table

"""Calls of the Tasks API: one command for many, and a verdict for each (cases U1 to U8)."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import Failure
from controller.plan.hold_names import name_hold
from controller.plan.tasks import (
    CALLS_IN_AN_EXEC,
    EXPIRE_MAX,
    OUTPUT_BYTES,
    SOCKET,
    Done,
    ExecEnded,
    ExecFailed,
    Failed,
    RemoveTask,
    TaskCall,
    TaskTrouble,
    Unclear,
    UpsertTask,
    Verdict,
    build_exec,
    describe_verdict,
    judge_call,
    judge_exec,
    judge_exec_failure,
    split_calls,
)
from controller.plan.tasks_read import ListedTask, TasksRead, build_read_exec, judge_read

EXPIRE = timedelta(seconds=300)
PUT = UpsertTask("ps-hold-x", EXPIRE)
DELETE = RemoveTask("ps-hold-x")
THREE = (UpsertTask("a", EXPIRE), RemoveTask("b"), UpsertTask("c", EXPIRE))
STATUS = "\\naterm 0 %{http_code} %{exitcode}\\n"
ANSWERS = st.builds(ExecEnded, st.integers(0, 255), st.binary() | st.text(alphabet="aterm 0123\n").map(str.encode))
FAILURES = st.builds(ExecFailed, st.sampled_from(Failure), st.text(max_size=5), st.booleans())


def judge(stdout: str, exit_code: int = 0, calls: tuple[TaskCall, ...] = THREE) -> list[Verdict]:
    return [verdict for _, verdict in judge_exec(build_exec(calls), ExecEnded(exit_code, stdout.encode()))]


@pytest.mark.case("U1")
def test_an_upsert_is_one_curl_over_the_sprites_socket() -> None:
    assert build_exec([PUT]).argv == (
        *("curl", "-q", "--fail-early", "-s", "-o", "/dev/null", "-w", STATUS, "--max-time", "8"),
        *("--unix-socket", "/.sprite/api.sock", "-X", "PUT", "-H", "Content-Type: application/json"),
        *("-d", '{"expire":300}', "http://sprite/v1/tasks/ps-hold-x"),
    )


@pytest.mark.case("U1")
def test_a_removal_is_the_same_curl_without_content_type_and_body() -> None:
    assert build_exec([DELETE]).argv == (
        *("curl", "-q", "--fail-early", "-s", "-o", "/dev/null", "-w", STATUS, "--max-time", "8"),
        *("--unix-socket", "/.sprite/api.sock", "-X", "DELETE", "http://sprite/v1/tasks/ps-hold-x"),
    )


def test_many_calls_are_one_command_in_their_order_each_with_its_own_options_and_number() -> None:
    run = build_exec(THREE)
    argv = list(run.argv)
    parts: list[list[str]] = [[]]
    for word in argv[3:]:
        parts.append([]) if word == "--next" else parts[-1].append(word)

    assert run.calls == THREE
    assert [part[-1].rpartition("/")[2] for part in parts] == ["a", "b", "c"]
    assert [part[part.index("-w") + 1] for part in parts] == [
        f"\\naterm {index} %{{http_code}} %{{exitcode}}\\n" for index in range(3)
    ]
    for part in parts:
        assert {"-s", "-o", "--max-time", "--unix-socket", "-X"} <= set(part)


@pytest.mark.case("U2")
@pytest.mark.parametrize(
    ("expire", "fits"),
    [
        (timedelta(0), False),
        (timedelta(seconds=-1), False),
        (timedelta(milliseconds=999), False),
        (timedelta(seconds=1), True),
        (timedelta(seconds=1, milliseconds=1), False),
        (timedelta(seconds=300, microseconds=1), False),
        (timedelta(seconds=3600), True),
        (timedelta(seconds=3600, milliseconds=1), False),
        (timedelta(seconds=3601), False),
        (timedelta.max, False),
        (timedelta.min, False),
    ],
)
def test_an_upsert_has_a_whole_expiry_from_one_second_to_an_hour_or_is_refused(expire: timedelta, fits: bool) -> None:
    call = UpsertTask("a", expire)
    run = build_exec([call])

    assert run.calls == ((call,) if fits else ())
    assert run.refused == (() if fits else (call,))
    assert bool(run.argv) == fits


@pytest.mark.case("U2", "C14")
def test_no_upsert_can_be_written_down_without_an_expiry() -> None:
    field = next(field for field in dataclasses.fields(UpsertTask) if field.name == "expire")

    assert field.default is dataclasses.MISSING
    assert field.default_factory is dataclasses.MISSING


@pytest.mark.case("C14")
@given(st.timedeltas())
def test_whatever_is_asked_no_command_sets_a_task_that_would_outlive_an_hour(expire: timedelta) -> None:
    for word in build_exec([UpsertTask("a", expire)]).argv:
        if word.startswith("{"):
            assert 1 <= json.loads(word)["expire"] <= 3600


@pytest.mark.case("U3")
@pytest.mark.parametrize(
    ("told", "verdict"),
    [
        ("201", Done(201)),
        ("000", Failed(TaskTrouble.NO_ANSWER, 0, 0)),
        ("", Unclear(TaskTrouble.UNREADABLE)),
        ("20", Unclear(TaskTrouble.UNREADABLE)),
        ("2000", Unclear(TaskTrouble.UNREADABLE)),
        ("curl: (7) Failed to connect to sprite port 80", Unclear(TaskTrouble.UNREADABLE)),
        ("20 1", Unclear(TaskTrouble.UNREADABLE)),
        ("+20", Unclear(TaskTrouble.UNREADABLE)),
        ("٢٠١", Unclear(TaskTrouble.UNREADABLE)),
        ("2e2", Unclear(TaskTrouble.UNREADABLE)),
    ],
)
def test_only_three_digits_are_a_status(told: str, verdict: Verdict) -> None:
    """White space around a line, and the line end that curl was told to write, make no difference."""
    assert judge(f"\n aterm 0 {told} 0 \r\n", calls=(PUT,)) == [verdict]


@pytest.mark.parametrize(
    ("call", "code", "status", "verdict"),
    [
        pytest.param(PUT, 0, 200, Done(200), marks=pytest.mark.case("U4")),
        pytest.param(PUT, 0, 201, Done(201), marks=pytest.mark.case("U4")),
        pytest.param(PUT, 0, 299, Done(299), marks=pytest.mark.case("U4")),
        pytest.param(DELETE, 0, 204, Done(204), marks=pytest.mark.case("U4")),
        pytest.param(PUT, 0, 199, Failed(TaskTrouble.STATUS, 0, 199), marks=pytest.mark.case("U4")),
        pytest.param(PUT, 0, 300, Failed(TaskTrouble.STATUS, 0, 300), marks=pytest.mark.case("U4")),
        pytest.param(DELETE, 0, 404, Done(404), marks=pytest.mark.case("U5")),
        pytest.param(PUT, 0, 404, Failed(TaskTrouble.STATUS, 0, 404), marks=pytest.mark.case("U5")),
        pytest.param(DELETE, 0, 410, Failed(TaskTrouble.STATUS, 0, 410), marks=pytest.mark.case("U5")),
        pytest.param(DELETE, 0, 500, Failed(TaskTrouble.STATUS, 0, 500), marks=pytest.mark.case("U5")),
        pytest.param(PUT, 28, 200, Failed(TaskTrouble.CURL_FAILED, 28, 200), marks=pytest.mark.case("U6")),
        pytest.param(DELETE, 7, 404, Failed(TaskTrouble.CURL_FAILED, 7, 404), marks=pytest.mark.case("U6")),
        pytest.param(PUT, 0, None, Failed(TaskTrouble.UNREADABLE, 0), marks=pytest.mark.case("U6")),
        pytest.param(PUT, 0, 0, Failed(TaskTrouble.NO_ANSWER, 0, 0), marks=pytest.mark.case("U6")),
        pytest.param(PUT, 127, None, Failed(TaskTrouble.CURL_MISSING, 127), marks=pytest.mark.case("C13")),
        pytest.param(PUT, 126, None, Failed(TaskTrouble.CURL_FAILED, 126), marks=pytest.mark.case("C13")),
    ],
)
def test_an_exit_code_and_a_status_make_a_verdict(
    call: TaskCall, code: int, status: int | None, verdict: Verdict
) -> None:
    assert judge_call(call, exit_code=code, status=status) == verdict


STOPPED = Failed(TaskTrouble.STOPPED)
UNREADABLE = Unclear(TaskTrouble.UNREADABLE)


@pytest.mark.parametrize(
    ("stdout", "code", "verdicts"),
    [
        pytest.param(
            "\naterm 0 200 0\n\naterm 1 404 0\n\naterm 2 201 0\n", 0, [Done(200), Done(404), Done(201)], id="all done"
        ),
        pytest.param(
            "\naterm 0 500 0\n\naterm 1 204 0\n\naterm 2 200 0\n",
            0,
            [Failed(TaskTrouble.STATUS, 0, 500), Done(204), Done(200)],
            id="a refusal by the Tasks API concerns one",
        ),
        pytest.param(
            "\naterm 0 200 0\n\naterm 1 000 28\n",
            28,
            [Done(200), Failed(TaskTrouble.CURL_FAILED, 28, 0), STOPPED],
            id="a call without an answer stops the rest",
        ),
        pytest.param(
            "\naterm 0 200 \n\naterm 1 000 \n",
            52,
            [Done(200), Failed(TaskTrouble.CURL_FAILED, 52, 0), STOPPED],
            id="an old curl: the code of the command is that of the last line",
        ),
        pytest.param(
            "\naterm 0 200 0\n",
            137,
            [Done(200), Failed(TaskTrouble.CURL_FAILED, 137), Failed(TaskTrouble.CURL_FAILED, 137)],
            id="killed between two calls",
        ),
        pytest.param("", 127, [Failed(TaskTrouble.CURL_MISSING, 127)] * 3, id="no curl"),
        pytest.param("", 2, [Failed(TaskTrouble.CURL_FAILED, 2)] * 3, id="curl does not know an option"),
        pytest.param("", 0, [UNREADABLE] * 3, id="a good end that says nothing"),
        pytest.param("\naterm 0 200 0\n", 0, [Done(200), UNREADABLE, UNREADABLE], id="a good end that says too little"),
        pytest.param(
            "\naterm 0 200 0\n\naterm 0 500 0\n\naterm 1 204 0\n\naterm 2 200 0\n",
            0,
            [UNREADABLE, Done(204), Done(200)],
            id="told twice",
        ),
        pytest.param(
            "\naterm 0 200 0\n\naterm 1 204 0\n\naterm 2 200 0\n\naterm 3 500 0\n\naterm 77 500 9\n",
            0,
            [Done(200), Done(204), Done(200)],
            id="lines of calls that nobody made",
        ),
        pytest.param(
            "\naterm 0 200 0\n\naterm 3 000 28\n",
            0,
            [Done(200), UNREADABLE, UNREADABLE],
            id="a line of a call that nobody made stops nothing",
        ),
        pytest.param(
            "curl: warning\r\naterm 0 200 0\r\nxaterm 1 500 0\naterm 1 204 0 \naterm 2 20 0\naterm 2 2000 0\n",
            0,
            [Done(200), Done(204), UNREADABLE],
            id="noise and misshapen lines",
        ),
    ],
)
def test_each_call_of_a_command_has_its_own_verdict(stdout: str, code: int, verdicts: list[Verdict]) -> None:
    assert judge(stdout, code) == verdicts


@pytest.mark.case("U7")
@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (ExecFailed(Failure.TIMED_OUT, "too long"), TaskTrouble.TIMED_OUT),
        (ExecFailed(Failure.MALFORMED, "too much", oversized=True), TaskTrouble.TOO_MUCH_OUTPUT),
        (ExecFailed(Failure.UNFINISHED, "no exit"), TaskTrouble.NO_EXIT),
        (ExecFailed(Failure.MALFORMED, "odd exit frame"), TaskTrouble.UNREADABLE),
        (ExecFailed(Failure.NOT_FOUND, "no such sprite"), TaskTrouble.EXEC_FAILED),
    ],
)
def test_a_command_without_an_end_is_unclear_for_every_call_and_says_why(
    answer: ExecFailed, trouble: TaskTrouble
) -> None:
    verdicts = judge_exec(build_exec(THREE), answer)

    assert [call for call, _ in verdicts] == list(THREE)
    assert {verdict for _, verdict in verdicts} == {Unclear(trouble, answer.message)}


@pytest.mark.parametrize("failure", list(Failure))
def test_every_failure_of_an_exec_has_a_name(failure: Failure) -> None:
    assert judge_exec_failure(ExecFailed(failure, "")) in TaskTrouble


@pytest.mark.case("U8")
@pytest.mark.parametrize("name", ["a/b", "", "..", "x" * 64, "a b", "-o /etc/passwd", "a?x=1", "a\n", "ä"])
def test_an_unsafe_name_runs_nothing_and_fails_alone(name: str) -> None:
    unsafe = (UpsertTask(name, EXPIRE), RemoveTask(name))

    assert build_exec(unsafe).argv == ()
    assert [verdict for _, verdict in judge_exec(build_exec(unsafe), ExecEnded(0, b""))] == [
        Failed(TaskTrouble.REFUSED)
    ] * 2

    run = build_exec((unsafe[0], DELETE))
    assert run.argv == build_exec([DELETE]).argv
    assert judge_exec(run, ExecEnded(0, b"\naterm 0 204 0\n")) == (
        (DELETE, Done(204)),
        (unsafe[0], Failed(TaskTrouble.REFUSED)),
    )


@pytest.mark.case("U8")
@given(st.lists(st.builds(UpsertTask, st.text(max_size=4), st.timedeltas()) | st.builds(RemoveTask, st.text())))
def test_a_command_is_built_for_any_calls_and_names_each_of_them_once(calls: list[TaskCall]) -> None:
    run = build_exec(calls)

    assert sorted(map(repr, (*run.calls, *run.refused))) == sorted(map(repr, calls))
    assert run.argv.count("curl") == bool(run.calls)
    assert run.argv.count("--next") == max(0, len(run.calls) - 1)


@pytest.mark.case("U8", "C9")
@given(ANSWERS | FAILURES)
def test_whatever_comes_back_every_call_gets_a_verdict_that_can_be_told(answer: ExecEnded | ExecFailed) -> None:
    verdicts = judge_exec(build_exec(THREE), answer)

    assert [call for call, _ in verdicts] == list(THREE)
    for call, verdict in verdicts:
        assert call.name in describe_verdict(call, verdict)


@given(ANSWERS)
def test_nothing_counts_as_done_that_was_not_answered_in_a_line_of_its_own(answer: ExecEnded) -> None:
    for index, (_, verdict) in enumerate(judge_exec(build_exec(THREE), answer)):
        if isinstance(verdict, Done):
            assert f"aterm {index} {verdict.status}".encode() in answer.stdout


@pytest.mark.case("C13")
@pytest.mark.parametrize(
    ("call", "verdict", "words"),
    [
        (PUT, Failed(TaskTrouble.CURL_FAILED, 28, 0), "Setting task ps-hold-x failed (exit code 28, status 000)."),
        (DELETE, Failed(TaskTrouble.STATUS, 0, 500), "Removing task ps-hold-x failed (exit code 0, status 500)."),
        (PUT, Failed(TaskTrouble.STOPPED), "Setting task ps-hold-x failed (Stopped)."),
        (PUT, Done(201), "Setting task ps-hold-x is done (201)."),
        (PUT, Unclear(TaskTrouble.NO_EXIT), "Setting task ps-hold-x may or may not have happened: NoExit"),
        (DELETE, Unclear(TaskTrouble.TIMED_OUT, "Too long."), "may or may not have happened: Too long."),
    ],
)
def test_a_failed_call_is_told_with_exit_code_and_status_where_they_are_known(
    call: TaskCall, verdict: Verdict, words: str
) -> None:
    assert words in describe_verdict(call, verdict)


@pytest.mark.case("C13")
def test_exit_code_127_is_told_as_a_missing_curl_with_the_way_out() -> None:
    text = describe_verdict(PUT, Failed(TaskTrouble.CURL_MISSING, 127))

    assert text == "Setting task ps-hold-x failed: the sprite has no curl (exit code 127); install it there."


def test_an_unsafe_name_is_told_quoted() -> None:
    text = describe_verdict(RemoveTask("a\n\x1b[2J"), Failed(TaskTrouble.REFUSED))

    assert "'a\\n\\x1b[2J'" in text
    assert "\n" not in text


def test_a_full_command_fits_an_address_of_8_kb_and_its_output_the_limit() -> None:
    name = name_hold("f" * 99) + "x"
    argv = build_exec([UpsertTask(name, EXPIRE_MAX)] * CALLS_IN_AN_EXEC).argv
    query = urlencode(
        [*(("cmd", word) for word in argv), ("path", "curl"), ("stdin", "true")], quote_via=quote, safe=""
    )

    assert len(name) == 63
    assert len(f"GET /v1/sprites/{'s' * 63}/exec?{query} HTTP/1.1") < 8190
    assert len("\naterm 14 200 255\n") * CALLS_IN_AN_EXEC < OUTPUT_BYTES


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (15, [15]), (16, [15, 1]), (31, [15, 15, 1])])
def test_calls_are_split_into_commands_in_their_order(count: int, sizes: list[int]) -> None:
    calls = [RemoveTask(f"n{index}") for index in range(count)]
    split = split_calls(calls)

    assert [len(part) for part in split] == sizes
    assert [call for part in split for call in part] == calls


# --- reading ----------------------------------------------------------------------------------------------------------

LISTED = json.dumps(
    {
        "tasks": [
            {"name": "one", "started_at": "2026-11-30T11:00:00.5Z", "expires_at": "2026-11-30T12:05:00+00:00"},
            {"name": "two", "started_at": "soon", "expires_at": None},
            {"name": "three", "started_at": "2026-11-30T11:00:00"},
            {"started_at": "2026-11-30T11:00:00Z"},
            "four",
        ]
    }
)


def read(body: str, line: str = "aterm 0 200 0", code: int = 0) -> TasksRead | Failed | Unclear:
    return judge_read(ExecEnded(code, f"{body}\n{line}\n".encode()))


def test_a_whole_list_is_read_and_times_that_cannot_be_read_are_absent() -> None:
    assert read(LISTED) == TasksRead(
        (
            ListedTask(
                "one", datetime(2026, 11, 30, 11, 0, 0, 500_000, UTC), datetime(2026, 11, 30, 12, 5, tzinfo=UTC)
            ),
            ListedTask("two", None, None),
            ListedTask("three", None, None),
        )
    )
    assert read('{"tasks": []}') == TasksRead(())
    assert read('{"tasks": []}', "aterm 0 200 ") == TasksRead(())


@pytest.mark.parametrize(
    ("body", "line", "code", "trouble"),
    [
        (LISTED[:-9], "aterm 0 200 0", 0, TaskTrouble.UNREADABLE),
        (LISTED, "", 0, TaskTrouble.UNREADABLE),
        ("", "", 127, TaskTrouble.CURL_MISSING),
        ("", "", 137, TaskTrouble.CURL_FAILED),
        (LISTED, "aterm 0 200 28", 28, TaskTrouble.CURL_FAILED),
        (LISTED, "aterm 0 200 0", 23, TaskTrouble.CURL_FAILED),
        (LISTED, "aterm 0 200 ", 18, TaskTrouble.CURL_FAILED),
        (LISTED, "aterm 0 404 0", 0, TaskTrouble.STATUS),
        ("", "aterm 0 000 0", 0, TaskTrouble.NO_ANSWER),
        ('{"tasks": {}}', "aterm 0 200 0", 0, TaskTrouble.UNREADABLE),
        ("[]", "aterm 0 200 0", 0, TaskTrouble.UNREADABLE),
        ("{}", "aterm 0 200 0", 0, TaskTrouble.UNREADABLE),
        ("[" * 100_000, "aterm 0 200 0", 0, TaskTrouble.UNREADABLE),
    ],
)
def test_a_list_that_is_not_whole_is_a_failure(body: str, line: str, code: int, trouble: TaskTrouble) -> None:
    answer = read(body, line, code)

    assert isinstance(answer, Failed)
    assert answer.trouble is trouble


@given(ANSWERS | FAILURES)
def test_reading_never_raises(answer: ExecEnded | ExecFailed) -> None:
    judge_read(answer)


# --- with a real curl -------------------------------------------------------------------------------------------------

Curl = Callable[[tuple[str, ...]], Awaitable[ExecEnded]]


@pytest.fixture
async def curl(tmp_path: Path) -> AsyncIterator[Curl]:
    """A real curl whose sprite answers with the status that the task is named for, or not at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            length = 0
            while (header := await reader.readline()).strip():
                if header.lower().startswith(b"content-length:"):
                    length = int(header.partition(b":")[2])
            await reader.readexactly(length)
            status = line.split()[1].rpartition(b"/")[2]
            if status == b"drop":
                break
            body = b'{"tasks": []}' if status == b"tasks" else b"aterm 0 200 0"
            status = b"200" if status == b"tasks" else status
            writer.write(b"HTTP/1.1 %s x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))
            await writer.drain()
        writer.close()

    socket = tmp_path / "s"

    async def run(argv: tuple[str, ...]) -> ExecEnded:
        words = [str(socket) if word == SOCKET else word for word in argv]
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "http_proxy": "http://127.0.0.1:1",
        }
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=environment
        )
        stdout, _ = await asyncio.wait_for(process.communicate(), 20)
        return ExecEnded(process.returncode or 0, stdout)

    (tmp_path / ".curlrc").write_text('include\nwrite-out = "aterm 1 200 0"\nmax-time = 0.001\n')
    async with await asyncio.start_unix_server(serve, socket):
        yield run


@pytest.mark.sprites
async def test_a_real_curl_runs_the_calls_in_order_and_stops_at_the_first_without_an_answer(curl: Curl) -> None:
    run = build_exec([UpsertTask("201", EXPIRE), RemoveTask("404"), UpsertTask("500", EXPIRE), RemoveTask("204")])
    assert [verdict for _, verdict in judge_exec(run, await curl(run.argv))] == [
        Done(201),
        Done(404),
        Failed(TaskTrouble.STATUS, 0, 500),
        Done(204),
    ]

    run = build_exec([UpsertTask("200", EXPIRE), UpsertTask("drop", EXPIRE), UpsertTask("201", EXPIRE)])
    assert [verdict for _, verdict in judge_exec(run, await curl(run.argv))] == [
        Done(200),
        Failed(TaskTrouble.CURL_FAILED, 52, 0),
        STOPPED,
    ]


@pytest.mark.sprites
async def test_a_real_curl_reads_the_list(curl: Curl) -> None:
    assert judge_read(await curl(build_read_exec())) == TasksRead(())

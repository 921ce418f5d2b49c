"""Objects, sessions and processes are joined by what identifies them, and by nothing else."""

from typing import Any

from rich.console import Console

from controller.lab.board import InnerProcess, Row, build_rows, render_board

SHELL = InnerProcess(host_pid=4711, inner_pid=7, parent_pid=1, command="sh -c 'read [x]'")
CHILD = InnerProcess(host_pid=4712, inner_pid=8, parent_pid=7, command="sleep 1")


def terminal(
    name: str, session: str | None = None, phase: str = "Detached", reason: str = "Detached"
) -> dict[str, Any]:
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Stalled", "reason": "Other"}, {"type": "Ready", "reason": reason}],
    }
    if session is not None:
        status["session"] = {"id": session}
    return {"metadata": {"name": name}, "status": status}


def test_an_object_stands_beside_the_process_of_its_session() -> None:
    assert build_rows([terminal("one", "7")], [SHELL, CHILD]) == (Row("one", "Detached", "Detached", "7", SHELL),)


def test_a_session_without_an_object_has_a_row_of_its_own() -> None:
    rows = build_rows([terminal("one")], [SHELL, CHILD])

    assert rows == (Row("one", "Detached", "Detached", None, None), Row(None, "-", "-", "7", SHELL))


def test_a_child_of_a_session_is_no_session() -> None:
    assert [row.session for row in build_rows([], [CHILD, SHELL])] == ["7"]


def test_an_object_whose_process_has_ended_has_none() -> None:
    (row,) = build_rows([terminal("one", "7", "Terminated", "Confirmed")], [])

    assert row.process is None
    assert row.describe() == "one: Terminated (Confirmed), session 7, process -"


def test_an_object_without_a_status_is_told_as_it_is() -> None:
    (row,) = build_rows([{"metadata": {"name": "new"}}], [])

    assert row.describe() == "new: -, session -, process -"


def test_a_row_says_the_reason_only_where_it_says_more_than_the_phase() -> None:
    assert Row("one", "Detached", "Detached", "7", SHELL).describe() == "one: Detached, session 7, process 4711"
    assert Row(None, "-", "-", "7", SHELL).describe() == "no object: session 7, process 4711"


def test_the_table_shows_every_cell_and_reads_no_style_out_of_a_command() -> None:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render_board(build_rows([terminal("one", "7")], [SHELL])))

    for cell in ("one", "Detached", "7", "4711", "sh -c 'read [x]'"):
        assert cell in capture.get()

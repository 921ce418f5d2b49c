"""A story is told the same way on a terminal and without one."""

import io

from controller.cli.telling import PlainTeller, telling
from controller.lab.board import InnerProcess, Row

SHELL = InnerProcess(host_pid=4711, inner_pid=7, parent_pid=1, command="sh")
BEFORE = Row("one", "Pending", "Pending", None, None)
AFTER = Row("one", "Detached", "Detached", "7", SHELL)
FREE = Row(None, "-", "-", "7", SHELL)


def told(*moments: tuple[Row, ...]) -> list[str]:
    """What is told where nothing but the rows changes."""
    stream = io.StringIO()
    teller = PlainTeller(stream)
    for rows in moments:
        teller.show_rows(rows)
    return stream.getvalue().splitlines()


def test_a_row_is_told_when_it_is_new_and_when_it_has_changed_and_not_again() -> None:
    assert told((BEFORE,), (BEFORE,), (AFTER,), (AFTER,)) == [
        "  one: Pending, session -, process -",
        "  one: Detached, session 7, process 4711",
    ]


def test_an_object_that_is_gone_is_told() -> None:
    assert told((AFTER,), (), ())[1:] == ["  one: gone"]


def test_a_session_that_has_found_its_object_is_not_told_as_gone() -> None:
    assert told((FREE, BEFORE), (AFTER,)) == [
        "  no object: session 7, process 4711",
        "  one: Pending, session -, process -",
        "  one: Detached, session 7, process 4711",
    ]


def test_a_stream_that_is_no_terminal_gets_plain_lines_that_can_be_copied() -> None:
    stream = io.StringIO()
    with telling(stream) as teller:
        teller.say("One patch ends it.")
        teller.show_command("kubectl get " + "x" * 200)
        teller.show_output("NAME\n")
        teller.show_output("")
        teller.keep_rows((AFTER,))

    assert stream.getvalue() == (
        "\nOne patch ends it.\n$ kubectl get " + "x" * 200 + "\nNAME\n  one: Detached, session 7, process 4711\n"
    )


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_the_same_sentences_unbroken_and_the_cursor_back() -> None:
    stream = Terminal()
    with telling(stream) as teller:
        teller.say("One patch ends it.")
        teller.show_rows((AFTER,))
        teller.show_command("kubectl get " + "x" * 200)
        teller.show_output("[bold]NAME[/bold]\n")
        teller.keep_rows((AFTER,))

    shown = stream.getvalue()
    assert "One patch ends it." in shown
    assert "$ kubectl get " + "x" * 200 in shown
    assert "[bold]NAME[/bold]" in shown
    assert "4711" in shown
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    assert shown.rstrip().endswith("\x1b[2K")


def test_a_terminal_shows_no_empty_table() -> None:
    stream = Terminal()
    with telling(stream) as teller:
        teller.show_rows((AFTER,))
        teller.show_rows(())
        before = stream.getvalue()
        teller.show_rows(())

    assert stream.getvalue() == before
    assert before.count("\x1b[?25h") == 1

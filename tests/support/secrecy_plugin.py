"""
A pytest plugin: what a test made must show no secret, or the test fails.

Problem and marks: `tests.support.secrecy`. Promise: whatever pytest captured, whatever was logged in this process at
any level that the test let through, the words of every child that was started or runs when the test ends, the files in
`tmp_path`, and all that the helpers of tests looked at, are looked through once; a finding fails the test at its end,
by a sentence. What a report shows is blotted out, whether or not that was why it failed.

Processes, worlds and clients of tests look at what passes through them: logs of processes when they are put away,
terminals when they are closed, objects and events when a namespace is emptied, the API server's logs at its end.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from controller.logs import TextFormatter
from tests.support.secrecy import (
    find_kinds,
    look,
    look_at_children,
    look_at_command,
    look_through,
    redact,
    take_findings,
)

_looked_through: Final = set[Path]()
_hooked: Final = list[Callable[..., object]]()


class Listener(logging.Handler):
    """Looks at each line with all its keys, as the product's own log would show it."""

    def __init__(self) -> None:
        super().__init__()
        # Not set as the handler's own: the product replaces handlers of that shape.
        self._shape = TextFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Look at the line."""
        # A line that cannot be rendered is told by whoever shows it.
        with contextlib.suppress(Exception):
            look(f"A line of the logger {record.name}", self._shape.format(record))


def _watch_commands(event: str, arguments: tuple[Any, ...]) -> None:
    """Look at the words of each child that is started from here (sys.addaudithook)."""
    if event == "subprocess.Popen":
        words = arguments[1]
        listed = [words] if isinstance(words, str | bytes) else [*words]
        look_at_command("The command line of a child", b"\0".join(os.fsencode(word) for word in listed))


def pytest_configure() -> None:
    """Listen from now on; a hook cannot be taken back."""
    logging.getLogger().addHandler(Listener())
    if not _hooked:
        _hooked.append(_watch_commands)
        sys.addaudithook(_watch_commands)


@pytest.fixture(scope="session", autouse=True)
def secrecy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Look through the folders that no single test owns, when all that wrote into them has ended."""
    yield
    for folder in tmp_path_factory.getbasetemp().iterdir():
        if folder.is_dir() and not folder.is_symlink() and folder not in _looked_through:
            look_through("a folder of several tests", folder)


@pytest.fixture
def capsys(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> pytest.CaptureFixture[str]:
    """The one of pytest; what is read from it is looked at, since nobody sees it afterwards."""
    _look_at_what_is_read(capsys, monkeypatch)
    return capsys


@pytest.fixture
def capfd(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> pytest.CaptureFixture[str]:
    """The one of pytest, likewise."""
    _look_at_what_is_read(capfd, monkeypatch)
    return capfd


def _look_at_what_is_read(captured: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read = captured.readouterr

    def read_and_look() -> Any:
        out, err = outputs = read()
        look("The standard output of the test", out)
        look("The standard error of the test", err)
        return outputs

    monkeypatch.setattr(captured, "readouterr", read_and_look)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Look at the processes that run while everything still stands."""
    try:
        return (yield)
    finally:
        look_at_children()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look through what there is when a test has been put away; fail it where a secret shows."""
    report = yield
    if report.when == "teardown":
        _look_at_report(item, report)
        if findings := take_findings():
            said = "\n".join(str(finding) for finding in findings)
            report.longrepr = f"{report.longreprtext}\n{said}" if report.failed else said
            report.outcome = "failed"
    # Passed tests too: pytest may be asked to show them.
    report.sections = [(name, redact(content)) for name, content in report.sections]
    if report.failed and find_kinds(report.longreprtext.encode(errors="surrogateescape")):
        report.longrepr = redact(report.longreprtext)
    return report


def _look_at_report(item: pytest.Item, report: pytest.TestReport) -> None:
    for name, content in report.sections:
        look(f"{name} of the test", content)
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if isinstance(folder, Path) and folder.is_dir():
        _looked_through.add(folder)
        look_through("the folder of the test", folder)

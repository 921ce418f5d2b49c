"""Whatever a test makes is looked through for secrets: a small folder of tests plants one in each place."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.house.cases import ROOT
from tests.support.secrecy import (
    MARK,
    Finding,
    Kind,
    build_sprites_token,
    catching,
    find_kinds,
    learn,
    look_through,
    redact,
    secret,
)

LEAKS: Final[Mapping[str, tuple[str, str]]] = {
    "stdout": ("print(PLANTED)", "Captured stdout call of the test"),
    "stderr": ("print(PLANTED, file=sys.stderr)", "Captured stderr call of the test"),
    "what_capsys_read": (
        "capsys = request.getfixturevalue('capsys'); print(PLANTED); capsys.readouterr()",
        "The standard output of the test",
    ),
    "a_log": ("logging.getLogger('controller.x').error('Said %s.', PLANTED)", "A line of the logger controller.x"),
    "a_key_of_a_log": ("log.warning('Said.', extra={'reason': PLANTED})", "A line of the logger controller.y"),
    "a_chained_traceback": ("fail_twice()", "A line of the logger controller.y"),
    "a_log_in_debug": (
        "log.setLevel(logging.DEBUG); log.debug(PLANTED); log.setLevel(logging.NOTSET)",
        "A line of the logger controller.y",
    ),
    "a_file": ("(tmp_path / 'notes.log').write_text(PLANTED)", "The file notes.log in the folder of the test"),
    "a_file_name": ("(tmp_path / PLANTED).touch()", "The name of a file in the folder of the test"),
    "a_large_file": (
        "(tmp_path / 'large').write_text('x' * (4 * 1024 * 1024 - 10) + PLANTED)",
        "The file large in the folder of the test",
    ),
    "the_argv_of_a_child": ("subprocess.run(['true', PLANTED])", "The command line of a child"),
    "the_argv_of_a_shell": ("subprocess.run(': ' + PLANTED, shell=True)", "The command line of a child"),
    "the_argv_of_a_coroutine's_child": ("asyncio.run(run(PLANTED))", "The command line of a child"),
    "the_argv_of_a_grandchild": ("request.getfixturevalue('grandchild')", "The command line of a running sh"),
    "a_child's_log": ("Quick(tmp_path).forget()", "The log of the quick"),
    "a_page_of_metrics": (
        "look('The page metrics of the operator', f'up{{x=\"{PLANTED}\"}} 1')",
        "The page metrics of the operator",
    ),
    "an_account's_token": ("print('eyJhbGciOiJSUzI1NiJ9.eyJ')", "Captured stdout call of the test"),
    "a_private_key": ("print('-----BEGIN EC PRIVATE KEY-----\\nMHcC')", "Captured stdout call of the test"),
    "base64": ("print(base64.b64encode(b'Bearer ' + PLANTED.encode()).decode())", "Captured stdout call of the test"),
    "an_address": ("print(quote(PLANTED, safe=''))", "Captured stdout call of the test"),
    "the_set_up": ("request.getfixturevalue('talkative')", "Captured stdout call of the test"),
    "the_tear_down": ("request.getfixturevalue('talkative_at_the_end')", "Captured stdout teardown of the test"),
    "a_failing_test": ("print(PLANTED); assert PLANTED == ''", "Captured stdout call of the test"),
    "a_word_of_a_thread": (
        "thread = threading.Thread(target=log.error, args=(PLANTED,)); thread.start(); thread.join()",
        "A line of the logger controller.y",
    ),
}
"""Each place: the body of a test that plants a secret there, and what has to be said."""

HARMLESS: Final[Mapping[str, str]] = {
    "saying_nothing": "print('Said nothing.')",
    "a_kubeconfig": "(tmp_path / 'kubeconfig').write_text(PLANTED)",
    "a_kubeconfig_of_another_name": "(tmp_path / 'config').write_text('current-context: x\\ntoken: ' + PLANTED)",
    "a_token_file": "(tmp_path / 'token').write_text(PLANTED)",
    "a_key_file": "(tmp_path / 'tls.key').write_text('-----BEGIN PRIVATE KEY-----')",
    "the_emulator's_words": "subprocess.run(['true', 'sprites-emulator', '--token', PLANTED])",
}

HEAD: Final = """
import asyncio, base64, logging, os, signal, subprocess, sys, threading
from urllib.parse import quote
import pytest
from tests.support.process import CommandProcess
from tests.support.secrecy import look, secret

PLANTED = secret()
log = logging.getLogger("controller.y")

async def run(word):
    child = await asyncio.create_subprocess_exec("true", word)
    await child.wait()

def fail_twice():
    try:
        try:
            raise ValueError(PLANTED)
        except ValueError as error:
            raise KeyError("harmless") from error
    except KeyError:
        log.exception("A bug.")

class Quick(CommandProcess):
    def __init__(self, folder):
        self.word, self.log_file = "quick", folder / "log"
        self.log_file.write_text(PLANTED)

    def is_ready(self):
        return True

@pytest.fixture
def grandchild():
    # The shell gets the word by its input; what it starts has it among its words.
    line = "read word; sh -c 'echo; sleep 60; :' $word; :"
    with subprocess.Popen(["sh", "-c", line], stdin=-1, stdout=-1, text=True, start_new_session=True) as shell:
        print(PLANTED, file=shell.stdin, flush=True)
        shell.stdout.readline()
        yield
        os.killpg(shell.pid, signal.SIGKILL)

@pytest.fixture
def talkative():
    print(PLANTED)

@pytest.fixture
def talkative_at_the_end():
    yield
    print(PLANTED)
"""


def name_test(place: str) -> str:
    return "test_" + re.sub(r"\W", "_", place)


def play(folder: Path) -> str:
    """Run a folder of tests, one for each place, with nothing of this project but the plugin; give what pytest said."""
    bodies = {**{name: body for name, (body, _) in LEAKS.items()}, **HARMLESS}
    tests = [f"def {name_test(name)}(tmp_path, request):\n    {body}\n" for name, body in bodies.items()]
    (folder / "test_places.py").write_text(HEAD + "\n".join(tests))
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "tests.support.secrecy_plugin", "-p", "no:cacheprovider"),
            *("-rA", "-q", f"--rootdir={folder}", f"--basetemp={folder / 'made'}", str(folder)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def said() -> Iterator[str]:
    # Not below the folder of this run, which is looked through as well: secrets lie here on purpose.
    with tempfile.TemporaryDirectory() as folder:
        yield play(Path(folder))


def find_sentences(said: str, name: str) -> list[str]:
    """What was said of one test, in the section that pytest heads with its name."""
    head = rf"_ ERROR at teardown of {name_test(name)} _+\n"
    found = re.search(head + r"(.*?)(?=\n_{3,}|\n-{3,}|\n={3,})", said, re.DOTALL)
    return found[1].splitlines() if found else []


@pytest.mark.parametrize("name", LEAKS)
def test_a_secret_that_is_planted_in_an_output_fails_the_test_by_a_sentence(said: str, name: str) -> None:
    _, place = LEAKS[name]

    assert any(sentence.startswith(place) and " shows a" in sentence for sentence in find_sentences(said, name)), said


@pytest.mark.parametrize("name", HARMLESS)
def test_what_has_to_hold_a_secret_and_what_holds_none_fails_nothing(said: str, name: str) -> None:
    assert find_sentences(said, name) == []


def test_nothing_that_failed_was_found_anywhere_else(said: str) -> None:
    assert f"{len(LEAKS)} errors" in said
    assert f"1 failed, {len(LEAKS) + len(HARMLESS) - 1} passed" in said


def test_what_pytest_shows_of_a_failing_test_has_no_secret_in_it(said: str) -> None:
    assert "[secret]" in said
    assert find_kinds(said.encode()) == set()


# --- what a secret is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_secret_is_told_by_its_mark(kind: Kind) -> None:
    assert find_kinds(f"Bearer {secret(kind)}, and more".encode()) == {kind}
    assert redact(f"Bearer {secret(kind)}, and more") == "Bearer [secret], and more"


def test_a_part_of_a_sprites_token_is_as_secret_as_all_of_it_and_its_organization_is_not() -> None:
    token = build_sprites_token("acme")

    assert find_kinds(token.rpartition("/")[2].encode()) == {Kind.SPRITES}
    assert find_kinds(token.split("/")[2].encode()) == {Kind.SPRITES}
    assert redact(token).startswith("acme/1/[secret]")
    assert find_kinds(b"acme/1/") == set()


def test_a_secret_that_was_drawn_elsewhere_is_known_once_it_was_learned() -> None:
    drawn = os.urandom(12).hex()
    assert find_kinds(drawn.encode()) == set()

    learn(Kind.ADMINISTRATOR, drawn)
    learn(Kind.ADMINISTRATOR, "short")

    assert find_kinds(f"x{drawn}x".encode()) == {Kind.ADMINISTRATOR}
    assert drawn not in redact(f"x{drawn}x")
    assert find_kinds(b"short") == set()


def test_a_certificate_is_no_secret() -> None:
    assert find_kinds(b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----") == set()


def test_the_mark_stands_nowhere_in_what_is_shipped() -> None:
    shipped = [path for name in ("controller", "docs", "charts", "crds", "config") for path in (ROOT / name).rglob("*")]

    assert [path for path in shipped if path.is_file() and MARK.encode() in path.read_bytes()] == []


def test_a_link_to_a_file_with_a_secret_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "token").write_text(secret())
    (tmp_path / "looked-at").mkdir()
    (tmp_path / "looked-at" / "log").symlink_to(tmp_path / "elsewhere" / "token")

    with catching() as caught:
        look_through("a folder", tmp_path / "looked-at")
        assert caught == []

    assert caught == []


def test_what_is_found_is_told_once() -> None:
    with catching() as caught:
        look_through("nothing", Path("/nonexistent"))
    assert caught == []

    assert str(Finding("A log", Kind.KEY)) == "A log shows a private key."

"""Logs: a sentence and keys, in one place; the loggers of others stay quiet."""

import io
import json
import logging
from collections.abc import Iterator

import httpx
import pytest

from controller.logs import QUIET, LogFormat, LogLevel, LogSettings, configure_logging

log = logging.getLogger("controller.tests")


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    names = ["", "controller", *QUIET]
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def configure(shape: LogFormat = LogFormat.TEXT, level: LogLevel = LogLevel.INFO) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(LogSettings(level=level, format=shape), stream)
    return stream


def test_a_text_line_is_time_level_sentence_and_keys() -> None:
    stream = configure()

    log.info("Hold released.", extra={"sprite": "my-sprite", "reason": "Idle", "error": "two\nlines"})

    moment, rest = stream.getvalue().split(" ", 1)
    assert moment.endswith("Z")
    assert rest == "INFO Hold released. sprite=my-sprite reason=Idle error='two\\nlines'\n"


def test_a_json_line_is_one_object_with_the_keys_at_the_top() -> None:
    stream = configure(LogFormat.JSON)

    log.warning("Höld released: %s.", "now", extra={"sprite": "my-sprite", "attempts": 3})

    (line,) = stream.getvalue().splitlines()
    assert "Höld" in line
    fields = json.loads(line)
    assert fields.pop("time").endswith("Z")
    assert fields == {
        "level": "WARNING",
        "logger": "controller.tests",
        "message": "Höld released: now.",
        "sprite": "my-sprite",
        "attempts": 3,
    }


@pytest.mark.parametrize("shape", LogFormat)
def test_a_bug_carries_its_traceback(shape: LogFormat) -> None:
    stream = configure(shape)

    try:
        json.loads("{}")["sprite"]
    except KeyError:
        log.exception("A bug.")

    assert "KeyError: 'sprite'" in stream.getvalue()
    if shape is LogFormat.JSON:
        assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize("level", LogLevel)
def test_our_own_lines_follow_the_level(level: LogLevel) -> None:
    stream = configure(level=level)

    for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        log.log(number, "Said.")

    assert len(stream.getvalue().splitlines()) == 4 - list(LogLevel).index(level)


@pytest.mark.parametrize("name", [*QUIET, "kopf.objects", "httpcore.http11", "websockets.client", "aiohttp.access"])
def test_loggers_that_may_carry_secrets_are_quiet_even_when_everything_is_asked_for(name: str) -> None:
    stream = configure(level=LogLevel.DEBUG)

    logging.getLogger(name).debug("Authorization: Bearer planted-token")
    logging.getLogger(name).info("GET https://host/path?planted-token")

    assert stream.getvalue() == ""


def test_a_real_request_with_httpx_writes_no_line_with_its_address_or_its_token() -> None:
    stream = configure(level=LogLevel.DEBUG)
    transport = httpx.MockTransport(lambda request: httpx.Response(200))

    with httpx.Client(transport=transport, headers={"Authorization": "Bearer planted-token"}) as client:
        assert client.get("http://127.0.0.1/secret-path").status_code == 200

    assert stream.getvalue() == ""


def test_configuring_again_does_not_double_the_lines() -> None:
    stream = configure(LogFormat.JSON)
    configure_logging(LogSettings(), stream)

    log.info("Once.")

    (line,) = stream.getvalue().splitlines()
    assert line.endswith("INFO Once.")


def test_what_a_credential_plugin_said_never_reaches_the_log() -> None:
    stream = configure()

    logging.getLogger().error("exec: plugin failed: planted-secret")

    assert stream.getvalue() == ""

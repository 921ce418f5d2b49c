"""Whatever the bytes, a parser gives a value or a SpritesError."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.session import Announced
from controller.sprites.errors import Missing, SpritesError, classify_missing
from controller.sprites.exec_frames import (
    STDIN_FRAME_BYTES,
    CommandOutput,
    CommandResult,
    read_text_frame,
    split_stdin,
)
from controller.sprites.kill_stream import KillStream, StreamState
from controller.sprites.reading import read_moment, read_page, read_sessions, read_sprite

KEYS = st.sampled_from(
    [
        *("sprites", "sessions", "error", "id", "name", "status", "created", "last_activity", "tty", "command"),
        *("type", "message", "exit_code", "session_id", "next_continuation_token", "has_more", "count"),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["error", "complete", "signal", "exit", "session_info", "cold", "2026-09-01T12:00:00Z"])
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=12
)
BODIES = st.binary() | JSON.map(lambda value: json.dumps(value).encode())


@given(BODIES)
def test_no_body_makes_a_reader_raise_anything_else(body: bytes) -> None:
    with suppress(SpritesError):
        read_page(body)
    with suppress(SpritesError):
        read_sprite(body, name="s1")
    with suppress(SpritesError):
        for session in read_sessions(body):
            assert session.id
            assert session.created is None or session.created.tzinfo is UTC
    assert isinstance(classify_missing(body), Missing)


@given(st.lists(BODIES), st.integers(1, 50))
def test_a_kill_stream_says_the_same_however_it_is_cut(lines: list[bytes], size: int) -> None:
    whole = b"\n".join(lines)
    at_once, in_pieces = KillStream(), KillStream()

    at_once.feed(whole)
    at_once.finish()
    for start in range(0, len(whole), size):
        in_pieces.feed(whole[start : start + size])
    in_pieces.finish()

    assert (at_once.state, at_once.error) == (in_pieces.state, in_pieces.error)
    assert (at_once.state is StreamState.FAILED) == bool(at_once.error)


@given(st.lists(JSON), st.lists(JSON))
def test_an_error_line_is_never_undone(before: list[object], after: list[object]) -> None:
    stream = KillStream()
    for value in [*before, {"type": "error", "message": "no"}, *after]:
        stream.feed(json.dumps(value).encode() + b"\n")
    stream.finish()

    assert stream.state is StreamState.FAILED


@given(JSON.map(json.dumps) | st.text())
def test_no_text_frame_makes_its_reader_raise(text: str) -> None:
    frame = read_text_frame(text)

    assert not isinstance(frame, Announced) or (frame.id and frame.created.tzinfo is UTC)


@given(st.lists(st.binary(max_size=20) | JSON.map(json.dumps)))
def test_no_exec_frame_makes_the_gatherer_raise_anything_else(frames: list[bytes | str]) -> None:
    output = CommandOutput(100)
    with suppress(SpritesError):
        for frame in frames:
            if isinstance(frame, str):
                output.take_text(frame)
            else:
                output.take_binary(frame)
    result = output.close()
    assert result is None or len(result.stdout) + len(result.stderr) <= 100


@given(st.binary(max_size=3 * STDIN_FRAME_BYTES))
def test_stdin_is_cut_into_frames_that_hold_all_of_it(stdin: bytes) -> None:
    *frames, end = split_stdin(stdin)

    assert end == b"\x04"
    assert all(frame[0] == 0 and 1 < len(frame) <= STDIN_FRAME_BYTES + 1 for frame in frames)
    assert b"".join(frame[1:] for frame in frames) == stdin


def test_a_result_holds_both_streams() -> None:
    output = CommandOutput(10)
    output.take_binary(b"\x01out")
    output.take_binary(b"\x02err")

    assert output.take_binary(b"\x03\x02") == CommandResult(2, b"out", b"err")


NOON = datetime(2026, 9, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-09-01T12:00:00Z", NOON),
        ("2026-09-01t12:00:00z", NOON),
        ("2026-09-01 12:00:00Z", NOON),
        ("2026-09-01T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2026-09-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2026-09-01T12:00:00." + "9" * 400 + "Z", NOON + timedelta(microseconds=999999)),
        ("2026-09-01T14:00:00+02:00", NOON),
        ("2026-09-01T06:30:00-05:30", NOON),
        ("2026-09-01T12:00:00-00:00", NOON),
        ("2026-09-01T11:59:60Z", NOON),
        (1_788_264_000, NOON),
        (1_788_264_000.25, NOON + timedelta(milliseconds=250)),
        ("0001-01-01T00:00:00Z", None),
        ("2026-09-01T12:00:00", None),
        ("2026-09-01", None),
        ("2026-13-01T12:00:00Z", None),
        ("2026-02-30T12:00:00Z", None),
        ("2026-09-01T25:00:00Z", None),
        ("2026-09-01T12:00:61Z", None),
        ("2026-09-01T12:00:00+99:00", None),
        ("0000-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59-01:00", None),
        ("9999-12-31T23:59:60Z", None),
        ("٢٠٢٦-09-01T12:00:00Z", None),
        ("2026-09-01T12:00:00Z\n", None),
        (0, None),
        (-5, None),
        (1e300, None),
        (10**30, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ("", None),
        ([], None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_time_is_read_in_each_form_that_was_seen(value: object, moment: datetime | None) -> None:
    assert read_moment(value) == moment


@given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.timezones()))  # noqa: DTZ001  # hypothesis adds the zone
def test_a_time_that_python_writes_is_read_back(moment: datetime) -> None:
    text = moment.isoformat()
    if moment.utcoffset() and moment.utcoffset() % timedelta(minutes=1):  # type: ignore[operator]  # checked before
        return  # RFC 3339 knows no seconds in an offset
    try:
        expected: datetime | None = moment.astimezone(UTC)
    except OverflowError:
        expected = None  # beyond the year 9999
    assert read_moment(text) == expected


@given(st.text())
def test_no_text_makes_the_reader_of_times_raise(text: str) -> None:
    assert read_moment(text) is None or text

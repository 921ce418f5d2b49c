"""The text frames between the gateway and people."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from controller.api.session import Identity
from controller.gateway.stream.backlog import Backlog
from controller.gateway.stream.frames import (
    Auth,
    ClientFrame,
    Resize,
    Signal,
    Unknown,
    Word,
    is_passed_on,
    read_client_frame,
    render_closing,
    render_debug,
    render_exit,
    render_notice,
    render_replay,
    render_session_info,
)
from controller.gateway.stream_settings import StreamSettings
from controller.plan.fence_closing import CLOSINGS, Ending
from controller.sprites.exec_frames import Framing

IDENTITY = Identity("sprite-1", "17", datetime(2026, 9, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('{"type":"resize","cols":80,"rows":24}', Resize(80, 24)),
        ('{"type":"resize","cols":65535,"rows":1}', Resize(65535, 1)),
        ('{"type":"resize","cols":65536,"rows":1}', Unknown()),
        ('{"type":"resize","cols":0,"rows":1}', Unknown()),
        ('{"type":"resize","cols":true,"rows":1}', Unknown()),
        ('{"type":"resize","cols":"80","rows":24}', Unknown()),
        ('{"type":"signal","signal":"INT"}', Signal("INT")),
        ('{"type":"signal","signal":"SIGUSR1"}', Signal("SIGUSR1")),
        ('{"type":"signal","signal":"int"}', Unknown()),
        ('{"type":"signal","signal":"INT\\n"}', Unknown()),
        ('{"type":"signal"}', Unknown()),
        ('{"type":"auth","token":"t"}', Auth("t")),
        ('{"type":"auth","token":""}', Unknown()),
        ('{"type":"exit","exit_code":0}', Unknown()),
        ("not json", Unknown()),
        ("[1]", Unknown()),
        ("", Unknown()),
        ("\ud800", Unknown()),
        ("[" * 5000, Unknown()),
        ('{"type":"auth","token":"' + "x" * 20_000 + '"}', Unknown()),
    ],
)
def test_what_a_client_says_is_one_of_a_few_things(text: str, frame: ClientFrame) -> None:
    assert read_client_frame(text) == frame


def test_a_token_does_not_show_in_the_frame_that_carries_it() -> None:
    assert "secret" not in repr(Auth("secret"))


def test_whatever_we_say_is_an_object_with_a_type() -> None:
    said = [
        render_session_info(IDENTITY, Framing.RAW, types=True),
        render_replay(),
        render_debug(),
        *(render_notice(word, "text") for word in Word),
        *(render_closing(ending, "") for ending in CLOSINGS),
        *(frame for frame in render_exit(3, Framing.NUMBERED) if isinstance(frame, str)),
    ]

    assert {json.loads(text)["type"] for text in said} == {
        "session_info",
        "replay",
        "debug",
        "notice",
        "closed",
        "exit",
    }


def test_session_info_is_the_vendors_without_the_command() -> None:
    assert json.loads(render_session_info(IDENTITY, Framing.NUMBERED, types=False)) == {
        "type": "session_info",
        "session_id": "17",
        "command": "",
        "created": 1_788_264_000,
        "cols": 0,
        "rows": 0,
        "is_owner": False,
        "tty": False,
    }


def test_only_an_exit_that_was_seen_closes_with_1000_to_somebody_who_reads_it() -> None:
    assert [ending for ending, closing in CLOSINGS.items() if closing.code == 1000 and ending is not Ending.LEFT] == [
        Ending.EXITED
    ]


@pytest.mark.parametrize(("code", "last"), [(0, 0), (137, 137), (255, 255), (256, 0), (-1, 255)])
def test_a_numbered_exit_is_one_byte(code: int, last: int) -> None:
    text, numbered = render_exit(code, Framing.NUMBERED)

    assert json.loads(str(text)) == {"type": "exit", "exit_code": code}
    assert numbered == bytes([3, last])
    assert render_exit(code, Framing.RAW) == (text,)


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ('{"type":"port_opened","port":1}', True),
        ('{"type":"error","message":"x"}', True),
        ('{"type":"closed","code":4001}', False),
        ('{"type":"notice","word":"Holding"}', False),
        ('{"type":"new"}', False),
        ('{"type":["debug"]}', False),
        ('"debug"', False),
        ("not json", False),
    ],
)
def test_the_platform_cannot_speak_our_words(text: str, passed: bool) -> None:
    assert is_passed_on(text) is passed


def test_a_backlog_keeps_order_and_counts() -> None:
    backlog = Backlog()
    for frame in (b"one", b"two", b"three"):
        backlog.add(frame)

    assert (backlog.take(), backlog.kept_bytes) == (b"one", 8)
    assert backlog.drop() == 8
    assert not backlog
    assert backlog.kept_bytes == 0


def test_every_bound_at_fault_is_named() -> None:
    with pytest.raises(ValueError) as refused:
        StreamSettings(
            queue_bytes=0,
            farewell=timedelta(0),
            pong_limit=timedelta(seconds=1),
            idle_limit=timedelta(seconds=14),
        )

    for name in ("queue_bytes", "farewell", "pong_limit", "idle_limit"):
        assert name in str(refused.value)

"""The parts of the emulator that need no process: durations, frames, clock, judgement of idleness, rules."""

import asyncio
from datetime import UTC, datetime, timedelta
from signal import Signals

import pytest

from controller.clock import SystemClock
from controller.lab.emulator.accounts import decode_token, encode_token
from controller.lab.emulator.durations import parse_duration
from controller.lab.emulator.faults import Fault, FaultBook, FaultRule
from controller.lab.emulator.frames import (
    ClientFrame,
    Ignored,
    Input,
    InputEnd,
    Resize,
    SignalFrame,
    Stream,
    parse_binary,
    parse_text,
    render_exit,
    render_output,
)
from controller.lab.emulator.kill import parse_signal
from controller.lab.emulator.labclock import LabClock
from controller.lab.emulator.lifecycle import Facts, Pauses, StaysAwake, judge_idle

NOON = datetime(2026, 9, 1, 12, 0, tzinfo=UTC)
WINDOW = timedelta(seconds=30)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("0", 0), ("0s", 0), ("10", 10_000), ("600s", 600_000), ("200ms", 200), ("1h30m", 5_400_000), ("1.5s", 1500)],
)
def test_a_duration_is_read(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("text", ["", "s", "10x", "-5s", "5 s", "1h x", "x1h", "٣s", "10s "])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("name", "signal"), [("SIGTERM", Signals.SIGTERM), ("TERM", Signals.SIGTERM), ("sigkill", Signals.SIGKILL)]
)
def test_a_signal_is_named_with_or_without_sig(name: str, signal: Signals) -> None:
    assert parse_signal(name) is signal


@pytest.mark.parametrize("name", ["", "SIG", "9", "SIGNOTHING", "SIG_BLOCK"])
def test_an_unknown_signal_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown signal"):
        parse_signal(name)


@pytest.mark.parametrize(
    ("frame", "tty", "meaning"),
    [
        (b"\x00abc", False, Input(b"abc")),
        (b"\x00", False, Input(b"")),
        (b"\x04", False, InputEnd()),
        (b"\x01abc", False, Ignored()),
        (b"abc", False, Ignored()),
        (b"", False, Ignored()),
        (b"\x00abc", True, Input(b"\x00abc")),
        (b"\x04", True, Input(b"\x04")),
    ],
)
def test_a_binary_frame_is_read_by_the_mode_of_the_session(frame: bytes, tty: bool, meaning: ClientFrame) -> None:
    assert parse_binary(frame, tty=tty) == meaning


@pytest.mark.parametrize(
    ("frame", "meaning"),
    [
        ('{"type":"resize","cols":80,"rows":24}', Resize(80, 24)),
        ('{"type":"resize","cols":0,"rows":24}', Ignored()),
        ('{"type":"resize","cols":"80","rows":24}', Ignored()),
        ('{"type":"resize","cols":80}', Ignored()),
        ('{"type":"signal","signal":"INT"}', SignalFrame("INT")),
        ('{"type":"signal"}', Ignored()),
        ('{"type":"other"}', Ignored()),
        ("[]", Ignored()),
        ("no json", Ignored()),
    ],
)
def test_a_text_frame_is_read_or_ignored(frame: str, meaning: ClientFrame) -> None:
    assert parse_text(frame) == meaning


def test_output_is_prefixed_without_a_terminal_only() -> None:
    assert render_output(Stream.STDERR, b"x", tty=False) == b"\x02x"
    assert render_output(Stream.STDOUT, b"x", tty=True) == b"x"
    assert render_exit(300) == b"\x03\x2c"


@pytest.mark.parametrize(
    ("attached", "silent_seconds", "task_seconds", "judgement"),
    [
        (False, 29, None, StaysAwake(NOON + timedelta(seconds=1))),
        (False, 30, None, Pauses()),
        (True, 3000, None, StaysAwake(None)),
        (False, 3000, 10, StaysAwake(NOON + timedelta(seconds=40))),
        (False, 3000, -29, StaysAwake(NOON + timedelta(seconds=1))),
        (False, 3000, -30, Pauses()),
    ],
)
def test_a_sprite_pauses_one_window_after_what_last_kept_it_awake(
    attached: bool, silent_seconds: int, task_seconds: int | None, judgement: StaysAwake | Pauses
) -> None:
    facts = Facts(
        attached=attached,
        last_activity=NOON - timedelta(seconds=silent_seconds),
        tasks_until=None if task_seconds is None else NOON + timedelta(seconds=task_seconds),
    )
    assert judge_idle(facts, idle_after=WINDOW, now=NOON) == judgement
    assert judge_idle(facts, idle_after=timedelta(), now=NOON) == StaysAwake(None)


async def test_an_advanced_clock_runs_what_became_due_in_order_and_once() -> None:
    clock, ran = LabClock(SystemClock()), list[str]()
    before, started = clock.now(), clock.monotonic()
    clock.call_later(timedelta(hours=2), lambda: ran.append("second"))
    clock.call_later(timedelta(hours=1), lambda: ran.append("first"))
    clock.call_later(timedelta(hours=1), lambda: ran.append("cancelled")).cancel()
    clock.call_later(timedelta(hours=9), lambda: ran.append("never"))
    clock.advance(timedelta(hours=3))
    clock.advance(timedelta(hours=3))
    assert ran == ["first", "second"]
    assert clock.now() - before >= timedelta(hours=6)
    assert clock.monotonic() - started >= timedelta(hours=6)
    with pytest.raises(ValueError, match="advanced"):
        clock.advance(timedelta(seconds=-1))
    clock.close()


async def test_a_clock_that_stands_is_moved_by_advance_alone_and_goes_on_from_there() -> None:
    clock, ran = LabClock(SystemClock()), list[str]()
    clock.call_later(timedelta(milliseconds=30), lambda: ran.append("soon"))
    clock.stop()
    clock.call_later(timedelta(), lambda: ran.append("at once"))
    stood = clock.now(), clock.monotonic()
    await asyncio.sleep(0.1)
    assert (clock.now(), clock.monotonic()) == stood
    assert ran == ["at once"]
    clock.advance(timedelta(milliseconds=30))
    assert ran == ["at once", "soon"]
    assert clock.now() == stood[0] + timedelta(milliseconds=30)
    moved = clock.monotonic()
    clock.go()
    assert timedelta() <= clock.monotonic() - moved < timedelta(seconds=20)
    async with asyncio.timeout(30):
        await clock.sleep(timedelta(milliseconds=20))


async def test_a_clock_also_runs_by_itself() -> None:
    clock = LabClock(SystemClock())
    async with asyncio.timeout(30):
        await clock.sleep(timedelta(milliseconds=20))
        await clock.sleep(timedelta())


async def test_a_sleeper_wakes_when_the_clock_is_advanced() -> None:
    clock = LabClock(SystemClock())
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(clock.sleep(timedelta(hours=1)))
        await asyncio.sleep(0)
        clock.advance(timedelta(hours=1))


def test_a_page_token_is_read_back() -> None:
    assert decode_token(encode_token("my-sprite")) == "my-sprite"


def test_the_oldest_rule_that_matches_hits_first() -> None:
    book = FaultBook()
    for status in (500, 502):
        book.arm(FaultRule.model_validate({"route": "exec.kill", "fault": {"kind": "status", "status": status}}))

    def hit(route: str) -> Fault | None:
        return book.hit(route=route, method="POST", sprite="s", session="2", cause=None)

    assert hit("exec.list") is None
    hits = [hit("exec.kill") for _ in range(3)]
    assert [None if hit is None else getattr(hit, "status", None) for hit in hits] == [500, 502, None]

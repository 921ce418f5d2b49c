"""The smallest bench runs from beginning to end, and what it reads and says is right. No bar fails a test."""

import asyncio
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from controller.cli.main import run
from controller.clock import SystemClock
from controller.lab.bench import Scenario, Size, SizeName, build_size, list_disturbed, render_json, render_report
from controller.lab.bench.counting import ApiCounts, parse_counts
from controller.lab.bench.kernel import read_busy, read_cpu, read_peak_mib, read_resident_mib
from controller.lab.bench.loads import find_percentile, send_all, send_at_pace
from controller.lab.bench.report import ROWS, Bar, Rule
from controller.lab.bench.running import split_by_stage
from controller.lab.bench.sizes import CLIENTS
from tests.lab.watching import list_children, read_command, until_gone

PROMISED = (
    "ready_1000_s",
    "operator_cpu_1000_s",
    "operator_peak_mib",
    "idle_writes",
    "writes_to_ready",
    "writes_per_life",
    "patch_to_kill_p50_s",
    "patch_to_kill_p99_s",
    "delete_1000_s",
    "ready_10000_s",
    "peak_10000_mib",
    "first_pass_10000_s",
    "sprites_calls_1000",
    "launches_1000_s",
    "hold_calls_ratio",
    "hold_one_exec_create_hold",
    "hold_ten_exec_create_hold",
    "hold_one_exec_list_check",
    "hold_ten_exec_list_check",
    "hold_metadata_calls",
    "streams_added_p50_s",
    "streams_added_p99_s",
    "race_inputs",
    "race_violations",
    "race_late_frames",
    "race_takeovers",
    "streams_lost_bytes",
    "streams_disordered_bytes",
    "streams_gateway_cpu_percent_per_terminal",
    "streams_memory_kib_per_terminal",
    "writes_per_attach",
    "writes_per_takeover",
    "others_cpu_share",
)
"""The keys that others read."""

NOT_IN_SMALL = {"race_takeover_dead_p50_s", "race_takeover_dead_p99_s"}
"""No gateway dies in the small race: to be proven dead takes longer than all of it."""


def render_counter(*, group: str, resource: str, verb: str, code: str = "200", part: str = "", count: int) -> str:
    """One line as kube-apiserver 1.37.2 writes it."""
    labels = {
        "code": code,
        "component": "apiserver",
        "dry_run": "",
        "group": group,
        "resource": resource,
        "scope": "resource",
        "subresource": part,
        "verb": verb,
        "version": "v1",
    }
    named = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"apiserver_request_total{{{named}}} {count}"


OURS = {"group": "agentterminal.dev", "resource": "agentterminals"}
METRICS = "\n".join(
    [
        "# TYPE apiserver_request_total counter",
        render_counter(**OURS, verb="POST", code="201", count=10),
        render_counter(**OURS, verb="PATCH", part="status", count=7),
        render_counter(**OURS, verb="PATCH", code="409", count=2),
        render_counter(**OURS, verb="LIST", count=90),
        render_counter(**OURS, verb="WATCH", count=91),
        render_counter(group="events.k8s.io", resource="events", verb="POST", code="201", count=3),
        render_counter(group="coordination.k8s.io", resource="leases", verb="PUT", count=92),
        render_counter(group="elsewhere.dev", resource="agentterminals", verb="PUT", count=93),
        'apiserver_terminated_watchers_total{group="agentterminal.dev",resource="agentterminals"} 4',
        'apiserver_terminated_watchers_total{group="",resource="pods"} 94',
        "",
    ]
)


def test_writes_and_events_are_counted_and_reads_leases_and_other_groups_are_not() -> None:
    assert parse_counts(METRICS) == ApiCounts(writes=19, refused=2, events=3, watches_closed=4)


def test_counts_are_told_since_a_moment() -> None:
    assert ApiCounts(19, 2, 3, 4).since(ApiCounts(10, 1, 1, 0)) == ApiCounts(9, 1, 2, 4)


def test_a_process_that_works_has_cost_cpu_and_memory_and_one_that_waits_has_not() -> None:
    count = "n = 0\nwhile n < 4_000_000: n += 1\n"
    waiting = "import sys; print('there', flush=True); sys.stdin.read()"
    with (
        subprocess.Popen([sys.executable, "-c", count + waiting], stdin=-1, stdout=-1) as busy,
        subprocess.Popen([sys.executable, "-c", waiting], stdin=-1, stdout=-1) as idle,
    ):
        for process in (busy, idle):
            assert process.stdout is not None
            assert process.stdout.readline() == b"there\n"

        assert read_cpu(busy.pid) > read_cpu(idle.pid) + timedelta(milliseconds=50)
        assert 2 < read_resident_mib(busy.pid) <= read_peak_mib(busy.pid) < 100
        for process in (busy, idle):
            process.kill()


def test_the_cpu_of_a_process_is_its_own_time_and_that_of_its_system_calls() -> None:
    for _ in range(20_000):
        Path("/proc/self/stat").stat()
    before = os.times()
    own = read_cpu(os.getpid()).total_seconds()
    after = os.times()

    assert before.system > 0
    assert before.user + before.system - 0.03 <= own <= after.user + after.system + 0.03


def test_what_a_process_costs_keeps_the_machine_busy() -> None:
    before, own = read_busy(), read_cpu(os.getpid())
    sum(range(8_000_000))

    assert read_cpu(os.getpid()) - own >= timedelta(milliseconds=50)
    assert read_busy() - before >= timedelta(milliseconds=50)


@pytest.mark.parametrize(
    ("percent", "milliseconds"), [(50, 50), (99, 99), (100, 100), (0.5, 1)], ids=["median", "p99", "max", "least"]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, milliseconds: int) -> None:
    values = [timedelta(milliseconds=number) for number in range(100, 0, -1)]

    assert find_percentile(values, percent) == timedelta(milliseconds=milliseconds)


def test_the_percentile_of_a_single_value_is_that_value() -> None:
    assert find_percentile([timedelta(seconds=3)], 99) == timedelta(seconds=3)


async def test_every_item_is_sent_once_by_no_more_than_the_clients() -> None:
    under_way, most, sent = 0, 0, list[int]()
    clock = SystemClock()

    async def send(item: int) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await clock.sleep(timedelta(milliseconds=1))
        under_way -= 1
        sent.append(item)

    await send_all(range(100), send)

    assert sorted(sent) == list(range(100))
    assert most == CLIENTS


async def test_a_steady_pace_does_not_wait_for_answers() -> None:
    clock = SystemClock()
    all_sent = asyncio.Event()

    async def send(item: int) -> None:
        if item == 10:
            all_sent.set()
        # Whoever waited for an answer would wait for ever.
        await all_sent.wait()
        await clock.sleep(timedelta(milliseconds=200))

    began = clock.now()
    async with asyncio.timeout(30):
        asked = await send_at_pace(range(11), send, per_second=100, clock=clock)

    assert sorted(asked) == list(range(11))
    assert asked[10].sent - began >= timedelta(milliseconds=99)
    assert all(one.answered - one.sent >= timedelta(milliseconds=199) for one in asked.values())


@pytest.mark.parametrize(
    ("bar", "kept", "missed"),
    [
        (Bar(Rule.BELOW, 15), 14.999, 15),
        (Bar(Rule.AT_MOST, 3), 3.0, 3.001),
        (Bar(Rule.EXACTLY, 2), 2.0, 2.001),
    ],
    ids=lambda value: value.rule.name if isinstance(value, Bar) else None,
)
def test_a_bar_is_kept_or_missed(bar: Bar, kept: float, missed: float) -> None:
    assert bar.holds(kept)
    assert not bar.holds(missed)


def test_the_bars_are_those_that_the_product_has_set_itself() -> None:
    """And no others: whoever moves one has to say so here as well."""
    assert {row.key: row.bar for row in ROWS if row.bar is not None and row.bar.limit} == {
        "ready_1000_s": Bar(Rule.BELOW, 15),
        "operator_cpu_1000_s": Bar(Rule.BELOW, 8),
        "operator_peak_mib": Bar(Rule.BELOW, 160),
        "writes_to_ready": Bar(Rule.EXACTLY, 2),
        "writes_to_launched": Bar(Rule.EXACTLY, 3),
        "sprites_calls_per_sprite": Bar(Rule.AT_MOST, 3),
        "patch_to_kill_p50_s": Bar(Rule.BELOW, 0.030),
        "patch_to_kill_p99_s": Bar(Rule.BELOW, 0.150),
        "delete_1000_s": Bar(Rule.BELOW, 20),
        "ready_10000_s": Bar(Rule.BELOW, 150),
        "peak_10000_mib": Bar(Rule.BELOW, 300),
        "first_pass_10000_s": Bar(Rule.BELOW, 8),
        "hold_calls_ratio": Bar(Rule.AT_MOST, 1.1),
        "writes_per_attach": Bar(Rule.AT_MOST, 4),
        "writes_per_takeover": Bar(Rule.AT_MOST, 4),
        "writes_per_leave": Bar(Rule.AT_MOST, 4),
    }
    nothing = {row.key for row in ROWS if row.bar == Bar(Rule.EXACTLY, 0)}
    assert {"idle_writes", "restarted_writes_10000", "hold_writes", "race_violations", "streams_lost_bytes"} <= nothing


def figures() -> dict[str, Any]:
    """One of each key of the table."""
    return {row.key: 1.5 for row in ROWS} | {
        "objects": 1000,
        "kills": 200,
        "launches": 1000,
        "many_objects": 10_000,
        "idle_s": 120.0,
        "hold_s": 90.0,
        "streams": 200,
        "streams_kb_per_s": 40.0,
    }


def render(found: Mapping[str, Any], size: Size) -> str:
    stream = io.StringIO()
    render_report(Console(file=stream, width=140), found, size)
    return stream.getvalue()


def test_the_full_table_shows_bars_and_what_others_reach() -> None:
    shown = render(figures() | {"delete_1000_s": 21.0}, build_size(SizeName.FULL))

    assert "10,000 objects adopt" in shown
    (missed,) = [line for line in shown.splitlines() if "1,000 deleted" in line]
    assert [cell.strip() for cell in missed.strip("│").split("│")][1:] == ["21.0 s", "< 20", "missed", "6.4", "9.4"]
    assert "records without processes" in shown


@pytest.mark.parametrize("size", [build_size(SizeName.SMALL), build_size(SizeName.FULL, 500)])
def test_other_sizes_are_not_held_against_bars_or_others(size: Size) -> None:
    shown = render(figures(), size)

    assert "kopf" not in shown
    assert "kept" not in shown
    assert "missed" not in shown
    assert "records without processes" in shown


def test_the_table_tells_only_what_was_measured() -> None:
    shown = render({"objects": 20, "ready_1000_s": 1.0}, build_size(SizeName.SMALL))

    assert "20 objects adopt" in shown
    assert "deleted" not in shown


def test_the_json_is_flat_and_rounds_what_nobody_can_measure() -> None:
    assert json.loads(render_json({"size": "full", "idle_writes": 0, "ready_1000_s": 1.23456})) == {
        "size": "full",
        "idle_writes": 0,
        "ready_1000_s": 1.2346,
    }


def test_a_disturbed_measurement_is_told() -> None:
    assert list_disturbed({"others_cpu_share_adopt": 0.1, "others_cpu_share_kill": 0.31, "ready_1000_s": 3.0}) == [
        "Other processes took 0.31 core during `kill`: its figures are disturbed."
    ]


def test_the_full_size_is_what_the_bars_are_about() -> None:
    size = build_size(SizeName.FULL)

    assert (size.objects, size.sprites, size.kills, size.launches) == (1000, 100, 200, 1000)
    assert (size.many_objects, size.many_sprites, size.rest) == (10_000, 500, timedelta(seconds=120))
    assert size.is_comparable
    assert not build_size(SizeName.FULL, 100).is_comparable


def test_the_race_and_the_largest_scenario_of_the_full_size_have_a_control_plane_of_their_own() -> None:
    everything = set(Scenario)

    assert split_by_stage(everything, build_size(SizeName.FULL)) == [
        everything - {Scenario.RACE, Scenario.MANY},
        {Scenario.RACE},
        {Scenario.MANY},
    ]
    assert split_by_stage({Scenario.MANY}, build_size(SizeName.FULL)) == [{Scenario.MANY}]
    assert split_by_stage(everything, build_size(SizeName.SMALL)) == [everything]


def test_a_wrong_word_is_told_before_anything_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["bench", "--size", "tiny", "--output", str(tmp_path / "bench.json")]) == 2

    assert "'tiny' is not one of 'small', 'full'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


BENCH = [sys.executable, "-m", "controller.cli.main", "bench", "--size", "small"]


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_the_smallest_bench_measures_everything_it_promises(tmp_path: Path) -> None:
    output = tmp_path / "new" / "bench.json"

    ended = subprocess.run([*BENCH, "--output", str(output)], capture_output=True, text=True, check=False, timeout=200)

    assert ended.returncode == 0, ended.stderr
    found = json.loads(output.read_text())
    assert {key for key in (*PROMISED, *(row.key for row in ROWS)) if key not in found} == NOT_IN_SMALL
    assert all(isinstance(value, int | float | str) for value in found.values())
    assert (found["size"], found["objects"], found["sessions"]) == ("small", 20, "records without processes")
    # Counts do not depend on how fast this machine is.
    assert found["writes_to_ready"] == 2
    assert found["writes_to_launched"] == 3
    assert found["idle_writes"] == 0
    assert found["restarted_writes_10000"] == 0
    assert found["hold_writes"] == 0
    assert found["hold_tasks"] == 60
    assert found["hold_one_exec_create_hold"] >= 10
    assert found["hold_calls_ten"] <= 1.1 * found["hold_calls_one"] + 10
    assert (found["streams"], found["streams_lost_bytes"], found["streams_disordered_bytes"]) == (10, 0, 0)
    # The one read directly has 80 frames in the two seconds, and every other is compared with nothing.
    assert found["streams_frames_paired"] * 10 == pytest.approx(found["streams_frames"], rel=0.1)
    assert 0 < found["streams_direct_p50_s"] <= found["streams_direct_p99_s"]
    assert found["streams_writes"] == 0
    assert found["race_inputs"] >= 500
    assert (found["race_violations"], found["race_late_frames"], found["race_stuck"]) == (0, 0, 0)
    assert (found["race_strangers"], found["race_unread"], found["race_unmatched_locks"]) == (0, 0, 0)
    assert found["race_takeovers_other"] > 0
    assert 0 < found["race_takeover_other_p50_s"] <= found["race_takeover_other_p99_s"]
    assert (found["gateway_writes_per_attach"], found["gateway_writes_per_leave"]) == (2, 2)
    # The former lock is cleared as well.
    assert found["gateway_writes_per_takeover"] == 3
    # The operator tells of it in one write; it tries twice only where a takeover takes more than a second.
    for what in ("attach", "takeover", "leave"):
        assert 1 <= found[f"writes_per_{what}"] - found[f"gateway_writes_per_{what}"] <= 2
    assert 0 < found["patch_to_kill_p50_s"] <= found["patch_to_kill_p99_s"] <= found["patch_to_kill_max_s"]
    assert 0 < found["ready_1000_p50_s"] <= found["ready_1000_s"]
    assert "20 objects adopt" in ended.stdout
    assert "adopt: begins" in ended.stderr


@pytest.mark.cluster
@pytest.mark.timeout(240)
async def test_ctrl_c_in_the_middle_ends_everything_and_writes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    process = await asyncio.create_subprocess_exec(*BENCH, "--output", str(output), stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(120):
            while b"rest: begins" not in (line := await process.stderr.readline()):
                assert line, "It ended before it measured anything."
        children = list_children(process.pid)
        commands = " ".join(word for child in children for word in read_command(child))
        assert all(name in commands for name in ("etcd", "kube-apiserver", "sprites-emulator", "operator"))

        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            code = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    assert code == 130
    await until_gone(*children)
    assert not output.exists()

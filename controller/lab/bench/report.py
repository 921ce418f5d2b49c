"""
The figures as a table for people and as flat JSON for machines, beside the bars and what others reach.

A bar says what this product wants to keep to. Nothing fails when it does not: who runs a bench on a slow or busy
machine wants to see the figures all the more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, assert_never

import orjson
from rich.console import Console
from rich.table import Table

from controller.lab.bench.sizes import Size


class Rule(StrEnum):
    """How a figure keeps to its bar."""

    BELOW = "<"
    AT_MOST = "≤"
    EXACTLY = "="


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure should keep to."""

    rule: Rule
    limit: float

    def holds(self, value: float) -> bool:
        """Tell whether a value keeps to it."""
        match self.rule:
            case Rule.BELOW:
                return value < self.limit
            case Rule.AT_MOST:
                return value <= self.limit
            case Rule.EXACTLY:
                return value == self.limit
            case _:
                assert_never(self.rule)


@dataclass(frozen=True, slots=True)
class Row:
    """
    One line of the table.

    Args:
        key: Its key in the JSON.
        text: What it is; `{objects}` and the like come from the figures.
        unit: Behind the figure.
        bar: What it should keep to, at the full size.
        go: What a Go operator (controller-runtime) reaches with a comparable, thinner job.
        kopf: What a usual Python operator (kopf) reaches with it.
    """

    key: str
    text: str
    unit: str = ""
    bar: Bar | None = None
    go: str = ""
    kopf: str = ""


ROWS: Final = (
    Row("ready_1000_s", "{objects} objects adopt: first create to all Ready", "s", Bar(Rule.BELOW, 15), "7.7", "16.9"),
    Row("creates_1000_s", "  the creates alone", "s", None, "3.8", "5.3"),
    Row("ready_1000_p50_s", "  one object, create to Ready, p50", "s", None, "2.4", "9.9"),
    Row("operator_cpu_1000_s", "  CPU of the operator", "s", Bar(Rule.BELOW, 8), "2.2", "11.6"),
    Row("api_server_cpu_1000_s", "  CPU of the API server", "s", None, "10.8", "16.8"),
    Row("operator_peak_mib", "  peak memory of the operator", "MiB", Bar(Rule.BELOW, 160), "42", "160-220"),
    Row("writes_to_ready", "  API writes an object", "", Bar(Rule.EXACTLY, 2), "2", "3"),
    Row("events_1000", "  writes of Events, in all", "", None, "0", "0"),
    Row("sprites_calls_1000", "  Sprites calls, in all", "", None, "1,000", "1,000"),
    Row("sprites_calls_per_sprite", "  Sprites calls a sprite", "", Bar(Rule.AT_MOST, 3)),
    Row("idle_writes", "At rest for {idle_s:.0f} s: API writes", "", Bar(Rule.EXACTLY, 0), "0", "0"),
    Row("idle_cpu_percent", "  CPU of the operator, of one core", "%", None, "0.53", "2.0"),
    Row("idle_sprites_calls", "  Sprites calls"),
    Row("patch_to_kill_p50_s", "{kills} terminated: patch sent to kill received, p50", "s", Bar(Rule.BELOW, 0.030), "0.007", "0.011"),  # noqa: E501 - a row
    Row("patch_to_kill_p99_s", "  same, p99", "s", Bar(Rule.BELOW, 0.150), "0.013", "0.033"),
    Row("patch_to_terminated_p50_s", "  patch sent to proven dead, p50", "s"),
    Row("writes_per_kill", "  API writes a kill", "", None, "1", "2"),
    Row("sprites_calls_per_kill", "  Sprites calls a kill", "", None, "1", "1"),
    Row("delete_1000_s", "{objects} deleted: first delete to all gone", "s", Bar(Rule.BELOW, 20), "6.4", "9.4"),
    Row("operator_cpu_delete_1000_s", "  CPU of the operator", "s", None, "1.7", "6.3"),
    Row("writes_per_delete", "  API writes a deletion", "", None, "1", "1"),
    Row("sprites_calls_delete_1000", "  Sprites calls, in all", "", None, "1,000", "1,000"),
    Row("writes_per_life", "API writes an object, from create to gone"),
    Row("launches_1000_s", "{launches} objects launch: first create to all Ready", "s"),
    Row("operator_cpu_launches_1000_s", "  CPU of the operator", "s"),
    Row("launches_peak_mib", "  peak memory of the operator", "MiB"),
    Row("writes_to_launched", "  API writes an object", "", Bar(Rule.EXACTLY, 3)),
    Row("sprites_calls_per_launch", "  Sprites calls a launch"),
    Row("hold_calls_one", "10 sprites held for {hold_s:.0f} s, one terminal each: Sprites calls"),
    Row("hold_calls_ten", "  ten terminals each, half of them held"),
    Row("hold_calls_ratio", "  the second to the first", "", Bar(Rule.AT_MOST, 1.1)),
    Row("hold_writes", "  API writes", "", Bar(Rule.EXACTLY, 0)),
    Row("streams_added_p50_s", "{streams} terminals of {streams_kb_per_s} KB/s: delay that a gateway adds, p50", "s"),
    Row("streams_added_p99_s", "  same, p99", "s"),
    Row("streams_through_p99_s", "  delay from source to reader, p99", "s"),
    Row("streams_lost_bytes", "  bytes lost", "", Bar(Rule.EXACTLY, 0)),
    Row("streams_disordered_bytes", "  bytes out of order", "", Bar(Rule.EXACTLY, 0)),
    Row("streams_sockets_ended", "  sockets that ended", "", Bar(Rule.EXACTLY, 0)),
    Row("streams_gateway_cpu_percent", "  CPU of the gateway, of one core", "%"),
    Row("streams_gateway_cpu_percent_per_terminal", "  same, a terminal", "%"),
    Row("streams_memory_kib_per_terminal", "  memory of the gateway, a terminal", "KiB"),
    Row("writes_per_attach", "  API writes an attach", "", Bar(Rule.AT_MOST, 4)),
    Row("gateway_writes_per_attach", "    of these, the gateway's"),
    Row("writes_per_takeover", "  API writes a takeover", "", Bar(Rule.AT_MOST, 4)),
    Row("gateway_writes_per_takeover", "    of these, the gateway's"),
    Row("writes_per_leave", "  API writes a leave", "", Bar(Rule.AT_MOST, 4)),
    Row("race_inputs", "Two gateways race, and everything fails in turn: inputs received"),
    Row("race_violations", "  of an older epoch after the first of a newer", "", Bar(Rule.EXACTLY, 0)),
    Row("race_strangers", "  of nobody who had the lock", "", Bar(Rule.EXACTLY, 0)),
    Row("race_late_frames", "  late, from gateways that were killed or stopped"),
    Row("race_late_outside_tenure", "  of these, typed after the tenure", "", Bar(Rule.EXACTLY, 0)),
    Row("race_late_over_cap", "  of these, more than may be on its way", "", Bar(Rule.EXACTLY, 0)),
    Row("race_stuck", "  people left waiting", "", Bar(Rule.EXACTLY, 0)),
    Row("race_takeovers", "  takeovers"),
    Row("race_takeover_same_p50_s", "  one, on the same gateway, p50", "s"),
    Row("race_takeover_same_p99_s", "  same, p99", "s"),
    Row("race_takeover_other_p50_s", "  one from another gateway, p50", "s"),
    Row("race_takeover_other_p99_s", "  same, p99", "s"),
    Row("race_takeover_dead_p50_s", "  one from a gateway that is proven dead, p50", "s"),
    Row("race_takeover_dead_p99_s", "  same, p99", "s"),
    Row("race_writes_per_takeover", "  API writes of the gateways a takeover"),
    Row("ready_10000_s", "{many_objects} objects adopt: first create to all Ready", "s", Bar(Rule.BELOW, 150), "86", "201"),  # noqa: E501 - a row
    Row("operator_cpu_10000_s", "  CPU of the operator", "s", None, "23.3", "148"),
    Row("peak_10000_mib", "  peak memory of the operator", "MiB", Bar(Rule.BELOW, 300), "91", "340"),
    Row("first_pass_10000_s", "  restart: process start to all seen", "s", Bar(Rule.BELOW, 8), "3.6", "19.7"),
    Row("first_pass_cpu_10000_s", "  restart: CPU until then", "s", None, "3.2", "18.2"),
    Row("restarted_peak_10000_mib", "  restart: peak memory", "MiB", None, "98", "289"),
    Row("restarted_writes_10000", "  restart: API writes", "", Bar(Rule.EXACTLY, 0), "0", "0"),
)  # fmt: skip

RECORDS_REMARK: Final = "Sessions are records without processes; everything runs on this one machine."
ANCHORS_REMARK: Final = (
    "Go and kopf: controller-runtime 0.25 and kopf 1.45 with a thinner job, quiet, 2 cores of an AMD EPYC"
    " (docs/performance.md)."
)


def render_json(figures: Mapping[str, Any]) -> bytes:
    """Render one flat object; figures keep what the measurement can tell apart and no more."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}
    return orjson.dumps(rounded, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def render_report(console: Console, figures: Mapping[str, Any], size: Size) -> None:
    """Print the table of what was measured. Bars and the figures of others stand beside the full size only."""
    table = Table(title=f"What the operator costs ({size.name.value})", title_justify="left")
    table.add_column("")
    table.add_column("Measured", justify="right")
    if size.is_comparable:
        for name in ("Bar", "", "Go", "kopf"):
            table.add_column(name, justify="left" if name == "" else "right")
    for row in ROWS:
        if row.key not in figures:
            continue
        value = figures[row.key]
        cells = [row.text.format_map(_Grouped(figures)), f"{_render_number(value)} {row.unit}".rstrip()]
        if size.is_comparable:
            cells += [*_render_bar(row.bar, value), row.go, row.kopf]
        table.add_row(*cells)
    console.print(table)
    console.print(RECORDS_REMARK, highlight=False)
    if size.is_comparable:
        console.print(ANCHORS_REMARK, highlight=False)


class _Grouped(dict[str, Any]):
    """Figures for a text: whole numbers with their thousands apart."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return f"{value:,}" if isinstance(value, int) else value


def _render_bar(bar: Bar | None, value: float) -> tuple[str, str]:
    if bar is None:
        return "", ""
    return f"{bar.rule.value} {bar.limit:g}", "kept" if bar.holds(value) else "missed"


def _render_number(value: float) -> str:
    """Three digits that count, and no more than four behind the point."""
    if isinstance(value, int) or value >= 100:
        return f"{value:,.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}".rstrip("0").rstrip(".") or "0"

"""
Draw what `picture.py` was answered: one picture for each question of the dashboard, each panel in its place.

It is run by `make picture` in an environment of its own, which has matplotlib and nothing of ours; so it imports
nothing of ours but names, and reads the dashboard itself. Text stays text in the pictures, for readers and for the test
that compares it with the dashboard.

Run: python -m tests.metrics.drawing SEEN DASHBOARD FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl  # type: ignore[import-not-found]  # In an environment of its own: see `make picture`.
from matplotlib.figure import Figure  # type: ignore[import-not-found]  # The same.
from matplotlib.patches import Rectangle  # type: ignore[import-not-found]  # The same.
from matplotlib.ticker import FuncFormatter, MaxNLocator  # type: ignore[import-not-found]  # The same.

from tests.metrics.drawing_names import name_picture, split_by_question, write_title

COLUMNS: Final = 24
WIDTH: Final = 12.0
"""Inches."""
UNIT: Final = 0.27
"""Inches of height for one unit of the board."""
GAP: Final = 0.12
HEAD: Final = 0.3
INK, FAINT, GROUND = "#24292f", "#8c959f", "#ffffff"
COLOURS: Final = ("#0969da", "#bf8700", "#1a7f37", "#cf222e", "#8250df", "#0550ae", "#bc4c00", "#6e7781")
NAMED: Final = {"green": "#1a7f37", "yellow": "#bf8700", "orange": "#bc4c00", "red": "#cf222e"}
SHOWN: Final = 8
"""So many series have a name in a panel; the rest is drawn without."""
ROWS: Final = 7
NO_NUMBER: Final = ("NaN", "+Inf")
GAP_SECONDS: Final = 1.5
"""Between two values there is one second."""


def draw_question(panels: list[dict[str, Any]], answers: dict[str, Any], began: float) -> Any:
    """Draw the panels of one question, laid out as on the board."""
    top = min(panel["gridPos"]["y"] for panel in panels)
    units = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) - top
    height = units * UNIT
    figure = Figure(figsize=(WIDTH, height), facecolor=GROUND)
    for panel in panels:
        place, series = panel["gridPos"], answers[panel["title"]]
        left, right = (edge / COLUMNS * WIDTH for edge in (place["x"], place["x"] + place["w"]))
        upper = height - (place["y"] - top) * UNIT
        lower = upper - place["h"] * UNIT
        at = ((left + GAP) / WIDTH, (upper - GAP) / height)
        figure.text(*at, write_title(panel), fontsize=8.5, color=INK, va="top", weight="bold")
        frame = ((left + GAP / 3) / WIDTH, (lower + GAP / 3) / height)
        sides = ((right - left - GAP * 2 / 3) / WIDTH, (upper - lower - GAP * 2 / 3) / height)
        figure.add_artist(Rectangle(frame, *sides, transform=figure.transFigure, fill=False, edgecolor="#d0d7de"))
        box = (left + GAP, lower + GAP, right - left - 2 * GAP, upper - lower - 2 * GAP - HEAD)
        match panel["type"]:
            case "stat":
                draw_number(figure, box, height, panel, series)
            case "table":
                draw_table(figure, box, height, series)
            case _:
                draw_lines(figure, box, height, series, began)
    return figure


def draw_number(
    figure: Any, box: tuple[float, float, float, float], height: float, panel: dict[str, Any], series: list[Any]
) -> None:
    """Draw one number in the colour that its thresholds give it."""
    left, lower, wide, high = box
    value = float(series[0]["points"][-1][1]) if series else None
    defaults = panel["fieldConfig"]["defaults"]
    steps = defaults.get("thresholds", {}).get("steps", [])
    reached = [
        step["color"] for step in steps if value is not None and (step["value"] is None or value >= step["value"])
    ]
    colour = NAMED.get(reached[-1], INK) if reached else INK
    text = "no data" if value is None else f"{value:.3g}" + (" s" if defaults["unit"] == "s" else "")
    figure.text(
        (left + wide / 2) / WIDTH,
        (lower + high / 2) / height,
        text,
        fontsize=20,
        color=colour,
        ha="center",
        va="center",
    )


def draw_table(figure: Any, box: tuple[float, float, float, float], height: float, series: list[Any]) -> None:
    """Draw the rows of a table, the largest value first."""
    left, lower, wide, high = box
    rows = sorted(series, key=lambda one: -float(one["points"][-1][1]))[:ROWS]
    names = [name for name in ("terminal_namespace", "terminal", "reason") if rows and name in rows[0]["labels"]]
    lines = [[*(one["labels"][name] for name in names), f"{float(one['points'][-1][1]):.0f} s"] for one in rows]
    shown = [[name.removeprefix("terminal_") for name in names] + ["for"], *lines]
    for number, line in enumerate(shown):
        for column, word in enumerate(line):
            figure.text(
                (left + wide * column / max(1, len(line))) / WIDTH,
                (lower + high * (1 - (number + 0.5) / (ROWS + 1))) / height,
                word,
                fontsize=8,
                color=FAINT if number == 0 else INK,
                va="center",
            )


def draw_lines(
    figure: Any, box: tuple[float, float, float, float], height: float, series: list[Any], began: float
) -> None:
    """Draw series over time, their names below."""
    left, lower, wide, high = box
    told = sorted((one for one in series if has_value(one)), key=lambda one: -peak(one))
    # What never was anything else than zero says nothing beside what was.
    told = [one for one in told if peak(one) > 0] or told
    named = told[:SHOWN]
    longest = max((len(one["legend"]) for one in named), default=0)
    columns = max(1, int(wide / (0.062 * longest + 0.4)))
    foot = 0.2 + 0.14 * -(-len(named) // columns)
    axes = figure.add_axes(
        ((left + 0.45) / WIDTH, (lower + foot) / height, (wide - 0.5) / WIDTH, (high - foot - 0.02) / height)
    )
    for number, one in enumerate(told):
        points = break_gaps(one["points"])
        axes.plot(
            [at - began for at, _ in points],
            [value for _, value in points],
            color=COLOURS[number % len(COLOURS)],
            linewidth=1.1,
            label=one["legend"] if number < SHOWN else "_",
        )
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=6.5, colors=FAINT, length=2)
    axes.grid(axis="y", color="#eaeef2", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_ylim(bottom=0)
    if not told or max(map(peak, told)) == 0:
        axes.set_ylim(0, 1)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(write_number))
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 3, 6, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{int(at) // 60}:{int(at) % 60:02d}"))
    if named:
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(-0.35 / (wide - 0.5), -0.16 / (high - foot)),
            borderpad=0,
            ncol=columns,
            fontsize=6.5,
            frameon=False,
            handlelength=1,
            columnspacing=1,
            labelcolor=INK,
        )


def break_gaps(points: list[Any]) -> list[tuple[float, float]]:
    """Put a hole where there was no value for more than a step, so that no line crosses it."""
    broken: list[tuple[float, float]] = []
    for at, value in ((float(at), float(value)) for at, value in points if value not in NO_NUMBER):
        if broken and at - broken[-1][0] > GAP_SECONDS:
            broken.append((at, float("nan")))
        broken.append((at, value))
    return broken


def has_value(one: dict[str, Any]) -> bool:
    """Leave out what was never a number: a quantile of nothing."""
    return any(value not in NO_NUMBER for _, value in one["points"])


def peak(one: dict[str, Any]) -> float:
    """Give the highest value of a series."""
    return max(float(value) for _, value in one["points"] if value not in NO_NUMBER)


def write_number(value: float, _: object) -> str:
    """Write a value at an axis briefly."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def main() -> None:
    """Draw every picture, the same from the same answers."""
    seen, dashboard, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]), Path(sys.argv[3])
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "dashboard"
    mpl.rcParams["path.simplify_threshold"] = 1.0
    mpl.rcParams["font.sans-serif"] = ["DejaVu Sans", "Verdana"]
    for question, panels in split_by_question(json.loads(dashboard.read_text())).items():
        figure = draw_question(panels, seen["panels"], seen["began"])
        figure.savefig(folder / name_picture(question), metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()

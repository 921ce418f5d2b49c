"""
What is drawn of the dashboard, and under which names: shared by the drawing and by the test that compares.

It is also read in the environment that draws, which has nothing of ours, so it imports nothing.
"""

from typing import Any, Final

PICTURES: Final = "docs/pictures"

UNITS: Final = {
    "s": "s",
    "ops": "a second",
    "reqps": "a second",
    "Bps": "bytes a second",
    "bytes": "bytes",
    "percentunit": "cores",
}
"""What stands behind the title of a panel that draws lines, by the unit that it has in Grafana."""


def split_by_question(board: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Give the panels below each row of the board."""
    questions: dict[str, list[dict[str, Any]]] = {}
    for panel in board["panels"]:
        if panel["type"] == "row":
            questions[panel["title"]] = []
        else:
            questions[list(questions)[-1]].append(panel)
    return questions


def write_title(panel: dict[str, Any]) -> str:
    """Write the title of a panel, with its unit where its axis does not say it."""
    unit = UNITS.get(panel["fieldConfig"]["defaults"]["unit"], "")
    return f"{panel['title']} ({unit})" if unit and panel["type"] == "timeseries" else str(panel["title"])


def name_picture(question: str) -> str:
    """Name the picture of a question after its last word."""
    return f"dashboard-{question.rstrip('?').split()[-1].lower()}.svg"

"""docs/access.md says what the doors do, and docs/fence.md and docs/attach.md how a socket ends and why."""

import re

from controller.client.endings import Next, judge_close
from controller.gateway.access import BEARER_SUBPROTOCOL, SUBPROTOCOL
from controller.gateway.refusals import Refusal, RefusalCause
from controller.gateway.wishes import FORBIDDEN, Right
from controller.plan.fence_closing import CLOSINGS, Ending
from tests.house.cases import ROOT
from tests.plan.test_fence_model import BREAKING, STOPPING

PAGE = (ROOT / "docs/access.md").read_text()


def test_the_page_lists_every_refusal_in_the_order_of_the_checks() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", PAGE, re.MULTILINE)

    assert rows == [(cause.value, str(Refusal(cause, "").code)) for cause in RefusalCause]


def test_the_page_lists_every_right_and_nothing_else_as_one() -> None:
    assert set(re.findall(r"^\| `agentterminals/(\w+)` \|", PAGE, re.MULTILINE)) == set(Right)


def test_the_page_names_what_a_page_offers_and_what_no_attach_takes() -> None:
    assert f"`{SUBPROTOCOL}, {BEARER_SUBPROTOCOL}<token>`" in PAGE
    assert all(f"`{name}`" in PAGE for name in FORBIDDEN)


# --- docs/fence.md and docs/attach.md: how a socket ends, the rules, and the numbered cases ---------------------------

FENCE, ATTACH = ((ROOT / "docs" / name).read_text() for name in ("fence.md", "attach.md"))
UNSEEN = {Ending.LEFT}
"""Whoever has left hears of nothing."""


def cut(page: str, heading: str) -> str:
    """Give the part of a page that stands under a heading."""
    _, found, rest = page.partition(f"\n## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def test_the_page_of_the_fence_lists_every_way_a_socket_ends_with_its_code() -> None:
    rows = re.findall(r"^\| (\d{4}) \| (.+?) \|", cut(FENCE, "How a socket ends"), re.MULTILINE)
    told = {(int(code), word) for code, words in rows for word in re.findall(r"`(\w+)`", words)}

    assert told == {(closing.code, ending.value) for ending, closing in CLOSINGS.items() if ending not in UNSEEN}


def test_the_page_of_the_client_says_of_every_end_whether_it_comes_back() -> None:
    said = {"comes back": Next.AGAIN, "stops": Next.STOP, "ends with the exit code": Next.STOP}
    rows = re.findall(r"^\| (\d{4}) \| (.+?) \| (.+?) \|$", cut(ATTACH, "The protocol"), re.MULTILINE)
    told: dict[tuple[int, str], Next] = {}
    for code, words, does in rows:
        # Where words differ in what follows, a semicolon parts both alike.
        parts = list(zip(words.split(";"), does.split(";"), strict=True)) if ";" in words else [(words, does)]
        for these, follows in parts:
            for word in re.findall(r"`(\w+)`", these):
                told[int(code), word] = (
                    Next.LOGIN if word == Ending.EXPIRED else said[follows.partition(";")[0].strip()]
                )

    assert told == {
        (closing.code, ending.value): judge_close(closing.code, ending.value, None, exit_code=None).next
        for ending, closing in CLOSINGS.items()
        if ending not in UNSEEN
    }


def test_the_page_of_the_fence_maps_every_numbered_case_once() -> None:
    rows = re.findall(r"^\| (F\d.*?) \|", cut(FENCE, "The numbered cases"), re.MULTILINE)
    mapped: list[int] = []
    for row in rows:
        first, _, last = row.partition(" to ")
        numbers = [int(number) for number in re.findall(r"\d+", row)]
        mapped += range(int(first[1:]), int(last[1:]) + 1) if last else numbers

    assert sorted(mapped) == list(range(1, 26))


def test_the_page_of_the_fence_has_a_row_for_each_rule_that_the_search_takes_out() -> None:
    rows = re.findall(r"^\| (.+?) \| .+ \|$", cut(FENCE, "Each rule, and what breaks without it"), re.MULTILINE)

    assert len(rows) - 2 == len(BREAKING) + len(STOPPING)

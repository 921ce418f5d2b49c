"""docs/access.md says what the doors do."""

import re

from controller.gateway.access import BEARER_SUBPROTOCOL, SUBPROTOCOL
from controller.gateway.refusals import Refusal, RefusalCause
from controller.gateway.wishes import FORBIDDEN, Right
from tests.house.cases import ROOT

PAGE = (ROOT / "docs/access.md").read_text()


def test_the_page_lists_every_refusal_in_the_order_of_the_checks() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", PAGE, re.MULTILINE)

    assert rows == [(cause.value, str(Refusal(cause, "").code)) for cause in RefusalCause]


def test_the_page_lists_every_right_and_nothing_else_as_one() -> None:
    assert set(re.findall(r"^\| `agentterminals/(\w+)` \|", PAGE, re.MULTILINE)) == set(Right)


def test_the_page_names_what_a_page_offers_and_what_no_attach_takes() -> None:
    assert f"`{SUBPROTOCOL}, {BEARER_SUBPROTOCOL}<token>`" in PAGE
    assert all(f"`{name}`" in PAGE for name in FORBIDDEN)

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.sprites.retry_after import LONGEST_WAIT, read_retry_after

NOON = datetime(2026, 9, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "body", "wait"),
    [
        (None, None, None),
        ("7", None, timedelta(seconds=7)),
        (" 7 ", None, timedelta(seconds=7)),
        ("0", None, timedelta(0)),
        ("601", None, LONGEST_WAIT),
        ("9" * 5000, None, LONGEST_WAIT),
        ("-7", None, None),
        ("1.5", None, None),
        ("\u0667", None, None),
        ("soon", None, None),
        ("", None, None),
        ("Tue, 01 Sep 2026 12:00:30 GMT", None, timedelta(seconds=30)),
        ("Tue, 01 Sep 2026 12:00:30 -0000", None, timedelta(seconds=30)),
        ("Tue, 01 Sep 2026 14:00:30 +0200", None, timedelta(seconds=30)),
        ("Tuesday, 01-Sep-26 12:00:30 GMT", None, timedelta(seconds=30)),
        ("Tue, 01 Sep 2026 11:59:59 GMT", None, timedelta(0)),
        ("Tue, 01 Sep 2099 12:00:00 GMT", None, LONGEST_WAIT),
        ("Tue, 99 Sep 2026 12:00:00 GMT", None, None),
        ("7", {"retry_after_seconds": 3}, timedelta(seconds=3)),
        ("7", {"retry_after_seconds": 2.5}, timedelta(seconds=2.5)),
        (None, {"retry_after_seconds": 3}, timedelta(seconds=3)),
        (None, {"retry_after_seconds": 86_400}, LONGEST_WAIT),
        (None, {"retry_after_seconds": float("inf")}, LONGEST_WAIT),
        ("7", {"retry_after_seconds": 0}, timedelta(seconds=7)),
        ("7", {"retry_after_seconds": -1}, timedelta(seconds=7)),
        ("7", {"retry_after_seconds": True}, timedelta(seconds=7)),
        ("7", {"retry_after_seconds": "3"}, timedelta(seconds=7)),
        ("7", {"retry_after_seconds": float("nan")}, timedelta(seconds=7)),
        ("7", {}, timedelta(seconds=7)),
        ("7", [3], timedelta(seconds=7)),
    ],
)
def test_the_wait_is_read_from_the_body_first_and_from_both_forms_of_the_header(
    header: str | None, body: object, wait: timedelta | None
) -> None:
    assert read_retry_after(header, body, now=NOON) == wait


@given(st.none() | st.text(), st.dictionaries(st.just("retry_after_seconds"), st.integers() | st.floats() | st.text()))
def test_whatever_is_sent_the_wait_is_none_or_within_ten_minutes(header: str | None, body: object) -> None:
    wait = read_retry_after(header, body, now=NOON)

    assert wait is None or timedelta(0) <= wait <= timedelta(minutes=10)

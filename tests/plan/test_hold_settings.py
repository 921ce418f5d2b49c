"""The two numbers of a hold, from whatever somebody wrote (cases G1 to G8)."""

from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.plan.hold_settings import HoldField, HoldSettings, resolve_hold


def seconds_and_ms(settings: HoldSettings) -> tuple[int, int]:
    return settings.expire // timedelta(seconds=1), settings.refresh // timedelta(milliseconds=1)


def fallen_back(settings: HoldSettings) -> list[HoldField]:
    return [fallback.field for fallback in settings.fallbacks]


@pytest.mark.parametrize(
    ("expire", "refresh", "resolved", "told"),
    [
        pytest.param(None, None, (300, 60_000), [], marks=pytest.mark.case("G1"), id="nothing set"),
        pytest.param("600", "120000", (600, 120_000), [], marks=pytest.mark.case("G2"), id="both good"),
        pytest.param(
            "soon",
            "300000",
            (300, 60_000),
            [HoldField.EXPIRE, HoldField.REFRESH],
            marks=pytest.mark.case("G3"),
            id="a word, and a refresh as long as the default expiry",
        ),
        pytest.param("3600", None, (3600, 60_000), [], marks=pytest.mark.case("G4"), id="an hour"),
        pytest.param("3601", None, (300, 60_000), [HoldField.EXPIRE], marks=pytest.mark.case("G4"), id="over an hour"),
        pytest.param("30", None, (30, 6_000), [], marks=pytest.mark.case("G5"), id="a short expiry alone"),
        pytest.param("300", "150000", (300, 150_000), [], marks=pytest.mark.case("G6"), id="exactly half"),
        pytest.param("300", "150001", (300, 60_000), [HoldField.REFRESH], marks=pytest.mark.case("G6"), id="over half"),
        pytest.param(
            "300", "299999", (300, 60_000), [HoldField.REFRESH], marks=pytest.mark.case("G6"), id="far over half"
        ),
        pytest.param("5m", None, (300, 60_000), [HoldField.EXPIRE], marks=pytest.mark.case("G7"), id="five minutes"),
        pytest.param("1", "900", (1, 900), [], id="the upper limit is never below one second"),
        pytest.param("1", "1001", (1, 1_000), [HoldField.REFRESH], id="one over that limit"),
        pytest.param("1", None, (1, 1_000), [], id="the fall-back is never below one second"),
        pytest.param("600", "1", (600, 1), [], id="a tiny refresh counts"),
        pytest.param("000000000000300", "60000", (300, 60_000), [], id="fifteen digits count"),
        pytest.param("0000000000000300", None, (300, 60_000), [HoldField.EXPIRE], id="sixteen digits do not"),
    ],
)
def test_two_texts_become_durations_that_work_together(
    expire: str | None, refresh: str | None, resolved: tuple[int, int], told: list[HoldField]
) -> None:
    settings = resolve_hold(expire, refresh)

    assert seconds_and_ms(settings) == resolved
    assert fallen_back(settings) == told


@pytest.mark.case("G7")
@pytest.mark.parametrize("text", ["0", "-5", "", " 600", "600 ", "6 00", "+600", "6e2", "600.0", "٦٠٠", "600\n"])
def test_what_is_not_a_plain_positive_number_counts_as_the_default_and_is_told(text: str) -> None:
    settings = resolve_hold(text, text)

    assert seconds_and_ms(settings) == (300, 60_000)
    assert fallen_back(settings) == [HoldField.EXPIRE, HoldField.REFRESH]


@pytest.mark.case("G8")
@pytest.mark.parametrize(("refresh", "idle"), [(None, 120_000), ("60000", 120_000), ("15000", 30_000), ("1000", 2_000)])
def test_the_idle_window_follows_the_refresh(refresh: str | None, idle: int) -> None:
    assert resolve_hold(None, refresh).idle_after == timedelta(milliseconds=idle)


def test_a_fall_back_names_the_rule_and_what_counts_instead() -> None:
    (fallback,) = resolve_hold("20", "10001").fallbacks

    assert fallback.used == timedelta(seconds=4)
    assert fallback.rule == "a whole number from 1 to 10000 (half the expiry), in ASCII digits and nothing else"


@given(st.none() | st.text() | st.integers().map(str), st.none() | st.text() | st.integers().map(str))
def test_whatever_is_written_a_hold_is_renewed_before_it_ends_or_within_a_second(
    expire: str | None, refresh: str | None
) -> None:
    settings = resolve_hold(expire, refresh)

    assert timedelta(0) < settings.expire <= timedelta(hours=1)
    assert timedelta(0) < settings.refresh <= max(timedelta(seconds=1), settings.expire / 2)


PIECES = st.one_of(
    st.text(st.sampled_from("0123456789"), min_size=1, max_size=40),
    st.integers(-5_000, 200_000).map(str),
    st.characters(categories=["Nd", "Nl", "No"]),
    st.sampled_from(
        ["+", "-", "\u2212", "e", "E3", ".", ",", "_", "0x", "0b", "\x00", " ", "\u00a0", "\u3000", "s", "m"]
    ),
    st.sampled_from(["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"]),
)
NUMBERS_AND_NEAR_MISSES = st.lists(PIECES, max_size=4).map("".join)


def read_plainly(text: str) -> int | None:
    """The grammar once more, letter by letter: 1 to 15 of ten characters, and more than zero."""
    if not 1 <= len(text) <= 15 or not set(text) <= set("0123456789"):
        return None
    return sum(10**place * "0123456789".index(digit) for place, digit in enumerate(reversed(text))) or None


@pytest.mark.case("G7")
@given(NUMBERS_AND_NEAR_MISSES, NUMBERS_AND_NEAR_MISSES)
@example("9" * 15, "9" * 16)
@example("0" * 15, "0" * 14 + "1")
@example("\uff16\uff10\uff10", "6\u0660\u0660")
@example("600\n", "\n600")
@example("3600", "1800000")
@example("3601", "150000")
def test_a_text_counts_exactly_if_it_follows_the_grammar_and_the_range(expire: str, refresh: str) -> None:
    """Digits of other scripts, signs, exponents, line ends and over-long numbers are all no numbers here."""
    settings = resolve_hold(expire, refresh)

    seconds, ms = read_plainly(expire), read_plainly(refresh)
    used = seconds if seconds is not None and seconds <= 3600 else 300
    most = max(1_000, used * 500)
    fallback = max(1_000, min(60_000, used * 200))
    assert seconds_and_ms(settings) == (used, ms if ms is not None and ms <= most else fallback)
    told = [HoldField.EXPIRE] if seconds != used else []
    assert fallen_back(settings) == told + ([HoldField.REFRESH] if ms is None or ms > most else [])

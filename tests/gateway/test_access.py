"""Headers: from where a request comes, and as whom it speaks."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from controller.gateway.access import (
    BEARER_SUBPROTOCOL,
    SUBPROTOCOL,
    BearerToken,
    Certificate,
    Page,
    Person,
    choose_presented,
    demand_host,
    demand_readable,
    find_page,
    is_from_browser,
    is_upgrade,
    read_bearer,
    read_certificate,
)
from controller.gateway.refusals import RefusalCause, Refused

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANNA = BearerToken("anna")
CERTIFICATE = Certificate(Person("anna", "", ("team-a", "system:authenticated")), NOON + timedelta(hours=1))


def headers(*lines: tuple[str, str]) -> CIMultiDict[str]:
    return CIMultiDict(lines)


def carry(token: str) -> str:
    return BEARER_SUBPROTOCOL + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def cause_of(refused: pytest.ExceptionInfo[Refused]) -> RefusalCause:
    assert "S3CRET" not in str(refused.value)
    return refused.value.refusal.cause


# --- Host and Origin --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8443", "127.0.0.1:1", "[::1]:8443", "[::1]", "a.example.com.", "a.example.com:443"],
)
def test_a_request_to_one_of_our_names_passes_with_and_without_its_port(host: str) -> None:
    demand_host(headers(("Host", host)), ("localhost", "127.0.0.1", "::1", "a.example.com"))


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([("Host", "evil.example.com")], RefusalCause.HOST),
        ([("Host", "localhost.evil.example.com")], RefusalCause.HOST),
        ([("Host", "localhost:80:80")], RefusalCause.HOST),
        ([("Host", "localhost@S3CRET")], RefusalCause.HOST),
        ([("Host", "")], RefusalCause.HOST),
        ([], RefusalCause.MALFORMED),
        ([("Host", "localhost"), ("Host", "localhost")], RefusalCause.MALFORMED),
    ],
)
def test_a_request_to_another_name_is_not_ours(lines: list[tuple[str, str]], cause: RefusalCause) -> None:
    with pytest.raises(Refused) as refused:
        demand_host(headers(*lines), ("localhost", "127.0.0.1"))
    assert cause_of(refused) is cause


def test_a_star_admits_every_name() -> None:
    demand_host(headers(("Host", "whatever.example.com")), ("*",))


def test_a_listed_page_is_admitted_and_no_page_is_no_page() -> None:
    origin = "https://console.example.com"

    assert find_page(headers(("Origin", origin)), (origin,)) == Page(origin)
    assert find_page(headers(), (origin,)) is None


@pytest.mark.parametrize(
    "origins",
    [
        ["https://evil.example.com"],
        ["http://console.example.com"],
        ["https://console.example.com:8443"],
        ["https://console.example.com.evil.com"],
        ["null"],
        [""],
        ["https://console.example.com", "https://evil.example.com"],
    ],
)
def test_a_page_that_is_not_listed_to_the_letter_is_refused(origins: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        find_page(headers(*[("Origin", origin) for origin in origins]), ("https://console.example.com",))
    assert cause_of(refused) is RefusalCause.ORIGIN


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "token"),
    [
        ([], None),
        ([("Authorization", "Bearer anna")], ANNA),
        ([("authorization", "bearer   anna ")], ANNA),
        ([("Sec-WebSocket-Protocol", f"{SUBPROTOCOL}, {carry('anna')}")], ANNA),
        ([("Sec-WebSocket-Protocol", SUBPROTOCOL), ("Sec-WebSocket-Protocol", carry("anna"))], ANNA),
        ([("Sec-WebSocket-Protocol", f"{SUBPROTOCOL}, {carry('ey.J_-~+/0==')}")], BearerToken("ey.J_-~+/0==")),
    ],
)
def test_a_token_is_read_from_its_header_or_from_its_subprotocol(
    lines: list[tuple[str, str]], token: BearerToken | None
) -> None:
    assert read_bearer(headers(*lines)) == token


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([("Authorization", "Basic S3CRET")], RefusalCause.NO_TOKEN),
        ([("Authorization", "S3CRET")], RefusalCause.NO_TOKEN),
        ([("Authorization", "Bearer")], RefusalCause.MALFORMED),
        ([("Authorization", "Bearer ")], RefusalCause.MALFORMED),
        ([("Authorization", "Bearer S3CRET S3CRET")], RefusalCause.MALFORMED),
        ([("Authorization", "Bearer S3CRETé")], RefusalCause.MALFORMED),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer b")], RefusalCause.MALFORMED),
        ([("Authorization", "Bearer a"), ("Sec-WebSocket-Protocol", carry("a"))], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", f"{carry('a')}, {carry('a')}")], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", BEARER_SUBPROTOCOL)], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", f"{BEARER_SUBPROTOCOL}YW5uYQ==")], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", f"{BEARER_SUBPROTOCOL}a+/b")], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", f"{BEARER_SUBPROTOCOL}A")], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", carry("S3CRET\nx"))], RefusalCause.MALFORMED),
        ([("Sec-WebSocket-Protocol", carry("S3CRETé"))], RefusalCause.MALFORMED),
    ],
)
def test_what_is_no_token_or_more_than_one_is_refused_without_being_repeated(
    lines: list[tuple[str, str]], cause: RefusalCause
) -> None:
    with pytest.raises(Refused) as refused:
        read_bearer(headers(*lines))
    assert cause_of(refused) is cause


def test_a_token_shows_in_no_repr() -> None:
    assert "anna" not in repr(ANNA)


def test_a_bearer_subprotocol_needs_one_beside_it_that_can_be_selected() -> None:
    upgrade = [("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", base64.b64encode(bytes(16)).decode())]
    with pytest.raises(Refused):
        demand_readable(headers(*upgrade, ("Sec-WebSocket-Protocol", carry("anna"))), is_upgrade=True)
    with pytest.raises(Refused):
        demand_readable(headers(("Sec-WebSocket-Protocol", SUBPROTOCOL)), is_upgrade=False)
    demand_readable(headers(*upgrade, ("Sec-WebSocket-Protocol", f"{carry('anna')},{SUBPROTOCOL}")), is_upgrade=True)


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ([], False),
        ([("Connection", "keep-alive")], False),
        ([("Upgrade", "WebSocket"), ("Connection", "keep-alive, Upgrade")], True),
    ],
)
def test_an_upgrade_is_known_by_both_of_its_headers(lines: list[tuple[str, str]], verdict: bool) -> None:
    assert is_upgrade(headers(*lines)) is verdict


@pytest.mark.parametrize(
    "lines",
    [
        [("Upgrade", "websocket")],
        [("Upgrade", "S3CRET"), ("Connection", "Upgrade")],
        [("Upgrade", "websocket, h2c"), ("Connection", "Upgrade")],
    ],
)
def test_half_an_upgrade_or_another_one_is_refused(lines: list[tuple[str, str]]) -> None:
    with pytest.raises(Refused) as refused:
        is_upgrade(headers(*lines))
    assert cause_of(refused) is RefusalCause.MALFORMED


# --- client certificates ----------------------------------------------------------------------------------------------


def subject(*pairs: tuple[str, str], until: str = "Jan  1 13:00:00 2026 GMT") -> dict[str, object]:
    return {"subject": tuple((pair,) for pair in pairs), "notAfter": until}


def test_a_certificate_names_its_user_and_groups_as_the_api_server_reads_them() -> None:
    verified = subject(("organizationName", "team-a"), ("commonName", "anna"))

    assert read_certificate(verified, NOON) == CERTIFICATE


@pytest.mark.parametrize(
    "verified",
    [
        None,
        {},
        subject(("organizationName", "team-a")),
        subject(("commonName", "")),
        subject(("commonName", "anna"), ("commonName", "bert")),
        subject(("commonName", "anna"), until="Jan  1 12:00:00 2026 GMT"),
    ],
)
def test_a_certificate_without_exactly_one_user_or_past_its_end_is_nobodys(verified: dict[str, object] | None) -> None:
    assert read_certificate(verified, NOON) is None


def test_a_page_never_speaks_with_the_browsers_certificate() -> None:
    assert choose_presented(None, CERTIFICATE, is_from_page=False) == CERTIFICATE
    assert choose_presented(None, CERTIFICATE, is_from_page=True) is None
    assert choose_presented(ANNA, CERTIFICATE, is_from_page=True) == ANNA
    assert choose_presented(ANNA, CERTIFICATE, is_from_page=False) == ANNA


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode"])
def test_a_browser_is_known_by_headers_that_no_page_can_leave_out(name: str) -> None:
    assert is_from_browser(headers((name, "x")))
    assert not is_from_browser(headers(("User-Agent", "Mozilla/5.0")))


LATIN = st.text(alphabet=st.characters(max_codepoint=255), max_size=40)
VALUES = (
    st.sampled_from(["Bearer S3CRET", "websocket", "Upgrade", "13", SUBPROTOCOL, carry("S3CRET"), "https://S3CRET"])
    | LATIN.map("S3CRET".__add__)
    | LATIN.map(f"{BEARER_SUBPROTOCOL}S3CRET".__add__)
)
NAMES = st.sampled_from(
    [
        *("Host", "Origin", "Authorization", "Upgrade", "Connection"),
        *("Sec-WebSocket-Protocol", "Sec-WebSocket-Version", "Sec-WebSocket-Key"),
    ]
)


def told(read: Callable[[], object]) -> str:
    """What a reader says: nothing where it is content."""
    try:
        read()
    except Refused as refused:
        return str(refused)
    return ""


@given(st.lists(st.tuples(NAMES, VALUES), max_size=8))
def test_whatever_headers_come_they_are_read_or_refused_and_not_repeated(lines: list[tuple[str, str]]) -> None:
    sent = headers(*lines)
    for read in (
        lambda: demand_host(sent, ("l",)),
        lambda: find_page(sent, ("https://a",)),
        lambda: demand_readable(sent, is_upgrade=is_upgrade(sent)),
        lambda: read_bearer(sent),
    ):
        assert "S3CRET" not in told(read)

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.sprites.token import TOKEN_CHARACTERS, Token, TokenUnreadable
from tests.support.secrecy import build_sprites_token

SECRET = build_sprites_token("acme")


@pytest.mark.parametrize("text", [SECRET, SECRET + "\n", SECRET + "\r\n", "\n" + SECRET + "\n\n"])
def test_a_line_end_around_a_token_is_dropped(text: str) -> None:
    assert Token.read(text).reveal() == SECRET


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        (" ", "white space"),
        (SECRET + " ", "white space"),
        (" " + SECRET, "white space"),
        ("a b", "white space"),
        ("a\nb", "white space"),
        ("a\tb", "white space"),
        ("a\x1cb", "white space"),
        ("a\u00a0b", "white space"),
        ("a\u2028b", "white space"),
        ("a\x00b", "control"),
        ("a\x1bb", "control"),
        ("a\x7fb", "control"),
        ("a\x85b", "white space"),
        ("a\x9bb", "control"),
        ("tökén", "outside ASCII"),
        ("\ufeff" + SECRET, "outside ASCII"),
        ("\ud800", "outside ASCII"),
        ("x" * (TOKEN_CHARACTERS + 1), "at most 4096"),
    ],
)
def test_what_cannot_be_a_token_is_refused_with_its_reason_and_without_its_text(text: str, told: str) -> None:
    with pytest.raises(TokenUnreadable, match=told) as raised:
        Token.read(text)
    assert SECRET not in str(raised.value)


def test_a_token_shows_its_fingerprint_and_never_itself() -> None:
    token = Token.read(SECRET)
    shown = [repr(token), str(token), f"{token}", f"{token!r:>40}", f"{token:>40}", "%s" % token, str([token])]  # noqa: UP031  # each way of formatting is meant
    shown += [str({token: 1}), repr((token,))]

    for text in shown:
        assert token.fingerprint in text
        assert not any(piece in text for piece in SECRET.split("/")[2:])


def test_fingerprints_are_short_and_differ() -> None:
    one, other = Token.read(SECRET), Token.read(SECRET + "0")

    assert len(one.fingerprint) == 12
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint not in SECRET


def test_equal_secrets_are_equal_tokens() -> None:
    assert Token.read(SECRET) == Token.read(SECRET + "\n")
    assert {Token.read(SECRET): 1}[Token.read(SECRET)] == 1
    assert Token.read(SECRET) != Token.read("other")
    assert Token.read(SECRET) != SECRET


@pytest.mark.parametrize("write_down", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_token_is_not_written_down(write_down) -> None:  # type: ignore[no-untyped-def]  # any callable
    with pytest.raises(TypeError, match="not written down"):
        write_down(Token.read(SECRET))


@given(st.text())
def test_a_text_is_a_token_that_fits_a_header_or_is_refused(text: str) -> None:
    try:
        secret = Token.read(text).reveal()
    except TokenUnreadable:
        return
    assert secret
    assert secret == text.strip("\r\n")
    assert all(33 <= ord(character) <= 126 for character in secret)

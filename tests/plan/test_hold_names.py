"""The names of holds (cases N1 to N9)."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.plan.hold_names import (
    NAME_MAX,
    Slot,
    build_key,
    clean_key,
    hash_key,
    is_safe_name,
    name_base,
    name_hold,
    name_task,
)

KEYS = st.text() | st.text(alphabet="aAbB:-_/.0 ", max_size=8) | st.text(st.characters(min_codepoint=0x10000))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        pytest.param("a:b", "ps-hold-a-b-08bd8540", marks=pytest.mark.case("N1")),
        pytest.param("a-b", "ps-hold-a-b-2a89df63", marks=pytest.mark.case("N2")),
        pytest.param("A:B", "ps-hold-a-b-4c851f00", marks=pytest.mark.case("N2")),
        pytest.param("branch1:agent:cli", "ps-hold-branch1-agent-cli-e4b49b0b", marks=pytest.mark.case("N3")),
        pytest.param("team-a/build-agent", "ps-hold-team-a-build-agent-75f5b62d", marks=pytest.mark.case("N4")),
        pytest.param("team-a/Build_Agent", "ps-hold-team-a-build-agent-7aa821ff", marks=pytest.mark.case("N4")),
        pytest.param(
            "default/term-1:1700000000000",
            "ps-hold-default-term-1-1700000000000-063b743d",
            marks=pytest.mark.case("N5"),
        ),
        pytest.param(
            "default/term-1:1700000000001",
            "ps-hold-default-term-1-1700000000001-053b72aa",
            marks=pytest.mark.case("N5"),
        ),
        pytest.param(":::", "ps-hold-20bed5dd", marks=pytest.mark.case("N6")),
        pytest.param("", "ps-hold-811c9dc5", marks=pytest.mark.case("N6")),
        pytest.param("--a--b--", "ps-hold-a-b-8979f23c", marks=pytest.mark.case("N7")),
        pytest.param("f" * 72, "ps-hold-" + "f" * 45 + "-3a1f9c65", marks=pytest.mark.case("N8")),
    ],
)
def test_a_key_has_one_name(key: str, name: str) -> None:
    assert name_hold(key) == name


@pytest.mark.case("N8")
@pytest.mark.parametrize(
    ("key", "cleaned"),
    [
        ("f" * 45, "f" * 45),
        ("f" * 46, "f" * 45),
        ("f" * 44 + "-g", "f" * 44),
        ("f" * 44 + ":::", "f" * 44),
        ("-" * 9 + "f" * 46, "f" * 45),
    ],
)
def test_a_cleaned_key_ends_after_45_characters_and_never_with_a_dash(key: str, cleaned: str) -> None:
    assert clean_key(key) == cleaned


@pytest.mark.parametrize(
    ("key", "digest"),
    [
        ("a", 0xE40C292C),
        ("foobar", 0xBF9CF968),
        # One unit combined whole: (0x811c9dc5 ^ 0x20ac) * 0x01000193. Two bytes, one after the other, differ.
        ("\u20ac", ((0x811C9DC5 ^ 0x20AC) * 0x01000193) & 0xFFFFFFFF),
        # A character beyond the first plane is two units.
        ("\U0001f600", ((((0x811C9DC5 ^ 0xD83D) * 0x01000193 & 0xFFFFFFFF) ^ 0xDE00) * 0x01000193) & 0xFFFFFFFF),
    ],
)
def test_the_hash_combines_utf_16_code_units(key: str, digest: int) -> None:
    assert hash_key(key) == digest


def test_a_character_that_lower_cases_to_a_letter_and_a_mark_is_cleaned_like_any_other() -> None:
    assert clean_key("\u0130x") == "i-x"
    assert clean_key("\u212a1") == "k1"


@pytest.mark.case("N9")
@given(KEYS)
@example("\ud800")
@example("İ" * 60)
def test_every_key_gives_the_same_safe_name_of_at_most_63_characters(key: str) -> None:
    name = name_hold(key)

    assert name == name_hold(key)
    assert is_safe_name(name)
    assert len(name) <= NAME_MAX
    assert re.fullmatch(r"ps-hold-([a-z0-9]([a-z0-9-]*[a-z0-9])?-)?[0-9a-f]{8}", name)
    assert "--" not in name


@pytest.mark.case("N2", "N9")
@given(KEYS, KEYS)
@example("a-b", "A:B")
@example("a", "A")
@example("\u017f", "s")
def test_keys_that_differ_have_names_that_differ(one: str, other: str) -> None:
    assert (name_hold(one) == name_hold(other)) == (one == other)


def respell(key: str, choices: list[int]) -> str:
    """Spell a key in another way that cleans alike: other cases, and other characters between the words."""
    turned = []
    for character, choice in zip(key, choices, strict=False):
        if character.isascii() and character.isalnum():
            turned.append(character.swapcase() if choice % 2 else character)
        else:
            turned.append("-_:/. \u00e4"[choice % 7])
    return "".join(turned)


@pytest.mark.case("N2", "N3")
@given(
    st.text(st.sampled_from("abzABZ019-_:/. "), max_size=60),
    st.lists(st.integers(0, 13), min_size=60, max_size=60),
)
def test_keys_that_clean_alike_have_names_that_differ_in_their_last_eight_letters_only(
    key: str, choices: list[int]
) -> None:
    other = respell(key, choices)
    assert clean_key(key) == clean_key(other)

    one, two = name_hold(key), name_hold(other)

    assert (one == two) == (key == other)
    assert one[:-8] == two[:-8]


@pytest.mark.case("N9")
@pytest.mark.parametrize(
    "name",
    # The last but three is a digit of another script.
    ["", "a/b", "a.b", "a b", "..", "a\n", "a%2Fb", "ä", "a;b", "x" * 64, "٣", "a?b", "-\x00", "%2e"],
)
def test_an_unsafe_name_is_told_apart(name: str) -> None:
    assert not is_safe_name(name)


@pytest.mark.case("N9")
@pytest.mark.parametrize("name", ["a", "A_z-9", "x" * 63, "-", "ps-hold-a-b-08bd8540"])
def test_a_safe_name_is_taken(name: str) -> None:
    assert is_safe_name(name)


@pytest.mark.case("N5", "C12")
def test_a_terminal_made_again_never_names_the_task_of_the_one_before() -> None:
    """The product's own form: the incarnation is the object's uid, and each has two names that take turns."""
    one = build_key("default", "term-1", "0b6a1c9e-8f6d-4a53-9f3f-5c1f0e3b7a11")
    other = build_key("default", "term-1", "0b6a1c9e-8f6d-4a53-9f3f-5c1f0e3b7a12")
    names = [name_task(key, slot) for key in (one, other) for slot in (0, 1)]

    assert len(set(names)) == 4


@given(KEYS, st.sampled_from([0, 1]))
@example("f" * 44, 0)
@example("f" * 43, 1)
def test_both_names_of_a_hold_begin_with_its_base(key: str, slot: Slot) -> None:
    assert name_task(key, slot).startswith(name_base(key).rstrip("-"))

"""The detach keys: how they are written, and how they are found in what is typed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.client.keys import DEFAULT_KEYS, DetachKeys, KeysUnreadable, read_keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        (DEFAULT_KEYS, b"\x10\x11"),
        ("ctrl-a, x", b"\x01x"),
        ("q", b"q"),
        ("ctrl-[", b"\x1b"),
        ("ctrl-\\,ctrl-],ctrl-^,ctrl-_,ctrl-@", b"\x1c\x1d\x1e\x1f\x00"),
    ],
)
def test_keys_are_read_as_the_bytes_a_terminal_sends(text: str, keys: bytes) -> None:
    assert read_keys(text) == keys


@pytest.mark.parametrize("text", ["", "ctrl-", "ctrl-P", "alt-x", "ab", "ctrl-p,", "a,b,c,d,e,f,g,h,i", "ä"])
def test_keys_that_cannot_be_typed_are_refused_with_the_rule(text: str) -> None:
    with pytest.raises(KeysUnreadable, match=r"separated by commas, each a letter, a digit, or ctrl-"):
        read_keys(text)


@pytest.mark.parametrize(
    ("reads", "sent", "detached"),
    [
        ([b"ls\n"], b"ls\n", False),
        ([b"ls\x10\x11more"], b"ls", True),
        ([b"\x10", b"\x11"], b"", True),
        ([b"\x10a"], b"\x10a", False),
        ([b"\x10\x10\x11"], b"\x10", True),
        ([b"\x10\x10"], b"\x10", False),
        ([b"\x11\x10"], b"\x11", False),
    ],
)
def test_only_the_whole_sequence_detaches(reads: list[bytes], sent: bytes, detached: bool) -> None:
    keys = DetachKeys(b"\x10\x11")
    results = [keys.take(data) for data in reads]

    assert b"".join(typed.data for typed in results) == sent
    assert results[-1].detached is detached


def test_a_sequence_that_repeats_itself_is_found_wherever_it_begins() -> None:
    keys = DetachKeys(b"aab")

    typed = keys.take(b"aaab")

    assert typed.data == b"a"
    assert typed.detached


def test_a_beginning_that_does_not_go_on_is_let_go() -> None:
    keys = DetachKeys(b"\x10\x11")

    sent = keys.take(b"x\x10").data
    before, held, after = keys.is_holding, keys.let_go(), keys.is_holding

    assert (sent, before, held, after) == (b"x", True, b"\x10", False)
    assert keys.take(b"\x11").data == b"\x11"


@given(st.lists(st.binary(max_size=6)), st.sampled_from([b"\x10\x11", b"aab", b"q", b"abab"]))
def test_nothing_that_is_typed_is_lost_or_changes_its_place(reads: list[bytes], sequence: bytes) -> None:
    keys, sent = DetachKeys(sequence), b""
    for data in reads:
        typed = keys.take(data)
        sent += typed.data
        if typed.detached:
            break
    else:
        assert sent + keys.let_go() == b"".join(reads)
        return
    before, found, _ = b"".join(reads).partition(sequence)
    assert found
    assert sent == before

"""Whose lock a lock is, in histories that nobody thought of."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.lab.bench.race_locks import match
from tests.lab.bench.histories import TERMINAL, History, find_sender


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_in_every_history_each_lock_is_told_to_be_its_senders(seed: int) -> None:
    history = History(Random(seed), span=20_000)
    matched = match(history.book.locks, history.turns, history.places, history.dead)

    truth = {find_sender(held.socket_id): held.epoch for held in history.book.locks[TERMINAL]}
    assert [str(one) for one in matched.unmatched] == []
    assert matched.epochs == truth

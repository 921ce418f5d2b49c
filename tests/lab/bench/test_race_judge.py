"""The judge of the race, with logs that keep the invariant and logs that break it in each way there is."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from controller.lab.bench.race_judge import (
    MOST_TOLD,
    TENURE,
    UNCONFIRMED_BYTES,
    Epoch,
    Gatherer,
    Hurt,
    Received,
    Run,
    Verdict,
    judge,
    render_input,
)
from controller.lab.bench.race_locks import Held, Kind, LockBook, Turn, match
from controller.plan import fence_upstream
from controller.plan.fence_objects import Lock, render_lock
from controller.plan.fence_tenure import RULES

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
BOOT = timedelta(hours=1)
EPOCHS = {"anna": Epoch(3, "gw-a"), "bert": Epoch(5, "gw-b"), "carl": Epoch(9, "gw-a")}


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def gather(*inputs: tuple[str, int] | tuple[str, int, int]) -> list[Run]:
    """What a session received, one a second: sender, number, and the socket where it is not the sender's own."""
    gatherer, sockets = Gatherer(), dict[str, int]()
    for place, (sender, number, *other) in enumerate(inputs):
        socket = other[0] if other else sockets.setdefault(sender, len(sockets) + 1)
        data = render_input(sender, number, BOOT + timedelta(seconds=place))
        gatherer.take(Received(place + 1, at(place), "t", socket, data))
    return gatherer.runs["t"]


def judged(*inputs: tuple[str, int] | tuple[str, int, int], hurt: dict[str, Hurt] | None = None) -> Verdict:
    return judge(gather(*inputs), EPOCHS, hurt or {})


def test_one_epoch_after_the_other_is_as_promised() -> None:
    assert judged(("anna", 1), ("anna", 2), ("bert", 1), ("carl", 1), ("carl", 2)) == Verdict(inputs=5, epochs=3)


@pytest.mark.parametrize(
    ("inputs", "violations"),
    [
        ([("anna", 1), ("bert", 1), ("anna", 2)], 1),
        ([("anna", 1), ("bert", 1), ("anna", 2), ("anna", 3), ("bert", 2), ("anna", 4)], 3),
        ([("bert", 1), ("anna", 1)], 1),
        ([("carl", 1), ("anna", 1), ("bert", 1)], 2),
        ([("anna", 1), ("bert", 1), ("carl", 1), ("bert", 2)], 1),
    ],
    ids=["one late frame", "both type", "typed only afterwards", "two older ones", "the last but one"],
)
def test_every_input_of_an_older_epoch_after_the_first_of_a_newer_one_is_counted(
    inputs: Sequence[tuple[str, int]], violations: int
) -> None:
    assert judged(*inputs).violations == violations


def test_who_typed_without_a_lock_is_a_stranger_and_so_is_what_has_no_form() -> None:
    runs = gather(("anna", 1), ("nobody", 1), ("nobody", 2))
    runs += [replace(runs[0], sender="")]

    assert judge(runs, EPOCHS, {}) == Verdict(inputs=4, strangers=3, epochs=1)


@pytest.mark.parametrize(
    ("inputs", "disordered"),
    [
        ([("anna", 1), ("anna", 2), ("anna", 5)], 0),
        ([("anna", 1), ("anna", 1)], 1),
        ([("anna", 2), ("anna", 1), ("anna", 3)], 1),
        ([("anna", 1), ("anna", 2), ("anna", 2, 77)], 1),
        ([("anna", 1), ("anna", 2), ("anna", 3, 77)], 0),
    ],
    ids=["with a gap", "twice", "swapped", "twice over two sockets", "over two sockets"],
)
def test_input_of_one_sender_comes_in_its_order_and_once(inputs: Sequence[tuple[str, int]], disordered: int) -> None:
    assert judged(*inputs).disordered == disordered


LATE = (("anna", 1), ("bert", 1), ("anna", 2), ("anna", 3))


def test_a_gateway_that_was_killed_is_excused_for_what_was_on_its_way_and_that_is_counted_apart() -> None:
    hurt = {"gw-a": Hurt(since=at(0.5), tenure_ends=BOOT + timedelta(seconds=10))}

    assert judged(*LATE, hurt=hurt) == Verdict(inputs=4, late=2, epochs=2)


def test_what_came_late_before_its_gateway_was_hurt_is_not_excused() -> None:
    hurt = {"gw-a": Hurt(since=at(2.5), tenure_ends=BOOT + timedelta(seconds=10))}

    assert judged(*LATE, hurt=hurt) == Verdict(inputs=4, violations=2, epochs=2)


def test_that_another_gateway_was_hurt_excuses_nothing() -> None:
    hurt = {"gw-b": Hurt(since=at(0), tenure_ends=BOOT + timedelta(seconds=10))}

    assert judged(*LATE, hurt=hurt).violations == 2


def test_late_input_that_was_typed_after_the_tenure_is_told() -> None:
    hurt = {"gw-a": Hurt(since=at(0.5), tenure_ends=BOOT + timedelta(seconds=2.5))}

    assert judged(*LATE, hurt=hurt) == Verdict(inputs=4, late=2, late_outside_tenure=2, epochs=2)


@pytest.mark.parametrize(("size", "over"), [(UNCONFIRMED_BYTES // 2, 0), (UNCONFIRMED_BYTES // 2 + 1, 2)])
def test_more_late_input_of_one_socket_than_may_be_on_its_way_is_told(size: int, over: int) -> None:
    hurt = {"gw-a": Hurt(since=at(0.5), tenure_ends=BOOT + timedelta(seconds=10))}
    anna, bert, late = gather(*LATE)
    halves = [replace(late, inputs=1, input_bytes=size), replace(late, inputs=1, first=3, input_bytes=size)]
    others = [halves[0], replace(halves[1], socket=77)]

    assert judge([anna, bert, *halves], EPOCHS, hurt).late_over_cap == over
    assert judge([anna, bert, *others], EPOCHS, hurt).late_over_cap == 0


@pytest.mark.parametrize(
    ("inputs", "what", "said"),
    [
        ([("anna", 1), ("bert", 1), ("anna", 2)], "violations", ("anna", "numbers 2 to 2", "epoch 3 of gw-a", "is 5")),
        ([("anna", 1), ("nobody", 7)], "strangers", ("nobody", "numbers 7 to 7", "no lock", "is 3")),
        ([("anna", 4), ("anna", 2, 77)], "disordered", ("anna", "socket 77", "epoch 3 of gw-a", "of theirs 4")),
    ],
)
def test_what_should_not_have_come_is_told_with_its_sender_lock_and_time(
    inputs: Sequence[tuple[str, int] | tuple[str, int, int]], what: str, said: Sequence[str]
) -> None:
    (odd,) = judged(*inputs).odd

    assert odd.what == what
    for word in (*said, str(at(len(inputs) - 1))):
        assert word in str(odd)


def test_of_much_that_is_odd_the_first_is_told_and_all_of_it_counted() -> None:
    verdict = judged(*((f"nobody-{number}", 1) for number in range(50)))

    assert verdict.strangers == 50
    assert [odd.run.sender for odd in verdict.odd] == [f"nobody-{number}" for number in range(MOST_TOLD)]


def test_verdicts_of_terminals_add_up() -> None:
    assert Verdict(inputs=2, late=1, epochs=1) + Verdict(inputs=3, violations=2) == Verdict(
        inputs=5, late=1, violations=2, epochs=1
    )


def test_many_inputs_take_the_room_of_few_and_a_gap_in_the_log_shows() -> None:
    gatherer = Gatherer()
    for number in [*range(1, 501), *range(503, 601)]:
        data = render_input("anna", number, BOOT + timedelta(microseconds=number))
        gatherer.take(Received(number, at(number), "t", 7, data))
    (run,) = gatherer.runs["t"]

    assert gatherer.missing == 2
    assert gatherer.gaps == [f"missing: 2 inputs before number 503 at {at(503)}"]
    assert gatherer.inputs == run.inputs == 598
    assert (run.first, run.last, run.socket, run.sender) == (1, 600, 7, "anna")
    assert run.typed == BOOT + timedelta(microseconds=600)


def test_the_judge_knows_the_rules() -> None:
    assert RULES.span == TENURE
    assert UNCONFIRMED_BYTES == fence_upstream.UNCONFIRMED_BYTES


# --- whose lock it was ------------------------------------------------------------------------------------------------


def see(book: LockBook, seconds: float, *, epoch: int = 0, gateway: str = "gw-a") -> None:
    """Let a watch show a terminal: with a lock of that epoch, or without one."""
    status = {}
    if epoch:
        since = at(seconds).isoformat(timespec="microseconds").replace("+00:00", "Z")
        status["socket"] = render_lock(Lock("uid", epoch, f"socket-{epoch}", gateway, since))
    book.note({"metadata": {"name": "t"}, "status": status}, at(seconds))


def build_turns(*turns: tuple[str, str, float, float]) -> list[Turn]:
    return [Turn(sender, "t", gateway, at(came), at(answered), True) for sender, gateway, came, answered in turns]


PLACES = {"gw-a": "a", "gw-a2": "a", "gw-b": "b"}


def read(book: LockBook, turns: Iterable[Turn], dead: Iterable[str] = ()) -> tuple[dict[str, int], int]:
    matched = match(book.locks, turns, PLACES, frozenset(dead))
    return {sender: epoch.number for sender, epoch in matched.epochs.items()}, len(matched.unmatched)


def test_a_lock_is_of_whoever_asked_at_that_gateway_when_it_was_written() -> None:
    book = LockBook()
    for seconds, epoch, gateway in ((1.5, 3, "gw-a"), (2.0, 0, ""), (2.5, 5, "gw-b"), (3, 0, ""), (3.5, 8, "gw-a2")):
        see(book, seconds, epoch=epoch, gateway=gateway)
    turns = build_turns(("anna", "a", 1, 2), ("bert", "b", 1, 3), ("carl", "a", 3, 4))

    assert read(book, turns) == ({"anna": 3, "bert": 5, "carl": 8}, 0)


def test_a_lock_that_nobody_asked_for_is_told() -> None:
    book = LockBook()
    for seconds, epoch, gateway in ((1.5, 3, "gw-a"), (1.8, 0, ""), (3.5, 5, "gw-a"), (5, 0, ""), (6, 6, "gw-x")):
        see(book, seconds, epoch=epoch, gateway=gateway)

    assert read(book, build_turns(("anna", "a", 2, 3), ("bert", "b", 5, 7))) == ({}, 3)


def test_a_lock_that_lands_again_after_it_was_cleared_is_still_its_senders() -> None:
    """The answer to the first write was lost, and a second one sent: nothing that the first tests has moved since."""
    second, first = (Held("t", Epoch(3, "gw-a"), "s3", at(written), at(9)) for written in (1.4, 1.2))

    matched = match({"t": [second, first]}, build_turns(("anna", "a", 1, 2)), PLACES, ())

    assert matched.epochs == {"anna": Epoch(3, "gw-a")}
    assert matched.unmatched == []
    assert matched.takeovers[Kind.NOBODY] == [timedelta(seconds=1)]


@pytest.mark.parametrize(
    "again",
    [Held("t", Epoch(4, "gw-a"), "s3", at(1.4)), Held("t", Epoch(3, "gw-a"), "s4", at(1.4))],
    ids=["of another epoch", "of another socket"],
)
def test_a_second_lock_in_one_turn_is_told_with_whoever_had_the_first(again: Held) -> None:
    matched = match(
        {"t": [Held("t", Epoch(3, "gw-a"), "s3", at(1.2)), again]}, build_turns(("anna", "a", 1, 2)), PLACES, ()
    )

    (odd,) = matched.unmatched
    assert (odd.held, odd.owner) == (again, "anna")


def test_a_lock_that_nobody_explains_tells_who_was_near() -> None:
    turns = build_turns(("anna", "a", 1, 2), ("bert", "a", 3, 4), ("carl", "b", 2, 3), ("dora", "a", 5, 6))
    held = Held("t", Epoch(3, "gw-a"), "s3", at(2.5))

    (odd,) = match({"t": [held]}, turns, PLACES, ()).unmatched

    assert [turn.sender for turn in odd.near] == ["anna", "bert"]
    for said in ("anna", "bert", "s3", "gw-a", str(at(2.5))):
        assert said in str(odd)


def test_a_lock_that_is_seen_again_is_the_same_and_one_that_replaces_another_ends_it() -> None:
    book = LockBook()
    see(book, 1, epoch=3)
    see(book, 1, epoch=3)
    see(book, 9, epoch=4, gateway="gw-b")
    anna, bert = book.locks["t"]

    assert (anna.cleared, bert.cleared) == (at(9), None)
    assert book.find_holder("t") == "gw-b"
    see(book, 10)
    assert book.find_holder("t") is None
    assert book.count == 2


@pytest.mark.parametrize(
    ("former", "came", "dead", "kind"),
    [
        (None, 1, (), Kind.NOBODY),
        (Held("t", Epoch(3, "gw-b"), "s", at(0), at(2)), 1, (), Kind.SAME),
        (Held("t", Epoch(3, "gw-a"), "s", at(0), at(2)), 1, (), Kind.OTHER),
        (Held("t", Epoch(3, "gw-a"), "s", at(0), at(2)), 3, (), Kind.NOBODY),
        (Held("t", Epoch(3, "gw-a"), "s", at(0), at(8)), 1, ("gw-a",), Kind.DEAD),
        (Held("t", Epoch(3, "gw-a"), "s", at(0), at(2)), 1, ("gw-x",), Kind.OTHER),
    ],
    ids=["the first", "same", "other", "had left before", "dead", "somebody else is dead"],
)
def test_from_whom_a_terminal_was_taken_over(
    former: Held | None, came: float, dead: tuple[str, ...], kind: Kind
) -> None:
    held = Held("t", Epoch(7, "gw-b"), "s7", at(8.5))
    locks = [held] if former is None else [former, held]
    matched = match({"t": locks}, build_turns(("bert", "b", came, 9)), PLACES, dead)

    assert {kind: len(times) for kind, times in matched.takeovers.items() if times} == {kind: 1}
    assert matched.takeovers[kind] == [at(9) - at(came)]


def test_who_takes_over_from_a_gateway_that_died_only_later_takes_over_from_a_living_one() -> None:
    locks = [
        Held("t", Epoch(3, "gw-a"), "s3", at(0), at(2)),
        Held("t", Epoch(5, "gw-b"), "s5", at(2.5), at(4)),
        Held("t", Epoch(8, "gw-a"), "s8", at(5)),
    ]
    turns = build_turns(("bert", "b", 1, 3), ("carl", "a", 4, 6))

    matched = match({"t": locks}, turns, PLACES, ("gw-a",))

    assert matched.takeovers[Kind.OTHER] == [timedelta(seconds=2)] * 2
    assert matched.takeovers[Kind.DEAD] == []
    assert matched.successions == 0


@pytest.mark.parametrize(("cleared", "kind"), [(8, Kind.DEAD), (2, Kind.NOBODY)])
def test_who_finds_the_lock_of_a_dead_gateway_swept_succeeds_it_without_taking_over(cleared: float, kind: Kind) -> None:
    locks = [Held("t", Epoch(3, "gw-a"), "s3", at(0), at(cleared)), Held("t", Epoch(7, "gw-b"), "s7", at(8.5))]

    matched = match({"t": locks}, build_turns(("bert", "b", 3, 9)), PLACES, ("gw-a",))

    assert {kind: len(times) for kind, times in matched.takeovers.items() if times} == {kind: 1}
    assert matched.successions == 1

"""From kopf's thread to the main loop: the newest word of each object, few wake-ups, and a loop that breathes."""

import asyncio
import threading
from collections.abc import Callable, Iterable

from controller.engine.registry import Gone, Snapshot
from controller.handlers.handover import PORTION, Handover, Word
from tests.engine.test_registry import terminal


def in_a_thread(work: Callable[[], object]) -> None:
    """Run to the end in another thread, while this loop is busy waiting for it."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


async def all_delivered(handover: Handover) -> None:
    passed = asyncio.Event()
    handover.mark(passed.set)
    async with asyncio.timeout(10):
        await passed.wait()


def put_all(handover: Handover, words: Iterable[Word]) -> Callable[[], None]:
    def put() -> None:
        for word in words:
            handover.put(word)

    return put


async def test_words_arrive_on_the_loop_in_the_order_of_their_objects() -> None:
    seen: list[str] = []
    threads: set[int] = set()

    def take(word: Word) -> None:
        seen.append(word.uid)
        threads.add(threading.get_ident())

    handover = Handover(asyncio.get_running_loop(), take)
    in_a_thread(put_all(handover, [terminal(uid=f"u{number}") for number in range(3)]))
    assert seen == []
    await all_delivered(handover)
    assert seen == ["u0", "u1", "u2"]
    assert threads == {threading.get_ident()}


async def test_of_several_words_about_one_object_the_last_arrives() -> None:
    seen: list[Word] = []
    handover = Handover(asyncio.get_running_loop(), seen.append)
    gone = Gone("u2", "team", "two", 30)
    in_a_thread(put_all(handover, [terminal(version=1), terminal(version=2), terminal(uid="u2", version=20), gone]))
    await all_delivered(handover)
    assert seen == [terminal(version=2), gone]


async def test_a_thousand_words_cost_one_wake_up_while_the_loop_is_busy() -> None:
    seen: list[Word] = []
    handover = Handover(asyncio.get_running_loop(), seen.append)
    in_a_thread(put_all(handover, [terminal(uid=f"u{number}") for number in range(1000)]))
    assert handover.wakes == 1
    await all_delivered(handover)
    assert (len(seen), handover.wakes) == (1000, 1)


async def test_the_loop_gets_its_turn_between_two_portions() -> None:
    seen: list[Word] = []
    handover = Handover(asyncio.get_running_loop(), seen.append)
    in_a_thread(put_all(handover, [terminal(uid=f"u{number}") for number in range(3 * PORTION)]))
    after_each_turn = []
    async with asyncio.timeout(10):
        while len(seen) < 3 * PORTION:
            await asyncio.sleep(0)
            after_each_turn.append(len(seen))
    assert {PORTION, 2 * PORTION, 3 * PORTION} <= set(after_each_turn)
    assert max(later - sooner for sooner, later in zip([0, *after_each_turn], after_each_turn, strict=False)) <= PORTION


async def test_a_mark_is_called_after_everything_that_was_put_before_it() -> None:
    story: list[str] = []
    handover = Handover(asyncio.get_running_loop(), lambda word: story.append(word.uid))
    passed = asyncio.Event()

    def tell() -> None:
        for number in range(PORTION + 1):
            handover.put(terminal(uid=f"u{number}"))
        handover.mark(lambda: story.append("mark"))
        handover.mark(passed.set)

    in_a_thread(tell)
    async with asyncio.timeout(10):
        await passed.wait()
    assert (len(story), story[-1]) == (PORTION + 2, "mark")


async def test_a_word_that_cannot_be_taken_is_counted_and_the_next_arrives() -> None:
    seen: list[str] = []

    def take(word: Word) -> None:
        if word.uid == "u0":
            raise RuntimeError("not this one")
        seen.append(word.uid)

    handover = Handover(asyncio.get_running_loop(), take)
    in_a_thread(put_all(handover, [terminal(uid="u0"), terminal(uid="u1")]))
    await all_delivered(handover)
    assert (seen, handover.errors, handover.delivered) == (["u1"], 1, 2)


async def test_words_that_come_while_others_are_delivered_are_not_lost() -> None:
    seen: list[int] = []
    last = asyncio.Event()

    def take(word: Word) -> None:
        assert isinstance(word, Snapshot)
        seen.append(word.version)
        if word.version < 50:
            handover.put(terminal(version=word.version + 1))
        else:
            last.set()

    handover = Handover(asyncio.get_running_loop(), take)
    handover.put(terminal(version=0))
    async with asyncio.timeout(10):
        await last.wait()
    assert seen == list(range(51))

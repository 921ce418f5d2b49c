"""The work queue: one worker a key, nothing lost, the earliest due time, urgent first without starving anybody."""

import asyncio
from datetime import timedelta
from random import Random

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.engine.queue import Item, Lane, Wait, WorkQueue
from controller.engine.settings import QueueSettings
from tests.engine.clocks import HandClock, LoopClock

SECOND = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=250)


def queue_at(clock: HandClock, *, jitter: float = 0.0, seed: int = 0) -> WorkQueue:
    return WorkQueue(clock, QueueSettings(backoff_jitter=jitter), Random(seed))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def queue(clock: HandClock) -> WorkQueue:
    return queue_at(clock)


def taken(queue: WorkQueue) -> Item:
    item = queue.take()
    assert item is not None
    return item


def test_a_key_asked_for_twice_is_worked_on_once(queue: WorkQueue) -> None:
    queue.add("a")
    queue.add("a")
    assert taken(queue).key == "a"
    queue.done("a")
    assert queue.take() is None


def test_a_wish_during_the_work_brings_the_key_back_after_it_and_not_before(queue: WorkQueue) -> None:
    queue.add("a")
    taken(queue)
    queue.add("a")
    assert queue.take() is None
    queue.done("a")
    assert taken(queue).key == "a"


def test_a_due_time_that_comes_during_the_work_brings_the_key_back_after_it(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("a")
    taken(queue)
    queue.add_after("a", SECOND)
    clock.passed += SECOND
    assert queue.take() is None
    queue.done("a")
    assert taken(queue).key == "a"


def test_keys_of_one_lane_come_in_the_order_in_which_they_were_asked_for(queue: WorkQueue) -> None:
    for key in "cab":
        queue.add(key)
    assert [taken(queue).key for _ in range(3)] == ["c", "a", "b"]


@pytest.mark.parametrize("delays", [(1, 5), (5, 1)])
def test_of_two_due_times_the_earliest_wins(queue: WorkQueue, clock: HandClock, delays: tuple[int, int]) -> None:
    for delay in delays:
        queue.add_after("a", delay * SECOND)
    clock.passed = SECOND - timedelta(microseconds=1)
    assert queue.take() is None
    clock.passed = SECOND
    assert taken(queue).key == "a"
    queue.done("a")
    clock.passed = 60 * SECOND
    assert queue.take() is None


def test_a_due_time_stands_although_the_key_was_worked_on_earlier(queue: WorkQueue, clock: HandClock) -> None:
    queue.add_after("a", 5 * SECOND)
    queue.add("a")
    taken(queue)
    queue.done("a")
    clock.passed = 5 * SECOND
    assert taken(queue).key == "a"


def test_a_delay_of_nothing_is_now(queue: WorkQueue) -> None:
    queue.add_after("a", timedelta(0))
    queue.add_after("b", -SECOND)
    assert [taken(queue).key, taken(queue).key] == ["a", "b"]


# --- what is gathered -------------------------------------------------------------------------------------------------


def test_wishes_that_are_gathered_are_one_work_a_moment_after_the_first_of_them(
    queue: WorkQueue, clock: HandClock
) -> None:
    begun = clock.passed
    for share in (0.0, 0.4, 0.8):
        clock.passed = begun + share * MOMENT
        queue.gather("a", within=MOMENT)
        assert queue.take() is None

    clock.passed = begun + MOMENT
    item = taken(queue)
    assert (item.key, item.waited) == ("a", timedelta(0))
    queue.done("a")
    clock.passed += 60 * SECOND
    assert queue.take() is None


def test_the_last_wish_says_how_long_is_gathered_and_the_first_since_when(queue: WorkQueue, clock: HandClock) -> None:
    begun = clock.passed
    queue.gather("a", within=MOMENT)
    queue.gather("a", within=4 * MOMENT)
    queue.gather("b", within=4 * MOMENT)
    clock.passed = begun + 2 * MOMENT
    assert queue.take() is None

    queue.gather("b", within=MOMENT)
    assert taken(queue).key == "b"
    queue.gather("a", within=4 * MOMENT)
    clock.passed = begun + 4 * MOMENT - timedelta(microseconds=1)
    assert queue.take() is None
    clock.passed = begun + 4 * MOMENT
    assert taken(queue).key == "a"


def test_a_work_that_begins_earlier_takes_what_was_gathered_along(queue: WorkQueue, clock: HandClock) -> None:
    queue.gather("a", within=MOMENT)
    queue.add("a", Lane.URGENT)
    queue.gather("a", within=MOMENT)
    assert taken(queue).lane is Lane.URGENT
    queue.done("a")
    clock.passed += 60 * SECOND
    assert queue.take() is None


def test_what_is_gathered_during_the_work_brings_the_key_back_a_moment_later(
    queue: WorkQueue, clock: HandClock
) -> None:
    queue.add("a")
    taken(queue)
    queue.gather("a", within=MOMENT)
    queue.done("a")
    assert queue.take() is None
    clock.passed += MOMENT
    assert taken(queue).key == "a"


def test_what_is_gathered_is_not_forgotten_with_a_try_that_is_not_needed_any_more(
    queue: WorkQueue, clock: HandClock
) -> None:
    queue.add("a")
    taken(queue)
    queue.fail("a")
    queue.gather("a", within=MOMENT)
    queue.forget("a")
    queue.done("a")
    clock.passed += MOMENT
    assert taken(queue).key == "a"


def test_what_is_gathered_outlives_a_clean_up_of_due_times_that_count_no_more(
    queue: WorkQueue, clock: HandClock
) -> None:
    queue.gather("a", within=MOMENT)
    for delay in range(300, 100, -1):
        queue.add_after("b", delay * SECOND)
    clock.passed += MOMENT
    assert taken(queue).key == "a"


def test_gathering_puts_off_no_due_time_and_a_dropped_key_is_gathered_no_more(
    queue: WorkQueue, clock: HandClock
) -> None:
    queue.gather("a", within=MOMENT)
    queue.add_after("a", MOMENT / 2)
    queue.gather("b", within=MOMENT)
    queue.drop("b")
    clock.passed += MOMENT / 2
    assert taken(queue).key == "a"
    clock.passed += 60 * SECOND
    assert queue.take() is None


@pytest.mark.looptime
async def test_whoever_waits_is_woken_when_what_was_gathered_is_due() -> None:
    queue = queue_at(LoopClock())
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(1)
    begun = loop.time()
    queue.add_after("b", 60 * SECOND)
    queue.gather("a", within=MOMENT)

    assert (await waiting).key == "a"
    assert loop.time() - begun == pytest.approx(MOMENT.total_seconds())


# --- who goes first ---------------------------------------------------------------------------------------------------


def test_urgent_keys_go_first(queue: WorkQueue) -> None:
    queue.add("n")
    queue.add("u", Lane.URGENT)
    assert [taken(queue).lane, taken(queue).lane] == [Lane.URGENT, Lane.NORMAL]


def test_hastened_keys_come_next_and_the_others_stay_in_their_order(queue: WorkQueue) -> None:
    for key in "abcdef":
        queue.add(key, Lane.URGENT)
    queue.hasten(["x", "e", "c", "f"], at_most=2)
    assert {taken(queue).key, taken(queue).key} == {"c", "e"}
    assert [taken(queue).key for _ in range(4)] == ["a", "b", "d", "f"]


def test_a_key_that_is_not_urgent_is_not_hastened(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("n1")
    queue.add("n2")
    queue.add_after("later", SECOND, Lane.URGENT)
    queue.hasten(["n2", "later"], at_most=2)
    assert [taken(queue).key, taken(queue).key] == ["n1", "n2"]
    assert queue.take() is None


def test_while_both_wait_one_of_eight_is_a_normal_one(queue: WorkQueue) -> None:
    for number in range(40):
        queue.add(f"u{number}", Lane.URGENT)
    for number in range(4):
        queue.add(f"n{number}")
    lanes = [taken(queue).lane for _ in range(32)]
    assert [position for position, lane in enumerate(lanes) if lane is Lane.NORMAL] == [7, 15, 23, 31]


def test_urgent_keys_taken_while_nobody_else_waited_do_not_count_against_the_next(queue: WorkQueue) -> None:
    for number in range(20):
        queue.add(f"u{number}", Lane.URGENT)
    for _ in range(10):
        taken(queue)
    queue.add("n")
    assert taken(queue).lane is Lane.URGENT


def test_a_waiting_key_moves_to_the_urgent_lane_and_keeps_its_age(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("a")
    clock.passed += SECOND
    queue.add("a", Lane.URGENT)
    assert (queue.depth(Lane.NORMAL), queue.depth(Lane.URGENT)) == (0, 1)
    queue.add("a", Lane.NORMAL)
    assert taken(queue) == Item("a", Lane.URGENT, SECOND)
    assert queue.take() is None


def test_an_urgent_wish_for_a_planned_key_makes_the_plan_urgent(queue: WorkQueue, clock: HandClock) -> None:
    queue.add_after("a", SECOND)
    queue.add_after("a", 5 * SECOND, Lane.URGENT)
    clock.passed = SECOND
    assert taken(queue).lane is Lane.URGENT


def test_each_failure_doubles_the_wait_up_to_five_minutes(queue: WorkQueue) -> None:
    waits = [queue.fail("a") for _ in range(50)]
    assert waits[:4] == [timedelta(milliseconds=500 * 2**number) for number in range(4)]
    assert waits[9] == timedelta(seconds=256)
    assert set(waits[10:]) == {timedelta(minutes=5)}


def test_luck_shortens_the_wait_by_at_most_its_share(clock: HandClock) -> None:
    queue = queue_at(clock, jitter=0.2, seed=7)
    waits = [queue.fail(f"k{number}") for number in range(200)]
    assert all(timedelta(milliseconds=400) < wait <= timedelta(milliseconds=500) for wait in waits)
    assert max(waits) - min(waits) > timedelta(milliseconds=80)


def test_a_wait_that_the_other_side_asked_for_is_kept_up_to_five_minutes(queue: WorkQueue) -> None:
    assert queue.fail("a", at_least=3 * SECOND) == 3 * SECOND
    assert queue.fail("a", at_least=timedelta(0)) == SECOND
    assert queue.fail("b", at_least=timedelta(days=1)) == timedelta(minutes=5)


def test_a_failed_key_comes_back_in_its_lane_after_its_wait(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("a", Lane.URGENT)
    taken(queue)
    wait = queue.fail("a")
    queue.done("a")
    assert queue.take() is None
    clock.passed += wait
    assert taken(queue).lane is Lane.URGENT


def test_success_forgets_the_failures_and_the_try_that_was_planned(queue: WorkQueue, clock: HandClock) -> None:
    queue.fail("a")
    queue.fail("a")
    queue.forget("a")
    clock.passed += timedelta(hours=1)
    assert queue.take() is None
    assert queue.fail("a") == timedelta(milliseconds=500)


def test_success_keeps_a_due_time_that_somebody_asked_for(queue: WorkQueue, clock: HandClock) -> None:
    queue.add_after("a", SECOND)
    queue.forget("a")
    clock.passed += SECOND
    assert taken(queue).key == "a"


def test_a_dropped_key_leaves_nothing_behind(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("a")
    taken(queue)
    queue.add("a")
    queue.add_after("a", SECOND)
    queue.fail("a")
    queue.drop("a")
    queue.done("a")
    queue.add("b")
    queue.drop("b")
    clock.passed += timedelta(hours=1)
    assert queue.take() is None
    assert (queue.planned, queue.active, queue.failures("a")) == (0, 0, 0)


def test_waits_are_told_by_their_cause(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("a")
    clock.passed += SECOND
    assert taken(queue).waited == SECOND
    queue.done("a")
    queue.add_after("a", 3 * SECOND)
    clock.passed += 5 * SECOND
    assert taken(queue).waited == 2 * SECOND
    wait = queue.fail("a")
    queue.done("a")
    clock.passed += wait
    taken(queue)
    assert {cause: (tally.count, tally.total) for cause, tally in queue.waits.items()} == {
        Wait.QUEUE: (3, 3 * SECOND),
        Wait.PLANNED: (1, 3 * SECOND),
        Wait.BACKOFF: (1, wait),
    }


def test_ever_earlier_due_times_do_not_make_the_queue_grow(queue: WorkQueue) -> None:
    for number in range(10_000):
        queue.add_after("a", timedelta(hours=10) - number * timedelta(milliseconds=1))
    assert queue.planned == 1
    assert len(queue._heap) < 100


async def test_a_waiting_worker_gets_the_next_key() -> None:
    queue = queue_at(LoopClock())
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        getting = group.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
    assert getting.result().key == "a"


async def test_a_worker_that_was_woken_and_cancelled_passes_the_wake_on() -> None:
    queue = queue_at(LoopClock())
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        first, second = group.create_task(queue.get()), group.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
    assert first.cancelled()
    assert second.result().key == "a"


async def test_a_worker_cancelled_while_nothing_came_is_not_woken_later() -> None:
    queue = queue_at(LoopClock())
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        first, second = group.create_task(queue.get()), group.create_task(queue.get())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        queue.add("a")
    assert second.result().key == "a"


@pytest.mark.looptime
async def test_waiting_workers_are_woken_at_the_due_times_in_their_order() -> None:
    queue = queue_at(LoopClock())
    loop = asyncio.get_running_loop()
    start = loop.time()
    seen: list[tuple[str, float]] = []

    async def work() -> None:
        item = await queue.get()
        seen.append((item.key, round(loop.time() - start, 3)))
        queue.done(item.key)

    async with asyncio.timeout(3600), asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work())
        await asyncio.sleep(0)
        queue.add_after("late", timedelta(minutes=10))
        queue.add_after("early", timedelta(seconds=2))
        queue.add_after("middle", timedelta(seconds=30))
        queue.add("now")
    assert seen == [("now", 0), ("early", 2), ("middle", 30), ("late", 600)]


@pytest.mark.looptime
async def test_sixteen_workers_never_share_a_key_and_miss_none() -> None:
    queue = queue_at(LoopClock(), jitter=0.2)
    rng = Random(11)
    at_work: set[str] = set()
    seen_after_last_wish: dict[str, bool] = {}

    async def work() -> None:
        while True:
            item = await queue.get()
            assert item.key not in at_work
            at_work.add(item.key)
            seen_after_last_wish[item.key] = True
            await asyncio.sleep(rng.random())
            if rng.random() < 0.2:
                queue.fail(item.key)
            else:
                queue.forget(item.key)
            at_work.remove(item.key)
            queue.done(item.key)

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(work()) for _ in range(16)]
        for _ in range(3_000):
            key = f"k{rng.randrange(40)}"
            seen_after_last_wish[key] = False
            match rng.randrange(3):
                case 0:
                    queue.add(key, rng.choice(list(Lane)))
                case 1:
                    queue.gather(key, within=rng.random() * SECOND)
                case _:
                    queue.add_after(key, rng.random() * SECOND)
            await asyncio.sleep(rng.random() * 0.05)
        await asyncio.sleep(3600)
        for worker in workers:
            worker.cancel()
    assert all(seen_after_last_wish.values())
    assert (queue.planned, queue.active) == (0, 0)


KEYS = st.sampled_from("abcd")
LANES = st.sampled_from(Lane)
DELAYS = st.integers(1, 20)


def test_a_closed_queue_hands_out_nothing_new(queue: WorkQueue, clock: HandClock) -> None:
    queue.add("waiting")
    queue.add_after("planned", SECOND)

    queue.close()
    queue.add("late", Lane.URGENT)
    clock.passed += 2 * SECOND

    assert queue.take() is None


async def test_a_closed_queue_is_finished_at_once_where_nobody_works(queue: WorkQueue) -> None:
    queue.add("waiting")
    queue.close()
    async with asyncio.timeout(10):
        await queue.wait_finished()


@pytest.mark.parametrize(("after", "comes_again"), [(0.0, True), (0.3, True), (1.0, True), (1.001, False)])
async def test_what_was_under_way_at_the_close_comes_again_only_where_it_comes_soon(
    queue: WorkQueue, clock: HandClock, after: float, comes_again: bool
) -> None:
    queue.add("a")
    taken(queue)
    queue.close()
    finished = asyncio.ensure_future(queue.wait_finished())

    queue.add_after("a", after * SECOND)
    queue.done("a")
    await asyncio.sleep(0)

    assert finished.done() is not comes_again
    clock.passed += SECOND
    if comes_again:
        assert taken(queue).key == "a"
        queue.done("a")
    await finished


class QueueMachine(RuleBasedStateMachine):
    """Any order of calls, against a model that remembers who is at work, who is owed, and from when."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.queue = queue_at(self.clock)
        self.at_work: set[str] = set()
        self.owed: set[str] = set()
        self.due: dict[str, timedelta] = {}
        self.gathered: dict[str, timedelta] = {}
        self.first: dict[str, timedelta] = {}

    def come_due(self) -> None:
        for moments in (self.due, self.gathered):
            for key, due in list(moments.items()):
                if due <= self.clock.passed:
                    self.owed.add(key)
                    del moments[key]

    @rule(key=KEYS, lane=LANES)
    def add(self, key: str, lane: Lane) -> None:
        self.queue.add(key, lane)
        self.owed.add(key)

    @rule(key=KEYS, lane=LANES, delay=DELAYS)
    def add_after(self, key: str, lane: Lane, delay: int) -> None:
        # The queue looks at its due times when somebody takes, so the model does the same before it compares.
        self.queue.add_after(key, delay * SECOND, lane)
        due = self.clock.passed + delay * SECOND
        self.due[key] = min(due, self.due.get(key, due))

    @rule(key=KEYS, delay=DELAYS)
    def gather(self, key: str, delay: int) -> None:
        self.queue.gather(key, within=delay * SECOND)
        if key in self.owed:
            return
        if key not in self.gathered:
            self.first[key] = self.clock.passed
        self.gathered[key] = self.first[key] + delay * SECOND
        if self.gathered[key] <= self.clock.passed:
            del self.gathered[key]
            self.owed.add(key)

    @rule(seconds=st.integers(1, 10))
    def time_passes(self, seconds: int) -> None:
        self.clock.passed += seconds * SECOND

    @rule()
    def take(self) -> None:
        self.come_due()
        ready = self.owed - self.at_work
        item = self.queue.take()
        if item is None:
            assert not ready
            return
        assert item.key in ready
        self.owed.remove(item.key)
        self.gathered.pop(item.key, None)
        self.at_work.add(item.key)

    @precondition(lambda self: self.at_work)
    @rule(data=st.data(), fails=st.booleans())
    def end_work(self, data: st.DataObject, *, fails: bool) -> None:
        key = data.draw(st.sampled_from(sorted(self.at_work)))
        if fails:
            due = self.clock.passed + self.queue.fail(key)
            self.due[key] = min(due, self.due.get(key, due))
        self.queue.done(key)
        self.at_work.remove(key)

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        self.queue.drop(key)
        self.owed.discard(key)
        self.due.pop(key, None)
        self.gathered.pop(key, None)

    @invariant()
    def it_is_bounded_by_its_keys(self) -> None:
        assert self.queue.active == len(self.at_work)
        assert self.queue.planned <= 4
        assert sum(self.queue.depth(lane) for lane in Lane) <= 4

    def teardown(self) -> None:
        """Nothing that was asked for may be left untaken at the end."""
        for key in sorted(self.at_work):
            self.queue.done(key)
        self.at_work.clear()
        self.clock.passed += timedelta(hours=1)
        self.come_due()
        served = set()
        while (item := self.queue.take()) is not None:
            served.add(item.key)
            self.queue.done(item.key)
        assert served == self.owed


QueueMachine.TestCase.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrderOfCalls = QueueMachine.TestCase


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"backoff_base": timedelta(0)}, "backoff_base"),
        ({"backoff_max": timedelta(milliseconds=1)}, "backoff_max"),
        ({"backoff_jitter": 1.0}, "backoff_jitter"),
        ({"urgent_share": 1}, "urgent_share"),
    ],
)
def test_settings_that_contradict_themselves_are_refused_by_name(arguments: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=rf"^{field} must "):
        QueueSettings(**arguments)  # type: ignore[arg-type]  # The table mixes types on purpose.

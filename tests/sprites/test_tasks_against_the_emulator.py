"""Plans of holds, carried out by real commands in the emulator's sprite: words, order and answers as they are."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from controller.api.session import Cause, SpriteState
from controller.plan.activity import HoldCause, HoldFor, LetGo, NoWork, Work
from controller.plan.hold_book import HoldBook, HoldRules, note_sent, note_verdict, rebuild_book
from controller.plan.hold_names import build_key, name_task
from controller.plan.hold_round import HoldEntry, SendCalls, plan_round
from controller.plan.tasks import (
    EXEC_LIMIT,
    OUTPUT_BYTES,
    Done,
    ExecEnded,
    Failed,
    RemoveTask,
    TaskTrouble,
    UpsertTask,
    build_exec,
    judge_exec,
)
from controller.plan.tasks_read import READ_OUTPUT_BYTES, TasksRead, build_read_exec, judge_read
from controller.sprites.client import SpritesClient
from controller.sprites.token import Token
from controller.tenure import Tenure
from tests.sprites.conftest import MakeClient
from tests.support.emulator import EmulatorProcess
from tests.support.secrecy import build_sprites_token

pytestmark = pytest.mark.sprites

TENURE = Tenure(1)
RULES = HoldRules(timedelta(seconds=300), timedelta(seconds=60), turn_after=timedelta(seconds=100))
UIDS = ("uid-a", "uid-b")
WORK = HoldFor(HoldCause.VIEWER)
IDLE = LetGo(NoWork.IDLE)


@pytest.fixture(scope="module")
def emulator_process() -> Iterator[EmulatorProcess]:
    with EmulatorProcess("--token", build_sprites_token("acme")) as process:
        yield process


class Sprite:
    """One sprite of the emulator, and what runs there."""

    def __init__(self, client: SpritesClient, token: Token) -> None:
        self._client = client
        self._token = token
        self.commands = 0

    async def run(self, argv: tuple[str, ...], output_bytes: int = OUTPUT_BYTES) -> ExecEnded:
        self.commands += 1
        result = await self._client.run_command(
            self._token,
            "s1",
            argv,
            stdin=b"",
            tenure=TENURE,
            cause=Cause.HOLD,
            time_limit=EXEC_LIMIT,
            output_bytes=output_bytes,
        )
        return ExecEnded(result.exit_code, result.stdout)

    async def read(self) -> TasksRead:
        read = judge_read(await self.run(build_read_exec(), READ_OUTPUT_BYTES))
        assert isinstance(read, TasksRead), read
        return read

    async def names(self) -> set[str]:
        return {task.name for task in (await self.read()).tasks}


@pytest.fixture
def sprite(emulator_process: EmulatorProcess, make_client: MakeClient) -> Sprite:
    emulator_process.reset()
    emulator_process.create_sprite("s1")
    return Sprite(make_client(emulator_process.url), Token.read(emulator_process.token))


def key(uid: str) -> str:
    return build_key("default", uid.upper(), uid)


async def play(sprite: Sprite, books: dict[str, HoldBook], work: Work, now: timedelta) -> None:
    """One round of the keeper, with a real command and the given moment."""
    entries = [HoldEntry(uid, key(uid), book, recorded=False, work=work, rules=RULES) for uid, book in books.items()]
    step = plan_round(entries, sprite=SpriteState.RUNNING, now=now)
    assert isinstance(step, SendCalls), step
    for entry in step.entries:
        books[entry.uid] = note_sent(books[entry.uid], entry.calls, now=now)
    run = build_exec(call for entry in step.entries for call in entry.tasks)
    verdicts = [verdict for _, verdict in judge_exec(run, await sprite.run(run.argv))]
    slot_calls = [(entry.uid, call) for entry in step.entries for call in entry.calls]
    for (uid, call), verdict in zip(slot_calls, verdicts, strict=True):
        assert isinstance(verdict, Done), verdict
        books[uid] = note_verdict(books[uid], call, verdict, RULES, now=now)


@pytest.mark.case("C1", "C2", "C3", "U1")
async def test_holds_of_two_terminals_are_created_turned_found_again_and_let_go_by_one_command_each(
    sprite: Sprite,
) -> None:
    now = timedelta(hours=1)
    books = {uid: HoldBook() for uid in UIDS}
    await play(sprite, books, WORK, now)
    assert await sprite.names() == {name_task(key(uid), 0) for uid in UIDS}

    later = now + RULES.turn_after
    await play(sprite, books, WORK, later)
    assert await sprite.names() == {name_task(key(uid), slot) for uid in UIDS for slot in (0, 1)}

    read, moment = await sprite.read(), datetime.now(UTC)  # the emulator runs on the wall clock
    rebuilt = {uid: rebuild_book(key(uid), uid, read, now=later, now_time=moment) for uid in UIDS}
    assert [book.current for book in rebuilt.values()] == [1, 1]

    await play(sprite, rebuilt, WORK, later)
    assert sprite.commands == 6
    await play(sprite, rebuilt, WORK, later + RULES.refresh)
    assert await sprite.names() == {name_task(key(uid), 1) for uid in UIDS}

    await play(sprite, rebuilt, IDLE, later + RULES.refresh)
    assert await sprite.names() == set()


@pytest.mark.case("U5")
async def test_a_removal_of_what_is_not_there_is_done_and_stops_nothing(sprite: Sprite) -> None:
    run = build_exec([RemoveTask("nobody"), UpsertTask("one", timedelta(seconds=60)), RemoveTask("one")])

    verdicts = [verdict for _, verdict in judge_exec(run, await sprite.run(run.argv))]

    assert verdicts == [Done(404), Done(200), Done(204)]


@pytest.mark.case("C14")
async def test_a_hold_that_nobody_renews_is_gone_within_its_expiry(sprite: Sprite) -> None:
    run = build_exec([UpsertTask("short", timedelta(seconds=1))])
    await sprite.run(run.argv)

    deadline = time.monotonic() + 30
    while await sprite.names():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@pytest.mark.case("C13", "U6")
async def test_a_sprite_without_the_tasks_api_is_told_by_curls_exit_code(sprite: Sprite) -> None:
    run = build_exec([UpsertTask("one", timedelta(seconds=60)), UpsertTask("two", timedelta(seconds=60))])
    argv = tuple("/nowhere.sock" if word == "/.sprite/api.sock" else word for word in run.argv)

    answer = await sprite.run(argv)

    assert answer.exit_code == 7
    assert [verdict for _, verdict in judge_exec(run, answer)] == [
        Failed(TaskTrouble.CURL_FAILED, 7, 0),
        Failed(TaskTrouble.STOPPED),
    ]


@pytest.mark.case("C13")
async def test_a_sprite_without_curl_is_told_apart(sprite: Sprite) -> None:
    run = build_exec([UpsertTask("one", timedelta(seconds=60))])

    answer = await sprite.run(("/bin/sh", "-c", "PATH=/nowhere; curl"))

    assert [verdict for _, verdict in judge_exec(run, answer)] == [Failed(TaskTrouble.CURL_MISSING, 127)]

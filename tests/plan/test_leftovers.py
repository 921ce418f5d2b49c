"""What a kill did not reach: how it is found, when it counts, and how it is told."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.conditions import ConditionStatus, Reason
from controller.api.session import KillAnswer, SpriteState
from controller.api.terminal import (
    KillStatus,
    KillTrigger,
    LeftoverProcess,
    LeftoversResult,
    LeftoversStatus,
)
from controller.errors import Failure
from controller.plan.facts import Facts, Memory
from controller.plan.kill import KillProgress, note_settled
from controller.plan.leftovers import (
    NAMES_LIMIT,
    NONE_IN_SESSION,
    NOT_KNOWN,
    NOTHING_LEFT,
    AskProcesses,
    Mark,
    Process,
    ProcessesLook,
    ProcessesSeen,
    describe_leftovers,
    find_leftovers,
    plan_search,
    read_processes,
)
from controller.plan.looks import NOT_LOOKED, Listed, LookFailed, NotLooked
from controller.plan.starting import describe_launched
from controller.plan.steps import LookAtProcesses, ReleaseObject, Rest
from tests.plan.building import (
    ADOPTED,
    INTENT,
    MILLISECOND,
    NONCE,
    NOON,
    NOW,
    SESSION,
    build_end,
    build_facts,
    build_seen,
    build_spec,
    decide,
    decide_outcome,
)

LAUNCHED_MARK = Mark("41", NONCE)
ADOPTED_MARK = Mark("41", None)
SECOND = timedelta(seconds=1)

FIRST = Process(1, "init", session=1)
SERVER = Process(57, "node", session=57, nonce=NONCE)
"""It began a session of its own."""
JOB = Process(58, "sleep", session=41, nonce=NONCE)
"""A background job of the terminal's own session."""
CLEARED = Process(59, "env", session=41)
"""It threw its environment away."""
STRANGER = Process(60, "bash", session=60, nonce="othernonce")


PRINTED = "\n".join(
    (
        "/proc/1/status:Name:\tinit",
        "/proc/1/status:State:\tS (sleeping)",
        "/proc/1/status:NSsid:\t1",
        "/proc/57/status:Name:\tnode",
        "/proc/57/status:State:\tS (sleeping)",
        "/proc/57/status:NSsid:\t57\t3",
        "/proc/58/status:Name:\todd\\nname \x1b",
        "/proc/58/status:State:\tZ (zombie)",
        "/proc/58/status:NSsid:\t41",
        "/proc/61/status:State:\tR (running)",
        f"/proc/57/environ:AGENTTERMINAL_LAUNCH={NONCE}",
        "/proc/1/environ:AGENTTERMINAL_LAUNCH=$(not one of ours)",
        "AGENTTERMINAL_LAUNCH=nor1this",
        "end",
        "",
    )
)


def test_what_the_search_printed_is_read_and_what_is_odd_in_it_is_no_reason_to_fail() -> None:
    assert read_processes(PRINTED) == (
        FIRST,
        SERVER,
        Process(58, "odd\\nname ?", ended=True, session=41),
    )


def test_a_search_that_did_not_come_to_its_end_has_found_nothing_out() -> None:
    assert read_processes(PRINTED.replace("end\n", "")) is None
    assert read_processes("/dev/shm") is None


@given(st.text(alphabet="/procstaueniv:NameStd \t\n0123456789=AGENTTERMINAL_LAUNCH", max_size=200))
def test_reading_never_fails(output: str) -> None:
    assert isinstance(read_processes(output + "\nend\n"), tuple)


@pytest.mark.parametrize(
    ("mark", "processes", "found"),
    [
        (LAUNCHED_MARK, (FIRST, STRANGER), ()),
        (LAUNCHED_MARK, (FIRST, SERVER, JOB, CLEARED, STRANGER), (SERVER, JOB, CLEARED)),
        (ADOPTED_MARK, (FIRST, SERVER, JOB, CLEARED, STRANGER), (JOB, CLEARED)),
        (LAUNCHED_MARK, (replace(SERVER, ended=True),), ()),
        (ADOPTED_MARK, (JOB, Process(41, "bash", session=41)), ()),
        (ADOPTED_MARK, (JOB, Process(41, "bash", session=41, ended=True)), (JOB,)),
        (LAUNCHED_MARK, (CLEARED, JOB, Process(41, "bash", session=41)), (JOB,)),
        (Mark("not-a-number", None), (JOB, Process(62, "odd")), ()),
        (Mark("None", None), (Process(62, "odd"),), ()),
        (Mark("", None), (JOB,), ()),
    ],
    ids=[
        "nothing of it",
        "all that a launch marked",
        "of an adopted one what stayed in its session",
        "a zombie is dead",
        "the id lives again: its members are a stranger's",
        "a leader that nobody buried",
        "the id lives again, and the nonce still tells",
        "an id that is no process id",
        "no session is not a session called None",
        "an empty id",
    ],
)
def test_what_belonged_to_a_session(mark: Mark, processes: tuple[Process, ...], found: tuple[Process, ...]) -> None:
    assert find_leftovers(mark, processes) == found


def look(*processes: Process, age: timedelta = timedelta(0)) -> ProcessesSeen:
    return ProcessesSeen(processes, NOW - age)


def failed(age: timedelta = timedelta(0)) -> LookFailed:
    return LookFailed(Failure.TIMED_OUT, "Too long.", NOW - age)


FOUND = LeftoversStatus(
    result=LeftoversResult.FOUND, count=1, processes=(LeftoverProcess(pid=SERVER.pid, name=SERVER.name),)
)


@pytest.mark.parametrize(
    ("processes", "found_at", "step"),
    [
        (NOT_LOOKED, None, AskProcesses(NOW)),
        (look(SERVER, age=MILLISECOND), None, AskProcesses(NOW)),
        (failed(MILLISECOND), None, AskProcesses(NOW)),
        (failed(), None, NOT_KNOWN),
        (look(FIRST), None, NOTHING_LEFT),
        (look(SERVER), None, AskProcesses(NOW + SECOND)),
        (look(SERVER, age=-SECOND + MILLISECOND), NOW, AskProcesses(NOW + SECOND)),
        (look(SERVER, age=-SECOND), NOW, FOUND),
        (look(FIRST, age=-SECOND), NOW, NOTHING_LEFT),
        (failed(-SECOND), NOW, NOT_KNOWN),
        (look(SERVER), NOW - MILLISECOND, AskProcesses(NOW + SECOND)),
    ],
)
def test_what_is_found_counts_once_it_is_found_again_a_second_later(
    processes: ProcessesLook, found_at: timedelta | None, step: AskProcesses | LeftoversStatus
) -> None:
    assert plan_search(LAUNCHED_MARK, processes, found_at, since=NOW)[1] == step


def test_of_an_adopted_session_it_is_said_that_what_left_it_cannot_be_known() -> None:
    _, step = plan_search(ADOPTED_MARK, look(SERVER), None, since=NOW)

    assert step == NONE_IN_SESSION
    assert "cannot be known" in describe_leftovers(NONE_IN_SESSION)


looks = st.one_of(
    st.just(NOT_LOOKED),
    st.builds(failed, st.integers(-2000, 2000).map(lambda ms: ms * MILLISECOND)),
    st.builds(
        lambda processes, ms: ProcessesSeen(tuple(processes), NOW + ms * MILLISECOND),
        st.lists(st.sampled_from([FIRST, SERVER, JOB, CLEARED, STRANGER]), unique=True),
        st.integers(-2000, 2000),
    ),
)


@given(st.sampled_from([LAUNCHED_MARK, ADOPTED_MARK]), looks, st.none() | st.integers(-2000, 2000))
def test_a_search_always_has_a_next_step_and_only_a_look_after_the_kill_tells_anything(
    mark: Mark, processes: ProcessesLook, ms: int | None
) -> None:
    found_at = None if ms is None else NOW + ms * MILLISECOND
    after, step = plan_search(mark, processes, found_at, since=NOW)

    if isinstance(step, AskProcesses):
        assert step.since >= NOW
        assert isinstance(processes, NotLooked) or processes.started < step.since
    else:
        assert not isinstance(processes, NotLooked)
        assert processes.started >= NOW
        assert describe_leftovers(step) or step == NOTHING_LEFT
    assert plan_search(mark, processes, after, since=NOW)[1] == step or isinstance(step, LeftoversStatus)


def test_ten_are_named_and_the_others_counted() -> None:
    many = [Process(number, "sleep", session=41) for number in range(100, 112)]
    _, step = plan_search(ADOPTED_MARK, look(*many, age=-SECOND), NOW, since=NOW)

    assert isinstance(step, LeftoversStatus)
    assert (step.count, len(step.processes or ())) == (12, NAMES_LIMIT)
    text = describe_leftovers(step)
    assert text.startswith("The kill left 12 processes behind: 100 (sleep), 101 (sleep), ")
    assert "109 (sleep) and 2 more. " in text
    assert "110" not in text


# --- in the course of a kill ------------------------------------------------------------------------------------------

LAUNCHED = describe_launched(INTENT, SESSION)
SETTLED = note_settled(
    KillProgress(asked=NOW - SECOND, asked_time=NOON), KillAnswer.COMPLETE, now=NOW - 400 * MILLISECOND, now_time=NOON
)
ABSENT_ONCE = replace(SETTLED, absent_at=NOW - 310 * MILLISECOND)
FIRST_LIST = Listed((), NOW - 310 * MILLISECOND)
SECOND_LIST = Listed((), NOW)


def end(*, sessions: Listed = SECOND_LIST, processes: ProcessesLook = NOT_LOOKED, **more: Any) -> Facts:
    """The end of a launched session is asked for."""
    fields = {"spec": build_spec(terminated=True), **more}
    return build_facts(session=LAUNCHED, sessions=sessions, processes=processes, **fields)


def test_the_search_uses_the_wait_for_the_second_proof() -> None:
    early = replace(ABSENT_ONCE, absent_at=NOW - 10 * MILLISECOND)
    facts = end(sessions=Listed((), NOW - 10 * MILLISECOND))

    assert decide(facts, Memory(kill=early)).step == LookAtProcesses(early.settled_at)


def test_before_the_first_list_without_it_nothing_is_searched_for() -> None:
    trailing = end(sessions=Listed((SESSION,), NOW))

    assert not isinstance(decide(trailing, Memory(kill=SETTLED)).step, LookAtProcesses)


@pytest.mark.case("K6")
def test_with_nothing_left_the_proof_is_written_as_ever_and_says_that_it_was_searched_for() -> None:
    outcome = decide_outcome(end(processes=look(FIRST)), Memory(kill=ABSENT_ONCE))

    assert outcome.terminated is not None
    assert (outcome.terminated.status, outcome.terminated.reason) == (ConditionStatus.TRUE, Reason.CONFIRMED)
    assert outcome.kill is not None
    assert outcome.kill.leftovers == NOTHING_LEFT


def test_what_is_left_is_told_with_the_proof_by_reason_message_and_event() -> None:
    memory = Memory(kill=ABSENT_ONCE, leftovers_at=NOW - 10 * MILLISECOND)
    again = replace(end(processes=look(SERVER, age=-SECOND)), now=NOW + SECOND, began=NOW + SECOND)
    step = decide(again, memory).step

    assert isinstance(step, Rest)
    outcome = step.outcome
    assert outcome.terminated is not None
    assert (outcome.terminated.status, outcome.terminated.reason) == (ConditionStatus.TRUE, Reason.LEFTOVERS_FOUND)
    assert "57 (node)" in outcome.terminated.message
    assert outcome.kill is not None
    assert outcome.kill.leftovers == FOUND
    assert [(happening.reason, happening.warning) for happening in step.happenings] == [
        (Reason.CONFIRMED, False),
        (Reason.LEFTOVERS_FOUND, True),
    ]


def test_a_sprite_that_cannot_be_searched_holds_no_proof_back() -> None:
    outcome = decide_outcome(end(processes=failed()), Memory(kill=ABSENT_ONCE))

    assert outcome.terminated is not None
    assert outcome.terminated.status is ConditionStatus.TRUE
    assert outcome.terminated.reason is Reason.CONFIRMED
    assert "not known" in outcome.terminated.message
    assert outcome.kill is not None
    assert outcome.kill.leftovers == NOT_KNOWN


def test_where_the_sprites_memory_is_gone_nothing_is_searched_for() -> None:
    outcome = decide_outcome(end(sprite=build_seen(SpriteState.COLD)))

    assert outcome.kill is not None
    assert outcome.kill.leftovers == NOTHING_LEFT


def test_a_deleted_object_lets_go_at_once_and_leaves_the_mark_to_search_by() -> None:
    facts = end(deleting=True)
    step = decide(facts, Memory(kill=ABSENT_ONCE)).step

    assert isinstance(step, ReleaseObject)
    assert step.mark == LAUNCHED_MARK


def test_a_deleted_object_waits_for_its_second_proof_without_a_search() -> None:
    early = replace(ABSENT_ONCE, absent_at=NOW - 10 * MILLISECOND)
    facts = end(sessions=Listed((), NOW - 10 * MILLISECOND), deleting=True)

    assert not isinstance(decide(facts, Memory(kill=early)).step, LookAtProcesses)


@pytest.mark.parametrize("left", [None, NOTHING_LEFT, NONE_IN_SESSION, NOT_KNOWN, FOUND])
def test_what_was_found_is_said_again_for_every_later_generation(left: LeftoversStatus | None) -> None:
    ended = ADOPTED.model_copy(update={"ended": build_end("Terminated")})
    facts = build_facts(session=ended, spec=build_spec(terminated=True))
    kill = KillStatus(trigger=KillTrigger.TERMINATED, proof="SessionList", leftovers=left)
    facts = replace(facts, status=facts.status.model_copy(update={"kill": kill}))

    outcome = decide_outcome(facts)

    assert outcome.kill == kill
    assert outcome.terminated is not None
    found = left is not None and left.result is LeftoversResult.FOUND
    assert outcome.terminated.reason is (Reason.LEFTOVERS_FOUND if found else Reason.CONFIRMED)
    assert ("57 (node)" in outcome.terminated.message) is found

"""What each end and each refusal means for a person, and what comes over the socket."""

from datetime import timedelta

import orjson
import pytest

from controller.api.session import Identity
from controller.client.endings import LOST, THREE_WAYS, Next, judge_close, judge_refusal
from controller.client.frames import Closed, Exited, Notice, Other, SessionInfo, Told, read_frame
from controller.gateway.refusals import Refusal, RefusalCause, render_refusal
from controller.gateway.stream.frames import Word, render_closing, render_notice, render_session_info
from controller.plan.fence_closing import CLOSINGS, Ending
from controller.sprites.exec_frames import Framing

NEXT = {
    Ending.EXITED: Next.STOP,
    Ending.SESSION_ENDED: Next.STOP,
    Ending.UPSTREAM_LOST: Next.AGAIN,
    Ending.LEFT: Next.STOP,
    Ending.REPLACED: Next.STOP,
    Ending.REVOKED: Next.STOP,
    Ending.TERMINATED: Next.STOP,
    Ending.DELETED: Next.STOP,
    Ending.EXPIRED: Next.LOGIN,
    Ending.FORBIDDEN: Next.STOP,
    Ending.IDLE: Next.STOP,
    Ending.TOO_LARGE: Next.STOP,
    Ending.RESTARTING: Next.AGAIN,
    Ending.LEASE_LOST: Next.AGAIN,
    Ending.LOCK_LOST: Next.AGAIN,
    Ending.TOO_SLOW: Next.AGAIN,
    Ending.NOT_READY: Next.AGAIN,
    Ending.HELD: Next.STOP,
    Ending.SUSPENDED: Next.STOP,
    Ending.REFUSED: Next.STOP,
    Ending.CROWDED: Next.AGAIN,
    Ending.LOCK_LATE: Next.AGAIN,
    Ending.BUFFER_FULL: Next.AGAIN,
}


@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("is_told", [True, False], ids=["with its frame", "by its close alone"])
def test_every_ending_of_the_gateway_has_one_answer_and_a_sentence(ending: Ending, is_told: bool) -> None:
    frame = read_frame(render_closing(ending, "")) if is_told else None
    assert frame is None or isinstance(frame, Closed)

    verdict = judge_close(CLOSINGS[ending].code, ending.value, frame, exit_code=None)

    assert verdict.next is NEXT[ending]
    assert CLOSINGS[ending].sentence in verdict.sentence
    assert verdict.exit_code == LOST


def test_only_an_exit_that_was_told_gives_the_exit_code() -> None:
    assert judge_close(1000, "Exited", None, exit_code=7).exit_code == 7
    assert judge_close(None, "", None, exit_code=0).exit_code == 0
    assert judge_close(1000, "", None, exit_code=None).exit_code == LOST


def test_whoever_was_replaced_does_not_come_back_by_themselves_and_reads_how_they_may() -> None:
    verdict = judge_close(4001, "Replaced", None, exit_code=None)

    assert verdict.next is Next.STOP
    assert verdict.sentence.endswith("To take it back: --takeover.")


def test_whoever_lost_a_right_reads_what_to_ask_for_also_where_they_only_looked() -> None:
    verdict = judge_close(1008, "Forbidden", None, exit_code=None)

    assert verdict.next is Next.STOP
    assert "`agentterminals/attach`" in verdict.sentence
    assert "`agentterminals/view` to look." in verdict.sentence


@pytest.mark.parametrize(("code", "following"), [(None, Next.AGAIN), (1001, Next.AGAIN), (3999, Next.STOP)])
def test_an_end_of_nobodys_table_is_judged_by_its_code(code: int | None, following: Next) -> None:
    verdict = judge_close(code, "", None, exit_code=None)

    assert verdict.next is following
    assert verdict.sentence


def test_a_later_gateway_says_itself_whether_one_may_come_back() -> None:
    again = Closed(4444, "Unheard", "Something new.", retry=True)

    assert judge_close(4444, "Unheard", again, exit_code=None).next is Next.AGAIN


FOLLOWING = {
    RefusalCause.ADDRESS_LIMIT: Next.AGAIN,
    RefusalCause.BUSY: Next.AGAIN,
    RefusalCause.NO_TOKEN: Next.LOGIN,
    RefusalCause.BAD_TOKEN: Next.LOGIN,
    RefusalCause.PERSON_LIMIT: Next.AGAIN,
    RefusalCause.OBJECT_LIMIT: Next.AGAIN,
    RefusalCause.FULL: Next.AGAIN,
    RefusalCause.NOT_READY: Next.AGAIN,
    RefusalCause.UNDECIDED: Next.AGAIN,
}


@pytest.mark.parametrize("cause", RefusalCause)
def test_every_refusal_of_the_gateway_has_one_answer_and_its_sentence(cause: RefusalCause) -> None:
    refusal = Refusal(cause, "This is the rule.", retry_after=timedelta(seconds=5))

    verdict = judge_refusal(refusal.code, orjson.dumps(render_refusal(refusal)), "5")

    assert verdict.next is FOLLOWING.get(cause, Next.STOP)
    assert verdict.cause == cause.value
    if cause is RefusalCause.HELD:
        assert "--takeover" in verdict.sentence
    elif cause is RefusalCause.PAUSED:
        # The gateway's own sentence tells to attach as well, so that both together said it twice.
        assert "without --view" in verdict.sentence
        assert "This is the rule." not in verdict.sentence
    else:
        assert verdict.sentence.startswith("This is the rule.")
    if verdict.next is Next.AGAIN:
        assert verdict.wait == timedelta(seconds=5)
    assert (THREE_WAYS in verdict.sentence) == (cause in {RefusalCause.NO_TOKEN, RefusalCause.BAD_TOKEN})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"kind": "Pod"}', b'{"kind": "Status", "details": 3}'])
def test_an_answer_that_is_no_status_is_told_by_its_number(body: bytes) -> None:
    assert judge_refusal(502, body, None).sentence == "The gateway answered 502."


def test_what_the_gateway_writes_is_read() -> None:
    identity = Identity("sprite-1", "77", None)

    assert read_frame(render_session_info(identity, Framing.RAW, types=True)) == SessionInfo("77", True)
    assert read_frame(render_session_info(identity, Framing.NUMBERED, types=True)) == SessionInfo("77", False)
    assert read_frame(render_notice(Word.PAUSED, "It sleeps.")) == Notice("Paused", "It sleeps.")
    assert read_frame('{"type": "exit", "exit_code": 3}') == Exited(3)
    assert read_frame('{"type": "error", "error": "no"}') == Told("no")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"type": "exit"}', '{"type": "exit", "exit_code": true}', "\ud800"])
def test_what_nobody_knows_says_nothing(text: str) -> None:
    assert read_frame(text) == Other()


def test_a_notice_cannot_move_the_cursor_or_colour_the_screen() -> None:
    notice = read_frame(render_notice(Word.PAUSED, "a\x1b[2J\r\nb\x07"))

    assert isinstance(notice, Notice)
    assert notice.text.isprintable()

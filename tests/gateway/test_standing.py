"""Whether an object can be attached to as it stands."""

from typing import Any

import pytest

from controller.api.session import SpriteState
from controller.api.terminal import read_spec, read_status
from controller.gateway.refusals import RefusalCause
from controller.gateway.standing import Presence, Terminal, judge_pause, judge_standing, must_run
from controller.gateway.wishes import ActivityWish, AttachWish, Door, ListWish, Mode, Target, Wish
from tests.gateway.doubles import NAME, NAMESPACE, build_object

TARGET = Target(NAMESPACE, NAME)
HOLD = AttachWish(target=TARGET, mode=Mode.HOLD, door=Door.OWN)
VIEW = AttachWish(target=TARGET, mode=Mode.VIEW, door=Door.OWN)
TAKEOVER = AttachWish(target=TARGET, mode=Mode.TAKEOVER, door=Door.OWN)
LIST = ListWish(TARGET, Mode.HOLD, "box")
ACTIVITY = ActivityWish(TARGET)
NOBODY = Presence(held=False, streaming=False)
HELD = Presence(held=True, streaming=True)

LAUNCH: dict[str, Any] = {"launch": {"command": ["sh"]}}
ENDED = {"reason": "Exited", "time": "2026-01-01T12:00:00Z", "generation": 1}


def terminal(
    *, ended: bool = False, state: str | None = None, deleting: bool = False, session: bool = True, **spec: Any
) -> Terminal:
    raw = build_object(deleting=deleting, **spec)
    if ended:
        raw["status"]["session"]["ended"] = ENDED
    if not session:
        del raw["status"]["session"]
    if state is not None:
        raw["status"]["sprite"]["state"] = state
    return Terminal(NAME, "uid-1", deleting, read_spec(raw["spec"]), read_status(raw["status"]), raw)


@pytest.mark.parametrize("wish", [HOLD, VIEW, TAKEOVER, LIST, ACTIVITY])
@pytest.mark.parametrize(
    ("one", "cause"),
    [
        (terminal(terminated=True, deleting=True, suspend=True, ended=True), RefusalCause.TERMINATED),
        (terminal(deleting=True, suspend=True, ended=True), RefusalCause.DELETING),
    ],
)
def test_what_was_ended_for_good_is_gone_for_every_wish(one: Terminal, wish: Wish, cause: RefusalCause) -> None:
    refusal = judge_standing(one, wish, HELD)
    assert refusal is not None
    assert (refusal.cause, refusal.code) == (cause, 410)


@pytest.mark.parametrize(
    ("one", "wish", "presence", "cause"),
    [
        (terminal(), HOLD, NOBODY, None),
        (terminal(session=False, **LAUNCH), HOLD, NOBODY, None),
        # An end without `launch` is final; with it, only who comes to type starts another.
        (terminal(ended=True), HOLD, NOBODY, RefusalCause.ENDED),
        (terminal(ended=True), TAKEOVER, HELD, RefusalCause.ENDED),
        (terminal(ended=True, **LAUNCH), HOLD, NOBODY, None),
        (terminal(ended=True, **LAUNCH), TAKEOVER, HELD, None),
        (terminal(ended=True, **LAUNCH), VIEW, NOBODY, RefusalCause.ENDED),
        (terminal(ended=True, **LAUNCH), ACTIVITY, NOBODY, RefusalCause.ENDED),
        (terminal(ended=True), LIST, NOBODY, None),
        # Held: who types alone is refused, who looks or throws out is not.
        (terminal(), HOLD, HELD, RefusalCause.HELD),
        (terminal(suspend=True), HOLD, HELD, RefusalCause.HELD),
        (terminal(), TAKEOVER, HELD, None),
        (terminal(), VIEW, HELD, None),
        (terminal(), ACTIVITY, HELD, None),
        (terminal(), LIST, HELD, None),
        # Suspended: nothing is attached.
        (terminal(suspend=True), HOLD, NOBODY, RefusalCause.SUSPENDED),
        (terminal(suspend=True), TAKEOVER, HELD, RefusalCause.SUSPENDED),
        (terminal(suspend=True, ), VIEW, NOBODY, RefusalCause.SUSPENDED),
        (terminal(suspend=True), ACTIVITY, NOBODY, None),
        (terminal(state="cold"), HOLD, NOBODY, None),
        (terminal(state="warm"), TAKEOVER, HELD, None),
    ],
)  # fmt: skip
def test_the_answer_follows_from_object_wish_and_presence(
    one: Terminal, wish: Wish, presence: Presence, cause: RefusalCause | None
) -> None:
    refusal = judge_standing(one, wish, presence)
    assert (refusal.cause if refusal is not None else None) == cause


@pytest.mark.parametrize(
    ("wish", "presence", "must"),
    [
        (VIEW, NOBODY, True),
        (VIEW, Presence(held=True, streaming=False), True),
        (VIEW, Presence(held=False, streaming=True), False),
        (HOLD, NOBODY, False),
        (TAKEOVER, HELD, False),
        (LIST, NOBODY, False),
        (ACTIVITY, NOBODY, False),
    ],
)
def test_only_for_a_look_the_sprite_must_run_already_and_where_output_flows_it_does(
    wish: Wish, presence: Presence, *, must: bool
) -> None:
    assert must_run(wish, presence) is must


@pytest.mark.parametrize(
    ("written", "told", "is_refused"),
    [
        # What the platform says now outweighs what was written once, both ways.
        ("running", SpriteState.WARM, True),
        ("running", SpriteState.COLD, True),
        ("warm", SpriteState.RUNNING, False),
        ("cold", SpriteState.UNKNOWN, False),
        # Where it says nothing, what was written counts.
        ("warm", None, True),
        ("cold", None, True),
        ("running", None, False),
        ("unknown", None, False),
    ],
)
def test_a_look_at_a_paused_sprite_is_refused_by_the_platforms_own_word(
    written: str, told: SpriteState | None, *, is_refused: bool
) -> None:
    refusal = judge_pause(terminal(state=written), told)
    assert (refusal is not None) is is_refused
    assert refusal is None or (refusal.cause, refusal.code) == (RefusalCause.PAUSED, 409)


@pytest.mark.parametrize(
    ("sprite", "session_id", "found"),
    [("box", "77", True), ("box", "78", False), ("other", "77", False)],
)
def test_the_vendors_paths_lead_to_this_objects_session_only(sprite: str, session_id: str, found: bool) -> None:
    wish = AttachWish(target=TARGET, mode=Mode.HOLD, door=Door.SDK, sprite=sprite, session_id=session_id)
    refusal = judge_standing(terminal(terminated=True), wish, NOBODY)
    assert refusal is not None
    assert refusal.cause is (RefusalCause.TERMINATED if found else RefusalCause.NOT_FOUND)


def test_without_a_session_no_id_is_this_objects() -> None:
    wish = AttachWish(target=TARGET, mode=Mode.HOLD, door=Door.SDK, sprite="box", session_id="77")
    refusal = judge_standing(terminal(session=False), wish, NOBODY)
    assert refusal is not None
    assert refusal.cause is RefusalCause.NOT_FOUND


STALL: dict[str, Any] = {
    "type": "Stalled",
    "status": "True",
    "reason": "SecretNotFound",
    "message": "Create Secret one.",
}


def stalled(*, behind: int = 0, status: str = "True", intended: bool = False, **more: Any) -> Terminal:
    """A terminal that waits for a person, as far as its generation was judged."""
    one = terminal(**{"session": False, **LAUNCH, **more})
    raw = dict(one.raw)
    condition = {**STALL, "status": status, "observedGeneration": raw["metadata"]["generation"] - behind}
    raw["status"] = {**raw["status"], "conditions": [{**condition, "lastTransitionTime": "2026-01-01T12:00:00Z"}]}
    if intended:
        raw["status"]["session"] = {"origin": "Launched", "spriteId": "s"}
    return Terminal(one.name, one.uid, one.deleting, one.spec, read_status(raw["status"]), raw)


@pytest.mark.parametrize("wish", [HOLD, VIEW, TAKEOVER])
@pytest.mark.parametrize("one", [stalled(), stalled(intended=True)])
def test_who_would_wait_for_a_session_in_vain_is_told_what_to_mend_and_not_to_come_again(
    one: Terminal, wish: Wish
) -> None:
    refusal = judge_standing(one, wish, NOBODY)
    assert refusal is not None
    assert (refusal.cause, refusal.code, refusal.retry_after) == (RefusalCause.STALLED, 409, None)
    assert refusal.message.endswith("none comes by waiting (SecretNotFound): Create Secret one.")


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(stalled(behind=1), id="of an earlier spec"),
        pytest.param(stalled(status="False"), id="not stalled"),
        pytest.param(stalled(session=True), id="with a session that lives"),
        pytest.param(stalled(session=True, ended=True), id="with an end that somebody who attaches undoes"),
    ],
)
def test_a_stall_that_hinders_nobody_refuses_nobody(one: Terminal) -> None:
    assert judge_standing(one, HOLD, NOBODY) is None


@pytest.mark.parametrize("wish", [LIST, ACTIVITY])
def test_who_attaches_to_nothing_is_not_hindered_by_a_stall(wish: Wish) -> None:
    assert judge_standing(stalled(), wish, NOBODY) is None

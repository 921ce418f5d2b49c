"""An object that this operator cannot read: it says so in its conditions, once, and nothing of it is touched."""

from datetime import timedelta
from typing import Any, Final

import pytest

from controller.kube.errors import Invalid
from tests.engine.memory_world import MemoryWorld

SOME_LOOKS: Final = timedelta(hours=3)
"""It is looked at again every hour."""
SETTLED: Final = timedelta(minutes=2)
SENTENCE: Final = "spec.deletionPolicy cannot be read: "
WAY_OUT: Final = "Correct the object, or install this operator's own CRD."
EPOCH: Final = "1970-01-01T00:00:00Z"


@pytest.mark.looptime
async def test_a_new_object_that_cannot_be_read_says_so_once_and_names_the_field_and_the_way_out() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        world.kube.create("odd", sessionId="1", deletionPolicy="Archive")

        await world.pass_time(SOME_LOOKS)

        told = {kind: world.condition("odd", kind) for kind in ("Ready", "Reconciling", "Stalled")}
        assert {kind: condition["status"] for kind, condition in told.items()} == {
            "Ready": "False",
            "Reconciling": "False",
            "Stalled": "True",
        }
        assert {condition["reason"] for condition in told.values()} == {"ObjectInvalid"}
        (sentence,) = {condition["message"] for condition in told.values()}
        assert sentence.startswith(SENTENCE)
        assert sentence.endswith(WAY_OUT)
        assert world.notes("odd") == [sentence]
        assert (world.status("odd")["phase"], world.status("odd")["observedGeneration"]) == ("Failed", 1)
        assert len(world.status("odd")["conditions"]) == 9
        assert world.kube.writes == ["status odd"]
        assert world.sprites.count().total() == 0


@pytest.mark.looptime
async def test_a_restart_adds_nothing_to_what_stands_there() -> None:
    async with MemoryWorld() as world:
        world.kube.create("odd", sessionId="1", deletionPolicy="Archive")
        await world.pass_time(SETTLED)

        await world.restart()
        await world.pass_time(SOME_LOOKS)

        assert world.kube.writes == ["status odd"]
        assert len(world.notes("odd")) == 1


@pytest.mark.looptime
async def test_an_edit_that_leaves_it_unreadable_is_answered_for_its_generation() -> None:
    async with MemoryWorld() as world:
        world.kube.create("odd", sessionId="1", deletionPolicy="Archive")
        await world.pass_time(SETTLED)

        world.kube.patch("odd", deletionPolicy="Burn")
        await world.pass_time(SETTLED)

        assert world.reason("odd", "Ready") == "ObjectInvalid"
        assert world.kube.writes == ["status odd"] * 2


@pytest.mark.looptime
async def test_a_request_for_a_look_at_it_is_answered() -> None:
    async with MemoryWorld() as world:
        world.kube.create("odd", sessionId="1", deletionPolicy="Archive")
        await world.pass_time(SETTLED)

        world.kube.request_reconcile("odd", "now")
        await world.pass_time(SETTLED)

        assert world.status("odd")["lastHandledReconcileAt"] == "now"


@pytest.mark.looptime
async def test_what_ran_goes_on_untouched_and_what_was_known_of_it_stands_until_it_can_be_read_again() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        world.sprites.start("box", "1")
        world.kube.create("one", sessionId="1", idleTimeoutSeconds=0)
        await world.pass_time(SETTLED)
        before = world.status("one")

        world.kube.patch("one", idlePolicy="Sometimes")
        await world.pass_time(SETTLED)

        after = world.status("one")
        judged = {entry["type"]: entry["observedGeneration"] for entry in after["conditions"]}
        assert {kind for kind, generation in judged.items() if generation == 2} == {"Ready", "Reconciling", "Stalled"}
        told = {"conditions", "observedGeneration", "phase"}
        assert {part: after[part] for part in after.keys() - told} == {
            part: before[part] for part in before.keys() - told
        }
        assert "1" in world.sprites.sprites["box"].sessions

        world.kube.patch("one", idlePolicy="Detached")
        await world.pass_time(SETTLED)

        assert world.reason("one", "Ready") == "Detached"
        assert world.status("one")["session"] == before["session"]
        assert {entry["observedGeneration"] for entry in world.status("one")["conditions"]} == {3}


@pytest.mark.looptime
async def test_a_suspended_terminal_is_not_reaped_because_it_could_not_be_read_for_a_while() -> None:
    async with MemoryWorld() as world:
        world.sprites.add("box")
        world.sprites.start("box", "1")
        world.kube.create("one", sessionId="1", suspend=True)
        world.kube.patch("one", suspend=False)
        await world.pass_time(SETTLED)
        world.kube.patch("one", suspend=True)
        await world.pass_time(timedelta(hours=2))

        world.kube.patch("one", idlePolicy="Sometimes")
        await world.pass_time(SETTLED)
        assert world.reason("one", "Ready") == "ObjectInvalid"
        world.kube.patch("one", idlePolicy="Detached", suspend=False)
        await world.pass_time(SETTLED)

        assert world.reason("one", "Ready") == "Detached"


@pytest.mark.looptime
async def test_where_the_status_is_what_cannot_be_read_the_conditions_say_so_and_the_rest_is_left() -> None:
    async with MemoryWorld() as world:
        session: dict[str, Any] = {"id": 41}
        conditions = [
            {"type": "Ready", "status": "True", "reason": "Detached", "message": "", "lastTransitionTime": EPOCH},
        ]
        world.kube.create("odd", sessionId="1")
        world.kube.objects["odd"]["status"] = {"session": session, "conditions": conditions, "observedGeneration": 1}
        await world.restart()
        await world.pass_time(SOME_LOOKS)

        assert world.condition("odd", "Stalled")["message"].startswith("status.session.id cannot be read: ")
        assert world.status("odd")["session"] == session
        assert world.kube.writes == ["status odd"]


@pytest.mark.looptime
async def test_conditions_that_cannot_be_read_are_replaced_and_the_next_look_goes_on() -> None:
    async with MemoryWorld() as world:
        world.kube.create("odd", sessionId="1")
        world.kube.objects["odd"]["status"] = {"conditions": [{"type": "Ready", "status": "Perhaps"}]}
        await world.restart()
        await world.pass_time(SETTLED)

        assert world.reason("odd", "Stalled") == "ObjectInvalid"
        assert len(world.status("odd")["conditions"]) == 9
        assert world.kube.writes == ["status odd"]

        await world.pass_time(SOME_LOOKS)

        assert world.reason("odd", "Stalled") == "SpriteNotFound"


@pytest.mark.looptime
async def test_where_the_status_cannot_be_written_an_event_tells_once() -> None:
    async with MemoryWorld() as world:
        world.kube.status_trouble = Invalid("spec.spriteName: Required value", status=422, spoke=True)
        world.kube.create("odd", sessionId="1", deletionPolicy="Archive")
        await world.pass_time(SOME_LOOKS)

        assert len(world.notes("odd")) == 1
        assert world.kube.status_tries == 1

        world.kube.patch("odd", deletionPolicy="Burn")
        await world.pass_time(SETTLED)

        assert len(world.notes("odd")) == 2

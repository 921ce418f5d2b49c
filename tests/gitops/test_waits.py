"""
`kubectl wait` never returns early: not on a condition that was true before an edit and has not been judged since.

200 random edits of real objects, one after the other; the watch tells every state in between. kubectl's rule is played
on each of them, and real kubectl waits for some.
Source: kubectl 1.37, `wait --for=condition`: a condition whose own `observedGeneration` is older than
`metadata.generation` does not count.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from tests.gitops.lives import LAUNCH, State, request_look
from tests.gitops.watching import Recorder
from tests.support.operator import World, read_condition
from tests.support.process import await_true

SEED: Final = 20260131
EDITS: Final = 200
EVERY: Final = 20
"""After each so many edits real kubectl waits."""
ANSWERED_WITHIN_SECONDS: Final = 30.0

NAMES: Final = ("edited-a", "edited-b", "edited-c", "edited-d")


@pytest.fixture(scope="module")
def edited(stand: World) -> Iterator[World]:
    """Four terminals, two of them launched and two adopted, all of them at rest."""
    stand.lab.create_sprites("edits")
    stand.lab.set_state("edits", "running")
    for name in NAMES[:2]:
        stand.create(name, spriteName="edits", launch=LAUNCH)
    for name in NAMES[2:]:
        stand.create(name, spriteName="edits", sessionId=stand.lab.start_session("edits", "sleep", "600")["id"])
    for name in NAMES:
        stand.await_reason(name, "Detached")
    yield stand
    for name in NAMES:
        stand.delete(name)
    for name in NAMES:
        stand.await_gone(name)


def draw_edit(luck: Random, spec: dict[str, Any], number: int) -> dict[str, Any]:
    """Draw a change that is one, so that the generation moves."""
    match luck.randrange(6):
        case 0:
            attached = not spec.get("attached", False)
            return {"attached": attached, "activeSocketId": f"socket-{number}" if attached else ""}
        case 1:
            return {"activeSocketId": f"socket-{number}"}
        case 2:
            return {"suspend": not spec["suspend"]}
        case 3:
            return {"holdWanted": not spec["holdWanted"]}
        case 4:
            return {"idleTimeoutSeconds": 3600 + number}
        case _:
            return {"deletionPolicy": "Orphan" if spec["deletionPolicy"] == "Terminate" else "Terminate"}


def counts_for_kubectl(state: State, kind: str) -> bool:
    """Kubectl's rule: is the condition of this state's generation, so that its value is taken?"""
    condition = read_condition(state["status"], kind)
    return bool(condition.get("observedGeneration", 0) >= state["metadata"]["generation"])


def judge_spec(spec: dict[str, Any]) -> dict[str, str]:
    """What the conditions must say of a spec once they count, as far as the spec alone decides it."""
    return {
        "Attached": str(bool(spec.get("attached"))),
        "Fenced": str(spec.get("activeSocketId") is not None),
        "Ready": "True",
        "Stalled": "False",
        "Reconciling": "False",
        "Terminated": "False",
    }


def test_no_condition_counts_before_it_was_judged_for_the_edit_that_is_waited_for(edited: World) -> None:
    luck = Random(SEED)
    written: list[tuple[str, int]] = []
    with Recorder(edited.cluster, edited.namespace) as recorder:
        for number in range(EDITS):
            name = luck.choice(NAMES)
            before = edited.get(name)
            assert before is not None
            after = edited.patch(name, **draw_edit(luck, before["spec"], number))
            assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
            written.append((name, after["metadata"]["generation"]))
            if number % EVERY == 0:
                kind = luck.choice(["Ready=True", "Stalled=False", "Reconciling=False"])
                edited.cluster.kubectl(
                    "wait", f"aterm/{name}", f"--namespace={edited.namespace}", f"--for=condition={kind}"
                )
                waited = edited.get(name)
                assert waited is not None
                assert waited["status"]["observedGeneration"] >= after["metadata"]["generation"]
                assert counts_for_kubectl(waited, kind.partition("=")[0])
        for name in NAMES:
            await_observed(edited, recorder, name)
        states = {name: recorder.states(name) for name in NAMES}

    early = 0
    for name, generation in written:
        first = next(state for state in states[name] if state["metadata"]["generation"] == generation)
        # Directly after the edit nothing counts, although every condition may have the right value already.
        early += read_condition(first["status"], "Ready")["status"] == "True"
        assert not any(counts_for_kubectl(first, kind) for kind in judge_spec(first["spec"]))
    for state in (state for told in states.values() for state in told):
        for kind, value in judge_spec(state["spec"]).items():
            if counts_for_kubectl(state, kind):
                assert read_condition(state["status"], kind)["status"] == value, (kind, state)
        if counts_for_kubectl(state, "Reconciling"):
            reason = read_condition(state["status"], "Reconciling")["reason"]
            assert (reason == "Suspended") == state["spec"]["suspend"], state
    # Without these the test would prove nothing: there was something to be taken for an answer.
    assert early > EDITS / 2


def await_observed(world: World, recorder: Recorder, name: str) -> None:
    """Wait until the last edit was answered, and the watch has told it."""

    def is_observed() -> bool:
        terminal = world.get(name)
        return terminal is not None and terminal["status"]["observedGeneration"] == terminal["metadata"]["generation"]

    await_true(is_observed, f"the last edit of {name} to be observed", ANSWERED_WITHIN_SECONDS)
    terminal = world.get(name)
    assert terminal is not None
    recorder.await_version(name, terminal["metadata"]["resourceVersion"])


def test_real_kubectl_waits_while_the_operator_is_away(stand: World) -> None:
    """The condition says True, for the generation before; kubectl does not take it."""
    name = f"{stand.namespace}-unwatched"
    path = stand.path.replace(stand.namespace, name)
    body = {
        "apiVersion": "agentterminal.dev/v1alpha1",
        "kind": "AgentTerminal",
        "metadata": {"name": "alone"},
        "spec": {"spriteName": "box", "launch": dict(LAUNCH)},
    }
    status, created = stand.cluster.request("POST", path, body=body)
    assert status == 201
    conditions = [
        {**condition, "status": "True", "observedGeneration": 1} for condition in created["status"]["conditions"]
    ]
    merge = "application/merge-patch+json"
    patch = {"status": {"observedGeneration": 1, "conditions": conditions}}
    assert stand.cluster.request("PATCH", f"{path}/alone/status", body=patch, content_type=merge)[0] == 200
    words = ("wait", "aterm/alone", f"--namespace={name}", "--for=condition=Ready")
    stand.cluster.kubectl(*words, "--timeout=30s")

    edit = {"spec": {"idleTimeoutSeconds": 3600}}
    assert stand.cluster.request("PATCH", f"{path}/alone", body=edit, content_type=merge)[0] == 200

    waited = stand.cluster.kubectl(*words, "--timeout=1s", check=False)
    assert waited.code != 0
    assert "timed out" in waited.stderr


# --- a look now -------------------------------------------------------------------------------------------------------


def test_a_request_for_a_look_is_answered_in_every_situation_with_one_write_each(stand: World) -> None:
    """Also where nothing is left to do; the same token again asks for nothing."""
    lab = stand.lab
    lab.create_sprites("looks")
    lab.set_state("looks", "running")
    rest: dict[str, tuple[str, str]] = {
        "look-detached": ("Detached", "Reconciling"),
        "look-terminated": ("Confirmed", "Reconciling"),
        "look-suspended": ("Suspended", "Reconciling"),
        "look-stalled": ("SessionNotFound", "Reconciling"),
        "look-tokenless": ("SecretNotFound", "Reconciling"),
    }
    stand.create("look-detached", spriteName="looks", launch=LAUNCH)
    stand.await_reason("look-detached", "Detached")
    await_metadata(stand)
    stand.create("look-terminated", spriteName="looks", launch=LAUNCH, terminated=True)
    stand.create("look-suspended", spriteName="looks", launch=LAUNCH, suspend=True)
    stand.create("look-stalled", spriteName="looks", sessionId="9999")
    stand.create("look-tokenless", spriteName="looks", launch=LAUNCH, tokenSecretRef={"name": "nowhere"})
    for name, (reason, kind) in rest.items():
        stand.await_reason(name, reason, kind)
    with Recorder(stand.cluster, stand.namespace) as recorder:
        for name in rest:
            request_look(stand, name, f"{name}-1")
        for name in rest:
            await_handled(stand, name, f"{name}-1")
        for name in rest:
            request_look(stand, name, f"{name}-1")
            request_look(stand, name, "flux-1", key="reconcile.fluxcd.io/requestedAt")
            stand.cluster.kubectl(
                "annotate",
                "aterm",
                name,
                f"--namespace={stand.namespace}",
                "--overwrite",
                f"reconcile.agentterminal.dev/requestedAt={name}-2",
            )
        for name in rest:
            await_handled(stand, name, f"{name}-2")
            terminal = stand.get(name)
            assert terminal is not None
            recorder.await_version(name, terminal["metadata"]["resourceVersion"])
        told = {
            name: [state["status"].get("lastHandledReconcileAt") for state in recorder.states(name)] for name in rest
        }

    for name, (reason, kind) in rest.items():
        # As it was, the request, its answer; Flux's, which does not count beside our own; the second, its answer.
        first, second = f"{name}-1", f"{name}-2"
        assert told[name] == [None, None, first, first, first, second]
        assert stand.condition(name, kind)["reason"] == reason


def test_fluxs_own_annotation_asks_for_a_look_where_ours_is_absent(stand: World) -> None:
    stand.lab.create_sprites("flux-box")
    stand.lab.set_state("flux-box", "running")
    stand.create("flux", spriteName="flux-box", launch=LAUNCH)
    stand.await_reason("flux", "Detached")

    request_look(stand, "flux", "2026-01-31T08:00:00Z", key="reconcile.fluxcd.io/requestedAt")

    await_handled(stand, "flux", "2026-01-31T08:00:00Z")


def await_metadata(world: World) -> None:
    """Wait until every sprite was read, so that no later visit of the others learns more of theirs."""
    last = world.lab.requests()[-1]["number"]
    assert len(world.lab.requests(cause="metadata", since=last, at_least=2, wait_seconds=20)) >= 2


def await_handled(world: World, name: str, token: str) -> None:
    """Wait until a request was answered."""
    await_true(lambda: world.status(name).get("lastHandledReconcileAt") == token, f"{name} to answer {token}")

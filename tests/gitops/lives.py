"""
The lives of objects of every phase, side by side, on the real API server with the real operator.

`play_lives` brings each about and keeps every state that the watch told. `SCENES` says which of those states is the
one to remember, and what Flux and Argo CD should say about it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from controller.api.session import is_same_created
from tests.gitops.judges import Health, Word, Words
from tests.gitops.watching import Recorder
from tests.support.emulator import Lab
from tests.support.operator import World, read_condition
from tests.support.process import await_true

State = dict[str, Any]
Pick = Callable[[list[State]], State]

SLEEP: Final = ["sleep", "600"]
LAUNCH: Final[Mapping[str, Any]] = {"command": SLEEP}
LEAVE_ONE: Final[Mapping[str, Any]] = {"command": ["sh", "-c", "setsid sleep 600 & exec sleep 600"]}

DONE: Final = Words(Word.CURRENT, Health.HEALTHY)
WORKING: Final = Words(Word.IN_PROGRESS, Health.PROGRESSING)
STUCK: Final = Words(Word.FAILED, Health.DEGRADED)
GOING: Final = Words(Word.TERMINATING, Health.PROGRESSING)


@dataclass(frozen=True, slots=True)
class Scene:
    """
    One state of one life.

    Args:
        words: What both judges should say about it.
        life: The object; by default the one of the scene's own name.
        pick: Which of its states; by default the last.
    """

    words: Words
    life: str | None = None
    pick: Pick = lambda states: states[-1]


def first_with(reason: str) -> Pick:
    """Pick the first state whose situation has this name."""

    def pick(states: list[State]) -> State:
        return next(state for state in states if read_situation(state) == reason)

    return pick


def first_unseen(states: list[State]) -> State:
    """Pick the first state whose spec is newer than what was observed, after something was."""
    return next(
        state for state in states if -1 < state["status"]["observedGeneration"] < state["metadata"]["generation"]
    )


def first_born(states: list[State]) -> State:
    """Pick the state of the creation."""
    return states[0]


SCENES: Final[Mapping[str, Scene]] = {
    "born": Scene(WORKING, life="detached", pick=first_born),
    "starting": Scene(WORKING, life="detached", pick=first_with("Starting")),
    "detached": Scene(DONE),
    "running": Scene(DONE),
    "held": Scene(DONE),
    "edited": Scene(WORKING, life="running", pick=first_unseen),
    "suspended-before-start": Scene(Words(Word.IN_PROGRESS, Health.SUSPENDED)),
    "suspended-alive": Scene(Words(Word.CURRENT, Health.SUSPENDED)),
    "terminating": Scene(WORKING),
    "terminated": Scene(DONE),
    "terminated-unborn": Scene(DONE),
    "leftovers": Scene(DONE),
    "deleting": Scene(GOING),
    "reap-owed": Scene(WORKING),
    "reaped": Scene(DONE),
    "exit-unseen": Scene(DONE),
    "lost": Scene(STUCK),
    "session-not-found": Scene(STUCK),
    "session-not-ours": Scene(STUCK),
    "session-taken": Scene(STUCK),
    "secret-not-found": Scene(STUCK),
    "secret-key-missing": Scene(STUCK),
    "token-invalid": Scene(STUCK),
    "token-not-allowed": Scene(STUCK),
    "token-rejected": Scene(STUCK),
    "launch-invalid": Scene(STUCK),
    "sprite-not-found": Scene(WORKING),
    "sprites-unavailable": Scene(WORKING),
}
"""At least one of every phase that this operator writes (`Exited` as Reaped and as ExitUnseen)."""

STEPS: Final[Mapping[str, tuple[Words, ...]]] = {
    "running": (WORKING, DONE, WORKING, DONE),
    "resumed": (
        WORKING,
        Words(Word.IN_PROGRESS, Health.SUSPENDED),
        WORKING,
        DONE,
        WORKING,
        Words(Word.CURRENT, Health.SUSPENDED),
        WORKING,
        DONE,
    ),
    "terminated": (WORKING, DONE, WORKING, DONE),
    "deleted": (WORKING, DONE, GOING),
    "lost": (WORKING, DONE, STUCK),
    "session-taken": (WORKING, STUCK),
    "deleting": (WORKING, DONE, GOING),
}
"""What is said one after the other over a whole life, each word once until it changes."""


def read_situation(state: State) -> str:
    """The reason that Reconciling carries."""
    return str(read_condition(state["status"], "Reconciling")["reason"])


@dataclass(frozen=True, slots=True)
class Lives:
    """What the watch told, by name."""

    states: Mapping[str, list[State]]

    def find(self, scene: str) -> State:
        """Give the state that a scene is about."""
        told = SCENES[scene]
        return told.pick(self.states[told.life or scene])


def play_lives(world: World) -> Lives:
    """Bring everything about, and keep what the watch told."""
    with Recorder(world.cluster, world.namespace) as recorder:
        _Play(world, world.lab).run()
        names = {scene.life or name for name, scene in SCENES.items()} | set(STEPS)
        for name in names:
            last = world.get(name)
            if last is None:
                recorder.await_gone(name)
            else:
                recorder.await_version(name, last["metadata"]["resourceVersion"])
        return Lives({name: recorder.states(name) for name in names})


class _Play:
    """The stage directions: begin everything, wait, go on."""

    def __init__(self, world: World, lab: Lab) -> None:
        self._world = world
        self._lab = lab

    def run(self) -> None:
        self._prepare()
        self._begin()
        self._await_begun()
        self._go_on()
        self._await_ends()

    def _prepare(self) -> None:
        """
        Let every sprite run, and the operator know all of them, before any other object is there.

        Else it is a matter of luck whether an object that has no use for its sprite has heard of it.
        """
        world, lab = self._world, self._lab
        boxes = [f"{name}-box" for name in {*SCENES, *STEPS}]
        lab.create_sprites("shared", *boxes)
        for box in ("shared", *boxes):
            lab.set_state(box, "running")
        session = lab.start_session("shared", *SLEEP)
        self._create("owner", sprite="shared", sessionId=session["id"])
        world.await_reason("owner", "Detached")
        last = lab.requests()[-1]["number"]
        assert len(lab.requests(cause="metadata", since=last, at_least=2, wait_seconds=20)) >= 2

    def _create(self, name: str, *, sprite: str | None = None, **spec: Any) -> None:
        """Create an object in a sprite of its own name."""
        self._world.create(name, **{"spriteName": sprite or f"{name}-box", "idleTimeoutSeconds": 0, **spec})

    def _begin(self) -> None:
        world = self._world
        world.put_secret("empty", other="x")
        world.put_secret("crooked", token="two words")
        world.put_secret("wrong", token="nobody-knows-this-token")
        for name in ("detached", "running", "terminating", "terminated", "deleting", "deleted", "suspended-alive"):
            self._create(name, launch=LAUNCH)
        self._create("leftovers", launch=LEAVE_ONE)
        self._create("held", launch=LAUNCH, attached=True, activeSocketId="socket-1", holdWanted=True)
        self._create("reap-owed", launch=LAUNCH, attached=True, activeSocketId="socket-1")
        self._create("reaped", launch=LAUNCH, idleTimeoutSeconds=3)
        self._create("exit-unseen", launch={"command": ["true"]})
        self._create("suspended-before-start", launch=LAUNCH, suspend=True)
        self._create("resumed", launch=LAUNCH, suspend=True)
        self._create("terminated-unborn", launch=LAUNCH, terminated=True)
        self._begin_adopted()
        self._begin_stuck()

    def _begin_adopted(self) -> None:
        lab = self._lab
        self._create("lost", sessionId=lab.start_session("lost-box", *SLEEP)["id"])
        taken = self._world.status("owner")["session"]["id"]
        self._create("session-taken", sprite="shared", sessionId=taken)
        another = lab.start_session("shared", *SLEEP)
        self._create(
            "session-not-ours", sprite="shared", sessionId=another["id"], sessionCreatedTime="2020-01-01T00:00:00Z"
        )
        self._create("session-not-found", sprite="shared", sessionId="9999")

    def _begin_stuck(self) -> None:
        self._create("secret-not-found", launch=LAUNCH, tokenSecretRef={"name": "nowhere"})
        self._create("secret-key-missing", launch=LAUNCH, tokenSecretRef={"name": "empty"})
        self._create("token-invalid", launch=LAUNCH, tokenSecretRef={"name": "crooked"})
        self._create("token-rejected", launch=LAUNCH, tokenSecretRef={"name": "wrong"})
        self._create("token-not-allowed", launch=LAUNCH, tokenSecretRef=None)
        variable = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "a"}}}
        self._create("launch-invalid", launch={"command": SLEEP, "env": [variable]})
        self._create("sprite-not-found", sprite="nowhere", launch=LAUNCH)
        self._lab.arm_fault(
            {"kind": "status", "status": 500}, route="exec.list", sprite="sprites-unavailable-box", times=10_000
        )
        self._create("sprites-unavailable", sessionId="1")

    def _await_begun(self) -> None:
        for name in ("detached", "running", "terminating", "terminated", "deleting", "deleted", "suspended-alive"):
            self._world.await_reason(name, "Detached")
        # A look that is asked for before there is a session would not find its end.
        for name in ("leftovers", "lost", "exit-unseen"):
            self._world.await_reason(name, "Detached")
        self._world.await_reason("reap-owed", "Running")
        self._world.await_reason("held", "HoldActive", "Held")
        self._world.await_reason("resumed", "Suspended")

    def _go_on(self) -> None:
        world, lab = self._world, self._lab
        for name in ("terminating", "deleting"):
            lab.arm_fault({"kind": "status", "status": 500}, route="exec.kill", sprite=f"{name}-box", times=10_000)
        self._lose("lost")
        lab.set_state("reap-owed-box", "warm")
        world.patch("reap-owed", attached=False, activeSocketId="", idleTimeoutSeconds=1)
        world.patch("running", attached=True, activeSocketId="socket-1")
        world.patch("suspended-alive", suspend=True)
        world.patch("resumed", suspend=False)
        for name in ("terminating", "terminated", "leftovers"):
            world.patch(name, terminated=True)
        for name in ("deleting", "deleted"):
            world.delete(name)
        request_look(world, "exit-unseen", "1")
        world.await_reason("resumed", "Detached")
        world.patch("resumed", suspend=True)
        world.await_reason("resumed", "Suspended")
        world.patch("resumed", suspend=False)
        world.await_reason("resumed", "Detached")

    def _lose(self, name: str) -> None:
        """Give a session's id to another one, whose created time differs, as a cold start does: evidence at once."""
        sprite = f"{name}-box"
        created = datetime.fromisoformat(self._world.status(name)["session"]["created"])
        self._lab.set_state(sprite, "cold")
        self._lab.set_state(sprite, "running")

        def is_another() -> bool:
            innocent = self._lab.start_session(sprite, *SLEEP)
            if not is_same_created(created, datetime.fromisoformat(innocent["created"])):
                return True
            self._lab.set_state(sprite, "cold")
            self._lab.set_state(sprite, "running")
            return False

        await_true(is_another, "a session that no created time takes for the former", poll_seconds=0.5)
        request_look(self._world, name, "1")

    def _await_ends(self) -> None:
        world = self._world
        for name, reason in {
            "running": "Running",
            "held": "Held",
            "suspended-before-start": "Suspended",
            "suspended-alive": "Suspended",
            "reap-owed": "ReapOwed",
            "reaped": "Reaped",
            "exit-unseen": "ExitUnseen",
            "lost": "Lost",
            "session-taken": "SessionTaken",
            "session-not-ours": "SessionNotOurs",
            "session-not-found": "SessionNotFound",
            "secret-not-found": "SecretNotFound",
            "secret-key-missing": "SecretKeyMissing",
            "token-invalid": "TokenInvalid",
            "token-not-allowed": "TokenNotAllowed",
            "token-rejected": "TokenRejected",
            "launch-invalid": "LaunchInvalid",
            "sprite-not-found": "SpriteNotFound",
            "sprites-unavailable": "SpritesUnavailable",
        }.items():
            world.await_reason(name, reason)
        for name, reason in {
            "terminating": "KillFailed",
            "deleting": "KillFailed",
            "terminated": "Confirmed",
            "terminated-unborn": "NothingToEnd",
            "leftovers": "LeftoversFound",
        }.items():
            world.await_reason(name, reason, "Terminated")
        world.await_gone("deleted")


def request_look(world: World, name: str, token: str, key: str = "reconcile.agentterminal.dev/requestedAt") -> State:
    """Ask for a look now, as `kubectl annotate` does; give the answer."""
    body = {"metadata": {"annotations": {key: token}}}
    status, answer = world.cluster.request(
        "PATCH", f"{world.path}/{name}", body=body, content_type="application/merge-patch+json"
    )
    assert status == 200, answer
    annotated: State = answer
    return annotated

"""The world of demo and lab: its operator has least rights, its commands reach nobody else, its story is checked."""

import asyncio
import io
import os
import re
import secrets
import sys
import threading
from collections.abc import Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest

from controller.cli.demo import DemoFailed, Story, judge_input
from controller.cli.telling import PlainTeller
from controller.cli.worlds import GATEWAY_COMMAND, GATEWAY_RULES, OPERATOR_COMMAND, PEOPLE_RULES, RULES
from controller.lab.binaries import Binaries, build_progress, find_binaries, read_binaries_settings
from controller.lab.rights import read_gateway_rules, read_people_rules, read_rules
from controller.lab.world import World, WorldFailed, WorldSettings
from controller.settings import environment, read_cache_folder
from tests.lab.watching import list_children, read_command, until, until_gone
from tests.support.secrecy import build_sprites_token, look_at_file

pytestmark = [pytest.mark.cluster, pytest.mark.sprites]

Answer = TypeVar("Answer")
CALL_SECONDS = 110
PLANTED = build_sprites_token("planted")


KUBERC = """
apiVersion: kubectl.config.k8s.io/v1beta1
kind: Preference
defaults:
  - command: get
    options:
      - name: output
        default: json
"""


class Place:
    """A world in a thread and a loop of its own, which last as long as the tests of this module."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.first_log = ""
        self.operator = 0
        # This process has more children than the world's, an operator of other tests among them.
        self._others = set(list_children(os.getpid()))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="world", daemon=True)
        self._thread.start()
        self.world = self.call(self._build())

    def call(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def run(self, line: str) -> str:
        """Run a line that succeeds, and return what it wrote."""
        done = self.call(self.world.run(line))
        assert done.code == 0, done.stdout
        return done.stdout

    def tell(self, line: str, *, code: int = 0, shows: str = "") -> str:
        """Let the story run a line, and return what was told."""
        stream = io.StringIO()
        self.call(Story(self.world, PlainTeller(stream)).run(line, code=code, shows=shows))
        return stream.getvalue()

    def close(self) -> list[str]:
        for log in self.world.kubeconfig.parent.glob("*.log"):
            look_at_file(f"The {log.name} of the world", log)
        self.call(self.world.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        return self.world.find_left()

    def _find_operator(self) -> int:
        mine = set(list_children(os.getpid())) - self._others
        (operator,) = [pid for pid in mine if "operator" in read_command(pid)]
        return operator

    async def _build(self) -> World:
        settings = WorldSettings(
            OPERATOR_COMMAND,
            read_rules(RULES),
            {
                **environment(),
                "HOME": str(self.home),
                "KUBECONFIG": "/absent/of-the-user",
                "AGENTTERMINAL_SPRITES_TOKEN": PLANTED,
                "AGENTTERMINAL_SPRITES_URL": "https://absent.invalid",
                "AGENTTERMINAL_NAMESPACES": "another",
            },
            gateway_command=GATEWAY_COMMAND,
            gateway_rules=read_gateway_rules(GATEWAY_RULES),
            people_rules=read_people_rules(PEOPLE_RULES),
        )
        world = World(await find(), settings)
        await world.start()
        # What it has logged by now, not what it may log in a moment.
        self.operator = self._find_operator()
        self.first_log = await asyncio.to_thread(Path(f"/proc/{self.operator}/fd/2").read_text)
        return world


async def find() -> Binaries:
    return await find_binaries(
        read_binaries_settings(environment(), cache=read_cache_folder(environment())), build_progress()
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("home")
    (home / ".kube").mkdir()
    (home / ".kube" / "kuberc").write_text(KUBERC)
    place = Place(home)
    yield place
    assert place.close() == []


def test_the_operator_is_there_when_the_world_is(place: Place) -> None:
    assert "Every object was seen." in place.first_log
    assert place.call(place.world.read_terminals()) == []


def test_the_gateway_is_there_when_the_world_is(place: Place) -> None:
    url = place.world.gateway_url
    assert "The doors are open." in place.run(f"until curl -sf {url}/readyz; do sleep 0.1; done")
    assert place.world.environment["AGENTTERMINAL_ATTACH_URL"] == url


def test_the_operator_may_do_what_the_chart_allows_and_nothing_else(place: Place) -> None:
    def can(words: str) -> str:
        account = "--as=system:serviceaccount:agentterminal:agentterminal-operator"
        return place.call(place.world.run(f"kubectl auth can-i {words} {account}")).stdout.strip().splitlines()[-1]

    for allowed in (
        "watch aterm -A",
        "patch aterm -A",
        "patch aterm --subresource=status -A",
        "get secret/sprites-token",
    ):
        assert can(allowed) == "yes", allowed
    for refused in ("update aterm", "delete aterm", "list secrets", "get secret/another", "get pods", "create aterm"):
        assert can(refused) == "no", refused


def test_people_have_the_roles_of_the_chart_and_their_own_kubeconfigs(place: Place) -> None:
    async def ask(person: str, right: str) -> str:
        line = f"kubectl auth can-i create aterm --subresource={right}"
        window = await place.world.open_window(line, person=person)
        await window.wait_ended(within=timedelta(seconds=60))
        return window.take_lines()[-1]

    rights = ("view", "attach", "takeover")
    answers = {person: [place.call(ask(person, right)) for right in rights] for person in ("anna", "bert", "carla")}

    assert answers == {"anna": ["yes", "yes", "no"], "bert": ["yes", "yes", "yes"], "carla": ["yes", "no", "no"]}


def test_the_users_own_token_cluster_and_settings_stay_out(place: Place) -> None:
    environ = Path(f"/proc/{place.operator}/environ").read_text().split("\0")

    assert not [line for line in environ if PLANTED in line or "absent" in line or "another" in line]
    assert PLANTED not in place.run("env")
    assert "absent" not in place.run("env")


def test_kubectl_neither_reads_nor_writes_in_the_users_home(place: Place) -> None:
    assert "{" not in place.run("kubectl get secrets"), "As JSON, as the user's kuberc asks for."
    assert [str(path.relative_to(place.home)) for path in sorted(place.home.rglob("*"))] == [".kube", ".kube/kuberc"]


class Pipeline:
    """Two processes that wait for each other's end, told apart from those of other runs of this test."""

    def __init__(self) -> None:
        number = secrets.randbelow(10**9)
        self.line = f"sleep 41.{number} | sleep 42.{number}"
        self._commands = [word.split() for word in self.line.split(" | ")]

    def find(self) -> list[int]:
        pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
        return [pid for pid in pids if read_command(pid) in self._commands]


def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(place: Place) -> None:
    pipeline = Pipeline()

    with pytest.raises(WorldFailed, match=rf"`{re.escape(pipeline.line)}` did not end within 0\.5 s\."):
        place.call(place.world.run(pipeline.line, within=timedelta(seconds=0.5)))

    assert pipeline.find() == []


KILLED = """
import asyncio, os, sys
from datetime import timedelta
from controller.lab.processes import Janitor
from controller.lab.world import run_line
asyncio.run(run_line(sys.argv[1], Janitor(), environment=dict(os.environ), within=timedelta(seconds=60)))
"""


async def test_a_command_goes_with_us_with_all_that_it_started_even_after_a_kill_9() -> None:
    pipeline = Pipeline()
    runner = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, pipeline.line)
    await until(lambda: len(pipeline.find()) == 2, within_seconds=30)
    started = pipeline.find()

    runner.kill()

    await runner.wait()
    await until_gone(*started)


def test_the_story_shows_a_command_and_what_it_wrote(place: Place) -> None:
    assert place.tell("echo one; echo two >&2") == "$ echo one; echo two >&2\none\ntwo\n"
    assert place.tell("exit 3", code=3) == "$ exit 3\n"


def test_a_command_that_ends_otherwise_than_told_fails_the_story(place: Place) -> None:
    with pytest.raises(DemoFailed, match=r"`exit 3` ended with 3 instead of 0\."):
        place.tell("exit 3")


def test_a_command_that_does_not_show_what_it_should_fails_the_story(place: Place) -> None:
    with pytest.raises(DemoFailed, match=r"`echo one` did not show two\."):
        place.tell("echo one", shows="two")


def test_a_terminal_that_says_terminated_while_its_process_lives_fails_the_story(place: Place) -> None:
    story = Story(place.world, PlainTeller(io.StringIO()))
    place.run(
        "kubectl apply -f examples/stubborn.yaml && kubectl wait aterm stubborn --for=condition=Ready --timeout=30s"
    )
    alive = place.operator

    with pytest.raises(DemoFailed, match=rf"says Terminated, but its process {alive} was not there or lives\."):
        place.call(story.terminate(alive))
    place.run("kubectl delete aterm stubborn --timeout=30s")


@pytest.mark.parametrize(
    ("received", "fault"),
    [
        (': anna 1\recho "7 times 7\r: anna 2\r', "arrived after that of whoever took over"),
        (": anna 1\r: anna 2\r", "arrived after that of whoever took over"),
        (': anna 1\rrm notes\recho "7 times 7\r', "Input of somebody who only looks arrived"),
        (': anna 1\r: anna 3\recho "7 times 7\r', "these arrived: [1, 3]"),
        (': anna 1\r: anna 2\r: anna 3\r: anna 4\recho "7 times 7\r', "these arrived: [1, 2, 3, 4]"),
    ],
)
def test_input_that_arrived_otherwise_than_told_fails_the_story(received: str, fault: str) -> None:
    with pytest.raises(DemoFailed, match=re.escape(fault)):
        judge_input(received, 3)


def test_what_arrived_of_somebody_who_was_replaced_is_counted() -> None:
    assert judge_input('echo 1\r: anna 1\r: anna 2\recho "7 times 7\r', 3) == 2
    assert judge_input('echo "7 times 7\r', 3) == 0


def test_somebody_who_is_not_told_that_they_were_replaced_fails_the_story(place: Place) -> None:
    async def work() -> None:
        story = Story(place.world, PlainTeller(io.StringIO()))
        # Somebody whose line ends by itself, in the place of a client that is thrown out.
        await story.take_over(await place.world.open_window("exit 0", person="anna"))

    place.run(
        "kubectl apply -f examples/adopted.yaml && kubectl wait aterm adopted --for=condition=Ready --timeout=30s"
    )
    with pytest.raises(DemoFailed, match="Anna was replaced, and her client ended with 0 and without saying so"):
        place.call(work())
    place.run(
        """kubectl patch aterm adopted --type=merge -p '{"spec":{"deletionPolicy":"Orphan"}}'"""
        " && kubectl delete aterm adopted --timeout=30s"
    )


def test_an_object_that_leaves_processes_behind_fails_the_story(place: Place) -> None:
    # The session that was started by hand lives on, since no object has adopted it.
    with pytest.raises(DemoFailed, match=r"Every object is deleted, but \d+ processes live in sprite dev\."):
        place.call(Story(place.world, PlainTeller(io.StringIO())).delete())


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("sh", "-c", "echo broken; exit 3"), "The operator ended with code 3. The end of its log:\nbroken"),
        (("/absent/operator",), "The operator ended with code 127. The end of its log:\n/absent/operator cannot be"),
    ],
)
async def test_an_operator_that_does_not_start_is_told_with_its_log_and_leaves_nothing(
    command: tuple[str, ...], told: str
) -> None:
    world = World(await find(), WorldSettings(command, read_rules(RULES), environment()))

    with pytest.raises(ExceptionGroup) as caught:
        await world.start()

    (failure,) = caught.value.exceptions
    assert str(failure).startswith(told)
    assert world.seen_processes > 0
    assert world.find_left() == []


def test_what_is_left_is_named(place: Place) -> None:
    kinds = {line.split()[0] for line in place.world.find_left()}

    assert kinds == {"process", "folder"}, "It has not been stopped yet."

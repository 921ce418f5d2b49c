"""
The calls of an operator on real sockets, with short periods, as the emulator's request log and its count of wakes tell.

What happens over a day, and every row of the wake list, is tested in virtual time (`tests/engine/test_quiet.py`,
`tests/engine/test_wake_list.py`); here the same engine meets real connections, frames and processes.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from tests.support.operator import World
from tests.support.process import await_true

PAGE: Final = Path(__file__).parents[2] / "docs/holds.md"
KUBECTL: Final = Path(sys.executable).with_name("kubectl")
SHORT: Final = {"METADATA_SECONDS": "1", "RESYNC_SECONDS": "10"}
SLEEP: Final = ["sleep", "600"]
QUIET_SECONDS: Final = 25.0
"""Some twenty readings of the metadata, two resyncs, beats of a hold, and a reap that is owed all the while."""
NEVER_REAPED: Final = {"idleTimeoutSeconds": 0}
LAUNCHED: Final[dict[str, Any]] = {"launch": {"command": SLEEP}, **NEVER_REAPED}
ROUTES: Final = {
    "list_sprites": ("sprites.list",),
    "get_sprite": ("sprites.get",),
    "list_sessions": ("exec.list",),
    "kill_session": ("exec.kill",),
    "run_command": ("exec.create",),
    "launch_session": ("exec.create",),
}
"""What the operator calls a route, and what the emulator does."""


def is_live(world: World, name: str) -> bool:
    return world.status(name)["phase"] in ("Running", "Detached")


def count_wakes(world: World, *sprites: str) -> list[int]:
    return [world.lab.sprite(name)["wakes"]["total"] for name in sprites]


def read_counter(world: World, name: str, *labels: str) -> Counter[tuple[str, ...]]:
    """Read a counter of the operator by some of its labels, without zeros."""
    assert world.operator is not None
    counts: Counter[tuple[str, ...]] = Counter()
    lines = re.findall(rf"^agentterminal_{name}{{(.*)}} (\S+)$", world.operator.read("metrics"), re.MULTILINE)
    for told, value in lines:
        pairs = dict(re.findall(r'(\w+)="([^"]*)"', told))
        counts[tuple(pairs[label] for label in labels)] += int(float(value))
    return +counts


def read_expiries(world: World) -> list[str]:
    """The bodies of the commands that have set a task, without those that came twice."""
    words = [word for entry in world.lab.requests(cause="hold") for word in parse_qs(entry["query"]).get("cmd", ())]
    return sorted({word for word in words if word.startswith('{"expire"')})


def is_put_to_rest(world: World, *names: str) -> bool:
    """Pause sprites, and tell whether the operator has seen it: a beat that was on its way wakes its sprite again."""
    for name in names:
        world.lab.set_state(name, "cold" if name == "lost" else "warm")
    await_metadata(world, 3)
    return all(world.lab.sprite(name)["true_status"] != "running" for name in names)


def await_metadata(world: World, readings: int) -> None:
    """Wait until the operator has read the metadata so many times from now on."""
    last = world.lab.requests()[-1]["number"]
    found = world.lab.requests(cause="metadata", since=last, at_least=readings, wait_seconds=60)
    assert len(found) >= readings


def test_nothing_is_asked_of_paused_sprites_and_each_entry_of_the_wake_list_wakes_once(world: World) -> None:
    """One operator: what must not wake comes first, side by side, and then each entry on a sprite of its own."""
    quiet = ["held", "reaped", "lost", "ending", "deleted"]
    fresh = ["adopting", "launching"]
    world.lab.create_sprites(*quiet, *fresh)
    for name in quiet:
        world.lab.set_state(name, "running")
    world.lab.clear_requests()
    world.start_operator(**SHORT)
    world.create("held", spriteName="held", attached=True, holdWanted=True, hold={"expireSeconds": 30}, **LAUNCHED)
    world.create("reaped", spriteName="reaped", **LAUNCHED)
    world.create("lost", spriteName="lost", relaunch="OnLost", attached=True, **LAUNCHED)
    world.create("ending", spriteName="ending", **LAUNCHED)
    world.create("deleted", spriteName="deleted", **LAUNCHED)
    world.await_reason("held", "HoldActive", "Held")
    for name in quiet[1:]:
        await_true(partial(is_live, world, name), name)
    adopted = world.lab.start_session("adopting", *SLEEP)["id"]
    await_true(partial(is_put_to_rest, world, *quiet, *fresh), "all to rest")
    # Its idle time is over at once: nobody has watched it since it began.
    world.patch("reaped", idleTimeoutSeconds=1)
    world.await_reason("reaped", "ReapOwed")
    before = count_wakes(world, *quiet, *fresh)
    begun = time.monotonic()
    world.lab.clear_requests()

    # What must not happen can only be waited out.
    time.sleep(QUIET_SECONDS)
    world.lab.requests(cause="metadata", at_least=int(QUIET_SECONDS / 2), wait_seconds=60)

    asked = Counter((entry["route"], entry["cause"]) for entry in world.lab.requests(door="api"))
    took = time.monotonic() - begun
    assert set(asked) == {("sprites.list", "metadata")}
    assert int(QUIET_SECONDS / 2) <= asked["sprites.list", "metadata"] <= took + 1
    assert count_wakes(world, *quiet, *fresh) == before
    assert world.condition("reaped", "Reconciling")["reason"] == "ReapOwed"
    assert read_counter(world, "sprites_wakes_total", "cause") == Counter()

    world.patch("ending", terminated=True)
    world.delete("deleted")
    world.create("adopting", spriteName="adopting", sessionId=adopted, **NEVER_REAPED)
    world.create("launching", spriteName="launching", **LAUNCHED)
    world.await_reason("ending", "Confirmed", "Terminated")
    world.await_gone("deleted")
    world.await_reason("adopting", "Detached")
    world.await_reason("launching", "Detached")

    now = dict(zip([*quiet, *fresh], count_wakes(world, *quiet, *fresh), strict=True))
    then = dict(zip([*quiet, *fresh], before, strict=True))
    assert {name: now[name] - then[name] for name in now} == {
        "held": 0,
        "reaped": 0,
        "lost": 0,
        "ending": 1,
        "deleted": 1,
        "adopting": 1,
        "launching": 1,
    }
    wakes = read_counter(world, "sprites_wakes_total", "cause")
    assert wakes == {("identify",): 2, ("adopt",): 1, ("launch",): 1}


def test_every_call_is_counted_by_route_and_cause_as_the_other_side_saw_it(world: World) -> None:
    world.lab.clear_requests()
    world.start_operator(**SHORT, HOLD_EXPIRE_SECONDS="90")
    world.create("one", attached=True, holdWanted=True, hold={"refreshSeconds": 5}, **LAUNCHED)
    world.await_reason("one", "HoldActive", "Held")
    assert read_expiries(world) == ['{"expire":90}']
    await_metadata(world, 6)
    world.patch("one", terminated=True)
    world.await_reason("one", "Confirmed", "Terminated")
    await_true(lambda: not world.lab.tasks("box"), "the hold to be released")

    def is_counted_alike() -> bool:
        """The metadata is read every second, so a reading may lie between the two looks."""
        counted: Counter[tuple[str, str]] = Counter()
        for (route, cause), count in read_counter(world, "sprites_calls_total", "route", "cause").items():
            counted[ROUTES[route][0], cause] += count
        seen = Counter((entry["route"], entry["cause"]) for entry in world.lab.requests(door="api"))
        told.append((counted, seen))
        return counted == seen

    told: list[Any] = []
    await_true(is_counted_alike, "both counts to agree", 40, lambda: str(told[-1]))
    causes = {cause for _, cause in told[-1][0]}
    assert causes >= {"metadata", "launch", "hold", "identify", "kill", "prove"}


def test_the_commands_of_the_page_about_holds_do_what_it_says(world: World) -> None:
    """In the order of the page: a wish, a right for a hook, a word by annotation, its withdrawal, a look."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    wish, allow, mark, withdraw, show = blocks
    once = {"command": ["sh", "-c", "echo hello; exec sleep 600"]}
    world.create("review-bot", hold={"expireSeconds": 60, "refreshSeconds": 5}, launch=once, **NEVER_REAPED)
    world.await_reason("review-bot", "Detached")

    run_block(world, wish)
    world.await_reason("review-bot", "HoldActive", "Held")
    world.await_reason("review-bot", "NotHeld", "Held", within=40)

    assert run_block(world, allow).rstrip().splitlines()[-1].count(".") == 2, "a token"
    may = partial(may_the_hook, world, "create", "agentterminals/review-bot", "--subresource=activity")
    await_true(may, "the authorizer to hear of it", poll_seconds=0.5)
    assert not may_the_hook(world, "create", "agentterminals/another", "--subresource=activity")
    assert not may_the_hook(world, "patch", "agentterminals/review-bot")

    run_block(world, mark)
    world.await_reason("review-bot", "HoldActive", "Held")
    assert json.loads(run_block(world, show))["cause"] == "Activity"

    run_block(world, withdraw)
    world.await_reason("review-bot", "NotWanted", "Held")
    assert run_block(world, show) == ""


def may_the_hook(world: World, *what: str) -> bool:
    account = "--as=system:serviceaccount:default:review-bot-hook"
    asked = world.cluster.kubectl("auth", "can-i", *what, account, f"--namespace={world.namespace}", check=False)
    assert asked.stdout.strip() in {"yes", "no"}, asked.stderr
    return asked.stdout.strip() == "yes"


def run_block(world: World, block: str) -> str:
    """Run one block of the page as its reader would."""
    places = {"KUBECONFIG": str(world.kubeconfig), "PATH": f"{KUBECTL.parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["sh", "-ec", block.replace("kubectl ", f"kubectl --namespace {world.namespace} ")],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
